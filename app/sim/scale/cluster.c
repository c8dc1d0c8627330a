/* SPDX-License-Identifier: BSD-3-Clause */
/* The heap of events, and the router's side: score, route, book, events of blocks. */
#include "cluster.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS	(1u << 17)
#define CHANGES (1u << 16) /* events under way */

void *cluster_alloc(size_t n, size_t size)
{
	void *p = aligned_alloc(64, (n * size + 63) / 64 * 64);

	if (p == NULL) {
		fprintf(stderr, "quality: no memory\n");
		exit(1);
	}
	return memset(p, 0, n * size);
}

/* ---- events ------------------------------------------------------------------------------ */

static bool before(const struct event *a, const struct event *b)
{
	return a->at != b->at ? a->at < b->at : a->number < b->number;
}

void heap_push(struct heap *h, struct event e)
{
	uint32_t i = h->n++;

	if (h->n > h->room) {
		h->room = h->room > 0 ? 2 * h->room : 64;
		h->v = realloc(h->v, h->room * sizeof(e));
		if (h->v == NULL)
			exit(1);
	}
	for (; i > 0 && before(&e, &h->v[(i - 1) / 2]); i = (i - 1) / 2)
		h->v[i] = h->v[(i - 1) / 2];
	h->v[i] = e;
}

struct event heap_pop(struct heap *h)
{
	const struct event top = h->v[0], e = h->v[--h->n];
	uint32_t i = 0, k;

	while ((k = 2 * i + 1) < h->n) {
		k += k + 1 < h->n && before(&h->v[k + 1], &h->v[k]);
		if (!before(&h->v[k], &e))
			break;
		h->v[i] = h->v[k];
		i = k;
	}
	h->v[i] = e;
	return top;
}

void cluster_add_event(struct cluster *s, uint64_t at, uint32_t kind, uint32_t who)
{
	const uint32_t stay = kind == EV_PREFILLED ? s->req[who].stays : 0;

	heap_push(&s->events, (struct event){at, s->number++, kind, who, stay});
}

/* ---- blocks ------------------------------------------------------------------------------ */

static void apply(struct cluster *s, const struct kv_change *c)
{
	const struct cluster_req *r = c->req;

	if (c->epoch != s->rank[c->rank].epoch)
		return;
	if (c->have < r->n)
		kvr_prefix_store(s->table, (uint16_t)c->rank, KVR_TIER_DEVICE,
				 c->have > 0 ? &r->sh[c->have - 1] : NULL, r->sh + c->have,
				 r->n - c->have);
	if (c->n_removed > 0)
		kvr_prefix_remove(s->table, (uint16_t)c->rank, KVR_TIER_DEVICE, c->removed,
				  c->n_removed);
}

void cluster_blocks(struct cluster *s, uint32_t rank, const struct cluster_req *r,
		    const struct engine_cache_change *c)
{
	struct kv_change x = {rank, c->n_removed, c->have, r, s->scratch, s->rank[rank].epoch};

	if (c->n != r->n) {
		fprintf(stderr, "quality: a prompt of %u blocks in a cache of %u\n", r->n, c->n);
		exit(1);
	}
	if (s->c.late_s <= 0) {
		apply(s, &x);
		return;
	}
	for (uint32_t tries = 0; s->change[s->n_change].req != NULL; tries++) {
		s->n_change = (s->n_change + 1) % CHANGES;
		if (tries == CHANGES)
			exit(1);
	}
	x.removed = cluster_alloc(c->n_removed + 1, 8);
	memcpy(x.removed, s->scratch, c->n_removed * 8ul);
	s->change[s->n_change] = x;
	cluster_add_event(s, s->now + (uint64_t)(s->c.late_s * 1e9), EV_KV, s->n_change);
}

static void on_kv(struct cluster *s, uint32_t i)
{
	apply(s, &s->change[i]);
	free(s->change[i].removed);
	s->change[i].req = NULL;
}

static void housekeeping(struct cluster *s)
{
	const uint64_t ms = s->now / CLUSTER_MS;

	rte_rcu_qsbr_quiescent(s->qsbr, 0);
	if (ms < s->swept_ms + 100)
		return;
	s->swept_ms = ms;
	while (!kvr_prefix_expire(s->table, ms))
		;
	kvr_prefix_maintain(s->table, ms);
	rte_rcu_qsbr_quiescent(s->qsbr, 0);
}

