/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_hash.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define XXH_INLINE_ALL
#define XXH_STATIC_LINKING_ONLY
#define XXH_NO_STDLIB
#include <xxhash.h>

static_assert(sizeof(XXH3_state_t) <= KVR_HASH_STATE_BYTES, "state does not fit");
static_assert(XXH3_SECRET_DEFAULT_SIZE == KVR_HASH_SECRET_BYTES, "secret does not fit");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tokens are hashed in place");

/* Up to this many bytes XXH3 works from the seed; above, from a secret derived from it. */
#define SEED_BYTES XXH3_MIDSIZE_MAX

uint64_t kvr_hash_seed(const char *lora, uint32_t lora_len, const char *ns, uint32_t ns_len)
{
	uint64_t seed = KVR_HASH_SEED;

	if (lora != NULL && lora_len > 0)
		seed += XXH3_64bits_withSeed(lora, lora_len, 0);
	if (ns != NULL && ns_len > 0)
		seed += XXH3_64bits_withSeed(ns, ns_len, 1);
	return seed;
}

uint64_t kvr_hash_bytes(const void *data, uint64_t len)
{
	return XXH3_64bits_withSeed(data, len, KVR_HASH_SEED);
}

uint64_t kvr_hash_block(const void *tokens, uint32_t n, uint64_t seed)
{
	return XXH3_64bits_withSeed(tokens, (size_t)n * 4, seed);
}

static inline uint64_t chain(uint64_t prev, uint64_t lbh)
{
	const uint64_t pair[2] = {prev, lbh};

	return XXH3_64bits_withSeed(pair, sizeof(pair), KVR_HASH_SEED);
}

void kvr_hash_chain(const uint64_t *parent, const uint64_t lbh[], uint32_t n, uint64_t sh[])
{
	uint64_t prev;

	if (n == 0)
		return;
	prev = parent != NULL ? chain(*parent, lbh[0]) : lbh[0];
	sh[0] = prev;
	for (uint32_t i = 1; i < n; i++) {
		prev = chain(prev, lbh[i]);
		sh[i] = prev;
	}
}

struct blocks {
	const uint8_t *p;
	size_t step, bytes;
	uint64_t seed;
	const uint8_t *secret; /* of those that are too long for a seed, else NULL */
};

static inline uint64_t block_of(const struct blocks *b, const uint8_t *p, size_t bytes)
{
	return b->secret != NULL ? XXH3_64bits_withSecretandSeed(p, bytes, b->secret,
								 KVR_HASH_SECRET_BYTES, b->seed)
				 : XXH3_64bits_withSeed(p, bytes, b->seed);
}

/* Inside its callers, as a length that is known is half of a hash. */
static inline __attribute__((always_inline)) void
run_of(const struct blocks *b, size_t bytes, const uint64_t *parent, uint32_t n, uint64_t sh[])
{
	const uint8_t *p = b->p;
	uint64_t prev = block_of(b, p, bytes);

	prev = parent != NULL ? chain(*parent, prev) : prev;
	sh[0] = prev;
	for (uint32_t i = 1; i < n; i++) {
		p += b->step;
		prev = chain(prev, block_of(b, p, bytes));
		sh[i] = prev;
	}
}

void kvr_hash_blocks(const struct kvr_hash_params *params, const uint64_t *parent,
		     const uint32_t *tokens, uint32_t n, uint64_t sh[])
{
	const size_t step = params->block_size * 4ul;
	struct blocks b = {(const void *)tokens, step, step + (params->eagle ? 4 : 0), params->seed,
			   NULL};
	uint8_t secret[KVR_HASH_SECRET_BYTES];

	if (n == 0 || step == 0)
		return;
	if (b.bytes > SEED_BYTES) {
		XXH3_generateSecret_fromSeed(secret, b.seed);
		b.secret = secret;
	}
	if (b.bytes == 64) {
		b.secret = NULL;
		run_of(&b, 64, parent, n, sh);
	} else if (b.bytes == 128) {
		b.secret = NULL;
		run_of(&b, 128, parent, n, sh);
	} else {
		run_of(&b, b.bytes, parent, n, sh);
	}
}

uint32_t kvr_hash_count(uint32_t n_tokens, uint32_t block_size, bool eagle)
{
	if (block_size == 0 || n_tokens == 0)
		return 0;
	return (eagle ? n_tokens - 1 : n_tokens) / block_size;
}

static void mm_advance(struct kvr_hash_stream *s)
{
	if (s->params.mm_next == NULL || !s->params.mm_next(s->params.mm_arg, &s->mm))
		s->mm = (struct kvr_hash_mm){.block = UINT32_MAX};
}

static inline XXH3_state_t *state_of(struct kvr_hash_stream *s)
{
	return (XXH3_state_t *)s->state;
}

