/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The table against its definition, with random operations: each (rank, plane) is a set of blocks
 * (@rule 2.1), a score counts leading blocks (@rule 4), tiers extend one another (@rule 2.3), and a
 * prediction ends after its time to live (@rule 3.7). The blocks are the nodes of random trees, so
 * that prompts diverge at many points.
 */

#include "kvr_prefix_test.h"
#include "kvr_test.h"
#include "prefix_pvt.h"

#define NODES  1500
#define DEPTH  1200
#define PLANES (KVR_TIERS + 1)
#define RANKS  40
#define BURST  20

static uint64_t sh[NODES];
static uint32_t up[NODES], depth[NODES]; /* parent node; a root is its own parent */
static bool set[PLANES][RANKS][NODES];
static uint64_t until[RANKS][NODES];
static uint32_t path[DEPTH], npath;
static uint64_t psh[DEPTH];
static uint64_t now;
static bool bounded;
static uint64_t n_rejected; /* blocks rejected while their rank was being cleared */
static struct kvr_rand rnd;
static struct pt_table p;
static struct kvr_overlap *out[BURST];

static uint32_t random_below(uint32_t n)
{
	return kvr_rand_below(&rnd, n);
}

/* Long thin trees (each node follows the previous one) with a branch at 3 of `thin` nodes. */
static void grow_forest(uint32_t thin)
{
	for (uint32_t i = 0; i < NODES; i++) {
		uint32_t r = random_below(thin);

		up[i] = i == 0 || r == 0 ? i : r < 4 ? random_below(i) : i - 1;
		depth[i] = up[i] == i ? 1 : depth[up[i]] + 1;
		if (depth[i] > DEPTH) {
			up[i] = i;
			depth[i] = 1;
		}
		sh[i] = kvr_rand_u64(&rnd) | 1;
	}
}

static void path_to(uint32_t node)
{
	npath = depth[node];
	for (uint32_t i = npath; i-- > 0; node = up[node]) {
		path[i] = node;
		psh[i] = sh[node];
	}
}

static uint32_t count_leading(uint32_t plane, uint32_t rank, uint32_t from)
{
	while (from < npath &&
	       (plane == KVR_TIERS ? until[rank][path[from]] > now : set[plane][rank][path[from]]))
		from++;
	return from;
}

/* With evictions a score may be too low, never too high. */
static void check_bounded(const struct kvr_overlap *o)
{
	for (uint32_t r = 0; r < RANKS; r++) {
		uint32_t pred = count_leading(KVR_TIERS, r, 0), dev = count_leading(0, r, 0);

		CU_ASSERT_FATAL(pt_count(o, KVR_TIERS, r) <= pred);
		CU_ASSERT_FATAL(pt_count(o, KVR_TIER_DEVICE, r) <= RTE_MAX(pred, dev));
	}
}

static void check_exact(const struct kvr_overlap *o)
{
	for (uint32_t r = 0; r < RANKS; r++) {
		uint32_t pred = count_leading(KVR_TIERS, r, 0), dev = count_leading(0, r, 0), at,
			 to;

		at = RTE_MAX(pred, dev);
		CU_ASSERT_EQUAL_FATAL(pt_count(o, KVR_TIERS, r), pred);
		CU_ASSERT_EQUAL_FATAL(pt_count(o, KVR_TIER_DEVICE, r), at);
		CU_ASSERT_FATAL(at <= o->max_device);
		for (uint32_t k = KVR_TIER_HOST; k < KVR_TIERS; k++, at = to) {
			to = count_leading(k, r, at);
			CU_ASSERT_EQUAL_FATAL(pt_count(o, k, r), to - at);
		}
	}
}

/*
 * Queries that match a path, end in unknown content, end inside a run, or leave the path at some
 * block.
 */
static void make_query(void)
{
	path_to(random_below(NODES));
	if (random_below(4) == 0)
		npath = 1 + random_below(npath);
	if (random_below(4) == 0)
		psh[npath - 1] = kvr_rand_u64(&rnd);
	else if (random_below(4) == 0)
		for (uint32_t i = random_below(npath); i < npath; i++)
			psh[i] = kvr_rand_u64(&rnd);
}

