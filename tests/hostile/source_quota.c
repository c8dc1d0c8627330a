/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Row 13: one source takes everything. Requests, waiting room, answers and control frames are
 * shared between source addresses; the other source (10.0.0.3) is always served.
 */
#include "kv.h"
#include "peers.h"

#include "ingress/ingress.h"
#include "loop/loop.h"
#include "sched/session.h"
#include "threads.h"

#define WORKER 9u

/* Ingress lcores that a source reaches with frames on all queues: each has a rate for it. */
static uint32_t reached(void)
{
	const struct threads_map *map = threads_used();

	return map == NULL || map->queues != 0 ? 1 : map->ingress;
}

/* Every lcore turns once, in their order, here: a model of what they do at the same time. */
static void all_turn(void)
{
	for (uint32_t i = 0; i < rt->n_lcores; i++)
		lcore_turn(rt->lcore[i]);
}

static void begin_with(const char *router, const char *port, const char *pools)
{
	pipeline_router = router;
	pipeline_port = port;
	pipeline_host = 2;
	pipeline_start_with(pools);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 2));
}

static void begin(const char *router, const char *port)
{
	begin_with(router, port,
		   "[pool a]\nid = 5\n" PIPELINE_POOL
		   "[pool b]\nid = 6\nrouter_queue_threshold = 0.5\n" PIPELINE_POOL);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER + 1, 1, "b", 1));
	pipeline_flush();
}

static void end(void)
{
	pipeline_turn();
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
	pipeline_pool = 5;
	pipeline_host = 2;
	pipeline_queue = PIPELINE_SPREAD;
}

static uint32_t share_top(const struct kvr_quota *s, struct kvr_quota_top top[2])
{
	uint32_t at = 0;

	return kvr_quota_top(s, &at, top, 0, 2);
}

/* ROUTEs of new requests from 10.0.0.HOST until one is refused. @return how many were not. */
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

	begin("source_share = 2\n", "cookie = off\n");
	CU_ASSERT_EQUAL(route_until_refused(2, &id, 256, &why), 160); /* 2/3 of 15/16 of 256 */
	CU_ASSERT_EQUAL(why.code, KVR_E_SOURCE_LIMIT);
	CU_ASSERT_EQUAL(why.retryable, 1);
	CU_ASSERT_EQUAL(why.detail[0], KVR_QUOTA_REQUESTS);
	CU_ASSERT_EQUAL(why.detail[1], 160);
	CU_ASSERT_EQUAL(why.detail[2], 160);
	CU_ASSERT_TRUE(route_until_refused(3, &id, 256, &why) >= 53);
	CU_ASSERT_EQUAL(share_top(rt->pool[0].live.shares.slots, top), 2);
	CU_ASSERT_EQUAL(top[0].held, 160);
	/* Everything ends with its worker: everything is given back. */
	pipeline_host = 2;
	CU_ASSERT_TRUE(pipeline_hello(WORKER, 2, "a", 2));
	for (int i = 0; i < 40; i++)
		pipeline_advance(1000);
	CU_ASSERT_EQUAL(kvr_flight_count(rt->pool[0].requests), 0);
	CU_ASSERT_EQUAL(share_top(rt->pool[0].live.shares.slots, top), 0);
	end();
}

/*
 * Six sources, one after the other, take what they get, and the worker never ends a request: there
 * is still one for everybody who has none, and no second one for those who have one.
 */
static void six_sources_leave_one_for_everybody_else(void)
{
	struct kvr_wire_rejected why = {0};
	uint64_t id = 0;
	uint32_t n = 0;

	begin("source_share = 2\n", "cookie = off\n");
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
	end();
}

