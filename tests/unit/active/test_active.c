/* SPDX-License-Identifier: BSD-3-Clause */
#include "active_pvt.h"
#include "kvr_active.h"
#include "kvr_rand.h"

#include "kvr_test.h"
#include <math.h>
#include <string.h>

#define HALF (KVR_ACTIVE_ONE / 2)

static struct kvr_active *make(uint32_t ranks, uint32_t runs, uint32_t wide)
{
	const struct kvr_active_conf conf = {
		.max_ranks = ranks, .max_runs = runs, .max_wide = wide, .max_prompt = 4096};

	return kvr_active_create(&conf);
}

static uint32_t book(struct kvr_active *a, uint32_t rank, const uint64_t *sh, uint32_t n,
		     struct kvr_active_booking *b)
{
	uint32_t depth[1024];

	kvr_active_match(a, sh, n, depth);
	return kvr_active_book(a, sh, n, rank, b);
}

static uint32_t depth_of(struct kvr_active *a, uint32_t rank, const uint64_t *sh, uint32_t n)
{
	uint32_t depth[1024];

	kvr_active_match(a, sh, n, depth);
	return depth[rank];
}

/* Section 17.4, "shared". */
static void shared_prompts_are_counted_once(void)
{
	const uint64_t abc[] = {1, 2, 3, 4}, e[] = {5};
	struct kvr_active *a = make(8, 64, 4);
	struct kvr_active_booking r1, r2, r3;

	CU_ASSERT_EQUAL(book(a, 0, abc, 3, &r1), 3);
	CU_ASSERT_EQUAL(kvr_active_blocks(a)[0], 3);
	CU_ASSERT_EQUAL(book(a, 0, e, 1, &r2), 1);
	CU_ASSERT_EQUAL(kvr_active_blocks(a)[0], 4);
	CU_ASSERT_EQUAL(book(a, 0, abc, 4, &r3), 1);
	CU_ASSERT_EQUAL(kvr_active_blocks(a)[0], 5);
	kvr_active_free(a, &r2);
	CU_ASSERT_EQUAL(kvr_active_blocks(a)[0], 4);
	kvr_active_free(a, &r1);
	CU_ASSERT_EQUAL(kvr_active_blocks(a)[0], 4);
	kvr_active_free(a, &r3);
	kvr_active_free(a, &r3); /* a second end changes nothing */
	CU_ASSERT_EQUAL(kvr_active_blocks(a)[0], 0);
	CU_ASSERT_PTR_NULL(kvr_active_check(a));
	kvr_active_destroy(a);
}

/* Section 6.3: prefixes count, not sets. */
static void membership_is_of_prefixes(void)
{
	const uint64_t held[] = {1, 2, 4, 5}, asked[] = {1, 2, 3, 5};
	struct kvr_active *a = make(8, 64, 4);
	struct kvr_active_booking b, c;

	book(a, 3, held, 4, &b);
	CU_ASSERT_EQUAL(depth_of(a, 3, asked, 4), 2);
	CU_ASSERT_EQUAL(depth_of(a, 2, asked, 4), 0);
	CU_ASSERT_EQUAL(book(a, 3, asked, 4, &c), 2);
	CU_ASSERT_EQUAL(kvr_active_blocks(a)[3], 6);
	kvr_active_free(a, &b);
	CU_ASSERT_EQUAL(kvr_active_blocks(a)[3], 4);
	CU_ASSERT_EQUAL(depth_of(a, 3, held, 4), 2);
	kvr_active_destroy(a);
}

