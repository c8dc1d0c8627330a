/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_flight.h"

#include "kvr_eal.h"
#include "kvr_rand.h"
#include "kvr_test.h"
#include <errno.h>
#include <string.h>

#define SLOTS 64u

static struct kvr_flight_table *create_table(void)
{
	static int n;
	char name[32];
	struct kvr_flight_table *t;

	snprintf(name, sizeof(name), "t%d", n++);
	t = kvr_flight_create(name, SLOTS, 3, 77, SOCKET_ID_ANY);
	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	return t;
}

static struct kvr_flight *take_slot(struct kvr_flight_table *t, uint64_t source, uint64_t id)
{
	struct kvr_flight *r = kvr_flight_alloc(t, source, id);

	CU_ASSERT_PTR_NOT_NULL_FATAL(r);
	return r;
}

static void a_key_finds_its_slot_until_released(void)
{
	struct kvr_flight_table *t = create_table();
	struct kvr_flight *r = take_slot(t, 1, 2);

	CU_ASSERT_PTR_EQUAL(kvr_flight_lookup(t, 1, 2), r);
	CU_ASSERT_PTR_NULL(kvr_flight_lookup(t, 2, 1));
	CU_ASSERT_EQUAL(kvr_flight_count(t), 1);
	kvr_flight_release(t, r);
	CU_ASSERT_PTR_NULL(kvr_flight_lookup(t, 1, 2));
	CU_ASSERT_EQUAL(kvr_flight_count(t), 0);
	kvr_flight_destroy(t);
}

/* Legs of a request share its key: only one slot can be found by it. */
static void a_slot_without_key_is_found_by_handle(void)
{
	struct kvr_flight_table *t = create_table();
	struct kvr_flight *first = take_slot(t, 1, 2), *leg = kvr_flight_alloc_unnamed(t, 1, 2),
			  *second;

	CU_ASSERT_PTR_NOT_NULL_FATAL(leg);
	CU_ASSERT_PTR_EQUAL(kvr_flight_lookup(t, 1, 2), first);
	CU_ASSERT_PTR_EQUAL(kvr_flight_by_handle(t, kvr_flight_handle(t, leg)), leg);
	kvr_flight_end(t, leg, 0);
	kvr_flight_release(t, leg);
	CU_ASSERT_PTR_EQUAL(kvr_flight_lookup(t, 1, 2), first);
	CU_ASSERT_FALSE(kvr_flight_has_ended(t, 1, 2, NULL));

	kvr_flight_unname(t, first);
	CU_ASSERT_PTR_NULL(kvr_flight_lookup(t, 1, 2));
	second = take_slot(t, 1, 2);
	kvr_flight_end(t, first, 0);
	kvr_flight_release(t, first);
	CU_ASSERT_PTR_EQUAL(kvr_flight_lookup(t, 1, 2), second);
	CU_ASSERT_FALSE(kvr_flight_has_ended(t, 1, 2, NULL));
	CU_ASSERT_EQUAL(kvr_flight_count(t), 1);
	kvr_flight_destroy(t);
}

static void a_full_table_rejects_and_recovers(void)
{
	struct kvr_flight_table *t = create_table();

	for (int round = 0; round < 3; round++) {
		for (uint64_t i = 0; i < SLOTS; i++)
			take_slot(t, 9, i);
		CU_ASSERT_PTR_NULL(kvr_flight_alloc(t, 9, SLOTS));
		CU_ASSERT_EQUAL(errno, ENOSPC);
		for (uint64_t i = 0; i < SLOTS; i++)
			kvr_flight_release(t, kvr_flight_lookup(t, 9, i));
	}
	CU_ASSERT_EQUAL(kvr_flight_count(t), 0);
	kvr_flight_destroy(t);
}

