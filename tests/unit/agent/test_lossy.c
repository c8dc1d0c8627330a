/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Client, router rules and agent on a simulated network that loses, repeats and delays frames.
 * Virtual time with a seed: a failure repeats with its seed.
 */
#include "ends.h"
#include "lossy_net.h"
#include "relay.h"

static struct end client_end, agent_end;
static struct kvr_udp_addr router_at;
static struct relay relay;

static void relay_emit(void *ctx, const struct kvr_udp_addr *to, const void *frame, uint32_t len)
{
	net_send(&router_at, to, frame, len);
}

static void start_ends(uint64_t seed, uint32_t loss, uint32_t dup, uint32_t max_delay_us)
{
	static const struct kvr_client_conf cc = {.max_requests = 4096, .silence_ms = 60000};
	static const struct kvr_agent_conf ac = {.worker = 5,
						 .pool = "pool",
						 .block_size = 16,
						 .epoch = 3,
						 .kv_ring_bytes = 65536,
						 .ops = &ends_agent_ops};

	memset(&ends, 0, sizeof(ends));
	memset(&relay, 0, sizeof(relay));
	net_start(seed, loss, dup, max_delay_us);
	router_at = net_addr(1, 7650);
	client_end.at = net_addr(2, 1000);
	agent_end.at = net_addr(3, 2000);
	client_end.udp = (struct kvr_udp){&end_io, &client_end};
	agent_end.udp = (struct kvr_udp){&end_io, &agent_end};
	relay.emit = relay_emit;
	relay.epoch = 100;
	ends.client = kvr_client__create_on(&cc, &router_at, &client_end.udp);
	ends.agent = kvr_agent__create_on(&ac, &router_at, &agent_end.udp);
	CU_ASSERT_FATAL(ends.client != NULL && ends.agent != NULL);
}

static void stop_ends(void)
{
	kvr_client_destroy(ends.client);
	kvr_agent_destroy(ends.agent);
	net_stop();
}

static void run_turn(uint64_t us)
{
	struct flight f;

	wire.now_us += us;
	while (net_receive(&router_at, &f)) {
		relay_frame(&relay, &f.from, f.data, f.len);
		free(f.data);
	}
	relay_timers(&relay, wire.now_us);
	kvr_agent_process(ends.agent);
	ends_engine();
	kvr_agent_process(ends.agent);
	kvr_client_process(ends.client);
}

static void run_ms(uint32_t ms)
{
	for (uint32_t i = 0; i < 4 * ms; i++)
		run_turn(250);
}

static void until_registered(void)
{
	for (uint32_t i = 0; i < 40000 && kvr_agent_state_now(ends.agent) != KVR_AGENT_SERVING; i++)
		run_turn(250);
	CU_ASSERT_EQUAL_FATAL(kvr_agent_state_now(ends.agent), KVR_AGENT_SERVING);
}

/* Change the engine's cache a little, and publish the change. */
static void change_cache(uint32_t steps)
{
	for (uint32_t s = 0; s < steps; s++) {
		const uint32_t first = kvr_rand_below(&wire.rnd, 60000);
		const uint32_t n = 1 + kvr_rand_below(&wire.rnd, 300);
		const bool drop = kvr_rand_below(&wire.rnd, 3) == 0;
		uint64_t h[301];
		struct kvr_agent_kv kv = {.hashes = h, .n = n};

		for (uint32_t i = 0; i < n; i++) {
			h[i] = first + i;
			ends.cache[first + i] = !drop;
		}
		CU_ASSERT_EQUAL(drop ? kvr_agent_kv_removed(ends.agent, 0, &kv)
				     : kvr_agent_kv_stored(ends.agent, 0, &kv),
				0);
	}
}

static void finish_all(uint32_t limit_ms)
{
	for (uint32_t i = 0; i < limit_ms && ends.ended < ends.n; i++)
		run_ms(1);
	CU_ASSERT_EQUAL(ends.ended, ends.n);
	ends_check();
}

