/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams written by Python's msgpack, and the changes that they must cause: see vectors.py. */
#include "kvr_kvev.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvev_pvt.h"
#include "kvr_kvmap.h"
#include "kvr_test.h"

struct payload {
	const uint8_t *p;
	size_t len;
};

struct scene {
	const char *name;
	const struct payload *payloads;
	unsigned int n;
	bool first_bytes;
	uint32_t blocks;
	struct {
		const char *counter;
		uint64_t value;
	} counters[8];
	const char *want;
};

#include "vectors.h"

#define BLOCK 4u
#define N     (sizeof(scenes) / sizeof(scenes[0]))

static char got[4096];

static void append_change(const char *what, unsigned int tier, const uint64_t *parent, bool store,
			  const uint64_t sh[], uint32_t n)
{
	size_t at = strlen(got);

	at += (size_t)snprintf(got + at, sizeof(got) - at, "%s%u", what, tier);
	if (store && parent == NULL)
		at += (size_t)snprintf(got + at, sizeof(got) - at, " -");
	else if (store)
		at += (size_t)snprintf(got + at, sizeof(got) - at, " %" PRIx64, *parent);
	for (uint32_t i = 0; i < n; i++)
		at += (size_t)snprintf(got + at, sizeof(got) - at, " %" PRIx64, sh[i]);
	snprintf(got + at, sizeof(got) - at, "\n");
}

static void on_stored(void *user, enum kvr_tier tier, const uint64_t *parent, const uint64_t sh[],
		      uint32_t n)
{
	append_change("S", tier, parent, true, sh, n);
}

static void on_removed(void *user, enum kvr_tier tier, const uint64_t sh[], uint32_t n)
{
	append_change("R", tier, NULL, false, sh, n);
}

static void on_cleared(void *user)
{
	strncat(got, "C\n", sizeof(got) - strlen(got) - 1);
}

static const struct kvr_kvmap_out out = {on_stored, on_removed, on_cleared, NULL};

/* Decode and apply a copy of exactly the payload's length, so that sanitizers detect reads beyond
 * it. */
static int apply_payload(struct kvr_kvev_decoder *d, struct kvr_kvmap *m, const uint8_t *p,
			 size_t len)
{
	uint8_t *copy = malloc(len);
	struct kvr_kvev_batch batch;
	const char *end = NULL; /* end of the previous event */
	struct kvr_kvev ev;
	int rc;

	CU_ASSERT_PTR_NOT_NULL_FATAL(copy);
	memcpy(copy, p, len);
	rc = kvr_kvev_open(d, copy, len, &batch);
	while (rc == 0 && (rc = kvr_kvev_next(d, &ev)) > 0) {
		CU_ASSERT(end == NULL || end == ev.raw.p);
		end = ev.raw.p + ev.raw.len;
		CU_ASSERT(ev.raw.len > 0 && end <= (const char *)copy + len);
		rc = kvr_kvmap_apply(m, &ev);
	}
	free(copy);
	return rc;
}

static uint64_t get_counter(const struct kvr_kvmap *m, const char *name)
{
	const kvr_cell_t *row = (const kvr_cell_t *)kvr_kvmap_stats_get(m);

	for (unsigned int i = 0; i < KVR_KVMAP_N; i++)
		if (strcmp(kvr_kvmap_stats.counters[i].name, name) == 0)
			return kvr_stats_get(row, i);
	CU_FAIL("no such counter");
	return 0;
}

static uint64_t get_expected(const struct scene *s, const char *name)
{
	for (unsigned int i = 0; i < 8 && s->counters[i].counter != NULL; i++)
		if (strcmp(s->counters[i].counter, name) == 0)
			return s->counters[i].value;
	return 0;
}

