/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Row 13: one source takes everything. Requests, waiting room, answers and control frames are
 * shared between source addresses; the other source (10.0.0.3) is always served.
 */
#include "pipeline.h"

#include "kvr_put.h"
#include "kvr_test.h"
#include <string.h>

#define WORKER 9u

static void begin(const char *router, const char *port)
{
	pipeline_router = router;
	pipeline_port = port;
	pipeline_host = 2;
	pipeline_start_with("[pool a]\nid = 5\n" PIPELINE_POOL
			    "[pool b]\nid = 6\nrouter_queue_threshold = 0.5\n" PIPELINE_POOL);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 2));
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
}

static uint32_t share_top(const struct kvr_share *s, struct kvr_share_top top[2])
{
	uint32_t at = 0;

	return kvr_share_top(s, &at, top, 0, 2);
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
	struct kvr_share_top top[2];
	uint64_t id = 0;

	begin("source_share = 2\n", "cookie = off\n");
	CU_ASSERT_EQUAL(route_until_refused(2, &id, 256, &why), 171); /* 2/3 of 256 */
	CU_ASSERT_EQUAL(why.code, KVR_E_SOURCE_LIMIT);
	CU_ASSERT_EQUAL(why.retryable, 1);
	CU_ASSERT_EQUAL(why.detail[0], KVR_SHARE_REQUESTS);
	CU_ASSERT_EQUAL(why.detail[1], 171);
	CU_ASSERT_EQUAL(why.detail[2], 170);
	CU_ASSERT_TRUE(route_until_refused(3, &id, 256, &why) >= 56);
	CU_ASSERT_EQUAL(share_top(rt->pool[0].shares.slots, top), 2);
	CU_ASSERT_EQUAL(top[0].have, 171);
	/* Everything ends with its worker: everything is given back. */
	pipeline_host = 2;
	CU_ASSERT_TRUE(pipeline_hello(WORKER, 2, "a", 2));
	for (int i = 0; i < 40; i++)
		pipeline_advance(1000);
	CU_ASSERT_EQUAL(kvr_flight_count(rt->pool[0].requests), 0);
	CU_ASSERT_EQUAL(share_top(rt->pool[0].shares.slots, top), 0);
	end();
}

static void waiting_requests_of_one_source_leave_room_for_others(void)
{
	struct kvr_wire_rejected why = {0};
	struct kvr_share_top top[2];
	uint64_t id = 0;
	uint32_t n;

	begin("source_share = 2\n", "cookie = off\n");
	pipeline_pool = 6; /* some run, the others wait: max_jobs is 128 */
	n = route_until_refused(2, &id, 256, &why);
	CU_ASSERT_TRUE(n >= 85 && n < 110);
	CU_ASSERT_EQUAL(why.code, KVR_E_SOURCE_LIMIT);
	CU_ASSERT_EQUAL(why.detail[0], KVR_SHARE_WAITING);
	CU_ASSERT_TRUE(route_until_refused(3, &id, 256, &why) >= 28);
	pipeline_host = 2;
	CU_ASSERT_TRUE(pipeline_hello(WORKER + 1, 2, "b", 1));
	pipeline_host = 2;
	for (uint64_t i = 1; i <= id; i++) {
		const struct kvr_wire_ids ids = {.source = 77, .id = i, .epoch = 1};
		uint8_t buf[64];
		int len = kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &ids);

		pipeline_host = 2;
		pipeline_send(PEER_CLIENT, buf, (size_t)len);
		pipeline_host = 3;
		pipeline_send(PEER_CLIENT, buf, (size_t)len);
		pipeline_turn();
	}
	CU_ASSERT_EQUAL(rt->pool[1].shares.n_waiting, 0);
	CU_ASSERT_EQUAL(share_top(rt->pool[1].shares.jobs, top), 0);
	CU_ASSERT_EQUAL(share_top(rt->pool[1].shares.frames, top), 0);
	end();
}

static void requests_above_the_rate_are_refused(void)
{
	struct kvr_wire_rejected why = {0};
	uint64_t id = 0;

	begin("source_share = 0\n", "cookie = off\nsource_rate = 10\nsource_burst = 5\n");
	CU_ASSERT_EQUAL(route_until_refused(2, &id, 20, &why), 5);
	CU_ASSERT_EQUAL(why.code, KVR_E_RATE_LIMITED);
	CU_ASSERT_EQUAL(why.retryable, 1);
	CU_ASSERT_EQUAL(route_until_refused(3, &id, 4, &why), 4); /* another source */
	pipeline_skip(300);
	CU_ASSERT_EQUAL(route_until_refused(2, &id, 20, &why), 3);
	end();
}

static uint64_t counted(enum in_counter c)
{
	uint64_t v[KVR_STATS_MAX];

	kvr_stats_snapshot(rt->in_stats, v);
	return v[c];
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
	CU_ASSERT_TRUE(counted(IN_LIMITED) > 1900);
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
	CU_ASSERT_TRUE(n >= 1000 && n < 1100);
	CU_ASSERT_EQUAL(counted(IN_UNANSWERED), 2500 - n);
	pipeline_flush();
	pipeline_host = 3;
	pipeline_send(PEER_OTHER, buf, (size_t)len);
	pipeline_turn();
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_OTHER, KVR_REJECTED));
	end();
}

int main(void)
{
	CU_TestInfo tests[] = {{"requests", requests_of_one_source_leave_slots_for_others},
			       {"waiting", waiting_requests_of_one_source_leave_room_for_others},
			       {"rate", requests_above_the_rate_are_refused},
			       {"hello", hellos_of_one_source_are_limited},
			       {"answers", answers_to_what_is_not_legal_are_limited},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("row13_shares", tests);
}
