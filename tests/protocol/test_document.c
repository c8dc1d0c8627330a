/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PROTOCOL.md against the code: the tables of refusals, the hex dumps, and the hashes of long
 * inputs. With --refusals, --vectors or --hex NAME it prints the text to paste instead. The other
 * tables are generated (tools/protocol).
 */
#include "document.h"
#include "samples.h"

#include "kvr_hash.h"
#include "kvr_refusal.h"
#include "kvr_test.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static struct sample samples[SAMPLES_MAX];
static uint32_t n_samples;
static char *doc;

/* Kinds that are refused, in the order of the two tables' columns. */
static const uint8_t refusable[2][6] = {
	{KVR_CONNECT, KVR_ROUTE, KVR_PROBE, KVR_CANCEL, KVR_SESSION_RELEASE, KVR_POTENTIAL_LOADS},
	{KVR_HELLO, KVR_HEARTBEAT, KVR_GOODBYE, KVR_KV_EVENTS, KVR_RESPONSE, KVR_PROGRESS},
};

static void refusal_head(int side, char *row, size_t cap)
{
	int n = snprintf(row, cap, "| code | name |");

	for (int k = 0; k < 6; k++)
		n += snprintf(row + n, cap - (size_t)n, " %s |",
			      kvr_wire_kind_name(refusable[side][k]));
}

static void refusal_row(int side, unsigned int code, char *row, size_t cap)
{
	int n = snprintf(row, cap, "| %u | %s |", code, kvr_code_name(code));

	for (int k = 0; k < 6; k++)
		n += snprintf(row + n, cap - (size_t)n, " %s |",
			      kvr_refusal_name(kvr_refusal(refusable[side][k], code,
							   kvr_code_retryable(code))));
}

/* Both tables are complete: a row for every code, a column for every kind that is refused. */
static void every_refusal_has_its_cell(void)
{
	char row[300];

	for (int side = 0; side < 2; side++) {
		const char *at;

		refusal_head(side, row, sizeof(row));
		at = strstr(doc, row);
		CU_ASSERT_PTR_NOT_NULL_FATAL(at);
		for (unsigned int c = 1; c < 1000; c++) {
			if (strcmp(kvr_code_name(c), "?") == 0)
				continue;
			refusal_row(side, c, row, sizeof(row));
			at = strstr(at, row); /* in rising order */
			if (at == NULL)
				fprintf(stderr, "missing: %s\n", row);
			CU_ASSERT_PTR_NOT_NULL_FATAL(at);
		}
	}
	for (unsigned int k = 0; k < 256; k++) {
		const struct kvr_kind_info *info = kvr_kind_info((uint8_t)k);
		const bool refused = memchr(refusable, (int)k, sizeof(refusable)) != NULL;

		CU_ASSERT_EQUAL(info != NULL && info->answerable, refused);
		CU_ASSERT_EQUAL(kvr_refusal((uint8_t)k, KVR_E_LENGTH, false) != KVR_REFUSAL_NONE,
				refused);
	}
}

/* The words of the cells are explained. */
static void every_word_is_explained(void)
{
	char row[40];

	for (int w = KVR_REFUSAL_REPEAT; w < KVR_REFUSALS; w++) {
		snprintf(row, sizeof(row), "\n| %s | ", kvr_refusal_name((enum kvr_refusal)w));
		CU_ASSERT_PTR_NOT_NULL(strstr(doc, row));
	}
}

static void hex_line(const struct sample *s, uint32_t at, char line[80])
{
	int n = sprintf(line, "%04x ", at);

	for (uint32_t i = at; i < at + 16 && i < s->len[0]; i++)
		n += sprintf(line + n, " %02x", s->frame[0][i]);
}

static void every_example_is_what_the_encoder_makes(void)
{
	const char *at = doc;
	uint32_t n = 0;

	while ((at = strstr(at, "```hex ")) != NULL) {
		const struct sample *s;
		char name[40] = "", line[80];
		size_t len;

		at += 7;
		sscanf(at, "%39s", name);
		s = samples_find(samples, n_samples, name);
		at = strchr(at, '\n') + 1;
		for (uint32_t off = 0; off < s->len[0]; off += 16) {
			hex_line(s, off, line);
			len = strlen(line);
			CU_ASSERT_EQUAL_FATAL(strncmp(at, line, len), 0);
			CU_ASSERT_EQUAL_FATAL(at[len], '\n');
			at += len + 1;
		}
		CU_ASSERT_EQUAL(strncmp(at, "```", 3), 0);
		n++;
	}
	CU_ASSERT(n >= 29);
}

/* XXH3 takes another way above 3, 8, 16, 128, 240 and 1,024 bytes; usual blocks have 64 to 1,024.
 */
static const uint32_t byte_counts[] = {3,   17,	 64,  65,   128,  129, 192,
				       240, 241, 256, 1024, 1025, 4096};
static const struct {
	uint32_t block_size;
	bool eagle;
} long_blocks[] = {{32, false}, {32, true}, {48, false}, {64, false}, {64, true}, {512, false}};

