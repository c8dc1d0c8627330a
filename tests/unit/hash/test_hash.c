/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_hash.h"
#include "kvr_test.h"

#include <errno.h>
#include <string.h>

#define N_TOKENS 1000u

static uint32_t counting[N_TOKENS]; /* 0, 1, 2, ... */

struct mm_list {
	const struct kvr_hash_mm *v;
	uint32_t n, next;
};

static bool mm_from_list(void *arg, struct kvr_hash_mm *out)
{
	struct mm_list *l = arg;

	if (l->next == l->n)
		return false;
	*out = l->v[l->next++];
	return true;
}

static int hash_tokens(uint32_t block_size, uint64_t seed, bool eagle, const uint32_t *t,
		       uint32_t n, uint64_t lbh[], uint64_t sh[])
{
	const struct kvr_hash_params params = {
		.seed = seed, .block_size = block_size, .eagle = eagle};

	return kvr_hash_tokens(&params, t, n, lbh, sh, N_TOKENS);
}

static uint64_t make_seed(const char *lora, const char *ns)
{
	return kvr_hash_seed(lora, lora == NULL ? 0 : (uint32_t)strlen(lora), ns,
			     ns == NULL ? 0 : (uint32_t)strlen(ns));
}

static void bytes_hash_to_the_published_value(void)
{
	CU_ASSERT_EQUAL(kvr_hash_bytes("test data", 9), UINT64_C(13226331709069118873));
}

