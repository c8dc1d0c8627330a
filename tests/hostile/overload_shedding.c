/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A flood against an ingress lcore, in a model of the lcore's time: a device ring of 4,096,
 * bursts of 32, and a rejection that costs a third of a decision. The admitted part of the flood
 * must settle at the capacity of the lcore, and other sources must not be affected.
 */
#include "kvr_test.h"

#include "ingress/overload.h"
#include "kvr_frame.h"

#define RING	 4096u
#define DECIDE	 1100u /* ns of an admitted frame: 909,000/s */
#define REFUSE	 350u
#define STEP	 1000000u
#define SOURCES	 3u
#define FLOOD	 0
#define OTHER	 1 /* floods, too, or sends nothing */
#define HONEST	 2
#define ARRIVALS 64u /* arrivals that are shared among the three sources in turn */

struct world {
	struct router rt;
	struct lcore lc;
	struct kvr_source_table *t;
	struct kvr_source *s[SOURCES];
	uint64_t clock_ns, due; /* due: ns of arrivals that are not in the ring */
	uint32_t each_ns;
	uint32_t ring;
	uint8_t who[ARRIVALS];
	uint64_t in, out; /* frames that arrived and left */
	uint64_t asked[SOURCES], taken[SOURCES], lost;
	uint64_t losing_ms, in_ms; /* milliseconds with losses, the last of them */
};

static struct world w;

static void world_begin(uint32_t each_ns, uint32_t other, uint32_t honest)
{
	memset(&w, 0, sizeof(w));
	w.rt.conf.opt.overload_ms = 100;
	w.rt.seed = 7;
	w.lc.rt = &w.rt;
	w.clock_ns = UINT64_C(1000000000);
	w.each_ns = each_ns;
	w.t = kvr_source_create(64, 5);
	CU_ASSERT_PTR_NOT_NULL_FATAL(w.t);
	for (uint32_t i = 0; i < ARRIVALS; i++)
		w.who[i * 37 % ARRIVALS] = i < honest ? HONEST : i < honest + other ? OTHER : FLOOD;
	for (uint32_t i = 0; i < SOURCES; i++)
		w.s[i] = kvr_source_get(w.t, UINT64_C(0xffff0a000001) + i, w.clock_ns);
}

static void pass_ns(uint32_t ns)
{
	uint64_t n;

	w.clock_ns += ns;
	w.due += ns;
	n = w.due / w.each_ns;
	w.due %= w.each_ns;
	if (w.ring + n > RING) {
		w.lost += w.ring + n - RING;
		w.losing_ms += w.clock_ns / STEP != w.in_ms;
		w.in_ms = w.clock_ns / STEP;
		n = RING - w.ring;
	}
	w.ring += (uint32_t)n;
}

static uint32_t make_frame_of(uint32_t source)
{
	struct kvr_wire_hdr h = {.source = source, .id = w.out};

	w.asked[source]++;
	kvr_source_count(w.t, w.s[source], w.lc.now_ns);
	if (w.lc.load[0].overloaded && !overload_lets(&w.lc, &w.lc.load[0], w.t, w.s[source], &h))
		return REFUSE;
	w.taken[source]++;
	return DECIDE;
}

/* One poll and its frames. */
static void poll_once(void)
{
	const uint32_t got = RTE_MIN(w.ring, BURST);
	uint32_t ns = 100;

	w.lc.now_ns = w.clock_ns;
	w.ring -= got;
	for (uint32_t i = 0; i < got; i++, w.out++)
		ns += make_frame_of(w.who[w.out % ARRIVALS]);
	overload_seen(&w.lc, &w.lc.load[0], got, got == BURST);
	pass_ns(ns);
}

static void run_ms(uint32_t ms)
{
	const uint64_t end = w.clock_ns + ms * UINT64_C(1000000);

	while (w.clock_ns < end)
		poll_once();
}

/* The same, with counters cleared first. */
static void measure_ms(uint32_t ms)
{
	memset(w.asked, 0, sizeof(w.asked));
	memset(w.taken, 0, sizeof(w.taken));
	w.lost = 0;
	run_ms(ms);
}

static void world_end(void)
{
	kvr_source_destroy(w.t);
}

/* Frames admitted of @p offered per second when each frame is at least rejected. */
static uint64_t count_possible(uint64_t offered, uint32_t ms)
{
	return (UINT64_C(1000000000) - offered * REFUSE) / (DECIDE - REFUSE) * ms / 1000;
}

