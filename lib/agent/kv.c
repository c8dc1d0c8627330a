/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * KV events of a rank on the wire: sending with a window, retransmission, and repair of gaps from
 * the ring. If the ring no longer has the missing events, a dump replaces them (dump.c).
 */
#include "agent_pvt.h"
#include "kvr_sim.h"

#include <errno.h>
#include <stdlib.h>

#include <rte_common.h>

uint32_t kvr_agent__kv_room(const struct kvr_agent *agent)
{
	return (agent->frame_bytes - KVR_WIRE_MIN_FRAME -
		(uint32_t)sizeof(struct kvr_wire_kv_events) -
		(uint32_t)sizeof(struct kvr_wire_kv_event)) /
	       8;
}

/* The ring is full of unacknowledged events: a dump must replace them. */
static void mark_overrun(struct kvr_agent *agent, struct agent_rank *rank)
{
	KVR_SIM_SOMETIMES(AGENT_OVERRUN);
	if (!rank->overrun)
		agent->stats.kv_overruns++;
	rank->overrun = true;
	kvr_agent__kv_drop(rank);
}

static bool has_ring(const struct kvr_agent *agent, struct agent_rank *rank)
{
	if (rank->ring == NULL) {
		rank->ring_mask = rte_align32pow2(agent->conf.kv_ring_bytes) - 1;
		rank->ring = malloc(rank->ring_mask + 1);
	}
	return rank->ring != NULL;
}

static void append_event(struct kvr_agent *agent, struct agent_rank *rank, uint8_t type,
			 const struct kvr_agent_kv *kv)
{
	const uint32_t bytes = (uint32_t)sizeof(struct kvr_wire_kv_event) + kv->n * 8;
	struct kvr_wire_kv_event *e = NULL;

	agent->stats.kv_events++;
	if (!rank->overrun && has_ring(agent, rank))
		e = kvr_agent__kv_room_for(rank, bytes);
	if (e == NULL) {
		mark_overrun(agent, rank);
		rank->next_id++; /* the dump will include its effect */
		return;
	}
	*e = (struct kvr_wire_kv_event){.type = type,
					.tier = (uint8_t)kv->tier,
					.flags = kv->has_parent ? KVR_KV_EV_F_PARENT : 0,
					.n_blocks = kv->n,
					.parent = kv->has_parent ? kv->parent : 0};
	if (kv->n > 0)
		memcpy(e + 1, kv->hashes, kv->n * 8ul);
	kvr_agent__kv_added(rank, e);
}

static struct agent_rank *rank_of(struct kvr_agent *agent, uint32_t dp_rank)
{
	return dp_rank - agent->conf.dp_start < agent->conf.dp_size
		       ? &agent->rank[dp_rank - agent->conf.dp_start]
		       : NULL;
}

/* Publish blocks as events that fit a frame; each continues the previous one. */
static int publish_blocks(struct kvr_agent *agent, uint32_t dp_rank, uint8_t type,
			  const struct kvr_agent_kv *kv)
{
	const uint32_t room = kvr_agent__kv_room(agent);
	struct agent_rank *rank = rank_of(agent, dp_rank);
	struct kvr_agent_kv piece = *kv;

	if (rank == NULL || (unsigned int)kv->tier > KVR_TIER_EXTERNAL ||
	    (kv->n > 0 && kv->hashes == NULL))
		return -EINVAL;
	for (uint32_t off = 0; off == 0 || off < kv->n; off += room) {
		if (off > 0)
			piece.hashes = kv->hashes + off;
		piece.n = RTE_MIN(room, kv->n - off);
		append_event(agent, rank, type, &piece);
		if (type == KVR_KV_STORED) {
			piece.has_parent = true;
			piece.parent = piece.hashes[piece.n - 1];
		}
	}
	kvr_agent__kv_kick(agent, rank);
	return 0;
}

int kvr_agent_kv_stored(struct kvr_agent *agent, uint32_t dp_rank, const struct kvr_agent_kv *kv)
{
	return kv->n > 0 ? publish_blocks(agent, dp_rank, KVR_KV_STORED, kv) : -EINVAL;
}

int kvr_agent_kv_removed(struct kvr_agent *agent, uint32_t dp_rank, const struct kvr_agent_kv *kv)
{
	struct kvr_agent_kv no_parent = *kv;

	no_parent.has_parent = false;
	return kv->n > 0 ? publish_blocks(agent, dp_rank, KVR_KV_REMOVED, &no_parent) : -EINVAL;
}

int kvr_agent_kv_cleared(struct kvr_agent *agent, uint32_t dp_rank)
{
	static const struct kvr_agent_kv nothing;

	return publish_blocks(agent, dp_rank, KVR_KV_CLEARED, &nothing);
}

