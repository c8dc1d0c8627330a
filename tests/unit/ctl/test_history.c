/* SPDX-License-Identifier: BSD-3-Clause */
/* Points and changes of a history, from constructed samples. */
#include "history.h"

#include <stdbool.h>
#include <string.h>

#include "kvr_test.h"

/* @return a sample at @p at seconds, of a router with @p epoch after @p n requests. */
static json_t *make_sample(double at, int epoch, int n, const char *state)
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

static double get_point(const struct history *history, size_t i, const char *name)
{
	return json_number_value(json_object_get(json_array_get(history->points, i), name));
}

/* @return true if change @p i (0: newest) has these states; NULL: absent. */
static bool is_change(const struct history *history, size_t i, const char *what, const char *was,
		      const char *is)
{
	const json_t *c = json_array_get(history->changes, i);
	const char *w = json_string_value(json_object_get(c, "was"));
	const char *s = json_string_value(json_object_get(c, "is"));

	return c != NULL && strcmp(json_string_value(json_object_get(c, "what")), what) == 0 &&
	       (was == NULL ? w == NULL : w != NULL && strcmp(w, was) == 0) &&
	       (is == NULL ? s == NULL : s != NULL && strcmp(s, is) == 0);
}

static void points_are_rates_and_levels_of_all_pools(void)
{
	json_t *one = make_sample(100, 5, 10, "serving"), *two = make_sample(104, 5, 12, "serving");
	struct history history = {0};

	history_add(&history, NULL, one, 1000);
	CU_ASSERT_EQUAL(json_array_size(history.points), 0); /* no previous sample */
	history_add(&history, one, two, 1004);
	CU_ASSERT_EQUAL_FATAL(json_array_size(history.points), 1);
	CU_ASSERT_DOUBLE_EQUAL(get_point(&history, 0, "t"), 1004, 0);
	CU_ASSERT_DOUBLE_EQUAL(get_point(&history, 0, "received"), 10,
			       1e-9); /* 2 pools, 20 in 4 s each */
	CU_ASSERT_DOUBLE_EQUAL(get_point(&history, 0, "finished"), 8, 1e-9);
	CU_ASSERT_DOUBLE_EQUAL(get_point(&history, 0, "rejected"), 1, 1e-9);
	CU_ASSERT_DOUBLE_EQUAL(get_point(&history, 0, "predicted"), 100, 1e-9);
	CU_ASSERT_DOUBLE_EQUAL(get_point(&history, 0, "found"), 90, 1e-9);
	CU_ASSERT_DOUBLE_EQUAL(get_point(&history, 0, "waiting"), 6, 0);
	CU_ASSERT_DOUBLE_EQUAL(get_point(&history, 0, "in flight"), 14, 0);
	CU_ASSERT_EQUAL(json_array_size(history.changes), 0);
	history_clear(&history);
	json_decref(one);
	json_decref(two);
}

static void another_epoch_is_a_change_without_a_rate(void)
{
	json_t *one = make_sample(100, 5, 10, "serving"), *two = make_sample(104, 6, 12, "serving");
	struct history history = {0};

	history_add(&history, NULL, one, 1000);
	history_add(&history, one, two, 1004);
	CU_ASSERT_EQUAL(json_array_size(history.points), 0);
	CU_ASSERT_EQUAL(json_array_size(history.changes), 1);
	CU_ASSERT(is_change(&history, 0, "router", "running, epoch 5", "running, epoch 6"));
	history_clear(&history);
	json_decref(one);
	json_decref(two);
}

