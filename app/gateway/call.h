/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_CALL_H
#define GW_CALL_H

/**
 * @file
 * An HTTP request from its body to its end: parse it, get token ids, send it to a router, and
 * forward the engine's answer as it arrives.
 *
 * A call has up to three users: the request of libh2o, the router's request, and the tokenizer's
 * question. It is freed when all have ended. Each call is counted once as ANSWERED, FAILED, REFUSED
 * or GONE.
 *
 * The answer: the joined items of the router are an HTTP response (kvr_http.h). Its body is
 * collected in `out`, while libh2o sends `busy`; the two are swapped. Events are sent at once.
 * Other answers are collected until their end or 256 KiB, so that they have a length, and can still
 * be replaced by an error.
 */

#include "ask.h"
#include "errors.h"
#include "router.h"
#include "tokenize_conversation.h"

/** A contiguous buffer; zeroed: empty. */
struct gw_bytes {
	char *p;
	size_t len, cap;
};

/** One request at a router; freed when that ends, which may be after the call. */
struct gw_try {
	struct gw_call *call;	/* NULL: the call has moved elsewhere */
	struct gw_lease *lease; /* the booking that it became, or NULL */
};

/** All fields belong to the thread. */
struct gw_call {
	h2o_generator_t gen; /* first, for the callbacks of libh2o */
	LIST_ENTRY(gw_call) link;
	struct gw_thread *thread;
	h2o_req_t *req;		  /* NULL: answered, or the client closed the connection */
	int fd;			  /* of the connection */
	struct gw_source *source; /* client address; valid while `held` is not 0 */

	/* the parsed body; points into it while req is valid */
	struct gw_ask ask;
	struct kvr_client_hints *hints; /* or NULL */
	char lora[GW_HINT_NAME + 1], ns[GW_HINT_NAME + 1];
	uint32_t expected_output_tokens;
	bool query, explain, timing, token_ids;
	bool through;	     /* the body passes the router, because an agent accepts none */
	bool not_taken;	     /* the agent accepts bodies, but not this one */
	bool pinned;	     /* to one worker without alternative */
	bool worker_lost;    /* a worker was lost with it once */
	struct gw_error why; /* error of the last attempt, with a text freed with the call */
	char *why_text;
	struct kvr_client_place failed_at[KVR_CLIENT_FAILED_AT];
	uint32_t n_failed_at;
	uint32_t lease_ms; /* GW_PICK */
	uint32_t *ids, n_ids;
	struct gw_conversation *question; /* in progress */

	/* state at the router */
	struct gw_router *router;
	uint64_t id;		  /* 0: none */
	struct gw_try *at_router; /* while id is not 0 */
	uint32_t tried;		  /* routers tried, as bits */
	uint32_t tries;
	uint32_t left_ms;  /* remaining part of --request-ms for this attempt; 0: no limit */
	uint64_t until_ms; /* end of --request-ms over all attempts; 0: none */
	struct kvr_client_choice choice;

	/* the answer */
	struct gw_bytes head; /* until the head is complete; the memory remains */
	size_t head_len;      /* of the complete head */
	struct gw_bytes kept; /* an engine's error, kept during a retry */
	struct gw_bytes out, busy;
	uint64_t held;	   /* bytes of these and the body, charged to its source (body_budget.h) */
	uint64_t given_ms; /* time since libh2o has data to send; 0: none */
	size_t given_left; /* HTTP/2: bytes of it at the last check */
	int status;
	bool head_done, events, started, sending, complete, broken, counted;
};

/** Start a request for an engine, a choice, a booking or loads. It is always answered. */
void gw_call_begin(struct gw_thread *thread, h2o_req_t *req, enum gw_path path);

/** The client closed its side of an HTTP/1 connection. */
void gw_call_half_closed(struct gw_call *call);

/** A router is down: move its requests to another one. */
void gw_calls_move(struct gw_router *router);

/** The gateway stops: answer running requests with 503 or an error event. */
void gw_calls_end(struct gw_thread *thread);

#endif
