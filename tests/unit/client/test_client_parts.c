/* SPDX-License-Identifier: BSD-3-Clause */
/* Items of several frames: put together, asked for, bounded, and hostile ones. */
#include "client_rig.h"

#define UNIT 1384u

static char data[KVR_WIRE_MAX_ITEM + 1000];

struct item {
	struct kvr_wire_ids ids;
	uint32_t seq, len, msg_len; /* msg_len 0: what follows from len */
	uint16_t flags;
};

static struct item item(uint64_t id, uint32_t seq, uint32_t len, uint16_t flags)
{
	return (struct item){.ids = ids_of(id, HANDLE), .seq = seq, .len = len, .flags = flags};
}

static uint32_t body_len(const struct item *it)
{
	return it->msg_len != 0 ? it->msg_len : 32 + ((it->len + 7u) & ~7u);
}

/* Fragment number @p k of an item. */
static void push_part(struct kvr_udp_addr from, const struct item *it, uint32_t k)
{
	static uint8_t body[sizeof(data) + 64];
	const struct kvr_wire_response w = {.seq = it->seq,
					    .flags = it->flags,
					    .generated_tokens = it->seq + 1,
					    .data_len = it->len,
					    .cached_tokens = KVR_NONE32};
	const uint32_t len = body_len(it), off = k * UNIT;
	const uint32_t part = len - off < UNIT ? len - off : UNIT;

	for (uint32_t i = 0; i < sizeof(data); i++)
		data[i] = (char)(i * 7 + i / 251);
	memset(body, 0, sizeof(body));
	memcpy(body, &w, sizeof(w));
	memcpy(body + sizeof(w), data, it->len);
	kvr_hdr_put(fake_slot(&net), KVR_RESPONSE, &it->ids, len, off, (uint16_t)part);
	memcpy(fake_slot(&net) + 48, body + off, part);
	fake_push(&net, from, (int)(48 + part));
}

static void push_parts(const struct item *it, uint32_t from, uint32_t to)
{
	for (uint32_t k = from; k < to; k++)
		push_part(router_at, it, k);
}

static const struct kvr_wire_missing *missing(void)
{
	const struct kvr_wire_hdr *h = fake_next(&net, KVR_MISSING);

	if (h == NULL)
		return NULL;
	CU_ASSERT_EQUAL(h->handle, HANDLE);
	CU_ASSERT_EQUAL(kvr_body_check(KVR_MISSING, h + 1, h->msg_len, NULL), 0);
	return (const void *)(h + 1);
}

static uint64_t running(uint32_t flags)
{
	rig_start();
	return rig_running(flags);
}

static void fragments_in_any_order_make_the_item(void)
{
	const uint64_t id = running(0);
	struct item it = item(id, 0, KVR_WIRE_MAX_ITEM, 0);

	for (uint32_t k = 48; k-- > 0;) {
		push_part(router_at, &it, k);
		push_part(router_at, &it, k);
	}
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, 1);
	CU_ASSERT_EQUAL(saw.bytes, KVR_WIRE_MAX_ITEM);
	it = item(id, 1, 3000, KVR_RESP_F_FIN);
	push_parts(&it, 0, 3);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, 2);
	CU_ASSERT_EQUAL(saw.ends, 1);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_FINISHED);
	rig_stop();
}

static void what_is_lost_is_asked_for_once(void)
{
	const uint64_t id = running(0);
	const struct item it = item(id, 0, KVR_WIRE_MAX_ITEM, KVR_RESP_F_FIN);
	const struct kvr_wire_missing *w;
	uint64_t word;

	push_parts(&it, 0, 5);
	push_parts(&it, 7, 48);
	kvr_client_process(c);
	CU_ASSERT_PTR_NULL(missing());
	CU_ASSERT_TRUE(kvr_client_timeout_strict(c));
	rig_run_ms(6);
	CU_ASSERT_FALSE(
		kvr_client_timeout_strict(c)); /* asked for: now the sender's timers count */
	w = missing();
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT(kvr_udp_addr_equal(fake_to(&net), &router_at));
	memcpy(&word, w + 1, 8);
	CU_ASSERT_EQUAL(w->kind, KVR_RESPONSE);
	CU_ASSERT_EQUAL(w->msg_seq, it.ids.msg_seq);
	CU_ASSERT_EQUAL(word, 3u << 5);
	rig_run_ms(100);
	CU_ASSERT_PTR_NULL(missing());
	push_parts(&it, 5, 7);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.ends, 1);
	rig_stop();
}

