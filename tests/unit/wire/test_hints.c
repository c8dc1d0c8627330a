/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_hints.h"
#include "kvr_test.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint8_t bytes[KVR_WIRE_MAX_HINTS + 8];
static struct kvr_hint_buf buf;
static struct kvr_hint_lists lists;
static struct kvr_hints got;

static void begin(void)
{
	memset(bytes, 0xee, sizeof(bytes));
	buf = (struct kvr_hint_buf){.p = bytes, .cap = sizeof(bytes)};
}

static int parse(enum kvr_hints_in in)
{
	CU_ASSERT_EQUAL_FATAL(buf.err, 0);
	return kvr_hints_parse(bytes, buf.len, in, &got, &lists);
}

static bool is(struct kvr_str s, const char *want)
{
	return s.len == strlen(want) && memcmp(s.p, want, s.len) == 0;
}

static void every_request_hint_comes_out_as_it_went_in(void)
{
	const uint64_t allowed[2] = {5, UINT64_MAX}, mm[2] = {9, 8};
	const uint32_t ranks[2] = {7, UINT32_MAX};
	struct kvr_tlv_iter it;
	struct kvr_mm m;

	begin();
	kvr_hint_put_str(&buf, KVR_HINT_LORA, "adapter");
	kvr_hint_put_str(&buf, KVR_HINT_NAMESPACE, "tenant");
	kvr_hint_put_u64(&buf, KVR_HINT_BACKEND, 1);
	kvr_hint_put_u64(&buf, KVR_HINT_PREFILL_WORKER, 2);
	kvr_hint_put_u64(&buf, KVR_HINT_DECODE_WORKER, 3);
	kvr_hint_put_u32(&buf, KVR_HINT_DP_RANK, 4);
	kvr_hint_put_u32(&buf, KVR_HINT_PREFILL_DP_RANK, 5);
	kvr_hint_put_allowed(&buf, allowed, 2);
	kvr_hint_put_str(&buf, KVR_HINT_REQUIRED_TAINT, "a");
	kvr_hint_put_str(&buf, KVR_HINT_REQUIRED_TAINT, "b");
	kvr_hint_put_preferred(&buf, -1.5, "c");
	kvr_hint_put_f64(&buf, KVR_HINT_PRIORITY_JUMP, 2.5);
	kvr_hint_put_u32(&buf, KVR_HINT_STRICT_PRIORITY, 6);
	kvr_hint_put_u32(&buf, KVR_HINT_PRIORITY, (uint32_t)-7);
	kvr_hint_put_str(&buf, KVR_HINT_POLICY_CLASS, "batch");
	kvr_hint_put_override(&buf, KVR_OVERRIDE_PREFILL_LOAD_SCALE, 0.75);
	kvr_hint_put_override(&buf, KVR_OVERRIDE_TRACK_PREFILL_TOKENS, 0.0);
	kvr_hint_put_session(&buf, KVR_ACTION_CLOSE, KVR_NONE32, "s\xc3\xa9ssion");
	kvr_hint_put_mm(&buf, 3, mm, 2);
	kvr_hint_put_mm(&buf, 4, NULL, 0);
	kvr_hint_put_shared(&buf, 0, 4);
	kvr_hint_put_shared(&buf, 4, 9);
	kvr_hint_put_ranks(&buf, KVR_HINT_FAILED_AT, allowed, ranks, 2);
	kvr_hint_put(&buf, KVR_HINT_TRACE, "t\0r", 3, NULL, 0);
	CU_ASSERT_EQUAL_FATAL(parse(KVR_HINTS_ROUTE), 0);
	CU_ASSERT(is(got.lora, "adapter") && is(got.cache_namespace, "tenant") &&
		  is(got.policy, "batch"));
	CU_ASSERT(got.backend_worker == 1 && got.prefill_worker == 2 && got.decode_worker == 3);
	CU_ASSERT(got.dp_rank == 4 && got.prefill_dp_rank == 5);
	CU_ASSERT(got.n_allowed == 2 && kvr_hints_allowed(&got, 1) == UINT64_MAX);
	CU_ASSERT(kvr_hints_allows(&got, 5) && !kvr_hints_allows(&got, 6));
	CU_ASSERT(got.n_required == 2 && is(got.required[1], "b"));
	CU_ASSERT(got.n_preferred == 1 && is(got.preferred[0].taint, "c"));
	CU_ASSERT_EQUAL(got.preferred[0].weight, -1.5);
	CU_ASSERT_EQUAL(got.priority_jump, 2.5);
	CU_ASSERT(got.strict_priority == 6 && got.priority == -7);
	CU_ASSERT_EQUAL(got.overrides.given, 1u << KVR_OVERRIDE_PREFILL_LOAD_SCALE |
						     1u << KVR_OVERRIDE_TRACK_PREFILL_TOKENS);
	CU_ASSERT_EQUAL(got.overrides.value[KVR_OVERRIDE_PREFILL_LOAD_SCALE], 0.75);
	CU_ASSERT(got.session.action == KVR_ACTION_CLOSE && got.session.timeout_s == 300);
	CU_ASSERT(is(got.session.id, "s\xc3\xa9ssion"));
	CU_ASSERT(got.n_shared == 2 && got.shared[1].start == 4 && got.shared[1].end == 9);
	CU_ASSERT(got.n_failed_at == 2 && got.failed_at[0].worker == 5);
	CU_ASSERT_EQUAL(got.failed_at[0].dp_rank, 7);
	CU_ASSERT_EQUAL(got.failed_at[1].worker, UINT64_MAX);
	CU_ASSERT_EQUAL(got.failed_at[1].dp_rank, UINT32_MAX);
	CU_ASSERT_EQUAL(got.trace.len, 3);
	CU_ASSERT_EQUAL(got.n_mm, 2);
	it = kvr_tlv_begin(got.tlvs, got.tlvs_len);
	CU_ASSERT(kvr_mm_next(&it, &m) && m.block == 3 && m.n == 2 &&
		  memcmp(m.hashes, mm, 16) == 0);
	CU_ASSERT(kvr_mm_next(&it, &m) && m.block == 4 && m.n == 0);
	CU_ASSERT(!kvr_mm_next(&it, &m));
	CU_ASSERT_EQUAL(got.present & KVR_HAS(KVR_HINT_BOOTSTRAP), 0);
	CU_ASSERT_NOT_EQUAL(got.present & KVR_HAS(KVR_HINT_SESSION), 0);
}

