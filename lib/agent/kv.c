/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent_pvt.h"
#include "kvr_sim.h"

#include <errno.h>
#include <stdlib.h>

#include <rte_common.h>

static uint64_t size_of(const struct agent_event *e)
{
	return sizeof(*e) + e->n * 8ull;
}

/* What the event takes of a frame. */
static uint64_t wire_size(const struct agent_event *e)
{
	return sizeof(struct kvr_wire_kv_event) + e->n * 8ull;
}

uint32_t kvr_agent__kv_room(const struct kvr_agent *a)
{
	return (a->frame_bytes - KVR_WIRE_MIN_FRAME - (uint32_t)sizeof(struct kvr_wire_kv_events) -
		(uint32_t)sizeof(struct kvr_wire_kv_event)) /
	       8;
}

/* Unacknowledged events do not fit the memory allowed: only a dump can help now. */
static void overrun(struct kvr_agent *a, struct agent_rank *k)
{
	KVR_SIM_SOMETIMES(AGENT_OVERRUN);
	if (!k->overrun)
		a->stats.kv_overruns++;
	k->overrun = true;
	kvr_agent__kv_drop(k);
}

/* Make room by forgetting acknowledged events, oldest first. */
static void make_room(struct kvr_agent *a, struct agent_rank *k, uint64_t bytes)
{
	struct agent_event *e;

	while (k->bytes + bytes > a->conf.kv_ring_bytes && (e = TAILQ_FIRST(&k->events)) != NULL) {
		if (e->id >= k->acked) {
			overrun(a, k);
			return;
		}
		TAILQ_REMOVE(&k->events, e, link);
		k->bytes -= size_of(e);
		free(e);
	}
}

static int append(struct kvr_agent *a, struct agent_rank *k, uint8_t type,
		  const struct kvr_agent_kv *kv)
{
	struct agent_event *e;

	a->stats.kv_events++;
	make_room(a, k, sizeof(*e) + kv->n * 8ull);
	if (k->overrun) {
		k->next_id++; /* the dump will tell what it was about */
		return 0;
	}
	e = malloc(sizeof(*e) + kv->n * 8ul);
	if (e == NULL) {
		overrun(a, k);
		k->next_id++;
		return 0;
	}
	*e = (struct agent_event){.id = k->next_id++,
				  .parent = kv->has_parent ? kv->parent : 0,
				  .n = kv->n,
				  .type = type,
				  .tier = (uint8_t)kv->tier,
				  .has_parent = kv->has_parent};
	if (kv->n > 0)
		memcpy(e->hashes, kv->hashes, kv->n * 8ul);
	TAILQ_INSERT_TAIL(&k->events, e, link);
	k->bytes += size_of(e);
	if (k->to_send == NULL && !k->dumping)
		k->to_send = e;
	return 0;
}

static struct agent_rank *rank_of(struct kvr_agent *a, uint32_t dp_rank)
{
	return dp_rank - a->conf.dp_start < a->conf.dp_size ? &a->rank[dp_rank - a->conf.dp_start]
							    : NULL;
}

/* Cut into events that fit a frame; a later piece continues the one before it. */
static int publish(struct kvr_agent *a, uint32_t dp_rank, uint8_t type,
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
		append(a, k, type, &piece);
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
	return kv->n > 0 ? publish(a, dp_rank, KVR_KV_STORED, kv) : -EINVAL;
}

int kvr_agent_kv_removed(struct kvr_agent *a, uint32_t dp_rank, const struct kvr_agent_kv *kv)
{
	struct kvr_agent_kv no_parent = *kv;

	no_parent.has_parent = false;
	return kv->n > 0 ? publish(a, dp_rank, KVR_KV_REMOVED, &no_parent) : -EINVAL;
}