/* Check the scores of a query for the first `named` blocks of the path. */
static void check_query(const struct kvr_overlap *o, const uint64_t named[])
{
	uint32_t n = 0;

	while (n < npath && named[n] == sh[path[n]])
		n++;
	npath = n;
	if (bounded)
		check_bounded(o);
	else
		check_exact(o);
}

/* A single query or a burst: they take different code paths. */
static void run_queries(void)
{
	static uint64_t named[BURST][DEPTH];
	static uint32_t along[BURST][DEPTH];
	const uint32_t n = random_below(32) > 0 ? 1 : 2 + random_below(BURST - 1);
	struct kvr_prefix_query q[BURST];

	for (uint32_t i = 0; i < n; i++) {
		make_query();
		memcpy(named[i], psh, npath * sizeof(psh[0]));
		memcpy(along[i], path, npath * sizeof(path[0]));
		q[i] = (struct kvr_prefix_query){named[i], npath, out[i]};
	}
	kvr_prefix_score_burst(p.t, q, n);
	for (uint32_t i = 0; i < n; i++) {
		npath = q[i].n;
		memcpy(path, along[i], npath * sizeof(path[0]));
		check_query(out[i], named[i]);
	}
}

static void random_range(uint32_t *from, uint32_t *n)
{
	path_to(random_below(NODES));
	*from = random_below(3) ? 0 : random_below(npath);
	*n = 1 + random_below(npath - *from);
	if (random_below(3) == 0)
		*n = npath - *from;
	if (random_below(4) == 0)
		*n = RTE_MIN(*n, 3u);
}

/* A prefetch changes nothing, whether its events are applied later or not. */
static void random_fetch(uint32_t rank, uint32_t plane, uint8_t op, const uint64_t *names,
			 uint32_t n)
{
	struct kvr_prefix_event e[KVR_PREFIX_FETCH + 1];

	for (uint32_t i = 0; i < RTE_DIM(e); i++)
		e[i] = (struct kvr_prefix_event){.op = i % 3 == 2 ? !op : op,
						 .tier = (uint8_t)plane,
						 .has_parent = i % 2 == 1,
						 .rank = (uint16_t)(i % 7 == 6 ? rank + 1 : rank),
						 .n = i % 5 == 4 ? n / 2 : n,
						 .parent = names[n / 2],
						 .sh = names};
	kvr_prefix_fetch(p.t, e, n % (RTE_DIM(e) + 1));
}

static void random_store(uint32_t rank, uint32_t plane)
{
	uint32_t from, n;

	random_range(&from, &n);
	if (n % 3 == 0)
		random_fetch(rank, plane, KVR_PREFIX_STORE, &psh[from], n);
	kvr_prefix_store(p.t, (uint16_t)rank, plane,
			 from > 0 && random_below(8) ? &psh[from - 1] : NULL, &psh[from], n);
	for (uint32_t i = from; i < from + n; i++)
		set[plane][rank][path[i]] = true;
}

static void random_remove(uint32_t rank, uint32_t plane)
{
	uint64_t gone[DEPTH];
	uint32_t from, n, how = random_below(4);

	random_range(&from, &n);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t k = how == 0	? i
			     : how == 1 ? n - 1 - i
			     : how == 2 ? random_below(n)
					: n - 1 - i;

		gone[i] = psh[from + k];
		set[plane][rank][path[from + k]] = false;
	}
	if (n % 3 == 0)
		random_fetch(rank, plane, KVR_PREFIX_REMOVE, gone, n);
	kvr_prefix_remove(p.t, (uint16_t)rank, plane, gone, n);
}

/* A rank grows or shrinks by events of one block, in bursts; some events name a random block. */
static void random_steps(uint32_t rank, uint32_t plane)
{
	struct kvr_prefix_event e[48];
	const bool more = random_below(2);
	uint32_t from, n, burst, at;

	random_range(&from, &n);
	n = RTE_MIN(n, (uint32_t)RTE_DIM(e));
	for (uint32_t i = 0; i < n; i++) {
		at = more ? from + i : from + n - 1 - i;
		if (random_below(40) == 0)
			at = random_below(npath);
		e[i] = (struct kvr_prefix_event){.op = more ? KVR_PREFIX_STORE : KVR_PREFIX_REMOVE,
						 .tier = (uint8_t)plane,
						 .has_parent = at > 0 && random_below(20),
						 .rank = (uint16_t)rank,
						 .n = 1,
						 .parent = at > 0 ? psh[at - 1] : 0,
						 .sh = &psh[at]};
		set[plane][rank][path[at]] = more;
	}
	for (uint32_t i = 0; i < n; i += burst) {
		burst = 1 + random_below(n - i);
		kvr_prefix_apply_burst(p.t, &e[i], burst);
	}
}