static void nothing_said_allows_everybody_and_an_empty_list_nobody(void)
{
	begin();
	CU_ASSERT_EQUAL(parse(KVR_HINTS_ROUTE), 0);
	CU_ASSERT(got.present == 0 && kvr_hints_allows(&got, 1));
	kvr_hint_put_allowed(&buf, NULL, 0);
	CU_ASSERT_EQUAL(parse(KVR_HINTS_ROUTE), 0);
	CU_ASSERT(!kvr_hints_allows(&got, 1));
}

static void worker_hints_are_read_in_hello_only(void)
{
	begin();
	kvr_hint_put_str(&buf, KVR_HINT_POOL, "llama");
	kvr_hint_put_str(&buf, KVR_HINT_TAINT, "gpu");
	kvr_hint_put_str(&buf, KVR_HINT_TOPOLOGY, "zone=a");
	kvr_hint_put_kv_transfer(&buf, 2, 0.5, "rack");
	kvr_hint_put_bootstrap_addr(&buf, 8998, "10.0.0.1");
	CU_ASSERT_EQUAL_FATAL(parse(KVR_HINTS_HELLO), 0);
	CU_ASSERT(got.n_pools == 1 && is(got.pools[0], "llama"));
	CU_ASSERT(got.n_taints == 1 && is(got.taints[0], "gpu"));
	CU_ASSERT(got.n_topology == 1 && is(got.topology[0], "zone=a"));
	CU_ASSERT(got.kv_transfer.enforcement == 2 && is(got.kv_transfer.domain, "rack"));
	CU_ASSERT(got.bootstrap_addr.port == 8998 && is(got.bootstrap_addr.host, "10.0.0.1"));
	CU_ASSERT_EQUAL(parse(KVR_HINTS_ROUTE), KVR_E_HINT); /* POOL is critical, unknown there */
	begin();
	kvr_hint_put_str(&buf, KVR_HINT_TAINT, "gpu");
	CU_ASSERT_EQUAL(parse(KVR_HINTS_ROUTE), 0); /* not critical: skipped */
	CU_ASSERT_EQUAL(got.present & KVR_HAS(KVR_HINT_TAINT), 0);
}

