/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_PREFIX_H
#define KVR_PREFIX_H

/**
 * @file
 * Which rank holds which block: exact from events, or predicted with a time to live.
 *
 * A block is named by its sequence hash (SH), which stands for the block and everything before
 * it. Each (rank, tier) is a set of SHs; a score counts the leading blocks of a request that are
 * in the set. Ranks are dense indices 0..max_ranks-1; the caller maps (worker id, dp rank).
 *
 * Threads: one writer (the event lcore), any number of readers. Readers are threads registered
 * and online on the rte_rcu_qsbr variable handed to kvr_prefix_create(); they must report a
 * quiescent state between bursts and hold nothing of the table across it. No call locks or waits.
 * Memory is allocated by create alone: hugepages when the EAL has some, else pages advised to be
 * huge. At a bound a rank above its share of the table gives up its own blocks, least recently
 * matched first; within the shares predicted entries go first, then the least recently matched
 * blocks of all.
 *
 * A quiet table is scored exactly. While the writer changes it, a reader may count less, never
 * more: there was a moment during the call at which the rank had all blocks counted for it.
 *
 * The structure (layout_pvt.h): runs of up to 512 blocks found through rte_hash by their first SH,
 * each with its owners. Budget: 2 look-ups and 0.1 to 0.3 us a query of any length up to 2,048
 * blocks, one more look-up for each 512 blocks beyond; 5 to 12 ns a stored or removed block in
 * events of many, 45 in events of one, less when the block is there; 16 to 26 bytes a block.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <rte_common.h>
#include <rte_rcu_qsbr.h>

#include "kvr_stats.h"
#include "kvr_types.h"

#define KVR_PREFIX_MAX_RANKS  16384 /**< Largest max_ranks. */
#define KVR_PREFIX_DEF_RANKS  1024  /**< max_ranks when it is not given. */
#define KVR_PREFIX_MAX_QUERY  65536 /**< Blocks of a query that are looked at. */
#define KVR_PREFIX_LANE_RANKS 16    /**< Counts are written in groups of so many ranks. */

/** Code path of scoring; AUTO takes the widest this CPU has. */
enum kvr_prefix_isa {
	KVR_PREFIX_ISA_AUTO,
	KVR_PREFIX_ISA_SCALAR,
	KVR_PREFIX_ISA_AVX2,
	KVR_PREFIX_ISA_AVX512,
};

/** Zero in an optional field means the default in brackets. */
struct kvr_prefix_conf {
	const char *name;	   /**< Unique in the process, at most 20 characters. */
	struct rte_rcu_qsbr *qsbr; /**< The readers' variable; must outlive the table. */
	uint32_t max_ranks;	   /**< 1..KVR_PREFIX_MAX_RANKS [KVR_PREFIX_DEF_RANKS]. */
	uint32_t max_blocks;	   /**< Distinct SHs, 64..2^31 [2^20]. */
	uint32_t max_runs;	   /**< Runs (consecutive blocks met together) [max_blocks / 32]. */
	uint32_t max_predicted;	   /**< Predicted (rank, run) entries [max_runs]. */
	int socket_id;		   /**< NUMA socket, or SOCKET_ID_ANY. */
	enum kvr_prefix_isa isa;   /**< Forces a code path (tests) [AUTO]. */
	uint64_t seed;		   /**< Random per start: keeps peers from aiming at a bucket. */
	uint32_t slice;		   /**< Units of clearing a turn, 16 to 50 ns each [256]. */
	bool lazy;		   /**< Pages are the system's until one is used (no poller). */
};

/** Bits of kvr_overlap.flags: which arrays were written. The device array always is. */
#define KVR_OVERLAP_HOST      (1u << KVR_TIER_HOST)
#define KVR_OVERLAP_DISK      (1u << KVR_TIER_DISK)
#define KVR_OVERLAP_EXTERNAL  (1u << KVR_TIER_EXTERNAL)
#define KVR_OVERLAP_PREDICTED (1u << KVR_TIERS)

/**
 * Scores of one query; the memory is the caller's, kvr_overlap_size() bytes, aligned to a cache
 * line. Five arrays of `stride` counts, in blocks, indexed by rank: device, host, disk, external,
 * predicted. Lanes 0..nranks-1 of a valid array are written, zero for a rank without blocks; the
 * rest is left alone. Device is the greater of the reported and the predicted leading count, the
 * other tiers are the contiguous extensions, each beyond the tier before it.
 *
 * Of a prompt that begins like nobody's no lane is written: flags, nranks and max_device are 0.
 */
