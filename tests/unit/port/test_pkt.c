/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_pkt.h"

#include <stdlib.h>
#include <string.h>

#include "frame.h"
#include "kvr_rand.h"
#include "kvr_test.h"

static struct kvr_pkt_rules rules;
static struct kvr_pkt pkt;
static struct frame f;

/* Parse a heap copy of exactly that size, so that ASan detects a read beyond it. */
static enum kvr_pkt_verdict parse_bytes(const uint8_t *b, uint32_t len, uint32_t hw)
{
	uint8_t *copy = malloc(len > 0 ? len : 1);
	enum kvr_pkt_verdict v;

	memcpy(copy, b, len);
	v = kvr_pkt_parse(&rules, copy, len, hw, &pkt);
	free(copy);
	return v;
}

static enum kvr_pkt_verdict parse_frame(void)
{
	return parse_bytes(f.b, f.len, 0);
}

static void an_ipv4_datagram_yields_payload_and_path(void)
{
	make_rules(&rules);
	make_good4(&f, 100);
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_UDP);
	CU_ASSERT_EQUAL(pkt.verdict, KVR_PKT_UDP);
	CU_ASSERT_EQUAL(pkt.off, 42);
	CU_ASSERT_EQUAL(pkt.len, 100);
	CU_ASSERT_EQUAL(pkt.l2_len, 14);
	CU_ASSERT_EQUAL(pkt.path.family, 4);
	CU_ASSERT_EQUAL(memcmp(pkt.path.ip, "\0\0\0\0\0\0\0\0\0\0\xff\xff" PEER_IP4, 16), 0);
	CU_ASSERT_EQUAL(memcmp(pkt.path.mac, PEER_MAC, 6), 0);
	CU_ASSERT_EQUAL(pkt.path.udp_port, PEER_PORT);
	CU_ASSERT_EQUAL(pkt.path.vlan, 0);
	CU_ASSERT_EQUAL(pkt.path.port, 3);
	CU_ASSERT_EQUAL(pkt.path.max_frame, 1472);
}

static void an_ipv6_datagram_yields_payload_and_path(void)
{
	make_rules(&rules);
	make_good6(&f, 100);
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_UDP);
	CU_ASSERT_EQUAL(pkt.off, 62);
	CU_ASSERT_EQUAL(pkt.len, 100);
	CU_ASSERT_EQUAL(pkt.path.family, 6);
	CU_ASSERT_EQUAL(memcmp(pkt.path.ip, PEER_IP6, 16), 0);
	CU_ASSERT_EQUAL(pkt.path.max_frame, 1452);
}

static void tags_are_read_and_remembered(void)
{
	make_rules(&rules);
	make_good4(&f, 10);
	insert_tag(&f, 0x8100, 0xe000 | 100); /* priority bits are not part of the identity */
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_UDP);
	CU_ASSERT_EQUAL(pkt.path.vlan, 100);
	CU_ASSERT_EQUAL(pkt.path.vlan_outer, 0);
	CU_ASSERT_EQUAL(pkt.off, 46);
	CU_ASSERT_EQUAL(pkt.l2_len, 18);
	insert_tag(&f, 0x88a8, 7);
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_UDP);
	CU_ASSERT_EQUAL(pkt.path.vlan, 100);
	CU_ASSERT_EQUAL(pkt.path.vlan_outer, 7);
	CU_ASSERT_EQUAL(pkt.off, 50);
	set_be16(f.b + 12, 0x8100);
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_UDP);
	CU_ASSERT_EQUAL(pkt.path.vlan_outer, 7 | KVR_PATH_OUTER_8100);
	insert_tag(&f, 0x8100, 8); /* three tags */
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_OTHER_PROTO);
	make_good4(&f, 10);
	insert_tag(&f, 0x88a8, 7); /* a single service tag */
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_OTHER_PROTO);
	make_good4(&f, 10);
	insert_tag(&f, 0x8100, 0); /* priority tag */
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_UDP);
	CU_ASSERT_EQUAL(pkt.path.vlan, 0);
	insert_tag(&f, 0x8100, 5); /* priority tag inside a tag: ambiguous, hence rejected */
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_OTHER_PROTO);
}

