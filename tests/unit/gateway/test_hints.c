/* SPDX-License-Identifier: BSD-3-Clause */
#include "hints.h"

#include <errno.h>
#include <string.h>

#include "kvr_test.h"

static struct gw_hints h;
static char err[256];

static int read_object(const char *text)
{
	struct kvr_json_value v;

	memset(&h, 0, sizeof(h));
	CU_ASSERT_EQUAL_FATAL(kvr_json_parse(text, strlen(text), &v, NULL), 0);
	return gw_hints_object(&h, &v, err, sizeof(err));
}

static int read_header(const char *name, const char *value)
{
	return gw_hints_header(&h, name, strlen(name), value, strlen(value), err, sizeof(err));
}

/* Hints as lib/client would send them. */
static int make_list(void)
{
	struct kvr_client_hints *l = kvr_client_hints_create();
	int rc = gw_hints_list(&h, l);

	kvr_client_hints_destroy(l);
	return rc;
}

static void an_object_has_all_hints(void)
{
	CU_ASSERT_EQUAL_FATAL(
		read_object(
			"{\"backend_instance_id\":18446744073709551615,\"prefill_worker_id\":2,\"decode_worker_id\":3,\"dp_rank\":4,\"prefill_dp_rank\":5,\"expected_output_tokens\":6,\"lora_name\":\"ad\",\"priority_jump\":1.5,\"priority\":-7,\"allowed_worker_ids\":[8,9],\"strict_priority\":10,\"cache_namespace\":\"ns\",\"policy_class\":\"pc\",\"routing_constraints\":{\"required_taints\":[\"a\",\"b\"],\"preferred_taints\":{\"c\":0.5}},\"session_control\":{\"session_id\":\"s\",\"action\":\"open\",\"timeout\":60},\"other\":[1]}"),
		0);
	CU_ASSERT_EQUAL(h.backend_worker, UINT64_MAX);
	CU_ASSERT_EQUAL(h.prefill_worker, 2);
	CU_ASSERT_EQUAL(h.decode_worker, 3);
	CU_ASSERT(h.dp_rank == 4 && h.prefill_dp_rank == 5 && h.expected_output_tokens == 6);
	CU_ASSERT(strcmp(h.lora, "ad") == 0 && strcmp(h.cache_namespace, "ns") == 0 &&
		  strcmp(h.policy, "pc") == 0);
	CU_ASSERT(h.priority_jump == 1.5 && h.priority == -7 && h.strict_priority == 10);
	CU_ASSERT(h.n_allowed == 2 && h.allowed[1] == 9);
	CU_ASSERT(h.n_required == 2 && strcmp(h.required[1], "b") == 0);
	CU_ASSERT(h.n_preferred == 1 && h.preferred[0].weight == 0.5 &&
		  strcmp(h.preferred[0].taint, "c") == 0);
	CU_ASSERT(strcmp(h.session, "s") == 0 && h.timeout_s == 60);
	CU_ASSERT_EQUAL(make_list(), 0);
}

