/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames about requests as events: find the request, check that the sender may act on it, and
 * decode the content. lib/request decides what follows.
 */
#include "lcore/mailbox.h"
#include "lcore/out.h"
#include "message/frames.h"
#include "sched/quota.h"
#include "sched/request.h"
#include "sched/request_stats.h"
#include "sched/sched.h"
#include "sched/send.h"
#include "sched/session.h"
#include "sched/timing_reply.h"

#include <string.h>

#include "kvr_frame.h"
#include "kvr_reason.h"

/* All answers to the client take this next hop from now on. */
/* Pass a message to the next pool if it may belong there. @return 0, or -1: this was the last pool,
 * or its mailbox is full and the frame was dropped and counted. */
static int pass_to_next_pool(struct lcore *lc, struct pool *pool, const struct sched_msg *msg)
{
	if (msg->handle != 0 || pool->number + 1 >= lc->rt->n_pools)
		return -1;
	if (mailbox_put(&lc->rt->pool[pool->number + 1], msg) == 0)
		return 0;
	pool_count(pool, PC_MAILBOX_FULL, 1);
	rte_pktmbuf_free(msg->m); /* the client retransmits it */
	return 0;
}

static void client_hop(struct kvr_flight *slot, const uint8_t mac[6])
{
	struct request *req = request_of(slot);

	kvr_flight_set_next_hop(slot, mac);
	for (uint32_t leg = 0; req != NULL && leg < RTE_DIM(req->slot); leg++)
		if (req->slot[leg] != NULL)
			kvr_flight_set_next_hop(req->slot[leg], mac);
	if (req != NULL && req->job != NULL)
		memcpy(req->job->client.mac, mac, sizeof(req->job->client.mac));
}

/* Whether a frame comes from the client of the request. If so, answers take the path of this frame.
 */
static bool from_its_client(struct pool *pool, struct kvr_flight *slot, const struct kvr_path *from)
{
	if (unlikely(!kvr_path_same(from, &slot->relay.client))) {
		pool_count(pool, PC_WRONG_CLIENT_ADDRESS, 1);
		return false;
	}
	if (unlikely(!kvr_path_same_hop(from, &slot->relay.client)))
		client_hop(slot, from->mac);
	return true;
}

/* Whether (source, id) ended recently; if so, its last answer. */
static bool has_ended(const struct pool *pool, uint64_t source, uint64_t id, struct rejection *why)
{
	struct kvr_flight_end end;

	if (likely(!kvr_flight_has_ended(pool->requests, source, id, &end)))
		return false;
	*why = answer_ended(&end);
	return true;
}

/* ---- ROUTE ---- */

/* ROUTE of a known request. */
static void handle_copy(struct lcore *lc, struct pool *pool, struct kvr_flight *slot,
			struct job *job)
{
	struct request *req = request_of(slot);
	const struct request_step step = {lc, pool, req, {KVR_ROUTE, NULL}};
	struct kvr_rq_event ev = {.kind = KVR_RQE_REPEATED};

	request_count(pool, req, PC_DUPLICATES, 1);
	if (!from_its_client(pool, slot, &job->client)) {
		answer_job(lc, job, &(const struct rejection){.code = KVR_E_NOT_ALLOWED});
		return;
	}
	req->client_seen_ns = lc->quiet.now_ns;
	if (job->digest == req->digest)
		ev.flags |= KVR_RQEF_SAME;
	/* A message that was sent without success for long may be rerouted with the retransmission.
	 */
	if (req->job != NULL && (job->flags & KVR_REQ_F_RESEND) != 0 &&
	    (ev.flags & KVR_RQEF_SAME) != 0 && send_unacked_long(lc, req))
		send_end(req);
	/* The router itself retransmits legs, and messages of several frames while it keeps them.
	 */
	if (req->job != NULL || req->rq.paired || (job->flags & KVR_REQ_F_RESEND) == 0) {
		step_event(&step, &ev);
		job_free(lc, job);
		return;
	}
	/* The deadline belongs to the request, whichever copy reroutes it. */
	if (job->deadline_ns != 0)
		job->deadline_ns = req->times.arrival_ns + (job->deadline_ns - job->arrival_ns);
	job->arrival_ns = req->times.arrival_ns;
	ev.flags |= KVR_RQEF_RESEND;
	ev.msg = send_may_move(req) ? &job->msg : NULL;
	req->job = job;
	/* Items that went to the client exclude another attempt. */
	if (!kvr_flight_hold_items(slot))
		ev.flags |= KVR_RQEF_ANSWERED;
	step_event(&step, &ev);
	if (req->slot[MAIN] == slot && (ev.flags & KVR_RQEF_ANSWERED) == 0)
		kvr_flight_pass_items(slot);
	if (req->rq.msg == NULL)
		message_over(&step);
}