static void waiting_requests_of_one_source_leave_room_for_others(void)
{
	struct kvr_wire_rejected why = {0};
	struct kvr_quota_top top[2];
	uint64_t id = 0;
	uint32_t n;

	begin("source_share = 2\n", "cookie = off\n");
	pipeline_pool = 6; /* some run, the others wait: max_jobs is 128 */
	n = route_until_refused(2, &id, 256, &why);
	CU_ASSERT_TRUE(n >= 80 && n < 105);
	CU_ASSERT_EQUAL(why.code, KVR_E_SOURCE_LIMIT);
	CU_ASSERT_EQUAL(why.detail[0], KVR_QUOTA_WAITING);
	CU_ASSERT_TRUE(route_until_refused(3, &id, 256, &why) >= 27);
	for (uint8_t host = 10; host < 14; host++)
		CU_ASSERT_TRUE(route_until_refused(host, &id, 256, &why) >= 1);
	CU_ASSERT_EQUAL(rt->pool[1].live.shares.n_waiting, 128 - 7);
	for (uint8_t host = 20; host < 24; host++) { /* one for everybody */
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
	CU_ASSERT_EQUAL(rt->pool[1].live.shares.n_waiting, 0);
	CU_ASSERT_EQUAL(share_top(rt->pool[1].live.shares.jobs, top), 0);
	CU_ASSERT_EQUAL(share_top(rt->pool[1].live.shares.frames, top), 0);
	end();
}

/* ---- sessions ---- */

static uint64_t session_counter(enum session_counter c)
{
	return kvr_stats_get(rt->pool[0].sessions->count, c);
}

/* A request of 10.0.0.HOST that names a session of its own. */
static void route_in_session(uint8_t host, uint64_t id, uint8_t action)
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

static uint32_t life = 1; /* of the worker */

/* Its worker says yes. @return false: nobody was asked. */
static bool opened(void)
{
	const struct out *o = pipeline_expect(PEER_AGENT, KVR_SESSION_OPEN);
	struct kvr_wire_ids ids;
	uint8_t buf[64];

	if (o == NULL)
		return false;
	ids = (struct kvr_wire_ids){.source = o->hdr.source, .id = o->hdr.id, .epoch = life};
	pipeline_send(
		PEER_AGENT, buf,
		(size_t)kvr_put_session_status(buf, sizeof(buf), KVR_SESSION_OPENED, &ids, 0));
	pipeline_turn();
	return true;
}

static void sessions_of_one_source_leave_room_for_others(void)
{
	struct kvr_wire_rejected why = {0};
	struct kvr_quota_top top[2];
	uint64_t id = 0;

	begin_with("source_share = 2\n", "cookie = off\n",
		   "[pool a]\nid = 5\nmax_sessions = 30\n" PIPELINE_POOL);
	do
		route_in_session(2, ++id, KVR_ACTION_OPEN);
	while (opened());
	why = peers_rejected(PEER_CLIENT);
	CU_ASSERT_EQUAL(why.code, KVR_E_SOURCE_LIMIT);
	CU_ASSERT_EQUAL(why.retryable, 1);
	CU_ASSERT_EQUAL(why.detail[0], KVR_QUOTA_SESSIONS);
	CU_ASSERT_EQUAL(why.detail[1], 20); /* 2/3 of 30 */
	CU_ASSERT_EQUAL(why.detail[2], 18);
	CU_ASSERT_EQUAL(session_counter(SC_LIVE), 20);
	for (uint64_t i = 0; i < 6; i++) {
		route_in_session(3, ++id, KVR_ACTION_OPEN);
		CU_ASSERT_TRUE(opened());
	}
	CU_ASSERT_EQUAL(share_top(rt->pool[0].live.shares.sessions, top), 2);
	CU_ASSERT(top[0].held == 20 && top[1].held == 6);
	for (uint64_t i = 0; i < 2; i++) {
		route_in_session(10, ++id, KVR_ACTION_OPEN);
		CU_ASSERT_TRUE(opened());
	}
	for (uint8_t host = 11; host < 13; host++) { /* the last are for those who have none */
		route_in_session(host, ++id, KVR_ACTION_OPEN);
		CU_ASSERT_TRUE(opened());
		route_in_session(host, ++id, KVR_ACTION_OPEN);
		CU_ASSERT_FALSE(opened());
	}
	CU_ASSERT_EQUAL(session_counter(SC_LIVE), 30);
	route_in_session(13, ++id, KVR_ACTION_OPEN); /* it is not his share that is missing */
	CU_ASSERT_EQUAL(peers_rejected(PEER_CLIENT).code, KVR_E_SESSION_LIMIT);
	for (int i = 0; i < 100; i++) /* their time is over: everything is given back */
		pipeline_advance(1000);
	CU_ASSERT_EQUAL(session_counter(SC_LIVE), 0);
	CU_ASSERT_EQUAL(share_top(rt->pool[0].live.shares.sessions, top), 0);
	end();
}

/* Sessions of 10.0.0.2 until its share is full. @return how many. */
static uint32_t open_all(uint64_t *id)
{
	const uint64_t from = *id;

	do
		route_in_session(2, ++*id, KVR_ACTION_OPEN);
	while (opened() && *id < from + 31);
	CU_ASSERT_EQUAL(peers_rejected(PEER_CLIENT).code, KVR_E_SOURCE_LIMIT);
	return (uint32_t)(*id - from - 1);
}

static void release(uint8_t host, uint64_t session)
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

/* A worker's new life: what its sources have there counts until it is released or its time is
 * over, and then no more; neither is anything counted twice. */
static void sessions_count_across_a_restart_of_their_worker(void)
{
	struct kvr_quota_top top[2];
	uint64_t id = 0;

	begin_with("source_share = 2\n", "cookie = off\n", SESSION_POOL);
	CU_ASSERT_EQUAL(open_all(&id), 20);
	pipeline_host = 2;
	life = 2;
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, life, "a", 2));
	CU_ASSERT_EQUAL(share_top(rt->pool[0].live.shares.sessions, top), 1);
	CU_ASSERT_EQUAL(top[0].held, 20);
	route_in_session(2, ++id, KVR_ACTION_OPEN); /* the new life gives no room */
	CU_ASSERT_EQUAL(peers_rejected(PEER_CLIENT).code, KVR_E_SOURCE_LIMIT);
	for (uint64_t s = 1; s <= 5; s++)
		release(2, s);
	CU_ASSERT_EQUAL(share_top(rt->pool[0].live.shares.sessions, top), 1);
	CU_ASSERT_EQUAL(top[0].held, 15);
	CU_ASSERT_EQUAL(open_all(&id), 5);
	CU_ASSERT_EQUAL(share_top(rt->pool[0].live.shares.sessions, top), 1);
	CU_ASSERT_EQUAL(top[0].held, session_counter(SC_LIVE));
	for (int i = 0; i < 100; i++)
		pipeline_advance(1000);
	CU_ASSERT_EQUAL(session_counter(SC_LIVE), 0);
	CU_ASSERT_EQUAL(share_top(rt->pool[0].live.shares.sessions, top), 0);
	life = 1;
	end();
}

