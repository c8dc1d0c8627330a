/* SPDX-License-Identifier: BSD-3-Clause */
/* Decisions: for a new request, and for the next request of the queue. */
#include "sched_pvt.h"

#define MOVES 8u /* maximum of requests moved to another rank per call */

/* Copies a blank decision, which is faster than clearing it. */
static void blank_decision(const struct kvr_sched *s, struct kvr_sched_decision *d, uint32_t slot)
{
	*d = s->blank;
	d->slot = slot;
}

static enum kvr_sched_result refuse_decision(struct kvr_sched *s, struct kvr_sched_decision *d,
					     enum kvr_code e)
{
	d->result = KVR_SCHED_ERROR;
	d->err = e;
	kvr_cell_add(&s->cnt.errors[KVR_SCHED_ERR_ANY], 1);
	kvr_cell_add(&s->cnt.errors[kvr_sched__err_at[e]], 1);
	return d->result;
}

/* The same for a request that has waited. */
static void refuse_waiting(struct kvr_sched *s, struct kvr_sched_decision *d, enum kvr_code e)
{
	kvr_cell_add(&s->cnt.poll_errors[KVR_SCHED_ERR_ANY], 1);
	kvr_cell_add(&s->cnt.poll_errors[kvr_sched__err_at[e]], 1);
	refuse_decision(s, d, e);
}

static void book_decision(struct kvr_sched *s, const struct choice *c, uint64_t now,
			  struct kvr_sched_decision *d)
{
	d->result = KVR_SCHED_ROUTED;
	kvr_cell_add(&s->cnt.non_max_overlap, d->better_rank != KVR_SCHED_NO_RANK);
	kvr_sched__book(s, c, now, d);
	if (s->n_silent != 0)
		kvr_sched__silent_booked(s, d->rank, now);
	if (s->n_failing != 0)
		d->trial = kvr_sched__fail_booked(s, d->rank, now);
}

/* Update the avoided ranks before a choice. */
static void pauses_due(struct kvr_sched *s, uint64_t now)
{
	if (s->n_silent != 0)
		kvr_sched__silent_due(s, now);
	if (s->n_failing != 0)
		kvr_sched__fail_due(s, now);
}

static void choice_init(const struct kvr_sched *s, struct choice *c,
			const struct kvr_sched_req *req, const struct kvr_sched_overlap *ov)
{
	c->req = req;
	c->ov = ov;
	c->pinned = false;
	c->late = false;
	c->keep = NIL;
	c->open = s->open;
	c->n = s->conf.track_active_blocks && s->mode->needs_cache ? req->n : 0;
	kvr_sched__params(s, req, &c->p);
}

/* Decide whether the request must wait (7.1); NO_ENDPOINTS if there is no rank to wait for. */
static enum kvr_code must_wait(struct kvr_sched *s, struct choice *c, uint32_t policy_class,
			       uint64_t now, bool *wait)
{
	const struct cls *k = &s->cls[policy_class];
	const bool may_wait = !c->req->query_only && k->has_threshold;

	*wait = false;
	if (c->pinned) {
		enum kvr_code e = kvr_sched__pin_check(s, c);

		if (e == KVR_E_NO_ENDPOINTS && may_wait && kvr_sched__pin_due(s, c)) {
			*wait = true;
			return KVR_OK;
		}
		/* overload is checked when a worker is chosen */
		if (e != KVR_OK && e != KVR_E_PINNED_OVERLOADED)
			return e;
	} else {
		kvr_sched__open_set(s, c);
		if (!any_bit(c->open, s->words)) {
			*wait = may_wait && kvr_sched__due(s, c);
			return *wait ? KVR_OK : KVR_E_NO_ENDPOINTS;
		}
	}
	if (!may_wait)
		return KVR_OK;
	kvr_sched__prefill_now(s, now);
	if (k->pending.count > 0)
		*wait = true;
	else if (c->pinned)
		*wait = s->tokens[c->pin_rank] > k->limit[c->pin_rank];
	else
		*wait = kvr_sched__all_busy(s, k, c->open);
	return KVR_OK;
}

