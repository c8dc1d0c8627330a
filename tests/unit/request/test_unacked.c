/* SPDX-License-Identifier: BSD-3-Clause */
/* Workers that do not acknowledge: which worker gets the request then. */
#include "rig.h"

#define AGAIN .flags = KVR_RQEF_SAME | KVR_RQEF_RESEND

static struct rig g;

static struct rig_call *begin_unacked(void)
{
	rig_start(&g, 4, 0);
	rig_join(&g, 'a', &g.a, false);
	return rig_new(&g);
}

static void end_unacked(void)
{
	rig_finish(&g);
	rig_stop(&g);
}

static uint64_t check_moved(const struct kvr_rq_pool *p)
{
	return rig_counter(&g, p, KVR_RQC_UNACKNOWLEDGED);
}

/* Sent to `a`, which is unresponsive; then `b` joins. */
static void silent_for(struct rig_call *c, uint64_t ms)
{
	rig_arrive(&g, c, &g.a);
	rig_said(&g);
	rig_join(&g, 'b', &g.a, false);
	g.ctx.now += ms * MS;
}

static void moves_with_the_copy_that_comes_in_time(void)
{
	struct rig_call *c = begin_unacked();

	silent_for(c, 499);
	RIG(&g, c, REPEATED, AGAIN);
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED");
	CU_ASSERT_EQUAL(c->r.attempt, 1);
	CU_ASSERT_FALSE(c->msg_kept);
	g.ctx.now += 1 * MS;
	RIG(&g, c, REPEATED, AGAIN);
	RIG_SAID(&g, "a.ABORT b.DISPATCH c.DISPATCHED");
	CU_ASSERT_EQUAL(c->tries, 1);
	CU_ASSERT_EQUAL(c->muted, 'a');
	CU_ASSERT_EQUAL(c->r.attempt, 0);
	CU_ASSERT_TRUE(c->booked[0]);
	CU_ASSERT_EQUAL(c->at[0], 'b');
	CU_ASSERT_FALSE(c->msg_kept);
	CU_ASSERT_EQUAL(check_moved(&g.a), 1);
	CU_ASSERT_EQUAL(rig_counter(&g, &g.a, KVR_RQC_RETRIES), 1);
	/* Once, as the pool says: then it stays where it is. */
	g.ctx.now += 5000 * MS;
	RIG(&g, c, REPEATED, AGAIN);
	RIG_SAID(&g, "b.DISPATCH c.DISPATCHED");
	CU_ASSERT_EQUAL(c->r.attempt, 1);
	RIG(&g, c, TAKEN);
	RIG(&g, c, FIN, .tokens = 1);
	end_unacked();
}

static void time_begins_with_the_first_copy_to_each(void)
{
	struct rig_call *c = begin_unacked();

	g.a.reroutes = 2;
	silent_for(c, 500);
	RIG(&g, c, REPEATED, AGAIN);
	RIG_SAID(&g, "a.ABORT b.DISPATCH c.DISPATCHED");
	g.ctx.now += 499 * MS;
	RIG(&g, c, REPEATED, AGAIN);
	RIG_SAID(&g, "b.DISPATCH c.DISPATCHED");
	g.ctx.now += 1 * MS;
	RIG(&g, c, REPEATED, AGAIN);
	RIG_SAID(&g, "b.ABORT a.DISPATCH c.DISPATCHED");
	end_unacked();
}

static void only_worker_gets_the_request_again(void)
{
	struct rig_call *c = begin_unacked();

	rig_arrive(&g, c, &g.a);
	rig_said(&g);
	g.ctx.now += 500 * MS;
	RIG(&g, c, REPEATED, AGAIN);
	RIG_SAID(&g, "a.ABORT a.DISPATCH c.DISPATCHED");
	CU_ASSERT_EQUAL(c->rejected, 0);
	end_unacked();
}

static void waits_for_its_turn_elsewhere(void)
{
	struct rig_call *c = begin_unacked();

	silent_for(c, 500);
	g.full_a = true;
	RIG(&g, c, REPEATED, AGAIN);
	RIG_SAID(&g, "a.ABORT c.QUEUED");
	CU_ASSERT_TRUE(c->msg_kept && c->held);
	g.full_a = false;
	CU_ASSERT_TRUE(rig_turn(&g, c, 0));
	RIG_SAID(&g, "b.DISPATCH c.DISPATCHED");
	end_unacked();
}

