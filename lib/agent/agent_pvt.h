/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_AGENT_PVT_H
#define KVR_AGENT_PVT_H

/**
 * @file
 * Internals of the agent. Four independent state machines on one link:
 *
 * - Registration (register.c, hello.c): HELLO until WELCOME, then HEARTBEAT. After silence,
 *   "unknown worker", "stale epoch" or "not allowed" the agent sends HELLO again with the same
 *   epoch. If that epoch is stale, it starts a new incarnation with a greater one. GOODBYE is sent
 *   until answered.
 * - Requests (dispatch.c, respond.c, parts.c, slot.c, alive.c): one slot per handle. Running
 *   requests are reported to the router. The slot of an ended request is kept, and reused oldest
 *   first, so that late copies of its DISPATCH are answered and not run.
 * - Sessions (session.c): recent answers are kept, so that copies of a question get the same answer
 *   without a callback.
 * - KV events of each rank (kv.c, dump.c, events.c): a ring of bytes with the events as encoded on
 *   the wire, in id order. [first, acked) is kept for repair, [acked, to_send) is in flight,
 *   [to_send, end) waits. A dump is built at once and replaces all of them.
 */

#include "kvr_agent.h"
#include "kvr_agent_on.h"
#include "kvr_link.h"

#include <sys/queue.h>

#define AGENT_HELLO_US	       200000u
#define AGENT_HELLO_MAX_US     1000000u
#define AGENT_REFUSED_US       10000000u /* interval of HELLO after a rejection */
#define AGENT_FORMER	       8u /* previous epochs of the router whose late frames are recognised */
#define AGENT_AGAIN_US	       1000000u /* shortest interval of HELLO on demand of the router */
#define AGENT_GOODBYE_US       200000u
#define AGENT_GOODBYE_MAX_US   2000000u
#define AGENT_GOODBYE_TRIES    5u
#define AGENT_REPEAT_US	       20000u
#define AGENT_REPEAT_MAX_US    1000000u
#define AGENT_ACK_MOST_US      1000u /* PROTOCOL.md, section 7.1 */
#define AGENT_GIVE_UP_US       (KVR_WIRE_ITEMS_KEPT_S * 1000000u)
#define AGENT_WINDOW_ITEMS     64u   /* in flight at once, per request ... */
#define AGENT_WINDOW_FRAMES    64u   /* ... and their frames; a larger item is sent alone */
#define AGENT_PACE_US	       1000u /* items in fragments: frames per interval */
#define AGENT_PACE_FRAMES      64u
#define AGENT_ALIVE_US	       20000000u /* a request is reported this long after its last report ... */
#define AGENT_ALIVE_EARLY_US   10000000u /* ... or up to this much earlier, together with others */
#define AGENT_ALIVE_FRAMES     4u	 /* at once; the next ones after AGENT_PACE_US */
#define AGENT_ALIVE_WAIT_US    1000000u	 /* interval while not registered */
#define AGENT_OVER_KEPT	       4096u /* handles kept after their end, in addition to running ones */
#define AGENT_KV_WINDOW_BYTES  65536u /* in flight at once, per rank */
#define AGENT_KV_REPEAT_US     20000u
#define AGENT_KV_REPEAT_MAX_US 1000000u
#define AGENT_KV_BUSY_US       20000u /* pause after the router reports a full queue */
#define AGENT_KV_STALE_US                                                                          \
	100000u /* a step back of the router is accepted after this time without progress */
#define AGENT_DUMP_ID	     (UINT64_C(1) << 63) /* first header id of dumps, distinct from events */
#define AGENT_DUMP_WINDOW    32u		 /* frames in flight at once */
#define AGENT_MAX_ITEM	     (1u << 20)
#define AGENT_ANSWER_BUCKETS 1024u /* recent answers about sessions: a router */
#define AGENT_ANSWER_WAYS    8u	   /* retransmits its question for 5 s */
#define AGENT_CODE_FULL	     503u  /* code of rejections by this library */
#define AGENT_CODE_NOT_OURS  1u	   /* another worker, or an unknown rank */
#define AGENT_CODE_ABORTED   499u  /* ABORT arrived before DISPATCH */

