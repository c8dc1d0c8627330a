/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_WIRE_HINTS_H
#define KVR_WIRE_HINTS_H

/**
 * @file
 * Hints: the optional part of ROUTE, DISPATCH, POTENTIAL_LOADS, ACCEPTED, HELLO and CONNECT. Part
 * of kvr_wire.h, which says how its structs may be used; kvr_hints.h reads and writes them.
 */

#include <stdint.h>

#include <rte_common.h>

/**
 * Hints: {u16 type, u16 len, len bytes, zero padding to 8}. Types with KVR_HINT_CRITICAL must be
 * understood or the request is rejected; others are skipped when unknown. Strings are UTF-8
 * without terminator. f64 is IEEE 754. Repeatable where said.
 */
#define KVR_HINT_CRITICAL 0x8000u
enum kvr_wire_hint {
	KVR_HINT_PAD = 0,		       /* nothing */
	KVR_HINT_LORA = 1,		       /* string: adapter name, at most 255 bytes */
	KVR_HINT_NAMESPACE = 2,		       /* string: cache namespace, at most 255 bytes */
	KVR_HINT_BACKEND = 3 | 0x8000,	       /* u64 backend_instance_id */
	KVR_HINT_PREFILL_WORKER = 4 | 0x8000,  /* u64; in a decode leg: where it was prefilled */
	KVR_HINT_DECODE_WORKER = 5 | 0x8000,   /* u64 */
	KVR_HINT_DP_RANK = 6 | 0x8000,	       /* u32 */
	KVR_HINT_PREFILL_DP_RANK = 7 | 0x8000, /* u32 */
	KVR_HINT_ALLOWED_WORKERS = 8 | 0x8000, /* u64[]; empty allows nobody */
	KVR_HINT_REQUIRED_TAINT = 9 | 0x8000,  /* string, repeatable */
	KVR_HINT_PREFERRED_TAINT = 10,	       /* f64 weight, then string, repeatable */
	KVR_HINT_PRIORITY_JUMP = 11,	       /* f64 seconds */
	KVR_HINT_STRICT_PRIORITY = 12,	       /* u32 */
	KVR_HINT_PRIORITY = 13,		       /* i32, for the engine */
	KVR_HINT_POLICY_CLASS = 14,	       /* string */
	KVR_HINT_OVERRIDE = 15 | 0x8000, /* u32 field (enum kvr_wire_override), u32 0, f64 value;
					  * repeatable; booleans are 0.0 or 1.0 */
	KVR_HINT_SESSION = 16,		 /* u8 action (enum kvr_wire_session_action), u8[3] 0,
					  * u32 timeout_s (KVR_NONE32: the default), session id */
	KVR_HINT_MM = 17, /* u32 block, u32 n <= 64, u64 mm_hash[n]; repeatable, ascending */
	KVR_HINT_SHARED_HITS = 18,    /* u32 start, u32 end: half-open block range; repeatable */
	KVR_HINT_BOOTSTRAP = 19,      /* DISPATCH: u64 room, u16 port, u8[6] 0, host string */
	KVR_HINT_PREFILL_RESULT = 20, /* DISPATCH: data of the last item of the prefill leg */
	KVR_HINT_TRACE = 21,	      /* opaque, at most 64 bytes, passed on */
	KVR_HINT_BODY = 22 | 0x8000,  /* with AWAY: u64 bytes, u8[16] one-time token */
	KVR_HINT_FAILED_AT = 23,      /* {u64 worker, u32 dp_rank, u32 0}[1..4] */
	/* In HELLO only: */
	KVR_HINT_POOL = 32 | 0x8000,  /* string: pool name (CONNECT too, repeatable) */
	KVR_HINT_TAINT = 33,	      /* string, repeatable */
	KVR_HINT_TOPOLOGY = 34,	      /* string "key=value", repeatable */
	KVR_HINT_KV_TRANSFER = 35,    /* u8 enforcement (0 none, 1 preferred, 2 required),
				       * u8[7] 0, f64 weight, then domain string */
	KVR_HINT_BOOTSTRAP_ADDR = 36, /* u16 port, u8[6] 0, host string */
	KVR_HINT_ENGINE_ADDR = 37,    /* "host:port" of its HTTP; ACCEPTED too, of `worker` */
	KVR_HINT_BODY_ADDR = 39,      /* "host:port" that takes bodies; ACCEPTED too */
	/* In ACCEPTED only: */
	KVR_HINT_PREFILL_ENGINE_ADDR = 38, /* the same of `prefill_worker` */
	KVR_HINT_PREFILL_BODY_ADDR = 40,   /* likewise */
	/* In the last item (RESPONSE); the second and third in the DISPATCH of a decode leg, too:
	 */
	KVR_HINT_TRACKER = 41,	      /* struct kvr_wire_tracker */
	KVR_HINT_PROMPT_DETAILS = 42, /* opaque, at most 512 bytes: prompt_tokens_details */
	KVR_HINT_TRACE_LINK = 43,     /* opaque, at most 64 bytes */
	KVR_HINT_RANK = 44,	      /* u64 worker, u32 dp_rank, u32 0: the rank that has failed */
};

enum kvr_wire_override {
	KVR_OVERRIDE_OVERLAP_SCORE_WEIGHT = 1,
	KVR_OVERRIDE_ROUTER_TEMPERATURE = 2,
	KVR_OVERRIDE_ASSUME_KV_REUSE = 3,
	KVR_OVERRIDE_TRACK_PREFILL_TOKENS = 4,
	KVR_OVERRIDE_SHARED_CACHE_MULTIPLIER = 5,
	KVR_OVERRIDE_OVERLAP_SCORE_CREDIT = 6,
	KVR_OVERRIDE_PREFILL_LOAD_SCALE = 7,
};

enum kvr_wire_session_action {
	KVR_ACTION_NONE = 0, /* go where the session is */
	KVR_ACTION_OPEN = 1,
	KVR_ACTION_CLOSE = 2
};

#define KVR_HINT_MAX_DETAILS 512u

/** Entry of FAILED_AT, and value of RANK: 16 bytes. */
struct kvr_wire_rank {
	uint64_t worker;
	uint32_t dp_rank; /* UINT32_MAX: all ranks of the worker */
	uint32_t reserved;
} __rte_packed;

struct kvr_wire_tlv {
	uint16_t type;
	uint16_t len;
} __rte_packed;

#endif
