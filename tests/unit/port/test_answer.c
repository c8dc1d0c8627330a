/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_pkt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "frame.h"
#include "kvr_rand.h"
#include "kvr_test.h"

#define GROUP_IP6  "\xff\x02\0\0\0\0\0\0\0\0\0\x01\xff\x12\x34\x01"
#define GROUP_MAC6 "\x33\x33\xff\x12\x34\x01"

static struct kvr_pkt_rules rules, peer_rules;
static uint8_t buf[2048];
static struct rte_mbuf m;
static struct kvr_pkt pkt;
static struct frame f;

static void set_rules(void)
{
	make_rules(&rules);
	make_rules(&peer_rules);
	memcpy(peer_rules.local.mac, PEER_MAC, 6);
	memcpy(peer_rules.local.ip4, PEER_IP4, 4);
	memcpy(peer_rules.local.ip6, PEER_IP6, 16);
}

/* Receive f and answer it: the answer's bytes, or NULL. */
static uint8_t *answer_frame(enum kvr_pkt_verdict want)
{
	make_mbuf(&m, buf, sizeof(buf), 128, f.b, (uint16_t)f.len);
	CU_ASSERT_EQUAL(kvr_pkt_parse(&rules, f.b, f.len, 0, &pkt), want);
	return kvr_pkt_answer(&rules, &pkt, &m) == 0 ? rte_pktmbuf_mtod(&m, uint8_t *) : NULL;
}

static void ask_for(bool v6, uint16_t vlan, uint16_t outer)
{
	struct kvr_path to = {.family = v6 ? 6 : 4, .vlan = vlan, .vlan_outer = outer};

	memcpy(to.ip, v6 ? OUR_IP6 : "\0\0\0\0\0\0\0\0\0\0\xff\xff" OUR_IP4, 16);
	make_mbuf(&m, buf, sizeof(buf), 128, NULL, 0);
	CU_ASSERT_EQUAL_FATAL(kvr_pkt_ask(&peer_rules.local, &to, &m), 0);
	f.len = 0;
	append_bytes(&f, rte_pktmbuf_mtod(&m, void *), m.pkt_len);
}

static void a_request_is_answered_and_its_answer_learnt(void)
{
	static const uint16_t tags[][2] = {{0, 0}, {100, 0}, {100, 200}};

	set_rules();
	for (int v6 = 0; v6 < 2; v6++) {
		for (int t = 0; t < 3; t++) {
			struct kvr_path to = {.family = v6 ? 6 : 4};
			uint8_t *b;

			ask_for(v6, tags[t][0], tags[t][1]);
			CU_ASSERT_EQUAL(f.len, (v6 ? 86u : 42u) + 4u * (uint32_t)t);
			b = answer_frame(v6 ? KVR_PKT_ND : KVR_PKT_ARP);
			CU_ASSERT_PTR_NOT_NULL_FATAL(b);
			CU_ASSERT_EQUAL(kvr_pkt_parse(&peer_rules, b, m.pkt_len, 0, &pkt),
					v6 ? KVR_PKT_ND : KVR_PKT_ARP);
			CU_ASSERT_EQUAL(pkt.path.vlan, tags[t][0]);
			CU_ASSERT_EQUAL(pkt.path.vlan_outer, tags[t][1]);
			memcpy(to.ip, v6 ? PEER_IP6 : "\0\0\0\0\0\0\0\0\0\0\xff\xff" PEER_IP4, 16);
			CU_ASSERT_FALSE(kvr_pkt_reply_for(&pkt, b, &to)); /* of another address */
			memcpy(to.ip, v6 ? OUR_IP6 : "\0\0\0\0\0\0\0\0\0\0\xff\xff" OUR_IP4, 16);
			CU_ASSERT_TRUE(kvr_pkt_reply_for(&pkt, b, &to));
			CU_ASSERT_EQUAL(memcmp(to.mac, OUR_MAC, 6), 0);
			/* A reply is not answered again. */
			CU_ASSERT_EQUAL(kvr_pkt_answer(&peer_rules, &pkt, &m), -ENOMSG);
		}
	}
}

