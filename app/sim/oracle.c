/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The truth about engines, which routers are checked against: the blocks that each rank has
 * announced in its incarnation, the content of requests, and the time since when an engine must get
 * no new request from a router.
 */
#include "sim.h"

#include "ingress/ingress.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- announced blocks ---- */

static uint64_t *find_place(const struct announced *a, uint64_t sh)
{
	uint64_t at = kvr_mix64(sh) & a->mask;

	while (a->v[at] != 0 && a->v[at] != sh)
		at = (at + 1) & a->mask;
	return &a->v[at];
}

static void grow_table(struct announced *a)
{
	const struct announced old = *a;

	a->mask = old.v != NULL ? 2 * old.mask + 1 : 1023;
	a->v = calloc(a->mask + 1, sizeof(*a->v));
	if (a->v == NULL)
		abort();
	for (uint64_t i = 0; old.v != NULL && i <= old.mask; i++)
		if (old.v[i] != 0)
			*find_place(a, old.v[i]) = old.v[i];
	free(old.v);
}

void announced_add(struct announced *a, const uint64_t *sh, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint64_t *at;

		if (2 * a->n >= a->mask)
			grow_table(a);
		at = find_place(a, sh[i]);
		a->n += *at == 0;
		*at = sh[i];
	}
}

bool announced_has(const struct announced *a, uint64_t sh)
{
	return a->v != NULL && *find_place(a, sh) == sh;
}

void announced_free(struct announced *a)
{
	free(a->v);
	*a = (struct announced){0};
}

/* ---- prefix tables have announced blocks only ---- */

struct walk {
	struct sim *s;
	uint32_t router;
	uint64_t sum; /* of the table and the incarnations of ranks, to detect change */
	const struct rank *of[SIM_ENGINES * SIM_RANKS + 64]; /* by rank index of the router */
};

static bool was_announced(void *ctx, const struct kvr_prefix_piece *p)
{
	struct walk *w = ctx;
	const struct rank *k = p->rank < RTE_DIM(w->of) ? w->of[p->rank] : NULL;

	for (uint32_t i = 0; i < p->n && k != NULL; i++)
		if (!announced_has(&k->announced, p->sh[i]))
			sim_fail(w->s,
				 "router %u: its table has block %" PRIx64
				 " in rank %u, which never announced it",
				 w->router, p->sh[i], p->rank);
	return !w->s->failed;
}

/* Ranks of this pool whose incarnation the router knows, and which are not being cleared. */
static void ranks_of(struct walk *w, const struct router *rt, uint32_t pool)
{
	memset(w->of, 0, sizeof(w->of));
	w->sum = kvr_mix64(kvr_prefix_work(rt->pool[pool].prefix) + 1);
	for (uint32_t i = 0; i < w->s->plan.engines; i++) {
		const struct engine *e = &w->s->engine[i];
		const struct kvr_worker *k = kvr_registry_find(rt->registry, engine_worker(i));

		if (!e->up || e->prefill != (pool == 1) || k == NULL || k->epoch < e->epoch)
			continue;
		for (uint32_t r = 0; r < w->s->plan.ranks; r++) {
			if (!kvr_prefix_ready(rt->pool[pool].prefix, (uint16_t)k->rank[r]))
				continue;
			w->of[k->rank[r]] = &e->rank[r];
			w->sum =
				kvr_mix64(w->sum ^ ((uint64_t)e->incarnation << 32 | i << 16 | r)) +
				k->rank[r];
		}
	}
}

/* Announced blocks only grow within an incarnation, so an unchanged table needs no second check. */
void oracle_check_tables(struct sim *s)
{
	struct walk w = {.s = s};

	for (uint32_t i = 0; i < s->plan.routers; i++) {
		const struct router *rt = s->host[i].rig.rt;

		w.router = i;
		for (uint32_t p = 0; s->host[i].up && p < rt->n_pools; p++) {
			ranks_of(&w, rt, p);
			if (w.sum == s->host[i].checked[p])
				continue;
			s->host[i].checked[p] = w.sum;
			kvr_prefix_dump(rt->pool[p].prefix, 0, was_announced, NULL, &w);
		}
	}
}

/* All leading blocks that a decision counted must have been announced. */
void oracle_check_overlap(struct sim *s, const struct execution *r, uint32_t blocks)
{
	const struct rank *k = &s->engine[r->engine].rank[r->rank];

	if (s->plan.predict) /* predicted blocks count as well */
		return;
	if (blocks > r->n_hashes)
		sim_fail(s, "request %u: its dispatch counts %u cached blocks of %u", r->request,
			 blocks, r->n_hashes);
	for (uint32_t i = 0; i < blocks && !s->failed; i++)
		if (!announced_has(&k->announced, r->hash[i]))
			sim_fail(
				s,
				"request %u: router %u counts %u cached blocks at engine %u, which never announced block %u",
				r->request, r->seat, blocks, r->engine, i);
}

/* ---- dispatched requests ---- */

/* The body must be equal to what the client sent. */
bool oracle_check_body(struct sim *s, const struct kvr_agent_request *q, struct item_body *b)
{
	const uint8_t *p = q->body;
	uint32_t wrong;

	if (q->body_len < sizeof(*b)) {
		sim_fail(s, "a dispatch has a body of %u bytes", q->body_len);
		return false;
	}
	memcpy(b, p, sizeof(*b));
	if (b->request >= s->n_requests || q->body_len != s->request[b->request].body_len ||
	    q->isl != s->request[b->request].n_tokens || q->id != s->request[b->request].id) {
		sim_fail(s, "a dispatch matches no request: %u, %u bytes", b->request, q->body_len);
		return false;
	}
	wrong = body_wrong(b->request, p, sizeof(*b), q->body_len);
	if (wrong != q->body_len)
		sim_fail(s, "request %u: byte %u of its body is wrong", b->request, wrong);
	return wrong == q->body_len;
}

