/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent_pvt.h"
#include "kvr_sim.h"

#include <errno.h>
#include <stdlib.h>

#include <rte_common.h>

uint32_t kvr_agent__kv_room(const struct kvr_agent *a)
{
	return (a->frame_bytes - KVR_WIRE_MIN_FRAME - (uint32_t)sizeof(struct kvr_wire_kv_events) -
		(uint32_t)sizeof(struct kvr_wire_kv_event)) /
	       8;
}

/* The ring is full of unacknowledged events: a dump must replace them. */
static void mark_overrun(struct kvr_agent *a, struct agent_rank *k)
{
	KVR_SIM_SOMETIMES(AGENT_OVERRUN);
	if (!k->overrun)
		a->stats.kv_overruns++;
	k->overrun = true;
	kvr_agent__kv_drop(k);
}

static bool has_ring(const struct kvr_agent *a, struct agent_rank *k)
{
	if (k->ring == NULL) {
		k->ring_mask = rte_align32pow2(a->conf.kv_ring_bytes) - 1;
		k->ring = malloc(k->ring_mask + 1);
	}
	return k->ring != NULL;
}

static void append_event(struct kvr_agent *a, struct agent_rank *k, uint8_t type,
			 const struct kvr_agent_kv *kv)
{
	const uint32_t bytes = (uint32_t)sizeof(struct kvr_wire_kv_event) + kv->n * 8;
	struct kvr_wire_kv_event *e = NULL;

	a->stats.kv_events++;
	if (!k->overrun && has_ring(a, k))
		e = kvr_agent__kv_room_for(k, bytes);
	if (e == NULL) {
		mark_overrun(a, k);
		k->next_id++; /* the dump will include its effect */
		return;
	}
	*e = (struct kvr_wire_kv_event){.type = type,
					.tier = (uint8_t)kv->tier,
					.flags = kv->has_parent ? KVR_KV_EV_F_PARENT : 0,
					.n_blocks = kv->n,
					.parent = kv->has_parent ? kv->parent : 0};
	if (kv->n > 0)
		memcpy(e + 1, kv->hashes, kv->n * 8ul);
	kvr_agent__kv_added(k, e);
}

static struct agent_rank *rank_of(struct kvr_agent *a, uint32_t dp_rank)
{
	return dp_rank - a->conf.dp_start < a->conf.dp_size ? &a->rank[dp_rank - a->conf.dp_start]
							    : NULL;
}

/* Publish blocks as events that fit a frame; each continues the previous one. */
static int publish_blocks(struct kvr_agent *a, uint32_t dp_rank, uint8_t type,
			  const struct kvr_agent_kv *kv)
{
	const uint32_t room = kvr_agent__kv_room(a);
	struct agent_rank *k = rank_of(a, dp_rank);
	struct kvr_agent_kv piece = *kv;

	if (k == NULL || (unsigned int)kv->tier > KVR_TIER_EXTERNAL ||
	    (kv->n > 0 && kv->hashes == NULL))
		return -EINVAL;
	for (uint32_t off = 0; off == 0 || off < kv->n; off += room) {
		if (off > 0)
			piece.hashes = kv->hashes + off;
		piece.n = RTE_MIN(room, kv->n - off);
		append_event(a, k, type, &piece);
		if (type == KVR_KV_STORED) {
			piece.has_parent = true;
			piece.parent = piece.hashes[piece.n - 1];
		}
	}
	kvr_agent__kv_kick(a, k);
	return 0;
}

int kvr_agent_kv_stored(struct kvr_agent *a, uint32_t dp_rank, const struct kvr_agent_kv *kv)
{
	return kv->n > 0 ? publish_blocks(a, dp_rank, KVR_KV_STORED, kv) : -EINVAL;
}

int kvr_agent_kv_removed(struct kvr_agent *a, uint32_t dp_rank, const struct kvr_agent_kv *kv)
{
	struct kvr_agent_kv no_parent = *kv;

	no_parent.has_parent = false;
	return kv->n > 0 ? publish_blocks(a, dp_rank, KVR_KV_REMOVED, &no_parent) : -EINVAL;
}

int kvr_agent_kv_cleared(struct kvr_agent *a, uint32_t dp_rank)
{
	static const struct kvr_agent_kv nothing;

	return publish_blocks(a, dp_rank, KVR_KV_CLEARED, &nothing);
}

uint64_t kvr_agent_kv_waiting(const struct kvr_agent *a, uint32_t dp_rank)
{
	const struct agent_rank *k = dp_rank - a->conf.dp_start < a->conf.dp_size
					     ? &a->rank[dp_rank - a->conf.dp_start]
					     : NULL;

	return k != NULL && a->registered && !a->leaving && !k->overrun ? k->end - k->acked.at : 0;
}

