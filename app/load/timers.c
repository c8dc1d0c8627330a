/* SPDX-License-Identifier: BSD-3-Clause */
#include "timers.h"

#include <errno.h>
#include <stdlib.h>

#define ARY 4u

int load_timers_init(struct load_timers *t, uint32_t room)
{
	t->heap = malloc(room * sizeof(*t->heap));
	t->n = 0;
	t->room = room;
	return t->heap != NULL ? 0 : -ENOMEM;
}

void load_timers_fini(struct load_timers *t)
{
	free(t->heap);
	t->heap = NULL;
	t->n = t->room = 0;
}

bool load_timers_add(struct load_timers *t, struct load_timer x)
{
	uint32_t i = t->n;

	if (i == t->room)
		return false;
	t->n++;
	for (; i > 0 && t->heap[(i - 1) / ARY].at > x.at; i = (i - 1) / ARY)
		t->heap[i] = t->heap[(i - 1) / ARY];
	t->heap[i] = x;
	return true;
}

/* Move x down from the root. */
static void sift_down(struct load_timers *t, struct load_timer x)
{
	uint32_t i = 0;

	for (;;) {
		uint32_t first = i * ARY + 1, best = first, last = first + ARY;

		if (first >= t->n)
			break;
		if (last > t->n)
			last = t->n;
		for (uint32_t k = first + 1; k < last; k++)
			if (t->heap[k].at < t->heap[best].at)
				best = k;
		if (t->heap[best].at >= x.at)
			break;
		t->heap[i] = t->heap[best];
		i = best;
	}
	t->heap[i] = x;
}

bool load_timers_pop(struct load_timers *t, uint64_t now, struct load_timer *x)
{
	if (t->n == 0 || t->heap[0].at > now)
		return false;
	*x = t->heap[0];
	if (--t->n > 0)
		sift_down(t, t->heap[t->n]);
	return true;
}
