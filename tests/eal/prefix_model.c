/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The table against its definition over random operations: each (rank, plane) is a set of
 * blocks, a score counts leading blocks, tiers extend one another, a prediction lives as long as
 * it was given. The blocks are the nodes of random trees, so that content diverges everywhere.
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
static uint32_t up[NODES], depth[NODES]; /* parent node, or itself for a root */
static bool set[PLANES][RANKS][NODES];
static uint64_t until[RANKS][NODES];
static uint32_t path[DEPTH], npath;
static uint64_t psh[DEPTH];
static uint64_t now;
static bool bounded;
static uint64_t n_refused; /* blocks, while their rank was being cleared */
static struct kvr_rand rnd;
static struct pt_table p;
static struct kvr_overlap *out[BURST];

static uint32_t below(uint32_t n)
{
	return kvr_rand_below(&rnd, n);
}

/* Long thin trees (steps of +1) that branch at one in `thin` / 3 nodes. */
static void grow_forest(uint32_t thin)
{
	for (uint32_t i = 0; i < NODES; i++) {
		uint32_t r = below(thin);

		up[i] = i == 0 || r == 0 ? i : r < 4 ? below(i) : i - 1;
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

static uint32_t leading(uint32_t plane, uint32_t rank, uint32_t from)
{
	while (from < npath &&
	       (plane == KVR_TIERS ? until[rank][path[from]] > now : set[plane][rank][path[from]]))
		from++;
	return from;
}

/* At a bound blocks were dropped: a score may be lower, never higher. */
static void check_bounded(const struct kvr_overlap *o)
{
	for (uint32_t r = 0; r < RANKS; r++) {
		uint32_t pred = leading(KVR_TIERS, r, 0), dev = leading(0, r, 0);

		CU_ASSERT_FATAL(pt_count(o, KVR_TIERS, r) <= pred);
		CU_ASSERT_FATAL(pt_count(o, KVR_TIER_DEVICE, r) <= RTE_MAX(pred, dev));
	}
}

static void check(const struct kvr_overlap *o)
{
	for (uint32_t r = 0; r < RANKS; r++) {
		uint32_t pred = leading(KVR_TIERS, r, 0), dev = leading(0, r, 0), at, to;

		at = RTE_MAX(pred, dev);
		CU_ASSERT_EQUAL_FATAL(pt_count(o, KVR_TIERS, r), pred);
		CU_ASSERT_EQUAL_FATAL(pt_count(o, KVR_TIER_DEVICE, r), at);
		CU_ASSERT_FATAL(at <= o->max_device);
		for (uint32_t k = KVR_TIER_HOST; k < KVR_TIERS; k++, at = to) {
			to = leading(k, r, at);
			CU_ASSERT_EQUAL_FATAL(pt_count(o, k, r), to - at);
		}
	}
}

/* Queries end in content nobody has, or in the middle of a run, or leave all at some block. */
static void make_query(void)
{
	path_to(below(NODES));
	if (below(4) == 0)
		npath = 1 + below(npath);
	if (below(4) == 0)
		psh[npath - 1] = kvr_rand_u64(&rnd);
	else if (below(4) == 0)
		for (uint32_t i = below(npath); i < npath; i++)
			psh[i] = kvr_rand_u64(&rnd);
}

/* The answer to a query for blocks `named` along the path. */
static void check_query(const struct kvr_overlap *o, const uint64_t named[])
{
	uint32_t n = 0;

	while (n < npath && named[n] == sh[path[n]])
		n++;
	npath = n;
	if (bounded)
		check_bounded(o);
	else
		check(o);
}

/* One query a call, or a burst: those go different ways. */
static void query(void)
{
	static uint64_t named[BURST][DEPTH];
	static uint32_t along[BURST][DEPTH];
	const uint32_t n = below(32) > 0 ? 1 : 2 + below(BURST - 1);
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

static void range(uint32_t *from, uint32_t *n)
{
	path_to(below(NODES));
	*from = below(3) ? 0 : below(npath);
	*n = 1 + below(npath - *from);
	if (below(3) == 0)
		*n = npath - *from;
	if (below(4) == 0)
		*n = RTE_MIN(*n, 3u);
}

/* What is fetched ahead changes nothing, whatever it is and whether it comes or not. */
static void fetch(uint32_t rank, uint32_t plane, uint8_t op, const uint64_t *names, uint32_t n)
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

	range(&from, &n);
	if (n % 3 == 0)
		fetch(rank, plane, KVR_PREFIX_STORE, &psh[from], n);
	kvr_prefix_store(p.t, (uint16_t)rank, plane, from > 0 && below(8) ? &psh[from - 1] : NULL,
			 &psh[from], n);
	for (uint32_t i = from; i < from + n; i++)
		set[plane][rank][path[i]] = true;
}

static void random_remove(uint32_t rank, uint32_t plane)
{
	uint64_t gone[DEPTH];
	uint32_t from, n, how = below(4);

	range(&from, &n);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t k = how == 0 ? i : how == 1 ? n - 1 - i : how == 2 ? below(n) : n - 1 - i;

		gone[i] = psh[from + k];
		set[plane][rank][path[from + k]] = false;
	}
	if (n % 3 == 0)
		fetch(rank, plane, KVR_PREFIX_REMOVE, gone, n);
	kvr_prefix_remove(p.t, (uint16_t)rank, plane, gone, n);
}

/* A rank goes on block by block, or goes back, by one event a block in bursts; odd ones between. */
static void random_steps(uint32_t rank, uint32_t plane)
{
	struct kvr_prefix_event e[48];
	const bool more = below(2);
	uint32_t from, n, burst, at;

	range(&from, &n);
	n = RTE_MIN(n, (uint32_t)RTE_DIM(e));
	for (uint32_t i = 0; i < n; i++) {
		at = more ? from + i : from + n - 1 - i;
		if (below(40) == 0)
			at = below(npath);
		e[i] = (struct kvr_prefix_event){.op = more ? KVR_PREFIX_STORE : KVR_PREFIX_REMOVE,
						 .tier = (uint8_t)plane,
						 .has_parent = at > 0 && below(20),
						 .rank = (uint16_t)rank,
						 .n = 1,
						 .parent = at > 0 ? psh[at - 1] : 0,
						 .sh = &psh[at]};
		set[plane][rank][path[at]] = more;
	}
	for (uint32_t i = 0; i < n; i += burst) {
		burst = 1 + below(n - i);
		kvr_prefix_apply_burst(p.t, &e[i], burst);
	}
}

static void random_predict(uint32_t rank)
{
	uint32_t ttl = 32 * (1 + below(100)), n;

	path_to(below(NODES));
	n = 1 + below(npath);
	kvr_prefix_predict(p.t, (uint16_t)rank, psh, n, now, ttl);
	for (uint32_t i = 0; i < n; i++)
		until[rank][path[i]] = RTE_MAX(until[rank][path[i]], now + ttl);
}

/* It counts nothing from here on, however long its blocks take to be freed. */
static void clear(uint32_t rank)
{
	kvr_prefix_clear_rank(p.t, (uint16_t)rank);
	for (uint32_t k = 0; k < KVR_TIERS; k++)
		memset(set[k][rank], 0, sizeof(set[k][rank]));
	memset(until[rank], 0, sizeof(until[rank]));
}

/* What is stored in a rank that is being cleared is refused, and counted so. */
static void refused(uint32_t rank)
{
	uint64_t dropped = pt_stats(&p).dropped, removed = pt_stats(&p).removed;

	path_to(below(NODES));
	kvr_prefix_store(p.t, (uint16_t)rank, 0, NULL, psh, npath);
	kvr_prefix_predict(p.t, (uint16_t)rank, psh, npath, now, 1000);
	kvr_prefix_remove(p.t, (uint16_t)rank, 0, psh, npath);
	CU_ASSERT_EQUAL_FATAL(pt_stats(&p).dropped, dropped + 2 * npath);
	CU_ASSERT_EQUAL_FATAL(pt_stats(&p).removed, removed);
	n_refused += 2 * npath;
}

static void random_step(uint32_t planes, uint32_t ranks)
{
	uint32_t op = below(1000), rank = below(ranks);
	uint32_t plane = planes > 1 ? below(RTE_MIN(planes, (uint32_t)KVR_TIERS)) : 0;

	if (op < 950 && !kvr_prefix_ready(p.t, (uint16_t)rank)) {
		refused(rank);
		kvr_prefix_maintain(p.t, now); /* a slice; the reader need not have moved */
	} else if (op < 400)
		random_store(rank, plane);
	else if (op < 700)
		random_remove(rank, plane);
	else if (op < 850)
		random_steps(rank, plane);
	else if (op < 950 && planes == PLANES)
		random_predict(rank);
	else if (op < 955) {
		for (uint32_t n = below(4) || bounded ? 1 : RANKS; n > 0;
		     n--) /* at times all at once */
			clear(n > 1 ? n - 1 : rank);
	} else if (op < 980 && planes == PLANES) {
		now += 32 * below(20);
		while (!kvr_prefix_expire(p.t, now))
			;
	} else if (below(2)) {
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

static void drain(uint32_t ranks)
{
	struct kvr_prefix_stats s;
	uint64_t prints = 0;

	if (!bounded)
		CU_ASSERT_EQUAL(pt_stats(&p).entries, model_entries());
	for (uint32_t r = 0; r < ranks; r++)
		clear(r);
	pt_quiesce(&p, now);
	s = pt_stats(&p);
	CU_ASSERT_EQUAL(s.entries, 0);
	CU_ASSERT_EQUAL(s.blocks, 0);
	CU_ASSERT_EQUAL(s.runs, 0);
	CU_ASSERT_EQUAL(s.predicted, 0);
	CU_ASSERT_EQUAL(s.used_bytes, 0);
	for (uint32_t i = 0; i < p.t->nprints; i++)
		prints |= p.t->prints[i].w[0] | p.t->prints[i].w[1];
	CU_ASSERT_EQUAL(prints, 0); /* every head that came is gone with its print */
	CU_ASSERT_EQUAL(s.stored, s.removed + s.cleared + s.evicted_entries);
	CU_ASSERT_EQUAL(bounded, s.dropped - n_refused + s.evicted_runs + s.evicted_predicted > 0);
	CU_ASSERT_EQUAL(s.clearing, 0);
	CU_ASSERT(n_refused > 0);
}

static void run(uint64_t seed, uint32_t planes, uint32_t ranks, uint32_t steps,
		enum kvr_prefix_isa isa)
{
	struct kvr_prefix_conf c = {.max_ranks = RANKS,
				    .max_blocks = 4096,
				    .max_runs = 40000, /* many bitmaps: no bound is to be met */
				    .max_predicted = 1 << 16,
				    .isa = isa,
				    .slice = seed % 3 ? 60 : 500, /* many turns a clear */
				    .seed = seed};

	if (bounded) {
		c.max_blocks = 640;
		c.max_runs = 200;
		c.max_predicted = 300;
	}
	kvr_rand_init(&rnd, seed);
	memset(set, 0, sizeof(set));
	memset(until, 0, sizeof(until));
	now = n_refused = 0;
	grow_forest(seed % 2 ? 100 : 1000); /* even seeds: runs of many blocks, up to the limit */
	p = pt_open(c);
	if (p.t == NULL) { /* this CPU lacks the code path */
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
			query();
	}
	drain(ranks);
	pt_close(&p);
	for (uint32_t i = 0; i < BURST; i++)
		free(out[i]);
}

/* Operations in per cent of the usual, for slow builds and long nights. */
static uint32_t steps(uint32_t n)
{
	const char *s = getenv("KVR_STEPS_PERCENT");

	return s ? (uint32_t)((uint64_t)n * (uint32_t)atoi(s) / 100) : n;
}

static void device_sets_of_few_ranks(void)
{
	for (uint64_t seed = 1; seed <= 4; seed++)
		run(seed, 1, 5, steps(250000), KVR_PREFIX_ISA_AUTO);
}

static void device_sets_of_many_ranks(void)
{
	for (uint64_t seed = 11; seed <= 13; seed++)
		run(seed, 1, RANKS, steps(250000), KVR_PREFIX_ISA_AUTO);
}

static void all_planes(void)
{
	run(21, PLANES, RANKS, steps(250000), KVR_PREFIX_ISA_AVX512);
	run(22, PLANES, 3, steps(250000), KVR_PREFIX_ISA_AVX2);
	run(23, PLANES, 12, steps(250000), KVR_PREFIX_ISA_SCALAR);
}

static void bounded_table_never_counts_too_much(void)
{
	bounded = true;
	run(31, 1, 20, steps(100000), KVR_PREFIX_ISA_AUTO);
	run(32, PLANES, RANKS, steps(100000), KVR_PREFIX_ISA_AUTO);
	run(33, PLANES, 4, steps(100000), KVR_PREFIX_ISA_AUTO);
	bounded = false;
}

int main(void)
{
	CU_TestInfo tests[] = {{"few", device_sets_of_few_ranks},
			       {"many", device_sets_of_many_ranks},
			       {"planes", all_planes},
			       {"bounded", bounded_table_never_counts_too_much},
			       CU_TEST_INFO_NULL};

	pt_eal();
	return kvr_test_run("prefix_model", tests);
}
