/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent_rig.h"

#include <rte_common.h>

#define PREFILLER 0xb1u

static uint8_t hint_bytes[2048];
static struct kvr_hint_buf hints;

static struct kvr_hint_buf *fresh_hints(void)
{
	hints = (struct kvr_hint_buf){.p = hint_bytes, .cap = sizeof(hint_bytes)};
	return &hints;
}

static const struct kvr_wire_response *next_item(void)
{
	const struct kvr_wire_hdr *h = fake_next(&net, KVR_RESPONSE);

	return h != NULL ? kvr_frame_body(h) : NULL;
}

static int send_answer(uint64_t handle, const void *data, uint32_t len, uint32_t flags)
{
	const struct kvr_agent_item it = {
		.data = data, .len = len, .flags = flags, .generated_tokens = 1};

	return kvr_agent_respond(a, handle, &it);
}

static void hello_includes_data_for_disaggregation(void)
{
	static const char *const topology[] = {"zone=b", "rack=7", NULL};
	const struct kvr_wire_hello *w;
	struct kvr_hint_lists lists;
	struct kvr_hints h;

	rig_start_conf((struct kvr_agent_conf){.role = KVR_ROLE_PREFILL,
					       .topology = topology,
					       .kv_transfer_enforcement = 2,
					       .kv_transfer_weight = 0.75,
					       .kv_transfer_domain = "zone",
					       .bootstrap_host = "10.0.0.7",
					       .bootstrap_port = 8998});
	kvr_agent_process(a);
	w = kvr_frame_body(fake_next(&net, KVR_HELLO));
	CU_ASSERT_EQUAL(w->role, KVR_ROLE_PREFILL);
	CU_ASSERT_EQUAL_FATAL(kvr_hints_parse(w + 1, w->hints_len, KVR_HINTS_HELLO, &h, &lists), 0);
	CU_ASSERT_EQUAL_FATAL(h.n_topology, 2);
	CU_ASSERT_EQUAL(memcmp(h.topology[1].p, "rack=7", 6), 0);
	CU_ASSERT(h.kv_transfer.enforcement == 2 && h.kv_transfer.weight == 0.75);
	CU_ASSERT(h.kv_transfer.domain.len == 4 && h.bootstrap_addr.host.len == 8);
	CU_ASSERT_EQUAL(memcmp(h.bootstrap_addr.host.p, "10.0.0.7", 8), 0);
	CU_ASSERT_EQUAL(h.bootstrap_addr.port, 8998);
	rig_stop();
	rig_start_conf((struct kvr_agent_conf){.role = KVR_ROLE_DECODE});
	kvr_agent_process(a);
	w = kvr_frame_body(fake_next(&net, KVR_HELLO));
	CU_ASSERT_EQUAL(w->role, KVR_ROLE_DECODE);
	CU_ASSERT_EQUAL_FATAL(kvr_hints_parse(w + 1, w->hints_len, KVR_HINTS_HELLO, &h, &lists), 0);
	CU_ASSERT_EQUAL(h.present, KVR_HAS(KVR_HINT_POOL));
	rig_stop();
}

static void a_whole_request_has_no_leg(void)
{
	rig_welcomed((struct kvr_agent_conf){0});
	fresh_hints();
	kvr_hint_put_u64(&hints, KVR_HINT_PREFILL_WORKER, PREFILLER); /* requested by the client */
	push_dispatch_hints(1, 100, 0, &hints);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL_FATAL(saw.dispatches, 1);
	CU_ASSERT_EQUAL(saw.req.leg, KVR_ROLE_AGGREGATED);
	CU_ASSERT_PTR_NULL(saw.req.bootstrap_host);
	CU_ASSERT_EQUAL(saw.req.prefill_worker, 0);
	CU_ASSERT_EQUAL(saw.req.prefill_result_len, 0);
	rig_stop();
}

