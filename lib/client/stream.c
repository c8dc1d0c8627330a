/* SPDX-License-Identifier: BSD-3-Clause */
#include "client_pvt.h"
#include "kvr_message.h"
#include "kvr_reason.h"
#include "kvr_sim.h"

#include <stdlib.h>

#include <rte_common.h>

/* Next time at which acknowledgements are sent: the same for all requests, so that they share a
 * burst. */
static uint64_t ack_time(const struct kvr_client *c, uint32_t most_us)
{
	return (c->link.now_us + most_us) / most_us * most_us;
}

/* Queue an acknowledgement. @param due_us latest time to send it; 0: now. */
static void put_ack(struct kvr_client *c, const struct kvr_udp_addr *to,
		    const struct kvr_wire_hdr *h, struct kvr_wire_response_ack ack, uint64_t due_us)
{
	kvr_link_send_later(&c->link, to, KVR_RESPONSE_ACK,
			    kvr_link_ids(&c->link, c->source, h->id, h->handle), &ack, sizeof(ack),
			    due_us);
}

void kvr_client__send_ack(struct kvr_client *c, struct client_req *r, uint32_t flags)
{
	const struct kvr_wire_hdr h = {.id = r->id, .handle = r->handle};
	const bool waits = (flags & KVR_RACK_F_FIN) != 0 && c->conf.ack_us != 0;

	put_ack(c, &r->item_from, &h,
		(struct kvr_wire_response_ack){.next_seq = r->next_seq, .flags = flags},
		waits ? ack_time(c, c->conf.ack_us) : 0);
	r->unacked = 0;
	r->acked = true;
	kvr_timer_stop(&c->link.timers, &r->ack);
}

