/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_CLIENT_H
#define KVR_CLIENT_H

/**
 * @file
 * Client of a kvroute router, for front ends: submits tokenised requests, reports where each one
 * was sent, and receives the streamed answer. Plain UDP sockets; no DPDK, threads, signals or
 * logging.
 *
 * One object belongs to one thread and handles any number of requests at once. Functions do not
 * block, except those of the last section. Callbacks are made from inside kvr_client_process(),
 * kvr_client_flush() and kvr_client_destroy() only:
 *
 *	struct kvr_client *c = kvr_client_create(&(struct kvr_client_conf){.router = "r1"});
 *	kvr_client_connect(c);
 *	for (;;) {
 *		struct pollfd p = {kvr_client_fd(c), POLLIN, 0};
 *		poll(&p, 1, kvr_client_timeout_ms(c));
 *		kvr_client_process(c);
 *	}
 *
 * In an existing event loop, add kvr_client_fd() and call kvr_client_process() when it is readable
 * or kvr_client_timeout_ms() has passed. Read the timeout again after every call into the library,
 * because submit and cancel start timers. Programs that do one thing at a time use
 * kvr_client_connect_wait(), kvr_client_route_wait() and kvr_client_next_item() instead of
 * callbacks.
 *
 * The library handles loss, duplicates and reordering of datagrams. Every submitted request ends
 * exactly once, through on_end (or kvr_client_next_item() for requests without callbacks),
 * regardless of failures of router, engine or network.
 *
 * Functions return 0 or a count, or -errno. Functions that return pointers return NULL and set
 * errno. In all structs zero means "default" or "not given", so designated initialisers suffice.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvr_types.h"
#include "protocol.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVR_CLIENT_API __attribute__((visibility("default")))

struct kvr_client;
struct kvr_client_hints;

/** Address of the router, and limits. Strings are copied. */
struct kvr_client_conf {
	const char *router;    /**< "host", "host:port", "[v6]:port"; names are resolved once */
	uint16_t port;	       /**< if router has none; default 7650 */
	const char *bind;      /**< local "address", "address:port"; default any */
	uint64_t source;       /**< identity of this client; default random, which is recommended */
	uint32_t frame_bytes;  /**< largest UDP payload, 560..8952; default 1432 */
	uint32_t max_requests; /**< requests at once, 1..1048576; default 16384 */
	uint32_t connect_ms;   /**< time limit of connecting; default 5000 */
	uint32_t
		request_ms; /**< default time limit of a request from submit to end; default none */
	/** A request about which no message arrives for this time is given up; default 15000.
	 * Routers and agents remember a request for this time and not much longer. */
	uint32_t silence_ms;
	uint32_t buffer_bytes; /**< unread items of one request without callbacks; default 4 MiB */
	/** Limit of reassembly, for items and loads of more than one frame, over all requests;
	 * default 8 MiB. Messages beyond it are dropped and retransmitted. */
	uint32_t assembly_bytes;
	/** A body larger than this is sent to the worker's agent over a separate connection instead
	 * of through the router, up to 64 MiB. Default never; 65536 is recommended. */
	uint32_t away_bytes;
	/** Time that the acknowledgement of the end of an answer may wait for other frames, in
	 * microseconds, at most 5000. It saves a system call, and wake-ups of router and agent. For
	 * programs that call kvr_client_process() continuously. Default none. */
	uint32_t ack_us;
	/** Result of kvr_client_connect(), with the codes of kvr_client_connect_wait(). May be
	 * NULL. */
	void (*on_connect)(struct kvr_client *client, int status, void *user);
	void *user; /**< for on_connect */
};

/** Limits of the router, as reported at connect. */
struct kvr_client_limits {
	uint32_t frame_bytes; /**< of frames: the smaller limit of the two sides */
	uint32_t max_tokens;  /**< of a request, also of its isl */
	uint32_t max_hashes;
	uint32_t max_body;    /**< bytes */
	uint32_t max_message; /**< bytes of the whole message; beyond it kvr_client_submit() returns
				 -EMSGSIZE */
};

