/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_disagg.h"

#include "kvr_test.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Every row of the table of section 9.1. */
static void activation_follows_the_table(void)
{
	struct kvr_disagg fresh = {0}, d = {0};

	CU_ASSERT_FALSE(kvr_disagg_active(&fresh));
	CU_ASSERT_FALSE(kvr_disagg_workers(&fresh, 0)); /* never had a worker: not deactivated */
	CU_ASSERT_FALSE(kvr_disagg_active(&fresh));
	CU_ASSERT(kvr_disagg_workers(&d, 1));
	CU_ASSERT(kvr_disagg_active(&d));
	CU_ASSERT_FALSE(kvr_disagg_workers(&d, 2));
	CU_ASSERT(kvr_disagg_workers(&d, 0));
	CU_ASSERT_FALSE(kvr_disagg_active(&d));
	CU_ASSERT(kvr_disagg_workers(&d, 1));
	CU_ASSERT(kvr_disagg_active(&d));
}

static void an_operator_may_switch_the_prefill_side_off(void)
{
	struct kvr_disagg disagg = {0};

	CU_ASSERT_FALSE(kvr_disagg_hold(&disagg, true)); /* it was not active */
	CU_ASSERT_FALSE(kvr_disagg_workers(&disagg, 1));
	CU_ASSERT_FALSE(kvr_disagg_active(&disagg));
	CU_ASSERT(kvr_disagg_hold(&disagg, false));
	CU_ASSERT(kvr_disagg_active(&disagg));
	CU_ASSERT(kvr_disagg_hold(&disagg, true));
	CU_ASSERT_FALSE(kvr_disagg_workers(&disagg, 0));
	CU_ASSERT_FALSE(kvr_disagg_hold(&disagg, false)); /* no worker is left */
}

static void a_room_encodes_the_rank(void)
{
	struct kvr_rand r;

	kvr_rand_init(&r, 1);
	for (uint32_t size = 1; size < 40; size++)
		for (uint32_t rank = 0; rank < size; rank++) {
			uint64_t room = kvr_disagg_room(&r, rank, size);

			CU_ASSERT_EQUAL(room % size, rank);
			CU_ASSERT(room < UINT64_C(1) << 63);
		}
}

static void the_decode_override_keeps_other_fields(void)
{
	struct kvr_hints h = {.overrides = {.given = 1u << KVR_OVERRIDE_ROUTER_TEMPERATURE |
						     1u << KVR_OVERRIDE_OVERLAP_SCORE_CREDIT,
					    .value[KVR_OVERRIDE_ROUTER_TEMPERATURE] = 0.7,
					    .value[KVR_OVERRIDE_OVERLAP_SCORE_CREDIT] = 2}};

	kvr_disagg_decode_override(&h);
	CU_ASSERT_EQUAL(kvr_override(&h, KVR_OVERRIDE_ROUTER_TEMPERATURE, -1), 0.7);
	CU_ASSERT_EQUAL(kvr_override(&h, KVR_OVERRIDE_OVERLAP_SCORE_CREDIT, -1), 0);
	CU_ASSERT_EQUAL(kvr_override(&h, KVR_OVERRIDE_ASSUME_KV_REUSE, -1), 0);
	CU_ASSERT_EQUAL(kvr_override(&h, KVR_OVERRIDE_TRACK_PREFILL_TOKENS, -1), 0);
	h = (struct kvr_hints){0};
	kvr_disagg_decode_override(&h);
	CU_ASSERT_EQUAL(kvr_override(&h, KVR_OVERRIDE_ROUTER_TEMPERATURE, -1), -1);
}

