/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_CALL_H
#define GW_CALL_H

/**
 * @file
 * A request of HTTP from its body to its end: read it, find its token ids, send it to a router,
 * pass the engine's answer on as it comes.
 *
 * A call belongs to up to three others: the request of libh2o, the router's request, the question
 * to the tokenizer. It is freed when all have let go of it. Each call is counted once as ANSWERED,
 * FAILED, REFUSED or GONE.
 *
 * The answer: the items of the router, joined, are an HTTP response (kvr_http.h). Its body goes
 * into `out`; what libh2o is sending lies in `busy`, and both change places. Events go out at
 * once; anything else waits for its end or for 256 KiB, so that it has a length, and can still be
 * replaced by an error.
 */

#include "ask.h"
#include "errors.h"
#include "router.h"
#include "talk.h"

/** Bytes in one piece of memory; zeroed: none. */
struct gw_bytes {
	char *p;
	size_t len, cap;
};

/** One request at a router; freed when that ends, which may be after the call. */
struct gw_try {
	struct gw_call *call;	/* NULL: the call has gone elsewhere */
	struct gw_lease *lease; /* it is a booking now, or NULL */
};

/** All fields are the thread's. */
struct gw_call {
	h2o_generator_t gen; /* first: libh2o calls back with it */
	LIST_ENTRY(gw_call) link;
	struct gw_thread *t;
	h2o_req_t *req;		  /* NULL: the client has gone, or has been answered */
	int fd;			  /* of the connection */
	struct gw_source *source; /* where it comes from; lives while `held` is not 0 */

	/* the question; points into the request's body as long as req is there */
	struct gw_ask ask;
	struct kvr_client_hints *hints; /* or NULL */
	char lora[GW_HINT_NAME + 1], ns[GW_HINT_NAME + 1];
	uint32_t expected_output_tokens;
	bool query, explain, timing, token_ids;
	bool through;	     /* its body passes the router: an agent takes none */
	bool not_taken;	     /* that agent takes some, but has not taken this one */
	bool pinned;	     /* to one worker, which nobody stands in for */
	bool worker_lost;    /* once, and it was sent again */
	struct gw_error why; /* it was sent again, with a text that is freed with the call */
	char *why_text;
	struct kvr_client_place failed_at[KVR_CLIENT_FAILED_AT];
	uint32_t n_failed_at;
	uint32_t lease_ms; /* GW_PICK */
	uint32_t *ids, n_ids;
	struct gw_talk *question; /* under way */

	/* at the router */
	struct gw_router *router;
	uint64_t id;		  /* 0: nothing is there */
	struct gw_try *at_router; /* while id is not 0 */
	uint32_t tried;		  /* routers, bits */
	uint32_t tries;
	uint32_t left_ms;  /* of --request-ms, for this try; 0: it has none */
	uint64_t until_ms; /* of all tries, --request-ms from the first; 0: no end */
	struct kvr_client_choice choice;

	/* the answer */
	struct gw_bytes head; /* until the head is complete; its bytes stay */
	size_t head_len;      /* of the complete head */
	struct gw_bytes kept; /* an error of an engine that it was sent away from */
	struct gw_bytes out, busy;
	uint64_t held;	   /* of these and the request's body, for its source (room.h) */
	uint64_t given_ms; /* since when libh2o has something to send; 0: nothing */
	size_t given_left; /* HTTP/2: bytes of it at the last look */
	int status;
	bool head_done, events, started, sending, complete, broken, counted;
};

/** A request for an engine, a choice, a booking or loads has come; it is answered whatever
 * happens. */
void gw_call_begin(struct gw_thread *t, h2o_req_t *req, enum gw_path path);

/** The client's side of an HTTP/1 connection has been closed. */
void gw_call_half_closed(struct gw_call *c);

/** A router does not answer any more: what waits there goes to another one. */
void gw_calls_move(struct gw_router *r);

/** The gateway stops: answer those that have not ended, with 503 or an event that says so. */
void gw_calls_end(struct gw_thread *t);

#endif
