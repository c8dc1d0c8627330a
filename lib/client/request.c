/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The slot of a request and its transmission: pacing of large messages, retransmission of missing
 * fragments, probes while it runs, cancellation, and its end.
 */
#include "client_pvt.h"
#include "kvr_sim.h"

#include <stdlib.h>

#include <rte_common.h>

/* Slots are reused oldest first, so that a recent id rarely meets another request in its slot. */
static void put_free(struct kvr_client *client, struct client_req *req)
{
	const uint32_t slot = (uint32_t)(req - client->req) + 1;

	req->next_free = 0;
	if (client->free_tail != 0)
		client->req[client->free_tail - 1].next_free = slot;
	else
		client->free_head = slot;
	client->free_tail = slot;
}

static void free_items(struct client_item **list)
{
	struct client_item *it;

	while ((it = *list) != NULL) {
		*list = it->next;
		free(it);
	}
}

struct client_req *kvr_client__find(const struct kvr_client *client, uint64_t id)
{
	const uint32_t slot = (uint32_t)id;
	struct client_req *req;

	if (slot == 0 || slot > client->conf.max_requests)
		return NULL;
	req = &client->req[slot - 1];
	return req->id == id && req->state != CLIENT_FREE ? req : NULL;
}

bool kvr_client__answered(const struct kvr_client *client, uint64_t id)
{
	const uint32_t slot = (uint32_t)id;

	return slot != 0 && slot <= client->conf.max_requests && client->req[slot - 1].id == id &&
	       client->req[slot - 1].answered;
}

void kvr_client__drop_msg(struct client_req *req)
{
	free(req->msg);
	req->msg = NULL;
	free(req->again);
	req->again = NULL;
	req->n_again = 0;
}

void kvr_client__free(struct kvr_client *client, struct client_req *req)
{
	const uint64_t id = req->id;
	const bool answered =
		req->end.reason == KVR_CLIENT_FINISHED || req->end.reason == KVR_CLIENT_FAILED;

	kvr_timer_stop(&client->link.timers, &req->repeat);
	kvr_timer_stop(&client->link.timers, &req->ack);
	kvr_timer_stop(&client->link.timers, &req->limit);
	kvr_client__drop_msg(req);
	free_items(&req->held);
	free_items(&req->ready);
	free(req->reading);
	free(req->text);
	free(req->addr);
	free(req->track);
	kvr_client__away_drop(client, req);
	*req = (struct client_req){.id = id, .answered = answered};
	put_free(client, req);
}

void kvr_client__send_empty(struct kvr_client *client, struct client_req *req,
			    enum kvr_wire_kind kind)
{
	kvr_link_send(&client->link, &client->router, kind,
		      kvr_link_ids(&client->link, client->source, req->id, req->handle), NULL, 0);
}

void kvr_client__send_probe(struct kvr_client *client, struct client_req *req)
{
	static const uint8_t room[8]; /* gives the rejection of an unknown address room */

	kvr_link_send(&client->link, &client->router, KVR_PROBE,
		      kvr_link_ids(&client->link, client->source, req->id, req->handle), room,
		      sizeof(room));
}

static void schedule_repeat(struct kvr_client *client, struct client_req *req, uint32_t max_us)
{
	req->gap_us = req->backoff_us;
	kvr_link_repeat(&client->link, &req->repeat, &req->backoff_us, max_us, KVR_TIMER_NEVER);
}

void kvr_client__watch(struct kvr_client *client, struct client_req *req, enum client_state state)
{
	req->state = (uint8_t)state;
	req->backoff_us = CLIENT_PROBE_US;
	schedule_repeat(client, req, CLIENT_PROBE_MAX_US);
}

/* Send fragment @p k. */
static void send_fragment(struct kvr_client *client, const struct client_req *req, uint32_t k)
{
	struct kvr_frag f = req->frag;

	kvr_frag_seek(&f, k);
	kvr_link_send_frames(&client->link, &client->router, &f, req->msg, 1);
}

