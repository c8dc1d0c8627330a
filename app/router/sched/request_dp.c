/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames about requests as events: find the request, check that the sender may act on it, and
 * decode the content. lib/request decides what follows.
 */
#include "lcore/mailbox.h"
#include "lcore/out.h"
#include "message/frames.h"
#include "sched/measure.h"
#include "sched/quota.h"
#include "sched/request.h"
#include "sched/sched.h"
#include "sched/send.h"
#include "sched/session.h"
#include "sched/track.h"

#include <string.h>

#include "kvr_frame.h"
#include "kvr_reason.h"

/* All answers to the client take this next hop from now on. */
/* Pass a message to the next pool if it may belong there. @return 0, or -1: this was the last pool,
 * or its mailbox is full and the frame was dropped and counted. */
static int note_next_pool(struct lcore *lc, struct pool *p, const struct note *n)
{
	if (n->handle != 0 || p->number + 1 >= lc->rt->n_pools)
		return -1;
	if (notes_put(&lc->rt->pool[p->number + 1], n) == 0)
		return 0;
	pool_count(p, PC_MAILBOX_FULL, 1);
	rte_pktmbuf_free(n->m); /* the client retransmits it */
	return 0;
}

static void client_hop(struct kvr_flight *slot, const uint8_t mac[6])
{
	struct request *r = request_of(slot);

	kvr_flight_set_next_hop(slot, mac);
	for (uint32_t leg = 0; r != NULL && leg < RTE_DIM(r->slot); leg++)
		if (r->slot[leg] != NULL)
			kvr_flight_set_next_hop(r->slot[leg], mac);
	if (r != NULL && r->job != NULL)
		memcpy(r->job->client.mac, mac, sizeof(r->job->client.mac));
}

/* Whether a frame comes from the client of the request. If so, answers take the path of this frame.
 */
static bool from_its_client(struct pool *p, struct kvr_flight *slot, const struct kvr_path *from)
{
	if (unlikely(!kvr_path_same(from, &slot->relay.client))) {
		pool_count(p, PC_WRONG_CLIENT_ADDRESS, 1);
		return false;
	}
	if (unlikely(!kvr_path_same_hop(from, &slot->relay.client)))
		client_hop(slot, from->mac);
	return true;
}

/* Whether (source, id) ended recently; if so, its last answer. */
static bool has_ended(const struct pool *p, uint64_t source, uint64_t id, struct refusal *why)
{
	struct kvr_flight_end end;

	if (likely(!kvr_flight_has_ended(p->requests, source, id, &end)))
		return false;
	*why = answer_ended(&end);
	return true;
}

/* ---- ROUTE ---- */

/* ROUTE of a known request. */
static void repeated(struct lcore *lc, struct pool *p, struct kvr_flight *slot, struct job *j)
{
	struct request *r = request_of(slot);
	const struct life x = {lc, p, r, {KVR_ROUTE, NULL}};
	struct kvr_rq_event e = {.kind = KVR_RQE_REPEATED};

	request_count(p, r, PC_DUPLICATES, 1);
	if (!from_its_client(p, slot, &j->client)) {
		answer_job(lc, j, &(const struct refusal){.code = KVR_E_NOT_ALLOWED});
		return;
	}
	r->heard_ns = lc->quiet.now_ns;
	if (j->digest == r->digest)
		e.flags |= KVR_RQEF_SAME;
	/* A message that was sent without success for long may be rerouted with the retransmission.
	 */
	if (r->job != NULL && (j->flags & KVR_REQ_F_RESEND) != 0 &&
	    (e.flags & KVR_RQEF_SAME) != 0 && send_in_vain(lc, r))
		send_end(r);
	/* The router itself retransmits legs, and messages of several frames while it keeps them.
	 */
	if (r->job != NULL || r->rq.paired || (j->flags & KVR_REQ_F_RESEND) == 0) {
		life_event(&x, &e);
		job_free(lc, j);
		return;
	}
	/* The deadline belongs to the request, whichever copy reroutes it. */
	if (j->deadline_ns != 0)
		j->deadline_ns = r->times.arrival_ns + (j->deadline_ns - j->arrival_ns);
	j->arrival_ns = r->times.arrival_ns;
	e.flags |= KVR_RQEF_RESEND;
	e.msg = send_may_move(r) ? &j->msg : NULL;
	r->job = j;
	/* Items that went to the client exclude another attempt. */
	if (!kvr_flight_hold_items(slot))
		e.flags |= KVR_RQEF_ANSWERED;
	life_event(&x, &e);
	if (r->slot[MAIN] == slot && (e.flags & KVR_RQEF_ANSWERED) == 0)
		kvr_flight_pass_items(slot);
	if (r->rq.msg == NULL)
		message_over(&x);
}

