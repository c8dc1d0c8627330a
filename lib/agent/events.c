/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ring of a rank's events, used by live events (kv.c) and dumps (dump.c):
 *
 *	  first        acked     to_send    end
 *	....[E][EE][EEE][E][EEEEE][E][EE][E]..........0
 *
 * Each event is encoded as on the wire, contiguously. If one does not fit before the ring's end, a
 * byte 0, which is no event type, marks that it continues at the beginning.
 */
#include "agent_pvt.h"
#include "kvr_prefetch.h"

#include <stdlib.h>

#define AHEAD 4096u /* bytes to prefetch: the ring exceeds the CPU caches */

const struct kvr_wire_kv_event *kvr_agent__kv_at(const struct agent_rank *k, struct agent_place *p)
{
	if (k->ring[p->at & k->ring_mask] == 0)
		p->at = (p->at | k->ring_mask) + 1;
	return (const void *)(k->ring + (p->at & k->ring_mask));
}

void kvr_agent__kv_seek(const struct agent_rank *k, struct agent_place *p, uint64_t id)
{
	while (p->id < id && p->at != k->end) {
		p->at += kvr_agent__kv_size(kvr_agent__kv_at(k, p));
		p->id++;
	}
}

void kvr_agent__kv_drop(struct agent_rank *k)
{
	k->first = k->acked = k->to_send = (struct agent_place){k->next_id, k->end};
}

struct kvr_wire_kv_event *kvr_agent__kv_room_for(struct agent_rank *k, uint32_t bytes)
{
	const uint64_t size = k->ring_mask + 1, at = k->end & k->ring_mask;
	const uint64_t skip = at + bytes > size ? size - at : 0;

	while (k->end + skip + bytes - k->first.at > size) {
		if (k->first.id >= k->acked.id)
			return NULL;
		kvr_agent__kv_seek(k, &k->first, k->first.id + 1);
	}
	if (skip > 0)
		k->ring[at] = 0;
	for (uint32_t i = 0; i < bytes; i += 64)
		kvr_prefetch(k->ring + ((at + AHEAD + i) & k->ring_mask));
	return (void *)(k->ring + ((k->end + skip) & k->ring_mask));
}

void kvr_agent__kv_added(struct agent_rank *k, const struct kvr_wire_kv_event *e)
{
	const uint64_t at = (uint64_t)((const uint8_t *)e - k->ring);

	if (at != (k->end & k->ring_mask))
		k->end = (k->end | k->ring_mask) + 1;
	k->end += kvr_agent__kv_size(e);
	k->next_id++;
}

void kvr_agent__kv_kick(struct kvr_agent *a, struct agent_rank *k)
{
	/* By the timer, so that one frame takes the events of several calls. */
	if (a->registered && (kvr_agent__kv_waits(k) || k->overrun || k->dumping))
		kvr_timer_set(&a->link.timers, &k->timer, a->link.now_us);
}

void kvr_agent__kv_rewind(struct agent_rank *k, uint64_t id)
{
	k->to_send = id >= k->acked.id ? k->acked : k->first;
	kvr_agent__kv_seek(k, &k->to_send, id);
}
