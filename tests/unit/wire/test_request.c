/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_put.h"
#include "kvr_test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t hashes[3] = {11, 22, 33};
static const uint32_t tokens[5] = {1, 2, 3, 4, 5};
static uint8_t hint_bytes[64], body[512];

static struct kvr_request_src source(void)
{
	static struct kvr_hint_buf h;

	h = (struct kvr_hint_buf){.p = hint_bytes, .cap = sizeof(hint_bytes)};
	kvr_hint_put_str(&h, KVR_HINT_LORA, "adapter");
	return (struct kvr_request_src){.fixed = {.isl = 50, .max_tokens = KVR_NONE32},
					.hashes = hashes,
					.n_hashes = 3,
					.tokens = tokens,
					.n_tokens = 5,
					.hints = hint_bytes,
					.hints_len = h.len,
					.body = "opaque!",
					.body_len = 7};
}

static uint32_t build(struct kvr_request_src *src)
{
	struct kvr_slice s[KVR_REQUEST_SLICES];
	const uint32_t len = kvr_request_build(src, s);

	CU_ASSERT_FATAL(len > 0 && len <= sizeof(body));
	CU_ASSERT_EQUAL_FATAL(kvr_slices_copy(s, KVR_REQUEST_SLICES, 0, len, body), 0);
	return len;
}

static void parts_are_found_where_they_were_put(void)
{
	struct kvr_request_src src = source();
	const uint32_t len = build(&src);
	struct kvr_message q;

	CU_ASSERT_EQUAL(len, 88 + 24 + 24 + 16 + 8);
	CU_ASSERT_EQUAL_FATAL(kvr_request_parse(body, len, KVR_ROUTE, &q), 0);
	CU_ASSERT_EQUAL(memcmp(q.hashes, hashes, sizeof(hashes)), 0);
	CU_ASSERT_EQUAL(memcmp(q.tokens, tokens, sizeof(tokens)), 0);
	CU_ASSERT_EQUAL(memcmp(q.hints, hint_bytes, 16), 0);
	CU_ASSERT_EQUAL(memcmp(q.body, "opaque!", 7), 0);
	CU_ASSERT(q.fixed.isl == 50 && q.fixed.max_tokens == KVR_NONE32);
}

/* Any cut into three pieces is judged as the whole is, and parts inside one piece are in place. */
static void slices_give_the_same_as_one_piece(void)
{
	struct kvr_request_src src = source();
	const uint32_t len = build(&src);
	struct kvr_message whole, q;

	CU_ASSERT_EQUAL_FATAL(kvr_request_parse(body, len, KVR_ROUTE, &whole), 0);
	for (uint32_t a = 0; a <= len; a++)
		for (uint32_t b = a; b <= len; b++) {
			const struct kvr_slice s[3] = {
				{body, a}, {body + a, b - a}, {body + b, len - b}};
			uint64_t gathered[3];

			CU_ASSERT_EQUAL_FATAL(kvr_request_parse_slices(s, 3, KVR_ROUTE, &q), 0);
			CU_ASSERT_EQUAL(memcmp(&q.fixed, &whole.fixed, sizeof(q.fixed)), 0);
			CU_ASSERT(q.hashes == NULL || q.hashes == whole.hashes);
			CU_ASSERT(q.body == NULL || q.body == whole.body);
			CU_ASSERT(a != 88 || b < 112 || q.hashes == whole.hashes);
			CU_ASSERT_EQUAL(
				memcmp(kvr_slices_at(s, 3, q.hashes_off, 24, gathered), hashes, 24),
				0);
		}
}

static void padding_is_seen_in_slices_too(void)
{
	struct kvr_request_src src = source();
	const uint32_t len = build(&src);
	struct kvr_message q;

	for (uint32_t k = 0; k < 2; k++) {
		const uint32_t at = k == 0 ? 88 + 24 + 20 : len - 1;
		const struct kvr_slice s[2] = {{body, at}, {body + at, len - at}};

		body[at] = 1;
		CU_ASSERT_EQUAL(kvr_request_parse_slices(s, 2, KVR_ROUTE, &q), KVR_E_FLAGS);
		CU_ASSERT_EQUAL(kvr_request_parse(body, len, KVR_ROUTE, &q), KVR_E_FLAGS);
		body[at] = 0;
	}
}

static void sums_that_wrap_are_refused(void)
{
	static const uint32_t edges[] = {0x20000000, 0x40000000, 0x80000000, 0xfffffff8,
					 0xffffffff};
	static const uint32_t at[] = {8, 12, 16, 20, 24}; /* isl and the four counts */
	struct kvr_request_src src = source();
	const uint32_t len = build(&src);
	struct kvr_message q;

	for (uint32_t f = 0; f < 5; f++)
		for (uint32_t e = 0; e < 5; e++) {
			uint8_t copy[sizeof(body)];

			memcpy(copy, body, len);
			memcpy(copy + at[f], &edges[e], 4);
			CU_ASSERT_EQUAL(kvr_request_parse(copy, len, KVR_ROUTE, &q),
					KVR_E_TOO_LARGE);
			CU_ASSERT_EQUAL(q.fault.seen, edges[e]);
			CU_ASSERT(q.fault.allowed > 0);
		}
}

static void a_prompt_below_one_block_needs_neither_hashes_nor_tokens(void)
{
	struct kvr_request_src src = {.fixed = {.isl = 3}};
	const uint32_t len = build(&src);
	struct kvr_message q;

	CU_ASSERT_EQUAL(kvr_request_parse(body, len, KVR_ROUTE, &q), 0);
	src.fixed.isl = 0;
	build(&src);
	CU_ASSERT_EQUAL(kvr_request_parse(body, len, KVR_ROUTE, &q), KVR_E_EMPTY_PROMPT);
}

