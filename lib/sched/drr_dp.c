/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whose turn it is: the head of each class that could be admitted now, and deficit round robin
 * between classes (sections 7.3 and 7.6). A request's cost is its uncached tokens, at least 1.
 */
#include "sched_pvt.h"

static bool unpinned_ready(struct kvr_sched *s, const struct cls *k)
{
	struct choice c = {.req = s->wait[k->root].req};

	kvr_sched__open_set(s, &c);
	if (any_bit(c.open, s->words))
		return !kvr_sched__all_busy(s, k, c.open);
	/* With nobody to come there is nothing to wait for: admission will refuse it. */
	return !kvr_sched__due(s, &c);
}

static bool lane_ready(const struct kvr_sched *s, const struct cls *k, uint32_t lane, uint64_t now)
{
	const bool late = s->ttft.late != NULL;

	if (lane == s->max_ranks || !(k->has_threshold || late))
		return true;
	if (!bit(s->open, lane))
		return !bit(s->due, lane);
	if (late && kvr_sched__late_full(s, lane, now))
		return false;
	return !k->has_threshold || s->tokens[lane] <= k->limit[lane];
}

/* Best request of a class that need not wait any longer, or NIL. */
static uint32_t head(struct kvr_sched *s, const struct cls *k, uint64_t now)
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

static uint64_t price(const struct kvr_sched *s, uint32_t slot)
{
	return s->wait[slot].uncached > 0 ? s->wait[slot].uncached : 1;
}

static uint32_t serve(struct kvr_sched *s, uint32_t ki, uint32_t slot)
{
	struct cls *k = &s->cls[ki];

	k->deficit -= price(s, slot);
	s->carry = k->deficit > 0 ? ki : NIL;
	return slot;
}

/* It was its turn, and has not been admitted: its class has the price back, and is the next. */
void kvr_sched__unserve(struct kvr_sched *s, uint32_t slot)
{
	const uint32_t ki = s->node[slot].cls;

	if (s->n_cls == 1)
		return;
	s->cls[ki].deficit += price(s, slot);
	s->carry = ki;
}

/* First class from the cursor whose deficit pays for its head, or NIL. */
static uint32_t affordable(struct kvr_sched *s, const uint32_t heads[], uint64_t quantum_once)
{
	for (uint32_t i = 0; i < s->n_cls; i++) {
		uint32_t ki = (s->cursor + i) % s->n_cls;
		struct cls *k = &s->cls[ki];

		if (heads[ki] == NIL)
			continue;
		k->deficit += quantum_once * k->conf.quantum;
		if (price(s, heads[ki]) > k->deficit)
			continue;
		s->cursor = (ki + 1) % s->n_cls;
		return serve(s, ki, heads[ki]);
	}
	return NIL;
}

/* Whole rounds until the first candidate can pay. */
static uint64_t rounds(const struct kvr_sched *s, const uint32_t heads[])
{
	uint64_t fewest = UINT64_MAX;

	for (uint32_t ki = 0; ki < s->n_cls; ki++) {
		const struct cls *k = &s->cls[ki];
		uint64_t n;

		if (heads[ki] == NIL)
			continue;
		n = (price(s, heads[ki]) - k->deficit + k->conf.quantum - 1) / k->conf.quantum;
		fewest = n < fewest ? n : fewest;
	}
	return fewest;
}

/* Slot to admit next, still in the queue; NIL when everybody has to wait. */
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
		heads[ki] = head(s, &s->cls[ki], now);
		any = heads[ki] != NIL ? ki : any;
	}
	if (any == NIL || s->n_cls == 1)
		return any == NIL ? NIL : heads[0];
	if (carry != NIL && heads[carry] != NIL && price(s, heads[carry]) <= s->cls[carry].deficit)
		return serve(s, carry, heads[carry]);
	s->carry = NIL;
	slot = affordable(s, heads, 1);
	if (slot != NIL)
		return slot;
	bulk = rounds(s, heads);
	for (uint32_t ki = 0; ki < s->n_cls; ki++)
		if (heads[ki] != NIL)
			s->cls[ki].deficit += bulk * s->cls[ki].conf.quantum;
	return affordable(s, heads, 0);
}
