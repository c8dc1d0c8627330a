/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames that ingress passes on: to the control thread, or as a request to its pool. */
#include "lcore/frame_kind.h"

#include <string.h>

#include "ingress/fragment.h"
#include "ingress/ingress.h"
#include "ingress/route.h"
#include "ingress/source.h"
#include "kvr_frame.h"
#include "kvr_message.h"
#include "lcore/out.h"

void ingress_to_control(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	struct ctl_buf *b;

	if (!source_control(lc, from)) {
		in_count(lc, IN_DROPPED);
		in_count(lc, IN_RATE_LIMITED); /* the sender retransmits with growing intervals */
		rte_pktmbuf_free(m);
		return;
	}
	/* A copy, so that no number of these frames uses up receive buffers. */
	if (m->data_len > lc->rt->ctl_frame || KVR_SIM_FAULT(CTL_BUF) ||
	    rte_mempool_get(lc->rt->ctl_bufs, (void **)&b) != 0) {
		source_reject(lc, m, from, KVR_E_BUSY);
		return;
	}
	b->path = *from;
	b->len = m->data_len;
	memcpy(b->frame, rte_pktmbuf_mtod(m, const void *), m->data_len);
	if (unlikely(rte_ring_enqueue(lc->rt->control_ring, b) != 0)) {
		rte_mempool_put(lc->rt->ctl_bufs, b);
		source_reject(lc, m, from, KVR_E_BUSY);
		return;
	}
	in_count(lc, IN_CONTROL);
	rte_pktmbuf_free(m);
}

/* The first frame defines the address of a worker, and later frames are checked against it. So only
 * allowed addresses may send it. */
void ingress_hello(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	if (unlikely(!kvr_port_agent_allowed(lc->rt->port[from->port], from->ip)))
		source_reject(lc, m, from, KVR_E_NOT_ALLOWED);
	else
		ingress_to_control(lc, m, from);
}

static void route_whole(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	struct rejection why = {0};

	why.code = job_add(lc, from, m, &why);
	if (likely(why.code == KVR_OK))
		in_count(lc, IN_ROUTES);
	else
		source_reject_as(lc, m, from, &why);
}

/*
 * Overload: the device has been full for so long that requests of this source must be shed before
 * they cost anything. A copy of a live request is dropped, since its client retransmits it; other
 * requests are rejected and may be sent again.
 */
static void shed_request(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const struct kvr_wire_request *q = kvr_frame_body(hdr);

	if (hdr->frag_off == 0 && (q->flags & KVR_REQ_F_RESEND) == 0) {
		source_shed(lc, m, from);
		return;
	}
	in_count(lc, IN_DROPPED);
	in_count(lc, IN_RING_FULL);
	rte_pktmbuf_free(m);
}

void ingress_request(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const enum kvr_code code = source_route(lc, m, from);

	if (unlikely(code == KVR_E_BUSY))
		shed_request(lc, m, from);
	else if (unlikely(code != KVR_OK))
		source_reject(lc, m, from, code);
	else if (likely(kvr_frame_whole(hdr)))
		route_whole(lc, m, from);
	else
		fragment_in(lc, m, from);
}