static void a_booking_inside_a_run_keeps_its_depth(void)
{
	uint64_t sh[200];
	struct kvr_active *a = make(64, 64, 4);
	struct kvr_active_booking whole, part;

	for (uint32_t i = 0; i < 200; i++)
		sh[i] = 1000 + i;
	book(a, 1, sh, 200, &whole);
	book(a, 2, sh, 70, &part);
	CU_ASSERT_EQUAL(depth_of(a, 1, sh, 200), 200);
	CU_ASSERT_EQUAL(depth_of(a, 2, sh, 200), 70);
	CU_ASSERT_EQUAL(depth_of(a, 1, sh, 100), 100);
	kvr_active_free(a, &whole);
	CU_ASSERT_EQUAL(depth_of(a, 1, sh, 200), 0);
	CU_ASSERT_EQUAL(depth_of(a, 2, sh, 200), 70);
	CU_ASSERT_PTR_NULL(kvr_active_check(a));
	kvr_active_free(a, &part);
	kvr_active_destroy(a);
}

/* Section 6.2: the walk stops at the first shared block; weights stay when shared later. */
static void fading_reaches_only_what_is_held_alone(void)
{
	const uint64_t p[] = {1, 2, 3, 4, 5, 6};
	struct kvr_active *a = make(8, 64, 4);
	struct kvr_active_booking r1, r2, r3;

	book(a, 0, p, 3, &r1);
	kvr_active_output(a, &r1, 1);
	CU_ASSERT_EQUAL(kvr_active_blocks(a)[0], 4);
	kvr_active_fade(a, &r1, HALF);
	CU_ASSERT_EQUAL(kvr_active_blocks(a)[0], 2);
	book(a, 0, p, 3, &r2);
	CU_ASSERT_EQUAL(kvr_active_blocks(a)[0], 2);
	kvr_active_fade(a, &r1, 0); /* the prompt is shared now: only the output block goes */
	CU_ASSERT_EQUAL(kvr_active_blocks(a)[0], 2); /* 1.5, halves up */
	book(a, 0, p, 6, &r3);			     /* 4 5 6 on its own */
	CU_ASSERT_EQUAL(kvr_active_blocks(a)[0], 5); /* 4.5 */
	kvr_active_fade(a, &r3, 0);
	CU_ASSERT_EQUAL(kvr_active_blocks(a)[0], 2); /* 1.5 */
	kvr_active_free(a, &r1);
	kvr_active_free(a, &r2);
	kvr_active_free(a, &r3);
	CU_ASSERT_EQUAL(kvr_active_blocks(a)[0], 0);
	CU_ASSERT_EQUAL(a->sum[0], 0);
	kvr_active_destroy(a);
}

static void private_blocks_are_shared_with_nobody(void)
{
	const uint64_t p[] = {1, 2};
	struct kvr_active *a = make(8, 64, 4);
	struct kvr_active_booking r1, r2;

	kvr_active_book_private(a, 2, 5, &r1);
	CU_ASSERT_EQUAL(kvr_active_blocks(a)[5], 2);
	CU_ASSERT_EQUAL(depth_of(a, 5, p, 2), 0);
	CU_ASSERT_EQUAL(book(a, 5, p, 2, &r2), 2);
	CU_ASSERT_EQUAL(kvr_active_blocks(a)[5], 4);
	kvr_active_free(a, &r1);
	kvr_active_free(a, &r2);
	CU_ASSERT_EQUAL(kvr_active_blocks(a)[5], 0);
	kvr_active_destroy(a);
}

static void a_full_tree_counts_the_rest_privately(void)
{
	uint64_t sh[640];
	struct kvr_active *a = make(8, 3, 1);
	struct kvr_active_booking b, c;
	struct kvr_active_stats st;

	for (uint32_t i = 0; i < 640; i++)
		sh[i] = i + 1;
	CU_ASSERT_EQUAL(book(a, 0, sh, 640, &b), 640);
	CU_ASSERT_EQUAL(depth_of(a, 0, sh, 640), 192); /* three runs */
	CU_ASSERT_EQUAL(book(a, 0, sh, 100, &c), 36);  /* no run left to split with */
	kvr_active_stats_get(a, &st);
	CU_ASSERT_EQUAL(st.runs, 3);
	CU_ASSERT_EQUAL(st.private_blocks, 640 - 192 + 36);
	kvr_active_free(a, &b);
	CU_ASSERT_EQUAL(kvr_active_blocks(a)[0], 100);
	kvr_active_free(a, &c);
	CU_ASSERT_EQUAL(kvr_active_blocks(a)[0], 0);
	kvr_active_stats_get(a, &st);
	CU_ASSERT_EQUAL(st.runs, 0);
	kvr_active_destroy(a);
}

