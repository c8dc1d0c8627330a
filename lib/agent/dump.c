/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent_pvt.h"
#include "kvr_sim.h"

#include <stdlib.h>

#include <rte_common.h>

/*
 * The application lists a dump in one go, so that it reflects one moment: the state before event
 * dump_resume. The encoded frames are kept until the router has acknowledged all of them. Later
 * events are appended to the ring and sent afterwards.
 *
 * All frames of a dump have the same header id, and no other frame has it. So late frames of
 * another dump cannot be mistaken for part of this one, and an acknowledgement, which repeats the
 * id, identifies its dump.
 */

#define DUMP_GROW 64

void kvr_agent__dump_drop(struct agent_rank *k)
{
	for (uint32_t i = 0; i < k->dump_n; i++)
		free(k->dump[i].data);
	free(k->dump);
	k->dump = NULL;
	k->dump_n = k->dump_acked = k->dump_sent = 0;
	k->dumping = false;
}

/* Finish the frame in @p put and keep it. @return false: no memory. */
static bool keep_frame(struct agent_rank *k, struct kvr_kv_put *put)
{
	struct agent_dump_frame *f;

	if (k->dump_n % DUMP_GROW == 0) {
		f = realloc(k->dump, (k->dump_n + DUMP_GROW) * sizeof(*f));
		if (f == NULL)
			return false;
		k->dump = f;
	}
	f = &k->dump[k->dump_n];
	f->len = kvr_kv_put_end(put);
	f->data = malloc((size_t)f->len);
	if (f->data == NULL)
		return false;
	memcpy(f->data, put->p, (size_t)f->len);
	k->dump_n++;
	return true;
}

static void begin_frame(struct kvr_agent *a, struct agent_rank *k, struct kvr_kv_put *put,
			uint8_t *buf)
{
	const struct kvr_wire_ids ids = kvr_link_ids(&a->link, a->conf.worker, k->dump_id, 0);
	const struct kvr_wire_kv_events head = {
		.first_event_id = k->dump_n,
		.dp_rank = k->dp_rank,
		.flags = KVR_KV_F_DUMP | (k->dump_n == 0 ? KVR_KV_F_DUMP_BEGIN : 0)};

	kvr_kv_put_begin(put, buf, a->frame_bytes, &ids, &head);
}

/* Add blocks, starting new frames as needed. @return false: no memory. */
static bool add_blocks(struct kvr_agent *a, struct agent_rank *k, struct kvr_kv_put *put,
		       const struct kvr_agent_kv *kv)
{
	const uint64_t *parent = kv->has_parent ? &kv->parent : NULL;
	uint8_t *buf = put->p;

	for (uint32_t off = 0; off < kv->n;) {
		const uint32_t n = RTE_MIN(kvr_kv_put_room(put), kv->n - off);

		if (n == 0) {
			if (!keep_frame(k, put))
				return false;
			begin_frame(a, k, put, buf);
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
static bool build_dump(struct kvr_agent *a, struct agent_rank *k)
{
	struct kvr_agent_kv kv = {0};
	uint8_t buf[KVR_WIRE_MAX_FRAME];
	struct kvr_wire_kv_events *head;
	struct kvr_kv_put put;

	begin_frame(a, k, &put, buf);
	for (uint64_t pos = 0; a->conf.ops->on_dump != NULL; pos++) {
		kv = (struct kvr_agent_kv){0};
		if (a->conf.ops->on_dump(a, k->dp_rank, pos, &kv, a->conf.user) <= 0)
			break;
		if (!add_blocks(a, k, &put, &kv))
			return false;
	}
	head = (void *)(buf + KVR_WIRE_MIN_FRAME);
	head->flags |= KVR_KV_F_DUMP_END;
	head->resume_event_id = k->dump_resume;
	return keep_frame(k, &put);
}

void kvr_agent__dump_start(struct kvr_agent *a, struct agent_rank *k)
{
	kvr_agent__dump_drop(k);
	kvr_agent__kv_drop(k); /* the dump includes all previous events */
	k->overrun = false;
	k->dumping = true;
	k->dump_id++;
	k->dump_resume = k->next_id;
	if (!build_dump(a, k)) {
		kvr_agent__dump_drop(k);
		k->overrun = true; /* retry when memory is available */
		kvr_timer_set(&a->link.timers, &k->timer, a->link.now_us + AGENT_REPEAT_MAX_US);
		return;
	}
	KVR_SIM_SOMETIMES(AGENT_DUMP);
	a->stats.kv_dumps++;
	k->progress_us = k->dump_us = a->link.now_us;
	k->backoff_us = AGENT_KV_REPEAT_US;
	kvr_agent__dump_send(a, k);
}

void kvr_agent__dump_send(struct kvr_agent *a, struct agent_rank *k)
{
	const uint32_t end = RTE_MIN(k->dump_n, k->dump_acked + AGENT_DUMP_WINDOW);

	if (k->overrun) { /* events were lost meanwhile: the dump would not connect to the next
			     event */
		kvr_agent__dump_start(a, k);
		return;
	}
	if (a->link.now_us >=
	    k->progress_us + k->backoff_us) { /* from the first unacknowledged frame on */
		KVR_SIM_SOMETIMES(AGENT_DUMP_AGAIN);
		a->stats.kv_resent++;
		k->dump_sent = k->dump_acked;
		k->progress_us = a->link.now_us;
		k->backoff_us = RTE_MIN(2 * k->backoff_us, AGENT_KV_REPEAT_MAX_US);
	}
	for (; k->dump_sent < end; k->dump_sent++) {
		const struct agent_dump_frame *f = &k->dump[k->dump_sent];

		memcpy(kvr_link_frame(&a->link), f->data, (size_t)f->len);
		kvr_link_queue(&a->link, &a->router, f->len);
		a->stats.kv_frames++;
	}
	kvr_timer_set(&a->link.timers, &k->timer, k->progress_us + k->backoff_us);
}

static void finish_dump(struct kvr_agent *a, struct agent_rank *k)
{
	kvr_agent__dump_drop(k);
	kvr_timer_stop(&a->link.timers, &k->timer);
	k->confirmed = k->dump_resume;
	k->to_send = k->acked;
	kvr_agent__kv_kick(a, k);
}

void kvr_agent__dump_ack(struct kvr_agent *a, struct agent_rank *k, const struct kvr_wire_kv_ack *w)
{
	if (w->next_dump_pos > k->dump_acked && w->next_dump_pos <= k->dump_n) {
		k->dump_acked = (uint32_t)w->next_dump_pos;
		k->dump_sent = RTE_MAX(k->dump_sent, k->dump_acked);
		k->progress_us = k->dump_us = a->link.now_us;
		k->backoff_us = AGENT_KV_REPEAT_US;
		if (k->dump_acked == k->dump_n)
			finish_dump(a, k);
		else if (k->dump_sent < k->dump_n)
			kvr_agent__dump_send(a, k);
	} else if (w->code == KVR_KV_BUSY) {
		k->backoff_us = AGENT_KV_REPEAT_US; /* the timer retransmits */
	} else if (w->next_dump_pos < k->dump_acked &&
		   a->link.now_us >= k->dump_us + AGENT_KV_STALE_US) {
		k->dump_acked = k->dump_sent =
			(uint32_t)w->next_dump_pos; /* the router lost its position */
		k->dump_us = a->link.now_us;
		kvr_agent__dump_send(a, k);
	}
}
