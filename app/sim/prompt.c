/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Prompts and bodies are functions of numbers, so that each receiver can verify them. The hashes of
 * all blocks of a prompt are computed once per world; a shorter prompt has the first of them.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#include "kvr_hash.h"

#define TREES 6u /* number of common prefixes */

/* The tokens of block @k of a prompt: shared within its tree near the root, its own further on. */
static uint64_t block_of(const struct sim *s, uint32_t prompt, uint32_t k)
{
	const uint64_t tree = prompt % TREES;
	const uint32_t shared = (uint32_t)(kvr_mix64(s->plan.seed + tree) % (SIM_PROMPT / 2));
	const uint32_t branch = shared + (uint32_t)(kvr_mix64(prompt) % 16);

	if (k < shared)
		return kvr_mix64(tree << 32 | k);
	if (k < branch)
		return kvr_mix64((uint64_t)(prompt % 97) << 32 | k | UINT64_C(1) << 60);
	return kvr_mix64((uint64_t)prompt << 32 | k | UINT64_C(1) << 61);
}

void prompt_tokens(const struct sim *s, uint32_t prompt, uint32_t *tokens, uint32_t n)
{
	for (uint32_t i = 0; i < n; i += SIM_BLOCK) {
		const uint64_t w = block_of(s, prompt, i / SIM_BLOCK);

		for (uint32_t k = 0; k < SIM_BLOCK && i + k < n; k++)
			tokens[i + k] = (uint32_t)(w >> k) & 0xffff;
	}
}

const uint64_t *prompt_hashes(struct sim *s, uint32_t prompt)
{
	const struct kvr_hash_params p = {.seed = KVR_HASH_SEED, .block_size = SIM_BLOCK};
	uint32_t tokens[SIM_PROMPT * SIM_BLOCK];

	if (s->hashes[prompt] != NULL)
		return s->hashes[prompt];
	prompt_tokens(s, prompt, tokens, SIM_PROMPT * SIM_BLOCK);
	s->hashes[prompt] = malloc(SIM_PROMPT * sizeof(uint64_t));
	if (s->hashes[prompt] == NULL ||
	    kvr_hash_tokens(&p, tokens, SIM_PROMPT * SIM_BLOCK, NULL, s->hashes[prompt],
			    SIM_PROMPT) != (int)SIM_PROMPT)
		abort();
	return s->hashes[prompt];
}

void prompts_free(struct sim *s)
{
	for (uint32_t i = 0; i < SIM_PROMPTS; i++)
		free(s->hashes[i]);
}

/* ---- bodies ---- */

static uint8_t body_byte(uint32_t request, uint32_t at)
{
	return (uint8_t)(request * 31 + at * 7 + (at >> 8));
}

bool request_is_folded(const struct sim *s, uint32_t request)
{
	return kvr_mix64(s->plan.seed ^ UINT64_C(0xf01d) ^ (uint64_t)request << 32) % 1000 <
	       s->plan.folded;
}

void body_fill(uint32_t request, uint8_t *p, uint32_t from, uint32_t n)
{
	for (uint32_t i = from; i < n; i++)
		p[i] = body_byte(request, i);
}

uint32_t body_wrong(uint32_t request, const uint8_t *p, uint32_t from, uint32_t n)
{
	uint8_t differ = 0;

	for (uint32_t i = from; i < n; i++)
		differ |= (uint8_t)(p[i] ^ body_byte(request, i));
	for (uint32_t i = from; i < n && differ != 0; i++)
		if (p[i] != body_byte(request, i))
			return i;
	return n;
}
