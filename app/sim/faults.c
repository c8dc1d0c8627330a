/* SPDX-License-Identifier: BSD-3-Clause */
/* The schedule of faults: crashes, pauses and cuts, drawn before the world begins. */
#include "failing.h"
#include "sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum incident_kind {
	ROUTER_CRASHES,
	ROUTER_PAUSES,
	LCORE_STALLS,
	ENGINE_CRASHES,
	ENGINE_RETURNS,
	ENGINE_LEAVES,
	ENGINE_PAUSES,
	ENGINE_MOVES,
	ENGINE_CLEARS,
	CLIENT_CRASHES,
	CLIENT_RETURNS,
	CLIENT_PAUSES,
	CUT,
	CLOG,
	ROUTER_ENDS,
	ENGINE_DRAINS,
	ENGINE_RESUMES,
	RANK_MOVES,
	AGENT_CRASHES,
	AGENT_RETURNS,
	ENGINE_FAILS,
	KINDS
};

/* By kind: field of the plan, target, longest duration. */
static const struct {
	size_t count;
	enum { ROUTER, ENGINE, CLIENT, LINK } target;
	uint32_t most_ms;
} kinds[KINDS] = {
	[ROUTER_CRASHES] = {offsetof(struct sim_plan, router_kills), ROUTER, 1500},
	[ROUTER_PAUSES] = {offsetof(struct sim_plan, router_pauses), ROUTER, 3000},
	[LCORE_STALLS] = {offsetof(struct sim_plan, stalls), ROUTER, 1500},
	[ENGINE_CRASHES] = {offsetof(struct sim_plan, engine_kills), ENGINE, 3000},
	[ENGINE_LEAVES] = {offsetof(struct sim_plan, engine_leaves), ENGINE, 3000},
	[ENGINE_PAUSES] = {offsetof(struct sim_plan, engine_pauses), ENGINE, 4000},
	[ENGINE_MOVES] = {offsetof(struct sim_plan, engine_moves), ENGINE, 0},
	[ENGINE_CLEARS] = {offsetof(struct sim_plan, bug_zero), ENGINE, 0},
	[CLIENT_CRASHES] = {offsetof(struct sim_plan, client_kills), CLIENT, 3000},
	[CLIENT_PAUSES] = {offsetof(struct sim_plan, client_pauses), CLIENT, 4000},
	[CUT] = {offsetof(struct sim_plan, cuts), LINK, 4000},
	[CLOG] = {offsetof(struct sim_plan, clogs), LINK, 2000},
	[ROUTER_ENDS] = {offsetof(struct sim_plan, router_stops), ROUTER, 1500},
	[ENGINE_DRAINS] = {offsetof(struct sim_plan, engine_drains), ENGINE, 3000},
	[RANK_MOVES] = {offsetof(struct sim_plan, bug_moves), ENGINE, 1000},
	[AGENT_CRASHES] = {offsetof(struct sim_plan, agent_kills), ENGINE, 1500},
	[ENGINE_FAILS] = {offsetof(struct sim_plan, engine_fails), ENGINE, 4000},
};

/* The kind that follows after the duration. KINDS: none. */
static enum incident_kind following_kind(uint8_t kind)
{
	if (kind == ENGINE_CRASHES || kind == ENGINE_LEAVES)
		return ENGINE_RETURNS;
	if (kind == ENGINE_DRAINS)
		return ENGINE_RESUMES;
	if (kind == AGENT_CRASHES)
		return AGENT_RETURNS;
	return kind == CLIENT_CRASHES ? CLIENT_RETURNS : KINDS;
}

static bool follows_another(uint8_t kind)
{
	return kind == ENGINE_RETURNS || kind == CLIENT_RETURNS || kind == ENGINE_RESUMES ||
	       kind == AGENT_RETURNS;
}

static int compare_incidents(const void *x, const void *y)
{
	const struct incident *a = x, *b = y;

	return a->at_ns != b->at_ns ? (a->at_ns < b->at_ns ? -1 : 1) : (int)a->kind - b->kind;
}

