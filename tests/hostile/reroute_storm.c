/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests move from workers that do not acknowledge, while everything else happens at the same
 * moment: late frames of the old worker, CANCEL, PROBE, retransmitted ROUTEs, last items, GOODBYE,
 * new epochs, pauses of the process, full rings. Drawn from a seed. Each request ends once, its
 * client never gets items of two attempts, and nothing is left.
 */
#include "peers.h"
#include "threads.h"

#include <sched.h>
#include <stdlib.h>

#include "control/control.h"
#include "control/thread.h"
#include "kvr_telemetry.h"
#include "leak_check.h"

#define ROUNDS	 120u
#define BURSTS	 48u   /* frames of a round */
#define REQUESTS 2000u /* at most */
#define RUNS	 8192u
#define TURNS	 400u /* until all have their outcome */

enum { CLIENT_OF_ALL = 77, LONG = 4000 };

/* An attempt of a leg at a worker, from its first DISPATCH on. */
struct attempt {
	uint64_t id, handle;
	uint32_t peer, epoch, next_seq;
	bool prefill, aborted;
	bool ended; /* its last item was sent, or its worker has restarted */
	bool over;  /* and acknowledged */
};

/* The client's view of a request. */
struct answers {
	bool fin, rejected, cancelled;
	uint32_t flags, body, next_seq;
	uint64_t handle; /* of its items */
};

struct peer {
	struct pipeline_worker w;
	bool gone;
};

static struct attempt attempt[RUNS];
static struct answers answers[REQUESTS + 1];
static struct peer peer[4];
static uint32_t n_runs, n_peers, two_tries, msg_seq;
static uint64_t last_id, random_state;

static uint32_t draw_number(uint32_t below)
{
	random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (uint32_t)(random_state >> 33) % below;
}

/* ---- output ---- */

static struct attempt *find_attempt_of(uint64_t handle)
{
	for (uint32_t i = n_runs; i-- > 0;)
		if (attempt[i].handle == handle)
			return &attempt[i];
	return NULL;
}

static void read_client_output(const struct out *o)
{
	struct answers *t = o->hdr.id <= last_id ? &answers[o->hdr.id] : NULL;
	const void *body = &o->hdr + 1;

	if (t == NULL)
		return;
	if (o->hdr.kind == KVR_RESPONSE) {
		const struct kvr_wire_response *w = body;

		/*
		 * A cancelled request that the router has forgotten is new when its ROUTE is
		 * retransmitted.
		 */
		two_tries += t->handle != 0 && t->handle != o->hdr.handle && !t->cancelled;
		t->handle = o->hdr.handle;
		t->next_seq = RTE_MAX(t->next_seq, w->seq + 1);
		t->fin = t->fin || (w->flags & KVR_RESP_F_FIN) != 0;
	} else if (o->hdr.kind == KVR_REJECTED) {
		t->rejected =
			t->rejected || ((const struct kvr_wire_rejected *)body)->kind == KVR_ROUTE;
	} else if (o->hdr.kind == KVR_CANCELLED) {
		t->cancelled = true;
	}
}

static void read_agent_output(const struct out *o, uint32_t from)
{
	struct attempt *r = find_attempt_of(o->hdr.handle);
	const void *body = &o->hdr + 1;

	if (o->hdr.kind == KVR_DISPATCH && r == NULL && o->hdr.frag_off == 0 && n_runs < RUNS) {
		const struct kvr_wire_request *q = body;

		attempt[n_runs++] =
			(struct attempt){.id = o->hdr.id,
					 .handle = o->hdr.handle,
					 .peer = from,
					 .epoch = peer[from].w.epoch,
					 .prefill = (q->flags & KVR_REQ_F_PREFILL_LEG) != 0};
	} else if (r != NULL && o->hdr.kind == KVR_ABORT) {
		r->aborted = true;
	} else if (r != NULL && o->hdr.kind == KVR_REJECTED) {
		r->ended = r->over = true; /* the router does not know it */
	} else if (r != NULL && o->hdr.kind == KVR_RESPONSE_ACK) {
		const struct kvr_wire_response_ack *a = body;

		r->over = r->over || (a->flags & KVR_RACK_F_FIN) != 0;
	}
}

