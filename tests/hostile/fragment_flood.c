/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One socket sends the 6,600 fragments of a ROUTE every 3 s, beside workers with heartbeats and
 * clients with requests, for a minute of virtual time, or six seconds on threads. No worker is
 * lost, all requests are served, and a buffer for the next heartbeat is always free.
 */
#include "kvr_frame.h"
#include "kvr_put.h"
#include "kvr_test.h"
#include "lcores.h"
#include "threads.h"

#include <string.h>

#define WORKERS	  8u
#define FIRST	  100u /* worker id */
#define FRAGMENTS 6600u
#define UNIT	  512u /* so that a message can have this many fragments */
#define ROUND_MS  3000u
#define ROUNDS	  (threads_used() == NULL ? 20u : 2u) /* threads take real time */
#define BEAT_MS	  100u
#define BURST_MS  20u /* duration of each flood */

static uint32_t answered, beats, acked, most_held;

static void send_flood_heartbeat(uint64_t worker)
{
	const struct kvr_wire_ids ids = {.source = worker, .id = 3, .epoch = 1};
	const struct kvr_wire_rank_load load = {.kv_used_blocks = UINT64_MAX};
	uint8_t buf[256];

	beats++;
	pipeline_send(PEER_AGENT, buf,
		      (size_t)kvr_put_heartbeat(buf, sizeof(buf), &ids, &load, 1, 0, 0));
}

/* An engine that answers every DISPATCH with one item, and a client that acknowledges it. */
static void run_peers(void)
{
	const struct kvr_wire_response item = {.flags = KVR_RESP_F_FIN,
					       .cached_tokens = KVR_NONE32};
	const struct kvr_wire_response_ack ack = {.next_seq = 1, .flags = KVR_RACK_F_FIN};
	const struct out *o;
	struct kvr_wire_ids ids;
	uint8_t buf[256];

	while ((o = pipeline_next(0)) != NULL) {
		ids = (struct kvr_wire_ids){.source = o->hdr.source,
					    .id = o->hdr.id,
					    .handle = o->hdr.handle,
					    .epoch = 1};
		acked += o->hdr.kind == KVR_HEARTBEAT_ACK;
		if (o->hdr.kind == KVR_DISPATCH && o->hdr.frag_off == 0)
			pipeline_send(PEER_AGENT, buf,
				      (size_t)kvr_put_response(buf, sizeof(buf), &ids, item,
							       (struct kvr_slice){NULL, 0}));
		if (o->hdr.kind == KVR_RESPONSE) {
			answered++;
			pipeline_send(PEER_CLIENT, buf,
				      (size_t)kvr_put_response_ack(buf, sizeof(buf), &ids, &ack));
		}
	}
	pipeline_flush();
}

/*
 * Fragments of messages of @p frames, each without its last one; message numbers continue over all
 * rounds.
 */
static void send_hostile_fragments(uint64_t from, uint32_t n, uint32_t frames)
{
	uint8_t f[sizeof(struct kvr_wire_hdr) + UNIT] = {0};

	pipeline_host = 66;
	for (uint64_t i = from; i < from + n; i++) {
		const struct kvr_wire_ids ids = {
			.source = 666, .id = 1 + i / (frames - 1), .epoch = 1};

		kvr_hdr_put(f, KVR_ROUTE, &ids, frames * UNIT, (uint32_t)(i % (frames - 1)) * UNIT,
			    UNIT);
		pipeline_send(5000, f, sizeof(f));
	}
	pipeline_host = 2;
}

static void expect_all_alive(void)
{
	for (uint32_t i = 0; i < kvr_registry_count(rt->registry); i++)
		CU_ASSERT_EQUAL(kvr_registry_at(rt->registry, i)->state, KVR_WORKER_SERVING);
	CU_ASSERT_EQUAL(kvr_registry_count(rt->registry), WORKERS);
}

/* One millisecond for all peers. */
static void run_millisecond(uint32_t now, uint32_t frames)
{
	static uint64_t id;

	rt->ns_offset += 1000000;
	if (now % ROUND_MS < BURST_MS)
		send_hostile_fragments((now / ROUND_MS * BURST_MS + now % ROUND_MS) *
					       (FRAGMENTS / BURST_MS),
				       FRAGMENTS / BURST_MS, frames);
	if (now % BEAT_MS == 0)
		for (uint64_t w = 0; w < WORKERS; w++)
			send_flood_heartbeat(FIRST + w);
	if (now % 50 == 7) {
		id++;
		/* Every fourth request is fragmented itself. */
		pipeline_body_len = id % 4 == 0 ? 20000 : 4;
		pipeline_route(id, id * 100, 4, 0, NULL);
		run_peers();
	}
	for (uint32_t i = 0; i < (threads_used() == NULL ? 12 : 3); i++)
		pipeline_step();
	run_peers();
	pipeline_step();
	most_held = RTE_MAX(most_held, (uint32_t)lcores_count_held());
	/*
	 * A device of rings receives into the peers' buffers: kept fragments must leave the reserve
	 * for heartbeats.
	 */
	CU_ASSERT(pipeline_mbufs_used() <= rt->sizes.room - rt->sizes.reserve);
	expect_all_alive();
}

/* @p frames of each message; 0: the maximum of the router. */
static void run_rounds(uint32_t frames, uint32_t mbufs)
{
	const uint32_t asked = ROUNDS * ROUND_MS / 50;

	pipeline_mbufs = mbufs < PIPELINE_MBUFS ? lcores_mbufs(mbufs) : mbufs;
	pipeline_start(1);
	for (uint64_t w = 0; w < WORKERS; w++)
		CU_ASSERT_FATAL(pipeline_hello(FIRST + w, 1, "a", 1));
	pipeline_flush();
	answered = beats = acked = most_held = 0;
	for (uint32_t now = 0; now < ROUNDS * ROUND_MS; now++)
		run_millisecond(now, frames != 0 ? frames : rt->sizes.max_frames);
	for (uint32_t i = 0; i < 4; i++) {
		pipeline_turn();
		run_peers();
	}
	CU_ASSERT_EQUAL(acked, beats);
	CU_ASSERT_EQUAL(answered, asked);
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_FINISHED), asked);
	/* The flood held what its source may hold, and no more. */
	CU_ASSERT(most_held <= rt->sizes.reassembly_source + 16);
	CU_ASSERT(frames != 0 || most_held > rt->sizes.reassembly_source / 2);
	lcores_drop_messages();
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
	CU_ASSERT(pipeline_balanced());
	pipeline_stop();
	pipeline_mbufs = PIPELINE_MBUFS;
	pipeline_body_len = 4;
}

/* As first observed: larger than the router accepts, so nothing is held. */
static void one_too_large_message(void)
{
	run_rounds(FRAGMENTS + 1, 8191);
}

static void messages_of_the_largest_size(void)
{
	run_rounds(0, 8191);
	run_rounds(0, 16383);
}

static void many_small_messages(void)
{
	run_rounds(3, 8191);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(one_too_large_message),
			       KVR_CASE(messages_of_the_largest_size),
			       KVR_CASE(many_small_messages), CU_TEST_INFO_NULL};

	return kvr_test_run("fragment_flood", tests);
}
