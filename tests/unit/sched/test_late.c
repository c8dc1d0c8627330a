/* SPDX-License-Identifier: BSD-3-Clause */
/* Late binding of mode ttft: which requests wait, their order, and their load. */
#include "kvr_sched.h"
#include "kvr_test.h"

#include <string.h>

#define MS  UINT64_C(1000000)
#define SEC UINT64_C(1000000000)

static struct kvr_pool_conf conf;
static struct kvr_sched_term term[8];
static struct kvr_sched_terms terms = {.v = term, .cap = 8};

static uint64_t at_ms(uint64_t ms)
{
	return 5 * SEC + ms * MS;
}

/* Nearly idle is less than 50 tokens; no request waits longer than a second. */
static void set_defaults(void)
{
	kvr_pool_conf_defaults(&conf);
	strcpy(conf.name, "t");
	conf.mode = KVR_MODE_TTFT;
	conf.ttft_late_binding = true;
	conf.ttft_late_tokens = 50;
	conf.ttft_late_ms = 1000;
	conf.block_size = 10;
	conf.max_ranks = 64;
	conf.max_requests = 64;
	conf.max_active_blocks = 1 << 14;
	conf.max_prompt_blocks = 1000;
}

/* A prompt of n blocks of 10 tokens; the hashes of a family begin alike. */
static struct kvr_sched_req *make_prompt(uint32_t slot, uint64_t family, uint32_t n)
{
	static uint64_t sh[64][100];
	static struct kvr_sched_req req[64];

	for (uint32_t i = 0; i < n; i++)
		sh[slot][i] = family * 1000 + i + 1;
	req[slot] = (struct kvr_sched_req){.sh = sh[slot], .n = n, .isl = n * 10};
	return &req[slot];
}

/* Times are ms from 0. */
static enum kvr_sched_result dispatch_all(struct kvr_sched *s, const struct kvr_sched_req *req,
					  uint32_t slot, uint64_t ms)
{
	struct kvr_sched_decision d;

	return kvr_sched_route(s, slot, req, NULL, at_ms(ms), &d);
}

static enum kvr_sched_result arrive_at(struct kvr_sched *s, uint32_t slot, uint64_t family,
				       uint32_t n, uint64_t ms)
{
	return dispatch_all(s, make_prompt(slot, family, n), slot, ms);
}

/* For one worker only. */
static enum kvr_sched_result route_pinned(struct kvr_sched *s, uint32_t slot, uint64_t family,
					  uint32_t n, uint64_t worker, uint64_t ms)
{
	static struct kvr_hints h[64];
	struct kvr_sched_req *req = make_prompt(slot, family, n);

	h[slot] = (struct kvr_hints){.present = KVR_HAS(KVR_HINT_BACKEND),
				     .backend_worker = worker,
				     .policy_class = KVR_SCHED_NO_CLASS};
	req->hints = &h[slot];
	return dispatch_all(s, req, slot, ms);
}

/* Costs of a prompt that is only asked about. */
static void ask_tokens_of(struct kvr_sched *s, uint64_t family, uint32_t n, uint64_t ms)
{
	struct kvr_sched_req *req = make_prompt(63, family, n);

	req->query_only = true;
	CU_ASSERT_EQUAL_FATAL(dispatch_all(s, req, 63, ms), KVR_SCHED_QUERY);
}

#define NO_SLOT UINT32_MAX

/* Slot of the next that goes to a worker. */
static uint32_t next_admitted(struct kvr_sched *s, uint64_t ms, uint64_t *worker)
{
	struct kvr_sched_decision d;

	if (kvr_sched_poll(s, at_ms(ms), &d, 1) == 0)
		return NO_SLOT;
	CU_ASSERT_EQUAL(d.result, KVR_SCHED_ROUTED);
	CU_ASSERT_EQUAL(kvr_sched_slot_state(s, d.slot), KVR_SLOT_BOOKED);
	if (worker != NULL)
		*worker = d.worker;
	return d.slot;
}

/* Workers of which it is known that a token takes 100 us; slot 62 is free again. */
static struct kvr_sched *make_late_sched(uint32_t workers)
{
	struct kvr_sched *s = kvr_sched_create(&conf, NULL, at_ms(0));

