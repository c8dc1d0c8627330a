/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PAIR_H
#define PAIR_H

/**
 * @file
 *
 * A pair of pools on the router of pipeline.h with its peers: a client, prefill workers p and q,
 * decode workers d and e. Peers record the frames they receive and send what the test asks for. The
 * frames that the router has sent about one request can be read as a line of text:
 *
 * pair_route(1); pair_take_frames() -> "p.DISPATCH d.DISPATCH c.DISPATCHED"
 *
 * A frame is written as receiver, point, kind. ACCEPTED is written as its state, REJECTED as its
 * code, an item as ITEM or FIN with its flags. Acknowledgements of items and frames about workers
 * are left out.
 */

#include "pipeline.h"

#define PAIR_CLIENT 77u /* source of its requests */
#define PAIR_P	    21u /* worker ids */
#define PAIR_Q	    22u
#define PAIR_D	    31u
#define PAIR_E	    32u
#define PAIR_RUNS   16384u

/** One attempt of a leg at a worker, from its first DISPATCH on. */
struct pair_attempt {
	uint64_t id;
	uint64_t handle;
	uint64_t worker;
	uint32_t epoch; /* of the worker */
	bool prefill;
	bool acked;
	bool ended;	   /* its last item was sent */
	bool aborted;	   /* the router sent ABORT */
	uint32_t attempt;  /* of the last copy */
	uint32_t copies;   /* of DISPATCH */
	uint32_t next_seq; /* of its items */
	uint16_t flags;	   /* of the last item */
	uint16_t status;   /* status of the next items */
	uint32_t tokens;
	uint32_t acks; /* RESPONSE_ACK */
	uint16_t abort_code;
	struct kvr_wire_request request; /* of the last copy */
	uint64_t prefill_worker;	 /* hint, or 0 */
	uint32_t result_len;		 /* of the hint PREFILL_RESULT, or 0 */
};

extern struct pair_attempt pair_attempt[PAIR_RUNS];
extern uint32_t pair_attempts;

/** The state of a request at its client, as last reported. */
struct pair_answer {
	bool fin;			   /* received the last item */
	bool cancelled;			   /* CANCELLED */
	uint16_t rejected;		   /* code, or 0 */
	uint16_t items;			   /* items received, including copies */
	uint32_t next_seq;		   /* of its items */
	uint64_t handle;		   /* of its items: all have the same */
	struct kvr_wire_accepted accepted; /* the last ACCEPTED */
	struct kvr_wire_rejected why;
	char words[256]; /* text of its items */
};

extern struct pair_answer pair_answer[65536]; /* Indexed by request id. */

/** Start a router with a decode pool "d" (id 5) and a prefill pool "p" (id 6), with these keys. */
void pair_start(const char *decode_keys, const char *prefill_keys);

/** The same with the prefill pool first in the file, and therefore first in every turn. */
void pair_start_prefill_first(const char *decode_keys, const char *prefill_keys);

/** Stop the router; everything must have been returned: see pair_at_rest(). */
void pair_stop(void);

/** The registration of PAIR_P, PAIR_Q, PAIR_D or PAIR_E, for pipeline_hello_as(). */
struct pipeline_worker pair_worker(uint64_t worker, uint32_t epoch, bool bootstrap);

/** A worker joins or sends GOODBYE. */
bool pair_join(uint64_t worker, uint32_t epoch, bool bootstrap);
void pair_leave(uint64_t worker);

/** A worker is silent until it is lost. */
void pair_silence(uint64_t worker);

/** The client sends a ROUTE. pair_take_frames() reports the frames of request @p id. */
void pair_route(uint64_t id, const struct kvr_hint_buf *hints);

/** The same, with flags. */
void pair_route_flags(uint64_t id, uint32_t flags, const struct kvr_hint_buf *hints);

/** The same ROUTE again, as a client without an answer sends it. */
void pair_route_again(uint64_t id);

/** The client sends CANCEL or PROBE. */
void pair_client(uint64_t id, uint8_t kind);

/** The client acknowledges the last item. */
void pair_fin_ack(uint64_t id);

/** Read the frames that the router has sent. */
void pair_take(void);

/** Frames that the router has sent about the request since the last call. */
const char *pair_take_frames(void);

/** Return true if those frames are @p text. Otherwise print them and the @p line of the test to
 * standard error. */
void pair_expect(const char *text, unsigned int line);

#define SAID(text) pair_expect(text, __LINE__)

/** Latest attempt of this leg of request @p id, or NULL. */
struct pair_attempt *pair_leg(uint64_t id, bool prefill);

/** Frames from a worker. */
void pair_ack(struct pair_attempt *r, uint16_t code);
void pair_item(struct pair_attempt *r, uint16_t flags, const char *data);
void pair_abort_ack(struct pair_attempt *r);

/** All workers acknowledge, answer and finish until nothing is left to do. */
void pair_finish(void);

/** Check that no booking, slot or message is left. Lets time pass and removes the workers. */
void pair_at_rest(void);

#endif
