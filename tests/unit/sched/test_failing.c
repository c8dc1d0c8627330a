/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that fail their requests: when they are avoided, when they are probed, when they are back.
 */
#include "kvr_sched.h"
#include "kvr_test.h"

#include <string.h>

#define MS  UINT64_C(1000000)
#define SEC UINT64_C(1000000000)

static struct kvr_sched *s;
static uint32_t slot; /* of the next request */
static const struct kvr_sched_req asked = {.isl = 50};

static void begin_with(int mode, uint64_t workers, double ratio)
{
	const struct kvr_sched_ops ops = {0};
	struct kvr_pool_conf conf;

	kvr_pool_conf_defaults(&conf);
	strcpy(conf.name, "t");
	conf.mode = mode;
	conf.block_size = 10;
	conf.max_ranks = 128;
	conf.max_requests = 1000;
	conf.max_active_blocks = 1 << 10;
	conf.max_prompt_blocks = 100;
	conf.failure_ratio = ratio;
	conf.prefill_tokens_threshold = 500;
	s = kvr_sched_create(&conf, &ops, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(s);
	for (uint64_t id = 1; id <= workers; id++) {
		const struct kvr_sched_worker w = {.id = id, .dp_size = 1};

		CU_ASSERT_EQUAL_FATAL(kvr_sched_worker_set(s, &w, 0), 0);
	}
	slot = 0;
}

static void begin_sched(void)
{
	begin_with(KVR_MODE_KV, 3, 0.5);
}

static struct kvr_sched_rank_info rank_of(uint64_t worker)
{
	struct kvr_sched_rank_info info;

	CU_ASSERT_EQUAL_FATAL(kvr_sched_rank_get(s, kvr_sched_rank_find(s, worker, 0), &info), 0);
	return info;
}

/* Book the next request. @return its worker; 0: it was refused. */
static uint64_t book_request(uint64_t now)
{
	struct kvr_sched_decision d;

	return kvr_sched_route(s, slot++, &asked, NULL, now, &d) == KVR_SCHED_ROUTED ? d.worker : 0;
}

/* Book one at @p worker by a pin, in slot slot - 1 afterwards. */
static void book_at(uint64_t worker, uint64_t now)
{
	const struct kvr_hints h = {.present =
					    KVR_HAS(KVR_HINT_BACKEND) | KVR_HAS(KVR_HINT_DP_RANK),
				    .backend_worker = worker,
				    .policy_class = KVR_SCHED_NO_CLASS};
	const struct kvr_sched_req req = {.isl = 50, .hints = &h};
	struct kvr_sched_decision d;

	CU_ASSERT_EQUAL_FATAL(kvr_sched_route(s, slot++, &req, NULL, now, &d), KVR_SCHED_ROUTED);
}

static void end_failing_slot(uint32_t at, enum kvr_sched_outcome how, uint64_t now)
{
	kvr_sched_outcome(s, at, how, now);
	CU_ASSERT_TRUE(kvr_sched_finish(s, at, now));
}

/* @p n requests of @p worker end so at once. */
static void end_some(uint64_t worker, uint32_t n, enum kvr_sched_outcome how, uint64_t now)
{
	for (uint32_t i = 0; i < n; i++) {
		book_at(worker, now);
		end_failing_slot(slot - 1, how, now);
	}
}

/* How many of 18 requests that are served go to @p worker. */
static uint32_t failing_share(uint64_t worker, uint64_t now)
{
	uint32_t n = 0, first = slot;

	for (uint32_t i = 0; i < 18; i++)
		n += book_request(now) == worker;
	for (uint32_t i = first; i < slot; i++)
		kvr_sched_finish(s, i, now);
	return n;
}

static void six_failures_in_succession_open_the_breaker(void)
{
	begin_sched();
	end_some(1, 5, KVR_SCHED_FAILED, 0);
	CU_ASSERT_EQUAL(kvr_sched_n_failing(s), 0);
	CU_ASSERT(failing_share(1, 0) >= 5);
	end_some(1, 1, KVR_SCHED_FAILED, 0);
	CU_ASSERT_EQUAL(kvr_sched_n_failing(s), 1);
	CU_ASSERT_EQUAL(rank_of(1).breaker, KVR_SCHED_OPEN);
	CU_ASSERT_FALSE(rank_of(1).refuses);
	CU_ASSERT_EQUAL(rank_of(1).failures, 6);
	CU_ASSERT(rank_of(1).failure_ratio > 0.5 && rank_of(1).failure_ratio < 0.6);
	CU_ASSERT_EQUAL(rank_of(1).probe_at, SEC / 2);
	CU_ASSERT_EQUAL(failing_share(1, 0), 0);
	CU_ASSERT_EQUAL(failing_share(1, SEC / 2 - 1), 0);
	kvr_sched_destroy(s);
}

static void a_rank_that_mostly_serves_is_not_avoided(void)
{
	begin_sched();
	for (uint32_t i = 0; i < 100; i++)
		end_some(1, 1, i % 4 == 0 ? KVR_SCHED_FAILED : KVR_SCHED_SERVED, 0);
	CU_ASSERT_EQUAL(kvr_sched_n_failing(s), 0);
	CU_ASSERT(rank_of(1).failure_ratio < 0.4);
	CU_ASSERT_EQUAL(rank_of(1).failures, 25);
	end_some(1, 30, KVR_SCHED_NEUTRAL, 0); /* faults of the requests themselves */
	CU_ASSERT_EQUAL(rank_of(1).failures, 25);
	kvr_sched_destroy(s);
}

static void every_mode_avoids_it(void)
{
	for (int mode = 0; kvr_pool_mode_names[mode] != NULL; mode++) {
		if (kvr_pool_mode(mode)->needs_pin)
			continue;
		begin_with(mode, 3, 0.5);
		end_some(1, 6, KVR_SCHED_FAILED, 0);
		CU_ASSERT_EQUAL(failing_share(1, 1), 0);
		CU_ASSERT(failing_share(2, 1) > 0);
		kvr_sched_destroy(s);
	}
}

/* Two on each of the others: worker 1 is idle and the cheapest. */
static void occupy_others(uint64_t now)
{
	for (uint64_t id = 2; id <= 3; id++)
		for (int i = 0; i < 2; i++)
			book_at(id, now);
}

static void each_pause_admits_one_probe_and_doubles(void)
{
	static const uint64_t pause_ms[] = {500, 1000, 2000, 4000, 4000, 4000};
	uint64_t now = 0;

	begin_sched();
	end_some(1, 6, KVR_SCHED_FAILED, 0);
	occupy_others(0);
	for (uint32_t i = 0; i < 6; i++) {
		CU_ASSERT_EQUAL(rank_of(1).probe_at, now + pause_ms[i] * MS);
		now += pause_ms[i] * MS;
		CU_ASSERT_NOT_EQUAL(book_request(now - 1), 1);
		CU_ASSERT_EQUAL(book_request(now), 1);
		CU_ASSERT_NOT_EQUAL(book_request(now), 1); /* one at a time */
		CU_ASSERT_EQUAL(rank_of(1).breaker, KVR_SCHED_OPEN);
		end_failing_slot(slot - 2, KVR_SCHED_FAILED, now);
		end_failing_slot(slot - 1, KVR_SCHED_SERVED, now);
		end_failing_slot(slot - 3, KVR_SCHED_SERVED, now);
	}
	/* Back within 5 s of recovery: the next probe is served. */
	CU_ASSERT_EQUAL(book_request(now + 4 * SEC), 1);
	end_failing_slot(slot - 1, KVR_SCHED_SERVED, now + 4 * SEC);
	CU_ASSERT_EQUAL(kvr_sched_n_failing(s), 0);
	CU_ASSERT_EQUAL(rank_of(1).breaker, KVR_SCHED_CLOSED);
	CU_ASSERT(failing_share(1, now + 4 * SEC) >= 5);
	kvr_sched_destroy(s);
}

static void a_long_probe_closes_the_breaker_by_its_tokens(void)
{
	begin_sched();
	end_some(1, 6, KVR_SCHED_FAILED, 0);
	occupy_others(0);
	CU_ASSERT_EQUAL(book_request(SEC), 1);
	kvr_sched_output(s, slot - 1, 1, SEC); /* engines break off behind their first token, too */
	CU_ASSERT_EQUAL(kvr_sched_n_failing(s), 1);
	kvr_sched_output(s, slot - 1, 16, SEC);
	CU_ASSERT_EQUAL(kvr_sched_n_failing(s), 0);
	kvr_sched_destroy(s);
}

static void requests_of_before_say_nothing_about_recovery(void)
{
	uint32_t old;

	begin_sched();
	book_at(1, 0);
	book_at(1, 0);
	old = slot - 2;
	end_some(1, 6, KVR_SCHED_FAILED, 1);
	end_failing_slot(old, KVR_SCHED_SERVED, 2);
	CU_ASSERT_EQUAL(rank_of(1).breaker, KVR_SCHED_OPEN);
	end_failing_slot(old + 1, KVR_SCHED_FAILED, 3); /* nor does it make the pause longer */
	CU_ASSERT_EQUAL(rank_of(1).probe_at, SEC / 2 + 1);
	kvr_sched_destroy(s);
}

static void a_rank_that_fails_again_soon_waits_longer(void)
{
	begin_sched();
	end_some(1, 6, KVR_SCHED_FAILED, 0);
	end_some(1, 1, KVR_SCHED_SERVED, SEC);
	CU_ASSERT_EQUAL(kvr_sched_n_failing(s), 0);
	end_some(1, 4, KVR_SCHED_FAILED, 2 * SEC); /* half of the ratio is left */
	CU_ASSERT_EQUAL(kvr_sched_n_failing(s), 1);
	CU_ASSERT_EQUAL(rank_of(1).probe_at, 3 * SEC);
	end_some(1, 1, KVR_SCHED_SERVED, 3 * SEC);
	end_some(1, 4, KVR_SCHED_FAILED, 20 * SEC);
	CU_ASSERT_EQUAL(rank_of(1).probe_at, 20 * SEC + SEC / 2); /* it has worked for long */
	kvr_sched_destroy(s);
}

static void when_all_fail_the_choice_is_as_if_none_did(void)
{
	begin_sched();
	for (uint64_t id = 1; id <= 3; id++)
		end_some(id, 6, KVR_SCHED_FAILED, 0);
	CU_ASSERT_EQUAL(kvr_sched_n_failing(s), 3);
	CU_ASSERT(failing_share(1, 1) >= 5);
	CU_ASSERT(failing_share(2, 1) >= 5);
	/* The first one that serves a request takes the traffic. */
	end_some(2, 1, KVR_SCHED_SERVED, 2);
	CU_ASSERT_EQUAL(kvr_sched_n_failing(s), 2);
	CU_ASSERT_EQUAL(book_request(3), 2);
	/* When it has no room left, a failing rank is better than a refusal. */
	while (!rank_of(2).worker_overloaded)
		book_at(2, 3);
	CU_ASSERT_NOT_EQUAL(book_request(3), 0);
	kvr_sched_destroy(s);
}

static void two_time_outs_open_the_breaker(void)
{
	uint32_t at;

	begin_sched();
	book_at(1, 0);
	book_at(1, 0);
	book_at(1, 0);
	at = slot - 3;
	end_failing_slot(at, KVR_SCHED_GIVEN_UP, SEC - 1); /* an impatient client */
	CU_ASSERT_EQUAL(rank_of(1).failures, 0);
	end_failing_slot(at + 1, KVR_SCHED_GIVEN_UP, SEC);
	CU_ASSERT_EQUAL(kvr_sched_n_failing(s), 0);
	end_failing_slot(at + 2, KVR_SCHED_FAILED, SEC); /* its agent has given it up */
	CU_ASSERT_EQUAL(kvr_sched_n_failing(s), 1);
	CU_ASSERT_EQUAL(rank_of(1).failures, 2);
	kvr_sched_destroy(s);
}

static void a_rank_that_answers_others_does_not_hang(void)
{
	uint32_t at;

	begin_sched();
	for (uint32_t i = 0; i < 4; i++)
		book_at(1, 0);
	at = slot - 4;
	kvr_sched_output(s, at, 1, SEC);
	for (uint32_t i = 1; i < 4; i++)
		end_failing_slot(at + i, KVR_SCHED_GIVEN_UP, 5 * SEC);
	CU_ASSERT_EQUAL(rank_of(1).failures, 0);
	/* With a token of its own neither. */
	book_at(2, 0);
	kvr_sched_output(s, slot - 1, 1, 0);
	end_failing_slot(slot - 1, KVR_SCHED_GIVEN_UP, 9 * SEC);
	CU_ASSERT_EQUAL(rank_of(2).failures, 0);
	/* The router's own pause is not the rank's. */
	book_at(3, 10 * SEC);
	kvr_sched_stood_still(s, 4 * SEC);
	end_failing_slot(slot - 1, KVR_SCHED_GIVEN_UP, 14 * SEC);
	CU_ASSERT_EQUAL(rank_of(3).failures, 0);
	kvr_sched_destroy(s);
}

static void expired_bookings_are_time_outs(void)
{
	uint32_t ended[4];

	begin_sched();
	book_at(1, 0);
	book_at(1, 0);
	CU_ASSERT_EQUAL(kvr_sched_expire(s, 400 * SEC, ended, 4), 2);
	CU_ASSERT_EQUAL(kvr_sched_n_failing(s), 1);
	kvr_sched_destroy(s);
}

static void overload_is_a_pause_and_no_failure(void)
{
	begin_sched();
	end_some(1, 1, KVR_SCHED_OVERLOADED, 0);
	CU_ASSERT_EQUAL(rank_of(1).failures, 0);
	CU_ASSERT_EQUAL(rank_of(1).failure_ratio, 0);
	CU_ASSERT_TRUE(rank_of(1).refuses);
	CU_ASSERT_EQUAL(failing_share(1, 1), 0);
	occupy_others(1);
	CU_ASSERT_EQUAL(book_request(SEC / 2), 1);
	end_failing_slot(slot - 1, KVR_SCHED_OVERLOADED, SEC / 2);
	CU_ASSERT_EQUAL(rank_of(1).probe_at, SEC); /* it does not double */
	CU_ASSERT_EQUAL(book_request(SEC), 1);
	end_failing_slot(slot - 1, KVR_SCHED_SERVED, SEC);
	CU_ASSERT_EQUAL(kvr_sched_n_failing(s), 0);
	CU_ASSERT_FALSE(rank_of(1).refuses);
	kvr_sched_destroy(s);
}

static void another_life_begins_closed(void)
{
	begin_sched();
	end_some(1, 6, KVR_SCHED_FAILED, 0);
	CU_ASSERT_EQUAL(kvr_sched_worker_renew(s, 1, 0), 0);
	kvr_sched_worker_available(s, 1, true, 0);
	CU_ASSERT_EQUAL(kvr_sched_n_failing(s), 0);
	CU_ASSERT_EQUAL(rank_of(1).failures, 0);
	CU_ASSERT(failing_share(1, 1) >= 5);
	end_some(1, 6, KVR_SCHED_FAILED, 2);
	CU_ASSERT_EQUAL(kvr_sched_worker_gone(s, 1, 2), 0);
	CU_ASSERT_EQUAL(kvr_sched_n_failing(s), 0);
	CU_ASSERT_NOT_EQUAL(book_request(3), 0);
	kvr_sched_destroy(s);
}

static void probes_after_time_outs_are_trials(void)
{
	struct kvr_sched_decision d;

	begin_sched();
	book_at(1, 0);
	book_at(1, 0);
	end_failing_slot(slot - 2, KVR_SCHED_GIVEN_UP, SEC);
	end_failing_slot(slot - 1, KVR_SCHED_GIVEN_UP, SEC);
	occupy_others(SEC);
	CU_ASSERT_EQUAL(kvr_sched_route(s, slot++, &asked, NULL, 2 * SEC, &d), KVR_SCHED_ROUTED);
	CU_ASSERT(d.worker == 1 && d.trial);
	CU_ASSERT_EQUAL(kvr_sched_route(s, slot++, &asked, NULL, 2 * SEC, &d), KVR_SCHED_ROUTED);
	CU_ASSERT(d.worker != 1 && !d.trial);
	kvr_sched_destroy(s);
	begin_sched();
	end_some(1, 6, KVR_SCHED_FAILED, 0); /* at once: a probe costs its client nothing */
	occupy_others(0);
	CU_ASSERT_EQUAL(kvr_sched_route(s, slot++, &asked, NULL, SEC, &d), KVR_SCHED_ROUTED);
	CU_ASSERT(d.worker == 1 && !d.trial);
	kvr_sched_destroy(s);
}

static void ratio_zero_turns_it_off(void)
{
	struct kvr_pool_conf conf;

	begin_with(KVR_MODE_KV, 3, 0);
	end_some(1, 20, KVR_SCHED_FAILED, 0);
	CU_ASSERT_EQUAL(kvr_sched_n_failing(s), 0);
	kvr_sched_destroy(s);
	begin_sched();
	end_some(1, 6, KVR_SCHED_FAILED, 0);
	conf = *kvr_sched_conf(s);
	conf.failure_ratio = 0;
	kvr_sched_tune(s, &conf);
	CU_ASSERT_EQUAL(kvr_sched_n_failing(s), 0);
	CU_ASSERT(failing_share(1, 1) >= 5);
	kvr_sched_destroy(s);
}

/* Worker of a request that has failed at the first @p n workers. */
static uint64_t retry_request(uint32_t n, uint64_t now)
{
	struct kvr_wire_rank at[KVR_HINT_MAX_FAILED_AT];
	const struct kvr_hints h = {
		.failed_at = at, .n_failed_at = n, .policy_class = KVR_SCHED_NO_CLASS};
	const struct kvr_sched_req req = {.isl = 50, .hints = &h};
	struct kvr_sched_decision d;

	for (uint32_t i = 0; i < n; i++)
		at[i] = (struct kvr_wire_rank){.worker = i + 1};
	return kvr_sched_route(s, slot++, &req, NULL, now, &d) == KVR_SCHED_ROUTED ? d.worker : 0;
}

static void a_retry_goes_elsewhere_while_there_is_another(void)
{
	begin_sched();
	for (uint32_t i = 0; i < 6; i++)
		CU_ASSERT_EQUAL(retry_request(2, 0), 3);
	for (uint32_t i = 0; i < 6; i++)
		CU_ASSERT_NOT_EQUAL(retry_request(1, 0), 1);
	CU_ASSERT_NOT_EQUAL(retry_request(3, 0), 0); /* all have failed it */
	CU_ASSERT_NOT_EQUAL(retry_request(4, 0), 0); /* one of them is not known */
	kvr_sched_destroy(s);
	begin_sched();
	{
		const struct kvr_sched_worker w = {.id = 1, .dp_size = 3};
		const struct kvr_wire_rank all = {.worker = 1, .dp_rank = UINT32_MAX};
		const struct kvr_hints h = {
			.n_failed_at = 1, .policy_class = KVR_SCHED_NO_CLASS, .failed_at = &all};
		const struct kvr_sched_req req = {.isl = 50, .hints = &h};
		struct kvr_sched_decision d;

		/* A process that has gone takes all its ranks along. */
		CU_ASSERT_EQUAL(kvr_sched_worker_set(s, &w, 0), 0);
		for (uint32_t i = 0; i < 6; i++) {
			kvr_sched_route(s, slot++, &req, NULL, 0, &d);
			CU_ASSERT_NOT_EQUAL(d.worker, 1);
		}
	}
	kvr_sched_destroy(s);
	/* Even to a rank that is avoided; and to the same when there is no other. */
	begin_with(KVR_MODE_KV, 2, 0.5);
	end_some(2, 6, KVR_SCHED_FAILED, 0);
	CU_ASSERT_EQUAL(retry_request(1, 0), 2);
	CU_ASSERT_EQUAL(kvr_sched_worker_gone(s, 2, 0), 0);
	CU_ASSERT_EQUAL(retry_request(1, 0), 1);
	kvr_sched_destroy(s);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(six_failures_in_succession_open_the_breaker),
			       KVR_CASE(a_rank_that_mostly_serves_is_not_avoided),
			       KVR_CASE(every_mode_avoids_it),
			       KVR_CASE(each_pause_admits_one_probe_and_doubles),
			       KVR_CASE(a_long_probe_closes_the_breaker_by_its_tokens),
			       KVR_CASE(requests_of_before_say_nothing_about_recovery),
			       KVR_CASE(a_rank_that_fails_again_soon_waits_longer),
			       KVR_CASE(when_all_fail_the_choice_is_as_if_none_did),
			       KVR_CASE(two_time_outs_open_the_breaker),
			       KVR_CASE(a_rank_that_answers_others_does_not_hang),
			       KVR_CASE(expired_bookings_are_time_outs),
			       KVR_CASE(overload_is_a_pause_and_no_failure),
			       KVR_CASE(another_life_begins_closed),
			       KVR_CASE(probes_after_time_outs_are_trials),
			       KVR_CASE(ratio_zero_turns_it_off),
			       KVR_CASE(a_retry_goes_elsewhere_while_there_is_another),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("failing", tests);
}
