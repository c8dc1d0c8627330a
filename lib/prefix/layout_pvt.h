/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PREFIX_LAYOUT_PVT_H
#define PREFIX_LAYOUT_PVT_H

/*
 * The structure, private to lib/prefix.
 *
 * A run is up to 512 consecutive SHs that were stored one behind the other. Its first SH is the
 * key under which readers find it in rte_hash; where a run ends, or where stored content
 * diverges, the next run begins, so a reader walks a query run by run, comparing one SH a run as
 * long as everything matches. Runs end at multiples of 512 blocks from the root, which lets a
 * long query look up several heads at once.
 *
 *   rte_hash: SH -> header --- line 0: last SH, length, eight owners inline
 *                          \-- line 1: up to 16 chunks of 32 SHs
 *                header.big -> bitmap of ranks that own the whole run + up to 16 partial owners
 *                header.ext -> the same for host, disk, external and predicted
 *
 * Most looks for a head are in vain: the first of a prompt that nobody has, and the one behind
 * where every other ended. So of each head there is a print of one byte, in one of many sets of 15
 * for eight runs each, by the same hash: a set without the print says that there is no such head,
 * and rte_hash is not asked. One in 25 other SHs finds its print in the sets of a full table, or a
 * set with too many. With five runs for each it is one in 50, but then, with 80,000 runs, the sets
 * are 256 KiB that compete for the second cache: what makes a prompt of nobody's slow.
 *
 * An owner is (rank, lead): it holds the first `lead` blocks of the run, nothing behind. Holes
 * need no masks: a set that is not a prefix of its run splits the run where the hole ends.
 *
 * Seen by readers, so published by one store and freed a grace period later: header, chunk, big,
 * ext. In place change only: owner words, appended SHs then length, a shorter length. A run that
 * got shorter (or is the head of a split) does not grow again before a grace period is over, or
 * else a reader might combine an old length with new content. Everything else (split, content
 * under a bitmap) makes a new header, puts it in the place of the old and retires that.
 *
 * A reader of several runs reads owners at several moments. Blocks gained meanwhile are harmless;
 * where a rank lost some in between, the runs might add up to a count it never had. So losses are
 * noted, and a reader cuts the ranks that lost something during its burst to what one run said.
 *
 * Private to the writer: metas (the tree, eviction order), the index SH -> slot, where slot =
 * chunk * 32 + position, predicted entries and their timing wheel, all free lists, and:
 *
 * What a rank holds. A bit for each (rank, run) of which the rank has anything in any plane, in
 * lines of 512 runs of one rank, the lines of all ranks side by side; a summary bit for each word
 * of 64; the number of bits. A bit changes only when a rank gets the first or loses the last block
 * of a run: one line, fetched when the run is, so 1 to 3 ns of an event; a split sets a bit for
 * each owner, in neighbouring lines. max_ranks / 8 bytes a run: a quarter of a byte a block of
 * 64 ranks, two of 512, if runs have 32 blocks.
 *
 * Clearing a rank. Nothing is there: one load. Else the rank is hidden: its bit is set among the
 * hidden, which a reader loads before a group of queries (one word while there are none), a loss is
 * noted for those that have begun, and its books are closed. From then on it scores 0, takes no
 * blocks and no predictions, and its bits are walked in slices: for each run about 200 ns of
 * misses, fetched sixteen runs at a time, and 5 to 15 ns a block when nobody else has it.
 * kvr_prefix_maintain() gives a turn's work (conf.slice, in units of 16 to 50 ns) to all ranks that
 * wait; what clears and kvr_prefix_ready() do on the spot comes out of the same. The last bit
 * gone, the rank is shown again. So no run is ever owned by two lives of a rank, and splits
 * meanwhile need no rule of their own.
 *
 * The bound. Each run is charged to one of its owners. The runs without children that are charged
 * to a rank stand in a list of that rank, least recently matched first; readers note the second of
 * a match in the header, and a run that was matched since is moved on when it comes up. At the
 * bound a rank with more than its share (of as many as there are ranks with charges) gives up its
 * own oldest; else the oldest of all go. Giving up a run that others own, too, takes one owner
 * word and charges another owner. Every step frees a block or an owner, or moves one run: work is
 * bounded by the blocks of the event.
 *
 * Bytes. A block has 8 in its chunk and 9 in the index. A run has max_ranks / 8 of what ranks hold
 * and about 450: 144 of header, 66 in rte_hash, 128 of a chunk's end that is not used, 48 of meta,
 * a quarter of a big block, the rest in lists. perf/micro/bench-prefix with 4 M entries
 * reserves 15.9 an entry where prompts have 512 blocks and 25.7 where they have 64, of 512
 * ranks: 13.1 for 3.06 M blocks, of which 0.52 M are spare, and 12.6 for 91,690 runs. Used are 11.7
 * and 15.7. For 16 a run would have to do with 126, less than its header.
 *
 * Cache lines of a find: one of prints, two of rte_hash, header line 0, one of the query, bitmap
 * when more than eight ranks own the run; about 30 cycles of work a run. A stored block costs its
 * share of a chunk line and one index line, prefetched; a removed one the index line.
 */

