/* SPDX-License-Identifier: BSD-3-Clause */
#include "active_pvt.h"
#include "kvr_active.h"
#include "kvr_rand.h"

#include "kvr_test.h"
#include <math.h>
#include <string.h>

#define HALF (KVR_ACTIVE_ONE / 2)

static struct kvr_active *create_tree(uint32_t ranks, uint32_t runs, uint32_t wide)
{
	const struct kvr_active_conf conf = {
		.max_ranks = ranks, .max_runs = runs, .max_wide = wide, .max_prompt = 4096};

	return kvr_active_create(&conf);
}

static uint32_t match_and_book(struct kvr_active *active, uint32_t rank, const uint64_t *sh,
			       uint32_t n, struct kvr_active_booking *booking)
{
	uint32_t depth[1024];

	kvr_active_match(active, sh, n, depth);
	return kvr_active_book(active, sh, n, rank, booking);
}

static uint32_t get_depth(struct kvr_active *active, uint32_t rank, const uint64_t *sh, uint32_t n)
{
	uint32_t depth[1024];

	kvr_active_match(active, sh, n, depth);
	return depth[rank];
}

/* Section 17.4, "shared". */
static void shared_prompts_are_counted_once(void)
{
	const uint64_t abc[] = {1, 2, 3, 4}, e[] = {5};
	struct kvr_active *active = create_tree(8, 64, 4);
	struct kvr_active_booking r1, r2, r3;

	CU_ASSERT_EQUAL(match_and_book(active, 0, abc, 3, &r1), 3);
	CU_ASSERT_EQUAL(kvr_active_blocks(active)[0], 3);
	CU_ASSERT_EQUAL(match_and_book(active, 0, e, 1, &r2), 1);
	CU_ASSERT_EQUAL(kvr_active_blocks(active)[0], 4);
	CU_ASSERT_EQUAL(match_and_book(active, 0, abc, 4, &r3), 1);
	CU_ASSERT_EQUAL(kvr_active_blocks(active)[0], 5);
	kvr_active_free(active, &r2);
	CU_ASSERT_EQUAL(kvr_active_blocks(active)[0], 4);
	kvr_active_free(active, &r1);
	CU_ASSERT_EQUAL(kvr_active_blocks(active)[0], 4);
	kvr_active_free(active, &r3);
	kvr_active_free(active, &r3); /* a second free changes nothing */
	CU_ASSERT_EQUAL(kvr_active_blocks(active)[0], 0);
	CU_ASSERT_PTR_NULL(kvr_active_check(active));
	kvr_active_destroy(active);
}

/* Section 6.3: prefixes count, not sets. */
static void membership_is_of_prefixes_not_sets(void)
{
	const uint64_t held[] = {1, 2, 4, 5}, asked[] = {1, 2, 3, 5};
	struct kvr_active *active = create_tree(8, 64, 4);
	struct kvr_active_booking booking, c;

	match_and_book(active, 3, held, 4, &booking);
	CU_ASSERT_EQUAL(get_depth(active, 3, asked, 4), 2);
	CU_ASSERT_EQUAL(get_depth(active, 2, asked, 4), 0);
	CU_ASSERT_EQUAL(match_and_book(active, 3, asked, 4, &c), 2);
	CU_ASSERT_EQUAL(kvr_active_blocks(active)[3], 6);
	kvr_active_free(active, &booking);
	CU_ASSERT_EQUAL(kvr_active_blocks(active)[3], 4);
	CU_ASSERT_EQUAL(get_depth(active, 3, held, 4), 2);
	kvr_active_destroy(active);
}

static void a_booking_inside_a_run_keeps_its_depth(void)
{
	uint64_t sh[200];
	struct kvr_active *active = create_tree(64, 64, 4);
	struct kvr_active_booking whole, part;

	for (uint32_t i = 0; i < 200; i++)
		sh[i] = 1000 + i;
	match_and_book(active, 1, sh, 200, &whole);
	match_and_book(active, 2, sh, 70, &part);
	CU_ASSERT_EQUAL(get_depth(active, 1, sh, 200), 200);
	CU_ASSERT_EQUAL(get_depth(active, 2, sh, 200), 70);
	CU_ASSERT_EQUAL(get_depth(active, 1, sh, 100), 100);
	kvr_active_free(active, &whole);
	CU_ASSERT_EQUAL(get_depth(active, 1, sh, 200), 0);
	CU_ASSERT_EQUAL(get_depth(active, 2, sh, 200), 70);
	CU_ASSERT_PTR_NULL(kvr_active_check(active));
	kvr_active_free(active, &part);
	kvr_active_destroy(active);
}