static void a_prefill_leg_has_its_bootstrap_address(void)
{
	static char longest[256];

	memset(longest, 'h', 255);
	rig_welcomed((struct kvr_agent_conf){.role = KVR_ROLE_PREFILL});
	fresh_hints();
	kvr_hint_put_str(&hints, KVR_HINT_LORA, "adapter");
	kvr_hint_put_bootstrap(&hints, INT64_MAX, 8998, longest);
	push_dispatch_hints(1, 100, KVR_REQ_F_PREFILL_LEG, &hints);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL_FATAL(saw.dispatches, 1);
	CU_ASSERT_EQUAL(saw.req.leg, KVR_ROLE_PREFILL);
	CU_ASSERT_EQUAL(saw.req.bootstrap_room, INT64_MAX);
	CU_ASSERT_EQUAL(saw.req.bootstrap_port, 8998);
	CU_ASSERT_STRING_EQUAL(saw.leg_host, longest);
	CU_ASSERT_EQUAL(saw.req.prefill_worker, 0);
	/* The engines transfer blocks themselves: the result may be empty. */
	CU_ASSERT_EQUAL(send_answer(100, NULL, 0, KVR_AGENT_LAST), 0);
	rig_stop();
}

static void a_decode_leg_names_the_source_of_its_blocks(void)
{
	rig_welcomed((struct kvr_agent_conf){.role = KVR_ROLE_DECODE});
	fresh_hints();
	kvr_hint_put_u64(&hints, KVR_HINT_PREFILL_WORKER, PREFILLER);
	kvr_hint_put(&hints, KVR_HINT_PREFILL_RESULT, "r\0sult", 6, NULL, 0);
	push_dispatch_hints(1, 100, KVR_REQ_F_DECODE_LEG | KVR_REQ_F_DIRECT, &hints);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL_FATAL(saw.dispatches, 1);
	CU_ASSERT_EQUAL(saw.req.leg, KVR_ROLE_DECODE);
	CU_ASSERT(saw.req.direct);
	CU_ASSERT_EQUAL(saw.req.prefill_worker, PREFILLER);
	CU_ASSERT_EQUAL(saw.req.prefill_result_len, 6);
	CU_ASSERT_EQUAL(memcmp(saw.leg_result, "r\0sult", 6), 0);
	CU_ASSERT_PTR_NULL(saw.req.bootstrap_host);
	fresh_hints();
	kvr_hint_put_u64(&hints, KVR_HINT_PREFILL_WORKER, PREFILLER);
	kvr_hint_put_bootstrap(&hints, 77, 8998, "10.0.0.7");
	push_dispatch_hints(2, 101, KVR_REQ_F_DECODE_LEG, &hints);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL_FATAL(saw.dispatches, 2);
	CU_ASSERT_EQUAL(saw.req.bootstrap_room, 77);
	CU_ASSERT_STRING_EQUAL(saw.leg_host, "10.0.0.7");
	CU_ASSERT_EQUAL(saw.req.prefill_result_len, 0);
	/* Items go to the client in its frame size, and the last one may be empty. */
	CU_ASSERT_EQUAL(send_answer(101, hint_bytes, 2000, 0), 0);
	CU_ASSERT_EQUAL(send_answer(101, NULL, 0, KVR_AGENT_LAST), 0);
	rig_stop();
}

/* The result in one item, larger than the client's frames, acknowledged by the router. */
static void the_last_item_of_a_prefill_leg_is_the_transfer_result(void)
{
	static uint8_t result[1888];
	const struct kvr_wire_response *w;

	for (uint32_t i = 0; i < sizeof(result); i++)
		result[i] = (uint8_t)(i * 3);
	rig_start_conf((struct kvr_agent_conf){.role = KVR_ROLE_PREFILL, .frame_bytes = 1968});
	kvr_agent_process(a);
	const struct kvr_wire_ids ids = ids_of(WORKER, a->hello_ids.id, 0);
	const struct kvr_wire_welcome wl = {
		.heartbeat_ms = 500, .dead_ms = 2000, .max_frame = KVR_WIRE_MAX_FRAME};
	fake_push(&net, router_at, kvr_put_welcome(fake_slot(&net), 1984, &ids, &wl));
	kvr_agent_process(a);
	fake_skip(&net);
	push_dispatch_hints(1, 100, KVR_REQ_F_PREFILL_LEG, fresh_hints());
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(send_answer(100, result, KVR_WIRE_MAX_RESULT + 1, KVR_AGENT_LAST),
			-EMSGSIZE);
	CU_ASSERT_EQUAL(send_answer(100, NULL, 0, KVR_AGENT_LAST),
			-EINVAL); /* no way to transfer the blocks */
	CU_ASSERT_EQUAL(send_answer(100, result, sizeof(result), KVR_AGENT_LAST), 0);
	kvr_agent_process(a);
	w = next_item();
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT(kvr_udp_addr_equal(fake_to(&net), &router_at));
	CU_ASSERT_EQUAL(w->flags, KVR_RESP_F_FIN);
	CU_ASSERT_EQUAL(w->data_len, sizeof(result));
	CU_ASSERT_EQUAL(memcmp(w + 1, result, sizeof(result)), 0);
	CU_ASSERT_PTR_NULL(next_item());
	CU_ASSERT_EQUAL(fake_count(&net, KVR_PROGRESS), 0);
	rig_run_ms(20); /* the acknowledgement was lost */
	CU_ASSERT_PTR_NOT_NULL(next_item());
	push_response_ack(router_at, 1, 100, 1, KVR_RACK_F_FIN);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dones, 1);
	CU_ASSERT_EQUAL(kvr_agent_running(a), 0);
	rig_stop();
}

