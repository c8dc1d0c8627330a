/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames that an ingress lcore only passes to the scheduler of their request: CANCEL, PROBE, and
 * retransmitted first fragments of complete messages, whose senders want their fate.
 */
#include "ingress/ingress.h"
#include "ingress/route.h"
#include "ingress/source.h"
#include "lcore/mailbox.h"
#include "lcore/out.h"

#include "kvr_frame.h"

static void ignore(struct lcore *lc, struct rte_mbuf *m, enum in_counter why)
{
	in_count(lc, IN_DROPPED);
	in_count(lc, why);
	rte_pktmbuf_free(m);
}

void note_result_again(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct kvr_wire_hdr *h = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const struct note n = {.type = NOTE_RESULT_AGAIN, .handle = h->handle, .m = m};

	path_keep(m, from);
	if (notes_put(pool_of_handle(lc->rt, h->handle), &n) == 0) {
		in_count(lc, IN_REQUEST_FRAMES);
		return;
	}
	ignore(lc, m, IN_RING_FULL);
}

void note_from_client(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct kvr_wire_hdr *h = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	struct pool *p = h->handle != 0 ? pool_of_handle(lc->rt, h->handle) : &lc->rt->pool[0];
	const struct note n = {
		.type = h->kind == KVR_CANCEL ? NOTE_CANCEL : NOTE_PROBE,
		.handle = h->handle,
		.m = m,
	};

	if (p == NULL &&
	    h->kind == KVR_CANCEL) { /* always the answer to CANCEL, also for an unknown request */
		out_message(lc, from, KVR_CANCELLED, h->source, h->id, h->handle, NULL, 0);
		ignore(lc, m, IN_UNKNOWN_REQUEST);
		return;
	}
	if (p == NULL) {
		source_refuse(lc, m, from, KVR_E_UNKNOWN_REQUEST);
		return;
	}
	path_keep(m, from);
	/* The ROUTE may be in the current batch. A CANCEL that overtook it would be answered as
	 * unknown, and the request would run for no client. */
	if (h->handle == 0 && lc->n_jobs != 0)
		jobs_flush(lc);
	if (notes_put(p, &n) != 0)
		ignore(lc, m, IN_RING_FULL);
	else
		in_count(lc, IN_REQUEST_FRAMES);
}
