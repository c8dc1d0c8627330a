/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PREFIX_LAYOUT_PVT_H
#define PREFIX_LAYOUT_PVT_H

/*
 * The data structure, private to lib/prefix.
 *
 * A run is up to 512 consecutive SHs that were stored one after the other. Its first SH is its
 * head: the key under which readers find the run in rte_hash. The next run begins where a run ends
 * or where stored content diverges. A reader therefore walks a query run by run and compares one SH
 * per run as long as everything matches. Runs end at multiples of 512 blocks from the root, so a
 * long query can look up several heads at once.
 *
 *   rte_hash: SH -> header --- line 0: last SH, length, eight owners inline
 *                          \-- line 1: up to 16 chunks of 32 SHs
 *                header.big -> bitmap of ranks that own the whole run + up to 16 partial owners
 *                header.ext -> the same for host, disk, external and predicted
 *
 * Most lookups of a head fail: that of the first block of a prompt that no rank holds, and the one
 * after the last run of every other prompt. Each head therefore has a fingerprint of one byte.
 * Fingerprints are kept in many sets of 15, one set per eight runs, selected by the same hash. A
 * set without the fingerprint proves that the head does not exist, and rte_hash is not searched. In
 * a full table, one in 25 other SHs finds its fingerprint in its set, or a set that overflowed.
 * With five runs per set it is one in 50, but for 80,000 runs the sets are then 256 KiB that
 * compete for the second-level cache, which slows down the lookups of unknown prompts.
 *
 * An owner is (rank, lead): the rank holds the first `lead` blocks of the run and none after them.
 * Holes need no masks: a set that is not a prefix of its run splits the run at the end of the hole.
 *
 * Visible to readers, therefore published by one store and freed one grace period later: header,
 * chunk, big, ext. Changed in place: owner words; appended SHs, then the length; a shorter length.
 * A run that was shortened (or is the head of a split) does not grow again before a grace period
 * has passed, because a reader could combine an old length with new content. Every other change
 * (split, shortening under a bitmap) creates a new header, replaces the old one and retires that.
 *
 * A reader of several runs reads their owners at different moments. Blocks gained meanwhile are
 * harmless. If a rank loses blocks meanwhile, the runs could add up to a count that the rank never
 * had. Losses are therefore recorded, and a reader limits each rank that lost blocks during its
 * burst to the count of one run.
 *
 * Private to the writer: metas (the tree, eviction order), the index SH -> slot (slot = chunk * 32
 * + position), predicted entries and their timing wheel, all free lists, and the following.
 *
 * Runs held by a rank. One bit for each (rank, run): the rank holds a block of the run in some
 * plane. The bits are in lines of 512 runs of one rank, with the lines of all ranks side by side.
 * Each word of 64 bits has a summary bit, and each rank the number of its bits. A bit changes only
 * when a rank gets the first or loses the last block of a run. That is one cache line, prefetched
 * with the run, so 1 to 3 ns of an event. A split sets a bit for each owner, in adjacent lines.
 * Memory: max_ranks / 8 bytes per run. With runs of 32 blocks, that is a quarter of a byte per
 * block for 64 ranks and two bytes for 512.
 *
 * Clearing a rank. A rank without blocks costs one load. Otherwise the rank is hidden. Its bit is
 * set in `hidden`, which a reader loads before each group of queries (one word while no rank is
 * hidden); a loss is recorded for readers that have already started; its counters are set to 0.
 * From then on the rank scores 0 and accepts neither blocks nor predictions, and its bits are
 * walked in slices. Each run costs about 200 ns of cache misses, prefetched in groups of sixteen,
 * and 5 to 15 ns per block that no other rank holds. kvr_prefix_maintain() spends the work of a
 * turn (conf.slice, in units of 16 to 50 ns) on all waiting ranks; the immediate work of
 * kvr_prefix_clear_rank() and kvr_prefix_ready() is part of the same budget. When the last bit is
 * cleared, the rank is shown again. A run is therefore never owned by two incarnations of a rank,
 * and splits during a clear need no special rule.
 *
 * Eviction. Each run is charged to one of its owners. The runs without children that are charged to
 * a rank are in a list of that rank, least recently matched first. Readers store the second of a
 * match in the header; a run that was matched since moves on when it reaches the front. At the
 * bound, a rank above its quota (the table divided by the number of ranks with charges) evicts its
 * own oldest runs; otherwise the oldest runs of all ranks go. Evicting a run that has other owners
 * removes one owner word and charges another owner. Every step frees a block or an owner, or moves
 * one run: work is bounded by the blocks of the event.
 *
 * Memory. A block takes 8 bytes in its chunk and 9 in the index. A run takes max_ranks / 8 bytes of
 * run bits and about 450 more: 144 of header, 66 in rte_hash, 128 of unused chunk space, 48 of
 * meta, a quarter of a big block, the rest in lists. Per block, perf/micro/bench-prefix with 4 M
 * entries of 512 ranks reserves 15.9 bytes for prompts of 512 blocks and 25.7 for prompts of 64.
 * The latter is 13.1 for 3.06 M blocks (0.52 M of them spare) and 12.6 for 91,690 runs. In use
 * are 11.7 and 15.7 bytes. A total of 16 would leave 126 bytes per run, less than its header.
 *
 * Cache lines of a lookup: one of fingerprints, two of rte_hash, header line 0, one of the query,
 * and the bitmap if more than eight ranks own the run; about 30 cycles of work per run. A stored
 * block costs part of a chunk line and one index line, prefetched; a removed block costs the index
 * line.
 */

