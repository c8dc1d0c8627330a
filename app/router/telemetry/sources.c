/* SPDX-License-Identifier: BSD-3-Clause */
/* Telemetry: source addresses. Tables are read on the lcores that own them, a slice per call. */
#include "telemetry/sources.h"

#include <errno.h>
#include <stdio.h>

#include <rte_telemetry.h>

#include "control/control.h"
#include "kvr_frame.h"
#include "kvr_telemetry.h"

#define TOP 8u

/* ---- recent requests, by ingress lcore ---- */

struct busy_call {
	uint32_t at, n;
	bool proven;
	uint64_t shared;
	struct kvr_source top[TOP];
};

static void on_busy(struct lcore *lc, void *arg)
{
	struct busy_call *c = arg;
	const struct kvr_source_table *t = c->proven ? lc->proven : lc->sources;

	c->n = kvr_source_top(t, lc->now_ns, &c->at, c->top, c->n, TOP);
	c->shared = kvr_source_shared(t);
}

static struct rte_tel_data *busy_list(struct router *rt, struct lcore *lc, bool proven)
{
	struct busy_call c = {.proven = proven};
	struct rte_tel_data *list = rte_tel_data_alloc();

	if (list == NULL)
		return NULL;
	while (c.at != UINT32_MAX)
		call_lcore(rt, lc, on_busy, &c);
	rte_tel_data_start_dict(list);
	rte_tel_data_add_dict_u64(list, "shared_entries", c.shared);
	for (uint32_t i = 0; i < c.n; i++) {
		struct rte_tel_data *one = rte_tel_data_alloc();
		char name[KVR_SOURCE_TEXT];

		if (one == NULL)
			break;
		rte_tel_data_start_dict(one);
		rte_tel_data_add_dict_u64(one, "recent_frames", c.top[i].count);
		rte_tel_data_add_dict_u64(one, "frames", c.top[i].requests);
		rte_tel_data_add_dict_u64(one, "refused", c.top[i].rejected);
		kvr_telemetry_dict_part(list, kvr_source_text(c.top[i].key, name, sizeof(name)),
					one);
	}
	return list;
}

/* ---- use of quotas in a pool ---- */

struct have_call {
	const struct kvr_quota *quota;
	uint32_t at, n;
	struct kvr_quota_top top[TOP];
};

static void on_have(struct lcore *lc, void *arg)
{
	struct have_call *c = arg;

	RTE_SET_USED(lc);
	c->n = kvr_quota_top(c->quota, &c->at, c->top, c->n, TOP);
}

static void add_have(struct router *rt, struct lcore *owner, struct rte_tel_data *d,
		     const char *what, const struct kvr_quota *quota)
{
	struct have_call c = {.quota = quota};
	struct rte_tel_data *list = rte_tel_data_alloc();

	if (list == NULL)
		return;
	while (c.at != UINT32_MAX)
		call_lcore(rt, owner, on_have, &c);
	rte_tel_data_start_dict(list);
	for (uint32_t i = 0; i < c.n; i++) {
		char name[KVR_SOURCE_TEXT], key[KVR_SOURCE_TEXT];

		kvr_source_text(c.top[i].key, name, sizeof(name));
		rte_tel_data_add_dict_u64(list, kvr_telemetry_key(key, sizeof(key), name),
					  c.top[i].held);
	}
	kvr_telemetry_dict_part(d, what, list);
}

/* Frames of KV events in the pool's ring, by ingress lcore. */
static void add_events(struct router *rt, struct pool *pool, struct rte_tel_data *d)
{
	char name[32];

	for (uint32_t i = 0; i < rt->conf.n_ingress; i++) {
		snprintf(name, sizeof(name), "events_lcore%u", i);
		add_have(rt, rt->lcore[i], d, name, rt->lcore[i]->events[pool->number].quota);
	}
}

/* ---- the command ---- */

static void add_refused(struct router *rt, struct rte_tel_data *d)
{
	static const enum kvr_code codes[] = {KVR_E_COOKIE, KVR_E_RATE_LIMITED, KVR_E_SOURCE_LIMIT};
	struct rte_tel_data *list = rte_tel_data_alloc();
	uint64_t v[KVR_STATS_MAX];

	if (list == NULL)
		return;
	rte_tel_data_start_dict(list);
	kvr_stats_sum(rt->reject_stats, v);
	for (uint32_t i = 0; i < RTE_DIM(codes); i++)
		rte_tel_data_add_dict_u64(list, kvr_code_name(codes[i]), v[codes[i]]);
	kvr_stats_sum(rt->in_stats, v);
	rte_tel_data_add_dict_u64(list, "control_frames_dropped", v[IN_RATE_LIMITED]);
	rte_tel_data_add_dict_u64(list, "event_frames_dropped", v[IN_EVENT_QUOTA]);
	rte_tel_data_add_dict_u64(list, "rejections_suppressed", v[IN_REJECTION_SUPPRESSED]);
	kvr_telemetry_dict_part(d, "refused", list);
}

static int cmd_sources(void *arg, const char *params, struct rte_tel_data *d)
{
	struct router *rt = arg;
	char name[32];

	RTE_SET_USED(params);
	rte_tel_data_start_dict(d);
	for (uint32_t i = 0; i < rt->n_lcores; i++) {
		if (rt->lcore[i]->sources == NULL)
			continue;
		for (int proven = 1; proven >= 0; proven--) {
			struct rte_tel_data *list = busy_list(rt, rt->lcore[i], proven);

			snprintf(name, sizeof(name), "lcore%u_%s", i,
				 proven ? "proven" : "unproven");
			kvr_telemetry_dict_part(d, name, list);
		}
	}
	for (uint32_t i = 0; i < rt->n_pools; i++) {
		struct pool *p = &rt->pool[i];
		struct rte_tel_data *list = rte_tel_data_alloc();
		char pool[KVR_ROUTER_NAME + 8];

		if (list == NULL)
			return kvr_telemetry_error(d, ENOMEM, "no memory");
		rte_tel_data_start_dict(list);
		add_have(rt, p->sched_lcore, list, "requests", p->live.quotas.slots);
		add_have(rt, p->sched_lcore, list, "waiting", p->live.quotas.jobs);
		add_have(rt, p->sched_lcore, list, "sessions", p->live.quotas.sessions);
		add_events(rt, p, list);
		snprintf(pool, sizeof(pool), "pool_%s", p->name);
		kvr_telemetry_dict_part(d, pool, list);
	}
	add_refused(rt, d);
	return 0;
}

static const struct kvr_telemetry_cmd commands[] = {
	{"/kvroute/sources", NULL,
	 "busiest source addresses, their use of quotas, rejections by reason", cmd_sources, false},
	{NULL, NULL, NULL, NULL, false},
};

int sources_start(struct router *rt)
{
	return kvr_telemetry_register(commands, rt);
}

void sources_stop(void)
{
	kvr_telemetry_unregister(commands);
}
