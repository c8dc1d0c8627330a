/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * DISPATCH of several frames, and of legs. A message leaves in slices over the turns, at the pace
 * of PROTOCOL.md section 4, and is retransmitted until its worker acknowledges it: the loss of one
 * frame in hundreds must not make the client send all of them again.
 *
 *   first copy         SLICE frames, then a pause of SLICE gaps: 64 frames a millisecond
 *   MISSING            the named fragments, as far as they were sent, at the same pace; at half the
 *                      pace if there are many
 *   20 ms, doubling    after the last frame: the first fragment alone. The worker answers with its
 *                      missing fragments, or acknowledges again
 *   acknowledged, an item, ended   send_settle()
 *
 * The job is kept. Its frames count as waiting (job_hold()). If they may not wait, the job is freed
 * as soon as all frames are out, as fast as turns allow, and the client retransmits, as for
 * messages of one frame. Every frame is a copy: job_copy() finds its bytes directly, so that the
 * cost of a slice does not depend on the length of the message.
 */
#include "lcore/agent_path.h"
#include "lcore/out.h"
#include "message/frames.h"
#include "message/job.h"
#include "sched/long_prompt.h"
#include "sched/request.h"
#include "sched/sched.h"
#include "sched/send.h"

#include <string.h>

#include "kvr_frame.h"

#define RESEND_NS     UINT64_C(20000000)
#define RESEND_MAX_NS UINT64_C(1000000000)
#define SLICE	      16u     /* frames of one message before the next message */
#define GAP_NS	      15625u  /* 64 frames a millisecond */
#define GAP_MAX_NS    125000u /* 8 frames a millisecond, after losses */
#define LOOK	      64u     /* messages considered in a turn */

/* ---- what is sent ---- */

static void build_message(struct lcore *lc, const struct pool *pool, const struct kvr_flight *slot,
			  struct dispatch_msg *d)
{
	const struct request *req = request_of(slot);
	struct dispatch_fields f;

	if (req->rq.paired) {
		leg_message(lc, pool, slot, d);
	} else {
		leg_fields(pool, slot, &f);
		*d = (struct dispatch_msg){.j = req->job, .hints_off = sizeof(d->q)};
		d->body_off = d->hints_off; /* nothing is replaced */
		d->result_off = UINT32_MAX;
		d->h = *job_header(d->j);
		job_copy(d->j, 0, sizeof(d->q), &d->q);
		out_dispatch_fields(lc, d->j, &f, &d->h, &d->q);
	}
}

/* Append bytes [from, to) of the DISPATCH, up to `end`, from the client's message or from memory,
 * and advance. */
static void put_part(const struct dispatch_msg *d, const uint8_t *mem, uint32_t shift, uint32_t end,
		     uint32_t *off, uint32_t to, uint8_t **dst)
{
	const uint32_t n = *off < end ? RTE_MIN(end, to) - *off : 0;

	if (n == 0)
		return;
	if (mem != NULL)
		memcpy(*dst, mem + (*off - shift), n);
	else
		job_copy(d->j, *off - shift, n, *dst);
	*off += n;
	*dst += n;
}

static void copy_bytes(const struct dispatch_msg *d, uint32_t off, uint32_t len, uint8_t *dst)
{
	const uint32_t to = off + len, body = d->hints_off + d->hints_len;

	put_part(d, (const uint8_t *)&d->q, 0, sizeof(d->q), &off, to, &dst);
	put_part(d, NULL, 0, d->hints_off, &off, to, &dst);
	put_part(d, d->hints, d->hints_off, body, &off, to, &dst);
	put_part(d, NULL, body - d->body_off, d->result_off, &off, to, &dst);
	if (off < to) /* the data follow the fixed part of the RESPONSE */
		frames_copy(d->result->m, d->result_unit,
			    (uint32_t)sizeof(struct kvr_wire_response) + off - d->result_off,
			    to - off, dst);
}

static int cut_message(const struct dispatch_msg *d, uint32_t limit, struct kvr_frag *f)
{
	const struct kvr_wire_ids ids = {d->h.source, d->h.id, d->h.handle, d->h.epoch,
					 d->h.msg_seq};

	return kvr_frag_init(f, KVR_DISPATCH, &ids, d->h.msg_len, limit);
}

