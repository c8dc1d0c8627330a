/* SPDX-License-Identifier: BSD-3-Clause */
/* The rules of a request's life, one by one; sessions and faults have files of their own. */
#include "rig.h"

static struct rig g;

static struct rig_call *begin_rules(void)
{
	rig_start(&g, 0, 0);
	rig_join(&g, 'a', &g.a, false);
	rig_join(&g, 'd', &g.d, false);
	return rig_new(&g);
}

static void end_rules(void)
{
	rig_finish(&g);
	rig_stop(&g);
}

/* ---- one leg ----------------------------------------------------------------------------- */

static void aggregated_request(void)
{
	struct rig_call *c = begin_rules();

	rig_arrive(&g, c, &g.a);
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED");
	CU_ASSERT_FALSE(c->msg_kept); /* its client sends it again */
	RIG(&g, c, TAKEN);
	CU_ASSERT_EQUAL(RIG(&g, c, TAKEN), KVR_RQ_GO); /* it has it still */
	CU_ASSERT_EQUAL(c->kept[0], 2);
	RIG(&g, c, ITEM, .flags = KVR_RQEF_FIRST, .tokens = 1);
	RIG(&g, c, FIN, .tokens = 2);
	CU_ASSERT_FALSE(c->booked[0]);
	CU_ASSERT_EQUAL(RIG(&g, c, FIN, .tokens = 2), KVR_RQ_LATE);
	CU_ASSERT_TRUE(c->live); /* it lingers until the client has the end */
	RIG(&g, c, FIN_ACKED);
	CU_ASSERT_FALSE(c->live);
	RIG_SAID(&g, "");
	end_rules();
}

static void item_is_an_acknowledgement(void)
{
	struct rig_call *c = begin_rules();

	rig_arrive(&g, c, &g.a);
	RIG(&g, c, ITEM, .tokens = 1);
	CU_ASSERT_EQUAL(c->r.leg[0].state, KVR_RQS_RUNNING);
	CU_ASSERT_EQUAL(RIG(&g, c, DECLINED, .code = 1), KVR_RQ_NEVER);
	end_rules();
}

static void refused_at_once_leaves_no_trace(void)
{
	struct rig_call *c = begin_rules();

	g.refuse = KVR_E_QUEUE_REJECTED;
	rig_arrive(&g, c, &g.a);
	RIG_SAID(&g, "c.QueueRejected");
	CU_ASSERT_FALSE(c->live);
	CU_ASSERT_TRUE(c->retryable);
	CU_ASSERT_EQUAL(c->detail[0], KVR_LIMIT_RAW_ISL_TOKENS + 1);
	CU_ASSERT_EQUAL(rig_counter(&g, &g.a, KVR_RQC_FORGOTTEN), 1);
	end_rules();
}

static void no_endpoints_is_retryable_while_workers_are_expected(void)
{
	struct rig_call *c = begin_rules();

	rig_leave(&g, 'a');
	rig_arrive(&g, c, &g.a);
	RIG_SAID(&g, "c.NoEndpoints");
	CU_ASSERT_FALSE(c->retryable);
	g.a.expected = true;
	rig_arrive(&g, c, &g.a);
	CU_ASSERT_TRUE(c->retryable);
	rig_said(&g);
	end_rules();
}

static void waits_and_is_admitted(void)
{
	struct rig_call *c = begin_rules();

	g.full_a = true;
	rig_arrive(&g, c, &g.a);
	RIG_SAID(&g, "c.QUEUED");
	CU_ASSERT_TRUE(c->held);
	rig_turn(&g, c, KVR_LEG_MAIN);
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED");
	end_rules();
}

