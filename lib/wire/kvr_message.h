/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_MESSAGE_H
#define KVR_MESSAGE_H

/**
 * @file
 * Message bodies: checks of every kind, parsing of requests, walks over KV events. The input may be
 * hostile: after a result of 0 every length, count and reserved byte has been checked, and the body
 * may be read in place through the packed structs of protocol.h. Pure, no allocation, any thread.
 * Contiguous means in one piece of memory; a message that arrived in fragments is passed as slices
 * and never joined.
 */

#include "kvr_hints.h"

#include <stdalign.h>

/** Reason for a REJECTED: detail[0] = seen, detail[1] = allowed, and a text. */
struct kvr_fault {
	uint64_t seen;
	uint64_t allowed;
	const char *text; /* static string, not NULL after an error */
};

/** A checked ROUTE, DISPATCH or POTENTIAL_LOADS. Offsets are from the start of the body. */
struct kvr_message {
	struct kvr_wire_request fixed; /* copy of the fixed part */
	uint32_t hashes_off;
	uint32_t tokens_off;
	uint32_t hints_off;
	uint32_t body_off;
	uint32_t result_off;
	/* In place (unaligned) when contiguous, else NULL: gather with kvr_slices_at(). */
	const void *hashes; /* fixed.n_hashes u64 */
	const void *tokens; /* fixed.n_tokens u32 */
	const void *hints;  /* fixed.hints_len bytes */
	const void *body;   /* fixed.body_len bytes */
	const void *result; /* fixed.result_len bytes */
	struct kvr_fault fault;
};

/** Prompt tokens that the engine sees, the start of the count of output blocks: n_tokens if there
 * are hashes and tokens, else `isl`. */
static inline uint32_t kvr_request_exec_isl(const struct kvr_wire_request *q)
{
	return q->n_hashes != 0 && q->n_tokens != 0 ? q->n_tokens : q->isl;
}

/**
 * Check the fixed part of a request of @p msg_len body bytes and compute its offsets; the
 * pointers are set to NULL. Only the 88 bytes at @p fixed are read.
 * @param kind KVR_ROUTE, KVR_POTENTIAL_LOADS (router-owned fields must be 0) or KVR_DISPATCH.
 * @return 0 or E_LENGTH, E_FLAGS, E_TOO_LARGE, E_EMPTY_PROMPT, E_INVALID_REQUEST with out->fault;
 * the rest of *out must not be used then.
 */
enum kvr_code kvr_request_parse_fixed(const void *fixed, uint8_t kind, uint32_t msg_len,
				      struct kvr_message *out);

/** As above for a whole contiguous body; also checks padding and sets the pointers. */
enum kvr_code kvr_request_parse(const void *body, uint32_t len, uint8_t kind,
				struct kvr_message *out);

/**
 * As above for a body in slices, in order. The pointers are set where the part lies in one
 * slice. Reads the fixed part and the padding only: hashes, tokens and body are not touched.
 */
enum kvr_code kvr_request_parse_slices(const struct kvr_slice *s, uint32_t n, uint8_t kind,
				       struct kvr_message *out);

/** Source of a request to be sent. */
struct kvr_request_src {
	struct kvr_wire_request fixed; /* the five counts are filled in by kvr_request_build() */
	const void *hashes;	       /* n_hashes u64 */
	const void *tokens;	       /* n_tokens u32 */
	const void *hints;	       /* hints_len bytes, a multiple of 8 */
	const void *body;	       /* body_len bytes */
	const void *result;	       /* DISPATCH of a decode leg: result_len bytes */
	uint32_t n_hashes;
	uint32_t n_tokens;
	uint32_t hints_len;
	uint32_t body_len;
	uint32_t result_len;
};

#define KVR_REQUEST_SLICES 9 /* fixed, hashes, tokens + pad, hints, body + pad, result + pad */

/**
 * Describe the message body as slices over the caller's memory, ready for kvr_frag_init() and
 * kvr_slices_copy(); src must stay as it is while they are used.
 * @return the body's length, or 0 when a count is above its limit (no message is empty).
 */
uint32_t kvr_request_build(struct kvr_request_src *src,
			   struct kvr_slice slices[KVR_REQUEST_SLICES]);

/**
 * Check the whole contiguous body of any kind, hints included.
 * @param fault may be NULL.
 * @return 0 or an enum kvr_code.
 */
enum kvr_code kvr_body_check(uint8_t kind, const void *body, uint32_t len, struct kvr_fault *fault);

/**
 * Check the first fragment of a RESPONSE like kvr_body_check(), except the padding, which may be in
 * another frame. @p head: its fixed part; @p len: body bytes of the whole message. @p fault
 * may be NULL.
 */
enum kvr_code kvr_response_check_head(const void *head, uint32_t len, struct kvr_fault *fault);

/** One KV event in place. */
struct kvr_kv_event {
	uint8_t type; /* enum kvr_wire_kv_type */
	uint8_t tier;
	uint16_t flags;
	uint32_t n_blocks;
	uint64_t parent;       /* valid with KVR_KV_EV_F_PARENT */
	const uint8_t *hashes; /* n_blocks unaligned u64 */
};

/** Walk over the events of one body; fields are private but `left`. */
struct kvr_kv_iter {
	const uint8_t *p;
	uint32_t left; /* remaining events */
};

/** Check a KV_EVENTS body: kvr_body_check() of that kind. */
enum kvr_code kvr_kv_events_check(const void *body, uint32_t len);

/** Start a walk over a checked body. */
struct kvr_kv_iter kvr_kv_events_begin(const void *body);

/** Next event of a checked body. @return false at the end. */
static inline bool kvr_kv_events_next(struct kvr_kv_iter *it, struct kvr_kv_event *ev)
{
	const struct kvr_wire_kv_event *w = (const struct kvr_wire_kv_event *)it->p;

	if (it->left == 0)
		return false;
	ev->type = w->type;
	ev->tier = w->tier;
	ev->flags = w->flags;
	ev->n_blocks = w->n_blocks;
	ev->parent = w->parent;
	ev->hashes = it->p + sizeof(*w);
	it->p += sizeof(*w) + (size_t)w->n_blocks * 8;
	it->left--;
	return true;
}

/**
 * Digest of the client's part of a ROUTE: copies of a message have the same digest with any
 * fragmentation. RESEND and the fields of the router do not count. @p s: the whole body,
 * checked by kvr_request_parse_slices(). Not keyed: it distinguishes messages of one sender.
 */
uint64_t kvr_request_digest(const struct kvr_slice *s, uint32_t n);

#define KVR_DIGEST_BYTES 576

/** A digest in progress; fields are private. Owner: rw. */
struct kvr_digest {
	alignas(64) uint8_t state[KVR_DIGEST_BYTES];
};

/** Start a digest. */
void kvr_digest_begin(struct kvr_digest *d);

/** Add the next @p len bytes after the fixed part. */
void kvr_digest_add(struct kvr_digest *d, const void *p, uint32_t len);

/** The digest of a message with this fixed part. */
uint64_t kvr_digest_end(const struct kvr_digest *d, const struct kvr_wire_request *fixed);

#endif
