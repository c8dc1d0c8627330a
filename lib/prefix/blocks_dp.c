/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The blocks of a run come and go. Most of what one costs is its entry of the index: a line of its
 * own, asked for PFX_AHEAD blocks before it is needed, and then the instructions. So both ways go
 * by a few blocks of one chunk at a time, and nearly every entry is put into or taken out of its
 * home bucket; the rest is found by the search that everybody uses.
 */

#include "blocks_pvt.h"
#include "find_pvt.h"
#include "lines_pvt.h"

#define STEP  8u	      /* blocks between two rows of requests for lines */
#define ROUND (2 * PFX_AHEAD) /* more than a step, and PFX_AHEAD behind it */

/* What the index goes by, of the blocks whose lines are on their way. */
struct asked {
	uint32_t n; /* blocks so far; the last ROUND of them are here */
	uint32_t home[ROUND];
	uint16_t tag[ROUND];
};

static inline void ask(const struct kvr_prefix *t, struct asked *a, uint64_t sh)
{
	const uint64_t mix = pfx_mix(t, sh);
	const uint32_t home = pfx_index_home(&t->index, mix), k = a->n++ % ROUND;

	a->home[k] = home;
	a->tag[k] = pfx_index_tag(mix);
	kvr_prefetch(&t->index.b[home]);
}

/* ---- they come ---- */

static inline void ask_up(const struct kvr_prefix *t, struct asked *a, const void *sh, uint32_t end)
{
	while (a->n < end)
		ask(t, a, pfx_ld64(sh, a->n));
}

/* By the search. @return whether it was new, and there was room. */
static bool add_slowly(struct kvr_prefix *t, uint64_t sh, uint32_t slot)
{
	const uint64_t mix = pfx_mix(t, sh);
	uint32_t at;

	if (pfx_index_find(t, mix, sh, &at) != 0 || !pfx_index_is_room(&t->index, at))
		return false;
	pfx_wr(&t->sh[slot], sh);
	pfx_index_put(&t->index, mix, at, slot);
	return true;
}

/* Blocks first..end-1 of `sh` into the places from `slot` on, all of one chunk. @return where it
 * stopped. */
static uint32_t add_some(struct kvr_prefix *t, const struct asked *a, const void *sh,
			 uint32_t first, uint32_t end, uint32_t slot)
{
	struct kvr_bucket *buckets = t->index.b;
	uint32_t i, fast = 0;

	for (i = first; i < end; i++, slot++) {
		const uint64_t v = pfx_ld64(sh, i);
		const uint16_t tag = a->tag[i % ROUND];
		struct kvr_bucket *b = &buckets[a->home[i % ROUND]];
		const struct pfx_masks m = pfx_index_masks(b, tag);

		if (likely(m.tag == 0 && m.empty != 0 && b->over == 0)) {
			const uint32_t at = (uint32_t)__builtin_ctz(m.empty);

			pfx_wr(&t->sh[slot], v);
			b->tag[at] = tag;
			b->value[at] = slot;
			fast++;
		} else if (!add_slowly(t, v, slot)) {
			break;
		}
	}
	t->index.used += fast;
	return i;
}

uint32_t kvr_prefix__blocks_add(struct kvr_prefix *t, uint32_t meta, const void *sh, uint32_t n)
{
	struct pfx_hdr *h = pfx_hdr_of(t, meta);
	const uint32_t len = atomic_load_explicit(&h->len, memory_order_relaxed);
	struct asked a;
	uint32_t done = 0, end, first;

	a.n = 0;
	n = RTE_MIN(n, pfx_room_of(&t->meta[meta], h) - len);
	for (end = 0; done == end && done < n;) {
		const uint32_t place = h->start + len + done;
		uint32_t chunk;

		end = RTE_MIN(n, done + RTE_MIN(STEP, PFX_CHUNK - place % PFX_CHUNK));
		ask_up(t, &a, sh, RTE_MIN(n, end + PFX_AHEAD));
		if (a.n == n)
			pfx_lines_more(t, end - done);
		chunk = pfx_run_chunk(t, h, meta, place / PFX_CHUNK);
		if (chunk == PFX_NONE)
			break;
		first = done;
		done = add_some(t, &a, sh, first, end, chunk * PFX_CHUNK + place % PFX_CHUNK);
		if (unlikely(done == first) && place % PFX_CHUNK == 0) /* none came into it */
			pfx_run_drop_chunks(t, h, place / PFX_CHUNK, true);
	}
	pfx_add(&t->st.blocks, done);
	return len + done;
}

/* ---- they go ---- */

/* From the end on, as most events name them. */
static void ask_down(const struct kvr_prefix *t, struct asked *a, const struct pfx_hdr *h,
		     uint32_t len, uint32_t end)
{
	while (a->n < end) {
		const uint64_t *p = pfx_sh(t, h, len - 1 - a->n);
		uint32_t k = RTE_MIN(end - a->n, (uint32_t)(p - t->sh) % PFX_CHUNK + 1);

		for (; k > 0; k--)
			ask(t, a, *p--);
	}
}

/* Blocks first..end-1, counted from the end, the first of which stands at `slot`. */
static void drop_some(struct kvr_prefix *t, const struct asked *a, uint32_t first, uint32_t end,
		      uint32_t slot)
{
	struct kvr_bucket *buckets = t->index.b;
	uint32_t fast = 0;

	for (uint32_t i = first; i < end; i++, slot--) {
		struct kvr_bucket *b = &buckets[a->home[i % ROUND]];
		const uint32_t m = pfx_index_masks(b, a->tag[i % ROUND]).tag;
		const uint32_t at = m != 0 ? (uint32_t)__builtin_ctz(m) : 0;

		if (likely(b->value[at] == slot)) {
			b->tag[at] = 0;
			b->value[at] = 0;
			fast++;
		} else {
			kvr_prefix__index_del(&t->index, pfx_mix(t, t->sh[slot]), slot);
		}
	}
	t->index.used -= fast;
}

void kvr_prefix__blocks_drop(struct kvr_prefix *t, struct pfx_hdr *h, uint32_t from, uint32_t len,
			     bool stays)
{
	const uint32_t keep = (h->start + from + PFX_CHUNK - 1) / PFX_CHUNK, n = len - from;
	struct asked a;

	a.n = 0;
	for (uint32_t done = 0, end; done < n; done = end) {
		const uint32_t slot = (uint32_t)(pfx_sh(t, h, len - 1 - done) - t->sh);

		end = RTE_MIN(n, done + RTE_MIN(STEP, slot % PFX_CHUNK + 1));
		ask_down(t, &a, h, len, RTE_MIN(n, end + PFX_AHEAD));
		if (a.n == n)
			pfx_lines_more(t, end - done);
		drop_some(t, &a, done, end, slot);
	}
	pfx_run_drop_chunks(t, h, from == 0 ? 0 : keep, stays);
	pfx_sub(&t->st.blocks, n);
}
