/* SPDX-License-Identifier: BSD-3-Clause */
/* What clients and workers say because a line of the scenario says that it happens. */
#include "talk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t mm_read(const json_t *list, struct peers_mm *mm, uint32_t most)
{
	uint32_t n = 0;

	for (size_t i = 0; i < json_array_size(list) && n < most; i++) {
		const json_t *e = json_array_get(list, i);

		if (json_array_size(e) == 0)
			continue;
		mm[n] = (struct peers_mm){.block = (uint32_t)i, .n = (uint32_t)json_array_size(e)};
		for (uint32_t k = 0; k < mm[n].n; k++)
			mm[n].hash[k] = kvr_sc_u64(json_array_get(e, k));
		n++;
	}
	return n;
}

/* A prompt of tokens is sent as it is: the router hashes it. */
static void prompt(struct peers_route *q, const json_t *line, uint32_t exec_isl, uint32_t **tokens)
{
	const json_t *list = kvr_sc_get(line, "tokens");
	static struct peers_mm mm[256];

	/* With hashes only how many there are is read. */
	*tokens = calloc(json_array_size(list) + exec_isl + 1, sizeof(**tokens));
	q->tokens = *tokens;
	q->n_tokens = exec_isl;
	if (list == NULL)
		return;
	for (size_t i = 0; i < json_array_size(list); i++)
		(*tokens)[i] = (uint32_t)kvr_sc_u64(json_array_get(list, i));
	q->n_tokens = (uint32_t)json_array_size(list);
	q->n_hashes = 0;
	q->mm = mm;
	q->n_mm = mm_read(kvr_sc_get(line, "mm"), mm, 256);
}

/* @p resend: the same message once more; else its body is another one. */
static bool route(struct talk *t, bool resend)
{
	const struct kvr_sc_req *r = t->r;
	const json_t *routing = kvr_sc_get(r->line->obj, "routing");
	char body[32], session[KVR_SESSION_ID_MAX + 1];
	static uint32_t copies;
	const bool large = r->msg.req.isl > KVR_WIRE_MAX_TOKENS;
	const uint32_t isl = large ? KVR_WIRE_MAX_TOKENS : r->msg.req.isl;
	struct peers_route q = {
		.kind = KVR_ROUTE,
		.id = t->id,
		.pool = frames_pool(r->pool),
		.phase = kvr_sc_get(r->line->obj, "phase") != NULL ? (uint8_t)r->msg.req.phase : 0,
		.query = r->msg.req.query_only,
		.probe = r->msg.req.probe,
		.book = r->msg.book,
		.resend = resend,
		.isl = isl,
		.max_tokens = (uint32_t)kvr_sc_u64_or(r->line->obj, "max_tokens", KVR_NONE32),
		.hashes = r->msg.req.sh,
		.n_hashes = r->msg.req.n,
		.hints = &r->msg.hints,
		.lora = kvr_sc_str_or(routing, "lora_name", NULL),
		.ns = kvr_sc_str_or(routing, "cache_namespace", NULL),
		.action = r->session.action,
		.timeout_s = (uint32_t)(r->session.timeout_ns / UINT64_C(1000000000)),
		.body = body,
	};
	uint32_t *tokens;
	bool ok;

	if (large)
		frames_not(FRAMES_NOT_LARGE);
	if (!resend)
		t->copy = ++copies;
	snprintf(body, sizeof(body), "copy %u", t->copy);
	if (q.book) { /* it has no body that could tell copies apart */
		body[0] = '\0';
		q.max_tokens = t->copy;
	}
	if (r->session.id_len != 0) {
		memcpy(session, r->session.id, r->session.id_len);
		session[r->session.id_len] = '\0';
		q.session = session;
	}
	prompt(&q, r->line->obj, r->msg.req.exec_isl, &tokens);
	if (q.probe)
		q.n_tokens = q.n_mm = 0;
	ok = peers_route(&q);
	free(tokens);
	return ok;
}

