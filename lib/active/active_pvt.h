/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ACTIVE_PVT_H
#define ACTIVE_PVT_H

/**
 * @file
 * Layout of the tree of active prompts; see kvr_active.h.
 */

#include "kvr_active.h"
#include "kvr_prefetch.h"
#include "kvr_rand.h"

#include <stdalign.h>
#include <stdbool.h>

#define ROOT   UINT32_MAX
#define INLINE 8u
#define TO_INLINE                                                                                  \
	4u /* at most this many owners: a wide run becomes inline; a gap avoids oscillation */

/** Rounds the weighted sum to blocks. The small part absorbs a weight error of 2^-32 per block. */
#define ROUND_HALF ((UINT64_C(1) << 30) + (UINT64_C(1) << 13))

/** What a rank owns of a run. */
struct owner {
	uint32_t refs; /* number of bookings */
	uint32_t weight;
};

struct run {
	alignas(64) uint32_t parent; /* parent run, or ROOT */
	uint16_t start;		     /* first used hash of the run's slot */
	uint16_t len;		     /* 1..64; 0: free */
	uint32_t n_owner;
	uint32_t wide; /* wide record + 1; 0: owners are inline */
	uint32_t rank[INLINE];
	struct owner owner[INLINE];
	uint32_t bookings; /* sum of refs over all owners */
	bool faded;	   /* a weight is or was below one */
};

_Static_assert(sizeof(struct run) == 128, "two cache lines");

struct child {
	uint64_t hash;
	uint32_t parent;
	uint32_t run; /* run + 1; 0: empty */
};

/* Object numbers of one kind. Writer: the owner thread; any thread may read `used` (relaxed). */
struct pool {
	uint32_t *free;
	uint32_t n_free;
	uint32_t fresh; /* this and higher ids were never used */
	uint32_t max;
	kvr_cell_t *used;
};

/* A match that the next call continues, or that the next booking uses. */
struct match {
	enum { MATCH_NONE, MATCH_BEGUN, MATCH_WHOLE } state;
	uint32_t n;
	const void *sh;
	const uint32_t *depth;
	uint32_t at; /* last matched run, or ROOT */
	uint32_t done;
	uint32_t home; /* index place of its child */
};

/* A booking in progress. */
struct entry {
	enum { ENTRY_HEAL, ENTRY_OWN, ENTRY_GROW } step;
	bool on;
	bool full;     /* a pool is exhausted; the rest is private */
	uint32_t i, n; /* next run of the path, and runs that stay */
	uint32_t at;   /* last owned run, or ROOT */
	uint32_t done; /* hashes entered so far */
};

struct kvr_active {
	struct run *run;
	uint64_t (*hash)[KVR_ACTIVE_RUN];
	struct child *index;
	uint32_t index_mask;
	uint32_t index_shift; /* 64 - log2(places) */
	uint32_t max_ranks;
	uint64_t times[2]; /* odd factors from the seed: for a hash, for its parent */

	/*
	 * Wide records: a bit set, and the number of bookings of every rank. Weights are used only
	 * once a run is faded, so their cache lines are normally not touched.
	 */
	uint64_t *wide_set;
	uint32_t *wide_refs;
	uint32_t *wide_weight;

	/* the last match */
	uint32_t *path; /* fully matched runs, root first */
	uint32_t n_path;
	uint32_t matched; /* hashes of the path */
	uint32_t partial; /* hashes matched in `next` */
	uint32_t next;	  /* partially matched run, or ROOT */
	uint32_t max_prompt;
	struct match match;
	struct entry entry;
	uint64_t walked; /* runs visited */

	struct pool runs;
	struct pool wides;
	uint64_t *sum; /* per rank, in 1 / KVR_ACTIVE_ONE blocks */
	uint32_t *blocks;

	uint32_t (*same)(const uint64_t *a, const void *b, uint32_t n, uint32_t room);
	void (*spread)(const uint64_t *set, uint32_t words, uint32_t value, uint32_t *out);

	struct kvr_active_stats stats;
	void *(*alloc)(void *arg, size_t bytes);
	void (*release)(void *arg, void *p);
	void *arg;
};

