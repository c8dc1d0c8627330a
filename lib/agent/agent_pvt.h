/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_AGENT_PVT_H
#define KVR_AGENT_PVT_H

/**
 * @file
 * Inside of the agent. Four independent state machines on one link:
 *
 * - registration (register.c, hello.c): HELLO until WELCOME, then HEARTBEAT; silence, "unknown
 * worker", "stale epoch" or "not allowed" lead back to HELLO with the same epoch; when that one is
 * stale, a new life begins with a greater one; GOODBYE until answered.
 * - requests (dispatch.c, respond.c, slot.c, alive.c): one slot per handle. Those that
 * run are reported to the router. A slot that is over is kept, oldest first to go, so that late
 * copies of its DISPATCH are answered and not run.
 * - sessions (session.c): the answers given lately, so that copies get the same and call nobody.
 * - KV events of each rank (kv.c, dump.c, events.c): a ring of bytes with the events as they go to
 * the wire, in id order; [first, acked) is kept for repair, [acked, to_send) is on its way,
 * [to_send, end) waits. A dump is built at once and replaces it all.
 */

#include "kvr_agent.h"
#include "kvr_agent_on.h"
#include "kvr_link.h"

#include <sys/queue.h>

#define AGENT_HELLO_US	       200000u
#define AGENT_HELLO_MAX_US     1000000u
#define AGENT_REFUSED_US       10000000u /* a HELLO that was refused is tried again after this */
#define AGENT_FORMER	       8u	 /* lives of the router whose late frames are known */
#define AGENT_AGAIN_US	       1000000u	 /* HELLO because the router says so: no more often */
#define AGENT_GOODBYE_US       200000u
#define AGENT_GOODBYE_MAX_US   2000000u
#define AGENT_GOODBYE_TRIES    5u
#define AGENT_REPEAT_US	       20000u
#define AGENT_REPEAT_MAX_US    1000000u
#define AGENT_ACK_MOST_US      1000u /* PROTOCOL.md, section 7.1 */
#define AGENT_GIVE_UP_US       (KVR_WIRE_ITEMS_KEPT_S * 1000000u)
#define AGENT_WINDOW_ITEMS     64u   /* on their way at once, of one request ... */
#define AGENT_WINDOW_FRAMES    64u   /* ... and the frames of these; an item of more goes alone */
#define AGENT_PACE_US	       1000u /* of an item in fragments, so many in each of these */
#define AGENT_PACE_FRAMES      64u
#define AGENT_ALIVE_US	       20000000u /* a request is reported so long after the last time ... */
#define AGENT_ALIVE_EARLY_US   10000000u /* ... or by so much earlier, with others in one frame */
#define AGENT_ALIVE_FRAMES     4u	 /* at once; the next ones AGENT_PACE_US later */
#define AGENT_ALIVE_WAIT_US    1000000u	 /* between attempts while not registered */
#define AGENT_OVER_KEPT	       4096u	 /* handles remembered after their end, beside the slots */
#define AGENT_KV_WINDOW_BYTES  65536u	 /* on their way at once, of one rank */
#define AGENT_KV_REPEAT_US     20000u
#define AGENT_KV_REPEAT_MAX_US 1000000u
#define AGENT_KV_BUSY_US       20000u  /* the router cannot take events now: let it drain */
#define AGENT_KV_STALE_US      100000u /* a step back is believed after this without progress */
#define AGENT_DUMP_ID	       (UINT64_C(1) << 63) /* header ids of dumps, apart from events */
#define AGENT_DUMP_WINDOW      32u		   /* frames on their way at once */
#define AGENT_MAX_ITEM	       (1u << 20)
#define AGENT_ANSWER_BUCKETS   1024u /* answers about sessions that are remembered: a router */
#define AGENT_ANSWER_WAYS      8u    /* repeats its question for 5 s */
#define AGENT_CODE_FULL	       503u  /* engine-defined code of our own refusals */
#define AGENT_CODE_NOT_OURS    1u    /* another worker, or a rank we do not have */
#define AGENT_CODE_ABORTED     499u  /* its ABORT came first */

