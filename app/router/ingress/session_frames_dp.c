/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames about sessions at ingress: check the sender, and pass a message to the pool. */
#include "ingress/ingress.h"
#include "ingress/source.h"
#include "lcore/mailbox.h"
#include "lcore/out.h"

#include "kvr_frame.h"

/* Send the message of frame @pool m. A full mailbox drops it; the sender or the pending question
 * retransmits. */
static void put_message(struct lcore *lc, struct pool *pool, const struct sched_msg *msg,
			struct rte_mbuf *m)
{
	if (likely(mailbox_put(pool, msg) == 0)) {
		in_count(lc, IN_REQUEST_FRAMES);
		if (sched_msg_types[msg->type].part != MSG_PART_FRAME)
			rte_pktmbuf_free(m);
		return;
	}
	in_count(lc, IN_DROPPED);
	in_count(lc, IN_RING_FULL);
	rte_pktmbuf_free(m);
}

void session_from_agent(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const struct kvr_wire_session_status *st = kvr_frame_body(hdr);
	const struct kvr_view_worker *worker = kvr_view_find(lc->view, hdr->source);
	struct pool *pool = pool_of_handle(lc->rt, hdr->id);
	const struct sched_msg msg = {
		.type = hdr->kind == KVR_SESSION_OPENED ? MSG_SESSION_OPENED : MSG_SESSION_CLOSED,
		.handle = hdr->id,
		.session = {.worker = hdr->source, .epoch = hdr->epoch, .code = st->code},
	};

	if (worker == NULL || !kvr_path_same(from, &worker->path)) {
		source_reject(lc, m, from, KVR_E_NOT_ALLOWED);
	} else if (worker->epoch != hdr->epoch) {
		source_reject(lc, m, from, KVR_E_STALE_EPOCH);
	} else if (pool == NULL || pool->sessions == NULL) {
		in_count(lc, IN_DROPPED);
		in_count(lc, IN_UNKNOWN_REQUEST);
		rte_pktmbuf_free(m);
	} else {
		put_message(lc, pool, &msg, m);
	}
}

void session_from_client(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const struct kvr_wire_session *b = kvr_frame_body(hdr);
	const struct sched_msg msg = {.type = MSG_SESSION_RELEASE, .m = m};
	struct pool *pool = pool_by_id(lc->rt, b->pool);

	if (pool == NULL || pool->sessions == NULL) {
		source_reject(lc, m, from,
			      pool == NULL ? KVR_E_UNKNOWN_POOL : KVR_E_UNKNOWN_SESSION);
		return;
	}
	path_keep(m, from);
	put_message(lc, pool, &msg, m);
}
