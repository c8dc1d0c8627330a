/* SPDX-License-Identifier: BSD-3-Clause */
#include "workload.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_errno.h"
#include "kvr_hash.h"
#include "kvr_rand.h"

#define GOLDEN	   UINT64_C(0x9E3779B97F4A7C15)
#define VOCABULARY 128000u
#define N_GAPS	   65536u /* arrival gaps, used cyclically */
#define SECOND_NS  1e9

enum { TAG_SYSTEM = 1, TAG_CONVERSATION = 2, TAG_TRACE = 8 };

struct load_workload {
	struct load_workload_cfg cfg;
	struct load_prompt *prompts;
	uint32_t n_prompts;
	uint32_t *order;  /* conversations: prompts in order of arrival; NULL: as stored */
	double *at_ns;	  /* trace by timestamp: per prompt; otherwise NULL */
	double *gaps;	  /* otherwise: time before each arrival, cyclic */
	uint64_t *hashes; /* of all prompts */
	uint32_t *sys_of; /* conversations: system prompt of each */
	uint64_t sent;
	double now_ns;
	uint32_t max_blocks;
	uint32_t max_isl;
};

uint64_t load_stream(uint64_t tag, uint64_t a, uint64_t k)
{
	return kvr_mix64(kvr_mix64((tag << 56) ^ a) + (k + 1) * GOLDEN);
}

static uint32_t draw_token(uint64_t tag, uint64_t a, uint64_t k)
{
	return (uint32_t)(load_stream(tag, a, k) % VOCABULARY);
}

/* Local hash of block k of a content stream; from tokens when prompts are tokens. */
static uint64_t local_hash(const struct load_workload_cfg *cfg, uint64_t tag, uint64_t a,
			   uint64_t k)
{
	uint32_t t[LOAD_TRACE_ID_TOKENS];

	if (!cfg->tokens)
		return load_stream(tag, a, k);
	for (uint32_t i = 0; i < cfg->block_size; i++)
		t[i] = draw_token(tag, a, k * cfg->block_size + i);
	return kvr_hash_block(t, cfg->block_size, KVR_HASH_SEED);
}

static uint64_t conversation_name(const struct load_workload *w, uint32_t conv)
{
	return (w->cfg.seed << 32) ^ conv;
}

static uint64_t trace_name(const struct load_workload *w, uint64_t id, uint32_t copy)
{
	return id + copy * (w->cfg.trace->max_id + 1);
}

static void note_size(struct load_workload *w, const struct load_prompt *p)
{
	if (p->n_blocks > w->max_blocks)
		w->max_blocks = p->n_blocks;
	if (p->isl > w->max_isl)
		w->max_isl = p->isl;
}

/* ---- trace ---- */

static uint32_t row_blocks(const struct load_workload *w, const struct load_trace_row *row)
{
	return row->isl / w->cfg.block_size;
}

static void hash_row(struct load_workload *w, struct load_prompt *p, uint64_t *out)
{
	const struct load_trace_row *row = &w->cfg.trace->rows[p->content];
	const uint32_t per_id = LOAD_TRACE_ID_TOKENS / w->cfg.block_size;

	for (uint32_t k = 0; k < p->n_blocks; k++) {
		uint64_t id = w->cfg.trace->ids[row->first_id + k / per_id];

		out[k] = local_hash(&w->cfg, TAG_TRACE, trace_name(w, id, p->copy), k % per_id);
	}
	kvr_hash_chain(NULL, out, p->n_blocks, out);
	p->hashes = out;
}

/* Rows to send, within the limits of time and number. */
static size_t rows_used(const struct load_workload *w)
{
	const struct load_workload_cfg *cfg = &w->cfg;
	size_t n = cfg->trace->n_rows;
	uint64_t by_requests = (cfg->requests + cfg->copies - 1) / cfg->copies;

	if (cfg->requests > 0 && by_requests < n)
		n = by_requests;
	if (cfg->seconds > 0 && cfg->rate > 0) {
		double by_rate = ceil(cfg->seconds * cfg->rate / cfg->copies);

		return by_rate < (double)n ? (size_t)by_rate : n;
	}
	while (cfg->seconds > 0 && n > 0 &&
	       cfg->trace->rows[n - 1].at_ms > cfg->seconds * 1e3 * cfg->speedup)
		n--;
	return n;
}

