/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_POOL_CONF_H
#define KVR_POOL_CONF_H

/**
 * @file
 * Options of one pool (the workers of one model) and of its scheduler. The table
 * `kvr_pool_opts` holds names, ranges and defaults; lib/conf reads it. RULES.md, sections 5 to 8,
 * 12 and 14, defines each key. "Unset" thresholds are NaN (fractions) or UINT64_MAX (counts).
 * Written before the pool is created, read-only afterwards.
 */

#include "kvr_conf.h"
#include "kvr_types.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVR_POOL_NAME_MAX    64
#define KVR_POOL_CLASSES_MAX 32
#define KVR_POOL_NONE	     UINT64_MAX

/** Routing modes that code refers to; modes_dp.c lists all. */
enum kvr_pool_mode {
	KVR_MODE_KV,
	KVR_MODE_ROUND_ROBIN,
	KVR_MODE_RANDOM,
	KVR_MODE_POWER_OF_TWO,
	KVR_MODE_LEAST_LOADED,
	KVR_MODE_DEVICE_AWARE,
	KVR_MODE_DIRECT,
	KVR_MODE_TTFT,
};

enum kvr_queue_policy {
	KVR_QUEUE_FCFS,
	KVR_QUEUE_LCFS,
	KVR_QUEUE_WSPT,
};

enum kvr_prefill_model {
	KVR_PREFILL_MODEL_NONE,
	KVR_PREFILL_MODEL_LINEAR, /**< base + per_token * uncached tokens + per_cached * cached */
	KVR_PREFILL_MODEL_TABLE,  /**< points of uncached tokens -> ms, straight lines between */
};

enum kvr_disagg_policy {
	KVR_DISAGG_ALWAYS,	 /**< every request goes through the prefill pool */
	KVR_DISAGG_ISL_BOUNDING, /**< except if few tokens are left to compute */
	KVR_DISAGG_PREFILL_LOAD, /**< except if the prefill worker is busy */
	KVR_DISAGG_ISL_OR_LOAD,
};

/** One policy class (section 7.6). */
struct kvr_pool_class {
	char name[KVR_POOL_NAME_MAX];
	int queue_policy;	    /**< enum kvr_queue_policy */
	uint32_t quantum;	    /**< > 0 */
	uint64_t busy_threshold;    /**< prefill tokens; KVR_POOL_NONE = unset */
	double busy_threshold_frac; /**< of max_num_batched_tokens; NaN = unset */
	uint64_t max_requests;	    /**< per worker; KVR_POOL_NONE = no limit (all three) */
	uint64_t max_isl_tokens;    /**< per worker */
	uint64_t max_cached_tokens; /**< per worker */
};

/** Everything a pool is created from. Fill with kvr_pool_conf_defaults(), then set keys. */
struct kvr_pool_conf {
	/* identity */
	char name[KVR_POOL_NAME_MAX];
	char model[KVR_POOL_NAME_MAX]; /**< "" = name */
	int role;		       /**< enum kvr_role */
	uint32_t block_size;	       /**< tokens */
	uint64_t seed;		       /**< of ties and temperature; also of the private index */

	/* sizes, fixed at create */
	uint32_t max_ranks;	    /**< rounded up to a multiple of 64 */
	uint32_t max_workers;	    /**< 0: max_ranks */
	uint32_t max_requests;	    /**< booking slots, waiting ones included */
	uint32_t max_active_blocks; /**< prompt blocks the load model tells apart */
	uint32_t max_prompt_blocks; /**< longest prompt, in blocks */
	uint32_t max_taints;	    /**< different taint strings on the workers of the pool */

	/* cost and choice (5.2 to 5.4, 12.1) */
	int mode;   /**< enum kvr_pool_mode */
	int preset; /**< index of the preset that set its keys */
	double overlap_score_credit;
	double overlap_score_credit_decay;
	double overlap_score_weight; /**< NaN, or replaces scale (and credit) at create */
	double prefill_load_scale;
	double decode_active_request_weight;
	double host_cache_hit_weight;
	double disk_cache_hit_weight;
	double shared_cache_multiplier;
	double temperature;
	double ttft_decode_weight;
	bool ttft_late_binding;
	uint32_t ttft_late_tokens;
	uint32_t ttft_late_ms;
	uint32_t cuda_to_cpu_ratio; /**< device-aware-weighted */

