/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ingress: one burst from each queue, every frame checked and given to whoever handles its kind.
 * Each frame ends in exactly one of the counters of the equation in counters.h.
 */
#include "session.h"
#include "stages.h"

#include <string.h>

#include "kvr_frame.h"
#include "kvr_message.h"

/* More frames than a device ring holds: what has piled up during a stall is not overload. */
#define OVERLOAD_BURSTS 1024u

static void to_control(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	struct ctl_buf *b;

	if (!source_control(lc, from)) {
		in_count(lc, IN_IGNORED);
		in_count(lc, IN_LIMITED); /* it is repeated, ever more slowly */
		rte_pktmbuf_free(m);
		return;
	}
	/* A copy: no number of them takes anything from the buffers to receive into. */
	if (m->data_len > lc->rt->ctl_frame ||
	    rte_mempool_get(lc->rt->ctl_bufs, (void **)&b) != 0) {
		source_refuse(lc, m, from, KVR_E_BUSY);
		return;
	}
	b->path = *from;
	b->len = m->data_len;
	memcpy(b->frame, rte_pktmbuf_mtod(m, const void *), m->data_len);
	if (unlikely(rte_ring_enqueue(lc->rt->control_ring, b) != 0)) {
		rte_mempool_put(lc->rt->ctl_bufs, b);
		source_refuse(lc, m, from, KVR_E_BUSY);
		return;
	}
	in_count(lc, IN_CONTROL);
	rte_pktmbuf_free(m);
}

/* The address of a worker's first frame is the worker's: what else comes in its name is measured
 * against it. */
static void hello(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	if (unlikely(!kvr_port_agent_allowed(lc->rt->port[from->port], from->ip)))
		source_refuse(lc, m, from, KVR_E_NOT_ALLOWED);
	else
		to_control(lc, m, from);
}

static void route_whole(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	struct refusal why = {0};

	why.code = job_add(lc, from, m, &why);
	if (likely(why.code == KVR_OK))
		in_count(lc, IN_ROUTES);
	else
		source_refuse_as(lc, m, from, &why);
}

/* ---- kinds ---- */

/*
 * Overload: the device has been full for so long that requests of this source must be turned away,
 * before their cost is spent, or everything is lost in turn. A copy of a request that may be live
 * is left to its client's next repetition; anything else is refused, and may come again.
 */
static void shed(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct kvr_wire_hdr *h = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const struct kvr_wire_request *q = kvr_frame_body(h);

	if (h->frag_off == 0 && (q->flags & KVR_REQ_F_RESEND) == 0) {
		source_refuse(lc, m, from, KVR_E_BUSY);
		return;
	}
	in_count(lc, IN_IGNORED);
	in_count(lc, IN_RING_FULL);
	rte_pktmbuf_free(m);
}

static void route(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct kvr_wire_hdr *h = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);

	const enum kvr_wire_code code = source_route(lc, m, from);

	if (unlikely(code == KVR_E_BUSY))
		shed(lc, m, from);
	else if (unlikely(code != KVR_OK))
		source_refuse(lc, m, from, code);
	else if (likely(kvr_frame_whole(h)))
		route_whole(lc, m, from);
	else
		fragment_in(lc, m, from);
}

static void (*const kinds[KVR_WIRE_KIND_MAX])(struct lcore *, struct rte_mbuf *,
					      const struct kvr_path *) = {
	[KVR_CONNECT] = to_control,
	[KVR_ROUTE] = route,
	[KVR_POTENTIAL_LOADS] = route,
	[KVR_CANCEL] = note_from_client,
	[KVR_PROBE] = note_from_client,
	[KVR_DISPATCH_ACK] = note_from_agent,
	[KVR_RESPONSE] = relay_response,
	[KVR_RESPONSE_ACK] = relay_response_ack,
	[KVR_PROGRESS] = note_from_agent,
	[KVR_ABORT_ACK] = note_from_agent,
	[KVR_MISSING] = note_from_agent,
	[KVR_HELLO] = hello,
	[KVR_HEARTBEAT] = ingress_heartbeat,
	[KVR_GOODBYE] = to_control,
	[KVR_KV_EVENTS] = event_ingress,
	[KVR_SESSION_OPENED] = session_from_agent,
	[KVR_SESSION_CLOSED] = session_from_agent,
	[KVR_SESSION_RELEASE] = session_from_client,
};