/* Of one that waits no frame says which class it is in; later the decision does. */
static void class_named(struct kvr_sc_req *r)
{
	const struct kvr_pool_conf *c = &r->pool->conf;

	r->msg.hints.policy_class = KVR_SCHED_NO_CLASS;
	for (uint32_t i = 0; i < c->n_classes; i++)
		if (strlen(c->classes[i].name) == r->msg.hints.policy.len &&
		    memcmp(c->classes[i].name, r->msg.hints.policy.p, r->msg.hints.policy.len) == 0)
			r->msg.hints.policy_class = i;
}

void frames_arrive(struct kvr_sc_req *r)
{
	struct kvr_sc_world *w = r->pool->world;
	struct talk *t = talk_new(r);

	r->own = t;
	kvr_sc_req_enter(r);
	class_named(r);
	if (r->session.id_len != 0) {
		frames_session_named(r->pool, r->session.id, r->session.id_len);
		if (r->pool->peer != NULL)
			frames_session_named(r->pool->peer, r->session.id, r->session.id_len);
	}
	t->arriving = true;
	if (!route(t, false)) {
		frames_not(FRAMES_NOT_ENCODED);
		client_rejected(w, t, &(const struct peers_got){.code = KVR_E_INVALID_REQUEST});
		return;
	}
	frames_settle(w);
}

/* Its client runs it. */
static bool reported(struct talk *t, const struct kvr_rq_event *e)
{
	const bool fin = e->kind == KVR_RQE_FIN, failed = (e->flags & KVR_RQEF_ERROR) != 0;
	const bool first = (e->flags & KVR_RQEF_FIRST) != 0;

	if (!t->r->msg.book || (!fin && e->kind != KVR_RQE_ITEM))
		return false;
	peers_reported(t->id, t->handle, t->run[MAIN].reports++,
		       (uint16_t)((fin ? KVR_PROG_F_FIN : 0) | (failed ? KVR_PROG_F_ERROR : 0) |
				  ((e->flags & KVR_RQEF_FAILED) != 0 ? KVR_PROG_F_FAILED : 0) |
				  ((e->flags & KVR_RQEF_REFUSED) != 0 ? KVR_PROG_F_REFUSED : 0) |
				  (first ? KVR_PROG_F_FIRST : 0)),
		       (uint32_t)t->r->generated);
	if (first)
		talk_leg_is(t, PREFILL, KVR_RQS_ENDED);
	if (fin)
		client_heard_all(t->r->pool->world, t);
	return true;
}

static void say(struct talk *t, const struct kvr_rq_event *e)
{
	struct kvr_sc_req *r = t->r;

	if (reported(t, e))
		return;
	switch (e->kind) {
	case KVR_RQE_ITEM:
		if ((e->flags & KVR_RQEF_FIRST) != 0)
			peers_first_token(&t->run[MAIN], (uint32_t)r->generated);
		else
			peers_item(&t->run[MAIN], 0, e->tokens, "");
		break;
	case KVR_RQE_FIN:
		agents_fin(
			t, e->leg,
			(uint16_t)(((e->flags & KVR_RQEF_ERROR) != 0 ? KVR_RESP_F_ERROR : 0) |
				   ((e->flags & KVR_RQEF_FAILED) != 0 ? KVR_RESP_F_FAILED : 0) |
				   ((e->flags & KVR_RQEF_REFUSED) != 0 ? KVR_RESP_F_REFUSED : 0)));
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
		t->again = (e->flags & KVR_RQEF_RESEND) == 0;
		route(t, !t->again);
		break;
	}
}

void frames_event(struct kvr_sc_req *r, struct kvr_rq_event e)
{
	say(r->own, &e);
	frames_settle(r->pool->world);
}

enum kvr_code frames_release(struct kvr_sc_pool *pool, const char *id)
{
	client_release_asked();
	peers_release(frames_pool(pool), id);
	frames_settle(pool->world);
	return client_release();
}

/* POTENTIAL_LOADS is sent; its answer, or NULL: it was refused. */
static const struct peers_got *loads_of(struct kvr_sc_world *w, const struct peers_route *q)
{
	client_loads_asked();
	if (!peers_route(q))
		return NULL;
	frames_settle(w);
	return client_loads();
}

uint32_t frames_loads(struct kvr_sc_pool *pool, const struct kvr_sc_prompt *prompt,
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
	const struct peers_got *g = prompt->isl != 0 ? loads_of(pool->world, &q) : NULL;

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