static void handle_arrival(struct lcore *lc, struct pool *pool, struct job *job)
{
	const struct request_step step = {lc, pool, request_get(pool), {KVR_ROUTE, NULL}};
	struct kvr_rq_session none, *session = NULL;

	step.req->job = job;
	step.req->client_seen_ns = lc->quiet.now_ns;
	step.req->digest = job->digest;
	stats_arrived(step.req, job->arrival_ns);
	step.req->away = (job->flags & KVR_REQ_F_AWAY) != 0;
	if (unlikely(job->session.key.len != 0 && !job->msg.req.probe))
		session = session_of(lc, step.req, &none);
	step_arrive(&step, session);
}

static void reject_route(struct lcore *lc, struct pool *pool, struct job *job,
			 const struct rejection *why, enum pool_counter how)
{
	pool_count(pool, how, !job->msg.req.probe);
	answer_job(lc, job, why);
}

static void on_route(struct lcore *lc, struct pool *pool, const struct sched_msg *msg)
{
	struct job *job = msg->job;
	struct kvr_flight *slot;
	struct rejection ended;

	pool_count(pool, job->msg.req.probe ? PC_PROBES : PC_ROUTES, 1);
	pool_count(pool, PC_NO_BLOCKS, job->n_hashes == 0 && !job->msg.req.probe);
	job->msg.pair = job->pair != NULL ? &job->pair->rq : NULL;
	if (job->msg.req.query_only) {
		handle_arrival(lc, pool, job);
		return;
	}
	slot = kvr_flight_lookup(pool->requests, job->source, job->id);
	if (slot != NULL)
		handle_copy(lc, pool, slot, job);
	else if (unlikely(has_ended(pool, job->source, job->id, &ended)))
		reject_route(lc, pool, job, &ended, PC_DUPLICATES);
	else if (unlikely(!quota_slot_allows(pool, job)))
		reject_route(lc, pool, job, &(const struct rejection){.code = KVR_E_SOURCE_LIMIT},
			     PC_REJECTED);
	else
		handle_arrival(lc, pool, job);
}

static void on_loads(struct lcore *lc, struct pool *pool, const struct sched_msg *msg)
{
	answer_loads(lc, pool, msg->job);
}

/* ---- workers ---- */

static void on_dispatch_ack(struct lcore *lc, struct pool *pool, const struct sched_msg *msg)
{
	const struct kvr_rq_event ev = {.kind = msg->code != 0 ? KVR_RQE_DECLINED : KVR_RQE_TAKEN,
					.code = msg->code};

	struct kvr_flight *slot = kvr_flight_by_handle(pool->requests, msg->handle);

	worker_active(lc, pool, slot);
	slot_event(lc, pool, slot, ev);
}

/* Keep the first line of an engine's error. */
static void keep_error_text(struct pair *pair, const void *data, uint32_t len)
{
	struct kvr_reason t = kvr_reason_init(pair->said, sizeof(pair->said));

	kvr_reason_quote(&t, data, len);
}

/* Whether the decode leg will use the result of its prefill leg. */
static bool awaits_result(const struct request *req)
{
	return req->rq.way == KVR_WAY_SYNC && req->job != NULL &&
	       kvr_request_may(leg_state(req, PREFILL), KVR_RQE_FIN) == KVR_RQ_GO;
}