#include "kvr_prefix.h"

#include "fingerprint_pvt.h"
#include "index_pvt.h"
#include <rte_hash.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>

#define PFX_CHUNK	 32u			  /* SHs per chunk */
#define PFX_CHUNKS	 16u			  /* chunks per run */
#define PFX_RUN		 (PFX_CHUNK * PFX_CHUNKS) /* SHs per run */
#define PFX_INLINE	 8u		 /* inline owners of the device plane, in the header */
#define PFX_EXTINLINE	 6u		 /* inline owners of another plane, in the ext block */
#define PFX_PLANES	 (KVR_TIERS + 1) /* the tiers, and predicted */
#define PFX_PRED	 KVR_TIERS
#define PFX_WORDS	 (KVR_PREFIX_MAX_RANKS / 64) /* words of the largest bitmap */
#define PFX_NONE	 0u    /* no object: the numbers of every pool start at 1 */
#define PFX_WHEEL	 4096u /* buckets of the timing wheel */
#define PFX_TICK_MS	 32u   /* duration of one bucket */
#define PFX_LOSSES	 256u  /* losses kept for readers */
#define PFX_FINGERPRINTS 8u    /* runs per set of fingerprints */
#define PFX_LINE	 512u  /* runs per line of run bits */
#define PFX_AHEAD	 32u   /* index lines prefetched ahead of the one in use */
#define PFX_SLICE	 256u  /* units of work per turn, or one long run */

/*
 * An owner word: the rank, and the number of leading blocks of the run that it holds. 0 is a free
 * place.
 */
#define PFX_OWNER(rank, lead) ((uint32_t)(rank) << 16 | (lead))
#define PFX_RANK(owner)	      ((uint16_t)((owner) >> 16))
#define PFX_LEAD(owner)	      ((owner)&0xffffu)