static void headers_have_the_same_hints(void)
{
	memset(&h, 0, sizeof(h));
	CU_ASSERT_EQUAL(read_header("x-kvroute-worker", "12"), 1);
	CU_ASSERT_EQUAL(read_header("X-KVRoute-DP-Rank", "3"), 1);
	CU_ASSERT_EQUAL(read_header("x-kvroute-allowed-workers", "1, 2,3"), 1);
	CU_ASSERT_EQUAL(read_header("x-kvroute-required-taints", "a,b=c"), 1);
	CU_ASSERT_EQUAL(read_header("x-kvroute-preferred-taints", "zone=b=0.25"), 1);
	CU_ASSERT_EQUAL(read_header("x-kvroute-priority-jump", "-2.5"), 1);
	CU_ASSERT_EQUAL(read_header("x-kvroute-session", "chat 1"), 1);
	CU_ASSERT_EQUAL(read_header("x-kvroute-session-action", "close"), 1);
	CU_ASSERT_EQUAL(read_header("x-kvroute-query", "1"), 1);
	CU_ASSERT_EQUAL(read_header("x-kvroute-cache-salt", "t"), 1);
	CU_ASSERT(h.backend_worker == 12 && h.dp_rank == 3 && h.query && h.priority_jump == -2.5);
	CU_ASSERT(h.n_allowed == 3 && h.allowed[1] == 2);
	CU_ASSERT(h.n_required == 2 && strcmp(h.required[1], "b=c") == 0);
	CU_ASSERT(h.n_preferred == 1 && strcmp(h.preferred[0].taint, "zone=b") == 0 &&
		  h.preferred[0].weight == 0.25);
	CU_ASSERT(strcmp(h.session, "chat 1") == 0 && strcmp(h.cache_namespace, "t") == 0);
	CU_ASSERT_EQUAL(make_list(), 0);
	CU_ASSERT_EQUAL(read_header("x-dynamo-session-id", "other"), 1);
	CU_ASSERT_STRING_EQUAL(h.session, "other");
}

static void other_headers_are_ignored(void)
{
	memset(&h, 0, sizeof(h));
	CU_ASSERT_EQUAL(read_header("x-kvroute-", "1"), 0);
	CU_ASSERT_EQUAL(read_header("x-kvroute-unknown", "1"), 0);
	CU_ASSERT_EQUAL(read_header("x-kvroute-dp_rank", "1"), 0);
	CU_ASSERT_EQUAL(read_header("content-type", "1"), 0);
	CU_ASSERT(!h.any && h.given == 0);
}

static void wrong_types_and_ranges_are_named(void)
{
	static const char *const bad[] = {
		"{\"dp_rank\":-1}",
		"{\"dp_rank\":4294967296}",
		"{\"dp_rank\":\"1\"}",
		"{\"backend_instance_id\":1.5}",
		"{\"priority\":2147483648}",
		"{\"priority_jump\":\"x\"}",
		"{\"allowed_worker_ids\":5}",
		"{\"allowed_worker_ids\":[-1]}",
		"{\"lora_name\":7}",
		"{\"routing_constraints\":[]}",
		"{\"routing_constraints\":{\"preferred_taints\":[]}}",
		"{\"session_control\":\"s\"}",
		"{\"agent_hints\":{\"osl\":\"x\"}}",
		"{\"annotations\":\"x\"}",
		"{\"annotations\":[1]}",
		"{\"query_only\":2}",
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		err[0] = '\0';
		CU_ASSERT_EQUAL(read_object(bad[i]), -EINVAL);
		CU_ASSERT(err[0] != '\0');
	}
	CU_ASSERT_EQUAL(read_object("{\"dp_rank\":null,\"session_control\":null}"), 0);
	CU_ASSERT_EQUAL(read_object("null"), 0);
	CU_ASSERT_EQUAL(read_object("[]"), -EINVAL);
}

/* The sessions "a" and "a", NUL, "b" are different. */
static void names_with_nul_are_errors(void)
{
	CU_ASSERT_EQUAL(read_object("{\"session_control\":{\"session_id\":\"a\\u0000b\"}}"),
			-EINVAL);
	CU_ASSERT_EQUAL(read_object("{\"cache_namespace\":\"a\\u0000\"}"), -EINVAL);
	CU_ASSERT_EQUAL(read_object("{\"lora_name\":\"\\u0000\"}"), -EINVAL);
	memset(&h, 0, sizeof(h));
	CU_ASSERT_EQUAL(gw_hints_header(&h, "x-kvroute-session", 17, "a\0b", 3, err, sizeof(err)),
			-EINVAL);
	CU_ASSERT_EQUAL(gw_hints_header(&h, "x-kvroute-session", 17, "ab", 2, err, sizeof(err)), 1);
	CU_ASSERT_STRING_EQUAL(h.session, "ab");
}

