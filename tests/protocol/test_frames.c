/* SPDX-License-Identifier: BSD-3-Clause */
/* Every kind, one table of behaviours: valid, truncated, wrong, hostile. */
#include "samples.h"

#include "kvr_test.h"

#include <string.h>

static struct sample samples[SAMPLES_MAX];
static uint32_t n_samples;

static int check_sample(const struct sample *s)
{
	static uint8_t body[KVR_WIRE_MAX_FRAME * SAMPLE_FRAMES_MAX];
	uint32_t len = 0;

	for (uint32_t i = 0; i < s->n_frames; i++) {
		const int r = kvr_frame_check(s->frame[i], s->len[i], s->receiver);

		if (r != 0)
			return r;
		memcpy(body + len, s->frame[i] + 48, s->len[i] - 48);
		len += s->len[i] - 48;
	}
	return kvr_body_check(s->kind, body, len, NULL);
}

static void valid_message_of_every_kind_passes(void)
{
	bool seen[256] = {false};

	for (uint32_t i = 0; i < n_samples; i++) {
		const int r = check_sample(&samples[i]);

		if (r != 0)
			fprintf(stderr, "%s: %s\n", samples[i].name,
				kvr_code_name((unsigned int)r));
		CU_ASSERT_EQUAL(r, 0);
		seen[samples[i].kind] = true;
	}
	for (unsigned int k = 0; k < 256; k++)
		CU_ASSERT_EQUAL(seen[k], kvr_kind_info((uint8_t)k) != NULL);
}

/* Every shorter payload: short, or a length that disagrees; never accepted, never answered wrongly.
 */
static void truncated_at_every_byte_is_refused(void)
{
	for (uint32_t i = 0; i < n_samples; i++) {
		const struct sample *s = &samples[i];

		for (uint32_t f = 0; f < s->n_frames; f++)
			for (uint32_t len = 0; len < s->len[f]; len++) {
				const int r = kvr_frame_check(s->frame[f], len, s->receiver);

				CU_ASSERT_EQUAL(r, len < 48 ? KVR_FRAME_SHORT : KVR_E_LENGTH);
			}
	}
}

/* A PROBE may be empty, and a REJECTED end before its details. */
static bool may_be_short(uint8_t kind, uint32_t len)
{
	return (kind == KVR_PROBE && len == 0) ||
	       (kind == KVR_REJECTED && len == KVR_WIRE_REJECTED_LEAST);
}

/* The header tells of a shorter body and the payload agrees: the inner lengths must not. */
static void body_cut_at_every_word_is_refused(void)
{
	for (uint32_t i = 0; i < n_samples; i++) {
		const struct sample *s = &samples[i];
		const uint32_t whole = s->len[0] - 48;

		if (s->n_frames > 1)
			continue;
		for (uint32_t len = 0; len < whole; len += 8)
			if (!may_be_short(s->kind, len))
				CU_ASSERT_NOT_EQUAL(
					kvr_body_check(s->kind, s->frame[0] + 48, len, NULL), 0);
	}
}

static void body_with_more_behind_it_is_refused(void)
{
	static uint8_t buf[SAMPLE_FRAME + 8];

	for (uint32_t i = 0; i < n_samples; i++) {
		const struct sample *s = &samples[i];

		if (s->n_frames > 1)
			continue;
		memset(buf, 0, sizeof(buf));
		memcpy(buf, s->frame[0], s->len[0]);
		if (!may_be_short(s->kind, s->len[0] - 48))
			CU_ASSERT_NOT_EQUAL(
				kvr_body_check(s->kind, buf + 48, s->len[0] - 48 + 8, NULL), 0);
	}
}

static int check_patched(const struct sample *s, uint32_t at, const void *bytes, uint32_t n)
{
	static uint8_t buf[SAMPLE_FRAME];

	memcpy(buf, s->frame[0], s->len[0]);
	memcpy(buf + at, bytes, n);
	return kvr_frame_check(buf, s->len[0], s->receiver);
}