/* A router that starts anew knows no session: everybody may have his share again, and no more. */
static void sessions_count_anew_after_a_restart_of_the_router(void)
{
	struct kvr_quota_top top[2];
	uint64_t id = 0;

	begin_with("source_share = 2\n", "cookie = off\n", SESSION_POOL);
	CU_ASSERT_EQUAL(open_all(&id), 20);
	end();
	begin_with("source_share = 2\n", "cookie = off\n", SESSION_POOL);
	CU_ASSERT_EQUAL(share_top(rt->pool[0].live.shares.sessions, top), 0);
	CU_ASSERT_EQUAL(session_counter(SC_LIVE), 0);
	CU_ASSERT_EQUAL(open_all(&id), 20);
	for (int i = 0; i < 100; i++)
		pipeline_advance(1000);
	CU_ASSERT_EQUAL(share_top(rt->pool[0].live.shares.sessions, top), 0);
	end();
}

/* The same while the worker answers none of them: what is asked for is charged, too. */
static void opens_of_one_source_leave_room_for_others(void)
{
	struct kvr_wire_rejected why = {0};
	struct kvr_quota_top top[2];
	uint64_t id = 0;

	begin_with("source_share = 2\n", "cookie = off\n",
		   "[pool a]\nid = 5\nmax_sessions = 30\n" PIPELINE_POOL);
	do
		route_in_session(2, ++id, KVR_ACTION_OPEN);
	while (pipeline_expect(PEER_AGENT, KVR_SESSION_OPEN) != NULL && id < 31);
	why = peers_rejected(PEER_CLIENT);
	CU_ASSERT_EQUAL(why.code, KVR_E_SOURCE_LIMIT);
	CU_ASSERT_EQUAL(why.retryable, 1);
	CU_ASSERT_EQUAL(why.detail[0], KVR_QUOTA_SESSIONS);
	CU_ASSERT_EQUAL(why.detail[1], 20); /* 2/3 of 30 */
	CU_ASSERT_EQUAL(why.detail[2], 18);
	CU_ASSERT_EQUAL(session_counter(SC_LIVE), 0);
	CU_ASSERT_EQUAL(session_counter(SC_OPENING), 20);
	for (uint64_t i = 0; i < 6; i++) {
		route_in_session(3, ++id, KVR_ACTION_OPEN);
		CU_ASSERT_TRUE(opened());
	}
	CU_ASSERT_EQUAL(share_top(rt->pool[0].live.shares.sessions, top), 2);
	CU_ASSERT(top[0].held == 20 && top[1].held == 6);
	for (int i = 0; i < 60; i++) /* the silent ones are given up: everything is given back */
		pipeline_advance(100);
	CU_ASSERT_EQUAL(session_counter(SC_OPENING), 0);
	CU_ASSERT_EQUAL(share_top(rt->pool[0].live.shares.sessions, top), 1);
	CU_ASSERT_EQUAL(top[0].held, 6);
	pipeline_host = 2;
	CU_ASSERT_TRUE(pipeline_hello(WORKER, 2, "a", 2));
	for (int i = 0; i < 40; i++)
		pipeline_advance(1000);
	end();
}

