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

struct request *request_get(struct pool *p)
{
	struct request *r = p->live.free_request;

	assert(r != NULL); /* see requests_create() */
	p->live.free_request = r->next;
	r->tries = 0;
	r->counted = false;
	r->unwanted_ms = 0;
	r->asked = 0;
	r->decided = true; /* until an attempt of a pair begins */
	return r;
}

void request_put(struct pool *p, struct request *r)
{
	r->next = p->live.free_request;
	p->live.free_request = r;
}

/* ---- slots ---- */

/* @return NULL: all are in use. */
static struct kvr_flight *take(const struct life *x, uint32_t leg)
{
	const struct job *j = x->r->job;
	struct pool *p = leg_pool(x, leg);
	struct kvr_flight *slot;

	slot = leg == MAIN ? kvr_flight_alloc(p->requests, j->source, j->id)
			   : kvr_flight_alloc_unnamed(p->requests, j->source, j->id);
	if (unlikely(slot == NULL))
		return NULL;
	slot->owner = x->r;
	slot->relay.leg = (uint8_t)leg;
	kvr_flight_set_client(slot, &j->client);
	x->r->slot[leg] = slot;
	return slot;
}

bool slot_take(const struct life *x, uint32_t leg)
{
	struct kvr_flight *slot = take(x, leg);

	if (unlikely(slot == NULL))
		return false;
	if (leg == MAIN)
		share_slot_take(x->p, slot, x->r->job);
	return true;
}

void slot_renew(const struct life *x)
{
	struct kvr_flight *old = x->r->slot[MAIN], *slot;

	send_stop_leg(x->p, old);
	kvr_flight_unname(x->p->requests, old);
	slot = take(x, MAIN);
	assert(slot != NULL);		  /* a slot and the name are free */
	slot->quota_ref = old->quota_ref; /* one charge per request, lingering slots excluded */
	old->quota_ref = 0;
	old->owner = NULL;
	kvr_flight_drop_items(old); /* its last item would end the request */
	slot_end(x->p, old, x->lc->now_ns);
}

void slot_bind(const struct life *x, uint32_t leg)
{
	const struct kvr_leg *l = &x->r->rq.leg[leg];
	const struct job *j = x->r->job;
	struct kvr_flight *slot = x->r->slot[leg];
	const struct kvr_view_worker *w;

	if (slot->bound)
		return;
	w = kvr_view_find(x->lc->view, l->worker); /* the library has just found it */
	slot->bound = true;
	slot->relay.worker = l->worker;
	slot->relay.isl = j->msg.req.exec_isl;
	slot->relay.agent = w->path;
	slot->relay.epoch = w->epoch;
	/* Across address families, the agent's socket cannot reach the client. */
	slot->relay.direct =
		(j->flags & (KVR_REQ_F_DIRECT | KVR_REQ_F_TRACK)) == KVR_REQ_F_DIRECT &&
		j->client.family == w->path.family;
	slot->relay.tracked = (j->flags & KVR_REQ_F_TRACK) != 0;
	slot->relay.booked = (j->flags & KVR_REQ_F_BOOK) != 0;
}

static void remember(const struct life *x, struct kvr_flight *slot)
{
	const struct kvr_rq_why *end = &x->r->rq.end;

	if (end->code == KVR_OK)
		return;
	slot->rejected = true;
	slot->end = (struct kvr_flight_end){.code = end->code,
					    .retry = end->retryable ? RETRY_YES : RETRY_NO,
					    .policy_class = end->policy_class};
	memcpy(slot->end.detail, end->detail, sizeof(slot->end.detail));
}

bool slot_hold(const struct request *r, const struct kvr_rq_event *e)
{
	const bool fails = e->kind == KVR_RQE_UNHEARD || e->kind == KVR_RQE_LOST ||
			   e->kind == KVR_RQE_DECLINED ||
			   (e->flags & (KVR_RQEF_ERROR | KVR_RQEF_CANCELLED)) != 0;
	const uint32_t state = leg_state(r, MAIN);

	return fails && (state == KVR_RQS_SENT || state == KVR_RQS_RUNNING) &&
	       kvr_flight_hold_items(r->slot[MAIN]);
}

void slot_linger(const struct life *x, uint32_t leg)
{
	struct kvr_flight *slot = x->r->slot[leg];

	if (leg == MAIN)
		remember(x, slot);
	slot_end(leg_pool(x, leg), slot, x->lc->now_ns);
}

void slot_drop(const struct life *x, uint32_t leg)
{
	struct kvr_flight *slot = x->r->slot[leg];
	struct pool *p = leg_pool(x, leg);

	if (slot == NULL)
		return;
	send_stop_leg(p, slot);
	if (unlikely(leg == MAIN && x->r->job != NULL && x->r->rq.paired && x->r->job->pair->over))
		send_end(x->r);
	x->r->slot[leg] = NULL;
	slot->owner = NULL;
	abort_stop(p, slot);
	slot_release(p, slot);
}