static void arrived(struct lcore *lc, struct pool *p, struct job *j)
{
	const struct life x = {lc, p, request_get(p), {KVR_ROUTE, NULL}};
	struct kvr_rq_session none, *session = NULL;

	x.r->job = j;
	x.r->heard_ns = lc->quiet.now_ns;
	x.r->digest = j->digest;
	measure_arrived(x.r, j->arrival_ns);
	x.r->away = (j->flags & KVR_REQ_F_AWAY) != 0;
	if (unlikely(j->session.key.len != 0 && !j->msg.req.probe))
		session = session_of(lc, x.r, &none);
	life_arrive(&x, session);
}

static void refuse(struct lcore *lc, struct pool *p, struct job *j, const struct refusal *why,
		   enum pool_counter how)
{
	pool_count(p, how, !j->msg.req.probe);
	answer_job(lc, j, why);
}

static void on_route(struct lcore *lc, struct pool *p, const struct note *n)
{
	struct job *j = n->job;
	struct kvr_flight *slot;
	struct refusal ended;

	pool_count(p, j->msg.req.probe ? PC_PROBES : PC_ROUTES, 1);
	pool_count(p, PC_NO_BLOCKS, j->n_hashes == 0 && !j->msg.req.probe);
	j->msg.pair = j->pair != NULL ? &j->pair->rq : NULL;
	if (j->msg.req.query_only) {
		arrived(lc, p, j);
		return;
	}
	slot = kvr_flight_lookup(p->requests, j->source, j->id);
	if (slot != NULL)
		repeated(lc, p, slot, j);
	else if (unlikely(has_ended(p, j->source, j->id, &ended)))
		refuse(lc, p, j, &ended, PC_DUPLICATES);
	else if (unlikely(!share_slot_may(p, j)))
		refuse(lc, p, j, &(const struct refusal){.code = KVR_E_SOURCE_LIMIT}, PC_REJECTED);
	else
		arrived(lc, p, j);
}

static void on_loads(struct lcore *lc, struct pool *p, const struct note *n)
{
	answer_loads(lc, p, n->job);
}

/* ---- workers ---- */

static void on_dispatch_ack(struct lcore *lc, struct pool *p, const struct note *n)
{
	const struct kvr_rq_event e = {.kind = n->code != 0 ? KVR_RQE_DECLINED : KVR_RQE_TAKEN,
				       .code = n->code};

	struct kvr_flight *slot = kvr_flight_by_handle(p->requests, n->handle);

	worker_said(lc, p, slot);
	slot_event(lc, p, slot, e);
}

/* Keep the first line of an engine's error. */
static void keep_words(struct pair *l, const void *data, uint32_t len)
{
	struct kvr_reason t = kvr_reason_init(l->said, sizeof(l->said));

	kvr_reason_quote(&t, data, len);
}

/* Whether the decode leg will use the result of its prefill leg. */
static bool awaits_result(const struct request *r)
{
	return r->rq.way == KVR_WAY_SYNC && r->job != NULL &&
	       kvr_request_may(leg_state(r, PREFILL), KVR_RQE_FIN) == KVR_RQ_GO;
}

/* The last item of a prefill leg: data for the decode leg, sent without an address. Takes the
 * frame. */
static void prefill_result(struct lcore *lc, struct request *r, struct rte_mbuf *m,
			   struct kvr_rq_event *e)
{
	const struct kvr_wire_response *w = kvr_frame_body(rte_pktmbuf_mtod(m, const void *));

