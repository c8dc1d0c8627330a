/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_put.h"
#include "kvr_test.h"

#include <errno.h>
#include <string.h>

static const struct kvr_wire_ids ids = {.source = 1, .id = 2, .epoch = 3, .msg_seq = 4};
static uint8_t buf[KVR_WIRE_MAX_FRAME + 64];

static bool valid(int len, uint8_t receiver)
{
	const struct kvr_wire_hdr *h = (const struct kvr_wire_hdr *)buf;

	return len > 0 && kvr_frame_check(buf, (size_t)len, receiver) == 0 &&
	       kvr_body_check(h->kind, buf + 48, h->msg_len, NULL) == 0;
}

static void nothing_is_written_behind_the_buffer(void)
{
	const struct kvr_wire_response item = {.seq = 1};
	const struct kvr_slice data = {"0123456789", 10};

	for (size_t cap = 0; cap < 96; cap++) {
		memset(buf, 0xee, sizeof(buf));
		CU_ASSERT_EQUAL(kvr_put_response(buf, cap, &ids, item, data), -EMSGSIZE);
		CU_ASSERT_EQUAL(buf[cap], 0xee);
	}
	CU_ASSERT_EQUAL(kvr_put_response(buf, 96, &ids, item, data), 96);
	CU_ASSERT(buf[96] == 0xee && valid(96, KVR_ROLE_BIT_CLIENT));
	CU_ASSERT_EQUAL(buf[48 + 32 + 10], 0); /* padding, over the 0xee */
}

static void an_item_must_fit_the_largest_frame(void)
{
	static const uint8_t data[KVR_WIRE_MAX_FRAME];
	const struct kvr_wire_response item = {0};
	const struct kvr_slice most = {data, KVR_WIRE_MAX_FRAME - 80};
	const struct kvr_slice above = {data, KVR_WIRE_MAX_FRAME - 79};

	CU_ASSERT_EQUAL(kvr_put_response(buf, sizeof(buf), &ids, item, most), KVR_WIRE_MAX_FRAME);
	CU_ASSERT(valid(KVR_WIRE_MAX_FRAME, KVR_ROLE_BIT_CLIENT));
	CU_ASSERT_EQUAL(kvr_put_response(buf, sizeof(buf), &ids, item, above), -EMSGSIZE);
}

/* What ends with ERROR or CANCELLED says why in at most 255 bytes, and in no token ids. */
static void words_are_short_and_no_tokens(void)
{
	static const uint8_t words[256];
	static const struct {
		uint16_t flags;
		uint32_t len;
		bool ok;
	} rows[] = {
		{KVR_RESP_F_FIN | KVR_RESP_F_ERROR, 255, true},
		{KVR_RESP_F_FIN | KVR_RESP_F_ERROR, 256, false},
		{KVR_RESP_F_FIN | KVR_RESP_F_CANCELLED, 255, true},
		{KVR_RESP_F_FIN | KVR_RESP_F_CANCELLED, 256, false},
		{KVR_RESP_F_FIN, 256, true},
		{KVR_RESP_F_FIN | KVR_RESP_F_TOKENS, 8, true},
		{KVR_RESP_F_FIN | KVR_RESP_F_TOKENS | KVR_RESP_F_ERROR, 8, false},
		{KVR_RESP_F_FIN | KVR_RESP_F_TOKENS | KVR_RESP_F_CANCELLED, 8, false},
	};

	for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct kvr_wire_response item = {.flags = rows[i].flags};
		const int len = kvr_put_response(buf, sizeof(buf), &ids, item,
						 (struct kvr_slice){words, rows[i].len});

		CU_ASSERT_EQUAL(valid(len, KVR_ROLE_BIT_CLIENT), rows[i].ok);
	}
}