/**
 * Number of leading equal hashes of two arrays of @p n, at most KVR_ACTIVE_RUN; b may be unaligned.
 * b has @p room >= n hashes and a has KVR_ACTIVE_RUN: more than n may be read. Selected by
 * kvr_active__kernels().
 */
typedef uint32_t (*active_same_fn)(const uint64_t *a, const void *b, uint32_t n, uint32_t room);
/** out[r] = value for every bit r of set. */
typedef void (*active_spread_fn)(const uint64_t *set, uint32_t words, uint32_t value,
				 uint32_t *out);

enum active_isa {
	ACTIVE_SCALAR,
	ACTIVE_AVX2,
	ACTIVE_AVX512,
};

/** Get the kernels of one instruction set. @return false if the CPU lacks it. */
bool kvr_active__kernels(enum active_isa isa, active_same_fn *same, active_spread_fn *spread);

/* Index of children. */
static inline uint32_t child_home(const struct kvr_active *active, uint32_t parent, uint64_t hash)
{
	/*
	 * Multiply-shift hashing (Dietzfelbinger et al., 1997): two children chosen without
	 * knowledge of the secret factors collide with at most twice the probability of random
	 * ones.
	 */
	return (uint32_t)((hash * active->times[0] + parent * active->times[1]) >>
			  active->index_shift);
}

/** Prefetch the index place of a child. @return the place. */
static inline uint32_t child_fetch(const struct kvr_active *active, uint32_t parent, uint64_t hash)
{
	uint32_t home = child_home(active, parent, hash);

	kvr_prefetch(&active->index[home]);
	return home;
}

static inline struct child *child_find(const struct kvr_active *active, uint32_t home,
				       uint32_t parent, uint64_t hash)
{
	for (uint32_t i = home; active->index[i].run != 0; i = (i + 1) & active->index_mask)
		if (active->index[i].hash == hash && active->index[i].parent == parent)
			return &active->index[i];
	return NULL;
}

static inline const uint64_t *run_hash(const struct kvr_active *active, uint32_t run)
{
	return active->hash[run] + active->run[run].start;
}

struct child *kvr_active__find(const struct kvr_active *active, uint32_t parent, uint64_t hash);
void kvr_active__link(struct kvr_active *active, uint32_t parent, uint64_t hash, uint32_t run);
void kvr_active__unlink(struct kvr_active *active, uint32_t parent, uint64_t hash);

/* Owners of a run; refs is 0 if the rank is not an owner. */
struct owner kvr_active__owner(const struct kvr_active *active, uint32_t run, uint32_t rank);
void kvr_active__weigh(struct kvr_active *active, uint32_t run, uint32_t rank, uint32_t weight);
bool kvr_active__own(struct kvr_active *active, uint32_t run, uint32_t rank);
void kvr_active__disown(struct kvr_active *active, uint32_t run, uint32_t rank);
bool kvr_active__own_copy(struct kvr_active *active, uint32_t to, uint32_t from);
void kvr_active__own_none(struct kvr_active *active, uint32_t run);

static inline bool pool_take(struct pool *pool, uint32_t *id)
{
	if (pool->n_free > 0)
		*id = pool->free[--pool->n_free];
	else if (pool->fresh < pool->max)
		*id = pool->fresh++;
	else
		return false;
	kvr_cell_add(pool->used, 1);
	return true;
}

/**
 * The id that pool_take() would return after @p i other calls; a guess if ids are returned
 * meanwhile.
 */
static inline uint32_t pool_peek(const struct pool *pool, uint32_t i)
{
	return i < pool->n_free ? pool->free[pool->n_free - 1 - i] : pool->fresh + i - pool->n_free;
}

static inline void pool_give(struct pool *pool, uint32_t id)
{
	pool->free[pool->n_free++] = id;
	kvr_cell_sub(pool->used, 1);
}

static inline uint64_t *wide_set(const struct kvr_active *active, uint32_t wide)
{
	return active->wide_set + (size_t)(wide - 1) * (active->max_ranks / 64);
}

static inline uint32_t *wide_refs(const struct kvr_active *active, uint32_t wide)
{
	return active->wide_refs + (size_t)(wide - 1) * active->max_ranks;
}

static inline uint32_t *wide_weight(const struct kvr_active *active, uint32_t wide)
{
	return active->wide_weight + (size_t)(wide - 1) * active->max_ranks;
}

#endif
