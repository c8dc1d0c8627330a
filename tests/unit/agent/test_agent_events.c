/* SPDX-License-Identifier: BSD-3-Clause */
/* The ring of a rank's events, compared with a plain list of all events. */
#include "agent_pvt.h"

#include "kvr_rand.h"
#include "kvr_test.h"

#define RING   4096u
#define EVENTS 20000u
#define MOST   100u /* blocks per event */

static _Alignas(16) uint8_t ring[RING];
static uint32_t blocks[EVENTS]; /* by id */

static struct agent_rank reset_ring(void)
{
	struct agent_rank k = {.ring = ring, .ring_mask = RING - 1};

	kvr_agent__kv_drop(&k);
	return k;
}

/* Add an event. @return false: no space. */
static bool add_event(struct agent_rank *k, uint32_t n)
{
	const uint32_t bytes = (uint32_t)sizeof(struct kvr_wire_kv_event) + n * 8;
	struct kvr_wire_kv_event *e = kvr_agent__kv_room_for(k, bytes);
	const uint64_t id = k->next_id;

	if (e == NULL)
		return false;
	CU_ASSERT((uint8_t *)e >= ring && (uint8_t *)e + bytes <= ring + RING);
	*e = (struct kvr_wire_kv_event){.type = KVR_KV_STORED, .n_blocks = n, .parent = id};
	for (uint32_t i = 0; i < n; i++)
		memcpy((uint8_t *)(e + 1) + 8ul * i, &id, 8);
	blocks[id] = n;
	kvr_agent__kv_added(k, e);
	CU_ASSERT_EQUAL(k->next_id, id + 1);
	return true;
}

/* Check all events from a place to the end. */
static void check_events(const struct agent_rank *k, struct agent_place p)
{
	while (p.at != k->end) {
		const struct kvr_wire_kv_event *e = kvr_agent__kv_at(k, &p);
		const uint8_t *last = (const uint8_t *)(e + 1) + 8ul * (e->n_blocks - 1);

		CU_ASSERT_EQUAL_FATAL(e->type, KVR_KV_STORED);
		CU_ASSERT_EQUAL_FATAL(e->parent, p.id);
		CU_ASSERT_EQUAL_FATAL(e->n_blocks, blocks[p.id]);
		CU_ASSERT_EQUAL(memcmp(last, &p.id, 8), 0);
		kvr_agent__kv_seek(k, &p, p.id + 1);
	}
	CU_ASSERT_EQUAL(p.id, k->next_id);
}

static void acknowledged_events_stay_while_there_is_space(void)
{
	struct agent_rank k = reset_ring();
	struct kvr_rand r;

	kvr_rand_init(&r, 5);
	while (k.next_id < EVENTS) {
		const uint64_t before = k.first.id;
		const bool fits = add_event(&k, 1 + kvr_rand_below(&r, MOST));

		/* Only acknowledged events are dropped, and only for lack of space. */
		CU_ASSERT(k.first.id <= k.acked.id);
		CU_ASSERT(fits || k.first.id == k.acked.id);
		if (k.first.id > before)
			CU_ASSERT(k.end - k.first.at > RING - 2 * (16 + 8 * MOST));
		if (!fits || kvr_rand_below(&r, 4) == 0) {
			k.to_send = (struct agent_place){k.next_id, k.end};
			kvr_agent__kv_seek(
				&k, &k.acked,
				k.acked.id +
					kvr_rand_below(&r, (uint32_t)(k.next_id - k.acked.id + 1)));
		}
		if (k.next_id % 7 == 0)
			check_events(&k, k.first);
		check_events(&k, k.acked);
	}
}

static void rewind_reaches_every_event_in_the_ring(void)
{
	struct agent_rank k = reset_ring();

	while (k.next_id < 500) {
		CU_ASSERT_FATAL(add_event(&k, 1 + (uint32_t)(k.next_id * 37 % MOST)));
		k.to_send = (struct agent_place){k.next_id, k.end};
		kvr_agent__kv_seek(&k, &k.acked, k.next_id - 2);
		CU_ASSERT(k.next_id < 2 || kvr_agent__kv_in_flight(&k) > 0);
		for (uint64_t id = k.first.id; id <= k.next_id; id++) {
			kvr_agent__kv_rewind(&k, id);
			CU_ASSERT_EQUAL(k.to_send.id, id);
			CU_ASSERT_EQUAL(kvr_agent__kv_waits(&k), id < k.next_id);
			check_events(&k, k.to_send);
		}
	}
}

static void a_cleared_ring_continues_with_the_next_id(void)
{
	struct agent_rank k = reset_ring();

	for (unsigned int i = 0; i < 10; i++) {
		while (add_event(&k, 60)) /* nothing is acknowledged */
			continue;
		CU_ASSERT(k.next_id == (i + 1) * (RING / (16 + 8 * 60)) + i);
		k.next_id++; /* as after an event without space */
		kvr_agent__kv_drop(&k);
		CU_ASSERT(!kvr_agent__kv_waits(&k));
		CU_ASSERT_EQUAL(kvr_agent__kv_in_flight(&k), 0);
		CU_ASSERT_EQUAL(k.first.id, k.next_id);
	}
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(acknowledged_events_stay_while_there_is_space),
			       KVR_CASE(rewind_reaches_every_event_in_the_ring),
			       KVR_CASE(a_cleared_ring_continues_with_the_next_id),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("agent events", tests);
}