static void every_form_has_its_expected_changes(void)
{
	static const char *const faults[] = {
		"unknown", "bad",     "medium",	 "foreign", "group",   "size",
		"chunks",  "aliases", "surplus", "again",   "orphans", "few_tokens",
		"strange", "kept",    "absent",	 "evicted", "cleared"};

	for (unsigned int i = 0; i < N; i++) {
		const struct scene *s = &scenes[i];
		struct kvr_kvev_decoder *d = kvr_kvev_create(s->first_bytes);
		struct kvr_kvmap *m = kvr_kvmap_create(BLOCK, s->blocks, 99, &out);

		CU_ASSERT(d != NULL && m != NULL);
		got[0] = 0;
		for (unsigned int k = 0; k < s->n; k++)
			CU_ASSERT_EQUAL(apply_payload(d, m, s->payloads[k].p, s->payloads[k].len),
					0);
		CU_ASSERT_STRING_EQUAL(got, s->want);
		if (strcmp(got, s->want) != 0)
			fprintf(stderr, "\n%s:\n%swanted\n%s", s->name, got, s->want);
		for (unsigned int k = 0; k < sizeof(faults) / sizeof(faults[0]); k++) {
			CU_ASSERT_EQUAL(get_counter(m, faults[k]), get_expected(s, faults[k]));
			if (get_counter(m, faults[k]) != get_expected(s, faults[k]))
				fprintf(stderr, "\n%s: %s %" PRIu64 "\n", s->name, faults[k],
					get_counter(m, faults[k]));
		}
		kvr_kvev_destroy(d);
		kvr_kvmap_destroy(m);
	}
}

static void every_truncated_batch_is_rejected(void)
{
	for (unsigned int i = 0; i < N; i++) {
		const struct scene *s = &scenes[i];

		for (unsigned int k = 0; k < s->n; k++) {
			for (size_t len = 0; len < s->payloads[k].len; len++) {
				struct kvr_kvev_decoder *d = kvr_kvev_create(false);
				struct kvr_kvmap *m = kvr_kvmap_create(BLOCK, 64, 1, &out);

				got[0] = 0;
				CU_ASSERT_EQUAL(apply_payload(d, m, s->payloads[k].p, len),
						-EBADMSG);
				kvr_kvev_destroy(d);
				kvr_kvmap_destroy(m);
			}
		}
	}
}

static void the_rank_of_a_batch_is_read(void)
{
	static const struct {
		const char *name;
		uint32_t rank;
		bool has;
	} row[] = {{"vLLM, maps", 0, true},
		   {"a batch as a map, rank first", 3, true},
		   {"a batch without rank", 0, false},
		   {"a batch with nil for a rank", 0, false},
		   {"a batch of a rank above 127", 300, true},
		   {"a batch with more behind its rank", 7, true}};
	struct kvr_kvev_decoder *d = kvr_kvev_create(false);
	struct kvr_kvev_batch batch;
	unsigned int seen = 0;

	for (unsigned int i = 0; i < N; i++) {
		for (unsigned int k = 0; k < sizeof(row) / sizeof(row[0]); k++) {
			if (strcmp(scenes[i].name, row[k].name) != 0)
				continue;
			CU_ASSERT_EQUAL(kvr_kvev_open(d, scenes[i].payloads[0].p,
						      scenes[i].payloads[0].len, &batch),
					0);
			CU_ASSERT(batch.has_rank == row[k].has && batch.rank == row[k].rank);
			seen++;
		}
	}
	CU_ASSERT_EQUAL(seen, 6);
	kvr_kvev_destroy(d);
}

static void claimed_sizes_allocate_nothing(void)
{
	/* Arrays of 2^32 - 1 elements, deep arrays, strings longer than the batch. */
	static const uint8_t events[] = {0x93, 0xcb, 0,	   0,	 0,    0,    0,	   0,
					 0,    0,    0xdd, 0xff, 0xff, 0xff, 0xff, 0};
	static const uint8_t hashes[] = {0x92, 0,    0x91, 0x92, 0xab, 'B', 'l', 'o',  'c',
					 'k',  'S',  't',  'o',	 'r',  'e', 'd', 0xdd, 0x7f,
					 0xff, 0xff, 0xff, 1,	 2,    3,   4,	 5};
	static const uint8_t text[] = {0x92, 0, 0x91, 0x91, 0xdb, 0xff, 0xff, 0xff, 0xff, 'a'};
	uint8_t deep[200];
	struct kvr_kvev_decoder *d = kvr_kvev_create(false);
	struct kvr_kvmap *m = kvr_kvmap_create(BLOCK, 64, 1, &out);

	CU_ASSERT_EQUAL(apply_payload(d, m, events, sizeof(events)), -EBADMSG);
	CU_ASSERT_EQUAL(apply_payload(d, m, hashes, sizeof(hashes)), -EBADMSG);
	CU_ASSERT_EQUAL(apply_payload(d, m, text, sizeof(text)), -EBADMSG);
	memset(deep, 0x91, sizeof(deep));
	deep[0] = 0x92;
	deep[1] = 0;
	deep[sizeof(deep) - 1] = 0xc0;
	CU_ASSERT_EQUAL(apply_payload(d, m, deep, sizeof(deep)), -EBADMSG);
	kvr_kvev_destroy(d);
	kvr_kvmap_destroy(m);
}