static void arp_reply_is_exact(void)
{
	static const char want[] =
		PEER_MAC OUR_MAC "\x08\x06\0\1\x08\0\6\4\0\2" OUR_MAC OUR_IP4 PEER_MAC PEER_IP4;
	uint8_t *b;

	set_rules();
	ask_for(false, 0, 0);
	f.len += 18; /* padded to 60 bytes; the answer need not be */
	b = answer_frame(KVR_PKT_ARP);
	CU_ASSERT_EQUAL(m.pkt_len, 42);
	CU_ASSERT_EQUAL(memcmp(b, want, 42), 0);
}

static void a_duplicate_address_probe_is_answered_to_all_nodes(void)
{
	uint8_t *b;

	set_rules();
	/* RFC 4862: from ::, without option, so the answer is longer than the request. */
	add_eth(&f, GROUP_MAC6, PEER_MAC, 0x86dd);
	add_ip6(&f, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", GROUP_IP6, 58, 24, 255);
	append_bytes(&f, "\x87\0\0\0\0\0\0\0" OUR_IP6, 24);
	set_be16(f.b + 56, ~slow_l4_sum(f.b + 14, f.b + 54, 24, 58));
	b = answer_frame(KVR_PKT_ND);
	CU_ASSERT_PTR_NOT_NULL_FATAL(b);
	CU_ASSERT_EQUAL(m.pkt_len, 86);
	CU_ASSERT_EQUAL(memcmp(b, "\x33\x33\0\0\0\1" OUR_MAC, 12), 0);
	CU_ASSERT_EQUAL(memcmp(b + 38, "\xff\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\1", 16), 0);
	CU_ASSERT_EQUAL(b[58], 0x20); /* override, not solicited */
	CU_ASSERT_EQUAL(slow_l4_sum(b + 14, b + 54, 32, 58), 0xffff);
}

static void unproven_solicitations_are_rejected(void)
{
	set_rules();
	ask_for(true, 0, 0);
	f.b[21] = 254; /* passed a router */
	CU_ASSERT_EQUAL(kvr_pkt_parse(&rules, f.b, f.len, 0, &pkt), KVR_PKT_OTHER_PROTO);
	ask_for(true, 0, 0);
	f.b[70] ^= 1; /* checksum invalid */
	CU_ASSERT_EQUAL(kvr_pkt_parse(&rules, f.b, f.len, 0, &pkt), KVR_PKT_BAD_UDP_SUM);
	ask_for(true, 0, 0);
	f.b[76] ^= 1; /* another target in the same group */
	f.b[62] ^= 1;
	set_be16(f.b + 56, 0);
	set_be16(f.b + 56, ~slow_l4_sum(f.b + 14, f.b + 54, 32, 58));
	CU_ASSERT_EQUAL(kvr_pkt_parse(&rules, f.b, f.len, 0, &pkt), KVR_PKT_OTHER_ADDR);
}

/*
 * An ICMPv6 message of `n` bytes from the peer to the router with a valid checksum, and nothing
 * after it.
 */
static void make_icmp6(const void *bytes, uint32_t n)
{
	add_eth(&f, OUR_MAC, PEER_MAC, 0x86dd);
	add_ip6(&f, PEER_IP6, OUR_IP6, 58, n, 255);
	append_bytes(&f, bytes, n);
	set_be16(f.b + 56, ~slow_l4_sum(f.b + 14, f.b + 54, n, 58));
}

static enum kvr_pkt_verdict parse_copy(const struct kvr_pkt_rules *r, uint8_t **copy)
{
	*copy = malloc(f.len);
	memcpy(*copy, f.b, f.len);
	return kvr_pkt_parse(r, *copy, f.len, 0, &pkt);
}

static void short_and_odd_discovery_is_rejected(void)
{
	uint8_t *copy;

	set_rules();
	make_icmp6("\x87\0\0\0\0\0\0\0" OUR_IP6, 24);
	CU_ASSERT_EQUAL(parse_copy(&rules, &copy), KVR_PKT_ND);
	free(copy);
	make_icmp6("\x87\0\0\0\0\0\0\0" OUR_IP6, 23);
	CU_ASSERT_EQUAL(parse_copy(&rules, &copy), KVR_PKT_TRUNCATED);
	free(copy);
	make_icmp6("\x87\1\0\0\0\0\0\0" OUR_IP6, 24); /* an undefined code */
	CU_ASSERT_EQUAL(parse_copy(&rules, &copy), KVR_PKT_OTHER_PROTO);
	free(copy);
}

static void an_advertisement_without_option_yields_the_frame_s_mac(void)
{
	struct kvr_path to = {.family = 6};
	uint8_t *copy;

	set_rules();
	memcpy(to.ip, PEER_IP6, 16);
	make_icmp6("\x88\0\0\0\x60\0\0\0" PEER_IP6, 24);
	CU_ASSERT_EQUAL(parse_copy(&rules, &copy), KVR_PKT_ND);
	CU_ASSERT_TRUE(kvr_pkt_reply_for(&pkt, copy, &to));
	CU_ASSERT_EQUAL(memcmp(to.mac, PEER_MAC, 6), 0);
	free(copy);
}

static void make_echo(bool v6, uint32_t n, bool zeros)
{
	uint32_t ip;

	add_eth(&f, OUR_MAC, PEER_MAC, v6 ? 0x86dd : 0x0800);
	ip = v6 ? add_ip6(&f, PEER_IP6, OUR_IP6, 58, 8 + n, 3)
		: add_ip4(&f, PEER_IP4, OUR_IP4, 1, 8 + n, 0);
	append_be16(&f, v6 ? 128 << 8 : 8 << 8);
	append_be16(&f, 0);
	append_be16(&f, zeros ? 0 : 0x4242);
	append_be16(&f, zeros ? 0 : 1);
	for (uint32_t i = 0; i < n; i++)
		f.b[f.len++] = zeros ? 0 : (uint8_t)i;
	set_be16(f.b + f.len - n - 6, ~(v6 ? slow_l4_sum(f.b + ip, f.b + f.len - n - 8, 8 + n, 58)
					   : slow_sum(f.b + f.len - n - 8, 8 + n, 0)));
}

static void an_echo_request_is_answered(void)
{
	set_rules();
	for (int v6 = 0; v6 < 2; v6++) {
		for (uint32_t n = 0; n < 80; n++) {
			const uint32_t icmp = v6 ? 54 : 34;
			uint8_t *b;

			make_echo(v6, n, n % 3 == 0);
			f.len += n < 4 ? 10 : 0; /* padding is not echoed */
			b = answer_frame(KVR_PKT_ECHO);
			CU_ASSERT_PTR_NOT_NULL_FATAL(b);
			CU_ASSERT_EQUAL(m.pkt_len, icmp + 8 + n);
			CU_ASSERT_EQUAL(memcmp(b, PEER_MAC OUR_MAC, 12), 0);
			CU_ASSERT_EQUAL(b[icmp], v6 ? 129 : 0);
			CU_ASSERT_EQUAL(memcmp(b + icmp + 4, f.b + icmp + 4, 4 + n), 0);
			if (v6) {
				CU_ASSERT_EQUAL(memcmp(b + 22, OUR_IP6 PEER_IP6, 32), 0);
				CU_ASSERT_EQUAL(slow_l4_sum(b + 14, b + 54, 8 + n, 58), 0xffff);
			} else {
				CU_ASSERT_EQUAL(memcmp(b + 26, OUR_IP4 PEER_IP4, 8), 0);
				CU_ASSERT_EQUAL(slow_sum(b + 14, 20, 0), 0xffff);
				CU_ASSERT_EQUAL(slow_sum(b + 34, 8 + n, 0), 0xffff);
			}
		}
	}
}

static void odd_echoes_are_not_answered(void)
{
	set_rules();
	make_echo(false, 8, false);
	f.b[f.len - 1] ^= 1;
	CU_ASSERT_EQUAL(kvr_pkt_parse(&rules, f.b, f.len, 0, &pkt), KVR_PKT_BAD_UDP_SUM);
	make_echo(true, 8, false);
	f.b[f.len - 1] ^= 1;
	CU_ASSERT_EQUAL(kvr_pkt_parse(&rules, f.b, f.len, 0, &pkt), KVR_PKT_BAD_UDP_SUM);
	make_echo(false, 8, false);
	f.b[34] = 0; /* a reply */
	CU_ASSERT_EQUAL(kvr_pkt_parse(&rules, f.b, f.len, 0, &pkt), KVR_PKT_OTHER_PROTO);
	make_echo(true, 8, false);
	memset(f.b + 22, 0, 16); /* from :: */
	set_be16(f.b + 56, 0);
	set_be16(f.b + 56, ~slow_l4_sum(f.b + 14, f.b + 54, 16, 58));
	CU_ASSERT_EQUAL(kvr_pkt_parse(&rules, f.b, f.len, 0, &pkt), KVR_PKT_BAD_SOURCE);
	rules.n_allow = 1;
	CU_ASSERT_EQUAL(kvr_prefix_parse("192.168.0.0/16", &rules.allow[0]), 0);
	make_echo(false, 8, false);
	CU_ASSERT_EQUAL(kvr_pkt_parse(&rules, f.b, f.len, 0, &pkt), KVR_PKT_DENIED);
	rules.n_allow = 0;
	/* With IP options: a reply would have to honour them. */
	add_eth(&f, OUR_MAC, PEER_MAC, 0x0800);
	add_ip4(&f, PEER_IP4, OUR_IP4, 1, 8, 2);
	append_bytes(&f, "\x08\0\xf7\xff\0\0\0\0", 8);
	CU_ASSERT_PTR_NULL(answer_frame(KVR_PKT_ECHO));
}

static void no_room_for_the_answer_is_an_error(void)
{
	set_rules();
	add_eth(&f, GROUP_MAC6, PEER_MAC, 0x86dd);
	add_ip6(&f, PEER_IP6, GROUP_IP6, 58, 24, 255);
	append_bytes(&f, "\x87\0\0\0\0\0\0\0" OUR_IP6, 24);
	set_be16(f.b + 56, ~slow_l4_sum(f.b + 14, f.b + 54, 24, 58));
	make_mbuf(&m, buf, 78 + 7, 0, f.b, 78);
	CU_ASSERT_EQUAL(kvr_pkt_parse(&rules, f.b, f.len, 0, &pkt), KVR_PKT_ND);
	CU_ASSERT_EQUAL(kvr_pkt_answer(&rules, &pkt, &m), -ENOBUFS);
	make_mbuf(&m, buf, 78 + 8, 0, f.b, 78);
	CU_ASSERT_EQUAL(kvr_pkt_answer(&rules, &pkt, &m), 0);
	make_mbuf(&m, buf, 10, 0, NULL, 0);
	CU_ASSERT_EQUAL(kvr_pkt_ask(&rules.local, &pkt.path, &m), -ENOBUFS);
}

/* Damaged requests: every answer fits its buffer (ASan) and is sane for the peer. */
static void mutated_requests_cause_no_fault(void)
{
	struct kvr_rand r;
	uint32_t answers = 0;

	set_rules();
	kvr_rand_init(&r, 7);
	for (uint32_t i = 0; i < 500000; i++) {
		uint32_t len, n = kvr_rand_below(&r, 3);
		uint8_t *b;

		if (i % 4 < 2)
			ask_for(i & 1, 0, 0);
		else
			make_echo(i & 1, 4, false);
		while (n-- > 0)
			f.b[kvr_rand_below(&r, f.len)] = (uint8_t)kvr_rand_u64(&r);
		len = i & 8 ? f.len : kvr_rand_below(&r, f.len + 1);
		b = malloc(len + 16);
		make_mbuf(&m, b, (uint16_t)(len + 16), 0, f.b, (uint16_t)len);
		kvr_pkt_parse(&rules, b, len, 0, &pkt);
		if (kvr_pkt_answer(&rules, &pkt, &m) == 0) {
			answers++;
			CU_ASSERT_TRUE(m.pkt_len <= len + 16u && m.data_len == m.pkt_len);
		}
		free(b);
	}
	CU_ASSERT_TRUE(answers > 1000);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_request_is_answered_and_its_answer_learnt),
			       KVR_CASE(arp_reply_is_exact),
			       KVR_CASE(a_duplicate_address_probe_is_answered_to_all_nodes),
			       KVR_CASE(unproven_solicitations_are_rejected),
			       KVR_CASE(short_and_odd_discovery_is_rejected),
			       KVR_CASE(an_advertisement_without_option_yields_the_frame_s_mac),
			       KVR_CASE(an_echo_request_is_answered),
			       KVR_CASE(odd_echoes_are_not_answered),
			       KVR_CASE(no_room_for_the_answer_is_an_error),
			       KVR_CASE(mutated_requests_cause_no_fault),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("answer_frame", tests);
}
