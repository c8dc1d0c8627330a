/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every leg x moment x cause: all orders of events that queues, workers and the client can
 * produce are played against a model of what is booked, waits, runs and has been said.
 */
#include "kvr_legs.h"

#include "kvr_test.h"
#include <inttypes.h>
#include <stdio.h>

enum where { NOWHERE, QUEUE, BOOKED };

struct world {
	struct kvr_legs legs;
	enum where prefill, decode;
	bool undecided;	   /* the prefill leg must be decided by its pool */
	bool decode_ready; /* the decode leg must be decided by its pool */
	bool decode_sent;  /* a worker runs it and has not been told to stop */
	bool cancelled;
	uint32_t told;	  /* last words to the client */
	uint32_t started; /* how often */
};

static uint64_t n_orders, n_events;

/* Do what the machine asks for; false when it cannot be done. */
static bool obey(struct world *w, uint32_t todo)
{
	if (todo & KVR_LEGS_PREFILL_LEAVE) {
		if (w->prefill != QUEUE)
			return false;
		w->prefill = NOWHERE;
	}
	if (todo & KVR_LEGS_PREFILL_END)
		w->prefill = NOWHERE; /* a booking that its worker took along is gone already */
	if (todo & KVR_LEGS_DECODE_LEAVE) {
		if (w->decode != QUEUE)
			return false;
		w->decode = NOWHERE;
	}
	if (todo & (KVR_LEGS_DECODE_END | KVR_LEGS_DECODE_ABORT)) {
		if (w->decode != BOOKED)
			return false;
		w->decode = NOWHERE;
		w->decode_sent = false;
	}
	if (todo & KVR_LEGS_ROUTE_DECODE) {
		if (w->decode != NOWHERE || w->decode_ready)
			return false;
		w->decode_ready = true;
	}
	if (todo & KVR_LEGS_START_OVER) {
		if (w->cancelled || w->prefill != NOWHERE || w->decode != NOWHERE)
			return false;
		w->undecided = true;
		w->started++;
	}
	if (todo & KVR_LEGS_REJECT)
		w->told++;
	return true;
}

static bool at_rest(const struct world *w)
{
	return w->prefill == NOWHERE && w->decode == NOWHERE && !w->undecided && !w->decode_ready;
}

static void play(struct world w);

/* One more event; the orders that go on from there. */
static void after(struct world w, enum kvr_legs_event e)
{
	uint32_t todo = kvr_legs_step(&w.legs, e);

	n_events++;
	if (!obey(&w, todo)) {
		CU_FAIL("impossible action");
		return;
	}
	CU_ASSERT(w.told <= 1);
	CU_ASSERT(!(w.cancelled && w.told > 0));
	CU_ASSERT(w.started <= 2); /* once, and once more */
	CU_ASSERT_EQUAL(kvr_legs_over(&w.legs), at_rest(&w));
	/* Late copies of anything change nothing. */
	if (kvr_legs_over(&w.legs)) {
		CU_ASSERT_EQUAL(kvr_legs_step(&w.legs, KVR_LEGS_PREFILL_DONE), 0);
		CU_ASSERT_EQUAL(kvr_legs_step(&w.legs, KVR_LEGS_PREFILL_FAILED), 0);
		CU_ASSERT_EQUAL(kvr_legs_step(&w.legs, KVR_LEGS_DECODE_DONE), 0);
		CU_ASSERT_EQUAL(kvr_legs_step(&w.legs, KVR_LEGS_DECODE_FAILED), 0);
		CU_ASSERT_EQUAL(kvr_legs_step(&w.legs, KVR_LEGS_CANCEL), 0);
	}
	play(w);
}

static void decide_prefill(struct world w)
{
	struct world v = w;

	v.undecided = false;
	v.decode_ready = true; /* bypassed: the decode pool does both */
	play(v);
	v.decode_ready = false;
	after(v, KVR_LEGS_PREFILL_FAILED); /* refused by its pool */
	v.prefill = QUEUE;
	after(v, KVR_LEGS_PREFILL_WAITS);
	for (int bootstrap = 0; bootstrap < 2; bootstrap++) {
		v.prefill = BOOKED;
		v.legs.bootstrap = bootstrap;
		after(v, KVR_LEGS_PREFILL_LIVE);
	}
}