_Static_assert(AGENT_ALIVE_US + AGENT_ALIVE_WAIT_US < KVR_WIRE_ALIVE_S * 1000000u, "often enough");

enum agent_timer { AGENT_T_REGISTER = 1, AGENT_T_REPEAT, AGENT_T_KV, AGENT_T_ALIVE };

/** One item of an answer: the body of its message, in one piece. */
struct agent_item {
	STAILQ_ENTRY(agent_item) link;
	struct kvr_wire_ids ids; /* of all its copies */
	uint32_t len;		 /* of the body */
	uint32_t n_frames;
	uint32_t next;		    /* of several: fragments of the first copy that are out */
	uint32_t n_again;	    /* bits set in `again` */
	uint64_t *again;	    /* of several: those to be sent again, behind the body */
	struct kvr_wire_response w; /* the body begins here */
	uint8_t data[];		    /* padded, then its hints */
};

enum agent_req_state {
	AGENT_FREE = 0,
	AGENT_RUNNING,
	AGENT_ENDING, /* the last item is queued, not acknowledged */
	AGENT_OVER,   /* kept to answer late copies of its DISPATCH */
};

struct agent_req {
	LIST_ENTRY(agent_req) hash;
	/* Of a list: free, over by age, or live by their last report. */
	TAILQ_ENTRY(agent_req) order;
	uint64_t handle, source, id;
	uint64_t reported_us;	    /* last report to the router; at first DISPATCH */
	struct agent_rank *rank;    /* where it runs; NULL: nowhere */
	uint32_t epoch;		    /* life of the router that knows it */
	struct kvr_udp_addr client; /* direct: where items go */
	uint8_t state;		    /* enum agent_req_state */
	bool unproven; /* no acknowledgement yet, and the client's address may be forged */
	bool direct, aborted, calling; /* calling: inside on_dispatch */
	bool ack_waits;		       /* `repeat` runs for its DISPATCH_ACK; nothing is sent */
	uint8_t leg;		       /* enum kvr_role */
	bool bootstrap;		       /* its engine meets the decode engine by itself */
	uint16_t code;		       /* refused with this */
	uint32_t item_bytes;	       /* data of an item of one frame */
	uint32_t frame_bytes;	       /* largest frame on the way of its items */
	uint32_t isl, generated, cached_tokens;
	bool track;    /* the last item carries hints */
	uint8_t *echo; /* hints of its prefill leg for that, echo_len bytes; or NULL */
	uint32_t echo_len;
	STAILQ_HEAD(, agent_item) items; /* unacknowledged, by seq */
	uint32_t bytes;			 /* of their data */
	uint32_t next_seq, acked, sent;	 /* items numbered; acknowledged and sent below these */
	uint32_t flying;		 /* frames of those that are sent and not acknowledged */
	uint32_t parts;			 /* of them items in fragments with some to be sent now */
	bool pacing;			 /* `repeat` runs for the next of these ... */
	uint64_t paced_us;		 /* ... which may go then */
	uint32_t backoff_us;
	uint64_t progress_us; /* last time an acknowledgement moved */
	struct kvr_timer repeat;
	/* direct path: what the router is told */
	struct kvr_wire_progress prog;
	struct kvr_wire_ids prog_ids;
	uint32_t prog_blocks; /* blocks at the last PROGRESS */
	bool prog_first, prog_fin, prog_done;
	bool adrift; /* its router is gone, and its client is not: nobody is told but that */
};

LIST_HEAD(agent_bucket, agent_req);
TAILQ_HEAD(agent_order, agent_req);

/** What was said about a session. */
struct agent_answer {
	uint64_t id;	/* of the question */
	uint64_t given; /* a rising number; 0: never */
	uint32_t epoch; /* of the router that asked */
	uint16_t code;
	uint8_t kind;
	bool calling; /* inside the callback */
};

/** An event in the ring, or the next one to come. */
struct agent_place {
	uint64_t id;
	uint64_t at; /* bytes ever, before it */
};

