/* SPDX-License-Identifier: BSD-3-Clause */
/* Predictions: decisions on their way to the event lcore. Runs on the scheduler lcore. */
#include "event/event.h"

#include <string.h>

void event_msg_free(const struct event_msg *msg)
{
	rte_pktmbuf_free(msg->m);
	if (msg->p == NULL)
		return;
	hashes_put(msg->p->of);
	buf_put(msg->p);
}

void event_predict(struct lcore *lc, struct pool *pool, const struct job *job, uint32_t rank,
		   uint64_t worker)
{
	const struct kvr_view_worker *w = kvr_view_find(lc->view, worker);
	struct event_msg msg = {.rank = rank};

	/* Hashes in a frame are copied and hashes in a buffer are shared, so the cost is bounded.
	 */
	msg.p = buf_get(lc->rt, lc->rt->hash_bufs,
			sizeof(*msg.p) +
				(job->hash_buf == NULL ? job->n_hashes * sizeof(msg.p->sh[0]) : 0));
	if (likely(msg.p != NULL)) {
		msg.p->worker = worker;
		msg.p->epoch = w != NULL ? w->epoch : 0;
		msg.p->n = job->n_hashes;
		msg.p->of = job->hash_buf != NULL ? hashes_share(job->hash_buf) : NULL;
		if (msg.p->of == NULL)
			memcpy(msg.p->sh, job->hashes, job->n_hashes * sizeof(uint64_t));
		if (rte_ring_enqueue_elem(pool->events, &msg, sizeof(msg)) == 0) {
			pool_count(pool, PC_PREDICTIONS, 1);
			return;
		}
		event_msg_free(&msg);
	}
	pool_count(pool, PC_PREDICTIONS_DROPPED, 1);
}
