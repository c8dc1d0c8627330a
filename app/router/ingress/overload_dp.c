/* SPDX-License-Identifier: BSD-3-Clause */
/* Detection of overload, and the share of each source during it: overload.h has the rule. */
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
static void reset_steps(struct port_load *load)
{
	load->drained = false;
	load->full_steps = 0;
	load->got = 0;
	load->taken = 0;
}

/*
 * Adjust `part`: 1/8 less after four steps of a millisecond in which the device was not emptied,
 * 1/256 more after a millisecond in which it was, which is 1/8 of the speed (see overload.h). A
 * long gap between two polls is one step, because frames that accumulate while this lcore stalls
 * are no overload, but regular preemption every few milliseconds is. When few requests are left
 * among the frames, shedding them gains nothing.
 */
static void adjust_part(struct port_load *load, uint64_t now_ns, bool full)
{
	const uint64_t steps = (now_ns - load->step_ns) / STEP_NS;
	/* No poll in between: the device was silent if it is empty now, otherwise the lcore
	 * stalled. */
	const uint64_t silent = full ? 1 : RTE_MIN(steps, STEPS_MOST);

	if (steps == 0)
		return;
	load->step_ns = now_ns;
	if (!load->drained && ++load->full_steps < FULL_STEPS)
		return;
	if (load->drained) {
		for (uint64_t i = 0; i < silent; i++)
			load->part = RTE_MIN(load->part + load->part / 256 + 1, KVR_SOURCE_ALL);
	} else {
		load->lowered_ns = now_ns;
		if ((uint64_t)load->taken * FEW >= load->got)
			load->part -= load->part / 8;
	}
	reset_steps(load);
	if (load->part == KVR_SOURCE_ALL && now_ns - load->lowered_ns >= OVER_NS) {
		load->overloaded = false;
		load->full_ns = 0;
	}
}

static void begin_overload(struct port_load *load, uint64_t now_ns)
{
	load->overloaded = true;
	load->part = KVR_SOURCE_ALL;
	load->step_ns = now_ns;
	load->lowered_ns = now_ns;
	reset_steps(load);
}

/*
 * Frames that accumulated during a stall are not overload up to the depth of a ring, nor is a burst
 * that any ring holds. Gaps count back 1/8 of their length, so that a flood gains little from
 * pauses meant to avoid detection. @return whether the burst says anything about the load.
 */
static bool weigh_burst(struct port_load *load, uint64_t now_ns, bool full)
{
	const uint64_t passed = now_ns - load->seen_ns;

	load->seen_ns = now_ns;
	if (unlikely(passed > STALL_NS) && !load->stalled) {
		load->stalled = true;
		load->excused = RING_BURSTS;
	}
	if (likely(!full)) {
		load->full_ns -= RTE_MIN(load->full_ns, passed / 8);
		load->stalled = false;
		load->excused = SMALL_BURSTS;
		return true;
	}
	if (load->excused > 0) {
		load->excused--;
		return false;
	}
	load->full_ns += RTE_MIN(passed, STALL_NS);
	return true;
}

void overload_seen(struct lcore *lc, struct port_load *load, uint32_t got, bool full)
{
	const uint64_t after_ns = lc->rt->conf.opt.overload_ms * UINT64_C(1000000);
	const bool tells = weigh_burst(load, lc->now_ns, full);

	load->drained = load->drained || !full;
	if (likely(!load->overloaded)) {
		if (unlikely(load->full_ns >= after_ns))
			begin_overload(load, lc->now_ns);
		return;
	}
	load->got += got;
	if (tells)
		adjust_part(load, lc->now_ns, full);
	else if (load->stalled)
		load->step_ns = lc->now_ns; /* no information about the rate that can be admitted */
}

/* A number that senders cannot predict, the same for all frames of a message within a window. A
 * retransmission gets another one, because clients wait at least 20 ms, longer than a window. */
static uint32_t draw_of(const struct lcore *lc, const struct kvr_wire_hdr *hdr)
{
	const uint64_t window = lc->now_ns / KVR_SOURCE_WINDOW_NS;

	return (uint32_t)(kvr_mix64(kvr_mix64(hdr->id ^ lc->rt->seed) + hdr->source + window) >>
			  48);
}

bool overload_lets(struct lcore *lc, struct port_load *load, const struct kvr_source_table *t,
		   const struct kvr_source *source, const struct kvr_wire_hdr *hdr)
{
	if (!kvr_source_within_quota(t, source, load->part, draw_of(lc, hdr), lc->now_ns))
		return false;
	load->taken++;
	return true;
}