static void constraints_are_merged(void)
{
	struct kvr_str user = {"user", 4}, required[2];
	struct kvr_hint_preferred rack = {{"rack", 4}, 0.25}, preferred[2];
	struct kvr_hints in = {
		.required = &user, .n_required = 1, .preferred = &rack, .n_preferred = 1};
	struct kvr_disagg_transfer transfer = {{"zone", 4}, true, 0};
	struct kvr_hints out;

	kvr_disagg_merge(&in, &transfer, required, preferred, &out);
	CU_ASSERT(out.n_required == 2 && out.n_preferred == 1);
	CU_ASSERT_EQUAL(memcmp(out.required[1].p, "zone", 4), 0);
	transfer = (struct kvr_disagg_transfer){{"rack", 4}, false, 0.85};
	kvr_disagg_merge(&in, &transfer, required, preferred, &out);
	CU_ASSERT(out.n_required == 1 && out.n_preferred == 1);
	CU_ASSERT_EQUAL(out.preferred[0].weight, 0.85);
	transfer.taint = (struct kvr_str){"zone", 4};
	kvr_disagg_merge(&in, &transfer, required, preferred, &out);
	CU_ASSERT(out.n_preferred == 2 && out.preferred[1].weight == 0.85);
	transfer = (struct kvr_disagg_transfer){{"user", 4}, true, 0};
	kvr_disagg_merge(&in, &transfer, required, preferred, &out);
	CU_ASSERT_EQUAL(out.n_required, 1);
	transfer.taint.len = 0;
	kvr_disagg_merge(&in, &transfer, required, preferred, &out);
	CU_ASSERT_EQUAL(out.required, in.required);
}

static void the_prefill_leg_has_its_own_pin(void)
{
	const struct kvr_hints in = {.present = KVR_HAS(KVR_HINT_BACKEND) |
						KVR_HAS(KVR_HINT_PREFILL_WORKER) |
						KVR_HAS(KVR_HINT_DP_RANK) | KVR_HAS_EXPECTED_OUTPUT,
				     .prefill_worker = 2};
	struct kvr_hints out;

	kvr_disagg_prefill_hints(&in, &out);
	CU_ASSERT_EQUAL(out.present, KVR_HAS(KVR_HINT_PREFILL_WORKER) | KVR_HAS(KVR_HINT_DP_RANK));
	CU_ASSERT_EQUAL(out.prefill_worker, 2);
}

/* ---- conditional disaggregation (9.5) ---- */

static struct kvr_sched *create_pool(struct kvr_pool_conf *conf, int role)
{
	const struct kvr_sched_worker worker = {.id = (uint64_t)role,
						.dp_size = 1,
						.total_kv_blocks = 100,
						.max_num_batched_tokens = 100};
	struct kvr_sched *sched;

