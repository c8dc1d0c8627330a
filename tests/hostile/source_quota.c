/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One source uses everything. Quotas bound the requests, waiting frames, answers and
 * control frames of each source address; the other source (10.0.0.3) is always served.
 */
#include "kv.h"
#include "peers.h"

#include "ingress/ingress.h"
#include "loop/loop.h"
#include "sched/session.h"
#include "threads.h"

#define WORKER 9u

/* Ingress lcores that receive frames of a source on all queues: each has a rate for it. */
static uint32_t count_reached(void)
{
	const struct threads_map *map = threads_used();

	return map == NULL || map->queues != 0 ? 1 : map->ingress;
}

/* Every lcore takes one turn, in order: a model of concurrent turns. */
static void run_all_lcores(void)
{
	for (uint32_t i = 0; i < rt->n_lcores; i++)
		lcore_turn(rt->lcore[i]);
}

static void begin_quota_with(const char *router, const char *port, const char *pools)
{
	pipeline_router = router;
	pipeline_port = port;
	pipeline_host = 2;
	pipeline_start_with(pools);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 2));
}

static void begin_quota(const char *router, const char *port)
{
	begin_quota_with(router, port,
			 "[pool a]\nid = 5\n" PIPELINE_POOL
			 "[pool b]\nid = 6\nrouter_queue_threshold = 0.5\n" PIPELINE_POOL);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER + 1, 1, "b", 1));
	pipeline_flush();
}

static void end_quota(void)
{
	pipeline_turn();
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
	pipeline_pool = 5;
	pipeline_host = 2;
	pipeline_queue = PIPELINE_SPREAD;
}

static uint32_t get_top_quota(const struct kvr_quota *s, struct kvr_quota_top top[2])
{
	uint32_t at = 0;

	return kvr_quota_top(s, &at, top, 0, 2);
}

/* ROUTEs of new requests from 10.0.0.HOST until one is rejected. @return how many were accepted. */
static uint32_t route_until_refused(uint8_t host, uint64_t *id, uint32_t most,
				    struct kvr_wire_rejected *why)
{
	const struct out *o;

	pipeline_host = host;
	for (uint32_t n = 0; n < most; n++) {
		pipeline_flush();
		++*id;
		pipeline_route(*id, 1000 * *id, 8, 0, NULL);
		o = pipeline_expect(PEER_CLIENT, KVR_REJECTED);
		if (o == NULL)
			continue;
		memcpy(why, &o->hdr + 1, sizeof(*why));
		return n;
	}
	return most;
}

static void requests_of_one_source_leave_slots_for_others(void)
{
	struct kvr_wire_rejected why = {0};
	struct kvr_quota_top top[2];
	uint64_t id = 0;

	begin_quota("source_share = 2\n", "cookie = off\n");
	CU_ASSERT_EQUAL(route_until_refused(2, &id, 256, &why), 160); /* 2/3 of 15/16 of 256 */
	CU_ASSERT_EQUAL(why.code, KVR_E_SOURCE_LIMIT);
	CU_ASSERT_EQUAL(why.retryable, 1);
	CU_ASSERT_EQUAL(why.detail[0], KVR_QUOTA_REQUESTS);
	CU_ASSERT_EQUAL(why.detail[1], 160);
	CU_ASSERT_EQUAL(why.detail[2], 160);
	CU_ASSERT_TRUE(route_until_refused(3, &id, 256, &why) >= 53);
	CU_ASSERT_EQUAL(get_top_quota(rt->pool[0].live.quotas.slots, top), 2);
	CU_ASSERT_EQUAL(top[0].held, 160);
	/* The requests end with their worker: everything is freed. */
	pipeline_host = 2;
	CU_ASSERT_TRUE(pipeline_hello(WORKER, 2, "a", 2));
	for (int i = 0; i < 40; i++)
		pipeline_advance(1000);
	CU_ASSERT_EQUAL(kvr_flight_count(rt->pool[0].requests), 0);
	CU_ASSERT_EQUAL(get_top_quota(rt->pool[0].live.quotas.slots, top), 0);
	end_quota();
}

/*
 * Six sources, one after the other, use their quota, and the worker never ends a request. One slot
 * is still free for each source without a request, and no second one for a source that has one.
 */
static void six_sources_leave_a_slot_for_each_other_source(void)
{
	struct kvr_wire_rejected why = {0};
	uint64_t id = 0;
	uint32_t n = 0;

	begin_quota("source_share = 2\n", "cookie = off\n");
	for (uint8_t host = 10; host < 16; host++)
		n += route_until_refused(host, &id, 256, &why);
	CU_ASSERT_EQUAL(n, 256 - 15);
	for (uint8_t host = 20; host < 34; host++) {
		CU_ASSERT_EQUAL(route_until_refused(host, &id, 256, &why), 1);
		CU_ASSERT_EQUAL(why.code, KVR_E_SOURCE_LIMIT);
		CU_ASSERT_EQUAL(why.detail[1], 1);
		CU_ASSERT_EQUAL(why.detail[2], 1);
	}
	CU_ASSERT_EQUAL(kvr_flight_count(rt->pool[0].requests), 255);
	pipeline_host = 2;
	CU_ASSERT_TRUE(pipeline_hello(WORKER, 2, "a", 2));
	for (int i = 0; i < 40; i++)
		pipeline_advance(1000);
	CU_ASSERT_EQUAL(kvr_flight_count(rt->pool[0].requests), 0);
	end_quota();
}

