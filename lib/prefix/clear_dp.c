/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A rank that is cleared is hidden at once and freed in slices. No reader counts too much:
 *   who began before hide()   has the note of it: cut to what one run said, which the rank had then
 *   who began while hidden    leaves the rank at 0
 *   who began after show()    meets nothing of the past
 */

#include "prefix_pvt.h"

#define GROUP 16u /* runs fetched together */

/* Units (16 to 30 ns) beside the blocks: of a run, and of each of a group for what it misses. */
#define RUN_UNITS 20u

/* First hidden, then noted; nothing that is stored afterwards is seen without both. */
static void hide(struct kvr_prefix *t, uint16_t rank)
{
	uint64_t w = atomic_load_explicit(&t->hidden[rank / 64], memory_order_relaxed);

	atomic_store_explicit(&t->hidden[rank / 64], w | UINT64_C(1) << (rank % 64),
			      memory_order_relaxed);
	/* Release: pairs with the acquire in load_hidden(): who sees the number sees the bit. */
	atomic_store_explicit(&t->nhidden, pfx_ld32(&t->nhidden) + 1, memory_order_release);
	pfx_note_loss(t, rank);
	atomic_thread_fence(memory_order_release); /* before later relaxed stores of owners */
	for (uint32_t p = 0; p < KVR_TIERS; p++) {
		const uint64_t n = kvr_cell_get(&t->rank_blocks[rank][p]);

		pfx_add(&t->st.cleared, n);
		pfx_sub(&t->st.entries, n);
	}
	for (uint32_t p = 0; p < PFX_PLANES; p++)
		kvr_cell_set(&t->rank_blocks[rank][p], 0);
	t->rank[rank].hidden = true;
	pfx_add(&t->st.clearing, 1);
}

/* First noted, then shown: a reader that began before that finds the note. */
static void show(struct kvr_prefix *t, uint16_t rank)
{
	uint64_t w = atomic_load_explicit(&t->hidden[rank / 64], memory_order_relaxed);

	pfx_note_loss(t, rank);
	/* Release: pairs with the acquire in load_hidden(); nothing of its past is left. */
	atomic_store_explicit(&t->hidden[rank / 64], w & ~(UINT64_C(1) << (rank % 64)),
			      memory_order_release);
	atomic_store_explicit(&t->nhidden, pfx_ld32(&t->nhidden) - 1, memory_order_release);
	atomic_thread_fence(memory_order_release);
	t->rank[rank].hidden = false;
	pfx_sub(&t->st.clearing, 1);
}

static void enqueue(struct kvr_prefix *t, uint16_t rank)
{
	if (t->rank[rank].queued)
		return;
	t->rank[rank].queued = true;
	t->rank[rank].next = 0;
	if (t->clear_last != 0)
		t->rank[t->clear_last - 1].next = (uint16_t)(rank + 1);
	else
		t->clear_first = rank + 1u;
	t->clear_last = rank + 1u;
}

static void dequeue(struct kvr_prefix *t)
{
	struct pfx_rank *r = &t->rank[t->clear_first - 1];

	r->queued = false;
	t->clear_first = r->next;
	if (t->clear_first == 0)
		t->clear_last = 0;
}

/* Take everything that the rank has of one run; gives the units. `counter` as for pfx_uncount(). */
uint32_t kvr_prefix__clear_run(struct kvr_prefix *t, uint32_t meta, uint16_t rank,
			       kvr_cell_t *counter)
{
	struct pfx_hdr *h = pfx_hdr_of(t, meta);
	uint64_t before = t->st.blocks;

	for (uint32_t p = 0; p < pfx_planes_of(h); p++) {
		uint32_t lead = kvr_prefix__owner_get(t, h, p, rank);

		if (p == PFX_PRED)
			kvr_prefix__pred_forget(t, meta, rank);
		if (lead == 0)
			continue;
		kvr_prefix__owner_set(t, h, p, rank, 0);
		pfx_uncount(t, rank, p, lead, counter);
	}
	if (!t->rank[rank].hidden)
		pfx_note_loss(t, rank);
	kvr_prefix__hold_drop(t, rank, meta);
	kvr_prefix__run_trim(t, meta);
	return RUN_UNITS + (uint32_t)(before - t->st.blocks);
}

