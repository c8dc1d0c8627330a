/* SPDX-License-Identifier: BSD-3-Clause */
/* Every event in every place: what the table says, and that nothing happens when it says no. */
#include "rig.h"

/* One letter an event, in the order of enum kvr_rq_event_kind: . never, l late, G go.
 * ARRIVED ROOM NO_ROOM LINGERED STOP UNACKED | ROUTED QUEUED REFUSED ADMITTED NOT_ADMITTED LOST
 * EXPIRED | TAKEN DECLINED ITEM FIN ABORTED OPENED NOT_OPENED UNANSWERED | CANCEL REPEATED PROBED
 * FIN_ACKED | DEADLINE CLIENT_GONE LEASE_OVER UNWANTED */
static const char *const verdicts[KVR_RQ_STATES_N] = {
	[KVR_RQS_FREE] = "G....."
			 "......."
			 "........"
			 "...."
			 "....",
	[KVR_RQS_UNDECIDED] = ".GG.G."
			      "......."
			      "........"
			      "GGG."
			      "GG..",
	[KVR_RQS_DECIDING] = "......"
			     "GGG...."
			     "........"
			     "...."
			     "....",
	[KVR_RQS_QUEUED] = ".GG.G."
			   "...GG.."
			   "........"
			   "GGG."
			   "GG..",
	[KVR_RQS_HELD] = "....G."
			 ".....GG"
			 ".....GGG"
			 "GGG."
			 "ll..",
	[KVR_RQS_SENT] = "....GG"
			 ".....GG"
			 "GGGG.lll"
			 "GGG."
			 "lG.G",
	[KVR_RQS_RUNNING] = "....GG"
			    ".....GG"
			    "G.GG.lll"
			    "GGG."
			    "lGGG",
	[KVR_RQS_ENDED] = "...Gll"
			  ".....ll"
			  "llllGlll"
			  "GGGG"
			  "lll.",
};

/* From each place: F U D Q H S R E, in the order of enum kvr_rq_state. */
static const char *const follows[KVR_RQ_STATES_N] = {
	"FUD.....", "FUD....E", "FUDQHS.E", "FUDQ...E",
	".U..HS.E", "FU...SRE", "FU....RE", "F......E",
};

static char verdict_letter(enum kvr_rq_verdict v)
{
	return v == KVR_RQ_GO ? 'G' : v == KVR_RQ_LATE ? 'l' : '.';
}

static void every_event_in_every_place(void)
{
	for (unsigned int s = 0; s < KVR_RQ_STATES_N; s++) {
		CU_ASSERT_EQUAL_FATAL(strlen(verdicts[s]), KVR_RQ_EVENTS_N);
		for (unsigned int e = 0; e < KVR_RQ_EVENTS_N; e++) {
			const char got = verdict_letter(kvr_request_may(s, e));

			if (got != verdicts[s][e])
				fprintf(stderr, "%s, %s: %c\n", kvr_request_state_name(s),
					kvr_request_event_name(e), got);
			CU_ASSERT_EQUAL(got, verdicts[s][e]);
		}
		CU_ASSERT_EQUAL(kvr_request_may(s, KVR_RQ_EVENTS_N), KVR_RQ_NEVER);
	}
	CU_ASSERT_EQUAL(kvr_request_may(KVR_RQ_STATES_N, 0), KVR_RQ_NEVER);
}

static void every_place_after_every_place(void)
{
	static const char names[] = "FUDQHSRE";

	for (unsigned int from = 0; from < KVR_RQ_STATES_N; from++)
		for (unsigned int to = 0; to < KVR_RQ_STATES_N; to++)
			CU_ASSERT_EQUAL(kvr_request_may_follow(from, to),
					follows[from][to] == names[to]);
	CU_ASSERT_FALSE(kvr_request_may_follow(KVR_RQ_STATES_N, 0));
	CU_ASSERT_FALSE(kvr_request_may_follow(0, KVR_RQ_STATES_N));
}

/* An aggregated request in the place asked for; false when it has none. */
static bool bring_to_state(struct rig *g, struct rig_call *c, enum kvr_rq_state s)
{
	rig_join(g, 'a', &g->a, false);
	rig_join(g, 'd', &g->d, false);
	rig_join(g, 'p', &g->p, false);
	if (s == KVR_RQS_HELD)
		rig_session(c, "s", KVR_RQ_OPEN);
	g->full_a = s == KVR_RQS_QUEUED;
	if (s == KVR_RQS_FREE || s == KVR_RQS_DECIDING)
		return false; /* nothing is there; only the executor's answer counts */
	rig_arrive(g, c, s == KVR_RQS_UNDECIDED ? &g->d : &g->a);
	if (s == KVR_RQS_RUNNING)
		RIG(g, c, TAKEN);
	if (s == KVR_RQS_ENDED)
		RIG(g, c, FIN, .tokens = 1);
	return true;
}

