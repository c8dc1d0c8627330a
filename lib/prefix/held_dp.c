/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Runs that each rank holds: a row of bits for each rank, and a summary bit for each word of the
 * row. Also the rank that a run is charged to: one of its owners, if it has any.
 */

#include "held_pvt.h"

static uint16_t first_owner(_Atomic uint32_t *w, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t o = pfx_ld32(&w[i]);

		if (o != 0)
			return PFX_RANK(o);
	}
	return UINT16_MAX;
}

/* Any owner of the run; UINT16_MAX if there is none. */
static uint16_t any_owner(const struct kvr_prefix *table, struct pfx_hdr *hdr)
{
	for (uint32_t p = 0; p < pfx_planes_of(hdr); p++) {
		struct pfx_oset owners = pfx_oset(table, hdr, p);
		uint32_t big = pfx_ld32(owners.big);
		uint16_t rank = big == PFX_NONE ? first_owner(owners.owner, owners.inl)
						: first_owner(pfx_parts(table, pfx_big(table, big)),
							      table->big_parts);

		for (uint32_t i = 0; big != PFX_NONE && rank == UINT16_MAX && i < table->big_words;
		     i++) {
			uint64_t b = atomic_load_explicit(&pfx_big(table, big)->bits[i],
							  memory_order_relaxed);

			if (b != 0)
				rank = (uint16_t)(i * 64 + (uint32_t)__builtin_ctzll(b));
		}
		if (rank != UINT16_MAX)
			return rank;
	}
	return UINT16_MAX;
}

static void recharge_run(struct kvr_prefix *table, uint32_t meta)
{
	struct pfx_meta *run = &table->meta[meta];
	struct pfx_hdr *hdr = &table->hdr[run->hdr];
	uint16_t to = any_owner(table, hdr);

	if (to == UINT16_MAX || to == run->charge)
		return;
	if (run->nchild == 0)
		kvr_prefix__list_del(table, meta);
	pfx_discharge(table, run->charge, 1, pfx_len(hdr));
	run->charge = to;
	pfx_charge(table, to, 1, pfx_len(hdr));
	if (run->nchild == 0)
		kvr_prefix__list_add(table, meta, run->age);
}

/*
 * `rank` has no block left in one plane of the run: if that is true of all planes, remove its bit
 * and charge another owner.
 */
void kvr_prefix__held_drop(struct kvr_prefix *table, uint16_t rank, uint32_t meta)
{
	struct pfx_hdr *hdr = pfx_hdr_of(table, meta);

	if (pfx_planes_of(hdr) > 1 && kvr_prefix__owner_has(table, hdr, rank))
		return;
	pfx_held_del(table, rank, meta);
	if (table->meta[meta].charge == rank)
		recharge_run(table, meta);
}

/* The first non-zero word of the row at or after `from`, or UINT32_MAX. */
static uint32_t next_word(const struct kvr_prefix *table, uint16_t rank, uint32_t from)
{
	const uint64_t *s = &table->sum[(size_t)rank * table->sum_words];
	uint64_t mask = ~UINT64_C(0) << (from % 64);

	for (uint32_t i = from / 64; i < table->sum_words; i++, mask = ~UINT64_C(0)) {
		if (s[i] & mask)
			return i * 64 + (uint32_t)__builtin_ctzll(s[i] & mask);
	}
	return UINT32_MAX;
}

/*
 * Store up to `max` runs that the rank holds in meta[], lowest numbers first. @return their number.
 */
uint32_t kvr_prefix__held_list(struct kvr_prefix *table, uint16_t rank, uint32_t meta[],
			       uint32_t max)
{
	struct pfx_rank *rank_info = &table->rank[rank];
	uint32_t n = 0, word;

	if (rank_info->held == 0)
		return 0;
	rank_info->hint = next_word(table, rank, rank_info->hint);
	for (word = rank_info->hint; n < max && word != UINT32_MAX;
	     word = next_word(table, rank, word + 1)) {
		for (uint64_t b = *pfx_held_word(table, rank, word); b != 0 && n < max; b &= b - 1)
			meta[n++] = word * 64 + (uint32_t)__builtin_ctzll(b);
	}
	return n;
}
