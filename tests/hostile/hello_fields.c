/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Row 40: whatever is wrong with a HELLO, the worker and the log are told the field, what was said,
 * and what is needed; the log no more often than it can bear.
 */
#include "pipeline.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "control/control.h"
#include "control/log.h"
#include "kvr_put.h"
#include "kvr_test.h"

static int pipe_fd[2];
static char said[1 << 16];

/* What a HELLO is made of; a test changes what it wants wrong. */
struct hello {
	struct kvr_wire_hello w;
	uint64_t id;
	uint32_t epoch, from;
	const char *pool, *topology, *host;
	uint16_t port;
};

static struct hello good(void)
{
	return (struct hello){
		.w = {.block_size = 4, .dp_size = 1, .total_kv_blocks = 100, .max_frame = 1432},
		.id = 9,
		.epoch = 5,
		.from = PEER_AGENT,
		.pool = "a",
	};
}

/* Send it. @return the REJECTED, code 0 when there is none; its text. */
static struct kvr_wire_rejected hello(const struct hello *h, char text[300])
{
	const struct kvr_wire_ids ids = {.source = h->id, .id = 1, .epoch = h->epoch};
	struct kvr_wire_rejected r = {0};
	uint8_t tlv[1024], buf[1400];
	struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};
	const struct out *o;

	pipeline_flush();
	kvr_hint_put_str(&hints, KVR_HINT_POOL, h->pool);
	if (h->topology != NULL)
		kvr_hint_put_str(&hints, KVR_HINT_TOPOLOGY, h->topology);
	if (h->host != NULL)
		kvr_hint_put_bootstrap_addr(&hints, h->port, h->host);
	pipeline_send(h->from, buf, (size_t)kvr_put_hello(buf, sizeof(buf), &ids, h->w, &hints));
	pipeline_turn();
	text[0] = '\0';
	o = pipeline_expect(h->from, KVR_REJECTED);
	if (o == NULL)
		return r;
	memcpy(&r, &o->hdr + 1, sizeof(r));
	snprintf(text, 300, "%.*s", (int)r.text_len,
		 (const char *)&o->hdr + sizeof(o->hdr) + sizeof(r));
	return r;
}

/* Everything that has been logged since the last time. */
static const char *logged(void)
{
	ssize_t n;

	log_flush(10000);
	n = read(pipe_fd[0], said, sizeof(said) - 1);
	said[n < 0 ? 0 : n] = '\0';
	return said;
}

static const char *escaped(const char *words)
{
	static char out[600];
	size_t n = 0;

	for (; *words != '\0' && n < sizeof(out) - 3; words++) {
		if (*words == '"')
			out[n++] = '\\';
		out[n++] = *words;
	}
	out[n] = '\0';
	return out;
}

/* It is refused with these words and numbers, and the log says so. */
static void refused(const struct hello *h, enum kvr_code code, const char *words, uint64_t d0,
		    uint64_t d1)
{
	char text[300], line[800];
	const char *at;
	struct kvr_wire_rejected r;

	logged();
	r = hello(h, text);
	CU_ASSERT_EQUAL(r.code, code);
	CU_ASSERT_STRING_EQUAL(text, words);
	CU_ASSERT_EQUAL(r.detail[0], d0);
	CU_ASSERT_EQUAL(r.detail[1], d1);
	snprintf(line, sizeof(line), " level=warning msg=\"worker %u refused: %s\" worker=%u addr=",
		 (unsigned int)h->id, escaped(words), (unsigned int)h->id);
	at = strstr(logged(), line);
	CU_ASSERT_PTR_NOT_NULL_FATAL(at);
	snprintf(line, sizeof(line), " reason=%s\n", kvr_code_name(code));
	at = strstr(at + 1, line);
	CU_ASSERT_PTR_NOT_NULL_FATAL(at);
	CU_ASSERT_STRING_EQUAL(at, line); /* the only line */
}

