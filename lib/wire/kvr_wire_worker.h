/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_WIRE_WORKER_H
#define KVR_WIRE_WORKER_H

/**
 * @file
 * Bodies of what agents and the router say about a worker: that it is there, what it does, and
 * which blocks its ranks hold. Part of kvr_wire.h, which says how its structs may be used.
 */

#include <stdint.h>

#include <rte_common.h>

/* ---- presence and load ------------------------------------------------------------------ */

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
	uint64_t boot;	    /* random number of the agent's process; 0: not told */
	uint64_t reserved;
} __rte_packed;

#define KVR_HELLO_F_CPU 0x01u /* CPU engine, for device-aware routing; default accelerator */

/** WELCOME: 24 bytes. The header's epoch is the router's. */
struct kvr_wire_welcome {
	uint16_t pool;
	uint16_t flags;	       /* KVR_WELCOME_F_* */
	uint32_t heartbeat_ms; /* send HEARTBEAT this often */
	uint32_t dead_ms;      /* gone after this silence */
	uint32_t max_frame;    /* largest UDP payload the router takes */
	uint32_t reserved1;
	uint32_t reserved2;
} __rte_packed;

/** The router knows blocks of this life from a router life before: events go on where KV_ACK says.
 */
#define KVR_WELCOME_F_WARM 0x0001u

/** HEARTBEAT: 8 bytes and n_ranks entries. */
struct kvr_wire_heartbeat {
	uint32_t n_ranks; /* 0: nothing to report */
	uint16_t flags;	  /* KVR_BEAT_F_* */
	uint16_t wish;	  /* another number than before: what `flags` says is to be done */
} __rte_packed;

#define KVR_BEAT_F_DRAIN 0x0001u /* the engine wants no new requests; without: it wants them */

/** What the tokens of a block are in an engine's events. */
enum kvr_wire_event_form {
	KVR_FORM_UNKNOWN = 0,
	KVR_FORM_TOKENS = 1,
	KVR_FORM_PAIRS = 2, /* eagle windows: the last block has one token more */
};

/** One rank's report: 32 bytes. */
struct kvr_wire_rank_load {
	uint32_t dp_rank;
	uint32_t active_requests;  /* as the engine sees it */
	uint64_t kv_used_blocks;   /* UINT64_MAX: not reported */
	uint64_t next_event_id;	   /* id the rank's next KV event will have */
	uint32_t events_unread;	   /* events of its engine that the agent could not read */
	uint16_t event_block_size; /* tokens a block in its engine's events; 0: not known */
	uint8_t event_form;	   /* enum kvr_wire_event_form */
	uint8_t canaries_missed;   /* in a row, of the whole worker; 255: or more */
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

/**
 * ALIVE: 8 bytes and n handles of requests that run here, in one frame. Not acknowledged: the next
 * report says the same.
 */
struct kvr_wire_alive {
	uint32_t n; /* 1 to KVR_WIRE_ALIVE_MOST */
	uint32_t reserved;
} __rte_packed;

#define KVR_WIRE_ALIVE_MOST 64u /* handles of a frame */
#define KVR_WIRE_ALIVE_S    30u /* each request is reported at least so often */

/* ---- KV events -------------------------------------------------------------------------- */

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

#endif
