/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SIGTERM. ROUTE, CONNECT and HELLO of new incarnations are rejected with Shutdown, which clients
 * may retry elsewhere; waiting requests are rejected; requests at workers get stop_ms. The rest
 * ends then: clients get an answer, workers get ABORT, and every worker is notified of the stop. A
 * booking of a client that contacts the engine itself only counts here and loses nothing, so it
 * ends as well and delays nothing. A second signal ends the waiting, a third one ends the process
 * at once.
 */
#include "control/log.h"
#include "control/snapshot.h"
#include "control/thread.h"
#include "lcore/out.h"
#include "sched/stop.h"

#include <time.h>

#include "kvr_telemetry.h"

#define TICK_MS	  10u
#define ROUND_NS  1000000u
#define LINGER_NS UINT64_C(300000000) /* for retransmissions of clients whose requests ended */
#define LAST_NS	  UINT64_C(50000000)  /* for the last frames to leave */
#define SNAPSHOT_NS                                                                                \
	UINT64_C(10000000000) /* for the last snapshot, within the patience of a service manager   \
			       */

struct left {
	uint32_t live;	     /* at workers */
	uint32_t by_clients; /* booked for clients that contact the engine themselves */
	uint32_t lingering;  /* ended, with their answers kept */
};

static struct left requests_left(struct router *rt)
{
	struct left l = {0};

	for (uint32_t i = 0; i < rt->n_pools; i++) {
		const struct pool *pool = &rt->pool[i];
		const uint32_t booked =
			(uint32_t)kvr_stats_get(pool->count, PC_CLIENT_BOOKINGS_LIVE);
		uint32_t ended, all;

		if (pool->decode != NULL)
			continue; /* legs of requests that count in the decode pool */
		ended = kvr_flight_lingering(pool->requests);
		all = kvr_flight_count(pool->requests);
		l.lingering += ended;
		l.by_clients += booked;
		l.live += all > ended + booked ? all - ended - booked : 0;
	}
	return l;
}

/* Whether to stop waiting, but still notify. */
static bool in_haste(struct router *rt)
{
	return atomic_load_explicit(&rt->quit, memory_order_relaxed) > 1;
}

static bool at_once(struct router *rt)
{
	return atomic_load_explicit(&rt->quit, memory_order_relaxed) > 2;
}

static void sleep_ns(struct router *rt, uint64_t ns)
{
	const struct timespec pause = {.tv_nsec = (long)ns};

	if (rt->pause != NULL)
		rt->pause(rt, ns);
	else
		nanosleep(&pause, NULL);
}

static void rounds_until(struct router *rt, uint64_t end_ns)
{
	while (!at_once(rt) && now_ns(rt) < end_ns) {
		control_round(rt);
		sleep_ns(rt, ROUND_NS);
	}
}

/* One call per pool, which its lcore continues over its turns. A call per slice would make this
 * thread wait for its CPU as often, which took longer than stop_ms on a busy machine. */
static uint32_t all_pools(struct router *rt, bool (*fn)(struct lcore *lc, void *arg))
{
	struct stop_part s[KVR_ROUTER_MAX_POOLS] = {0};
	uint32_t n = 0;

	for (uint32_t i = 0; i < rt->n_pools; i++) {
		s[i].pool = &rt->pool[i];
		s[i].call.fn = fn;
		s[i].call.arg = &s[i];
		call_start(rt, s[i].pool->sched_lcore, &s[i].call);
	}
	for (uint32_t i = 0; i < rt->n_pools; i++) {
		call_wait(rt, &s[i].call);
		n += s[i].n;
	}
	return n;
}

uint32_t stop_close_doors(struct router *rt)
{
	uint32_t n;

	kvr_telemetry_lock();
	rt->stopping = true;
	n = all_pools(rt, stop_admission);
	kvr_telemetry_unlock();
	return n;
}

uint32_t stop_cut_off(struct router *rt)
{
	uint32_t n;

	kvr_telemetry_lock();
	n = all_pools(rt, stop_cut);
	kvr_telemetry_unlock();
	return n;
}

static void tell_workers(struct router *rt)
{
	kvr_telemetry_lock();
	for (uint32_t i = 0; i < kvr_registry_count(rt->registry); i++) {
		const struct kvr_worker *worker = kvr_registry_at(rt->registry, i);

		out_reject(&rt->control, &worker->path, KVR_HEARTBEAT, worker->id, 0,
			   &(const struct rejection){.code = KVR_E_SHUTDOWN,
						     .text = "the router is stopping"});
	}
	kvr_telemetry_unlock();
}

/* Run rounds until no request is live (or none lingers), or until @p end_ns. @return number left.
 */
static uint32_t rounds_while(struct router *rt, bool lingering, uint64_t end_ns)
{
	struct left l = requests_left(rt);

	while ((lingering ? l.lingering : l.live) > 0 && !in_haste(rt) && now_ns(rt) < end_ns) {
		rounds_until(rt, RTE_MIN(now_ns(rt) + TICK_MS * UINT64_C(1000000), end_ns));
		l = requests_left(rt);
	}
	return lingering ? l.lingering : l.live;
}

/* Write one more snapshot of the remaining state, unless workers of the previous snapshot have not
 * registered yet: theirs is worth more. One in progress began before the end, so it is not the
 * last. */
static void last_snapshot(struct router *rt)
{
	const uint64_t end = now_ns(rt) + SNAPSHOT_NS;
	struct snapshot *snapshot = rt->snapshot;
	bool asked = false;

	if (snapshot == NULL || !snapshot->threaded || snapshot->old != NULL)
		return;
	while (!in_haste(rt)) {
		if (now_ns(rt) >= end) {
			log_line(
				KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
				"last snapshot abandoned: disk too slow; keeping the previous one");
			return;
		}
		if (!snapshot_under_way(snapshot)) {
			if (asked || snapshot_ask(rt) != 0)
				return;
			asked = true;
		}
		rounds_until(rt, now_ns(rt) + ROUND_NS);
	}
}

/* Times count from the signal, so that delays do not add up. */
void stop_in_order(struct router *rt)
{
	const uint64_t begin = now_ns(rt);
	const uint64_t end = begin + rt->conf.opt.stop_ms * UINT64_C(1000000);
	const uint32_t refused = stop_close_doors(rt);
	const struct left at_first = requests_left(rt);
	const uint32_t all = at_first.live + at_first.by_clients + refused;
	struct left left = at_first;
	uint32_t cut = 0;

	log_line(
		KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE, .reason = router_signal(rt)),
		"stopping: %u requests in flight; %u at workers may finish within %u ms, %u bookings of clients (/pick) are not waited for; a second signal ends requests now, a third exits at once",
		all, at_first.live, rt->conf.opt.stop_ms, at_first.by_clients);
	left.live = rounds_while(rt, false, end);
	left.by_clients = requests_left(rt).by_clients;
	if (left.live + left.by_clients > 0 && !at_once(rt))
		cut = stop_cut_off(rt);
	if (all > 0)
		rounds_while(rt, true, RTE_MIN(now_ns(rt), end) + LINGER_NS);
	last_snapshot(rt);
	tell_workers(rt);
	rounds_until(rt, now_ns(rt) + LAST_NS);
	left = requests_left(rt);
	log_line(
		KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE),
		"stopped after %u ms: of %u requests, %u ended early with a notice to their clients, %u without notice; releasing %u MiB",
		(uint32_t)((now_ns(rt) - begin) / 1000000), all, cut, left.live + left.by_clients,
		rt->conf.opt.memory_mb);
}
