/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_AGENT_H
#define KVR_AGENT_H

/**
 * @file
 * Engine side of kvroute. An agent represents one worker: an engine process with one or more
 * data-parallel ranks. It registers the worker with the router, keeps it alive, receives requests,
 * sends their answers, and publishes the blocks that each rank caches. Plain UDP; no DPDK, no
 * threads.
 *
 * One object belongs to one thread. Functions do not block, and callbacks are made from inside
 * kvr_agent_process() and kvr_agent_destroy() only. The loop is that of kvr_client.h:
 *
 *	poll({kvr_agent_fd(a), POLLIN}, kvr_agent_timeout_ms(a)); kvr_agent_process(a);
 *
 * The library recovers from the following:
 * - lost, repeated and reordered datagrams;
 * - repeated dispatches: a handle never runs twice;
 * - a restart of the router: the worker registers again, the router requests a dump of the cache,
 *   and running requests are aborted, except answers on the direct path that have begun;
 * - lost KV events: they are retransmitted from a ring or, if they left the ring, replaced by a
 *   dump that the application lists;
 * - repeated session messages: copies are answered without a callback.
 *
 * Disaggregated serving: an agent with role prefill gets prefill legs, and ends each with the
 * transfer result as data of its last item. An agent with role decode gets decode legs, which state
 * where to fetch the blocks. struct kvr_agent_request has the leg.
 *
 * Functions return 0 or a count, or -errno. Functions that return pointers return NULL and set
 * errno. In all structs zero means default or not given, unless stated otherwise.
 */

#include <stdbool.h>
#include <stdint.h>

#include "kvr_types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kvr_agent;
struct kvr_agent_ops;

/** The worker, and the address of the router. Strings and arrays are copied. */
struct kvr_agent_conf {
	const char *router; /**< "host", "host:port", "[v6]:port" */
	uint16_t port;	    /**< if router has none; default 7650 */
	const char *bind;   /**< local "address" or "address:port"; default any */
	uint64_t worker;    /**< required, not 0, unique among all workers */
	const char *pool;   /**< required */
	uint32_t epoch;	    /**< of this process; default from the clock, greater at every start */
	enum kvr_role role;
	bool cpu;			 /**< the engine computes on CPUs */
	uint32_t block_size;		 /**< required: tokens */
	uint32_t dp_start;		 /**< number of the first rank */
	uint32_t dp_size;		 /**< number of ranks; default 1 */
	uint64_t total_kv_blocks;	 /**< per rank; default: unknown */
	uint32_t max_num_batched_tokens; /**< default: unknown */
	const char *engine_addr; /**< "host:port" of the engine's HTTP for clients that contact it
				    directly; at most 100 bytes; NULL: none */
	/** "address:port" in numeric form, where the application accepts bodies that do not come in
	 * frames (PROTOCOL.md, section 19). NULL: such requests are rejected. */
	const char *body_addr;
	const char *const *taints;	 /**< terminated by NULL */
	const char *const *topology;	 /**< "key=value" strings, terminated by NULL */
	uint8_t kv_transfer_enforcement; /**< 0 none, 1 preferred, 2 required */
	double kv_transfer_weight;
	const char *kv_transfer_domain; /**< NULL: no hint */
	/** Prefill: address where the engine waits for decode engines. NULL: they get transfer
	 * results instead. */
	const char *bootstrap_host;
	uint16_t bootstrap_port;
	uint32_t frame_bytes;	 /**< largest UDP payload sent, 560..8952; default 1432 */
	uint32_t receive_bytes;	 /**< largest UDP payload received; default 8952 */
	uint32_t max_requests;	 /**< requests at once, 1..262144; default 4096 */
	uint32_t request_bytes;	 /**< unacknowledged answer bytes per request; default 4 MiB */
	uint32_t assembly_bytes; /**< limit of reassembly, all requests; default 64 MiB */
	uint32_t kv_ring_bytes;	 /**< KV events kept for repair, per rank, rounded up to a power of
				    two; default 2 MiB */
	uint32_t ack_us; /**< delay of DISPATCH_ACK, at most 1000: an item sent meanwhile replaces
			    it; default 0 */
	const struct kvr_agent_ops *ops; /**< required; must remain valid */
	void *user;			 /**< for ops */
};

