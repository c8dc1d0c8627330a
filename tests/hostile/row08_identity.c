/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rows 8, 9, 24 and 28, and what of 4 and 6 can be seen by the frame: who speaks for a worker, and
 * when its silence counts.
 */
#include "peers.h"

#include "control_pvt.h"

#define WORKER 9u

static int rejected(uint32_t to, uint8_t *retryable)
{
	const struct out *o = pipeline_expect(to, KVR_REJECTED);
	const struct kvr_wire_rejected *r = (const void *)(&o->hdr + 1);

	if (o == NULL)
		return -1;
	if (retryable != NULL)
		*retryable = r->retryable;
	return r->code;
}

static bool hello(uint32_t epoch, uint32_t from)
{
	return pipeline_hello_as(&(const struct pipeline_worker){
		.id = WORKER, .epoch = epoch, .pool = "a", .ranks = 2, .from = from});
}

static void say(uint32_t from, uint8_t kind, uint32_t epoch)
{
	const struct kvr_wire_ids ids = {.source = WORKER, .id = 3, .epoch = epoch};
	uint8_t buf[64];

	pipeline_send(from, buf, (size_t)kvr_put_empty(buf, sizeof(buf), kind, &ids));
	pipeline_turn();
}

static void beat(uint32_t from, uint32_t epoch, const uint32_t rank[], uint32_t n)
{
	const struct kvr_wire_ids ids = {.source = WORKER, .id = 4, .epoch = epoch};
	struct kvr_wire_rank_load l[4] = {0};
	uint8_t buf[256];

	for (uint32_t i = 0; i < n; i++)
		l[i] = (struct kvr_wire_rank_load){.dp_rank = rank[i], .kv_used_blocks = 7};
	pipeline_send(from, buf, (size_t)kvr_put_heartbeat(buf, sizeof(buf), &ids, l, n));
	pipeline_turn();
}

static struct kvr_worker *worker(void)
{
	return kvr_registry_find(rt->registry, WORKER);
}

/* Time passes in which the router listens and hears nothing. */
static void silence(uint32_t ms)
{
	for (uint32_t i = 0; i < ms; i += 10) {
		rt->ns_offset += UINT64_C(10000000);
		for (uint32_t k = 0; k < rt->n_lcores; k++)
			lcore_turn(rt->lcore[k]);
		control_round(rt);
	}
}

static void strangers_do_not_speak_for_a_worker(void)
{
	uint8_t retry = 0;

	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(hello(5, PEER_AGENT));
	say(PEER_OTHER, KVR_GOODBYE, 5);
	CU_ASSERT_EQUAL(rejected(PEER_OTHER, NULL), KVR_E_NOT_ALLOWED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(worker());
	beat(PEER_OTHER, 5, NULL, 0);
	CU_ASSERT_EQUAL(rejected(PEER_OTHER, NULL), KVR_E_NOT_ALLOWED);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_OTHER, KVR_HEARTBEAT_ACK));
	/* The same life and a new one, while it is heard. */
	CU_ASSERT_FALSE(hello(5, PEER_OTHER));
	CU_ASSERT_EQUAL(rejected(PEER_OTHER, &retry), KVR_E_WORKER_ALIVE);
	CU_ASSERT_EQUAL(retry, 1);
	CU_ASSERT_FALSE(hello(6, PEER_OTHER));
	CU_ASSERT_EQUAL(rejected(PEER_OTHER, NULL), KVR_E_WORKER_ALIVE);
	CU_ASSERT_EQUAL(worker()->path.udp_port, PEER_AGENT);
	CU_ASSERT_EQUAL(worker()->epoch, 5);
	/* A stranger's heartbeats do not keep a dead one alive. */
	for (int i = 0; i < 110; i++) {
		beat(PEER_OTHER, 5, NULL, 0);
		silence(10);
	}
	CU_ASSERT_PTR_NULL(worker());
	pipeline_flush();
	pipeline_stop();
}

static void epochs_only_grow(void)
{
	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(hello(5, PEER_AGENT));
	CU_ASSERT_FALSE(hello(4, PEER_AGENT));
	CU_ASSERT_EQUAL(rejected(PEER_AGENT, NULL), KVR_E_STALE_EPOCH);
	CU_ASSERT_TRUE(hello(6, PEER_AGENT));
	say(PEER_AGENT, KVR_GOODBYE, 5); /* late: of the life before */
	CU_ASSERT_PTR_NOT_NULL(worker());
	say(PEER_AGENT, KVR_GOODBYE, 6);
	CU_ASSERT_PTR_NULL(worker());
	CU_ASSERT_FALSE(hello(6, PEER_AGENT)); /* it is over */
	CU_ASSERT_EQUAL(rejected(PEER_AGENT, NULL), KVR_E_STALE_EPOCH);
	CU_ASSERT_TRUE(hello(7, PEER_OTHER));
	pipeline_flush();
	pipeline_stop();
}

/* Its requests go where it goes, and end there. */
static void requests_follow_a_worker_that_moves(void)
{
	const struct out *o;
	uint64_t handle;
	uint8_t buf[128];
	const struct kvr_wire_response fin = {
		.flags = KVR_RESP_F_FIN, .generated_tokens = 1, .cached_tokens = KVR_NONE32};
	struct kvr_wire_ids ids;

	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(hello(5, PEER_AGENT));
	pipeline_route(1, 100, 10, 0, NULL);
	o = pipeline_expect(PEER_AGENT, KVR_DISPATCH);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	handle = o->hdr.handle;
	silence(400);
	CU_ASSERT_EQUAL_FATAL(worker()->state, KVR_WORKER_SUSPECT);
	CU_ASSERT_TRUE_FATAL(hello(5, PEER_OTHER));
	ids = peers_ids(1, handle);
	pipeline_flush();
	pipeline_send(PEER_OTHER, buf,
		      (size_t)kvr_put_response(buf, sizeof(buf), &ids, fin,
					       (struct kvr_slice){"item", 4}));
	pipeline_turn();
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[0].sched)->booked_now, 0);
	peers_fin_ack(1, handle);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_OTHER, KVR_RESPONSE_ACK));
	/* Where it was, nobody is any more. */
	pipeline_route(2, 100, 10, 0, NULL);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_DISPATCH));
	pipeline_flush();
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

