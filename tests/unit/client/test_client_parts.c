/* SPDX-License-Identifier: BSD-3-Clause */
/* Items of several frames: reassembly, missing fragments, limits, and hostile fragments. */
#include "client_rig.h"

#define UNIT 1384u

static char data[KVR_WIRE_MAX_ITEM + 1000];

struct item {
	struct kvr_wire_ids ids;
	uint32_t seq, len, msg_len; /* msg_len 0: computed from len */
	uint16_t flags;
};

static struct item check_item(uint64_t id, uint32_t seq, uint32_t len, uint16_t flags)
{
	return (struct item){.ids = ids_of(id, HANDLE), .seq = seq, .len = len, .flags = flags};
}

static uint32_t body_len(const struct item *it)
{
	return it->msg_len != 0 ? it->msg_len : 32 + ((it->len + 7u) & ~7u);
}

/* Send fragment @p k of an item. */
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

static const struct kvr_wire_missing *next_missing(void)
{
	const struct kvr_wire_hdr *h = fake_next(&net, KVR_MISSING);

	if (h == NULL)
		return NULL;
	CU_ASSERT_EQUAL(h->handle, HANDLE);
	CU_ASSERT_EQUAL(kvr_body_check(KVR_MISSING, h + 1, h->msg_len, NULL), 0);
	return (const void *)(h + 1);
}

static uint64_t start_running(uint32_t flags)
{
	rig_start();
	return rig_running(flags);
}

static void fragments_in_any_order_form_the_item(void)
{
	const uint64_t id = start_running(0);
	struct item it = check_item(id, 0, KVR_WIRE_MAX_ITEM, 0);

	for (uint32_t k = 48; k-- > 0;) {
		push_part(router_at, &it, k);
		push_part(router_at, &it, k);
	}
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, 1);
	CU_ASSERT_EQUAL(saw.bytes, KVR_WIRE_MAX_ITEM);
	it = check_item(id, 1, 3000, KVR_RESP_F_FIN);
	push_parts(&it, 0, 3);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, 2);
	CU_ASSERT_EQUAL(saw.ends, 1);
	CU_ASSERT_EQUAL(saw.end.reason, KVR_CLIENT_FINISHED);
	rig_stop();
}

static void lost_fragments_are_requested_once(void)
{
	const uint64_t id = start_running(0);
	const struct item it = check_item(id, 0, KVR_WIRE_MAX_ITEM, KVR_RESP_F_FIN);
	const struct kvr_wire_missing *w;
	uint64_t word;

	push_parts(&it, 0, 5);
	push_parts(&it, 7, 48);
	kvr_client_process(c);
	CU_ASSERT_PTR_NULL(next_missing());
	CU_ASSERT_TRUE(kvr_client_timeout_strict(c));
	rig_run_ms(6);
	CU_ASSERT_FALSE(kvr_client_timeout_strict(
		c)); /* requested once: from now on the sender's timers apply */
	w = next_missing();
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT(kvr_udp_addr_equal(fake_to(&net), &router_at));
	memcpy(&word, w + 1, 8);
	CU_ASSERT_EQUAL(w->kind, KVR_RESPONSE);
	CU_ASSERT_EQUAL(w->msg_seq, it.ids.msg_seq);
	CU_ASSERT_EQUAL(word, 3u << 5);
	rig_run_ms(100);
	CU_ASSERT_PTR_NULL(next_missing());
	push_parts(&it, 5, 7);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.ends, 1);
	rig_stop();
}

static void copies_of_a_delivered_item_are_acknowledged_once(void)
{
	const uint64_t id = start_running(0);
	const struct item it = check_item(id, 0, 5000, 0);
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
	/* ... also if the reassembly was forgotten */
	net.now_us += 10000000;
	push_part(router_at, &it, 0);
	kvr_client_process(c);
	CU_ASSERT_PTR_NOT_NULL(fake_next(&net, KVR_RESPONSE_ACK));
	rig_run_ms(20);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_MISSING), 0);
	rig_stop();
}

static void hostile_fragments_have_no_effect(void)
{
	const uint64_t id = start_running(0);
	const struct kvr_udp_addr evil = fake_addr(66, 6666);
	struct item it = check_item(id, 0, 10, 0), lie;
	struct kvr_client_stats s;

	push_part(router_at, &it, 0);
	it = check_item(id, 1, 5000, KVR_RESP_F_FIN);
	push_part(evil, &it, 0); /* relayed: from the router only */
	push_parts(&it, 0, 2);
	lie = it;
	lie.msg_len = 9000; /* another length with the same identity */
	push_part(router_at, &lie, 2);
	lie = check_item(id, 1, 5000, 0);
	lie.msg_len = 9000; /* data do not fill the length */
	push_part(router_at, &lie, 0);
	lie = check_item(id, 1, KVR_WIRE_MAX_ITEM, 0);
	lie.msg_len = KVR_WIRE_ITEM_MOST + 8;
	push_part(router_at, &lie, 0);
	push_part(router_at, &lie, 1);
	lie = check_item(id, 1, 5000, KVR_RESP_F_ERROR); /* without FIN */
	push_part(router_at, &lie, 0);
	lie = check_item(id, 200, 5000, 0); /* too far ahead */
	push_part(router_at, &lie, 0);
	lie = check_item(id, 1, 5000, 0);
	lie.ids.handle = HANDLE + 1; /* of another attempt */
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

/* Many incomplete items: the oldest are dropped, a valid one completes, memory does not grow. */
static void incomplete_items_are_bounded(void)
{
	uint64_t id;
	struct item it;

	rig_start_conf((struct kvr_client_conf){.assembly_bytes = 1u << 20});
	id = rig_submit(0);
	push_accepted(id, HANDLE, KVR_STATE_RUNNING, 1);
	kvr_client_process(c);
	for (uint32_t i = 0; i < 100; i++) {
		for (uint32_t k = 0; k < 20; k++) {
			it = check_item(id, 1 + k, KVR_WIRE_MAX_ITEM, 0);
			push_parts(&it, 0, 20);
		}
		kvr_client_process(c);
		kvr_client_process(c); /* rest of the burst */
		CU_ASSERT(kvr_reasm_stats(c->link.reasm)->bytes <= 1u << 20);
	}
	it = check_item(id, 0, KVR_WIRE_MAX_ITEM, KVR_RESP_F_FIN);
	push_parts(&it, 0, 48);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.ends, 1);
	rig_stop();
}