/* Send fragment @p k; without a buffer it counts as lost and will be requested. */
static void send_frame(struct lcore *lc, const struct dispatch_msg *d, struct kvr_frag *f,
		       uint32_t k, const struct kvr_path *to)
{
	uint8_t hdr[sizeof(struct kvr_wire_hdr)];
	struct kvr_wire_hdr *out;
	struct rte_mbuf *m;
	uint32_t off, len;

	kvr_frag_seek(f, k);
	kvr_frag_next(f, hdr, &off, &len);
	lc->send_left -= RTE_MIN(lc->send_left, len);
	out = out_frame_new(lc, &m, len);
	if (unlikely(out == NULL))
		return;
	memcpy(out, hdr, sizeof(hdr));
	copy_bytes(d, off, len, (uint8_t *)(out + 1));
	out_send_fitting(lc, m, to);
}

/* ---- repetitions ---- */

/* The list for the number of attempts so far; its members wait equally long and are in order. */
static uint32_t resend_step(const struct kvr_flight *slot)
{
	return RTE_MIN(slot->attempt, LEG_STEPS - 1);
}

static void resend_start(struct lcore *lc, struct pool *pool, struct kvr_flight *slot)
{
	const uint32_t step = resend_step(slot);

	slot->resend_ns = lc->now_ns + RTE_MIN(RESEND_NS << step, RESEND_MAX_NS);
	TAILQ_INSERT_TAIL(&pool->live.resends[step], slot, resend_link);
}

static void resend_stop(struct pool *pool, struct kvr_flight *slot)
{
	if (slot->resend_ns == 0)
		return;
	TAILQ_REMOVE(&pool->live.resends[resend_step(slot)], slot, resend_link);
	slot->resend_ns = 0;
}

/* ---- messages under way ---- */

/* NULL: nothing of the slot is sent or kept. */
static struct sending *sending_of(const struct kvr_flight *slot)
{
	struct request *req = request_of(slot);
	struct job *job = req != NULL ? req->job : NULL;

	if (job == NULL)
		return NULL;
	if (req->rq.paired)
		return &job->pair->sending[leg_of(slot)];
	return job->sent ? &job->sending : NULL;
}

static void sending_stop(struct pool *pool, struct sending *sending)
{
	if (!sending->on)
		return;
	TAILQ_REMOVE(&pool->live.sends, sending, link);
	sending->on = false;
}

static void sending_start(struct pool *pool, struct sending *sending)
{
	if (sending->on)
		return;
	TAILQ_INSERT_TAIL(&pool->live.sends, sending, link);
	sending->on = true;
}

void send_stop_leg(struct pool *pool, struct kvr_flight *slot)
{
	struct sending *sending = sending_of(slot);

	resend_stop(pool, slot);
	if (sending == NULL)
		return;
	sending_stop(pool, sending);
	sending->stops = false;
}

void send_stop(struct request *req)
{
	struct pool *pool = request_pool(req);

	if (req->slot[MAIN] != NULL)
		send_stop_leg(pool, req->slot[MAIN]);
	if (req->slot[PREFILL] != NULL)
		send_stop_leg(pool->prefill, req->slot[PREFILL]);
}

void send_settle(struct request *req)
{
	struct pool *pool = request_pool(req);

	if (req->rq.paired) {
		for (uint32_t leg = MAIN; leg <= PREFILL; leg++)
			if (req->slot[leg] != NULL && leg_state(req, leg) != KVR_RQS_SENT &&
			    !req->job->pair->sending[leg].stops)
				send_stop_leg(leg == MAIN ? pool : pool->prefill, req->slot[leg]);
	} else if (req->job->sent && leg_state(req, MAIN) != KVR_RQS_SENT) {
		send_end(req);
	}
}

void send_end(struct request *req)
{
	struct job *job = req->job;

	send_stop(req);
	req->job = NULL;
	job_free(job->pool->sched_lcore, job);
}

bool send_may_move(const struct request *req)
{
	struct kvr_flight_table *t = request_pool(req)->requests;

	return kvr_flight_count(t) < kvr_flight_size(t) || kvr_flight_oldest(t) != NULL;
}

/* Whether all of the message is sent, and another handle is available. */
static bool may_leave(struct lcore *lc, const struct kvr_flight *slot)
{
	const struct request *req = request_of(slot);
	const struct kvr_rq_ctx c = request_ctx(lc, request_pool(req));
	const struct sending *sending = sending_of(slot);

	return (sending == NULL || !sending->on) && send_may_move(req) &&
	       kvr_request_unacked(&c, &req->rq, leg_of(slot));
}

bool send_unacked_long(struct lcore *lc, const struct request *req)
{
	return send_kept(req) && !req->rq.paired && may_leave(lc, req->slot[MAIN]);
}

/* Free the parts of a decided job that the scheduler no longer needs. */
static void strip_job(struct job *job)
{
	long_prompt_keep(job->pool, job);
	hashes_put(job->hash_buf);
	buf_put(job->hint_buf);
	job->hash_buf = NULL;
	job->hint_buf = NULL;
	job->hashes = NULL;
	job->n_hashes = 0;
}