static void wide_records_come_and_go(void)
{
	const uint64_t p[] = {7, 8, 9};
	struct kvr_active *a = make(512, 64, 2);
	struct kvr_active_booking b[100];
	struct kvr_active_stats st;

	for (uint32_t i = 0; i < 100; i++)
		book(a, i * 5, p, 3, &b[i]);
	kvr_active_stats_get(a, &st);
	CU_ASSERT_EQUAL(st.wide, 1);
	CU_ASSERT_EQUAL(depth_of(a, 495, p, 3), 3);
	CU_ASSERT_EQUAL(depth_of(a, 494, p, 3), 0);
	CU_ASSERT_PTR_NULL(kvr_active_check(a));
	for (uint32_t i = 0; i < 97; i++)
		kvr_active_free(a, &b[i]);
	kvr_active_stats_get(a, &st);
	CU_ASSERT_EQUAL(st.wide, 0);
	CU_ASSERT_EQUAL(depth_of(a, 495, p, 3), 3);
	CU_ASSERT_EQUAL(depth_of(a, 0, p, 3), 0);
	for (uint32_t i = 97; i < 100; i++)
		kvr_active_free(a, &b[i]);
	CU_ASSERT_PTR_NULL(kvr_active_check(a));
	kvr_active_destroy(a);
}

/* Cuts of a prompt that is gone: booked by `ranks` ranks each, so inline or wide. */
static void cuts_heal(uint32_t ranks)
{
	struct kvr_active *a = make(64, 256, 16);
	struct kvr_active_booking whole[32], cut[8], last;
	struct kvr_active_stats st;
	uint64_t sh[100];

	for (uint32_t i = 0; i < 100; i++)
		sh[i] = i + 1;
	for (uint32_t i = 0; i < ranks; i++)
		book(a, i, sh, 100, &whole[i]);
	for (uint32_t i = 0; i < 8; i++)
		book(a, 40, sh, 7 * (i + 1), &cut[i]); /* 7 .. 56, all in the first run */
	kvr_active_stats_get(a, &st);
	CU_ASSERT_EQUAL(st.runs, 10);
	for (uint32_t i = 0; i < 8; i++)
		if (i != 3)
			kvr_active_free(a, &cut[i]);
	CU_ASSERT_EQUAL(book(a, 41, sh, 100, &last), 100);
	kvr_active_stats_get(a, &st);
	CU_ASSERT_EQUAL(st.runs, 3); /* 28, 36 and 36 blocks */
	CU_ASSERT_EQUAL(st.joins, 7);
	CU_ASSERT_PTR_NULL(kvr_active_check(a));
	CU_ASSERT_EQUAL(depth_of(a, 0, sh, 100), 100);
	CU_ASSERT_EQUAL(depth_of(a, 40, sh, 100), 28);
	CU_ASSERT_EQUAL(depth_of(a, 41, sh, 60), 60);
	kvr_active_free(a, &cut[3]);
	kvr_active_free(a, &last);
	for (uint32_t i = 0; i < ranks; i++)
		kvr_active_free(a, &whole[i]);
	kvr_active_stats_get(a, &st);
	CU_ASSERT_EQUAL(st.runs + st.wide, 0);
	CU_ASSERT_PTR_NULL(kvr_active_check(a));
	kvr_active_destroy(a);
}

static void cuts_of_a_prompt_that_is_gone_heal(void)
{
	cuts_heal(1);
	cuts_heal(32);
}

