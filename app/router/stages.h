/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_STAGES_H
#define ROUTER_STAGES_H

/**
 * @file
 * What the stages of a packet lcore offer each other. Unless said otherwise, every function runs
 * on the lcore it is given, and takes the frame or job it is given in every case.
 */

#include "decision.h"
#include "router.h"

/** Whether the same message may succeed later. */
enum refusal_retry { RETRY_BY_CODE, RETRY_YES, RETRY_NO };

struct dispatch_msg;

/** What a REJECTED says; all but `code` may be left 0. */
struct refusal {
	enum kvr_wire_code code;
	enum refusal_retry retry; /* 0: kvr_code_retryable(code) */
	uint64_t handle;	  /* of the refused message; out_reject_frame() fills it in */
	uint64_t detail[4];
	uint16_t policy_class; /* QueueRejected */
	const char *text;      /* for people, cut at 255 bytes; NULL: the code's name */
	uint32_t room; /* bytes the answer may have, source_room(); 0: as many as it needs */
};

/* ---- loop_dp.c ---- */

/** EAL lcore function: poll until router::stop. @p arg is the struct lcore. */
int lcore_loop(void *arg);

/** One turn of the loop: every stage once, then housekeeping. */
void lcore_turn(struct lcore *lc);

/* ---- ingress_dp.c ---- */

/** Receive one burst from every queue of this lcore. @return frames received. */
uint32_t ingress_poll(struct lcore *lc);

/* ---- fragment_dp.c ---- */

/** A fragment of ROUTE or POTENTIAL_LOADS. */
void fragment_in(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);

/** The ingress lcore that joins the fragments of this sender; @p lc itself unless they may come to
 * several. Ingress lcores. */
struct lcore *fragment_joiner(struct lcore *lc, const struct kvr_path *from);

/** Give up and ask for what is due. */
void fragments_poll(struct lcore *lc);

/** The job's frames do not count at its ingress lcore any more: they are freed, or counted as
 * waiting. Idempotent. Scheduler lcore. */
void fragments_taken(struct job *j);

/** No scheduler will take it. The ingress lcore that made it. */
void fragments_back(struct lcore *lc, struct job *j);

/** kvr_reasm_conf::share: whatever the port, all of an address is one source. */
struct kvr_peer fragment_share(const struct kvr_peer *peer);

/** kvr_reasm_conf::drop. @p lc is the struct lcore. */
void ingress_reasm_drop(void *lc, void *frame);

/* ---- source_dp.c: what one source address may use ---- */

/** Whether a CONNECT or HELLO of @p from is within its source's rate. Ingress lcores. */
bool source_control(struct lcore *lc, const struct kvr_path *from);

/**
 * Whether a frame of a ROUTE or POTENTIAL_LOADS may go on: its cookie, its source's rate, and its
 * source's part of an overload. Takes the cookie out of the message. Ingress lcores.
 * @return KVR_OK, else the code; the frame stays the caller's.
 */
enum kvr_wire_code source_route(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);

/** Refuse a received frame, which it frees, and count it; answered as far as its source may have
 * answers. Ingress lcores. */
void source_refuse(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from,
		   enum kvr_wire_code code);

/** The same with more than a code to say. */
void source_refuse_as(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from,
		      const struct refusal *why);

/** Most bytes of an answer to @p question bytes from @p from, whose address is not proven; 0: any
 * number. */
uint32_t source_room(const struct router *rt, const struct kvr_path *from, uint32_t question);

/* ---- shares_dp.c: what one source may have of a pool. Scheduler lcore ---- */

/** Whether the job's source may have another request; else j->excess says why not. */
bool share_slot_may(struct pool *p, struct job *j);

/** Charge the slot to the job's source; slot_end() and slot_release() give back. */
void share_slot_take(struct pool *p, struct kvr_flight *r, const struct job *j);

/** kvr_flight_end() of a slot that may be charged to somebody: what lingers is nobody's. */
void slot_end(struct pool *p, struct kvr_flight *r, uint64_t now_ns);

/** kvr_flight_release() of a slot that may be charged to somebody. */
void slot_release(struct pool *p, struct kvr_flight *r);

/** The job is going to wait with @p frames of the @p free frames that may.
 * @return KVR_OK, or KVR_E_SOURCE_LIMIT and j->excess says why. */