int kvr_agent_load(struct kvr_agent *a, uint32_t dp_rank, uint32_t active_requests,
		   uint64_t kv_used_blocks)
{
	struct agent_rank *k = rank_of(a, dp_rank);

	if (k == NULL)
		return -EINVAL;
	k->load.active_requests = active_requests;
	k->load.kv_used_blocks = kv_used_blocks;
	return 0;
}

int kvr_agent_events_read(struct kvr_agent *a, uint32_t dp_rank, uint32_t unread,
			  uint16_t block_size, bool eagle)
{
	struct agent_rank *k = rank_of(a, dp_rank);

	if (k == NULL)
		return -EINVAL;
	k->load.events_unread = unread;
	k->load.event_block_size = block_size;
	k->load.event_form = block_size == 0 ? KVR_FORM_UNKNOWN
			     : eagle	     ? KVR_FORM_PAIRS
					     : KVR_FORM_TOKENS;
	return 0;
}

void kvr_agent_canaries_missed(struct kvr_agent *a, uint32_t in_a_row)
{
	for (uint32_t i = 0; i < a->conf.dp_size; i++)
		a->rank[i].load.canaries_missed = (uint8_t)RTE_MIN(in_a_row, (uint32_t)UINT8_MAX);
}

/* Add waiting events that are contiguous in the ring and fit. @return the number of events
 * added. */
static uint16_t put_piece(struct agent_rank *k, struct kvr_kv_put *put)
{
	const uint8_t *from = (const void *)kvr_agent__kv_at(k, &k->to_send);
	const uint64_t at = k->to_send.at & k->ring_mask;
	const uint64_t most = RTE_MIN(k->end - k->to_send.at, k->ring_mask + 1 - at);
	const uint32_t room = put->cap - put->len;
	uint32_t n = 0, bytes = 0;

	while (bytes < most && from[bytes] != 0 && put->n_events + n < UINT16_MAX) {
		const uint32_t size = kvr_agent__kv_size((const void *)(from + bytes));

		if (size > room - bytes)
			break;
		bytes += size;
		n++;
	}
	kvr_kv_put_events(put, from, bytes, (uint16_t)n);
	k->to_send.at += bytes;
	k->to_send.id += n;
	return (uint16_t)n;
}

/* Send one frame of waiting events, and advance to_send. */
static void send_frame(struct kvr_agent *a, struct agent_rank *k)
{
	const struct kvr_wire_ids ids = kvr_link_ids(&a->link, a->conf.worker, k->to_send.id, 0);
	const struct kvr_wire_kv_events head = {.first_event_id = k->to_send.id,
						.dp_rank = k->dp_rank};
	struct kvr_kv_put put;

	/* Cannot fail: every event fits an empty frame, see kvr_agent__kv_room(). */
	kvr_kv_put_begin(&put, kvr_link_frame(&a->link), a->frame_bytes, &ids, &head);
	while (kvr_agent__kv_waits(k) && put_piece(k, &put) > 0)
		continue;
	if (put.n_events > 0) {
		kvr_link_queue(&a->link, &a->router, kvr_kv_put_end(&put));
		a->stats.kv_frames++;
	} else {
		mark_overrun(a, k);
	}
}

static void send_waiting(struct kvr_agent *a, struct agent_rank *k)
{
	while (kvr_agent__kv_waits(k) && kvr_agent__kv_in_flight(k) < AGENT_KV_WINDOW_BYTES)
		send_frame(a, k);
	if (kvr_agent__kv_in_flight(k) > 0)
		kvr_timer_set(&a->link.timers, &k->timer, k->progress_us + k->backoff_us);
}

void kvr_agent__kv_timer(struct kvr_agent *a, struct agent_rank *k)
{
	if (!a->registered || a->leaving)
		return; /* WELCOME restarts it */
	if (k->dumping) {
		kvr_agent__dump_send(a, k);
		return;
	}
	if (k->overrun) {
		kvr_agent__dump_start(a, k);
		return;
	}
	if (kvr_agent__kv_in_flight(k) > 0) {
		if (a->link.now_us >= k->progress_us + k->backoff_us) {
			a->stats.kv_resent++;
			k->progress_us = a->link.now_us;
			k->backoff_us = RTE_MIN(2 * k->backoff_us, AGENT_KV_REPEAT_MAX_US);
			k->to_send = k->acked;
		}
	} else {
		k->progress_us = a->link.now_us;
	}
	send_waiting(a, k);
}

