/* SPDX-License-Identifier: BSD-3-Clause */
/* The option table of a pool, and checks between keys. */
#include "kvr_pool_conf.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const policies[] = {"fcfs", "lcfs", "wspt", NULL};
static const char *const disagg_policies[] = {"none", "isl_bounding", "prefill_load", "isl_or_load",
					      NULL};
static const char *const models[] = {"none", "linear", "table", NULL};

static const char *const presets[] = {"reference", "throughput", NULL};
static const struct kvr_opt_set *const preset_sets[] = {
	(const struct kvr_opt_set[]){{NULL}},
	(const struct kvr_opt_set[]){{"overlap_score_credit", "3"},
				     {"prefill_load_scale", "20"},
				     {"router_predicted_ttl_secs", "30"},
				     {NULL}}};

#define AT(f)  .offset = offsetof(struct kvr_pool_conf, f)
#define HUGE_F 1e300
#define ANY_F  .min = 0, .max = HUGE_F

const struct kvr_opt kvr_pool_opts[] = {
	{"model", KVR_OPT_STRING, AT(model), .size = KVR_POOL_NAME_MAX, .def = "",
	 .help = "name of the model served; empty = the name of the pool"},
	{"role", KVR_OPT_ENUM, AT(role), .choices = kvr_role_names, .def = "aggregated",
	 .help = "what the workers of this pool do with a request"},
	{"block_size", KVR_OPT_U32, AT(block_size), .min = 1, .max = 65536, .def = "16",
	 .unit = "tokens", .help = "tokens in one KV-cache block; the engines' own value"},
	{"seed", KVR_OPT_U64, AT(seed), .def = "0",
	 .help = "of random ties and temperature, so that a run can be repeated"},

	{"max_ranks", KVR_OPT_U32, AT(max_ranks), .min = 1, .max = 65536, .def = "512",
	 .unit = "ranks",
	 .help = "data-parallel ranks over all workers; rounded up to a multiple of 64"},
	{"max_workers", KVR_OPT_U32, AT(max_workers), .min = 0, .max = 65536, .def = "0",
	 .unit = "workers", .help = "workers known at one time; 0 = max_ranks, as each has one"},
	{"max_requests", KVR_OPT_U32, AT(max_requests), .min = 1, .max = 16777216, .def = "16384",
	 .unit = "requests", .help = "requests booked or waiting at one time"},
	{"max_active_blocks", KVR_OPT_U32, AT(max_active_blocks), .min = 64, .max = 2147483648.0,
	 .def = "4194304", .unit = "blocks",
	 .help = "distinct prompt blocks of requests in flight; 10 bytes each"},
	{"max_prompt_blocks", KVR_OPT_U32, AT(max_prompt_blocks), .min = 1, .max = 16777216,
	 .def = "65536", .unit = "blocks", .help = "longest prompt accepted"},
	{"max_taints", KVR_OPT_U32, AT(max_taints), .min = 1, .max = 65536, .def = "256",
	 .unit = "taints", .help = "different taints on the workers of the pool"},

	{"router_mode", KVR_OPT_ENUM, AT(mode), .choices = kvr_pool_mode_names, .def = "kv",
	 .help = "how a worker is chosen"},
	{"router_preset", KVR_OPT_ENUM, AT(preset), .choices = presets, .sets = preset_sets,
	 .def = "reference",
	 .help = "throughput, for mode kv: overlap_score_credit = 3, prefill_load_scale = 20, router_predicted_ttl_secs = 30; reference sets nothing; explicit keys take precedence"},
	{"overlap_score_credit", KVR_OPT_F64, AT(overlap_score_credit), ANY_F, .def = "1.0",
	 .help = "prefill blocks saved by one block on the device"},
	{"overlap_score_credit_decay", KVR_OPT_F64, AT(overlap_score_credit_decay), ANY_F,
	 .def = "0.0", .help = "rate at which the credit falls with the prefill load of the rank"},
	{"overlap_score_weight", KVR_OPT_F64, KVR_OPT_F_NONE | KVR_OPT_F_DEPRECATED,
	 AT(overlap_score_weight), ANY_F, .def = "none",
	 .help = "old name of prefill_load_scale; 0 sets overlap_score_credit to 0 as well"},
	{"prefill_load_scale", KVR_OPT_F64, AT(prefill_load_scale), ANY_F, .def = "1.0",
	 .help = "weight of a prefill block against a decode block"},
	{"decode_active_request_weight", KVR_OPT_F64, AT(decode_active_request_weight), ANY_F,
	 .def = "0.0", .unit = "blocks", .help = "cost of one active request"},
	{"host_cache_hit_weight", KVR_OPT_F64, AT(host_cache_hit_weight), .min = 0, .max = 1,
	 .def = "0.75", .help = "value of a block in host memory, device = 1"},
	{"disk_cache_hit_weight", KVR_OPT_F64, AT(disk_cache_hit_weight), .min = 0, .max = 1,
	 .def = "0.25", .help = "value of a block on disk or external, device = 1"},
	{"shared_cache_multiplier", KVR_OPT_F64, AT(shared_cache_multiplier), .min = 0, .max = 1,
	 .def = "0.0", .help = "value of a block in the shared pool, device = 1"},
	{"router_temperature", KVR_OPT_F64, AT(temperature), ANY_F, .def = "0.0",
	 .help = "0 = lowest cost; above 0 = a softmax over range-normalised costs"},
	{"ttft_decode_weight", KVR_OPT_F64, AT(ttft_decode_weight), ANY_F, .def = "0.05",
	 .unit = "prefill tokens",
	 .help = "mode ttft: cost of a token in flight; a larger value spreads decode more and follows the cache less"},
	{"ttft_late_binding", KVR_OPT_BOOL, AT(ttft_late_binding), .def = "false",
	 .help = "mode ttft: a request waits in the router until its rank is nearly idle, shortest first; not recommended, see Which mode"},
	{"ttft_late_tokens", KVR_OPT_U32, AT(ttft_late_tokens), .min = 1, .max = UINT32_MAX,
	 .def = "2048", .unit = "prefill tokens",
	 .help = "with ttft_late_binding: a rank with less than this to compute is nearly idle"},
	{"ttft_late_ms", KVR_OPT_U32, AT(ttft_late_ms), .min = 1, .max = 600000, .def = "10000",
	 .unit = "ms", .help = "with ttft_late_binding: longest wait of a request"},
	{"cuda_to_cpu_ratio", KVR_OPT_U32, AT(cuda_to_cpu_ratio), .min = 1, .max = 1000000,
	 .def = "8", .help = "device-aware-weighted: speed of an accelerator against a CPU"},

	{"use_kv_events", KVR_OPT_BOOL, AT(use_kv_events), .def = "true",
	 .help = "use the events of the engines; false = predict from routing decisions"},
	{"router_ttl_secs", KVR_OPT_F64, AT(ttl_s), .min = 0, .max = 1e9, .def = "120", .unit = "s",
	 .help = "time to live of a predicted block without events"},
	{"router_predicted_ttl_secs", KVR_OPT_F64, KVR_OPT_F_NONE, AT(predicted_ttl_s), .min = 0,
	 .max = 1e9, .def = "none", .unit = "s",
	 .help = "predict on route as well, until events arrive"},
	{"router_assume_kv_reuse", KVR_OPT_BOOL, AT(assume_kv_reuse), .def = "true",
	 .help = "requests in flight share the blocks of equal prefixes"},
	{"router_track_prefill_tokens", KVR_OPT_BOOL, AT(track_prefill_tokens), .def = "true",
	 .help = "count prompt tokens not yet computed"},
	{"router_track_active_blocks", KVR_OPT_BOOL, AT(track_active_blocks), .def = "true",
	 .help = "count blocks of requests in flight"},
	{"router_track_output_blocks", KVR_OPT_BOOL, AT(track_output_blocks), .def = "false",
	 .help = "count generated blocks, too"},
	{"active_request_expiry_secs", KVR_OPT_F64, AT(request_expiry_s), .min = 0, .max = 1e9,
	 .def = "300", .unit = "s",
	 .help = "silence of its worker after which the load of a request is released; 0 = never"},
	{"router_prefill_load_model", KVR_OPT_ENUM, AT(prefill_model), .choices = models,
	 .def = "none", .help = "prefill load falls with modelled time"},
	{"prefill_model_base_ms", KVR_OPT_F64, AT(prefill_base_ms), .min = 0, .max = 1e9,
	 .def = "0", .unit = "ms", .help = "linear model: time of an empty prefill"},
	{"prefill_model_us_per_token", KVR_OPT_F64, AT(prefill_us_per_token), .min = 0, .max = 1e9,
	 .def = "0", .unit = "us", .help = "linear model: time per token to compute"},
	{"prefill_model_us_per_cached_token", KVR_OPT_F64, AT(prefill_us_per_cached_token),
	 .min = 0, .max = 1e9, .def = "0", .unit = "us",
	 .help = "linear model: time per token found in the cache"},
	{"prefill_model_table", KVR_OPT_STRING, AT(prefill_table),
	 .size = sizeof(((struct kvr_pool_conf *)0)->prefill_table), .def = "", .unit = "tokens:ms",
	 .help = "table model: ascending points, straight lines between"},

	{"router_queue_threshold", KVR_OPT_F64, KVR_OPT_F_NONE, AT(queue_threshold), ANY_F,
	 .def = "none", .unit = "max_num_batched_tokens",
	 .help = "prefill load above which a rank is busy and requests wait"},
	{"router_queue_policy", KVR_OPT_ENUM, AT(queue_policy), .choices = policies, .def = "fcfs",
	 .help = "order of the queue"},
	{"overlap_refresh_after_secs", KVR_OPT_F64, AT(overlap_refresh_s), .min = 0, .max = 1e9,
	 .def = "10", .unit = "s",
	 .help = "wait after which the overlap is looked up again; 0 = never"},

	{"active_decode_blocks_threshold", KVR_OPT_F64, KVR_OPT_F_NONE, AT(decode_blocks_threshold),
	 .min = 0, .max = 1, .def = "none", .unit = "total_kv_blocks",
	 .help = "a rank holding more active blocks is overloaded"},
	{"active_prefill_tokens_threshold", KVR_OPT_U64, KVR_OPT_F_NONE,
	 AT(prefill_tokens_threshold), .def = "none", .unit = "tokens",
	 .help = "a rank with more prefill tokens is overloaded"},
	{"active_prefill_tokens_threshold_frac", KVR_OPT_F64, KVR_OPT_F_NONE,
	 AT(prefill_tokens_threshold_frac), ANY_F, .def = "none", .unit = "max_num_batched_tokens",
	 .help = "the same limit as a fraction"},
	{"failure_ratio", KVR_OPT_F64, AT(failure_ratio), .min = 0, .max = 1, .def = "0.5",
	 .unit = "requests",
	 .help = "share of failed requests from which a rank is avoided; 0 = never"},
	{"enforce_disagg", KVR_OPT_BOOL, AT(enforce_disagg), .def = "true",
	 .help = "reject requests while the prefill pool is inactive"},
	{"conditional_disagg_policy", KVR_OPT_ENUM, AT(disagg_policy), .choices = disagg_policies,
	 .def = "none",
	 .help = "decode pool: condition under which a request bypasses the prefill pool"},
	{"conditional_disagg_eff_isl_threshold", KVR_OPT_U32, AT(disagg_isl_threshold), .min = 0,
	 .max = UINT32_MAX, .def = "2048", .unit = "tokens",
	 .help = "isl_bounding: fewer tokens to compute than this, and ..."},
	{"conditional_disagg_eff_isl_ratio_threshold", KVR_OPT_F64, AT(disagg_isl_ratio), .min = 0,
	 .max = 1, .def = "0.7", .unit = "prompt", .help = "... a smaller part of the prompt"},
	{"conditional_disagg_prefill_busy_threshold", KVR_OPT_F64, KVR_OPT_F_NONE,
	 AT(disagg_prefill_busy), ANY_F, .def = "none", .unit = "max_num_batched_tokens",
	 .help = "prefill_load: more active prefill tokens on the chosen prefill worker"},
	{"conditional_disagg_decode_busy_threshold", KVR_OPT_F64, KVR_OPT_F_NONE,
	 AT(disagg_decode_busy), ANY_F, .def = "none", .unit = "total_kv_blocks",
	 .help = "a decode worker that would hold more does not take over prefills"},
	{"reroutes", KVR_OPT_U32, AT(reroutes), .min = 0, .max = 16, .def = "1", .unit = "times",
	 .help = "further attempts of a request after a failed prefill leg, or after dispatch_ms without acknowledgement"},
	{"dispatch_ms", KVR_OPT_U64, KVR_OPT_F_NONE, AT(dispatch_ms), .min = 0, .max = 60000,
	 .def = "none", .unit = "ms",
	 .help = "time for a worker to acknowledge a request; afterwards, the next repetition goes to another worker. 0 = never; none = twice dead_ms"},

	{"max_sessions", KVR_OPT_U32, AT(max_sessions), .min = 0, .max = 16777216, .def = "65536",
	 .unit = "sessions", .help = "sticky sessions bound or being opened; 0 = none at all"},
	{"session_affinity_ttl_secs", KVR_OPT_U64, KVR_OPT_F_NONE, AT(affinity_ttl_s), .min = 1,
	 .max = 31536000, .def = "none", .unit = "s",
	 .help = "bind a session id to the worker of its first request until it was idle for this time"},
	{NULL},
};

