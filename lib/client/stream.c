/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Items of an answer: ordering, delivery or storage, acknowledgements, and checks that an item
 * belongs to the current attempt.
 */
#include "client_pvt.h"
#include "kvr_message.h"
#include "kvr_reason.h"
#include "kvr_sim.h"

#include <stdlib.h>

#include <rte_common.h>

/* Next time at which acknowledgements are sent: the same for all requests, so that they share a
 * burst. */
static uint64_t ack_time(const struct kvr_client *client, uint32_t most_us)
{
	return (client->link.now_us + most_us) / most_us * most_us;
}

/* Queue an acknowledgement. @param due_us latest time to send it; 0: now. */
static void put_ack(struct kvr_client *client, const struct kvr_udp_addr *to,
		    const struct kvr_wire_hdr *h, struct kvr_wire_response_ack ack, uint64_t due_us)
{
	kvr_link_send_later(&client->link, to, KVR_RESPONSE_ACK,
			    kvr_link_ids(&client->link, client->source, h->id, h->handle), &ack,
			    sizeof(ack), due_us);
}

void kvr_client__send_ack(struct kvr_client *client, struct client_req *req, uint32_t flags)
{
	const struct kvr_wire_hdr h = {.id = req->id, .handle = req->handle};
	const bool waits = (flags & KVR_RACK_F_FIN) != 0 && client->conf.ack_us != 0;

	put_ack(client, &req->item_from, &h,
		(struct kvr_wire_response_ack){.next_seq = req->next_seq, .flags = flags},
		waits ? ack_time(client, client->conf.ack_us) : 0);
	req->unacked = 0;
	req->acked = true;
	kvr_timer_stop(&client->link.timers, &req->ack);
}

void kvr_client__on_stray(struct kvr_client *client, const struct kvr_udp_addr *from,
			  const struct kvr_wire_hdr *h, const uint8_t *body)
{
	const struct kvr_wire_response *w = (const void *)body;
	const bool fin = (w->flags & KVR_RESP_F_FIN) != 0;

	KVR_SIM_SOMETIMES(CLIENT_ITEM_COPY);
	client->stats.items_repeated++;
	put_ack(client, from, h,
		(struct kvr_wire_response_ack){.next_seq = w->seq + 1,
					       .flags = fin ? KVR_RACK_F_FIN : 0},
		0);
}

static struct kvr_client_item make_item(const struct kvr_wire_response *w, const uint8_t *data)
{
	return (struct kvr_client_item){.seq = w->seq,
					.flags = w->flags,
					.status = w->status,
					.generated_tokens = w->generated_tokens,
					.cached_tokens = w->cached_tokens,
					.data = data,
					.len = w->data_len};
}

static struct client_item *copy_item(const struct kvr_client_item *it)
{
	struct client_item *n = malloc(sizeof(*n) + it->len);

	if (n == NULL)
		return NULL;
	n->next = NULL;
	n->item = *it;
	n->item.data = memcpy(n + 1, it->data, it->len);
	return n;
}

/* Hold an item that arrived early, without duplicates. Without room it is dropped, and
 * retransmitted by its sender. */
static void hold_item(struct client_req *req, const struct kvr_client_item *it)
{
	struct client_item **at = &req->held, *n;

	if (it->seq - req->next_seq > CLIENT_HOLD_ITEMS || req->held_n == CLIENT_HOLD_ITEMS ||
	    req->held_bytes + it->len > CLIENT_HOLD_BYTES)
		return;
	while (*at != NULL && (*at)->item.seq < it->seq)
		at = &(*at)->next;
	if (*at != NULL && (*at)->item.seq == it->seq)
		return;
	n = copy_item(it);
	if (n == NULL)
		return;
	n->next = *at;
	*at = n;
	req->held_n++;
	req->held_bytes += it->len;
}

/* Return true if the reader of a request without callbacks is too far behind for @p len more
 * bytes. */
static bool reader_is_behind(const struct kvr_client *client, const struct client_req *req,
			     uint32_t len)
{
	return req->ops == NULL && req->ready_bytes > 0 &&
	       req->ready_bytes + len > client->conf.buffer_bytes;
}

/* Append an item to the reader's list. @return false: the reader is too far behind. */
static bool store_item(struct kvr_client *client, struct client_req *req,
		       const struct kvr_client_item *it)
{
	struct client_item *n;

	if (reader_is_behind(client, req, it->len))
		return false;
	n = copy_item(it);
	if (n == NULL)
		return false;
	if (req->ready == NULL)
		req->ready = n;
	else
		req->ready_last->next = n;
	req->ready_last = n;
	req->ready_bytes += it->len + (uint32_t)sizeof(*n);
	return true;
}