static void check_rejectable_flood(uint32_t each_ns)
{
	const uint64_t offered = 1000000000 / each_ns;

	world_begin(each_ns, 0, 2);
	run_ms(400); /* 100 until overload is detected, then an eighth less every four */
	CU_ASSERT_TRUE(w.lc.load[0].overloaded);
	CU_ASSERT_TRUE(w.lost > 0);
	measure_ms(1000);
	CU_ASSERT_EQUAL(w.lost, 0);
	CU_ASSERT_EQUAL(w.taken[HONEST], w.asked[HONEST]);
	CU_ASSERT_TRUE(w.taken[HONEST] + w.taken[FLOOD] > count_possible(offered, 1000) * 85 / 100);
	world_end();
}

static void a_rejectable_flood_costs_others_nothing(void)
{
	check_rejectable_flood(1000);
	check_rejectable_flood(700);
	check_rejectable_flood(500);
}

/*
 * More than can be rejected: the ring loses frames of all sources, but no frames of others are
 * rejected.
 */
static void an_unrejectable_flood_is_admitted_in_part(void)
{
	world_begin(200, 0, 1);
	run_ms(400);
	measure_ms(1000);
	CU_ASSERT_TRUE(w.lost > 0);
	CU_ASSERT_EQUAL(w.taken[HONEST], w.asked[HONEST]);
	CU_ASSERT_TRUE(w.taken[FLOOD] > w.asked[FLOOD] / 32);
	CU_ASSERT_TRUE(w.taken[FLOOD] < w.asked[FLOOD] / 8);
	world_end();
}

/* Two floods get the same, even if one asks for a third of the other. */
static void two_floods_get_the_same(void)
{
	world_begin(500, 16, 2);
	run_ms(400);
	measure_ms(1000);
	CU_ASSERT_EQUAL(w.taken[HONEST], w.asked[HONEST]);
	CU_ASSERT_TRUE(w.taken[FLOOD] * 9 < w.taken[OTHER] * 10);
	CU_ASSERT_TRUE(w.taken[OTHER] * 9 < w.taken[FLOOD] * 10);
	world_end();
}

/*
 * Overload ends a second after the lcore has had time for everything, and not before: a pause of
 * the flood does not let it fill the ring again.
 */
static void overload_ends_when_there_is_time_for_everything(void)
{
	world_begin(500, 0, 1);
	run_ms(1400);
	w.each_ns = 2000;
	run_ms(20); /* a 256th more per millisecond */
	CU_ASSERT_TRUE(w.lc.load[0].part < KVR_SOURCE_ALL);
	run_ms(480);
	CU_ASSERT_EQUAL(w.lc.load[0].part, KVR_SOURCE_ALL);
	CU_ASSERT_TRUE(w.lc.load[0].overloaded);
	measure_ms(100);
	CU_ASSERT_EQUAL(w.taken[FLOOD], w.asked[FLOOD]);
	w.each_ns = 500;
	measure_ms(20);
	CU_ASSERT_EQUAL(w.taken[HONEST], w.asked[HONEST]);
	w.each_ns = 2000;
	run_ms(1500);
	CU_ASSERT_FALSE(w.lc.load[0].overloaded);
	world_end();
}

/* An lcore that has stalled has a full ring, and no overload. */
static void a_stall_is_not_an_overload(void)
{
	world_begin(1300, 0, 1);
	for (uint32_t i = 0; i < 20; i++) {
		run_ms(50);
		pass_ns(30 * STEP);
	}
	pass_ns(150 * STEP); /* longer than overload_ms */
	measure_ms(50);
	CU_ASSERT_FALSE(w.lc.load[0].overloaded);
	CU_ASSERT_EQUAL(w.taken[FLOOD], w.asked[FLOOD]);
	world_end();
}

/* A backlog after a stall does not change how much is admitted. */
static void a_stall_in_an_overload_changes_nothing(void)
{
	const struct port_load *l = &w.lc.load[0];

	world_begin(500, 0, 2);
	run_ms(400);
	for (uint32_t i = 0; i < 40; i++) {
		const uint32_t part = l->part;

		pass_ns(30 * STEP);
		poll_once();
		CU_ASSERT_TRUE(l->overloaded);
		CU_ASSERT_TRUE(l->part >= part && l->part <= part + part / 32 + 1);
		run_ms(50 + i); /* the backlog is served, and the phase shifts */
	}
	world_end();
}

/* Half of a source's requests are admitted: which half? */
static bool get_verdict(uint64_t id, uint32_t frag_off)
{
	const struct kvr_wire_hdr h = {.source = FLOOD, .id = id, .frag_off = frag_off};

	return overload_lets(&w.lc, &w.lc.load[0], w.t, w.s[FLOOD], &h);
}

