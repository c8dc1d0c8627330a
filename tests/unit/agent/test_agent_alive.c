/* SPDX-License-Identifier: BSD-3-Clause */
/* Reports of live requests: each at least every 30 s, many in a frame, a few frames at once. */
#include "agent_rig.h"

#define MANY   2100u
#define SECOND UINT64_C(1000000)

static uint64_t told_us[MANY]; /* by request, when it was reported last */
static uint32_t reports[MANY];

static void look(const struct kvr_wire_hdr *h)
{
	const struct kvr_wire_alive *w = kvr_frame_body(h);
	const uint64_t *handle = (const void *)(w + 1);

	CU_ASSERT_EQUAL_FATAL(kvr_body_check(KVR_ALIVE, w, h->msg_len, NULL), 0);
	CU_ASSERT(h->source == WORKER && h->epoch == 9 && h->handle == 0);
	CU_ASSERT_TRUE(kvr_udp_addr_equal(fake_to(&net), &router_at));
	for (uint32_t i = 0; i < w->n; i++) {
		const uint64_t r = handle[i] - HANDLE;

		CU_ASSERT_FATAL(r < MANY);
		told_us[r] = net.now_us;
		reports[r]++;
	}
}

/* Whether a turn of the agent is bounded, and what it said. */
static void turn(void)
{
	const struct kvr_wire_hdr *h;
	uint32_t frames = 0;

	fake_skip(&net);
	kvr_agent_process(a);
	kvr_agent_process(a); /* its room is free when nothing is received */
	for (; (h = fake_next(&net, KVR_ALIVE)) != NULL; frames++)
		look(h);
	CU_ASSERT(frames <= AGENT_ALIVE_FRAMES);
}

/* The router answers heartbeats. */
static void pass(uint64_t us, uint64_t step)
{
	for (const uint64_t end = net.now_us + us; net.now_us < end; net.now_us += step) {
		if (net.now_us / SECOND != (net.now_us - step) / SECOND)
			push_heartbeat_ack(KVR_WORKER_SERVING, 0);
		turn();
	}
}

/* Requests [0, n), with @p flags. */
static void run(uint32_t n, uint32_t flags)
{
	memset(told_us, 0, sizeof(told_us));
	memset(reports, 0, sizeof(reports));
	rig_welcomed((struct kvr_agent_conf){0});
	for (uint32_t i = 0; i < n; i++) {
		push_dispatch(i, HANDLE + i, flags);
		if (i % 100 == 99)
			turn();
	}
	turn();
	CU_ASSERT_EQUAL_FATAL(kvr_agent_running(a), n);
	for (uint32_t i = 0; i < n; i++)
		told_us[i] = net.now_us; /* its acknowledgement says so */
}

static void each_is_reported_every_30_s(void)
{
	run(MANY, 0);
	for (uint32_t t = 0; t < 1200; t++) { /* 20 minutes without a word of their engine */
		pass(SECOND, t % 60 == 0 ? 1000 : 50000);
		for (uint32_t i = 0; i < MANY; i++)
			CU_ASSERT_FATAL(net.now_us - told_us[i] <= 30 * SECOND);
	}
	CU_ASSERT(reports[0] >= 40 && reports[0] <= 130);
	rig_stop();
}

/* Over two hours: no more of them than needed. */
static void two_hours_are_long(void)
{
	run(3, 0);
	for (uint32_t t = 0; t < 7200; t++) {
		pass(SECOND, 100000);
		for (uint32_t i = 0; i < 3; i++)
			CU_ASSERT_FATAL(net.now_us - told_us[i] <= 30 * SECOND);
	}
	CU_ASSERT(reports[2] >= 240 && reports[2] <= 720);
	rig_stop();
}

static void what_has_ended_is_not_reported(void)
{
	run(4, KVR_REQ_F_DIRECT);
	CU_ASSERT_EQUAL(respond(HANDLE, "x", KVR_AGENT_LAST, 1), 0);
	push_abort(1, HANDLE + 1, 0);
	push_dispatch(0, HANDLE, KVR_REQ_F_RESEND); /* a copy changes nothing */
	pass(40 * SECOND, 100000);
	CU_ASSERT(reports[0] == 0 && reports[1] == 0);
	CU_ASSERT(reports[2] >= 1 && reports[3] >= 1);
	rig_stop();
}

/* Nobody is told anything while there is no router; afterwards it is as before. */
static void a_router_that_is_away_is_not_told(void)
{
	run(2, 0);
	for (uint32_t i = 0; i < 60; i++) {
		net.now_us += SECOND;
		turn();
	}
	CU_ASSERT_EQUAL(saw.status.state, KVR_AGENT_OFFLINE);
	CU_ASSERT_EQUAL(reports[0], 0);
	push_welcome_epoch(ROUTER_EPOCH);
	pass(3 * SECOND, 100000);
	CU_ASSERT(reports[0] == 1 && reports[1] == 1);
	/* Another life of it has no such request. */
	for (uint32_t i = 0; i < 10; i++) {
		net.now_us += SECOND;
		turn();
	}
	push_welcome_epoch(ROUTER_EPOCH + 1);
	pass(60 * SECOND, 100000);
	CU_ASSERT(reports[0] == 1 && kvr_agent_running(a) == 0);
	rig_stop();
}

static void without_requests_nothing_is_said(void)
{
	run(0, 0);
	pass(60 * SECOND, 100000);
	kvr_agent_goodbye(a);
	pass(10 * SECOND, 100000);
	CU_ASSERT_EQUAL(kvr_agent_timeout_ms(a), -1);
	rig_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {{"many", each_is_reported_every_30_s},
			       {"hours", two_hours_are_long},
			       {"ended", what_has_ended_is_not_reported},
			       {"away", a_router_that_is_away_is_not_told},
			       {"none", without_requests_nothing_is_said},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("alive", tests);
}
