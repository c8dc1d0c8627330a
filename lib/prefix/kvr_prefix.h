/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_PREFIX_H
#define KVR_PREFIX_H

/**
 * @file
 * The prefix table: which rank holds which block, either reported by events or predicted with a
 * time to live.
 *
 * A block is named by its sequence hash (SH), which identifies the block and all blocks before it.
 * Each (rank, tier) is a set of SHs. A score counts the leading blocks of a request that are in the
 * set. Ranks are dense indices 0..max_ranks-1; the caller maps (worker id, dp rank) to them.
 *
 * Threads: one writer (the event lcore) and any number of readers. A reader is registered and
 * online on the rte_rcu_qsbr variable given to kvr_prefix_create(). It must report a quiescent
 * state between bursts and keep no reference into the table across that report. No call locks or
 * waits. Only kvr_prefix_create() allocates: from EAL hugepages if there are any, otherwise from
 * memory advised to be huge. At a bound, a rank above its quota of the table evicts its own blocks,
 * least recently matched first. If all ranks are within their quotas, predicted entries go first,
 * then the least recently matched blocks of all ranks.
 *
 * A table that does not change is scored exactly. While the writer changes it, a reader may count
 * less but never more: at some moment during the call the rank held all blocks counted for it.
 *
 * Data structure (layout_pvt.h): runs of up to 512 blocks, found by their first SH in an rte_hash,
 * each with its owners. Cost: a query of up to 2,048 blocks takes 2 lookups and 0.1 to 0.3 us; each
 * further 512 blocks take one more lookup. A stored or removed block takes 5 to 12 ns in events of
 * many blocks and 45 ns in events of one block; less if the block exists already. Memory: 16 to 26
 * bytes per block.
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
#define KVR_PREFIX_DEF_RANKS  1024  /**< Default of max_ranks. */
#define KVR_PREFIX_MAX_QUERY  65536 /**< Blocks of a query that are scored; the rest is ignored. */
#define KVR_PREFIX_LANE_RANKS 16    /**< Counts are written in groups of this many ranks. */

/** Code path of scoring. AUTO selects the widest that this CPU supports. */
enum kvr_prefix_isa {
	KVR_PREFIX_ISA_AUTO,
	KVR_PREFIX_ISA_SCALAR,
	KVR_PREFIX_ISA_AVX2,
	KVR_PREFIX_ISA_AVX512,
};

/** Configuration. Zero in an optional field selects the default given in brackets. */
struct kvr_prefix_conf {
	const char *name;	   /**< Unique in the process, at most 20 characters. */
	struct rte_rcu_qsbr *qsbr; /**< QSBR variable of the readers; must outlive the table. */
	uint32_t max_ranks;	   /**< 1..KVR_PREFIX_MAX_RANKS [KVR_PREFIX_DEF_RANKS]. */
	uint32_t max_blocks;	   /**< Distinct SHs, 64..2^31 [2^20]. */
	uint32_t max_runs;	   /**< Runs of consecutive blocks [max_blocks / 32]. */
	uint32_t max_predicted;	   /**< Predicted (rank, run) entries [max_runs]. */
	int socket_id;		   /**< NUMA socket, or SOCKET_ID_ANY. */
	enum kvr_prefix_isa isa;   /**< Forces a code path (tests) [AUTO]. */
	uint64_t seed;	/**< Random per start, so that clients cannot construct collisions. */
	uint32_t slice; /**< Units of clearing per turn, 16 to 50 ns each [256]. */
	bool lazy;	/**< Do not touch the pages at start: for processes that do not poll. */
};

/** Bits of kvr_overlap.flags: the arrays that were written. The device array is always written. */
#define KVR_OVERLAP_HOST      (1u << KVR_TIER_HOST)
#define KVR_OVERLAP_DISK      (1u << KVR_TIER_DISK)
#define KVR_OVERLAP_EXTERNAL  (1u << KVR_TIER_EXTERNAL)
#define KVR_OVERLAP_PREDICTED (1u << KVR_TIERS)

/**
 * Scores of one query. The caller provides kvr_overlap_size() bytes, aligned to a cache line. Five
 * arrays of `stride` counts, in blocks, indexed by rank: device, host, disk, external, predicted.
 * Lanes 0..nranks-1 of each valid array are written, with zero for a rank without blocks; other
 * lanes are unchanged. The device count is the greater of the reported and the predicted leading
 * count. Each other tier counts the contiguous extension beyond the tier before it.
 *
 * If no rank holds the first block, no lane is written: flags, nranks and max_device are 0.
 */
