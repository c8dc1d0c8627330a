/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rings and pools of lcores that share a CPU, on an EAL with three lcores on one CPU: a preempted
 * lcore that fills a ring does not block the others. The threads of the lcores sleep; the main
 * thread plays their parts.
 */
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_mempool.h>
#include <rte_ring.h>

#include "kvr_eal.h"
#include "kvr_rings.h"
#include "kvr_test.h"

#define SIZE	 64u
#define HANGS_IN 60u /* s; with a default ring this test would never end */

static void a_suspended_producer_blocks_no_other(void)
{
	struct rte_ring *r = kvr_rings_create("r", sizeof(void *), SIZE, SOCKET_ID_ANY);
	uint32_t head, room;
	void *got[SIZE] = {NULL};

	CU_ASSERT_PTR_NOT_NULL_FATAL(r);
	CU_ASSERT(rte_ring_is_cons_single(r));
	CU_ASSERT_EQUAL_FATAL(rte_ring_get_prod_sync_type(r), RTE_RING_SYNC_MT_RTS);
	/* One producer has reserved its place and is preempted before it publishes the element. */
	CU_ASSERT_EQUAL(__rte_ring_rts_move_prod_head(r, 1, RTE_RING_QUEUE_FIXED, &head, &room), 1);
	__rte_ring_enqueue_elems(r, head, &(void *){&head}, sizeof(void *), 1);
	alarm(HANGS_IN);
	for (uint32_t i = 1; i < SIZE - 1; i++) /* as many as the ring has places */
		CU_ASSERT_EQUAL(rte_ring_enqueue(r, &got[i]), 0);
	CU_ASSERT(rte_ring_enqueue(r, &room) < 0);
	alarm(0);
	CU_ASSERT_EQUAL(rte_ring_dequeue_burst(r, got, SIZE, NULL), 0);
	__rte_ring_rts_update_tail(&r->rts_prod); /* the producer continues */
	CU_ASSERT_EQUAL(rte_ring_dequeue_burst(r, got, SIZE, NULL), SIZE - 1);
	CU_ASSERT(got[0] == &head);
	for (uint32_t i = 1; i < SIZE - 1; i++)
		CU_ASSERT(got[i] == &got[i]);
	rte_ring_free(r);
}

static void number_object(struct rte_mempool *m, void *arg, void *obj, unsigned int i)
{
	(void)m, (void)arg;
	*(uint32_t *)obj = i + 1;
}

/* The ring of a full pool: preempted once while an object is taken, once while one is returned. */
static void suspend_in(struct rte_ring *r)
{
	void *one, *obj[SIZE - 1];
	uint32_t head, n;

	alarm(HANGS_IN);
	CU_ASSERT_EQUAL(__rte_ring_rts_move_cons_head(r, 1, RTE_RING_QUEUE_FIXED, &head, &n), 1);
	__rte_ring_dequeue_elems(r, head, &one, sizeof(one), 1);
	for (uint32_t i = 0; i < SIZE - 2; i++)
		CU_ASSERT_EQUAL(rte_ring_dequeue(r, &obj[i]), 0);
	CU_ASSERT(rte_ring_dequeue(r, &obj[SIZE - 2]) < 0);
	__rte_ring_rts_update_tail(&r->rts_cons);
	CU_ASSERT_EQUAL(__rte_ring_rts_move_prod_head(r, 1, RTE_RING_QUEUE_FIXED, &head, &n), 1);
	__rte_ring_enqueue_elems(r, head, &one, sizeof(one), 1);
	for (uint32_t i = 0; i < SIZE - 2; i++)
		CU_ASSERT_EQUAL(rte_ring_enqueue(r, obj[i]), 0);
	__rte_ring_rts_update_tail(&r->rts_prod);
	alarm(0);
}

/*
 * A consumer is preempted while others continue: the objects they return are all present
 * afterwards.
 */
