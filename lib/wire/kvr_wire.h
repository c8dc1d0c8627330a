/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_WIRE_H
#define KVR_WIRE_H

/**
 * @file
 * The kvroute protocol, version 1: layout of every frame and message. PROTOCOL.md says the same
 * in prose with examples; the two must agree to the byte.
 *
 * A *message* (kind + body) travels in one or more *frames*; a frame is one UDP datagram: a fixed
 * 48-byte header and a slice of the message body. Everything is little-endian, structs have no
 * hidden padding, arrays start at multiples of 8 from the start of the body. Structs here are
 * read in place from packet memory, which is not aligned: use them only through pointers to
 * these types (they are packed), never through pointers to their members' natural types.
 *
 * Identity of a request is (source, id), chosen by the client and carried unchanged by every
 * message about it in either direction. `handle` is the router's own name of a booked request:
 * it comes with DISPATCH and ACCEPTED and is echoed by everything sent about it later, so that
 * any frame of a relayed stream is switched by one array access. Messages about workers carry
 * the worker id in `source` and a sender-chosen number in `id`.
 *
 * A ROUTE and the DISPATCH made of it have the same size and layout: the router rewrites the
 * headers and the router-owned fields in place and forwards the frames without a copy.
 */

#include <stdint.h>

#include <rte_common.h>

#include "kvr_words.h"

#define KVR_WIRE_MAGIC	 0x564bu /* bytes 'K','V' */
#define KVR_WIRE_VERSION 1
#define KVR_WIRE_PORT	 7650 /* default UDP port of the router */

#define KVR_WIRE_MAX_TOKENS 1048576u
#define KVR_WIRE_MAX_HASHES 65536u
#define KVR_WIRE_MAX_HINTS  65536u
#define KVR_WIRE_MAX_BODY   1048576u
/** Largest message body: fixed part, hashes, tokens, hints and body, each padded to 8. */
#define KVR_WIRE_MAX_MESSAGE                                                                       \
	(sizeof(struct kvr_wire_request) + KVR_WIRE_MAX_HASHES * 8u + KVR_WIRE_MAX_TOKENS * 4u +   \
	 KVR_WIRE_MAX_HINTS + KVR_WIRE_MAX_BODY)
/** Smallest and largest UDP payload of a frame, header included. */
#define KVR_WIRE_MIN_FRAME 48u
#define KVR_WIRE_MAX_FRAME 8952u /* 9,000 byte IP packets less IPv6 40 and UDP 8 */
#define KVR_WIRE_DEF_FRAME 1432u /* 1,500 byte IPv6 packets less a VLAN tag's worth of slack */

/** Message kinds. Numbers are for ever. */
enum kvr_wire_kind {
	KVR_CONNECT = 1,	 /* client -> router: pools and limits, please */
	KVR_CONNECTED = 2,	 /* router -> client */
	KVR_ROUTE = 16,		 /* client -> router: struct kvr_wire_request */
	KVR_ACCEPTED = 17,	 /* router -> client: struct kvr_wire_accepted */
	KVR_REJECTED = 18,	 /* router -> anyone: struct kvr_wire_rejected */
	KVR_CANCEL = 19,	 /* client -> router: empty */
	KVR_CANCELLED = 20,	 /* router -> client: empty; sent for unknown ids too */
	KVR_PROBE = 21,		 /* client -> router: 8 zero bytes; answered ACCEPTED or REJECTED */
	KVR_MISSING = 22,	 /* receiver of a message in fragments -> its sender */
	KVR_DISPATCH = 24,	 /* router -> agent: struct kvr_wire_request */
	KVR_DISPATCH_ACK = 25,	 /* agent -> router: struct kvr_wire_dispatch_ack */
	KVR_RESPONSE = 26,	 /* agent -> client (relayed or direct): struct kvr_wire_response */
	KVR_RESPONSE_ACK = 27,	 /* client -> agent (relayed or direct) */
	KVR_PROGRESS = 28,	 /* agent -> router, direct path only: struct kvr_wire_progress */
	KVR_PROGRESS_ACK = 29,	 /* router -> agent: struct kvr_wire_progress_ack */
	KVR_ABORT = 30,		 /* router -> agent: stop this request: struct kvr_wire_abort */
	KVR_ABORT_ACK = 31,	 /* agent -> router: empty */
	KVR_HELLO = 32,		 /* agent -> router: struct kvr_wire_hello */
	KVR_WELCOME = 33,	 /* router -> agent: struct kvr_wire_welcome */
	KVR_HEARTBEAT = 34,	 /* agent -> router: struct kvr_wire_heartbeat */
	KVR_HEARTBEAT_ACK = 35,	 /* router -> agent: struct kvr_wire_heartbeat_ack */
	KVR_GOODBYE = 36,	 /* agent -> router: empty */
	KVR_GOODBYE_ACK = 37,	 /* router -> agent: empty */
	KVR_KV_EVENTS = 48,	 /* agent -> router: struct kvr_wire_kv_events */
	KVR_KV_ACK = 49,	 /* router -> agent: struct kvr_wire_kv_ack */
	KVR_SESSION_OPEN = 64,	 /* router -> agent: struct kvr_wire_session */
	KVR_SESSION_OPENED = 65, /* agent -> router: struct kvr_wire_session_status */
	KVR_SESSION_CLOSE = 66,	 /* router -> agent: struct kvr_wire_session */
	KVR_SESSION_CLOSED = 67, /* agent -> router: struct kvr_wire_session_status */
	KVR_SESSION_RELEASE = 68,  /* client -> router: struct kvr_wire_session */
	KVR_SESSION_RELEASED = 69, /* router -> client: struct kvr_wire_session_status */
	KVR_POTENTIAL_LOADS = 80,  /* client -> router: struct kvr_wire_request */
	KVR_LOADS = 81,		   /* router -> client: struct kvr_wire_loads and its entries */
	KVR_WIRE_KIND_MAX = 82,
};

