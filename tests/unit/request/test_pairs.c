/* SPDX-License-Identifier: BSD-3-Clause */
/* The rules of a request with two legs, one by one. */
#include "rig.h"

static struct rig g;

static struct rig_call *begin_pairs(void)
{
	rig_start(&g, 0, 0);
	rig_join(&g, 'a', &g.a, false);
	rig_join(&g, 'd', &g.d, false);
	return rig_new(&g);
}

static void end_pairs(void)
{
	rig_finish(&g);
	rig_stop(&g);
}

/* ---- two legs ---------------------------------------------------------------------------- */

static struct rig_call *begin_pair(bool bootstrap)
{
	struct rig_call *c = begin_pairs();

	rig_join(&g, 'p', &g.p, bootstrap);
	return c;
}

static void sync_path(void)
{
	struct rig_call *c = begin_pair(false);

	rig_arrive(&g, c, &g.d);
	RIG_SAID(&g, "p.DISPATCH c.QUEUED");
	RIG(&g, c, TAKEN, .leg = 1);
	RIG(&g, c, FIN, .leg = 1, .flags = KVR_RQEF_RESULT);
	RIG_SAID(&g, "d.DISPATCH c.DISPATCHED");
	CU_ASSERT_FALSE(c->prefill_slot);
	CU_ASSERT_EQUAL(c->pair.dreq.phase, KVR_ROLE_DECODE);
	CU_ASSERT_TRUE(c->msg_kept); /* the leg is sent again until its worker has it */
	RIG(&g, c, TAKEN);
	CU_ASSERT_TRUE(c->msg_kept); /* what it fetches may go before it is there */
	RIG(&g, c, ITEM);
	CU_ASSERT_FALSE(c->msg_kept);
	end_pairs();
}

static void bootstrap_path(void)
{
	struct rig_call *c = begin_pair(true);

	rig_arrive(&g, c, &g.d);
	RIG_SAID(&g, "p.DISPATCH d.DISPATCH c.DISPATCHED");
	CU_ASSERT_TRUE(c->r.room < UINT64_C(1) << 63);
	RIG(&g, c, TAKEN);
	RIG(&g, c, ITEM, .tokens = 1); /* the first output ends the prefill booking */
	CU_ASSERT_FALSE(c->booked[1]);
	CU_ASSERT_FALSE(c->msg_kept);
	end_pairs();
}

static void prefill_runs_on_when_decode_has_ended(void)
{
	struct rig_call *c = begin_pair(true);

	rig_arrive(&g, c, &g.d);
	RIG(&g, c, FIN, .flags = KVR_RQEF_ERROR);
	CU_ASSERT_TRUE(c->booked[1]);
	RIG(&g, c, FIN_ACKED);
	CU_ASSERT_TRUE(c->live);
	RIG(&g, c, TAKEN, .leg = 1);
	RIG(&g, c, FIN, .leg = 1, .flags = KVR_RQEF_RESULT);
	CU_ASSERT_FALSE(c->live);
	rig_said(&g);
	end_pairs();
}

static void no_prefill_side(void)
{
	struct rig_call *c = begin_pairs();

	rig_arrive(&g, c, &g.d);
	RIG_SAID(&g, "c.NotActivated");
	CU_ASSERT_TRUE(c->retryable);
	CU_ASSERT_FALSE(c->live);
	g.dconf.enforce_disagg = false;
	rig_arrive(&g, c, &g.d);
	RIG_SAID(&g, "d.DISPATCH c.DISPATCHED");
	CU_ASSERT_EQUAL(c->r.way, KVR_WAY_BYPASSED);
	CU_ASSERT_FALSE(c->r.paired);
	end_pairs();
}

static void better_alone(void)
{
	struct rig_call *c = begin_pair(false);

	g.dconf.disagg_policy = KVR_DISAGG_ISL_BOUNDING;
	g.alone = true;
	rig_arrive(&g, c, &g.d);
	RIG_SAID(&g, "d.DISPATCH c.DISPATCHED");
	CU_ASSERT_EQUAL(rig_counter(&g, &g.d, KVR_RQC_BYPASSED), 1);
	end_pairs();
}

/* Found before anything is computed. */
static void rank_missing(void)
{
	struct rig_call *c = begin_pair(false);

	rig_worker(&g, 'd')->dp_size = 2;
	c->msg.hints.present = KVR_HAS(KVR_HINT_DECODE_WORKER);
	c->msg.hints.decode_worker = 'd';
	rig_arrive(&g, c, &g.d);
	RIG_SAID(&g, "c.DpRankRequired");
	CU_ASSERT_FALSE(c->live);
	c->msg.hints.present |= KVR_HAS(KVR_HINT_DP_RANK);
	rig_arrive(&g, c, &g.d);
	RIG_SAID(&g, "p.DISPATCH c.QUEUED");
	rig_finish(&g);
	g.dconf.mode = KVR_MODE_ROUND_ROBIN; /* any rank will do */
	c = rig_new(&g);
	c->msg.hints.present = KVR_HAS(KVR_HINT_BACKEND);
	c->msg.hints.backend_worker = 'd';
	rig_said(&g);
	rig_arrive(&g, c, &g.d);
	RIG_SAID(&g, "p.DISPATCH c.QUEUED");
	end_pairs();
}