/* It waits for others, and they go: the one that was passed over has it again. */
static void waits_until_no_worker_is_left(void)
{
	struct rig_call *c = begin_unacked();

	silent_for(c, 500);
	g.full_a = true;
	RIG(&g, c, REPEATED, AGAIN);
	RIG_SAID(&g, "a.ABORT c.QUEUED");
	rig_leave(&g, 'b');
	g.full_a = false;
	CU_ASSERT_TRUE(rig_turn(&g, c, 0));
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED");
	CU_ASSERT_EQUAL(c->rejected, 0);
	end_unacked();
	/* It keeps waiting, and no worker joins. */
	c = begin_unacked();
	silent_for(c, 500);
	g.full_a = true;
	RIG(&g, c, REPEATED, AGAIN);
	rig_leave(&g, 'a');
	rig_leave(&g, 'b');
	g.full_a = false;
	CU_ASSERT_TRUE(rig_turn(&g, c, 0));
	RIG_SAID(&g, "a.ABORT c.QUEUED c.NoEndpoints");
	end_unacked();
}

/* All other workers are overloaded. */
static void all_others_overloaded(void)
{
	struct rig_call *c = begin_unacked();

	silent_for(c, 500);
	g.busy = 'b';
	RIG(&g, c, REPEATED, AGAIN);
	RIG_SAID(&g, "a.ABORT a.DISPATCH c.DISPATCHED");
	CU_ASSERT_EQUAL(c->rejected, 0);
	end_unacked();
	/* When its turn comes. */
	c = begin_unacked();
	silent_for(c, 500);
	g.full_a = true;
	RIG(&g, c, REPEATED, AGAIN);
	RIG_SAID(&g, "a.ABORT c.QUEUED");
	g.full_a = false;
	g.busy = 'b';
	CU_ASSERT_TRUE(rig_turn(&g, c, 0));
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED");
	end_unacked();
}

/* Requests that must not be rerouted are sent to the same worker again. */
static void pinned_and_direct_requests_stay(void)
{
	static const struct {
		const char *what;
		bool pin, book, direct, probe, off, never, copy;
	} rows[] = {
		{"pinned", .pin = true},   {"direct", .direct = true},	{"a probe", .probe = true},
		{"no limit", .off = true}, {"no tries", .never = true}, {"no copy", .copy = true},
	};

	for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rig_call *c = begin_unacked();
		struct kvr_rq_orders out;
		struct kvr_rq_event e = {.kind = KVR_RQE_REPEATED, AGAIN};

		if (rows[i].pin) {
			c->msg.hints.present |= KVR_HAS(KVR_HINT_BACKEND);
			c->msg.hints.backend_worker = 'a';
		}
		c->msg.direct = rows[i].direct;
		c->msg.req.probe = rows[i].probe;
		g.a.dispatch_ns = rows[i].off ? 0 : g.a.dispatch_ns;
		g.a.reroutes = rows[i].never ? 0 : 1;
		silent_for(c, 60000);
		/* Its message is over: the question is answered without. */
		CU_ASSERT_PTR_NULL(c->r.msg);
		CU_ASSERT_EQUAL(kvr_request_unacked(&g.ctx, &c->r, KVR_LEG_MAIN), rows[i].copy);
		if (rows[i].copy) {
			c->repeated = true;
			CU_ASSERT_EQUAL(kvr_request_step(&g.ctx, &c->r, &e, &out), KVR_RQ_GO);
			rig_carry(&g, c, &out);
		} else {
			rig_event(&g, c, e);
		}
		RIG_SAID(&g, "a.DISPATCH c.DISPATCHED");
		CU_ASSERT_EQUAL(check_moved(&g.a), 0);
		CU_ASSERT_FALSE(c->msg_kept);
		end_unacked();
	}
}

static void answered_requests_stay(void)
{
	struct rig_call *c = begin_unacked();

	silent_for(c, 500);
	RIG(&g, c, REPEATED, .flags = KVR_RQEF_SAME | KVR_RQEF_RESEND | KVR_RQEF_ANSWERED);
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED");
	end_unacked();
	c = begin_unacked();
	silent_for(c, 500);
	RIG(&g, c, TAKEN);
	RIG(&g, c, REPEATED, AGAIN);
	RIG_SAID(&g, "c.RUNNING");
	CU_ASSERT_EQUAL(RIG(&g, c, UNACKED), KVR_RQ_LATE);
	CU_ASSERT_EQUAL(check_moved(&g.a), 0);
	end_unacked();
}

