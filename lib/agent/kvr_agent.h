/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_AGENT_H
#define KVR_AGENT_H

/**
 * @file
 * Engine side of kvroute: speaks for one worker (an engine process with one or more data-parallel
 * ranks). It registers the worker with the router, keeps it alive there, receives requests, sends
 * their answers, and publishes which blocks each rank caches. Plain UDP; no DPDK, no threads.
 *
 * One object, one thread; it never blocks and calls back only from inside kvr_agent_process() and
 * kvr_agent_destroy(). The loop is that of kvr_client.h:
 *
 *	poll({kvr_agent_fd(a), POLLIN}, kvr_agent_timeout_ms(a)); kvr_agent_process(a);
 *
 * What is repaired without the operator's doing: lost, repeated and reordered datagrams, requests
 * dispatched twice (a handle is never run twice), a router that restarts (the worker says HELLO
 * again and the router asks for a dump of the cache; what ran is aborted, but for answers on the
 * direct path that have begun: those go on), KV events lost on the way (resent from a ring; when
 * the ring no longer has them, the application is asked for a dump), sessions opened and closed
 * twice (copies are answered, and not told).
 *
 * Disaggregated serving: an agent with role prefill gets the prefill legs of requests, and ends
 * each with the transfer result as the data of its last item; one with role decode gets the decode
 * legs, which say where to fetch the blocks. struct kvr_agent_request tells which leg it is.
 *
 * Functions return 0 or a count, or -errno; pointers: NULL and errno. In all structures zero means
 * default or not given, unless said.
 */

#include <stdbool.h>
#include <stdint.h>

#include "kvr_types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kvr_agent;
struct kvr_agent_ops;

/** The worker and how to reach the router. Strings and arrays are copied. */
struct kvr_agent_conf {
	const char *router; /**< "host", "host:port", "[v6]:port" */
	uint16_t port;	    /**< when router names none; default 7650 */
	const char *bind;   /**< local "address" or "address:port"; default any */
	uint64_t worker;    /**< required, unique among all workers, not 0 */
	const char *pool;   /**< required */
	uint32_t epoch; /**< of this process; default from the clock, different at every start */
	enum kvr_role role;
	bool cpu;			 /**< a CPU engine */
	uint32_t block_size;		 /**< required: tokens */
	uint32_t dp_start;		 /**< first rank */
	uint32_t dp_size;		 /**< ranks; default 1 */
	uint64_t total_kv_blocks;	 /**< per rank; default unknown */
	uint32_t max_num_batched_tokens; /**< default unknown */
	const char *engine_addr; /**< "host:port" for those who go to the engine themselves; at most
				  * 100 bytes; NULL: none */
	/** "address:port" where clients give bodies that do not come in frames (PROTOCOL.md,
	 * section 19), numbers only; taking them is the application's. NULL: such requests are
	 * refused. */
	const char *body_addr;
	const char *const *taints;	 /**< ends with NULL */
	const char *const *topology;	 /**< "key=value" strings, ends with NULL */
	uint8_t kv_transfer_enforcement; /**< 0 none, 1 preferred, 2 required */
	double kv_transfer_weight;
	const char *kv_transfer_domain; /**< NULL: no hint is sent */
	/** Prefill: where the engine waits for decode engines. NULL: they get its results instead.
	 */
	const char *bootstrap_host;
	uint16_t bootstrap_port;
	uint32_t frame_bytes;	 /**< largest UDP payload sent, 560..8952; default 1432 */
	uint32_t receive_bytes;	 /**< largest UDP payload that reaches us; default 8952 */
	uint32_t max_requests;	 /**< running at once, 1..262144; default 4096 */
	uint32_t request_bytes;	 /**< unacknowledged answer of one request; default 4 MiB */
	uint32_t assembly_bytes; /**< requests being put together; default 64 MiB */
	uint32_t kv_ring_bytes;	 /**< KV events kept for repair, per rank, to the next power of two;
				  * default 2 MiB */
	uint32_t ack_us; /**< a request is acknowledged so much later, at most 1000, so that its
			  * first item, when it is there by then, says it; default at once */
	const struct kvr_agent_ops *ops; /**< required; must stay valid */
	void *user;			 /**< for ops */
};

