/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Entries of predicted blocks. Predictions are a plane of owners like a tier; in addition each
 * (run, rank) has one entry with its end time. One time per run suffices: a prediction covers a
 * prefix of the chain, and if it ends inside a run that was predicted before, the run is split.
 * Entries are in a wheel of 32 ms buckets. A renewed entry stays in its bucket and is moved when
 * that bucket is due.
 */

#include "prefix_pvt.h"

#include <errno.h>

static uint64_t mix_of(const struct kvr_prefix *table, uint32_t meta, uint16_t rank)
{
	return pfx_mix(table, (uint64_t)meta << 16 | rank);
}

uint32_t kvr_prefix__pred_find(const struct kvr_prefix *table, uint32_t meta, uint16_t rank)
{
	const uint64_t mix = mix_of(table, meta, rank);

	for (uint32_t i = pfx_index_home(&table->predx, mix);; i++) {
		const struct kvr_bucket *bucket = &table->predx.b[i];
		uint32_t m = pfx_index_masks(bucket, pfx_index_tag(mix)).tag;

		for (; m != 0; m &= m - 1) {
			uint32_t v = bucket->value[__builtin_ctz(m)];

			if (table->pred[v].meta == meta && table->pred[v].rank == rank)
				return v;
		}
		if (bucket->over == 0)
			return PFX_NONE;
	}
}

/*
 * Enter the first bucket after the end time, or one of the last buckets of the wheel if the end is
 * farther away. The bucket that was left one tick ago is excluded, because requeue_later() empties
 * it.
 */
static void enter_wheel(struct kvr_prefix *table, uint32_t i)
{
	uint64_t tick = (table->pred[i].until_ms + PFX_TICK_MS - 1) / PFX_TICK_MS;
	uint32_t b, first;

	tick = RTE_MIN(RTE_MAX(tick, table->tick), table->tick + PFX_WHEEL - 2);
	b = (uint32_t)(tick % PFX_WHEEL);
	first = table->wheel[b];
	table->pred[i].bucket = (uint16_t)b;
	table->pred[i].next = first;
	table->pred[i].prev = PFX_NONE;
	if (first != PFX_NONE)
		table->pred[first].prev = i;
	table->wheel[b] = i;
}

static void leave_wheel(struct kvr_prefix *table, uint32_t i)
{
	struct pfx_pred *entry = &table->pred[i];

	if (entry->prev != PFX_NONE)
		table->pred[entry->prev].next = entry->next;
	else
		table->wheel[entry->bucket] = entry->next;
	if (entry->next != PFX_NONE)
		table->pred[entry->next].prev = entry->prev;
}

/* Move the entry to the bucket of its current end time. */
void kvr_prefix__pred_requeue(struct kvr_prefix *table, uint32_t i)
{
	leave_wheel(table, i);
	enter_wheel(table, i);
}

static void enter_run(struct kvr_prefix *table, uint32_t i, uint32_t meta)
{
	struct pfx_pred *entry = &table->pred[i];
	uint32_t first = table->meta[meta].pred;

	entry->meta = meta;
	entry->run_next = first;
	entry->run_prev = PFX_NONE;
	if (first != PFX_NONE)
		table->pred[first].run_prev = i;
	table->meta[meta].pred = i;
	kvr_prefix__index_add(&table->predx, mix_of(table, meta, entry->rank), i);
}

static void leave_run(struct kvr_prefix *table, uint32_t i)
{
	struct pfx_pred *entry = &table->pred[i];

	kvr_prefix__index_del(&table->predx, mix_of(table, entry->meta, entry->rank), i);
	if (entry->run_prev != PFX_NONE)
		table->pred[entry->run_prev].run_next = entry->run_next;
	else
		table->meta[entry->meta].pred = entry->run_next;
	if (entry->run_next != PFX_NONE)
		table->pred[entry->run_next].run_prev = entry->run_prev;
}

static int add_entry(struct kvr_prefix *table, uint32_t meta, uint16_t rank, uint64_t until_ms)
{
	uint32_t i = kvr_prefix__pool_take(&table->preds);

	if (i == PFX_NONE)
		return -ENOMEM;
	table->pred[i].rank = rank;
	table->pred[i].until_ms = until_ms;
	enter_run(table, i, meta);
	enter_wheel(table, i);
	pfx_add(&table->st.predicted, 1);
	return 0;
}

void kvr_prefix__pred_del(struct kvr_prefix *table, uint32_t i)
{
	leave_run(table, i);
	leave_wheel(table, i);
	kvr_prefix__pool_give(&table->preds, i);
	pfx_sub(&table->st.predicted, 1);
}

/* Set the end time of the blocks of the run that `rank` is predicted to hold. */
int kvr_prefix__pred_renew(struct kvr_prefix *table, uint32_t meta, uint16_t rank,
			   uint64_t until_ms)
{
	uint32_t i = kvr_prefix__pred_find(table, meta, rank);

	if (i == PFX_NONE)
		return add_entry(table, meta, rank, until_ms);
	table->pred[i].until_ms = RTE_MAX(table->pred[i].until_ms, until_ms);
	return 0;
}

/*
 * After a split: entries follow their blocks. An entry that reaches beyond the cut is in both runs.
 */
void kvr_prefix__pred_split(struct kvr_prefix *table, uint32_t head, uint32_t tail)
{
	for (uint32_t i = table->meta[tail].pred, next; i != PFX_NONE; i = next) {
		uint16_t rank = table->pred[i].rank;

		next = table->pred[i].run_next;
		if (kvr_prefix__owner_get(table, pfx_hdr_of(table, tail), PFX_PRED, rank) == 0) {
			leave_run(table, i);
			enter_run(table, i, head);
		} else {
			add_entry(table, head, rank,
				  table->pred[i].until_ms); /* the caller has checked the pool */
		}
	}
}

/* Return true if the pool has enough entries to split this run. */
bool kvr_prefix__pred_can_split(const struct kvr_prefix *table, uint32_t meta)
{
	uint32_t room = pfx_pool_free(&table->preds);

	for (uint32_t i = table->meta[meta].pred; i != PFX_NONE; i = table->pred[i].run_next) {
		if (room-- == 0)
			return false;
	}
	return true;
}

/* Remove all entries of a run that is being destroyed. */
void kvr_prefix__pred_drop_all(struct kvr_prefix *table, uint32_t meta)
{
	while (table->meta[meta].pred != PFX_NONE)
		kvr_prefix__pred_del(table, table->meta[meta].pred);
}

/* Remove the entry of a rank that gives up the run. The caller removes the owner. */
bool kvr_prefix__pred_remove(struct kvr_prefix *table, uint32_t meta, uint16_t rank)
{
	uint32_t i = table->meta[meta].pred != PFX_NONE ? kvr_prefix__pred_find(table, meta, rank)
							: PFX_NONE;

	if (i != PFX_NONE)
		kvr_prefix__pred_del(table, i);
	return i != PFX_NONE;
}