	CU_ASSERT_PTR_NOT_NULL_FATAL(s);
	for (uint64_t id = 0; id < workers; id++) {
		const struct kvr_sched_worker w = {.id = id, .dp_size = 1};

		CU_ASSERT_EQUAL_FATAL(kvr_sched_worker_set(s, &w, at_ms(0)), 0);
	}
	CU_ASSERT_EQUAL_FATAL(route_pinned(s, 62, 62, 10, 0, 0), KVR_SCHED_ROUTED);
	CU_ASSERT(kvr_sched_prefill_done(s, 62, at_ms(10)));
	CU_ASSERT(kvr_sched_finish(s, 62, at_ms(10)));
	kvr_sched_explain(s, &terms);
	return s;
}

/* No load and no waiting request is left. */
static void check_idle(struct kvr_sched *s, uint64_t ms)
{
	struct kvr_sched_pending p;
	struct kvr_sched_rank_info r;

	kvr_sched_pending(s, &p);
	CU_ASSERT_EQUAL(p.count, 0);
	CU_ASSERT_EQUAL(p.isl_tokens, 0);
	CU_ASSERT_EQUAL(p.cached_tokens, 0);
	ask_tokens_of(s, 61, 3, ms);
	for (uint32_t i = 0; i < terms.n; i++) {
		CU_ASSERT_EQUAL(term[i].wait_tokens, 0);
		CU_ASSERT_EQUAL(kvr_sched_rank_get(s, term[i].rank, &r), 0);
		CU_ASSERT_EQUAL(r.active_blocks, 0);
		CU_ASSERT_EQUAL(r.active_requests, 0);
	}
	CU_ASSERT_EQUAL(next_admitted(s, ms + 5000, NULL), NO_SLOT);
}

static void end_late_slot(struct kvr_sched *s, uint64_t ms)
{
	check_idle(s, ms);
	kvr_sched_destroy(s);
}

static void end_prefill(struct kvr_sched *s, uint32_t slot, uint64_t ms)
{
	CU_ASSERT(kvr_sched_prefill_done(s, slot, at_ms(ms)));
	CU_ASSERT(kvr_sched_finish(s, slot, at_ms(ms)));
}

static void shortest_first_and_who_waits_gets_shorter(void)
{
	struct kvr_sched *s;

	set_defaults();
	s = make_late_sched(1);
	CU_ASSERT_EQUAL(arrive_at(s, 0, 1, 50, 10), KVR_SCHED_ROUTED);
	CU_ASSERT_EQUAL(arrive_at(s, 1, 2, 30, 11), KVR_SCHED_QUEUED); /* 11 + 4 * 30 = 131 */
	CU_ASSERT_EQUAL(arrive_at(s, 2, 3, 6, 12), KVR_SCHED_QUEUED);  /* 36 */
	CU_ASSERT_EQUAL(arrive_at(s, 3, 4, 20, 12), KVR_SCHED_QUEUED); /* 92 */
	CU_ASSERT_EQUAL(arrive_at(s, 4, 5, 15, 31),
			KVR_SCHED_QUEUED); /* 91: shorter by 5, later by 19 */
	CU_ASSERT_EQUAL(next_admitted(s, 31, NULL), NO_SLOT);
	end_prefill(s, 0, 60);
	CU_ASSERT_EQUAL(next_admitted(s, 60, NULL), 2);
	CU_ASSERT_EQUAL(next_admitted(s, 60, NULL), NO_SLOT);	      /* one is enough */
	CU_ASSERT_EQUAL(arrive_at(s, 5, 6, 7, 65), KVR_SCHED_QUEUED); /* 93: by 13 and by 53 */
	end_prefill(s, 2, 66);
	CU_ASSERT_EQUAL(next_admitted(s, 66, NULL), 4);
	end_prefill(s, 4, 81);
	CU_ASSERT_EQUAL(next_admitted(s, 81, NULL), 3);
	end_prefill(s, 3, 101);
	CU_ASSERT_EQUAL(next_admitted(s, 101, NULL), 5);
	end_prefill(s, 5, 108);
	CU_ASSERT_EQUAL(next_admitted(s, 108, NULL), 1);
	end_prefill(s, 1, 138);
	end_late_slot(s, 138);
}

/* Priorities are the client's: they come before, or count as seconds of age. */
static void priorities_count(void)
{
	struct kvr_hints h = {.policy_class = KVR_SCHED_NO_CLASS, .priority_jump = 0.3};
	struct kvr_sched_req *req;
	struct kvr_sched *s;

	set_defaults();
	s = make_late_sched(1);
	CU_ASSERT_EQUAL(arrive_at(s, 0, 1, 10, 10), KVR_SCHED_ROUTED);
	CU_ASSERT_EQUAL(arrive_at(s, 1, 2, 6, 11), KVR_SCHED_QUEUED);
	req = make_prompt(2, 3, 60);
	req->hints = &h;
	CU_ASSERT_EQUAL(dispatch_all(s, req, 2, 11), KVR_SCHED_QUEUED); /* 11 + 240 - 300 */
	end_prefill(s, 0, 20);
	CU_ASSERT_EQUAL(next_admitted(s, 20, NULL), 2);
	end_prefill(s, 2, 80);
	CU_ASSERT_EQUAL(next_admitted(s, 80, NULL), 1);
	end_prefill(s, 1, 86);
	end_late_slot(s, 86);
}