/** Header of every frame: 48 bytes. */
struct kvr_wire_hdr {
	uint16_t magic;	   /* KVR_WIRE_MAGIC */
	uint8_t version;   /* KVR_WIRE_VERSION */
	uint8_t kind;	   /* enum kvr_wire_kind */
	uint16_t flags;	   /* KVR_WIRE_F_*; unknown bits must be 0 */
	uint16_t frag_len; /* body bytes in this frame: UDP payload = 48 + frag_len [+ trailer] */
	uint64_t source;   /* client (random 64 bits per client instance) or worker id */
	uint64_t id;	   /* request id of that client, or a number the sender chose */
	uint64_t handle;   /* router's name of the request, 0 = none */
	uint32_t msg_len;  /* body bytes of the whole message */
	uint32_t frag_off; /* first body byte carried here; a multiple of 8 */
	uint32_t epoch;	   /* epoch of the sending process (changes at every start, never 0) */
	uint32_t msg_seq;  /* rises with every message from this source that is not a repeat of
			    * the same bytes; together with (source, kind, id) it names the message
			    * that fragments belong to */
} __rte_packed;

#define KVR_WIRE_F_AUTH	 0x0001u /* (later) a 32-byte authentication trailer follows */
#define KVR_WIRE_F_KNOWN 0x0000u

/** Flags of struct kvr_wire_request. */
#define KVR_REQ_F_QUERY	      0x0001u /* choose, change nothing, send nothing to a worker */
#define KVR_REQ_F_RESEND      0x0002u /* the client has sent this request before */
#define KVR_REQ_F_DIRECT      0x0004u /* return path: agent to client without the router */
#define KVR_REQ_F_EAGLE	      0x0008u /* tokens are hashed in eagle windows (spec 1.2) */
#define KVR_REQ_F_PREFILL_LEG 0x0010u /* DISPATCH: prefill leg of a disaggregated request */
#define KVR_REQ_F_DECODE_LEG  0x0020u /* DISPATCH: its decode leg */
#define KVR_REQ_F_UNPROVEN    0x0040u /* DISPATCH: the client's address may be forged */
#define KVR_REQ_F_CLIENT      (KVR_REQ_F_QUERY | KVR_REQ_F_RESEND | KVR_REQ_F_DIRECT | KVR_REQ_F_EAGLE)
#define KVR_REQ_F_LEGS	      (KVR_REQ_F_PREFILL_LEG | KVR_REQ_F_DECODE_LEG)
/** Items that an agent sends to an unproven address before its first acknowledgement. */
#define KVR_WIRE_UNPROVEN_ITEMS 3u

#define KVR_NONE32 UINT32_MAX /* "not given" of 32-bit fields */

