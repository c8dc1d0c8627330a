/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several ingress lcores, and each frame of a message on the next queue: a message is reassembled
 * on any lcore and with any delay, or rejected if it is too large.
 */
#include "peers.h"
#include "threads.h"

#include <sched.h>

#include "ingress/fragment.h"
#include "kvr_frame.h"

#define MBUFS  100000u
#define TOKENS 1000000u /* a message of 4 MB */
#define HEADER sizeof(struct kvr_wire_hdr)
#define UNIT   (KVR_WIRE_DEF_FRAME - HEADER)

static uint64_t sum_two_lcores(enum in_counter c)
{
	return kvr_stats_get(rt->lcore[0]->in, c) + kvr_stats_get(rt->lcore[1]->in, c);
}

static void begin_lcore_fragments(uint32_t mbufs)
{
	pipeline_mbufs = mbufs;
	pipeline_block_size = 16;
	pipeline_start_with("[pool a]\nid = 5\nblock_size = 16\nmax_ranks = 8\nmax_requests = 64\n"
			    "max_jobs = 64\nmax_blocks = 256k\nmax_active_blocks = 262144\n"
			    "use_kv_events = false\n");
	CU_ASSERT_TRUE_FATAL(pipeline_hello(9, 1, "a", 1));
	CU_ASSERT_PTR_NOT_NULL_FATAL(rt->lcore[1]->joins);
}

static void end_lcore_fragments(void)
{
	pipeline_turn();
	pipeline_flush();
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

/* The lcore that reassembles messages from PEER_CLIENT. */
static struct lcore *find_joiner(void)
{
	struct kvr_path from = {.udp_port = PEER_CLIENT, .family = 4};

	kvr_ip_parse("10.0.0.2", from.ip);
	return fragment_joiner(rt->lcore[0], &from);
}

/* It is busy elsewhere until the other lcore has read and handed over everything. */
static bool keep_lcore_away(struct lcore *lc, void *arg)
{
	struct lcore *other = lc->rt->lcore[1 - lc->index];
	const uint64_t from = atomic_load_explicit(&other->read_up, memory_order_acquire);

	(void)arg;
	while (atomic_load_explicit(&other->read_up, memory_order_acquire) < from + 2)
		sched_yield();
	return true;
}

static bool is_all_idle(void)
{
	return kvr_sched_settled(rt->pool[0].sched) && !event_is_open(&rt->pool[0].event) &&
	       rte_mempool_in_use_count(rt->hash_bufs) == 0;
}

static void a_message_on_all_queues_is_reassembled(void)
{
	const uint32_t frames = (TOKENS * 4 + (uint32_t)UNIT - 1) / (uint32_t)UNIT;
	uint32_t bytes = 0;
	const struct out *o;

	begin_lcore_fragments(MBUFS);
	CU_ASSERT_FATAL(frames < rt->sizes.max_frames && rt->sizes.ring_size < frames / 2);
	for (uint64_t id = 1; id <= 2; id++, bytes = 0) {
		struct call away = {.fn = keep_lcore_away};

		CU_ASSERT_EQUAL_FATAL(rte_ring_sp_enqueue(find_joiner()->calls, &away), 0);
		pipeline_route_tokens(id, 0, TOKENS, 0, NULL);
		CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_ACCEPTED));
		while ((o = pipeline_expect(PEER_AGENT, KVR_DISPATCH)) != NULL)
			bytes += o->hdr.frag_len;
		CU_ASSERT(bytes >= TOKENS * 4);
		peers_empty(PEER_CLIENT, KVR_CANCEL, id, 0);
		CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_CANCELLED));
		pipeline_flush();
	}
	/*
	 * Booking, end and prediction of each prompt take longer than a turn and are done in
	 * slices; the last thread with its hashes frees them.
	 */
	for (uint32_t i = 0; i < 100000 && !is_all_idle(); i++)
		pipeline_turn();
	CU_ASSERT_TRUE(is_all_idle());
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_PREDICTIONS), 2);
	CU_ASSERT_PTR_NULL(kvr_active_check(kvr_sched_active(rt->pool[0].sched)));
	CU_ASSERT_EQUAL(sum_two_lcores(IN_REASSEMBLED), 2);
	CU_ASSERT(sum_two_lcores(IN_FORWARDED) >= frames / 2 * 2);
	CU_ASSERT_EQUAL(sum_two_lcores(IN_RING_FULL), 0);
	CU_ASSERT_EQUAL(sum_two_lcores(IN_MISSING_SENT), 0);
	end_lcore_fragments();
}

/* The first fragment shows the size, on any queue, and no further one is kept on the way. */
static void a_too_large_message_is_rejected_on_any_lcore(void)
{
	uint8_t f[KVR_WIRE_DEF_FRAME] = {0};

	begin_lcore_fragments(PIPELINE_MBUFS);
	for (uint32_t q = 0; q < 2; q++) {
		const struct kvr_wire_ids ids = {.source = 77, .id = 10 + q, .epoch = 1};
		const uint32_t len = (rt->sizes.max_frames + 1) * (uint32_t)UNIT;
		const struct kvr_wire_rejected *r;
		const struct out *o;

		pipeline_queue = q;
		for (uint32_t i = 32; i-- > 0;) {
			kvr_hdr_put(f, KVR_ROUTE, &ids, len, i * (uint32_t)UNIT, (uint16_t)UNIT);
			pipeline_send(PEER_CLIENT, f, sizeof(f));
		}
		pipeline_turn();
		o = pipeline_expect(PEER_CLIENT, KVR_REJECTED);
		CU_ASSERT_PTR_NOT_NULL_FATAL(o);
		r = (const void *)(&o->hdr + 1);
		CU_ASSERT_EQUAL(r->code, KVR_E_TOO_LARGE);
		CU_ASSERT_EQUAL(r->detail[0], len);
		CU_ASSERT_EQUAL(r->detail[1], rt->sizes.max_frames * (uint64_t)UNIT);
		CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_REJECTED));
	}
	pipeline_queue = PIPELINE_SPREAD;
	CU_ASSERT_EQUAL(sum_two_lcores(IN_REJECTED), 64);
	CU_ASSERT_EQUAL(sum_two_lcores(IN_FORWARDED), 0);
	end_lcore_fragments();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_message_on_all_queues_is_reassembled),
			       KVR_CASE(a_too_large_message_is_rejected_on_any_lcore),
			       CU_TEST_INFO_NULL};

	if (threads_used() == NULL)
		threads_use(&threads_maps[3]);
	return kvr_test_run("lcores_fragments", tests);
}