static void random_predict(uint32_t rank)
{
	uint32_t ttl = 32 * (1 + random_below(100)), n;

	path_to(random_below(NODES));
	n = 1 + random_below(npath);
	kvr_prefix_predict(p.t, (uint16_t)rank, psh, n, now, ttl);
	for (uint32_t i = 0; i < n; i++)
		until[rank][path[i]] = RTE_MAX(until[rank][path[i]], now + ttl);
}

/* The rank counts nothing from now on, even while its blocks are still being freed. */
static void clear_rank(uint32_t rank)
{
	kvr_prefix_clear_rank(p.t, (uint16_t)rank);
	for (uint32_t k = 0; k < KVR_TIERS; k++)
		memset(set[k][rank], 0, sizeof(set[k][rank]));
	memset(until[rank], 0, sizeof(until[rank]));
}

/* Stores into a rank that is being cleared are rejected and counted. */
static void assert_rejected(uint32_t rank)
{
	uint64_t dropped = pt_stats(&p).dropped, removed = pt_stats(&p).removed;

	path_to(random_below(NODES));
	kvr_prefix_store(p.t, (uint16_t)rank, 0, NULL, psh, npath);
	kvr_prefix_predict(p.t, (uint16_t)rank, psh, npath, now, 1000);
	kvr_prefix_remove(p.t, (uint16_t)rank, 0, psh, npath);
	CU_ASSERT_EQUAL_FATAL(pt_stats(&p).dropped, dropped + 2 * npath);
	CU_ASSERT_EQUAL_FATAL(pt_stats(&p).removed, removed);
	n_rejected += 2 * npath;
}

static void random_step(uint32_t planes, uint32_t ranks)
{
	uint32_t op = random_below(1000), rank = random_below(ranks);
	uint32_t plane = planes > 1 ? random_below(RTE_MIN(planes, (uint32_t)KVR_TIERS)) : 0;

	if (op < 950 && !kvr_prefix_ready(p.t, (uint16_t)rank)) {
		assert_rejected(rank);
		kvr_prefix_maintain(p.t, now); /* one slice, which needs no quiescent reader */
	} else if (op < 400)
		random_store(rank, plane);
	else if (op < 700)
		random_remove(rank, plane);
	else if (op < 850)
		random_steps(rank, plane);
	else if (op < 950 && planes == PLANES)
		random_predict(rank);
	else if (op < 955) {
		for (uint32_t n = random_below(4) || bounded ? 1 : RANKS; n > 0;
		     n--) /* sometimes all ranks at once */
			clear_rank(n > 1 ? n - 1 : rank);
	} else if (op < 980 && planes == PLANES) {
		now += 32 * random_below(20);
		while (!kvr_prefix_expire(p.t, now))
			;
	} else if (random_below(2)) {
		pt_quiesce(&p, now);
	}
}

static uint64_t model_entries(void)
{
	uint64_t n = 0;

	for (uint32_t k = 0; k < KVR_TIERS; k++)
		for (uint32_t r = 0; r < RANKS; r++)
			for (uint32_t i = 0; i < NODES; i++)
				n += set[k][r][i];
	return n;
}

static void drain_table(uint32_t ranks)
{
	struct kvr_prefix_stats s;
	uint64_t fingerprints = 0;

	if (!bounded)
		CU_ASSERT_EQUAL(pt_stats(&p).entries, model_entries());
	for (uint32_t r = 0; r < ranks; r++)
		clear_rank(r);
	pt_quiesce(&p, now);
	s = pt_stats(&p);
	CU_ASSERT_EQUAL(s.entries, 0);
	CU_ASSERT_EQUAL(s.blocks, 0);
	CU_ASSERT_EQUAL(s.runs, 0);
	CU_ASSERT_EQUAL(s.predicted, 0);
	CU_ASSERT_EQUAL(s.used_bytes, 0);
	for (uint32_t i = 0; i < p.t->fingerprint_sets; i++)
		fingerprints |= p.t->fingerprints[i].w[0] | p.t->fingerprints[i].w[1];
	CU_ASSERT_EQUAL(fingerprints, 0); /* every removed head removed its fingerprint */
	CU_ASSERT_EQUAL(s.stored, s.removed + s.cleared + s.evicted_entries);
	CU_ASSERT_EQUAL(bounded, s.dropped - n_rejected + s.evicted_runs + s.evicted_predicted > 0);
	CU_ASSERT_EQUAL(s.clearing, 0);
	CU_ASSERT(n_rejected > 0);
}

