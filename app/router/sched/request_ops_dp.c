/* SPDX-License-Identifier: BSD-3-Clause */
/* Questions of lib/request during a step: workers of the view, both pools, and quotas. */
#include "sched/quota.h"
#include "sched/request.h"
#include "sched/sched.h"

static bool ask_worker(void *arg, const struct kvr_rq_pool *p, uint64_t id,
		       struct kvr_rq_worker *out)
{
	const struct lcore *lc = arg;
	const struct kvr_view_worker *worker = kvr_view_find(lc->view, id);
	const struct pool *pool = p->owner;

	if (worker == NULL || worker->pool != pool->number)
		return false;
	*out = (struct kvr_rq_worker){
		.epoch = worker->epoch, .dp_size = worker->dp_size, .taint = ""};
	if (worker->transfer != NULL) {
		out->bootstrap = worker->transfer->host[0] != '\0';
		out->transfer = worker->transfer->enforcement;
		out->weight = worker->transfer->weight;
		out->taint = worker->transfer->taint;
	}
	return true;
}

static struct request *of_life(const struct kvr_request *rq)
{
	return (struct request *)(uintptr_t)rq; /* the first member */
}

static bool ask_alone(void *arg, const struct kvr_request *rq, const struct kvr_sched_req *prefill,
		      const struct kvr_sched_req *decode)
{
	const struct lcore *lc = arg;
	const struct request *req = of_life(rq);
	const struct pool *d = request_pool(req);
	struct kvr_sched_overlap pov, dov;
	const struct kvr_disagg_side ps = {d->prefill->sched, prefill, &pov};
	const struct kvr_disagg_side ds = {d->sched, decode, &dov};

	sched_overlap(d->prefill, req->job->pair->overlap, req->job->view, &pov);
	sched_overlap(d, req->job->overlap, req->job->view, &dov);
	return kvr_disagg_bypass(d->conf, &ps, &ds, lc->now_ns);
}

static enum kvr_code ask_session_may(void *arg, const struct kvr_request *rq,
				     const struct kvr_rq_pool *p)
{
	const struct request *req = of_life(rq);

	RTE_SET_USED(arg);
	if (likely(quota_session_allows(p->owner, request_client(req),
					req->job != NULL ? &req->job->excess : NULL)))
		return KVR_OK;
	if (req->job != NULL)
		req->job->excess_of = KVR_QUOTA_SESSIONS;
	return KVR_E_SOURCE_LIMIT;
}

const struct kvr_rq_ops request_ops = {
	.worker = ask_worker,
	.alone = ask_alone,
	.session_may = ask_session_may,
};
