/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PROTOCOL.md against the code: every field's offset and size, every kind and code, every hex
 * dump, the hashes of long inputs. With --kinds, --codes, --refusals, --vectors or --hex NAME it
 * prints the text to paste instead.
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

#define F(s, field)                                                                                \
	{                                                                                          \
#s, #field, offsetof(struct kvr_wire_##s, field),                                  \
			sizeof(((struct kvr_wire_##s *)0)->field), sizeof(struct kvr_wire_##s)     \
	}
static const struct {
	const char *name, *field;
	size_t off, size, whole;
} fields[] = {
	F(hdr, magic),
	F(hdr, version),
	F(hdr, kind),
	F(hdr, flags),
	F(hdr, frag_len),
	F(hdr, source),
	F(hdr, id),
	F(hdr, handle),
	F(hdr, msg_len),
	F(hdr, frag_off),
	F(hdr, epoch),
	F(hdr, msg_seq),
	F(request, pool),
	F(request, phase),
	F(request, reserved0),
	F(request, flags),
	F(request, isl),
	F(request, n_hashes),
	F(request, n_tokens),
	F(request, hints_len),
	F(request, body_len),
	F(request, max_tokens),
	F(request, expected_output_tokens),
	F(request, deadline_ms),
	F(request, worker),
	F(request, dp_rank),
	F(request, overlap_blocks),
	F(request, cached_tokens),
	F(request, attempt),
	F(request, client_ip),
	F(request, client_port),
	F(request, client_frame),
	F(request, result_len),
	F(accepted, worker),
	F(accepted, dp_rank),
	F(accepted, overlap_blocks),
	F(accepted, required_blocks),
	F(accepted, cached_tokens),
	F(accepted, state),
	F(accepted, flags),
	F(accepted, queue_len),
	F(accepted, pending_tokens),
	F(accepted, prefill_overlap_blocks),
	F(accepted, prefill_worker),
	F(accepted, prefill_dp_rank),
	F(accepted, path),
	F(accepted, hints_len),
	F(rejected, code),
	F(rejected, retryable),
	F(rejected, kind),
	F(rejected, text_len),
	F(rejected, policy_class),
	F(rejected, detail),
	F(missing, kind),
	F(missing, reserved0),
	F(missing, n_words),
	F(missing, msg_seq),
	F(missing, msg_len),
	F(missing, unit),
	F(missing, first),
	F(missing, reserved1),
	F(dispatch_ack, code),
	F(dispatch_ack, reserved0),
	F(dispatch_ack, reserved1),
	F(response, seq),
	F(response, flags),
	F(response, status),
	F(response, generated_tokens),
	F(response, data_len),
	F(response, cached_tokens),
	F(response, hints_len),
	F(response, reserved1),
	F(tracker, worker),
	F(tracker, prefill_worker),
	F(tracker, dp_rank),
	F(tracker, prefill_dp_rank),
	F(tracker, overlap_blocks),
	F(tracker, prefill_overlap_blocks),
	F(tracker, required_blocks),
	F(tracker, cached_tokens),
	F(tracker, isl),
	F(tracker, osl),
	F(tracker, queue_us),
	F(tracker, ttft_us),
	F(tracker, itl_us),
	F(tracker, prefill_us),
	F(tracker, transfer_us),
	F(tracker, reserved),
	F(tracker, hit_rate),
	F(response_ack, next_seq),
	F(response_ack, flags),
	F(progress, seq),
	F(progress, flags),
	F(progress, status),
	F(progress, generated_tokens),
	F(progress, cached_tokens),
	F(progress_ack, next_seq),
	F(progress_ack, reserved),
	F(abort, code),
	F(abort, reserved0),
	F(abort, reserved1),
	F(hello, block_size),
	F(hello, dp_start),
	F(hello, dp_size),
	F(hello, max_num_batched_tokens),
	F(hello, total_kv_blocks),
	F(hello, hints_len),
	F(hello, max_frame),
	F(hello, role),
	F(hello, flags),
	F(hello, boot),
	F(hello, reserved),
	F(welcome, pool),
	F(welcome, flags),
	F(welcome, heartbeat_ms),
	F(welcome, dead_ms),
	F(welcome, max_frame),
	F(welcome, reserved1),
	F(welcome, reserved2),
	F(heartbeat, n_ranks),
	F(heartbeat, flags),
	F(heartbeat, wish),
	F(rank_load, dp_rank),
	F(rank_load, active_requests),
	F(rank_load, kv_used_blocks),
	F(rank_load, next_event_id),
	F(rank_load, events_unread),
	F(rank_load, event_block_size),
	F(rank_load, event_form),
	F(rank_load, canaries_missed),
	F(heartbeat_ack, state),
	F(heartbeat_ack, reserved0),
	F(heartbeat_ack, bookings),
	F(alive, n),
	F(alive, reserved),
	F(kv_events, first_event_id),
	F(kv_events, resume_event_id),
	F(kv_events, dp_rank),
	F(kv_events, n_events),
	F(kv_events, flags),
	F(kv_events, reserved),
	F(kv_event, type),
	F(kv_event, tier),
	F(kv_event, flags),
	F(kv_event, n_blocks),
	F(kv_event, parent),
	F(kv_ack, next_event_id),
	F(kv_ack, next_dump_pos),
	F(kv_ack, dp_rank),
	F(kv_ack, code),
	F(kv_ack, reserved),
	F(connect, hints_len),
	F(connect, max_frame),
	F(connect, reserved),
	F(connected, n_pools),
	F(connected, max_frame),
	F(connected, max_tokens),
	F(connected, max_hashes),
	F(connected, max_body),
	F(connected, total_pools),
	F(connected, max_message),
	F(connected, max_frames),
	F(connected, cookie),
	F(pool, pool),
	F(pool, role),
	F(pool, flags),
	F(pool, block_size),
	F(pool, ranks),
	F(pool, name_len),
	F(pool, reserved),
	F(session, timeout_s),
	F(session, id_len),
	F(session, pool),
	F(session_status, code),
	F(session_status, reserved0),
	F(session_status, reserved1),
	F(loads, n_ranks),
	F(loads, queue_len),
	F(loads, pending_tokens),
	F(rank_potential, worker),
	F(rank_potential, dp_rank),
	F(rank_potential, active_requests),
	F(rank_potential, prefill_tokens),
	F(rank_potential, decode_blocks),
	F(rank_potential, overlap_blocks),
	F(rank_potential, cached_tokens),
};

static void every_field_stands_at_its_offset(void)
{
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		char head[80], row[120];
		const char *at, *end, *found;

		snprintf(head, sizeof(head), "<!-- struct %s %zu -->", fields[i].name,
			 fields[i].whole);
		snprintf(row, sizeof(row), "| `%s` |", fields[i].field);
		at = strstr(doc, head);
		CU_ASSERT_PTR_NOT_NULL_FATAL(at);
		end = strstr(at, "\n\n");
		found = strstr(at, row);
		CU_ASSERT_FATAL(found != NULL && found < end);
		while (*found != '\n')
			found--;
		snprintf(row, sizeof(row), "\n| %zu | %zu |", fields[i].off, fields[i].size);
		CU_ASSERT_EQUAL(strncmp(found, row, strlen(row)), 0);
	}
}

/* The structs of the document are all of them: the sizes of their fields add up. */
static void fields_fill_their_structs(void)
{
	size_t sum = 0;

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		CU_ASSERT_EQUAL(fields[i].off, sum);
		sum += fields[i].size;
		if (i + 1 == sizeof(fields) / sizeof(fields[0]) ||
		    strcmp(fields[i].name, fields[i + 1].name) != 0) {
			CU_ASSERT_EQUAL(sum, fields[i].whole);
			sum = 0;
		}
	}
}

static void roles(uint8_t mask, char out[4])
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < 3; i++)
		if ((mask >> i & 1) != 0)
			out[n++] = "CAR"[i];
	out[n] = '\0';
}