static void only_the_configured_vlan_is_accepted(void)
{
	make_rules(&rules);
	rules.vlan = 100;
	make_good4(&f, 10);
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_OTHER_VLAN);
	insert_tag(&f, 0x8100, 100);
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_UDP);
	insert_tag(&f, 0x88a8, 101); /* the inner tag counts */
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_UDP);
	set_be16(f.b + 18, 101);
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_OTHER_VLAN);
	rules.vlan = 0;
	set_be16(f.b + 18, 4095);
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_OTHER_VLAN);
}

static void options_and_padding_are_accepted(void)
{
	make_rules(&rules);
	for (uint32_t words = 0; words <= 10; words++) {
		add_eth(&f, OUR_MAC, PEER_MAC, 0x0800);
		add_udp(&f, add_ip4(&f, PEER_IP4, OUR_IP4, 17, 8 + 5, words), PEER_PORT, OUR_PORT,
			5);
		f.len += 18; /* Ethernet padding */
		CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_UDP);
		CU_ASSERT_EQUAL(pkt.off, 42 + 4 * words);
		CU_ASSERT_EQUAL(pkt.len, 5);
	}
}

static void refix_ip4(void)
{
	set_be16(f.b + 24, 0);
	set_be16(f.b + 24, ~slow_sum(f.b + 14, 20, 0));
}

/* Change one byte of a valid IPv4 datagram and repair the header checksum. */
static enum kvr_pkt_verdict parse_changed_ip4(uint32_t at, uint8_t v)
{
	make_good4(&f, 20);
	f.b[at] = v;
	refix_ip4();
	return parse_frame();
}

static enum kvr_pkt_verdict parse_changed_ip6(uint32_t at, uint8_t v)
{
	make_good6(&f, 20);
	f.b[at] = v;
	return parse_frame();
}