static void take_output(void)
{
	const struct out *o;

	while ((o = pipeline_next(0)) != NULL) {
		if (o->to == PEER_CLIENT)
			read_client_output(o);
		for (uint32_t i = 0; i < n_peers; i++)
			if (o->to == peer[i].w.from)
				read_agent_output(o, i);
	}
	pipeline_flush();
}

/* ---- input ---- */

static struct kvr_wire_ids make_attempt_ids(const struct attempt *r)
{
	return (struct kvr_wire_ids){
		.source = CLIENT_OF_ALL, .id = r->id, .handle = r->handle, .epoch = r->epoch};
}

static void send_as_agent(const struct attempt *r, uint8_t kind, uint16_t flags)
{
	const struct kvr_wire_ids ids = make_attempt_ids(r);
	const struct kvr_wire_dispatch_ack a = {.code = flags};
	const struct kvr_wire_response w = {.seq = r->next_seq,
					    .flags = flags,
					    .generated_tokens = r->next_seq + 1,
					    .cached_tokens = KVR_NONE32};
	uint8_t buf[256];
	int len;

	if (kind == KVR_DISPATCH_ACK)
		len = kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &a);
	else if (kind == KVR_RESPONSE)
		len = kvr_put_response(buf, sizeof(buf), &ids, w, (struct kvr_slice){"item", 4});
	else
		len = kvr_put_empty(buf, sizeof(buf), kind, &ids);
	pipeline_send(peer[r->peer].w.from, buf, (size_t)len);
}

static void send_attempt_item(struct attempt *r, uint16_t flags)
{
	send_as_agent(r, KVR_RESPONSE, flags);
	r->next_seq++;
	r->ended = r->ended || (flags & KVR_RESP_F_FIN) != 0;
}

static void send_as_client(uint64_t id, uint8_t kind)
{
	const struct kvr_wire_ids ids = {.source = CLIENT_OF_ALL, .id = id, .epoch = 1};
	uint8_t buf[64];

	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), kind, &ids));
}

static void acknowledge_as_client(uint64_t id)
{
	const struct kvr_wire_ids ids = {
		.source = CLIENT_OF_ALL, .id = id, .handle = answers[id].handle, .epoch = 1};
	const struct kvr_wire_response_ack a = {answers[id].next_seq,
						answers[id].fin ? KVR_RACK_F_FIN : 0};
	uint8_t buf[64];

	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_response_ack(buf, sizeof(buf), &ids, &a));
}

static void send_storm_route(uint64_t id, uint32_t more)
{
	static const uint8_t text[LONG];
	const uint64_t hash[4] = {100 * id, 100 * id + 1, 100 * id + 2, 100 * id + 3};
	const struct kvr_wire_ids ids = {
		.source = CLIENT_OF_ALL, .id = id, .epoch = 1, .msg_seq = ++msg_seq};
	struct kvr_request_src src = {.fixed = {.pool = 5,
						.flags = answers[id].flags | more,
						.isl = 16,
						.max_tokens = KVR_NONE32,
						.expected_output_tokens = KVR_NONE32},
				      .hashes = hash,
				      .n_hashes = 4,
				      .body = text,
				      .body_len = answers[id].body};
	uint8_t frame[KVR_WIRE_DEF_FRAME];
	struct kvr_slice s[KVR_REQUEST_SLICES];
	struct kvr_frag f;
	uint32_t off, part;

	CU_ASSERT_FATAL(
		kvr_frag_init(&f, KVR_ROUTE, &ids, kvr_request_build(&src, s), sizeof(frame)) == 0);
	while (kvr_frag_next(&f, frame, &off, &part)) {
		kvr_slices_copy(s, KVR_REQUEST_SLICES, off, part,
				frame + sizeof(struct kvr_wire_hdr));
		pipeline_send(PEER_CLIENT, frame, sizeof(struct kvr_wire_hdr) + part);
	}
}