#include "kvr_prefix.h"

#include "index_pvt.h"
#include "print_pvt.h"
#include <rte_hash.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>

#define PFX_CHUNK     32u		       /* SHs of a chunk */
#define PFX_CHUNKS    16u		       /* chunks of a run */
#define PFX_RUN	      (PFX_CHUNK * PFX_CHUNKS) /* SHs of a run */
#define PFX_INLINE    8u		       /* owners of the device plane in the header */
#define PFX_EXTINLINE 6u		       /* owners of another plane in the ext block */
#define PFX_PLANES    (KVR_TIERS + 1)	       /* the tiers, and predicted */
#define PFX_PRED      KVR_TIERS
#define PFX_WORDS     (KVR_PREFIX_MAX_RANKS / 64) /* of the largest bitmap */
#define PFX_NONE      0u			  /* no object: every pool starts at 1 */
#define PFX_WHEEL     4096u			  /* buckets of the timing wheel */
#define PFX_TICK_MS   32u			  /* of one bucket */
#define PFX_LOSSES    256u			  /* losses remembered for readers */
#define PFX_PRINTS    8u			  /* runs for each set of prints */
#define PFX_LINE      512u			  /* runs whose bits of one rank share a line */
#define PFX_AHEAD     32u  /* index lines on their way for one that is used */
#define PFX_SLICE     256u /* units of work a turn, or one long run */

/* An owner word: rank and how many leading blocks of the run it has; 0 is a free place. */
#define PFX_OWNER(rank, lead) ((uint32_t)(rank) << 16 | (lead))
#define PFX_RANK(owner)	      ((uint16_t)((owner) >> 16))
#define PFX_LEAD(owner)	      ((owner)&0xffffu)

struct pfx_hdr {
	_Atomic uint64_t last_sh; /* SH of block len - 1 */
	uint64_t parent_sh;	  /* constant; valid with has_parent */
	_Atomic uint16_t len;	  /* 1..512 */
	uint8_t start;		  /* constant: place of block 0 in chunk[0] */
	uint8_t has_parent;	  /* constant */
	_Atomic uint32_t age;	  /* of the last match; readers: rw, writer: rw */
	_Atomic uint32_t ext;	  /* other planes, or PFX_NONE */
	_Atomic uint32_t big;	  /* of the device plane, or PFX_NONE */
	_Atomic uint32_t owner[PFX_INLINE];
	_Atomic uint32_t chunk[PFX_CHUNKS];
};
_Static_assert(offsetof(struct pfx_hdr, chunk) == 64 && sizeof(struct pfx_hdr) == 128,
	       "a match that succeeds reads line 0 only");

struct pfx_ext {
	struct {
		_Atomic uint32_t big;
		_Atomic uint32_t spare;
		_Atomic uint32_t owner[PFX_EXTINLINE];
	} plane[PFX_PLANES - 1];
};
_Static_assert(sizeof(struct pfx_ext) == 128, "two lines");

/* A big block: `words` of bitmap, then partial owners up to the end of its lines. */
struct pfx_big {
	_Atomic uint64_t bits[1];
};

/* The place of one plane of one run, for both shapes. */
struct pfx_oset {
	_Atomic uint32_t *big;
	_Atomic uint32_t *owner;
	uint32_t inl;
};

/* Three pieces of 16 bytes, none of which lies across two lines; the second is what a list needs
 * of a neighbour. */
struct pfx_meta {
	uint32_t hdr;	       /* PFX_NONE: this meta is free */
	uint32_t gen;	       /* counts reuse, so that a stale parent link is noticed */
	uint32_t parent;       /* meta of the run before, or PFX_NONE */
	uint32_t parent_gen;   /* its gen when linked */
	uint32_t older, newer; /* list of the charged rank; only while there are no children */
	uint32_t age;	       /* of the last match, as far as the list knows */
	uint16_t pos;	       /* blocks before this run, modulo 512 */
	uint16_t charge;       /* the rank it is charged to: an owner, while there is one */
	uint64_t shrunk;       /* batch in which it got shorter; may grow when that is done */
	uint32_t nchild;       /* runs whose parent link leads here */
	uint32_t pred;	       /* first predicted entry, or PFX_NONE */
};
_Static_assert(offsetof(struct pfx_meta, older) == 16 && sizeof(struct pfx_meta) == 48, "pieces");