/* FAILED and REFUSED come with the last item, one of them, and whatever its data are. */
static void failures_are_told_once_and_at_the_end(void)
{
	static const struct {
		uint16_t flags;
		bool ok;
	} rows[] = {
		{KVR_RESP_F_FIN | KVR_RESP_F_FAILED, true},
		{KVR_RESP_F_FIN | KVR_RESP_F_REFUSED, true},
		{KVR_RESP_F_FIN | KVR_RESP_F_FAILED | KVR_RESP_F_TOKENS, true},
		{KVR_RESP_F_FIN | KVR_RESP_F_FAILED | KVR_RESP_F_REFUSED, false},
		{KVR_RESP_F_FIN | KVR_RESP_F_FAILED | KVR_RESP_F_CANCELLED, false},
		{KVR_RESP_F_FIN | KVR_RESP_F_REFUSED | KVR_RESP_F_CANCELLED, false},
		{KVR_RESP_F_FAILED, false},
		{KVR_RESP_F_REFUSED, false},
		{KVR_RESP_F_FIN | 0x40u, false},
	};

	for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct kvr_wire_response item = {.flags = rows[i].flags};
		const int len = kvr_put_response(buf, sizeof(buf), &ids, item,
						 (struct kvr_slice){"12345678", 8});

		CU_ASSERT_EQUAL(valid(len, KVR_ROLE_BIT_CLIENT), rows[i].ok);
	}
}

/* The same of a PROGRESS. */
static void reports_of_failures_come_at_the_end(void)
{
	static const struct {
		uint16_t flags;
		bool ok;
	} rows[] = {
		{KVR_PROG_F_FIN | KVR_PROG_F_FAILED, true},
		{KVR_PROG_F_FIN | KVR_PROG_F_ERROR | KVR_PROG_F_REFUSED, true},
		{KVR_PROG_F_FIN | KVR_PROG_F_FAILED | KVR_PROG_F_REFUSED, false},
		{KVR_PROG_F_FIN | KVR_PROG_F_FAILED | KVR_PROG_F_CANCELLED, false},
		{KVR_PROG_F_FAILED, false},
	};

	for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct kvr_wire_progress w = {.flags = rows[i].flags};
		const int len = kvr_put_message(buf, sizeof(buf), KVR_PROGRESS, &ids,
						(struct kvr_slice){&w, sizeof(w)},
						(struct kvr_slice){NULL, 0});

		CU_ASSERT_EQUAL(valid(len, KVR_ROLE_BIT_ROUTER), rows[i].ok);
	}
}

static void connected_lists_what_fits_and_says_how_many_there_are(void)
{
	const struct kvr_wire_connected limits = {
		.max_frame = 1432, .max_message = 1 << 20, .max_frames = 758};
	struct kvr_wire_pool pools[100];
	struct kvr_str names[100];
	const struct kvr_wire_connected *m = (const struct kvr_wire_connected *)(buf + 48);
	int len;

	for (uint32_t i = 0; i < 100; i++) {
		pools[i] = (struct kvr_wire_pool){.pool = (uint16_t)i, .block_size = 16};
		names[i] = (struct kvr_str){"pool-name", 9};
	}
	len = kvr_put_connected(buf, 1432, &ids, limits, pools, names, 100);
	CU_ASSERT(valid(len, KVR_ROLE_BIT_CLIENT) && len <= 1432);
	CU_ASSERT_EQUAL(m->n_pools, (1432 - 48 - 32) / 32);
	CU_ASSERT_EQUAL(m->total_pools, 100);
	len = kvr_put_connected(buf, 1432, &ids, limits, pools, names, 0);
	CU_ASSERT(valid(len, KVR_ROLE_BIT_CLIENT));
	CU_ASSERT_EQUAL(kvr_put_connected(buf, 79, &ids, limits, pools, names, 0), -EMSGSIZE);
}

