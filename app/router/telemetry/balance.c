/* SPDX-License-Identifier: BSD-3-Clause */
/* Collects the rows of all writers and checks the balance equations. */
#include "telemetry/balance.h"
#include "sched/sched.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/control.h"
#include "sched/long_prompt.h"
#include "sched/request.h"
#include "sched/session.h"

/* Rows of counters written by one thread: its own two, one per port queue, four per pool. */
#define ROWS_MAX (2u + KVR_ROUTER_MAX_PORTS + 4 * KVR_ROUTER_MAX_POOLS)

struct row {
	const struct kvr_stats_def *def;
	const kvr_cell_t *from;
	uint64_t v[KVR_STATS_MAX];
};

struct rows {
	uint32_t n;
	uint64_t slots;
	struct row row[ROWS_MAX];
};

static void add_cells(struct rows *r, const struct kvr_stats_def *def, const kvr_cell_t *from)
{
	r->row[r->n].def = def;
	r->row[r->n++].from = from;
}

static void add_row(struct rows *r, struct kvr_stats *s, unsigned int writer)
{
	if (s != NULL)
		add_cells(r, kvr_stats_def(s), kvr_stats_row(s, writer));
}

static void list_rows(struct router *rt, const struct lcore *lc, struct rows *r)
{
	r->n = 0;
	r->slots = 0;
	add_row(r, rt->in_stats, lc->index);
	if (lc->index < rt->conf.n_ingress)
		for (uint32_t i = 0; i < rt->n_ports; i++)
			add_row(r, kvr_port_stats(rt->port[i]), lc->index);
	if (lc->reasm != NULL)
		add_cells(r, &kvr_reasm_stats_def, &kvr_reasm_stats(lc->reasm)->fragments);
	for (uint32_t i = 0; i < lc->n_event; i++)
		add_row(r, lc->event_pool[i]->event_stats, 0);
	for (uint32_t i = 0; i < lc->n_sched; i++) {
		add_row(r, lc->sched_pool[i]->stats, 0);
		add_cells(r, &kvr_sched_stats_def,
			  &kvr_sched_counters(lc->sched_pool[i]->sched)->routed_calls);
		if (lc->sched_pool[i]->sessions != NULL)
			add_row(r, lc->sched_pool[i]->sessions->stats, 0);
	}
}

/* On the writing lcore, between two turns. */
static void on_copy(struct lcore *lc, void *arg)
{
	struct rows *r = arg;

	for (uint32_t i = 0; i < lc->n_sched; i++)
		while (!lost_poll(lc, lc->sched_pool[i])) /* another call may have ended bookings */
			long_prompt_finish(lc->sched_pool[i]);
	for (uint32_t i = 0; i < lc->n_sched; i++) {
		sched_gauges(lc->sched_pool[i]);
		r->slots += kvr_flight_count(lc->sched_pool[i]->requests);
	}
	for (uint32_t i = 0; i < r->n; i++)
		for (unsigned int k = 0; r->row[i].def->counters[k].name != NULL; k++)
			r->row[i].v[k] = kvr_stats_get(r->row[i].from, k);
}

static void check_rows(const struct rows *r, struct balance *b)
{
	for (uint32_t i = 0; i < r->n; i++) {
		const struct kvr_stats_def *def = r->row[i].def;

		if (b->violation[0] == '\0')
			kvr_stats_check(def, r->row[i].v, b->violation, sizeof(b->violation));
		if (def == &router_pool_stats) {
			b->bookings += r->row[i].v[PC_LIVE];
			b->waiting += r->row[i].v[PC_WAITING];
		}
	}
	b->slots += r->slots;
}

int balance_read(struct router *rt, struct balance *b)
{
	struct rows *r = malloc(sizeof(*r));

	if (r == NULL)
		return -ENOMEM;
	memset(r, 0, sizeof(*r)); /* populate its pages before a packet lcore writes to them */
	memset(b, 0, sizeof(*b));
	for (uint32_t i = 0; i < rt->n_lcores; i++) {
		list_rows(rt, rt->lcore[i], r);
		call_lcore(rt, rt->lcore[i], on_copy, r);
		check_rows(r, b);
	}
	free(r);
	return 0;
}