struct kvr_overlap {
	uint32_t flags;	     /**< KVR_OVERLAP_*. reader: rw */
	uint32_t nranks;     /**< Lanes written: 0, or by KVR_PREFIX_LANE_RANKS. reader: rw */
	uint32_t stride;     /**< Lanes of each array. reader: rw */
	uint32_t max_device; /**< No rank's device count is above it; 0: all are 0. reader: rw */
	uint32_t reserved[12];
	uint32_t count[]; /**< reader: rw */
};

/** Lanes of each array of a kvr_overlap. */
static inline uint32_t kvr_overlap_stride(uint32_t max_ranks)
{
	return (max_ranks + KVR_PREFIX_LANE_RANKS - 1) & ~(uint32_t)(KVR_PREFIX_LANE_RANKS - 1);
}

/** Bytes of a kvr_overlap for a table of @p max_ranks, a multiple of the cache line. */
static inline size_t kvr_overlap_size(uint32_t max_ranks)
{
	return sizeof(struct kvr_overlap) +
	       (KVR_TIERS + 1) * sizeof(uint32_t) * (size_t)kvr_overlap_stride(max_ranks);
}

/** Counts of @p tier by rank; meaningful for the device and for tiers named in flags. */
static inline const uint32_t *kvr_overlap_tier(const struct kvr_overlap *o, enum kvr_tier tier)
{
	return &o->count[(size_t)tier * o->stride];
}

/** The same, or NULL when nobody holds anything in @p tier. */
static inline const uint32_t *kvr_overlap_held(const struct kvr_overlap *o, enum kvr_tier tier)
{
	return tier == KVR_TIER_DEVICE || (o->flags & 1u << tier) != 0 ? kvr_overlap_tier(o, tier)
								       : NULL;
}

/** Predicted leading counts by rank; meaningful with KVR_OVERLAP_PREDICTED. */
static inline const uint32_t *kvr_overlap_predicted(const struct kvr_overlap *o)
{
	return &o->count[(size_t)KVR_TIERS * o->stride];
}

/** Zeros in the lanes of the tiers that were not written: for who reads all lanes of those. */
static inline void kvr_overlap_pad(struct kvr_overlap *o)
{
	const size_t n = (o->stride - o->nranks) * sizeof(o->count[0]);

	for (uint32_t t = KVR_TIER_DEVICE; n > 0 && t < KVR_TIERS; t++)
		if (t == KVR_TIER_DEVICE || (o->flags & 1u << t) != 0)
			memset(&o->count[(size_t)t * o->stride + o->nranks], 0, n);
}

/** One query: @p n SHs from the root on. `sh` needs no alignment (packet memory). */
struct kvr_prefix_query {
	const void *sh;
	uint32_t n; /**< Blocks beyond KVR_PREFIX_MAX_QUERY are ignored. */
	struct kvr_overlap *out;
};

enum kvr_prefix_op {
	KVR_PREFIX_STORE,
	KVR_PREFIX_REMOVE,
};

/** One event about consecutive or arbitrary blocks of one (rank, tier). */
struct kvr_prefix_event {
	uint8_t op;	 /**< enum kvr_prefix_op. */
	uint8_t tier;	 /**< enum kvr_tier. */
	bool has_parent; /**< Store: `parent` is valid; else the first block is a root. */
	uint16_t rank;	 /**< Below max_ranks. */
	uint32_t n;	 /**< Blocks in `sh`. */
	uint64_t parent; /**< SH before sh[0]: a hint that lets runs grow. */
	const void *sh;	 /**< n SHs, no alignment needed. Store: in chain order. */
};