static void copies_of_one_delivered_are_acknowledged_by_their_first(void)
{
	const uint64_t id = running(0);
	const struct item it = item(id, 0, 5000, 0);
	const struct kvr_wire_hdr *h;

	push_parts(&it, 0, 4);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, 1);
	rig_run_ms(10);
	fake_skip(&net);
	push_parts(&it, 1, 4);
	rig_run_ms(20);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_RESPONSE_ACK), 0);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_MISSING), 0);
	push_part(router_at, &it, 0);
	kvr_client_process(c);
	h = fake_next(&net, KVR_RESPONSE_ACK);
	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	CU_ASSERT_EQUAL(((const struct kvr_wire_response_ack *)(h + 1))->next_seq, 1);
	CU_ASSERT_EQUAL(saw.items, 1);
	/* ... when nobody remembers that it has been put together, too */
	net.now_us += 10000000;
	push_part(router_at, &it, 0);
	kvr_client_process(c);
	CU_ASSERT_PTR_NOT_NULL(fake_next(&net, KVR_RESPONSE_ACK));
	rig_run_ms(20);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_MISSING), 0);
	rig_stop();
}

static void hostile_fragments_change_nothing(void)
{
	const uint64_t id = running(0);
	const struct kvr_udp_addr evil = fake_addr(66, 6666);
	struct item it = item(id, 0, 10, 0), lie;
	struct kvr_client_stats s;

	push_part(router_at, &it, 0);
	it = item(id, 1, 5000, KVR_RESP_F_FIN);
	push_part(evil, &it, 0); /* relayed: only the router's count */
	push_parts(&it, 0, 2);
	lie = it;
	lie.msg_len = 9000; /* another length under the same name */
	push_part(router_at, &lie, 2);
	lie = item(id, 1, 5000, 0);
	lie.msg_len = 9000; /* its data do not fill it */
	push_part(router_at, &lie, 0);
	lie = item(id, 1, KVR_WIRE_MAX_ITEM, 0);
	lie.msg_len = KVR_WIRE_ITEM_MOST + 8;
	push_part(router_at, &lie, 0);
	push_part(router_at, &lie, 1);
	lie = item(id, 1, 5000, KVR_RESP_F_ERROR); /* without FIN */
	push_part(router_at, &lie, 0);
	lie = item(id, 200, 5000, 0); /* far ahead */
	push_part(router_at, &lie, 0);
	lie = item(id, 1, 5000, 0);
	lie.ids.handle = HANDLE + 1; /* of another run */
	push_parts(&lie, 0, 4);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, 1);
	kvr_client_stats_get(c, &s);
	CU_ASSERT_EQUAL(s.frames_bad, 5);
	CU_ASSERT_EQUAL(s.frames_foreign, 5);
	push_parts(&it, 2, 4);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.ends, 1);
	CU_ASSERT_EQUAL(saw.bytes, 5010);
	rig_stop();
}

/* Many begun and none ended: the oldest go, an honest one comes through, nothing grows. */
static void what_is_begun_and_not_ended_is_bounded(void)
{
	uint64_t id;
	struct item it;

	rig_start_conf((struct kvr_client_conf){.assembly_bytes = 1u << 20});
	id = rig_submit(0);
	push_accepted(id, HANDLE, KVR_STATE_RUNNING, 1);
	kvr_client_process(c);
	for (uint32_t i = 0; i < 100; i++) {
		for (uint32_t k = 0; k < 20; k++) {
			it = item(id, 1 + k, KVR_WIRE_MAX_ITEM, 0);
			push_parts(&it, 0, 20);
		}
		kvr_client_process(c);
		kvr_client_process(c); /* the rest of the burst */
		CU_ASSERT(kvr_reasm_stats(c->link.reasm)->bytes <= 1u << 20);
	}
	it = item(id, 0, KVR_WIRE_MAX_ITEM, KVR_RESP_F_FIN);
	push_parts(&it, 0, 48);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.ends, 1);
	rig_stop();
}

static void early_items_wait_for_those_before(void)
{
	const uint64_t id = running(0);
	struct item it = item(id, 1, 5000, KVR_RESP_F_FIN);

	push_parts(&it, 0, 4);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, 0);
	push_part(router_at, &it, 0); /* it is there: nothing is asked for */
	rig_run_ms(20);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_MISSING), 0);
	it = item(id, 0, 3000, 0);
	push_parts(&it, 0, 3);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, 2);
	CU_ASSERT_EQUAL(saw.ends, 1);
	rig_stop();
}

/* Held items take no more than those of one frame could; what is dropped is taken when it comes
 * again. */
static void one_that_found_no_room_is_taken_later(void)
{
	const uint64_t id = running(0);
	const uint32_t n = CLIENT_HOLD_BYTES / KVR_WIRE_MAX_ITEM + 2;
	struct item it[16];

	CU_ASSERT_FATAL(n <= 16);
	for (uint32_t i = 1; i < n; i++) {
		it[i] = item(id, i, KVR_WIRE_MAX_ITEM, i == n - 1 ? KVR_RESP_F_FIN : 0);
		push_parts(&it[i], 0, 48);
		kvr_client_process(c);
	}
	it[0] = item(id, 0, 10, 0);
	push_parts(&it[0], 0, 1);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, (int)n - 1); /* the last one was not held */
	CU_ASSERT_EQUAL(saw.ends, 0);
	push_parts(&it[n - 1], 0, 48);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.ends, 1);
	rig_stop();
}

