/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Changes of workers on the scheduler and event lcores: join, leave, drain, silence. Changes are
 * collected and applied together:
 *
 *   scheduler  join: dense indexes for the ranks, not eligible yet; leave: bookings end with
 *              WorkerLost, a few hundred a turn; suspect and back. A new incarnation is one change
 *   event      join, leave: index and cursor of each rank are cleared
 *   view       published once; then every lcore has it
 *   scheduler  workers that joined become eligible
 *   answers    WELCOME, or REJECTED
 */
#include "control/log.h"
#include "control/restore.h"
#include "control/thread.h"
#include "event/event.h"
#include "lcore/out.h"
#include "sched/sched.h"
#include "sched/session.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_log.h>

/* Waiting requests pinned to a leaving worker that are rejected in one turn of the lcore. */
#define UNPIN_TURN 64u

static void log_prefill(const struct pool *p, bool active)
{
	log_worker(
		~(uint64_t)p->number,
		KVR_LOG_ABOUT(.level = active ? KVR_LOG_NOTICE : KVR_LOG_WARNING, .pool = p->name),
		"prefill pool %s %s", p->name, active ? "active" : "inactive");
}

/* ---- changes: on the lcores ---- */

/* The changes that affect one lcore, in order. */
struct walk {
	struct router *rt;
	bool (*mine)(const struct lcore *lc, const struct pool *p, const struct change *c);
	bool (*step)(struct lcore *lc, struct pool *p, struct change *c); /* false: call again */
	uint32_t at;
	struct call call;
};

/* One step a turn, as a step may take some microseconds. */
static bool walk_on(struct lcore *lc, void *arg)
{
	struct walk *w = arg;
	struct control *ctl = w->rt->ctl;

	for (; w->at < ctl->n_changes; w->at++) {
		struct change *c = &ctl->change[w->at];
		struct pool *p = pool_of(w->rt, c->w);

		if (!w->mine(lc, p, c) || c->rc < 0)
			continue;
		if (w->step(lc, p, c))
			w->at++;
		return w->at == ctl->n_changes;
	}
	return true;
}

/* Update the activation of a prefill pool. @return whether it changed. */
static bool prefill_side(struct pool *p)
{
	return p->decode != NULL && kvr_disagg_workers(&p->pair.disagg, kvr_sched_n_able(p->sched));
}

static bool of_sched(const struct lcore *lc, const struct pool *p, const struct change *c)
{
	return p->sched_lcore == lc && c->kind != CHANGE_MOVE;
}

static void sched_join(struct lcore *lc, struct pool *p, struct change *c)
{
	struct kvr_worker *w = c->w;
	const struct kvr_sched_worker sw = {
		.id = w->id,
		.dp_start = w->dp_start,
		.dp_size = w->dp_size,
		.total_kv_blocks = w->total_kv_blocks,
		.max_num_batched_tokens = w->max_num_batched_tokens,
		.cpu = (w->flags & KVR_HELLO_F_CPU) != 0,
		.taints = c->taint,
		.n_taints = c->n_taints,
	};

	c->rc = kvr_sched_worker_set(p->sched, &sw, lc->now_ns);
	if (c->rc < 0)
		return;
	/* Not before every lcore has the view. */
	kvr_sched_worker_available(p->sched, w->id, false, lc->now_ns);
	for (uint32_t i = 0; i < w->dp_size; i++)
		w->rank[i] = kvr_sched_rank_find(p->sched, w->id, w->dp_start + i);
	ranks_begin(p, w->rank, w->dp_size, UINT64_MAX);
}

static bool sched_leave(struct lcore *lc, struct pool *p, struct change *c)
{
	if (!c->begun) {
		c->begun = true;
		kvr_sched_worker_available(p->sched, c->w->id, false, lc->now_ns);
		/* Before the bookings end, so that their requests are not offered to an empty
		 * prefill pool. */
		c->side = prefill_side(p);
	}
	if (kvr_sched_worker_drop(p->sched, c->w->id, ENDS_TURN, lc->now_ns) != 0 ||
	    !kvr_sched_worker_unpin(p->sched, c->w->id, 0, 0, UNPIN_TURN))
		return false;
	kvr_sched_worker_gone(p->sched, c->w->id, lc->now_ns);
	ranks_begin(p, c->w->rank, c->w->dp_size, 0);
	return true;
}