static void every_ipv4_fault_has_its_verdict(void)
{
	make_rules(&rules);
	CU_ASSERT_EQUAL(parse_changed_ip4(0, 0x04), KVR_PKT_OTHER_MAC);
	CU_ASSERT_EQUAL(parse_changed_ip4(0, 0x03),
			KVR_PKT_OTHER_MAC); /* group MAC, unicast address */
	CU_ASSERT_EQUAL(parse_changed_ip4(6, 0x03), KVR_PKT_BAD_SOURCE); /* from a group MAC */
	CU_ASSERT_EQUAL(parse_changed_ip4(13, 0x01), KVR_PKT_OTHER_PROTO);
	CU_ASSERT_EQUAL(parse_changed_ip4(14, 0x65), KVR_PKT_BAD_IP);
	CU_ASSERT_EQUAL(parse_changed_ip4(14, 0x44), KVR_PKT_BAD_IP);
	CU_ASSERT_EQUAL(parse_changed_ip4(17, 19),
			KVR_PKT_BAD_IP); /* total length below the header */
	CU_ASSERT_EQUAL(parse_changed_ip4(17, 49),
			KVR_PKT_TRUNCATED); /* one byte more than the frame has */
	CU_ASSERT_EQUAL(parse_changed_ip4(17, 47),
			KVR_PKT_BAD_UDP); /* UDP longer than its packet */
	CU_ASSERT_EQUAL(parse_changed_ip4(20, 0x20), KVR_PKT_FRAGMENT); /* more fragments */
	CU_ASSERT_EQUAL(parse_changed_ip4(21, 0x01), KVR_PKT_FRAGMENT); /* offset */
	CU_ASSERT_EQUAL(parse_changed_ip4(20, 0x40), KVR_PKT_UDP);	/* do not fragment */
	CU_ASSERT_EQUAL(parse_changed_ip4(22, 0), KVR_PKT_UDP);		/* TTL */
	CU_ASSERT_EQUAL(parse_changed_ip4(23, 6), KVR_PKT_OTHER_PROTO);
	CU_ASSERT_EQUAL(parse_changed_ip4(26, 0), KVR_PKT_BAD_SOURCE);
	CU_ASSERT_EQUAL(parse_changed_ip4(26, 127), KVR_PKT_BAD_SOURCE);
	CU_ASSERT_EQUAL(parse_changed_ip4(26, 224), KVR_PKT_BAD_SOURCE);
	CU_ASSERT_EQUAL(parse_changed_ip4(29, 1), KVR_PKT_BAD_SOURCE); /* our own address */
	CU_ASSERT_EQUAL(parse_changed_ip4(33, 9), KVR_PKT_OTHER_ADDR);
	CU_ASSERT_EQUAL(parse_changed_ip4(37, 0), KVR_PKT_OTHER_PORT);
	CU_ASSERT_EQUAL(parse_changed_ip4(39, 27),
			KVR_PKT_UDP); /* shorter than the IP payload: allowed */
	CU_ASSERT_EQUAL(pkt.len, 19);
	CU_ASSERT_EQUAL(parse_changed_ip4(39, 29), KVR_PKT_BAD_UDP);
	CU_ASSERT_EQUAL(parse_changed_ip4(39, 7), KVR_PKT_BAD_UDP);
	make_good4(&f, 20);
	set_be16(f.b + 34, 0); /* source port 0 */
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_BAD_SOURCE);
	make_good4(&f, 20);
	f.b[24] ^= 1;
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_BAD_IP_SUM);
	CU_ASSERT_EQUAL(parse_bytes(f.b, f.len, KVR_PKT_HW_IP_GOOD), KVR_PKT_UDP);
	make_good4(&f, 20);
	CU_ASSERT_EQUAL(parse_bytes(f.b, f.len, KVR_PKT_HW_IP_BAD), KVR_PKT_BAD_IP_SUM);
	memset(rules.local.ip4, 0, 4);
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_OTHER_ADDR); /* the port has no IPv4 address */
	CU_ASSERT_EQUAL(parse_changed_ip4(30, 0), KVR_PKT_OTHER_ADDR);
}

static void every_ipv6_fault_has_its_verdict(void)
{
	static const uint8_t extensions[] = {0, 43, 50, 51, 60, 135, 139, 140};

	make_rules(&rules);
	CU_ASSERT_EQUAL(parse_changed_ip6(14, 0x40), KVR_PKT_BAD_IP);
	CU_ASSERT_EQUAL(parse_changed_ip6(19, 0), KVR_PKT_BAD_IP);
	CU_ASSERT_EQUAL(parse_changed_ip6(19, 29), KVR_PKT_TRUNCATED);
	CU_ASSERT_EQUAL(parse_changed_ip6(19, 27), KVR_PKT_BAD_UDP);
	CU_ASSERT_EQUAL(parse_changed_ip6(20, 44), KVR_PKT_FRAGMENT);
	CU_ASSERT_EQUAL(parse_changed_ip6(20, 6), KVR_PKT_OTHER_PROTO);
	for (size_t i = 0; i < sizeof(extensions); i++)
		CU_ASSERT_EQUAL(parse_changed_ip6(20, extensions[i]), KVR_PKT_IP6_EXT);
	CU_ASSERT_EQUAL(parse_changed_ip6(21, 0), KVR_PKT_UDP); /* hop limit */
	CU_ASSERT_EQUAL(parse_changed_ip6(22, 0xff), KVR_PKT_BAD_SOURCE);
	CU_ASSERT_EQUAL(parse_changed_ip6(38, 0xfc), KVR_PKT_OTHER_ADDR);
	make_good6(&f, 20);
	memset(f.b + 22, 0, 16);
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_BAD_SOURCE); /* from :: */
	f.b[37] = 1;
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_BAD_SOURCE); /* from ::1 */
	memcpy(f.b + 32, "\xff\xff" PEER_IP4, 6);
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_BAD_SOURCE); /* identity of an IPv4 peer */
	make_good6(&f, 20);
	memcpy(f.b + 22, OUR_IP6, 16);
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_BAD_SOURCE);
	make_good6(&f, 20);
	memcpy(f.b + 38, "\xff\x02\0\0\0\0\0\0\0\0\0\x01\xff\x12\x34\x01", 16);
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_OTHER_ADDR); /* UDP to our solicited-node group */
	CU_ASSERT_EQUAL(parse_changed_ip6(0, 0x33),
			KVR_PKT_OTHER_ADDR); /* group MAC, our address */
	memset(rules.local.ip6, 0, 16);
	make_good6(&f, 20);
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_OTHER_ADDR);
	memset(f.b + 38, 0, 16);
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_OTHER_ADDR);
}

