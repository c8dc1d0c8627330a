/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Lookup of sources in sets of WAYS entries. The keys of a set share one cache line, so a lookup
 * reads that line and the entry. Recent requests decay by halving `count` for every window that has
 * passed, when an entry is next read.
 */

#include "source_pvt.h"

static uint32_t set_of(const struct kvr_source_table *table, uint64_t key)
{
	return (uint32_t)(kvr_mix64(key ^ table->seed) >> 32) & table->mask;
}

static bool is_idle(const struct kvr_source *source, uint64_t now_ns)
{
	return now_ns - source->seen_ns >= KVR_SOURCE_IDLE_NS;
}

static struct kvr_source *find_in_set(const struct kvr_source_table *table, uint32_t set,
				      uint64_t key)
{
	const struct keys *keys = &table->keys[set];

	for (uint32_t i = 0; i < WAYS; i++)
		if (keys->key[i] == key)
			return &table->entry[set * WAYS + i];
	return NULL;
}

/* Take a place that is free, or whose source is idle; NULL: none. */
static struct kvr_source *take_place(struct kvr_source_table *table, uint32_t set, uint64_t key,
				     uint64_t now_ns)
{
	for (uint32_t i = 0; i < WAYS; i++) {
		struct kvr_source *source = &table->entry[set * WAYS + i];

		if (source->key != 0 && !is_idle(source, now_ns))
			continue;
		table->keys[set].key[i] = key;
		*source = (struct kvr_source){.key = key};
		return source;
	}
	return NULL;
}

static struct kvr_source *get_own(struct kvr_source_table *table, uint64_t key, uint64_t now_ns)
{
	const uint32_t set = set_of(table, key);
	struct kvr_source *source = find_in_set(table, set, key);

	return source != NULL ? source : take_place(table, set, key, now_ns);
}

struct kvr_source *kvr_source_get(struct kvr_source_table *table, uint64_t key, uint64_t now_ns)
{
	struct kvr_source *source = get_own(table, key, now_ns);

	if (unlikely(source == NULL)) {
		table->shared++;
		source = get_own(table, shared_key(key), now_ns);
		if (source == NULL)
			source = &table->rest;
	}
	source->seen_ns = now_ns;
	return source;
}

const struct kvr_source *kvr_source_find(const struct kvr_source_table *table, uint64_t key,
					 uint64_t now_ns)
{
	const struct kvr_source *source = find_in_set(table, set_of(table, key), key);

	return source != NULL && !is_idle(source, now_ns) ? source : NULL;
}

static uint32_t halve_count(uint32_t count, uint32_t windows)
{
	return windows < 32 ? count >> windows : 0;
}

static uint32_t window_of(uint64_t now_ns)
{
	return (uint32_t)(now_ns / KVR_SOURCE_WINDOW_NS);
}

void kvr_source_count(struct kvr_source_table *table, struct kvr_source *source, uint64_t now_ns)
{
	const uint32_t w = window_of(now_ns);

	source->count = halve_count(source->count, w - source->window) + 1;
	source->window = w;
	source->requests++;
	table->most = halve_count(table->most, w - table->window);
	table->window = w;
	if (source->count > table->most)
		table->most = source->count;
}

bool kvr_source_within_quota(const struct kvr_source_table *table, const struct kvr_source *source,
			     uint32_t part, uint32_t draw, uint64_t now_ns)
{
	const uint32_t w = window_of(now_ns);
	const uint64_t count = halve_count(source->count, w - source->window);
	const uint64_t may = (uint64_t)halve_count(table->most, w - table->window) * part;

	return count * KVR_SOURCE_ALL <= may || count * draw < may;
}

uint32_t kvr_source_top(const struct kvr_source_table *table, uint64_t now_ns, uint32_t *at,
			struct kvr_source out[], uint32_t got, uint32_t n)
{
	const uint32_t w = window_of(now_ns), all = (table->mask + 1) * WAYS;
	uint32_t i = *at, end = i + KVR_SOURCE_SLICE;

	*at = end > all ? UINT32_MAX : end;
	for (; i < end && i <= all; i++) {
		struct kvr_source source = i < all ? table->entry[i] : table->rest;
		uint32_t k;

		if (source.key == 0 || source.seen_ns == 0 || is_idle(&source, now_ns))
			continue;
		source.count = halve_count(source.count, w - source.window);
		source.window = w;
		/* Insert into the sorted list; equal entries keep their order. */
		for (k = got; k > 0 && out[k - 1].count < source.count; k--)
			if (k < n)
				out[k] = out[k - 1];
		if (k < n)
			out[k] = source;
		got += got < n;
	}
	return got;
}

uint32_t kvr_source_used(const struct kvr_source_table *table, uint64_t now_ns)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < (table->mask + 1) * WAYS; i++)
		n += table->entry[i].key != 0 && !is_idle(&table->entry[i], now_ns);
	return n;
}

uint64_t kvr_source_shared(const struct kvr_source_table *table)
{
	return table->shared;
}