#define CLASS(f) .offset = offsetof(struct kvr_pool_class, f)

const struct kvr_opt kvr_pool_class_opts[] = {
	{"queue_policy", KVR_OPT_ENUM, CLASS(queue_policy), .choices = policies, .def = "fcfs",
	 .help = "order of the class's queue"},
	{"quantum", KVR_OPT_U32, CLASS(quantum), .min = 1, .max = 1e9, .def = "1",
	 .unit = "uncached tokens", .help = "quantum of the class in deficit round robin"},
	{"prefill_busy_threshold", KVR_OPT_U64, KVR_OPT_F_NONE, CLASS(busy_threshold),
	 .def = "none", .unit = "tokens", .help = "prefill load above which a rank is busy"},
	{"prefill_busy_threshold_frac", KVR_OPT_F64, KVR_OPT_F_NONE, CLASS(busy_threshold_frac),
	 ANY_F, .def = "none", .unit = "max_num_batched_tokens",
	 .help = "the same limit as a fraction"},
	{"request_queue_limit_per_worker", KVR_OPT_U64, KVR_OPT_F_NONE, CLASS(max_requests),
	 .def = "none", .unit = "requests", .help = "waiting requests; further ones are rejected"},
	{"raw_isl_token_queue_limit_per_worker", KVR_OPT_U64, KVR_OPT_F_NONE, CLASS(max_isl_tokens),
	 .def = "none", .unit = "tokens", .help = "prompt tokens of waiting requests"},
	{"cached_token_queue_limit_per_worker", KVR_OPT_U64, KVR_OPT_F_NONE,
	 CLASS(max_cached_tokens), .def = "none", .unit = "tokens",
	 .help = "cached tokens of waiting requests"},
	{NULL},
};

