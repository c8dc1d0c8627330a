/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The application lists a dump in one go, so that it reflects one moment: the state before event
 * dump_resume. The encoded frames are kept until the router has acknowledged all of them. Later
 * events are appended to the ring and sent afterwards.
 *
 * All frames of a dump have the same header id, and no other frame has it. So late frames of
 * another dump cannot be mistaken for part of this one, and an acknowledgement, which repeats the
 * id, identifies its dump.
 */
#include "agent_pvt.h"
#include "kvr_sim.h"

#include <stdlib.h>

#include <rte_common.h>

#define DUMP_GROW 64

void kvr_agent__dump_drop(struct agent_rank *rank)
{
	for (uint32_t i = 0; i < rank->dump_n; i++)
		free(rank->dump[i].data);
	free(rank->dump);
	rank->dump = NULL;
	rank->dump_n = rank->dump_acked = rank->dump_sent = 0;
	rank->dumping = false;
}

/* Finish the frame in @p put and keep it. @return false: no memory. */
static bool keep_frame(struct agent_rank *rank, struct kvr_kv_put *put)
{
	struct agent_dump_frame *f;

	if (rank->dump_n % DUMP_GROW == 0) {
		f = realloc(rank->dump, (rank->dump_n + DUMP_GROW) * sizeof(*f));
		if (f == NULL)
			return false;
		rank->dump = f;
	}
	f = &rank->dump[rank->dump_n];
	f->len = kvr_kv_put_end(put);
	f->data = malloc((size_t)f->len);
	if (f->data == NULL)
		return false;
	memcpy(f->data, put->p, (size_t)f->len);
	rank->dump_n++;
	return true;
}

static void begin_frame(struct kvr_agent *agent, struct agent_rank *rank, struct kvr_kv_put *put,
			uint8_t *buf)
{
	const struct kvr_wire_ids ids =
		kvr_link_ids(&agent->link, agent->conf.worker, rank->dump_id, 0);
	const struct kvr_wire_kv_events head = {
		.first_event_id = rank->dump_n,
		.dp_rank = rank->dp_rank,
		.flags = KVR_KV_F_DUMP | (rank->dump_n == 0 ? KVR_KV_F_DUMP_BEGIN : 0)};

	kvr_kv_put_begin(put, buf, agent->frame_bytes, &ids, &head);
}

/* Add blocks, starting new frames as needed. @return false: no memory. */
static bool add_blocks(struct kvr_agent *agent, struct agent_rank *rank, struct kvr_kv_put *put,
		       const struct kvr_agent_kv *kv)
{
	const uint64_t *parent = kv->has_parent ? &kv->parent : NULL;
	uint8_t *buf = put->p;

	for (uint32_t off = 0; off < kv->n;) {
		const uint32_t n = RTE_MIN(kvr_kv_put_room(put), kv->n - off);

		if (n == 0) {
			if (!keep_frame(rank, put))
				return false;
			begin_frame(agent, rank, put, buf);
			continue;
		}
		kvr_kv_put_event(put, KVR_KV_STORED, (uint8_t)kv->tier, parent, kv->hashes + off,
				 n);
		off += n;
		parent = &kv->hashes[off - 1];
	}
	return true;
}

/* List all blocks of the application and encode them. @return false: no memory. */
static bool build_dump(struct kvr_agent *agent, struct agent_rank *rank)
{
	struct kvr_agent_kv kv = {0};
	uint8_t buf[KVR_WIRE_MAX_FRAME];
	struct kvr_wire_kv_events *head;
	struct kvr_kv_put put;

	begin_frame(agent, rank, &put, buf);
	for (uint64_t pos = 0; agent->conf.ops->on_dump != NULL; pos++) {
		kv = (struct kvr_agent_kv){0};
		if (agent->conf.ops->on_dump(agent, rank->dp_rank, pos, &kv, agent->conf.user) <= 0)
			break;
		if (!add_blocks(agent, rank, &put, &kv))
			return false;
	}
	head = (void *)(buf + KVR_WIRE_MIN_FRAME);
	head->flags |= KVR_KV_F_DUMP_END;
	head->resume_event_id = rank->dump_resume;
	return keep_frame(rank, &put);
}

