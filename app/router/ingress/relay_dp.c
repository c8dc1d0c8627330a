/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Frames about live requests. Streams are relayed on the lcore that received the frame; changes of
 * a request go to its scheduler as messages. If a message that must not be lost finds the mailbox
 * full, its frame is dropped as well, so that the sender retransmits it.
 */
#include "ingress/fragment.h"
#include "ingress/ingress.h"
#include "ingress/source.h"
#include "lcore/agent_path.h"
#include "lcore/mailbox.h"
#include "lcore/out.h"

#include <string.h>

#include "kvr_frame.h"

static const struct kvr_wire_hdr *hdr_of(const struct rte_mbuf *m)
{
	return rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
}

static void drop_unrelayed(struct lcore *lc, struct rte_mbuf *m, enum in_counter why)
{
	in_count(lc, IN_DROPPED);
	in_count(lc, why);
	rte_pktmbuf_free(m);
}

/* The acknowledgement of an item for the router itself. */
static struct kvr_wire_response_ack ack_of(const struct kvr_wire_response *w)
{
	return (struct kvr_wire_response_ack){
		.next_seq = w->seq + 1,
		.flags = (w->flags & KVR_RESP_F_FIN) != 0 ? KVR_RACK_F_FIN : 0,
	};
}

/*
 * The request is unknown. The sender of a stream must learn that no client listens; other senders
 * need no answer. The last item of a prefill leg was taken, and only its acknowledgement was lost:
 * an agent that gets an error could drop data that the decode worker still fetches, so it is
 * acknowledged.
 */
static void answer_unknown(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from,
			   const struct pool *pool)
{
	const struct kvr_wire_hdr *hdr = hdr_of(m);
	struct kvr_wire_response_ack ack;

	/* Only the first fragment of a message is answered. */
	if ((hdr->kind != KVR_RESPONSE && hdr->kind != KVR_PROGRESS) || hdr->frag_off != 0) {
		drop_unrelayed(lc, m, IN_UNKNOWN_REQUEST);
		return;
	}
	if (hdr->kind == KVR_RESPONSE && pool != NULL && pool->decode != NULL) {
		ack = ack_of(kvr_frame_body(hdr));
		if (ack.flags != 0) {
			out_message(lc, from, KVR_RESPONSE_ACK, hdr->source, hdr->id, hdr->handle,
				    &ack, sizeof(ack));
			drop_unrelayed(lc, m, IN_UNKNOWN_REQUEST);
			return;
		}
	}
	source_reject(lc, m, from, KVR_E_UNKNOWN_REQUEST);
}

/* The code for an agent whose frame has another epoch than the request. */
static enum kvr_code code_of_epoch(const struct lcore *lc, const struct kvr_relay *relay,
				   uint32_t epoch)
{
	const struct kvr_view_worker *worker = kvr_view_find(lc->view, relay->worker);

	if (worker == NULL)
		return KVR_E_UNKNOWN_WORKER;
	/* The current incarnation does not have this request: nothing to retransmit. */
	return worker->epoch == epoch ? KVR_E_UNKNOWN_REQUEST : KVR_E_STALE_EPOCH;
}

/* The client is now reached through another next hop than its ROUTE. The scheduler writes slots; if
 * the mailbox is full, the next frame of the client reports the same. */
static void send_client_hop(struct pool *pool, uint64_t handle, const struct kvr_path *from)
{
	struct sched_msg msg = {.type = MSG_CLIENT_HOP, .handle = handle};

	memcpy(msg.mac, from->mac, sizeof(msg.mac));
	mailbox_put(pool, &msg);
}

/*
 * Find the slot of the frame's handle, if the sender's side and the worker's epoch match the
 * request; otherwise the frame has been handled. A booking has only one side: its client reports
 * instead of an agent.
 */
