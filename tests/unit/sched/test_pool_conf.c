/* SPDX-License-Identifier: BSD-3-Clause */
/* @rule 5.3: keys of a pool, their defaults and ranges. */
#include "kvr_pool_conf.h"

#include "kvr_test.h"
#include <errno.h>
#include <math.h>
#include <rte_common.h>
#include <string.h>

static char err[200];

static void defaults_are_those_of_the_newest_version(void)
{
	struct kvr_pool_conf c;

	kvr_pool_conf_defaults(&c);
	CU_ASSERT_EQUAL(c.overlap_score_credit, 1.0);
	CU_ASSERT_EQUAL(c.overlap_score_credit_decay, 0.0);
	CU_ASSERT_EQUAL(c.prefill_load_scale, 1.0);
	CU_ASSERT_EQUAL(c.decode_active_request_weight, 0.0);
	CU_ASSERT_EQUAL(c.host_cache_hit_weight, 0.75);
	CU_ASSERT_EQUAL(c.disk_cache_hit_weight, 0.25);
	CU_ASSERT_EQUAL(c.shared_cache_multiplier, 0.0);
	CU_ASSERT_EQUAL(c.temperature, 0.0);
	CU_ASSERT_EQUAL(c.ttl_s, 120.0);
	CU_ASSERT_EQUAL(c.request_expiry_s, 300.0);
	CU_ASSERT_EQUAL(c.overlap_refresh_s, 10.0);
	CU_ASSERT_EQUAL(c.cuda_to_cpu_ratio, 8);
	CU_ASSERT(isnan(c.queue_threshold) && isnan(c.predicted_ttl_s));
	CU_ASSERT(isnan(c.decode_blocks_threshold) && isnan(c.prefill_tokens_threshold_frac));
	CU_ASSERT_EQUAL(c.prefill_tokens_threshold, KVR_POOL_NONE);
	CU_ASSERT(c.use_kv_events && c.assume_kv_reuse && c.track_prefill_tokens);
	CU_ASSERT(c.track_active_blocks && !c.track_output_blocks && c.enforce_disagg);
	CU_ASSERT_EQUAL(c.queue_policy, KVR_QUEUE_FCFS);
}

static void values_out_of_range_are_refused_and_change_nothing(void)
{
	static const char *const bad[][2] = {
		{"overlap_score_credit", "-1"},
		{"overlap_score_credit", "nan"},
		{"overlap_score_credit", "inf"},
		{"host_cache_hit_weight", "1.01"},
		{"disk_cache_hit_weight", "-0.1"},
		{"shared_cache_multiplier", "2"},
		{"router_temperature", "-1"},
		{"prefill_load_scale", "x"},
		{"router_queue_policy", "best"},
		{"router_mode", "fast"},
		{"use_kv_events", "maybe"},
		{"block_size", "0"},
		{"block_size", "-4"},
		{"max_requests", "1e3"},
		{"active_decode_blocks_threshold", "1.5"},
		{"router_ttl_secs", "none"},
		{"seed", "18446744073709551616"},
		{"overlap_score_weight", "-2"},
	};
	struct kvr_pool_conf c, d;

	kvr_pool_conf_defaults(&c);
	d = c;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CU_ASSERT(kvr_pool_conf_set(&c, bad[i][0], bad[i][1], err, sizeof(err)) < 0);
		CU_ASSERT_EQUAL(memcmp(&c, &d, sizeof(c)), 0);
	}
	CU_ASSERT_EQUAL(kvr_pool_conf_set(&c, "speed", "1", err, sizeof(err)), -ENOENT);
}

static void the_old_alias_sets_scale_and_clears_credit(void)
{
	struct kvr_pool_conf c;

	kvr_pool_conf_defaults(&c);
	CU_ASSERT_EQUAL(kvr_pool_conf_set(&c, "overlap_score_weight", "2.5", err, 200), 0);
	CU_ASSERT_EQUAL(c.prefill_load_scale, 2.5);
	CU_ASSERT_EQUAL(c.overlap_score_credit, 1.0);
	CU_ASSERT_EQUAL(kvr_pool_conf_set(&c, "overlap_score_weight", "0", err, 200), 0);
	CU_ASSERT_EQUAL(c.overlap_score_credit, 0.0);
}