static void waiting_requests_of_one_source_leave_places_for_others(void)
{
	struct kvr_wire_rejected why = {0};
	struct kvr_quota_top top[2];
	uint64_t id = 0;
	uint32_t n;

	begin_quota("source_share = 2\n", "cookie = off\n");
	pipeline_pool = 6; /* some run, the others wait: max_jobs is 128 */
	n = route_until_refused(2, &id, 256, &why);
	CU_ASSERT_TRUE(n >= 80 && n < 105);
	CU_ASSERT_EQUAL(why.code, KVR_E_SOURCE_LIMIT);
	CU_ASSERT_EQUAL(why.detail[0], KVR_QUOTA_WAITING);
	CU_ASSERT_TRUE(route_until_refused(3, &id, 256, &why) >= 27);
	for (uint8_t host = 10; host < 14; host++)
		CU_ASSERT_TRUE(route_until_refused(host, &id, 256, &why) >= 1);
	CU_ASSERT_EQUAL(rt->pool[1].live.quotas.n_waiting, 128 - 7);
	for (uint8_t host = 20; host < 24; host++) { /* one for each source */
		CU_ASSERT_EQUAL(route_until_refused(host, &id, 256, &why), 1);
		CU_ASSERT_EQUAL(why.code, KVR_E_SOURCE_LIMIT);
	}
	pipeline_host = 2;
	CU_ASSERT_TRUE(pipeline_hello(WORKER + 1, 2, "b", 1));
	pipeline_host = 2;
	for (uint64_t i = 1; i <= id; i++) {
		const struct kvr_wire_ids ids = {.source = 77, .id = i, .epoch = 1};
		uint8_t buf[64];
		int len = kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &ids);

		for (pipeline_host = 2; pipeline_host < 24; pipeline_host++)
			pipeline_send(PEER_CLIENT, buf, (size_t)len);
		pipeline_host = 2;
		pipeline_turn();
	}
	CU_ASSERT_EQUAL(rt->pool[1].live.quotas.n_waiting, 0);
	CU_ASSERT_EQUAL(get_top_quota(rt->pool[1].live.quotas.jobs, top), 0);
	CU_ASSERT_EQUAL(get_top_quota(rt->pool[1].live.quotas.frames, top), 0);
	end_quota();
}

/* ---- sessions ---- */

static uint64_t read_quota_counter(enum session_counter c)
{
	return kvr_stats_get(rt->pool[0].sessions->count, c);
}

/* A request of 10.0.0.HOST with a session of its own. */
static void route_with_session(uint8_t host, uint64_t id, uint8_t action)
{
	uint8_t tlv[64];
	struct kvr_hint_buf h = {.p = tlv, .cap = sizeof(tlv)};
	char name[24];

	snprintf(name, sizeof(name), "chat %u.%u", host, (unsigned int)id);
	kvr_hint_put_session(&h, action, 60, name);
	pipeline_flush();
	pipeline_host = host;
	pipeline_route(id, 1000 * id, 4, 0, &h);
	pipeline_host = 2; /* the worker's */
}

static uint32_t worker_epoch = 1; /* of the worker */

/* Its worker accepts the open. @return false: no worker received it. */
static bool answer_open(void)
{
	const struct out *o = pipeline_expect(PEER_AGENT, KVR_SESSION_OPEN);
	struct kvr_wire_ids ids;
	uint8_t buf[64];

	if (o == NULL)
		return false;
	ids = (struct kvr_wire_ids){
		.source = o->hdr.source, .id = o->hdr.id, .epoch = worker_epoch};
	pipeline_send(
		PEER_AGENT, buf,
		(size_t)kvr_put_session_status(buf, sizeof(buf), KVR_SESSION_OPENED, &ids, 0));
	pipeline_turn();
	return true;
}

static void sessions_of_one_source_leave_places_for_others(void)
{
	struct kvr_wire_rejected why = {0};
	struct kvr_quota_top top[2];
	uint64_t id = 0;

	begin_quota_with("source_share = 2\n", "cookie = off\n",
			 "[pool a]\nid = 5\nmax_sessions = 30\n" PIPELINE_POOL);
	do
		route_with_session(2, ++id, KVR_ACTION_OPEN);
	while (answer_open());
	why = peers_take_rejected(PEER_CLIENT);
	CU_ASSERT_EQUAL(why.code, KVR_E_SOURCE_LIMIT);
	CU_ASSERT_EQUAL(why.retryable, 1);
	CU_ASSERT_EQUAL(why.detail[0], KVR_QUOTA_SESSIONS);
	CU_ASSERT_EQUAL(why.detail[1], 20); /* 2/3 of 30 */
	CU_ASSERT_EQUAL(why.detail[2], 18);
	CU_ASSERT_EQUAL(read_quota_counter(SC_LIVE), 20);
	for (uint64_t i = 0; i < 6; i++) {
		route_with_session(3, ++id, KVR_ACTION_OPEN);
		CU_ASSERT_TRUE(answer_open());
	}
	CU_ASSERT_EQUAL(get_top_quota(rt->pool[0].live.quotas.sessions, top), 2);
	CU_ASSERT(top[0].held == 20 && top[1].held == 6);
	for (uint64_t i = 0; i < 2; i++) {
		route_with_session(10, ++id, KVR_ACTION_OPEN);
		CU_ASSERT_TRUE(answer_open());
	}
	for (uint8_t host = 11; host < 13;
	     host++) { /* the last places are for sources without a session */
		route_with_session(host, ++id, KVR_ACTION_OPEN);
		CU_ASSERT_TRUE(answer_open());
		route_with_session(host, ++id, KVR_ACTION_OPEN);
		CU_ASSERT_FALSE(answer_open());
	}
	CU_ASSERT_EQUAL(read_quota_counter(SC_LIVE), 30);
	route_with_session(13, ++id,
			   KVR_ACTION_OPEN); /* another source has used its quota, not this one */
	CU_ASSERT_EQUAL(peers_take_rejected(PEER_CLIENT).code, KVR_E_SESSION_LIMIT);
	for (int i = 0; i < 100; i++) /* they have expired: everything is freed */
		pipeline_advance(1000);
	CU_ASSERT_EQUAL(read_quota_counter(SC_LIVE), 0);
	CU_ASSERT_EQUAL(get_top_quota(rt->pool[0].live.quotas.sessions, top), 0);
	end_quota();
}