/** A rejection by the router. */
struct kvr_client_refusal {
	uint16_t code;	  /**< code of PROTOCOL.md, see kvr_code_name(); 0: not rejected */
	bool retryable;	  /**< the same message may succeed later */
	const char *text; /**< reason, never NULL; valid until the next connect */
};

/** A pool, as reported at connect. */
struct kvr_client_pool {
	const char *name; /**< valid until the next connect */
	uint16_t number;
	uint8_t role;	     /**< 0 aggregated, 1 prefill, 2 decode */
	uint32_t block_size; /**< tokens per block, for kvr_client_hash_tokens() */
	uint32_t ranks;	     /**< ranks known to the router at connect */
	bool eagle;	     /**< for kvr_client_hash_tokens() */
	bool serves;	     /**< the pool had workers for requests at connect */
};

#define KVR_CLIENT_QUERY 0x1u /**< choose a worker only: nothing is sent to an engine */
#define KVR_CLIENT_DIRECT                                                                          \
	0x2u		      /**< items come from the agent directly, not through the router   \ */
#define KVR_CLIENT_EAGLE 0x4u /**< the router computes hashes over EAGLE windows */
/** Book only: nothing is sent to an engine. The caller sends the request to the engine that
 * on_accepted names, and reports progress by kvr_client_report(). The booking lasts until the last
 * report, or until the router receives nothing from this client for some seconds (10 by default).
 * Not with a body, QUERY or DIRECT. */
#define KVR_CLIENT_BOOK 0x8u
/** Health probe of an engine: goes to its pinned worker and leaves no booking, session, prediction
 * or counter in the router. Not with hashes, tokens, QUERY, BOOK or LOADS. */
#define KVR_CLIENT_HEALTH 0x40u
/** detail[0] of REJECTED with DispatchFailed: the agent of the chosen worker accepts only bodies
 * that pass the router. */
#define KVR_CLIENT_NO_BODIES 2u
/** The body passes the router regardless of its size. */
#define KVR_CLIENT_INLINE 0x20u
/** The end includes tracking data: kvr_client_end::tracker. With DIRECT the items pass the router
 * all the same. */
#define KVR_CLIENT_TRACK 0x80u
/** The choice is not needed: if the answer begins within half a millisecond, on_accepted is not
 * called, and a frame is saved. Without effect with QUERY, DIRECT, BOOK or LOADS, and for requests
 * of more than one frame. */
#define KVR_CLIENT_QUIET 0x100u
/** Query the potential load of every rank: on_loads, then the end QUERIED. */
#define KVR_CLIENT_LOADS 0x10u

/** Where the request was sent, or would be sent. */
struct kvr_client_choice {
	bool known; /**< false: the answer arrived, but the choice was lost; the other fields are 0
		     */
	uint64_t worker;
	uint32_t dp_rank;
	uint32_t overlap_blocks;  /**< leading blocks believed cached at this worker */
	uint32_t required_blocks; /**< blocks of the prompt */
	uint32_t cached_tokens;
	enum kvr_way way;
	uint64_t prefill_worker;  /**< BOOTSTRAP and SYNC: the worker that computes the prompt */
	uint32_t prefill_dp_rank; /**< UINT32_MAX: none */
	uint32_t prefill_overlap_blocks; /**< leading blocks believed cached there */
	/** BOOK: "host:port" of the engines' HTTP, as registered by their agents; NULL: unknown.
	 * Valid until the request ends or moves. */
	const char *engine, *prefill_engine;
};

/** Identifies a rank. */
struct kvr_client_place {
	uint64_t worker;
	uint32_t dp_rank; /**< UINT32_MAX in failed_at: all ranks of the worker */
};

#define KVR_CLIENT_FAILED_AT 4u /**< maximum number of ranks in a request */

/** Potential load of one rank. */
struct kvr_client_rank_load {
	uint64_t worker;
	uint32_t dp_rank;
	uint32_t active_requests; /**< requests running now */
	uint64_t prefill_tokens;  /**< prompt tokens to compute there, this request included */
	uint64_t decode_blocks;	  /**< blocks in use there, this request included */
	uint32_t overlap_blocks;  /**< leading blocks believed cached there */
	uint32_t cached_tokens;
};