/* Advance the acknowledged position; the events stay in the ring for repair. */
static void advance_acked(struct agent_rank *k, uint64_t next_id)
{
	kvr_agent__kv_seek(k, &k->acked, next_id);
	if (k->to_send.id < next_id)
		k->to_send = k->acked;
	k->confirmed = next_id;
	k->back_id = UINT64_MAX;
}

/*
 * Return true if a GAP below acknowledged events is to be accepted: it is not a late frame, but the
 * router has lost events, because a late frame of an earlier dump restarted that dump. The router
 * then repeats GAP.
 */
static bool is_step_back(const struct kvr_agent *a, struct agent_rank *k, uint64_t id)
{
	if (id != k->back_id) {
		k->back_id = id;
		k->back_us = a->link.now_us;
	}
	return a->link.now_us - k->back_us >= AGENT_KV_STALE_US;
}

/* The router lacks events from @p id on. */
static void handle_gap(struct kvr_agent *a, struct agent_rank *k, uint64_t id, uint64_t wait_us)
{
	if (id == k->gap_id && a->link.now_us - k->gap_us < AGENT_KV_REPEAT_US)
		return; /* the router sends one GAP per frame behind the hole */
	if (id < k->confirmed && !is_step_back(a, k, id))
		return; /* older than an acknowledgement */
	k->back_id = UINT64_MAX;
	if (wait_us == 0)
		k->confirmed =
			id; /* everything below is applied; BUSY only repeats a known position */
	a->stats.kv_gaps++;
	k->gap_id = id;
	k->gap_us = a->link.now_us;
	if (id < k->first.id) {
		k->overrun = true; /* no longer in the ring */
	} else {
		kvr_agent__kv_rewind(k, id);
		k->acked = k->to_send;
	}
	k->progress_us = a->link.now_us + wait_us;
	kvr_timer_set(&a->link.timers, &k->timer, k->progress_us);
}

/* The router needs a dump. */
static void request_dump(struct kvr_agent *a, struct agent_rank *k)
{
	k->overrun = true;
	kvr_agent__kv_kick(a, k);
}

void kvr_agent__on_kv_ack(struct kvr_agent *a, const struct kvr_wire_hdr *h, const uint8_t *body)
{
	const struct kvr_wire_kv_ack *w = (const void *)body;
	struct agent_rank *k = rank_of(a, w->dp_rank);

	/* Acknowledgements of another epoch do not apply. KVR_KV_HELLO may come from a router that
	 * has not sent WELCOME yet. */
	if (w->code == KVR_KV_HELLO ? kvr_agent__is_former(a, h->epoch)
				    : h->epoch != a->router_epoch) {
		a->stats.frames_foreign++;
		return;
	}
	if (k != NULL && w->code == KVR_KV_HELLO) {
		kvr_agent__restart_hello(a);
		return;
	}
	if (k == NULL) {
		a->stats.frames_bad++;
		return;
	}
	if (k->dumping && h->id == k->dump_id)
		kvr_agent__dump_ack(a, k, w);
	if (k->dumping || k->overrun || h->id > AGENT_DUMP_ID)
		return; /* live events wait, or it belongs to a previous dump */
	/* The router has more events than exist: those of a previous process with the same
	 * epoch. */
	if (w->next_event_id > k->next_id) {
		request_dump(a, k);
		return;
	}
	if (w->next_dump_pos > 0) { /* the router waits for the rest of a dump that is gone */
		request_dump(a, k);
		return;
	}
	switch (w->code) {
	case KVR_KV_DUMP_WANTED:
		request_dump(a, k);
		break;
	case KVR_KV_GAP:
		handle_gap(a, k, w->next_event_id, 0);
		break;
	case KVR_KV_BUSY:
		/* A router with a full queue reports 0, which must not move back. */
		handle_gap(a, k, RTE_MAX(w->next_event_id, k->acked.id), AGENT_KV_BUSY_US);
		break;
	default:
		if (w->next_event_id <= k->acked.id) {
			/* Overtaken by a later one, or from before WELCOME. */
			k->confirmed = RTE_MAX(k->confirmed, w->next_event_id);
			break;
		}
		advance_acked(k, w->next_event_id);
		k->progress_us = a->link.now_us;
		k->backoff_us = AGENT_KV_REPEAT_US;
		if (kvr_agent__kv_in_flight(k) == 0)
			kvr_timer_stop(&a->link.timers, &k->timer);
		if (kvr_agent__kv_waits(k) || kvr_agent__kv_in_flight(k) > 0)
			send_waiting(a, k);
	}
}
