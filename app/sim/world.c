/* SPDX-License-Identifier: BSD-3-Clause */
/* The loop over events in the order of time, and the phases of a run with their limits. */
#include "sim.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_sim.h"
#include "leak_check.h"
#include "sched/session.h"

/* Limits in virtual time after healing. A rejected HELLO is repeated after 10 s; a request ends
 * after its limit of 20 s, 15 s of silence and 6 s; ended requests are remembered for 18 s. */
#define NOTICE_NS   (3 * SIM_S)	 /* all peers have noticed a new router */
#define MUTE_NS	    (42 * SIM_S) /* agents have given up unresponsive engines: 40 s */
#define UNWANTED_NS (30 * SIM_S) /* legs are stopped after 10 s of a client's silence, and 18 s */
#define SERVE_NS    (15 * SIM_S) /* all engines serve */
#define ENDS_NS	    (45 * SIM_S) /* earlier requests have ended */
#define PROBES_NS   (60 * SIM_S) /* new requests have succeeded */
#define REST_NS	    (90 * SIM_S) /* nothing of them is left */
#define SETTLE_NS   SIM_S	 /* events have been applied */
#define LEAVE_NS    (5 * SIM_S)	 /* all peers have left, and nothing of them is left */
#define PROBES	    2u
#define STEPS	    UINT64_C(200000000) /* no world needs more: the loop makes no progress */

/* ---- phases ---- */

static void enter_phase(struct sim *s, enum phase p)
{
	s->phase = p;
	s->phase_ns = s->now_ns;
	sim_log(s, "phase %u, %u requests", p, s->n_requests);
}

/* Requests and sessions, including ended ones. */
static bool any_request_left(const struct router *rt)
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

/* An execution that no router knows ends when its client does not acknowledge for long. */
static bool any_execution(const struct sim *s)
{
	for (uint32_t i = 0; i < s->plan.engines; i++)
		if (s->engine[i].executions != 0)
			return true;
	return false;
}

static void leave_all(struct sim *s)
{
	for (uint32_t i = 0; i < s->plan.clients; i++)
		client_end(s, i, false);
	for (uint32_t i = 0; i < s->plan.engines; i++)
		engine_leave(&s->engine[i]);
	enter_phase(s, PHASE_END);
}

static void after_healing(struct sim *s, uint64_t since)
{
	if (since > SERVE_NS)
		check_serving(s, true);
	if (since > ENDS_NS && clients_waiting(s) != 0)
		sim_fail(s, "%u requests have no outcome", clients_waiting(s));
	/* A prefill leg that is never answered runs into its time limit after its client has gone:
	 * only a decode leg can release its blocks. */
	if (s->plan.pairs && s->plan.bug_mute != 0 && since < UNWANTED_NS)
		return;
	/* An engine that never answers keeps its booking until its agent gives it up (PROTOCOL.md
	 * 7.4), while others wait for its rank. */
	if (s->plan.queueing && s->plan.bug_mute != 0 && s->plan.client_kills != 0 &&
	    since < MUTE_NS)
		return;
	if (since < NOTICE_NS || !check_serving(s, false) || clients_waiting(s) != 0)
		return;
	enter_phase(s, PHASE_PROBES);
}

/* One after the other, so that no limit interferes. */
static void after_probes(struct sim *s, uint64_t since)
{
	if (since > PROBES_NS)
		sim_fail(s, "request %u, number %u of %u that must succeed, has no outcome",
			 s->n_requests - 1, s->probes, PROBES * s->plan.clients * s->plan.routers);
	else if (clients_waiting(s) != 0)
		return;
	else if (s->probes == PROBES * s->plan.clients * s->plan.routers)
		enter_phase(s, PHASE_REST);
	else {
		client_send_probe(s, s->probes % s->plan.clients,
				  s->probes / s->plan.clients % s->plan.routers);
		s->probes++;
	}
}

static void after_rest(struct sim *s, uint64_t since)
{
	for (uint32_t i = 0; i < s->plan.routers; i++)
		if (any_request_left(s->host[i].rig.rt) && since < REST_NS)
			return;
	if (any_execution(s) && since < REST_NS)
		return;
	check_rest(s);
	if (!s->failed)
		leave_all(s);
}

/* @return whether the run has ended. */
static bool advance_phase(struct sim *s)
{
	const uint64_t since = s->now_ns - s->phase_ns;

	/* Once a second, or once in ten seconds of a long run: drawn runs last at most 9 s. */
	s->ticks++;
	if (s->ticks % (s->ticks < 300 && s->plan.seconds < 30 ? 10 : 100) == 0) {
		memory_check(s);
		oracle_check_tables(s);
	}
	switch (s->phase) {
	case PHASE_FAULTS:
		if (since >= s->plan.seconds * SIM_S) {
			faults_heal(s);
			enter_phase(s, PHASE_HEALED);
		}
		return false;
	case PHASE_HEALED:
		after_healing(s, since);
		return false;
	case PHASE_PROBES:
		after_probes(s, since);
		return false;
	case PHASE_REST:
		if (since > SETTLE_NS)
			after_rest(s, since);
		return false;
	default:
		if (since < LEAVE_NS)
			return false;
		for (uint32_t i = 0; i < s->plan.routers; i++)
			if (!leak_check_all(&s->host[i].rig))
				sim_fail(s,
					 "router %u has something left after all peers have gone",
					 i);
		return true;
	}
}

/* ---- steps ---- */

/* Time at which a router, engine or client is due. The values are kept, as few change at a time. */
static uint64_t due_ns(const struct sim *s, uint32_t i)
{
	const uint32_t engine = i - s->plan.routers, client = engine - s->plan.engines;

	if (i < s->plan.routers)
		return host_due_ns(&s->host[i]);
	return engine < s->plan.engines ? engine_due_ns(s, engine) : client_due_ns(s, client);
}