static void wrong_header_fields_have_their_own_code(void)
{
	static const struct {
		uint32_t at;
		uint32_t n;
		uint32_t value;
		int code;
	} bad[] = {
		{0, 2, 0x4b56, KVR_FRAME_BAD_MAGIC}, /* byte order wrong */
		{0, 2, 0, KVR_FRAME_BAD_MAGIC},
		{2, 1, 0, KVR_E_VERSION},
		{2, 1, 2, KVR_E_VERSION},
		{3, 1, 0, KVR_E_KIND},
		{3, 1, 3, KVR_E_KIND},
		{3, 1, 255, KVR_E_KIND},
		{4, 2, 1, KVR_E_FLAGS},
		{4, 2, 0x8000, KVR_E_FLAGS},
		{6, 2, 4, KVR_E_LENGTH},
		{6, 2, 0xfff8, KVR_E_LENGTH},
		{32, 4, 0xffffffff, KVR_E_LENGTH}, /* not a multiple of 8 */
		{36, 4, 8, KVR_E_FRAGMENT},
		{36, 4, 0xfffffff8, KVR_E_FRAGMENT},
	};

	for (uint32_t i = 0; i < n_samples; i++)
		for (uint32_t b = 0; b < sizeof(bad) / sizeof(bad[0]); b++)
			CU_ASSERT_EQUAL(
				check_patched(&samples[i], bad[b].at, &bad[b].value, bad[b].n),
				bad[b].code);
}

static void only_the_receivers_of_a_kind_take_it(void)
{
	static const uint8_t roles[] = {KVR_ROLE_BIT_CLIENT, KVR_ROLE_BIT_AGENT,
					KVR_ROLE_BIT_ROUTER};

	for (uint32_t i = 0; i < n_samples; i++)
		for (uint32_t k = 0; k < 3; k++) {
			const struct sample *s = &samples[i];
			const bool to = (kvr_kind_info(s->kind)->to & roles[k]) != 0;

			CU_ASSERT_EQUAL(kvr_frame_check(s->frame[0], s->len[0], roles[k]),
					to ? 0 : KVR_E_KIND);
		}
}

static void hostile_message_lengths_are_refused(void)
{
	for (uint32_t i = 0; i < n_samples; i++) {
		const struct sample *s = &samples[i];
		const struct kvr_kind_info *k = kvr_kind_info(s->kind);
		const uint32_t huge = 0xfffffff8, above = k->max_body + 8;
		uint32_t below = (k->min_body - 8) & ~7u;

		CU_ASSERT_EQUAL(check_patched(s, 32, &huge, 4), KVR_E_TOO_LARGE);
		CU_ASSERT_EQUAL(check_patched(s, 32, &above, 4), KVR_E_TOO_LARGE);
		if (k->min_body > 0)
			CU_ASSERT_EQUAL(check_patched(s, 32, &below, 4), KVR_E_LENGTH);
	}
}

static void fragments_of_other_kinds_are_refused(void)
{
	for (uint32_t i = 0; i < n_samples; i++) {
		const struct sample *s = &samples[i];
		const struct kvr_kind_info *k = kvr_kind_info(s->kind);
		const uint32_t longer = s->len[0] - 48 + 8;

		if (longer > k->max_body || s->n_frames > 1)
			continue;
		/* below 512 bytes only the last fragment may be, and this is not the last */
		CU_ASSERT_EQUAL(check_patched(s, 32, &longer, 4), KVR_E_FRAGMENT);
	}
}

