/* SPDX-License-Identifier: BSD-3-Clause */
#include "sched_pvt.h"

#include <errno.h>

#include "kvr_test.h"

#define SEC	 UINT64_C(1000000000)
#define MAX_RANK 64

static struct kvr_pool_conf conf;
static uint32_t dropped_n, removed_n, added_n;

static void on_dropped(void *arg, uint32_t slot, uint32_t rank)
{
	dropped_n++;
}

static void on_added(void *arg, uint32_t rank, uint64_t worker, uint32_t dp)
{
	added_n++;
}

static void on_removed(void *arg, uint32_t rank, uint64_t worker, uint32_t dp)
{
	removed_n++;
}

static void set_defaults(void)
{
	kvr_pool_conf_defaults(&conf);
	strcpy(conf.name, "t");
	conf.block_size = 4;
	conf.max_ranks = MAX_RANK;
	conf.max_workers = 32;
	conf.max_requests = 256;
	conf.max_active_blocks = 1 << 14;
	conf.max_prompt_blocks = 64;
	conf.max_taints = 4;
}

static struct kvr_sched *make_sched_sched(void)
{
	const struct kvr_sched_ops ops = {
		.dropped = on_dropped, .rank_added = on_added, .rank_removed = on_removed};

	dropped_n = removed_n = added_n = 0;
	return kvr_sched_create(&conf, &ops, 0);
}

static int set_worker(struct kvr_sched *s, uint64_t id, uint32_t start, uint32_t size)
{
	const struct kvr_sched_worker w = {.id = id, .dp_start = start, .dp_size = size};

	return kvr_sched_worker_set(s, &w, 0);
}

static enum kvr_sched_result route_one(struct kvr_sched *s, uint32_t slot, uint32_t isl,
				       uint64_t now, struct kvr_sched_decision *d)
{
	static struct kvr_sched_req req[512];

	req[slot] = (struct kvr_sched_req){.isl = isl};
	return kvr_sched_route(s, slot, &req[slot], NULL, now, d);
}

/* The equations between its counters. */
static void check_balance(const struct kvr_sched *s)
{
	kvr_cell_t row[KVR_SCHED_COUNTERS];
	uint64_t v[KVR_SCHED_COUNTERS];
	char violated[1024] = "";

	CU_ASSERT_EQUAL_FATAL(kvr_stats_count(&kvr_sched_stats_def), KVR_SCHED_COUNTERS);
	kvr_stats_row_copy(row, &kvr_sched_counters(s)->routed_calls, KVR_SCHED_COUNTERS);
	for (unsigned int i = 0; i < KVR_SCHED_COUNTERS; i++)
		v[i] = kvr_stats_get(row, i);
	kvr_stats_check(&kvr_sched_stats_def, v, violated, sizeof(violated));
	CU_ASSERT_STRING_EQUAL(violated, "");
}

static void equal_costs_are_drawn_uniformly(void)
{
	uint32_t seen[5] = {0};
	struct kvr_sched_decision d;
	struct kvr_sched *s;

	set_defaults();
	conf.seed = 11;
	s = make_sched_sched();
	for (uint64_t id = 0; id < 5; id++)
		set_worker(s, id, 0, 1);
	for (int i = 0; i < 50000; i++) {
		CU_ASSERT_EQUAL_FATAL(route_one(s, 0, 8, 0, &d), KVR_SCHED_ROUTED);
		seen[d.worker]++;
		kvr_sched_finish(s, 0, 0);
	}
	for (int i = 0; i < 5; i++)
		CU_ASSERT(seen[i] > 9600 && seen[i] < 10400);
	check_balance(s);
	kvr_sched_destroy(s);
}

/* What a row says is what its mode does, and the modes that have a name are where it says. */
static void every_mode_has_the_properties_of_its_row(void)
{
	static const struct {
		enum kvr_pool_mode mode;
		const char *name;
	} named[] = {{KVR_MODE_KV, "kv"},
		     {KVR_MODE_ROUND_ROBIN, "round-robin"},
		     {KVR_MODE_RANDOM, "random"},
		     {KVR_MODE_POWER_OF_TWO, "power-of-two"},
		     {KVR_MODE_LEAST_LOADED, "least-loaded"},
		     {KVR_MODE_DEVICE_AWARE, "device-aware-weighted"},
		     {KVR_MODE_DIRECT, "direct"},
		     {KVR_MODE_TTFT, "ttft"}};
	const struct kvr_hints pin = {.present = KVR_HAS(KVR_HINT_BACKEND), .backend_worker = 2};
	const struct kvr_sched_req pinned = {.isl = 8, .hints = &pin, .query_only = true};
	struct kvr_sched_decision d;
	struct kvr_sched *s;
	char err[128];
	int i;

	for (size_t k = 0; k < sizeof(named) / sizeof(named[0]); k++)
		CU_ASSERT_STRING_EQUAL(kvr_pool_mode(named[k].mode)->name, named[k].name);
	for (i = 0; kvr_pool_mode_names[i] != NULL; i++) {
		const struct kvr_pool_mode_info *m = kvr_pool_mode(i);
		enum kvr_sched_result r;

		CU_ASSERT_STRING_EQUAL(m->name, kvr_pool_mode_names[i]);
		set_defaults();
		CU_ASSERT_EQUAL(kvr_pool_conf_set(&conf, "router_mode", m->name, err, sizeof(err)),
				0);
		CU_ASSERT_EQUAL(conf.mode, i);
		s = make_sched_sched();
		set_worker(s, 1, 0, 1);
		set_worker(s, 2, 0, 2);
		r = route_one(s, 0, 8, 0, &d);
		CU_ASSERT_EQUAL(r, m->needs_pin ? KVR_SCHED_ERROR : KVR_SCHED_ROUTED);
		CU_ASSERT_EQUAL(d.err, m->needs_pin ? KVR_E_WORKER_ID_REQUIRED : KVR_OK);
		/* Two ranks, none named. */
		r = kvr_sched_route(s, 1, &pinned, NULL, 0, &d);
		CU_ASSERT_EQUAL(r, m->needs_cache ? KVR_SCHED_ERROR : KVR_SCHED_QUERY);
		CU_ASSERT_EQUAL(d.err, m->needs_cache ? KVR_E_DP_RANK_REQUIRED : KVR_OK);
		check_balance(s);
		kvr_sched_destroy(s);
	}
}

