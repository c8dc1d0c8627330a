/* SPDX-License-Identifier: BSD-3-Clause */
/* Sequence hashes of a prompt for routing. */
#include "kvr_client_hints.h"
#include "kvr_hash.h"

#include <errno.h>
#include <string.h>

struct walk {
	const struct kvr_client_mm *mm;
	uint32_t left;
};

static bool next_mm(void *arg, struct kvr_hash_mm *out)
{
	struct walk *w = arg;

	if (w->left == 0)
		return false;
	*out = (struct kvr_hash_mm){.block = w->mm->block, .n = w->mm->n, .hashes = w->mm->hashes};
	w->mm++;
	w->left--;
	return true;
}

static uint32_t len_of(const char *s)
{
	return s != NULL ? (uint32_t)strlen(s) : 0;
}

int kvr_client_hash_tokens(const struct kvr_client_hashing *how, const uint32_t tokens[],
			   uint32_t n_tokens, uint64_t sh[], uint32_t cap)
{
	struct walk w = {.mm = how->mm, .left = how->n_mm};
	const struct kvr_hash_params params = {.seed = kvr_hash_seed(how->lora, len_of(how->lora),
								     how->cache_namespace,
								     len_of(how->cache_namespace)),
					       .block_size = how->block_size,
					       .eagle = how->eagle,
					       .mm_next = how->n_mm > 0 ? next_mm : NULL,
					       .mm_arg = &w};

	if (how->block_size == 0)
		return -EINVAL;
	if (kvr_hash_count(n_tokens, how->block_size, how->eagle) > cap)
		return -ENOSPC;
	return kvr_hash_tokens(&params, tokens, n_tokens, NULL, sh, cap);
}
