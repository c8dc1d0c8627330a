/* SPDX-License-Identifier: BSD-3-Clause */
/* Chunked content: complete, split at every place, and invalid. */
#include "chunks.h"

#include <string.h>

#include "kvr_test.h"

/* Result of decoding @p text in pieces of @p step bytes; its content in @p out. */
static ssize_t decode_text(const char *text, size_t step, char *out)
{
	struct phr_chunked_decoder d = {.consume_trailer = 1};
	const size_t len = strlen(text);
	ssize_t rc = -2;
	size_t n;

	for (size_t at = 0; at < len && rc == -2; at += n) {
		char buf[256];
		size_t got;

		n = len - at < step ? len - at : step;
		got = n;
		memcpy(buf, text + at, n);
		rc = phr_decode_chunked(&d, buf, &got);
		memcpy(out, buf, got);
		out += got;
		if (rc >= 0) { /* the following bytes stay behind */
			CU_ASSERT_EQUAL(memcmp(buf + got, text + at + n - (size_t)rc, (size_t)rc),
					0);
			rc += (ssize_t)(len - at - n);
		}
	}
	*out = '\0';
	return rc;
}

static void check_whole(const char *text, const char *content, ssize_t behind)
{
	char out[256];

	for (size_t step = 1; step <= strlen(text); step++) {
		CU_ASSERT_EQUAL(decode_text(text, step, out), behind);
		CU_ASSERT_STRING_EQUAL(out, content);
	}
}

static void check_invalid(const char *text)
{
	char out[256];

	for (size_t step = 1; step <= strlen(text); step++)
		CU_ASSERT_EQUAL(decode_text(text, step, out), -1);
}

static void check_chunks(void)
{
	check_whole("0\r\n\r\n", "", 0);
	check_whole("5\r\nhello\r\n0\r\n\r\n", "hello", 0);
	check_whole("3\r\nhel\r\n0002\r\nlo\r\n000\r\n\r\nGET /", "hello", 5);
	check_whole("A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n", "01234567890123456789", 0);
	check_whole("2\r\n\r\n\r\n0\r\n\r\n", "\r\n", 0);
	check_whole("5;a\r\nhello\r\n0;b=\"c;d\";e\r\n\r\n", "hello", 0);
	check_whole("5 \t;a\r\nhello\r\n0 \r\n\r\n", "hello", 0);
	check_whole("1\r\nx\r\n0\r\na: b\r\ncontent-length: 7\r\n\r\n!", "x", 1);
	check_whole("5\r\nhell", "hell", -2);
	check_whole("0\r\na: b\r\n", "", -2);
}

/* Each of these is misread by some implementation. */
static void invalid_chunks_are_errors(void)
{
	check_invalid("0x5\r\nhello\r\n0\r\n\r\n");
	check_invalid("5x\r\nhello\r\n0\r\n\r\n");
	check_invalid("5 5\r\nhello\r\n0\r\n\r\n");
	check_invalid("-5\r\nhello\r\n0\r\n\r\n");
	check_invalid("+5\r\nhello\r\n0\r\n\r\n");
	check_invalid("\r\n5\r\nhello\r\n0\r\n\r\n");
	check_invalid(" 5\r\nhello\r\n0\r\n\r\n");
	check_invalid(";a\r\nhello\r\n0\r\n\r\n");
	check_invalid("5\nhello\r\n0\r\n\r\n");
	check_invalid("5;a\nhello\r\n0\r\n\r\n");
	check_invalid("5;a\rb\r\nhello\r\n0\r\n\r\n");
	check_invalid("5\r\r\nhello\r\n0\r\n\r\n");
	check_invalid("5;\1\r\nhello\r\n0\r\n\r\n");
	check_invalid("5\r\nhello\n0\r\n\r\n");
	check_invalid("5\r\nhello\r\r\n0\r\n\r\n");
	check_invalid("5\r\nhelloXX0\r\n\r\n");
	check_invalid("5\r\nhello0\r\n\r\n");
	check_invalid("0\r\n\n");
	check_invalid("0\r\na: b\n\r\n");
	check_invalid("0\r\na: b\rc\r\n\r\n");
	check_invalid("0\r\n\rX");
	check_invalid("1000000000000000\r\nhello"); /* no content has this length */
}

static void chunks_without_a_trailer_are_complete(void)
{
	struct phr_chunked_decoder d = {0};
	char buf[] = "1\r\nx\r\n0\r\nrest";
	size_t len = sizeof(buf) - 1;

	CU_ASSERT_EQUAL(phr_decode_chunked(&d, buf, &len), 4);
	CU_ASSERT_EQUAL(len, 1);
	CU_ASSERT_EQUAL(memcmp(buf, "xrest", 5), 0);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(check_chunks), KVR_CASE(invalid_chunks_are_errors),
			       KVR_CASE(chunks_without_a_trailer_are_complete), CU_TEST_INFO_NULL};

	return kvr_test_run("gateway_chunks", tests);
}