static void early_items_wait_for_earlier_ones(void)
{
	const uint64_t id = start_running(0);
	struct item it = check_item(id, 1, 5000, KVR_RESP_F_FIN);

	push_parts(&it, 0, 4);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, 0);
	push_part(router_at, &it, 0); /* complete: nothing is requested */
	rig_run_ms(20);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_MISSING), 0);
	it = check_item(id, 0, 3000, 0);
	push_parts(&it, 0, 3);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, 2);
	CU_ASSERT_EQUAL(saw.ends, 1);
	rig_stop();
}

/* Held items take no more memory than items of one frame. A dropped item is accepted when
 * retransmitted. */
static void a_dropped_item_is_accepted_later(void)
{
	const uint64_t id = start_running(0);
	const uint32_t n = CLIENT_HOLD_BYTES / KVR_WIRE_MAX_ITEM + 2;
	struct item it[16];

	CU_ASSERT_FATAL(n <= 16);
	for (uint32_t i = 1; i < n; i++) {
		it[i] = check_item(id, i, KVR_WIRE_MAX_ITEM, i == n - 1 ? KVR_RESP_F_FIN : 0);
		push_parts(&it[i], 0, 48);
		kvr_client_process(c);
	}
	it[0] = check_item(id, 0, 10, 0);
	push_parts(&it[0], 0, 1);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, (int)n - 1); /* the last one was not held */
	CU_ASSERT_EQUAL(saw.ends, 0);
	push_parts(&it[n - 1], 0, 48);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.ends, 1);
	rig_stop();
}

/* Nothing is reassembled for a reader with a full buffer. */
static void a_slow_reader_stops_reassembly(void)
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
		it[i] = check_item(id, i, KVR_WIRE_MAX_ITEM, i == 2 ? KVR_RESP_F_FIN : 0);
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
		/* The buffer has room again when the next item is requested. */
		CU_ASSERT_EQUAL(kvr_client_next_item(c, id, &got, &end, 0), -ETIMEDOUT);
		push_parts(&it[i + 1], 0, 48);
		kvr_client_process(c);
	}
	CU_ASSERT_EQUAL(kvr_client_next_item(c, id, &got, &end, 0), 0);
	CU_ASSERT_EQUAL(end.reason, KVR_CLIENT_FINISHED);
	rig_stop();
}

static void an_ended_request_uses_no_memory(void)
{
	const uint64_t id = start_running(0);
	struct item it = check_item(id, 0, 5000, 0);
	const struct kvr_wire_hdr *h;

	push_parts(&it, 0, 2);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(kvr_client_cancel(c, id), 0); /* in the middle of an item */
	push_parts(&it, 2, 4);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, 0);
	push_empty(id, KVR_CANCELLED);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.ends, 1);
	fake_skip(&net);
	it = check_item(id, 1, 5000, KVR_RESP_F_FIN);
	push_parts(&it, 0, 4);
	kvr_client_process(c);
	h = fake_next(&net, KVR_RESPONSE_ACK);
	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	CU_ASSERT_EQUAL(((const struct kvr_wire_response_ack *)(h + 1))->next_seq, 2);
	CU_ASSERT_EQUAL(((const struct kvr_wire_response_ack *)(h + 1))->flags, KVR_RACK_F_FIN);
	CU_ASSERT_EQUAL(kvr_reasm_stats(c->link.reasm)->started, 1);
	rig_stop();
}

static void the_direct_path_behaves_the_same(void)
{
	const uint64_t id = start_running(KVR_CLIENT_DIRECT);
	const struct item it = check_item(id, 0, 5000, KVR_RESP_F_FIN);

	push_part(agent_at, &it, 0);
	push_part(agent_at, &it, 3);
	kvr_client_process(c);
	rig_run_ms(6);
	CU_ASSERT_PTR_NOT_NULL(next_missing());
	CU_ASSERT(kvr_udp_addr_equal(fake_to(&net), &agent_at));
	push_part(agent_at, &it, 1);
	push_part(agent_at, &it, 2);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.ends, 1);
	rig_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(fragments_in_any_order_form_the_item),
			       KVR_CASE(lost_fragments_are_requested_once),
			       KVR_CASE(copies_of_a_delivered_item_are_acknowledged_once),
			       KVR_CASE(hostile_fragments_have_no_effect),
			       KVR_CASE(incomplete_items_are_bounded),
			       KVR_CASE(early_items_wait_for_earlier_ones),
			       KVR_CASE(a_dropped_item_is_accepted_later),
			       KVR_CASE(a_slow_reader_stops_reassembly),
			       KVR_CASE(an_ended_request_uses_no_memory),
			       KVR_CASE(the_direct_path_behaves_the_same),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("client_parts", tests);
}
