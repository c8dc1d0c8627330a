/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Block and sequence hashes with XXH3. Whole arrays of text blocks use the one-shot functions, with
 * code of their own for blocks of 64 and 128 bytes. Streams feed the tokens of a window to an XXH3
 * state only if the window is split between two calls or has multimodal hashes.
 */

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

/*
 * Up to this length XXH3 hashes with the seed itself; longer input needs a secret derived from the
 * seed.
 */
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

static inline uint64_t chain_hash(uint64_t prev, uint64_t lbh)
{
	const uint64_t pair[2] = {prev, lbh};

	return XXH3_64bits_withSeed(pair, sizeof(pair), KVR_HASH_SEED);
}

void kvr_hash_chain(const uint64_t *parent, const uint64_t lbh[], uint32_t n, uint64_t sh[])
{
	uint64_t prev;

	if (n == 0)
		return;
	prev = parent != NULL ? chain_hash(*parent, lbh[0]) : lbh[0];
	sh[0] = prev;
	for (uint32_t i = 1; i < n; i++) {
		prev = chain_hash(prev, lbh[i]);
		sh[i] = prev;
	}
}

struct blocks {
	const uint8_t *p;
	size_t step, bytes;
	uint64_t seed;
	const uint8_t *secret; /* secret for blocks longer than SEED_BYTES, otherwise NULL */
};

static inline uint64_t hash_one_block(const struct blocks *blocks, const uint8_t *p, size_t bytes)
{
	return blocks->secret != NULL
		       ? XXH3_64bits_withSecretandSeed(p, bytes, blocks->secret,
						       KVR_HASH_SECRET_BYTES, blocks->seed)
		       : XXH3_64bits_withSeed(p, bytes, blocks->seed);
}

/* Always inline: with a constant length a hash takes half the time. */
static inline __attribute__((always_inline)) void hash_run(const struct blocks *blocks,
							   size_t bytes, const uint64_t *parent,
							   uint32_t n, uint64_t sh[])
{
	const uint8_t *p = blocks->p;
	uint64_t prev = hash_one_block(blocks, p, bytes);

	prev = parent != NULL ? chain_hash(*parent, prev) : prev;
	sh[0] = prev;
	for (uint32_t i = 1; i < n; i++) {
		p += blocks->step;
		prev = chain_hash(prev, hash_one_block(blocks, p, bytes));
		sh[i] = prev;
	}
}

void kvr_hash_blocks(const struct kvr_hash_params *params, const uint64_t *parent,
		     const uint32_t *tokens, uint32_t n, uint64_t sh[])
{
	const size_t step = params->block_size * 4ul;
	struct blocks blocks = {(const void *)tokens, step, step + (params->eagle ? 4 : 0),
				params->seed, NULL};
	uint8_t secret[KVR_HASH_SECRET_BYTES];

	if (n == 0 || step == 0)
		return;
	if (blocks.bytes > SEED_BYTES) {
		XXH3_generateSecret_fromSeed(secret, blocks.seed);
		blocks.secret = secret;
	}
	if (blocks.bytes == 64) {
		blocks.secret = NULL;
		hash_run(&blocks, 64, parent, n, sh);
	} else if (blocks.bytes == 128) {
		blocks.secret = NULL;
		hash_run(&blocks, 128, parent, n, sh);
	} else {
		hash_run(&blocks, blocks.bytes, parent, n, sh);
	}
}

uint32_t kvr_hash_count(uint32_t n_tokens, uint32_t block_size, bool eagle)
{
	if (block_size == 0 || n_tokens == 0)
		return 0;
	return (eagle ? n_tokens - 1 : n_tokens) / block_size;
}

static void advance_mm(struct kvr_hash_stream *stream)
{
	if (stream->params.mm_next == NULL ||
	    !stream->params.mm_next(stream->params.mm_arg, &stream->mm))
		stream->mm = (struct kvr_hash_mm){.block = UINT32_MAX};
}

static inline XXH3_state_t *get_state(struct kvr_hash_stream *stream)
{
	return (XXH3_state_t *)stream->state;
}