/* Whatever ends between the calls, fetching ahead comes to its end and touches what exists. */
static void fetching_ahead_may_be_late(void)
{
	struct kvr_active *a = make(8, 64, 4);
	struct kvr_active_booking b[16] = {0};
	struct kvr_active_ahead ahead = {0};
	uint64_t sh[300];
	struct kvr_rand r;

	kvr_rand_init(&r, 9);
	for (uint32_t i = 0; i < 300; i++)
		sh[i] = i + 1;
	for (uint32_t round = 0; round < 20000; round++) {
		uint32_t i = kvr_rand_below(&r, 16), n = kvr_rand_below(&r, 300);

		if (round % 40 == 0)
			ahead = (struct kvr_active_ahead){0};
		kvr_active_prefetch_match(a, sh, 300, &ahead);
		CU_ASSERT_FATAL(ahead.done < 300);
		kvr_active_free(a, &b[i]);
		book(a, kvr_rand_below(&r, 8), sh, n, &b[i]);
		if (round % 500 == 0)
			CU_ASSERT_PTR_NULL_FATAL(kvr_active_check(a));
	}
	/* In peace it ends at the last run that the match finds. */
	for (uint32_t i = 0; i < 16; i++)
		kvr_active_free(a, &b[i]);
	book(a, 0, sh, 170, &b[0]);
	book(a, 1, sh, 100, &b[1]);
	ahead = (struct kvr_active_ahead){0};
	for (uint32_t i = 0; i < 8; i++) /* runs of 64, 36, 28 and 42: the prompt, then two a run */
		kvr_active_prefetch_match(a, sh, 150, &ahead);
	CU_ASSERT_EQUAL(ahead.done, 128);
	kvr_active_destroy(a);
}

/* A faded part is not joined to one of full weight, or its blocks would change theirs. */
static void faded_runs_stay_apart(void)
{
	const uint64_t p[] = {1, 2, 3, 4};
	struct kvr_active *a = make(8, 64, 4);
	struct kvr_active_booking r1, r2, r3;

	book(a, 0, p, 4, &r1);
	book(a, 0, p, 2, &r2);
	kvr_active_fade(a, &r1, HALF); /* 3 and 4 */
	kvr_active_free(a, &r2);
	CU_ASSERT_EQUAL(kvr_active_blocks(a)[0], 3);
	book(a, 1, p, 4, &r3);
	CU_ASSERT_EQUAL(kvr_active_blocks(a)[0], 3);
	kvr_active_free(a, &r1);
	CU_ASSERT_EQUAL(a->sum[0], 0);
	kvr_active_free(a, &r3);
	kvr_active_destroy(a);
}

static void create_refuses_nonsense(void)
{
	struct kvr_active_conf conf = {
		.max_ranks = 0, .max_runs = 1, .max_wide = 1, .max_prompt = 1};

	CU_ASSERT_PTR_NULL(kvr_active_create(&conf));
	CU_ASSERT_EQUAL(errno, EINVAL);
	kvr_active_destroy(NULL);
}

static int allocations_left;

static void *failing_alloc(void *arg, size_t bytes)
{
	return allocations_left-- > 0 ? calloc(1, bytes + 64) : NULL;
}

static void plain_release(void *arg, void *p)
{
	free(p);
}

static void every_failed_allocation_is_undone(void)
{
	const struct kvr_active_conf conf = {.max_ranks = 64,
					     .max_runs = 4,
					     .max_wide = 4,
					     .max_prompt = 4,
					     .alloc = failing_alloc,
					     .release = plain_release};
	struct kvr_active *a = NULL;
	int n;

	for (n = 0; a == NULL; n++) {
		allocations_left = n;
		a = kvr_active_create(&conf);
		CU_ASSERT(a != NULL || errno == ENOMEM);
	}
	CU_ASSERT(n > 5);
	kvr_active_destroy(a);
}