static void udp_checksums_are_trusted_verified_or_known_bad(void)
{
	make_rules(&rules);
	for (int v6 = 0; v6 < 2; v6++) {
		const uint32_t udp = v6 ? 54 : 34;

		for (uint32_t payload = 0; payload < 40; payload++) {
			rules.verify_udp = true;
			v6 ? make_good6(&f, payload) : make_good4(&f, payload);
			CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_UDP);
			f.b[udp + 7 + payload] ^= 0x10;
			CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_BAD_UDP_SUM);
			CU_ASSERT_EQUAL(parse_bytes(f.b, f.len, KVR_PKT_HW_L4_GOOD), KVR_PKT_UDP);
			rules.verify_udp = false;
			CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_UDP);
			CU_ASSERT_EQUAL(parse_bytes(f.b, f.len, KVR_PKT_HW_L4_BAD),
					KVR_PKT_BAD_UDP_SUM);
		}
		rules.verify_udp = true;
		/*
		 * Checksum left to a device that did not exist: only the pseudo header's sum is
		 * present.
		 */
		for (uint32_t payload = 0; payload < 40; payload++) {
			uint32_t sum = 17 + 8 + payload;

			v6 ? make_good6(&f, payload) : make_good4(&f, payload);
			for (uint32_t i = v6 ? 22 : 26; i < udp; i += 2)
				sum += (uint32_t)f.b[i] << 8 | f.b[i + 1];
			set_be16(f.b + udp + 6, (uint16_t)((sum & 0xffff) + (sum >> 16)));
			rules.half_udp = false; /* received from a wire */
			CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_BAD_UDP_SUM);
			rules.half_udp = true;
			CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_UDP);
			f.b[udp + 7] ^= 1;
			CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_BAD_UDP_SUM);
		}
		set_be16(f.b + udp + 6, 0); /* none: valid over IPv4 only */
		CU_ASSERT_EQUAL(parse_frame(), v6 ? KVR_PKT_BAD_UDP : KVR_PKT_UDP);
	}
}

static void allow_list_matches_by_prefix_and_family(void)
{
	make_rules(&rules);
	rules.n_allow = 1;
	CU_ASSERT_EQUAL(kvr_prefix_parse("10.0.0.2/32", &rules.allow[0]), 0);
	make_good4(&f, 1);
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_UDP);
	CU_ASSERT_EQUAL(parse_changed_ip4(29, 3), KVR_PKT_DENIED);
	make_good6(&f, 1);
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_DENIED);
	rules.n_allow = 2;
	CU_ASSERT_EQUAL(kvr_prefix_parse("fd00::/65", &rules.allow[1]), 0);
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_UDP);
	CU_ASSERT_EQUAL(parse_changed_ip6(30, 0x80), KVR_PKT_DENIED);
	CU_ASSERT_EQUAL(parse_changed_ip6(30, 0x7f), KVR_PKT_UDP);
	CU_ASSERT_EQUAL(kvr_prefix_parse("0.0.0.0/0", &rules.allow[1]), 0);
	make_good6(&f, 1);
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_DENIED);
}

