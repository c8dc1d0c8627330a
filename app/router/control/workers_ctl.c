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

static void log_prefill(const struct pool *pool, bool active)
{
	log_worker(~(uint64_t)pool->number,
		   KVR_LOG_ABOUT(.level = active ? KVR_LOG_NOTICE : KVR_LOG_WARNING,
				 .pool = pool->name),
		   "prefill pool %s %s", pool->name, active ? "active" : "inactive");
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
		struct change *change = &ctl->change[w->at];
		struct pool *pool = pool_of(w->rt, change->w);

		if (!w->mine(lc, pool, change) || change->rc < 0)
			continue;
		if (w->step(lc, pool, change))
			w->at++;
		return w->at == ctl->n_changes;
	}
	return true;
}

/* Update the activation of a prefill pool. @return whether it changed. */
static bool prefill_side(struct pool *pool)
{
	return pool->decode != NULL &&
	       kvr_disagg_workers(&pool->pair.disagg, kvr_sched_n_able(pool->sched));
}

static bool of_sched(const struct lcore *lc, const struct pool *pool, const struct change *change)
{
	return pool->sched_lcore == lc && change->kind != CHANGE_MOVE;
}

static void sched_join(struct lcore *lc, struct pool *pool, struct change *change)
{
	struct kvr_worker *worker = change->w;
	const struct kvr_sched_worker sw = {
		.id = worker->id,
		.dp_start = worker->dp_start,
		.dp_size = worker->dp_size,
		.total_kv_blocks = worker->total_kv_blocks,
		.max_num_batched_tokens = worker->max_num_batched_tokens,
		.cpu = (worker->flags & KVR_HELLO_F_CPU) != 0,
		.taints = change->taint,
		.n_taints = change->n_taints,
	};

	change->rc = kvr_sched_worker_set(pool->sched, &sw, lc->now_ns);
	if (change->rc < 0)
		return;
	/* Not before every lcore has the view. */
	kvr_sched_worker_available(pool->sched, worker->id, false, lc->now_ns);
	for (uint32_t i = 0; i < worker->dp_size; i++)
		worker->rank[i] =
			kvr_sched_rank_find(pool->sched, worker->id, worker->dp_start + i);
	ranks_begin(pool, worker->rank, worker->dp_size, UINT64_MAX);
}

static bool sched_leave(struct lcore *lc, struct pool *pool, struct change *change)
{
	if (!change->begun) {
		change->begun = true;
		kvr_sched_worker_available(pool->sched, change->w->id, false, lc->now_ns);
		/* Before the bookings end, so that their requests are not offered to an empty
		 * prefill pool. */
		change->side = prefill_side(pool);
	}
	if (kvr_sched_worker_drop(pool->sched, change->w->id, ENDS_TURN, lc->now_ns) != 0 ||
	    !kvr_sched_worker_unpin(pool->sched, change->w->id, 0, 0, UNPIN_TURN))
		return false;
	kvr_sched_worker_gone(pool->sched, change->w->id, lc->now_ns);
	ranks_begin(pool, change->w->rank, change->w->dp_size, 0);
	return true;
}

static bool sched_renew(struct lcore *lc, struct pool *pool, struct change *change)
{
	if (!change->begun) {
		change->begun = true;
		kvr_sched_worker_renew(pool->sched, change->w->id, lc->now_ns);
	}
	if (kvr_sched_worker_drop(pool->sched, change->w->id, ENDS_TURN, lc->now_ns) != 0 ||
	    !kvr_sched_worker_unpin(pool->sched, change->w->id, change->w->dp_start,
				    change->w->dp_size, UNPIN_TURN))
		return false;
	sched_join(lc, pool, change);
	if (change->rc == 0)
		return true;
	kvr_sched_worker_gone(pool->sched, change->w->id, lc->now_ns);
	change->side = prefill_side(pool);
	return true;
}

static bool at_sched(struct lcore *lc, struct pool *pool, struct change *change)
{
	switch (change->kind) {
	case CHANGE_JOIN:
		sched_join(lc, pool, change);
		break;
	case CHANGE_LEAVE:
		return sched_leave(lc, pool, change);
	case CHANGE_RENEW:
		return sched_renew(lc, pool, change);
	case CHANGE_AVAIL:
		kvr_sched_worker_available(pool->sched, change->w->id, change->flag, lc->now_ns);
		change->side = prefill_side(pool);
		break;
	case CHANGE_MOVE:
		break;
	}
	return true;
}

static bool change_joins(const struct change *change)
{
	return change->kind == CHANGE_JOIN || change->kind == CHANGE_RENEW;
}

/* Whether the change affects the set of workers, not only paths or flags. */
static bool changes_lives(const struct change *change)
{
	return change_joins(change) || change->kind == CHANGE_LEAVE;
}

static bool of_event(const struct lcore *lc, const struct pool *pool, const struct change *change)
{
	return pool->event_lcore == lc && changes_lives(change);
}

