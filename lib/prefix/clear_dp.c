/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Clearing a rank: it is hidden at once, and its blocks are freed in slices. A reader never counts
 * too much:
 *   reader started before hide_rank()  sees the recorded loss and limits the rank to the count of
 * one run reader started while hidden        writes 0 for the rank reader started after show_rank()
 * finds no block of the rank
 */

#include "prefix_pvt.h"

#define GROUP 16u /* runs prefetched together */

/*
 * Units of work (16 to 30 ns) per run, in addition to its blocks; also the estimate for the cache
 * misses of each run of a group.
 */
#define RUN_UNITS 20u

/* Hide first, then record the loss. A reader that sees a later store also sees both. */
static void hide_rank(struct kvr_prefix *table, uint16_t rank)
{
	uint64_t w = atomic_load_explicit(&table->hidden[rank / 64], memory_order_relaxed);

	atomic_store_explicit(&table->hidden[rank / 64], w | UINT64_C(1) << (rank % 64),
			      memory_order_relaxed);
	/*
	 * Release: pairs with the acquire in load_hidden(): a reader that sees the number also sees
	 * the bit.
	 */
	atomic_store_explicit(&table->nhidden, pfx_ld32(&table->nhidden) + 1, memory_order_release);
	pfx_note_loss(table, rank);
	atomic_thread_fence(memory_order_release); /* before later relaxed stores of owners */
	for (uint32_t p = 0; p < KVR_TIERS; p++) {
		const uint64_t n = kvr_cell_get(&table->rank_blocks[rank][p]);

		pfx_add(&table->st.cleared, n);
		pfx_sub(&table->st.entries, n);
	}
	for (uint32_t p = 0; p < PFX_PLANES; p++)
		kvr_cell_set(&table->rank_blocks[rank][p], 0);
	table->rank[rank].hidden = true;
	pfx_add(&table->st.clearing, 1);
}

/* Record the loss first, then show: a reader that started earlier finds the loss. */
static void show_rank(struct kvr_prefix *table, uint16_t rank)
{
	uint64_t w = atomic_load_explicit(&table->hidden[rank / 64], memory_order_relaxed);

	pfx_note_loss(table, rank);
	/* Release: pairs with the acquire in load_hidden(): all blocks of the rank are gone. */
	atomic_store_explicit(&table->hidden[rank / 64], w & ~(UINT64_C(1) << (rank % 64)),
			      memory_order_release);
	atomic_store_explicit(&table->nhidden, pfx_ld32(&table->nhidden) - 1, memory_order_release);
	atomic_thread_fence(memory_order_release);
	table->rank[rank].hidden = false;
	pfx_sub(&table->st.clearing, 1);
}

static void enqueue_rank(struct kvr_prefix *table, uint16_t rank)
{
	if (table->rank[rank].queued)
		return;
	table->rank[rank].queued = true;
	table->rank[rank].next = 0;
	if (table->clear_last != 0)
		table->rank[table->clear_last - 1].next = (uint16_t)(rank + 1);
	else
		table->clear_first = rank + 1u;
	table->clear_last = rank + 1u;
}

static void dequeue_rank(struct kvr_prefix *table)
{
	struct pfx_rank *rank_info = &table->rank[table->clear_first - 1];

	rank_info->queued = false;
	table->clear_first = rank_info->next;
	if (table->clear_first == 0)
		table->clear_last = 0;
}

/*
 * Remove all blocks of the rank from one run. @p counter as for pfx_uncount(). @return units of
 * work.
 */
uint32_t kvr_prefix__clear_run(struct kvr_prefix *table, uint32_t meta, uint16_t rank,
			       kvr_cell_t *counter)
{
	struct pfx_hdr *hdr = pfx_hdr_of(table, meta);
	uint64_t before = table->st.blocks;

	for (uint32_t p = 0; p < pfx_planes_of(hdr); p++) {
		uint32_t lead = kvr_prefix__owner_get(table, hdr, p, rank);

		if (p == PFX_PRED)
			kvr_prefix__pred_remove(table, meta, rank);
		if (lead == 0)
			continue;
		kvr_prefix__owner_set(table, hdr, p, rank, 0);
		pfx_uncount(table, rank, p, lead, counter);
	}
	if (!table->rank[rank].hidden)
		pfx_note_loss(table, rank);
	kvr_prefix__held_drop(table, rank, meta);
	kvr_prefix__run_trim(table, meta);
	return RUN_UNITS + (uint32_t)(before - table->st.blocks);
}

