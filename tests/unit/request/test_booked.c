/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests that are only booked: their clients run them, and no worker hears of it. */
#include "rig.h"

static struct rig g;

static struct rig_call *begin_booked(void)
{
	struct rig_call *c;

	rig_start(&g, 0, 0);
	rig_join(&g, 'a', &g.a, false);
	rig_join(&g, 'd', &g.d, false);
	c = rig_new(&g);
	c->msg.book = true;
	return c;
}

static void end_booked(void)
{
	rig_finish(&g);
	rig_stop(&g);
}

static void client_reports_progress_of_a_booked_request(void)
{
	struct rig_call *c = begin_booked();

	rig_arrive(&g, c, &g.a);
	RIG_SAID(&g, "a.BOOKED c.RUNNING");
	CU_ASSERT_FALSE(c->msg_kept);
	CU_ASSERT_TRUE(c->booked[0]);
	RIG(&g, c, ITEM, .flags = KVR_RQEF_FIRST, .tokens = 1);
	CU_ASSERT_TRUE(c->booked[0]);
	RIG(&g, c, FIN, .tokens = 9);
	CU_ASSERT_FALSE(c->booked[0]);
	CU_ASSERT_EQUAL(c->rejected, 0);
	RIG_SAID(&g, "");
	end_booked();
}

static void a_cancel_tells_no_worker(void)
{
	struct rig_call *c = begin_booked();

	rig_arrive(&g, c, &g.a);
	RIG_SAID(&g, "a.BOOKED c.RUNNING");
	RIG(&g, c, CANCEL);
	RIG_SAID(&g, "c.CANCELLED");
	CU_ASSERT_FALSE(c->booked[0]);
	end_booked();
}

static void a_dead_client_frees_it(void)
{
	struct rig_call *c = begin_booked();

	rig_arrive(&g, c, &g.a);
	RIG_SAID(&g, "a.BOOKED c.RUNNING");
	CU_ASSERT_EQUAL(RIG(&g, c, CLIENT_GONE), KVR_RQ_LATE); /* that is for those who wait */
	CU_ASSERT_TRUE(c->booked[0]);
	CU_ASSERT_EQUAL(RIG(&g, c, LEASE_OVER), KVR_RQ_GO);
	RIG_SAID(&g, "c.Expired");
	CU_ASSERT_FALSE(c->booked[0]);
	CU_ASSERT_EQUAL(RIG(&g, c, FIN), KVR_RQ_LATE); /* it was only slow */
	end_booked();
}

static void a_worker_that_goes_ends_it(void)
{
	struct rig_call *c = begin_booked();

	rig_arrive(&g, c, &g.a);
	rig_leave(&g, 'a');
	RIG_SAID(&g, "a.BOOKED c.RUNNING c.WorkerLost");
	end_booked();
}

/* Its client stands for the workers: every word of it renews what it has booked. */
static void the_client_renews_it(void)
{
	struct rig_call *c = begin_booked();

	rig_join(&g, 'p', &g.p, false);
	rig_arrive(&g, c, &g.d);
	RIG(&g, c, PROBED);
	RIG(&g, c, ITEM);
	RIG(&g, c, REPEATED, .flags = KVR_RQEF_SAME);
	CU_ASSERT(c->kept[0] == 3 && c->kept[1] == 3);
	RIG(&g, c, ITEM, .tokens = 1);
	RIG(&g, c, PROBED);
	CU_ASSERT(c->kept[0] == 4 && c->kept[1] == 3);
	rig_release(&g, c, 0);
	RIG(&g, c, PROBED);
	RIG(&g, c, ITEM, .tokens = 2);
	CU_ASSERT_EQUAL(c->kept[0], 4);
	CU_ASSERT_EQUAL(RIG(&g, c, LEASE_OVER), KVR_RQ_GO);
	CU_ASSERT_FALSE(c->booked[0]);
	end_booked();
}

static void waiting_request_is_booked_in_its_turn(void)
{
	struct rig_call *c = begin_booked();

	g.full_a = true;
	rig_arrive(&g, c, &g.a);
	RIG_SAID(&g, "c.QUEUED");
	g.full_a = false;
	CU_ASSERT_TRUE(rig_turn(&g, c, 0));
	RIG_SAID(&g, "a.BOOKED c.RUNNING");
	CU_ASSERT_FALSE(c->msg_kept);
	end_booked();
}

static void both_legs(bool bootstrap)
{
	struct rig_call *c = begin_booked();

	rig_join(&g, 'p', &g.p, bootstrap);
	rig_arrive(&g, c, &g.d);
	/* Both at once: nothing of the prefill worker's passes here. */
	RIG_SAID(&g, "p.BOOKED d.BOOKED c.RUNNING");
	CU_ASSERT_EQUAL(c->r.way, bootstrap ? KVR_WAY_BOOTSTRAP : KVR_WAY_SYNC);
	CU_ASSERT_FALSE(c->msg_kept);
	CU_ASSERT_TRUE(c->booked[0] && c->booked[1]);
	RIG(&g, c, ITEM, .flags = KVR_RQEF_FIRST);
	CU_ASSERT_TRUE(c->booked[0] && !c->booked[1]);
	RIG(&g, c, FIN, .tokens = 3);
	CU_ASSERT_FALSE(c->booked[0]);
	RIG_SAID(&g, "");
	end_booked();
}

static void legs_of_both_paths(void)
{
	both_legs(false);
	both_legs(true);
}

static void an_early_end_frees_both_legs(void)
{
	struct rig_call *c = begin_booked();

	rig_join(&g, 'p', &g.p, false);
	rig_arrive(&g, c, &g.d);
	RIG(&g, c, FIN, .flags = KVR_RQEF_ERROR);
	CU_ASSERT_FALSE(c->booked[0] || c->booked[1]);
	RIG_SAID(&g, "p.BOOKED d.BOOKED c.RUNNING");
	end_booked();
}

static void lost_prefill_worker_is_reported_without_another_attempt(void)
{
	struct rig_call *c = begin_booked();

	rig_join(&g, 'p', &g.p, false);
	rig_join(&g, 'q', &g.p, false);
	rig_arrive(&g, c, &g.d);
	rig_leave(&g, c->at[1]);
	CU_ASSERT_EQUAL(c->code, KVR_E_WORKER_LOST);
	CU_ASSERT_EQUAL(c->tries, 0);
	CU_ASSERT_FALSE(c->booked[0] || c->booked[1]);
	rig_said(&g);
	end_booked();
}

static void a_cancel_in_the_queue_leaves_it(void)
{
	struct rig_call *c = begin_booked();

	rig_join(&g, 'p', &g.p, false);
	g.full_d = true;
	rig_arrive(&g, c, &g.d);
	RIG_SAID(&g, "p.BOOKED c.QUEUED");
	RIG(&g, c, CANCEL);
	RIG_SAID(&g, "c.CANCELLED");
	CU_ASSERT_FALSE(c->queued[0] || c->booked[1]);
	end_booked();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(client_reports_progress_of_a_booked_request),
			       KVR_CASE(a_cancel_tells_no_worker),
			       KVR_CASE(a_dead_client_frees_it),
			       KVR_CASE(a_worker_that_goes_ends_it),
			       KVR_CASE(the_client_renews_it),
			       KVR_CASE(waiting_request_is_booked_in_its_turn),
			       KVR_CASE(legs_of_both_paths),
			       KVR_CASE(an_early_end_frees_both_legs),
			       KVR_CASE(lost_prefill_worker_is_reported_without_another_attempt),
			       KVR_CASE(a_cancel_in_the_queue_leaves_it),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("request/booked", tests);
}
