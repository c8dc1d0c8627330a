/* SPDX-License-Identifier: BSD-3-Clause */
#include "source.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "kvr_test.h"

static struct gw_source *from(struct gw_sources *s, const char *text)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};

	if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
		return gw_source_open(s, (struct sockaddr *)&v4);
	CU_ASSERT_EQUAL(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
	return gw_source_open(s, (struct sockaddr *)&v6);
}

static void an_address_has_its_share_of_connections(void)
{
	struct gw_sources *s = gw_sources_create(2, 0, 7);
	struct gw_source *a = from(s, "10.0.0.1");

	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_PTR_EQUAL(from(s, "::ffff:10.0.0.1"), a); /* the same, of a socket of IPv6 */
	CU_ASSERT_PTR_NULL(from(s, "10.0.0.1"));
	CU_ASSERT_EQUAL(errno, EBUSY);
	CU_ASSERT_PTR_NOT_NULL(from(s, "10.0.0.2"));
	gw_source_close(s, a);
	CU_ASSERT_PTR_EQUAL(from(s, "10.0.0.1"), a);
	gw_sources_destroy(s);
}

static void a_network_of_64_bits_is_one_address(void)
{
	struct gw_sources *s = gw_sources_create(1, 0, 7);

	CU_ASSERT_PTR_NOT_NULL(from(s, "2001:db8::1"));
	CU_ASSERT_PTR_NULL(from(s, "2001:db8::ffff:2"));
	CU_ASSERT_PTR_NOT_NULL(from(s, "2001:db8:0:1::1"));
	CU_ASSERT_PTR_NOT_NULL(from(s, "0.0.0.0"));
	CU_ASSERT_PTR_NOT_NULL(from(s, "::")); /* as many zeros, and another family */
	gw_sources_destroy(s);
}

static void requests_of_a_second_may_come_at_once(void)
{
	struct gw_sources *s = gw_sources_create(9, 4, 7);
	struct gw_source *a = from(s, "10.0.0.1"), *b = from(s, "10.0.0.2");

	for (int i = 0; i < 4; i++)
		CU_ASSERT_EQUAL(gw_source_ask(s, a, 1000), 0);
	CU_ASSERT_EQUAL(gw_source_ask(s, a, 1000), 1);
	CU_ASSERT_EQUAL(gw_source_ask(s, a, 1249), 1);
	CU_ASSERT_EQUAL(gw_source_ask(s, a, 1250), 0); /* a quarter of a second pays for one */
	CU_ASSERT_EQUAL(gw_source_ask(s, a, 1250), 1);
	CU_ASSERT_EQUAL(gw_source_ask(s, b, 1250), 0); /* others are others */
	for (int i = 0; i < 4; i++)		       /* silence pays for a second, not for more */
		CU_ASSERT_EQUAL(gw_source_ask(s, a, 100000), 0);
	CU_ASSERT_EQUAL(gw_source_ask(s, a, 100000), 1);
	gw_sources_destroy(s);
}

static void who_comes_again_is_remembered(void)
{
	struct gw_sources *s = gw_sources_create(1, 1, 7);
	struct gw_source *a = from(s, "10.0.0.1");
	char text[32];

	CU_ASSERT_EQUAL(gw_source_ask(s, a, 5000), 0);
	gw_source_close(s, a);
	a = from(s, "10.0.0.1");
	CU_ASSERT_EQUAL(gw_source_ask(s, a, 5000), 1);
	gw_source_close(s, a);
	for (unsigned int i = 0; i < 5000; i++) { /* until 4,096 others have gone after it */
		snprintf(text, sizeof(text), "11.0.%u.%u", i / 256, i % 256);
		a = from(s, text);
		CU_ASSERT_PTR_NOT_NULL_FATAL(a);
		gw_source_close(s, a);
	}
	a = from(s, "10.0.0.1");
	CU_ASSERT_EQUAL(gw_source_ask(s, a, 5000), 0);
	gw_sources_destroy(s);
}

/* As calls do: hold it, and give it back when it does not fit. */
static bool room(struct gw_sources *s, struct gw_source *src, int64_t bytes)
{
	gw_source_hold(s, src, GW_ROOM_CALLS, bytes);
	if (gw_source_fits(s, src, GW_ROOM_CALLS, 0, 1000, 3))
		return true;
	gw_source_hold(s, src, GW_ROOM_CALLS, -bytes);
	return false;
}

static uint64_t fill(struct gw_sources *s, struct gw_source *src)
{
	while (room(s, src, 1))
		continue;
	return gw_source_held(s, src, GW_ROOM_CALLS);
}

static void who_comes_new_finds_room(void)
{
	struct gw_sources *s = gw_sources_create(9, 0, 7);
	struct gw_source *a = from(s, "10.0.0.1"), *b = from(s, "10.0.0.2");
	struct gw_source *c = from(s, "10.0.0.3");

	CU_ASSERT_EQUAL(fill(s, a), 750);
	CU_ASSERT_EQUAL(fill(s, b), 187); /* three quarters of what is free */
	CU_ASSERT_FALSE(room(s, a, 1));
	CU_ASSERT_TRUE(room(s, c, 40));
	gw_source_hold(s, a, GW_ROOM_CALLS, -350); /* as its requests end, they become equal */
	CU_ASSERT_EQUAL(fill(s, b), 420);
	CU_ASSERT_EQUAL(fill(s, a), 405);
	CU_ASSERT_EQUAL(gw_source_held(s, NULL, GW_ROOM_CALLS), 405 + 420 + 40);
	CU_ASSERT_TRUE(gw_source_fits(s, a, GW_ROOM_CALLS, 0, 1000, 15));
	CU_ASSERT_FALSE(gw_source_fits(s, c, GW_ROOM_CALLS, 141, 1000, 15)); /* it is not there */
	CU_ASSERT_TRUE(gw_source_fits(s, a, GW_ROOM_BODIES, 750, 1000, 3));  /* another room */
	gw_sources_destroy(s);
}

/* What waits outlives its connection, and its address with it. */
static void bytes_keep_their_address(void)
{
	struct gw_sources *s = gw_sources_create(1, 1, 7);
	struct gw_source *a = from(s, "10.0.0.1"), *other;
	char text[32];

	gw_source_hold(s, a, GW_ROOM_BODIES, 5);
	gw_source_close(s, a);
	for (unsigned int i = 0; i < 5000; i++) {
		snprintf(text, sizeof(text), "11.0.%u.%u", i / 256, i % 256);
		other = from(s, text);
		CU_ASSERT_PTR_NOT_NULL_FATAL(other);
		gw_source_close(s, other);
	}
	CU_ASSERT_EQUAL(gw_source_held(s, a, GW_ROOM_BODIES), 5);
	CU_ASSERT_PTR_EQUAL(from(s, "10.0.0.1"), a);
	gw_source_close(s, a);
	gw_source_hold(s, a, GW_ROOM_BODIES, -5);
	CU_ASSERT_PTR_EQUAL(from(s, "10.0.0.1"), a);
	CU_ASSERT_EQUAL(gw_source_held(s, NULL, GW_ROOM_BODIES), 0);
	gw_sources_destroy(s);
}

int main(void)
{
	CU_TestInfo tests[] = {{"connections", an_address_has_its_share_of_connections},
			       {"networks", a_network_of_64_bits_is_one_address},
			       {"rate", requests_of_a_second_may_come_at_once},
			       {"again", who_comes_again_is_remembered},
			       {"room", who_comes_new_finds_room},
			       {"bytes", bytes_keep_their_address},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("gateway source", tests);
}
