/* SPDX-License-Identifier: BSD-3-Clause */
#include "facts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint.h"
#include "kvr_test.h"

static struct agent_facts f;
static struct agent_options given, o;

static void clear_facts(enum agent_engine type)
{
	agent_facts_clear(&f, type);
	given = (struct agent_options){.engine = "http://10.0.0.7:8000",
				       .type = (int)type,
				       .events = AGENT_AS_REPORTED,
				       .replay = AGENT_AS_REPORTED};
}

/* The copy has exactly the length of the page. */
static int read_page(enum agent_page which, const char *text)
{
	const size_t n = strlen(text);
	char *copy = malloc(n + 1);
	int rc;

	memcpy(copy, text, n);
	rc = agent_facts_read(&f, which, copy, n);
	free(copy);
	return rc;
}

static void read_metrics(const char *text)
{
	struct agent_prom prom;

	agent_prom_read(&prom, text, strlen(text));
	agent_facts_metrics(&f, &prom);
}

static void sglang_reports_values_in_server_info(void)
{
	clear_facts(AGENT_AUTO);
	CU_ASSERT_EQUAL(
		read_page(
			AGENT_PAGE_MODELS,
			"{\"data\":[{\"id\":\"m\",\"owned_by\":\"sglang\",\"parent\":null,\"max_model_len\":4096},{\"id\":\"a\",\"parent\":\"m\",\"max_model_len\":null}]}"),
		0);
	CU_ASSERT_EQUAL(
		read_page(
			AGENT_PAGE_SERVER,
			"{\"page_size\":16,\"max_total_num_tokens\":64000,\"chunked_prefill_size\":-1,\"max_prefill_tokens\":16384,\"internal_states\":[{},{}],\"kv_events\":{\"endpoint_host\":\"*\",\"endpoint_port_base\":5557,\"replay_endpoint_port_base\":5657,\"topic\":\"t\",\"block_size\":32,\"dp_size\":2}}"),
		0);
	read_metrics("sglang:page_size 16.0\nsglang:num_pages 4000.0\n");
	agent_facts_apply(&f, &given, &o);
	CU_ASSERT(o.type == AGENT_SGLANG && o.ranks == 2 && o.block_size == 32);
	CU_ASSERT_EQUAL(o.max_num_batched_tokens, 16384);
	CU_ASSERT_EQUAL(agent_facts_blocks(&f, o.block_size), 2000);
	CU_ASSERT(f.number[AGENT_V_LENGTH] == 4096 && f.number[AGENT_V_ADAPTERS] == 1);
	CU_ASSERT_STRING_EQUAL(f.model, "m");
	CU_ASSERT_STRING_EQUAL(o.topic, "t");
	CU_ASSERT_STRING_EQUAL(o.events, "tcp://10.0.0.7:5557");
	agent_facts_endpoint(&f, &given, true, 1, o.replay, sizeof(o.replay));
	CU_ASSERT_STRING_EQUAL(o.replay, "tcp://10.0.0.7:5658");
	CU_ASSERT_EQUAL(f.bad, 0);
}

static void an_older_sglang_has_its_configuration_as_text(void)
{
	clear_facts(AGENT_AUTO);
	read_page(AGENT_PAGE_MODELS, "{\"data\":[{\"id\":\"m\",\"owned_by\":\"sglang\"}]}");
	read_page(
		AGENT_PAGE_SERVER_OLD,
		"{\"page_size\":16,\"chunked_prefill_size\":8192,\"internal_states\":[{}],\"kv_events_config\":\"{\\\"endpoint\\\":\\\"tcp://*:5557\\\",\\\"topic\\\":\\\"t\\\"}\"}");
	agent_facts_apply(&f, &given, &o);
	CU_ASSERT(o.block_size == 16 && o.ranks == 1 && o.max_num_batched_tokens == 8192);
	CU_ASSERT_STRING_EQUAL(o.events, "tcp://10.0.0.7:5557");
	CU_ASSERT_STRING_EQUAL(o.replay, "");
	CU_ASSERT_STRING_EQUAL(o.topic, "t");
}

