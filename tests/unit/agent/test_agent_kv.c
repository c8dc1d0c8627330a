/* SPDX-License-Identifier: BSD-3-Clause */
/* @rule 2.2: order of KV events, gaps and dumps, as repaired by an agent. */
#include "agent_rig.h"

#define RANK 4 /* the rig acknowledges this frame */

static const struct kvr_wire_kv_events *next_events(void)
{
	const struct kvr_wire_hdr *h = fake_next(&net, KVR_KV_EVENTS);

	if (h == NULL)
		return NULL;
	CU_ASSERT_EQUAL(kvr_body_check(KVR_KV_EVENTS, kvr_frame_body(h), h->msg_len, NULL), 0);
	CU_ASSERT_EQUAL(h->source, WORKER);
	CU_ASSERT_EQUAL(h->epoch, 9);
	kv_ack_id = h->id;
	return kvr_frame_body(h);
}

static void store_blocks(uint64_t first, uint32_t n)
{
	uint64_t h[2048];

	for (uint32_t i = 0; i < n; i++)
		h[i] = first + i;
	CU_ASSERT_EQUAL(kvr_agent_kv_stored(a, RANK, &(struct kvr_agent_kv){.hashes = h, .n = n}),
			0);
}

static void events_of_many_calls_share_a_frame(void)
{
	const uint64_t h[] = {1, 2, 3};
	const struct kvr_agent_kv kv = {
		.tier = KVR_TIER_HOST, .has_parent = true, .parent = 55, .hashes = h, .n = 3};
	const struct kvr_wire_kv_events *w;
	struct kvr_kv_iter it;
	struct kvr_kv_event e = {0};
	uint64_t first;

	rig_welcomed((struct kvr_agent_conf){0});
	CU_ASSERT_EQUAL(kvr_agent_kv_stored(a, RANK, &kv), 0);
	CU_ASSERT_EQUAL(kvr_agent_kv_removed(a, RANK, &kv), 0);
	CU_ASSERT_EQUAL(kvr_agent_kv_cleared(a, RANK), 0);
	CU_ASSERT_EQUAL(kvr_agent_kv_stored(a, RANK + 1, &kv), 0);
	CU_ASSERT_EQUAL(net.n_out, 0);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_KV_EVENTS), 2); /* one per rank */
	w = next_events();
	if (w->dp_rank != RANK)
		w = next_events();
	CU_ASSERT_EQUAL(w->first_event_id, 0);
	CU_ASSERT_EQUAL_FATAL(w->n_events, 3);
	it = kvr_kv_events_begin(w);
	CU_ASSERT_FATAL(kvr_kv_events_next(&it, &e));
	CU_ASSERT_EQUAL(e.type, KVR_KV_STORED);
	CU_ASSERT_EQUAL(e.tier, 1);
	CU_ASSERT_EQUAL(e.flags, KVR_KV_EV_F_PARENT);
	CU_ASSERT_EQUAL(e.parent, 55);
	CU_ASSERT_EQUAL(e.n_blocks, 3);
	memcpy(&first, e.hashes, 8);
	CU_ASSERT_EQUAL(first, 1);
	CU_ASSERT_FATAL(kvr_kv_events_next(&it, &e));
	CU_ASSERT_EQUAL(e.type, KVR_KV_REMOVED);
	CU_ASSERT_EQUAL(e.flags, 0);
	CU_ASSERT_FATAL(kvr_kv_events_next(&it, &e));
	CU_ASSERT_EQUAL(e.type, KVR_KV_CLEARED);
	rig_stop();
}

static void long_events_are_cut_and_chained(void)
{
	const struct kvr_wire_kv_events *w;
	uint64_t expect_parent = 0, id = 0;
	uint32_t blocks = 0;

	rig_welcomed((struct kvr_agent_conf){0});
	store_blocks(1000, 1000);
	kvr_agent_process(a);
	while ((w = next_events()) != NULL) {
		struct kvr_kv_iter it = kvr_kv_events_begin(w);
		struct kvr_kv_event e;

		CU_ASSERT_EQUAL(w->first_event_id, id);
		while (kvr_kv_events_next(&it, &e)) {
			CU_ASSERT_EQUAL((e.flags & KVR_KV_EV_F_PARENT) != 0, blocks > 0);
			CU_ASSERT_EQUAL(e.parent, expect_parent);
			memcpy(&expect_parent, e.hashes + 8 * (e.n_blocks - 1), 8);
			blocks += e.n_blocks;
			id++;
		}
	}
	CU_ASSERT_EQUAL(blocks, 1000);
	CU_ASSERT_EQUAL(expect_parent, 1999);
	rig_stop();
}

