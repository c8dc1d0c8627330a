/* SPDX-License-Identifier: BSD-3-Clause */
/* Contents in chunks: whole, cut at every place, and what is none. */
#include "chunks.h"

#include <string.h>

#include "kvr_test.h"

/* What decoding says of @p text, which comes in pieces of @p step bytes; its content in @p out. */
static ssize_t decoded(const char *text, size_t step, char *out)
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
		if (rc >= 0) { /* what is behind lies behind */
			CU_ASSERT_EQUAL(memcmp(buf + got, text + at + n - (size_t)rc, (size_t)rc),
					0);
			rc += (ssize_t)(len - at - n);
		}
	}
	*out = '\0';
	return rc;
}

static void whole(const char *text, const char *content, ssize_t behind)
{
	char out[256];

	for (size_t step = 1; step <= strlen(text); step++) {
		CU_ASSERT_EQUAL(decoded(text, step, out), behind);
		CU_ASSERT_STRING_EQUAL(out, content);
	}
}

static void wrong(const char *text)
{
	char out[256];

	for (size_t step = 1; step <= strlen(text); step++)
		CU_ASSERT_EQUAL(decoded(text, step, out), -1);
}

static void chunks(void)
{
	whole("0\r\n\r\n", "", 0);
	whole("5\r\nhello\r\n0\r\n\r\n", "hello", 0);
	whole("3\r\nhel\r\n0002\r\nlo\r\n000\r\n\r\nGET /", "hello", 5);
	whole("A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n", "01234567890123456789", 0);
	whole("2\r\n\r\n\r\n0\r\n\r\n", "\r\n", 0);
	whole("5;a\r\nhello\r\n0;b=\"c;d\";e\r\n\r\n", "hello", 0);
	whole("5 \t;a\r\nhello\r\n0 \r\n\r\n", "hello", 0);
	whole("1\r\nx\r\n0\r\na: b\r\ncontent-length: 7\r\n\r\n!", "x", 1);
	whole("5\r\nhell", "hell", -2);
	whole("0\r\na: b\r\n", "", -2);
}

/* Each of them is taken for something else by somebody. */
static void no_chunks(void)
{
	wrong("0x5\r\nhello\r\n0\r\n\r\n");
	wrong("5x\r\nhello\r\n0\r\n\r\n");
	wrong("5 5\r\nhello\r\n0\r\n\r\n");
	wrong("-5\r\nhello\r\n0\r\n\r\n");
	wrong("+5\r\nhello\r\n0\r\n\r\n");
	wrong("\r\n5\r\nhello\r\n0\r\n\r\n");
	wrong(" 5\r\nhello\r\n0\r\n\r\n");
	wrong(";a\r\nhello\r\n0\r\n\r\n");
	wrong("5\nhello\r\n0\r\n\r\n");
	wrong("5;a\nhello\r\n0\r\n\r\n");
	wrong("5;a\rb\r\nhello\r\n0\r\n\r\n");
	wrong("5\r\r\nhello\r\n0\r\n\r\n");
	wrong("5;\1\r\nhello\r\n0\r\n\r\n");
	wrong("5\r\nhello\n0\r\n\r\n");
	wrong("5\r\nhello\r\r\n0\r\n\r\n");
	wrong("5\r\nhelloXX0\r\n\r\n");
	wrong("5\r\nhello0\r\n\r\n");
	wrong("0\r\n\n");
	wrong("0\r\na: b\n\r\n");
	wrong("0\r\na: b\rc\r\n\r\n");
	wrong("0\r\n\rX");
	wrong("1000000000000000\r\nhello"); /* no content is as long */
}

static void without_a_trailer(void)
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
	CU_TestInfo tests[] = {{"chunks", chunks},
			       {"no chunks", no_chunks},
			       {"no trailer", without_a_trailer},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("gateway_chunks", tests);
}
