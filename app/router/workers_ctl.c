/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life of workers: what joining, leaving, draining and silence do on the scheduler and event
 * lcores.
 *
 *   HELLO      ranks get dense indices (scheduler lcore), empty index and cursor (event lcore),
 *              then the view is published and only then the worker becomes available
 *   silence    suspect after suspect_ms (out of selection), gone after dead_ms
 *   gone       bookings end with WorkerLost, blocks are forgotten, the view is published
 */
#include "control_pvt.h"
#include "log.h"
#include "stages.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_log.h>

/* ---- workers: what happens on the other lcores ---- */

struct worker_call {
	struct pool *pool;
	struct kvr_worker *w;
	const struct kvr_hints *hints; /* of the HELLO */
	bool flag;
	int rc;
	uint32_t value;
};

/* The taints a worker says, and one for each place it is in. @return how many. */
static uint32_t worker_taints(const struct kvr_hints *h, struct kvr_sched_str out[],
			      char text[][KVR_WORKER_TEXT + sizeof(TOPOLOGY_TAINT)])
{
	uint32_t n = 0;

	for (; n < h->n_taints; n++)
		out[n] = (struct kvr_sched_str){h->taint[n].p, h->taint[n].len};
	for (uint32_t i = 0; i < h->n_topology; i++) {
		const int len = snprintf(text[i], sizeof(text[i]), TOPOLOGY_TAINT "%.*s",
					 (int)h->topology[i].len, h->topology[i].p);

		out[n++] = (struct kvr_sched_str){text[i], (uint32_t)len};
	}
	return n;
}

static void on_sched_set(struct lcore *lc, void *arg)
{
	struct worker_call *c = arg;
	struct kvr_sched_str taint[KVR_HINTS_MAX_TAINTS + KVR_HINTS_MAX_TOPOLOGY];
	char text[KVR_HINTS_MAX_TOPOLOGY][KVR_WORKER_TEXT + sizeof(TOPOLOGY_TAINT)];
	struct kvr_sched_worker sw = {
		.id = c->w->id,
		.dp_start = c->w->dp_start,
		.dp_size = c->w->dp_size,
		.total_kv_blocks = c->w->total_kv_blocks,
		.max_num_batched_tokens = c->w->max_num_batched_tokens,
		.cpu = (c->w->flags & KVR_HELLO_F_CPU) != 0,
		.taints = taint,
	};

	sw.n_taints = worker_taints(c->hints, taint, text);
	c->rc = kvr_sched_worker_set(c->pool->sched, &sw, lc->now_ns);
	if (c->rc < 0)
		return;
	/* Not before every lcore can find it: see worker_join(). */
	kvr_sched_worker_available(c->pool->sched, c->w->id, false, lc->now_ns);
	for (uint32_t i = 0; i < c->w->dp_size; i++)
		c->w->rank[i] = kvr_sched_rank_find(c->pool->sched, c->w->id, c->w->dp_start + i);
}

static void on_sched_gone(struct lcore *lc, void *arg)
{
	struct worker_call *c = arg;

	/* First, so that its requests are not offered to a prefill side that nobody is left of. */
	if (c->pool->decode != NULL)
		c->flag = kvr_disagg_workers(&c->pool->disagg, c->value);
	c->rc = kvr_sched_worker_gone(c->pool->sched, c->w->id, lc->now_ns);
}

static void on_sched_available(struct lcore *lc, void *arg)
{
	struct worker_call *c = arg;

	c->rc = kvr_sched_worker_available(c->pool->sched, c->w->id, c->flag, lc->now_ns);
}

static void on_sched_drain(struct lcore *lc, void *arg)
{
	struct worker_call *c = arg;

	c->rc = kvr_sched_worker_drain(c->pool->sched, c->w->id, c->flag, lc->now_ns);
}

static void on_sched_bookings(struct lcore *lc, void *arg)
{
	struct worker_call *c = arg;

	RTE_SET_USED(lc);
	c->value = kvr_sched_worker_bookings(c->pool->sched, c->w->id);
}

static void on_event_reset(struct lcore *lc, void *arg)
{
	struct worker_call *c = arg;

	for (uint32_t i = 0; i < c->w->dp_size; i++)
		event_reset_rank(lc, c->pool, c->w->rank[i], c->w);
}

/* What is still under way of it finds nobody. */
static void on_event_gone(struct lcore *lc, void *arg)
{
	struct worker_call *c = arg;

	for (uint32_t i = 0; i < c->w->dp_size; i++)
		event_reset_rank(lc, c->pool, c->w->rank[i], NULL);
}

/* A prefill pool has got a worker. */
static void on_sched_disagg(struct lcore *lc, void *arg)
{
	struct worker_call *c = arg;

	RTE_SET_USED(lc);
	c->flag = kvr_disagg_workers(&c->pool->disagg, c->value);
}

static void on_sched_hold(struct lcore *lc, void *arg)
{
	struct worker_call *c = arg;

	RTE_SET_USED(lc);
	c->rc = kvr_disagg_hold(&c->pool->disagg, c->flag);
	c->flag = kvr_disagg_active(&c->pool->disagg);
}

static void call_sched(struct router *rt, struct worker_call *c, void (*fn)(struct lcore *, void *))
{
	call_lcore(rt, c->pool->sched_lcore, fn, c);
}

/* ---- workers: their life ---- */

void worker_set_state(struct router *rt, struct kvr_worker *w, enum kvr_wire_worker_state to)
{
	enum kvr_wire_worker_state from = w->state;

	if (kvr_worker_set_state(w, to, rt->control.now_ns) == 0)
		log_worker(w->id, "worker %" PRIu64 " %s -> %s", w->id, kvr_worker_state_name(from),
			   kvr_worker_state_name(to));
}