/* Nothing is put together for a reader who has enough to read. */
static void a_slow_reader_holds_fragments_back(void)
{
	const struct kvr_client_request q = {.tokens = prompt, .n_tokens = 4};
	struct kvr_client_item got;
	struct kvr_client_end end;
	struct item it[3];
	uint64_t id;

	rig_start_conf((struct kvr_client_conf){.buffer_bytes = 100000});
	CU_ASSERT_EQUAL_FATAL(kvr_client_submit(c, &q, &id), 0);
	kvr_client_process(c);
	push_accepted(id, HANDLE, KVR_STATE_RUNNING, 1);
	for (uint32_t i = 0; i < 3; i++) {
		it[i] = item(id, i, KVR_WIRE_MAX_ITEM, i == 2 ? KVR_RESP_F_FIN : 0);
		push_parts(&it[i], 0, 48);
	}
	kvr_client_process(c);
	CU_ASSERT_EQUAL(kvr_reasm_stats(c->link.reasm)->started, 1);
	rig_run_ms(30);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_MISSING), 0);
	for (uint32_t i = 0; i < 3; i++) {
		CU_ASSERT_EQUAL(kvr_client_next_item(c, id, &got, &end, 0), 1);
		CU_ASSERT_EQUAL(got.seq, i);
		CU_ASSERT_EQUAL(got.len, KVR_WIRE_MAX_ITEM);
		CU_ASSERT_EQUAL(memcmp(got.data, data, got.len), 0);
		if (i == 2)
			break;
		/* The buffer is free when the item is asked for that follows. */
		CU_ASSERT_EQUAL(kvr_client_next_item(c, id, &got, &end, 0), -ETIMEDOUT);
		push_parts(&it[i + 1], 0, 48);
		kvr_client_process(c);
	}
	CU_ASSERT_EQUAL(kvr_client_next_item(c, id, &got, &end, 0), 0);
	CU_ASSERT_EQUAL(end.reason, KVR_CLIENT_FINISHED);
	rig_stop();
}

static void a_request_that_is_over_costs_no_memory(void)
{
	const uint64_t id = running(0);
	struct item it = item(id, 0, 5000, 0);
	const struct kvr_wire_hdr *h;

	push_parts(&it, 0, 2);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(kvr_client_cancel(c, id), 0); /* in the middle of it */
	push_parts(&it, 2, 4);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, 0);
	push_empty(id, KVR_CANCELLED);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.ends, 1);
	fake_skip(&net);
	it = item(id, 1, 5000, KVR_RESP_F_FIN);
	push_parts(&it, 0, 4);
	kvr_client_process(c);
	h = fake_next(&net, KVR_RESPONSE_ACK);
	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	CU_ASSERT_EQUAL(((const struct kvr_wire_response_ack *)(h + 1))->next_seq, 2);
	CU_ASSERT_EQUAL(((const struct kvr_wire_response_ack *)(h + 1))->flags, KVR_RACK_F_FIN);
	CU_ASSERT_EQUAL(kvr_reasm_stats(c->link.reasm)->started, 1);
	rig_stop();
}

static void the_direct_path_is_the_same(void)
{
	const uint64_t id = running(KVR_CLIENT_DIRECT);
	const struct item it = item(id, 0, 5000, KVR_RESP_F_FIN);

	push_part(agent_at, &it, 0);
	push_part(agent_at, &it, 3);
	kvr_client_process(c);
	rig_run_ms(6);
	CU_ASSERT_PTR_NOT_NULL(missing());
	CU_ASSERT(kvr_udp_addr_equal(fake_to(&net), &agent_at));
	push_part(agent_at, &it, 1);
	push_part(agent_at, &it, 2);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.ends, 1);
	rig_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {{"any order", fragments_in_any_order_make_the_item},
			       {"missing", what_is_lost_is_asked_for_once},
			       {"copies", copies_of_one_delivered_are_acknowledged_by_their_first},
			       {"hostile", hostile_fragments_change_nothing},
			       {"bounded", what_is_begun_and_not_ended_is_bounded},
			       {"early", early_items_wait_for_those_before},
			       {"no room", one_that_found_no_room_is_taken_later},
			       {"slow reader", a_slow_reader_holds_fragments_back},
			       {"over", a_request_that_is_over_costs_no_memory},
			       {"direct", the_direct_path_is_the_same},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("client_parts", tests);
}
