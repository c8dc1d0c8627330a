/* SPDX-License-Identifier: BSD-3-Clause */
/* What simulated clients answer when a request is over for them (PROTOCOL.md, 6.3: END). */
#include "rig.h"

static uint32_t start(void)
{
	return route(0, 0, 0);
}

/* ACCEPTED or an item of request @p id; what it answers is kept. */
static void late(uint64_t id, uint8_t kind, uint32_t seq, uint16_t flags)
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

static void acknowledges(uint32_t next_seq, uint16_t flags)
{
	const struct kvr_wire_hdr *h = find(KVR_RESPONSE_ACK, 0);
	const struct kvr_wire_response_ack *a;

	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	a = kvr_frame_body(h);
	CU_ASSERT_EQUAL(n_sent, 1);
	CU_ASSERT_EQUAL(a->next_seq, next_seq);
	CU_ASSERT_EQUAL(a->flags, flags);
}

/* Its CANCEL has overtaken its ROUTE: the request must not run for nobody. */
static void what_was_abandoned_is_cancelled_when_it_is_accepted(void)
{
	uint32_t slot;
	uint64_t id;

	for (uint32_t held = 0; held < 3; held++) { /* by its engine; by nobody; another has it */
		BEGIN((char *)"--items", (char *)"2");
		slot = start();
		id = load.slots[slot].id;
		load.slots[slot].leg.estate = held == 0 ? LOAD_E_DECODE : LOAD_E_IDLE;
		load_client_lost(&load, slot);
		CU_ASSERT_EQUAL(load.slots[slot].id, held == 0 ? id : 0);
		if (held == 2)
			CU_ASSERT_EQUAL(start(), slot);
		late(id, KVR_ACCEPTED, KVR_STATE_QUERY, 0);
		CU_ASSERT_EQUAL(n_sent, 0);
		late(id, KVR_ACCEPTED, KVR_STATE_DISPATCHED, 0);
		CU_ASSERT_EQUAL_FATAL(n_sent, 1);
		CU_ASSERT_PTR_NOT_NULL_FATAL(find(KVR_CANCEL, 0));
		CU_ASSERT_EQUAL(find(KVR_CANCEL, 0)->id, id);
		CU_ASSERT_EQUAL(find(KVR_CANCEL, 0)->handle, 78);
		CU_ASSERT_EQUAL(count(LOAD_CANCELS), 1);
		load.slots[slot].leg.estate = LOAD_E_IDLE;
		end();
	}
}

static void what_has_its_answer_is_not_cancelled(void)
{
	const struct kvr_wire_response last = {.seq = 0, .flags = KVR_RESP_F_FIN};
	uint64_t id;

	for (uint32_t again = 0; again < 2; again++) {
		uint32_t slot;

		BEGIN((char *)"--items", (char *)"2");
		slot = start();
		id = load.slots[slot].id;
		load_client_item(&load, slot, &last, load.now);
		load_client_acks(&load);
		CU_ASSERT_EQUAL(load.slots[slot].id, 0);
		if (again)
			CU_ASSERT_EQUAL(start(), slot);
		late(id, KVR_ACCEPTED, KVR_STATE_DISPATCHED, 0);
		CU_ASSERT_EQUAL(n_sent, 0);
		end();
	}
}

static void items_of_what_is_over_are_acknowledged(void)
{
	uint32_t slot;
	uint64_t id;

	BEGIN((char *)"--items", (char *)"2");
	slot = start();
	id = load.slots[slot].id;
	load_client_lost(&load, slot);
	late(id, KVR_RESPONSE, 4, 0);
	acknowledges(5, 0);
	late(id, KVR_RESPONSE, 6, KVR_RESP_F_FIN);
	acknowledges(7, KVR_RACK_F_FIN);
	end();

	BEGIN((char *)"--items", (char *)"2"); /* its engine still has it */
	slot = start();
	id = load.slots[slot].id;
	load.slots[slot].leg.estate = LOAD_E_DECODE;
	load_client_lost(&load, slot);
	late(id, KVR_RESPONSE, 4, 0);
	acknowledges(5, 0);
	late(id, KVR_RESPONSE, 6, KVR_RESP_F_FIN);
	acknowledges(7, KVR_RACK_F_FIN);
	CU_ASSERT_EQUAL(count(LOAD_LOST), 1);
	load.slots[slot].leg.estate = LOAD_E_IDLE;
	end();

	BEGIN((char *)"--items", (char *)"2", (char *)"--cancel-share", (char *)"1");
	slot = start();
	late(load.slots[slot].id, KVR_RESPONSE, 0, 0); /* cancelled behind the first item */
	CU_ASSERT_EQUAL_FATAL(load.slots[slot].cstate, LOAD_C_CANCELLING);
	late(load.slots[slot].id, KVR_RESPONSE, 2, 0);
	acknowledges(1, 0);
	late(load.slots[slot].id, KVR_RESPONSE, 3, KVR_RESP_F_FIN);
	acknowledges(4, KVR_RACK_F_FIN);
	CU_ASSERT_EQUAL(count(LOAD_CANCELLED), 1);
	end();
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"cancelled", what_was_abandoned_is_cancelled_when_it_is_accepted},
		{"answered", what_has_its_answer_is_not_cancelled},
		{"items", items_of_what_is_over_are_acknowledged},
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("load late", tests);
}