static bool sched_renew(struct lcore *lc, struct pool *p, struct change *c)
{
	if (!c->begun) {
		c->begun = true;
		kvr_sched_worker_renew(p->sched, c->w->id, lc->now_ns);
	}
	if (kvr_sched_worker_drop(p->sched, c->w->id, ENDS_TURN, lc->now_ns) != 0 ||
	    !kvr_sched_worker_unpin(p->sched, c->w->id, c->w->dp_start, c->w->dp_size, UNPIN_TURN))
		return false;
	sched_join(lc, p, c);
	if (c->rc == 0)
		return true;
	kvr_sched_worker_gone(p->sched, c->w->id, lc->now_ns);
	c->side = prefill_side(p);
	return true;
}

static bool at_sched(struct lcore *lc, struct pool *p, struct change *c)
{
	switch (c->kind) {
	case CHANGE_JOIN:
		sched_join(lc, p, c);
		break;
	case CHANGE_LEAVE:
		return sched_leave(lc, p, c);
	case CHANGE_RENEW:
		return sched_renew(lc, p, c);
	case CHANGE_AVAIL:
		kvr_sched_worker_available(p->sched, c->w->id, c->flag, lc->now_ns);
		c->side = prefill_side(p);
		break;
	case CHANGE_MOVE:
		break;
	}
	return true;
}

static bool joins(const struct change *c)
{
	return c->kind == CHANGE_JOIN || c->kind == CHANGE_RENEW;
}

/* Whether the change affects the set of workers, not only paths or flags. */
static bool changes_lives(const struct change *c)
{
	return joins(c) || c->kind == CHANGE_LEAVE;
}

static bool of_event(const struct lcore *lc, const struct pool *p, const struct change *c)
{
	return p->event_lcore == lc && changes_lives(c);
}

static void empty_ranks(struct lcore *lc, struct pool *p, struct change *c)
{
	if (c->empty)
		return;
	c->empty = true;
	for (uint32_t i = 0; c->kind == CHANGE_RENEW && i < c->old->dp_size; i++)
		event_reset_rank(lc, p, c->old->rank[i], NULL);
	for (uint32_t i = 0; i < c->w->dp_size; i++)
		event_reset_rank(lc, p, c->w->rank[i], c->kind != CHANGE_LEAVE ? c->w : NULL);
}

static bool at_event(struct lcore *lc, struct pool *p, struct change *c)
{
	empty_ranks(lc, p, c);
	return c->warm == NULL || c->kind != CHANGE_JOIN || event_restore(lc, p, c->w, c->warm);
}

static bool of_open(const struct lcore *lc, const struct pool *p, const struct change *c)
{
	return p->sched_lcore == lc && changes_lives(c);
}

static bool at_open(struct lcore *lc, struct pool *p, struct change *c)
{
	if (c->warm != NULL && c->kind == CHANGE_JOIN && !session_restore(lc, p, c->warm))
		return false;
	if (c->kind != CHANGE_LEAVE) {
		/* Ranks were cleared before this view was published, and all lcores have it. */
		ranks_begin(p, c->w->rank, c->w->dp_size, lc->view->number);
		kvr_sched_worker_available(p->sched, c->w->id, true, lc->now_ns);
	}
	c->side = prefill_side(p) || c->side;
	return true;
}

/* ---- changes: control ---- */

/* One call to every affected lcore, all in parallel. */
static void walk(struct router *rt,
		 bool (*mine)(const struct lcore *, const struct pool *, const struct change *),
		 bool (*step)(struct lcore *, struct pool *, struct change *))
{
	struct walk w[KVR_ROUTER_MAX_LCORES];
	struct control *ctl = rt->ctl;

	for (uint32_t i = 0; i < rt->n_lcores; i++) {
		bool any = false;

		for (uint32_t k = 0; k < ctl->n_changes && !any; k++)
			any = ctl->change[k].rc == 0 &&
			      mine(rt->lcore[i], pool_of(rt, ctl->change[k].w), &ctl->change[k]);
		w[i] = (struct walk){.rt = rt, .mine = mine, .step = step};
		w[i].call.fn = walk_on;
		w[i].call.arg = &w[i];
		if (any)
			call_start(rt, rt->lcore[i], &w[i].call);
	}
	for (uint32_t i = 0; i < rt->n_lcores; i++)
		call_wait(rt, &w[i].call);
}

/* Remove workers that failed to join, with the error in `rc`. Their earlier incarnation has ended
 * nevertheless. */