uint64_t kvr_agent_kv_waiting(const struct kvr_agent *agent, uint32_t dp_rank)
{
	const struct agent_rank *rank = dp_rank - agent->conf.dp_start < agent->conf.dp_size
						? &agent->rank[dp_rank - agent->conf.dp_start]
						: NULL;

	return rank != NULL && agent->registered && !agent->leaving && !rank->overrun
		       ? rank->end - rank->acked.at
		       : 0;
}

int kvr_agent_load(struct kvr_agent *agent, uint32_t dp_rank, uint32_t active_requests,
		   uint64_t kv_used_blocks)
{
	struct agent_rank *rank = rank_of(agent, dp_rank);

	if (rank == NULL)
		return -EINVAL;
	rank->load.active_requests = active_requests;
	rank->load.kv_used_blocks = kv_used_blocks;
	return 0;
}

int kvr_agent_events_read(struct kvr_agent *agent, uint32_t dp_rank, uint32_t unread,
			  uint16_t block_size, bool eagle)
{
	struct agent_rank *rank = rank_of(agent, dp_rank);

	if (rank == NULL)
		return -EINVAL;
	rank->load.events_unread = unread;
	rank->load.event_block_size = block_size;
	rank->load.event_form = block_size == 0 ? KVR_FORM_UNKNOWN
				: eagle		? KVR_FORM_PAIRS
						: KVR_FORM_TOKENS;
	return 0;
}

void kvr_agent_canaries_missed(struct kvr_agent *agent, uint32_t in_a_row)
{
	for (uint32_t i = 0; i < agent->conf.dp_size; i++)
		agent->rank[i].load.canaries_missed =
			(uint8_t)RTE_MIN(in_a_row, (uint32_t)UINT8_MAX);
}

/* Add waiting events that are contiguous in the ring and fit. @return the number of events
 * added. */
static uint16_t put_piece(struct agent_rank *rank, struct kvr_kv_put *put)
{
	const uint8_t *from = (const void *)kvr_agent__kv_at(rank, &rank->to_send);
	const uint64_t at = rank->to_send.at & rank->ring_mask;
	const uint64_t most = RTE_MIN(rank->end - rank->to_send.at, rank->ring_mask + 1 - at);
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
	rank->to_send.at += bytes;
	rank->to_send.id += n;
	return (uint16_t)n;
}

/* Send one frame of waiting events, and advance to_send. */
static void send_frame(struct kvr_agent *agent, struct agent_rank *rank)
{
	const struct kvr_wire_ids ids =
		kvr_link_ids(&agent->link, agent->conf.worker, rank->to_send.id, 0);
	const struct kvr_wire_kv_events head = {.first_event_id = rank->to_send.id,
						.dp_rank = rank->dp_rank};
	struct kvr_kv_put put;

	/* Cannot fail: every event fits an empty frame, see kvr_agent__kv_room(). */
	kvr_kv_put_begin(&put, kvr_link_frame(&agent->link), agent->frame_bytes, &ids, &head);
	while (kvr_agent__kv_waits(rank) && put_piece(rank, &put) > 0)
		continue;
	if (put.n_events > 0) {
		kvr_link_queue(&agent->link, &agent->router, kvr_kv_put_end(&put));
		agent->stats.kv_frames++;
	} else {
		mark_overrun(agent, rank);
	}
}

static void send_waiting(struct kvr_agent *agent, struct agent_rank *rank)
{
	while (kvr_agent__kv_waits(rank) && kvr_agent__kv_in_flight(rank) < AGENT_KV_WINDOW_BYTES)
		send_frame(agent, rank);
	if (kvr_agent__kv_in_flight(rank) > 0)
		kvr_timer_set(&agent->link.timers, &rank->timer,
			      rank->progress_us + rank->backoff_us);
}

void kvr_agent__kv_timer(struct kvr_agent *agent, struct agent_rank *rank)
{
	if (!agent->registered || agent->leaving)
		return; /* WELCOME restarts it */
	if (rank->dumping) {
		kvr_agent__dump_send(agent, rank);
		return;
	}
	if (rank->overrun) {
		kvr_agent__dump_start(agent, rank);
		return;
	}
	if (kvr_agent__kv_in_flight(rank) > 0) {
		if (agent->link.now_us >= rank->progress_us + rank->backoff_us) {
			agent->stats.kv_resent++;
			rank->progress_us = agent->link.now_us;
			rank->backoff_us = RTE_MIN(2 * rank->backoff_us, AGENT_KV_REPEAT_MAX_US);
			rank->to_send = rank->acked;
		}
	} else {
		rank->progress_us = agent->link.now_us;
	}
	send_waiting(agent, rank);
}