static void a_removal_that_cannot_be_read_is_an_error(void)
{
	/* [0, [["BlockRemoved", ["x"]]]] */
	static const uint8_t bad[] = {0x92, 0,	 0x91, 0x92, 0xac, 'B', 'l', 'o',  'c',	 'k',
				      'R',  'e', 'm',  'o',  'v',  'e', 'd', 0x91, 0xa1, 'x'};
	struct kvr_kvev_decoder *d = kvr_kvev_create(false);
	struct kvr_kvmap *m = kvr_kvmap_create(BLOCK, 64, 1, &out);

	CU_ASSERT_EQUAL(apply_payload(d, m, bad, sizeof(bad)), -EBADMSG);
	CU_ASSERT_EQUAL(get_counter(m, "bad"), 1);
	kvr_kvev_destroy(d);
	kvr_kvmap_destroy(m);
}

/* ---- token ids of all widths ---- */

static uint8_t *put_token(uint8_t *p, uint32_t t, unsigned int width)
{
	static const uint8_t heads[] = {[1] = 0xcc, [2] = 0xcd, [4] = 0xce, [8] = 0xcf};

	if (width == 0) {
		*p++ = (uint8_t)t;
		return p;
	}
	*p++ = heads[width];
	for (unsigned int i = width; i > 0; i--)
		*p++ = i > 4 ? 0 : (uint8_t)(t >> (8 * (i - 1)));
	return p;
}

/* [0, [["BlockStored", [7], nil, [tokens], 16, nil]]]; @return its length. */
static size_t put_stored(uint8_t *buf, const uint32_t t[], const unsigned int width[], uint32_t n)
{
	static const uint8_t head[] = {0x92, 0,	  0x91, 0x96, 0xab, 'B', 'l',  'o', 'c', 'k',
				       'S',  't', 'o',	'r',  'e',  'd', 0x91, 7,   0xc0};
	uint8_t *p = buf;

	memcpy(p, head, sizeof(head));
	p += sizeof(head);
	*p++ = 0xdc;
	*p++ = (uint8_t)(n >> 8);
	*p++ = (uint8_t)n;
	for (uint32_t i = 0; i < n; i++)
		p = put_token(p, t[i], width[i]);
	*p++ = 16;
	*p++ = 0xc0;
	return (size_t)(p - buf);
}

static void check_tokens(struct kvr_kvev_decoder *d, const uint32_t t[], const unsigned int width[],
			 uint32_t n)
{
	static uint8_t buf[2048];
	const size_t len = put_stored(buf, t, width, n);
	uint8_t *copy = malloc(len);
	struct kvr_kvev_batch batch;
	struct kvr_kvev ev = {0};

	memcpy(copy, buf, len); /* an exact copy: reads beyond it are detected */
	CU_ASSERT_EQUAL(kvr_kvev_open(d, copy, len, &batch), 0);
	CU_ASSERT_EQUAL_FATAL(kvr_kvev_next(d, &ev), 1);
	CU_ASSERT_EQUAL_FATAL(ev.n_tokens, n);
	CU_ASSERT_EQUAL(memcmp(ev.tokens, t, n * sizeof(t[0])), 0);
	CU_ASSERT_EQUAL(ev.block_size, 16);
	free(copy);
}

static void tokens_of_all_widths_are_read_in_any_order(void)
{
	static const unsigned int widths[] = {0, 1, 2, 4, 8, 2, 4, 2, 4, 2, 4};
	struct kvr_kvev_decoder *d = kvr_kvev_create(false);
	uint64_t x = 88172645463325252u;
	unsigned int width[160];
	uint32_t t[160];

	for (uint32_t run = 0; run < 4000; run++) {
		const uint32_t n = 1 + run % 160;

		for (uint32_t i = 0; i < n; i++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			width[i] = run % 3 == 1 && x % 64 != 0
					   ? 2u << (x >> 6 & 1) /* the common case */
					   : widths[x % (run % 3 == 0 ? 11 : 4)];
			t[i] = (uint32_t)(x >> 32);
			if (width[i] < 4)
				t[i] &= width[i] == 0 ? 0x7f : width[i] == 1 ? 0xff : 0xffff;
		}
		check_tokens(d, t, width, n);
	}
	kvr_kvev_destroy(d);
}

