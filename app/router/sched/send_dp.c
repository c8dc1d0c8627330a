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
 * messages of one frame. Every frame is a copy: job_part() finds its bytes directly, so that the
 * cost of a slice does not depend on the length of the message.
 */
#include "lcore/agent_path.h"
#include "lcore/out.h"
#include "message/frames.h"
#include "message/job.h"
#include "sched/prompts.h"
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

static void message(struct lcore *lc, const struct pool *p, const struct kvr_flight *slot,
		    struct dispatch_msg *d)
{
	const struct request *r = request_of(slot);
	struct dispatch_fields f;

	if (r->rq.paired) {
		leg_message(lc, p, slot, d);
	} else {
		leg_fields(p, slot, &f);
		*d = (struct dispatch_msg){.j = r->job, .hints_off = sizeof(d->q)};
		d->body_off = d->hints_off; /* nothing is replaced */
		d->result_off = UINT32_MAX;
		d->h = *job_header(d->j);
		job_part(d->j, 0, sizeof(d->q), &d->q);
		out_dispatch_fields(lc, d->j, &f, &d->h, &d->q);
	}
}

/* Append bytes [from, to) of the DISPATCH, up to `end`, from the client's message or from memory,
 * and advance. */
static void part(const struct dispatch_msg *d, const uint8_t *mem, uint32_t shift, uint32_t end,
		 uint32_t *off, uint32_t to, uint8_t **dst)
{
	const uint32_t n = *off < end ? RTE_MIN(end, to) - *off : 0;

	if (n == 0)
		return;
	if (mem != NULL)
		memcpy(*dst, mem + (*off - shift), n);
	else
		job_part(d->j, *off - shift, n, *dst);
	*off += n;
	*dst += n;
}

static void copy(const struct dispatch_msg *d, uint32_t off, uint32_t len, uint8_t *dst)
{
	const uint32_t to = off + len, body = d->hints_off + d->hints_len;

	part(d, (const uint8_t *)&d->q, 0, sizeof(d->q), &off, to, &dst);
	part(d, NULL, 0, d->hints_off, &off, to, &dst);
	part(d, d->hints, d->hints_off, body, &off, to, &dst);
	part(d, NULL, body - d->body_off, d->result_off, &off, to, &dst);
	if (off < to) /* the data follow the fixed part of the RESPONSE */
		frames_part(d->result->m, d->result_unit,
			    (uint32_t)sizeof(struct kvr_wire_response) + off - d->result_off,
			    to - off, dst);
}

static int cut(const struct dispatch_msg *d, uint32_t limit, struct kvr_frag *f)
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
	copy(d, off, len, (uint8_t *)(out + 1));
	out_send_fitting(lc, m, to);
}

/* ---- repetitions ---- */

/* The list for the number of attempts so far; its members wait equally long and are in order. */
static uint32_t resend_step(const struct kvr_flight *slot)
{
	return RTE_MIN(slot->attempt, LEG_STEPS - 1);
}

static void resend_start(struct lcore *lc, struct pool *p, struct kvr_flight *slot)
{
	const uint32_t step = resend_step(slot);

	slot->resend_ns = lc->now_ns + RTE_MIN(RESEND_NS << step, RESEND_MAX_NS);
	TAILQ_INSERT_TAIL(&p->live.resends[step], slot, resend_link);
}

static void resend_stop(struct pool *p, struct kvr_flight *slot)
{
	if (slot->resend_ns == 0)
		return;
	TAILQ_REMOVE(&p->live.resends[resend_step(slot)], slot, resend_link);
	slot->resend_ns = 0;
}

/* ---- messages under way ---- */

/* NULL: nothing of the slot is sent or kept. */
static struct sending *sending_of(const struct kvr_flight *slot)
{
	struct request *r = request_of(slot);
	struct job *j = r != NULL ? r->job : NULL;