static void send_new_request(void)
{
	if (last_id == REQUESTS)
		return;
	last_id++;
	answers[last_id] = (struct answers){.flags = draw_number(4) == 0 ? KVR_REQ_F_TRACK : 0,
					    .body = draw_number(6) == 0 ? LONG : 4};
	send_storm_route(last_id, 0);
}

static void register_peer(struct peer *p)
{
	const struct kvr_wire_ids ids = {.source = p->w.id, .id = 1, .epoch = p->w.epoch};
	const struct kvr_wire_hello h = {.block_size = 4,
					 .dp_size = 1,
					 .max_num_batched_tokens = 64,
					 .total_kv_blocks = 1000,
					 .max_frame = 1432,
					 .role = p->w.role};
	uint8_t tlv[256], buf[512];
	struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};

	kvr_hint_put_str(&hints, KVR_HINT_POOL, p->w.pool);
	if (p->w.host != NULL)
		kvr_hint_put_bootstrap_addr(&hints, p->w.port, p->w.host);
	pipeline_send(p->w.from, buf, (size_t)kvr_put_hello(buf, sizeof(buf), &ids, h, &hints));
	p->gone = false;
}

/* A worker ends and returns, at once or later; its attempts are over. */
static void restart_peer(uint32_t number, bool with_goodbye)
{
	struct peer *p = &peer[number];
	const struct kvr_wire_ids ids = {.source = p->w.id, .id = 9, .epoch = p->w.epoch};
	uint8_t buf[64];

	if (with_goodbye)
		pipeline_send(p->w.from, buf,
			      (size_t)kvr_put_empty(buf, sizeof(buf), KVR_GOODBYE, &ids));
	p->gone = true;
	p->w.epoch++;
	for (uint32_t i = 0; i < n_runs; i++)
		if (attempt[i].peer == number)
			attempt[i].ended = attempt[i].over = true;
	if (draw_number(2) == 0)
		register_peer(p);
}

/* ---- storm ---- */

/* A frame of a worker about an attempt; for one leg in three none is sent in time. */
static void send_random_agent_frame(void)
{
	struct attempt *r;

	if (n_runs == 0)
		return;
	r = &attempt[n_runs - 1 - draw_number(RTE_MIN(n_runs, 64u))];
	if (r->handle % 3 == 0 && draw_number(8) != 0)
		return;
	switch (draw_number(8)) {
	case 0 ... 2:
		send_as_agent(r, KVR_DISPATCH_ACK, draw_number(16) == 0 ? KVR_E_NO_MEMORY : 0);
		break;
	case 3 ... 4:
		send_attempt_item(r, 0);
		break;
	case 5 ... 6:
		send_attempt_item(r, KVR_RESP_F_FIN | (draw_number(8) == 0 ? KVR_RESP_F_ERROR : 0));
		break;
	default:
		send_as_agent(r, KVR_ABORT_ACK, 0);
	}
}

static void do_random_event(void)
{
	const uint64_t id =
		last_id != 0 ? last_id - draw_number((uint32_t)RTE_MIN(last_id, 40u)) : 0;

	switch (draw_number(20)) {
	case 0 ... 2:
		send_new_request();
		break;
	case 3 ... 5:
		if (id != 0)
			send_storm_route(id, KVR_REQ_F_RESEND);
		break;
	case 6:
		if (id != 0)
			send_as_client(id, KVR_PROBE);
		break;
	case 7:
		if (id != 0 && draw_number(3) == 0)
			send_as_client(id, KVR_CANCEL);
		break;
	case 8 ... 9:
		if (id != 0 && answers[id].handle != 0)
			acknowledge_as_client(id);
		break;
	case 10:
		if (draw_number(12) == 0)
			restart_peer(draw_number(n_peers), draw_number(2) == 0);
		break;
	default:
		send_random_agent_frame();
	}
}

