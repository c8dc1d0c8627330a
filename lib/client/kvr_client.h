/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_CLIENT_H
#define KVR_CLIENT_H

/**
 * @file
 * Client of a kvroute router, for front ends: submit tokenised requests, learn where each one was
 * sent, receive the streamed answer. Plain UDP sockets; no DPDK, no threads, no signals, no log.
 *
 * One object, one thread, any number of requests in flight. The object never blocks and never
 * calls back except from inside kvr_client_process(), kvr_client_flush() and kvr_client_destroy():
 *
 *	struct kvr_client *c = kvr_client_create(&(struct kvr_client_conf){.router = "r1"});
 *	kvr_client_connect(c);
 *	for (;;) {
 *		struct pollfd p = {kvr_client_fd(c), POLLIN, 0};
 *		poll(&p, 1, kvr_client_timeout_ms(c));
 *		kvr_client_process(c);
 *	}
 *
 * Put kvr_client_fd() into an event loop that already exists and call kvr_client_process() when
 * it is readable or kvr_client_timeout_ms() has passed. Ask for the timeout again after every
 * call into the library, because submitting and cancelling start timers. Programs that do one
 * thing at a time use kvr_client_connect_wait(), kvr_client_route_wait() and
 * kvr_client_next_item() instead of callbacks.
 *
 * Loss, duplicates and reordering of datagrams are the library's business. Every submitted request
 * ends exactly once, through on_end (or through kvr_client_next_item() for requests without
 * callbacks), whatever happens to the router, the engine or the network.
 *
 * Functions return 0 or a count, or -errno; those that return pointers return NULL and set errno.
 * In all structures zero means "default" or "not given", so designated initialisers suffice.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvr_types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVR_CLIENT_API __attribute__((visibility("default")))

struct kvr_client;
struct kvr_client_hints;

/** How to reach the router, and limits. Strings are copied. */
struct kvr_client_conf {
	const char *router;    /**< "host", "host:port", "[v6]:port"; names are resolved once */
	uint16_t port;	       /**< when router names none; default 7650 */
	const char *bind;      /**< local "address", "address:port"; default any */
	uint64_t source;       /**< this client's identity; default random, and best left so */
	uint32_t frame_bytes;  /**< largest UDP payload, 560..8952; default 1432 */
	uint32_t max_requests; /**< in flight at once, 1..1048576; default 16384 */
	uint32_t connect_ms;   /**< give up connecting after this; default 5000 */
	uint32_t request_ms;   /**< default time limit of a request, submit to end; default none */
	/** A request that nobody answers for is given up after this; default 15000, and routers and
	 * agents remember it for that long and not much longer. */
	uint32_t silence_ms;
	uint32_t buffer_bytes; /**< unread items of one request without callbacks; default 4 MiB */
	/** Items and answers about loads of more than a frame that are being put together, of all
	 * requests; default 8 MiB. What finds no room comes again. */
	uint32_t assembly_bytes;
	/** A body of more bytes than this does not pass the router: it is given to the worker's
	 * agent over a connection of its own, up to 64 MiB. Default never; 65536 is a good number.
	 */
	uint32_t away_bytes;
	/** Microseconds that the acknowledgement of an answer's end may wait for other frames to
	 * leave with, at most 5000: it takes no call, no wake-up of the router and of the agent of
	 * its own then. For who goes on calling kvr_client_process(). Default none. */
	uint32_t ack_us;
	/** The outcome of kvr_client_connect(); see kvr_client_connect_wait(). May be NULL. */
	void (*on_connect)(struct kvr_client *c, int status, void *user);
	void *user; /**< for on_connect */
};

/** What the router takes, as it told when connecting. */
struct kvr_client_limits {
	uint32_t frame_bytes; /**< of frames: the smaller limit of both sides */
	uint32_t max_tokens;  /**< of a request, and of its isl */
	uint32_t max_hashes;
	uint32_t max_body;    /**< bytes */
	uint32_t max_message; /**< bytes of everything together: kvr_client_submit() -EMSGSIZE */
};