static void unacknowledged_events_are_resent_after_20_ms(void)
{
	const struct kvr_wire_kv_events *w;

	rig_welcomed((struct kvr_agent_conf){0});
	store_blocks(1, 1);
	store_blocks(2, 1);
	rig_run_ms(1);
	fake_skip(&net);
	store_blocks(3, 1); /* new events are sent without waiting for retransmission */
	rig_run_ms(1);
	w = next_events();
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT_EQUAL(w->first_event_id, 2);
	push_kv_ack(1, KVR_KV_OK, 0);
	kvr_agent_process(a);
	rig_run_ms(19);
	CU_ASSERT_PTR_NULL(next_events());
	rig_run_ms(2);
	w = next_events();
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT_EQUAL(w->first_event_id, 1);
	CU_ASSERT_EQUAL(w->n_events, 2);
	push_kv_ack(3, KVR_KV_OK, 0);
	push_kv_ack(2, KVR_KV_OK, 0); /* older than the previous one */
	kvr_agent_process(a);
	fake_skip(&net);
	rig_run_ms(100);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_KV_EVENTS), 0);
	rig_stop();
}

static void a_gap_is_repaired_at_once_and_once(void)
{
	const struct kvr_wire_kv_events *w;
	struct kvr_agent_stats st;

	rig_welcomed((struct kvr_agent_conf){0});
	for (uint32_t i = 0; i < 10; i++)
		store_blocks(i, 1);
	kvr_agent_process(a);
	fake_skip(&net);
	push_kv_ack(4, KVR_KV_GAP, 0);
	push_kv_ack(4, KVR_KV_GAP, 0);
	push_kv_ack(4, KVR_KV_GAP, 0);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_KV_EVENTS), 1);
	w = next_events();
	CU_ASSERT_EQUAL(w->first_event_id, 4);
	CU_ASSERT_EQUAL(w->n_events, 6);
	/* An older answer that was overtaken, however late, and its copy. */
	push_kv_ack(10, KVR_KV_OK, 0);
	push_kv_ack(2, KVR_KV_GAP, 0);
	kvr_agent_process(a);
	rig_run_ms(90);
	push_kv_ack(2, KVR_KV_GAP, 0);
	kvr_agent_process(a);
	rig_run_ms(100);
	push_kv_ack(3, KVR_KV_GAP, 0);
	kvr_agent_process(a);
	rig_run_ms(100);
	CU_ASSERT_PTR_NULL(next_events());
	/* A router that lost state steps back, and acknowledged events are still in the ring. */
	push_rejected(KVR_E_UNKNOWN_WORKER, KVR_HEARTBEAT);
	push_welcome_epoch(ROUTER_EPOCH);
	push_kv_ack(2, KVR_KV_GAP, 0);
	kvr_agent_process(a);
	w = next_events();
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT_EQUAL(w->first_event_id, 2);
	CU_ASSERT_EQUAL(w->n_events, 8);
	kvr_agent_stats_get(a, &st);
	CU_ASSERT_EQUAL(st.kv_gaps, 2);
	CU_ASSERT_EQUAL(st.kv_dumps, 0);
	rig_stop();
}

/* A late frame of an earlier dump restarted that dump in the router, which reports what it lacks
 * until it gets it. */
static void a_step_back_of_the_router_is_accepted(void)
{
	const struct kvr_wire_kv_events *w;

	rig_welcomed((struct kvr_agent_conf){0});
	for (uint64_t i = 0; i < 5; i++)
		store_blocks(i, 1);
	kvr_agent_process(a);
	push_kv_ack(4, KVR_KV_OK, 0);
	kvr_agent_process(a);
	fake_skip(&net);
	push_kv_ack(2, KVR_KV_GAP, 0);
	kvr_agent_process(a);
	rig_run_ms(99);
	push_kv_ack(5, KVR_KV_OK, 0); /* late: events are acknowledged meanwhile */
	push_kv_ack(2, KVR_KV_GAP, 0);
	kvr_agent_process(a);
	fake_skip(&net);
	rig_run_ms(99);
	push_kv_ack(2, KVR_KV_GAP, 0);
	kvr_agent_process(a);
	CU_ASSERT_PTR_NULL(next_events());
	rig_run_ms(1);
	push_kv_ack(2, KVR_KV_GAP, 0);
	kvr_agent_process(a);
	w = next_events();
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT_EQUAL(w->first_event_id, 2);
	CU_ASSERT_EQUAL(w->n_events, 3);
	push_kv_ack(5, KVR_KV_OK, 0);
	kvr_agent_process(a);
	fake_skip(&net);
	rig_run_ms(200);
	CU_ASSERT_PTR_NULL(next_events()); /* everything is sent again */
	rig_stop();
}

