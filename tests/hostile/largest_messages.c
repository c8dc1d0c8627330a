/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CONNECTED reports the size of the largest message for any number of buffers. Two of this size
 * from one address, with alternating fragments, are both served. One that is 8 bytes longer is
 * rejected on its first fragment, before any of it is held.
 */
#include "kvr_frame.h"
#include "kvr_put.h"
#include "kvr_test.h"
#include "lcores.h"

#include <stdlib.h>
#include <string.h>

#define HEADER sizeof(struct kvr_wire_hdr)
#define FIXED  sizeof(struct kvr_wire_request)
#define HASHES 50000u
/* largest size of make_route_of() */
#define ALL  ((uint32_t)FIXED + HASHES * 8 + KVR_WIRE_MAX_TOKENS * 4 + KVR_WIRE_MAX_BODY)
#define UNIT (KVR_WIRE_DEF_FRAME - (uint32_t)HEADER)

static struct kvr_wire_connected read_limits(void)
{
	static const uint8_t zeros[512];
	const struct kvr_wire_ids ids = {.source = 77, .id = 1, .epoch = 1};
	uint8_t tlv[600], buf[1432];
	struct kvr_hint_buf h = {.p = tlv, .cap = sizeof(tlv)};
	struct kvr_wire_connected c = {0};
	const struct out *o;

	kvr_hint_put(&h, KVR_HINT_PAD, zeros, sizeof(zeros), NULL, 0);
	pipeline_send(PEER_CLIENT, buf,
		      (size_t)kvr_put_connect(buf, sizeof(buf), &ids, KVR_WIRE_DEF_FRAME, &h));
	pipeline_turn();
	o = pipeline_expect(PEER_CLIENT, KVR_CONNECTED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	memcpy(&c, &o->hdr + 1, sizeof(c));
	return c;
}

/* A ROUTE of @p len body bytes: up to half of it hashes, then engine tokens, then its body. */
static uint8_t *make_route_of(uint32_t len)
{
	uint8_t *m = calloc(1, len);
	struct kvr_wire_request *q = (void *)m;
	const uint32_t hashes = RTE_MIN(HASHES, (len - (uint32_t)FIXED) / 16);
	const uint32_t rest = len - (uint32_t)FIXED - hashes * 8;
	const uint32_t tokens = RTE_MIN(rest / 8 * 2, KVR_WIRE_MAX_TOKENS);

	CU_ASSERT_FATAL(m != NULL && rest - tokens * 4 <= KVR_WIRE_MAX_BODY);
	*q = (struct kvr_wire_request){.pool = 5,
				       .isl = hashes * 4,
				       .n_hashes = hashes,
				       .n_tokens = tokens,
				       .body_len = rest - tokens * 4,
				       .max_tokens = KVR_NONE32,
				       .expected_output_tokens = KVR_NONE32};
	for (uint64_t i = 0; i < hashes; i++)
		memcpy(m + FIXED + i * 8, &i, sizeof(i));
	return m;
}

static void send_part(const uint8_t *m, uint32_t len, uint64_t id, uint32_t k)
{
	const struct kvr_wire_ids ids = {
		.source = 77, .id = id, .epoch = 1, .msg_seq = (uint32_t)id};
	const uint32_t part = RTE_MIN(UNIT, len - k * UNIT);
	uint8_t f[KVR_WIRE_DEF_FRAME];

	kvr_hdr_put(f, KVR_ROUTE, &ids, len, k * UNIT, (uint16_t)part);
	memcpy(f + HEADER, m + k * UNIT, part);
	pipeline_send(PEER_CLIENT, f, HEADER + part);
}

/* Bytes sent for each DISPATCH, and ACCEPTED. */
static struct {
	uint32_t bytes[3], accepted, rejected;
	uint64_t handle[3];
} seen;

static void collect_output(void)
{
	const struct out *o;

	pipeline_step();
	while ((o = pipeline_next(0)) != NULL) {
		seen.accepted += o->hdr.kind == KVR_ACCEPTED;
		seen.rejected += o->hdr.kind == KVR_REJECTED;
		if (o->hdr.kind == KVR_DISPATCH && o->hdr.id < RTE_DIM(seen.bytes)) {
			seen.bytes[o->hdr.id] += o->hdr.frag_len;
			seen.handle[o->hdr.id] = o->hdr.handle;
		}
	}
	pipeline_flush();
}

static void check_two_are_served(uint32_t n)
{
	uint8_t *m = make_route_of(n), buf[256];

	memset(&seen, 0, sizeof(seen));
	for (uint32_t k = 0; k * UNIT < n; k++) {
		send_part(m, n, 1, k);
		send_part(m, n, 2, k);
		if (k % 16 == 15)
			collect_output();
	}
	for (uint32_t i = 0; i < 20000 && seen.bytes[1] + seen.bytes[2] < 2 * n; i++)
		collect_output();
	CU_ASSERT_EQUAL(seen.bytes[1], n);
	CU_ASSERT_EQUAL(seen.bytes[2], n);
	CU_ASSERT_EQUAL(seen.accepted, 2);
	CU_ASSERT_EQUAL(seen.rejected, 0);
	CU_ASSERT_EQUAL(lcores_sum_counter(IN_REASM_EVICTED), 0);
	for (uint64_t id = 1; id <= 2; id++) {
		const struct kvr_wire_ids ids = {
			.source = 77, .id = id, .handle = seen.handle[id], .epoch = 1};

		pipeline_send(PEER_CLIENT, buf,
			      (size_t)kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &ids));
	}
	pipeline_turn();
	pipeline_flush();
	CU_ASSERT_EQUAL(rt->pool[0].live.held, 0);
	free(m);
}