static enum kvr_code choose_rank(struct kvr_sched *s, struct choice *c, uint64_t now,
				 struct kvr_sched_decision *d)
{
	return s->mode->needs_cache ? kvr_sched__choose(s, c, now, d)
				    : kvr_sched__choose_simple(s, c, d);
}

/* The chosen rank is the one to wait for, not a decision yet. */
static enum kvr_code wait_late(struct kvr_sched *s, struct choice *c, uint64_t now,
			       struct kvr_sched_decision *d)
{
	const enum kvr_code e = kvr_sched__enqueue(s, c, now, d);
	const struct kvr_sched_decision chosen = *d;

	if (s->terms != NULL)
		s->terms->n = 0;
	blank_decision(s, d, chosen.slot);
	d->policy_class = chosen.policy_class;
	d->reject = chosen.reject;
	if (e == KVR_OK)
		d->result = KVR_SCHED_QUEUED;
	return e;
}

static enum kvr_sched_result route_request(struct kvr_sched *s, struct choice *c, uint64_t now,
					   struct kvr_sched_decision *d)
{
	enum kvr_code e = KVR_OK;
	bool wait = false;

	if (s->mode->may_wait)
		e = must_wait(s, c, d->policy_class, now, &wait);
	if (e == KVR_OK && wait) {
		e = kvr_sched__enqueue(s, c, now, d);
		if (e == KVR_OK)
			return d->result = KVR_SCHED_QUEUED;
	} else if (e == KVR_OK) {
		e = choose_rank(s, c, now, d);
		c->late = e == KVR_OK && kvr_sched__late_waits(s, c, d->rank, now);
	}
	if (c->late)
		e = wait_late(s, c, now, d);
	if (e != KVR_OK)
		return refuse_decision(s, d, e);
	if (d->result == KVR_SCHED_QUEUED)
		return d->result;
	if (c->req->query_only) {
		kvr_cell_add(&s->cnt.queries, 1);
		return d->result = KVR_SCHED_QUERY;
	}
	kvr_cell_add(&s->cnt.booked_at_once, 1);
	book_decision(s, c, now, d);
	return d->result;
}

static void name_class(const struct kvr_sched_req *req, struct kvr_sched_decision *d)
{
	if (req->hints != NULL && req->hints->policy_class != KVR_SCHED_NO_CLASS)
		d->policy_class = req->hints->policy_class;
}

/* A rejected probe is not included in the other counters. */
static enum kvr_sched_result route_probe(struct kvr_sched *s, struct choice *c, uint64_t now,
					 struct kvr_sched_decision *d)
{
	enum kvr_code e = KVR_E_NO_MEMORY;

	kvr_cell_add(&s->cnt.probes, 1);
	if (d->slot < s->conf.max_requests)
		e = s->slot[d->slot].state != KVR_SLOT_FREE ? KVR_E_DUPLICATE_REQUEST
							    : kvr_sched_check(s, c->req);
	if (e == KVR_OK) {
		name_class(c->req, d);
		e = kvr_sched__resolve(s, c);
	}
	if (e == KVR_OK)
		e = choose_rank(s, c, now, d);
	if (e != KVR_OK) {
		kvr_cell_add(&s->cnt.probes_refused, 1);
		d->err = e;
		return d->result = KVR_SCHED_ERROR;
	}
	kvr_sched__book_probe(s, d, now);
	return d->result = KVR_SCHED_ROUTED;
}

enum kvr_sched_result kvr_sched_route(struct kvr_sched *s, uint32_t slot,
				      const struct kvr_sched_req *req,
				      const struct kvr_sched_overlap *ov, uint64_t now,
				      struct kvr_sched_decision *d)
{
	struct choice c;
	enum kvr_code e;

	blank_decision(s, d, slot);
	if (s->owed.any)
		kvr_sched__settle(s);
	if (s->terms != NULL)
		s->terms->n = 0;
	if (req->probe) {
		choice_init(s, &c, req, ov);
		return route_probe(s, &c, now, d);
	}
	kvr_cell_add(&s->cnt.routed_calls, 1);
	if (slot >= s->conf.max_requests)
		return refuse_decision(s, d, KVR_E_NO_MEMORY);
	if (!req->query_only && s->slot[slot].state != KVR_SLOT_FREE)
		return refuse_decision(s, d, KVR_E_DUPLICATE_REQUEST);
	e = kvr_sched_check(s, req);
	if (e != KVR_OK)
		return refuse_decision(s, d, e);
	name_class(req, d);
	pauses_due(s, now);
	choice_init(s, &c, req, ov);
	e = kvr_sched__resolve(s, &c);
	if (e != KVR_OK)
		return refuse_decision(s, d, e);
	return route_request(s, &c, now, d);
}