static void no_room_for_another_handle(void)
{
	struct rig_call *c = begin_unacked();

	silent_for(c, 500);
	g.no_renew = true;
	RIG(&g, c, REPEATED, AGAIN);
	RIG_SAID(&g, "a.ABORT c.NoMemory");
	CU_ASSERT_FALSE(c->booked[0]);
	end_unacked();
}

/* A session that its worker has opened names that worker; an affinity goes with the failure. */
static void check_sessions(void)
{
	struct rig_call *c = begin_unacked();

	rig_session(c, "x", KVR_RQ_OPEN);
	rig_arrive(&g, c, &g.a);
	RIG(&g, c, OPENED);
	rig_said(&g);
	rig_join(&g, 'b', &g.a, false);
	g.ctx.now += 500 * MS;
	RIG(&g, c, REPEATED, AGAIN);
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED");
	end_unacked();

	c = begin_unacked();
	g.a.affinity_ns = 10000 * MS;
	rig_session(c, "x", KVR_RQ_USE);
	rig_arrive(&g, c, &g.a);
	RIG(&g, c, TAKEN);
	RIG(&g, c, FIN, .tokens = 1);
	RIG(&g, c, FIN_ACKED);
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED s.BOUND");
	c = rig_new(&g);
	rig_session(c, "x", KVR_RQ_USE);
	silent_for(c, 500);
	RIG(&g, c, REPEATED, AGAIN);
	RIG_SAID(&g, "s.INVALIDATED a.ABORT b.DISPATCH c.DISPATCHED");
	RIG(&g, c, TAKEN);
	RIG_SAID(&g, "s.BOUND");
	end_unacked();
}

/* ---- pairs ------------------------------------------------------------------------------- */

static struct rig_call *begin_pair(bool bootstrap)
{
	struct rig_call *c = begin_unacked();

	rig_join(&g, 'd', &g.d, false);
	rig_join(&g, 'p', &g.p, bootstrap);
	return c;
}

static void second_pair(bool bootstrap)
{
	rig_said(&g);
	rig_join(&g, 'q', &g.p, bootstrap);
	rig_join(&g, 'e', &g.d, false);
	g.ctx.now += 500 * MS;
}

static void prefill_leg_goes_elsewhere(void)
{
	struct rig_call *c = begin_pair(false);

	rig_arrive(&g, c, &g.d);
	second_pair(false);
	CU_ASSERT_TRUE(kvr_request_unacked(&g.ctx, &c->r, KVR_LEG_PREFILL));
	CU_ASSERT_FALSE(kvr_request_unacked(&g.ctx, &c->r, KVR_LEG_MAIN));
	RIG(&g, c, UNACKED, .leg = KVR_LEG_PREFILL);
	RIG_SAID(&g, "p.ABORT q.DISPATCH");
	CU_ASSERT_EQUAL(check_moved(&g.d), 1);
	CU_ASSERT_FALSE(kvr_request_unacked(&g.ctx, &c->r, KVR_LEG_PREFILL));
	end_unacked();
	/* With its decode leg, which has not been answered either. */
	c = begin_pair(true);
	rig_arrive(&g, c, &g.d);
	second_pair(true);
	RIG(&g, c, UNACKED, .leg = KVR_LEG_PREFILL);
	RIG_SAID(&g, "p.ABORT d.ABORT q.DISPATCH d.DISPATCH c.DISPATCHED");
	end_unacked();
	/* It waits for another one, which goes. */
	c = begin_pair(false);
	rig_arrive(&g, c, &g.d);
	second_pair(false);
	g.full_p = true;
	RIG(&g, c, UNACKED, .leg = KVR_LEG_PREFILL);
	RIG_SAID(&g, "p.ABORT");
	rig_leave(&g, 'q');
	g.full_p = false;
	CU_ASSERT_TRUE(rig_turn(&g, c, KVR_LEG_PREFILL));
	RIG_SAID(&g, "p.DISPATCH");
	end_unacked();
	/* No other worker: the same one gets it once more. */
	c = begin_pair(false);
	rig_arrive(&g, c, &g.d);
	rig_said(&g);
	g.ctx.now += 500 * MS;
	RIG(&g, c, UNACKED, .leg = KVR_LEG_PREFILL);
	RIG_SAID(&g, "p.ABORT p.DISPATCH");
	end_unacked();
}

