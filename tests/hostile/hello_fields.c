/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For every invalid HELLO, the worker and the log get the field, its value and the allowed
 * values. The log is rate limited.
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

/* The parts of a HELLO; a test changes the one that should be wrong. */
struct hello {
	struct kvr_wire_hello w;
	uint64_t id;
	uint32_t epoch, from;
	const char *pool, *topology, *host;
	uint16_t port;
};

static struct hello make_good_hello(void)
{
	return (struct hello){
		.w = {.block_size = 4, .dp_size = 1, .total_kv_blocks = 100, .max_frame = 1432},
		.id = 9,
		.epoch = 5,
		.from = PEER_AGENT,
		.pool = "a",
	};
}

/* Send it. @return the REJECTED, code 0 if there is none, and its text. */
static struct kvr_wire_rejected send_hello_of(const struct hello *h, char text[300])
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

/* Log output since the last call. */
static const char *read_log(void)
{
	ssize_t n;

	log_flush(10000);
	n = read(pipe_fd[0], said, sizeof(said) - 1);
	said[n < 0 ? 0 : n] = '\0';
	return said;
}

static const char *escape_text(const char *words)
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

/* Expect a rejection with this text and these numbers, and a log line with the same. */
static void expect_hello_rejected(const struct hello *h, enum kvr_code code, const char *words,
				  uint64_t d0, uint64_t d1)
{
	char text[300], line[800];
	const char *at;
	struct kvr_wire_rejected r;

	read_log();
	r = send_hello_of(h, text);
	CU_ASSERT_EQUAL(r.code, code);
	CU_ASSERT_STRING_EQUAL(text, words);
	CU_ASSERT_EQUAL(r.detail[0], d0);
	CU_ASSERT_EQUAL(r.detail[1], d1);
	snprintf(line, sizeof(line),
		 " level=warning msg=\"worker %u rejected: %s\" worker=%u addr=",
		 (unsigned int)h->id, escape_text(words), (unsigned int)h->id);
	at = strstr(read_log(), line);
	CU_ASSERT_PTR_NOT_NULL_FATAL(at);
	snprintf(line, sizeof(line), " reason=%s\n", kvr_code_name(code));
	at = strstr(at + 1, line);
	CU_ASSERT_PTR_NOT_NULL_FATAL(at);
	CU_ASSERT_STRING_EQUAL(at, line); /* the only line */
}

static void every_mismatched_field_is_named(void)
{
	char far[256];
	struct hello h;

	pipeline_start(2);
	h = make_good_hello();
	h.w.block_size = 32;
	expect_hello_rejected(&h, KVR_E_WORKER_CONFIG, "block_size: got 32, pool a has 4", 32, 4);
	h = make_good_hello();
	h.id = 10;
	h.w.role = KVR_ROLE_DECODE;
	expect_hello_rejected(&h, KVR_E_WORKER_CONFIG, "role: got decode, pool a is aggregated",
			      h.w.role, 0);
	h = make_good_hello();
	h.id = 11;
	h.w.dp_size = KVR_WORKER_MAX_RANKS + 1;
	expect_hello_rejected(&h, KVR_E_WORKER_CONFIG, "dp_size: got 257, allowed: 1 to 256 ranks",
			      257, 256);
	h = make_good_hello();
	h.id = 13;
	h.host = "engine-13";
	expect_hello_rejected(&h, KVR_E_WORKER_CONFIG,
			      "bootstrap: got host \"engine-13\" with port 0, allowed: 1 to 65535",
			      0, 1);
	h = make_good_hello();
	h.id = 14;
	memset(far, 'z', sizeof(far) - 1);
	far[0] = 'r';
	far[1] = '=';
	far[250] = '\0';
	h.topology = far;
	expect_hello_rejected(&h, KVR_E_WORKER_CONFIG,
			      "topology: got an entry of 250 bytes, allowed: 239", 250, 239);
	h = make_good_hello();
	h.id = 15;
	h.pool = "ab";
	expect_hello_rejected(&h, KVR_E_UNKNOWN_POOL, "pool: got \"ab\", this router has a, b", 0,
			      0);
	h = make_good_hello();
	h.id = 16;
	h.w.dp_size = 65;
	expect_hello_rejected(
		&h, KVR_E_WORKER_LIMIT,
		"limit reached: [router] max_workers 128, registered 0; pool a: max_workers 64, registered 0, max_ranks 64, registered 0",
		0, 128);
	pipeline_stop();
}

