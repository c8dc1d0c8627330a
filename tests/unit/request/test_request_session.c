/* SPDX-License-Identifier: BSD-3-Clause */
/* Opened sessions in the life of a request: enter, decided, succeeded, ended. */
#include "session_rig.h"

static void opened(struct kvr_rq_pool *p, const char *id)
{
	struct rig_call *c = asks(p, id, KVR_RQ_OPEN);

	RIG(&g, c, OPENED);
	rig_said(&g);
}

/* ---- explicit ---------------------------------------------------------------------------- */

static void open_holds_the_request(void)
{
	struct rig_call *c;

	begin(4, 0);
	c = asks(&g.a, "s", KVR_RQ_OPEN);
	RIG_SAID(&g, "a.OPEN c.QUEUED");
	CU_ASSERT_EQUAL(RIG(&g, c, TAKEN), KVR_RQ_NEVER);
	RIG(&g, c, OPENED);
	RIG_SAID(&g, "s.BOUND a.DISPATCH c.DISPATCHED");
	CU_ASSERT_EQUAL(RIG(&g, c, OPENED), KVR_RQ_LATE);
	CU_ASSERT_FALSE(c->msg_kept);
	end();
}

static void open_is_refused_or_not_answered(void)
{
	struct rig_call *c;

	begin(1, 0);
	c = asks(&g.a, "s", KVR_RQ_OPEN);
	RIG(&g, c, NOT_OPENED, .code = 4);
	RIG_SAID(&g, "a.OPEN c.QUEUED s.OPEN_FAILED c.SessionOpenFailed");
	CU_ASSERT_EQUAL(c->detail[0], 4);
	CU_ASSERT_FALSE(c->booked[0]);
	c = asks(&g.a, "s", KVR_RQ_OPEN); /* its room was given back */
	RIG(&g, c, UNANSWERED);
	RIG_SAID(&g, "a.OPEN c.QUEUED s.OPEN_FAILED a.CLOSE c.SessionOpenFailed");
	end();
}

static void one_opens_at_a_time(void)
{
	struct rig_call *c;

	begin(2, 0);
	asks(&g.a, "s", KVR_RQ_OPEN);
	rig_said(&g);
	c = asks(&g.a, "s", KVR_RQ_OPEN);
	RIG_SAID(&g, "c.SessionOpenFailed");
	CU_ASSERT_TRUE(c->retryable);
	asks(&g.a, "t", KVR_RQ_OPEN);
	RIG_SAID(&g, "a.OPEN c.QUEUED");
	c = asks(&g.a, "u", KVR_RQ_OPEN);
	RIG_SAID(&g, "c.SessionLimit");
	CU_ASSERT_TRUE(c->retryable);
	CU_ASSERT_FALSE(c->live);
	end();
}

static void source_has_enough_sessions(void)
{
	begin(2, 0);
	g.no_session = true;
	asks(&g.a, "s", KVR_RQ_OPEN);
	RIG_SAID(&g, "c.SourceLimit");
	end();
}

/* Every open that a worker may have taken ends in the binding or in a close. */
static void held_request_ends(void)
{
	struct rig_call *c;

	begin(2, 0);
	c = asks(&g.a, "s", KVR_RQ_OPEN);
	RIG(&g, c, CANCEL);
	RIG_SAID(&g, "a.OPEN c.QUEUED a.CLOSE c.CANCELLED");
	CU_ASSERT_EQUAL(RIG(&g, c, OPENED), KVR_RQ_LATE);
	CU_ASSERT_EQUAL(g.bound, 0);
	end();
}

static void binding_names_the_rank(void)
{
	struct rig_call *c;

	begin(4, 0);
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
	asks(&g.a, "s", KVR_RQ_USE);
	RIG_SAID(&g, "s.EXPIRED a.CLOSE a.DISPATCH c.DISPATCHED");
	end();
}

static void worker_of_the_session_has_gone(void)
{
	struct rig_call *c;

	begin(4, 0);
	opened(&g.a, "s");
	rig_join(&g, 'a', &g.a, false); /* a new life: it knows of nothing */
	rig_said(&g);
	c = asks(&g.a, "s", KVR_RQ_USE);
	RIG_SAID(&g, "c.SessionWorkerGone");
	CU_ASSERT_FALSE(c->retryable);
	end();
}

static void close_tells_the_worker_at_the_end(void)
{
	struct rig_call *c;

	begin(4, 0);
	opened(&g.a, "s");
	c = asks(&g.a, "s", KVR_RQ_CLOSE);
	RIG_SAID(&g, "s.UNBOUND a.DISPATCH c.DISPATCHED");
	RIG(&g, c, FIN, .tokens = 1);
	RIG_SAID(&g, "a.CLOSE");
	end();
}

static void closing_what_is_not_bound_is_served(void)
{
	struct rig_call *c;

	begin(4, 0);
	c = asks(&g.a, "s", KVR_RQ_CLOSE);
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED");
	RIG(&g, c, FIN, .tokens = 1);
	RIG_SAID(&g, "");
	CU_ASSERT_EQUAL(rig_counter(&g, &g.a, KVR_RQC_SESSION_CLOSE_UNBOUND), 1);
	end();
	begin(0, 0); /* nor where there are no sessions */
	asks(&g.a, "s", KVR_RQ_CLOSE);
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED");
	asks(&g.a, "s", KVR_RQ_OPEN);
	RIG_SAID(&g, "c.SessionLimit");
	CU_ASSERT_EQUAL(rig_counter(&g, &g.a, KVR_RQC_SESSION_CLOSE_UNBOUND), 1);
	end();
}

