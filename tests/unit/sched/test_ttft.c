/* SPDX-License-Identifier: BSD-3-Clause */
/* Mode ttft: costs worked out by hand, what is learned, and the kernels against the formula. */
#include "cost_rig.h"

#define MS  UINT64_C(1000000)
#define SEC UINT64_C(1000000000)

static struct kvr_pool_conf conf;
static struct kvr_sched_term term[8];
static struct kvr_sched_terms terms = {.v = term, .cap = 8};

static struct kvr_sched *make_ttft_sched(uint32_t workers)
{
	struct kvr_sched *s = kvr_sched_create(&conf, NULL, 5 * SEC);

	for (uint64_t id = 0; id < workers; id++) {
		const struct kvr_sched_worker w = {.id = id, .dp_size = 1};

		CU_ASSERT_EQUAL_FATAL(kvr_sched_worker_set(s, &w, 5 * SEC), 0);
	}
	kvr_sched_explain(s, &terms);
	return s;
}

static void set_defaults(void)
{
	kvr_pool_conf_defaults(&conf);
	strcpy(conf.name, "t");
	conf.mode = KVR_MODE_TTFT;
	conf.block_size = 10;
	conf.max_ranks = 64;
	conf.max_requests = 64;
	conf.max_active_blocks = 1 << 14;
	conf.max_prompt_blocks = 1000;
}

/* A prompt of n blocks of 10 tokens; the hashes of a family begin alike. Times are ms from 0. */
static const struct kvr_sched_req *make_prompt(uint32_t slot, uint64_t family, uint32_t n,
					       bool query)
{
	static uint64_t sh[64][100];
	static struct kvr_sched_req req[64];

	for (uint32_t i = 0; i < n; i++)
		sh[slot][i] = family * 1000 + i + 1;
	req[slot] =
		(struct kvr_sched_req){.sh = sh[slot], .n = n, .isl = n * 10, .query_only = query};
	return &req[slot];
}

static uint64_t at_ms(uint64_t ms)
{
	return 5 * SEC + ms * MS;
}

/* Costs of a prompt that is only asked about. */
static void ask_tokens_of(struct kvr_sched *s, uint64_t family, uint32_t n, uint64_t ms)
{
	struct kvr_sched_decision d;

	CU_ASSERT_EQUAL_FATAL(
		kvr_sched_route(s, 63, make_prompt(63, family, n, true), NULL, at_ms(ms), &d),
		KVR_SCHED_QUERY);
}

/* Book on a given worker, even if others are cheaper. */
static void book_request(struct kvr_sched *s, uint32_t slot, uint64_t family, uint32_t n,
			 uint64_t worker, uint64_t ms)
{
	struct kvr_hints h = {.present = KVR_HAS(KVR_HINT_BACKEND), .backend_worker = worker};
	struct kvr_sched_req req = *make_prompt(slot, family, n, false);
	struct kvr_sched_decision d;

	req.hints = &h;
	CU_ASSERT_EQUAL_FATAL(kvr_sched_route(s, slot, &req, NULL, at_ms(ms), &d),
			      KVR_SCHED_ROUTED);
	CU_ASSERT_EQUAL(d.worker, worker);
}

#define NEAR(a, b) CU_ASSERT_DOUBLE_EQUAL(a, b, 1e-6)

