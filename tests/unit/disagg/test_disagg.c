/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_disagg.h"

#include "kvr_test.h"
#include <string.h>

/* Every row of the table of section 9.1. */
static void can_serve_follows_the_table(void)
{
	struct kvr_disagg fresh = {0}, d = {0};

	CU_ASSERT_FALSE(kvr_disagg_can_serve(&fresh, true));
	CU_ASSERT(kvr_disagg_can_serve(&fresh, false));
	CU_ASSERT_FALSE(kvr_disagg_workers(&fresh, 0)); /* never had one: not deactivated */
	CU_ASSERT_FALSE(kvr_disagg_can_serve(&fresh, true));
	CU_ASSERT(kvr_disagg_workers(&d, 1));
	CU_ASSERT(kvr_disagg_can_serve(&d, true) && kvr_disagg_can_serve(&d, false));
	CU_ASSERT_FALSE(kvr_disagg_workers(&d, 2));
	CU_ASSERT(kvr_disagg_workers(&d, 0));
	CU_ASSERT_FALSE(kvr_disagg_can_serve(&d, true));
	CU_ASSERT(kvr_disagg_can_serve(&d, false));
	CU_ASSERT_FALSE(kvr_disagg_active(&d));
	CU_ASSERT(kvr_disagg_workers(&d, 1));
	CU_ASSERT(kvr_disagg_can_serve(&d, true) && kvr_disagg_active(&d));
}

static void room_names_the_rank(void)
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

static void decode_override_keeps_the_rest(void)
{
	const struct kvr_sched_override in = {.flags = KVR_SOVER_TEMPERATURE | KVR_SOVER_CREDIT,
					      .temperature = 0.7,
					      .overlap_score_credit = 2};
	struct kvr_sched_override out;

	kvr_disagg_decode_override(&in, &out);
	CU_ASSERT_EQUAL(out.flags, KVR_SOVER_TEMPERATURE | KVR_SOVER_CREDIT | KVR_SOVER_KV_REUSE |
					   KVR_SOVER_TRACK_PREFILL);
	CU_ASSERT_EQUAL(out.temperature, 0.7);
	CU_ASSERT_EQUAL(out.overlap_score_credit, 0);
	CU_ASSERT_FALSE(out.assume_kv_reuse || out.track_prefill_tokens);
	kvr_disagg_decode_override(NULL, &out);
	CU_ASSERT_FALSE(out.flags & KVR_SOVER_TEMPERATURE);
}

static void constraints_are_united(void)
{
	struct kvr_sched_str user = {"user", 4}, required[2];
	struct kvr_sched_preferred rack = {{"rack", 4}, 0.25}, preferred[2];
	struct kvr_sched_hints in = {
		.required = &user, .n_required = 1, .preferred = &rack, .n_preferred = 1};
	struct kvr_disagg_transfer t = {{"zone", 4}, true, 0};
	struct kvr_sched_hints out;

	kvr_disagg_merge(&in, &t, required, preferred, &out);
	CU_ASSERT(out.n_required == 2 && out.n_preferred == 1);
	CU_ASSERT_EQUAL(memcmp(out.required[1].ptr, "zone", 4), 0);
	t = (struct kvr_disagg_transfer){{"rack", 4}, false, 0.85};
	kvr_disagg_merge(&in, &t, required, preferred, &out);
	CU_ASSERT(out.n_required == 1 && out.n_preferred == 1);
	CU_ASSERT_EQUAL(out.preferred[0].weight, 0.85);
	t.taint = (struct kvr_sched_str){"zone", 4};
	kvr_disagg_merge(&in, &t, required, preferred, &out);
	CU_ASSERT(out.n_preferred == 2 && out.preferred[1].weight == 0.85);
	t = (struct kvr_disagg_transfer){{"user", 4}, true, 0};
	kvr_disagg_merge(&in, &t, required, preferred, &out);
	CU_ASSERT_EQUAL(out.n_required, 1);
	t.taint.len = 0;
	kvr_disagg_merge(&in, &t, required, preferred, &out);
	CU_ASSERT_EQUAL(out.required, in.required);
}

static void the_prefill_leg_has_its_own_pin(void)
{
	const struct kvr_sched_hints in = {.flags = KVR_SHINT_BACKEND_ID | KVR_SHINT_PREFILL_ID |
						    KVR_SHINT_DP_RANK | KVR_SHINT_EXPECTED_OUTPUT,
					   .prefill_id = 2};
	struct kvr_sched_hints out;

	kvr_disagg_prefill_hints(&in, &out);
	CU_ASSERT_EQUAL(out.flags, KVR_SHINT_PREFILL_ID | KVR_SHINT_DP_RANK);
	CU_ASSERT_EQUAL(out.prefill_id, 2);
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"serve", can_serve_follows_the_table},	      {"room", room_names_the_rank},
		{"override", decode_override_keeps_the_rest}, {"merge", constraints_are_united},
		{"pin", the_prefill_leg_has_its_own_pin},     CU_TEST_INFO_NULL};

	return kvr_test_run("disagg", tests);
}