static void blocks_and_chain_match_the_published_vectors(void)
{
	const uint32_t t[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
	uint64_t lbh[3], sh[3];

	CU_ASSERT_EQUAL_FATAL(hash_tokens(4, KVR_HASH_SEED, false, t, 12, lbh, sh), 3);
	CU_ASSERT_EQUAL(lbh[0], UINT64_C(14643705804678351452));
	CU_ASSERT_EQUAL(lbh[1], UINT64_C(16777012769546811212));
	CU_ASSERT_EQUAL(lbh[2], UINT64_C(483935686894639516));
	CU_ASSERT_EQUAL(sh[0], lbh[0]);
	CU_ASSERT_EQUAL(sh[1], UINT64_C(4945711292740353085));
	CU_ASSERT_EQUAL(sh[2], UINT64_C(12583592247330656132));
	CU_ASSERT_EQUAL(kvr_hash_block(t, 4, KVR_HASH_SEED), lbh[0]);
}

static void blocks_match_the_computed_vectors(void)
{
	uint64_t lbh[3], sh[3];

	CU_ASSERT_EQUAL(hash_tokens(4, KVR_HASH_SEED, false, counting, 4, lbh, NULL), 1);
	CU_ASSERT_EQUAL(lbh[0], UINT64_C(9143094415614847814));
	CU_ASSERT_EQUAL(hash_tokens(16, KVR_HASH_SEED, false, counting, 32, lbh, sh), 2);
	CU_ASSERT_EQUAL(lbh[0], UINT64_C(15310707395893867146));
	CU_ASSERT_EQUAL(lbh[1], UINT64_C(15292316782987903195));
	CU_ASSERT_EQUAL(sh[1], UINT64_C(13769157705258532664));
	CU_ASSERT_EQUAL(hash_tokens(64, KVR_HASH_SEED, false, counting, 64, lbh, NULL), 1);
	CU_ASSERT_EQUAL(lbh[0], UINT64_C(3480597578098033343));
	CU_ASSERT_EQUAL(hash_tokens(2, KVR_HASH_SEED, false, counting, 6, lbh, NULL), 3);
	CU_ASSERT_EQUAL(lbh[0], UINT64_C(10918435022357402928));
	CU_ASSERT_EQUAL(lbh[1], UINT64_C(10731123482949079648));
	CU_ASSERT_EQUAL(lbh[2], UINT64_C(12189426826560619506));
}

static void lora_and_namespace_change_the_seed(void)
{
	uint64_t lbh[1];

	CU_ASSERT_EQUAL(make_seed(NULL, NULL), KVR_HASH_SEED);
	CU_ASSERT_EQUAL(make_seed("", ""), KVR_HASH_SEED);
	CU_ASSERT_EQUAL(make_seed("adapter-a", NULL), UINT64_C(8842669519798868182));
	hash_tokens(4, make_seed("adapter-a", ""), false, counting, 4, lbh, NULL);
	CU_ASSERT_EQUAL(lbh[0], UINT64_C(6665157333201000639));
	CU_ASSERT_EQUAL(make_seed(NULL, "tenant-a"), UINT64_C(1948188790972764086));
	hash_tokens(4, make_seed("", "tenant-a"), false, counting, 4, lbh, NULL);
	CU_ASSERT_EQUAL(lbh[0], UINT64_C(17009624042690211646));
	CU_ASSERT_NOT_EQUAL(make_seed("tenant-a", NULL), make_seed(NULL, "tenant-a"));
	CU_ASSERT_NOT_EQUAL(make_seed("adapter-a", NULL), make_seed("adapter-b", NULL));
	CU_ASSERT_NOT_EQUAL(make_seed(NULL, "tenant-b"), make_seed(NULL, "tenant-a"));
	CU_ASSERT_EQUAL(make_seed("adapter-a", "tenant-a"),
			make_seed("adapter-a", NULL) + make_seed(NULL, "tenant-a") - KVR_HASH_SEED);
}

static int hash_mm(uint32_t block_size, const struct kvr_hash_mm *mm, uint32_t n_mm,
		   uint32_t n_tokens, uint64_t lbh[])
{
	struct mm_list l = {mm, n_mm, 0};
	const struct kvr_hash_params params = {.seed = KVR_HASH_SEED,
					       .block_size = block_size,
					       .mm_next = mm_from_list,
					       .mm_arg = &l};

	return kvr_hash_tokens(&params, counting, n_tokens, lbh, NULL, N_TOKENS);
}

static void multimodal_hashes_enter_their_block_sorted(void)
{
	const uint64_t h42 = 42, h73[2] = {7, 3}, h37[2] = {3, 7}, twice[2] = {42, 42};
	const struct kvr_hash_mm one = {0, 1, &h42}, pair = {0, 2, h73}, sorted = {0, 2, h37},
				 none = {0, 0, NULL}, dup = {0, 2, twice};
	uint64_t a[2], b[2], plain[2];

	hash_tokens(2, KVR_HASH_SEED, false, counting, 4, plain, NULL);
	CU_ASSERT_EQUAL(hash_mm(2, &one, 1, 4, a), 2);
	CU_ASSERT_EQUAL(a[0], UINT64_C(6100948656312251355));
	CU_ASSERT_EQUAL(a[1], UINT64_C(10731123482949079648));
	CU_ASSERT_EQUAL(hash_mm(4, &pair, 1, 4, a), 1);
	CU_ASSERT_EQUAL(a[0], UINT64_C(12534961123884847936));
	hash_mm(4, &sorted, 1, 4, b);
	CU_ASSERT_EQUAL(a[0], b[0]);
	hash_mm(2, &none, 1, 4, a); /* an empty list hashes as text */
	CU_ASSERT_EQUAL(a[0], plain[0]);
	CU_ASSERT_EQUAL(a[1], plain[1]);
	hash_mm(2, &dup, 1, 4, b); /* duplicates stay */
	hash_mm(2, &one, 1, 4, a);
	CU_ASSERT_NOT_EQUAL(a[0], b[0]);
}

static void too_many_multimodal_hashes_are_rejected(void)
{
	static const uint64_t many[KVR_HASH_MAX_MM + 1];
	const struct kvr_hash_mm most = {0, KVR_HASH_MAX_MM, many},
				 above = {0, KVR_HASH_MAX_MM + 1, many};
	uint64_t lbh[2];

	CU_ASSERT_EQUAL(hash_mm(2, &most, 1, 4, lbh), 2);
	CU_ASSERT_EQUAL(hash_mm(2, &above, 1, 4, lbh), -E2BIG);
}

static void multimodal_hashes_of_missing_blocks_are_ignored(void)
{
	const uint64_t h42 = 42;
	const struct kvr_hash_mm mm[] = {{1, 1, &h42}, {9, 1, &h42}};
	uint64_t a[2], plain[2];

	hash_tokens(2, KVR_HASH_SEED, false, counting, 5, plain, NULL);
	CU_ASSERT_EQUAL(hash_mm(2, mm, 2, 5, a), 2);
	CU_ASSERT_EQUAL(a[0], plain[0]);
	CU_ASSERT_NOT_EQUAL(a[1], plain[1]);
}

static void eagle_windows_overlap_by_one_token(void)
{
	uint64_t lbh[3];

	CU_ASSERT_EQUAL(hash_tokens(2, KVR_HASH_SEED, true, counting, 6, lbh, NULL), 2);
	CU_ASSERT_EQUAL(lbh[0], kvr_hash_block(counting, 3, KVR_HASH_SEED));
	CU_ASSERT_EQUAL(lbh[1], kvr_hash_block(counting + 2, 3, KVR_HASH_SEED));
	CU_ASSERT_EQUAL(kvr_hash_count(0, 2, true), 0);
	CU_ASSERT_EQUAL(kvr_hash_count(1, 2, true), 0);
	CU_ASSERT_EQUAL(kvr_hash_count(3, 2, true), 1);
}

static void only_complete_blocks_count(void)
{
	const uint32_t sizes[] = {11, 32, 64};
	uint64_t lbh[N_TOKENS];

	for (uint32_t i = 0; i < 3; i++) {
		const uint32_t b = sizes[i];

		CU_ASSERT_EQUAL(hash_tokens(b, KVR_HASH_SEED, false, counting, b - 1, lbh, NULL),
				0);
		CU_ASSERT_EQUAL(hash_tokens(b, KVR_HASH_SEED, false, counting, b, lbh, NULL), 1);
		CU_ASSERT_EQUAL(hash_tokens(b, KVR_HASH_SEED, false, counting, b + 1, lbh, NULL),
				1);
		CU_ASSERT_EQUAL(
			hash_tokens(b, KVR_HASH_SEED, false, counting, 2 * b + 1, lbh, NULL), 2);
		CU_ASSERT_EQUAL(kvr_hash_count(2 * b + 1, b, false), 2);
	}
	CU_ASSERT_EQUAL(hash_tokens(0, KVR_HASH_SEED, false, counting, 9, lbh, NULL), 0);
	CU_ASSERT_EQUAL(kvr_hash_count(9, 0, false), 0);
}

static void a_chain_continues_from_a_parent(void)
{
	uint64_t lbh[8], sh[8], again[8];

	hash_tokens(4, KVR_HASH_SEED, false, counting, 32, lbh, sh);
	kvr_hash_chain(NULL, lbh, 8, again);
	CU_ASSERT_EQUAL(memcmp(sh, again, sizeof(sh)), 0);
	kvr_hash_chain(&sh[2], lbh + 3, 5, again + 3);
	CU_ASSERT_EQUAL(memcmp(sh, again, sizeof(sh)), 0);
	memcpy(again, lbh, sizeof(lbh));
	kvr_hash_chain(NULL, again, 8, again); /* in place */
	CU_ASSERT_EQUAL(memcmp(sh, again, sizeof(sh)), 0);
}

/* Reference: windows hashed one by one with the one-shot function. */
static uint32_t hash_windows(const uint32_t *t, uint32_t n, uint32_t b, bool eagle, uint64_t lbh[])
{
	const uint32_t w = b + (eagle ? 1 : 0);
	uint32_t k = 0;

	for (uint32_t at = 0; at + w <= n; at += b)
		lbh[k++] = kvr_hash_block(t + at, w, KVR_HASH_SEED);
	return k;
}

static void hash_blocks_equals_blocks_and_chain(void)
{
	static uint64_t want[N_TOKENS], sh[N_TOKENS + 1];
	const uint64_t parent = 77;

	for (uint32_t b = 1; b <= 140;
	     b++) { /* 16 and 32 have their own code, 60 and more need a secret */
		for (uint32_t i = 0; i < 4; i++) {
			const struct kvr_hash_params params = {
				.seed = KVR_HASH_SEED, .block_size = b, .eagle = i % 2 != 0};
			const uint64_t *from = i / 2 != 0 ? &parent : NULL;
			const uint32_t n =
				hash_windows(counting, N_TOKENS - 7 * i, b, params.eagle, want);

			kvr_hash_chain(from, want, n, want);
			sh[n] = 5;
			kvr_hash_blocks(&params, from, counting, n, sh);
			CU_ASSERT_EQUAL_FATAL(memcmp(sh, want, n * sizeof(sh[0])), 0);
			CU_ASSERT_EQUAL(sh[n], 5);
			kvr_hash_blocks(&params, from, counting, 0, sh + n);
			CU_ASSERT_EQUAL(sh[n], 5);
		}
	}
}

static void fragments_at_any_address_give_the_same_hashes(void)
{
	static uint8_t raw[N_TOKENS * 4 + 3];
	static uint64_t want[N_TOKENS], want_sh[N_TOKENS], lbh[N_TOKENS], sh[N_TOKENS];
	struct kvr_rand rnd;

	kvr_rand_init(&rnd, 1);
	for (uint32_t round = 0; round < 2000; round++) {
		const uint32_t b = 1 + kvr_rand_below(&rnd, 140);
		const uint32_t n = kvr_rand_below(&rnd, N_TOKENS + 1);
		const uint32_t shift = round % 4;
		const struct kvr_hash_params params = {
			.seed = KVR_HASH_SEED, .block_size = b, .eagle = round % 3 == 0};
		const uint32_t blocks = hash_windows(counting, n, b, params.eagle, want);
		struct kvr_hash_stream stream;

		memcpy(raw + shift, counting, n * 4);
		kvr_hash_chain(NULL, want, blocks, want_sh);
		kvr_hash_stream_init(&stream, &params, NULL);
		for (uint32_t at = 0, part; at < n; at += part) {
			part = 1 + kvr_rand_below(&rnd, n - at);
			CU_ASSERT_EQUAL_FATAL(kvr_hash_stream_add(&stream, raw + shift + at * 4,
								  part, lbh, sh, N_TOKENS),
					      0);
		}
		CU_ASSERT_EQUAL_FATAL(stream.n_blocks, blocks);
		CU_ASSERT_EQUAL_FATAL(kvr_hash_count(n, b, params.eagle), blocks);
		CU_ASSERT_EQUAL_FATAL(memcmp(lbh, want, blocks * 8), 0);
		CU_ASSERT_EQUAL_FATAL(memcmp(sh, want_sh, blocks * 8), 0);
	}
}

static void results_stop_at_the_capacity(void)
{
	const struct kvr_hash_params params = {.seed = KVR_HASH_SEED, .block_size = 2};
	uint64_t sh[4] = {0, 0, 77, 0};

	CU_ASSERT_EQUAL(kvr_hash_tokens(&params, counting, 100, NULL, sh, 2), 2);
	CU_ASSERT_EQUAL(sh[2], 77);
}

/* @rule 1.5 */
static void pad_values_match_sglang(void)
{
	CU_ASSERT_EQUAL(kvr_hash_pad_value(0), 1000000);
	CU_ASSERT_EQUAL(kvr_hash_pad_value((1u << 30) - 1), 1074741823);
	CU_ASSERT_EQUAL(kvr_hash_pad_value((1u << 30) | 0xCAFE), 1051966);
}

static void tracking_uses_the_chain_or_random_words(void)
{
	uint64_t sh[3] = {1, 2, 3}, a[3], b[3];
	struct kvr_rand rnd;

	kvr_rand_init(&rnd, 5);
	kvr_hash_tracking(sh, 3, true, &rnd, a);
	CU_ASSERT_EQUAL(memcmp(a, sh, sizeof(a)), 0);
	kvr_hash_tracking(sh, 3, false, &rnd, a);
	kvr_hash_tracking(sh, 3, false, &rnd, b); /* equal prompts share nothing */
	for (int i = 0; i < 3; i++)
		for (int k = 0; k < 3; k++) {
			CU_ASSERT_NOT_EQUAL(a[i], b[k]);
			CU_ASSERT_NOT_EQUAL(a[i], sh[k]);
		}
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(bytes_hash_to_the_published_value),
		KVR_CASE(blocks_and_chain_match_the_published_vectors),
		KVR_CASE(blocks_match_the_computed_vectors),
		KVR_CASE(lora_and_namespace_change_the_seed),
		KVR_CASE(multimodal_hashes_enter_their_block_sorted),
		KVR_CASE(too_many_multimodal_hashes_are_rejected),
		KVR_CASE(multimodal_hashes_of_missing_blocks_are_ignored),
		KVR_CASE(eagle_windows_overlap_by_one_token),
		KVR_CASE(only_complete_blocks_count),
		KVR_CASE(a_chain_continues_from_a_parent),
		KVR_CASE(hash_blocks_equals_blocks_and_chain),
		KVR_CASE(fragments_at_any_address_give_the_same_hashes),
		KVR_CASE(results_stop_at_the_capacity),
		KVR_CASE(pad_values_match_sglang),
		KVR_CASE(tracking_uses_the_chain_or_random_words),
		CU_TEST_INFO_NULL,
	};

	for (uint32_t i = 0; i < N_TOKENS; i++)
		counting[i] = i;
	return kvr_test_run("hash", tests);
}