static void arp_is_accepted_for_our_address_only(void)
{
	static const uint8_t head[8] = {0, 1, 8, 0, 6, 4, 0, 1};

	make_rules(&rules);
	add_eth(&f, "\xff\xff\xff\xff\xff\xff", PEER_MAC, 0x0806);
	append_bytes(&f, head, 8);
	append_bytes(&f, PEER_MAC PEER_IP4, 10);
	append_bytes(&f, "\0\0\0\0\0\0" OUR_IP4, 10);
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_ARP);
	CU_ASSERT_EQUAL(parse_bytes(f.b, f.len - 1, 0), KVR_PKT_TRUNCATED);
	f.b[41] ^= 0x20;
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_OTHER_ADDR);
	f.b[41] ^= 0x20;
	f.b[21] = 3;
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_OTHER_PROTO);
	f.b[21] = 2;
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_ARP);
	f.b[18] = 8;
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_OTHER_PROTO);
}

/* Truncate at every byte: never a datagram, never a read beyond the end (ASan). */
static void truncated_frames_are_rejected(void)
{
	make_rules(&rules);
	rules.verify_udp = true;
	for (int kind = 0; kind < 6; kind++) {
		kind % 2 == 0 ? make_good4(&f, 30) : make_good6(&f, 30);
		for (int tags = 0; tags < kind / 2; tags++)
			insert_tag(&f, tags == 1 ? 0x88a8 : 0x8100, 9);
		CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_UDP);
		for (uint32_t n = 0; n < f.len; n++)
			CU_ASSERT_NOT_EQUAL(parse_bytes(f.b, n, 0), KVR_PKT_UDP);
	}
}

/* A million damaged frames: an accepted payload lies within its frame and has a sane source. */
static void mutated_frames_are_never_read_beyond_their_end(void)
{
	struct kvr_rand r;
	uint32_t passed = 0, verdicts = 0;
	bool ok = true;

	make_rules(&rules);
	kvr_rand_init(&r, 2026);
	for (uint32_t i = 0; i < 1000000; i++) {
		const uint32_t n = 1 + kvr_rand_below(&r, 3);
		enum kvr_pkt_verdict v;
		uint32_t len;

		rules.verify_udp = i & 8;
		i & 1 ? make_good6(&f, i & 63) : make_good4(&f, i & 63);
		if (i & 2)
			insert_tag(&f, 0x8100, i & 0xfff);
		for (uint32_t k = 0; k < n; k++)
			f.b[kvr_rand_below(&r, RTE_MIN(f.len, 66u))] = (uint8_t)kvr_rand_u64(&r);
		len = i & 4 ? f.len : kvr_rand_below(&r, f.len + 1);
		/*
		 * The IP checksum would hide most damage: half of the time it is reported as valid.
		 */
		v = parse_bytes(f.b, len, i & 16 ? KVR_PKT_HW_IP_GOOD : 0);
		verdicts |= 1u << v;
		ok = ok && v < KVR_PKT_VERDICTS && pkt.verdict == v;
		if (v != KVR_PKT_UDP)
			continue;
		passed++;
		ok = ok && (uint32_t)pkt.off + pkt.len <= len && pkt.off >= 42 &&
		     pkt.path.udp_port != 0 && (pkt.path.family == 4 || pkt.path.family == 6) &&
		     (pkt.path.mac[0] & 1) == 0;
	}
	CU_ASSERT_TRUE(ok);
	CU_ASSERT_TRUE(passed > 10000 && passed < 900000);
	/* All faults of a UDP frame have occurred. */
	CU_ASSERT_EQUAL(verdicts & (1u << KVR_PKT_BAD_UDP | 1u << KVR_PKT_FRAGMENT |
				    1u << KVR_PKT_IP6_EXT | 1u << KVR_PKT_TRUNCATED),
			1u << KVR_PKT_BAD_UDP | 1u << KVR_PKT_FRAGMENT | 1u << KVR_PKT_IP6_EXT |
				1u << KVR_PKT_TRUNCATED);
}

