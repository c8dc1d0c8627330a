/* SPDX-License-Identifier: BSD-3-Clause */
#include "workload.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kvr_hash.h"
#include "kvr_test.h"

static const char rows[] =
	"{\"timestamp\": 0, \"input_length\": 1030, \"output_length\": 5, \"hash_ids\": [0, 1, "
	"2]}\n"
	"{\"timestamp\": 0, \"input_length\": 1024, \"output_length\": 7, \"hash_ids\": [0, 1]}\n"
	"\n"
	"{\"timestamp\": 3000, \"input_length\": 600, \"output_length\": 9, \"hash_ids\": [0, "
	"3]}\n";

static int read_text(struct load_trace *t, const char *text, int bursts, char err[200])
{
	char path[] = "/tmp/kvr-trace-XXXXXX";
	int fd = mkstemp(path), rc;

	CU_ASSERT_FATAL(fd >= 0);
	CU_ASSERT_EQUAL(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	rc = load_trace_read(t, path, bursts, err, 200);
	unlink(path);
	return rc;
}

static void trace_rows_are_read_and_bursts_spread(void)
{
	struct load_trace t;
	char err[200];

	CU_ASSERT_EQUAL_FATAL(read_text(&t, rows, 0, err), 0);
	CU_ASSERT_EQUAL(t.n_rows, 3);
	CU_ASSERT_EQUAL(t.max_id, 3);
	CU_ASSERT_EQUAL(t.rows[0].n_ids, 3);
	CU_ASSERT_EQUAL(t.rows[2].osl, 9);
	CU_ASSERT_EQUAL(t.rows[1].at_ms, 1500.0);
	CU_ASSERT_EQUAL(t.rows[2].at_ms, 3000.0);
	load_trace_free(&t);
	CU_ASSERT_EQUAL_FATAL(read_text(&t, rows, 1, err), 0);
	CU_ASSERT_EQUAL(t.rows[1].at_ms, 0.0);
	load_trace_free(&t);
}

static void an_error_in_a_trace_names_its_line(void)
{
	static const char *const bad[] = {
		"{\"timestamp\": 0, \"input_length\": 0, \"output_length\": 5, \"hash_ids\": [0]}",
		"{\"timestamp\": -1, \"input_length\": 9, \"output_length\": 5, \"hash_ids\": [0]}",
		("{\"timestamp\": 0, \"input_length\": 1024, \"output_length\": 5, \"hash_ids\": "
		 "[0]}"),
		"{\"timestamp\": 0, \"input_length\": 9, \"output_length\": 5, \"hash_ids\": [-2]}",
		"{\"timestamp\": 0, \"input_length\": 9, \"output_length\": 5}",
		"{\"timestamp\": 0,",
		"7",
	};
	char text[600], err[200];
	struct load_trace t;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(text, sizeof(text), "%s%s\n", rows, bad[i]);
		CU_ASSERT_EQUAL(read_text(&t, text, 0, err), -EBADMSG);
		CU_ASSERT_PTR_NOT_NULL(strstr(err, ":5: "));
	}
	CU_ASSERT_EQUAL(read_text(&t, "\n", 0, err), -EBADMSG);
	CU_ASSERT_EQUAL(load_trace_read(&t, "/nonexistent/x", 0, err, sizeof(err)), -ENOENT);
}

static struct load_workload_cfg make_workload(void)
{
	return (struct load_workload_cfg){.seed = 7,
					  .block_size = 16,
					  .rate = 1000,
					  .requests = 3000,
					  .conversations = 50,
					  .turns = 4,
					  .system_prompts = 3,
					  .system_tokens = 64,
					  .user_tokens = 40,
					  .osl = 20,
					  .length_spread = 0.5,
					  .max_hashes = 1 << 20};
}

static void hashes_follow_from_the_tokens(void)
{
	struct load_trace t;
	struct load_workload_cfg cfg = make_workload();
	static uint32_t tokens[8192];
	static uint64_t sh[512];
	char err[200];

	cfg.tokens = true;
	CU_ASSERT_EQUAL_FATAL(read_text(&t, rows, 0, err), 0);
	for (int trace = 0; trace < 2; trace++) {
		struct kvr_hash_params how = {.seed = KVR_HASH_SEED, .block_size = 16};
		struct load_workload *w;
		const struct load_prompt *p;
		double at;

		cfg.trace = trace ? &t : NULL;
		cfg.copies = 2;
		cfg.speedup = 1;
		w = load_workload_create(&cfg);
		CU_ASSERT_PTR_NOT_NULL_FATAL(w);
		for (int i = 0; i < 6 && (p = load_workload_next(w, &at)) != NULL; i++) {
			uint32_t half = p->isl / 2;

			load_workload_fill_tokens(w, p, 0, half, tokens);
			load_workload_fill_tokens(w, p, half, p->isl - half, tokens + half);
			CU_ASSERT_EQUAL(kvr_hash_tokens(&how, tokens, p->isl, NULL, sh, 512),
					(int)p->n_blocks);
			CU_ASSERT_EQUAL(memcmp(sh, p->hashes, p->n_blocks * 8), 0);
		}
		load_workload_destroy(w);
	}
	load_trace_free(&t);
}

