/* SPDX-License-Identifier: BSD-3-Clause */
/* Book, fade and free: walks over the runs of one prompt, in two forms as in match_dp.c. */
#include "active_pvt.h"

#include <string.h>

#include <rte_common.h>

static void refresh_blocks(struct kvr_active *active, uint32_t rank)
{
	active->blocks[rank] = (uint32_t)((active->sum[rank] + ROUND_HALF) >> 31);
}

static void fetch_run(const struct kvr_active *active, uint32_t run)
{
	if (run == ROOT)
		return;
	kvr_prefetch(&active->run[run]);
	kvr_prefetch((const char *)&active->run[run] + 64);
}

/*
 * Prefetch the owner data that the end of a booking needs. If the run has no wide record, prefetch
 * the first record anyway: a branch on that would be mispredicted.
 */
static void fetch_owner(const struct kvr_active *active, const struct run *run, uint32_t rank)
{
	const uint32_t wide = run->wide != 0 ? run->wide : 1;

	kvr_prefetch(&wide_refs(active, wide)[rank]);
	kvr_prefetch(&wide_set(active, wide)[rank / 64]);
}

void kvr_active_prefetch(const struct kvr_active *active, const struct kvr_active_booking *booking,
			 int step)
{
	const struct run *run = &active->run[booking->tail - 1];

	__asm__ volatile(
		""); /* a side effect: gcc 12 removes calls of functions that only prefetch */
	if (booking->tail == 0)
		return;
	if (step == 0) {
		fetch_run(active, booking->tail - 1);
		kvr_prefetch(active->hash[booking->tail - 1]);
		return;
	}
	if (step == 1) {
		child_fetch(active, run->parent, run_hash(active, booking->tail - 1)[0]);
		fetch_owner(active, run, booking->rank);
		fetch_run(active, run->parent);
		return;
	}
	if (run->parent == ROOT)
		return;
	run = &active->run[run->parent];
	fetch_owner(active, run, booking->rank);
	fetch_run(active, run->parent);
}

/*
 * Split `run` after its first m hashes. The new run takes the upper part and the place in the
 * index. The old one keeps its id and its end, so its children and the bookings that end there need
 * no change.
 */
static uint32_t split_run(struct kvr_active *active, uint32_t run, uint32_t m)
{
	struct run *low = &active->run[run], *up;
	uint32_t id;

	if (!pool_take(&active->runs, &id))
		return ROOT;
	up = &active->run[id];
	if (!kvr_active__own_copy(active, id, run)) {
		pool_give(&active->runs, id);
		return ROOT;
	}
	up->parent = low->parent;
	up->start = 0;
	up->len = (uint16_t)m;
	memcpy(active->hash[id], run_hash(active, run), m * sizeof(uint64_t));
	kvr_active__find(active, low->parent, active->hash[id][0])->run = id + 1;
	low->parent = id;
	low->start = (uint16_t)(low->start + m);
	low->len = (uint16_t)(low->len - m);
	kvr_active__link(active, id, run_hash(active, run)[0], run);
	kvr_cell_add(&active->stats.splits, 1);
	return id;
}

/*
 * Return true if the prompt that caused the split is gone: all owners of the upper run also own the
 * lower one. Faded runs are not joined, as their weights may differ.
 */
static bool can_join(const struct run *up, const struct run *low)
{
	return up->bookings == low->bookings && up->len + low->len <= (int)KVR_ACTIVE_RUN &&
	       !up->faded && !low->faded;
}

/* The inverse of split_run(): the lower run absorbs the upper one and keeps its id and its end. */
static void join_runs(struct kvr_active *active, uint32_t up, uint32_t run)
{
	struct run *low = &active->run[run], *gone = &active->run[up];
	uint16_t start = (uint16_t)(low->start >= gone->len ? low->start - gone->len : 0);

	kvr_active__unlink(active, up, run_hash(active, run)[0]);
	kvr_active__find(active, gone->parent, run_hash(active, up)[0])->run = run + 1;
	memmove(active->hash[run] + start + gone->len, run_hash(active, run),
		low->len * sizeof(uint64_t));
	memcpy(active->hash[run] + start, run_hash(active, up), gone->len * sizeof(uint64_t));
	low->parent = gone->parent;
	low->start = start;
	low->len = (uint16_t)(low->len + gone->len);
	kvr_active__own_none(active, up);
	gone->len = 0;
	pool_give(&active->runs, up);
	kvr_cell_add(&active->stats.joins, 1);
}

