/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Ranks are cleared in a full table of 4 M blocks: by CLEARED events, by a worker with many ranks,
 * and by a rolling restart of 64 workers. The work of a turn is counted in units (about 16 ns
 * each), and the clock advances by them: no turn may take long, and no worker may become suspect.
 */

#include "control/control.h"
#include "kv.h"
#include "kvr_test.h"
#include "loop/loop.h"

#define WORKERS 64u
#define MANY	64u /* ranks of one additional worker */
#define BLOCKS	(1u << 22)
#define CHAIN	128u
#define UNIT_NS 16u
/* Events up to the limit of a turn, the last slice beyond it, and a slice of clearing. */
#define TURN_MAX (512u + 500u + 300u)

static uint64_t longest, heartbeat_ns;
static uint32_t epoch[WORKERS + 1];

static void start_ranks(void)
{
	pipeline_start_with("[pool a]\nid = 5\nblock_size = 4\nmax_ranks = 160\n"
			    "max_requests = 256\nmax_jobs = 128\nmax_blocks = 4194304\n"
			    "max_active_blocks = 65536\n");
	longest = 0;
	for (uint32_t w = 0; w <= WORKERS; w++)
		epoch[w] = 1;
}

static bool join_number(uint32_t w)
{
	return pipeline_hello_as(&(const struct pipeline_worker){.id = 1 + w,
								 .epoch = epoch[w],
								 .pool = "a",
								 .ranks = w == WORKERS ? MANY : 1,
								 .from = PEER_AGENT,
								 .kv_blocks = BLOCKS});
}

static uint32_t get_rank_number(uint32_t w, uint32_t i)
{
	const struct kvr_worker *k = kvr_registry_find(rt->registry, 1 + w);

	CU_ASSERT_FATAL(k != NULL);
	return k->rank[i];
}

/* Fill the table in equal parts. Chain 0 of a rank has the number of the rank. */
static void fill_table(const uint32_t rank[], uint32_t n)
{
	uint64_t sh[CHAIN];

	for (uint32_t i = 0; i < BLOCKS / CHAIN; i++) {
		kv_chain(sh, CHAIN, i < n ? rank[i] : 1000 + i);
		kvr_prefix_store(rt->pool[0].prefix, (uint16_t)rank[i % n], KVR_TIER_DEVICE, NULL,
				 sh, CHAIN);
	}
	CU_ASSERT_EQUAL(kv_table().blocks, BLOCKS);
	CU_ASSERT_EQUAL(kv_table().evicted_runs, 0);
}

static void send_all_heartbeats(void)
{
	const struct kvr_wire_heartbeat none = {0};
	uint8_t buf[sizeof(struct kvr_wire_hdr) + sizeof(none)];

	for (uint32_t i = 0; i < kvr_registry_count(rt->registry); i++) {
		const struct kvr_worker *w = kvr_registry_at(rt->registry, i);
		const struct kvr_wire_ids ids = {.source = w->id, .id = 9, .epoch = w->epoch};

		kvr_hdr_put((void *)buf, KVR_HEARTBEAT, &ids, sizeof(none), 0, sizeof(none));
		memcpy(buf + sizeof(struct kvr_wire_hdr), &none, sizeof(none));
		pipeline_send(PEER_AGENT, buf, sizeof(buf));
	}
}

/* One turn of the lcore, timed by its work, then control; all workers send heartbeats. */
static void run_clear_turn(void)
{
	const uint64_t before = kvr_prefix_work(rt->pool[0].prefix);
	uint64_t spent;

	lcore_turn(rt->lcore[0]);
	control_round(rt);
	spent = kvr_prefix_work(rt->pool[0].prefix) - before;
	longest = RTE_MAX(longest, spent);
	rt->ns_offset += 2000 + spent * UNIT_NS;
	if (rt->ns_offset - heartbeat_ns > 100000000) {
		heartbeat_ns = rt->ns_offset;
		send_all_heartbeats();
		pipeline_turn();
		pipeline_flush();
	}
	for (uint32_t i = 0; i < kvr_registry_count(rt->registry); i++)
		CU_ASSERT_EQUAL(kvr_registry_at(rt->registry, i)->state, KVR_WORKER_SERVING);
}