/*
 * Section 6.2: a fade stops at the first shared block; weights stay when a block is shared later.
 */
static void fading_reaches_only_unshared_blocks(void)
{
	const uint64_t p[] = {1, 2, 3, 4, 5, 6};
	struct kvr_active *active = create_tree(8, 64, 4);
	struct kvr_active_booking r1, r2, r3;

	match_and_book(active, 0, p, 3, &r1);
	kvr_active_output(active, &r1, 1);
	CU_ASSERT_EQUAL(kvr_active_blocks(active)[0], 4);
	kvr_active_fade(active, &r1, HALF);
	CU_ASSERT_EQUAL(kvr_active_blocks(active)[0], 2);
	match_and_book(active, 0, p, 3, &r2);
	CU_ASSERT_EQUAL(kvr_active_blocks(active)[0], 2);
	kvr_active_fade(active, &r1, 0); /* the prompt is shared now: only the output block fades */
	CU_ASSERT_EQUAL(kvr_active_blocks(active)[0], 2); /* 1.5, halves up */
	match_and_book(active, 0, p, 6, &r3);		  /* 4, 5 and 6 are not shared */
	CU_ASSERT_EQUAL(kvr_active_blocks(active)[0], 5); /* 4.5 */
	kvr_active_fade(active, &r3, 0);
	CU_ASSERT_EQUAL(kvr_active_blocks(active)[0], 2); /* 1.5 */
	kvr_active_free(active, &r1);
	kvr_active_free(active, &r2);
	kvr_active_free(active, &r3);
	CU_ASSERT_EQUAL(kvr_active_blocks(active)[0], 0);
	CU_ASSERT_EQUAL(active->sum[0], 0);
	kvr_active_destroy(active);
}

static void private_blocks_are_not_shared(void)
{
	const uint64_t p[] = {1, 2};
	struct kvr_active *active = create_tree(8, 64, 4);
	struct kvr_active_booking r1, r2;

	kvr_active_book_private(active, 2, 5, &r1);
	CU_ASSERT_EQUAL(kvr_active_blocks(active)[5], 2);
	CU_ASSERT_EQUAL(get_depth(active, 5, p, 2), 0);
	CU_ASSERT_EQUAL(match_and_book(active, 5, p, 2, &r2), 2);
	CU_ASSERT_EQUAL(kvr_active_blocks(active)[5], 4);
	kvr_active_free(active, &r1);
	kvr_active_free(active, &r2);
	CU_ASSERT_EQUAL(kvr_active_blocks(active)[5], 0);
	kvr_active_destroy(active);
}

static void a_full_tree_counts_the_rest_privately(void)
{
	uint64_t sh[640];
	struct kvr_active *active = create_tree(8, 3, 1);
	struct kvr_active_booking booking, c;
	struct kvr_active_stats st;

	for (uint32_t i = 0; i < 640; i++)
		sh[i] = i + 1;
	CU_ASSERT_EQUAL(match_and_book(active, 0, sh, 640, &booking), 640);
	CU_ASSERT_EQUAL(get_depth(active, 0, sh, 640), 192); /* three runs */
	CU_ASSERT_EQUAL(match_and_book(active, 0, sh, 100, &c),
			36); /* no run is left for a split */
	kvr_active_stats_get(active, &st);
	CU_ASSERT_EQUAL(st.runs, 3);
	CU_ASSERT_EQUAL(st.private_blocks, 640 - 192 + 36);
	kvr_active_free(active, &booking);
	CU_ASSERT_EQUAL(kvr_active_blocks(active)[0], 100);
	kvr_active_free(active, &c);
	CU_ASSERT_EQUAL(kvr_active_blocks(active)[0], 0);
	kvr_active_stats_get(active, &st);
	CU_ASSERT_EQUAL(st.runs, 0);
	kvr_active_destroy(active);
}

