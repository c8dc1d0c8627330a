/* SPDX-License-Identifier: BSD-3-Clause */
/* Opened sessions in the life of a request: enter, decided, succeeded, ended. */
#include "session_rig.h"

static void open_session(struct kvr_rq_pool *p, const char *id)
{
	struct rig_call *c = ask_session(p, id, KVR_RQ_OPEN);

	RIG(&g, c, OPENED);
	rig_said(&g);
}

/* ---- explicit ---------------------------------------------------------------------------- */

static void open_holds_the_request(void)
{
	struct rig_call *c;

	begin_sessions(4, 0);
	c = ask_session(&g.a, "s", KVR_RQ_OPEN);
	RIG_SAID(&g, "a.OPEN c.QUEUED");
	CU_ASSERT_EQUAL(RIG(&g, c, TAKEN), KVR_RQ_NEVER);
	RIG(&g, c, OPENED);
	RIG_SAID(&g, "s.BOUND a.DISPATCH c.DISPATCHED");
	CU_ASSERT_EQUAL(RIG(&g, c, OPENED), KVR_RQ_LATE);
	CU_ASSERT_FALSE(c->msg_kept);
	end_sessions();
}

static void open_is_refused_or_not_answered(void)
{
	struct rig_call *c;

	begin_sessions(1, 0);
	c = ask_session(&g.a, "s", KVR_RQ_OPEN);
	RIG(&g, c, NOT_OPENED, .code = 4);
	RIG_SAID(&g, "a.OPEN c.QUEUED s.OPEN_FAILED c.SessionOpenFailed");
	CU_ASSERT_EQUAL(c->detail[0], 4);
	CU_ASSERT_FALSE(c->booked[0]);
	c = ask_session(&g.a, "s", KVR_RQ_OPEN); /* its room was given back */
	RIG(&g, c, UNANSWERED);
	RIG_SAID(&g, "a.OPEN c.QUEUED s.OPEN_FAILED a.CLOSE c.SessionOpenFailed");
	end_sessions();
}

static void one_opens_at_a_time(void)
{
	struct rig_call *c;

	begin_sessions(2, 0);
	ask_session(&g.a, "s", KVR_RQ_OPEN);
	rig_said(&g);
	c = ask_session(&g.a, "s", KVR_RQ_OPEN);
	RIG_SAID(&g, "c.SessionOpenFailed");
	CU_ASSERT_TRUE(c->retryable);
	ask_session(&g.a, "t", KVR_RQ_OPEN);
	RIG_SAID(&g, "a.OPEN c.QUEUED");
	c = ask_session(&g.a, "u", KVR_RQ_OPEN);
	RIG_SAID(&g, "c.SessionLimit");
	CU_ASSERT_TRUE(c->retryable);
	CU_ASSERT_FALSE(c->live);
	end_sessions();
}

static void source_has_enough_sessions(void)
{
	begin_sessions(2, 0);
	g.no_session = true;
	ask_session(&g.a, "s", KVR_RQ_OPEN);
	RIG_SAID(&g, "c.SourceLimit");
	end_sessions();
}

/* Every open that a worker may have taken ends in the binding or in a close. */
static void held_request_ends(void)
{
	struct rig_call *c;

	begin_sessions(2, 0);
	c = ask_session(&g.a, "s", KVR_RQ_OPEN);
	RIG(&g, c, CANCEL);
	RIG_SAID(&g, "a.OPEN c.QUEUED a.CLOSE c.CANCELLED");
	CU_ASSERT_EQUAL(RIG(&g, c, OPENED), KVR_RQ_LATE);
	CU_ASSERT_EQUAL(g.bound, 0);
	end_sessions();
}

static void binding_names_the_rank(void)
{
	struct rig_call *c;

	begin_sessions(4, 0);
	rig_worker(&g, 'a')->dp_size = 4;
	c = rig_new(&g);
	c->msg.hints.present = KVR_HAS(KVR_HINT_BACKEND) | KVR_HAS(KVR_HINT_DP_RANK);
	c->msg.hints.backend_worker = 'a';
	c->msg.hints.dp_rank = 3;
	rig_session(c, "s", KVR_RQ_OPEN);
	rig_arrive(&g, c, &g.a);
	RIG(&g, c, OPENED);
	/* A rank alone is not a pin of the client's. */
	c = rig_new(&g);
	c->msg.hints.present = KVR_HAS(KVR_HINT_DP_RANK);
	c->msg.hints.dp_rank = 1;
	rig_session(c, "s", KVR_RQ_USE);
	rig_arrive(&g, c, &g.a);
	CU_ASSERT_EQUAL(c->r.leg[0].dp_rank, 3);
	CU_ASSERT_EQUAL(c->msg.hints.present,
			KVR_HAS(KVR_HINT_BACKEND) | KVR_HAS(KVR_HINT_DP_RANK));
	/* A pin is, and it does not use the session. */
	rig_join(&g, 'b', &g.a, false);
	g.ctx.now += 9000 * MS;
	c = rig_new(&g);
	c->msg.hints.present = KVR_HAS(KVR_HINT_BACKEND);
	c->msg.hints.backend_worker = 'b';
	rig_session(c, "s", KVR_RQ_USE);
	rig_arrive(&g, c, &g.a);
	CU_ASSERT_EQUAL(c->r.leg[0].worker, 'b');
	rig_said(&g);
	g.ctx.now += 2000 * MS;
	ask_session(&g.a, "s", KVR_RQ_USE);
	RIG_SAID(&g, "s.EXPIRED a.CLOSE a.DISPATCH c.DISPATCHED");
	end_sessions();
}