/* 100 tokens from 10 ms on; below 50 from 15 ms on, and a timer says when to look. */
static void nearly_idle_is_a_matter_of_time(void)
{
	struct kvr_sched *s;

	set_defaults();
	s = make_late_sched(1);
	CU_ASSERT_EQUAL(arrive_at(s, 0, 1, 10, 10), KVR_SCHED_ROUTED);
	CU_ASSERT_EQUAL(arrive_at(s, 1, 2, 10, 11), KVR_SCHED_QUEUED);
	CU_ASSERT_EQUAL(next_admitted(s, 11, NULL), NO_SLOT);
	CU_ASSERT_EQUAL(next_admitted(s, 12, NULL), NO_SLOT);
	CU_ASSERT(kvr_sched_next_timer(s) <= at_ms(21));
	CU_ASSERT_EQUAL(next_admitted(s, 20, NULL), 1);
	/* A quarter of a request without a seen end stays: 250 of 1,000. */
	end_prefill(s, 0, 20);
	end_prefill(s, 1, 30);
	CU_ASSERT_EQUAL(arrive_at(s, 2, 3, 100, 30), KVR_SCHED_ROUTED);
	CU_ASSERT_EQUAL(arrive_at(s, 3, 4, 1, 31), KVR_SCHED_QUEUED);
	CU_ASSERT_EQUAL(next_admitted(s, 500, NULL), NO_SLOT);
	end_prefill(s, 2, 900);
	CU_ASSERT_EQUAL(next_admitted(s, 900, NULL), 3);
	end_prefill(s, 3, 901);
	end_late_slot(s, 901);
}

static void no_request_waits_longer_than_the_bound(void)
{
	struct kvr_sched_decision d;
	struct kvr_sched *s;

	set_defaults();
	s = make_late_sched(1);
	CU_ASSERT_EQUAL(arrive_at(s, 0, 1, 10, 10), KVR_SCHED_ROUTED);
	CU_ASSERT_EQUAL(arrive_at(s, 4, 1, 100, 10), KVR_SCHED_QUEUED);
	CU_ASSERT_EQUAL(kvr_sched_poll(s, at_ms(20), &d, 1), 1); /* and keeps the worker busy */
	CU_ASSERT_EQUAL(arrive_at(s, 1, 2, 90, 20), KVR_SCHED_QUEUED);
	CU_ASSERT_EQUAL(arrive_at(s, 2, 3, 1, 30), KVR_SCHED_QUEUED);
	CU_ASSERT_EQUAL(next_admitted(s, 1019, NULL), NO_SLOT);
	CU_ASSERT(kvr_sched_next_timer(s) <= at_ms(1020));
	CU_ASSERT_EQUAL(next_admitted(s, 1020, NULL), 1); /* the longer one is older */
	CU_ASSERT_EQUAL(next_admitted(s, 1020, NULL), NO_SLOT);
	CU_ASSERT_EQUAL(kvr_sched_poll(s, at_ms(1030), &d, 1), 1);
	CU_ASSERT_EQUAL(d.slot, 2);
	CU_ASSERT_EQUAL(d.waited_ns, 1000 * MS);
	CU_ASSERT_EQUAL(kvr_sched_next_timer(s) > at_ms(1100), true);
	end_prefill(s, 0, 1100);
	end_prefill(s, 1, 1100);
	end_prefill(s, 2, 1100);
	end_prefill(s, 4, 1100);
	end_late_slot(s, 1100);
}

/* Costs of a prompt of so many tokens, of which nothing is known anywhere. */
static void ask_tokens(struct kvr_sched *s, uint32_t tokens, uint64_t ms)
{
	struct kvr_sched_req *req = make_prompt(63, 60, 1);

	req->isl = tokens;
	req->query_only = true;
	CU_ASSERT_EQUAL_FATAL(dispatch_all(s, req, 63, ms), KVR_SCHED_QUERY);
	CU_ASSERT_EQUAL(term[0].left_tokens, tokens);
}

