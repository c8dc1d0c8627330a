/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_stats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>

#include "kvr_test.h"

#define DEMO_COUNTERS(X)                                                                           \
	X(RX, rx, COUNT, "frames", "frames received")                                              \
	X(GOOD, good, COUNT, "frames", "frames kept")                                              \
	X(BAD, bad, COUNT, "frames", "frames rejected")                                            \
	X(WAITING, waiting, GAUGE, "frames", "frames not checked yet")
enum { DEMO_COUNTERS(KVR_COUNTER_ENUM) N };
struct demo_stats {
	DEMO_COUNTERS(KVR_COUNTER_FIELD)
};

static const struct kvr_counter counters[] = {DEMO_COUNTERS(KVR_COUNTER_ROW) KVR_COUNTER_END};
static const struct kvr_equation equations[] = {
	{KVR_TERMS(RX), KVR_TERMS(GOOD, BAD, WAITING)},
	{KVR_TERMS(GOOD), KVR_TERMS(GOOD)},
	{0},
};
static const struct kvr_stats_def def = {"demo", counters, equations};

static void rows_are_separate_and_summed(void)
{
	struct kvr_stats *stats = kvr_stats_create(&def, 3);
	uint64_t v[N];

	CU_ASSERT_PTR_NOT_NULL_FATAL(stats);
	CU_ASSERT_EQUAL(kvr_stats_count(&def), N);
	CU_ASSERT_PTR_EQUAL(kvr_stats_def(stats), &def);
	for (unsigned int w = 0; w < 3; w++) {
		kvr_cell_t *row = kvr_stats_row(stats, w);

		CU_ASSERT_EQUAL((uintptr_t)row % RTE_CACHE_LINE_SIZE, 0);
		kvr_stats_add(row, RX, 10 + w);
		kvr_stats_inc(row, GOOD);
		CU_ASSERT_EQUAL(kvr_stats_get(row, RX), 10 + w);
	}
	kvr_stats_sum(stats, v);
	CU_ASSERT_EQUAL(v[RX], 33);
	CU_ASSERT_EQUAL(v[GOOD], 3);
	CU_ASSERT_EQUAL(v[BAD], 0);
	CU_ASSERT_EQUAL(kvr_stats_find(&def, v, "rx"), 33);
	CU_ASSERT_EQUAL(kvr_stats_find(&def, v, "nothing"), 0);
	kvr_stats_destroy(stats);
	kvr_stats_destroy(NULL);
}

static void a_gauge_moved_between_rows_has_the_right_sum(void)
{
	struct kvr_stats *stats = kvr_stats_create(&def, 2);
	uint64_t v[N];

	kvr_stats_add(kvr_stats_row(stats, 0), WAITING, 5);
	kvr_stats_sub(kvr_stats_row(stats, 1), WAITING, 2); /* this row wraps below zero */
	kvr_stats_sum(stats, v);
	CU_ASSERT_EQUAL(v[WAITING], 3);
	kvr_stats_set(kvr_stats_row(stats, 1), WAITING, 0);
	kvr_stats_sum(stats, v);
	CU_ASSERT_EQUAL(v[WAITING], 5);
	kvr_stats_destroy(stats);
}

static void a_violated_equation_is_reported_with_its_values(void)
{
	const struct kvr_stats_def without_equations = {"demo", counters, NULL};
	uint64_t v[N] = {[RX] = 10, [GOOD] = 6, [BAD] = 3, [WAITING] = 1};
	char err[128] = "";

	CU_ASSERT_PTR_NULL(kvr_stats_check(&def, v, err, sizeof(err)));
	CU_ASSERT_STRING_EQUAL(err, "");
	v[BAD]++;
	CU_ASSERT_PTR_EQUAL(kvr_stats_check(&def, v, err, sizeof(err)), &equations[0]);
	CU_ASSERT_STRING_EQUAL(err, "demo: rx = good + bad + waiting, but 10 != 11");
	CU_ASSERT_PTR_EQUAL(kvr_stats_check(&def, v, NULL, 0), &equations[0]);
	CU_ASSERT_PTR_NULL(kvr_stats_check(&without_equations, v, NULL, 0));
}

/* Enum, rows and fields come from one list: the struct is a row. */
static void a_struct_of_the_list_is_a_row(void)
{
	struct demo_stats st = {0};
	kvr_cell_t copy[N];
	uint64_t v[N];

	CU_ASSERT_EQUAL(sizeof(st), N * sizeof(kvr_cell_t));
	CU_ASSERT_EQUAL(counters[WAITING].flags, KVR_COUNTER_F_GAUGE);
	CU_ASSERT_EQUAL(counters[BAD].flags, 0);
	kvr_cell_add(&st.bad, 3);
	kvr_cell_set(&st.waiting, 9);
	kvr_cell_sub(&st.waiting, 2);
	kvr_stats_row_copy(copy, &st.rx, N);
	for (unsigned int i = 0; i < N; i++)
		v[i] = kvr_stats_get(copy, i);
	CU_ASSERT_EQUAL(kvr_stats_find(&def, v, "bad"), 3);
	CU_ASSERT_EQUAL(kvr_stats_find(&def, v, "waiting"), 7);
	CU_ASSERT_EQUAL(kvr_stats_find(&def, v, "rx"), 0);
}

static void the_text_of_an_equation_is_truncated(void)
{
	char text[12];

	CU_ASSERT_STRING_EQUAL(kvr_equation_text(&def, &equations[0], text, sizeof(text)),
			       "rx = good +");
	CU_ASSERT_STRING_EQUAL(kvr_equation_text(&def, &equations[0], text, 1), "");
}

static void bad_declarations_are_rejected(void)
{
	static const struct kvr_counter none[] = {{0}};
	const struct kvr_stats_def empty = {"demo", none, NULL};

	errno = 0;
	CU_ASSERT_PTR_NULL(kvr_stats_create(&empty, 1));
	CU_ASSERT_EQUAL(errno, EINVAL);
	CU_ASSERT_PTR_NULL(kvr_stats_create(&def, 0));
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(rows_are_separate_and_summed),
			       KVR_CASE(a_gauge_moved_between_rows_has_the_right_sum),
			       KVR_CASE(a_violated_equation_is_reported_with_its_values),
			       KVR_CASE(a_struct_of_the_list_is_a_row),
			       KVR_CASE(the_text_of_an_equation_is_truncated),
			       KVR_CASE(bad_declarations_are_rejected),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("stats", tests);
}
