/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * HEARTBEAT at ingress: check the sender, record the report in the worker's beat, answer in the
 * same buffer. This waits for no other lcore and allocates nothing, so heartbeats pass in any load.
 * The control thread reads the beats every 10 ms. ALIVE goes to the scheduler, which owns the
 * requests.
 */
#include "ingress/ingress.h"
#include "ingress/source.h"
#include "lcore/mailbox.h"
#include "lcore/out.h"

#include <string.h>

#include "kvr_frame.h"
#include "kvr_message.h"

static enum kvr_code check_sender(const struct kvr_view_worker *worker,
				  const struct kvr_wire_hdr *hdr, const struct kvr_path *from,
				  struct rejection *why)
{
	if (worker == NULL)
		return KVR_E_UNKNOWN_WORKER;
	if (worker->epoch != hdr->epoch) {
		why->detail[0] = worker->epoch;
		return KVR_E_STALE_EPOCH;
	}
	return kvr_path_same(from, &worker->path) ? KVR_OK : KVR_E_NOT_ALLOWED;
}

/* Check that each rank belongs to the worker and appears once. */
static enum kvr_code check_loads(const struct kvr_view_worker *worker,
				 const struct kvr_wire_rank_load *l, uint32_t n,
				 struct rejection *why)
{
	uint64_t seen[KVR_WORKER_MAX_RANKS / 64] = {0};

	for (uint32_t i = 0; i < n; i++) {
		const uint32_t k = l[i].dp_rank - worker->dp_start;

		why->detail[0] = l[i].dp_rank;
		if (l[i].dp_rank < worker->dp_start || k >= worker->dp_size) {
			why->text = "rank not in HELLO";
			return KVR_E_WORKER_CONFIG;
		}
		if ((seen[k / 64] >> k % 64 & 1) != 0) {
			why->text = "rank repeated in HEARTBEAT";
			return KVR_E_INVALID_REQUEST;
		}
		seen[k / 64] |= UINT64_C(1) << k % 64;
	}
	why->detail[0] = 0;
	return KVR_OK;
}

static void record_beat(const struct lcore *lc, const struct kvr_view_worker *worker,
			const struct kvr_path *from, const struct kvr_wire_rank_load *l, uint32_t n,
			uint32_t wish)
{
	for (uint32_t i = 0; i < n; i++) {
		struct kvr_beat_load *b = &worker->beat->load[l[i].dp_rank - worker->dp_start];

		atomic_store_explicit(&b->kv_used_blocks, l[i].kv_used_blocks,
				      memory_order_relaxed);
		atomic_store_explicit(&b->next_event_id, l[i].next_event_id, memory_order_relaxed);
		/* Publish no other data: each word is read by itself. */
		atomic_store_explicit(&b->active_requests, l[i].active_requests,
				      memory_order_relaxed);
		atomic_store_explicit(&b->events_unread, l[i].events_unread, memory_order_relaxed);
		atomic_store_explicit(&b->event_block_size, l[i].event_block_size,
				      memory_order_relaxed);
		atomic_store_explicit(&b->event_form, l[i].event_form, memory_order_relaxed);
		atomic_store_explicit(&b->canaries_missed, l[i].canaries_missed,
				      memory_order_relaxed);
		/* Pairs with the exchange in take_loads(). */
		atomic_store_explicit(&b->fresh, 1, memory_order_release);
	}
	/* This store and the next publish no other data. */
	if (unlikely(!kvr_path_same_hop(from, &worker->path)))
		atomic_store_explicit(&worker->beat->hop, kvr_beat_hop(from), memory_order_relaxed);
	atomic_store_explicit(&worker->beat->drain_request, wish, memory_order_relaxed);
	atomic_store_explicit(&worker->beat->received_ns, lc->now_ns, memory_order_relaxed);
}

/* The buffer of the heartbeat carries the answer, which is never longer. */
static void answer_heartbeat(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *to,
			     const struct kvr_view_worker *worker)
{
	struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(m, struct kvr_wire_hdr *);
	const struct kvr_wire_ids ids = {worker->id, hdr->id, 0, lc->rt->epoch, 0};
	const struct kvr_wire_heartbeat_ack ack = {
		.state = (uint16_t)atomic_load_explicit(&worker->beat->state, memory_order_relaxed),
		.bookings = atomic_load_explicit(&worker->beat->bookings, memory_order_relaxed),
	};

	_Static_assert(sizeof(ack) <= sizeof(struct kvr_wire_heartbeat), "it fits");
	rte_pktmbuf_trim(m, (uint16_t)(m->data_len - sizeof(*hdr) - sizeof(ack)));
	kvr_hdr_put(hdr, KVR_HEARTBEAT_ACK, &ids, sizeof(ack), 0, sizeof(ack));
	memcpy(hdr + 1, &ack, sizeof(ack));
	out_send(lc, m, to);
}

void ingress_heartbeat(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const struct kvr_wire_heartbeat *b = kvr_frame_body(hdr);
	const struct kvr_wire_rank_load *load = (const void *)(b + 1);
	const struct kvr_view_worker *worker = kvr_view_find(lc->view, hdr->source);
	struct rejection why = {0};

	why.code = check_sender(worker, hdr, from, &why);
	if (why.code == KVR_OK)
		why.code = check_loads(worker, load, b->n_ranks, &why);
	if (unlikely(why.code != KVR_OK)) {
		if (why.code == KVR_E_WORKER_CONFIG)
			in_count(lc, IN_UNKNOWN_RANK);
		else if (why.code == KVR_E_STALE_EPOCH)
			in_count(lc, IN_STALE_EPOCH);
		source_reject_as(lc, m, from, &why);
		return;
	}
	in_count(lc, IN_HEARTBEATS);
	record_beat(lc, worker, from, load, b->n_ranks, (uint32_t)b->wish << 16 | b->flags);
	answer_heartbeat(lc, m, from, worker);
}

/* Drop the frame: the next report replaces it. */
static void drop_heartbeat(struct lcore *lc, struct rte_mbuf *m, enum in_counter why)
{
	in_count(lc, IN_DROPPED);
	in_count(lc, why);
	rte_pktmbuf_free(m);
}

void ingress_alive(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const struct kvr_view_worker *worker = kvr_view_find(lc->view, hdr->source);
	const struct sched_msg msg = {.type = MSG_ALIVE, .m = m};
	struct rejection why = {0};

	if (unlikely(check_sender(worker, hdr, from, &why) != KVR_OK))
		drop_heartbeat(lc, m, IN_UNKNOWN_REQUEST);
	else if (unlikely(mailbox_put(&lc->rt->pool[worker->pool], &msg) != 0))
		drop_heartbeat(lc, m, IN_RING_FULL);
	else
		in_count(lc, IN_REQUEST_FRAMES);
}