static void hints_of_the_prefill_leg(void)
{
	static const uint64_t decode_only[] = {'d'}, both[] = {'d', 'p'};
	struct rig_call *c = begin_pair(false);
	struct kvr_hints *h = &c->pair.phints;

	c->msg.hints.present = KVR_HAS(KVR_HINT_DECODE_WORKER) | KVR_HAS(KVR_HINT_ALLOWED_WORKERS) |
			       KVR_HAS_EXPECTED_OUTPUT;
	c->msg.hints.decode_worker = 'd';
	c->msg.hints.allowed = decode_only;
	c->msg.hints.n_allowed = 1;
	rig_arrive(&g, c, &g.d);
	CU_ASSERT_EQUAL(h->present, 0);
	CU_ASSERT_EQUAL(c->pair.preq.phase, KVR_ROLE_PREFILL);
	rig_finish(&g);
	c = rig_new(&g);
	h = &c->pair.phints;
	c->msg.hints.present = KVR_HAS(KVR_HINT_ALLOWED_WORKERS);
	c->msg.hints.allowed = both;
	c->msg.hints.n_allowed = 2;
	rig_arrive(&g, c, &g.d);
	CU_ASSERT_EQUAL(h->present, KVR_HAS(KVR_HINT_ALLOWED_WORKERS));
	end_pairs();
}

static void policy_classes_go_by_name(void)
{
	struct rig_call *c = begin_pair(false);

	g.dconf.n_classes = g.pconf.n_classes = 2;
	kvr_pool_class_init(&g.dconf.classes[0], "slow");
	kvr_pool_class_init(&g.dconf.classes[1], "fast");
	kvr_pool_class_init(&g.pconf.classes[0], "fast");
	kvr_pool_class_init(&g.pconf.classes[1], "slow");
	c->msg.hints.policy = (struct kvr_str){"fast", 4};
	rig_arrive(&g, c, &g.d);
	CU_ASSERT_EQUAL(c->msg.hints.policy_class, 1);
	CU_ASSERT_EQUAL(c->pair.phints.policy_class, 0);
	c = rig_new(&g);
	c->msg.hints.policy = (struct kvr_str){"fas", 3};
	rig_arrive(&g, c, &g.d);
	CU_ASSERT_EQUAL(c->msg.hints.policy_class, KVR_SCHED_NO_CLASS); /* the first */
	CU_ASSERT_EQUAL(rig_counter(&g, &g.d, KVR_RQC_UNKNOWN_CLASS), 1);
	end_pairs();
}

static void transfer_without_domain_is_refused(void)
{
	struct rig_call *c = begin_pair(false);

	rig_worker(&g, 'p')->transfer = 2;
	rig_arrive(&g, c, &g.d);
	RIG_SAID(&g, "c.NoEndpoints");
	CU_ASSERT_FALSE(c->live);
	rig_worker(&g, 'p')->taint = "dynamo.topology/zone=1";
	rig_arrive(&g, c, &g.d);
	CU_ASSERT_EQUAL(c->pair.dhints.n_required, 1);
	rig_said(&g);
	end_pairs();
}

static void predictions_in_kv_mode_only(void)
{
	static const struct {
		int mode;
		bool events;
		double predicted;
		uint32_t n;
	} rows[] = {
		{KVR_MODE_KV, true, NAN, 0},	       {KVR_MODE_KV, true, 5, 1},
		{KVR_MODE_KV, false, NAN, 1},	       {KVR_MODE_RANDOM, true, 5, 0},
		{KVR_MODE_ROUND_ROBIN, false, NAN, 0},
	};

	for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rig_call *c = begin_pairs();

		g.aconf.mode = rows[i].mode;
		g.aconf.use_kv_events = rows[i].events;
		g.aconf.predicted_ttl_s = rows[i].predicted;
		kvr_request_pool_init(&g.a, &g.aconf, NULL, g.a.count);
		rig_arrive(&g, c, &g.a);
		CU_ASSERT_EQUAL(g.predicts, rows[i].n);
		rig_said(&g);
		end_pairs();
	}
}

/* ---- another try ------------------------------------------------------------------------- */

