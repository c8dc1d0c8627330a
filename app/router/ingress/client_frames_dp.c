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

static void drop_frame(struct lcore *lc, struct rte_mbuf *m, enum in_counter why)
{
	in_count(lc, IN_DROPPED);
	in_count(lc, why);
	rte_pktmbuf_free(m);
}

void result_again(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const struct sched_msg msg = {.type = MSG_RESULT_AGAIN, .handle = hdr->handle, .m = m};

	path_keep(m, from);
	if (mailbox_put(pool_of_handle(lc->rt, hdr->handle), &msg) == 0) {
		in_count(lc, IN_REQUEST_FRAMES);
		return;
	}
	drop_frame(lc, m, IN_RING_FULL);
}

void request_from_client(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	struct pool *pool =
		hdr->handle != 0 ? pool_of_handle(lc->rt, hdr->handle) : &lc->rt->pool[0];
	const struct sched_msg msg = {
		.type = hdr->kind == KVR_CANCEL ? MSG_CANCEL : MSG_PROBE,
		.handle = hdr->handle,
		.m = m,
	};

	if (pool == NULL &&
	    hdr->kind ==
		    KVR_CANCEL) { /* always the answer to CANCEL, also for an unknown request */
		out_message(lc, from, KVR_CANCELLED, hdr->source, hdr->id, hdr->handle, NULL, 0);
		drop_frame(lc, m, IN_UNKNOWN_REQUEST);
		return;
	}
	if (pool == NULL) {
		source_reject(lc, m, from, KVR_E_UNKNOWN_REQUEST);
		return;
	}
	path_keep(m, from);
	/* The ROUTE may be in the current batch. A CANCEL that overtook it would be answered as
	 * unknown, and the request would run for no client. */
	if (hdr->handle == 0 && lc->n_jobs != 0)
		jobs_flush(lc);
	if (mailbox_put(pool, &msg) != 0)
		drop_frame(lc, m, IN_RING_FULL);
	else
		in_count(lc, IN_REQUEST_FRAMES);
}