static void a_query_may_name_the_slot_of_a_live_request(void)
{
	const struct kvr_sched_req query = {.isl = 8, .query_only = true};
	struct kvr_sched_decision d;
	struct kvr_sched *s;

	set_defaults();
	s = make_sched_sched();
	set_worker(s, 1, 0, 1);
	CU_ASSERT_EQUAL(route_one(s, 0, 8, 0, &d), KVR_SCHED_ROUTED);
	CU_ASSERT_EQUAL(kvr_sched_route(s, 0, &query, NULL, 0, &d), KVR_SCHED_QUERY);
	CU_ASSERT_EQUAL(kvr_sched_slot_state(s, 0), KVR_SLOT_BOOKED);
	CU_ASSERT_EQUAL(route_one(s, 0, 8, 0, &d), KVR_SCHED_ERROR);
	CU_ASSERT_EQUAL(d.err, KVR_E_DUPLICATE_REQUEST);
	check_balance(s);
	kvr_sched_destroy(s);
}

/* A request that failed on a worker goes to another one, or to none; a pin wins. */
static void an_excluded_worker_is_not_chosen_again(void)
{
	struct kvr_hints h = {.present = KVR_HAS_EXCLUDE, .exclude_worker = 1};
	const struct kvr_sched_req req = {.isl = 8, .hints = &h, .query_only = true};
	struct kvr_sched_decision d;
	struct kvr_sched *s;

	set_defaults();
	s = make_sched_sched();
	set_worker(s, 1, 0, 2);
	set_worker(s, 2, 0, 1);
	for (int i = 0; i < 50; i++) {
		CU_ASSERT_EQUAL(kvr_sched_route(s, 0, &req, NULL, 0, &d), KVR_SCHED_QUERY);
		CU_ASSERT_EQUAL(d.worker, 2);
	}
	kvr_sched_worker_gone(s, 2, 0);
	CU_ASSERT_EQUAL(kvr_sched_route(s, 0, &req, NULL, 0, &d), KVR_SCHED_ERROR);
	CU_ASSERT_EQUAL(d.err, KVR_E_NO_ENDPOINTS);
	h.present |= KVR_HAS(KVR_HINT_BACKEND) | KVR_HAS(KVR_HINT_DP_RANK);
	h.backend_worker = 1;
	CU_ASSERT_EQUAL(kvr_sched_route(s, 0, &req, NULL, 0, &d), KVR_SCHED_QUERY);
	kvr_sched_destroy(s);
}

/* Two candidates: the odds are e^(1/T) whatever the costs; three: by their place in the range. */
static void temperature_gives_the_shares_of_the_softmax(void)
{
	const uint32_t device[MAX_RANK] = {4, 2, 0};
	const struct kvr_sched_overlap ov = {.device = device};
	const struct kvr_sched_req req = {.isl = 64, .query_only = true};
	const double t = 0.7, w[] = {1, exp(-0.5 / t), exp(-1 / t)};
	uint32_t seen[3] = {0};
	struct kvr_sched_decision d;
	struct kvr_sched *s;

	set_defaults();
	conf.temperature = t;
	conf.seed = 5;
	s = make_sched_sched();
	for (uint64_t id = 0; id < 3; id++)
		set_worker(s, id, 0, 1);
	for (int i = 0; i < 60000; i++) {
		CU_ASSERT_EQUAL_FATAL(kvr_sched_route(s, 0, &req, &ov, 0, &d), KVR_SCHED_QUERY);
		CU_ASSERT_EQUAL(d.cost, 16.0 - device[d.rank]);
		seen[d.worker]++;
	}
	for (int i = 0; i < 3; i++)
		CU_ASSERT_DOUBLE_EQUAL(seen[i] / 60000.0, w[i] / (w[0] + w[1] + w[2]), 0.01);
	kvr_sched_destroy(s);
}

static void same_seed_same_choices(void)
{
	struct kvr_sched_decision a, b;
	struct kvr_sched *s, *t;

	set_defaults();
	conf.seed = 9;
	s = make_sched_sched();
	t = make_sched_sched();
	for (uint64_t id = 0; id < 20; id++) {
		set_worker(s, id, 0, 1);
		set_worker(t, id, 0, 1);
	}
	for (uint32_t i = 0; i < 200; i++) {
		route_one(s, i, 8, 0, &a);
		route_one(t, i, 8, 0, &b);
		CU_ASSERT_EQUAL(a.rank, b.rank);
	}
	kvr_sched_destroy(s);
	kvr_sched_destroy(t);
}

static void other_modes_share_as_they_say(void)
{
	static const int modes[] = {KVR_MODE_RANDOM, KVR_MODE_ROUND_ROBIN, KVR_MODE_LEAST_LOADED};
	struct kvr_sched_decision d;

	for (int m = 0; m < 3; m++) {
		uint32_t seen[4] = {0};
		struct kvr_sched *s;

		set_defaults();
		conf.mode = modes[m];
		s = make_sched_sched();
		for (uint64_t id = 0; id < 4; id++)
			set_worker(s, id, 0, 2);
		for (int i = 0; i < 8000; i++) {
			CU_ASSERT_EQUAL_FATAL(route_one(s, 0, 8, 0, &d), KVR_SCHED_ROUTED);
			seen[d.worker]++;
			kvr_sched_finish(s, 0, 0);
		}
		for (int i = 0; i < 4; i++)
			CU_ASSERT(modes[m] == KVR_MODE_ROUND_ROBIN
					  ? seen[i] == 2000
					  : seen[i] > 1800 && seen[i] < 2200);
		check_balance(s);
		kvr_sched_destroy(s);
	}
}