static void a_pin_is_one_worker(void)
{
	static const char *const pins[] = {"{\"backend_instance_id\":0}", "{\"worker_id\":1}",
					   "{\"prefill_worker_id\":1}", "{\"decode_worker_id\":1}"};

	for (size_t i = 0; i < sizeof(pins) / sizeof(pins[0]); i++)
		CU_ASSERT(read_object(pins[i]) == 0 && gw_hints_pinned(&h));
	CU_ASSERT(read_object("{\"dp_rank\":1,\"allowed_worker_ids\":[1]}") == 0 &&
		  !gw_hints_pinned(&h));
}

static void too_many_values_are_errors(void)
{
	char text[8192] = "{\"allowed_worker_ids\":[1";
	char taints[1024] = "{\"required_taints\":[\"a\"";

	for (int i = 0; i < GW_HINT_WORKERS; i++)
		strcat(text, ",1");
	strcat(text, "]}");
	CU_ASSERT_EQUAL(read_object(text), -EINVAL);
	for (int i = 0; i < GW_HINT_TAINTS; i++)
		strcat(taints, ",\"a\"");
	strcat(taints, "]}");
	CU_ASSERT_EQUAL(read_object(taints), -EINVAL);
}

static void annotations_ask_for_the_choice(void)
{
	CU_ASSERT_EQUAL(read_object("{\"annotations\":[\"x\",\"query_instance_id:\"]}"), 0);
	CU_ASSERT(h.query && h.token_ids);
	CU_ASSERT_EQUAL(read_object("{\"annotations\":[\"query_instance_id:7\"]}"), 0);
	CU_ASSERT(h.query);
	CU_ASSERT_EQUAL(read_object("{\"annotations\":[\"query_instance_id\"]}"), 0);
	CU_ASSERT(!h.query && !h.token_ids);
	CU_ASSERT_EQUAL(read_object("{\"annotations\":[\"query_instance_ids\",\"token_ids\"]}"), 0);
	CU_ASSERT(!h.query && !h.token_ids);
	CU_ASSERT_EQUAL(read_object("{\"extra_fields\":[\"timing\",\"worker_id\"]}"), 0);
	CU_ASSERT(h.explain);
}

static void overrides_have_the_names_of_the_protocol(void)
{
	CU_ASSERT_EQUAL(
		read_object(
			"{\"router_config_override\":{\"router_temperature\":0.5,\"assume_kv_reuse\":true,\"overlap_score_weight\":null}}"),
		0);
	CU_ASSERT_EQUAL(h.overrides, (1u << 2) | (1u << 3));
	CU_ASSERT(h.override_value[2] == 0.5 && h.override_value[3] == 1.0);
	CU_ASSERT_EQUAL(make_list(), 0);
	CU_ASSERT_EQUAL(read_object("{\"router_config_override\":{\"router_temperature\":\"x\"}}"),
			-EINVAL);
}

static void an_unknown_action_is_an_error(void)
{
	CU_ASSERT_EQUAL(read_object("{\"session_id\":\"s\",\"action\":\"reopen\"}"), 0);
	CU_ASSERT_EQUAL(make_list(), -EINVAL);
	CU_ASSERT_EQUAL(read_object("{\"session_id\":\"\"}"), 0);
	CU_ASSERT_EQUAL(make_list(), -EINVAL);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(an_object_has_all_hints),
			       KVR_CASE(headers_have_the_same_hints),
			       KVR_CASE(other_headers_are_ignored),
			       KVR_CASE(wrong_types_and_ranges_are_named),
			       KVR_CASE(names_with_nul_are_errors),
			       KVR_CASE(a_pin_is_one_worker),
			       KVR_CASE(too_many_values_are_errors),
			       KVR_CASE(annotations_ask_for_the_choice),
			       KVR_CASE(overrides_have_the_names_of_the_protocol),
			       KVR_CASE(an_unknown_action_is_an_error),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("gateway hints", tests);
}
