/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_CONTROL_H
#define ROUTER_CONTROL_H

/**
 * @file
 * The control thread. What it shares with telemetry threads is under the lock of lib/ctl: they hold
 * it while they run a command, so functions other than control_run() need nothing more there.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvr_router_options;
struct router;
struct lcore;

/** The control thread's own memory. @return 0 or -ENOMEM. */
int control_create(struct router *rt);
void control_destroy(struct router *rt);

/** Run rounds until router::quit. Main thread. */
void control_run(struct router *rt);

/** Then: nobody new is let in, live requests have stop_ms to end, the rest is told. Takes the lock.
 */
void stop_in_order(struct router *rt);

/** One round: frames for control, and the timers that are due. Takes the lock itself. */
void control_round(struct router *rt);

/** Run @p fn on the lcore's own thread and wait for its end (or here when nothing is running). */
void call_lcore(struct router *rt, struct lcore *lc, void (*fn)(struct lcore *, void *), void *arg);

/** Wait until every packet lcore has ended the turn it is in; they poll. Any thread but theirs. */
void wait_for_lcores(struct router *rt);

/** The same, when they poll at all; @p arg = struct router. For drivers: see kvr_port_look_after().
 */
void lcores_pass(void *arg);

/** Start or stop draining a worker. @return 0, -ENOENT, -EALREADY, -EPERM (its state forbids). */
int control_drain(struct router *rt, uint64_t id, bool draining);

/** Workers that have gone without a drain since the start. Under the lock (kvr_telemetry_lock()).
 */
uint64_t control_lost(const struct router *rt);

/**
 * A bound for the drain of worker @p id that is under way: @p seconds from now on its requests that
 * are left are cut off (WorkerLost: clients may send them again), so that it is DRAINED. 0: no
 * bound but the age limit of bookings. @return 0; -ENOENT; -EPERM: it does not drain.
 */
int control_drain_bound(struct router *rt, uint64_t id, uint32_t seconds);

/**
 * May times be those of @p next: every worker lives by the interval that its WELCOME named, and a
 * silence that is no longer than that is none. With the lock of lib/ctl. @return 0; -EINVAL with
 * one line in @p err.
 */
int control_told(const struct router *rt, const struct kvr_router_options *next, char *err,
		 size_t errlen);

/**
 * Switch a prefill pool off, whatever workers it has, or leave it to its workers again. Requests
 * under way are not touched.
 * @return 1 active now, 0 inactive now, -ENOENT no such pool, -EINVAL not the prefill pool of a
 * pair.
 */
int control_deactivate(struct router *rt, const char *name, bool off);

/** Bring kvr_worker::bookings of @p n workers from number @p from on up to date. */
void control_bookings(struct router *rt, uint32_t from, uint32_t n);

#endif