struct agent_dump_frame {
	int len; /* of the datagram */
	uint8_t *data;
};

struct agent_rank {
	uint32_t dp_rank;
	uint8_t *ring;	    /* NULL: nothing was ever told */
	uint64_t ring_mask; /* its bytes, a power of two, less one */
	uint64_t end;	    /* bytes ever written */
	struct agent_place first, acked, to_send;
	uint64_t next_id;
	/* Acknowledged since the last WELCOME: a GAP below it is not believed at once. */
	uint64_t confirmed;
	struct kvr_timer timer;
	uint32_t backoff_us;
	uint64_t progress_us; /* last time an acknowledgement moved, or it was sent again */
	uint64_t dump_us; /* last time that the dump went on or back, however often sent again */
	uint64_t gap_id, gap_us;   /* the last GAP obeyed: its copies are not obeyed again */
	uint64_t back_id, back_us; /* a GAP below `confirmed`, and when it was heard first */
	bool overrun;		   /* unacknowledged events were lost: a dump must be sent */
	bool dumping;
	struct agent_dump_frame *dump;
	uint32_t dump_n, dump_acked, dump_sent;
	uint64_t dump_resume;
	uint64_t dump_id; /* header id of all its frames; acks repeat it */
	struct kvr_wire_rank_load load;
	uint32_t running; /* of kvr_agent::running, those that were given to it */
};

struct kvr_agent {
	bool takes_bodies;
	struct kvr_link link;
	struct kvr_udp_addr router;
	struct kvr_agent_conf conf; /* strings are not kept: hello has them */
	struct kvr_agent_stats stats;
	/* registration */
	struct kvr_timer timer;
	uint8_t *hello; /* hints of HELLO */
	uint32_t hello_hints_len;
	struct kvr_wire_ids
		hello_ids; /* of the HELLO that is said, however often: answers have its id */
	uint64_t hello_no; /* that id: another one for each, from anywhere on */
	uint32_t backoff_us, tries;
	uint32_t router_epoch;			 /* 0: never welcomed */
	uint64_t boot;				 /* of this process: constant, never 0 */
	uint32_t former[AGENT_FORMER], n_former; /* lives of the router that are over */
	uint32_t heartbeat_ms, dead_ms;
	uint64_t heard_us; /* last answer to a heartbeat */
	uint64_t again_us; /* when the router has made us say HELLO again; 0: never */
	uint64_t back_us; /* when a former life of the router was the present one again; 0: never */
	bool registered, leaving, drain;
	uint16_t wish; /* what `drain` says */
	bool reborn;   /* a new life of ours begins with the next WELCOME */
	struct kvr_agent_status status;
	uint32_t frame_bytes; /* both sides take */
	/* requests */
	struct agent_req *req;
	uint32_t n_req,
		n_used; /* n_used: of req, those ever taken; the others are not written yet */
	uint32_t running, adrift; /* adrift: of those that run */
	struct agent_bucket *bucket;
	uint32_t bucket_mask;
	struct agent_order free, over, live;
	struct kvr_timer alive;	     /* for the first of `live` */
	struct agent_answer *answer; /* AGENT_ANSWER_BUCKETS of AGENT_ANSWER_WAYS, or NULL */
	uint64_t answers_given;
	struct agent_rank *rank;
};

/* hello.c */
int kvr_agent__build_hello(struct kvr_agent *a, const struct kvr_agent_conf *conf);
void kvr_agent__send_hello(struct kvr_agent *a);
/** The router does not know us: HELLO, once a second at most, everything else after WELCOME. */
void kvr_agent__say_hello(struct kvr_agent *a);
/** What was said before is not answered any more: late answers to it are of a life that is over. */
void kvr_agent__new_hello(struct kvr_agent *a);

/* register.c */
void kvr_agent__register_timer(struct kvr_agent *a);
void kvr_agent__on_welcome(struct kvr_agent *a, const struct kvr_wire_hdr *h, const uint8_t *body);
void kvr_agent__on_heartbeat_ack(struct kvr_agent *a, const struct kvr_wire_hdr *h,
				 const uint8_t *body);
