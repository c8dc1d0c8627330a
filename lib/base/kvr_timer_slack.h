/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_TIMER_SLACK_H
#define KVR_TIMER_SLACK_H

/**
 * @file
 * Timer slack: the delay that the kernel may add to a timed sleep. A timeout before the next kernel
 * tick needs a hardware timer, which is reprogrammed when the thread wakes early. In a virtual
 * machine that costs two exits to the host (8 us each) for nearly every sleep of a few
 * milliseconds. With a slack of one tick, the tick itself ends the sleep.
 */

#include <sys/prctl.h>

/* A tick at 250 Hz, the default of distributions; the initial slack of a process; the minimum. */
#define KVR_TIMER_SLACK_TICK_NS	 4000000ul
#define KVR_TIMER_SLACK_USUAL_NS 50000ul
#define KVR_TIMER_SLACK_LEAST_NS 1ul

/** Slack of one thread, owned by it. Zeroed: not set yet. */
struct kvr_timer_slack {
	unsigned long ns;
};

/**
 * Set the slack of the calling thread, before poll, epoll_wait or nanosleep. @p s belongs to that
 * thread. Enters the kernel only if @p ns changes. Threads created later inherit the slack.
 */
static inline void kvr_timer_slack_set(struct kvr_timer_slack *s, unsigned long ns)
{
	if (s->ns == ns)
		return;
	s->ns = ns;
	prctl(PR_SET_TIMERSLACK, ns);
}

#endif
