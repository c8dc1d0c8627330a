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
	struct load_batch *batch = arg;

	for (uint32_t end = RTE_MIN(batch->sched_at + LOADS_TURN, batch->n); batch->sched_at < end;
	     batch->sched_at++) {
		const struct rank_load *load = &batch->load[batch->sched_at];

		if (load->kv_used_blocks != UINT64_MAX)
			kvr_sched_load_report(batch->pool->sched, load->worker, load->dp_rank,
					      load->kv_used_blocks, lc->now_ns);
	}
	return batch->sched_at == batch->n;
}

static bool on_event_loads(struct lcore *lc, void *arg)
{
	struct load_batch *batch = arg;

	for (uint32_t end = RTE_MIN(batch->event_at + LOADS_TURN, batch->n); batch->event_at < end;
	     batch->event_at++)
		event_heartbeat(lc, batch->pool, &batch->load[batch->event_at]);
	return batch->event_at == batch->n;
}

/* @return false: not enough space for all of its ranks. */
static bool take_loads(struct load_batch *batch, const struct kvr_worker *worker)
{
	for (uint32_t i = 0; i < worker->beat->n; i++) {
		struct kvr_beat_load *l = &worker->beat->load[i];

		if (atomic_load_explicit(&l->fresh, memory_order_relaxed) == 0)
			continue;
		if (batch->n == LOADS)
			return false;
		/* Pairs with the release store in record_beat(): the report is complete. */
		atomic_exchange_explicit(&l->fresh, 0, memory_order_acquire);
		batch->load[batch->n++] = (struct rank_load){
			.worker = worker->id,
			.epoch = worker->epoch,
			.rank = worker->rank[i],
			.dp_rank = worker->dp_start + i,
			.kv_used_blocks =
				atomic_load_explicit(&l->kv_used_blocks, memory_order_relaxed),
			.next_event_id =
				atomic_load_explicit(&l->next_event_id, memory_order_relaxed),
		};
	}
	return true;
}

/* A worker whose report does not fit is the first of the next tick. */
static void pass_on(struct router *rt, struct load_batch *batch)
{
	const uint32_t n = kvr_registry_count(rt->registry);
	const uint32_t from = batch->next < n ? batch->next : 0;

	batch->n = batch->sched_at = batch->event_at = 0;
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t at = from + i < n ? from + i : from + i - n;
		const struct kvr_worker *worker = kvr_registry_at(rt->registry, at);

		if (worker->pool != batch->pool->number || worker->state == KVR_WORKER_JOINING ||
		    take_loads(batch, worker))
			continue;
		batch->next = at;
		break;
	}
	if (batch->n == 0)
		return;
	batch->sched.fn = on_sched_loads;
	batch->event.fn = on_event_loads;
	batch->sched.arg = batch->event.arg = batch;
	call_start(rt, batch->pool->sched_lcore, &batch->sched);
	call_start(rt, batch->pool->event_lcore, &batch->event);
}

/* The frames of a worker come from another MAC: a gateway failed over, or a machine or card was
 * replaced. The view at the end of this tick contains all such workers, so frequent changes cost
 * one view per tick. Live requests follow (lcore/agent_path.h). */
static void other_hop(struct router *rt, const struct kvr_worker *worker)
{
	char where[KVR_PATH_TEXT];

	rt->ctl->dirty = true;
	log_worker(worker->id,
		   KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE, .worker = &worker->id,
				 .pool = pool_of(rt, worker)->name,
				 .addr = kvr_path_text(&worker->path, where, sizeof(where))),
		   "worker %" PRIu64 " has another next hop: " RTE_ETHER_ADDR_PRT_FMT, worker->id,
		   worker->path.mac[0], worker->path.mac[1], worker->path.mac[2],
		   worker->path.mac[3], worker->path.mac[4], worker->path.mac[5]);
}

static void beat_apply(struct router *rt, struct kvr_worker *worker)
{
	/* Guards no other data: a heartbeat missed now is seen at the next tick. */
	const uint64_t at = atomic_load_explicit(&worker->beat->received_ns, memory_order_relaxed);

	if (kvr_worker_adopt_hop(worker))
		other_hop(rt, worker);
	if (at == worker->read_ns)
		return;
	worker->read_ns = at;
	worker->last_seen_ns = rt->ctl->live.now_ns;
	if (worker->state != KVR_WORKER_SUSPECT)
		return;
	worker_set_state(rt, worker, KVR_WORKER_SERVING, NULL);
	worker_available(rt, worker, true);
}

void beats_tick(struct router *rt)
{
	for (uint32_t i = 0; i < kvr_registry_count(rt->registry); i++)
		beat_apply(rt, kvr_registry_at(rt->registry, i));
	for (uint32_t i = 0; i < rt->n_pools; i++) {
		struct load_batch *batch = &rt->ctl->loads[i];

		batch->pool = &rt->pool[i];
		if (!call_busy(&batch->sched) && !call_busy(&batch->event))
			pass_on(rt, batch);
	}
}
