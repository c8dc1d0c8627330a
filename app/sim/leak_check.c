/* SPDX-License-Identifier: BSD-3-Clause */
#include "leak_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "sched/session.h"

#define ZERO(what, value)                                                                          \
	do {                                                                                       \
		const uint64_t v = (value);                                                        \
		if (v != 0) {                                                                      \
			fprintf(stderr, "left in %s: %s = %" PRIu64 "\n", where, what, v);         \
			ok = false;                                                                \
		}                                                                                  \
	} while (0)

static bool adds_up(struct kvr_stats *s)
{
	uint64_t v[KVR_STATS_MAX];
	char err[300];

	kvr_stats_sum(s, v);
	if (kvr_stats_check(kvr_stats_def(s), v, err, sizeof(err)) == NULL)
		return true;
	fprintf(stderr, "%s\n", err);
	return false;
}

bool leak_check_balanced(const struct router *rt)
{
	bool ok = adds_up(rt->in_stats) && adds_up(kvr_port_stats(rt->port[0]));

	for (uint32_t i = 0; i < rt->n_pools; i++)
		ok = adds_up(rt->pool[i].stats) && adds_up(rt->pool[i].event_stats) &&
		     (rt->pool[i].sessions == NULL || adds_up(rt->pool[i].sessions->stats)) && ok;
	return ok;
}

static bool sessions_at_rest(const struct pool *p, const char *where)
{
	bool ok = true;

	if (p->sessions == NULL)
		return true;
	ZERO("sessions", kvr_stats_get(p->sessions->count, SC_LIVE));
	ZERO("sessions opening", kvr_stats_get(p->sessions->count, SC_OPENING));
	ZERO("sessions closing", kvr_stats_get(p->sessions->count, SC_CLOSING));
	return ok;
}

static bool pool_at_rest(const struct pool *p)
{
	const char *where = p->name;
	bool ok = sessions_at_rest(p, where);

	ZERO("bookings", kvr_sched_counters(p->sched)->booked_now);
	ZERO("released bookings", kvr_sched_counters(p->sched)->released_now);
	ZERO("waiting", kvr_sched_counters(p->sched)->waiting_now);
	ZERO("slots", kvr_flight_count(p->requests));
	ZERO("jobs", rte_mempool_in_use_count(p->jobs));
	ZERO("held", p->live.held);
	ZERO("prefilling", p->pair.n_prefilling);
	ZERO("aborts", !TAILQ_EMPTY(&p->live.aborts));
	ZERO("lost", p->live.n_lost);
	for (uint32_t i = 0; i < LEG_STEPS; i++)
		ZERO("resends", !TAILQ_EMPTY(&p->live.resends[i]));
	if (p->pairs != NULL)
		ZERO("pairs", rte_mempool_in_use_count(p->pairs));
	return ok;
}

/* An lcore keeps one list for the next long message, of a first fragment whose message never
 * arrived. */
static uint32_t spare_lists(const struct router *rt)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < rt->n_lcores; i++)
		n += rt->lcore[i]->spare != NULL;
	return n;
}

bool leak_check_requests(const struct router *rt)
{
	const char *where = "router";
	bool ok = leak_check_balanced(rt);

	for (uint32_t i = 0; i < rt->n_pools; i++)
		ok = pool_at_rest(&rt->pool[i]) && ok;
	ZERO("small_bufs", rte_mempool_in_use_count(rt->small_bufs));
	ZERO("hash_bufs", rte_mempool_in_use_count(rt->hash_bufs));
	ZERO("hint_bufs", rte_mempool_in_use_count(rt->hint_bufs));
	ZERO("frame_lists", rte_mempool_in_use_count(rt->frame_lists) - spare_lists(rt));
	return ok;
}

bool leak_check_all(const struct router_rig *b)
{
	const struct router *rt = b->rt;
	const char *where = "router";
	struct kvr_prefix_stats s;
	bool ok = leak_check_requests(rt);

	ZERO("workers", kvr_registry_count(rt->registry));
	ZERO("mbufs", rig_mbufs_used(b));
	for (uint32_t i = 0; i < rt->n_pools; i++) {
		where = rt->pool[i].name;
		kvr_prefix_stats_get(rt->pool[i].prefix, &s);
		ZERO("blocks", s.blocks);
	}
	return ok;
}

/* ---- counters that have moved ---- */

static void note_moved(struct counters_moved *s, uint32_t *at, const char *group,
		       const struct kvr_stats *from)
{
	const struct kvr_stats_def *def;
	uint64_t v[KVR_STATS_MAX];

	if (from == NULL)
		return;
	def = kvr_stats_def(from);
	kvr_stats_sum(from, v);
	for (uint32_t i = 0; def->counters[i].name != NULL && *at < REST_COUNTERS; i++) {
		if (strncmp(def->counters[i].name, "code_", 5) == 0)
			continue; /* the number is not given */
		s->group[*at] = group;
		s->name[*at] = def->counters[i].name;
		s->seen[*at] = s->seen[*at] || v[i] != 0;
		++*at;
	}
	s->n = RTE_MAX(s->n, *at);
}

void leak_check_note_moved(struct counters_moved *s, const struct router *rt)
{
	uint32_t begin = 0, at = 0;

	note_moved(s, &at, "ingress", rt->in_stats);
	note_moved(s, &at, "reject", rt->reject_stats);
	note_moved(s, &at, "port", kvr_port_stats(rt->port[0]));
	begin = at;
	for (uint32_t i = 0; i < rt->n_pools; i++) {
		at = begin; /* all pools together */
		note_moved(s, &at, "pool", rt->pool[i].stats);
		note_moved(s, &at, "event", rt->pool[i].event_stats);
		note_moved(s, &at, "request", rt->pool[i].rq_stats);
		if (rt->pool[i].sessions != NULL)
			note_moved(s, &at, "session", rt->pool[i].sessions->stats);
	}
}