static void finish_answer(struct kvr_client *client, struct client_req *req,
			  const struct kvr_client_item *it)
{
	struct kvr_client_end e = {.reason = KVR_CLIENT_FINISHED, .status = it->status};
	char text[KVR_REASON_MAX + 1];
	struct kvr_reason words = kvr_reason_init(text, sizeof(text));

	kvr_client__send_ack(client, req, KVR_RACK_F_FIN);
	if ((it->flags & (KVR_RESP_F_CANCELLED | KVR_RESP_F_ERROR)) != 0) {
		kvr_reason_quote(&words, it->data, it->len);
		e.text = text;
	}
	if (it->flags & KVR_RESP_F_CANCELLED)
		e.reason = KVR_CLIENT_CANCELLED;
	else if (it->flags & KVR_RESP_F_ERROR)
		e.reason = KVR_CLIENT_FAILED;
	e.failed = (it->flags & KVR_RESP_F_FAILED) != 0;
	e.refused = (it->flags & KVR_RESP_F_REFUSED) != 0;
	e.place_known = req->place_known || req->accepted;
	e.place = req->place_known
			  ? req->place
			  : (struct kvr_client_place){req->choice.worker, req->choice.dp_rank};
	if (req->track != NULL && req->track->known)
		e.tracker = &req->track->t;
	kvr_client__end(client, req, &e);
}

/* Deliver the next item. @return false: it was the last, or the request ended. */
static bool deliver_item(struct kvr_client *client, struct client_req *req,
			 struct kvr_client_item it)
{
	const bool fin = (it.flags & KVR_RESP_F_FIN) != 0;
	const uint64_t id = req->id;
	const uint32_t wire_flags = it.flags;

	/* An item that states why the agent stopped is not delivered. */
	it.flags &= KVR_CLIENT_ITEM_LAST | KVR_CLIENT_ITEM_ERROR | KVR_CLIENT_ITEM_TOKENS;
	if (!(fin && (wire_flags & KVR_RESP_F_CANCELLED))) {
		if (req->ops == NULL && !store_item(client, req, &it))
			return false;
		req->next_seq++;
		req->unacked++;
		client->stats.items++;
		if (req->ops != NULL && req->ops->on_item != NULL)
			req->ops->on_item(client, id, &it, req->user);
	} else {
		req->next_seq++;
		req->ended_by_text = true;
	}
	if (req->state == CLIENT_CANCELLING && !fin)
		return false;
	if (!fin)
		return true;
	it.flags = wire_flags;
	finish_answer(client, req, &it);
	return false;
}

static void schedule_ack(struct kvr_client *client, struct client_req *req, bool at_once)
{
	/* A router that gives no cookie does not prove addresses, so the agent waits for the first
	 * acknowledgement. */
	const uint32_t most =
		req->acked || client->cookie != 0 ? CLIENT_ACK_ITEMS : CLIENT_ACK_FIRST;

	if (at_once || req->unacked >= most)
		kvr_client__send_ack(client, req, 0);
	else if (req->unacked > 0 && !kvr_timer_running(&req->ack))
		kvr_timer_set(&client->link.timers, &req->ack, ack_time(client, CLIENT_ACK_US));
}

/* Return true if the frame belongs to the current attempt of the request. */
static bool is_current(struct kvr_client *client, struct client_req *req,
		       const struct kvr_udp_addr *from, const struct kvr_wire_hdr *h,
		       uint16_t flags)
{
	if (h->handle == 0 || h->handle == req->dead_handle || req->query)
		return false;
	if (!req->direct && !kvr_udp_addr_equal(from, &client->router))
		return false;
	if (req->handle == h->handle)
		return true;
	/* The router stopped a previous attempt, which does not end the request. */
	if (req->handle != 0 && (flags & KVR_RESP_F_CANCELLED) != 0)
		return false;
	/* The item overtook ACCEPTED, or the request was dispatched again before its first item. */
	return req->next_seq == 0 && req->held == NULL;
}

static void deliver_held(struct kvr_client *client, struct client_req *req)
{
	bool more = true;

	while (more && req->held != NULL && req->held->item.seq == req->next_seq) {
		struct client_item *n = req->held;

		req->held = n->next;
		req->held_n--;
		req->held_bytes -= n->item.len;
		more = deliver_item(client, req, n->item);
		free(n);
	}
}

static void handle_next_item(struct kvr_client *client, struct client_req *req,
			     struct kvr_client_item it)
{
	const uint64_t id = req->id;

	if (deliver_item(client, req, it))
		deliver_held(client, req);
	/* The callbacks may have ended the request, and its slot may be in use again. */
	if (kvr_client__find(client, id) == req && req->state == CLIENT_RUNNING)
		schedule_ack(client, req, false);
}