static int build_trace(struct load_workload *w)
{
	const struct load_workload_cfg *cfg = &w->cfg;
	const size_t rows = rows_used(w);
	uint64_t blocks = 0, at = 0;

	for (size_t r = 0; r < rows; r++)
		blocks += row_blocks(w, &cfg->trace->rows[r]);
	w->n_prompts = (uint32_t)(rows * cfg->copies);
	w->prompts = calloc(w->n_prompts, sizeof(*w->prompts));
	w->hashes = malloc((blocks * cfg->copies + 1) * sizeof(*w->hashes));
	if (cfg->rate == 0)
		w->at_ns = malloc((w->n_prompts + 1u) * sizeof(*w->at_ns));
	if (w->prompts == NULL || w->hashes == NULL || (cfg->rate == 0 && w->at_ns == NULL))
		return -ENOMEM;
	for (uint32_t i = 0; i < w->n_prompts; i++) {
		struct load_prompt *p = &w->prompts[i];
		const struct load_trace_row *row = &cfg->trace->rows[i / cfg->copies];
		/* Copies of a row are spread evenly over the gap to the next row. */
		const double next = i / cfg->copies + 1 < cfg->trace->n_rows
					    ? row[1].at_ms
					    : cfg->trace->length_ms;
		const double share = (i % cfg->copies) / (double)cfg->copies;

		p->content = i / cfg->copies;
		p->copy = i % cfg->copies;
		p->isl = row->isl;
		p->osl = cfg->osl > 0 ? cfg->osl : row->osl > 0 ? row->osl : 1;
		p->n_blocks = p->n_after = row_blocks(w, row);
		hash_row(w, p, &w->hashes[at]);
		at += p->n_blocks;
		note_size(w, p);
		if (w->at_ns != NULL)
			w->at_ns[i] =
				(row->at_ms + (next - row->at_ms) * share) * 1e6 / cfg->speedup;
	}
	return 0;
}

/* ---- conversations ---- */

static uint32_t draw_length(const struct load_workload *w, struct kvr_rand *r, uint32_t mean)
{
	double x = mean * (1.0 + w->cfg.length_spread * (2.0 * kvr_rand_unit(r) - 1.0));

	return x < 1.0 ? 1 : (uint32_t)lrint(x);
}

/* Lay out the turns of a conversation. @return its blocks including the answers. */
static uint32_t lay_out(struct load_workload *w, struct kvr_rand *r, uint32_t conv)
{
	const struct load_workload_cfg *cfg = &w->cfg;
	uint32_t tokens = cfg->system_tokens;

	w->sys_of[conv] = cfg->system_prompts > 0 ? kvr_rand_below(r, cfg->system_prompts) : 0;
	for (uint32_t turn = 0; turn < cfg->turns; turn++) {
		struct load_prompt *p = &w->prompts[conv * cfg->turns + turn];

		tokens += draw_length(w, r, cfg->user_tokens);
		p->content = conv;
		p->isl = tokens;
		p->osl = draw_length(w, r, cfg->osl);
		p->n_blocks = tokens / cfg->block_size;
		tokens += p->osl;
		p->n_after = tokens / cfg->block_size;
		note_size(w, p);
	}
	return tokens / cfg->block_size;
}

static void hash_conversation(struct load_workload *w, uint32_t conv, uint64_t *out, uint32_t n)
{
	const struct load_workload_cfg *cfg = &w->cfg;
	const uint32_t sys = cfg->system_tokens / cfg->block_size;

	for (uint32_t k = 0; k < n; k++)
		out[k] = k < sys ? local_hash(cfg, TAG_SYSTEM, w->sys_of[conv], k)
				 : local_hash(cfg, TAG_CONVERSATION, conversation_name(w, conv),
					      k - sys);
	kvr_hash_chain(NULL, out, n, out);
	for (uint32_t turn = 0; turn < cfg->turns; turn++)
		w->prompts[conv * cfg->turns + turn].hashes = out;
}

/*
 * The order of all turns: `active` conversations are in a queue. An arrival takes one from the
 * first half and appends its next turn, so the think time is about active / rate.
 */