/* ---- public ------------------------------------------------------------------------------ */

void kvr_pool_conf_defaults(struct kvr_pool_conf *c)
{
	memset(c, 0, sizeof(*c));
	kvr_conf_defaults(kvr_pool_opts, c);
	c->overlap_score_weight = NAN; /* deprecated names get no default */
}

void kvr_pool_class_init(struct kvr_pool_class *k, const char *name)
{
	memset(k, 0, sizeof(*k));
	snprintf(k->name, sizeof(k->name), "%s", name);
	kvr_conf_defaults(kvr_pool_class_opts, k);
}

int kvr_pool_conf_set(struct kvr_pool_conf *c, const char *name, const char *value, char *err,
		      size_t errlen)
{
	int rc;

	if (strcmp(name, "overlap_score_weight") != 0)
		return kvr_conf_set(kvr_pool_opts, c, name, value, err, errlen);
	rc = kvr_conf_set(kvr_pool_opts, c, "prefill_load_scale", value, err, errlen);
	if (rc == 0 && c->prefill_load_scale == 0)
		c->overlap_score_credit = 0;
	return rc;
}

static int check_class(const struct kvr_pool_conf *c, uint32_t i, char *err, size_t errlen)
{
	const struct kvr_pool_class *k = &c->classes[i];

	if (k->name[0] == '\0' || k->quantum == 0 || k->queue_policy < KVR_QUEUE_FCFS ||
	    k->queue_policy > KVR_QUEUE_WSPT || k->busy_threshold_frac < 0 ||
	    isinf(k->busy_threshold_frac)) {
		snprintf(err, errlen,
			 "policy class %u: needs a name, a quantum above 0, a known "
			 "queue policy and thresholds not below 0",
			 i);
		return -EINVAL;
	}
	for (uint32_t j = 0; j < i; j++) {
		if (strcmp(k->name, c->classes[j].name) == 0) {
			snprintf(err, errlen, "policy class '%s' is given twice", k->name);
			return -EINVAL;
		}
	}
	return 0;
}