/**
 * Fixed part of ROUTE and DISPATCH: 88 bytes. After it, in this order, each padded with zero
 * bytes to a multiple of 8: hashes (n_hashes * 8), tokens (n_tokens * 4), hints (hints_len),
 * body (body_len). Hashes win for routing, and then isl must be at least n_hashes * block_size.
 * With tokens alone isl must be n_tokens. With neither, e.g. a prompt below one block whose tokens
 * only the engine needs, nothing is matched.
 */
struct kvr_wire_request {
	uint16_t pool;	   /* number from CONNECTED (or the configuration) */
	uint8_t phase;	   /* enum kvr_role */
	uint8_t reserved0; /* 0 */
	uint32_t flags;	   /* KVR_REQ_F_* */
	uint32_t isl;	   /* prompt tokens */
	uint32_t n_hashes;
	uint32_t n_tokens;
	uint32_t hints_len;		 /* bytes of TLVs, a multiple of 8 */
	uint32_t body_len;		 /* opaque bytes for the engine */
	uint32_t max_tokens;		 /* KVR_NONE32: not limited here */
	uint32_t expected_output_tokens; /* KVR_NONE32: unknown */
	uint32_t deadline_ms; /* 0: none; the router gives up waiting in its queue after this */
	/* Owned by the router: the client sends zeros (but for the cookie), DISPATCH carries
	 * values. */
	uint64_t worker; /* ROUTE, POTENTIAL_LOADS: the client's cookie, 0 = none */
	uint32_t dp_rank;
	uint32_t overlap_blocks; /* device blocks predicted to be cached */
	uint32_t cached_tokens;	 /* predicted cached tokens over all tiers */
	uint32_t attempt;	 /* 0, 1, ...: how often this request was dispatched before */
	uint8_t client_ip[16];	 /* IPv6, or IPv4 mapped (::ffff:a.b.c.d): target of direct items */
	uint16_t client_port;	 /* host order value, little-endian like everything */
	uint16_t client_frame;	 /* largest UDP payload the client takes; ROUTE carries it too */
	uint32_t reserved1;	 /* 0 */
} __rte_packed;

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
	/* In HELLO only: */
	KVR_HINT_POOL = 32 | 0x8000,  /* string: pool name (CONNECT too, repeatable) */
	KVR_HINT_TAINT = 33,	      /* string, repeatable */
	KVR_HINT_TOPOLOGY = 34,	      /* string "key=value", repeatable */
	KVR_HINT_KV_TRANSFER = 35,    /* u8 enforcement (0 none, 1 preferred, 2 required),
				       * u8[7] 0, f64 weight, then domain string */
	KVR_HINT_BOOTSTRAP_ADDR = 36, /* u16 port, u8[6] 0, host string */
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

#define KVR_WIRE_SESSION_DEF_S 300u	 /* idle time of a session that names none */
#define KVR_WIRE_SESSION_MAX_S 31536000u /* longest idle time: 365 days */
/*
 * Who remembers a request for how long, each longer than what it serves: a client that hears
 * nothing asks at least every 2 s and gives up after CLIENT_SILENCE_S; an agent keeps items that
 * nobody has acknowledged, and repeats them at least every second, so that the client's last
 * question finds them; a router relays for as long as an agent may repeat.
 */
#define KVR_WIRE_CLIENT_SILENCE_S 15u
#define KVR_WIRE_ITEMS_KEPT_S	  (KVR_WIRE_CLIENT_SILENCE_S + 2u)
#define KVR_WIRE_LINGER_S	  (KVR_WIRE_ITEMS_KEPT_S + 1u)

#define KVR_WIRE_SESSION_GRACE_S 30u /* the worker keeps a session this much longer */

struct kvr_wire_tlv {
	uint16_t type;
	uint16_t len;
} __rte_packed;

enum kvr_wire_state {
	KVR_STATE_QUERY = 0,	  /* answer to a query */
	KVR_STATE_QUEUED = 1,	  /* waiting for capacity; ACCEPTED comes again when it is sent */
	KVR_STATE_DISPATCHED = 2, /* sent to the worker, not acknowledged yet */
	KVR_STATE_RUNNING = 3,	  /* acknowledged by the worker or answering */
};

