/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Owners of a run. At most eight (six in the other planes) stand inline as (rank, lead); more
 * move to a big block: a bit for a rank that has the whole run, partial owners as words. The
 * length of a run with a big block never changes, so that a bit keeps its meaning. When a rank
 * passes from one form to the other it is for a moment in both, never in none.
 */

#include "prefix_pvt.h"

#include <errno.h>

static uint32_t lead_among(_Atomic uint32_t *w, uint32_t n, uint16_t rank, uint32_t *at)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t o = pfx_ld32(&w[i]);

		if (o != 0 && PFX_RANK(o) == rank) {
			*at = i;
			return PFX_LEAD(o);
		}
	}
	*at = n;
	return 0;
}

static uint32_t free_place(_Atomic uint32_t *w, uint32_t n)
{
	uint32_t i = 0;

	while (i < n && pfx_ld32(&w[i]) != 0)
		i++;
	return i;
}

static bool bit_of(struct pfx_big *b, uint16_t rank)
{
	return atomic_load_explicit(&b->bits[rank / 64], memory_order_relaxed) >> (rank % 64) & 1;
}

static void put_bit(struct pfx_big *b, uint16_t rank, bool on)
{
	uint64_t w = atomic_load_explicit(&b->bits[rank / 64], memory_order_relaxed);
	uint64_t bit = UINT64_C(1) << (rank % 64);

	/* Release: a part added before a bit is cleared must be seen by who sees it cleared. */
	atomic_store_explicit(&b->bits[rank / 64], on ? w | bit : w & ~bit, memory_order_release);
}

uint32_t kvr_prefix__owner_get(const struct kvr_prefix *t, struct pfx_hdr *h, uint32_t plane,
			       uint16_t rank)
{
	struct pfx_oset s = pfx_oset(t, h, plane);
	uint32_t at, big;

	if (s.big == NULL)
		return 0;
	big = pfx_ld32(s.big);
	if (big == PFX_NONE)
		return lead_among(s.owner, s.inl, rank, &at);
	if (bit_of(pfx_big(t, big), rank))
		return pfx_len(h);
	return lead_among(pfx_parts(t, pfx_big(t, big)), t->big_parts, rank, &at);
}

static uint32_t new_big(struct kvr_prefix *t)
{
	uint32_t big = kvr_prefix__pool_take(&t->bigs);

	if (big != PFX_NONE)
		memset((void *)pfx_big(t, big), 0, t->big_bytes);
	return big;
}

/* Add (rank, lead) to a big block that does not have the rank. */
static int big_add(struct kvr_prefix *t, uint32_t big, uint16_t rank, uint32_t lead, uint32_t len)
{
	_Atomic uint32_t *part = pfx_parts(t, pfx_big(t, big));
	uint32_t i;

	if (lead >= len) {
		put_bit(pfx_big(t, big), rank, true);
		return 0;
	}
	i = free_place(part, t->big_parts);
	if (i == t->big_parts)
		return -ENOSPC;
	pfx_st32(&part[i], PFX_OWNER(rank, lead));
	return 0;
}

static int big_set(struct kvr_prefix *t, uint32_t big, uint16_t rank, uint32_t lead, uint32_t len)
{
	_Atomic uint32_t *part = pfx_parts(t, pfx_big(t, big));
	bool full = bit_of(pfx_big(t, big), rank);
	uint32_t at;

	lead_among(part, t->big_parts, rank, &at);
	if (lead > 0 && lead < len && at < t->big_parts) {
		pfx_st32(&part[at], PFX_OWNER(rank, lead));
		return 0;
	}
	if (lead > 0 && !(full && lead >= len)) {
		int ret = big_add(t, big, rank, lead, len);

		if (ret < 0)
			return ret;
	}
	/* Release: pairs with the reader's acquire between parts and bits: no part, then the bit.
	 */
	if (at < t->big_parts)
		atomic_store_explicit(&part[at], 0, memory_order_release);
	if (full && lead < len)
		put_bit(pfx_big(t, big), rank, false);
	return 0;
}

/* Move the inline owners to a big block; readers go over when they see its number. */
static int grow_big(struct kvr_prefix *t, struct pfx_oset s, uint32_t len)
{
	uint32_t big = new_big(t);

	if (big == PFX_NONE)
		return -ENOMEM;
	for (uint32_t i = 0; i < s.inl; i++) {
		uint32_t o = pfx_ld32(&s.owner[i]);

		if (o != 0)
			big_add(t, big, PFX_RANK(o), PFX_LEAD(o), len);
	}
	/* Release: pairs with the acquire of the reader, who then sees the block complete. */
	atomic_store_explicit(s.big, big, memory_order_release);
	return 0;
}

static int need_ext(struct kvr_prefix *t, struct pfx_hdr *h)
{
	uint32_t ext;

	if (pfx_ld32(&h->ext) != PFX_NONE)
		return 0;
	ext = kvr_prefix__pool_take(&t->exts);
	if (ext == PFX_NONE)
		return -ENOMEM;
	memset((void *)&t->ext[ext], 0, sizeof(t->ext[ext]));
	/* Release: pairs with the acquire in pfx_oset(). */
	atomic_store_explicit(&h->ext, ext, memory_order_release);
	return 0;
}

