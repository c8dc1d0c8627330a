/* SPDX-License-Identifier: BSD-3-Clause */
#include "ingress/overload.h"

#include "kvr_rand.h"

#define STEP_NS	   UINT64_C(1000000)
#define FULL_STEPS 4u /* a device ring holds several milliseconds of a flood */
/* Milliseconds of silence that are made up for: more than it takes from nothing to everything. */
#define STEPS_MOST 2048u
/* All is let in, and the device emptied, for so long: it is over. A flood pauses for less. */
#define OVER_NS UINT64_C(1000000000)
/* A turn takes less, unless the machine has taken the core away. */
#define STALL_NS UINT64_C(4000000)
/* Every ring holds so many bursts. */
#define SMALL_BURSTS 32u
/* When of so many frames of the device less than one is a request let in, others overload it. */
#define FEW 16u

/* What the next verdict about `part` goes by. */
static void look_anew(struct port_load *l)
{
	l->drained = false;
	l->full_steps = 0;
	l->got = 0;
	l->taken = 0;
}

/*
 * An eighth less after four looks, a millisecond apart, at a device that has not been emptied; a
 * 256th more after a millisecond in which it has: that is an eighth as fast, see the rule in
 * overload.h. One long gap between two looks is one look: what piles up while this lcore stalls is
 * no reason, but one that is put aside every few milliseconds has an overload like others. Nothing
 * is gained by refusing the few who are left when all others have been.
 */
static void move(struct port_load *l, uint64_t now_ns, bool full)
{
	const uint64_t steps = (now_ns - l->step_ns) / STEP_NS;
	/* Nobody has looked meanwhile: the device was silent when it is empty now, else we were. */
	const uint64_t silent = full ? 1 : RTE_MIN(steps, STEPS_MOST);

	if (steps == 0)
		return;
	l->step_ns = now_ns;
	if (!l->drained && ++l->full_steps < FULL_STEPS)
		return;
	if (l->drained) {
		for (uint64_t i = 0; i < silent; i++)
			l->part = RTE_MIN(l->part + l->part / 256 + 1, KVR_SOURCE_ALL);
	} else {
		l->lowered_ns = now_ns;
		if ((uint64_t)l->taken * FEW >= l->got)
			l->part -= l->part / 8;
	}
	look_anew(l);
	if (l->part == KVR_SOURCE_ALL && now_ns - l->lowered_ns >= OVER_NS) {
		l->overloaded = false;
		l->full_ns = 0;
	}
}

static void begins(struct port_load *l, uint64_t now_ns)
{
	l->overloaded = true;
	l->part = KVR_SOURCE_ALL;
	l->step_ns = now_ns;
	l->lowered_ns = now_ns;
	look_anew(l);
}

/*
 * What has piled up while this lcore stood still is not overload, as far as a ring is deep, nor is
 * a burst of frames that any ring holds. Gaps take back an eighth of what they are long: who leaves
 * some lest he be found out gains little.
 * @return whether it tells anything.
 */
static bool weigh(struct port_load *l, uint64_t now_ns, bool full)
{
	const uint64_t passed = now_ns - l->seen_ns;

	l->seen_ns = now_ns;
	if (unlikely(passed > STALL_NS) && !l->stalled) {
		l->stalled = true;
		l->excused = RING_BURSTS;
	}
	if (likely(!full)) {
		l->full_ns -= RTE_MIN(l->full_ns, passed / 8);
		l->stalled = false;
		l->excused = SMALL_BURSTS;
		return true;
	}
	if (l->excused > 0) {
		l->excused--;
		return false;
	}
	l->full_ns += RTE_MIN(passed, STALL_NS);
	return true;
}

void overload_seen(struct lcore *lc, struct port_load *l, uint32_t got, bool full)
{
	const uint64_t after_ns = lc->rt->conf.opt.overload_ms * UINT64_C(1000000);
	const bool tells = weigh(l, lc->now_ns, full);

	l->drained = l->drained || !full;
	if (likely(!l->overloaded)) {
		if (unlikely(l->full_ns >= after_ns))
			begins(l, lc->now_ns);
		return;
	}
	l->got += got;
	if (tells)
		move(l, lc->now_ns, full);
	else if (l->stalled)
		l->step_ns = lc->now_ns; /* and says nothing about how much can be let in */
}

/* Random to who sends it; the same for all frames of a message, but those of another window. So a
 * repetition has one of its own: a client waits for 20 ms at least, longer than a window. */
static uint32_t draw_of(const struct lcore *lc, const struct kvr_wire_hdr *h)
{
	const uint64_t window = lc->now_ns / KVR_SOURCE_WINDOW_NS;

	return (uint32_t)(kvr_mix64(kvr_mix64(h->id ^ lc->rt->seed) + h->source + window) >> 48);
}

bool overload_lets(struct lcore *lc, struct port_load *l, const struct kvr_source_table *t,
		   const struct kvr_source *s, const struct kvr_wire_hdr *h)
{
	if (!kvr_source_within_quota(t, s, l->part, draw_of(lc, h), lc->now_ns))
		return false;
	l->taken++;
	return true;
}