/** A dispatched request; everything is valid only during on_dispatch. */
struct kvr_agent_request {
	uint64_t handle;     /**< its name in all calls */
	uint64_t source, id; /**< the client's name of it */
	uint32_t dp_rank;
	enum kvr_role phase;		 /**< as its client said, or that of its leg */
	bool direct;			 /**< items go to the client without the router */
	uint32_t flags;			 /**< KVR_REQ_F_* of the protocol */
	uint32_t attempt;		 /**< times it was dispatched before, elsewhere */
	uint32_t isl;			 /**< prompt tokens */
	uint32_t max_tokens;		 /**< UINT32_MAX: not limited */
	uint32_t expected_output_tokens; /**< UINT32_MAX: unknown */
	uint32_t overlap_blocks;	 /**< device blocks the router believes cached here */
	uint32_t cached_tokens;		 /**< tokens the router believes cached, all tiers */
	const uint64_t *hashes;		 /**< aligned, host order on little-endian machines */
	uint32_t n_hashes;
	const uint32_t *tokens;
	uint32_t n_tokens;
	const void *hints; /**< TLVs, walk them with kvr_agent_hint_next() */
	uint32_t hints_len;
	const void *body;
	uint32_t body_len;
	/** Its body does not come in frames: away_len bytes, from whoever shows the token. */
	bool away;
	uint64_t away_len;
	uint8_t away_token[16];
	/* Disaggregated serving; all zero without a leg. */
	enum kvr_role leg; /**< AGGREGATED: the whole request */
	const char
		*bootstrap_host; /**< both legs: the engines meet here; NULL: by result instead */
	uint16_t bootstrap_port;
	uint64_t bootstrap_room;    /**< the name of the meeting, the same in both legs */
	uint64_t prefill_worker;    /**< decode leg: who computed the prompt */
	const void *prefill_result; /**< decode leg without bootstrap: what its last item said */
	uint32_t prefill_result_len;
};

/** A session to be opened or closed; valid during the callback. */
struct kvr_agent_session {
	const char *id;	    /**< 1..256 bytes of UTF-8 */
	uint32_t timeout_s; /**< open: after so much idle time the engine may drop it by itself */
};

/** One hint of a request. */
struct kvr_agent_hint {
	uint16_t type; /**< KVR_HINT_* of the protocol */
	uint16_t len;
	const void *value;
};

/** One KV event: blocks that follow each other in one sequence. */
struct kvr_agent_kv {
	enum kvr_tier tier;
	bool has_parent;
	uint64_t parent;	/**< sequence hash of the block before hashes[0] */
	const uint64_t *hashes; /**< sequence hashes */
	uint32_t n;
};

/** Where the worker stands with the router; numbers of the protocol. */
enum kvr_agent_state {
	KVR_AGENT_OFFLINE = 0, /**< not registered (yet, or no longer); HELLO is being sent */
	KVR_AGENT_JOINING = 1,
	KVR_AGENT_SERVING = 2,
	KVR_AGENT_SUSPECT = 3,
	KVR_AGENT_DRAINING = 4, /**< no new requests come */
	KVR_AGENT_DRAINED = 5,	/**< none is left: safe to stop */
	KVR_AGENT_GONE = 6,	/**< after kvr_agent_goodbye() */
};

struct kvr_agent_status {
	enum kvr_agent_state state;
	uint32_t bookings; /**< requests the router holds on this worker */
	uint16_t reject;   /**< OFFLINE because refused: the code of PROTOCOL.md, else 0 */
	const char *text;  /**< reason in words, "" without one; valid during the callback */
};

/** Why a request is to be stopped. */
enum kvr_agent_abort {
	KVR_AGENT_ABORT_ROUTER = 1,  /**< cancelled by the client or the router; code says why */
	KVR_AGENT_ABORT_SILENCE = 2, /**< nobody acknowledged its items for 17 s */
	KVR_AGENT_ABORT_CLOSED = 3,  /**< kvr_agent_destroy() */
};

