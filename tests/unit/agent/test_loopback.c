/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The same ends on real sockets: client, router rules and agent over loopback, IPv4 and IPv6, in
 * one poll loop. Bounded by a number of turns, not by a clock; results do not depend on timing.
 */
#include "ends.h"
#include "relay.h"

#include <poll.h>
#include <stdio.h>

#define TURNS 20000 /* a turn waits at most 5 ms: far more turns than needed */

static struct relay relay;
static struct kvr_udp relay_udp;

static void relay_emit(void *ctx, const struct kvr_udp_addr *to, const void *frame, uint32_t len)
{
	const struct kvr_udp_msg m = {*to, (uint8_t *)(uintptr_t)frame, len};

	relay_udp.io->send(relay_udp.ctx, &m, 1);
}

static void start_ends(const char *host)
{
	struct kvr_udp_addr at;
	char router[80];

	memset(&ends, 0, sizeof(ends));
	memset(&relay, 0, sizeof(relay));
	relay.emit = relay_emit;
	relay.epoch = 100;
	CU_ASSERT_EQUAL_FATAL(kvr_udp_open(&relay_udp, host), 0);
	CU_ASSERT_EQUAL_FATAL(kvr_udp_local(&relay_udp, &at), 0);
	snprintf(router, sizeof(router), strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, at.port);
	ends.client = kvr_client_create(&(struct kvr_client_conf){.router = router, .bind = host});
	ends.agent = kvr_agent_create(&(struct kvr_agent_conf){.router = router,
							       .bind = host,
							       .worker = 5,
							       .pool = "pool",
							       .block_size = 16,
							       .ops = &ends_agent_ops});
	CU_ASSERT_FATAL(ends.client != NULL && ends.agent != NULL);
}

static void stop_ends(void)
{
	kvr_client_destroy(ends.client);
	kvr_agent_destroy(ends.agent);
	kvr_udp_close(&relay_udp);
}

static void run_turn(void)
{
	struct pollfd p[] = {{kvr_client_fd(ends.client), POLLIN, 0},
			     {kvr_agent_fd(ends.agent), POLLIN, 0},
			     {relay_udp.io->fd(relay_udp.ctx), POLLIN, 0}};
	const int ct = kvr_client_timeout_ms(ends.client), at = kvr_agent_timeout_ms(ends.agent);
	struct kvr_udp_msg m[KVR_UDP_BURST];
	unsigned int n;

	poll(p, 3, ct == 0 || at == 0 ? 0 : 5);
	n = relay_udp.io->recv(relay_udp.ctx, m, KVR_UDP_BURST);
	for (unsigned int i = 0; i < n; i++)
		relay_frame(&relay, &m[i].addr, m[i].data, m[i].len);
	kvr_agent_process(ends.agent);
	ends_engine();
	kvr_agent_process(ends.agent);
	kvr_client_process(ends.client);
}

static void run_traffic(const char *host)
{
	uint64_t h[] = {1, 2, 3};
	uint32_t n = 0, pools;

	start_ends(host);
	kvr_client_connect(ends.client);
	for (uint32_t i = 0; i < TURNS && (kvr_agent_state_now(ends.agent) != KVR_AGENT_SERVING ||
					   kvr_client_pool_lookup(ends.client, "pool") < 0);
	     i++)
		run_turn();
	CU_ASSERT_EQUAL_FATAL(kvr_client_pool_lookup(ends.client, "pool"), 0);
	CU_ASSERT_PTR_NOT_NULL(kvr_client_pools(ends.client, &pools));
	CU_ASSERT_EQUAL(pools, 1);
	kvr_agent_kv_stored(ends.agent, 0, &(struct kvr_agent_kv){.hashes = h, .n = 3});
	for (uint32_t i = 0; i < 300; i++)
		ends_submit(i == 100 ? 100000 : 1 + i * 3, 1 + i % 30, (i * 37) % 1000,
			    i % 2 ? KVR_CLIENT_DIRECT : 0);
	while (n++ < TURNS && ends.ended < ends.n)
		run_turn();
	CU_ASSERT_EQUAL(ends.ended, ends.n);
	CU_ASSERT_EQUAL(ends.by_reason[KVR_CLIENT_FINISHED], ends.n);
	ends_check();
	CU_ASSERT(relay.held[0][1] && relay.held[0][2] && relay.held[0][3]);
	stop_ends();
}

static void requests_cross_loopback_ipv4(void)
{
	run_traffic("127.0.0.1");
}

static void requests_cross_loopback_ipv6(void)
{
	run_traffic("::1");
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(requests_cross_loopback_ipv4),
			       KVR_CASE(requests_cross_loopback_ipv6), CU_TEST_INFO_NULL};

	return kvr_test_run("loopback", tests);
}
