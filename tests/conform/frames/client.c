/* SPDX-License-Identifier: BSD-3-Clause */
/* What clients are told, and the lines that follow from it and from the decision log. */
#include "talk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct peers_got loads_answer;
static bool loads_there;
static enum kvr_code released; /* KVR_E_MAX: not answered */

/* The terms of the decision that a line is about. */
static void show(struct talk *t)
{
	struct kvr_sched_terms *terms = &t->r->pool->terms;

	terms->n = 0;
	if (t->d[MAIN] == NULL)
		return;
	t->r->d = t->d[MAIN]->d;
	t->r->msg.hints.policy_class = t->r->d.policy_class;
	terms->n = t->d[MAIN]->n_terms;
	memcpy(terms->v, t->d[MAIN]->term, terms->n * sizeof(terms->v[0]));
}

/* ---- the client is told ------------------------------------------------------------------ */

/* The client has heard the last word. */
void client_heard_all(struct kvr_sc_world *w, struct talk *t)
{
	struct kvr_sc_req *r = t->r;

	if (r == NULL || r->r.notified == KVR_RQ_OVER)
		return;
	r->r.notified = KVR_RQ_OVER;
	if (t->opening)
		frames_session_dropped(r->pool, r);
	t->opening = false;
	if (t->closed)
		frames_session_closer_over(r->pool, r);
	kvr_sc_req_over(r);
	if (r->msg.book)
		talk_leg_is(t, PREFILL, KVR_RQS_ENDED);
	if (!talk_works(t, MAIN) || r->msg.book)
		talk_leg_is(t, MAIN, KVR_RQS_ENDED);
}

void client_prefill_line(struct talk *t, uint8_t way, const struct kvr_wire_accepted *a)
{
	struct kvr_leg *l = &t->r->r.leg[PREFILL];

	t->r->r.way = way;
	if (a != NULL && way != KVR_WAY_BYPASSED) {
		l->worker = a->prefill_worker;
		l->dp_rank = a->prefill_dp_rank;
		l->overlap_blocks = a->prefill_overlap_blocks;
	}
	t->decided[PREFILL] = false;
	kvr_sc_line_prefill(t->r);
}

/* Decided, and refused before any frame could say so: the decision log has it. */
static void prefill_in_vain(struct talk *t)
{
	if (t->decided[PREFILL])
		client_prefill_line(t,
				    frames_bootstraps(t->r->r.leg[PREFILL].worker)
					    ? KVR_WAY_BOOTSTRAP
					    : KVR_WAY_SYNC,
				    NULL);
}

void client_bypassed_line(struct talk *t)
{
	struct peers_life is = {.try = 0};

	peers_life(frames_pool(t->r->pool), t->id, &is);
	t->bypass_told = is.try + 1;
	t->failed[PREFILL] = false;
	client_prefill_line(t, KVR_WAY_BYPASSED, NULL);
}

void client_accepted_line(struct talk *t, enum kvr_rq_state state)
{
	struct kvr_leg *l = &t->r->r.leg[MAIN];
	const uint8_t is = l->state;

	show(t);
	l->state = (uint8_t)state;
	kvr_sc_line_accepted(t->r);
	if (is == KVR_RQS_SENT || is == KVR_RQS_RUNNING)
		l->state = is;
}

/* What the frame says counts; the decision log adds what it cannot say. */
static void served(struct talk *t, const struct kvr_wire_accepted *a, enum kvr_rq_state state)
{
	struct kvr_sched_decision *d = t->d[MAIN] != NULL ? &t->d[MAIN]->d : NULL;

	if (d == NULL) {
		fprintf(stderr, "frames: ACCEPTED without a decision\n");
		exit(3);
	}
	d->worker = a->worker;
	d->dp_rank = a->dp_rank;
	d->overlap_blocks = a->overlap_blocks;
	d->required_blocks = a->required_blocks;
	d->cached_tokens = a->cached_tokens;
	t->r->r.way = (uint8_t)a->path;
	t->r->r.leg[PREFILL].worker = a->prefill_worker;
	t->r->r.leg[PREFILL].dp_rank = a->prefill_dp_rank;
	t->r->r.leg[PREFILL].overlap_blocks = a->prefill_overlap_blocks;
	if (t->r->msg.book && t->r->r.way != KVR_WAY_AGGREGATED && t->r->r.way != KVR_WAY_BYPASSED)
		client_prefill_line(t, t->r->r.way, a);
	client_accepted_line(t, state);
	t->decided[MAIN] = false;
}

