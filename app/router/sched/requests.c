/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of the requests of a pool: start and stop. */
#include "sched/request.h"
#include "sched/sched.h"
#include "sched/send.h"
#include "sched/session.h"

#include <errno.h>

#include <rte_malloc.h>

int requests_create(struct pool *pool)
{
	uint32_t n =
		REQUESTS_OF(kvr_flight_size(pool->requests),
			    pool->prefill != NULL ? kvr_flight_size(pool->prefill->requests) : 0);

	pool->n_requests = n;
	pool->request = rte_zmalloc("requests", n * sizeof(*pool->request), RTE_CACHE_LINE_SIZE);
	pool->lost = rte_zmalloc("lost", kvr_flight_size(pool->requests) * sizeof(*pool->lost),
				 RTE_CACHE_LINE_SIZE);
	if (pool->request == NULL || pool->lost == NULL)
		return -ENOMEM;
	while (n-- > 0) {
		pool->request[n].number = n;
		request_put(pool, &pool->request[n]);
	}
	if (pool->sessions == NULL && (pool->prefill == NULL || pool->prefill->sessions == NULL))
		return 0;
	pool->use = rte_zmalloc("session uses", pool->n_requests * sizeof(*pool->use),
				RTE_CACHE_LINE_SIZE);
	return pool->use != NULL ? 0 : -ENOMEM;
}

void requests_drop(struct lcore *lc, struct pool *pool)
{
	for (uint32_t i = 0; pool->request != NULL && i < pool->n_requests; i++) {
		struct request *req = &pool->request[i];

		if (req->job == NULL)
			continue;
		send_stop(req);
		job_free(lc, req->job);
		req->job = NULL;
	}
}

void requests_destroy(struct pool *pool)
{
	rte_free(pool->request);
	rte_free(pool->lost);
	rte_free(pool->use);
}
