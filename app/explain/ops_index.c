/* SPDX-License-Identifier: BSD-3-Clause */
/* store, remove, clear, scores, hash; reading prompts. */
#include "kvr_hash.h"
#include "out.h"
#include "world.h"

#include <stdlib.h>
#include <string.h>

/* ---- prompts ----------------------------------------------------------------------------- */

struct mm_walk {
	const json_t *list;
	size_t at;
	uint64_t hashes[KVR_HASH_MAX_MM];
};

static bool mm_next(void *arg, struct kvr_hash_mm *out)
{
	struct mm_walk *m = arg;

	for (; m->at < json_array_size(m->list); m->at++) {
		const json_t *e = json_array_get(m->list, m->at);
		size_t n = json_array_size(e);

		if (n == 0)
			continue;
		for (size_t i = 0; i < n; i++)
			m->hashes[i] = ex_u64(json_array_get(e, i));
		*out = (struct kvr_hash_mm){(uint32_t)m->at++, (uint32_t)n, m->hashes};
		return true;
	}
	return false;
}

static bool mm_check(const json_t *mm, struct ex_problem *p)
{
	static const struct ex_field fields[] = {{"mm", EX_U64S, 0}, {NULL}};
	size_t i;
	json_t *e;

	json_array_foreach(mm, i, e)
	{
		json_t *probe;
		bool ok;

		if (json_is_null(e))
			continue;
		if (json_array_size(e) > KVR_HASH_MAX_MM)
			return ex_bad(p, "more than %u mm hashes in a block", KVR_HASH_MAX_MM);
		probe = json_object();
		json_object_set(probe, "mm", e);
		ok = ex_check(probe, fields, p);
		json_decref(probe);
		if (!ok)
			return false;
	}
	return true;
}

struct hashing {
	const char *lora, *ns;
	const json_t *mm;
	uint32_t block_size;
	bool eagle;
};

static uint32_t *tokens_read(const json_t *list)
{
	uint32_t *t = calloc(json_array_size(list) + 1, sizeof(*t));

	for (size_t i = 0; i < json_array_size(list); i++)
		t[i] = (uint32_t)ex_u64(json_array_get(list, i));
	return t;
}

static uint32_t text_len(const char *s)
{
	return s == NULL ? 0 : (uint32_t)strlen(s);
}

/* Hashes of a token list; lbh may be NULL. Returns the number of blocks. */
static uint32_t hash_tokens(const json_t *list, const struct hashing *h, uint64_t **lbh,
			    uint64_t **sh)
{
	const uint32_t n = (uint32_t)json_array_size(list);
	const uint32_t cap = kvr_hash_count(n, h->block_size, h->eagle);
	struct mm_walk walk = {.list = h->mm};
	struct kvr_hash_params params = {
		.seed = kvr_hash_seed(h->lora, text_len(h->lora), h->ns, text_len(h->ns)),
		.block_size = h->block_size,
		.eagle = h->eagle,
		.mm_next = h->mm != NULL ? mm_next : NULL,
		.mm_arg = &walk,
	};
	uint32_t *tokens = tokens_read(list);

	*sh = calloc(cap + 1, sizeof(uint64_t));
	if (lbh != NULL)
		*lbh = calloc(cap + 1, sizeof(uint64_t));
	kvr_hash_tokens(&params, tokens, n, lbh != NULL ? *lbh : NULL, *sh, cap);
	free(tokens);
	return cap;
}

bool ex_prompt_read(const json_t *obj, uint32_t block_size, const char *lora, const char *ns,
		    struct ex_prompt *out, struct ex_problem *p)
{
	const json_t *tokens = ex_get(obj, "tokens"), *list = ex_get(obj, "sequence_hashes");
	struct hashing h = {lora, ns, ex_get(obj, "mm"), block_size, false};
	uint64_t isl;

	if ((tokens == NULL) == (list == NULL))
		return ex_bad(p, "give either 'tokens' or 'sequence_hashes'");
	if (!mm_check(h.mm, p))
		return false;
	if (tokens != NULL) {
		out->n = hash_tokens(tokens, &h, NULL, &out->sh);
		out->isl = (uint32_t)json_array_size(tokens);
		return true;
	}
	isl = (uint64_t)json_array_size(list) * block_size;
	if (isl > UINT32_MAX)
		return ex_bad(p, "the prompt is too long");
	out->n = (uint32_t)json_array_size(list);
	out->isl = (uint32_t)isl;
	out->sh = calloc(out->n + 1, sizeof(uint64_t));
	for (uint32_t i = 0; i < out->n; i++)
		out->sh[i] = ex_u64(json_array_get(list, i));
	return true;
}

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
	enum ex_tier tier;
	struct ex_prompt prompt;
	uint32_t from, n;
};

static bool tier_read(const json_t *obj, enum ex_tier *tier, struct ex_problem *p)
{
	static const char *const name[] = {"device", "host_pinned", "disk", "external", "host"};
	const char *t = ex_str_or(obj, "tier", "device");

	for (int i = 0; i < 5; i++)
		if (strcmp(t, name[i]) == 0)
			return *tier = (enum ex_tier)(i == 4 ? EX_HOST : i), true;
	return ex_bad(p, "unknown tier '%s'", t);
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

static void hash_list(const char *key, const uint64_t *v, uint32_t n)
{
	ex_out_open(key, '[');
	for (uint32_t i = 0; i < n; i++)
		ex_out_item(v[i]);
	ex_out_close(']');
}

bool ex_op_hash(struct ex_world *w, const json_t *obj, struct ex_problem *p)
{
	static const struct ex_field fields[] = {
		{"op", EX_STR, 0},
		{"tokens", EX_U32S, EX_REQUIRED},
		{"block_size", EX_U32, 0},
		{"lora_name", EX_STR, EX_NULL},
		{"cache_namespace", EX_STR, EX_NULL},
		{"mm", EX_ARR, EX_NULL},
		{"eagle", EX_BOOL, 0},
		{NULL},
	};
	struct hashing h;
	uint64_t *lbh, *sh;
	uint32_t n;

	if (!ex_check(obj, fields, p))
		return false;
	if (ex_get(obj, "block_size") == NULL && w->n_pools == 0)
		return ex_bad(p, "missing field 'block_size'");
	h = (struct hashing){
		.lora = ex_str_or(obj, "lora_name", NULL),
		.ns = ex_str_or(obj, "cache_namespace", NULL),
		.mm = ex_get(obj, "mm"),
		.block_size = (uint32_t)ex_u64_or(obj, "block_size", w->pool[0].conf.block_size),
		.eagle = json_is_true(json_object_get(obj, "eagle")),
	};
	if (!mm_check(h.mm, p))
		return false;
	n = hash_tokens(json_object_get(obj, "tokens"), &h, &lbh, &sh);
	ex_out_line("hash");
	hash_list("block_hashes", lbh, n);
	hash_list("sequence_hashes", sh, n);
	ex_out_end();
	free(lbh);
	free(sh);
	return true;
}