static void vllm_has_an_endpoint_for_each_rank(void)
{
	clear_facts(AGENT_AUTO);
	read_page(AGENT_PAGE_MODELS, "{\"data\":[{\"id\":\"m\",\"owned_by\":\"vllm\"}]}");
	read_page(
		AGENT_PAGE_SOURCES,
		"{\"10\":{\"endpoint\":\"tcp://10.0.0.8:41000\",\"replay_endpoint\":null,\"topic\":\"b\"},\"9\":{\"endpoint\":\"tcp://*:40000\",\"replay_endpoint\":null,\"topic\":\"a\"}}");
	read_metrics(
		"vllm:cache_config_info{block_size=\"16\",engine=\"9\",num_gpu_blocks=\"100\"} 1\n"
		"vllm:cache_config_info{block_size=\"16\",engine=\"10\",num_gpu_blocks=\"100\"} 1\n");
	agent_facts_apply(&f, &given, &o);
	CU_ASSERT(o.type == AGENT_VLLM && o.ranks == 2 && o.block_size == 16);
	CU_ASSERT_EQUAL(agent_facts_blocks(&f, 16), 50);
	CU_ASSERT_STRING_EQUAL(o.events, "tcp://10.0.0.7:40000");
	CU_ASSERT_STRING_EQUAL(o.topic, "a");
	agent_facts_endpoint(&f, &given, false, 1, o.events, sizeof(o.events));
	CU_ASSERT_STRING_EQUAL(o.events, "tcp://10.0.0.8:41000");
	CU_ASSERT_STRING_EQUAL(o.replay, "");
	CU_ASSERT_STRING_EQUAL(agent_facts_source(&f, &given, AGENT_V_RANKS), "/kv_event_sources");
	CU_ASSERT_STRING_EQUAL(agent_facts_source(&f, &given, AGENT_V_BATCH), "");
}

static void vllm_without_events_has_its_ranks_in_metrics(void)
{
	clear_facts(AGENT_AUTO);
	read_page(AGENT_PAGE_SOURCES, "{}");
	read_metrics(
		"vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"None\"} 1\n"
		"vllm:cache_config_info{block_size=\"16\",engine=\"1\",num_gpu_blocks=\"None\"} 1\n");
	agent_facts_apply(&f, &given, &o);
	CU_ASSERT(o.type == AGENT_VLLM && o.ranks == 2 && agent_facts_blocks(&f, 16) == 0);
	CU_ASSERT(o.events[0] == '\0' && f.bad == 0);
}

static void options_take_precedence(void)
{
	char line[512];

	clear_facts(AGENT_AUTO);
	read_page(
		AGENT_PAGE_SERVER,
		"{\"kv_events\":{\"endpoint_host\":\"0.0.0.0\",\"endpoint_port_base\":5557,\"block_size\":16,\"dp_size\":4}}");
	given.ranks = 2;
	given.block_size = 64;
	snprintf(given.events, sizeof(given.events), "tcp://e:1");
	agent_facts_apply(&f, &given, &o);
	CU_ASSERT(o.ranks == 2 && o.block_size == 64 && o.type == AGENT_SGLANG);
	agent_facts_endpoint(&f, &given, false, 1, o.events, sizeof(o.events));
	CU_ASSERT_STRING_EQUAL(o.events, "tcp://e:2");
	agent_facts_line(&f, &given, line, sizeof(line));
	CU_ASSERT(strstr(line, "block size 64 (--block-size)") != NULL);
	CU_ASSERT(strstr(line, "type sglang (its answers)") != NULL);
	CU_ASSERT(strstr(line, "batch budget unknown (-)") != NULL);
	given.events[0] = '\0';
	agent_facts_apply(&f, &given, &o);
	CU_ASSERT(o.events[0] == '\0' && o.replay[0] == '\0');
}

static void a_given_type_ignores_rows_of_other_types(void)
{
	clear_facts(AGENT_VLLM);
	read_page(AGENT_PAGE_MODELS, "{\"data\":[{\"id\":\"m\",\"owned_by\":\"sglang\"}]}");
	read_page(AGENT_PAGE_SERVER, "{\"page_size\":16,\"chunked_prefill_size\":8192}");
	agent_facts_apply(&f, &given, &o);
	CU_ASSERT(o.type == AGENT_VLLM && o.block_size == 0 && o.max_num_batched_tokens == 0);
}