static void fragment_bounds_are_exact(void)
{
	static const struct {
		uint32_t msg_len, off, len;
		int code;
	} cases[] = {
		{1504, 0, 1000, 0},
		{1504, 1000, 504, 0},
		{1504, 0, 512, 0},
		{1504, 0, 504, KVR_E_FRAGMENT},	  /* too small */
		{1504, 1496, 8, 0},		  /* the last may be */
		{1504, 1496, 16, KVR_E_FRAGMENT}, /* leaves the message */
		{1504, 1000, 512, KVR_E_FRAGMENT},
		{1504, 1504, 0, KVR_E_FRAGMENT},   /* empty */
		{1504, 504, 1000, KVR_E_FRAGMENT}, /* no first fragment is that small */
		{1504, 1004, 496, KVR_E_FRAGMENT}, /* unaligned offset */
		{1504, 1512, 8, KVR_E_FRAGMENT},   /* begins behind the end */
		{1504, 0xfffffff8, 16, KVR_E_FRAGMENT},
		{1504, 0, 1508, KVR_E_LENGTH},
	};
	static uint8_t buf[2048];
	const struct kvr_wire_ids ids = {.source = 1};

	for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		kvr_hdr_put(buf, KVR_ROUTE, &ids, cases[i].msg_len, cases[i].off,
			    (uint16_t)cases[i].len);
		CU_ASSERT_EQUAL(kvr_frame_check(buf, 48 + cases[i].len, KVR_ROLE_BIT_ROUTER),
				cases[i].code);
	}
}

static void answers_are_never_answered(void)
{
	uint8_t hdr[48];
	const struct kvr_wire_ids ids = {0};
	uint32_t n = 0;

	for (unsigned int kind = 0; kind < 256; kind++) {
		const struct kvr_kind_info *k = kvr_kind_info((uint8_t)kind);

		kvr_hdr_put(hdr, (uint8_t)kind, &ids, 0, 0, 0);
		if (k == NULL) {
			CU_ASSERT(kvr_frame_answerable((struct kvr_wire_hdr *)hdr));
			continue;
		}
		/* what the router sends, and acknowledgements, cannot start an exchange of refusals
		 */
		if ((k->from & KVR_ROLE_BIT_ROUTER) != 0 && kind != KVR_RESPONSE)
			CU_ASSERT(!kvr_frame_answerable((struct kvr_wire_hdr *)hdr));
		if (strstr(k->name, "_ACK") != NULL)
			CU_ASSERT(!kvr_frame_answerable((struct kvr_wire_hdr *)hdr));
		n += kvr_frame_answerable((struct kvr_wire_hdr *)hdr);
	}
	CU_ASSERT_EQUAL(n, 12);
	kvr_hdr_put(hdr, KVR_REJECTED, &ids, 0, 0, 0);
	hdr[2] = 9; /* of another version, too */
	CU_ASSERT(!kvr_frame_answerable((struct kvr_wire_hdr *)hdr));
	kvr_hdr_put(hdr, KVR_ROUTE, &ids, 0, 0, 0);
	hdr[2] = 9;
	CU_ASSERT(kvr_frame_answerable((struct kvr_wire_hdr *)hdr));
}