_Static_assert(AGENT_ALIVE_US + AGENT_ALIVE_WAIT_US < KVR_WIRE_ALIVE_S * 1000000u, "often enough");

enum agent_timer { AGENT_T_REGISTER = 1, AGENT_T_REPEAT, AGENT_T_KV, AGENT_T_ALIVE };

/** One item of an answer: the body of its message, contiguous. */
struct agent_item {
	STAILQ_ENTRY(agent_item) link;
	struct kvr_wire_ids ids; /* of all copies */
	uint32_t len;		 /* of the body */
	uint32_t n_frames;
	uint32_t next;	  /* with several frames: fragments of the first copy sent so far */
	uint32_t n_again; /* bits set in `again` */
	uint64_t *again; /* with several frames: bit map of fragments to retransmit, behind the body
			  */
	struct kvr_wire_response w; /* the body starts here */
	uint8_t data[];		    /* padded, followed by hints */
};

enum agent_req_state {
	AGENT_FREE = 0,
	AGENT_RUNNING,
	AGENT_ENDING, /* the last item is queued, but not acknowledged */
	AGENT_OVER,   /* kept to answer late copies of its DISPATCH */
};

struct agent_req {
	LIST_ENTRY(agent_req) hash;
	/* In one list: free, ended (by age), or live (by last report). */
	TAILQ_ENTRY(agent_req) order;
	uint64_t handle, source, id;
	uint64_t reported_us;	    /* last report to the router; initially DISPATCH */
	struct agent_rank *rank;    /* rank that runs it, or NULL */
	uint32_t epoch;		    /* epoch of the router that dispatched it */
	struct kvr_udp_addr client; /* direct: destination of items */
	uint8_t state;		    /* enum agent_req_state */
	bool unproven; /* not acknowledged yet, and the client's address may be forged */
	bool direct, aborted, calling; /* calling: inside on_dispatch */
	bool ack_waits;		       /* `repeat` delays DISPATCH_ACK; no item was sent */
	uint8_t leg;		       /* enum kvr_role */
	bool bootstrap;		       /* the engine contacts the decode engine itself */
	uint16_t code;		       /* code of the rejection */
	uint32_t item_bytes;	       /* data bytes of an item of one frame */
	uint32_t frame_bytes;	       /* largest frame on the path of the items */
	uint32_t isl, generated, cached_tokens;
	bool track;    /* the last item carries tracking hints */
	uint8_t *echo; /* tracking hints of the prefill leg, echo_len bytes, or NULL */
	uint32_t echo_len;
	STAILQ_HEAD(, agent_item) items; /* unacknowledged, by seq */
	uint32_t bytes;			 /* data bytes of these */
	uint32_t next_seq, acked,
		sent;	   /* items numbered; items below these were acknowledged, sent */
	uint32_t flying;   /* frames sent and not acknowledged */
	uint32_t parts;	   /* items in fragments with frames to send now */
	bool pacing;	   /* `repeat` runs for the next fragments ... */
	uint64_t paced_us; /* ... due at this time */
	uint32_t backoff_us;
	uint64_t progress_us; /* last time an acknowledgement moved */
	struct kvr_timer repeat;
	/* direct path: progress reports to the router */
	struct kvr_wire_progress prog;
	struct kvr_wire_ids prog_ids;
	uint32_t prog_blocks; /* blocks at the last PROGRESS */
	bool prog_first, prog_fin, prog_done;
	bool adrift; /* the router lost the request, the client did not: no reports */
};

LIST_HEAD(agent_bucket, agent_req);
TAILQ_HEAD(agent_order, agent_req);

/** A recent answer about a session. */
struct agent_answer {
	uint64_t id;	/* of the question */
	uint64_t given; /* ascending; 0: unused */
	uint32_t epoch; /* of the router that asked */
	uint16_t code;
	uint8_t kind;
	bool calling; /* inside the callback */
};

/** Position of an event in the ring, or of the next event. */
struct agent_place {
	uint64_t id;
	uint64_t at; /* bytes written before it */
};

struct agent_dump_frame {
	int len; /* of the datagram */
	uint8_t *data;
};

