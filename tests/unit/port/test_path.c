/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_path.h"

#include <errno.h>
#include <string.h>

#include "frame.h"
#include "kvr_test.h"

static struct kvr_pkt_rules rules, peer_rules;
static uint8_t buf[4096], second[2048];
static struct rte_mbuf m, m2;

/* The peer, as the router learnt it from a frame with up to two tags. */
static struct kvr_path learn_path(bool v6, int tags)
{
	struct kvr_pkt pkt;
	struct frame f;

	make_rules(&rules);
	v6 ? make_good6(&f, 4) : make_good4(&f, 4);
	if (tags > 0)
		insert_tag(&f, 0x8100, 100);
	if (tags > 1)
		insert_tag(&f, 0x88a8, 200);
	CU_ASSERT_EQUAL_FATAL(kvr_pkt_parse(&rules, f.b, f.len, 0, &pkt), KVR_PKT_UDP);
	/* The peer's view: the same with both ends exchanged. */
	make_rules(&peer_rules);
	memcpy(peer_rules.local.mac, PEER_MAC, 6);
	memcpy(peer_rules.local.ip4, PEER_IP4, 4);
	memcpy(peer_rules.local.ip6, PEER_IP6, 16);
	peer_rules.local.udp_port = PEER_PORT;
	peer_rules.verify_udp = true;
	return pkt.path;
}

static void check_payload(uint16_t n)
{
	uint8_t bytes[2048];

	for (uint32_t i = 0; i < n; i++)
		bytes[i] = (uint8_t)(i * 13 + 5);
	make_mbuf(&m, buf, sizeof(buf), 128, bytes, n);
}

static void the_peer_reads_the_frames_that_are_sent(void)
{
	for (int v6 = 0; v6 < 2; v6++) {
		for (int tags = 0; tags < 3; tags++) {
			const struct kvr_path to = learn_path(v6, tags);
			const int hl = 14 + 4 * tags + (v6 ? 40 : 20) + 8;

			CU_ASSERT_EQUAL(kvr_path_header_len(&to), hl);
			for (uint16_t n = 0; n < 200; n++) {
				const uint8_t *b;
				struct kvr_pkt got;

				check_payload(n);
				CU_ASSERT_EQUAL(kvr_path_write(&rules.local, &to, &m), hl);
				CU_ASSERT_EQUAL(m.pkt_len, (uint32_t)hl + n);
				b = rte_pktmbuf_mtod(&m, const uint8_t *);
				CU_ASSERT_EQUAL(kvr_pkt_parse(&peer_rules, b, m.data_len, 0, &got),
						KVR_PKT_UDP);
				CU_ASSERT_EQUAL(got.off, hl);
				CU_ASSERT_EQUAL(got.len, n);
				CU_ASSERT_EQUAL(got.path.vlan, to.vlan);
				CU_ASSERT_EQUAL(got.path.vlan_outer, to.vlan_outer);
				CU_ASSERT_EQUAL(got.path.udp_port, OUR_PORT);
				CU_ASSERT_EQUAL(memcmp(got.path.mac, OUR_MAC, 6), 0);
				/* An absolute check, independent of the library's parser: */
				CU_ASSERT_EQUAL(slow_l4_sum(b + hl - (v6 ? 48 : 28), b + hl - 8,
							    8u + n, 17),
						0xffff);
			}
		}
	}
}

static void ipv4_header_is_exact(void)
{
	static const uint8_t want[] = {0x45, 0,	   0,	 32,   0,    0,	   0x40, 0,  64,
				       17,   0x26, 0xcb, 10,   0,    0,	   1,	 10, 0,
				       0,    2,	   0x1d, 0xe2, 0x9c, 0x40, 0,	 12};
	const struct kvr_path to = learn_path(false, 0);

	check_payload(4);
	CU_ASSERT_EQUAL(kvr_path_write(&rules.local, &to, &m), 42);
	CU_ASSERT_EQUAL(memcmp(rte_pktmbuf_mtod_offset(&m, uint8_t *, 14), want, sizeof(want)), 0);
}