static struct kvr_flight *slot_of(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from,
				  bool agent, struct pool **p, struct kvr_relay *relay)
{
	const struct kvr_wire_hdr *hdr = hdr_of(m);
	struct kvr_flight *slot = NULL;

	*p = pool_of_handle(lc->rt, hdr->handle);
	if (likely(*p != NULL))
		slot = kvr_flight_relay((*p)->requests, hdr->handle, relay);
	if (unlikely(slot == NULL)) {
		answer_unknown(lc, m, from, *p);
		return NULL;
	}
	if (unlikely(relay->booked)) {
		if (agent && hdr->kind != KVR_PROGRESS) {
			source_reject(lc, m, from, KVR_E_UNKNOWN_REQUEST);
			return NULL;
		}
		agent = false;
	}
	if (unlikely(lc->view->moved != 0))
		relay->agent = *agent_path(lc, relay);
	if (unlikely(!kvr_path_same(from, agent ? &relay->agent : &relay->client) ||
		     hdr->source != relay->source || hdr->id != relay->id)) {
		source_reject(lc, m, from, KVR_E_NOT_ALLOWED);
		return NULL;
	}
	if (unlikely(agent && hdr->epoch != relay->epoch)) {
		source_reject(lc, m, from, code_of_epoch(lc, relay, hdr->epoch));
		return NULL;
	}
	if (unlikely(!agent && !kvr_path_same_hop(from, &relay->client)))
		send_client_hop(*p, hdr->handle, from);
	return slot;
}

static uint32_t blocks_of_tokens(uint64_t tokens, uint32_t block_size)
{
	return (uint32_t)((tokens + block_size - 1) / block_size);
}

/* Whether @pool generated tokens change the state at the scheduler, which knows seen - 1 (0: none).
 */
static bool changes_request(const struct pool *pool, uint32_t isl, uint32_t seen,
			    uint32_t generated)
{
	if (seen == 0)
		return true;
	if (generated + 1 <= seen)
		return false;
	return seen == 1 || blocks_of_tokens((uint64_t)isl + generated, pool->block_size) >
				    blocks_of_tokens((uint64_t)isl + seen - 1, pool->block_size);
}

/* Send a message about an item that changes the request. Items without a change send one every 8.6
 * s to renew the booking. @return -1: mailbox full, 1: first item of its stream. */
static int response_note(const struct lcore *lc, struct pool *pool, struct kvr_flight *slot,
			 const struct kvr_relay *relay, const struct kvr_wire_hdr *hdr,
			 const struct kvr_wire_response *w)
{
	const uint32_t seen = kvr_flight_seen(slot, hdr->handle);
	const uint32_t period = (uint32_t)(lc->now_ns >> 33);
	const struct sched_msg msg = sched_msg_of_item(hdr->handle, w);

	if ((w->flags & KVR_RESP_F_FIN) == 0 && likely(kvr_flight_active_period(slot) == period) &&
	    !changes_request(pool, relay->isl, seen, w->generated_tokens))
		return 0;
	if (unlikely(mailbox_put(pool, &msg) != 0))
		return -1;
	kvr_flight_set_active_period(slot, period);
	if (w->generated_tokens >= seen && w->generated_tokens != UINT32_MAX)
		kvr_flight_set_seen(slot, hdr->handle, w->generated_tokens);
	return seen == 0;
}

/* An item of an abandoned attempt: the client gets the items of another one. While that is
 * undecided, the item is dropped. */
static void drop_abandoned_item(struct lcore *lc, struct pool *pool, const struct kvr_flight *slot,
				const struct kvr_relay *relay, struct rte_mbuf *m)
{
	const struct kvr_wire_hdr *hdr = hdr_of(m);
	const struct kvr_wire_response_ack ack = ack_of(kvr_frame_body(hdr));
	const struct sched_msg msg = {.type = MSG_FIN_ACKED, .handle = hdr->handle};

	if (kvr_flight_relay_mode(slot) != KVR_FLIGHT_DROP) {
		drop_unrelayed(lc, m, IN_UNKNOWN_REQUEST);
		return;
	}
	if (ack.flags != 0)
		mailbox_put(pool,
			    &msg); /* if the mailbox is full, the end of lingering compensates */
	out_message(lc, &relay->agent, KVR_RESPONSE_ACK, relay->source, relay->id, hdr->handle,
		    &ack, sizeof(ack));
	drop_unrelayed(lc, m, IN_UNKNOWN_REQUEST);
}

