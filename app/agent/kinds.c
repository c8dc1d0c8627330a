/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of engine kinds: where each kind reports each value. */
#include "kinds.h"

#include <stddef.h>

#define MOST_BLOCK  4096u
#define MOST_BLOCKS (1u << 30)
#define MOST_RANKS  256u
#define ANY	    UINT32_MAX

const char *const agent_kinds[] = {"vllm", "sglang", "auto", NULL};

const char *const agent_pages[AGENT_PAGES] = {
	[AGENT_PAGE_MODELS] = "/v1/models",
	[AGENT_PAGE_SERVER] = "/server_info?config_format=json",
	[AGENT_PAGE_SERVER_OLD] = "/get_server_info",
	[AGENT_PAGE_SOURCES] = "/kv_event_sources",
	[AGENT_PAGE_METRICS] = "/metrics",
};

#define ROW(k, v, p, f, w, i, m)                                                                   \
	{                                                                                          \
		AGENT_##k, AGENT_V_##v, AGENT_PAGE_##p, AGENT_FORM_##f, w, i, m                    \
	}
#define VLLM_CONFIG "vllm:cache_config_info"

const struct agent_row agent_rows[] = {
	ROW(AUTO, KIND, MODELS, KIND, "data.0.owned_by", NULL, 0),
	ROW(AUTO, MODEL, MODELS, TEXT, "data.0.id", NULL, 0),
	ROW(AUTO, LENGTH, MODELS, NUMBER, "data.0.max_model_len", NULL, ANY),
	ROW(AUTO, ADAPTERS, MODELS, CHILDREN, "data", "parent", ANY),

	ROW(VLLM, BLOCK_SIZE, METRICS, LABEL, VLLM_CONFIG, "block_size", MOST_BLOCK),
	ROW(VLLM, BLOCKS, METRICS, SHARE, VLLM_CONFIG, "num_gpu_blocks", MOST_BLOCKS),
	ROW(VLLM, RANKS, SOURCES, MEMBERS, "", NULL, MOST_RANKS),
	ROW(VLLM, RANKS, METRICS, SAMPLES, VLLM_CONFIG, "engine", MOST_RANKS),
	ROW(VLLM, EVENTS, SOURCES, ENDPOINTS, "", "endpoint", 0),
	ROW(VLLM, REPLAY, SOURCES, ENDPOINTS, "", "replay_endpoint", 0),
	ROW(VLLM, TOPIC, SOURCES, ENDPOINTS, "", "topic", 0),
	ROW(VLLM, EVENTS, SERVER, ENDPOINT, "vllm_config.kv_events_config.endpoint", NULL, 0),
	ROW(VLLM, REPLAY, SERVER, ENDPOINT, "vllm_config.kv_events_config.replay_endpoint", NULL,
	    0),
	ROW(VLLM, TOPIC, SERVER, TEXT, "vllm_config.kv_events_config.topic", NULL, 0),
	ROW(VLLM, BATCH, SERVER, NUMBER, "vllm_config.scheduler_config.max_num_batched_tokens",
	    NULL, ANY),
	ROW(VLLM, WAITING, METRICS, GAUGE, "vllm:num_requests_waiting", NULL, 0),
	ROW(VLLM, RUNNING, METRICS, GAUGE, "vllm:num_requests_running", NULL, 0),
	ROW(VLLM, KV_USE, METRICS, GAUGE, "vllm:kv_cache_usage_perc", NULL, 0),
	ROW(VLLM, KV_USE, METRICS, GAUGE, "vllm:gpu_cache_usage_perc", NULL, 0),

	/* With context parallelism, the block size of events is a multiple of the page size. */
	ROW(SGLANG, BLOCK_SIZE, SERVER, NUMBER, "kv_events.block_size", NULL, MOST_BLOCK),
	ROW(SGLANG, BLOCK_SIZE, SERVER, NUMBER, "page_size", NULL, MOST_BLOCK),
	ROW(SGLANG, BLOCK_SIZE, METRICS, GAUGE, "sglang:page_size", NULL, MOST_BLOCK),
	ROW(SGLANG, BLOCKS, SERVER, TOKENS, "max_total_num_tokens", NULL, ANY),
	ROW(SGLANG, BLOCKS, METRICS, GAUGE, "sglang:num_pages", NULL, MOST_BLOCKS),
	ROW(SGLANG, RANKS, SERVER, NUMBER, "kv_events.dp_size", NULL, MOST_RANKS),
	ROW(SGLANG, RANKS, SERVER, MEMBERS, "internal_states", NULL, MOST_RANKS),
	ROW(SGLANG, EVENTS, SERVER, PORT, "kv_events.endpoint_port_base", "kv_events.endpoint_host",
	    65535),
	ROW(SGLANG, EVENTS, SERVER, ENDPOINT, "kv_events_config>endpoint", NULL, 0),
	ROW(SGLANG, REPLAY, SERVER, PORT, "kv_events.replay_endpoint_port_base",
	    "kv_events.endpoint_host", 65535),
	ROW(SGLANG, REPLAY, SERVER, ENDPOINT, "kv_events_config>replay_endpoint", NULL, 0),
	ROW(SGLANG, TOPIC, SERVER, TEXT, "kv_events.topic", NULL, 0),
	ROW(SGLANG, TOPIC, SERVER, TEXT, "kv_events_config>topic", NULL, 0),
	ROW(SGLANG, BATCH, SERVER, NUMBER, "chunked_prefill_size", NULL, ANY),
	ROW(SGLANG, BATCH, SERVER, NUMBER, "max_prefill_tokens", NULL, ANY),
	ROW(SGLANG, WAITING, METRICS, GAUGE, "sglang:num_queue_reqs", NULL, 0),
	ROW(SGLANG, RUNNING, METRICS, GAUGE, "sglang:num_running_reqs", NULL, 0),
	ROW(SGLANG, KV_USE, METRICS, GAUGE, "sglang:token_usage", NULL, 0),
	{.where = NULL},
};

static const struct {
	enum agent_engine kind;
	enum agent_value value;
	const char *flag;
} flags[] = {
	{AGENT_VLLM, AGENT_V_BLOCK_SIZE, "vLLM serves it at /metrics without --disable-log-stats"},
	{AGENT_VLLM, AGENT_V_EVENTS,
	 "start vLLM with --kv-events-config '{\"enable_kv_cache_events\":true,\"endpoint\":\"tcp://*:5557\",\"replay_endpoint\":\"tcp://*:5657\"}'"},
	{AGENT_VLLM, AGENT_V_REPLAY, "add \"replay_endpoint\" to --kv-events-config of vLLM"},
	{AGENT_VLLM, AGENT_V_BATCH,
	 "start vLLM with VLLM_SERVER_DEV_MODE=1 in its environment (on a trusted network only), which adds /server_info"},
	{AGENT_SGLANG, AGENT_V_BLOCK_SIZE, "start SGLang with --enable-metrics"},
	{AGENT_SGLANG, AGENT_V_EVENTS,
	 "start SGLang with --kv-events-config '{\"publisher\":\"zmq\",\"endpoint\":\"tcp://*:5557\",\"replay_endpoint\":\"tcp://*:5657\"}'"},
	{AGENT_SGLANG, AGENT_V_REPLAY, "add \"replay_endpoint\" to --kv-events-config of SGLang"},
	{AGENT_SGLANG, AGENT_V_BATCH, "start SGLang with --chunked-prefill-size"},
};

const char *agent_flag_of(enum agent_engine kind, enum agent_value value)
{
	for (unsigned int i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		if (flags[i].kind == kind && flags[i].value == value)
			return flags[i].flag;
	return NULL;
}
