/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_worker.h"

#include "kvr_rand.h"

const struct kvr_view_worker *kvr_view_find(const struct kvr_view *v, uint64_t id)
{
	uint32_t at = (uint32_t)kvr_mix64(id ^ v->seed) & v->mask;

	for (; v->index[at] != 0; at = (at + 1) & v->mask) {
		const struct kvr_view_worker *w = &v->worker[v->index[at] - 1];

		if (w->id == id)
			return w;
	}
	return NULL;
}

uint32_t kvr_view_rank(const struct kvr_view *v, const struct kvr_view_worker *w, uint32_t dp_rank)
{
	if (dp_rank < w->dp_start || dp_rank - w->dp_start >= w->dp_size)
		return KVR_RANK_NONE;
	return v->rank[w->first_rank + (dp_rank - w->dp_start)];
}
