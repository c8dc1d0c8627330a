/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All faults of a request of a pair of pools at every moment: leg x moment x cause x path. Each row
 * has the messages at the fault and those until the end, after all workers have worked without
 * further faults. No state is left after a row. tests/eal/test_disagg_faults.c runs the same rows
 * through the router, with frames and timers; retransmissions of an executor are not tested here.
 */
#include "kvr_faults.h"
#include "rig.h"

static const struct row {
	uint32_t causes;
	uint32_t paths;
	uint32_t moments;
	const char *at_once; /* what is sent and told when it happens */
	const char *then;    /* and until the end, when all workers do what they should */
} rows[] = {
	{BIT(P_GOODBYE) | BIT(P_SILENCE), BOTH, BIT(P_QUEUED), "d.DISPATCH c.DISPATCHED", "c.FIN"},
	{BIT(P_GOODBYE) | BIT(P_SILENCE) | BIT(P_EPOCH) | BIT(P_ERROR), BOOTSTRAP,
	 BIT(SENT) | BIT(ACKED), "d.ABORT q.DISPATCH d.DISPATCH c.DISPATCHED", "c.FIN"},
	{BIT(P_GOODBYE) | BIT(P_SILENCE) | BIT(P_EPOCH) | BIT(P_ERROR), SYNC,
	 BIT(SENT) | BIT(ACKED), "q.DISPATCH", "d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(P_GOODBYE) | BIT(P_SILENCE) | BIT(P_EPOCH) | BIT(P_REFUSES) | BIT(P_ERROR), BOOTSTRAP,
	 BIT(D_QUEUED), "q.DISPATCH", "d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(P_GOODBYE) | BIT(P_SILENCE), SYNC, BIT(D_QUEUED), "",
	 "q.DISPATCH d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(P_GOODBYE) | BIT(P_SILENCE) | BIT(P_EPOCH) | BIT(P_REFUSES) | BIT(P_ERROR) |
		 BIT(DEADLINE) | BIT(EXPIRY) | BIT(LOST),
	 BOTH, BIT(P_DONE) | BIT(D_SENT) | BIT(ANSWERED), "", "c.FIN"},
	{BIT(P_GOODBYE) | BIT(P_SILENCE) | BIT(P_EPOCH) | BIT(P_REFUSES) | BIT(P_ERROR) |
		 BIT(D_GOODBYE) | BIT(D_SILENCE) | BIT(D_EPOCH) | BIT(D_REFUSES) | BIT(D_ERROR) |
		 BIT(DEADLINE) | BIT(EXPIRY) | BIT(LOST),
	 BOTH, BIT(ENDED), "", ""},
	{BIT(P_EPOCH) | BIT(EXPIRY), BOOTSTRAP, BIT(P_QUEUED), "p.DISPATCH d.DISPATCH c.DISPATCHED",
	 "c.FIN"},
	{BIT(P_EPOCH) | BIT(EXPIRY), SYNC, BIT(P_QUEUED), "p.DISPATCH",
	 "d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(P_EPOCH), SYNC, BIT(D_QUEUED), "", "p.DISPATCH d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(P_REFUSES), BOOTSTRAP, BIT(SENT), "d.ABORT q.DISPATCH d.DISPATCH c.DISPATCHED",
	 "c.FIN"},
	{BIT(P_REFUSES), SYNC, BIT(SENT), "q.DISPATCH", "d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(P_REFUSES) | BIT(D_REFUSES), BOOTSTRAP, BIT(ACKED), "", "c.FIN"},
	{BIT(P_REFUSES), SYNC, BIT(ACKED) | BIT(D_QUEUED), "", "d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(P_ERROR), SYNC, BIT(D_QUEUED), "", "d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(D_GOODBYE) | BIT(D_SILENCE), BOTH, BIT(P_QUEUED), "", "p.DISPATCH c.NoEndpoints"},
	{BIT(D_GOODBYE) | BIT(D_SILENCE) | BIT(D_EPOCH), BOOTSTRAP, BIT(SENT) | BIT(ACKED),
	 "c.WorkerLost", ""},
	{BIT(D_GOODBYE) | BIT(D_SILENCE), SYNC, BIT(SENT) | BIT(ACKED), "", "c.NoEndpoints"},
	{BIT(D_GOODBYE) | BIT(D_SILENCE), BOTH, BIT(D_QUEUED), "c.NoEndpoints", ""},
	{BIT(D_GOODBYE) | BIT(D_SILENCE) | BIT(D_EPOCH), BOTH,
	 BIT(P_DONE) | BIT(D_SENT) | BIT(ANSWERED), "c.WorkerLost", ""},
	{BIT(D_EPOCH) | BIT(LOST), BOTH, BIT(P_QUEUED), "",
	 "p.DISPATCH d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(D_EPOCH) | BIT(DEADLINE) | BIT(EXPIRY) | BIT(LOST), SYNC, BIT(SENT) | BIT(ACKED), "",
	 "d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(D_EPOCH) | BIT(EXPIRY), BOTH, BIT(D_QUEUED), "d.DISPATCH c.DISPATCHED", "c.FIN"},
	{BIT(D_REFUSES), BOOTSTRAP, BIT(SENT), "c.DispatchFailed", ""},
	{BIT(D_REFUSES), BOTH, BIT(P_DONE) | BIT(ANSWERED), "", "c.FIN"},
	{BIT(D_REFUSES), BOTH, BIT(D_SENT), "c.DispatchFailed", ""},
	{BIT(D_ERROR), BOOTSTRAP, BIT(SENT) | BIT(ACKED), "c.FIN-ERROR", ""},
	{BIT(D_ERROR), BOTH, BIT(P_DONE) | BIT(D_SENT) | BIT(ANSWERED), "c.FIN-ERROR", ""},
	{BIT(CANCEL), BOTH, BIT(P_QUEUED) | BIT(ENDED), "c.CANCELLED", ""},
	{BIT(CANCEL), BOOTSTRAP, BIT(SENT) | BIT(ACKED), "d.ABORT c.CANCELLED", "c.FIN-CANCELLED"},
	{BIT(CANCEL), SYNC, BIT(SENT) | BIT(ACKED), "c.CANCELLED",
	 "d.DISPATCH d.ABORT c.FIN-CANCELLED"},
	{BIT(CANCEL), BOTH, BIT(D_QUEUED), "c.CANCELLED", "d.DISPATCH d.ABORT c.FIN-CANCELLED"},
	{BIT(CANCEL), BOTH, BIT(P_DONE) | BIT(D_SENT) | BIT(ANSWERED), "d.ABORT c.CANCELLED",
	 "c.FIN-CANCELLED"},
	{BIT(DEADLINE), BOTH, BIT(P_QUEUED), "c.Expired", ""},
	{BIT(DEADLINE) | BIT(EXPIRY) | BIT(LOST), BOOTSTRAP, BIT(SENT) | BIT(ACKED), "", "c.FIN"},
	{BIT(DEADLINE), BOTH, BIT(D_QUEUED), "c.Expired", "d.DISPATCH d.ABORT c.FIN-CANCELLED"},
	{BIT(TWICE), BOTH, BIT(P_QUEUED), "c.QUEUED c.QUEUED",
	 "p.DISPATCH d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(TWICE), BOOTSTRAP, BIT(SENT), "c.DISPATCHED c.DISPATCHED", "c.FIN"},
	{BIT(TWICE), SYNC, BIT(SENT) | BIT(ACKED), "c.QUEUED c.QUEUED",
	 "d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(TWICE), BOOTSTRAP, BIT(ACKED), "c.RUNNING c.RUNNING", "c.FIN"},
	{BIT(TWICE), BOTH, BIT(D_QUEUED), "c.QUEUED c.QUEUED", "d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(TWICE), BOTH, BIT(P_DONE) | BIT(ANSWERED), "c.RUNNING c.RUNNING", "c.FIN"},
	{BIT(TWICE), BOTH, BIT(D_SENT), "c.DISPATCHED c.DISPATCHED", "c.FIN"},
	{BIT(TWICE), BOTH, BIT(ENDED), "c.RUNNING c.RUNNING", ""},
	{BIT(LOST), BOTH, BIT(D_QUEUED), "", "d.DISPATCH c.DISPATCHED c.FIN"},
};

static struct rig g;

static void poll_queues(struct rig_call *c)
{
	/* Reject requests that wait for a missing worker, admit those that wait for capacity. */
	if (!g.full_p || rig_worker(&g, 'p') == NULL)
		rig_turn(&g, c, KVR_LEG_PREFILL);
	if (!g.full_d || rig_worker(&g, 'd') == NULL)
		rig_turn(&g, c, KVR_LEG_MAIN);
}

static void prefill_ends(struct rig_call *c)
{
	RIG(&g, c, TAKEN, .leg = 1);
	RIG(&g, c, FIN, .leg = 1, .flags = KVR_RQEF_RESULT);
}

static void send_decode_item(struct rig_call *c, bool fin, uint16_t flags)
{
	rig_event(&g, c,
		  (struct kvr_rq_event){.kind = fin ? KVR_RQE_FIN : KVR_RQE_ITEM,
					.tokens = fin && flags != 0 ? 0 : 1,
					.flags = flags});
}

/* Bring the request to its moment. */
static void live_until(struct rig_call *c, enum moment m, bool bootstrap)
{
	rig_join(&g, 'd', &g.d, bootstrap);
	rig_join(&g, 'p', &g.p, bootstrap);
	if (m != P_QUEUED)
		rig_join(&g, 'q', &g.p, bootstrap);
	g.full_p = m == P_QUEUED;
	g.full_d = m == D_QUEUED;
	rig_arrive(&g, c, &g.d);
	if (m == P_QUEUED || m == SENT || (m == D_QUEUED && bootstrap))
		return;
	if (m == ACKED || (m == ANSWERED && bootstrap))
		RIG(&g, c, TAKEN, .leg = 1);
	else
		prefill_ends(c);
	if (m == D_QUEUED || m == D_SENT || (m == ACKED && !bootstrap))
		return;
	RIG(&g, c, TAKEN);
	if (m == ANSWERED)
		send_decode_item(c, false, 0);
	if (m == ENDED)
		send_decode_item(c, true, 0);
}

static void say_twice(struct rig_call *c)
{
	RIG(&g, c, REPEATED, .flags = KVR_RQEF_SAME | KVR_RQEF_RESEND);
	RIG(&g, c, PROBED);
	for (uint8_t leg = 0; leg < 2; leg++) {
		if (c->r.leg[leg].state == KVR_RQS_RUNNING || c->r.leg[leg].state == KVR_RQS_ENDED)
			RIG(&g, c, TAKEN, .leg = leg);
		if (c->r.leg[leg].state == KVR_RQS_ENDED)
			RIG(&g, c, FIN, .leg = leg, .tokens = 1);
	}
}

static void expire_booking(struct rig_call *c)
{
	static const uint8_t order[] = {KVR_LEG_MAIN, KVR_LEG_PREFILL};

	for (uint32_t i = 0; i < 2; i++)
		rig_release(&g, c, order[i]);
	g.full_d = g.full_p = false; /* the bookings that kept the workers busy have expired too */
	poll_queues(c);
}

static void lose_worker(struct rig_call *c, uint64_t id, bool returns, bool bootstrap)
{
	bool *full = id == 'd' ? &g.full_d : &g.full_p;

	rig_leave(&g, id);
	*full = false; /* who kept it busy has gone with it */
	if (returns)
		rig_join(&g, id, id == 'd' ? &g.d : &g.p, bootstrap);
	poll_queues(c);
}

static void cause_fault(struct rig_call *c, enum cause cause, bool bootstrap)
{
	const uint64_t p = c->at[1] != 0 ? c->at[1] : 'p';

	switch (cause) {
	case P_GOODBYE:
	case P_SILENCE:
	case P_EPOCH:
		lose_worker(c, p, cause == P_EPOCH, bootstrap);
		break;
	case D_GOODBYE:
	case D_SILENCE:
	case D_EPOCH:
		lose_worker(c, 'd', cause == D_EPOCH, bootstrap);
		break;
	case P_REFUSES:
		RIG(&g, c, DECLINED, .leg = 1, .code = 9);
		break;
	case P_ERROR:
		RIG(&g, c, FIN, .leg = 1, .flags = KVR_RQEF_ERROR);
		break;
	case D_REFUSES:
		RIG(&g, c, DECLINED, .code = 9);
		break;
	case D_ERROR:
		if (RIG(&g, c, FIN, .flags = KVR_RQEF_ERROR) == KVR_RQ_GO)
			rig_say(&g, "c.FIN-ERROR");
		break;
	case CANCEL:
		RIG(&g, c, CANCEL);
		break;
	case DEADLINE:
		RIG(&g, c, DEADLINE);
		break;
	case EXPIRY:
		expire_booking(c);
		break;
	case TWICE:
		say_twice(c);
		break;
	case LOST: /* time passes; frames are their executor's */
	case CAUSES:
		break;
	}
}

/* Return true if a worker exists that can cause the fault. */
static bool is_possible(const struct rig_call *c, enum cause cause)
{
	if (cause == P_REFUSES || cause == P_ERROR)
		return c->at[1] != 0;
	if (cause == D_REFUSES || cause == D_ERROR)
		return c->at[0] != 0;
	return true;
}

static const struct row *row_of(enum cause c, bool bootstrap, enum moment m)
{
	const struct row *found = NULL;

	for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if ((rows[i].causes & BIT(c)) != 0 && (rows[i].paths & BIT(bootstrap)) != 0 &&
		    (rows[i].moments & BIT(m)) != 0) {
			CU_ASSERT_PTR_NULL(found); /* said once */
			found = &rows[i];
		}
	return found;
}

static void check_one(enum cause cause, bool bootstrap, enum moment m, uint32_t *played)
{
	const struct row *row = row_of(cause, bootstrap, m);
	char at_once[4096], then[4096];
	struct rig_call *c;

	rig_start(&g, 0, 0);
	g.dconf.enforce_disagg = false;
	c = rig_new(&g);
	live_until(c, m, bootstrap);
	rig_said(&g);
	if (is_possible(c, cause)) {
		cause_fault(c, cause, bootstrap);
		snprintf(at_once, sizeof(at_once), "%s", rig_said(&g));
		rig_finish(&g);
		snprintf(then, sizeof(then), "%s", rig_said(&g));
		if (row == NULL || strcmp(at_once, row->at_once) != 0 ||
		    strcmp(then, row->then) != 0) {
			fprintf(stderr, "%s, %s, %s: \"%s\", then \"%s\"\n", causes[cause],
				bootstrap ? "bootstrap" : "sync", moments[m], at_once, then);
			CU_FAIL("not as the row says");
		}
		++*played;
	}
	rig_finish(&g);
	CU_ASSERT_FALSE(c->live);
	rig_stop(&g);
}

static void every_fault_at_every_moment(void)
{
	uint32_t played = 0;

	for (unsigned int c = 0; c < CAUSES; c++)
		for (unsigned int path = 0; path < 2; path++)
			for (unsigned int m = 0; m < MOMENTS; m++)
				check_one((enum cause)c, path != 0, (enum moment)m, &played);
	CU_ASSERT_EQUAL(played, 224);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(every_fault_at_every_moment), CU_TEST_INFO_NULL};

	return kvr_test_run("faults", tests);
}
