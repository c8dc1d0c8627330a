/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * One writer, two readers. The writer stores and removes (tails, holes) on chains with common
 * prefixes, so that runs grow, shrink, split, change shape and disappear all the time. It clears
 * ranks in slices that last for many steps of other ranks, and records for each (rank, chain) the
 * leading count before, during and after each step. A run_reader accepts a score only if it is not
 * above every count that was valid during its query. In a second part the table only grows, and no
 * run_reader may see a count fall. Built with PFX_POISON: memory is overwritten as soon as the
 * grace period is over. A block may be dropped when a starved run_reader retains memory: counts are
 * then too low. A third run_reader dumps the table again and again: one rank never changes,
 * although the runs it shares with others split, shrink and move. A dump that is reported complete
 * must contain all of its blocks, after their parents, and no block that was never stored. Also
 * built with ThreadSanitizer.
 */

#include "kvr_prefix_test.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

#define CHAINS 12u
#define LEN    600u
#define RANKS  24u
#define NOTES  1024u /* power of two */
#define BURST  4u
#define READS  2u
#define FIXED  RANKS /* the rank that never changes, with two chains */

static uint64_t sh[CHAINS][LEN];
static uint32_t node[CHAINS][LEN]; /* chains with a common prefix share blocks */
static bool set[RANKS][CHAINS * LEN];
static _Atomic uint32_t note[RANKS][CHAINS][NOTES];
static _Atomic uint64_t notes; /* written so far; the last one is current */
static _Atomic bool stop;
static _Atomic uint32_t growing; /* number of the growing part, 0: none */
static _Atomic uint64_t bad, fell, queries, skipped;
static _Atomic uint64_t dumps, wild, missed;
static uint64_t names[CHAINS * LEN]; /* all sequence hashes, ascending */
static uint32_t n_names;
static struct pt_table p;
static uint32_t planned;
static uint64_t clears, deferred;

static void make_chains(struct kvr_rand *r)
{
	for (uint32_t c = 0; c < CHAINS; c++) {
		uint32_t from = c ? kvr_rand_below(r, LEN) : 0, like = c ? kvr_rand_below(r, c) : 0;

		for (uint32_t i = 0; i < LEN; i++) {
			sh[c][i] = i < from ? sh[like][i] : kvr_rand_u64(r) | 1;
			node[c][i] = i < from ? node[like][i] : c * LEN + i;
		}
	}
}

