/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_http.h"

#include <errno.h>
#include <string.h>

#include "kvr_test.h"

static struct kvr_http_head head;

static int parse_request(const char *text)
{
	return kvr_http_parse_request(text, strlen(text), &head);
}

static int parse_response(const char *text)
{
	return kvr_http_parse_response(text, strlen(text), &head);
}

static bool equals_text(struct kvr_http_span s, const char *text)
{
	return s.len == strlen(text) && memcmp(s.p, text, s.len) == 0;
}

static void a_request_is_read_in_place(void)
{
	static const char text[] = "POST /v1/chat/completions?x=1 HTTP/1.1\r\n"
				   "Content-Type: application/json \r\n"
				   "X-Empty:\r\n\r\n{\"a\":\"\r\n\r\n\"}";

	CU_ASSERT_EQUAL_FATAL(parse_request(text), 0);
	CU_ASSERT(equals_text(head.method, "POST") &&
		  equals_text(head.target, "/v1/chat/completions?x=1"));
	CU_ASSERT_EQUAL(head.n_fields, 2);
	CU_ASSERT_PTR_NOT_NULL_FATAL(kvr_http_find(&head, "content-TYPE"));
	CU_ASSERT(equals_text(kvr_http_find(&head, "content-type")->value, "application/json"));
	CU_ASSERT_EQUAL(kvr_http_find(&head, "x-empty")->value.len, 0);
	CU_ASSERT_PTR_NULL(kvr_http_find(&head, "accept"));
	CU_ASSERT_STRING_EQUAL(text + head.len, "{\"a\":\"\r\n\r\n\"}");
	CU_ASSERT_EQUAL(parse_request("GET / HTTP/1.1\r\n\r\n"), 0);
	CU_ASSERT_EQUAL(head.n_fields, 0);
}

static void a_response_is_read_in_place(void)
{
	CU_ASSERT_EQUAL_FATAL(
		parse_response("HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\n\r\nbody"), 0);
	CU_ASSERT(head.status == 429 && head.n_fields == 1 && head.len == 50);
	CU_ASSERT_EQUAL(parse_response("HTTP/1.1 200 \r\n\r\n"), 0);
	CU_ASSERT_EQUAL(head.status, 200);
	CU_ASSERT_EQUAL(parse_response("HTTP/1.1 299\r\n\r\n"), 0);
	CU_ASSERT_EQUAL(head.status, 299);
	CU_ASSERT_EQUAL(parse_response("HTTP/1.1 204 No Content\r\n\r\n"), 0);
}

static void an_incomplete_head_needs_more_bytes(void)
{
	static const char text[] = "POST /x HTTP/1.1\r\na: b\r\n\r\n";

	for (size_t n = 0; n < sizeof(text) - 1; n++)
		CU_ASSERT_EQUAL(kvr_http_parse_request(text, n, &head), -EAGAIN);
	CU_ASSERT_EQUAL(kvr_http_parse_request(text, sizeof(text) - 1, &head), 0);
}

static void hostile_heads_are_rejected(void)
{
	static const char *const bad[] = {
		"POST /x HTTP/1.0\r\n\r\n",
		"POST /x HTTP/2.0\r\n\r\n",
		"POST  HTTP/1.1\r\n\r\n",
		"/x HTTP/1.1\r\n\r\n",
		"POST /x\r\n\r\n",
		"GARBAGE\r\n\r\n",
		"\r\n\r\n",
		"POST /x HTTP/1.1\r\na b: c\r\n\r\n",
		"POST /x HTTP/1.1\r\n: c\r\n\r\n",
		"POST /x HTTP/1.1\r\na: b\n\nGET / HTTP/1.1\r\n\r\n",
		"POST /x HTTP/1.1\r\na: b\r\n more\r\n\r\n",
		"POST /x HTTP/1.1\r\na: b\x01\r\n\r\n",
		"POST /x HTTP/1.1\r\na\r\n\r\n",
		"POST /x HTTP/1.1\r\nContent-Length: 5\r\n\r\n",
		"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
		"POST /x HTTP/1.1\r\nConnection: close\r\n\r\n",
		"POST /x HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST /x HTTP/1.1\r\nUpgrade: h2c\r\n\r\n",
		"POST /x HTTP/1.1\r\nproxy-authorization: x\r\n\r\n",
		"POST /a b HTTP/1.1\r\n\r\n",
		"HTTP/1.1 200 OK\r\n\r\n",
	};

	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CU_ASSERT_EQUAL(parse_request(bad[i]), -EBADMSG);
		if (parse_request(bad[i]) != -EBADMSG)
			fprintf(stderr, "\n%s\n", bad[i]);
	}
	CU_ASSERT_EQUAL(kvr_http_parse_request("POST /x HTTP/1.1\r\na: \0\r\n\r\n", 26, &head),
			-EBADMSG);
	CU_ASSERT_EQUAL(parse_response("HTTP/1.1 20 OK\r\n\r\n"), -EBADMSG);
	CU_ASSERT_EQUAL(parse_response("HTTP/1.1 2000 OK\r\n\r\n"), -EBADMSG);
	CU_ASSERT_EQUAL(parse_response("HTTP/1.1 099 OK\r\n\r\n"), -EBADMSG);
	CU_ASSERT_EQUAL(parse_response("ICY 200 OK\r\n\r\n"), -EBADMSG);
	CU_ASSERT_EQUAL(parse_response("HTTP/1.1 200 OK\r\na: b\n\nHTTP/1.1 200 OK\r\n\r\n"),
			-EBADMSG);
}

