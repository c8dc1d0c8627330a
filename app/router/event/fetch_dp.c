/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Prefetch of the prefix table for waiting event frames. Applying them is mostly cache misses, and
 * a worker sends several frames about one request at once.
 */
#include "event/event.h"

#include <rte_ring_peek.h>

#include "kvr_frame.h"
#include "kvr_message.h"

#define NOTES  8u
#define BLOCKS 1024u /* no further frame above this number of blocks */

/* Append the frame's events to the @p n of @p e. @return new number. */
static uint32_t add_frame(const struct event_msg *note, struct kvr_prefix_event e[], uint32_t n,
			  uint32_t *blocks)
{
	const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(note->m, const struct kvr_wire_hdr *);
	struct kvr_kv_iter it = kvr_kv_events_begin(kvr_frame_body(hdr));
	struct kvr_kv_event ev;

	while (n < KVR_PREFIX_FETCH && kvr_kv_events_next(&it, &ev)) {
		const bool store = ev.type == KVR_KV_STORED;

		if (ev.type == KVR_KV_CLEARED)
			continue;
		e[n++] = (struct kvr_prefix_event){
			.op = store ? KVR_PREFIX_STORE : KVR_PREFIX_REMOVE,
			.tier = ev.tier,
			.has_parent = store && (ev.flags & KVR_KV_EV_F_PARENT) != 0,
			.rank = (uint16_t)note->rank,
			.n = ev.n_blocks,
			.parent = ev.parent,
			.sh = ev.hashes,
		};
		*blocks += ev.n_blocks;
	}
	return n;
}

void event_fetch(struct pool *pool)
{
	struct kvr_prefix_event e[KVR_PREFIX_FETCH];
	struct event_msg note[NOTES];
	uint32_t n = 0, i = 0, blocks = 0, got;

	got = rte_ring_dequeue_burst_elem_start(pool->events, note, sizeof(note[0]), NOTES, NULL);
	rte_ring_dequeue_elem_finish(pool->events, 0); /* leave the messages in the ring */
	for (; i < got && blocks < BLOCKS && n < KVR_PREFIX_FETCH; i++)
		if (note[i].m != NULL && pool->events_used)
			n = add_frame(&note[i], e, n, &blocks);
	kvr_prefix_fetch(pool->prefix, e, n);
	pool->event.fetched = i;
}
