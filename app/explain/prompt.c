/* SPDX-License-Identifier: BSD-3-Clause */
/* Prompts: tokens, hashes and what of them; hash. */
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