/* Affinity asks for nothing: above the share a request is served, and not bound. */
static void affinity_of_one_source_leaves_room_for_others(void)
{
	uint64_t id = 0;

	begin_with("source_share = 2\n", "cookie = off\n",
		   "[pool a]\nid = 5\nmax_sessions = 30\nsession_affinity_ttl_secs = "
		   "100\n" PIPELINE_POOL);
	for (int i = 0; i < 28; i++) {
		route_in_session(2, ++id, KVR_ACTION_NONE);
		peers_dispatch_ack(id, peers_dispatched(), 0);
	}
	CU_ASSERT_EQUAL(session_counter(SC_LIVE), 20);
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].live.rq.count, KVR_RQC_SESSION_REFUSED), 8);
	route_in_session(3, ++id, KVR_ACTION_NONE);
	peers_dispatch_ack(id, peers_dispatched(), 0);
	CU_ASSERT_EQUAL(session_counter(SC_LIVE), 21);
	end();
}

/* ---- KV events ---- */

static uint64_t counted(enum in_counter c)
{
	uint64_t v[KVR_STATS_MAX];

	kvr_stats_sum(rt->in_stats, v);
	return v[c];
}

/* What 10.0.0.@p host is said to have been refused. */
static uint64_t refused_of(uint8_t host)
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

/* The next @p n frames of a worker at 10.0.0.HOST come in, all by one queue, while the event lcore
 * does something else. @return how many of them found a place. */
static uint32_t events_come(uint8_t host, uint64_t worker, uint64_t first, uint32_t n)
{
	const uint64_t before = counted(IN_EVENTS);
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
	return (uint32_t)(counted(IN_EVENTS) - before);
}

static uint32_t events_of(uint8_t host)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < rt->conf.n_ingress; i++)
		n += kvr_quota_held(rt->lcore[i]->events[0].share, UINT64_C(0xffff0a000000) | host);
	return n;
}

static void events_of_one_source_leave_room_for_others(void)
{
	const uint32_t places = 255; /* of a ring of 256 */

	begin("source_share = 2\n", "cookie = off\n");
	pipeline_host = 3;
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER + 2, 1, "a", 1));
	pipeline_flush();
	CU_ASSERT_EQUAL(events_come(2, WORKER, 0, 400), 160); /* 2/3 of 15/16 of them */
	CU_ASSERT_EQUAL(counted(IN_EVENT_QUOTA), 240);
	CU_ASSERT_EQUAL(rte_ring_count(rt->pool[0].events), 160);
	CU_ASSERT_EQUAL(events_come(3, WORKER + 2, 0, 40), 40);
	CU_ASSERT_EQUAL(events_of(2), 160);
	CU_ASSERT_EQUAL(events_of(3), 40);
	CU_ASSERT_TRUE(rte_ring_count(rt->pool[0].events) < places);
	pipeline_turn();
	CU_ASSERT_EQUAL(kv_acked().code, KVR_KV_BUSY); /* what was put off comes again */
	/* All have left the ring; they are given back, and the next come in, many times over. */
	for (uint64_t round = 0; round < 20; round++) {
		pipeline_flush();
		CU_ASSERT_EQUAL(events_come(2, WORKER, 160 + 100 * round, 100), 100);
		CU_ASSERT_EQUAL(events_of(2), 100);
		pipeline_turn();
	}
	CU_ASSERT_EQUAL(events_come(3, WORKER + 2, 40, 1), 1);
	if (reached() == 1) /* else the other lcore sees it with the next that it gets */
		CU_ASSERT_EQUAL(events_of(2), 0);
	CU_ASSERT_EQUAL(kvr_prefix_ready(rt->pool[0].prefix, 0), true);
	end();
}