/** Counters and gauges. Writer: rw (relaxed), any thread: ro through kvr_prefix_stats_get(). */
#define KVR_PREFIX_COUNTER_LIST(X)                                                                 \
	X(KVR_PREFIX_C_BLOCKS, blocks, GAUGE, "blocks", "distinct hashes now")                     \
	X(KVR_PREFIX_C_RUNS, runs, GAUGE, "runs", "runs now")                                      \
	X(KVR_PREFIX_C_ENTRIES, entries, GAUGE, "entries", "(rank, tier, block) reported now")     \
	X(KVR_PREFIX_C_PREDICTED, predicted, GAUGE, "entries",                                     \
	  "predicted (rank, run) entries now")                                                     \
	X(KVR_PREFIX_C_STORED, stored, COUNT, "entries", "entries added, without duplicates")      \
	X(KVR_PREFIX_C_REMOVED, removed, COUNT, "entries", "entries that remove events took")      \
	X(KVR_PREFIX_C_CLEARED, cleared, COUNT, "entries", "entries that clears took")             \
	X(KVR_PREFIX_C_DUPLICATES, duplicates, COUNT, "blocks",                                    \
	  "blocks stored that the (rank, tier) had already")                                       \
	X(KVR_PREFIX_C_ORPHANS, orphans, COUNT, "blocks",                                          \
	  "blocks stored behind a parent nobody holds")                                            \
	X(KVR_PREFIX_C_UNKNOWN_REMOVES, unknown_removes, COUNT, "blocks",                          \
	  "blocks removed that the (rank, tier) did not have")                                     \
	X(KVR_PREFIX_C_DROPPED, dropped, COUNT, "blocks",                                          \
	  "blocks not stored for want of memory even after eviction")                              \
	X(KVR_PREFIX_C_EXPIRED, expired, COUNT, "entries",                                         \
	  "predicted entries whose time was over")                                                 \
	X(KVR_PREFIX_C_EVICTED_PREDICTED, evicted_predicted, COUNT, "entries",                     \
	  "predicted entries dropped at a bound")                                                  \
	X(KVR_PREFIX_C_EVICTED_RUNS, evicted_runs, COUNT, "runs",                                  \
	  "runs that a rank gave up at a bound, its least recently matched first")                 \
	X(KVR_PREFIX_C_EVICTED_ENTRIES, evicted_entries, COUNT, "entries",                         \
	  "reported entries that went with them")                                                  \
	X(KVR_PREFIX_C_CLEARING, clearing, GAUGE, "ranks", "ranks being cleared now")              \
	X(KVR_PREFIX_C_RETIRED, retired, GAUGE, "objects", "objects waiting for the readers now")  \
	X(KVR_PREFIX_C_USED_BYTES, used_bytes, GAUGE, "bytes",                                     \
	  "pool memory in use now: 0 when everything was removed")                                 \
	X(KVR_PREFIX_C_MEMORY_BYTES, memory_bytes, GAUGE, "bytes", "memory reserved by create")
enum kvr_prefix_counter { KVR_PREFIX_COUNTER_LIST(KVR_COUNTER_ENUM) KVR_PREFIX_COUNTERS };
struct kvr_prefix_stats {
	KVR_PREFIX_COUNTER_LIST(KVR_COUNTER_FIELD)
};
extern const struct kvr_stats_def kvr_prefix_stats_def;

struct kvr_prefix;

/** What a table takes. */
struct kvr_prefix_need {
	size_t table_bytes;	/**< one piece: EAL memory with huge pages, else mapped beside it */
	size_t self_bytes;	/**< EAL memory */
	uint32_t index_entries; /**< of an rte_hash with keys of 8 bytes: EAL memory */
};

/** Any thread, without an EAL; @p c as for kvr_prefix_create(), of which no field is checked. */
void kvr_prefix_need(const struct kvr_prefix_conf *c, struct kvr_prefix_need *out);

/**
 * Create an empty table. Any thread.
 * @return the table, or NULL with errno: EINVAL (a field out of range, no name, no qsbr), ENOMEM,
 *   EEXIST (name in use), ENOTSUP (the CPU lacks the forced isa).
 */
struct kvr_prefix *kvr_prefix_create(const struct kvr_prefix_conf *conf);

/** Free a table that no thread uses any more. Accepts NULL. */
void kvr_prefix_destroy(struct kvr_prefix *t);

/**
 * Apply a burst of events in order. The larger the burst, the more cache misses overlap. Writer.
 * Unknown operations, tiers and ranks are the caller's bug: they are ignored.
 */
void kvr_prefix_apply_burst(struct kvr_prefix *t, const struct kvr_prefix_event ev[], uint32_t n);

#define KVR_PREFIX_FETCH 32u /**< events */

/**
 * Begin to load what applying @p ev, in this order, will read: the first KVR_PREFIX_FETCH of them,
 * and better about a thousand blocks than ten thousand. It changes nothing, and nothing has to be
 * applied afterwards. Writer.
 */
void kvr_prefix_fetch(struct kvr_prefix *t, const struct kvr_prefix_event ev[], uint32_t n);

/** Store @p n blocks; @p parent is NULL for a root. As a burst of one event. Writer. */
void kvr_prefix_store(struct kvr_prefix *t, uint16_t rank, enum kvr_tier tier,
		      const uint64_t *parent, const void *sh, uint32_t n);

/** Remove @p n blocks in any order. As a burst of one event. Writer. */
void kvr_prefix_remove(struct kvr_prefix *t, uint16_t rank, enum kvr_tier tier, const void *sh,
		       uint32_t n);

/**
 * Remove all that @p rank has, reported or predicted: it was cleared, or it left and its index may
 * be given to another. Writer. It counts nothing from now on. A rank that has nothing costs a load;
 * else its blocks are freed in slices, by this call as far as the turn's work allows, then by
 * kvr_prefix_maintain(). Until that is done it takes nothing new: see kvr_prefix_ready(). Any
 * number of ranks may be under way.
 */
void kvr_prefix_clear_rank(struct kvr_prefix *t, uint16_t rank);

