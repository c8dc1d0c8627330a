/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Owners of a run. Up to eight owners (six in the other planes) are stored inline as (rank, lead).
 * If there are more, they move to a big block: one bit for each rank that owns the whole run, and
 * words for partial owners. The length of a run with a big block never changes, so that a bit keeps
 * its meaning. While a rank changes from one form to the other, it is briefly in both, never in
 * none.
 */

#include "prefix_pvt.h"

#include <errno.h>

static uint32_t find_lead(_Atomic uint32_t *w, uint32_t n, uint16_t rank, uint32_t *at)
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

static bool bit_of(struct pfx_big *big, uint16_t rank)
{
	return atomic_load_explicit(&big->bits[rank / 64], memory_order_relaxed) >> (rank % 64) & 1;
}

static void put_bit(struct pfx_big *big, uint16_t rank, bool on)
{
	uint64_t w = atomic_load_explicit(&big->bits[rank / 64], memory_order_relaxed);
	uint64_t bit = UINT64_C(1) << (rank % 64);

	/* Release: a reader that sees the bit cleared also sees the part that was added before. */
	atomic_store_explicit(&big->bits[rank / 64], on ? w | bit : w & ~bit, memory_order_release);
}

uint32_t kvr_prefix__owner_get(const struct kvr_prefix *table, struct pfx_hdr *hdr, uint32_t plane,
			       uint16_t rank)
{
	struct pfx_oset owners = pfx_oset(table, hdr, plane);
	uint32_t at, big;

	if (owners.big == NULL)
		return 0;
	big = pfx_ld32(owners.big);
	if (big == PFX_NONE)
		return find_lead(owners.owner, owners.inl, rank, &at);
	if (bit_of(pfx_big(table, big), rank))
		return pfx_len(hdr);
	return find_lead(pfx_parts(table, pfx_big(table, big)), table->big_parts, rank, &at);
}

static uint32_t new_big(struct kvr_prefix *table)
{
	uint32_t big = kvr_prefix__pool_take(&table->bigs);

	if (big != PFX_NONE)
		memset((void *)pfx_big(table, big), 0, table->big_bytes);
	return big;
}

/* Add (rank, lead) to a big block that does not contain the rank. */
static int big_add(struct kvr_prefix *table, uint32_t big, uint16_t rank, uint32_t lead,
		   uint32_t len)
{
	_Atomic uint32_t *part = pfx_parts(table, pfx_big(table, big));
	uint32_t i;

	if (lead >= len) {
		put_bit(pfx_big(table, big), rank, true);
		return 0;
	}
	i = free_place(part, table->big_parts);
	if (i == table->big_parts)
		return -ENOSPC;
	pfx_st32(&part[i], PFX_OWNER(rank, lead));
	return 0;
}

static int big_set(struct kvr_prefix *table, uint32_t big, uint16_t rank, uint32_t lead,
		   uint32_t len)
{
	_Atomic uint32_t *part = pfx_parts(table, pfx_big(table, big));
	bool full = bit_of(pfx_big(table, big), rank);
	uint32_t at;

	find_lead(part, table->big_parts, rank, &at);
	if (lead > 0 && lead < len && at < table->big_parts) {
		pfx_st32(&part[at], PFX_OWNER(rank, lead));
		return 0;
	}
	if (lead > 0 && !(full && lead >= len)) {
		int ret = big_add(table, big, rank, lead, len);

		if (ret < 0)
			return ret;
	}
	/*
	 * Release: pairs with the reader's acquire between parts and bits: a reader that misses the
	 * part sees the bit.
	 */
	if (at < table->big_parts)
		atomic_store_explicit(&part[at], 0, memory_order_release);
	if (full && lead < len)
		put_bit(pfx_big(table, big), rank, false);
	return 0;
}

