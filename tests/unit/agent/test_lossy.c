/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Client, router's rules and agent on a simulated network that loses, repeats and delays frames.
 * Virtual time, seeded: a failure repeats with its seed.
 */
#include "ends.h"
#include "relay.h"

#include <stdlib.h>

#define FLIGHTS 65536

struct flight {
	uint64_t at_us;
	struct kvr_udp_addr from, to;
	uint32_t len;
	uint8_t *data;
};

/* The network; one object for all ends. */
static struct {
	uint64_t now_us;
	struct kvr_rand rnd;
	uint32_t loss, dup; /* per 1,000 */
	uint32_t max_delay_us;
	struct flight f[FLIGHTS];
	uint32_t n;
} wire;

struct end {
	struct kvr_udp_addr at;
	struct kvr_udp udp;
	_Alignas(64) uint8_t rx[KVR_UDP_BURST][2048];
};

static struct end client_end, agent_end;
static struct kvr_udp_addr router_at;
static struct relay relay;

static void put_flight(const struct kvr_udp_addr *from, const struct kvr_udp_addr *to,
		       const void *data, uint32_t len)
{
	struct flight *f = &wire.f[wire.n++];

	CU_ASSERT_FATAL(wire.n < FLIGHTS && len <= 2048);
	*f = (struct flight){.at_us = wire.now_us + 20 +
				      kvr_rand_below(&wire.rnd, wire.max_delay_us + 1),
			     .from = *from,
			     .to = *to,
			     .len = len};
	f->data = aligned_alloc(64, 2048);
	CU_ASSERT_PTR_NOT_NULL_FATAL(f->data);
	memcpy(f->data, data, len);
}

static void fly(const struct kvr_udp_addr *from, const struct kvr_udp_addr *to, const void *data,
		uint32_t len)
{
	if (kvr_rand_below(&wire.rnd, 1000) < wire.loss)
		return;
	put_flight(from, to, data, len);
	if (kvr_rand_below(&wire.rnd, 1000) < wire.dup)
		put_flight(from, to, data, len);
}

static unsigned int end_send(void *ctx, const struct kvr_udp_msg m[], unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		fly(&((struct end *)ctx)->at, &m[i].addr, m[i].data, m[i].len);
	return n;
}

/* Take a frame that has arrived at @p at out of the air; any order, delays are random anyway. */
static bool land(const struct kvr_udp_addr *at, struct flight *out)
{
	for (uint32_t i = 0; i < wire.n; i++) {
		if (wire.f[i].at_us <= wire.now_us && kvr_udp_addr_equal(&wire.f[i].to, at)) {
			*out = wire.f[i];
			wire.f[i] = wire.f[--wire.n];
			return true;
		}
	}
	return false;
}

static unsigned int end_recv(void *ctx, struct kvr_udp_msg m[], unsigned int n)
{
	struct end *e = ctx;
	struct flight f;
	unsigned int i;

	for (i = 0; i < n && land(&e->at, &f); i++) {
		memcpy(e->rx[i], f.data, f.len);
		free(f.data);
		m[i] = (struct kvr_udp_msg){f.from, e->rx[i], f.len};
	}
	return i;
}

static uint64_t end_now(void *ctx)
{
	return wire.now_us;
}

static int end_fd(void *ctx)
{
	return -1;
}

static void end_close(void *ctx)
{
}

static const struct kvr_udp_io end_io = {end_send, end_recv, end_now, end_fd, end_close};

static void relay_emit(void *ctx, const struct kvr_udp_addr *to, const void *frame, uint32_t len)
{
	fly(&router_at, to, frame, len);
}

static void start(uint64_t seed, uint32_t loss, uint32_t dup, uint32_t max_delay_us)
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
	wire.now_us = 1000000;
	wire.n = 0;
	wire.loss = loss;
	wire.dup = dup;
	wire.max_delay_us = max_delay_us;
	kvr_rand_init(&wire.rnd, seed);
	router_at = (struct kvr_udp_addr){.ip = {[15] = 1}, .port = 7650};
	client_end.at = (struct kvr_udp_addr){.ip = {[15] = 2}, .port = 1000};
	agent_end.at = (struct kvr_udp_addr){.ip = {[15] = 3}, .port = 2000};
	client_end.udp = (struct kvr_udp){&end_io, &client_end};
	agent_end.udp = (struct kvr_udp){&end_io, &agent_end};
	relay.emit = relay_emit;
	relay.epoch = 100;
	ends.client = kvr_client__create_on(&cc, &router_at, &client_end.udp);
	ends.agent = kvr_agent__create_on(&ac, &router_at, &agent_end.udp);
	CU_ASSERT_FATAL(ends.client != NULL && ends.agent != NULL);
}

static void stop(void)
{
	kvr_client_destroy(ends.client);
	kvr_agent_destroy(ends.agent);
	while (wire.n > 0)
		free(wire.f[--wire.n].data);
}

static void turn(uint64_t us)
{
	struct flight f;

	wire.now_us += us;
	while (land(&router_at, &f)) {
		relay_frame(&relay, &f.from, f.data, f.len);
		free(f.data);
	}
	kvr_agent_process(ends.agent);
	ends_engine();
	kvr_agent_process(ends.agent);
	kvr_client_process(ends.client);
}