static void run_model(uint64_t seed, uint32_t planes, uint32_t ranks, uint32_t steps,
		      enum kvr_prefix_isa isa)
{
	struct kvr_prefix_conf c = {
		.max_ranks = RANKS,
		.max_blocks = 4096,
		.max_runs = 40000, /* no bound is reached: many bitmaps need many runs */
		.max_predicted = 1 << 16,
		.isa = isa,
		.slice = seed % 3 ? 60 : 500, /* a clear takes many turns */
		.seed = seed};

	if (bounded) {
		c.max_blocks = 640;
		c.max_runs = 200;
		c.max_predicted = 300;
	}
	kvr_rand_init(&rnd, seed);
	memset(set, 0, sizeof(set));
	memset(until, 0, sizeof(until));
	now = n_rejected = 0;
	grow_forest(seed % 2 ? 100 : 1000); /* even seeds create long runs, up to the limit */
	p = pt_open(c);
	if (p.t == NULL) { /* this CPU does not support the code path */
		CU_ASSERT_EQUAL(errno, ENOTSUP);
		pt_close(&p);
		return;
	}
	for (uint32_t i = 0; i < BURST; i++)
		out[i] = pt_alloc(kvr_overlap_size(RANKS));
	for (uint32_t i = 0; i < steps; i++) {
		random_step(planes, ranks);
		if (bounded)
			CU_ASSERT_FATAL(pt_stats(&p).blocks <= 640);
		if (i % 4 == 0)
			run_queries();
	}
	drain_table(ranks);
	pt_close(&p);
	for (uint32_t i = 0; i < BURST; i++)
		free(out[i]);
}

/* Number of operations, scaled by KVR_STEPS_PERCENT for slow builds and long runs. */
static uint32_t scale_steps(uint32_t n)
{
	const char *s = getenv("KVR_STEPS_PERCENT");

	return s ? (uint32_t)((uint64_t)n * (uint32_t)atoi(s) / 100) : n;
}

static void few_ranks_match_the_model(void)
{
	for (uint64_t seed = 1; seed <= 4; seed++)
		run_model(seed, 1, 5, scale_steps(250000), KVR_PREFIX_ISA_AUTO);
}

static void many_ranks_match_the_model(void)
{
	for (uint64_t seed = 11; seed <= 13; seed++)
		run_model(seed, 1, RANKS, scale_steps(250000), KVR_PREFIX_ISA_AUTO);
}

static void all_planes_match_the_model(void)
{
	run_model(21, PLANES, RANKS, scale_steps(250000), KVR_PREFIX_ISA_AVX512);
	run_model(22, PLANES, 3, scale_steps(250000), KVR_PREFIX_ISA_AVX2);
	run_model(23, PLANES, 12, scale_steps(250000), KVR_PREFIX_ISA_SCALAR);
}

static void a_bounded_table_never_counts_too_much(void)
{
	bounded = true;
	run_model(31, 1, 20, scale_steps(100000), KVR_PREFIX_ISA_AUTO);
	run_model(32, PLANES, RANKS, scale_steps(100000), KVR_PREFIX_ISA_AUTO);
	run_model(33, PLANES, 4, scale_steps(100000), KVR_PREFIX_ISA_AUTO);
	bounded = false;
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(few_ranks_match_the_model),
			       KVR_CASE(many_ranks_match_the_model),
			       KVR_CASE(all_planes_match_the_model),
			       KVR_CASE(a_bounded_table_never_counts_too_much), CU_TEST_INFO_NULL};

	pt_eal();
	return kvr_test_run("prefix_model", tests);
}