static void a_preset_sets_its_keys_and_reference_none(void)
{
	struct kvr_pool_conf c, d;

	kvr_pool_conf_defaults(&c);
	d = c;
	CU_ASSERT_EQUAL(kvr_pool_conf_set(&c, "router_preset", "reference", err, 200), 0);
	CU_ASSERT_EQUAL(memcmp(&c, &d, sizeof(c)), 0);
	CU_ASSERT_EQUAL(kvr_pool_conf_set(&c, "router_preset", "best", err, 200), -EINVAL);
	CU_ASSERT_EQUAL(memcmp(&c, &d, sizeof(c)), 0);
	CU_ASSERT_EQUAL(kvr_pool_conf_set(&c, "router_preset", "throughput", err, 200), 0);
	CU_ASSERT_EQUAL(c.overlap_score_credit, 3);
	CU_ASSERT_EQUAL(c.prefill_load_scale, 20);
	CU_ASSERT_EQUAL(c.predicted_ttl_s, 30);
	CU_ASSERT_EQUAL(kvr_pool_conf_set(&c, "overlap_score_credit", "2", err, 200), 0);
	CU_ASSERT_EQUAL(c.overlap_score_credit, 2);
	c.preset = d.preset;
	c.overlap_score_credit = d.overlap_score_credit;
	c.prefill_load_scale = d.prefill_load_scale;
	c.predicted_ttl_s = d.predicted_ttl_s;
	CU_ASSERT_EQUAL(memcmp(&c, &d, sizeof(c)), 0);
}

static void checks_see_what_single_keys_cannot(void)
{
	struct kvr_pool_conf c;

	kvr_pool_conf_defaults(&c);
	CU_ASSERT_EQUAL(kvr_pool_conf_check(&c, err, sizeof(err)), 0);
	c.n_classes = 2;
	kvr_pool_class_init(&c.classes[0], "a");
	kvr_pool_class_init(&c.classes[1], "a");
	CU_ASSERT_EQUAL(kvr_pool_conf_check(&c, err, sizeof(err)), -EINVAL);
	strcpy(c.classes[1].name, "b");
	CU_ASSERT_EQUAL(kvr_pool_conf_check(&c, err, sizeof(err)), 0);
	c.classes[1].quantum = 0;
	CU_ASSERT_EQUAL(kvr_pool_conf_check(&c, err, sizeof(err)), -EINVAL);
	c.classes[1].quantum = 1;
	c.classes[1].busy_threshold_frac = -0.1;
	CU_ASSERT_EQUAL(kvr_pool_conf_check(&c, err, sizeof(err)), -EINVAL);
	c.n_classes = 0;
	c.prefill_model = KVR_PREFILL_MODEL_TABLE;
	CU_ASSERT_EQUAL(kvr_pool_conf_check(&c, err, sizeof(err)), -EINVAL);
	strcpy(c.prefill_table, "1:2,2:3");
	CU_ASSERT_EQUAL(kvr_pool_conf_check(&c, err, sizeof(err)), 0);
	strcpy(c.prefill_table, "1:2,1:3");
	CU_ASSERT_EQUAL(kvr_pool_conf_check(&c, err, sizeof(err)), -EINVAL);
	c.prefill_model = KVR_PREFILL_MODEL_NONE;
	c.block_size = 65536;
	CU_ASSERT_EQUAL(kvr_pool_conf_check(&c, err, sizeof(err)), -EINVAL); /* isl over 2^32 */
	/* Mode ttft has its own terms for what these say. */
	kvr_pool_conf_defaults(&c);
	c.mode = KVR_MODE_TTFT;
	CU_ASSERT_EQUAL(kvr_pool_conf_check(&c, err, sizeof(err)), 0);
	c.preset = 1;
	CU_ASSERT_EQUAL(kvr_pool_conf_check(&c, err, sizeof(err)), -EINVAL);
	c.preset = 0;
	c.prefill_model = KVR_PREFILL_MODEL_LINEAR;
	CU_ASSERT_EQUAL(kvr_pool_conf_check(&c, err, sizeof(err)), -EINVAL);
	c.prefill_model = KVR_PREFILL_MODEL_NONE;
	c.track_prefill_tokens = false;
	CU_ASSERT_EQUAL(kvr_pool_conf_check(&c, err, sizeof(err)), -EINVAL);
}

static void a_model_has_one_pool_or_one_of_each_half(void)
{
	static const struct {
		const char *model[2];
		int role[2];
		enum kvr_pool_relation is;
	} row[] = {
		{{"m", "m"}, {KVR_ROLE_DECODE, KVR_ROLE_PREFILL}, KVR_POOLS_PAIR},
		{{"m", "m"}, {KVR_ROLE_PREFILL, KVR_ROLE_PREFILL}, KVR_POOLS_CONTRADICT},
		{{"m", "m"}, {KVR_ROLE_AGGREGATED, KVR_ROLE_PREFILL}, KVR_POOLS_CONTRADICT},
		{{"m", "n"}, {KVR_ROLE_DECODE, KVR_ROLE_PREFILL}, KVR_POOLS_APART},
		/* without a model the name of the pool is one */
		{{"", "p0"}, {KVR_ROLE_DECODE, KVR_ROLE_PREFILL}, KVR_POOLS_PAIR},
		{{"", ""}, {KVR_ROLE_AGGREGATED, KVR_ROLE_AGGREGATED}, KVR_POOLS_APART},
	};
	struct kvr_pool_conf c[2];

	for (size_t i = 0; i < RTE_DIM(row); i++) {
		for (int k = 0; k < 2; k++) {
			kvr_pool_conf_defaults(&c[k]);
			snprintf(c[k].name, sizeof(c[k].name), "p%d", k);
			strcpy(c[k].model, row[i].model[k]);
			c[k].role = row[i].role[k];
		}
		CU_ASSERT_EQUAL(kvr_pool_conf_relation(&c[0], &c[1]), row[i].is);
		CU_ASSERT_EQUAL(kvr_pool_conf_relation(&c[1], &c[0]), row[i].is);
	}
}

