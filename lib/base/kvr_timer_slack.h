/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_TIMER_SLACK_H
#define KVR_TIMER_SLACK_H

/**
 * @file
 * How much later than asked for a thread's sleeps may end. An end that lies before the kernel's own
 * next tick has to be programmed, and again when the thread is woken before it: in a virtual
 * machine two exits to the host, 8 us each, for nearly every sleep of a few milliseconds. With so
 * much slack the tick itself ends it, and a thread that others wake pays nothing.
 */

#include <sys/prctl.h>

/* A tick of 250 a second, which is what distributions build; what a process begins with. */
#define KVR_TIMER_SLACK_TICK_NS	 4000000ul
#define KVR_TIMER_SLACK_USUAL_NS 50000ul
#define KVR_TIMER_SLACK_LEAST_NS 1ul

/** What a thread has asked for; its own. Zeros: nothing yet. */
struct kvr_timer_slack {
	unsigned long ns;
};

/** Before poll, epoll_wait or nanosleep of the calling thread, whose @p s is. Calls the kernel when
 * @p ns is another one than before. Threads that it starts later have it, too. */
static inline void kvr_timer_slack_set(struct kvr_timer_slack *s, unsigned long ns)
{
	if (s->ns == ns)
		return;
	s->ns = ns;
	prctl(PR_SET_TIMERSLACK, ns);
}

#endif