static void indices_stay_and_are_reused(void)
{
	struct kvr_sched *s;
	uint32_t r5;

	set_defaults();
	conf.max_ranks = 4;
	s = make_sched_sched();
	CU_ASSERT_EQUAL(set_worker(s, 7, 4, 2), 0);
	CU_ASSERT_EQUAL(set_worker(s, 3, 0, 2), 0);
	CU_ASSERT_EQUAL(added_n, 4);
	CU_ASSERT_EQUAL(set_worker(s, 9, 0, 1), -ENOSPC);
	CU_ASSERT_EQUAL(set_worker(s, 9, 0, 0), -EINVAL);
	CU_ASSERT_EQUAL(set_worker(s, 9, UINT32_MAX, 2), -EINVAL);
	CU_ASSERT_EQUAL(kvr_sched_n_workers(s), 2);
	r5 = kvr_sched_rank_find(s, 7, 5);
	CU_ASSERT_EQUAL(set_worker(s, 7, 5, 2), 0); /* 4 goes, 5 stays, 6 comes */
	CU_ASSERT_EQUAL(kvr_sched_rank_find(s, 7, 5), r5);
	CU_ASSERT_EQUAL(kvr_sched_rank_find(s, 7, 4), KVR_SCHED_NO_RANK);
	CU_ASSERT_EQUAL(removed_n, 1);
	CU_ASSERT_EQUAL(set_worker(s, 7, 5, 3), -ENOSPC);
	CU_ASSERT_EQUAL(kvr_sched_worker_gone(s, 3, 0), 0);
	CU_ASSERT_EQUAL(kvr_sched_worker_gone(s, 3, 0), -ENOENT);
	CU_ASSERT_EQUAL(set_worker(s, 9, 0, 2), 0);
	kvr_sched_destroy(s);
}

static void without_a_limit_there_may_be_a_worker_for_each_rank(void)
{
	struct kvr_sched *s;

	set_defaults();
	conf.max_workers = 0;
	conf.max_ranks = 40;
	s = make_sched_sched();
	CU_ASSERT_PTR_NOT_NULL_FATAL(s);
	for (uint64_t id = 0; id < 40; id++)
		CU_ASSERT_EQUAL(set_worker(s, id, 0, 1), 0);
	CU_ASSERT_EQUAL(set_worker(s, 40, 0, 1), -ENOSPC);
	kvr_sched_destroy(s);
}

/* A request that waits for a worker, for one of its ranks if @p pinned. */
static void wait_for(struct kvr_sched *s, uint32_t slot, bool pinned, struct kvr_sched_decision *d)
{
	static struct kvr_hints h[8];
	static struct kvr_sched_req req[8];

	h[slot] = (struct kvr_hints){
		.policy_class = KVR_SCHED_NO_CLASS,
		.present = pinned ? KVR_HAS(KVR_HINT_BACKEND) | KVR_HAS(KVR_HINT_DP_RANK) : 0,
		.backend_worker = 7,
		.dp_rank = 0};
	req[slot] = (struct kvr_sched_req){.isl = 64, .hints = &h[slot]};
	kvr_sched_route(s, slot, &req[slot], NULL, 0, d);
}

static void a_new_life_keeps_those_who_wait(void)
{
	struct kvr_sched_decision d;
	struct kvr_sched_rank_info info;
	struct kvr_sched *s;
	uint32_t rank;

	set_defaults();
	conf.decode_blocks_threshold = 0.5;
	conf.queue_threshold = 1e-6; /* 10 tokens */
	s = make_sched_sched();
	set_worker(s, 7, 0, 2);
	rank = kvr_sched_rank_find(s, 7, 0);
	for (uint32_t slot = 0; slot < 2; slot++)
		CU_ASSERT_EQUAL(route_one(s, slot, 64, 0, &d), KVR_SCHED_ROUTED);
	wait_for(s, 2, true, &d);
	CU_ASSERT_EQUAL(d.result, KVR_SCHED_QUEUED);
	kvr_sched_load_report(s, 7, 0, 1u << 30, 0);
	CU_ASSERT_EQUAL(kvr_sched_worker_drain(s, 7, true, 0), 0);
	CU_ASSERT_EQUAL(kvr_sched_worker_renew(s, 8, 0), -ENOENT);
	CU_ASSERT_EQUAL(kvr_sched_worker_renew(s, 7, 0), 0);
	/* Between two incarnations: no request is admitted or rejected; those that may wait do. */
	CU_ASSERT_EQUAL(kvr_sched_poll(s, 0, &d, 1), 0);
	CU_ASSERT_EQUAL(kvr_sched_worker_drop(s, 7, 1, 0), 1);
	CU_ASSERT_EQUAL(kvr_sched_poll(s, 0, &d, 1), 0);
	wait_for(s, 3, false, &d);
	CU_ASSERT_EQUAL(d.result, KVR_SCHED_QUEUED);
	CU_ASSERT_EQUAL(kvr_sched_worker_drop(s, 7, 9, 0), 0);
	CU_ASSERT_EQUAL(kvr_sched_poll(s, 0, &d, 1), 0);
	CU_ASSERT_EQUAL(set_worker(s, 7, 0, 1), 0); /* rank 1 is no more */
	CU_ASSERT_EQUAL(kvr_sched_rank_find(s, 7, 0), rank);
	CU_ASSERT_EQUAL(kvr_sched_poll(s, 0, &d, 1), 0);
	CU_ASSERT_EQUAL(kvr_sched_rank_get(s, rank, &info), 0);
	CU_ASSERT_FALSE(info.overloaded || info.worker_overloaded || info.draining);
	CU_ASSERT_EQUAL(info.kv_used_blocks, UINT64_MAX);
	CU_ASSERT_EQUAL(kvr_sched_n_able(s), 1); /* between two lives */
	kvr_sched_worker_available(s, 7, false, 0);
	kvr_sched_worker_available(s, 7, true, 0);
	CU_ASSERT_EQUAL(kvr_sched_n_able(s), 1);
	CU_ASSERT_EQUAL(kvr_sched_poll(s, 0, &d, 1), 1);
	CU_ASSERT_EQUAL(d.result, KVR_SCHED_ROUTED);
	CU_ASSERT_EQUAL(d.slot, 2);
	CU_ASSERT_EQUAL(kvr_sched_poll(s, 0, &d, 1), 0); /* busy again */
	CU_ASSERT_TRUE(kvr_sched_finish(s, 2, 0));
	CU_ASSERT_EQUAL(kvr_sched_poll(s, 0, &d, 1), 1);
	CU_ASSERT_EQUAL(d.slot, 3);
	kvr_sched_finish(s, 3, 0);
	/* Requests do not wait for an incarnation that does not become available. */
	CU_ASSERT_EQUAL(route_one(s, 0, 64, 0, &d), KVR_SCHED_ROUTED);
	wait_for(s, 2, false, &d);
	CU_ASSERT_EQUAL(kvr_sched_worker_drain(s, 7, true, 0), 0);
	CU_ASSERT_EQUAL(kvr_sched_n_able(s), 0);
	CU_ASSERT_EQUAL(kvr_sched_worker_drain(s, 7, false, 0), 0);
	kvr_sched_worker_available(s, 7, false, 0);
	CU_ASSERT_EQUAL(kvr_sched_n_able(s), 0); /* suspect */
	kvr_sched_worker_renew(s, 7, 0);
	kvr_sched_worker_gone(s, 7, 0);
	CU_ASSERT_EQUAL(kvr_sched_n_able(s), 0);
	CU_ASSERT_EQUAL(kvr_sched_poll(s, 0, &d, 1), 1);
	CU_ASSERT_EQUAL(d.err, KVR_E_NO_ENDPOINTS);
	check_balance(s);
	kvr_sched_destroy(s);
}