struct agent_rank {
	uint32_t dp_rank;
	uint8_t *ring;	    /* NULL: no event yet */
	uint64_t ring_mask; /* size in bytes, a power of two, minus one */
	uint64_t end;	    /* bytes written in total */
	struct agent_place first, acked, to_send;
	uint64_t next_id;
	/* Acknowledged since the last WELCOME: a GAP below it is not accepted at once. */
	uint64_t confirmed;
	struct kvr_timer timer;
	uint32_t backoff_us;
	uint64_t progress_us;	   /* last progress of acknowledgements, or retransmission */
	uint64_t dump_us;	   /* last time that the dump moved forward or back, excluding
				      retransmissions */
	uint64_t gap_id, gap_us;   /* last GAP handled: its copies are ignored */
	uint64_t back_id, back_us; /* a GAP below `confirmed`, and the time of its first copy */
	bool overrun;		   /* unacknowledged events were lost: a dump is required */
	bool dumping;
	struct agent_dump_frame *dump;
	uint32_t dump_n, dump_acked, dump_sent;
	uint64_t dump_resume;
	uint64_t dump_id; /* header id of all its frames, repeated in acknowledgements */
	struct kvr_wire_rank_load load;
	uint32_t running; /* requests running on this rank */
};

struct kvr_agent {
	bool takes_bodies;
	struct kvr_link link;
	struct kvr_udp_addr router;
	struct kvr_agent_conf conf; /* strings are not kept: hello contains them */
	struct kvr_agent_stats stats;
	/* registration */
	struct kvr_timer timer;
	uint8_t *hello; /* hints of HELLO */
	uint32_t hello_hints_len;
	struct kvr_wire_ids
		hello_ids; /* of the current HELLO and its copies; answers have its id */
	uint64_t hello_no; /* that id: unique per HELLO, with a random start */
	uint32_t backoff_us, tries;
	uint32_t router_epoch;			 /* 0: never welcomed */
	uint64_t boot;				 /* identifies this process; constant, never 0 */
	uint32_t former[AGENT_FORMER], n_former; /* previous epochs of the router */
	uint32_t heartbeat_ms, dead_ms;
	uint64_t received_us; /* last answer to a heartbeat */
	uint64_t again_us;    /* last HELLO on demand of the router; 0: none */
	uint64_t back_us;     /* last return of a previous router epoch; 0: none */
	bool registered, leaving, drain;
	uint16_t drain_no;    /* number of the current drain request */
	bool new_incarnation; /* the next WELCOME starts a new incarnation */
	struct kvr_agent_status status;
	uint32_t frame_bytes; /* largest frame that both sides accept */
	/* requests */
	struct agent_req *req;
	uint32_t n_req,
		n_used; /* n_used: slots used at least once; the others are not initialised */
	uint32_t running, adrift; /* adrift: running without a router */
	struct agent_bucket *bucket;
	uint32_t bucket_mask;
	struct agent_order free, over, live;
	struct kvr_timer alive;	     /* for the first entry of `live` */
	struct agent_answer *answer; /* AGENT_ANSWER_BUCKETS of AGENT_ANSWER_WAYS, or NULL */
	uint64_t answers_given;
	struct agent_rank *rank;
};

/* hello.c */
int kvr_agent__build_hello(struct kvr_agent *agent, const struct kvr_agent_conf *conf);
void kvr_agent__send_hello(struct kvr_agent *agent);
/** The router does not know the worker: send HELLO, at most once a second; everything else waits
 * for WELCOME. */
void kvr_agent__restart_hello(struct kvr_agent *agent);
/** Use a new HELLO id, so that late answers to previous HELLOs are ignored. */
void kvr_agent__new_hello(struct kvr_agent *agent);

/* register.c */
void kvr_agent__register_timer(struct kvr_agent *agent);
void kvr_agent__on_welcome(struct kvr_agent *agent, const struct kvr_wire_hdr *h,
			   const uint8_t *body);
void kvr_agent__on_heartbeat_ack(struct kvr_agent *agent, const struct kvr_wire_hdr *h,
				 const uint8_t *body);