static void failed_prefill_worker_is_not_asked_again(void)
{
	struct rig_call *c = begin_pair(false);

	rig_arrive(&g, c, &g.d);
	rig_join(&g, 'q', &g.p, false);
	RIG(&g, c, DECLINED, .leg = 1, .code = 3);
	RIG_SAID(&g, "p.DISPATCH c.QUEUED q.DISPATCH");
	CU_ASSERT_EQUAL(c->pair.phints.exclude_worker, 'p');
	RIG(&g, c, FIN, .leg = 1); /* an end without result is no end */
	RIG_SAID(&g, "c.PrefillFailed");
	CU_ASSERT_FALSE(c->booked[1]);
	end_pairs();
}

static void reason_of_the_first_failure_counts(void)
{
	struct rig_call *c = begin_pair(false);

	rig_arrive(&g, c, &g.d);
	rig_leave(&g, 'p');
	RIG_SAID(&g, "p.DISPATCH c.QUEUED c.WorkerLost");
	end_pairs();
}

static void every_try_has_its_own_handle(void)
{
	struct rig_call *c = begin_pair(true);

	rig_join(&g, 'q', &g.p, true);
	g.d.reroutes = 2;
	rig_arrive(&g, c, &g.d);
	rig_said(&g);
	RIG(&g, c, FIN, .leg = 1, .flags = KVR_RQEF_ERROR);
	RIG_SAID(&g, "d.ABORT q.DISPATCH d.DISPATCH c.DISPATCHED");
	CU_ASSERT_EQUAL(c->tries, 1);
	g.no_renew = true;
	RIG(&g, c, FIN, .leg = 1, .flags = KVR_RQEF_ERROR);
	RIG_SAID(&g, "d.ABORT c.NoMemory");
	CU_ASSERT_TRUE(c->main_ended);
	end_pairs();
}

static void answered_requests_do_not_start_over(void)
{
	struct rig_call *c = begin_pair(true);

	rig_arrive(&g, c, &g.d);
	rig_said(&g);
	RIG(&g, c, FIN, .leg = 1, .flags = KVR_RQEF_ERROR | KVR_RQEF_ANSWERED);
	RIG_SAID(&g, "d.ABORT c.PrefillFailed");
	end_pairs();
	c = begin_pair(true);
	rig_arrive(&g, c, &g.d);
	RIG(&g, c, ITEM, .tokens = 1);
	CU_ASSERT_EQUAL(c->r.leg[1].state, KVR_RQS_FREE);
	rig_said(&g);
	end_pairs();
}

/* A pool that says no is not asked again; a leg that cannot be placed says why the first failed. */
static void refused_by_the_prefill_pool(void)
{
	struct rig_call *c = begin_pair(false);

	g.d.reroutes = 2;
	g.refuse = KVR_E_ALL_OVERLOADED;
	g.refuser = &g.p;
	rig_arrive(&g, c, &g.d);
	RIG_SAID(&g, "c.AllEligibleWorkersOverloaded");
	CU_ASSERT_EQUAL(rig_counter(&g, &g.d, KVR_RQC_RETRIES), 0);
	g.refuse = KVR_OK;
	rig_arrive(&g, c, &g.d);
	RIG(&g, c, DECLINED, .leg = 1, .code = 3); /* and no other worker exists */
	RIG_SAID(&g, "p.DISPATCH c.QUEUED c.PrefillFailed");
	CU_ASSERT_EQUAL(c->detail[0], 3);
	end_pairs();
}

/* That the prefill side has gone while a leg waited is no failed try. */
static void prefill_side_goes_while_a_leg_waits(void)
{
	struct rig_call *c = begin_pair(false);

	g.d.reroutes = 0;
	g.dconf.enforce_disagg = false;
	g.full_p = true;
	rig_arrive(&g, c, &g.d);
	rig_leave(&g, 'p');
	rig_turn(&g, c, KVR_LEG_PREFILL);
	RIG_SAID(&g, "c.QUEUED d.DISPATCH c.DISPATCHED");
	CU_ASSERT_EQUAL(c->r.way, KVR_WAY_BYPASSED);
	end_pairs();
}

/* Each leg has its own booking, and its own worker that speaks of it. */
static void legs_are_released_apart(void)
{
	struct rig_call *c = begin_pair(true);

	rig_arrive(&g, c, &g.d);
	RIG(&g, c, TAKEN, .leg = 1);
	RIG(&g, c, TAKEN);
	RIG(&g, c, TAKEN, .leg = 1);
	RIG(&g, c, ITEM, .leg = 1);
	CU_ASSERT(c->kept[0] == 1 && c->kept[1] == 3);
	rig_release(&g, c, 1);
	RIG(&g, c, TAKEN, .leg = 1);
	RIG(&g, c, TAKEN);
	CU_ASSERT(c->kept[0] == 2 && c->kept[1] == 3);
	rig_release(&g, c, 0);
	RIG_SAID(&g, "p.DISPATCH d.DISPATCH c.DISPATCHED");
	RIG(&g, c, ITEM, .tokens = 1);
	CU_ASSERT_FALSE(c->booked[1]); /* the first token ends it */
	end_pairs();
}