/* The table may not be cleared yet when a request arrives between the incarnations: it is ignored.
 */
static void who_comes_between_epochs_finds_nothing_cached(void)
{
	static struct kvr_sched_req req = {.isl = 64};
	static uint32_t device[64] = {5, 5, 5, 5};
	const struct kvr_sched_overlap ov = {.device = device};
	struct kvr_sched_decision d;
	struct kvr_sched *s;

	set_defaults();
	conf.queue_threshold = 1e-6;
	s = make_sched_sched();
	set_worker(s, 7, 0, 1);
	for (int later = 0; later < 2;
	     later++) { /* before and after the new incarnation is known */
		CU_ASSERT_EQUAL(kvr_sched_worker_renew(s, 7, 0), 0);
		if (later)
			set_worker(s, 7, 0, 1);
		CU_ASSERT_EQUAL(kvr_sched_route(s, 0, &req, &ov, 0, &d), KVR_SCHED_QUEUED);
		if (!later)
			set_worker(s, 7, 0, 1);
		kvr_sched_worker_available(s, 7, true, 0);
		CU_ASSERT_EQUAL(kvr_sched_poll(s, 0, &d, 1), 1);
		CU_ASSERT_EQUAL(d.result, KVR_SCHED_ROUTED);
		CU_ASSERT_EQUAL(d.overlap_blocks, 0);
		kvr_sched_finish(s, 0, 0);
	}
	kvr_sched_destroy(s);
}

/* Those who wait for a rank that goes are given up a few at a time; others are left alone. */
static void who_waits_for_ranks_that_go_is_given_up_in_pieces(void)
{
	struct kvr_sched_decision d;
	struct kvr_sched *s;
	uint32_t n = 0;

	set_defaults();
	conf.queue_threshold = 1e-6; /* 10 tokens */
	s = make_sched_sched();
	set_worker(s, 7, 0, 2);
	for (uint32_t slot = 0; slot < 2; slot++)
		CU_ASSERT_EQUAL(route_one(s, slot, 64, 0, &d), KVR_SCHED_ROUTED);
	for (uint32_t slot = 2; slot < 7; slot++) {
		wait_for(s, slot, true, &d);
		CU_ASSERT_EQUAL(d.result, KVR_SCHED_QUEUED);
	}
	CU_ASSERT_EQUAL(kvr_sched_worker_renew(s, 7, 0), 0);   /* they may wait */
	CU_ASSERT_TRUE(kvr_sched_worker_unpin(s, 8, 0, 0, 1)); /* none */
	CU_ASSERT_TRUE(kvr_sched_worker_unpin(s, 7, 0, 1, 1)); /* rank 0 stays */
	CU_ASSERT_EQUAL(kvr_sched_poll(s, 0, &d, 1), 0);
	for (; !kvr_sched_worker_unpin(s, 7, 0, 0, 2); n++)
		for (uint32_t i = 0; i < 2; i++) {
			CU_ASSERT_EQUAL(kvr_sched_poll(s, 0, &d, 1), 1);
			CU_ASSERT_EQUAL(d.result, KVR_SCHED_ERROR);
		}
	CU_ASSERT_EQUAL(n, 2);
	CU_ASSERT_EQUAL(kvr_sched_poll(s, 0, &d, 1), 1); /* the fifth */
	CU_ASSERT_EQUAL(kvr_sched_poll(s, 0, &d, 1), 0);
	check_balance(s);
	kvr_sched_destroy(s);
}

static void taints_are_bounded_and_reused(void)
{
	const struct kvr_str t[] = {{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}, {"e", 1}};
	struct kvr_sched_worker w = {.id = 1, .dp_size = 1, .taints = t, .n_taints = 5};
	struct kvr_sched *s;

	set_defaults();
	s = make_sched_sched();
	CU_ASSERT_EQUAL(kvr_sched_worker_set(s, &w, 0), -ENOSPC);
	CU_ASSERT_EQUAL(kvr_sched_n_workers(s), 0);
	w.n_taints = 4;
	CU_ASSERT_EQUAL(kvr_sched_worker_set(s, &w, 0), 0);
	w.id = 2;
	w.taints = t + 4;
	w.n_taints = 1;
	CU_ASSERT_EQUAL(kvr_sched_worker_set(s, &w, 0), -ENOSPC);
	kvr_sched_worker_gone(s, 1, 0);
	CU_ASSERT_EQUAL(kvr_sched_worker_set(s, &w, 0), 0);
	kvr_sched_destroy(s);
}

