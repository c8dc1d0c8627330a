/* SPDX-License-Identifier: BSD-3-Clause */
/* Acknowledgements that share a burst: of several requests, and with the next request. */
#include "client_rig.h"

#include <errno.h>

static const struct kvr_client_ops unwatched;

/* Start a request that runs. The callbacks of the rig observe one request. */
static uint64_t start_running(const struct kvr_client_ops *ops)
{
	const struct kvr_client_request q = {.tokens = prompt, .n_tokens = 4, .ops = ops};
	uint64_t id;

	CU_ASSERT_EQUAL_FATAL(kvr_client_submit(c, &q, &id), 0);
	kvr_client_process(c);
	rig_accepted(id);
	return id;
}

/* Start a request, end its answer, and let the acknowledgement wait. */
static uint64_t start_ended(void)
{
	uint64_t id;

	rig_start_conf((struct kvr_client_conf){.ack_us = 5000});
	id = start_running(&rig_ops);
	push_item(id, 0, KVR_RESP_F_FIN, "end");
	kvr_client_process(c);
	CU_ASSERT_EQUAL(saw.ends, 1);
	return id;
}

static void the_end_is_acknowledged_with_the_next_request(void)
{
	const struct kvr_client_request q = {.tokens = prompt, .n_tokens = 4, .ops = &rig_ops};
	const struct kvr_wire_response_ack *a;
	const struct kvr_wire_hdr *h;
	uint64_t id;

	start_ended();
	CU_ASSERT_PTR_NULL(next_ack());
	CU_ASSERT(kvr_client_timeout_ms(c) > 0);
	CU_ASSERT_FALSE(kvr_client_timeout_strict(c));
	CU_ASSERT_EQUAL(kvr_client_submit(c, &q, &id), 0);
	CU_ASSERT_EQUAL(kvr_client_timeout_ms(c), 0);
	push_item(id, 0, 0, "not looked at");
	kvr_client_flush(c);
	CU_ASSERT_EQUAL(saw.items, 1);
	a = next_ack(); /* first, because it makes room for the other */
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT(a->next_seq == 1 && a->flags == KVR_RACK_F_FIN);
	h = fake_next(&net, KVR_ROUTE);
	CU_ASSERT_PTR_NOT_NULL_FATAL(h);
	CU_ASSERT_EQUAL(h->id, id);
	rig_stop();
}

static void the_end_is_acknowledged_without_further_calls(void)
{
	const struct kvr_wire_response_ack *a;

	start_ended();
	rig_run_ms(4);
	CU_ASSERT_PTR_NULL(next_ack());
	CU_ASSERT_EQUAL(kvr_client_timeout_ms(c), 1);
	rig_run_ms(1);
	a = next_ack();
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_EQUAL(a->flags, KVR_RACK_F_FIN);
	CU_ASSERT_EQUAL(kvr_client_timeout_ms(c), -1);
	rig_stop();
}

static void destroy_sends_waiting_acknowledgements(void)
{
	start_ended();
	CU_ASSERT_PTR_NULL(next_ack());
	rig_stop();
	CU_ASSERT_PTR_NOT_NULL(next_ack());
}

static void a_copy_of_the_end_is_acknowledged_at_once(void)
{
	const uint64_t id = start_ended();

	push_item(id, 0, KVR_RESP_F_FIN, "end");
	kvr_client_process(c);
	CU_ASSERT_PTR_NOT_NULL(
		next_ack()); /* the acknowledgement of the first copy leaves with it */
	CU_ASSERT_PTR_NOT_NULL(next_ack());
	rig_stop();
}

static void a_full_burst_of_acknowledgements_is_sent(void)
{
	uint64_t id[KVR_UDP_BURST + 1];
	unsigned int n = 0;

	rig_start_conf((struct kvr_client_conf){.ack_us = 5000, .max_requests = 100});
	for (unsigned int i = 0; i <= KVR_UDP_BURST; i++)
		id[i] = start_running(&unwatched);
	for (unsigned int i = 0; i <= KVR_UDP_BURST; i++)
		push_item(id[i], 0, KVR_RESP_F_FIN, "end");
	kvr_client_process(c);
	while (next_ack() != NULL)
		n++;
	CU_ASSERT_EQUAL(n, KVR_UDP_BURST);
	CU_ASSERT(kvr_client_timeout_ms(c) > 0);
	rig_run_ms(5);
	CU_ASSERT_PTR_NOT_NULL(next_ack());
	rig_stop();
}

/* One system call and one wake-up of router and agent for all of them. */
static void streams_share_the_times_of_acknowledgement(void)
{
	uint64_t id[3];
	unsigned int n = 0;

	rig_start();
	for (unsigned int i = 0; i < 3; i++)
		id[i] = start_running(&unwatched);
	for (unsigned int i = 0; i < 3; i++) {
		push_item(id[i], 0, 0, "a");
		kvr_client_process(c);
		net.now_us += 1000;
	}
	CU_ASSERT_PTR_NULL(next_ack());
	CU_ASSERT_EQUAL(kvr_client_timeout_ms(c), 2);
	net.now_us += 2000;
	kvr_client_process(c);
	while (next_ack() != NULL)
		n++;
	CU_ASSERT_EQUAL(n, 3);
	rig_stop();
}

static void more_than_5_ms_is_an_error(void)
{
	const struct kvr_client_conf conf = {.ack_us = 5001};

	fake_reset(&net);
	CU_ASSERT_PTR_NULL(kvr_client__create_on(&conf, &router_at, &net.udp));
	CU_ASSERT_EQUAL(errno, EINVAL);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(the_end_is_acknowledged_with_the_next_request),
			       KVR_CASE(the_end_is_acknowledged_without_further_calls),
			       KVR_CASE(destroy_sends_waiting_acknowledgements),
			       KVR_CASE(a_copy_of_the_end_is_acknowledged_at_once),
			       KVR_CASE(a_full_burst_of_acknowledgements_is_sent),
			       KVR_CASE(streams_share_the_times_of_acknowledgement),
			       KVR_CASE(more_than_5_ms_is_an_error),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("client_ack", tests);
}