static void the_routers_hints_are_refused_in_a_route(void)
{
	begin();
	kvr_hint_put_bootstrap(&buf, 7, 1, "h");
	CU_ASSERT_EQUAL(parse(KVR_HINTS_ROUTE), KVR_E_HINT);
	CU_ASSERT_EQUAL(parse(KVR_HINTS_DISPATCH), 0);
	CU_ASSERT(got.bootstrap.room == 7 && got.bootstrap.port == 1);
	begin();
	kvr_hint_put(&buf, KVR_HINT_PREFILL_RESULT, "x", 1, NULL, 0);
	CU_ASSERT_EQUAL(parse(KVR_HINTS_ROUTE), KVR_E_HINT);
	CU_ASSERT_EQUAL(parse(KVR_HINTS_DISPATCH), 0);
}

static void unknown_hints_are_skipped_unless_critical(void)
{
	begin();
	kvr_hint_put_u32(&buf, 0x1234, 1);
	kvr_hint_put_str(&buf, KVR_HINT_LORA, "a");
	CU_ASSERT_EQUAL(parse(KVR_HINTS_ROUTE), 0);
	CU_ASSERT(is(got.lora, "a"));
	kvr_hint_put_u32(&buf, 0x9234, 1);
	CU_ASSERT_EQUAL(parse(KVR_HINTS_ROUTE), KVR_E_HINT);
}

/* Each row: one TLV with this type and value; the code in a ROUTE. */
static void bad_values_are_refused(void)
{
	static const char too_many[80];
	static const struct {
		uint16_t type;
		uint16_t len;
		const char *value;
	} bad[] = {
		{KVR_HINT_LORA, 1, "\x1f"},
		{KVR_HINT_LORA, 1, "\x80"},
		{KVR_HINT_LORA, 2, "\xc0\x80"},
		{KVR_HINT_LORA, 3, "\xe0\x9f\x80"},
		{KVR_HINT_LORA, 3, "\xed\xa0\x80"},
		{KVR_HINT_LORA, 4, "\xf4\x90\x80\x80"},
		{KVR_HINT_LORA, 2, "\xe2\x82"},
		{KVR_HINT_LORA, 4, "\xf0\x8f\x80\x80"},
		{KVR_HINT_LORA, 1, "\x7f"},
		{KVR_HINT_LORA, 2, "\xc3\x28"},
		{KVR_HINT_BACKEND, 7, "1234567"},
		{KVR_HINT_DP_RANK, 8, "12345678"},
		{KVR_HINT_ALLOWED_WORKERS, 7, "1234567"},
		{KVR_HINT_REQUIRED_TAINT, 0, ""},
		{KVR_HINT_PREFERRED_TAINT, 8, "12345678"},
		{KVR_HINT_PREFERRED_TAINT, 7, "1234567"},
		{KVR_HINT_PRIORITY_JUMP, 4, "1234"},
		{KVR_HINT_POLICY_CLASS, 0, ""},
		{KVR_HINT_SESSION, 7, "\1\0\0\0\1\0\0"},
		{KVR_HINT_SESSION, 9, "\1\1\0\0\1\0\0\0a"},
		{KVR_HINT_MM, 7, "\0\0\0\0\0\0\0"},
		{KVR_HINT_MM, 8, "\0\0\0\0\1\0\0\0"},
		{KVR_HINT_MM, 16, "\0\0\0\0\0\0\0\x20zzzzzzzz"},
		{KVR_HINT_SHARED_HITS, 8, "\4\0\0\0\4\0\0\0"},
		{KVR_HINT_SHARED_HITS, 4, "\4\0\0\0"},
		{KVR_HINT_FAILED_AT, 0, ""},
		{KVR_HINT_FAILED_AT, 15, "123456789012\0\0\0"},
		{KVR_HINT_FAILED_AT, 16, "123456789012\0\0\0\1"},
		{KVR_HINT_FAILED_AT, 24, "123456789012\0\0\0\0abcdefgh"},
		{KVR_HINT_FAILED_AT, 80, too_many},
		{KVR_HINT_OVERRIDE, 15, "\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0"},
		{KVR_HINT_OVERRIDE, 16, "\2\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0"},
	};

	for (uint32_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		begin();
		kvr_hint_put(&buf, bad[i].type, bad[i].value, bad[i].len, NULL, 0);
		if (parse(KVR_HINTS_ROUTE) != KVR_E_HINT)
			fprintf(stderr, "row %u\n", i);
		CU_ASSERT_EQUAL(parse(KVR_HINTS_ROUTE), KVR_E_HINT);
	}
}