/* ---- admission --------------------------------------------------------------------------- */

/* Use the overlap of the arrival while it is recent, else look it up again if the owner can. */
static bool fresh_overlap(struct kvr_sched *s, uint32_t slot, uint64_t now,
			  struct kvr_sched_overlap *ov)
{
	const struct waiting *w = &s->wait[slot];
	bool old = s->refresh_ns > 0 && now - w->since >= s->refresh_ns;

	if (!(old || s->node[slot].lost) || s->ops.refresh == NULL)
		return false;
	*ov = (struct kvr_sched_overlap){0};
	if (!s->ops.refresh(s->ops.arg, slot, w->req, ov))
		return false;
	kvr_cell_add(&s->cnt.refreshes, 1);
	return true;
}

/* @return false: moved to another rank, still waiting. */
static bool admit_slot(struct kvr_sched *s, uint32_t slot, uint64_t now,
		       struct kvr_sched_decision *d)
{
	const bool overdue = slot == kvr_sched__late_due(s, now);
	struct waiting *w = &s->wait[slot];
	struct choice c;
	struct kvr_sched_overlap ov;
	enum kvr_code e;
	bool refreshed;

	blank_decision(s, d, slot);
	d->waited_ns = now - w->since;
	d->policy_class = s->node[slot].cls;
	d->refreshed = refreshed = fresh_overlap(s, slot, now, &ov);
	if (!refreshed)
		kvr_sched__recall(s, slot, &ov);
	choice_init(s, &c, w->req, &ov);
	c.pinned = w->pinned;
	c.pin_worker = w->pin_worker;
	c.pin_dp = w->pin_dp;
	if (w->late) {
		c.keep = kvr_sched__late_rank(s, slot);
		c.left = w->left;
	}
	e = choose_rank(s, &c, now, d);
	if (!refreshed)
		kvr_sched__recall_end(s, slot);
	if (e == KVR_OK && d->rank != c.keep && !overdue &&
	    kvr_sched__late_waits(s, &c, d->rank, now)) {
		c.late = true;
		kvr_sched__move(s, slot, &c, now, d);
		return false;
	}
	kvr_sched__leave(s, slot);
	if (e != KVR_OK) {
		refuse_waiting(s, d, e);
		return true;
	}
	kvr_cell_add(&s->cnt.admitted, 1);
	book_decision(s, &c, now, d);
	return true;
}

/* Return the next slot to admit; NIL: none, or its long prompt is not matched completely. */
static uint32_t next_slot(struct kvr_sched *s, uint64_t now)
{
	const uint32_t slot = s->turn != NIL ? s->turn : kvr_sched__next(s, now);

	s->turn = NIL;
	if (slot == NIL)
		return NIL;
	if (s->wait[slot].late && s->slot[slot].rank != NIL) {
		kvr_sched__late_drop(s, slot); /* must not wait for its own load */
		if (s->owed.any) {
			s->turn = slot;
			return NIL;
		}
	}
	if (s->slice != UINT32_MAX &&
	    !kvr_sched_prepare(s, s->wait[slot].req, ADMIT_SLICES * s->slice)) {
		s->turn = slot;
		return NIL;
	}
	return slot;
}

void kvr_sched_admit_again(struct kvr_sched *s)
{
	const uint32_t slot = s->turn;
	struct choice c;

	if (slot == NIL)
		return;
	kvr_sched__unserve(s, slot);
	s->turn = NIL;
	s->changed = true;
	if (s->wait[slot].late) {
		choice_init(s, &c, s->wait[slot].req, NULL);
		kvr_sched__late_again(s, slot, &c);
	}
	kvr_active_match_forget(s->active);
}