static uint64_t sum_lcore_counter(enum in_counter c)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < rt->n_lcores; i++)
		sum += kvr_stats_get(rt->lcore[i]->in, c);
	return sum;
}

static _Atomic bool released;

static bool hold_scheduler(struct lcore *lc, void *arg)
{
	RTE_SET_USED(lc);
	RTE_SET_USED(arg);
	/* Pairs with the release in fill_a_ring(). */
	while (!atomic_load_explicit(&released, memory_order_acquire))
		sched_yield();
	return true;
}

/*
 * The scheduler stops until its ring is full: later frames of any kind are lost. It continues while
 * more arrive.
 */
static void fill_a_ring(void)
{
	struct lcore *lc = rt->pool[0].sched_lcore;
	struct call c = {.fn = hold_scheduler};
	const uint64_t before = sum_lcore_counter(IN_RING_FULL);
	uint64_t since = 0;

	if (threads_used() == NULL || lc->index < threads_used()->ingress)
		return; /* its output could not be received either */
	atomic_store_explicit(&released, false, memory_order_release);
	threads_run();
	kvr_telemetry_lock();
	call_start(rt, lc, &c);
	kvr_telemetry_unlock();
	while (sum_lcore_counter(IN_RING_FULL) == before) {
		for (uint32_t i = 0; i < 64; i++)
			send_as_client(last_id, KVR_PROBE);
		threads_wait(&since);
	}
	for (uint32_t i = 0; i < BURSTS; i++)
		do_random_event();
	atomic_store_explicit(&released, true, memory_order_release);
	for (uint32_t i = 0; i < BURSTS; i++)
		do_random_event();
	kvr_telemetry_lock();
	call_wait(rt, &c);
	kvr_telemetry_unlock();
}

static void run_reroute_storm(void)
{
	for (uint32_t i = 0; i < ROUNDS; i++) {
		threads_run();
		if (i % 8 == 7 && last_id != 0)
			fill_a_ring();
		for (uint32_t k = 0; k < BURSTS; k++)
			do_random_event();
		pipeline_step();
		take_output();
		for (uint32_t k = 0; k < n_peers; k++)
			if (peer[k].gone && draw_number(4) == 0)
				register_peer(&peer[k]);
		if (draw_number(3) == 0)
			pipeline_skip(1 + draw_number(40));
		else if (draw_number(30) == 0)
			pipeline_pause(1 + draw_number(3000));
	}
}

/* ---- end ---- */

/* An agent ends its attempts and retransmits the last item until it is acknowledged. */
static void end_attempts(struct attempt *r)
{
	if (r->ended && r->next_seq > 0)
		r->next_seq--;
	else if (r->aborted)
		send_as_agent(r, KVR_ABORT_ACK, 0);
	else
		send_as_agent(r, KVR_DISPATCH_ACK, 0);
	send_attempt_item(r, KVR_RESP_F_FIN | (r->aborted ? KVR_RESP_F_CANCELLED : 0));
}

/* All peers follow the protocol. */
static void run_orderly(void)
{
	for (uint32_t i = 0; i < n_peers; i++)
		register_peer(&peer[i]);
	for (uint32_t i = 0; i < n_runs; i++)
		if (!attempt[i].over)
			end_attempts(&attempt[i]);
	for (uint64_t id = 1; id <= last_id; id++)
		if (answers[id].fin)
			acknowledge_as_client(id);
		else if (!answers[id].rejected)
			send_storm_route(id, KVR_REQ_F_RESEND);
	pipeline_advance(50);
	take_output();
}

static uint32_t count_unfinished(void)
{
	uint32_t n = 0;

	for (uint64_t id = 1; id <= last_id; id++)
		n += !answers[id].fin && !answers[id].rejected;
	return n;
}