/** Events. on_dispatch is required. They may call everything but destroy. */
struct kvr_agent_ops {
	/**
	 * Run this request: answer with kvr_agent_respond() now or later.
	 * @return 0 taken; 1..65535 refused, the number reaches the client.
	 */
	int (*on_dispatch)(struct kvr_agent *a, const struct kvr_agent_request *r, void *user);
	/**
	 * Stop it; the handle is dead when this returns (the library does the rest). A decode leg
	 * may be stopped before it did anything: what waits for it at the prefill engine must be
	 * released all the same.
	 */
	void (*on_abort)(struct kvr_agent *a, uint64_t handle, enum kvr_agent_abort why,
			 uint16_t code, void *user);
	/** The last item was acknowledged by the client; only now the handle is dead. */
	void (*on_done)(struct kvr_agent *a, uint64_t handle, void *user);
	void (*on_state)(struct kvr_agent *a, const struct kvr_agent_status *s, void *user);
	/**
	 * Tell what @p dp_rank caches now: called with pos 0, 1, 2, ... until it returns 0, all in
	 * one go, so that the dump is of one moment. Parents should come before their children.
	 * NULL: there is nothing to tell, the router starts empty.
	 * @return 1 *kv is filled (hashes valid until the next call), 0 that was all.
	 */
	int (*on_dump)(struct kvr_agent *a, uint32_t dp_rank, uint64_t pos, struct kvr_agent_kv *kv,
		       void *user);
	/**
	 * Open a session, or take the new timeout of one that is open. Called once for each wish of
	 * the router, whatever the network repeats. NULL: always 0.
	 * @return 0; 1..65535 refused, the number reaches the client.
	 */
	int (*on_session_open)(struct kvr_agent *a, const struct kvr_agent_session *s, void *user);
	/** Close it; one that is not open too. NULL: always 0. @return 0, or a number for the log
	 * of the router. */
	int (*on_session_close)(struct kvr_agent *a, const struct kvr_agent_session *s, void *user);
};

struct kvr_agent_stats {
	uint64_t frames_sent, frames_unsent, frames_received, frames_bad, frames_foreign;
	uint64_t dispatches, duplicates, refused, aborted, finished, abandoned;
	uint64_t items, items_resent;
	uint64_t fragments_again; /* of items of several frames, because they were asked for */
	uint64_t kv_events, kv_frames, kv_resent, kv_gaps, kv_dumps, kv_overruns;
	uint64_t hellos, heartbeats;
	uint64_t reports; /* handles in ALIVE frames */
	/* Another life of the router answered: a restart, or two routers have one address. That is
	 * sure of a life that is back in the place of another one. */
	uint64_t router_lives, routers_back;
	uint64_t sessions_opened, sessions_closed, sessions_refused, session_copies;
};

/**
 * Make an agent; HELLO goes out with the first kvr_agent_process().
 * @return NULL with errno EINVAL (field missing or out of range), EMSGSIZE (strings do not fit),
 * ENOENT or EAGAIN (resolver), ENOMEM, or of socket(2), bind(2).
 */
struct kvr_agent *kvr_agent_create(const struct kvr_agent_conf *conf);

/** Abort every request (on_abort with CLOSED), free everything, send nothing. NULL is fine. */
void kvr_agent_destroy(struct kvr_agent *a);

/** Sign off: GOODBYE until answered (5 tries), then on_state with GONE. @return 0. */
int kvr_agent_goodbye(struct kvr_agent *a);

/**
 * Ask the router for no new requests, or for new ones again; heartbeats say so from now on, in
 * later lives, too. Its operator may overrule that; another call overrules him. on_state tells what
 * comes of it: DRAINING, then DRAINED when nothing is booked, or SERVING. What is on its way still
 * comes: run it.
 */
void kvr_agent_drain(struct kvr_agent *a, bool on);

int kvr_agent_fd(const struct kvr_agent *a);
/** Milliseconds until kvr_agent_process() is needed even in silence; -1: never. */
int kvr_agent_timeout_ms(const struct kvr_agent *a);
/** Whether a sleep for that time should end on time: a large item leaves in steps of a millisecond,
 * or parts of a request are waited for. Otherwise 4 ms more do no harm. */
bool kvr_agent_timeout_strict(const struct kvr_agent *a);
/** Receive, run timers, call back, send. @return number of frames handled. */
int kvr_agent_process(struct kvr_agent *a);
/** Send what calls since then have queued, without a look at what has come. kvr_agent_process()
 * does so, too: this is for loops that have just been told that nothing has. */
void kvr_agent_flush(struct kvr_agent *a);

#define KVR_AGENT_LAST 0x1u /**< the answer ends with this item */
/** With LAST: the engine failed. Data is why, in words for people, at most 255 bytes, and no part
 * of the answer. */
#define KVR_AGENT_ERROR	 0x2u
#define KVR_AGENT_TOKENS 0x8u /**< data is uint32_t token ids */
/** With LAST, and with ERROR or an answer of the engine's own: the engine has failed the request,
 * which counts against the rank. Not for what is the client's fault. */
#define KVR_AGENT_FAILED  0x10u
#define KVR_AGENT_REFUSED 0x20u /**< with LAST: the engine has no room; not with FAILED */