static void bad_values_are_counted_and_ignored(void)
{
	static const char *const bad[] = {
		"{\"page_size\":-2}",
		"{\"page_size\":0}",
		"{\"page_size\":1.5}",
		"{\"page_size\":\"16\"}",
		"{\"page_size\":4097}",
		"{\"max_prefill_tokens\":-7}",
		"{\"max_total_num_tokens\":1e300}",
		"{\"internal_states\":7}",
		"{\"kv_events\":{\"dp_size\":257}}",
		"{\"kv_events\":{\"dp_size\":-3}}",
		"{\"kv_events\":{\"topic\":7}}",
		"{\"kv_events\":{\"topic\":\"a\\nb\"}}",
		"{\"kv_events\":{\"topic\":\"a\\u0000b\"}}",
		"{\"kv_events\":{\"endpoint_host\":\"*\",\"endpoint_port_base\":0}}",
		"{\"kv_events\":{\"endpoint_host\":\"*\",\"endpoint_port_base\":65536}}",
		"{\"kv_events\":{\"endpoint_host\":\"\",\"endpoint_port_base\":5557}}",
		"{\"kv_events\":{\"endpoint_host\":7,\"endpoint_port_base\":5557}}",
		"{\"kv_events\":{\"endpoint_port_base\":5557}}",
		"{\"kv_events_config\":\"{\\\"endpoint\\\":\\\"inproc://x\\\"}\"}",
		"{\"kv_events_config\":\"{\\\"endpoint\\\":\\\"tcp://*\\\"}\"}",
		"{\"kv_events_config\":\"{\\\"endpoint\\\":7}\"}",
	};

	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		clear_facts(AGENT_SGLANG);
		CU_ASSERT_EQUAL(read_page(AGENT_PAGE_SERVER, bad[i]), 0);
		agent_facts_apply(&f, &given, &o);
		CU_ASSERT(f.bad == 1 && f.bad_row > 0);
		CU_ASSERT(o.block_size == 0 && o.ranks == 1 && o.events[0] == '\0');
		if (f.bad != 1)
			fprintf(stderr, "\n%s: %u\n", bad[i], f.bad);
	}
	clear_facts(AGENT_VLLM);
	CU_ASSERT_EQUAL(read_page(AGENT_PAGE_SOURCES, "{\"x\":{\"endpoint\":\"tcp://*:1\"}}"), 0);
	CU_ASSERT(f.bad > 0 && f.row[AGENT_V_EVENTS] == 0);
}

static void a_page_that_is_not_an_object_is_an_error(void)
{
	static const char *const bad[] = {"", "[]", "7", "{", "<html>", "{\"a\":}", "{} {}"};

	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		clear_facts(AGENT_AUTO);
		CU_ASSERT_EQUAL(read_page(AGENT_PAGE_SERVER, bad[i]), -EBADMSG);
	}
	/* An absent value is not bad. */
	clear_facts(AGENT_AUTO);
	CU_ASSERT_EQUAL(
		read_page(
			AGENT_PAGE_SERVER,
			"{\"kv_events\":null,\"kv_events_config\":null,\"page_size\":null,\"chunked_prefill_size\":-1}"),
		0);
	CU_ASSERT(f.bad == 0 && f.kind == AGENT_AUTO);
}

static void check_endpoints(void)
{
	static const struct {
		const char *text, *ours;
		bool is;
	} row[] = {
		{"tcp://10.0.0.7:900", "10.0.0.7:900", true},
		{"tcp://127.0.0.1:900", "10.0.0.7:900", true},
		{"tcp://localhost:900", "10.0.0.7:900", true},
		{"tcp://10.0.0.9:900", "10.0.0.7:900", true}, /* facing address */
		{"tcp://10.0.0.7:901", "10.0.0.7:900", false},
		{"tcp://10.0.0.8:900", "10.0.0.7:900", false},
		{"ipc://x", "10.0.0.7:900", false},
		{"", "10.0.0.7:900", false},
		{"tcp://[::1]:900", "[fd00::7]:900", true},
	};
	char buf[AGENT_ENDPOINT];

	for (unsigned int i = 0; i < sizeof(row) / sizeof(row[0]); i++)
		CU_ASSERT_EQUAL(agent_endpoint_is(row[i].text, row[i].ours, "10.0.0.9"), row[i].is);
	agent_endpoint_reach("tcp://[::]:5557", "http://[fd00::7]:8000/x", buf, sizeof(buf));
	CU_ASSERT_STRING_EQUAL(buf, "tcp://[fd00::7]:5557");
	agent_endpoint_reach("tcp://*:5557", "http://engine", buf, sizeof(buf));
	CU_ASSERT_STRING_EQUAL(buf, "tcp://engine:5557");
	agent_endpoint_reach("ipc:///tmp/x", "http://engine", buf, sizeof(buf));
	CU_ASSERT_STRING_EQUAL(buf, "ipc:///tmp/x");
	agent_endpoint_of("ipc:///tmp/x", 3, buf, sizeof(buf));
	CU_ASSERT_STRING_EQUAL(buf, "ipc:///tmp/x.3");
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(sglang_reports_values_in_server_info),
		KVR_CASE(an_older_sglang_has_its_configuration_as_text),
		KVR_CASE(vllm_has_an_endpoint_for_each_rank),
		KVR_CASE(vllm_without_events_has_its_ranks_in_metrics),
		KVR_CASE(options_take_precedence),
		KVR_CASE(a_given_type_ignores_rows_of_other_types),
		KVR_CASE(bad_values_are_counted_and_ignored),
		KVR_CASE(a_page_that_is_not_an_object_is_an_error),
		KVR_CASE(check_endpoints),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("facts", tests);
}