static void what_waits_what_is_left_and_what_decodes(void)
{
	struct kvr_sched *s;

	set_defaults();
	s = make_ttft_sched(2);
	ask_tokens_of(s, 1, 6, 0);
	CU_ASSERT_EQUAL(terms.n, 2);
	CU_ASSERT(term[0].by_ttft);
	NEAR(term[0].cost, 60);
	/* 8 blocks on worker 0: 80 tokens wait, and 80 in flight cost 0.05 each. */
	book_request(s, 0, 2, 8, 0, 0);
	ask_tokens_of(s, 1, 6, 0);
	NEAR(term[0].wait_tokens, 80);
	NEAR(term[0].left_tokens, 60);
	NEAR(term[0].cost, 80 + 60 + 0.05 * 80);
	NEAR(term[1].cost, 60);
	/* The same prompt: all of it will be there, in flight. Behind 80 tokens, yet 20 to compute.
	 */
	ask_tokens_of(s, 2, 10, 0);
	NEAR(term[0].left_tokens, 20);
	NEAR(term[0].cost, 80 + 20 + 4);
	NEAR(term[1].cost, 100);
	/* It books what it adds, not what is in flight. */
	book_request(s, 1, 2, 10, 0, 0);
	ask_tokens_of(s, 1, 6, 0);
	NEAR(term[0].wait_tokens, 100);
	NEAR(term[0].cost, 100 + 60 + 0.05 * 100);
	/* Computed: decode goes on. */
	kvr_sched_prefill_done(s, 0, at_ms(0));
	kvr_sched_prefill_done(s, 1, at_ms(0));
	ask_tokens_of(s, 2, 10, 0);
	NEAR(term[0].cost, 5);
	kvr_sched_finish(s, 0, at_ms(0));
	kvr_sched_finish(s, 1, at_ms(0));
	ask_tokens_of(s, 2, 10, 0);
	NEAR(term[0].cost, 100);
	kvr_sched_destroy(s);
}

/* 100 tokens took 10 ms: 100 us a token. */
static void only_the_oldest_is_worked_off_and_not_to_the_end(void)
{
	struct kvr_sched *s;

	set_defaults();
	s = make_ttft_sched(2);
	book_request(s, 0, 1, 10, 0, 0);
	ask_tokens_of(s, 9, 1, 9);
	NEAR(term[0].wait_tokens, 100); /* nothing is known of the speed */
	NEAR(term[0].us_token, 0);
	kvr_sched_prefill_done(s, 0, at_ms(10));
	book_request(s, 1, 2, 10, 0, 10);
	book_request(s, 2, 3, 4, 0, 10);
	ask_tokens_of(s, 9, 1, 14);
	NEAR(term[0].us_token, 100);
	NEAR(term[0].wait_tokens, 60 + 40);
	ask_tokens_of(s, 9, 1, 19);
	NEAR(term[0].wait_tokens, 25 + 40);
	ask_tokens_of(s, 9, 1, 500);
	NEAR(term[0].wait_tokens, 25 + 40);
	/* The second is at the head now and begins when the first has ended, at twice the time. */
	kvr_sched_prefill_done(s, 1, at_ms(30));
	ask_tokens_of(s, 9, 1, 30);
	NEAR(term[0].wait_tokens, 40);
	NEAR(term[0].us_token, (10e3 * 255 / 256 + 20e3) / (100 * 255 / 256. + 100));
	/* A cancelled head takes its time with it. */
	kvr_sched_cancel(s, 2, at_ms(1000));
	book_request(s, 3, 4, 10, 0, 1000);
	kvr_sched_prefill_done(s, 3, at_ms(1010));
	ask_tokens_of(s, 9, 1, 1010);
	CU_ASSERT(term[0].us_token < 150);
	kvr_sched_destroy(s);
}

/* Ends in any order: the rank was busy for 30 ms and did 300 tokens. */
static void the_speed_is_that_of_the_rank_not_of_a_request(void)
{
	struct kvr_sched *s;

	set_defaults();
	s = make_ttft_sched(1);
	for (uint32_t i = 0; i < 3; i++)
		book_request(s, i, i + 1, 10, 0, 0);
	kvr_sched_prefill_done(s, 2, at_ms(26));
	kvr_sched_prefill_done(s, 0, at_ms(28));
	kvr_sched_prefill_done(s, 1, at_ms(30));
	ask_tokens_of(s, 9, 1, 30);
	CU_ASSERT_DOUBLE_EQUAL(term[0].us_token, 100, 1);
	/* A pause of a minute counts once, as 8 times slower for 1,024 tokens. */
	book_request(s, 3, 8, 10, 0, 100);
	kvr_sched_prefill_done(s, 3, at_ms(60100));
	ask_tokens_of(s, 9, 1, 60100);
	CU_ASSERT(term[0].us_token > 1000 && term[0].us_token < 2300);
	kvr_sched_destroy(s);
}

