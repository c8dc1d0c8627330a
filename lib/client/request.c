/* SPDX-License-Identifier: BSD-3-Clause */
#include "client_pvt.h"
#include "kvr_sim.h"

#include <stdlib.h>

#include <rte_common.h>

/* Slots are reused oldest first, so that a recent id rarely meets another request in its slot. */
static void put_free(struct kvr_client *c, struct client_req *r)
{
	const uint32_t slot = (uint32_t)(r - c->req) + 1;

	r->next_free = 0;
	if (c->free_tail != 0)
		c->req[c->free_tail - 1].next_free = slot;
	else
		c->free_head = slot;
	c->free_tail = slot;
}

static void free_items(struct client_item **list)
{
	struct client_item *it;

	while ((it = *list) != NULL) {
		*list = it->next;
		free(it);
	}
}

struct client_req *kvr_client__find(const struct kvr_client *c, uint64_t id)
{
	const uint32_t slot = (uint32_t)id;
	struct client_req *r;

	if (slot == 0 || slot > c->conf.max_requests)
		return NULL;
	r = &c->req[slot - 1];
	return r->id == id && r->state != CLIENT_FREE ? r : NULL;
}

bool kvr_client__answered(const struct kvr_client *c, uint64_t id)
{
	const uint32_t slot = (uint32_t)id;

	return slot != 0 && slot <= c->conf.max_requests && c->req[slot - 1].id == id &&
	       c->req[slot - 1].answered;
}

void kvr_client__drop_msg(struct client_req *r)
{
	free(r->msg);
	r->msg = NULL;
	free(r->again);
	r->again = NULL;
	r->n_again = 0;
}

void kvr_client__free(struct kvr_client *c, struct client_req *r)
{
	const uint64_t id = r->id;
	const bool answered =
		r->end.reason == KVR_CLIENT_FINISHED || r->end.reason == KVR_CLIENT_FAILED;

	kvr_timer_stop(&c->link.timers, &r->repeat);
	kvr_timer_stop(&c->link.timers, &r->ack);
	kvr_timer_stop(&c->link.timers, &r->limit);
	kvr_client__drop_msg(r);
	free_items(&r->held);
	free_items(&r->ready);
	free(r->reading);
	free(r->text);
	free(r->addr);
	free(r->track);
	kvr_client__away_drop(c, r);
	*r = (struct client_req){.id = id, .answered = answered};
	put_free(c, r);
}

void kvr_client__send_empty(struct kvr_client *c, struct client_req *r, enum kvr_wire_kind kind)
{
	kvr_link_send(&c->link, &c->router, kind,
		      kvr_link_ids(&c->link, c->source, r->id, r->handle), NULL, 0);
}

void kvr_client__send_probe(struct kvr_client *c, struct client_req *r)
{
	static const uint8_t room[8]; /* gives the rejection of an unknown address room */

	kvr_link_send(&c->link, &c->router, KVR_PROBE,
		      kvr_link_ids(&c->link, c->source, r->id, r->handle), room, sizeof(room));
}

static void schedule_repeat(struct kvr_client *c, struct client_req *r, uint32_t max_us)
{
	r->gap_us = r->backoff_us;
	kvr_link_repeat(&c->link, &r->repeat, &r->backoff_us, max_us, KVR_TIMER_NEVER);
}

void kvr_client__watch(struct kvr_client *c, struct client_req *r, enum client_state state)
{
	r->state = (uint8_t)state;
	r->backoff_us = CLIENT_PROBE_US;
	schedule_repeat(c, r, CLIENT_PROBE_MAX_US);
}

/* Send fragment @p k. */
static void send_fragment(struct kvr_client *c, const struct client_req *r, uint32_t k)
{
	struct kvr_frag f = r->frag;

	kvr_frag_seek(&f, k);
	kvr_link_send_frames(&c->link, &c->router, &f, r->msg, 1);
}

