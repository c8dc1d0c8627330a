/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests served by a pair of pools: a prefill leg and a decode leg, each a slot and a booking of
 * its own pool. lib/disagg says what an event means (kvr_legs_step()); this file makes it so.
 * Both pools are scheduled on one lcore, so a request's legs are chosen in one step and nobody
 * sees it in between.
 *
 *   legs_start()   choose the prefill worker -> DISPATCH; bootstrap: choose the decode worker too
 *   happened()     the one place where the state machine moves and its orders are carried out
 *   legs_message() what a leg's worker is sent, which the client's ROUTE does not carry; send_dp.c
 *                  sends it until the worker has answered
 */
#include "agent_path.h"
#include "session.h"
#include "stages.h"

#include <string.h>

#include "kvr_frame.h"
#include "kvr_message.h"

/* What a leg's hints may have more than the client's: PREFILL_WORKER, BOOTSTRAP, PREFILL_RESULT. */
#define MORE_HINTS (16u + 288u + KVR_WIRE_MAX_FRAME)

/* Why a leg ends: what the client is told, and under what the bookings are counted. */
struct why {
	enum kvr_wire_code code;
	uint64_t detail[4];
	enum pool_counter prefill;
	enum pool_counter decode;
	bool exclude; /* the prefill worker is to blame: not again */
};

static void happened(struct lcore *lc, struct pool *d, struct legs *l, enum kvr_legs_event ev,
		     const struct why *why);

/* ---- memory ---- */

enum kvr_wire_code legs_attach(struct job *j)
{
	struct legs *l;

	if (j->tlvs_len > KVR_WIRE_MAX_HINTS - MORE_HINTS)
		return KVR_E_TOO_LARGE;
	if (rte_mempool_get(j->pool->legs, (void **)&l) < 0)
		return KVR_E_NO_MEMORY;
	l->job = j;
	l->prefill = l->decode = NULL;
	l->result = NULL;
	l->lost = 0;
	l->decided = 0;
	l->failed = KVR_OK;
	l->sending[0].on = l->sending[1].on = false;
	j->legs = l;
	return KVR_OK;
}

void legs_detach(struct job *j)
{
	rte_pktmbuf_free(j->legs->result);
	rte_mempool_put(j->pool->legs, j->legs);
	j->legs = NULL;
}

static void lost_forget(struct pool *d, struct legs *l)
{
	if (l->lost)
		TAILQ_REMOVE(&d->lost, l, lost_link);
	l->lost = 0;
}

/* The slots go on alone. */
static void legs_release(struct lcore *lc, struct pool *d, struct legs *l)
{
	lost_forget(d, l);
	if (l->prefill != NULL) {
		send_stop(d->prefill, l->prefill);
		l->prefill->legs = l->prefill->job = NULL;
	}
	if (l->decode != NULL) {
		send_stop(d, l->decode);
		l->decode->legs = l->decode->job = NULL;
	}
	session_close_left(lc, d, &l->job->session);
	job_free(lc, l->job);
}

void legs_drop_all(struct lcore *lc, struct pool *d)
{
	struct kvr_flight_table *tables[] = {d->requests, d->prefill->requests};

	for (uint32_t t = 0; t < RTE_DIM(tables); t++)
		for (uint32_t i = 0; tables[t] != NULL && i < kvr_flight_size(tables[t]); i++) {
			struct kvr_flight *r = kvr_flight_slot(tables[t], i);

			if (r->state != KVR_RQ_FREE && r->legs != NULL)
				legs_release(lc, d, r->legs);
		}
}

/* ---- sending a leg to its worker ---- */

/* The client's hints with those of the leg, in lc->hints. @return their length. */
static uint32_t leg_hints(struct lcore *lc, const struct legs *l, uint16_t leg)
{
	static const uint16_t ours[] = {KVR_HINT_PREFILL_WORKER};
	struct kvr_hint_buf b = {.p = lc->hints, .cap = KVR_WIRE_MAX_HINTS};

	kvr_hints_rewrite(l->job->tlvs, l->job->tlvs_len, ours, leg != KVR_FLIGHT_WHOLE, &b);
	if (leg == KVR_FLIGHT_WHOLE)
		return b.len;
	kvr_hint_put_u64(&b, KVR_HINT_PREFILL_WORKER, l->worker);
	if (l->path == KVR_PATH_BOOTSTRAP)
		kvr_hint_put_bootstrap(&b, l->room, l->port, l->host);
	if (leg == KVR_FLIGHT_DECODE && l->path == KVR_PATH_SYNC) {
		const struct kvr_wire_hdr *h = rte_pktmbuf_mtod(l->result, const void *);
		const struct kvr_wire_response *w = kvr_frame_body(h);

		kvr_hint_put(&b, KVR_HINT_PREFILL_RESULT, w + 1, w->data_len, NULL, 0);
	}
	return b.len; /* it fits: see legs_attach() */
}