#define CODE(code, counter, help) KVR_E_##code,

static void each_bad_input_has_its_code(void)
{
	struct kvr_hint_preferred p = {{"x", 1}, NAN};
	struct kvr_hints h = {.policy_class = KVR_SCHED_NO_CLASS};
	struct kvr_sched_req req = {.isl = 4, .hints = &h};
	struct kvr_sched_decision d;
	struct kvr_sched *s;

	set_defaults();
	s = make_sched_sched();
	set_worker(s, 1, 0, 1);
	h.policy_class = 1;
	kvr_sched_route(s, 0, &req, NULL, 0, &d);
	CU_ASSERT_EQUAL(d.err, KVR_E_UNKNOWN_POLICY_CLASS);
	h.policy_class = 0;
	h.priority_jump = NAN;
	kvr_sched_route(s, 0, &req, NULL, 0, &d);
	CU_ASSERT_EQUAL(d.err, KVR_E_INVALID_WEIGHT);
	h.priority_jump = 0;
	h.preferred = &p;
	h.n_preferred = 1;
	kvr_sched_route(s, 0, &req, NULL, 0, &d);
	CU_ASSERT_EQUAL(d.err, KVR_E_INVALID_WEIGHT);
	h.n_preferred = 0;
	h.overrides.given = 1u << KVR_OVERRIDE_ROUTER_TEMPERATURE;
	h.overrides.value[KVR_OVERRIDE_ROUTER_TEMPERATURE] = NAN;
	kvr_sched_route(s, 0, &req, NULL, 0, &d);
	CU_ASSERT_EQUAL(d.err, KVR_E_INVALID_OVERRIDE);
	h.overrides.given = 0;
	req.isl = 4 * 64 + 1;
	kvr_sched_route(s, 0, &req, NULL, 0, &d);
	CU_ASSERT_EQUAL(d.err, KVR_E_PROMPT_TOO_LONG);
	req.isl = 0;
	kvr_sched_route(s, 0, &req, NULL, 0, &d);
	CU_ASSERT_EQUAL(d.err, KVR_E_EMPTY_PROMPT);
	req.isl = 4;
	kvr_sched_route(s, 256, &req, NULL, 0, &d);
	CU_ASSERT_EQUAL(d.err, KVR_E_NO_MEMORY);
	CU_ASSERT_EQUAL(kvr_sched_counters(s)->booked_now, 0);
	CU_ASSERT_EQUAL(kvr_sched_route(s, 0, &req, NULL, 0, &d), KVR_SCHED_ROUTED);
	kvr_sched_route(s, 0, &req, NULL, 0, &d);
	CU_ASSERT_EQUAL(d.err, KVR_E_DUPLICATE_REQUEST);
	CU_ASSERT_EQUAL(kvr_sched_counters(s)->errors[KVR_SCHED_ERR_DUPLICATE_REQUEST], 1);
	CU_ASSERT_EQUAL(kvr_sched_counters(s)->errors[KVR_SCHED_ERR_INVALID_WEIGHT], 2);
	CU_ASSERT_EQUAL(kvr_sched_counters(s)->errors[KVR_SCHED_ERR_ANY], 8);
	check_balance(s);
	kvr_sched_destroy(s);
}

/* Section 5.9: the rank with more overlap, by lowest worker id; none if no rank had more. */
static void larger_overlap_elsewhere_is_reported(void)
{
	uint32_t device[MAX_RANK] = {0}, host[MAX_RANK] = {0};
	struct kvr_sched_overlap ov = {.device = device};
	const struct kvr_sched_req req = {.isl = 16};
	struct kvr_sched_decision d;
	struct kvr_sched *s;

	set_defaults();
	conf.overlap_score_credit = 0;
	conf.decode_active_request_weight = 100;
	s = make_sched_sched();
	set_worker(s, 9, 0, 1);
	set_worker(s, 5, 0, 1);
	set_worker(s, 7, 0, 1);
	route_one(s, 0, 4, 0, &d);
	route_one(s, 1, 4, 0, &d);
	route_one(s, 2, 4, 0, &d);
	kvr_sched_finish(s,
			 kvr_sched_slot_rank(s, 0) == 0	  ? 0
			 : kvr_sched_slot_rank(s, 1) == 0 ? 1
							  : 2,
			 0);
	device[1] = device[2] = 2;
	device[0] = 1;
	CU_ASSERT_EQUAL(kvr_sched_route(s, 9, &req, &ov, 0, &d), KVR_SCHED_ROUTED);
	CU_ASSERT_EQUAL(d.worker, 9);
	CU_ASSERT_EQUAL(d.better_rank, 1); /* worker 5 */
	CU_ASSERT_EQUAL(d.better_overlap, 2);
	kvr_sched_finish(s, 9, 0);
	host[2] = 1;
	ov.host = host;
	kvr_sched_route(s, 9, &req, &ov, 0, &d);
	CU_ASSERT_EQUAL(d.better_rank, 2);
	CU_ASSERT_EQUAL(d.better_overlap, 2.75);
	kvr_sched_finish(s, 9, 0);
	device[0] = 3;
	kvr_sched_route(s, 9, &req, &ov, 0, &d);
	CU_ASSERT_EQUAL(d.better_rank, KVR_SCHED_NO_RANK);
	CU_ASSERT_EQUAL(kvr_sched_counters(s)->non_max_overlap, 2);
	kvr_sched_destroy(s);
}