/**
 * May blocks of @p rank be stored or predicted? False: it is still being cleared, also after this
 * call has spent on it what is left of the turn's work. Stores and predictions are then dropped and
 * counted so, removes are unknown: ask before, and let the sender wait. Writer.
 */
bool kvr_prefix_ready(struct kvr_prefix *t, uint16_t rank);

/**
 * The rank can have @p blocks on its device (0: any number). What is above goes at once, its own
 * oldest first. Holds until it is set again. Writer.
 */
void kvr_prefix_limit(struct kvr_prefix *t, uint16_t rank, uint64_t blocks);

/**
 * Predict that @p rank will hold @p n blocks from the root on: they count as held from now until
 * @p ttl_ms are over and are gone at most 100 ms later, if kvr_prefix_expire() is called that
 * often. Predicting again renews the blocks given. Independent of reported blocks. Writer.
 * @p now_ms is any monotonic clock, the one given to expire. A ttl of 0 predicts nothing.
 */
void kvr_prefix_predict(struct kvr_prefix *t, uint16_t rank, const void *sh, uint32_t n,
			uint64_t now_ms, uint32_t ttl_ms);

/**
 * The same for blocks @p from to @p n - 1, after calls for those before, until kvr_prefix_work()
 * has reached @p end; at least some. Writer.
 * @return where to go on; @p n: done.
 */
uint32_t kvr_prefix_predict_some(struct kvr_prefix *t, uint16_t rank, const void *sh, uint32_t from,
				 uint32_t n, uint64_t now_ms, uint32_t ttl_ms, uint64_t end);

/**
 * Drop predictions whose time is over at @p now_ms, about 20 us of them. Writer.
 * @return false: there are more, call again soon.
 */
bool kvr_prefix_expire(struct kvr_prefix *t, uint64_t now_ms);

/**
 * Once per turn of the writer: goes on with ranks that are being cleared (at most conf.slice units
 * of work a turn, shared with clears and kvr_prefix_ready() until the next call), returns memory
 * that no reader can see any more to the pools and moves the clock of "least recently matched"
 * (resolution: one second of @p now_ms). Writer.
 * @return objects still waiting for readers, and runs for being cleared.
 */
uint32_t kvr_prefix_maintain(struct kvr_prefix *t, uint64_t now_ms);

/** Work done ever by stores, removes, predictions, evictions and clears, in units. Writer. */
uint64_t kvr_prefix_work(const struct kvr_prefix *t);

/** Begin to load what the first look-ups of a query of @p n blocks read: a few lines. Reader. */
void kvr_prefix_prefetch(const struct kvr_prefix *t, const void *sh, uint32_t n);

/** Score a burst of queries into their `out`. Reader. Allocates nothing, cannot fail. */
void kvr_prefix_score_burst(struct kvr_prefix *t, const struct kvr_prefix_query q[], uint32_t n);

/** A piece of a dump: consecutive blocks of one (rank, tier). Valid during the callback only. */
struct kvr_prefix_piece {
	uint16_t rank;
	uint8_t tier;	 /**< enum kvr_tier; predictions are not dumped. */
	bool has_parent; /**< `parent` is the SH before sh[0]. */
	uint64_t parent;
	const uint64_t *sh;
	uint32_t n; /**< 1..512 */
};

/** Return false to stop the dump. */
typedef bool (*kvr_prefix_dump_cb)(void *ctx, const struct kvr_prefix_piece *piece);

/**
 * Walk the table while it may be changed: every entry that was there during the whole call is
 * given at least once, one stored or removed meanwhile may or may not be. Pieces come in no
 * order; storing them into an empty table rebuilds this one. The caller is an online reader
 * with id @p thread_id, and is quiescent now and then. @p rest (or NULL) is called then, between
 * two runs of the table, when nothing of it is held: it may take the thread offline for as long as
 * it likes (to wait for a disk) and must leave it online. Any reader thread, off the packet path.
 * @return 0, -ECANCELED when a callback stopped it, or -EAGAIN when the table changed so fast
 *   that the walk is not complete.
 */
int kvr_prefix_dump(struct kvr_prefix *t, unsigned int thread_id, kvr_prefix_dump_cb cb,
		    bool (*rest)(void *ctx), void *ctx);

/** Copy the counters; each is exact, together they may be some events apart. Any thread. */
void kvr_prefix_stats_get(const struct kvr_prefix *t, struct kvr_prefix_stats *out);

/** Blocks that @p rank holds in @p tier now. Any thread. */
uint64_t kvr_prefix_rank_blocks(const struct kvr_prefix *t, uint16_t rank, enum kvr_tier tier);

/** Name of the code path in use: "scalar", "avx2" or "avx512". Any thread. */
const char *kvr_prefix_isa_name(const struct kvr_prefix *t);

#endif
