/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_HINTS_H
#define KVR_HINTS_H

/**
 * @file
 * Hints (TLVs) of ROUTE, DISPATCH, ACCEPTED, HELLO and CONNECT: walking, parsing into a plain
 * struct, and writing. Pure, no allocation; results point into the hint bytes, so they live as long
 * as those. Parsing costs 15 ns and about 4 ns a hint; the struct is 1.9 KiB, on the caller's
 * stack.
 *
 * Rules: a type that does not repeat may occur once; unknown types are skipped unless they are
 * critical; types of another message are unknown in this one; strings are valid UTF-8 without
 * control characters; numbers are finite; padding is zero.
 */

#include "kvr_frame.h"

#include <string.h>

/** Bounds of the arrays below; more of them is KVR_E_HINT. */
#define KVR_HINTS_MAX_TAINTS   16u /* required, preferred, and those of HELLO: each */
#define KVR_HINTS_MAX_SHARED   32u /* ranges of shared hits */
#define KVR_HINTS_MAX_POOLS    16u /* names in CONNECT; HELLO has exactly one */
#define KVR_HINTS_MAX_TOPOLOGY 8u

/** Longest strings, bytes. */
#define KVR_HINT_MAX_NAME    255u /* LoRA, namespace, taint, policy class, topology */
#define KVR_HINT_MAX_POOL    63u
#define KVR_HINT_MAX_SESSION 256u
#define KVR_HINT_MAX_TRACE   64u
#define KVR_HINT_MAX_ADDR    100u /* two of them and ACCEPTED: KVR_WIRE_ASKING_LEAST */
/** Most multimodal hashes of one block; hashing takes no more. */
#define KVR_HINT_MAX_MM 64u
/** Most ranks in FAILED_AT. */
#define KVR_HINT_MAX_FAILED_AT 4u

/** Which message the hints are in. */
enum kvr_hints_in {
	KVR_HINTS_ROUTE,
	KVR_HINTS_DISPATCH,
	KVR_HINTS_HELLO,
	KVR_HINTS_CONNECT,
	KVR_HINTS_ACCEPTED
};

/** Bytes of a hint; not terminated. */
struct kvr_str {
	const char *p;
	uint32_t len;
};

/** One TLV as it stands in the message. */
struct kvr_tlv {
	const uint8_t *value; /* unaligned */
	uint16_t type;	      /* with KVR_HINT_CRITICAL */
	uint16_t len;
};

/** Presence bits of struct kvr_hints: bit of a hint type (both are below 64). */
#define KVR_HAS(type) (UINT64_C(1) << ((type)&0x3fu))
/** Bits of what no hint carries; the router sets them for its scheduler. */
#define KVR_HAS_EXPECTED_OUTPUT (UINT64_C(1) << 62)
#define KVR_HAS_EXCLUDE		(UINT64_C(1) << 63)

/** PREFERRED_TAINT. */
struct kvr_hint_preferred {
	struct kvr_str taint;
	double weight; /* finite; negative repels */
};

/** SHARED_HITS: blocks [start, end). */
struct kvr_hint_range {
	uint32_t start, end;
};

/** OVERRIDE. */
struct kvr_hint_overrides {
	uint32_t given;	 /* bit n: override n (enum kvr_wire_override) */
	double value[8]; /* by enum kvr_wire_override; in its legal range */
};

/** SESSION. */
struct kvr_hint_session {
	uint8_t action;	    /* enum kvr_wire_session_action */
	uint32_t timeout_s; /* 1..KVR_WIRE_SESSION_MAX_S, the default when not given */
	struct kvr_str id;
};

/** BOOTSTRAP; BOOTSTRAP_ADDR without `room`. */
struct kvr_hint_bootstrap {
	uint64_t room;
	uint16_t port;
	struct kvr_str host; /* len 0 = absent */
};

/** KV_TRANSFER. */
struct kvr_hint_kv_transfer {
	uint8_t enforcement; /* 0 none, 1 preferred, 2 required */
	double weight;
	struct kvr_str domain;
};

/** BODY. */
struct kvr_hint_body {
	uint64_t len;
	const uint8_t *token; /* KVR_WIRE_TOKEN bytes */
};

/**
 * The hints of a message. Absent values are 0. Pointers refer to the bytes of the message or to
 * struct kvr_hint_lists, so a copy is as valid as the original. A scheduler reads the struct as the
 * router has completed it (lib/sched/kvr_sched_request.h).
 */
struct kvr_hints {
	uint64_t present; /* KVR_HAS(KVR_HINT_*), KVR_HAS_* */