static void overrides_out_of_range_have_their_own_code(void)
{
	static const struct {
		uint32_t field;
		double value;
		int code;
	} rows[] = {
		{0, 1, KVR_E_INVALID_OVERRIDE},
		{8, 1, KVR_E_INVALID_OVERRIDE},
		{UINT32_MAX, 1, KVR_E_INVALID_OVERRIDE},
		{KVR_OVERRIDE_ROUTER_TEMPERATURE, -0.1, KVR_E_INVALID_OVERRIDE},
		{KVR_OVERRIDE_ROUTER_TEMPERATURE, (double)NAN, KVR_E_INVALID_OVERRIDE},
		{KVR_OVERRIDE_ROUTER_TEMPERATURE, (double)INFINITY, KVR_E_INVALID_OVERRIDE},
		{KVR_OVERRIDE_ROUTER_TEMPERATURE, 100, 0},
		{KVR_OVERRIDE_ASSUME_KV_REUSE, 0.5, KVR_E_INVALID_OVERRIDE},
		{KVR_OVERRIDE_ASSUME_KV_REUSE, 1, 0},
		{KVR_OVERRIDE_SHARED_CACHE_MULTIPLIER, 1.01, KVR_E_INVALID_OVERRIDE},
		{KVR_OVERRIDE_SHARED_CACHE_MULTIPLIER, 1, 0},
		{KVR_OVERRIDE_OVERLAP_SCORE_CREDIT, 1.5, 0},
	};

	for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		begin();
		kvr_hint_put_override(&buf, rows[i].field, rows[i].value);
		CU_ASSERT_EQUAL(parse(KVR_HINTS_ROUTE), rows[i].code);
	}
	begin();
	kvr_hint_put_override(&buf, 2, 1);
	kvr_hint_put_override(&buf, 2, 1);
	CU_ASSERT_EQUAL(parse(KVR_HINTS_ROUTE), KVR_E_INVALID_OVERRIDE);
}

static void weights_that_are_no_numbers_have_their_own_code(void)
{
	const double bad[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};

	for (uint32_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		begin();
		kvr_hint_put_preferred(&buf, bad[i], "zone");
		CU_ASSERT_EQUAL(parse(KVR_HINTS_ROUTE), KVR_E_INVALID_WEIGHT);
		begin();
		kvr_hint_put_f64(&buf, KVR_HINT_PRIORITY_JUMP, bad[i]);
		CU_ASSERT_EQUAL(parse(KVR_HINTS_ROUTE), KVR_E_INVALID_WEIGHT);
		begin();
		kvr_hint_put_kv_transfer(&buf, 1, bad[i], "zone");
		CU_ASSERT_EQUAL(parse(KVR_HINTS_HELLO), KVR_E_INVALID_WEIGHT);
	}
	begin();
	kvr_hint_put_preferred(&buf, -1e300, "zone"); /* repels */
	CU_ASSERT_EQUAL(parse(KVR_HINTS_ROUTE), 0);
	CU_ASSERT_EQUAL(got.preferred[0].weight, -1e300);
}