/* An incarnation must get a request only once. */
void oracle_check_once(struct sim *s, const struct seat *t, uint64_t handle, uint32_t request)
{
	const struct engine *e = t->engine;
	const uint32_t engine = (uint32_t)(e - s->engine);

	for (uint32_t i = s->request[request].last_execution; i != 0;
	     i = s->execution[i - 1].before) {
		const struct execution *r = &s->execution[i - 1];

		if (r->engine == engine && r->incarnation == e->incarnation &&
		    r->handle == handle && r->seat == t->node->router)
			sim_fail(s, "request %u: engine %u got it twice", request, engine);
	}
}

/* The leg must fit the engine, and the prefill result must be the one of the prefill leg. */
void oracle_check_leg(struct sim *s, const struct engine *e, const struct kvr_agent_request *q,
		      uint32_t request)
{
	struct item_body b;

	if (q->leg == KVR_ROLE_AGGREGATED) {
		if (e->prefill)
			sim_fail(s, "request %u: a prefill engine got the whole request", request);
		return;
	}
	if (!s->plan.pairs || (q->leg == KVR_ROLE_PREFILL) != e->prefill)
		sim_fail(s, "request %u: leg %u arrived at the wrong engine", request, q->leg);
	if (q->leg != KVR_ROLE_DECODE)
		return;
	if (q->prefill_result_len < sizeof(b)) {
		sim_fail(s, "request %u: its prefill result has %u bytes", request,
			 q->prefill_result_len);
		return;
	}
	memcpy(&b, q->prefill_result, sizeof(b));
	if (b.request != request || b.execution >= s->n_executions ||
	    s->execution[b.execution].request != request ||
	    engine_worker(s->execution[b.execution].engine) != q->prefill_worker)
		sim_fail(s, "request %u: its prefill result is of execution %u of request %u",
			 request, b.execution, b.request);
}

/* ---- engines that get no new requests ---- */

/* The router has rerouted or forgotten the request; its ABORT may be in flight. */
static bool given_up(const struct host *h, const struct execution *r)
{
	struct pool *p = pool_of_handle(h->rig.rt, r->handle);
	const struct kvr_flight *f =
		p != NULL ? kvr_flight_by_handle(p->requests, r->handle) : NULL;

	return f == NULL || f->owner == NULL;
}

/* A drained engine must run no request of this router that a client still waits for. */
static void check_drained(struct sim *s, const struct host *h, uint32_t engine)
{
	const struct engine *e = &s->engine[engine];

	for (uint32_t i = e->up ? e->executions : 0; i != 0; i = s->execution[i - 1].next) {
		const struct execution *r = &s->execution[i - 1];
		const struct sim_request *a = &s->request[r->request];

		if (r->seat == h->no && r->began_ns >= h->open_ns[engine] &&
		    (r->state == EXECUTION_QUEUED || r->state == EXECUTION_PREFILL ||
		     r->state == EXECUTION_DECODE) &&
		    a->last_execution == i && !a->over && !a->cancelled && !a->killed &&
		    !given_up(h, r))
			sim_fail(s,
				 "engine %u, which router %u reports as drained, runs request %u",
				 engine, h->no, r->request);
	}
}

/* @p newest: the newest epoch of the engine that the router has known, also of one that has left.
 */
static void look_at(struct host *h, uint32_t i, const struct kvr_worker *w, uint32_t newest)
{
	const uint64_t now_ns = h->sim->now_ns;
	const uint32_t incarnation = w != NULL ? w->epoch : 0;
	const bool drained = w != NULL && w->state == KVR_WORKER_DRAINED;
	const bool open = w != NULL && w->state < KVR_WORKER_DRAINING;

	if (incarnation != h->epoch[i])
		h->open_ns[i] = now_ns;
	h->epoch[i] = incarnation;
	if (open)
		h->closed_ns[i] = SIM_NEVER;
	else if (h->closed_ns[i] == SIM_NEVER ||
		 newest != h->newest[i]) /* joined and left between two rounds */
		h->closed_ns[i] = now_ns;
	h->newest[i] = newest;
	if (drained && !h->drained[i])
		check_drained(h->sim, h, i);
	h->drained[i] = drained;
}

void oracle_note_states(struct host *h)
{
	const struct kvr_worker *w[SIM_ENGINES] = {NULL};
	struct kvr_registry *all = h->up ? h->rig.rt->registry : NULL;

	if (all == NULL)
		return;
	for (uint32_t i = 0; i < kvr_registry_count(all); i++) {
		const struct kvr_worker *k = kvr_registry_at(all, i);

		w[k->id - engine_worker(0)] = k;
	}
	for (uint32_t i = 0; i < h->sim->plan.engines; i++)
		look_at(h, i, w[i],
			w[i] != NULL ? w[i]->epoch
				     : kvr_registry_last_epoch(all, engine_worker(i)));
}

void oracle_reset(struct host *h)
{
	for (uint32_t i = 0; i < SIM_ENGINES; i++) {
		h->closed_ns[i] = h->open_ns[i] = h->sim->now_ns;
		h->epoch[i] = h->newest[i] = 0;
		h->drained[i] = false;
	}
	memset(h->checked, 0, sizeof(h->checked));
}

void oracle_check_open(struct sim *s, const struct execution *r)
{
	const struct host *h = &s->host[r->seat];

	if (h->up && s->request[r->request].sent_ns > h->closed_ns[r->engine])
		sim_fail(s, "request %u is new: router %u sent it to engine %u, which is %s",
			 r->request, r->seat, r->engine,
			 h->epoch[r->engine] != 0 ? "draining" : "gone");
}