/* An item of a prefill leg ends at the router, which acknowledges it. The data of the last one goes
 * to the scheduler, as the decode leg may need it. */
static void prefill_item(struct lcore *lc, struct pool *pool, const struct kvr_relay *relay,
			 struct rte_mbuf *m)
{
	const struct kvr_wire_hdr *hdr = hdr_of(m);
	const struct kvr_wire_response *w = kvr_frame_body(hdr);
	const bool fin = (w->flags & KVR_RESP_F_FIN) != 0;
	const struct kvr_wire_response_ack ack = ack_of(w);
	const struct sched_msg msg =
		fin ? (struct sched_msg){.type = MSG_RESULT, .handle = hdr->handle, .m = m}
		    : sched_msg_of_item(hdr->handle, w);

	if (mailbox_put(pool, &msg) != 0) {
		drop_unrelayed(lc, m, IN_RING_FULL);
		return;
	}
	in_count(lc, IN_REQUEST_FRAMES);
	out_message(lc, &relay->agent, KVR_RESPONSE_ACK, relay->source, relay->id, msg.handle, &ack,
		    sizeof(ack));
	if (!fin)
		rte_pktmbuf_free(m);
}

/* An item that is too large for its client can never arrive: the sender gets its number. Only the
 * first fragment is answered. */
static void item_too_large(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from,
			   uint32_t bytes, uint32_t most)
{
	const struct kvr_wire_response *w = kvr_frame_body(hdr_of(m));
	struct rejection why = {.code = KVR_E_TOO_LARGE, .detail = {bytes, most}};

	if (hdr_of(m)->frag_off != 0) {
		source_reject_silent(lc, m, why.code);
		return;
	}
	why.detail[2] = w->seq;
	source_reject_passed(lc, m, from, &why);
}

/* The last item for a client that sent TRACK: the scheduler adds the timing and sends it. */
static void tracked_item(struct lcore *lc, struct pool *pool, struct kvr_flight *slot,
			 struct rte_mbuf *m)
{
	const struct kvr_wire_hdr *hdr = hdr_of(m);
	const struct kvr_wire_response *w = kvr_frame_body(hdr);
	const struct sched_msg msg = {.type = MSG_LAST, .handle = hdr->handle, .m = m};
	const uint32_t seq = w->seq;
	const uint64_t handle = hdr->handle;

	if (mailbox_put(pool, &msg) != 0) {
		drop_unrelayed(lc, m, IN_RING_FULL);
		return;
	}
	kvr_flight_set_passed(slot, handle, seq, true);
	in_count(lc, IN_REQUEST_FRAMES);
}

/* A fragment of the last item of a prefill leg; its other items are short and have no receiver. */
static void result_fragment(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct kvr_wire_hdr *hdr = hdr_of(m);
	const struct kvr_wire_response *w = kvr_frame_body(hdr);

	if (unlikely(hdr->frag_off == 0 && (w->flags & KVR_RESP_F_FIN) == 0))
		source_reject(lc, m, from, KVR_E_FRAGMENT);
	else
		fragment_in(lc, m, from);
}

/*
 * A fragment of an item is relayed like a frame, and the client reassembles the item. The first
 * fragment has all fields that the router needs. The client requests lost fragments
 * (relay_missing()), so nothing is kept here.
 */