	uint64_t backend_worker;
	uint64_t prefill_worker;
	uint64_t decode_worker;
	uint32_t dp_rank;
	uint32_t prefill_dp_rank;
	const void *allowed; /* n_allowed unaligned u64: kvr_hints_allowed() */
	const struct kvr_wire_rank *failed_at;
	const struct kvr_str *required;
	const struct kvr_hint_preferred *preferred;
	const struct kvr_hint_range *shared; /* ascending, disjoint, not empty */
	uint32_t n_allowed;		     /* 0 allows no worker, if ALLOWED_WORKERS is present */
	uint32_t n_failed_at;
	uint32_t n_required;
	uint32_t n_preferred;
	uint32_t n_shared;

	uint32_t strict_priority;
	int32_t priority;
	double priority_jump; /* seconds; below 0 counts as 0 */
	struct kvr_str lora;
	struct kvr_str ns; /* cache namespace */
	struct kvr_str policy;
	struct kvr_hint_session session;
	struct kvr_str trace;	       /* opaque */
	struct kvr_str prefill_result; /* opaque */
	struct kvr_hint_bootstrap bootstrap;
	struct kvr_hint_body body;
	struct kvr_hint_overrides overrides;

	/* No hints: the router sets them. */
	uint64_t exclude_worker;	 /* not chosen, unless it is pinned */
	uint32_t expected_output_tokens; /* of the fixed part */
	uint32_t policy_class;		 /* index of `policy` in the pool */

	const uint8_t *tlvs; /* the hint bytes, for walking */
	uint32_t tlvs_len;
	uint32_t n_mm; /* MM hints, ascending by block: walk with kvr_mm_next() */

	/* ACCEPTED, HELLO and CONNECT */
	struct kvr_str engine_addr, prefill_engine_addr;
	struct kvr_str body_addr, prefill_body_addr;
	const struct kvr_str *pools, *taints;
	const struct kvr_str *topology; /* "key=value", neither part empty */
	uint32_t n_pools;
	uint32_t n_taints;
	uint32_t n_topology;
	struct kvr_hint_kv_transfer kv_transfer;
	struct kvr_hint_bootstrap bootstrap_addr;
};

/** Memory for the lists of struct kvr_hints; more entries are KVR_E_HINT. */
struct kvr_hint_lists {
	struct kvr_str required[KVR_HINTS_MAX_TAINTS];
	struct kvr_hint_preferred preferred[KVR_HINTS_MAX_TAINTS];
	struct kvr_hint_range shared[KVR_HINTS_MAX_SHARED];
	struct kvr_str pools[KVR_HINTS_MAX_POOLS];
	struct kvr_str taints[KVR_HINTS_MAX_TAINTS];
	struct kvr_str topology[KVR_HINTS_MAX_TOPOLOGY];
};

/** Walk of TLVs; fields are private. */
struct kvr_tlv_iter {
	const uint8_t *p;
	uint32_t left;
};

/** Start a walk over @p len bytes at @p p. */
static inline struct kvr_tlv_iter kvr_tlv_begin(const void *p, uint32_t len)
{
	return (struct kvr_tlv_iter){.p = p, .left = len};
}

/**
 * Next TLV, PAD included.
 * @return 1; 0 at the end; -EBADMSG when a TLV leaves the bytes or its padding is not zero.
 */
int kvr_tlv_next(struct kvr_tlv_iter *it, struct kvr_tlv *out);

/**
 * Parse and check all hints of a message.
 * @param p hint bytes, unaligned; @p len a multiple of 8, at most KVR_WIRE_MAX_HINTS.
 * @param lists not initialized; must remain valid as long as *out.
 * @return 0 or KVR_E_HINT, KVR_E_INVALID_OVERRIDE, KVR_E_INVALID_SESSION, KVR_E_TOO_LARGE; *out is
 * then partly filled and must not be used.
 */
enum kvr_code kvr_hints_parse(const void *p, uint32_t len, enum kvr_hints_in in,
			      struct kvr_hints *out, struct kvr_hint_lists *lists);

/** True if @p value is legal for field @p field (enum kvr_wire_override) of OVERRIDE. */
bool kvr_override_ok(uint32_t field, double value);

/** Value of an override, or @p otherwise if it is not given. */
static inline double kvr_override(const struct kvr_hints *h, enum kvr_wire_override field,
				  double otherwise)
{
	return (h->overrides.given >> field & 1) != 0 ? h->overrides.value[field] : otherwise;
}

/** True for 1 to KVR_HINT_MAX_SESSION bytes of text: what names a session, here and in messages. */
bool kvr_session_id_ok(const void *id, uint32_t len);