static uint32_t pool_workers(const struct router *rt, const struct pool *p)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < kvr_registry_count(rt->registry); i++)
		n += kvr_registry_at(rt->registry, i)->pool == p->number;
	return n;
}

static void log_prefill(const struct pool *p, bool active)
{
	log_worker(~(uint64_t)p->number, "prefill pool %s %s", p->name,
		   active ? "active" : "inactive");
}

/* A prefill side takes part from its pool's first worker on: section 9.1. */
static void activate_prefill(struct router *rt, struct pool *p)
{
	struct worker_call c = {.pool = p, .value = pool_workers(rt, p)};

	if (p->decode == NULL)
		return;
	call_sched(rt, &c, on_sched_disagg);
	if (c.flag)
		log_prefill(p, true);
}

void worker_leave(struct router *rt, struct kvr_worker *w)
{
	struct worker_call c = {.pool = &rt->pool[w->pool], .w = w};

	c.value = pool_workers(rt, c.pool) - 1;
	worker_set_state(rt, w, KVR_WORKER_GONE);
	call_sched(rt, &c, on_sched_gone);
	if (c.flag)
		log_prefill(c.pool, false);
	call_lcore(rt, c.pool->event_lcore, on_event_gone, &c);
	kvr_registry_del(rt->registry, w);
	publish_view(rt);
}
enum kvr_wire_code worker_join(struct router *rt, struct kvr_worker *w,
			       const struct kvr_hints *hints)
{
	struct pool *p = &rt->pool[w->pool];
	struct worker_call c = {.pool = p, .w = w, .hints = hints};

	call_sched(rt, &c, on_sched_set);
	if (c.rc < 0) {
		kvr_registry_del(rt->registry, w);
		return c.rc == -ENOSPC ? KVR_E_WORKER_LIMIT : KVR_E_WORKER_CONFIG;
	}
	call_lcore(rt, p->event_lcore, on_event_reset, &c);
	worker_set_state(rt, w, KVR_WORKER_SERVING);
	if (publish_view(rt) < 0) {
		worker_leave(rt, w);
		return KVR_E_NO_MEMORY;
	}
	c.flag = true;
	call_sched(rt, &c, on_sched_available);
	activate_prefill(rt, p);
	return KVR_OK;
}
void worker_heard(struct router *rt, struct kvr_worker *w)
{
	struct worker_call c = {.pool = &rt->pool[w->pool], .w = w, .flag = true};

	w->last_seen_ns = rt->control.now_ns;
	if (w->state != KVR_WORKER_SUSPECT)
		return;
	worker_set_state(rt, w, KVR_WORKER_SERVING);
	call_sched(rt, &c, on_sched_available);
}

static void check_silence(struct router *rt, struct kvr_worker *w)
{
	const uint64_t silent_ms = (rt->control.now_ns - w->last_seen_ns) / 1000000;
	struct worker_call c = {.pool = &rt->pool[w->pool], .w = w};

	if (silent_ms >= rt->conf.opt.dead_ms) {
		worker_leave(rt, w);
	} else if (silent_ms >= rt->conf.opt.suspect_ms && w->state == KVR_WORKER_SERVING) {
		worker_set_state(rt, w, KVR_WORKER_SUSPECT);
		call_sched(rt, &c, on_sched_available);
	}
}

static void check_drained(struct router *rt, struct kvr_worker *w)
{
	struct worker_call c = {.pool = &rt->pool[w->pool], .w = w};

	call_sched(rt, &c, on_sched_bookings);
	w->bookings = c.value;
	if (w->state == KVR_WORKER_DRAINING && w->bookings == 0)
		worker_set_state(rt, w, KVR_WORKER_DRAINED);
}

void workers_tick(struct router *rt)
{
	/* leave() removes the worker from the registry: walk from the end. */
	for (uint32_t i = kvr_registry_count(rt->registry); i-- > 0;) {
		struct kvr_worker *w = kvr_registry_at(rt->registry, i);

		if (w->state == KVR_WORKER_DRAINING)
			check_drained(rt, w);
		check_silence(rt, w);
	}
}

int control_drain(struct router *rt, uint64_t id, bool draining)
{
	struct kvr_worker *w = kvr_registry_find(rt->registry, id);
	struct worker_call c;

	if (w == NULL)
		return -ENOENT;
	if (!kvr_worker_may(w->state, draining ? KVR_WORKER_DRAINING : KVR_WORKER_SERVING))
		return w->state == (draining ? KVR_WORKER_DRAINING : KVR_WORKER_SERVING) ? -EALREADY
											 : -EPERM;
	c = (struct worker_call){.pool = &rt->pool[w->pool], .w = w, .flag = draining};
	call_sched(rt, &c, on_sched_drain);
	worker_set_state(rt, w, draining ? KVR_WORKER_DRAINING : KVR_WORKER_SERVING);
	return 0;
}

int control_deactivate(struct router *rt, const char *name, bool off)
{
	struct worker_call c = {.flag = off};

	for (uint32_t i = 0; i < rt->n_pools; i++)
		if (strcmp(rt->pool[i].name, name) == 0)
			c.pool = &rt->pool[i];
	if (c.pool == NULL)
		return -ENOENT;
	if (c.pool->decode == NULL)
		return -EINVAL;
	call_sched(rt, &c, on_sched_hold);
	if (c.rc != 0)
		log_prefill(c.pool, c.flag);
	return c.flag;
}

void control_bookings(struct router *rt)
{
	for (uint32_t i = 0; i < kvr_registry_count(rt->registry); i++)
		check_drained(rt, kvr_registry_at(rt->registry, i));
}