void kvr_agent__on_rejected(struct kvr_agent *agent, const struct kvr_wire_hdr *h,
			    const uint8_t *body);
void kvr_agent__on_goodbye_ack(struct kvr_agent *agent);

/* Number of blocks for @p tokens tokens. */
static inline uint32_t agent_blocks(const struct kvr_agent *agent, uint64_t tokens)
{
	return (uint32_t)((tokens + agent->conf.block_size - 1) / agent->conf.block_size);
}

/* slot.c */
/** Return true if @p epoch is a previous epoch of the router. */
bool kvr_agent__is_former(const struct kvr_agent *agent, uint32_t epoch);
struct agent_req *kvr_agent__find_request(const struct kvr_agent *agent, uint64_t handle);
/** Take a slot for the request of @p h, in state running; reuses the oldest ended one if none is
 * free. */
struct agent_req *kvr_agent__take_slot(struct kvr_agent *agent, const struct kvr_wire_hdr *h);
/** Assign the request to a rank until kvr_agent__close_slot(). */
void kvr_agent__assign_rank(struct kvr_agent *agent, struct agent_req *req, uint32_t rank);
void kvr_agent__drop_items(struct agent_req *req);
/** Send DISPATCH_ACK for the request of @p h. */
void kvr_agent__send_ack(struct kvr_agent *agent, const struct kvr_wire_hdr *h, uint16_t code);
/** End the request if both client and router have acknowledged its end. */
void kvr_agent__finish_if_acked(struct kvr_agent *agent, struct agent_req *req);
/** End the work of a slot; calls on_done if @p tell. */
void kvr_agent__close_slot(struct kvr_agent *agent, struct agent_req *req, bool tell);
/** Call on_abort and accept no more items. */
void kvr_agent__report_abort(struct kvr_agent *agent, struct agent_req *req,
			     enum kvr_agent_abort why, uint16_t code);
/** The router stops: end its requests, with @p code for the engine, without messages. */
void kvr_agent__end_all(struct kvr_agent *agent, uint16_t code);
/** A new incarnation of the router: forget the handles of others. */
void kvr_agent__forget_others(struct kvr_agent *agent, uint32_t epoch);

/* alive.c */
/** Start the timer for the first live request, if any. */
void kvr_agent__alive_start(struct kvr_agent *agent);
void kvr_agent__alive_timer(struct kvr_agent *agent);

/* dispatch.c */
void kvr_agent__on_dispatch(struct kvr_agent *agent, const struct kvr_wire_hdr *h,
			    const uint8_t *body, uint32_t len);
/** Handle the first fragment of a DISPATCH copy whose message is complete. */
void kvr_agent__dispatch_again(struct kvr_agent *agent, const struct kvr_wire_hdr *h);
/** REJECTED for RESPONSE or PROGRESS. */
void kvr_agent__on_refused(struct kvr_agent *agent, const struct kvr_wire_hdr *h,
			   const uint8_t *body);
void kvr_agent__on_abort(struct kvr_agent *agent, const struct kvr_wire_hdr *h,
			 const uint8_t *body);

/* parts.c: items in fragments */
/** Body bytes of a fragment, except the last, of the request's items. */
uint32_t kvr_agent__unit(const struct agent_req *req);
/** Send due fragments, or start the timer for them. @return true if more remain, so that nothing
 * must be retransmitted yet. */
bool kvr_agent__send_parts(struct kvr_agent *agent, struct agent_req *req);
/** Retransmit the first fragment of @p it, which makes the receiver report missing ones. */
void kvr_agent__send_first(struct kvr_agent *agent, struct agent_req *req,
			   const struct agent_item *it);
/** The receiver had no room for a message in fragments: use new message numbers for those of the
 * request at their next retransmission. */
void kvr_agent__renumber_items(struct kvr_agent *agent, struct agent_req *req);
/** Mark the fragments that @p w names for retransmission. @return false: it matches no sent item of
 * several frames. */
bool kvr_agent__parts_named(struct kvr_agent *agent, struct agent_req *req,
			    const struct kvr_wire_missing *w);