static void a_busy_router_gets_a_pause(void)
{
	rig_welcomed((struct kvr_agent_conf){0});
	store_blocks(1, 1);
	kvr_agent_process(a);
	fake_skip(&net);
	push_kv_ack(0, KVR_KV_BUSY, 0);
	kvr_agent_process(a);
	rig_run_ms(19);
	CU_ASSERT_PTR_NULL(next_events());
	rig_run_ms(1);
	CU_ASSERT_PTR_NOT_NULL(next_events());
	rig_stop();
}

/* The router's queue was full: acknowledged events stay acknowledged, and there is no gap. */
static void a_full_queue_revokes_nothing(void)
{
	struct kvr_agent_stats st;

	rig_welcomed((struct kvr_agent_conf){0});
	for (uint32_t i = 0; i < 6; i++)
		store_blocks(1 + i, 1);
	kvr_agent_process(a);
	push_kv_ack(4, KVR_KV_OK, 0);
	kvr_agent_process(a);
	fake_skip(&net);
	rig_run_ms(10);
	push_kv_ack(0, KVR_KV_BUSY, 0);
	kvr_agent_process(a);
	rig_run_ms(19);
	CU_ASSERT_PTR_NULL(next_events());
	rig_run_ms(1);
	CU_ASSERT_EQUAL(next_events()->first_event_id, 4);
	rig_run_ms(5000); /* late copies have no effect */
	push_kv_ack(0, KVR_KV_BUSY, 0);
	kvr_agent_process(a);
	rig_run_ms(100);
	kvr_agent_stats_get(a, &st);
	CU_ASSERT_EQUAL(st.kv_dumps, 0);
	rig_stop();
}

static void the_window_bounds_bytes_in_flight(void)
{
	struct kvr_agent_stats st;

	rig_welcomed((struct kvr_agent_conf){.kv_ring_bytes = 4u << 20});
	for (uint32_t i = 0; i < 200; i++)
		store_blocks(i * 1000, 160);
	kvr_agent_process(a);
	CU_ASSERT(fake_count(&net, KVR_KV_EVENTS) <= AGENT_KV_WINDOW_BYTES / 1296 + 1);
	for (uint64_t id = 10; id <= 200; id += 10) {
		push_kv_ack(id, KVR_KV_OK, 0);
		kvr_agent_process(a);
	}
	CU_ASSERT_EQUAL(fake_count(&net, KVR_KV_EVENTS), 200);
	kvr_agent_stats_get(a, &st);
	CU_ASSERT_EQUAL(st.kv_resent, 0);
	rig_stop();
}

static void nothing_is_sent_before_welcome(void)
{
	rig_start_conf((struct kvr_agent_conf){0});
	store_blocks(1, 1);
	rig_run_ms(100);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_KV_EVENTS), 0);
	push_welcome_epoch(ROUTER_EPOCH);
	kvr_agent_process(a);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_KV_EVENTS), 1);
	push_kv_ack(0, KVR_KV_HELLO, 0);
	store_blocks(2, 1);
	fake_skip(&net);
	rig_run_ms(100);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_HELLO), 1);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_KV_EVENTS), 0);
	push_welcome_epoch(ROUTER_EPOCH);
	fake_skip(&net);
	rig_run_ms(2);
	CU_ASSERT_EQUAL(next_events()->n_events,
			2); /* both, from the first unacknowledged event on */
	rig_stop();
}

/* --- dumps --- */

