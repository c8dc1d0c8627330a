/* SPDX-License-Identifier: BSD-3-Clause */
/* Gauges under the names of the reference system, from a look at a router. */
#include "reference.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_test.h"

static const char look[] =
	"{'pools': {'p': {'peer': 'd', 'prefill': 'active'}, 'd': {'peer': 'p'}},"
	" 'queue': {'d': {'waiting': 3, 'classes': {"
	"   'gold': {'waiting': 1, 'isl_tokens': 100, 'cached_tokens': 40},"
	"   'rest': {'waiting': 2, 'isl_tokens': 5000000000, 'cached_tokens': 0}}}},"
	" 'loads': {'p': {'ranks': {'17/3': {'active_blocks': 9, 'active_prefill_tokens': 700,"
	"     'last_ttft_ns': 1500000000, 'last_itl_ns': 0, 'last_input_tokens': 44}}},"
	"   'd': {'ranks': {}}},"
	" 'workers': {'total': 1, 'workers': {'17': {'state': 'serving', 'pool': 'p'}}}}";

static char *text_of(const char *snap)
{
	json_t *s = snap != NULL ? json_loads(snap, 0, NULL) : NULL;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	CU_ASSERT_PTR_NOT_NULL_FATAL(out);
	CU_ASSERT_FATAL(snap == NULL || s != NULL);
	reference_put(s, out);
	fclose(out);
	json_decref(s);
	return text;
}

static char *looked(void)
{
	char json[sizeof(look)];

	for (size_t i = 0; i < sizeof(look); i++)
		json[i] = look[i] == '\'' ? '"' : look[i];
	return text_of(json);
}

static void each_has_its_labels_and_units(void)
{
	static const char *const lines[] = {
		"dynamo_frontend_router_queue_pending_requests{pool=\"d\",worker_type=\"decode\","
		"policy_class=\"gold\"} 1\n",
		"dynamo_frontend_router_queue_pending_isl_tokens{pool=\"d\",worker_type=\"decode\","
		"policy_class=\"rest\"} 5000000000\n",
		"dynamo_frontend_router_queue_pending_cached_tokens{pool=\"d\",worker_type="
		"\"decode\",policy_class=\"gold\"} 40\n",
		"dynamo_frontend_worker_active_decode_blocks{worker_id=\"17\",dp_rank=\"3\","
		"worker_type=\"prefill\",pool=\"p\"} 9\n",
		"dynamo_frontend_worker_active_prefill_tokens{worker_id=\"17\",dp_rank=\"3\","
		"worker_type=\"prefill\",pool=\"p\"} 700\n",
		"dynamo_frontend_worker_last_time_to_first_token_seconds{worker_id=\"17\",dp_rank="
		"\"3\",worker_type=\"prefill\",pool=\"p\"} 1.5\n",
		"dynamo_frontend_worker_last_inter_token_latency_seconds{worker_id=\"17\",dp_rank="
		"\"3\",worker_type=\"prefill\",pool=\"p\"} 0\n",
		"dynamo_frontend_worker_last_input_sequence_tokens{worker_id=\"17\",dp_rank=\"3\","
		"worker_type=\"prefill\",pool=\"p\"} 44\n",
		"dynamo_component_router_worker_registered{router_worker_id=\"17\",pool=\"p\"} 1\n",
	};
	char *text = looked();

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		CU_ASSERT_PTR_NOT_NULL(strstr(text, lines[i]));
		if (strstr(text, lines[i]) == NULL)
			fprintf(stderr, "lacks %s", lines[i]);
	}
	free(text);
}

static uint32_t types_in(const char *text)
{
	uint32_t n = 0;

	while ((text = strstr(text, "# TYPE ")) != NULL) {
		text++;
		n++;
	}
	return n;
}

/* They are there before the first worker, and before the first look. */
static void families_are_always_there(void)
{
	char *full = looked(), *empty = text_of("{}"), *none = text_of(NULL);

	CU_ASSERT_EQUAL(types_in(full), 9);
	CU_ASSERT_EQUAL(types_in(empty), 9);
	CU_ASSERT_STRING_EQUAL(empty, none);
	free(full);
	free(empty);
	free(none);
}

int main(void)
{
	CU_TestInfo tests[] = {{"labels and units", each_has_its_labels_and_units},
			       {"always there", families_are_always_there},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("reference", tests);
}
