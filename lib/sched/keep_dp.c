/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The stored overlap of a waiting request: a list of (rank, tiers) for the ranks that have any. An
 * entry is ignored on recall if its rank index has a new owner.
 */
#include "sched_pvt.h"

static uint32_t chunk_take(struct kvr_sched *s)
{
	uint32_t c = s->chunk_free;

	if (c != NIL) {
		s->chunk_free = s->chunk[c].next;
	} else if (s->chunk_fresh < s->chunk_max) {
		c = s->chunk_fresh++;
	} else {
		return NIL;
	}
	s->chunk[c].next = NIL;
	s->chunk[c].n = 0;
	return c;
}

void kvr_sched__unkeep(struct kvr_sched *s, uint32_t slot)
{
	while (s->node[slot].kept != NIL) {
		uint32_t c = s->node[slot].kept;

		s->node[slot].kept = s->chunk[c].next;
		s->chunk[c].next = s->chunk_free;
		s->chunk_free = c;
	}
}

void kvr_sched__keep(struct kvr_sched *s, uint32_t slot, const struct kvr_sched_overlap *ov)
{
	const uint32_t *tier[TIERS];
	struct node *n = &s->node[slot];

	n->kept = NIL;
	n->lost = false;
	if (ov == NULL)
		return;
	tier[0] = ov->device ? ov->device : s->zeros;
	tier[1] = ov->host ? ov->host : s->zeros;
	tier[2] = ov->disk ? ov->disk : s->zeros;
	tier[3] = ov->external ? ov->external : s->zeros;
	for (uint32_t i = 0; i < s->n_ranks; i++) {
		uint32_t r = s->order[i], c = n->kept;

		/* A rank of a new incarnation has an empty cache, even if the table is not cleared
		 * yet. */
		if ((tier[0][r] | tier[1][r] | tier[2][r] | tier[3][r]) == 0 || test_bit(s->due, r))
			continue;
		if (c == NIL || s->chunk[c].n == CHUNK_RANKS) {
			c = chunk_take(s);
			if (c == NIL) {
				kvr_sched__unkeep(s, slot);
				n->lost = true;
				kvr_cell_add(&s->cnt.overlap_not_kept, 1);
				return;
			}
			s->chunk[c].next = n->kept;
			n->kept = c;
		}
		s->chunk[c].e[s->chunk[c].n].rank = r;
		s->chunk[c].e[s->chunk[c].n].gen = s->rank[r].gen;
		for (uint32_t t = 0; t < TIERS; t++)
			s->chunk[c].e[s->chunk[c].n].tier[t] = tier[t][r];
		s->chunk[c].n++;
	}
}

void kvr_sched__recall(struct kvr_sched *s, uint32_t slot, struct kvr_sched_overlap *ov)
{
	uint32_t any[TIERS] = {0};

	for (uint32_t c = s->node[slot].kept; c != NIL; c = s->chunk[c].next)
		for (uint32_t i = 0; i < s->chunk[c].n; i++) {
			uint32_t r = s->chunk[c].e[i].rank;

			if (s->rank[r].gen != s->chunk[c].e[i].gen)
				continue;
			for (uint32_t t = 0; t < TIERS; t++) {
				s->saved[t][r] = s->chunk[c].e[i].tier[t];
				any[t] |= s->saved[t][r];
			}
		}
	ov->device = s->saved[0];
	ov->host = any[1] ? s->saved[1] : NULL;
	ov->disk = any[2] ? s->saved[2] : NULL;
	ov->external = any[3] ? s->saved[3] : NULL;
}

/* Zero the expanded arrays again. */
void kvr_sched__recall_end(struct kvr_sched *s, uint32_t slot)
{
	for (uint32_t c = s->node[slot].kept; c != NIL; c = s->chunk[c].next)
		for (uint32_t i = 0; i < s->chunk[c].n; i++)
			for (uint32_t t = 0; t < TIERS; t++)
				s->saved[t][s->chunk[c].e[i].rank] = 0;
}
