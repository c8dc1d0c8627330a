/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_WIRE_REQUEST_H
#define KVR_WIRE_REQUEST_H

/**
 * @file
 * Bodies of the messages about a request, from ROUTE to the acknowledged end of its answer, and of
 * what else clients ask: the pools, sessions, loads. Part of kvr_wire.h, which says how its structs
 * may be used.
 */

#include <stdint.h>

#include <rte_common.h>

/* ---- the request ------------------------------------------------------------------------ */

/** Flags of struct kvr_wire_request. */
#define KVR_REQ_F_QUERY	      0x0001u /* choose, change nothing, send nothing to a worker */
#define KVR_REQ_F_RESEND      0x0002u /* the client has sent this request before */
#define KVR_REQ_F_DIRECT      0x0004u /* return path: agent to client without the router */
#define KVR_REQ_F_EAGLE	      0x0008u /* tokens are hashed in eagle windows (spec 1.2) */
#define KVR_REQ_F_PREFILL_LEG 0x0010u /* DISPATCH: prefill leg of a disaggregated request */
#define KVR_REQ_F_DECODE_LEG  0x0020u /* DISPATCH: its decode leg */
#define KVR_REQ_F_UNPROVEN    0x0040u /* DISPATCH: the client's address may be forged */
#define KVR_REQ_F_BOOK	      0x0080u /* choose and book; its client runs it, not the router */
#define KVR_REQ_F_AWAY	      0x0100u /* the body does not come in frames: hint BODY */
#define KVR_REQ_F_HEALTH      0x0200u /* a probe of an engine's health: it leaves no trace */
#define KVR_REQ_F_TRACK	      0x0400u /* the last item is to say how it went: hint TRACKER */
#define KVR_REQ_F_QUIET	      0x0800u /* ACCEPTED only when its worker acknowledges it */
#define KVR_REQ_F_TRIAL	      0x1000u /* DISPATCH: its rank has let requests time out */
#define KVR_REQ_F_CLIENT                                                                           \
	(KVR_REQ_F_QUERY | KVR_REQ_F_RESEND | KVR_REQ_F_DIRECT | KVR_REQ_F_EAGLE |                 \
	 KVR_REQ_F_BOOK | KVR_REQ_F_AWAY | KVR_REQ_F_HEALTH | KVR_REQ_F_TRACK | KVR_REQ_F_QUIET)
/** Largest body that is given to the agent itself: 64 MiB, and the head of an HTTP message. */
#define KVR_WIRE_MAX_AWAY (UINT64_C(67108864) + 16384u)
#define KVR_WIRE_TOKEN	  16u /* bytes of the one-time token of such a body */
/** DISPATCH_ACK, REJECTED DispatchFailed: this agent takes no bodies. */
#define KVR_WIRE_NO_BODIES 2u
/** A ROUTE with BOOK or AWAY is at least so long: the addresses in its ACCEPTED make that no
 * longer.
 */
#define KVR_WIRE_ASKING_LEAST 264u
#define KVR_REQ_F_LEGS	      (KVR_REQ_F_PREFILL_LEG | KVR_REQ_F_DECODE_LEG)
/** Frames of items that an agent sends to an unproven address before it hears of the client. */
#define KVR_WIRE_UNPROVEN_ITEMS 3u

/**
 * Fixed part of ROUTE and DISPATCH: 88 bytes. After it, in this order, each padded with zero
 * bytes to a multiple of 8: hashes (n_hashes * 8), tokens (n_tokens * 4), hints (hints_len),
 * body (body_len), and in the DISPATCH of a decode leg the transfer result (result_len). Hashes win
 * for routing, and then isl must be at least n_hashes * block_size. With tokens alone isl must be
 * n_tokens. With neither, e.g. a prompt below one block whose tokens only the engine needs, nothing
 * is matched.
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
	uint32_t result_len;	 /* DISPATCH of a decode leg: bytes of the result behind the body */
} __rte_packed;

/* ---- what the router says about it ------------------------------------------------------ */

enum kvr_wire_state {
	KVR_STATE_QUERY = 0,	  /* answer to a query */
	KVR_STATE_QUEUED = 1,	  /* waiting for capacity; ACCEPTED comes again when it is sent */
	KVR_STATE_DISPATCHED = 2, /* sent to the worker, not acknowledged yet */
	KVR_STATE_RUNNING = 3,	  /* acknowledged by the worker or answering */
};

/**
 * ACCEPTED: 56 bytes, and hints with addresses when the ROUTE has asked for them. Without a prefill
 * leg the worker is 0 and its rank KVR_NONE32.
 */
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
	uint16_t path;	    /* enum kvr_way */
	uint16_t hints_len; /* bytes of hints behind it */
} __rte_packed;

/** Flag of struct kvr_wire_accepted. */
#define KVR_ACC_F_KEPT 0x0001u /* the router has the message and repeats its DISPATCH itself */

/**
 * MISSING: what its sender lacks of a message that came in fragments: 24 bytes and n_words u64.
 * Fragments are numbered by frag_off / unit. Bit b of word w set: number first + 64 * w + b is
 * missing. Source, id and handle of the header are those of the message.
 */