static void waits_and_is_not_admitted(void)
{
	struct rig_call *c = begin_rules();

	g.full_a = true;
	rig_arrive(&g, c, &g.a);
	g.refuse = KVR_E_PINNED_OVERLOADED;
	rig_turn(&g, c, KVR_LEG_MAIN);
	RIG_SAID(&g, "c.QUEUED c.PinnedWorkerOverloaded");
	/* It was accepted: ACCEPTED is repeated. */
	CU_ASSERT_TRUE(c->live);
	RIG(&g, c, REPEATED, .flags = KVR_RQEF_SAME);
	RIG(&g, c, PROBED);
	RIG_SAID(&g, "c.PinnedWorkerOverloaded c.PinnedWorkerOverloaded");
	end_rules();
}

static void cannot_be_kept(void)
{
	struct rig_call *c = begin_rules();

	g.full_a = g.no_hold = true;
	rig_arrive(&g, c, &g.a);
	RIG_SAID(&g, "c.NoMemory");
	CU_ASSERT_FALSE(c->live);
	g.full_a = false;
	rig_arrive(&g, c, &g.d); /* a pair, and it would have to be kept */
	RIG_SAID(&g, "c.NotActivated");
	rig_join(&g, 'p', &g.p, false);
	rig_arrive(&g, c, &g.d);
	RIG_SAID(&g, "c.NoMemory");
	CU_ASSERT_FALSE(c->live);
	end_rules();
}

static void worker_unknown_to_the_view(void)
{
	struct rig_call *c = begin_rules();
	struct kvr_rq_orders out;
	const struct kvr_sched_decision d = {.result = KVR_SCHED_ROUTED, .worker = 'z'};
	const struct kvr_rq_event e = {.kind = KVR_RQE_ROUTED, .d = &d};

	c->live = c->msg_kept = c->main_slot = true;
	c->msg.req.isl = 1;
	kvr_request_arrive(&g.ctx, &c->r, &g.a, &c->msg, NULL, &out);
	c->booked[0] = true;
	kvr_request_step(&g.ctx, &c->r, &e, &out);
	rig_carry(&g, c, &out);
	RIG_SAID(&g, "c.WorkerLost");
	CU_ASSERT_FALSE(c->live);
	end_rules();
}

static void closed_pool_rejects_requests(void)
{
	struct rig_call *c = begin_rules();

	g.a.closed = true;
	rig_arrive(&g, c, &g.a);
	RIG_SAID(&g, "c.Shutdown");
	CU_ASSERT_FALSE(c->live);
	end_rules();
}

static void worker_declines(void)
{
	struct rig_call *c = begin_rules();

	rig_arrive(&g, c, &g.a);
	RIG(&g, c, DECLINED, .code = 9);
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED c.DispatchFailed");
	CU_ASSERT_EQUAL(c->detail[0], 9);
	CU_ASSERT_FALSE(c->booked[0]);
	end_rules();
}

/* The load is released, the request goes on; later messages do not renew it. */
static void booking_is_released(void)
{
	struct rig_call *c = begin_rules();

	rig_arrive(&g, c, &g.a);
	RIG(&g, c, TAKEN);
	rig_said(&g);
	rig_release(&g, c, 0);
	RIG(&g, c, TAKEN);
	RIG(&g, c, ITEM);
	RIG(&g, c, ITEM, .flags = KVR_RQEF_FIRST, .tokens = 1);
	RIG(&g, c, PROBED);
	RIG_SAID(&g, "c.RUNNING");
	CU_ASSERT_EQUAL(c->kept[0], 1);
	RIG(&g, c, FIN, .tokens = 2);
	CU_ASSERT_FALSE(c->booked[0]); /* its slot is given back once */
	end_rules();
}