/* A HELLO that no pool could accept is rejected at ingress, without a log line. */
static void expect_out_of_range(const struct hello *h, const char *words, uint64_t d0, uint64_t d1)
{
	char text[300];
	const struct kvr_wire_rejected r = send_hello_of(h, text);

	CU_ASSERT_EQUAL(r.code, KVR_E_INVALID_REQUEST);
	CU_ASSERT_STRING_EQUAL(text, words);
	CU_ASSERT_EQUAL(r.detail[0], d0);
	CU_ASSERT_EQUAL(r.detail[1], d1);
}

static void values_out_of_range_are_named(void)
{
	struct hello h;

	pipeline_start(1);
	h = make_good_hello();
	h.w.role = 3;
	expect_out_of_range(&h, "role out of range", 3, 2);
	h = make_good_hello();
	h.w.block_size = 0;
	expect_out_of_range(&h, "block_size out of range", 0, UINT32_MAX);
	h = make_good_hello();
	h.w.dp_start = 7;
	h.w.dp_size = 0;
	expect_out_of_range(&h, "dp_start and dp_size out of range", 0, UINT32_MAX - 7);
	h = make_good_hello();
	h.w.max_frame = 100;
	expect_out_of_range(&h, "max_frame out of range", 100, KVR_WIRE_MAX_FRAME);
	pipeline_stop();
}

static void an_invalid_epoch_is_named(void)
{
	struct hello h;
	char text[300];

	pipeline_start(1);
	h = make_good_hello();
	CU_ASSERT_EQUAL_FATAL(send_hello_of(&h, text).code, 0);
	h.epoch = 4;
	expect_hello_rejected(&h, KVR_E_STALE_EPOCH,
			      "epoch: got 4, needed: greater than 5, that of the last incarnation",
			      5, 0);
	h = make_good_hello();
	h.w.boot = 77; /* another process with the same epoch */
	expect_hello_rejected(&h, KVR_E_STALE_EPOCH,
			      "epoch: got 5, needed: greater than 5, that of the last incarnation",
			      5, 0);
	h = make_good_hello();
	h.w.total_kv_blocks = 7;
	expect_hello_rejected(&h, KVR_E_WORKER_CONFIG,
			      "HELLO changed within an epoch; restart with a greater epoch", 0, 0);
	h = make_good_hello();
	h.from = PEER_OTHER;
	h.epoch = 6;
	expect_hello_rejected(&h, KVR_E_WORKER_ALIVE,
			      "this worker is registered from another address",
			      rt->conf.opt.suspect_ms, 0);
	pipeline_stop();
}

/* A worker that keeps sending invalid HELLOs does not fill the log. */
static void log_lines_of_a_worker_are_rate_limited(void)
{
	struct log_counts before, after;
	struct hello h = make_good_hello();
	char text[300];

	pipeline_start(1);
	h.id = 77;
	h.w.block_size = 32;
	log_counts(&before);
	for (int i = 0; i < 300; i++) {
		CU_ASSERT_EQUAL(send_hello_of(&h, text).code, KVR_E_WORKER_CONFIG);
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
	CU_TestInfo tests[] = {KVR_CASE(every_mismatched_field_is_named),
			       KVR_CASE(values_out_of_range_are_named),
			       KVR_CASE(an_invalid_epoch_is_named),
			       KVR_CASE(log_lines_of_a_worker_are_rate_limited), CU_TEST_INFO_NULL};

	if (pipe2(pipe_fd, O_NONBLOCK) != 0 ||
	    log_open(KVR_LOG_TO_STDERR, pipe_fd[1], NULL, false) != 0)
		return 1;
	return kvr_test_run("hello_fields", tests);
}