static void expect_all_finished(void)
{
	for (uint32_t i = 0; i < TURNS && count_unfinished() != 0; i++)
		run_orderly();
	CU_ASSERT_EQUAL(count_unfinished(), 0);
}

static void expect_nothing_left(void)
{
	uint32_t live = 1;

	for (uint32_t i = 0; i < 400 && live != 0; i++) {
		run_orderly();
		pipeline_advance(500);
		take_output();
		live = 0;
		for (uint32_t p = 0; p < rt->n_pools; p++)
			live += kvr_flight_count(rt->pool[p].requests);
	}
	CU_ASSERT_EQUAL(live, 0);
	CU_ASSERT_TRUE(leak_check_requests(rt));
	pipeline_collect();
	take_output();
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
}

static void begin_reroutes(const struct pipeline_worker w[], uint32_t n, uint64_t seed)
{
	n_runs = two_tries = 0;
	last_id = 0;
	random_state = seed;
	n_peers = n;
	for (uint32_t i = 0; i < n; i++) {
		peer[i] = (struct peer){.w = w[i]};
		CU_ASSERT_TRUE_FATAL(pipeline_hello_as(&w[i]));
	}
	pipeline_flush();
}

static void run_seeds(const char *pools, const struct pipeline_worker w[], uint32_t n)
{
	const char *first = getenv("KVR_SEED");
	const uint64_t from = first != NULL ? strtoull(first, NULL, 10) : 1;
	uint64_t moved = 0;

	for (uint64_t seed = from; seed < from + 3; seed++) {
		pipeline_start_with(pools);
		begin_reroutes(w, n, seed);
		run_reroute_storm();
		moved += kvr_stats_get(rt->pool[0].count, PC_UNACKNOWLEDGED);
		expect_all_finished();
		CU_ASSERT_EQUAL(two_tries, 0);
		expect_nothing_left();
		pipeline_stop();
	}
	CU_ASSERT(moved > 0);
}

static void a_storm_in_one_pool_leaves_nothing(void)
{
	static const struct pipeline_worker w[] = {
		{.id = 9, .epoch = 1, .ranks = 1, .pool = "a", .from = 2009},
		{.id = 10, .epoch = 1, .ranks = 1, .pool = "a", .from = 2010},
		{.id = 11, .epoch = 1, .ranks = 1, .pool = "a", .from = 2011}};

	run_seeds("[pool a]\nid = 5\n" PIPELINE_POOL "dispatch_ms = 20\nreroutes = 3\n", w, 3);
}

static void a_storm_in_a_pair_leaves_nothing(void)
{
	static const struct pipeline_worker w[] = {{.id = 21,
						    .epoch = 1,
						    .ranks = 1,
						    .pool = "p",
						    .from = 2021,
						    .role = KVR_ROLE_PREFILL,
						    .host = "10.9.8.7",
						    .port = 8998},
						   {.id = 22,
						    .epoch = 1,
						    .ranks = 1,
						    .pool = "p",
						    .from = 2022,
						    .role = KVR_ROLE_PREFILL},
						   {.id = 31,
						    .epoch = 1,
						    .ranks = 1,
						    .pool = "d",
						    .from = 2031,
						    .role = KVR_ROLE_DECODE},
						   {.id = 32,
						    .epoch = 1,
						    .ranks = 1,
						    .pool = "d",
						    .from = 2032,
						    .role = KVR_ROLE_DECODE}};

	run_seeds("[pool d]\nid = 5\nmodel = m\nrole = decode\n" PIPELINE_POOL
		  "dispatch_ms = 20\nreroutes = 3\n[pool p]\nid = 6\nmodel = m\nrole = "
		  "prefill\n" PIPELINE_POOL,
		  w, 4);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_storm_in_one_pool_leaves_nothing),
			       KVR_CASE(a_storm_in_a_pair_leaves_nothing), CU_TEST_INFO_NULL};

	return kvr_test_run("reroute_storm", tests);
}
