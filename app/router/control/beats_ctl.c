/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads the workers' beats that ingress lcores write: control records when each worker was last
 * seen, and passes the reports of ranks to scheduler and event lcores. It does not wait for them: a
 * batch in progress is filled again at a later tick, and a report that does not fit stays and may
 * be overwritten by a newer one.
 */
#include "control/log.h"
#include "control/thread.h"
#include "event/event.h"

#include <inttypes.h>

#include <rte_ether.h>

#define LOADS_TURN 64u /* reports applied in one turn of an lcore */

static bool on_sched_loads(struct lcore *lc, void *arg)
{
	struct load_batch *b = arg;

	for (uint32_t end = RTE_MIN(b->sched_at + LOADS_TURN, b->n); b->sched_at < end;
	     b->sched_at++) {
		const struct rank_load *l = &b->load[b->sched_at];

		if (l->kv_used_blocks != UINT64_MAX)
			kvr_sched_load_report(b->pool->sched, l->worker, l->dp_rank,
					      l->kv_used_blocks, lc->now_ns);
	}
	return b->sched_at == b->n;
}

static bool on_event_loads(struct lcore *lc, void *arg)
{
	struct load_batch *b = arg;

	for (uint32_t end = RTE_MIN(b->event_at + LOADS_TURN, b->n); b->event_at < end;
	     b->event_at++)
		event_heartbeat(lc, b->pool, &b->load[b->event_at]);
	return b->event_at == b->n;
}

/* @return false: not enough space for all of its ranks. */
static bool take_loads(struct load_batch *b, const struct kvr_worker *w)
{
	for (uint32_t i = 0; i < w->beat->n; i++) {
		struct kvr_beat_load *l = &w->beat->load[i];

		if (atomic_load_explicit(&l->fresh, memory_order_relaxed) == 0)
			continue;
		if (b->n == LOADS)
			return false;
		/* Pairs with the release store in mark(): the report is complete. */
		atomic_exchange_explicit(&l->fresh, 0, memory_order_acquire);
		b->load[b->n++] = (struct rank_load){
			.worker = w->id,
			.epoch = w->epoch,
			.rank = w->rank[i],
			.dp_rank = w->dp_start + i,
			.kv_used_blocks =
				atomic_load_explicit(&l->kv_used_blocks, memory_order_relaxed),
			.next_event_id =
				atomic_load_explicit(&l->next_event_id, memory_order_relaxed),
		};
	}
	return true;
}

/* A worker whose report does not fit is the first of the next tick. */
static void pass_on(struct router *rt, struct load_batch *b)
{
	const uint32_t n = kvr_registry_count(rt->registry);
	const uint32_t from = b->next < n ? b->next : 0;

	b->n = b->sched_at = b->event_at = 0;
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t at = from + i < n ? from + i : from + i - n;
		const struct kvr_worker *w = kvr_registry_at(rt->registry, at);

		if (w->pool != b->pool->number || w->state == KVR_WORKER_JOINING ||
		    take_loads(b, w))
			continue;
		b->next = at;
		break;
	}
	if (b->n == 0)
		return;
	b->sched.fn = on_sched_loads;
	b->event.fn = on_event_loads;
	b->sched.arg = b->event.arg = b;
	call_start(rt, b->pool->sched_lcore, &b->sched);
	call_start(rt, b->pool->event_lcore, &b->event);
}

/* The frames of a worker come from another MAC: a gateway failed over, or a machine or card was
 * replaced. The view at the end of this tick contains all such workers, so frequent changes cost
 * one view per tick. Live requests follow (lcore/agent_path.h). */
static void other_hop(struct router *rt, const struct kvr_worker *w)
{
	char where[KVR_PATH_TEXT];

	rt->ctl->dirty = true;
	log_worker(w->id,
		   KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE, .worker = &w->id,
				 .pool = pool_of(rt, w)->name,
				 .addr = kvr_path_text(&w->path, where, sizeof(where))),
		   "worker %" PRIu64 " has another next hop: " RTE_ETHER_ADDR_PRT_FMT, w->id,
		   w->path.mac[0], w->path.mac[1], w->path.mac[2], w->path.mac[3], w->path.mac[4],
		   w->path.mac[5]);
}

static void heard(struct router *rt, struct kvr_worker *w)
{
	/* Guards no other data: a heartbeat missed now is seen at the next tick. */
	const uint64_t at = atomic_load_explicit(&w->beat->received_ns, memory_order_relaxed);

	if (kvr_worker_adopt_hop(w))
		other_hop(rt, w);
	if (at == w->read_ns)
		return;
	w->read_ns = at;
	w->last_seen_ns = rt->ctl->live.now_ns;
	if (w->state != KVR_WORKER_SUSPECT)
		return;
	worker_set_state(rt, w, KVR_WORKER_SERVING, NULL);
	worker_available(rt, w, true);
}

void beats_tick(struct router *rt)
{
	for (uint32_t i = 0; i < kvr_registry_count(rt->registry); i++)
		heard(rt, kvr_registry_at(rt->registry, i));
	for (uint32_t i = 0; i < rt->n_pools; i++) {
		struct load_batch *b = &rt->ctl->loads[i];

		b->pool = &rt->pool[i];
		if (!call_busy(&b->sched) && !call_busy(&b->event))
			pass_on(rt, b);
	}
}