/* Open sessions of 10.0.0.2 until its quota is used. @return how many. */
static uint32_t open_until_rejected(uint64_t *id)
{
	const uint64_t from = *id;

	do
		route_with_session(2, ++*id, KVR_ACTION_OPEN);
	while (answer_open() && *id < from + 31);
	CU_ASSERT_EQUAL(peers_take_rejected(PEER_CLIENT).code, KVR_E_SOURCE_LIMIT);
	return (uint32_t)(*id - from - 1);
}

static void release_number(uint8_t host, uint64_t session)
{
	const struct kvr_wire_ids ids = {.source = 77, .id = 5000 + session, .epoch = 1};
	const struct kvr_wire_session body = {.pool = 5};
	char name[24];
	uint8_t buf[128];
	const int len = snprintf(name, sizeof(name), "chat %u.%u", host, (unsigned int)session);

	pipeline_host = host;
	pipeline_send(PEER_CLIENT, buf,
		      (size_t)kvr_put_session(buf, sizeof(buf), KVR_SESSION_RELEASE, &ids, body,
					      (struct kvr_str){name, (uint32_t)len}));
	pipeline_host = 2;
	pipeline_turn();
}

#define SESSION_POOL "[pool a]\nid = 5\nmax_sessions = 30\n" PIPELINE_POOL

/*
 * The worker restarts: sessions there count for their sources until they are released or expire,
 * and then no more; none is counted twice.
 */
static void sessions_count_across_a_restart_of_their_worker(void)
{
	struct kvr_quota_top top[2];
	uint64_t id = 0;

	begin_quota_with("source_share = 2\n", "cookie = off\n", SESSION_POOL);
	CU_ASSERT_EQUAL(open_until_rejected(&id), 20);
	pipeline_host = 2;
	worker_epoch = 2;
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, worker_epoch, "a", 2));
	CU_ASSERT_EQUAL(get_top_quota(rt->pool[0].live.quotas.sessions, top), 1);
	CU_ASSERT_EQUAL(top[0].held, 20);
	route_with_session(2, ++id, KVR_ACTION_OPEN); /* the new incarnation frees no places */
	CU_ASSERT_EQUAL(peers_take_rejected(PEER_CLIENT).code, KVR_E_SOURCE_LIMIT);
	for (uint64_t s = 1; s <= 5; s++)
		release_number(2, s);
	CU_ASSERT_EQUAL(get_top_quota(rt->pool[0].live.quotas.sessions, top), 1);
	CU_ASSERT_EQUAL(top[0].held, 15);
	CU_ASSERT_EQUAL(open_until_rejected(&id), 5);
	CU_ASSERT_EQUAL(get_top_quota(rt->pool[0].live.quotas.sessions, top), 1);
	CU_ASSERT_EQUAL(top[0].held, read_quota_counter(SC_LIVE));
	for (int i = 0; i < 100; i++)
		pipeline_advance(1000);
	CU_ASSERT_EQUAL(read_quota_counter(SC_LIVE), 0);
	CU_ASSERT_EQUAL(get_top_quota(rt->pool[0].live.quotas.sessions, top), 0);
	worker_epoch = 1;
	end_quota();
}

/* A restarted router knows no session: each source may use its quota again, and no more. */
static void sessions_are_counted_again_after_a_restart_of_the_router(void)
{
	struct kvr_quota_top top[2];
	uint64_t id = 0;

	begin_quota_with("source_share = 2\n", "cookie = off\n", SESSION_POOL);
	CU_ASSERT_EQUAL(open_until_rejected(&id), 20);
	end_quota();
	begin_quota_with("source_share = 2\n", "cookie = off\n", SESSION_POOL);
	CU_ASSERT_EQUAL(get_top_quota(rt->pool[0].live.quotas.sessions, top), 0);
	CU_ASSERT_EQUAL(read_quota_counter(SC_LIVE), 0);
	CU_ASSERT_EQUAL(open_until_rejected(&id), 20);
	for (int i = 0; i < 100; i++)
		pipeline_advance(1000);
	CU_ASSERT_EQUAL(get_top_quota(rt->pool[0].live.quotas.sessions, top), 0);
	end_quota();
}

