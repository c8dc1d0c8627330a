/* SPDX-License-Identifier: BSD-3-Clause */
#include "client_pvt.h"

#include "kvr_hints.h"
#include "kvr_test.h"
#include <errno.h>
#include <math.h>

static struct kvr_client_hints *h;

static void start_hints(void)
{
	h = kvr_client_hints_create();
	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
}

static struct kvr_hint_lists lists;

static int parse_hints(struct kvr_hints *out)
{
	uint32_t len;
	const uint8_t *p = kvr_client__hints_bytes(h, &len);

	return kvr_hints_parse(p, len, KVR_HINTS_ROUTE, out, &lists);
}

static void every_hint_is_read_back(void)
{
	const uint64_t mm[] = {5, 6}, allowed[] = {1, 2, 3};
	struct kvr_hints p;

	start_hints();
	CU_ASSERT_EQUAL(kvr_client_hint_lora(h, "adapter-a"), 0);
	CU_ASSERT_EQUAL(kvr_client_hint_cache_namespace(h, "tenant-a"), 0);
	CU_ASSERT_EQUAL(kvr_client_hint_mm(h, 3, mm, 2), 0);
	CU_ASSERT_EQUAL(kvr_client_hint_backend_worker(h, 11), 0);
	CU_ASSERT_EQUAL(kvr_client_hint_prefill_worker(h, 12), 0);
	CU_ASSERT_EQUAL(kvr_client_hint_decode_worker(h, 13), 0);
	CU_ASSERT_EQUAL(kvr_client_hint_dp_rank(h, 14), 0);
	CU_ASSERT_EQUAL(kvr_client_hint_prefill_dp_rank(h, 15), 0);
	CU_ASSERT_EQUAL(kvr_client_hint_allowed(h, allowed, 3), 0);
	CU_ASSERT_EQUAL(kvr_client_hint_required(h, "gpu"), 0);
	CU_ASSERT_EQUAL(kvr_client_hint_required(h, "big"), 0);
	CU_ASSERT_EQUAL(kvr_client_hint_preferred(h, "fast", 0.5), 0);
	CU_ASSERT_EQUAL(kvr_client_hint_priority_jump(h, 1.5), 0);
	CU_ASSERT_EQUAL(kvr_client_hint_strict_priority(h, 4), 0);
	CU_ASSERT_EQUAL(kvr_client_hint_priority(h, -4), 0);
	CU_ASSERT_EQUAL(kvr_client_hint_policy(h, "batch"), 0);
	CU_ASSERT_EQUAL(kvr_client_hint_override(h, KVR_CLIENT_ROUTER_TEMPERATURE, 0.25), 0);
	CU_ASSERT_EQUAL(kvr_client_hint_session(h, "s1", KVR_CLIENT_SESSION_OPEN, 60), 0);
	CU_ASSERT_EQUAL(kvr_client_hint_shared(h, 2, 9), 0);
	CU_ASSERT_EQUAL(kvr_client_hint_trace(h, "abc", 3), 0);
	CU_ASSERT_EQUAL(kvr_client_hints_error(h), 0);
	CU_ASSERT_EQUAL_FATAL(parse_hints(&p), 0);
	CU_ASSERT_EQUAL(memcmp(p.lora.p, "adapter-a", p.lora.len), 0);
	CU_ASSERT_EQUAL(memcmp(p.cache_namespace.p, "tenant-a", p.cache_namespace.len), 0);
	CU_ASSERT_EQUAL(p.n_mm, 1);
	CU_ASSERT_EQUAL(p.backend_worker, 11);
	CU_ASSERT_EQUAL(p.prefill_worker, 12);
	CU_ASSERT_EQUAL(p.decode_worker, 13);
	CU_ASSERT_EQUAL(p.dp_rank, 14);
	CU_ASSERT_EQUAL(p.prefill_dp_rank, 15);
	CU_ASSERT_EQUAL(p.n_allowed, 3);
	CU_ASSERT_EQUAL(p.n_required, 2);
	CU_ASSERT_EQUAL(p.preferred[0].weight, 0.5);
	CU_ASSERT_EQUAL(p.priority_jump, 1.5);
	CU_ASSERT_EQUAL(p.strict_priority, 4);
	CU_ASSERT_EQUAL(p.priority, -4);
	CU_ASSERT_EQUAL(p.policy.len, 5);
	CU_ASSERT_EQUAL(p.overrides.value[KVR_OVERRIDE_ROUTER_TEMPERATURE], 0.25);
	CU_ASSERT_EQUAL(p.session.action, 1);
	CU_ASSERT_EQUAL(p.session.timeout_s, 60);
	CU_ASSERT_EQUAL(p.shared[0].end, 9);
	CU_ASSERT_EQUAL(p.trace.len, 3);
	kvr_client_hints_destroy(h);
}

static void the_first_error_stays_until_reset(void)
{
	start_hints();
	CU_ASSERT_EQUAL(kvr_client_hint_shared(h, 5, 5), -EINVAL);
	CU_ASSERT_EQUAL(kvr_client_hint_dp_rank(h, 1), -EINVAL);
	CU_ASSERT_EQUAL(kvr_client_hints_error(h), -EINVAL);
	kvr_client_hints_reset(h);
	CU_ASSERT_EQUAL(kvr_client_hints_error(h), 0);
	CU_ASSERT_EQUAL(kvr_client_hint_dp_rank(h, 1), 0);
	kvr_client_hints_destroy(h);
	kvr_client_hints_destroy(NULL);
}

