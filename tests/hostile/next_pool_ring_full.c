/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A CANCEL or PROBE that finds the ring of the next pool full is counted. On several
 * threads its scheduler may have freed space: a frame that is not counted is answered.
 */
#include "lcore/mailbox.h"
#include "peers.h"
#include "threads.h"

static uint32_t count_answers(void)
{
	uint32_t n = 0;

	while (pipeline_next(PEER_CLIENT) != NULL)
		n++;
	return n;
}

static void frames_beyond_the_ring_of_the_next_pool_are_counted(void)
{
	struct sched_msg n = {.type = MSG_ABORT_ACK}; /* of an unknown request */
	uint64_t sent = 0, lost;
	struct pool *a, *b;

	pipeline_start(2);
	a = &rt->pool[0];
	b = &rt->pool[1];
	while (mailbox_put(b, &n) == 0)
		;
	/*
	 * One burst: the scheduler of both pools handles the first, then finds the ring of the
	 * second full.
	 */
	for (uint64_t id = 1; id <= 8; id++, sent++) {
		const struct kvr_wire_ids ids = peers_ids(id, 0);
		uint8_t buf[64];
		int len = kvr_put_empty(buf, sizeof(buf), id & 1 ? KVR_CANCEL : KVR_PROBE, &ids);

		pipeline_send(PEER_CLIENT, buf, (size_t)len);
	}
	pipeline_turn();
	lost = kvr_stats_get(a->count, PC_MAILBOX_FULL);
	CU_ASSERT_EQUAL(lost + count_answers(), sent);
	CU_ASSERT(lost == sent || threads_used() != NULL);
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_flush();
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
	while (mailbox_count(b) > BURST) /* each round of control ticks */
		pipeline_turn();
	peers_empty(PEER_CLIENT, KVR_CANCEL, 1, 0); /* the retransmission finds space */
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_CANCELLED));
	CU_ASSERT_EQUAL(kvr_stats_get(a->count, PC_MAILBOX_FULL), lost);
	pipeline_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(frames_beyond_the_ring_of_the_next_pool_are_counted),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("next_pool_ring_full", tests);
}