static void worker_of_the_session_has_gone(void)
{
	struct rig_call *c;

	begin_sessions(4, 0);
	open_session(&g.a, "s");
	rig_join(&g, 'a', &g.a, false); /* a new incarnation without sessions */
	rig_said(&g);
	c = ask_session(&g.a, "s", KVR_RQ_USE);
	RIG_SAID(&g, "c.SessionWorkerGone");
	CU_ASSERT_FALSE(c->retryable);
	end_sessions();
}

static void close_tells_the_worker_at_the_end(void)
{
	struct rig_call *c;

	begin_sessions(4, 0);
	open_session(&g.a, "s");
	c = ask_session(&g.a, "s", KVR_RQ_CLOSE);
	RIG_SAID(&g, "s.UNBOUND a.DISPATCH c.DISPATCHED");
	RIG(&g, c, FIN, .tokens = 1);
	RIG_SAID(&g, "a.CLOSE");
	end_sessions();
}

static void closing_what_is_not_bound_is_served(void)
{
	struct rig_call *c;

	begin_sessions(4, 0);
	c = ask_session(&g.a, "s", KVR_RQ_CLOSE);
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED");
	RIG(&g, c, FIN, .tokens = 1);
	RIG_SAID(&g, "");
	CU_ASSERT_EQUAL(rig_counter(&g, &g.a, KVR_RQC_SESSION_CLOSE_UNBOUND), 1);
	end_sessions();
	begin_sessions(0, 0); /* nor where there are no sessions */
	ask_session(&g.a, "s", KVR_RQ_CLOSE);
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED");
	ask_session(&g.a, "s", KVR_RQ_OPEN);
	RIG_SAID(&g, "c.SessionLimit");
	CU_ASSERT_EQUAL(rig_counter(&g, &g.a, KVR_RQC_SESSION_CLOSE_UNBOUND), 1);
	end_sessions();
}

static void open_elsewhere_closes_the_old_one(void)
{
	struct rig_call *c;

	begin_sessions(4, 0);
	open_session(&g.a, "s");
	rig_join(&g, 'b', &g.a, false);
	c = rig_new(&g);
	c->msg.hints.present = KVR_HAS(KVR_HINT_BACKEND);
	c->msg.hints.backend_worker = 'b';
	rig_session(c, "s", KVR_RQ_OPEN);
	rig_arrive(&g, c, &g.a);
	RIG(&g, c, OPENED);
	RIG_SAID(&g, "b.OPEN c.QUEUED s.BOUND a.CLOSE b.DISPATCH c.DISPATCHED");
	end_sessions();
}

static void query_changes_no_session(void)
{
	struct rig_call *c;

	begin_sessions(1, 0);
	c = rig_new(&g);
	c->msg.req.query_only = true;
	rig_session(c, "s", KVR_RQ_OPEN);
	rig_arrive(&g, c, &g.a);
	RIG_SAID(&g, "c.QUERY");
	open_session(&g.a, "s");
	c = rig_new(&g);
	c->msg.req.query_only = true;
	rig_session(c, "t", KVR_RQ_OPEN); /* there is no room, and none is needed */
	rig_arrive(&g, c, &g.a);
	RIG_SAID(&g, "c.QUERY");
	c = rig_new(&g);
	c->msg.req.query_only = true;
	rig_session(c, "s", KVR_RQ_CLOSE);
	rig_arrive(&g, c, &g.a);
	RIG_SAID(&g, "c.QUERY");
	CU_ASSERT_EQUAL(kvr_session_count(g.a.sessions), 1);
	end_sessions();
}

static void released_by_its_client_alone(void)
{
	struct kvr_rq_orders out;
	struct rig_call *c;

	begin_sessions(4, 0);
	c = rig_new(&g);
	c->session.tag = UINT64_C(5) << 33;
	rig_session(c, "s", KVR_RQ_OPEN);
	rig_arrive(&g, c, &g.a);
	RIG(&g, c, OPENED);
	CU_ASSERT_EQUAL(kvr_request_session_release(&g.ctx, &g.a, "s", 1, UINT64_C(6) << 33, &out),
			KVR_E_NOT_ALLOWED);
	CU_ASSERT_EQUAL(out.n, 0);
	CU_ASSERT_EQUAL(kvr_request_session_release(&g.ctx, &g.a, "s", 1, UINT64_C(5) << 33, &out),
			KVR_OK);
	CU_ASSERT_EQUAL(out.n, 2);
	CU_ASSERT_EQUAL(kvr_request_session_release(&g.ctx, &g.a, "s", 1, 0, &out),
			KVR_E_UNKNOWN_SESSION);
	end_sessions();
}