/* Retransmit up to @p max fragments that the router lacks. @return true if more remain. */
static bool send_again(struct kvr_client *c, struct client_req *r, uint32_t max)
{
	for (uint32_t w = 0; r->n_again > 0 && max > 0; w++)
		for (; r->again[w] != 0 && max > 0; max--) {
			send_fragment(c, r, w * 64 + (uint32_t)__builtin_ctzll(r->again[w]));
			r->again[w] &= r->again[w] - 1;
			r->n_again--;
			c->stats.fragments_again++;
		}
	return r->n_again > 0;
}

/* Send the next frames of the ROUTE. After the last one, wait for the answer. */
static void send_route(struct kvr_client *c, struct client_req *r)
{
	const bool more = kvr_link_send_frames(&c->link, &c->router, &r->frag, r->msg, r->pace);

	if (more || send_again(c, r, r->pace)) {
		kvr_link_step(&c->link, &r->repeat, c->link.now_us + CLIENT_PACE_US);
		return;
	}
	if (r->sent_on) { /* the interval to the next PROBE continues */
		r->state = CLIENT_DISPATCHED;
		kvr_timer_set(&c->link.timers, &r->repeat, c->link.now_us + r->gap_us);
		return;
	}
	r->state = CLIENT_ROUTING;
	schedule_repeat(c, r, CLIENT_ROUTE_MAX_US);
}

static void send_copy(struct kvr_client *c, struct client_req *r, bool waiting)
{
	struct kvr_wire_request *w = (void *)r->msg;

	w->worker = c->cookie;
	r->state = CLIENT_SENDING;
	r->sent_on = waiting;
	r->frame_bytes = c->frame_bytes;
	/* Cannot fail: both sizes were checked before. */
	kvr_frag_init(&r->frag, r->kind, &r->ids, r->msg_len, c->frame_bytes);
	free(r->again);
	r->again = NULL;
	r->n_again = 0;
	send_route(c, r);
}

void kvr_client__start_route(struct kvr_client *c, struct client_req *r)
{
	send_copy(c, r, false);
}

/* Mark the message as retransmitted. */
static void mark_resent(struct kvr_client *c, struct client_req *r)
{
	struct kvr_wire_request *w = (void *)r->msg;

	/* Copies of a message may differ in this flag and the cookie only. */
	w->flags |= KVR_REQ_F_RESEND;
	w->worker = c->cookie;
	KVR_SIM_SOMETIMES(CLIENT_AGAIN);
	c->stats.resent++;
}

/* Retransmit the whole message; with a new number if @p another message is wanted, or if frames
 * have another size now. */
static void send_whole(struct kvr_client *c, struct client_req *r, bool another, bool waiting)
{
	mark_resent(c, r);
	if (another || r->frame_bytes != c->frame_bytes)
		r->ids = kvr_link_ids(&c->link, c->source, r->id, 0);
	r->pace = RTE_MAX(r->pace / 2, CLIENT_PACE_LEAST);
	send_copy(c, r, waiting);
}

void kvr_client__restart(struct kvr_client *c, struct client_req *r)
{
	r->backoff_us = CLIENT_ROUTE_US;
	send_whole(c, r, true, false);
}

/* No answer came. If the message has several frames, the first one makes the router report missing
 * fragments or the state of the request. */
static void repeat_route(struct kvr_client *c, struct client_req *r)
{
	if (r->frag.n_frames == 1 || r->frame_bytes != c->frame_bytes) {
		send_whole(c, r, false, false);
		return;
	}
	mark_resent(c, r);
	send_fragment(c, r, 0);
	schedule_repeat(c, r, CLIENT_ROUTE_MAX_US);
}

static void reset_gap(struct client_req *r)
{
	r->gap_us = CLIENT_PROBE_US;
	r->backoff_us = 2 * CLIENT_PROBE_US;
}