/* ---- requests ---------------------------------------------------------------------------- */

/* Most of the prompt cached, of ranks with at most 1.25 of the mean load and one request. */
static uint64_t most_overlap(struct cluster *s, const uint32_t *device)
{
	struct kvr_sched_rank_info r;
	double mean = 0;
	uint32_t best = CLUSTER_NONE, load = 0;

	for (uint32_t i = 0; i < s->c.ranks; i++) {
		kvr_sched_rank_get(s->sched, i, &r);
		mean += (double)r.active_requests / s->c.ranks;
	}
	for (uint32_t i = 0; i < s->c.ranks; i++) {
		kvr_sched_rank_get(s->sched, i, &r);
		if (r.active_requests > 1.25 * mean + 1)
			continue;
		if (best == CLUSTER_NONE || device[i] > device[best] ||
		    (device[i] == device[best] && r.active_requests < load))
			best = i, load = r.active_requests;
	}
	return best;
}

bool cluster_look_up(void *arg, uint32_t slot, const struct kvr_sched_req *req,
		     struct kvr_sched_overlap *out)
{
	struct cluster *s = arg;
	struct kvr_prefix_query query = {req->sh, req->n, s->ov};

	(void)slot;
	kvr_prefix_score_burst(s->table, &query, 1);
	kvr_overlap_pad(s->ov);
	out->device = kvr_overlap_tier(s->ov, KVR_TIER_DEVICE);
	return true;
}

/* At its engine: what lib/request has sent. */
static void lives_on(struct cluster *s, struct cluster_req *r)
{
	cluster_engine_take(s, (uint32_t)(r - s->req));
	cluster_request_taken(s, r);
}

static void routed(struct cluster *s, const struct kvr_sched_decision *d)
{
	struct cluster_req *r = s->of_slot[d->slot];

	if (s->lives != NULL) {
		cluster_request_admitted(s, d);
		lives_on(s, r);
		return;
	}
	if (d->result != KVR_SCHED_ROUTED) {
		fprintf(stderr, "quality: not routed: %s\n", kvr_code_name(d->err));
		exit(1);
	}
	r->rank = (uint32_t)d->worker;
	if (r->rank != d->rank) {
		fprintf(stderr, "quality: ranks are not numbered as workers are\n");
		exit(1);
	}
	if (s->predict)
		kvr_prefix_predict(s->table, (uint16_t)r->rank, r->sh, r->n, s->now / CLUSTER_MS,
				   (uint32_t)s->predict_ms);
	cluster_engine_take(s, (uint32_t)(r - s->req));
}

static enum kvr_sched_result decide(struct cluster *s, struct cluster_req *r,
				    struct kvr_sched_decision *d)
{
	struct kvr_sched_req *req = &s->asked[r->slot];
	struct kvr_sched_hints pin = {.flags = KVR_SHINT_BACKEND_ID};
	struct kvr_sched_overlap ov = {0};
	enum kvr_sched_result result;

	*req = (struct kvr_sched_req){.sh = r->sh, .n = r->n, .isl = r->isl};
	cluster_look_up(s, r->slot, req, &ov);
	if (s->pick_most) {
		pin.backend_id = most_overlap(s, ov.device);
		req->hints = &pin;
	}
	result = kvr_sched_route(s->sched, r->slot, req, &ov, s->now, d);
	req->hints = NULL; /* those of most-overlap, which never waits */
	return result;
}

/* @return it has an engine, and does not wait. */
static bool arrive(struct cluster *s, struct cluster_req *r, struct kvr_sched_decision *d)
{
	return s->lives != NULL ? cluster_request_arrive(s, r)
				: decide(s, r, d) != KVR_SCHED_QUEUED;
}

void cluster_route(struct cluster *s, uint32_t q)
{
	struct cluster_req *r = &s->req[q];
	struct cluster_cost *cost = s->c.cost;
	struct kvr_sched_decision d;
	uint64_t began;
	bool placed;

	housekeeping(s);
	if (s->n_free == 0) {
		fprintf(stderr, "quality: more than %u requests at once\n", s->c.slots);
		exit(1);
	}
	r->slot = s->slot_free[--s->n_free];
	s->of_slot[r->slot] = r;
	began = cost != NULL ? cost->clock_ns() : 0;
	placed = arrive(s, r, &d);
	if (cost != NULL) {
		cost->ns += cost->clock_ns() - began;
		cost->decisions++;
	}
	if (placed && s->lives != NULL)
		lives_on(s, r);
	else if (placed)
		routed(s, &d);
}