void legs_message(struct lcore *lc, const struct pool *p, const struct kvr_flight *r,
		  struct dispatch_msg *d)
{
	static const struct {
		uint8_t phase;
		uint32_t flag;
	} as[] = {
		[KVR_FLIGHT_PREFILL] = {KVR_PHASE_PREFILL, KVR_REQ_F_PREFILL_LEG},
		[KVR_FLIGHT_DECODE] = {KVR_PHASE_DECODE, KVR_REQ_F_DECODE_LEG},
	};
	const struct legs *l = r->legs;
	const uint16_t leg = r->relay.leg;
	const struct job *j = l->job;
	struct kvr_wire_request *q = &d->q;

	d->j = j;
	d->h = *job_header(j);
	d->hints_off = j->hints_off;
	d->body_off = j->body_off;
	d->hints = lc->hints;
	d->hints_len = leg_hints(lc, l, leg);
	job_part(j, 0, sizeof(*q), q);
	q->pool = (uint16_t)p->id;
	q->hints_len = d->hints_len;
	q->client_frame = (uint16_t)out_limit(lc, &j->client);
	if (leg != KVR_FLIGHT_WHOLE)
		q->phase = as[leg].phase;
	q->flags = (q->flags & ~KVR_REQ_F_RESEND) | as[leg].flag;
	if (leg != KVR_FLIGHT_PREFILL && !lc->rt->rules[j->client.port].cookie)
		q->flags |= KVR_REQ_F_UNPROVEN;
	if (!r->relay.direct)
		q->flags &= ~KVR_REQ_F_DIRECT;
	if (leg == KVR_FLIGHT_PREFILL) { /* its items are for the router */
		q->flags &= ~KVR_REQ_F_DIRECT;
		q->max_tokens = 1;
		q->client_frame = (uint16_t)lc->rt->max_frame;
	}
	q->worker = r->relay.worker;
	q->dp_rank = r->dp_rank;
	q->overlap_blocks = r->overlap_blocks;
	q->cached_tokens = r->cached_tokens;
	q->attempt = r->attempt;
	memcpy(q->client_ip, j->client.ip, sizeof(q->client_ip));
	q->client_port = j->client.udp_port;
	d->h.msg_len = d->h.msg_len - j->tlvs_len + d->hints_len;
	/* Copies complete one another; another try of the request is another message. */
	d->h.msg_seq = (uint32_t)(kvr_flight_handle(p->requests, r) >> 32);
}

static void leg_dispatch(struct lcore *lc, struct pool *p, struct kvr_flight *r)
{
	sched_step(r, KVR_LIFE_SEND);
	kvr_flight_publish(r); /* before this its worker has nothing to say about it */
	send_start(lc, p, r, NULL);
}

/* ---- what the decode leg asks for ---- */

static void decode_request(struct legs *l, const struct kvr_worker_transfer *t)
{
	struct kvr_disagg_transfer transfer = {
		.required = t->enforcement == 2,
		.weight = t->weight,
	};

	memcpy(l->taint, t->taint, sizeof(l->taint));
	if (t->enforcement != 0)
		transfer.taint = (struct kvr_sched_str){l->taint, (uint32_t)strlen(l->taint)};
	l->dreq = l->job->req;
	l->dreq.phase = KVR_SPHASE_DECODE;
	l->dreq.hints = &l->dhints;
	l->dreq.override = &l->dover;
	kvr_disagg_decode_override(l->job->req.override, &l->dover);
	kvr_disagg_merge(&l->job->hints, &transfer, l->required, l->preferred, &l->dhints);
}

/* Allowed ids that name decode workers only say nothing about the prefill leg. */
static void prefill_allowed(const struct lcore *lc, const struct pool *p, struct kvr_sched_hints *h)
{
	for (uint32_t i = 0; i < h->n_allowed; i++) {
		const struct kvr_view_worker *w = kvr_view_find(lc->view, h->allowed[i]);

		if (w != NULL && w->pool == p->number)
			return;
	}
	if (h->n_allowed > 0)
		h->flags &= ~KVR_SHINT_ALLOWED;
}

static void prefill_request(const struct lcore *lc, const struct pool *d, struct legs *l)
{
	struct kvr_sched_hints *h = &l->phints;

	kvr_disagg_prefill_hints(&l->job->hints, h);
	/* The rank that a session of the decode pool has put there is none of this pool's. */
	if (l->job->session.pin != SESSION_PIN_NONE &&
	    (l->job->session.flags_before & KVR_SHINT_DP_RANK) == 0)
		h->flags &= ~KVR_SHINT_DP_RANK;
	prefill_allowed(lc, d->prefill, h);
	if (h->policy_class != KVR_SCHED_NO_CLASS) {
		const char *name = kvr_sched_conf(d->sched)->classes[h->policy_class].name;

		h->policy_class = kvr_sched_class_find(d->prefill->sched, name, strlen(name));
	}
	l->preq = l->job->req;
	l->preq.phase = KVR_SPHASE_PREFILL;
	l->preq.hints = h;
}

