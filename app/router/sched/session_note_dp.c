/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages about sessions, and their timers, as events of requests; session.h. */
#include "lcore/out.h"
#include "sched/request.h"
#include "sched/session.h"

#include "kvr_frame.h"

/* ---- answers of workers ---- */

void session_on_opened(struct lcore *lc, struct pool *p, const struct note *n)
{
	struct kvr_flight *slot = kvr_flight_by_handle(p->requests, n->handle);
	struct request *r = slot != NULL ? request_of(slot) : NULL;
	const struct kvr_rq_event e = {.kind = n->session.code == 0 ? KVR_RQE_OPENED
								    : KVR_RQE_NOT_OPENED,
				       .code = n->session.code};

	if (r != NULL && leg_of(slot) == MAIN && leg_state(r, MAIN) == KVR_RQS_HELD &&
	    !session_was_asked(&p->use[r->number].ask, n)) {
		pool_count(p, PC_UNEXPECTED_STATE, 1); /* from another worker */
		return;
	}
	/* Late: the open ended in the meantime and was closed, or this is a repetition. */
	if (slot_event(lc, p, slot, e) && n->session.code != 0)
		kvr_stats_add(p->sessions->count, SC_OPEN_REJECTED, 1);
}

/* ---- clients ---- */

void session_on_release(struct lcore *lc, struct pool *p, const struct note *n)
{
	struct rte_mbuf *m = n->m;
	const struct kvr_wire_hdr *h = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const struct kvr_wire_session *b = kvr_frame_body(h);
	const struct kvr_rq_ctx c = life_ctx(lc, p);
	struct kvr_rq_orders out;
	const struct kvr_wire_session_status st = {.code = (uint16_t)kvr_request_session_release(
							   &c, &p->live.rq, b + 1, b->id_len,
							   session_client_tag(lc->rt, path_kept(m)),
							   &out)};

	orders_beside(lc, p, &out);
	if (st.code == KVR_E_NOT_ALLOWED) {
		pool_count(p, PC_WRONG_CLIENT_ADDRESS, 1);
		out_reject_frame(lc, m, path_kept(m),
				 &(const struct refusal){.code = KVR_E_NOT_ALLOWED});
		return;
	}
	out_message(lc, path_kept(m), KVR_SESSION_RELEASED, h->source, h->id, 0, &st, sizeof(st));
	rte_pktmbuf_free(m);
}

/* ---- time ---- */

void session_due(struct lcore *lc, struct pool *p, struct kvr_session_ref ref)
{
	const struct kvr_rq_ctx c = life_ctx(lc, p);
	struct kvr_rq_orders out;

	kvr_request_session_due(&c, &p->live.rq, ref, &out);
	orders_beside(lc, p, &out);
}

/* Retransmit the first of a list if it is due. An unanswered open is an event. */
static bool repeat(struct lcore *lc, struct pool *p, struct session_asks *list)
{
	uint64_t unanswered;

	if (!session_repeat(lc, p, list, &unanswered))
		return false;
	if (unanswered != 0)
		slot_event(lc, p, kvr_flight_by_handle(p->requests, unanswered),
			   (struct kvr_rq_event){.kind = KVR_RQE_UNANSWERED});
	return true;
}

void session_timers(struct lcore *lc, struct pool *p)
{
	struct sessions *s = p->sessions;
	uint32_t room = BURST;

	if (s == NULL)
		return;
	if (kvr_stats_get(s->count, SC_OPENING) + kvr_stats_get(s->count, SC_CLOSING) != 0)
		for (uint32_t i = 0; i < SESSION_WAITS; i++) {
			while (room > 0 && repeat(lc, p, &s->open_step[i]))
				room--;
			while (room > 0 && repeat(lc, p, &s->close_step[i]))
				room--;
		}
}
