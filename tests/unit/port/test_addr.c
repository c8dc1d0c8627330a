/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_port.h"

#include <errno.h>

#include "kvr_test.h"

static void addresses_read_and_print(void)
{
	static const struct {
		const char *text, *printed;
		int family;
	} c[] = {
		{"10.0.0.1", "10.0.0.1", 4},	  {"0.0.0.0", "0.0.0.0", 4},
		{"fd00::1", "fd00::1", 6},	  {"FD00:0:0::1", "fd00::1", 6},
		{"::ffff:1.2.3.4", "1.2.3.4", 6}, {"10.0.0", NULL, -EINVAL},
		{"10.0.0.1 ", NULL, -EINVAL},	  {"", NULL, -EINVAL},
		{"fd00::1%eth0", NULL, -EINVAL},  {"10.0.0.256", NULL, -EINVAL},
	};
	char text[46];
	uint8_t ip[16];

	for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		CU_ASSERT_EQUAL(kvr_ip_parse(c[i].text, ip), c[i].family);
		if (c[i].family > 0)
			CU_ASSERT_STRING_EQUAL(kvr_ip_text(ip, text, sizeof(text)), c[i].printed);
	}
	CU_ASSERT_STRING_EQUAL(kvr_ip_text(ip, text, 3), ""); /* no room */
}