/** ACCEPTED: 56 bytes. Without a prefill leg the worker is 0 and its rank KVR_NONE32. */
struct kvr_wire_accepted {
	uint64_t worker;
	uint32_t dp_rank;
	uint32_t overlap_blocks; /* effective overlap at the worker, rounded */
	uint32_t required_blocks;
	uint32_t cached_tokens;
	uint16_t state;		 /* enum kvr_wire_state; when QUEUED the fields above are 0 */
	uint16_t flags;		 /* KVR_ACC_F_* */
	uint32_t queue_len;	 /* requests waiting in this pool */
	uint32_t pending_tokens; /* their prompt tokens, saturated */
	uint32_t prefill_overlap_blocks; /* as overlap_blocks, at the prefill worker */
	uint64_t prefill_worker;
	uint32_t prefill_dp_rank;
	uint16_t path; /* enum kvr_way */
	uint16_t reserved2;
} __rte_packed;

/** Flag of struct kvr_wire_accepted. */
#define KVR_ACC_F_KEPT 0x0001u /* the router has the message and repeats its DISPATCH itself */

/**
 * MISSING: what its sender lacks of a message that came in fragments: 24 bytes and n_words u64.
 * Fragments are numbered by frag_off / unit. Bit b of word w set: number first + 64 * w + b is
 * missing. Source, id and handle of the header are those of the message.
 */
struct kvr_wire_missing {
	uint8_t kind; /* of the message: ROUTE, DISPATCH or POTENTIAL_LOADS */
	uint8_t reserved0;
	uint16_t n_words; /* 1 or more */
	uint32_t msg_seq; /* of the message */
	uint32_t msg_len;
	uint32_t unit;	/* body bytes of every fragment but the last */
	uint32_t first; /* number of the fragment of bit 0, a multiple of 64 */
	uint32_t reserved1;
} __rte_packed;

/** What a source has too much of: detail[0] of SourceLimit. */
enum kvr_wire_source_limit {
	KVR_SHARE_REQUESTS = 1, /* live */
	KVR_SHARE_WAITING = 2,	/* for capacity, or for another leg */
	KVR_SHARE_SESSIONS = 3,
};

/**
 * REJECTED: 40 bytes and a text of text_len bytes, padded to 8. An answer is not longer than its
 * question when the address may be forged: the text, or all from `detail` on, may be missing.
 */
#define KVR_WIRE_REJECTED_LEAST 8u
struct kvr_wire_rejected {
	uint16_t code;	       /* enum kvr_code */
	uint8_t retryable;     /* 1: the same request may succeed later */
	uint8_t kind;	       /* kind of the refused message */
	uint16_t text_len;     /* human-readable reason, UTF-8, at most 255 */
	uint16_t policy_class; /* QueueRejected: index of the class, else 0 */
	uint64_t
		detail[4]; /* QueueRejected: limit kind (1 requests, 2 raw_isl_tokens,
			    * 3 cached_tokens), current, limit, 0; lengths: seen, allowed; else 0 */
} __rte_packed;

/** DISPATCH_ACK: 8 bytes. A refused dispatch ends the request. */
struct kvr_wire_dispatch_ack {
	uint16_t code; /* 0 taken; else an engine-defined number, passed to the client in detail[0]
			*/
	uint16_t reserved0;
	uint32_t reserved1;
} __rte_packed;

#define KVR_RESP_F_FIN	     0x0001u /* last item */
#define KVR_RESP_F_ERROR     0x0002u /* with FIN: ended by an error of the engine */
#define KVR_RESP_F_CANCELLED 0x0004u /* with FIN: ended by CANCEL or ABORT */
#define KVR_RESP_F_TOKENS    0x0008u /* data is u32 token ids */

/**
 * RESPONSE: 32 bytes and data_len bytes, padded to 8. One item of the answer. Items are numbered
 * from 0 without gaps; the sender repeats an item until RESPONSE_ACK covers it.
 */
struct kvr_wire_response {
	uint32_t seq;
	uint16_t flags;		   /* KVR_RESP_F_* */
	uint16_t status;	   /* engine-defined, 0 = fine */
	uint32_t generated_tokens; /* cumulative, this item included */
	uint32_t data_len;
	uint32_t cached_tokens; /* what the engine really found cached; KVR_NONE32 unknown */
	uint32_t reserved0;
	uint64_t reserved1;
} __rte_packed;

#define KVR_RACK_F_FIN 0x0001u /* the FIN item has been received: the stream is over */