static void a_failed_prefill_needs_no_result(void)
{
	const struct kvr_wire_response *w;

	rig_welcomed((struct kvr_agent_conf){.role = KVR_ROLE_PREFILL});
	push_dispatch_hints(1, 100, KVR_REQ_F_PREFILL_LEG, fresh_hints());
	push_dispatch_hints(2, 101, KVR_REQ_F_PREFILL_LEG, fresh_hints());
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(send_answer(100, NULL, 0, KVR_AGENT_LAST | KVR_AGENT_ERROR), 0);
	CU_ASSERT_EQUAL(kvr_agent_refuse(a, 101, 9, ""), 0);
	kvr_agent_process(a);
	for (int i = 0; i < 2; i++) {
		w = next_item();
		CU_ASSERT_PTR_NOT_NULL_FATAL(w);
		CU_ASSERT_EQUAL(w->flags, KVR_RESP_F_FIN | KVR_RESP_F_ERROR);
	}
	rig_stop();
}

static void copies_of_a_leg_run_once_per_handle(void)
{
	rig_welcomed((struct kvr_agent_conf){.role = KVR_ROLE_DECODE});
	fresh_hints();
	kvr_hint_put_bootstrap(&hints, 77, 8998, "h");
	for (int i = 0; i < 5; i++)
		push_dispatch_hints(1, 100, KVR_REQ_F_DECODE_LEG, &hints);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dispatches, 1);
	CU_ASSERT_EQUAL(fake_count(&net, KVR_DISPATCH_ACK), 5);
	/* The prefill failed: this attempt ends, and the request is dispatched again. */
	push_abort(1, 100, KVR_E_PREFILL_FAILED);
	push_dispatch_hints(1, 105, KVR_REQ_F_DECODE_LEG, &hints);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.aborts, 1);
	CU_ASSERT_EQUAL(saw.code, KVR_E_PREFILL_FAILED);
	CU_ASSERT_EQUAL(saw.dispatches, 2);
	CU_ASSERT_EQUAL(saw.req.handle, 105);
	CU_ASSERT_EQUAL(send_answer(100, "x", 1, 0), -ENOENT);
	CU_ASSERT_EQUAL(send_answer(105, "x", 1, KVR_AGENT_LAST), 0);
	rig_stop();
}

/* The client would take a last item as the end of a request that continues elsewhere. */
static void a_decode_leg_without_its_prefill_sends_no_end(void)
{
	static const struct {
		uint16_t code;
		bool silent;
	} rows[] = {{KVR_E_PREFILL_FAILED, true},
		    {KVR_E_WORKER_LOST, true},
		    {KVR_E_EXPIRED, false},
		    {0, false}};

	for (uint32_t i = 0; i < RTE_DIM(rows); i++) {
		for (int ended = 0; ended < 2; ended++) {
			rig_welcomed((struct kvr_agent_conf){.role = KVR_ROLE_DECODE});
			fresh_hints();
			kvr_hint_put_bootstrap(&hints, 77, 8998, "h");
			push_dispatch_hints(1, 100, KVR_REQ_F_DECODE_LEG | KVR_REQ_F_DIRECT,
					    &hints);
			kvr_agent_process(a);
			if (ended) /* the engine detected the failure itself */
				CU_ASSERT_EQUAL(
					send_answer(100, NULL, 0, KVR_AGENT_LAST | KVR_AGENT_ERROR),
					0);
			kvr_agent_process(a);
			fake_skip(&net);
			push_abort(1, 100, rows[i].code);
			push_abort(1, 100, rows[i].code);
			rig_run_ms(400);
			CU_ASSERT_EQUAL(fake_count(&net, KVR_ABORT_ACK), 2);
			CU_ASSERT_EQUAL(fake_count(&net, KVR_RESPONSE) == 0, rows[i].silent);
			CU_ASSERT_EQUAL(fake_count(&net, KVR_PROGRESS) == 0, rows[i].silent);
			CU_ASSERT_EQUAL(saw.aborts, rows[i].silent || !ended);
			CU_ASSERT_EQUAL(kvr_agent_running(a), !rows[i].silent);
			CU_ASSERT_EQUAL(send_answer(100, "x", 1, 0), -ENOENT);
			rig_stop();
		}
	}
}

