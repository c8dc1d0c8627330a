/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of sessions, and the control thread's part of the table. */
#include "sched/session.h"

#include "control/thread.h"

#include <errno.h>

#include <rte_malloc.h>
#include <rte_random.h>

int sessions_create(struct pool *p, uint64_t seed)
{
	const struct kvr_pool_conf *c = p->conf;
	struct sessions *s;

	if (c->max_sessions == 0)
		return 0;
	s = rte_zmalloc("sessions", sizeof(*s), RTE_CACHE_LINE_SIZE);
	if (s == NULL)
		return -ENOMEM;
	p->sessions = s;
	s->max = c->max_sessions;
	s->next_close = (uint32_t)rte_rand();
	s->table = kvr_session_create(s->max, seed, now_ns(p->rt));
	s->close = rte_zmalloc("session closes", SESSION_CLOSES * sizeof(*s->close),
			       RTE_CACHE_LINE_SIZE);
	s->closing = rte_zmalloc("session closing", SESSION_BUCKETS * sizeof(*s->closing),
				 RTE_CACHE_LINE_SIZE);
	s->stats = kvr_stats_create(&router_session_stats, 1);
	if (s->table == NULL || s->close == NULL || s->stats == NULL || s->closing == NULL) {
		sessions_destroy(p);
		return -ENOMEM;
	}
	p->session_table = s->table;
	kvr_session_on_drop(s->table, session_dropped, p);
	s->count = kvr_stats_row(s->stats, 0);
	TAILQ_INIT(&s->free);
	for (uint32_t i = 0; i < SESSION_CLOSES; i++)
		TAILQ_INSERT_TAIL(&s->free, &s->close[i], link);
	for (uint32_t i = 0; i < SESSION_WAITS; i++) {
		TAILQ_INIT(&s->open_step[i]);
		TAILQ_INIT(&s->close_step[i]);
	}
	return 0;
}

void sessions_destroy(struct pool *p)
{
	struct sessions *s = p->sessions;

	if (s == NULL)
		return;
	kvr_stats_destroy(s->stats);
	rte_free(s->closing);
	rte_free(s->close);
	kvr_session_destroy(s->table);
	rte_free(s);
	p->sessions = NULL;
	p->session_table = NULL;
}

static bool on_due(struct lcore *lc, void *arg)
{
	struct due_batch *b = arg;

	while (b->n > 0)
		session_due(lc, b->pool, b->ref[--b->n]);
	return true;
}

void session_round(struct router *rt)
{
	for (uint32_t i = 0; i < rt->n_pools; i++) {
		struct pool *p = &rt->pool[i];
		struct due_batch *b = &rt->ctl->due[i];

		if (p->sessions == NULL || call_busy(&b->call) ||
		    !kvr_session_behind(p->sessions->table, rt->ctl->live.now_ns))
			continue;
		b->n = kvr_session_due(p->sessions->table, rt->ctl->live.now_ns, b->ref, DUE_ROUND);
		if (b->n == 0)
			continue;
		b->pool = p;
		b->call.fn = on_due;
		b->call.arg = b;
		call_start(rt, p->sched_lcore, &b->call);
	}
}