int kvr_agent_kv_cleared(struct kvr_agent *a, uint32_t dp_rank)
{
	static const struct kvr_agent_kv nothing;

	return publish(a, dp_rank, KVR_KV_CLEARED, &nothing);
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

/* One frame of the events that wait; moves to_send past them. */
static void send_frame(struct kvr_agent *a, struct agent_rank *k)
{
	const struct kvr_wire_ids ids = kvr_link_ids(&a->link, a->conf.worker, k->to_send->id, 0);
	const struct kvr_wire_kv_events head = {.first_event_id = k->to_send->id,
						.dp_rank = k->dp_rank};
	struct kvr_kv_put put;

	/* Cannot fail: every event fits an empty frame, see kvr_agent__kv_room(). */
	kvr_kv_put_begin(&put, kvr_link_frame(&a->link), a->frame_bytes, &ids, &head);
	while (k->to_send != NULL) {
		const struct agent_event *e = k->to_send;

		if (kvr_kv_put_event(&put, e->type, e->tier, e->has_parent ? &e->parent : NULL,
				     e->hashes, e->n) < 0)
			break;
		k->in_flight += wire_size(e);
		k->to_send = TAILQ_NEXT(e, link);
	}
	if (put.n_events > 0) {
		kvr_link_queue(&a->link, &a->router, kvr_kv_put_end(&put));
		a->stats.kv_frames++;
	} else {
		overrun(a, k);
	}
}

static void send_waiting(struct kvr_agent *a, struct agent_rank *k)
{
	while (k->to_send != NULL && k->in_flight < AGENT_KV_WINDOW_BYTES)
		send_frame(a, k);
	if (k->in_flight > 0)
		kvr_timer_set(&a->link.timers, &k->timer, k->progress_us + k->backoff_us);
}

void kvr_agent__kv_timer(struct kvr_agent *a, struct agent_rank *k)
{
	if (!a->registered || a->leaving)
		return; /* WELCOME starts it again */
	if (k->dumping) {
		kvr_agent__dump_send(a, k);
		return;
	}
	if (k->overrun) {
		kvr_agent__dump_start(a, k);
		return;
	}
	if (k->in_flight > 0) {
		if (a->link.now_us >= k->progress_us + k->backoff_us) {
			a->stats.kv_resent++;
			k->progress_us = a->link.now_us;
			k->backoff_us = RTE_MIN(2 * k->backoff_us, AGENT_KV_REPEAT_MAX_US);
			kvr_agent__kv_rewind(k, k->acked);
		}
	} else {
		k->progress_us = a->link.now_us;
	}
	send_waiting(a, k);
}

/* What was acknowledged stays in the list for repair: only what is under way is walked. */
static void advance(struct agent_rank *k, uint64_t next_id)
{
	struct agent_event *e = k->to_send != NULL ? TAILQ_PREV(k->to_send, agent_events, link)
						   : TAILQ_LAST(&k->events, agent_events);

	k->in_flight = 0;
	for (; e != NULL && e->id >= next_id; e = TAILQ_PREV(e, agent_events, link))
		k->in_flight += wire_size(e);
	if (k->to_send != NULL && k->to_send->id < next_id)
		kvr_agent__kv_rewind(k, next_id);
	k->acked = k->confirmed = next_id;
}

/* The router misses events from @p id on. */
static void gap(struct kvr_agent *a, struct agent_rank *k, uint64_t id, uint64_t wait_us)
{
	const struct agent_event *first = TAILQ_FIRST(&k->events);

	if (id == k->gap_id && a->link.now_us - k->gap_us < AGENT_KV_REPEAT_US)
		return; /* said once for every frame after the hole */
	if (id < k->confirmed)
		return; /* overtaken by what made progress */
	if (wait_us == 0)
		k->confirmed = id; /* all below is applied; BUSY may only repeat what we think */
	a->stats.kv_gaps++;
	k->gap_id = id;
	k->gap_us = a->link.now_us;
	if (id < k->next_id && (first == NULL || first->id > id)) {
		k->overrun = true; /* no longer known */
	} else {
		kvr_agent__kv_rewind(k, id);
		k->acked = id;
	}
	k->progress_us = a->link.now_us + wait_us;
	kvr_timer_set(&a->link.timers, &k->timer, k->progress_us);
}

/* The router wants everything told anew. */
static void want_dump(struct kvr_agent *a, struct agent_rank *k)
{
	k->overrun = true;
	kvr_agent__kv_kick(a, k);
}

void kvr_agent__on_kv_ack(struct kvr_agent *a, const struct kvr_wire_hdr *h, const uint8_t *body)
{
	const struct kvr_wire_kv_ack *w = (const void *)body;
	struct agent_rank *k = rank_of(a, w->dp_rank);

	if (k != NULL && w->code == KVR_KV_HELLO) {
		kvr_agent__say_hello(a);
		return;
	}
	if (k == NULL) {
		a->stats.frames_bad++;
		return;
	}
	if (k->dumping && h->id == k->dump_id)
		kvr_agent__dump_ack(a, k, w);
	if (k->dumping || k->overrun || h->id > AGENT_DUMP_ID)
		return; /* live events wait, or this is of a dump that is over */
	/* More than there is: it has the events of a process before this one with the same epoch.
	 */
	if (w->next_event_id > k->next_id) {
		want_dump(a, k);
		return;
	}
	if (w->next_dump_pos > 0) { /* it waits for the rest of a dump that we no longer have */
		want_dump(a, k);
		return;
	}
	switch (w->code) {
	case KVR_KV_DUMP_WANTED:
		want_dump(a, k);
		break;
	case KVR_KV_GAP:
		gap(a, k, w->next_event_id, 0);
		break;
	case KVR_KV_BUSY:
		/* Of a full queue it is 0: that takes back nothing. */
		gap(a, k, RTE_MAX(w->next_event_id, k->acked), AGENT_KV_BUSY_US);
		break;
	default:
		if (w->next_event_id <= k->acked) {
			/* Overtaken by a later one, or said of what it knew before WELCOME. */
			k->confirmed = RTE_MAX(k->confirmed, w->next_event_id);
			break;
		}
		advance(k, w->next_event_id);
		k->progress_us = a->link.now_us;
		k->backoff_us = AGENT_KV_REPEAT_US;
		if (k->in_flight == 0)
			kvr_timer_stop(&a->link.timers, &k->timer);
		if (k->to_send != NULL || k->in_flight > 0)
			send_waiting(a, k);
	}
}
