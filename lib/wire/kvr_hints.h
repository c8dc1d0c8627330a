/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_HINTS_H
#define KVR_HINTS_H

/**
 * @file
 * Hints (TLVs) of messages: walking, parsing into a plain struct, and writing. Pure, no allocation;
 * results point into the hint bytes and are valid as long as these. Parsing costs 15 ns and about
 * 4 ns per hint.
 *
 * Rules: a type with one entry may occur once; unknown types are skipped unless they are critical;
 * types of another message are unknown in this one; strings are valid UTF-8 without control
 * characters; numbers are finite; padding is zero.
 */

#include "kvr_frame.h"

#include <string.h>

/** Which message the hints are in. */
enum kvr_hints_in {
	KVR_HINTS_ROUTE,
	KVR_HINTS_DISPATCH,
	KVR_HINTS_ACCEPTED,
	KVR_HINTS_ITEM, /* RESPONSE with FIN */
	KVR_HINTS_HELLO,
	KVR_HINTS_CONNECT,
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
	uint32_t given;			 /* bit n: override n (enum kvr_wire_override) */
	double value[KVR_OVERRIDES_END]; /* by enum kvr_wire_override; in its legal range */
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

/* clang-format off */

/* Members of struct kvr_hints, by format. Of a list, the pointer and then the number of entries. */
#define KVR_MEMBER_U64(m) uint64_t m;
#define KVR_MEMBER_U32(m) uint32_t m;
#define KVR_MEMBER_I32(m) int32_t m;
#define KVR_MEMBER_F64(m) double m;
#define KVR_MEMBER_TEXT(m) struct kvr_str m;
#define KVR_MEMBER_BYTES(m) struct kvr_str m;
#define KVR_MEMBER_TEXTS(m) const struct kvr_str *m; uint32_t n_##m;
#define KVR_MEMBER_PAIRS(m) const struct kvr_str *m; uint32_t n_##m;
#define KVR_MEMBER_PREFERRED(m) const struct kvr_hint_preferred *m; uint32_t n_##m;
#define KVR_MEMBER_RANGES(m) const struct kvr_hint_range *m; uint32_t n_##m;
#define KVR_MEMBER_U64S(m) const void *m; uint32_t n_##m;
#define KVR_MEMBER_RANKS(m) const struct kvr_wire_rank *m; uint32_t n_##m;
#define KVR_MEMBER_MM(m) uint32_t n_##m;
#define KVR_MEMBER_OVERRIDE(m) struct kvr_hint_overrides m;
#define KVR_MEMBER_SESSION(m) struct kvr_hint_session m;
#define KVR_MEMBER_BODY(m) struct kvr_hint_body m;
#define KVR_MEMBER_BOOTSTRAP(m) struct kvr_hint_bootstrap m;
#define KVR_MEMBER_BOOTSTRAP_ADDR(m) struct kvr_hint_bootstrap m;
#define KVR_MEMBER_KV_TRANSFER(m) struct kvr_hint_kv_transfer m;
#define KVR_MEMBER_TRACKER(m) const struct kvr_wire_tracker *m;

/* Memory of the lists that are not read in place. */
#define KVR_STORE_U64(m, n)
#define KVR_STORE_U32(m, n)
#define KVR_STORE_I32(m, n)
#define KVR_STORE_F64(m, n)
#define KVR_STORE_TEXT(m, n)
#define KVR_STORE_BYTES(m, n)
#define KVR_STORE_TEXTS(m, n) struct kvr_str m[n];
#define KVR_STORE_PAIRS(m, n) struct kvr_str m[n];
#define KVR_STORE_PREFERRED(m, n) struct kvr_hint_preferred m[n];
#define KVR_STORE_RANGES(m, n) struct kvr_hint_range m[n];
#define KVR_STORE_U64S(m, n)
#define KVR_STORE_RANKS(m, n)
#define KVR_STORE_MM(m, n)
#define KVR_STORE_OVERRIDE(m, n)
#define KVR_STORE_SESSION(m, n)
#define KVR_STORE_BODY(m, n)
#define KVR_STORE_BOOTSTRAP(m, n)
#define KVR_STORE_BOOTSTRAP_ADDR(m, n)
#define KVR_STORE_KV_TRANSFER(m, n)
#define KVR_STORE_TRACKER(m, n)

/* clang-format on */

#define KVR_HINT_MEMBER(name, type, in, format, least, most, entries, member, ...)                 \
	KVR_MEMBER_##format(member)
#define KVR_HINT_STORE(name, type, in, format, least, most, entries, member, ...)                  \
	KVR_STORE_##format(member, entries)

/** Memory for the lists of struct kvr_hints. */
struct kvr_hint_lists {
	KVR_HINTS(KVR_HINT_STORE)
};

/**
 * The hints of a message: a member for each row of KVR_HINTS in protocol.h. Absent values are 0; in
 * a request, members of the hints of other messages are not set. Pointers refer to the bytes of the
 * message or to struct kvr_hint_lists, so that a copy is as valid as the original.
 */
struct kvr_hints {
	uint64_t present; /* KVR_HAS(KVR_HINT_*), KVR_HAS_* */