/* A shorter request passes waiting ones and delays each; a longer request waits for them. */
static void a_rank_is_as_busy_as_one_is_long(void)
{
	struct kvr_sched *s;

	set_defaults();
	conf.max_prompt_blocks = 1 << 17;
	s = make_late_sched(1);
	CU_ASSERT_EQUAL(arrive_at(s, 0, 1, 10, 10), KVR_SCHED_ROUTED);
	for (uint32_t i = 1; i < 3; i++) {
		struct kvr_sched_req *req = make_prompt(i, 1 + i, 10);

		req->isl = i == 1 ? 8000 : 2000;
		CU_ASSERT_EQUAL(dispatch_all(s, req, i, 10), KVR_SCHED_QUEUED);
	}
	ask_tokens(s, 10, 10);
	CU_ASSERT_EQUAL(term[0].wait_tokens, 100 + 2 * 10);
	ask_tokens(s, 1023, 10);
	CU_ASSERT_EQUAL(term[0].wait_tokens, 100 + 2 * 1023);
	ask_tokens(s, 1024, 10); /* about as long as one of them, so half before it */
	CU_ASSERT_EQUAL(term[0].wait_tokens, 100 + 2000 / 2 + 1024 / 2 + 1024);
	ask_tokens(s, 4096, 10);
	CU_ASSERT_EQUAL(term[0].wait_tokens, 100 + 2000 + 8000 / 2 + 4096 / 2);
	ask_tokens(s, 16384, 10);
	CU_ASSERT_EQUAL(term[0].wait_tokens, 100 + 2000 + 8000);
	ask_tokens(s, 1000000, 10);
	CU_ASSERT_EQUAL(term[0].wait_tokens, 100 + 2000 + 8000);
	CU_ASSERT(kvr_sched_cancel(s, 1, at_ms(10)));
	ask_tokens(s, 16384, 10);
	CU_ASSERT_EQUAL(term[0].wait_tokens, 100 + 2000);
	ask_tokens(s, 10, 10);
	CU_ASSERT_EQUAL(term[0].wait_tokens, 100 + 10);
	end_prefill(s, 0, 20);
	CU_ASSERT_EQUAL(next_admitted(s, 20, NULL), 2);
	ask_tokens(s, 10, 20); /* no request passes one that was dispatched */
	CU_ASSERT_DOUBLE_EQUAL(term[0].wait_tokens, 2000, 1e-6);
	end_prefill(s, 2, 220);
	end_late_slot(s, 220);
}

/* What waits will be computed there; of the same size half is before those that come later. */
static void what_waits_counts_as_what_is_booked(void)
{
	struct kvr_sched *s;

	set_defaults();
	s = make_late_sched(2);
	CU_ASSERT_EQUAL(route_pinned(s, 0, 1, 10, 0, 10), KVR_SCHED_ROUTED);
	CU_ASSERT_EQUAL(route_pinned(s, 1, 2, 40, 0, 10), KVR_SCHED_QUEUED);
	ask_tokens_of(s, 2, 50, 10);
	CU_ASSERT_EQUAL(term[0].wait_tokens, 100 + 400 / 2 + 100 / 2);
	CU_ASSERT_EQUAL(term[0].left_tokens, 100);
	CU_ASSERT_EQUAL(term[1].wait_tokens, 0);
	CU_ASSERT_EQUAL(term[1].left_tokens, 500);
	CU_ASSERT_DOUBLE_EQUAL(term[0].cost, 350 + 100 + 0.05 * 500, 1e-6);
	/* Given to the worker it counts in full. */
	CU_ASSERT_EQUAL(route_pinned(s, 2, 2, 50, 0, 10), KVR_SCHED_QUEUED);
	end_prefill(s, 0, 20);
	CU_ASSERT_EQUAL(next_admitted(s, 20, NULL), 2); /* 100 tokens; the order does not matter */
	ask_tokens_of(s, 2, 50, 20);
	CU_ASSERT_EQUAL(term[0].wait_tokens, 100 + 400 / 2);
	CU_ASSERT_EQUAL(term[0].left_tokens, 0);
	/* The other's blocks fly as well, yet one of the two has to compute them. */
	CU_ASSERT(kvr_sched_prefill_done(s, 2, at_ms(60)));
	CU_ASSERT_EQUAL(next_admitted(s, 60, NULL), 1);
	ask_tokens_of(s, 9, 1, 60);
	CU_ASSERT_DOUBLE_EQUAL(term[0].wait_tokens, 400, 1e-6);
	CU_ASSERT(kvr_sched_finish(s, 2, at_ms(61)));
	end_prefill(s, 1, 61);
	end_late_slot(s, 61);
}

