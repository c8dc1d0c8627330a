/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Which runs a rank has something of: a row of bits for each rank, and a bit for each word of the
 * row. And to whom a run is charged: to one of its owners, as long as it has any.
 */

#include "hold_pvt.h"

static uint16_t among(_Atomic uint32_t *w, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t o = pfx_ld32(&w[i]);

		if (o != 0)
			return PFX_RANK(o);
	}
	return UINT16_MAX;
}

/* Any owner of the run, or UINT16_MAX. */
static uint16_t any_owner(const struct kvr_prefix *t, struct pfx_hdr *h)
{
	for (uint32_t p = 0; p < pfx_planes_of(h); p++) {
		struct pfx_oset s = pfx_oset(t, h, p);
		uint32_t big = pfx_ld32(s.big);
		uint16_t rank = big == PFX_NONE
					? among(s.owner, s.inl)
					: among(pfx_parts(t, pfx_big(t, big)), t->big_parts);

		for (uint32_t i = 0; big != PFX_NONE && rank == UINT16_MAX && i < t->big_words;
		     i++) {
			uint64_t b = atomic_load_explicit(&pfx_big(t, big)->bits[i],
							  memory_order_relaxed);

			if (b != 0)
				rank = (uint16_t)(i * 64 + (uint32_t)__builtin_ctzll(b));
		}
		if (rank != UINT16_MAX)
			return rank;
	}
	return UINT16_MAX;
}

static void recharge(struct kvr_prefix *t, uint32_t meta)
{
	struct pfx_meta *m = &t->meta[meta];
	struct pfx_hdr *h = &t->hdr[m->hdr];
	uint16_t to = any_owner(t, h);

	if (to == UINT16_MAX || to == m->charge)
		return;
	if (m->nchild == 0)
		kvr_prefix__list_del(t, meta);
	pfx_discharge(t, m->charge, 1, pfx_len(h));
	m->charge = to;
	pfx_charge(t, to, 1, pfx_len(h));
	if (m->nchild == 0)
		kvr_prefix__list_add(t, meta, m->age);
}

/* `rank` has nothing left in one plane of the run: in all of them? */
void kvr_prefix__hold_drop(struct kvr_prefix *t, uint16_t rank, uint32_t meta)
{
	struct pfx_hdr *h = pfx_hdr_of(t, meta);

	if (pfx_planes_of(h) > 1 && kvr_prefix__owner_has(t, h, rank))
		return;
	pfx_hold_del(t, rank, meta);
	if (t->meta[meta].charge == rank)
		recharge(t, meta);
}

/* The first word of the row from `from` on that has a bit, or UINT32_MAX. */
static uint32_t next_word(const struct kvr_prefix *t, uint16_t rank, uint32_t from)
{
	const uint64_t *s = &t->sum[(size_t)rank * t->sum_words];
	uint64_t mask = ~UINT64_C(0) << (from % 64);

	for (uint32_t i = from / 64; i < t->sum_words; i++, mask = ~UINT64_C(0)) {
		if (s[i] & mask)
			return i * 64 + (uint32_t)__builtin_ctzll(s[i] & mask);
	}
	return UINT32_MAX;
}

/* Up to `max` runs that the rank has something of, the lowest numbers; gives how many. */
uint32_t kvr_prefix__hold_some(struct kvr_prefix *t, uint16_t rank, uint32_t meta[], uint32_t max)
{
	struct pfx_rank *r = &t->rank[rank];
	uint32_t n = 0, word;

	if (r->held == 0)
		return 0;
	r->hint = next_word(t, rank, r->hint);
	for (word = r->hint; n < max && word != UINT32_MAX; word = next_word(t, rank, word + 1)) {
		for (uint64_t b = *pfx_hold(t, rank, word); b != 0 && n < max; b &= b - 1)
			meta[n++] = word * 64 + (uint32_t)__builtin_ctzll(b);
	}
	return n;
}