static void run_until_free(void)
{
	run_clear_turn();
	while (kv_table().clearing > 0)
		run_clear_turn();
}

/* One frame of 84 CLEARED, to a rank with many blocks and to one without. */
static void many_cleared_in_a_frame_cost_what_the_rank_holds(void)
{
	uint32_t rank[WORKERS];
	struct kv_frame f;
	uint64_t before;

	start_ranks();
	for (uint32_t w = 0; w < WORKERS; w++) {
		CU_ASSERT_FATAL(join_number(w));
		rank[w] = get_rank_number(w, 0);
	}
	fill_table(&rank[1], WORKERS - 1); /* the first has no blocks */
	pipeline_flush();
	heartbeat_ns = rt->ns_offset;
	for (uint32_t w = 0; w < 2; w++) {
		kv_begin(&f, 0);
		for (uint32_t i = 0; i < 84; i++)
			kv_add(&f, KVR_KV_CLEARED, NULL, NULL, 0);
		before = kvr_prefix_work(rt->pool[0].prefix);
		kv_send(&f, 1 + w, 1);
		run_until_free();
		before = kvr_prefix_work(rt->pool[0].prefix) - before;
		if (w == 0)
			CU_ASSERT_EQUAL(before, 0);
		pipeline_turn();
		CU_ASSERT_EQUAL(kv_acked().next_event_id, 84);
	}
	/* 66,576 blocks in 521 runs: about a unit per block and 20 per run. */
	CU_ASSERT(before > BLOCKS / WORKERS && before < 2 * BLOCKS / WORKERS);
	CU_ASSERT(longest <= TURN_MAX);
	CU_ASSERT(pipeline_balanced());
	pipeline_stop();
}

/*
 * @rule 16: blocks of the old incarnation count for no rank from the new HELLO on; those of the new
 * one do.
 */
static void expect_new_incarnation(uint32_t w, uint64_t *busy)
{
	const uint32_t rank = get_rank_number(w, 0);
	struct kvr_wire_kv_ack a;
	uint64_t old[CHAIN], sh[16];
	struct kv_frame f;

	kv_chain(old, CHAIN, rank);
	kv_chain(sh, 16, 500000 + w);
	CU_ASSERT_EQUAL(kv_overlap(rank, old, CHAIN), 0);
	do {
		kv_begin(&f, 0);
		kv_add(&f, KVR_KV_STORED, NULL, sh, 16);
		kv_add(&f, KVR_KV_STORED, NULL, old, 8);
		kv_send(&f, 1 + w, epoch[w]);
		pipeline_turn();
		a = kv_acked();
		pipeline_flush();
		*busy += a.code == KVR_KV_BUSY;
		CU_ASSERT_EQUAL(a.next_event_id, a.code == KVR_KV_OK ? 2 : 0);
		run_clear_turn();
	} while (a.code == KVR_KV_BUSY);
	CU_ASSERT_EQUAL(a.code, KVR_KV_OK);
	CU_ASSERT_EQUAL(kv_overlap(rank, sh, 16), 16);
	CU_ASSERT_EQUAL(kv_overlap(rank, old, CHAIN), 8);
}