static void rejected_tells_the_fault(void)
{
	const struct kvr_fault fault = {70000, 65536, "too many hashes"};
	const struct kvr_wire_rejected *m = (const struct kvr_wire_rejected *)(buf + 48);
	char text[400];
	struct kvr_fault long_one = {0, 0, text};

	CU_ASSERT(
		valid(kvr_put_rejected(buf, sizeof(buf), &ids, KVR_E_TOO_LARGE, KVR_ROUTE, &fault),
		      KVR_ROLE_BIT_CLIENT));
	CU_ASSERT(m->code == KVR_E_TOO_LARGE && m->retryable == 0 && m->kind == KVR_ROUTE);
	CU_ASSERT(m->detail[0] == 70000 && m->detail[1] == 65536 && m->text_len == 15);
	kvr_put_rejected(buf, sizeof(buf), &ids, KVR_E_BUSY, KVR_ROUTE, NULL);
	CU_ASSERT(m->retryable == 1 && m->text_len == 0);
	memset(text, 'x', sizeof(text));
	text[399] = '\0';
	CU_ASSERT(valid(kvr_put_rejected(buf, sizeof(buf), &ids, KVR_E_BUSY, 0, &long_one),
			KVR_ROLE_BIT_AGENT));
	CU_ASSERT_EQUAL(m->text_len, 255);
}

static void events_fill_a_frame_to_the_last_block(void)
{
	static uint64_t hash[200];
	const struct kvr_wire_kv_events head = {.first_event_id = 5, .dp_rank = 1};
	struct kvr_kv_put k;
	struct kvr_kv_iter it;
	struct kvr_kv_event ev = {0};
	uint32_t room;

	for (uint32_t i = 0; i < 200; i++)
		hash[i] = i + 1;
	CU_ASSERT_EQUAL_FATAL(kvr_kv_put_begin(&k, buf, 1432, &ids, &head), 0);
	CU_ASSERT_EQUAL(kvr_kv_put_event(&k, KVR_KV_STORED, 2, &hash[3], hash, 10), 0);
	room = kvr_kv_put_room(&k);
	CU_ASSERT_EQUAL(kvr_kv_put_event(&k, KVR_KV_REMOVED, 0, NULL, hash, room + 1), -EMSGSIZE);
	CU_ASSERT_EQUAL(kvr_kv_put_event(&k, KVR_KV_REMOVED, 0, NULL, hash, room), 0);
	CU_ASSERT_EQUAL(kvr_kv_put_room(&k), 0);
	CU_ASSERT_EQUAL(kvr_kv_put_event(&k, KVR_KV_CLEARED, 0, NULL, NULL, 0), -EMSGSIZE);
	CU_ASSERT(valid(kvr_kv_put_end(&k), KVR_ROLE_BIT_ROUTER));
	it = kvr_kv_events_begin(buf + 48);
	CU_ASSERT_FATAL(kvr_kv_events_next(&it, &ev));
	CU_ASSERT(ev.type == KVR_KV_STORED && ev.tier == 2 && ev.n_blocks == 10 && ev.parent == 4);
	CU_ASSERT_EQUAL(memcmp(ev.hashes, hash, 80), 0);
	CU_ASSERT_FATAL(kvr_kv_events_next(&it, &ev));
	CU_ASSERT(ev.type == KVR_KV_REMOVED && ev.n_blocks == room && ev.flags == 0);
	CU_ASSERT(!kvr_kv_events_next(&it, &ev));
	CU_ASSERT_EQUAL(kvr_kv_put_begin(&k, buf, 79, &ids, &head), -EMSGSIZE);
}

