/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages about sessions, and their timers, as events of requests; session.h. */
#include "lcore/out.h"
#include "sched/request.h"
#include "sched/session.h"

#include "kvr_frame.h"

/* ---- answers of workers ---- */

void session_handle_opened(struct lcore *lc, struct pool *pool, const struct sched_msg *msg)
{
	struct kvr_flight *slot = kvr_flight_by_handle(pool->requests, msg->handle);
	struct request *req = slot != NULL ? request_of(slot) : NULL;
	const struct kvr_rq_event ev = {.kind = msg->session.code == 0 ? KVR_RQE_OPENED
								       : KVR_RQE_NOT_OPENED,
					.code = msg->session.code};

	if (req != NULL && leg_of(slot) == MAIN && leg_state(req, MAIN) == KVR_RQS_HELD &&
	    !session_ask_matches(&pool->use[req->number].ask, msg)) {
		pool_count(pool, PC_UNEXPECTED_STATE, 1); /* from another worker */
		return;
	}
	/* Late: the open ended in the meantime and was closed, or this is a repetition. */
	if (slot_event(lc, pool, slot, ev) && msg->session.code != 0)
		kvr_stats_add(pool->sessions->count, SC_OPEN_REJECTED, 1);
}

/* ---- clients ---- */

void session_handle_release(struct lcore *lc, struct pool *pool, const struct sched_msg *msg)
{
	struct rte_mbuf *m = msg->m;
	const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const struct kvr_wire_session *b = kvr_frame_body(hdr);
	const struct kvr_rq_ctx c = request_ctx(lc, pool);
	struct kvr_rq_orders out;
	const struct kvr_wire_session_status st = {.code = (uint16_t)kvr_request_session_release(
							   &c, &pool->live.rq, b + 1, b->id_len,
							   session_client_tag(lc->rt, path_kept(m)),
							   &out)};

	orders_beside(lc, pool, &out);
	if (st.code == KVR_E_NOT_ALLOWED) {
		pool_count(pool, PC_WRONG_CLIENT_ADDRESS, 1);
		out_reject_frame(lc, m, path_kept(m),
				 &(const struct rejection){.code = KVR_E_NOT_ALLOWED});
		return;
	}
	out_message(lc, path_kept(m), KVR_SESSION_RELEASED, hdr->source, hdr->id, 0, &st,
		    sizeof(st));
	rte_pktmbuf_free(m);
}

/* ---- time ---- */

void session_due(struct lcore *lc, struct pool *pool, struct kvr_session_ref ref)
{
	const struct kvr_rq_ctx c = request_ctx(lc, pool);
	struct kvr_rq_orders out;

	kvr_request_session_due(&c, &pool->live.rq, ref, &out);
	orders_beside(lc, pool, &out);
}

/* Retransmit the first of a list if it is due. An unanswered open is an event. */
static bool repeat_first(struct lcore *lc, struct pool *pool, struct session_asks *list)
{
	uint64_t unanswered;

	if (!session_repeat(lc, pool, list, &unanswered))
		return false;
	if (unanswered != 0)
		slot_event(lc, pool, kvr_flight_by_handle(pool->requests, unanswered),
			   (struct kvr_rq_event){.kind = KVR_RQE_UNANSWERED});
	return true;
}

void session_timers(struct lcore *lc, struct pool *pool)
{
	struct sessions *sessions = pool->sessions;
	uint32_t room = BURST;

	if (sessions == NULL)
		return;
	if (kvr_stats_get(sessions->count, SC_OPENING) +
		    kvr_stats_get(sessions->count, SC_CLOSING) !=
	    0)
		for (uint32_t i = 0; i < SESSION_WAITS; i++) {
			while (room > 0 && repeat_first(lc, pool, &sessions->open_step[i]))
				room--;
			while (room > 0 && repeat_first(lc, pool, &sessions->close_step[i]))
				room--;
		}
}