static void accepted(struct kvr_sc_world *w, struct talk *t, const struct peers_got *g)
{
	const struct kvr_wire_accepted *a = &g->accepted;
	struct kvr_sc_req *r = t->r;

	if (r == NULL || r->r.notified == KVR_RQ_OVER || t->again)
		return;
	t->arriving = false;
	if (t->handle != 0 && t->handle != g->handle && !t->renewed) /* it has started over */
		r->routed = r->queued = false;
	t->renewed = false;
	t->handle = g->handle;
	if (talk_bypassed(t) || (a->state == KVR_STATE_QUERY && a->path == KVR_WAY_BYPASSED))
		client_bypassed_line(t);
	switch (a->state) {
	case KVR_STATE_QUERY:
		if (a->path == KVR_WAY_BOOTSTRAP || a->path == KVR_WAY_SYNC)
			client_prefill_line(t, (uint8_t)a->path, a);
		served(t, a, KVR_RQS_FREE);
		client_heard_all(w, t);
		break;
	case KVR_STATE_QUEUED:
		/* One that is held for a session has been told of when that was opened. */
		if (!r->queued && !r->routed &&
		    !(talk_works(t, PREFILL) && r->r.way == KVR_WAY_SYNC)) {
			client_accepted_line(t, KVR_RQS_QUEUED);
		} else if (!r->routed && talk_works(t, PREFILL)) {
			talk_leg_is(t, MAIN, KVR_RQS_UNDECIDED);
		}
		break;
	default:
		served(t, a, r->msg.book ? KVR_RQS_RUNNING : KVR_RQS_SENT);
	}
}

static bool has_line(const struct talk *t, const struct peers_got *g)
{
	return t->again || t->arriving || t->failed[MAIN] || t->failed[PREFILL] ||
	       (g->code == KVR_E_SESSION_OPEN_FAILED && g->retryable);
}

static void open_failed_line(const struct talk *t)
{
	const struct kvr_sc_req *r = t->r;
	const struct kvr_leg *l = &r->r.leg[MAIN];
	const struct kvr_rq_order o = {
		.kind = KVR_RQO_SESSION,
		.how = KVR_RQ_OPEN_FAILED,
		.session = {r->session.id, r->session.id_len, .to = {l->worker, l->dp_rank, 0}}};

	kvr_sc_line_session(r->pool->world, r, &o);
}

void client_released_lines(struct talk *t)
{
	struct peers_life is;

	if (!peers_life(frames_pool(t->r->pool), t->id, &is))
		return;
	for (uint32_t leg = MAIN; leg <= PREFILL; leg++) {
		if (is.released[leg] && !t->released[leg])
			kvr_sc_line_expired(t->r);
		t->released[leg] = is.released[leg];
	}
}

void client_rejected(struct kvr_sc_world *w, struct talk *t, const struct peers_got *g)
{
	struct kvr_rq_why why = {.code = g->code, .retryable = g->retryable};
	struct kvr_sc_req *r = t->r;

	if (r == NULL || r->r.notified == KVR_RQ_OVER)
		return;
	memcpy(why.detail, g->detail, sizeof(why.detail));
	if (talk_renewed(t) && !t->renewed)
		r->routed = r->queued = false;
	if (t->failed[MAIN] || t->failed[PREFILL])
		r->d = t->d[t->failed[MAIN] ? MAIN : PREFILL]->d;
	r->decided_by = t->failed[PREFILL] && !t->failed[MAIN] ? r->pool->peer : r->pool;
	r->d.policy_class = g->policy_class;
	prefill_in_vain(t);
	if (talk_bypassed(t))
		client_bypassed_line(t);
	if (has_line(t, g))
		kvr_sc_line_rejected(r, &why);
	else if (g->code == KVR_E_SESSION_OPEN_FAILED)
		open_failed_line(t);
	if (!t->again)
		client_heard_all(w, t);
	t->again = t->arriving = false;
}

void client_told(struct kvr_sc_world *w, const struct peers_got *g)
{
	struct talk *t = talk_of(g->id);

	if (g->kind == KVR_LOADS || (g->kind == KVR_REJECTED && g->about == KVR_POTENTIAL_LOADS)) {
		loads_answer = *g;
		loads_there = true;
		return;
	}
	if (g->kind == KVR_SESSION_RELEASED ||
	    (g->kind == KVR_REJECTED && g->about == KVR_SESSION_RELEASE)) {
		released = (enum kvr_code)g->code;
		return;
	}
	if (t == NULL)
		return;
	switch (g->kind) {
	case KVR_ACCEPTED:
		accepted(w, t, g);
		break;
	case KVR_REJECTED:
		client_rejected(w, t, g);
		break;
	case KVR_RESPONSE:
		if (g->fin) {
			peers_fin_acked(g->id, g->handle, g->seq);
			client_heard_all(w, t);
		}
		break;
	case KVR_CANCELLED:
		client_heard_all(w, t);
		break;
	}
}

void client_release_asked(void)
{
	released = KVR_E_MAX;
}

enum kvr_code client_release(void)
{
	if (released == KVR_E_MAX) {
		fprintf(stderr, "frames: SESSION_RELEASE has no answer\n");
		exit(3);
	}
	return released;
}

void client_loads_asked(void)
{
	loads_there = false;
}

const struct peers_got *client_loads(void)
{
	return loads_there && loads_answer.kind == KVR_LOADS ? &loads_answer : NULL;
}
