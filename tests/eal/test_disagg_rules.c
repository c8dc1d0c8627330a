/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rules that decide where the legs of a request go, and whether they go at all: activation, pins,
 * limits, topology; and special cases of the faults in test_disagg_faults.c.
 */
#include "pair.h"

#include <stdio.h>
#include <string.h>

#include "control/control.h"
#include "kvr_frame.h"
#include "kvr_put.h"
#include "kvr_test.h"
#include "lcore/mailbox.h"
#include "lcore/out.h"
#include "loop/loop.h"
#include "threads.h"

static uint8_t hint_bytes[4096];
static struct kvr_hint_buf hints;

static struct kvr_hint_buf *clear_hints(void)
{
	hints = (struct kvr_hint_buf){.p = hint_bytes, .cap = sizeof(hint_bytes)};
	return &hints;
}

static struct kvr_hint_buf *put_hint_u64(uint16_t type, uint64_t v)
{
	kvr_hint_put_u64(clear_hints(), type, v);
	return &hints;
}

static struct pool *find_wire_pool(uint32_t id)
{
	return rt->pool[0].wire_id == id ? &rt->pool[0] : &rt->pool[1];
}

static uint32_t count_slots(uint32_t id)
{
	return kvr_flight_count(find_wire_pool(id)->requests);
}

static void join_worker(uint64_t worker, uint32_t epoch, bool bootstrap)
{
	CU_ASSERT_TRUE_FATAL(pair_join(worker, epoch, bootstrap));
}

static void join_worker_as(struct pipeline_worker w)
{
	CU_ASSERT_TRUE_FATAL(pipeline_hello_as(&w));
}

/* ---- activation: section 9.1 ---- */

enum history { FRESH, SERVING, GONE, BACK };

static const struct can_serve {
	bool enforce;
	enum history history;
	const char *said;
	uint16_t path; /* while the pool is served */
} can_serve[] = {
	{true, FRESH, "c.NotActivated", 0},
	{false, FRESH, "d.DISPATCH c.DISPATCHED", KVR_WAY_BYPASSED},
	{true, SERVING, "p.DISPATCH d.DISPATCH c.DISPATCHED", KVR_WAY_BOOTSTRAP},
	{false, SERVING, "p.DISPATCH d.DISPATCH c.DISPATCHED", KVR_WAY_BOOTSTRAP},
	{true, GONE, "c.NotActivated", 0},
	{false, GONE, "d.DISPATCH c.DISPATCHED", KVR_WAY_BYPASSED},
	{true, BACK, "p.DISPATCH d.DISPATCH c.DISPATCHED", KVR_WAY_BOOTSTRAP},
	{false, BACK, "p.DISPATCH d.DISPATCH c.DISPATCHED", KVR_WAY_BOOTSTRAP},
};

static void play_history(enum history h)
{
	if (h >= SERVING)
		join_worker(PAIR_P, 1, true);
	if (h >= GONE)
		pair_leave(PAIR_P);
	if (h >= BACK)
		join_worker(PAIR_P, 2, true);
}