/* The same while the worker answers no open: pending opens are charged, too. */
static void opens_of_one_source_leave_places_for_others(void)
{
	struct kvr_wire_rejected why = {0};
	struct kvr_quota_top top[2];
	uint64_t id = 0;

	begin_quota_with("source_share = 2\n", "cookie = off\n",
			 "[pool a]\nid = 5\nmax_sessions = 30\n" PIPELINE_POOL);
	do
		route_with_session(2, ++id, KVR_ACTION_OPEN);
	while (pipeline_expect(PEER_AGENT, KVR_SESSION_OPEN) != NULL && id < 31);
	why = peers_take_rejected(PEER_CLIENT);
	CU_ASSERT_EQUAL(why.code, KVR_E_SOURCE_LIMIT);
	CU_ASSERT_EQUAL(why.retryable, 1);
	CU_ASSERT_EQUAL(why.detail[0], KVR_QUOTA_SESSIONS);
	CU_ASSERT_EQUAL(why.detail[1], 20); /* 2/3 of 30 */
	CU_ASSERT_EQUAL(why.detail[2], 18);
	CU_ASSERT_EQUAL(read_quota_counter(SC_LIVE), 0);
	CU_ASSERT_EQUAL(read_quota_counter(SC_OPENING), 20);
	for (uint64_t i = 0; i < 6; i++) {
		route_with_session(3, ++id, KVR_ACTION_OPEN);
		CU_ASSERT_TRUE(answer_open());
	}
	CU_ASSERT_EQUAL(get_top_quota(rt->pool[0].live.quotas.sessions, top), 2);
	CU_ASSERT(top[0].held == 20 && top[1].held == 6);
	for (int i = 0; i < 60; i++) /* unanswered opens are given up: everything is freed */
		pipeline_advance(100);
	CU_ASSERT_EQUAL(read_quota_counter(SC_OPENING), 0);
	CU_ASSERT_EQUAL(get_top_quota(rt->pool[0].live.quotas.sessions, top), 1);
	CU_ASSERT_EQUAL(top[0].held, 6);
	pipeline_host = 2;
	CU_ASSERT_TRUE(pipeline_hello(WORKER, 2, "a", 2));
	for (int i = 0; i < 40; i++)
		pipeline_advance(1000);
	end_quota();
}

/* Affinity requires nothing: above the quota a request is served without a binding. */
static void affinity_of_one_source_leaves_places_for_others(void)
{
	uint64_t id = 0;

	begin_quota_with("source_share = 2\n", "cookie = off\n",
			 "[pool a]\nid = 5\nmax_sessions = 30\nsession_affinity_ttl_secs = "
			 "100\n" PIPELINE_POOL);
	for (int i = 0; i < 28; i++) {
		route_with_session(2, ++id, KVR_ACTION_NONE);
		peers_dispatch_ack(id, peers_take_dispatch(), 0);
	}
	CU_ASSERT_EQUAL(read_quota_counter(SC_LIVE), 20);
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].live.rq.count, KVR_RQC_SESSION_REFUSED), 8);
	route_with_session(3, ++id, KVR_ACTION_NONE);
	peers_dispatch_ack(id, peers_take_dispatch(), 0);
	CU_ASSERT_EQUAL(read_quota_counter(SC_LIVE), 21);
	end_quota();
}

/* ---- KV events ---- */

static uint64_t sum_in_counter(enum in_counter c)
{
	uint64_t v[KVR_STATS_MAX];

	kvr_stats_sum(rt->in_stats, v);
	return v[c];
}

/* The rejections reported for 10.0.0.@p host. */
static uint64_t read_rejected_of(uint8_t host)
{
	const struct kvr_path from = {.ip = {[10] = 0xff, 0xff, 10, 0, 0, host}, .family = 4};
	uint64_t n = 0;

	for (uint32_t i = 0; i < rt->conf.n_ingress; i++) {
		const struct kvr_source *s = kvr_source_find(
			rt->lcore[i]->sources, kvr_source_key(&from), rt->lcore[i]->now_ns);

		n += s != NULL ? s->rejected : 0;
	}
	return n;
}

/*
 * The next @p n frames of a worker at 10.0.0.HOST arrive on one queue while the event lcore is busy
 * elsewhere. @return how many found a place.
 */
static uint32_t receive_events(uint8_t host, uint64_t worker, uint64_t first, uint32_t n)
{
	const uint64_t before = sum_in_counter(IN_EVENTS);
	uint64_t sh[2];
	struct kv_frame f;

	pipeline_host = host;
	pipeline_queue = host;
	for (uint32_t i = 0; i < n; i++) {
		kv_chain(sh, 2, worker * 100000 + first + i);
		kv_begin(&f, first + i);
		kv_add(&f, KVR_KV_STORED, NULL, sh, 2);
		kv_send(&f, worker, 1);
	}
	for (uint32_t i = 0; i < rt->conf.n_ingress; i++)
		while (ingress_poll(rt->lcore[i]) != 0)
			;
	pipeline_host = 2;
	pipeline_queue = PIPELINE_SPREAD;
	return (uint32_t)(sum_in_counter(IN_EVENTS) - before);
}

static uint32_t make_events(uint8_t host)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < rt->conf.n_ingress; i++)
		n += kvr_quota_held(rt->lcore[i]->events[0].quota, UINT64_C(0xffff0a000000) | host);
	return n;
}

