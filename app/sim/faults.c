/* SPDX-License-Identifier: BSD-3-Clause */
/* Who dies, stands still or is cut off, and when: drawn before the world begins. */
#include "sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum incident_kind {
	ROUTER_DIES,
	ROUTER_STILL,
	LCORE_STILL,
	ENGINE_DIES,
	ENGINE_BACK,
	ENGINE_LEAVES,
	ENGINE_STILL,
	ENGINE_MOVES,
	ENGINE_FORGETS,
	CLIENT_DIES,
	CLIENT_BACK,
	CLIENT_STILL,
	CUT,
	CLOG,
	ROUTER_ENDS,
	ENGINE_DRAINS,
	ENGINE_RESUMES,
	RANK_MOVES,
	AGENT_DIES,
	AGENT_BACK,
	KINDS
};

/* Of each kind: a field of the plan, who it is about, how long it takes. */
static const struct {
	size_t count;
	enum { ROUTER, ENGINE, CLIENT, LINK } who;
	uint32_t most_ms;
} kinds[KINDS] = {
	[ROUTER_DIES] = {offsetof(struct sim_plan, router_kills), ROUTER, 1500},
	[ROUTER_STILL] = {offsetof(struct sim_plan, router_pauses), ROUTER, 3000},
	[LCORE_STILL] = {offsetof(struct sim_plan, stalls), ROUTER, 1500},
	[ENGINE_DIES] = {offsetof(struct sim_plan, engine_kills), ENGINE, 3000},
	[ENGINE_LEAVES] = {offsetof(struct sim_plan, engine_leaves), ENGINE, 3000},
	[ENGINE_STILL] = {offsetof(struct sim_plan, engine_pauses), ENGINE, 4000},
	[ENGINE_MOVES] = {offsetof(struct sim_plan, engine_moves), ENGINE, 0},
	[ENGINE_FORGETS] = {offsetof(struct sim_plan, bug_zero), ENGINE, 0},
	[CLIENT_DIES] = {offsetof(struct sim_plan, client_kills), CLIENT, 3000},
	[CLIENT_STILL] = {offsetof(struct sim_plan, client_pauses), CLIENT, 4000},
	[CUT] = {offsetof(struct sim_plan, cuts), LINK, 4000},
	[CLOG] = {offsetof(struct sim_plan, clogs), LINK, 2000},
	[ROUTER_ENDS] = {offsetof(struct sim_plan, router_stops), ROUTER, 1500},
	[ENGINE_DRAINS] = {offsetof(struct sim_plan, engine_drains), ENGINE, 3000},
	[RANK_MOVES] = {offsetof(struct sim_plan, bug_moves), ENGINE, 1000},
	[AGENT_DIES] = {offsetof(struct sim_plan, agent_kills), ENGINE, 1500},
};

/* What comes of it after a while; of the others nothing (KINDS). */
static enum incident_kind after(uint8_t kind)
{
	if (kind == ENGINE_DIES || kind == ENGINE_LEAVES)
		return ENGINE_BACK;
	if (kind == ENGINE_DRAINS)
		return ENGINE_RESUMES;
	if (kind == AGENT_DIES)
		return AGENT_BACK;
	return kind == CLIENT_DIES ? CLIENT_BACK : KINDS;
}

static bool is_after(uint8_t kind)
{
	return kind == ENGINE_BACK || kind == CLIENT_BACK || kind == ENGINE_RESUMES ||
	       kind == AGENT_BACK;
}

static int earlier(const void *x, const void *y)
{
	const struct incident *a = x, *b = y;

	return a->at_ns != b->at_ns ? (a->at_ns < b->at_ns ? -1 : 1) : (int)a->kind - b->kind;
}

