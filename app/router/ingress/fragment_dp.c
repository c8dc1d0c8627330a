/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fragmented messages at ingress. A frame is kept until its message is complete or dropped. When no
 * fragment has arrived for some time, MISSING names the absent ones, and the sender retransmits
 * them.
 *
 * The number of kept buffers is derived at start (state/sizes.h). Frames count here until the
 * scheduler has the message: this lcore writes `moved`, the scheduler lcore pool_live::taken. If
 * buffers become scarce nevertheless, the oldest message is dropped and new fragments are rejected,
 * so that a buffer to receive a heartbeat is always free.
 */
#include "ingress/fragment.h"
#include "ingress/ingress.h"
#include "ingress/source.h"
#include "lcore/out.h"

#include <string.h>

#include <rte_jhash.h>

#include "kvr_frame.h"
#include "kvr_source.h"

#define ASKS_TURN 4u /* MISSING frames sent, and messages dropped, per turn */

void ingress_reasm_drop(void *arg, void *frame)
{
	struct lcore *lc = arg;

	in_count(lc, IN_REASM_DROPPED);
	rte_pktmbuf_free(frame);
}

struct kvr_peer fragment_share(const struct kvr_peer *peer)
{
	static const uint8_t v4[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
	struct kvr_peer out = {{0}};
	struct kvr_path p = {.family = 6};
	uint64_t key;

	memcpy(p.ip, peer->b, sizeof(p.ip));
	if (memcmp(p.ip, v4, sizeof(v4)) == 0)
		p.family = 4;
	key = kvr_source_key(&p);
	memcpy(out.b, &key, sizeof(key));
	return out;
}

/* Number of frames on their way to a scheduler or waiting to be freed. */
static uint32_t in_transit(const struct lcore *lc)
{
	const struct router *rt = lc->rt;
	uint32_t n = lc->reading.frames;

	/* Relaxed: an old value is only too large, and guards no other data. Both counters wrap. */
	for (uint32_t i = 0; i < rt->n_pools; i++)
		n += lc->moved[i] -
		     atomic_load_explicit(&rt->pool[i].live.taken[lc->index], memory_order_relaxed);
	return n;
}

/* Whether so few buffers are free that heartbeats may not find one. Buffers in lcore caches do not
 * count. */
static bool is_low(const struct lcore *lc, uint32_t port)
{
	const struct rte_mempool *pool = kvr_port_pool(lc->rt->port[port]);

	return unlikely(rte_mempool_get_ops(pool->ops_index)->get_count(pool) <
			lc->rt->sizes.low_water);
}

/* Drop the oldest message. */
static void evict_oldest(struct lcore *lc)
{
	kvr_reasm_evict(lc->reasm, 1);
	kvr_stats_set(lc->in, IN_REASM_EVICTED, kvr_reasm_stats(lc->reasm)->evicted);
}

/* Only the first fragment beyond the limit is answered, because that one is retransmitted. */
static void too_large(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const uint64_t allowed = RTE_MIN((uint64_t)lc->rt->sizes.max_frames * hdr->frag_len,
					 lc->rt->sizes.max_message);
	struct rejection why = {.code = KVR_E_TOO_LARGE, .detail = {hdr->msg_len, allowed}};

	if (hdr->kind == KVR_RESPONSE && hdr->frag_off == 0)
		why.detail[2] = ((const struct kvr_wire_response *)kvr_frame_body(hdr))->seq;
	if (hdr->frag_off == 0)
		source_reject_passed(lc, m, from, &why);
	else
		source_reject_silent(lc, m, why.code);
}

/* A fragment of a message that is complete already. The first fragment is a question about its
 * fate. */
static void answer_complete(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);

	if (hdr->frag_off == 0 && hdr->kind == KVR_ROUTE) {
		request_from_client(lc, m, from);
		return;
	}
	if (hdr->frag_off == 0 && hdr->kind == KVR_RESPONSE) {
		result_again(lc, m, from);
		return;
	}
	in_count(lc, IN_FRAGMENTS);
	rte_pktmbuf_free(m);
}

static struct kvr_peer peer_of_sender(const struct kvr_path *from)
{
	struct kvr_peer peer;

	memcpy(peer.b, from, sizeof(peer.b)); /* address, port, VLAN */
	return peer;
}

/*
 * A device that spreads by flow gives one lcore all fragments of a sender. If the sender of a frame
 * or the kernel chooses the queue, fragments may arrive at several lcores, which then forward them
 * to one; otherwise no lcore would have the complete message.
 */