static void check_more_is_rejected(uint32_t n)
{
	const struct kvr_wire_rejected *r;
	const uint64_t kept = lcores_count_kept();
	uint8_t *m = make_route_of(n);
	const struct out *o;

	for (uint32_t k = 0; k < 20; k++)
		send_part(m, n, 3, k);
	pipeline_turn();
	o = pipeline_expect(PEER_CLIENT, KVR_REJECTED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	r = (const void *)(&o->hdr + 1);
	CU_ASSERT_EQUAL(r->code, KVR_E_TOO_LARGE);
	CU_ASSERT_EQUAL(r->retryable, 0);
	CU_ASSERT_EQUAL(r->detail[0], n);
	CU_ASSERT_EQUAL(r->detail[1], n - 8);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_REJECTED)); /* once */
	CU_ASSERT_EQUAL(lcores_count_kept(), kept);
	free(m);
}

static void check_with_buffers(uint32_t mbufs)
{
	struct kvr_wire_connected c;
	uint32_t n;

	pipeline_mbufs = mbufs < PIPELINE_MBUFS ? lcores_mbufs(mbufs) : mbufs;
	pipeline_start(1);
	pipeline_mbufs = PIPELINE_MBUFS;
	CU_ASSERT_TRUE_FATAL(pipeline_hello(31, 1, "a", 1));
	pipeline_flush();
	c = read_limits();
	n = RTE_MIN(c.max_message, c.max_frames * UNIT) & ~7u;
	CU_ASSERT_FATAL(n >= 600000 / rt->conf.n_ingress && n <= KVR_WIRE_MAX_MESSAGE);
	check_two_are_served(RTE_MIN(n, ALL));
	if (n < ALL)
		check_more_is_rejected(n + 8);
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
	CU_ASSERT(pipeline_balanced());
	pipeline_stop();
}

static void few_buffers(void)
{
	check_with_buffers(8191);
}

static void more_buffers(void)
{
	check_with_buffers(16383);
}

/* 4.2 MB of tokens and 1 MB of body: the largest possible except for hints and hashes. */
static void enough_buffers(void)
{
	check_with_buffers(PIPELINE_MBUFS);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(few_buffers), KVR_CASE(more_buffers),
			       KVR_CASE(enough_buffers), CU_TEST_INFO_NULL};

	return kvr_test_run("largest_messages", tests);
}