static void relay_needs_a_published_slot_and_the_right_handle(void)
{
	struct kvr_flight_table *t = create_table();
	struct kvr_flight *r = take_slot(t, 1, 2);
	struct kvr_relay relay;
	uint64_t old, h = kvr_flight_handle(t, r);

	CU_ASSERT_PTR_NULL(kvr_flight_relay(t, h, &relay)); /* not published */
	r->relay.worker = 42;
	kvr_flight_publish(r);
	CU_ASSERT_EQUAL(kvr_flight_handle(t, r), h);
	CU_ASSERT_PTR_EQUAL(kvr_flight_relay(t, h, &relay), r);
	CU_ASSERT_EQUAL(relay.worker, 42);
	CU_ASSERT_EQUAL(relay.source, 1);
	CU_ASSERT_PTR_EQUAL(kvr_flight_by_handle(t, h), r);
	CU_ASSERT_PTR_NULL(kvr_flight_relay(t, h + 1, &relay));	       /* other slot */
	CU_ASSERT_PTR_NULL(kvr_flight_relay(t, h ^ 1u << 24, &relay)); /* other pool */
	CU_ASSERT_PTR_NULL(kvr_flight_relay(t, h ^ UINT64_C(2) << 32,
					    &relay)); /* another incarnation of the slot */
	CU_ASSERT_PTR_NULL(kvr_flight_relay(t, h ^ UINT64_C(1) << 32,
					    &relay)); /* an even generation is a free slot */
	CU_ASSERT_PTR_NULL(kvr_flight_relay(t, UINT64_MAX, &relay));
	CU_ASSERT_PTR_NULL(kvr_flight_relay(t, 0, &relay));

	old = h;
	kvr_flight_renew_handle(r); /* moves to another worker */
	CU_ASSERT_PTR_NULL(kvr_flight_relay(t, old, &relay));
	r->relay.worker = 43;
	kvr_flight_publish(r);
	h = kvr_flight_handle(t, r);
	CU_ASSERT_NOT_EQUAL(h, old);
	CU_ASSERT_PTR_NULL(kvr_flight_by_handle(t, old));
	CU_ASSERT_PTR_EQUAL(kvr_flight_relay(t, h, &relay), r);
	CU_ASSERT_EQUAL(relay.worker, 43);

	kvr_flight_release(t, r);
	CU_ASSERT_PTR_NULL(kvr_flight_relay(t, h, &relay));
	CU_ASSERT_PTR_NULL(kvr_flight_by_handle(t, h));
	kvr_flight_destroy(t);
}

/*
 * A slow ingress lcore writes after another request has got the slot: that request is not changed.
 */
static void progress_belongs_to_one_request(void)
{
	struct kvr_flight_table *t = create_table();
	struct kvr_flight *r = take_slot(t, 1, 2), *next;
	uint64_t old = kvr_flight_handle(t, r);

	CU_ASSERT_FALSE(kvr_flight_answered(r));
	CU_ASSERT_EQUAL(kvr_flight_seen(r, old), 0);
	kvr_flight_set_seen(r, old, 0);
	CU_ASSERT_TRUE(kvr_flight_answered(r));
	kvr_flight_set_seen(r, old, 9);
	CU_ASSERT_EQUAL(kvr_flight_seen(r, old), 10);
	kvr_flight_release(t, r);
	next = take_slot(t, 1, 3);
	CU_ASSERT_PTR_EQUAL_FATAL(next, r);
	kvr_flight_set_seen(r, old, 11);
	CU_ASSERT_FALSE(kvr_flight_answered(next));
	CU_ASSERT_EQUAL(kvr_flight_seen(next, kvr_flight_handle(t, next)), 0);
	kvr_flight_release(t, next);
	kvr_flight_destroy(t);
}