/* 0; -ENOMEM: no block left; -ENOSPC: too many partial owners, so split the run at `lead`. */
int kvr_prefix__owner_set(struct kvr_prefix *t, struct pfx_hdr *h, uint32_t plane, uint16_t rank,
			  uint32_t lead)
{
	struct pfx_oset s;
	uint32_t at;

	if (plane != KVR_TIER_DEVICE && need_ext(t, h) < 0)
		return -ENOMEM;
	s = pfx_oset(t, h, plane);
	if (pfx_ld32(s.big) == PFX_NONE) {
		lead_among(s.owner, s.inl, rank, &at);
		if (at == s.inl)
			at = free_place(s.owner, s.inl);
		if (at < s.inl) {
			pfx_st32(&s.owner[at], lead ? PFX_OWNER(rank, lead) : 0);
			return 0;
		}
		if (lead == 0)
			return 0;
		if (grow_big(t, s, pfx_len(h)) < 0)
			return -ENOMEM;
	}
	return big_set(t, pfx_ld32(s.big), rank, lead, pfx_len(h));
}

static uint32_t longest_of(_Atomic uint32_t *w, uint32_t n)
{
	uint32_t max = 0;

	for (uint32_t i = 0; i < n; i++)
		max = RTE_MAX(max, PFX_LEAD(pfx_ld32(&w[i])));
	return max;
}

/* Blocks of the run that anybody holds in any plane. */
uint32_t kvr_prefix__owner_longest(const struct kvr_prefix *t, struct pfx_hdr *h)
{
	uint32_t max = 0;

	for (uint32_t p = 0; p < pfx_planes_of(h); p++) {
		struct pfx_oset s = pfx_oset(t, h, p);
		uint32_t big = pfx_ld32(s.big);

		if (big == PFX_NONE) {
			max = RTE_MAX(max, longest_of(s.owner, s.inl));
			continue;
		}
		for (uint32_t i = 0; i < t->big_words; i++) {
			if (pfx_big(t, big)->bits[i] != 0)
				return pfx_len(h);
		}
		max = RTE_MAX(max, longest_of(pfx_parts(t, pfx_big(t, big)), t->big_parts));
	}
	return max;
}

bool kvr_prefix__owner_any_big(const struct kvr_prefix *t, struct pfx_hdr *h)
{
	if (pfx_ld32(&h->big) != PFX_NONE)
		return true;
	if (pfx_ld32(&h->ext) == PFX_NONE)
		return false;
	for (uint32_t p = 1; p < PFX_PLANES; p++) {
		if (pfx_ld32(pfx_oset(t, h, p).big) != PFX_NONE)
			return true;
	}
	return false;
}

/* Has the rank anything of the run, in any plane? */
bool kvr_prefix__owner_has(const struct kvr_prefix *t, struct pfx_hdr *h, uint16_t rank)
{
	for (uint32_t p = 0; p < pfx_planes_of(h); p++) {
		if (kvr_prefix__owner_get(t, h, p, rank) != 0)
			return true;
	}
	return false;
}

/* Owner `o` of a run of which only blocks lo..hi-1 are copied; 0: nothing is left. */
static uint32_t cut(uint32_t o, uint32_t lo, uint32_t hi)
{
	uint32_t lead = RTE_MIN(PFX_LEAD(o), hi);

	return lead > lo ? PFX_OWNER(PFX_RANK(o), lead - lo) : 0;
}

/* Owners of blocks lo..hi-1 in one plane that the run has, with what they have of those. */
void kvr_prefix__owner_list(const struct kvr_prefix *t, struct pfx_hdr *h, uint32_t plane,
			    uint32_t lo, uint32_t hi, struct pfx_owners *l)
{
	struct pfx_oset s = pfx_oset(t, h, plane);
	uint32_t big = pfx_ld32(s.big), n = big == PFX_NONE ? s.inl : t->big_parts;
	_Atomic uint32_t *w = big == PFX_NONE ? s.owner : pfx_parts(t, pfx_big(t, big));

	l->n = 0;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t o = cut(pfx_ld32(&w[i]), lo, hi);

		if (o != 0)
			l->o[l->n++] = o;
	}
	for (uint32_t i = 0; big != PFX_NONE && i < t->big_words; i++) {
		for (uint64_t b = pfx_big(t, big)->bits[i]; b != 0; b &= b - 1)
			l->o[l->n++] = PFX_OWNER(i * 64 + (uint32_t)__builtin_ctzll(b), hi - lo);
	}
}

/* Copy the owners of blocks lo..hi-1 to a header nobody sees yet, whose length is hi - lo. */
int kvr_prefix__owner_copy(struct kvr_prefix *t, struct pfx_hdr *from, struct pfx_hdr *to,
			   uint32_t lo, uint32_t hi)
{
	struct pfx_owners l;

	for (uint32_t p = 0; p < pfx_planes_of(from); p++) {
		struct pfx_oset s;

		kvr_prefix__owner_list(t, from, p, lo, hi, &l);
		if (l.n == 0)
			continue;
		if (p != KVR_TIER_DEVICE && need_ext(t, to) < 0)
			return -ENOMEM;
		s = pfx_oset(t, to, p);
		if (l.n > s.inl && grow_big(t, s, hi - lo) < 0)
			return -ENOMEM;
		for (uint32_t i = 0; i < l.n; i++) {
			if (l.n > s.inl)
				big_add(t, pfx_ld32(s.big), PFX_RANK(l.o[i]), PFX_LEAD(l.o[i]),
					hi - lo);
			else
				pfx_st32(&s.owner[i], l.o[i]);
		}
	}
	return 0;
}

/* The header is no longer to be found: its blocks go when the readers have left. */
void kvr_prefix__owner_retire(struct kvr_prefix *t, struct pfx_hdr *h)
{
	uint32_t ext = pfx_ld32(&h->ext);

	for (uint32_t p = 0; p < (ext == PFX_NONE ? 1 : PFX_PLANES); p++) {
		uint32_t big = pfx_ld32(pfx_oset(t, h, p).big);

		if (big != PFX_NONE)
			kvr_prefix__pool_retire(t, &t->bigs, big);
	}
	if (ext != PFX_NONE)
		kvr_prefix__pool_retire(t, &t->exts, ext);
}