static void prefetch_runs(const struct kvr_prefix *table, const uint32_t meta[], uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		kvr_prefetch(&table->meta[meta[i]]);
	for (uint32_t i = 0; i < n; i++) {
		kvr_prefetch(pfx_hdr_of(table, meta[i]));
		kvr_prefetch(&pfx_hdr_of(table, meta[i])->chunk);
	}
	for (uint32_t i = 0; i < n; i++) {
		struct pfx_hdr *hdr = pfx_hdr_of(table, meta[i]);

		kvr_prefetch(pfx_sh(table, hdr, 0));
		if (pfx_ld32(&hdr->big) != PFX_NONE)
			kvr_prefetch(pfx_big(table, pfx_ld32(&hdr->big)));
	}
}

/* Clear the rank while there is credit. @return true if no run of it is left. */
static bool clear_rank_some(struct kvr_prefix *table, uint16_t rank)
{
	uint32_t meta[GROUP], n, units;

	while (table->rank[rank].held > 0 && table->credit > 0) {
		/* Prefetch only as many runs as the credit allows. */
		n = RTE_MIN(GROUP, table->credit / (2 * RUN_UNITS) + 1);
		n = kvr_prefix__held_list(table, rank, meta, n);
		prefetch_runs(table, meta, n);
		for (uint32_t i = 0; i < n && table->credit > 0; i++) {
			/* Leave a long run to the next turn. */
			if (table->credit < table->slice / 2 &&
			    pfx_len(pfx_hdr_of(table, meta[i])) > table->credit) {
				table->credit = 0;
				break;
			}
			units = kvr_prefix__clear_run(table, meta[i], rank, NULL);
			table->work += units;
			table->credit -= RTE_MIN(units, table->credit);
		}
	}
	if (table->rank[rank].held > 0)
		return false;
	show_rank(table, rank);
	return true;
}

static void clear_queued_ranks(struct kvr_prefix *table)
{
	while (table->clear_first != 0) {
		uint16_t rank = (uint16_t)(table->clear_first - 1);

		if (table->rank[rank].hidden &&
		    (table->credit == 0 || !clear_rank_some(table, rank)))
			return;
		dequeue_rank(table);
	}
}

/* Start a turn: reset the credit and continue with the queued ranks. */
void kvr_prefix__clear_slice(struct kvr_prefix *table)
{
	table->credit = table->slice;
	clear_queued_ranks(table);
}

/* Number of runs still to be cleared. */
uint32_t kvr_prefix__clear_left(const struct kvr_prefix *table)
{
	uint64_t n = 0;

	for (uint32_t r = table->clear_first; r != 0; r = table->rank[r - 1].next)
		n += table->rank[r - 1].hidden ? table->rank[r - 1].held : 0;
	return (uint32_t)RTE_MIN(n, (uint64_t)UINT32_MAX);
}

void kvr_prefix_clear_rank(struct kvr_prefix *table, uint16_t rank)
{
	if (rank >= table->max_ranks || table->rank[rank].held == 0 || table->rank[rank].hidden)
		return;
	hide_rank(table, rank);
	enqueue_rank(table, rank);
	clear_queued_ranks(table);
}

bool kvr_prefix_ready(struct kvr_prefix *table, uint16_t rank)
{
	if (rank >= table->max_ranks || !table->rank[rank].hidden)
		return true;
	return table->credit > 0 && clear_rank_some(table, rank);
}

void kvr_prefix_limit(struct kvr_prefix *table, uint16_t rank, uint64_t blocks)
{
	if (rank < table->max_ranks)
		table->rank[rank].limit = (uint32_t)RTE_MIN(blocks, (uint64_t)UINT32_MAX);
}
