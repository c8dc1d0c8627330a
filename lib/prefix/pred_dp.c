/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Predicted blocks: a plane of owners like the tiers, and for each (run, rank) in it one entry
 * with the time it ends. One time for a run suffices: a prediction covers a prefix of the chain,
 * and where it ends inside what was predicted before, the run is split. Entries stand in a wheel
 * of 32 ms buckets; a renewed one stays where it is and is moved on when its bucket comes up.
 */

#include "prefix_pvt.h"

#include <errno.h>

static uint64_t mix_of(const struct kvr_prefix *t, uint32_t meta, uint16_t rank)
{
	return pfx_mix(t, (uint64_t)meta << 16 | rank);
}

uint32_t kvr_prefix__pred_find(const struct kvr_prefix *t, uint32_t meta, uint16_t rank)
{
	const uint64_t mix = mix_of(t, meta, rank);

	for (uint32_t i = pfx_index_home(&t->predx, mix);; i++) {
		const struct kvr_bucket *b = &t->predx.b[i];
		uint32_t m = pfx_index_masks(b, pfx_index_tag(mix)).tag;

		for (; m != 0; m &= m - 1) {
			uint32_t v = b->value[__builtin_ctz(m)];

			if (t->pred[v].meta == meta && t->pred[v].rank == rank)
				return v;
		}
		if (b->over == 0)
			return PFX_NONE;
	}
}

/*
 * The first bucket that comes up after the end, or a last one of the wheel if it is farther off:
 * not the one that was left a tick ago, move_on() empties it.
 */
static void enter_wheel(struct kvr_prefix *t, uint32_t i)
{
	uint64_t tick = (t->pred[i].until_ms + PFX_TICK_MS - 1) / PFX_TICK_MS;
	uint32_t b, first;

	tick = RTE_MIN(RTE_MAX(tick, t->tick), t->tick + PFX_WHEEL - 2);
	b = (uint32_t)(tick % PFX_WHEEL);
	first = t->wheel[b];
	t->pred[i].bucket = (uint16_t)b;
	t->pred[i].next = first;
	t->pred[i].prev = PFX_NONE;
	if (first != PFX_NONE)
		t->pred[first].prev = i;
	t->wheel[b] = i;
}

static void leave_wheel(struct kvr_prefix *t, uint32_t i)
{
	struct pfx_pred *p = &t->pred[i];

	if (p->prev != PFX_NONE)
		t->pred[p->prev].next = p->next;
	else
		t->wheel[p->bucket] = p->next;
	if (p->next != PFX_NONE)
		t->pred[p->next].prev = p->prev;
}

/* To the bucket of the time it ends now. */
void kvr_prefix__pred_requeue(struct kvr_prefix *t, uint32_t i)
{
	leave_wheel(t, i);
	enter_wheel(t, i);
}

static void enter_run(struct kvr_prefix *t, uint32_t i, uint32_t meta)
{
	struct pfx_pred *p = &t->pred[i];
	uint32_t first = t->meta[meta].pred;

	p->meta = meta;
	p->run_next = first;
	p->run_prev = PFX_NONE;
	if (first != PFX_NONE)
		t->pred[first].run_prev = i;
	t->meta[meta].pred = i;
	kvr_prefix__index_add(&t->predx, mix_of(t, meta, p->rank), i);
}

static void leave_run(struct kvr_prefix *t, uint32_t i)
{
	struct pfx_pred *p = &t->pred[i];

	kvr_prefix__index_del(&t->predx, mix_of(t, p->meta, p->rank), i);
	if (p->run_prev != PFX_NONE)
		t->pred[p->run_prev].run_next = p->run_next;
	else
		t->meta[p->meta].pred = p->run_next;
	if (p->run_next != PFX_NONE)
		t->pred[p->run_next].run_prev = p->run_prev;
}

static int add(struct kvr_prefix *t, uint32_t meta, uint16_t rank, uint64_t until_ms)
{
	uint32_t i = kvr_prefix__pool_take(&t->preds);

	if (i == PFX_NONE)
		return -ENOMEM;
	t->pred[i].rank = rank;
	t->pred[i].until_ms = until_ms;
	enter_run(t, i, meta);
	enter_wheel(t, i);
	pfx_add(&t->st.predicted, 1);
	return 0;
}

void kvr_prefix__pred_del(struct kvr_prefix *t, uint32_t i)
{
	leave_run(t, i);
	leave_wheel(t, i);
	kvr_prefix__pool_give(&t->preds, i);
	pfx_sub(&t->st.predicted, 1);
}

/* The blocks that `rank` is predicted to hold of the run end at until_ms. */
int kvr_prefix__pred_touch(struct kvr_prefix *t, uint32_t meta, uint16_t rank, uint64_t until_ms)
{
	uint32_t i = kvr_prefix__pred_find(t, meta, rank);

	if (i == PFX_NONE)
		return add(t, meta, rank, until_ms);
	t->pred[i].until_ms = RTE_MAX(t->pred[i].until_ms, until_ms);
	return 0;
}

/* A run was split: entries follow the blocks; what reached over the cut stands in both. */
void kvr_prefix__pred_split(struct kvr_prefix *t, uint32_t head, uint32_t tail)
{
	for (uint32_t i = t->meta[tail].pred, next; i != PFX_NONE; i = next) {
		uint16_t rank = t->pred[i].rank;

		next = t->pred[i].run_next;
		if (kvr_prefix__owner_get(t, pfx_hdr_of(t, tail), PFX_PRED, rank) == 0) {
			leave_run(t, i);
			enter_run(t, i, head);
		} else {
			add(t, head, rank,
			    t->pred[i].until_ms); /* the splitter has checked the pool */
		}
	}
}

/* Are there entries enough to split this run? */
bool kvr_prefix__pred_can_split(const struct kvr_prefix *t, uint32_t meta)
{
	uint32_t room = pfx_pool_free(&t->preds);

	for (uint32_t i = t->meta[meta].pred; i != PFX_NONE; i = t->pred[i].run_next) {
		if (room-- == 0)
			return false;
	}
	return true;
}

/* The run goes: so do its entries. */
void kvr_prefix__pred_drop_all(struct kvr_prefix *t, uint32_t meta)
{
	while (t->meta[meta].pred != PFX_NONE)
		kvr_prefix__pred_del(t, t->meta[meta].pred);
}

/* The rank gives up the run: its entry goes, the owner is the caller's. */
bool kvr_prefix__pred_forget(struct kvr_prefix *t, uint32_t meta, uint16_t rank)
{
	uint32_t i =
		t->meta[meta].pred != PFX_NONE ? kvr_prefix__pred_find(t, meta, rank) : PFX_NONE;

	if (i != PFX_NONE)
		kvr_prefix__pred_del(t, i);
	return i != PFX_NONE;
}
