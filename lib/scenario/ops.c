/* SPDX-License-Identifier: BSD-3-Clause */
/* store, remove, clear, scores, loads, session_release, advance. */
#include "scenario_pvt.h"

#include <string.h>

/* ---- KV events --------------------------------------------------------------------------- */

static bool request_event(struct kvr_sc_world *w, struct kvr_sc_line *l, enum kvr_prefix_op op,
			  struct kvr_sc_problem *p)
{
	const struct kvr_sc_worker *k = kvr_sc_worker_of(w, l->obj, p);
	const uint32_t rank = k != NULL ? kvr_sc_rank_of(k, l->obj, p) : KVR_SCHED_NO_RANK;
	const char *tier = kvr_sc_str_or(l->obj, "tier", "device");
	const int where = strcmp(tier, "host") == 0 ? KVR_TIER_HOST : kvr_tier_find(tier);
	struct kvr_sc_prompt prompt;
	uint32_t from, n;

	if (rank == KVR_SCHED_NO_RANK)
		return false;
	if (where < 0)
		return kvr_sc_bad(p, "unknown tier '%s'", tier);
	if (!kvr_sc_prompt_read(l, l->obj, k->pool->conf.block_size, &prompt, p))
		return false;
	if (!k->pool->conf.use_kv_events)
		return true;
	from = (uint32_t)RTE_MIN(kvr_sc_u64_or(l->obj, "from", 0), prompt.n);
	n = (uint32_t)RTE_MIN(kvr_sc_u64_or(l->obj, "count", UINT64_MAX), prompt.n - from);
	w->run->blocks(k->pool, rank, op, (enum kvr_tier)where,
		       op == KVR_PREFIX_STORE && from > 0 ? &prompt.sh[from - 1] : NULL,
		       prompt.sh + from, n);
	return true;
}

bool kvr_sc_op_store(struct kvr_sc_world *w, struct kvr_sc_line *l, struct kvr_sc_problem *p)
{
	return request_event(w, l, KVR_PREFIX_STORE, p);
}

bool kvr_sc_op_remove(struct kvr_sc_world *w, struct kvr_sc_line *l, struct kvr_sc_problem *p)
{
	return request_event(w, l, KVR_PREFIX_REMOVE, p);
}

bool kvr_sc_op_clear(struct kvr_sc_world *w, struct kvr_sc_line *l, struct kvr_sc_problem *p)
{
	const struct kvr_sc_worker *k = kvr_sc_worker_of(w, l->obj, p);
	const uint32_t rank = k != NULL ? kvr_sc_rank_of(k, l->obj, p) : KVR_SCHED_NO_RANK;

	if (rank == KVR_SCHED_NO_RANK)
		return false;
	if (k->pool->conf.use_kv_events)
		w->run->clear(k->pool, rank);
	return true;
}

/* ---- questions --------------------------------------------------------------------------- */

static uint32_t apply_blocks(const uint32_t *tier, uint32_t rank)
{
	return tier != NULL ? tier[rank] : 0;
}

static void score_prompt(struct kvr_sc_pool *pool, uint32_t rank,
			 const struct kvr_sched_overlap *ov)
{
	const uint32_t device = apply_blocks(ov->device, rank), host = apply_blocks(ov->host, rank);
	const uint32_t disk = apply_blocks(ov->disk, rank) + apply_blocks(ov->external, rank);
	struct kvr_sched_rank_info info;

	if (device + host + disk != 0 && kvr_sched_rank_get(pool->sched, rank, &info) == 0)
		kvr_sc_out(&pool->world->out, "{ worker:U dp_rank:u device:u host:u disk:u }",
			   info.worker, info.dp_rank, device, host, disk);
}

bool kvr_sc_op_scores(struct kvr_sc_world *w, struct kvr_sc_line *l, struct kvr_sc_problem *p)
{
	struct kvr_sc_pool *pool = kvr_sc_pool_of(w, l->obj, p);
	struct kvr_sched_overlap ov;
	struct kvr_sc_prompt prompt;
	const uint32_t *order;
	uint32_t n;

	if (pool == NULL || !kvr_sc_prompt_read(l, NULL, pool->conf.block_size, &prompt, p))
		return false;
	w->run->score(pool, prompt.sh, prompt.n, &ov);
	n = kvr_sched_rank_order(pool->sched, &order);
	kvr_sc_out(&w->out, "{ op:s scores:[", "scores");
	for (uint32_t i = 0; i < n; i++)
		score_prompt(pool, order[i], &ov);
	kvr_sc_out(&w->out, "] }");
	return true;
}

bool kvr_sc_op_loads(struct kvr_sc_world *w, struct kvr_sc_line *l, struct kvr_sc_problem *p)
{
	static struct kvr_sched_load v[KVR_SC_MAX_RANKS];
	struct kvr_sc_pool *pool = kvr_sc_pool_of(w, l->obj, p);
	struct kvr_sched_pending pending;
	struct kvr_sc_prompt prompt;
	uint32_t n;

	if (pool == NULL || !kvr_sc_prompt_read(l, NULL, pool->conf.block_size, &prompt, p))
		return false;
	n = w->run->loads(pool, &prompt, v, KVR_SC_MAX_RANKS, &pending);
	kvr_sc_out(&w->out, "{ op:s loads:[", "loads");
	for (uint32_t i = 0; i < n && i < KVR_SC_MAX_RANKS; i++)
		kvr_sc_out(
			&w->out,
			"{ worker:U dp_rank:u potential_prefill_tokens:U potential_decode_blocks:u "
			"active_requests:u }",
			v[i].worker, v[i].dp_rank, v[i].potential_prefill_tokens,
			v[i].potential_decode_blocks, v[i].active_requests);
	kvr_sc_out(&w->out, "] pending_count:u pending_isl_tokens:U }", pending.count,
		   pending.isl_tokens);
	return true;
}

/* ---- sessions and time ------------------------------------------------------------------- */

bool kvr_sc_op_session_release(struct kvr_sc_world *w, struct kvr_sc_line *l,
			       struct kvr_sc_problem *p)
{
	struct kvr_sc_pool *pool = kvr_sc_pool_of(w, l->obj, p);
	const char *id = kvr_sc_session_id(l->obj, p);
	enum kvr_code code;

	if (pool == NULL || id == NULL)
		return false;
	code = w->run->release(pool, id);
	kvr_sc_out(&w->out, "{ op:s session_id:s result:s", "session_release", id,
		   code == KVR_OK ? "released" : "error");
	if (code != KVR_OK)
		kvr_sc_out(&w->out, "error:s", kvr_code_name(code));
	kvr_sc_out(&w->out, "}");
	return true;
}

bool kvr_sc_op_advance(struct kvr_sc_world *w, struct kvr_sc_line *l, struct kvr_sc_problem *p)
{
	const double ns = kvr_sc_real_or(l->obj, "ms", 0) * 1e6;
	uint64_t to;

	if (ns > 9e18 || w->now > UINT64_C(9000000000000000000) - (uint64_t)ns)
		return kvr_sc_bad(p, "'ms' is too large");
	to = w->now + (uint64_t)(ns + 0.5);
	for (uint64_t t = w->run->timer(w); t <= to; t = w->run->timer(w)) {
		w->now = RTE_MAX(t, w->now);
		w->run->expire(w);
		w->run->poll(w);
	}
	w->now = to;
	return true;
}