void kvr_client__on_stray(struct kvr_client *c, const struct kvr_udp_addr *from,
			  const struct kvr_wire_hdr *h, const uint8_t *body)
{
	const struct kvr_wire_response *w = (const void *)body;
	const bool fin = (w->flags & KVR_RESP_F_FIN) != 0;

	KVR_SIM_SOMETIMES(CLIENT_ITEM_COPY);
	c->stats.items_repeated++;
	put_ack(c, from, h,
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
static void hold_item(struct client_req *r, const struct kvr_client_item *it)
{
	struct client_item **at = &r->held, *n;

	if (it->seq - r->next_seq > CLIENT_HOLD_ITEMS || r->held_n == CLIENT_HOLD_ITEMS ||
	    r->held_bytes + it->len > CLIENT_HOLD_BYTES)
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
	r->held_n++;
	r->held_bytes += it->len;
}

/* Return true if the reader of a request without callbacks is too far behind for @p len more
 * bytes. */
static bool reader_is_behind(const struct kvr_client *c, const struct client_req *r, uint32_t len)
{
	return r->ops == NULL && r->ready_bytes > 0 && r->ready_bytes + len > c->conf.buffer_bytes;
}

/* Append an item to the reader's list. @return false: the reader is too far behind. */
static bool store_item(struct kvr_client *c, struct client_req *r, const struct kvr_client_item *it)
{
	struct client_item *n;

	if (reader_is_behind(c, r, it->len))
		return false;
	n = copy_item(it);
	if (n == NULL)
		return false;
	if (r->ready == NULL)
		r->ready = n;
	else
		r->ready_last->next = n;
	r->ready_last = n;
	r->ready_bytes += it->len + (uint32_t)sizeof(*n);
	return true;
}

static void finish_answer(struct kvr_client *c, struct client_req *r,
			  const struct kvr_client_item *it)
{
	struct kvr_client_end e = {.reason = KVR_CLIENT_FINISHED, .status = it->status};
	char text[KVR_REASON_MAX + 1];
	struct kvr_reason words = kvr_reason_init(text, sizeof(text));

	kvr_client__send_ack(c, r, KVR_RACK_F_FIN);
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
	e.place_known = r->place_known || r->accepted;
	e.place = r->place_known ? r->place
				 : (struct kvr_client_place){r->choice.worker, r->choice.dp_rank};
	if (r->track != NULL && r->track->known)
		e.tracker = &r->track->t;
	kvr_client__end(c, r, &e);
}

/* Deliver the next item. @return false: it was the last, or the request ended. */
static bool deliver_item(struct kvr_client *c, struct client_req *r, struct kvr_client_item it)
{
	const bool fin = (it.flags & KVR_RESP_F_FIN) != 0;
	const uint64_t id = r->id;
	const uint32_t wire_flags = it.flags;

	/* An item that states why the agent stopped is not delivered. */
	it.flags &= KVR_CLIENT_ITEM_LAST | KVR_CLIENT_ITEM_ERROR | KVR_CLIENT_ITEM_TOKENS;
	if (!(fin && (wire_flags & KVR_RESP_F_CANCELLED))) {
		if (r->ops == NULL && !store_item(c, r, &it))
			return false;
		r->next_seq++;
		r->unacked++;
		c->stats.items++;
		if (r->ops != NULL && r->ops->on_item != NULL)
			r->ops->on_item(c, id, &it, r->user);
	} else {
		r->next_seq++;
		r->ended_by_text = true;
	}
	if (r->state == CLIENT_CANCELLING && !fin)
		return false;
	if (!fin)
		return true;
	it.flags = wire_flags;
	finish_answer(c, r, &it);
	return false;
}

static void schedule_ack(struct kvr_client *c, struct client_req *r, bool at_once)
{
	/* A router that gives no cookie does not prove addresses, so the agent waits for the first
	 * acknowledgement. */
	const uint32_t most = r->acked || c->cookie != 0 ? CLIENT_ACK_ITEMS : CLIENT_ACK_FIRST;

	if (at_once || r->unacked >= most)
		kvr_client__send_ack(c, r, 0);
	else if (r->unacked > 0 && !kvr_timer_running(&r->ack))
		kvr_timer_set(&c->link.timers, &r->ack, ack_time(c, CLIENT_ACK_US));
}

/* Return true if the frame belongs to the current attempt of the request. */
static bool is_current(struct kvr_client *c, struct client_req *r, const struct kvr_udp_addr *from,
		       const struct kvr_wire_hdr *h, uint16_t flags)
{
	if (h->handle == 0 || h->handle == r->dead_handle || r->query)
		return false;
	if (!r->direct && !kvr_udp_addr_equal(from, &c->router))
		return false;
	if (r->handle == h->handle)
		return true;
	/* The router stopped a previous attempt, which does not end the request. */
	if (r->handle != 0 && (flags & KVR_RESP_F_CANCELLED) != 0)
		return false;
	/* The item overtook ACCEPTED, or the request was dispatched again before its first item. */
	return r->next_seq == 0 && r->held == NULL;
}

static void deliver_held(struct kvr_client *c, struct client_req *r)
{
	bool more = true;

	while (more && r->held != NULL && r->held->item.seq == r->next_seq) {
		struct client_item *n = r->held;

		r->held = n->next;
		r->held_n--;
		r->held_bytes -= n->item.len;
		more = deliver_item(c, r, n->item);
		free(n);
	}
}

static void handle_next_item(struct kvr_client *c, struct client_req *r, struct kvr_client_item it)
{
	const uint64_t id = r->id;

	if (deliver_item(c, r, it))
		deliver_held(c, r);
	/* The callbacks may have ended the request, and its slot may be in use again. */
	if (kvr_client__find(c, id) == r && r->state == CLIENT_RUNNING)
		schedule_ack(c, r, false);
}

/* Handle an item of a request that is being cancelled: only the last one matters, its content does
 * not. */
static void handle_cancelling(struct kvr_client *c, struct client_req *r,
			      const struct kvr_udp_addr *from, const struct kvr_wire_hdr *h,
			      const uint8_t *body)
{
	const struct kvr_wire_response *w = (const void *)body;

	if ((w->flags & KVR_RESP_F_FIN) == 0)
		return;
	kvr_client__on_stray(c, from, h, body);
	kvr_client__end_reason(c, r, r->end_reason, false);
}

/* Handle the first fragment of an item of a live request. @return true: the item is wanted. */
static bool first_fragment(struct kvr_client *c, struct client_req *r,
			   const struct kvr_udp_addr *from, const struct kvr_wire_hdr *h)
{
	const struct kvr_wire_response *w = kvr_frame_body(h);

	r->item_from = *from;
	if (r->state == CLIENT_CANCELLING) {
		handle_cancelling(c, r, from, h, kvr_frame_body(h));
		return false;
	}
	if (r->handle == h->handle && w->seq < r->next_seq) {
		c->stats.items_repeated++;
		schedule_ack(c, r, true);
		return false;
	}
	return w->seq - r->next_seq <= CLIENT_HOLD_ITEMS;
}

bool kvr_client__on_fragment(struct kvr_client *c, const struct kvr_udp_addr *from,
			     const struct kvr_wire_hdr *h)
{
	const struct kvr_wire_response *w = kvr_frame_body(h);
	const bool first = h->frag_off == 0;
	struct client_req *r = kvr_client__find(c, h->id);

	if (h->msg_len > KVR_WIRE_ITEM_MOST ||
	    (first && kvr_response_check_head(w, h->msg_len, NULL) != 0)) {
		c->stats.frames_bad++;
		return false;
	}
	if (r == NULL || r->state == CLIENT_ENDED) {
		if (first)
			kvr_client__on_stray(c, from, h, kvr_frame_body(h));
		return false;
	}
	if (!is_current(c, r, from, h, first ? w->flags : 0)) {
		c->stats.frames_foreign++;
		return false;
	}
	r->received_us = c->link.now_us;
	if (first)
		return first_fragment(c, r, from, h) && !reader_is_behind(c, r, h->msg_len);
	return r->state != CLIENT_CANCELLING && !reader_is_behind(c, r, h->msg_len);
}

bool kvr_client__item_again(const struct kvr_client *c, const struct kvr_wire_hdr *h)
{
	const struct kvr_wire_response *w = kvr_frame_body(h);
	const struct client_req *r = kvr_client__find(c, h->id);
	const struct client_item *held = r != NULL ? r->held : NULL;

	while (held != NULL && held->item.seq != w->seq)
		held = held->next;
	/* The item was dropped for lack of room, or was the router's item about another attempt. */
	return r != NULL && held == NULL && w->seq >= r->next_seq;
}

void kvr_client__on_response(struct kvr_client *c, struct client_req *r,
			     const struct kvr_udp_addr *from, const struct kvr_wire_hdr *h,
			     const uint8_t *body)
{
	const struct kvr_wire_response *w = (const void *)body;
	const struct kvr_client_item it = make_item(w, body + sizeof(*w));

	if (!is_current(c, r, from, h, w->flags)) {
		c->stats.frames_foreign++;
		/* The attempt at a lost router continues if the client may have received part of
		 * it. */
		if (r->direct && h->handle != 0 && h->handle == r->dead_handle)
			kvr_client__on_stray(c, from, h, body);
		return;
	}
	if (w->hints_len != 0)
		kvr_client__track(r, w, body + sizeof(*w) + RTE_ALIGN_CEIL(w->data_len, 8u));
	r->received_us = c->link.now_us;
	r->item_from = *from;
	if (r->state == CLIENT_CANCELLING) {
		handle_cancelling(c, r, from, h, body);
		return;
	}
	kvr_client__set_handle(r, h->handle);
	r->probing = false;
	kvr_client__drop_msg(r);
	if (r->away != NULL)
		kvr_client__away_settle(c, r);
	kvr_client__watch(c, r, CLIENT_RUNNING);
	if (!r->accepted && !r->quiet && r->next_seq == 0 && it.seq == 0)
		kvr_client__send_probe(c, r); /* ACCEPTED is late: ask for it */
	if (it.seq < r->next_seq) {
		c->stats.items_repeated++;
		schedule_ack(c, r, true);
	} else if (it.seq > r->next_seq) {
		hold_item(r, &it);
	} else {
		handle_next_item(c, r, it);
	}
}