/* Receive all new frames of a dump and acknowledge each. @return the number of blocks. */
static uint32_t take_dump(uint64_t *pos, uint64_t *resume, uint64_t stop_at)
{
	const struct kvr_wire_kv_events *w;
	uint32_t blocks = 0;

	while (*pos < stop_at && (w = next_events()) != NULL) {
		struct kvr_kv_iter it = kvr_kv_events_begin(w);
		struct kvr_kv_event e;

		if (!(w->flags & KVR_KV_F_DUMP)) {
			net.seen--; /* back to live events, for the caller */
			break;
		}
		if (w->first_event_id != *pos)
			continue;
		while (kvr_kv_events_next(&it, &e))
			blocks += e.n_blocks;
		++*pos;
		if (w->flags & KVR_KV_F_DUMP_END)
			*resume = w->resume_event_id;
		push_kv_ack(0, KVR_KV_OK, *pos);
		kvr_agent_process(a);
	}
	return blocks;
}

static void a_requested_dump_is_complete_and_followed_by_events(void)
{
	uint64_t pos = 0, resume = 0;
	const struct kvr_wire_kv_events *w;
	uint32_t blocks;

	rig_welcomed((struct kvr_agent_conf){0});
	saw.dump_runs = 50;
	saw.dump_blocks = 300;
	store_blocks(1, 1);
	store_blocks(2, 1);
	kvr_agent_process(a);
	push_kv_ack(0, KVR_KV_DUMP_WANTED, 0);
	push_kv_ack(0, KVR_KV_DUMP_WANTED, 0); /* retransmitted until it begins */
	fake_skip(&net);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dumps, 1);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_KV_EVENTS), AGENT_DUMP_WINDOW);
	store_blocks(3, 1); /* happens meanwhile: follows the dump */
	blocks = take_dump(&pos, &resume, UINT64_MAX);
	CU_ASSERT_EQUAL(blocks, 50 * 300);
	CU_ASSERT_EQUAL(resume, 2);
	w = next_events();
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT_EQUAL(w->flags, 0);
	CU_ASSERT_EQUAL(w->first_event_id, 2);
	CU_ASSERT_EQUAL(w->n_events, 1);
	CU_ASSERT_EQUAL(saw.dumps, 1);
	rig_stop();
}

/* A previous process had the same epoch: the router must drop its events. */
static void an_acknowledgement_from_the_future_leads_to_a_dump(void)
{
	const struct kvr_wire_kv_events *w;

	rig_welcomed((struct kvr_agent_conf){0});
	store_blocks(1, 1);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_KV_EVENTS), 1);
	fake_skip(&net);
	push_kv_ack(9, KVR_KV_OK, 0);
	kvr_agent_process(a);
	rig_run_ms(1);
	w = next_events();
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT_NOT_EQUAL(w->flags & KVR_KV_F_DUMP_BEGIN, 0);
	rig_stop();
}

static void lost_dump_frames_are_resent(void)
{
	uint64_t pos = 0, resume = UINT64_MAX;
	uint32_t blocks = 0;

	rig_welcomed((struct kvr_agent_conf){0});
	saw.dump_runs = 10;
	saw.dump_blocks = 300;
	push_kv_ack(0, KVR_KV_DUMP_WANTED, 0);
	kvr_agent_process(a);
	blocks += take_dump(&pos, &resume, 5);
	fake_skip(&net); /* all other frames are lost */
	rig_run_ms(19);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_KV_EVENTS), 0);
	rig_run_ms(2);
	blocks += take_dump(&pos, &resume, UINT64_MAX);
	CU_ASSERT_EQUAL(blocks, 3000);
	CU_ASSERT_EQUAL(resume, 0);
	fake_skip(&net);
	rig_run_ms(200);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_KV_EVENTS), 0); /* the dump has ended */
	rig_stop();
}

/* DUMP_WANTED names the frame that it answers; 0 is unsolicited. */
static void dump_wanted_of_another_dump_is_ignored(void)
{
	uint64_t pos = 0, resume = 0, first;

	rig_welcomed((struct kvr_agent_conf){0});
	saw.dump_runs = 10;
	saw.dump_blocks = 300;
	push_kv_ack(0, KVR_KV_DUMP_WANTED, 0);
	kvr_agent_process(a);
	take_dump(&pos, &resume, 5);
	CU_ASSERT(kv_ack_id > AGENT_DUMP_ID);
	first = kv_ack_id;
	push_kv_ack(0, KVR_KV_DUMP_WANTED, 5); /* of this dump: it continues */
	kv_ack_id = first - 1;
	push_kv_ack(0, KVR_KV_DUMP_WANTED, 0); /* of a previous dump */
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dumps, 1);
	take_dump(&pos, &resume, UINT64_MAX);
	kv_ack_id = first; /* late, after its end */
	push_kv_ack(0, KVR_KV_DUMP_WANTED, 0);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dumps, 1);
	kv_ack_id = 0; /* unsolicited */
	push_kv_ack(0, KVR_KV_DUMP_WANTED, 0);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dumps, 2);
	rig_stop();
}

