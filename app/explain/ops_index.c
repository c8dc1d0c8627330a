/* SPDX-License-Identifier: BSD-3-Clause */
/* store, remove, clear, scores. */
#include "out.h"
#include "world.h"

#include <stdlib.h>
#include <string.h>

/* ---- events ------------------------------------------------------------------------------ */

static const struct ex_field event_fields[] = {
	{"op", EX_STR, 0},
	{"worker", EX_U64, EX_REQUIRED},
	{"dp_rank", EX_U32, 0},
	{"tier", EX_STR, 0},
	{"tokens", EX_U32S, 0},
	{"sequence_hashes", EX_U64S, 0},
	{"from", EX_U64, 0},
	{"count", EX_U64, EX_NULL},
	{"lora_name", EX_STR, EX_NULL},
	{"cache_namespace", EX_STR, EX_NULL},
	{"mm", EX_ARR, EX_NULL},
	{NULL},
};

struct event {
	struct ex_pool *pool;
	uint32_t rank;
	enum kvr_tier tier;
	struct ex_prompt prompt;
	uint32_t from, n;
};

static bool tier_read(const json_t *obj, enum kvr_tier *tier, struct ex_problem *p)
{
	const char *t = ex_str_or(obj, "tier", "device");
	const int k = strcmp(t, "host") == 0 ? KVR_TIER_HOST : kvr_tier_find(t);

	*tier = (enum kvr_tier)k;
	return k >= 0 || ex_bad(p, "unknown tier '%s'", t);
}

static bool event_read(struct ex_world *w, const json_t *obj, struct event *e, struct ex_problem *p)
{
	struct ex_worker *k;
	uint64_t from = ex_u64_or(obj, "from", 0), count;

	k = ex_worker_of(w, obj, p);
	if (k == NULL)
		return false;
	e->pool = k->pool;
	e->rank = ex_rank_of(k, obj, p);
	if (e->rank == KVR_SCHED_NO_RANK || !tier_read(obj, &e->tier, p))
		return false;
	if (!ex_prompt_read(obj, k->pool->conf.block_size, ex_str_or(obj, "lora_name", NULL),
			    ex_str_or(obj, "cache_namespace", NULL), &e->prompt, p))
		return false;
	e->from = from < e->prompt.n ? (uint32_t)from : e->prompt.n;
	e->n = e->prompt.n - e->from;
	count = ex_u64_or(obj, "count", e->n);
	e->n = count < e->n ? (uint32_t)count : e->n;
	return true;
}

bool ex_op_store(struct ex_world *w, const json_t *obj, struct ex_problem *p)
{
	struct event e;

	if (!ex_check(obj, event_fields, p))
		return false;
	if (json_object_get(obj, "count") != NULL)
		return ex_bad(p, "unknown field 'count'");
	if (!event_read(w, obj, &e, p))
		return false;
	if (e.pool->conf.use_kv_events)
		ex_index_store(e.pool->index, e.rank, e.tier, e.prompt.sh + e.from, e.n,
			       e.from > 0 ? &e.prompt.sh[e.from - 1] : NULL);
	free(e.prompt.sh);
	return true;
}

bool ex_op_remove(struct ex_world *w, const json_t *obj, struct ex_problem *p)
{
	struct event e;

	if (!ex_check(obj, event_fields, p) || !event_read(w, obj, &e, p))
		return false;
	if (e.pool->conf.use_kv_events)
		ex_index_remove(e.pool->index, e.rank, e.tier, e.prompt.sh + e.from, e.n);
	free(e.prompt.sh);
	return true;
}

bool ex_op_clear(struct ex_world *w, const json_t *obj, struct ex_problem *p)
{
	static const struct ex_field fields[] = {
		{"op", EX_STR, 0}, {"worker", EX_U64, EX_REQUIRED}, {"dp_rank", EX_U32, 0}, {NULL}};
	struct ex_worker *k;
	uint32_t rank;

	if (!ex_check(obj, fields, p))
		return false;
	k = ex_worker_of(w, obj, p);
	if (k == NULL)
		return false;
	rank = ex_rank_of(k, obj, p);
	if (rank == KVR_SCHED_NO_RANK)
		return false;
	if (k->pool->conf.use_kv_events)
		ex_index_clear(k->pool->index, rank);
	return true;
}

/* ---- questions --------------------------------------------------------------------------- */

static void score_line(const struct ex_pool *pool, uint32_t rank,
		       const struct kvr_sched_overlap *ov)
{
	uint32_t device = ov->device ? ov->device[rank] : 0;
	uint32_t host = ov->host ? ov->host[rank] : 0;
	uint32_t disk = (ov->disk ? ov->disk[rank] : 0) + (ov->external ? ov->external[rank] : 0);
	struct kvr_sched_rank_info info;

	if (device + host + disk == 0 || kvr_sched_rank_get(pool->sched, rank, &info) != 0)
		return;
	ex_out_open(NULL, '{');
	ex_out_u64("worker", info.worker);
	ex_out_u64("dp_rank", info.dp_rank);
	ex_out_u64("device", device);
	ex_out_u64("host", host);
	ex_out_u64("disk", disk);
	ex_out_close('}');
}

bool ex_op_scores(struct ex_world *w, const json_t *obj, struct ex_problem *p)
{
	static const struct ex_field fields[] = {{"op", EX_STR, 0},
						 {"tokens", EX_U32S, 0},
						 {"sequence_hashes", EX_U64S, 0},
						 {"pool", EX_STR, 0},
						 {NULL}};
	struct kvr_sched_overlap ov;
	struct ex_prompt prompt;
	const uint32_t *order;
	struct ex_pool *pool;
	uint32_t n;

	if (!ex_check(obj, fields, p))
		return false;
	pool = ex_pool_of(w, obj, p);
	if (pool == NULL || !ex_prompt_read(obj, pool->conf.block_size, NULL, NULL, &prompt, p))
		return false;
	ex_index_score(pool->index, prompt.sh, prompt.n, w->now, &ov);
	n = kvr_sched_rank_order(pool->sched, &order);
	ex_out_line("scores");
	ex_out_open("scores", '[');
	for (uint32_t i = 0; i < n; i++)
		score_line(pool, order[i], &ov);
	ex_out_close(']');
	ex_out_end();
	free(prompt.sh);
	return true;
}