/* Each reason has a place of its own, and none that of the sum. */
static void each_reason_is_counted_apart(void)
{
	static const enum kvr_code reason[] = {KVR_SCHED_ERR_LIST(CODE)};
	uint32_t seen = 1u << KVR_SCHED_ERR_ANY;

	CU_ASSERT_EQUAL(sizeof(reason) / sizeof(reason[0]), KVR_SCHED_ERRS - 1);
	for (int i = 0; i < KVR_SCHED_ERRS - 1; i++) {
		CU_ASSERT_EQUAL(seen >> kvr_sched__err_at[reason[i]] & 1, 0);
		seen |= 1u << kvr_sched__err_at[reason[i]];
	}
	CU_ASSERT_EQUAL(seen, (1u << KVR_SCHED_ERRS) - 1);
}

static void an_end_frees_once_and_only_on_the_rank_named(void)
{
	struct kvr_sched_decision d;
	struct kvr_sched *s;

	set_defaults();
	s = make_sched_sched();
	set_worker(s, 1, 0, 2);
	route_one(s, 3, 8, 0, &d);
	CU_ASSERT_FALSE(kvr_sched_finish_on(s, 3, 1 - d.rank, 0));
	CU_ASSERT(kvr_sched_finish_on(s, 3, d.rank, 0));
	CU_ASSERT_FALSE(kvr_sched_finish_on(s, 3, d.rank, 0));
	CU_ASSERT_FALSE(kvr_sched_cancel(s, 3, 0));
	CU_ASSERT_FALSE(kvr_sched_output(s, 3, 5, 0));
	CU_ASSERT_FALSE(kvr_sched_prefill_done(s, 99999, 0));
	CU_ASSERT_EQUAL(kvr_sched_counters(s)->late, 4);
	check_balance(s);
	kvr_sched_destroy(s);
}

static void lost_and_repeated_output_reports_repair_themselves(void)
{
	struct kvr_sched_rank_info info;
	struct kvr_sched_decision d;
	struct kvr_sched *s;

	set_defaults();
	conf.track_output_blocks = true;
	s = make_sched_sched();
	set_worker(s, 1, 0, 1);
	route_one(s, 0, 8, 0, &d);
	kvr_sched_output(s, 0, 12, 0); /* cumulative: 20 tokens, 5 blocks, 2 were prompt */
	kvr_sched_output(s, 0, 12, 0);
	kvr_sched_output(s, 0, 7, 0);
	kvr_sched_rank_get(s, 0, &info);
	CU_ASSERT_EQUAL(info.active_blocks, 3);
	CU_ASSERT_EQUAL(kvr_sched_counters(s)->output_blocks, 3);
	kvr_sched_destroy(s);
}

static void closing_the_queue_answers_everybody(void)
{
	struct kvr_sched_decision d[4];
	struct kvr_sched *s;

	set_defaults();
	conf.queue_threshold = 0;
	s = make_sched_sched();
	set_worker(s, 1, 0, 1);
	CU_ASSERT_EQUAL(route_one(s, 0, 8, 0, d), KVR_SCHED_ROUTED);
	for (uint32_t i = 1; i < 6; i++)
		CU_ASSERT_EQUAL(route_one(s, i, 8, 0, d), KVR_SCHED_QUEUED);
	CU_ASSERT_EQUAL(kvr_sched_close_queue(s, 0, 4, d), 3); /* slot 0 does not wait */
	CU_ASSERT_EQUAL(d[0].err, KVR_E_SHUTDOWN);
	CU_ASSERT(d[0].slot == 1 && d[2].slot == 3);
	CU_ASSERT_EQUAL(kvr_sched_close_queue(s, 0, 4, d), 0);
	CU_ASSERT_EQUAL(kvr_sched_close_queue(s, 4, UINT32_MAX, d), 2);
	CU_ASSERT_EQUAL(kvr_sched_close_queue(s, 0, UINT32_MAX, d), 0);
	check_balance(s);
	kvr_sched_destroy(s);
}

static bool no_answer(void *arg, uint32_t slot, const struct kvr_sched_req *req,
		      struct kvr_sched_overlap *out)
{
	++*(int *)arg;
	return false;
}

/* The kept overlap of a rank whose index went to another worker must not count. */
static void a_kept_overlap_dies_with_its_rank(void)
{
	const uint32_t device[MAX_RANK] = {0, 2};
	const struct kvr_sched_overlap ov = {.device = device};
	static struct kvr_sched_req req = {.isl = 8};
	struct kvr_sched_decision d;
	struct kvr_sched_ops ops = {0};
	struct kvr_sched *s;
	int asked = 0;

	set_defaults();
	conf.queue_threshold = 0;
	ops.arg = &asked;
	ops.refresh = no_answer;
	s = kvr_sched_create(&conf, &ops, 0);
	set_worker(s, 1, 0, 1);
	set_worker(s, 2, 0, 1);
	route_one(s, 0, 8, 0, &d);
	route_one(s, 1, 8, 0, &d);
	CU_ASSERT_EQUAL(kvr_sched_route(s, 2, &req, &ov, 0, &d), KVR_SCHED_QUEUED);
	kvr_sched_worker_gone(s, 2, 0);
	set_worker(s, 3, 0, 1); /* takes index 1 */
	CU_ASSERT_EQUAL(kvr_sched_rank_find(s, 3, 0), 1);
	CU_ASSERT_EQUAL(kvr_sched_poll(s, 20 * SEC, &d, 1), 1);
	CU_ASSERT_EQUAL(d.worker, 3);
	CU_ASSERT_EQUAL(d.overlap_blocks, 0);
	CU_ASSERT_EQUAL(asked, 1); /* older than 10 s, but the owner knew nothing */
	check_balance(s);
	kvr_sched_destroy(s);
}

