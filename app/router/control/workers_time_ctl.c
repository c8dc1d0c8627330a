/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Timers of workers. A silent worker becomes suspect after suspect_ms and is not eligible; after
 * dead_ms it is gone. The clock stands still while the router does not read frames (struct
 * kvr_live_clock). A draining worker without bookings is drained; at its time limit the remaining
 * requests end. Pools learn whether a worker is expected.
 */
#include "control/log.h"
#include "control/thread.h"
#include "kvr_drain_request.h"
#include "sched/stop.h"

#include <errno.h>
#include <inttypes.h>

#define TELL_NS UINT64_C(100000000)

static void check_silence(struct router *rt, struct kvr_worker *worker)
{
	const uint64_t silent_ms = worker_silence(rt, worker) / 1000000;

	if (silent_ms >= rt->conf.opt.dead_ms) {
		worker_leave(rt, worker, "silent for dead_ms");
	} else if (silent_ms >= rt->conf.opt.suspect_ms && worker->state == KVR_WORKER_SERVING) {
		worker_set_state(rt, worker, KVR_WORKER_SUSPECT, "silent for suspect_ms");
		worker_available(rt, worker, false);
	}
}

/* Apply a drain request from a heartbeat. @return whether it was applied. */
static bool check_drain_request(struct router *rt, struct kvr_worker *worker)
{
	/* Guards no other data. */
	const uint32_t wish =
		atomic_load_explicit(&worker->beat->drain_request, memory_order_relaxed);
	const enum kvr_drain_request what =
		kvr_drain_request_classify(wish, worker->drain_request_done, worker->state);
	int rc = 0;

	if (what == KVR_DRAIN_REQUEST_OLD)
		return false;
	if (what != KVR_DRAIN_REQUEST_AS_IS)
		rc = worker_drain(rt, worker->id, what == KVR_DRAIN_REQUEST_DRAIN,
				  "requested by its agent");
	if (rc < 0) /* not allowed in its state yet */
		return false;
	worker->drain_request_done = wish;
	worker->drained_by_agent = (wish & KVR_BEAT_F_DRAIN) != 0;
	return true;
}

/* Workers of one scheduler lcore, for reading their bookings. */
struct bookings {
	struct router *rt;
	uint32_t n;
	struct kvr_worker *w[CHANGES];
};

static void on_sched_bookings(struct lcore *lc, void *arg)
{
	struct bookings *b = arg;

	for (uint32_t i = 0; i < b->n; i++) {
		const struct pool *pool = pool_of(b->rt, b->w[i]);

		if (pool->sched_lcore == lc)
			b->w[i]->bookings = kvr_sched_worker_bookings(pool->sched, b->w[i]->id);
	}
}

/* One call to each scheduler lcore. */
static void bookings_get(struct bookings *b)
{
	for (uint32_t i = 0; i < b->rt->n_lcores && b->n != 0; i++)
		if (b->rt->lcore[i]->n_sched != 0)
			call_lcore(b->rt, b->rt->lcore[i], on_sched_bookings, b);
	for (uint32_t i = 0; i < b->n; i++) {
		struct kvr_worker *worker = b->w[i];

		/* Guards no other data. */
		atomic_store_explicit(&worker->beat->bookings, worker->bookings,
				      memory_order_relaxed);
		if (worker->state == KVR_WORKER_DRAINING && worker->bookings == 0)
			worker_set_state(b->rt, worker, KVR_WORKER_DRAINED, NULL);
	}
	b->n = 0;
}

int control_drain_bound(struct router *rt, uint64_t id, uint32_t seconds)
{
	struct kvr_worker *worker = kvr_registry_find(rt->registry, id);

	if (worker == NULL)
		return -ENOENT;
	if (worker->state != KVR_WORKER_DRAINING)
		return worker->state == KVR_WORKER_DRAINED ? 0 : -EPERM;
	worker->drain_ns = seconds != 0 ? rt->control.now_ns + seconds * UINT64_C(1000000000) : 0;
	return 0;
}

/* End the remaining requests at the time limit of a drain. Requests that are being decided are
 * found a second later. */
