/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting requests: insertion, removal, limits (sections 7.1, 7.2, 7.5). */
#include "sched_pvt.h"

#include <errno.h>

#define DEAD_LANE(s) ((s)->max_ranks)

/* Compute the thresholds in tokens per rank; without one, no rank is ever busy for the class. */
void kvr_sched__limits(struct kvr_sched *s)
{
	for (uint32_t k = 0; k < s->n_cls; k++) {
		const struct kvr_pool_class *c = &s->cls[k].conf;

		for (uint32_t i = 0; i < s->n_ranks; i++) {
			uint32_t r = s->order[i];
			uint64_t batched = s->worker[s->rank[r].worker].max_batched;
			double most = INFINITY, part;

			if (c->busy_threshold != KVR_POOL_NONE)
				most = (double)c->busy_threshold;
			part = c->busy_threshold_frac *
			       (batched ? (double)batched : DEFAULT_BATCHED);
			if (!isnan(part) && part < most)
				most = part;
			s->cls[k].limit[r] = most;
		}
	}
}

bool kvr_sched__all_busy(const struct kvr_sched *s, const struct cls *k, const uint64_t *mask)
{
	return k->has_threshold && !s->k.any_free(s->tokens, k->limit, mask, s->words);
}

/* Return the heap of a waiting request. */
static uint32_t *root_of(struct kvr_sched *s, const struct node *n)
{
	struct cls *k = &s->cls[n->cls];

	return n->lane == NIL ? &k->root : &k->lane[n->lane];
}

static void insert_waiting(struct kvr_sched *s, uint32_t slot)
{
	struct node *n = &s->node[slot];
	struct cls *k = &s->cls[n->cls];
	uint32_t *root = root_of(s, n);

	if (n->lane != NIL && *root == NIL) {
		bit_put(k->lanes, n->lane, true);
		k->n_lanes++;
	}
	kvr_sched__heap_add(s->node, root, slot);
}

static void take_out(struct kvr_sched *s, uint32_t slot)
{
	struct node *n = &s->node[slot];
	struct cls *k = &s->cls[n->cls];
	uint32_t *root = root_of(s, n);

	kvr_sched__heap_del(s->node, root, slot);
	if (n->lane != NIL && *root == NIL) {
		bit_put(k->lanes, n->lane, false);
		k->n_lanes--;
	}
}

/* Move up to n requests from the lane of a removed rank to the extra lane, where admission rejects
 * the pinned ones. Late ones also lose their load, which takes time. @return the unused part of n;
 * 0: there may be more. */
uint32_t kvr_sched__lane_lost(struct kvr_sched *s, uint32_t rank, uint32_t n)
{
	const uint64_t end = kvr_active_walked(s->active) + ADMIT_SLICES * (uint64_t)s->slice;

	for (uint32_t i = 0; i < s->n_cls; i++) {
		struct cls *k = &s->cls[i];

		for (; n > 0 && k->lane[rank] != NIL; n--) {
			uint32_t slot = k->lane[rank];

			take_out(s, slot);
			if (s->wait[slot].late)
				kvr_sched__late_drop(s, slot);
			s->node[slot].lane = DEAD_LANE(s);
			insert_waiting(s, slot);
			if (kvr_active_walked(s->active) >= end)
				return 0;
		}
	}
	return n;
}

static void add_pending(struct kvr_sched_pending *p, const struct waiting *w, int by)
{
	p->count = (uint32_t)((int64_t)p->count + by);
	p->isl_tokens += (uint64_t)(by * (int64_t)w->isl);
	p->cached_tokens += (uint64_t)(by * (int64_t)w->cached);
}

/* Remove a slot from the queue; the caller sets its new state. */
void kvr_sched__leave(struct kvr_sched *s, uint32_t slot)
{
	struct cls *k = &s->cls[s->node[slot].cls];

	take_out(s, slot);
	if (s->turn == slot)
		s->turn = NIL;
	kvr_active_match_forget(s->active); /* the caller may reuse the memory of its hashes */
	if (s->wait[slot].late)
		kvr_sched__late_del(s, slot);
	kvr_sched__unkeep(s, slot);
	add_pending(&k->pending, &s->wait[slot], -1);
	add_pending(&s->pending, &s->wait[slot], -1);
	if (k->pending.count == 0)
		k->deficit = 0;
	s->slot[slot].state = KVR_SLOT_FREE;
	kvr_cell_sub(&s->cnt.waiting_now, 1);
}

static uint64_t multiply_saturated(uint64_t a, uint64_t b)
{
	uint64_t r;

	return __builtin_mul_overflow(a, b, &r) ? UINT64_MAX : r;
}

static bool over_limit(struct kvr_sched *s, const struct cls *k, struct kvr_sched_decision *d)
{
	const struct kvr_sched_pending *p = &k->pending;
	const uint64_t limit[] = {k->conf.max_requests, k->conf.max_isl_tokens,
				  k->conf.max_cached_tokens};
	const uint64_t now[] = {p->count, p->isl_tokens, p->cached_tokens};
	kvr_cell_t *const count[] = {&s->cnt.limit_requests, &s->cnt.limit_isl_tokens,
				     &s->cnt.limit_cached_tokens}; /* enum kvr_sched_limit */

	for (uint32_t i = 0; i < 3; i++) {
		uint64_t most;

		if (limit[i] == KVR_POOL_NONE)
			continue;
		most = multiply_saturated(limit[i], s->n_workers);
		if (now[i] < most)
			continue;
		kvr_cell_add(count[i], 1);
		d->reject.kind = (enum kvr_sched_limit)i;
		d->reject.current = now[i];
		d->reject.limit = most;
		return true;
	}
	return false;
}