static void empty_ranks(struct lcore *lc, struct pool *pool, struct change *change)
{
	if (change->empty)
		return;
	change->empty = true;
	for (uint32_t i = 0; change->kind == CHANGE_RENEW && i < change->old->dp_size; i++)
		event_reset_rank(lc, pool, change->old->rank[i], NULL);
	for (uint32_t i = 0; i < change->w->dp_size; i++)
		event_reset_rank(lc, pool, change->w->rank[i],
				 change->kind != CHANGE_LEAVE ? change->w : NULL);
}

static bool at_event(struct lcore *lc, struct pool *pool, struct change *change)
{
	empty_ranks(lc, pool, change);
	return change->warm == NULL || change->kind != CHANGE_JOIN ||
	       event_restore(lc, pool, change->w, change->warm);
}

static bool of_open(const struct lcore *lc, const struct pool *pool, const struct change *change)
{
	return pool->sched_lcore == lc && changes_lives(change);
}

static bool at_open(struct lcore *lc, struct pool *pool, struct change *change)
{
	if (change->warm != NULL && change->kind == CHANGE_JOIN &&
	    !session_restore(lc, pool, change->warm))
		return false;
	if (change->kind != CHANGE_LEAVE) {
		/* Ranks were cleared before this view was published, and all lcores have it. */
		ranks_begin(pool, change->w->rank, change->w->dp_size, lc->view->number);
		kvr_sched_worker_available(pool->sched, change->w->id, true, lc->now_ns);
	}
	change->side = prefill_side(pool) || change->side;
	return true;
}

/* ---- changes: control ---- */

/* One call to every affected lcore, all in parallel. */
static void walk_lcores(struct router *rt,
			bool (*mine)(const struct lcore *, const struct pool *,
				     const struct change *),
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
		struct change *change = &rt->ctl->change[i];

		if (!change_joins(change) || change->rc >= 0)
			continue;
		change->w->epoch = 0; /* it never joined: the same epoch may try again */
		kvr_registry_remove(rt->registry, change->w);
		if (change->kind == CHANGE_JOIN)
			continue;
		rt->ctl->left_ns[change->w->pool] = rt->control.now_ns;
		change->kind = CHANGE_LEAVE;
		change->refused = change->w;
		change->why = change->rc;
		change->rc = 0;
		change->w = change->old;
		change->old = NULL;
	}
}

/* No memory for a view with the new workers. */
static void undo_joins(struct router *rt)
{
	struct control *ctl = rt->ctl;

	for (uint32_t i = 0; i < ctl->n_changes; i++) {
		struct change *change = &ctl->change[i];

		if (!change_joins(change) || change->rc < 0)
			change->rc = change->rc < 0 ? change->rc : -EALREADY;
		else
			change->kind = CHANGE_LEAVE;
		change->empty = false;
	}
	walk_lcores(rt, of_sched, at_sched);
	walk_lcores(rt, of_event, at_event);
	for (uint32_t i = 0; i < ctl->n_changes; i++)
		if (ctl->change[i].kind == CHANGE_LEAVE && ctl->change[i].rc == 0) {
			ctl->change[i].kind = CHANGE_JOIN;
			ctl->change[i].rc = -ENOMEM;
			ctl->change[i].w->epoch = 0;
			kvr_registry_remove(rt->registry, ctl->change[i].w);
		}
}

static void refuse_join(struct router *rt, const struct change *change, int rc)
{
	struct rejection why = {.code = KVR_E_WORKER_CONFIG};

	if (rc == -ENOSPC || rc == -ENOMEM)
		why.code = rc == -ENOSPC ? KVR_E_WORKER_LIMIT : KVR_E_NO_MEMORY;
	hello_reject(rt, change->frame, &why);
}

/* Complete a change that all lcores have applied. */
static void change_finish(struct router *rt, struct change *change)
{
	const struct pool *pool = pool_of(rt, change->w);

	if (change->refused != NULL)
		refuse_join(rt, change, change->why);
	else if (change_joins(change) && change->rc < 0)
		refuse_join(rt, change, change->rc);
	else if (change_joins(change) || change->kind == CHANGE_MOVE)
		hello_welcome(rt, change->w, change->frame);
	if (change->frame != NULL)
		rte_mempool_put(rt->ctl_bufs, change->frame);
	if (change->side)
		log_prefill(pool, kvr_disagg_active(&pool->pair.disagg));
	if (change->kind == CHANGE_LEAVE || (change_joins(change) && change->rc < 0))
		kvr_worker_free(change->w);
	if (change->old != NULL)
		kvr_worker_free(change->old);
	if (change->refused != NULL)
		kvr_worker_free(change->refused);
}