	if (w->data_len != 0)
		e->flags |= KVR_RQEF_RESULT;
	if (unlikely((e->flags & KVR_RQEF_ERROR) != 0)) {
		e->code = w->status;
		if (r->job != NULL && r->job->pair != NULL)
			keep_words(r->job->pair, w + 1, w->data_len);
	}
	if (w->data_len != 0 && awaits_result(r))
		leg_result(lc, r->job, m);
	else
		rte_pktmbuf_free(m);
}

static uint16_t progress_flags(uint16_t wire)
{
	return (uint16_t)(((wire & KVR_PROG_F_FIRST) != 0 ? KVR_RQEF_FIRST : 0) |
			  ((wire & KVR_PROG_F_ERROR) != 0 ? KVR_RQEF_ERROR : 0) |
			  ((wire & KVR_PROG_F_CANCELLED) != 0 ? KVR_RQEF_CANCELLED : 0) |
			  ((wire & KVR_PROG_F_FAILED) != 0 ? KVR_RQEF_FAILED : 0) |
			  ((wire & KVR_PROG_F_REFUSED) != 0 ? KVR_RQEF_REFUSED : 0));
}

/* Handle NOTE_PROGRESS. @p m: frame of the last item of a prefill leg, taken; NULL: none. @p flags:
 * additional KVR_RQEF_*. */
static void item(struct lcore *lc, struct pool *p, const struct note *n, struct rte_mbuf *m,
		 uint16_t flags)
{
	struct kvr_flight *slot = kvr_flight_by_handle(p->requests, n->handle);
	struct request *r = slot != NULL ? request_of(slot) : NULL;
	const bool fin = (n->progress.flags & KVR_PROG_F_FIN) != 0;
	const bool booked = r != NULL && r->rq.book, probe = r != NULL && r->rq.probe;
	struct kvr_rq_event e = {.kind = fin ? KVR_RQE_FIN : KVR_RQE_ITEM,
				 .flags = progress_flags(n->progress.flags) | flags,
				 .tokens = n->progress.tokens};
	uint32_t leg = MAIN, predicted = 0, rank = 0;

	worker_said(lc, p, slot);
	if (fin && r != NULL) {
		leg = leg_of(slot);
		predicted = r->rq.leg[leg].cached_tokens;
		rank = r->rq.leg[leg].rank;
	}
	if (unlikely(m != NULL && r != NULL && leg_of(slot) == PREFILL))
		prefill_result(lc, r, m, &e);
	else
		rte_pktmbuf_free(m);
	if (!slot_event(lc, p, slot, e) || !fin || booked || probe ||
	    n->progress.cached == KVR_NONE32)
		return;
	measure_told(p, r, leg, rank, predicted, n->progress.cached);
}

static void on_progress(struct lcore *lc, struct pool *p, const struct note *n)
{
	item(lc, p, n, NULL, 0);
}

static void on_result(struct lcore *lc, struct pool *p, const struct note *n)
{
	const struct note says =
		note_item(n->handle, kvr_frame_body(rte_pktmbuf_mtod(n->m, const void *)));

	item(lc, p, &says, n->m, 0);
}

/* Answer the agent of a prefill leg whose last item had several frames: it may forget the item, or
 * must send it again. */
static void answer_result(struct lcore *lc, const struct rte_mbuf *m, enum kvr_code code)
{
	const struct kvr_wire_hdr *h = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const struct kvr_wire_response *w = kvr_frame_body(h);
	const struct kvr_wire_response_ack ack = {w->seq + 1, KVR_RACK_F_FIN};

	if (likely(code == KVR_OK))
		out_message(lc, path_kept(m), KVR_RESPONSE_ACK, h->source, h->id, h->handle, &ack,
			    sizeof(ack));
	else
		out_reject(lc, path_kept(m), h->kind, h->source, h->id,
			   &(const struct refusal){.code = KVR_E_NO_MEMORY, .handle = h->handle});
}