/** One item of an answer. data is copied. */
struct kvr_agent_item {
	const void *data;
	uint32_t len; /**< at most 1 MiB; above 64 KiB several items, but for a transfer result */
	uint32_t flags;
	uint16_t status;	   /**< engine-defined, 0 fine */
	uint32_t generated_tokens; /**< so far, this item included; must not fall */
	bool cached_known;	   /**< cached_tokens is meant */
	uint32_t cached_tokens;	   /**< prompt tokens found cached */
	/** With LAST, for clients that have asked for it, else ignored: the engine's
	 * prompt_tokens_details as it has said them, and a link to its trace. Of a prefill leg they
	 * go through the decode leg to the client. */
	const void *prompt_details, *trace_link;
	uint32_t prompt_details_len; /**< at most 512 */
	uint32_t trace_link_len;     /**< at most 64 */
};

/**
 * Send an item of a running request; after LAST the handle takes no more. On a prefill leg the data
 * of the last item is the transfer result, items before it are dropped by the router, and without
 * bootstrap a result there must be.
 * @return 0, -ENOENT (unknown, ended or aborted handle), -EINVAL (flags, ERROR, FAILED or REFUSED
 * without LAST, ERROR with TOKENS, FAILED with REFUSED, no transfer result), -EMSGSIZE, -ENOBUFS
 * (request_bytes are unacknowledged: try again after kvr_agent_process()), -ENOMEM.
 */
int kvr_agent_respond(struct kvr_agent *a, uint64_t handle, const struct kvr_agent_item *item);

/** Refuse a request after on_dispatch took it, before its first item: it ends as an error of the
 * engine with this status, and @p words, at most 255 bytes. (Refusals from inside on_dispatch reach
 * the client as a rejection.)
 * @return 0, -ENOENT, -EINVAL (code 0), -EMSGSIZE, -EBUSY (items were sent: end it with
 * KVR_AGENT_ERROR). */
int kvr_agent_refuse(struct kvr_agent *a, uint64_t handle, uint16_t code, const char *words);

/** Blocks a rank now holds, in the order of their sequence. @return 0, -EINVAL (rank, tier, n 0).
 */
int kvr_agent_kv_stored(struct kvr_agent *a, uint32_t dp_rank, const struct kvr_agent_kv *kv);

/** Blocks a rank no longer holds in that tier (parent is ignored). @return as kv_stored. */
int kvr_agent_kv_removed(struct kvr_agent *a, uint32_t dp_rank, const struct kvr_agent_kv *kv);

/** A rank holds nothing any more, in any tier. @return 0, -EINVAL. */
int kvr_agent_kv_cleared(struct kvr_agent *a, uint32_t dp_rank);

/**
 * Bytes of a rank's events, at most kv_ring_bytes, that the router has not acknowledged. The next
 * one that does not fit makes all of them be forgotten, and a dump be sent: an application that can
 * leave events where they come from does so while a good part of the ring is taken.
 * @return bytes; 0 for an unknown rank, and when events change nothing, as there is no router that
 * takes them, or a dump will tell everything.
 */
uint64_t kvr_agent_kv_waiting(const struct kvr_agent *a, uint32_t dp_rank);

/** Load of a rank for the next heartbeats; kv_used_blocks UINT64_MAX: not reported. Of
 * active_requests at least those that run here are told.
 * @return 0, -EINVAL. */
int kvr_agent_load(struct kvr_agent *a, uint32_t dp_rank, uint32_t active_requests,
		   uint64_t kv_used_blocks);

/** What became of the engine's own events of a rank, for the next heartbeats: how many could not be
 * read so far, tokens a block of those that could (0: not known), and whether these were pairs
 * (eagle). Operators of the router are told. @return 0, -EINVAL. */
int kvr_agent_events_read(struct kvr_agent *a, uint32_t dp_rank, uint32_t unread,
			  uint16_t block_size, bool eagle);

/** For the next heartbeats: how many canary prompts in a row have not come back in the engine's
 * events under the names that their tokens have (PROTOCOL.md section 9.2); 0: the last one has.
 * Of the whole worker. Operators of the router are told. */
void kvr_agent_canaries_missed(struct kvr_agent *a, uint32_t in_a_row);

/** Walk hints: *pos starts at 0. @return 1 *h is filled, 0 no more. */
int kvr_agent_hint_next(const struct kvr_agent_request *r, uint32_t *pos, struct kvr_agent_hint *h);

uint32_t kvr_agent_running(const struct kvr_agent *a);
enum kvr_agent_state kvr_agent_state_now(const struct kvr_agent *a);
void kvr_agent_stats_get(const struct kvr_agent *a, struct kvr_agent_stats *out);

#ifdef __cplusplus
}
#endif

#endif