/*
 * The router has completed an earlier dump and is still freeing it. It defers the first frame of
 * this dump, and answers the second with "none received". Its next event is the one at which this
 * dump ends, yet the dump is not complete.
 */
static void a_dump_that_has_not_begun_does_not_end(void)
{
	uint64_t pos = 0, resume = UINT64_MAX;

	rig_welcomed((struct kvr_agent_conf){0});
	saw.dump_runs = 3;
	saw.dump_blocks = 300;
	store_blocks(1, 1);
	kvr_agent_process(a);
	push_kv_ack(0, KVR_KV_DUMP_WANTED, 0);
	kvr_agent_process(a);
	while (next_events() != NULL) /* its id and all its frames */
		continue;
	CU_ASSERT(kv_ack_id > AGENT_DUMP_ID);
	push_kv_ack(1, KVR_KV_BUSY, 0);
	push_kv_ack(1, KVR_KV_OK, 0);
	kvr_agent_process(a);
	rig_run_ms(50);
	CU_ASSERT_EQUAL(take_dump(&pos, &resume, UINT64_MAX), 900);
	CU_ASSERT_EQUAL(resume, 1);
	CU_ASSERT_EQUAL(saw.dumps, 1);
	rig_stop();
}

/*
 * A late first frame of an earlier dump restarted that dump in the router, which lost its position
 * in this one and repeats that in every answer.
 */
static void a_router_that_lost_its_position_is_accepted(void)
{
	const struct kvr_wire_kv_events *w;
	uint64_t pos = 0, resume = UINT64_MAX;
	uint32_t ms = 0;

	rig_welcomed((struct kvr_agent_conf){0});
	saw.dump_runs = 10;
	saw.dump_blocks = 300;
	push_kv_ack(0, KVR_KV_DUMP_WANTED, 0);
	kvr_agent_process(a);
	take_dump(&pos, &resume, 5);
	CU_ASSERT_EQUAL(pos, 5);
	fake_skip(&net);
	for (w = NULL; ms < 2000 && (w == NULL || w->first_event_id != 0); ms++) {
		rig_run_ms(1);
		while ((w = next_events()) != NULL && w->first_event_id != 0)
			push_kv_ack(0, KVR_KV_DUMP_WANTED, 0);
	}
	CU_ASSERT(ms >= 100 && ms < 400);
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT_NOT_EQUAL(w->flags & KVR_KV_F_DUMP_BEGIN, 0);
	CU_ASSERT_EQUAL(saw.dumps, 1);
	rig_stop();
}

/* Acknowledgements of a running dump may be late, and a full queue moves nothing back. */
static void a_slow_router_has_not_lost_its_position(void)
{
	const struct kvr_wire_kv_events *w;
	uint64_t pos = 0, resume = UINT64_MAX;

	rig_welcomed((struct kvr_agent_conf){0});
	saw.dump_runs = 10;
	saw.dump_blocks = 300;
	push_kv_ack(0, KVR_KV_DUMP_WANTED, 0);
	kvr_agent_process(a);
	rig_run_ms(150);
	take_dump(&pos, &resume, 5);
	push_kv_ack(0, KVR_KV_OK, 3);
	kvr_agent_process(a);
	fake_skip(&net);
	rig_run_ms(90);
	push_kv_ack(0, KVR_KV_OK, 3);
	kvr_agent_process(a);
	rig_run_ms(20);
	push_kv_ack(0, KVR_KV_BUSY, 0);
	kvr_agent_process(a);
	rig_run_ms(100);
	for (w = next_events(); w != NULL; w = next_events())
		CU_ASSERT(w->first_event_id >= 5);
	rig_stop();
}