/* A request that arrives when there is capacity does not pass waiting ones. */
static void a_newcomer_waits_behind_who_waits(void)
{
	struct kvr_sched *s;

	set_defaults();
	s = make_late_sched(1);
	CU_ASSERT_EQUAL(arrive_at(s, 0, 1, 10, 10), KVR_SCHED_ROUTED);
	CU_ASSERT_EQUAL(arrive_at(s, 1, 2, 6, 11), KVR_SCHED_QUEUED);
	CU_ASSERT_EQUAL(next_admitted(s, 12, NULL), NO_SLOT);
	CU_ASSERT_EQUAL(arrive_at(s, 2, 3, 9, 19), KVR_SCHED_QUEUED); /* room since 15 */
	CU_ASSERT_EQUAL(next_admitted(s, 19, NULL), 1);
	end_prefill(s, 0, 20);
	end_prefill(s, 1, 26);
	CU_ASSERT_EQUAL(next_admitted(s, 26, NULL), 2);
	end_prefill(s, 2, 35);
	end_late_slot(s, 35);
}

static void whatever_ends_a_wait_leaves_nothing(void)
{
	struct kvr_sched_decision d[4];
	struct kvr_sched *s;

	set_defaults();
	s = make_late_sched(1);
	CU_ASSERT_EQUAL(arrive_at(s, 0, 1, 10, 10), KVR_SCHED_ROUTED);
	for (uint32_t i = 1; i < 5; i++)
		CU_ASSERT_EQUAL(arrive_at(s, i, 1, 10 + i, 10), KVR_SCHED_QUEUED);
	CU_ASSERT(kvr_sched_cancel(s, 2, at_ms(11)));
	CU_ASSERT(!kvr_sched_finish(s, 1, at_ms(11)));
	CU_ASSERT_EQUAL(kvr_sched_slot_state(s, 1), KVR_SLOT_FREE);
	CU_ASSERT_EQUAL(kvr_sched_slot_state(s, 2), KVR_SLOT_FREE);
	CU_ASSERT_EQUAL(kvr_sched_close_queue(s, 0, 64, d), 2);
	CU_ASSERT_EQUAL(d[0].err, KVR_E_SHUTDOWN);
	/* The slots serve again. */
	CU_ASSERT_EQUAL(arrive_at(s, 3, 7, 10, 11), KVR_SCHED_QUEUED);
	end_prefill(s, 0, 20);
	CU_ASSERT_EQUAL(next_admitted(s, 20, NULL), 3);
	end_prefill(s, 3, 30);
	end_late_slot(s, 30);
}

/* A session is a pin: it waits for its worker, even if others are idle. */
static void a_pin_waits_for_its_worker(void)
{
	struct kvr_sched *s;
	uint64_t worker;

	set_defaults();
	s = make_late_sched(2);
	CU_ASSERT_EQUAL(route_pinned(s, 0, 1, 10, 1, 10), KVR_SCHED_ROUTED);
	CU_ASSERT_EQUAL(route_pinned(s, 1, 2, 10, 1, 10), KVR_SCHED_QUEUED);
	CU_ASSERT_EQUAL(arrive_at(s, 2, 3, 10, 10), KVR_SCHED_ROUTED); /* the other is idle */
	CU_ASSERT_EQUAL(next_admitted(s, 11, NULL), NO_SLOT);
	end_prefill(s, 2, 20);
	CU_ASSERT_EQUAL(next_admitted(s, 12, NULL), NO_SLOT);
	end_prefill(s, 0, 20);
	CU_ASSERT_EQUAL(next_admitted(s, 20, &worker), 1);
	CU_ASSERT_EQUAL(worker, 1);
	/* Its worker goes: refused, as in every queue. */
	CU_ASSERT_EQUAL(route_pinned(s, 3, 3, 10, 1, 20), KVR_SCHED_QUEUED);
	CU_ASSERT_EQUAL(kvr_sched_worker_gone(s, 1, at_ms(21)), 0);
	struct kvr_sched_decision d;

	CU_ASSERT_EQUAL(kvr_sched_poll(s, at_ms(21), &d, 1), 1);
	CU_ASSERT_EQUAL(d.slot, 3);
	CU_ASSERT_EQUAL(d.err, KVR_E_NO_ENDPOINTS);
	end_late_slot(s, 22);
}

/* Worker 0 holds what slot 1 begins with, so that it waits there. */
static struct kvr_sched *one_waits_for_worker_0(void)
{
	struct kvr_sched *s = make_late_sched(2);