static void an_admission_waits_for_the_timer_when_nothing_happens(void)
{
	struct kvr_sched_decision d;
	struct kvr_sched *s;

	set_defaults();
	conf.queue_threshold = 0;
	conf.prefill_model = KVR_PREFILL_MODEL_LINEAR;
	conf.prefill_base_ms = 250;
	s = make_sched_sched();
	set_worker(s, 1, 0, 1);
	CU_ASSERT_EQUAL(kvr_sched_poll(s, 0, &d, 1), 0);
	route_one(s, 0, 8, SEC, &d);
	CU_ASSERT_EQUAL(route_one(s, 1, 8, SEC, &d), KVR_SCHED_QUEUED);
	CU_ASSERT_EQUAL(kvr_sched_next_timer(s), SEC + SEC / 10);
	CU_ASSERT_EQUAL(kvr_sched_poll(s, SEC + SEC / 10 - 1, &d, 1), 0);
	CU_ASSERT_EQUAL(kvr_sched_poll(s, SEC + 2 * SEC / 10, &d, 1), 0);
	CU_ASSERT_EQUAL(kvr_sched_poll(s, SEC + 3 * SEC / 10, &d, 1), 1);
	CU_ASSERT_EQUAL(d.waited_ns, 3 * SEC / 10);
	kvr_sched_destroy(s);
}

static int allocations_left;

static void *failing_alloc(void *arg, size_t bytes)
{
	void *p = allocations_left-- > 0 ? aligned_alloc(64, (bytes + 63) / 64 * 64) : NULL;

	return p == NULL ? NULL : memset(p, 0, bytes);
}

static void plain_release(void *arg, void *p)
{
	free(p);
}

static void every_failed_allocation_is_undone(void)
{
	const struct kvr_sched_ops ops = {.alloc = failing_alloc, .release = plain_release};
	struct kvr_sched *s = NULL;
	int n;

	set_defaults();
	for (n = 0; s == NULL; n++) {
		allocations_left = n;
		s = kvr_sched_create(&conf, &ops, 0);
		CU_ASSERT(s != NULL || errno == ENOMEM);
	}
	CU_ASSERT(n > 20);
	kvr_sched_destroy(s);
	conf.max_ranks = 0;
	CU_ASSERT_PTR_NULL(kvr_sched_create(&conf, &ops, 0));
	CU_ASSERT_EQUAL(errno, EINVAL);
}

/* ---- everything at once, at random, against the invariants --------------------------------- */

#define SLOTS 256

static uint64_t prompts[SLOTS][48];
static struct kvr_sched_req reqs[SLOTS];
static struct kvr_hints hints[SLOTS];
static uint64_t allowed[SLOTS][3];

static void random_request(struct kvr_rand *r, uint32_t slot)
{
	struct kvr_hints *h = &hints[slot];
	uint32_t n = kvr_rand_below(r, 49);

	for (uint32_t i = 0; i < 48; i++)
		prompts[slot][i] = i * 4 + (kvr_rand_below(r, 6) == 0);
	*h = (struct kvr_hints){.policy_class = kvr_rand_below(r, 3),
				.strict_priority = kvr_rand_below(r, 10) == 0,
				.priority_jump = kvr_rand_below(r, 5),
				.expected_output_tokens = kvr_rand_below(r, 30)};
	h->present = kvr_rand_below(r, 2) ? KVR_HAS_EXPECTED_OUTPUT : 0;
	if (kvr_rand_below(r, 4) == 0) {
		h->present |= KVR_HAS(KVR_HINT_BACKEND) | KVR_HAS(KVR_HINT_DP_RANK);
		h->backend_worker = kvr_rand_below(r, 8);
		h->dp_rank = kvr_rand_below(r, 3);
	} else if (kvr_rand_below(r, 3) == 0) {
		h->present |= KVR_HAS(KVR_HINT_ALLOWED_WORKERS);
		for (int i = 0; i < 3; i++)
			allowed[slot][i] = kvr_rand_below(r, 10);
		h->allowed = allowed[slot];
		h->n_allowed = 3;
	}
	reqs[slot] = (struct kvr_sched_req){.sh = prompts[slot],
					    .n = n,
					    .isl = n * 4 + 1 + kvr_rand_below(r, 3),
					    .query_only = kvr_rand_below(r, 10) == 0,
					    .hints = h};
}

static void random_event(struct kvr_sched *s, struct kvr_rand *r, uint64_t now)
{
	uint32_t slot = kvr_rand_below(r, SLOTS), expired[8], ranks[MAX_RANK];
	struct kvr_sched_overlap ov = {.device = ranks, .disk = NULL};
	struct kvr_sched_decision d[3];

	switch (kvr_rand_below(r, 16)) {
	case 0:
		set_worker(s, kvr_rand_below(r, 8), kvr_rand_below(r, 2), 1 + kvr_rand_below(r, 3));
		break;
	case 1:
		if (kvr_rand_below(r, 6) == 0)
			kvr_sched_worker_gone(s, kvr_rand_below(r, 8), now);
		else
			kvr_sched_worker_drain(s, kvr_rand_below(r, 8), kvr_rand_below(r, 3) == 0,
					       now);
		break;
	case 2:
		kvr_sched_load_report(s, kvr_rand_below(r, 8), kvr_rand_below(r, 3),
				      kvr_rand_below(r, 100), now);
		break;
	case 3:
		kvr_sched_expire(s, now, expired, 8);
		break;
	case 4:
	case 5:
		kvr_sched_finish(s, slot, now);
		break;
	case 6:
		kvr_sched_cancel(s, slot, now);
		break;
	case 7:
	case 8:
		kvr_sched_prefill_done(s, slot, now);
		break;
	case 9:
	case 10:
		kvr_sched_output(s, slot, kvr_rand_below(r, 60), now);
		break;
	case 11:
		kvr_sched_poll(s, now, d, 1 + kvr_rand_below(r, 3));
		break;
	default:
		for (uint32_t i = 0; i < MAX_RANK; i++)
			ranks[i] = kvr_rand_below(r, 10);
		if (kvr_sched_slot_state(s, slot) == KVR_SLOT_FREE)
			random_request(r, slot);
		kvr_sched_route(s, slot, &reqs[slot], &ov, now, d);
		break;
	}
}

