/* SPDX-License-Identifier: BSD-3-Clause */
#include "client_pvt.h"

#include "kvr_refusal.h"

#include <stdlib.h>

#include <rte_common.h>

#include "kvr_hints.h"
#include "kvr_reason.h"
#include "kvr_sim.h"

static bool same_place(const struct kvr_client_choice *a, const struct kvr_client_choice *b)
{
	return a->worker == b->worker && a->dp_rank == b->dp_rank && a->way == b->way &&
	       a->prefill_worker == b->prefill_worker && a->prefill_dp_rank == b->prefill_dp_rank;
}

static struct kvr_client_choice choice_of(const struct kvr_wire_accepted *w)
{
	return (struct kvr_client_choice){.known = true,
					  .worker = w->worker,
					  .dp_rank = w->dp_rank,
					  .overlap_blocks = w->overlap_blocks,
					  .required_blocks = w->required_blocks,
					  .cached_tokens = w->cached_tokens,
					  .way = (enum kvr_way)w->path,
					  .prefill_worker = w->prefill_worker,
					  .prefill_dp_rank = w->prefill_dp_rank,
					  .prefill_overlap_blocks = w->prefill_overlap_blocks};
}

/* Copy the addresses of an ACCEPTED to the request. Without memory the choice has none. */
static void copy_addresses(struct client_req *r, const struct kvr_hints *h,
			   struct kvr_client_choice *ch)
{
	char *p = calloc(2, KVR_HINT_MAX_ADDR + 1);

	if (p == NULL)
		return;
	free(r->addr);
	r->addr = p;
	if ((h->present & KVR_HAS(KVR_HINT_ENGINE_ADDR)) != 0)
		ch->engine = memcpy(p, h->engine_addr.p, h->engine_addr.len);
	p += KVR_HINT_MAX_ADDR + 1;
	if ((h->present & KVR_HAS(KVR_HINT_PREFILL_ENGINE_ADDR)) != 0)
		ch->prefill_engine =
			memcpy(p, h->prefill_engine_addr.p, h->prefill_engine_addr.len);
}

/* Parse the hints of an ACCEPTED. @return false: it has none. */
static bool hints_of(const struct kvr_wire_accepted *w, struct kvr_hints *h)
{
	struct kvr_hint_lists lists; /* not used by any hint of ACCEPTED */

	return w->hints_len != 0 &&
	       kvr_hints_parse(w + 1, w->hints_len, KVR_HINTS_ACCEPTED, h, &lists) == 0;
}

/* Report the choice if it is new: for the first time, or after the request was sent to another
 * worker. */
static void report_choice(struct kvr_client *c, struct client_req *r,
			  const struct kvr_wire_accepted *w)
{
	struct kvr_client_choice ch = choice_of(w);
	struct kvr_hints h;

	if (r->accepted && same_place(&r->choice, &ch))
		return;
	if (r->book && hints_of(w, &h))
		copy_addresses(r, &h, &ch);
	r->accepted = true;
	r->choice = ch;
	if (r->ops != NULL && r->ops->on_accepted != NULL)
		r->ops->on_accepted(c, r->id, &r->choice, r->user);
}

static void on_queued(struct kvr_client *c, struct client_req *r, const struct kvr_wire_accepted *w)
{
	const struct kvr_client_queue q = {.len = w->queue_len, .tokens = w->pending_tokens};

	if (r->state == CLIENT_QUEUED)
		return;
	kvr_client__watch(c, r, CLIENT_QUEUED);
	if (r->ops != NULL && r->ops->on_queued != NULL)
		r->ops->on_queued(c, r->id, &q, r->user);
}

/* Handle ACCEPTED in state DISPATCHED. @p anew: with another handle than before, because the
 * request started over. */