static void a_rolling_restart_makes_no_worker_suspect(void)
{
	uint32_t rank[WORKERS];
	uint64_t busy = 0, most = 0;

	start_ranks();
	for (uint32_t w = 0; w < WORKERS; w++) {
		CU_ASSERT_FATAL(join_number(w));
		rank[w] = get_rank_number(w, 0);
	}
	fill_table(rank, WORKERS);
	pipeline_flush();
	heartbeat_ns = rt->ns_offset;
	for (uint32_t w = 0; w < WORKERS; w++) { /* faster than a real rolling restart */
		epoch[w]++;
		CU_ASSERT_FATAL(join_number(w));
		most = RTE_MAX(most, kv_table().clearing);
	}
	CU_ASSERT(most > 8); /* several are being cleared */
	for (uint32_t w = 0; w < WORKERS; w++)
		expect_new_incarnation(w, &busy);
	CU_ASSERT(busy > 0);
	run_until_free();
	CU_ASSERT_EQUAL(kv_table().entries, WORKERS * 24);
	CU_ASSERT_EQUAL(kv_table().blocks, WORKERS * 24);
	CU_ASSERT(longest <= TURN_MAX);
	CU_ASSERT(pipeline_balanced());
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
	pipeline_stop();
}

/* All ranks of one worker at once, and again before the first clear has finished. */
static void a_worker_of_many_ranks_restarts(void)
{
	uint32_t rank[MANY];
	uint64_t sh[CHAIN];

	start_ranks();
	CU_ASSERT_FATAL(join_number(WORKERS));
	CU_ASSERT_FATAL(join_number(0));
	for (uint32_t i = 0; i < MANY; i++)
		rank[i] = get_rank_number(WORKERS, i);
	fill_table(rank, MANY);
	pipeline_flush();
	heartbeat_ns = rt->ns_offset;
	for (uint32_t again = 0; again < 3; again++) {
		epoch[WORKERS]++;
		CU_ASSERT_FATAL(join_number(WORKERS));
		for (uint32_t i = 0; i < MANY; i++) {
			kv_chain(sh, CHAIN, rank[i]);
			CU_ASSERT_EQUAL(kv_overlap(rank[i], sh, CHAIN), 0);
		}
		run_clear_turn();
	}
	CU_ASSERT(kv_table().clearing > 0);
	run_until_free();
	CU_ASSERT_EQUAL(kv_table().blocks, 0);
	CU_ASSERT(longest <= TURN_MAX);
	pipeline_stop();
}

/* A frame that finds the event ring full is answered with BUSY, not dropped. */
static void a_full_ring_answers_busy(void)
{
	struct kvr_wire_kv_ack a;
	struct event_msg none = {.rank = 0};
	struct kv_frame f;
	uint64_t sh[4];
	struct rte_ring *ring;

	start_ranks();
	CU_ASSERT_FATAL(join_number(0));
	ring = rt->pool[0].events;
	kv_chain(sh, 4, 3);
	pipeline_flush();
	for (;;) { /* predictions of unknown requests */
		none.p = buf_get(rt, rt->hash_bufs, sizeof(*none.p));
		if (none.p == NULL)
			break;
		*none.p = (struct prediction){.n = 0};
		if (rte_ring_enqueue_elem(ring, &none, sizeof(none)) != 0)
			break;
	}
	CU_ASSERT_FATAL(none.p != NULL && rte_ring_full(ring));
	buf_put(none.p);
	kv_begin(&f, 0);
	kv_add(&f, KVR_KV_STORED, NULL, sh, 4);
	kv_send(&f, 1, 1);
	pipeline_turn();
	a = kv_acked();
	CU_ASSERT_EQUAL(a.code, KVR_KV_BUSY);
	CU_ASSERT_EQUAL(a.next_event_id, 0);
	kv_send(&f, 1, 1);
	pipeline_turn();
	CU_ASSERT_EQUAL(kv_acked().code, KVR_KV_OK);
	CU_ASSERT(pipeline_balanced());
	pipeline_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(many_cleared_in_a_frame_cost_what_the_rank_holds),
			       KVR_CASE(a_rolling_restart_makes_no_worker_suspect),
			       KVR_CASE(a_worker_of_many_ranks_restarts),
			       KVR_CASE(a_full_ring_answers_busy), CU_TEST_INFO_NULL};

	return kvr_test_run("rank_clear", tests);
}