/** A dispatched request; valid only during on_dispatch. */
struct kvr_agent_request {
	uint64_t handle;     /**< identifies the request in all calls */
	uint64_t source, id; /**< id given by the client */
	uint32_t dp_rank;
	enum kvr_role phase; /**< as given by the client, or of the leg */
	bool direct;	     /**< items go to the client directly, not through the router */
	uint32_t flags;	     /**< KVR_REQ_F_* of the protocol */
	uint32_t attempt;    /**< number of previous dispatches, to any worker */
	uint32_t isl;	     /**< prompt tokens */
	uint32_t max_tokens; /**< UINT32_MAX: no limit */
	uint32_t expected_output_tokens; /**< UINT32_MAX: unknown */
	uint32_t overlap_blocks; /**< device blocks that the router believes to be cached here */
	uint32_t cached_tokens;	 /**< tokens that the router believes to be cached, in all tiers */
	const uint64_t *hashes;	 /**< aligned, in host byte order on little-endian machines */
	uint32_t n_hashes;
	const uint32_t *tokens;
	uint32_t n_tokens;
	const void *hints; /**< TLVs; iterate with kvr_agent_hint_next() */
	uint32_t hints_len;
	const void *body;
	uint32_t body_len;
	/** The body does not come in frames: away_len bytes, from the client that presents the
	 * token. */
	bool away;
	uint64_t away_len;
	uint8_t away_token[16];
	/* Disaggregated serving; all zero without legs. */
	enum kvr_role leg;	    /**< AGGREGATED: no legs */
	const char *bootstrap_host; /**< both legs: address where the engines meet; NULL: transfer
				       by result */
	uint16_t bootstrap_port;
	uint64_t bootstrap_room;    /**< identifies the transfer, equal in both legs */
	uint64_t prefill_worker;    /**< decode leg: worker that computed the prompt */
	const void *prefill_result; /**< decode leg without bootstrap: transfer result of the
				       prefill leg */
	uint32_t prefill_result_len;
};

/** A session to open or close; valid during the callback. */
struct kvr_agent_session {
	const char *id;	    /**< 1..256 bytes of UTF-8 */
	uint32_t timeout_s; /**< open: the engine may drop the session after this idle time */
};

/** One hint of a request. */
struct kvr_agent_hint {
	uint16_t type; /**< KVR_HINT_* of the protocol */
	uint16_t len;
	const void *value;
};

/** One KV event: consecutive blocks of a sequence. */
struct kvr_agent_kv {
	enum kvr_tier tier;
	bool has_parent;
	uint64_t parent;	/**< sequence hash of the block before hashes[0] */
	const uint64_t *hashes; /**< sequence hashes */
	uint32_t n;
};

/** State of the worker at the router; numbers of the protocol. */
enum kvr_agent_state {
	KVR_AGENT_OFFLINE = 0, /**< not registered; HELLO is being sent */
	KVR_AGENT_JOINING = 1,
	KVR_AGENT_SERVING = 2,
	KVR_AGENT_SUSPECT = 3,
	KVR_AGENT_DRAINING = 4, /**< gets no new requests */
	KVR_AGENT_DRAINED = 5,	/**< no request is left: safe to stop */
	KVR_AGENT_GONE = 6,	/**< after kvr_agent_goodbye() */
};

struct kvr_agent_status {
	enum kvr_agent_state state;
	uint32_t bookings; /**< requests booked on this worker by the router */
	uint16_t reject;   /**< OFFLINE after a rejection: code of PROTOCOL.md, else 0 */
	const char *text;  /**< reason, "" if none; valid during the callback */
};

/** Reason to stop a request. */
enum kvr_agent_abort {
	KVR_AGENT_ABORT_ROUTER = 1,  /**< cancelled by client or router; the code has the reason */
	KVR_AGENT_ABORT_SILENCE = 2, /**< items were not acknowledged for 17 s */
	KVR_AGENT_ABORT_CLOSED = 3,  /**< kvr_agent_destroy() */
};

