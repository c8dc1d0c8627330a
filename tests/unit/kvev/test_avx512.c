/* SPDX-License-Identifier: BSD-3-Clause */
/* Long lists of numbers, with and without AVX-512. */
#include "kvev_pvt.h"

#include <stdlib.h>

#include "kvr_rand.h"
#include "kvr_test.h"

#define MOST 900u

static uint8_t *put_number(uint8_t *p, uint8_t head, uint64_t v, unsigned int bytes)
{
	*p++ = head;
	for (unsigned int i = bytes; i-- > 0;)
		*p++ = (uint8_t)(v >> (8 * i));
	return p;
}

/* A random value; half of its bytes look like type bytes. */
static uint32_t make_value(struct kvr_rand *r)
{
	static const uint8_t heads[] = {0xcc, 0xcd, 0xce, 0xcf, 0, 0xdc};
	uint32_t v = 0;

	for (unsigned int i = 0; i < 4; i++)
		v = v << 8 |
		    (kvr_rand_below(r, 2) ? heads[kvr_rand_below(r, 6)] : (uint8_t)kvr_rand_u64(r));
	return v;
}

static const char *const mixes[] = {"3",
				    "5",
				    "35",
				    "3335",
				    "5553",
				    "35353535353535351",
				    "3535353535353535353535353535353535352"};

/* Write a list in one of the mixes. @return its length. */
static size_t make_list(uint8_t *in, uint32_t want[], uint32_t n, const char *mix,
			struct kvr_rand *r)
{
	const uint32_t len = (uint32_t)strlen(mix);
	uint8_t *p = in;

	for (uint32_t i = 0; i < n; i++) {
		const char width = mix[len <= 2 ? i % len : kvr_rand_below(r, len)];

		want[i] = make_value(r);
		want[i] &= width == '1' ? 0x7f : width == '2' ? 0xff : width == '3' ? 0xffff : ~0u;
		p = width == '1'   ? put_number(p, (uint8_t)want[i], 0, 0)
		    : width == '2' ? put_number(p, 0xcc, want[i], 1)
		    : width == '3' ? put_number(p, 0xcd, want[i], 2)
				   : put_number(p, 0xce, want[i], 4);
	}
	return (size_t)(p - in);
}

static void check_list(uint32_t n, const char *mix, struct kvr_rand *r, bool wide)
{
	static uint8_t in[5 * MOST];
	static uint32_t want[MOST];
	const size_t len = make_list(in, want, n, mix, r);
	uint8_t *copy = malloc(len);		  /* an exact copy: reads beyond it are detected */
	uint32_t *to = malloc(n * sizeof(to[0])); /* and writes */
	struct mp_in at = {copy, copy + len};

	memcpy(copy, in, len);
	CU_ASSERT_EQUAL(kvr_kvev__numbers_by(&at, n, to, wide), n);
	CU_ASSERT_PTR_EQUAL(at.p, at.end);
	CU_ASSERT_EQUAL(memcmp(to, want, n * sizeof(to[0])), 0);
	free(copy);
	free(to);
}

static void tokens_are_equal_with_and_without_avx512(void)
{
	struct kvr_rand r;

	kvr_rand_init(&r, 3);
	for (uint32_t run = 0; run < 6000; run++) {
		const char *mix = mixes[run % (sizeof(mixes) / sizeof(mixes[0]))];
		const uint32_t n = 1 + kvr_rand_below(&r, MOST);

		check_list(n, mix, &r, false);
		if (kvr_kvev__has_avx512())
			check_list(n, mix, &r, true);
	}
}

/* A number of nine bytes ends the run at any position, and is not read. */
static void a_run_ends_before_a_number_of_nine_bytes(void)
{
	struct kvr_rand r;

	kvr_rand_init(&r, 4);
	for (uint32_t before = 0; kvr_kvev__has_avx512() && before < 120; before++) {
		uint8_t in[5 * MOST];
		uint32_t want[MOST], to[MOST];
		const size_t len = make_list(in, want, before, "35", &r);
		const uint8_t *p = in;
		uint64_t n;

		put_number(in + len, 0xcf, UINT64_C(0xcdcdcdcdcececece), 8);
		memset(in + len + 9, 0xcd, 300);
		n = kvr_kvev__tokens_wide(&p, in + len + 309, before + 60, to);
		CU_ASSERT_EQUAL(n, before);
		CU_ASSERT_PTR_EQUAL(p, in + len);
		CU_ASSERT_EQUAL(memcmp(to, want, n * sizeof(to[0])), 0);
	}
}

static void names_are_read_seven_at_once(void)
{
	for (uint32_t n = 0; kvr_kvev__has_avx512() && n <= 40; n++) {
		for (uint32_t odd = 0; odd <= n; odd++) { /* odd = n: all are names */
			uint8_t in[9 * 40], *p = in;
			uint64_t *to = malloc((n + 1) * sizeof(to[0])), got;
			const uint8_t *at;
			uint8_t *copy;

			for (uint32_t i = 0; i < n; i++)
				p = put_number(p,
					       i == odd ? 0xcb
					       : i % 3	? 0xcf
							: 0xd3,
					       UINT64_C(0xcfd3cfd300000000) + i * 257, 8);
			copy = malloc((size_t)(p - in) + 1);
			memcpy(copy, in, (size_t)(p - in));
			at = copy;
			to[n] = 5;
			got = kvr_kvev__names_wide(&at, copy + (p - in), n, to);
			CU_ASSERT(got <= odd && got + 14 > (odd < n ? odd : n));
			CU_ASSERT_PTR_EQUAL(at, copy + 9 * got);
			for (uint32_t i = 0; i < got; i++)
				CU_ASSERT_EQUAL(to[i], UINT64_C(0xcfd3cfd300000000) + i * 257);
			CU_ASSERT_EQUAL(to[n], 5);
			free(copy);
			free(to);
		}
	}
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(tokens_are_equal_with_and_without_avx512),
			       KVR_CASE(a_run_ends_before_a_number_of_nine_bytes),
			       KVR_CASE(names_are_read_seven_at_once), CU_TEST_INFO_NULL};

	return kvr_test_run("avx512", tests);
}