/* What the first end says is bounded too: 125 us a token are expected, 8 times that believed. */
static void the_first_end_is_not_believed_without_bound(void)
{
	struct kvr_sched *s;

	set_defaults();
	s = make_ttft_sched(1);
	/* An engine that was still loading: a minute for 100 tokens. */
	book_request(s, 0, 1, 10, 0, 0);
	kvr_sched_prefill_done(s, 0, at_ms(60000));
	ask_tokens_of(s, 9, 1, 60000);
	CU_ASSERT_DOUBLE_EQUAL(term[0].us_token, 1024 * 1000 / 100, 1);
	/* It takes 100 us a token from then on. */
	for (uint32_t i = 1; i <= 60; i++) {
		book_request(s, i, i + 1, 100, 0, 60000 + (i - 1) * 100);
		kvr_sched_prefill_done(s, i, at_ms(60000 + i * 100));
	}
	ask_tokens_of(s, 99, 1, 66000);
	CU_ASSERT(term[0].us_token > 100 && term[0].us_token < 120);
	kvr_sched_destroy(s);
	/* One that is really slow, 5 ms a token, is known as such after a few. */
	s = make_ttft_sched(1);
	for (uint32_t i = 0; i < 5; i++) {
		book_request(s, i, i + 1, 100, 0, i * 5000);
		kvr_sched_prefill_done(s, i, at_ms((i + 1) * 5000));
	}
	ask_tokens_of(s, 99, 1, 25000);
	CU_ASSERT(term[0].us_token > 4000 && term[0].us_token <= 5000);
	kvr_sched_destroy(s);
}

/* Times count from the first second of the scheduler, which is none of a rank without a request. */
static void nothing_waits_where_nothing_ever_was(void)
{
	struct kvr_sched *s;

	set_defaults();
	s = make_ttft_sched(2);
	book_request(s, 0, 1, 10, 0, 0);
	kvr_sched_prefill_done(s, 0, at_ms(10));
	ask_tokens_of(s, 9, 1, 10);
	CU_ASSERT_EQUAL(terms.n, 2);
	NEAR(term[0].wait_tokens, 0);
	NEAR(term[1].wait_tokens, 0);
	kvr_sched_destroy(s);
}

/* 15,000 tokens at 1 ms in 30 s on 2 ranks are a load of 0.25; 30 % of that after one window. */
static void load_makes_tokens_dear(void)
{
	struct kvr_sched *s;

	set_defaults();
	s = make_ttft_sched(2);
	for (uint32_t i = 0; i < 15; i++) {
		book_request(s, 0, i + 1, 100, i % 2, i * 1000);
		kvr_sched_prefill_done(s, 0, at_ms(i * 1000 + 1000));
		kvr_sched_finish(s, 0, at_ms(i * 1000 + 1000));
	}
	ask_tokens_of(s, 77, 10, 29999);
	NEAR(term[0].rho, 0);
	NEAR(term[0].us_token, 1000);
	book_request(s, 2, 51, 10, 0, 30000);
	ask_tokens_of(s, 77, 10, 30000);
	NEAR(term[1].rho, 0.3 * 15.1 / 60);
	NEAR(term[1].cost, 100 / (1 - 0.3 * 15.1 / 60));
	/* Three quiet windows. */
	kvr_sched_cancel(s, 2, at_ms(30000));
	book_request(s, 3, 52, 10, 0, 120000);
	ask_tokens_of(s, 77, 10, 120000);
	NEAR(term[1].rho, 0.3 * 15.1 / 60 * 0.343 + (1 - 0.343) * 0.1 / 180);
	kvr_sched_destroy(s);
}

static void rho_ends_below_one(void)
{
	struct kvr_sched *s;

	set_defaults();
	s = make_ttft_sched(1);
	for (uint32_t i = 0; i < 60; i++) {
		book_request(s, 0, i + 1, 100, 0, i * 30000);
		kvr_sched_prefill_done(s, 0, at_ms(i * 30000 + 29999));
		kvr_sched_finish(s, 0, at_ms(i * 30000 + 29999));
	}
	ask_tokens_of(s, 77, 10, 60 * 30000);
	NEAR(term[0].rho, 0.95);
	NEAR(term[0].cost, 2000);
	kvr_sched_destroy(s);
}