static void join_in_view(struct router *rt)
{
	struct control *ctl = rt->ctl;

	for (uint32_t i = 0; i < ctl->n_changes; i++) {
		struct change *change = &ctl->change[i];

		if (change->rc == 0 && change_joins(change))
			worker_set_state(rt, change->w, KVR_WORKER_SERVING, NULL);
		ctl->dirty = ctl->dirty || change->kind != CHANGE_AVAIL;
	}
}

void workers_flush(struct router *rt)
{
	struct control *ctl = rt->ctl;

	if (ctl->n_changes == 0 && !ctl->dirty)
		return;
	walk_lcores(rt, of_sched, at_sched);
	drop_failed(rt);
	walk_lcores(rt, of_event, at_event);
	join_in_view(rt);
	if (ctl->dirty && publish_view(rt) == 0)
		ctl->dirty = false;
	else if (ctl->dirty) /* the former view stays until there is memory */
		undo_joins(rt);
	walk_lcores(rt, of_open, at_open);
	for (uint32_t i = 0; i < ctl->n_changes; i++)
		change_finish(rt, &ctl->change[i]);
	ctl->n_changes = 0;
}

static struct change *change_add(struct router *rt, struct kvr_worker *worker,
				 enum change_kind kind)
{
	struct control *ctl = rt->ctl;
	struct change *change;

	if (ctl->n_changes == CHANGES)
		workers_flush(rt);
	change = &ctl->change[ctl->n_changes++];
	change->kind = kind;
	change->flag = change->side = change->begun = change->empty = false;
	change->warm = NULL;
	change->rc = 0;
	change->w = worker;
	change->old = change->refused = NULL;
	change->frame = NULL;
	change->n_taints = 0;
	return change;
}

/* Taints of a worker: those in HELLO, and one for each entry of its topology. */
static void change_taints(struct change *change, const struct kvr_hints *hints)
{
	for (uint32_t i = 0; i < hints->n_taints; i++)
		change->taint[change->n_taints++] = hints->taints[i];
	for (uint32_t i = 0; i < hints->n_topology; i++) {
		const int len = snprintf(change->text[i], TAINT_TEXT, KVR_TOPOLOGY_TAINT "%.*s",
					 (int)hints->topology[i].len, hints->topology[i].p);

		change->taint[change->n_taints++] =
			(struct kvr_str){change->text[i], (uint32_t)len};
	}
}

void worker_join(struct router *rt, struct kvr_worker *worker, const struct kvr_hints *hints,
		 struct ctl_buf *frame)
{
	struct change *change = change_add(rt, worker, CHANGE_JOIN);

	change->frame = frame; /* the taints point into it */
	change->warm = restore_take(rt, worker);
	change_taints(change, hints);
}

/* Set at once, because the tick that checks all pools comes later. */
static void expect_back(struct router *rt, const struct kvr_worker *worker)
{
	atomic_store_explicit(&pool_of(rt, worker)->control.expected, true, memory_order_relaxed);
}

void worker_renew(struct router *rt, struct kvr_worker *old, struct kvr_worker *worker,
		  const struct kvr_hints *hints, struct ctl_buf *frame)
{
	struct change *change = change_add(rt, worker, CHANGE_RENEW);

	worker_set_state(rt, old, KVR_WORKER_GONE, "replaced by a newer incarnation");
	expect_back(rt, old);
	change->old = old;
	change->frame = frame; /* the taints point into it */
	change_taints(change, hints);
}

void worker_leave(struct router *rt, struct kvr_worker *worker, const char *why)
{
	worker_set_state(rt, worker, KVR_WORKER_GONE, why);
	expect_back(rt, worker);
	rt->ctl->left_ns[worker->pool] = rt->control.now_ns;
	change_add(rt, worker, CHANGE_LEAVE);
	kvr_registry_remove(rt->registry, worker);
}

void worker_moved(struct router *rt, struct kvr_worker *worker, struct ctl_buf *frame)
{
	change_add(rt, worker, CHANGE_MOVE)->frame = frame;
}

void worker_available(struct router *rt, struct kvr_worker *worker, bool available)
{
	change_add(rt, worker, CHANGE_AVAIL)->flag = available;
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
	struct kvr_worker *worker = kvr_registry_find(rt->registry, id);
	struct pool_call c = {.id = id, .flag = draining};

	if (worker == NULL)
		return -ENOENT;
	if (!kvr_worker_may_change(worker->state,
				   draining ? KVR_WORKER_DRAINING : KVR_WORKER_SERVING))
		return worker->state == (draining ? KVR_WORKER_DRAINING : KVR_WORKER_SERVING)
			       ? -EALREADY
			       : -EPERM;
	c.pool = pool_of(rt, worker);
	call_lcore(rt, c.pool->sched_lcore, on_sched_drain, &c);
	worker_set_state(rt, worker, draining ? KVR_WORKER_DRAINING : KVR_WORKER_SERVING, why);
	worker->drain_ns = 0;
	worker->drained_by_agent = false;
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