/* Retransmit up to @p max fragments that the router lacks. @return true if more remain. */
static bool send_again(struct kvr_client *client, struct client_req *req, uint32_t max)
{
	for (uint32_t w = 0; req->n_again > 0 && max > 0; w++)
		for (; req->again[w] != 0 && max > 0; max--) {
			send_fragment(client, req,
				      w * 64 + (uint32_t)__builtin_ctzll(req->again[w]));
			req->again[w] &= req->again[w] - 1;
			req->n_again--;
			client->stats.fragments_again++;
		}
	return req->n_again > 0;
}

/* Send the next frames of the ROUTE. After the last one, wait for the answer. */
static void send_route(struct kvr_client *client, struct client_req *req)
{
	const bool more = kvr_link_send_frames(&client->link, &client->router, &req->frag, req->msg,
					       req->pace);

	if (more || send_again(client, req, req->pace)) {
		kvr_link_step(&client->link, &req->repeat, client->link.now_us + CLIENT_PACE_US);
		return;
	}
	if (req->sent_on) { /* the interval to the next PROBE continues */
		req->state = CLIENT_DISPATCHED;
		kvr_timer_set(&client->link.timers, &req->repeat,
			      client->link.now_us + req->gap_us);
		return;
	}
	req->state = CLIENT_ROUTING;
	schedule_repeat(client, req, CLIENT_ROUTE_MAX_US);
}

static void send_copy(struct kvr_client *client, struct client_req *req, bool waiting)
{
	struct kvr_wire_request *w = (void *)req->msg;

	w->worker = client->cookie;
	req->state = CLIENT_SENDING;
	req->sent_on = waiting;
	req->frame_bytes = client->frame_bytes;
	/* Cannot fail: both sizes were checked before. */
	kvr_frag_init(&req->frag, req->kind, &req->ids, req->msg_len, client->frame_bytes);
	free(req->again);
	req->again = NULL;
	req->n_again = 0;
	send_route(client, req);
}

void kvr_client__start_route(struct kvr_client *client, struct client_req *req)
{
	send_copy(client, req, false);
}

/* Mark the message as retransmitted. */
static void mark_resent(struct kvr_client *client, struct client_req *req)
{
	struct kvr_wire_request *w = (void *)req->msg;

	/* Copies of a message may differ in this flag and the cookie only. */
	w->flags |= KVR_REQ_F_RESEND;
	w->worker = client->cookie;
	KVR_SIM_SOMETIMES(CLIENT_AGAIN);
	client->stats.resent++;
}

/* Retransmit the whole message; with a new number if @p another message is wanted, or if frames
 * have another size now. */
static void send_whole(struct kvr_client *client, struct client_req *req, bool another,
		       bool waiting)
{
	mark_resent(client, req);
	if (another || req->frame_bytes != client->frame_bytes)
		req->ids = kvr_link_ids(&client->link, client->source, req->id, 0);
	req->pace = RTE_MAX(req->pace / 2, CLIENT_PACE_LEAST);
	send_copy(client, req, waiting);
}

void kvr_client__restart(struct kvr_client *client, struct client_req *req)
{
	req->backoff_us = CLIENT_ROUTE_US;
	send_whole(client, req, true, false);
}

/* No answer came. If the message has several frames, the first one makes the router report missing
 * fragments or the state of the request. */
static void repeat_route(struct kvr_client *client, struct client_req *req)
{
	if (req->frag.n_frames == 1 || req->frame_bytes != client->frame_bytes) {
		send_whole(client, req, false, false);
		return;
	}
	mark_resent(client, req);
	send_fragment(client, req, 0);
	schedule_repeat(client, req, CLIENT_ROUTE_MAX_US);
}

static void reset_gap(struct client_req *req)
{
	req->gap_us = CLIENT_PROBE_US;
	req->backoff_us = 2 * CLIENT_PROBE_US;
}