static void add(struct sim *s, struct kvr_rand *r, uint8_t kind)
{
	struct incident *i = &s->incident[s->n_incidents];
	const uint32_t routers = s->plan.routers;

	*i = (struct incident){.at_ns = s->now_ns +
					kvr_rand_below(r, s->plan.seconds * 1000) * SIM_MS,
			       .kind = kind,
			       .ms = 1 + kvr_rand_below(r, kinds[kind].most_ms + 1)};
	s->n_incidents++;
	if (kinds[kind].who == ROUTER && routers > 1)
		i->a = kvr_rand_below(r, routers);
	if (kinds[kind].who == ENGINE)
		i->a = kvr_rand_below(r, s->plan.engines);
	if (kinds[kind].who == CLIENT)
		i->a = kvr_rand_below(r, s->plan.clients);
	if (kinds[kind].who == LINK) { /* mostly one to or from the router */
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
	if (after(kind) != KINDS) {
		s->incident[s->n_incidents] = *i;
		s->incident[s->n_incidents].at_ns += i->ms * SIM_MS;
		s->incident[s->n_incidents++].kind = after(kind);
	}
}

int faults_begin(struct sim *s)
{
	struct kvr_rand r;
	uint32_t n = 0;

	kvr_rand_init(&r, kvr_mix64(s->plan.seed ^ 0x6661756c));
	for (uint32_t k = 0; k < KINDS; k++)
		if (!is_after((uint8_t)k))
			n += *(const uint32_t *)((const char *)&s->plan + kinds[k].count);
	s->incident = calloc(2 * n + 1, sizeof(*s->incident));
	if (s->incident == NULL)
		return -ENOMEM;
	for (uint8_t k = 0; k < KINDS; k++) {
		struct kvr_rand own = r;

		own.state = kvr_mix64(own.state + k);
		if (is_after(k))
			continue;
		n = *(const uint32_t *)((const char *)&s->plan + kinds[k].count);
		while (n-- > 0)
			add(s, &own, k);
	}
	qsort(s->incident, s->n_incidents, sizeof(*s->incident), earlier);
	return 0;
}

uint64_t faults_due_ns(const struct sim *s)
{
	return s->next_incident < s->n_incidents ? s->incident[s->next_incident].at_ns : SIM_NEVER;
}

/* Its agents ask for it, or an operator of each router does. */
static void drain(struct sim *s, const struct incident *i, bool on)
{
	if (i->ms % 2 == 0) {
		engine_drain(&s->engine[i->a], on);
		return;
	}
	for (uint32_t r = 0; r < s->plan.routers; r++)
		host_drain(&s->host[r], i->a, on);
}

/* With another of the same pool. */
static void move(struct sim *s, const struct incident *i)
{
	const uint32_t b = (i->a + 2 * (1 + i->ms)) % s->plan.engines;

	if (b != i->a && s->engine[b].up && s->engine[b].prefill == s->engine[i->a].prefill)
		cache_move(s, &s->engine[i->a], &s->engine[b], i->ms % s->plan.ranks);
}

static void engine_incident(struct sim *s, const struct incident *i)
{
	struct engine *e = &s->engine[i->a];
	const uint64_t until = s->now_ns + i->ms * SIM_MS;

	if (i->kind == ENGINE_BACK || !e->up) {
		if (i->kind == ENGINE_BACK) {
			engine_end(s, i->a); /* one that has left is still there */
			if (engine_begin(s, i->a) < 0)
				sim_fail(s, "engine %u does not start", i->a);
		}
	} else if (i->kind == AGENT_BACK) {
		if (agents_begin(s, i->a) < 0)
			sim_fail(s, "the agents of engine %u do not start", i->a);
	} else if (i->kind == ENGINE_DIES) {
		engine_end(s, i->a);
	} else if (e->seat[0].agent == NULL) {
		return; /* nobody is there to tell it */
	} else if (i->kind == AGENT_DIES) {
		agents_end(s, i->a);
	} else if (i->kind == ENGINE_LEAVES) {
		e->leaving = true;
		engine_goodbye(e);
	} else if (i->kind == ENGINE_STILL) {
		engine_still(e, until);
	} else if (i->kind == ENGINE_DRAINS || i->kind == ENGINE_RESUMES) {
		drain(s, i, i->kind == ENGINE_DRAINS);
	} else if (i->kind == RANK_MOVES) {
		move(s, i);
	} else if (i->kind == ENGINE_MOVES) {
		e->seat[i->ms % s->plan.routers].node->addr.port += 1000;
	} else {
		for (uint32_t k = 0; k < s->plan.ranks; k++)
			cache_forget(s, e, k);
	}
}

static void client_incident(struct sim *s, const struct incident *i)
{
	if (i->kind == CLIENT_STILL) {
		customer_still(s, i->a, s->now_ns + i->ms * SIM_MS);
	} else if (i->kind == CLIENT_DIES) {
		customer_end(s, i->a, i->ms % 2 == 0);
	} else if (!s->customer[i->a].up && customer_begin(s, i->a) < 0) {
		sim_fail(s, "client %u does not start", i->a);
	}
}

static void router_incident(struct sim *s, const struct incident *i)
{
	const uint64_t until = s->now_ns + i->ms * SIM_MS;
	struct host *h = &s->host[i->a];

	if (i->kind == ROUTER_STILL)
		h->still_until_ns = until;
	if (!h->up)
		return;
	if (i->kind == ROUTER_DIES)
		host_kill(h, i->ms);
	else if (i->kind == LCORE_STILL)
		h->stall_ns[kvr_rand_below(&h->rand, h->box.rt->n_lcores)] = until;
	else if (i->kind == ROUTER_ENDS && h->stop == NULL && stop_begin(h, i->ms) < 0)
		sim_fail(s, "no memory for the end of a router");
}

void faults_run(struct sim *s)
{
	static const char *const names[KINDS] = {"router dies",
						 "router stands still",
						 "lcore stands still",
						 "engine dies",
						 "engine is back",
						 "engine leaves",
						 "engine stands still",
						 "engine moves",
						 "engine forgets",
						 "client dies",
						 "client is back",
						 "client stands still",
						 "cut",
						 "clog",
						 "router ends",
						 "engine drains",
						 "engine resumes",
						 "rank moves",
						 "agent dies",
						 "agent is back"};
	const struct incident *i = &s->incident[s->next_incident++];
	const uint64_t until = s->now_ns + i->ms * SIM_MS;

	sim_say(s, "%s: %u %u for %u ms", names[i->kind], i->a, i->b, i->ms);
	switch (i->kind) {
	case CUT:
		s->net.cut_until_ns[i->a][i->b] = until;
		break;
	case CLOG:
		s->net.clog_until_ns[i->a][i->b] = until;
		break;
	case CLIENT_DIES:
	case CLIENT_BACK:
	case CLIENT_STILL:
		client_incident(s, i);
		break;
	default:
		if (kinds[i->kind].who == ROUTER && i->kind != ENGINE_BACK)
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
		s->node[i].still_until_ns = 0;
	for (uint32_t i = 0; i < s->plan.routers; i++) {
		struct host *h = &s->host[i];

		h->still_until_ns = 0;
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
		agents_begin(s, i); /* unless they are there */
		for (uint32_t k = 0; k < s->plan.ranks; k++)
			cache_mend(s, &s->engine[i], k);
		if (s->plan.engine_drains != 0) /* whoever has drained it */
			engine_drain(&s->engine[i], false);
	}
	for (uint32_t i = 0; i < s->plan.clients; i++)
		if (!s->customer[i].up)
			customer_begin(s, i);
}