void kvr_agent__on_rejected(struct kvr_agent *a, const struct kvr_wire_hdr *h, const uint8_t *body);
void kvr_agent__on_goodbye_ack(struct kvr_agent *a);

/* Blocks that so many tokens need. */
static inline uint32_t agent_blocks(const struct kvr_agent *a, uint64_t tokens)
{
	return (uint32_t)((tokens + a->conf.block_size - 1) / a->conf.block_size);
}

/* slot.c */
/** Is that life of the router over? */
bool kvr_agent__is_former(const struct kvr_agent *a, uint32_t epoch);
struct agent_req *kvr_agent__find(const struct kvr_agent *a, uint64_t handle);
/** A slot for the request of @p h, running; the oldest one that is over when none is free. */
struct agent_req *kvr_agent__take_slot(struct kvr_agent *a, const struct kvr_wire_hdr *h);
/** It is for this rank; until kvr_agent__over(). */
void kvr_agent__runs_at(struct kvr_agent *a, struct agent_req *r, uint32_t rank);
void kvr_agent__drop_items(struct agent_req *r);
/** DISPATCH_ACK of the request that @p h names. */
void kvr_agent__send_ack(struct kvr_agent *a, const struct kvr_wire_hdr *h, uint16_t code);
/** The request is over when both sides have heard of its end. */
void kvr_agent__finish_if_heard(struct kvr_agent *a, struct agent_req *r);
/** The slot's work is over; tells on_done when asked. */
void kvr_agent__over(struct kvr_agent *a, struct agent_req *r, bool tell);
/** Tell on_abort and stop taking items. */
void kvr_agent__tell_abort(struct kvr_agent *a, struct agent_req *r, enum kvr_agent_abort why,
			   uint16_t code);
/** The router goes: what runs for it ends, with @p code for the engine; nobody hears of it. */
void kvr_agent__end_all(struct kvr_agent *a, uint16_t code);
/** A new life of the router: handles of others mean nothing now. */
void kvr_agent__forget_others(struct kvr_agent *a, uint32_t epoch);

/* alive.c */
/** The timer runs for the first live request, if there is one. */
void kvr_agent__alive_start(struct kvr_agent *a);
void kvr_agent__alive_timer(struct kvr_agent *a);

/* dispatch.c */
void kvr_agent__on_dispatch(struct kvr_agent *a, const struct kvr_wire_hdr *h, const uint8_t *body,
			    uint32_t len);
/** The first fragment of a DISPATCH that is whole already. */
void kvr_agent__dispatch_again(struct kvr_agent *a, const struct kvr_wire_hdr *h);
/** REJECTED of RESPONSE or PROGRESS. */
void kvr_agent__on_refused(struct kvr_agent *a, const struct kvr_wire_hdr *h, const uint8_t *body);
void kvr_agent__on_abort(struct kvr_agent *a, const struct kvr_wire_hdr *h, const uint8_t *body);

/* parts.c: items in fragments */
/** Body bytes of all but the last fragment of an item of the request. */
uint32_t kvr_agent__unit(const struct agent_req *r);
/** Send what is to be sent of fragments now, or start the timer for it. @return whether there is
 * more, so that nothing is to be repeated yet. */
bool kvr_agent__send_parts(struct kvr_agent *a, struct agent_req *r);
/** Repeat @p it: its first fragment, which makes the receiver say what it lacks. */
void kvr_agent__send_first(struct kvr_agent *a, struct agent_req *r, const struct agent_item *it);
/** There was no room for a message in fragments when it was whole: with their next repetition those
 * of the request are other messages, all of them. */
void kvr_agent__anew(struct kvr_agent *a, struct agent_req *r);
/** What @p w names of an item of @p r is to be sent again. @return false: no item of several frames
 * that has been sent is the one. */
bool kvr_agent__parts_named(struct kvr_agent *a, struct agent_req *r,
			    const struct kvr_wire_missing *w);

