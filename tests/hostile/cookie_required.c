/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Answers to a forged address must not amplify. An address without a cookie never gets an
 * answer longer than its frame, whatever its kind, and nothing is booked for it.
 */
#include "pipeline.h"

#include "kvr_frame.h"
#include "kvr_put.h"
#include "kvr_test.h"
#include "samples.h"
#include <string.h>

#define WORKER	  9u
#define WINDOW_MS 274878u /* 2^38 ns */

static void begin_cookies(void)
{
	pipeline_port = ""; /* default: cookies */
	pipeline_cookie = 0;
	pipeline_start_with("[pool a]\nid = 5\n" PIPELINE_POOL "max_sessions = 16\n"
			    "[pool b]\nid = 1\n" PIPELINE_POOL);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 2));
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER + 1, 1, "b", 64));
	pipeline_flush();
}

static void end_cookies(void)
{
	pipeline_turn();
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

/* Bytes sent to the port since the last flush. */
static uint32_t count_answer_bytes(uint32_t to)
{
	uint32_t bytes = 0;
	const struct out *o;

	while ((o = pipeline_next(0)) != NULL)
		bytes += o->to == to ? o->len : 0;
	return bytes;
}

static uint32_t n_asked;

/* From an unknown address: the answer must not be longer. */
static void send_and_compare(const void *frame, uint32_t len)
{
	const struct kvr_wire_hdr *h = frame;
	uint32_t got;

	pipeline_flush();
	pipeline_send(PEER_OTHER, frame, len);
	pipeline_turn();
	got = count_answer_bytes(PEER_OTHER);
	if (got > len)
		fprintf(stderr, "kind %u of %u bytes was answered with %u\n", h->kind, len, got);
	CU_ASSERT_TRUE(got <= len);
	n_asked++;
}

static void no_kind_gets_a_longer_answer(void)
{
	static struct sample s[SAMPLES_MAX];
	const uint32_t n = samples_make(s);
	uint8_t buf[SAMPLE_FRAME];

	begin_cookies();
	for (uint32_t i = 0; i < n; i++) {
		for (uint32_t k = 0; k < s[i].n_frames; k++)
			send_and_compare(s[i].frame[k], s[i].len[k]);
		/* For a known worker and an unknown one; malformed in each byte of the header. */
		memcpy(buf, s[i].frame[0], s[i].len[0]);
		((struct kvr_wire_hdr *)buf)->source = WORKER;
		send_and_compare(buf, s[i].len[0]);
		for (uint32_t b = 2; b < 48; b++) {
			memcpy(buf, s[i].frame[0], s[i].len[0]);
			buf[b] ^= 0x11;
			send_and_compare(buf, s[i].len[0]);
		}
		pipeline_skip(2000); /* answers to invalid frames are rate limited, too */
	}
	CU_ASSERT_EQUAL(kvr_sched_counters(rt->pool[0].sched)->booked_now, 0);
	end_cookies();
}

static void no_length_of_any_kind_gets_a_longer_answer(void)
{
	uint8_t buf[48 + 128];

	begin_cookies();
	for (uint32_t kind = 0; kind < 256; kind++) {
		for (uint32_t body = 0; body <= 128; body += 8) {
			const struct kvr_wire_ids ids = {
				.source = kind % 2 != 0 ? WORKER : 77, .id = kind, .epoch = 1};

			memset(buf, 0, sizeof(buf));
			kvr_hdr_put(buf, (uint8_t)kind, &ids, body, 0, (uint16_t)body);
			send_and_compare(buf, 48 + body);
		}
		pipeline_skip(100);
	}
	CU_ASSERT_TRUE(n_asked > 256 * 17);
	end_cookies();
}

/* @return the cookie of CONNECTED for a request with @p pad bytes of PAD; 0: rejected. */
static uint64_t connect_as(uint32_t from, uint32_t pad)
{
	const struct kvr_wire_ids ids = {.source = 77, .id = 1, .epoch = 1};
	uint8_t tlv[1500], zeros[1400] = {0}, buf[1500];
	struct kvr_hint_buf h = {.p = tlv, .cap = sizeof(tlv)};
	const struct kvr_wire_connected *c;
	const struct out *o;
	int len;

	kvr_hint_put(&h, KVR_HINT_PAD, zeros, pad, NULL, 0);
	len = kvr_put_connect(buf, sizeof(buf), &ids, 1432, &h);
	pipeline_flush();
	pipeline_send(from, buf, (size_t)len);
	pipeline_turn();
	o = pipeline_expect(from, KVR_CONNECTED);
	if (o == NULL)
		return 0;
	CU_ASSERT_TRUE(o->len <= (uint32_t)len);
	c = (const void *)(&o->hdr + 1);
	CU_ASSERT_EQUAL(c->total_pools, 2);
	return c->cookie;
}

static const struct kvr_wire_rejected *take_cookie_rejection(uint32_t to)
{
	const struct out *o = pipeline_expect(to, KVR_REJECTED);

	return o == NULL ? NULL : (const void *)(&o->hdr + 1);
}

static void a_client_with_its_cookie_is_served(void)
{
	const struct kvr_wire_rejected *w;
	const struct out *o;

	begin_cookies();
	CU_ASSERT_EQUAL(connect_as(PEER_CLIENT, 4), 0); /* shorter than the shortest answer */
	w = take_cookie_rejection(PEER_CLIENT);
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT_EQUAL(w->code, KVR_E_LENGTH);
	pipeline_cookie = connect_as(PEER_CLIENT, 1300);
	CU_ASSERT_NOT_EQUAL_FATAL(pipeline_cookie, 0);
	pipeline_route(1, 100, 8, 0, NULL);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_ACCEPTED));
	o = pipeline_expect(PEER_AGENT, KVR_DISPATCH);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	/* The cookie stays in the router, and the address counts as proven. */
	CU_ASSERT_EQUAL(((const struct kvr_wire_request *)(&o->hdr + 1))->worker, WORKER);
	CU_ASSERT_EQUAL(((const struct kvr_wire_request *)(&o->hdr + 1))->flags, 0);
	/*
	 * The answer about loads is many times longer than the query: only for addresses with a
	 * cookie.
	 */
	pipeline_kind = KVR_POTENTIAL_LOADS;
	pipeline_pool = 1;
	pipeline_route(2, 100, 8, 0, NULL);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_LOADS));
	pipeline_flush(); /* an answer of several frames */
	pipeline_cookie++;
	pipeline_route(3, 100, 8, 0, NULL);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_LOADS));
	pipeline_kind = KVR_ROUTE;
	pipeline_pool = 5;
	end_cookies();
}