static void run_ms(uint32_t ms)
{
	for (uint32_t i = 0; i < 4 * ms; i++)
		turn(250);
}

static void until_registered(void)
{
	for (uint32_t i = 0; i < 40000 && kvr_agent_state_now(ends.agent) != KVR_AGENT_SERVING; i++)
		turn(250);
	CU_ASSERT_EQUAL_FATAL(kvr_agent_state_now(ends.agent), KVR_AGENT_SERVING);
}

/* Change the engine's cache a little and publish it. */
static void churn(uint32_t steps)
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

/* Requests of all sizes on both paths; all finish, each is run once. */
static void mixed(uint64_t seed, uint32_t loss, uint32_t dup, uint32_t delay_us, bool slow)
{
	start(seed, loss, dup, delay_us);
	ends.slow = slow;
	until_registered();
	for (uint32_t i = 0; i < 200; i++) {
		ends_submit(i % 40 == 7 ? 20000 : 1 + kvr_rand_below(&wire.rnd, 900),
			    1 + kvr_rand_below(&wire.rnd, i % 20 == 3 ? 200 : 20),
			    i % 25 == 5 ? 5000 : kvr_rand_below(&wire.rnd, 1000),
			    i % 3 == 0 ? KVR_CLIENT_DIRECT : 0);
		churn(2);
		run_ms(2);
	}
	finish_all(120000);
	CU_ASSERT_EQUAL(ends.by_reason[KVR_CLIENT_FINISHED], ends.n);
	for (uint32_t i = 0; i < ends.n; i++)
		CU_ASSERT_EQUAL(ends.req[i].runs, 1);
	run_ms(12000);
	CU_ASSERT_EQUAL(kvr_agent_running(ends.agent), 0);
	CU_ASSERT_EQUAL(memcmp(relay.held[0], ends.cache, sizeof(ends.cache)), 0);
	stop();
}

static void a_perfect_network_repeats_nothing(void)
{
	struct kvr_client_stats cs;
	struct kvr_agent_stats as;

	start(1, 0, 0, 0);
	until_registered();
	for (uint32_t i = 0; i < 100; i++)
		ends_submit(100, 10, 50, i % 2 ? KVR_CLIENT_DIRECT : 0);
	churn(50);
	finish_all(100);
	run_ms(100);
	kvr_client_stats_get(ends.client, &cs);
	kvr_agent_stats_get(ends.agent, &as);
	CU_ASSERT_EQUAL(cs.resent + cs.items_repeated + cs.restarted + cs.frames_bad, 0);
	CU_ASSERT_EQUAL(as.items_resent + as.kv_resent + as.duplicates + as.frames_bad, 0);
	CU_ASSERT_EQUAL(as.finished, 100);
	CU_ASSERT_EQUAL(kvr_agent_running(ends.agent), 0);
	stop();
}

static void everything_arrives_over_a_lossy_network(void)
{
	for (uint64_t seed = 1; seed <= 5; seed++)
		mixed(seed, 50, 30, 2000, false);
}

static void everything_arrives_over_a_terrible_network(void)
{
	mixed(11, 250, 100, 30000, false);
}

static void slow_answers_survive_losses(void)
{
	mixed(21, 100, 50, 5000, true);
}

static void refusals_reach_the_client(void)
{
	start(31, 100, 50, 3000);
	until_registered();
	for (uint32_t i = 0; i < 50; i++)
		ends_submit(10, 0, 0, 0);
	finish_all(60000);
	/* Told, or, when that was lost, found out by probing. */
	CU_ASSERT_EQUAL(ends.by_reason[KVR_CLIENT_REJECTED] + ends.by_reason[KVR_CLIENT_LOST], 50);
	CU_ASSERT(ends.by_reason[KVR_CLIENT_REJECTED] >= 35);
	stop();
}

static void cancelled_requests_end_on_both_sides(void)
{
	start(41, 100, 50, 3000);
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
	stop();
}

/* What was running is lost or done, what was not starts over, and the cache is told anew. */
static void a_restarted_router_recovers(void)
{
	start(51, 30, 10, 2000);
	ends.slow = true;
	until_registered();
	for (uint32_t round = 0; round < 3; round++) {
		churn(100);
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
	/* And it works as before. */
	ends_submit(50, 5, 20, 0);
	finish_all(60000);
	CU_ASSERT_EQUAL(ends.req[ends.n - 1].end.reason, KVR_CLIENT_FINISHED);
	run_ms(12000);
	CU_ASSERT_EQUAL(kvr_agent_running(ends.agent), 0);
	CU_ASSERT_EQUAL(memcmp(relay.held[0], ends.cache, sizeof(ends.cache)), 0);
	stop();
}

int main(void)
{
	CU_TestInfo tests[] = {{"perfect", a_perfect_network_repeats_nothing},
			       {"lossy", everything_arrives_over_a_lossy_network},
			       {"terrible", everything_arrives_over_a_terrible_network},
			       {"slow", slow_answers_survive_losses},
			       {"refused", refusals_reach_the_client},
			       {"cancelled", cancelled_requests_end_on_both_sides},
			       {"restart", a_restarted_router_recovers},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("lossy", tests);
}