static void a_class_has_no_limits_unless_they_are_given(void)
{
	struct kvr_pool_class k;

	kvr_pool_class_init(&k, "gold");
	CU_ASSERT_STRING_EQUAL(k.name, "gold");
	CU_ASSERT_EQUAL(k.quantum, 1);
	CU_ASSERT_EQUAL(k.busy_threshold, KVR_POOL_NONE);
	CU_ASSERT_TRUE(isnan(k.busy_threshold_frac));
	CU_ASSERT_EQUAL(k.max_isl_tokens, KVR_POOL_NONE);
	CU_ASSERT_EQUAL(kvr_conf_set(kvr_pool_class_opts, &k, "quantum", "0", err, sizeof(err)),
			-ERANGE);
	CU_ASSERT_EQUAL(
		kvr_conf_set(kvr_pool_class_opts, &k, "queue_policy", "wspt", err, sizeof(err)), 0);
	CU_ASSERT_EQUAL(k.queue_policy, KVR_QUEUE_WSPT);
	CU_ASSERT_EQUAL(k.quantum, 1);
}

static void keys_that_need_a_batch_budget_are_found(void)
{
	struct kvr_pool_conf c, decode;

	kvr_pool_conf_defaults(&c);
	kvr_pool_conf_defaults(&decode);
	CU_ASSERT_STRING_EQUAL(kvr_pool_conf_batch_key(&c, NULL), "");
	decode.disagg_policy = KVR_DISAGG_ISL_BOUNDING;
	CU_ASSERT_STRING_EQUAL(kvr_pool_conf_batch_key(&c, &decode), "");
	decode.disagg_policy = KVR_DISAGG_ISL_OR_LOAD;
	decode.disagg_prefill_busy = 0;
	CU_ASSERT_STRING_EQUAL(kvr_pool_conf_batch_key(&c, &decode), "");
	decode.disagg_prefill_busy = 0.5;
	CU_ASSERT_STRING_EQUAL(kvr_pool_conf_batch_key(&c, &decode),
			       "conditional_disagg_prefill_busy_threshold");
	CU_ASSERT_STRING_EQUAL(kvr_pool_conf_batch_key(&decode, NULL), "");
	c.prefill_tokens_threshold_frac = 2;
	CU_ASSERT_STRING_EQUAL(kvr_pool_conf_batch_key(&c, NULL),
			       "active_prefill_tokens_threshold_frac");
	c.queue_threshold = 0;
	CU_ASSERT_STRING_EQUAL(kvr_pool_conf_batch_key(&c, NULL),
			       "active_prefill_tokens_threshold_frac");
	c.queue_threshold = 1;
	CU_ASSERT_STRING_EQUAL(kvr_pool_conf_batch_key(&c, NULL), "router_queue_threshold");
	c.n_classes = 1; /* the key of the pool is that of its one class alone */
	kvr_pool_class_init(&c.classes[0], "gold");
	CU_ASSERT_STRING_EQUAL(kvr_pool_conf_batch_key(&c, NULL),
			       "active_prefill_tokens_threshold_frac");
	c.classes[0].busy_threshold_frac = 1;
	CU_ASSERT_STRING_EQUAL(kvr_pool_conf_batch_key(&c, NULL), "prefill_busy_threshold_frac");
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(defaults_are_those_of_the_newest_version),
			       KVR_CASE(values_out_of_range_are_refused_and_change_nothing),
			       KVR_CASE(the_old_alias_sets_scale_and_clears_credit),
			       KVR_CASE(a_preset_sets_its_keys_and_reference_none),
			       KVR_CASE(a_model_has_one_pool_or_one_of_each_half),
			       KVR_CASE(a_class_has_no_limits_unless_they_are_given),
			       KVR_CASE(keys_that_need_a_batch_budget_are_found),
			       KVR_CASE(checks_see_what_single_keys_cannot),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("pool_conf", tests);
}
