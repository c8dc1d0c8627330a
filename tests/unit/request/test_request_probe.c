/* SPDX-License-Identifier: BSD-3-Clause */
/* Health probes: they are run, answered and stopped like others, and nothing but that is done. */
#include "rig.h"

static struct rig g;

static struct rig_call *begin_probe(uint32_t sessions)
{
	struct rig_call *c;

	rig_start(&g, sessions, sessions);
	rig_join(&g, 'a', &g.a, false);
	rig_join(&g, 'p', &g.p, false);
	rig_join(&g, 'd', &g.d, false);
	g.a.predict = g.d.predict = g.p.predict = true;
	c = rig_new(&g);
	c->msg.req.probe = true;
	return c;
}

static void end_probe(void)
{
	CU_ASSERT_EQUAL(g.predicts, 0);
	CU_ASSERT_EQUAL(rig_counter(&g, &g.a, KVR_RQC_ARRIVED), 0);
	CU_ASSERT_EQUAL(rig_counter(&g, &g.a, KVR_RQC_DONE), 0);
	CU_ASSERT_EQUAL(rig_counter(&g, &g.a, KVR_RQC_FORGOTTEN), 0);
	CU_ASSERT_EQUAL(rig_counter(&g, &g.a, KVR_RQC_PROBES), 1);
	rig_finish(&g);
	rig_stop(&g);
}

/* What a step orders of the scheduler. */
static uint32_t count_scheduler_orders(const struct kvr_rq_orders *out)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < out->n; i++)
		n += out->v[i].kind == KVR_RQO_PREFILL_DONE || out->v[i].kind == KVR_RQO_OUTPUT;
	return n;
}

static void it_is_served_and_predicts_nothing(void)
{
	const struct kvr_rq_event item = {
		.kind = KVR_RQE_ITEM, .flags = KVR_RQEF_FIRST, .tokens = 9};
	struct rig_call *c = begin_probe(0);
	struct kvr_rq_orders out;

	rig_arrive(&g, c, &g.a);
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED");
	RIG(&g, c, TAKEN);
	CU_ASSERT_EQUAL(kvr_request_step(&g.ctx, &c->r, &item, &out), KVR_RQ_GO);
	CU_ASSERT_EQUAL(count_scheduler_orders(&out), 0);
	RIG(&g, c, FIN, .tokens = 9);
	CU_ASSERT_FALSE(c->booked[0]);
	end_probe();
}

static void a_session_that_it_names_is_not_touched(void)
{
	struct rig_call *c = begin_probe(4);

	rig_session(c, "s", KVR_RQ_OPEN);
	rig_arrive(&g, c, &g.a);
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED");
	RIG(&g, c, TAKEN);
	RIG(&g, c, FIN);
	CU_ASSERT_EQUAL(g.opens + g.closes + g.bound + g.unbound, 0);
	end_probe();
}

static void a_cancel_stops_it(void)
{
	struct rig_call *c = begin_probe(0);

	rig_arrive(&g, c, &g.a);
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED");
	RIG(&g, c, CANCEL);
	CU_ASSERT_FALSE(c->booked[0]);
	CU_ASSERT_TRUE(c->aborting[0]);
	end_probe();
}

static void removal_of_a_worker_ends_its_probe(void)
{
	struct rig_call *c = begin_probe(0);

	rig_arrive(&g, c, &g.a);
	rig_leave(&g, 'a');
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED c.WorkerLost");
	end_probe();
}

static void one_pool_of_a_pair_is_enough(void)
{
	struct rig_call *c = begin_probe(0);

	rig_arrive(&g, c, &g.d);
	RIG_SAID(&g, "d.DISPATCH c.DISPATCHED");
	CU_ASSERT_FALSE(c->r.paired);
	RIG(&g, c, TAKEN);
	RIG(&g, c, FIN);
	CU_ASSERT_EQUAL(rig_counter(&g, &g.d, KVR_RQC_PAIRED), 0);
	CU_ASSERT_EQUAL(rig_counter(&g, &g.d, KVR_RQC_BYPASSED), 0);
	CU_ASSERT_EQUAL(rig_counter(&g, &g.d, KVR_RQC_PROBES), 1);
	CU_ASSERT_EQUAL(g.predicts, 0);
	rig_finish(&g);
	rig_stop(&g);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(it_is_served_and_predicts_nothing),
			       KVR_CASE(a_session_that_it_names_is_not_touched),
			       KVR_CASE(a_cancel_stops_it),
			       KVR_CASE(removal_of_a_worker_ends_its_probe),
			       KVR_CASE(one_pool_of_a_pair_is_enough),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("request/probe", tests);
}