/* Sort key: time, then number. The minimum gives both, and the lower number comes first of equal
 * times. */
#define WHO_BITS 7
_Static_assert(SIM_DUE <= 1u << WHO_BITS, "the number fits the key");

static uint64_t key_of(uint64_t at_ns, uint32_t i)
{
	return RTE_MIN(at_ns, SIM_NEVER >> WHO_BITS) << WHO_BITS | i;
}

static uint64_t least_due(const uint64_t *v, uint32_t n)
{
	uint64_t m = v[0];

	for (uint32_t i = 1; i < n; i++)
		m = RTE_MIN(m, v[i]);
	return m;
}

static uint32_t group_due(const struct sim *s)
{
	return (s->n_due + SIM_GROUP - 1) / SIM_GROUP;
}

/* Usually another one stays first, and a single comparison is enough. */
static void note_due(struct sim *s, uint32_t i)
{
	const uint64_t key = key_of(due_ns(s, i), i), was = s->due[i];
	uint64_t *group = &s->group[i / SIM_GROUP];

	s->due[i] = key;
	if (key <= *group)
		*group = key;
	else if (*group == was)
		*group = least_due(&s->due[i / SIM_GROUP * SIM_GROUP], SIM_GROUP);
	if (key <= s->first)
		s->first = key;
	else if (s->first == was)
		s->first = least_due(s->group, group_due(s));
}

static void note_all_due(struct sim *s)
{
	for (uint32_t i = 0; i < SIM_DUE; i++)
		s->due[i] = key_of(i < s->n_due ? due_ns(s, i) : SIM_NEVER, i);
	for (uint32_t g = 0; g < SIM_DUE / SIM_GROUP; g++)
		s->group[g] = least_due(&s->due[g * SIM_GROUP], SIM_GROUP);
	s->first = least_due(s->group, group_due(s));
}

/* Queue the frame at its receiver, or drop it when no node has the address. */
static void receive_frame(struct sim *s, struct packet *p)
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

/* @p i: a router, an engine or a client. */
static void any_due(struct sim *s, uint32_t i)
{
	const uint32_t engine = i - s->plan.routers;

	if (i < s->plan.routers) {
		if (host_run(&s->host[i]))
			check_loads(&s->host[i]);
	} else if (engine < s->plan.engines) {
		engine_run(s, engine);
	} else {
		client_run(s, engine - s->plan.engines);
	}
	note_due(s, i);
}

/* Run the next event. @return false: check the phase. */
static bool step_world(struct sim *s, uint64_t phase_ns)
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
		any_due(s, who);
	} else if (at == phase_ns) {
		return false;
	} else if (at == frame) {
		receive_frame(s, net_take(&s->net));
	} else {
		faults_run(s);
		note_all_due(s);
	}
	return true;
}

/* A place in the code asks whether to fail. Only builds with such places call this. */
static bool site_fails(void *arg, enum kvr_sim_site site)
{
	struct sim *s = arg;

	RTE_SET_USED(site);
	return sim_faults(s) && sim_chance(&s->rand, s->plan.sites);
}

static void run_due(struct sim *s)
{
	uint64_t phase_ns = s->now_ns;
	bool over = false;

	note_all_due(s);
	kvr_sim_hook(site_fails, s);
	while (!s->failed && !over) {
		s->steps++;
		if (!step_world(s, phase_ns)) {
			over = advance_phase(s);
			phase_ns = s->now_ns + 100 * SIM_MS;
			note_all_due(s);
		}
		if (s->steps > STEPS)
			sim_fail(s, "the run makes no progress");
	}
	kvr_sim_hook(NULL, NULL);
	for (uint32_t i = 0; i < s->plan.routers && s->failed; i++)
		if (s->host[i].up)
			check_log_left(s, s->host[i].rig.rt);
}

/* ---- begin and end ---- */

static int begin_world(struct sim *s)
{
	const struct sim_plan *o = &s->plan;
	int rc;

	if (o->routers > SIM_ROUTERS || o->engines > SIM_ENGINES || o->clients > SIM_CLIENTS)
		return -EINVAL;
	if (o->engines < 2)
		s->plan.pairs = 0; /* a pair needs two engines */
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
		rc = client_start(s, i);
	for (const struct sim_field *f = sim_fields; f->name != NULL; f++)
		if (*sim_field_at(&s->plan, f) != 0)
			sim_log(s, "%s=%u", f->name, *sim_field_at(&s->plan, f));
	enter_phase(s, PHASE_FAULTS);
	return rc;
}

static void end_world(struct sim *s)
{
	for (uint32_t i = 0; i < s->plan.clients; i++)
		client_end(s, i, true);
	for (uint32_t i = 0; i < s->plan.engines; i++)
		engine_end(s, i);
	for (uint32_t i = 0; i < s->plan.routers; i++)
		host_end(&s->host[i]);
	for (uint32_t i = 0; i < SIM_ENGINES * SIM_RANKS; i++)
		announced_free(&s->engine[i / SIM_RANKS].rank[i % SIM_RANKS].announced);
	disk_end(s);
	net_end(s);
	prompts_free(s);
	free(s->request);
	free(s->execution);
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
	rc = begin_world(s);
	if (rc == 0)
		run_due(s);
	*out = (struct sim_result){.ns = s->now_ns - 10 * SIM_S,
				   .steps = s->steps,
				   .frames = s->net.sent,
				   .requests = s->n_requests};
	end_world(s);
	out->retries = s->retries;
	out->failed = s->failed;
	out->digest = s->digest;
	memcpy(out->why, s->why, sizeof(out->why));
	memcpy(out->ends, s->ends, sizeof(out->ends));
	free(s);
	return rc;
}