	CU_ASSERT_EQUAL(route_pinned(s, 0, 1, 90, 0, 10), KVR_SCHED_ROUTED);
	CU_ASSERT_EQUAL(route_pinned(s, 2, 2, 95, 1, 10), KVR_SCHED_ROUTED);
	CU_ASSERT_EQUAL(arrive_at(s, 1, 1, 96, 10), KVR_SCHED_QUEUED);
	ask_tokens_of(s, 1, 96, 10);
	CU_ASSERT_DOUBLE_EQUAL(term[0].wait_tokens, 900 + 60 / 2, 1e-6);
	CU_ASSERT_DOUBLE_EQUAL(term[1].wait_tokens, 950, 1e-6);
	return s;
}

static void a_worker_that_goes_is_chosen_anew(void)
{
	struct kvr_sched *s;
	uint64_t worker;

	for (int how = 0; how < 3; how++) {
		set_defaults();
		s = one_waits_for_worker_0();
		if (how == 0)
			CU_ASSERT_EQUAL(kvr_sched_worker_gone(s, 0, at_ms(11)), 0);
		if (how == 1)
			CU_ASSERT_EQUAL(kvr_sched_worker_drain(s, 0, true, at_ms(11)), 0);
		if (how == 2)
			CU_ASSERT_EQUAL(kvr_sched_worker_available(s, 0, false, at_ms(11)), 0);
		/* The other is busy: it waits there now, with all of its tokens. */
		CU_ASSERT_EQUAL(next_admitted(s, 11, NULL), NO_SLOT);
		ask_tokens_of(s, 9, 1, 11);
		CU_ASSERT_EQUAL(terms.n, 1);
		CU_ASSERT_EQUAL(term[0].worker, 1);
		CU_ASSERT(term[0].wait_tokens > 960 / 2 + 950 - 20);
		end_prefill(s, 2, 105);
		CU_ASSERT_EQUAL(next_admitted(s, 105, &worker), 1);
		CU_ASSERT_EQUAL(worker, 1);
		end_prefill(s, 1, 200);
		if (how > 0)
			end_prefill(s, 0, 200);
		end_late_slot(s, 200);
	}
}

/* An admitted request may wait for a worker that is overloaded by then, perhaps by its own blocks.
 */
static void overload_comes_too_late(void)
{
	const struct kvr_hints first = {.present = KVR_HAS(KVR_HINT_BACKEND),
					.policy_class = KVR_SCHED_NO_CLASS,
					.strict_priority = 1};
	struct kvr_sched_req *req;
	struct kvr_sched *s;
	uint64_t worker;

	set_defaults();
	conf.prefill_tokens_threshold = 990;
	s = one_waits_for_worker_0();
	CU_ASSERT_EQUAL(route_pinned(s, 4, 4, 10, 0, 10), KVR_SCHED_QUEUED);
	req = make_prompt(3, 3, 100);
	req->hints = &first;
	CU_ASSERT_EQUAL(dispatch_all(s, req, 3, 10), KVR_SCHED_QUEUED);
	end_prefill(s, 0, 100);
	CU_ASSERT_EQUAL(next_admitted(s, 100, &worker), 3);
	CU_ASSERT_EQUAL(worker, 0);
	CU_ASSERT_EQUAL(route_pinned(s, 5, 6, 1, 0, 100), KVR_SCHED_ERROR);
	CU_ASSERT_EQUAL(next_admitted(s, 1009, NULL), NO_SLOT);
	CU_ASSERT_EQUAL(next_admitted(s, 1010, &worker), 1);
	CU_ASSERT_EQUAL(worker, 0);
	CU_ASSERT_EQUAL(next_admitted(s, 1010, &worker), 4);
	CU_ASSERT_EQUAL(worker, 0);
	for (uint32_t i = 1; i < 5; i++)
		end_prefill(s, i, 1100);
	end_late_slot(s, 1100);
}

static void limits_of_the_queue_hold(void)
{
	struct kvr_sched_decision d;
	struct kvr_sched *s;

	set_defaults();
	conf.n_classes = 1;
	kvr_pool_class_init(&conf.classes[0], "one");
	conf.classes[0].max_requests = 1;
	s = make_late_sched(1);
	CU_ASSERT_EQUAL(arrive_at(s, 0, 1, 10, 10), KVR_SCHED_ROUTED);
	CU_ASSERT_EQUAL(arrive_at(s, 1, 2, 10, 10), KVR_SCHED_QUEUED);
	CU_ASSERT_EQUAL(kvr_sched_route(s, 2, make_prompt(2, 3, 10), NULL, at_ms(10), &d),
			KVR_SCHED_ERROR);
	CU_ASSERT_EQUAL(d.err, KVR_E_QUEUE_REJECTED);
	CU_ASSERT_EQUAL(d.reject.current, 1);
	CU_ASSERT_EQUAL(d.rank, KVR_SCHED_NO_RANK);
	ask_tokens_of(s, 9, 1, 10);
	CU_ASSERT_EQUAL(term[0].wait_tokens, 100 + 100 / 2 + 10 / 2);
	end_prefill(s, 0, 20);
	CU_ASSERT_EQUAL(next_admitted(s, 20, NULL), 1);
	end_prefill(s, 1, 30);
	end_late_slot(s, 30);
}

