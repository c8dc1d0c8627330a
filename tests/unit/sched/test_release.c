/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A booking ends by silence: what its worker says renews it, 300 s without a word release it. Its
 * load goes then, once; its end and the loss of its worker are still known.
 */
#include "sched_pvt.h"

#include "kvr_test.h"

#define SEC   UINT64_C(1000000000)
#define SLOTS 64u
#define LONG  600u /* blocks: freed in slices */

static struct kvr_sched *s;
static uint64_t now;
static uint32_t dropped[SLOTS], n_dropped;
static uint32_t common; /* blocks with which all prompts begin */

static void on_dropped(void *arg, uint32_t slot, uint32_t rank)
{
	dropped[n_dropped++] = slot;
}

static void begin_sched(const char *seconds)
{
	const struct kvr_sched_ops ops = {.dropped = on_dropped};
	const struct kvr_sched_worker w = {.id = 7, .dp_size = 2};
	struct kvr_pool_conf conf;
	char err[128];

	kvr_pool_conf_defaults(&conf);
	strcpy(conf.name, "t");
	conf.block_size = 4;
	conf.max_ranks = 64;
	conf.max_requests = SLOTS;
	conf.max_active_blocks = 1 << 14;
	conf.max_prompt_blocks = 1024;
	conf.track_output_blocks = true;
	if (seconds != NULL)
		CU_ASSERT_EQUAL_FATAL(kvr_pool_conf_set(&conf, "active_request_expiry_secs",
							seconds, err, sizeof(err)),
				      0);
	now = 0;
	n_dropped = common = 0;
	s = kvr_sched_create(&conf, &ops, now);
	CU_ASSERT_PTR_NOT_NULL_FATAL(s);
	CU_ASSERT_EQUAL_FATAL(kvr_sched_worker_set(s, &w, now), 0);
}

static void check_balance(void)
{
	kvr_cell_t row[KVR_SCHED_COUNTERS];
	uint64_t v[KVR_SCHED_COUNTERS];
	char violated[1024] = "";

	kvr_stats_row_copy(row, &kvr_sched_counters(s)->routed_calls, KVR_SCHED_COUNTERS);
	for (unsigned int i = 0; i < KVR_SCHED_COUNTERS; i++)
		v[i] = kvr_stats_get(row, i);
	kvr_stats_check(&kvr_sched_stats_def, v, violated, sizeof(violated));
	CU_ASSERT_STRING_EQUAL(violated, "");
}

static void end_release_slot(void)
{
	check_balance();
	kvr_sched_destroy(s);
}

static void book_request(uint32_t slot, uint32_t blocks)
{
	static uint64_t sh[SLOTS][1024];
	static struct kvr_sched_req req[SLOTS];
	struct kvr_sched_decision d;

	for (uint32_t i = 0; i < blocks; i++)
		sh[slot][i] = i < common ? i : UINT64_C(1000000) * (slot + 1) + i;
	req[slot] = (struct kvr_sched_req){.sh = sh[slot], .n = blocks, .isl = blocks * 4};
	CU_ASSERT_EQUAL_FATAL(kvr_sched_route(s, slot, &req[slot], NULL, now, &d),
			      KVR_SCHED_ROUTED);
}

/* Time passes in steps of 10 s. @return how many bookings were released. */
static uint32_t pass_time(uint32_t seconds)
{
	uint32_t slot[SLOTS], n = 0;

	for (uint32_t i = 0; i < seconds / 10; i++) {
		now += 10 * SEC;
		n += kvr_sched_expire(s, now, slot, SLOTS);
	}
	return n;
}

/* Of the whole pool. */
static uint64_t read_load(void)
{
	struct kvr_sched_rank_info r;
	uint64_t sum = 0;

	for (uint32_t i = 0; i < 2; i++) {
		CU_ASSERT_EQUAL_FATAL(kvr_sched_rank_get(s, i, &r), 0);
		sum += r.active_requests + r.active_blocks + r.active_prefill_tokens;
	}
	return sum;
}