/* An acknowledgement counts only for items passed in this slot for this request. */
static void only_passed_items_may_be_acknowledged(void)
{
	struct kvr_flight_table *t = create_table();
	struct kvr_flight *r = take_slot(t, 1, 2);
	const uint64_t h = kvr_flight_handle(t, r);

	CU_ASSERT_TRUE(kvr_flight_may_ack(r, h, 0, false));
	CU_ASSERT_FALSE(kvr_flight_may_ack(r, h, 0, true));
	CU_ASSERT_FALSE(kvr_flight_may_ack(r, h, 1, false));
	kvr_flight_set_passed(r, h, 1, false);
	kvr_flight_set_passed(r, h, 0, false); /* the network decides the order */
	CU_ASSERT_TRUE(kvr_flight_may_ack(r, h, 2, false));
	CU_ASSERT_FALSE(kvr_flight_may_ack(r, h, 2, true));
	CU_ASSERT_FALSE(kvr_flight_may_ack(r, h, 3, false));
	kvr_flight_set_passed(r, h, 2, true);
	kvr_flight_set_passed(r, h, 1, false);
	CU_ASSERT_TRUE(kvr_flight_may_ack(r, h, 3, true));
	CU_ASSERT_FALSE(kvr_flight_may_ack(r, h, 4, true));
	kvr_flight_set_passed(r, h, UINT32_MAX, false);
	CU_ASSERT_TRUE(kvr_flight_may_ack(r, h, 4, true));
	kvr_flight_release(t, r);
	r = take_slot(t, 1, 3);
	CU_ASSERT_FALSE(kvr_flight_may_ack(r, kvr_flight_handle(t, r), 1, false));
	kvr_flight_release(t, r);
	kvr_flight_destroy(t);
}

static void an_ended_request_lingers_then_leaves_its_outcome(void)
{
	struct kvr_flight_table *t = create_table();
	struct kvr_flight *r = take_slot(t, 5, 6);

	CU_ASSERT_FALSE(kvr_flight_has_ended(t, 5, 6, NULL));
	kvr_flight_end(t, r, 1000);
	kvr_flight_end(t, r, 999999); /* only once */
	CU_ASSERT_EQUAL(kvr_flight_lingering(t), 1);
	CU_ASSERT_PTR_EQUAL(kvr_flight_lookup(t, 5, 6), r);
	CU_ASSERT_PTR_NULL(kvr_flight_lingered(t, 1000 + KVR_FLIGHT_LINGER_NS - 1));
	CU_ASSERT_PTR_EQUAL(kvr_flight_lingered(t, 1000 + KVR_FLIGHT_LINGER_NS), r);
	kvr_flight_release(t, r);
	CU_ASSERT_PTR_NULL(kvr_flight_lingered(t, UINT64_MAX));
	CU_ASSERT_EQUAL(kvr_flight_lingering(t), 0);
	CU_ASSERT_TRUE(kvr_flight_has_ended(t, 5, 6, NULL));
	CU_ASSERT_FALSE(kvr_flight_has_ended(t, 6, 5, NULL));

	r = take_slot(t, 7, 7); /* rejected before it was booked: not an ended request */
	kvr_flight_release(t, r);
	CU_ASSERT_FALSE(kvr_flight_has_ended(t, 7, 7, NULL));
	kvr_flight_destroy(t);
}

/* The outcome reported to the client is repeated after its slot has been freed. */
static void an_outcome_keeps_its_reason(void)
{
	struct kvr_flight_table *t = create_table();
	struct kvr_flight *r = take_slot(t, 5, 6);
	struct kvr_flight_end end = {0};

	r->rejected = true;
	r->end = (struct kvr_flight_end){.code = 66, .retry = 2, .detail = {503, 1, 2, 3}};
	kvr_flight_end(t, r, 0);
	kvr_flight_release(t, r);
	CU_ASSERT_TRUE(kvr_flight_has_ended(t, 5, 6, &end));
	CU_ASSERT_EQUAL(end.code, 66);
	CU_ASSERT_EQUAL(end.retry, 2);
	CU_ASSERT_EQUAL(end.detail[0], 503);
	CU_ASSERT_EQUAL(end.detail[1], 0);

	r = take_slot(t, 5, 7); /* the slot keeps no trace of it */
	CU_ASSERT_FALSE(r->rejected);
	kvr_flight_end(t, r, 0);
	kvr_flight_release(t, r);
	CU_ASSERT_TRUE(kvr_flight_has_ended(t, 5, 7, &end));
	CU_ASSERT_EQUAL(end.code, 0);
	kvr_flight_destroy(t);
}

