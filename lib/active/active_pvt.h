/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ACTIVE_PVT_H
#define ACTIVE_PVT_H

/** @file Layout of the tree of active prompts; see kvr_active.h. */

#include "kvr_active.h"
#include "kvr_prefetch.h"
#include "kvr_rand.h"

#include <stdalign.h>
#include <stdbool.h>

#define ROOT	  UINT32_MAX
#define INLINE	  8u
#define TO_INLINE 4u /* a wide run with so few owners left goes back, so it does not flap */

/** Rounds the weighted sum to blocks; the small part absorbs 2^-32 per block of weight error. */
#define ROUND_HALF ((UINT64_C(1) << 30) + (UINT64_C(1) << 13))

/** What a rank has of a run. */
struct owner {
	uint32_t refs; /* bookings */
	uint32_t weight;
};

struct run {
	alignas(64) uint32_t parent; /* run id, or ROOT; next free run while free */
	uint16_t start;		     /* of the hashes in the run's slot */
	uint16_t len;		     /* 1..64; 0 = free */
	uint32_t n_owner;
	uint32_t wide; /* record + 1; 0 = owners are inline */
	uint32_t rank[INLINE];
	struct owner owner[INLINE];
	uint32_t bookings; /* sum of refs over all owners */
	bool faded;	   /* a weight is or was below one */
};

_Static_assert(sizeof(struct run) == 128, "two cache lines");

struct child {
	uint64_t hash;
	uint32_t parent;
	uint32_t run; /* id + 1; 0 = empty */
};

/* Numbers of one kind. Writer: the owner thread; `used`: ro for all, relaxed. */
struct pool {
	uint32_t *free;
	uint32_t n_free;
	uint32_t fresh; /* ids from here on were never used */
	uint32_t max;
	kvr_cell_t *used;
};

/* A match that goes on in the next call, or that the next booking uses. */
struct match {
	enum { MATCH_NONE, MATCH_BEGUN, MATCH_WHOLE } state;
	uint32_t n;
	const void *sh;
	const uint32_t *depth;
	uint32_t at; /* run that was matched last, or ROOT */
	uint32_t done;
	uint32_t home; /* of its child */
};

/* A booking that is being entered. */
struct entry {
	enum { ENTRY_HEAL, ENTRY_OWN, ENTRY_GROW } step;
	bool on;
	bool full;     /* a pool is exhausted, the rest is private */
	uint32_t i, n; /* of the path: next run to look at, runs that stay */
	uint32_t at;   /* run that was taken last, or ROOT */
	uint32_t done; /* hashes */
};

struct kvr_active {
	struct run *run;
	uint64_t (*hash)[KVR_ACTIVE_RUN];
	struct child *index;
	uint32_t index_mask;
	uint32_t index_shift; /* 64 - its logarithm */
	uint32_t max_ranks;
	uint64_t times[2]; /* odd, from the seed: of a hash, of its parent */

	/* wide records: a bit set, bookings of every rank; weights that count once a run is faded,
	 * so that usually their lines are not touched */
	uint64_t *wide_set;
	uint32_t *wide_refs;
	uint32_t *wide_weight;

	/* the last match */
	uint32_t *path; /* runs, root first, all matched fully */
	uint32_t n_path;
	uint32_t matched; /* hashes on the path */
	uint32_t partial; /* hashes matched in `next` */
	uint32_t next;	  /* run matched in part, or ROOT */
	uint32_t max_prompt;
	struct match match;
	struct entry entry;
	uint64_t walked; /* runs */

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
 * Leading equal hashes of two arrays of @p n, at most KVR_ACTIVE_RUN; b may be unaligned. From b on
 * there are @p room >= n hashes, from a on KVR_ACTIVE_RUN: more than n may be read. Chosen by
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

/** Kernels of one instruction set; false when the processor lacks it. */
bool kvr_active__kernels(enum active_isa isa, active_same_fn *same, active_spread_fn *spread);

/* index of children */
static inline uint32_t child_home(const struct kvr_active *a, uint32_t parent, uint64_t hash)
{
	/* Multiply-shift (Dietzfelbinger et al., 1997): whatever two children are chosen without
	 * the secret factors meet in at most twice the share of chance. */
	return (uint32_t)((hash * a->times[0] + parent * a->times[1]) >> a->index_shift);
}

/** Where to look for a child, fetched ahead. */
static inline uint32_t child_fetch(const struct kvr_active *a, uint32_t parent, uint64_t hash)
{
	uint32_t home = child_home(a, parent, hash);

	kvr_prefetch(&a->index[home]);
	return home;
}

static inline struct child *child_find(const struct kvr_active *a, uint32_t home, uint32_t parent,
				       uint64_t hash)
{
	for (uint32_t i = home; a->index[i].run != 0; i = (i + 1) & a->index_mask)
		if (a->index[i].hash == hash && a->index[i].parent == parent)
			return &a->index[i];
	return NULL;
}

static inline const uint64_t *run_hash(const struct kvr_active *a, uint32_t run)
{
	return a->hash[run] + a->run[run].start;
}

struct child *kvr_active__find(const struct kvr_active *a, uint32_t parent, uint64_t hash);
void kvr_active__link(struct kvr_active *a, uint32_t parent, uint64_t hash, uint32_t run);
void kvr_active__unlink(struct kvr_active *a, uint32_t parent, uint64_t hash);

/* owners of a run; refs 0: the rank is none */
struct owner kvr_active__owner(const struct kvr_active *a, uint32_t run, uint32_t rank);
void kvr_active__weigh(struct kvr_active *a, uint32_t run, uint32_t rank, uint32_t weight);
bool kvr_active__own(struct kvr_active *a, uint32_t run, uint32_t rank);
void kvr_active__disown(struct kvr_active *a, uint32_t run, uint32_t rank);
bool kvr_active__own_copy(struct kvr_active *a, uint32_t to, uint32_t from);
void kvr_active__own_none(struct kvr_active *a, uint32_t run);

static inline bool pool_take(struct pool *p, uint32_t *id)
{
	if (p->n_free > 0)
		*id = p->free[--p->n_free];
	else if (p->fresh < p->max)
		*id = p->fresh++;
	else
		return false;
	kvr_cell_add(p->used, 1);
	return true;
}

/** What the call of pool_take() after @p i others would give; a guess, when numbers come back
 * meanwhile. */
static inline uint32_t pool_peek(const struct pool *p, uint32_t i)
{
	return i < p->n_free ? p->free[p->n_free - 1 - i] : p->fresh + i - p->n_free;
}

static inline void pool_give(struct pool *p, uint32_t id)
{
	p->free[p->n_free++] = id;
	kvr_cell_sub(p->used, 1);
}

static inline uint64_t *wide_set(const struct kvr_active *a, uint32_t wide)
{
	return a->wide_set + (size_t)(wide - 1) * (a->max_ranks / 64);
}

static inline uint32_t *wide_refs(const struct kvr_active *a, uint32_t wide)
{
	return a->wide_refs + (size_t)(wide - 1) * a->max_ranks;
}

static inline uint32_t *wide_weight(const struct kvr_active *a, uint32_t wide)
{
	return a->wide_weight + (size_t)(wide - 1) * a->max_ranks;
}

#endif