/* ---- decisions ---- */

static void refused(struct lcore *lc, struct pool *d, struct legs *l,
		    const struct kvr_sched_decision *dec, enum pool_counter how)
{
	struct why why = {.code = sched_code(dec->err), .prefill = how};

	sched_detail(dec, why.detail);
	/* Nobody is left for another try: what counts is why the first one failed (8.5). */
	if (l->failed != KVR_OK &&
	    (dec->err == KVR_SCHED_NO_ENDPOINTS || dec->err == KVR_SCHED_NOT_ACTIVATED))
		why = (struct why){.code = (enum kvr_wire_code)l->failed,
				   .detail = {l->failed_detail},
				   .prefill = how};
	l->run.reroutes = 0; /* a pool that says no is not asked again */
	happened(lc, d, l, KVR_LEGS_PREFILL_FAILED, &why);
}

static void prefill_failed(struct lcore *lc, struct pool *d, struct legs *l,
			   enum kvr_wire_code code, enum pool_counter how)
{
	happened(lc, d, l, KVR_LEGS_PREFILL_FAILED,
		 &(const struct why){.code = code, .prefill = how, .exclude = how != PC_LOST});
}

/* The prefill leg is booked: send it, and go on to decode when the transfer needs no result. */
static void prefill_booked(struct lcore *lc, struct pool *d, struct legs *l,
			   const struct kvr_sched_decision *dec)
{
	static const struct kvr_worker_transfer nothing;
	const struct kvr_view_worker *w = kvr_view_find(lc->view, dec->worker);
	const struct kvr_worker_transfer *t =
		w != NULL && w->transfer != NULL ? w->transfer : &nothing;
	struct pool *p = d->prefill;

	l->worker = dec->worker;
	l->dp_rank = dec->dp_rank;
	l->overlap_blocks = dec->overlap_blocks;
	if (unlikely(sched_bind(lc, p, l->prefill, l->job, dec) < 0)) {
		prefill_failed(lc, d, l, KVR_E_WORKER_LOST, PC_LOST);
		return;
	}
	if (t->enforcement == 2 && t->taint[0] == '\0') {
		l->run.reroutes = 0; /* nobody can say where its blocks may go: fail closed */
		prefill_failed(lc, d, l, KVR_E_NO_ENDPOINTS, PC_REFUSED);
		return;
	}
	l->run.bootstrap = t->host[0] != '\0';
	l->path = l->run.bootstrap ? KVR_PATH_BOOTSTRAP : KVR_PATH_SYNC;
	l->epoch = w->epoch;
	if (l->run.bootstrap) {
		memcpy(l->host, t->host, sizeof(l->host));
		l->port = t->port;
		l->room = kvr_disagg_room(&d->rand, dec->dp_rank % w->dp_size, w->dp_size);
	}
	decode_request(l, t);
	if (p->predict)
		predict(lc, p, l->job, dec->rank, dec->worker);
	session_routed(lc, p, l->prefill, &l->session); /* names no action: nothing is held */
	leg_dispatch(lc, p, l->prefill);
	happened(lc, d, l, KVR_LEGS_PREFILL_LIVE, NULL);
}

/* A result is of no use when the worker that holds the blocks has gone. */
static bool result_lost(const struct lcore *lc, const struct legs *l)
{
	const struct kvr_view_worker *w;

	if (l->path != KVR_PATH_SYNC)
		return false;
	w = kvr_view_find(lc->view, l->worker);
	return w == NULL || w->epoch != l->epoch;
}

static void decode_booked(struct lcore *lc, struct pool *d, struct legs *l,
			  const struct kvr_sched_decision *dec)
{
	struct kvr_flight *r = l->decode;

	r->prefill_worker = l->path == KVR_PATH_BYPASSED ? 0 : l->worker;
	r->prefill_dp_rank = l->path == KVR_PATH_BYPASSED ? KVR_NONE32 : l->dp_rank;
	r->prefill_overlap = l->path == KVR_PATH_BYPASSED ? 0 : l->overlap_blocks;
	r->path = l->path;
	r->relay.leg = l->path == KVR_PATH_BYPASSED ? KVR_FLIGHT_WHOLE : KVR_FLIGHT_DECODE;
	if (unlikely(sched_bind(lc, d, r, l->job, dec) < 0)) {
		l->run.decode = KVR_LEG_LIVE;
		happened(lc, d, l, KVR_LEGS_DECODE_FAILED,
			 &(const struct why){.code = KVR_E_WORKER_LOST, .decode = PC_LOST});
		return;
	}
	if (unlikely(result_lost(lc, l))) {
		happened(lc, d, l, KVR_LEGS_RESULT_LOST,
			 &(const struct why){.code = KVR_E_WORKER_LOST, .decode = PC_STOPPED});
		return;
	}
	/* A leg that only goes to its worker to be aborted there opens nothing. */
	if (!l->run.cancelled && session_routed(lc, d, r, &l->job->session))
		sched_step(r, KVR_LIFE_HOLD);
	else
		legs_go_on(lc, d, r);
	happened(lc, d, l, KVR_LEGS_DECODE_LIVE, NULL);
}

