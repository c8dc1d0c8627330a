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

const struct kvr_wire_kv_event *kvr_agent__kv_at(const struct agent_rank *rank,
						 struct agent_place *p)
{
	if (rank->ring[p->at & rank->ring_mask] == 0)
		p->at = (p->at | rank->ring_mask) + 1;
	return (const void *)(rank->ring + (p->at & rank->ring_mask));
}

void kvr_agent__kv_seek(const struct agent_rank *rank, struct agent_place *p, uint64_t id)
{
	while (p->id < id && p->at != rank->end) {
		p->at += kvr_agent__kv_size(kvr_agent__kv_at(rank, p));
		p->id++;
	}
}

void kvr_agent__kv_drop(struct agent_rank *rank)
{
	rank->first = rank->acked = rank->to_send = (struct agent_place){rank->next_id, rank->end};
}

struct kvr_wire_kv_event *kvr_agent__kv_room_for(struct agent_rank *rank, uint32_t bytes)
{
	const uint64_t size = rank->ring_mask + 1, at = rank->end & rank->ring_mask;
	const uint64_t skip = at + bytes > size ? size - at : 0;

	while (rank->end + skip + bytes - rank->first.at > size) {
		if (rank->first.id >= rank->acked.id)
			return NULL;
		kvr_agent__kv_seek(rank, &rank->first, rank->first.id + 1);
	}
	if (skip > 0)
		rank->ring[at] = 0;
	for (uint32_t i = 0; i < bytes; i += 64)
		kvr_prefetch(rank->ring + ((at + AHEAD + i) & rank->ring_mask));
	return (void *)(rank->ring + ((rank->end + skip) & rank->ring_mask));
}

void kvr_agent__kv_added(struct agent_rank *rank, const struct kvr_wire_kv_event *e)
{
	const uint64_t at = (uint64_t)((const uint8_t *)e - rank->ring);

	if (at != (rank->end & rank->ring_mask))
		rank->end = (rank->end | rank->ring_mask) + 1;
	rank->end += kvr_agent__kv_size(e);
	rank->next_id++;
}

void kvr_agent__kv_kick(struct kvr_agent *agent, struct agent_rank *rank)
{
	/* By the timer, so that one frame takes the events of several calls. */
	if (agent->registered && (kvr_agent__kv_waits(rank) || rank->overrun || rank->dumping))
		kvr_timer_set(&agent->link.timers, &rank->timer, agent->link.now_us);
}

void kvr_agent__kv_rewind(struct agent_rank *rank, uint64_t id)
{
	rank->to_send = id >= rank->acked.id ? rank->acked : rank->first;
	kvr_agent__kv_seek(rank, &rank->to_send, id);
}
