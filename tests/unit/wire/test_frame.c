/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_frame.h"
#include "kvr_test.h"

#include <errno.h>
#include <string.h>

static const struct kvr_wire_ids ids = {
	.source = 0x0102030405060708, .id = 9, .handle = 10, .epoch = 11, .msg_seq = 12};

static void header_is_written_byte_by_byte_little_endian(void)
{
	static const uint8_t want[48] = {
		0x4b, 0x56, 1,	  16, 0,    0,	  0x68, 0x05, /* magic, version, kind, flags,
								 frag_len */
		8,    7,    6,	  5,  4,    3,	  2,	1,    9,
		0,    0,    0,	  0,  0,    0,	  0,	   /* source, id */
		10,   0,    0,	  0,  0,    0,	  0,	0, /* handle */
		0xd8, 0x01, 0x59, 0,  0x68, 0x05, 0,	0, /* msg_len, frag_off */
		11,   0,    0,	  0,  12,   0,	  0,	0, /* epoch, msg_seq */
	};
	uint8_t got[48];

	memset(got, 0xff, sizeof(got));
	kvr_hdr_put(got, KVR_ROUTE, &ids, 0x5901d8, 1384, 1384);
	CU_ASSERT_EQUAL(memcmp(got, want, sizeof(want)), 0);
}

static void fragments_cover_the_message_in_equal_parts(void)
{
	static const uint32_t lens[] = {88, 1384, 1392, 2768, 2776, KVR_WIRE_MAX_MESSAGE};
	static const uint32_t sizes[] = {KVR_WIRE_LEAST_MAX_FRAME, 567, 1432, 1437,
					 KVR_WIRE_MAX_FRAME};

	for (uint32_t l = 0; l < 6; l++)
		for (uint32_t z = 0; z < 5; z++) {
			uint32_t at = 0, n = 0, off, len;
			struct kvr_wire_hdr h;
			struct kvr_frag f;

			CU_ASSERT_EQUAL_FATAL(kvr_frag_init(&f, KVR_ROUTE, &ids, lens[l], sizes[z]),
					      0);
			while (kvr_frag_next(&f, &h, &off, &len)) {
				CU_ASSERT_EQUAL(off, at);
				CU_ASSERT_EQUAL(h.frag_off, off);
				CU_ASSERT_EQUAL(h.frag_len, len);
				CU_ASSERT(48 + len <= sizes[z]);
				CU_ASSERT_EQUAL(h.msg_len, lens[l]);
				CU_ASSERT(at + len == lens[l] || len == ((sizes[z] - 48) & ~7u));
				at += len;
				n++;
			}
			CU_ASSERT_EQUAL(at, lens[l]);
			CU_ASSERT_EQUAL(n, f.n_frames);
			CU_ASSERT(n <= KVR_WIRE_MAX_FRAGMENTS);
		}
}

static void an_empty_message_has_one_frame(void)
{
	uint32_t off, len;
	struct kvr_frag f;
	uint8_t h[48];

	CU_ASSERT_EQUAL(kvr_frag_init(&f, KVR_CANCEL, &ids, 0, 1432), 0);
	CU_ASSERT(kvr_frag_next(&f, h, &off, &len));
	CU_ASSERT_EQUAL(len, 0);
	CU_ASSERT_EQUAL(kvr_frame_check(h, 48, KVR_ROLE_BIT_ROUTER), 0);
	CU_ASSERT(!kvr_frag_next(&f, h, &off, &len));
}

static void what_cannot_be_cut_is_refused(void)
{
	struct kvr_frag f;

	CU_ASSERT_EQUAL(kvr_frag_init(&f, KVR_ROUTE, &ids, 90, 1432), -EINVAL);
	CU_ASSERT_EQUAL(kvr_frag_init(&f, 0, &ids, 88, 1432), -EINVAL);
	CU_ASSERT_EQUAL(kvr_frag_init(&f, KVR_ROUTE, &ids, 88, 559), -EINVAL);
	CU_ASSERT_EQUAL(kvr_frag_init(&f, KVR_ROUTE, &ids, 88, 8953), -EINVAL);
	CU_ASSERT_EQUAL(kvr_frag_init(&f, KVR_ROUTE, &ids, KVR_WIRE_MAX_MESSAGE + 8, 1432),
			-EMSGSIZE);
	CU_ASSERT_EQUAL(kvr_frag_init(&f, KVR_KV_EVENTS, &ids, 1384, 1432), 0);
	CU_ASSERT_EQUAL(kvr_frag_init(&f, KVR_KV_EVENTS, &ids, 1392, 1432), -EMSGSIZE);
	CU_ASSERT_EQUAL(kvr_frag_init(&f, KVR_RESPONSE, &ids, KVR_WIRE_MAX_RESPONSE, 1432), 0);
	CU_ASSERT_EQUAL(kvr_frag_init(&f, KVR_RESPONSE, &ids, KVR_WIRE_MAX_RESPONSE + 8, 1432),
			-EMSGSIZE);
}