static void segmented_payload_is_summed_whole(void)
{
	for (int v6 = 0; v6 < 2; v6++) {
		const struct kvr_path to = learn_path(v6, 0);

		for (uint16_t cut = 0; cut <= 30; cut++) {
			uint8_t flat[256];
			uint32_t hl;

			check_payload(30);
			make_mbuf(&m2, second, sizeof(second), 0,
				  rte_pktmbuf_mtod_offset(&m, uint8_t *, cut),
				  (uint16_t)(30 - cut));
			m.data_len = cut;
			m.next = &m2;
			m.nb_segs = 2;
			hl = (uint32_t)kvr_path_write(&rules.local, &to, &m);
			CU_ASSERT_EQUAL(m.pkt_len, hl + 30);
			CU_ASSERT_EQUAL(m.data_len, hl + cut);
			memcpy(flat, rte_pktmbuf_mtod(&m, void *), m.data_len);
			memcpy(flat + m.data_len, second, 30u - cut);
			CU_ASSERT_EQUAL(slow_l4_sum(flat + 14, flat + hl - 8, 38, 17), 0xffff);
		}
	}
}

/* Find a payload whose sum is 0, which must be sent as 0xffff, because 0 means "none". */
static void zero_checksum_is_sent_as_ones(void)
{
	for (int v6 = 0; v6 < 2; v6++) {
		const struct kvr_path to = learn_path(v6, 0);
		uint32_t ones = 0, zeros = 0;

		for (uint32_t x = 0; x < 65536; x++) {
			const uint8_t two[2] = {(uint8_t)(x >> 8), (uint8_t)x};
			const uint8_t *sum;
			int hl;

			make_mbuf(&m, buf, sizeof(buf), 128, two, 2);
			hl = kvr_path_write(&rules.local, &to, &m);
			sum = rte_pktmbuf_mtod_offset(&m, const uint8_t *, hl - 2);
			zeros += sum[0] == 0 && sum[1] == 0;
			ones += sum[0] == 0xff && sum[1] == 0xff;
		}
		CU_ASSERT_EQUAL(zeros, 0);
		CU_ASSERT_TRUE(ones > 0);
	}
}

static void checksum_mode_none_omits_ipv4_udp_only(void)
{
	struct kvr_path to = learn_path(false, 0);
	const uint8_t *b;

	rules.local.tx_cksum = KVR_CKSUM_NONE;
	check_payload(10);
	CU_ASSERT_EQUAL(kvr_path_write(&rules.local, &to, &m), 42);
	b = rte_pktmbuf_mtod(&m, const uint8_t *);
	CU_ASSERT_EQUAL(b[40] | b[41], 0);
	CU_ASSERT_EQUAL(slow_sum(b + 14, 20, 0), 0xffff);
	to = learn_path(true, 0);
	rules.local.tx_cksum = KVR_CKSUM_NONE;
	check_payload(10);
	CU_ASSERT_EQUAL(kvr_path_write(&rules.local, &to, &m), 62);
	b = rte_pktmbuf_mtod(&m, const uint8_t *);
	CU_ASSERT_EQUAL(slow_l4_sum(b + 14, b + 54, 18, 17), 0xffff);
}

static void offload_leaves_pseudo_header_and_flags(void)
{
	for (int v6 = 0; v6 < 2; v6++) {
		const struct kvr_path to = learn_path(v6, 1);
		const uint64_t want =
			v6 ? RTE_MBUF_F_TX_IPV6 | RTE_MBUF_F_TX_UDP_CKSUM
			   : RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM | RTE_MBUF_F_TX_UDP_CKSUM;
		const uint8_t *b;
		uint32_t sum;
		int hl;

		rules.local.tx_cksum = KVR_CKSUM_OFFLOAD;
		check_payload(10);
		m.ol_flags = RTE_MBUF_F_RX_IP_CKSUM_BAD | RTE_MBUF_F_RX_RSS_HASH;
		hl = kvr_path_write(&rules.local, &to, &m);
		CU_ASSERT_EQUAL(m.ol_flags, want);
		CU_ASSERT_EQUAL(m.l2_len, 18);
		CU_ASSERT_EQUAL(m.l3_len, v6 ? 40 : 20);
		b = rte_pktmbuf_mtod(&m, const uint8_t *);
		/* The NIC's part: complement of the sum over the UDP bytes. */
		sum = slow_sum(b + hl - 8, 18, 0);
		set_be16(rte_pktmbuf_mtod_offset(&m, uint8_t *, hl - 2), ~sum);
		CU_ASSERT_EQUAL(slow_l4_sum(b + 18, b + hl - 8, 18, 17), 0xffff);
		if (!v6)
			CU_ASSERT_EQUAL(b[28] | b[29], 0);
	}
}