/* The state of a pool as CONNECTED reports it. */
static bool is_pool_served(uint32_t wire_id)
{
	const struct kvr_wire_ids ids = {.source = PAIR_CLIENT, .id = 1, .epoch = 1};
	const struct kvr_wire_pool *e;
	const struct kvr_wire_connected *c;
	const struct out *o;
	uint8_t zeros[400] = {0}, buf[1000];
	int len;

	clear_hints();
	kvr_hint_put(&hints, KVR_HINT_PAD, zeros, sizeof(zeros), NULL, 0);
	len = kvr_put_connect(buf, sizeof(buf), &ids, 1432, &hints);
	pipeline_flush();
	pipeline_send(PEER_CLIENT, buf, (size_t)len);
	pipeline_turn();
	o = pipeline_expect(PEER_CLIENT, KVR_CONNECTED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	c = (const void *)(&o->hdr + 1);
	e = (const void *)(c + 1);
	CU_ASSERT_EQUAL_FATAL(c->n_pools, 2);
	if (e->pool != wire_id)
		e++;
	return (e->flags & KVR_POOL_F_SERVES) != 0;
}

/* @rule 9.1 */
static void connected_reports_served_pools(void)
{
	for (size_t i = 0; i < RTE_DIM(can_serve); i++) {
		const struct can_serve *c = &can_serve[i];

		pair_start(c->enforce ? "" : "enforce_disagg = false\n", "");
		CU_ASSERT_FALSE(is_pool_served(5));
		join_worker(PAIR_D, 1, false);
		play_history(c->history);
		CU_ASSERT_EQUAL(is_pool_served(5), c->path != 0);
		CU_ASSERT_FALSE(is_pool_served(6));
		pair_route(1, NULL);
		SAID(c->said);
		CU_ASSERT_EQUAL(pair_answer[1].accepted.path, c->path);
		CU_ASSERT_EQUAL(pair_answer[1].why.retryable, pair_answer[1].rejected != 0);
		/* A query gets the same answer. */
		pipeline_route(2, 1, 6, KVR_REQ_F_QUERY, NULL);
		pair_take();
		CU_ASSERT_EQUAL(pair_answer[2].rejected, pair_answer[1].rejected);
		CU_ASSERT_EQUAL(pair_answer[2].accepted.path, c->path);
		pair_finish();
		pair_leave(PAIR_D);
		CU_ASSERT_FALSE(is_pool_served(5));
		pair_stop();
	}
}

static void requests_waiting_for_the_last_prefill_worker(bool enforce, const char *said)
{
	pair_start(enforce ? "" : "enforce_disagg = false\n", "router_queue_threshold = 0\n");
	join_worker(PAIR_D, 1, false);
	join_worker(PAIR_P, 1, true);
	pair_route(1, NULL);
	pair_route(2, NULL);
	SAID("c.QUEUED");
	pair_leave(PAIR_P);
	SAID(said);
	pair_finish();
	pair_stop();
}

/* @rule 9.1 */
static void the_prefill_side_is_lost_while_requests_wait(void)
{
	requests_waiting_for_the_last_prefill_worker(true, "c.NotActivated");
	requests_waiting_for_the_last_prefill_worker(false, "d.DISPATCH c.DISPATCHED");
}

/* @rule 5.5, @rule 16 */
static void draining_and_suspect_workers_are_not_chosen(void)
{
	pair_start("", "");
	join_worker(PAIR_D, 1, false);
	join_worker(PAIR_P, 1, true);
	join_worker(PAIR_Q, 1, true);
	CU_ASSERT_EQUAL(control_drain(rt, PAIR_P, true), 0);
	pair_route(1, NULL);
	CU_ASSERT_EQUAL(pair_leg(1, true)->worker, PAIR_Q);
	CU_ASSERT_EQUAL(control_drain(rt, PAIR_P, false), 0);
	kvr_registry_find(rt->registry, PAIR_Q)->last_seen_ns -= UINT64_C(400000000);
	pipeline_turn();
	pair_route(2, NULL);
	CU_ASSERT_EQUAL(pair_leg(2, true)->worker, PAIR_P);
	/* One is suspect and one drains: no worker is left, and the prefill side is inactive. */
	CU_ASSERT_EQUAL(control_drain(rt, PAIR_P, true), 0);
	pair_route(3, NULL);
	SAID("c.NotActivated");
	/* A draining worker finishes its requests. */
	pair_finish();
	CU_ASSERT_TRUE(pair_answer[1].fin && pair_answer[2].fin);
	CU_ASSERT_EQUAL(kvr_registry_find(rt->registry, PAIR_P)->state, KVR_WORKER_DRAINED);
	pair_stop();
}

/* ---- pins ---- */

static const struct pin {
	const char *what;
	struct {
		uint16_t type;
		uint64_t value;
	} hint[3];
	uint64_t allowed[3];
	uint64_t prefill, decode; /* 0: any */
	uint32_t prefill_rank;
	uint16_t code;
} pins[] = {
	{"prefill worker with its rank",
	 {{KVR_HINT_PREFILL_WORKER, PAIR_Q}, {KVR_HINT_PREFILL_DP_RANK, 1}},
	 {0},
	 PAIR_Q,
	 0,
	 1,
	 0},
	{"its rank may be the general one",
	 {{KVR_HINT_PREFILL_WORKER, PAIR_Q},
	  {KVR_HINT_DP_RANK, 1},
	  {KVR_HINT_DECODE_WORKER, PAIR_E}},
	 {0},
	 PAIR_Q,
	 PAIR_E,
	 1,
	 KVR_E_NO_ENDPOINTS}, /* e has rank 0 only */
	{"both workers, each with its rank",
	 {{KVR_HINT_PREFILL_WORKER, PAIR_Q},
	  {KVR_HINT_PREFILL_DP_RANK, 1},
	  {KVR_HINT_DECODE_WORKER, PAIR_E}},
	 {0},
	 PAIR_Q,
	 PAIR_E,
	 1,
	 0},
	{"several ranks, none pinned",
	 {{KVR_HINT_PREFILL_WORKER, PAIR_Q}},
	 {0},
	 0,
	 0,
	 0,
	 KVR_E_DP_RANK_REQUIRED},
	{"decode worker", {{KVR_HINT_DECODE_WORKER, PAIR_E}}, {0}, 0, PAIR_E, 0, 0},
	{"the general pin is the decode worker's",
	 {{KVR_HINT_BACKEND, PAIR_E}},
	 {0},
	 0,
	 PAIR_E,
	 0,
	 0},
	{"an unknown prefill worker: its ranks are unknown",
	 {{KVR_HINT_PREFILL_WORKER, 99}},
	 {0},
	 0,
	 0,
	 0,
	 KVR_E_DP_RANK_REQUIRED},
	{"an unknown decode worker",
	 {{KVR_HINT_DECODE_WORKER, 99}},
	 {0},
	 0,
	 0,
	 0,
	 KVR_E_DP_RANK_REQUIRED},
	{"allowed workers of both sides", {{0}}, {PAIR_P, PAIR_E}, PAIR_P, PAIR_E, 0, 0},
	{"allowed decode workers leave prefill free", {{0}}, {PAIR_E}, 0, PAIR_E, 0, 0},
	{"allowed prefill workers leave no decode worker",
	 {{0}},
	 {PAIR_P},
	 PAIR_P,
	 0,
	 0,
	 KVR_E_NO_ENDPOINTS},
	{"pinned, not allowed",
	 {{KVR_HINT_PREFILL_WORKER, PAIR_P}},
	 {PAIR_Q, PAIR_D},
	 0,
	 0,
	 0,
	 KVR_E_PINNED_NOT_ALLOWED},
};

static void put_hint(uint16_t type, uint64_t value)
{
	if (type == KVR_HINT_DP_RANK || type == KVR_HINT_PREFILL_DP_RANK)
		kvr_hint_put_u32(&hints, type, (uint32_t)value);
	else if (type != 0)
		kvr_hint_put_u64(&hints, type, value);
}

static void check_pin(const struct pin *c, uint64_t id)
{
	const struct pair_attempt *p, *d;
	uint32_t n = 0;

	clear_hints();
	for (size_t i = 0; i < RTE_DIM(c->hint); i++)
		put_hint(c->hint[i].type, c->hint[i].value);
	while (c->allowed[n] != 0)
		n++;
	if (n > 0)
		kvr_hint_put_allowed(&hints, c->allowed, n);
	pair_route(id, &hints);
	p = pair_leg(id, true);
	d = pair_leg(id, false);
	if (pair_answer[id].rejected != c->code)
		fprintf(stderr, "%s: %s\n", c->what, pair_take_frames());
	CU_ASSERT_EQUAL(pair_answer[id].rejected, c->code);
	if (c->prefill != 0)
		CU_ASSERT(p != NULL && p->worker == c->prefill &&
			  p->request.dp_rank == c->prefill_rank);
	if (c->code != 0)
		return;
	CU_ASSERT(d != NULL && (c->decode == 0 || d->worker == c->decode));
	CU_ASSERT_EQUAL(pair_answer[id].accepted.worker, d->worker);
	CU_ASSERT_EQUAL(pair_answer[id].accepted.prefill_worker, p->worker);
	CU_ASSERT_EQUAL(pair_answer[id].accepted.prefill_dp_rank, p->request.dp_rank);
	/* Both legs carry the chosen prefill worker. */
	CU_ASSERT_EQUAL(d->prefill_worker, p->worker);
	CU_ASSERT_EQUAL(p->prefill_worker, p->worker);
}

/* @rule 8: pins of each leg. @rule 5.5: errors of a pin. */
static void each_leg_has_its_own_pins(void)
{
	struct pipeline_worker q = pair_worker(PAIR_Q, 1, true);

	pair_start("", "");
	join_worker(PAIR_D, 1, false);
	join_worker(PAIR_E, 1, false);
	join_worker(PAIR_P, 1, true);
	q.ranks = 2;
	join_worker_as(q);
	for (size_t i = 0; i < RTE_DIM(pins); i++)
		check_pin(&pins[i], i + 1);
	pair_finish();
	pair_stop();
}

/* @rule 12.1: mode direct. */
static void direct_mode_wants_both_workers(void)
{
	pair_start("router_mode = direct\n", "router_mode = direct\n");
	join_worker(PAIR_D, 1, false);
	join_worker(PAIR_P, 1, true);
	pair_route(1, NULL);
	SAID("c.WorkerIdRequired");
	pair_route(2, put_hint_u64(KVR_HINT_DECODE_WORKER, PAIR_D));
	SAID("c.WorkerIdRequired");
	pair_route(3, put_hint_u64(KVR_HINT_PREFILL_WORKER, PAIR_P));
	SAID("p.DISPATCH c.WorkerIdRequired");
	put_hint_u64(KVR_HINT_PREFILL_WORKER, PAIR_P);
	kvr_hint_put_u64(&hints, KVR_HINT_DECODE_WORKER, PAIR_D);
	pair_route(4, &hints);
	SAID("p.DISPATCH d.DISPATCH c.DISPATCHED");
	pair_finish();
	pair_stop();
}

/* ---- queries ---- */

/* @rule 7.4, @rule 8: queries. */
static void a_query_asks_both_pools_and_books_nothing(void)
{
	const struct kvr_wire_accepted *a;

	for (int bootstrap = 0; bootstrap < 2; bootstrap++) {
		pair_start("", "");
		join_worker(PAIR_D, 1, false);
		join_worker(PAIR_P, 1, bootstrap);
		pair_route(1, NULL); /* takes the slots that the query would need */
		pipeline_route(2, 1, 6, KVR_REQ_F_QUERY, NULL);
		pair_take();
		a = &pair_answer[2].accepted;
		CU_ASSERT_EQUAL(pair_answer[2].rejected, 0);
		CU_ASSERT_EQUAL(a->state, KVR_STATE_QUERY);
		CU_ASSERT_EQUAL(a->worker, PAIR_D);
		CU_ASSERT_EQUAL(a->prefill_worker, PAIR_P);
		CU_ASSERT_EQUAL(a->prefill_dp_rank, 0);
		CU_ASSERT_EQUAL(a->path, bootstrap ? KVR_WAY_BOOTSTRAP : KVR_WAY_SYNC);
		CU_ASSERT_PTR_NULL(pair_leg(2, true));
		CU_ASSERT_PTR_NULL(pair_leg(2, false));
		CU_ASSERT_EQUAL(count_slots(5), 1);
		CU_ASSERT_EQUAL(count_slots(6), 1);
		pair_finish();
		pair_stop();
	}
}

/* ---- limits ---- */

/* @rule 7.5 */
static void a_full_prefill_pool_rejects_retryably(void)
{
	pair_start("", "[class p only]\nprefill_busy_threshold = 0\n"
		       "request_queue_limit_per_worker = 1\n");
	join_worker(PAIR_D, 1, false);
	join_worker(PAIR_P, 1, true);
	pair_route(1, NULL);
	pair_route(2, NULL);
	SAID("c.QUEUED");
	/* More requests than slots: a rejection occupies none. */
	for (uint64_t id = 3; id < 3 + 300; id++) {
		pair_route(id, NULL);
		CU_ASSERT_EQUAL(pair_answer[id].rejected, KVR_E_QUEUE_REJECTED);
		CU_ASSERT_EQUAL(pair_answer[id].why.retryable, 1);
		CU_ASSERT_EQUAL(pair_answer[id].why.detail[0], 1); /* requests */
		CU_ASSERT_EQUAL(pair_answer[id].why.detail[1], 1);
		CU_ASSERT_EQUAL(pair_answer[id].why.detail[2], 1);
	}
	CU_ASSERT_EQUAL(count_slots(5), 2);
	CU_ASSERT_EQUAL(count_slots(6), 2);
	pair_finish();
	CU_ASSERT_TRUE(pair_answer[1].fin && pair_answer[2].fin);
	pair_stop();
}

static void no_slot_in_the_prefill_pool(void)
{
	pair_start("", "");
	join_worker(PAIR_D, 1, false);
	join_worker(PAIR_P, 1, false);
	/* The prefill pool serves requests of its own, too. */
	while (kvr_flight_alloc_unnamed(find_wire_pool(6)->requests, 1, 1) != NULL)
		;
	pair_route(1, NULL);
	SAID("c.NoMemory");
	CU_ASSERT_EQUAL(count_slots(5), 0);
	for (uint32_t i = 0; i < kvr_flight_size(find_wire_pool(6)->requests); i++)
		kvr_flight_release(find_wire_pool(6)->requests,
				   kvr_flight_slot(find_wire_pool(6)->requests, i));
	pair_route(2, NULL);
	SAID("p.DISPATCH c.QUEUED");
	pair_finish();
	pair_stop();
}

/* ---- topology ---- */

static void put_in_zone(uint64_t worker, const char *zone, uint8_t enforcement)
{
	struct pipeline_worker w = pair_worker(worker, 1, true);

	w.topology = zone;
	if (enforcement != 0) {
		w.domain = "zone";
		w.enforcement = enforcement;
	}
	join_worker_as(w);
}

/* Count where sixteen concurrent requests are decoded. */
static uint32_t count_decoded_at(uint64_t worker)
{
	uint32_t n = 0;

	for (uint64_t id = 1; id <= 16; id++) {
		pair_route(id, NULL);
		n += pair_leg(id, false) != NULL && pair_leg(id, false)->worker == worker;
	}
	pair_finish();
	return n;
}

/* @rule 9.4 */
static void topology_restricts_decode_workers(void)
{
	pair_start("", "");
	put_in_zone(PAIR_P, "zone=east", 2);
	put_in_zone(PAIR_D, "zone=west", 0);
	put_in_zone(PAIR_E, "zone=east", 0);
	CU_ASSERT_EQUAL(count_decoded_at(PAIR_E), 16); /* required: only there */
	pair_leave(PAIR_E);
	pair_route(100, NULL);
	SAID("p.DISPATCH c.NoEndpoints");
	pair_finish();
	pair_stop();

	pair_start("", "");
	put_in_zone(PAIR_P, "zone=east", 1);
	put_in_zone(PAIR_D, "zone=west", 0);
	put_in_zone(PAIR_E, "zone=east", 0);
	CU_ASSERT(count_decoded_at(PAIR_E) >
		  8); /* preferred: until its load outweighs the preference */
	pair_leave(PAIR_E);
	pair_route(100, NULL);
	SAID("p.DISPATCH d.DISPATCH c.DISPATCHED");
	pair_finish();
	pair_stop();

	/* Required while the prefill worker's zone is unknown: nothing is dispatched. */
	pair_start("", "");
	put_in_zone(PAIR_P, "rack=7", 2);
	put_in_zone(PAIR_E, "zone=east", 0);
	pair_route(1, NULL);
	SAID("c.NoEndpoints");
	pipeline_route(2, 1, 6, KVR_REQ_F_QUERY, NULL);
	pair_take();
	CU_ASSERT_EQUAL(pair_answer[2].rejected, KVR_E_NO_ENDPOINTS);
	pair_stop();
}

/* ---- further attempts ---- */

static void fail_prefill(uint64_t id)
{
	pair_item(pair_leg(id, true), KVR_RESP_F_FIN | KVR_RESP_F_ERROR, "no");
}

static void a_further_attempt_needs_a_worker(void)
{
	pair_start("", "");
	join_worker(PAIR_D, 1, false);
	join_worker(PAIR_P, 1, true);
	pair_route(1, NULL);
	pair_take_frames();
	fail_prefill(1);
	SAID("d.ABORT c.PrefillFailed");
	CU_ASSERT_EQUAL(pair_answer[1].why.retryable, 1);
	pair_route(2, NULL);
	pair_take_frames();
	pair_leave(PAIR_P);
	SAID("d.ABORT c.WorkerLost");
	pair_finish();
	pair_stop();
	/* With the code of the agent that rejected. */
	pair_start("", "");
	join_worker(PAIR_D, 1, false);
	join_worker(PAIR_P, 1, false);
	pair_route(1, NULL);
	pair_take_frames();
	pair_ack(pair_leg(1, true), 9);
	SAID("c.PrefillFailed");
	CU_ASSERT_EQUAL(pair_answer[1].why.detail[0], 9);
	pair_stop();
	/* A pinned worker gets the request again. */
	pair_start("", "");
	join_worker(PAIR_D, 1, false);
	join_worker(PAIR_P, 1, true);
	pair_route(1, put_hint_u64(KVR_HINT_PREFILL_WORKER, PAIR_P));
	pair_take_frames();
	fail_prefill(1);
	SAID("d.ABORT p.DISPATCH d.DISPATCH c.DISPATCHED");
	pair_finish();
	pair_stop();
}

static void the_number_of_attempts_is_configured(void)
{
	pair_start("reroutes = 0\n", "");
	join_worker(PAIR_D, 1, false);
	join_worker(PAIR_P, 1, true);
	join_worker(PAIR_Q, 1, true);
	pair_route(1, NULL);
	pair_take_frames();
	fail_prefill(1);
	SAID("d.ABORT c.PrefillFailed");
	pair_finish();
	pair_stop();
	pair_start("reroutes = 3\n", "");
	join_worker(PAIR_D, 1, false);
	join_worker(PAIR_P, 1, true);
	join_worker(PAIR_Q, 1, true);
	pair_route(1, NULL);
	pair_take_frames();
	fail_prefill(1);
	SAID("d.ABORT q.DISPATCH d.DISPATCH c.DISPATCHED");
	fail_prefill(1);
	SAID("d.ABORT p.DISPATCH d.DISPATCH c.DISPATCHED");
	fail_prefill(1);
	SAID("d.ABORT q.DISPATCH d.DISPATCH c.DISPATCHED");
	fail_prefill(1);
	SAID("d.ABORT c.PrefillFailed");
	pair_finish();
	pair_stop();
}

static void a_retried_request_reports_that_it_waits(void)
{
	pair_start("", "router_queue_threshold = 0\n");
	join_worker(PAIR_D, 1, false);
	join_worker(PAIR_P, 1, true);
	pair_route(1, NULL);
	join_worker(PAIR_Q, 1, true);
	pair_route(2, NULL);
	SAID("p.DISPATCH d.DISPATCH c.DISPATCHED");
	fail_prefill(2); /* the other prefill worker is busy */
	SAID("d.ABORT c.QUEUED");
	pair_client(2, KVR_PROBE);
	SAID("c.QUEUED");
	pair_finish();
	CU_ASSERT_TRUE(pair_answer[2].fin);
	CU_ASSERT_EQUAL(pair_answer[2].items, 1);
	pair_stop();
}

/* @rule 8: a new attempt follows only a failure before any output. */
static void a_started_answer_is_not_retried(void)
{
	pair_start("", "");
	join_worker(PAIR_D, 1, false);
	join_worker(PAIR_P, 1, true);
	join_worker(PAIR_Q, 1, true);
	pair_route(1, NULL);
	pair_take_frames();
	pair_item(pair_leg(1, false), 0, ""); /* an item without a token */
	SAID("c.ITEM");
	fail_prefill(1);
	SAID("d.ABORT c.PrefillFailed");
	pair_finish();
	pair_stop();
}

static void items_of_an_aborted_attempt_are_dropped(void)
{
	struct pair_attempt *first;

	pair_start("", "");
	join_worker(PAIR_D, 1, false);
	join_worker(PAIR_P, 1, true);
	join_worker(PAIR_Q, 1, true);
	pair_route(1, NULL);
	first = pair_leg(1, false);
	fail_prefill(1);
	pair_take_frames();
	/* Sent before the ABORT arrived, and the end after it. */
	first->tokens = 1;
	pair_item(first, 0, "x");
	pair_item(first, KVR_RESP_F_FIN | KVR_RESP_F_CANCELLED, "");
	SAID("");
	CU_ASSERT_EQUAL(first->acks, 2); /* otherwise the agent would retransmit them */
	CU_ASSERT_EQUAL(pair_answer[1].items, 0);
	pair_finish();
	CU_ASSERT_EQUAL(pair_answer[1].items, 1);
	pair_stop();
}

static void a_further_attempt_needs_a_slot(void)
{
	pair_start("enforce_disagg = false\n", "");
	join_worker(PAIR_D, 1, false);
	for (uint64_t id = 1; id < 256; id++) /* aggregated, because there is no prefill worker */
		pair_route(id, NULL);
	CU_ASSERT_EQUAL(count_slots(5), 255);
	join_worker(PAIR_P, 1, true);
	join_worker(PAIR_Q, 1, true);
	pair_route(300, NULL);
	SAID("p.DISPATCH d.DISPATCH c.DISPATCHED");
	fail_prefill(300);
	SAID("d.ABORT c.NoMemory");
	pair_ack(pair_leg(1, false), 0);
	pair_item(pair_leg(1, false), KVR_RESP_F_FIN, "x");
	pair_fin_ack(1);
	CU_ASSERT_EQUAL(count_slots(5), 255); /* a slot is free again */
	pair_route_again(300);		      /* still known: not a new request */
	SAID("c.NoMemory");
	pair_finish();
	pair_stop();
}

/* The worker goes. Its rejection is read before its loss is handled. */
static void a_rejection_and_a_loss_in_one_turn(void)
{
	struct kvr_wire_ids ids = {.source = PAIR_P, .id = 9, .epoch = 1};
	const struct kvr_wire_dispatch_ack refusal = {.code = 9};
	uint8_t buf[64];
	int len;

	pair_start_prefill_first("", "");
	join_worker(PAIR_D, 1, false);
	join_worker(PAIR_P, 1, true);
	pair_route(1, NULL);
	join_worker(PAIR_Q, 1, true);
	pair_take_frames();
	len = kvr_put_empty(buf, sizeof(buf), KVR_GOODBYE, &ids);
	pipeline_send(2000 + PAIR_P, buf, (size_t)len);
	lcore_turn(rt->lcore[0]);
	ids = (struct kvr_wire_ids){
		.source = PAIR_CLIENT, .id = 1, .handle = pair_leg(1, true)->handle, .epoch = 1};
	len = kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &refusal);
	pipeline_send(2000 + PAIR_P, buf, (size_t)len);
	control_round(rt);
	pipeline_turn();
	SAID("d.ABORT q.DISPATCH d.DISPATCH c.DISPATCHED");
	pair_finish();
	CU_ASSERT_TRUE(pair_answer[1].fin);
	pair_stop();
}

