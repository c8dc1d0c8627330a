/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Taking and returning units. Entries are in chained buckets and numbered, so that the reference of
 * a unit leads to its entry without a search. The entry of an IPv6 source links to the entry of its
 * /48, which counts the units of all its /64.
 */

#include "quota_pvt.h"

#include <assert.h>

#include <rte_common.h>

#include "kvr_rand.h"
#include "source_pvt.h"

#define FREE_FRACTION 64u /* a source may always hold one of this many free units */

static uint32_t *bucket_of_key(const struct kvr_quota *quota, uint64_t key)
{
	return &quota->bucket[(kvr_mix64(key ^ quota->seed) >> 32) & quota->mask];
}

static uint32_t find_entry(const struct kvr_quota *quota, uint64_t key)
{
	uint32_t i = *bucket_of_key(quota, key);

	while (i != NIL && quota->entry[i].key != key)
		i = quota->entry[i].next;
	return i;
}

/*
 * Return true if the source has a /48 with a quota: IPv6 sources do, IPv4 addresses and hosts of a
 * link do not.
 */
static bool has_net(uint64_t key)
{
	return key >> 32 != 0xffff && key >> 48 != 0xfe80 && key >> 48 != SHARED_6;
}

static uint64_t get_limit(const struct kvr_quota *quota, uint64_t free)
{
	const uint64_t few = RTE_MAX(free / FREE_FRACTION, UINT64_C(1));

	return free > quota->reserved ? RTE_MAX(quota->times * (free - quota->reserved), few) : few;
}

static bool is_within(const struct kvr_quota *quota, uint32_t entry, uint32_t n,
		      struct kvr_quota_state *st)
{
	st->held = entry != NIL ? quota->entry[entry].held : 0;
	return st->held + n <= st->limit;
}

bool kvr_quota_allows(const struct kvr_quota *quota, uint64_t key, uint32_t n, uint64_t free,
		      struct kvr_quota_state *st)
{
	struct kvr_quota_state unused;

	if (quota->times == 0)
		return true;
	if (st == NULL)
		st = &unused;
	st->limit = get_limit(quota, free);
	if (!is_within(quota, find_entry(quota, key), n, st))
		return false;
	return !has_net(key) || is_within(quota, find_entry(quota, shared_key(key)), n, st);
}

static uint32_t get_entry(struct kvr_quota *quota, uint64_t key)
{
	uint32_t i = find_entry(quota, key), *b = bucket_of_key(quota, key);

	if (i != NIL)
		return i;
	i = quota->free;
	if (i != NIL)
		quota->free = quota->entry[i].next;
	else
		i = quota->fresh++;
	assert(i < quota->n_entries);
	quota->entry[i] = (struct quota_entry){.key = key, .next = *b, .net = NIL};
	*b = i;
	return i;
}

static void return_units(struct kvr_quota *quota, uint32_t i, uint32_t n)
{
	struct quota_entry *entry = &quota->entry[i];
	uint32_t *link = bucket_of_key(quota, entry->key);

	assert(entry->held >= n);
	entry->held -= n;
	if (entry->held > 0)
		return;
	while (*link != i)
		link = &quota->entry[*link].next;
	*link = entry->next;
	entry->key = 0;
	entry->next = quota->free;
	quota->free = i;
}

uint32_t kvr_quota_take(struct kvr_quota *quota, uint64_t key, uint32_t n)
{
	const uint32_t i = get_entry(quota, key);

	if (quota->entry[i].held == 0 && has_net(key))
		quota->entry[i].net = get_entry(quota, shared_key(key));
	quota->entry[i].held += n;
	if (quota->entry[i].net != NIL)
		quota->entry[quota->entry[i].net].held += n;
	return i + 1;
}

void kvr_quota_return(struct kvr_quota *quota, uint32_t ref, uint32_t n)
{
	uint32_t net;

	if (ref == 0)
		return;
	net = quota->entry[ref - 1].net;
	return_units(quota, ref - 1, n);
	if (net != NIL)
		return_units(quota, net, n);
}

uint32_t kvr_quota_held(const struct kvr_quota *quota, uint64_t key)
{
	const uint32_t i = find_entry(quota, key);

	return i != NIL ? quota->entry[i].held : 0;
}

uint32_t kvr_quota_top(const struct kvr_quota *quota, uint32_t *at, struct kvr_quota_top out[],
		       uint32_t got, uint32_t n)
{
	uint32_t i = *at, end = i + KVR_QUOTA_SLICE;

	*at = end >= quota->fresh ? UINT32_MAX : end;
	for (; i < end && i < quota->fresh; i++) {
		const struct quota_entry *entry = &quota->entry[i];
		uint32_t k;

		if (entry->held == 0)
			continue;
		for (k = got; k > 0 && out[k - 1].held < entry->held; k--)
			if (k < n)
				out[k] = out[k - 1];
		if (k < n)
			out[k] = (struct kvr_quota_top){entry->key, entry->held};
		got += got < n;
	}
	return got;
}
