/* SPDX-License-Identifier: BSD-3-Clause */

/* Lookups in a view, on any lcore. */

#include "kvr_worker.h"

#include "kvr_rand.h"

const struct kvr_view_worker *kvr_view_find(const struct kvr_view *view, uint64_t id)
{
	uint32_t at = (uint32_t)kvr_mix64(id ^ view->seed) & view->mask;

	for (; view->index[at] != 0; at = (at + 1) & view->mask) {
		const struct kvr_view_worker *worker = &view->worker[view->index[at] - 1];

		if (worker->id == id)
			return worker;
	}
	return NULL;
}

uint32_t kvr_view_rank(const struct kvr_view *view, const struct kvr_view_worker *worker,
		       uint32_t dp_rank)
{
	if (dp_rank < worker->dp_start || dp_rank - worker->dp_start >= worker->dp_size)
		return KVR_RANK_NONE;
	return view->rank[worker->first_rank + (dp_rank - worker->dp_start)];
}