struct lcore *fragment_joiner(struct lcore *lc, const struct kvr_path *from)
{
	const struct router *rt = lc->rt;
	const struct kvr_peer peer = peer_of_sender(from);
	uint32_t hash;

	if (likely(lc->joins == NULL) || kvr_port_spreads(lc->queue[from->port]))
		return lc; /* the port spreads by address already */
	hash = rte_jhash(peer.b, sizeof(peer.b), (uint32_t)rt->seed);
	return rt->lcore[hash % rt->conf.n_ingress];
}

/* The joining lcore counts the frame as received. */
static void hand_over(struct lcore *lc, struct lcore *to, struct rte_mbuf *m,
		      const struct kvr_path *from)
{
	path_keep(m, from);
	if (likely(!KVR_SIM_FAULT(JOINS) && rte_ring_enqueue(to->joins, m) == 0)) {
		lc->handed++;
		return;
	}
	in_count(lc, IN_DROPPED); /* the sender retransmits it */
	in_count(lc, IN_RING_FULL);
	rte_pktmbuf_free(m);
}

void fragment_in(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const uint32_t held = (uint32_t)kvr_reasm_stats(lc->reasm)->frames + in_transit(lc);
	enum kvr_reasm_result rc = KVR_REASM_REFUSED;
	const struct kvr_peer peer = peer_of_sender(from);
	struct lcore *to = fragment_joiner(lc, from);
	struct kvr_reasm_msg msg = {.why = KVR_E_REASSEMBLY_FULL};

	if (unlikely(to != lc)) {
		/* Fragments that no lcore would join are rejected where they arrive. */
		if (unlikely(kvr_reasm_too_long(lc->reasm, hdr)))
			too_large(lc, m, from);
		else
			hand_over(lc, to, m, from);
		return;
	}
	if (is_low(lc, from->port) || held >= lc->rt->sizes.reassembly_lcore)
		evict_oldest(lc);
	if (!is_low(lc, from->port) && in_transit(lc) < lc->rt->sizes.reassembly_lcore / 2 &&
	    read_may_start(lc, hdr))
		rc = kvr_reasm_add(lc->reasm, &peer, hdr, kvr_frame_body(hdr), m, lc->now_ns, &msg);
	switch (rc) {
	case KVR_REASM_HELD:
		in_count(lc, IN_FRAGMENTS);
		path_keep(m, from); /* address for MISSING */
		break;
	case KVR_REASM_COMPLETE:
		in_count(lc, IN_FRAGMENTS);
		in_count(lc, IN_REASSEMBLED);
		if (unlikely(hdr->kind == KVR_RESPONSE))
			result_whole(lc, &msg, from);
		else
			read_start(lc, &msg, from);
		break;
	case KVR_REASM_DUPLICATE:
		in_count(lc, IN_FRAGMENTS);
		rte_pktmbuf_free(m);
		break;
	case KVR_REASM_DONE:
		answer_complete(lc, m, from);
		break;
	case KVR_REASM_REFUSED:
		if (msg.why == KVR_E_TOO_LARGE)
			too_large(lc, m, from);
		else
			source_reject(lc, m, from, msg.why);
		break;
	}
}

static void request_missing(struct lcore *lc)
{
	struct kvr_reasm_lack lack;

	for (uint32_t i = 0; i < ASKS_TURN && kvr_reasm_lacking(lc->reasm, lc->now_ns, &lack);
	     i++) {
		const struct rte_mbuf *m = lack.frame;
		const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);

		in_count(lc, IN_MISSING_SENT);
		out_message(lc, path_kept(m), KVR_MISSING, hdr->source, hdr->id, hdr->handle,
			    &lack.missing, lack.len);
	}
}

void fragments_poll(struct lcore *lc)
{
	const struct kvr_reasm_stats *s = kvr_reasm_stats(lc->reasm);

	if (likely(s->messages == 0 && s->frames == 0))
		return;
	kvr_reasm_expire(lc->reasm, lc->now_ns,
			 ASKS_TURN); /* after a stall all messages may be overdue */
	for (uint32_t i = 0; i < lc->rt->n_ports; i++)
		if (is_low(lc, i))
			evict_oldest(lc);
	kvr_stats_set(lc->in, IN_REASM_EVICTED,
		      s->evicted); /* includes messages evicted for memory */
	request_missing(lc);
	kvr_reasm_allow(lc->reasm, FREE_TURN);
}