/* ---- the naive model: a tree of single blocks per rank, walked from scratch ---------------- */

#define M_BOOKINGS 60
#define M_LEN	   40
#define M_RANKS	   20

struct model {
	bool live;
	uint32_t rank, n, out;
	uint64_t sh[M_LEN];
	double weight[M_LEN]; /* of its blocks; equal for all holders of a block */
	double out_weight;
	struct kvr_active_booking b;
};

static struct model m[M_BOOKINGS];

static uint32_t common(const struct model *x, const uint64_t *sh, uint32_t n)
{
	uint32_t i = 0;

	while (i < n && i < x->n && x->sh[i] == sh[i])
		i++;
	return i;
}

static uint32_t naive_depth(uint32_t rank, const uint64_t *sh, uint32_t n)
{
	uint32_t best = 0;

	for (int i = 0; i < M_BOOKINGS; i++)
		if (m[i].live && m[i].rank == rank && common(&m[i], sh, n) > best)
			best = common(&m[i], sh, n);
	return best;
}

static double naive_blocks(uint32_t rank)
{
	double sum = 0;

	for (int i = 0; i < M_BOOKINGS; i++) {
		uint32_t seen = 0; /* blocks an earlier booking already counted */

		if (!m[i].live || m[i].rank != rank)
			continue;
		for (int j = 0; j < i; j++)
			if (m[j].live && m[j].rank == rank && common(&m[j], m[i].sh, m[i].n) > seen)
				seen = common(&m[j], m[i].sh, m[i].n);
		for (uint32_t k = seen; k < m[i].n; k++)
			sum += m[i].weight[k];
		sum += m[i].out * m[i].out_weight;
	}
	return sum;
}

static void naive_book(struct model *x)
{
	for (uint32_t k = 0; k < x->n; k++)
		x->weight[k] = 1;
	for (int j = 0; j < M_BOOKINGS; j++)
		if (m[j].live && &m[j] != x && m[j].rank == x->rank)
			for (uint32_t k = 0; k < common(&m[j], x->sh, x->n); k++)
				x->weight[k] = m[j].weight[k];
	x->out = 0;
	x->out_weight = 1;
}

static void naive_fade(struct model *x, double f)
{
	uint32_t shared = 0;

	for (int j = 0; j < M_BOOKINGS; j++)
		if (m[j].live && &m[j] != x && m[j].rank == x->rank &&
		    common(&m[j], x->sh, x->n) > shared)
			shared = common(&m[j], x->sh, x->n);
	for (uint32_t k = shared; k < x->n; k++)
		x->weight[k] = f;
	x->out_weight = f;
}

/* Few different hashes, so that prefixes meet and part; not a hash chain on purpose. */
static void random_prompt(struct kvr_rand *r, struct model *x)
{
	x->n = kvr_rand_below(r, M_LEN + 1);
	for (uint32_t i = 0; i < x->n; i++)
		x->sh[i] = kvr_rand_below(r, 8) == 0 ? 1 + kvr_rand_below(r, 2) : 0;
}

static void compare(struct kvr_active *a, struct kvr_rand *r)
{
	uint32_t depth[64];
	struct model q;

	random_prompt(r, &q);
	kvr_active_match(a, q.sh, q.n, depth);
	for (uint32_t rank = 0; rank < M_RANKS; rank++) {
		double want = naive_blocks(rank);

		CU_ASSERT_EQUAL_FATAL(depth[rank], naive_depth(rank, q.sh, q.n));
		CU_ASSERT_EQUAL_FATAL(kvr_active_blocks(a)[rank], (uint32_t)floor(want + 0.5));
	}
}

