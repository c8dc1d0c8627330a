/* SPDX-License-Identifier: BSD-3-Clause */
#include "prom.h"

#include <stdlib.h>
#include <string.h>

#include "kvr_test.h"

static struct agent_prom got;

/* The copy has exactly the length of the page. */
static void read_page(const char *text)
{
	const size_t n = strlen(text);
	char *copy = malloc(n);

	memcpy(copy, text, n);
	agent_prom_read(&got, copy, n);
	free(copy);
}

static void vllm_is_parsed_per_rank(void)
{
	read_page(
		"# HELP vllm:num_requests_waiting x\n"
		"# TYPE vllm:num_requests_waiting gauge\n"
		"vllm:num_requests_waiting{engine=\"0\",model_name=\"a}\\\"b\"} 3.0\n"
		"vllm:num_requests_waiting{engine=\"1\",model_name=\"m\"} 4.0\n"
		"vllm:num_requests_running{engine=\"1\",model_name=\"m\"} 5 1700000000\n"
		"vllm:kv_cache_usage_perc{engine=\"0\"} 0.25\n"
		"vllm:num_requests_waiting_by_reason{engine=\"0\"} 99\n"
		"vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"8192\"} 1\n"
		"vllm:cache_config_info{block_size=\"16\",engine=\"1\",num_gpu_blocks=\"8192\"} 1.0\n");
	CU_ASSERT(got.rank[0].seen && got.rank[0].waiting == 3 && got.rank[0].kv_use == 0.25);
	CU_ASSERT(got.rank[1].waiting == 4 && got.rank[1].running == 5);
	/* num_gpu_blocks is the sum over all ranks. */
	CU_ASSERT(got.block_size == 16 && got.engines == 2 && got.blocks == 4096);
	CU_ASSERT(got.samples == 6 && got.kind == AGENT_VLLM);
}

static void sglang_is_parsed(void)
{
	read_page("sglang:num_queue_reqs{dp_rank=\"2\"} 1\r\nsglang:num_running_reqs 2\n"
		  "sglang:token_usage{model_name=\"m\"} 1.5\n"
		  "sglang:page_size{model_name=\"m\",tp_rank=\"0\"} 64.0\n"
		  "sglang:page_size{model_name=\"m\",tp_rank=\"1\"} 64.0\n"
		  "sglang:num_pages{model_name=\"m\",tp_rank=\"0\"} 100.0");
	CU_ASSERT(got.rank[2].waiting == 1 && got.rank[0].running == 2 && got.rank[0].kv_use == 1);
	CU_ASSERT(got.block_size == 64 && got.blocks == 100);
	CU_ASSERT(got.kind == AGENT_SGLANG && got.engines == 0);
	read_page("trtllm_num_requests_waiting 1\n");
	CU_ASSERT(got.samples == 0 && got.kind == AGENT_AUTO);
}

static void invalid_lines_are_ignored(void)
{
	static const char *const bad[] = {
		"",
		"\n\n",
		"vllm:num_requests_running{",
		"vllm:num_requests_running{engine=\"0",
		"vllm:num_requests_running{engine=\"0\"",
		"vllm:num_requests_running{engine=\"0\\",
		"vllm:num_requests_running{engine=\"0\"}",
		"x{} 1",
		"{} 1",
		"{",
		"\"",
		"vllm:cache_config_info{block_size=\"x\",num_gpu_blocks=\"99999999999999999999\"} 1",
		"vllm:cache_config_info{block_size=\"1",
		"vllm:cache_config_info{=\"1\",\"\"} 1",
		"sglang:page_size -1\nsglang:num_pages NaN",
		"sglang:page_size 1e300\nsglang:num_pages 0.5",
		"sglang:page_size +Inf\nsglang:num_pages",
		"sglang:cache_config_info{page_size=\"64\",num_pages=\"100\"} 1",
	};

	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		read_page(bad[i]);
		CU_ASSERT(got.rank[0].running == 0 && got.block_size == 0 && got.blocks == 0);
	}
	read_page("vllm:num_requests_running NaN\nvllm:kv_cache_usage_perc{engine=\"0\"} -1\n"
		  "vllm:num_requests_waiting{engine=\"9999\"} 1\nvllm:num_requests_waiting +Inf\n");
	CU_ASSERT(!got.rank[0].seen);
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(vllm_is_parsed_per_rank),
		KVR_CASE(sglang_is_parsed),
		KVR_CASE(invalid_lines_are_ignored),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("prom", tests);
}