void kvr_agent__dump_start(struct kvr_agent *agent, struct agent_rank *rank)
{
	kvr_agent__dump_drop(rank);
	kvr_agent__kv_drop(rank); /* the dump includes all previous events */
	rank->overrun = false;
	rank->dumping = true;
	rank->dump_id++;
	rank->dump_resume = rank->next_id;
	if (!build_dump(agent, rank)) {
		kvr_agent__dump_drop(rank);
		rank->overrun = true; /* retry when memory is available */
		kvr_timer_set(&agent->link.timers, &rank->timer,
			      agent->link.now_us + AGENT_REPEAT_MAX_US);
		return;
	}
	KVR_SIM_SOMETIMES(AGENT_DUMP);
	agent->stats.kv_dumps++;
	rank->progress_us = rank->dump_us = agent->link.now_us;
	rank->backoff_us = AGENT_KV_REPEAT_US;
	kvr_agent__dump_send(agent, rank);
}

void kvr_agent__dump_send(struct kvr_agent *agent, struct agent_rank *rank)
{
	const uint32_t end = RTE_MIN(rank->dump_n, rank->dump_acked + AGENT_DUMP_WINDOW);

	if (rank->overrun) { /* events were lost meanwhile: the dump would not connect to the next
			     event */
		kvr_agent__dump_start(agent, rank);
		return;
	}
	if (agent->link.now_us >=
	    rank->progress_us + rank->backoff_us) { /* from the first unacknowledged frame on */
		KVR_SIM_SOMETIMES(AGENT_DUMP_AGAIN);
		agent->stats.kv_resent++;
		rank->dump_sent = rank->dump_acked;
		rank->progress_us = agent->link.now_us;
		rank->backoff_us = RTE_MIN(2 * rank->backoff_us, AGENT_KV_REPEAT_MAX_US);
	}
	for (; rank->dump_sent < end; rank->dump_sent++) {
		const struct agent_dump_frame *f = &rank->dump[rank->dump_sent];

		memcpy(kvr_link_frame(&agent->link), f->data, (size_t)f->len);
		kvr_link_queue(&agent->link, &agent->router, f->len);
		agent->stats.kv_frames++;
	}
	kvr_timer_set(&agent->link.timers, &rank->timer, rank->progress_us + rank->backoff_us);
}

static void finish_dump(struct kvr_agent *agent, struct agent_rank *rank)
{
	kvr_agent__dump_drop(rank);
	kvr_timer_stop(&agent->link.timers, &rank->timer);
	rank->confirmed = rank->dump_resume;
	rank->to_send = rank->acked;
	kvr_agent__kv_kick(agent, rank);
}

void kvr_agent__dump_ack(struct kvr_agent *agent, struct agent_rank *rank,
			 const struct kvr_wire_kv_ack *w)
{
	if (w->next_dump_pos > rank->dump_acked && w->next_dump_pos <= rank->dump_n) {
		rank->dump_acked = (uint32_t)w->next_dump_pos;
		rank->dump_sent = RTE_MAX(rank->dump_sent, rank->dump_acked);
		rank->progress_us = rank->dump_us = agent->link.now_us;
		rank->backoff_us = AGENT_KV_REPEAT_US;
		if (rank->dump_acked == rank->dump_n)
			finish_dump(agent, rank);
		else if (rank->dump_sent < rank->dump_n)
			kvr_agent__dump_send(agent, rank);
	} else if (w->code == KVR_KV_BUSY) {
		rank->backoff_us = AGENT_KV_REPEAT_US; /* the timer retransmits */
	} else if (w->next_dump_pos < rank->dump_acked &&
		   agent->link.now_us >= rank->dump_us + AGENT_KV_STALE_US) {
		rank->dump_acked = rank->dump_sent =
			(uint32_t)w->next_dump_pos; /* the router lost its position */
		rank->dump_us = agent->link.now_us;
		kvr_agent__dump_send(agent, rank);
	}
}
