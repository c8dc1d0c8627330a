/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests: what their client and their workers say, and the lines that follow from what they are
 * told. Workers acknowledge what they are sent, and the client its last item, at once.
 */
#include "frames.h"
#include "lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAIN	KVR_RQ_MAIN
#define PREFILL KVR_RQ_PREFILL

struct talk {
	struct ex_req *r; /* NULL: over, and nobody asks any more */
	uint64_t id;
	uint64_t handle; /* what the client was told last */
	struct peers_run run[2];
	struct peers_decision *d[2]; /* by leg; the last one */
	bool decided[2];	     /* and no line says so yet */
	bool failed[2];		     /* it was a refusal */
	bool arriving;		     /* the answer to its ROUTE is not there */
	bool again;		     /* its ROUTE was repeated with another body */
	bool bypass_told, expired_told;
	bool opening; /* SESSION_OPEN waits for an answer */
	bool renewed; /* another try's was seen, its ACCEPTED was not */
	uint64_t open_id;
	bool prefilled; /* the prefill leg of this try has its worker, or is done */
	struct peers_agent open_at;
};

static struct talk **talks; /* by id */
static uint64_t n_talks;
static struct peers_got loads_answer;
static bool loads_there;
static uint32_t settled = UINT32_MAX; /* peers_said at the last look */

static struct talk *talk_of(uint64_t id)
{
	return id < n_talks ? talks[id] : NULL;
}

static struct talk *talk_new(struct ex_req *r)
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

static bool works(const struct talk *t, uint32_t leg)
{
	return t->r != NULL && (t->r->r.leg[leg].state == KVR_RQS_SENT ||
				t->r->r.leg[leg].state == KVR_RQS_RUNNING);
}

static void leg_is(struct talk *t, uint32_t leg, enum kvr_rq_state state)
{
	if (t->r != NULL)
		t->r->r.leg[leg].state = (uint8_t)state;
}

/* ---- decisions --------------------------------------------------------------------------- */

static void decision(struct ex_pool *pool, const struct peers_decision *d)
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
	if (leg == PREFILL) {
		t->prefilled = !t->failed[leg];
		t->bypass_told = false;
	}
	if (t->failed[leg])
		return;
	t->r->r.leg[leg].worker = d->d.worker;
	t->r->r.leg[leg].dp_rank = d->d.dp_rank;
	t->r->r.leg[leg].overlap_blocks = d->d.overlap_blocks;
}

static void decisions(struct ex_world *w)
{
	static struct peers_decision d;

	for (uint32_t i = 0; i < w->n_pools; i++)
		while (peers_decision(frames_pool(&w->pool[i]), &d))
			decision(&w->pool[i], &d);
}

/* The terms of the decision that a line is about. */
static void show(struct talk *t)
{
	struct kvr_sched_terms *terms = &t->r->pool->terms;

	terms->n = 0;
	if (t->d[MAIN] == NULL)
		return;
	t->r->d = t->d[MAIN]->d;
	terms->n = t->d[MAIN]->n_terms;
	memcpy(terms->v, t->d[MAIN]->term, terms->n * sizeof(terms->v[0]));
}

/* ---- the client is told ------------------------------------------------------------------ */

/* The client has heard the last word. */
static void over(struct ex_world *w, struct talk *t)
{
	struct ex_req *r = t->r;

	if (r == NULL || r->r.told == KVR_RQ_OVER)
		return;
	r->r.told = KVR_RQ_OVER;
	if (t->opening)
		frames_session_dropped(r->pool, r);
	t->opening = false;
	ex_req_leave(w, r);
	r->next_dead = w->dead;
	w->dead = r;
	if (!works(t, MAIN))
		leg_is(t, MAIN, KVR_RQS_ENDED);
}

static void prefill_line(struct talk *t, uint8_t way, const struct kvr_wire_accepted *a)
{
	struct kvr_leg *l = &t->r->r.leg[PREFILL];

	t->r->r.way = way;
	if (a != NULL && way != KVR_WAY_BYPASSED) {
		l->worker = a->prefill_worker;
		l->dp_rank = a->prefill_dp_rank;
		l->overlap_blocks = a->prefill_overlap_blocks;
	}
	t->decided[PREFILL] = false;
	ex_line_prefill(t->r);
}