static void drop_failed(struct router *rt)
{
	for (uint32_t i = 0; i < rt->ctl->n_changes; i++) {
		struct change *c = &rt->ctl->change[i];

		if (!joins(c) || c->rc >= 0)
			continue;
		c->w->epoch = 0; /* it never joined: the same epoch may try again */
		kvr_registry_remove(rt->registry, c->w);
		if (c->kind == CHANGE_JOIN)
			continue;
		rt->ctl->left_ns[c->w->pool] = rt->control.now_ns;
		c->kind = CHANGE_LEAVE;
		c->refused = c->w;
		c->why = c->rc;
		c->rc = 0;
		c->w = c->old;
		c->old = NULL;
	}
}

/* No memory for a view with the new workers. */
static void undo_joins(struct router *rt)
{
	struct control *ctl = rt->ctl;

	for (uint32_t i = 0; i < ctl->n_changes; i++) {
		struct change *c = &ctl->change[i];

		if (!joins(c) || c->rc < 0)
			c->rc = c->rc < 0 ? c->rc : -EALREADY;
		else
			c->kind = CHANGE_LEAVE;
		c->empty = false;
	}
	walk(rt, of_sched, at_sched);
	walk(rt, of_event, at_event);
	for (uint32_t i = 0; i < ctl->n_changes; i++)
		if (ctl->change[i].kind == CHANGE_LEAVE && ctl->change[i].rc == 0) {
			ctl->change[i].kind = CHANGE_JOIN;
			ctl->change[i].rc = -ENOMEM;
			ctl->change[i].w->epoch = 0;
			kvr_registry_remove(rt->registry, ctl->change[i].w);
		}
}

static void refuse_join(struct router *rt, const struct change *c, int rc)
{
	struct refusal why = {.code = KVR_E_WORKER_CONFIG};

	if (rc == -ENOSPC || rc == -ENOMEM)
		why.code = rc == -ENOSPC ? KVR_E_WORKER_LIMIT : KVR_E_NO_MEMORY;
	hello_refuse(rt, c->frame, &why);
}

/* Complete a change that all lcores have applied. */
static void finish(struct router *rt, struct change *c)
{
	const struct pool *p = pool_of(rt, c->w);

	if (c->refused != NULL)
		refuse_join(rt, c, c->why);
	else if (joins(c) && c->rc < 0)
		refuse_join(rt, c, c->rc);
	else if (joins(c) || c->kind == CHANGE_MOVE)
		hello_welcome(rt, c->w, c->frame);
	if (c->frame != NULL)
		rte_mempool_put(rt->ctl_bufs, c->frame);
	if (c->side)
		log_prefill(p, kvr_disagg_active(&p->pair.disagg));
	if (c->kind == CHANGE_LEAVE || (joins(c) && c->rc < 0))
		kvr_worker_free(c->w);
	if (c->old != NULL)
		kvr_worker_free(c->old);
	if (c->refused != NULL)
		kvr_worker_free(c->refused);
}

static void join_in_view(struct router *rt)
{
	struct control *ctl = rt->ctl;

	for (uint32_t i = 0; i < ctl->n_changes; i++) {
		struct change *c = &ctl->change[i];

		if (c->rc == 0 && joins(c))
			worker_set_state(rt, c->w, KVR_WORKER_SERVING, NULL);
		ctl->dirty = ctl->dirty || c->kind != CHANGE_AVAIL;
	}
}

void workers_flush(struct router *rt)
{
	struct control *ctl = rt->ctl;

	if (ctl->n_changes == 0 && !ctl->dirty)
		return;
	walk(rt, of_sched, at_sched);
	drop_failed(rt);
	walk(rt, of_event, at_event);
	join_in_view(rt);
	if (ctl->dirty && publish_view(rt) == 0)
		ctl->dirty = false;
	else if (ctl->dirty) /* the former view stays until there is memory */
		undo_joins(rt);
	walk(rt, of_open, at_open);
	for (uint32_t i = 0; i < ctl->n_changes; i++)
		finish(rt, &ctl->change[i]);
	ctl->n_changes = 0;
}

static struct change *change(struct router *rt, struct kvr_worker *w, enum change_kind kind)
{
	struct control *ctl = rt->ctl;
	struct change *c;

	if (ctl->n_changes == CHANGES)
		workers_flush(rt);
	c = &ctl->change[ctl->n_changes++];
	c->kind = kind;
	c->flag = c->side = c->begun = c->empty = false;
	c->warm = NULL;
	c->rc = 0;
	c->w = w;
	c->old = c->refused = NULL;
	c->frame = NULL;
	c->n_taints = 0;
	return c;
}