/*
 * The worker goes. Before its loss is handled, the first token ends the prefill leg of one request,
 * and another request gets the slot of that leg. This other request goes to another worker and is
 * not lost.
 */
static void a_loss_and_a_reused_slot_in_one_turn(void)
{
	struct kvr_wire_ids ids = {.source = PAIR_P, .id = 9, .epoch = 1};
	const struct kvr_wire_response token = {.generated_tokens = 1, .cached_tokens = KVR_NONE32};
	uint8_t buf[128];
	int len;

	pair_start("", "");
	join_worker(PAIR_D, 1, false);
	join_worker(PAIR_P, 1, true);
	pair_route(1, NULL);
	join_worker(PAIR_Q, 1, true);
	len = kvr_put_empty(buf, sizeof(buf), KVR_GOODBYE, &ids);
	pipeline_send(2000 + PAIR_P, buf, (size_t)len);
	lcore_turn(rt->lcore[0]);
	ids = (struct kvr_wire_ids){
		.source = PAIR_CLIENT, .id = 1, .handle = pair_leg(1, false)->handle, .epoch = 1};
	len = kvr_put_response(buf, sizeof(buf), &ids, token, (struct kvr_slice){"x", 1});
	pipeline_send(2000 + PAIR_D, buf, (size_t)len);
	control_round(rt);
	CU_ASSERT_EQUAL(find_wire_pool(6)->live.n_lost, 1);
	pair_route(2, NULL);
	SAID("p.DISPATCH d.DISPATCH c.DISPATCHED");
	pair_finish();
	CU_ASSERT_TRUE(pair_answer[2].fin);
	pair_stop();
}