static void stripped_mbuf_holds_the_payload(void)
{
	uint8_t buf[512];
	struct rte_mbuf m;

	make_rules(&rules);
	make_good4(&f, 7);
	f.len += 11; /* padding */
	CU_ASSERT_EQUAL(parse_frame(), KVR_PKT_UDP);
	make_mbuf(&m, buf, sizeof(buf), 128, f.b, (uint16_t)f.len);
	kvr_pkt_strip(&m, &pkt);
	CU_ASSERT_EQUAL(m.pkt_len, 7);
	CU_ASSERT_EQUAL(m.data_len, 7);
	CU_ASSERT_EQUAL(memcmp(rte_pktmbuf_mtod(&m, void *), f.b + 42, 7), 0);
}

/*
 * Rules with an allow-list that covers all sources use the slow path, rules without a list the fast
 * path.
 */
static void fast_and_slow_path_agree(void)
{
	struct kvr_pkt_rules listed;
	uint32_t passed = 0;
	struct kvr_rand r;

	kvr_rand_init(&r, 7);
	for (uint32_t n = 0; n < 200000; n++) {
		const uint64_t w = kvr_rand_u64(&r);
		const uint32_t changes = (uint32_t)w & 3,
			       hw = (uint32_t)(w >> 8) & ((w >> 40 & 3) != 0 ? 5u : 15u);
		struct kvr_pkt a, b;
		uint32_t len;

		make_rules(&rules);
		rules.verify_udp = (w >> 2 & 1) != 0;
		make_good4(&f, (uint32_t)(w >> 12) & 63);
		if ((w >> 3 & 7) == 0)
			set_be16(f.b + 40, 0);
		for (uint32_t k = 0; k < changes; k++) {
			const uint64_t c = kvr_rand_u64(&r);

			/*
			 * Change a bit or a byte of the headers; most changes of the second kind
			 * break a checksum.
			 */
			f.b[c % 42] ^=
				(uint8_t)((c >> 16 & 1) != 0 ? 1u << (c >> 20 & 7) : c >> 24);
		}
		if ((w >> 6 & 1) != 0) { /* repair the header checksum */
			set_be16(f.b + 24, 0);
			set_be16(f.b + 24, ~slow_sum(f.b + 14, 20, 0) & 0xffff);
		}
		len = (w >> 32 & 7) == 0 ? (uint32_t)(w >> 36) % (f.len + 1) : f.len;
		listed = rules;
		listed.n_allow = 1;
		memset(&listed.allow[0], 0, sizeof(listed.allow[0]));
		memset(&a, 0x55, sizeof(a));
		memset(&b, 0xaa, sizeof(b));
		kvr_pkt_parse(&rules, f.b, len, hw, &a);
		kvr_pkt_parse(&listed, f.b, len, hw, &b);
		CU_ASSERT_EQUAL_FATAL(a.verdict, b.verdict);
		CU_ASSERT_EQUAL_FATAL(memcmp(&a, &b, sizeof(a)), 0);
		passed += a.verdict == KVR_PKT_UDP;
	}
	CU_ASSERT_TRUE(passed > 40000 && passed < 160000);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(an_ipv4_datagram_yields_payload_and_path),
			       KVR_CASE(an_ipv6_datagram_yields_payload_and_path),
			       KVR_CASE(tags_are_read_and_remembered),
			       KVR_CASE(only_the_configured_vlan_is_accepted),
			       KVR_CASE(options_and_padding_are_accepted),
			       KVR_CASE(every_ipv4_fault_has_its_verdict),
			       KVR_CASE(every_ipv6_fault_has_its_verdict),
			       KVR_CASE(udp_checksums_are_trusted_verified_or_known_bad),
			       KVR_CASE(allow_list_matches_by_prefix_and_family),
			       KVR_CASE(arp_is_accepted_for_our_address_only),
			       KVR_CASE(truncated_frames_are_rejected),
			       KVR_CASE(mutated_frames_are_never_read_beyond_their_end),
			       KVR_CASE(fast_and_slow_path_agree),
			       KVR_CASE(stripped_mbuf_holds_the_payload),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("pkt", tests);
}