	if (j == NULL)
		return NULL;
	if (r->rq.paired)
		return &j->pair->sending[leg_of(slot)];
	return j->sent ? &j->sending : NULL;
}

static void off(struct pool *p, struct sending *s)
{
	if (!s->on)
		return;
	TAILQ_REMOVE(&p->live.sends, s, link);
	s->on = false;
}

static void on(struct pool *p, struct sending *s)
{
	if (s->on)
		return;
	TAILQ_INSERT_TAIL(&p->live.sends, s, link);
	s->on = true;
}

void send_stop_leg(struct pool *p, struct kvr_flight *slot)
{
	struct sending *s = sending_of(slot);

	resend_stop(p, slot);
	if (s == NULL)
		return;
	off(p, s);
	s->stops = false;
}

void send_stop(struct request *r)
{
	struct pool *p = request_pool(r);

	if (r->slot[MAIN] != NULL)
		send_stop_leg(p, r->slot[MAIN]);
	if (r->slot[PREFILL] != NULL)
		send_stop_leg(p->prefill, r->slot[PREFILL]);
}

void send_settle(struct request *r)
{
	struct pool *p = request_pool(r);

	if (r->rq.paired) {
		for (uint32_t leg = MAIN; leg <= PREFILL; leg++)
			if (r->slot[leg] != NULL && leg_state(r, leg) != KVR_RQS_SENT &&
			    !r->job->pair->sending[leg].stops)
				send_stop_leg(leg == MAIN ? p : p->prefill, r->slot[leg]);
	} else if (r->job->sent && leg_state(r, MAIN) != KVR_RQS_SENT) {
		send_end(r);
	}
}

void send_end(struct request *r)
{
	struct job *j = r->job;

	send_stop(r);
	r->job = NULL;
	job_free(j->pool->sched_lcore, j);
}

bool send_may_move(const struct request *r)
{
	struct kvr_flight_table *t = request_pool(r)->requests;

	return kvr_flight_count(t) < kvr_flight_size(t) || kvr_flight_oldest(t) != NULL;
}

/* Whether all of the message is sent, and another handle is available. */
static bool may_leave(struct lcore *lc, const struct kvr_flight *slot)
{
	const struct request *r = request_of(slot);
	const struct kvr_rq_ctx c = life_ctx(lc, request_pool(r));
	const struct sending *s = sending_of(slot);

	return (s == NULL || !s->on) && send_may_move(r) &&
	       kvr_request_unheard(&c, &r->rq, leg_of(slot));
}

bool send_in_vain(struct lcore *lc, const struct request *r)
{
	return send_kept(r) && !r->rq.paired && may_leave(lc, r->slot[MAIN]);
}

/* Free the parts of a decided job that the scheduler no longer needs. */
static void strip(struct job *j)
{
	prompts_keep(j->pool, j);
	hashes_put(j->hash_buf);
	buf_put(j->hint_buf);
	j->hash_buf = NULL;
	j->hint_buf = NULL;
	j->hashes = NULL;
	j->n_hashes = 0;
}

void send_start(struct lcore *lc, struct pool *p, struct kvr_flight *slot)
{
	const struct kvr_path *to = agent_path(lc, &slot->relay);
	struct request *r = request_of(slot);
	struct job *j = r->job;
	struct dispatch_msg d;
	struct sending *s;
	struct kvr_frag f;

	if (!r->rq.paired) {
		strip(j);
		job_hold(j); /* otherwise freed with its last frame */
		j->sent = true;
	}
	message(lc, p, slot, &d);
	s = sending_of(slot);
	*s = (struct sending){.r = slot, .due_ns = lc->now_ns, .gap_ns = GAP_NS};
	s->limit = out_limit(lc, to);
	if (!r->rq.paired) /* keep the client's fragment size if the path allows */
		s->limit = RTE_MIN(s->limit, j->frames->m[0]->pkt_len);
	pool_count(p, PC_DISPATCHES, 1);
	if (cut(&d, s->limit, &f) < 0) {
		in_count(lc, IN_UNSENDABLE);
		if (!r->rq.paired)
			send_end(r);
		return;
	}
	s->n_frames = f.n_frames;
	if (f.n_frames > 1) {
		on(p, s);
		return;
	}
	s->next = 1;
	send_frame(lc, &d, &f, 0, to);
	resend_start(lc, p, slot);
}