/* Move the inline owners to a big block. Readers use it as soon as they see its number. */
static int grow_big(struct kvr_prefix *table, struct pfx_oset owners, uint32_t len)
{
	uint32_t big = new_big(table);

	if (big == PFX_NONE)
		return -ENOMEM;
	for (uint32_t i = 0; i < owners.inl; i++) {
		uint32_t o = pfx_ld32(&owners.owner[i]);

		if (o != 0)
			big_add(table, big, PFX_RANK(o), PFX_LEAD(o), len);
	}
	/* Release: pairs with the acquire of the readers, which then see the complete block. */
	atomic_store_explicit(owners.big, big, memory_order_release);
	return 0;
}

static int need_ext(struct kvr_prefix *table, struct pfx_hdr *hdr)
{
	uint32_t ext;

	if (pfx_ld32(&hdr->ext) != PFX_NONE)
		return 0;
	ext = kvr_prefix__pool_take(&table->exts);
	if (ext == PFX_NONE)
		return -ENOMEM;
	memset((void *)&table->ext[ext], 0, sizeof(table->ext[ext]));
	/* Release: pairs with the acquire in pfx_oset(). */
	atomic_store_explicit(&hdr->ext, ext, memory_order_release);
	return 0;
}

/*
 * @return 0, -ENOMEM if no block is left, or -ENOSPC if there are too many partial owners: split
 *   the run at `lead`.
 */
int kvr_prefix__owner_set(struct kvr_prefix *table, struct pfx_hdr *hdr, uint32_t plane,
			  uint16_t rank, uint32_t lead)
{
	struct pfx_oset owners;
	uint32_t at;

	if (plane != KVR_TIER_DEVICE && need_ext(table, hdr) < 0)
		return -ENOMEM;
	owners = pfx_oset(table, hdr, plane);
	if (pfx_ld32(owners.big) == PFX_NONE) {
		find_lead(owners.owner, owners.inl, rank, &at);
		if (at == owners.inl)
			at = free_place(owners.owner, owners.inl);
		if (at < owners.inl) {
			pfx_st32(&owners.owner[at], lead ? PFX_OWNER(rank, lead) : 0);
			return 0;
		}
		if (lead == 0)
			return 0;
		if (grow_big(table, owners, pfx_len(hdr)) < 0)
			return -ENOMEM;
	}
	return big_set(table, pfx_ld32(owners.big), rank, lead, pfx_len(hdr));
}

static uint32_t longest_of(_Atomic uint32_t *w, uint32_t n)
{
	uint32_t max = 0;

	for (uint32_t i = 0; i < n; i++)
		max = RTE_MAX(max, PFX_LEAD(pfx_ld32(&w[i])));
	return max;
}

/* Number of leading blocks of the run that have an owner in any plane. */
uint32_t kvr_prefix__owner_longest(const struct kvr_prefix *table, struct pfx_hdr *hdr)
{
	uint32_t max = 0;

	for (uint32_t p = 0; p < pfx_planes_of(hdr); p++) {
		struct pfx_oset owners = pfx_oset(table, hdr, p);
		uint32_t big = pfx_ld32(owners.big);

		if (big == PFX_NONE) {
			max = RTE_MAX(max, longest_of(owners.owner, owners.inl));
			continue;
		}
		for (uint32_t i = 0; i < table->big_words; i++) {
			if (pfx_big(table, big)->bits[i] != 0)
				return pfx_len(hdr);
		}
		max = RTE_MAX(max,
			      longest_of(pfx_parts(table, pfx_big(table, big)), table->big_parts));
	}
	return max;
}

bool kvr_prefix__owner_any_big(const struct kvr_prefix *table, struct pfx_hdr *hdr)
{
	if (pfx_ld32(&hdr->big) != PFX_NONE)
		return true;
	if (pfx_ld32(&hdr->ext) == PFX_NONE)
		return false;
	for (uint32_t p = 1; p < PFX_PLANES; p++) {
		if (pfx_ld32(pfx_oset(table, hdr, p).big) != PFX_NONE)
			return true;
	}
	return false;
}