	/* index and load model (3.7, 5.6, 6) */
	bool use_kv_events;
	double ttl_s;		/**< approximate mode */
	double predicted_ttl_s; /**< NaN = no predict-on-route */
	bool assume_kv_reuse;
	bool track_prefill_tokens;
	bool track_active_blocks;
	bool track_output_blocks;
	double request_expiry_s; /**< silence that releases a booking; 0 = never */
	int prefill_model;	 /**< enum kvr_prefill_model */
	double prefill_base_ms;
	double prefill_us_per_token;
	double prefill_us_per_cached_token;
	char prefill_table[1024]; /**< "tokens:ms,tokens:ms,..." ascending */

	/* queue (7) */
	double queue_threshold;	  /**< NaN = off */
	int queue_policy;	  /**< enum kvr_queue_policy */
	double overlap_refresh_s; /**< <= 0 disables */
	uint32_t n_classes;	  /**< 0 = one class "default" from the two keys above */
	struct kvr_pool_class classes[KVR_POOL_CLASSES_MAX];

	/* overload (12.2) */
	double decode_blocks_threshold;	      /**< fraction of total_kv_blocks; NaN = unset */
	uint64_t prefill_tokens_threshold;    /**< KVR_POOL_NONE = unset */
	double prefill_tokens_threshold_frac; /**< NaN = unset */

	/* ranks that fail */
	double failure_ratio; /**< of their last requests; 0 = off */

	/* disaggregation (9) */
	bool enforce_disagg;
	int disagg_policy; /**< enum kvr_disagg_policy: conditional disaggregation (9.5) */
	uint32_t disagg_isl_threshold;
	double disagg_isl_ratio;
	double disagg_prefill_busy; /**< fraction of max_num_batched_tokens; NaN = unset */
	double disagg_decode_busy;  /**< fraction of total_kv_blocks; NaN = unset */

	/* attempts after the first */
	uint32_t reroutes;
	uint64_t dispatch_ms; /**< KVR_POOL_NONE = from what the executor knows; 0 = never */

	/* sessions (10) */
	uint32_t max_sessions;	 /**< 0 = no sessions */
	uint64_t affinity_ttl_s; /**< KVR_POOL_NONE = no affinity */
};

/** Properties of a routing mode: its row in modes_dp.c. */
struct kvr_pool_mode_info {
	const char *name; /**< router_mode = NAME */
	bool needs_cache; /**< chooses by overlap and load: prompts are tracked, predictions made,
			   * and a pin names its rank */
	bool may_wait;	  /**< requests may stand in the queue */
	bool needs_pin;	  /**< chooses no worker: each request names one */
	bool by_ttft;	  /**< the cost is the expected time to first token, ttft_dp.c */
};

/** The row of a mode, kvr_pool_conf::mode. */
const struct kvr_pool_mode_info *kvr_pool_mode(int mode);

/** Names of all modes, terminated by NULL. */
extern const char *const kvr_pool_mode_names[];

/** The option table: every key above that has a text form. */
extern const struct kvr_opt kvr_pool_opts[];

/** The keys of a policy class; its name is no key. */
extern const struct kvr_opt kvr_pool_class_opts[];

/** All defaults. */
void kvr_pool_conf_defaults(struct kvr_pool_conf *c);

/** A class with every field at its default and @p name (shorter than KVR_POOL_NAME_MAX). */
void kvr_pool_class_init(struct kvr_pool_class *k, const char *name);

/**
 * Set one key from text; also accepts the deprecated alias `overlap_score_weight` = x, which
 * sets prefill_load_scale = x and, when x is 0, overlap_score_credit = 0.
 * @return as kvr_conf_set(): 0, -ENOENT, -EINVAL, -ERANGE; nothing is stored on error.
 */
int kvr_pool_conf_set(struct kvr_pool_conf *c, const char *name, const char *value, char *err,
		      size_t errlen);

/** Check conditions between keys: sizes, names of classes unique, quantum > 0, table ascending.
 * @return 0 or -EINVAL with one line in @p err.
 */
int kvr_pool_conf_check(const struct kvr_pool_conf *c, char *err, size_t errlen);

/**
 * Return the name of the first key of @p c that has no effect on ranks without
 * max_num_batched_tokens; "": none (a fraction of 0 always has an effect). @p decode: decode pool
 * of prefill pool @p c, or NULL. Any thread.
 */
const char *kvr_pool_conf_batch_key(const struct kvr_pool_conf *c,
				    const struct kvr_pool_conf *decode);

/** Relation of two pools. */
enum kvr_pool_relation {
	KVR_POOLS_APART,
	KVR_POOLS_PAIR,	      /**< prefill and decode half of a model */
	KVR_POOLS_CONTRADICT, /**< a model has one aggregated pool, or one of each half */
};

/** By model and role. Any thread. */
enum kvr_pool_relation kvr_pool_conf_relation(const struct kvr_pool_conf *a,
					      const struct kvr_pool_conf *b);

#endif