static void wide_records_are_attached_and_returned(void)
{
	const uint64_t p[] = {7, 8, 9};
	struct kvr_active *active = create_tree(512, 64, 2);
	struct kvr_active_booking booking[100];
	struct kvr_active_stats st;

	for (uint32_t i = 0; i < 100; i++)
		match_and_book(active, i * 5, p, 3, &booking[i]);
	kvr_active_stats_get(active, &st);
	CU_ASSERT_EQUAL(st.wide, 1);
	CU_ASSERT_EQUAL(get_depth(active, 495, p, 3), 3);
	CU_ASSERT_EQUAL(get_depth(active, 494, p, 3), 0);
	CU_ASSERT_PTR_NULL(kvr_active_check(active));
	for (uint32_t i = 0; i < 97; i++)
		kvr_active_free(active, &booking[i]);
	kvr_active_stats_get(active, &st);
	CU_ASSERT_EQUAL(st.wide, 0);
	CU_ASSERT_EQUAL(get_depth(active, 495, p, 3), 3);
	CU_ASSERT_EQUAL(get_depth(active, 0, p, 3), 0);
	for (uint32_t i = 97; i < 100; i++)
		kvr_active_free(active, &booking[i]);
	CU_ASSERT_PTR_NULL(kvr_active_check(active));
	kvr_active_destroy(active);
}

/* Splits caused by a prompt that is gone; `ranks` bookings make the owners inline or wide. */
static void check_rejoin(uint32_t ranks)
{
	struct kvr_active *active = create_tree(64, 256, 16);
	struct kvr_active_booking whole[32], cut[8], last;
	struct kvr_active_stats st;
	uint64_t sh[100];

	for (uint32_t i = 0; i < 100; i++)
		sh[i] = i + 1;
	for (uint32_t i = 0; i < ranks; i++)
		match_and_book(active, i, sh, 100, &whole[i]);
	for (uint32_t i = 0; i < 8; i++)
		match_and_book(active, 40, sh, 7 * (i + 1),
			       &cut[i]); /* 7 .. 56, all in the first run */
	kvr_active_stats_get(active, &st);
	CU_ASSERT_EQUAL(st.runs, 10);
	for (uint32_t i = 0; i < 8; i++)
		if (i != 3)
			kvr_active_free(active, &cut[i]);
	CU_ASSERT_EQUAL(match_and_book(active, 41, sh, 100, &last), 100);
	kvr_active_stats_get(active, &st);
	CU_ASSERT_EQUAL(st.runs, 3); /* 28, 36 and 36 blocks */
	CU_ASSERT_EQUAL(st.joins, 7);
	CU_ASSERT_PTR_NULL(kvr_active_check(active));
	CU_ASSERT_EQUAL(get_depth(active, 0, sh, 100), 100);
	CU_ASSERT_EQUAL(get_depth(active, 40, sh, 100), 28);
	CU_ASSERT_EQUAL(get_depth(active, 41, sh, 60), 60);
	kvr_active_free(active, &cut[3]);
	kvr_active_free(active, &last);
	for (uint32_t i = 0; i < ranks; i++)
		kvr_active_free(active, &whole[i]);
	kvr_active_stats_get(active, &st);
	CU_ASSERT_EQUAL(st.runs + st.wide, 0);
	CU_ASSERT_PTR_NULL(kvr_active_check(active));
	kvr_active_destroy(active);
}

static void splits_of_a_freed_prompt_are_joined(void)
{
	check_rejoin(1);
	check_rejoin(32);
}

/*
 * Whatever is freed between the calls, the prefetch terminates and accesses only existing objects.
 */
static void prefetch_survives_any_change(void)
{
	struct kvr_active *active = create_tree(8, 64, 4);
	struct kvr_active_booking booking[16] = {0};
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
		kvr_active_prefetch_match(active, sh, 300, &ahead);
		CU_ASSERT_FATAL(ahead.done < 300);
		kvr_active_free(active, &booking[i]);
		match_and_book(active, kvr_rand_below(&r, 8), sh, n, &booking[i]);
		if (round % 500 == 0)
			CU_ASSERT_PTR_NULL_FATAL(kvr_active_check(active));
	}
	/* Without changes it ends at the last run that the match finds. */
	for (uint32_t i = 0; i < 16; i++)
		kvr_active_free(active, &booking[i]);
	match_and_book(active, 0, sh, 170, &booking[0]);
	match_and_book(active, 1, sh, 100, &booking[1]);
	ahead = (struct kvr_active_ahead){0};
	for (uint32_t i = 0; i < 8;
	     i++) /* runs of 64, 36, 28 and 42: one call for the prompt, then two per run */
		kvr_active_prefetch_match(active, sh, 150, &ahead);
	CU_ASSERT_EQUAL(ahead.done, 128);
	kvr_active_destroy(active);
}

