/* SPDX-License-Identifier: BSD-3-Clause */
/* Prompts: tokens and their hashes. Operation hash. */
#include "kvr_hash.h"
#include "scenario_pvt.h"

#include <string.h>

/* Multimodal hashes by block, in the order of the line. */
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
		const size_t n = json_array_size(e);

		if (n == 0)
			continue;
		for (size_t i = 0; i < n; i++)
			m->hashes[i] = kvr_sc_u64(json_array_get(e, i));
		*out = (struct kvr_hash_mm){(uint32_t)m->at++, (uint32_t)n, m->hashes};
		return true;
	}
	return false;
}

static bool mm_check(const json_t *mm, struct kvr_sc_problem *p)
{
	size_t i, k;
	json_t *e, *v;

	json_array_foreach (mm, i, e) {
		if (!json_is_null(e) && !json_is_array(e))
			return kvr_sc_bad(p, "mm must have a list or null per block");
		if (json_array_size(e) > KVR_HASH_MAX_MM)
			return kvr_sc_bad(p, "more than %u mm hashes in a block", KVR_HASH_MAX_MM);
		json_array_foreach (e, k, v) {
			if (!kvr_sc_is_u64(v, UINT64_MAX))
				return kvr_sc_bad(p,
						  "an mm hash must be an integer from 0 to 2^64-1");
		}
	}
	return true;
}

struct hashing {
	const json_t *tokens, *mm;
	const char *lora, *ns;
	uint32_t block_size;
	bool eagle;
};

static uint32_t text_len(const char *s)
{
	return s == NULL ? 0 : (uint32_t)strlen(s);
}

/* Compute hashes in the memory of the line; lbh may be NULL. @return number of blocks. */
static uint32_t hash_tokens(struct kvr_sc_line *l, const struct hashing *h, uint64_t **lbh,
			    uint64_t **sh)
{
	const uint32_t n_tokens = (uint32_t)json_array_size(h->tokens);
	const uint32_t n = kvr_hash_count(n_tokens, h->block_size, h->eagle);
	struct mm_walk walk = {.list = h->mm};
	const struct kvr_hash_params params = {
		.seed = kvr_hash_seed(h->lora, text_len(h->lora), h->ns, text_len(h->ns)),
		.block_size = h->block_size,
		.eagle = h->eagle,
		.mm_next = h->mm != NULL ? mm_next : NULL,
		.mm_arg = &walk,
	};

	*sh = kvr_sc_alloc(l, n, sizeof(uint64_t));
	if (lbh != NULL)
		*lbh = kvr_sc_alloc(l, n, sizeof(uint64_t));
	kvr_hash_tokens(&params, kvr_sc_ints(l, h->tokens, sizeof(uint32_t)), n_tokens,
			lbh != NULL ? *lbh : NULL, *sh, n);
	return n;
}

static struct hashing hashing_of(const struct kvr_sc_line *l, const json_t *adapter,
				 uint32_t block_size)
{
	return (struct hashing){.tokens = kvr_sc_get(l->obj, "tokens"),
				.mm = kvr_sc_get(l->obj, "mm"),
				.lora = kvr_sc_str_or(adapter, "lora_name", NULL),
				.ns = kvr_sc_str_or(adapter, "cache_namespace", NULL),
				.block_size = block_size};
}

bool kvr_sc_prompt_read(struct kvr_sc_line *l, const json_t *adapter, uint32_t block_size,
			struct kvr_sc_prompt *out, struct kvr_sc_problem *p)
{
	const struct hashing h = hashing_of(l, adapter, block_size);
	const json_t *list = kvr_sc_get(l->obj, "sequence_hashes");
	const uint64_t isl = (uint64_t)json_array_size(list) * block_size;

	if ((h.tokens == NULL) == (list == NULL))
		return kvr_sc_bad(p, "give either 'tokens' or 'sequence_hashes'");
	if (!mm_check(h.mm, p))
		return false;
	if (isl > UINT32_MAX)
		return kvr_sc_bad(p, "the prompt is too long");
	if (list == NULL) {
		out->n = hash_tokens(l, &h, NULL, &out->sh);
		out->isl = (uint32_t)json_array_size(h.tokens);
	} else {
		*out = (struct kvr_sc_prompt){kvr_sc_ints(l, list, sizeof(uint64_t)),
					      (uint32_t)json_array_size(list), (uint32_t)isl};
	}
	return true;
}

static void hash_list(struct kvr_sc_out *o, const char *key, const uint64_t *v, uint32_t n)
{
	kvr_sc_out(o, key);
	for (uint32_t i = 0; i < n; i++)
		kvr_sc_out(o, "U", v[i]);
	kvr_sc_out(o, "]");
}

bool kvr_sc_op_hash(struct kvr_sc_world *w, struct kvr_sc_line *l, struct kvr_sc_problem *p)
{
	const uint64_t block_size = kvr_sc_u64_or(l->obj, "block_size", w->pool[0].conf.block_size);
	struct hashing h = hashing_of(l, l->obj, (uint32_t)block_size);
	uint64_t *lbh, *sh;
	uint32_t n;

	if (kvr_sc_get(l->obj, "block_size") == NULL && w->n_pools == 0)
		return kvr_sc_bad(p, "missing field 'block_size'");
	if (!mm_check(h.mm, p))
		return false;
	h.eagle = json_is_true(kvr_sc_get(l->obj, "eagle"));
	n = hash_tokens(l, &h, &lbh, &sh);
	kvr_sc_out(&w->out, "{ op:s", "hash");
	hash_list(&w->out, "block_hashes:[", lbh, n);
	hash_list(&w->out, "sequence_hashes:[", sh, n);
	kvr_sc_out(&w->out, "}");
	return true;
}