static void decode_leg_goes_elsewhere_with_its_prefill(void)
{
	struct rig_call *c = begin_pair(true);

	rig_arrive(&g, c, &g.d);
	RIG(&g, c, TAKEN, .leg = KVR_LEG_PREFILL);
	second_pair(true);
	RIG(&g, c, UNACKED);
	RIG_SAID(&g, "p.ABORT d.ABORT p.DISPATCH e.DISPATCH c.DISPATCHED");
	end_unacked();
	/* What was transferred for the old one is not for another. */
	c = begin_pair(false);
	rig_arrive(&g, c, &g.d);
	RIG(&g, c, FIN, .leg = KVR_LEG_PREFILL, .flags = KVR_RQEF_RESULT);
	second_pair(false);
	RIG(&g, c, UNACKED);
	RIG_SAID(&g, "d.ABORT p.DISPATCH c.QUEUED");
	RIG(&g, c, FIN, .leg = KVR_LEG_PREFILL, .flags = KVR_RQEF_RESULT);
	RIG_SAID(&g, "e.DISPATCH c.DISPATCHED");
	end_unacked();
}

/* The worker that holds the blocks goes when the decode leg has been sent. */
static void nothing_left_to_fetch(void)
{
	struct rig_call *c = begin_pair(false);

	rig_arrive(&g, c, &g.d);
	RIG(&g, c, FIN, .leg = KVR_LEG_PREFILL, .flags = KVR_RQEF_RESULT);
	RIG_SAID(&g, "p.DISPATCH c.QUEUED d.DISPATCH c.DISPATCHED");
	CU_ASSERT_FALSE(kvr_request_unacked(&g.ctx, &c->r, KVR_LEG_MAIN));
	rig_join(&g, 'q', &g.p, false);
	rig_leave(&g, 'p');
	RIG_SAID(&g, "");
	CU_ASSERT_TRUE(kvr_request_unacked(&g.ctx, &c->r, KVR_LEG_MAIN));
	RIG(&g, c, UNACKED);
	RIG_SAID(&g, "d.ABORT q.DISPATCH c.QUEUED");
	RIG(&g, c, FIN, .leg = KVR_LEG_PREFILL, .flags = KVR_RQEF_RESULT);
	RIG_SAID(&g, "d.DISPATCH c.DISPATCHED"); /* nothing was wrong with it */
	end_unacked();
}

/* A sync pair whose decode leg is acknowledged, and whose prefill worker has gone, for @p ms. */
static struct rig_call *lose_blocks(bool direct, uint64_t ms)
{
	struct rig_call *c = begin_pair(false);

	c->msg.direct = direct;
	rig_arrive(&g, c, &g.d);
	RIG(&g, c, FIN, .leg = KVR_LEG_PREFILL, .flags = KVR_RQEF_RESULT);
	RIG(&g, c, TAKEN);
	CU_ASSERT_EQUAL(c->msg_kept, !direct);
	g.ctx.now += ms * MS;
	CU_ASSERT_EQUAL(RIG(&g, c, UNACKED), KVR_RQ_LATE); /* its blocks are there still */
	rig_join(&g, 'q', &g.p, false);
	rig_leave(&g, 'p');
	rig_said(&g);
	return c;
}