struct kvr_overlap {
	uint32_t flags;	 /**< KVR_OVERLAP_*. reader: rw */
	uint32_t nranks; /**< Lanes written: 0 or a multiple of KVR_PREFIX_LANE_RANKS. reader: rw */
	uint32_t stride; /**< Lanes of each array. reader: rw */
	uint32_t max_device; /**< Upper bound of the device counts; 0: all are 0. reader: rw */
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

/** Counts of @p tier by rank. Valid for the device and for the tiers in flags. */
static inline const uint32_t *kvr_overlap_tier(const struct kvr_overlap *overlap,
					       enum kvr_tier tier)
{
	return &overlap->count[(size_t)tier * overlap->stride];
}

/** As kvr_overlap_tier(), or NULL if no rank holds a block in @p tier. */
static inline const uint32_t *kvr_overlap_held(const struct kvr_overlap *overlap,
					       enum kvr_tier tier)
{
	return tier == KVR_TIER_DEVICE || (overlap->flags & 1u << tier) != 0
		       ? kvr_overlap_tier(overlap, tier)
		       : NULL;
}

/** Predicted leading counts by rank. Valid if flags contains KVR_OVERLAP_PREDICTED. */
static inline const uint32_t *kvr_overlap_predicted(const struct kvr_overlap *overlap)
{
	return &overlap->count[(size_t)KVR_TIERS * overlap->stride];
}

/**
 * Set the lanes that were not written to zero, for a caller that reads all lanes of the valid
 * tiers.
 */
static inline void kvr_overlap_pad(struct kvr_overlap *overlap)
{
	const size_t n = (overlap->stride - overlap->nranks) * sizeof(overlap->count[0]);

	for (uint32_t t = KVR_TIER_DEVICE; n > 0 && t < KVR_TIERS; t++)
		if (t == KVR_TIER_DEVICE || (overlap->flags & 1u << t) != 0)
			memset(&overlap->count[(size_t)t * overlap->stride + overlap->nranks], 0,
			       n);
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

/** One event: consecutive or arbitrary blocks of one (rank, tier). */
struct kvr_prefix_event {
	uint8_t op;	 /**< enum kvr_prefix_op. */
	uint8_t tier;	 /**< enum kvr_tier. */
	bool has_parent; /**< Store: `parent` is valid; else the first block is a root. */
	uint16_t rank;	 /**< Below max_ranks. */
	uint32_t n;	 /**< Blocks in `sh`. */
	uint64_t parent; /**< SH before sh[0]; lets an existing run grow. */
	const void *sh;	 /**< n SHs, no alignment needed. For a store: in chain order. */
};

/** Counters and gauges. Writer: rw (relaxed), any thread: ro through kvr_prefix_stats_get(). */
#define KVR_PREFIX_COUNTER_LIST(X)                                                                 \
	X(KVR_PREFIX_C_BLOCKS, blocks, GAUGE, "blocks", "distinct hashes now")                     \
	X(KVR_PREFIX_C_RUNS, runs, GAUGE, "runs", "runs now")                                      \
	X(KVR_PREFIX_C_ENTRIES, entries, GAUGE, "entries", "(rank, tier, block) reported now")     \
	X(KVR_PREFIX_C_PREDICTED, predicted, GAUGE, "entries",                                     \
	  "predicted (rank, run) entries now")                                                     \
	X(KVR_PREFIX_C_STORED, stored, COUNT, "entries", "entries added, without duplicates")      \
	X(KVR_PREFIX_C_REMOVED, removed, COUNT, "entries", "entries removed by remove events")     \
	X(KVR_PREFIX_C_CLEARED, cleared, COUNT, "entries", "entries removed by clears")            \
	X(KVR_PREFIX_C_DUPLICATES, duplicates, COUNT, "blocks",                                    \
	  "stored blocks that the (rank, tier) already held")                                      \
	X(KVR_PREFIX_C_ORPHANS, orphans, COUNT, "blocks",                                          \
	  "blocks stored after a parent that no rank holds")                                       \
	X(KVR_PREFIX_C_UNKNOWN_REMOVES, unknown_removes, COUNT, "blocks",                          \
	  "removed blocks that the (rank, tier) did not hold")                                     \
	X(KVR_PREFIX_C_DROPPED, dropped, COUNT, "blocks",                                          \
	  "blocks not stored because memory was short even after eviction")                        \
	X(KVR_PREFIX_C_EXPIRED, expired, COUNT, "entries",                                         \
	  "predicted entries removed at the end of their time to live")                            \
	X(KVR_PREFIX_C_EVICTED_PREDICTED, evicted_predicted, COUNT, "entries",                     \
	  "predicted entries evicted at a bound")                                                  \
	X(KVR_PREFIX_C_EVICTED_RUNS, evicted_runs, COUNT, "runs",                                  \
	  "runs that a rank gave up at a bound, least recently matched first")                     \
	X(KVR_PREFIX_C_EVICTED_ENTRIES, evicted_entries, COUNT, "entries",                         \
	  "reported entries in evicted runs")                                                      \
	X(KVR_PREFIX_C_CLEARING, clearing, GAUGE, "ranks", "ranks being cleared now")              \
	X(KVR_PREFIX_C_RETIRED, retired, GAUGE, "objects", "objects waiting for the readers now")  \
	X(KVR_PREFIX_C_USED_BYTES, used_bytes, GAUGE, "bytes",                                     \
	  "pool memory in use now; 0 when the table is empty")                                     \
	X(KVR_PREFIX_C_MEMORY_BYTES, memory_bytes, GAUGE, "bytes", "memory reserved by create")
enum kvr_prefix_counter { KVR_PREFIX_COUNTER_LIST(KVR_COUNTER_ENUM) KVR_PREFIX_COUNTERS };
struct kvr_prefix_stats {
	KVR_PREFIX_COUNTER_LIST(KVR_COUNTER_FIELD)
};
extern const struct kvr_stats_def kvr_prefix_stats_def;

struct kvr_prefix;

/** Memory that a table takes. */
struct kvr_prefix_need {
	size_t table_bytes;	/**< one allocation: EAL memory with hugepages, otherwise mapped */
	size_t self_bytes;	/**< EAL memory */
	uint32_t index_entries; /**< entries of an rte_hash with keys of 8 bytes, in EAL memory */
};

/**
 * Compute the memory of a table. Does not check the fields of @p conf. Needs no EAL. Any thread.
 */
void kvr_prefix_need(const struct kvr_prefix_conf *conf, struct kvr_prefix_need *out);

/**
 * Create an empty table. Any thread.
 * @return the table, or NULL with errno: EINVAL (a field out of range, no name, no qsbr), ENOMEM,
 *   EEXIST (name in use), ENOTSUP (the CPU lacks the forced isa).
 */
struct kvr_prefix *kvr_prefix_create(const struct kvr_prefix_conf *conf);

/** Free a table that no thread uses any more. Accepts NULL. */
void kvr_prefix_destroy(struct kvr_prefix *table);

/**
 * Apply a burst of events in order. Larger bursts overlap more cache misses. Events with an unknown
 * operation, tier or rank are a bug of the caller and are ignored. Writer.
 */
void kvr_prefix_apply_burst(struct kvr_prefix *table, const struct kvr_prefix_event ev[],
			    uint32_t n);

#define KVR_PREFIX_FETCH 32u /**< events */

/**
 * Prefetch what applying @p ev, in this order, will read: the first KVR_PREFIX_FETCH events,
 * preferably about a thousand blocks rather than ten thousand. Changes nothing; the events need not
 * be applied afterwards. Writer.
 */
void kvr_prefix_fetch(struct kvr_prefix *table, const struct kvr_prefix_event ev[], uint32_t n);

/** Store @p n blocks as a burst of one event; @p parent is NULL for a root. Writer. */
void kvr_prefix_store(struct kvr_prefix *table, uint16_t rank, enum kvr_tier tier,
		      const uint64_t *parent, const void *sh, uint32_t n);

/** Remove @p n blocks in any order as a burst of one event. Writer. */
void kvr_prefix_remove(struct kvr_prefix *table, uint16_t rank, enum kvr_tier tier, const void *sh,
		       uint32_t n);

/**
 * Remove all blocks of @p rank, reported or predicted: the rank was cleared, or has left and its
 * index may be reused. From now on the rank counts nothing. A rank without blocks costs one load.
 * Otherwise its blocks are freed in slices: in this call as far as the work of the turn allows,
 * then by kvr_prefix_maintain(). Until that is done, the rank accepts no blocks, see
 * kvr_prefix_ready(). Any number of ranks may be cleared at the same time. Writer.
 */
void kvr_prefix_clear_rank(struct kvr_prefix *table, uint16_t rank);

/**
 * Return true if blocks of @p rank may be stored or predicted. Return false while the rank is being
 * cleared, after spending the remaining work of the turn on it. Stores and predictions are then
 * dropped and counted as such, and removes count as unknown: call this first, and let the sender
 * wait. Writer.
 */
bool kvr_prefix_ready(struct kvr_prefix *table, uint16_t rank);

/**
 * Set the number of device blocks that @p rank can hold; 0: unlimited. Blocks above the limit are
 * evicted at once, the oldest of the rank first. The limit stays until it is set again. Writer.
 */
void kvr_prefix_limit(struct kvr_prefix *table, uint16_t rank, uint64_t blocks);

/**
 * Predict that @p rank will hold @p n blocks from the root on. They count as held until @p ttl_ms
 * have passed and are removed at most 100 ms later, if kvr_prefix_expire() is called that often.
 * Another prediction renews the blocks given. Predictions are independent of reported blocks. @p
 * now_ms is the monotonic clock that is also given to kvr_prefix_expire(). A ttl of 0 predicts
 * nothing. Writer.
 */
void kvr_prefix_predict(struct kvr_prefix *table, uint16_t rank, const void *sh, uint32_t n,
			uint64_t now_ms, uint32_t ttl_ms);

/**
 * Predict blocks @p from to @p n - 1, after calls for the blocks before, until kvr_prefix_work()
 * reaches @p end; at least some blocks. Otherwise as kvr_prefix_predict(). Writer.
 * @return the block to continue with; @p n: done.
 */
uint32_t kvr_prefix_predict_some(struct kvr_prefix *table, uint16_t rank, const void *sh,
				 uint32_t from, uint32_t n, uint64_t now_ms, uint32_t ttl_ms,
				 uint64_t end);

/**
 * Remove predictions whose time to live has ended at @p now_ms, for about 20 us. Writer.
 * @return false if some remain: call again soon.
 */
bool kvr_prefix_expire(struct kvr_prefix *table, uint64_t now_ms);

/**
 * Call once per turn of the writer. Continues to clear ranks, with at most conf.slice units of work
 * per turn, shared with kvr_prefix_clear_rank() and kvr_prefix_ready() until the next call. Returns
 * memory that no reader can access any more to the pools. Advances the clock of "least recently
 * matched" (resolution: one second of @p now_ms). Writer.
 * @return objects that still wait for readers, plus runs that still have to be cleared.
 */
uint32_t kvr_prefix_maintain(struct kvr_prefix *table, uint64_t now_ms);

/** Total work of stores, removes, predictions, evictions and clears, in units. Writer. */
uint64_t kvr_prefix_work(const struct kvr_prefix *table);

/** Prefetch a few cache lines for the first lookups of a query of @p n blocks. Reader. */
void kvr_prefix_prefetch(const struct kvr_prefix *table, const void *sh, uint32_t n);

/** Score a burst of queries into their `out`. Allocates nothing and cannot fail. Reader. */
void kvr_prefix_score_burst(struct kvr_prefix *table, const struct kvr_prefix_query query[],
			    uint32_t n);

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
 * Dump the table, which the writer may change meanwhile. An entry that exists during the whole call
 * is reported at least once; an entry stored or removed meanwhile may be missing. The order of
 * pieces is unspecified; storing them into an empty table rebuilds this one. The caller is an
 * online reader with id @p thread_id, and the call reports quiescent states. @p rest (may be NULL)
 * is called at these points, between two runs, when no reference into the table is held: it may
 * take the thread offline for any time (to wait for a disk) but must leave it online. Any reader
 * thread, off the packet path.
 * @return 0, -ECANCELED if a callback stopped the dump, or -EAGAIN if the table changed so fast
 *   that the dump is incomplete.
 */
int kvr_prefix_dump(struct kvr_prefix *table, unsigned int thread_id, kvr_prefix_dump_cb cb,
		    bool (*rest)(void *ctx), void *ctx);

/** Copy the counters. Each is exact, but they may be some events apart. Any thread. */
void kvr_prefix_stats_get(const struct kvr_prefix *table, struct kvr_prefix_stats *out);

/** Blocks that @p rank holds in @p tier now. Any thread. */
uint64_t kvr_prefix_rank_blocks(const struct kvr_prefix *table, uint16_t rank, enum kvr_tier tier);

/** Name of the code path in use: "scalar", "avx2" or "avx512". Any thread. */
const char *kvr_prefix_isa_name(const struct kvr_prefix *table);

#endif
