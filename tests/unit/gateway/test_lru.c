/* SPDX-License-Identifier: BSD-3-Clause */
#include "lru.h"

#include <string.h>

#include "kvr_test.h"

static struct gw_lru *l;

static void put(const char *text, uint32_t first, uint32_t n)
{
	const struct gw_lru_key key = gw_lru_key(l, text, strlen(text));
	uint32_t ids[1000];

	for (uint32_t i = 0; i < n; i++)
		ids[i] = first + i;
	gw_lru_put(l, &key, ids, n);
}

/* First id kept for a text, 0 for none. */
static uint32_t get(const char *text, uint32_t want_n)
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

static void what_is_kept_comes_back(void)
{
	l = gw_lru_create(1 << 20, 7);
	CU_ASSERT_EQUAL(get("a", 0), 0);
	put("a", 10, 100);
	put("b", 5, 3);
	CU_ASSERT_EQUAL(get("a", 100), 10);
	CU_ASSERT_EQUAL(get("b", 3), 5);
	put("a", 20, 2);
	CU_ASSERT_EQUAL(get("a", 2), 20);
	gw_lru_destroy(l);
}

static void the_least_recently_used_goes_first(void)
{
	size_t one;

	l = gw_lru_create(1 << 20, 7);
	put("a", 1, 100);
	one = gw_lru_bytes(l);
	gw_lru_destroy(l);
	l = gw_lru_create(3 * one, 7);
	put("a", 1, 100);
	put("b", 2, 100);
	put("c", 3, 100);
	CU_ASSERT_EQUAL(get("a", 100), 1); /* used: the youngest now */
	put("d", 4, 100);
	CU_ASSERT_EQUAL(get("b", 100), 0);
	CU_ASSERT_EQUAL(get("a", 100), 1);
	CU_ASSERT_EQUAL(get("c", 100), 3);
	CU_ASSERT_EQUAL(get("d", 100), 4);
	CU_ASSERT(gw_lru_bytes(l) <= 3 * one);
	gw_lru_destroy(l);
}

static void what_is_too_large_is_not_kept_and_drives_nobody_out(void)
{
	l = gw_lru_create(1000, 7);
	put("a", 1, 2);
	put("big", 9, 999);
	CU_ASSERT_EQUAL(get("big", 999), 0);
	CU_ASSERT_EQUAL(get("a", 2), 1);
	gw_lru_destroy(l);
	l = gw_lru_create(0, 7);
	put("a", 1, 2);
	CU_ASSERT_EQUAL(get("a", 2), 0);
	CU_ASSERT_EQUAL(gw_lru_bytes(l), 0);
	gw_lru_destroy(l);
}

static void names_differ_with_the_seed(void)
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
	CU_TestInfo tests[] = {{"kept", what_is_kept_comes_back},
			       {"order", the_least_recently_used_goes_first},
			       {"large", what_is_too_large_is_not_kept_and_drives_nobody_out},
			       {"seed", names_differ_with_the_seed},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("gateway lru", tests);
}