enum kvr_wire_code share_wait(struct pool *p, struct job *j, uint32_t frames, uint32_t free);
void share_go_on(struct pool *p, struct job *j, uint32_t frames);

/** Whether the source may have another session; of a job: else j->excess says why not. */
bool share_session_may(struct pool *p, const struct kvr_path *client, struct kvr_share_state *st);
bool share_session_open(struct pool *p, struct job *j);

/* ---- the same of the event ring. Ingress lcores ---- */

/** Whether the source may have another frame in the pool's event ring, which is then charged to
 * it. */
bool share_event_take(struct lcore *lc, struct pool *p, const struct kvr_path *from);

/** The one that was charged last did not get there. */
void share_event_back(struct lcore *lc, struct pool *p);

/** The frame of @p n has left the ring. Event lcore. */
void share_event_done(struct pool *p, const struct event_note *n);

/* ---- heartbeat_dp.c ---- */

/** HEARTBEAT: mark it and answer. */
void ingress_heartbeat(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);

/* ---- read_dp.c: messages in fragments that are whole. Ingress lcores ---- */

/** All frames of a request are here, which it takes: it becomes a job within some turns. */
void read_start(struct lcore *lc, const struct kvr_reasm_msg *msg, const struct kvr_path *from);

/** Read on, as far as a turn allows. */
void read_poll(struct lcore *lc);

/** Give up what is being read; at the stop. */
void read_drop(struct lcore *lc);

/** Free the frames of a message: few at once, many over the lcore's next turns. */
void frames_drop(struct lcore *lc, struct frame_list *l);
void frames_poll(struct lcore *lc);

/* ---- job_dp.c ---- */

/**
 * Make a job of a ROUTE message of one frame and put it into the lcore's batch.
 * @return KVR_OK: the job has taken @p m; else the code, and the caller keeps it; details and text
 * of what is wrong, where there are any, are in *why.
 */
enum kvr_wire_code job_add(struct lcore *lc, const struct kvr_path *from, struct rte_mbuf *m,
			   struct refusal *why);

/** The steps of that. A job of @p p without a message; NULL: there are no more. */
struct job *job_new(struct lcore *lc, struct pool *p);

/** The pool that is meant is none of this router's: what it has instead goes to *why. @return the
 * code. */
enum kvr_wire_code job_unknown_pool(const struct router *rt, uint32_t id, struct refusal *why);

/** What the request says against the pool it is for; details and text of it go to *why. */
enum kvr_wire_code job_check(const struct pool *p, const struct kvr_wire_request *f,
			     struct refusal *why);

/** Fill in all but hashes; @p raw are the hints, in memory that lasts as long as the job. */
enum kvr_wire_code job_begin(struct lcore *lc, struct job *j, const struct kvr_wire_hdr *h,
			     const struct kvr_message *q, const void *raw, struct kvr_hints *hints);

/** Room for @p n_hashes in j->hash_buf. */
enum kvr_wire_code job_hash_buf(struct lcore *lc, struct job *j, uint32_t n_hashes);

/** Begin to hash the tokens of the job; @p mm is the stream's as long as that lasts. */
void job_hash_begin(const struct job *j, const struct kvr_hints *h, struct kvr_tlv_iter *mm,
		    struct kvr_hash_stream *stream);

/** Whether copies of the message are compared by their digest. */
bool job_compared(const struct job *j);

/** It has its hashes and its digest: into the batch. On failure the caller keeps the job. */
enum kvr_wire_code job_end(struct lcore *lc, struct job *j, const struct kvr_path *from,
			   uint16_t client_frame);

/** Score the lcore's batch and hand it to the schedulers. */
void jobs_flush(struct lcore *lc);

/** Zero the scores of ranks that the table did not write: the scheduler reads all lanes. */
void overlap_pad(struct kvr_overlap *o);

/** Scores as the scheduler takes them. */
void overlap_view(const struct kvr_overlap *o, struct kvr_sched_overlap *ov);

/** Header of the first frame of the job's message. */
const struct kvr_wire_hdr *job_header(const struct job *j);

/** Bytes [off, off + len) of the body of a message, which has as many, to @p dst: its frames but
 * the last carry @p unit bytes, so there is nothing to search. */
void frames_part(struct rte_mbuf *const m[], uint32_t unit, uint32_t off, uint32_t len, void *dst);
void job_part(const struct job *j, uint32_t off, uint32_t len, void *dst);

