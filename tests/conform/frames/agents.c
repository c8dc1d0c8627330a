/* SPDX-License-Identifier: BSD-3-Clause */
/* What workers are told of requests and sessions, and what they answer at once. */
#include "talk.h"

#include <stdlib.h>
#include <string.h>

/* Whether the worker says nothing of what it is sent. */
static bool is_mute(const struct kvr_sc_world *w, const struct peers_agent *at)
{
	const struct kvr_sc_worker *k = kvr_sc_worker_find(w, at->worker);

	return k != NULL && k->mute;
}

static void dispatched(struct kvr_sc_world *w, struct talk *t, const struct peers_agent *at,
		       const struct peers_got *g)
{
	const uint32_t leg = g->prefill_leg ? PREFILL : MAIN;
	struct peers_run *run = &t->run[leg];
	const bool mute = is_mute(w, at);

	if (run->handle == g->handle) {
		if (!mute)
			peers_taken(run); /* every copy is acknowledged */
		return;
	}
	*run = (struct peers_run){.at = *at, .id = g->id, .handle = g->handle};
	talk_leg_is(t, leg, KVR_RQS_SENT);
	if (leg == PREFILL && t->r != NULL) {
		t->r->r.room = g->room;
		/* Held for an open that is on its way behind this, or for one of the try before. */
		if (t->r->r.leg[MAIN].state != KVR_RQS_HELD || t->opening)
			t->r->r.leg[MAIN].state = KVR_RQS_UNDECIDED;
		client_prefill_line(t, g->room != 0 ? KVR_WAY_BOOTSTRAP : KVR_WAY_SYNC, NULL);
	}
	if (!mute)
		peers_taken(run);
}

void agents_fin(struct talk *t, uint32_t leg, uint16_t flags)
{
	const bool failed = (flags & (KVR_RESP_F_ERROR | KVR_RESP_F_CANCELLED)) != 0;

	talk_leg_is(t, leg, KVR_RQS_ENDED);
	t->prefilled = t->prefilled && !(leg == PREFILL && failed);
	peers_item(&t->run[leg], KVR_RESP_F_FIN | flags,
		   t->r != NULL && leg == MAIN ? (uint32_t)t->r->generated : 0,
		   leg == PREFILL && !failed ? "result" : "");
}

static void aborted(struct talk *t, const struct peers_agent *at, const struct peers_got *g)
{
	const uint32_t leg = t->run[PREFILL].handle == g->handle ? PREFILL : MAIN;
	struct peers_run old = {.at = *at, .id = g->id, .handle = g->handle};

	peers_aborted(&old);
	if (t->run[leg].handle != g->handle)
		return; /* of a try before */
	if (leg == MAIN && (g->code == KVR_E_PREFILL_FAILED || g->code == KVR_E_WORKER_LOST))
		talk_leg_is(t, leg, KVR_RQS_ENDED);
	else if (t->r == NULL || talk_works(t, leg))
		agents_fin(t, leg, KVR_RESP_F_CANCELLED);
}

/* Whether SESSION_OPEN or SESSION_CLOSE is about the session that a request names. */
static bool names(const struct kvr_sc_req *r, const struct peers_got *g)
{
	return r->session.id_len == g->session_len && frames_pool(r->pool) == g->session_pool &&
	       memcmp(r->session.id, g->session, g->session_len) == 0;
}

/* The request that opens a session now. */
static struct talk *opener(struct kvr_sc_world *w, const struct peers_got *g)
{
	struct kvr_sc_req *r;

	TAILQ_FOREACH (r, &w->live, link) {
		struct talk *t = r->own;

		if (r->session.action == KVR_RQ_OPEN && names(r, g) &&
		    !(t->opening && t->open_id == g->id) && /* no copy */
		    (t->decided[MAIN] || r->r.leg[MAIN].state == KVR_RQS_HELD) &&
		    r->r.leg[MAIN].worker == g->source)
			return t;
	}
	return NULL;
}

/* It is decided, and held; to its client it may have waited before. */
static void held(struct kvr_sc_world *w, const struct peers_got *g)
{
	struct talk *t = opener(w, g);

	if (t == NULL || !t->decided[MAIN])
		return;
	if (t->opening) { /* it has started over */
		t->r->routed = t->r->queued = false;
		t->renewed = true;
	}
	if (talk_bypassed(t))
		client_bypassed_line(t);
	client_accepted_line(t, KVR_RQS_HELD);
	t->decided[MAIN] = false;
}

static void open_line(const struct talk *t)
{
	const struct kvr_rq_order o = {.kind = KVR_RQO_OPEN};

	kvr_sc_line_session(t->r->pool->world, t->r, &o);
}

static struct kvr_sc_pool *pool_of(struct kvr_sc_world *w, uint32_t number)
{
	for (uint32_t i = 0; i < w->n_pools; i++)
		if (frames_pool(&w->pool[i]) == number)
			return &w->pool[i];
	return NULL;
}

/* Its request has another slot now than the one whose handle is the number of the open. */
static bool given_up(const struct talk *t)
{
	struct peers_life is;

	return peers_life(frames_pool(t->r->pool), t->id, &is) && is.handle != t->open_id;
}

/* Another try of a request gives the open of the one before up. */
static bool open_given_up(struct kvr_sc_world *w, const struct peers_agent *at,
			  const struct peers_got *g)
{
	const struct kvr_sc_req *r;

	TAILQ_FOREACH (r, &w->live, link) {
		struct talk *t = r->own;

		if (t->opening && t->open_at.worker == at->worker && names(r, g) && given_up(t)) {
			t->opening = false;
			return true;
		}
	}
	return false;
}

static void session_frame(struct kvr_sc_world *w, const struct peers_agent *at,
			  const struct peers_got *g)
{
	struct talk *t;

	if (g->kind == KVR_SESSION_CLOSE) {
		struct kvr_sc_pool *pool = pool_of(w, g->session_pool);

		if (frames_session_closes(pool, g->session, g->session_len, at->worker) ||
		    !open_given_up(w, at, g))
			frames_session_closed(pool, g->session, g->session_len, at->worker);
		peers_session(at, KVR_SESSION_CLOSED, g->id, 0);
		return;
	}
	t = opener(w, g);
	if (t == NULL)
		return; /* a copy */
	t->opening = true;
	t->open_id = g->id;
	t->open_at = *at;
	open_line(t);
}

#define SESSIONS_A_TURN 256u

/* What they are about is clear when all else that came with them has been seen. */
static struct peers_got later[SESSIONS_A_TURN];
static uint32_t n_later;

void agents_told(struct kvr_sc_world *w, const struct peers_agent *at, const struct peers_got *g)
{
	struct talk *t;

	switch (g->kind) {
	case KVR_WELCOME:
		frames_hello_answered(g);
		return;
	case KVR_REJECTED:
		if (g->about == KVR_HELLO)
			frames_hello_answered(g);
		return;
	case KVR_SESSION_OPEN:
		held(w, g);
		/* fall through */
	case KVR_SESSION_CLOSE:
		if (n_later == SESSIONS_A_TURN)
			abort();
		later[n_later++] = *g;
		return;
	}
	t = talk_of(g->id);
	if (t == NULL)
		return;
	if (g->kind == KVR_DISPATCH)
		dispatched(w, t, at, g);
	else if (g->kind == KVR_ABORT && !is_mute(w, at))
		aborted(t, at, g);
}

void agents_sessions(struct kvr_sc_world *w)
{
	for (uint32_t i = 0; i < n_later; i++)
		session_frame(w, frames_agent(later[i].port), &later[i]);
	n_later = 0;
}