/* Advance the acknowledged position; the events stay in the ring for repair. */
static void advance_acked(struct agent_rank *rank, uint64_t next_id)
{
	kvr_agent__kv_seek(rank, &rank->acked, next_id);
	if (rank->to_send.id < next_id)
		rank->to_send = rank->acked;
	rank->confirmed = next_id;
	rank->back_id = UINT64_MAX;
}

/*
 * Return true if a GAP below acknowledged events is to be accepted: it is not a late frame, but the
 * router has lost events, because a late frame of an earlier dump restarted that dump. The router
 * then repeats GAP.
 */
static bool is_step_back(const struct kvr_agent *agent, struct agent_rank *rank, uint64_t id)
{
	if (id != rank->back_id) {
		rank->back_id = id;
		rank->back_us = agent->link.now_us;
	}
	return agent->link.now_us - rank->back_us >= AGENT_KV_STALE_US;
}

/* The router lacks events from @p id on. */
static void handle_gap(struct kvr_agent *agent, struct agent_rank *rank, uint64_t id,
		       uint64_t wait_us)
{
	if (id == rank->gap_id && agent->link.now_us - rank->gap_us < AGENT_KV_REPEAT_US)
		return; /* the router sends one GAP per frame behind the hole */
	if (id < rank->confirmed && !is_step_back(agent, rank, id))
		return; /* older than an acknowledgement */
	rank->back_id = UINT64_MAX;
	if (wait_us == 0)
		rank->confirmed =
			id; /* everything below is applied; BUSY only repeats a known position */
	agent->stats.kv_gaps++;
	rank->gap_id = id;
	rank->gap_us = agent->link.now_us;
	if (id < rank->first.id) {
		rank->overrun = true; /* no longer in the ring */
	} else {
		kvr_agent__kv_rewind(rank, id);
		rank->acked = rank->to_send;
	}
	rank->progress_us = agent->link.now_us + wait_us;
	kvr_timer_set(&agent->link.timers, &rank->timer, rank->progress_us);
}

/* The router needs a dump. */
static void request_dump(struct kvr_agent *agent, struct agent_rank *rank)
{
	rank->overrun = true;
	kvr_agent__kv_kick(agent, rank);
}

void kvr_agent__on_kv_ack(struct kvr_agent *agent, const struct kvr_wire_hdr *h,
			  const uint8_t *body)
{
	const struct kvr_wire_kv_ack *w = (const void *)body;
	struct agent_rank *rank = rank_of(agent, w->dp_rank);

	/* Acknowledgements of another epoch do not apply. KVR_KV_HELLO may come from a router that
	 * has not sent WELCOME yet. */
	if (w->code == KVR_KV_HELLO ? kvr_agent__is_former(agent, h->epoch)
				    : h->epoch != agent->router_epoch) {
		agent->stats.frames_foreign++;
		return;
	}
	if (rank != NULL && w->code == KVR_KV_HELLO) {
		kvr_agent__restart_hello(agent);
		return;
	}
	if (rank == NULL) {
		agent->stats.frames_bad++;
		return;
	}
	if (rank->dumping && h->id == rank->dump_id)
		kvr_agent__dump_ack(agent, rank, w);
	if (rank->dumping || rank->overrun || h->id > AGENT_DUMP_ID)
		return; /* live events wait, or it belongs to a previous dump */
	/* The router has more events than exist, from a previous process with the same epoch, or
	 * waits for the rest of a dump that is gone. */
	if (w->next_event_id > rank->next_id || w->next_dump_pos > 0) {
		request_dump(agent, rank);
		return;
	}
	switch (w->code) {
	case KVR_KV_DUMP_WANTED:
		request_dump(agent, rank);
		break;
	case KVR_KV_GAP:
		handle_gap(agent, rank, w->next_event_id, 0);
		break;
	case KVR_KV_BUSY:
		/* A router with a full queue reports 0, which must not move back. */
		handle_gap(agent, rank, RTE_MAX(w->next_event_id, rank->acked.id),
			   AGENT_KV_BUSY_US);
		break;
	default:
		if (w->next_event_id <= rank->acked.id) {
			/* Overtaken by a later one, or from before WELCOME. */
			rank->confirmed = RTE_MAX(rank->confirmed, w->next_event_id);
			break;
		}
		advance_acked(rank, w->next_event_id);
		rank->progress_us = agent->link.now_us;
		rank->backoff_us = AGENT_KV_REPEAT_US;
		if (kvr_agent__kv_in_flight(rank) == 0)
			kvr_timer_stop(&agent->link.timers, &rank->timer);
		if (kvr_agent__kv_waits(rank) || kvr_agent__kv_in_flight(rank) > 0)
			send_waiting(agent, rank);
	}
}
