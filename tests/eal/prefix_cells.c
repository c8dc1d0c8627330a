/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Every cell of the reference workload: size, checksum over all queries, and an empty table after
 * the removals, on each code path in turn. The cells with 4 M entries run only if KVR_LARGE is set.
 */

#include "kvr_peerbench.h"
#include "kvr_prefix_test.h"
#include "kvr_test.h"

static const struct cell {
	uint32_t w, d, t_m, nseq;
	uint64_t entries, unique;
	uint32_t pairs, queries;
	uint64_t checksum;
} cells[] = {
	{8, 64, 1, 30226, 1000000, 971328, 1024, 16384, 0xd9a0e0},
	{8, 2048, 1, 537, 1001472, 680960, 441, 512, 0x675e45},
	{64, 64, 1, 23505, 1000000, 756256, 7745, 16384, 0x2a927a4d},
	{64, 512, 1, 2084, 1000448, 566272, 1824, 2048, 0xaae0c92},
	{64, 2048, 1, 494, 1000448, 636928, 483, 512, 0x3384f8b},
	{512, 64, 1, 16601, 1000000, 535328, 14649, 16384, 0x27a3329be},
	{512, 512, 1, 1973, 1000192, 537856, 1934, 2048, 0x5a76aa0f},
	{512, 2048, 1, 489, 1000448, 631808, 488, 512, 0x19aae21a},
	{8, 64, 4, 123976, 4000000, 3971328, 1024, 16384, 0xd93fdb},
	{8, 512, 4, 14601, 4000000, 3770624, 1024, 2048, 0xdab303},
	{8, 2048, 4, 2930, 4000768, 3131392, 977, 512, 0xcc84d5},
	{64, 64, 4, 116808, 4000000, 3741952, 8192, 16384, 0x2d1933d2},
	{64, 512, 4, 9889, 4000000, 2564352, 5736, 2048, 0x1fdf65c1},
	{64, 2048, 4, 2084, 4001792, 2265088, 1824, 512, 0xa9bc0c7},
	{512, 64, 4, 79138, 4000000, 2536512, 45862, 16384, 0x7bac95773},
	{512, 2048, 4, 1973, 4000768, 2151424, 1934, 512, 0x5876e039},
};

static uint64_t sum_queries(struct pt_table *p, const struct pb *b)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < b->nquery; i++)
		sum += pb_checksum(pt_score(p, &b->query[(size_t)i * b->d], b->d));
	return sum;
}

static void apply_events(struct pt_table *p, const struct pb_events *e)
{
	for (uint32_t i = 0; i < e->n; i += 20) {
		kvr_prefix_apply_burst(p->t, &e->ev[i], RTE_MIN(20u, e->n - i));
		rte_rcu_qsbr_quiescent(p->qsbr, 0);
	}
	pt_quiesce(p, 0);
}

static void check_cell(const struct cell *c, enum kvr_prefix_isa isa)
{
	struct kvr_prefix_stats s;
	struct pt_table p;
	struct pb b;

	pb_init(&b, c->w, c->d, c->t_m * UINT64_C(1000000));
	CU_ASSERT_EQUAL(b.nseq, c->nseq);
	CU_ASSERT_EQUAL(b.entries, c->entries);
	CU_ASSERT_EQUAL(b.npair, c->pairs);
	CU_ASSERT_EQUAL(b.nquery, c->queries);
	p = pt_open((struct kvr_prefix_conf){.max_ranks = c->w,
					     .max_blocks = (uint32_t)c->unique,
					     .max_runs = c->nseq * (c->d / 512 + 1) + 2048,
					     .max_predicted = 64,
					     .isa = isa,
					     .seed = c->checksum});
	if (p.t == NULL) { /* this CPU does not support the code path */
		CU_ASSERT_EQUAL(errno, ENOTSUP);
		pb_free(&b);
		pt_close(&p);
		return;
	}
	apply_events(&p, &b.store);
	s = pt_stats(&p);
	CU_ASSERT_EQUAL(s.entries, c->entries);
	CU_ASSERT_EQUAL(s.blocks, c->unique);
	CU_ASSERT_EQUAL(s.duplicates + s.orphans + s.dropped + s.evicted_runs, 0);
	CU_ASSERT(s.used_bytes <= c->entries * 32);
	CU_ASSERT_EQUAL(sum_queries(&p, &b), c->checksum);
	apply_events(&p, &b.remove);
	s = pt_stats(&p);
	CU_ASSERT_EQUAL(s.unknown_removes, 0);
	CU_ASSERT_EQUAL(s.used_bytes, 0);
	CU_ASSERT_EQUAL(sum_queries(&p, &b), 0);
	pb_free(&b);
	pt_close(&p);
}

static void streams_have_the_reference_values(void)
{
	struct kvr_rand r = pb_stream(1, 0), s = pb_stream(2, 5);
	const uint32_t worker[] = {33, 21, 1, 48, 6, 7, 21, 54};

	CU_ASSERT_EQUAL(kvr_rand_u64(&r), UINT64_C(0xf152414e8182c381));
	CU_ASSERT_EQUAL(kvr_rand_u64(&r), UINT64_C(0x1441ce78cd85877d));
	CU_ASSERT_EQUAL(kvr_rand_u64(&s), UINT64_C(0xb5dae60a5d4c4a20));
	for (uint32_t i = 0; i < 8; i++)
		CU_ASSERT_EQUAL(pb_worker(i, 64), worker[i]);
}

static void cells_of_1m_entries_match(void)
{
	for (uint32_t i = 0; i < 8; i++)
		check_cell(&cells[i], KVR_PREFIX_ISA_SCALAR + i % 3);
}

static void cells_of_4m_entries_match(void)
{
	if (getenv("KVR_LARGE") == NULL) {
		printf("(KVR_LARGE is not set: skipped) ");
		return;
	}
	for (uint32_t i = 8; i < RTE_DIM(cells); i++)
		check_cell(&cells[i], KVR_PREFIX_ISA_AUTO);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(streams_have_the_reference_values),
			       KVR_CASE(cells_of_1m_entries_match),
			       KVR_CASE(cells_of_4m_entries_match), CU_TEST_INFO_NULL};

	pt_eal();
	return kvr_test_run("prefix_cells", tests);
}