static int parse_session(uint8_t action, uint32_t timeout_s, const char *id)
{
	begin();
	kvr_hint_put_session(&buf, action, timeout_s, id);
	return parse(KVR_HINTS_ROUTE);
}

static void sessions_out_of_range_have_their_own_code(void)
{
	static char longest[KVR_HINT_MAX_SESSION + 2];

	memset(longest, 'a', KVR_HINT_MAX_SESSION);
	CU_ASSERT_EQUAL(parse_session(KVR_ACTION_NONE, 1, "a"), 0);
	CU_ASSERT(got.session.action == KVR_ACTION_NONE && got.session.timeout_s == 1);
	CU_ASSERT_EQUAL(parse_session(KVR_ACTION_OPEN, KVR_WIRE_SESSION_MAX_S, longest), 0);
	CU_ASSERT_EQUAL(got.session.timeout_s, 31536000);
	CU_ASSERT_EQUAL(got.session.id.len, 256);
	CU_ASSERT_EQUAL(parse_session(3, 1, "a"), KVR_E_INVALID_SESSION);
	CU_ASSERT_EQUAL(parse_session(KVR_ACTION_NONE, 0, "a"), KVR_E_INVALID_SESSION);
	CU_ASSERT_EQUAL(parse_session(KVR_ACTION_OPEN, KVR_WIRE_SESSION_MAX_S + 1, "a"),
			KVR_E_INVALID_SESSION);
	CU_ASSERT_EQUAL(parse_session(KVR_ACTION_OPEN, KVR_NONE32 - 1, "a"), KVR_E_INVALID_SESSION);
	CU_ASSERT_EQUAL(parse_session(KVR_ACTION_OPEN, 1, ""), KVR_E_INVALID_SESSION);
	CU_ASSERT_EQUAL(parse_session(KVR_ACTION_OPEN, 1, "a\nb"), KVR_E_INVALID_SESSION);
	longest[KVR_HINT_MAX_SESSION] = 'a';
	CU_ASSERT_EQUAL(parse_session(KVR_ACTION_CLOSE, 1, longest), KVR_E_INVALID_SESSION);
	CU_ASSERT(kvr_session_id_ok(longest, 256) && !kvr_session_id_ok(longest, 257));
	CU_ASSERT(!kvr_session_id_ok(longest, 0));
}

static void repeats_order_and_counts_are_checked(void)
{
	static const uint64_t many[KVR_HINT_MAX_MM + 1];

	begin();
	kvr_hint_put_u64(&buf, KVR_HINT_BACKEND, 1);
	kvr_hint_put_u64(&buf, KVR_HINT_BACKEND, 1);
	CU_ASSERT_EQUAL(parse(KVR_HINTS_ROUTE), KVR_E_HINT);
	begin();
	kvr_hint_put_mm(&buf, 3, NULL, 0);
	kvr_hint_put_mm(&buf, 3, NULL, 0);
	CU_ASSERT_EQUAL(parse(KVR_HINTS_ROUTE), KVR_E_HINT);
	begin();
	kvr_hint_put_mm(&buf, 3, many, KVR_HINT_MAX_MM);
	CU_ASSERT_EQUAL(parse(KVR_HINTS_ROUTE), 0);
	kvr_hint_put_mm(&buf, 4, many, KVR_HINT_MAX_MM + 1);
	CU_ASSERT_EQUAL(parse(KVR_HINTS_ROUTE), KVR_E_HINT);
	begin();
	kvr_hint_put_shared(&buf, 2, 5);
	kvr_hint_put_shared(&buf, 4, 6);
	CU_ASSERT_EQUAL(parse(KVR_HINTS_ROUTE), KVR_E_HINT);
	begin();
	for (uint32_t i = 0; i < KVR_HINTS_MAX_TAINTS; i++)
		kvr_hint_put_str(&buf, KVR_HINT_REQUIRED_TAINT, "t");
	CU_ASSERT_EQUAL(parse(KVR_HINTS_ROUTE), 0);
	kvr_hint_put_str(&buf, KVR_HINT_REQUIRED_TAINT, "t");
	CU_ASSERT_EQUAL(parse(KVR_HINTS_ROUTE), KVR_E_HINT);
}