static void open_elsewhere_closes_the_old_one(void)
{
	struct rig_call *c;

	begin(4, 0);
	opened(&g.a, "s");
	rig_join(&g, 'b', &g.a, false);
	c = rig_new(&g);
	c->msg.hints.present = KVR_HAS(KVR_HINT_BACKEND);
	c->msg.hints.backend_worker = 'b';
	rig_session(c, "s", KVR_RQ_OPEN);
	rig_arrive(&g, c, &g.a);
	RIG(&g, c, OPENED);
	RIG_SAID(&g, "b.OPEN c.QUEUED s.BOUND a.CLOSE b.DISPATCH c.DISPATCHED");
	end();
}

static void query_changes_no_session(void)
{
	struct rig_call *c;

	begin(1, 0);
	c = rig_new(&g);
	c->msg.req.query_only = true;
	rig_session(c, "s", KVR_RQ_OPEN);
	rig_arrive(&g, c, &g.a);
	RIG_SAID(&g, "c.QUERY");
	opened(&g.a, "s");
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
	end();
}

static void released_by_its_client_alone(void)
{
	struct kvr_rq_orders out;
	struct rig_call *c;

	begin(4, 0);
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
	end();
}

static void an_operator_may_release_anybodys(void)
{
	struct rig_call *c;
	struct kvr_rq_orders out;

	begin(4, 0);
	c = rig_new(&g);
	c->session.tag = UINT64_C(5) << 33;
	rig_session(c, "s", KVR_RQ_OPEN);
	rig_arrive(&g, c, &g.a);
	RIG(&g, c, OPENED);
	CU_ASSERT_EQUAL(kvr_request_session_release(&g.ctx, &g.a, "s", 1, KVR_RQ_TAG_ANY, &out),
			KVR_OK);
	CU_ASSERT_EQUAL(out.n, 2); /* and its worker is told */
	CU_ASSERT_EQUAL(kvr_request_session_release(&g.ctx, &g.a, "s", 1, KVR_RQ_TAG_ANY, &out),
			KVR_E_UNKNOWN_SESSION);
	end();
}

/* ---- pairs ------------------------------------------------------------------------------- */

static void open_on_a_pair_survives_another_try(void)
{
	struct rig_call *c;

	begin(4, 0);
	rig_join(&g, 'q', &g.p, true);
	c = asks(&g.d, "s", KVR_RQ_OPEN);
	RIG_SAID(&g, "p.DISPATCH d.OPEN c.QUEUED");
	RIG(&g, c, FIN, .leg = 1, .flags = KVR_RQEF_ERROR);
	RIG_SAID(&g, "d.CLOSE q.DISPATCH d.OPEN c.QUEUED");
	RIG(&g, c, OPENED);
	RIG_SAID(&g, "s.BOUND d.DISPATCH c.DISPATCHED");
	end();
}

/* Opened, and then its prefill leg fails: the next try is a request of the session. */
static void another_try_of_an_opened_session(void)
{
	struct rig_call *c;

	begin(4, 0);
	rig_join(&g, 'q', &g.p, true);
	rig_join(&g, 'e', &g.d, false);
	c = asks(&g.d, "s", KVR_RQ_OPEN);
	RIG(&g, c, OPENED);
	rig_said(&g);
	RIG(&g, c, DECLINED, .leg = 1, .code = 2);
	RIG_SAID(&g, "d.ABORT q.DISPATCH d.DISPATCH c.DISPATCHED");
	CU_ASSERT_EQUAL(g.opens, 1);
	CU_ASSERT_EQUAL(c->pair.phints.present & KVR_HAS(KVR_HINT_DP_RANK),
			0); /* of the decode pool */
	end();
}

static void close_on_a_pair_waits_for_the_last_try(void)
{
	struct rig_call *c;

	begin(4, 0);
	opened(&g.d, "s");
	rig_join(&g, 'q', &g.p, true);
	c = asks(&g.d, "s", KVR_RQ_CLOSE);
	RIG_SAID(&g, "p.DISPATCH s.UNBOUND d.DISPATCH c.DISPATCHED");
	RIG(&g, c, FIN, .leg = 1, .flags = KVR_RQEF_ERROR);
	RIG_SAID(&g, "d.ABORT q.DISPATCH d.DISPATCH c.DISPATCHED");
	RIG(&g, c, FIN, .tokens = 1);
	RIG_SAID(&g, "d.CLOSE");
	CU_ASSERT_EQUAL(rig_counter(&g, &g.d, KVR_RQC_SESSION_CLOSE_UNBOUND), 0);
	end();
}

/* Blocks on their way to a held decode leg can only be released there. */
static void cancel_of_a_held_decode_leg(void)
{
	struct rig_call *c;

	begin(4, 0);
	c = asks(&g.d, "s", KVR_RQ_OPEN);
	RIG(&g, c, CANCEL);
	RIG_SAID(&g, "p.DISPATCH d.OPEN c.QUEUED d.DISPATCH d.CLOSE d.ABORT c.CANCELLED");
	end();
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"open", open_holds_the_request},
		{"open_failed", open_is_refused_or_not_answered},
		{"busy", one_opens_at_a_time},
		{"source", source_has_enough_sessions},
		{"held", held_request_ends},
		{"rank", binding_names_the_rank},
		{"gone", worker_of_the_session_has_gone},
		{"close", close_tells_the_worker_at_the_end},
		{"unbound", closing_what_is_not_bound_is_served},
		{"elsewhere", open_elsewhere_closes_the_old_one},
		{"query", query_changes_no_session},
		{"release", released_by_its_client_alone},
		{"pair_open", open_on_a_pair_survives_another_try},
		{"pair_opened", another_try_of_an_opened_session},
		{"pair_close", close_on_a_pair_waits_for_the_last_try},
		{"pair_held", cancel_of_a_held_decode_leg},
		{"operator", an_operator_may_release_anybodys},
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("session", tests);
}
