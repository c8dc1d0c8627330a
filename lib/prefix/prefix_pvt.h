/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PREFIX_PVT_H
#define PREFIX_PVT_H

/*
 * Shared by the files of lib/prefix: access to the words of the data structure (layout_pvt.h), and
 * the functions that each file offers to the others.
 */

#include "kvr_prefetch.h"
#include "kvr_rand.h"
#include "layout_pvt.h"
#include <string.h>

static inline uint64_t pfx_ld64(const void *sh, uint32_t i)
{
	uint64_t v;

	memcpy(&v, (const char *)sh + (size_t)i * 8, sizeof(v));
	return v;
}

/* Counters have one writer, and any thread may read them at any time; they publish nothing. */
static inline void pfx_add(kvr_cell_t *counter, uint64_t n)
{
	kvr_cell_add(counter, n);
}

static inline void pfx_sub(kvr_cell_t *counter, uint64_t n)
{
	kvr_cell_sub(counter, n);
}

/*
 * The low half is the signature for rte_hash. The index takes the home bucket from the high half
 * and the tag from the lowest bits.
 */
static inline uint64_t pfx_mix(const struct kvr_prefix *table, uint64_t sh)
{
	return kvr_mix64(sh ^ table->seed);
}

/* The fingerprint set of a head; `mix` is the result of pfx_mix(), or its low half. */
static inline struct pfx_fingerprints *pfx_fingerprint_set(const struct kvr_prefix *table,
							   uint64_t mix)
{
	return &table->fingerprints[(uint64_t)(uint32_t)mix * table->fingerprint_sets >> 32];
}

/* Place in the chunk pool of block `at` of a run. */
static inline uint64_t *pfx_sh(const struct kvr_prefix *table, const struct pfx_hdr *hdr,
			       uint32_t at)
{
	uint32_t i = hdr->start + at;
	uint32_t c = atomic_load_explicit(&hdr->chunk[i / PFX_CHUNK], memory_order_relaxed);

	return &table->sh[(size_t)c * PFX_CHUNK + i % PFX_CHUNK];
}

/*
 * A reader may load an SH while the writer overwrites a reused place; atomic access keeps it from
 * reading a torn value.
 */
static inline uint64_t pfx_rd(const uint64_t *p)
{
	return atomic_load_explicit((const _Atomic uint64_t *)p, memory_order_relaxed);
}

static inline void pfx_wr(uint64_t *p, uint64_t sh)
{
	/* Relaxed: the length publishes the SH, see pfx_publish_len(). */
	atomic_store_explicit((_Atomic uint64_t *)p, sh, memory_order_relaxed);
}

static inline uint32_t pfx_len(const struct pfx_hdr *hdr)
{
	/* Acquire: pairs with the release in pfx_publish_len(); the SHs below len are visible. */
	return atomic_load_explicit(&hdr->len, memory_order_acquire);
}

static inline struct pfx_big *pfx_big(const struct kvr_prefix *table, uint32_t big)
{
	return (struct pfx_big *)(void *)(table->big + (size_t)big * table->big_bytes);
}

static inline _Atomic uint32_t *pfx_parts(const struct kvr_prefix *table, struct pfx_big *big)
{
	return (_Atomic uint32_t *)(void *)&big->bits[table->big_words];
}

/* The owners of `plane`; `big` is NULL if the run has none there. */
static inline struct pfx_oset pfx_oset(const struct kvr_prefix *table, struct pfx_hdr *hdr,
				       uint32_t plane)
{
	uint32_t ext;

	if (plane == KVR_TIER_DEVICE)
		return (struct pfx_oset){&hdr->big, hdr->owner, PFX_INLINE};
	/* Acquire: pairs with the release that attaches a cleared ext block. */
	ext = atomic_load_explicit(&hdr->ext, memory_order_acquire);
	if (ext == PFX_NONE)
		return (struct pfx_oset){NULL, NULL, 0};
	return (struct pfx_oset){&table->ext[ext].plane[plane - 1].big,
				 table->ext[ext].plane[plane - 1].owner, PFX_EXTINLINE};
}

static inline uint32_t pfx_ld32(const _Atomic uint32_t *p)
{
	return atomic_load_explicit(p, memory_order_relaxed);
}

static inline void pfx_st32(_Atomic uint32_t *p, uint32_t v)
{
	atomic_store_explicit(p, v, memory_order_relaxed);
}

/* Set the SH that readers compare first. */
static inline void pfx_set_last(struct kvr_prefix *table, struct pfx_hdr *hdr, uint32_t len)
{
	atomic_store_explicit(&hdr->last_sh, *pfx_sh(table, hdr, len - 1), memory_order_relaxed);
}