/** Every rank of a pool, including draining ones, ordered by worker and rank. */
struct kvr_client_loads {
	const struct kvr_client_rank_load *rank;
	uint32_t n;
	uint32_t queue_len;	 /**< requests waiting in the pool */
	uint64_t pending_tokens; /**< prompt tokens of these requests */
};

/** Progress of a booked request. */
struct kvr_client_report {
	bool first;  /**< the first token was generated; remains set */
	bool last;   /**< the request ended: on_end follows when the router has acknowledged */
	bool failed; /**< with last: the engine failed the request; this counts for its rank */
	uint32_t generated_tokens; /**< so far; never decreases */
	uint32_t cached_tokens;	   /**< prompt tokens found cached; 0: unknown */
};

/** Queue of the pool when the request joined it. */
struct kvr_client_queue {
	uint32_t len;	 /**< requests waiting */
	uint32_t tokens; /**< prompt tokens of these requests */
};

#define KVR_CLIENT_ITEM_LAST 0x1u /**< the answer is complete with this item */
#define KVR_CLIENT_ITEM_ERROR                                                                      \
	0x2u /**< with LAST: the engine failed; data is the reason as text, not part of the answer \
		\ */
#define KVR_CLIENT_ITEM_TOKENS                                                                     \
	0x8u /**< data is uint32_t token ids, aligned, in host byte order                          \
	      */

/** One item of the answer; items are reported in order, each exactly once. */
struct kvr_client_item {
	uint32_t seq; /**< 0, 1, ... */
	uint32_t flags;
	uint16_t status;	   /**< defined by the engine, 0 = success */
	uint32_t generated_tokens; /**< so far, this item included */
	uint32_t cached_tokens;	   /**< found cached by the engine; UINT32_MAX: unknown */
	const void *data; /**< valid during the callback, or until the next call for this request */
	uint32_t len;	  /**< at most 64 KiB */
};

/** Reason for the end of a request. */
enum kvr_client_reason {
	KVR_CLIENT_FINISHED = 0,  /**< the last item was delivered, or the end was reported */
	KVR_CLIENT_QUERIED = 1,	  /**< the query was answered, after on_accepted or on_loads */
	KVR_CLIENT_FAILED = 2,	  /**< the engine ended the request with an error; see status */
	KVR_CLIENT_REJECTED = 3,  /**< rejected by the router; see code, text, retryable, detail */
	KVR_CLIENT_CANCELLED = 4, /**< by kvr_client_cancel(), or the engine was stopped */
	KVR_CLIENT_TIMEOUT = 5,	  /**< the time limit passed; the engine was stopped */
	/** The router lost the request by a restart after the answer began. The library submits
	 * requests again that have no item yet, and DIRECT continues. */
	KVR_CLIENT_LOST = 6,
	KVR_CLIENT_CLOSED = 7, /**< kvr_client_destroy() */
	KVR_CLIENT_SILENT =
		8, /**< no message for silence_ms: the router, or the network path, is down */
};

/** Timing of a request as measured by the router, in microseconds; UINT32_MAX: unknown or not
 * applicable. */
struct kvr_client_tracker {
	uint64_t worker;
	uint64_t prefill_worker; /**< 0: none */
	uint32_t dp_rank;
	uint32_t prefill_dp_rank;
	uint32_t overlap_blocks, prefill_overlap_blocks; /**< as in kvr_client_choice */
	uint32_t required_blocks;
	uint32_t predicted_cached_tokens;
	uint32_t cached_tokens; /**< found cached by the engine; UINT32_MAX: unknown */
	uint32_t isl, osl;
	/** from ROUTE to DISPATCH of the final attempt */
	uint32_t queue_us;
	uint32_t ttft_us;     /**< from ROUTE to the first token */
	uint32_t itl_us;      /**< mean interval between tokens */
	uint32_t prefill_us;  /**< duration of the prefill leg */
	uint32_t transfer_us; /**< from its end to the first token */
	double hit_rate;      /**< overlap blocks divided by required blocks */
	/** Opaque data from the engine that computed the prompt: prompt_tokens_details, and a link
	 * to its trace. NULL: none. */
	const void *prompt_details, *trace_link;
	uint32_t prompt_details_len, trace_link_len;
};