/* Lists are written several values at once, which must not exceed the list. */
static void nothing_is_written_behind_the_last_token(void)
{
	uint8_t in[5 * 64];
	uint32_t to[65];

	for (uint32_t n = 1; n <= 64; n++) {
		for (uint32_t wide = 0; wide < 2; wide++) {
			uint8_t *p = in;
			struct mp_in at = {in, in + sizeof(in)};

			memset(in, 0xcd,
			       sizeof(in)); /* the bytes behind the list look like tokens */
			for (uint32_t i = 0; i < n; i++)
				p = put_token(p, 0xcdce + i, wide ? 4 : 2);
			memset(to, 0xee, sizeof(to));
			CU_ASSERT_EQUAL(kvr_kvev__numbers(&at, n, to), n);
			CU_ASSERT_PTR_EQUAL(at.p, p);
			CU_ASSERT_EQUAL(to[n], 0xeeeeeeee);
			for (uint32_t i = 0; i < n; i++)
				CU_ASSERT_EQUAL(to[i], 0xcdce + i);
		}
	}
}

/* {"type": "BlockStored", "block_hashes": names of all widths, name: 9, "block_size": 16} */
static void block_and_field_names_are_compared_completely(void)
{
	static const uint8_t hashes[] = {0x96, 0xcf, 0x80, 0,	 0,    0,    0,	   0,	 0,
					 1,    0xd3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
					 0xfe, 0xce, 0,	   0,	 0,    3,    4,	   0xff, 0xcf,
					 0,    0,    0,	   0,	 0,    0,    0,	   6};
	static const uint64_t want[] = {UINT64_C(1) << 63 | 1, UINT64_MAX - 1, 3, 4, UINT64_MAX, 6};
	static const char *const strange[] = {"parent_block_hasH", "Parent_block_hash", "p"};
	struct kvr_kvev_decoder *d = kvr_kvev_create(false);

	for (unsigned int i = 0; i < sizeof(strange) / sizeof(strange[0]); i++) {
		static const char head[] = "\x92\x00\x91\x84\xa4type\xab"
					   "BlockStored\xac"
					   "block_hashes";
		static const char last[] = "\x09\xaa"
					   "block_size\x10";
		const size_t n = strlen(strange[i]);
		struct kvr_kvev_batch batch;
		struct kvr_kvev ev = {0};
		uint8_t buf[256], *p = buf;

		memcpy(p, head, sizeof(head) - 1);
		p += sizeof(head) - 1;
		memcpy(p, hashes, sizeof(hashes));
		p += sizeof(hashes);
		*p++ = (uint8_t)(0xa0 | n);
		memcpy(p, strange[i], n);
		p += n;
		memcpy(p, last, sizeof(last) - 1);
		p += sizeof(last) - 1;
		CU_ASSERT_EQUAL(kvr_kvev_open(d, buf, (size_t)(p - buf), &batch), 0);
		CU_ASSERT_EQUAL_FATAL(kvr_kvev_next(d, &ev), 1);
		CU_ASSERT_EQUAL_FATAL(ev.n_hashes, 6);
		CU_ASSERT_EQUAL(memcmp(ev.hashes, want, sizeof(want)), 0);
		CU_ASSERT_FALSE(ev.has_parent);
		CU_ASSERT_EQUAL(ev.block_size, 16);
		CU_ASSERT_EQUAL(ev.fault, KVR_KVEV_FINE);
		CU_ASSERT_EQUAL(kvr_kvev_next(d, &ev), 0);
	}
	kvr_kvev_destroy(d);
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(every_form_has_its_expected_changes),
		KVR_CASE(every_truncated_batch_is_rejected),
		KVR_CASE(the_rank_of_a_batch_is_read),
		KVR_CASE(claimed_sizes_allocate_nothing),
		KVR_CASE(a_removal_that_cannot_be_read_is_an_error),
		KVR_CASE(tokens_of_all_widths_are_read_in_any_order),
		KVR_CASE(nothing_is_written_behind_the_last_token),
		KVR_CASE(block_and_field_names_are_compared_completely),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("kvev", tests);
}
