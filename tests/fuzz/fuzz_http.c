/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzz target: the head of a message, and a stream of events. The first byte chooses. A head that
 * passes is written again and must read the same; a stream must be the same whatever the cuts.
 */
#include "fuzz.h"

#include "kvr_http.h"
#include "kvr_sse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRE(x)                                                                                 \
	do {                                                                                       \
		if (!(x))                                                                          \
			abort();                                                                   \
	} while (0)

static bool inside(struct kvr_http_span s, const uint8_t *data, uint32_t len)
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
		REQUIRE(inside(h.fields[i].name, data, h.len));
		REQUIRE(inside(h.fields[i].value, data, h.len));
		kvr_http_put_field(&w, h.fields[i].name.p, h.fields[i].name.len,
				   h.fields[i].value.p, h.fields[i].value.len);
	}
	n = kvr_http_put_end(&w);
	if (n == -ENOSPC) /* ours has a blank more in each line */
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

static void event(void *arg, const char *data, uint32_t len, bool cut)
{
	struct sum *s = arg;

	s->n++;
	for (uint32_t i = 0; i < len; i++)
		s->hash = s->hash * 31 + (uint8_t)data[i];
	s->hash = s->hash * 31 + cut;
}

static struct sum stream(const uint8_t *data, size_t size, size_t step)
{
	struct sum sum = {0};
	struct kvr_sse s;
	char buf[40];

	kvr_sse_init(&s, buf, sizeof(buf));
	for (size_t at = 0; at < size; at += step)
		kvr_sse_add(&s, data + at, size - at < step ? size - at : step, event, &sum);
	return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sum whole, bytes;

	if (size < 2)
		return 0;
	if (data[0] % 3 < 2) {
		use_head(data + 1, size - 1, data[0] % 3 == 1);
		return 0;
	}
	whole = stream(data + 1, size - 1, size);
	bytes = stream(data + 1, size - 1, 1);
	REQUIRE(whole.n == bytes.n && whole.hash == bytes.hash);
	return 0;
}
