/* SPDX-License-Identifier: BSD-3-Clause */
/* Gauges with the names of the reference system, from a sample of a router. */
#include "reference.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_test.h"

static const char sample_text[] =
	"{'pools': {'p': {'peer': 'd', 'prefill': 'active'}, 'd': {'peer': 'p'}},"
	" 'queue': {'d': {'waiting': 3, 'classes': {"
	"   'gold': {'waiting': 1, 'isl_tokens': 100, 'cached_tokens': 40},"
	"   'rest': {'waiting': 2, 'isl_tokens': 5000000000, 'cached_tokens': 0}}}},"
	" 'loads': {'p': {'ranks': {'17/3': {'active_blocks': 9, 'active_prefill_tokens': 700,"
	"     'last_ttft_ns': 1500000000, 'last_itl_ns': 0, 'last_input_tokens': 44}}},"
	"   'd': {'ranks': {}}},"
	" 'workers': {'total': 1, 'workers': {'17': {'state': 'serving', 'pool': 'p'}}}}";

static char *write_json(const char *sample)
{
	json_t *s = sample != NULL ? json_loads(sample, 0, NULL) : NULL;
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	CU_ASSERT_PTR_NOT_NULL_FATAL(out);
	CU_ASSERT_FATAL(sample == NULL || s != NULL);
	reference_write(s, out);
	fclose(out);
	json_decref(s);
	return text;
}

static char *write_sample(void)
{
	char json[sizeof(sample_text)];

	for (size_t i = 0; i < sizeof(sample_text); i++)
		json[i] = sample_text[i] == '\'' ? '"' : sample_text[i];
	return write_json(json);
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
	char *text = write_sample();

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

/* Before the first worker, and before the first sample. */
static void families_are_always_there(void)
{
	char *full = write_sample(), *empty = write_json("{}"), *none = write_json(NULL);

	CU_ASSERT_EQUAL(types_in(full), 9);
	CU_ASSERT_EQUAL(types_in(empty), 9);
	CU_ASSERT_STRING_EQUAL(empty, none);
	free(full);
	free(empty);
	free(none);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(each_has_its_labels_and_units),
			       KVR_CASE(families_are_always_there), CU_TEST_INFO_NULL};

	return kvr_test_run("reference", tests);
}