/* Location of a block for the writer. meta PFX_NONE: nowhere. */
struct pfx_loc {
	uint32_t meta;
	uint32_t off;
};

static inline struct pfx_chunk_info pfx_chunk_info_of(uint32_t meta, uint32_t ord)
{
	return (struct pfx_chunk_info){meta & PFX_META_MAX, ord & (PFX_CHUNKS - 1)};
}

static inline struct pfx_hdr *pfx_hdr_of(const struct kvr_prefix *table, uint32_t meta)
{
	return &table->hdr[table->meta[meta].hdr];
}

/* Word number `word` of the rank's row of run bits. */
static inline uint64_t *pfx_held_word(const struct kvr_prefix *table, uint32_t rank, uint32_t word)
{
	const uint32_t per_line = PFX_LINE / 64;

	return &table->held_bits[((size_t)(word / per_line) * table->max_ranks + rank) * per_line +
				 word % per_line];
}

static inline bool pfx_rank_holds(const struct kvr_prefix *table, uint32_t rank, uint32_t meta)
{
	return *pfx_held_word(table, rank, meta / 64) >> (meta % 64) & 1;
}

/* pool_dp.c */
uint32_t kvr_prefix__pool_take(struct pfx_pool *pool);
void kvr_prefix__pool_give(struct pfx_pool *pool, uint32_t i);
void kvr_prefix__pool_retire(struct kvr_prefix *table, struct pfx_pool *pool, uint32_t i);
void kvr_prefix__pool_reclaim(struct kvr_prefix *table);

static inline uint32_t pfx_pool_free(const struct pfx_pool *pool)
{
	return pfx_ld32(&pool->nfree) + (pool->n + 1 - pfx_ld32(&pool->fresh));
}

/* owner_dp.c: (rank, lead) of one plane of one run. */
uint32_t kvr_prefix__owner_get(const struct kvr_prefix *table, struct pfx_hdr *hdr, uint32_t plane,
			       uint16_t rank);
int kvr_prefix__owner_set(struct kvr_prefix *table, struct pfx_hdr *hdr, uint32_t plane,
			  uint16_t rank, uint32_t lead);
uint32_t kvr_prefix__owner_longest(const struct kvr_prefix *table, struct pfx_hdr *hdr);
int kvr_prefix__owner_copy(struct kvr_prefix *table, struct pfx_hdr *from, struct pfx_hdr *to,
			   uint32_t lo, uint32_t hi);
void kvr_prefix__owner_retire(struct kvr_prefix *table, struct pfx_hdr *hdr);
bool kvr_prefix__owner_any_big(const struct kvr_prefix *table, struct pfx_hdr *hdr);
bool kvr_prefix__owner_has(const struct kvr_prefix *table, struct pfx_hdr *hdr, uint16_t rank);

/* Owners of one plane as words; the lead of a full owner is `len`. */
struct pfx_owners {
	uint32_t n;
	uint32_t o[KVR_PREFIX_MAX_RANKS];
};
void kvr_prefix__owner_list(const struct kvr_prefix *table, struct pfx_hdr *hdr, uint32_t plane,
			    uint32_t lo, uint32_t hi, struct pfx_owners *list);
static inline uint32_t pfx_planes_of(const struct pfx_hdr *hdr)
{
	return pfx_ld32(&hdr->ext) == PFX_NONE ? 1 : PFX_PLANES;
}

/*
 * Record that a rank lost blocks, so that readers that walk several runs do not add up what the
 * rank held at different times. Called after the loss and before any other store: a reader that
 * sees a later store of the rank also sees the record.
 */
static inline void pfx_note_loss(struct kvr_prefix *table, uint16_t rank)
{
	uint64_t n = atomic_load_explicit(&table->losses, memory_order_relaxed) + 1;

	atomic_store_explicit(&table->loser[n % PFX_LOSSES], rank, memory_order_relaxed);
	/* Release: pairs with the acquire in clip_losers(). */
	atomic_store_explicit(&table->losses, n, memory_order_release);
}

/* run_list_dp.c */
void kvr_prefix__list_add(struct kvr_prefix *table, uint32_t meta, uint32_t age);
void kvr_prefix__list_del(struct kvr_prefix *table, uint32_t meta);

/* held_dp.c and held_pvt.h: the runs that a rank holds, and the rank that a run is charged to. */
void kvr_prefix__held_drop(struct kvr_prefix *table, uint16_t rank, uint32_t meta);
uint32_t kvr_prefix__held_list(struct kvr_prefix *table, uint16_t rank, uint32_t meta[],
			       uint32_t max);

/* clear_dp.c */
uint32_t kvr_prefix__clear_left(const struct kvr_prefix *table);
void kvr_prefix__clear_slice(struct kvr_prefix *table);
uint32_t kvr_prefix__clear_run(struct kvr_prefix *table, uint32_t meta, uint16_t rank,
			       kvr_cell_t *counter);