static void relay_fragment(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct kvr_wire_hdr *hdr = hdr_of(m);
	const struct kvr_wire_response *w = kvr_frame_body(hdr);
	const bool first = hdr->frag_off == 0;
	struct kvr_relay relay;
	struct pool *pool;
	struct kvr_flight *slot = slot_of(lc, m, from, true, &pool, &relay);
	uint32_t most;
	int news = 0;

	if (slot == NULL)
		return;
	if (relay.leg == KVR_LEG_PREFILL) {
		result_fragment(lc, m, from);
		return;
	}
	most = out_limit(lc, &relay.client);
	if (hdr->msg_len > KVR_WIRE_ITEM_MOST) {
		item_too_large(lc, m, from, hdr->msg_len, KVR_WIRE_ITEM_MOST);
	} else if (kvr_flight_relay_mode(slot) != KVR_FLIGHT_PASS && first) {
		drop_abandoned_item(lc, pool, slot, &relay, m);
	} else if (kvr_flight_relay_mode(slot) != KVR_FLIGHT_PASS) {
		drop_unrelayed(lc, m, IN_UNKNOWN_REQUEST);
	} else if (m->pkt_len > most) {
		item_too_large(lc, m, from, m->pkt_len, most);
	} else if (first && (news = response_note(lc, pool, slot, &relay, hdr, w)) < 0) {
		drop_unrelayed(lc, m, IN_RING_FULL);
	} else if (news > 0 && !kvr_flight_may_pass_first(slot)) {
		drop_unrelayed(lc, m, IN_UNKNOWN_REQUEST); /* the agent retransmits it */
	} else {
		if (first)
			kvr_flight_set_passed(slot, hdr->handle, w->seq,
					      (w->flags & KVR_RESP_F_FIN) != 0);
		in_count(lc, IN_RELAYED);
		out_send_fitting(lc, m, &relay.client);
	}
}

void relay_response(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct kvr_wire_hdr *hdr = hdr_of(m);
	const struct kvr_wire_response *w = kvr_frame_body(hdr);
	struct kvr_relay relay;
	struct kvr_flight *slot;
	struct pool *pool;
	uint32_t most;
	int news;

	if (unlikely(!kvr_frame_whole(hdr))) {
		relay_fragment(lc, m, from);
		return;
	}
	slot = slot_of(lc, m, from, true, &pool, &relay);
	if (slot == NULL)
		return;
	if (relay.leg == KVR_LEG_PREFILL) {
		prefill_item(lc, pool, &relay, m);
		return;
	}
	if (unlikely(kvr_flight_relay_mode(slot) != KVR_FLIGHT_PASS)) {
		drop_abandoned_item(lc, pool, slot, &relay, m);
		return;
	}
	most = out_limit(lc, &relay.client);
	if (unlikely(m->pkt_len > most)) {
		item_too_large(lc, m, from, m->pkt_len, most);
		return;
	}
	if (unlikely(relay.tracked != 0 && (w->flags & KVR_RESP_F_FIN) != 0)) {
		tracked_item(lc, pool, slot, m);
		return;
	}
	news = response_note(lc, pool, slot, &relay, hdr, w);
	if (unlikely(news < 0)) {
		drop_unrelayed(lc, m, IN_RING_FULL);
		return;
	}
	if (unlikely(news > 0 && !kvr_flight_may_pass_first(slot))) {
		drop_unrelayed(lc, m, IN_UNKNOWN_REQUEST); /* the agent retransmits it */
		return;
	}
	kvr_flight_set_passed(slot, hdr->handle, w->seq, (w->flags & KVR_RESP_F_FIN) != 0);
	in_count(lc, IN_RELAYED);
	out_send_fitting(lc, m, &relay.client);
}

