/* SPDX-License-Identifier: BSD-3-Clause */
/* Curves and state changes, from looks that are written down here. */
#include "trail.h"

#include <stdbool.h>
#include <string.h>

#include "kvr_test.h"

/* A look at @p at seconds of a router's life @p epoch, with @p n requests so far. */
static json_t *look(double at, int epoch, int n, const char *state)
{
	json_t *r = json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "routes", 10 * n, "finished",
			      8 * n, "rejected", n, "predicted_cached", 100 * n, "actual_cached",
			      90 * n, "waiting", 3, "live", 7);
	json_t *pools = json_pack("{s:{s:O, s:s}, s:{s:o}}", "a", "requests", r, "prefill",
				  "active", "b", "requests", r);

	return json_pack("{s:f, s:{s:i}, s:{s:{s:{s:s}}}, s:o, s:{s:{s:i}}}", "at", at, "info",
			 "epoch", epoch, "workers", "workers", "7", "state", state, "pools", pools,
			 "ports", "p0", "link_up", 1);
}

static double point(const struct trail *tr, size_t i, const char *name)
{
	return json_number_value(json_object_get(json_array_get(tr->points, i), name));
}

/* Whether change @p i, the newest is 0, says so; NULL: it was or is not there. */
static bool change(const struct trail *tr, size_t i, const char *what, const char *was,
		   const char *is)
{
	const json_t *c = json_array_get(tr->changes, i);
	const char *w = json_string_value(json_object_get(c, "was"));
	const char *s = json_string_value(json_object_get(c, "is"));

	return c != NULL && strcmp(json_string_value(json_object_get(c, "what")), what) == 0 &&
	       (was == NULL ? w == NULL : w != NULL && strcmp(w, was) == 0) &&
	       (is == NULL ? s == NULL : s != NULL && strcmp(s, is) == 0);
}

static void points_are_rates_and_levels_of_all_pools(void)
{
	json_t *one = look(100, 5, 10, "serving"), *two = look(104, 5, 12, "serving");
	struct trail tr = {0};

	trail_add(&tr, NULL, one, 1000);
	CU_ASSERT_EQUAL(json_array_size(tr.points), 0); /* nothing to compare it with */
	trail_add(&tr, one, two, 1004);
	CU_ASSERT_EQUAL_FATAL(json_array_size(tr.points), 1);
	CU_ASSERT_DOUBLE_EQUAL(point(&tr, 0, "t"), 1004, 0);
	CU_ASSERT_DOUBLE_EQUAL(point(&tr, 0, "asked"), 10, 1e-9); /* 2 pools, 20 in 4 s each */
	CU_ASSERT_DOUBLE_EQUAL(point(&tr, 0, "done"), 8, 1e-9);
	CU_ASSERT_DOUBLE_EQUAL(point(&tr, 0, "refused"), 1, 1e-9);
	CU_ASSERT_DOUBLE_EQUAL(point(&tr, 0, "predicted"), 100, 1e-9);
	CU_ASSERT_DOUBLE_EQUAL(point(&tr, 0, "found"), 90, 1e-9);
	CU_ASSERT_DOUBLE_EQUAL(point(&tr, 0, "waiting"), 6, 0);
	CU_ASSERT_DOUBLE_EQUAL(point(&tr, 0, "live"), 14, 0);
	CU_ASSERT_EQUAL(json_array_size(tr.changes), 0);
	trail_clear(&tr);
	json_decref(one);
	json_decref(two);
}

static void another_life_is_a_change_and_no_rate(void)
{
	json_t *one = look(100, 5, 10, "serving"), *two = look(104, 6, 12, "serving");
	struct trail tr = {0};

	trail_add(&tr, NULL, one, 1000);
	trail_add(&tr, one, two, 1004);
	CU_ASSERT_EQUAL(json_array_size(tr.points), 0);
	CU_ASSERT_EQUAL(json_array_size(tr.changes), 1);
	CU_ASSERT(change(&tr, 0, "router", "running, life 5", "running, life 6"));
	trail_clear(&tr);
	json_decref(one);
	json_decref(two);
}

