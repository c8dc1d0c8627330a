/* SPDX-License-Identifier: BSD-3-Clause */
/* Binary min-heap of intrusive timers. */
#include "kvr_timer.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

static void put_timer(struct kvr_timers *timers, uint32_t i, struct kvr_timer *t)
{
	timers->heap[i] = t;
	t->pos = i + 1;
}

static uint32_t sift_up(struct kvr_timers *timers, uint32_t i, struct kvr_timer *t)
{
	for (; i > 0 && timers->heap[(i - 1) / 2]->due_us > t->due_us; i = (i - 1) / 2)
		put_timer(timers, i, timers->heap[(i - 1) / 2]);
	put_timer(timers, i, t);
	return i;
}

static void sift_down(struct kvr_timers *timers, uint32_t i, struct kvr_timer *t)
{
	for (;;) {
		uint32_t c = 2 * i + 1;

		if (c >= timers->n)
			break;
		if (c + 1 < timers->n && timers->heap[c + 1]->due_us < timers->heap[c]->due_us)
			c++;
		if (timers->heap[c]->due_us >= t->due_us)
			break;
		put_timer(timers, i, timers->heap[c]);
		i = c;
	}
	put_timer(timers, i, t);
}

int kvr_timers_init(struct kvr_timers *timers, uint32_t cap)
{
	timers->heap = malloc((cap > 0 ? cap : 1) *
			      sizeof(*timers->heap)); /* entries below n are initialised */
	timers->n = 0;
	timers->cap = cap;
	return timers->heap != NULL ? 0 : -ENOMEM;
}

void kvr_timers_fini(struct kvr_timers *timers)
{
	free(timers->heap);
	*timers = (struct kvr_timers){0};
}

void kvr_timer_set(struct kvr_timers *timers, struct kvr_timer *t, uint64_t due_us)
{
	uint32_t i = t->pos - 1;

	if (t->pos == 0) {
		assert(timers->n < timers->cap);
		i = timers->n++;
	}
	t->due_us = due_us;
	if (sift_up(timers, i, t) == i)
		sift_down(timers, i, t);
}

void kvr_timer_stop(struct kvr_timers *timers, struct kvr_timer *t)
{
	uint32_t i = t->pos - 1;
	struct kvr_timer *last;

	if (t->pos == 0)
		return;
	t->pos = 0;
	last = timers->heap[--timers->n];
	if (last == t)
		return;
	if (sift_up(timers, i, last) == i)
		sift_down(timers, i, last);
}

struct kvr_timer *kvr_timers_expire(struct kvr_timers *timers, uint64_t now_us)
{
	struct kvr_timer *t;

	if (timers->n == 0 || timers->heap[0]->due_us > now_us)
		return NULL;
	t = timers->heap[0];
	kvr_timer_stop(timers, t);
	return t;
}
