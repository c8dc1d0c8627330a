/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_IDLE_H
#define ROUTER_IDLE_H

/**
 * @file
 * Behaviour of a packet lcore without work: [router] idle. This is the one exception from the rule
 * that packet lcores do not call the kernel. All of it is in idle.c, and `poll` runs none of it.
 *
 *   poll       turn again at once
 *   sleep      after IDLE_SPIN empty turns sleep 50 us, twice as long after each further empty
 * turn, at most 2 ms interrupt  after IDLE_SPIN_INT empty turns, about the time of a sleep and
 * wake-up, sleep until a device wakes the lcore: at most 6 ms, at most 2 ms while any timer runs,
 * plus up to 4 ms of timer slack (kvr_timer_slack.h). A sleep after empty turns halves their
 * number, down to IDLE_SPIN_LEAST; work during empty turns doubles it, so that single frames do not
 *              cost spinning. A device without wake-up (kvr_port_wait_arm()) is polled every 50 us
 *
 * A thread that gives work to a sleeping lcore or to control wakes it: idle_after_turn() after a
 * turn with work, idle_wake() after a call. Waker and sleeper first write (the ring, `asleep`) and
 * then read, with a full fence between, so one of them sees the other. Every sleep is bounded, so a
 * missed wake-up delays timers and work, but loses nothing.
 *
 * state/idle.h names the writers. A sleeping lcore is offline for QSBR, so grace periods do not
 * wait for it.
 */

#include <stdbool.h>
#include <stdint.h>

#include "state/idle.h"

struct lcore;
struct router;

#define IDLE_SPIN	100u
#define IDLE_SPIN_INT	16u
#define IDLE_SPIN_LEAST 2u
#define IDLE_LEAST_NS	UINT64_C(50000)
#define IDLE_SLEEP_NS	UINT64_C(2000000)
#define IDLE_WOKEN_NS	UINT64_C(6000000)

/** The state machine after a turn; @p worked: the turn found work. @p most_ns bounds a sleep. Pure.
 * @return nanoseconds to sleep; 0: turn again at once. */
static inline uint64_t idle_turn(struct idle *idle, bool worked, uint64_t most_ns)
{
	const bool woken = idle->mode == IDLE_INTERRUPT;

	if (worked) {
		if (idle->turns > 0 && idle->ns == 0 && idle->fewer > 0)
			idle->fewer--;
		idle->turns = 0;
		idle->ns = 0;
		return 0;
	}
	if (idle->turns < (woken ? IDLE_SPIN_INT >> idle->fewer : IDLE_SPIN)) {
		idle->turns++;
		return 0;
	}
	if (woken && idle->ns == 0 && IDLE_SPIN_INT >> idle->fewer > IDLE_SPIN_LEAST)
		idle->fewer++;
	idle->ns = idle->ns == 0 ? IDLE_LEAST_NS : 2 * idle->ns;
	if (idle->ns > most_ns)
		idle->ns = most_ns;
	return idle->ns;
}

/* ---- work_dp.c ---- */

/** A number that grows with every turn that found work other than calls. Own thread. */
uint64_t lcore_done(const struct lcore *lc);

/** Whether work waits in its rings. Any lcore, control. */
bool lcore_given(const struct lcore *lc);

/** Whether its next turn continues unfinished work. Own thread. */
bool lcore_goes_on(const struct lcore *lc);

/** Whether anything on it has a timer. Own thread. */
bool lcore_timers(const struct lcore *lc);

/* ---- idle.c ---- */

/** Set up and tear down. Start. @return 0 or -errno. */
int idle_init(struct idle *idle, int mode);
void idle_fini(struct idle *idle);

/** Called when its thread begins. */
void idle_begin(struct idle *idle);

/** Sleep after a turn of @p lc if it is time to. Not called in `poll`. Own thread. */
void idle_after_turn(struct lcore *lc);

/** Wake its owner if it sleeps. Any thread, after the work was queued. */
void idle_wake(struct idle *idle);

/** Control: wait for work for at most @p ns. */
void idle_control(struct router *rt, uint64_t ns);

#endif