/* The writer's view of a rank. */
struct pfx_rank {
	uint32_t first, last; /* runs without children charged to it, oldest first */
	uint32_t age;	      /* of the first; UINT32_MAX: none */
	uint32_t runs;	      /* all that are charged to it */
	uint32_t blocks;      /* of those */
	uint32_t held;	      /* runs it has something of: bits of its row */
	uint32_t hint;	      /* no word of its row before this one is set */
	uint32_t limit;	      /* blocks of the device tier it may have; 0: any number */
	uint16_t next;	      /* rank + 1 behind it in the queue of those that are cleared */
	bool hidden;	      /* is being cleared */
	bool queued;	      /* stands in that queue */
	uint32_t spare[7];
};
_Static_assert(sizeof(struct pfx_rank) == 64, "one line");

struct pfx_pred {
	uint32_t meta;
	uint16_t rank;
	uint16_t bucket;
	uint32_t next, prev;	     /* in the bucket of the wheel */
	uint32_t run_next, run_prev; /* of the same run */
	uint64_t until_ms;
};

/* Objects of one kind: in use, free, or retired in one of two batches, linked through next[].
 * Writer only; any thread may read fresh and nfree (relaxed, they publish nothing). */
struct pfx_pool {
	uint32_t *next;
	uint32_t n;		/* objects 1..n */
	_Atomic uint32_t fresh; /* never used: fresh..n */
	uint32_t free;
	_Atomic uint32_t nfree; /* on the free list, without the fresh */
	uint32_t cur, cur_tail, wait, wait_tail;
	uint32_t ncur, nwait;
	uint32_t nretired; /* both */
	uint32_t low;	   /* make room below this many free */
};

/* Blocks of an event whose lines of the index are fetched ahead; see lines_pvt.h. */
struct pfx_lines {
	const void *sh;
	uint32_t n, done;
};

#define PFX_META_MAX ((1u << 28) - 1)
struct pfx_chunk_info {
	uint32_t meta : 28;
	uint32_t ord : 4; /* its number in the run */
};

struct kvr_prefix {
	/* Read by everybody; constant after create. */
	struct rte_hash *hash;
	struct pfx_prints *prints; /* of heads; writer: rw, readers: ro */
	struct rte_rcu_qsbr *qsbr;
	struct pfx_hdr *hdr;
	uint64_t *sh; /* chunk pool */
	struct pfx_ext *ext;
	uint8_t *big;
	uint32_t nprints; /* sets */
	uint32_t big_bytes, big_words, big_parts;
	uint32_t max_ranks, stride;
	uint64_t seed;
	enum kvr_prefix_isa isa;
	void (*score)(struct kvr_prefix *t, const struct kvr_prefix_query q[], uint32_t n);

	/* Writer: rw, seldom; readers: ro, with every query. */
	alignas(64) _Atomic uint32_t nranks; /* lanes in use */
	_Atomic uint32_t planes;	     /* bit of each plane that ever had an owner */
	_Atomic uint32_t age;		     /* now, in seconds from 1 */

	/* Writer: rw, with every loss; readers: ro, twice a group of queries. */
	alignas(64) _Atomic uint64_t losses; /* owners that lost blocks, ever */
	_Atomic uint32_t nhidden;	     /* ranks that are being cleared; once a group */
	_Atomic uint16_t loser[PFX_LOSSES];  /* the ranks of the last losses */
	_Atomic uint64_t hidden[PFX_WORDS];  /* the ranks that are being cleared */

	/* Writer: rw; dump: ro. */
	alignas(64) _Atomic uint64_t *birth; /* by header: 0 or a rising number */
	_Atomic uint64_t births;

	/* Writer only. */
	alignas(64) struct pfx_index index, predx;
	struct pfx_meta *meta;
	struct pfx_chunk_info *chunk;
	struct pfx_pred *pred;
	int32_t *key;		     /* by header: rte_hash position to free with it, or -1 */
	struct pfx_lines next_lines; /* of the event behind the present one */
	struct pfx_pool hdrs, metas, chunks, bigs, exts, preds;
	uint32_t max_blocks;
	uint64_t batch, done;	     /* current batch; last batch that all readers have left */
	uint64_t token;		     /* of the waiting batch */
	bool waiting, passed, dirty; /* passed: the readers have left the waiting batch */
	uint64_t epoch_ms;
	uint64_t tick; /* wheel: next tick to look at */
	struct pfx_rank *rank;
	uint64_t *hold;		  /* lines of 512 bits: of each rank for runs 0..511, then 512.. */
	uint64_t *sum;		  /* by rank: a bit for each word of its lines */
	uint32_t sum_words;	  /* of one rank */
	uint32_t charged;	  /* ranks that something is charged to */
	uint32_t victim, nvictim; /* of the last choice, and how often it may still be taken */
	uint32_t clear_first, clear_last; /* rank + 1; queue of those that are cleared */
	uint64_t work;			  /* units ever */
	uint32_t slice, credit;		  /* units of clearing a turn, and left in this one */
	uint32_t wheel[PFX_WHEEL];
	kvr_cell_t (*rank_blocks)[PFX_PLANES];
	struct kvr_prefix_stats st;
	void *mem;
	size_t mem_bytes;
	bool mem_mapped;
};

#endif