static void heartbeats_name_ranks_that_are_there_once(void)
{
	static const uint32_t other[] = {2}, twice[] = {1, 1}, both[] = {1, 0};

	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(hello(5, PEER_AGENT));
	beat(PEER_AGENT, 5, other, 1);
	CU_ASSERT_EQUAL(rejected(PEER_AGENT, NULL), KVR_E_WORKER_CONFIG);
	beat(PEER_AGENT, 5, twice, 2);
	CU_ASSERT_EQUAL(rejected(PEER_AGENT, NULL), KVR_E_INVALID_REQUEST);
	beat(PEER_AGENT, 5, both, 2);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_HEARTBEAT_ACK));
	pipeline_stop();
}

static void nobody_yet_is_worth_a_retry(void)
{
	uint8_t retry = 0;

	pipeline_start(1);
	rt->ns_offset += UINT64_C(3000000000); /* the tables of a large pool took so long */
	pipeline_turn();
	pipeline_route(1, 100, 10, 0, NULL); /* agents had no time to say HELLO */
	CU_ASSERT_EQUAL(rejected(PEER_CLIENT, &retry), KVR_E_NO_ENDPOINTS);
	CU_ASSERT_EQUAL(retry, 1);
	silence(1100);
	pipeline_route(2, 100, 10, 0, NULL);
	CU_ASSERT_EQUAL(rejected(PEER_CLIENT, &retry), KVR_E_NO_ENDPOINTS);
	CU_ASSERT_EQUAL(retry, 0);
	CU_ASSERT_TRUE_FATAL(hello(5, PEER_AGENT));
	silence(400);
	pipeline_route(3, 100, 10, 0, NULL); /* suspect */
	CU_ASSERT_EQUAL(rejected(PEER_CLIENT, &retry), KVR_E_NO_ENDPOINTS);
	CU_ASSERT_EQUAL(retry, 1);
	pipeline_stop();
}

/* A stop of the process, then one of the ingress lcores alone: nobody is judged. */
static void the_routers_own_stall_is_nobodys_silence(void)
{
	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(hello(5, PEER_AGENT));
	rt->ns_offset += UINT64_C(2500000000);
	control_round(rt); /* before anything that has piled up is read */
	CU_ASSERT_EQUAL(worker()->state, KVR_WORKER_SERVING);
	for (int i = 0; i < 200; i++) { /* control runs, ingress does not */
		rt->ns_offset += UINT64_C(10000000);
		control_round(rt);
	}
	CU_ASSERT_PTR_NOT_NULL_FATAL(worker());
	CU_ASSERT_EQUAL(worker()->state, KVR_WORKER_SERVING);
	silence(400);
	CU_ASSERT_EQUAL(worker()->state, KVR_WORKER_SUSPECT);
	beat(PEER_AGENT, 5, NULL, 0);
	CU_ASSERT_EQUAL(worker()->state, KVR_WORKER_SERVING);
	pipeline_stop();
}

/* Eight HELLOs of new lives in each heartbeat's time, and a ring of them in one burst. */
static void hellos_take_nothing_from_heartbeats(void)
{
	uint32_t used;

	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(hello(5, PEER_AGENT));
	used = pipeline_mbufs_used();
	for (uint32_t i = 0; i < 2000; i++) {
		const struct kvr_wire_ids ids = {.source = 1000 + i % 7, .id = 1, .epoch = i + 1};
		uint8_t buf[256], tlv[64];
		struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};
		const struct kvr_wire_hello h = {.block_size = 4, .dp_size = 1, .max_frame = 1432};

		kvr_hint_put_str(&hints, KVR_HINT_POOL, "a");
		pipeline_send(PEER_OTHER, buf,
			      (size_t)kvr_put_hello(buf, sizeof(buf), &ids, h, &hints));
		if (i % 500 == 499) /* control does nothing meanwhile */
			for (uint32_t k = 0; k < 40; k++)
				lcore_turn(rt->lcore[0]);
	}
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), used);
	pipeline_flush();
	CU_ASSERT_TRUE(rte_mempool_avail_count(rt->ctl_bufs) == 0);
	{
		const struct kvr_wire_ids ids = {.source = WORKER, .id = 4, .epoch = 5};
		uint8_t buf[64];

		pipeline_send(PEER_AGENT, buf,
			      (size_t)kvr_put_heartbeat(buf, sizeof(buf), &ids, NULL, 0));
	}
	lcore_turn(rt->lcore[0]);
	lcore_turn(rt->lcore[0]);
	CU_ASSERT_NOT_EQUAL(worker()->beat->heard_ns, worker()->told_ns);
	pipeline_turn();
	CU_ASSERT_EQUAL(worker()->state, KVR_WORKER_SERVING);
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {{"strangers", strangers_do_not_speak_for_a_worker},
			       {"epochs", epochs_only_grow},
			       {"moves", requests_follow_a_worker_that_moves},
			       {"ranks", heartbeats_name_ranks_that_are_there_once},
			       {"expected", nobody_yet_is_worth_a_retry},
			       {"stall", the_routers_own_stall_is_nobodys_silence},
			       {"hellos", hellos_take_nothing_from_heartbeats},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("row08", tests);
}