void relay_response_ack(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct kvr_wire_hdr *hdr = hdr_of(m);
	const struct kvr_wire_response_ack *a = kvr_frame_body(hdr);
	const struct sched_msg msg = {.type = MSG_FIN_ACKED, .handle = hdr->handle};
	const bool fin = (a->flags & KVR_RACK_F_FIN) != 0;
	struct kvr_relay relay;
	struct kvr_flight *slot;
	struct pool *pool;

	slot = slot_of(lc, m, from, false, &pool, &relay);
	if (slot == NULL)
		return;
	if (unlikely(relay.booked)) { /* no agent has the request */
		drop_unrelayed(lc, m, IN_UNKNOWN_REQUEST);
		return;
	}
	/* The agent would forget an item that has not arrived here, perhaps the last one. When the
	 * item is retransmitted, so is the client's acknowledgement. */
	if (unlikely(!kvr_flight_may_ack(slot, hdr->handle, a->next_seq, fin))) {
		drop_unrelayed(lc, m, IN_PREMATURE_ACK);
		return;
	}
	/* If the mailbox is full, the end of lingering compensates. */
	if (fin)
		mailbox_put(pool, &msg);
	in_count(lc, IN_RELAYED);
	out_send(lc, m, &relay.agent);
}

void relay_missing(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct kvr_wire_missing *w = kvr_frame_body(hdr_of(m));
	struct kvr_relay relay;
	struct pool *pool;

	if (w->kind != KVR_RESPONSE) {
		request_from_agent(lc, m, from);
		return;
	}
	if (slot_of(lc, m, from, false, &pool, &relay) == NULL)
		return;
	/* No agent has the request, or its items are not for the client. */
	if (unlikely(relay.booked || relay.leg == KVR_LEG_PREFILL)) {
		drop_unrelayed(lc, m, IN_UNKNOWN_REQUEST);
		return;
	}
	in_count(lc, IN_RELAYED);
	out_send(lc, m, &relay.agent);
}

static void handle_progress(struct lcore *lc, struct pool *pool, struct rte_mbuf *m,
			    const struct kvr_path *from)
{
	const struct kvr_wire_hdr *hdr = hdr_of(m);
	const struct kvr_wire_progress *w = kvr_frame_body(hdr);
	const struct kvr_wire_progress_ack ack = {.next_seq = w->seq + 1};
	const struct sched_msg msg = {
		.type = MSG_PROGRESS,
		.handle = hdr->handle,
		.progress = {.tokens = w->generated_tokens,
			     .cached = w->cached_tokens,
			     .flags = w->flags},
	};

	if (mailbox_put(pool, &msg) != 0) {
		drop_unrelayed(lc, m, IN_RING_FULL);
		return;
	}
	in_count(lc, IN_REQUEST_FRAMES);
	out_message(lc, from, KVR_PROGRESS_ACK, hdr->source, hdr->id, hdr->handle, &ack,
		    sizeof(ack));
	rte_pktmbuf_free(m);
}

void request_from_agent(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct kvr_wire_hdr *hdr = hdr_of(m);
	struct sched_msg msg = {.handle = hdr->handle};
	struct kvr_relay relay;
	struct pool *pool;

	if (slot_of(lc, m, from, true, &pool, &relay) == NULL)
		return;
	if (hdr->kind == KVR_PROGRESS) {
		handle_progress(lc, pool, m, from);
		return;
	}
	msg.type = MSG_ABORT_ACK;
	if (hdr->kind == KVR_MISSING) {
		msg.type = MSG_MISSING;
		msg.m = m;
	}
	if (hdr->kind == KVR_DISPATCH_ACK) {
		msg.type = MSG_DISPATCH_ACK;
		msg.code = ((const struct kvr_wire_dispatch_ack *)kvr_frame_body(hdr))->code;
	}
	if (mailbox_put(pool, &msg) != 0) {
		drop_unrelayed(lc, m, IN_RING_FULL);
		return;
	}
	in_count(lc, IN_REQUEST_FRAMES);
	if (msg.type != MSG_MISSING)
		rte_pktmbuf_free(m);
}