	/* No hints: the router sets them for its scheduler. */
	uint64_t exclude_worker;	 /* not chosen, unless it is pinned */
	uint32_t expected_output_tokens; /* of the fixed part */
	uint32_t policy_class;		 /* index of `policy` in the pool */

	const uint8_t *tlvs; /* the hint bytes, for walking */
	uint32_t tlvs_len;

	KVR_REQUEST_HINTS(KVR_HINT_MEMBER)
	KVR_DISPATCH_HINTS(KVR_HINT_MEMBER)
	KVR_ACCEPTED_HINTS(KVR_HINT_MEMBER) /* the first of other messages */
	KVR_ITEM_HINTS(KVR_HINT_MEMBER)
	KVR_WORKER_HINTS(KVR_HINT_MEMBER)
};

/* clang-format off */

/** Formats of values, as in protocol.h. */
enum kvr_hint_format {
	KVR_FORMAT_U64 = 1, KVR_FORMAT_U32, KVR_FORMAT_I32, KVR_FORMAT_F64, KVR_FORMAT_TEXT, KVR_FORMAT_BYTES,
	KVR_FORMAT_TEXTS, KVR_FORMAT_PAIRS, KVR_FORMAT_PREFERRED, KVR_FORMAT_RANGES, KVR_FORMAT_U64S,
	KVR_FORMAT_RANKS, KVR_FORMAT_MM, KVR_FORMAT_OVERRIDE, KVR_FORMAT_SESSION, KVR_FORMAT_BODY,
	KVR_FORMAT_BOOTSTRAP, KVR_FORMAT_BOOTSTRAP_ADDR, KVR_FORMAT_KV_TRANSFER, KVR_FORMAT_TRACKER,
};

/* clang-format on */

/** A row of KVR_HINTS. */
struct kvr_hint_row {
	uint16_t type;
	uint8_t format; /* enum kvr_hint_format; 0: no such hint */
	uint8_t in;	/* bits by enum kvr_hints_in */
	uint16_t least, most;
	uint32_t entries;
	uint16_t at;	/* offset in struct kvr_hints */
	uint16_t store; /* offset in struct kvr_hint_lists */
	const char *name;
	const char *header; /* "" = none */
	const char *json;   /* likewise */
};

#define KVR_HINT_ROWS 64u

/** All hints, by type & 0x3f. */
extern const struct kvr_hint_row kvr_hint_rows[KVR_HINT_ROWS];

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

/** True for 1 to KVR_HINT_MAX_SESSION bytes of text: a legal session id. */
bool kvr_session_id_ok(const void *id, uint32_t len);

/** True if the hint BODY is present: required with the flag AWAY, forbidden without. */
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

/** True if ALLOWED_WORKERS is absent or contains @p worker. */
bool kvr_hints_allows(const struct kvr_hints *h, uint64_t worker);

/** Multimodal hashes of one block. */
struct kvr_mm {
	uint32_t block;
	uint32_t n;
	const uint8_t *hashes; /* n unaligned u64 */
};

/** Next MM hint of parsed hints, blocks ascending. @return false at the end. */
bool kvr_mm_next(struct kvr_tlv_iter *it, struct kvr_mm *out);

/** Writer of TLVs into caller memory; padding is zeroed; the first error is kept. */
struct kvr_hint_buf {
	uint8_t *p;
	uint32_t cap;
	uint32_t len; /* bytes written, a multiple of 8: hints_len */
	int err;      /* 0, or -EMSGSIZE: does not fit, -EINVAL: illegal value, -EBADMSG:
		       * the hints to be copied are malformed */
};

/**
 * Append the hints of another message unchanged, except PAD and the types in @p drop (with
 * KVR_HINT_CRITICAL where critical). A router makes the hints of a DISPATCH this way, and appends
 * its own. @p in may be hostile, must not overlap the buffer, and needs no alignment.
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