static void roles_have_their_own_terms(void)
{
	const struct kvr_hints h = {.overrides.given = 1u << KVR_OVERRIDE_TRACK_PREFILL_TOKENS};
	struct kvr_sched_req req;
	struct kvr_sched_decision d;
	struct kvr_sched *s;

	set_defaults();
	conf.role = KVR_ROLE_PREFILL;
	s = make_ttft_sched(2);
	book_request(s, 0, 1, 8, 0, 0);
	kvr_sched_prefill_done(s, 0, at_ms(1));
	ask_tokens_of(s, 2, 6, 1);
	NEAR(term[0].decode_weight, 0);
	NEAR(term[0].cost, 60);
	kvr_sched_destroy(s);
	/* A decode leg computes nothing: the cost is kv mode's, blocks in flight. */
	conf.role = KVR_ROLE_DECODE;
	s = make_ttft_sched(2);
	book_request(s, 0, 1, 8, 0, 0);
	req = *make_prompt(1, 2, 6, true);
	req.hints = &h;
	CU_ASSERT_EQUAL(kvr_sched_route(s, 1, &req, NULL, at_ms(0), &d), KVR_SCHED_QUERY);
	CU_ASSERT(!term[0].by_ttft);
	NEAR(term[0].cost, 14);
	NEAR(term[1].cost, 6);
	/* Sent past the prefill pool, it does. */
	ask_tokens_of(s, 2, 6, 0);
	NEAR(term[0].cost, 80 + 60 + 4);
	kvr_sched_destroy(s);
}

static void tiers_weights_taints_and_overrides_count(void)
{
	const uint32_t device[64] = {1, 3}, host[64] = {2}, disk[64] = {0, 4};
	const struct kvr_sched_overlap ov = {.device = device, .host = host, .disk = disk};
	struct kvr_str tag = {"x", 1};
	const struct kvr_hint_preferred like = {.taint = tag, .weight = 1};
	const struct kvr_hints h = {.preferred = &like, .n_preferred = 1};
	const struct kvr_sched_worker w = {.id = 1, .dp_size = 1, .taints = &tag, .n_taints = 1};
	const struct kvr_hints over = {
		.overrides = {.given = 1u << KVR_OVERRIDE_OVERLAP_SCORE_CREDIT |
				       1u << KVR_OVERRIDE_PREFILL_LOAD_SCALE |
				       1u << KVR_OVERRIDE_ASSUME_KV_REUSE,
			      .value[KVR_OVERRIDE_OVERLAP_SCORE_CREDIT] = 0.5,
			      .value[KVR_OVERRIDE_PREFILL_LOAD_SCALE] = 2}};
	struct kvr_sched_req req;
	struct kvr_sched_decision d;
	struct kvr_sched *s;

	set_defaults();
	conf.decode_active_request_weight = 3;
	s = make_ttft_sched(2);
	book_request(s, 0, 2, 8, 0, 0);
	req = *make_prompt(1, 2, 10, true);
	/* On 0 1 + 2 * .75 in caches, 8 in flight; on 1 3 + 4 * .25. One request: 3 blocks. */
	CU_ASSERT_EQUAL(kvr_sched_route(s, 1, &req, &ov, at_ms(0), &d), KVR_SCHED_QUERY);
	NEAR(term[0].cost, 80 + 20 + 4 + 30);
	NEAR(term[1].cost, 60);
	/* No reuse: tokens in flight are not shared. Credit is of the device, scale of all prefill.
	 */
	req.hints = &over;
	CU_ASSERT_EQUAL(kvr_sched_route(s, 1, &req, &ov, at_ms(0), &d), KVR_SCHED_QUERY);
	NEAR(term[0].cost, 2 * (80 + 100 - 20) + 4 + 30);
	NEAR(term[1].cost, 2 * (100 - 25));
	req.hints = &h;
	CU_ASSERT_EQUAL(kvr_sched_worker_set(s, &w, at_ms(0)), 0);
	CU_ASSERT_EQUAL(kvr_sched_route(s, 1, &req, &ov, at_ms(0), &d), KVR_SCHED_QUERY);
	NEAR(term[0].cost, 134);
	NEAR(term[1].cost, 60 * exp(-tanh(1)));
	kvr_sched_destroy(s);
}