void kvr_client__on_missing(struct kvr_client *client, struct client_req *req, const uint8_t *body)
{
	const struct kvr_wire_missing *m = (const void *)body;
	const uint32_t sent = kvr_frag_sent(&req->frag);
	uint64_t word;

	if (req->msg == NULL || m->kind != req->kind || m->msg_seq != req->ids.msg_seq ||
	    m->msg_len != req->msg_len || m->unit != req->frag.unit ||
	    (req->state != CLIENT_SENDING && req->state != CLIENT_ROUTING &&
	     req->state != CLIENT_DISPATCHED))
		return;
	if (req->again == NULL)
		req->again = calloc((req->frag.n_frames + 63) / 64, sizeof(*req->again));
	if (req->again == NULL)
		return;
	req->received_us = client->link.now_us;
	req->n_again = 0;
	for (uint32_t i = 0; i < (req->frag.n_frames + 63) / 64; i++) {
		const uint32_t at = i - m->first / 64, left = sent > i * 64 ? sent - i * 64 : 0;

		word = 0;
		if (at < m->n_words)
			memcpy(&word, body + sizeof(*m) + at * 8u, sizeof(word));
		/* Fragments not sent yet will be sent anyway. */
		req->again[i] = left < 64 ? word & ((UINT64_C(1) << left) - 1) : word;
		req->n_again += (uint32_t)__builtin_popcountll(req->again[i]);
	}
	if (req->n_again > sent / 4)
		req->pace = RTE_MAX(req->pace / 2, CLIENT_PACE_LEAST);
	req->sent_on = req->sent_on || req->state == CLIENT_DISPATCHED;
	if (req->sent_on)
		reset_gap(req);
	else
		req->backoff_us = CLIENT_ROUTE_US;
	if (req->state != CLIENT_SENDING) {
		req->state = CLIENT_SENDING;
		send_route(client, req);
	}
}

void kvr_client__sent_on(struct client_req *req)
{
	req->sent_on = true;
	reset_gap(req);
}

void kvr_client__resend(struct kvr_client *client, struct client_req *req)
{
	const bool several = req->frag.n_frames > 1;

	if (several) /* the fragments must arrive before the first ones expire */
		reset_gap(req);
	send_whole(client, req, several, true);
}

void kvr_client__prove(struct kvr_client *client, struct client_req *req, uint64_t cookie,
		       bool sent)
{
	const struct kvr_wire_request *w = (const void *)req->msg;

	if (req->msg == NULL || w->worker == cookie)
		return; /* an old rejection: a copy with this cookie was sent */
	client->cookie = cookie;
	if (sent) {
		req->backoff_us = CLIENT_ROUTE_US;
		send_whole(client, req, false, false);
	} else {
		kvr_client__resend(client, req);
	}
}

static void drop_held(struct client_req *req)
{
	free_items(&req->held);
	req->held_n = req->held_bytes = 0;
}

void kvr_client__set_handle(struct client_req *req, uint64_t handle)
{
	if (req->handle != handle)
		drop_held(req);
	req->handle = handle;
}

void kvr_client__start_cancel(struct kvr_client *client, struct client_req *req,
			      enum kvr_client_reason reason)
{
	kvr_client__drop_msg(req);
	kvr_timer_stop(&client->link.timers, &req->ack);
	drop_held(req);
	req->reporting = false;
	kvr_client__away_drop(client, req);
	req->state = CLIENT_CANCELLING;
	req->end_reason = (uint8_t)reason;
	if (req->kind !=
	    KVR_ROUTE) { /* the router keeps no state for queries: end at the next turn */
		req->tries = CLIENT_CANCEL_TRIES;
		kvr_timer_set(&client->link.timers, &req->repeat, client->link.now_us);
		return;
	}
	req->tries = 0;
	req->backoff_us = CLIENT_CANCEL_US;
	kvr_client__repeat(client, req);
}

static void repeat_cancel(struct kvr_client *client, struct client_req *req)
{
	if (req->tries++ == CLIENT_CANCEL_TRIES) {
		kvr_client__end_reason(client, req, req->end_reason, false);
		return;
	}
	kvr_client__send_empty(client, req, KVR_CANCEL);
	schedule_repeat(client, req, CLIENT_CANCEL_MAX_US);
}