/* The last item of a prefill leg: data for the decode leg, sent without an address. Takes the
 * frame. */
static void prefill_result(struct lcore *lc, struct request *req, struct rte_mbuf *m,
			   struct kvr_rq_event *ev)
{
	const struct kvr_wire_response *w = kvr_frame_body(rte_pktmbuf_mtod(m, const void *));

	if (w->data_len != 0)
		ev->flags |= KVR_RQEF_RESULT;
	if (unlikely((ev->flags & KVR_RQEF_ERROR) != 0)) {
		ev->code = w->status;
		if (req->job != NULL && req->job->pair != NULL)
			keep_error_text(req->job->pair, w + 1, w->data_len);
	}
	if (w->data_len != 0 && awaits_result(req))
		leg_result(lc, req->job, m);
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

/* Handle MSG_PROGRESS. @pool m: frame of the last item of a prefill leg, taken; NULL: none. @pool
 * flags: additional KVR_RQEF_*. */
static void handle_item(struct lcore *lc, struct pool *pool, const struct sched_msg *msg,
			struct rte_mbuf *m, uint16_t flags)
{
	struct kvr_flight *slot = kvr_flight_by_handle(pool->requests, msg->handle);
	struct request *req = slot != NULL ? request_of(slot) : NULL;
	const bool fin = (msg->progress.flags & KVR_PROG_F_FIN) != 0;
	const bool booked = req != NULL && req->rq.book, probe = req != NULL && req->rq.probe;
	struct kvr_rq_event ev = {.kind = fin ? KVR_RQE_FIN : KVR_RQE_ITEM,
				  .flags = progress_flags(msg->progress.flags) | flags,
				  .tokens = msg->progress.tokens};
	uint32_t leg = MAIN, predicted = 0, rank = 0;