/** Pool of a number on the wire, or NULL. */
struct pool *pool_by_id(struct router *rt, uint32_t id);

/** Free a job that has not been handed to a scheduler, and whatever frames it has. Any lcore. */
void job_drop(struct lcore *lc, struct job *j);

/* ---- held_dp.c: jobs at their pool's scheduler lcore, and nowhere else ---- */

/**
 * The job is going to wait with its frames: they are the buffers that ports receive into, and only
 * a part of them may wait, and of that part each source has a share. Idempotent.
 * @return KVR_OK; KVR_E_NO_MEMORY, KVR_E_SOURCE_LIMIT: nothing has changed.
 */
enum kvr_wire_code job_hold(struct job *j);

/** Free a job, whatever frames it still has, and what is kept for it. */
void job_free(struct lcore *lc, struct job *j);

/* ---- relay_dp.c ---- */

/** RESPONSE from an agent or RESPONSE_ACK from a client: switch it by handle. */
void relay_response(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);
void relay_response_ack(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);

/** DISPATCH_ACK, PROGRESS, ABORT_ACK from an agent; CANCEL, PROBE from a client. */
void note_from_agent(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);
void note_from_client(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);

/** Pool of a handle, or NULL. */
struct pool *pool_of_handle(struct router *rt, uint64_t handle);

/** Pass a note on when it may be for another pool. @return 0, or -1: it was the last pool, or
 * its ring is full and the frame was dropped (counted). */
int note_next_pool(struct lcore *lc, struct pool *p, const struct note *n);

/* ---- event_dp.c ---- */

/** KV_EVENTS at ingress: check the sender, hand it to its pool's event lcore. */
void event_ingress(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from);

/** Apply one burst of events of @p p. @return notes handled. */
uint32_t event_poll(struct lcore *lc, struct pool *p);

/**
 * Forget all blocks of a rank. It is now of worker @p w, whose events are expected from 0 on, or of
 * nobody (NULL). Short, whatever the rank had. Event lcore.
 */
void event_reset_rank(struct lcore *lc, struct pool *p, uint32_t rank, const struct kvr_worker *w);

/** A heartbeat says which event comes next: ask for what is missing, a dump if that is all. */
void event_heartbeat(struct lcore *lc, struct pool *p, const struct rank_load *load);

/**
 * Enter a decision for @p rank of @p worker as predicted blocks, through the event lcore. Leaves
 * the job alone.
 */
void predict(struct lcore *lc, struct pool *p, const struct job *j, uint32_t rank, uint64_t worker);

/* ---- the scheduler stage: what others need of it; request.h has the rest ---- */

/** Handle one burst of notes of @p p, admit waiting requests, serve timers. @return notes. */
uint32_t sched_poll(struct lcore *lc, struct pool *p);

/** Expire bookings and look after deadlines, every 10 ms. A struct call's function: @p pool is the
 * struct pool. */
bool sched_tick(struct lcore *lc, void *pool);

/** Bring the gauges among the pool's counters up to date. */
void sched_gauges(struct pool *p);

/** kvr_sched_ops::dropped: a booking ended because its rank went. */
void sched_dropped(void *pool, uint32_t slot, uint32_t rank);

/** kvr_sched_ops::refresh: look up the overlap of a waiting request again. */
bool sched_refresh(void *pool, uint32_t slot, const struct kvr_sched_req *req,
		   struct kvr_sched_overlap *out);

/* ---- leg_dp.c: jobs of a pool that has a prefill pool ---- */

/** Give a job what its legs need. @return KVR_OK, E_TOO_LARGE, E_NO_MEMORY. Ingress lcore. */
enum kvr_wire_code pair_attach(struct job *j);

/** Give it back, with the job. Any lcore. */
void pair_detach(struct job *j);

/* ---- send_dp.c: DISPATCH of several frames, and of legs; scheduler lcore ---- */

#define SEND_TURN_BYTES 32768u /* of an lcore: 8 to 15 us of copying */

/** A DISPATCH: the client's message with another header, fixed part and perhaps hints. */
struct dispatch_msg {
	const struct job *j;
	struct kvr_wire_hdr h;
	struct kvr_wire_request q;
	uint32_t hints_off; /* bytes [hints_off, body_off) of the client's message ... */
	uint32_t body_off;
	uint32_t hints_len; /* ... are these instead */
	const void *hints;
};

