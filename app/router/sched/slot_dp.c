/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of requests, and their slots. */
#include "lcore/agent_path.h"
#include "lcore/out.h"
#include "sched/quota.h"
#include "sched/request.h"
#include "sched/send.h"
#include "sched/session.h"

#include <assert.h>
#include <string.h>

/* ---- memory ---- */

struct request *request_get(struct pool *pool)
{
	struct request *req = pool->live.free_request;

	assert(req != NULL); /* see requests_create() */
	pool->live.free_request = req->next;
	req->tries = 0;
	req->counted = false;
	req->unwanted_ms = 0;
	req->asked = 0;
	req->decided = true; /* until an attempt of a pair begins */
	return req;
}

void request_put(struct pool *pool, struct request *req)
{
	req->next = pool->live.free_request;
	pool->live.free_request = req;
}

/* ---- slots ---- */

/* @return NULL: all are in use. */
static struct kvr_flight *take_slot(const struct request_step *step, uint32_t leg)
{
	const struct job *job = step->req->job;
	struct pool *pool = leg_pool(step, leg);
	struct kvr_flight *slot;

	slot = leg == MAIN ? kvr_flight_alloc(pool->requests, job->source, job->id)
			   : kvr_flight_alloc_unnamed(pool->requests, job->source, job->id);
	if (unlikely(slot == NULL))
		return NULL;
	slot->owner = step->req;
	slot->relay.leg = (uint8_t)leg;
	kvr_flight_set_client(slot, &job->client);
	step->req->slot[leg] = slot;
	return slot;
}

bool slot_take(const struct request_step *step, uint32_t leg)
{
	struct kvr_flight *slot = take_slot(step, leg);

	if (unlikely(slot == NULL))
		return false;
	if (leg == MAIN)
		quota_slot_take(step->pool, slot, step->req->job);
	return true;
}

void slot_renew(const struct request_step *step)
{
	struct kvr_flight *old = step->req->slot[MAIN], *slot;

	send_stop_leg(step->pool, old);
	kvr_flight_unname(step->pool->requests, old);
	slot = take_slot(step, MAIN);
	assert(slot != NULL);		  /* a slot and the name are free */
	slot->quota_ref = old->quota_ref; /* one charge per request, lingering slots excluded */
	old->quota_ref = 0;
	old->owner = NULL;
	kvr_flight_drop_items(old); /* its last item would end the request */
	slot_end(step->pool, old, step->lc->now_ns);
}

void slot_bind(const struct request_step *step, uint32_t leg)
{
	const struct kvr_leg *l = &step->req->rq.leg[leg];
	const struct job *job = step->req->job;
	struct kvr_flight *slot = step->req->slot[leg];
	const struct kvr_view_worker *worker;

	if (slot->bound)
		return;
	worker = kvr_view_find(step->lc->view, l->worker); /* the library has just found it */
	slot->bound = true;
	slot->relay.worker = l->worker;
	slot->relay.isl = job->msg.req.exec_isl;
	slot->relay.agent = worker->path;
	slot->relay.epoch = worker->epoch;
	/* Across address families, the agent's socket cannot reach the client. */
	slot->relay.direct =
		(job->flags & (KVR_REQ_F_DIRECT | KVR_REQ_F_TRACK)) == KVR_REQ_F_DIRECT &&
		job->client.family == worker->path.family;
	slot->relay.tracked = (job->flags & KVR_REQ_F_TRACK) != 0;
	slot->relay.booked = (job->flags & KVR_REQ_F_BOOK) != 0;
}

static void remember_end(const struct request_step *step, struct kvr_flight *slot)
{
	const struct kvr_rq_why *end = &step->req->rq.end;

	if (end->code == KVR_OK)
		return;
	slot->rejected = true;
	slot->end = (struct kvr_flight_end){.code = end->code,
					    .retry = end->retryable ? RETRY_YES : RETRY_NO,
					    .policy_class = end->policy_class};
	memcpy(slot->end.detail, end->detail, sizeof(slot->end.detail));
}

bool slot_hold(const struct request *req, const struct kvr_rq_event *ev)
{
	const bool fails = ev->kind == KVR_RQE_UNACKED || ev->kind == KVR_RQE_LOST ||
			   ev->kind == KVR_RQE_DECLINED ||
			   (ev->flags & (KVR_RQEF_ERROR | KVR_RQEF_CANCELLED)) != 0;
	const uint32_t state = leg_state(req, MAIN);

	return fails && (state == KVR_RQS_SENT || state == KVR_RQS_RUNNING) &&
	       kvr_flight_hold_items(req->slot[MAIN]);
}

void slot_linger(const struct request_step *step, uint32_t leg)
{
	struct kvr_flight *slot = step->req->slot[leg];

	if (leg == MAIN)
		remember_end(step, slot);
	slot_end(leg_pool(step, leg), slot, step->lc->now_ns);
}

void slot_drop(const struct request_step *step, uint32_t leg)
{
	struct kvr_flight *slot = step->req->slot[leg];
	struct pool *pool = leg_pool(step, leg);

	if (slot == NULL)
		return;
	send_stop_leg(pool, slot);
	if (unlikely(leg == MAIN && step->req->job != NULL && step->req->rq.paired &&
		     step->req->job->pair->over))
		send_end(step->req);
	step->req->slot[leg] = NULL;
	slot->owner = NULL;
	abort_stop(pool, slot);
	slot_release(pool, slot);
}