static void on_long_result(struct lcore *lc, struct pool *p, const struct note *n)
{
	struct kvr_flight *slot = kvr_flight_by_handle(p->requests, n->handle);
	struct request *r = slot != NULL ? request_of(slot) : NULL;
	const struct kvr_wire_response w = *(const struct kvr_wire_response *)kvr_frame_body(
		rte_pktmbuf_mtod(n->frames->m[0], const void *));
	const struct note says = note_item(n->handle, &w);
	_Atomic uint32_t *taken = &p->live.taken[n->frames->lcore];
	const bool wanted = r != NULL && w.data_len != 0 && awaits_result(r);
	enum kvr_code code = KVR_OK;

	if (wanted)
		code = leg_long_result(lc, r->job, n->frames);
	answer_result(lc, n->frames->m[0], code);
	/* One writer; the frames now wait or are freed. Guards no other data. */
	atomic_store_explicit(taken,
			      atomic_load_explicit(taken, memory_order_relaxed) + n->frames->n,
			      memory_order_relaxed);
	if (!wanted || code != KVR_OK)
		frames_drop(lc, n->frames);
	if (code == KVR_OK)
		item(lc, p, &says, NULL, w.data_len != 0 ? KVR_RQEF_RESULT : 0);
	else
		pool_count(p, PC_RESULTS_DEFERRED, 1);
}

static void on_result_again(struct lcore *lc, struct pool *p, const struct note *n)
{
	const struct kvr_flight *slot = kvr_flight_by_handle(p->requests, n->handle);
	const struct request *r = slot != NULL ? request_of(slot) : NULL;

	/* The leg has not ended, because there was no memory for the result. */
	answer_result(lc, n->m,
		      r != NULL && kvr_request_may(leg_state(r, PREFILL), KVR_RQE_FIN) == KVR_RQ_GO
			      ? KVR_E_NO_MEMORY
			      : KVR_OK);
	rte_pktmbuf_free(n->m);
}

static void on_last(struct lcore *lc, struct pool *p, const struct note *n)
{
	const struct note says =
		note_item(n->handle, kvr_frame_body(rte_pktmbuf_mtod(n->m, const void *)));
	struct kvr_flight *slot;

	item(lc, p, &says, NULL, 0);
	slot = kvr_flight_by_handle(p->requests, n->handle);
	/* Its slot was reclaimed or the request was rerouted: the agent retransmits. */
	if (unlikely(slot == NULL || kvr_flight_relay_mode(slot) == KVR_FLIGHT_DROP)) {
		rte_pktmbuf_free(n->m);
		return;
	}
	track_item(lc, slot, n->m);
	out_send(lc, n->m, &slot->relay.client);
}

static void on_abort_ack(struct lcore *lc, struct pool *p, const struct note *n)
{
	struct kvr_flight *slot = kvr_flight_by_handle(p->requests, n->handle);

	if (slot != NULL &&
	    (request_of(slot) == NULL || kvr_request_may(leg_state(request_of(slot), leg_of(slot)),
							 KVR_RQE_ABORTED) == KVR_RQ_GO))
		abort_stop(p, slot);
	if (slot == NULL || request_of(slot) != NULL)
		slot_event(lc, p, slot, (struct kvr_rq_event){.kind = KVR_RQE_ABORTED});
}

static void on_missing(struct lcore *lc, struct pool *p, const struct note *n)
{
	const struct kvr_wire_hdr *h = rte_pktmbuf_mtod(n->m, const void *);
	struct kvr_flight *slot = kvr_flight_by_handle(p->requests, n->handle);

	if (slot != NULL)
		send_missing(lc, p, slot, kvr_frame_body(h));
	rte_pktmbuf_free(n->m);
}

/* ---- clients ---- */

static void on_client_hop(struct lcore *lc, struct pool *p, const struct note *n)
{
	struct kvr_flight *slot = kvr_flight_by_handle(p->requests, n->handle);

	RTE_SET_USED(lc);
	if (slot != NULL)
		client_hop(slot, n->mac);
}