void kvr_hash_stream_init(struct kvr_hash_stream *stream, const struct kvr_hash_params *params,
			  const uint64_t *parent)
{
	stream->params = *params;
	stream->n_blocks = 0;
	stream->have = 0;
	stream->chained = parent != NULL;
	stream->prev = parent != NULL ? *parent : 0;
	stream->long_blocks = params->block_size > SEED_BYTES / 4 - 1;
	if (stream->long_blocks)
		XXH3_generateSecret_fromSeed(stream->secret, params->seed);
	XXH3_INITSTATE(get_state(
		stream)); /* the reset reads the state, which is uninitialized stack memory */
	advance_mm(stream);
}

/*
 * Add the multimodal hashes of a block in ascending order, as engine and router list them in
 * different orders.
 */
static int add_mm(struct kvr_hash_stream *stream)
{
	const uint8_t *from = stream->mm.hashes;
	uint64_t v[KVR_HASH_MAX_MM];

	if (stream->mm.n > KVR_HASH_MAX_MM)
		return -E2BIG;
	for (uint32_t i = 0; i < stream->mm.n; i++) {
		uint64_t x;
		uint32_t k = i;

		memcpy(&x, from + (size_t)i * 8, sizeof(x));
		for (; k > 0 && v[k - 1] > x; k--)
			v[k] = v[k - 1];
		v[k] = x;
	}
	XXH3_64bits_update(get_state(stream), v, (size_t)stream->mm.n * 8);
	return 0;
}

/* Compute the LBH of the window, whose tokens are all in the state. */
static int close_state(struct kvr_hash_stream *stream, uint64_t *lbh)
{
	int r = 0;

	while (stream->mm.block < stream->n_blocks)
		advance_mm(stream);
	if (stream->mm.block == stream->n_blocks) {
		r = add_mm(stream);
		advance_mm(stream);
	}
	*lbh = XXH3_64bits_digest(get_state(stream));
	stream->have = 0;
	return r;
}

static void open_state(struct kvr_hash_stream *stream, const uint8_t *p, uint32_t n)
{
	if (stream->have == 0)
		XXH3_64bits_reset_withSeed(get_state(stream), stream->params.seed);
	XXH3_64bits_update(get_state(stream), p, (size_t)n * 4);
	stream->have += n;
}

static inline void emit_block(struct kvr_hash_stream *stream, uint64_t block, uint64_t lbh[],
			      uint64_t sh[])
{
	stream->prev = stream->chained ? chain_hash(stream->prev, block) : block;
	stream->chained = true;
	if (lbh != NULL)
		lbh[stream->n_blocks] = block;
	if (sh != NULL)
		sh[stream->n_blocks] = stream->prev;
	stream->n_blocks++;
}

int kvr_hash_stream_add(struct kvr_hash_stream *stream, const void *tokens, uint32_t n,
			uint64_t lbh[], uint64_t sh[], uint32_t cap)
{
	const uint32_t step = stream->params.block_size;
	const uint32_t window = step + (stream->params.eagle ? 1 : 0);
	const uint8_t *p = tokens;
	uint64_t block;

	if (step == 0)
		return 0;
	while (n > 0 && stream->n_blocks < cap) {
		const uint32_t need = window - stream->have;

		if (n < need) { /* the rest comes with the next call */
			open_state(stream, p, n);
			return 0;
		}
		if (stream->have == 0 && stream->mm.block > stream->n_blocks) {
			block = stream->long_blocks
					? XXH3_64bits_withSecretandSeed(
						  p, (size_t)window * 4, stream->secret,
						  sizeof(stream->secret), stream->params.seed)
					: XXH3_64bits_withSeed(p, (size_t)window * 4,
							       stream->params.seed);
		} else {
			open_state(stream, p, need);
			if (close_state(stream, &block) != 0)
				return -E2BIG;
		}
		emit_block(stream, block, lbh, sh);
		/* The last token of an eagle window is the first of the next one. */
		p += (size_t)(need - (window - step)) * 4;
		n -= need - (window - step);
	}
	return 0;
}

int kvr_hash_tokens(const struct kvr_hash_params *params, const void *tokens, uint32_t n,
		    uint64_t lbh[], uint64_t sh[], uint32_t cap)
{
	struct kvr_hash_stream stream;
	int r;

	kvr_hash_stream_init(&stream, params, NULL);
	r = kvr_hash_stream_add(&stream, tokens, n, lbh, sh, cap);
	return r != 0 ? r : (int)stream.n_blocks;
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