static double compute_key(const struct kvr_sched *s, const struct cls *k, double jump,
			  const struct waiting *w)
{
	double offset = (double)(w->since - s->origin) / (double)SECOND_NS;

	jump = jump > 0 ? jump : 0;
	switch (k->conf.queue_policy) {
	case KVR_QUEUE_LCFS:
		return jump + offset;
	case KVR_QUEUE_WSPT:
		return (1 + jump) / (double)(w->uncached > 0 ? w->uncached : 1);
	default:
		return jump - offset;
	}
}

static uint64_t cached_tokens(struct kvr_sched *s, const struct choice *c)
{
	double eff = c->pinned ? kvr_sched__effective(s, c->ov, c->pin_rank)
			       : kvr_sched__best_effective(s, c->ov, c->open);

	return round_up_half(eff * s->block);
}

/* Return the next time to poll the queue without an event: soon if loads decrease with time. */
uint64_t kvr_sched__drain_at(const struct kvr_sched *s, uint64_t now)
{
	const uint64_t period = s->ttft.late != NULL				  ? LATE_DRAIN_NS
				: s->conf.prefill_model != KVR_PREFILL_MODEL_NONE ? MODEL_DRAIN_NS
										  : SWEEP_NS;

	return s->origin + ((now - s->origin) / period + 1) * period;
}

/* Insert a request into its lane and add its load. */
static void enter_queue(struct kvr_sched *s, uint32_t slot, const struct choice *c,
			const struct kvr_sched_decision *d)
{
	const struct kvr_hints *h = c->req->hints;
	const double jump = h != NULL ? h->priority_jump : 0;
	struct waiting *w = &s->wait[slot];
	struct node *n = &s->node[slot];
	struct cls *k = &s->cls[n->cls];

	w->cached = c->late ? d->cached_tokens : cached_tokens(s, c);
	w->cached = w->cached < w->isl ? w->cached : w->isl;
	w->uncached = w->isl - w->cached;
	w->late = c->late;
	if (c->late)
		kvr_sched__late_hold(s, slot, c, d);
	n->key = c->late ? kvr_sched__late_key(s, w, jump) : compute_key(s, k, jump, w);
	n->lane = c->late ? d->rank : c->pinned ? c->pin_rank : NIL;
	insert_waiting(s, slot);
	add_pending(&k->pending, w, 1);
	add_pending(&s->pending, w, 1);
}

/* Move a waiting request to the rank chosen now; it keeps its time of arrival. */
void kvr_sched__move(struct kvr_sched *s, uint32_t slot, const struct choice *c, uint64_t now,
		     const struct kvr_sched_decision *d)
{
	const struct waiting *w = &s->wait[slot];
	const bool was_late = w->late;

	take_out(s, slot);
	add_pending(&s->cls[s->node[slot].cls].pending, w, -1);
	add_pending(&s->pending, w, -1);
	enter_queue(s, slot, c, d);
	if (!was_late)
		kvr_sched__late_add(s, slot, now);
}

enum kvr_code kvr_sched__enqueue(struct kvr_sched *s, const struct choice *c, uint64_t now,
				 struct kvr_sched_decision *d)
{
	const struct kvr_hints *h = c->req->hints;
	struct waiting *w = &s->wait[d->slot];
	struct node *n = &s->node[d->slot];

	if (over_limit(s, &s->cls[d->policy_class], d))
		return KVR_E_QUEUE_REJECTED;
	w->req = c->req;
	w->since = now;
	w->isl = c->req->isl;
	w->pin_worker = c->pin_worker;
	w->pin_dp = c->pin_dp;
	w->pinned = c->pinned;
	n->strict = h != NULL ? h->strict_priority : 0;
	n->seq = s->seq++;
	n->cls = d->policy_class;
	kvr_sched__keep(s, d->slot, c->ov);
	if (s->pending.count == 0)
		s->next_drain = kvr_sched__drain_at(s, now);
	enter_queue(s, d->slot, c, d);
	if (c->late)
		kvr_sched__late_add(s, d->slot, now);
	s->slot[d->slot].state = KVR_SLOT_WAITING;
	kvr_cell_add(&s->cnt.waiting_now, 1);
	kvr_cell_add(&s->cnt.queued, 1);
	return KVR_OK;
}

void kvr_sched_pending(const struct kvr_sched *s, struct kvr_sched_pending *p)
{
	*p = s->pending;
}

int kvr_sched_pending_class(const struct kvr_sched *s, uint32_t policy_class,
			    struct kvr_sched_pending *p)
{
	if (policy_class >= s->n_cls)
		return -ENOENT;
	*p = s->cls[policy_class].pending;
	return 0;
}
