/* SPDX-License-Identifier: BSD-3-Clause */
#include "cost_rig.h"

static double tokens[R], limit[R];

static void fill_ranks(struct kvr_rand *r, struct cost_in *in)
{
	fill_common(r, in, 5000, 2);
	in->tokens = tokens;
	in->cache_lowers_decode = kvr_rand_below(r, 4) == 0;
	in->track = kvr_rand_below(r, 4) != 0;
	in->request_blocks = 1 + kvr_rand_below(r, 300);
	in->pow2 = ((uint32_t)in->block & ((uint32_t)in->block - 1)) == 0;
	in->inv_block = 1 / in->block;
	if (!in->plain)
		in->decay = kvr_rand_below(r, 2) * kvr_rand_unit(r);
	for (uint32_t i = 0; i < R; i++) {
		tokens[i] = kvr_rand_below(r, 1u << 30);
		limit[i] = kvr_rand_below(r, 1u << 30);
	}
}

/* The formula of section 5.2 as it is written there, in long double. */
static double by_the_book(const struct cost_in *in, uint32_t r)
{
	long double dev = in->tier[0][r], host = 0, disk = 0, decay = 1, raw = 0, credit, cached;
	long double decode = (long double)in->blocks[r] + in->n - in->depth[r], cost;

	if (!in->plain) {
		host = in->tier[1][r];
		disk = (long double)in->tier[2][r] + in->tier[3][r];
		if (in->decay > 0 && in->track)
			decay = 1 / (1 + in->decay * ((in->tokens[r] - in->min_tokens) / in->block /
						      in->request_blocks));
	}
	cached = floorl((dev + host * in->host_w + disk * in->disk_w) * in->block + 0.5L);
	if (in->track)
		raw = in->tokens[r] + (in->isl > cached ? in->isl - cached : 0) + cached;
	credit = in->credit * decay * dev + in->host_w * host + in->disk_w * disk;
	credit += in->shared != NULL ? in->shared_w * in->shared[r] : 0;
	if (in->cache_lowers_decode)
		cost = decode > credit ? decode - credit : 0;
	else
		cost = in->scale * (raw / in->block > credit ? raw / in->block - credit : 0) +
		       decode;
	cost += in->request_w * in->requests[r];
	return (double)(in->mult != NULL ? cost * in->mult[r] : cost);
}

static void costs_follow_the_formula(void)
{
	struct kvr_rand r;

	kvr_rand_init(&r, 1);
	for (int round = 0; round < 300; round++) {
		struct cost_in in;

		fill_ranks(&r, &in);
		for (uint32_t i = 0; i < R; i++) {
			double want = by_the_book(&in, i), got = kvr_sched__cost_one(&in, i);

			CU_ASSERT_FATAL(fabs(got - want) <= 1e-9 * (1 + fabs(want)));
		}
	}
}

static void all_instruction_sets_agree_to_the_bit(void)
{
	static double cost[2][R], sums[2][R / 64];
	uint64_t ties[2][R / 64];
	struct kernels k, s;
	struct kvr_rand r;

	kvr_rand_init(&r, 2);
	CU_ASSERT_FATAL(kvr_sched__kernels(SCHED_SCALAR, &s));
	for (int isa = SCHED_AVX2; isa <= SCHED_AVX512; isa++) {
		if (!kvr_sched__kernels((enum sched_isa)isa, &k))
			continue;
		for (int round = 0; round < 300; round++) {
			struct cost_in in;
			uint32_t top[2];
			double low;

			fill_ranks(&r, &in);
			low = s.cost(&in, cost[0], &top[0]);
			CU_ASSERT_EQUAL_FATAL(k.cost(&in, cost[1], &top[1]), low);
			CU_ASSERT_EQUAL(top[0], s.max(tier[0], mask, R / 64));
			CU_ASSERT_EQUAL(top[1], top[0]);
			CU_ASSERT_EQUAL_FATAL(memcmp(cost[0], cost[1], sizeof(cost[0])), 0);
			cost[0][5] = cost[1][5] = cost[0][9] = cost[1][9] = low;
			CU_ASSERT_EQUAL(s.equal(cost[0], low, R / 64, ties[0]),
					k.equal(cost[1], low, R / 64, ties[1]));
			CU_ASSERT_EQUAL(memcmp(ties[0], ties[1], sizeof(ties[0])), 0);
			CU_ASSERT_EQUAL(s.max(tier[0], mask, R / 64), k.max(tier[0], mask, R / 64));
			CU_ASSERT_EQUAL(s.first(tier[0], tier[0][7], mask, R / 64, shared),
					k.first(tier[0], tier[0][7], mask, R / 64, shared));
			CU_ASSERT_EQUAL(k.first(tier[0], 200, mask, R / 64, shared), NIL);
			for (uint32_t i = 0; i < R; i++)
				limit[i] = kvr_rand_below(&r, 200) ? tokens[i] - 1 : tokens[i];
			CU_ASSERT_EQUAL(s.any_free(tokens, limit, mask, R / 64),
					k.any_free(tokens, limit, mask, R / 64));
			CU_ASSERT_EQUAL_FATAL(s.weights(cost[0], R / 64, low, 100, sums[0]),
					      k.weights(cost[1], R / 64, low, 100, sums[1]));
			CU_ASSERT_EQUAL(memcmp(cost[0], cost[1], sizeof(cost[0])), 0);
		}
	}
}

static void weights_are_the_exponential(void)
{
	static double cost[R], sums[R / 64];
	struct kernels k;
	double sum = 0;

	kvr_sched__kernels(SCHED_SCALAR, &k);
	for (uint32_t i = 0; i < R; i++)
		cost[i] = i < 100 ? 5 + i * 0.37 : INFINITY;
	cost[99] = 1e7;
	sum = k.weights(cost, R / 64, 5, 2, sums);
	for (uint32_t i = 0; i < 99; i++)
		CU_ASSERT_DOUBLE_EQUAL(cost[i] / exp(-(i * 0.37) / 2), 1, 1e-8);
	CU_ASSERT(cost[99] < 1e-200);
	CU_ASSERT_EQUAL(cost[100], 0);
	CU_ASSERT_DOUBLE_EQUAL(sums[0] + sums[1] + sums[2], sum, 1e-12);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(costs_follow_the_formula),
			       KVR_CASE(all_instruction_sets_agree_to_the_bit),
			       KVR_CASE(weights_are_the_exponential), CU_TEST_INFO_NULL};

	return kvr_test_run("cost", tests);
}
