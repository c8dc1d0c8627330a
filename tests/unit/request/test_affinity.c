/* SPDX-License-Identifier: BSD-3-Clause */
/* Affinity: a session without an open, bound where its first request has succeeded. */
#include "session_rig.h"

static void bound_by_the_first_success(void)
{
	struct rig_call *c;

	begin_sessions(4, 10);
	c = ask_session(&g.a, "s", KVR_RQ_USE);
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED");
	RIG(&g, c, TAKEN);
	RIG_SAID(&g, "s.BOUND");
	rig_join(&g, 'b', &g.a, false);
	for (int i = 0; i < 4; i++) {
		c = ask_session(&g.a, "s", KVR_RQ_USE);
		CU_ASSERT_EQUAL(c->r.leg[0].worker, 'a');
	}
	rig_said(&g);
	RIG(&g, c, FIN, .flags = KVR_RQEF_ERROR); /* a failure ends it */
	RIG_SAID(&g, "s.INVALIDATED");
	end_sessions();
}

static void first_success_of_several(void)
{
	struct rig_call *one, *two;

	begin_sessions(4, 10);
	one = ask_session(&g.a, "s", KVR_RQ_USE);
	rig_join(&g, 'b', &g.a, false);
	g.w[0].here = false;
	two = ask_session(&g.a, "s", KVR_RQ_USE);
	g.w[0].here = true;
	RIG(&g, two, TAKEN);
	RIG(&g, one, TAKEN);
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED b.DISPATCH c.DISPATCHED s.BOUND");
	RIG(&g, one, FIN, .flags = KVR_RQEF_ERROR); /* not in the binding: it stays */
	RIG_SAID(&g, "");
	CU_ASSERT_EQUAL(kvr_session_count(g.a.sessions), 1);
	end_sessions();
}

static void affinity_expires_in_silence(void)
{
	struct rig_call *c;

	begin_sessions(4, 10);
	c = ask_session(&g.a, "s", KVR_RQ_USE);
	RIG(&g, c, FIN, .tokens = 1);
	rig_said(&g);
	g.ctx.now += 11000 * MS;
	ask_session(&g.a, "s", KVR_RQ_USE);
	RIG_SAID(&g, "s.EXPIRED a.DISPATCH c.DISPATCHED");
	end_sessions();
}

static void cancel_does_not_end_an_affinity(void)
{
	struct rig_call *c;

	begin_sessions(4, 10);
	c = ask_session(&g.a, "s", KVR_RQ_USE);
	RIG(&g, c, ITEM, .tokens = 1);
	RIG(&g, c, CANCEL);
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED s.BOUND a.ABORT c.CANCELLED");
	CU_ASSERT_EQUAL(kvr_session_count(g.a.sessions), 1);
	end_sessions();
}

static void affinity_to_one_that_cannot_take_it(void)
{
	struct rig_call *c;

	begin_sessions(4, 10);
	c = ask_session(&g.a, "s", KVR_RQ_USE);
	RIG(&g, c, FIN, .tokens = 1);
	rig_said(&g);
	g.w[0].pool = &g.p; /* still here, and not for this pool */
	rig_join(&g, 'b', &g.a, false);
	ask_session(&g.a, "s", KVR_RQ_USE);
	RIG_SAID(&g, "s.INVALIDATED b.DISPATCH c.DISPATCHED");
	g.w[0].pool = &g.a;
	end_sessions();
	begin_sessions(4, 10); /* refused by its pool: decided again without the pin */
	c = ask_session(&g.a, "s", KVR_RQ_USE);
	RIG(&g, c, FIN, .tokens = 1);
	rig_said(&g);
	g.refuse = KVR_E_PINNED_NOT_ALLOWED;
	c = rig_new(&g);
	c->msg.req.query_only = true;
	rig_session(c, "s", KVR_RQ_USE);
	rig_arrive(&g, c, &g.a); /* a query unbinds nothing */
	RIG_SAID(&g, "c.PinnedWorkerNotAllowed");
	ask_session(&g.a, "s", KVR_RQ_USE);
	RIG_SAID(&g, "s.INVALIDATED c.PinnedWorkerNotAllowed");
	end_sessions();
}

/* A request that was rejected from the queue is not decided again. */
static void affinity_of_one_that_waits(void)
{
	struct rig_call *c;

	begin_sessions(4, 10);
	c = ask_session(&g.a, "s", KVR_RQ_USE);
	RIG(&g, c, FIN, .tokens = 1);
	g.full_a = true;
	c = ask_session(&g.a, "s", KVR_RQ_USE);
	rig_leave(&g, 'a');
	rig_said(&g);
	rig_turn(&g, c, KVR_LEG_MAIN);
	RIG_SAID(&g, "c.NoEndpoints");
	CU_ASSERT_EQUAL(kvr_session_count(g.a.sessions), 1);
	end_sessions();
}

static void closing_an_affinity_sends_no_close(void)
{
	struct rig_call *c;

	begin_sessions(4, 10);
	c = ask_session(&g.a, "s", KVR_RQ_USE);
	RIG(&g, c, FIN, .tokens = 1);
	rig_said(&g);
	c = ask_session(&g.a, "s", KVR_RQ_CLOSE);
	RIG(&g, c, FIN, .tokens = 1);
	RIG_SAID(&g, "s.UNBOUND a.DISPATCH c.DISPATCHED");
	CU_ASSERT_EQUAL(kvr_session_count(g.a.sessions), 0);
	end_sessions();
}

