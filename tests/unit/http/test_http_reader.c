/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_http_reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_test.h"

/* Trace of the callbacks: "200 name=value; |content". */
static char trace[3 * KVR_HTTP_MAX_HEAD];
static size_t trace_len;
static int head_rc, content_rc, heads;

static void add_trace(const char *p, size_t n)
{
	if (trace_len + n < sizeof(trace))
		memcpy(trace + trace_len, p, n);
	trace_len += n;
	trace[trace_len < sizeof(trace) ? trace_len : sizeof(trace) - 1] = '\0';
}

static int on_head(void *arg, const struct kvr_http_head *h)
{
	char status[16];

	CU_ASSERT_PTR_EQUAL(arg, trace);
	heads++;
	add_trace(status, (size_t)snprintf(status, sizeof(status), "%u ", h->status));
	for (unsigned int i = 0; i < h->n_fields; i++) {
		add_trace(h->fields[i].name.p, h->fields[i].name.len);
		add_trace("=", 1);
		add_trace(h->fields[i].value.p, h->fields[i].value.len);
		add_trace("; ", 2);
	}
	add_trace("|", 1);
	return head_rc;
}

static int on_content(void *arg, const char *data, size_t len)
{
	CU_ASSERT(arg == trace && len > 0);
	add_trace(data, len);
	return content_rc;
}

static const struct kvr_http_reader_ops ops = {.head = on_head, .content = on_content};

struct outcome {
	int rc;
	bool keeps;
};

/*
 * Feed bytes in pieces of @p step, each in memory of its own, until the response is complete; then
 * the end of the connection if @p ends.
 */
static struct outcome read_bytes(const char *text, size_t len, size_t step, bool is_head, bool ends)
{
	struct kvr_http_reader r;
	struct outcome o = {0};

	trace_len = 0;
	heads = 0;
	trace[0] = '\0';
	kvr_http_reader_init(&r, &ops, trace, is_head);
	for (size_t at = 0; at < len && o.rc == 0; at += step) {
		const size_t n = len - at < step ? len - at : step;
		char *piece = malloc(n);

		memcpy(piece, text + at, n);
		o.rc = kvr_http_reader_add(&r, piece, n);
		free(piece);
	}
	if (o.rc == 0 && ends)
		o.rc = kvr_http_reader_end(&r);
	o.keeps = kvr_http_reader_keeps(&r);
	kvr_http_reader_fini(&r);
	return o;
}

static struct outcome read_text(const char *text, bool ends)
{
	return read_bytes(text, strlen(text), strlen(text), false, ends);
}

static const struct {
	const char *text, *trace;
	bool keeps;
} answers[] = {
	{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nA: b \r\n\r\nhello",
	 "200 Content-Length=5; A=b; |hello", true},
	{"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "200 content-length=0; |", true},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: "
	 "Chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n",
	 "200 Transfer-Encoding=Chunked; |abc0123456789", true},
	{"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx-sum: 3\r\n\r\n",
	 "200 transfer-encoding=chunked; |a", true},
	{"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi",
	 "200 connection=close; content-length=2; |hi", false},
	{"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nhi", "200 content-length=2; |hi", false},
	{"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nhi",
	 "200 connection=keep-alive; content-length=2; |hi", true},
	{"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
	 "HTTP/1.1 404 Not Found\r\ncontent-length: 1\r\n\r\n!",
	 "404 content-length=1; |!", true},
	{"HTTP/1.1 204 No Content\r\ncontent-length: 7\r\n\r\n", "204 content-length=7; |", true},
	{"HTTP/1.1 304 Not Modified\r\ncontent-length: 7\r\n\r\n", "304 content-length=7; |", true},
	{"HTTP/1.1 200 OK\ncontent-length: 2\n\nhi", "200 content-length=2; |hi", true},
	{"\r\nHTTP/1.1 200\r\ncontent-length: 2\r\n\r\nhi", "200 content-length=2; |hi", true},
};

static void answers_read_the_same_wherever_they_are_cut(void)
{
	for (unsigned int i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
		const size_t len = strlen(answers[i].text);

		for (size_t step = 1; step <= len; step++) {
			const struct outcome o =
				read_bytes(answers[i].text, len, step, false, false);

			CU_ASSERT_EQUAL(o.rc, 1);
			CU_ASSERT_EQUAL(o.keeps, answers[i].keeps);
			CU_ASSERT_STRING_EQUAL(trace, answers[i].trace);
			CU_ASSERT_EQUAL(heads, 1);
			if (o.rc != 1 || strcmp(trace, answers[i].trace) != 0)
				fprintf(stderr, "\n%s\nstep %zu: %d %s\n", answers[i].text, step,
					o.rc, trace);
		}
	}
}

static void an_answer_without_a_length_ends_with_its_connection(void)
{
	static const char text[] = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nhello";

	for (size_t step = 1; step < sizeof(text); step++) {
		struct outcome o = read_bytes(text, sizeof(text) - 1, step, false, false);

		CU_ASSERT_EQUAL(o.rc, 0);
		o = read_bytes(text, sizeof(text) - 1, step, false, true);
		CU_ASSERT(o.rc == 1 && !o.keeps);
		CU_ASSERT_STRING_EQUAL(trace, "200 content-type=text/plain; |hello");
	}
}

