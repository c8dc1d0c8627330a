/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SIGTERM: nobody new is let in (ROUTE, CONNECT and the HELLO of a new life are refused with
 * Shutdown, which is retryable: elsewhere), waiting requests are refused, and those that workers
 * have get stop_ms. What is then left is cut off: its client is told, its worker gets ABORT, and
 * every worker hears that the router goes. A booking whose client runs the request itself is only
 * a count here, and nothing is lost with it: it ends then, too, and holds nobody up. A second
 * signal ends the wait: the rest is cut off now. A third one ends all of this at any point, without
 * a word.
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
#define LINGER_NS UINT64_C(300000000) /* ended requests whose client may ask once more */
#define LAST_NS	  UINT64_C(50000000)  /* for the last frames to leave */
#define SNAPSHOT_NS                                                                                \
	UINT64_C(10000000000) /* for the last snapshot; a service manager has no more patience */

struct left {
	uint32_t live;	     /* workers have them */
	uint32_t by_clients; /* booked for clients that run them themselves */
	uint32_t lingering;  /* ended, and still answered for */
};

static struct left requests_left(struct router *rt)
{
	struct left l = {0};

	for (uint32_t i = 0; i < rt->n_pools; i++) {
		const struct pool *p = &rt->pool[i];
		const uint32_t booked = (uint32_t)kvr_stats_get(p->count, PC_CLIENT_BOOKINGS_LIVE);
		uint32_t ended, all;

		if (p->decode != NULL)
			continue; /* legs of requests that the decode pool has */
		ended = kvr_flight_lingering(p->requests);
		all = kvr_flight_count(p->requests);
		l.lingering += ended;
		l.by_clients += booked;
		l.live += all > ended + booked ? all - ended - booked : 0;
	}
	return l;
}

/* Nobody is waited for any more, but all are told. */
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

/*
 * One call a pool: its lcore goes on by itself in its next turns. A call for each slice would have
 * this thread wait for its CPU as often, which on a busy machine took longer than stop_ms.
 */
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
		const struct kvr_worker *w = kvr_registry_at(rt->registry, i);

		out_reject(&rt->control, &w->path, KVR_HEARTBEAT, w->id, 0,
			   &(const struct refusal){.code = KVR_E_SHUTDOWN,
						   .text = "the router stops"});
	}
	kvr_telemetry_unlock();
}

/* Until no request is live, or none lingers, or it is @p end_ns. @return how many there are. */
static uint32_t rounds_while(struct router *rt, bool lingering, uint64_t end_ns)
{
	struct left l = requests_left(rt);

	while ((lingering ? l.lingering : l.live) > 0 && !in_haste(rt) && now_ns(rt) < end_ns) {
		rounds_until(rt, RTE_MIN(now_ns(rt) + TICK_MS * UINT64_C(1000000), end_ns));
		l = requests_left(rt);
	}
	return lingering ? l.lingering : l.live;
}

/* One more snapshot, of what is left, unless those of the life before have not come back yet:
 * theirs is worth more. One that is under way began before the end: it is not the last. */
static void last_snapshot(struct router *rt)
{
	const uint64_t end = now_ns(rt) + SNAPSHOT_NS;
	struct snapshot *s = rt->snapshot;
	bool asked = false;

	if (s == NULL || !s->threaded || s->old != NULL)
		return;
	while (!in_haste(rt)) {
		if (now_ns(rt) >= end) {
			log_line(KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
				 "the last snapshot is given up, its disk is too slow; the one "
				 "before stays");
			return;
		}
		if (!snapshot_under_way(s)) {
			if (asked || snapshot_ask(rt) != 0)
				return;
			asked = true;
		}
		rounds_until(rt, now_ns(rt) + ROUND_NS);
	}
}

/* Times are those of the signal, so that what is late is not added up. */
void stop_in_order(struct router *rt)
{
	const uint64_t begin = now_ns(rt);
	const uint64_t end = begin + rt->conf.opt.stop_ms * UINT64_C(1000000);
	const uint32_t refused = stop_close_doors(rt);
	const struct left at_first = requests_left(rt);
	const uint32_t all = at_first.live + at_first.by_clients + refused;
	struct left left = at_first;
	uint32_t cut = 0;

	log_line(KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE, .reason = router_signal(rt)),
		 "stopping: %u requests are live, %u of them with workers have %u ms, %u that "
		 "clients run themselves (/pick) are not waited for; a second signal cuts them "
		 "off now, a third ends at once",
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
	log_line(KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE),
		 "stopped after %u ms: of %u requests %u were cut off (their clients know), %u "
		 "left without a word; %u MiB of memory go back to the system",
		 (uint32_t)((now_ns(rt) - begin) / 1000000), all, cut, left.live + left.by_clients,
		 rt->conf.opt.memory_mb);
}