void send_start(struct lcore *lc, struct pool *pool, struct kvr_flight *slot)
{
	const struct kvr_path *to = agent_path(lc, &slot->relay);
	struct request *req = request_of(slot);
	struct job *job = req->job;
	struct dispatch_msg d;
	struct sending *sending;
	struct kvr_frag f;

	if (!req->rq.paired) {
		strip_job(job);
		job_hold(job); /* otherwise freed with its last frame */
		job->sent = true;
	}
	build_message(lc, pool, slot, &d);
	sending = sending_of(slot);
	*sending = (struct sending){.r = slot, .due_ns = lc->now_ns, .gap_ns = GAP_NS};
	sending->limit = out_limit(lc, to);
	if (!req->rq.paired) /* keep the client's fragment size if the path allows */
		sending->limit = RTE_MIN(sending->limit, job->frames->m[0]->pkt_len);
	pool_count(pool, PC_DISPATCHES, 1);
	if (cut_message(&d, sending->limit, &f) < 0) {
		in_count(lc, IN_UNSENDABLE);
		if (!req->rq.paired)
			send_end(req);
		return;
	}
	sending->n_frames = f.n_frames;
	if (f.n_frames > 1) {
		sending_start(pool, sending);
		return;
	}
	sending->next = 1;
	send_frame(lc, &d, &f, 0, to);
	resend_start(lc, pool, slot);
}

/* The next fragment to send. */
static uint32_t take_next(struct sending *sending)
{
	uint32_t w = 0;

	if (sending->next < sending->n_frames)
		return sending->next++;
	while (sending->lack[w] == 0)
		w++;
	sending->n_lack--;
	w = w * 64 + (uint32_t)__builtin_ctzll(sending->lack[w]);
	sending->lack[w / 64] &= ~(UINT64_C(1) << w % 64);
	return w;
}

/* All pending frames are sent. */
static void sending_done(struct lcore *lc, struct pool *pool, struct sending *sending)
{
	struct kvr_flight *slot = sending->r;
	struct request *req = request_of(slot);

	sending_stop(pool, sending);
	if (unlikely(sending->stops)) {
		sending->stops = false;
		abort_start(lc, pool, slot, sending->stop_code);
		if (req->job->pair->over)
			send_end(req);
	} else if (send_kept(req)) {
		/* The acknowledgement timeout begins: the worker has all fragments, or those that
		 * it requested. By the clock of request_ctx(), which stands still while the router
		 * stalls. */
		if (slot->attempt == 0)
			req->rq.sent_ns[leg_of(slot)] = lc->quiet.now_ns;
		resend_start(lc, pool, slot);
	} else {
		send_end(req);
	}
}

static void send_slice(struct lcore *lc, struct pool *pool, struct sending *sending)
{
	struct kvr_flight *slot = sending->r;
	const struct kvr_path *to = agent_path(lc, &slot->relay);
	struct dispatch_msg d;
	struct kvr_frag f;
	uint32_t n = 0;

	build_message(lc, pool, slot, &d);
	if (unlikely(sending->limit > out_limit(lc, to) ||
		     cut_message(&d, sending->limit, &f) < 0)) {
		in_count(lc, IN_UNSENDABLE); /* the worker moved to a path with smaller frames */
		sending->next = sending->n_frames;
		sending->n_lack = 0;
	}
	while ((sending->next < sending->n_frames || sending->n_lack > 0) && n < SLICE &&
	       lc->send_left > 0) {
		send_frame(lc, &d, &f, take_next(sending), to);
		n++;
	}
	if (send_kept(request_of(slot)))
		sending->due_ns = lc->now_ns + (uint64_t)n * sending->gap_ns;
	if (sending->next == sending->n_frames && sending->n_lack == 0)
		sending_done(lc, pool, sending);
}

bool send_then_abort(struct kvr_flight *slot, uint16_t code)
{
	struct sending *sending = sending_of(slot);

	if (sending == NULL || !sending->on)
		return false;
	sending->stops = true;
	sending->stop_code = code;
	return true;
}

bool send_keeps(struct request *req)
{
	struct job *job = req->job;

	if (!req->rq.paired || !job->pair->sending[MAIN].stops)
		return false;
	job->pair->over = true;
	return true;
}