/* What ends a request ends one without a booking, too. */
static void released_request_ends_as_any(void)
{
	struct rig_call *c = begin_rules();

	rig_arrive(&g, c, &g.a);
	rig_release(&g, c, 0);
	RIG(&g, c, CANCEL);
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED a.ABORT c.CANCELLED");
	RIG(&g, c, LINGERED);
	c = rig_new(&g);
	rig_arrive(&g, c, &g.a);
	RIG(&g, c, TAKEN);
	rig_release(&g, c, 0);
	rig_said(&g);
	rig_leave(&g, 'a');
	RIG_SAID(&g, "c.WorkerLost");
	rig_join(&g, 'a', &g.a, false);
	c = rig_new(&g);
	rig_arrive(&g, c, &g.a);
	RIG(&g, c, TAKEN);
	CU_ASSERT_EQUAL(RIG(&g, c, CLIENT_GONE), KVR_RQ_LATE);
	rig_release(&g, c, 0);
	rig_said(&g);
	CU_ASSERT_EQUAL(RIG(&g, c, CLIENT_GONE), KVR_RQ_GO); /* client and worker are silent */
	RIG_SAID(&g, "c.Expired a.ABORT");
	end_rules();
}

/* Twenty minutes of prefill, two hours of answer: each word counts once, whatever it is. */
static void every_word_of_the_worker_is_a_renewal(void)
{
	struct rig_call *c = begin_rules();

	rig_arrive(&g, c, &g.a);
	for (uint32_t i = 0; i < 40; i++)
		RIG(&g, c, TAKEN);
	RIG(&g, c, ITEM); /* without a token */
	CU_ASSERT_EQUAL(c->kept[0], 41);
	RIG(&g, c, ITEM, .flags = KVR_RQEF_FIRST);
	RIG(&g, c, ITEM, .tokens = 1); /* these two are orders that renew it */
	CU_ASSERT_EQUAL(c->kept[0], 41);
	RIG(&g, c, PROBED);
	RIG(&g, c, REPEATED, .flags = KVR_RQEF_SAME);
	CU_ASSERT_EQUAL(c->kept[0], 41); /* a message of the client does not renew the booking */
	end_rules();
}

static void router_stops(void)
{
	struct rig_call *c = begin_rules(), *q;

	rig_arrive(&g, c, &g.a);
	CU_ASSERT_EQUAL(RIG(&g, c, STOP), KVR_RQ_GO);
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED c.Shutdown a.ABORT");
	CU_ASSERT_EQUAL(RIG(&g, c, STOP), KVR_RQ_LATE);
	q = rig_new(&g);
	g.full_a = true;
	rig_arrive(&g, q, &g.a);
	RIG(&g, q, STOP);
	RIG_SAID(&g, "c.QUEUED c.Shutdown");
	CU_ASSERT_FALSE(q->queued[0]);
	end_rules();
}

/* ---- what the client says ---------------------------------------------------------------- */

static void cancel_in_each_place(void)
{
	struct rig_call *c = begin_rules();

	g.full_a = true;
	rig_arrive(&g, c, &g.a);
	RIG(&g, c, CANCEL);
	RIG_SAID(&g, "c.QUEUED c.CANCELLED");
	RIG(&g, c, PROBED);
	RIG(&g, c, CANCEL); /* its answer was lost */
	RIG_SAID(&g, "c.Ended c.CANCELLED");
	RIG(&g, c, LINGERED);
	g.full_a = false;
	c = rig_new(&g);
	rig_arrive(&g, c, &g.a);
	RIG(&g, c, CANCEL);
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED a.ABORT c.CANCELLED");
	CU_ASSERT_EQUAL(RIG(&g, c, FIN), KVR_RQ_LATE);
	RIG(&g, c, LINGERED);
	c = rig_new(&g);
	rig_arrive(&g, c, &g.a);
	RIG(&g, c, FIN, .tokens = 1);
	RIG(&g, c, CANCEL);
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED c.CANCELLED");
	end_rules();
}