/* The next fragment to send. */
static uint32_t take_next(struct sending *s)
{
	uint32_t w = 0;

	if (s->next < s->n_frames)
		return s->next++;
	while (s->lack[w] == 0)
		w++;
	s->n_lack--;
	w = w * 64 + (uint32_t)__builtin_ctzll(s->lack[w]);
	s->lack[w / 64] &= ~(UINT64_C(1) << w % 64);
	return w;
}

/* All pending frames are sent. */
static void sent(struct lcore *lc, struct pool *p, struct sending *s)
{
	struct kvr_flight *slot = s->r;
	struct request *r = request_of(slot);

	off(p, s);
	if (unlikely(s->stops)) {
		s->stops = false;
		abort_start(lc, p, slot, s->stop_code);
		if (r->job->pair->over)
			send_end(r);
	} else if (send_kept(r)) {
		/* The acknowledgement timeout begins: the worker has all fragments, or those that
		 * it requested. By the clock of life_ctx(), which stands still while the router
		 * stalls. */
		if (slot->attempt == 0)
			r->rq.sent_ns[leg_of(slot)] = lc->quiet.now_ns;
		resend_start(lc, p, slot);
	} else {
		send_end(r);
	}
}

static void slice(struct lcore *lc, struct pool *p, struct sending *s)
{
	struct kvr_flight *slot = s->r;
	const struct kvr_path *to = agent_path(lc, &slot->relay);
	struct dispatch_msg d;
	struct kvr_frag f;
	uint32_t n = 0;

	message(lc, p, slot, &d);
	if (unlikely(s->limit > out_limit(lc, to) || cut(&d, s->limit, &f) < 0)) {
		in_count(lc, IN_UNSENDABLE); /* the worker moved to a path with smaller frames */
		s->next = s->n_frames;
		s->n_lack = 0;
	}
	while ((s->next < s->n_frames || s->n_lack > 0) && n < SLICE && lc->send_left > 0) {
		send_frame(lc, &d, &f, take_next(s), to);
		n++;
	}
	if (send_kept(request_of(slot)))
		s->due_ns = lc->now_ns + (uint64_t)n * s->gap_ns;
	if (s->next == s->n_frames && s->n_lack == 0)
		sent(lc, p, s);
}

bool send_then_abort(struct kvr_flight *slot, uint16_t code)
{
	struct sending *s = sending_of(slot);

	if (s == NULL || !s->on)
		return false;
	s->stops = true;
	s->stop_code = code;
	return true;
}

bool send_keeps(struct request *r)
{
	struct job *j = r->job;

	if (!r->rq.paired || !j->pair->sending[MAIN].stops)
		return false;
	j->pair->over = true;
	return true;
}

