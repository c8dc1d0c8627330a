/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_timer.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

static void put_timer(struct kvr_timers *h, uint32_t i, struct kvr_timer *t)
{
	h->heap[i] = t;
	t->pos = i + 1;
}

static uint32_t sift_up(struct kvr_timers *h, uint32_t i, struct kvr_timer *t)
{
	for (; i > 0 && h->heap[(i - 1) / 2]->due_us > t->due_us; i = (i - 1) / 2)
		put_timer(h, i, h->heap[(i - 1) / 2]);
	put_timer(h, i, t);
	return i;
}

static void sift_down(struct kvr_timers *h, uint32_t i, struct kvr_timer *t)
{
	for (;;) {
		uint32_t c = 2 * i + 1;

		if (c >= h->n)
			break;
		if (c + 1 < h->n && h->heap[c + 1]->due_us < h->heap[c]->due_us)
			c++;
		if (h->heap[c]->due_us >= t->due_us)
			break;
		put_timer(h, i, h->heap[c]);
		i = c;
	}
	put_timer(h, i, t);
}

int kvr_timers_init(struct kvr_timers *h, uint32_t cap)
{
	h->heap = malloc((cap > 0 ? cap : 1) *
			 sizeof(*h->heap)); /* entries below n are initialised */
	h->n = 0;
	h->cap = cap;
	return h->heap != NULL ? 0 : -ENOMEM;
}

void kvr_timers_fini(struct kvr_timers *h)
{
	free(h->heap);
	*h = (struct kvr_timers){0};
}

void kvr_timer_set(struct kvr_timers *h, struct kvr_timer *t, uint64_t due_us)
{
	uint32_t i = t->pos - 1;

	if (t->pos == 0) {
		assert(h->n < h->cap);
		i = h->n++;
	}
	t->due_us = due_us;
	if (sift_up(h, i, t) == i)
		sift_down(h, i, t);
}

void kvr_timer_stop(struct kvr_timers *h, struct kvr_timer *t)
{
	uint32_t i = t->pos - 1;
	struct kvr_timer *last;

	if (t->pos == 0)
		return;
	t->pos = 0;
	last = h->heap[--h->n];
	if (last == t)
		return;
	if (sift_up(h, i, last) == i)
		sift_down(h, i, last);
}

struct kvr_timer *kvr_timers_expire(struct kvr_timers *h, uint64_t now_us)
{
	struct kvr_timer *t;

	if (h->n == 0 || h->heap[0]->due_us > now_us)
		return NULL;
	t = h->heap[0];
	kvr_timer_stop(h, t);
	return t;
}