static void events_of_one_source_leave_places_for_others(void)
{
	const uint32_t places = 255; /* of a ring of 256 */

	begin_quota("source_share = 2\n", "cookie = off\n");
	pipeline_host = 3;
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER + 2, 1, "a", 1));
	pipeline_flush();
	CU_ASSERT_EQUAL(receive_events(2, WORKER, 0, 400), 160); /* 2/3 of 15/16 of the places */
	CU_ASSERT_EQUAL(sum_in_counter(IN_EVENT_QUOTA), 240);
	CU_ASSERT_EQUAL(rte_ring_count(rt->pool[0].events), 160);
	CU_ASSERT_EQUAL(receive_events(3, WORKER + 2, 0, 40), 40);
	CU_ASSERT_EQUAL(make_events(2), 160);
	CU_ASSERT_EQUAL(make_events(3), 40);
	CU_ASSERT_TRUE(rte_ring_count(rt->pool[0].events) < places);
	pipeline_turn();
	CU_ASSERT_EQUAL(kv_acked().code, KVR_KV_BUSY); /* deferred frames are retransmitted */
	/* All have left the ring and are freed; the next ones arrive, many times over. */
	for (uint64_t round = 0; round < 20; round++) {
		pipeline_flush();
		CU_ASSERT_EQUAL(receive_events(2, WORKER, 160 + 100 * round, 100), 100);
		CU_ASSERT_EQUAL(make_events(2), 100);
		pipeline_turn();
	}
	CU_ASSERT_EQUAL(receive_events(3, WORKER + 2, 40, 1), 1);
	if (count_reached() == 1) /* otherwise the other lcore sees it with its next frame */
		CU_ASSERT_EQUAL(make_events(2), 0);
	CU_ASSERT_EQUAL(kvr_prefix_ready(rt->pool[0].prefix, 0), true);
	end_quota();
}

/* A ring that is full for another reason charges no source. */
static void a_full_event_ring_charges_no_source(void)
{
	begin_quota("source_share = 0\n", "cookie = off\n");
	CU_ASSERT_EQUAL(receive_events(2, WORKER, 0, 300), 255);
	CU_ASSERT_EQUAL(make_events(2), 255);
	CU_ASSERT_EQUAL(sum_in_counter(IN_RING_FULL), 45);
	pipeline_turn();
	CU_ASSERT_EQUAL(receive_events(2, WORKER, 255, 10), 10);
	CU_ASSERT_EQUAL(make_events(2), 10);
	end_quota();
}

/* ---- overload ---- */

/* One of @c foreign_each frames that fill the device is not for the router; 0: none. */
static uint32_t foreign_each;

static void send_foreign(void)
{
	uint8_t frame[60] = {[6] = 2, [12] = 0x88, [13] = 0xb5};

	memcpy(frame, kvr_port_local(rt->port[pipeline_into])->mac, 6);
	pipeline_send_raw(frame, sizeof(frame));
}

/*
 * A full burst of 32: @p heavy queries of 10.0.0.2, @p light of 10.0.0.3, the rest of other
 * sources.
 */
static void send_full_burst(uint64_t *id, uint32_t heavy, uint32_t light)
{
	const struct kvr_wire_ids ids = {.source = 5, .id = 1, .epoch = 1};
	uint8_t probe[64];
	const int len = kvr_put_empty(probe, sizeof(probe), KVR_PROBE, &ids);

	for (uint32_t i = 0; i < 32; i++) {
		pipeline_host = i < heavy ? 2 : i < heavy + light ? 3 : 4;
		if (i < heavy + light)
			peers_route_send(i < heavy ? PEER_CLIENT : PEER_OTHER, ++*id,
					 KVR_REQ_F_QUERY, "x");
		else if (foreign_each != 0 && i % foreign_each == foreign_each - 1)
			send_foreign();
		else
			pipeline_send(PEER_AGENT + 5, probe, (size_t)len);
	}
	pipeline_host = 2;
}

static void run_and_collect(void)
{
	run_all_lcores();
	pipeline_collect();
}

/* The queue is full for longer than overload_ms (100), without a pause. */
static void keep_queue_full(uint64_t *id, uint32_t queue)
{
	pipeline_queue = queue;
	for (uint32_t burst = 0; burst < 1200; burst++) {
		send_full_burst(id, 0, 0);
		rt->ns_offset += UINT64_C(150000);
		run_and_collect();
		pipeline_flush(); /* empties its output rings */
	}
}

/* Count the answers to a source. */
struct said {
	uint32_t asked, accepted, busy, other;
};

static void count_answers_to(struct said *s, uint32_t peer)
{
	const struct out *o;

	while ((o = pipeline_expect(peer, KVR_REJECTED)) != NULL) {
		if (((const struct kvr_wire_rejected *)(&o->hdr + 1))->code == KVR_E_BUSY)
			s->busy++;
		else
			s->other++;
	}
	while (pipeline_expect(peer, KVR_ACCEPTED) != NULL)
		s->accepted++;
}

static void count_both(struct said *heavy, struct said *light)
{
	count_answers_to(heavy, PEER_CLIENT);
	count_answers_to(light, PEER_OTHER);
	pipeline_flush();
}

/* A full burst each millisecond: 24 frames of the heavy source, and a few of the light one. */
static void press_for(uint64_t *id, uint32_t ms, struct said *heavy, struct said *light)
{
	for (uint32_t i = 0; i < ms; i++) {
		rt->ns_offset += UINT64_C(1000000);
		send_full_burst(id, 24, i % 4 == 0);
		heavy->asked += 24;
		light->asked += i % 4 == 0;
		run_and_collect();
		count_both(heavy, light);
	}
	/* An answer of a scheduler that runs after ingress is sent in the next turn. */
	run_and_collect();
	count_both(heavy, light);
}