/* A ring that is full for another reason charges nobody. */
static void a_full_event_ring_charges_nobody(void)
{
	begin("source_share = 0\n", "cookie = off\n");
	CU_ASSERT_EQUAL(events_come(2, WORKER, 0, 300), 255);
	CU_ASSERT_EQUAL(events_of(2), 255);
	CU_ASSERT_EQUAL(counted(IN_RING_FULL), 45);
	pipeline_turn();
	CU_ASSERT_EQUAL(events_come(2, WORKER, 255, 10), 10);
	CU_ASSERT_EQUAL(events_of(2), 10);
	end();
}

/* ---- overload ---- */

/* One in so many frames of what fills the device is none for the router; 0: none of them. */
static uint32_t foreign_each;

static void send_foreign(void)
{
	uint8_t frame[60] = {[6] = 2, [12] = 0x88, [13] = 0xb5};

	memcpy(frame, kvr_port_local(rt->port[pipeline_into])->mac, 6);
	pipeline_send_raw(frame, sizeof(frame));
}

/* A burst of 32 that is full: @p heavy queries of 10.0.0.2, @p light of 10.0.0.3, the rest is
 * nobody's. */
static void full_burst(uint64_t *id, uint32_t heavy, uint32_t light)
{
	const struct kvr_wire_ids nobody = {.source = 5, .id = 1, .epoch = 1};
	uint8_t probe[64];
	const int len = kvr_put_empty(probe, sizeof(probe), KVR_PROBE, &nobody);

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

static void turn_and_collect(void)
{
	all_turn();
	pipeline_collect();
}

/* The queue is full for longer than overload_ms (100), with no pause. */
static void fill_the_queue(uint64_t *id, uint32_t queue)
{
	pipeline_queue = queue;
	for (uint32_t burst = 0; burst < 1200; burst++) {
		full_burst(id, 0, 0);
		rt->ns_offset += UINT64_C(150000);
		turn_and_collect();
		pipeline_flush(); /* what it says leaves the rings */
	}
}

/* What was said to a source. */
struct said {
	uint32_t asked, accepted, busy, other;
};

static void hear(struct said *s, uint32_t peer)
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

static void hear_both(struct said *heavy, struct said *light)
{
	hear(heavy, PEER_CLIENT);
	hear(light, PEER_OTHER);
	pipeline_flush();
}

/* A full burst each millisecond: 24 of the heavy source, now and then one of the light one. */
static void press(uint64_t *id, uint32_t ms, struct said *heavy, struct said *light)
{
	for (uint32_t i = 0; i < ms; i++) {
		rt->ns_offset += UINT64_C(1000000);
		full_burst(id, 24, i % 4 == 0);
		heavy->asked += 24;
		light->asked += i % 4 == 0;
		turn_and_collect();
		hear_both(heavy, light);
	}
	/* An answer of a scheduler that comes after the ingress leaves with the next turn. */
	turn_and_collect();
	hear_both(heavy, light);
}

/* Who asks for more than the others is turned away, as far as it must be; the others never are. */
static void overload_turns_the_busiest_source_away(void)
{
	struct said heavy = {0}, light = {0};
	struct port_load *load;
	uint64_t id = 0, unsaid;

	begin("source_share = 0\n", "cookie = off\nsource_answers = 100\n");
	load = &rt->lcore[0]->load[0];
	fill_the_queue(&id, 0);
	CU_ASSERT_TRUE_FATAL(load->overloaded);
	CU_ASSERT_EQUAL(load->part, KVR_SOURCE_ALL);
	pipeline_turn();
	pipeline_flush();
	unsaid = counted(IN_REJECTION_SUPPRESSED);
	press(&id, 400, &heavy, &light);
	CU_ASSERT_TRUE(load->overloaded);
	unsaid = counted(IN_REJECTION_SUPPRESSED) - unsaid;
	CU_ASSERT_EQUAL(light.accepted, light.asked);
	CU_ASSERT_EQUAL(heavy.accepted + heavy.busy + unsaid, heavy.asked);
	CU_ASSERT_EQUAL(refused_of(2), heavy.asked - heavy.accepted);
	/* Of 400 ms the first 100 bring it down. */
	CU_ASSERT_TRUE(heavy.accepted < heavy.asked / 4);
	CU_ASSERT_TRUE(heavy.accepted > heavy.asked / 32);
	CU_ASSERT_TRUE(heavy.busy >= 100 && heavy.busy <= 150); /* 100 at once, 100 a second */
	CU_ASSERT_EQUAL(heavy.other, 0);
	pipeline_skip(2000); /* the device is empty: it is over */
	pipeline_turn();
	CU_ASSERT_FALSE(load->overloaded);
	pipeline_flush();
	peers_route(PEER_CLIENT, ++id, 0, "x");
	CU_ASSERT_EQUAL(peers_accepted(), KVR_STATE_DISPATCHED);
	end();
}

/* Frames that are not for the router take its time all the same: what the device gave counts. */
static void foreign_frames_do_not_hide_an_overload(void)
{
	foreign_each = 16;
	overload_turns_the_busiest_source_away();
	foreign_each = 0;
}

/* Nothing is gained by refusing requests when it is something else that there is too much of. */
static void a_flood_of_other_frames_turns_no_request_away(void)
{
	struct said heavy = {0}, light = {0};
	uint64_t id = 0;

	begin("source_share = 0\n", "cookie = off\n");
	fill_the_queue(&id, 0);
	for (uint32_t i = 0; i < 400; i++) {
		rt->ns_offset += UINT64_C(1000000);
		full_burst(&id, i % 2, i % 4 == 0);
		heavy.asked += i % 2;
		light.asked += i % 4 == 0;
		turn_and_collect();
		hear_both(&heavy, &light);
	}
	CU_ASSERT_TRUE(rt->lcore[0]->load[0].overloaded);
	pipeline_turn();
	hear_both(&heavy, &light);
	CU_ASSERT_EQUAL(heavy.accepted, heavy.asked);
	CU_ASSERT_EQUAL(light.accepted, light.asked);
	end();
}

/* A flood at one port is not the business of those who come in by the other. */
static void overload_of_one_port_spares_the_other(void)
{
	struct said heavy = {0}, light = {0}, there = {0};
	uint64_t id = 0;

	pipeline_ports = 2;
	begin("source_share = 0\n", "cookie = off\n");
	fill_the_queue(&id, 0);
	press(&id, 100, &heavy, &light);
	CU_ASSERT_TRUE_FATAL(rt->lcore[0]->load[0].overloaded);
	CU_ASSERT_TRUE_FATAL(rt->lcore[0]->load[0].part < KVR_SOURCE_ALL / 4);
	CU_ASSERT_FALSE(rt->lcore[0]->load[1].overloaded);
	pipeline_into = 1;
	/* Of the one that floods, as long as it comes this way. */
	for (; there.asked < 64; there.asked++)
		peers_route_send(PEER_OTHER, ++id, KVR_REQ_F_QUERY, "x");
	pipeline_turn();
	hear(&there, PEER_OTHER);
	CU_ASSERT_EQUAL(there.accepted, there.asked);
	pipeline_into = 0;
	pipeline_ports = 1;
	end();
}

/* An lcore has shares and an overload of its own: who is refused at one is served at the other. */
static void overload_of_one_lcore_spares_the_other(void)
{
	struct said heavy = {0}, light = {0}, there = {0};
	uint64_t id = 0;

	begin("source_share = 0\n", "cookie = off\n");
	fill_the_queue(&id, 0);
	press(&id, 100, &heavy, &light);
	CU_ASSERT_TRUE_FATAL(rt->lcore[0]->load[0].overloaded);
	CU_ASSERT_TRUE_FATAL(rt->lcore[0]->load[0].part < KVR_SOURCE_ALL / 4);
	CU_ASSERT_FALSE(rt->lcore[1]->load[0].overloaded);
	CU_ASSERT_EQUAL(light.accepted, light.asked);
	pipeline_queue = 1;
	for (; there.asked < 64; there.asked++)
		peers_route_send(PEER_OTHER, ++id, KVR_REQ_F_QUERY, "x");
	pipeline_turn();
	hear(&there, PEER_OTHER);
	CU_ASSERT_EQUAL(there.accepted, there.asked);
	end();
}

/* A flood of one source that reaches both lcores, and somebody else at each. */
static void overload_of_both_lcores_adds_up(void)
{
	struct said heavy = {0}, light = {0};
	uint64_t id = 0, unsaid, rejected;

	begin("source_share = 0\n", "cookie = off\nsource_answers = 100\n");
	foreign_each = 1; /* the scheduler has a burst each turn for what two lcores give it */
	fill_the_queue(&id, 0);
	fill_the_queue(&id, 1);
	rt->ns_offset += UINT64_C(1000000);
	fill_the_queue(&id, 0);
	CU_ASSERT_TRUE_FATAL(rt->lcore[0]->load[0].overloaded);
	CU_ASSERT_TRUE_FATAL(rt->lcore[1]->load[0].overloaded);
	unsaid = counted(IN_REJECTION_SUPPRESSED);
	rejected = counted(IN_REJECTED);
	for (uint32_t i = 0; i < 400; i++) {
		rt->ns_offset += UINT64_C(1000000);
		for (pipeline_queue = 0; pipeline_queue < 2; pipeline_queue++) {
			full_burst(&id, 12, i % 4 == 0);
			heavy.asked += 12;
			light.asked += i % 4 == 0;
		}
		turn_and_collect();
		hear_both(&heavy, &light);
	}
	turn_and_collect();
	hear_both(&heavy, &light);
	for (uint32_t i = 0; i < 2; i++) {
		CU_ASSERT_TRUE(rt->lcore[i]->load[0].overloaded);
		CU_ASSERT_TRUE(rt->lcore[i]->load[0].part < KVR_SOURCE_ALL / 4);
	}
	unsaid = counted(IN_REJECTION_SUPPRESSED) - unsaid;
	rejected = counted(IN_REJECTED) - rejected;
	CU_ASSERT_EQUAL(light.accepted, light.asked);
	CU_ASSERT_EQUAL(heavy.accepted + heavy.busy + unsaid, heavy.asked);
	CU_ASSERT_EQUAL(rejected, heavy.busy + unsaid);
	CU_ASSERT_TRUE(heavy.accepted < heavy.asked / 4);
	CU_ASSERT_TRUE(heavy.accepted > heavy.asked / 32);
	CU_ASSERT_TRUE(heavy.busy >= 200 && heavy.busy <= 300); /* as many at each of them */
	foreign_each = 0;
	end();
}

/* A probe of host @p host by queue @p queue. */
static void probe_of(uint8_t host, uint32_t queue)
{
	const struct kvr_wire_ids nobody = {.source = 5, .id = 1, .epoch = 1};
	uint8_t probe[64];
	const int len = kvr_put_empty(probe, sizeof(probe), KVR_PROBE, &nobody);

	pipeline_host = host;
	pipeline_queue = queue;
	pipeline_send(PEER_AGENT + 5, probe, (size_t)len);
}

/* The lcore that has what comes from host @p host, where there are more of them than queues. */
static uint32_t lcore_of(uint8_t host)
{
	struct kvr_stats *s = kvr_port_stats(rt->port[0]);
	uint64_t before[KVR_ROUTER_MAX_LCORES];

	for (uint32_t i = 0; i < rt->conf.n_ingress; i++)
		before[i] = kvr_stats_get(kvr_stats_row(s, i), KVR_PORT_RX_KEPT);
	probe_of(host, 0);
	for (uint32_t i = 0; i < 4; i++)
		turn_and_collect();
	pipeline_flush();
	for (uint32_t i = 0; i < rt->conf.n_ingress; i++)
		if (kvr_stats_get(kvr_stats_row(s, i), KVR_PORT_RX_KEPT) != before[i])
			return i;
	CU_FAIL_FATAL("nobody has it");
	return 0;
}

/* An lcore with a queue of its own gets some frames from another one, too: a ring with little in
 * it, which it reads in turns with the device, says nothing about the device. */
static void what_other_lcores_give_hides_no_overload(void)
{
	const struct port_load *load;
	uint8_t host = 5;

	begin("source_share = 0\n", "cookie = off\n");
	load = &rt->lcore[0]->load[0];
	while (lcore_of(host) != 0)
		host++;
	for (uint32_t i = 0; i < 64; i++)
		probe_of(host, 0);
	/* A full burst for each that is taken, and one frame from the other queue. */
	for (uint32_t burst = 0; burst < 1200; burst++) {
		CU_ASSERT_FALSE(burst < 600 && load->overloaded);
		for (uint32_t i = 0; i < 32; i++)
			probe_of(host, 0);
		probe_of(host, 1);
		rt->ns_offset += UINT64_C(150000);
		turn_and_collect();
		turn_and_collect();
		pipeline_flush();
	}
	CU_ASSERT_TRUE(load->overloaded);
	CU_ASSERT_FALSE(rt->lcore[1]->load[0].overloaded);
	/* The ring alone goes on: that is none. */
	for (uint32_t burst = 0; burst < 4000; burst++) {
		probe_of(host, 1);
		rt->ns_offset += UINT64_C(1000000);
		turn_and_collect();
		turn_and_collect();
		pipeline_flush();
	}
	CU_ASSERT_FALSE(load->overloaded);
	end();
}

static void requests_above_the_rate_are_refused(void)
{
	struct kvr_wire_rejected why = {0};
	uint64_t id = 0;

	begin("source_share = 0\n", "cookie = off\nsource_rate = 10\nsource_burst = 5\n");
	CU_ASSERT_EQUAL(route_until_refused(2, &id, 20, &why), 5 * reached());
	CU_ASSERT_EQUAL(refused_of(2), 1);
	CU_ASSERT_EQUAL(why.code, KVR_E_RATE_LIMITED);
	CU_ASSERT_EQUAL(why.retryable, 1);
	CU_ASSERT_EQUAL(route_until_refused(3, &id, 4, &why), 4); /* another source */
	pipeline_skip(300);
	CU_ASSERT_EQUAL(route_until_refused(2, &id, 20, &why), 3 * reached());
	end();
}

static void hellos_of_one_source_are_limited(void)
{
	const struct kvr_wire_ids ids = {.source = 1, .id = 1, .epoch = 1};
	uint8_t tlv[64], buf[256];
	struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};
	struct kvr_wire_hello hello = {.block_size = 5, .dp_size = 1, .max_frame = 1432};
	int len;

	begin("source_share = 0\n", "cookie = off\n");
	kvr_hint_put_str(&hints, KVR_HINT_POOL, "a");
	len = kvr_put_hello(buf, sizeof(buf), &ids, hello, &hints);
	for (int i = 0; i < 3000; i++) {
		pipeline_send(PEER_AGENT, buf, (size_t)len);
		if (i % 32 == 0)
			pipeline_turn();
	}
	pipeline_turn();
	CU_ASSERT_TRUE(counted(IN_RATE_LIMITED) > 2924 - 1024 * reached());
	pipeline_flush();
	pipeline_host = 3;
	CU_ASSERT_TRUE(pipeline_hello(WORKER + 7, 1, "a", 1));
	end();
}

