/* SPDX-License-Identifier: BSD-3-Clause */
/* Owners of a run: up to 8 in the header, more in a wide record indexed by rank. */
#include "active_pvt.h"

#include <immintrin.h>
#include <string.h>

/* Compare all places: the position follows no pattern that a branch could learn. */
static inline uint32_t inline_find(const struct run *run, uint32_t rank)
{
	const __m128i want = _mm_set1_epi32((int)rank);
	const __m128i *at = (const __m128i *)(const void *)run->rank;
	__m128i low = _mm_cmpeq_epi32(_mm_load_si128(at), want);
	__m128i high = _mm_cmpeq_epi32(_mm_load_si128(at + 1), want);
	uint32_t found = (uint32_t)_mm_movemask_epi8(
		_mm_packs_epi16(_mm_packs_epi32(low, high), _mm_setzero_si128()));

	/* Places after the last owner contain stale ranks. */
	return (uint32_t)__builtin_ctz(found | 1u << run->n_owner);
}

/* Weight in a wide record; stored weights are valid only once the run is faded. */
static uint32_t get_weight(const struct kvr_active *active, const struct run *run, uint32_t rank)
{
	return run->faded ? wide_weight(active, run->wide)[rank] : KVR_ACTIVE_ONE;
}

struct owner kvr_active__owner(const struct kvr_active *active, uint32_t run, uint32_t rank)
{
	const struct run *header = &active->run[run];
	uint32_t i;

	if (header->wide != 0)
		return (struct owner){wide_refs(active, header->wide)[rank],
				      get_weight(active, header, rank)};
	i = inline_find(header, rank);
	return i < header->n_owner ? header->owner[i] : (struct owner){0};
}

/* Set the weight of one owner. From now on the stored weights of a wide record are valid. */
void kvr_active__weigh(struct kvr_active *active, uint32_t run, uint32_t rank, uint32_t weight)
{
	struct run *header = &active->run[run];

	if (header->wide == 0)
		header->owner[inline_find(header, rank)].weight = weight;
	for (uint32_t i = 0; header->wide != 0 && !header->faded && i < active->max_ranks; i++)
		wide_weight(active, header->wide)[i] = KVR_ACTIVE_ONE;
	if (header->wide != 0)
		wide_weight(active, header->wide)[rank] = weight;
	header->faded = true;
}

/* Attach a wide record. Counts of ranks outside the set stay zero. */
static bool widen_run(struct kvr_active *active, struct run *run)
{
	uint32_t id;

	if (!pool_take(&active->wides, &id))
		return false;
	run->wide = id + 1;
	for (uint32_t i = 0; i < run->n_owner; i++) {
		uint32_t rank = run->rank[i];

		wide_set(active, run->wide)[rank / 64] |= UINT64_C(1) << rank % 64;
		wide_refs(active, run->wide)[rank] = run->owner[i].refs;
		wide_weight(active, run->wide)[rank] = run->owner[i].weight;
	}
	return true;
}

/* Return the wide record, zeroed as widen_run() expects it. Owners move inline if they fit. */
static void narrow_run(struct kvr_active *active, struct run *run)
{
	uint32_t *refs = wide_refs(active, run->wide);
	uint64_t *set = wide_set(active, run->wide);
	uint32_t n = 0;

	for (uint32_t w = 0; w < active->max_ranks / 64; w++) {
		for (uint64_t bits = set[w]; bits != 0; bits &= bits - 1) {
			uint32_t rank = w * 64 + (uint32_t)__builtin_ctzll(bits);

			if (n < INLINE) {
				run->rank[n] = rank;
				run->owner[n++] =
					(struct owner){refs[rank], get_weight(active, run, rank)};
			}
			refs[rank] = 0;
		}
		set[w] = 0;
	}
	pool_give(&active->wides, run->wide - 1);
	run->wide = 0;
}

