/* SPDX-License-Identifier: BSD-3-Clause */
/* Look-up of workers, ranks and taints, and the set of ready ranks. */
#include "sched_pvt.h"

/* Return the position of id among the workers sorted by id, or of the first greater one. */
uint32_t kvr_sched__place(const struct kvr_sched *s, uint64_t id)
{
	uint32_t lo = 0, hi = s->n_workers;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (s->worker[s->sorted[mid]].id < id)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

uint32_t kvr_sched__worker(const struct kvr_sched *s, uint64_t id)
{
	uint32_t at = kvr_sched__place(s, id);

	return at < s->n_workers && s->worker[s->sorted[at]].id == id ? s->sorted[at] : NIL;
}

uint32_t kvr_sched_rank_find(const struct kvr_sched *s, uint64_t id, uint32_t dp_rank)
{
	uint32_t at = kvr_sched__worker(s, id);
	const struct worker *w;

	if (at == NIL)
		return KVR_SCHED_NO_RANK;
	w = &s->worker[at];
	if (dp_rank < w->dp_start || dp_rank - w->dp_start >= w->dp_size)
		return KVR_SCHED_NO_RANK;
	return s->order[w->at + (dp_rank - w->dp_start)];
}

void kvr_sched__ready(struct kvr_sched *s)
{
	s->words = 1;
	for (uint32_t w = 0; w < s->max_ranks / 64; w++) {
		s->ready[w] = s->open[w] & ~s->over[w];
		if (s->used[w] != 0)
			s->words = w + 1;
	}
}

uint32_t kvr_sched__taint(const struct kvr_sched *s, const struct kvr_str *name)
{
	for (uint32_t t = 0; t < s->n_taints; t++)
		if (s->taint_len[t] == name->len && memcmp(s->taint[t], name->p, name->len) == 0)
			return t;
	return NIL;
}