/* Join runs that no longer need to be split: each split costs every later walk one step. */
static __rte_always_inline bool join_path(struct kvr_active *active, struct entry *entry,
					  uint32_t *runs, bool some)
{
	for (; entry->i < active->n_path; entry->i++) {
		uint32_t run = active->path[entry->i];

		if (some && *runs == 0)
			return false;
		--*runs;
		if (entry->n > 0 &&
		    can_join(&active->run[active->path[entry->n - 1]], &active->run[run]))
			join_runs(active, active->path[--entry->n], run);
		active->path[entry->n++] = run;
	}
	active->n_path = entry->n;
	return true;
}

/* Add a run with one owner. @return false if the pool is empty. */
static bool add_run(struct kvr_active *active, uint32_t *at, const void *sh, uint32_t len,
		    uint32_t rank)
{
	struct run *run;
	uint32_t id;

	if (!pool_take(&active->runs, &id))
		return false;
	run = &active->run[id];
	memcpy(active->hash[id], sh, len * sizeof(uint64_t));
	run->parent = *at;
	run->start = 0;
	run->len = (uint16_t)len;
	run->n_owner = 1;
	run->wide = 0;
	run->rank[0] = rank;
	run->owner[0] = (struct owner){1, KVR_ACTIVE_ONE};
	run->bookings = 1;
	run->faded = false;
	active->sum[rank] += (uint64_t)len * KVR_ACTIVE_ONE;
	kvr_active__link(active, *at, active->hash[id][0], id);
	*at = id;
	return true;
}

/* Own the matched runs, root first. */
static __rte_always_inline bool own_path(struct kvr_active *active, uint32_t rank,
					 struct entry *entry, uint32_t *runs, bool some)
{
	for (; entry->i < active->n_path; entry->i++) {
		if (some && *runs == 0)
			return false;
		--*runs;
		if (!kvr_active__own(active, active->path[entry->i], rank)) {
			entry->full = true;
			return true;
		}
		entry->at = active->path[entry->i];
		entry->done += active->run[entry->at].len;
	}
	return true;
}

/* Own the matched part of the last run. */
static __rte_always_inline void own_part(struct kvr_active *active, uint32_t rank,
					 struct entry *entry)
{
	uint32_t up;

	if (entry->full || active->next == ROOT)
		return;
	up = split_run(active, active->next, active->partial);
	if (up == ROOT || !kvr_active__own(active, up, rank)) {
		entry->full = true;
		return;
	}
	entry->at = up;
	entry->done += active->partial;
}

/* Add runs for the blocks that no rank has. */
static __rte_always_inline bool grow_path(struct kvr_active *active, const void *sh, uint32_t limit,
					  uint32_t rank, struct entry *entry, uint32_t *runs,
					  bool some)
{
	while (!entry->full && entry->done < limit) {
		uint32_t len =
			limit - entry->done < KVR_ACTIVE_RUN ? limit - entry->done : KVR_ACTIVE_RUN;

		if (some && *runs == 0)
			return false;
		--*runs;
		if (!add_run(active, &entry->at, (const char *)sh + 8 * (size_t)entry->done, len,
			     rank))
			entry->full = true;
		else
			entry->done += len;
	}
	return true;
}

/* Continue the walk of a booking. @return true if it is complete. */
static __rte_always_inline bool enter_booking(struct kvr_active *active, const void *sh, uint32_t n,
					      uint32_t rank, struct entry *entry, uint32_t *runs,
					      bool some)
{
	if (entry->step == ENTRY_HEAL) {
		if (!join_path(active, entry, runs, some))
			return false;
		entry->step = ENTRY_OWN;
		entry->i = 0;
	}
	if (entry->step == ENTRY_OWN) {
		if (!own_path(active, rank, entry, runs, some))
			return false;
		own_part(active, rank, entry);
		entry->step = ENTRY_GROW;
	}
	return grow_path(active, sh, n < active->max_prompt ? n : active->max_prompt, rank, entry,
			 runs, some);
}

static __rte_always_inline void finish_booking(struct kvr_active *active, uint32_t n, uint32_t rank,
					       const struct entry *entry,
					       struct kvr_active_booking *booking)
{
	*booking = (struct kvr_active_booking){.rank = rank,
					       .tail = entry->at == ROOT ? 0 : entry->at + 1,
					       .n_shared = entry->done,
					       .n_private = n - entry->done,
					       .private_weight = KVR_ACTIVE_ONE,
					       .output_weight = KVR_ACTIVE_ONE};
	kvr_cell_add(&active->stats.private_blocks, n - entry->done);
	active->sum[rank] += (uint64_t)(n - entry->done) * KVR_ACTIVE_ONE;
	active->n_path = 0;
	active->next = ROOT;
	refresh_blocks(active, rank);
}