static void add_incident(struct sim *s, struct kvr_rand *r, uint8_t kind)
{
	struct incident *i = &s->incident[s->n_incidents];
	const uint32_t routers = s->plan.routers;

	*i = (struct incident){.at_ns = s->now_ns +
					kvr_rand_below(r, s->plan.seconds * 1000) * SIM_MS,
			       .kind = kind,
			       .ms = 1 + kvr_rand_below(r, kinds[kind].most_ms + 1)};
	s->n_incidents++;
	if (kinds[kind].target == ROUTER && routers > 1)
		i->a = kvr_rand_below(r, routers);
	if (kinds[kind].target == ENGINE)
		i->a = kvr_rand_below(r, s->plan.engines);
	if (kinds[kind].target == CLIENT)
		i->a = kvr_rand_below(r, s->plan.clients);
	if (kinds[kind].target == LINK) { /* three quarters of them at a router */
		i->a = kvr_rand_below(r, 4) < 3 ? UINT32_MAX : kvr_rand_below(r, s->n_nodes);
		i->b = kvr_rand_below(r, s->n_nodes);
		if (i->a == UINT32_MAX)
			i->a = i->b % routers;
		if (kvr_rand_below(r, 2) == 0) {
			const uint32_t a = i->a;

			i->a = i->b;
			i->b = a;
		}
	}
	if (following_kind(kind) != KINDS) {
		s->incident[s->n_incidents] = *i;
		s->incident[s->n_incidents].at_ns += i->ms * SIM_MS;
		s->incident[s->n_incidents++].kind = following_kind(kind);
	}
}

int faults_begin(struct sim *s)
{
	struct kvr_rand r;
	uint32_t n = 0;

	kvr_rand_init(&r, kvr_mix64(s->plan.seed ^ 0x6661756c));
	for (uint32_t k = 0; k < KINDS; k++)
		if (!follows_another((uint8_t)k))
			n += *(const uint32_t *)((const char *)&s->plan + kinds[k].count);
	s->incident = calloc(2 * n + 1, sizeof(*s->incident));
	if (s->incident == NULL)
		return -ENOMEM;
	for (uint8_t k = 0; k < KINDS; k++) {
		struct kvr_rand own = r;

		own.state = kvr_mix64(own.state + k);
		if (follows_another(k))
			continue;
		n = *(const uint32_t *)((const char *)&s->plan + kinds[k].count);
		while (n-- > 0)
			add_incident(s, &own, k);
	}
	qsort(s->incident, s->n_incidents, sizeof(*s->incident), compare_incidents);
	return 0;
}

uint64_t faults_due_ns(const struct sim *s)
{
	return s->next_incident < s->n_incidents ? s->incident[s->next_incident].at_ns : SIM_NEVER;
}

/* The agents ask for it, or an operator does at each router. */
static void drain_engine(struct sim *s, const struct incident *i, bool on)
{
	if (i->ms % 2 == 0) {
		engine_drain(&s->engine[i->a], on);
		return;
	}
	for (uint32_t r = 0; r < s->plan.routers; r++)
		host_drain(&s->host[r], i->a, on);
}

/* Swap with another engine of the same pool. */
static void move_rank(struct sim *s, const struct incident *i)
{
	const uint32_t b = (i->a + 2 * (1 + i->ms)) % s->plan.engines;

	if (b != i->a && s->engine[b].up && s->engine[b].prefill == s->engine[i->a].prefill)
		cache_move(s, &s->engine[i->a], &s->engine[b], i->ms % s->plan.ranks);
}

static void engine_incident(struct sim *s, const struct incident *i)
{
	struct engine *e = &s->engine[i->a];
	const uint64_t until = s->now_ns + i->ms * SIM_MS;

	if (i->kind == ENGINE_RETURNS || !e->up) {
		if (i->kind == ENGINE_RETURNS) {
			engine_end(s, i->a); /* an engine that left is still running */
			if (engine_begin(s, i->a) < 0)
				sim_fail(s, "engine %u: cannot start", i->a);
		}
	} else if (i->kind == AGENT_RETURNS) {
		if (agents_begin(s, i->a) < 0)
			sim_fail(s, "engine %u: cannot start its agents", i->a);
	} else if (i->kind == ENGINE_CRASHES) {
		engine_end(s, i->a);
	} else if (i->kind == ENGINE_FAILS) {
		failing_begin(e, until);
	} else if (e->seat[0].agent == NULL) {
		return; /* no agent is running */
	} else if (i->kind == AGENT_CRASHES) {
		agents_end(s, i->a);
	} else if (i->kind == ENGINE_LEAVES) {
		e->leaving = true;
		engine_leave(e);
	} else if (i->kind == ENGINE_PAUSES) {
		engine_suspend(e, until);
	} else if (i->kind == ENGINE_DRAINS || i->kind == ENGINE_RESUMES) {
		drain_engine(s, i, i->kind == ENGINE_DRAINS);
	} else if (i->kind == RANK_MOVES) {
		move_rank(s, i);
	} else if (i->kind == ENGINE_MOVES) {
		e->seat[i->ms % s->plan.routers].node->addr.port += 1000;
	} else {
		for (uint32_t k = 0; k < s->plan.ranks; k++)
			cache_forget(s, e, k);
	}
}