static void every_field_that_does_not_fit_is_named(void)
{
	char far[256];
	struct hello h;

	pipeline_start(2);
	h = good();
	h.w.block_size = 32;
	refused(&h, KVR_E_WORKER_CONFIG, "block_size: got 32, pool a has 4", 32, 4);
	h = good();
	h.id = 10;
	h.w.role = KVR_ROLE_DECODE;
	refused(&h, KVR_E_WORKER_CONFIG, "role: got decode, pool a is aggregated", h.w.role, 0);
	h = good();
	h.id = 11;
	h.w.dp_size = KVR_WORKER_MAX_RANKS + 1;
	refused(&h, KVR_E_WORKER_CONFIG, "dp_size: got 257, allowed: 1 to 256 ranks", 257, 256);
	h = good();
	h.id = 13;
	h.host = "engine-13";
	refused(&h, KVR_E_WORKER_CONFIG,
		"bootstrap: got host \"engine-13\" with port 0, allowed: 1 to 65535", 0, 1);
	h = good();
	h.id = 14;
	memset(far, 'z', sizeof(far) - 1);
	far[0] = 'r';
	far[1] = '=';
	far[250] = '\0';
	h.topology = far;
	refused(&h, KVR_E_WORKER_CONFIG, "topology: got an entry of 250 bytes, allowed: 239", 250,
		239);
	h = good();
	h.id = 15;
	h.pool = "ab";
	refused(&h, KVR_E_UNKNOWN_POOL, "pool: got \"ab\", this router has a, b", 0, 0);
	h = good();
	h.id = 16;
	h.w.dp_size = 65;
	refused(&h, KVR_E_WORKER_LIMIT,
		"no room: [router] max_workers 128, there are 0; pool a: max_workers 64, there are "
		"0, max_ranks 64, there are 0",
		0, 128);
	pipeline_stop();
}

/* What no pool could take is refused at ingress, which logs nothing. */
static void out_of_range(const struct hello *h, const char *words, uint64_t d0, uint64_t d1)
{
	char text[300];
	const struct kvr_wire_rejected r = hello(h, text);

	CU_ASSERT_EQUAL(r.code, KVR_E_INVALID_REQUEST);
	CU_ASSERT_STRING_EQUAL(text, words);
	CU_ASSERT_EQUAL(r.detail[0], d0);
	CU_ASSERT_EQUAL(r.detail[1], d1);
}

static void values_that_nobody_may_have_are_named(void)
{
	struct hello h;

	pipeline_start(1);
	h = good();
	h.w.role = 3;
	out_of_range(&h, "role out of range", 3, 2);
	h = good();
	h.w.block_size = 0;
	out_of_range(&h, "block_size out of range", 0, UINT32_MAX);
	h = good();
	h.w.dp_start = 7;
	h.w.dp_size = 0;
	out_of_range(&h, "dp_start and dp_size out of range", 0, UINT32_MAX - 7);
	h = good();
	h.w.max_frame = 100;
	out_of_range(&h, "max_frame out of range", 100, KVR_WIRE_MAX_FRAME);
	pipeline_stop();
}

static void a_life_that_may_not_be_is_named(void)
{
	struct hello h;
	char text[300];

	pipeline_start(1);
	h = good();
	CU_ASSERT_EQUAL_FATAL(hello(&h, text).code, 0);
	h.epoch = 4;
	refused(&h, KVR_E_STALE_EPOCH, "epoch: got 4, the last life had 5; a new one has a greater",
		5, 0);
	h = good();
	h.w.boot = 77; /* another process has come back with the epoch of that one */
	refused(&h, KVR_E_STALE_EPOCH, "epoch: got 5, the last life had 5; a new one has a greater",
		5, 0);
	h = good();
	h.w.total_kv_blocks = 7;
	refused(&h, KVR_E_WORKER_CONFIG, "a life does not change: HELLO needs a greater epoch", 0,
		0);
	h = good();
	h.from = PEER_OTHER;
	h.epoch = 6;
	refused(&h, KVR_E_WORKER_ALIVE, "another address speaks for this worker",
		rt->conf.opt.suspect_ms, 0);
	pipeline_stop();
}

/* A worker that says the wrong thing for ever is not what the log is full of. */
static void the_log_of_a_worker_is_bounded(void)
{
	struct log_counts before, after;
	struct hello h = good();
	char text[300];

	pipeline_start(1);
	h.id = 77;
	h.w.block_size = 32;
	log_counts(&before);
	for (int i = 0; i < 300; i++) {
		CU_ASSERT_EQUAL(hello(&h, text).code, KVR_E_WORKER_CONFIG);
		CU_ASSERT_STRING_EQUAL(text, "block_size: got 32, pool a has 4");
	}
	log_counts(&after);
	CU_ASSERT(after.lines - before.lines >= LOG_WORKER_BURST);
	CU_ASSERT_EQUAL(after.lines + after.rate_limited, before.lines + before.rate_limited + 300);
	CU_ASSERT(after.rate_limited > before.rate_limited);
	pipeline_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {{"fields", every_field_that_does_not_fit_is_named},
			       {"values", values_that_nobody_may_have_are_named},
			       {"lives", a_life_that_may_not_be_is_named},
			       {"bounded", the_log_of_a_worker_is_bounded},
			       CU_TEST_INFO_NULL};

	if (pipe2(pipe_fd, O_NONBLOCK) != 0 ||
	    log_open(KVR_LOG_TO_STDERR, pipe_fd[1], NULL, false) != 0)
		return 1;
	return kvr_test_run("hello_fields", tests);
}
