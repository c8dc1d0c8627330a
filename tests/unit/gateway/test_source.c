/* SPDX-License-Identifier: BSD-3-Clause */
#include "source.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "kvr_test.h"

static struct gw_source *open_from(struct gw_sources *s, const char *text)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};

	if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
		return gw_source_open(s, (struct sockaddr *)&v4);
	CU_ASSERT_EQUAL(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
	return gw_source_open(s, (struct sockaddr *)&v6);
}

static void connections_per_address_are_limited(void)
{
	struct gw_sources *s = gw_sources_create(2, 0, 7);
	struct gw_source *a = open_from(s, "10.0.0.1");

	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_PTR_EQUAL(open_from(s, "::ffff:10.0.0.1"),
			    a); /* the same address on an IPv6 socket */
	CU_ASSERT_PTR_NULL(open_from(s, "10.0.0.1"));
	CU_ASSERT_EQUAL(errno, EBUSY);
	CU_ASSERT_PTR_NOT_NULL(open_from(s, "10.0.0.2"));
	gw_source_close(s, a);
	CU_ASSERT_PTR_EQUAL(open_from(s, "10.0.0.1"), a);
	gw_sources_destroy(s);
}

static void a_network_of_64_bits_is_one_address(void)
{
	struct gw_sources *s = gw_sources_create(1, 0, 7);

	CU_ASSERT_PTR_NOT_NULL(open_from(s, "2001:db8::1"));
	CU_ASSERT_PTR_NULL(open_from(s, "2001:db8::ffff:2"));
	CU_ASSERT_PTR_NOT_NULL(open_from(s, "2001:db8:0:1::1"));
	CU_ASSERT_PTR_NOT_NULL(open_from(s, "0.0.0.0"));
	CU_ASSERT_PTR_NOT_NULL(open_from(s, "::")); /* as many zeros, of another family */
	gw_sources_destroy(s);
}

static void requests_of_a_second_may_burst(void)
{
	struct gw_sources *s = gw_sources_create(9, 4, 7);
	struct gw_source *a = open_from(s, "10.0.0.1"), *b = open_from(s, "10.0.0.2");

	for (int i = 0; i < 4; i++)
		CU_ASSERT_EQUAL(gw_source_ask(s, a, 1000), 0);
	CU_ASSERT_EQUAL(gw_source_ask(s, a, 1000), 1);
	CU_ASSERT_EQUAL(gw_source_ask(s, a, 1249), 1);
	CU_ASSERT_EQUAL(gw_source_ask(s, a, 1250), 0); /* a quarter of a second allows one */
	CU_ASSERT_EQUAL(gw_source_ask(s, a, 1250), 1);
	CU_ASSERT_EQUAL(gw_source_ask(s, b, 1250), 0); /* other addresses are independent */
	for (int i = 0; i < 4; i++)		       /* a pause restores one second, not more */
		CU_ASSERT_EQUAL(gw_source_ask(s, a, 100000), 0);
	CU_ASSERT_EQUAL(gw_source_ask(s, a, 100000), 1);
	gw_sources_destroy(s);
}

static void a_returning_address_keeps_its_rate(void)
{
	struct gw_sources *s = gw_sources_create(1, 1, 7);
	struct gw_source *a = open_from(s, "10.0.0.1");
	char text[32];

	CU_ASSERT_EQUAL(gw_source_ask(s, a, 5000), 0);
	gw_source_close(s, a);
	a = open_from(s, "10.0.0.1");
	CU_ASSERT_EQUAL(gw_source_ask(s, a, 5000), 1);
	gw_source_close(s, a);
	for (unsigned int i = 0; i < 5000; i++) { /* until 4,096 others have left after it */
		snprintf(text, sizeof(text), "11.0.%u.%u", i / 256, i % 256);
		a = open_from(s, text);
		CU_ASSERT_PTR_NOT_NULL_FATAL(a);
		gw_source_close(s, a);
	}
	a = open_from(s, "10.0.0.1");
	CU_ASSERT_EQUAL(gw_source_ask(s, a, 5000), 0);
	gw_sources_destroy(s);
}