static void a_bypassed_request_leaves_its_queue_at_once(void)
{
	pair_start("enforce_disagg = false\nrouter_queue_threshold = 0\n",
		   "router_queue_threshold = 0\n");
	join_worker(PAIR_D, 1, false);
	pair_route(1, NULL);
	join_worker(PAIR_P, 1, true);
	pair_route(2, NULL);
	pair_route(3, NULL);
	SAID("c.QUEUED");
	pair_leave(PAIR_P); /* from one queue into the other */
	SAID("");
	pair_client(3, KVR_CANCEL);
	SAID("c.CANCELLED");
	pair_client(3, KVR_CANCEL);
	SAID("c.CANCELLED");
	pair_finish();
	SAID("");
	CU_ASSERT_PTR_NULL(pair_leg(3, false));
	pair_stop();
}

static void a_booking_that_leaves_the_queue_is_counted(void)
{
	static const uint8_t zeros[264]; /* the longest answer that can follow */
	const uint32_t body = pipeline_body_len;
	uint8_t bytes[512];
	struct kvr_hint_buf pad = {.p = bytes, .cap = sizeof(bytes)};

	kvr_hint_put(&pad, KVR_HINT_PAD, zeros, sizeof(zeros), NULL, 0);
	pair_start("enforce_disagg = false\nrouter_queue_threshold = 0\n", "");
	join_worker(PAIR_D, 1, false);
	pair_route(1, NULL); /* occupies the decode worker */
	join_worker(PAIR_P, 1, true);
	pipeline_body_len = 0;
	pair_route_flags(2, KVR_REQ_F_BOOK, &pad);
	pipeline_body_len = body;
	SAID("c.QUEUED");
	pair_client(2, KVR_CANCEL);
	SAID("c.CANCELLED");
	pair_finish();
	pair_stop(); /* the counters of the prefill pool balance */
}