static void values_out_of_range_are_errors(void)
{
	static char longname[300];
	const uint64_t one = 1;

#define REFUSED(call, code)                                                                        \
	do {                                                                                       \
		start_hints();                                                                     \
		CU_ASSERT_EQUAL(call, code);                                                       \
		CU_ASSERT_EQUAL(kvr_client_hints_error(h), code);                                  \
		kvr_client_hints_destroy(h);                                                       \
	} while (0)
	memset(longname, 'a', sizeof(longname) - 1);
	REFUSED(kvr_client_hint_lora(h, ""), -EINVAL);
	REFUSED(kvr_client_hint_lora(h, longname), -EMSGSIZE);
	REFUSED(kvr_client_hint_mm(h, 0, &one, 0), -EINVAL);
	REFUSED(kvr_client_hint_mm(h, 0, &one, 10000), -EMSGSIZE);
	REFUSED(kvr_client_hint_allowed(h, &one, 9000), -EMSGSIZE);
	REFUSED(kvr_client_hint_preferred(h, "t", NAN), -EINVAL);
	REFUSED(kvr_client_hint_preferred(h, "", 1), -EINVAL);
	REFUSED(kvr_client_hint_priority_jump(h, INFINITY), -EINVAL);
	REFUSED(kvr_client_hint_override(h, KVR_CLIENT_ROUTER_TEMPERATURE, NAN), -EINVAL);
	REFUSED(kvr_client_hint_session(h, "", KVR_CLIENT_SESSION_OPEN, 1), -EINVAL);
	REFUSED(kvr_client_hint_session(h, "s", (enum kvr_client_session)7, 1), -EINVAL);
	REFUSED(kvr_client_hint_session(h, longname, KVR_CLIENT_SESSION_OPEN, 1), -EMSGSIZE);
	REFUSED(kvr_client_hint_session(h, "s", KVR_CLIENT_SESSION_OPEN, 31536001), -EINVAL);
	REFUSED(kvr_client_hint_trace(h, longname, 65), -EMSGSIZE);
#undef REFUSED
}

static void the_list_grows_to_its_limit(void)
{
	int rc = 0;
	uint32_t len, n = 0;

	start_hints();
	while (rc == 0 && n < 100000) {
		rc = kvr_client_hint_required(h, "0123456789");
		n += rc == 0;
	}
	CU_ASSERT_EQUAL(rc, -EMSGSIZE);
	kvr_client__hints_bytes(h, &len);
	CU_ASSERT_EQUAL(len, n * 16);
	CU_ASSERT(len <= KVR_WIRE_MAX_HINTS && len > KVR_WIRE_MAX_HINTS - 64);
	kvr_client_hints_destroy(h);
}

/* Published vectors of sequence hashes. */
static void hashes_match_the_published_vectors(void)
{
	uint32_t t[32];
	uint64_t sh[8];
	const uint64_t mm_hashes[] = {7, 3};
	const struct kvr_client_mm mm = {.block = 0, .n = 2, .hashes = mm_hashes};

	for (uint32_t i = 0; i < 32; i++)
		t[i] = i;
	CU_ASSERT_EQUAL(kvr_client_hash_tokens(&(struct kvr_client_hashing){.block_size = 4}, t + 1,
					       12, sh, 8),
			3);
	CU_ASSERT_EQUAL(sh[0], 14643705804678351452u);
	CU_ASSERT_EQUAL(sh[1], 4945711292740353085u);
	CU_ASSERT_EQUAL(sh[2], 12583592247330656132u);
	CU_ASSERT_EQUAL(kvr_client_hash_tokens(
				&(struct kvr_client_hashing){.block_size = 4, .lora = "adapter-a"},
				t, 4, sh, 8),
			1);
	CU_ASSERT_EQUAL(sh[0], 6665157333201000639u);
	CU_ASSERT_EQUAL(
		kvr_client_hash_tokens(&(struct kvr_client_hashing){.block_size = 4,
								    .cache_namespace = "tenant-a"},
				       t, 4, sh, 8),
		1);
	CU_ASSERT_EQUAL(sh[0], 17009624042690211646u);
	CU_ASSERT_EQUAL(kvr_client_hash_tokens(
				&(struct kvr_client_hashing){.block_size = 4, .mm = &mm, .n_mm = 1},
				t, 4, sh, 8),
			1);
	CU_ASSERT_EQUAL(sh[0], 12534961123884847936u);
	CU_ASSERT_EQUAL(kvr_client_hash_tokens(&(struct kvr_client_hashing){0}, t, 4, sh, 8),
			-EINVAL);
	CU_ASSERT_EQUAL(
		kvr_client_hash_tokens(&(struct kvr_client_hashing){.block_size = 4}, t, 12, sh, 2),
		-ENOSPC);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(every_hint_is_read_back),
			       KVR_CASE(the_first_error_stays_until_reset),
			       KVR_CASE(values_out_of_range_are_errors),
			       KVR_CASE(the_list_grows_to_its_limit),
			       KVR_CASE(hashes_match_the_published_vectors),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("client_hints", tests);
}