static void prefixes_read_and_mask(void)
{
	static const char *const bad[] = {"",		"/8",	       "10.0.0.0/",   "10.0.0.0/33",
					  "10/8",	"10.0.0.0/8 ", "10.0.0.0/-1", "fd00::/129",
					  "10.0.0.0/a", "10.0.0.0/+8"};
	struct kvr_prefix p;
	const uint8_t *a = (const uint8_t *)p.addr, *m = (const uint8_t *)p.mask;

	CU_ASSERT_EQUAL(kvr_prefix_parse("10.1.2.3/15", &p), -ERANGE);
	CU_ASSERT_EQUAL(memcmp(a, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\0", 16), 0);
	CU_ASSERT_EQUAL(m[11], 0xff);
	CU_ASSERT_EQUAL(m[12], 0xff);
	CU_ASSERT_EQUAL(m[13], 0xfe);
	CU_ASSERT_EQUAL(m[14], 0);
	CU_ASSERT_EQUAL(kvr_prefix_parse("fd12::1", &p), 0);
	CU_ASSERT_EQUAL(a[1], 0x12);
	CU_ASSERT_EQUAL(m[15], 0xff);
	CU_ASSERT_EQUAL(kvr_prefix_parse("::/0", &p), 0);
	CU_ASSERT_EQUAL(p.mask[0] | p.mask[1], 0);
	CU_ASSERT_EQUAL(kvr_prefix_parse("fd00::/9", &p), 0);
	CU_ASSERT_EQUAL(kvr_prefix_parse("fd80::/8", &p), -ERANGE);
	CU_ASSERT_EQUAL(kvr_prefix_parse("0.0.0.1/0", &p), -ERANGE);
	CU_ASSERT_EQUAL(kvr_prefix_parse("10.0.0.5/32", &p), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CU_ASSERT_EQUAL(kvr_prefix_parse(bad[i], &p), -EINVAL);
}

static void paths_print_as_text(void)
{
	struct kvr_path p = {.family = 4, .udp_port = 7650};
	char text[KVR_PATH_TEXT];

	CU_ASSERT_EQUAL(kvr_ip_parse("10.0.0.1", p.ip), 4);
	CU_ASSERT_STRING_EQUAL(kvr_path_text(&p, text, sizeof(text)), "10.0.0.1:7650");
	p.vlan = 100;
	CU_ASSERT_STRING_EQUAL(kvr_path_text(&p, text, sizeof(text)), "10.0.0.1:7650%vlan100");
	p.family = 6;
	p.vlan_outer = KVR_PATH_OUTER_8100 | 7;
	CU_ASSERT_EQUAL(kvr_ip_parse("fd00::1", p.ip), 6);
	CU_ASSERT_STRING_EQUAL(kvr_path_text(&p, text, sizeof(text)), "[fd00::1]:7650%vlan7.100");
	p.family = 0;
	CU_ASSERT_STRING_EQUAL(kvr_path_text(&p, text, sizeof(text)), "none");
}

static void paths_are_compared_by_identity(void)
{
	struct kvr_path a = {.family = 4, .udp_port = 1, .vlan = 2, .port = 3, .ip = {[15] = 9}};
	struct kvr_path b = a;

	b.mac[0] = 2;
	b.max_frame = 1400;
	CU_ASSERT_TRUE(kvr_path_same(&a, &b));
	CU_ASSERT_EQUAL(kvr_path_hash(&a, 42), kvr_path_hash(&b, 42));
	CU_ASSERT_NOT_EQUAL(kvr_path_hash(&a, 42), kvr_path_hash(&a, 43));
	for (size_t i = 0; i < KVR_PATH_ID_BYTES; i++) {
		b = a;
		((uint8_t *)&b)[i] ^= 1;
		CU_ASSERT_FALSE(kvr_path_same(&a, &b));
		CU_ASSERT_NOT_EQUAL(kvr_path_hash(&a, 42), kvr_path_hash(&b, 42));
	}
}

static void configuration_becomes_rules(void)
{
	struct kvr_port_conf c;
	struct kvr_pkt_rules r;
	char err[256];

	kvr_conf_defaults(kvr_port_opts, &c);
	strcpy(c.ipv4, "10.0.0.1");
	strcpy(c.ipv6, "fd00::1");
	strcpy(c.allow, "10.0.0.0/8 fd00::/8,192.168.0.0/16\t127.0.0.1");
	c.mtu = 9000;
	c.vlan = 7;
	CU_ASSERT_EQUAL(kvr_port_rules(&c, 2, &r, err, sizeof(err)), 0);
	CU_ASSERT_EQUAL(r.local.max_frame4, 8972);
	CU_ASSERT_EQUAL(r.local.max_frame6, 8952);
	CU_ASSERT_EQUAL(r.local.udp_port, 7650);
	CU_ASSERT_EQUAL(r.local.port, 2);
	CU_ASSERT_EQUAL(r.local.ip4[3], 1);
	CU_ASSERT_EQUAL(r.local.ip6[0], 0xfd);
	CU_ASSERT_EQUAL(r.vlan, 7);
	CU_ASSERT_EQUAL(r.n_allow, 4);
	CU_ASSERT_FALSE(r.verify_udp);
}

static void bad_configuration_names_the_key(void)
{
	static const struct {
		const char *ipv4, *ipv6, *allow, *err;
	} c[] = {
		{"", "", "", "ipv4: neither ipv4 nor ipv6 is given, one is needed"},
		{"fd00::1", "", "",
		 "ipv4: got \"fd00::1\", allowed: a unicast IPv4 address, not the loopback, no "
		 "prefix length"},
		{"10.0.0.1/24", "", "",
		 "ipv4: got \"10.0.0.1/24\", allowed: a unicast IPv4 address, not the loopback, no "
		 "prefix length"},
		{"224.0.0.1", "", "",
		 "ipv4: got \"224.0.0.1\", allowed: a unicast IPv4 address, not the loopback, no "
		 "prefix length"},
		{"0.0.0.0", "", "",
		 "ipv4: got \"0.0.0.0\", allowed: a unicast IPv4 address, not the loopback, no "
		 "prefix length"},
		{"127.0.0.1", "", "",
		 "ipv4: got \"127.0.0.1\", allowed: a unicast IPv4 address, not the loopback, no "
		 "prefix length"},
		{"", "ff02::1", "",
		 "ipv6: got \"ff02::1\", allowed: a unicast IPv6 address, not the loopback, no "
		 "prefix length"},
		{"", "::1", "",
		 "ipv6: got \"::1\", allowed: a unicast IPv6 address, not the loopback, no prefix "
		 "length"},
		{"10.0.0.1", "", "10.0.0.0/8 what",
		 "allow: got \"what\", allowed: prefixes such as 10.0.0.0/8 fd00::/8, "
		 "blank-separated"},
		{"10.0.0.1", "", "10.0.0.5/24",
		 "allow: got \"10.0.0.5/24\", which has bits beyond its length, allowed: "
		 "10.0.0.0/24, or the one address without a length"},
		{"10.0.0.1", "", "fd00::1/64",
		 "allow: got \"fd00::1/64\", which has bits beyond its length, allowed: fd00::/64, "
		 "or the one address without a length"},
	};
	struct kvr_port_conf conf;
	struct kvr_pkt_rules r;
	char err[256];

	for (size_t i = 0; i < sizeof(c) / sizeof(c[0]); i++) {
		kvr_conf_defaults(kvr_port_opts, &conf);
		strcpy(conf.ipv4, c[i].ipv4);
		strcpy(conf.ipv6, c[i].ipv6);
		strcpy(conf.allow, c[i].allow);
		CU_ASSERT_EQUAL(kvr_port_rules(&conf, 0, &r, err, sizeof(err)), -EINVAL);
		CU_ASSERT_STRING_EQUAL(err, c[i].err);
	}
	strcpy(conf.ipv4, "10.0.0.1");
	conf.allow[0] = '\0';
	CU_ASSERT_EQUAL(kvr_port_rules(&conf, KVR_PORT_MAX, &r, err, sizeof(err)), -EINVAL);
	for (int i = 0; i < 64; i++) /* 64 prefixes of the longest form fill the list exactly */
		strcat(conf.allow, "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255/128 ");
	conf.allow[strlen(conf.allow) - 1] = '\0';
	CU_ASSERT_EQUAL(strlen(conf.allow), KVR_PORT_ALLOW_LEN - 1);
	CU_ASSERT_EQUAL(kvr_port_rules(&conf, 0, &r, err, sizeof(err)), 0);
	CU_ASSERT_EQUAL(r.n_allow, 64);
	for (strcpy(conf.allow, "::3"); strlen(conf.allow) < 65 * 4 - 1;)
		strcat(conf.allow, ",::3");
	CU_ASSERT_EQUAL(kvr_port_rules(&conf, 0, &r, err, sizeof(err)), -EINVAL);
	CU_ASSERT_STRING_EQUAL(err, "allow: \"::3\" is one too many, allowed: 64 prefixes");
}

/* Every verdict is in the receive equation, and every counter has a unique name. */
static void counters_are_complete(void)
{
	const struct kvr_stats_def *d = &kvr_port_stats_def;
	uint64_t v[KVR_PORT_COUNTERS] = {0};

	CU_ASSERT_EQUAL_FATAL(kvr_stats_count(d), KVR_PORT_COUNTERS);
	for (unsigned int i = 0; i < KVR_PORT_COUNTERS; i++)
		for (unsigned int j = 0; j < i; j++)
			CU_ASSERT_STRING_NOT_EQUAL(d->counters[i].name, d->counters[j].name);
	for (unsigned int i = 0; i < KVR_PKT_VERDICTS; i++) {
		v[KVR_PORT_RX_FRAMES]++;
		v[KVR_PORT_RX_VERDICT + i]++;
		v[KVR_PORT_RX_KEPT] += KVR_PORT_RX_VERDICT + i == KVR_PORT_RX_UDP;
		CU_ASSERT_PTR_NULL(kvr_stats_check(d, v, NULL, 0));
	}
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(addresses_read_and_print),    KVR_CASE(prefixes_read_and_mask),
		KVR_CASE(paths_print_as_text),	       KVR_CASE(paths_are_compared_by_identity),
		KVR_CASE(configuration_becomes_rules), KVR_CASE(bad_configuration_names_the_key),
		KVR_CASE(counters_are_complete),       CU_TEST_INFO_NULL};

	return kvr_test_run("addr", tests);
}