static void cut_off(struct router *rt, struct kvr_worker *worker)
{
	struct stop_part s = {.pool = pool_of(rt, worker), .worker = worker->id};

	if (worker->drain_ns == 0 || rt->control.now_ns < worker->drain_ns)
		return;
	s.call.fn = stop_worker;
	s.call.arg = &s;
	call_start(rt, s.pool->sched_lcore, &s.call);
	call_wait(rt, &s.call);
	worker->drain_ns = rt->control.now_ns + UINT64_C(1000000000);
	log_line(KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .worker = &worker->id,
			       .pool = s.pool->name, .reason = "drain time limit reached"),
		 "worker %" PRIu64 " drain: %u requests ended before completion", worker->id, s.n);
}

static void check_drained(struct router *rt)
{
	struct bookings b = {.rt = rt};

	for (uint32_t i = 0; i < kvr_registry_count(rt->registry); i++) {
		struct kvr_worker *worker = kvr_registry_at(rt->registry, i);

		if (worker->state != KVR_WORKER_DRAINING)
			continue;
		cut_off(rt, worker);
		b.w[b.n++] = worker;
		if (b.n == RTE_DIM(b.w))
			bookings_get(&b);
	}
	bookings_get(&b);
}

void control_bookings(struct router *rt, uint32_t from, uint32_t n)
{
	struct bookings b = {.rt = rt};

	for (uint32_t i = from; i < kvr_registry_count(rt->registry) && i - from < n; i++) {
		b.w[b.n++] = kvr_registry_at(rt->registry, i);
		if (b.n == RTE_DIM(b.w))
			bookings_get(&b);
	}
	bookings_get(&b);
}

/* Update the bookings in answers to heartbeats: every worker each 100 ms, at most 64 workers a
 * tick. */
static void tell_bookings(struct router *rt)
{
	struct control *ctl = rt->ctl;

	if (rt->control.now_ns < ctl->tell_ns)
		return;
	control_bookings(rt, ctl->told, CHANGES);
	ctl->told += CHANGES;
	if (ctl->told < kvr_registry_count(rt->registry))
		return;
	ctl->told = 0;
	ctl->tell_ns = rt->control.now_ns + TELL_NS;
}

/* Whether a pool without eligible workers may get one soon: the router has just started and agents
 * had no time for HELLO, a worker has just left and may return, or a worker is temporarily not
 * eligible. */
static void check_expected(struct router *rt)
{
	const uint64_t grace_ns = rt->conf.opt.dead_ms * UINT64_C(1000000);
	const uint64_t now = rt->control.now_ns;
	bool expected[KVR_ROUTER_MAX_POOLS];

	if (rt->ctl->began_ns == 0) /* earlier steps of the start may have taken seconds */
		rt->ctl->began_ns = now;
	for (uint32_t i = 0; i < rt->n_pools; i++)
		expected[i] = now - rt->ctl->began_ns < grace_ns ||
			      (rt->ctl->left_ns[i] != 0 && now - rt->ctl->left_ns[i] < grace_ns);
	for (uint32_t i = 0; i < kvr_registry_count(rt->registry); i++) {
		const struct kvr_worker *worker = kvr_registry_at(rt->registry, i);

		expected[worker->pool] =
			expected[worker->pool] || worker->state != KVR_WORKER_SERVING;
	}
	for (uint32_t i = 0; i < rt->n_pools; i++) /* guards no other data */
		atomic_store_explicit(&rt->pool[i].control.expected, expected[i],
				      memory_order_relaxed);
}

void workers_tick(struct router *rt)
{
	/* worker_leave() removes the worker from the registry, so walk from the end. */
	for (uint32_t i = kvr_registry_count(rt->registry); i-- > 0;)
		if (i < kvr_registry_count(rt->registry))
			check_silence(rt, kvr_registry_at(rt->registry, i));
	workers_flush(rt);
	for (uint32_t i = 0, n = 0; i < kvr_registry_count(rt->registry) && n < CHANGES; i++)
		n += check_drain_request(rt, kvr_registry_at(rt->registry, i));
	check_drained(rt);
	tell_bookings(rt);
	check_expected(rt);
}
