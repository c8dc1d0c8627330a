/* SPDX-License-Identifier: BSD-3-Clause */
#include "client_pvt.h"

#include <rte_common.h>

static bool same_place(const struct kvr_client_choice *a, const struct kvr_client_choice *b)
{
	return a->worker == b->worker && a->dp_rank == b->dp_rank && a->path == b->path &&
	       a->prefill_worker == b->prefill_worker && a->prefill_dp_rank == b->prefill_dp_rank;
}

/* Tell the choice when it is new: first time, or the request was sent somewhere else. */
static void tell_choice(struct kvr_client *c, struct client_req *r,
			const struct kvr_wire_accepted *w)
{
	const struct kvr_client_choice ch = {.worker = w->worker,
					     .dp_rank = w->dp_rank,
					     .overlap_blocks = w->overlap_blocks,
					     .required_blocks = w->required_blocks,
					     .cached_tokens = w->cached_tokens,
					     .path = (enum kvr_client_path)w->path,
					     .prefill_worker = w->prefill_worker,
					     .prefill_dp_rank = w->prefill_dp_rank,
					     .prefill_overlap_blocks = w->prefill_overlap_blocks};

	if (r->accepted && same_place(&r->choice, &ch))
		return;
	r->accepted = true;
	r->choice = ch;
	if (r->ops != NULL && r->ops->on_accepted != NULL)
		r->ops->on_accepted(c, r->id, &r->choice, r->user);
}

static void queued(struct kvr_client *c, struct client_req *r, const struct kvr_wire_accepted *w)
{
	const struct kvr_client_queue q = {.len = w->queue_len, .tokens = w->pending_tokens};

	if (r->state == CLIENT_QUEUED)
		return;
	kvr_client__watch(c, r, CLIENT_QUEUED);
	if (r->ops != NULL && r->ops->on_queued != NULL)
		r->ops->on_queued(c, r->id, &q, r->user);
}

/* @p anew: under another handle than before, as a disaggregated request that starts over is. */
static void dispatched(struct kvr_client *c, struct client_req *r,
		       const struct kvr_wire_accepted *w, bool answers_probe, bool anew)
{
	const bool legs = w->path == KVR_PATH_BOOTSTRAP || w->path == KVR_PATH_SYNC;

	if (r->state == CLIENT_RUNNING && (!anew || r->next_seq > 0))
		return; /* overtaken by what made it run */
	if (answers_probe && r->state == CLIENT_DISPATCHED && r->msg != NULL && !legs &&
	    (w->flags & KVR_ACC_F_KEPT) == 0) {
		/* The worker has not acknowledged: only we can send the request again. */
		kvr_client__start_over(c, r);
		return;
	}
	if (r->state == CLIENT_SENDING)
		r->sent_on = true; /* its first frames are: the rest must follow */
	else if (r->state != CLIENT_DISPATCHED)
		kvr_client__watch(c, r, CLIENT_DISPATCHED);
	tell_choice(c, r, w);
}

static void running(struct kvr_client *c, struct client_req *r, const struct kvr_wire_accepted *w)
{
	kvr_client__drop_msg(r);
	if (r->state != CLIENT_RUNNING)
		kvr_client__watch(c, r, CLIENT_RUNNING);
	tell_choice(c, r, w);
}

void kvr_client__on_accepted(struct kvr_client *c, struct client_req *r,
			     const struct kvr_wire_hdr *h, const uint8_t *body)
{
	const struct kvr_wire_accepted *w = (const void *)body;
	const bool answers_probe = r->probing;
	const bool anew = h->handle != 0 && r->handle != 0 && h->handle != r->handle;

	if (r->state == CLIENT_CANCELLING || r->state == CLIENT_FRESH ||
	    (h->handle != 0 && h->handle == r->dead_handle) ||
	    (w->state == KVR_STATE_QUERY) != r->query)
		return;
	r->heard_us = c->link.now_us;
	r->probing = false;
	if (h->handle != 0 && r->next_seq == 0)
		r->handle = h->handle;
	switch (w->state) {
	case KVR_STATE_QUERY:
		tell_choice(c, r, w);
		if (r->state != CLIENT_CANCELLING)
			kvr_client__end_reason(c, r, KVR_CLIENT_QUERIED, false);
		break;
	case KVR_STATE_QUEUED:
		queued(c, r, w);
		break;
	case KVR_STATE_DISPATCHED:
		dispatched(c, r, w, answers_probe, anew);
		break;
	case KVR_STATE_RUNNING:
		running(c, r, w);
		break;
	default:
		c->stats.frames_bad++;
	}
}

static void ended_there(struct kvr_client *c, struct client_req *r)
{
	/* Items may still be on their way, or come directly: wait a little for the last one. */
	if (r->ended_there)
		return;
	r->ended_there = true;
	r->heard_us = c->link.now_us;
	if (r->state < CLIENT_RUNNING)
		kvr_client__watch(c, r, CLIENT_RUNNING);
}

static void refused(struct kvr_client *c, struct client_req *r, const struct kvr_wire_rejected *w)
{
	struct kvr_client_end e = {
		.reason = KVR_CLIENT_REJECTED, .retryable = w->retryable != 0, .code = w->code};
	char text[CLIENT_TEXT];
	const uint32_t n = RTE_MIN((uint32_t)w->text_len, CLIENT_TEXT - 1);

	memcpy(text, w + 1, n);
	text[n] = '\0';
	e.text = n != 0 ? text : kvr_code_name(w->code);
	memcpy(e.detail, w->detail, sizeof(e.detail));
	kvr_client__end(c, r, &e);
}

void kvr_client__on_rejected(struct kvr_client *c, struct client_req *r, const uint8_t *body)
{
	const struct kvr_wire_rejected *w = (const void *)body;

	if (r->state == CLIENT_CANCELLING) {
		if (w->kind == KVR_CANCEL || w->kind == KVR_ROUTE)
			kvr_client__end_reason(c, r, r->end_reason, false);
		return;
	}
	if (w->kind == KVR_RESPONSE_ACK || w->kind == KVR_CANCEL)
		return; /* crossed something: nothing changes */
	if (w->code == KVR_E_REASSEMBLY_FULL ||
	    (w->code < KVR_E_UNKNOWN_POOL && r->state > CLIENT_ROUTING))
		return; /* a frame was refused, not the request: repetition repairs it */
	if (w->code == KVR_E_COOKIE) {
		if (w->kind == KVR_ROUTE)
			kvr_client__prove(c, r, w->detail[0]);
		return;
	}
	r->probing = false;
	if (w->code == KVR_E_ENDED) {
		ended_there(c, r);
	} else if (w->code == KVR_E_UNKNOWN_REQUEST) {
		r->dead_handle = r->handle;
		r->handle = 0;
		r->accepted = false;
		c->stats.restarted++;
		if (r->msg != NULL)
			kvr_client__start_over(c, r);
		else
			kvr_client__end_reason(c, r, KVR_CLIENT_LOST, true);
	} else {
		refused(c, r, w);
	}
}