/* A faded run is not joined to one of full weight, as that would change the weight of blocks. */
static void faded_runs_are_not_joined(void)
{
	const uint64_t p[] = {1, 2, 3, 4};
	struct kvr_active *active = create_tree(8, 64, 4);
	struct kvr_active_booking r1, r2, r3;

	match_and_book(active, 0, p, 4, &r1);
	match_and_book(active, 0, p, 2, &r2);
	kvr_active_fade(active, &r1, HALF); /* 3 and 4 */
	kvr_active_free(active, &r2);
	CU_ASSERT_EQUAL(kvr_active_blocks(active)[0], 3);
	match_and_book(active, 1, p, 4, &r3);
	CU_ASSERT_EQUAL(kvr_active_blocks(active)[0], 3);
	kvr_active_free(active, &r1);
	CU_ASSERT_EQUAL(active->sum[0], 0);
	kvr_active_free(active, &r3);
	kvr_active_destroy(active);
}

static void create_rejects_invalid_sizes(void)
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
	struct kvr_active *active = NULL;
	int n;

	for (n = 0; active == NULL; n++) {
		allocations_left = n;
		active = kvr_active_create(&conf);
		CU_ASSERT(active != NULL || errno == ENOMEM);
	}
	CU_ASSERT(n > 5);
	kvr_active_destroy(active);
}

/* ---- the naive model: a tree of single blocks per rank, computed from scratch ---- */

#define M_BOOKINGS 60
#define M_LEN	   40
#define M_RANKS	   20

struct model {
	bool live;
	uint32_t rank, n, out;
	uint64_t sh[M_LEN];
	double weight[M_LEN]; /* weights of its blocks; equal for all owners of a block */
	double out_weight;
	struct kvr_active_booking b;
};

static struct model m[M_BOOKINGS];

static uint32_t count_common(const struct model *booking, const uint64_t *sh, uint32_t n)
{
	uint32_t i = 0;

	while (i < n && i < booking->n && booking->sh[i] == sh[i])
		i++;
	return i;
}

static uint32_t naive_depth(uint32_t rank, const uint64_t *sh, uint32_t n)
{
	uint32_t best = 0;

	for (int i = 0; i < M_BOOKINGS; i++)
		if (m[i].live && m[i].rank == rank && count_common(&m[i], sh, n) > best)
			best = count_common(&m[i], sh, n);
	return best;
}

static double naive_blocks(uint32_t rank)
{
	double sum = 0;

	for (int i = 0; i < M_BOOKINGS; i++) {
		uint32_t seen = 0; /* blocks that an earlier booking counted */

		if (!m[i].live || m[i].rank != rank)
			continue;
		for (int j = 0; j < i; j++)
			if (m[j].live && m[j].rank == rank &&
			    count_common(&m[j], m[i].sh, m[i].n) > seen)
				seen = count_common(&m[j], m[i].sh, m[i].n);
		for (uint32_t k = seen; k < m[i].n; k++)
			sum += m[i].weight[k];
		sum += m[i].out * m[i].out_weight;
	}
	return sum;
}

static void naive_book(struct model *booking)
{
	for (uint32_t k = 0; k < booking->n; k++)
		booking->weight[k] = 1;
	for (int j = 0; j < M_BOOKINGS; j++)
		if (m[j].live && &m[j] != booking && m[j].rank == booking->rank)
			for (uint32_t k = 0; k < count_common(&m[j], booking->sh, booking->n); k++)
				booking->weight[k] = m[j].weight[k];
	booking->out = 0;
	booking->out_weight = 1;
}