void send_missing(struct lcore *lc, struct pool *p, struct kvr_flight *slot,
		  const struct kvr_wire_missing *lack)
{
	const struct request *r = request_of(slot);
	struct sending *s = NULL;
	struct dispatch_msg d;
	struct kvr_frag f;

	if (r != NULL && leg_state(r, leg_of(slot)) == KVR_RQS_SENT)
		s = sending_of(slot);
	if (s == NULL || s->n_frames < 2 || lack->kind != KVR_DISPATCH)
		return;
	message(lc, p, slot, &d);
	if (cut(&d, s->limit, &f) < 0 || lack->msg_seq != d.h.msg_seq ||
	    lack->msg_len != d.h.msg_len || lack->unit != f.unit)
		return;
	s->n_lack = 0;
	for (uint32_t i = 0; i < (s->n_frames + 63) / 64; i++) {
		const uint32_t at = i - lack->first / 64;
		const uint32_t sent = s->next > i * 64 ? s->next - i * 64 : 0;
		uint64_t word = 0;

		if (at < lack->n_words)
			memcpy(&word, (const uint8_t *)(lack + 1) + at * 8u, sizeof(word));
		/* Fragments that were never sent are on their way anyway. */
		s->lack[i] = sent < 64 ? word & ((UINT64_C(1) << sent) - 1) : word;
		s->n_lack += (uint32_t)__builtin_popcountll(s->lack[i]);
	}
	if (s->n_lack > s->next / 4)
		s->gap_ns = RTE_MIN(2 * s->gap_ns, GAP_MAX_NS);
	/* The worker responds: the timeout restarts at its first step. */
	resend_stop(p, slot);
	slot->attempt = 0;
	if (s->n_lack > 0 || s->next < s->n_frames)
		on(p, s);
	else
		resend_start(lc, p, slot);
}

/* Unacknowledged: retransmit the first fragment, which may be the whole message. */
static void again(struct lcore *lc, struct pool *p, struct kvr_flight *slot)
{
	const struct kvr_path *to = agent_path(lc, &slot->relay);
	const struct sending *s = sending_of(slot);
	struct dispatch_msg d;
	struct kvr_frag f;

	KVR_SIM_SOMETIMES(DISPATCH_AGAIN);
	slot->attempt++;
	message(lc, p, slot, &d);
	if (s->limit > out_limit(lc, to) || cut(&d, s->limit, &f) < 0)
		in_count(lc, IN_UNSENDABLE);
	else
		send_frame(lc, &d, &f, 0, to);
	pool_count(p, PC_DISPATCHES, request_of(slot)->rq.paired);
	resend_start(lc, p, slot);
}

/* Whether any list has a member: one check per turn. */
static inline bool any_waits(const struct pool *p)
{
	uintptr_t any = 0;

	for (uint32_t i = 0; i < LEG_STEPS; i++)
		any |= (uintptr_t)TAILQ_FIRST(&p->live.resends[i]);
	return any != 0;
}

struct kvr_flight *send_unheard(struct lcore *lc, struct pool *p)
{
	struct kvr_flight *slot;
	uint32_t looks = BURST;

	if (likely(!any_waits(p)))
		return NULL;
	/* The most retransmitted messages have waited longest; after a stall all may be due. */
	for (uint32_t i = LEG_STEPS; i-- > 0;)
		TAILQ_FOREACH (slot, &p->live.resends[i], resend_link) {
			if (slot->resend_ns > lc->now_ns || looks == 0)
				break;
			looks--;
			if (request_of(slot)->rq.paired && may_leave(lc, slot))
				return slot;
		}
	return NULL;
}

void send_poll(struct lcore *lc, struct pool *p)
{
	struct sending *s, *first = NULL;
	struct kvr_flight *slot;
	uint32_t room = BURST; /* after a stall all may be due */

	for (uint32_t i = 0; i < LOOK && lc->send_left > 0; i++) {
		s = TAILQ_FIRST(&p->live.sends);
		if (likely(s == NULL) || s == first)
			break;
		first = first != NULL ? first : s;
		TAILQ_REMOVE(&p->live.sends, s, link);
		TAILQ_INSERT_TAIL(&p->live.sends, s, link);
		if (s->due_ns <= lc->now_ns)
			slice(lc, p, s);
	}
	if (likely(!any_waits(p)))
		return;
	/* From the longest wait down: a message sent now joins a list that was checked already. */
	for (uint32_t i = LEG_STEPS; i-- > 0;)
		while (room > 0 && lc->send_left > 0 &&
		       (slot = TAILQ_FIRST(&p->live.resends[i])) != NULL &&
		       slot->resend_ns <= lc->now_ns) {
			room--;
			resend_stop(p, slot);
			again(lc, p, slot);
		}
}