static int compare_values(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void make_names(void)
{
	memcpy(names, sh, sizeof(sh));
	qsort(names, CHAINS * LEN, sizeof(names[0]), compare_values);
	for (uint32_t i = 0; i < CHAINS * LEN; i++)
		if (i == 0 || names[i] != names[n_names - 1])
			names[n_names++] = names[i];
}

/* Index of a sequence hash among all, or n_names. */
static uint32_t find_name(uint64_t h)
{
	const uint64_t *at = bsearch(&h, names, n_names, sizeof(names[0]), compare_values);

	return at != NULL ? (uint32_t)(at - names) : n_names;
}

static uint32_t count_leading(uint32_t rank, uint32_t c)
{
	uint32_t i = 0;

	while (i < LEN && set[rank][node[c][i]])
		i++;
	return i;
}

/* Record the counts of one rank; with `keep`, not below the last record. */
static void take_note(uint32_t rank, bool keep)
{
	uint64_t n = atomic_load_explicit(&notes, memory_order_relaxed);

	for (uint32_t r = 0; r < RANKS; r++) {
		for (uint32_t c = 0; c < CHAINS; c++) {
			uint32_t last =
				atomic_load_explicit(&note[r][c][n % NOTES], memory_order_relaxed);
			uint32_t v = r == rank ? count_leading(r, c) : last;

			if (r == rank && keep)
				v = RTE_MAX(v, last);
			atomic_store_explicit(&note[r][c][(n + 1) % NOTES], v,
					      memory_order_relaxed);
		}
	}
	/*
	 * Release: pairs with the readers' acquire. Recorded before or after the change it
	 * describes.
	 */
	atomic_store_explicit(&notes, n + 1, memory_order_seq_cst);
}

static void change_blocks(uint32_t rank, uint32_t c, uint32_t from, uint32_t n, bool on)
{
	for (uint32_t i = from; i < from + n; i++)
		set[rank][node[c][i]] = on;
}

/*
 * A rank never has both block 10 and block 590 of a chain, but has each in turn: a run_reader that
 * adds up runs read at different times finds 600.
 */
static void toggle_ends(uint32_t rank, uint32_t c, uint32_t times)
{
	const uint32_t x = 10, y = 590;

	change_blocks(rank, c, 0, LEN, true);
	take_note(rank, true);
	kvr_prefix_store(p.t, (uint16_t)rank, KVR_TIER_DEVICE, NULL, sh[c], LEN);
	kvr_prefix_remove(p.t, (uint16_t)rank, KVR_TIER_DEVICE, &sh[c][x], 1);
	change_blocks(rank, c, x, 1, false);
	take_note(rank, false);
	change_blocks(rank, c, x, 1, true);
	change_blocks(rank, c, y, 1, false);
	take_note(rank, true); /* covers all states of the loop */
	for (uint32_t i = 0; i < times; i++) {
		kvr_prefix_remove(p.t, (uint16_t)rank, KVR_TIER_DEVICE, &sh[c][y], 1);
		kvr_prefix_store(p.t, (uint16_t)rank, KVR_TIER_DEVICE, &sh[c][x - 1], &sh[c][x], 1);
		if (i + 1 == times)
			break;
		kvr_prefix_remove(p.t, (uint16_t)rank, KVR_TIER_DEVICE, &sh[c][x], 1);
		kvr_prefix_store(p.t, (uint16_t)rank, KVR_TIER_DEVICE, &sh[c][y - 1], &sh[c][y], 1);
	}
	take_note(rank, false);
}

static void write_step(struct kvr_rand *r, bool grow)
{
	uint32_t rank = kvr_rand_below(r, RANKS), c = kvr_rand_below(r, CHAINS);
	uint32_t n = 1 + kvr_rand_below(r, LEN), from = 0, op = kvr_rand_below(r, 100);
	uint64_t gone[LEN];

	/* The rank must be empty for readers, and accepts nothing. */
	for (uint32_t i = 0; i < RANKS && !kvr_prefix_ready(p.t, (uint16_t)rank); i++) {
		rank = (rank + 1) % RANKS;
		deferred++;
	}
	if (!grow && op < 2) {
		toggle_ends(rank, c, 200);
		return;
	}
	if (op < 30) {
		from = RTE_MIN(count_leading(rank, c), LEN - 1);
		n = RTE_MIN(n % 40 + 1, LEN - from);
	}
	if (grow || op < 55) {
		change_blocks(rank, c, from, n, true);
		take_note(rank, true);
		kvr_prefix_store(p.t, (uint16_t)rank, KVR_TIER_DEVICE,
				 from ? &sh[c][from - 1] : NULL, &sh[c][from], n);
	} else if (op < 98) {
		from = LEN - n;
		if (op < 65) {
			from = kvr_rand_below(r, LEN);
			n = 1 + kvr_rand_below(r, RTE_MIN(20u, LEN - from));
		}
		for (uint32_t i = 0; i < n; i++)
			gone[i] = sh[c][op % 2 ? from + i : from + n - 1 - i];
		change_blocks(rank, c, from, n, false);
		kvr_prefix_remove(p.t, (uint16_t)rank, KVR_TIER_DEVICE, gone, n);
	} else {
		memset(set[rank], 0, sizeof(set[rank]));
		kvr_prefix_clear_rank(p.t, (uint16_t)rank);
		clears++;
	}
	take_note(rank, false);
}

/*
 * The highest count recorded for (rank, chain) from record a to record b; LEN if it was
 * overwritten.
 */
static uint32_t find_ceiling(uint32_t rank, uint32_t c, uint64_t a, uint64_t b)
{
	uint32_t max = 0;

	for (uint64_t i = a; i <= b; i++)
		max = RTE_MAX(
			max, atomic_load_explicit(&note[rank][c][i % NOTES], memory_order_relaxed));
	/* The slots may have been overwritten during the read. */
	if (atomic_load_explicit(&notes, memory_order_seq_cst) >= a + NOTES - 1)
		return LEN;
	return max;
}

/* `grew`: the table has only grown since `last` was cleared, until after this query. */
static void check_scores(const struct kvr_overlap *o, uint32_t c, uint64_t a, uint64_t b,
			 uint32_t *last, bool grew)
{
	for (uint32_t r = 0; r < RANKS; r++) {
		uint32_t v = pt_count(o, KVR_TIER_DEVICE, r);

		if (v > LEN || (b - a < NOTES / 2 && v > find_ceiling(r, c, a, b)))
			bad++;
		if (grew && last[r * CHAINS + c] > v)
			fell++;
		last[r * CHAINS + c] = v;
	}
}

static void *run_reader(void *arg)
{
	uint32_t id = (uint32_t)(uintptr_t)arg;
	uint32_t *last = pt_alloc(RANKS * CHAINS * sizeof(*last));
	struct kvr_rand r = {id * 77};
	struct kvr_prefix_query q[BURST];
	uint32_t was = 0;

	for (uint32_t i = 0; i < BURST; i++)
		q[i].out = pt_alloc(kvr_overlap_size(RANKS));
	rte_rcu_qsbr_thread_register(p.qsbr, id);
	rte_rcu_qsbr_thread_online(p.qsbr, id);
	while (!stop) {
		uint32_t c[BURST];
		uint32_t grows = growing;
		uint64_t a, b;

		if (grows != was)
			memset(last, 0, RANKS * CHAINS * sizeof(*last));
		was = grows;
		for (uint32_t i = 0; i < BURST; i++) {
			c[i] = kvr_rand_below(&r, CHAINS);
			q[i].sh = sh[c[i]];
			q[i].n = LEN;
		}
		a = atomic_load_explicit(&notes, memory_order_seq_cst);
		kvr_prefix_score_burst(p.t, q, BURST);
		/*
		 * Pairs with the writer's release: records before the end of the query are visible.
		 */
		atomic_thread_fence(memory_order_seq_cst);
		b = atomic_load_explicit(&notes, memory_order_seq_cst);
		if (b - a >= NOTES / 2)
			skipped++;
		for (uint32_t i = 0; i < BURST; i++)
			check_scores(q[i].out, c[i], a, b, last, grows != 0 && growing == grows);
		rte_rcu_qsbr_quiescent(p.qsbr, id);
		queries += BURST;
	}
	rte_rcu_qsbr_thread_offline(p.qsbr, id);
	rte_rcu_qsbr_thread_unregister(p.qsbr, id);
	for (uint32_t i = 0; i < BURST; i++)
		free(q[i].out);
	free(last);
	return NULL;
}

/* ---- dumps ---- */

static bool given[CHAINS * LEN];

/* Return true if @p next follows @p parent in some chain. */
static bool is_successor(uint64_t parent, uint64_t next)
{
	for (uint32_t c = 0; c < CHAINS; c++)
		for (uint32_t i = 1; i < LEN; i++)
			if (sh[c][i - 1] == parent && sh[c][i] == next)
				return true;
	return false;
}

static bool check_piece(void *ctx, const struct kvr_prefix_piece *d)
{
	(void)ctx;
	if (d->rank > FIXED || d->tier != KVR_TIER_DEVICE || d->n == 0) {
		wild++;
		return true;
	}
	for (uint32_t i = 0; i < d->n; i++) {
		uint32_t name = find_name(d->sh[i]);

		if (name == n_names || (i > 0 && !is_successor(d->sh[i - 1], d->sh[i])))
			wild++;
		else if (d->rank == FIXED)
			given[name] = true;
	}
	if (d->has_parent && !is_successor(d->parent, d->sh[0]))
		wild++;
	return true;
}

static void *run_dumper(void *arg)
{
	const uint32_t id = (uint32_t)(uintptr_t)arg;

	rte_rcu_qsbr_thread_register(p.qsbr, id);
	rte_rcu_qsbr_thread_online(p.qsbr, id);
	while (!stop) {
		memset(given, 0, sizeof(given));
		if (kvr_prefix_dump(p.t, id, check_piece, NULL, NULL) != 0)
			continue; /* the dump is reported incomplete */
		dumps++;
		for (uint32_t c = 0; c < 2; c++)
			for (uint32_t i = 0; i < LEN; i++)
				missed += !given[find_name(sh[c][i])];
	}
	rte_rcu_qsbr_thread_offline(p.qsbr, id);
	rte_rcu_qsbr_thread_unregister(p.qsbr, id);
	return NULL;
}

static void churn_table(struct kvr_rand *r, uint32_t steps, bool grow)
{
	for (uint32_t i = 0; i < steps; i++) {
		write_step(r, grow);
		if (i % 8 == 0)
			kvr_prefix_maintain(p.t, i);
	}
}

static void part_growing(struct kvr_rand *r, uint32_t steps, uint32_t number)
{
	for (uint32_t k = 0; k < RANKS; k++) {
		memset(set[k], 0, sizeof(set[k]));
		kvr_prefix_clear_rank(p.t, (uint16_t)k);
		take_note(k, false);
	}
	while (pt_stats(&p).clearing > 0)
		kvr_prefix_maintain(p.t, 0);
	growing = number;
	churn_table(r, steps, true);
	growing = 0;
}

int main(void)
{
	struct kvr_prefix_conf c = {.max_ranks = RANKS + 1,
				    .max_blocks = 1 << 14,
				    .max_runs = 1 << 14,
#ifdef __SANITIZE_THREAD__
				    .isa = KVR_PREFIX_ISA_SCALAR, /* vector loads look like races */
				    .slice = 300, /* few steps: clears must still take long */
#else
				    .slice = 1500, /* some runs: a clear takes some fifty steps */
#endif
				    .seed = 5};
	const char *s = getenv("KVR_STRESS_STEPS");
	struct kvr_rand r = {42};
	struct kvr_prefix_stats st;
	pthread_t id[READS + 1];

	pt_eal();
	p = pt_open(c);
	assert(p.t != NULL);
	rte_rcu_qsbr_thread_offline(p.qsbr, 0);
	rte_rcu_qsbr_thread_unregister(p.qsbr, 0);
	planned = s ? (uint32_t)atoi(s) : 60000;
	make_chains(&r);
	make_names();
	for (uint32_t i = 0; i < 2; i++)
		kvr_prefix_store(p.t, FIXED, KVR_TIER_DEVICE, NULL, sh[i], LEN);
	pthread_create(&id[READS], NULL, run_dumper, (void *)(uintptr_t)(READS + 1));
	for (uint32_t i = 0; i < READS; i++)
		pthread_create(&id[i], NULL, run_reader, (void *)(uintptr_t)(i + 1));
	churn_table(&r, planned, false);
	for (uint32_t i = 0; i < 4; i++)
		part_growing(&r, planned / 40, i + 1);
	churn_table(&r, planned / 4, false);
	stop = true;
	for (uint32_t i = 0; i < READS + 1; i++)
		pthread_join(id[i], NULL);
	for (uint32_t k = 0; k <= FIXED; k++)
		kvr_prefix_clear_rank(p.t, (uint16_t)k);
	while (kvr_prefix_maintain(p.t, 1) > 0)
		;
	st = pt_stats(&p);
	printf("%s: queries %lu, skipped %lu, above %lu, fell %lu, dropped %lu, left %lu bytes\n",
	       kvr_prefix_isa_name(p.t), (unsigned long)queries, (unsigned long)skipped,
	       (unsigned long)bad, (unsigned long)fell, (unsigned long)st.dropped,
	       (unsigned long)st.used_bytes);
	printf("clears %lu, steps deferred %lu\n", (unsigned long)clears, (unsigned long)deferred);
	printf("whole dumps %lu, blocks missed %lu, wild %lu\n", (unsigned long)dumps,
	       (unsigned long)missed, (unsigned long)wild);
	pt_close(&p);
	/* Blocks dropped for lack of memory may be missing; no block may be invented. */
	return bad > 0 || fell > 0 || queries == 0 || dumps == 0 || wild > 0 ||
	       (missed > 0 && st.dropped == 0) || st.used_bytes > 0 || deferred == 0;
}