/* With a threshold of the class, which makes requests wait for any worker. */
static void a_busy_threshold_comes_first(void)
{
	struct kvr_sched *s;
	uint64_t worker;

	set_defaults();
	conf.n_classes = 1;
	kvr_pool_class_init(&conf.classes[0], "one");
	conf.classes[0].busy_threshold = 80;
	s = make_late_sched(2);
	CU_ASSERT_EQUAL(route_pinned(s, 0, 1, 20, 0, 10), KVR_SCHED_ROUTED);
	CU_ASSERT_EQUAL(route_pinned(s, 1, 2, 10, 1, 10), KVR_SCHED_ROUTED);
	CU_ASSERT_EQUAL(arrive_at(s, 2, 1, 28, 10), KVR_SCHED_QUEUED);
	ask_tokens_of(s, 9, 1, 10);
	CU_ASSERT_EQUAL(term[0].wait_tokens + term[1].wait_tokens, 300); /* without a rank yet */
	/* Worker 1 is below the threshold; worker 0, which the request chooses, is busy. */
	end_prefill(s, 1, 20);
	CU_ASSERT_EQUAL(next_admitted(s, 20, NULL), NO_SLOT);
	ask_tokens_of(s, 9, 1, 20);
	CU_ASSERT_DOUBLE_EQUAL(term[0].wait_tokens, 100 + 80 / 2 + 10 / 2, 1e-6);
	end_prefill(s, 0, 30);
	CU_ASSERT_EQUAL(next_admitted(s, 30, &worker), 2);
	CU_ASSERT_EQUAL(worker, 0);
	end_prefill(s, 2, 40);
	end_late_slot(s, 40);
}

static void what_computes_nothing_never_waits(void)
{
	const struct kvr_hints h = {.overrides.given = 1u << KVR_OVERRIDE_TRACK_PREFILL_TOKENS};
	struct kvr_sched_req *req;
	struct kvr_sched *s;

	set_defaults();
	conf.role = KVR_ROLE_DECODE;
	s = make_late_sched(1);
	CU_ASSERT_EQUAL(arrive_at(s, 0, 1, 90, 10), KVR_SCHED_ROUTED);
	req = make_prompt(1, 2, 90);
	req->hints = &h;
	CU_ASSERT_EQUAL(dispatch_all(s, req, 1, 10), KVR_SCHED_ROUTED);
	CU_ASSERT_EQUAL(arrive_at(s, 2, 3, 90, 10), KVR_SCHED_QUEUED);
	ask_tokens_of(s, 4, 90, 10);
	end_prefill(s, 0, 100);
	CU_ASSERT_EQUAL(next_admitted(s, 100, NULL), 2);
	end_prefill(s, 1, 190);
	end_prefill(s, 2, 190);
	end_late_slot(s, 190);
}

/* In a prefill pool there is no decode; legs wait like requests. */
static void prefill_legs_wait(void)
{
	struct kvr_sched *s;

	set_defaults();
	conf.role = KVR_ROLE_PREFILL;
	s = make_late_sched(1);
	CU_ASSERT_EQUAL(arrive_at(s, 0, 1, 10, 10), KVR_SCHED_ROUTED);
	CU_ASSERT_EQUAL(arrive_at(s, 1, 2, 20, 10), KVR_SCHED_QUEUED);
	CU_ASSERT_EQUAL(arrive_at(s, 2, 3, 10, 10), KVR_SCHED_QUEUED);
	end_prefill(s, 0, 20);
	CU_ASSERT_EQUAL(next_admitted(s, 20, NULL), 2);
	end_prefill(s, 2, 30);
	CU_ASSERT_EQUAL(next_admitted(s, 30, NULL), 1);
	end_prefill(s, 1, 50);
	end_late_slot(s, 50);
}