/* The three long ones as a caller has them that does a few runs at a time, or all at once. */
static void book_as(struct kvr_active *a, struct kvr_rand *r, struct model *x)
{
	uint32_t depth[64], slice = kvr_rand_below(r, 4), walks = 0;

	if (slice == 0) {
		book(a, x->rank, x->sh, x->n, &x->b);
		return;
	}
	for (; !kvr_active_match_some(a, x->sh, x->n, depth, slice); walks++)
		CU_ASSERT_FATAL(walks <= M_LEN);
	kvr_active_match(a, x->sh, x->n, depth); /* nothing is left to do */
	for (walks = 0; !kvr_active_book_some(a, x->sh, x->n, x->rank, &x->b, slice); walks++)
		CU_ASSERT_FATAL(walks <= 3 * M_LEN);
}

static void free_as(struct kvr_active *a, struct kvr_rand *r, struct model *x)
{
	uint32_t slice = kvr_rand_below(r, 4);

	if (slice == 0) {
		kvr_active_free(a, &x->b);
		return;
	}
	while (!kvr_active_free_some(a, &x->b, slice))
		CU_ASSERT_PTR_NULL(kvr_active_check(a));
}

static void step(struct kvr_active *a, struct kvr_rand *r)
{
	struct model *x = &m[kvr_rand_below(r, M_BOOKINGS)];
	double f = kvr_rand_below(r, 9) / 8.0;

	if (!x->live) {
		random_prompt(r, x);
		x->rank = kvr_rand_below(r, M_RANKS);
		naive_book(x);
		book_as(a, r, x);
		x->live = true;
	} else if (kvr_rand_below(r, 2) == 0) {
		x->out++;
		kvr_active_output(a, &x->b, 1);
		naive_fade(x, f);
		kvr_active_fade(a, &x->b, (uint32_t)(f * KVR_ACTIVE_ONE));
	} else {
		x->live = false;
		free_as(a, r, x);
	}
}

static void behaves_as_the_naive_tree(void)
{
	struct kvr_active *a = make(M_RANKS, 4096, 64);
	struct kvr_rand r;

	memset(m, 0, sizeof(m));
	kvr_rand_init(&r, 4);
	for (int i = 0; i < 6000; i++) {
		step(a, &r);
		if (i % 4 == 0)
			compare(a, &r);
		if (i % 500 == 0) {
			CU_ASSERT_PTR_NULL_FATAL(kvr_active_check(a));
		}
	}
	for (int i = 0; i < M_BOOKINGS; i++)
		if (m[i].live)
			kvr_active_free(a, &m[i].b);
	for (uint32_t k = 0; k < M_RANKS; k++)
		CU_ASSERT_EQUAL(a->sum[k], 0);
	CU_ASSERT_EQUAL(a->runs.fresh, a->runs.n_free);
	CU_ASSERT_PTR_NULL(kvr_active_check(a));
	kvr_active_destroy(a);
}

/* No call looks at more runs than it may, and a match that others have touched begins anew. */
static void slices_are_as_long_as_said(void)
{
	static uint64_t sh[4096], other[64];
	struct kvr_active *a = make(8, 256, 4);
	struct kvr_active_booking b, c;
	uint32_t depth[64], calls;
	uint64_t before;

	for (uint32_t i = 0; i < 4096; i++)
		sh[i] = 1 + i;
	for (uint32_t i = 0; i < 64; i++)
		other[i] = 10000 + i;
	kvr_active_match(a, sh, 4096, depth);
	before = kvr_active_walked(a);
	for (calls = 0; !kvr_active_book_some(a, sh, 4096, 1, &b, 8); calls++) {
		CU_ASSERT(kvr_active_walked(a) - before <= 8);
		before = kvr_active_walked(a);
	}
	CU_ASSERT_EQUAL(calls, 7); /* and the last one: 64 runs */
	CU_ASSERT_EQUAL(kvr_active_blocks(a)[1], 4096);
	CU_ASSERT_FALSE(kvr_active_match_some(a, sh, 4096, depth, 8));
	book(a, 2, other, 64, &c);
	for (calls = 1; !kvr_active_match_some(a, sh, 4096, depth, 8); calls++)
		;
	CU_ASSERT_EQUAL(calls, 8);
	CU_ASSERT_EQUAL(depth[1], 4096);
	before = kvr_active_walked(a);
	kvr_active_match(a, sh, 4096, depth);
	CU_ASSERT_EQUAL(kvr_active_walked(a), before);
	sh[0] = 5; /* what stands there is another prompt, and who changed it has said so */
	kvr_active_match_forget(a);
	kvr_active_match(a, sh, 4096, depth);
	CU_ASSERT_EQUAL(depth[1], 0);
	for (calls = 0, before = kvr_active_walked(a); !kvr_active_free_some(a, &b, 8); calls++) {
		CU_ASSERT(kvr_active_walked(a) - before <= 8);
		before = kvr_active_walked(a);
		CU_ASSERT_PTR_NULL(kvr_active_check(a));
	}
	CU_ASSERT_EQUAL(calls, 7);
	CU_ASSERT_EQUAL(kvr_active_blocks(a)[1], 0);
	kvr_active_free(a, &c);
	CU_ASSERT_EQUAL(a->runs.fresh, a->runs.n_free);
	kvr_active_destroy(a);
}

