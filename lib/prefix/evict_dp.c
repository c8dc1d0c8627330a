/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The bound. A run without children stands in the list of the rank it is charged to, by the
 * second it was last matched, as far as the writer knows; readers note the true second in the
 * header. The first run of a list is taken out: if readers matched it since, it is put where that
 * second belongs, else the rank gives it up. A run with children waits until they are gone:
 * dropping it would leave them out of reach; so that nobody has to look for one that may go, it
 * is in no list.
 *
 * Who gives up: the rank that wants to store, if it has more than its share; else a rank that has;
 * else the one with the oldest run. A rank that stores more than it may have pays itself.
 */

#include "run_pvt.h"

#define MOVES	   32u /* runs moved on, because they were matched, in one call */
#define REUSE	   16u /* runs given up by one victim before the ranks are compared again */
#define RUN_UNITS  24u
#define MOVE_UNITS 8u

/*
 * Has the rank more than its share of the blocks or of the runs? A run more than that is nobody's
 * fault: ranks take whole runs.
 */
static bool above_share(const struct kvr_prefix *t, const struct pfx_rank *r)
{
	uint32_t n = RTE_MAX(t->charged, 1u);

	return r->blocks > t->max_blocks / n + PFX_RUN || r->runs > t->metas.n / n + 8;
}

/* The oldest run that the rank may give up. */
static uint32_t oldest_of(const struct kvr_prefix *t, const struct pfx_rank *r, uint32_t keep)
{
	return r->first != keep || keep == PFX_NONE ? r->first : t->meta[keep].newer;
}

/* The rank above its share whose oldest run is the oldest; if none is above, of all ranks. */
static uint32_t choose(struct kvr_prefix *t, uint32_t keep)
{
	uint32_t best = UINT32_MAX, age = UINT32_MAX, best_above = UINT32_MAX,
		 age_above = UINT32_MAX;

	if (t->nvictim > 0 && oldest_of(t, &t->rank[t->victim], keep) != PFX_NONE) {
		t->nvictim--;
		return t->victim;
	}
	t->work += t->max_ranks / 16;
	for (uint32_t i = 0; i < t->max_ranks; i++) {
		const struct pfx_rank *r = &t->rank[i];

		if (r->age >= age && r->age >= age_above)
			continue;
		if (r->first == keep && oldest_of(t, r, keep) == PFX_NONE)
			continue;
		if (r->age < age) {
			age = r->age;
			best = i;
		}
		if (r->age < age_above && above_share(t, r)) {
			age_above = r->age;
			best_above = i;
		}
	}
	t->victim = best_above != UINT32_MAX ? best_above : best;
	/* Among ranks within their shares the oldest run of all goes: compare each time. */
	t->nvictim = best_above != UINT32_MAX ? REUSE : 0;
	return t->victim;
}

/*
 * The rank gives up its oldest run, but not `keep`; or it is moved on, as readers have matched it
 * since. False: it has none.
 */
static bool give_up(struct kvr_prefix *t, uint16_t rank, uint32_t keep, uint32_t *moves)
{
	uint32_t meta = oldest_of(t, &t->rank[rank], keep), age;

	if (meta == PFX_NONE)
		return false;
	age = pfx_ld32(&pfx_hdr_of(t, meta)->age);
	if (age > t->meta[meta].age && *moves > 0) {
		--*moves;
		t->work += MOVE_UNITS;
		kvr_prefix__list_del(t, meta);
		kvr_prefix__list_add(t, meta, age);
		return true;
	}
	pfx_add(&t->st.evicted_runs, 1);
	t->work += RUN_UNITS + kvr_prefix__clear_run(t, meta, rank, &t->st.evicted_entries);
	return true;
}

static bool give_up_any(struct kvr_prefix *t, uint16_t rank, uint32_t keep, uint32_t *moves)
{
	uint32_t v;

	if (t->charged > 1 && above_share(t, &t->rank[rank]))
		return give_up(t, rank, keep, moves);
	if (kvr_prefix__pred_drop_first(t))
		return true;
	v = choose(t, keep);
	return v != UINT32_MAX && give_up(t, (uint16_t)v, keep, moves);
}

/*
 * Make room for `rank` to store. Runs may be split or dropped, but not `keep`: other places known
 * before must be looked up again.
 */
void kvr_prefix__evict_make_room(struct kvr_prefix *t, uint16_t rank, uint32_t blocks,
				 uint32_t keep)
{
	uint32_t moves = MOVES, steps = 2 * blocks + 32 + moves;

	kvr_prefix__pool_reclaim(t);
	while (pfx_is_low(t, blocks, true) && steps-- > 0) {
		if (!give_up_any(t, rank, keep, &moves))
			break;
	}
	kvr_prefix__pool_reclaim(t);
}

/* The rank has more on its device than there can be: its own oldest go. */
void kvr_prefix__evict_to_limit(struct kvr_prefix *t, uint16_t rank, uint32_t steps)
{
	const struct pfx_rank *r = &t->rank[rank];
	uint32_t meta, moves = MOVES;

	while (steps-- > 0 && t->rank_blocks[rank][KVR_TIER_DEVICE] > r->limit) {
		if (give_up(t, rank, PFX_NONE, &moves))
			continue;
		/* Nothing that is its own has no children: any that it has. */
		if (kvr_prefix__hold_some(t, rank, &meta, 1) == 0)
			return;
		pfx_add(&t->st.evicted_runs, 1);
		t->work += kvr_prefix__clear_run(t, meta, rank, &t->st.evicted_entries);
	}
}