static void framing_is_checked(void)
{
	static const uint8_t odd[12] = {1, 0, 7, 0, 'a'}; /* 11 bytes, padded to 16, of 12 */
	struct kvr_tlv_iter it = kvr_tlv_begin(odd, sizeof(odd));
	struct kvr_tlv t;

	CU_ASSERT_EQUAL(kvr_tlv_next(&it, &t), -EBADMSG);
	it = kvr_tlv_begin(odd, 3);
	CU_ASSERT_EQUAL(kvr_tlv_next(&it, &t), -EBADMSG);
	begin();
	kvr_hint_put_str(&buf, KVR_HINT_LORA, "abc");
	bytes[7] = 1; /* padding */
	CU_ASSERT_EQUAL(parse(KVR_HINTS_ROUTE), KVR_E_HINT);
	bytes[7] = 0;
	CU_ASSERT_EQUAL(parse(KVR_HINTS_ROUTE), 0);
	bytes[2] = 5; /* one byte too many */
	CU_ASSERT_EQUAL(parse(KVR_HINTS_ROUTE), KVR_E_HINT);
	CU_ASSERT_EQUAL(kvr_hints_parse(bytes, 4, KVR_HINTS_ROUTE, &got, &lists), KVR_E_HINT);
	CU_ASSERT_EQUAL(
		kvr_hints_parse(bytes, KVR_WIRE_MAX_HINTS + 8, KVR_HINTS_ROUTE, &got, &lists),
		KVR_E_TOO_LARGE);
}

static void the_writer_stops_at_its_end(void)
{
	static const char long_text[UINT16_MAX + 2] = {0};
	uint8_t small[16];
	struct kvr_hint_buf b = {.p = small, .cap = sizeof(small)};

	kvr_hint_put_str(&b, KVR_HINT_LORA, "abcd");
	CU_ASSERT(b.err == 0 && b.len == 8);
	kvr_hint_put_u64(&b, KVR_HINT_BACKEND, 1);
	CU_ASSERT(b.err == -EMSGSIZE && b.len == 8);
	kvr_hint_put_u32(&b, KVR_HINT_DP_RANK, 1); /* would fit, but the error stays */
	CU_ASSERT(b.err == -EMSGSIZE && b.len == 8);
	b = (struct kvr_hint_buf){.p = bytes, .cap = sizeof(bytes)};
	kvr_hint_put(&b, KVR_HINT_TRACE, long_text, UINT16_MAX + 1u, NULL, 0);
	CU_ASSERT_EQUAL(b.err, -EINVAL);
}

static void rewriting_keeps_all_but_what_is_dropped(void)
{
	static const uint16_t drop[] = {KVR_HINT_PREFILL_WORKER, KVR_HINT_BOOTSTRAP};
	uint8_t made[128];
	struct kvr_hint_buf out = {.p = made, .cap = sizeof(made)};

	begin();
	kvr_hint_put_str(&buf, KVR_HINT_LORA, "adapter");
	kvr_hint_put_u64(&buf, KVR_HINT_PREFILL_WORKER, 2);
	kvr_hint_put(&buf, KVR_HINT_PAD, "xyz", 3, NULL, 0);
	kvr_hint_put_str(&buf, KVR_HINT_REQUIRED_TAINT, "a");
	kvr_hint_put_u32(&buf, 0x1234, 7); /* unknown ones go along */
	kvr_hint_put_u64(&buf, 0x0004, 9); /* without CRITICAL it is another type */
	kvr_hint_put_str(&buf, KVR_HINT_REQUIRED_TAINT, "b");
	CU_ASSERT_EQUAL(kvr_hints_rewrite(bytes, buf.len, drop, 2, &out), 0);
	CU_ASSERT_EQUAL(out.len, buf.len - 16 - 8);
	kvr_hint_put_u64(&out, KVR_HINT_PREFILL_WORKER, 3);
	CU_ASSERT_EQUAL(kvr_hints_parse(made, out.len, KVR_HINTS_DISPATCH, &got, &lists), 0);
	CU_ASSERT(got.prefill_worker == 3 && is(got.lora, "adapter") && got.n_required == 2);
	CU_ASSERT(is(got.required[0], "a") && is(got.required[1], "b"));
	/* nothing in, nothing dropped, nothing before */
	CU_ASSERT_EQUAL(kvr_hints_rewrite(NULL, 0, NULL, 0, &out), 0);
	out = (struct kvr_hint_buf){.p = made, .cap = sizeof(made)};
	CU_ASSERT_EQUAL(kvr_hints_rewrite(bytes, buf.len, NULL, 0, &out), 0);
	CU_ASSERT_EQUAL(out.len, buf.len - 8);
}

