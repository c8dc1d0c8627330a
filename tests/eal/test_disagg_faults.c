/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Everything that can go wrong with a request of a pair of pools, at every moment of its life: leg
 * x moment x cause x path. Each row says what the router sends when it happens, and what the client
 * has been told in the end, when all workers have done what they should. After each row nothing is
 * left: no booking, slot, message or frame.
 */
#include "pair.h"
#include "sched/sched.h"

#include <stdio.h>
#include <string.h>

#include <rte_random.h>

#include "kvr_faults.h"
#include "kvr_frame.h"
#include "kvr_rand.h"
#include "kvr_test.h"
#include "threads.h"

/* '?' is any worker. */
static const struct row {
	uint32_t causes;
	uint32_t paths;
	uint32_t moments;
	const char *at_once; /* what is sent when it happens */
	const char *then;    /* and until the end, when all workers do what they should */
} rows[] = {
	{BIT(P_GOODBYE) | BIT(P_SILENCE), BOOTSTRAP, BIT(P_QUEUED), "",
	 "d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(P_GOODBYE) | BIT(P_SILENCE) | BIT(P_ERROR), BOOTSTRAP, BIT(SENT) | BIT(ACKED),
	 "d.ABORT q.DISPATCH d.DISPATCH c.DISPATCHED", "c.FIN"},
	{BIT(P_GOODBYE) | BIT(P_SILENCE) | BIT(P_REFUSES) | BIT(P_ERROR), BOOTSTRAP, BIT(D_QUEUED),
	 "q.DISPATCH", "d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(P_GOODBYE) | BIT(P_SILENCE) | BIT(P_EPOCH) | BIT(P_ERROR), BOTH,
	 BIT(P_DONE) | BIT(D_SENT) | BIT(ANSWERED), "", "c.FIN"},
	{BIT(P_GOODBYE) | BIT(P_SILENCE) | BIT(P_EPOCH) | BIT(P_REFUSES) | BIT(P_ERROR) |
		 BIT(D_GOODBYE) | BIT(D_SILENCE) | BIT(D_EPOCH) | BIT(D_REFUSES) | BIT(DEADLINE) |
		 BIT(LOST),
	 BOTH, BIT(ENDED), "", ""},
	{BIT(P_GOODBYE) | BIT(P_SILENCE), SYNC, BIT(P_QUEUED), "", "d.DISPATCH c.DISPATCHED c.FIN"},
	/* What it has computed went with it. */
	{BIT(P_GOODBYE) | BIT(P_SILENCE) | BIT(P_EPOCH), SYNC, BIT(D_QUEUED), "",
	 "?.DISPATCH d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(P_GOODBYE) | BIT(P_SILENCE) | BIT(P_ERROR), SYNC, BIT(SENT) | BIT(ACKED), "q.DISPATCH",
	 "d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(P_EPOCH), BOOTSTRAP, BIT(P_QUEUED), "?.DISPATCH d.DISPATCH c.DISPATCHED", "c.FIN"},
	{BIT(P_EPOCH), BOOTSTRAP, BIT(SENT) | BIT(ACKED),
	 "d.ABORT ?.DISPATCH d.DISPATCH c.DISPATCHED", "c.FIN"},
	{BIT(P_EPOCH), BOOTSTRAP, BIT(D_QUEUED), "?.DISPATCH", "d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(P_EPOCH), SYNC, BIT(P_QUEUED) | BIT(SENT) | BIT(ACKED), "?.DISPATCH",
	 "d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(P_ERROR), SYNC, BIT(D_QUEUED), "", "d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(P_REFUSES), BOOTSTRAP, BIT(SENT), "d.ABORT q.DISPATCH d.DISPATCH c.DISPATCHED",
	 "c.FIN"},
	{BIT(P_REFUSES), BOOTSTRAP, BIT(ACKED) | BIT(P_DONE) | BIT(D_SENT) | BIT(ANSWERED), "",
	 "c.FIN"},
	{BIT(P_REFUSES), SYNC, BIT(SENT), "q.DISPATCH", "d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(P_REFUSES) | BIT(LOST), SYNC, BIT(ACKED) | BIT(D_QUEUED), "",
	 "d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(P_REFUSES), SYNC, BIT(P_DONE) | BIT(D_SENT) | BIT(ANSWERED), "", "c.FIN"},
	{BIT(D_GOODBYE) | BIT(D_SILENCE), BOTH, BIT(P_QUEUED), "", "p.DISPATCH c.NoEndpoints"},
	{BIT(D_GOODBYE) | BIT(D_SILENCE) | BIT(D_EPOCH), BOOTSTRAP,
	 BIT(SENT) | BIT(ACKED) | BIT(P_DONE) | BIT(D_SENT) | BIT(ANSWERED), "c.WorkerLost", ""},
	{BIT(D_GOODBYE) | BIT(D_SILENCE), BOTH, BIT(D_QUEUED), "c.NoEndpoints", ""},
	{BIT(D_GOODBYE) | BIT(D_SILENCE), SYNC, BIT(SENT) | BIT(ACKED), "", "c.NoEndpoints"},
	{BIT(D_GOODBYE) | BIT(D_SILENCE) | BIT(D_EPOCH), SYNC,
	 BIT(P_DONE) | BIT(D_SENT) | BIT(ANSWERED), "c.WorkerLost", ""},
	{BIT(D_EPOCH) | BIT(LOST), BOTH, BIT(P_QUEUED), "",
	 "p.DISPATCH d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(D_EPOCH), BOTH, BIT(D_QUEUED), "d.DISPATCH c.DISPATCHED", "c.FIN"},
	{BIT(D_EPOCH), SYNC, BIT(SENT) | BIT(ACKED), "", "d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(D_REFUSES), BOOTSTRAP, BIT(SENT) | BIT(D_SENT), "c.DispatchFailed", ""},
	{BIT(D_REFUSES) | BIT(DEADLINE) | BIT(LOST), BOOTSTRAP,
	 BIT(ACKED) | BIT(P_DONE) | BIT(ANSWERED), "", "c.FIN"},
	{BIT(D_REFUSES) | BIT(DEADLINE) | BIT(LOST), SYNC, BIT(P_DONE) | BIT(ANSWERED), "",
	 "c.FIN"},
	{BIT(D_REFUSES), SYNC, BIT(D_SENT), "c.DispatchFailed", ""},
	{BIT(D_ERROR), BOOTSTRAP,
	 BIT(SENT) | BIT(ACKED) | BIT(P_DONE) | BIT(D_SENT) | BIT(ANSWERED) | BIT(ENDED),
	 "c.FIN-ERROR", ""},
	{BIT(D_ERROR), SYNC, BIT(P_DONE) | BIT(D_SENT) | BIT(ANSWERED) | BIT(ENDED), "c.FIN-ERROR",
	 ""},
	{BIT(CANCEL), BOTH, BIT(P_QUEUED) | BIT(ENDED), "c.CANCELLED", ""},
	{BIT(CANCEL), BOOTSTRAP, BIT(SENT) | BIT(ACKED) | BIT(P_DONE) | BIT(D_SENT) | BIT(ANSWERED),
	 "d.ABORT c.CANCELLED", "c.FIN-CANCELLED"},
	{BIT(CANCEL), BOOTSTRAP, BIT(D_QUEUED), "c.CANCELLED",
	 "d.DISPATCH d.ABORT c.FIN-CANCELLED"},
	{BIT(CANCEL), SYNC, BIT(SENT) | BIT(ACKED) | BIT(D_QUEUED), "c.CANCELLED",
	 "d.DISPATCH d.ABORT c.FIN-CANCELLED"},
	{BIT(CANCEL), SYNC, BIT(P_DONE) | BIT(D_SENT) | BIT(ANSWERED), "d.ABORT c.CANCELLED",
	 "c.FIN-CANCELLED"},
	{BIT(DEADLINE), BOOTSTRAP, BIT(P_QUEUED), "c.Expired", ""},
	{BIT(DEADLINE) | BIT(LOST), BOOTSTRAP, BIT(SENT), "d.DISPATCH p.DISPATCH", "c.FIN"},
	/* As a cancel: only the decode worker can release what waits for it. */
	{BIT(DEADLINE), BOOTSTRAP, BIT(D_QUEUED), "p.DISPATCH c.Expired",
	 "d.DISPATCH d.ABORT c.FIN-CANCELLED"},
	{BIT(DEADLINE) | BIT(LOST), BOTH, BIT(D_SENT), "d.DISPATCH", "c.FIN"},
	{BIT(DEADLINE), SYNC, BIT(P_QUEUED), "c.Expired", ""},
	{BIT(DEADLINE), SYNC, BIT(D_QUEUED), "c.Expired", "d.DISPATCH d.ABORT c.FIN-CANCELLED"},
	{BIT(DEADLINE) | BIT(LOST), SYNC, BIT(SENT), "p.DISPATCH", "d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(DEADLINE), SYNC, BIT(ACKED), "", "d.DISPATCH c.DISPATCHED c.FIN"},
	/* Its client asks, and it goes on; what has waited gets the room of what was released. */
	{BIT(EXPIRY), BOOTSTRAP, BIT(P_QUEUED), "p.DISPATCH d.DISPATCH c.DISPATCHED c.DISPATCHED",
	 "c.FIN"},
	{BIT(EXPIRY), BOOTSTRAP, BIT(SENT), "d.DISPATCH p.DISPATCH c.DISPATCHED", "c.FIN"},
	{BIT(EXPIRY), BOOTSTRAP, BIT(ACKED) | BIT(P_DONE) | BIT(ANSWERED), "c.RUNNING", "c.FIN"},
	{BIT(EXPIRY), BOOTSTRAP, BIT(D_QUEUED), "d.DISPATCH c.DISPATCHED p.DISPATCH c.DISPATCHED",
	 "c.FIN"},
	{BIT(EXPIRY), BOTH, BIT(D_SENT), "d.DISPATCH c.DISPATCHED", "c.FIN"},
	{BIT(EXPIRY), BOTH, BIT(ENDED), "c.Ended", ""},
	{BIT(EXPIRY), SYNC, BIT(P_QUEUED) | BIT(SENT), "p.DISPATCH c.QUEUED",
	 "d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(EXPIRY), SYNC, BIT(ACKED), "c.QUEUED", "d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(EXPIRY), SYNC, BIT(P_DONE) | BIT(ANSWERED), "c.RUNNING", "c.FIN"},
	{BIT(EXPIRY), SYNC, BIT(D_QUEUED), "d.DISPATCH c.DISPATCHED c.DISPATCHED", "c.FIN"},
	{BIT(TWICE), BOTH, BIT(P_QUEUED), "c.QUEUED c.QUEUED",
	 "p.DISPATCH d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(TWICE), BOOTSTRAP, BIT(SENT) | BIT(D_SENT), "c.DISPATCHED c.DISPATCHED", "c.FIN"},
	{BIT(TWICE), BOOTSTRAP, BIT(ACKED) | BIT(P_DONE), "c.RUNNING c.RUNNING", "c.FIN"},
	{BIT(TWICE), BOOTSTRAP, BIT(D_QUEUED), "c.QUEUED c.QUEUED",
	 "d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(TWICE), BOTH, BIT(ANSWERED), "c.RUNNING c.RUNNING c.ITEM", "c.FIN"},
	{BIT(TWICE), BOTH, BIT(ENDED), "c.RUNNING c.RUNNING c.FIN", ""},
	{BIT(TWICE), SYNC, BIT(SENT) | BIT(ACKED) | BIT(D_QUEUED), "c.QUEUED c.QUEUED",
	 "d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(TWICE), SYNC, BIT(P_DONE), "c.RUNNING c.RUNNING", "c.FIN"},
	{BIT(TWICE), SYNC, BIT(D_SENT), "c.DISPATCHED c.DISPATCHED", "c.FIN"},
	{BIT(LOST), BOOTSTRAP, BIT(D_QUEUED), "p.DISPATCH", "d.DISPATCH c.DISPATCHED c.FIN"},
};

static uint32_t epoch;

static void joins(uint64_t worker, bool bootstrap)
{
	CU_ASSERT_TRUE_FATAL(pair_join(worker, ++epoch, bootstrap));
}

/* A request of its own that keeps the only worker of a pool busy. */
static void busy(uint64_t id)
{
	struct pair_run *r;

	pair_route(id, NULL);
	CU_ASSERT_FATAL(pair_runs > 0);
	r = &pair_run[pair_runs - 1];
	CU_ASSERT_EQUAL_FATAL(r->id, id);
	pair_ack(r, 0);
}

static void all_join(bool bootstrap)
{
	joins(PAIR_P, bootstrap);
	joins(PAIR_Q, bootstrap);
}

static void prefill_ends(uint64_t id)
{
	pair_ack(pair_leg(id, true), 0);
	pair_item(pair_leg(id, true), KVR_RESP_F_FIN, "result");
}

static void decode_says(uint64_t id, uint16_t flags)
{
	struct pair_run *r = pair_leg(id, false);

	r->tokens++;
	pair_item(r, flags, "x");
}

/* Bring request @p id to its moment. */
static void live_until(uint64_t id, enum moment m, bool bootstrap)
{
	joins(PAIR_D, bootstrap);
	if (m == D_QUEUED)
		busy(30000 + id); /* without a prefill side it is the decode worker's whole */
	if (m == P_QUEUED) {
		joins(PAIR_P, bootstrap);
		busy(30000 + id);
	} else {
		all_join(bootstrap);
	}
	pair_route(id, NULL);
	if (m == P_QUEUED || m == SENT || (m == D_QUEUED && bootstrap))
		return;
	if (m == ACKED || (m == ANSWERED && bootstrap))
		pair_ack(pair_leg(id, true), 0);
	else
		prefill_ends(id);
	if (m == D_QUEUED || m == D_SENT || (m == ACKED && !bootstrap))
		return;
	pair_ack(pair_leg(id, false), 0);
	if (m == ANSWERED)
		decode_says(id, 0);
	if (m == ENDED)
		decode_says(id, KVR_RESP_F_FIN);
}

static void say_twice(uint64_t id)
{
	pair_route_again(id);
	pair_client(id, KVR_PROBE);
	for (uint32_t i = 0; i < pair_runs; i++) {
		struct pair_run *r = &pair_run[i];

		if (r->id != id)
			continue;
		if (r->acked)
			pair_ack(r, 0);
		if (r->next_seq > 0) {
			r->next_seq--;
			pair_item(r, r->flags, "result");
		}
	}
}

static void turns(void)
{
	for (int i = 0; i < 16; i++) /* deadlines are looked after in parts */
		pipeline_turn();
}

/* Bookings are released before a deadline is seen or a timer ends, as all of them are due. */
static void release(void)
{
	for (uint32_t i = 0; i < rt->n_pools; i++) {
		struct pool *p = &rt->pool[i];

		/* The pool's own lcore, which stands still between turns: only it has the buffers.
		 */
		p->sched_lcore->now_ns = now_ns(rt);
		p->live.sweep = kvr_flight_size(p->requests) / 2;
		sched_tick(p->sched_lcore, p);
		sched_poll(p->sched_lcore, p);
	}
}

static void strike(uint64_t id, enum cause c, bool bootstrap)
{
	struct pair_run *p = pair_leg(id, true), *d = pair_leg(id, false);
	const uint64_t worker = p != NULL ? p->worker : PAIR_P;

	switch (c) {
	case P_GOODBYE:
		pair_leave(worker);
		break;
	case P_SILENCE:
		pair_silence(worker);
		break;
	case P_EPOCH:
		joins(worker, bootstrap);
		break;
	case P_REFUSES:
		pair_ack(p, 9);
		break;
	case P_ERROR:
		pair_item(p, KVR_RESP_F_FIN | KVR_RESP_F_ERROR, "no");
		break;
	case D_GOODBYE:
		pair_leave(PAIR_D);
		break;
	case D_SILENCE:
		pair_silence(PAIR_D);
		break;
	case D_EPOCH:
		joins(PAIR_D, bootstrap);
		break;
	case D_REFUSES:
		pair_ack(d, 9);
		break;
	case D_ERROR:
		pair_item(d, KVR_RESP_F_FIN | KVR_RESP_F_ERROR, "no");
		break;
	case CANCEL:
		pair_client(id, KVR_CANCEL);
		break;
	case DEADLINE:
		pipeline_skip(1100);
		turns();
		break;
	case EXPIRY:
		pipeline_skip(400000);
		release();
		pair_client(id, KVR_PROBE); /* it waits still */
		turns();
		break;
	case TWICE:
		say_twice(id);
		break;
	case LOST:
		pipeline_advance(25);
		break;
	case CAUSES:
		break;
	}
}

/* Whether there is somebody to do it. */
static bool possible(uint64_t id, enum cause c)
{
	if (c == P_REFUSES || c == P_ERROR)
		return pair_leg(id, true) != NULL;
	if (c == D_REFUSES || c == D_ERROR)
		return pair_leg(id, false) != NULL;
	return true;
}

/*
 * With polling threads a worker's new life begins some turns after its old one has ended, as on a
 * real machine: a request that waits for the only worker of a pool may find nobody in between.
 */
static const struct row alone[] = {
	{BIT(P_EPOCH), BOTH, BIT(P_QUEUED), "", "d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(P_EPOCH), BOOTSTRAP, BIT(D_QUEUED), "q.DISPATCH", "d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(D_EPOCH), BOTH, BIT(P_QUEUED), "", "p.DISPATCH c.NoEndpoints"},
	{BIT(D_EPOCH), BOTH, BIT(D_QUEUED), "c.NoEndpoints", ""},
	{BIT(D_EPOCH), SYNC, BIT(SENT) | BIT(ACKED), "", "c.NoEndpoints"},
};

static const struct row *row_in(const struct row *row, size_t n, enum cause c, bool bootstrap,
				enum moment m)
{
	const struct row *found = NULL;

	for (; n > 0; n--, row++)
		if ((row->causes & BIT(c)) != 0 && (row->paths & BIT(bootstrap)) != 0 &&
		    (row->moments & BIT(m)) != 0) {
			CU_ASSERT_PTR_NULL(found); /* said once */
			found = row;
		}
	return found;
}

static const struct row *row_of(enum cause c, bool bootstrap, enum moment m)
{
	return row_in(rows, RTE_DIM(rows), c, bootstrap, m);
}

static bool matches(const char *said, const char *expected)
{
	for (; *said != '\0' && (*said == *expected || *expected == '?'); said++)
		expected++;
	return *said == *expected;
}

static void check(const struct row *row, uint64_t id, enum cause c, bool bootstrap, enum moment m)
{
	char at_once[4096];
	const char *then;

	strike(id, c, bootstrap);
	snprintf(at_once, sizeof(at_once), "%s", pair_said());
	pair_finish();
	then = pair_said();
	if (row != NULL && matches(at_once, row->at_once) && matches(then, row->then))
		return;
	if (threads_used() != NULL && c == EXPIRY)
		return; /* everything is due at once: what is seen first is not ours to say */
	row = threads_used() == NULL ? NULL : row_in(alone, RTE_DIM(alone), c, bootstrap, m);
	if (row != NULL && matches(at_once, row->at_once) && matches(then, row->then))
		return;
	fprintf(stderr, "%s, %s, %s: \"%s\", then \"%s\"\n", causes[c],
		bootstrap ? "bootstrap" : "sync", moments[m], at_once, then);
	CU_FAIL("not as the row says");
}

static void one(uint64_t id, enum cause c, bool bootstrap, enum moment m)
{
	pipeline_deadline_ms = c == DEADLINE ? 1000 : 0;
	live_until(id, m, bootstrap);
	pipeline_deadline_ms = 0;
	pair_said();
	if (possible(id, c))
		check(row_of(c, bootstrap, m), id, c, bootstrap, m);
	pair_finish();
	pair_leave(PAIR_P);
	pair_leave(PAIR_Q);
	pair_leave(PAIR_D);
	pair_at_rest();
	pair_runs = 0;
}

static void every_fault_at_every_moment(void)
{
	uint64_t id = 0;

	pair_start("router_queue_threshold = 0\nenforce_disagg = false\ndispatch_ms = 0\n",
		   "router_queue_threshold = 0\n");
	for (int c = 0; c < CAUSES; c++)
		for (int m = 0; m < MOMENTS; m++)
			for (int bootstrap = 0; bootstrap < 2; bootstrap++)
				one(++id, c, bootstrap, m);
	pair_stop();
}

/* ---- at random ---- */

#define STEPS 4000u

static struct kvr_rand rnd;
static uint64_t last_id;

static uint32_t below(uint32_t n)
{
	return kvr_rand_below(&rnd, n);
}

static bool chance(uint32_t percent)
{
	return below(100) < percent;
}

/* p says where to fetch, q does not: both paths. */
static void comes_or_goes(void)
{
	static const uint64_t workers[] = {PAIR_P, PAIR_Q, PAIR_D, PAIR_E};
	const uint64_t w = workers[below(RTE_DIM(workers))];

	if (kvr_registry_find(rt->registry, w) == NULL || chance(50))
		joins(w, w == PAIR_P);
	else if (chance(50))
		pair_leave(w);
	else
		pair_silence(w);
}

static void asks(void)
{
	const uint64_t id = last_id == 0 ? 0 : last_id - below((uint32_t)RTE_MIN(last_id, 40u));

	if (chance(70) || id == 0) {
		pipeline_deadline_ms = chance(30) ? 1 + below(500) : 0;
		pair_route(++last_id, NULL);
		pipeline_deadline_ms = 0;
	} else if (chance(30)) {
		pair_route_again(id);
	} else if (chance(60)) {
		pair_client(id, chance(50) ? KVR_PROBE : KVR_CANCEL);
	} else if (pair_told[id].fin) {
		pair_fin_ack(id);
	}
}

static void says_something_else(struct pair_run *r)
{
	static const uint16_t ends[] = {0, KVR_RESP_F_ERROR, KVR_RESP_F_CANCELLED};

	if (chance(30)) {
		pair_ack(r, chance(85) ? 0 : 9);
	} else if (chance(40)) {
		r->tokens += below(3);
		pair_item(r, 0, "more");
	} else {
		r->tokens++;
		pair_item(r, KVR_RESP_F_FIN | ends[chance(80) ? 0 : below(3)],
			  chance(90) ? "result" : "");
	}
}

/* A worker says something, fitting or not, about something it has been sent lately. */
static void speaks(void)
{
	struct pair_run *r;

	if (pair_runs == 0)
		return;
	r = &pair_run[pair_runs - 1 - below(RTE_MIN(pair_runs, 60u))];
	if (chance(10) && r->next_seq > 0) {
		r->next_seq--;
		pair_item(r, r->flags, "again");
	} else if (r->ended && chance(80)) {
		pair_abort_ack(r);
	} else {
		says_something_else(r);
	}
}

static void time_passes(void)
{
	const uint32_t what = below(1000);

	pipeline_skip(what == 0 ? 400000 : what < 20 ? 2500 : below(60));
	pipeline_turn();
	pair_take();
}

static void step(void)
{
	const uint32_t what = below(1000);

	if (what < 200)
		asks();
	else if (what < 850)
		speaks();
	else if (what < 995)
		time_passes();
	else
		comes_or_goes();
}

static void play(const char *decode_keys, const char *prefill_keys, uint64_t seed)
{
	uint64_t untold = 0;

	kvr_rand_init(&rnd, seed);
	rte_srand(seed); /* what the router draws its own seeds from */
	last_id = 0;
	pair_start(decode_keys, prefill_keys);
	joins(PAIR_P, true);
	joins(PAIR_D, false);
	for (uint32_t i = 0; i < STEPS; i++)
		step();
	/* Those who wait need somebody. */
	joins(PAIR_D, false);
	joins(PAIR_P, true);
	pair_finish();
	for (uint64_t id = 1; id <= last_id; id++)
		untold += !pair_told[id].fin && !pair_told[id].cancelled &&
			  pair_told[id].rejected == 0;
	CU_ASSERT(untold <= kvr_stats_get(rt->pool[0].count, PC_CLIENT_GONE));
	pair_leave(PAIR_P);
	pair_leave(PAIR_Q);
	pair_leave(PAIR_D);
	pair_leave(PAIR_E);
	pair_stop();
}

static void whatever_happens_nothing_is_left(void)
{
	static const char *const queue[] = {"", "router_queue_threshold = 0\n"};
	static const char *const enforce[] = {"enforce_disagg = true\n",
					      "enforce_disagg = false\n"};
	char keys[128];

	for (uint32_t i = 0; i < 8; i++) {
		snprintf(keys, sizeof(keys), "%s%s", queue[i & 1], enforce[i >> 1 & 1]);
		play(keys, queue[i >> 2 & 1], 1 + i);
	}
}

int main(void)
{
	CU_TestInfo tests[] = {{"table", every_fault_at_every_moment},
			       {"random", whatever_happens_nothing_is_left},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("disagg_faults", tests);
}
