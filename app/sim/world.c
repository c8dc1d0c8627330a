/* SPDX-License-Identifier: BSD-3-Clause */
/* Time: what is due next happens next. The phases of a run, and their limits. */
#include "sim.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_sim.h"
#include "leak_check.h"
#include "sched/session.h"

/* How long it may take, in virtual time, once everybody is well. A refused HELLO is said again
 * after 10 s; a request ends after its 20 s, 15 s of silence and 6 s; what has ended is remembered
 * for 18 s. */
#define NOTICE_NS   (3 * SIM_S)	 /* all have noticed that the router is another one */
#define MUTE_NS	    (42 * SIM_S) /* agents have given up mute engines: 40 s */
#define UNWANTED_NS (30 * SIM_S) /* after 10 s of a client's silence and 18 s legs are stopped */
#define SERVE_NS    (15 * SIM_S) /* all engines serve */
#define ENDS_NS	    (45 * SIM_S) /* requests of before have ended */
#define PROBES_NS   (60 * SIM_S) /* new requests have succeeded */
#define REST_NS	    (90 * SIM_S) /* nothing is left of them */
#define SETTLE_NS   SIM_S	 /* events have been applied */
#define LEAVE_NS    (5 * SIM_S)	 /* all have gone, and nothing is left of them */
#define PROBES	    2u
#define STEPS	    UINT64_C(200000000) /* no world needs so many: it goes round in circles */

/* ---- phases ---- */

static void enter(struct sim *s, enum phase p)
{
	s->phase = p;
	s->phase_ns = s->now_ns;
	sim_say(s, "phase %u, %u requests", p, s->n_asks);
}

/* Requests and sessions, ended ones too. */
static bool anything_left(const struct router *rt)
{
	for (uint32_t i = 0; i < rt->n_pools; i++) {
		const struct pool *p = &rt->pool[i];

		if (kvr_flight_count(p->requests) != 0 ||
		    (p->sessions != NULL && (kvr_stats_get(p->sessions->count, SC_LIVE) != 0 ||
					     kvr_stats_get(p->sessions->count, SC_CLOSING) != 0)))
			return true;
	}
	return false;
}

/* A run that no router knows ends when its client does not acknowledge for long. */
static bool anything_runs(const struct sim *s)
{
	for (uint32_t i = 0; i < s->plan.engines; i++)
		if (s->engine[i].runs != 0)
			return true;
	return false;
}

static void leave_all(struct sim *s)
{
	for (uint32_t i = 0; i < s->plan.clients; i++)
		customer_end(s, i, false);
	for (uint32_t i = 0; i < s->plan.engines; i++)
		engine_goodbye(&s->engine[i]);
	enter(s, PHASE_END);
}

static void healed(struct sim *s, uint64_t since)
{
	if (since > SERVE_NS)
		check_serving(s, true);
	if (since > ENDS_NS && customers_waiting(s) != 0)
		sim_fail(s, "%u requests have no outcome", customers_waiting(s));
	/* A prefill leg that nobody answers has its time when its client has gone: only a decode
	 * leg can release what it may have got ready. */
	if (s->plan.pairs && s->plan.bug_mute != 0 && since < UNWANTED_NS)
		return;
	/* An engine that says nothing keeps its booking until its agent gives it up (PROTOCOL.md
	 * 7.4), and others wait for its rank. */
	if (s->plan.queueing && s->plan.bug_mute != 0 && s->plan.client_kills != 0 &&
	    since < MUTE_NS)
		return;
	if (since < NOTICE_NS || !check_serving(s, false) || customers_waiting(s) != 0)
		return;
	enter(s, PHASE_PROBES);
}

/* One after the other: no bound is in their way. */
static void probing(struct sim *s, uint64_t since)
{
	if (since > PROBES_NS)
		sim_fail(s, "request %u is the %uth of %u that shall succeed, and has no outcome",
			 s->n_asks - 1, s->probes, PROBES * s->plan.clients * s->plan.routers);
	else if (customers_waiting(s) != 0)
		return;
	else if (s->probes == PROBES * s->plan.clients * s->plan.routers)
		enter(s, PHASE_REST);
	else {
		customer_probe(s, s->probes % s->plan.clients,
			       s->probes / s->plan.clients % s->plan.routers);
		s->probes++;
	}
}

static void resting(struct sim *s, uint64_t since)
{
	for (uint32_t i = 0; i < s->plan.routers; i++)
		if (anything_left(s->host[i].box.rt) && since < REST_NS)
			return;
	if (anything_runs(s) && since < REST_NS)
		return;
	check_rest(s);
	if (!s->failed)
		leave_all(s);
}