/* Every length of the input and of the room, at the very end of the memory: no byte is read or
 * written outside, and what could not be copied is told. */
static void rewriting_is_safe_with_any_bytes(void)
{
	uint8_t guarded[72];
	struct kvr_hint_buf out;

	begin();
	kvr_hint_put_str(&buf, KVR_HINT_LORA, "abc");
	kvr_hint_put_u64(&buf, KVR_HINT_BACKEND, 1);
	kvr_hint_put_str(&buf, KVR_HINT_TRACE, "0123456789");
	CU_ASSERT_EQUAL(buf.len, 40);
	for (uint32_t n = 0; n <= 40; n++) {
		uint8_t *in = malloc(n + (n == 0));

		memcpy(in, bytes, n);
		out = (struct kvr_hint_buf){.p = guarded, .cap = sizeof(guarded)};
		CU_ASSERT_EQUAL(kvr_hints_rewrite(in, n, NULL, 0, &out),
				n == 0 || n == 8 || n == 24 || n == 40 ? 0 : -EBADMSG);
		free(in);
	}
	for (uint32_t cap = 0; cap < 48; cap++) {
		memset(guarded, 0xee, sizeof(guarded));
		out = (struct kvr_hint_buf){.p = guarded, .cap = cap};
		CU_ASSERT_EQUAL(kvr_hints_rewrite(bytes, 40, NULL, 0, &out),
				cap < 40 ? -EMSGSIZE : 0);
		CU_ASSERT(out.len <= cap);
		for (uint32_t i = cap; i < sizeof(guarded); i++)
			CU_ASSERT_EQUAL(guarded[i], 0xee);
	}
	CU_ASSERT_EQUAL(memcmp(guarded, bytes, 40), 0);
	/* a length that leaves the bytes, padding that is not zero, an error that was there before
	 */
	memcpy(guarded, bytes, 40);
	guarded[2] = 0xff;
	guarded[3] = 0xff;
	out = (struct kvr_hint_buf){.p = bytes, .cap = sizeof(bytes)};
	CU_ASSERT_EQUAL(kvr_hints_rewrite(guarded, 40, NULL, 0, &out), -EBADMSG);
	guarded[2] = 2;
	guarded[3] = 0;
	CU_ASSERT_EQUAL(kvr_hints_rewrite(guarded, 40, NULL, 0, &out), -EBADMSG);
	out.err = -EINVAL;
	CU_ASSERT_EQUAL(kvr_hints_rewrite(guarded, 0, NULL, 0, &out), -EINVAL);
	CU_ASSERT_EQUAL(out.len, 0);
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"round trip", every_request_hint_comes_out_as_it_went_in},
		{"allowed", nothing_said_allows_everybody_and_an_empty_list_nobody},
		{"hello", worker_hints_are_read_in_hello_only},
		{"router's", the_routers_hints_are_refused_in_a_route},
		{"unknown", unknown_hints_are_skipped_unless_critical},
		{"bad values", bad_values_are_refused},
		{"overrides", overrides_out_of_range_have_their_own_code},
		{"weights", weights_that_are_no_numbers_have_their_own_code},
		{"sessions", sessions_out_of_range_have_their_own_code},
		{"repeats", repeats_order_and_counts_are_checked},
		{"framing", framing_is_checked},
		{"writer", the_writer_stops_at_its_end},
		{"rewrite", rewriting_keeps_all_but_what_is_dropped},
		{"hostile rewrite", rewriting_is_safe_with_any_bytes},
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("hints", tests);
}
