/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_CONTROL_H
#define ROUTER_CONTROL_H

/**
 * @file
 * The control thread. Data shared with telemetry threads is protected by kvr_telemetry_lock(),
 * which telemetry threads hold while they run a command. Functions other than control_run() need no
 * further protection there.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvr_router_options;
struct router;
struct lcore;

/** Allocate the memory of the control thread. @return 0 or -ENOMEM. */
int control_create(struct router *rt);
void control_destroy(struct router *rt);

/** Run rounds until router::quit. Main thread. */
void control_run(struct router *rt);

/** The stop: reject new workers and requests, give live requests stop_ms to end, then end the rest
 * with a notice to their clients. Takes the lock. */
void stop_in_order(struct router *rt);

/** One round: frames for control, and due timers. Takes the lock. */
void control_round(struct router *rt);

/** Run @p fn on the lcore's thread and wait for its end; run it here if no lcore polls. */
void call_lcore(struct router *rt, struct lcore *lc, void (*fn)(struct lcore *, void *), void *arg);

/** Wait until every packet lcore has ended its current turn; they poll. Any thread except theirs.
 */
void wait_for_lcores(struct router *rt);

/** The same, and return at once if they do not poll. @p arg is a struct router. For drivers: see
 * kvr_port_look_after(). */
void lcores_pass(void *arg);

/** Start or stop draining a worker. @return 0, -ENOENT, -EALREADY, -EPERM (its state forbids it).
 */
int control_drain(struct router *rt, uint64_t id, bool draining);

/** Workers that left without a drain since the start. Under kvr_telemetry_lock(). */
uint64_t control_lost_workers(const struct router *rt);

/** Set a time limit for the drain of worker @p id: after @p seconds its remaining requests end with
 * WorkerLost, which clients may retry, and it becomes DRAINED. 0: no limit except the expiry of
 * bookings. @return 0; -ENOENT; -EPERM: the worker does not drain. */
int control_drain_bound(struct router *rt, uint64_t id, uint32_t seconds);

/** Check the times of @p next against the heartbeat intervals in the WELCOMEs of all workers:
 * suspect_ms must exceed them. Under kvr_telemetry_lock(). @return 0; -EINVAL with one line in @p
 * err. */
int control_check_times(const struct router *rt, const struct kvr_router_options *next, char *err,
			size_t errlen);

/** Deactivate a prefill pool regardless of its workers, or activate it again. Live requests are not
 * affected. @return 1 active now, 0 inactive now, -ENOENT no such pool, -EINVAL not the prefill
 * pool of a pair. */
int control_deactivate(struct router *rt, const char *name, bool off);

/** Update kvr_worker::bookings of @p n workers from number @p from on. */
void control_bookings(struct router *rt, uint32_t from, uint32_t n);

#endif