/** How the router has refused something. */
struct kvr_client_refusal {
	uint16_t code;	  /**< number of PROTOCOL.md, kvr_code_name(); 0: it has not */
	bool retryable;	  /**< later it may not */
	const char *text; /**< in words, never NULL; valid until the next connect */
};

/** What a pool is, as the router told it when connecting. */
struct kvr_client_pool {
	const char *name; /**< valid until the next connect */
	uint16_t number;
	uint8_t role;	     /**< 0 aggregated, 1 prefill, 2 decode */
	uint32_t block_size; /**< tokens of a block, for kvr_client_hash_tokens() */
	uint32_t ranks;	     /**< known to the router at that time */
	bool eagle;	     /**< for kvr_client_hash_tokens(), too */
	bool serves;	     /**< a request would have found workers at that time */
};

#define KVR_CLIENT_QUERY 0x1u /**< only ask where it would go: nothing is sent to an engine */
#define KVR_CLIENT_DIRECT                                                                          \
	0x2u		      /**< items come from the engine's agent without passing the router   \
			       */
#define KVR_CLIENT_EAGLE 0x4u /**< the router hashes tokens in eagle windows */
/** Only book it: nothing is sent to an engine. The caller takes it to the engine that on_accepted
 * names, and says with kvr_client_report() how it goes; the booking lasts until then, or until
 * nothing is heard of this client for some seconds (10 unless the router is configured otherwise).
 * Without body and not with QUERY or DIRECT. */
#define KVR_CLIENT_BOOK 0x8u
/** A probe of an engine's health: goes where it is pinned, and leaves no trace in the router: no
 * booking, session, prediction or counter. Without hashes and tokens, and not with QUERY, BOOK or
 * LOADS. */
#define KVR_CLIENT_HEALTH 0x40u
/** REJECTED DispatchFailed, detail[0]: the chosen worker's agent takes no bodies but those that
 * pass the router. */
#define KVR_CLIENT_NO_BODIES 2u
/** The body goes through the router whatever its size. */
#define KVR_CLIENT_INLINE 0x20u
/** The end says how it went: kvr_client_end::tracker. With DIRECT the items pass the router all the
 * same. */
#define KVR_CLIENT_TRACK 0x80u
/** Where it went is not of interest: when the answer begins at once (half a millisecond),
 * on_accepted does not come, and the frame is saved. Without meaning where ACCEPTED is needed: with
 * QUERY, DIRECT, BOOK and LOADS, and for a request of more than a frame. */
#define KVR_CLIENT_QUIET 0x100u
/** Only ask what every rank would have to do: on_loads, then the end QUERIED. */
#define KVR_CLIENT_LOADS 0x10u

/** Where the request was sent, or would be. */
struct kvr_client_choice {
	bool known; /**< false: the answer came, and what would be here was lost; the rest is 0 */
	uint64_t worker;
	uint32_t dp_rank;
	uint32_t overlap_blocks;  /**< leading blocks believed cached at this worker */
	uint32_t required_blocks; /**< blocks of the prompt */
	uint32_t cached_tokens;
	enum kvr_way way;
	uint64_t prefill_worker;	 /**< BOOTSTRAP and SYNC: who computes the prompt */
	uint32_t prefill_dp_rank;	 /**< UINT32_MAX without one */
	uint32_t prefill_overlap_blocks; /**< leading blocks believed cached there */
	/** BOOK: "host:port" of the engines' HTTP as their agents have registered it; NULL: not
	 * known. Valid until the request ends or moves. */
	const char *engine, *prefill_engine;
};

/** A rank by its name. */
struct kvr_client_place {
	uint64_t worker;
	uint32_t dp_rank; /**< UINT32_MAX, in failed_at: each of the worker's */
};

#define KVR_CLIENT_FAILED_AT 4u /**< ranks that a request may name */

/** What one rank would have to do. */
struct kvr_client_rank_load {
	uint64_t worker;
	uint32_t dp_rank;
	uint32_t active_requests; /**< now */
	uint64_t prefill_tokens;  /**< prompt tokens to compute there, this request included */
	uint64_t decode_blocks;	  /**< blocks in use there, this request included */
	uint32_t overlap_blocks;  /**< leading blocks believed cached there */
	uint32_t cached_tokens;
};