	kvr_pool_conf_defaults(conf);
	strcpy(conf->name, "t");
	conf->block_size = 4;
	conf->role = role;
	conf->max_ranks = 64;
	conf->max_requests = 8;
	conf->max_active_blocks = 1024;
	sched = kvr_sched_create(conf, &(const struct kvr_sched_ops){0}, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(sched);
	CU_ASSERT_EQUAL(kvr_sched_worker_set(sched, &worker, 0), 0);
	return sched;
}

/*
 * A request of 100 tokens: the blocks cached by the decode worker, the tokens in computation at the
 * prefill worker, and the blocks already active on the decode worker.
 */
struct cond {
	const char *what;
	int policy;
	uint32_t cached_blocks, prefill_tokens, decode_blocks;
	double decode_busy;
	bool pinned;
	bool bypass;
};

static const struct cond conds[] = {
	{"off", KVR_DISAGG_ALWAYS, 25, 0, 0, NAN, false, false},
	{"few tokens left, all cached", KVR_DISAGG_ISL_BOUNDING, 25, 0, 0, NAN, false, true},
	{"left 48 < 50, ratio 0.48", KVR_DISAGG_ISL_BOUNDING, 13, 0, 0, NAN, false, true},
	{"left 52 is not below 50", KVR_DISAGG_ISL_BOUNDING, 12, 0, 0, NAN, false, false},
	{"isl_bounding ignores the load", KVR_DISAGG_ISL_BOUNDING, 12, 100, 0, NAN, false, false},
	{"prefill busy: 52 > 50", KVR_DISAGG_PREFILL_LOAD, 0, 52, 0, NAN, false, true},
	{"50 is not above 50", KVR_DISAGG_PREFILL_LOAD, 25, 50, 0, NAN, false, false},
	{"isl_or_load: isl", KVR_DISAGG_ISL_OR_LOAD, 25, 0, 0, NAN, false, true},
	{"isl_or_load: load", KVR_DISAGG_ISL_OR_LOAD, 0, 52, 0, NAN, false, true},
	{"neither", KVR_DISAGG_ISL_OR_LOAD, 0, 0, 0, NAN, false, false},
	{"decode busy: 25 + 26 > 50", KVR_DISAGG_ISL_OR_LOAD, 25, 52, 26, 0.5, false, false},
	{"25 + 25 is not above 50", KVR_DISAGG_ISL_OR_LOAD, 25, 52, 25, 0.5, false, true},
	{"a prefill pin wins", KVR_DISAGG_ISL_OR_LOAD, 25, 52, 0, NAN, true, false},
};

static void bypass_follows_the_policy(void)
{
	static uint64_t sh[25];
	static uint32_t device[64];

	for (size_t i = 0; i < sizeof(conds) / sizeof(conds[0]); i++) {
		const struct cond *k = &conds[i];
		const struct kvr_hints pin = {
			.present = k->pinned ? KVR_HAS(KVR_HINT_PREFILL_WORKER) : 0,
			.prefill_worker = KVR_ROLE_PREFILL};
		struct kvr_pool_conf pc, dc;
		struct kvr_sched *sched = create_pool(&pc, KVR_ROLE_PREFILL);
		struct kvr_sched *d = create_pool(&dc, KVR_ROLE_DECODE);
		const struct kvr_sched_overlap ov = {.device = device};
		struct kvr_sched_req load = {.isl = k->prefill_tokens};
		struct kvr_sched_req held = {.isl = k->decode_blocks * 4, .sh = sh};
		struct kvr_sched_req req = {.isl = 100, .sh = sh, .n = 25, .hints = &pin};
		uint64_t other[25];
		struct kvr_sched_decision dec;

		dc.disagg_policy = k->policy;
		dc.disagg_isl_threshold = 50;
		dc.disagg_isl_ratio = 0.7;
		dc.disagg_prefill_busy = 0.5;
		dc.disagg_decode_busy = k->decode_busy;
		for (int b = 0; b < 25; b++) {
			sh[b] = 1000u + (uint64_t)b;
			other[b] = 5000u + (uint64_t)b;
		}
		if (k->prefill_tokens != 0)
			CU_ASSERT_EQUAL(kvr_sched_route(sched, 1, &load, NULL, 0, &dec),
					KVR_SCHED_ROUTED);
		held.sh = other;
		held.n = k->decode_blocks < 25 ? k->decode_blocks : 25;
		if (k->decode_blocks != 0)
			CU_ASSERT_EQUAL(kvr_sched_route(d, 1, &held, NULL, 0, &dec),
					KVR_SCHED_ROUTED);
		if (k->decode_blocks == 26) { /* one more than the array above names */
			load = (struct kvr_sched_req){.isl = 4, .sh = &(uint64_t){9}, .n = 1};
			kvr_sched_route(d, 2, &load, NULL, 0, &dec);
		}
		device[0] = k->cached_blocks;
		if (kvr_disagg_bypass(&dc, &(const struct kvr_disagg_side){sched, &req, NULL},
				      &(const struct kvr_disagg_side){d, &req, &ov},
				      0) != k->bypass) {
			fprintf(stderr, "%s\n", k->what);
			CU_FAIL("bypass");
		}
		CU_ASSERT_EQUAL(kvr_sched_counters(d)->booked_now,
				(k->decode_blocks != 0) + (k->decode_blocks == 26));
		kvr_sched_destroy(sched);
		kvr_sched_destroy(d);
	}
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(an_operator_may_switch_the_prefill_side_off),
			       KVR_CASE(activation_follows_the_table),
			       KVR_CASE(a_room_encodes_the_rank),
			       KVR_CASE(the_decode_override_keeps_other_fields),
			       KVR_CASE(constraints_are_merged),
			       KVR_CASE(the_prefill_leg_has_its_own_pin),
			       KVR_CASE(bypass_follows_the_policy),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("disagg", tests);
}