static void rejected_frames_stay_unchanged(void)
{
	struct kvr_path to = learn_path(false, 0), none = {0};
	struct rte_mbuf before;

	check_payload(1473);
	before = m;
	CU_ASSERT_EQUAL(kvr_path_write(&rules.local, &to, &m), -EMSGSIZE);
	to.max_frame = 0; /* then only the port's limit applies */
	CU_ASSERT_EQUAL(kvr_path_write(&rules.local, &to, &m), -EMSGSIZE);
	to.max_frame = 100;
	check_payload(101);
	CU_ASSERT_EQUAL(kvr_path_write(&rules.local, &to, &m), -EMSGSIZE);
	check_payload(100);
	m.data_off = 41;
	before = m;
	CU_ASSERT_EQUAL(kvr_path_write(&rules.local, &to, &m), -ENOBUFS);
	CU_ASSERT_EQUAL(kvr_path_write(&rules.local, &none, &m), -EAFNOSUPPORT);
	memset(rules.local.ip4, 0, 4);
	CU_ASSERT_EQUAL(kvr_path_write(&rules.local, &to, &m), -EAFNOSUPPORT);
	CU_ASSERT_EQUAL(memcmp(&before, &m, sizeof(m)), 0);
	to = learn_path(false, 0);
	m.data_off = 42;
	CU_ASSERT_EQUAL(kvr_path_write(&rules.local, &to, &m), 42);
}

/* Relaying: the payload of a received frame is sent on in place, along any kind of path. */
static void received_payload_is_relayed_in_place(void)
{
	for (int from = 0; from < 6; from++) {
		for (int to = 0; to < 6; to++) {
			const struct kvr_path path = learn_path(to & 1, to / 2);
			struct kvr_pkt pkt, got;
			struct frame f;

			from & 1 ? make_good6(&f, 64) : make_good4(&f, 64);
			for (int t = 0; t < from / 2; t++)
				insert_tag(&f, t == 0 ? 0x8100 : 0x88a8, 9);
			make_mbuf(&m, buf, sizeof(buf), 128, f.b, (uint16_t)f.len);
			CU_ASSERT_EQUAL(kvr_pkt_parse(&rules, f.b, f.len, 0, &pkt), KVR_PKT_UDP);
			kvr_pkt_strip(&m, &pkt);
			CU_ASSERT_TRUE(kvr_path_write(&rules.local, &path, &m) > 0);
			CU_ASSERT_EQUAL(kvr_pkt_parse(&peer_rules,
						      rte_pktmbuf_mtod(&m, const uint8_t *),
						      m.data_len, 0, &got),
					KVR_PKT_UDP);
			CU_ASSERT_EQUAL(got.len, 64);
			CU_ASSERT_EQUAL(memcmp(rte_pktmbuf_mtod_offset(&m, uint8_t *, got.off),
					       f.b + pkt.off, 64),
					0);
		}
	}
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(the_peer_reads_the_frames_that_are_sent),
			       KVR_CASE(ipv4_header_is_exact),
			       KVR_CASE(segmented_payload_is_summed_whole),
			       KVR_CASE(zero_checksum_is_sent_as_ones),
			       KVR_CASE(checksum_mode_none_omits_ipv4_udp_only),
			       KVR_CASE(offload_leaves_pseudo_header_and_flags),
			       KVR_CASE(rejected_frames_stay_unchanged),
			       KVR_CASE(received_payload_is_relayed_in_place),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("path", tests);
}