/* No branch on whether this is the first booking of the rank: that follows no pattern. */
bool kvr_active__own(struct kvr_active *active, uint32_t run, uint32_t rank)
{
	struct run *header = &active->run[run];
	uint32_t i, *refs;
	bool first;

	header->bookings++;
	if (header->wide == 0) {
		i = inline_find(header, rank);
		if (i < INLINE) {
			first = i == header->n_owner;
			header->rank[i] = rank;
			header->owner[i].refs = (first ? 0 : header->owner[i].refs) + 1;
			header->owner[i].weight = first ? KVR_ACTIVE_ONE : header->owner[i].weight;
			goto added;
		}
		if (!widen_run(active, header)) {
			header->bookings--;
			return false;
		}
	}
	refs = &wide_refs(active, header->wide)[rank];
	first = (*refs)++ == 0;
	if (header->faded && first)
		wide_weight(active, header->wide)[rank] = KVR_ACTIVE_ONE;
	wide_set(active, header->wide)[rank / 64] |= UINT64_C(1) << rank % 64;
added:
	header->n_owner += first;
	active->sum[rank] += (uint64_t)(first ? header->len : 0) * KVR_ACTIVE_ONE;
	return true;
}

static void disown_wide(struct kvr_active *active, struct run *run, uint32_t rank)
{
	uint32_t *refs = &wide_refs(active, run->wide)[rank];
	bool gone;

	if (*refs == 0)
		return;
	run->bookings--;
	gone = --*refs == 0;
	active->sum[rank] -= (uint64_t)(gone ? run->len : 0) * get_weight(active, run, rank);
	run->n_owner -= gone;
	wide_set(active, run->wide)[rank / 64] &= ~((uint64_t)gone << rank % 64);
	if (run->n_owner <= TO_INLINE)
		narrow_run(active, run);
}

void kvr_active__disown(struct kvr_active *active, uint32_t run, uint32_t rank)
{
	struct run *header = &active->run[run];
	uint32_t i, last;
	bool gone;

	if (header->wide != 0) {
		disown_wide(active, header, rank);
		return;
	}
	i = inline_find(header, rank);
	if (i == header->n_owner)
		return;
	header->bookings--;
	gone = --header->owner[i].refs == 0;
	active->sum[rank] -= (uint64_t)(gone ? header->len : 0) * header->owner[i].weight;
	header->n_owner -= gone;
	last = gone ? header->n_owner : i;
	header->rank[i] = header->rank[last];
	header->owner[i] = header->owner[last];
}

/* Copy the owners to a run that was split off. Sums do not change, as no block is added. */
bool kvr_active__own_copy(struct kvr_active *active, uint32_t to, uint32_t from)
{
	struct run *run = &active->run[to];
	const struct run *header = &active->run[from];
	uint32_t id;

	run->n_owner = header->n_owner;
	run->bookings = header->bookings;
	run->faded = header->faded;
	run->wide = 0;
	if (header->wide == 0) {
		memcpy(run->rank, header->rank, sizeof(run->rank));
		memcpy(run->owner, header->owner, sizeof(run->owner));
		return true;
	}
	if (!pool_take(&active->wides, &id))
		return false;
	run->wide = id + 1;
	memcpy(wide_set(active, run->wide), wide_set(active, header->wide), active->max_ranks / 8);
	memcpy(wide_refs(active, run->wide), wide_refs(active, header->wide),
	       active->max_ranks * sizeof(uint32_t));
	if (header->faded)
		memcpy(wide_weight(active, run->wide), wide_weight(active, header->wide),
		       active->max_ranks * sizeof(uint32_t));
	return true;
}

/* Remove all owners of a run whose blocks another run with the same owners now counts. */
void kvr_active__own_none(struct kvr_active *active, uint32_t run)
{
	struct run *header = &active->run[run];

	if (header->wide != 0)
		narrow_run(active, header);
	header->n_owner = 0;
	header->bookings = 0;
}