static void repeated_route(void)
{
	struct rig_call *c = begin_rules();

	rig_arrive(&g, c, &g.a);
	rig_said(&g);
	RIG(&g, c, REPEATED);
	RIG_SAID(&g, "c.DuplicateRequest");
	RIG(&g, c, REPEATED, .flags = KVR_RQEF_SAME);
	RIG_SAID(&g, "c.DISPATCHED"); /* another program retransmits it */
	RIG(&g, c, REPEATED, .flags = KVR_RQEF_SAME | KVR_RQEF_RESEND);
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED");
	CU_ASSERT_EQUAL(c->r.attempt, 1);
	RIG(&g, c, TAKEN);
	RIG(&g, c, REPEATED, .flags = KVR_RQEF_SAME | KVR_RQEF_RESEND);
	RIG_SAID(&g, "c.RUNNING");
	RIG(&g, c, FIN, .tokens = 1);
	RIG(&g, c, PROBED); /* its worker repeats the last item */
	RIG_SAID(&g, "c.RUNNING");
	end_rules();
}

static void deadline_of_one_that_waits(void)
{
	struct rig_call *c = begin_rules();

	g.full_a = true;
	rig_arrive(&g, c, &g.a);
	RIG(&g, c, DEADLINE);
	RIG_SAID(&g, "c.QUEUED c.Expired");
	CU_ASSERT_FALSE(c->queued[0]);
	c = rig_new(&g);
	g.full_a = false;
	rig_arrive(&g, c, &g.a);
	CU_ASSERT_EQUAL(RIG(&g, c, DEADLINE), KVR_RQ_LATE);
	end_rules();
}

/* Its message may be lost, and only its client would send it again. */
static void client_that_goes_takes_what_no_worker_has(void)
{
	struct rig_call *c = begin_rules();

	rig_arrive(&g, c, &g.a);
	RIG(&g, c, CLIENT_GONE);
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED c.Expired a.ABORT");
	CU_ASSERT_FALSE(c->booked[0]);
	CU_ASSERT_EQUAL(RIG(&g, c, CLIENT_GONE), KVR_RQ_LATE);
	c = rig_new(&g);
	rig_arrive(&g, c, &g.a);
	RIG(&g, c, TAKEN);
	CU_ASSERT_EQUAL(RIG(&g, c, CLIENT_GONE), KVR_RQ_LATE); /* its worker will find out */
	CU_ASSERT_TRUE(c->booked[0]);
	end_rules();
}

static void query_leaves_no_trace(void)
{
	struct rig_call *c = begin_rules();

	c->msg.req.query_only = true;
	g.full_a = true; /* is answered all the same */
	rig_arrive(&g, c, &g.a);
	RIG_SAID(&g, "c.QUERY");
	CU_ASSERT_FALSE(c->live);
	rig_join(&g, 'p', &g.p, true);
	c->msg.req.query_only = true;
	rig_arrive(&g, c, &g.d);
	RIG_SAID(&g, "c.QUERY");
	CU_ASSERT_EQUAL(c->r.way, KVR_WAY_BOOTSTRAP);
	CU_ASSERT_EQUAL(c->r.leg[1].worker, 'p');
	CU_ASSERT_EQUAL(c->r.leg[1].overlap_blocks, 3);
	end_rules();
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(aggregated_request),
		KVR_CASE(item_is_an_acknowledgement),
		KVR_CASE(refused_at_once_leaves_no_trace),
		KVR_CASE(no_endpoints_is_retryable_while_workers_are_expected),
		KVR_CASE(waits_and_is_admitted),
		KVR_CASE(waits_and_is_not_admitted),
		KVR_CASE(cannot_be_kept),
		KVR_CASE(worker_unknown_to_the_view),
		KVR_CASE(closed_pool_rejects_requests),
		KVR_CASE(worker_declines),
		KVR_CASE(booking_is_released),
		KVR_CASE(released_request_ends_as_any),
		KVR_CASE(every_word_of_the_worker_is_a_renewal),
		KVR_CASE(router_stops),
		KVR_CASE(cancel_in_each_place),
		KVR_CASE(repeated_route),
		KVR_CASE(deadline_of_one_that_waits),
		KVR_CASE(client_that_goes_takes_what_no_worker_has),
		KVR_CASE(query_leaves_no_trace),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("rules", tests);
}