/* Return true if the rank holds a block of the run in any plane. */
bool kvr_prefix__owner_has(const struct kvr_prefix *table, struct pfx_hdr *hdr, uint16_t rank)
{
	for (uint32_t p = 0; p < pfx_planes_of(hdr); p++) {
		if (kvr_prefix__owner_get(table, hdr, p, rank) != 0)
			return true;
	}
	return false;
}

/* Owner `o` of a run, restricted to blocks lo..hi-1; 0 if it holds none of them. */
static uint32_t cut_owner(uint32_t o, uint32_t lo, uint32_t hi)
{
	uint32_t lead = RTE_MIN(PFX_LEAD(o), hi);

	return lead > lo ? PFX_OWNER(PFX_RANK(o), lead - lo) : 0;
}

/*
 * List the owners of blocks lo..hi-1 in one plane of the run, with their lead within those blocks.
 */
void kvr_prefix__owner_list(const struct kvr_prefix *table, struct pfx_hdr *hdr, uint32_t plane,
			    uint32_t lo, uint32_t hi, struct pfx_owners *list)
{
	struct pfx_oset owners = pfx_oset(table, hdr, plane);
	uint32_t big = pfx_ld32(owners.big), n = big == PFX_NONE ? owners.inl : table->big_parts;
	_Atomic uint32_t *w =
		big == PFX_NONE ? owners.owner : pfx_parts(table, pfx_big(table, big));

	list->n = 0;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t o = cut_owner(pfx_ld32(&w[i]), lo, hi);

		if (o != 0)
			list->o[list->n++] = o;
	}
	for (uint32_t i = 0; big != PFX_NONE && i < table->big_words; i++) {
		for (uint64_t b = pfx_big(table, big)->bits[i]; b != 0; b &= b - 1)
			list->o[list->n++] =
				PFX_OWNER(i * 64 + (uint32_t)__builtin_ctzll(b), hi - lo);
	}
}

/* Copy the owners of blocks lo..hi-1 to an unpublished header of length hi - lo. */
int kvr_prefix__owner_copy(struct kvr_prefix *table, struct pfx_hdr *from, struct pfx_hdr *to,
			   uint32_t lo, uint32_t hi)
{
	struct pfx_owners list;

	for (uint32_t p = 0; p < pfx_planes_of(from); p++) {
		struct pfx_oset owners;

		kvr_prefix__owner_list(table, from, p, lo, hi, &list);
		if (list.n == 0)
			continue;
		if (p != KVR_TIER_DEVICE && need_ext(table, to) < 0)
			return -ENOMEM;
		owners = pfx_oset(table, to, p);
		if (list.n > owners.inl && grow_big(table, owners, hi - lo) < 0)
			return -ENOMEM;
		for (uint32_t i = 0; i < list.n; i++) {
			if (list.n > owners.inl)
				big_add(table, pfx_ld32(owners.big), PFX_RANK(list.o[i]),
					PFX_LEAD(list.o[i]), hi - lo);
			else
				pfx_st32(&owners.owner[i], list.o[i]);
		}
	}
	return 0;
}

/*
 * Retire the blocks of a header that can no longer be found: they are freed when the readers have
 * left.
 */
void kvr_prefix__owner_retire(struct kvr_prefix *table, struct pfx_hdr *hdr)
{
	uint32_t ext = pfx_ld32(&hdr->ext);

	for (uint32_t p = 0; p < (ext == PFX_NONE ? 1 : PFX_PLANES); p++) {
		uint32_t big = pfx_ld32(pfx_oset(table, hdr, p).big);

		if (big != PFX_NONE)
			kvr_prefix__pool_retire(table, &table->bigs, big);
	}
	if (ext != PFX_NONE)
		kvr_prefix__pool_retire(table, &table->exts, ext);
}