static void retransmits_of_a_cancelled_request_get_its_outcome(void)
{
	for (int bootstrap = 0; bootstrap < 2; bootstrap++) {
		pair_start("", "");
		join_worker(PAIR_D, 1, false);
		join_worker(PAIR_P, 1, bootstrap);
		pair_route(1, NULL);
		pair_client(1, KVR_CANCEL);
		pair_take_frames();
		pair_route_again(1);
		pair_client(1, KVR_PROBE);
		pair_client(1, KVR_CANCEL);
		SAID("c.Ended c.Ended c.CANCELLED");
		pair_finish();
		CU_ASSERT_EQUAL(pair_leg(1, false)->abort_code, 0);
		CU_ASSERT_EQUAL(pair_leg(1, false)->result_len, bootstrap ? 0 : strlen("result"));
		CU_ASSERT_FALSE(pair_leg(1, true)->aborted);
		pair_stop();
	}
}

/* Time passes. Each round checks a part of the slots. */
static void wait_seconds(uint32_t s)
{
	for (uint32_t i = 0; i < 5 * s; i++)
		pipeline_advance(200);
}

static uint64_t count_pool_bookings(uint32_t id)
{
	return kvr_sched_counters(find_wire_pool(id)->sched)->booked_now;
}

/*
 * Only the decode worker can release what the prefill worker has computed, so the prefill leg may
 * continue after the client has gone. A leg that does not end is aborted, and its rank is free
 * again.
 */
