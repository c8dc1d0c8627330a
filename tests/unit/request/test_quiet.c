/* SPDX-License-Identifier: BSD-3-Clause */
/* A request whose client wants no word about it while an item may say it. */
#include "rig.h"

static struct rig g;

static struct rig_call *begin(void)
{
	struct rig_call *c;

	rig_start(&g, 4, 0);
	rig_join(&g, 'a', &g.a, false);
	c = rig_new(&g);
	c->msg.quiet = true;
	return c;
}

static void end(void)
{
	rig_finish(&g);
	rig_stop(&g);
}

static void an_item_says_it_all(void)
{
	struct rig_call *c = begin();

	rig_arrive(&g, c, &g.a);
	RIG_SAID(&g, "a.DISPATCH");
	RIG(&g, c, ITEM, .tokens = 1);
	RIG(&g, c, FIN, .tokens = 2);
	RIG_SAID(&g, "");
	end();
}

static void its_worker_acknowledges_first(void)
{
	struct rig_call *c = begin();

	rig_arrive(&g, c, &g.a);
	RIG_SAID(&g, "a.DISPATCH");
	RIG(&g, c, TAKEN);
	RIG_SAID(&g, "c.RUNNING");
	RIG(&g, c, FIN, .tokens = 1);
	RIG_SAID(&g, "");
	end();
}

static void its_worker_refuses(void)
{
	struct rig_call *c = begin();

	rig_arrive(&g, c, &g.a);
	RIG(&g, c, DECLINED, .code = 7);
	RIG_SAID(&g, "a.DISPATCH c.DispatchFailed");
	end();
}

static void who_asks_is_told(void)
{
	struct rig_call *c = begin();

	rig_arrive(&g, c, &g.a);
	RIG(&g, c, PROBED);
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED");
	RIG(&g, c, REPEATED, .flags = KVR_RQEF_SAME | KVR_RQEF_RESEND);
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED");
	end();
}

static void who_was_told_to_wait_hears_more(void)
{
	struct rig_call *c = begin();

	g.full_a = true;
	rig_arrive(&g, c, &g.a);
	RIG_SAID(&g, "c.QUEUED");
	rig_turn(&g, c, KVR_LEG_MAIN);
	RIG_SAID(&g, "a.DISPATCH c.DISPATCHED");
	end();
}

static void another_worker_is_told(void)
{
	struct rig_call *c = begin();

	rig_arrive(&g, c, &g.a);
	RIG_SAID(&g, "a.DISPATCH");
	rig_join(&g, 'b', &g.a, false);
	g.ctx.now += 500 * MS;
	RIG(&g, c, REPEATED, .flags = KVR_RQEF_SAME | KVR_RQEF_RESEND);
	RIG_SAID(&g, "a.ABORT b.DISPATCH c.DISPATCHED");
	end();
}

static void two_legs_are_told(void)
{
	struct rig_call *c;

	rig_start(&g, 0, 0);
	rig_join(&g, 'd', &g.d, false);
	rig_join(&g, 'p', &g.p, true);
	c = rig_new(&g);
	c->msg.quiet = true;
	rig_arrive(&g, c, &g.d);
	RIG_SAID(&g, "p.DISPATCH d.DISPATCH c.DISPATCHED");
	end();
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"item", an_item_says_it_all},
		{"acknowledged", its_worker_acknowledges_first},
		{"refused", its_worker_refuses},
		{"asked", who_asks_is_told},
		{"queued", who_was_told_to_wait_hears_more},
		{"rerouted", another_worker_is_told},
		{"legs", two_legs_are_told},
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("quiet", tests);
}
