/* SPDX-License-Identifier: BSD-3-Clause */
#include "result_pack.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_test.h"

/* Block numbers as in the transfer result of a prefill. */
static char *result_of(unsigned int blocks, size_t *len)
{
	char *text = malloc(64 + 12ul * blocks);
	size_t n = (size_t)sprintf(text, "{\"remote_block_ids\":[[");

	for (unsigned int i = 0; i < blocks; i++)
		n += (size_t)sprintf(text + n, "%s%u", i > 0 ? "," : "", 1000 + i * 7919 % 60000);
	*len = n + (size_t)sprintf(text + n, "]]}");
	return text;
}

static void a_result_that_fits_is_unchanged(void)
{
	char out[64], *back;

	CU_ASSERT_EQUAL(agent_result_pack("{\"a\":1}", 7, out, 7), 0);
	CU_ASSERT_EQUAL(agent_result_unpack("{\"a\":1}", 7, &back), 0);
	CU_ASSERT_PTR_NULL(back);
	CU_ASSERT_EQUAL(agent_result_unpack("", 0, &back), 0);
}

static void a_larger_result_is_compressed_and_restored(void)
{
	size_t len;
	char *text = result_of(1500, &len), out[8872], *back;
	const int64_t n = agent_result_pack(text, len, out, 4600);

	CU_ASSERT(len > 8000);
	CU_ASSERT(n > 0 && n <= 4600);
	CU_ASSERT_EQUAL(agent_result_unpack(out, (size_t)n, &back), (int64_t)len);
	CU_ASSERT_PTR_NOT_NULL_FATAL(back);
	CU_ASSERT_EQUAL(memcmp(back, text, len), 0);
	free(back);
	CU_ASSERT_EQUAL(agent_result_pack(text, len, out, 300), -EMSGSIZE);
	for (int64_t cut = 1; cut < n; cut += 97) {
		CU_ASSERT_EQUAL(agent_result_unpack(out, (size_t)cut, &back), -EPROTO);
		CU_ASSERT_PTR_NULL(back);
	}
	free(text);
}

static void a_decompression_bomb_is_an_error(void)
{
	const size_t len = 2 * AGENT_RESULT_MAX;
	char *zeros = calloc(1, len), out[8872], *back;
	int64_t n = agent_result_pack(zeros, len, out, sizeof(out));

	CU_ASSERT(n > 0);
	CU_ASSERT_EQUAL(agent_result_unpack(out, (size_t)n, &back), -EPROTO);
	free(zeros);
}

int main(void)
{
	CU_TestInfo tests[] = {
		KVR_CASE(a_result_that_fits_is_unchanged),
		KVR_CASE(a_larger_result_is_compressed_and_restored),
		KVR_CASE(a_decompression_bomb_is_an_error),
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("pack", tests);
}