static void each_message_has_one_verdict_and_a_retransmit_another(void)
{
	uint32_t in = 0, again = 0, other = 0;
	bool was[1000];

	world_begin(500, 0, 1);
	w.lc.now_ns = w.clock_ns;
	w.lc.load[0].part = KVR_SOURCE_ALL / 2;
	for (uint32_t i = 0; i < 1000; i++)
		kvr_source_count(w.t, w.s[FLOOD], w.lc.now_ns);
	for (uint32_t i = 0; i < 1000; i++) {
		in += was[i] = get_verdict(i, 0);
		CU_ASSERT_EQUAL(get_verdict(i, 1384), was[i]);
	}
	CU_ASSERT_TRUE(in > 400 && in < 600);
	w.lc.now_ns += KVR_SOURCE_WINDOW_NS;
	for (uint32_t i = 0; i < 1000; i++)
		again += get_verdict(i, 0) != was[i];
	CU_ASSERT_TRUE(again > 400 && again < 600);
	w.lc.now_ns -= KVR_SOURCE_WINDOW_NS;
	w.rt.seed++; /* unpredictable for the source */
	for (uint32_t i = 0; i < 1000; i++)
		other += get_verdict(i, 0) != was[i];
	CU_ASSERT_TRUE(other > 400 && other < 600);
	world_end();
}

/* A backlog after a long stall, with little spare time to serve it. */
static void a_long_stall_is_not_an_overload(void)
{
	world_begin(1180, 0, 8);
	run_ms(200);
	pass_ns(2000 * STEP);
	measure_ms(200);
	CU_ASSERT_FALSE(w.lc.load[0].overloaded);
	CU_ASSERT_EQUAL(w.taken[FLOOD], w.asked[FLOOD]);
	world_end();
}

/* A millisecond's frames that arrive at once, as those of long prompts do. */
static void bursts_are_not_an_overload(void)
{
	world_begin(1000000, 0, 1);
	for (uint32_t ms = 0; ms < 2000; ms++) {
		w.ring += 800;
		run_ms(1);
	}
	CU_ASSERT_FALSE(w.lc.load[0].overloaded);
	CU_ASSERT_EQUAL(w.lost, 0);
	world_end();
}

/*
 * A flood of @p on ms with pauses of @p off ms: others lose at most @p most percent, at the
 * beginning of each. Undetected it would cost half of all.
 */
static void check_flood_with_pauses(uint32_t on, uint32_t off, uint32_t most)
{
	const uint64_t offered = 2000000; /* per second, one each 500 ns */
	uint64_t lost = 0;

	world_begin(500, 0, 2);
	for (uint32_t ms = 0; ms < 2000; ms += on + off) {
		if (ms < 1000)
			w.lost = 0;
		w.each_ns = 500;
		run_ms(on);
		w.each_ns = 16000;
		run_ms(off);
		lost = w.lost;
	}
	CU_ASSERT_TRUE(w.lc.load[0].overloaded);
	CU_ASSERT_TRUE(lost <= offered * on / (on + off) * most / 100);
	CU_ASSERT_EQUAL(w.taken[HONEST], w.asked[HONEST]);
	world_end();
}

static void floods_with_pauses_are_detected(void)
{
	check_flood_with_pauses(90, 5, 0);
	check_flood_with_pauses(90, 50, 12);
	check_flood_with_pauses(50, 100, 35);
	check_flood_with_pauses(30, 5, 0);
	check_flood_with_pauses(10, 8, 0);
}

/* ---- the rule of overload.h ---- */

#define RULE_MS 2000u

/* Counts of the second half, in which @p most percent of the milliseconds had losses. */
static void check_rule_counts(uint64_t begun_ns, uint32_t most, bool found_out)
{
	const uint64_t ms = (w.clock_ns - begun_ns) / STEP;

	CU_ASSERT_TRUE(ms >= RULE_MS);
	CU_ASSERT_TRUE(w.losing_ms * 100 <= ms * most);
	CU_ASSERT_EQUAL(w.lc.load[0].overloaded, found_out);
	CU_ASSERT_EQUAL(w.taken[HONEST], w.asked[HONEST]);
}

/*
 * A flood that knows the threshold of detection: it sends as much as it can below it, the content
 * of the ring included, then little until @p on ms of it are forgotten.
 */
static void flood_below_threshold(uint32_t each_ns, uint32_t on)
{
	const struct port_load *l = &w.lc.load[0];
	const uint64_t most = 94 * STEP; /* of 100; a full ring causes 5 */
	uint64_t begun_ns = 0;

	world_begin(each_ns, 0, 2);
	for (uint32_t half = 0; half < 2; half++) {
		begun_ns = w.clock_ns;
		w.losing_ms = 0;
		while (w.clock_ns - begun_ns < RULE_MS * STEP) {
			w.each_ns = each_ns;
			while (l->full_ns < most)
				poll_once();
			w.each_ns = 16000;
			while (l->full_ns > most - on * STEP)
				poll_once();
		}
	}
	check_rule_counts(begun_ns, 14, false);
	CU_ASSERT_TRUE(w.losing_ms * 100 >
		       (w.clock_ns - begun_ns) / STEP * 5); /* the gain of the flood */
	world_end();
}