/* Calls end, however many could go: each gives at most as many as it is asked for. */
static void a_call_is_bounded(void)
{
	struct kvr_sched_decision d[8];
	struct kvr_sched *s;
	uint32_t got;

	set_defaults();
	s = make_late_sched(2);
	CU_ASSERT_EQUAL(route_pinned(s, 0, 1, 90, 0, 10), KVR_SCHED_ROUTED);
	CU_ASSERT_EQUAL(route_pinned(s, 1, 2, 90, 1, 10), KVR_SCHED_ROUTED);
	for (uint32_t i = 2; i < 50; i++)
		CU_ASSERT_EQUAL(route_pinned(s, i, i, 90, 0, 10), KVR_SCHED_QUEUED);
	/* All were for worker 0. */
	for (uint32_t i = 2; i < 50; i++)
		CU_ASSERT(kvr_sched_cancel(s, i, at_ms(10)));
	for (uint32_t i = 2; i < 50; i++)
		CU_ASSERT_EQUAL(arrive_at(s, i, 1, 91, 10), KVR_SCHED_QUEUED);
	CU_ASSERT_EQUAL(kvr_sched_worker_gone(s, 0, at_ms(11)), 0);
	/* 8 of them wait for worker 1 now; the others are due at once. */
	CU_ASSERT_EQUAL(kvr_sched_poll(s, at_ms(11), d, 8), 0);
	ask_tokens_of(s, 9, 1, 11);
	CU_ASSERT_DOUBLE_EQUAL(term[0].wait_tokens, 890 + 910 / 2 + 8 * 10 / 2, 1e-6);
	CU_ASSERT(kvr_sched_next_timer(s) <= at_ms(11));
	for (uint32_t i = 1; i < 6; i++)
		CU_ASSERT_EQUAL(kvr_sched_poll(s, at_ms(11), d, 8), 0);
	CU_ASSERT(kvr_sched_next_timer(s) <= at_ms(11)); /* to see that no request is left */
	CU_ASSERT_EQUAL(kvr_sched_poll(s, at_ms(11), d, 8), 0);
	CU_ASSERT(kvr_sched_next_timer(s) > at_ms(11));
	CU_ASSERT_EQUAL(kvr_sched_moves(s), 48);
	got = kvr_sched_poll(s, at_ms(1010), d, 8);
	CU_ASSERT_EQUAL(got, 8);
	for (uint32_t left = 40; left > 0; left -= got) {
		got = kvr_sched_poll(s, at_ms(1011), d, 8);
		CU_ASSERT_FATAL(got == 8);
	}
	for (uint32_t i = 1; i < 50; i++)
		end_prefill(s, i, 1100);
	end_late_slot(s, 1100);
}

/* Off, nothing waits; and it is an option of this mode only. */
static void it_is_an_option(void)
{
	char err[128];
	struct kvr_sched *s;

	set_defaults();
	conf.ttft_late_binding = false;
	s = make_late_sched(1);
	for (uint32_t i = 0; i < 8; i++)
		CU_ASSERT_EQUAL(arrive_at(s, i, i, 90, 10), KVR_SCHED_ROUTED);
	kvr_sched_destroy(s);
	CU_ASSERT_EQUAL(kvr_pool_conf_check(&conf, err, sizeof(err)), 0);
	conf.ttft_late_binding = true;
	CU_ASSERT_EQUAL(kvr_pool_conf_check(&conf, err, sizeof(err)), 0);
	conf.mode = KVR_MODE_KV;
	CU_ASSERT(kvr_pool_conf_check(&conf, err, sizeof(err)) != 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(err, "ttft_late_binding"));
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(shortest_first_and_who_waits_gets_shorter),
			       KVR_CASE(priorities_count),
			       KVR_CASE(nearly_idle_is_a_matter_of_time),
			       KVR_CASE(no_request_waits_longer_than_the_bound),
			       KVR_CASE(a_rank_is_as_busy_as_one_is_long),
			       KVR_CASE(what_waits_counts_as_what_is_booked),
			       KVR_CASE(a_newcomer_waits_behind_who_waits),
			       KVR_CASE(whatever_ends_a_wait_leaves_nothing),
			       KVR_CASE(a_pin_waits_for_its_worker),
			       KVR_CASE(a_worker_that_goes_is_chosen_anew),
			       KVR_CASE(overload_comes_too_late),
			       KVR_CASE(limits_of_the_queue_hold),
			       KVR_CASE(a_busy_threshold_comes_first),
			       KVR_CASE(what_computes_nothing_never_waits),
			       KVR_CASE(prefill_legs_wait),
			       KVR_CASE(a_call_is_bounded),
			       KVR_CASE(it_is_an_option),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("late", tests);
}