struct kvr_client_end {
	enum kvr_client_reason reason;
	bool retryable;	 /**< the same request may succeed if submitted again */
	uint16_t code;	 /**< REJECTED: code of PROTOCOL.md, see kvr_code_name() */
	uint16_t status; /**< FAILED: defined by the engine */
	uint32_t items;	 /**< number of items delivered */
	/** FINISHED, FAILED: the engine failed, even if the answer looks complete, and another
	 * engine may succeed. Use kvr_client_request::failed_at to avoid this rank in a retry. */
	bool failed;
	bool refused; /**< the same, for lack of capacity */
	/** Rank that ended the request: with failed or refused, and for REJECTED with
	 * DispatchFailed or PrefillFailed. */
	bool place_known;
	struct kvr_client_place place;
	uint64_t detail[4]; /**< REJECTED: details as defined in PROTOCOL.md for the code */
	/** REJECTED: reason as text, with numbers. FAILED, CANCELLED: text of the agent, may be
	 * empty. Not NULL in these cases; valid during the callback, or until the next call for
	 * this request. */
	const char *text;
	/** TRACK: tracking data, if the last item had them; else NULL. Valid as text. */
	const struct kvr_client_tracker *tracker;
};

/** Events of a request; any may be NULL. Callbacks may submit and cancel, but not destroy or
 * wait. */
struct kvr_client_ops {
	/**
	 * The request waits in the router's queue, for a prefill worker, or for its session to be
	 * opened. on_accepted follows when it is sent. This may take long, and may repeat after
	 * on_accepted if a prefill failed.
	 */
	void (*on_queued)(struct kvr_client *client, uint64_t id, const struct kvr_client_queue *q,
			  void *user);
	/** The request was sent (again after a new choice), or the query was answered. */
	void (*on_accepted)(struct kvr_client *client, uint64_t id,
			    const struct kvr_client_choice *ch, void *user);
	void (*on_item)(struct kvr_client *client, uint64_t id, const struct kvr_client_item *it,
			void *user);
	/** LOADS: the answer, valid during the callback. */
	void (*on_loads)(struct kvr_client *client, uint64_t id,
			 const struct kvr_client_loads *loads, void *user);
	/** Exactly once, as the last event; the id is invalid afterwards. */
	void (*on_end)(struct kvr_client *client, uint64_t id, const struct kvr_client_end *e,
		       void *user);
};

/** A request. Submit copies everything except ops, which must remain valid. */
struct kvr_client_request {
	const char *pool_name; /**< requires a finished connect; NULL: use pool */
	uint16_t pool;	       /**< pool number, if pool_name is NULL */
	uint32_t flags; /**< KVR_CLIENT_QUERY, _DIRECT, _EAGLE, _BOOK, _LOADS, _INLINE, _HEALTH,
			   _TRACK, _QUIET */
	const uint32_t *tokens; /**< prompt; without tokens and hashes only load and isl decide */
	uint32_t n_tokens;
	const uint64_t *hashes; /**< sequence hashes of full blocks; they decide the routing */
	uint32_t n_hashes;
	uint32_t isl;	     /**< prompt tokens; default n_tokens; required without tokens */
	uint32_t max_tokens; /**< default: no limit */
	uint32_t expected_output_tokens; /**< default: unknown */
	uint32_t queue_ms;		 /**< time limit in the router's queue */
	uint32_t request_ms; /**< time limit from submit to end; default: that of the configuration
			      */
	const void *body;    /**< opaque, for the engine */
	uint32_t body_len;
	const struct kvr_client_hints *hints; /**< NULL: none */
	/** Ranks where this request failed, at most 4; others are preferred. */
	const struct kvr_client_place *failed_at;
	uint32_t n_failed_at;
	const struct kvr_client_ops *ops; /**< NULL: read by kvr_client_next_item() */
	void *user;			  /**< for ops */
};

