/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_share.h"

#include "kvr_test.h"
#include <errno.h>

#define V4(a) (UINT64_C(0xffff) << 32 | (a))

/* Take as much as the source may have; one a call. @return how much that is. */
static uint32_t grab(struct kvr_share *s, uint64_t key, uint32_t *free, uint32_t ref[])
{
	uint32_t n = 0;

	while (*free > 0 && kvr_share_may(s, key, *free, NULL)) {
		ref[n++] = kvr_share_take(s, key, 1);
		--*free;
	}
	return n;
}

static void one_source_leaves_room_for_others(void)
{
	static uint32_t ref[3][1000];
	struct kvr_share *s = kvr_share_create(900, 2, 7);
	struct kvr_share_state st;
	struct kvr_share_top top[2];
	uint32_t free = 900, n[3], at = 0;

	CU_ASSERT_PTR_NOT_NULL_FATAL(s);
	n[0] = grab(s, V4(1), &free, ref[0]);
	CU_ASSERT_EQUAL(n[0], 600); /* two thirds */
	CU_ASSERT_FALSE(kvr_share_may(s, V4(1), free, &st));
	CU_ASSERT_EQUAL(st.have, 600);
	CU_ASSERT_EQUAL(st.may, 600);
	n[1] = grab(s, V4(2), &free, ref[1]);
	CU_ASSERT_EQUAL(n[1], 200); /* of what is left */
	n[2] = grab(s, V4(3), &free, ref[2]);
	CU_ASSERT_TRUE(n[2] >= 66);
	CU_ASSERT_EQUAL(kvr_share_top(s, &at, top, 0, 2), 2);
	CU_ASSERT_EQUAL(at, UINT32_MAX);
	CU_ASSERT_EQUAL(top[0].key, V4(1));
	CU_ASSERT_EQUAL(top[1].have, 200);
	/* What the first gives back is for all. */
	for (uint32_t i = 0; i < n[0]; i++, free++)
		kvr_share_give(s, ref[0][i], 1);
	CU_ASSERT_EQUAL(kvr_share_have(s, V4(1)), 0);
	CU_ASSERT_TRUE(kvr_share_may(s, V4(2), free, NULL));
	kvr_share_destroy(s);
}

static void many_networks_of_one_site_are_one(void)
{
	static uint32_t ref[1000];
	struct kvr_share *s = kvr_share_create(900, 2, 7);
	uint32_t free = 900, n = 0, other;

	CU_ASSERT_PTR_NOT_NULL_FATAL(s);
	for (uint64_t net = 0; net < 900; net++) {
		const uint64_t key = UINT64_C(0x20010db800070000) + net;

		if (!kvr_share_may(s, key, free, NULL))
			break;
		ref[n++] = kvr_share_take(s, key, 1);
		free--;
	}
	CU_ASSERT_EQUAL(n, 600);
	other = grab(s, UINT64_C(0x20010db800080000), &free, &ref[n]);
	CU_ASSERT_EQUAL(other, 200);
	for (uint32_t i = 0; i < n + other; i++)
		kvr_share_give(s, ref[i], 1);
	CU_ASSERT_EQUAL(kvr_share_have(s, UINT64_C(0x20010db800080000)), 0);
	kvr_share_destroy(s);
}

static void every_thing_may_have_a_source_of_its_own(void)
{
	static uint32_t ref[256];
	struct kvr_share *s = kvr_share_create(256, 0, 7);

	CU_ASSERT_PTR_NOT_NULL_FATAL(s);
	for (int round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < 256; i++) {
			const uint64_t key = (UINT64_C(0x2001) << 48) + ((uint64_t)i << 16);

			CU_ASSERT_TRUE(kvr_share_may(s, key, 0, NULL)); /* 0: no limit */
			ref[i] = kvr_share_take(s, key, 1);
			CU_ASSERT_EQUAL(kvr_share_have(s, key), 1);
		}
		for (uint32_t i = 0; i < 256; i++)
			kvr_share_give(s, ref[i], 1);
	}
	kvr_share_give(s, 0, 1);
	kvr_share_destroy(s);
}

static void several_are_taken_and_given_at_once(void)
{
	struct kvr_share *s = kvr_share_create(100, 1, 7);
	uint32_t a, b;

	CU_ASSERT_PTR_NOT_NULL_FATAL(s);
	a = kvr_share_take(s, V4(9), 40);
	b = kvr_share_take(s, V4(9), 5);
	CU_ASSERT_EQUAL(a, b);
	CU_ASSERT_EQUAL(kvr_share_have(s, V4(9)), 45);
	CU_ASSERT_TRUE(kvr_share_may(s, V4(9), 55, NULL));
	CU_ASSERT_FALSE(kvr_share_may(s, V4(9), 45, NULL));
	kvr_share_give(s, a, 40);
	CU_ASSERT_EQUAL(kvr_share_have(s, V4(9)), 5);
	kvr_share_give(s, b, 5);
	CU_ASSERT_EQUAL(kvr_share_have(s, V4(9)), 0);
	kvr_share_destroy(s);
}

static void sizes_are_checked(void)
{
	CU_ASSERT_PTR_NULL(kvr_share_create(0, 1, 1));
	CU_ASSERT_EQUAL(errno, EINVAL);
	kvr_share_destroy(NULL);
}

int main(void)
{
	CU_TestInfo tests[] = {{"room", one_source_leaves_room_for_others},
			       {"sites", many_networks_of_one_site_are_one},
			       {"bounds", every_thing_may_have_a_source_of_its_own},
			       {"several", several_are_taken_and_given_at_once},
			       {"sizes", sizes_are_checked},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("share", tests);
}