/* respond.c */
/** MISSING: the client, or the router, says what it lacks of an item. */
void kvr_agent__on_missing(struct kvr_agent *a, const struct kvr_udp_addr *from,
			   const struct kvr_wire_hdr *h, const uint8_t *body);
/** Send what the window admits and has not been sent. */
void kvr_agent__send_new(struct kvr_agent *a, struct agent_req *r);
int kvr_agent__put(struct kvr_agent *a, struct agent_req *r, const struct kvr_agent_item *item,
		   uint16_t wire_flags);
/** End it ourselves, with the flag @p how: @p words, and @p n behind them unless it is 0. @return
 * as kvr_agent__put(). */
int kvr_agent__end(struct kvr_agent *a, struct agent_req *r, uint16_t how, const char *words,
		   uint64_t n);
void kvr_agent__repeat(struct kvr_agent *a, struct agent_req *r);
void kvr_agent__on_response_ack(struct kvr_agent *a, const struct kvr_udp_addr *from,
				const struct kvr_wire_hdr *h, const uint8_t *body);
void kvr_agent__on_progress_ack(struct kvr_agent *a, const struct kvr_wire_hdr *h,
				const uint8_t *body);
/** Item @p seq can never reach its client: the request ends with an error in its place. */
void kvr_agent__undeliverable(struct kvr_agent *a, struct agent_req *r, uint64_t seq);

/* session.c */
/** SESSION_OPEN and SESSION_CLOSE. */
void kvr_agent__on_session(struct kvr_agent *a, const struct kvr_wire_hdr *h, const uint8_t *body);

/* events.c */
/** Forget all events: the next one is the first. */
void kvr_agent__kv_drop(struct agent_rank *k);
/** Room for an event of @p bytes at the ring's end, where acknowledged ones are forgotten for it.
 * @return NULL: there is none. */
struct kvr_wire_kv_event *kvr_agent__kv_room_for(struct agent_rank *k, uint32_t bytes);
/** The event that kvr_agent__kv_room_for() gave is there, with the next id. */
void kvr_agent__kv_added(struct agent_rank *k, const struct kvr_wire_kv_event *e);
/** What stands at @p p, which is not the end. */
const struct kvr_wire_kv_event *kvr_agent__kv_at(const struct agent_rank *k, struct agent_place *p);
/** Move @p p on to @p id, which is in the ring or the next one to come. */
void kvr_agent__kv_seek(const struct agent_rank *k, struct agent_place *p, uint64_t id);
/** Send again from @p id on, which is in the ring or the next one to come. */
void kvr_agent__kv_rewind(struct agent_rank *k, uint64_t id);

static inline uint32_t kvr_agent__kv_size(const struct kvr_wire_kv_event *e)
{
	return (uint32_t)sizeof(*e) + e->n_blocks * 8;
}

/** Bytes that are sent and not acknowledged. */
static inline uint64_t kvr_agent__kv_in_flight(const struct agent_rank *k)
{
	/* Of places with the same id one may be at the ring's end, the other at its beginning. */
	return k->to_send.id != k->acked.id ? k->to_send.at - k->acked.at : 0;
}

static inline bool kvr_agent__kv_waits(const struct agent_rank *k)
{
	return k->to_send.at != k->end;
}

/** Let the timer send what waits. */
void kvr_agent__kv_kick(struct kvr_agent *a, struct agent_rank *k);

/* kv.c */
void kvr_agent__kv_timer(struct kvr_agent *a, struct agent_rank *k);
void kvr_agent__on_kv_ack(struct kvr_agent *a, const struct kvr_wire_hdr *h, const uint8_t *body);
/** Blocks that one event may have. */
uint32_t kvr_agent__kv_room(const struct kvr_agent *a);

/* dump.c */
void kvr_agent__dump_start(struct kvr_agent *a, struct agent_rank *k);
void kvr_agent__dump_send(struct kvr_agent *a, struct agent_rank *k);
void kvr_agent__dump_drop(struct agent_rank *k);
void kvr_agent__dump_ack(struct kvr_agent *a, struct agent_rank *k,
			 const struct kvr_wire_kv_ack *w);

#endif