struct pfx_hdr {
	_Atomic uint64_t last_sh; /* SH of block len - 1 */
	uint64_t parent_sh;	  /* constant; valid if has_parent */
	_Atomic uint16_t len;	  /* 1..512 */
	uint8_t start;		  /* constant: place of block 0 in chunk[0] */
	uint8_t has_parent;	  /* constant */
	_Atomic uint32_t age;	  /* second of the last match; readers: rw, writer: rw */
	_Atomic uint32_t ext;	  /* block of the other planes, or PFX_NONE */
	_Atomic uint32_t big;	  /* big block of the device plane, or PFX_NONE */
	_Atomic uint32_t owner[PFX_INLINE];
	_Atomic uint32_t chunk[PFX_CHUNKS];
};
_Static_assert(offsetof(struct pfx_hdr, chunk) == 64 && sizeof(struct pfx_hdr) == 128,
	       "a successful match reads only line 0");

struct pfx_ext {
	struct {
		_Atomic uint32_t big;
		_Atomic uint32_t spare;
		_Atomic uint32_t owner[PFX_EXTINLINE];
	} plane[PFX_PLANES - 1];
};
_Static_assert(sizeof(struct pfx_ext) == 128, "two lines");

/* A big block: big_words of bitmap, then partial owners up to the end of its lines. */
struct pfx_big {
	_Atomic uint64_t bits[1];
};

/* The owners of one plane of one run, for both forms. */
struct pfx_oset {
	_Atomic uint32_t *big;
	_Atomic uint32_t *owner;
	uint32_t inl;
};

/*
 * Three parts of 16 bytes that do not cross a cache line. List operations access only the second
 * part of a neighbour.
 */
struct pfx_meta {
	uint32_t hdr;	       /* PFX_NONE: this meta is free */
	uint32_t gen;	       /* incremented on reuse, which makes stale parent links detectable */
	uint32_t parent;       /* meta of the run before, or PFX_NONE */
	uint32_t parent_gen;   /* its gen when the link was made */
	uint32_t older, newer; /* list of the charged rank; only while there are no children */
	uint32_t age;	       /* second of the last match, as known to the list */
	uint16_t pos;	       /* blocks before this run, modulo 512 */
	uint16_t charge; /* the rank that the run is charged to: one of its owners, if there is any
			  */
	uint64_t shrunk; /* batch in which the run was shortened; it may grow when that batch is
			    done */
	uint32_t nchild; /* runs whose parent link points here */
	uint32_t pred;	 /* first predicted entry, or PFX_NONE */
};
_Static_assert(offsetof(struct pfx_meta, older) == 16 && sizeof(struct pfx_meta) == 48, "parts");

/* The writer's state of a rank. */
struct pfx_rank {
	uint32_t first, last; /* list of charged runs without children, oldest first */
	uint32_t age;	      /* age of the first run; UINT32_MAX: none */
	uint32_t runs;	      /* all charged runs */
	uint32_t blocks;      /* blocks of the charged runs */
	uint32_t held;	      /* runs that the rank holds: bits of its row */
	uint32_t hint;	      /* lower bound of the first non-zero word of its row */
	uint32_t limit;	      /* limit of blocks in the device tier; 0: unlimited */
	uint16_t next;	      /* next rank + 1 in the clearing queue */
	bool hidden;	      /* is being cleared */
	bool queued;	      /* is in that queue */
	uint32_t spare[7];
};
_Static_assert(sizeof(struct pfx_rank) == 64, "one line");

struct pfx_pred {
	uint32_t meta;
	uint16_t rank;
	uint16_t bucket;
	uint32_t next, prev;	     /* entries of the same bucket of the wheel */
	uint32_t run_next, run_prev; /* entries of the same run */
	uint64_t until_ms;
};

/*
 * Objects of one kind: in use, free, or retired in one of two batches, linked through next[].
 * Thread: writer; any thread may read fresh and nfree (relaxed, they publish nothing).
 */
struct pfx_pool {
	uint32_t *next;
	uint32_t n;		/* objects 1..n */
	_Atomic uint32_t fresh; /* fresh..n were never used */
	uint32_t free;
	_Atomic uint32_t nfree; /* on the free list, not counting fresh objects */
	uint32_t cur, cur_tail, wait, wait_tail;
	uint32_t ncur, nwait;
	uint32_t nretired; /* in both batches */
	uint32_t low;	   /* evict if fewer than this are free */
};