static void a_wrong_or_old_cookie_is_answered_with_the_right_one(void)
{
	const struct kvr_wire_rejected *w;
	uint64_t first;

	begin_cookies();
	pipeline_route(1, 100, 8, 0, NULL);
	w = take_cookie_rejection(PEER_CLIENT);
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT_EQUAL(w->code, KVR_E_COOKIE);
	CU_ASSERT_EQUAL(w->retryable, 1);
	first = w->detail[0];
	CU_ASSERT_NOT_EQUAL(first, 0);
	CU_ASSERT_EQUAL(first, connect_as(PEER_CLIENT, 1300));
	pipeline_cookie = connect_as(PEER_OTHER, 1300); /* of another port */
	CU_ASSERT_NOT_EQUAL(pipeline_cookie, first);
	pipeline_route(1, 100, 8, 0, NULL);
	w = take_cookie_rejection(PEER_CLIENT);
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT_EQUAL(w->code, KVR_E_COOKIE);
	/* The rejected copies left nothing: the request is new. */
	pipeline_cookie = first;
	pipeline_route(1, 100, 8, 0, NULL);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_ACCEPTED));
	pipeline_skip(WINDOW_MS);
	pipeline_route(2, 100, 8, 0, NULL);
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_ACCEPTED));
	pipeline_skip(WINDOW_MS);
	pipeline_flush();
	pipeline_route(3, 100, 8, 0, NULL);
	w = take_cookie_rejection(PEER_CLIENT);
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT_EQUAL(w->code, KVR_E_COOKIE);
	end_cookies();
}

/* Only the first fragment carries the cookie: without it the message is never complete. */
static void fragments_without_the_first_are_dropped(void)
{
	const struct kvr_wire_rejected *w;

	begin_cookies();
	pipeline_body_len = 4000;
	pipeline_route(1, 100, 8, 0, NULL);
	w = take_cookie_rejection(PEER_CLIENT);
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT_EQUAL(w->code, KVR_E_COOKIE);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_DISPATCH));
	pipeline_cookie = w->detail[0];
	pipeline_route(1, 100, 8, 0, NULL); /* completes the rest */
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_ACCEPTED));
	pipeline_body_len = 4;
	end_cookies();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(no_kind_gets_a_longer_answer),
			       KVR_CASE(no_length_of_any_kind_gets_a_longer_answer),
			       KVR_CASE(a_client_with_its_cookie_is_served),
			       KVR_CASE(a_wrong_or_old_cookie_is_answered_with_the_right_one),
			       KVR_CASE(fragments_without_the_first_are_dropped),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("cookie_required", tests);
}
