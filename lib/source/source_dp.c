/* SPDX-License-Identifier: BSD-3-Clause */
#include "source_pvt.h"

static uint32_t set_of(const struct kvr_source_table *t, uint64_t key)
{
	return (uint32_t)(kvr_mix64(key ^ t->seed) >> 32) & t->mask;
}

static bool idle(const struct kvr_source *s, uint64_t now_ns)
{
	return now_ns - s->seen_ns >= KVR_SOURCE_IDLE_NS;
}

static struct kvr_source *in_set(const struct kvr_source_table *t, uint32_t set, uint64_t key)
{
	const struct keys *k = &t->keys[set];

	for (uint32_t i = 0; i < WAYS; i++)
		if (k->key[i] == key)
			return &t->entry[set * WAYS + i];
	return NULL;
}

/* A place that is free, or whose source has not been heard for long; NULL: none. */
static struct kvr_source *place(struct kvr_source_table *t, uint32_t set, uint64_t key,
				uint64_t now_ns)
{
	for (uint32_t i = 0; i < WAYS; i++) {
		struct kvr_source *s = &t->entry[set * WAYS + i];

		if (s->key != 0 && !idle(s, now_ns))
			continue;
		t->keys[set].key[i] = key;
		*s = (struct kvr_source){.key = key};
		return s;
	}
	return NULL;
}

static struct kvr_source *own(struct kvr_source_table *t, uint64_t key, uint64_t now_ns)
{
	const uint32_t set = set_of(t, key);
	struct kvr_source *s = in_set(t, set, key);

	return s != NULL ? s : place(t, set, key, now_ns);
}

struct kvr_source *kvr_source_get(struct kvr_source_table *t, uint64_t key, uint64_t now_ns)
{
	struct kvr_source *s = own(t, key, now_ns);

	if (unlikely(s == NULL)) {
		t->shared++;
		s = own(t, shared_key(key), now_ns);
		if (s == NULL)
			s = &t->rest;
	}
	s->seen_ns = now_ns;
	return s;
}

const struct kvr_source *kvr_source_find(const struct kvr_source_table *t, uint64_t key,
					 uint64_t now_ns)
{
	const struct kvr_source *s = in_set(t, set_of(t, key), key);

	return s != NULL && !idle(s, now_ns) ? s : NULL;
}

static uint32_t halved(uint32_t count, uint32_t windows)
{
	return windows < 32 ? count >> windows : 0;
}

static uint32_t window_of(uint64_t now_ns)
{
	return (uint32_t)(now_ns / KVR_SOURCE_WINDOW_NS);
}

void kvr_source_count(struct kvr_source_table *t, struct kvr_source *s, uint64_t now_ns)
{
	const uint32_t w = window_of(now_ns);

	s->count = halved(s->count, w - s->window) + 1;
	s->window = w;
	s->requests++;
	t->most = halved(t->most, w - t->window);
	t->window = w;
	if (s->count > t->most)
		t->most = s->count;
}

bool kvr_source_within_quota(const struct kvr_source_table *t, const struct kvr_source *s,
			     uint32_t part, uint32_t draw, uint64_t now_ns)
{
	const uint32_t w = window_of(now_ns);
	const uint64_t count = halved(s->count, w - s->window);
	const uint64_t may = (uint64_t)halved(t->most, w - t->window) * part;

	return count * KVR_SOURCE_ALL <= may || count * draw < may;
}

uint32_t kvr_source_top(const struct kvr_source_table *t, uint64_t now_ns, uint32_t *at,
			struct kvr_source out[], uint32_t got, uint32_t n)
{
	const uint32_t w = window_of(now_ns), all = (t->mask + 1) * WAYS;
	uint32_t i = *at, end = i + KVR_SOURCE_SLICE;

	*at = end > all ? UINT32_MAX : end;
	for (; i < end && i <= all; i++) {
		struct kvr_source s = i < all ? t->entry[i] : t->rest;
		uint32_t k;

		if (s.key == 0 || s.seen_ns == 0 || idle(&s, now_ns))
			continue;
		s.count = halved(s.count, w - s.window);
		s.window = w;
		/* Insertion into a short list; equal ones keep their order. */
		for (k = got; k > 0 && out[k - 1].count < s.count; k--)
			if (k < n)
				out[k] = out[k - 1];
		if (k < n)
			out[k] = s;
		got += got < n;
	}
	return got;
}

uint32_t kvr_source_used(const struct kvr_source_table *t, uint64_t now_ns)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < (t->mask + 1) * WAYS; i++)
		n += t->entry[i].key != 0 && !idle(&t->entry[i], now_ns);
	return n;
}

uint64_t kvr_source_shared(const struct kvr_source_table *t)
{
	return t->shared;
}
