/* SPDX-License-Identifier: BSD-3-Clause */
#include "prom.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum what { WAITING, RUNNING, KV_USE, BLOCK_SIZE, BLOCKS, CONFIG };

static const struct {
	const char *name;
	enum what what;
} metrics[] = {
	{"vllm:num_requests_waiting", WAITING},	  {"vllm:num_requests_running", RUNNING},
	{"vllm:kv_cache_usage_perc", KV_USE},	  {"vllm:gpu_cache_usage_perc", KV_USE},
	{"vllm:cache_config_info", CONFIG},	  {"sglang:num_queue_reqs", WAITING},
	{"sglang:num_running_reqs", RUNNING},	  {"sglang:token_usage", KV_USE},
	{"sglang:page_size", BLOCK_SIZE},	  {"sglang:num_pages", BLOCKS},
	{"trtllm_num_requests_waiting", WAITING}, {"trtllm_num_requests_running", RUNNING},
	{"trtllm_kv_cache_utilization", KV_USE},
};

struct span {
	const char *p, *end;
};

static bool is(struct span s, const char *text)
{
	const size_t n = strlen(text);

	return (size_t)(s.end - s.p) == n && memcmp(s.p, text, n) == 0;
}

/* The next name="value" of the labels. */
static bool label(struct span *in, struct span *name, struct span *value)
{
	while (in->p < in->end && (*in->p == ',' || *in->p == ' '))
		in->p++;
	name->p = in->p;
	name->end = memchr(in->p, '=', (size_t)(in->end - in->p));
	if (name->end == NULL || in->end - name->end < 2 || name->end[1] != '"')
		return false;
	value->p = name->end + 2;
	for (value->end = value->p; value->end < in->end && *value->end != '"'; value->end++)
		if (*value->end == '\\' && value->end + 1 < in->end)
			value->end++;
	if (value->end >= in->end)
		return false;
	in->p = value->end + 1;
	return true;
}

static uint64_t number(struct span s)
{
	uint64_t n = 0;

	if (s.end - s.p > 18)
		return 0;
	for (; s.p < s.end; s.p++) {
		if (*s.p < '0' || *s.p > '9')
			return 0;
		n = n * 10 + (uint64_t)(*s.p - '0');
	}
	return n;
}

static void config(struct agent_prom *out, struct span labels)
{
	struct span name, value;

	while (label(&labels, &name, &value)) {
		if (out->block_size == 0 && is(name, "block_size"))
			out->block_size = number(value);
		if (out->blocks == 0 && is(name, "num_gpu_blocks"))
			out->blocks = number(value);
	}
}

/* A gauge that is a whole number; each rank has the same, the first one counts. */
static void keep_whole(uint64_t *out, double v)
{
	if (*out == 0 && v >= 1 && v <= UINT32_MAX && v == floor(v))
		*out = (uint64_t)v;
}

static void sample(struct agent_prom *out, enum what what, struct span labels, double v)
{
	struct agent_prom_rank *r;
	struct span name, value;
	uint64_t rank = 0;

	out->samples++;
	if (what == CONFIG) {
		config(out, labels);
		return;
	}
	if (what == BLOCK_SIZE || what == BLOCKS) {
		keep_whole(what == BLOCKS ? &out->blocks : &out->block_size, v);
		return;
	}
	while (label(&labels, &name, &value))
		if (is(name, "engine") || is(name, "dp_rank") || is(name, "engine_idx"))
			rank = number(value);
	if (rank >= AGENT_PROM_RANKS || !isfinite(v) || v < 0)
		return;
	r = &out->rank[rank];
	r->seen = true;
	if (what == WAITING)
		r->waiting = v;
	else if (what == RUNNING)
		r->running = v;
	else
		r->kv_use = v < 1 ? v : 1;
}

static void line(struct agent_prom *out, struct span s)
{
	struct span name = {s.p, s.p}, labels = {s.end, s.end};
	char text[64];
	size_t n;

	while (name.end < s.end && *name.end != '{' && *name.end != ' ')
		name.end++;
	s.p = name.end;
	if (s.p < s.end && *s.p == '{') {
		labels.p = s.p + 1;
		for (s.p++; s.p < s.end && *s.p != '}'; s.p++)
			if (*s.p == '"') /* a brace in a value is none */
				while (++s.p < s.end && *s.p != '"')
					s.p += *s.p == '\\';
		if (s.p >= s.end)
			return;
		labels.end = s.p++;
	}
	n = (size_t)(s.end - s.p) < sizeof(text) - 1 ? (size_t)(s.end - s.p) : sizeof(text) - 1;
	memcpy(text, s.p, n);
	text[n] = 0;
	for (unsigned int i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
		if (is(name, metrics[i].name)) {
			if (strncmp(metrics[i].name, "vllm:", 5) == 0)
				out->engine = "vllm";
			else if (strncmp(metrics[i].name, "sglang:", 7) == 0)
				out->engine = "sglang";
			sample(out, metrics[i].what, labels, strtod(text, NULL));
			return;
		}
	}
}

void agent_prom_read(struct agent_prom *out, const char *page, size_t len)
{
	const char *p = page, *end = page + len;

	memset(out, 0, sizeof(*out));
	while (p < end) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		const struct span s = {p, nl != NULL ? nl : end};

		if (s.p < s.end && *s.p != '#')
			line(out, s);
		p = s.end + 1;
	}
}
