/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Selection of the next request to admit: the admissible head of each class, and deficit round
 * robin between classes (sections 7.3 and 7.6). The price of a request is its uncached tokens, at
 * least 1.
 */
#include "sched_pvt.h"

static bool unpinned_ready(struct kvr_sched *s, const struct cls *k)
{
	struct choice c = {.req = s->wait[k->root].req};

	kvr_sched__open_set(s, &c);
	if (any_bit(c.open, s->words))
		return !kvr_sched__all_busy(s, k, c.open);
	/* Without a rank that may become eligible, admission rejects the request. */
	return !kvr_sched__due(s, &c);
}

static bool lane_ready(const struct kvr_sched *s, const struct cls *k, uint32_t lane, uint64_t now)
{
	const bool late = s->ttft.late != NULL;

	if (lane == s->max_ranks || !(k->has_threshold || late))
		return true;
	if (!test_bit(s->open, lane))
		return !test_bit(s->due, lane);
	if (late && kvr_sched__late_full(s, lane, now))
		return false;
	return !k->has_threshold || s->tokens[lane] <= k->limit[lane];
}

/* Return the first admissible request of a class, or NIL. */
static uint32_t find_head(struct kvr_sched *s, const struct cls *k, uint64_t now)
{
	uint32_t best = NIL;

	if (k->pending.count == 0)
		return NIL;
	if (k->root != NIL && unpinned_ready(s, k))
		best = k->root;
	if (k->n_lanes == 0)
		return best;
	for (uint32_t w = 0; w <= s->max_ranks / 64; w++)
		for (uint64_t b = k->lanes[w]; b != 0; b &= b - 1) {
			uint32_t lane = w * 64 + (uint32_t)__builtin_ctzll(b);
			uint32_t slot = k->lane[lane];

			if (lane_ready(s, k, lane, now) &&
			    (best == NIL || kvr_sched__before(&s->node[slot], &s->node[best])))
				best = slot;
		}
	return best;
}

static uint64_t slot_price(const struct kvr_sched *s, uint32_t slot)
{
	return s->wait[slot].uncached > 0 ? s->wait[slot].uncached : 1;
}

static uint32_t serve_class(struct kvr_sched *s, uint32_t ki, uint32_t slot)
{
	struct cls *k = &s->cls[ki];

	k->deficit -= slot_price(s, slot);
	s->carry = k->deficit > 0 ? ki : NIL;
	return slot;
}

/* Undo the turn of a request that was not admitted: refund its class and make it the next. */
void kvr_sched__unserve(struct kvr_sched *s, uint32_t slot)
{
	const uint32_t ki = s->node[slot].cls;

	if (s->n_cls == 1)
		return;
	s->cls[ki].deficit += slot_price(s, slot);
	s->carry = ki;
}

/* Return the first class from the cursor that can pay for its head, or NIL. */
static uint32_t find_affordable_class(struct kvr_sched *s, const uint32_t heads[],
				      uint64_t quantum_once)
{
	for (uint32_t i = 0; i < s->n_cls; i++) {
		uint32_t ki = (s->cursor + i) % s->n_cls;
		struct cls *k = &s->cls[ki];

		if (heads[ki] == NIL)
			continue;
		k->deficit += quantum_once * k->conf.quantum;
		if (slot_price(s, heads[ki]) > k->deficit)
			continue;
		s->cursor = (ki + 1) % s->n_cls;
		return serve_class(s, ki, heads[ki]);
	}
	return NIL;
}

/* Add whole rounds until the first candidate can pay. */
static uint64_t add_rounds(const struct kvr_sched *s, const uint32_t heads[])
{
	uint64_t fewest = UINT64_MAX;

	for (uint32_t ki = 0; ki < s->n_cls; ki++) {
		const struct cls *k = &s->cls[ki];
		uint64_t n;

		if (heads[ki] == NIL)
			continue;
		n = (slot_price(s, heads[ki]) - k->deficit + k->conf.quantum - 1) / k->conf.quantum;
		fewest = n < fewest ? n : fewest;
	}
	return fewest;
}

/* Return the slot to admit next, which stays in the queue; NIL: none is admissible. */
uint32_t kvr_sched__next(struct kvr_sched *s, uint64_t now)
{
	uint32_t heads[KVR_POOL_CLASSES_MAX], any = NIL, carry = s->carry, slot;
	uint64_t bulk;

	if (s->pending.count == 0)
		return NIL;
	slot = kvr_sched__late_due(s, now);
	if (slot != NIL)
		return slot;
	kvr_sched__prefill_now(s, now);
	for (uint32_t ki = 0; ki < s->n_cls; ki++) {
		heads[ki] = find_head(s, &s->cls[ki], now);
		any = heads[ki] != NIL ? ki : any;
	}
	if (any == NIL || s->n_cls == 1)
		return any == NIL ? NIL : heads[0];
	if (carry != NIL && heads[carry] != NIL &&
	    slot_price(s, heads[carry]) <= s->cls[carry].deficit)
		return serve_class(s, carry, heads[carry]);
	s->carry = NIL;
	slot = find_affordable_class(s, heads, 1);
	if (slot != NIL)
		return slot;
	bulk = add_rounds(s, heads);
	for (uint32_t ki = 0; ki < s->n_cls; ki++)
		if (heads[ki] != NIL)
			s->cls[ki].deficit += bulk * s->cls[ki].conf.quantum;
	return find_affordable_class(s, heads, 0);
}
