/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ingress: one burst from each queue; each frame is checked and passed to the handler of its kind,
 * and is counted in exactly one term of the equation in state/counters.h.
 */
#include "ingress/fragment.h"
#include "ingress/ingress.h"
#include "ingress/overload.h"
#include "ingress/source.h"
#include "kvr_frame.h"
#include "kvr_message.h"
#include "lcore/frame_kind.h"
#include "lcore/out.h"

/* The first fragment of a RESPONSE contains all fields checked here. */
static enum kvr_code check_part(const struct kvr_wire_hdr *hdr, struct kvr_fault *fault)
{
	if (hdr->frag_off != 0)
		return KVR_OK;
	return kvr_response_check_head(kvr_frame_body(hdr), hdr->msg_len, fault);
}

/* @return KVR_OK, or the fault of the body: words, value seen, value allowed. */
static enum kvr_code check_body(const struct kvr_wire_hdr *hdr, struct rejection *why)
{
	struct kvr_fault fault;

	if (likely(kvr_frame_whole(hdr)))
		why->code = kvr_body_check(hdr->kind, kvr_frame_body(hdr), hdr->msg_len, &fault);
	else
		why->code = check_part(hdr, &fault);
	if (unlikely(why->code != KVR_OK)) {
		why->text = fault.text;
		why->detail[0] = fault.seen;
		why->detail[1] = fault.allowed;
	}
	return why->code;
}

static void handle_frame(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const int code = kvr_frame_check(hdr, m->data_len, KVR_ROLE_BIT_ROUTER);
	struct rejection why = {.code = KVR_OK};
	const struct frame_kind *k;

	if (unlikely(code < 0)) {
		in_count(lc, IN_DROPPED);
		in_count(lc, code == KVR_FRAME_SHORT ? IN_SHORT_FRAME : IN_BAD_MAGIC);
		rte_pktmbuf_free(m);
	} else if (unlikely(code > 0)) {
		source_reject(lc, m, from, (enum kvr_code)code);
	} else if (k = &frame_kinds[hdr->kind], unlikely(k->ingress == NULL)) {
		source_reject(lc, m, from, KVR_E_KIND); /* defined, but not served yet */
	} else if (!k->in_parts && unlikely(check_body(hdr, &why) != KVR_OK)) {
		source_reject_as(lc, m, from, &why);
	} else {
		k->ingress(lc, m, from); /* requests are checked when they are complete */
	}
}

/* Prefetch the slots of a burst of frames while the first ones are handled. */
static void prefetch_slots(struct router *rt, struct rte_mbuf *m[], uint16_t n)
{
	for (uint16_t k = 0; k < n; k++) {
		const struct kvr_wire_hdr *hdr =
			rte_pktmbuf_mtod(m[k], const struct kvr_wire_hdr *);
		const struct pool *pool;

		if (m[k]->data_len < sizeof(*hdr) || hdr->handle == 0)
			continue;
		pool = pool_of_handle(rt, hdr->handle);
		if (pool != NULL)
			kvr_flight_prefetch_relay(pool->requests, hdr->handle);
	}
}

/* Count full bursts: after as many as a device ring holds, all frames that waited at the first have
 * been read. */
static void read_so_far(struct lcore *lc, bool full)
{
	lc->full_polls = full ? lc->full_polls + 1 : 0;
	if (likely(!full) || lc->full_polls % RING_BURSTS == 0)
		/* Pairs with the acquire load in live_pass(): the heartbeats read so far. */
		atomic_store_explicit(&lc->read_up,
				      atomic_load_explicit(&lc->read_up, memory_order_relaxed) + 1,
				      memory_order_release);
}

/* Take fragments received by other lcores. All lcores may forward fragments of one sender. */
static uint32_t joins_poll(struct lcore *lc)
{
	struct rte_mbuf *m[JOINS_TURN];
	uint32_t n;

	if (likely(lc->joins == NULL))
		return 0;
	n = rte_ring_sc_dequeue_burst(lc->joins, (void **)m, JOINS_TURN, NULL);
	for (uint32_t i = 0; i < n; i++) {
		const struct kvr_path from = *path_kept(m[i]);

		fragment_in(lc, m[i], &from);
	}
	kvr_stats_add(lc->in, IN_FRAMES, n);
	kvr_stats_add(lc->in, IN_FORWARDED, n);
	return n;
}

uint32_t ingress_poll(struct lcore *lc)
{
	struct rte_mbuf *m[BURST];
	struct kvr_pkt pkt[BURST];
	uint32_t total = joins_poll(lc);
	bool full = false;

	for (uint32_t i = 0; i < lc->rt->n_ports; i++) {
		uint16_t n = kvr_port_rx_burst(lc->queue[i], m, pkt, BURST);

		prefetch_slots(lc->rt, m, n);
		lc->handed = 0;
		for (uint16_t k = 0; k < n; k++)
			handle_frame(lc, m[k], &pkt[k].path);
		kvr_stats_add(lc->in, IN_FRAMES, n - lc->handed);
		/* Include frames of other protocols, which take time as well. */
		overload_seen(lc, &lc->load[i], kvr_port_rx_got(lc->queue[i]),
			      kvr_port_rx_full(lc->queue[i]));
		full = full || kvr_port_rx_full(lc->queue[i]);
		total += kvr_port_rx_got(lc->queue[i]);
	}
	read_so_far(lc, full);
	fragments_poll(lc);
	read_poll(lc);
	return total;
}