/* Blocks of an event whose index lines are being prefetched; see prefetch_pvt.h. */
struct pfx_lines {
	const void *sh;
	uint32_t n, done;
};

#define PFX_META_MAX ((1u << 28) - 1)
struct pfx_chunk_info {
	uint32_t meta : 28;
	uint32_t ord : 4; /* number of the chunk in the run */
};

struct kvr_prefix {
	/* Read by all threads; constant after creation. */
	struct rte_hash *hash;
	struct pfx_fingerprints *fingerprints; /* fingerprints of heads; writer: rw, readers: ro */
	struct rte_rcu_qsbr *qsbr;
	struct pfx_hdr *hdr;
	uint64_t *sh; /* chunk pool */
	struct pfx_ext *ext;
	uint8_t *big;
	uint32_t fingerprint_sets; /* number of sets */
	uint32_t big_bytes, big_words, big_parts;
	uint32_t max_ranks, stride;
	uint64_t seed;
	enum kvr_prefix_isa isa;
	void (*score)(struct kvr_prefix *t, const struct kvr_prefix_query q[], uint32_t n);

	/* Writer: rw, rarely; readers: ro, with every query. */
	alignas(64) _Atomic uint32_t nranks; /* lanes in use */
	_Atomic uint32_t planes;	     /* bit of each plane that ever had an owner */
	_Atomic uint32_t age;		     /* current second, starting at 1 */

	/* Writer: rw, with every loss; readers: ro, twice per group of queries. */
	alignas(64) _Atomic uint64_t losses; /* total losses of blocks by owners */
	_Atomic uint32_t nhidden; /* number of ranks being cleared; readers: once per group */
	_Atomic uint16_t loser[PFX_LOSSES]; /* ranks of the last losses */
	_Atomic uint64_t hidden[PFX_WORDS]; /* bitmap of ranks being cleared */

	/* Writer: rw; dump: ro. */
	alignas(64) _Atomic uint64_t *birth; /* by header: 0 or an increasing number */
	_Atomic uint64_t births;

	/* Writer only. */
	alignas(64) struct pfx_index index, predx;
	struct pfx_meta *meta;
	struct pfx_chunk_info *chunk;
	struct pfx_pred *pred;
	int32_t *key;		     /* by header: position in rte_hash to free with it, or -1 */
	struct pfx_lines next_lines; /* of the next event */
	struct pfx_pool hdrs, metas, chunks, bigs, exts, preds;
	uint32_t max_blocks;
	uint64_t batch, done;	     /* current batch; last batch that all readers have left */
	uint64_t token;		     /* QSBR token of the waiting batch */
	bool waiting, passed, dirty; /* passed: all readers have left the waiting batch */
	uint64_t epoch_ms;
	uint64_t tick; /* wheel: next tick to process */
	struct pfx_rank *rank;
	uint64_t *held_bits; /* run bits: lines of 512, those of each rank for runs 0..511, then
				512..1023, and so on */
	uint64_t *sum;	     /* by rank: a bit for each word of its row */
	uint32_t sum_words;  /* words of `sum` per rank */
	uint32_t charged;    /* ranks with charges */
	uint32_t victim, nvictim; /* last chosen victim, and how many more runs it may give up
				     before the next choice */
	uint32_t clear_first, clear_last; /* rank + 1; clearing queue */
	uint64_t work;			  /* total units of work */
	uint32_t slice, credit;		  /* units of clearing per turn, and left in this turn */
	uint32_t wheel[PFX_WHEEL];
	kvr_cell_t (*rank_blocks)[PFX_PLANES];
	struct kvr_prefix_stats st;
	void *mem;
	size_t mem_bytes;
	bool mem_mapped;
};

#endif