static void on_fin_acked(struct lcore *lc, struct pool *p, const struct note *n)
{
	struct kvr_flight *slot = kvr_flight_by_handle(p->requests, n->handle);

	if (slot != NULL && request_of(slot) == NULL) { /* an abandoned attempt */
		abort_stop(p, slot);
		slot_release(p, slot);
		return;
	}
	slot_event(lc, p, slot, (struct kvr_rq_event){.kind = KVR_RQE_FIN_ACKED});
}

/* Handle a client's frame about a request of @p p, and free it. */
static void from_client(struct lcore *lc, struct pool *p, struct kvr_flight *slot,
			struct rte_mbuf *m, enum kvr_rq_event_kind kind)
{
	const struct kvr_wire_hdr *h = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const struct life x = {lc, p, request_of(slot), {h->kind, h}};

	if (!from_its_client(p, slot, path_kept(m))) {
		out_reject_frame(lc, m, path_kept(m),
				 &(const struct refusal){.code = KVR_E_NOT_ALLOWED});
		return;
	}
	if (kind == KVR_RQE_PROBED)
		x.r->heard_ns = lc->quiet.now_ns;
	life_event(&x, &(const struct kvr_rq_event){.kind = (uint8_t)kind});
	rte_pktmbuf_free(m);
}

/* CANCEL and PROBE contain only (source, id) if the client has no handle yet. The pools are asked
 * in order, and the last one answers. */
static void on_cancel(struct lcore *lc, struct pool *p, const struct note *n)
{
	const struct kvr_wire_hdr *h = rte_pktmbuf_mtod(n->m, const struct kvr_wire_hdr *);
	struct kvr_flight *slot = kvr_flight_lookup(p->requests, h->source, h->id);

	if (slot != NULL) {
		from_client(lc, p, slot, n->m, KVR_RQE_CANCEL);
		return;
	}
	if (note_next_pool(lc, p, n) == 0)
		return;
	out_message(lc, path_kept(n->m), KVR_CANCELLED, h->source, h->id, h->handle, NULL, 0);
	rte_pktmbuf_free(n->m);
}

static void on_probe(struct lcore *lc, struct pool *p, const struct note *n)
{
	const struct kvr_wire_hdr *h = rte_pktmbuf_mtod(n->m, const struct kvr_wire_hdr *);
	struct kvr_flight *slot = kvr_flight_lookup(p->requests, h->source, h->id);
	struct refusal why = {.code = KVR_E_UNKNOWN_REQUEST};
	bool ended = slot == NULL && has_ended(p, h->source, h->id, &why);

	if (slot != NULL)
		from_client(lc, p, slot, n->m, KVR_RQE_PROBED);
	else if (ended || note_next_pool(lc, p, n) != 0)
		out_reject_frame(lc, n->m, path_kept(n->m), &why);
}

/* ---- all of them ---- */

static void (*const handlers[])(struct lcore *, struct pool *, const struct note *) = {
	[NOTE_ROUTE] = on_route,
	[NOTE_CANCEL] = on_cancel,
	[NOTE_PROBE] = on_probe,
	[NOTE_DISPATCH_ACK] = on_dispatch_ack,
	[NOTE_ALIVE] = alive_on_note,
	[NOTE_PROGRESS] = on_progress,
	[NOTE_RESULT] = on_result,
	[NOTE_LONG_RESULT] = on_long_result,
	[NOTE_RESULT_AGAIN] = on_result_again,
	[NOTE_LAST] = on_last,
	[NOTE_FIN_ACKED] = on_fin_acked,
	[NOTE_ABORT_ACK] = on_abort_ack,
	[NOTE_SESSION_OPENED] = session_on_opened,
	[NOTE_SESSION_CLOSED] = session_on_closed,
	[NOTE_SESSION_RELEASE] = session_on_release,
	[NOTE_MISSING] = on_missing,
	[NOTE_LOADS] = on_loads,
	[NOTE_CLIENT_HOP] = on_client_hop,
};
_Static_assert(RTE_DIM(handlers) == NOTE_TYPES, "one handler per type");

void request_note(struct lcore *lc, struct pool *p, const struct note *n)
{
	handlers[n->type](lc, p, n);
}