/*
 * A source that asks for more than the others is rejected as far as necessary; the others never
 * are.
 */
static void overload_rejects_the_busiest_source(void)
{
	struct said heavy = {0}, light = {0};
	struct port_load *load;
	uint64_t id = 0, unsaid;

	begin_quota("source_share = 0\n", "cookie = off\nsource_answers = 100\n");
	load = &rt->lcore[0]->load[0];
	keep_queue_full(&id, 0);
	CU_ASSERT_TRUE_FATAL(load->overloaded);
	CU_ASSERT_EQUAL(load->part, KVR_SOURCE_ALL);
	pipeline_turn();
	pipeline_flush();
	unsaid = sum_in_counter(IN_REJECTION_SUPPRESSED);
	press_for(&id, 400, &heavy, &light);
	CU_ASSERT_TRUE(load->overloaded);
	unsaid = sum_in_counter(IN_REJECTION_SUPPRESSED) - unsaid;
	CU_ASSERT_EQUAL(light.accepted, light.asked);
	CU_ASSERT_EQUAL(heavy.accepted + heavy.busy + unsaid, heavy.asked);
	CU_ASSERT_EQUAL(read_rejected_of(2), heavy.asked - heavy.accepted);
	/* Of 400 ms the first 100 lower its admission. */
	CU_ASSERT_TRUE(heavy.accepted < heavy.asked / 4);
	CU_ASSERT_TRUE(heavy.accepted > heavy.asked / 32);
	CU_ASSERT_TRUE(heavy.busy >= 100 &&
		       heavy.busy <= 150); /* a burst of 100, then 100 per second */
	CU_ASSERT_EQUAL(heavy.other, 0);
	pipeline_skip(2000); /* the device is empty: the overload is over */
	pipeline_turn();
	CU_ASSERT_FALSE(load->overloaded);
	pipeline_flush();
	peers_route(PEER_CLIENT, ++id, 0, "x");
	CU_ASSERT_EQUAL(peers_take_accepted(), KVR_STATE_DISPATCHED);
	end_quota();
}

/* Frames that are not for the router cost time, too: the frames of the device count. */
static void foreign_frames_do_not_hide_an_overload(void)
{
	foreign_each = 16;
	overload_rejects_the_busiest_source();
	foreign_each = 0;
}

/* Rejecting requests does not help if other frames cause the overload. */
static void a_flood_of_other_frames_rejects_no_request(void)
{
	struct said heavy = {0}, light = {0};
	uint64_t id = 0;

	begin_quota("source_share = 0\n", "cookie = off\n");
	keep_queue_full(&id, 0);
	for (uint32_t i = 0; i < 400; i++) {
		rt->ns_offset += UINT64_C(1000000);
		send_full_burst(&id, i % 2, i % 4 == 0);
		heavy.asked += i % 2;
		light.asked += i % 4 == 0;
		run_and_collect();
		count_both(&heavy, &light);
	}
	CU_ASSERT_TRUE(rt->lcore[0]->load[0].overloaded);
	pipeline_turn();
	count_both(&heavy, &light);
	CU_ASSERT_EQUAL(heavy.accepted, heavy.asked);
	CU_ASSERT_EQUAL(light.accepted, light.asked);
	end_quota();
}

/* A flood at one port does not affect requests that arrive through the other. */
static void overload_of_one_port_spares_the_other(void)
{
	struct said heavy = {0}, light = {0}, there = {0};
	uint64_t id = 0;

	pipeline_ports = 2;
	begin_quota("source_share = 0\n", "cookie = off\n");
	keep_queue_full(&id, 0);
	press_for(&id, 100, &heavy, &light);
	CU_ASSERT_TRUE_FATAL(rt->lcore[0]->load[0].overloaded);
	CU_ASSERT_TRUE_FATAL(rt->lcore[0]->load[0].part < KVR_SOURCE_ALL / 4);
	CU_ASSERT_FALSE(rt->lcore[0]->load[1].overloaded);
	pipeline_into = 1;
	/* Requests of the flooding source, while they arrive through this port. */
	for (; there.asked < 64; there.asked++)
		peers_route_send(PEER_OTHER, ++id, KVR_REQ_F_QUERY, "x");
	pipeline_turn();
	count_answers_to(&there, PEER_OTHER);
	CU_ASSERT_EQUAL(there.accepted, there.asked);
	pipeline_into = 0;
	pipeline_ports = 1;
	end_quota();
}

/*
 * An lcore has quotas and an overload of its own: a source rejected at one is served at the other.
 */
static void overload_of_one_lcore_spares_the_other(void)
{
	struct said heavy = {0}, light = {0}, there = {0};
	uint64_t id = 0;

	begin_quota("source_share = 0\n", "cookie = off\n");
	keep_queue_full(&id, 0);
	press_for(&id, 100, &heavy, &light);
	CU_ASSERT_TRUE_FATAL(rt->lcore[0]->load[0].overloaded);
	CU_ASSERT_TRUE_FATAL(rt->lcore[0]->load[0].part < KVR_SOURCE_ALL / 4);
	CU_ASSERT_FALSE(rt->lcore[1]->load[0].overloaded);
	CU_ASSERT_EQUAL(light.accepted, light.asked);
	pipeline_queue = 1;
	for (; there.asked < 64; there.asked++)
		peers_route_send(PEER_OTHER, ++id, KVR_REQ_F_QUERY, "x");
	pipeline_turn();
	count_answers_to(&there, PEER_OTHER);
	CU_ASSERT_EQUAL(there.accepted, there.asked);
	end_quota();
}