static void kernels_agree(void)
{
	uint64_t x[80], set[8];
	uint32_t out[2][512];
	struct kvr_rand r;

	kvr_rand_init(&r, 8);
	for (int round = 0; round < 300; round++) {
		uint32_t n = kvr_rand_below(&r, 65), cut = kvr_rand_below(&r, 80);
		uint32_t room = n + kvr_rand_below(&r, 81 - n);
		unsigned char *bytes = malloc(8 * room + 1); /* nothing behind them is read */

		for (uint32_t i = 0; i < 80; i++)
			x[i] = kvr_rand_u64(&r);
		memcpy(bytes + 1, x, 8 * room);
		if (cut < room)
			bytes[1 + 8 * cut + 7] ^= 0x80;
		for (uint32_t i = 0; i < 8; i++) {
			set[i] = kvr_rand_u64(&r) & kvr_rand_u64(&r);
			if (kvr_rand_below(&r, 2)) /* few: they go another way */
				set[i] &= kvr_rand_u64(&r) & kvr_rand_u64(&r);
		}
		memset(out, 0, sizeof(out));
		for (int isa = ACTIVE_SCALAR; isa <= ACTIVE_AVX512; isa++) {
			active_same_fn same;
			active_spread_fn spread;

			if (!kvr_active__kernels((enum active_isa)isa, &same, &spread))
				continue;
			CU_ASSERT_EQUAL(same(x, bytes + 1, n, room), cut < n ? cut : n);
			memset(out[1], 0, sizeof(out[1]));
			spread(set, 8, 77, out[1]);
			if (isa == ACTIVE_SCALAR)
				memcpy(out[0], out[1], sizeof(out[0]));
			CU_ASSERT_EQUAL(memcmp(out[0], out[1], sizeof(out[0])), 0);
		}
		free(bytes);
	}
}

int main(void)
{
	CU_TestInfo tests[] = {{"shared", shared_prompts_are_counted_once},
			       {"prefix", membership_is_of_prefixes},
			       {"inside", a_booking_inside_a_run_keeps_its_depth},
			       {"fade", fading_reaches_only_what_is_held_alone},
			       {"private", private_blocks_are_shared_with_nobody},
			       {"full", a_full_tree_counts_the_rest_privately},
			       {"wide", wide_records_come_and_go},
			       {"heal", cuts_of_a_prompt_that_is_gone_heal},
			       {"ahead", fetching_ahead_may_be_late},
			       {"heal-fade", faded_runs_stay_apart},
			       {"create", create_refuses_nonsense},
			       {"enomem", every_failed_allocation_is_undone},
			       {"naive", behaves_as_the_naive_tree},
			       {"slices", slices_are_as_long_as_said},
			       {"kernels", kernels_agree},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("active", tests);
}
