/* SPDX-License-Identifier: BSD-3-Clause */
#include "address.h"

#include <errno.h>
#include <string.h>

#include "kvr_test.h"

static void addresses_are_classified_by_reach(void)
{
	static const struct {
		const char *host;
		enum agent_reach reach;
	} rows[] = {
		{"0.0.0.0", AGENT_REACH_ANY},	     {"::", AGENT_REACH_ANY},
		{"::ffff:0.0.0.0", AGENT_REACH_ANY}, {"127.0.0.1", AGENT_REACH_SELF},
		{"127.255.3.4", AGENT_REACH_SELF},   {"::1", AGENT_REACH_SELF},
		{"localhost", AGENT_REACH_SELF},     {"::ffff:127.0.0.1", AGENT_REACH_SELF},
		{"169.254.1.1", AGENT_REACH_LINK},   {"fe80::1", AGENT_REACH_LINK},
		{"224.0.0.1", AGENT_REACH_GROUP},    {"255.255.255.255", AGENT_REACH_GROUP},
		{"ff02::1", AGENT_REACH_GROUP},	     {"10.0.0.1", AGENT_REACH_HOST},
		{"126.0.0.1", AGENT_REACH_HOST},     {"2001:db8::1", AGENT_REACH_HOST},
		{"engine-7", AGENT_REACH_NAME},	     {"", AGENT_REACH_NAME},
	};

	for (unsigned int i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (agent_address_reach(rows[i].host) != rows[i].reach) {
			CU_FAIL("reach");
			printf("%s: %d\n", rows[i].host, agent_address_reach(rows[i].host));
		}
}

static void host_and_port_are_split(void)
{
	static const char *const bad[] = {"",	   "h",	    "h:",  ":1",      "h:x",
					  "h:1x",  "h:-1",  "::1", "h:65536", "[]:80",
					  "a:b:1", "[::1]", "h: 1"};
	char host[32], port[6];

	CU_ASSERT_EQUAL(agent_address_split("10.0.0.1:0080", host, sizeof(host), port), 0);
	CU_ASSERT(strcmp(host, "10.0.0.1") == 0 && strcmp(port, "80") == 0);
	CU_ASSERT_EQUAL(agent_address_split("[::1]:65535", host, sizeof(host), port), 0);
	CU_ASSERT(strcmp(host, "::1") == 0 && strcmp(port, "65535") == 0);
	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CU_ASSERT_EQUAL(agent_address_split(bad[i], host, sizeof(host), port), -EINVAL);
	CU_ASSERT_EQUAL(agent_address_split("12345678:1", host, 8, port), -EINVAL);
}

static void the_published_address_is_reachable(void)
{
	static const struct {
		const char *host, *facing;
		enum agent_replace replace;
		const char *told; /* NULL: an error */
	} rows[] = {
		{"0.0.0.0", "10.9.9.9", AGENT_REPLACE_NONE, NULL},
		{"127.0.0.1", "10.9.9.9", AGENT_REPLACE_NONE, NULL},
		{"10.0.0.1", "10.9.9.9", AGENT_REPLACE_ANY, "10.0.0.1:80"},
		{"2001:db8::1", "", AGENT_REPLACE_ANY, "[2001:db8::1]:80"},
		{"0.0.0.0", "10.9.9.9", AGENT_REPLACE_ANY, "10.9.9.9:80"},
		{"::", "2001:db8::9", AGENT_REPLACE_ANY, "[2001:db8::9]:80"},
		{"0.0.0.0", "", AGENT_REPLACE_ANY, NULL},
		{"0.0.0.0", "fe80::1", AGENT_REPLACE_ANY, NULL},
		{"0.0.0.0", "127.0.0.1", AGENT_REPLACE_ANY, "127.0.0.1:80"},
		{"127.0.0.1", "10.9.9.9", AGENT_REPLACE_ANY, NULL},
		{"127.0.0.1", "10.9.9.9", AGENT_REPLACE_SELF, "10.9.9.9:80"},
		{"localhost", "10.9.9.9", AGENT_REPLACE_SELF, "10.9.9.9:80"},
		{"127.0.0.1", "", AGENT_REPLACE_SELF, NULL},
		{"127.0.0.1", "127.0.0.1", AGENT_REPLACE_SELF, "127.0.0.1:80"},
		{"::1", "127.0.0.1", AGENT_REPLACE_ANY, "[::1]:80"},
		{"169.254.0.1", "10.9.9.9", AGENT_REPLACE_SELF, NULL},
		{"224.0.0.1", "10.9.9.9", AGENT_REPLACE_SELF, NULL},
		{"engine-7", "10.9.9.9", AGENT_REPLACE_SELF, "engine-7:80"},
	};
	char out[101];

	for (unsigned int i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const int rc = agent_address_publish(rows[i].host, "80", rows[i].facing,
						     rows[i].replace, out, sizeof(out));

		CU_ASSERT_EQUAL(rc, rows[i].told != NULL ? 0 : -EADDRNOTAVAIL);
		if (rc == 0 && rows[i].told != NULL)
			CU_ASSERT_STRING_EQUAL(out, rows[i].told);
	}
	CU_ASSERT_EQUAL(agent_address_publish("10.0.0.1", "80", "", AGENT_REPLACE_NONE, out, 11),
			-ENAMETOOLONG);
}

static void the_address_that_faces_the_router_is_found(void)
{
	char out[64];

	agent_address_facing("127.0.0.1:7650", out, sizeof(out));
	CU_ASSERT_STRING_EQUAL(out, "127.0.0.1");
	agent_address_facing("127.0.0.1", out, sizeof(out));
	CU_ASSERT_STRING_EQUAL(out, "127.0.0.1");
	agent_address_facing("[::1]:7650", out, sizeof(out));
	CU_ASSERT(strcmp(out, "::1") == 0 || out[0] == '\0'); /* a machine without IPv6 */
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(addresses_are_classified_by_reach), KVR_CASE(host_and_port_are_split),
		KVR_CASE(the_published_address_is_reachable),
		KVR_CASE(the_address_that_faces_the_router_is_found), CU_TEST_INFO_NULL};

	return kvr_test_run("address", tests);
}