/* The same, and the decode leg is acknowledged: its worker may have fetched, and gets time. */
static void waits_for_lost_blocks(void)
{
	struct rig_call *c = lose_blocks(false, 499);

	CU_ASSERT_EQUAL(RIG(&g, c, UNACKED), KVR_RQ_LATE);
	RIG_SAID(&g, "");
	g.ctx.now += MS;
	CU_ASSERT_EQUAL(RIG(&g, c, UNACKED), KVR_RQ_GO);
	RIG_SAID(&g, "d.ABORT q.DISPATCH c.QUEUED");
	RIG(&g, c, FIN, .leg = KVR_LEG_PREFILL, .flags = KVR_RQEF_RESULT);
	RIG_SAID(&g, "d.DISPATCH c.DISPATCHED");
	CU_ASSERT_EQUAL(rig_counter(&g, &g.d, KVR_RQC_RETRIES), 1);
	CU_ASSERT_EQUAL(rig_counter(&g, &g.d, KVR_RQC_UNACKNOWLEDGED), 0); /* it did acknowledge */
	end_unacked();
	/* What it says shows that it has fetched them; nothing is kept for another try. */
	c = lose_blocks(false, 499);
	RIG(&g, c, ITEM);
	CU_ASSERT_FALSE(c->msg_kept);
	g.ctx.now += 10000 * MS;
	CU_ASSERT_EQUAL(RIG(&g, c, UNACKED), KVR_RQ_LATE);
	RIG_SAID(&g, "");
	end_unacked();
	/* Without another try it ends. */
	c = lose_blocks(true, 500);
	CU_ASSERT_EQUAL(RIG(&g, c, UNACKED), KVR_RQ_GO);
	RIG_SAID(&g, "d.ABORT c.WorkerLost");
	CU_ASSERT_EQUAL(c->r.end.detail[0], 'p');
	end_unacked();
}

/* The memory of a request that was answered serves the next one, which has no answer yet. */
static void a_new_request_in_used_memory_has_no_answer(void)
{
	struct rig_call *c = begin_pair(false);

	for (uint32_t i = 0; i < 2; i++) {
		rig_arrive(&g, c, &g.d);
		RIG(&g, c, FIN, .leg = KVR_LEG_PREFILL, .flags = KVR_RQEF_RESULT);
		RIG(&g, c, TAKEN);
		if (i == 1)
			break;
		RIG(&g, c, FIN, .tokens = 1);
		RIG(&g, c, FIN_ACKED);
		CU_ASSERT_TRUE(kvr_request_done(&c->r));
	}
	CU_ASSERT_FALSE(c->r.answers);
	g.ctx.now += 500 * MS;
	rig_join(&g, 'q', &g.p, false);
	rig_leave(&g, 'p');
	rig_said(&g);
	CU_ASSERT_EQUAL(RIG(&g, c, UNACKED), KVR_RQ_GO);
	RIG_SAID(&g, "d.ABORT q.DISPATCH c.QUEUED");
	end_unacked();
}

static void legs_that_stay(void)
{
	struct rig_call *c = begin_pair(true);

	c->msg.direct = true; /* the decode worker may have answered the client */
	rig_arrive(&g, c, &g.d);
	second_pair(true);
	CU_ASSERT_EQUAL(RIG(&g, c, UNACKED, .leg = KVR_LEG_PREFILL), KVR_RQ_LATE);
	CU_ASSERT_EQUAL(RIG(&g, c, UNACKED), KVR_RQ_LATE);
	RIG_SAID(&g, "");
	end_unacked();
	c = begin_pair(false);
	c->msg.hints.present |= KVR_HAS(KVR_HINT_PREFILL_WORKER);
	c->msg.hints.prefill_worker = 'p';
	rig_arrive(&g, c, &g.d);
	second_pair(false);
	CU_ASSERT_EQUAL(RIG(&g, c, UNACKED, .leg = KVR_LEG_PREFILL), KVR_RQ_LATE);
	RIG_SAID(&g, "");
	CU_ASSERT_TRUE(c->msg_kept);
	end_unacked();
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(moves_with_the_copy_that_comes_in_time),
		KVR_CASE(time_begins_with_the_first_copy_to_each),
		KVR_CASE(only_worker_gets_the_request_again),
		KVR_CASE(waits_for_its_turn_elsewhere),
		KVR_CASE(waits_until_no_worker_is_left),
		KVR_CASE(all_others_overloaded),
		KVR_CASE(pinned_and_direct_requests_stay),
		KVR_CASE(answered_requests_stay),
		KVR_CASE(no_room_for_another_handle),
		KVR_CASE(check_sessions),
		KVR_CASE(prefill_leg_goes_elsewhere),
		KVR_CASE(decode_leg_goes_elsewhere_with_its_prefill),
		KVR_CASE(nothing_left_to_fetch),
		KVR_CASE(waits_for_lost_blocks),
		KVR_CASE(a_new_request_in_used_memory_has_no_answer),
		KVR_CASE(legs_that_stay),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("unacked", tests);
}
