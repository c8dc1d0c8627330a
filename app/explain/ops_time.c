/* SPDX-License-Identifier: BSD-3-Clause */
/* load, loads, advance. */
#include "out.h"
#include "run.h"

#include <stdlib.h>
#include <string.h>

bool ex_op_load(struct ex_world *w, const json_t *obj, struct ex_problem *p)
{
	static const struct ex_field fields[] = {{"op", EX_STR, 0},
						 {"worker", EX_U64, EX_REQUIRED},
						 {"dp_rank", EX_U32, 0},
						 {"kv_used_blocks", EX_U64, EX_REQUIRED},
						 {NULL}};
	struct ex_worker *k;

	if (!ex_check(obj, fields, p))
		return false;
	k = ex_worker_of(w, obj, p);
	if (k == NULL || ex_rank_of(k, obj, p) == KVR_SCHED_NO_RANK)
		return false;
	ex_run_load(w, k, (uint32_t)ex_u64_or(obj, "dp_rank", 0),
		    ex_u64_or(obj, "kv_used_blocks", 0));
	return true;
}

/* ---- potential loads --------------------------------------------------------------------- */

static void loads_line(struct ex_world *w, struct ex_pool *pool, const struct ex_prompt *prompt)
{
	static struct kvr_sched_load v[EX_MAX_RANKS];
	struct kvr_sched_pending pending;
	uint32_t n = ex_run_loads(w, pool, prompt, v, EX_MAX_RANKS, &pending);

	ex_out_line("loads");
	ex_out_open("loads", '[');
	for (uint32_t i = 0; i < n && i < EX_MAX_RANKS; i++) {
		ex_out_open(NULL, '{');
		ex_out_u64("worker", v[i].worker);
		ex_out_u64("dp_rank", v[i].dp_rank);
		ex_out_u64("potential_prefill_tokens", v[i].potential_prefill_tokens);
		ex_out_u64("potential_decode_blocks", v[i].potential_decode_blocks);
		ex_out_u64("active_requests", v[i].active_requests);
		ex_out_close('}');
	}
	ex_out_close(']');
	ex_out_u64("pending_count", pending.count);
	ex_out_u64("pending_isl_tokens", pending.isl_tokens);
	ex_out_end();
}

bool ex_op_loads(struct ex_world *w, const json_t *obj, struct ex_problem *p)
{
	static const struct ex_field fields[] = {{"op", EX_STR, 0},
						 {"tokens", EX_U32S, 0},
						 {"sequence_hashes", EX_U64S, 0},
						 {"pool", EX_STR, 0},
						 {NULL}};
	struct ex_prompt prompt;
	struct ex_pool *pool;

	if (!ex_check(obj, fields, p))
		return false;
	pool = ex_pool_of(w, obj, p);
	if (pool == NULL || !ex_prompt_read(obj, pool->conf.block_size, NULL, NULL, &prompt, p))
		return false;
	loads_line(w, pool, &prompt);
	free(prompt.sh);
	return true;
}

/* ---- time -------------------------------------------------------------------------------- */

bool ex_op_advance(struct ex_world *w, const json_t *obj, struct ex_problem *p)
{
	static const struct ex_field fields[] = {
		{"op", EX_STR, 0}, {"ms", EX_POS, EX_REQUIRED}, {NULL}};
	double ns;
	uint64_t to;

	if (!ex_check(obj, fields, p))
		return false;
	ns = ex_real(json_object_get(obj, "ms")) * 1e6;
	if (ns > 9e18 || w->now > UINT64_C(9000000000000000000) - (uint64_t)ns)
		return ex_bad(p, "'ms' is too large");
	to = w->now + (uint64_t)(ns + 0.5);
	for (uint64_t t = ex_run_timer(w); t <= to; t = ex_run_timer(w)) {
		w->now = t > w->now ? t : w->now;
		ex_run_expire(w);
		ex_run_poll(w);
	}
	w->now = to;
	return true;
}
