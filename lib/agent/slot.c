/* SPDX-License-Identifier: BSD-3-Clause */
/* Request slots: find, take, end and forget. Sends nothing to the router but DISPATCH_ACK. */
#include "agent_pvt.h"

#include "kvr_rand.h"
#include "kvr_sim.h"
#include <stdlib.h>

static struct agent_bucket *bucket_of(const struct kvr_agent *a, uint64_t handle)
{
	return &a->bucket[kvr_mix64(handle) & a->bucket_mask];
}

struct agent_req *kvr_agent__find_request(const struct kvr_agent *a, uint64_t handle)
{
	struct agent_req *r;

	LIST_FOREACH (r, bucket_of(a, handle), hash)
		if (r->handle == handle)
			return r;
	return NULL;
}

static void forget_request(struct kvr_agent *a, struct agent_req *r)
{
	TAILQ_REMOVE(&a->over, r, order);
	LIST_REMOVE(r, hash);
	r->state = AGENT_FREE;
	TAILQ_INSERT_TAIL(&a->free, r, order);
}

/* Return an unused slot, else a free one, else the oldest ended one. */
static struct agent_req *get_slot(struct kvr_agent *a)
{
	struct agent_req *r;

	if (a->n_used < a->n_req)
		return &a->req[a->n_used++];
	r = TAILQ_FIRST(&a->free);
	if (r == NULL) {
		r = TAILQ_FIRST(
			&a->over); /* exists, because there are more slots than running requests */
		forget_request(a, r);
	}
	TAILQ_REMOVE(&a->free, r, order);
	return r;
}

struct agent_req *kvr_agent__take_slot(struct kvr_agent *a, const struct kvr_wire_hdr *h)
{
	struct agent_req *r = get_slot(a);

	*r = (struct agent_req){.handle = h->handle,
				.source = h->source,
				.id = h->id,
				.epoch = h->epoch,
				.state = AGENT_RUNNING,
				.cached_tokens = KVR_NONE32,
				.backoff_us = AGENT_REPEAT_US,
				.progress_us = a->link.now_us,
				.reported_us = a->link.now_us};
	r->repeat.kind = AGENT_T_REPEAT;
	STAILQ_INIT(&r->items);
	LIST_INSERT_HEAD(bucket_of(a, h->handle), r, hash);
	TAILQ_INSERT_TAIL(&a->live, r, order);
	kvr_agent__alive_start(a);
	a->running++;
	return r;
}

void kvr_agent__assign_rank(struct kvr_agent *a, struct agent_req *r, uint32_t rank)
{
	r->rank = &a->rank[rank];
	r->rank->running++;
}

void kvr_agent__send_ack(struct kvr_agent *a, const struct kvr_wire_hdr *h, uint16_t code)
{
	const struct kvr_wire_dispatch_ack w = {.code = code};

	kvr_link_send(&a->link, &a->router, KVR_DISPATCH_ACK,
		      kvr_link_ids(&a->link, h->source, h->id, h->handle), &w, sizeof(w));
}

void kvr_agent__drop_items(struct agent_req *r)
{
	struct agent_item *it;

	while ((it = STAILQ_FIRST(&r->items)) != NULL) {
		STAILQ_REMOVE_HEAD(&r->items, link);
		free(it);
	}
	r->bytes = r->flying = r->parts = 0;
}

void kvr_agent__close_slot(struct kvr_agent *a, struct agent_req *r, bool tell)
{
	kvr_timer_stop(&a->link.timers, &r->repeat);
	kvr_agent__drop_items(r);
	free(r->echo);
	r->echo = NULL;
	r->state = AGENT_OVER;
	TAILQ_REMOVE(&a->live, r, order);
	TAILQ_INSERT_TAIL(&a->over, r, order);
	a->running--;
	a->adrift -= r->adrift;
	if (r->rank != NULL)
		r->rank->running--;
	r->rank = NULL;
	if (!tell)
		return;
	a->stats.finished++;
	if (a->conf.ops->on_done != NULL)
		a->conf.ops->on_done(a, r->handle, a->conf.user);
}

void kvr_agent__report_abort(struct kvr_agent *a, struct agent_req *r, enum kvr_agent_abort why,
			     uint16_t code)
{
	if (r->aborted || r->state == AGENT_OVER)
		return;
	r->aborted = true;
	a->stats.aborted++;
	if (a->conf.ops->on_abort != NULL)
		a->conf.ops->on_abort(a, r->handle, why, code, a->conf.user);
}

/* End a request whose client and router acknowledged the end (the router by PROGRESS on the direct
 * path). */
void kvr_agent__finish_if_acked(struct kvr_agent *a, struct agent_req *r)
{
	if (r->state == AGENT_ENDING && r->acked == r->next_seq && (!r->direct || r->prog_done))
		kvr_agent__close_slot(a, r, !r->aborted);
}

/* With DIRECT, after the first item, the client could not start over, and needs no router for the
 * rest. Reports to the router stop. @return true: the request continues this way. */
static bool set_adrift(struct kvr_agent *a, struct agent_req *r)
{
	if (!r->direct || r->next_seq == 0 || r->aborted)
		return false;
	KVR_SIM_SOMETIMES(AGENT_ADRIFT);
	a->adrift += !r->adrift;
	r->adrift = r->prog_done = true;
	kvr_agent__finish_if_acked(a, r);
	return true;
}

void kvr_agent__end_all(struct kvr_agent *a, uint16_t code)
{
	for (uint32_t i = 0; i < a->n_used; i++) {
		struct agent_req *r = &a->req[i];

		if ((r->state != AGENT_RUNNING && r->state != AGENT_ENDING) || r->adrift)
			continue;
		if (r->direct && r->state == AGENT_ENDING) {
			r->prog_done = true; /* the client needs no router for the rest */
			kvr_agent__finish_if_acked(a, r);
			continue;
		}
		kvr_agent__report_abort(a, r, KVR_AGENT_ABORT_ROUTER, code);
		kvr_agent__close_slot(
			a, r, false); /* kept as ended: a copy of its DISPATCH must not run */
	}
}

bool kvr_agent__is_former(const struct kvr_agent *a, uint32_t epoch)
{
	for (uint32_t i = 0; i < RTE_MIN(a->n_former, AGENT_FORMER); i++)
		if (a->former[i] == epoch)
			return true;
	return false;
}

/*
 * A DISPATCH of the new epoch may have arrived before its WELCOME, and stays. Late copies of
 * previous epochs that sent WELCOME are recognised by epoch. For an epoch without WELCOME the ended
 * requests are kept like any others.
 */
void kvr_agent__forget_others(struct kvr_agent *a, uint32_t epoch)
{
	for (uint32_t i = 0; i < a->n_used; i++) {
		struct agent_req *r = &a->req[i];

		if (r->state == AGENT_FREE || r->epoch == epoch)
			continue;
		if (r->state != AGENT_OVER) {
			if (set_adrift(a, r))
				continue;
			kvr_agent__report_abort(a, r, KVR_AGENT_ABORT_ROUTER,
						KVR_E_UNKNOWN_REQUEST);
			kvr_agent__close_slot(a, r, false);
		}
		if (kvr_agent__is_former(a, r->epoch))
			forget_request(a, r);
	}
}