static void copies_of_a_trace_share_nothing_and_rows_share_prefixes(void)
{
	struct load_workload_cfg cfg = {.block_size = 16, .copies = 2, .speedup = 10};
	const struct load_prompt *p[6];
	struct load_workload *w;
	struct load_trace t;
	double at[6];
	char err[200];

	CU_ASSERT_EQUAL_FATAL(read_text(&t, rows, 0, err), 0);
	cfg.trace = &t;
	w = load_workload_create(&cfg);
	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	CU_ASSERT_EQUAL(load_workload_total(w), 6);
	for (int i = 0; i < 6; i++)
		p[i] = load_workload_next(w, &at[i]);
	CU_ASSERT_PTR_NULL(load_workload_next(w, &at[0]));
	CU_ASSERT_EQUAL(p[0]->n_blocks, 64); /* 1030 tokens: 64 complete blocks */
	CU_ASSERT_EQUAL(memcmp(p[0]->hashes, p[2]->hashes, 64 * 8), 0);
	CU_ASSERT_EQUAL(memcmp(p[0]->hashes, p[4]->hashes, 32 * 8), 0);
	CU_ASSERT_NOT_EQUAL(p[0]->hashes[32], p[4]->hashes[32]);
	CU_ASSERT_NOT_EQUAL(p[0]->hashes[0], p[1]->hashes[0]);
	CU_ASSERT_DOUBLE_EQUAL(at[2], 150e6, 1.0); /* 1500 ms, ten times faster, in ns */
	CU_ASSERT_DOUBLE_EQUAL(at[1], 75e6, 1.0);
	load_workload_destroy(w);
	load_trace_free(&t);
}

static void a_turn_extends_the_previous_turn(void)
{
	struct load_workload_cfg cfg = make_workload();
	struct load_workload *w = load_workload_create(&cfg);
	const struct load_prompt *last[4096] = {NULL}, *p;
	uint32_t continued = 0, bad = 0, n = 0;
	double at, before = 0;

	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	for (; (p = load_workload_next(w, &at)) != NULL; n++) {
		const struct load_prompt *q = last[p->content];

		bad += at < before;
		before = at;
		if (q != NULL) {
			continued++;
			bad += p->hashes != q->hashes || p->n_blocks < q->n_after ||
			       p->isl <= q->isl + q->osl;
		}
		last[p->content] = p;
	}
	CU_ASSERT_EQUAL(bad, 0);
	CU_ASSERT_EQUAL(n, 3000);
	CU_ASSERT(continued > 2000);
	load_workload_destroy(w);
}

static void rate_is_met_and_seeds_repeat(void)
{
	struct load_workload_cfg cfg = make_workload();
	struct load_workload *a, *b;
	double x, y, last = 0;
	uint64_t n = 0, differ = 0;

	cfg.requests = 0;
	cfg.seconds = 3 * 65.536; /* three times the table of gaps at 1000/s */
	a = load_workload_create(&cfg);
	b = load_workload_create(&cfg);
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	for (const struct load_prompt *p; (p = load_workload_next(a, &x)) != NULL; n++) {
		const struct load_prompt *q = load_workload_next(b, &y);

		differ += x != y || p->hashes[p->n_blocks - 1] != q->hashes[q->n_blocks - 1];
		last = x;
	}
	CU_ASSERT_EQUAL(differ, 0);
	CU_ASSERT(n >= 3 * 65536 - 2 && n <= 3 * 65536);
	CU_ASSERT(last < 196.608e9);
	load_workload_destroy(a);
	load_workload_destroy(b);
}

static void invalid_workloads_are_rejected(void)
{
	struct load_workload_cfg cfg = make_workload();

	cfg.rate = 0;
	CU_ASSERT_PTR_NULL(load_workload_create(&cfg));
	cfg = make_workload();
	cfg.system_tokens = 65;
	CU_ASSERT_PTR_NULL(load_workload_create(&cfg));
	cfg = make_workload();
	cfg.block_size = 0;
	CU_ASSERT_PTR_NULL(load_workload_create(&cfg));
	CU_ASSERT_EQUAL(errno, EINVAL);
}

static void streams_are_those_of_the_published_workload(void)
{
	CU_ASSERT_EQUAL(load_stream(1, 0, 0), 0xf152414e8182c381u);
	CU_ASSERT_EQUAL(load_stream(1, 0, 1), 0x1441ce78cd85877du);
	CU_ASSERT_EQUAL(load_stream(2, 5, 0), 0xb5dae60a5d4c4a20u);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(trace_rows_are_read_and_bursts_spread),
			       KVR_CASE(an_error_in_a_trace_names_its_line),
			       KVR_CASE(hashes_follow_from_the_tokens),
			       KVR_CASE(copies_of_a_trace_share_nothing_and_rows_share_prefixes),
			       KVR_CASE(a_turn_extends_the_previous_turn),
			       KVR_CASE(rate_is_met_and_seeds_repeat),
			       KVR_CASE(invalid_workloads_are_rejected),
			       KVR_CASE(streams_are_those_of_the_published_workload),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("load content", tests);
}