/* Decided, and refused before any frame could say so: the decision log has it. */
static void prefill_in_vain(struct talk *t)
{
	if (t->decided[PREFILL])
		prefill_line(t,
			     frames_bootstraps(t->r->r.leg[PREFILL].worker) ? KVR_WAY_BOOTSTRAP
									    : KVR_WAY_SYNC,
			     NULL);
}

/* The pool of a pair decides alone. Of a request that waits or is refused no frame says so. */
static void bypassed_line(struct talk *t)
{
	if (t->bypass_told)
		return;
	t->bypass_told = true;
	t->failed[PREFILL] = false;
	prefill_line(t, KVR_WAY_BYPASSED, NULL);
}

static bool is_half(const struct ex_req *r)
{
	return r->pool->peer != NULL && r->pool->conf.role == KVR_POOL_DECODE;
}

/* Those that wait, and of which nothing came. */
static void bypassed(struct ex_world *w)
{
	for (size_t i = 0; i < w->n_live; i++) {
		struct talk *t = w->live[i]->own;

		if (is_half(t->r) && !t->bypass_told && !t->prefilled &&
		    peers_bypassed(frames_pool(t->r->pool), t->id))
			bypassed_line(t);
	}
}

static void accepted_line(struct talk *t, enum kvr_rq_state state)
{
	struct kvr_leg *l = &t->r->r.leg[MAIN];
	const uint8_t is = l->state;

	show(t);
	l->state = (uint8_t)state;
	ex_line_accepted(t->r);
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
	accepted_line(t, state);
	t->decided[MAIN] = false;
}

static void accepted(struct ex_world *w, struct talk *t, const struct peers_got *g)
{
	const struct kvr_wire_accepted *a = &g->accepted;
	struct ex_req *r = t->r;

	if (r == NULL || r->r.told == KVR_RQ_OVER || t->again)
		return;
	t->arriving = false;
	if (t->handle != 0 && t->handle != g->handle && !t->renewed) /* it has started over */
		r->routed = r->queued = t->bypass_told = false;
	t->renewed = false;
	t->handle = g->handle;
	if (a->path == KVR_PATH_BYPASSED ||
	    (is_half(r) && !t->prefilled && peers_bypassed(frames_pool(r->pool), t->id)))
		bypassed_line(t);
	switch (a->state) {
	case KVR_STATE_QUERY:
		if (a->path == KVR_PATH_BOOTSTRAP || a->path == KVR_PATH_SYNC)
			prefill_line(t, (uint8_t)a->path, a);
		served(t, a, KVR_RQS_FREE);
		over(w, t);
		break;
	case KVR_STATE_QUEUED:
		/* One that is held for a session has been told of when that was opened. */
		if (!r->queued && !r->routed && !(works(t, PREFILL) && r->r.way == KVR_WAY_SYNC)) {
			accepted_line(t, KVR_RQS_QUEUED);
		} else if (!r->routed && works(t, PREFILL)) {
			leg_is(t, MAIN, KVR_RQS_UNDECIDED);
		}
		break;
	default:
		served(t, a, KVR_RQS_SENT);
	}
}

static bool has_line(const struct talk *t, const struct peers_got *g)
{
	return t->again || t->arriving || t->failed[MAIN] || t->failed[PREFILL] ||
	       (g->code == KVR_E_SESSION_OPEN_FAILED && g->retryable);
}

static void open_failed_line(const struct talk *t)
{
	const struct ex_req *r = t->r;
	const struct kvr_leg *l = &r->r.leg[MAIN];
	const struct kvr_rq_order o = {
		.kind = KVR_RQO_SESSION,
		.how = KVR_RQ_OPEN_FAILED,
		.session = {r->session.id, r->session.id_len, .to = {l->worker, l->dp_rank, 0}}};

	ex_line_session(r, &o);
}

static void expired_line(struct talk *t)
{
	if (t->r == NULL || t->expired_told)
		return;
	t->expired_told = true;
	t->r->failed = true;
	ex_line_expired(t->r);
}