/* @return whether the run is over. */
static bool phases(struct sim *s)
{
	const uint64_t since = s->now_ns - s->phase_ns;

	/* Once a second, and in long runs once in ten: what seeds draw lasts 9 s at most. */
	s->ticks++;
	if (s->ticks % (s->ticks < 300 && s->plan.seconds < 30 ? 10 : 100) == 0) {
		memory_check(s);
		truth_tables(s);
	}
	switch (s->phase) {
	case PHASE_FAULTS:
		if (since >= s->plan.seconds * SIM_S) {
			faults_heal(s);
			enter(s, PHASE_HEALED);
		}
		return false;
	case PHASE_HEALED:
		healed(s, since);
		return false;
	case PHASE_PROBES:
		probing(s, since);
		return false;
	case PHASE_REST:
		if (since > SETTLE_NS)
			resting(s, since);
		return false;
	default:
		if (since < LEAVE_NS)
			return false;
		for (uint32_t i = 0; i < s->plan.routers; i++)
			if (!rest_all(&s->host[i].box))
				sim_fail(s, "something is left in router %u when all have gone", i);
		return true;
	}
}

/* ---- steps ---- */

/* When each of them is due: remembered, as few of them change at a time. */
static uint64_t due_ns(const struct sim *s, uint32_t i)
{
	const uint32_t engine = i - s->plan.routers, client = engine - s->plan.engines;

	if (i < s->plan.routers)
		return host_due_ns(&s->host[i]);
	return engine < s->plan.engines ? engine_due_ns(s, engine) : customer_due_ns(s, client);
}

/* A time above who is due then: the least of all says both, and of equals the lower number comes.
 */
#define WHO_BITS 7
_Static_assert(SIM_DUE <= 1u << WHO_BITS, "who fits a key");

static uint64_t key_of(uint64_t at_ns, uint32_t i)
{
	return RTE_MIN(at_ns, SIM_NEVER >> WHO_BITS) << WHO_BITS | i;
}

static uint64_t least(const uint64_t *v, uint32_t n)
{
	uint64_t m = v[0];

	for (uint32_t i = 1; i < n; i++)
		m = RTE_MIN(m, v[i]);
	return m;
}

static uint32_t groups(const struct sim *s)
{
	return (s->n_due + SIM_GROUP - 1) / SIM_GROUP;
}

/* Mostly somebody else stays first: then nobody is compared but with that. */
static void note_due(struct sim *s, uint32_t i)
{
	const uint64_t key = key_of(due_ns(s, i), i), was = s->due[i];
	uint64_t *group = &s->group[i / SIM_GROUP];

	s->due[i] = key;
	if (key <= *group)
		*group = key;
	else if (*group == was)
		*group = least(&s->due[i / SIM_GROUP * SIM_GROUP], SIM_GROUP);
	if (key <= s->first)
		s->first = key;
	else if (s->first == was)
		s->first = least(s->group, groups(s));
}

static void note_all_due(struct sim *s)
{
	for (uint32_t i = 0; i < SIM_DUE; i++)
		s->due[i] = key_of(i < s->n_due ? due_ns(s, i) : SIM_NEVER, i);
	for (uint32_t g = 0; g < SIM_DUE / SIM_GROUP; g++)
		s->group[g] = least(&s->due[g * SIM_GROUP], SIM_GROUP);
	s->first = least(s->group, groups(s));
}

/* It waits at its receiver, or is dropped when nobody has its address. */
static void receive(struct sim *s, struct packet *p)
{
	const uint32_t to = p->dst;

	if (to < s->plan.routers) {
		host_arrive(&s->host[to], p);
		net_free(&s->net, p);
		note_due(s, to);
	} else {
		node_receive(s, p);
		note_due(s, s->plan.routers + to / s->plan.routers - 1);
	}
}

/* A router, an engine or a client. */
static void somebody(struct sim *s, uint32_t i)
{
	const uint32_t engine = i - s->plan.routers;

	if (i < s->plan.routers) {
		if (host_run(&s->host[i]))
			check_loads(&s->host[i]);
	} else if (engine < s->plan.engines) {
		engine_run(s, engine);
	} else {
		customer_run(s, engine - s->plan.engines);
	}
	note_due(s, i);
}

/* What is due next happens. @return false: the phase is to be looked at. */
static bool step(struct sim *s, uint64_t phase_ns)
{
	const uint64_t frame = net_next_ns(&s->net);
	const uint64_t fault = s->phase == PHASE_FAULTS ? faults_due_ns(s) : SIM_NEVER;
	uint64_t at = RTE_MIN(frame, RTE_MIN(fault, phase_ns));
	uint32_t who = (uint32_t)(s->first & ((1u << WHO_BITS) - 1));

	if (s->first >> WHO_BITS < at)
		at = s->first >> WHO_BITS;
	else
		who = s->n_due;
	s->now_ns = RTE_MAX(s->now_ns, at);
	if (who < s->n_due) {
		somebody(s, who);
	} else if (at == phase_ns) {
		return false;
	} else if (at == frame) {
		receive(s, net_take(&s->net));
	} else {
		faults_run(s);
		note_all_due(s);
	}
	return true;
}

