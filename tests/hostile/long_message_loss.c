/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Long messages and loss: a client, the whole router and an agent on a lossy network, in virtual
 * time. Lost frames are retransmitted, and no others; without loss nothing is sent twice, even if a
 * message takes longer than the first timer; no turn sends more than its limit.
 */
#include "ends.h"
#include "lossy_net.h"
#include "pipeline.h"
#include "sched/send.h"
#include "threads.h"

#define STEP_US	    250u
#define TOKENS	    200000u		/* 800 kB, 578 frames */
#define MOST_TOKENS KVR_WIRE_MAX_TOKENS /* 4 MB, 3,031 frames: 47 ms at 64 frames per ms */
#define PACE_MS	    (64u + 16u)		/* frames of one message; a slice may begin within a ms */

static struct end client_end, agent_end;
static struct kvr_udp_addr router_at;
static uint64_t start_ns;
static uint64_t route_bytes, dispatch_bytes; /* bodies as sent */
static uint32_t missing, in_turn, in_ms, most_turn, most_ms;
static bool no_missing; /* the network loses all MISSING frames */
static bool small;	/* a source may have two incomplete prompts of TOKENS */

static void start_network(uint64_t seed, uint32_t loss)
{
	static char router[160];
	static const struct kvr_client_conf cc = {.max_requests = 64};
	static const struct kvr_agent_conf ac = {
		.worker = 5, .pool = "a", .block_size = 16, .epoch = 3, .ops = &ends_agent_ops};

	/* Half of the heartbeats are lost, too. */
	snprintf(router, sizeof(router), "source_share = 0\nsuspect_ms = 3000\ndead_ms = 6000\n%s",
		 small ? "reassembly_source_frames = 1200\n" : "");
	pipeline_router = router;
	/* An lcore's part of the buffers holds the largest message twice. */
	pipeline_mbufs = threads_used() != NULL ? 2 * PIPELINE_MBUFS : PIPELINE_MBUFS;
	pipeline_start_with("[pool a]\nid = 0\nblock_size = 16\nmax_ranks = 64\n"
			    "max_requests = 256\nmax_jobs = 128\nmax_blocks = 64k\n"
			    "max_active_blocks = 262144\n");
	start_ns = rt->ns_offset;
	memset(&ends, 0, sizeof(ends));
	net_start(seed, 0, 0, 100);
	start_ns -= wire.now_us * 1000;
	router_at = net_addr(1, 7650);
	client_end.at = net_addr(2, PEER_CLIENT);
	agent_end.at = net_addr(3, PEER_AGENT);
	client_end.udp = (struct kvr_udp){&end_io, &client_end};
	agent_end.udp = (struct kvr_udp){&end_io, &agent_end};
	ends.client = kvr_client__create_on(&cc, &router_at, &client_end.udp);
	ends.agent = kvr_agent__create_on(&ac, &router_at, &agent_end.udp);
	CU_ASSERT_FATAL(ends.client != NULL && ends.agent != NULL);
	route_bytes = dispatch_bytes = 0;
	missing = in_ms = most_turn = most_ms = 0;
	wire.loss = loss;
}

static void send_from_router(const struct out *o)
{
	missing += o->hdr.kind == KVR_MISSING;
	if (o->hdr.kind == KVR_DISPATCH) {
		dispatch_bytes += o->hdr.frag_len;
		in_turn += o->hdr.frag_len;
		in_ms++;
	}
	if (o->hdr.kind == KVR_MISSING && no_missing)
		return;
	net_send(&router_at, o->to == PEER_CLIENT ? &client_end.at : &agent_end.at, o->bytes,
		 o->len);
}

static void run_network_turn(void)
{
	const struct out *o;
	struct flight f;

	wire.now_us += STEP_US;
	while (net_receive(&router_at, &f)) {
		const struct kvr_wire_hdr *h = (const void *)f.data;

		route_bytes += h->kind == KVR_ROUTE ? h->frag_len : 0;
		if (h->kind != KVR_MISSING || !no_missing)
			pipeline_send(f.from.port, f.data, f.len);
		missing += h->kind == KVR_MISSING;
		free(f.data);
	}
	rt->ns_offset = start_ns + wire.now_us * 1000;
	for (int i = 0; i < 3; i++) {
		pipeline_step();
		in_turn = 0;
		while ((o = pipeline_next(0)) != NULL)
			send_from_router(o);
		pipeline_flush();
		most_turn = RTE_MAX(most_turn, in_turn);
	}
	if (wire.now_us % 1000 == 0) {
		most_ms = RTE_MAX(most_ms, in_ms);
		in_ms = 0;
	}
	kvr_agent_process(ends.agent);
	ends_engine();
	kvr_agent_process(ends.agent);
	kvr_client_process(ends.client);
}

static void submit_requests(uint32_t tokens)
{
	static uint32_t all[MOST_TOKENS];
	uint32_t *prompt = all + ends.n * tokens; /* valid until the request has ended */
	struct ends_request *r = &ends.req[ends.n];
	struct kvr_client_request q = {.tokens = prompt,
				       .n_tokens = tokens,
				       .body = &r->ask,
				       .body_len = sizeof(r->ask),
				       .ops = &ends_client_ops,
				       .user = r};

	CU_ASSERT_FATAL((ends.n + 1) * tokens <= MOST_TOKENS);
	r->ask = (struct ends_ask){.number = ends.n, .items = 3, .item_bytes = 100};
	for (uint32_t i = 0; i < tokens; i++) {
		prompt[i] = ends.n * 77 + i;
		r->ask.prompt_sum += prompt[i] * (i + 1);
	}
	CU_ASSERT_EQUAL_FATAL(kvr_client_submit(ends.client, &q, &r->id), 0);
	ends.n++;
}

