/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Answers of the router about a request, ACCEPTED and REJECTED, in every state of the request. The
 * table in PROTOCOL.md defines the effect of each code; kvr_refusal() implements it.
 */
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
static void copy_addresses(struct client_req *req, const struct kvr_hints *h,
			   struct kvr_client_choice *ch)
{
	char *p = calloc(2, KVR_HINT_MAX_ADDR + 1);

	if (p == NULL)
		return;
	free(req->addr);
	req->addr = p;
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
static void report_choice(struct kvr_client *client, struct client_req *req,
			  const struct kvr_wire_accepted *w)
{
	struct kvr_client_choice ch = choice_of(w);
	struct kvr_hints h;

	if (req->accepted && same_place(&req->choice, &ch))
		return;
	if (req->book && hints_of(w, &h))
		copy_addresses(req, &h, &ch);
	req->accepted = true;
	req->choice = ch;
	if (req->ops != NULL && req->ops->on_accepted != NULL)
		req->ops->on_accepted(client, req->id, &req->choice, req->user);
}

static void on_queued(struct kvr_client *client, struct client_req *req,
		      const struct kvr_wire_accepted *w)
{
	const struct kvr_client_queue q = {.len = w->queue_len, .tokens = w->pending_tokens};

	if (req->state == CLIENT_QUEUED)
		return;
	kvr_client__watch(client, req, CLIENT_QUEUED);
	if (req->ops != NULL && req->ops->on_queued != NULL)
		req->ops->on_queued(client, req->id, &q, req->user);
}

/* Handle ACCEPTED in state DISPATCHED. @p anew: with another handle than before, because the
 * request started over. */
static void on_dispatched(struct kvr_client *client, struct client_req *req,
			  const struct kvr_wire_accepted *w, bool answers_probe, bool anew)
{
	const bool legs = w->path == KVR_WAY_BOOTSTRAP || w->path == KVR_WAY_SYNC;

	if (req->state == CLIENT_RUNNING && (!anew || req->next_seq > 0))
		return; /* older than the message that made it RUNNING */
	if (answers_probe && req->state == CLIENT_DISPATCHED && req->msg != NULL && !legs &&
	    (w->flags & KVR_ACC_F_KEPT) == 0) {
		/* The worker has not acknowledged, and only the client can send the request
		 * again. */
		kvr_client__resend(client, req);
		return;
	}
	if (req->state == CLIENT_SENDING && !req->sent_on) {
		kvr_client__sent_on(
			req); /* the router received the first frames; the others must follow */
	} else if (req->state == CLIENT_SENDING) {
		return;
	} else if (anew || req->state != CLIENT_DISPATCHED)
		kvr_client__watch(client, req, CLIENT_DISPATCHED);
	report_choice(client, req, w);
}

static void on_running(struct kvr_client *client, struct client_req *req,
		       const struct kvr_wire_accepted *w)
{
	if (req->book) /* a booking receives no item that would release the message */
		kvr_client__drop_msg(req);
	if (req->state != CLIENT_RUNNING)
		kvr_client__watch(client, req, CLIENT_RUNNING);
	report_choice(client, req, w);
}

void kvr_client__on_accepted(struct kvr_client *client, struct client_req *req,
			     const struct kvr_wire_hdr *h, const uint8_t *body)
{
	const struct kvr_wire_accepted *w = (const void *)body;
	const bool answers_probe = req->probing;
	const bool anew = h->handle != 0 && req->handle != 0 && h->handle != req->handle;
	struct kvr_hints hints;

	if (req->state == CLIENT_CANCELLING || req->state == CLIENT_FRESH ||
	    (h->handle != 0 && h->handle == req->dead_handle) ||
	    (w->state == KVR_STATE_QUERY) != req->query)
		return;
	req->received_us = client->link.now_us;
	req->probing = false;
	if (h->handle != 0 && req->next_seq == 0)
		kvr_client__set_handle(req, h->handle);
	if (req->away != NULL && hints_of(w, &hints))
		kvr_client__deliver(client, req, &hints);
	switch (w->state) {
	case KVR_STATE_QUERY:
		report_choice(client, req, w);
		if (req->state != CLIENT_CANCELLING)
			kvr_client__end_reason(client, req, KVR_CLIENT_QUERIED, false);
		break;
	case KVR_STATE_QUEUED:
		on_queued(client, req, w);
		break;
	case KVR_STATE_DISPATCHED:
		on_dispatched(client, req, w, answers_probe, anew);
		break;
	case KVR_STATE_RUNNING:
		on_running(client, req, w);
		break;
	default:
		client->stats.frames_bad++;
	}
}

static void on_ended_there(struct kvr_client *client, struct client_req *req)
{
	/* Items may still be in flight, or come directly from the agent: wait a little for the last
	 * one. */
	if (req->ended_there)
		return;
	req->ended_there = true;
	req->received_us = client->link.now_us;
	if (req->state < CLIENT_RUNNING)
		kvr_client__watch(client, req, CLIENT_RUNNING);
}

/* Report a rejection; @p goes_on: the slot is still needed. */
static void report_rejection(struct kvr_client *client, struct client_req *req,
			     const struct kvr_wire_rejected *w, bool goes_on)
{
	struct kvr_client_end e = {
		.reason = KVR_CLIENT_REJECTED, .retryable = w->retryable != 0, .code = w->code};
	char text[CLIENT_TEXT];
	const uint32_t n = RTE_MIN((uint32_t)w->text_len, CLIENT_TEXT - 1);

	memcpy(text, w + 1, n);
	text[n] = '\0';
	e.text = n != 0 ? text : kvr_code_text(w->code);
	memcpy(e.detail, w->detail, sizeof(e.detail));
	if (w->code == KVR_E_DISPATCH_FAILED || w->code == KVR_E_PREFILL_FAILED) {
		e.place_known = w->detail[1] != 0;
		e.place = (struct kvr_client_place){w->detail[1], (uint32_t)w->detail[2]};
	}
	if (goes_on)
		kvr_client__report_end(client, req, &e);
	else
		kvr_client__end(client, req, &e);
}

/* A rejection for lack of capacity applies to one copy of the ROUTE. Another copy may have been
 * accepted, and must not run after the user may have retried: cancel it. */
static void handle_no_capacity(struct kvr_client *client, struct client_req *req,
			       const struct kvr_wire_rejected *w)
{
	const struct kvr_wire_request *q = (const void *)req->msg;
	const uint64_t id = req->id;

	if ((q->flags & KVR_REQ_F_RESEND) == 0) {
		report_rejection(client, req, w, false);
		return;
	}
	report_rejection(client, req, w, true);
	if (kvr_client__find(client, id) == req && req->state != CLIENT_CANCELLING)
		kvr_client__start_cancel(client, req, KVR_CLIENT_REJECTED);
}

/* The router does not know the request. */
static void handle_unknown_request(struct kvr_client *client, struct client_req *req, bool sent)
{
	if (req->direct && req->msg == NULL) {
		KVR_SIM_SOMETIMES(CLIENT_ADRIFT);
		req->adrift = true;
		return;
	}
	req->dead_handle = req->handle;
	kvr_client__set_handle(req, 0);
	req->accepted = false;
	KVR_SIM_SOMETIMES(CLIENT_FORGOTTEN);
	if (req->msg == NULL) {
		kvr_client__end_reason(client, req, KVR_CLIENT_LOST, true);
		return;
	}
	client->stats.restarted++;
	if (sent) /* with the next retransmission, to avoid a loop of ROUTE and REJECTED */
		req->frame_bytes = 0; /* retransmit everything, as another message */
	else
		kvr_client__restart(client, req);
}

/* Return true if a rejection of message @p kind still applies to the request, which may have moved
 * on. */
static bool is_relevant(const struct client_req *req, uint8_t kind, bool sent)
{
	if (req->kind != KVR_ROUTE)
		return kind == req->kind && req->state != CLIENT_FRESH;
	if (req->state == CLIENT_FRESH)
		return false;
	if (req->state == CLIENT_CANCELLING)
		return kind == KVR_CANCEL || kind == KVR_ROUTE;
	return kind == KVR_ROUTE || (kind == KVR_PROBE && !sent) ||
	       (kind == KVR_PROGRESS && req->book);
}

void kvr_client__on_rejected(struct kvr_client *client, struct client_req *req,
			     const struct kvr_wire_hdr *h, const uint8_t *body)
{
	const struct kvr_wire_rejected *w = (const void *)body;
	const enum kvr_refusal what = kvr_refusal(w->kind, w->code, w->retryable != 0);
	const bool sent =
		req->state == CLIENT_ROUTING || (req->state == CLIENT_SENDING && !req->sent_on);

	if (!is_relevant(req, w->kind, sent) || (w->kind == KVR_PROBE && h->handle != req->handle))
		return; /* answers a PROBE sent before the request started over */
	if (w->kind == KVR_PROBE)
		req->probing = false;
	if (req->book && req->accepted && req->state == CLIENT_RUNNING &&
	    (what == KVR_REFUSAL_LINGER || what == KVR_REFUSAL_RESTART ||
	     what == KVR_REFUSAL_STOP)) {
		kvr_client__book_over(client, req);
	} else if (req->state == CLIENT_CANCELLING) {
		if (what == KVR_REFUSAL_DONE || what == KVR_REFUSAL_END ||
		    what == KVR_REFUSAL_LINGER)
			kvr_client__end_reason(client, req, req->end_reason, false);
	} else if (what == KVR_REFUSAL_END || (what == KVR_REFUSAL_FIRST && sent)) {
		report_rejection(client, req, w, false);
	} else if (what == KVR_REFUSAL_COOKIE && req->state != CLIENT_RUNNING) {
		kvr_client__prove(client, req, w->detail[0], sent);
	} else if (what == KVR_REFUSAL_BUSY && sent) {
		handle_no_capacity(client, req, w);
	} else if (what == KVR_REFUSAL_LINGER) {
		on_ended_there(client, req);
	} else if (what == KVR_REFUSAL_RESTART && (sent || w->kind == KVR_PROBE)) {
		/* A REJECTED for a ROUTE counts in these states only: a copy may have been looked
		 * up before the request was booked, and its answer may follow ACCEPTED. The next
		 * PROBE resolves this. */
		handle_unknown_request(client, req, sent);
	}
}

void kvr_client__on_late_accepted(struct client_req *req, const uint8_t *body)
{
	const struct kvr_wire_accepted *w = (const void *)body;

	if (!req->accepted && (w->state == KVR_STATE_DISPATCHED || w->state == KVR_STATE_RUNNING))
		req->choice = choice_of(w);
}
