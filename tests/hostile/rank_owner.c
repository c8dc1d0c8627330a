/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A rank passes to another worker, or to a new incarnation of the same, while frames and
 * predictions of the old one are on their way: they change nothing, and the first events of the new
 * owner are applied.
 */

#include "kv.h"
#include "kvr_put.h"
#include "kvr_test.h"

static uint64_t late[10], first[5];
static struct kvr_path path;

static uint32_t get_owned_rank(uint64_t worker)
{
	const struct kvr_worker *w = kvr_registry_find(rt->registry, worker);

	CU_ASSERT_FATAL(w != NULL);
	path = w->path;
	return w->rank[0];
}

static void send_worker_goodbye(uint64_t worker, uint32_t epoch)
{
	const struct kvr_wire_ids ids = {.source = worker, .id = 3, .epoch = epoch};
	uint8_t buf[64];
	const int len = kvr_put_empty(buf, sizeof(buf), KVR_GOODBYE, &ids);

	pipeline_send(PEER_AGENT, buf, (size_t)len);
	pipeline_turn();
	CU_ASSERT_PTR_NULL_FATAL(kvr_registry_find(rt->registry, worker));
	pipeline_flush();
}

static void queue_late_frame(uint64_t worker, uint32_t epoch, uint32_t rank)
{
	struct kv_frame f;

	kv_begin(&f, 0);
	kv_add(&f, KVR_KV_STORED, NULL, late, 10);
	kv_queue(&f, worker, epoch, rank, &path);
	pipeline_turn();
}

static void send_first_frame(uint64_t worker, uint32_t epoch, uint32_t rank)
{
	struct kvr_wire_kv_ack a;
	struct kv_frame f;

	kv_begin(&f, 0);
	kv_add(&f, KVR_KV_STORED, NULL, first, 5);
	kv_send(&f, worker, epoch);
	pipeline_turn();
	a = kv_acked();
	CU_ASSERT_EQUAL(a.code, KVR_KV_OK);
	CU_ASSERT_EQUAL(a.next_event_id, 1);
	CU_ASSERT_EQUAL(kv_overlap(rank, first, 5), 5);
	CU_ASSERT_EQUAL(kv_overlap(rank, late, 10), 0);
}

static void start_rank_owner(void)
{
	pipeline_start(1);
	kv_chain(late, 10, 1);
	kv_chain(first, 5, 2);
}

/* Two workers may have the same epoch: the worker must match, too. */
static void another_worker_with_the_same_epoch(void)
{
	uint32_t rank;

	start_rank_owner();
	CU_ASSERT_FATAL(pipeline_hello(1, 7, "a", 1));
	rank = get_owned_rank(1);
	send_worker_goodbye(1, 7);
	CU_ASSERT_FATAL(pipeline_hello(2, 7, "a", 1));
	CU_ASSERT_EQUAL_FATAL(get_owned_rank(2), rank);
	queue_late_frame(1, 7, rank);
	CU_ASSERT_EQUAL(kv_acked().code, KVR_KV_HELLO);
	CU_ASSERT_EQUAL(kv_table().entries, 0);
	send_first_frame(2, 7, rank);
	CU_ASSERT(pipeline_balanced());
	pipeline_stop();
}

/* The rank has no owner: late frames affect no other worker. */
static void a_rank_without_owner(void)
{
	uint32_t rank;

	start_rank_owner();
	CU_ASSERT_FATAL(pipeline_hello(1, 7, "a", 1));
	rank = get_owned_rank(1);
	send_worker_goodbye(1, 7);
	queue_late_frame(1, 7, rank);
	CU_ASSERT_EQUAL(kv_acked().code, KVR_KV_HELLO);
	CU_ASSERT_EQUAL(kv_table().entries, 0);
	CU_ASSERT(pipeline_balanced());
	pipeline_stop();
}

static void a_new_incarnation_of_the_same_worker(void)
{
	uint32_t rank;

	start_rank_owner();
	CU_ASSERT_FATAL(pipeline_hello(1, 7, "a", 1));
	CU_ASSERT_FATAL(pipeline_hello(1, 8, "a", 1));
	rank = get_owned_rank(1);
	queue_late_frame(1, 7, rank);
	CU_ASSERT_EQUAL(kv_acked().code, KVR_KV_HELLO);
	send_first_frame(1, 8, rank);
	CU_ASSERT(pipeline_balanced());
	pipeline_stop();
}

static void queue_prediction(uint64_t worker, uint32_t epoch, uint32_t rank)
{
	struct event_msg n = {.rank = rank};

	n.p = buf_get(rt, rt->hash_bufs, sizeof(*n.p) + sizeof(late));
	CU_ASSERT_FATAL(n.p != NULL);
	*n.p = (struct prediction){.worker = worker, .epoch = epoch, .n = 10};
	memcpy(n.p->sh, late, sizeof(late));
	CU_ASSERT_FATAL(rte_ring_enqueue_elem(rt->pool[0].events, &n, sizeof(n)) == 0);
	pipeline_turn();
}

static void predictions_belong_to_one_incarnation(void)
{
	uint32_t rank;

	start_rank_owner();
	rt->pool[0].predict_ttl_ms = 60000;
	CU_ASSERT_FATAL(pipeline_hello(1, 7, "a", 1));
	CU_ASSERT_FATAL(pipeline_hello(1, 8, "a", 1));
	rank = get_owned_rank(1);
	queue_prediction(1, 7, rank);
	queue_prediction(2, 8, rank);
	CU_ASSERT_EQUAL(kv_overlap(rank, late, 10), 0);
	queue_prediction(1, 8, rank);
	CU_ASSERT_EQUAL(kv_overlap(rank, late, 10), 10);
	pipeline_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(another_worker_with_the_same_epoch),
			       KVR_CASE(a_rank_without_owner),
			       KVR_CASE(a_new_incarnation_of_the_same_worker),
			       KVR_CASE(predictions_belong_to_one_incarnation), CU_TEST_INFO_NULL};

	return kvr_test_run("rank_owner", tests);
}
