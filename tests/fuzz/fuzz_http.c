/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzz target: the head of a message, an add_event stream, and the answer on a connection. The
 * first byte selects one. An accepted head is written again and must parse to the same; a stream
 * and an answer must give the same result for any cuts.
 */
#include "fuzz.h"

#include "kvr_http_reader.h"
#include "kvr_sse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRE(x)                                                                                 \
	do {                                                                                       \
		if (!(x))                                                                          \
			abort();                                                                   \
	} while (0)

static bool is_inside(struct kvr_http_span s, const uint8_t *data, uint32_t len)
{
	return s.len == 0 || (s.p >= (const char *)data && s.p + s.len <= (const char *)data + len);
}

static void use_head(const uint8_t *data, size_t size, bool response)
{
	static char again[2 * KVR_HTTP_MAX_HEAD];
	static struct kvr_http_head h, g;
	struct kvr_http_put w;
	int n = response ? kvr_http_parse_response(data, size, &h)
			 : kvr_http_parse_request(data, size, &h);

	if (n < 0)
		return;
	REQUIRE(h.len <= size && h.len <= KVR_HTTP_MAX_HEAD && h.n_fields <= KVR_HTTP_MAX_FIELDS);
	kvr_http_put_response(&w, again, sizeof(again), 200);
	for (unsigned int i = 0; i < h.n_fields; i++) {
		REQUIRE(is_inside(h.fields[i].name, data, h.len));
		REQUIRE(is_inside(h.fields[i].value, data, h.len));
		kvr_http_put_field(&w, h.fields[i].name.p, h.fields[i].name.len,
				   h.fields[i].value.p, h.fields[i].value.len);
	}
	n = kvr_http_put_end(&w);
	if (n == -ENOSPC) /* the written head has one more blank per line */
		return;
	REQUIRE(n > 0 && kvr_http_parse_response(again, (size_t)n, &g) == 0 &&
		g.n_fields == h.n_fields);
	for (unsigned int i = 0; i < h.n_fields; i++)
		REQUIRE(g.fields[i].value.len == h.fields[i].value.len &&
			memcmp(g.fields[i].value.p, h.fields[i].value.p, g.fields[i].value.len) ==
				0);
}

struct sum {
	uint64_t hash, n;
};

static void add_event(void *arg, const char *data, uint32_t len, bool cut)
{
	struct sum *s = arg;

	s->n++;
	for (uint32_t i = 0; i < len; i++)
		s->hash = s->hash * 31 + (uint8_t)data[i];
	s->hash = s->hash * 31 + cut;
}

static struct sum read_stream(const uint8_t *data, size_t size, size_t step)
{
	struct sum sum = {0};
	struct kvr_sse s;
	char buf[40];

	kvr_sse_init(&s, buf, sizeof(buf));
	for (size_t at = 0; at < size; at += step)
		kvr_sse_add(&s, data + at, size - at < step ? size - at : step, add_event, &sum);
	return sum;
}

static int answer_head(void *arg, const struct kvr_http_head *h)
{
	REQUIRE(h->status >= 200 && h->n_fields <= KVR_HTTP_MAX_FIELDS);
	for (unsigned int i = 0; i < h->n_fields; i++) {
		add_event(arg, h->fields[i].name.p, h->fields[i].name.len, false);
		add_event(arg, h->fields[i].value.p, h->fields[i].value.len, true);
	}
	return 0;
}

static int answer_content(void *arg, const char *data, size_t len)
{
	struct sum *s = arg;

	for (size_t i = 0; i < len; i++)
		s->hash = s->hash * 31 + (uint8_t)data[i];
	return 0;
}

/* @return how it ended; the content until then is summed up in @p sum. */
static int read_answer(const uint8_t *data, size_t size, size_t step, bool is_head, struct sum *sum)
{
	static const struct kvr_http_reader_ops ops = {answer_head, answer_content};
	struct kvr_http_reader r;
	int rc = 0;

	*sum = (struct sum){0};
	kvr_http_reader_init(&r, &ops, sum, is_head);
	for (size_t at = 0; at < size && rc == 0; at += step)
		rc = kvr_http_reader_add(&r, data + at, size - at < step ? size - at : step);
	if (rc == 0)
		rc = kvr_http_reader_end(&r);
	REQUIRE(rc != 0 && rc <= 1 && (rc == 1 || !kvr_http_reader_keeps(&r)));
	kvr_http_reader_fini(&r);
	return rc;
}

static void use_answer(const uint8_t *data, size_t size, bool is_head)
{
	struct sum whole, bytes;
	const int rc = read_answer(data, size, size, is_head, &whole);

	REQUIRE(rc == read_answer(data, size, 1, is_head, &bytes));
	REQUIRE(whole.n == bytes.n && whole.hash == bytes.hash);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sum whole, bytes;

	if (size < 2)
		return 0;
	if (data[0] >= 0x80) {
		use_answer(data + 1, size - 1, data[0] == 0x81);
		return 0;
	}
	if (data[0] % 3 < 2) {
		use_head(data + 1, size - 1, data[0] % 3 == 1);
		return 0;
	}
	whole = read_stream(data + 1, size - 1, size);
	bytes = read_stream(data + 1, size - 1, 1);
	REQUIRE(whole.n == bytes.n && whole.hash == bytes.hash);
	return 0;
}