	worker_active(lc, pool, slot);
	if (fin && req != NULL) {
		leg = leg_of(slot);
		predicted = req->rq.leg[leg].cached_tokens;
		rank = req->rq.leg[leg].rank;
	}
	if (unlikely(m != NULL && req != NULL && leg_of(slot) == PREFILL))
		prefill_result(lc, req, m, &ev);
	else
		rte_pktmbuf_free(m);
	if (!slot_event(lc, pool, slot, ev) || !fin || booked || probe ||
	    msg->progress.cached == KVR_NONE32)
		return;
	stats_reported(pool, req, leg, rank, predicted, msg->progress.cached);
}

static void on_progress(struct lcore *lc, struct pool *pool, const struct sched_msg *msg)
{
	handle_item(lc, pool, msg, NULL, 0);
}

static void on_result(struct lcore *lc, struct pool *pool, const struct sched_msg *msg)
{
	const struct sched_msg says = sched_msg_of_item(
		msg->handle, kvr_frame_body(rte_pktmbuf_mtod(msg->m, const void *)));

	handle_item(lc, pool, &says, msg->m, 0);
}

/* Answer the agent of a prefill leg whose last item had several frames: it may forget the item, or
 * must send it again. */
static void answer_result(struct lcore *lc, const struct rte_mbuf *m, enum kvr_code code)
{
	const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const struct kvr_wire_response *w = kvr_frame_body(hdr);
	const struct kvr_wire_response_ack ack = {w->seq + 1, KVR_RACK_F_FIN};

	if (likely(code == KVR_OK))
		out_message(lc, path_kept(m), KVR_RESPONSE_ACK, hdr->source, hdr->id, hdr->handle,
			    &ack, sizeof(ack));
	else
		out_reject(
			lc, path_kept(m), hdr->kind, hdr->source, hdr->id,
			&(const struct rejection){.code = KVR_E_NO_MEMORY, .handle = hdr->handle});
}

static void on_long_result(struct lcore *lc, struct pool *pool, const struct sched_msg *msg)
{
	struct kvr_flight *slot = kvr_flight_by_handle(pool->requests, msg->handle);
	struct request *req = slot != NULL ? request_of(slot) : NULL;
	const struct kvr_wire_response w = *(const struct kvr_wire_response *)kvr_frame_body(
		rte_pktmbuf_mtod(msg->frames->m[0], const void *));
	const struct sched_msg says = sched_msg_of_item(msg->handle, &w);
	_Atomic uint32_t *taken = &pool->live.taken[msg->frames->lcore];
	const bool wanted = req != NULL && w.data_len != 0 && awaits_result(req);
	enum kvr_code code = KVR_OK;

	if (wanted)
		code = leg_long_result(lc, req->job, msg->frames);
	answer_result(lc, msg->frames->m[0], code);
	/* One writer; the frames now wait or are freed. Guards no other data. */
	atomic_store_explicit(taken,
			      atomic_load_explicit(taken, memory_order_relaxed) + msg->frames->n,
			      memory_order_relaxed);
	if (!wanted || code != KVR_OK)
		frames_drop(lc, msg->frames);
	if (code == KVR_OK)
		handle_item(lc, pool, &says, NULL, w.data_len != 0 ? KVR_RQEF_RESULT : 0);
	else
		pool_count(pool, PC_RESULTS_DEFERRED, 1);
}

static void on_result_again(struct lcore *lc, struct pool *pool, const struct sched_msg *msg)
{
	const struct kvr_flight *slot = kvr_flight_by_handle(pool->requests, msg->handle);
	const struct request *req = slot != NULL ? request_of(slot) : NULL;

	/* The leg has not ended, because there was no memory for the result. */
	answer_result(lc, msg->m,
		      req != NULL && kvr_request_may(leg_state(req, PREFILL), KVR_RQE_FIN) ==
					      KVR_RQ_GO
			      ? KVR_E_NO_MEMORY
			      : KVR_OK);
	rte_pktmbuf_free(msg->m);
}

static void on_last(struct lcore *lc, struct pool *pool, const struct sched_msg *msg)
{
	const struct sched_msg says = sched_msg_of_item(
		msg->handle, kvr_frame_body(rte_pktmbuf_mtod(msg->m, const void *)));
	struct kvr_flight *slot;

	handle_item(lc, pool, &says, NULL, 0);
	slot = kvr_flight_by_handle(pool->requests, msg->handle);
	/* Its slot was reclaimed or the request was rerouted: the agent retransmits. */
	if (unlikely(slot == NULL || kvr_flight_relay_mode(slot) == KVR_FLIGHT_DROP)) {
		rte_pktmbuf_free(msg->m);
		return;
	}
	timing_reply(lc, slot, msg->m);
	out_send(lc, msg->m, &slot->relay.client);
}

static void on_abort_ack(struct lcore *lc, struct pool *pool, const struct sched_msg *msg)
{
	struct kvr_flight *slot = kvr_flight_by_handle(pool->requests, msg->handle);

	if (slot != NULL &&
	    (request_of(slot) == NULL || kvr_request_may(leg_state(request_of(slot), leg_of(slot)),
							 KVR_RQE_ABORTED) == KVR_RQ_GO))
		abort_stop(pool, slot);
	if (slot == NULL || request_of(slot) != NULL)
		slot_event(lc, pool, slot, (struct kvr_rq_event){.kind = KVR_RQE_ABORTED});
}

static void on_missing(struct lcore *lc, struct pool *pool, const struct sched_msg *msg)
{
	const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(msg->m, const void *);
	struct kvr_flight *slot = kvr_flight_by_handle(pool->requests, msg->handle);

	if (slot != NULL)
		send_missing(lc, pool, slot, kvr_frame_body(hdr));
	rte_pktmbuf_free(msg->m);
}

/* ---- clients ---- */

static void on_client_hop(struct lcore *lc, struct pool *pool, const struct sched_msg *msg)
{
	struct kvr_flight *slot = kvr_flight_by_handle(pool->requests, msg->handle);

	RTE_SET_USED(lc);
	if (slot != NULL)
		client_hop(slot, msg->mac);
}

static void on_fin_acked(struct lcore *lc, struct pool *pool, const struct sched_msg *msg)
{
	struct kvr_flight *slot = kvr_flight_by_handle(pool->requests, msg->handle);

	if (slot != NULL && request_of(slot) == NULL) { /* an abandoned attempt */
		abort_stop(pool, slot);
		slot_release(pool, slot);
		return;
	}
	slot_event(lc, pool, slot, (struct kvr_rq_event){.kind = KVR_RQE_FIN_ACKED});
}

/* Handle a client's frame about a request of @p pool, and free it. */
static void from_client(struct lcore *lc, struct pool *pool, struct kvr_flight *slot,
			struct rte_mbuf *m, enum kvr_rq_event_kind kind)
{
	const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const struct request_step step = {lc, pool, request_of(slot), {hdr->kind, hdr}};