/** RESPONSE_ACK: 8 bytes, cumulative. */
struct kvr_wire_response_ack {
	uint32_t next_seq; /* all items below have been received */
	uint32_t flags;	   /* KVR_RACK_F_* */
} __rte_packed;

#define KVR_PROG_F_FIRST     0x0001u /* first token produced: prefill is done */
#define KVR_PROG_F_FIN	     0x0002u /* request ended */
#define KVR_PROG_F_ERROR     0x0004u /* with FIN */
#define KVR_PROG_F_CANCELLED 0x0008u /* with FIN */

/** PROGRESS: 16 bytes, cumulative; repeated with the same seq until acknowledged when FIN. */
struct kvr_wire_progress {
	uint32_t seq;
	uint16_t flags;	 /* KVR_PROG_F_* */
	uint16_t status; /* engine-defined */
	uint32_t generated_tokens;
	uint32_t cached_tokens; /* KVR_NONE32 unknown */
} __rte_packed;

/** PROGRESS_ACK: 8 bytes. */
struct kvr_wire_progress_ack {
	uint32_t next_seq;
	uint32_t reserved;
} __rte_packed;

/** ABORT: 8 bytes; repeated until ABORT_ACK or the request's FIN. */
struct kvr_wire_abort {
	uint16_t code; /* enum kvr_code: why */
	uint16_t reserved0;
	uint32_t reserved1;
} __rte_packed;

/** HELLO: 48 bytes and hints_len bytes of TLVs (KVR_HINT_POOL is required). */
struct kvr_wire_hello {
	uint32_t block_size; /* tokens a block; must equal the pool's */
	uint32_t dp_start;
	uint32_t dp_size;		 /* at least 1 */
	uint32_t max_num_batched_tokens; /* 0 unknown */
	uint64_t total_kv_blocks;	 /* per rank; 0 unknown */
	uint32_t hints_len;
	uint16_t max_frame; /* largest UDP payload the agent takes */
	uint8_t role;	    /* enum kvr_role */
	uint8_t flags;	    /* KVR_HELLO_F_* */
	uint64_t reserved0;
	uint64_t reserved1;
} __rte_packed;

#define KVR_HELLO_F_CPU 0x01u /* CPU engine, for device-aware routing; default accelerator */

/** WELCOME: 24 bytes. The header's epoch is the router's. */
struct kvr_wire_welcome {
	uint16_t pool;
	uint16_t reserved0;
	uint32_t heartbeat_ms; /* send HEARTBEAT this often */
	uint32_t dead_ms;      /* gone after this silence */
	uint32_t max_frame;    /* largest UDP payload the router takes */
	uint32_t reserved1;
	uint32_t reserved2;
} __rte_packed;

/** HEARTBEAT: 8 bytes and n_ranks entries. */
struct kvr_wire_heartbeat {
	uint32_t n_ranks; /* 0: nothing to report */
	uint32_t reserved;
} __rte_packed;

/** One rank's report: 32 bytes. */
struct kvr_wire_rank_load {
	uint32_t dp_rank;
	uint32_t active_requests; /* as the engine sees it */
	uint64_t kv_used_blocks;  /* UINT64_MAX: not reported */
	uint64_t next_event_id;	  /* id the rank's next KV event will have */
	uint64_t reserved;
} __rte_packed;

enum kvr_wire_worker_state {
	KVR_WORKER_JOINING = 1,
	KVR_WORKER_SERVING = 2,
	KVR_WORKER_SUSPECT = 3,
	KVR_WORKER_DRAINING = 4,
	KVR_WORKER_DRAINED = 5,
	KVR_WORKER_GONE = 6,
};

/** HEARTBEAT_ACK: 8 bytes. */
struct kvr_wire_heartbeat_ack {
	uint16_t state; /* enum kvr_wire_worker_state */
	uint16_t reserved0;
	uint32_t bookings; /* live bookings on this worker */
} __rte_packed;

#define KVR_KV_F_DUMP_BEGIN 0x0001u /* with DUMP, position 0: forget what the rank holds */
#define KVR_KV_F_DUMP	    0x0002u /* part of a dump: first_event_id is a position in the dump */
#define KVR_KV_F_DUMP_END   0x0004u /* with DUMP, last frame: resume_event_id is valid */

/**
 * KV_EVENTS: 32 bytes and n_events events, in one frame. The events of one rank are numbered
 * without gaps from 0 at every new epoch. A dump is numbered apart from 0 (frames in order) and
 * replaces the rank's contents; live events continue at resume_event_id.
 */
