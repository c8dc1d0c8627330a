/* SPDX-License-Identifier: BSD-3-Clause */
/* Answers of simulated clients for ended requests (PROTOCOL.md, 6.3: END). */
#include "rig.h"

static uint32_t start_request(void)
{
	return start_route(0, 0, 0);
}

/* Deliver ACCEPTED or an item of request @p id, and keep the answer. */
static void deliver_late(uint64_t id, uint8_t kind, uint32_t seq, uint16_t flags)
{
	const struct kvr_wire_ids ids = {
		load.clients[(id >> LOAD_SLOT_BITS) % load.n_clients].source, id, 78, 1, 1};
	struct {
		struct kvr_wire_hdr h;
		struct kvr_wire_response r;
		uint8_t data[2048];
	} f = {.r = {.seq = seq, .flags = flags, .data_len = opt.item_bytes}};
	const struct kvr_wire_accepted a = {.state = (uint8_t)seq};
	const uint64_t mark[2] = {id, seq};
	const uint32_t len = sizeof(f.r) + ((opt.item_bytes + 7u) & ~7u);

	n_sent = 0;
	if (kind == KVR_ACCEPTED) {
		kvr_put_accepted((uint8_t *)&f, sizeof(f), &ids, &a);
	} else {
		memcpy(f.data, load.item, opt.item_bytes);
		memcpy(f.data, mark, sizeof(mark));
		kvr_hdr_put(&f.h, KVR_RESPONSE, &ids, len, 0, (uint16_t)len);
	}
	load_client_frame(&load, &f.h, load.now);
	load_client_acks(&load);
}

static void check_ack(uint32_t next_seq, uint16_t flags)
{
	const struct kvr_wire_hdr *h = find_sent(KVR_RESPONSE_ACK, 0);
	const struct kvr_wire_response_ack *a;

	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	a = kvr_frame_body(h);
	CU_ASSERT_EQUAL(n_sent, 1);
	CU_ASSERT_EQUAL(a->next_seq, next_seq);
	CU_ASSERT_EQUAL(a->flags, flags);
}

/* CANCEL has overtaken ROUTE: the request must not run without a client. */
static void accepted_for_an_ended_request_is_answered_with_cancel(void)
{
	uint32_t slot;
	uint64_t id;

	for (uint32_t held = 0; held < 3;
	     held++) { /* slot held by the request's engine; free; held by another request */
		BEGIN((char *)"--items", (char *)"2");
		slot = start_request();
		id = load.slots[slot].id;
		load.slots[slot].leg.estate = held == 0 ? LOAD_E_DECODE : LOAD_E_IDLE;
		load_client_lost(&load, slot);
		CU_ASSERT_EQUAL(load.slots[slot].id, held == 0 ? id : 0);
		if (held == 2)
			CU_ASSERT_EQUAL(start_request(), slot);
		deliver_late(id, KVR_ACCEPTED, KVR_STATE_QUERY, 0);
		CU_ASSERT_EQUAL(n_sent, 0);
		deliver_late(id, KVR_ACCEPTED, KVR_STATE_DISPATCHED, 0);
		CU_ASSERT_EQUAL_FATAL(n_sent, 1);
		CU_ASSERT_PTR_NOT_NULL_FATAL(find_sent(KVR_CANCEL, 0));
		CU_ASSERT_EQUAL(find_sent(KVR_CANCEL, 0)->id, id);
		CU_ASSERT_EQUAL(find_sent(KVR_CANCEL, 0)->handle, 78);
		CU_ASSERT_EQUAL(counter_value(LOAD_CANCELS), 1);
		load.slots[slot].leg.estate = LOAD_E_IDLE;
		end_test();
	}
}

static void an_answered_request_is_not_cancelled(void)
{
	const struct kvr_wire_response last = {.seq = 0, .flags = KVR_RESP_F_FIN};
	uint64_t id;

	for (uint32_t again = 0; again < 2; again++) {
		uint32_t slot;

		BEGIN((char *)"--items", (char *)"2");
		slot = start_request();
		id = load.slots[slot].id;
		load_client_item(&load, slot, &last, load.now);
		load_client_acks(&load);
		CU_ASSERT_EQUAL(load.slots[slot].id, 0);
		if (again)
			CU_ASSERT_EQUAL(start_request(), slot);
		deliver_late(id, KVR_ACCEPTED, KVR_STATE_DISPATCHED, 0);
		CU_ASSERT_EQUAL(n_sent, 0);
		end_test();
	}
}

static void items_of_ended_requests_are_acknowledged(void)
{
	uint32_t slot;
	uint64_t id;

	BEGIN((char *)"--items", (char *)"2");
	slot = start_request();
	id = load.slots[slot].id;
	load_client_lost(&load, slot);
	deliver_late(id, KVR_RESPONSE, 4, 0);
	check_ack(5, 0);
	deliver_late(id, KVR_RESPONSE, 6, KVR_RESP_F_FIN);
	check_ack(7, KVR_RACK_F_FIN);
	end_test();

	BEGIN((char *)"--items", (char *)"2"); /* its engine still has it */
	slot = start_request();
	id = load.slots[slot].id;
	load.slots[slot].leg.estate = LOAD_E_DECODE;
	load_client_lost(&load, slot);
	deliver_late(id, KVR_RESPONSE, 4, 0);
	check_ack(5, 0);
	deliver_late(id, KVR_RESPONSE, 6, KVR_RESP_F_FIN);
	check_ack(7, KVR_RACK_F_FIN);
	CU_ASSERT_EQUAL(counter_value(LOAD_LOST), 1);
	load.slots[slot].leg.estate = LOAD_E_IDLE;
	end_test();

	BEGIN((char *)"--items", (char *)"2", (char *)"--cancel-share", (char *)"1");
	slot = start_request();
	deliver_late(load.slots[slot].id, KVR_RESPONSE, 0, 0); /* cancelled after the first item */
	CU_ASSERT_EQUAL_FATAL(load.slots[slot].cstate, LOAD_C_CANCELLING);
	deliver_late(load.slots[slot].id, KVR_RESPONSE, 2, 0);
	check_ack(1, 0);
	deliver_late(load.slots[slot].id, KVR_RESPONSE, 3, KVR_RESP_F_FIN);
	check_ack(4, KVR_RACK_F_FIN);
	CU_ASSERT_EQUAL(counter_value(LOAD_CANCELLED), 1);
	end_test();
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(accepted_for_an_ended_request_is_answered_with_cancel),
		KVR_CASE(an_answered_request_is_not_cancelled),
		KVR_CASE(items_of_ended_requests_are_acknowledged),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("load late", tests);
}
