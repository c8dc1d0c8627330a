/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_IDLE_H
#define ROUTER_IDLE_H

/**
 * @file
 * What a packet lcore does when it has nothing to do: [router] idle. This is the one exception from
 * the rule that packet lcores do not call the kernel, all of it is in idle.c, and in `poll` nothing
 * of it runs.
 *
 *   poll       it turns again at once
 *   sleep      after IDLE_SPIN empty turns it sleeps, 50 us first, twice as long after each empty
 *              turn, at most 2 ms
 *   interrupt  after at most IDLE_SPIN_INT empty turns, which take about as long as to sleep and to
 *              be woken, it sleeps until a device of its queues wakes it, at most 6 ms, or 2 ms
 *              while anything has timers, and 4 ms more, till the kernel's tick
 * (kvr_timer_slack.h). Each sleep after turns that found nothing halves their number, to
 * IDLE_SPIN_LEAST; work that comes in such turns doubles it: frames that come one by one are not
 *              waited for in vain. A device that cannot (kvr_port_wait_arm()) is looked at every
 *              50 us
 *
 * Whoever has given work to a sleeping lcore, or to control, wakes it: idle_after_turn() behind a
 * turn with work, idle_wake() after a call. Waker and sleeper each write first (the ring, `asleep`)
 * and look then, with a full fence between: one of them sees the other. A sleep has an end besides,
 * so timers are late by that much at most and nothing hangs on a wake-up that was missed.
 *
 * `turns`, `fewer`, `ns`, `done` and `slack` are the thread's own; `asleep` is written by it and
 * read by wakers; the others are set at start. A sleeping lcore is offline for QSBR: nobody waits
 * for it.
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

/**
 * The state machine: a turn has ended, and @p worked says whether it found anything to do.
 * @p most_ns bounds a sleep. Pure. @return nanoseconds to sleep now; 0: turn again at once.
 */
static inline uint64_t idle_turn(struct idle *d, bool worked, uint64_t most_ns)
{
	const bool woken = d->mode == IDLE_INTERRUPT;

	if (worked) {
		if (d->turns > 0 && d->ns == 0 && d->fewer > 0)
			d->fewer--;
		d->turns = 0;
		d->ns = 0;
		return 0;
	}
	if (d->turns < (woken ? IDLE_SPIN_INT >> d->fewer : IDLE_SPIN)) {
		d->turns++;
		return 0;
	}
	if (woken && d->ns == 0 && IDLE_SPIN_INT >> d->fewer > IDLE_SPIN_LEAST)
		d->fewer++;
	d->ns = d->ns == 0 ? IDLE_LEAST_NS : 2 * d->ns;
	if (d->ns > most_ns)
		d->ns = most_ns;
	return d->ns;
}

/* ---- work_dp.c ---- */

/** What @p lc has done so far: grows with every turn that found something to do, but for calls. Its
 * own thread. */
uint64_t lcore_done(const struct lcore *lc);

/** Whether something waits in its rings. Any lcore, control. */
bool lcore_given(const struct lcore *lc);

/** Whether its next turn goes on with what earlier ones have not ended. Its own thread. */
bool lcore_goes_on(const struct lcore *lc);

/** Whether anything is live on it that has timers. Its own thread. */
bool lcore_timers(const struct lcore *lc);

/* ---- idle.c ---- */

/** Set up, and undo. Start. @return 0 or -errno. */
int idle_init(struct idle *d, int mode);
void idle_fini(struct idle *d);

/** Its thread begins. */
void idle_begin(struct idle *d);

/** After a turn of @p lc: sleep when it is time to. Not in `poll`. Its own thread. */
void idle_after_turn(struct lcore *lc);

/** Wake its owner when it sleeps. Any thread; after the work was given. */
void idle_wake(struct idle *d);

/** Control: wait for work, at most @p ns. */
void idle_control(struct router *rt, uint64_t ns);

#endif
