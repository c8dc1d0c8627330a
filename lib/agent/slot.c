/* SPDX-License-Identifier: BSD-3-Clause */
/* Request slots: find, take, end and forget. Sends nothing to the router but DISPATCH_ACK. */
#include "agent_pvt.h"

#include "kvr_rand.h"
#include "kvr_sim.h"
#include <stdlib.h>

static struct agent_bucket *bucket_of(const struct kvr_agent *agent, uint64_t handle)
{
	return &agent->bucket[kvr_mix64(handle) & agent->bucket_mask];
}

struct agent_req *kvr_agent__find_request(const struct kvr_agent *agent, uint64_t handle)
{
	struct agent_req *req;

	LIST_FOREACH (req, bucket_of(agent, handle), hash)
		if (req->handle == handle)
			return req;
	return NULL;
}

static void forget_request(struct kvr_agent *agent, struct agent_req *req)
{
	TAILQ_REMOVE(&agent->over, req, order);
	LIST_REMOVE(req, hash);
	req->state = AGENT_FREE;
	TAILQ_INSERT_TAIL(&agent->free, req, order);
}

/* Return an unused slot, else a free one, else the oldest ended one. */
static struct agent_req *get_slot(struct kvr_agent *agent)
{
	struct agent_req *req;

	if (agent->n_used < agent->n_req)
		return &agent->req[agent->n_used++];
	req = TAILQ_FIRST(&agent->free);
	if (req == NULL) {
		req = TAILQ_FIRST(&agent->over); /* exists, because there are more slots than
						    running requests */
		forget_request(agent, req);
	}
	TAILQ_REMOVE(&agent->free, req, order);
	return req;
}

struct agent_req *kvr_agent__take_slot(struct kvr_agent *agent, const struct kvr_wire_hdr *h)
{
	struct agent_req *req = get_slot(agent);

	*req = (struct agent_req){.handle = h->handle,
				  .source = h->source,
				  .id = h->id,
				  .epoch = h->epoch,
				  .state = AGENT_RUNNING,
				  .cached_tokens = KVR_NONE32,
				  .backoff_us = AGENT_REPEAT_US,
				  .progress_us = agent->link.now_us,
				  .reported_us = agent->link.now_us};
	req->repeat.kind = AGENT_T_REPEAT;
	STAILQ_INIT(&req->items);
	LIST_INSERT_HEAD(bucket_of(agent, h->handle), req, hash);
	TAILQ_INSERT_TAIL(&agent->live, req, order);
	kvr_agent__alive_start(agent);
	agent->running++;
	return req;
}

void kvr_agent__assign_rank(struct kvr_agent *agent, struct agent_req *req, uint32_t rank)
{
	req->rank = &agent->rank[rank];
	req->rank->running++;
}

void kvr_agent__send_ack(struct kvr_agent *agent, const struct kvr_wire_hdr *h, uint16_t code)
{
	const struct kvr_wire_dispatch_ack w = {.code = code};

	kvr_link_send(&agent->link, &agent->router, KVR_DISPATCH_ACK,
		      kvr_link_ids(&agent->link, h->source, h->id, h->handle), &w, sizeof(w));
}

void kvr_agent__drop_items(struct agent_req *req)
{
	struct agent_item *it;

	while ((it = STAILQ_FIRST(&req->items)) != NULL) {
		STAILQ_REMOVE_HEAD(&req->items, link);
		free(it);
	}
	req->bytes = req->flying = req->parts = 0;
}

void kvr_agent__close_slot(struct kvr_agent *agent, struct agent_req *req, bool tell)
{
	kvr_timer_stop(&agent->link.timers, &req->repeat);
	kvr_agent__drop_items(req);
	free(req->echo);
	req->echo = NULL;
	req->state = AGENT_OVER;
	TAILQ_REMOVE(&agent->live, req, order);
	TAILQ_INSERT_TAIL(&agent->over, req, order);
	agent->running--;
	agent->adrift -= req->adrift;
	if (req->rank != NULL)
		req->rank->running--;
	req->rank = NULL;
	if (!tell)
		return;
	agent->stats.finished++;
	if (agent->conf.ops->on_done != NULL)
		agent->conf.ops->on_done(agent, req->handle, agent->conf.user);
}

void kvr_agent__report_abort(struct kvr_agent *agent, struct agent_req *req,
			     enum kvr_agent_abort why, uint16_t code)
{
	if (req->aborted || req->state == AGENT_OVER)
		return;
	req->aborted = true;
	agent->stats.aborted++;
	if (agent->conf.ops->on_abort != NULL)
		agent->conf.ops->on_abort(agent, req->handle, why, code, agent->conf.user);
}

/* End a request whose client and router acknowledged the end (the router by PROGRESS on the direct
 * path). */
void kvr_agent__finish_if_acked(struct kvr_agent *agent, struct agent_req *req)
{
	if (req->state == AGENT_ENDING && req->acked == req->next_seq &&
	    (!req->direct || req->prog_done))
		kvr_agent__close_slot(agent, req, !req->aborted);
}

/* With DIRECT, after the first item, the client could not start over, and needs no router for the
 * rest. Reports to the router stop. @return true: the request continues this way. */
static bool set_adrift(struct kvr_agent *agent, struct agent_req *req)
{
	if (!req->direct || req->next_seq == 0 || req->aborted)
		return false;
	KVR_SIM_SOMETIMES(AGENT_ADRIFT);
	agent->adrift += !req->adrift;
	req->adrift = req->prog_done = true;
	kvr_agent__finish_if_acked(agent, req);
	return true;
}

void kvr_agent__end_all(struct kvr_agent *agent, uint16_t code)
{
	for (uint32_t i = 0; i < agent->n_used; i++) {
		struct agent_req *req = &agent->req[i];

		if ((req->state != AGENT_RUNNING && req->state != AGENT_ENDING) || req->adrift)
			continue;
		if (req->direct && req->state == AGENT_ENDING) {
			req->prog_done = true; /* the client needs no router for the rest */
			kvr_agent__finish_if_acked(agent, req);
			continue;
		}
		kvr_agent__report_abort(agent, req, KVR_AGENT_ABORT_ROUTER, code);
		kvr_agent__close_slot(
			agent, req, false); /* kept as ended: a copy of its DISPATCH must not run */
	}
}

bool kvr_agent__is_former(const struct kvr_agent *agent, uint32_t epoch)
{
	for (uint32_t i = 0; i < RTE_MIN(agent->n_former, AGENT_FORMER); i++)
		if (agent->former[i] == epoch)
			return true;
	return false;
}

/*
 * A DISPATCH of the new epoch may have arrived before its WELCOME, and stays. Late copies of
 * previous epochs that sent WELCOME are recognised by epoch. For an epoch without WELCOME the ended
 * requests are kept like any others.
 */
void kvr_agent__forget_others(struct kvr_agent *agent, uint32_t epoch)
{
	for (uint32_t i = 0; i < agent->n_used; i++) {
		struct agent_req *req = &agent->req[i];

		if (req->state == AGENT_FREE || req->epoch == epoch)
			continue;
		if (req->state != AGENT_OVER) {
			if (set_adrift(agent, req))
				continue;
			kvr_agent__report_abort(agent, req, KVR_AGENT_ABORT_ROUTER,
						KVR_E_UNKNOWN_REQUEST);
			kvr_agent__close_slot(agent, req, false);
		}
		if (kvr_agent__is_former(agent, req->epoch))
			forget_request(agent, req);
	}
}
