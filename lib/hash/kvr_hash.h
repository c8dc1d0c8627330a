/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_HASH_H
#define KVR_HASH_H

/**
 * @file
 * Block and sequence hashes of token arrays (spec section 1).
 *
 * LBH, the hash of one block: XXH3-64 of its tokens as little-endian u32, under a seed that
 * carries the LoRA adapter and the cache namespace. SH, the hash of a block and all before it:
 * SH[0] = LBH[0], SH[i] = XXH3-64(le64(SH[i-1]) le64(LBH[i]), 1337). Only complete blocks count.
 *
 * Everything here is pure over the caller's memory, allocates nothing and may run on packet
 * lcores. Token pointers need no alignment. A kvr_hash_stream is 1 KiB on the caller's stack and
 * takes the tokens of a message fragment by fragment, so that they are never joined. Cost: about
 * 6 ns a block of 16 tokens, 16 ns a block of 128.
 */

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

#include "kvr_rand.h"

/** Seed of blocks (without LoRA and namespace) and of the chain. */
#define KVR_HASH_SEED UINT64_C(1337)
/** Most multimodal hashes of one block; more objects than tokens make no sense. */
#define KVR_HASH_MAX_MM 64u

/**
 * Seed of the blocks of a request: 1337, plus H(lora, 0), plus H(namespace, 1), modulo 2^64.
 * A NULL or empty string is absent. Lengths in bytes.
 */
uint64_t kvr_hash_seed(const char *lora, uint32_t lora_len, const char *ns, uint32_t ns_len);

/** What may stand before a namespace in the salt that an engine gets, and so in the keys of its
 * blocks, where it says that this is one. No part of the namespace. */
#define KVR_HASH_SALT_TAG "dynamo-cache-salt:"

/** XXH3-64 of bytes under seed 1337. */
uint64_t kvr_hash_bytes(const void *data, uint64_t len);

/** LBH of one text block of @p n tokens. */
uint64_t kvr_hash_block(const void *tokens, uint32_t n, uint64_t seed);

/**
 * SHs of @p n LBHs. @p parent is the SH before lbh[0], or NULL at the start of a prompt.
 * @p sh may be the same array as @p lbh.
 */
void kvr_hash_chain(const uint64_t *parent, const uint64_t lbh[], uint32_t n, uint64_t sh[]);

/** Complete blocks in @p n_tokens tokens; 0 when block_size is 0. Eagle: windows of size + 1. */
uint32_t kvr_hash_count(uint32_t n_tokens, uint32_t block_size, bool eagle);

/** Multimodal hashes of one block, in any order. */
struct kvr_hash_mm {
	uint32_t block;
	uint32_t n;	    /* at most KVR_HASH_MAX_MM */
	const void *hashes; /* n u64, unaligned */
};

/** Gives the next block that has multimodal hashes, blocks ascending; false at the end. */
typedef bool kvr_hash_mm_fn(void *arg, struct kvr_hash_mm *out);

/** How the tokens of one request are hashed. */
struct kvr_hash_params {
	uint64_t seed;		 /* kvr_hash_seed() */
	uint32_t block_size;	 /* tokens; 0 gives no hashes */
	bool eagle;		 /* windows of block_size + 1 tokens, block_size apart */
	kvr_hash_mm_fn *mm_next; /* NULL: text only */
	void *mm_arg;
};

/**
 * SHs of the first @p n blocks of tokens that are all there, text only (mm_next is not asked);
 * @p parent as in kvr_hash_chain(). As long as the blocks alone take: the chain is worked on beside
 * the next block.
 */
void kvr_hash_blocks(const struct kvr_hash_params *params, const uint64_t *parent,
		     const uint32_t *tokens, uint32_t n, uint64_t sh[]);

#define KVR_HASH_SECRET_BYTES 192
#define KVR_HASH_STATE_BYTES  576

/** Hashing in pieces; fields are private but n_blocks. Owner: rw. */
struct kvr_hash_stream {
	struct kvr_hash_params params;
	struct kvr_hash_mm mm; /* next block with mm hashes; block UINT32_MAX: no more */
	uint64_t prev;	       /* SH of the block before */
	uint32_t n_blocks;     /* blocks finished */
	uint32_t have;	       /* tokens of the open window in `state` */
	bool chained;	       /* prev is valid */
	bool long_blocks;      /* secret is used */
	alignas(64) uint8_t secret[KVR_HASH_SECRET_BYTES];
	alignas(64) uint8_t state[KVR_HASH_STATE_BYTES];
};

/** Begin; @p parent as in kvr_hash_chain(). */
void kvr_hash_stream_init(struct kvr_hash_stream *s, const struct kvr_hash_params *params,
			  const uint64_t *parent);

/**
 * Add @p n tokens. Results of the blocks that become complete are written to lbh[] and sh[]
 * (either may be NULL) at the index of the block in the whole request.
 * @param cap entries of the arrays: blocks from there on are not started.
 * @return 0, or -E2BIG when a block has more than KVR_HASH_MAX_MM multimodal hashes (the stream
 * is then unusable).
 */
int kvr_hash_stream_add(struct kvr_hash_stream *s, const void *tokens, uint32_t n, uint64_t lbh[],
			uint64_t sh[], uint32_t cap);

/**
 * Hash a whole array: init, add, and the number of blocks.
 * @return blocks written, or -E2BIG as above.
 */
int kvr_hash_tokens(const struct kvr_hash_params *params, const void *tokens, uint32_t n,
		    uint64_t lbh[], uint64_t sh[], uint32_t cap);

/**
 * Identities used for load bookkeeping (spec 1.4, public form): the SHs themselves, or, when the
 * engine does not share blocks (@p assume_kv_reuse false), one uniform random word per block.
 */
void kvr_hash_tracking(const uint64_t sh[], uint32_t n, bool assume_kv_reuse, struct kvr_rand *rnd,
		       uint64_t out[]);

/** Token that stands for a multimodal object in SGLang prompts. */
static inline uint32_t kvr_hash_pad_value(uint64_t mm_hash)
{
	return 1000000u + (uint32_t)(mm_hash & ((1u << 30) - 1));
}

#endif