/** Hints of a ROUTE that has AWAY, and of no other. */
static inline bool kvr_hints_say_away(const struct kvr_hints *h)
{
	return (h->present & KVR_HAS(KVR_HINT_BODY)) != 0;
}

/** Allowed worker @p i of n_allowed. */
static inline uint64_t kvr_hints_allowed(const struct kvr_hints *h, uint32_t i)
{
	uint64_t worker;

	memcpy(&worker, (const uint8_t *)h->allowed + (size_t)i * sizeof(worker), sizeof(worker));
	return worker;
}

/** True when @p worker may serve the request as far as ALLOWED_WORKERS is concerned. */
bool kvr_hints_allows(const struct kvr_hints *h, uint64_t worker);

/** Multimodal hashes of one block. */
struct kvr_mm {
	uint32_t block;
	uint32_t n;
	const uint8_t *hashes; /* n unaligned u64 */
};

/** Next MM hint of parsed hints, blocks ascending. @return false at the end. */
bool kvr_mm_next(struct kvr_tlv_iter *it, struct kvr_mm *out);

/** Writer of TLVs into caller memory; zeroed padding; the first error sticks. */
struct kvr_hint_buf {
	uint8_t *p;
	uint32_t cap;
	uint32_t len; /* bytes written, a multiple of 8: hints_len */
	int err;      /* 0, or -EMSGSIZE: did not fit, -EINVAL: a value is not legal, -EBADMSG:
		       * what was to be copied is malformed */
};

/**
 * Append the hints of another message as they are, but for PAD and the types in @p drop (which have
 * KVR_HINT_CRITICAL if they are): a router makes the hints of a DISPATCH so, and puts its own
 * behind. @p in may be hostile, must not overlap the buffer, and needs no alignment.
 * @return out->err: 0; -EBADMSG a TLV leaves its bytes or its padding is not zero; -EMSGSIZE no
 * room. What was copied before an error stays.
 */
int kvr_hints_rewrite(const void *in, uint32_t in_len, const uint16_t drop[], uint32_t n_drop,
		      struct kvr_hint_buf *out);

/** Append one TLV whose value is @p a followed by @p b (either may be empty). */
void kvr_hint_put(struct kvr_hint_buf *h, uint16_t type, const void *a, uint32_t a_len,
		  const void *b, uint32_t b_len);

void kvr_hint_put_str(struct kvr_hint_buf *h, uint16_t type, const char *s);
void kvr_hint_put_u32(struct kvr_hint_buf *h, uint16_t type, uint32_t v);
void kvr_hint_put_u64(struct kvr_hint_buf *h, uint16_t type, uint64_t v);
void kvr_hint_put_f64(struct kvr_hint_buf *h, uint16_t type, double v);
/** ALLOWED_WORKERS. */
void kvr_hint_put_allowed(struct kvr_hint_buf *h, const uint64_t worker[], uint32_t n);
/** RANK of a RESPONSE, and FAILED_AT of a ROUTE with @p n of them. */
void kvr_hint_put_ranks(struct kvr_hint_buf *h, uint16_t type, const uint64_t worker[],
			const uint32_t dp_rank[], uint32_t n);
/** PREFERRED_TAINT. */
void kvr_hint_put_preferred(struct kvr_hint_buf *h, double weight, const char *taint);
/** OVERRIDE of one field. */
void kvr_hint_put_override(struct kvr_hint_buf *h, uint32_t field, double value);
/** SESSION; @p timeout_s KVR_NONE32: the default. */
void kvr_hint_put_session(struct kvr_hint_buf *h, uint8_t action, uint32_t timeout_s,
			  const char *id);
/** MM hashes of one block; call with ascending blocks. */
void kvr_hint_put_mm(struct kvr_hint_buf *h, uint32_t block, const uint64_t hash[], uint32_t n);
/** One SHARED_HITS range [start, end). */
void kvr_hint_put_shared(struct kvr_hint_buf *h, uint32_t start, uint32_t end);
/** BOOTSTRAP of a DISPATCH. */
void kvr_hint_put_bootstrap(struct kvr_hint_buf *h, uint64_t room, uint16_t port, const char *host);
/** BOOTSTRAP_ADDR of a HELLO. */
void kvr_hint_put_bootstrap_addr(struct kvr_hint_buf *h, uint16_t port, const char *host);
/** BODY of a ROUTE. */
void kvr_hint_put_body(struct kvr_hint_buf *h, uint64_t len, const uint8_t token[KVR_WIRE_TOKEN]);
/** KV_TRANSFER of a HELLO. */
void kvr_hint_put_kv_transfer(struct kvr_hint_buf *h, uint8_t enforcement, double weight,
			      const char *domain);

#endif