/* Whatever happened, somebody's turn may have come. */
static void admit(struct cluster *s)
{
	struct kvr_sched_decision d[32];
	uint32_t n;
	uint32_t none[1];
	uint64_t at;

	kvr_sched_expire(s->sched, s->now, none, 1); /* nothing does, but the timer moves on */
	do {
		n = kvr_sched_poll(s->sched, s->now, d, 32);
		for (uint32_t i = 0; i < n; i++)
			routed(s, &d[i]);
	} while (n == 32);
	at = kvr_sched_next_timer(s->sched);
	if (!s->waits || at == UINT64_MAX || (s->poll_at > s->now && s->poll_at <= at))
		return;
	s->poll_at = at > s->now ? at : s->now + 1;
	cluster_add_event(s, s->poll_at, EV_POLL, 0);
}

void cluster_prefilled(struct cluster *s, uint32_t q)
{
	if (s->lives != NULL)
		cluster_request_prefilled(s, &s->req[q]);
	else
		kvr_sched_prefill_done(s->sched, s->req[q].slot, s->now);
}

void cluster_ended(struct cluster *s, uint32_t q)
{
	if (s->lives != NULL) {
		cluster_request_ended(s, &s->req[q]);
		return;
	}
	kvr_sched_finish(s->sched, s->req[q].slot, s->now);
	s->slot_free[s->n_free++] = s->req[q].slot;
}

static void on_restart(struct cluster *s)
{
	for (uint32_t r = 0; r < s->c.ranks; r += 3) {
		kvr_prefix_clear_rank(s->table, (uint16_t)r);
		while (!kvr_prefix_ready(s->table, (uint16_t)r)) {
			kvr_prefix_maintain(s->table, s->now / CLUSTER_MS);
			rte_rcu_qsbr_quiescent(s->qsbr, 0);
		}
	}
	for (uint32_t r = 0; r < s->c.ranks; r += 3)
		cluster_engine_restart(s, r);
}

/* ---- set up ------------------------------------------------------------------------------ */

static void set(struct kvr_pool_conf *c, const char *key, const char *value)
{
	char err[256];

	if (kvr_pool_conf_set(c, key, value, err, sizeof(err)) != 0) {
		fprintf(stderr, "quality: %s = %s: %s\n", key, value, err);
		exit(2);
	}
}

/* A policy is MODE[,key=value...], or one of these names. */
static void policy(struct cluster *s, struct kvr_pool_conf *c)
{
	char text[512], *save = NULL, *word;

	snprintf(text, sizeof(text), "%s", s->c.policy);
	word = strtok_r(text, ",", &save);
	s->pick_most = strcmp(word, "most-overlap") == 0;
	if (strcmp(word, "preset") == 0)
		set(c, "router_preset", "throughput");
	else if (!s->pick_most && strcmp(word, "reference") != 0)
		set(c, "router_mode", word);
	while ((word = strtok_r(NULL, ",", &save)) != NULL) {
		char *value = strchr(word, '=');

		if (value == NULL)
			exit(2);
		*value = '\0';
		set(c, word, value + 1);
	}
	s->predict = kvr_pool_mode(c->mode)->needs_cache && c->predicted_ttl_s > 0;
	s->predict_ms = s->predict ? (uint64_t)(c->predicted_ttl_s * 1000) : 0;
}