static void on_dispatched(struct kvr_client *c, struct client_req *r,
			  const struct kvr_wire_accepted *w, bool answers_probe, bool anew)
{
	const bool legs = w->path == KVR_WAY_BOOTSTRAP || w->path == KVR_WAY_SYNC;

	if (r->state == CLIENT_RUNNING && (!anew || r->next_seq > 0))
		return; /* older than the message that made it RUNNING */
	if (answers_probe && r->state == CLIENT_DISPATCHED && r->msg != NULL && !legs &&
	    (w->flags & KVR_ACC_F_KEPT) == 0) {
		/* The worker has not acknowledged, and only the client can send the request
		 * again. */
		kvr_client__resend(c, r);
		return;
	}
	if (r->state == CLIENT_SENDING && !r->sent_on) {
		kvr_client__sent_on(
			r); /* the router received the first frames; the others must follow */
	} else if (r->state == CLIENT_SENDING) {
		return;
	} else if (anew || r->state != CLIENT_DISPATCHED)
		kvr_client__watch(c, r, CLIENT_DISPATCHED);
	report_choice(c, r, w);
}

static void on_running(struct kvr_client *c, struct client_req *r,
		       const struct kvr_wire_accepted *w)
{
	if (r->book) /* a booking receives no item that would release the message */
		kvr_client__drop_msg(r);
	if (r->state != CLIENT_RUNNING)
		kvr_client__watch(c, r, CLIENT_RUNNING);
	report_choice(c, r, w);
}

void kvr_client__on_accepted(struct kvr_client *c, struct client_req *r,
			     const struct kvr_wire_hdr *h, const uint8_t *body)
{
	const struct kvr_wire_accepted *w = (const void *)body;
	const bool answers_probe = r->probing;
	const bool anew = h->handle != 0 && r->handle != 0 && h->handle != r->handle;
	struct kvr_hints hints;

	if (r->state == CLIENT_CANCELLING || r->state == CLIENT_FRESH ||
	    (h->handle != 0 && h->handle == r->dead_handle) ||
	    (w->state == KVR_STATE_QUERY) != r->query)
		return;
	r->received_us = c->link.now_us;
	r->probing = false;
	if (h->handle != 0 && r->next_seq == 0)
		kvr_client__set_handle(r, h->handle);
	if (r->away != NULL && hints_of(w, &hints))
		kvr_client__deliver(c, r, &hints);
	switch (w->state) {
	case KVR_STATE_QUERY:
		report_choice(c, r, w);
		if (r->state != CLIENT_CANCELLING)
			kvr_client__end_reason(c, r, KVR_CLIENT_QUERIED, false);
		break;
	case KVR_STATE_QUEUED:
		on_queued(c, r, w);
		break;
	case KVR_STATE_DISPATCHED:
		on_dispatched(c, r, w, answers_probe, anew);
		break;
	case KVR_STATE_RUNNING:
		on_running(c, r, w);
		break;
	default:
		c->stats.frames_bad++;
	}
}

static void on_ended_there(struct kvr_client *c, struct client_req *r)
{
	/* Items may still be in flight, or come directly from the agent: wait a little for the last
	 * one. */
	if (r->ended_there)
		return;
	r->ended_there = true;
	r->received_us = c->link.now_us;
	if (r->state < CLIENT_RUNNING)
		kvr_client__watch(c, r, CLIENT_RUNNING);
}

/* Report a rejection; @p goes_on: the slot is still needed. */
static void report_rejection(struct kvr_client *c, struct client_req *r,
			     const struct kvr_wire_rejected *w, bool goes_on)
{
	struct kvr_client_end e = {
		.reason = KVR_CLIENT_REJECTED, .retryable = w->retryable != 0, .code = w->code};
	char text[CLIENT_TEXT];
	const uint32_t n = RTE_MIN((uint32_t)w->text_len, CLIENT_TEXT - 1);

	memcpy(text, w + 1, n);
	text[n] = '\0';
	e.text = n != 0 ? text : kvr_reason_words(w->code);
	memcpy(e.detail, w->detail, sizeof(e.detail));
	if (w->code == KVR_E_DISPATCH_FAILED || w->code == KVR_E_PREFILL_FAILED) {
		e.place_known = w->detail[1] != 0;
		e.place = (struct kvr_client_place){w->detail[1], (uint32_t)w->detail[2]};
	}
	if (goes_on)
		kvr_client__report_end(c, r, &e);
	else
		kvr_client__end(c, r, &e);
}

/* A rejection for lack of capacity applies to one copy of the ROUTE. Another copy may have been
 * accepted, and must not run after the user may have retried: cancel it. */
