/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random walks: random sequences of events over many requests, with workers that join and leave,
 * pools that fill and sessions that expire. rig.h rejects impossible orders. The test checks that
 * every client gets one last answer, and that no state is left at the end.
 */
#include "rig.h"

#define WALKS 600
#define STEPS 1500

static struct rig g;
static uint32_t finished[RIG_CALLS]; /* last items that have gone to the client */
static uint32_t kinds[KVR_RQ_EVENTS_N], verdicts_seen[3];

static uint32_t draw_below(uint32_t n)
{
	return kvr_rand_below(&g.chance, n);
}

/* Each ends once for its client: by a refusal, its own wish, or the last item. */
static void check_one_last_answer(struct rig_call *c)
{
	const uint32_t i = (uint32_t)(c - g.call);

	if (c->r.pool == NULL)
		return;
	CU_ASSERT(c->last_answers + finished[i] <= 1 || c->cancels > 0);
	CU_ASSERT(c->last_answers <= 1);
	if (!c->live && !c->r.query)
		CU_ASSERT(c->last_answers + finished[i] + c->cancels >= 1);
}

static void fire_timers(struct rig_call *c, struct kvr_rq_event e)
{
	const uint32_t rejected = c->rejected;
	const bool fin = e.kind == KVR_RQE_FIN && e.leg == KVR_LEG_MAIN;
	const bool again = e.kind == KVR_RQE_REPEATED || e.kind == KVR_RQE_PROBED;
	enum kvr_rq_verdict v;

	v = rig_event(&g, c, e);
	kinds[e.kind]++;
	verdicts_seen[v]++;
	if (!again)
		c->last_answers += c->rejected - rejected;
	finished[c - g.call] += fin && v == KVR_RQ_GO;
	check_one_last_answer(c);
}

static void arrive_random(void)
{
	struct rig_call *c = rig_new(&g);
	const uint32_t what = draw_below(8);
	static const char *const ids[] = {"x", "y", "z"};

	if (c == NULL)
		return;
	finished[c - g.call] = 0;
	if (draw_below(3) == 0)
		rig_session(c, ids[draw_below(3)], (enum kvr_rq_action)draw_below(3));
	if (what == 0)
		c->msg.req.query_only = true;
	else
		c->msg.book = draw_below(5) == 0;
	c->msg.direct = draw_below(4) == 0;
	c->msg.quiet = draw_below(4) == 0;
	if (draw_below(6) == 0) {
		c->msg.hints.present |=
			draw_below(2) ? KVR_HAS(KVR_HINT_BACKEND) : KVR_HAS(KVR_HINT_DECODE_WORKER);
		c->msg.hints.backend_worker = c->msg.hints.decode_worker = 'a' + draw_below(8);
	}
	g.alone = draw_below(5) == 0;
	rig_arrive(&g, c, what < 3 ? &g.a : &g.d);
	c->last_answers = c->rejected;
	check_one_last_answer(c);
}

/* Send a random message about a request. */
static void send_random_message(struct rig_call *c)
{
	static const uint8_t likely[] = {KVR_RQE_TAKEN,	   KVR_RQE_TAKEN,  KVR_RQE_ITEM,
					 KVR_RQE_FIN,	   KVR_RQE_FIN,	   KVR_RQE_OPENED,
					 KVR_RQE_DECLINED, KVR_RQE_CANCEL, KVR_RQE_FIN_ACKED,
					 KVR_RQE_ABORTED,  KVR_RQE_UNACKED};
	struct kvr_rq_event e = {
		.kind = draw_below(3) ? likely[draw_below(sizeof(likely))]
				      : (uint8_t)draw_below(KVR_RQ_EVENTS_N),
		.leg = (uint8_t)(draw_below(3) == 0),
		.flags = (uint16_t)draw_below(256),
		.code = KVR_E_NO_MEMORY,
		.tokens = draw_below(3),
	};
	struct kvr_leg *l = &c->r.leg[e.leg];

	/* Reports of the scheduler are true. */
	if (e.kind >= KVR_RQE_ROUTED && e.kind <= KVR_RQE_EXPIRED)
		return;
	/* Nor is a worker's word about an open session forged in its own name after the end. */
	if (e.kind == KVR_RQE_LINGERED && l->state != KVR_RQS_ENDED)
		return;
	fire_timers(c, e);
}

/* rig_turn() and rig_leave(), with the books of this file. */
static void take_turn(struct rig_call *c)
{
	const uint32_t rejected = c->rejected;

	if (!rig_turn(&g, c, draw_below(2)))
		return;
	c->last_answers += c->rejected - rejected;
	check_one_last_answer(c);
}