void legs_go_on(struct lcore *lc, struct pool *d, struct kvr_flight *r)
{
	struct legs *l = r->legs;

	if (d->predict)
		predict(lc, d, l->job, r->rank, r->relay.worker);
	leg_dispatch(lc, d, r);
	if (!l->run.cancelled)
		sched_accepted(lc, d, r);
}

static void decided(struct pool *d, struct legs *l, enum pool_counter how)
{
	if (l->decided)
		return;
	l->decided = 1;
	d->n_prefilling--;
	pool_count(d, how, 1);
}

/* The decode worker of the session's affinity cannot take the leg: it may go elsewhere. */
static bool decode_unpin(struct pool *d, struct legs *l, enum kvr_sched_err err)
{
	if (!session_unpin(d, &l->job->session, &l->job->hints, err, false))
		return false;
	l->dhints.flags = l->job->hints.flags; /* made from them */
	return true;
}

static void route_decode(struct lcore *lc, struct pool *d, struct legs *l)
{
	struct kvr_sched_decision dec;
	struct kvr_sched_overlap ov;
	struct why why = {0};

	do {
		overlap_view(l->job->overlap, &ov);
		decide(lc, d, l->job, l->decode->slot, &l->dreq, &ov, &dec);
	} while (dec.result == KVR_SCHED_ERROR && decode_unpin(d, l, dec.err));
	switch (dec.result) {
	case KVR_SCHED_ROUTED:
		decided(d, l, PC_LEG_ROUTED);
		decode_booked(lc, d, l, &dec);
		break;
	case KVR_SCHED_QUEUED:
		decided(d, l, PC_LEG_QUEUED);
		happened(lc, d, l, KVR_LEGS_DECODE_WAITS, NULL);
		break;
	default:
		decided(d, l, PC_LEG_REFUSED);
		why.code = sched_code(dec.err);
		sched_detail(&dec, why.detail);
		happened(lc, d, l, KVR_LEGS_DECODE_REFUSED, &why);
	}
}

/* Without a prefill side, where that is allowed: the decode pool does both. */
static void bypass(struct lcore *lc, struct pool *d, struct legs *l)
{
	pool_count(d, PC_BYPASSED, 1);
	l->path = KVR_PATH_BYPASSED;
	l->dreq = l->job->req;
	route_decode(lc, d, l);
}

/* @return false: refused, and nothing of this try has been sent to anybody. */
static bool route_prefill(struct lcore *lc, struct pool *d, struct legs *l)
{
	struct pool *p = d->prefill;
	struct kvr_sched_decision dec = {.err = KVR_SCHED_NOT_ACTIVATED};
	struct kvr_sched_overlap ov;

	if (!kvr_disagg_active(&p->disagg)) {
		if (kvr_disagg_can_serve(&p->disagg, d->conf->enforce_disagg)) {
			bypass(lc, d, l);
			return true;
		}
		refused(lc, d, l, &dec, PC_REJECTED);
		return false;
	}
	pool_count(p, PC_ROUTES, 1);
	l->prefill = sched_slot(p, l->job->source, l->job->id, false);
	if (unlikely(l->prefill == NULL)) {
		pool_count(p, PC_REJECTED, 1);
		dec.err = KVR_SCHED_BAD_SLOT;
		refused(lc, d, l, &dec, PC_REJECTED);
		return false;
	}
	l->prefill->relay.leg = KVR_FLIGHT_PREFILL;
	l->prefill->legs = l;
	l->prefill->job = l->job;
	session_prefill(p, &l->job->session, &l->session, &l->phints);
	session_enter(lc, p, &l->session, &l->phints, false);
	do {
		overlap_view(l->overlap, &ov);
		decide(lc, p, l->job, l->prefill->slot, &l->preq, &ov, &dec);
	} while (dec.result == KVR_SCHED_ERROR &&
		 session_unpin(p, &l->session, &l->phints, dec.err, false));
	switch (dec.result) {
	case KVR_SCHED_ROUTED:
		pool_count(p, PC_ROUTED, 1);
		prefill_booked(lc, d, l, &dec);
		return true;
	case KVR_SCHED_QUEUED:
		pool_count(p, PC_QUEUED, 1);
		happened(lc, d, l, KVR_LEGS_PREFILL_WAITS, NULL);
		return true;
	default:
		pool_count(p, PC_REJECTED, 1);
		slot_release(p, l->prefill);
		l->prefill = NULL;
		refused(lc, d, l, &dec, PC_REJECTED);
		return false;
	}
}