static void the_newest_change_comes_first(void)
{
	json_t *one = make_sample(100, 5, 10, "joining"), *two = make_sample(102, 5, 10, "serving");
	json_t *three = make_sample(104, 5, 10, "serving");
	struct history history = {0};

	json_object_clear(json_object_get(json_object_get(three, "workers"), "workers"));
	json_object_set_new(json_object_get(json_object_get(three, "ports"), "p0"), "link_up",
			    json_integer(0));
	json_object_set_new(json_object_get(json_object_get(three, "pools"), "a"), "prefill",
			    json_string("inactive"));
	history_add(&history, NULL, one, 1000);
	history_add(&history, one, two, 1002);
	CU_ASSERT_EQUAL(json_array_size(history.changes), 1);
	CU_ASSERT(is_change(&history, 0, "worker 7", "joining", "serving"));
	history_add(&history, two, three, 1004);
	CU_ASSERT_EQUAL(json_array_size(history.changes), 4);
	CU_ASSERT(is_change(&history, 0, "link of port p0", "up", "down"));
	CU_ASSERT(is_change(&history, 1, "prefill pool a", "active", "inactive"));
	CU_ASSERT(is_change(&history, 2, "worker 7", "serving", NULL));
	history_add(&history, three, two, 1006);
	CU_ASSERT(is_change(&history, 0, "link of port p0", "down", "up"));
	CU_ASSERT(is_change(&history, 2, "worker 7", NULL, "serving"));
	history_clear(&history);
	json_decref(one);
	json_decref(two);
	json_decref(three);
}

static void a_lost_router_is_one_change(void)
{
	json_t *one = make_sample(100, 5, 10, "serving"), *two = make_sample(108, 6, 1, "joining");
	struct history history = {0};

	history_add(&history, NULL, one, 1000);
	history_add(&history, one, NULL, 1002);
	history_add(&history, NULL, NULL, 1004);
	CU_ASSERT_EQUAL(json_array_size(history.changes), 1);
	CU_ASSERT(is_change(&history, 0, "router", "running, epoch 5", "does not answer"));
	history_add(&history, NULL, two, 1008);
	CU_ASSERT_EQUAL(json_array_size(history.changes), 2);
	CU_ASSERT(is_change(&history, 0, "router", "does not answer", "running, epoch 6"));
	CU_ASSERT_EQUAL(json_array_size(history.points), 0);
	history_clear(&history);
	json_decref(one);
	json_decref(two);
}

/* Without workers and ports only the epoch is known. */
static void a_router_without_workers_has_a_state(void)
{
	json_t *one = json_pack("{s:f, s:{s:i}}", "at", 100.0, "info", "epoch", 5);
	json_t *two = make_sample(102, 5, 10, "serving");
	struct history history = {0};

	history_add(&history, NULL, one, 1000);
	history_add(&history, one, two, 1002);
	CU_ASSERT_EQUAL(json_array_size(history.changes), 3);
	CU_ASSERT(is_change(&history, 2, "worker 7", NULL, "serving"));
	history_add(&history, two, one, 1004);
	history_add(&history, one, NULL, 1006);
	CU_ASSERT(is_change(&history, 0, "router", "running, epoch 5", "does not answer"));
	history_clear(&history);
	json_decref(one);
	json_decref(two);
}

static void points_and_changes_are_bounded(void)
{
	struct history history = {0};
	json_t *was = NULL;

	for (unsigned int i = 0; i < 400; i++) {
		json_t *is = make_sample(i, 5, (int)i, i % 2 != 0 ? "serving" : "suspect");

		history_add(&history, was, is, i);
		json_decref(was);
		was = is;
	}
	CU_ASSERT_EQUAL(json_array_size(history.points), HISTORY_POINTS);
	CU_ASSERT_DOUBLE_EQUAL(get_point(&history, 0, "t"), 400 - HISTORY_POINTS, 0);
	CU_ASSERT_DOUBLE_EQUAL(get_point(&history, HISTORY_POINTS - 1, "t"), 399, 0);
	CU_ASSERT_EQUAL(json_array_size(history.changes), HISTORY_CHANGES);
	CU_ASSERT(is_change(&history, 0, "worker 7", "suspect", "serving"));
	history_clear(&history);
	json_decref(was);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(points_are_rates_and_levels_of_all_pools),
			       KVR_CASE(another_epoch_is_a_change_without_a_rate),
			       KVR_CASE(the_newest_change_comes_first),
			       KVR_CASE(a_lost_router_is_one_change),
			       KVR_CASE(a_router_without_workers_has_a_state),
			       KVR_CASE(points_and_changes_are_bounded),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("history", tests);
}