static void handle_no_capacity(struct kvr_client *c, struct client_req *r,
			       const struct kvr_wire_rejected *w)
{
	const struct kvr_wire_request *q = (const void *)r->msg;
	const uint64_t id = r->id;

	if ((q->flags & KVR_REQ_F_RESEND) == 0) {
		report_rejection(c, r, w, false);
		return;
	}
	report_rejection(c, r, w, true);
	if (kvr_client__find(c, id) == r && r->state != CLIENT_CANCELLING)
		kvr_client__start_cancel(c, r, KVR_CLIENT_REJECTED);
}

/* The router does not know the request. */
static void handle_unknown_request(struct kvr_client *c, struct client_req *r, bool sent)
{
	if (r->direct && r->msg == NULL) {
		KVR_SIM_SOMETIMES(CLIENT_ADRIFT);
		r->adrift = true;
		return;
	}
	r->dead_handle = r->handle;
	kvr_client__set_handle(r, 0);
	r->accepted = false;
	KVR_SIM_SOMETIMES(CLIENT_FORGOTTEN);
	if (r->msg == NULL) {
		kvr_client__end_reason(c, r, KVR_CLIENT_LOST, true);
		return;
	}
	c->stats.restarted++;
	if (sent) /* with the next retransmission, to avoid a loop of ROUTE and REJECTED */
		r->frame_bytes = 0; /* retransmit everything, as another message */
	else
		kvr_client__restart(c, r);
}

/* Return true if a rejection of message @p kind still applies to the request, which may have moved
 * on. */
static bool is_relevant(const struct client_req *r, uint8_t kind, bool sent)
{
	if (r->kind != KVR_ROUTE)
		return kind == r->kind && r->state != CLIENT_FRESH;
	if (r->state == CLIENT_FRESH)
		return false;
	if (r->state == CLIENT_CANCELLING)
		return kind == KVR_CANCEL || kind == KVR_ROUTE;
	return kind == KVR_ROUTE || (kind == KVR_PROBE && !sent) ||
	       (kind == KVR_PROGRESS && r->book);
}

void kvr_client__on_rejected(struct kvr_client *c, struct client_req *r,
			     const struct kvr_wire_hdr *h, const uint8_t *body)
{
	const struct kvr_wire_rejected *w = (const void *)body;
	const enum kvr_refusal what = kvr_refusal(w->kind, w->code, w->retryable != 0);
	const bool sent = r->state == CLIENT_ROUTING || (r->state == CLIENT_SENDING && !r->sent_on);

	if (!is_relevant(r, w->kind, sent) || (w->kind == KVR_PROBE && h->handle != r->handle))
		return; /* answers a PROBE sent before the request started over */
	if (w->kind == KVR_PROBE)
		r->probing = false;
	if (r->book && r->accepted && r->state == CLIENT_RUNNING &&
	    (what == KVR_REFUSAL_LINGER || what == KVR_REFUSAL_RESTART ||
	     what == KVR_REFUSAL_STOP)) {
		kvr_client__book_over(c, r);
	} else if (r->state == CLIENT_CANCELLING) {
		if (what == KVR_REFUSAL_DONE || what == KVR_REFUSAL_END ||
		    what == KVR_REFUSAL_LINGER)
			kvr_client__end_reason(c, r, r->end_reason, false);
	} else if (what == KVR_REFUSAL_END || (what == KVR_REFUSAL_FIRST && sent)) {
		report_rejection(c, r, w, false);
	} else if (what == KVR_REFUSAL_COOKIE && r->state != CLIENT_RUNNING) {
		kvr_client__prove(c, r, w->detail[0], sent);
	} else if (what == KVR_REFUSAL_BUSY && sent) {
		handle_no_capacity(c, r, w);
	} else if (what == KVR_REFUSAL_LINGER) {
		on_ended_there(c, r);
	} else if (what == KVR_REFUSAL_RESTART && (sent || w->kind == KVR_PROBE)) {
		/* A REJECTED for a ROUTE counts in these states only: a copy may have been looked
		 * up before the request was booked, and its answer may follow ACCEPTED. The next
		 * PROBE resolves this. */
		handle_unknown_request(c, r, sent);
	}
}

void kvr_client__on_late_accepted(struct client_req *r, const uint8_t *body)
{
	const struct kvr_wire_accepted *w = (const void *)body;

	if (!r->accepted && (w->state == KVR_STATE_DISPATCHED || w->state == KVR_STATE_RUNNING))
		r->choice = choice_of(w);
}