static void comes_or_goes(void)
{
	static const struct {
		uint64_t id;
		int pool;
	} who[] = {{'a', 0}, {'b', 0}, {'d', 1}, {'e', 1}, {'p', 2}, {'q', 2}};
	struct kvr_rq_pool *const pools[] = {&g.a, &g.d, &g.p};
	const uint32_t k = draw_below(6);
	uint32_t rejected[RIG_CALLS];

	for (uint32_t i = 0; i < RIG_CALLS; i++)
		rejected[i] = g.call[i].rejected;
	if (draw_below(3) == 0) {
		rig_leave(&g, who[k].id);
	} else {
		struct rig_worker *w = rig_join(&g, who[k].id, pools[who[k].pool], draw_below(2));

		w->transfer = (uint8_t)draw_below(3);
		w->taint = draw_below(3) == 0 ? "" : "dynamo.topology/zone=1";
		w->dp_size = 1 + (draw_below(5) == 0);
	}
	for (uint32_t i = 0; i < RIG_CALLS; i++) {
		g.call[i].last_answers += g.call[i].rejected - rejected[i];
		check_one_last_answer(&g.call[i]);
	}
}

#define CODE(code, counter, help) KVR_E_##code,

static void change_workers(void)
{
	static const enum kvr_code refusals[] = {KVR_SCHED_ERR_LIST(CODE)};
	struct kvr_rq_orders out;
	struct kvr_session_ref due[8];
	struct kvr_rq_pool *const pools[] = {&g.a, &g.d, &g.p};

	g.full_a = draw_below(3) == 0;
	g.full_d = draw_below(3) == 0;
	g.full_p = draw_below(3) == 0;
	g.no_hold = draw_below(10) == 0;
	g.no_renew = draw_below(4) == 0;
	g.no_slot = draw_below(12) == 0;
	g.no_session = draw_below(10) == 0;
	g.refuse = draw_below(8) == 0 ? refusals[draw_below(KVR_SCHED_ERRS - 1)] : KVR_OK;
	g.dconf.enforce_disagg = draw_below(2);
	kvr_disagg_hold(&g.disagg, draw_below(6) == 0);
	g.ctx.now += draw_below(3000) * MS;
	for (uint32_t i = 0; i < 3; i++) {
		const uint32_t n = kvr_session_due(pools[i]->sessions, g.ctx.now, due, 8);

		for (uint32_t k = 0; k < n; k++)
			kvr_request_session_due(&g.ctx, pools[i], due[k], &out);
		if (draw_below(20) == 0)
			kvr_request_session_release(&g.ctx, pools[i], "x", 1, 0, &out);
	}
	g.len = 0;
}

static void drain_walk(void)
{
	g.no_hold = g.no_renew = g.no_slot = g.no_session = false;
	for (uint32_t i = 0; i < RIG_CALLS; i++)
		if (g.call[i].live && g.call[i].r.notified != KVR_RQ_OVER)
			fire_timers(&g.call[i], (struct kvr_rq_event){.kind = KVR_RQE_STOP});
	rig_finish(&g);
	for (uint32_t i = 0; i < RIG_CALLS; i++)
		CU_ASSERT_FATAL(!g.call[i].live);
}

static void run_walk(uint64_t seed)
{
	rig_start(&g, 3, seed & 1 ? 5 : 0);
	kvr_rand_init(&g.chance, seed);
	g.d.reroutes = (uint8_t)draw_below(3);
	g.a.reroutes = (uint8_t)draw_below(3);
	g.a.dispatch_ns = g.d.dispatch_ns = draw_below(3) * 500 * MS;
	for (uint32_t i = 0; i < STEPS; i++) {
		struct rig_call *c = &g.call[draw_below(RIG_CALLS)];

		switch (draw_below(12)) {
		case 0:
		case 1:
			arrive_random();
			break;
		case 2:
			comes_or_goes();
			break;
		case 3:
			change_workers();
			break;
		case 4:
			if (c->live)
				rig_release(&g, c, draw_below(2));
			break;
		case 5:
		case 6:
			if (c->live)
				take_turn(c);
			break;
		default:
			if (c->live)
				send_random_message(c);
		}
	}
	drain_walk();
	rig_stop(&g);
}

static void nothing_is_left_whatever_happens(void)
{
	for (uint64_t seed = 1; seed <= WALKS; seed++) {
		const unsigned int bad = CU_get_number_of_failures();

		run_walk(seed);
		if (CU_get_number_of_failures() != bad) {
			fprintf(stderr, "seed %u\n", (unsigned int)seed);
			return;
		}
	}
	/* The walk is worth something: every kind of event, every verdict. */
	for (uint32_t e = 0; e < KVR_RQ_EVENTS_N; e++)
		CU_ASSERT(kinds[e] > 0 || (e >= KVR_RQE_ROUTED && e <= KVR_RQE_EXPIRED));
	for (uint32_t v = 0; v < 3; v++)
		CU_ASSERT(verdicts_seen[v] > 1000);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(nothing_is_left_whatever_happens), CU_TEST_INFO_NULL};

	return kvr_test_run("walk", tests);
}