/* Whether the event is answered by the request as it is, beside the table. */
static bool check_request_event(enum kvr_rq_event_kind e)
{
	return e == KVR_RQE_ROOM || e == KVR_RQE_NO_ROOM; /* no question is open */
}

static void check_one(struct rig *g, enum kvr_rq_state s, enum kvr_rq_event_kind e)
{
	static struct kvr_request before;
	struct kvr_rq_orders out;
	struct rig_call *c = rig_new(g);
	struct kvr_sched_decision d = {.result = KVR_SCHED_ERROR, .err = KVR_E_NO_ENDPOINTS};
	struct kvr_rq_event ev = {.kind = (uint8_t)e, .d = &d};
	enum kvr_rq_verdict want = kvr_request_may(s, e), got;
	uint64_t late, never;

	if (!bring_to_state(g, c, s))
		return;
	CU_ASSERT_EQUAL_FATAL(c->r.leg[KVR_LEG_MAIN].state, s);
	late = rig_counter(g, c->r.pool, KVR_RQC_LATE);
	never = rig_counter(g, c->r.pool, KVR_RQC_IMPOSSIBLE);
	before = c->r;
	if ((e == KVR_RQE_ADMITTED || e == KVR_RQE_NOT_ADMITTED) && want == KVR_RQ_GO)
		c->queued[0] = false;
	if (e == KVR_RQE_ADMITTED && want == KVR_RQ_GO) {
		d = (struct kvr_sched_decision){.result = KVR_SCHED_ROUTED, .worker = 'a'};
		c->booked[0] = true;
		c->at[0] = 'a';
	}
	if (e == KVR_RQE_LOST && want == KVR_RQ_GO)
		c->booked[0] = false;
	got = kvr_request_step(&g->ctx, &c->r, &ev, &out);
	if (e == KVR_RQE_LEASE_OVER || e == KVR_RQE_UNWANTED)
		want = KVR_RQ_NEVER; /* its client does not run it, it is no prefill leg */
	if (e == KVR_RQE_UNACKED && s == KVR_RQS_SENT)
		want = KVR_RQ_LATE; /* it has been sent a moment ago */
	if (e == KVR_RQE_UNACKED && s == KVR_RQS_RUNNING)
		want = KVR_RQ_LATE; /* it has no blocks to fetch */
	if (e == KVR_RQE_CLIENT_GONE && s == KVR_RQS_RUNNING)
		want = KVR_RQ_LATE; /* its worker responds */
	if (check_request_event(e) || (s == KVR_RQS_UNDECIDED && e == KVR_RQE_DEADLINE))
		want = got; /* its prefill leg runs: it does not wait */
	CU_ASSERT_EQUAL(got, want);
	if (got != KVR_RQ_GO) {
		CU_ASSERT_EQUAL(out.n, 0);
		CU_ASSERT(memcmp(&before, &c->r, sizeof(before)) == 0);
	}
	CU_ASSERT_EQUAL(rig_counter(g, c->r.pool, KVR_RQC_LATE), late + (got == KVR_RQ_LATE));
	CU_ASSERT_EQUAL(rig_counter(g, c->r.pool, KVR_RQC_IMPOSSIBLE),
			never + (got == KVR_RQ_NEVER));
	if (got == KVR_RQ_GO)
		rig_carry(g, c, &out);
	while (c->live && c->n_todo > 0)
		rig_event(g, c, c->todo[--c->n_todo]);
	rig_finish(g);
	CU_ASSERT_FALSE(c->live);
}

static void what_the_table_refuses_changes_nothing(void)
{
	static struct rig g;

	for (unsigned int s = 0; s < KVR_RQ_STATES_N; s++)
		for (unsigned int e = 0; e < KVR_RQ_EVENTS_N; e++) {
			rig_start(&g, 4, 0);
			check_one(&g, (enum kvr_rq_state)s, (enum kvr_rq_event_kind)e);
			rig_stop(&g);
		}
}

