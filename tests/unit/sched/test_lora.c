/* SPDX-License-Identifier: BSD-3-Clause */
#include "sched_pvt.h"

#include "kvr_test.h"
#include <stdio.h>

#define SLOTS 256u

static struct kvr_hints hints[SLOTS];
static struct kvr_sched_req req[SLOTS];
static char name[SLOTS][300];

static struct kvr_sched *make_lora_sched(double queue_threshold)
{
	const struct kvr_sched_worker w = {.id = 1, .dp_size = 1};
	struct kvr_pool_conf conf;
	struct kvr_sched *s;

	kvr_pool_conf_defaults(&conf);
	strcpy(conf.name, "t");
	conf.max_requests = SLOTS;
	conf.max_ranks = 64;
	conf.queue_threshold = queue_threshold;
	s = kvr_sched_create(&conf, NULL, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(s);
	CU_ASSERT_EQUAL_FATAL(kvr_sched_worker_set(s, &w, 0), 0);
	return s;
}

static enum kvr_sched_result route_one(struct kvr_sched *s, uint32_t slot, const char *lora,
				       size_t len)
{
	struct kvr_sched_decision d;

	memcpy(name[slot], lora, len);
	hints[slot] = (struct kvr_hints){.policy_class = KVR_SCHED_NO_CLASS,
					 .lora = {name[slot], (uint32_t)len}};
	req[slot].isl = 64;
	req[slot].hints = &hints[slot];
	return kvr_sched_route(s, slot, &req[slot], NULL, 0, &d);
}

static uint32_t count_active(const struct kvr_sched *s, const char *lora)
{
	return kvr_sched_lora_active(s, lora, strlen(lora));
}

static uint32_t count_others(const struct kvr_sched *s)
{
	struct kvr_sched_lora other;

	kvr_sched_lora_other(s, &other);
	return other.active;
}

static void bookings_are_counted_by_adapter(void)
{
	struct kvr_sched *s = make_lora_sched(NAN);
	struct kvr_sched_lora v[2];

	route_one(s, 0, "alpha", 5);
	route_one(s, 1, "alpha", 5);
	route_one(s, 2, "alphabet", 8);
	route_one(s, 3, "", 0);
	CU_ASSERT_EQUAL(count_active(s, "alpha"), 2);
	CU_ASSERT_EQUAL(count_active(s, "alphabet"), 1);
	CU_ASSERT_EQUAL(count_active(s, "alph"), 0);
	CU_ASSERT_EQUAL(count_active(s, ""), 0);
	kvr_sched_finish(s, 0, 0);
	kvr_sched_finish(s, 0, 0); /* late: nothing happens */
	kvr_sched_cancel(s, 2, 0);
	kvr_sched_finish(s, 3, 0);
	CU_ASSERT_EQUAL(count_active(s, "alpha"), 1);
	CU_ASSERT_EQUAL(count_active(s, "alphabet"), 0);
	CU_ASSERT_EQUAL(kvr_sched_loras(s, 0, v, 2), 2);
	CU_ASSERT_STRING_EQUAL(v[0].name, "alpha");
	CU_ASSERT_EQUAL(v[0].booked, 2);
	CU_ASSERT_EQUAL(kvr_sched_loras(s, 1, v, 1), 2);
	CU_ASSERT_STRING_EQUAL(v[0].name, "alphabet");
	CU_ASSERT_EQUAL(count_others(s), 0);
	kvr_sched_destroy(s);
}

/* Neither a query nor a request that waits or is refused is load of its adapter. */
static void only_bookings_count(void)
{
	struct kvr_sched *s = make_lora_sched(0);
	struct kvr_sched_decision d;

	CU_ASSERT_EQUAL(route_one(s, 0, "a", 1), KVR_SCHED_ROUTED);
	CU_ASSERT_EQUAL(route_one(s, 1, "a", 1), KVR_SCHED_QUEUED);
	req[2].query_only = true;
	CU_ASSERT_EQUAL(route_one(s, 2, "a", 1), KVR_SCHED_QUERY);
	req[2].query_only = false;
	CU_ASSERT_EQUAL(route_one(s, 0, "a", 1), KVR_SCHED_ERROR); /* duplicate */
	CU_ASSERT_EQUAL(count_active(s, "a"), 1);
	kvr_sched_finish(s, 0, 0);
	CU_ASSERT_EQUAL(count_active(s, "a"), 0);
	CU_ASSERT_EQUAL(kvr_sched_poll(s, 1, &d, 1), 1);
	CU_ASSERT_EQUAL(count_active(s, "a"), 1);
	kvr_sched_worker_gone(s, 1, 2); /* its bookings are dropped */
	CU_ASSERT_EQUAL(count_active(s, "a"), 0);
	kvr_sched_destroy(s);
}

static void names_beyond_the_table_are_counted_together(void)
{
	struct kvr_sched *s = make_lora_sched(NAN);
	char text[16];

	for (uint32_t i = 0; i < KVR_SCHED_ADAPTERS + 3; i++)
		route_one(s, i, text, (size_t)snprintf(text, sizeof(text), "adapter-%u", i));
	CU_ASSERT_EQUAL(count_active(s, "adapter-0"), 1);
	CU_ASSERT_EQUAL(count_active(s, "adapter-128"), 0);
	CU_ASSERT_EQUAL(count_others(s), 3);
	kvr_sched_finish(s, 7, 0); /* its place is free for the next name */
	route_one(s, 200, "late", 4);
	CU_ASSERT_EQUAL(count_active(s, "late"), 1);
	CU_ASSERT_EQUAL(count_active(s, "adapter-7"), 0);
	for (uint32_t i = 0; i < SLOTS; i++)
		kvr_sched_finish(s, i, 0);
	CU_ASSERT_EQUAL(count_others(s), 0);
	CU_ASSERT_EQUAL(count_active(s, "late") + count_active(s, "adapter-0"), 0);
	CU_ASSERT_EQUAL(kvr_sched_loras(s, 0, NULL, 0), KVR_SCHED_ADAPTERS);
	kvr_sched_destroy(s);
}

static void names_may_have_255_bytes(void)
{
	struct kvr_sched *s = make_lora_sched(NAN);
	char text[300];

	memset(text, 'x', sizeof(text));
	route_one(s, 0, text, 255);
	route_one(s, 1, text, 256);
	CU_ASSERT_EQUAL(kvr_sched_lora_active(s, text, 255), 1);
	CU_ASSERT_EQUAL(kvr_sched_lora_active(s, text, 256), 0);
	CU_ASSERT_EQUAL(count_others(s), 1);
	kvr_sched_destroy(s);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(bookings_are_counted_by_adapter),
			       KVR_CASE(only_bookings_count),
			       KVR_CASE(names_beyond_the_table_are_counted_together),
			       KVR_CASE(names_may_have_255_bytes), CU_TEST_INFO_NULL};

	return kvr_test_run("lora", tests);
}