/* respond.c */
/** MISSING: client or router reports missing fragments of an item. */
void kvr_agent__on_missing(struct kvr_agent *agent, const struct kvr_udp_addr *from,
			   const struct kvr_wire_hdr *h, const uint8_t *body);
/** Send new items that the window admits. */
void kvr_agent__send_new(struct kvr_agent *agent, struct agent_req *req);
int kvr_agent__put_item(struct kvr_agent *agent, struct agent_req *req,
			const struct kvr_agent_item *item, uint16_t wire_flags);
/** End the request with flag @p how and the text @p words, followed by @p n unless 0. @return as
 * kvr_agent__put_item(). */
int kvr_agent__end_request(struct kvr_agent *agent, struct agent_req *req, uint16_t how,
			   const char *words, uint64_t n);
void kvr_agent__retransmit(struct kvr_agent *agent, struct agent_req *req);
void kvr_agent__on_response_ack(struct kvr_agent *agent, const struct kvr_udp_addr *from,
				const struct kvr_wire_hdr *h, const uint8_t *body);
void kvr_agent__on_progress_ack(struct kvr_agent *agent, const struct kvr_wire_hdr *h,
				const uint8_t *body);
/** Item @p seq cannot reach its client: end the request with an error instead. */
void kvr_agent__end_undeliverable(struct kvr_agent *agent, struct agent_req *req, uint64_t seq);

/* session.c */
/** SESSION_OPEN and SESSION_CLOSE. */
void kvr_agent__on_session(struct kvr_agent *agent, const struct kvr_wire_hdr *h,
			   const uint8_t *body);

/* events.c */
/** Forget all events: the next one is the first. */
void kvr_agent__kv_drop(struct agent_rank *rank);
/** Space for an event of @p bytes at the end of the ring; acknowledged events are forgotten for it.
 * @return NULL: no space. */
struct kvr_wire_kv_event *kvr_agent__kv_room_for(struct agent_rank *rank, uint32_t bytes);
/** The event in the space of kvr_agent__kv_room_for() is complete; it gets the next id. */
void kvr_agent__kv_added(struct agent_rank *rank, const struct kvr_wire_kv_event *e);
/** Event at @p p, which must not be the end. */
const struct kvr_wire_kv_event *kvr_agent__kv_at(const struct agent_rank *rank,
						 struct agent_place *p);
/** Advance @p p to @p id, which is in the ring or the next id. */
void kvr_agent__kv_seek(const struct agent_rank *rank, struct agent_place *p, uint64_t id);
/** Retransmit from @p id on, which is in the ring or the next id. */
void kvr_agent__kv_rewind(struct agent_rank *rank, uint64_t id);

static inline uint32_t kvr_agent__kv_size(const struct kvr_wire_kv_event *e)
{
	return (uint32_t)sizeof(*e) + e->n_blocks * 8;
}

/** Bytes sent and not acknowledged. */
static inline uint64_t kvr_agent__kv_in_flight(const struct agent_rank *rank)
{
	/* Positions with the same id may differ: one at the ring's end, one at its beginning. */
	return rank->to_send.id != rank->acked.id ? rank->to_send.at - rank->acked.at : 0;
}

static inline bool kvr_agent__kv_waits(const struct agent_rank *rank)
{
	return rank->to_send.at != rank->end;
}

/** Start the timer that sends waiting events. */
void kvr_agent__kv_kick(struct kvr_agent *agent, struct agent_rank *rank);

/* kv.c */
void kvr_agent__kv_timer(struct kvr_agent *agent, struct agent_rank *rank);
void kvr_agent__on_kv_ack(struct kvr_agent *agent, const struct kvr_wire_hdr *h,
			  const uint8_t *body);
/** Maximum number of blocks in one event. */
uint32_t kvr_agent__kv_room(const struct kvr_agent *agent);

/* dump.c */
void kvr_agent__dump_start(struct kvr_agent *agent, struct agent_rank *rank);
void kvr_agent__dump_send(struct kvr_agent *agent, struct agent_rank *rank);
void kvr_agent__dump_drop(struct agent_rank *rank);
void kvr_agent__dump_ack(struct kvr_agent *agent, struct agent_rank *rank,
			 const struct kvr_wire_kv_ack *w);

#endif