void send_missing(struct lcore *lc, struct pool *pool, struct kvr_flight *slot,
		  const struct kvr_wire_missing *lack)
{
	const struct request *req = request_of(slot);
	struct sending *sending = NULL;
	struct dispatch_msg d;
	struct kvr_frag f;

	if (req != NULL && leg_state(req, leg_of(slot)) == KVR_RQS_SENT)
		sending = sending_of(slot);
	if (sending == NULL || sending->n_frames < 2 || lack->kind != KVR_DISPATCH)
		return;
	build_message(lc, pool, slot, &d);
	if (cut_message(&d, sending->limit, &f) < 0 || lack->msg_seq != d.h.msg_seq ||
	    lack->msg_len != d.h.msg_len || lack->unit != f.unit)
		return;
	sending->n_lack = 0;
	for (uint32_t i = 0; i < (sending->n_frames + 63) / 64; i++) {
		const uint32_t at = i - lack->first / 64;
		const uint32_t sent = sending->next > i * 64 ? sending->next - i * 64 : 0;
		uint64_t word = 0;

		if (at < lack->n_words)
			memcpy(&word, (const uint8_t *)(lack + 1) + at * 8u, sizeof(word));
		/* Fragments that were never sent are on their way anyway. */
		sending->lack[i] = sent < 64 ? word & ((UINT64_C(1) << sent) - 1) : word;
		sending->n_lack += (uint32_t)__builtin_popcountll(sending->lack[i]);
	}
	if (sending->n_lack > sending->next / 4)
		sending->gap_ns = RTE_MIN(2 * sending->gap_ns, GAP_MAX_NS);
	/* The worker responds: the timeout restarts at its first step. */
	resend_stop(pool, slot);
	slot->attempt = 0;
	if (sending->n_lack > 0 || sending->next < sending->n_frames)
		sending_start(pool, sending);
	else
		resend_start(lc, pool, slot);
}

/* Unacknowledged: retransmit the first fragment, which may be the whole message. */
static void resend_first(struct lcore *lc, struct pool *pool, struct kvr_flight *slot)
{
	const struct kvr_path *to = agent_path(lc, &slot->relay);
	const struct sending *sending = sending_of(slot);
	struct dispatch_msg d;
	struct kvr_frag f;

	KVR_SIM_SOMETIMES(DISPATCH_AGAIN);
	slot->attempt++;
	build_message(lc, pool, slot, &d);
	if (sending->limit > out_limit(lc, to) || cut_message(&d, sending->limit, &f) < 0)
		in_count(lc, IN_UNSENDABLE);
	else
		send_frame(lc, &d, &f, 0, to);
	pool_count(pool, PC_DISPATCHES, request_of(slot)->rq.paired);
	resend_start(lc, pool, slot);
}

/* Whether any list has a member: one check per turn. */
static inline bool any_resend(const struct pool *pool)
{
	uintptr_t any = 0;

	for (uint32_t i = 0; i < LEG_STEPS; i++)
		any |= (uintptr_t)TAILQ_FIRST(&pool->live.resends[i]);
	return any != 0;
}

struct kvr_flight *send_reroutable(struct lcore *lc, struct pool *pool)
{
	struct kvr_flight *slot;
	uint32_t looks = BURST;

	if (likely(!any_resend(pool)))
		return NULL;
	/* The most retransmitted messages have waited longest; after a stall all may be due. */
	for (uint32_t i = LEG_STEPS; i-- > 0;)
		TAILQ_FOREACH (slot, &pool->live.resends[i], resend_link) {
			if (slot->resend_ns > lc->now_ns || looks == 0)
				break;
			looks--;
			if (request_of(slot)->rq.paired && may_leave(lc, slot))
				return slot;
		}
	return NULL;
}

void send_poll(struct lcore *lc, struct pool *pool)
{
	struct sending *sending, *first = NULL;
	struct kvr_flight *slot;
	uint32_t room = BURST; /* after a stall all may be due */

	for (uint32_t i = 0; i < LOOK && lc->send_left > 0; i++) {
		sending = TAILQ_FIRST(&pool->live.sends);
		if (likely(sending == NULL) || sending == first)
			break;
		first = first != NULL ? first : sending;
		TAILQ_REMOVE(&pool->live.sends, sending, link);
		TAILQ_INSERT_TAIL(&pool->live.sends, sending, link);
		if (sending->due_ns <= lc->now_ns)
			send_slice(lc, pool, sending);
	}
	if (likely(!any_resend(pool)))
		return;
	/* From the longest wait down: a message sent now joins a list that was checked already. */
	for (uint32_t i = LEG_STEPS; i-- > 0;)
		while (room > 0 && lc->send_left > 0 &&
		       (slot = TAILQ_FIRST(&pool->live.resends[i])) != NULL &&
		       slot->resend_ns <= lc->now_ns) {
			room--;
			resend_stop(pool, slot);
			resend_first(lc, pool, slot);
		}
}