static void make_router(struct cluster *s, uint32_t blocks)
{
	const struct kvr_sched_ops ops = {.arg = s, .refresh = cluster_look_up};
	struct kvr_pool_conf c;
	struct kvr_prefix_conf p = {.name = "quality",
				    .max_ranks = (s->c.ranks + 63) / 64 * 64,
				    .max_blocks = blocks + blocks / 2 + 65536,
				    .max_predicted = 1u << 20,
				    .socket_id = SOCKET_ID_ANY};

	kvr_pool_conf_defaults(&c);
	strcpy(c.name, "quality");
	c.block_size = CLUSTER_BLOCK;
	c.max_ranks = s->c.ranks;
	c.max_requests = s->c.slots;
	c.seed = s->c.seed;
	c.request_expiry_s = 1e6;
	policy(s, &c);
	s->waits = c.ttft_late_binding;
	s->sched = kvr_sched_create(&c, &ops, 0);
	s->qsbr = cluster_alloc(1, rte_rcu_qsbr_get_memsize(1));
	rte_rcu_qsbr_init(s->qsbr, 1);
	rte_rcu_qsbr_thread_register(s->qsbr, 0);
	rte_rcu_qsbr_thread_online(s->qsbr, 0);
	p.qsbr = s->qsbr;
	s->table = kvr_prefix_create(&p);
	if (s->sched == NULL || s->table == NULL) {
		fprintf(stderr, "quality: no memory for a table of %u blocks\n", p.max_blocks);
		exit(1);
	}
	s->ov = cluster_alloc(1, kvr_overlap_size(p.max_ranks));
	for (uint64_t id = 0; id < s->c.ranks; id++) {
		const struct kvr_sched_worker w = {.id = id, .dp_size = 1};

		if (kvr_sched_worker_set(s->sched, &w, 0) != 0)
			exit(1);
	}
	s->slot_free = cluster_alloc(s->c.slots, sizeof(uint32_t));
	s->of_slot = cluster_alloc(s->c.slots, sizeof(*s->of_slot));
	if (s->c.lives)
		cluster_request_begin(s, &c);
	else
		s->asked = cluster_alloc(s->c.slots, sizeof(*s->asked));
	while (s->n_free < s->c.slots)
		s->slot_free[s->n_free] = s->n_free, s->n_free++;
}

struct cluster *cluster_create(const struct cluster_conf *c, struct cluster_req *req, uint32_t n)
{
	struct cluster *s = cluster_alloc(1, sizeof(*s));
	uint32_t longest = 0;

	s->c = *c;
	s->c.slots = c->slots != 0 ? c->slots : SLOTS;
	s->req = req;
	s->n_req = n;
	kvr_rand_init(&s->rand, c->seed);
	s->rank = cluster_alloc(c->ranks, sizeof(*s->rank));
	for (uint32_t i = 0; i < c->ranks; i++) {
		struct cluster_rank *k = &s->rank[i];

		engine_init(&k->model, cluster_speed(c->engine));
		k->model.cache = engine_cache_create(c->cache_blocks, c->seed + i);
		k->slow = 1 - c->spread + 2 * c->spread * kvr_rand_unit(&s->rand);
		if (k->model.cache == NULL)
			exit(1);
	}
	for (uint32_t i = 0; i < n; i++)
		longest = req[i].n > longest ? req[i].n : longest;
	s->scratch = cluster_alloc(longest + 1, 8);
	s->change = cluster_alloc(CHANGES, sizeof(*s->change));
	make_router(s, c->cache_blocks * c->ranks);
	for (uint32_t i = 0; i < n; i++)
		cluster_add_event(s, req[i].at, EV_ARRIVE, i);
	s->half = req[n - 1].at / 2;
	if (c->restart)
		cluster_add_event(s, s->half, EV_RESTART, 0);
	return s;
}

void cluster_run(struct cluster *s)
{
	while (s->events.n > 0) {
		const struct event e = heap_pop(&s->events);

		s->now = e.at;
		if (e.kind == EV_ARRIVE)
			cluster_route(s, e.who);
		else if (e.kind == EV_KV)
			on_kv(s, e.who);
		else if (e.kind == EV_RESTART)
			on_restart(s);
		else if (e.kind != EV_POLL)
			cluster_engine_event(s, &e);
		admit(s);
	}
}

void cluster_destroy(struct cluster *s)
{
	cluster_request_end(s);
	for (uint32_t i = 0; i < s->c.ranks; i++) {
		engine_cache_destroy(s->rank[i].model.cache);
		free(s->rank[i].ends.v);
	}
	kvr_sched_destroy(s->sched);
	kvr_prefix_destroy(s->table);
	free(s->qsbr);
	free(s->ov);
	free(s->slot_free);
	free(s->of_slot);
	free(s->asked);
	free(s->rank);
	free(s->change);
	free(s->scratch);
	free(s->events.v);
	free(s);
}