static void answers_to_what_is_not_legal_are_limited(void)
{
	const struct kvr_wire_ids ids = {.source = 1, .id = 1, .epoch = 1};
	uint8_t buf[64];
	uint32_t n = 0;
	int len;

	begin("source_share = 0\n", "cookie = off\n");
	len = kvr_put_empty(buf, sizeof(buf), KVR_PROBE, &ids);
	buf[4] = 2; /* a flag that is not */
	for (int i = 0; i < 2500; i++) {
		pipeline_send(PEER_OTHER, buf, (size_t)len);
		if (i % 32 == 31)
			pipeline_turn();
	}
	pipeline_turn();
	while (pipeline_expect(PEER_OTHER, KVR_REJECTED) != NULL)
		n++;
	CU_ASSERT_TRUE(n >= 1000 * reached() && n < 1100 * reached());
	CU_ASSERT_EQUAL(counted(IN_REJECTION_SUPPRESSED), 2500 - n);
	CU_ASSERT_EQUAL(refused_of(pipeline_host), 2500 - n);
	pipeline_flush();
	pipeline_host = 3;
	pipeline_send(PEER_OTHER, buf, (size_t)len);
	pipeline_turn();
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_OTHER, KVR_REJECTED));
	end();
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"requests", requests_of_one_source_leave_slots_for_others},
		{"six", six_sources_leave_one_for_everybody_else},
		{"waiting", waiting_requests_of_one_source_leave_room_for_others},
		{"sessions", sessions_of_one_source_leave_room_for_others},
		{"session worker", sessions_count_across_a_restart_of_their_worker},
		{"session router", sessions_count_anew_after_a_restart_of_the_router},
		{"opens", opens_of_one_source_leave_room_for_others},
		{"affinity", affinity_of_one_source_leaves_room_for_others},
		{"events", events_of_one_source_leave_room_for_others},
		{"full ring", a_full_event_ring_charges_nobody},
		{"overload", overload_turns_the_busiest_source_away},
		{"overload, foreign", foreign_frames_do_not_hide_an_overload},
		{"overload, other", a_flood_of_other_frames_turns_no_request_away},
		{"overload, ports", overload_of_one_port_spares_the_other},
		{"rate", requests_above_the_rate_are_refused},
		{"hello", hellos_of_one_source_are_limited},
		{"answers", answers_to_what_is_not_legal_are_limited},
		CU_TEST_INFO_NULL};
	/* With ingress lcores that have a queue each. */
	CU_TestInfo lcores[] = {{"overload, one lcore", overload_of_one_lcore_spares_the_other},
				{"overload, both lcores", overload_of_both_lcores_adds_up},
				CU_TEST_INFO_NULL};
	/* With more of them than queues. */
	CU_TestInfo rings[] = {{"overload, rings", what_other_lcores_give_hides_no_overload},
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