/* Requests of all sizes on both paths: all finish, each runs once. */
static void run_mixed_requests(uint64_t seed, uint32_t loss, uint32_t dup, uint32_t delay_us,
			       bool slow)
{
	start_ends(seed, loss, dup, delay_us);
	ends.slow = slow;
	until_registered();
	for (uint32_t i = 0; i < 200; i++) {
		ends_submit(i % 40 == 7 ? 20000 : 1 + kvr_rand_below(&wire.rnd, 900),
			    1 + kvr_rand_below(&wire.rnd, i % 20 == 3 ? 200 : 20),
			    i % 25 == 5 ? 5000 : kvr_rand_below(&wire.rnd, 1000),
			    i % 3 == 0 ? KVR_CLIENT_DIRECT : 0);
		change_cache(2);
		run_ms(2);
	}
	finish_all(120000);
	CU_ASSERT_EQUAL(ends.by_reason[KVR_CLIENT_FINISHED], ends.n);
	for (uint32_t i = 0; i < ends.n; i++)
		CU_ASSERT_EQUAL(ends.req[i].runs, 1);
	run_ms(12000);
	CU_ASSERT_EQUAL(kvr_agent_running(ends.agent), 0);
	CU_ASSERT_EQUAL(memcmp(relay.held[0], ends.cache, sizeof(ends.cache)), 0);
	stop_ends();
}

static void a_perfect_network_needs_no_retransmission(void)
{
	struct kvr_client_stats cs;
	struct kvr_agent_stats as;

	start_ends(1, 0, 0, 0);
	until_registered();
	for (uint32_t i = 0; i < 100; i++)
		ends_submit(100, 10, 50, i % 2 ? KVR_CLIENT_DIRECT : 0);
	change_cache(50);
	finish_all(100);
	run_ms(100);
	kvr_client_stats_get(ends.client, &cs);
	kvr_agent_stats_get(ends.agent, &as);
	CU_ASSERT_EQUAL(cs.resent + cs.items_repeated + cs.restarted + cs.frames_bad, 0);
	CU_ASSERT_EQUAL(as.items_resent + as.kv_resent + as.duplicates + as.frames_bad, 0);
	CU_ASSERT_EQUAL(as.finished, 100);
	CU_ASSERT_EQUAL(kvr_agent_running(ends.agent), 0);
	stop_ends();
}

static void everything_arrives_over_a_lossy_network(void)
{
	for (uint64_t seed = 1; seed <= 5; seed++)
		run_mixed_requests(seed, 50, 30, 2000, false);
}

static void everything_arrives_over_a_terrible_network(void)
{
	run_mixed_requests(11, 250, 100, 30000, false);
}

static void slow_answers_survive_losses(void)
{
	run_mixed_requests(21, 100, 50, 5000, true);
}

/* Send a prompt of 200,000 tokens, 800 kB in 579 frames. @return the number of frames sent by the
 * client. */
static uint64_t large_prompt(uint64_t seed, uint32_t loss)
{
	struct kvr_client_stats before, after;

	start_ends(seed, 0, 0, 2000);
	until_registered();
	wire.loss = loss;
	kvr_client_stats_get(ends.client, &before);
	ends_submit(200000, 3, 0, 0);
	finish_all(60000);
	CU_ASSERT_EQUAL(ends.by_reason[KVR_CLIENT_FINISHED], 1);
	CU_ASSERT_EQUAL(ends.req[0].runs, 1);
	kvr_client_stats_get(ends.client, &after);
	stop_ends();
	return after.frames_sent - before.frames_sent;
}

/* Only lost frames are retransmitted, by the client, on demand of the router or the agent. */
static void large_prompts_survive_losses(void)
{
	const uint64_t whole = 579;

	CU_ASSERT(large_prompt(61, 0) < whole + 8);
	for (uint64_t seed = 62; seed < 67; seed++) {
		/* Two hops with 10 % loss each: 1 / 0.81 copies are needed. */
		CU_ASSERT(large_prompt(seed, 100) < whole * 130 / 100);
		/* 50 % loss each: 4 copies. */
		CU_ASSERT(large_prompt(seed, 500) < whole * 5);
	}
}