	if (!from_its_client(pool, slot, path_kept(m))) {
		out_reject_frame(lc, m, path_kept(m),
				 &(const struct rejection){.code = KVR_E_NOT_ALLOWED});
		return;
	}
	if (kind == KVR_RQE_PROBED)
		step.req->client_seen_ns = lc->quiet.now_ns;
	step_event(&step, &(const struct kvr_rq_event){.kind = (uint8_t)kind});
	rte_pktmbuf_free(m);
}

/* CANCEL and PROBE contain only (source, id) if the client has no handle yet. The pools are asked
 * in order, and the last one answers. */
static void on_cancel(struct lcore *lc, struct pool *pool, const struct sched_msg *msg)
{
	const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(msg->m, const struct kvr_wire_hdr *);
	struct kvr_flight *slot = kvr_flight_lookup(pool->requests, hdr->source, hdr->id);

	if (slot != NULL) {
		from_client(lc, pool, slot, msg->m, KVR_RQE_CANCEL);
		return;
	}
	if (pass_to_next_pool(lc, pool, msg) == 0)
		return;
	out_message(lc, path_kept(msg->m), KVR_CANCELLED, hdr->source, hdr->id, hdr->handle, NULL,
		    0);
	rte_pktmbuf_free(msg->m);
}

static void on_probe(struct lcore *lc, struct pool *pool, const struct sched_msg *msg)
{
	const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(msg->m, const struct kvr_wire_hdr *);
	struct kvr_flight *slot = kvr_flight_lookup(pool->requests, hdr->source, hdr->id);
	struct rejection why = {.code = KVR_E_UNKNOWN_REQUEST};
	bool ended = slot == NULL && has_ended(pool, hdr->source, hdr->id, &why);

	if (slot != NULL)
		from_client(lc, pool, slot, msg->m, KVR_RQE_PROBED);
	else if (ended || pass_to_next_pool(lc, pool, msg) != 0)
		out_reject_frame(lc, msg->m, path_kept(msg->m), &why);
}

/* ---- all of them ---- */

static void (*const handlers[])(struct lcore *, struct pool *, const struct sched_msg *) = {
	[MSG_ROUTE] = on_route,
	[MSG_CANCEL] = on_cancel,
	[MSG_PROBE] = on_probe,
	[MSG_DISPATCH_ACK] = on_dispatch_ack,
	[MSG_ALIVE] = alive_handle,
	[MSG_PROGRESS] = on_progress,
	[MSG_RESULT] = on_result,
	[MSG_LONG_RESULT] = on_long_result,
	[MSG_RESULT_AGAIN] = on_result_again,
	[MSG_LAST] = on_last,
	[MSG_FIN_ACKED] = on_fin_acked,
	[MSG_ABORT_ACK] = on_abort_ack,
	[MSG_SESSION_OPENED] = session_handle_opened,
	[MSG_SESSION_CLOSED] = session_handle_closed,
	[MSG_SESSION_RELEASE] = session_handle_release,
	[MSG_MISSING] = on_missing,
	[MSG_LOADS] = on_loads,
	[MSG_CLIENT_HOP] = on_client_hop,
};
_Static_assert(RTE_DIM(handlers) == MSG_TYPES, "one handler per type");

void request_handle(struct lcore *lc, struct pool *pool, const struct sched_msg *msg)
{
	handlers[msg->type](lc, pool, msg);
}