/* A flood of one source reaches both lcores, with another source at each. */
static void overload_of_both_lcores_adds_up(void)
{
	struct said heavy = {0}, light = {0};
	uint64_t id = 0, unsaid, rejected;

	begin_quota("source_share = 0\n", "cookie = off\nsource_answers = 100\n");
	foreign_each = 1; /* the scheduler handles a burst per turn from two lcores */
	keep_queue_full(&id, 0);
	keep_queue_full(&id, 1);
	rt->ns_offset += UINT64_C(1000000);
	keep_queue_full(&id, 0);
	CU_ASSERT_TRUE_FATAL(rt->lcore[0]->load[0].overloaded);
	CU_ASSERT_TRUE_FATAL(rt->lcore[1]->load[0].overloaded);
	unsaid = sum_in_counter(IN_REJECTION_SUPPRESSED);
	rejected = sum_in_counter(IN_REJECTED);
	for (uint32_t i = 0; i < 400; i++) {
		rt->ns_offset += UINT64_C(1000000);
		for (pipeline_queue = 0; pipeline_queue < 2; pipeline_queue++) {
			send_full_burst(&id, 12, i % 4 == 0);
			heavy.asked += 12;
			light.asked += i % 4 == 0;
		}
		run_and_collect();
		count_both(&heavy, &light);
	}
	run_and_collect();
	count_both(&heavy, &light);
	for (uint32_t i = 0; i < 2; i++) {
		CU_ASSERT_TRUE(rt->lcore[i]->load[0].overloaded);
		CU_ASSERT_TRUE(rt->lcore[i]->load[0].part < KVR_SOURCE_ALL / 4);
	}
	unsaid = sum_in_counter(IN_REJECTION_SUPPRESSED) - unsaid;
	rejected = sum_in_counter(IN_REJECTED) - rejected;
	CU_ASSERT_EQUAL(light.accepted, light.asked);
	CU_ASSERT_EQUAL(heavy.accepted + heavy.busy + unsaid, heavy.asked);
	CU_ASSERT_EQUAL(rejected, heavy.busy + unsaid);
	CU_ASSERT_TRUE(heavy.accepted < heavy.asked / 4);
	CU_ASSERT_TRUE(heavy.accepted > heavy.asked / 32);
	CU_ASSERT_TRUE(heavy.busy >= 200 && heavy.busy <= 300); /* as many at each lcore */
	foreign_each = 0;
	end_quota();
}

/* A probe of host @p host on queue @p queue. */
static void send_probe_of(uint8_t host, uint32_t queue)
{
	const struct kvr_wire_ids ids = {.source = 5, .id = 1, .epoch = 1};
	uint8_t probe[64];
	const int len = kvr_put_empty(probe, sizeof(probe), KVR_PROBE, &ids);

	pipeline_host = host;
	pipeline_queue = queue;
	pipeline_send(PEER_AGENT + 5, probe, (size_t)len);
}

/* The lcore that receives the frames of host @p host, with more lcores than queues. */
static uint32_t find_lcore_of(uint8_t host)
{
	struct kvr_stats *s = kvr_port_stats(rt->port[0]);
	uint64_t before[KVR_ROUTER_MAX_LCORES];

	for (uint32_t i = 0; i < rt->conf.n_ingress; i++)
		before[i] = kvr_stats_get(kvr_stats_row(s, i), KVR_PORT_RX_KEPT);
	send_probe_of(host, 0);
	for (uint32_t i = 0; i < 4; i++)
		run_and_collect();
	pipeline_flush();
	for (uint32_t i = 0; i < rt->conf.n_ingress; i++)
		if (kvr_stats_get(kvr_stats_row(s, i), KVR_PORT_RX_KEPT) != before[i])
			return i;
	CU_FAIL_FATAL("no lcore has it");
	return 0;
}

/*
 * An lcore with a queue of its own also gets some frames from another lcore. A short ring, read in
 * turns with the device, is no evidence about the device.
 */
static void frames_from_other_lcores_hide_no_overload(void)
{
	const struct port_load *load;
	uint8_t host = 5;

	begin_quota("source_share = 0\n", "cookie = off\n");
	load = &rt->lcore[0]->load[0];
	while (find_lcore_of(host) != 0)
		host++;
	for (uint32_t i = 0; i < 64; i++)
		send_probe_of(host, 0);
	/* A full burst for each one taken, and one frame from the other queue. */
	for (uint32_t burst = 0; burst < 1200; burst++) {
		CU_ASSERT_FALSE(burst < 600 && load->overloaded);
		for (uint32_t i = 0; i < 32; i++)
			send_probe_of(host, 0);
		send_probe_of(host, 1);
		rt->ns_offset += UINT64_C(150000);
		run_and_collect();
		run_and_collect();
		pipeline_flush();
	}
	CU_ASSERT_TRUE(load->overloaded);
	CU_ASSERT_FALSE(rt->lcore[1]->load[0].overloaded);
	/* Only the ring continues: this is no overload. */
	for (uint32_t burst = 0; burst < 4000; burst++) {
		send_probe_of(host, 1);
		rt->ns_offset += UINT64_C(1000000);
		run_and_collect();
		run_and_collect();
		pipeline_flush();
	}
	CU_ASSERT_FALSE(load->overloaded);
	end_quota();
}