/** Every rank of a pool, draining ones too, ordered by worker and rank. */
struct kvr_client_loads {
	const struct kvr_client_rank_load *rank;
	uint32_t n;
	uint32_t queue_len;	 /**< requests waiting in the pool */
	uint64_t pending_tokens; /**< their prompt tokens */
};

/** How a request goes that is only booked. */
struct kvr_client_report {
	bool first;		   /**< its first token is there; stays said */
	bool last;		   /**< it is over: on_end comes when the router knows */
	bool failed;		   /**< with last: not well */
	uint32_t generated_tokens; /**< so far; does not fall */
	uint32_t cached_tokens;	   /**< prompt tokens found cached; 0: not known */
};

/** The pool's queue at the time the request joined it. */
struct kvr_client_queue {
	uint32_t len;	 /**< requests waiting */
	uint32_t tokens; /**< their prompt tokens */
};

#define KVR_CLIENT_ITEM_LAST 0x1u /**< the answer is complete with this item */
#define KVR_CLIENT_ITEM_ERROR                                                                      \
	0x2u /**< with LAST: the engine failed; data is the reason in words, no part of the answer \
	      */
#define KVR_CLIENT_ITEM_TOKENS 0x8u /**< data is uint32_t token ids, aligned, host order */

/** One item of the answer, in order, each exactly once. */
struct kvr_client_item {
	uint32_t seq; /**< 0, 1, ... */
	uint32_t flags;
	uint16_t status;	   /**< engine-defined, 0 fine */
	uint32_t generated_tokens; /**< so far, this item included */
	uint32_t cached_tokens;	   /**< what the engine found cached; UINT32_MAX not told */
	const void *data; /**< valid during the callback, or until the next call for this request */
	uint32_t len;	  /**< at most 64 KiB */
};

/** Why a request ended. */
enum kvr_client_reason {
	KVR_CLIENT_FINISHED = 0, /**< the last item has been delivered, or its end reported */
	KVR_CLIENT_QUERIED = 1, /**< the query was answered (on_accepted or on_loads came before) */
	KVR_CLIENT_FAILED = 2,	/**< the engine ended it with an error; see status */
	KVR_CLIENT_REJECTED = 3,  /**< by the router; see code, text, retryable, detail */
	KVR_CLIENT_CANCELLED = 4, /**< kvr_client_cancel(), or the engine was told to stop */
	KVR_CLIENT_TIMEOUT = 5,	  /**< its time limit passed; the engine has been told to stop */
	/** The router is there, but has forgotten it: a restart. Only what has begun to be answered
	 * ends so: what has not is submitted again by the library, and DIRECT goes on. */
	KVR_CLIENT_LOST = 6,
	KVR_CLIENT_CLOSED = 7, /**< kvr_client_destroy() */
	KVR_CLIENT_SILENT = 8, /**< nobody answered for silence_ms: the router is down, or the
				* way to it */
};

/** How a request went, as the router saw it. Times are in microseconds; UINT32_MAX: not known, or
 * there is none. */
struct kvr_client_tracker {
	uint64_t worker;
	uint64_t prefill_worker; /**< 0 without one */
	uint32_t dp_rank;
	uint32_t prefill_dp_rank;
	uint32_t overlap_blocks, prefill_overlap_blocks; /**< as in kvr_client_choice */
	uint32_t required_blocks;
	uint32_t predicted_cached_tokens;
	uint32_t cached_tokens; /**< what the engine found; UINT32_MAX not told */
	uint32_t isl, osl;
	/** from the arrival of the ROUTE to the DISPATCH of the try that counted */
	uint32_t queue_us;
	uint32_t ttft_us;     /**< arrival to the first token */
	uint32_t itl_us;      /**< mean gap between tokens */
	uint32_t prefill_us;  /**< the prefill leg */
	uint32_t transfer_us; /**< its end to the first token */
	double hit_rate;      /**< overlap by required blocks */
	/** What the engine that computed the prompt has said of it, opaque: its
	 * prompt_tokens_details, and a link to its trace. NULL: nothing. */
	const void *prompt_details, *trace_link;
	uint32_t prompt_details_len, trace_link_len;
};