struct kvr_wire_missing {
	uint8_t kind; /* of the message: ROUTE, DISPATCH, RESPONSE or POTENTIAL_LOADS */
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
	KVR_QUOTA_REQUESTS = 1, /* live */
	KVR_QUOTA_WAITING = 2,	/* for capacity, or for another leg */
	KVR_QUOTA_SESSIONS = 3,
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

/* ---- the worker's part, and the answer -------------------------------------------------- */

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
#define KVR_RESP_F_FAILED    0x0010u /* with FIN: it counts against the rank */
#define KVR_RESP_F_REFUSED   0x0020u /* with FIN: the engine has no room for it */

/**
 * RESPONSE: 32 bytes, data_len bytes, padded to 8, and with FIN hints. One item of the answer.
 * Items are numbered from 0 without gaps; the sender repeats an item until RESPONSE_ACK covers it.
 */
struct kvr_wire_response {
	uint32_t seq;
	uint16_t flags;		   /* KVR_RESP_F_* */
	uint16_t status;	   /* engine-defined, 0 = fine */
	uint32_t generated_tokens; /* cumulative, this item included */
	uint32_t data_len;
	uint32_t cached_tokens; /* what the engine really found cached; KVR_NONE32 unknown */
	uint32_t hints_len;	/* bytes of hints behind the data, a multiple of 8; only with FIN */
	uint64_t reserved1;
} __rte_packed;

/**
 * Value of the hint TRACKER: 80 bytes, written by the router into the last item. Times are in
 * microseconds; KVR_NONE32: not known, or there is none.
 */
struct kvr_wire_tracker {
	uint64_t worker;
	uint64_t prefill_worker; /* 0 without one */
	uint32_t dp_rank;
	uint32_t prefill_dp_rank; /* KVR_NONE32 without one */
	uint32_t overlap_blocks;  /* as in ACCEPTED */
	uint32_t prefill_overlap_blocks;
	uint32_t required_blocks;
	uint32_t cached_tokens; /* predicted, as in ACCEPTED */
	uint32_t isl;		/* tokens that the engine sees */
	uint32_t osl;		/* tokens generated */
	/* from the arrival of the ROUTE to the DISPATCH of the try that counted */
	uint32_t queue_us;
	uint32_t ttft_us;     /* arrival to the first token */
	uint32_t itl_us;      /* mean of the gaps between tokens */
	uint32_t prefill_us;  /* DISPATCH of the prefill leg to its end */
	uint32_t transfer_us; /* end of the prefill leg to the first token */
	uint32_t reserved;
	uint64_t hit_rate; /* f64: overlap by required blocks, of the prefill worker if there is one
			    */
} __rte_packed;

/** Bytes of the hint TRACKER in a message; agents get a client_frame that is so much shorter. */
#define KVR_WIRE_TRACKER_ROOM 88u
/** Most bytes of hints that an agent puts into a last item. */
#define KVR_WIRE_SAID_MOST 592u

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
#define KVR_PROG_F_FAILED    0x0010u /* with FIN, as in RESPONSE */
#define KVR_PROG_F_REFUSED   0x0020u /* likewise */

/**
 * PROGRESS: 16 bytes, cumulative; repeated with the same seq until acknowledged when FIN. Of a
 * request that is only booked its client sends it, and repeats each.
 */
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

/*
 * Who remembers a request for how long, each longer than what it serves: a client that hears
 * nothing asks at least every 2 s and gives up after CLIENT_SILENCE_S; an agent keeps items that
 * nobody has acknowledged, and repeats them at least every second, so that the client's last
 * question finds them; a router relays for as long as an agent may repeat.
 */
#define KVR_WIRE_CLIENT_SILENCE_S 15u
#define KVR_WIRE_ITEMS_KEPT_S	  (KVR_WIRE_CLIENT_SILENCE_S + 2u)
#define KVR_WIRE_LINGER_S	  (KVR_WIRE_ITEMS_KEPT_S + 1u)

/* ---- pools ------------------------------------------------------------------------------ */

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
	uint8_t role;  /* enum kvr_role */
	uint8_t flags; /* KVR_POOL_F_* */
	uint32_t block_size;
	uint32_t ranks;	   /* known now */
	uint16_t name_len; /* at most 63 */
	uint16_t reserved;
} __rte_packed;

#define KVR_POOL_F_EAGLE  0x01u /* blocks are named by windows of block_size + 1 tokens */
#define KVR_POOL_F_SERVES 0x02u /* a request to it would find workers now */
#define KVR_POOL_F_ALL	  0x03u

/* ---- sessions --------------------------------------------------------------------------- */

#define KVR_WIRE_SESSION_DEF_S	 300u	   /* idle time of a session that names none */
#define KVR_WIRE_SESSION_MAX_S	 31536000u /* longest idle time: 365 days */
#define KVR_WIRE_SESSION_GRACE_S 30u	   /* the worker keeps a session this much longer */

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

/* ---- loads ------------------------------------------------------------------------------ */

/** LOADS: 16 bytes and n_ranks entries; answers POTENTIAL_LOADS. */
struct kvr_wire_loads {
	uint32_t n_ranks;
	uint32_t queue_len;	 /* requests waiting in this pool */
	uint64_t pending_tokens; /* their prompt tokens */
} __rte_packed;

/** One rank if the request went there: 40 bytes. */
struct kvr_wire_rank_potential {
	uint64_t worker;
	uint32_t dp_rank;
	uint32_t active_requests;
	uint64_t prefill_tokens;
	uint64_t decode_blocks;
	uint32_t overlap_blocks; /* as in ACCEPTED */
	uint32_t cached_tokens;	 /* likewise */
} __rte_packed;

#endif