/* A place in the code asks whether it is to fail: only builds with sites do. */
static bool site_fails(void *arg, enum kvr_sim_site site)
{
	struct sim *s = arg;

	RTE_SET_USED(site);
	return sim_faults(s) && sim_chance(&s->rand, s->plan.sites);
}

static void run(struct sim *s)
{
	uint64_t phase_ns = s->now_ns;
	bool over = false;

	note_all_due(s);
	kvr_sim_hook(site_fails, s);
	while (!s->failed && !over) {
		s->steps++;
		if (!step(s, phase_ns)) {
			over = phases(s);
			phase_ns = s->now_ns + 100 * SIM_MS;
			note_all_due(s);
		}
		if (s->steps > STEPS)
			sim_fail(s, "it does not end");
	}
	kvr_sim_hook(NULL, NULL);
	for (uint32_t i = 0; i < s->plan.routers && s->failed; i++)
		if (s->host[i].up)
			check_say_left(s, s->host[i].box.rt);
}

/* ---- begin and end ---- */

static int begin(struct sim *s)
{
	const struct sim_plan *o = &s->plan;
	int rc;

	if (o->routers > SIM_ROUTERS || o->engines > SIM_ENGINES || o->clients > SIM_CLIENTS)
		return -EINVAL;
	if (o->engines < 2)
		s->plan.pairs = 0; /* it takes two */
	s->n_due = o->routers + o->engines + o->clients;
	s->n_nodes = o->routers * (1 + o->engines + o->clients);
	s->now_ns = 10 * SIM_S;
	kvr_rand_init(&s->rand, kvr_mix64(s->plan.seed));
	net_begin(s);
	for (uint32_t i = 0; i < s->n_nodes; i++)
		node_begin(s, i);
	rc = faults_begin(s);
	rc = rc == 0 ? disk_begin(s) : rc;
	for (uint32_t i = 0; i < o->routers && rc == 0; i++)
		rc = host_begin(s, i);
	for (uint32_t i = 0; i < o->engines && rc == 0; i++)
		rc = engine_begin(s, i);
	for (uint32_t i = 0; i < o->clients && rc == 0; i++)
		rc = customer_begin(s, i);
	for (const struct sim_field *f = sim_fields; f->name != NULL; f++)
		if (*sim_field_at(&s->plan, f) != 0)
			sim_say(s, "%s=%u", f->name, *sim_field_at(&s->plan, f));
	enter(s, PHASE_FAULTS);
	return rc;
}

static void end(struct sim *s)
{
	for (uint32_t i = 0; i < s->plan.clients; i++)
		customer_end(s, i, true);
	for (uint32_t i = 0; i < s->plan.engines; i++)
		engine_end(s, i);
	for (uint32_t i = 0; i < s->plan.routers; i++)
		host_end(&s->host[i]);
	for (uint32_t i = 0; i < SIM_ENGINES * SIM_RANKS; i++)
		announced_free(&s->engine[i / SIM_RANKS].rank[i % SIM_RANKS].told);
	disk_end(s);
	net_end(s);
	prompts_free(s);
	free(s->ask);
	free(s->run);
	free(s->incident);
}

static FILE *open_pcap(const char *path)
{
	/* Microseconds, 64 KiB, Ethernet. */
	static const uint32_t head[] = {0xa1b2c3d4, 4u << 16 | 2, 0, 0, 65535, 1};
	FILE *f = fopen(path, "w");

	if (f != NULL)
		fwrite(head, sizeof(head), 1, f);
	return f;
}

int world_run(const struct sim_plan *p, bool verbose, const char *pcap, struct sim_result *out)
{
	struct sim *s = calloc(1, sizeof(*s));
	int rc;

	if (s == NULL)
		return -ENOMEM;
	s->plan = *p;
	s->verbose = verbose;
	if (pcap != NULL && (s->net.pcap = open_pcap(pcap)) == NULL) {
		free(s);
		return -errno;
	}
	rc = begin(s);
	if (rc == 0)
		run(s);
	*out = (struct sim_result){.ns = s->now_ns - 10 * SIM_S,
				   .steps = s->steps,
				   .frames = s->net.sent,
				   .asks = s->n_asks};
	end(s);
	out->again = s->again;
	out->failed = s->failed;
	out->digest = s->digest;
	memcpy(out->why, s->why, sizeof(out->why));
	memcpy(out->ends, s->ends, sizeof(out->ends));
	free(s);
	return rc;
}