/** Callbacks. on_dispatch is required. They may call every function except destroy. */
struct kvr_agent_ops {
	/**
	 * Run a request; answer with kvr_agent_respond() now or later.
	 * @return 0: accepted; 1..65535: rejected, the client receives the number.
	 */
	int (*on_dispatch)(struct kvr_agent *agent, const struct kvr_agent_request *r, void *user);
	/**
	 * Stop a request. The handle is invalid afterwards; the library answers the router. A
	 * decode leg may be stopped before it started: the engine must still release the transfer
	 * at the prefill engine.
	 */
	void (*on_abort)(struct kvr_agent *agent, uint64_t handle, enum kvr_agent_abort why,
			 uint16_t code, void *user);
	/** The client acknowledged the last item. Only now the handle is invalid. */
	void (*on_done)(struct kvr_agent *agent, uint64_t handle, void *user);
	void (*on_state)(struct kvr_agent *agent, const struct kvr_agent_status *s, void *user);
	/**
	 * List the blocks cached by @p dp_rank: called with pos 0, 1, 2, ... until it returns 0,
	 * without other calls in between, so that the dump reflects one moment. Parents should
	 * precede their children. NULL: the router starts with an empty cache.
	 * @return 1: *kv is filled (hashes valid until the next call); 0: end of the list.
	 */
	int (*on_dump)(struct kvr_agent *agent, uint32_t dp_rank, uint64_t pos,
		       struct kvr_agent_kv *kv, void *user);
	/**
	 * Open a session, or set a new timeout. Called once per message of the router, regardless
	 * of copies. NULL: always 0.
	 * @return 0; 1..65535: rejected, the client receives the number.
	 */
	int (*on_session_open)(struct kvr_agent *agent, const struct kvr_agent_session *s,
			       void *user);
	/** Close a session, which may be unknown. NULL: always 0. @return 0, or a number for the
	 * router's log. */
	int (*on_session_close)(struct kvr_agent *agent, const struct kvr_agent_session *s,
				void *user);
};

struct kvr_agent_stats {
	uint64_t frames_sent, frames_unsent, frames_received, frames_bad, frames_foreign;
	uint64_t dispatches, duplicates, refused, aborted, finished, abandoned;
	uint64_t items, items_resent;
	uint64_t fragments_again; /* of items of several frames, on demand of the receiver */
	uint64_t kv_events, kv_frames, kv_resent, kv_gaps, kv_dumps, kv_overruns;
	uint64_t hellos, heartbeats;
	uint64_t reports; /* handles in ALIVE frames */
	/* router_epochs: a new epoch of the router answered, after a restart or because two routers
	 * share one address. routers_returned: a previous epoch answered again, which proves the
	 * latter, or a takeover that was reverted. */
	uint64_t router_epochs, routers_returned;
	uint64_t sessions_opened, sessions_closed, sessions_refused, session_copies;
};

/**
 * Create an agent; the first kvr_agent_process() sends HELLO.
 * @return NULL with errno EINVAL (field missing or out of range), EMSGSIZE (strings do not fit),
 * ENOENT or EAGAIN (resolver), ENOMEM, or of socket(2), bind(2).
 */
struct kvr_agent *kvr_agent_create(const struct kvr_agent_conf *conf);

/** Abort every request (on_abort with CLOSED) and free everything; sends nothing. NULL is
 * allowed. */
void kvr_agent_destroy(struct kvr_agent *agent);

/** Deregister: GOODBYE until answered (5 attempts), then on_state with GONE. @return 0. */
int kvr_agent_goodbye(struct kvr_agent *agent);

/**
 * Ask the router to stop or resume sending requests. Heartbeats repeat the request, also after
 * re-registration. An operator of the router may override it until the next call. on_state reports
 * the result: DRAINING, then DRAINED when nothing is booked, or SERVING. Requests in flight still
 * arrive and must run.
 */
void kvr_agent_drain(struct kvr_agent *agent, bool on);

int kvr_agent_fd(const struct kvr_agent *agent);
/** Milliseconds until kvr_agent_process() is needed without input; -1: never. */
int kvr_agent_timeout_ms(const struct kvr_agent *agent);
/** Return true if a sleep for that time should end on time: a large item is being sent in steps
 * of a millisecond, or fragments are missing. Otherwise 4 ms more are harmless. */
bool kvr_agent_timeout_strict(const struct kvr_agent *agent);
/** Receive, run timers, make callbacks, send. @return the number of frames received. */
int kvr_agent_process(struct kvr_agent *agent);
/** Send queued frames without receiving. kvr_agent_process() includes this; for loops that know
 * that the descriptor is not readable. */
void kvr_agent_flush(struct kvr_agent *agent);

#define KVR_AGENT_LAST 0x1u /**< the answer ends with this item */
/** With LAST: the engine failed. Data is the reason as text of at most 255 bytes, not part of the
 * answer. */
#define KVR_AGENT_ERROR	 0x2u
#define KVR_AGENT_TOKENS 0x8u /**< data is uint32_t token ids */
/** With LAST, alone or with ERROR: the engine failed the request, which counts against the rank.
 * Not for errors of the client. */
#define KVR_AGENT_FAILED  0x10u
#define KVR_AGENT_REFUSED 0x20u /**< with LAST: the engine lacks capacity; not with FAILED */

