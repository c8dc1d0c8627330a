/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PAIR_H
#define PAIR_H

/**
 * @file
 * A pair of pools on the router of pipeline.h, and its peers: a client, prefill workers p and q,
 * decode workers d and e. Peers remember what they were sent and say what a test tells them to;
 * what the router has sent about one request can be read as a line of text.
 *
 *   pair_route(1); pair_said() -> "p.DISPATCH d.DISPATCH c.DISPATCHED"
 *
 * A frame is written as receiver, point, kind. ACCEPTED is written as its state, REJECTED with
 * its code, an item as ITEM or FIN with the flags that are set. Acknowledgements of items and
 * frames about workers are left out.
 */

#include "pipeline.h"

#define PAIR_CLIENT 77u /* source of its requests */
#define PAIR_P	    21u /* worker ids */
#define PAIR_Q	    22u
#define PAIR_D	    31u
#define PAIR_E	    32u
#define PAIR_RUNS   16384u

/** One leg at a worker, from its first DISPATCH on. */
struct pair_run {
	uint64_t id;
	uint64_t handle;
	uint64_t worker;
	uint32_t life; /* of the worker */
	bool prefill;
	bool acked;
	bool ended;	   /* its last item was sent */
	bool aborted;	   /* the router wants it to stop */
	uint32_t attempt;  /* of the last copy */
	uint32_t copies;   /* of DISPATCH */
	uint32_t next_seq; /* of its items */
	uint16_t flags;	   /* of the last one */
	uint16_t status;   /* of the next ones */
	uint32_t tokens;
	uint32_t acks; /* RESPONSE_ACK */
	uint16_t abort_code;
	struct kvr_wire_request request; /* of the last copy */
	uint64_t prefill_worker;	 /* hint, or 0 */
	uint32_t result_len;		 /* of the hint PREFILL_RESULT, or 0 */
};

extern struct pair_run pair_run[PAIR_RUNS];
extern uint32_t pair_runs;

/** What the client of a request has been told at last. */
struct pair_told {
	bool fin;			   /* got a last item */
	bool cancelled;			   /* CANCELLED */
	uint16_t rejected;		   /* code, or 0 */
	uint16_t items;			   /* repetitions included */
	uint32_t next_seq;		   /* of its items */
	uint64_t handle;		   /* of its items: one for all */
	struct kvr_wire_accepted accepted; /* the last one */
	struct kvr_wire_rejected why;
	char words[256]; /* its text */
};

extern struct pair_told pair_told[65536]; /* by request id */

/** Start a router with a decode pool "d" (id 5) and a prefill pool "p" (id 6), with these keys. */
void pair_start(const char *decode_keys, const char *prefill_keys);

/** The same with the prefill pool first in the file, and so in every turn. */
void pair_start_prefill_first(const char *decode_keys, const char *prefill_keys);

/** Stop it; all must have been given back: see pair_at_rest(). */
void pair_stop(void);

/** What PAIR_P, PAIR_Q, PAIR_D and PAIR_E say when they join; for pipeline_hello_as(). */
struct pipeline_worker pair_worker(uint64_t worker, uint32_t epoch, bool bootstrap);

/** One of them joins or says GOODBYE. */
bool pair_join(uint64_t worker, uint32_t epoch, bool bootstrap);
void pair_leave(uint64_t worker);

/** A worker has not been heard for as long as it takes. */
void pair_silence(uint64_t worker);

/** The client asks; frames of request @p id are those pair_said() tells of. */
void pair_route(uint64_t id, const struct kvr_hint_buf *hints);

/** The same, with flags. */
void pair_route_flags(uint64_t id, uint32_t flags, const struct kvr_hint_buf *hints);

/** The same ROUTE again, as a client that has heard nothing sends it. */
void pair_route_again(uint64_t id);

/** The client says CANCEL, PROBE. */
void pair_client(uint64_t id, uint8_t kind);

/** The client has got the last item. */
void pair_fin_ack(uint64_t id);

/** Look at what the router has sent. */
void pair_take(void);

/** What the router has sent about the request since the last call. */
const char *pair_said(void);

/** Is it @p text? Else what it is, and @p line of the test, go to standard error. */
void pair_expect(const char *text, unsigned int line);

#define SAID(text) pair_expect(text, __LINE__)

/** Last leg of request @p id of this kind that a worker was sent, or NULL. */
struct pair_run *pair_leg(uint64_t id, bool prefill);

/** A worker speaks. */
void pair_ack(struct pair_run *r, uint16_t code);
void pair_item(struct pair_run *r, uint16_t flags, const char *data);
void pair_abort_ack(struct pair_run *r);

/** All workers do what they should until nothing is left to do. */
void pair_finish(void);

/** No booking, no slot, no message is left. Time passes, workers have left. */
void pair_at_rest(void);

#endif
