/* SPDX-License-Identifier: BSD-3-Clause */
/* Owners of a run: up to 8 inside the header, then a wide record indexed by rank. */
#include "active_pvt.h"

#include <immintrin.h>
#include <string.h>

/* All places are compared, as which it is follows no pattern that a branch could learn. */
static inline uint32_t inline_find(const struct run *r, uint32_t rank)
{
	const __m128i want = _mm_set1_epi32((int)rank);
	const __m128i *at = (const __m128i *)(const void *)r->rank;
	__m128i low = _mm_cmpeq_epi32(_mm_load_si128(at), want);
	__m128i high = _mm_cmpeq_epi32(_mm_load_si128(at + 1), want);
	uint32_t found = (uint32_t)_mm_movemask_epi8(
		_mm_packs_epi16(_mm_packs_epi32(low, high), _mm_setzero_si128()));

	/* Behind the last owner there are old ones. */
	return (uint32_t)__builtin_ctz(found | 1u << r->n_owner);
}

/* In a wide record; a weight counts only once the run is faded. */
static uint32_t weight_of(const struct kvr_active *a, const struct run *r, uint32_t rank)
{
	return r->faded ? wide_weight(a, r->wide)[rank] : KVR_ACTIVE_ONE;
}

struct owner kvr_active__owner(const struct kvr_active *a, uint32_t run, uint32_t rank)
{
	const struct run *r = &a->run[run];
	uint32_t i;

	if (r->wide != 0)
		return (struct owner){wide_refs(a, r->wide)[rank], weight_of(a, r, rank)};
	i = inline_find(r, rank);
	return i < r->n_owner ? r->owner[i] : (struct owner){0};
}

/* Give the part of an owner another weight. From now on the weights of a wide record count. */
void kvr_active__weigh(struct kvr_active *a, uint32_t run, uint32_t rank, uint32_t weight)
{
	struct run *r = &a->run[run];

	if (r->wide == 0)
		r->owner[inline_find(r, rank)].weight = weight;
	for (uint32_t i = 0; r->wide != 0 && !r->faded && i < a->max_ranks; i++)
		wide_weight(a, r->wide)[i] = KVR_ACTIVE_ONE;
	if (r->wide != 0)
		wide_weight(a, r->wide)[rank] = weight;
	r->faded = true;
}

/* Counts of ranks outside the set are left as they are: zero. */
static bool widen(struct kvr_active *a, struct run *r)
{
	uint32_t id;

	if (!pool_take(&a->wides, &id))
		return false;
	r->wide = id + 1;
	for (uint32_t i = 0; i < r->n_owner; i++) {
		uint32_t rank = r->rank[i];

		wide_set(a, r->wide)[rank / 64] |= UINT64_C(1) << rank % 64;
		wide_refs(a, r->wide)[rank] = r->owner[i].refs;
		wide_weight(a, r->wide)[rank] = r->owner[i].weight;
	}
	return true;
}

/* Give the wide record back, zero as widen() expects it; owners inline, when they fit. */
static void narrow(struct kvr_active *a, struct run *r)
{
	uint32_t *refs = wide_refs(a, r->wide);
	uint64_t *set = wide_set(a, r->wide);
	uint32_t n = 0;

	for (uint32_t w = 0; w < a->max_ranks / 64; w++) {
		for (uint64_t bits = set[w]; bits != 0; bits &= bits - 1) {
			uint32_t rank = w * 64 + (uint32_t)__builtin_ctzll(bits);

			if (n < INLINE) {
				r->rank[n] = rank;
				r->owner[n++] = (struct owner){refs[rank], weight_of(a, r, rank)};
			}
			refs[rank] = 0;
		}
		set[w] = 0;
	}
	pool_give(&a->wides, r->wide - 1);
	r->wide = 0;
}

/* Whether it is the rank's first booking or one more follows no pattern either. */
bool kvr_active__own(struct kvr_active *a, uint32_t run, uint32_t rank)
{
	struct run *r = &a->run[run];
	uint32_t i, *refs;
	bool first;

	r->bookings++;
	if (r->wide == 0) {
		i = inline_find(r, rank);
		if (i < INLINE) {
			first = i == r->n_owner;
			r->rank[i] = rank;
			r->owner[i].refs = (first ? 0 : r->owner[i].refs) + 1;
			r->owner[i].weight = first ? KVR_ACTIVE_ONE : r->owner[i].weight;
			goto added;
		}
		if (!widen(a, r)) {
			r->bookings--;
			return false;
		}
	}
	refs = &wide_refs(a, r->wide)[rank];
	first = (*refs)++ == 0;
	if (r->faded && first)
		wide_weight(a, r->wide)[rank] = KVR_ACTIVE_ONE;
	wide_set(a, r->wide)[rank / 64] |= UINT64_C(1) << rank % 64;
added:
	r->n_owner += first;
	a->sum[rank] += (uint64_t)(first ? r->len : 0) * KVR_ACTIVE_ONE;
	return true;
}

static void disown_wide(struct kvr_active *a, struct run *r, uint32_t rank)
{
	uint32_t *refs = &wide_refs(a, r->wide)[rank];
	bool gone;

	if (*refs == 0)
		return;
	r->bookings--;
	gone = --*refs == 0;
	a->sum[rank] -= (uint64_t)(gone ? r->len : 0) * weight_of(a, r, rank);
	r->n_owner -= gone;
	wide_set(a, r->wide)[rank / 64] &= ~((uint64_t)gone << rank % 64);
	if (r->n_owner <= TO_INLINE)
		narrow(a, r);
}

void kvr_active__disown(struct kvr_active *a, uint32_t run, uint32_t rank)
{
	struct run *r = &a->run[run];
	uint32_t i, last;
	bool gone;

	if (r->wide != 0) {
		disown_wide(a, r, rank);
		return;
	}
	i = inline_find(r, rank);
	if (i == r->n_owner)
		return;
	r->bookings--;
	gone = --r->owner[i].refs == 0;
	a->sum[rank] -= (uint64_t)(gone ? r->len : 0) * r->owner[i].weight;
	r->n_owner -= gone;
	last = gone ? r->n_owner : i;
	r->rank[i] = r->rank[last];
	r->owner[i] = r->owner[last];
}

/* Same owners for a run cut off another; sums do not change, as no block is added. */
bool kvr_active__own_copy(struct kvr_active *a, uint32_t to, uint32_t from)
{
	struct run *t = &a->run[to];
	const struct run *f = &a->run[from];
	uint32_t id;

	t->n_owner = f->n_owner;
	t->bookings = f->bookings;
	t->faded = f->faded;
	t->wide = 0;
	if (f->wide == 0) {
		memcpy(t->rank, f->rank, sizeof(t->rank));
		memcpy(t->owner, f->owner, sizeof(t->owner));
		return true;
	}
	if (!pool_take(&a->wides, &id))
		return false;
	t->wide = id + 1;
	memcpy(wide_set(a, t->wide), wide_set(a, f->wide), a->max_ranks / 8);
	memcpy(wide_refs(a, t->wide), wide_refs(a, f->wide), a->max_ranks * sizeof(uint32_t));
	if (f->faded)
		memcpy(wide_weight(a, t->wide), wide_weight(a, f->wide),
		       a->max_ranks * sizeof(uint32_t));
	return true;
}

/* The run goes, and its blocks are counted by another one of the same owners. */
void kvr_active__own_none(struct kvr_active *a, uint32_t run)
{
	struct run *r = &a->run[run];

	if (r->wide != 0)
		narrow(a, r);
	r->n_owner = 0;
	r->bookings = 0;
}