static void fetch(const struct kvr_prefix *t, const uint32_t meta[], uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		kvr_prefetch(&t->meta[meta[i]]);
	for (uint32_t i = 0; i < n; i++) {
		kvr_prefetch(pfx_hdr_of(t, meta[i]));
		kvr_prefetch(&pfx_hdr_of(t, meta[i])->chunk);
	}
	for (uint32_t i = 0; i < n; i++) {
		struct pfx_hdr *h = pfx_hdr_of(t, meta[i]);

		kvr_prefetch(pfx_sh(t, h, 0));
		if (pfx_ld32(&h->big) != PFX_NONE)
			kvr_prefetch(pfx_big(t, pfx_ld32(&h->big)));
	}
}

/* Work on one rank while there is credit; true when nothing of it is left. */
static bool advance(struct kvr_prefix *t, uint16_t rank)
{
	uint32_t meta[GROUP], n, units;

	while (t->rank[rank].held > 0 && t->credit > 0) {
		/* No more are fetched than the credit may do. */
		n = RTE_MIN(GROUP, t->credit / (2 * RUN_UNITS) + 1);
		n = kvr_prefix__hold_some(t, rank, meta, n);
		fetch(t, meta, n);
		for (uint32_t i = 0; i < n && t->credit > 0; i++) {
			/* Not a long run at the end of a turn. */
			if (t->credit < t->slice / 2 &&
			    pfx_len(pfx_hdr_of(t, meta[i])) > t->credit) {
				t->credit = 0;
				break;
			}
			units = kvr_prefix__clear_run(t, meta[i], rank, NULL);
			t->work += units;
			t->credit -= RTE_MIN(units, t->credit);
		}
	}
	if (t->rank[rank].held > 0)
		return false;
	show(t, rank);
	return true;
}

static void advance_all(struct kvr_prefix *t)
{
	while (t->clear_first != 0) {
		uint16_t rank = (uint16_t)(t->clear_first - 1);

		if (t->rank[rank].hidden && (t->credit == 0 || !advance(t, rank)))
			return;
		dequeue(t);
	}
}

/* A turn begins: what it may spend, and the ranks that wait. */
void kvr_prefix__clear_slice(struct kvr_prefix *t)
{
	t->credit = t->slice;
	advance_all(t);
}

/* Runs that are still to be freed. */
uint32_t kvr_prefix__clear_left(const struct kvr_prefix *t)
{
	uint64_t n = 0;

	for (uint32_t r = t->clear_first; r != 0; r = t->rank[r - 1].next)
		n += t->rank[r - 1].hidden ? t->rank[r - 1].held : 0;
	return (uint32_t)RTE_MIN(n, (uint64_t)UINT32_MAX);
}

void kvr_prefix_clear_rank(struct kvr_prefix *t, uint16_t rank)
{
	if (rank >= t->max_ranks || t->rank[rank].held == 0 || t->rank[rank].hidden)
		return;
	hide(t, rank);
	enqueue(t, rank);
	advance_all(t);
}

bool kvr_prefix_ready(struct kvr_prefix *t, uint16_t rank)
{
	if (rank >= t->max_ranks || !t->rank[rank].hidden)
		return true;
	return t->credit > 0 && advance(t, rank);
}

void kvr_prefix_limit(struct kvr_prefix *t, uint16_t rank, uint64_t blocks)
{
	if (rank < t->max_ranks)
		t->rank[rank].limit = (uint32_t)RTE_MIN(blocks, (uint64_t)UINT32_MAX);
}