static void an_empty_cache_is_one_frame(void)
{
	const struct kvr_wire_kv_events *w;

	rig_welcomed((struct kvr_agent_conf){0});
	push_kv_ack(0, KVR_KV_DUMP_WANTED, 0);
	kvr_agent_process(a);
	w = next_events();
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT_EQUAL(w->flags, KVR_KV_F_DUMP_BEGIN | KVR_KV_F_DUMP | KVR_KV_F_DUMP_END);
	CU_ASSERT_EQUAL(w->n_events, 0);
	CU_ASSERT_PTR_NULL(next_events());
	push_kv_ack(0, KVR_KV_OK, 1);
	kvr_agent_process(a);
	rig_run_ms(100);
	CU_ASSERT_PTR_NULL(next_events());
	rig_stop();
}

static void an_overrun_ring_leads_to_a_dump(void)
{
	uint64_t pos = 0, resume = 0;
	struct kvr_agent_stats st;

	rig_start_conf((struct kvr_agent_conf){.kv_ring_bytes = 65536});
	saw.dump_runs = 1;
	saw.dump_blocks = 7;
	for (uint32_t i = 0; i < 100; i++)
		store_blocks(i * 1000, 160); /* no router yet */
	kvr_agent_stats_get(a, &st);
	CU_ASSERT_EQUAL(st.kv_overruns, 1);
	kvr_agent_process(a);
	push_welcome_epoch(ROUTER_EPOCH);
	rig_run_ms(2);
	CU_ASSERT_EQUAL(saw.dumps, 1);
	CU_ASSERT_EQUAL(take_dump(&pos, &resume, UINT64_MAX), 7);
	CU_ASSERT_EQUAL(resume, 100);
	store_blocks(1, 1);
	fake_skip(&net);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(next_events()->first_event_id, 100);
	rig_stop();
}

static void acknowledged_events_free_space(void)
{
	struct kvr_agent_stats st;

	rig_welcomed((struct kvr_agent_conf){.kv_ring_bytes = 65536});
	for (uint64_t i = 0; i < 500; i++) {
		store_blocks(i * 1000, 160);
		kvr_agent_process(a);
		push_kv_ack(i + 1, KVR_KV_OK, 0);
		kvr_agent_process(a);
		fake_skip(&net);
	}
	kvr_agent_stats_get(a, &st);
	CU_ASSERT_EQUAL(st.kv_overruns, 0);
	CU_ASSERT_EQUAL(st.kv_events, 500);
	/* A gap in dropped events requires a dump. */
	push_rejected(KVR_E_UNKNOWN_WORKER, KVR_HEARTBEAT);
	push_welcome_epoch(ROUTER_EPOCH);
	push_kv_ack(100, KVR_KV_GAP, 0);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dumps, 1);
	rig_stop();
}

static void waiting_bytes_include_unacknowledged_events(void)
{
	const uint64_t each = sizeof(struct kvr_wire_kv_event) + 160 * 8;

	rig_start_conf((struct kvr_agent_conf){.kv_ring_bytes = 65536});
	store_blocks(0, 160);
	CU_ASSERT_EQUAL(kvr_agent_kv_waiting(a, RANK), 0); /* no router to receive them */
	kvr_agent_process(a);
	push_welcome_epoch(ROUTER_EPOCH);
	rig_run_ms(2);
	CU_ASSERT_EQUAL(kvr_agent_kv_waiting(a, RANK), each);
	for (uint64_t i = 1; i < 200; i++) { /* several times around the ring */
		store_blocks(i * 1000, 160);
		CU_ASSERT(kvr_agent_kv_waiting(a, RANK) >= 2 * each);
		CU_ASSERT(kvr_agent_kv_waiting(a, RANK) <
			  3 * each + 1); /* the ring's end may lie in between */
		kvr_agent_process(a);
		push_kv_ack(i, KVR_KV_OK, 0);
		kvr_agent_process(a);
		fake_skip(&net);
		CU_ASSERT(kvr_agent_kv_waiting(a, RANK) >= each);
	}
	push_kv_ack(200, KVR_KV_OK, 0);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(kvr_agent_kv_waiting(a, RANK), 0);
	CU_ASSERT_EQUAL(kvr_agent_kv_waiting(a, RANK + 1), 0);
	CU_ASSERT_EQUAL(kvr_agent_kv_waiting(a, RANK + 100), 0); /* unknown rank */
	rig_stop();
}