static void events_that_are_encoded_are_taken_as_they_are(void)
{
	const struct kvr_wire_kv_events head = {.first_event_id = 5, .dp_rank = 1};
	static uint8_t first[200];
	const uint64_t hash[] = {1, 2, 3};
	struct kvr_kv_put k;
	uint32_t from, n;

	CU_ASSERT_EQUAL_FATAL(kvr_kv_put_begin(&k, buf, 1432, &ids, &head), 0);
	from = k.len;
	CU_ASSERT_EQUAL(kvr_kv_put_event(&k, KVR_KV_STORED, 0, &hash[2], hash, 2), 0);
	CU_ASSERT_EQUAL(kvr_kv_put_event(&k, KVR_KV_CLEARED, 0, NULL, NULL, 0), 0);
	n = k.len - from;
	memcpy(first, buf + from, n);
	CU_ASSERT_EQUAL_FATAL(kvr_kv_put_begin(&k, buf, from + 2 * n, &ids, &head), 0);
	CU_ASSERT_EQUAL(kvr_kv_put_events(&k, first, n, 2), 0);
	CU_ASSERT_EQUAL(kvr_kv_put_events(&k, first, n, 2), 0);
	CU_ASSERT_EQUAL(kvr_kv_put_events(&k, first, n, 2), -EMSGSIZE);
	CU_ASSERT_EQUAL(k.n_events, 4);
	CU_ASSERT(valid(kvr_kv_put_end(&k), KVR_ROLE_BIT_ROUTER));
	CU_ASSERT_EQUAL(memcmp(buf + from + n, first, n), 0);
	k.n_events = UINT16_MAX - 1;
	k.cap = k.len + n;
	CU_ASSERT_EQUAL(kvr_kv_put_events(&k, first, n, 2), -EMSGSIZE);
}

static void an_empty_dump_is_one_frame(void)
{
	const struct kvr_wire_kv_events head = {.resume_event_id = 9,
						.flags = KVR_KV_F_DUMP | KVR_KV_F_DUMP_BEGIN |
							 KVR_KV_F_DUMP_END};
	struct kvr_kv_put k;

	CU_ASSERT_EQUAL(kvr_kv_put_begin(&k, buf, 1432, &ids, &head), 0);
	CU_ASSERT(valid(kvr_kv_put_end(&k), KVR_ROLE_BIT_ROUTER));
}

static void session_ids_are_bounded(void)
{
	static char id[257];
	const struct kvr_wire_session s = {.timeout_s = 1};

	memset(id, 'a', sizeof(id));
	CU_ASSERT(valid(kvr_put_session(buf, sizeof(buf), KVR_SESSION_OPEN, &ids, s,
					(struct kvr_str){id, 256}),
			KVR_ROLE_BIT_AGENT));
	CU_ASSERT_EQUAL(kvr_put_session(buf, sizeof(buf), KVR_SESSION_OPEN, &ids, s,
					(struct kvr_str){id, 257}),
			-EMSGSIZE);
	CU_ASSERT_EQUAL(kvr_put_session(buf, sizeof(buf), KVR_SESSION_OPEN, &ids, s,
					(struct kvr_str){id, 0}),
			-EMSGSIZE);
}

static void timeouts_of_an_open_are_bounded(void)
{
	static const struct {
		uint32_t timeout_s;
		bool ok;
	} rows[] = {{0, false},
		    {1, true},
		    {31536030, true}, /* the client's most and what the worker adds */
		    {31536031, false}};

	for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct kvr_wire_session s = {.timeout_s = rows[i].timeout_s};
		const int len = kvr_put_session(buf, sizeof(buf), KVR_SESSION_OPEN, &ids, s,
						(struct kvr_str){"a", 1});

		CU_ASSERT_EQUAL(valid(len, KVR_ROLE_BIT_AGENT), rows[i].ok);
	}
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"bounds", nothing_is_written_behind_the_buffer},
		{"largest item", an_item_must_fit_the_largest_frame},
		{"words", words_are_short_and_no_tokens},
		{"failures", failures_are_told_once_and_at_the_end},
		{"reports", reports_of_failures_come_at_the_end},
		{"connected", connected_lists_what_fits_and_says_how_many_there_are},
		{"rejected", rejected_tells_the_fault},
		{"events", events_fill_a_frame_to_the_last_block},
		{"encoded events", events_that_are_encoded_are_taken_as_they_are},
		{"empty dump", an_empty_dump_is_one_frame},
		{"session", session_ids_are_bounded},
		{"session timeout", timeouts_of_an_open_are_bounded},
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("put", tests);
}
