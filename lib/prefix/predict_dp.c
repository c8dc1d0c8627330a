/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Predicted blocks: a plane of owners like the tiers, and for each (run, rank) in it one entry
 * with the time it ends. One time for a run suffices: a prediction covers a prefix of the chain,
 * and where it ends inside what was predicted before, the run is split. Entries stand in a wheel
 * of 32 ms buckets; a renewed one stays where it is and is moved on when its bucket comes up.
 */

#include "prefix_pvt.h"

#include <errno.h>

#define RENEWED 64u   /* renewed entries moved on in search of one that was not */
#define EXPIRE	1024u /* units of work of one call of expire */
#define MOVE	2u    /* of them for an entry that was renewed */
#define END	24u   /* for one that ends, beside the blocks that go with it */

static uint32_t tag_of(const struct kvr_prefix *t, uint32_t meta, uint16_t rank)
{
	return pfx_tag(pfx_mix(t, (uint64_t)meta << 16 | rank));
}

static uint32_t find(const struct kvr_prefix *t, uint32_t meta, uint16_t rank)
{
	uint32_t tag = tag_of(t, meta, rank);

	for (uint32_t i = pfx_index_home(&t->predx, tag) * PFX_BUCKET;; i += PFX_BUCKET) {
		struct pfx_masks m = pfx_index_masks(&t->predx.e[i], tag);

		for (; m.tag != 0; m.tag &= m.tag - 1) {
			uint32_t v = (uint32_t)t->predx.e[i + (uint32_t)__builtin_ctz(m.tag)];

			if (t->pred[v].meta == meta && t->pred[v].rank == rank)
				return v;
		}
		if (m.empty != 0)
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
	kvr_prefix__index_add(&t->predx, tag_of(t, meta, p->rank), i);
}

static void leave_run(struct kvr_prefix *t, uint32_t i)
{
	struct pfx_pred *p = &t->pred[i];

	kvr_prefix__index_del(&t->predx, tag_of(t, p->meta, p->rank), i);
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

static void del(struct kvr_prefix *t, uint32_t i)
{
	leave_run(t, i);
	leave_wheel(t, i);
	kvr_prefix__pool_give(&t->preds, i);
	pfx_sub(&t->st.predicted, 1);
}

/* The blocks that `rank` is predicted to hold of the run end at until_ms. */
int kvr_prefix__pred_touch(struct kvr_prefix *t, uint32_t meta, uint16_t rank, uint64_t until_ms)
{
	uint32_t i = find(t, meta, rank);

	if (i == PFX_NONE)
		return add(t, meta, rank, until_ms);
	t->pred[i].until_ms = RTE_MAX(t->pred[i].until_ms, until_ms);
	return 0;
}

static void lose(struct kvr_prefix *t, uint32_t meta, uint16_t rank)
{
	struct pfx_hdr *h = pfx_hdr_of(t, meta);

	pfx_uncount(t, rank, PFX_PRED, kvr_prefix__owner_get(t, h, PFX_PRED, rank), NULL);
	kvr_prefix__owner_set(t, h, PFX_PRED, rank, 0);
	pfx_note_loss(t, rank);
	kvr_prefix__hold_drop(t, rank, meta);
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
		del(t, t->meta[meta].pred);
}

static void end(struct kvr_prefix *t, uint32_t i)
{
	uint32_t meta = t->pred[i].meta;

	lose(t, meta, t->pred[i].rank);
	del(t, i);
	kvr_prefix__run_trim(t, meta);
}

/* The rank gives up the run: its entry goes, the owner is the caller's. */
bool kvr_prefix__pred_forget(struct kvr_prefix *t, uint32_t meta, uint16_t rank)
{
	uint32_t i = t->meta[meta].pred != PFX_NONE ? find(t, meta, rank) : PFX_NONE;

	if (i != PFX_NONE)
		del(t, i);
	return i != PFX_NONE;
}

/*
 * Drop the entry that would end first, or one of the first if many were renewed; false when there
 * is none.
 */
bool kvr_prefix__pred_drop_first(struct kvr_prefix *t)
{
	uint32_t renewed = 0;

	for (uint32_t n = 0, b; n < PFX_WHEEL && t->st.predicted > 0; n++) {
		b = (uint32_t)((t->tick + n) % PFX_WHEEL);
		while (t->wheel[b] != PFX_NONE) {
			uint32_t i = t->wheel[b];

			leave_wheel(t, i);
			enter_wheel(t, i);
			if (t->pred[i].bucket != b && renewed++ < RENEWED)
				continue;
			end(t, i);
			pfx_add(&t->st.evicted_predicted, 1);
			return true;
		}
	}
	return false;
}

/* Not into the bucket that is being emptied. */
static void move_on(struct kvr_prefix *t, uint32_t i)
{
	leave_wheel(t, i);
	t->tick++;
	enter_wheel(t, i);
	t->tick--;
}

bool kvr_prefix_expire(struct kvr_prefix *t, uint64_t now_ms)
{
	uint64_t last = now_ms / PFX_TICK_MS, before, spent = 0;

	if (last >= t->tick + PFX_WHEEL)
		t->tick = last - PFX_WHEEL + 1; /* a whole turn: every bucket is looked at once */
	for (; t->tick <= last; t->tick++) {
		uint32_t b = (uint32_t)(t->tick % PFX_WHEEL), i;

		while ((i = t->wheel[b]) != PFX_NONE) {
			if (spent >= EXPIRE)
				return false;
			if (t->pred[i].until_ms > now_ms) {
				move_on(t, i);
				spent += MOVE;
				continue;
			}
			before = t->st.blocks;
			end(t, i);
			spent += END + before - t->st.blocks;
			pfx_add(&t->st.expired, 1);
		}
	}
	return true;
}

/*
 * Predict up to k blocks of a run from `loc` on. One entry has one end, so the run is split where
 * blocks that end later meet blocks that end sooner. Gives the place of the last block, and in
 * *k their number.
 */
static struct pfx_loc predict_known(struct kvr_prefix *t, struct pfx_loc loc, uint32_t *k,
				    uint16_t rank, uint64_t until_ms)
{
	uint32_t lead = kvr_prefix__owner_get(t, pfx_hdr_of(t, loc.meta), PFX_PRED, rank);
	uint32_t i = lead ? find(t, loc.meta, rank) : PFX_NONE;
	bool sooner = i != PFX_NONE && until_ms < t->pred[i].until_ms && loc.off < lead;

	if (sooner && loc.off + *k <= lead)
		return (struct pfx_loc){loc.meta, loc.off + *k - 1};
	if (sooner) {
		*k = lead - loc.off;
		loc.meta = kvr_prefix__run_split(t, loc.meta, lead);
		return (struct pfx_loc){loc.meta, lead - 1};
	}
	if (loc.off + *k < lead) {
		loc.meta = kvr_prefix__run_split(t, loc.meta, loc.off + *k);
		if (loc.meta == PFX_NONE)
			return loc;
	}
	return kvr_prefix__run_own(t, loc, *k, rank, PFX_PRED);
}

/* Up to *k blocks that are new, from number i on; the chain so far ends at `at`. */
static struct pfx_loc predict_new(struct kvr_prefix *t, uint16_t rank, const void *sh, uint32_t i,
				  uint32_t *k, struct pfx_loc at)
{
	struct pfx_new as = {.has_parent = i > 0};
	uint32_t meta;

	*k = RTE_MIN(*k, PFX_RUN);
	if (kvr_prefix__evict_low(t, *k)) {
		kvr_prefix__evict_make_room(t, rank, *k, at.meta);
		at.meta = PFX_NONE;
		if (i > 0)
			at = kvr_prefix__event_find(t, pfx_ld64(sh, i - 1));
	}
	*k = RTE_MIN(*k, t->max_blocks - (uint32_t)t->st.blocks);
	if (*k == 0)
		return (struct pfx_loc){PFX_NONE, 0};
	t->work += *k;
	as.parent = at.meta;
	if (at.meta != PFX_NONE && at.off + 1 < pfx_len(pfx_hdr_of(t, at.meta)))
		as.parent = kvr_prefix__run_split(t, at.meta, at.off + 1);
	if (i > 0)
		as.parent_sh = pfx_ld64(sh, i - 1);
	if (as.parent != PFX_NONE)
		as.pos = (t->meta[as.parent].pos + at.off + 1) % PFX_RUN;
	meta = kvr_prefix__run_create(t, &as, rank, PFX_PRED, (const char *)sh + (size_t)i * 8, k);
	return (struct pfx_loc){meta, *k - 1};
}

/*
 * As the store of an event, run by run from the root. `at` ends on the last block taken; what
 * one step adds belongs to one run.
 */
static uint32_t step(struct kvr_prefix *t, uint16_t rank, const void *sh, uint32_t i, uint32_t n,
		     struct pfx_loc *at, uint64_t until_ms)
{
	const char *from = (const char *)sh + (size_t)i * 8;
	struct pfx_loc loc = kvr_prefix__event_find(t, pfx_ld64(from, 0));
	uint32_t k = n - i;

	if (loc.meta != PFX_NONE) {
		k = kvr_prefix__event_same(t, loc, from, k);
		*at = predict_known(t, loc, &k, rank, until_ms);
	} else {
		*at = predict_new(t, rank, sh, i, &k, *at);
	}
	if (at->meta == PFX_NONE)
		return 0;
	if (kvr_prefix__pred_touch(t, at->meta, rank, until_ms) < 0) {
		lose(t, at->meta, rank);
		kvr_prefix__run_trim(t, at->meta);
		return 0;
	}
	return k;
}

void kvr_prefix_predict(struct kvr_prefix *t, uint16_t rank, const void *sh, uint32_t n,
			uint64_t now_ms, uint32_t ttl_ms)
{
	struct pfx_loc at = {PFX_NONE, 0};

	if (rank >= t->max_ranks || ttl_ms == 0)
		return;
	n = RTE_MIN(n, (uint32_t)KVR_PREFIX_MAX_QUERY);
	if (t->rank[rank].hidden) {
		pfx_add(&t->st.dropped, n);
		return;
	}
	for (uint32_t i = 0, k; i < n; i += k) {
		if (kvr_prefix__evict_low(t, 0)) {
			kvr_prefix__evict_make_room(t, rank, 0, at.meta);
			at.meta = PFX_NONE;
		}
		if (i > 0 && at.meta == PFX_NONE)
			at = kvr_prefix__event_find(t, pfx_ld64(sh, i - 1));
		k = step(t, rank, sh, i, n, &at, now_ms + ttl_ms);
		if (k == 0) {
			pfx_add(&t->st.dropped, n - i);
			break;
		}
	}
	kvr_prefix__pool_reclaim(t);
}
