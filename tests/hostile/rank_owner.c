/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A rank passes to another worker, or to a new life of the same, while frames and predictions of
 * the one before are on their way: they change nothing, and the new owner's first events are
 * applied.
 */

#include "kv.h"
#include "kvr_put.h"
#include "kvr_test.h"

static uint64_t late[10], first[5];
static struct kvr_path path;

static uint32_t rank_of(uint64_t worker)
{
	const struct kvr_worker *w = kvr_registry_find(rt->registry, worker);

	CU_ASSERT_FATAL(w != NULL);
	path = w->path;
	return w->rank[0];
}

static void goodbye(uint64_t worker, uint32_t epoch)
{
	const struct kvr_wire_ids ids = {.source = worker, .id = 3, .epoch = epoch};
	uint8_t buf[64];
	const int len = kvr_put_empty(buf, sizeof(buf), KVR_GOODBYE, &ids);

	pipeline_send(PEER_AGENT, buf, (size_t)len);
	pipeline_turn();
	CU_ASSERT_PTR_NULL_FATAL(kvr_registry_find(rt->registry, worker));
	pipeline_flush();
}

static void late_frame(uint64_t worker, uint32_t epoch, uint32_t rank)
{
	struct kv_frame f;

	kv_begin(&f, 0);
	kv_add(&f, KVR_KV_STORED, NULL, late, 10);
	kv_queue(&f, worker, epoch, rank, &path);
	pipeline_turn();
}

static void first_frame(uint64_t worker, uint32_t epoch, uint32_t rank)
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

static void start(void)
{
	pipeline_start(1);
	kv_chain(late, 10, 1);
	kv_chain(first, 5, 2);
}

/* Epochs of two workers may be equal: the worker must be, too. */
static void another_worker_of_the_same_epoch(void)
{
	uint32_t rank;

	start();
	CU_ASSERT_FATAL(pipeline_hello(1, 7, "a", 1));
	rank = rank_of(1);
	goodbye(1, 7);
	CU_ASSERT_FATAL(pipeline_hello(2, 7, "a", 1));
	CU_ASSERT_EQUAL_FATAL(rank_of(2), rank);
	late_frame(1, 7, rank);
	CU_ASSERT_EQUAL(kv_acked().code, KVR_KV_HELLO);
	CU_ASSERT_EQUAL(kv_table().entries, 0);
	first_frame(2, 7, rank);
	CU_ASSERT(pipeline_balanced());
	pipeline_stop();
}

/* Nobody has the rank: what comes late finds no heir. */
static void a_rank_without_owner(void)
{
	uint32_t rank;

	start();
	CU_ASSERT_FATAL(pipeline_hello(1, 7, "a", 1));
	rank = rank_of(1);
	goodbye(1, 7);
	late_frame(1, 7, rank);
	CU_ASSERT_EQUAL(kv_acked().code, KVR_KV_HELLO);
	CU_ASSERT_EQUAL(kv_table().entries, 0);
	CU_ASSERT(pipeline_balanced());
	pipeline_stop();
}

static void a_new_life_of_the_same_worker(void)
{
	uint32_t rank;

	start();
	CU_ASSERT_FATAL(pipeline_hello(1, 7, "a", 1));
	CU_ASSERT_FATAL(pipeline_hello(1, 8, "a", 1));
	rank = rank_of(1);
	late_frame(1, 7, rank);
	CU_ASSERT_EQUAL(kv_acked().code, KVR_KV_HELLO);
	first_frame(1, 8, rank);
	CU_ASSERT(pipeline_balanced());
	pipeline_stop();
}

static void predict_for(uint64_t worker, uint32_t epoch, uint32_t rank)
{
	struct event_note n = {.rank = rank};

	n.p = buf_get(rt, rt->hash_bufs, sizeof(*n.p) + sizeof(late));
	CU_ASSERT_FATAL(n.p != NULL);
	*n.p = (struct prediction){.worker = worker, .epoch = epoch, .n = 10};
	memcpy(n.p->sh, late, sizeof(late));
	CU_ASSERT_FATAL(rte_ring_enqueue_elem(rt->pool[0].events, &n, sizeof(n)) == 0);
	pipeline_turn();
}

static void predictions_are_of_one_life_too(void)
{
	uint32_t rank;

	start();
	rt->pool[0].predict_ttl_ms = 60000;
	CU_ASSERT_FATAL(pipeline_hello(1, 7, "a", 1));
	CU_ASSERT_FATAL(pipeline_hello(1, 8, "a", 1));
	rank = rank_of(1);
	predict_for(1, 7, rank);
	predict_for(2, 8, rank);
	CU_ASSERT_EQUAL(kv_overlap(rank, late, 10), 0);
	predict_for(1, 8, rank);
	CU_ASSERT_EQUAL(kv_overlap(rank, late, 10), 10);
	pipeline_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {{"worker", another_worker_of_the_same_epoch},
			       {"nobody", a_rank_without_owner},
			       {"life", a_new_life_of_the_same_worker},
			       {"predictions", predictions_are_of_one_life_too},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("rank_owner", tests);
}