struct kvr_client_end {
	enum kvr_client_reason reason;
	bool retryable;	 /**< the same request may succeed if submitted again */
	uint16_t code;	 /**< REJECTED: number of PROTOCOL.md, kvr_code_name() */
	uint16_t status; /**< FAILED: engine-defined */
	uint32_t items;	 /**< delivered before the end */
	/** FINISHED, FAILED: the engine has failed it, whatever its answer looks like: another one
	 * may do better. kvr_client_request::failed_at keeps a second attempt away from there. */
	bool failed;
	bool refused; /**< the same, for want of room */
	/** FINISHED or FAILED with one of these, REJECTED with DispatchFailed or PrefillFailed: the
	 * rank that has ended it so. */
	bool place_known;
	struct kvr_client_place place;
	uint64_t detail[4]; /**< REJECTED: as PROTOCOL.md says for the code */
	/** REJECTED: reason in words, with numbers. FAILED, CANCELLED: what the agent says of it,
	 * may be empty. Never NULL with these; valid during the callback, or until the next call
	 * for this request. */
	const char *text;
	/** TRACK, and the last item has come with it; else NULL. Valid as text. */
	const struct kvr_client_tracker *tracker;
};

/** Events of a request; any may be NULL. They may submit and cancel, but not destroy or wait. */
struct kvr_client_ops {
	/**
	 * It waits, in the router's queue, for another worker to compute its prompt, or for its
	 * session to be opened; on_accepted follows when it is sent. This may take long, and may
	 * come again after on_accepted, when a prefill has failed.
	 */
	void (*on_queued)(struct kvr_client *c, uint64_t id, const struct kvr_client_queue *q,
			  void *user);
	/** It was sent (again, if the choice had to be made again), or the query was answered. */
	void (*on_accepted)(struct kvr_client *c, uint64_t id, const struct kvr_client_choice *ch,
			    void *user);
	void (*on_item)(struct kvr_client *c, uint64_t id, const struct kvr_client_item *it,
			void *user);
	/** LOADS: the answer, valid during the callback. */
	void (*on_loads)(struct kvr_client *c, uint64_t id, const struct kvr_client_loads *loads,
			 void *user);
	/** Exactly once, last; the id is dead when it returns. */
	void (*on_end)(struct kvr_client *c, uint64_t id, const struct kvr_client_end *e,
		       void *user);
};

/** A request. Everything pointed to is copied by submit, except ops (must stay valid). */
struct kvr_client_request {
	const char *pool_name; /**< needs a finished connect; NULL: use pool */
	uint16_t pool;	       /**< number, when pool_name is NULL */
	uint32_t flags; /**< KVR_CLIENT_QUERY, _DIRECT, _EAGLE, _BOOK, _LOADS, _INLINE, _TRACK */
	const uint32_t *tokens; /**< prompt; without tokens and hashes only load decides, by isl */
	uint32_t n_tokens;
	const uint64_t *hashes; /**< sequence hashes of its full blocks; they decide the routing */
	uint32_t n_hashes;
	uint32_t isl; /**< prompt tokens; default n_tokens; needed when there are no tokens */
	uint32_t max_tokens;		 /**< default not limited here */
	uint32_t expected_output_tokens; /**< default unknown */
	uint32_t queue_ms;   /**< the router gives up holding it in its queue after this */
	uint32_t request_ms; /**< time limit, submit to end; default that of the configuration */
	const void *body;    /**< opaque, for the engine */
	uint32_t body_len;
	const struct kvr_client_hints *hints; /**< NULL: none */
	/** Ranks where this request has failed, at most 4: others are preferred. */
	const struct kvr_client_place *failed_at;
	uint32_t n_failed_at;
	const struct kvr_client_ops *ops; /**< NULL: read with kvr_client_next_item() */
	void *user;			  /**< for ops */
};

