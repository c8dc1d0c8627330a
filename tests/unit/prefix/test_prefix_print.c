/* SPDX-License-Identifier: BSD-3-Clause */

/* Prints of heads against a list: what is there is never denied, and little else is claimed. */

#include "kvr_rand.h"
#include "kvr_test.h"
#include "print_pvt.h"

#define MAX 60u /* four times what a set has places for */

static struct pfx_prints set;
static uint64_t there[MAX];
static uint32_t n;

static void put(uint64_t mix)
{
	there[n++] = mix;
	pfx_prints_put(&set, mix, true);
}

static void take(uint32_t i)
{
	pfx_prints_put(&set, there[i], false);
	there[i] = there[--n];
}

static void all_may_be_there(void)
{
	for (uint32_t i = 0; i < n; i++)
		CU_ASSERT_FATAL(pfx_prints_may(&set, there[i]));
}

/* How many of 255 different prints the set does not deny. */
static uint32_t claimed(void)
{
	uint32_t k = 0;

	for (uint64_t mix = 1; mix < 256; mix++)
		k += pfx_prints_may(&set, mix);
	return k;
}

static void random_mix(uint32_t most, uint64_t prints)
{
	struct kvr_rand r = {most + prints};

	for (uint32_t i = 0; i < 100000; i++) {
		if (n < most && kvr_rand_below(&r, 2) == 0)
			put(kvr_rand_u64(&r) % prints);
		else if (n > 0)
			take(kvr_rand_below(&r, n));
		all_may_be_there();
		if (n == 0)
			CU_ASSERT_EQUAL_FATAL(claimed(), 0);
	}
	while (n > 0)
		take(n - 1);
	CU_ASSERT_EQUAL(set.w[0], 0);
	CU_ASSERT_EQUAL(set.w[1], 0);
}

static void what_is_there_is_not_denied(void)
{
	random_mix(15, 1u << 20);
}

static void more_than_there_are_places(void)
{
	random_mix(MAX, 1u << 20);
}

static void equal_prints(void)
{
	random_mix(MAX, 3);
}

static void a_set_claims_what_it_has(void)
{
	for (uint32_t i = 1; i <= 15; i++) {
		put(i * 17);
		CU_ASSERT_EQUAL(claimed(), i);
	}
	put(3);
	CU_ASSERT_EQUAL(claimed(), 255); /* it has no place */
	take(15);
	CU_ASSERT_EQUAL(claimed(), 15);
	while (n > 0)
		take(0);
	CU_ASSERT_EQUAL(claimed(), 0);
	/* A print of 0 is none. */
	put(UINT64_C(0x100));
	CU_ASSERT(pfx_prints_may(&set, UINT64_C(0x100)));
	CU_ASSERT_EQUAL(claimed(), 1);
	take(0);
	CU_ASSERT_EQUAL(claimed(), 0);
}

static void a_full_count_stays(void)
{
	for (uint32_t i = 0; i < 300; i++)
		pfx_prints_put(&set, i, true);
	for (uint32_t i = 0; i < 300; i++)
		pfx_prints_put(&set, i, false);
	CU_ASSERT_EQUAL(claimed(), 255);
}

int main(void)
{
	CU_TestInfo tests[] = {{"there", what_is_there_is_not_denied},
			       {"more", more_than_there_are_places},
			       {"equal", equal_prints},
			       {"claims", a_set_claims_what_it_has},
			       {"full", a_full_count_stays},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("prefix_print", tests);
}