static void the_largest_request_is_taken_and_no_larger(void)
{
	struct kvr_request_src src = {.fixed = {.isl = KVR_WIRE_MAX_TOKENS},
				      .n_hashes = KVR_WIRE_MAX_HASHES,
				      .n_tokens = KVR_WIRE_MAX_TOKENS,
				      .hints_len = KVR_WIRE_MAX_HINTS,
				      .body_len = KVR_WIRE_MAX_BODY};
	uint8_t *zeros = calloc(1, KVR_WIRE_MAX_MESSAGE);
	struct kvr_slice s[KVR_REQUEST_SLICES];
	struct kvr_message q;
	uint32_t *count[] = {&src.n_hashes, &src.n_tokens, &src.hints_len, &src.body_len};

	CU_ASSERT_PTR_NOT_NULL_FATAL(zeros);
	src.hashes = src.tokens = src.hints = src.body = zeros;
	CU_ASSERT_EQUAL(kvr_request_build(&src, s), KVR_WIRE_MAX_MESSAGE);
	memcpy(zeros, &src.fixed, sizeof(src.fixed));
	CU_ASSERT_EQUAL(kvr_request_parse(zeros, KVR_WIRE_MAX_MESSAGE, KVR_ROUTE, &q), 0);
	CU_ASSERT_EQUAL(kvr_body_check(KVR_ROUTE, zeros, KVR_WIRE_MAX_MESSAGE, NULL), 0);
	for (uint32_t i = 0; i < 4; i++) {
		*count[i] += 8;
		CU_ASSERT_EQUAL(kvr_request_build(&src, s), 0);
		*count[i] -= 8;
	}
	free(zeros);
}

static void a_dispatch_carries_what_a_route_may_not(void)
{
	struct kvr_request_src src = source();
	uint32_t len;
	struct kvr_message q;

	src.fixed.worker = 7;
	src.fixed.client_port = 4000;
	src.fixed.flags = KVR_REQ_F_PREFILL_LEG | KVR_REQ_F_RESEND;
	len = build(&src);
	CU_ASSERT_EQUAL(kvr_request_parse(body, len, KVR_ROUTE, &q), KVR_E_FLAGS);
	CU_ASSERT_EQUAL(kvr_request_parse(body, len, KVR_POTENTIAL_LOADS, &q), KVR_E_FLAGS);
	CU_ASSERT_EQUAL(kvr_request_parse(body, len, KVR_DISPATCH, &q), 0);
	CU_ASSERT_EQUAL(q.fixed.worker, 7);
}

/* The field is reserved in CLOSE and RELEASE. */
static void only_an_open_has_a_timeout(void)
{
	static const uint8_t kinds[] = {KVR_SESSION_OPEN, KVR_SESSION_CLOSE, KVR_SESSION_RELEASE};
	const struct kvr_wire_ids ids = {.source = 1, .id = 2};

	for (unsigned int i = 0; i < 3; i++) {
		uint8_t buf[256];
		struct kvr_wire_session *m = (void *)(buf + sizeof(struct kvr_wire_hdr));
		const int len = kvr_put_session(
			buf, sizeof(buf), kinds[i], &ids,
			(struct kvr_wire_session){.timeout_s = i == 0 ? 7 : 0, .pool = 5},
			(struct kvr_str){"s-1", 3});
		const uint32_t n = (uint32_t)len - (uint32_t)sizeof(struct kvr_wire_hdr);

		CU_ASSERT_FATAL(len > 0);
		CU_ASSERT_EQUAL(kvr_body_check(kinds[i], m, n, NULL), 0);
		m->timeout_s = 8;
		CU_ASSERT_EQUAL(kvr_body_check(kinds[i], m, n, NULL), i == 0 ? 0 : KVR_E_FLAGS);
	}
}

/* However a message was cut, and whichever way its bytes are read, its digest is one; of what
 * differs in one byte it is another. */
static void a_digest_does_not_depend_on_the_cut(void)
{
	static uint8_t whole[sizeof(struct kvr_wire_request) + 2100];
	const uint32_t head = sizeof(struct kvr_wire_request);

	for (uint32_t i = 0; i < sizeof(whole); i++)
		whole[i] = (uint8_t)(i * 131 + i / 256);
	for (uint32_t len = head; len <= sizeof(whole); len += len < head + 300 ? 1 : 97) {
		const struct kvr_slice one[] = {{whole, len}};
		const struct kvr_slice two[] = {
			{whole, head + (len - head) / 3},
			{whole + head + (len - head) / 3, len - head - (len - head) / 3}};
		const uint64_t digest = kvr_request_digest(one, 1);

		CU_ASSERT_EQUAL(kvr_request_digest(two, 2), digest);
		whole[len - 1] ^= 1;
		CU_ASSERT_NOT_EQUAL(kvr_request_digest(one, 1), digest);
		whole[len - 1] ^= 1;
	}
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"parts", parts_are_found_where_they_were_put},
		{"slices", slices_give_the_same_as_one_piece},
		{"padding", padding_is_seen_in_slices_too},
		{"wrap", sums_that_wrap_are_refused},
		{"short prompt", a_prompt_below_one_block_needs_neither_hashes_nor_tokens},
		{"largest", the_largest_request_is_taken_and_no_larger},
		{"dispatch", a_dispatch_carries_what_a_route_may_not},
		{"session end", only_an_open_has_a_timeout},
		{"digest", a_digest_does_not_depend_on_the_cut},
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("request", tests);
}
