/* SPDX-License-Identifier: BSD-3-Clause */
/* What the end of a leg says about its rank, leg by leg. */
#include "rig.h"

#define NONE 99u /* no order with an outcome */

static struct rig g;

static struct rig_call *new_request(uint32_t reroutes)
{
	struct rig_call *c;

	rig_start(&g, 8, 10);
	g.a.reroutes = g.d.reroutes = (uint8_t)reroutes;
	g.d.affinity_ns = g.p.affinity_ns = 0;
	rig_join(&g, 'a', &g.a, false);
	rig_join(&g, 'd', &g.d, false);
	c = rig_new(&g);
	c->outcome[0] = c->outcome[1] = NONE;
	return c;
}

static struct rig_call *begin_pair(bool bootstrap, uint32_t reroutes)
{
	struct rig_call *c = new_request(reroutes);

	rig_join(&g, 'p', &g.p, bootstrap);
	return c;
}

static void end_outcomes(void)
{
	rig_said(&g);
	rig_finish(&g);
	rig_stop(&g);
}

static void ends_of_one_leg(void)
{
	static const struct {
		uint16_t flags;
		uint32_t outcome;
	} rows[] = {
		{0, KVR_SCHED_SERVED},
		{KVR_RQEF_FAILED, KVR_SCHED_FAILED},
		{KVR_RQEF_FAILED | KVR_RQEF_ERROR, KVR_SCHED_FAILED},
		{KVR_RQEF_REFUSED, KVR_SCHED_OVERLOADED},
		{KVR_RQEF_REFUSED | KVR_RQEF_ERROR, KVR_SCHED_OVERLOADED},
		{KVR_RQEF_ERROR, KVR_SCHED_NEUTRAL},
		{KVR_RQEF_CANCELLED, KVR_SCHED_GIVEN_UP},
	};

	for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rig_call *c = new_request(0);

		rig_arrive(&g, c, &g.a);
		RIG(&g, c, FIN, .flags = rows[i].flags);
		CU_ASSERT_EQUAL(c->outcome[0], rows[i].outcome);
		end_outcomes();
	}
}

static void a_second_failure_is_not_counted(void)
{
	struct rig_call *c = new_request(0);

	c->msg.hints.n_failed_at = 1;
	rig_arrive(&g, c, &g.a);
	RIG(&g, c, FIN, .flags = KVR_RQEF_FAILED);
	CU_ASSERT_EQUAL(c->outcome[0], KVR_SCHED_NEUTRAL);
	end_outcomes();
	c = new_request(0);
	c->msg.hints.n_failed_at = 1;
	rig_arrive(&g, c, &g.a);
	RIG(&g, c, FIN);
	CU_ASSERT_EQUAL(c->outcome[0], KVR_SCHED_SERVED);
	end_outcomes();
}

static void a_worker_that_leaves_has_no_room(void)
{
	struct rig_call *c = new_request(0);

	rig_arrive(&g, c, &g.a);
	RIG(&g, c, DECLINED, .code = 503);
	CU_ASSERT_EQUAL(c->outcome[0], KVR_SCHED_OVERLOADED);
	CU_ASSERT_EQUAL(c->detail[0], 503);
	CU_ASSERT_EQUAL(c->detail[1], 'a'); /* the client may not know its worker */
	end_outcomes();
	c = new_request(0);
	rig_arrive(&g, c, &g.a);
	RIG(&g, c, DECLINED, .code = 400);
	CU_ASSERT_EQUAL(c->outcome[0], KVR_SCHED_NEUTRAL);
	end_outcomes();
}

static void a_cancelled_request_was_given_up(void)
{
	struct rig_call *c = new_request(0);

	rig_arrive(&g, c, &g.a);
	RIG(&g, c, TAKEN);
	RIG(&g, c, CANCEL);
	CU_ASSERT_EQUAL(c->outcome[0], KVR_SCHED_GIVEN_UP);
	RIG(&g, c, ABORTED);
	end_outcomes();
	/* A booked request is run by its client: the router knows nothing of its engine. */
	c = new_request(0);
	c->msg.book = true;
	rig_arrive(&g, c, &g.a);
	RIG(&g, c, CANCEL);
	CU_ASSERT_EQUAL(c->outcome[0], KVR_SCHED_NEUTRAL);
	end_outcomes();
}

