/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_KVEV_H
#define KVR_KVEV_H

/**
 * @file
 * Decoder of KV events as engines publish them. One msgpack payload is a batch: an array or a map
 * of time, events and rank. An event is an array that starts with its type, or a map with the type
 * as `type`. All forms of vLLM and SGLang become the same struct, one event at a time.
 *
 * The input is untrusted: every length is checked against the remaining bytes, memory is allocated
 * only for data that is present, and nesting depth is bounded. One decoder belongs to one thread.
 * It owns the arrays of an event, which grow to the largest event and are valid until the next
 * call. Cost: about 1.5 ns per token.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvr_types.h"

struct kvr_kvev_decoder;

enum kvr_kvev_type {
	KVR_KVEV_UNKNOWN = 0, /**< unknown type: no other field is set */
	KVR_KVEV_STORED,
	KVR_KVEV_REMOVED,
	KVR_KVEV_CLEARED,
};

/** Fault of an event of a known type; 0 = none. */
enum kvr_kvev_fault {
	KVR_KVEV_FINE = 0,
	KVR_KVEV_SHAPE,	 /**< a field has a wrong type or is missing */
	KVR_KVEV_MEDIUM, /**< unknown medium */
};

/** A multimodal object in a block of the event. */
struct kvr_kvev_mm {
	uint32_t block; /**< index in the event, ascending */
	uint64_t hash;
};

/** Text inside the payload; not terminated. */
struct kvr_kvev_text {
	const char *p;
	uint32_t len;
};

/** One event. Fields absent from the payload are zero. */
struct kvr_kvev {
	enum kvr_kvev_type type;
	enum kvr_kvev_fault fault;
	struct kvr_kvev_text raw; /**< the whole event in the payload */
	const uint64_t *hashes;	  /**< names of the blocks, as given by the engine */
	uint32_t n_hashes;
	bool has_parent;
	uint64_t parent;
	const uint32_t *tokens; /**< of all blocks; NULL if the engine only moves blocks */
	uint32_t n_tokens;
	bool eagle; /**< tokens came as pairs: the last block has one token more */
	uint32_t block_size;
	enum kvr_tier tier;
	struct kvr_kvev_text lora, salt; /**< salt: without KVR_HASH_SALT_TAG */
	bool adapted; /**< lora_id was set: blocks of an adapter, unknown if `lora` is empty */
	const struct kvr_kvev_mm *mm;
	uint32_t n_mm;
	uint32_t strange_block; /**< first block with an unsupported key; UINT32_MAX: none */
	bool has_group;
	uint32_t group;
	bool full_group;  /**< the group's kind is given as full attention */
	bool other_group; /**< the group's kind is given as another one */
	bool foreign;	  /**< a remote block, or a block of another owner */
	bool lookahead;	  /**< the names also cover tokens behind their blocks */
	bool reused;	  /**< stores blocks that were found cached: no new copies */
};

/** Fields of a batch besides its events. */
struct kvr_kvev_batch {
	double ts;
	bool has_rank;
	uint32_t rank;
	uint32_t n_events;
};

/**
 * Create a decoder.
 * @param first_bytes names given as bytes become numbers by their first 8 bytes (SGLang) instead of
 * their last 8 (vLLM).
 * @return NULL: ENOMEM.
 */
struct kvr_kvev_decoder *kvr_kvev_create(bool first_bytes);

/** Destroy a decoder. NULL is allowed. */
void kvr_kvev_destroy(struct kvr_kvev_decoder *decoder);

/**
 * Open a payload, which must remain valid until its last event was read.
 * @return 0; -EBADMSG: not a batch.
 */
int kvr_kvev_open(struct kvr_kvev_decoder *decoder, const void *payload, size_t len,
		  struct kvr_kvev_batch *batch);

/**
 * Read the next event.
 * @return 1: *ev is filled; 0: the batch ended as expected; -EBADMSG: the rest cannot be parsed;
 * -ENOMEM.
 */
int kvr_kvev_next(struct kvr_kvev_decoder *decoder, struct kvr_kvev *ev);

#endif