static void silence_releases_it_within_390_s(void)
{
	begin_sched(NULL);
	now = 5 * SEC; /* not when a sweep is due */
	book_request(0, 3);
	CU_ASSERT_EQUAL(pass_time(300), 0);
	CU_ASSERT_EQUAL(pass_time(90), 1);
	CU_ASSERT_EQUAL(read_load(), 0);
	CU_ASSERT_EQUAL(kvr_sched_slot_state(s, 0), KVR_SLOT_RELEASED);
	CU_ASSERT_EQUAL(kvr_sched_counters(s)->expired, 1);
	CU_ASSERT_EQUAL(kvr_sched_counters(s)->released_now, 1);
	CU_ASSERT_EQUAL(kvr_sched_worker_bookings(s, 7), 0);
	end_release_slot();
}

/* 20 minutes in prefill: reports alone. Then an answer of 2 hours with a token every 250 s. */
static void every_word_renews_it(void)
{
	begin_sched(NULL);
	book_request(0, 3);
	for (uint32_t i = 0; i < 40; i++) {
		CU_ASSERT_EQUAL(pass_time(30), 0);
		CU_ASSERT_TRUE(kvr_sched_renew(s, 0, now));
	}
	CU_ASSERT_EQUAL(pass_time(290), 0);
	CU_ASSERT_TRUE(kvr_sched_prefill_done(s, 0, now));
	for (uint32_t i = 0; i < 29; i++) {
		CU_ASSERT_EQUAL(pass_time(250), 0);
		/* an old number is a word, too */
		CU_ASSERT_TRUE(kvr_sched_output(s, 0, i / 2, now));
	}
	CU_ASSERT_TRUE(kvr_sched_finish(s, 0, now));
	CU_ASSERT_EQUAL(kvr_sched_counters(s)->expired, 0);
	end_release_slot();
}

/* The order of renewal counts, not that of booking. */
static void the_one_renewed_first_goes_first(void)
{
	uint32_t slot[SLOTS];

	begin_sched(NULL);
	for (uint32_t i = 0; i < 6; i++)
		book_request(i, 1);
	pass_time(200);
	for (uint32_t i = 0; i < 6; i += 2)
		kvr_sched_renew(s, i, now);
	pass_time(90);
	now = 360 * SEC;
	CU_ASSERT_EQUAL(kvr_sched_expire(s, now, slot, 2), 2); /* a part at a time */
	CU_ASSERT_EQUAL(kvr_sched_expire(s, now, slot + 2, 2), 1);
	CU_ASSERT_EQUAL(slot[0] % 2 + slot[1] % 2 + slot[2] % 2, 3);
	CU_ASSERT_EQUAL(pass_time(240), 3);
	end_release_slot();
}

static void zero_releases_nothing(void)
{
	begin_sched("0");
	book_request(0, 3);
	CU_ASSERT_EQUAL(pass_time(100000), 0);
	CU_ASSERT_EQUAL(kvr_sched_next_timer(s), UINT64_MAX);
	CU_ASSERT_TRUE(kvr_sched_finish(s, 0, now));
	end_release_slot();
}

/* Late words change nothing; its one end frees nothing twice, and the slot is another's. */
static void what_comes_later_changes_nothing(void)
{
	begin_sched(NULL);
	book_request(0, 3);
	book_request(1, 3);
	kvr_sched_renew(s, 1, now);
	pass_time(290);
	kvr_sched_renew(s, 1, now);
	CU_ASSERT_EQUAL(pass_time(100), 1);
	CU_ASSERT_FALSE(kvr_sched_renew(s, 0, now));
	CU_ASSERT_FALSE(kvr_sched_prefill_done(s, 0, now));
	CU_ASSERT_FALSE(kvr_sched_output(s, 0, 100, now));
	CU_ASSERT_EQUAL(read_load(), 1 + 3 + 12);
	CU_ASSERT_EQUAL(kvr_sched_counters(s)->late, 0);
	CU_ASSERT_FALSE(kvr_sched_finish(s, 0, now)); /* there is no booking */
	CU_ASSERT_EQUAL(kvr_sched_slot_state(s, 0), KVR_SLOT_FREE);
	CU_ASSERT_FALSE(kvr_sched_finish(s, 0, now));
	CU_ASSERT_EQUAL(kvr_sched_counters(s)->late, 1);
	CU_ASSERT_EQUAL(kvr_sched_counters(s)->released_ended, 1);
	book_request(0, 5);
	CU_ASSERT_TRUE(kvr_sched_cancel(s, 0, now));
	CU_ASSERT_TRUE(kvr_sched_finish(s, 1, now));
	CU_ASSERT_EQUAL(read_load(), 0);
	end_release_slot();
}