/** Counters since create. sent and received count frames. */
struct kvr_client_stats {
	uint64_t frames_sent, frames_unsent; /**< unsent: not accepted by the socket */
	uint64_t frames_received, frames_bad,
		frames_foreign; /**< foreign: for another client, or not from the router */
	uint64_t submitted, ended, resent, probes,
		restarted; /**< restarted: submitted again after the router lost it */
	uint64_t items, items_repeated;
	uint64_t fragments_again;  /**< fragments of large requests that the router lacked */
	uint64_t delivered;	   /**< bodies delivered to agents */
	uint64_t deliveries_again; /**< retried, because the agent was not reachable or not ready */
};

/**
 * Create a client; sends nothing yet.
 * @return NULL with errno EINVAL (a field out of range, no router), ENOENT (unknown host), EAGAIN
 * (resolver failed), ENOMEM, or of socket(2), bind(2).
 */
KVR_CLIENT_API struct kvr_client *kvr_client_create(const struct kvr_client_conf *conf);

/** End every request with KVR_CLIENT_CLOSED, send the router one CANCEL each, and free everything.
 * NULL is allowed. */
KVR_CLIENT_API void kvr_client_destroy(struct kvr_client *client);

/** Start connecting; on_connect reports the result. May be repeated to refresh the pools. @return
 * 0 */
KVR_CLIENT_API int kvr_client_connect(struct kvr_client *client);

/**
 * Limits of the router; a new incarnation of the router may have others.
 * @return 0, or -ENOTCONN before connecting.
 */
KVR_CLIENT_API int kvr_client_limits(const struct kvr_client *client,
				     struct kvr_client_limits *out);

/** Rejection of the last connect; code 0: it succeeded, or no answer came. */
KVR_CLIENT_API struct kvr_client_refusal
kvr_client_connect_refusal(const struct kvr_client *client);

/** Pools of the router; none before connecting. The array is valid until the next connect. */
KVR_CLIENT_API const struct kvr_client_pool *kvr_client_pools(const struct kvr_client *client,
							      uint32_t *n);

/** Number of a pool. @return 0..65535, -ENOTCONN before connecting, -ENOENT. */
KVR_CLIENT_API int kvr_client_pool_lookup(const struct kvr_client *client, const char *name);

/** Descriptor to poll for reading; never changes. */
KVR_CLIENT_API int kvr_client_fd(const struct kvr_client *client);

/** Milliseconds until kvr_client_process() is needed without input; -1: never. */
KVR_CLIENT_API int kvr_client_timeout_ms(const struct kvr_client *client);

/** Return true if a sleep for that time should end on time: a large message or body is being sent
 * in steps of a millisecond, or fragments are missing. Otherwise 4 ms more are harmless. */
KVR_CLIENT_API bool kvr_client_timeout_strict(const struct kvr_client *client);

/** Receive, run timers, make callbacks, send. @return the number of frames received. */
KVR_CLIENT_API int kvr_client_process(struct kvr_client *client);

/** The same without receiving, for callers that know that the descriptor is not readable, or read
 * it next. */
KVR_CLIENT_API void kvr_client_flush(struct kvr_client *client);

/**
 * Submit a request; it is sent by the next kvr_client_process() or kvr_client_flush() at the
 * latest.
 * @param id set to the id of the request: never 0, never used twice
 * @return 0, -EINVAL (no isl, contradictory isl, unknown flag, invalid hints), -EMSGSIZE (above a
 * limit of the protocol or the router), -ENOTCONN, -ENOENT (pool_name), -EBUSY (max_requests are in
 * flight), -ENOMEM.
 */
KVR_CLIENT_API int kvr_client_submit(struct kvr_client *client,
				     const struct kvr_client_request *req, uint64_t *id);

/**
 * Cancel a request: no further item is delivered, and on_end follows when the router has answered,
 * or after about 6 s. @return 0; -ENOENT: it has ended.
 */
KVR_CLIENT_API int kvr_client_cancel(struct kvr_client *client, uint64_t id);