/* The router will not send more about the request; only items may come. */
static bool expects_items_only(const struct client_req *req)
{
	return req->ended_there || req->adrift;
}

void kvr_client__repeat(struct kvr_client *client, struct client_req *req)
{
	const uint64_t patience =
		req->ended_there ? CLIENT_ENDED_US : client->conf.silence_ms * 1000ull;

	if (req->state == CLIENT_SENDING) {
		send_route(client, req);
		return;
	}
	if (req->state == CLIENT_FRESH) {
		kvr_client__start_route(client, req);
		return;
	}
	if (req->state == CLIENT_CANCELLING) {
		repeat_cancel(client, req);
		return;
	}
	if (client->link.now_us - req->received_us >= patience) {
		if (req->kind == KVR_ROUTE) /* in case the request lives on at the router */
			kvr_client__send_empty(client, req, KVR_CANCEL);
		kvr_client__end_reason(
			client, req, expects_items_only(req) ? KVR_CLIENT_LOST : KVR_CLIENT_SILENT,
			true);
		return;
	}
	if (req->state == CLIENT_ROUTING) {
		repeat_route(client, req);
		return;
	}
	if (expects_items_only(req)) {
		schedule_repeat(client, req, CLIENT_PROBE_MAX_US);
		return;
	}
	/* While the router does not answer, probe at a short interval, because it may return
	 * soon. */
	if (req->probing)
		req->backoff_us = RTE_MIN(req->backoff_us, CLIENT_NO_ANSWER_US);
	schedule_repeat(client, req, req->probing ? CLIENT_NO_ANSWER_US : CLIENT_PROBE_MAX_US);
	req->probing = true;
	KVR_SIM_SOMETIMES(CLIENT_PROBE);
	client->stats.probes++;
	kvr_client__send_probe(client, req);
}

void kvr_client__ask_all(struct kvr_client *client)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < client->conf.max_requests; i++) {
		struct client_req *req = &client->req[i];

		if (expects_items_only(req) || req->state < CLIENT_ROUTING ||
		    req->state > CLIENT_RUNNING)
			continue;
		req->backoff_us = req->state == CLIENT_ROUTING ? CLIENT_ROUTE_US : CLIENT_PROBE_US;
		kvr_link_step(&client->link, &req->repeat,
			      client->link.now_us + n++ / CLIENT_PACE_FRAMES * CLIENT_PACE_US);
	}
}

void kvr_client__report_end(struct kvr_client *client, struct client_req *req,
			    const struct kvr_client_end *e)
{
	const struct kvr_client_ops *ops = req->ops;

	if (req->end_reported)
		return;
	req->end_reported = true;
	client->live--;
	client->stats.ended++;
	req->end = *e;
	req->end.items = req->next_seq - req->ended_by_text;
	if (ops == NULL && e->text != NULL) /* kept for the reader */
		req->end.text = req->text = strdup(e->text);
	if (req->end.text == NULL)
		req->end.text = "";
	if (ops != NULL && ops->on_end != NULL)
		ops->on_end(client, req->id, &req->end, req->user);
}

void kvr_client__end(struct kvr_client *client, struct client_req *req,
		     const struct kvr_client_end *e)
{
	/* Stop everything before the callback, which may call into the library and must not find a
	 * running request. */
	kvr_client__away_drop(client, req);
	kvr_timer_stop(&client->link.timers, &req->repeat);
	kvr_timer_stop(&client->link.timers, &req->ack);
	kvr_timer_stop(&client->link.timers, &req->limit);
	req->state = CLIENT_ENDED;
	kvr_client__report_end(client, req, e);
	if (req->ops != NULL) {
		kvr_client__free(client, req);
		return;
	}
	kvr_client__drop_msg(req);
	free_items(&req->held);
}

void kvr_client__end_reason(struct kvr_client *client, struct client_req *req,
			    enum kvr_client_reason reason, bool retryable)
{
	const struct kvr_client_end e = {.reason = reason, .retryable = retryable};

	kvr_client__end(client, req, &e);
}