static void rejected(struct ex_world *w, struct talk *t, const struct peers_got *g)
{
	struct kvr_rq_why why = {.code = g->code, .retryable = g->retryable};
	struct ex_req *r = t->r;

	if (r == NULL || r->r.told == KVR_RQ_OVER)
		return;
	memcpy(why.detail, g->detail, sizeof(why.detail));
	if (t->failed[MAIN] || t->failed[PREFILL])
		r->d = t->d[t->failed[MAIN] ? MAIN : PREFILL]->d;
	r->decided_by = t->failed[PREFILL] && !t->failed[MAIN] ? r->pool->peer : r->pool;
	r->d.reject.policy_class = g->policy_class;
	prefill_in_vain(t);
	if (t->failed[MAIN] && is_half(r) && !t->prefilled)
		bypassed_line(t);
	if (has_line(t, g))
		ex_line_rejected(r, &why);
	else if (g->code == KVR_E_EXPIRED)
		expired_line(t);
	else if (g->code == KVR_E_SESSION_OPEN_FAILED)
		open_failed_line(t);
	if (!t->again) {
		if (g->code == KVR_E_SESSION_OPEN_FAILED)
			t->opening = false;
		over(w, t);
	}
	t->again = t->arriving = false;
}

static void to_client(struct ex_world *w, const struct peers_got *g)
{
	struct talk *t = talk_of(g->id);

	if (g->kind == KVR_LOADS || (g->kind == KVR_REJECTED && g->about == KVR_POTENTIAL_LOADS)) {
		loads_answer = *g;
		loads_there = true;
		return;
	}
	if (t == NULL)
		return;
	switch (g->kind) {
	case KVR_ACCEPTED:
		accepted(w, t, g);
		break;
	case KVR_REJECTED:
		rejected(w, t, g);
		break;
	case KVR_RESPONSE:
		if (g->fin) {
			peers_fin_acked(g->id, g->handle, g->seq);
			over(w, t);
		}
		break;
	case KVR_CANCELLED:
		over(w, t);
		break;
	}
}

/* ---- workers are told -------------------------------------------------------------------- */

static void dispatched(struct talk *t, const struct peers_agent *at, const struct peers_got *g)
{
	const uint32_t leg = g->prefill_leg ? PREFILL : MAIN;
	struct peers_run *run = &t->run[leg];

	if (run->handle == g->handle) {
		peers_taken(run); /* every copy is acknowledged */
		return;
	}
	*run = (struct peers_run){.at = *at, .id = g->id, .handle = g->handle};
	leg_is(t, leg, KVR_RQS_SENT);
	if (leg == PREFILL && t->r != NULL) {
		t->r->r.room = g->room;
		/* Held for an open that is on its way behind this, or for one of the try before. */
		if (t->r->r.leg[MAIN].state != KVR_RQS_HELD || t->opening)
			t->r->r.leg[MAIN].state = KVR_RQS_UNDECIDED;
		prefill_line(t, g->room != 0 ? KVR_WAY_BOOTSTRAP : KVR_WAY_SYNC, NULL);
	}
	peers_taken(run);
}

static void fin(struct talk *t, uint32_t leg, uint16_t flags)
{
	const bool failed = (flags & (KVR_RESP_F_ERROR | KVR_RESP_F_CANCELLED)) != 0;

	leg_is(t, leg, KVR_RQS_ENDED);
	t->prefilled = t->prefilled && !(leg == PREFILL && failed);
	peers_item(&t->run[leg], KVR_RESP_F_FIN | flags,
		   t->r != NULL && leg == MAIN ? (uint32_t)t->r->generated : 0,
		   leg == PREFILL && !failed ? "result" : "");
}

static void aborted(struct talk *t, const struct peers_agent *at, const struct peers_got *g)
{
	const uint32_t leg = t->run[PREFILL].handle == g->handle ? PREFILL : MAIN;
	struct peers_run old = {.at = *at, .id = g->id, .handle = g->handle};

	if (g->code == KVR_E_EXPIRED)
		expired_line(t);
	peers_aborted(&old);
	if (t->run[leg].handle != g->handle)
		return; /* of a try before */
	if (leg == MAIN && (g->code == KVR_E_PREFILL_FAILED || g->code == KVR_E_WORKER_LOST))
		leg_is(t, leg, KVR_RQS_ENDED);
	else if (t->r == NULL || works(t, leg))
		fin(t, leg, KVR_RESP_F_CANCELLED);
}