/* Its worker has not acknowledged ABORT, which needs the slot. */
static void unwanted_prefill_leg_keeps_its_slot(void)
{
	struct rig_call *c = begin_pair(false);

	rig_arrive(&g, c, &g.d);
	RIG(&g, c, CANCEL);
	RIG(&g, c, UNWANTED, .leg = 1);
	RIG_SAID(&g, "p.DISPATCH c.QUEUED c.CANCELLED p.ABORT");
	CU_ASSERT_TRUE(c->prefill_slot && c->prefill_ended);
	RIG(&g, c, FIN_ACKED);
	CU_ASSERT_TRUE(c->live);
	RIG(&g, c, ABORTED, .leg = 1);
	CU_ASSERT_FALSE(c->live);
	end_pairs();
}

/* A client that has left gets no further attempt and no message. */
static void cancelled_request_does_not_start_over(void)
{
	struct rig_call *c = begin_pair(false);

	rig_join(&g, 'q', &g.p, false);
	rig_arrive(&g, c, &g.d);
	RIG(&g, c, CANCEL);
	CU_ASSERT_EQUAL(RIG(&g, c, CLIENT_GONE), KVR_RQ_LATE);
	RIG(&g, c, FIN, .leg = 1, .flags = KVR_RQEF_ERROR);
	RIG_SAID(&g, "p.DISPATCH c.QUEUED c.CANCELLED");
	end_pairs();
}

/* No worker is left for a decode leg: abort the prefill leg, reject unless the client has left.
 */
static void router_stops_every_leg(void)
{
	for (int bootstrap = 0; bootstrap < 2; bootstrap++)
		for (int gone = 0; gone < 2; gone++) {
			struct rig_call *c = begin_pair(bootstrap);

			rig_arrive(&g, c, &g.d);
			if (gone && !bootstrap)
				RIG(&g, c, CANCEL);
			rig_said(&g);
			CU_ASSERT_EQUAL(RIG(&g, c, STOP), KVR_RQ_GO);
			RIG_SAID(&g, bootstrap ? "c.Shutdown p.ABORT d.ABORT"
				     : gone    ? "p.ABORT"
					       : "c.Shutdown p.ABORT");
			CU_ASSERT_FALSE(c->r.leg[0].booked || c->r.leg[1].booked);
			end_pairs();
		}
}

static void next_try_that_waits_has_no_way_yet(void)
{
	struct rig_call *c = begin_pair(false);

	rig_join(&g, 'q', &g.p, true);
	rig_arrive(&g, c, &g.d);
	CU_ASSERT_EQUAL(c->r.way, KVR_WAY_SYNC);
	g.full_p = true;
	RIG(&g, c, DECLINED, .leg = 1, .code = 1);
	CU_ASSERT_EQUAL(c->r.way, KVR_WAY_AGGREGATED);
	RIG(&g, c, CANCEL);
	CU_ASSERT_TRUE(c->main_ended); /* nothing is under way */
	rig_said(&g);
	end_pairs();
}

static void prefill_slot_missing(void)
{
	struct rig_call *c = begin_pair(true);

	g.no_slot = true;
	rig_arrive(&g, c, &g.d);
	RIG_SAID(&g, "c.NoMemory");
	CU_ASSERT_FALSE(c->live);
	end_pairs();
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(sync_path),
		KVR_CASE(bootstrap_path),
		KVR_CASE(prefill_runs_on_when_decode_has_ended),
		KVR_CASE(no_prefill_side),
		KVR_CASE(better_alone),
		KVR_CASE(rank_missing),
		KVR_CASE(hints_of_the_prefill_leg),
		KVR_CASE(policy_classes_go_by_name),
		KVR_CASE(transfer_without_domain_is_refused),
		KVR_CASE(predictions_in_kv_mode_only),
		KVR_CASE(failed_prefill_worker_is_not_asked_again),
		KVR_CASE(reason_of_the_first_failure_counts),
		KVR_CASE(every_try_has_its_own_handle),
		KVR_CASE(answered_requests_do_not_start_over),
		KVR_CASE(prefill_slot_missing),
		KVR_CASE(cancelled_request_does_not_start_over),
		KVR_CASE(next_try_that_waits_has_no_way_yet),
		KVR_CASE(router_stops_every_leg),
		KVR_CASE(refused_by_the_prefill_pool),
		KVR_CASE(prefill_side_goes_while_a_leg_waits),
		KVR_CASE(legs_are_released_apart),
		KVR_CASE(unwanted_prefill_leg_keeps_its_slot),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("pairs", tests);
}