uint64_t kvr_sched_moves(const struct kvr_sched *s)
{
	return s->moves;
}

uint32_t kvr_sched_poll(struct kvr_sched *s, uint64_t now, struct kvr_sched_decision d[],
			uint32_t n)
{
	const uint64_t end = kvr_active_walked(s->active) + ADMIT_SLICES * (uint64_t)s->slice;
	const uint64_t moves = s->moves;
	uint32_t done = 0;

	if (s->terms != NULL)
		s->terms->n = 0;
	if (s->pending.count == 0) {
		s->changed = false;
		return 0;
	}
	pauses_due(s, now);
	if (!s->changed && now < s->next_drain && now < kvr_sched__late_until(s))
		return 0;
	if (now >= s->next_drain) {
		s->next_drain = kvr_sched__drain_at(s, now);
		s->changed = true; /* poll again until no request is admissible */
	}
	while (done < n) {
		uint32_t slot;

		if (s->moves - moves == MOVES ||
		    (s->moves != moves && kvr_active_walked(s->active) >= end)) {
			s->next_drain = now; /* continue at once, in another call */
			break;
		}
		slot = next_slot(s, now);

		if (slot == NIL) {
			s->changed = s->turn != NIL;
			break;
		}
		if (s->terms != NULL)
			s->terms->n = 0;
		if (admit_slot(s, slot, now, &d[done]))
			done++;
		else
			s->moves++;
	}
	return done;
}

uint32_t kvr_sched_close_queue(struct kvr_sched *s, uint32_t from, uint32_t to,
			       struct kvr_sched_decision d[])
{
	const uint32_t end = to < s->conf.max_requests ? to : s->conf.max_requests;
	uint32_t done = 0;

	for (uint32_t slot = from; slot < end && s->pending.count > 0; slot++) {
		if (s->slot[slot].state != KVR_SLOT_WAITING)
			continue;
		kvr_sched__leave(s, slot);
		blank_decision(s, &d[done], slot);
		refuse_waiting(s, &d[done++], KVR_E_SHUTDOWN);
	}
	return done;
}

uint64_t kvr_sched_next_timer(const struct kvr_sched *s)
{
	uint64_t t = UINT64_MAX;

	if (s->expiry_ns != 0 && (s->cnt.booked_now > 0 || s->cnt.probes_now > 0))
		t = s->next_sweep;
	if (s->pending.count > 0 && s->next_drain < t)
		t = s->next_drain;
	if (s->pending.count > 0 && s->n_failing != 0 && s->fail_end < t)
		t = s->fail_end; /* a waiting request may be the probe */
	if (kvr_sched__late_until(s) < t)
		t = kvr_sched__late_until(s);
	return t;
}

/* ---- potential loads --------------------------------------------------------------------- */

uint32_t kvr_sched_loads(struct kvr_sched *s, const struct kvr_sched_req *req,
			 const struct kvr_sched_overlap *ov, uint64_t now,
			 struct kvr_sched_load v[], uint32_t cap)
{
	struct params p;
	uint32_t n = s->conf.track_active_blocks ? req->n : 0;

	if (s->owed.any)
		kvr_sched__settle(s);
	kvr_sched__params(s, req, &p);
	kvr_active_match(s->active, req->sh, p.reuse ? n : 0, s->depth);
	for (uint32_t i = 0; i < s->n_ranks && i < cap; i++) {
		uint32_t r = s->order[i];
		double eff = kvr_sched__effective(s, ov, r);
		uint64_t cached = round_up_half(eff * s->block);
		uint64_t fresh = req->isl > cached ? req->isl - cached : 0;

		v[i] = (struct kvr_sched_load){
			.worker = s->worker[s->rank[r].worker].id,
			.dp_rank = s->rank[r].dp_rank,
			.rank = r,
			.potential_prefill_tokens = kvr_sched__prefill_tokens(s, r, now) +
						    (p.track_prefill ? fresh : 0),
			.potential_decode_blocks = s->blocks[r] + (n - s->depth[r]),
			.active_requests = s->requests[r],
			.overlap_blocks = (uint32_t)round_up_half(eff),
			.cached_tokens = (uint32_t)cached,
		};
	}
	return s->n_ranks;
}
