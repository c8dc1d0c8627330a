/* SPDX-License-Identifier: BSD-3-Clause */
/* Time: what is due next happens next. The phases of a run, and their limits. */
#include "sim.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rest.h"
#include "sched/session.h"

/* How long it may take, in virtual time, once everybody is well. A refused HELLO is said again
 * after 10 s; a request ends after its 20 s, 15 s of silence and 6 s; a forgotten booking ends
 * after 40 s, and what has ended is remembered for 18 s. */
#define NOTICE_NS (3 * SIM_S)  /* all have noticed that the router is another one */
#define SERVE_NS  (15 * SIM_S) /* all engines serve */
#define ENDS_NS	  (45 * SIM_S) /* requests of before have ended */
#define PROBES_NS (60 * SIM_S) /* new requests have succeeded */
#define REST_NS	  (90 * SIM_S) /* nothing is left of them */
#define SETTLE_NS SIM_S	       /* events have been applied */
#define LEAVE_NS  (5 * SIM_S)  /* all have gone, and nothing is left of them */
#define PROBES	  2u
#define STEPS	  UINT64_C(200000000) /* no world needs so many: it goes round in circles */

/* ---- phases ---- */

static void enter(struct sim *s, enum phase p)
{
	s->phase = p;
	s->phase_ns = s->now_ns;
	sim_say(s, "phase %u, %u requests", p, s->n_asks);
}

/* Requests and sessions, ended ones too. */
static bool anything_left(const struct sim *s)
{
	const struct router *rt = s->host.box.rt;

	for (uint32_t i = 0; i < rt->n_pools; i++) {
		const struct pool *p = &rt->pool[i];

		if (kvr_flight_count(p->requests) != 0 ||
		    (p->sessions != NULL && (kvr_stats_get(p->sessions->count, SC_LIVE) != 0 ||
					     kvr_stats_get(p->sessions->count, SC_CLOSING) != 0)))
			return true;
	}
	return false;
}

static void leave_all(struct sim *s)
{
	for (uint32_t i = 0; i < s->plan.clients; i++)
		customer_end(s, i, false);
	for (uint32_t i = 0; i < s->plan.engines; i++) {
		kvr_agent_goodbye(s->engine[i].agent);
		s->engine[i].node->due_ns = s->now_ns;
	}
	enter(s, PHASE_END);
}

static void healed(struct sim *s, uint64_t since)
{
	if (since > SERVE_NS)
		check_serving(s, true);
	if (since > ENDS_NS && customers_waiting(s) != 0)
		sim_fail(s, "%u requests have no outcome", customers_waiting(s));
	if (since < NOTICE_NS || !check_serving(s, false) || customers_waiting(s) != 0)
		return;
	enter(s, PHASE_PROBES);
}

/* One after the other: no bound is in their way. */
static void probing(struct sim *s, uint64_t since)
{
	if (since > PROBES_NS)
		sim_fail(s, "request %u is the %uth of %u that shall succeed, and has no outcome",
			 s->n_asks - 1, s->probes, PROBES * s->plan.clients);
	else if (customers_waiting(s) != 0)
		return;
	else if (s->probes == PROBES * s->plan.clients)
		enter(s, PHASE_REST);
	else
		customer_probe(s, s->probes++ % s->plan.clients);
}

static void resting(struct sim *s, uint64_t since)
{
	if (anything_left(s) && since < REST_NS)
		return;
	check_rest(s);
	if (!s->failed)
		leave_all(s);
}

/* @return whether the run is over. */
static bool phases(struct sim *s)
{
	const uint64_t since = s->now_ns - s->phase_ns;

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
		if (!rest_all(&s->host.box))
			sim_fail(s, "something is left when all have gone");
		return true;
	}
}

/* ---- steps ---- */

/* It waits at its receiver, or is dropped when nobody has its address. */
static void receive(struct sim *s, struct packet *p)
{
	if (p->dst == 0) {
		host_arrive(s, p);
		free(p);
	} else {
		node_receive(s, p);
	}
}

enum who { FRAME, FAULT, HOST, ENGINE, CLIENT, PHASE };

struct next {
	uint64_t at;
	enum who who;
	uint32_t i;
};

static void earliest(struct next *n, uint64_t at, enum who who, uint32_t i)
{
	if (at < n->at)
		*n = (struct next){at, who, i};
}

static struct next find_next(const struct sim *s, uint64_t phase_ns)
{
	struct next n = {phase_ns, PHASE, 0};

	earliest(&n, net_next_ns(&s->net), FRAME, 0);
	if (s->phase == PHASE_FAULTS)
		earliest(&n, faults_due_ns(s), FAULT, 0);
	earliest(&n, host_due_ns(&s->host), HOST, 0);
	for (uint32_t i = 0; i < s->plan.engines; i++)
		earliest(&n, engine_due_ns(s, i), ENGINE, i);
	for (uint32_t i = 0; i < s->plan.clients; i++)
		earliest(&n, customer_due_ns(s, i), CLIENT, i);
	return n;
}

static void happen(struct sim *s, const struct next *n)
{
	switch (n->who) {
	case FRAME:
		receive(s, net_take(&s->net));
		break;
	case FAULT:
		faults_run(s);
		break;
	case HOST:
		if (host_run(s))
			check_loads(s);
		break;
	case ENGINE:
		engine_run(s, n->i);
		break;
	case CLIENT:
		customer_run(s, n->i);
		break;
	default:
		break;
	}
}

static void run(struct sim *s)
{
	uint64_t phase_ns = s->now_ns;
	bool over = false;

	while (!s->failed && !over) {
		const struct next n = find_next(s, phase_ns);

		s->now_ns = RTE_MAX(s->now_ns, n.at);
		s->steps++;
		if (n.who == PHASE) {
			over = phases(s);
			phase_ns = s->now_ns + 100 * SIM_MS;
		} else {
			happen(s, &n);
		}
		if (s->steps > STEPS)
			sim_fail(s, "it does not end");
	}
}

/* ---- begin and end ---- */

static int begin(struct sim *s)
{
	int rc;

	s->n_nodes = 1 + s->plan.engines + s->plan.clients;
	s->now_ns = 10 * SIM_S;
	kvr_rand_init(&s->rand, kvr_mix64(s->plan.seed));
	net_begin(s);
	for (uint32_t i = 0; i < s->n_nodes; i++)
		node_begin(s, i);
	rc = faults_begin(s);
	rc = rc == 0 ? host_begin(s) : rc;
	for (uint32_t i = 0; i < s->plan.engines && rc == 0; i++)
		rc = engine_begin(s, i);
	for (uint32_t i = 0; i < s->plan.clients && rc == 0; i++)
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
		if (s->customer[i].node != NULL)
			customer_end(s, i, true);
	for (uint32_t i = 0; i < s->plan.engines; i++)
		if (s->engine[i].node != NULL)
			engine_end(s, i);
	host_end(s);
	net_end(s);
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

int sim_run(const struct sim_plan *p, bool verbose, const char *pcap, struct sim_result *out)
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
	out->failed = s->failed;
	out->digest = s->digest;
	memcpy(out->why, s->why, sizeof(out->why));
	memcpy(out->ends, s->ends, sizeof(out->ends));
	free(s);
	return rc;
}