/* Sums over slots against the per-rank arrays. */
static void recount_load(const struct kvr_sched *s)
{
	uint32_t requests[MAX_RANK] = {0}, booked = 0, waiting = 0, released = 0, by_worker = 0;
	uint32_t slots = 0;
	uint64_t tokens[MAX_RANK] = {0};

	for (uint32_t i = 0; i < SLOTS; i++) {
		const struct slot *b = &s->slot[i];

		booked += b->state == KVR_SLOT_BOOKED;
		waiting += b->state == KVR_SLOT_WAITING;
		released += b->state == KVR_SLOT_RELEASED;
		if (b->state != KVR_SLOT_BOOKED)
			continue;
		CU_ASSERT_FATAL(test_bit(s->used, b->rank));
		requests[b->rank]++;
		tokens[b->rank] += b->in_prefill ? b->pf_tokens : 0;
	}
	CU_ASSERT_EQUAL(booked, s->cnt.booked_now);
	CU_ASSERT_EQUAL(waiting, s->pending.count);
	CU_ASSERT_EQUAL(released, s->cnt.released_now);
	for (uint32_t r = 0; r < MAX_RANK; r++) {
		CU_ASSERT_EQUAL_FATAL(requests[r], s->requests[r]);
		CU_ASSERT_EQUAL_FATAL((double)tokens[r], s->tokens[r]);
		CU_ASSERT(requests[r] > 0 || s->blocks[r] == 0);
	}
	for (uint32_t i = 0; i < s->n_workers; i++) {
		by_worker += s->worker[s->sorted[i]].bookings;
		slots += s->worker[s->sorted[i]].slots;
	}
	CU_ASSERT_EQUAL(by_worker, booked);
	CU_ASSERT_EQUAL(slots, booked + released);
	for (uint32_t w = 0; w < s->words; w++)
		CU_ASSERT_EQUAL(s->ready[w], s->open[w] & ~s->over[w]);
	CU_ASSERT_PTR_NULL_FATAL(kvr_active_check(s->active));
	check_balance(s);
}

static void random_life_keeps_every_balance(void)
{
	struct kvr_sched_decision d;
	uint64_t now = 0;
	struct kvr_rand r;
	struct kvr_sched *s;

	set_defaults();
	conf.track_output_blocks = true;
	conf.prefill_tokens_threshold = 3000;
	conf.decode_blocks_threshold = 0.9;
	conf.n_classes = 3;
	kvr_pool_class_init(&conf.classes[0], "a");
	kvr_pool_class_init(&conf.classes[1], "b");
	kvr_pool_class_init(&conf.classes[2], "c");
	conf.classes[0].busy_threshold = 150;
	conf.classes[1].busy_threshold = 50;
	conf.classes[1].quantum = 50;
	conf.classes[1].queue_policy = KVR_QUEUE_WSPT;
	conf.classes[1].max_requests = 3;
	s = make_sched_sched();
	kvr_rand_init(&r, 77);
	for (int i = 0; i < 60000; i++) {
		now += kvr_rand_below(&r, 100) == 0 ? 90 * SEC : SEC / 1000;
		random_event(s, &r, now);
		if (i % 200 == 0)
			recount_load(s);
	}
	CU_ASSERT(s->cnt.queued > 100 && s->cnt.admitted > 50 && s->cnt.expired > 50);
	CU_ASSERT(s->cnt.dropped > 50 && s->cnt.errors[KVR_SCHED_ERR_QUEUE_REJECTED] > 0);
	CU_ASSERT(dropped_n > s->cnt.dropped &&
		  dropped_n <= s->cnt.dropped + s->cnt.released_ended);
	for (uint64_t id = 0; id < 8; id++)
		kvr_sched_worker_gone(s, id, now);
	while (kvr_sched_poll(s, now, &d, 1) == 1)
		CU_ASSERT_EQUAL(d.err, KVR_E_NO_ENDPOINTS);
	recount_load(s);
	CU_ASSERT_EQUAL(s->cnt.booked_now, 0);
	CU_ASSERT_EQUAL(s->cnt.released_now, 0);
	CU_ASSERT_EQUAL(s->cnt.waiting_now, 0);
	CU_ASSERT_EQUAL(added_n, removed_n);
	kvr_sched_destroy(s);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(every_mode_has_the_properties_of_its_row),
			       KVR_CASE(equal_costs_are_drawn_uniformly),
			       KVR_CASE(temperature_gives_the_shares_of_the_softmax),
			       KVR_CASE(a_query_may_name_the_slot_of_a_live_request),
			       KVR_CASE(an_excluded_worker_is_not_chosen_again),
			       KVR_CASE(same_seed_same_choices),
			       KVR_CASE(other_modes_share_as_they_say),
			       KVR_CASE(indices_stay_and_are_reused),
			       KVR_CASE(without_a_limit_there_may_be_a_worker_for_each_rank),
			       KVR_CASE(a_new_life_keeps_those_who_wait),
			       KVR_CASE(who_comes_between_epochs_finds_nothing_cached),
			       KVR_CASE(who_waits_for_ranks_that_go_is_given_up_in_pieces),
			       KVR_CASE(taints_are_bounded_and_reused),
			       KVR_CASE(each_bad_input_has_its_code),
			       KVR_CASE(larger_overlap_elsewhere_is_reported),
			       KVR_CASE(each_reason_is_counted_apart),
			       KVR_CASE(an_end_frees_once_and_only_on_the_rank_named),
			       KVR_CASE(lost_and_repeated_output_reports_repair_themselves),
			       KVR_CASE(closing_the_queue_answers_everybody),
			       KVR_CASE(a_kept_overlap_dies_with_its_rank),
			       KVR_CASE(an_admission_waits_for_the_timer_when_nothing_happens),
			       KVR_CASE(every_failed_allocation_is_undone),
			       KVR_CASE(random_life_keeps_every_balance),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("sched", tests);
}
