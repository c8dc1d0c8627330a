/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Unresponsive workers: they report, but do not acknowledge requests. Their ranks are excluded from
 * the eligible ones while others are left. After each interval the exclusion is lifted until one
 * request is booked there, which shows whether the worker responds again.
 */
#include "sched_pvt.h"

static void mark_prefill(struct kvr_sched *s, const struct worker *w, bool silent)
{
	for (uint32_t i = 0; i < w->dp_size; i++)
		bit_put(s->silent, s->order[w->at + i], silent);
}

static void pause_begin(struct kvr_sched *s, struct worker *w, uint64_t now)
{
	w->silent_end = now + w->silent_ns;
	s->silent_end = w->silent_end < s->silent_end ? w->silent_end : s->silent_end;
	mark_prefill(s, w, true);
}

void kvr_sched_unresponsive(struct kvr_sched *s, uint64_t id, uint64_t ns, uint64_t now)
{
	const uint32_t at = kvr_sched__worker(s, id);
	struct worker *w;

	if (at == NIL)
		return;
	w = &s->worker[at];
	if (s->n_silent == 0)
		s->silent_end = UINT64_MAX;
	s->n_silent += !w->silent;
	w->silent = true;
	w->silent_ns = ns;
	pause_begin(s, w, now);
}

void kvr_sched__mark_responsive(struct kvr_sched *s, struct worker *w)
{
	s->n_silent -= w->silent;
	w->silent = false;
	mark_prefill(s, w, false);
	s->changed = true; /* waiting requests may go there */
}

void kvr_sched_responded(struct kvr_sched *s, uint64_t id)
{
	const uint32_t at = kvr_sched__worker(s, id);

	if (at != NIL && s->worker[at].silent)
		kvr_sched__mark_responsive(s, &s->worker[at]);
}

uint32_t kvr_sched_n_unresponsive(const struct kvr_sched *s)
{
	return s->n_silent;
}

void kvr_sched__silent_due(struct kvr_sched *s, uint64_t now)
{
	if (now < s->silent_end)
		return;
	s->silent_end = UINT64_MAX;
	for (uint32_t i = 0; i < s->n_workers; i++) {
		struct worker *w = &s->worker[s->sorted[i]];

		if (!w->silent || w->silent_end == 0)
			continue;
		if (w->silent_end <= now) {
			w->silent_end = 0;
			mark_prefill(s, w, false);
			s->changed = true;
		} else if (w->silent_end < s->silent_end) {
			s->silent_end = w->silent_end;
		}
	}
}

void kvr_sched__silent_booked(struct kvr_sched *s, uint32_t rank, uint64_t now)
{
	struct worker *w = &s->worker[s->rank[rank].worker];

	if (w->silent && w->silent_end == 0)
		pause_begin(s, w, now);
}