static void waiting_events_follow_a_dump(void)
{
	const uint64_t each = sizeof(struct kvr_wire_kv_event) + 160 * 8;
	uint64_t pos = 0, resume = 0, behind;

	rig_welcomed((struct kvr_agent_conf){.kv_ring_bytes = 65536});
	saw.dump_runs = 1;
	saw.dump_blocks = 7;
	while (kvr_agent_kv_waiting(a, RANK) < 32768)
		store_blocks(1, 160);
	for (unsigned int i = 0; i < 50; i++)
		store_blocks(1, 160);
	CU_ASSERT_EQUAL(kvr_agent_kv_waiting(a, RANK), 0); /* a dump is due */
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(kvr_agent_kv_waiting(a, RANK), 0);
	store_blocks(1, 160);
	behind = kvr_agent_kv_waiting(a, RANK); /* it waits, and the ring may end before it */
	CU_ASSERT(behind >= each && behind < 2 * each);
	CU_ASSERT_EQUAL(take_dump(&pos, &resume, UINT64_MAX), 7);
	CU_ASSERT_EQUAL(kvr_agent_kv_waiting(a, RANK), behind);
	push_kv_ack(resume + 1, KVR_KV_OK, 0);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(kvr_agent_kv_waiting(a, RANK), 0);
	store_blocks(1, 160);
	kvr_agent_goodbye(a);
	CU_ASSERT_EQUAL(kvr_agent_kv_waiting(a, RANK), 0); /* it will never be sent */
	rig_stop();
}

static void a_new_epoch_of_the_router_gets_a_dump(void)
{
	rig_welcomed((struct kvr_agent_conf){0});
	saw.dump_runs = 1;
	saw.dump_blocks = 3;
	store_blocks(1, 3);
	kvr_agent_process(a);
	push_kv_ack(1, KVR_KV_OK, 0);
	push_rejected(KVR_E_UNKNOWN_WORKER, KVR_HEARTBEAT);
	push_welcome_epoch(ROUTER_EPOCH + 1);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dumps, 1);
	rig_stop();
}

/* A router that restored a snapshot: events continue where it states. */
static void a_warm_router_gets_no_dump(void)
{
	const struct kvr_wire_kv_events *w;

	rig_welcomed((struct kvr_agent_conf){0});
	saw.dump_runs = 1;
	saw.dump_blocks = 3;
	store_blocks(1, 3);
	store_blocks(4, 3);
	kvr_agent_process(a);
	push_kv_ack(2, KVR_KV_OK, 0);
	push_rejected(KVR_E_UNKNOWN_WORKER, KVR_HEARTBEAT);
	push_welcome(ROUTER_EPOCH + 1, KVR_WELCOME_F_WARM);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dumps, 0);
	while (next_events() != NULL)
		;
	push_kv_ack(2, KVR_KV_OK, 0); /* late: state of the previous epoch */
	kv_ack_epoch = ROUTER_EPOCH + 1;
	push_kv_ack(1, KVR_KV_GAP, 0); /* its snapshot is older than the second event */
	kvr_agent_process(a);
	w = next_events();
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT(w->first_event_id == 1 && w->n_events == 1 && w->flags == 0);
	CU_ASSERT_EQUAL(saw.dumps, 0);
	kv_ack_epoch = ROUTER_EPOCH;
	rig_stop();
}

/* HELLO is sent on demand of an epoch that has not sent WELCOME, but not of a previous epoch. */
static void an_unknown_epoch_may_demand_hello(void)
{
	rig_welcomed((struct kvr_agent_conf){0});
	push_rejected(KVR_E_UNKNOWN_WORKER, KVR_HEARTBEAT);
	push_welcome_epoch(ROUTER_EPOCH + 1);
	kvr_agent_process(a);
	rig_run_ms(AGENT_AGAIN_US / 1000);
	fake_skip(&net);
	push_kv_ack(0, KVR_KV_HELLO, 0); /* late, of the previous epoch */
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_HELLO), 0);
	kv_ack_epoch = ROUTER_EPOCH + 2;
	push_kv_ack(0, KVR_KV_DUMP_WANTED, 0); /* it cannot need anything yet */
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dumps, 0);
	push_kv_ack(0, KVR_KV_HELLO, 0);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_HELLO), 1);
	kv_ack_epoch = ROUTER_EPOCH;
	rig_stop();
}

