/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The balance of the counters is read while requests come and go on every thread. It holds
 * each time, and a wrong counter is found each time.
 */
#include "pipeline.h"
#include "threads.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "control/thread.h"
#include "kvr_put.h"
#include "kvr_test.h"
#include "telemetry/balance.h"

#define REQUESTS 3000u
#define AHEAD	 64u

/*
 * A writer in the middle of its turn has counted one side of an equation and not yet the other. It
 * continues when a reader waits for the end of the turn, or when the question has been answered.
 */
struct half {
	struct call call;
	enum { OF_INGRESS, OF_POOL } of;
	_Atomic int begun, answered;
};

static void count_half(struct lcore *lc, const struct half *h, bool second)
{
	if (h->of == OF_INGRESS)
		in_count(lc, second ? IN_REQUEST_FRAMES : IN_FRAMES);
	else
		pool_count(lc->sched_pool[0], second ? PC_QUERIES : PC_ROUTES, 1);
}

static bool stop_in_the_middle(struct lcore *lc, void *arg)
{
	struct half *h = arg;

	count_half(lc, h, false);
	/* Pairs with the load in read_in_the_middle(). */
	atomic_store_explicit(&h->begun, 1, memory_order_release);
	while (rte_ring_empty(lc->calls) &&
	       atomic_load_explicit(&h->answered, memory_order_acquire) == 0)
		sched_yield();
	count_half(lc, h, true);
	return true;
}

static void read_in_the_middle(struct lcore *lc, int of)
{
	struct half h = {.call = {.fn = stop_in_the_middle, .arg = &h}, .of = of};
	uint64_t since = 0;
	struct balance b;

	call_start(rt, lc, &h.call);
	while (atomic_load_explicit(&h.begun, memory_order_acquire) == 0)
		threads_wait(&since);
	CU_ASSERT_EQUAL(balance_read(rt, &b), 0);
	CU_ASSERT_STRING_EQUAL(b.violation, "");
	atomic_store_explicit(&h.answered, 1, memory_order_release);
	call_wait(rt, &h.call);
}

static void the_balance_is_read_between_two_turns(void)
{
	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(9, 1, "a", 2));
	threads_run();
	for (uint32_t i = 0; i < rt->n_lcores; i++) {
		read_in_the_middle(rt->lcore[i], OF_INGRESS);
		if (rt->lcore[i]->n_sched > 0)
			read_in_the_middle(rt->lcore[i], OF_POOL);
	}
	threads_pause();
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

static struct kvr_request_src make_source(uint64_t *hash, uint64_t id)
{
	hash[0] = id;
	return (struct kvr_request_src){.fixed = {.pool = 5,
						  .isl = 4,
						  .max_tokens = KVR_NONE32,
						  .expected_output_tokens = KVR_NONE32},
					.hashes = hash,
					.n_hashes = 1};
}

static void send_route_to_pool(uint64_t id)
{
	const struct kvr_wire_ids ids = {.source = 77, .id = id, .epoch = 1};
	uint8_t frame[KVR_WIRE_DEF_FRAME];
	struct kvr_slice s[KVR_REQUEST_SLICES];
	struct kvr_request_src src;
	struct kvr_frag frag;
	uint32_t len, off, part;
	uint64_t hash;

	src = make_source(&hash, id);
	len = kvr_request_build(&src, s);
	CU_ASSERT_FATAL(kvr_frag_init(&frag, KVR_ROUTE, &ids, len, sizeof(frame)) == 0);
	CU_ASSERT_FATAL(kvr_frag_next(&frag, frame, &off, &part));
	kvr_slices_copy(s, KVR_REQUEST_SLICES, off, part, frame + sizeof(struct kvr_wire_hdr));
	pipeline_send(PEER_CLIENT, frame, sizeof(struct kvr_wire_hdr) + part);
}

/*
 * Agent and client: an answer of one item, and its acknowledgement. @return number of ended
 * requests.
 */
static uint32_t answer_requests(void)
{
	const struct kvr_wire_response r = {
		.flags = KVR_RESP_F_FIN, .generated_tokens = 1, .cached_tokens = KVR_NONE32};
	const struct kvr_wire_response_ack a = {1, KVR_RACK_F_FIN};
	uint32_t ended = 0;
	const struct out *o;
	uint8_t buf[256];

	while ((o = pipeline_next(0)) != NULL) {
		const struct kvr_wire_ids ids = {
			.source = 77, .id = o->hdr.id, .handle = o->hdr.handle, .epoch = 1};

		if (o->hdr.kind == KVR_DISPATCH) {
			pipeline_send(PEER_AGENT, buf,
				      (size_t)kvr_put_response(buf, sizeof(buf), &ids, r,
							       (struct kvr_slice){"item", 4}));
		} else if (o->hdr.kind == KVR_RESPONSE) {
			pipeline_send(PEER_CLIENT, buf,
				      (size_t)kvr_put_response_ack(buf, sizeof(buf), &ids, &a));
			ended++;
		} else if (o->hdr.kind == KVR_REJECTED) {
			ended++;
		}
	}
	pipeline_flush();
	return ended;
}

static void the_balance_holds_while_requests_run(void)
{
	uint32_t sent = 0, ended = 0, busy = 0, polls = 0;
	struct balance b;
	uint64_t since = 0;

	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(9, 1, "a", 2));
	threads_run();
	while (ended < REQUESTS) {
		while (sent < REQUESTS && sent - ended < AHEAD)
			send_route_to_pool(1000 + sent++);
		CU_ASSERT_EQUAL_FATAL(balance_read(rt, &b), 0);
		polls++;
		busy += b.slots != 0;
		if (b.violation[0] != '\0')
			fprintf(stderr, "%s\n", b.violation);
		CU_ASSERT_STRING_EQUAL_FATAL(b.violation, "");
		control_round(rt);
		ended += answer_requests();
		threads_wait(&since);
	}
	CU_ASSERT(polls > 20 && busy > 10); /* it was under load */
	pipeline_turn();
	CU_ASSERT_TRUE(pipeline_balanced());
	CU_ASSERT_EQUAL(balance_read(rt, &b), 0);
	CU_ASSERT_EQUAL(b.bookings + b.waiting, 0);
	kvr_stats_inc(rt->pool[0].count, PC_ROUTES);
	CU_ASSERT_EQUAL(balance_read(rt, &b), 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(b.violation, "routes = queries"));
	pipeline_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(the_balance_is_read_between_two_turns),
			       KVR_CASE(the_balance_holds_while_requests_run), CU_TEST_INFO_NULL};

	if (threads_used() == NULL)
		threads_use(&threads_maps[3]);
	return kvr_test_run("balance_under_load", tests);
}