/* Whether SESSION_OPEN or SESSION_CLOSE is about the session that a request names. */
static bool names(const struct ex_req *r, const struct peers_got *g)
{
	return r->session.id_len == g->session_len && frames_pool(r->pool) == g->session_pool &&
	       memcmp(r->session.id, g->session, g->session_len) == 0;
}

/* The request that opens a session now. */
static struct talk *opener(struct ex_world *w, const struct peers_got *g)
{
	for (size_t i = 0; i < w->n_live; i++) {
		struct ex_req *r = w->live[i];
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
static void held(struct ex_world *w, const struct peers_got *g)
{
	struct talk *t = opener(w, g);

	if (t == NULL || !t->decided[MAIN])
		return;
	if (t->opening) { /* it has started over */
		t->r->routed = t->r->queued = t->bypass_told = false;
		t->renewed = true;
	}
	if (is_half(t->r) && !t->prefilled)
		bypassed_line(t);
	accepted_line(t, KVR_RQS_HELD);
	t->decided[MAIN] = false;
}

static void open_line(const struct talk *t)
{
	const struct kvr_rq_order o = {.kind = KVR_RQO_OPEN};

	ex_line_session(t->r, &o);
}

static struct ex_pool *pool_of(struct ex_world *w, uint32_t number)
{
	for (uint32_t i = 0; i < w->n_pools; i++)
		if (frames_pool(&w->pool[i]) == number)
			return &w->pool[i];
	return NULL;
}

/* Another try of a request gives the open of the one before up. */
static bool open_given_up(struct ex_world *w, const struct peers_agent *at,
			  const struct peers_got *g)
{
	for (size_t i = 0; i < w->n_live; i++) {
		const struct ex_req *r = w->live[i];
		struct talk *t = r->own;

		if (t->opening && t->open_at.worker == at->worker && names(r, g)) {
			t->opening = false;
			return true;
		}
	}
	return false;
}

static void session_frame(struct ex_world *w, const struct peers_agent *at,
			  const struct peers_got *g)
{
	struct talk *t;

	if (g->kind == KVR_SESSION_CLOSE) {
		struct ex_pool *pool = pool_of(w, g->session_pool);

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

static void to_agent(struct ex_world *w, const struct peers_agent *at, const struct peers_got *g)
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
		dispatched(t, at, g);
	else if (g->kind == KVR_ABORT)
		aborted(t, at, g);
}

/* ---- settling ---------------------------------------------------------------------------- */

/* Nothing is left to do for a prefill leg whose request is over. */
static void prefill_ends(struct ex_world *w)
{
	for (struct ex_req *r = w->dead; r != NULL; r = r->next_dead)
		if (works(r->own, PREFILL))
			fin(r->own, PREFILL, r->failed ? KVR_RESP_F_ERROR : 0);
}

void frames_settle(struct ex_world *w)
{
	struct peers_got g;

	peers_clock(w->now);
	while (settled != peers_said) {
		settled = peers_said;
		peers_turn();
		decisions(w);
		while (peers_next(&g)) {
			const struct peers_agent *at = frames_agent(g.port);

			if (at != NULL)
				to_agent(w, at, &g);
			else
				to_client(w, &g);
		}
		for (uint32_t i = 0; i < n_later; i++)
			session_frame(w, frames_agent(later[i].port), &later[i]);
		n_later = 0;
		bypassed(w);
		prefill_ends(w);
		frames_sessions(w);
	}
	frames_states(w);
}

void frames_forget(struct ex_world *w, uint64_t worker)
{
	for (size_t i = 0; i < w->n_live; i++) {
		struct talk *t = w->live[i]->own;

		for (uint32_t leg = MAIN; leg <= PREFILL; leg++)
			if (works(t, leg) && t->run[leg].at.worker == worker) {
				leg_is(t, leg, KVR_RQS_ENDED);
				t->prefilled = t->prefilled && leg != PREFILL;
			}
	}
}

void ex_run_poll(struct ex_world *w)
{
	struct ex_req **at = &w->dead;

	frames_settle(w);
	while (*at != NULL) {
		struct ex_req *r = *at;
		struct talk *t = r->own;

		if (works(t, MAIN) || works(t, PREFILL)) {
			at = &r->next_dead;
			continue;
		}
		*at = r->next_dead;
		t->r = NULL;
		free(t->d[MAIN]);
		free(t->d[PREFILL]);
		t->d[MAIN] = t->d[PREFILL] = NULL;
		ex_req_free(r);
	}
}

void ex_run_expire(struct ex_world *w)
{
	frames_settle(w);
}

uint64_t ex_run_timer(const struct ex_world *w)
{
	uint64_t t = UINT64_MAX;

	for (uint32_t i = 0; i < w->n_pools; i++) {
		const uint32_t pool = frames_pool(&w->pool[i]);
		const uint64_t due = peers_timer(pool),
			       look = (w->now / EX_LOOK_NS + 1) * EX_LOOK_NS;

		t = due < t ? due : t;
		if (peers_sessions(pool) != 0 && look < t)
			t = look;
	}
	return t;
}

/* ---- what clients and workers say -------------------------------------------------------- */

static uint32_t mm_read(const json_t *list, struct peers_mm *mm, uint32_t most)
{
	uint32_t n = 0;

	for (size_t i = 0; i < json_array_size(list) && n < most; i++) {
		const json_t *e = json_array_get(list, i);

		if (json_array_size(e) == 0)
			continue;
		mm[n] = (struct peers_mm){.block = (uint32_t)i, .n = (uint32_t)json_array_size(e)};
		for (uint32_t k = 0; k < mm[n].n; k++)
			mm[n].hash[k] = ex_u64(json_array_get(e, k));
		n++;
	}
	return n;
}

/* A prompt of tokens is sent as it is: the router hashes it. */
static void prompt(struct peers_route *q, const json_t *line, uint32_t **tokens)
{
	const json_t *list = ex_get(line, "tokens");
	static struct peers_mm mm[256];

	*tokens = calloc(json_array_size(list) + 1, sizeof(**tokens));
	if (list == NULL)
		return;
	for (size_t i = 0; i < json_array_size(list); i++)
		(*tokens)[i] = (uint32_t)ex_u64(json_array_get(list, i));
	q->tokens = *tokens;
	q->n_tokens = (uint32_t)json_array_size(list);
	q->n_hashes = 0;
	q->mm = mm;
	q->n_mm = mm_read(ex_get(line, "mm"), mm, 256);
}

static bool route(struct talk *t)
{
	const struct ex_req *r = t->r;
	const json_t *routing = ex_get(r->line, "routing");
	char body[32], session[KVR_SESSION_ID_MAX + 1];
	static uint32_t copies;
	const bool large = r->msg.req.isl > KVR_WIRE_MAX_TOKENS;
	const uint32_t isl = large ? KVR_WIRE_MAX_TOKENS : r->msg.req.isl;
	struct peers_route q = {
		.kind = KVR_ROUTE,
		.id = t->id,
		.pool = frames_pool(r->pool),
		.phase = ex_get(r->line, "phase") != NULL ? (uint8_t)r->msg.req.phase : 0,
		.query = r->msg.req.query_only,
		.isl = isl,
		.max_tokens = (uint32_t)ex_u64_or(r->line, "max_tokens", KVR_NONE32),
		.hashes = r->sh,
		.n_hashes = r->msg.req.n,
		.hints = &r->msg.hints,
		.over = r->msg.req.override,
		.shared = r->shared,
		.n_shared = r->msg.req.n_shared,
		.lora = ex_str_or(routing, "lora_name", NULL),
		.ns = ex_str_or(routing, "cache_namespace", NULL),
		.policy = r->msg.policy,
		.action = r->session.action,
		.timeout_s = (uint32_t)(r->session.timeout_ns / UINT64_C(1000000000)),
		.body = body,
	};
	uint32_t *tokens;
	bool ok;

	if (large)
		frames_not(FRAMES_NOT_LARGE);
	snprintf(body, sizeof(body), "copy %u", ++copies);
	if (r->session.id_len != 0) {
		memcpy(session, r->session.id, r->session.id_len);
		session[r->session.id_len] = '\0';
		q.session = session;
	}
	prompt(&q, r->line, &tokens);
	ok = peers_route(&q);
	free(tokens);
	return ok;
}

/* Shown with the decision. The name counts, as far as the pool has it. */
static void class_named(struct ex_req *r)
{
	const struct kvr_pool_conf *c = &r->pool->conf;

	r->msg.hints.policy_class = KVR_SCHED_NO_CLASS;
	for (uint32_t i = 0; i < c->n_classes; i++)
		if (strlen(c->classes[i].name) == r->msg.policy.len &&
		    memcmp(c->classes[i].name, r->msg.policy.ptr, r->msg.policy.len) == 0)
			r->msg.hints.policy_class = i;
}

void ex_run_arrive(struct ex_world *w, struct ex_req *r)
{
	struct talk *t = talk_new(r);

	r->own = t;
	ex_req_enter(w, r);
	class_named(r);
	if (r->session.id_len != 0) {
		frames_session_named(r->pool, r->session.id, r->session.id_len);
		if (r->pool->peer != NULL)
			frames_session_named(r->pool->peer, r->session.id, r->session.id_len);
	}
	t->arriving = true;
	if (!route(t)) {
		frames_not(FRAMES_NOT_ENCODED);
		rejected(w, t, &(const struct peers_got){.code = KVR_E_INVALID_REQUEST});
		return;
	}
	frames_settle(w);
}

static void say(struct talk *t, const struct kvr_rq_event *e)
{
	struct ex_req *r = t->r;

	switch (e->kind) {
	case KVR_RQE_ITEM:
		if ((e->flags & KVR_RQEF_FIRST) != 0)
			peers_first_token(&t->run[MAIN], (uint32_t)r->generated);
		else
			peers_item(&t->run[MAIN], 0, e->tokens, "");
		break;
	case KVR_RQE_FIN:
		fin(t, e->leg, (e->flags & KVR_RQEF_ERROR) != 0 ? KVR_RESP_F_ERROR : 0);
		break;
	case KVR_RQE_CANCEL:
		peers_cancel(t->id, t->handle);
		break;
	case KVR_RQE_OPENED:
	case KVR_RQE_NOT_OPENED:
		if (e->kind == KVR_RQE_OPENED)
			frames_session_opened(r->pool, r);
		t->opening = false;
		peers_session(&t->open_at, KVR_SESSION_OPENED, t->open_id, (uint16_t)e->code);
		break;
	case KVR_RQE_REPEATED:
		t->again = true;
		route(t);
		break;
	}
}

void ex_run_event(struct ex_world *w, struct ex_req *r, struct kvr_rq_event e)
{
	say(r->own, &e);
	frames_settle(w);
}

const struct peers_got *frames_loads(struct ex_world *w, const struct peers_route *q)
{
	loads_there = false;
	if (!peers_route(q))
		return NULL;
	frames_settle(w);
	return loads_there && loads_answer.kind == KVR_LOADS ? &loads_answer : NULL;
}

uint32_t ex_run_loads(struct ex_world *w, struct ex_pool *pool, const struct ex_prompt *prompt,
		      struct kvr_sched_load v[], uint32_t cap, struct kvr_sched_pending *pending)
{
	const struct peers_route q = {.kind = KVR_POTENTIAL_LOADS,
				      .id = UINT64_C(1) << 62,
				      .pool = frames_pool(pool),
				      .isl = prompt->isl,
				      .max_tokens = KVR_NONE32,
				      .hashes = prompt->sh,
				      .n_hashes = prompt->isl / pool->conf.block_size < prompt->n
							  ? prompt->isl / pool->conf.block_size
							  : prompt->n,
				      .body = ""};
	const struct peers_got *g = prompt->isl != 0 ? frames_loads(w, &q) : NULL;

	if (prompt->isl == 0) {
		frames_not(FRAMES_NOT_EMPTY_LOADS);
		return peers_loads_of_nothing(frames_pool(pool), v, cap, pending);
	}
	if (g == NULL) {
		fprintf(stderr, "frames: POTENTIAL_LOADS is refused\n");
		exit(3);
	}
	*pending = (struct kvr_sched_pending){.count = (uint32_t)g->waiting,
					      .isl_tokens = g->waiting_tokens};
	for (uint32_t i = 0; i < g->n_loads && i < cap; i++)
		v[i] = g->load[i];
	return g->n_loads;
}