/* Taints of a worker: those in HELLO, and one for each entry of its topology. */
static void change_taints(struct change *c, const struct kvr_hints *h)
{
	for (uint32_t i = 0; i < h->n_taints; i++)
		c->taint[c->n_taints++] = h->taints[i];
	for (uint32_t i = 0; i < h->n_topology; i++) {
		const int len = snprintf(c->text[i], TAINT_TEXT, KVR_TOPOLOGY_TAINT "%.*s",
					 (int)h->topology[i].len, h->topology[i].p);

		c->taint[c->n_taints++] = (struct kvr_str){c->text[i], (uint32_t)len};
	}
}

void worker_join(struct router *rt, struct kvr_worker *w, const struct kvr_hints *hints,
		 struct ctl_buf *frame)
{
	struct change *c = change(rt, w, CHANGE_JOIN);

	c->frame = frame; /* the taints point into it */
	c->warm = restore_take(rt, w);
	change_taints(c, hints);
}

/* Set at once, because the tick that checks all pools comes later. */
static void expect_back(struct router *rt, const struct kvr_worker *w)
{
	atomic_store_explicit(&pool_of(rt, w)->control.expected, true, memory_order_relaxed);
}

void worker_renew(struct router *rt, struct kvr_worker *old, struct kvr_worker *w,
		  const struct kvr_hints *hints, struct ctl_buf *frame)
{
	struct change *c = change(rt, w, CHANGE_RENEW);

	worker_set_state(rt, old, KVR_WORKER_GONE, "replaced by a newer incarnation");
	expect_back(rt, old);
	c->old = old;
	c->frame = frame; /* the taints point into it */
	change_taints(c, hints);
}

void worker_leave(struct router *rt, struct kvr_worker *w, const char *why)
{
	worker_set_state(rt, w, KVR_WORKER_GONE, why);
	expect_back(rt, w);
	rt->ctl->left_ns[w->pool] = rt->control.now_ns;
	change(rt, w, CHANGE_LEAVE);
	kvr_registry_remove(rt->registry, w);
}

void worker_moved(struct router *rt, struct kvr_worker *w, struct ctl_buf *frame)
{
	change(rt, w, CHANGE_MOVE)->frame = frame;
}

void worker_available(struct router *rt, struct kvr_worker *w, bool available)
{
	change(rt, w, CHANGE_AVAIL)->flag = available;
}

struct pool_call {
	struct pool *pool;
	uint64_t id;
	bool flag, side;
	int rc;
};

static void on_sched_drain(struct lcore *lc, void *arg)
{
	struct pool_call *c = arg;

	c->rc = kvr_sched_worker_drain(c->pool->sched, c->id, c->flag, lc->now_ns);
	/* It may have been suspect before; if it is still silent, it becomes suspect again. */
	if (!c->flag)
		kvr_sched_worker_available(c->pool->sched, c->id, true, lc->now_ns);
	c->side = prefill_side(c->pool);
}

static void on_sched_hold(struct lcore *lc, void *arg)
{
	struct pool_call *c = arg;

	RTE_SET_USED(lc);
	c->rc = kvr_disagg_hold(&c->pool->pair.disagg, c->flag);
	c->flag = kvr_disagg_active(&c->pool->pair.disagg);
}

int worker_drain(struct router *rt, uint64_t id, bool draining, const char *why)
{
	struct kvr_worker *w = kvr_registry_find(rt->registry, id);
	struct pool_call c = {.id = id, .flag = draining};

	if (w == NULL)
		return -ENOENT;
	if (!kvr_worker_may_change(w->state, draining ? KVR_WORKER_DRAINING : KVR_WORKER_SERVING))
		return w->state == (draining ? KVR_WORKER_DRAINING : KVR_WORKER_SERVING) ? -EALREADY
											 : -EPERM;
	c.pool = pool_of(rt, w);
	call_lcore(rt, c.pool->sched_lcore, on_sched_drain, &c);
	worker_set_state(rt, w, draining ? KVR_WORKER_DRAINING : KVR_WORKER_SERVING, why);
	w->drain_ns = 0;
	w->drained_by_agent = false;
	if (c.side)
		log_prefill(c.pool, kvr_disagg_active(&c.pool->pair.disagg));
	return 0;
}

int control_drain(struct router *rt, uint64_t id, bool draining)
{
	return worker_drain(rt, id, draining, "requested by a telemetry command");
}

int control_deactivate(struct router *rt, const char *name, bool off)
{
	struct pool_call c = {.pool = pool_by_name(rt, name, strlen(name)), .flag = off};

	if (c.pool == NULL)
		return -ENOENT;
	if (c.pool->decode == NULL)
		return -EINVAL;
	call_lcore(rt, c.pool->sched_lcore, on_sched_hold, &c);
	if (c.rc != 0)
		log_prefill(c.pool, c.flag);
	return c.flag;
}