static bool table_ascends(const char *t)
{
	double last = -1;

	while (*t != '\0') {
		char *end;
		double tokens = strtod(t, &end), ms;

		if (end == t || *end != ':' || !(tokens > last))
			return false;
		t = end + 1;
		ms = strtod(t, &end);
		if (end == t || !(ms >= 0) || !isfinite(ms) || !isfinite(tokens) ||
		    (*end != ',' && *end != '\0'))
			return false;
		t = *end == ',' ? end + 1 : end;
		last = tokens;
	}
	return last >= 0;
}

int kvr_pool_conf_check(const struct kvr_pool_conf *c, char *err, size_t errlen)
{
	if (c->block_size == 0 || c->max_ranks == 0 || c->max_ranks > 65536 ||
	    c->max_requests == 0 || c->max_active_blocks == 0 || c->max_prompt_blocks == 0 ||
	    c->max_taints == 0 || (uint64_t)c->max_prompt_blocks * c->block_size > UINT32_MAX) {
		snprintf(err, errlen, "pool '%s': a size is 0 or too large", c->name);
		return -EINVAL;
	}
	if (c->n_classes > KVR_POOL_CLASSES_MAX) {
		snprintf(err, errlen, "pool '%s': more than %d policy classes", c->name,
			 KVR_POOL_CLASSES_MAX);
		return -EINVAL;
	}
	for (uint32_t i = 0; i < c->n_classes; i++)
		if (check_class(c, i, err, errlen) != 0)
			return -EINVAL;
	if (c->mode == KVR_MODE_TTFT &&
	    (c->preset != 0 || c->prefill_model != KVR_PREFILL_MODEL_NONE ||
	     !c->track_prefill_tokens)) {
		snprintf(err, errlen,
			 "pool '%s': router_mode ttft learns the load itself: no router_preset, "
			 "no router_prefill_load_model, router_track_prefill_tokens = true",
			 c->name);
		return -EINVAL;
	}
	if (c->mode != KVR_MODE_TTFT && c->ttft_late_binding) {
		snprintf(err, errlen, "pool '%s': ttft_late_binding is for router_mode = ttft",
			 c->name);
		return -EINVAL;
	}
	if (c->prefill_model == KVR_PREFILL_MODEL_TABLE && !table_ascends(c->prefill_table)) {
		snprintf(err, errlen, "prefill_model_table: want 'tokens:ms,...' ascending");
		return -EINVAL;
	}
	if (c->disagg_policy >= KVR_DISAGG_PREFILL_LOAD && isnan(c->disagg_prefill_busy)) {
		snprintf(err, errlen,
			 "conditional_disagg_policy %s needs "
			 "conditional_disagg_prefill_busy_threshold",
			 disagg_policies[c->disagg_policy]);
		return -EINVAL;
	}
	return 0;
}

