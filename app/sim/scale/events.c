/* SPDX-License-Identifier: BSD-3-Clause */
/* The heap of events, by time, then by number. */
#include "cluster.h"

#include <stdlib.h>

static bool is_before(const struct event *a, const struct event *b)
{
	return a->at != b->at ? a->at < b->at : a->number < b->number;
}

void cluster_push(struct heap *heap, struct event e)
{
	uint32_t i = heap->n++;

	if (heap->n > heap->room) {
		heap->room = heap->room > 0 ? 2 * heap->room : 64;
		heap->v = realloc(heap->v, heap->room * sizeof(e));
		if (heap->v == NULL)
			exit(1);
	}
	for (; i > 0 && is_before(&e, &heap->v[(i - 1) / 2]); i = (i - 1) / 2)
		heap->v[i] = heap->v[(i - 1) / 2];
	heap->v[i] = e;
}

struct event cluster_pop(struct heap *heap)
{
	const struct event top = heap->v[0], last = heap->v[--heap->n];
	uint32_t i = 0, child;

	while ((child = 2 * i + 1) < heap->n) {
		child += child + 1 < heap->n && is_before(&heap->v[child + 1], &heap->v[child]);
		if (!is_before(&heap->v[child], &last))
			break;
		heap->v[i] = heap->v[child];
		i = child;
	}
	heap->v[i] = last;
	return top;
}

void cluster_add_event(struct cluster *cluster, uint64_t at, uint32_t kind, uint32_t subject)
{
	const uint32_t stay = kind == EV_PREFILLED ? cluster->req[subject].stays : 0;

	cluster_push(&cluster->events, (struct event){at, cluster->number++, kind, subject, stay});
}
