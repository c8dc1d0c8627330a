/* SPDX-License-Identifier: BSD-3-Clause */
/* Reports of live requests: each at least every 30 s, many per frame, few frames at once. */
#include "agent_rig.h"

#define MANY   2100u
#define SECOND UINT64_C(1000000)

static uint64_t reported_us[MANY]; /* by request: time of the last report */
static uint32_t reports[MANY];

static void record_reports(const struct kvr_wire_hdr *h)
{
	const struct kvr_wire_alive *w = kvr_frame_body(h);
	const uint64_t *handle = (const void *)(w + 1);

	CU_ASSERT_EQUAL_FATAL(kvr_body_check(KVR_ALIVE, w, h->msg_len, NULL), 0);
	CU_ASSERT(h->source == WORKER && h->epoch == 9 && h->handle == 0);
	CU_ASSERT_TRUE(kvr_udp_addr_equal(fake_to(&net), &router_at));
	for (uint32_t i = 0; i < w->n; i++) {
		const uint64_t r = handle[i] - HANDLE;

		CU_ASSERT_FATAL(r < MANY);
		reported_us[r] = net.now_us;
		reports[r]++;
	}
}

/* Run the agent once, check that its output is bounded, and record its reports. */
static void run_agent_turn(void)
{
	const struct kvr_wire_hdr *h;
	uint32_t frames = 0;

	fake_skip(&net);
	kvr_agent_process(a);
	kvr_agent_process(a); /* space is freed when nothing is received */
	for (; (h = fake_next(&net, KVR_ALIVE)) != NULL; frames++)
		record_reports(h);
	CU_ASSERT(frames <= AGENT_ALIVE_FRAMES);
}

/* Advance time while the router answers heartbeats. */
static void pass_time(uint64_t us, uint64_t step)
{
	for (const uint64_t end = net.now_us + us; net.now_us < end; net.now_us += step) {
		if (net.now_us / SECOND != (net.now_us - step) / SECOND)
			push_heartbeat_ack(KVR_WORKER_SERVING, 0);
		run_agent_turn();
	}
}

/* Start requests [0, n) with @p flags. */
static void start_requests(uint32_t n, uint32_t flags)
{
	memset(reported_us, 0, sizeof(reported_us));
	memset(reports, 0, sizeof(reports));
	rig_welcomed((struct kvr_agent_conf){0});
	for (uint32_t i = 0; i < n; i++) {
		push_dispatch(i, HANDLE + i, flags);
		if (i % 100 == 99)
			run_agent_turn();
	}
	run_agent_turn();
	CU_ASSERT_EQUAL_FATAL(kvr_agent_running(a), n);
	for (uint32_t i = 0; i < n; i++)
		reported_us[i] = net.now_us; /* its acknowledgement is a report */
}

static void each_request_is_reported_every_30_s(void)
{
	start_requests(MANY, 0);
	for (uint32_t t = 0; t < 1200; t++) { /* 20 minutes without an item from the engine */
		pass_time(SECOND, t % 60 == 0 ? 1000 : 50000);
		for (uint32_t i = 0; i < MANY; i++)
			CU_ASSERT_FATAL(net.now_us - reported_us[i] <= 30 * SECOND);
	}
	CU_ASSERT(reports[0] >= 40 && reports[0] <= 130);
	rig_stop();
}

/* For over two hours, with no more reports than needed. */
static void reports_continue_for_two_hours(void)
{
	start_requests(3, 0);
	for (uint32_t t = 0; t < 7200; t++) {
		pass_time(SECOND, 100000);
		for (uint32_t i = 0; i < 3; i++)
			CU_ASSERT_FATAL(net.now_us - reported_us[i] <= 30 * SECOND);
	}
	CU_ASSERT(reports[2] >= 240 && reports[2] <= 720);
	rig_stop();
}

static void ended_requests_are_not_reported(void)
{
	start_requests(4, KVR_REQ_F_DIRECT);
	CU_ASSERT_EQUAL(respond_to_request(HANDLE, "x", KVR_AGENT_LAST, 1), 0);
	push_abort(1, HANDLE + 1, 0);
	push_dispatch(0, HANDLE, KVR_REQ_F_RESEND); /* a copy has no effect */
	pass_time(40 * SECOND, 100000);
	CU_ASSERT(reports[0] == 0 && reports[1] == 0);
	CU_ASSERT(reports[2] >= 1 && reports[3] >= 1);
	rig_stop();
}

/* Without a router nothing is reported; afterwards reports continue. */
static void reports_stop_without_a_router(void)
{
	start_requests(2, 0);
	for (uint32_t i = 0; i < 60; i++) {
		net.now_us += SECOND;
		run_agent_turn();
	}
	CU_ASSERT_EQUAL(saw.status.state, KVR_AGENT_OFFLINE);
	CU_ASSERT_EQUAL(reports[0], 0);
	push_welcome_epoch(ROUTER_EPOCH);
	pass_time(3 * SECOND, 100000);
	CU_ASSERT(reports[0] == 1 && reports[1] == 1);
	/* A new epoch of the router has no such request. */
	for (uint32_t i = 0; i < 10; i++) {
		net.now_us += SECOND;
		run_agent_turn();
	}
	push_welcome_epoch(ROUTER_EPOCH + 1);
	pass_time(60 * SECOND, 100000);
	CU_ASSERT(reports[0] == 1 && kvr_agent_running(a) == 0);
	rig_stop();
}

static void without_requests_nothing_is_sent(void)
{
	start_requests(0, 0);
	pass_time(60 * SECOND, 100000);
	kvr_agent_goodbye(a);
	pass_time(10 * SECOND, 100000);
	CU_ASSERT_EQUAL(kvr_agent_timeout_ms(a), -1);
	rig_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(each_request_is_reported_every_30_s),
			       KVR_CASE(reports_continue_for_two_hours),
			       KVR_CASE(ended_requests_are_not_reported),
			       KVR_CASE(reports_stop_without_a_router),
			       KVR_CASE(without_requests_nothing_is_sent),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("alive", tests);
}