static void a_prefill_leg_without_a_client_ends(void)
{
	for (int way = 0; way < 4; way++) {
		const bool bootstrap = (way & 1) != 0, taken = (way & 2) != 0;

		pair_start("", "");
		join_worker(PAIR_D, 1, false);
		join_worker(PAIR_P, 1, bootstrap);
		pair_route(1, NULL);
		if (taken)
			pair_ack(pair_leg(1, true), 0);
		wait_seconds(KVR_WIRE_LINGER_S / 2); /* its client sends PROBE */
		pair_client(1, KVR_CANCEL);
		pair_take_frames();
		if (bootstrap)
			pair_abort_ack(pair_leg(1, false));
		CU_ASSERT_EQUAL(count_pool_bookings(5), 0);
		wait_seconds(KVR_WIRE_LINGER_S - 1);
		CU_ASSERT_FALSE(pair_leg(1, true)->aborted);
		CU_ASSERT_EQUAL(count_pool_bookings(6), 1);
		wait_seconds(3);
		pair_take();
		CU_ASSERT_TRUE(pair_leg(1, true)->aborted);
		CU_ASSERT_EQUAL(pair_leg(1, true)->abort_code, KVR_E_EXPIRED);
		CU_ASSERT_EQUAL(count_pool_bookings(6), 0);
		CU_ASSERT_EQUAL(kvr_stats_get(find_wire_pool(6)->count, PC_EXPIRED), 1);
		CU_ASSERT_EQUAL(kvr_stats_get(find_wire_pool(5)->count, PC_CLIENT_GONE), 0);
		/* The decode worker received at most one DISPATCH. */
		CU_ASSERT((pair_leg(1, false) != NULL) == bootstrap);
		pair_abort_ack(pair_leg(1, true));
		pair_finish();
		pair_stop();
	}
}

/* A slow leg whose client waits is left alone, and so is one that ends in time. */
static void a_slow_prefill_leg_is_left_alone(void)
{
	pair_start("", "");
	join_worker(PAIR_D, 1, false);
	join_worker(PAIR_P, 1, false);
	pair_route(1, NULL);
	pair_ack(pair_leg(1, true), 0);
	for (uint32_t s = 0; s < 3 * KVR_WIRE_LINGER_S; s += 2) {
		wait_seconds(2);
		pair_client(1, KVR_PROBE);
	}
	CU_ASSERT_EQUAL(count_pool_bookings(6), 1);
	pair_client(1, KVR_CANCEL);
	wait_seconds(KVR_WIRE_LINGER_S - 2);
	pair_take_frames();
	pair_item(pair_leg(1, true), KVR_RESP_F_FIN, "result");
	CU_ASSERT_FALSE(pair_leg(1, true)->aborted);
	CU_ASSERT_FATAL(pair_leg(1, false) != NULL); /* it can be aborted there */
	CU_ASSERT_TRUE(pair_leg(1, false)->aborted);
	pair_finish();
	pair_stop();
}

/* Like wait_seconds(), but only until the prefill leg is at @p worker or the client is rejected. */
static void wait_for_prefill_at(uint64_t worker, uint32_t s)
{
	for (uint32_t i = 0;
	     i < 100 * s && pair_leg(1, true)->worker != worker && pair_answer[1].rejected == 0;
	     i++) {
		pipeline_advance(10);
		pair_take();
	}
}

/*
 * @rule 9.2: the decode engine has the leg and its prefill worker goes. Either the decode leg had
 * time to fetch the blocks, or the request starts over; if it cannot, it ends.
 */
static void the_prefill_worker_goes_before_the_fetch(void)
{
	enum { WAITS, ANSWERS, DIRECT };

	for (int how = WAITS; how <= DIRECT; how++) {
		pair_start("", "");
		join_worker(PAIR_D, 1, false);
		join_worker(PAIR_P, 1, false);
		pair_route_flags(1, how == DIRECT ? KVR_REQ_F_DIRECT : 0, NULL);
		pair_item(pair_leg(1, true), KVR_RESP_F_FIN, "result");
		SAID("p.DISPATCH c.QUEUED d.DISPATCH c.DISPATCHED");
		pair_ack(pair_leg(1, false), 0);
		wait_seconds(3);
		join_worker(PAIR_Q, 1, false);
		pair_take_frames();
		if (how == ANSWERS)
			pair_item(pair_leg(1, false), 0, "item");
		pair_leave(PAIR_P);
		wait_for_prefill_at(PAIR_Q, 1); /* each round checks a part of the slots */
		if (how == WAITS) {
			SAID("d.ABORT q.DISPATCH c.QUEUED");
			pair_abort_ack(pair_leg(1, false));
		} else if (how == ANSWERS) {
			SAID("c.ITEM");
		} else {
			SAID("d.ABORT c.WorkerLost");
			CU_ASSERT_EQUAL(pair_answer[1].why.detail[0], PAIR_P);
			pair_abort_ack(pair_leg(1, false));
		}
		pair_finish();
		CU_ASSERT(how == DIRECT || pair_answer[1].fin);
		pair_stop();
	}
	/* In time: its worker may be about to answer. */
	pair_start("", "");
	join_worker(PAIR_D, 1, false);
	join_worker(PAIR_P, 1, false);
	pair_route(1, NULL);
	pair_item(pair_leg(1, true), KVR_RESP_F_FIN, "result");
	pair_ack(pair_leg(1, false), 0);
	join_worker(PAIR_Q, 1, false);
	pair_leave(PAIR_P);
	pair_take_frames();
	wait_seconds(1);
	SAID("");
	wait_for_prefill_at(PAIR_Q, 2);
	SAID("d.ABORT q.DISPATCH c.QUEUED");
	pair_abort_ack(pair_leg(1, false));
	pair_finish();
	CU_ASSERT_TRUE(pair_answer[1].fin);
	pair_stop();
}

/* ---- messages ---- */