static int order_turns(struct load_workload *w, struct kvr_rand *r, uint32_t n_conv,
		       uint32_t active)
{
	const uint32_t turns = w->cfg.turns;
	uint32_t *queue = malloc(active * sizeof(*queue)), *turn = calloc(n_conv, sizeof(*turn));
	uint32_t head = 0, len = 0, next = 0;

	w->order = malloc(w->n_prompts * sizeof(*w->order));
	if (queue == NULL || turn == NULL || w->order == NULL) {
		free(queue);
		free(turn);
		return -ENOMEM;
	}
	while (len < active)
		queue[len++] = next++;
	for (uint32_t i = 0; i < w->n_prompts; i++) {
		uint32_t at = (head + kvr_rand_below(r, len / 2 + 1)) % active, conv = queue[at];

		queue[at] = queue[head];
		head = (head + 1) % active;
		len--;
		w->order[i] = conv * turns + turn[conv]++;
		if (turn[conv] < turns)
			queue[(head + len++) % active] = conv;
		else if (next < n_conv)
			queue[(head + len++) % active] = next++;
	}
	free(queue);
	free(turn);
	return 0;
}

/* Number of conversations for the run, within the memory limit. */
static uint32_t count_conversations(const struct load_workload *w, uint32_t active)
{
	const struct load_workload_cfg *cfg = &w->cfg;
	double most = cfg->system_tokens +
		      cfg->turns * (1.0 + cfg->length_spread) * (cfg->user_tokens + cfg->osl);
	double room = (double)cfg->max_hashes / (most / cfg->block_size + 1), need = room;

	if (cfg->requests > 0)
		need = ceil((double)cfg->requests / cfg->turns);
	if (cfg->seconds > 0 && ceil(cfg->rate * cfg->seconds * 1.02 / cfg->turns) < need)
		need = ceil(cfg->rate * cfg->seconds * 1.02 / cfg->turns);
	need += active; /* conversations that are not finished at the end */
	if (need > room)
		need = room;
	if (need > (double)UINT32_MAX / cfg->turns)
		need = (double)UINT32_MAX / cfg->turns;
	return need < active ? active : (uint32_t)need;
}

static int build_conversations(struct load_workload *w)
{
	const struct load_workload_cfg *cfg = &w->cfg;
	const uint32_t active =
		cfg->think_s > 0 ? (uint32_t)ceil(cfg->rate * cfg->think_s) : cfg->conversations;
	const uint32_t n_conv = count_conversations(w, active);
	struct kvr_rand r;
	uint64_t blocks = 0, at = 0;

	kvr_rand_init(&r, kvr_mix64(cfg->seed + 1));
	w->n_prompts = n_conv * cfg->turns;
	w->prompts = calloc(w->n_prompts, sizeof(*w->prompts));
	w->sys_of = calloc(n_conv, sizeof(*w->sys_of));
	if (w->prompts == NULL || w->sys_of == NULL)
		return -ENOMEM;
	for (uint32_t c = 0; c < n_conv; c++)
		blocks += lay_out(w, &r, c);
	w->hashes = malloc((blocks + 1) * sizeof(*w->hashes));
	if (w->hashes == NULL)
		return -ENOMEM;
	for (uint32_t c = 0; c < n_conv; c++) {
		uint32_t n = w->prompts[(c + 1) * cfg->turns - 1].n_after;

		hash_conversation(w, c, &w->hashes[at], n);
		at += n;
	}
	return order_turns(w, &r, n_conv, active);
}

static int build_gaps(struct load_workload *w)
{
	const double mean = SECOND_NS / w->cfg.rate;
	struct kvr_rand r;
	double sum = 0;

	kvr_rand_init(&r, kvr_mix64(w->cfg.seed + 2));
	w->gaps = malloc(N_GAPS * sizeof(*w->gaps));
	if (w->gaps == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < N_GAPS; i++) {
		w->gaps[i] = w->cfg.arrivals == LOAD_FIXED ? 1.0 : -log(1.0 - kvr_rand_unit(&r));
		sum += w->gaps[i];
	}
	for (uint32_t i = 0; i < N_GAPS; i++)
		w->gaps[i] *= mean * N_GAPS / sum; /* exact rate instead of its expectation */
	return 0;
}