static void naive_fade(struct model *booking, double f)
{
	uint32_t shared = 0;

	for (int j = 0; j < M_BOOKINGS; j++)
		if (m[j].live && &m[j] != booking && m[j].rank == booking->rank &&
		    count_common(&m[j], booking->sh, booking->n) > shared)
			shared = count_common(&m[j], booking->sh, booking->n);
	for (uint32_t k = shared; k < booking->n; k++)
		booking->weight[k] = f;
	booking->out_weight = f;
}

/* Few different hashes, so that prefixes meet and diverge; deliberately no hash chain. */
static void random_prompt(struct kvr_rand *r, struct model *booking)
{
	booking->n = kvr_rand_below(r, M_LEN + 1);
	for (uint32_t i = 0; i < booking->n; i++)
		booking->sh[i] = kvr_rand_below(r, 8) == 0 ? 1 + kvr_rand_below(r, 2) : 0;
}

static void compare_with_model(struct kvr_active *active, struct kvr_rand *r)
{
	uint32_t depth[64];
	struct model booking;

	random_prompt(r, &booking);
	kvr_active_match(active, booking.sh, booking.n, depth);
	for (uint32_t rank = 0; rank < M_RANKS; rank++) {
		double want = naive_blocks(rank);

		CU_ASSERT_EQUAL_FATAL(depth[rank], naive_depth(rank, booking.sh, booking.n));
		CU_ASSERT_EQUAL_FATAL(kvr_active_blocks(active)[rank], (uint32_t)floor(want + 0.5));
	}
}

/* Match and book in slices of a few runs, or completely. */
static void book_randomly(struct kvr_active *active, struct kvr_rand *r, struct model *booking)
{
	uint32_t depth[64], slice = kvr_rand_below(r, 4), walks = 0;

	if (slice == 0) {
		match_and_book(active, booking->rank, booking->sh, booking->n, &booking->b);
		return;
	}
	for (; !kvr_active_match_some(active, booking->sh, booking->n, depth, slice); walks++)
		CU_ASSERT_FATAL(walks <= M_LEN);
	kvr_active_match(active, booking->sh, booking->n, depth); /* nothing is left to do */
	for (walks = 0; !kvr_active_book_some(active, booking->sh, booking->n, booking->rank,
					      &booking->b, slice);
	     walks++)
		CU_ASSERT_FATAL(walks <= 3 * M_LEN);
}

static void free_randomly(struct kvr_active *active, struct kvr_rand *r, struct model *booking)
{
	uint32_t slice = kvr_rand_below(r, 4);

	if (slice == 0) {
		kvr_active_free(active, &booking->b);
		return;
	}
	while (!kvr_active_free_some(active, &booking->b, slice))
		CU_ASSERT_PTR_NULL(kvr_active_check(active));
}

static void random_step(struct kvr_active *active, struct kvr_rand *r)
{
	struct model *booking = &m[kvr_rand_below(r, M_BOOKINGS)];
	double f = kvr_rand_below(r, 9) / 8.0;

	if (!booking->live) {
		random_prompt(r, booking);
		booking->rank = kvr_rand_below(r, M_RANKS);
		naive_book(booking);
		book_randomly(active, r, booking);
		booking->live = true;
	} else if (kvr_rand_below(r, 2) == 0) {
		booking->out++;
		kvr_active_output(active, &booking->b, 1);
		naive_fade(booking, f);
		kvr_active_fade(active, &booking->b, (uint32_t)(f * KVR_ACTIVE_ONE));
	} else {
		booking->live = false;
		free_randomly(active, r, booking);
	}
}

static void the_tree_matches_the_naive_model(void)
{
	struct kvr_active *active = create_tree(M_RANKS, 4096, 64);
	struct kvr_rand r;

	memset(m, 0, sizeof(m));
	kvr_rand_init(&r, 4);
	for (int i = 0; i < 6000; i++) {
		random_step(active, &r);
		if (i % 4 == 0)
			compare_with_model(active, &r);
		if (i % 500 == 0) {
			CU_ASSERT_PTR_NULL_FATAL(kvr_active_check(active));
		}
	}
	for (int i = 0; i < M_BOOKINGS; i++)
		if (m[i].live)
			kvr_active_free(active, &m[i].b);
	for (uint32_t k = 0; k < M_RANKS; k++)
		CU_ASSERT_EQUAL(active->sum[k], 0);
	CU_ASSERT_EQUAL(active->runs.fresh, active->runs.n_free);
	CU_ASSERT_PTR_NULL(kvr_active_check(active));
	kvr_active_destroy(active);
}