static void each_leg_gets_its_own_message(void)
{
	struct kvr_sched_rank_info rank;
	const struct pair_attempt *p, *d;

	pair_start("[class d a]\n[class d b]\n", "[class p b]\n");
	join_worker(PAIR_D, 1, false);
	join_worker(PAIR_P, 1, true);
	/* Classes are matched by name, not by number; an unknown class is the first one. */
	kvr_hint_put_str(clear_hints(), KVR_HINT_POLICY_CLASS, "b");
	pair_route_flags(1, KVR_REQ_F_DIRECT, &hints);
	SAID("p.DISPATCH d.DISPATCH c.DISPATCHED");
	p = pair_leg(1, true);
	d = pair_leg(1, false);
	CU_ASSERT_EQUAL(p->request.flags, KVR_REQ_F_PREFILL_LEG);
	CU_ASSERT_EQUAL(d->request.flags,
			KVR_REQ_F_DECODE_LEG | KVR_REQ_F_DIRECT | KVR_REQ_F_UNPROVEN);
	CU_ASSERT_EQUAL(p->request.client_frame, rt->max_frame);
	/* The prompt counts at the prefill worker. */
	CU_ASSERT_EQUAL(kvr_sched_rank_get(find_wire_pool(6)->sched, 0, &rank), 0);
	CU_ASSERT_EQUAL(rank.active_prefill_tokens, 24);
	CU_ASSERT_EQUAL(kvr_sched_rank_get(find_wire_pool(5)->sched, 0, &rank), 0);
	CU_ASSERT_EQUAL(rank.active_prefill_tokens, 0);
	CU_ASSERT_EQUAL(rank.active_blocks, 6);
	kvr_hint_put_str(clear_hints(), KVR_HINT_POLICY_CLASS, "a");
	pair_route(2, &hints);
	SAID("p.DISPATCH d.DISPATCH c.DISPATCHED");
	fail_prefill(2);
	CU_ASSERT_EQUAL(pair_leg(2, false)->abort_code, KVR_E_PREFILL_FAILED);
	pair_finish();
	pair_stop();
}

static void dispatch_is_retransmitted_with_backoff(void)
{
	static const uint32_t after_ms[] = {20, 40, 80, 160, 320, 640, 1000, 1000, 1000};
	struct pair_attempt *r;

	pair_start("dispatch_ms = 0\n", "");
	join_worker(PAIR_D, 1, false);
	join_worker(PAIR_P, 1, true);
	pair_route(1, NULL);
	pair_take_frames();
	pair_ack(pair_leg(1, true), 0);
	r = pair_leg(1, false);
	for (size_t i = 0; i < RTE_DIM(after_ms); i++) {
		pipeline_advance(after_ms[i] - 2);
		SAID("");
		pipeline_advance(2);
		SAID("d.DISPATCH");
		CU_ASSERT_EQUAL(r->attempt, i + 1);
	}
	pair_ack(r, 0);
	pipeline_advance(5000);
	SAID("");
	pair_finish();
	pair_stop();
}

static void without_buffers_nothing_is_lost(void)
{
	struct rte_mempool *mp;
	static struct rte_mbuf *m[PIPELINE_MBUFS];
	uint64_t in[KVR_STATS_MAX];
	uint32_t n = 0;

	pair_start("", "");
	join_worker(PAIR_D, 1, false);
	join_worker(PAIR_P, 1, true);
	mp = rt->lcore[0]->mbufs;
	while (n < RTE_DIM(m) && (m[n] = rte_pktmbuf_alloc(mp)) != NULL)
		n++;
	pair_route(1, NULL);
	SAID("");
	kvr_stats_sum(rt->in_stats, in);
	CU_ASSERT(in[IN_NO_MBUF] >= 3); /* both legs and the answer */
	while (n > 0)
		rte_pktmbuf_free(m[--n]);
	pair_client(1, KVR_PROBE);
	SAID("c.DISPATCHED");
	pipeline_advance(20);
	SAID("d.DISPATCH p.DISPATCH");
	pair_finish();
	CU_ASSERT_TRUE(pair_answer[1].fin);
	pair_stop();
}

/* A frame that the scheduler cannot accept is not acknowledged, so its sender retransmits it. */
static void a_full_ring_loses_no_result(void)
{
	const struct sched_msg nothing = {.type = MSG_ABORT_ACK};
	struct pair_attempt *r;

	if (threads_used() != NULL && threads_used()->sched >= threads_used()->ingress)
		return; /* another thread empties the ring meanwhile */
	pair_start("", "");
	join_worker(PAIR_D, 1, false);
	join_worker(PAIR_P, 1, false);
	pair_route(1, NULL);
	r = pair_leg(1, true);
	pair_ack(r, 0);
	pair_take_frames();
	while (mailbox_put(find_wire_pool(6), &nothing) == 0)
		;
	pair_item(r, KVR_RESP_F_FIN, "result");
	SAID("");
	CU_ASSERT_EQUAL(r->acks, 0);
	CU_ASSERT_EQUAL(kvr_stats_get(rt->lcore[0]->in, IN_RING_FULL), 1);
	while (mailbox_count(find_wire_pool(6)) > 1) /* one burst per turn */
		pipeline_turn();
	r->next_seq--;
	pair_item(r, KVR_RESP_F_FIN, "result");
	SAID("d.DISPATCH c.DISPATCHED");
	CU_ASSERT_EQUAL(r->acks, 1);
	pair_finish();
	pair_stop();
}

/* Reassemble the DISPATCH to this worker. @return length; 0: incomplete. */
static uint32_t reassemble_dispatch(uint64_t worker, uint8_t *msg, uint32_t cap)
{
	const struct out *o;
	uint32_t have = 0, len = 0;

	while ((o = pipeline_next(2000 + (uint32_t)worker)) != NULL) {
		if (o->hdr.kind != KVR_DISPATCH)
			continue;
		CU_ASSERT_FATAL(o->hdr.msg_len <= cap);
		memcpy(msg + o->hdr.frag_off, &o->hdr + 1, o->hdr.frag_len);
		have += o->hdr.frag_len;
		len = o->hdr.msg_len;
	}
	return have == len ? len : 0;
}

/* The worker of a leg reports all frames as missing; does nothing if there is only one frame. */
static void report_all_missing(uint64_t worker)
{
	const uint32_t port = 2000 + (uint32_t)worker;
	const struct out *o = pipeline_expect(port, KVR_DISPATCH);
	struct kvr_wire_missing m = {.kind = KVR_DISPATCH, .n_words = 1};
	struct kvr_wire_ids ids;
	uint64_t all;
	uint8_t buf[256];

	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(o->hdr.frag_off, 0);
	CU_ASSERT_PTR_NULL(pipeline_expect(port, KVR_DISPATCH)); /* only the first frame */
	pipeline_flush();
	if (kvr_frame_whole(&o->hdr)) {
		pipeline_advance(41);
		return;
	}
	ids = (struct kvr_wire_ids){
		.source = o->hdr.source, .id = o->hdr.id, .handle = o->hdr.handle, .epoch = 1};
	m.msg_seq = o->hdr.msg_seq;
	m.msg_len = o->hdr.msg_len;
	m.unit = o->hdr.frag_len;
	all = UINT64_MAX >> (64 - (m.msg_len + m.unit - 1) / m.unit);
	pipeline_send(port, buf,
		      (size_t)kvr_put_message(buf, sizeof(buf), KVR_MISSING, &ids,
					      (struct kvr_slice){&m, sizeof(m)},
					      (struct kvr_slice){&all, sizeof(all)}));
	pipeline_turn();
}

