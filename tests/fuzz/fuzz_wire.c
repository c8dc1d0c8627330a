/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzz target: one UDP payload to each receiver. The first byte selects the role, the rest is the
 * payload. Accepted frames must have the documented properties, and a request must be judged the
 * same in one piece and in slices cut anywhere.
 */
#include "fuzz.h"

#include "kvr_message.h"

#include <stdlib.h>
#include <string.h>

#define REQUIRE(x)                                                                                 \
	do {                                                                                       \
		if (!(x))                                                                          \
			abort();                                                                   \
	} while (0)

static volatile uint64_t sink;

static void read_bytes(const void *p, uint64_t n)
{
	const uint8_t *b = p;
	uint64_t sum = 0;

	for (uint64_t i = 0; i < n; i++)
		sum += b[i];
	sink += sum;
}

static void use_hints(const struct kvr_message *q, enum kvr_hints_in in)
{
	struct kvr_tlv_iter it;
	struct kvr_hint_lists lists;
	struct kvr_hints h;
	struct kvr_mm mm;
	uint64_t next = 0;
	uint32_t n = 0;

	if (kvr_hints_parse(q->hints, q->fixed.hints_len, in, &h, &lists) != 0)
		return;
	for (uint32_t i = 0; i < h.n_allowed; i++)
		REQUIRE(kvr_hints_allows(&h, kvr_hints_allowed(&h, i)));
	it = kvr_tlv_begin(h.tlvs, h.tlvs_len);
	while (kvr_mm_next(&it, &mm)) {
		REQUIRE(mm.block >= next && mm.n <= KVR_HINT_MAX_MM);
		next = (uint64_t)mm.block + 1;
		read_bytes(mm.hashes, (uint64_t)mm.n * 8);
		n++;
	}
	REQUIRE(n == h.n_mm);
	for (uint32_t i = 0; i < h.n_shared; i++)
		REQUIRE(h.shared[i].start < h.shared[i].end &&
			(i == 0 || h.shared[i - 1].end <= h.shared[i].start));
}

static void use_request(const struct kvr_wire_hdr *hdr, const uint8_t *body, uint32_t len)
{
	const uint32_t cut = (uint32_t)(hdr->source % (len + 1));
	const struct kvr_slice halves[2] = {{body, cut}, {body + cut, len - cut}};
	struct kvr_message q, s;
	const enum kvr_code r = kvr_request_parse(body, len, hdr->kind, &q);

	REQUIRE(kvr_request_parse_slices(halves, 2, hdr->kind, &s) == r);
	if (r != 0) {
		REQUIRE(q.fault.text != NULL);
		return;
	}
	REQUIRE(memcmp(&q.fixed, &s.fixed, sizeof(q.fixed)) == 0 && q.body_off == s.body_off);
	REQUIRE(s.hashes == NULL || s.hashes == q.hashes);
	read_bytes(q.hashes, (uint64_t)q.fixed.n_hashes * 8);
	read_bytes(q.tokens, (uint64_t)q.fixed.n_tokens * 4);
	read_bytes(q.body, q.fixed.body_len);
	use_hints(&q, hdr->kind == KVR_DISPATCH ? KVR_HINTS_DISPATCH : KVR_HINTS_ROUTE);
}

static void use_events(const uint8_t *body, uint32_t len)
{
	struct kvr_kv_iter it = kvr_kv_events_begin(body);
	struct kvr_kv_event ev;

	while (kvr_kv_events_next(&it, &ev)) {
		REQUIRE(ev.hashes + (uint64_t)ev.n_blocks * 8 <= body + len);
		read_bytes(ev.hashes, (uint64_t)ev.n_blocks * 8);
	}
	REQUIRE(it.p == body + len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t roles[3] = {KVR_ROLE_BIT_CLIENT, KVR_ROLE_BIT_AGENT,
					 KVR_ROLE_BIT_ROUTER};
	const struct kvr_wire_hdr *hdr = (const struct kvr_wire_hdr *)(data + 1);
	const uint8_t *body;
	struct kvr_fault fault;
	int r;

	if (size == 0 || kvr_frame_check(data + 1, size - 1, roles[data[0] % 3]) != 0)
		return 0;
	if (!kvr_frame_whole(hdr))
		return 0;
	body = kvr_frame_body(hdr);
	if (hdr->kind == KVR_ROUTE || hdr->kind == KVR_DISPATCH || hdr->kind == KVR_POTENTIAL_LOADS)
		use_request(hdr, body, hdr->msg_len);
	r = kvr_body_check(hdr->kind, body, hdr->msg_len, &fault);
	REQUIRE(r == 0 || (fault.text != NULL && strcmp(kvr_code_name((unsigned int)r), "?") != 0));
	if (r == 0 && hdr->kind == KVR_KV_EVENTS)
		use_events(body, hdr->msg_len);
	return 0;
}