/* ---- the state machine's orders ---- */

static void prefill_over(struct lcore *lc, struct pool *p, struct legs *l, enum pool_counter how)
{
	struct kvr_flight *r = l->prefill;

	if (r == NULL)
		return;
	send_stop(p, r);
	sched_end(lc, p, r, how);
	r->legs = NULL;
	l->prefill = NULL;
	lost_forget(p->decode, l);
	/* Repeats of its last item are acknowledged without a slot; an ABORT needs it. */
	if (r->abort_ns == 0)
		slot_release(p, r);
}

/* The request is over for its client: its slot lingers, and answers repeats with its last code. */
static void decode_over(struct lcore *lc, struct pool *d, struct legs *l)
{
	struct kvr_flight *r = l->decode;

	if (r == NULL)
		return;
	send_stop(d, r);
	decided(d, l, PC_UNDECIDED);
	r->job = NULL;
	r->legs = NULL;
	slot_end(d, r, lc->now_ns);
	l->decode = NULL;
}

/*
 * A slot for the next try. The old one is still being aborted, and what its worker says until then
 * is not for the client. @return false: no slot is free, and the old one keeps the name.
 */
static bool renew(struct pool *d, struct legs *l)
{
	struct kvr_flight *old = l->decode, *r;

	/* When all slots are in use the one that has ended first gives way; not this one. */
	if (unlikely(kvr_flight_count(d->requests) == kvr_flight_size(d->requests) &&
		     kvr_flight_oldest(d->requests) == old))
		return false;
	kvr_flight_unname(d->requests, old);
	r = sched_slot(d, l->job->source, l->job->id, true);
	if (unlikely(r == NULL))
		return false;
	kvr_flight_mute(old); /* its last item would be taken for the end */
	old->legs = NULL;
	r->share = old->share; /* one request, whatever lingers */
	old->share = 0;
	r->heard_ns = old->heard_ns;
	r->digest = old->digest;
	l->decode = r;
	return true;
}

static void slot_take(struct legs *l)
{
	struct kvr_flight *r = l->decode;

	r->legs = l;
	r->job = l->job;
	r->relay.client = l->job->client;
	r->relay.isl = l->job->isl;
}

static void start_over(struct lcore *lc, struct pool *d, struct legs *l, const struct why *why)
{
	const uint64_t failed = l->worker;
	const bool sent = l->decode->state == KVR_RQ_ENDED;
	struct kvr_flight *r;

	if (sent && !renew(d, l)) {
		const struct refusal full = {.code = KVR_E_NO_MEMORY};

		sched_says(l->decode, &full);
		out_reject(lc, &l->job->client, KVR_ROUTE, l->job->source, l->job->id, &full);
		legs_release(lc, d, l);
		return;
	}
	decided(d, l, PC_UNDECIDED);
	pool_count(d, PC_STARTED_OVER, 1);
	l->decided = 0;
	d->n_prefilling++;
	l->failed = (uint16_t)why->code;
	l->failed_detail = why->detail[0];
	r = l->decode;
	slot_take(l);
	rte_pktmbuf_free(l->result);
	l->result = NULL;
	/* The try before may have bound the session. */
	if (l->job->session.action == KVR_ACTION_NONE && l->job->session.pin == SESSION_PIN_NONE)
		session_enter(lc, d, &l->job->session, &l->job->hints, false);
	if (why->exclude) {
		l->phints.flags |= KVR_SHINT_EXCLUDE;
		l->phints.exclude_id = failed;
	}
	route_prefill(lc, d, l);
	if (sent && (r->state == KVR_RQ_QUEUED || r->state == KVR_RQ_HELD))
		sched_accepted(lc, d, r); /* what it was told is over, and so is that handle */
}

static struct refusal refusal_of(const struct why *why)
{
	struct refusal r = {.code = why->code};

	memcpy(r.detail, why->detail, sizeof(r.detail));
	return r;
}

static void reject(struct lcore *lc, struct legs *l, const struct why *why)
{
	struct refusal r = sched_refusal(l->job->pool, why->code);

	if (why->code != KVR_E_NO_ENDPOINTS) /* it has its own */
		memcpy(r.detail, why->detail, sizeof(r.detail));
	out_reject(lc, &l->job->client, KVR_ROUTE, l->job->source, l->job->id, &r);
}

