/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames about sessions at ingress: check the sender, and pass a message to the pool. */
#include "ingress/ingress.h"
#include "ingress/source.h"
#include "lcore/mailbox.h"
#include "lcore/out.h"

#include "kvr_frame.h"

/* Send the message of frame @p m. A full mailbox drops it; the sender or the pending question
 * retransmits. */
static void note_put(struct lcore *lc, struct pool *p, const struct note *n, struct rte_mbuf *m)
{
	if (likely(notes_put(p, n) == 0)) {
		in_count(lc, IN_REQUEST_FRAMES);
		if (note_types[n->type].part != NOTE_PART_FRAME)
			rte_pktmbuf_free(m);
		return;
	}
	in_count(lc, IN_DROPPED);
	in_count(lc, IN_RING_FULL);
	rte_pktmbuf_free(m);
}

void session_from_agent(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct kvr_wire_hdr *h = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const struct kvr_wire_session_status *st = kvr_frame_body(h);
	const struct kvr_view_worker *w = kvr_view_find(lc->view, h->source);
	struct pool *p = pool_of_handle(lc->rt, h->id);
	const struct note n = {
		.type = h->kind == KVR_SESSION_OPENED ? NOTE_SESSION_OPENED : NOTE_SESSION_CLOSED,
		.handle = h->id,
		.session = {.worker = h->source, .epoch = h->epoch, .code = st->code},
	};

	if (w == NULL || !kvr_path_same(from, &w->path)) {
		source_refuse(lc, m, from, KVR_E_NOT_ALLOWED);
	} else if (w->epoch != h->epoch) {
		source_refuse(lc, m, from, KVR_E_STALE_EPOCH);
	} else if (p == NULL || p->sessions == NULL) {
		in_count(lc, IN_DROPPED);
		in_count(lc, IN_UNKNOWN_REQUEST);
		rte_pktmbuf_free(m);
	} else {
		note_put(lc, p, &n, m);
	}
}

void session_from_client(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct kvr_wire_hdr *h = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const struct kvr_wire_session *b = kvr_frame_body(h);
	const struct note n = {.type = NOTE_SESSION_RELEASE, .m = m};
	struct pool *p = pool_by_id(lc->rt, b->pool);

	if (p == NULL || p->sessions == NULL) {
		source_refuse(lc, m, from, p == NULL ? KVR_E_UNKNOWN_POOL : KVR_E_UNKNOWN_SESSION);
		return;
	}
	path_keep(m, from);
	note_put(lc, p, &n, m);
}
