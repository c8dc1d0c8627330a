/* SPDX-License-Identifier: BSD-3-Clause */
#include "ingress/overload.h"

#include "kvr_rand.h"

#define STEP_NS	   UINT64_C(1000000)
#define FULL_STEPS 4u /* a device ring holds several milliseconds of a flood */
/* Longest silence in milliseconds that is made up for: more than `part` needs from nothing to all.
 */
#define STEPS_MOST 2048u
/* An overload is over when everything has been admitted and the device emptied for this long.
 * Floods pause for less. */
#define OVER_NS UINT64_C(1000000000)
/* A turn takes less, unless the machine preempted the lcore. */
#define STALL_NS UINT64_C(4000000)
/* Every ring holds this many bursts. */
#define SMALL_BURSTS 32u
/* If fewer than one in FEW frames of the device is an admitted request, other frames cause the
 * overload. */
#define FEW 16u

/* Reset the observations for the next decision about `part`. */
static void look_anew(struct port_load *l)
{
	l->drained = false;
	l->full_steps = 0;
	l->got = 0;
	l->taken = 0;
}

/*
 * Adjust `part`: 1/8 less after four steps of a millisecond in which the device was not emptied,
 * 1/256 more after a millisecond in which it was, which is 1/8 of the speed (see overload.h). A
 * long gap between two polls is one step, because frames that accumulate while this lcore stalls
 * are no overload, but regular preemption every few milliseconds is. When few requests are left
 * among the frames, shedding them gains nothing.
 */
static void move(struct port_load *l, uint64_t now_ns, bool full)
{
	const uint64_t steps = (now_ns - l->step_ns) / STEP_NS;
	/* No poll in between: the device was silent if it is empty now, otherwise the lcore
	 * stalled. */
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
 * Frames that accumulated during a stall are not overload up to the depth of a ring, nor is a burst
 * that any ring holds. Gaps count back 1/8 of their length, so that a flood gains little from
 * pauses meant to avoid detection. @return whether the burst says anything about the load.
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
		l->step_ns = lc->now_ns; /* no information about the rate that can be admitted */
}

/* A number that senders cannot predict, the same for all frames of a message within a window. A
 * retransmission gets another one, because clients wait at least 20 ms, longer than a window. */
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