static void rejections_reach_the_client(void)
{
	start_ends(31, 100, 50, 3000);
	until_registered();
	for (uint32_t i = 0; i < 50; i++)
		ends_submit(10, 0, 0, 0);
	finish_all(60000);
	/* Reported or, if the report was lost, detected by probing. */
	CU_ASSERT_EQUAL(ends.by_reason[KVR_CLIENT_REJECTED] + ends.by_reason[KVR_CLIENT_LOST], 50);
	CU_ASSERT(ends.by_reason[KVR_CLIENT_REJECTED] >= 35);
	stop_ends();
}

static void cancelled_requests_end_on_both_sides(void)
{
	start_ends(41, 100, 50, 3000);
	ends.slow = true;
	until_registered();
	for (uint32_t i = 0; i < 100; i++)
		ends_submit(10, 4000, 100, i % 2 ? KVR_CLIENT_DIRECT : 0);
	run_ms(50);
	for (uint32_t i = 0; i < ends.n; i++)
		CU_ASSERT_EQUAL(kvr_client_cancel(ends.client, ends.req[i].id), 0);
	finish_all(60000);
	CU_ASSERT_EQUAL(ends.by_reason[KVR_CLIENT_CANCELLED], 100);
	run_ms(25000);
	CU_ASSERT_EQUAL(kvr_agent_running(ends.agent), 0);
	stop_ends();
}

/* Running requests are lost or done, others start over, and the cache is dumped again. */
static void a_restarted_router_recovers(void)
{
	start_ends(51, 30, 10, 2000);
	ends.slow = true;
	until_registered();
	for (uint32_t round = 0; round < 3; round++) {
		change_cache(100);
		for (uint32_t i = 0; i < 60; i++)
			ends_submit(50, 1 + i % 40, 20, i % 2 ? KVR_CLIENT_DIRECT : 0);
		run_ms(4);
		relay_restart(&relay);
		run_ms(1000);
	}
	finish_all(120000);
	CU_ASSERT_EQUAL(ends.by_reason[KVR_CLIENT_FINISHED] + ends.by_reason[KVR_CLIENT_LOST] +
				ends.by_reason[KVR_CLIENT_REJECTED],
			ends.n);
	CU_ASSERT(ends.by_reason[KVR_CLIENT_FINISHED] > 20);
	for (uint32_t i = 1; i < ends.n; i += 2) /* DIRECT: begun answers finish */
		CU_ASSERT(ends.req[i].end.reason == KVR_CLIENT_FINISHED ||
			  (ends.req[i].end.reason == KVR_CLIENT_REJECTED &&
			   ends.req[i].end.items == 0));
	/* Afterwards everything works as before. */
	ends_submit(50, 5, 20, 0);
	finish_all(60000);
	CU_ASSERT_EQUAL(ends.req[ends.n - 1].end.reason, KVR_CLIENT_FINISHED);
	run_ms(12000);
	CU_ASSERT_EQUAL(kvr_agent_running(ends.agent), 0);
	CU_ASSERT_EQUAL(memcmp(relay.held[0], ends.cache, sizeof(ends.cache)), 0);
	stop_ends();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_perfect_network_needs_no_retransmission),
			       KVR_CASE(everything_arrives_over_a_lossy_network),
			       KVR_CASE(everything_arrives_over_a_terrible_network),
			       KVR_CASE(slow_answers_survive_losses),
			       KVR_CASE(large_prompts_survive_losses),
			       KVR_CASE(rejections_reach_the_client),
			       KVR_CASE(cancelled_requests_end_on_both_sides),
			       KVR_CASE(a_restarted_router_recovers),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("lossy", tests);
}
