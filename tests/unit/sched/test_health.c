/* SPDX-License-Identifier: BSD-3-Clause */
/* Health probes: a booking without weight, in every mode, which ends like others. */
#include "kvr_sched.h"
#include "kvr_test.h"

#include <string.h>

#define SEC UINT64_C(1000000000)

static struct kvr_pool_conf conf;
static uint32_t lost;

static void count_dropped(void *arg, uint32_t slot, uint32_t rank)
{
	(void)arg, (void)slot, (void)rank;
	lost++;
}

static struct kvr_sched *make_health_sched(int mode)
{
	const struct kvr_sched_ops ops = {.dropped = count_dropped};
	struct kvr_sched *s;

	kvr_pool_conf_defaults(&conf);
	strcpy(conf.name, "t");
	conf.mode = mode;
	conf.block_size = 10;
	conf.max_ranks = 64;
	conf.max_requests = 8;
	conf.max_active_blocks = 1 << 10;
	conf.max_prompt_blocks = 100;
	conf.request_expiry_s = 100;
	s = kvr_sched_create(&conf, &ops, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(s);
	for (uint64_t id = 0; id < 2; id++)
		CU_ASSERT_EQUAL_FATAL(
			kvr_sched_worker_set(
				s, &(const struct kvr_sched_worker){.id = id, .dp_size = 1}, 0),
			0);
	lost = 0;
	return s;
}

static enum kvr_sched_result route_probe(struct kvr_sched *s, uint32_t slot, uint64_t worker,
					 struct kvr_sched_decision *d)
{
	const struct kvr_hints h = {.present = KVR_HAS(KVR_HINT_BACKEND),
				    .backend_worker = worker,
				    .policy_class = KVR_SCHED_NO_CLASS};
	const struct kvr_sched_req req = {.isl = 500, .probe = true, .hints = &h};

	return kvr_sched_route(s, slot, &req, NULL, SEC, d);
}

/* No load, and no counter but those of probes. */
static void check_untouched(const struct kvr_sched *s)
{
	const struct kvr_sched_counters *c = kvr_sched_counters(s);
	struct kvr_sched_rank_info r;

	for (uint32_t i = 0; i < 2; i++) {
		CU_ASSERT_EQUAL(kvr_sched_rank_get(s, i, &r), 0);
		CU_ASSERT_EQUAL(r.active_blocks + r.active_requests + r.active_prefill_tokens, 0);
		CU_ASSERT_EQUAL(kvr_sched_worker_bookings(s, i), 0);
	}
	CU_ASSERT_EQUAL(c->routed_calls + c->booked_at_once + c->booked_now, 0);
	CU_ASSERT_EQUAL(c->finished + c->cancelled_booked + c->expired + c->dropped, 0);
	CU_ASSERT_EQUAL(c->errors[KVR_SCHED_ERR_ANY] + c->prefill_marks + c->output_blocks, 0);
	CU_ASSERT_EQUAL(c->probes, c->probes_refused + c->probes_ended + c->probes_now);
}

static void it_has_no_weight_in_any_mode(void)
{
	for (int mode = 0; kvr_pool_mode_names[mode] != NULL; mode++) {
		struct kvr_sched *s = make_health_sched(mode);
		struct kvr_sched_decision d;

		CU_ASSERT_EQUAL_FATAL(route_probe(s, 3, 1, &d), KVR_SCHED_ROUTED);
		CU_ASSERT(d.worker == 1 && d.pinned);
		check_untouched(s);
		CU_ASSERT_EQUAL(kvr_sched_counters(s)->probes_now, 1);
		CU_ASSERT_FALSE(kvr_sched_prefill_done(s, 3, SEC));
		kvr_sched_output(s, 3, 77, SEC);
		check_untouched(s);
		CU_ASSERT(kvr_sched_finish(s, 3, SEC));
		CU_ASSERT_EQUAL(kvr_sched_slot_state(s, 3), KVR_SLOT_FREE);
		check_untouched(s);
		CU_ASSERT_EQUAL(kvr_sched_counters(s)->probes_ended, 1);
		kvr_sched_destroy(s);
	}
}

static void its_slot_is_anothers_afterwards(void)
{
	struct kvr_sched *s = make_health_sched(KVR_MODE_KV);
	const struct kvr_sched_req req = {.isl = 500};
	struct kvr_sched_decision d;

	CU_ASSERT_EQUAL_FATAL(route_probe(s, 0, 1, &d), KVR_SCHED_ROUTED);
	CU_ASSERT_EQUAL(route_probe(s, 0, 1, &d), KVR_SCHED_ERROR);
	CU_ASSERT_EQUAL(d.err, KVR_E_DUPLICATE_REQUEST);
	CU_ASSERT(kvr_sched_cancel(s, 0, SEC));
	CU_ASSERT_EQUAL(kvr_sched_route(s, 0, &req, NULL, SEC, &d), KVR_SCHED_ROUTED);
	CU_ASSERT_EQUAL(kvr_sched_counters(s)->booked_now, 1);
	CU_ASSERT(kvr_sched_finish(s, 0, SEC));
	CU_ASSERT_EQUAL(kvr_sched_counters(s)->finished, 1);
	kvr_sched_destroy(s);
}

static void a_lost_worker_ends_it_and_silence_does_not(void)
{
	struct kvr_sched *s = make_health_sched(KVR_MODE_KV);
	struct kvr_sched_decision d;
	uint32_t slot[4] = {0};

	CU_ASSERT_EQUAL_FATAL(route_probe(s, 5, 1, &d), KVR_SCHED_ROUTED);
	CU_ASSERT_NOT_EQUAL(kvr_sched_next_timer(s), UINT64_MAX);
	CU_ASSERT_EQUAL(kvr_sched_expire(s, 400 * SEC, slot, 4), 1);
	CU_ASSERT_EQUAL(slot[0], 5);
	CU_ASSERT_EQUAL(kvr_sched_slot_state(s, 5), KVR_SLOT_RELEASED);
	CU_ASSERT_EQUAL(kvr_sched_counters(s)->probes_now, 1);
	check_untouched(s);
	CU_ASSERT_EQUAL_FATAL(route_probe(s, 6, 1, &d), KVR_SCHED_ROUTED);
	CU_ASSERT_EQUAL(kvr_sched_worker_drop(s, 1, 10, 400 * SEC), 0);
	CU_ASSERT_EQUAL(lost, 2);
	CU_ASSERT_EQUAL(kvr_sched_counters(s)->probes_ended, 2);
	check_untouched(s);
	kvr_sched_destroy(s);
}

static void a_refusal_is_counted_apart(void)
{
	struct kvr_sched *s = make_health_sched(KVR_MODE_KV);
	struct kvr_sched_decision d;

	CU_ASSERT_EQUAL(route_probe(s, 0, 9, &d), KVR_SCHED_ERROR);
	CU_ASSERT_EQUAL(route_probe(s, 8, 1, &d), KVR_SCHED_ERROR);
	CU_ASSERT_EQUAL(d.err, KVR_E_NO_MEMORY);
	CU_ASSERT_EQUAL(kvr_sched_counters(s)->probes_refused, 2);
	check_untouched(s);
	kvr_sched_destroy(s);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(it_has_no_weight_in_any_mode),
			       KVR_CASE(its_slot_is_anothers_afterwards),
			       KVR_CASE(a_lost_worker_ends_it_and_silence_does_not),
			       KVR_CASE(a_refusal_is_counted_apart), CU_TEST_INFO_NULL};

	return kvr_test_run("health", tests);
}