static void the_oldest_ended_slot_is_reused_first(void)
{
	struct kvr_flight_table *t = create_table();
	struct kvr_flight *a = take_slot(t, 1, 1), *b = take_slot(t, 1, 2);

	CU_ASSERT_PTR_NULL(kvr_flight_oldest(t));
	kvr_flight_end(t, b, 10);
	kvr_flight_end(t, a, 20);
	CU_ASSERT_PTR_EQUAL(kvr_flight_oldest(t), b);
	kvr_flight_release(t, b);
	CU_ASSERT_PTR_EQUAL(kvr_flight_oldest(t), a);
	kvr_flight_release(t, a);
	CU_ASSERT_PTR_NULL(kvr_flight_oldest(t));
	kvr_flight_destroy(t);
}

static void random_operations_agree_with_a_model(void)
{
	struct kvr_flight_table *t = create_table();
	struct kvr_flight *model[128] = {0};
	struct kvr_rand rand;
	uint32_t live = 0;

	kvr_rand_init(&rand, 4);
	for (int step = 0; step < 200000; step++) {
		uint32_t id = kvr_rand_below(&rand, RTE_DIM(model));

		CU_ASSERT_PTR_EQUAL_FATAL(kvr_flight_lookup(t, 1, id), model[id]);
		if (model[id] == NULL) {
			model[id] = kvr_flight_alloc(t, 1, id);
			CU_ASSERT_EQUAL_FATAL(model[id] == NULL, live == SLOTS);
			live += model[id] != NULL;
		} else {
			if (kvr_rand_below(&rand, 2))
				kvr_flight_end(t, model[id], (uint64_t)step);
			kvr_flight_release(t, model[id]);
			model[id] = NULL;
			live--;
		}
		CU_ASSERT_EQUAL_FATAL(kvr_flight_count(t), live);
	}
	kvr_flight_destroy(t);
}

static void invalid_sizes_are_rejected(void)
{
	CU_ASSERT_PTR_NULL(kvr_flight_create("x", 0, 0, 1, SOCKET_ID_ANY));
	CU_ASSERT_EQUAL(errno, EINVAL);
	CU_ASSERT_PTR_NULL(kvr_flight_create("x", KVR_FLIGHT_MAX_SLOTS + 1, 0, 1, SOCKET_ID_ANY));
	CU_ASSERT_PTR_NULL(kvr_flight_create("x", 1, 256, 1, SOCKET_ID_ANY));
	kvr_flight_destroy(NULL);
}

/*
 * A scheduler that moves a request and an ingress lcore that passes its first item, in every order
 * of their stores and loads.
 */