static bool config_valid(const struct load_workload_cfg *cfg)
{
	if (cfg->block_size == 0 || cfg->block_size > LOAD_TRACE_ID_TOKENS || cfg->rate < 0)
		return false;
	if (cfg->trace != NULL)
		return cfg->copies > 0 && LOAD_TRACE_ID_TOKENS % cfg->block_size == 0 &&
		       (cfg->rate > 0 || cfg->speedup > 0) &&
		       (double)cfg->trace->n_rows * cfg->copies < UINT32_MAX;
	return cfg->rate > 0 && cfg->turns > 0 && cfg->conversations > 0 && cfg->osl > 0 &&
	       cfg->user_tokens > 0 && cfg->system_tokens % cfg->block_size == 0 &&
	       cfg->length_spread >= 0 && cfg->length_spread <= 1;
}

struct load_workload *load_workload_create(const struct load_workload_cfg *cfg)
{
	struct load_workload *w;
	int rc;

	if (!config_valid(cfg))
		return kvr_null(EINVAL);
	w = calloc(1, sizeof(*w));
	if (w == NULL)
		return kvr_null(ENOMEM);
	w->cfg = *cfg;
	rc = cfg->trace != NULL ? build_trace(w) : build_conversations(w);
	if (rc == 0 && cfg->rate > 0)
		rc = build_gaps(w);
	if (rc < 0) {
		load_workload_destroy(w);
		return kvr_null(-rc);
	}
	return w;
}

void load_workload_destroy(struct load_workload *w)
{
	if (w == NULL)
		return;
	free(w->prompts);
	free(w->order);
	free(w->at_ns);
	free(w->gaps);
	free(w->hashes);
	free(w->sys_of);
	free(w);
}

/* Share of the rate at a time: rises from a tenth to 1. */
static double ramp_rate(const struct load_workload_cfg *cfg, double now_ns)
{
	const double end = cfg->ramp_s * SECOND_NS;

	return now_ns < end ? 0.1 + 0.9 * now_ns / end : 1.0;
}

const struct load_prompt *load_workload_next(struct load_workload *w, double *at_ns)
{
	const struct load_workload_cfg *cfg = &w->cfg;
	const uint32_t i = (uint32_t)(w->sent % w->n_prompts);

	if (w->n_prompts == 0 || w->sent >= load_workload_total(w))
		return NULL;
	w->now_ns = w->at_ns != NULL
			    ? w->at_ns[i]
			    : w->now_ns + w->gaps[w->sent % N_GAPS] / ramp_rate(cfg, w->now_ns);
	if (cfg->seconds > 0 && w->now_ns >= cfg->seconds * SECOND_NS)
		return NULL;
	w->sent++;
	*at_ns = w->now_ns;
	return &w->prompts[w->order != NULL ? w->order[i] : i];
}

const struct load_prompt *load_workload_turn(const struct load_workload *w, uint32_t conv,
					     uint32_t turn)
{
	const uint32_t turns = w->cfg.turns;

	return &w->prompts[conv % (w->n_prompts / turns) * turns + turn];
}

void load_workload_fill_tokens(const struct load_workload *w, const struct load_prompt *p,
			       uint32_t first, uint32_t n, uint32_t out[])
{
	const struct load_trace *t = w->cfg.trace;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t k = first + i;

		if (t != NULL) {
			uint64_t id =
				t->ids[t->rows[p->content].first_id + k / LOAD_TRACE_ID_TOKENS];

			out[i] = draw_token(TAG_TRACE, trace_name(w, id, p->copy),
					    k % LOAD_TRACE_ID_TOKENS);
		} else if (k < w->cfg.system_tokens) {
			out[i] = draw_token(TAG_SYSTEM, w->sys_of[p->content], k);
		} else {
			out[i] = draw_token(TAG_CONVERSATION, conversation_name(w, p->content),
					    k - w->cfg.system_tokens);
		}
	}
}

uint64_t load_workload_total(const struct load_workload *w)
{
	uint64_t most = w->cfg.trace != NULL ? w->n_prompts : UINT64_MAX;

	return w->cfg.requests > 0 && w->cfg.requests < most ? w->cfg.requests : most;
}

uint32_t load_workload_distinct(const struct load_workload *w)
{
	return w->n_prompts;
}

uint32_t load_workload_max_blocks(const struct load_workload *w)
{
	return w->max_blocks;
}

uint32_t load_workload_max_isl(const struct load_workload *w)
{
	return w->max_isl;
}