/* A pending question permits only its answers; an answer needs a question. */
static void questions_come_first(void)
{
	static struct rig g;
	struct rig_call *c;
	struct kvr_rq_orders out;
	struct kvr_rq_event e;

	rig_start(&g, 4, 0);
	rig_join(&g, 'a', &g.a, false);
	c = rig_new(&g);
	c->msg.req.isl = 1;
	CU_ASSERT_EQUAL(kvr_request_arrive(&g.ctx, &c->r, &g.a, &c->msg, NULL, &out), KVR_RQ_GO);
	CU_ASSERT_EQUAL(out.v[out.n - 1].kind, KVR_RQO_DECIDE);
	for (unsigned int k = 0; k < KVR_RQ_EVENTS_N + 2; k++) {
		if (k == KVR_RQE_ROUTED || k == KVR_RQE_QUEUED || k == KVR_RQE_REFUSED)
			continue;
		e = (struct kvr_rq_event){.kind = (uint8_t)k};
		CU_ASSERT_EQUAL(kvr_request_step(&g.ctx, &c->r, &e, &out), KVR_RQ_NEVER);
	}
	/* It must wait, and is asked whether it can. */
	e = (struct kvr_rq_event){.kind = KVR_RQE_QUEUED};
	CU_ASSERT_EQUAL(kvr_request_step(&g.ctx, &c->r, &e, &out), KVR_RQ_GO);
	CU_ASSERT_EQUAL(out.v[0].kind, KVR_RQO_HOLD);
	e.kind = KVR_RQE_CANCEL;
	CU_ASSERT_EQUAL(kvr_request_step(&g.ctx, &c->r, &e, &out), KVR_RQ_NEVER);
	e.kind = KVR_RQE_ADMITTED;
	CU_ASSERT_EQUAL(kvr_request_step(&g.ctx, &c->r, &e, &out), KVR_RQ_NEVER);
	e.kind = KVR_RQE_ROOM;
	CU_ASSERT_EQUAL(kvr_request_step(&g.ctx, &c->r, &e, &out), KVR_RQ_GO);
	CU_ASSERT_EQUAL(out.v[0].kind, KVR_RQO_ACCEPTED);
	CU_ASSERT_EQUAL(kvr_request_step(&g.ctx, &c->r, &e, &out), KVR_RQ_NEVER);
	/* A request in use cannot arrive again. */
	CU_ASSERT_EQUAL(kvr_request_arrive(&g.ctx, &c->r, &g.a, &c->msg, NULL, &out), KVR_RQ_NEVER);
	e.kind = KVR_RQE_CANCEL;
	CU_ASSERT_EQUAL(kvr_request_step(&g.ctx, &c->r, &e, &out), KVR_RQ_GO);
	e.kind = KVR_RQE_LINGERED;
	CU_ASSERT_EQUAL(kvr_request_step(&g.ctx, &c->r, &e, &out), KVR_RQ_GO);
	CU_ASSERT_EQUAL(out.v[out.n - 1].kind, KVR_RQO_DONE);
	CU_ASSERT_TRUE(kvr_request_done(&c->r));
	rig_stop(&g);
}

/* A prefill leg hears of itself only. */
static void events_of_the_request_are_not_the_prefill_legs(void)
{
	static struct rig g;
	struct rig_call *c;

	rig_start(&g, 0, 0);
	rig_join(&g, 'd', &g.d, false);
	rig_join(&g, 'p', &g.p, false);
	c = rig_new(&g);
	rig_arrive(&g, c, &g.d);
	CU_ASSERT_EQUAL(RIG(&g, c, CANCEL, .leg = KVR_LEG_PREFILL), KVR_RQ_NEVER);
	CU_ASSERT_EQUAL(RIG(&g, c, PROBED, .leg = KVR_LEG_PREFILL), KVR_RQ_NEVER);
	CU_ASSERT_EQUAL(RIG(&g, c, STOP, .leg = KVR_LEG_PREFILL), KVR_RQ_NEVER);
	CU_ASSERT_EQUAL(RIG(&g, c, TAKEN, .leg = 2), KVR_RQ_NEVER);
	CU_ASSERT_EQUAL(RIG(&g, c, FIN_ACKED), KVR_RQ_NEVER);
	rig_finish(&g);
	rig_stop(&g);
}

static void names_are_there(void)
{
	for (unsigned int i = 0; i < KVR_RQ_STATES_N; i++)
		CU_ASSERT(strcmp(kvr_request_state_name(i), "?") != 0);
	for (unsigned int i = 0; i < KVR_RQ_EVENTS_N; i++)
		CU_ASSERT(strcmp(kvr_request_event_name(i), "?") != 0);
	for (unsigned int i = 0; i < KVR_RQ_ORDERS_N; i++)
		CU_ASSERT(strcmp(kvr_request_order_name(i), "?") != 0);
	CU_ASSERT_STRING_EQUAL(kvr_request_order_name(KVR_RQ_ORDERS_N), "?");
	CU_ASSERT_EQUAL(kvr_stats_count(&kvr_request_stats), KVR_RQC_N);
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(every_event_in_every_place),
		KVR_CASE(every_place_after_every_place),
		KVR_CASE(what_the_table_refuses_changes_nothing),
		KVR_CASE(questions_come_first),
		KVR_CASE(events_of_the_request_are_not_the_prefill_legs),
		KVR_CASE(names_are_there),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("table", tests);
}