static void the_first_item_passes_or_the_request_moves(void)
{
	struct kvr_flight_table *t = create_table();
	struct kvr_flight *r = take_slot(t, 1, 2);
	uint64_t h;

	kvr_flight_publish(r);
	h = kvr_flight_handle(t, r);
	/* The move is first: the item must be retransmitted. */
	CU_ASSERT_EQUAL(kvr_flight_relay_mode(r), KVR_FLIGHT_PASS);
	CU_ASSERT_TRUE(kvr_flight_hold_items(r));
	CU_ASSERT_EQUAL(kvr_flight_relay_mode(r), KVR_FLIGHT_HOLD);
	kvr_flight_set_seen(r, h, 0);
	CU_ASSERT_FALSE(kvr_flight_may_pass_first(r));
	kvr_flight_drop_items(r);
	CU_ASSERT_EQUAL(kvr_flight_relay_mode(r), KVR_FLIGHT_DROP);
	CU_ASSERT_FALSE(kvr_flight_may_pass_first(r));
	kvr_flight_release(t, r);
	/* The item is first: the request stays. */
	r = take_slot(t, 1, 2);
	kvr_flight_publish(r);
	h = kvr_flight_handle(t, r);
	CU_ASSERT_EQUAL(kvr_flight_relay_mode(r), KVR_FLIGHT_PASS);
	kvr_flight_set_seen(r, h, 0);
	CU_ASSERT_FALSE(kvr_flight_hold_items(r));
	CU_ASSERT_EQUAL(kvr_flight_relay_mode(r), KVR_FLIGHT_PASS);
	CU_ASSERT_TRUE(kvr_flight_may_pass_first(r));
	kvr_flight_release(t, r);
	/* It stays in this order, too. */
	r = take_slot(t, 1, 2);
	kvr_flight_publish(r);
	h = kvr_flight_handle(t, r);
	CU_ASSERT_TRUE(kvr_flight_hold_items(r));
	kvr_flight_pass_items(r);
	kvr_flight_set_seen(r, h, 0);
	CU_ASSERT_TRUE(kvr_flight_may_pass_first(r));
	kvr_flight_release(t, r);
	kvr_flight_destroy(t);
}

static void a_published_client_can_change_its_next_hop(void)
{
	static const uint8_t mac[6] = {2, 3, 4, 5, 6, 7};
	struct kvr_flight_table *t = create_table();
	struct kvr_flight *r = take_slot(t, 1, 2);
	struct kvr_relay before, after;
	uint64_t handle;

	memset(&r->relay.client, 0x11, sizeof(r->relay.client));
	memset(&r->relay.agent, 0x22, sizeof(r->relay.agent));
	r->relay.worker = 77;
	kvr_flight_publish(r);
	handle = kvr_flight_handle(t, r);
	CU_ASSERT_PTR_EQUAL(kvr_flight_relay(t, handle, &before), r);
	CU_ASSERT_EQUAL(memcmp(&before, &r->relay, sizeof(before)), 0);
	kvr_flight_set_next_hop(r, mac);
	CU_ASSERT_PTR_EQUAL(kvr_flight_relay(t, handle, &after), r);
	CU_ASSERT_EQUAL(memcmp(after.client.mac, mac, sizeof(mac)), 0);
	memcpy(before.client.mac, mac, sizeof(mac)); /* and nothing else */
	CU_ASSERT_EQUAL(memcmp(&before, &after, sizeof(before)), 0);
	CU_ASSERT_EQUAL(memcmp(&after, &r->relay, sizeof(after)), 0);
	kvr_flight_release(t, r);
	kvr_flight_destroy(t);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_key_finds_its_slot_until_released),
			       KVR_CASE(a_full_table_rejects_and_recovers),
			       KVR_CASE(a_slot_without_key_is_found_by_handle),
			       KVR_CASE(relay_needs_a_published_slot_and_the_right_handle),
			       KVR_CASE(progress_belongs_to_one_request),
			       KVR_CASE(only_passed_items_may_be_acknowledged),
			       KVR_CASE(an_ended_request_lingers_then_leaves_its_outcome),
			       KVR_CASE(an_outcome_keeps_its_reason),
			       KVR_CASE(the_oldest_ended_slot_is_reused_first),
			       KVR_CASE(random_operations_agree_with_a_model),
			       KVR_CASE(invalid_sizes_are_rejected),
			       KVR_CASE(a_published_client_can_change_its_next_hop),
			       KVR_CASE(the_first_item_passes_or_the_request_moves),
			       CU_TEST_INFO_NULL};

	kvr_eal_start("64");
	return kvr_test_run("flight", tests);
}