static void decide_decode(struct world w, bool waited)
{
	struct world v = w;

	v.decode_ready = false;
	v.decode = NOWHERE;
	after(v, KVR_LEGS_DECODE_REFUSED);
	v.decode = BOOKED;
	v.decode_sent = true;
	after(v, KVR_LEGS_DECODE_LIVE);
	v.decode_sent = false;
	if (v.legs.prefill == KVR_LEG_ENDED)
		after(v, KVR_LEGS_RESULT_LOST);
	if (waited)
		return;
	v.decode = QUEUE;
	after(v, KVR_LEGS_DECODE_WAITS);
}

static void prefill_moves(struct world w)
{
	struct world v = w;

	if (w.prefill == QUEUE) {
		for (int bootstrap = 0; bootstrap < 2; bootstrap++) {
			v.prefill = BOOKED;
			v.legs.bootstrap = bootstrap;
			after(v, KVR_LEGS_PREFILL_LIVE);
		}
		v.prefill = NOWHERE; /* admission failed */
		after(v, KVR_LEGS_PREFILL_FAILED);
	} else if (w.prefill == BOOKED) {
		after(w, KVR_LEGS_PREFILL_DONE);
		after(w, KVR_LEGS_PREFILL_FAILED);
	}
}

static void decode_moves(struct world w)
{
	struct world v = w;

	if (w.decode == QUEUE) {
		decide_decode(w, true);
		after(w, KVR_LEGS_DECODE_FAILED); /* whatever else takes it out */
	} else if (w.decode == BOOKED) {
		if (!w.legs.output)
			after(w, KVR_LEGS_DECODE_OUTPUT);
		after(w, KVR_LEGS_DECODE_FAILED);
		v.told++; /* the last item is the last word */
		if (!w.cancelled)
			after(v, KVR_LEGS_DECODE_DONE);
	}
}

static void play(struct world w)
{
	if (at_rest(&w)) {
		n_orders++;
		CU_ASSERT(kvr_legs_over(&w.legs));
		CU_ASSERT(w.told == 1 || w.cancelled);
		CU_ASSERT_FALSE(w.decode_sent);
		return;
	}
	/* Decisions are made in the same turn: nothing comes between. */
	if (w.undecided) {
		decide_prefill(w);
		return;
	}
	if (w.decode_ready) {
		decide_decode(w, false);
		return;
	}
	prefill_moves(w);
	decode_moves(w);
	if (!w.cancelled && w.told == 0) {
		w.cancelled = true;
		after(w, KVR_LEGS_CANCEL);
	}
}

static void nothing_hangs_and_nothing_is_freed_twice(void)
{
	for (uint8_t reroutes = 0; reroutes < 2; reroutes++) {
		struct world w = {.undecided = true, .started = 1};

		kvr_legs_init(&w.legs, reroutes);
		play(w);
	}
	CU_ASSERT(n_orders > 500);
	printf("%" PRIu64 " orders, %" PRIu64 " events\n", n_orders, n_events);
}

/* One row of the fault table. */
struct row {
	const char *what;
	bool bootstrap;
	uint8_t reroutes;
	enum kvr_legs_event events[6];
	uint32_t last; /* what the last event asks for */
};

#define P_LIVE	 KVR_LEGS_PREFILL_LIVE
#define P_WAITS	 KVR_LEGS_PREFILL_WAITS
#define P_DONE	 KVR_LEGS_PREFILL_DONE
#define P_FAILED KVR_LEGS_PREFILL_FAILED
#define D_LIVE	 KVR_LEGS_DECODE_LIVE
#define D_WAITS	 KVR_LEGS_DECODE_WAITS
#define D_OUTPUT KVR_LEGS_DECODE_OUTPUT
#define D_FAILED KVR_LEGS_DECODE_FAILED
#define D_DONE	 KVR_LEGS_DECODE_DONE
#define CANCEL	 KVR_LEGS_CANCEL
#define END	 KVR_LEGS_EVENTS