static void kind_row(uint8_t kind, char *row, size_t cap)
{
	const struct kvr_kind_info *k = kvr_kind_info(kind);
	char from[4], to[4];

	roles(k->from, from);
	roles(k->to, to);
	snprintf(row, cap, "| %u | %s | %s | %s | %u | %u | %s | %s |", kind, k->name, from, to,
		 k->min_body, k->max_body, k->fragmentable ? "many" : "one",
		 k->answerable ? "yes" : "no");
}

static void code_row(unsigned int code, char *row, size_t cap)
{
	snprintf(row, cap, "| %u | %s | %s |", code, kvr_code_name(code),
		 kvr_code_retryable(code) ? "yes" : "no");
}

static void every_kind_has_its_row(void)
{
	char row[160];

	for (unsigned int k = 0; k < 256; k++)
		if (kvr_kind_info((uint8_t)k) != NULL) {
			kind_row((uint8_t)k, row, sizeof(row));
			CU_ASSERT_PTR_NOT_NULL(strstr(doc, row));
		}
}

static void every_code_has_its_row(void)
{
	char row[160];
	unsigned int n = 0;

	for (unsigned int c = 1; c < 1000; c++)
		if (strcmp(kvr_code_name(c), "?") != 0) {
			code_row(c, row, sizeof(row));
			CU_ASSERT_PTR_NOT_NULL(strstr(doc, row));
			n++;
		}
	CU_ASSERT(n >= 41);
}

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

static int print(int argc, char **argv)
{
	char line[200];

	if (strcmp(argv[1], "--kinds") == 0) {
		puts("| kind | name | from | to | least body | most | frames | refusable |");
		puts("|---|---|---|---|---|---|---|---|");
		for (unsigned int k = 0; k < 256; k++)
			if (kvr_kind_info((uint8_t)k) != NULL) {
				kind_row((uint8_t)k, line, sizeof(line));
				puts(line);
			}
		return 0;
	}
	if (strcmp(argv[1], "--codes") == 0) {
		puts("| code | name | retryable | meaning |\n|---|---|---|---|");
		for (unsigned int c = 0; c < 1000; c++)
			if (strcmp(kvr_code_name(c), "?") != 0) {
				code_row(c, line, sizeof(line));
				printf("%s ? |\n", line);
			}
		return 0;
	}
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
	fprintf(stderr,
		"usage: %s FILE | --kinds | --codes | --refusals | --vectors | --hex NAME\n",
		argv[0]);
	return 2;
}

int main(int argc, char **argv)
{
	CU_TestInfo tests[] = {
		{"fields", every_field_stands_at_its_offset},
		{"structs", fields_fill_their_structs},
		{"kinds", every_kind_has_its_row},
		{"codes", every_code_has_its_row},
		{"refusals", every_refusal_has_its_cell},
		{"words of refusals", every_word_is_explained},
		{"examples", every_example_is_what_the_encoder_makes},
		{"long hashes", long_inputs_have_their_hashes},
		{"limits", limits_are_those_of_the_code},
		CU_TEST_INFO_NULL,
	};

	n_samples = samples_make(samples);
	if (argc < 2 || argv[1][0] == '-')
		return argc < 2 ? 2 : print(argc, argv);
	doc = document_read(argv[1]);
	return doc != NULL ? kvr_test_run("document", tests) : 1;
}