#define N_VECTORS                                                                                  \
	(sizeof(byte_counts) / sizeof(byte_counts[0]) +                                            \
	 sizeof(long_blocks) / sizeof(long_blocks[0]))

static void bytes_row(uint32_t n, char *row, size_t cap)
{
	uint8_t bytes[4096];

	for (uint32_t i = 0; i < n; i++)
		bytes[i] = (uint8_t)i;
	snprintf(row, cap, "| XXH3 of the %u bytes i modulo 256, seed 1337 | %" PRIu64 " |\n", n,
		 kvr_hash_bytes(bytes, n));
}

static void blocks_row(uint32_t block_size, bool eagle, char *row, size_t cap)
{
	const struct kvr_hash_params p = {
		.seed = KVR_HASH_SEED, .block_size = block_size, .eagle = eagle};
	const uint32_t n = 2 * block_size + eagle;
	uint32_t tokens[1025];
	uint64_t lbh[2], sh[2];

	for (uint32_t i = 0; i < n; i++)
		tokens[i] = i;
	if (kvr_hash_tokens(&p, tokens, n, lbh, sh, 2) != 2)
		abort(); /* as a row that cannot stand in the document */
	snprintf(row, cap,
		 "| B=%u, tokens 0..%u%s: LBH[0], LBH[1], SH[1] | %" PRIu64 ", %" PRIu64
		 ", %" PRIu64 " |\n",
		 block_size, n - 1, eagle ? ", EAGLE" : "", lbh[0], lbh[1], sh[1]);
}

static void vector_row(size_t i, char *row, size_t cap)
{
	const size_t n_bytes = sizeof(byte_counts) / sizeof(byte_counts[0]);

	if (i < n_bytes)
		bytes_row(byte_counts[i], row, cap);
	else
		blocks_row(long_blocks[i - n_bytes].block_size, long_blocks[i - n_bytes].eagle, row,
			   cap);
}

static void long_inputs_have_their_hashes(void)
{
	char row[200];

	for (size_t i = 0; i < N_VECTORS; i++) {
		vector_row(i, row, sizeof(row));
		CU_ASSERT_PTR_NOT_NULL(strstr(doc, row));
	}
}

static void limits_are_those_of_the_code(void)
{
	char text[64];

	snprintf(text, sizeof(text), "5,832,792 body bytes");
	CU_ASSERT_EQUAL(KVR_WIRE_MAX_MESSAGE, 5832792);
	CU_ASSERT_PTR_NOT_NULL(strstr(doc, text));
	snprintf(text, sizeof(text), "%u by default", KVR_WIRE_PORT);
	CU_ASSERT_PTR_NOT_NULL(strstr(doc, text));
	snprintf(text, sizeof(text), "Legal values are %u to %u", KVR_WIRE_LEAST_MAX_FRAME,
		 KVR_WIRE_MAX_FRAME);
	CU_ASSERT_PTR_NOT_NULL(strstr(doc, text));
	snprintf(text, sizeof(text), "at least %u, at most\n  %u", KVR_WIRE_MIN_FRAGMENT,
		 KVR_WIRE_MAX_FRAME - 48);
	CU_ASSERT_PTR_NOT_NULL(strstr(doc, text));
}

static int print_table(int argc, char **argv)
{
	char line[200];

	if (strcmp(argv[1], "--refusals") == 0) {
		char row[300];

		for (int side = 0; side < 2; side++) {
			refusal_head(side, row, sizeof(row));
			printf("%s\n|---|---|---|---|---|---|---|---|\n", row);
			for (unsigned int c = 1; c < 1000; c++)
				if (strcmp(kvr_code_name(c), "?") != 0) {
					refusal_row(side, c, row, sizeof(row));
					puts(row);
				}
			puts("");
		}
		return 0;
	}
	if (strcmp(argv[1], "--vectors") == 0) {
		for (size_t i = 0; i < N_VECTORS; i++) {
			vector_row(i, line, sizeof(line));
			fputs(line, stdout);
		}
		return 0;
	}
	if (strcmp(argv[1], "--hex") == 0 && argc == 3) {
		const struct sample *s = samples_find(samples, n_samples, argv[2]);

		for (uint32_t off = 0; off < s->len[0]; off += 16) {
			hex_line(s, off, line);
			puts(line);
		}
		return 0;
	}
	fprintf(stderr, "usage: %s FILE | --refusals | --vectors | --hex NAME\n", argv[0]);
	return 2;
}

int main(int argc, char **argv)
{
	CU_TestInfo tests[] = {
		KVR_CASE(every_refusal_has_its_cell),
		KVR_CASE(every_word_is_explained),
		KVR_CASE(every_example_is_what_the_encoder_makes),
		KVR_CASE(long_inputs_have_their_hashes),
		KVR_CASE(limits_are_those_of_the_code),
		CU_TEST_INFO_NULL,
	};

	n_samples = samples_make(samples);
	if (argc < 2 || argv[1][0] == '-')
		return argc < 2 ? 2 : print_table(argc, argv);
	doc = document_read(argv[1]);
	return doc != NULL ? kvr_test_run("document", tests) : 1;
}
