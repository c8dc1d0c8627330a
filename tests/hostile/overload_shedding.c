/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Row 13: a flood against an ingress lcore, in a model of the lcore's time: a device ring of 4,096,
 * bursts of 32, a refusal for a third of what a decision takes. How much of the flood is let in
 * must settle at what the lcore has time for, and others must not notice.
 */
#include "kvr_test.h"

#include "ingress/overload.h"
#include "kvr_frame.h"

#define RING	 4096u
#define DECIDE	 1100u /* ns of a frame that is let in: 909,000/s */
#define REFUSE	 350u
#define STEP	 1000000u
#define SOURCES	 3u
#define FLOOD	 0
#define OTHER	 1 /* floods, too, or not at all */
#define HONEST	 2
#define ARRIVALS 64u /* in their turns: so many of each are of the three */

struct world {
	struct router rt;
	struct lcore lc;
	struct kvr_source_table *t;
	struct kvr_source *s[SOURCES];
	uint64_t clock_ns, due; /* due: nanoseconds of arrivals that are not in the ring */
	uint32_t each_ns;
	uint32_t ring;
	uint8_t who[ARRIVALS];
	uint64_t in, out; /* frames that have come and gone */
	uint64_t asked[SOURCES], taken[SOURCES], lost;
	uint64_t losing_ms, in_ms; /* milliseconds in which any were, the last of them */
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

static void pass(uint32_t ns)
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

static uint32_t frame_of(uint32_t source)
{
	struct kvr_wire_hdr h = {.source = source, .id = w.out};

	w.asked[source]++;
	kvr_source_count(w.t, w.s[source], w.lc.now_ns);
	if (w.lc.load[0].overloaded && !overload_lets(&w.lc, &w.lc.load[0], w.t, w.s[source], &h))
		return REFUSE;
	w.taken[source]++;
	return DECIDE;
}

/* One poll and what it brings. */
static void turn(void)
{
	const uint32_t got = RTE_MIN(w.ring, BURST);
	uint32_t ns = 100;

	w.lc.now_ns = w.clock_ns;
	w.ring -= got;
	for (uint32_t i = 0; i < got; i++, w.out++)
		ns += frame_of(w.who[w.out % ARRIVALS]);
	overload_seen(&w.lc, &w.lc.load[0], got, got == BURST);
	pass(ns);
}

static void run(uint32_t ms)
{
	const uint64_t end = w.clock_ns + ms * UINT64_C(1000000);

	while (w.clock_ns < end)
		turn();
}

/* The same, from nothing counted. */
static void measure(uint32_t ms)
{
	memset(w.asked, 0, sizeof(w.asked));
	memset(w.taken, 0, sizeof(w.taken));
	w.lost = 0;
	run(ms);
}

static void world_end(void)
{
	kvr_source_destroy(w.t);
}

/* What is let in of @p offered a second when every frame is at least refused. */
static uint64_t possible(uint64_t offered, uint32_t ms)
{
	return (UINT64_C(1000000000) - offered * REFUSE) / (DECIDE - REFUSE) * ms / 1000;
}

static void a_flood_that_can_be_refused_costs_others_nothing(uint32_t each_ns)
{
	const uint64_t offered = 1000000000 / each_ns;

	world_begin(each_ns, 0, 2);
	run(400); /* 100 until it is overload; an eighth less in four */
	CU_ASSERT_TRUE(w.lc.load[0].overloaded);
	CU_ASSERT_TRUE(w.lost > 0);
	measure(1000);
	CU_ASSERT_EQUAL(w.lost, 0);
	CU_ASSERT_EQUAL(w.taken[HONEST], w.asked[HONEST]);
	CU_ASSERT_TRUE(w.taken[HONEST] + w.taken[FLOOD] > possible(offered, 1000) * 85 / 100);
	world_end();
}

static void floods_that_can_be_refused(void)
{
	a_flood_that_can_be_refused_costs_others_nothing(1000);
	a_flood_that_can_be_refused_costs_others_nothing(700);
	a_flood_that_can_be_refused_costs_others_nothing(500);
}

/* More than can be refused: the ring loses anybody's frames, but nobody else's are refused. */
static void a_flood_that_cannot_be_refused_is_let_in_a_little(void)
{
	world_begin(200, 0, 1);
	run(400);
	measure(1000);
	CU_ASSERT_TRUE(w.lost > 0);
	CU_ASSERT_EQUAL(w.taken[HONEST], w.asked[HONEST]);
	CU_ASSERT_TRUE(w.taken[FLOOD] > w.asked[FLOOD] / 32);
	CU_ASSERT_TRUE(w.taken[FLOOD] < w.asked[FLOOD] / 8);
	world_end();
}

/* Whoever floods gets the same, one with a third of what the other asks for, too. */
static void two_floods_get_the_same(void)
{
	world_begin(500, 16, 2);
	run(400);
	measure(1000);
	CU_ASSERT_EQUAL(w.taken[HONEST], w.asked[HONEST]);
	CU_ASSERT_TRUE(w.taken[FLOOD] * 9 < w.taken[OTHER] * 10);
	CU_ASSERT_TRUE(w.taken[OTHER] * 9 < w.taken[FLOOD] * 10);
	world_end();
}

/* It is over a second after there has been enough time for everything, and not before: a gap in
 * the flood does not let it fill the ring again. */
static void it_is_over_when_there_is_time_for_everything(void)
{
	world_begin(500, 0, 1);
	run(1400);
	w.each_ns = 2000;
	run(20); /* a 256th more a millisecond */
	CU_ASSERT_TRUE(w.lc.load[0].part < KVR_SOURCE_ALL);
	run(480);
	CU_ASSERT_EQUAL(w.lc.load[0].part, KVR_SOURCE_ALL);
	CU_ASSERT_TRUE(w.lc.load[0].overloaded);
	measure(100);
	CU_ASSERT_EQUAL(w.taken[FLOOD], w.asked[FLOOD]);
	w.each_ns = 500;
	measure(20);
	CU_ASSERT_EQUAL(w.taken[HONEST], w.asked[HONEST]);
	w.each_ns = 2000;
	run(1500);
	CU_ASSERT_FALSE(w.lc.load[0].overloaded);
	world_end();
}

/* A lcore that has stalled has a full ring, and no overload. */
static void a_stall_is_no_overload(void)
{
	world_begin(1300, 0, 1);
	for (uint32_t i = 0; i < 20; i++) {
		run(50);
		pass(30 * STEP);
	}
	pass(150 * STEP); /* longer than overload_ms */
	measure(50);
	CU_ASSERT_FALSE(w.lc.load[0].overloaded);
	CU_ASSERT_EQUAL(w.taken[FLOOD], w.asked[FLOOD]);
	world_end();
}

/* Whatever has piled up: a stall says nothing about how much can be let in. */
static void a_stall_in_an_overload_changes_nothing(void)
{
	const struct port_load *l = &w.lc.load[0];

	world_begin(500, 0, 2);
	run(400);
	for (uint32_t i = 0; i < 40; i++) {
		const uint32_t part = l->part;

		pass(30 * STEP);
		turn();
		CU_ASSERT_TRUE(l->overloaded);
		CU_ASSERT_TRUE(l->part >= part && l->part <= part + part / 32 + 1);
		run(50 + i); /* what has piled up goes, and another moment comes */
	}
	world_end();
}

/* Half of what a source asks for is let in: which half? */
static bool verdict(uint64_t id, uint32_t frag_off)
{
	const struct kvr_wire_hdr h = {.source = FLOOD, .id = id, .frag_off = frag_off};

	return overload_lets(&w.lc, &w.lc.load[0], w.t, w.s[FLOOD], &h);
}

static void each_message_has_one_verdict_and_a_repetition_another(void)
{
	uint32_t in = 0, again = 0, other = 0;
	bool was[1000];

	world_begin(500, 0, 1);
	w.lc.now_ns = w.clock_ns;
	w.lc.load[0].part = KVR_SOURCE_ALL / 2;
	for (uint32_t i = 0; i < 1000; i++)
		kvr_source_count(w.t, w.s[FLOOD], w.lc.now_ns);
	for (uint32_t i = 0; i < 1000; i++) {
		in += was[i] = verdict(i, 0);
		CU_ASSERT_EQUAL(verdict(i, 1384), was[i]);
	}
	CU_ASSERT_TRUE(in > 400 && in < 600);
	w.lc.now_ns += KVR_SOURCE_WINDOW_NS;
	for (uint32_t i = 0; i < 1000; i++)
		again += verdict(i, 0) != was[i];
	CU_ASSERT_TRUE(again > 400 && again < 600);
	w.lc.now_ns -= KVR_SOURCE_WINDOW_NS;
	w.rt.seed++; /* nobody can know before */
	for (uint32_t i = 0; i < 1000; i++)
		other += verdict(i, 0) != was[i];
	CU_ASSERT_TRUE(other > 400 && other < 600);
	world_end();
}

/* What has piled up while the lcore stood still for long, with little time to spare for it. */
static void a_long_stall_is_no_overload(void)
{
	world_begin(1180, 0, 8);
	run(200);
	pass(2000 * STEP);
	measure(200);
	CU_ASSERT_FALSE(w.lc.load[0].overloaded);
	CU_ASSERT_EQUAL(w.taken[FLOOD], w.asked[FLOOD]);
	world_end();
}

/* A millisecond's frames that come at once, as long prompts do. */
static void bursts_are_no_overload(void)
{
	world_begin(1000000, 0, 1);
	for (uint32_t ms = 0; ms < 2000; ms++) {
		w.ring += 800;
		run(1);
	}
	CU_ASSERT_FALSE(w.lc.load[0].overloaded);
	CU_ASSERT_EQUAL(w.lost, 0);
	world_end();
}

/* A flood of @p on ms that pauses for @p off, again and again, has others lose no more than @p most
 * percent, at its beginnings. Not found out it is half of all. */
static void a_flood_with_pauses_is_found_out(uint32_t on, uint32_t off, uint32_t most)
{
	const uint64_t offered = 2000000; /* a second, each 500 ns */
	uint64_t lost = 0;

	world_begin(500, 0, 2);
	for (uint32_t ms = 0; ms < 2000; ms += on + off) {
		if (ms < 1000)
			w.lost = 0;
		w.each_ns = 500;
		run(on);
		w.each_ns = 16000;
		run(off);
		lost = w.lost;
	}
	CU_ASSERT_TRUE(w.lc.load[0].overloaded);
	CU_ASSERT_TRUE(lost <= offered * on / (on + off) * most / 100);
	CU_ASSERT_EQUAL(w.taken[HONEST], w.asked[HONEST]);
	world_end();
}

static void floods_with_pauses(void)
{
	a_flood_with_pauses_is_found_out(90, 5, 0);
	a_flood_with_pauses_is_found_out(90, 50, 12);
	a_flood_with_pauses_is_found_out(50, 100, 35);
	a_flood_with_pauses_is_found_out(30, 5, 0);
	a_flood_with_pauses_is_found_out(10, 8, 0);
}

/* ---- the rule of overload.h ---- */

#define RULE_MS 2000u

/* What was counted in the second half, of which @p most percent lost frames. */
static void rule_counts(uint64_t begun_ns, uint32_t most, bool found_out)
{
	const uint64_t ms = (w.clock_ns - begun_ns) / STEP;

	CU_ASSERT_TRUE(ms >= RULE_MS);
	CU_ASSERT_TRUE(w.losing_ms * 100 <= ms * most);
	CU_ASSERT_EQUAL(w.lc.load[0].overloaded, found_out);
	CU_ASSERT_EQUAL(w.taken[HONEST], w.asked[HONEST]);
}

/* A flood that knows how near it is to be found out: all that it can send, as long as it is not,
 * what is in the ring included; then little, until @p on ms of it are forgotten. */
static void just_below(uint32_t each_ns, uint32_t on)
{
	const struct port_load *l = &w.lc.load[0];
	const uint64_t most = 94 * STEP; /* of 100; a full ring takes 5 */
	uint64_t begun_ns = 0;

	world_begin(each_ns, 0, 2);
	for (uint32_t half = 0; half < 2; half++) {
		begun_ns = w.clock_ns;
		w.losing_ms = 0;
		while (w.clock_ns - begun_ns < RULE_MS * STEP) {
			w.each_ns = each_ns;
			while (l->full_ns < most)
				turn();
			w.each_ns = 16000;
			while (l->full_ns > most - on * STEP)
				turn();
		}
	}
	rule_counts(begun_ns, 14, false);
	CU_ASSERT_TRUE(w.losing_ms * 100 > (w.clock_ns - begun_ns) / STEP * 5); /* it gains that */
	world_end();
}

/* One that is found out, goes for @p off ms and comes again. */
static void comes_and_goes(uint32_t on, uint32_t off)
{
	uint64_t begun_ns = 0;

	world_begin(500, 0, 2);
	run(150);
	for (uint32_t half = 0; half < 2; half++) {
		begun_ns = w.clock_ns;
		w.losing_ms = 0;
		while (w.clock_ns - begun_ns < RULE_MS * STEP) {
			w.each_ns = 500;
			run(on);
			w.each_ns = 16000;
			run(off);
		}
	}
	rule_counts(begun_ns, 14, true);
	world_end();
}

static void floods_just_below_the_threshold(void)
{
	just_below(500, 80);
	just_below(500, 40);
	just_below(500, 10);
	just_below(400, 40);
}

static void floods_that_come_and_go(void)
{
	comes_and_goes(10, 26);
	comes_and_goes(20, 26);
	comes_and_goes(30, 50);
	comes_and_goes(30, 150);
	comes_and_goes(60, 150);
	comes_and_goes(110, 50);
	comes_and_goes(110, 300);
}

/* Just less than it takes, for long: the ring fills now and then, and all are served. */
static void what_there_is_time_for_is_no_overload(void)
{
	world_begin(1120, 0, 2);
	run(5000);
	CU_ASSERT_FALSE(w.lc.load[0].overloaded);
	CU_ASSERT_EQUAL(w.lost, 0);
	CU_ASSERT_EQUAL(w.taken[FLOOD], w.asked[FLOOD]);
	world_end();
}

/* An lcore that shares its CPU is put aside every few milliseconds: its overload is one, too. */
static void an_overload_is_one_where_cpus_are_shared(uint32_t on, uint32_t off)
{
	world_begin(2000, 0, 2);
	for (uint32_t ms = 0; ms < 1500; ms += on + off) {
		if (ms < 1000)
			w.asked[FLOOD] = w.taken[FLOOD] = w.asked[HONEST] = w.taken[HONEST] = 0;
		run(on);
		pass(off * STEP);
	}
	CU_ASSERT_TRUE(w.lc.load[0].overloaded);
	CU_ASSERT_EQUAL(w.taken[HONEST], w.asked[HONEST]);
	CU_ASSERT_TRUE(w.lc.load[0].part < KVR_SOURCE_ALL);
	world_end();
}

/* An lcore that sleeps as there is nothing to do looks once afterwards: all of that time counts. */
static void sleep_takes_back_what_was_lowered(void)
{
	const struct port_load *l = &w.lc.load[0];
	uint32_t part;

	world_begin(500, 0, 2);
	run(400);
	w.each_ns = 2000000000; /* nobody sends any more */
	run(20);
	CU_ASSERT_EQUAL(w.ring, 0);
	part = l->part;
	CU_ASSERT_TRUE(l->overloaded && part < KVR_SOURCE_ALL / 4);
	pass(300 * STEP);
	turn();
	CU_ASSERT_TRUE(l->part > 2 * part);
	pass(1900 * STEP);
	turn();
	turn();
	CU_ASSERT_FALSE(l->overloaded);
	world_end();
}

static void lcores_that_share_a_cpu(void)
{
	an_overload_is_one_where_cpus_are_shared(3, 3);
	an_overload_is_one_where_cpus_are_shared(3, 5);
	an_overload_is_one_where_cpus_are_shared(1, 2);
}

int main(void)
{
	CU_TestInfo tests[] = {{"refused", floods_that_can_be_refused},
			       {"not refused", a_flood_that_cannot_be_refused_is_let_in_a_little},
			       {"two", two_floods_get_the_same},
			       {"over", it_is_over_when_there_is_time_for_everything},
			       {"stall", a_stall_is_no_overload},
			       {"stall in it", a_stall_in_an_overload_changes_nothing},
			       {"verdict", each_message_has_one_verdict_and_a_repetition_another},
			       {"long stall", a_long_stall_is_no_overload},
			       {"bursts", bursts_are_no_overload},
			       {"pauses", floods_with_pauses},
			       {"just below", floods_just_below_the_threshold},
			       {"come and go", floods_that_come_and_go},
			       {"just less", what_there_is_time_for_is_no_overload},
			       {"shared CPU", lcores_that_share_a_cpu},
			       {"sleep", sleep_takes_back_what_was_lowered},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("overload_shedding", tests);
}