static void heads_are_bounded(void)
{
	static char text[2 * KVR_HTTP_MAX_HEAD];
	unsigned int n = (unsigned int)sprintf(text, "GET / HTTP/1.1\r\n");

	for (unsigned int i = 0; i < KVR_HTTP_MAX_FIELDS; i++)
		n += (unsigned int)sprintf(text + n, "a%u: b\r\n", i);
	strcpy(text + n, "\r\n");
	CU_ASSERT_EQUAL(parse_request(text), 0);
	CU_ASSERT_EQUAL(head.n_fields, KVR_HTTP_MAX_FIELDS);
	strcpy(text + n, "x: y\r\n\r\n");
	CU_ASSERT_EQUAL(parse_request(text), -E2BIG);
	n = (unsigned int)sprintf(text, "GET / HTTP/1.1\r\na: ");
	memset(text + n, 'b', sizeof(text) - n);
	strcpy(text + KVR_HTTP_MAX_HEAD - 4, "\r\n\r\n");
	CU_ASSERT_EQUAL(parse_request(text), 0);
	CU_ASSERT_EQUAL(head.len, KVR_HTTP_MAX_HEAD);
	strcpy(text + KVR_HTTP_MAX_HEAD - 4, "b\r\n\r\n");
	CU_ASSERT_EQUAL(parse_request(text), -E2BIG);
}

static void written_heads_can_be_read(void)
{
	struct kvr_http_put w;
	char buf[256];
	int n;

	kvr_http_put_request(&w, buf, sizeof(buf), "POST", "/v1/completions");
	kvr_http_put_text(&w, "content-type", "application/json");
	kvr_http_put_field(&w, "x-a", 3, "b cd", 3);
	n = kvr_http_put_end(&w);
	CU_ASSERT(n > 0);
	CU_ASSERT_EQUAL_FATAL(kvr_http_parse_request(buf, (size_t)n, &head), 0);
	CU_ASSERT(head.len == (uint32_t)n && head.n_fields == 2);
	CU_ASSERT(equals_text(head.fields[1].value, "b c"));
	for (int size = 0; size < n; size++) {
		kvr_http_put_request(&w, buf, (size_t)size, "POST", "/v1/completions");
		kvr_http_put_text(&w, "content-type", "application/json");
		kvr_http_put_field(&w, "x-a", 3, "b c", 3);
		CU_ASSERT_EQUAL(kvr_http_put_end(&w), -ENOSPC);
	}
	for (unsigned int status = 100; status <= 999; status++) {
		kvr_http_put_response(&w, buf, sizeof(buf), status);
		n = kvr_http_put_end(&w);
		CU_ASSERT(n > 0 && kvr_http_parse_response(buf, (size_t)n, &head) == 0);
		CU_ASSERT_EQUAL(head.status, status);
	}
}

/* Write one field, or method and target, that must be rejected. */
static int write_and_parse(const char *method, const char *target, const char *name,
			   const char *value)
{
	struct kvr_http_put w;
	char buf[256];

	kvr_http_put_request(&w, buf, sizeof(buf), method, target);
	kvr_http_put_text(&w, name, value);
	return kvr_http_put_end(&w);
}

static void nothing_is_smuggled_into_a_head(void)
{
	struct kvr_http_put w;
	char buf[64];

	CU_ASSERT(write_and_parse("GET", "/", "a", "b") > 0);
	CU_ASSERT_EQUAL(write_and_parse("GET", "/", "a", "b\r\nc: d"), -EINVAL);
	CU_ASSERT_EQUAL(write_and_parse("GET", "/", "a", "b\n"), -EINVAL);
	CU_ASSERT_EQUAL(write_and_parse("GET", "/", "a: x\r\nb", "c"), -EINVAL);
	CU_ASSERT_EQUAL(write_and_parse("GET", "/", "", "c"), -EINVAL);
	CU_ASSERT_EQUAL(write_and_parse("GET", "/ HTTP/1.1\r\nb: c", "a", "b"), -EINVAL);
	CU_ASSERT_EQUAL(write_and_parse("GET ", "/", "a", "b"), -EINVAL);
	CU_ASSERT_EQUAL(write_and_parse("", "/", "a", "b"), -EINVAL);
	CU_ASSERT_EQUAL(write_and_parse("GET", "", "a", "b"), -EINVAL);
	CU_ASSERT_EQUAL(write_and_parse("GET", "/", "Content-length", "3"), -EINVAL);
	CU_ASSERT_EQUAL(write_and_parse("GET", "/", "transfer-Encoding", "chunked"), -EINVAL);
	kvr_http_put_response(&w, buf, sizeof(buf), 99);
	CU_ASSERT_EQUAL(kvr_http_put_end(&w), -EINVAL);
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(a_request_is_read_in_place),
		KVR_CASE(a_response_is_read_in_place),
		KVR_CASE(an_incomplete_head_needs_more_bytes),
		KVR_CASE(hostile_heads_are_rejected),
		KVR_CASE(heads_are_bounded),
		KVR_CASE(written_heads_can_be_read),
		KVR_CASE(nothing_is_smuggled_into_a_head),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("http", tests);
}
