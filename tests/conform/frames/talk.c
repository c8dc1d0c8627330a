/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests: what is known of them, and the talk between router, clients and workers, which
 * acknowledge what they are sent at once.
 */
#include "talk.h"

#include <stdlib.h>

static struct talk **talks; /* by id */
static uint64_t n_talks;
static uint32_t settled = UINT32_MAX; /* peers_said at the last look */

struct talk *talk_of(uint64_t id)
{
	return id < n_talks ? talks[id] : NULL;
}

struct talk *talk_new(struct kvr_sc_req *r)
{
	struct talk *t = calloc(1, sizeof(*t));

	if ((n_talks & (n_talks - 1)) == 0)
		talks = realloc(talks, (n_talks == 0 ? 1 : 2 * n_talks) * sizeof(*talks));
	if (t == NULL || talks == NULL)
		abort();
	t->r = r;
	t->id = n_talks;
	talks[n_talks++] = t;
	return t;
}

bool talk_works(const struct talk *t, uint32_t leg)
{
	return t->r != NULL && (t->r->r.leg[leg].state == KVR_RQS_SENT ||
				t->r->r.leg[leg].state == KVR_RQS_RUNNING);
}

void talk_leg_is(struct talk *t, uint32_t leg, enum kvr_rq_state state)
{
	if (t->r != NULL)
		t->r->r.leg[leg].state = (uint8_t)state;
}

/* ---- decisions --------------------------------------------------------------------------- */

static void decision(struct kvr_sc_pool *pool, const struct peers_decision *d)
{
	struct talk *t = talk_of(d->id);
	uint32_t leg;

	if (t == NULL || t->r == NULL)
		return;
	leg = t->r->pool == pool ? MAIN : PREFILL;
	if (t->d[leg] == NULL)
		t->d[leg] = malloc(sizeof(*d));
	*t->d[leg] = *d;
	t->failed[leg] = d->d.result == KVR_SCHED_ERROR;
	t->decided[leg] = !t->failed[leg];
	if (leg == PREFILL)
		t->prefilled = !t->failed[leg];
	if (t->failed[leg])
		return;
	t->r->r.leg[leg].worker = d->d.worker;
	t->r->r.leg[leg].dp_rank = d->d.dp_rank;
	t->r->r.leg[leg].overlap_blocks = d->d.overlap_blocks;
	if (leg == MAIN && d->d.result == KVR_SCHED_ROUTED &&
	    t->r->session.action == KVR_RQ_CLOSE && !t->closed) {
		t->closed = true;
		frames_session_closer(pool, t->r);
	}
}

static void decisions(struct kvr_sc_world *w)
{
	static struct peers_decision d;

	for (uint32_t i = 0; i < w->n_pools; i++)
		while (peers_decision(frames_pool(&w->pool[i]), &d))
			decision(&w->pool[i], &d);
}

bool talk_is_half(const struct kvr_sc_req *r)
{
	return r->pool->peer != NULL && r->pool->conf.role == KVR_ROLE_DECODE &&
	       !r->msg.req.probe; /* that takes one alone */
}

bool talk_bypassed(const struct talk *t)
{
	struct peers_life is;

	if (!talk_is_half(t->r))
		return false;
	if (peers_life(frames_pool(t->r->pool), t->id, &is))
		return is.way == KVR_WAY_BYPASSED && t->bypass_told != is.try + 1;
	/* No worker was told of it. */
	return t->failed[MAIN] && t->bypass_told == 0 && !t->prefilled;
}

bool talk_renewed(const struct talk *t)
{
	struct peers_life is;

	return t->handle != 0 && peers_life(frames_pool(t->r->pool), t->id, &is) &&
	       is.handle != t->handle;
}

/* Write the lines of events without a frame: a waiting request is bypassed, a booking released. */
static void write_frameless_lines(struct kvr_sc_world *w)
{
	struct kvr_sc_req *r;

	TAILQ_FOREACH (r, &w->live, link) {
		client_released_lines(r->own);
		if (talk_bypassed(r->own))
			client_bypassed_line(r->own);
	}
}