/** Counters since create. sent and received count frames. */
struct kvr_client_stats {
	uint64_t frames_sent, frames_unsent; /**< unsent: the socket took no more */
	uint64_t frames_received, frames_bad, frames_foreign; /**< foreign: not for us or not from
							       * the router */
	uint64_t submitted, ended, resent, probes, restarted; /**< restarted: submitted again to a
							       * router that had lost it */
	uint64_t items, items_repeated;
	uint64_t fragments_again;  /**< of large requests, because the router lacked them */
	uint64_t delivered;	   /**< bodies given to agents */
	uint64_t deliveries_again; /**< begun once more: the agent was not there, or not ready */
};

/**
 * Make a client; nothing is sent yet.
 * @return NULL with errno EINVAL (a field out of range, no router), ENOENT (unknown host), EAGAIN
 * (resolver failed), ENOMEM, or of socket(2), bind(2).
 */
KVR_CLIENT_API struct kvr_client *kvr_client_create(const struct kvr_client_conf *conf);

/** End every request with KVR_CLIENT_CLOSED, tell the router once, free everything. NULL is fine.
 */
KVR_CLIENT_API void kvr_client_destroy(struct kvr_client *c);

/** Start asking for the pools; on_connect tells the outcome. May be repeated to refresh. @return 0
 */
KVR_CLIENT_API int kvr_client_connect(struct kvr_client *c);

/**
 * What the router takes. Another life of the router may take something else: ask again after it.
 * @return 0, -ENOTCONN before connecting.
 */
KVR_CLIENT_API int kvr_client_limits(const struct kvr_client *c, struct kvr_client_limits *out);

/** How the router has answered the last connect when it was not CONNECTED; code 0 when it has been,
 * or nobody has answered. */
KVR_CLIENT_API struct kvr_client_refusal kvr_client_connect_refusal(const struct kvr_client *c);

/** Pools known; none before connecting. The array is valid until the next connect. */
KVR_CLIENT_API const struct kvr_client_pool *kvr_client_pools(const struct kvr_client *c,
							      uint32_t *n);

/** Number of a pool. @return 0..65535, -ENOTCONN before connecting, -ENOENT. */
KVR_CLIENT_API int kvr_client_pool_lookup(const struct kvr_client *c, const char *name);

/** Descriptor to poll for reading; the same for the whole life. */
KVR_CLIENT_API int kvr_client_fd(const struct kvr_client *c);

/** Milliseconds until kvr_client_process() is needed even if the descriptor is silent; -1: never.
 */
KVR_CLIENT_API int kvr_client_timeout_ms(const struct kvr_client *c);

/** Whether a sleep for that time should end on time: a large message or a body leaves in steps of a
 * millisecond, or parts of one are waited for. Otherwise 4 ms more do no harm. */
KVR_CLIENT_API bool kvr_client_timeout_strict(const struct kvr_client *c);

/** Receive, run timers, call back, send. @return number of frames handled. */
KVR_CLIENT_API int kvr_client_process(struct kvr_client *c);

/** The same without receiving: for who knows that the descriptor is silent, or looks at it next. */
KVR_CLIENT_API void kvr_client_flush(struct kvr_client *c);

/**
 * Hand over a request; it is sent by the next kvr_client_process() or kvr_client_flush() at the
 * latest.
 * @param id its name from now on, never 0 and never used twice
 * @return 0, -EINVAL (no isl, or one that contradicts, unknown flag, broken hints), -EMSGSIZE
 * (above a limit of the protocol or the router), -ENOTCONN, -ENOENT (pool_name), -EBUSY
 * (max_requests are in flight), -ENOMEM.
 */
KVR_CLIENT_API int kvr_client_submit(struct kvr_client *c, const struct kvr_client_request *req,
				     uint64_t *id);

/**
 * Stop a request: no item is delivered any more, on_end comes when the router has answered or
 * after about 6 s. @return 0, -ENOENT when it has ended.
 */
KVR_CLIENT_API int kvr_client_cancel(struct kvr_client *c, uint64_t id);

