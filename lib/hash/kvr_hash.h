/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_HASH_H
#define KVR_HASH_H

/**
 * @file
 * Block and sequence hashes of token arrays (lib/sched/RULES.md, section 1).
 *
 * LBH, the hash of one block: XXH3-64 of its tokens as little-endian u32, with a seed derived from
 * the LoRA adapter and the cache namespace. SH, the hash of a block and all blocks before it: SH[0]
 * = LBH[0], SH[i] = XXH3-64(le64(SH[i-1]) le64(LBH[i]), 1337). Only complete blocks count.
 *
 * All functions are pure, allocate nothing and may run on packet lcores. Token pointers need no
 * alignment. A kvr_hash_stream takes 1 KiB on the caller's stack and accepts the tokens of a
 * message fragment by fragment, so the fragments need not be joined. Cost: about 6 ns per block of
 * 16 tokens, 16 ns per block of 128.
 */

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

#include "kvr_rand.h"

/** Seed of blocks (without LoRA and namespace) and of the chain. */
#define KVR_HASH_SEED UINT64_C(1337)
/** Maximum of multimodal hashes per block; a block cannot have more objects than tokens. */
#define KVR_HASH_MAX_MM 64u

/**
 * Seed of the blocks of a request: 1337 + H(lora, 0) + H(namespace, 1), modulo 2^64. A NULL or
 * empty string adds nothing. Lengths in bytes.
 */
uint64_t kvr_hash_seed(const char *lora, uint32_t lora_len, const char *ns, uint32_t ns_len);

/**
 * Optional prefix of a namespace in the cache salt that an engine receives, and therefore in the
 * keys of its blocks. The prefix marks the salt as a namespace and is not part of the namespace.
 */
#define KVR_HASH_SALT_TAG "dynamo-cache-salt:"

/** XXH3-64 of bytes with seed 1337. */
uint64_t kvr_hash_bytes(const void *data, uint64_t len);

/** LBH of one text block of @p n tokens. */
uint64_t kvr_hash_block(const void *tokens, uint32_t n, uint64_t seed);

/**
 * Compute the SHs of @p n LBHs. @p parent is the SH before lbh[0], or NULL at the start of a
 * prompt. @p sh may be the same array as @p lbh.
 */
void kvr_hash_chain(const uint64_t *parent, const uint64_t lbh[], uint32_t n, uint64_t sh[]);

/**
 * Number of complete blocks in @p n_tokens tokens; 0 if block_size is 0. Eagle: windows of
 * block_size + 1.
 */
uint32_t kvr_hash_count(uint32_t n_tokens, uint32_t block_size, bool eagle);

/** Multimodal hashes of one block, in any order. */
struct kvr_hash_mm {
	uint32_t block;
	uint32_t n;	    /* at most KVR_HASH_MAX_MM */
	const void *hashes; /* n u64, unaligned */
};

/** Return the next block with multimodal hashes, in ascending order of blocks; false at the end. */
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
 * Compute the SHs of the first @p n blocks; all their tokens must be present. Text only: mm_next is
 * not called. @p parent as in kvr_hash_chain(). Takes no longer than the block hashes alone, as the
 * CPU overlaps the chain with the next block.
 */
void kvr_hash_blocks(const struct kvr_hash_params *params, const uint64_t *parent,
		     const uint32_t *tokens, uint32_t n, uint64_t sh[]);

#define KVR_HASH_SECRET_BYTES 192
#define KVR_HASH_STATE_BYTES  576

/** State of incremental hashing. Fields are private except n_blocks. Owner: rw. */
struct kvr_hash_stream {
	struct kvr_hash_params params;
	struct kvr_hash_mm mm; /* next block with multimodal hashes; block UINT32_MAX: none */
	uint64_t prev;	       /* SH of the block before */
	uint32_t n_blocks;     /* finished blocks */
	uint32_t have;	       /* tokens of the open window in `state` */
	bool chained;	       /* prev is valid */
	bool long_blocks;      /* `secret` is used */
	alignas(64) uint8_t secret[KVR_HASH_SECRET_BYTES];
	alignas(64) uint8_t state[KVR_HASH_STATE_BYTES];
};

/** Initialize a stream; @p parent as in kvr_hash_chain(). */
void kvr_hash_stream_init(struct kvr_hash_stream *stream, const struct kvr_hash_params *params,
			  const uint64_t *parent);

/**
 * Add @p n tokens. The hashes of blocks that become complete are written to lbh[] and sh[] (either
 * may be NULL), at the index of the block in the whole request.
 * @param cap entries of the arrays: later blocks are not started.
 * @return 0, or -E2BIG if a block has more than KVR_HASH_MAX_MM multimodal hashes (the stream is
 *   then unusable).
 */
int kvr_hash_stream_add(struct kvr_hash_stream *stream, const void *tokens, uint32_t n,
			uint64_t lbh[], uint64_t sh[], uint32_t cap);

/**
 * Hash a whole array.
 * @return the number of blocks written, or -E2BIG as for kvr_hash_stream_add().
 */
int kvr_hash_tokens(const struct kvr_hash_params *params, const void *tokens, uint32_t n,
		    uint64_t lbh[], uint64_t sh[], uint32_t cap);

/**
 * Block identities for load accounting (lib/sched/RULES.md, section 1.4, public form): the SHs
 * themselves or, if the engine does not share blocks (@p assume_kv_reuse is false), one uniform
 * random word per block.
 */
void kvr_hash_tracking(const uint64_t sh[], uint32_t n, bool assume_kv_reuse, struct kvr_rand *rnd,
		       uint64_t out[]);

/** Token that represents a multimodal object in SGLang prompts. */
static inline uint32_t kvr_hash_pad_value(uint64_t mm_hash)
{
	return 1000000u + (uint32_t)(mm_hash & ((1u << 30) - 1));
}

#endif
