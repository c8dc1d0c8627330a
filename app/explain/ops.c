/* SPDX-License-Identifier: BSD-3-Clause */
/* store, remove, clear, scores, loads, session_release, advance. */
#include "out.h"
#include "run.h"

#include <string.h>

/* ---- KV events --------------------------------------------------------------------------- */

static bool event(struct ex_world *w, struct ex_line *l, enum kvr_prefix_op op,
		  struct ex_problem *p)
{
	const struct ex_worker *k = ex_worker_of(w, l->obj, p);
	const uint32_t rank = k != NULL ? ex_rank_of(k, l->obj, p) : KVR_SCHED_NO_RANK;
	const char *tier = ex_str_or(l->obj, "tier", "device");
	const int where = strcmp(tier, "host") == 0 ? KVR_TIER_HOST : kvr_tier_find(tier);
	struct ex_prompt prompt;
	uint32_t from, n;

	if (rank == KVR_SCHED_NO_RANK)
		return false;
	if (where < 0)
		return ex_bad(p, "unknown tier '%s'", tier);
	if (!ex_prompt_read(l, l->obj, k->pool->conf.block_size, &prompt, p))
		return false;
	if (!k->pool->conf.use_kv_events)
		return true;
	from = (uint32_t)RTE_MIN(ex_u64_or(l->obj, "from", 0), prompt.n);
	n = (uint32_t)RTE_MIN(ex_u64_or(l->obj, "count", UINT64_MAX), prompt.n - from);
	ex_index_event(k->pool->index, rank, op, (enum kvr_tier)where,
		       op == KVR_PREFIX_STORE && from > 0 ? &prompt.sh[from - 1] : NULL,
		       prompt.sh + from, n);
	return true;
}

bool ex_op_store(struct ex_world *w, struct ex_line *l, struct ex_problem *p)
{
	return event(w, l, KVR_PREFIX_STORE, p);
}

bool ex_op_remove(struct ex_world *w, struct ex_line *l, struct ex_problem *p)
{
	return event(w, l, KVR_PREFIX_REMOVE, p);
}

bool ex_op_clear(struct ex_world *w, struct ex_line *l, struct ex_problem *p)
{
	const struct ex_worker *k = ex_worker_of(w, l->obj, p);
	const uint32_t rank = k != NULL ? ex_rank_of(k, l->obj, p) : KVR_SCHED_NO_RANK;

	if (rank == KVR_SCHED_NO_RANK)
		return false;
	if (k->pool->conf.use_kv_events)
		ex_index_clear(k->pool->index, rank);
	return true;
}

/* ---- questions --------------------------------------------------------------------------- */

static uint32_t blocks(const uint32_t *tier, uint32_t rank)
{
	return tier != NULL ? tier[rank] : 0;
}

static void score(const struct ex_pool *pool, uint32_t rank, const struct kvr_sched_overlap *ov)
{
	const uint32_t device = blocks(ov->device, rank), host = blocks(ov->host, rank);
	const uint32_t disk = blocks(ov->disk, rank) + blocks(ov->external, rank);
	struct kvr_sched_rank_info info;

	if (device + host + disk != 0 && kvr_sched_rank_get(pool->sched, rank, &info) == 0)
		ex_out("{ worker:U dp_rank:u device:u host:u disk:u }", info.worker, info.dp_rank,
		       device, host, disk);
}

bool ex_op_scores(struct ex_world *w, struct ex_line *l, struct ex_problem *p)
{
	const struct ex_pool *pool = ex_pool_of(w, l->obj, p);
	struct kvr_sched_overlap ov;
	struct ex_prompt prompt;
	const uint32_t *order;
	uint32_t n;

	if (pool == NULL || !ex_prompt_read(l, NULL, pool->conf.block_size, &prompt, p))
		return false;
	ex_index_score(pool->index, prompt.sh, prompt.n, w->now, &ov);
	n = kvr_sched_rank_order(pool->sched, &order);
	ex_out("{ op:s scores:[", "scores");
	for (uint32_t i = 0; i < n; i++)
		score(pool, order[i], &ov);
	ex_out("] }");
	return true;
}

bool ex_op_loads(struct ex_world *w, struct ex_line *l, struct ex_problem *p)
{
	static struct kvr_sched_load v[EX_MAX_RANKS];
	struct ex_pool *pool = ex_pool_of(w, l->obj, p);
	struct kvr_sched_pending pending;
	struct ex_prompt prompt;
	uint32_t n;

	if (pool == NULL || !ex_prompt_read(l, NULL, pool->conf.block_size, &prompt, p))
		return false;
	n = ex_run_loads(w, pool, &prompt, v, EX_MAX_RANKS, &pending);
	ex_out("{ op:s loads:[", "loads");
	for (uint32_t i = 0; i < n && i < EX_MAX_RANKS; i++)
		ex_out("{ worker:U dp_rank:u potential_prefill_tokens:U potential_decode_blocks:u "
		       "active_requests:u }",
		       v[i].worker, v[i].dp_rank, v[i].potential_prefill_tokens,
		       v[i].potential_decode_blocks, v[i].active_requests);
	ex_out("] pending_count:u pending_isl_tokens:U }", pending.count, pending.isl_tokens);
	return true;
}

/* ---- sessions and time ------------------------------------------------------------------- */

bool ex_op_session_release(struct ex_world *w, struct ex_line *l, struct ex_problem *p)
{
	struct ex_pool *pool = ex_pool_of(w, l->obj, p);
	const char *id = ex_session_id(l->obj, p);
	enum kvr_code code;

	if (pool == NULL || id == NULL)
		return false;
	code = ex_run_release(w, pool, id);
	ex_out("{ op:s session_id:s result:s", "session_release", id,
	       code == KVR_OK ? "released" : "error");
	if (code != KVR_OK)
		ex_out("error:s", kvr_code_name(code));
	ex_out("}");
	return true;
}

bool ex_op_advance(struct ex_world *w, struct ex_line *l, struct ex_problem *p)
{
	const double ns = ex_real_or(l->obj, "ms", 0) * 1e6;
	uint64_t to;

	if (ns > 9e18 || w->now > UINT64_C(9000000000000000000) - (uint64_t)ns)
		return ex_bad(p, "'ms' is too large");
	to = w->now + (uint64_t)(ns + 0.5);
	for (uint64_t t = ex_run_timer(w); t <= to; t = ex_run_timer(w)) {
		w->now = RTE_MAX(t, w->now);
		ex_run_expire(w);
		ex_run_poll(w);
	}
	w->now = to;
	return true;
}