static void stop_decode(struct lcore *lc, struct pool *d, struct legs *l)
{
	struct kvr_flight *r = l->decode;

	if (l->run.cancelled) {
		/* Held for its session: all the same only its worker can release what the prefill
		 * leg has got ready for it; and it knows nothing of half a message. */
		if (r->state == KVR_RQ_HELD && l->path != KVR_PATH_BYPASSED)
			leg_dispatch(lc, d, r);
		send_rest(lc, d, r);
	}
	send_stop(d, r);
	sched_end(lc, d, r, l->run.cancelled ? PC_CANCELLED : PC_STOPPED);
	sched_abort(lc, d, r);
}

/* Nothing needs the message any more: the slots go on alone. */
static void settle(struct lcore *lc, struct pool *d, struct legs *l)
{
	const bool prefill_open =
		l->run.prefill == KVR_LEG_WAITING || l->run.prefill == KVR_LEG_LIVE;

	if (kvr_legs_over(&l->run) ||
	    (!prefill_open && l->run.decode == KVR_LEG_LIVE && l->decode->state == KVR_RQ_RUNNING))
		legs_release(lc, d, l);
}

static void happened(struct lcore *lc, struct pool *d, struct legs *l, enum kvr_legs_event ev,
		     const struct why *why)
{
	uint32_t todo;

	/* What has gone to the client cannot be taken back for another try. */
	if (ev == KVR_LEGS_PREFILL_FAILED && l->decode != NULL && kvr_flight_answered(l->decode))
		l->run.reroutes = 0;
	todo = kvr_legs_step(&l->run, ev);
	if ((todo & KVR_LEGS_PREFILL_LEAVE) != 0) {
		kvr_sched_cancel(d->prefill->sched, l->prefill->slot, lc->now_ns);
		prefill_over(lc, d->prefill, l, PC_QUEUE_LEFT);
	}
	if ((todo & KVR_LEGS_PREFILL_END) != 0)
		prefill_over(lc, d->prefill, l, why->prefill);
	if ((todo & KVR_LEGS_DECODE_LEAVE) != 0) {
		kvr_sched_cancel(d->sched, l->decode->slot, lc->now_ns);
		pool_count(d, PC_QUEUE_LEFT, 1);
	}
	if (why != NULL && (todo & (KVR_LEGS_REJECT | KVR_LEGS_DECODE_ABORT)) != 0) {
		const struct refusal r = refusal_of(why);

		sched_says(l->decode, &r);
	}
	if ((todo & KVR_LEGS_DECODE_END) != 0)
		sched_end(lc, d, l->decode, why->decode);
	if ((todo & KVR_LEGS_DECODE_ABORT) != 0)
		stop_decode(lc, d, l);
	if ((todo & KVR_LEGS_REJECT) != 0)
		reject(lc, l, why);
	if (l->run.decode == KVR_LEG_ENDED)
		decode_over(lc, d, l);
	/* These two go on with other events, and may end with everything released. */
	if ((todo & KVR_LEGS_START_OVER) != 0)
		start_over(lc, d, l, why);
	else if ((todo & KVR_LEGS_ROUTE_DECODE) != 0)
		route_decode(lc, d, l);
	else
		settle(lc, d, l);
}

/* ---- entries ---- */

/* Conditional disaggregation: is the decode pool alone better? */
static bool better_alone(const struct lcore *lc, struct pool *d, const struct job *j)
{
	struct legs *l = j->legs;
	struct kvr_sched_overlap pov, dov;
	const struct kvr_disagg_side prefill = {d->prefill->sched, &l->preq, &pov};
	const struct kvr_disagg_side decode = {d->sched, &j->req, &dov};

	if (d->conf->disagg_policy == KVR_DISAGG_ALWAYS)
		return false;
	prefill_request(lc, d, l);
	overlap_view(l->overlap, &pov);
	overlap_view(j->overlap, &dov);
	return kvr_disagg_bypass(d->conf, &prefill, &decode, lc->now_ns);
}

bool legs_wanted(struct lcore *lc, struct pool *d, const struct job *j)
{
	if (d->prefill == NULL)
		return false;
	if (kvr_disagg_active(&d->prefill->disagg))
		return !better_alone(lc, d, j);
	return !kvr_disagg_can_serve(&d->prefill->disagg, d->conf->enforce_disagg);
}

void legs_start(struct lcore *lc, struct pool *d, struct kvr_flight *r, struct job *j)
{
	struct legs *l = j->legs;

	kvr_legs_init(&l->run, (uint8_t)d->own->disagg_reroutes);
	l->session = (struct job_session){0};
	l->decode = r;
	slot_take(l);
	prefill_request(lc, d, l);
	pool_count(d, PC_DISAGG, 1);
	d->n_prefilling++;
	if (!route_prefill(lc, d, l)) {
		/* As if it had never come: in overload, refusals must not use up the slots. */
		kvr_flight_unname(d->requests, r);
		slot_release(d, r);
	} else if (r->state == KVR_RQ_QUEUED || r->state == KVR_RQ_HELD) {
		sched_accepted(lc, d, r);
	}
}