static void changes_are_told_newest_first(void)
{
	json_t *one = look(100, 5, 10, "joining"), *two = look(102, 5, 10, "serving");
	json_t *three = look(104, 5, 10, "serving");
	struct trail tr = {0};

	json_object_clear(json_object_get(json_object_get(three, "workers"), "workers"));
	json_object_set_new(json_object_get(json_object_get(three, "ports"), "p0"), "link_up",
			    json_integer(0));
	json_object_set_new(json_object_get(json_object_get(three, "pools"), "a"), "prefill",
			    json_string("inactive"));
	trail_add(&tr, NULL, one, 1000);
	trail_add(&tr, one, two, 1002);
	CU_ASSERT_EQUAL(json_array_size(tr.changes), 1);
	CU_ASSERT(change(&tr, 0, "worker 7", "joining", "serving"));
	trail_add(&tr, two, three, 1004);
	CU_ASSERT_EQUAL(json_array_size(tr.changes), 4);
	CU_ASSERT(change(&tr, 0, "link of port p0", "up", "down"));
	CU_ASSERT(change(&tr, 1, "prefill pool a", "active", "inactive"));
	CU_ASSERT(change(&tr, 2, "worker 7", "serving", NULL));
	trail_add(&tr, three, two, 1006);
	CU_ASSERT(change(&tr, 0, "link of port p0", "down", "up"));
	CU_ASSERT(change(&tr, 2, "worker 7", NULL, "serving"));
	trail_clear(&tr);
	json_decref(one);
	json_decref(two);
	json_decref(three);
}

static void a_router_that_is_gone_is_one_change(void)
{
	json_t *one = look(100, 5, 10, "serving"), *two = look(108, 6, 1, "joining");
	struct trail tr = {0};

	trail_add(&tr, NULL, one, 1000);
	trail_add(&tr, one, NULL, 1002);
	trail_add(&tr, NULL, NULL, 1004);
	CU_ASSERT_EQUAL(json_array_size(tr.changes), 1);
	CU_ASSERT(change(&tr, 0, "router", "running, life 5", "does not answer"));
	trail_add(&tr, NULL, two, 1008);
	CU_ASSERT_EQUAL(json_array_size(tr.changes), 2);
	CU_ASSERT(change(&tr, 0, "router", "does not answer", "running, life 6"));
	CU_ASSERT_EQUAL(json_array_size(tr.points), 0);
	trail_clear(&tr);
	json_decref(one);
	json_decref(two);
}

/* Of a router without workers and ports only its life is known. */
static void a_router_alone_is_there(void)
{
	json_t *one = json_pack("{s:f, s:{s:i}}", "at", 100.0, "info", "epoch", 5);
	json_t *two = look(102, 5, 10, "serving");
	struct trail tr = {0};

	trail_add(&tr, NULL, one, 1000);
	trail_add(&tr, one, two, 1002);
	CU_ASSERT_EQUAL(json_array_size(tr.changes), 3);
	CU_ASSERT(change(&tr, 2, "worker 7", NULL, "serving"));
	trail_add(&tr, two, one, 1004);
	trail_add(&tr, one, NULL, 1006);
	CU_ASSERT(change(&tr, 0, "router", "running, life 5", "does not answer"));
	trail_clear(&tr);
	json_decref(one);
	json_decref(two);
}

static void what_is_kept_is_bounded(void)
{
	struct trail tr = {0};
	json_t *was = NULL;

	for (unsigned int i = 0; i < 400; i++) {
		json_t *is = look(i, 5, (int)i, i % 2 != 0 ? "serving" : "suspect");

		trail_add(&tr, was, is, i);
		json_decref(was);
		was = is;
	}
	CU_ASSERT_EQUAL(json_array_size(tr.points), TRAIL_POINTS);
	CU_ASSERT_DOUBLE_EQUAL(point(&tr, 0, "t"), 400 - TRAIL_POINTS, 0);
	CU_ASSERT_DOUBLE_EQUAL(point(&tr, TRAIL_POINTS - 1, "t"), 399, 0);
	CU_ASSERT_EQUAL(json_array_size(tr.changes), TRAIL_CHANGES);
	CU_ASSERT(change(&tr, 0, "worker 7", "suspect", "serving"));
	trail_clear(&tr);
	json_decref(was);
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"points are rates and levels of all pools",
		 points_are_rates_and_levels_of_all_pools},
		{"another life is a change and no rate", another_life_is_a_change_and_no_rate},
		{"changes are told newest first", changes_are_told_newest_first},
		{"a router that is gone is one change", a_router_that_is_gone_is_one_change},
		{"a router alone is there", a_router_alone_is_there},
		{"what is kept is bounded", what_is_kept_is_bounded},
		CU_TEST_INFO_NULL};

	return kvr_test_run("trail", tests);
}