/* Details that do not fit beside a text: those of the item itself, or those of the prefill leg. */
static void texts_stay_with_their_error(void)
{
	static char details[300], words[256];
	const struct kvr_agent_item failed = {.data = words,
					      .len = 255,
					      .flags = KVR_AGENT_LAST | KVR_AGENT_ERROR,
					      .prompt_details = details,
					      .prompt_details_len = sizeof(details)};
	const struct kvr_wire_response *w;

	memset(words, 'w', 255);
	rig_welcomed((struct kvr_agent_conf){.role = KVR_ROLE_DECODE, .frame_bytes = 560});
	fresh_hints();
	kvr_hint_put_u64(&hints, KVR_HINT_PREFILL_WORKER, PREFILLER);
	kvr_hint_put(&hints, KVR_HINT_PROMPT_DETAILS, details, sizeof(details), NULL, 0);
	push_dispatch(1, 100, KVR_REQ_F_TRACK);
	push_dispatch_hints(2, 101, KVR_REQ_F_DECODE_LEG | KVR_REQ_F_TRACK, &hints);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL_FATAL(saw.dispatches, 2);
	CU_ASSERT_EQUAL(kvr_agent_respond(a, 100, &failed), 0);
	CU_ASSERT_EQUAL(send_answer(101, words, 255, KVR_AGENT_LAST | KVR_AGENT_ERROR), 0);
	kvr_agent_process(a);
	for (int i = 0; i < 2; i++) {
		w = next_item();
		CU_ASSERT_TRUE_FATAL(rig_has_text(w, words));
		CU_ASSERT_EQUAL(w->flags, KVR_RESP_F_FIN | KVR_RESP_F_ERROR);
		CU_ASSERT_EQUAL(w->seq, 0);
		CU_ASSERT_EQUAL(w->hints_len, 0);
	}
	CU_ASSERT_PTR_NULL(next_item());
	rig_stop();
}

static void contradictory_legs_are_not_dispatched(void)
{
	struct kvr_agent_stats st;

	rig_welcomed((struct kvr_agent_conf){.role = KVR_ROLE_PREFILL});
	push_dispatch(1, 100, KVR_REQ_F_PREFILL_LEG | KVR_REQ_F_DIRECT);
	push_dispatch(2, 101, KVR_REQ_F_PREFILL_LEG | KVR_REQ_F_DECODE_LEG);
	kvr_agent_process(a);
	CU_ASSERT_EQUAL(saw.dispatches, 0);
	kvr_agent_stats_get(a, &st);
	CU_ASSERT_EQUAL(st.frames_bad, 2);
	rig_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(hello_includes_data_for_disaggregation),
		KVR_CASE(a_whole_request_has_no_leg),
		KVR_CASE(a_prefill_leg_has_its_bootstrap_address),
		KVR_CASE(a_decode_leg_names_the_source_of_its_blocks),
		KVR_CASE(the_last_item_of_a_prefill_leg_is_the_transfer_result),
		KVR_CASE(a_failed_prefill_needs_no_result),
		KVR_CASE(copies_of_a_leg_run_once_per_handle),
		KVR_CASE(a_decode_leg_without_its_prefill_sends_no_end),
		KVR_CASE(texts_stay_with_their_error),
		KVR_CASE(contradictory_legs_are_not_dispatched),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("agent_legs", tests);
}