/* ---- kernels ----------------------------------------------------------------------------- */

static double rest[R], until[R], left_w;

static void fill_ranks(struct kvr_rand *r, struct cost_in *in)
{
	fill_common(r, in, 50000, 3);
	in->rest = rest;
	in->until = until;
	in->at = 1e9;
	in->speed = kvr_rand_below(r, 2) * 1e-5;
	left_w = 1 + kvr_rand_unit(r) * 19;
	in->full = left_w * in->isl;
	in->per_block = left_w * in->block;
	in->per_hit = in->per_block * in->credit;
	in->decode_w = kvr_rand_unit(r);
	for (uint32_t i = 0; i < R; i++) {
		rest[i] = kvr_rand_below(r, 3) ? kvr_rand_below(r, 1u << 20) : 0;
		until[i] = kvr_rand_unit(r) * 2e9;
	}
}

static double by_the_book(const struct cost_in *in, uint32_t r)
{
	long double wait = rest[r], hit, c;

	wait += until[r] > in->at ? (until[r] - in->at) * (long double)in->speed : 0;
	hit = in->credit * tier[0][r];
	if (!in->plain)
		hit += in->host_w * tier[1][r] + in->disk_w * (tier[2][r] + tier[3][r]) +
		       (in->shared != NULL ? in->shared_w * shared[r] : 0);
	hit = hit > in->credit * depth[r] ? hit : in->credit * depth[r];
	c = in->scale * (wait + (in->isl - hit * in->block) * (long double)left_w);
	c += in->decode_w * blocks[r] + in->request_w * in->block * requests[r];
	return (double)(in->mult == NULL ? c : c < 0 ? c / mult[r] : c * mult[r]);
}

static void kernels_follow_the_formula_to_the_bit_of_each_other(void)
{
	static double cost[2][R];
	struct kvr_rand r;

	kvr_rand_init(&r, 3);
	for (int round = 0; round < 300; round++) {
		struct cost_in in;
		uint32_t top[2], most = 0;
		struct kernels k;
		double low;

		fill_ranks(&r, &in);
		CU_ASSERT_FATAL(kvr_sched__kernels(SCHED_SCALAR, &k));
		low = k.ttft(&in, cost[0], &top[0]);
		for (uint32_t i = 0; i < R; i++) {
			double want = test_bit(mask, i) ? by_the_book(&in, i) : INFINITY;

			if (test_bit(mask, i) && tier[0][i] > most)
				most = tier[0][i];
			CU_ASSERT_FATAL(want == cost[0][i] ||
					fabs(want - cost[0][i]) <= 1e-9 * (1 + fabs(want)));
			CU_ASSERT(!test_bit(mask, i) || kvr_sched__ttft_one(&in, i) == cost[0][i]);
			CU_ASSERT(cost[0][i] >= low);
		}
		CU_ASSERT_EQUAL(top[0], most);
		for (int isa = SCHED_AVX2; isa <= SCHED_AVX512; isa++) {
			if (!kvr_sched__kernels((enum sched_isa)isa, &k))
				continue;
			CU_ASSERT_EQUAL(k.ttft(&in, cost[1], &top[1]), low);
			CU_ASSERT_EQUAL(top[1], most);
			CU_ASSERT_EQUAL_FATAL(memcmp(cost[0], cost[1], sizeof(cost[0])), 0);
		}
	}
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(what_waits_what_is_left_and_what_decodes),
			       KVR_CASE(only_the_oldest_is_worked_off_and_not_to_the_end),
			       KVR_CASE(the_speed_is_that_of_the_rank_not_of_a_request),
			       KVR_CASE(the_first_end_is_not_believed_without_bound),
			       KVR_CASE(nothing_waits_where_nothing_ever_was),
			       KVR_CASE(load_makes_tokens_dear),
			       KVR_CASE(rho_ends_below_one),
			       KVR_CASE(roles_have_their_own_terms),
			       KVR_CASE(tiers_weights_taints_and_overrides_count),
			       KVR_CASE(kernels_follow_the_formula_to_the_bit_of_each_other),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("ttft", tests);
}