void kvr_hash_stream_init(struct kvr_hash_stream *s, const struct kvr_hash_params *params,
			  const uint64_t *parent)
{
	s->params = *params;
	s->n_blocks = 0;
	s->have = 0;
	s->chained = parent != NULL;
	s->prev = parent != NULL ? *parent : 0;
	s->long_blocks = params->block_size > SEED_BYTES / 4 - 1;
	if (s->long_blocks)
		XXH3_generateSecret_fromSeed(s->secret, params->seed);
	XXH3_INITSTATE(state_of(s)); /* or a reset would believe what is on the stack */
	mm_advance(s);
}

/* Sorted ascending: the engine's order of objects in a block is not the router's. */
static int add_mm(struct kvr_hash_stream *s)
{
	const uint8_t *from = s->mm.hashes;
	uint64_t v[KVR_HASH_MAX_MM];

	if (s->mm.n > KVR_HASH_MAX_MM)
		return -E2BIG;
	for (uint32_t i = 0; i < s->mm.n; i++) {
		uint64_t x;
		uint32_t k = i;

		memcpy(&x, from + (size_t)i * 8, sizeof(x));
		for (; k > 0 && v[k - 1] > x; k--)
			v[k] = v[k - 1];
		v[k] = x;
	}
	XXH3_64bits_update(state_of(s), v, (size_t)s->mm.n * 8);
	return 0;
}

/* LBH of the window whose tokens are all in the state. */
static int close_state(struct kvr_hash_stream *s, uint64_t *lbh)
{
	int r = 0;

	while (s->mm.block < s->n_blocks)
		mm_advance(s);
	if (s->mm.block == s->n_blocks) {
		r = add_mm(s);
		mm_advance(s);
	}
	*lbh = XXH3_64bits_digest(state_of(s));
	s->have = 0;
	return r;
}

static void open_state(struct kvr_hash_stream *s, const uint8_t *p, uint32_t n)
{
	if (s->have == 0)
		XXH3_64bits_reset_withSeed(state_of(s), s->params.seed);
	XXH3_64bits_update(state_of(s), p, (size_t)n * 4);
	s->have += n;
}

static inline void emit(struct kvr_hash_stream *s, uint64_t block, uint64_t lbh[], uint64_t sh[])
{
	s->prev = s->chained ? chain(s->prev, block) : block;
	s->chained = true;
	if (lbh != NULL)
		lbh[s->n_blocks] = block;
	if (sh != NULL)
		sh[s->n_blocks] = s->prev;
	s->n_blocks++;
}

int kvr_hash_stream_add(struct kvr_hash_stream *s, const void *tokens, uint32_t n, uint64_t lbh[],
			uint64_t sh[], uint32_t cap)
{
	const uint32_t step = s->params.block_size;
	const uint32_t window = step + (s->params.eagle ? 1 : 0);
	const uint8_t *p = tokens;
	uint64_t block;

	if (step == 0)
		return 0;
	while (n > 0 && s->n_blocks < cap) {
		const uint32_t need = window - s->have;

		if (n < need) { /* the rest comes with the next piece */
			open_state(s, p, n);
			return 0;
		}
		if (s->have == 0 && s->mm.block > s->n_blocks) {
			block = s->long_blocks ? XXH3_64bits_withSecretandSeed(
							 p, (size_t)window * 4, s->secret,
							 sizeof(s->secret), s->params.seed)
					       : XXH3_64bits_withSeed(p, (size_t)window * 4,
								      s->params.seed);
		} else {
			open_state(s, p, need);
			if (close_state(s, &block) != 0)
				return -E2BIG;
		}
		emit(s, block, lbh, sh);
		/* The last token of an eagle window is the first of the next one. */
		p += (size_t)(need - (window - step)) * 4;
		n -= need - (window - step);
	}
	return 0;
}

int kvr_hash_tokens(const struct kvr_hash_params *params, const void *tokens, uint32_t n,
		    uint64_t lbh[], uint64_t sh[], uint32_t cap)
{
	struct kvr_hash_stream s;
	int r;

	kvr_hash_stream_init(&s, params, NULL);
	r = kvr_hash_stream_add(&s, tokens, n, lbh, sh, cap);
	return r != 0 ? r : (int)s.n_blocks;
}

void kvr_hash_tracking(const uint64_t sh[], uint32_t n, bool assume_kv_reuse, struct kvr_rand *rnd,
		       uint64_t out[])
{
	if (assume_kv_reuse) {
		memcpy(out, sh, (size_t)n * sizeof(*out));
		return;
	}
	for (uint32_t i = 0; i < n; i++)
		out[i] = kvr_rand_u64(rnd);
}