/**
 * Say how a request goes that was submitted with KVR_CLIENT_BOOK, once on_accepted has come. It is
 * repeated until the router has heard it; a later report stands for those before.
 * @return 0; -ENOENT: it has ended, or its end has been reported; -EINVAL: it is not such a
 * request; -EAGAIN: it is not booked yet.
 */
KVR_CLIENT_API int kvr_client_report(struct kvr_client *c, uint64_t id,
				     const struct kvr_client_report *r);

/** A session to be ended; strings are copied. */
struct kvr_client_release {
	const char *pool_name; /**< needs a finished connect; NULL: use pool */
	uint16_t pool;	       /**< number, when pool_name is NULL; decode pool, if there are two */
	const char *session;   /**< 1..256 bytes of UTF-8 */
	/**
	 * Exactly once; may be NULL. @p status 0: it is bound to no worker any more, and its worker
	 * is told; -ENOENT: it was not bound (or the first answer was lost); -EACCES: refused, and
	 * @p code says why; -ETIMEDOUT: no answer in 5 s; -ECANCELED: kvr_client_destroy().
	 * @p session is valid during the callback.
	 */
	void (*on_released)(struct kvr_client *c, const char *session, int status, uint16_t code,
			    void *user);
	void *user; /**< for on_released */
};

/**
 * End a session without a request (with one: kvr_client_hint_session() with CLOSE).
 * @return 0, -EINVAL (session is not legal), -EMSGSIZE (it is too long), -ENOTCONN, -ENOENT
 * (pool_name), -EBUSY (1,024 wait for their answer), -ENOMEM.
 */
KVR_CLIENT_API int kvr_client_release(struct kvr_client *c, const struct kvr_client_release *r);

KVR_CLIENT_API uint32_t kvr_client_in_flight(const struct kvr_client *c);
KVR_CLIENT_API void kvr_client_stats_get(const struct kvr_client *c, struct kvr_client_stats *out);
KVR_CLIENT_API uint64_t kvr_client_source(const struct kvr_client *c);

/**
 * Why a request was REJECTED, in one line for people: the code, the router's text, and what its
 * details say (field, value, what the pool has). Any thread; @p e as in on_end.
 * @return bytes of the line without its end, which may be more than fit @p len.
 */
KVR_CLIENT_API int kvr_client_explain(const struct kvr_client_end *e, char *buf, size_t len);

/* --- one thing at a time ------------------------------------------------------------------- */

/**
 * Connect and wait. A router that is down, or drops us by its allow-list, says nothing; one that is
 * there and refuses says why: kvr_client_connect_refusal().
 * @return 0; -ETIMEDOUT: nobody answered for connect_ms; -EBUSY: for so long it had no time or room
 * for us; -EACCES: we may not talk to it (NotAllowed); -EPROTO: it does not understand us.
 */
KVR_CLIENT_API int kvr_client_connect_wait(struct kvr_client *c);

/**
 * Submit (ops must be NULL) and wait until it is sent to a worker, answered (query), or ended.
 * @param choice may be NULL; choice->known is false when the whole answer came without it
 * @return 0: it was sent or answered, read on with kvr_client_next_item() (for a query too: it
 * returns the end); -ECANCELED: it ended without, kvr_client_next_item() says why; or an error of
 * kvr_client_submit(), *id is 0 then.
 */
KVR_CLIENT_API int kvr_client_route_wait(struct kvr_client *c, const struct kvr_client_request *req,
					 struct kvr_client_choice *choice, uint64_t *id);

/**
 * Next item of a request without callbacks. Other requests go on meanwhile.
 * @param timeout_ms -1 waits for ever, 0 does not wait
 * @return 1: *item is filled; 0: ended, *end is filled and the id is dead after the next call;
 * -ETIMEDOUT: nothing yet; -ENOENT: unknown id.
 */
KVR_CLIENT_API int kvr_client_next_item(struct kvr_client *c, uint64_t id,
					struct kvr_client_item *item, struct kvr_client_end *end,
					int timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