static uint32_t count_message_bytes(uint32_t tokens)
{
	return (uint32_t)(sizeof(struct kvr_wire_request) + tokens * 4 + sizeof(struct ends_ask));
}

static void wait_until_registered(void)
{
	for (uint32_t i = 0; i < 80000 && kvr_agent_state_now(ends.agent) != KVR_AGENT_SERVING; i++)
		run_network_turn();
	CU_ASSERT_EQUAL_FATAL(kvr_agent_state_now(ends.agent), KVR_AGENT_SERVING);
}

/* Until all requests are answered, a minute at most. */
static void wait_until_ended(void)
{
	const uint64_t since = wire.now_us;

	while (ends.ended < ends.n && wire.now_us - since < 60000000)
		run_network_turn();
	CU_ASSERT_EQUAL(ends.ended, ends.n);
}

/* Return true while the router holds a waiting request. */
static bool is_holding_requests(void)
{
	return rt->pool[0].live.held != 0 || rte_mempool_in_use_count(rt->pool[0].jobs) != 0;
}

static void stop_network(void)
{
	uint32_t quiet = 0; /* turns */

	wire.loss = 0; /* unacknowledged frames are retransmitted, and end */
	for (uint32_t i = 0; i < 20000 && quiet < 2000;
	     i++, quiet = is_holding_requests() ? 0 : quiet + 1)
		run_network_turn();
	CU_ASSERT_FALSE(is_holding_requests());
	CU_ASSERT(pipeline_balanced());
	kvr_client_destroy(ends.client);
	kvr_agent_destroy(ends.agent);
	net_stop();
	pipeline_stop();
}

static void check_arrival(uint64_t seed, uint32_t loss, uint32_t tokens, double times)
{
	start_network(seed, loss);
	wait_until_registered();
	submit_requests(tokens);
	wait_until_ended();
	CU_ASSERT_EQUAL(ends.by_reason[KVR_CLIENT_FINISHED], ends.n);
	CU_ASSERT_EQUAL(ends.req[0].runs, 1);
	CU_ASSERT((missing > 0) == (loss > 0));
	CU_ASSERT((double)route_bytes <= times * count_message_bytes(tokens));
	CU_ASSERT((double)dispatch_bytes <= times * count_message_bytes(tokens));
	CU_ASSERT(most_turn <= SEND_TURN_BYTES + KVR_WIRE_DEF_FRAME);
	CU_ASSERT(most_ms <= PACE_MS);
	ends_check();
	stop_network();
}

/*
 * Half of all frames are lost, MISSING included. Each fragment needs two copies, and a worker that
 * waited too long for one starts again.
 */
static void a_long_prompt_arrives_at_half_loss(void)
{
	for (uint64_t seed = 1; seed <= 3; seed++)
		check_arrival(seed, 500, TOKENS, 5.0);
}

static void with_some_loss_little_is_retransmitted(void)
{
	check_arrival(4, 20, TOKENS, 1.1);
	check_arrival(5, 20, MOST_TOKENS, 1.1);
}

static void without_loss_every_byte_is_sent_once(void)
{
	check_arrival(6, 0, TOKENS, 1.0);
	check_arrival(7, 0, MOST_TOKENS, 1.0);
	CU_ASSERT_EQUAL(route_bytes, count_message_bytes(MOST_TOKENS));
	CU_ASSERT_EQUAL(dispatch_bytes, count_message_bytes(MOST_TOKENS));
}

/*
 * Five prompts at once, on every queue in turn, from a source that may have two incomplete: the
 * oldest ones go first, and no prompt waits for the 3 s after which one is dropped.
 */
static void prompts_above_the_quota_of_a_source_arrive(void)
{
	uint64_t since;

	small = true;
	start_network(8, 20);
	wait_until_registered();
	since = wire.now_us;
	for (uint32_t i = 0; i < 5; i++)
		submit_requests(TOKENS);
	wait_until_ended();
	CU_ASSERT_EQUAL(ends.by_reason[KVR_CLIENT_FINISHED], ends.n);
	CU_ASSERT_TRUE(wire.now_us - since < 2000000);
	CU_ASSERT((double)route_bytes <= 3.0 * ends.n * count_message_bytes(TOKENS));
	ends_check();
	stop_network();
	small = false;
}

/* The opposite of the other cases: without MISSING frames the message never arrives. */
static void without_missing_frames_it_does_not_arrive(void)
{
	no_missing = true;
	start_network(1, 500);
	wait_until_registered();
	submit_requests(TOKENS);
	wait_until_ended();
	CU_ASSERT_EQUAL(ends.by_reason[KVR_CLIENT_FINISHED], 0);
	stop_network();
	no_missing = false;
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_long_prompt_arrives_at_half_loss),
			       KVR_CASE(with_some_loss_little_is_retransmitted),
			       KVR_CASE(without_loss_every_byte_is_sent_once),
			       KVR_CASE(prompts_above_the_quota_of_a_source_arrive),
			       KVR_CASE(without_missing_frames_it_does_not_arrive),
			       CU_TEST_INFO_NULL};
	/* Each step of the network is a round of all threads. */
	CU_TestInfo threads[] = {KVR_CASE(with_some_loss_little_is_retransmitted),
				 KVR_CASE(prompts_above_the_quota_of_a_source_arrive),
				 CU_TEST_INFO_NULL};

	return kvr_test_run("long_message_loss", threads_used() != NULL ? threads : tests);
}
