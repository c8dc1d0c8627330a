/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every fault of a request to a pair of pools at every point of its progress: leg x moment x cause
 * x path. Each row lists the frames that the router sends at the fault, and those until the client
 * has its outcome after all workers have finished. After each row nothing is left: no booking,
 * slot, message or frame.
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

/* '?' stands for any worker. */
static const struct row {
	uint32_t causes;
	uint32_t paths;
	uint32_t moments;
	const char *at_once; /* frames sent at the fault */
	const char *then;    /* and until the end, after all workers have finished */
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
	/* Its computed blocks are lost with it. */
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
	/* Like a cancel: only the decode worker can release the waiting blocks. */
	{BIT(DEADLINE), BOOTSTRAP, BIT(D_QUEUED), "p.DISPATCH c.Expired",
	 "d.DISPATCH d.ABORT c.FIN-CANCELLED"},
	{BIT(DEADLINE) | BIT(LOST), BOTH, BIT(D_SENT), "d.DISPATCH", "c.FIN"},
	{BIT(DEADLINE), SYNC, BIT(P_QUEUED), "c.Expired", ""},
	{BIT(DEADLINE), SYNC, BIT(D_QUEUED), "c.Expired", "d.DISPATCH d.ABORT c.FIN-CANCELLED"},
	{BIT(DEADLINE) | BIT(LOST), SYNC, BIT(SENT), "p.DISPATCH", "d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(DEADLINE), SYNC, BIT(ACKED), "", "d.DISPATCH c.DISPATCHED c.FIN"},
	/*
	 * The client sends PROBE and the request goes on; a waiting request gets the released
	 * capacity.
	 */
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

static void join_next_epoch(uint64_t worker, bool bootstrap)
{
	CU_ASSERT_TRUE_FATAL(pair_join(worker, ++epoch, bootstrap));
}

/* A request of its own that keeps the only worker of a pool busy. */
static void occupy_worker(uint64_t id)
{
	struct pair_attempt *r;

	pair_route(id, NULL);
	CU_ASSERT_FATAL(pair_attempts > 0);
	r = &pair_attempt[pair_attempts - 1];
	CU_ASSERT_EQUAL_FATAL(r->id, id);
	pair_ack(r, 0);
}

static void join_all(bool bootstrap)
{
	join_next_epoch(PAIR_P, bootstrap);
	join_next_epoch(PAIR_Q, bootstrap);
}

static void end_prefill(uint64_t id)
{
	pair_ack(pair_leg(id, true), 0);
	pair_item(pair_leg(id, true), KVR_RESP_F_FIN, "result");
}

static void send_decode_item(uint64_t id, uint16_t flags)
{
	struct pair_attempt *r = pair_leg(id, false);

	r->tokens++;
	pair_item(r, flags, "x");
}

/* Bring request @p id to moment @p m. */
static void bring_to_moment(uint64_t id, enum moment m, bool bootstrap)
{
	join_next_epoch(PAIR_D, bootstrap);
	if (m == D_QUEUED)
		occupy_worker(
			30000 +
			id); /* without a prefill pool the whole request is at the decode worker */
	if (m == P_QUEUED) {
		join_next_epoch(PAIR_P, bootstrap);
		occupy_worker(30000 + id);
	} else {
		join_all(bootstrap);
	}
	pair_route(id, NULL);
	if (m == P_QUEUED || m == SENT || (m == D_QUEUED && bootstrap))
		return;
	if (m == ACKED || (m == ANSWERED && bootstrap))
		pair_ack(pair_leg(id, true), 0);
	else
		end_prefill(id);
	if (m == D_QUEUED || m == D_SENT || (m == ACKED && !bootstrap))
		return;
	pair_ack(pair_leg(id, false), 0);
	if (m == ANSWERED)
		send_decode_item(id, 0);
	if (m == ENDED)
		send_decode_item(id, KVR_RESP_F_FIN);
}

static void send_twice(uint64_t id)
{
	pair_route_again(id);
	pair_client(id, KVR_PROBE);
	for (uint32_t i = 0; i < pair_attempts; i++) {
		struct pair_attempt *r = &pair_attempt[i];

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

static void turn_many_times(void)
{
	for (int i = 0; i < 16; i++) /* each turn checks a part of the deadlines */
		pipeline_turn();
}

/* Bookings are released before a deadline or timer ends, although all of them are due. */
static void release_bookings(void)
{
	for (uint32_t i = 0; i < rt->n_pools; i++) {
		struct pool *p = &rt->pool[i];

		/* The pool's own lcore, which pauses between turns: only it has the buffers. */
		p->sched_lcore->now_ns = now_ns(rt);
		p->live.sweep = kvr_flight_size(p->requests) / 2;
		sched_tick(p->sched_lcore, p);
		sched_poll(p->sched_lcore, p);
	}
}

static void cause_fault(uint64_t id, enum cause c, bool bootstrap)
{
	struct pair_attempt *p = pair_leg(id, true), *d = pair_leg(id, false);
	const uint64_t worker = p != NULL ? p->worker : PAIR_P;

	switch (c) {
	case P_GOODBYE:
		pair_leave(worker);
		break;
	case P_SILENCE:
		pair_silence(worker);
		break;
	case P_EPOCH:
		join_next_epoch(worker, bootstrap);
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
		join_next_epoch(PAIR_D, bootstrap);
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
		turn_many_times();
		break;
	case EXPIRY:
		pipeline_skip(400000);
		release_bookings();
		pair_client(id, KVR_PROBE); /* it still waits */
		turn_many_times();
		break;
	case TWICE:
		send_twice(id);
		break;
	case LOST:
		pipeline_advance(25);
		break;
	case CAUSES:
		break;
	}
}

/* Return true if the peer that causes the fault exists at this moment. */
static bool is_cause_possible(uint64_t id, enum cause c)
{
	if (c == P_REFUSES || c == P_ERROR)
		return pair_leg(id, true) != NULL;
	if (c == D_REFUSES || c == D_ERROR)
		return pair_leg(id, false) != NULL;
	return true;
}

/*
 * With polling threads a worker's new incarnation begins some turns after its old one has ended, as
 * on a real machine. A request that waits for the only worker of a pool may find no worker in
 * between.
 */
static const struct row alone[] = {
	{BIT(P_EPOCH), BOTH, BIT(P_QUEUED), "", "d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(P_EPOCH), BOOTSTRAP, BIT(D_QUEUED), "q.DISPATCH", "d.DISPATCH c.DISPATCHED c.FIN"},
	{BIT(D_EPOCH), BOTH, BIT(P_QUEUED), "", "p.DISPATCH c.NoEndpoints"},
	{BIT(D_EPOCH), BOTH, BIT(D_QUEUED), "c.NoEndpoints", ""},
	{BIT(D_EPOCH), SYNC, BIT(SENT) | BIT(ACKED), "", "c.NoEndpoints"},
};

static const struct row *find_row_in(const struct row *row, size_t n, enum cause c, bool bootstrap,
				     enum moment m)
{
	const struct row *found = NULL;

	for (; n > 0; n--, row++)
		if ((row->causes & BIT(c)) != 0 && (row->paths & BIT(bootstrap)) != 0 &&
		    (row->moments & BIT(m)) != 0) {
			CU_ASSERT_PTR_NULL(found); /* listed once */
			found = row;
		}
	return found;
}

static const struct row *find_row(enum cause c, bool bootstrap, enum moment m)
{
	return find_row_in(rows, RTE_DIM(rows), c, bootstrap, m);
}

static bool match_frames(const char *said, const char *expected)
{
	for (; *said != '\0' && (*said == *expected || *expected == '?'); said++)
		expected++;
	return *said == *expected;
}

static void check_row(const struct row *row, uint64_t id, enum cause c, bool bootstrap,
		      enum moment m)
{
	char at_once[4096];
	const char *then;

	cause_fault(id, c, bootstrap);
	snprintf(at_once, sizeof(at_once), "%s", pair_take_frames());
	pair_finish();
	then = pair_take_frames();
	if (row != NULL && match_frames(at_once, row->at_once) && match_frames(then, row->then))
		return;
	if (threads_used() != NULL && c == EXPIRY)
		return; /* everything is due at once: the order is undefined */
	row = threads_used() == NULL ? NULL : find_row_in(alone, RTE_DIM(alone), c, bootstrap, m);
	if (row != NULL && match_frames(at_once, row->at_once) && match_frames(then, row->then))
		return;
	fprintf(stderr, "%s, %s, %s: \"%s\", then \"%s\"\n", causes[c],
		bootstrap ? "bootstrap" : "sync", moments[m], at_once, then);
	CU_FAIL("frames differ from the row");
}

static void check_fault(uint64_t id, enum cause c, bool bootstrap, enum moment m)
{
	pipeline_deadline_ms = c == DEADLINE ? 1000 : 0;
	bring_to_moment(id, m, bootstrap);
	pipeline_deadline_ms = 0;
	pair_take_frames();
	if (is_cause_possible(id, c))
		check_row(find_row(c, bootstrap, m), id, c, bootstrap, m);
	pair_finish();
	pair_leave(PAIR_P);
	pair_leave(PAIR_Q);
	pair_leave(PAIR_D);
	pair_at_rest();
	pair_attempts = 0;
}

static void every_fault_at_every_moment(void)
{
	uint64_t id = 0;

	pair_start("router_queue_threshold = 0\nenforce_disagg = false\ndispatch_ms = 0\n",
		   "router_queue_threshold = 0\n");
	for (int c = 0; c < CAUSES; c++)
		for (int m = 0; m < MOMENTS; m++)
			for (int bootstrap = 0; bootstrap < 2; bootstrap++)
				check_fault(++id, c, bootstrap, m);
	pair_stop();
}

/* ---- at random ---- */

#define STEPS 4000u

static struct kvr_rand rnd;
static uint64_t last_id;

static uint32_t draw_below(uint32_t n)
{
	return kvr_rand_below(&rnd, n);
}

static bool draw_chance(uint32_t percent)
{
	return draw_below(100) < percent;
}

/* p has a bootstrap address, q has none: both paths. */
static void change_worker(void)
{
	static const uint64_t workers[] = {PAIR_P, PAIR_Q, PAIR_D, PAIR_E};
	const uint64_t w = workers[draw_below(RTE_DIM(workers))];

	if (kvr_registry_find(rt->registry, w) == NULL || draw_chance(50))
		join_next_epoch(w, w == PAIR_P);
	else if (draw_chance(50))
		pair_leave(w);
	else
		pair_silence(w);
}

static void send_client_request(void)
{
	const uint64_t id =
		last_id == 0 ? 0 : last_id - draw_below((uint32_t)RTE_MIN(last_id, 40u));

	if (draw_chance(70) || id == 0) {
		pipeline_deadline_ms = draw_chance(30) ? 1 + draw_below(500) : 0;
		pair_route(++last_id, NULL);
		pipeline_deadline_ms = 0;
	} else if (draw_chance(30)) {
		pair_route_again(id);
	} else if (draw_chance(60)) {
		pair_client(id, draw_chance(50) ? KVR_PROBE : KVR_CANCEL);
	} else if (pair_answer[id].fin) {
		pair_fin_ack(id);
	}
}

static void send_other_client_frame(struct pair_attempt *r)
{
	static const uint16_t ends[] = {0, KVR_RESP_F_ERROR, KVR_RESP_F_CANCELLED};

	if (draw_chance(30)) {
		pair_ack(r, draw_chance(85) ? 0 : 9);
	} else if (draw_chance(40)) {
		r->tokens += draw_below(3);
		pair_item(r, 0, "more");
	} else {
		r->tokens++;
		pair_item(r, KVR_RESP_F_FIN | ends[draw_chance(80) ? 0 : draw_below(3)],
			  draw_chance(90) ? "result" : "");
	}
}

/* A worker sends a fitting or unfitting frame about a recent dispatch. */
static void send_worker_frame(void)
{
	struct pair_attempt *r;

	if (pair_attempts == 0)
		return;
	r = &pair_attempt[pair_attempts - 1 - draw_below(RTE_MIN(pair_attempts, 60u))];
	if (draw_chance(10) && r->next_seq > 0) {
		r->next_seq--;
		pair_item(r, r->flags, "again");
	} else if (r->ended && draw_chance(80)) {
		pair_abort_ack(r);
	} else {
		send_other_client_frame(r);
	}
}

static void pass_time(void)
{
	const uint32_t what = draw_below(1000);

	pipeline_skip(what == 0 ? 400000 : what < 20 ? 2500 : draw_below(60));
	pipeline_turn();
	pair_take();
}

static void do_random_step(void)
{
	const uint32_t what = draw_below(1000);

	if (what < 200)
		send_client_request();
	else if (what < 850)
		send_worker_frame();
	else if (what < 995)
		pass_time();
	else
		change_worker();
}

static void play_random(const char *decode_keys, const char *prefill_keys, uint64_t seed)
{
	uint64_t unanswered = 0;

	kvr_rand_init(&rnd, seed);
	rte_srand(seed); /* the router draws its own seeds from it */
	last_id = 0;
	pair_start(decode_keys, prefill_keys);
	join_next_epoch(PAIR_P, true);
	join_next_epoch(PAIR_D, false);
	for (uint32_t i = 0; i < STEPS; i++)
		do_random_step();
	/* Waiting requests need a worker. */
	join_next_epoch(PAIR_D, false);
	join_next_epoch(PAIR_P, true);
	pair_finish();
	for (uint64_t id = 1; id <= last_id; id++)
		unanswered += !pair_answer[id].fin && !pair_answer[id].cancelled &&
			      pair_answer[id].rejected == 0;
	CU_ASSERT(unanswered <= kvr_stats_get(rt->pool[0].count, PC_CLIENT_GONE));
	pair_leave(PAIR_P);
	pair_leave(PAIR_Q);
	pair_leave(PAIR_D);
	pair_leave(PAIR_E);
	pair_stop();
}

static void random_faults_leave_nothing(void)
{
	static const char *const queue[] = {"", "router_queue_threshold = 0\n"};
	static const char *const enforce[] = {"enforce_disagg = true\n",
					      "enforce_disagg = false\n"};
	char keys[128];

	for (uint32_t i = 0; i < 8; i++) {
		snprintf(keys, sizeof(keys), "%s%s", queue[i & 1], enforce[i >> 1 & 1]);
		play_random(keys, queue[i >> 2 & 1], 1 + i);
	}
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(every_fault_at_every_moment),
			       KVR_CASE(random_faults_leave_nothing), CU_TEST_INFO_NULL};

	return kvr_test_run("disagg_faults", tests);
}
