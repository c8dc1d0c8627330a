/* SPDX-License-Identifier: BSD-3-Clause */
/* Sessions of a snapshot: restore their bindings. */
#include "sched/request.h"
#include "sched/session.h"
#include "state/restore.h"

bool session_restore(struct lcore *lc, struct pool *pool, struct restore_worker *r)
{
	const struct kvr_rq_ctx c = request_ctx(lc, pool);
	const uint32_t end = RTE_MIN(r->at_session + RESTORE_SESSIONS, r->n_sessions);

	if (pool->sessions == NULL)
		return true;
	for (; r->at_session < end; r->at_session++) {
		const struct kvr_snap_session *s =
			r->from->session[r->first_session + r->at_session];
		const struct kvr_session_binding to = {s->worker, s->dp_rank, s->tag};
		struct kvr_session_key key;

		/* The table counts sessions without space; their clients open them again. */
		if (s->pool == pool->number &&
		    kvr_session_key(pool->sessions->table, s + 1, s->id_len, &key) &&
		    kvr_session_restore(pool->sessions->table, &key, &to, s->ttl_ns, s->left_ns,
					c.now) == 0)
			kvr_stats_add(pool->sessions->count, SC_RESTORED, 1);
	}
	return end == r->n_sessions;
}