static void a_truncated_answer_is_reported(void)
{
	for (unsigned int i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
		for (size_t n = 0; n < strlen(answers[i].text); n++) {
			const struct outcome o = read_bytes(answers[i].text, n, n + 1, false, true);

			CU_ASSERT(o.rc == -EPIPE && !o.keeps);
		}
}

static void a_response_to_head_has_no_content(void)
{
	static const char text[] = "HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n";
	const struct outcome o = read_bytes(text, sizeof(text) - 1, 3, true, false);

	CU_ASSERT(o.rc == 1 && o.keeps);
	CU_ASSERT_STRING_EQUAL(trace, "200 content-length=500; |");
}

static void a_connection_with_surplus_bytes_is_not_reused(void)
{
	struct outcome o = read_text(
		"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\n", false);

	CU_ASSERT(o.rc == 1 && !o.keeps);
	CU_ASSERT_STRING_EQUAL(trace, "200 content-length=2; |hi");
	o = read_text("HTTP/1.1 204 x\r\n\r\ncontent", false);
	CU_ASSERT(o.rc == 1 && !o.keeps);
	CU_ASSERT_STRING_EQUAL(trace, "204 |");
}

static void malformed_answers_are_rejected(void)
{
	static const char *const bad[] = {
		"hello, world\r\n\r\n",
		"\r\n\r\n",
		"SSH-2.0-x\r\n\r\n",
		"POST / HTTP/1.1\r\n\r\n",
		"HTTP/2.0 200 OK\r\n\r\n",
		"HTTP/1.2 200 OK\r\n\r\n",
		"HTTP/1.1 20 OK\r\n\r\n",
		"HTTP/1.1 099 OK\r\n\r\n",
		"HTTP/1.1 2000 OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\na b: c\r\n\r\n",
		"HTTP/1.1 200 OK\r\n: c\r\n\r\n",
		"HTTP/1.1 204 No Content\r\na b: c\r\n\r\n",
		"HTTP/1.1 200 OK\r\na: b\r\n c\r\n\r\n",
		"HTTP/1.1 200 OK\r\na: b\x01\r\n\r\n",
		"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
		"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
		"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n",
		"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n",
		"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
		"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n",
		"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nx\r\n",
		"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-1\r\n",
		"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcd\r\n",
		"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n11111111111111111\r\n",
	};

	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		for (size_t step = 1; step <= strlen(bad[i]); step++) {
			const struct outcome o =
				read_bytes(bad[i], strlen(bad[i]), step, false, false);

			CU_ASSERT(o.rc == -EBADMSG && !o.keeps);
			if (o.rc != -EBADMSG)
				fprintf(stderr, "\n%s\nstep %zu: %d\n", bad[i], step, o.rc);
		}
}

static void a_switch_of_protocols_is_rejected(void)
{
	static const char *const other[] = {
		"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nrubbish",
		"HTTP/1.1 101 Switching\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
		"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 101 Switching\r\nupgrade: x\r\n\r\n",
	};

	for (unsigned int i = 0; i < sizeof(other) / sizeof(other[0]); i++)
		for (size_t step = 1; step <= strlen(other[i]); step++) {
			const struct outcome o =
				read_bytes(other[i], strlen(other[i]), step, false, false);

			CU_ASSERT(o.rc == -EPROTO && !o.keeps);
			CU_ASSERT_STRING_EQUAL(trace, "");
		}
}

static void heads_are_bounded(void)
{
	static char text[2 * KVR_HTTP_MAX_HEAD];
	const char *start = "HTTP/1.1 204 x\r\na: ";

	memset(text, 'b', sizeof(text));
	memcpy(text, start, strlen(start));
	memcpy(text + KVR_HTTP_MAX_HEAD - 4, "\r\n\r\n", 4);
	for (size_t step = 1; step < 70000; step = step * 3 + 1)
		CU_ASSERT_EQUAL(read_bytes(text, KVR_HTTP_MAX_HEAD, step, false, false).rc, 1);
	memcpy(text + KVR_HTTP_MAX_HEAD - 4, "bbbb\r\n\r\n", 8);
	for (size_t step = 1; step < 70000; step = step * 3 + 1)
		CU_ASSERT_EQUAL(read_bytes(text, KVR_HTTP_MAX_HEAD + 4, step, false, false).rc,
				-E2BIG);
}

static void a_callback_may_end_reading(void)
{
	static const char text[] = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";

	head_rc = -ECANCELED;
	CU_ASSERT_EQUAL(read_text(text, false).rc, -ECANCELED);
	CU_ASSERT_STRING_EQUAL(trace, "200 content-length=5; |");
	head_rc = 0;
	content_rc = -EOVERFLOW;
	CU_ASSERT_EQUAL(read_text(text, false).rc, -EOVERFLOW);
	CU_ASSERT_EQUAL(read_bytes(text, sizeof(text) - 1, 1, false, false).rc, -EOVERFLOW);
	CU_ASSERT_STRING_EQUAL(trace, "200 content-length=5; |h");
	content_rc = 0;
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(answers_read_the_same_wherever_they_are_cut),
		KVR_CASE(an_answer_without_a_length_ends_with_its_connection),
		KVR_CASE(a_truncated_answer_is_reported),
		KVR_CASE(a_response_to_head_has_no_content),
		KVR_CASE(a_connection_with_surplus_bytes_is_not_reused),
		KVR_CASE(malformed_answers_are_rejected),
		KVR_CASE(a_switch_of_protocols_is_rejected),
		KVR_CASE(heads_are_bounded),
		KVR_CASE(a_callback_may_end_reading),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("http_reader", tests);
}
