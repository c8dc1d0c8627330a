/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of sessions, and the control thread's part of the table. */
#include "sched/session.h"

#include "control/thread.h"

#include <errno.h>

#include <rte_malloc.h>
#include <rte_random.h>

int sessions_create(struct pool *pool, uint64_t seed)
{
	const struct kvr_pool_conf *c = pool->conf;
	struct sessions *sessions;

	if (c->max_sessions == 0)
		return 0;
	sessions = rte_zmalloc("sessions", sizeof(*sessions), RTE_CACHE_LINE_SIZE);
	if (sessions == NULL)
		return -ENOMEM;
	pool->sessions = sessions;
	sessions->max = c->max_sessions;
	sessions->next_close = (uint32_t)rte_rand();
	sessions->table = kvr_session_create(sessions->max, seed, now_ns(pool->rt));
	sessions->close = rte_zmalloc("session closes", SESSION_CLOSES * sizeof(*sessions->close),
				      RTE_CACHE_LINE_SIZE);
	sessions->closing =
		rte_zmalloc("session closing", SESSION_BUCKETS * sizeof(*sessions->closing),
			    RTE_CACHE_LINE_SIZE);
	sessions->stats = kvr_stats_create(&router_session_stats, 1);
	if (sessions->table == NULL || sessions->close == NULL || sessions->stats == NULL ||
	    sessions->closing == NULL) {
		sessions_destroy(pool);
		return -ENOMEM;
	}
	pool->session_table = sessions->table;
	kvr_session_on_drop(sessions->table, session_dropped, pool);
	sessions->count = kvr_stats_row(sessions->stats, 0);
	TAILQ_INIT(&sessions->free);
	for (uint32_t i = 0; i < SESSION_CLOSES; i++)
		TAILQ_INSERT_TAIL(&sessions->free, &sessions->close[i], link);
	for (uint32_t i = 0; i < SESSION_WAITS; i++) {
		TAILQ_INIT(&sessions->open_step[i]);
		TAILQ_INIT(&sessions->close_step[i]);
	}
	return 0;
}

void sessions_destroy(struct pool *pool)
{
	struct sessions *sessions = pool->sessions;

	if (sessions == NULL)
		return;
	kvr_stats_destroy(sessions->stats);
	rte_free(sessions->closing);
	rte_free(sessions->close);
	kvr_session_destroy(sessions->table);
	rte_free(sessions);
	pool->sessions = NULL;
	pool->session_table = NULL;
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
		struct pool *pool = &rt->pool[i];
		struct due_batch *b = &rt->ctl->due[i];

		if (pool->sessions == NULL || call_busy(&b->call) ||
		    !kvr_session_behind(pool->sessions->table, rt->ctl->live.now_ns))
			continue;
		b->n = kvr_session_due(pool->sessions->table, rt->ctl->live.now_ns, b->ref,
				       DUE_ROUND);
		if (b->n == 0)
			continue;
		b->pool = pool;
		b->call.fn = on_due;
		b->call.arg = b;
		call_start(rt, pool->sched_lcore, &b->call);
	}
}