struct kvr_wire_kv_events {
	uint64_t first_event_id;
	uint64_t resume_event_id;
	uint32_t dp_rank;
	uint16_t n_events;
	uint16_t flags; /* KVR_KV_F_* */
	uint64_t reserved;
} __rte_packed;

enum kvr_wire_kv_type { KVR_KV_STORED = 1, KVR_KV_REMOVED = 2, KVR_KV_CLEARED = 3 };
#define KVR_KV_EV_F_PARENT 0x0001u /* parent is valid: the hash before hash[0] */

/** One event: 16 bytes and n_blocks sequence hashes (0 when cleared). */
struct kvr_wire_kv_event {
	uint8_t type;	/* enum kvr_wire_kv_type */
	uint8_t tier;	/* 0 device, 1 host_pinned, 2 disk, 3 external */
	uint16_t flags; /* KVR_KV_EV_F_* */
	uint32_t n_blocks;
	uint64_t parent;
} __rte_packed;

enum kvr_wire_kv_code {
	KVR_KV_OK = 0,		/* all below next_event_id is applied */
	KVR_KV_GAP = 1,		/* send again from next_event_id on, or a dump if that is gone */
	KVR_KV_DUMP_WANTED = 2, /* send a dump */
	KVR_KV_HELLO = 3,	/* worker or epoch unknown here: say HELLO first */
	KVR_KV_BUSY = 4,	/* not now: send again what is not acknowledged after 20 ms */
};

/** KV_ACK: 24 bytes, cumulative per rank. */
struct kvr_wire_kv_ack {
	uint64_t next_event_id;
	uint64_t next_dump_pos; /* while a dump is being received: first frame position missing */
	uint32_t dp_rank;
	uint16_t code; /* enum kvr_wire_kv_code */
	uint16_t reserved;
} __rte_packed;

/** CONNECT: 8 bytes and TLVs (KVR_HINT_POOL filters; none = all pools). */
struct kvr_wire_connect {
	uint32_t hints_len;
	uint16_t max_frame;
	uint16_t reserved;
} __rte_packed;

/** CONNECTED: 32 bytes and n_pools entries, then the names (each padded to 8) in order. */
struct kvr_wire_connected {
	uint32_t n_pools;
	uint32_t max_frame;  /* largest UDP payload the router takes */
	uint32_t max_tokens; /* limits of a request */
	uint32_t max_hashes;
	uint32_t max_body;
	uint32_t total_pools; /* pools that match; above n_pools when the frame was too small */
	uint32_t max_message; /* largest body of a ROUTE, in frames of max_frame */
	uint32_t max_frames;  /* most frames that one may take */
	uint64_t cookie;      /* for ROUTE and POTENTIAL_LOADS; 0: none is needed */
} __rte_packed;

struct kvr_wire_pool {
	uint16_t pool;
	uint8_t role; /* enum kvr_role */
	uint8_t flags;
	uint32_t block_size;
	uint32_t ranks;	   /* known now */
	uint16_t name_len; /* at most 63 */
	uint16_t reserved;
} __rte_packed;

/** SESSION_OPEN, _CLOSE, _RELEASE: 8 bytes and the session id (1..256 bytes, padded to 8). */
struct kvr_wire_session {
	uint32_t timeout_s; /* OPEN: the worker may drop it after this idle time; else 0 */
	uint16_t id_len;
	uint16_t pool;
} __rte_packed;

/** SESSION_OPENED, _CLOSED, _RELEASED: 8 bytes. */
struct kvr_wire_session_status {
	uint16_t code; /* 0 ok; RELEASED: enum kvr_code; else engine-defined */
	uint16_t reserved0;
	uint32_t reserved1;
} __rte_packed;

/** LOADS: 16 bytes and n_ranks entries; answers POTENTIAL_LOADS. */
struct kvr_wire_loads {
	uint32_t n_ranks;
	uint32_t queue_len;	 /* requests waiting in this pool */
	uint64_t pending_tokens; /* their prompt tokens */
} __rte_packed;

/** One rank if the request went there: 32 bytes. */
struct kvr_wire_rank_potential {
	uint64_t worker;
	uint32_t dp_rank;
	uint32_t active_requests;
	uint64_t prefill_tokens;
	uint64_t decode_blocks;
} __rte_packed;

#endif