static void nothing_is_lost_behind_a_suspended_consumer(struct rte_mempool *m)
{
	struct rte_ring *r = m->pool_data;
	void *one, *obj[SIZE / 2];
	uint32_t head, n;

	alarm(HANGS_IN);
	CU_ASSERT_EQUAL(__rte_ring_rts_move_cons_head(r, 1, RTE_RING_QUEUE_FIXED, &head, &n), 1);
	__rte_ring_dequeue_elems(r, head, &one, sizeof(one), 1);
	for (uint32_t i = 0; i < 10; i++) {
		CU_ASSERT_EQUAL(rte_mempool_get_bulk(m, obj, SIZE / 2), 0);
		rte_mempool_put_bulk(m, obj, SIZE / 2);
	}
	__rte_ring_rts_update_tail(&r->rts_cons);
	alarm(0);
	rte_mempool_put(m, one);
	CU_ASSERT_EQUAL(rte_mempool_avail_count(m), SIZE - 1);
	for (uint32_t i = 0; i < 10 * SIZE; i++) { /* the ring wraps around */
		CU_ASSERT_EQUAL(rte_mempool_get_bulk(m, obj, SIZE / 2), 0);
		rte_mempool_put_bulk(m, obj, SIZE / 2);
	}
	CU_ASSERT_EQUAL(rte_mempool_avail_count(m), SIZE - 1);
}

/* A get waits before the places for returned objects are exhausted. */
static void consumers_wait_before_the_ring_is_full(struct rte_mempool *m)
{
	const struct rte_ring *r = m->pool_data;

	CU_ASSERT(rte_ring_get_capacity(r) >= rte_ring_get_cons_htd_max(r) + m->size + SIZE);
	CU_ASSERT(rte_ring_get_cons_htd_max(r) >= m->size);
}

static void pools_are_of_the_same_kind(void)
{
	struct rte_mempool *m = kvr_rings_pool("m", SIZE - 1, 64, 0, number_object);
	void *obj[SIZE - 1];
	uint64_t seen = 0;

	CU_ASSERT_PTR_NOT_NULL_FATAL(m);
	CU_ASSERT_STRING_EQUAL(rte_mempool_get_ops(m->ops_index)->name, "ring_mt_rts");
	CU_ASSERT_EQUAL(rte_mempool_get_bulk(m, obj, SIZE - 1), 0);
	for (unsigned int i = 0; i < SIZE - 1; i++)
		seen |= UINT64_C(1) << *(uint32_t *)obj[i];
	CU_ASSERT_EQUAL(seen, ~UINT64_C(1)); /* 1 to 63, each */
	rte_mempool_put_bulk(m, obj, SIZE - 1);
	CU_ASSERT_EQUAL(rte_mempool_avail_count(m), SIZE - 1);
	suspend_in(m->pool_data);
	nothing_is_lost_behind_a_suspended_consumer(m);
	consumers_wait_before_the_ring_is_full(m);
	rte_mempool_free(m);
	m = kvr_rings_mbufs("b", SIZE - 1, 0, 2048, SOCKET_ID_ANY);
	CU_ASSERT_PTR_NOT_NULL_FATAL(m);
	CU_ASSERT_STRING_EQUAL(rte_mempool_get_ops(m->ops_index)->name, "ring_mt_rts");
	suspend_in(m->pool_data);
	nothing_is_lost_behind_a_suspended_consumer(m);
	consumers_wait_before_the_ring_is_full(m);
	rte_mempool_free(m);
}

static int start_shared_eal(void)
{
	char lcores[64];
	const char *argv[] = {
		"test",	    kvr_eal_pages(), "--no-shconf", "--no-pci", "--no-telemetry",
		"--lcores", lcores,	     "-m",	    "64",	"--log-level=*:error"};
	cpu_set_t may;
	int cpu = 0;

	if (sched_getaffinity(0, sizeof(may), &may) < 0)
		return -1;
	while (!CPU_ISSET(cpu, &may))
		cpu++;
	snprintf(lcores, sizeof(lcores), "0@%d,1@%d,2@%d", cpu, cpu, cpu);
	return rte_eal_init((int)RTE_DIM(argv), (char **)(uintptr_t)argv);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_suspended_producer_blocks_no_other),
			       KVR_CASE(pools_are_of_the_same_kind), CU_TEST_INFO_NULL};

	if (start_shared_eal() < 0)
		return 1;
	return kvr_test_run("rings", tests);
}