/* Handle an item of a request that is being cancelled: only the last one matters, its content does
 * not. */
static void handle_cancelling(struct kvr_client *client, struct client_req *req,
			      const struct kvr_udp_addr *from, const struct kvr_wire_hdr *h,
			      const uint8_t *body)
{
	const struct kvr_wire_response *w = (const void *)body;

	if ((w->flags & KVR_RESP_F_FIN) == 0)
		return;
	kvr_client__on_stray(client, from, h, body);
	kvr_client__end_reason(client, req, req->end_reason, false);
}

/* Handle the first fragment of an item of a live request. @return true: the item is wanted. */
static bool first_fragment(struct kvr_client *client, struct client_req *req,
			   const struct kvr_udp_addr *from, const struct kvr_wire_hdr *h)
{
	const struct kvr_wire_response *w = kvr_frame_body(h);

	req->item_from = *from;
	if (req->state == CLIENT_CANCELLING) {
		handle_cancelling(client, req, from, h, kvr_frame_body(h));
		return false;
	}
	if (req->handle == h->handle && w->seq < req->next_seq) {
		client->stats.items_repeated++;
		schedule_ack(client, req, true);
		return false;
	}
	return w->seq - req->next_seq <= CLIENT_HOLD_ITEMS;
}

bool kvr_client__on_fragment(struct kvr_client *client, const struct kvr_udp_addr *from,
			     const struct kvr_wire_hdr *h)
{
	const struct kvr_wire_response *w = kvr_frame_body(h);
	const bool first = h->frag_off == 0;
	struct client_req *req = kvr_client__find(client, h->id);

	if (h->msg_len > KVR_WIRE_ITEM_MOST ||
	    (first && kvr_response_check_head(w, h->msg_len, NULL) != 0)) {
		client->stats.frames_bad++;
		return false;
	}
	if (req == NULL || req->state == CLIENT_ENDED) {
		if (first)
			kvr_client__on_stray(client, from, h, kvr_frame_body(h));
		return false;
	}
	if (!is_current(client, req, from, h, first ? w->flags : 0)) {
		client->stats.frames_foreign++;
		return false;
	}
	req->received_us = client->link.now_us;
	if (first)
		return first_fragment(client, req, from, h) &&
		       !reader_is_behind(client, req, h->msg_len);
	return req->state != CLIENT_CANCELLING && !reader_is_behind(client, req, h->msg_len);
}

bool kvr_client__item_again(const struct kvr_client *client, const struct kvr_wire_hdr *h)
{
	const struct kvr_wire_response *w = kvr_frame_body(h);
	const struct client_req *req = kvr_client__find(client, h->id);
	const struct client_item *held = req != NULL ? req->held : NULL;

	while (held != NULL && held->item.seq != w->seq)
		held = held->next;
	/* The item was dropped for lack of room, or was the router's item about another attempt. */
	return req != NULL && held == NULL && w->seq >= req->next_seq;
}

void kvr_client__on_response(struct kvr_client *client, struct client_req *req,
			     const struct kvr_udp_addr *from, const struct kvr_wire_hdr *h,
			     const uint8_t *body)
{
	const struct kvr_wire_response *w = (const void *)body;
	const struct kvr_client_item it = make_item(w, body + sizeof(*w));

	if (!is_current(client, req, from, h, w->flags)) {
		client->stats.frames_foreign++;
		/* The attempt at a lost router continues if the client may have received part of
		 * it. */
		if (req->direct && h->handle != 0 && h->handle == req->dead_handle)
			kvr_client__on_stray(client, from, h, body);
		return;
	}
	if (w->hints_len != 0)
		kvr_client__track(req, w, body + sizeof(*w) + RTE_ALIGN_CEIL(w->data_len, 8u));
	req->received_us = client->link.now_us;
	req->item_from = *from;
	if (req->state == CLIENT_CANCELLING) {
		handle_cancelling(client, req, from, h, body);
		return;
	}
	kvr_client__set_handle(req, h->handle);
	req->probing = false;
	kvr_client__drop_msg(req);
	if (req->away != NULL)
		kvr_client__away_settle(client, req);
	kvr_client__watch(client, req, CLIENT_RUNNING);
	if (!req->accepted && !req->quiet && req->next_seq == 0 && it.seq == 0)
		kvr_client__send_probe(client, req); /* ACCEPTED is late: ask for it */
	if (it.seq < req->next_seq) {
		client->stats.items_repeated++;
		schedule_ack(client, req, true);
	} else if (it.seq > req->next_seq) {
		hold_item(req, &it);
	} else {
		handle_next_item(client, req, it);
	}
}