/* @return KVR_OK, or what is wrong with the body: words, what was seen, what is allowed. */
static enum kvr_wire_code check_body(const struct kvr_wire_hdr *h, struct refusal *why)
{
	struct kvr_fault fault;

	why->code =
		(enum kvr_wire_code)kvr_body_check(h->kind, kvr_frame_body(h), h->msg_len, &fault);
	if (unlikely(why->code != KVR_OK)) {
		why->text = fault.text;
		why->detail[0] = fault.seen;
		why->detail[1] = fault.allowed;
	}
	return why->code;
}

static void frame(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct kvr_wire_hdr *h = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const int code = kvr_frame_check(h, m->data_len, KVR_ROLE_BIT_ROUTER);
	struct refusal why = {.code = KVR_OK};

	if (unlikely(code < 0)) {
		in_count(lc, IN_IGNORED);
		in_count(lc, code == KVR_FRAME_SHORT ? IN_SHORT : IN_MAGIC);
		rte_pktmbuf_free(m);
	} else if (unlikely(code > 0)) {
		source_refuse(lc, m, from, (enum kvr_wire_code)code);
	} else if (unlikely(kinds[h->kind] == NULL)) {
		source_refuse(lc, m, from, KVR_E_KIND); /* laid out, not served yet */
	} else if (kinds[h->kind] != route && unlikely(check_body(h, &why) != KVR_OK)) {
		source_refuse_as(lc, m, from, &why);
	} else {
		kinds[h->kind](lc, m, from); /* requests are checked when all of it is here */
	}
}

/* The slots that a burst of frames is about: their lines arrive while the first are handled. */
static void prefetch_slots(struct router *rt, struct rte_mbuf *m[], uint16_t n)
{
	for (uint16_t k = 0; k < n; k++) {
		const struct kvr_wire_hdr *h = rte_pktmbuf_mtod(m[k], const struct kvr_wire_hdr *);
		const struct pool *p;

		if (m[k]->data_len < sizeof(*h) || h->handle == 0)
			continue;
		p = pool_of_handle(rt, h->handle);
		if (p != NULL)
			kvr_flight_prefetch_relay(p->requests, h->handle);
	}
}

/*
 * The busiest source is turned away first; as long as that is not enough, those with half as many
 * requests, a quarter, and so on.
 */
static void overload(struct lcore *lc)
{
	const uint64_t step_ns = lc->rt->conf.opt.overload_ms * UINT64_C(1000000);
	const uint64_t full_ns = lc->now_ns - lc->full_since_ns;

	/* Both: after a stall of this lcore alone, one full burst looks like a long time. */
	lc->overloaded = ++lc->full_bursts > OVERLOAD_BURSTS && full_ns >= step_ns;
	if (unlikely(lc->overloaded))
		lc->shed_level = (uint32_t)RTE_MIN(full_ns / step_ns - 1, UINT64_C(31));
}

/* Fragments that other lcores have received: of one sender up to as many as each of them reads. */
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
	kvr_stats_add(lc->in, IN_HANDED, n);
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
			frame(lc, m[k], &pkt[k].path);
		full = full || n == BURST;
		kvr_stats_add(lc->in, IN_FRAMES, n - lc->handed);
		total += n;
	}
	/* As many full bursts as a device ring holds: what they began with has been read, too. */
	if (likely(!full) || lc->full_bursts % OVERLOAD_BURSTS == OVERLOAD_BURSTS - 1)
		/* Pairs with the acquire load in live_pass(): the heartbeats read so far. */
		atomic_store_explicit(&lc->read_up,
				      atomic_load_explicit(&lc->read_up, memory_order_relaxed) + 1,
				      memory_order_release);
	if (likely(!full)) {
		lc->full_since_ns = lc->now_ns;
		lc->full_bursts = 0;
	}
	overload(lc);
	fragments_poll(lc);
	read_poll(lc);
	return total;
}
