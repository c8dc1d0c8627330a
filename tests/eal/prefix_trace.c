/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Both public traces through LRU engines: before the events of each row, the score of every worker
 * equals the content of its LRU cache. The traces are read from KVR_DATA_DIR, or from a folder next
 * to the source tree.
 */

#include "kvr_pbtrace.h"
#include "kvr_prefix_test.h"
#include "kvr_test.h"

#include <unistd.h>

static const char *data_dir(void)
{
	static const char *const place[] = {KVR_SOURCE_ROOT "/../shared/data",
					    KVR_SOURCE_ROOT "/../../shared/data"};
	const char *dir = getenv("KVR_DATA_DIR");

	for (uint32_t i = 0; dir == NULL && i < 2; i++)
		dir = access(place[i], R_OK) == 0 ? place[i] : NULL;
	return dir;
}

struct walk {
	struct pt_table p;
	uint64_t acc, wrong;
	uint32_t workers;
};

static void check_row(void *ctx, const struct pbt_row *r, const struct pbt_lru *lru)
{
	struct walk *w = ctx;
	const struct kvr_overlap *o = pt_score(&w->p, r->sh, r->n);

	for (uint32_t k = 0; k < w->workers; k++) {
		uint32_t n = 0;

		while (n < r->n && lru[k].map[pbt_find(&lru[k], r->sh[n])] != PBT_NONE)
			n++;
		w->wrong += pt_count(o, KVR_TIER_DEVICE, k) != n;
	}
	w->acc = w->acc * 31 + pb_checksum(o);
}

static void apply_events(void *ctx, const struct pbt_row *r, const struct pbt_lru *lru)
{
	struct walk *w = ctx;

	RTE_SET_USED(lru);
	rte_rcu_qsbr_quiescent(w->p.qsbr, 0);
	kvr_prefix_apply_burst(w->p.t, r->ev, r->nev);
}

static void replay_trace(const char *name, uint32_t workers, uint64_t checksum)
{
	struct kvr_prefix_conf c = {.max_ranks = workers,
				    .max_blocks = workers * PBT_LRU + 65536,
				    .max_runs = workers * PBT_LRU / 16,
				    .max_predicted = 64};
	struct walk w = {.workers = workers};
	struct kvr_prefix_stats s;
	char file[512];
	struct pbt t;

	if (data_dir() == NULL) {
		printf("(no traces: skipped) ");
		return;
	}
	snprintf(file, sizeof(file), "%s/mooncake_%s_trace.jsonl", data_dir(), name);
	w.p = pt_open(c);
	CU_ASSERT_FATAL(
		pbt_load(&t, file, workers, (struct pbt_hooks){check_row, apply_events, &w}));
	CU_ASSERT_EQUAL(w.wrong, 0);
	if (checksum != 0)
		CU_ASSERT_EQUAL(w.acc, checksum);
	s = pt_stats(&w.p);
	CU_ASSERT_EQUAL(s.stored, t.stored);
	CU_ASSERT_EQUAL(s.removed, t.removed);
	CU_ASSERT_EQUAL(s.duplicates + s.unknown_removes + s.dropped + s.evicted_runs, 0);
	for (uint32_t r = 0; r < workers; r++)
		kvr_prefix_clear_rank(w.p.t, (uint16_t)r);
	pt_quiesce(&w.p, 0);
	CU_ASSERT_EQUAL(pt_stats(&w.p).used_bytes, 0);
	pt_close(&w.p);
	pbt_free(&t);
}

static void conversation_trace_of_16_workers(void)
{
	replay_trace("conversation", 16, UINT64_C(0x3671a2494dba2900));
}

static void conversation_trace_of_64_workers(void)
{
	replay_trace("conversation", 64, UINT64_C(0x66f0aab1c06dbee0));
}

static void synthetic_trace_of_64_workers(void)
{
	replay_trace("synthetic", 64, 0);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(conversation_trace_of_16_workers),
			       KVR_CASE(conversation_trace_of_64_workers),
			       KVR_CASE(synthetic_trace_of_64_workers), CU_TEST_INFO_NULL};

	pt_eal();
	return kvr_test_run("prefix_trace", tests);
}
