/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Prefill load of a rank (section 6.4): a FIFO of requests without a token.
 * Without modelled durations the load is the sum of their tokens. With durations, the tokens of the
 * oldest request (the anchor) decrease over its duration. If every request has a duration, the
 * decrease may continue with the following requests.
 */
#include "sched_pvt.h"

uint64_t kvr_sched__duration(const struct kvr_sched *s, uint64_t uncached, uint64_t cached)
{
	const struct kvr_pool_conf *c = &s->conf;
	double x = (double)uncached, slope;
	uint32_t i = 1;

	/* Mode ttft learns the speed of its ranks. */
	if (c->prefill_model == KVR_PREFILL_MODEL_NONE || s->mode->by_ttft)
		return NO_DURATION;
	if (c->prefill_model == KVR_PREFILL_MODEL_LINEAR)
		return (uint64_t)(c->prefill_base_ms * 1e6 + c->prefill_us_per_token * 1e3 * x +
				  c->prefill_us_per_cached_token * 1e3 * (double)cached);
	if (s->n_points == 1 || x <= s->point_tokens[0])
		return (uint64_t)s->point_ns[0];
	while (i + 1 < s->n_points && x > s->point_tokens[i])
		i++;
	slope = (s->point_ns[i] - s->point_ns[i - 1]) /
		(s->point_tokens[i] - s->point_tokens[i - 1]);
	x = s->point_ns[i - 1] + slope * (x - s->point_tokens[i - 1]);
	return x < 0 ? 0 : (uint64_t)x;
}

uint64_t kvr_sched__prefill_tokens(const struct kvr_sched *s, uint32_t rank, uint64_t now)
{
	const struct rank *r = &s->rank[rank];
	const struct slot *anchor;
	double elapsed, part;

	if (r->pf_modelled == 0)
		return r->pf_tokens;
	anchor = &s->slot[r->pf_head];
	if (anchor->pf_duration == NO_DURATION)
		return r->pf_tokens;
	elapsed = now > r->anchor_at ? (double)(now - r->anchor_at) : 0;
	if (anchor->pf_duration == 0)
		return r->pf_tokens - anchor->pf_tokens;
	if (r->pf_modelled == r->pf_count) {
		part = floor((double)anchor->pf_tokens * elapsed / (double)anchor->pf_duration);
		return part >= (double)r->pf_tokens ? 0 : r->pf_tokens - (uint64_t)part;
	}
	part = 1 - elapsed / (double)anchor->pf_duration;
	part = ceil((double)anchor->pf_tokens * (part < 0 ? 0 : part));
	return r->pf_tokens - anchor->pf_tokens + (uint64_t)part;
}

/* Update the array that decisions read to `now`, for ranks whose load changes with time. */
void kvr_sched__prefill_now(struct kvr_sched *s, uint64_t now)
{
	if (s->n_modelled == 0)
		return;
	for (uint32_t i = 0; i < s->n_ranks; i++) {
		uint32_t rank = s->order[i];

		if (s->rank[rank].pf_modelled > 0)
			s->tokens[rank] = (double)kvr_sched__prefill_tokens(s, rank, now);
	}
}

static void count_model(struct kvr_sched *s, struct rank *r, int by)
{
	s->n_modelled -= r->pf_modelled > 0;
	r->pf_modelled = (uint32_t)((int)r->pf_modelled + by);
	s->n_modelled += r->pf_modelled > 0;
}

void kvr_sched__prefill_add(struct kvr_sched *s, uint32_t slot, uint64_t now)
{
	struct slot *b = &s->slot[slot];
	struct rank *r = &s->rank[b->rank];

	b->in_prefill = true;
	b->pf_next = NIL;
	b->pf_prev = r->pf_tail;
	if (r->pf_tail == NIL) {
		r->pf_head = slot;
		r->anchor_at = now;
	} else {
		s->slot[r->pf_tail].pf_next = slot;
	}
	r->pf_tail = slot;
	r->pf_count++;
	r->pf_tokens += b->pf_tokens;
	if (b->pf_duration != NO_DURATION)
		count_model(s, r, 1);
	s->tokens[b->rank] = (double)r->pf_tokens;
	if (s->ttft.rest != NULL)
		kvr_sched__ttft_waits(s, b->rank, b->pf_prev == NIL);
}

void kvr_sched__prefill_remove(struct kvr_sched *s, uint32_t slot, uint64_t now)
{
	struct slot *b = &s->slot[slot];
	struct rank *r = &s->rank[b->rank];

	if (!b->in_prefill)
		return;
	b->in_prefill = false;
	if (b->pf_prev == NIL) {
		r->pf_head = b->pf_next;
		r->anchor_at = now;
	} else {
		s->slot[b->pf_prev].pf_next = b->pf_next;
		if (b->pf_duration != NO_DURATION) {
			uint64_t room = now > r->anchor_at ? now - r->anchor_at : 0;

			r->anchor_at += b->pf_duration < room ? b->pf_duration : room;
		}
	}
	if (b->pf_next == NIL)
		r->pf_tail = b->pf_prev;
	else
		s->slot[b->pf_next].pf_prev = b->pf_prev;
	r->pf_count--;
	r->pf_tokens -= b->pf_tokens;
	if (b->pf_duration != NO_DURATION)
		count_model(s, r, -1);
	s->tokens[b->rank] = (double)r->pf_tokens;
	if (s->ttft.rest != NULL)
		kvr_sched__ttft_waits(s, b->rank, b->pf_prev == NIL);
}
