/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_KVEV_H
#define KVR_KVEV_H

/**
 * @file
 * KV events as engines publish them: one msgpack payload is a batch, an array or a map of time,
 * events and rank; an event is an array that starts with its type or a map that has it as `type`.
 * All forms of vLLM and SGLang become the same struct, one event at a time.
 *
 * The bytes are hostile until read: every length is checked against what is left, nothing is
 * allocated for what is only claimed, and depth is bounded. One decoder, one thread; it owns the
 * arrays that events point to, which grow to the largest event met and are valid until the next
 * call. Cost: about 1.5 ns a token.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvr_types.h"

struct kvr_kvev_decoder;

enum kvr_kvev_type {
	KVR_KVEV_UNKNOWN = 0, /**< a type that we do not know: nothing else is filled */
	KVR_KVEV_STORED,
	KVR_KVEV_REMOVED,
	KVR_KVEV_CLEARED,
};

/** Why an event of a known type is not what it should be; 0 = it is. */
enum kvr_kvev_fault {
	KVR_KVEV_FINE = 0,
	KVR_KVEV_SHAPE,	 /**< a field has a wrong type or is missing */
	KVR_KVEV_MEDIUM, /**< a medium that we do not know */
};

/** A multimodal object that lies in a block of the event. */
struct kvr_kvev_mm {
	uint32_t block; /**< of the event, ascending */
	uint64_t hash;
};

/** Bytes inside the payload. */
struct kvr_kvev_text {
	const char *p;
	uint32_t len;
};

/** One event. What was not told is zero. */
struct kvr_kvev {
	enum kvr_kvev_type type;
	enum kvr_kvev_fault fault;
	struct kvr_kvev_text raw; /**< all of it, as it stands in the payload */
	const uint64_t *hashes;	  /**< the engine's names of the blocks */
	uint32_t n_hashes;
	bool has_parent;
	uint64_t parent;
	const uint32_t *tokens; /**< of all blocks; none when the engine only moves blocks */
	uint32_t n_tokens;
	bool eagle; /**< they were pairs: the last block has one token more */
	uint32_t block_size;
	enum kvr_tier tier;
	struct kvr_kvev_text lora, salt; /**< the salt without KVR_HASH_SALT_TAG */
	bool adapted; /**< lora_id: of an adapter; without `lora` nobody knows of which */
	const struct kvr_kvev_mm *mm;
	uint32_t n_mm;
	uint32_t strange_block; /**< first block with a key we cannot name; UINT32_MAX: none */
	bool has_group;
	uint32_t group;
	bool full_group;  /**< the group's kind is given, and is full attention */
	bool other_group; /**< the group's kind is given, and is another one */
	bool foreign;	  /**< remote, or somebody else's */
	bool lookahead;	  /**< the names cover tokens behind their blocks */
	bool reused;	  /**< a store of blocks that were found cached: no new copies */
};

/** What a batch says beside its events. */
struct kvr_kvev_batch {
	double ts;
	bool has_rank;
	uint32_t rank;
	uint32_t n_events;
};

/**
 * Make a decoder.
 * @param first_bytes names given as bytes become numbers by their first 8 bytes (SGLang), not
 * their last (vLLM).
 * @return NULL: ENOMEM.
 */
struct kvr_kvev_decoder *kvr_kvev_create(bool first_bytes);

/** NULL is fine. */
void kvr_kvev_destroy(struct kvr_kvev_decoder *d);

/**
 * Begin with a payload, which must stay until the last event is taken.
 * @return 0; -EBADMSG it is no batch.
 */
int kvr_kvev_open(struct kvr_kvev_decoder *d, const void *payload, size_t len,
		  struct kvr_kvev_batch *batch);

/**
 * The next event.
 * @return 1 *ev is filled; 0 that was the last, and nothing is left over; -EBADMSG the rest cannot
 * be read; -ENOMEM.
 */
int kvr_kvev_next(struct kvr_kvev_decoder *d, struct kvr_kvev *ev);

#endif
