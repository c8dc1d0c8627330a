/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of the requests of a pool: start and stop. */
#include "sched/request.h"
#include "sched/sched.h"
#include "sched/send.h"
#include "sched/session.h"

#include <errno.h>

#include <rte_malloc.h>

int requests_create(struct pool *p)
{
	uint32_t n = REQUESTS_OF(kvr_flight_size(p->requests),
				 p->prefill != NULL ? kvr_flight_size(p->prefill->requests) : 0);

	p->n_requests = n;
	p->request = rte_zmalloc("requests", n * sizeof(*p->request), RTE_CACHE_LINE_SIZE);
	p->lost = rte_zmalloc("lost", kvr_flight_size(p->requests) * sizeof(*p->lost),
			      RTE_CACHE_LINE_SIZE);
	if (p->request == NULL || p->lost == NULL)
		return -ENOMEM;
	while (n-- > 0) {
		p->request[n].number = n;
		request_put(p, &p->request[n]);
	}
	if (p->sessions == NULL && (p->prefill == NULL || p->prefill->sessions == NULL))
		return 0;
	p->use = rte_zmalloc("session uses", p->n_requests * sizeof(*p->use), RTE_CACHE_LINE_SIZE);
	return p->use != NULL ? 0 : -ENOMEM;
}

void requests_drop(struct lcore *lc, struct pool *p)
{
	for (uint32_t i = 0; p->request != NULL && i < p->n_requests; i++) {
		struct request *r = &p->request[i];

		if (r->job == NULL)
			continue;
		send_stop(r);
		job_free(lc, r->job);
		r->job = NULL;
	}
}

void requests_destroy(struct pool *p)
{
	rte_free(p->request);
	rte_free(p->lost);
	rte_free(p->use);
}