/* Each row: a body byte of a sample, changed; the code that must come. */
static void reserved_bits_and_bad_values_are_refused(void)
{
	static const struct {
		const char *name;
		uint32_t at; /* in the body */
		uint8_t value;
		int code;
	} bad[] = {
		{"connect", 4, 0, KVR_E_INVALID_REQUEST}, /* max_frame 1280: see below */
		{"connect", 6, 1, KVR_E_FLAGS},
		{"connect", 0, 8, KVR_E_LENGTH},
		{"connect", 8, 3, KVR_E_HINT},
		{"connected", 0, 1, KVR_E_FLAGS},
		{"connected", 20, 1, KVR_E_INVALID_REQUEST}, /* fewer in total than listed */
		{"connected", 27, 1, KVR_E_INVALID_REQUEST}, /* more than a message may have */
		{"connected", 26, 0, KVR_E_INVALID_REQUEST}, /* not even an empty ROUTE */
		{"connected", 30, 1, KVR_E_INVALID_REQUEST},
		{"connected", 42, 3, KVR_E_INVALID_REQUEST},
		{"connected", 43, 4, KVR_E_FLAGS},
		{"connected", 54, 1, KVR_E_FLAGS},
		{"connected", 52, 64, KVR_E_INVALID_REQUEST},
		{"connected", 87, 1, KVR_E_FLAGS}, /* padding of the name */
		{"route-hashes", 2, 3, KVR_E_INVALID_REQUEST},
		{"route-hashes", 3, 1, KVR_E_FLAGS},
		{"route-hashes", 4, 0x10, KVR_E_FLAGS}, /* a leg is the router's word */
		{"route-hashes", 7, 0x80, KVR_E_FLAGS},
		{"route-hashes", 8, 0, KVR_E_EMPTY_PROMPT},
		{"route-hashes", 8, 1, KVR_E_INVALID_REQUEST}, /* 2 hashes of 1 token */
		{"route-hashes", 11, 0x80, KVR_E_TOO_LARGE},
		{"route-hashes", 12, 3, KVR_E_LENGTH},
		{"route-hashes", 15, 0x80, KVR_E_TOO_LARGE},
		{"route-hashes", 19, 0x80, KVR_E_TOO_LARGE},
		{"route-hashes", 20, 4, KVR_E_LENGTH},
		{"route-hashes", 23, 0x80, KVR_E_TOO_LARGE},
		{"route-hashes", 27, 0x80, KVR_E_TOO_LARGE},
		{"route-hashes", 48, 1, KVR_E_FLAGS},
		{"route-hashes", 52, 1, KVR_E_FLAGS},
		{"route-hashes", 56, 1, KVR_E_FLAGS},
		{"route-hashes", 60, 1, KVR_E_FLAGS},
		{"route-hashes", 79, 1, KVR_E_FLAGS},
		{"route-hashes", 80, 1, KVR_E_FLAGS},
		{"route-hashes", 83, 0xff, KVR_E_INVALID_REQUEST}, /* client_frame */
		{"route-hashes", 84, 1, KVR_E_FLAGS},
		{"route-hashes", 109, 1, KVR_E_FLAGS}, /* padding of the body */
		{"route-tokens-query", 8, 6, KVR_E_INVALID_REQUEST},
		{"route-tokens-query", 108, 1, KVR_E_FLAGS}, /* padding of the tokens */
		{"dispatch", 4, 0x80, KVR_E_FLAGS},
		{"dispatch", 84, 1, KVR_E_FLAGS},
		{"dispatch-prefill", 4, 0x14, KVR_E_FLAGS}, /* its items are the router's */
		{"dispatch-prefill", 4, 0x30, KVR_E_FLAGS}, /* both legs */
		{"dispatch-decode", 4, 0x24, 0},	    /* DIRECT is fine here */
		{"accepted", 24, 4, KVR_E_INVALID_REQUEST},
		{"accepted", 26, 2, KVR_E_FLAGS},
		{"accepted-legs", 52, 4, KVR_E_INVALID_REQUEST}, /* path */
		{"accepted-legs", 54, 1, KVR_E_LENGTH},
		{"rejected", 2, 2, KVR_E_FLAGS},
		{"rejected", 4, 40, KVR_E_LENGTH},
		{"rejected", 5, 1, KVR_E_LENGTH},
		{"rejected", 63, 1, KVR_E_FLAGS},
		{"dispatch-ack", 2, 1, KVR_E_FLAGS},
		{"dispatch-ack", 7, 1, KVR_E_FLAGS},
		{"response-tokens", 4, 2, KVR_E_FLAGS}, /* ERROR without FIN */
		{"response-tokens", 4, 4, KVR_E_FLAGS},
		{"response-tokens", 5, 1, KVR_E_FLAGS},
		{"response-tokens", 12, 11, KVR_E_LENGTH}, /* not whole tokens */
		{"response-tokens", 12, 20, KVR_E_LENGTH},
		{"response-tokens", 15, 0x80, KVR_E_LENGTH},
		{"response-tokens", 20, 1, KVR_E_FLAGS},
		{"response-tokens", 24, 1, KVR_E_FLAGS},
		{"response-tokens", 47, 1, KVR_E_FLAGS},
		{"response-ack", 4, 2, KVR_E_FLAGS},
		{"progress", 4, 0x10, KVR_E_FLAGS},
		{"progress", 4, 0x04, KVR_E_FLAGS},
		{"progress-ack", 4, 1, KVR_E_FLAGS},
		{"abort", 2, 1, KVR_E_FLAGS},
		{"hello", 0, 0, KVR_E_INVALID_REQUEST},
		{"hello", 8, 0, KVR_E_INVALID_REQUEST},
		{"hello", 24, 8, KVR_E_LENGTH},
		{"hello", 30, 3, KVR_E_INVALID_REQUEST},
		{"hello", 31, 2, KVR_E_FLAGS},
		{"hello", 40, 1, KVR_E_FLAGS},
		{"hello", 49, 0, KVR_E_HINT}, /* the pool's type is no longer critical: no pool */
		{"welcome", 2, 2, KVR_E_FLAGS},
		{"welcome", 4, 0, KVR_E_INVALID_REQUEST},
		{"welcome", 16, 1, KVR_E_FLAGS},
		{"heartbeat", 0, 3, KVR_E_LENGTH},
		{"heartbeat", 3, 0x80, KVR_E_LENGTH},
		{"heartbeat", 4, 2, KVR_E_FLAGS},
		{"heartbeat-ack", 0, 0, KVR_E_INVALID_REQUEST},
		{"heartbeat-ack", 0, 7, KVR_E_INVALID_REQUEST},
		{"alive", 0, 1, KVR_E_LENGTH},
		{"alive", 0, 3, KVR_E_LENGTH},
		{"alive", 3, 0x80, KVR_E_LENGTH},
		{"alive", 4, 1, KVR_E_FLAGS},
		{"missing", 0, KVR_LOADS, KVR_E_INVALID_REQUEST},
		{"missing", 1, 1, KVR_E_FLAGS},
		{"missing", 2, 0, KVR_E_LENGTH},
		{"missing", 2, 2, KVR_E_LENGTH},
		{"missing", 8, 0x79, KVR_E_INVALID_REQUEST}, /* length of the message */
		{"missing", 9, 0, KVR_E_INVALID_REQUEST},    /* one that fits a frame */
		{"missing", 12, 0xb1, KVR_E_INVALID_REQUEST},
		{"missing", 13, 0, KVR_E_INVALID_REQUEST}, /* fragments too small */
		{"missing", 16, 8, KVR_E_INVALID_REQUEST},
		{"missing", 16, 64, KVR_E_INVALID_REQUEST}, /* behind the last */
		{"missing", 20, 1, KVR_E_FLAGS},
		{"missing", 24, 0x40, KVR_E_FLAGS}, /* number 6 of 6 */
		{"heartbeat-ack", 2, 1, KVR_E_FLAGS},
		{"kv-events", 8, 1, KVR_E_FLAGS},   /* resume id outside a dump's end */
		{"kv-events", 20, 0, KVR_E_LENGTH}, /* no events */
		{"kv-events", 20, 3, KVR_E_LENGTH},
		{"kv-events", 20, 5, KVR_E_LENGTH},
		{"kv-events", 22, 1, KVR_E_FLAGS}, /* DUMP_BEGIN without DUMP */
		{"kv-events", 22, 4, KVR_E_FLAGS},
		{"kv-events", 22, 8, KVR_E_FLAGS},
		{"kv-events", 24, 1, KVR_E_FLAGS},
		{"kv-events", 32, 0, KVR_E_INVALID_REQUEST},
		{"kv-events", 32, 4, KVR_E_INVALID_REQUEST},
		{"kv-events", 33, 4, KVR_E_INVALID_REQUEST},
		{"kv-events", 34, 2, KVR_E_FLAGS},
		{"kv-events", 36, 0, KVR_E_LENGTH},
		{"kv-events", 36, 11, KVR_E_LENGTH}, /* one more than there is */
		{"kv-events", 36, 200, KVR_E_LENGTH},
		{"kv-events", 39, 0xff, KVR_E_LENGTH},
		{"kv-events", 40, 1, KVR_E_FLAGS},	  /* a parent that is not there */
		{"kv-dump", 0, 1, KVR_E_INVALID_REQUEST}, /* begin is position 0 */
		{"kv-dump", 22, 6, KVR_E_INVALID_REQUEST},
		{"kv-dump", 32, 2, KVR_E_INVALID_REQUEST}, /* a dump only stores */
		{"kv-ack", 20, 5, KVR_E_INVALID_REQUEST},
		{"kv-ack", 22, 1, KVR_E_FLAGS},
		{"session-open", 3, 2, KVR_E_INVALID_SESSION}, /* timeout */
		{"session-open", 4, 0, KVR_E_LENGTH},
		{"session-open", 4, 9, KVR_E_LENGTH},
		{"session-open", 5, 2, KVR_E_LENGTH},
		{"session-open", 8, 0x1f, KVR_E_INVALID_SESSION}, /* the id is text */
		{"session-open", 15, 1, KVR_E_FLAGS},
		{"session-close", 0, 1, KVR_E_FLAGS}, /* no timeout is meant */
		{"session-close", 8, 0xff, KVR_E_INVALID_SESSION},
		{"session-release", 3, 1, KVR_E_FLAGS},
		{"session-release", 4, 9, KVR_E_LENGTH},
		{"session-release", 9, 0x7f, KVR_E_INVALID_SESSION},
		{"session-released", 4, 1, KVR_E_FLAGS},
		{"session-opened", 2, 1, KVR_E_FLAGS},
		{"loads", 0, 2, KVR_E_LENGTH},
		{"loads", 3, 0x80, KVR_E_LENGTH},
	};

	for (uint32_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const struct sample *s = samples_find(samples, n_samples, bad[i].name);
		uint8_t body[SAMPLE_FRAME];
		struct kvr_fault fault;
		int r;

		memcpy(body, s->frame[0] + 48, s->len[0] - 48);
		body[bad[i].at] = bad[i].value;
		if (i == 0) /* 0x0500 is fine; 0x0100 is not */
			body[5] = 1;
		r = kvr_body_check(s->kind, body, s->len[0] - 48, &fault);
		if (r != bad[i].code)
			fprintf(stderr, "%s byte %u: %s\n", bad[i].name, bad[i].at,
				kvr_code_name((unsigned int)r));
		CU_ASSERT_EQUAL(r, bad[i].code);
		if (r != 0)
			CU_ASSERT_PTR_NOT_NULL(fault.text);
	}
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(valid_message_of_every_kind_passes),
		KVR_CASE(truncated_at_every_byte_is_refused),
		KVR_CASE(body_cut_at_every_word_is_refused),
		KVR_CASE(body_with_more_behind_it_is_refused),
		KVR_CASE(wrong_header_fields_have_their_own_code),
		KVR_CASE(only_the_receivers_of_a_kind_take_it),
		KVR_CASE(hostile_message_lengths_are_refused),
		KVR_CASE(fragments_of_other_kinds_are_refused),
		KVR_CASE(fragment_bounds_are_exact),
		KVR_CASE(answers_are_never_answered),
		KVR_CASE(reserved_bits_and_bad_values_are_refused),
		CU_TEST_INFO_NULL,
	};

	n_samples = samples_make(samples);
	return kvr_test_run("frames", tests);
}