enum kvr_wire_code legs_query(struct lcore *lc, struct pool *d, struct job *j,
			      struct kvr_wire_accepted *a, struct kvr_sched_decision *dec)
{
	static const struct kvr_worker_transfer nothing;
	const struct kvr_view_worker *w;
	const struct kvr_worker_transfer *t;
	struct legs *l = j->legs;
	struct kvr_sched_overlap ov;

	if (!kvr_disagg_active(&d->prefill->disagg))
		return KVR_E_NOT_ACTIVATED;
	prefill_request(lc, d, l);
	overlap_view(l->overlap, &ov);
	if (decide(lc, d->prefill, j, 0, &l->preq, &ov, dec) != KVR_SCHED_QUERY)
		return sched_code(dec->err);
	w = kvr_view_find(lc->view, dec->worker);
	t = w != NULL && w->transfer != NULL ? w->transfer : &nothing;
	if (t->enforcement == 2 && t->taint[0] == '\0')
		return KVR_E_NO_ENDPOINTS;
	a->prefill_worker = dec->worker;
	a->prefill_dp_rank = dec->dp_rank;
	a->prefill_overlap_blocks = dec->overlap_blocks;
	a->path = t->host[0] != '\0' ? KVR_PATH_BOOTSTRAP : KVR_PATH_SYNC;
	decode_request(l, t);
	overlap_view(j->overlap, &ov);
	return decide(lc, d, j, 0, &l->dreq, &ov, dec) == KVR_SCHED_QUERY ? KVR_OK
									  : sched_code(dec->err);
}

void legs_admitted(struct lcore *lc, struct pool *p, struct kvr_flight *r,
		   const struct kvr_sched_decision *dec)
{
	struct pool *d = p->decode != NULL ? p->decode : p;
	struct legs *l = r->legs;
	struct why why = {.code = sched_code(dec->err)};

	if (dec->result == KVR_SCHED_ROUTED) {
		pool_count(p, PC_ADMITTED, 1);
		if (p == d)
			decode_booked(lc, d, l, dec);
		else
			prefill_booked(lc, d, l, dec);
		return;
	}
	if (p != d && dec->err == KVR_SCHED_NO_ENDPOINTS && !kvr_disagg_active(&p->disagg)) {
		l->run.reroutes++; /* not a failed try: the prefill side has gone meanwhile */
		prefill_failed(lc, d, l, KVR_E_NOT_ACTIVATED, PC_QUEUE_FAILED);
		return;
	}
	if (p != d) {
		refused(lc, d, l, dec, PC_QUEUE_FAILED);
		return;
	}
	pool_count(d, PC_QUEUE_FAILED, 1);
	sched_detail(dec, why.detail);
	happened(lc, d, l, KVR_LEGS_DECODE_REFUSED, &why);
}

void legs_acked(struct lcore *lc, struct pool *p, struct kvr_flight *r, uint32_t code)
{
	struct pool *d = p->decode != NULL ? p->decode : p;
	const struct why why = {.code = p == d ? KVR_E_DISPATCH_FAILED : KVR_E_PREFILL_FAILED,
				.detail = {code},
				.prefill = PC_REFUSED,
				.decode = PC_REFUSED,
				.exclude = true};

	send_stop(p, r);
	if (code != 0) {
		happened(lc, d, r->legs, p == d ? KVR_LEGS_DECODE_FAILED : KVR_LEGS_PREFILL_FAILED,
			 &why);
		return;
	}
	sched_step(r, KVR_LIFE_TAKEN);
	settle(lc, d, r->legs);
}

void legs_prefill_item(struct lcore *lc, struct pool *p, struct kvr_flight *r, const struct note *n)
{
	struct legs *l = r->legs;
	struct pool *d = p->decode;
	uint32_t data = 0;

	send_stop(p, r);
	sched_step(r, KVR_LIFE_ITEM);
	if (n->ptr != NULL)
		data = ((const struct kvr_wire_response *)kvr_frame_body(
				rte_pktmbuf_mtod((struct rte_mbuf *)n->ptr, const void *)))
			       ->data_len;
	if ((n->flags & KVR_PROG_F_FIN) == 0) {
		rte_pktmbuf_free(n->ptr);
		return;
	}
	if ((n->flags & (KVR_PROG_F_ERROR | KVR_PROG_F_CANCELLED)) != 0 ||
	    (l->path == KVR_PATH_SYNC && data == 0)) {
		rte_pktmbuf_free(n->ptr); /* an end without a result is no end: nothing to decode */
		prefill_failed(lc, d, l, KVR_E_PREFILL_FAILED, PC_ERRORED);
		return;
	}
	if (n->cached != KVR_NONE32) {
		pool_count(p, PC_PREDICTED_TOKENS, r->cached_tokens);
		pool_count(p, PC_ACTUAL_TOKENS, n->cached);
	}
	l->result = n->ptr;
	happened(lc, d, l, KVR_LEGS_PREFILL_DONE, &(const struct why){.prefill = PC_FINISHED});
}

