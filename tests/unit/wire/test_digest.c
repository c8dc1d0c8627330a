/* SPDX-License-Identifier: BSD-3-Clause */
/* Digests of requests, both ways beside each other: lib/wire/digest_pvt.h. */
#include "digest_pvt.h"

#include <CUnit/Basic.h>
#include <string.h>

#define MOST 1400u

static const struct way {
	uint64_t (*digest)(const struct kvr_wire_request *fixed, const void *p, uint32_t len);
	void (*begin)(struct kvr_digest *d);
	void (*add)(struct kvr_digest *d, const void *p, uint32_t len);
	uint64_t (*end)(const struct kvr_digest *d, const struct kvr_wire_request *fixed);
} ways[] = {
	{kvr_wire__xxh_digest, kvr_wire__xxh_begin, kvr_wire__xxh_add, kvr_wire__xxh_end},
#if defined(__x86_64__)
	{kvr_wire__aes_digest, kvr_wire__aes_begin, kvr_wire__aes_add, kvr_wire__aes_end},
#endif
};

static struct kvr_wire_request fixed;
static uint8_t rest[MOST];
static uint32_t n_ways;

static void fill(void)
{
	uint8_t *p = (uint8_t *)&fixed;

	for (uint32_t i = 0; i < sizeof(fixed); i++)
		p[i] = (uint8_t)(i * 89 + 7);
	fixed.worker = 0; /* a place for what XXH3 makes of the rest */
	for (uint32_t i = 0; i < MOST; i++)
		rest[i] = (uint8_t)(i * 131 + i / 256);
}

static void pieces_give_what_the_whole_gives(void)
{
	static const uint32_t cut[] = {1, 8, 104, 120, 128, 136, 1000};

	for (uint32_t w = 0; w < n_ways; w++)
		for (uint32_t len = 0; len <= MOST; len += len < 300 ? 1 : 97)
			for (uint32_t c = 0; c < sizeof(cut) / sizeof(cut[0]); c++) {
				struct kvr_digest d;

				memset(&d, 0xa5, sizeof(d));
				ways[w].begin(&d);
				for (uint32_t at = 0; at < len; at += cut[c])
					ways[w].add(&d, rest + at,
						    len - at < cut[c] ? len - at : cut[c]);
				CU_ASSERT_EQUAL(ways[w].end(&d, &fixed),
						ways[w].digest(&fixed, rest, len));
			}
}

static void every_bit_counts(void)
{
	uint8_t *p = (uint8_t *)&fixed;

	for (uint32_t w = 0; w < n_ways; w++) {
		const uint64_t was = ways[w].digest(&fixed, rest, 1160);
		uint64_t either = 0;

		for (uint32_t bit = 0; bit < 1160 * 8; bit++) {
			rest[bit / 8] ^= (uint8_t)(1u << bit % 8);
			CU_ASSERT_NOT_EQUAL(ways[w].digest(&fixed, rest, 1160), was);
			either |= ways[w].digest(&fixed, rest, 1160) ^ was;
			rest[bit / 8] ^= (uint8_t)(1u << bit % 8);
		}
		CU_ASSERT_EQUAL(either, UINT64_MAX);
		for (uint32_t bit = 0; bit < sizeof(fixed) * 8; bit++) {
			if (bit / 64 == offsetof(struct kvr_wire_request, worker) / 8)
				continue;
			p[bit / 8] ^= (uint8_t)(1u << bit % 8);
			CU_ASSERT_NOT_EQUAL(ways[w].digest(&fixed, rest, 1160), was);
			p[bit / 8] ^= (uint8_t)(1u << bit % 8);
		}
	}
}

/* What a sum of its parts would not see. */
static void places_and_lengths_count(void)
{
	uint8_t other[MOST] = {0};

	for (uint32_t w = 0; w < n_ways; w++)
		for (uint32_t part = 8; part <= 256; part *= 2) {
			memcpy(other, rest, 1024);
			memcpy(other, rest + part, part);
			memcpy(other + part, rest, part);
			CU_ASSERT_NOT_EQUAL(ways[w].digest(&fixed, other, 1024),
					    ways[w].digest(&fixed, rest, 1024));
			memset(other, 0, sizeof(other));
			CU_ASSERT_NOT_EQUAL(ways[w].digest(&fixed, other, 1024),
					    ways[w].digest(&fixed, other, 1024 + part));
			CU_ASSERT_NOT_EQUAL(ways[w].digest(&fixed, other, 1025),
					    ways[w].digest(&fixed, other, 1024 + part / 2));
		}
}

int main(void)
{
	CU_TestInfo tests[] = {{"pieces", pieces_give_what_the_whole_gives},
			       {"bits", every_bit_counts},
			       {"places", places_and_lengths_count},
			       CU_TEST_INFO_NULL};
	CU_SuiteInfo suites[] = {{"digest", NULL, NULL, NULL, NULL, tests}, CU_SUITE_INFO_NULL};

	fill();
	n_ways = 1;
#if defined(__x86_64__)
	n_ways += kvr_wire__aes();
#endif
	if (CU_initialize_registry() != CUE_SUCCESS || CU_register_suites(suites) != CUE_SUCCESS)
		return 1;
	CU_basic_run_tests();
	return CU_get_number_of_failures() > 0; /* CUnit itself exits 0 on failure */
}