static const struct row rows[] = {
	{"bootstrap sends both", true, 1, {P_LIVE, END}, KVR_LEGS_ROUTE_DECODE},
	{"sync sends one", false, 1, {P_LIVE, END}, 0},
	{"sync: the end of prefill routes decode",
	 false,
	 1,
	 {P_LIVE, P_DONE, END},
	 KVR_LEGS_PREFILL_END | KVR_LEGS_ROUTE_DECODE},
	{"bootstrap: the end of prefill ends its booking",
	 true,
	 1,
	 {P_LIVE, D_LIVE, P_DONE, END},
	 KVR_LEGS_PREFILL_END},
	{"prefill fails before decode ran: both go, once more",
	 true,
	 1,
	 {P_LIVE, D_LIVE, P_FAILED, END},
	 KVR_LEGS_PREFILL_END | KVR_LEGS_DECODE_ABORT | KVR_LEGS_START_OVER},
	{"the same with no reroute left",
	 true,
	 0,
	 {P_LIVE, D_LIVE, P_FAILED, END},
	 KVR_LEGS_PREFILL_END | KVR_LEGS_DECODE_ABORT | KVR_LEGS_REJECT},
	{"decode waits: it leaves the queue",
	 true,
	 0,
	 {P_LIVE, D_WAITS, P_FAILED, END},
	 KVR_LEGS_PREFILL_END | KVR_LEGS_DECODE_LEAVE | KVR_LEGS_REJECT},
	{"sync prefill fails",
	 false,
	 1,
	 {P_LIVE, P_FAILED, END},
	 KVR_LEGS_PREFILL_END | KVR_LEGS_START_OVER},
	{"prefill fails after decode has produced: nobody cares",
	 true,
	 1,
	 {P_LIVE, D_LIVE, D_OUTPUT, P_FAILED, END},
	 0},
	{"output ends the prefill booking",
	 true,
	 1,
	 {P_LIVE, D_LIVE, D_OUTPUT, END},
	 KVR_LEGS_PREFILL_END},
	{"decode fails: prefill runs on",
	 true,
	 1,
	 {P_LIVE, D_LIVE, D_FAILED, END},
	 KVR_LEGS_DECODE_END | KVR_LEGS_REJECT},
	{"and ends by itself",
	 true,
	 1,
	 {P_LIVE, D_LIVE, D_FAILED, P_DONE, END},
	 KVR_LEGS_PREFILL_END},
	{"cancel of a running decode leg",
	 true,
	 1,
	 {P_LIVE, D_LIVE, CANCEL, END},
	 KVR_LEGS_DECODE_ABORT},
	{"cancel while prefill waits", false, 1, {P_WAITS, CANCEL, END}, KVR_LEGS_PREFILL_LEAVE},
	{"cancel during a sync prefill changes nothing yet", false, 1, {P_LIVE, CANCEL, END}, 0},
	{"its end still routes decode",
	 false,
	 1,
	 {P_LIVE, CANCEL, P_DONE, END},
	 KVR_LEGS_PREFILL_END | KVR_LEGS_ROUTE_DECODE},
	{"which is sent and stopped",
	 false,
	 1,
	 {P_LIVE, CANCEL, P_DONE, D_LIVE, END},
	 KVR_LEGS_DECODE_ABORT},
	{"a cancelled request does not start over",
	 false,
	 1,
	 {P_LIVE, CANCEL, P_FAILED, END},
	 KVR_LEGS_PREFILL_END},
	{"the result is lost while decode waits",
	 false,
	 1,
	 {P_LIVE, P_DONE, D_WAITS, KVR_LEGS_RESULT_LOST, END},
	 KVR_LEGS_DECODE_END | KVR_LEGS_START_OVER},
	{"and nobody wants it",
	 false,
	 1,
	 {P_LIVE, P_DONE, D_WAITS, CANCEL, KVR_LEGS_RESULT_LOST, END},
	 KVR_LEGS_DECODE_END},
	{"cancel of a waiting decode leg that has no prefill leg",
	 false,
	 1,
	 {D_WAITS, CANCEL, END},
	 KVR_LEGS_DECODE_LEAVE},
	{"the end", true, 1, {P_LIVE, D_LIVE, D_OUTPUT, D_DONE, END}, KVR_LEGS_DECODE_END},
};

static void fault_table(void)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct kvr_legs l;
		uint32_t todo = 0;

		kvr_legs_init(&l, rows[i].reroutes);
		l.bootstrap = rows[i].bootstrap;
		for (int k = 0; rows[i].events[k] != END; k++)
			todo = kvr_legs_step(&l, rows[i].events[k]);
		if (todo != rows[i].last)
			fprintf(stderr, "%s: %#x\n", rows[i].what, todo);
		CU_ASSERT_EQUAL(todo, rows[i].last);
	}
}

int main(void)
{
	CU_TestInfo tests[] = {{"orders", nothing_hangs_and_nothing_is_freed_twice},
			       {"faults", fault_table},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("legs", tests);
}