/*
 * Subtract blocks from the counters of a rank. The counters of a rank that is being cleared are
 * already 0.
 */
static inline void pfx_uncount(struct kvr_prefix *table, uint16_t rank, uint32_t plane, uint32_t n,
			       kvr_cell_t *counter)
{
	if (table->rank[rank].hidden)
		return;
	pfx_sub(&table->rank_blocks[rank][plane], n);
	if (plane == PFX_PRED)
		return;
	pfx_sub(&table->st.entries, n);
	if (counter != NULL)
		pfx_add(counter, n);
}

/* header_dp.c */
uint32_t kvr_prefix__run_new_hdr(struct kvr_prefix *table, uint32_t start);
int kvr_prefix__run_publish(struct kvr_prefix *table, uint32_t hdr, bool new_head);
int32_t kvr_prefix__run_unpublish(struct kvr_prefix *table, uint64_t sh);
void kvr_prefix__run_retire(struct kvr_prefix *table, uint32_t hdr, int32_t key);
void kvr_prefix__run_init(struct kvr_prefix *table, uint32_t meta, uint32_t hdr, uint32_t parent);

/* split_dp.c */
uint32_t kvr_prefix__run_split(struct kvr_prefix *table, uint32_t meta, uint32_t at);
bool kvr_prefix__run_renew(struct kvr_prefix *table, uint32_t meta, uint32_t len);

/* run_dp.c */
struct pfx_new {
	uint32_t parent; /* meta, or PFX_NONE */
	bool has_parent;
	uint64_t parent_sh;
	uint32_t pos;
};
uint32_t kvr_prefix__run_create(struct kvr_prefix *table, const struct pfx_new *as, uint16_t rank,
				uint32_t plane, const void *sh, uint32_t *n);
bool kvr_prefix__run_can_grow(const struct kvr_prefix *table, uint32_t meta, uint16_t rank,
			      uint32_t plane);
uint32_t kvr_prefix__run_grow(struct kvr_prefix *table, uint32_t meta, uint16_t rank,
			      uint32_t plane, const void *sh, uint32_t n);
void kvr_prefix__run_trim(struct kvr_prefix *table, uint32_t meta);
void kvr_prefix__run_destroy(struct kvr_prefix *table, uint32_t meta);
struct pfx_loc kvr_prefix__run_own(struct kvr_prefix *table, struct pfx_loc at, uint32_t n,
				   uint16_t rank, uint32_t plane);
struct pfx_loc kvr_prefix__run_disown(struct kvr_prefix *table, struct pfx_loc at, uint32_t n,
				      uint32_t lead, uint16_t rank, uint32_t plane);

/* evict_dp.c */
void kvr_prefix__evict_for(struct kvr_prefix *table, uint16_t rank, uint32_t blocks, uint32_t keep);
void kvr_prefix__evict_to_limit(struct kvr_prefix *table, uint16_t rank, uint32_t steps);

/* prediction_dp.c */
uint32_t kvr_prefix__pred_find(const struct kvr_prefix *table, uint32_t meta, uint16_t rank);
void kvr_prefix__pred_del(struct kvr_prefix *table, uint32_t i);
void kvr_prefix__pred_requeue(struct kvr_prefix *table, uint32_t i);
int kvr_prefix__pred_renew(struct kvr_prefix *table, uint32_t meta, uint16_t rank,
			   uint64_t until_ms);
void kvr_prefix__pred_split(struct kvr_prefix *table, uint32_t head, uint32_t tail);
bool kvr_prefix__pred_can_split(const struct kvr_prefix *table, uint32_t meta);
void kvr_prefix__pred_drop_all(struct kvr_prefix *table, uint32_t meta);
bool kvr_prefix__pred_remove(struct kvr_prefix *table, uint32_t meta, uint16_t rank);

/* prediction_expiry_dp.c */
void kvr_prefix__pred_disown(struct kvr_prefix *table, uint32_t meta, uint16_t rank);
bool kvr_prefix__pred_drop_first(struct kvr_prefix *table);

#ifdef PFX_POISON
extern void (*kvr_prefix__test_between_runs)(void);
#endif

/* score_dp.c and its vector variants */
void kvr_prefix__score_scalar(struct kvr_prefix *table, const struct kvr_prefix_query query[],
			      uint32_t n);
void kvr_prefix__score_avx2(struct kvr_prefix *table, const struct kvr_prefix_query query[],
			    uint32_t n);
void kvr_prefix__score_avx512(struct kvr_prefix *table, const struct kvr_prefix_query query[],
			      uint32_t n);

#endif