void kvr_client__on_missing(struct kvr_client *c, struct client_req *r, const uint8_t *body)
{
	const struct kvr_wire_missing *m = (const void *)body;
	const uint32_t sent = kvr_frag_sent(&r->frag);
	uint64_t word;

	if (r->msg == NULL || m->kind != r->kind || m->msg_seq != r->ids.msg_seq ||
	    m->msg_len != r->msg_len || m->unit != r->frag.unit ||
	    (r->state != CLIENT_SENDING && r->state != CLIENT_ROUTING &&
	     r->state != CLIENT_DISPATCHED))
		return;
	if (r->again == NULL)
		r->again = calloc((r->frag.n_frames + 63) / 64, sizeof(*r->again));
	if (r->again == NULL)
		return;
	r->received_us = c->link.now_us;
	r->n_again = 0;
	for (uint32_t i = 0; i < (r->frag.n_frames + 63) / 64; i++) {
		const uint32_t at = i - m->first / 64, left = sent > i * 64 ? sent - i * 64 : 0;

		word = 0;
		if (at < m->n_words)
			memcpy(&word, body + sizeof(*m) + at * 8u, sizeof(word));
		/* Fragments not sent yet will be sent anyway. */
		r->again[i] = left < 64 ? word & ((UINT64_C(1) << left) - 1) : word;
		r->n_again += (uint32_t)__builtin_popcountll(r->again[i]);
	}
	if (r->n_again > sent / 4)
		r->pace = RTE_MAX(r->pace / 2, CLIENT_PACE_LEAST);
	r->sent_on = r->sent_on || r->state == CLIENT_DISPATCHED;
	if (r->sent_on)
		reset_gap(r);
	else
		r->backoff_us = CLIENT_ROUTE_US;
	if (r->state != CLIENT_SENDING) {
		r->state = CLIENT_SENDING;
		send_route(c, r);
	}
}

void kvr_client__sent_on(struct client_req *r)
{
	r->sent_on = true;
	reset_gap(r);
}

void kvr_client__resend(struct kvr_client *c, struct client_req *r)
{
	const bool several = r->frag.n_frames > 1;

	if (several) /* the fragments must arrive before the first ones expire */
		reset_gap(r);
	send_whole(c, r, several, true);
}

void kvr_client__prove(struct kvr_client *c, struct client_req *r, uint64_t cookie, bool sent)
{
	const struct kvr_wire_request *w = (const void *)r->msg;

	if (r->msg == NULL || w->worker == cookie)
		return; /* an old rejection: a copy with this cookie was sent */
	c->cookie = cookie;
	if (sent) {
		r->backoff_us = CLIENT_ROUTE_US;
		send_whole(c, r, false, false);
	} else {
		kvr_client__resend(c, r);
	}
}

static void drop_held(struct client_req *r)
{
	free_items(&r->held);
	r->held_n = r->held_bytes = 0;
}

void kvr_client__set_handle(struct client_req *r, uint64_t handle)
{
	if (r->handle != handle)
		drop_held(r);
	r->handle = handle;
}

void kvr_client__start_cancel(struct kvr_client *c, struct client_req *r,
			      enum kvr_client_reason reason)
{
	kvr_client__drop_msg(r);
	kvr_timer_stop(&c->link.timers, &r->ack);
	drop_held(r);
	r->reporting = false;
	kvr_client__away_drop(c, r);
	r->state = CLIENT_CANCELLING;
	r->end_reason = (uint8_t)reason;
	if (r->kind !=
	    KVR_ROUTE) { /* the router keeps no state for queries: end at the next turn */
		r->tries = CLIENT_CANCEL_TRIES;
		kvr_timer_set(&c->link.timers, &r->repeat, c->link.now_us);
		return;
	}
	r->tries = 0;
	r->backoff_us = CLIENT_CANCEL_US;
	kvr_client__repeat(c, r);
}

static void repeat_cancel(struct kvr_client *c, struct client_req *r)
{
	if (r->tries++ == CLIENT_CANCEL_TRIES) {
		kvr_client__end_reason(c, r, r->end_reason, false);
		return;
	}
	kvr_client__send_empty(c, r, KVR_CANCEL);
	schedule_repeat(c, r, CLIENT_CANCEL_MAX_US);
}