/** One item of an answer. data is copied. */
struct kvr_agent_item {
	const void *data;
	uint32_t len; /**< at most 1 MiB; above 64 KiB it is split into several items, except
			 transfer results */
	uint32_t flags;
	uint16_t status;	   /**< defined by the engine, 0 = success */
	uint32_t generated_tokens; /**< so far, including this item; must not decrease */
	bool cached_known;	   /**< cached_tokens is valid */
	uint32_t cached_tokens;	   /**< prompt tokens found cached */
	/** With LAST, for clients that requested tracking, else ignored: the engine's
	 * prompt_tokens_details, and a link to its trace. Data of a prefill leg reach the client
	 * through the decode leg. */
	const void *prompt_details, *trace_link;
	uint32_t prompt_details_len; /**< at most 512 */
	uint32_t trace_link_len;     /**< at most 64 */
};

/**
 * Send an item of a running request. After LAST the handle accepts no more. On a prefill leg the
 * data of the last item is the transfer result, which is required without bootstrap; the router
 * drops earlier items.
 * @return 0, -ENOENT (unknown, ended or aborted handle), -EINVAL (flags, ERROR, FAILED or REFUSED
 * without LAST, ERROR with TOKENS, FAILED with REFUSED, no transfer result), -EMSGSIZE, -ENOBUFS
 * (request_bytes are unacknowledged: retry after kvr_agent_process()), -ENOMEM.
 */
int kvr_agent_respond(struct kvr_agent *agent, uint64_t handle, const struct kvr_agent_item *item);

/** Reject a request that on_dispatch accepted, before its first item: it ends as an error of the
 * engine with this status and @p words, at most 255 bytes. (Rejections by on_dispatch reach the
 * client as REJECTED.)
 * @return 0, -ENOENT, -EINVAL (code 0), -EMSGSIZE, -EBUSY (items were sent: use KVR_AGENT_ERROR).
 */
int kvr_agent_refuse(struct kvr_agent *agent, uint64_t handle, uint16_t code, const char *words);

/** Blocks stored by a rank, in sequence order. @return 0, -EINVAL (rank, tier, n 0). */
int kvr_agent_kv_stored(struct kvr_agent *agent, uint32_t dp_rank, const struct kvr_agent_kv *kv);

/** Blocks removed from a tier by a rank (parent is ignored). @return as kv_stored. */
int kvr_agent_kv_removed(struct kvr_agent *agent, uint32_t dp_rank, const struct kvr_agent_kv *kv);

/** A rank cleared its cache in all tiers. @return 0, -EINVAL. */
int kvr_agent_kv_cleared(struct kvr_agent *agent, uint32_t dp_rank);

/**
 * Unacknowledged event bytes of a rank, at most kv_ring_bytes. An event that does not fit replaces
 * all of them by a dump. An application that can delay events should do so while the ring is nearly
 * full.
 * @return bytes; 0 for an unknown rank, without agent router, or if agent dump is due anyway.
 */
uint64_t kvr_agent_kv_waiting(const struct kvr_agent *agent, uint32_t dp_rank);

/** Load of a rank for the next heartbeats; kv_used_blocks UINT64_MAX: not reported. active_requests
 * is at least the number of requests running here.
 * @return 0, -EINVAL. */
int kvr_agent_load(struct kvr_agent *agent, uint32_t dp_rank, uint32_t active_requests,
		   uint64_t kv_used_blocks);

/** Statistics of the engine's own events of a rank, for operators of the router, sent by
 * heartbeats: number of unreadable events so far, tokens per block of the readable ones (0:
 * unknown), and whether these had token pairs (EAGLE). @return 0, -EINVAL. */
int kvr_agent_events_read(struct kvr_agent *agent, uint32_t dp_rank, uint32_t unread,
			  uint16_t block_size, bool eagle);

/** Number of consecutive canary prompts whose blocks did not appear in the engine's events under
 * the hashes of their tokens (PROTOCOL.md section 9.2), for operators of the router, sent by
 * heartbeats; 0: the last canary succeeded. For the whole worker. */
void kvr_agent_canaries_missed(struct kvr_agent *agent, uint32_t in_a_row);

/** Iterate over hints: *pos starts at 0. @return 1: *h is filled; 0: end. */
int kvr_agent_hint_next(const struct kvr_agent_request *r, uint32_t *pos, struct kvr_agent_hint *h);

uint32_t kvr_agent_running(const struct kvr_agent *agent);
enum kvr_agent_state kvr_agent_state_now(const struct kvr_agent *agent);
void kvr_agent_stats_get(const struct kvr_agent *agent, struct kvr_agent_stats *out);

#ifdef __cplusplus
}
#endif

#endif