static void slices_are_gathered_over_their_borders(void)
{
	const struct kvr_slice s[] = {{"ab", 2}, {"", 0}, {"cde", 3}, {NULL, 0}, {"f", 1}};
	char got[8] = "", scratch[8];

	CU_ASSERT_EQUAL(kvr_slices_len(s, 5), 6);
	CU_ASSERT_EQUAL(kvr_slices_copy(s, 5, 0, 6, got), 0);
	CU_ASSERT_STRING_EQUAL(got, "abcdef");
	for (uint32_t off = 0; off <= 6; off++)
		for (uint32_t len = 0; off + len <= 6; len++) {
			const char *p = kvr_slices_at(s, 5, off, len, scratch);

			CU_ASSERT_PTR_NOT_NULL_FATAL(p);
			CU_ASSERT_EQUAL(memcmp(p, &"abcdef"[off], len), 0);
		}
	CU_ASSERT_PTR_EQUAL(kvr_slices_at(s, 5, 3, 2, scratch), (const char *)s[2].p + 1);
	CU_ASSERT_PTR_NULL(kvr_slices_at(s, 5, 1, 2, NULL)); /* over a border */
	CU_ASSERT_PTR_NULL(kvr_slices_at(s, 5, 5, 2, scratch));
	CU_ASSERT_PTR_NULL(kvr_slices_at(s, 5, 7, 0, scratch));
	CU_ASSERT_PTR_NULL(kvr_slices_at(s, 5, UINT32_MAX, 2, scratch));
	CU_ASSERT_EQUAL(kvr_slices_copy(s, 5, 6, 1, got), -EMSGSIZE);
	CU_ASSERT_EQUAL(kvr_slices_copy(s, 5, 6, 0, got), 0);
}

static void names_follow_the_specification(void)
{
	CU_ASSERT_STRING_EQUAL(kvr_code_name(KVR_E_NO_ENDPOINTS), "NoEndpoints");
	CU_ASSERT_STRING_EQUAL(kvr_code_name(KVR_E_ALL_OVERLOADED), "AllEligibleWorkersOverloaded");
	CU_ASSERT_STRING_EQUAL(kvr_code_name(KVR_E_PINNED_NOT_ALLOWED), "PinnedWorkerNotAllowed");
	CU_ASSERT_STRING_EQUAL(kvr_code_name(KVR_E_PINNED_OVERLOADED), "PinnedWorkerOverloaded");
	CU_ASSERT_STRING_EQUAL(kvr_code_name(KVR_E_QUEUE_REJECTED), "QueueRejected");
	CU_ASSERT_STRING_EQUAL(kvr_code_name(13), "?");
	CU_ASSERT_STRING_EQUAL(kvr_code_name(KVR_E_MAX), "?");
	CU_ASSERT_STRING_EQUAL(kvr_code_name(UINT32_MAX), "?");
	CU_ASSERT_STRING_EQUAL(kvr_wire_kind_name(KVR_ROUTE), "ROUTE");
	CU_ASSERT_STRING_EQUAL(kvr_wire_kind_name(255), "?");
}

static void exactly_these_codes_are_retryable(void)
{
	static const unsigned int yes[] = {
		KVR_E_REASSEMBLY_FULL, KVR_E_ALL_OVERLOADED,  KVR_E_PINNED_OVERLOADED,
		KVR_E_QUEUE_REJECTED,  KVR_E_NOT_ACTIVATED,   KVR_E_BUSY,
		KVR_E_NO_MEMORY,       KVR_E_DISPATCH_FAILED, KVR_E_WORKER_LOST,
		KVR_E_SHUTDOWN,	       KVR_E_PREFILL_FAILED,  KVR_E_SESSION_LIMIT,
		KVR_E_COOKIE,	       KVR_E_RATE_LIMITED,    KVR_E_SOURCE_LIMIT,
		KVR_E_WORKER_ALIVE};
	unsigned int n = 0;

	for (unsigned int i = 0; i < sizeof(yes) / sizeof(yes[0]); i++)
		CU_ASSERT(kvr_code_retryable(yes[i]));
	for (unsigned int c = 0; c < 70000; c++)
		n += kvr_code_retryable(c);
	CU_ASSERT_EQUAL(n, sizeof(yes) / sizeof(yes[0]));
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"header bytes", header_is_written_byte_by_byte_little_endian},
		{"fragments", fragments_cover_the_message_in_equal_parts},
		{"empty message", an_empty_message_has_one_frame},
		{"not cut", what_cannot_be_cut_is_refused},
		{"slices", slices_are_gathered_over_their_borders},
		{"names", names_follow_the_specification},
		{"retryable", exactly_these_codes_are_retryable},
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("frame", tests);
}