/* ---- settling ---------------------------------------------------------------------------- */

/* Nothing is left to do for a prefill leg whose request is over. */
static void prefill_ends(struct kvr_sc_world *w)
{
	struct kvr_sc_req *r;

	TAILQ_FOREACH (r, &w->dead, link)
		if (talk_works(r->own, PREFILL))
			agents_fin(r->own, PREFILL, r->failed ? KVR_RESP_F_ERROR : 0);
}

/* The request whose decode leg has lost its blocks and starts over first, or NULL. */
static const struct talk *find_reroute(const struct kvr_sc_world *w, int64_t *left)
{
	const struct talk *first = NULL;
	const struct kvr_sc_req *r;

	*left = INT64_MAX;
	TAILQ_FOREACH (r, &w->live, link) {
		const struct talk *t = r->own;
		const int64_t its = peers_reroute_left(frames_pool(r->pool), t->id);

		if (its < *left) {
			*left = its;
			first = t;
		}
	}
	return first;
}

static void settle_messages(struct kvr_sc_world *w)
{
	struct peers_got g;

	while (settled != peers_said) {
		settled = peers_said;
		peers_turn();
		decisions(w);
		while (peers_next(&g)) {
			const struct peers_agent *at = frames_agent(g.port);

			if (at != NULL)
				agents_told(w, at, &g);
			else
				client_told(w, &g);
		}
		agents_sessions(w);
		write_frameless_lines(w);
		prefill_ends(w);
		frames_sessions(w);
	}
}

void frames_settle(struct kvr_sc_world *w)
{
	const struct talk *t;
	int64_t left;

	peers_clock(w->now);
	settle_messages(w);
	while ((t = find_reroute(w, &left)) != NULL && left <= 0) {
		peers_reroute(frames_pool(t->r->pool), t->id);
		settle_messages(w);
	}
	frames_states(w);
}

void frames_forget(struct kvr_sc_world *w, uint64_t worker)
{
	struct kvr_sc_req *r;

	TAILQ_FOREACH (r, &w->live, link) {
		struct talk *t = r->own;

		for (uint32_t leg = MAIN; leg <= PREFILL; leg++)
			if (talk_works(t, leg) && t->run[leg].at.worker == worker) {
				talk_leg_is(t, leg, KVR_RQS_ENDED);
				t->prefilled = t->prefilled && leg != PREFILL;
			}
	}
}

void frames_op_done(struct kvr_sc_world *w)
{
	struct kvr_sc_req *r, *next;

	frames_settle(w);
	for (r = TAILQ_FIRST(&w->dead); r != NULL; r = next) {
		struct talk *t = r->own;

		next = TAILQ_NEXT(r, link);
		if (talk_works(t, MAIN) || talk_works(t, PREFILL))
			continue;
		TAILQ_REMOVE(&w->dead, r, link);
		t->r = NULL;
		free(t->d[MAIN]);
		free(t->d[PREFILL]);
		t->d[MAIN] = t->d[PREFILL] = NULL;
		kvr_sc_line_free(r->line);
	}
}

void frames_expire(struct kvr_sc_world *w)
{
	frames_settle(w);
}

uint64_t frames_timer(const struct kvr_sc_world *w)
{
	uint64_t t;
	int64_t left;

	find_reroute(w, &left);
	t = left == INT64_MAX ? UINT64_MAX : w->now + (uint64_t)(left > 0 ? left : 0);
	for (uint32_t i = 0; i < w->n_pools; i++) {
		const uint32_t pool = frames_pool(&w->pool[i]);
		const uint64_t due = peers_timer(pool),
			       look = (w->now / KVR_SC_LOOK_NS + 1) * KVR_SC_LOOK_NS;

		t = due < t ? due : t;
		if (peers_sessions(pool) != 0 && look < t)
			t = look;
	}
	return t;
}