/* A flood that is detected, pauses for @p off ms and starts again. */
static void flood_again_after(uint32_t on, uint32_t off)
{
	uint64_t begun_ns = 0;

	world_begin(500, 0, 2);
	run_ms(150);
	for (uint32_t half = 0; half < 2; half++) {
		begun_ns = w.clock_ns;
		w.losing_ms = 0;
		while (w.clock_ns - begun_ns < RULE_MS * STEP) {
			w.each_ns = 500;
			run_ms(on);
			w.each_ns = 16000;
			run_ms(off);
		}
	}
	check_rule_counts(begun_ns, 14, true);
	world_end();
}

static void floods_below_the_threshold_gain_little(void)
{
	flood_below_threshold(500, 80);
	flood_below_threshold(500, 40);
	flood_below_threshold(500, 10);
	flood_below_threshold(400, 40);
}

static void repeated_floods_are_detected(void)
{
	flood_again_after(10, 26);
	flood_again_after(20, 26);
	flood_again_after(30, 50);
	flood_again_after(30, 150);
	flood_again_after(60, 150);
	flood_again_after(110, 50);
	flood_again_after(110, 300);
}

/* Just below capacity, for a long time: the ring fills now and then, and all frames are served. */
static void load_below_capacity_is_not_an_overload(void)
{
	world_begin(1120, 0, 2);
	run_ms(5000);
	CU_ASSERT_FALSE(w.lc.load[0].overloaded);
	CU_ASSERT_EQUAL(w.lost, 0);
	CU_ASSERT_EQUAL(w.taken[FLOOD], w.asked[FLOOD]);
	world_end();
}

/*
 * An lcore that shares its CPU is descheduled every few milliseconds: its overload is detected,
 * too.
 */
static void overload_is_detected_on_a_shared_cpu(uint32_t on, uint32_t off)
{
	world_begin(2000, 0, 2);
	for (uint32_t ms = 0; ms < 1500; ms += on + off) {
		if (ms < 1000)
			w.asked[FLOOD] = w.taken[FLOOD] = w.asked[HONEST] = w.taken[HONEST] = 0;
		run_ms(on);
		pass_ns(off * STEP);
	}
	CU_ASSERT_TRUE(w.lc.load[0].overloaded);
	CU_ASSERT_EQUAL(w.taken[HONEST], w.asked[HONEST]);
	CU_ASSERT_TRUE(w.lc.load[0].part < KVR_SOURCE_ALL);
	world_end();
}

/* An idle lcore checks once after its sleep: the whole sleep counts. */
static void sleep_restores_admission(void)
{
	const struct port_load *l = &w.lc.load[0];
	uint32_t part;

	world_begin(500, 0, 2);
	run_ms(400);
	w.each_ns = 2000000000; /* no source sends any more */
	run_ms(20);
	CU_ASSERT_EQUAL(w.ring, 0);
	part = l->part;
	CU_ASSERT_TRUE(l->overloaded && part < KVR_SOURCE_ALL / 4);
	pass_ns(300 * STEP);
	poll_once();
	CU_ASSERT_TRUE(l->part > 2 * part);
	pass_ns(1900 * STEP);
	poll_once();
	poll_once();
	CU_ASSERT_FALSE(l->overloaded);
	world_end();
}

static void lcores_that_share_a_cpu(void)
{
	overload_is_detected_on_a_shared_cpu(3, 3);
	overload_is_detected_on_a_shared_cpu(3, 5);
	overload_is_detected_on_a_shared_cpu(1, 2);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_rejectable_flood_costs_others_nothing),
			       KVR_CASE(an_unrejectable_flood_is_admitted_in_part),
			       KVR_CASE(two_floods_get_the_same),
			       KVR_CASE(overload_ends_when_there_is_time_for_everything),
			       KVR_CASE(a_stall_is_not_an_overload),
			       KVR_CASE(a_stall_in_an_overload_changes_nothing),
			       KVR_CASE(each_message_has_one_verdict_and_a_retransmit_another),
			       KVR_CASE(a_long_stall_is_not_an_overload),
			       KVR_CASE(bursts_are_not_an_overload),
			       KVR_CASE(floods_with_pauses_are_detected),
			       KVR_CASE(floods_below_the_threshold_gain_little),
			       KVR_CASE(repeated_floods_are_detected),
			       KVR_CASE(load_below_capacity_is_not_an_overload),
			       KVR_CASE(lcores_that_share_a_cpu),
			       KVR_CASE(sleep_restores_admission),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("overload_shedding", tests);
}