/* The router restored events of a previous process. */
static void a_new_process_dumps_to_a_warm_router(void)
{
	uint64_t pos = 0, resume = 0;

	rig_start_conf((struct kvr_agent_conf){0});
	saw.dump_runs = 1;
	saw.dump_blocks = 3;
	kvr_agent_process(a);
	push_welcome(ROUTER_EPOCH, KVR_WELCOME_F_WARM);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dumps, 2); /* both ranks */
	CU_ASSERT(take_dump(&pos, &resume, UINT64_MAX) >= 3);
	rig_stop();
}

/* A router with smaller frames appears during a dump, before any event. */
static void a_dump_fits_the_frames_of_its_router(void)
{
	rig_start_conf((struct kvr_agent_conf){0});
	saw.dump_runs = 10;
	saw.dump_blocks = 300;
	kvr_agent_process(a);
	push_welcome(ROUTER_EPOCH, KVR_WELCOME_F_WARM);
	kvr_agent_process(a);
	push_rejected(KVR_E_UNKNOWN_WORKER, KVR_HEARTBEAT);
	welcome_frame = 600;
	push_welcome_epoch(ROUTER_EPOCH + 1);
	welcome_frame = 1432;
	fake_skip(&net);
	rig_run_ms(50);
	CU_ASSERT(fake_count(&net, KVR_KV_EVENTS) > 0);
	for (unsigned int i = 0; i < net.n_out; i++)
		CU_ASSERT(net.out[i].len <= 600);
	rig_stop();
}

static void invalid_arguments_are_errors(void)
{
	const uint64_t h = 1;
	struct kvr_agent_kv kv = {.hashes = &h, .n = 1};

	rig_welcomed((struct kvr_agent_conf){0});
	CU_ASSERT_EQUAL(kvr_agent_kv_stored(a, 3, &kv), -EINVAL);
	CU_ASSERT_EQUAL(kvr_agent_kv_stored(a, 6, &kv), -EINVAL);
	CU_ASSERT_EQUAL(kvr_agent_kv_cleared(a, 6), -EINVAL);
	kv.tier = (enum kvr_tier)4;
	CU_ASSERT_EQUAL(kvr_agent_kv_stored(a, 4, &kv), -EINVAL);
	kv = (struct kvr_agent_kv){.n = 0};
	CU_ASSERT_EQUAL(kvr_agent_kv_stored(a, 4, &kv), -EINVAL);
	CU_ASSERT_EQUAL(kvr_agent_kv_removed(a, 4, &kv), -EINVAL);
	rig_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(events_of_many_calls_share_a_frame),
			       KVR_CASE(long_events_are_cut_and_chained),
			       KVR_CASE(unacknowledged_events_are_resent_after_20_ms),
			       KVR_CASE(a_gap_is_repaired_at_once_and_once),
			       KVR_CASE(a_busy_router_gets_a_pause),
			       KVR_CASE(a_full_queue_revokes_nothing),
			       KVR_CASE(the_window_bounds_bytes_in_flight),
			       KVR_CASE(nothing_is_sent_before_welcome),
			       KVR_CASE(a_step_back_of_the_router_is_accepted),
			       KVR_CASE(a_requested_dump_is_complete_and_followed_by_events),
			       KVR_CASE(lost_dump_frames_are_resent),
			       KVR_CASE(an_acknowledgement_from_the_future_leads_to_a_dump),
			       KVR_CASE(dump_wanted_of_another_dump_is_ignored),
			       KVR_CASE(a_dump_that_has_not_begun_does_not_end),
			       KVR_CASE(a_router_that_lost_its_position_is_accepted),
			       KVR_CASE(a_slow_router_has_not_lost_its_position),
			       KVR_CASE(an_empty_cache_is_one_frame),
			       KVR_CASE(an_overrun_ring_leads_to_a_dump),
			       KVR_CASE(acknowledged_events_free_space),
			       KVR_CASE(waiting_bytes_include_unacknowledged_events),
			       KVR_CASE(waiting_events_follow_a_dump),
			       KVR_CASE(a_new_epoch_of_the_router_gets_a_dump),
			       KVR_CASE(a_warm_router_gets_no_dump),
			       KVR_CASE(an_unknown_epoch_may_demand_hello),
			       KVR_CASE(a_new_process_dumps_to_a_warm_router),
			       KVR_CASE(a_dump_fits_the_frames_of_its_router),
			       KVR_CASE(invalid_arguments_are_errors),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("agent_kv", tests);
}