static void check_long(uint64_t worker, uint32_t n, const struct kvr_hints **out)
{
	static uint8_t msg[1 << 20];
	static struct kvr_hint_lists lists;
	static struct kvr_hints h;
	static struct kvr_message q;
	uint32_t len = reassemble_dispatch(worker, msg, sizeof(msg));
	uint64_t sh;

	CU_ASSERT_FATAL(len > 0);
	CU_ASSERT_EQUAL_FATAL(kvr_request_parse(msg, len, KVR_DISPATCH, &q), 0);
	CU_ASSERT_EQUAL_FATAL(
		kvr_hints_parse(q.hints, q.fixed.hints_len, KVR_HINTS_DISPATCH, &h, &lists), 0);
	CU_ASSERT_EQUAL(q.fixed.n_hashes, n);
	for (uint32_t i = 0; i < n; i++) {
		memcpy(&sh, (const uint8_t *)q.hashes + i * 8, 8);
		CU_ASSERT_EQUAL(sh, 7 + i);
	}
	CU_ASSERT_EQUAL(q.fixed.body_len, pipeline_body_len);
	CU_ASSERT_NSTRING_EQUAL(q.body, "body", RTE_MIN(4u, pipeline_body_len));
	*out = &h;
}

/*
 * In one frame or in many, with hints of the client or without: both legs get the whole message,
 * and a worker that reports missing frames gets them again.
 */
static void long_messages_reach_both_legs(void)
{
	static const struct {
		uint32_t n, body;
		bool hints;
	} sizes[] = {{1, 0, false},	{1, 0, true},	   {160, 3, true},   {1000, 0, false},
		     {1000, 5, true},	{3, 20000, false}, {3, 20000, true}, {2000, 30001, true},
		     {150, 100, false}, {7, 1200, true}};
	const struct kvr_hints *h;

	for (size_t i = 0; i < RTE_DIM(sizes); i++) {
		pair_start("", "");
		join_worker(PAIR_D, 1, false);
		join_worker(PAIR_P, 1, true);
		pair_take();
		clear_hints();
		kvr_hint_put_str(&hints, KVR_HINT_LORA, "adapter");
		kvr_hint_put_u64(&hints, KVR_HINT_PREFILL_WORKER, PAIR_P);
		kvr_hint_put_str(&hints, KVR_HINT_NAMESPACE, "space");
		pipeline_body_len = sizes[i].body;
		pipeline_route(1, 7, sizes[i].n, 0, sizes[i].hints ? &hints : NULL);
		check_long(PAIR_P, sizes[i].n, &h);
		CU_ASSERT_EQUAL(h->bootstrap.port, 8998);
		CU_ASSERT_EQUAL(h->lora.len, sizes[i].hints ? 7 : 0);
		pipeline_flush();
		pipeline_advance(21); /* once more: the loop above has consumed the first */
		report_all_missing(PAIR_D);
		check_long(PAIR_D, sizes[i].n, &h);
		CU_ASSERT_EQUAL(h->bootstrap.port, 8998);
		CU_ASSERT_EQUAL(h->prefill_worker, PAIR_P);
		CU_ASSERT_EQUAL(h->lora.len, sizes[i].hints ? 7 : 0);
		CU_ASSERT_EQUAL(h->cache_namespace.len, sizes[i].hints ? 5 : 0);
		pipeline_body_len = 4;
		pipeline_flush();
		pair_leave(PAIR_D);
		pair_leave(PAIR_P);
		pair_stop();
	}
}

static void a_bootstrap_address_needs_a_port(void)
{
	struct pipeline_worker w = pair_worker(PAIR_P, 1, true);
	const struct out *o;

	pair_start("", "");
	join_worker(PAIR_D, 1, false);
	w.port = 0;
	CU_ASSERT_FALSE(pipeline_hello_as(&w));
	o = pipeline_expect(2000 + PAIR_P, KVR_REJECTED);
	CU_ASSERT_FATAL(o != NULL);
	CU_ASSERT_EQUAL(((const struct kvr_wire_rejected *)(&o->hdr + 1))->code,
			KVR_E_WORKER_CONFIG);
	pair_route(1, NULL);
	SAID("c.NotActivated");
	pair_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(connected_reports_served_pools),
			       KVR_CASE(the_prefill_side_is_lost_while_requests_wait),
			       KVR_CASE(draining_and_suspect_workers_are_not_chosen),
			       KVR_CASE(each_leg_has_its_own_pins),
			       KVR_CASE(direct_mode_wants_both_workers),
			       KVR_CASE(a_query_asks_both_pools_and_books_nothing),
			       KVR_CASE(a_full_prefill_pool_rejects_retryably),
			       KVR_CASE(no_slot_in_the_prefill_pool),
			       KVR_CASE(topology_restricts_decode_workers),
			       KVR_CASE(a_further_attempt_needs_a_worker),
			       KVR_CASE(the_number_of_attempts_is_configured),
			       KVR_CASE(a_retried_request_reports_that_it_waits),
			       KVR_CASE(a_started_answer_is_not_retried),
			       KVR_CASE(items_of_an_aborted_attempt_are_dropped),
			       KVR_CASE(a_further_attempt_needs_a_slot),
			       KVR_CASE(a_rejection_and_a_loss_in_one_turn),
			       KVR_CASE(a_loss_and_a_reused_slot_in_one_turn),
			       KVR_CASE(a_bypassed_request_leaves_its_queue_at_once),
			       KVR_CASE(a_booking_that_leaves_the_queue_is_counted),
			       KVR_CASE(retransmits_of_a_cancelled_request_get_its_outcome),
			       KVR_CASE(a_prefill_leg_without_a_client_ends),
			       KVR_CASE(a_slow_prefill_leg_is_left_alone),
			       KVR_CASE(the_prefill_worker_goes_before_the_fetch),
			       KVR_CASE(each_leg_gets_its_own_message),
			       KVR_CASE(dispatch_is_retransmitted_with_backoff),
			       KVR_CASE(without_buffers_nothing_is_lost),
			       KVR_CASE(a_full_ring_loses_no_result),
			       KVR_CASE(long_messages_reach_both_legs),
			       KVR_CASE(a_bootstrap_address_needs_a_port),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("disagg_rules", tests);
}