uint32_t kvr_active_book(struct kvr_active *active, const void *sh, uint32_t n, uint32_t rank,
			 struct kvr_active_booking *booking)
{
	const uint64_t before = active->sum[rank];
	struct entry entry = {.at = ROOT};
	uint32_t runs = UINT32_MAX;

	active->match.state = MATCH_NONE;
	enter_booking(active, sh, n, rank, &entry, &runs, false);
	finish_booking(active, n, rank, &entry, booking);
	active->walked += UINT32_MAX - runs;
	return (uint32_t)((active->sum[rank] - before) / KVR_ACTIVE_ONE);
}

bool kvr_active_book_some(struct kvr_active *active, const void *sh, uint32_t n, uint32_t rank,
			  struct kvr_active_booking *booking, uint32_t runs)
{
	const uint32_t may = runs;
	struct entry *entry = &active->entry;
	bool done;

	active->match.state = MATCH_NONE;
	if (!entry->on)
		*entry = (struct entry){.on = true, .at = ROOT};
	done = enter_booking(active, sh, n, rank, entry, &runs, true);
	active->walked += may - runs;
	if (!done)
		return false;
	entry->on = false;
	finish_booking(active, n, rank, entry, booking);
	return true;
}

void kvr_active_book_private(struct kvr_active *active, uint32_t n, uint32_t rank,
			     struct kvr_active_booking *booking)
{
	*booking = (struct kvr_active_booking){.rank = rank,
					       .n_private = n,
					       .private_weight = KVR_ACTIVE_ONE,
					       .output_weight = KVR_ACTIVE_ONE};
	active->sum[rank] += (uint64_t)n * KVR_ACTIVE_ONE;
	refresh_blocks(active, rank);
}

static __rte_always_inline bool
leave_runs(struct kvr_active *active, struct kvr_active_booking *booking, uint32_t *runs, bool some)
{
	uint32_t at = booking->tail == 0 ? ROOT : booking->tail - 1;

	while (at != ROOT) {
		struct run *run = &active->run[at];
		uint32_t up = run->parent;

		if (some && *runs == 0) {
			booking->tail = at + 1;
			return false;
		}
		--*runs;
		kvr_active__disown(active, at, booking->rank);
		if (run->n_owner == 0) {
			kvr_active__unlink(active, up, run_hash(active, at)[0]);
			run->len = 0;
			pool_give(&active->runs, at);
		}
		at = up;
	}
	active->sum[booking->rank] -= (uint64_t)booking->n_private * booking->private_weight +
				      (uint64_t)booking->n_output * booking->output_weight;
	refresh_blocks(active, booking->rank);
	*booking = (struct kvr_active_booking){0};
	return true;
}

static void reset_match(struct kvr_active *active)
{
	active->match.state = MATCH_NONE;
	active->n_path = 0;
	active->next = ROOT;
}

bool kvr_active_free_some(struct kvr_active *active, struct kvr_active_booking *booking,
			  uint32_t runs)
{
	const uint32_t may = runs;
	const bool done = leave_runs(active, booking, &runs, true);

	reset_match(active);
	active->walked += may - runs;
	return done;
}

void kvr_active_free(struct kvr_active *active, struct kvr_active_booking *booking)
{
	uint32_t runs = UINT32_MAX;

	leave_runs(active, booking, &runs, false);
	reset_match(active);
	active->walked += UINT32_MAX - runs;
}

uint64_t kvr_active_walked(const struct kvr_active *active)
{
	return active->walked;
}

void kvr_active_output(struct kvr_active *active, struct kvr_active_booking *booking, uint32_t n)
{
	booking->n_output += n;
	active->sum[booking->rank] += (uint64_t)n * booking->output_weight;
	refresh_blocks(active, booking->rank);
}

void kvr_active_fade(struct kvr_active *active, struct kvr_active_booking *booking, uint32_t weight)
{
	uint32_t at = booking->tail == 0 ? ROOT : booking->tail - 1;
	uint64_t *sum = &active->sum[booking->rank];

	*sum += (uint64_t)booking->n_output * weight -
		(uint64_t)booking->n_output * booking->output_weight;
	booking->output_weight = weight;
	*sum += (uint64_t)booking->n_private * weight -
		(uint64_t)booking->n_private * booking->private_weight;
	booking->private_weight = weight;
	while (at != ROOT) {
		const struct run *run = &active->run[at];
		const struct owner owner = kvr_active__owner(active, at, booking->rank);

		if (owner.refs != 1)
			break;
		*sum += (uint64_t)run->len * weight - (uint64_t)run->len * owner.weight;
		kvr_active__weigh(active, at, booking->rank, weight);
		at = run->parent;
	}
	refresh_blocks(active, booking->rank);
}