struct dispatch_fields;

/** What the router fills into the DISPATCH of a main leg, but for its handle. */
void send_fields(const struct kvr_flight *slot, struct dispatch_fields *f);

/** Send the message of a slot whose leg is SENT, in slices from this turn on, and repeat it until
 * it is acknowledged. */
void send_start(struct lcore *lc, struct pool *p, struct kvr_flight *slot);

/** Whether the router repeats the DISPATCH by itself. */
static inline bool send_kept(const struct request *r)
{
	return r->job != NULL && (r->rq.paired || (r->job->sent && r->job->held != 0));
}

/** Neither send nor repeat it. Idempotent. */
void send_stop_leg(struct pool *p, struct kvr_flight *slot);

/** The same for both legs. */
void send_stop(struct request *r);

/** The same for legs that are not SENT any more; a job that is kept for that alone is given back.
 * The request has a job. */
void send_settle(struct request *r);

/** The job is kept for its repetition alone: stop that and give it back. */
void send_end(struct request *r);

/** What has not been sent of the slot's first copy goes out now, whatever it costs: it is aborted
 * next, and its worker must have the whole message for that. */
void send_rest(struct lcore *lc, struct pool *p, struct kvr_flight *slot);

/** The worker says what it lacks. */
void send_missing(struct lcore *lc, struct pool *p, struct kvr_flight *slot,
		  const struct kvr_wire_missing *lack);

/** Once a turn: the next slices, and what nobody has acknowledged. */
void send_poll(struct lcore *lc, struct pool *p);

/* ---- out_dp.c ---- */

/** Send @p m (data = frame header and body slice) to @p to, cut when the path needs it. */
void out_send(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *to);

/** The same for a frame that is known to fit: out_limit() is not below its length. */
void out_send_fitting(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *to);

/** Send a message of one frame. @p body may be NULL when len is 0. Also on the control thread. */
void out_message(struct lcore *lc, const struct kvr_path *to, uint8_t kind, uint64_t source,
		 uint64_t id, uint64_t handle, const void *body, size_t len);

/** Send @p len bytes that are a whole frame, header included. */
void out_frame(struct lcore *lc, const struct kvr_path *to, const void *frame, size_t len);

/** Send the message of header @p h whose body is @p s, cut as the path needs it. */
void out_slices(struct lcore *lc, const struct kvr_wire_hdr *h, const struct kvr_slice *s,
		uint32_t n, const struct kvr_path *to);

/** Largest frame (UDP payload) on the way to @p to. */
uint32_t out_limit(const struct lcore *lc, const struct kvr_path *to);

/** Count the code of @p why and tell @p to that its message was refused. */
void out_reject(struct lcore *lc, const struct kvr_path *to, uint8_t kind, uint64_t source,
		uint64_t id, const struct refusal *why);

/** The same for a received frame, which it frees; quiet for kinds that are never answered. */
void out_reject_frame(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from,
		      const struct refusal *why);

/** What the router fills into a ROUTE to make it a DISPATCH. */
struct dispatch_fields {
	uint64_t handle;
	uint64_t worker;
	uint32_t dp_rank;
	uint32_t overlap_blocks;
	uint32_t cached_tokens;
	uint32_t attempt;
	bool direct; /* the agent may send items to the client itself */
};

/** Send the one frame of @p j as DISPATCH; takes the frame, leaves the job. */
void out_dispatch(struct lcore *lc, struct job *j, const struct kvr_path *to,
		  const struct dispatch_fields *f);

/** Fill the fixed part of a ROUTE in. */
void out_dispatch_fields(const struct lcore *lc, const struct job *j,
			 const struct dispatch_fields *f, struct kvr_wire_request *q);

/** Room for a header and @p len bytes of body in a new frame; NULL is counted. */
struct kvr_wire_hdr *out_frame_new(struct lcore *lc, struct rte_mbuf **m, size_t len);

/** Send the frames that other lcores left in this lcore's egress ring. @return frames. */
uint32_t out_egress(struct lcore *lc);

/** Keep the sender's path with a frame that goes through a ring, in its headroom. */
void path_keep(struct rte_mbuf *m, const struct kvr_path *path);
const struct kvr_path *path_kept(const struct rte_mbuf *m);

#endif
