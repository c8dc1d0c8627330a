/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_cookie.h"

#include "kvr_test.h"

#define WINDOW (UINT64_C(1) << KVR_COOKIE_WINDOW_BITS)

static const struct kvr_path client = {
	.ip = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 2}, .udp_port = 40000, .family = 4};

static void the_current_and_the_previous_window_are_valid(void)
{
	struct kvr_cookie_key key;
	const uint64_t now = 5 * WINDOW + 77;
	uint64_t c;

	CU_ASSERT_EQUAL_FATAL(kvr_cookie_key_init(&key), 0);
	c = kvr_cookie(&key, &client, now);
	CU_ASSERT_NOT_EQUAL(c, 0);
	CU_ASSERT_TRUE(kvr_cookie_ok(&key, &client, now, c));
	CU_ASSERT_TRUE(kvr_cookie_ok(&key, &client, now + WINDOW, c));
	CU_ASSERT_FALSE(kvr_cookie_ok(&key, &client, now + 2 * WINDOW, c));
	CU_ASSERT_FALSE(kvr_cookie_ok(&key, &client, now - WINDOW, c)); /* of a future window */
	CU_ASSERT_FALSE(kvr_cookie_ok(&key, &client, now, 0));
	CU_ASSERT_FALSE(kvr_cookie_ok(&key, &client, now, c ^ 1));
}

static void a_cookie_belongs_to_one_address_and_port(void)
{
	struct kvr_cookie_key key;
	struct kvr_path other = client;
	uint64_t c;

	CU_ASSERT_EQUAL_FATAL(kvr_cookie_key_init(&key), 0);
	c = kvr_cookie(&key, &client, 1);
	other.mac[0] = 9; /* the next hop is not part of the address */
	other.max_frame = 600;
	CU_ASSERT_TRUE(kvr_cookie_ok(&key, &other, 1, c));
	other.udp_port++;
	CU_ASSERT_FALSE(kvr_cookie_ok(&key, &other, 1, c));
	other = client;
	other.ip[15]++;
	CU_ASSERT_FALSE(kvr_cookie_ok(&key, &other, 1, c));
	other = client;
	other.vlan = 3;
	CU_ASSERT_FALSE(kvr_cookie_ok(&key, &other, 1, c));
}

static void every_start_has_another_key(void)
{
	struct kvr_cookie_key key, b;

	CU_ASSERT_EQUAL_FATAL(kvr_cookie_key_init(&key), 0);
	CU_ASSERT_EQUAL_FATAL(kvr_cookie_key_init(&b), 0);
	CU_ASSERT_FALSE(kvr_cookie_ok(&b, &client, 1, kvr_cookie(&key, &client, 1)));
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(the_current_and_the_previous_window_are_valid),
			       KVR_CASE(a_cookie_belongs_to_one_address_and_port),
			       KVR_CASE(every_start_has_another_key), CU_TEST_INFO_NULL};

	return kvr_test_run("cookie", tests);
}