static void client_incident(struct sim *s, const struct incident *i)
{
	if (i->kind == CLIENT_PAUSES) {
		client_suspend(s, i->a, s->now_ns + i->ms * SIM_MS);
	} else if (i->kind == CLIENT_CRASHES) {
		client_end(s, i->a, i->ms % 2 == 0);
	} else if (!s->client[i->a].up && client_start(s, i->a) < 0) {
		sim_fail(s, "client %u: cannot start", i->a);
	}
}

static void router_incident(struct sim *s, const struct incident *i)
{
	const uint64_t until = s->now_ns + i->ms * SIM_MS;
	struct host *h = &s->host[i->a];

	if (i->kind == ROUTER_PAUSES)
		h->paused_until_ns = until;
	if (!h->up)
		return;
	if (i->kind == ROUTER_CRASHES)
		host_kill(h, i->ms);
	else if (i->kind == LCORE_STALLS)
		h->stall_ns[kvr_rand_below(&h->rand, h->rig.rt->n_lcores)] = until;
	else if (i->kind == ROUTER_ENDS && h->stop == NULL && stop_begin(h, i->ms) < 0)
		sim_fail(s, "no memory for the shutdown of a router");
}

void faults_run(struct sim *s)
{
	static const char *const names[KINDS] = {"router crashes",
						 "router pauses",
						 "lcore stalls",
						 "engine crashes",
						 "engine restarts",
						 "engine leaves",
						 "engine pauses",
						 "agent changes its port",
						 "engine clears its cache silently",
						 "client crashes",
						 "client restarts",
						 "client pauses",
						 "cut",
						 "clog",
						 "router shuts down",
						 "engine is drained",
						 "engine is resumed",
						 "ranks are swapped",
						 "agents crash",
						 "agents restart",
						 "engine fails its requests"};
	const struct incident *i = &s->incident[s->next_incident++];
	const uint64_t until = s->now_ns + i->ms * SIM_MS;

	sim_log(s, "%s: %u %u for %u ms", names[i->kind], i->a, i->b, i->ms);
	switch (i->kind) {
	case CUT:
		s->net.cut_until_ns[i->a][i->b] = until;
		break;
	case CLOG:
		s->net.clog_until_ns[i->a][i->b] = until;
		break;
	case CLIENT_CRASHES:
	case CLIENT_RETURNS:
	case CLIENT_PAUSES:
		client_incident(s, i);
		break;
	default:
		if (kinds[i->kind].target == ROUTER && i->kind != ENGINE_RETURNS)
			router_incident(s, i);
		else
			engine_incident(s, i);
	}
}

void faults_heal(struct sim *s)
{
	struct net *n = &s->net;

	s->next_incident = s->n_incidents;
	n->healed = true;
	memset(n->cut_until_ns, 0, sizeof(n->cut_until_ns));
	memset(n->clog_until_ns, 0, sizeof(n->clog_until_ns));
	for (uint32_t i = 0; i < s->n_nodes; i++)
		s->node[i].paused_until_ns = 0;
	for (uint32_t i = 0; i < s->plan.routers; i++) {
		struct host *h = &s->host[i];

		h->paused_until_ns = 0;
		memset(h->stall_ns, 0, sizeof(h->stall_ns));
		if (h->stop != NULL)
			host_kill(h, 0);
		if (!h->up)
			host_begin(s, i);
	}
	for (uint32_t i = 0; i < s->plan.engines; i++) {
		if (!s->engine[i].up || s->engine[i].leaving) {
			engine_end(s, i);
			engine_begin(s, i);
		}
		s->engine[i].fails_until_ns = 0;
		agents_begin(s, i); /* has no effect on running agents */
		for (uint32_t k = 0; k < s->plan.ranks; k++)
			cache_mend(s, &s->engine[i], k);
		if (s->plan.engine_drains != 0) /* the agents or an operator may have drained it */
			engine_drain(&s->engine[i], false);
	}
	for (uint32_t i = 0; i < s->plan.clients; i++)
		if (!s->client[i].up)
			client_start(s, i);
}