void legs_decode_item(struct lcore *lc, struct pool *d, struct kvr_flight *r, const struct note *n)
{
	const struct why why = {.prefill = PC_FINISHED};

	send_stop(d, r);
	if (n->tokens != 0 || (n->flags & KVR_PROG_F_FIRST) != 0)
		happened(lc, d, r->legs, KVR_LEGS_DECODE_OUTPUT, &why);
	else
		settle(lc, d, r->legs);
}

void legs_decode_done(struct lcore *lc, struct pool *d, struct kvr_flight *r, enum pool_counter how)
{
	happened(lc, d, r->legs, KVR_LEGS_DECODE_DONE, &(const struct why){.decode = how});
}

void legs_fail(struct lcore *lc, struct pool *d, struct kvr_flight *r, enum kvr_wire_code code,
	       uint64_t detail0, enum pool_counter how)
{
	happened(lc, d, r->legs, KVR_LEGS_DECODE_FAILED,
		 &(const struct why){.code = code, .detail = {detail0}, .decode = how});
}

void legs_cancel(struct lcore *lc, struct pool *d, struct kvr_flight *r)
{
	r->end.code = KVR_E_ENDED; /* by its client's wish */
	happened(lc, d, r->legs, KVR_LEGS_CANCEL, NULL);
}

void legs_stop(struct lcore *lc, struct pool *d, struct kvr_flight *r)
{
	const struct why why = {
		.code = KVR_E_SHUTDOWN, .prefill = PC_CANCELLED, .decode = PC_CANCELLED};
	struct legs *l = r->legs;

	l->run.reroutes = 0;
	if (l->run.prefill == KVR_LEG_LIVE) {
		/* Nobody will send the decode leg that could release its blocks. */
		l->prefill->end.code = KVR_E_SHUTDOWN;
		sched_abort(lc, d->prefill, l->prefill);
		happened(lc, d, l, KVR_LEGS_PREFILL_FAILED, &why);
	}
	if (r->state == KVR_RQ_ENDED)
		return;
	if (r->legs != NULL)
		happened(lc, d, l, KVR_LEGS_DECODE_FAILED, &why);
	else /* its decode leg goes on alone */
		sched_fail(lc, d, r, KVR_E_SHUTDOWN, 0, PC_CANCELLED);
	sched_abort(lc, d, r);
}

void legs_late(struct lcore *lc, struct pool *d, struct kvr_flight *r)
{
	struct legs *l = r->legs;
	const struct why why = {.code = KVR_E_EXPIRED};

	if (l->run.cancelled ||
	    (l->run.prefill != KVR_LEG_WAITING && l->run.decode != KVR_LEG_WAITING))
		return;
	reject(lc, l, &why);
	r->end.code = KVR_E_EXPIRED;
	/* As a cancel: a decode leg whose blocks are ready must still tell its worker to free them.
	 */
	happened(lc, d, l, KVR_LEGS_CANCEL, NULL);
}

void legs_expired(struct lcore *lc, struct pool *p, struct kvr_flight *r)
{
	struct pool *d = p->decode != NULL ? p->decode : p;
	struct legs *l = r->legs;
	const struct why why = {.code = KVR_E_EXPIRED, .prefill = PC_EXPIRED, .decode = PC_EXPIRED};

	r->end.code = KVR_E_EXPIRED;
	sched_abort(lc, p, r);
	l->run.reroutes = 0; /* it is too old for another try */
	happened(lc, d, l, p == d ? KVR_LEGS_DECODE_FAILED : KVR_LEGS_PREFILL_FAILED, &why);
}

/*
 * A booking went with its worker. This is called from within the scheduler library of its pool: a
 * prefill leg's request may have to be routed anew, which must wait for legs_lost().
 */
void legs_dropped(struct pool *p, struct kvr_flight *r)
{
	struct legs *l = r->legs;
	struct pool *d = p->decode != NULL ? p->decode : p;

	if (p == d) {
		happened(p->sched_lcore, d, l, KVR_LEGS_DECODE_FAILED,
			 &(const struct why){.code = KVR_E_WORKER_LOST, .decode = PC_LOST});
	} else if (!l->lost) {
		l->lost = 1;
		TAILQ_INSERT_TAIL(&d->lost, l, lost_link);
	}
}

void legs_lost(struct lcore *lc, struct pool *d)
{
	struct legs *l;

	while ((l = TAILQ_FIRST(&d->lost)) != NULL) {
		lost_forget(d, l);
		prefill_failed(lc, d, l, KVR_E_WORKER_LOST, PC_LOST);
	}
}
