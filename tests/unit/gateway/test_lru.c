/* SPDX-License-Identifier: BSD-3-Clause */
#include "lru.h"

#include <string.h>

#include "kvr_test.h"

static struct gw_lru *l;

static void put_id(const char *text, uint32_t first, uint32_t n)
{
	const struct gw_lru_key key = gw_lru_key(l, text, strlen(text));
	uint32_t ids[1000];

	for (uint32_t i = 0; i < n; i++)
		ids[i] = first + i;
	gw_lru_put(l, &key, ids, n);
}

/* First id stored for a text, 0 for none. */
static uint32_t get_first_id(const char *text, uint32_t want_n)
{
	const struct gw_lru_key key = gw_lru_key(l, text, strlen(text));
	uint32_t n, first = 0, *ids = gw_lru_get(l, &key, &n);

	if (ids != NULL) {
		first = ids[0];
		CU_ASSERT_EQUAL(n, want_n);
		CU_ASSERT_EQUAL(ids[n - 1], first + n - 1);
	}
	free(ids);
	return first;
}

static void a_stored_entry_is_found(void)
{
	l = gw_lru_create(1 << 20, 7);
	CU_ASSERT_EQUAL(get_first_id("a", 0), 0);
	put_id("a", 10, 100);
	put_id("b", 5, 3);
	CU_ASSERT_EQUAL(get_first_id("a", 100), 10);
	CU_ASSERT_EQUAL(get_first_id("b", 3), 5);
	put_id("a", 20, 2);
	CU_ASSERT_EQUAL(get_first_id("a", 2), 20);
	gw_lru_destroy(l);
}

static void the_least_recently_used_is_evicted(void)
{
	size_t one;

	l = gw_lru_create(1 << 20, 7);
	put_id("a", 1, 100);
	one = gw_lru_bytes(l);
	gw_lru_destroy(l);
	l = gw_lru_create(3 * one, 7);
	put_id("a", 1, 100);
	put_id("b", 2, 100);
	put_id("c", 3, 100);
	CU_ASSERT_EQUAL(get_first_id("a", 100), 1); /* used: now the most recent */
	put_id("d", 4, 100);
	CU_ASSERT_EQUAL(get_first_id("b", 100), 0);
	CU_ASSERT_EQUAL(get_first_id("a", 100), 1);
	CU_ASSERT_EQUAL(get_first_id("c", 100), 3);
	CU_ASSERT_EQUAL(get_first_id("d", 100), 4);
	CU_ASSERT(gw_lru_bytes(l) <= 3 * one);
	gw_lru_destroy(l);
}

static void a_too_large_entry_is_not_stored_and_evicts_nothing(void)
{
	l = gw_lru_create(1000, 7);
	put_id("a", 1, 2);
	put_id("big", 9, 999);
	CU_ASSERT_EQUAL(get_first_id("big", 999), 0);
	CU_ASSERT_EQUAL(get_first_id("a", 2), 1);
	gw_lru_destroy(l);
	l = gw_lru_create(0, 7);
	put_id("a", 1, 2);
	CU_ASSERT_EQUAL(get_first_id("a", 2), 0);
	CU_ASSERT_EQUAL(gw_lru_bytes(l), 0);
	gw_lru_destroy(l);
}

static void keys_depend_on_the_seed(void)
{
	struct gw_lru *other = gw_lru_create(1000, 8);
	struct gw_lru_key a, b;

	l = gw_lru_create(1000, 7);
	a = gw_lru_key(l, "text", 4);
	b = gw_lru_key(other, "text", 4);
	CU_ASSERT_NOT_EQUAL(memcmp(&a, &b, sizeof(a)), 0);
	gw_lru_destroy(l);
	gw_lru_destroy(other);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_stored_entry_is_found),
			       KVR_CASE(the_least_recently_used_is_evicted),
			       KVR_CASE(a_too_large_entry_is_not_stored_and_evicts_nothing),
			       KVR_CASE(keys_depend_on_the_seed), CU_TEST_INFO_NULL};

	return kvr_test_run("gateway lru", tests);
}