const char *kvr_pool_conf_batch_key(const struct kvr_pool_conf *c,
				    const struct kvr_pool_conf *decode)
{
	for (uint32_t i = 0; i < c->n_classes; i++)
		if (c->classes[i].busy_threshold_frac > 0)
			return "prefill_busy_threshold_frac";
	if (c->n_classes == 0 && c->queue_threshold > 0)
		return "router_queue_threshold";
	if (c->prefill_tokens_threshold_frac > 0)
		return "active_prefill_tokens_threshold_frac";
	return decode != NULL && decode->disagg_policy >= KVR_DISAGG_PREFILL_LOAD &&
			       decode->disagg_prefill_busy > 0
		       ? "conditional_disagg_prefill_busy_threshold"
		       : "";
}

static const char *model_of(const struct kvr_pool_conf *c)
{
	return c->model[0] != '\0' ? c->model : c->name;
}

enum kvr_pool_relation kvr_pool_conf_relation(const struct kvr_pool_conf *a,
					      const struct kvr_pool_conf *b)
{
	if (strcmp(model_of(a), model_of(b)) != 0)
		return KVR_POOLS_APART;
	return a->role == b->role || a->role == KVR_ROLE_AGGREGATED ||
			       b->role == KVR_ROLE_AGGREGATED
		       ? KVR_POOLS_CONTRADICT
		       : KVR_POOLS_PAIR;
}