static void a_lost_worker_ends_what_was_released(void)
{
	begin_sched(NULL);
	for (uint32_t i = 0; i < 9; i++)
		book_request(i, 2);
	pass_time(290);
	for (uint32_t i = 0; i < 3; i++)
		kvr_sched_renew(s, i, now);
	CU_ASSERT_EQUAL(pass_time(100), 6);
	CU_ASSERT_FALSE(kvr_sched_cancel(s, 8, now));
	CU_ASSERT_EQUAL(kvr_sched_worker_drop(s, 7, 6, now), 2);
	CU_ASSERT_EQUAL(n_dropped, 6);
	CU_ASSERT_EQUAL(kvr_sched_worker_drop(s, 7, 6, now), 0);
	CU_ASSERT_EQUAL(n_dropped, 8);
	CU_ASSERT_EQUAL(kvr_sched_counters(s)->dropped, 3);
	CU_ASSERT_EQUAL(kvr_sched_counters(s)->released_ended, 6);
	for (uint32_t i = 0; i < 9; i++)
		CU_ASSERT_EQUAL(kvr_sched_slot_state(s, i), KVR_SLOT_FREE);
	CU_ASSERT_EQUAL(kvr_sched_worker_gone(s, 7, now), 0);
	CU_ASSERT_EQUAL(n_dropped, 8);
	end_release_slot();
}

/* The prompt of a release leaves in slices like that of any end, while the slot is linked among the
 * released ones of its rank, and while it is another request's. */
static void a_long_prompt_is_released_in_slices(void)
{
	begin_sched(NULL);
	kvr_sched_slices(s, 1);
	for (uint32_t i = 0; i < 4; i++) {
		common = LONG / 4 * i; /* several runs each */
		book_request(i, LONG);
		kvr_sched__settle(s);
	}
	CU_ASSERT_EQUAL(pass_time(390), 4);
	CU_ASSERT_FALSE(kvr_sched_settled(s));
	CU_ASSERT_FALSE(kvr_sched_finish(s, 1, now)); /* amid them */
	CU_ASSERT_FALSE(kvr_sched_finish(s, 3, now));
	while (!kvr_sched_settle(s, 1))
		;
	CU_ASSERT_EQUAL(read_load(), 0);
	CU_ASSERT_PTR_NULL(kvr_active_check(s->active));
	book_request(1, 3);
	CU_ASSERT_EQUAL(kvr_sched_worker_gone(s, 7, now), 0);
	CU_ASSERT_EQUAL(n_dropped, 3);
	end_release_slot();
}

/* Time in which the router could not listen is no silence. */
static void standing_still_is_no_silence(void)
{
	begin_sched(NULL);
	book_request(0, 1);
	now = 1000 * SEC;
	kvr_sched_stood_still(s, 900 * SEC);
	CU_ASSERT_EQUAL(pass_time(190), 0);
	CU_ASSERT_EQUAL(pass_time(90), 1);
	end_release_slot();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(silence_releases_it_within_390_s),
			       KVR_CASE(every_word_renews_it),
			       KVR_CASE(the_one_renewed_first_goes_first),
			       KVR_CASE(zero_releases_nothing),
			       KVR_CASE(what_comes_later_changes_nothing),
			       KVR_CASE(a_lost_worker_ends_what_was_released),
			       KVR_CASE(a_long_prompt_is_released_in_slices),
			       KVR_CASE(standing_still_is_no_silence),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("release", tests);
}