static void each_leg_answers_for_its_own_rank(void)
{
	struct rig_call *c = begin_pair(false, 0);

	rig_arrive(&g, c, &g.d);
	RIG(&g, c, FIN, .leg = 1, .flags = KVR_RQEF_ERROR | KVR_RQEF_FAILED);
	CU_ASSERT_EQUAL(c->outcome[1], KVR_SCHED_FAILED);
	CU_ASSERT_EQUAL(c->outcome[0], NONE);
	CU_ASSERT_EQUAL(c->detail[1], 'p');
	end_outcomes();
	c = begin_pair(true, 0);
	rig_arrive(&g, c, &g.d);
	RIG(&g, c, TAKEN);
	RIG(&g, c, FIN, .leg = 1, .flags = KVR_RQEF_ERROR | KVR_RQEF_REFUSED);
	CU_ASSERT_EQUAL(c->outcome[1], KVR_SCHED_OVERLOADED);
	CU_ASSERT_EQUAL(c->outcome[0], KVR_SCHED_NEUTRAL); /* stopped for the other one */
	RIG(&g, c, ABORTED);
	end_outcomes();
	c = begin_pair(false, 0);
	rig_arrive(&g, c, &g.d);
	RIG(&g, c, FIN, .leg = 1, .flags = KVR_RQEF_RESULT);
	CU_ASSERT_EQUAL(c->outcome[1], KVR_SCHED_SERVED);
	RIG(&g, c, FIN, .flags = KVR_RQEF_FAILED);
	CU_ASSERT_EQUAL(c->outcome[0], KVR_SCHED_FAILED);
	CU_ASSERT_EQUAL(c->outcome[1], KVR_SCHED_SERVED);
	end_outcomes();
	/* A broken decode engine reports its failure while the prefill goes on. */
	c = begin_pair(true, 0);
	rig_arrive(&g, c, &g.d);
	RIG(&g, c, FIN, .flags = KVR_RQEF_ERROR | KVR_RQEF_FAILED);
	CU_ASSERT_EQUAL(c->outcome[0], KVR_SCHED_FAILED);
	CU_ASSERT_EQUAL(c->outcome[1], NONE);
	RIG(&g, c, FIN, .leg = 1, .flags = KVR_RQEF_RESULT);
	CU_ASSERT_EQUAL(c->outcome[1], KVR_SCHED_SERVED);
	end_outcomes();
	/* A first token that is followed by a failure shows that the prefill leg was well. */
	c = begin_pair(true, 0);
	rig_arrive(&g, c, &g.d);
	RIG(&g, c, FIN, .tokens = 3, .flags = KVR_RQEF_FIRST | KVR_RQEF_FAILED);
	CU_ASSERT_EQUAL(c->outcome[1], KVR_SCHED_SERVED);
	CU_ASSERT_EQUAL(c->outcome[0], KVR_SCHED_FAILED);
	end_outcomes();
}

static void the_leg_that_keeps_the_client_waiting_is_given_up(void)
{
	for (int bootstrap = 0; bootstrap < 2; bootstrap++) {
		struct rig_call *c = begin_pair(bootstrap, 0);

		rig_arrive(&g, c, &g.d);
		RIG(&g, c, TAKEN, .leg = 1);
		RIG(&g, c, CANCEL);
		CU_ASSERT_EQUAL(c->outcome[1], KVR_SCHED_GIVEN_UP);
		CU_ASSERT_EQUAL(c->outcome[0], bootstrap ? KVR_SCHED_NEUTRAL : NONE);
		RIG(&g, c, FIN, .leg = 1, .flags = KVR_RQEF_ERROR);
		if (c->aborting[0])
			RIG(&g, c, ABORTED);
		end_outcomes();
	}
	{
		struct rig_call *c = begin_pair(false, 0);

		rig_arrive(&g, c, &g.d);
		RIG(&g, c, FIN, .leg = 1, .flags = KVR_RQEF_RESULT);
		RIG(&g, c, CANCEL);
		CU_ASSERT_EQUAL(c->outcome[1], KVR_SCHED_SERVED);
		CU_ASSERT_EQUAL(c->outcome[0], KVR_SCHED_GIVEN_UP);
		RIG(&g, c, ABORTED);
		end_outcomes();
	}
}

static void another_try_does_not_count_when_it_fails_too(void)
{
	struct rig_call *c = begin_pair(false, 1);

	rig_join(&g, 'q', &g.p, false);
	rig_arrive(&g, c, &g.d);
	RIG(&g, c, FIN, .leg = 1, .flags = KVR_RQEF_ERROR | KVR_RQEF_FAILED);
	CU_ASSERT_EQUAL(c->outcome[1], KVR_SCHED_FAILED);
	CU_ASSERT_EQUAL(c->at[1], 'q');
	RIG(&g, c, FIN, .leg = 1, .flags = KVR_RQEF_ERROR | KVR_RQEF_FAILED);
	CU_ASSERT_EQUAL(c->outcome[1], KVR_SCHED_NEUTRAL);
	end_outcomes();
}

static void an_affinity_yields_where_the_request_has_failed(void)
{
	struct rig_call *c = new_request(0);
	const uint64_t first = 'a';

	rig_join(&g, 'b', &g.a, false);
	rig_session(c, "chat", KVR_RQ_USE);
	rig_arrive(&g, c, &g.a);
	RIG(&g, c, TAKEN);
	CU_ASSERT_EQUAL(c->at[0], first);
	RIG(&g, c, FIN, .flags = KVR_RQEF_REFUSED);
	RIG(&g, c, FIN_ACKED);
	/* The binding has outlived the refusal; a retry is not pinned to it. */
	c = rig_new(&g);
	rig_session(c, "chat", KVR_RQ_USE);
	rig_arrive(&g, c, &g.a);
	CU_ASSERT_EQUAL(c->msg.hints.present & KVR_HAS(KVR_HINT_BACKEND),
			KVR_HAS(KVR_HINT_BACKEND));
	RIG(&g, c, FIN);
	RIG(&g, c, FIN_ACKED);
	c = rig_new(&g);
	rig_session(c, "chat", KVR_RQ_USE);
	c->msg.hints.n_failed_at = 1;
	c->msg.hints.failed_at = &(const struct kvr_wire_rank){.worker = first};
	rig_arrive(&g, c, &g.a);
	CU_ASSERT_EQUAL(c->msg.hints.present & KVR_HAS(KVR_HINT_BACKEND), 0);
	RIG(&g, c, FIN);
	end_outcomes();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(ends_of_one_leg),
			       KVR_CASE(a_second_failure_is_not_counted),
			       KVR_CASE(a_worker_that_leaves_has_no_room),
			       KVR_CASE(a_cancelled_request_was_given_up),
			       KVR_CASE(each_leg_answers_for_its_own_rank),
			       KVR_CASE(the_leg_that_keeps_the_client_waiting_is_given_up),
			       KVR_CASE(another_try_does_not_count_when_it_fails_too),
			       KVR_CASE(an_affinity_yields_where_the_request_has_failed),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("outcomes", tests);
}