static void an_operator_may_release_anybodys(void)
{
	struct rig_call *c;
	struct kvr_rq_orders out;

	begin_sessions(4, 0);
	c = rig_new(&g);
	c->session.tag = UINT64_C(5) << 33;
	rig_session(c, "s", KVR_RQ_OPEN);
	rig_arrive(&g, c, &g.a);
	RIG(&g, c, OPENED);
	CU_ASSERT_EQUAL(kvr_request_session_release(&g.ctx, &g.a, "s", 1, KVR_RQ_TAG_ANY, &out),
			KVR_OK);
	CU_ASSERT_EQUAL(out.n, 2); /* and its worker gets CLOSE */
	CU_ASSERT_EQUAL(kvr_request_session_release(&g.ctx, &g.a, "s", 1, KVR_RQ_TAG_ANY, &out),
			KVR_E_UNKNOWN_SESSION);
	end_sessions();
}

/* ---- pairs ------------------------------------------------------------------------------- */

static void open_on_a_pair_survives_another_try(void)
{
	struct rig_call *c;

	begin_sessions(4, 0);
	rig_join(&g, 'q', &g.p, true);
	c = ask_session(&g.d, "s", KVR_RQ_OPEN);
	RIG_SAID(&g, "p.DISPATCH d.OPEN c.QUEUED");
	RIG(&g, c, FIN, .leg = 1, .flags = KVR_RQEF_ERROR);
	RIG_SAID(&g, "d.CLOSE q.DISPATCH d.OPEN c.QUEUED");
	RIG(&g, c, OPENED);
	RIG_SAID(&g, "s.BOUND d.DISPATCH c.DISPATCHED");
	end_sessions();
}

/* Opened, and then its prefill leg fails: the next try is a request of the session. */
static void another_try_of_an_opened_session(void)
{
	struct rig_call *c;

	begin_sessions(4, 0);
	rig_join(&g, 'q', &g.p, true);
	rig_join(&g, 'e', &g.d, false);
	c = ask_session(&g.d, "s", KVR_RQ_OPEN);
	RIG(&g, c, OPENED);
	rig_said(&g);
	RIG(&g, c, DECLINED, .leg = 1, .code = 2);
	RIG_SAID(&g, "d.ABORT q.DISPATCH d.DISPATCH c.DISPATCHED");
	CU_ASSERT_EQUAL(g.opens, 1);
	CU_ASSERT_EQUAL(c->pair.phints.present & KVR_HAS(KVR_HINT_DP_RANK),
			0); /* of the decode pool */
	end_sessions();
}

static void close_on_a_pair_waits_for_the_last_try(void)
{
	struct rig_call *c;

	begin_sessions(4, 0);
	open_session(&g.d, "s");
	rig_join(&g, 'q', &g.p, true);
	c = ask_session(&g.d, "s", KVR_RQ_CLOSE);
	RIG_SAID(&g, "p.DISPATCH s.UNBOUND d.DISPATCH c.DISPATCHED");
	RIG(&g, c, FIN, .leg = 1, .flags = KVR_RQEF_ERROR);
	RIG_SAID(&g, "d.ABORT q.DISPATCH d.DISPATCH c.DISPATCHED");
	RIG(&g, c, FIN, .tokens = 1);
	RIG_SAID(&g, "d.CLOSE");
	CU_ASSERT_EQUAL(rig_counter(&g, &g.d, KVR_RQC_SESSION_CLOSE_UNBOUND), 0);
	end_sessions();
}

/* Blocks on their way to a held decode leg can only be released there. */
static void cancel_of_a_held_decode_leg(void)
{
	struct rig_call *c;

	begin_sessions(4, 0);
	c = ask_session(&g.d, "s", KVR_RQ_OPEN);
	RIG(&g, c, CANCEL);
	RIG_SAID(&g, "p.DISPATCH d.OPEN c.QUEUED d.DISPATCH d.CLOSE d.ABORT c.CANCELLED");
	end_sessions();
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(open_holds_the_request),
		KVR_CASE(open_is_refused_or_not_answered),
		KVR_CASE(one_opens_at_a_time),
		KVR_CASE(source_has_enough_sessions),
		KVR_CASE(held_request_ends),
		KVR_CASE(binding_names_the_rank),
		KVR_CASE(worker_of_the_session_has_gone),
		KVR_CASE(close_tells_the_worker_at_the_end),
		KVR_CASE(closing_what_is_not_bound_is_served),
		KVR_CASE(open_elsewhere_closes_the_old_one),
		KVR_CASE(query_changes_no_session),
		KVR_CASE(released_by_its_client_alone),
		KVR_CASE(open_on_a_pair_survives_another_try),
		KVR_CASE(another_try_of_an_opened_session),
		KVR_CASE(close_on_a_pair_waits_for_the_last_try),
		KVR_CASE(cancel_of_a_held_decode_leg),
		KVR_CASE(an_operator_may_release_anybodys),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("session", tests);
}
