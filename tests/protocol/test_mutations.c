/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Valid frames, damaged by the million, through everything a receiver does: header check, body
 * check, parsing, reassembly. Whatever passes must keep the promises of the headers; every frame
 * reference must come back once. Copies live at the end of a heap block, so that the sanitizers
 * see a read of one byte too many.
 */
#include "samples.h"

#include "kvr_rand.h"
#include "kvr_reasm.h"
#include "kvr_test.h"

#include <stdlib.h>
#include <string.h>

#define ROUNDS 5000000u

static struct sample samples[SAMPLES_MAX];
static uint32_t n_samples;
static uint64_t refused, passed, held, complete;
static int64_t frames_out; /* given to reassembly and not back yet */

static void on_drop(void *arg, void *frame)
{
	frames_out--;
	free(frame);
}

static uint32_t mutate_bytes(uint8_t *p, uint32_t len, struct kvr_rand *rnd)
{
	static const uint32_t edges[] = {0,	     1,		 7,	     8,
					 0x7fffffff, 0x80000000, 0xfffffff8, 0xffffffff};
	const uint32_t changes = kvr_rand_below(rnd, 4);

	for (uint32_t i = 0; i < changes; i++) {
		const uint32_t at = kvr_rand_below(rnd, len);

		switch (kvr_rand_below(rnd, 5)) {
		case 0:
			p[at] ^= (uint8_t)(1u << kvr_rand_below(rnd, 8));
			break;
		case 1:
			p[at] = (uint8_t)kvr_rand_u64(rnd);
			break;
		case 2: /* a length field of the header or of the body's fixed part */
			if (len >= 144)
				memcpy(p + 4 * kvr_rand_below(rnd, 36),
				       &edges[kvr_rand_below(rnd, 8)], 4);
			break;
		case 3:
			len = at + 1;
			break;
		case 4: /* a slice of itself elsewhere */
			memmove(p + at, p, len - at < 24 ? len - at : 24);
			break;
		}
	}
	return len;
}

/* Sums what a receiver would look at, so that nothing is optimised away and all is read. */
static uint64_t read_all(const void *p, uint64_t n)
{
	const uint8_t *b = p;
	uint64_t sum = 0;

	for (uint64_t i = 0; i < n; i++)
		sum += b[i];
	return sum;
}

static uint64_t use_request(uint8_t kind, const uint8_t *body, uint32_t len)
{
	struct kvr_message q;
	struct kvr_hint_lists lists;
	struct kvr_hints h;
	struct kvr_tlv_iter it;
	struct kvr_mm mm;
	uint64_t sum = 0;

	if (kvr_request_parse(body, len, kind, &q) != 0 ||
	    kvr_hints_parse(q.hints, q.fixed.hints_len,
			    kind == KVR_DISPATCH ? KVR_HINTS_DISPATCH : KVR_HINTS_ROUTE, &h,
			    &lists) != 0)
		return 0;
	sum += read_all(q.hashes, (uint64_t)q.fixed.n_hashes * 8);
	sum += read_all(q.tokens, (uint64_t)q.fixed.n_tokens * 4);
	sum += read_all(q.body, q.fixed.body_len);
	for (uint32_t i = 0; i < h.n_allowed; i++)
		sum += kvr_hints_allowed(&h, i);
	sum += read_all(h.lora.p, h.lora.len) +
	       read_all(h.cache_namespace.p, h.cache_namespace.len);
	sum += read_all(h.session.id.p, h.session.id.len) + read_all(h.trace.p, h.trace.len);
	for (uint32_t i = 0; i < h.n_required; i++)
		sum += read_all(h.required[i].p, h.required[i].len);
	it = kvr_tlv_begin(h.tlvs, h.tlvs_len);
	while (kvr_mm_next(&it, &mm))
		sum += read_all(mm.hashes, (uint64_t)mm.n * 8);
	return sum;
}

static uint64_t use_body(uint8_t kind, const uint8_t *body, uint32_t len)
{
	struct kvr_kv_iter it;
	struct kvr_kv_event ev;
	uint64_t sum = 0;

	if (kvr_body_check(kind, body, len, NULL) != 0) {
		refused++;
		return 0;
	}
	passed++;
	if (kind == KVR_ROUTE || kind == KVR_DISPATCH || kind == KVR_POTENTIAL_LOADS)
		return use_request(kind, body, len);
	if (kind == KVR_KV_EVENTS) {
		it = kvr_kv_events_begin(body);
		while (kvr_kv_events_next(&it, &ev))
			sum += ev.parent + read_all(ev.hashes, (uint64_t)ev.n_blocks * 8);
	}
	return sum;
}

