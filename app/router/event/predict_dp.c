/* SPDX-License-Identifier: BSD-3-Clause */
/* Predictions: decisions on their way to the event lcore. Runs on the scheduler lcore. */
#include "event/event.h"

#include <string.h>

void event_drop(const struct event_note *n)
{
	rte_pktmbuf_free(n->m);
	if (n->p == NULL)
		return;
	hashes_put(n->p->of);
	buf_put(n->p);
}

void predict(struct lcore *lc, struct pool *p, const struct job *j, uint32_t rank, uint64_t worker)
{
	const struct kvr_view_worker *w = kvr_view_find(lc->view, worker);
	struct event_note n = {.rank = rank};

	/* Hashes in a frame are copied and hashes in a buffer are shared, so the cost is bounded.
	 */
	n.p = buf_get(lc->rt, lc->rt->hash_bufs,
		      sizeof(*n.p) + (j->hash_buf == NULL ? j->n_hashes * sizeof(n.p->sh[0]) : 0));
	if (likely(n.p != NULL)) {
		n.p->worker = worker;
		n.p->epoch = w != NULL ? w->epoch : 0;
		n.p->n = j->n_hashes;
		n.p->of = j->hash_buf != NULL ? hashes_share(j->hash_buf) : NULL;
		if (n.p->of == NULL)
			memcpy(n.p->sh, j->hashes, j->n_hashes * sizeof(uint64_t));
		if (rte_ring_enqueue_elem(p->events, &n, sizeof(n)) == 0) {
			pool_count(p, PC_PREDICTIONS, 1);
			return;
		}
		event_drop(&n);
	}
	pool_count(p, PC_PREDICTIONS_DROPPED, 1);
}
