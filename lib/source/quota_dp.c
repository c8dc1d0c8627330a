/* SPDX-License-Identifier: BSD-3-Clause */
#include "quota_pvt.h"

#include <assert.h>

#include <rte_common.h>

#include "kvr_rand.h"
#include "source_pvt.h"

#define FEW 64u /* in the kept part a source may have one of so many that are free */

static uint32_t *bucket_of(const struct kvr_quota *s, uint64_t key)
{
	return &s->bucket[(kvr_mix64(key ^ s->seed) >> 32) & s->mask];
}

static uint32_t find(const struct kvr_quota *s, uint64_t key)
{
	uint32_t i = *bucket_of(s, key);

	while (i != NIL && s->entry[i].key != key)
		i = s->entry[i].next;
	return i;
}

/* IPv6 sources have a /48 that shares, too; IPv4 addresses and hosts on a link do not. */
static bool has_net(uint64_t key)
{
	return key >> 32 != 0xffff && key >> 48 != 0xfe80 && key >> 48 != SHARED_6;
}

static uint64_t may_have(const struct kvr_quota *s, uint64_t free)
{
	const uint64_t few = RTE_MAX(free / FEW, UINT64_C(1));

	return free > s->kept ? RTE_MAX(s->times * (free - s->kept), few) : few;
}

static bool within(const struct kvr_quota *s, uint32_t entry, uint32_t n,
		   struct kvr_quota_state *st)
{
	st->held = entry != NIL ? s->entry[entry].held : 0;
	return st->held + n <= st->limit;
}

bool kvr_quota_allows(const struct kvr_quota *s, uint64_t key, uint32_t n, uint64_t free,
		      struct kvr_quota_state *st)
{
	struct kvr_quota_state unused;

	if (s->times == 0)
		return true;
	if (st == NULL)
		st = &unused;
	st->limit = may_have(s, free);
	if (!within(s, find(s, key), n, st))
		return false;
	return !has_net(key) || within(s, find(s, shared_key(key)), n, st);
}

static uint32_t get(struct kvr_quota *s, uint64_t key)
{
	uint32_t i = find(s, key), *b = bucket_of(s, key);

	if (i != NIL)
		return i;
	i = s->free;
	if (i != NIL)
		s->free = s->entry[i].next;
	else
		i = s->fresh++;
	assert(i < s->n_entries);
	s->entry[i] = (struct share_entry){.key = key, .next = *b, .net = NIL};
	*b = i;
	return i;
}

static void give(struct kvr_quota *s, uint32_t i, uint32_t n)
{
	struct share_entry *e = &s->entry[i];
	uint32_t *link = bucket_of(s, e->key);

	assert(e->held >= n);
	e->held -= n;
	if (e->held > 0)
		return;
	while (*link != i)
		link = &s->entry[*link].next;
	*link = e->next;
	e->key = 0;
	e->next = s->free;
	s->free = i;
}

uint32_t kvr_quota_take(struct kvr_quota *s, uint64_t key, uint32_t n)
{
	const uint32_t i = get(s, key);

	if (s->entry[i].held == 0 && has_net(key))
		s->entry[i].net = get(s, shared_key(key));
	s->entry[i].held += n;
	if (s->entry[i].net != NIL)
		s->entry[s->entry[i].net].held += n;
	return i + 1;
}

void kvr_quota_return(struct kvr_quota *s, uint32_t ref, uint32_t n)
{
	uint32_t net;

	if (ref == 0)
		return;
	net = s->entry[ref - 1].net;
	give(s, ref - 1, n);
	if (net != NIL)
		give(s, net, n);
}

uint32_t kvr_quota_held(const struct kvr_quota *s, uint64_t key)
{
	const uint32_t i = find(s, key);

	return i != NIL ? s->entry[i].held : 0;
}

uint32_t kvr_quota_top(const struct kvr_quota *s, uint32_t *at, struct kvr_quota_top out[],
		       uint32_t got, uint32_t n)
{
	uint32_t i = *at, end = i + KVR_QUOTA_SLICE;

	*at = end >= s->fresh ? UINT32_MAX : end;
	for (; i < end && i < s->fresh; i++) {
		const struct share_entry *e = &s->entry[i];
		uint32_t k;

		if (e->held == 0)
			continue;
		for (k = got; k > 0 && out[k - 1].held < e->held; k--)
			if (k < n)
				out[k] = out[k - 1];
		if (k < n)
			out[k] = (struct kvr_quota_top){e->key, e->held};
		got += got < n;
	}
	return got;
}