/* A complete message: as slices, and joined; both must say the same. */
static void use_message(uint8_t kind, const struct kvr_reasm_msg *m)
{
	struct kvr_slice slices[32];
	struct kvr_message a, b;
	uint8_t *joined = malloc(m->len);
	int ra, rb;

	CU_ASSERT_FATAL(m->n_frags <= 32);
	for (uint32_t i = 0; i < m->n_frags; i++)
		slices[i] = (struct kvr_slice){m->frag[i].data, m->frag[i].len};
	CU_ASSERT_EQUAL_FATAL(kvr_slices_copy(slices, m->n_frags, 0, m->len, joined), 0);
	if (kind == KVR_ROUTE || kind == KVR_DISPATCH || kind == KVR_POTENTIAL_LOADS) {
		ra = kvr_request_parse_slices(slices, m->n_frags, kind, &a);
		rb = kvr_request_parse(joined, m->len, kind, &b);
		CU_ASSERT_EQUAL_FATAL(ra, rb);
		if (ra == 0)
			CU_ASSERT_EQUAL_FATAL(a.body_off, b.body_off);
	}
	use_body(kind, joined, m->len);
	free(joined);
}

static void receive_frame(struct kvr_reasm *r, uint8_t *copy, uint32_t len, uint8_t receiver,
			  uint64_t now)
{
	const struct kvr_wire_hdr *h = (const struct kvr_wire_hdr *)copy;
	const struct kvr_peer peer = {{1}};
	struct kvr_reasm_msg m;
	int res = kvr_frame_check(copy, len, receiver);

	if (res != 0) {
		refused++;
		free(copy);
		return;
	}
	frames_out++;
	res = kvr_reasm_add(r, &peer, h, kvr_frame_body(h), copy, now, &m);
	if (res == KVR_REASM_HELD) {
		held++;
		return;
	}
	if (res != KVR_REASM_COMPLETE) { /* ours again */
		frames_out--;
		free(copy);
		return;
	}
	complete += m.n_frags > 1;
	use_message(h->kind, &m);
	frames_out -= m.n_frags;
	for (uint32_t i = 0; i < m.n_frags; i++)
		free(m.frag[i].frame);
}

static void damaged_frames_never_break_a_promise(void)
{
	const struct kvr_reasm_conf conf = {
		.max_messages = 64, .max_frames = 256, .timeout = 1000, .seed = 1, .drop = on_drop};
	struct kvr_reasm *r = kvr_reasm_create(&conf);
	const char *env = getenv("KVR_MUTATIONS");
	const uint32_t rounds = env != NULL ? (uint32_t)strtoul(env, NULL, 10) : ROUNDS;
	struct kvr_rand rnd;

	CU_ASSERT_PTR_NOT_NULL_FATAL(r);
	kvr_rand_init(&rnd, 20261121);
	for (uint32_t i = 0; i < rounds; i++) {
		const struct sample *s = &samples[kvr_rand_below(&rnd, n_samples)];
		const uint32_t f = kvr_rand_below(&rnd, s->n_frames);
		uint8_t work[SAMPLE_FRAME];
		uint8_t *copy;
		uint32_t len;

		memcpy(work, s->frame[f], s->len[f]);
		len = mutate_bytes(work, s->len[f], &rnd);
		copy = malloc(len);
		memcpy(copy, work, len);
		receive_frame(r, copy, len, s->receiver, i);
		if (i % 256 == 0)
			kvr_reasm_expire(r, i, 8);
	}
	CU_ASSERT_EQUAL((uint64_t)frames_out, kvr_reasm_stats(r)->frames);
	kvr_reasm_destroy(r);
	CU_ASSERT_EQUAL(frames_out, 0);
	CU_ASSERT(refused > rounds / 4);
	CU_ASSERT(passed > rounds / 8);
	CU_ASSERT(held > rounds / 100);
	CU_ASSERT(complete > rounds / 1000);
	printf("refused %lu passed %lu held %lu reassembled %lu ", refused, passed, held, complete);
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(damaged_frames_never_break_a_promise),
		CU_TEST_INFO_NULL,
	};

	n_samples = samples_make(samples);
	return kvr_test_run("mutations", tests);
}