static void direct_mode_wants_the_clients_word(void)
{
	struct rig_call *c;

	begin_sessions(4, 10);
	g.aconf.mode = KVR_MODE_DIRECT;
	c = ask_session(&g.a, "s", KVR_RQ_USE);
	RIG(&g, c, TAKEN);
	c = ask_session(&g.a, "s", KVR_RQ_USE);
	CU_ASSERT_EQUAL(c->msg.hints.present, 0);
	rig_said(&g);
	end_sessions();
}

static void each_leg_has_its_own(void)
{
	struct rig_call *c;

	begin_sessions(4, 10);
	c = ask_session(&g.d, "s", KVR_RQ_USE);
	RIG(&g, c, TAKEN);
	RIG(&g, c, TAKEN, .leg = 1);
	RIG_SAID(&g, "p.DISPATCH d.DISPATCH c.DISPATCHED s.BOUND s.BOUND");
	rig_join(&g, 'e', &g.d, false);
	rig_join(&g, 'q', &g.p, false);
	c = ask_session(&g.d, "s", KVR_RQ_USE);
	CU_ASSERT_EQUAL(c->pair.phints.present,
			KVR_HAS(KVR_HINT_PREFILL_WORKER) | KVR_HAS(KVR_HINT_PREFILL_DP_RANK));
	CU_ASSERT_EQUAL(c->pair.dhints.present,
			KVR_HAS(KVR_HINT_DECODE_WORKER) | KVR_HAS(KVR_HINT_DP_RANK));
	RIG_SAID(&g, "p.DISPATCH d.DISPATCH c.DISPATCHED");
	end_sessions();
}

/* What the two workers say reaches the router on two paths: the decode leg's first token may come
 * before a word of the prefill leg, which ends there and then. It has succeeded all the same. */
static void a_first_token_speaks_for_the_prefill_leg(void)
{
	struct rig_call *c;

	begin_sessions(4, 10);
	c = ask_session(&g.d, "s", KVR_RQ_USE);
	RIG_SAID(&g, "p.DISPATCH d.DISPATCH c.DISPATCHED");
	RIG(&g, c, ITEM, .tokens = 1, .flags = KVR_RQEF_FIRST);
	CU_ASSERT_FALSE(c->booked[1]);
	RIG_SAID(&g, "s.BOUND s.BOUND");
	CU_ASSERT_EQUAL(kvr_session_count(g.p.sessions), 1);
	RIG(&g, c, FIN, .tokens = 2);
	rig_join(&g, 'q', &g.p, true);
	c = ask_session(&g.d, "s", KVR_RQ_USE);
	CU_ASSERT_EQUAL(c->r.leg[1].worker, 'p');
	CU_ASSERT_EQUAL(c->pair.phints.present,
			KVR_HAS(KVR_HINT_PREFILL_WORKER) | KVR_HAS(KVR_HINT_PREFILL_DP_RANK));
	rig_said(&g);
	end_sessions();
}

/* An error item is no proof of the prefill worker. */
static void an_error_does_not_speak_for_the_prefill_leg(void)
{
	struct rig_call *c;

	begin_sessions(4, 10);
	c = ask_session(&g.d, "s", KVR_RQ_USE);
	RIG(&g, c, FIN, .flags = KVR_RQEF_ERROR | KVR_RQEF_FIRST);
	CU_ASSERT_EQUAL(kvr_session_count(g.p.sessions), 0);
	rig_said(&g);
	end_sessions();
}

static void affinity_of_a_decode_leg(void)
{
	struct rig_call *c;

	begin_sessions(4, 10);
	rig_join(&g, 'q', &g.p, true);
	c = ask_session(&g.d, "s", KVR_RQ_USE);
	RIG(&g, c, TAKEN);
	/* The first try has bound the session: the next one is pinned by it. */
	CU_ASSERT_EQUAL(c->msg.hints.present, 0);
	RIG(&g, c, DECLINED, .leg = 1, .code = 1);
	CU_ASSERT_EQUAL(c->msg.hints.present,
			KVR_HAS(KVR_HINT_DECODE_WORKER) | KVR_HAS(KVR_HINT_DP_RANK));
	g.refuse = KVR_E_NO_ENDPOINTS;
	g.refuser = &g.d;
	c = ask_session(&g.d, "s", KVR_RQ_USE); /* decided again without the pin */
	CU_ASSERT_EQUAL(c->pair.dhints.present, 0);
	rig_said(&g);
	end_sessions();
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(bound_by_the_first_success),
		KVR_CASE(first_success_of_several),
		KVR_CASE(affinity_expires_in_silence),
		KVR_CASE(affinity_of_a_decode_leg),
		KVR_CASE(cancel_does_not_end_an_affinity),
		KVR_CASE(affinity_to_one_that_cannot_take_it),
		KVR_CASE(affinity_of_one_that_waits),
		KVR_CASE(closing_an_affinity_sends_no_close),
		KVR_CASE(direct_mode_wants_the_clients_word),
		KVR_CASE(each_leg_has_its_own),
		KVR_CASE(a_first_token_speaks_for_the_prefill_leg),
		KVR_CASE(an_error_does_not_speak_for_the_prefill_leg),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("affinity", tests);
}