/* As calls do: hold the bytes, and return them if they do not fit. */
static bool has_room(struct gw_sources *s, struct gw_source *src, int64_t bytes)
{
	gw_source_hold(s, src, GW_BUDGET_CALLS, bytes);
	if (gw_source_fits(s, src, GW_BUDGET_CALLS, 0, 1000, 3))
		return true;
	gw_source_hold(s, src, GW_BUDGET_CALLS, -bytes);
	return false;
}

static uint64_t fill_table(struct gw_sources *s, struct gw_source *src)
{
	while (has_room(s, src, 1))
		continue;
	return gw_source_held(s, src, GW_BUDGET_CALLS);
}

static void a_new_address_finds_free_bytes(void)
{
	struct gw_sources *s = gw_sources_create(9, 0, 7);
	struct gw_source *a = open_from(s, "10.0.0.1"), *b = open_from(s, "10.0.0.2");
	struct gw_source *c = open_from(s, "10.0.0.3");

	CU_ASSERT_EQUAL(fill_table(s, a), 750);
	CU_ASSERT_EQUAL(fill_table(s, b), 187); /* three quarters of the free part */
	CU_ASSERT_FALSE(has_room(s, a, 1));
	CU_ASSERT_TRUE(has_room(s, c, 40));
	gw_source_hold(s, a, GW_BUDGET_CALLS,
		       -350); /* as its requests end, the addresses become equal */
	CU_ASSERT_EQUAL(fill_table(s, b), 420);
	CU_ASSERT_EQUAL(fill_table(s, a), 405);
	CU_ASSERT_EQUAL(gw_source_held(s, NULL, GW_BUDGET_CALLS), 405 + 420 + 40);
	CU_ASSERT_TRUE(gw_source_fits(s, a, GW_BUDGET_CALLS, 0, 1000, 15));
	CU_ASSERT_FALSE(
		gw_source_fits(s, c, GW_BUDGET_CALLS, 141, 1000, 15)); /* it does not exist */
	CU_ASSERT_TRUE(
		gw_source_fits(s, a, GW_BUDGET_BODIES, 750, 1000, 3)); /* another kind of bytes */
	gw_sources_destroy(s);
}

/* Waiting bytes outlive their connection, and keep the address. */
static void bytes_keep_their_address(void)
{
	struct gw_sources *s = gw_sources_create(1, 1, 7);
	struct gw_source *a = open_from(s, "10.0.0.1"), *other;
	char text[32];

	gw_source_hold(s, a, GW_BUDGET_BODIES, 5);
	gw_source_close(s, a);
	for (unsigned int i = 0; i < 5000; i++) {
		snprintf(text, sizeof(text), "11.0.%u.%u", i / 256, i % 256);
		other = open_from(s, text);
		CU_ASSERT_PTR_NOT_NULL_FATAL(other);
		gw_source_close(s, other);
	}
	CU_ASSERT_EQUAL(gw_source_held(s, a, GW_BUDGET_BODIES), 5);
	CU_ASSERT_PTR_EQUAL(open_from(s, "10.0.0.1"), a);
	gw_source_close(s, a);
	gw_source_hold(s, a, GW_BUDGET_BODIES, -5);
	CU_ASSERT_PTR_EQUAL(open_from(s, "10.0.0.1"), a);
	CU_ASSERT_EQUAL(gw_source_held(s, NULL, GW_BUDGET_BODIES), 0);
	gw_sources_destroy(s);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(connections_per_address_are_limited),
			       KVR_CASE(a_network_of_64_bits_is_one_address),
			       KVR_CASE(requests_of_a_second_may_burst),
			       KVR_CASE(a_returning_address_keeps_its_rate),
			       KVR_CASE(a_new_address_finds_free_bytes),
			       KVR_CASE(bytes_keep_their_address),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("gateway source", tests);
}
