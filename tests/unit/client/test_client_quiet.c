/* SPDX-License-Identifier: BSD-3-Clause */
/* KVR_CLIENT_QUIET: the choice is not needed. */
#include "client_rig.h"

static uint32_t wire_flags(void)
{
	const struct kvr_wire_hdr *h = fake_next(&net, KVR_ROUTE);

	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	return ((const struct kvr_wire_request *)kvr_frame_body(h))->flags;
}

static void the_answer_replaces_accepted(void)
{
	uint64_t id;

	rig_start();
	id = rig_submit(KVR_CLIENT_QUIET);
	CU_ASSERT_EQUAL(wire_flags(), KVR_REQ_F_QUIET);
	push_item(id, 0, 0, "a");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.items, 1);
	CU_ASSERT_PTR_NULL(
		fake_next(&net, KVR_PROBE)); /* other requests ask for the lost ACCEPTED */
	push_item(id, 1, KVR_RESP_F_FIN, "b");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.ends, 1);
	CU_ASSERT_EQUAL(saw.accepted, 0);
	rig_stop();
}

static void accepted_precedes_a_slow_answer(void)
{
	uint64_t id;

	rig_start();
	id = rig_submit(KVR_CLIENT_QUIET);
	push_accepted(id, HANDLE, KVR_STATE_RUNNING, 1);
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.accepted, 1);
	CU_ASSERT_EQUAL(saw.choice.worker, 1);
	wire_flags();
	rig_run_ms(100);
	CU_ASSERT_PTR_NULL(fake_next(&net, KVR_ROUTE)); /* not retransmitted */
	rig_stop();
}

static void it_is_retransmitted_until_answered(void)
{
	rig_start();
	rig_submit(KVR_CLIENT_QUIET);
	wire_flags();
	rig_run_ms(21);
	CU_ASSERT_EQUAL(wire_flags(), KVR_REQ_F_QUIET | KVR_REQ_F_RESEND);
	rig_stop();
}

static void requests_that_need_accepted_ignore_the_flag(void)
{
	static const struct {
		uint32_t flags, body;
	} rows[] = {{KVR_CLIENT_QUERY, 0},
		    {KVR_CLIENT_DIRECT, 0},
		    {KVR_CLIENT_BOOK, 0},
		    {0, 3000},	/* more than one frame */
		    {0, 5000}}; /* body sent to the agent */
	static const char body[5000];

	for (unsigned int i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct kvr_client_request q = {.tokens = prompt,
						     .n_tokens = 4,
						     .flags = rows[i].flags | KVR_CLIENT_QUIET,
						     .body = rows[i].body > 0 ? body : NULL,
						     .body_len = rows[i].body,
						     .ops = &rig_ops};
		uint64_t id;

		rig_start_conf((struct kvr_client_conf){.away_bytes = 4000});
		CU_ASSERT_EQUAL_FATAL(kvr_client_submit(c, &q, &id), 0);
		kvr_client_process(c);
		CU_ASSERT_EQUAL(wire_flags() & KVR_REQ_F_QUIET, 0);
		rig_stop();
	}
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(the_answer_replaces_accepted), KVR_CASE(accepted_precedes_a_slow_answer),
		KVR_CASE(it_is_retransmitted_until_answered),
		KVR_CASE(requests_that_need_accepted_ignore_the_flag), CU_TEST_INFO_NULL};

	return kvr_test_run("client_quiet", tests);
}