/* The router will not send more about the request; only items may come. */
static bool expects_items_only(const struct client_req *r)
{
	return r->ended_there || r->adrift;
}

void kvr_client__repeat(struct kvr_client *c, struct client_req *r)
{
	const uint64_t patience = r->ended_there ? CLIENT_ENDED_US : c->conf.silence_ms * 1000ull;

	if (r->state == CLIENT_SENDING) {
		send_route(c, r);
		return;
	}
	if (r->state == CLIENT_FRESH) {
		kvr_client__start_route(c, r);
		return;
	}
	if (r->state == CLIENT_CANCELLING) {
		repeat_cancel(c, r);
		return;
	}
	if (c->link.now_us - r->received_us >= patience) {
		if (r->kind == KVR_ROUTE) /* in case the request lives on at the router */
			kvr_client__send_empty(c, r, KVR_CANCEL);
		kvr_client__end_reason(
			c, r, expects_items_only(r) ? KVR_CLIENT_LOST : KVR_CLIENT_SILENT, true);
		return;
	}
	if (r->state == CLIENT_ROUTING) {
		repeat_route(c, r);
		return;
	}
	if (expects_items_only(r)) {
		schedule_repeat(c, r, CLIENT_PROBE_MAX_US);
		return;
	}
	/* While the router does not answer, probe at a short interval, because it may return
	 * soon. */
	if (r->probing)
		r->backoff_us = RTE_MIN(r->backoff_us, CLIENT_NO_ANSWER_US);
	schedule_repeat(c, r, r->probing ? CLIENT_NO_ANSWER_US : CLIENT_PROBE_MAX_US);
	r->probing = true;
	KVR_SIM_SOMETIMES(CLIENT_PROBE);
	c->stats.probes++;
	kvr_client__send_probe(c, r);
}

void kvr_client__ask_all(struct kvr_client *c)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->conf.max_requests; i++) {
		struct client_req *r = &c->req[i];

		if (expects_items_only(r) || r->state < CLIENT_ROUTING || r->state > CLIENT_RUNNING)
			continue;
		r->backoff_us = r->state == CLIENT_ROUTING ? CLIENT_ROUTE_US : CLIENT_PROBE_US;
		kvr_link_step(&c->link, &r->repeat,
			      c->link.now_us + n++ / CLIENT_PACE_FRAMES * CLIENT_PACE_US);
	}
}

void kvr_client__report_end(struct kvr_client *c, struct client_req *r,
			    const struct kvr_client_end *e)
{
	const struct kvr_client_ops *ops = r->ops;

	if (r->end_reported)
		return;
	r->end_reported = true;
	c->live--;
	c->stats.ended++;
	r->end = *e;
	r->end.items = r->next_seq - r->ended_by_text;
	if (ops == NULL && e->text != NULL) /* kept for the reader */
		r->end.text = r->text = strdup(e->text);
	if (r->end.text == NULL)
		r->end.text = "";
	if (ops != NULL && ops->on_end != NULL)
		ops->on_end(c, r->id, &r->end, r->user);
}

void kvr_client__end(struct kvr_client *c, struct client_req *r, const struct kvr_client_end *e)
{
	/* Stop everything before the callback, which may call into the library and must not find a
	 * running request. */
	kvr_client__away_drop(c, r);
	kvr_timer_stop(&c->link.timers, &r->repeat);
	kvr_timer_stop(&c->link.timers, &r->ack);
	kvr_timer_stop(&c->link.timers, &r->limit);
	r->state = CLIENT_ENDED;
	kvr_client__report_end(c, r, e);
	if (r->ops != NULL) {
		kvr_client__free(c, r);
		return;
	}
	kvr_client__drop_msg(r);
	free_items(&r->held);
}

void kvr_client__end_reason(struct kvr_client *c, struct client_req *r,
			    enum kvr_client_reason reason, bool retryable)
{
	const struct kvr_client_end e = {.reason = reason, .retryable = retryable};

	kvr_client__end(c, r, &e);
}
