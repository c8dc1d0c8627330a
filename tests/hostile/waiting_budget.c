/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An ingress lcore rejects ROUTEs while the scheduler, on another thread, makes requests
 * wait and releases them. The number of waiting frames has one writer: in the end it is 0, and
 * requests may still wait.
 */
#include "pipeline.h"
#include "threads.h"

#include "kvr_frame.h"
#include "kvr_put.h"
#include "kvr_test.h"
#include "sched/session.h"
#include <string.h>

#define ROUNDS 200u
#define BATCH  600u /* requests per round */
#define POOL   "[pool a]\nid = 5\n" PIPELINE_POOL "router_queue_threshold = 0.5\nmax_sessions = 64\n"

static uint64_t next_id = 1000;

/* A ROUTE of one frame. */
static void send_budget_route(uint64_t id, bool bad)
{
	uint64_t hash[2] = {id, id + 1};
	uint8_t tlv[128], frame[KVR_WIRE_DEF_FRAME];
	struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};
	const struct kvr_wire_ids ids = {.source = 77, .id = id, .epoch = 1};
	struct kvr_request_src src = {.fixed = {.pool = 5,
						.isl = 8,
						.max_tokens = KVR_NONE32,
						.expected_output_tokens = KVR_NONE32},
				      .hashes = hash,
				      .n_hashes = 2};
	struct kvr_slice s[KVR_REQUEST_SLICES];
	struct kvr_frag frag;
	uint32_t len, off, part;

	if (bad) {
		kvr_hint_put_session(&hints, KVR_ACTION_OPEN, 0, "no time");
		src.hints = hints.p;
		src.hints_len = hints.len;
	}
	len = kvr_request_build(&src, s);
	CU_ASSERT_FATAL(kvr_frag_init(&frag, KVR_ROUTE, &ids, len, sizeof(frame)) == 0);
	CU_ASSERT_FATAL(kvr_frag_next(&frag, frame, &off, &part));
	kvr_slices_copy(s, KVR_REQUEST_SLICES, off, part, frame + sizeof(struct kvr_wire_hdr));
	pipeline_send(PEER_CLIENT, frame, sizeof(struct kvr_wire_hdr) + part);
}

static void send_budget_cancel(uint64_t id)
{
	const struct kvr_wire_ids ids = {.source = 77, .id = id, .epoch = 1};
	uint8_t buf[64];

	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &ids));
}

/* Some wait and are cancelled, others are rejected at ingress, all at the same time. */
static void run_round(void)
{
	const uint64_t first = next_id, busy = next_id++;

	pipeline_route(busy, 7, 200, 0, NULL); /* for its worker: the others wait */
	threads_run();
	for (uint32_t i = 0; i < BATCH; i++) {
		send_budget_route(next_id, false);
		send_budget_route(UINT64_C(1) << 40 | next_id, true);
		send_budget_cancel(next_id++);
		send_budget_route(UINT64_C(1) << 40 | next_id, true);
	}
	pipeline_turn();
	/* Rings may have been full: no request of this round may wait any more. */
	for (uint64_t id = first; id < next_id; id++)
		if (kvr_flight_lookup(rt->pool[0].requests, 77, id) != NULL)
			send_budget_cancel(id);
	pipeline_turn();
	pipeline_flush();
}

static void waiting_frames_are_counted_by_one_thread(void)
{
	const struct pool *p;
	uint64_t waited;

	threads_use(&threads_maps[1]);
	CU_ASSERT_FATAL(threads_maps[1].ingress == 1 && threads_maps[1].sched == 1);
	pipeline_start_with(POOL);
	p = &rt->pool[0];
	CU_ASSERT_TRUE_FATAL(pipeline_hello(9, 1, "a", 1));
	for (uint32_t i = 0; i < ROUNDS; i++) {
		run_round();
		/* Slots of cancelled requests linger. */
		pipeline_advance(KVR_FLIGHT_LINGER_NS / 1000000 + 1);
		CU_ASSERT_EQUAL_FATAL(p->live.held, 0);
	}
	waited = kvr_stats_get(p->count, PC_QUEUED);
	CU_ASSERT_TRUE(waited > ROUNDS);
	CU_ASSERT_TRUE(kvr_stats_get(rt->lcore[0]->reject, KVR_E_INVALID_SESSION) > ROUNDS);
	pipeline_route(1, 7, 200, 0, NULL);
	send_budget_route(next_id, false);
	pipeline_turn();
	CU_ASSERT_EQUAL(kvr_stats_get(p->count, PC_QUEUED), waited + 1);
	send_budget_cancel(next_id);
	send_budget_cancel(1);
	pipeline_turn();
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(waiting_frames_are_counted_by_one_thread),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("waiting_budget", tests);
}