static void requests_above_the_rate_are_rejected(void)
{
	struct kvr_wire_rejected why = {0};
	uint64_t id = 0;

	begin_quota("source_share = 0\n", "cookie = off\nsource_rate = 10\nsource_burst = 5\n");
	CU_ASSERT_EQUAL(route_until_refused(2, &id, 20, &why), 5 * count_reached());
	CU_ASSERT_EQUAL(read_rejected_of(2), 1);
	CU_ASSERT_EQUAL(why.code, KVR_E_RATE_LIMITED);
	CU_ASSERT_EQUAL(why.retryable, 1);
	CU_ASSERT_EQUAL(route_until_refused(3, &id, 4, &why), 4); /* another source */
	pipeline_skip(300);
	CU_ASSERT_EQUAL(route_until_refused(2, &id, 20, &why), 3 * count_reached());
	end_quota();
}

static void hellos_of_one_source_are_limited(void)
{
	const struct kvr_wire_ids ids = {.source = 1, .id = 1, .epoch = 1};
	uint8_t tlv[64], buf[256];
	struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};
	struct kvr_wire_hello hello = {.block_size = 5, .dp_size = 1, .max_frame = 1432};
	int len;

	begin_quota("source_share = 0\n", "cookie = off\n");
	kvr_hint_put_str(&hints, KVR_HINT_POOL, "a");
	len = kvr_put_hello(buf, sizeof(buf), &ids, hello, &hints);
	for (int i = 0; i < 3000; i++) {
		pipeline_send(PEER_AGENT, buf, (size_t)len);
		if (i % 32 == 0)
			pipeline_turn();
	}
	pipeline_turn();
	CU_ASSERT_TRUE(sum_in_counter(IN_RATE_LIMITED) > 2924 - 1024 * count_reached());
	pipeline_flush();
	pipeline_host = 3;
	CU_ASSERT_TRUE(pipeline_hello(WORKER + 7, 1, "a", 1));
	end_quota();
}

static void answers_to_invalid_frames_are_limited(void)
{
	const struct kvr_wire_ids ids = {.source = 1, .id = 1, .epoch = 1};
	uint8_t buf[64];
	uint32_t n = 0;
	int len;

	begin_quota("source_share = 0\n", "cookie = off\n");
	len = kvr_put_empty(buf, sizeof(buf), KVR_PROBE, &ids);
	buf[4] = 2; /* an undefined flag */
	for (int i = 0; i < 2500; i++) {
		pipeline_send(PEER_OTHER, buf, (size_t)len);
		if (i % 32 == 31)
			pipeline_turn();
	}
	pipeline_turn();
	while (pipeline_expect(PEER_OTHER, KVR_REJECTED) != NULL)
		n++;
	CU_ASSERT_TRUE(n >= 1000 * count_reached() && n < 1100 * count_reached());
	CU_ASSERT_EQUAL(sum_in_counter(IN_REJECTION_SUPPRESSED), 2500 - n);
	CU_ASSERT_EQUAL(read_rejected_of(pipeline_host), 2500 - n);
	pipeline_flush();
	pipeline_host = 3;
	pipeline_send(PEER_OTHER, buf, (size_t)len);
	pipeline_turn();
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_OTHER, KVR_REJECTED));
	end_quota();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(requests_of_one_source_leave_slots_for_others),
			       KVR_CASE(six_sources_leave_a_slot_for_each_other_source),
			       KVR_CASE(waiting_requests_of_one_source_leave_places_for_others),
			       KVR_CASE(sessions_of_one_source_leave_places_for_others),
			       KVR_CASE(sessions_count_across_a_restart_of_their_worker),
			       KVR_CASE(sessions_are_counted_again_after_a_restart_of_the_router),
			       KVR_CASE(opens_of_one_source_leave_places_for_others),
			       KVR_CASE(affinity_of_one_source_leaves_places_for_others),
			       KVR_CASE(events_of_one_source_leave_places_for_others),
			       KVR_CASE(a_full_event_ring_charges_no_source),
			       KVR_CASE(overload_rejects_the_busiest_source),
			       KVR_CASE(foreign_frames_do_not_hide_an_overload),
			       KVR_CASE(a_flood_of_other_frames_rejects_no_request),
			       KVR_CASE(overload_of_one_port_spares_the_other),
			       KVR_CASE(requests_above_the_rate_are_rejected),
			       KVR_CASE(hellos_of_one_source_are_limited),
			       KVR_CASE(answers_to_invalid_frames_are_limited),
			       CU_TEST_INFO_NULL};
	/* Ingress lcores with a queue each. */
	CU_TestInfo lcores[] = {KVR_CASE(overload_of_one_lcore_spares_the_other),
				KVR_CASE(overload_of_both_lcores_adds_up), CU_TEST_INFO_NULL};
	/* More ingress lcores than queues. */
	CU_TestInfo rings[] = {KVR_CASE(frames_from_other_lcores_hide_no_overload),
			       CU_TEST_INFO_NULL};
	const struct threads_map *map = threads_used();
	int failed;

	if (map != NULL && map->queues > 1)
		return kvr_test_run("source_quota of lcores with rings", rings);
	failed = kvr_test_run("source_quota", tests);
	if (map != NULL && map->ingress == 2)
		failed |= kvr_test_run("source_quota of two lcores", lcores);
	return failed;
}
