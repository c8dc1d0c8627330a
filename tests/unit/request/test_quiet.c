/* SPDX-License-Identifier: BSD-3-Clause */
/* Quiet requests: ACCEPTED is omitted while an item can replace it. */
#include "rig.h"

static struct rig g;

static struct rig_call *begin_quiet(void)
{
	struct rig_call *c;

	rig_start(&g, 4, 0);
	rig_join(&g, 'a', &g.a, false);
	c = rig_new(&g);
	c->msg.quiet = true;
	return c;
}

static void end_quiet(void)
{
	rig_finish(&g);
	rig_stop(&g);
}

static void item_replaces_accepted(void)
{
	struct rig_call *c = begin_quiet();

	rig_arrive(&g, c, &g.a);
	RIG_SAID(&g, "a.DISPATCH");
	RIG(&g, c, ITEM, .tokens = 1);
	RIG(&g, c, FIN, .tokens = 2);
	RIG_SAID(&g, "");
	end_quiet();
}

static void its_worker_acknowledges_first(void)
{
	struct rig_call *c = begin_quiet();

	rig_arrive(&g, c, &g.a);
	RIG_SAID(&g, "a.DISPATCH");
	RIG(&g, c, TAKEN);
	RIG_SAID(&g, "c.RUNNING");
	RIG(&g, c, FIN, .tokens = 1);
	RIG_SAID(&g, "");
	end_quiet();
}

static void its_worker_refuses(void)
{
	struct rig_call *c = begin_quiet();

	rig_arrive(&g, c, &g.a);
	RIG(&g, c, DECLINED, .code = 7);
	RIG_SAID(&g, "a.DISPATCH c.DispatchFailed");
	end_quiet();
}

static void probe_is_answered_with_accepted(void)
{
	struct rig_call *c = begin_quiet();

	rig_arrive(&g, c, &g.a);
	RIG(&g, c, PROBED);
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED");
	RIG(&g, c, REPEATED, .flags = KVR_RQEF_SAME | KVR_RQEF_RESEND);
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED");
	end_quiet();
}

static void accepted_after_waiting_is_sent(void)
{
	struct rig_call *c = begin_quiet();

	g.full_a = true;
	rig_arrive(&g, c, &g.a);
	RIG_SAID(&g, "c.QUEUED");
	rig_turn(&g, c, KVR_LEG_MAIN);
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED");
	end_quiet();
}

static void accepted_after_reroute_is_sent(void)
{
	struct rig_call *c = begin_quiet();

	rig_arrive(&g, c, &g.a);
	RIG_SAID(&g, "a.DISPATCH");
	rig_join(&g, 'b', &g.a, false);
	g.ctx.now += 500 * MS;
	RIG(&g, c, REPEATED, .flags = KVR_RQEF_SAME | KVR_RQEF_RESEND);
	RIG_SAID(&g, "a.ABORT b.DISPATCH c.DISPATCHED");
	end_quiet();
}

static void accepted_of_a_pair_is_sent(void)
{
	struct rig_call *c;

	rig_start(&g, 0, 0);
	rig_join(&g, 'd', &g.d, false);
	rig_join(&g, 'p', &g.p, true);
	c = rig_new(&g);
	c->msg.quiet = true;
	rig_arrive(&g, c, &g.d);
	RIG_SAID(&g, "p.DISPATCH d.DISPATCH c.DISPATCHED");
	end_quiet();
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(item_replaces_accepted),
		KVR_CASE(its_worker_acknowledges_first),
		KVR_CASE(its_worker_refuses),
		KVR_CASE(probe_is_answered_with_accepted),
		KVR_CASE(accepted_after_waiting_is_sent),
		KVR_CASE(accepted_after_reroute_is_sent),
		KVR_CASE(accepted_of_a_pair_is_sent),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("quiet", tests);
}