/* No call visits more runs than allowed, and a match restarts after other changes. */
static void slices_respect_their_limit(void)
{
	static uint64_t sh[4096], other[64];
	struct kvr_active *active = create_tree(8, 256, 4);
	struct kvr_active_booking booking, c;
	uint32_t depth[64], calls;
	uint64_t before;

	for (uint32_t i = 0; i < 4096; i++)
		sh[i] = 1 + i;
	for (uint32_t i = 0; i < 64; i++)
		other[i] = 10000 + i;
	kvr_active_match(active, sh, 4096, depth);
	before = kvr_active_walked(active);
	for (calls = 0; !kvr_active_book_some(active, sh, 4096, 1, &booking, 8); calls++) {
		CU_ASSERT(kvr_active_walked(active) - before <= 8);
		before = kvr_active_walked(active);
	}
	CU_ASSERT_EQUAL(calls, 7); /* plus the last call: 64 runs */
	CU_ASSERT_EQUAL(kvr_active_blocks(active)[1], 4096);
	CU_ASSERT_FALSE(kvr_active_match_some(active, sh, 4096, depth, 8));
	match_and_book(active, 2, other, 64, &c);
	for (calls = 1; !kvr_active_match_some(active, sh, 4096, depth, 8); calls++)
		;
	CU_ASSERT_EQUAL(calls, 8);
	CU_ASSERT_EQUAL(depth[1], 4096);
	before = kvr_active_walked(active);
	kvr_active_match(active, sh, 4096, depth);
	CU_ASSERT_EQUAL(kvr_active_walked(active), before);
	sh[0] = 5; /* the caller changes the prompt and calls kvr_active_match_forget() */
	kvr_active_match_forget(active);
	kvr_active_match(active, sh, 4096, depth);
	CU_ASSERT_EQUAL(depth[1], 0);
	for (calls = 0, before = kvr_active_walked(active);
	     !kvr_active_free_some(active, &booking, 8); calls++) {
		CU_ASSERT(kvr_active_walked(active) - before <= 8);
		before = kvr_active_walked(active);
		CU_ASSERT_PTR_NULL(kvr_active_check(active));
	}
	CU_ASSERT_EQUAL(calls, 7);
	CU_ASSERT_EQUAL(kvr_active_blocks(active)[1], 0);
	kvr_active_free(active, &c);
	CU_ASSERT_EQUAL(active->runs.fresh, active->runs.n_free);
	kvr_active_destroy(active);
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
		unsigned char *bytes = malloc(
			8 * room + 1); /* an exact allocation: sanitizers detect reads beyond it */

		for (uint32_t i = 0; i < 80; i++)
			x[i] = kvr_rand_u64(&r);
		memcpy(bytes + 1, x, 8 * room);
		if (cut < room)
			bytes[1 + 8 * cut + 7] ^= 0x80;
		for (uint32_t i = 0; i < 8; i++) {
			set[i] = kvr_rand_u64(&r) & kvr_rand_u64(&r);
			if (kvr_rand_below(&r, 2)) /* few bits take another path */
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
	CU_TestInfo tests[] = {KVR_CASE(shared_prompts_are_counted_once),
			       KVR_CASE(membership_is_of_prefixes_not_sets),
			       KVR_CASE(a_booking_inside_a_run_keeps_its_depth),
			       KVR_CASE(fading_reaches_only_unshared_blocks),
			       KVR_CASE(private_blocks_are_not_shared),
			       KVR_CASE(a_full_tree_counts_the_rest_privately),
			       KVR_CASE(wide_records_are_attached_and_returned),
			       KVR_CASE(splits_of_a_freed_prompt_are_joined),
			       KVR_CASE(prefetch_survives_any_change),
			       KVR_CASE(faded_runs_are_not_joined),
			       KVR_CASE(create_rejects_invalid_sizes),
			       KVR_CASE(every_failed_allocation_is_undone),
			       KVR_CASE(the_tree_matches_the_naive_model),
			       KVR_CASE(slices_respect_their_limit),
			       KVR_CASE(kernels_agree),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("active", tests);
}
