/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_udp.h"

#include "kvr_test.h"
#include <errno.h>
#include <poll.h>

static const uint8_t v4_loop[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1};
static const uint8_t v6_loop[16] = {[15] = 1};

static void addresses_of_every_form_are_parsed(void)
{
	static const struct {
		const char *text;
		const uint8_t *ip;
		uint16_t port;
	} good[] = {
		{"127.0.0.1", v4_loop, 7650}, {"127.0.0.1:80", v4_loop, 80},
		{"[::1]:81", v6_loop, 81},    {"[::1]", v6_loop, 7650},
		{"::1", v6_loop, 7650},	      {"::ffff:127.0.0.1", v4_loop, 7650},
		{"[::1]:0", v6_loop, 0},      {"127.0.0.1:65535", v4_loop, 65535},
	};
	struct kvr_udp_addr a;

	for (unsigned int i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		CU_ASSERT_EQUAL(kvr_udp_resolve(good[i].text, 7650, &a), 0);
		CU_ASSERT_EQUAL(memcmp(a.ip, good[i].ip, 16), 0);
		CU_ASSERT_EQUAL(a.port, good[i].port);
	}
}

static void malformed_addresses_are_errors(void)
{
	static const char *const bad[] = {
		"",	   ":80",	  "[::1",	  "[::1]x",
		"[]:80",   "127.0.0.1:",  "127.0.0.1:-1", "127.0.0.1:65536",
		"1.2:80x", "127.0.0.1: 8"};
	char longname[400];
	struct kvr_udp_addr a;

	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CU_ASSERT_EQUAL(kvr_udp_resolve(bad[i], 7650, &a), -EINVAL);
	memset(longname, 'a', sizeof(longname) - 1);
	longname[sizeof(longname) - 1] = '\0';
	CU_ASSERT_EQUAL(kvr_udp_resolve(longname, 7650, &a), -EINVAL);
}

static void check_exchange(const char *bind_a, const char *bind_b)
{
	struct kvr_udp a, b;
	struct kvr_udp_addr to;
	struct kvr_udp_msg m[KVR_UDP_BURST];
	struct pollfd p = {.events = POLLIN};
	uint8_t data[3][100];
	unsigned int n, got = 0;

	CU_ASSERT_EQUAL_FATAL(kvr_udp_open(&a, bind_a), 0);
	CU_ASSERT_EQUAL_FATAL(kvr_udp_open(&b, bind_b), 0);
	CU_ASSERT_EQUAL_FATAL(kvr_udp_local(&b, &to), 0);
	for (int i = 0; i < 3; i++) {
		memset(data[i], 'a' + i, sizeof(data[i]));
		m[i] = (struct kvr_udp_msg){to, data[i], 10u * (uint32_t)(i + 1)};
	}
	CU_ASSERT_EQUAL(a.io->send(a.ctx, m, 3), 3);
	p.fd = b.io->fd(b.ctx);
	while (got < 3 && poll(&p, 1, 5000) > 0) {
		n = b.io->recv(b.ctx, m, KVR_UDP_BURST);
		for (unsigned int i = 0; i < n; i++, got++) {
			CU_ASSERT_EQUAL(m[i].len, 10 * (got + 1));
			CU_ASSERT_EQUAL(m[i].data[0], 'a' + got);
			CU_ASSERT_EQUAL((uintptr_t)m[i].data % 64, 0);
			CU_ASSERT_EQUAL(memcmp(m[i].addr.ip, to.ip, 16), 0);
		}
	}
	CU_ASSERT_EQUAL(got, 3);
	CU_ASSERT_EQUAL(b.io->recv(b.ctx, m, KVR_UDP_BURST), 0);
	kvr_udp_close(&a);
	kvr_udp_close(&b);
	kvr_udp_close(&b); /* closed: no effect */
}

static void datagrams_cross_loopback_ipv4(void)
{
	check_exchange("127.0.0.1", "127.0.0.1");
}

static void datagrams_cross_loopback_ipv6(void)
{
	check_exchange("::1", "::1");
}

static void an_unreachable_peer_does_not_stop_the_others(void)
{
	struct kvr_udp a;
	struct kvr_udp_addr to;
	struct kvr_udp_msg m[3];
	uint8_t byte = 1;

	CU_ASSERT_EQUAL_FATAL(kvr_udp_open(&a, "127.0.0.1"), 0);
	CU_ASSERT_EQUAL_FATAL(kvr_udp_local(&a, &to), 0);
	for (int i = 0; i < 3; i++)
		m[i] = (struct kvr_udp_msg){to, &byte, 1};
	m[1].addr.port = 0; /* invalid port */
	CU_ASSERT_EQUAL(a.io->send(a.ctx, m, 3), 2);
	kvr_udp_close(&a);
}

/* A request for more than a burst returns a burst, regardless of array sizes. */
static void a_call_returns_at_most_one_burst(void)
{
	struct kvr_udp_msg m[2 * KVR_UDP_BURST];
	struct kvr_udp a;
	struct kvr_udp_addr to;
	struct pollfd p = {.events = POLLIN};
	uint8_t byte[2 * KVR_UDP_BURST];
	unsigned int n, got = 0;

	CU_ASSERT_EQUAL_FATAL(kvr_udp_open(&a, "127.0.0.1"), 0);
	CU_ASSERT_EQUAL_FATAL(kvr_udp_local(&a, &to), 0);
	for (unsigned int i = 0; i < 2 * KVR_UDP_BURST; i++) {
		byte[i] = (uint8_t)i;
		m[i] = (struct kvr_udp_msg){to, &byte[i], 1};
	}
	CU_ASSERT_EQUAL(a.io->send(a.ctx, m, 2 * KVR_UDP_BURST), KVR_UDP_BURST);
	CU_ASSERT_EQUAL(a.io->send(a.ctx, m + KVR_UDP_BURST, KVR_UDP_BURST), KVR_UDP_BURST);
	p.fd = a.io->fd(a.ctx);
	while (got < 2 * KVR_UDP_BURST && poll(&p, 1, 5000) > 0) {
		n = a.io->recv(a.ctx, m, 2 * KVR_UDP_BURST);
		CU_ASSERT_FATAL(n > 0 && n <= KVR_UDP_BURST);
		for (unsigned int i = 0; i < n; i++, got++)
			CU_ASSERT_EQUAL(m[i].data[0], got);
	}
	CU_ASSERT_EQUAL(got, 2 * KVR_UDP_BURST);
	kvr_udp_close(&a);
}

static void binding_twice_fails(void)
{
	struct kvr_udp a, b;
	struct kvr_udp_addr at;
	char text[64];

	CU_ASSERT_EQUAL_FATAL(kvr_udp_open(&a, "127.0.0.1"), 0);
	CU_ASSERT_EQUAL_FATAL(kvr_udp_local(&a, &at), 0);
	snprintf(text, sizeof(text), "127.0.0.1:%u", at.port);
	CU_ASSERT_EQUAL(kvr_udp_open(&b, text), -EADDRINUSE);
	kvr_udp_close(&a);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(addresses_of_every_form_are_parsed),
			       KVR_CASE(malformed_addresses_are_errors),
			       KVR_CASE(datagrams_cross_loopback_ipv4),
			       KVR_CASE(datagrams_cross_loopback_ipv6),
			       KVR_CASE(an_unreachable_peer_does_not_stop_the_others),
			       KVR_CASE(a_call_returns_at_most_one_burst),
			       KVR_CASE(binding_twice_fails),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("udp", tests);
}