/**
 * Report the progress of a request with KVR_CLIENT_BOOK, after on_accepted. A report is
 * retransmitted until the router acknowledges it; a later report replaces earlier ones.
 * @return 0; -ENOENT: it has ended, or its end was reported; -EINVAL: not booked with
 * KVR_CLIENT_BOOK; -EAGAIN: not booked yet.
 */
KVR_CLIENT_API int kvr_client_report(struct kvr_client *client, uint64_t id,
				     const struct kvr_client_report *r);

/** A session to be released; strings are copied. */
struct kvr_client_release {
	const char *pool_name; /**< requires a finished connect; NULL: use pool */
	uint16_t pool;	       /**< pool number, if pool_name is NULL; the decode pool of a pair */
	const char *session;   /**< 1..256 bytes of UTF-8 */
	/**
	 * Called exactly once; may be NULL. @p status 0: the session is unbound, and its worker is
	 * notified; -ENOENT: it was not bound (or the first answer was lost); -EACCES: rejected
	 * with @p code; -ETIMEDOUT: no answer within 5 s; -ECANCELED: kvr_client_destroy(). @p
	 * session is valid during the callback.
	 */
	void (*on_released)(struct kvr_client *client, const char *session, int status,
			    uint16_t code, void *user);
	void *user; /**< for on_released */
};

/**
 * Release a session without a request (with a request: kvr_client_hint_session() with CLOSE).
 * @return 0, -EINVAL (invalid session), -EMSGSIZE (too long), -ENOTCONN, -ENOENT (pool_name),
 * -EBUSY (1,024 releases are unanswered), -ENOMEM.
 */
KVR_CLIENT_API int kvr_client_release(struct kvr_client *client,
				      const struct kvr_client_release *r);

KVR_CLIENT_API uint32_t kvr_client_in_flight(const struct kvr_client *client);
KVR_CLIENT_API void kvr_client_stats_get(const struct kvr_client *client,
					 struct kvr_client_stats *out);
KVR_CLIENT_API uint64_t kvr_client_source(const struct kvr_client *client);

/**
 * Describe a rejection in one line: code, text of the router, and details (field, value, limit of
 * the pool). Any thread; @p e as in on_end.
 * @return length of the line without terminator, which may exceed @p len.
 */
KVR_CLIENT_API int kvr_client_explain(const struct kvr_client_end *e, char *buf, size_t len);

/* --- blocking functions -------------------------------------------------------------------- */

/**
 * Connect and wait. A router that is down, or whose allow-list excludes this client, does not
 * answer. A router that rejects gives a reason: kvr_client_connect_refusal().
 * @return 0; -ETIMEDOUT: no answer for connect_ms; -EBUSY: the router lacked capacity for that
 * time; -EACCES: not allowed (NotAllowed); -EPROTO: the router does not understand the client.
 */
KVR_CLIENT_API int kvr_client_connect_wait(struct kvr_client *client);

/**
 * Submit (ops must be NULL) and wait until the request is sent to a worker, answered (query), or
 * ended.
 * @param choice may be NULL; choice->known is false if the complete answer came without it
 * @return 0: sent or answered, continue with kvr_client_next_item() (also for a query: it returns
 * the end); -ECANCELED: ended without, kvr_client_next_item() returns the reason; or an error of
 * kvr_client_submit(), with *id 0.
 */
KVR_CLIENT_API int kvr_client_route_wait(struct kvr_client *client,
					 const struct kvr_client_request *req,
					 struct kvr_client_choice *choice, uint64_t *id);

/**
 * Next item of a request without callbacks. Other requests proceed meanwhile.
 * @param timeout_ms -1: no limit, 0: do not wait
 * @return 1: *item is filled; 0: ended, *end is filled, and the id is invalid after the next call;
 * -ETIMEDOUT: no item yet; -ENOENT: unknown id.
 */
KVR_CLIENT_API int kvr_client_next_item(struct kvr_client *client, uint64_t id,
					struct kvr_client_item *item, struct kvr_client_end *end,
					int timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
