/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Long prompts in slices: two schedulers get the same events, one of them does everything at once,
 * the other a run or two at a time. They decide alike, and no call of the other costs more than its
 * slices.
 */
#include "sched_pvt.h"

#include "kvr_test.h"

#define MS    UINT64_C(1000000)
#define SLOTS 64
#define LONG  16384u /* 256 runs */
#define SLICE 2u
#define MANY  48u
#define EVENT 128u /* runs that an event may cost: short prompts are handled at once */

struct side {
	struct kvr_sched *s;
	struct kvr_sched_req req[SLOTS];
	uint64_t walked;
};

static struct side whole, part;
static uint32_t overloads; /* ranks found overloaded in both */
static uint64_t prompts[SLOTS][LONG];
static uint64_t now;
static bool strict; /* events come only when nothing is kept, as the router hands them on */
static enum { OFF, LATE, ONLY_LATE } late; /* requests wait for the rank chosen at arrival */

static uint32_t count_walked(struct side *x)
{
	const uint64_t before = x->walked;

	x->walked = kvr_sched_walked(x->s);
	return (uint32_t)(x->walked - before);
}

/* What the turns of an lcore do before the next event. */
static void settle_all(void)
{
	count_walked(&part);
	for (bool done = false; !done;) {
		done = kvr_sched_settle(part.s, SLICE);
		CU_ASSERT_FATAL(count_walked(&part) <= SLICE);
	}
	CU_ASSERT_TRUE(kvr_sched_settled(part.s));
}

static void prepare_both(const struct kvr_sched_req *req)
{
	count_walked(&part);
	for (bool done = false; !done;) {
		done = kvr_sched_prepare(part.s, req, SLICE);
		CU_ASSERT_FATAL(count_walked(&part) <= 2 * SLICE); /* it may have settled, too */
	}
}

static void check_same(const struct kvr_sched_decision *a, const struct kvr_sched_decision *b)
{
	CU_ASSERT_EQUAL_FATAL(a->result, b->result);
	CU_ASSERT_EQUAL_FATAL(a->err, b->err);
	CU_ASSERT_EQUAL_FATAL(a->slot, b->slot);
	CU_ASSERT_EQUAL_FATAL(a->rank, b->rank);
	CU_ASSERT_EQUAL_FATAL(a->potential_decode_blocks, b->potential_decode_blocks);
	CU_ASSERT_EQUAL_FATAL(a->cost, b->cost);
	CU_ASSERT_EQUAL_FATAL(a->waited_ns, b->waited_ns);
}

static void create_pair(struct side *x, uint32_t active_blocks)
{
	struct kvr_pool_conf conf;

	kvr_pool_conf_defaults(&conf);
	strcpy(conf.name, "t");
	conf.block_size = 4;
	conf.max_ranks = 64;
	conf.max_workers = 8;
	conf.max_requests = SLOTS;
	conf.max_active_blocks = active_blocks;
	conf.max_prompt_blocks = LONG;
	conf.track_output_blocks = true;
	conf.prefill_tokens_threshold = 72000;
	conf.decode_blocks_threshold = 0.3;
	conf.queue_threshold = 0.0064;
	conf.seed = 5;
	if (late) {
		conf.mode = KVR_MODE_TTFT;
		conf.ttft_late_binding = true;
		conf.ttft_late_tokens = 3000;
		conf.ttft_late_ms = 100000;
		conf.prefill_tokens_threshold = 200000;
		conf.queue_threshold = late == LATE ? 3 : NAN;
	}
	memset(x, 0, sizeof(*x));
	x->s = kvr_sched_create(&conf, NULL, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(x->s);
}

static void set_worker(uint64_t id, uint32_t ranks)
{
	const struct kvr_sched_worker w = {.id = id, .dp_size = ranks, .total_kv_blocks = 65536};

	CU_ASSERT_EQUAL(kvr_sched_worker_set(whole.s, &w, now),
			kvr_sched_worker_set(part.s, &w, now));
}

static void route_one(struct kvr_rand *r, uint32_t slot)
{
	const uint32_t n =
		kvr_rand_below(r, 3) == 0 ? kvr_rand_below(r, LONG + 1) : kvr_rand_below(r, 100);
	struct kvr_sched_req req = {.sh = prompts[slot],
				    .n = n,
				    .isl = n * 4 + 1,
				    .query_only = kvr_rand_below(r, 10) == 0};
	struct kvr_sched_decision a, b;
	struct kvr_sched_load la[64], lb[64];
	uint32_t cut = kvr_rand_below(r, LONG);

	if (kvr_sched_slot_state(whole.s, slot) != KVR_SLOT_FREE)
		return;
	while (kvr_sched_enters(part.s, prompts[slot]))
		kvr_sched_settle(part.s, SLICE);
	for (uint32_t i = 0; i < LONG; i++)
		prompts[slot][i] = i < cut ? i : i + 100000 * (1 + slot % 4);
	whole.req[slot] = part.req[slot] = req;
	if (strict)
		prepare_both(&part.req[slot]);
	if (kvr_rand_below(r, 8) == 0) {
		const uint32_t k = kvr_sched_loads(whole.s, &whole.req[slot], NULL, now, la, 64);

		CU_ASSERT_EQUAL(kvr_sched_loads(part.s, &part.req[slot], NULL, now, lb, 64), k);
		for (uint32_t i = 0; i < k; i++)
			CU_ASSERT_FATAL(
				la[i].potential_decode_blocks == lb[i].potential_decode_blocks &&
				la[i].potential_prefill_tokens == lb[i].potential_prefill_tokens);
	}
	count_walked(&part);
	kvr_sched_route(whole.s, slot, &whole.req[slot], NULL, now, &a);
	kvr_sched_route(part.s, slot, &part.req[slot], NULL, now, &b);
	if (strict) {
		CU_ASSERT_FATAL(count_walked(&part) <= EVENT);
	}
	kvr_sched_prepare_over(part.s);
	check_same(&a, &b);
}

/* A request was moved to another rank, or is being matched: there is more work now. */
static bool goes_on(struct kvr_sched *s)
{
	return kvr_sched_admits(s) || (s->pending.count > 0 && s->next_drain <= now);
}

static void admit_next(void)
{
	struct kvr_sched_decision a, b;

	for (bool got = true, gets; got;) {
		do
			got = kvr_sched_poll(whole.s, now, &a, 1) == 1;
		while (!got && goes_on(whole.s));
		do {
			if (strict)
				settle_all();
			count_walked(&part);
			gets = kvr_sched_poll(part.s, now, &b, 1) == 1;
			/* a slice of the match, or one of the booking */
			CU_ASSERT_FATAL(!strict || count_walked(&part) <= EVENT);
		} while (!gets && goes_on(part.s));
		CU_ASSERT_EQUAL_FATAL(got, gets);
		if (got)
			check_same(&a, &b);
	}
	if (strict)
		settle_all(); /* of one who only waits for another rank now */
}

static void end_slices_slot(uint32_t slot, uint32_t how)
{
	uint32_t a[8], b[8], n;

	count_walked(&part);
	if (how == 0) {
		n = kvr_sched_expire(whole.s, now, a, 2);
		CU_ASSERT_EQUAL_FATAL(kvr_sched_expire(part.s, now, b, 2), n);
		CU_ASSERT_EQUAL_FATAL(memcmp(a, b, n * sizeof(a[0])), 0);
	} else if (how == 1) {
		CU_ASSERT_EQUAL(kvr_sched_cancel(whole.s, slot, now),
				kvr_sched_cancel(part.s, slot, now));
	} else {
		CU_ASSERT_EQUAL(kvr_sched_finish(whole.s, slot, now),
				kvr_sched_finish(part.s, slot, now));
	}
	CU_ASSERT_FATAL(count_walked(&part) <= 2 * EVENT);
}

static void random_event(struct kvr_rand *r)
{
	const uint32_t slot = kvr_rand_below(r, SLOTS), n = kvr_rand_below(r, 400);
	const uint64_t id = kvr_rand_below(r, 4);

	switch (kvr_rand_below(r, 16)) {
	case 0:
		set_worker(id, 1 + kvr_rand_below(r, 3));
		break;
	case 1:
		if (kvr_rand_below(r, 4) == 0)
			CU_ASSERT_EQUAL(kvr_sched_worker_gone(whole.s, id, now),
					kvr_sched_worker_gone(part.s, id, now));
		break;
	case 2:
		kvr_sched_load_report(whole.s, id, 0, n * 20, now);
		kvr_sched_load_report(part.s, id, 0, n * 20, now);
		break;
	case 3:
	case 4:
	case 5:
	case 6:
		end_slices_slot(slot, kvr_rand_below(r, 6));
		break;
	case 7:
		CU_ASSERT_EQUAL(kvr_sched_output(whole.s, slot, n, now),
				kvr_sched_output(part.s, slot, n, now));
		break;
	case 8:
		CU_ASSERT_EQUAL(kvr_sched_prefill_done(whole.s, slot, now),
				kvr_sched_prefill_done(part.s, slot, now));
		break;
	default:
		route_one(r, slot);
	}
}

/* Nothing is left in either, and both say the same of every rank. */
static void compare_scheds(void)
{
	struct kvr_sched_rank_info a, b;

	kvr_sched__settle(part.s);
	CU_ASSERT_EQUAL_FATAL(kvr_sched_moves(part.s), kvr_sched_moves(whole.s));
	for (uint32_t rank = 0; late && rank < 64; rank++) {
		CU_ASSERT_EQUAL_FATAL(part.s->ttft.late[rank], whole.s->ttft.late[rank]);
		CU_ASSERT_EQUAL_FATAL(part.s->ttft.rest[rank], whole.s->ttft.rest[rank]);
	}
	for (uint32_t rank = 0; rank < 64; rank++) {
		const int rc = kvr_sched_rank_get(whole.s, rank, &a);

		CU_ASSERT_EQUAL_FATAL(kvr_sched_rank_get(part.s, rank, &b), rc);
		if (rc == 0) {
			CU_ASSERT_EQUAL_FATAL(a.active_requests, b.active_requests);
			CU_ASSERT_EQUAL_FATAL(a.active_blocks, b.active_blocks);
			CU_ASSERT_EQUAL_FATAL(a.active_prefill_tokens, b.active_prefill_tokens);
			CU_ASSERT_EQUAL_FATAL(a.overloaded, b.overloaded);
			overloads += a.overloaded;
			CU_ASSERT_EQUAL_FATAL(a.worker_overloaded, b.worker_overloaded);
		}
	}
	CU_ASSERT_EQUAL(memcmp(kvr_sched_counters(whole.s), kvr_sched_counters(part.s),
			       sizeof(struct kvr_sched_counters)),
			0);
	CU_ASSERT_PTR_NULL_FATAL(kvr_active_check(part.s->active));
}

static void run_life(uint32_t active_blocks, bool in_turn, uint64_t seed)
{
	const struct kvr_sched_counters *c;
	struct kvr_rand r;

	now = 1;
	overloads = 0;
	strict = in_turn;
	create_pair(&whole, active_blocks);
	create_pair(&part, active_blocks);
	kvr_sched_slices(part.s, SLICE);
	kvr_rand_init(&r, seed);
	for (uint64_t id = 0; id < 4; id++)
		set_worker(id, 2);
	for (uint32_t i = 0; i < 8000; i++) {
		now += kvr_rand_below(&r, 100) == 0 ? 90000 * MS : MS;
		random_event(&r);
		if (strict)
			settle_all();
		else
			kvr_sched_settle(part.s, kvr_rand_below(&r, 8));
		admit_next();
		if (i % 50 == 0)
			compare_scheds();
	}
	c = kvr_sched_counters(part.s);
	CU_ASSERT(c->admitted > 20 && c->expired > 3 && c->finished > 50 && c->queries > 20);
	CU_ASSERT((active_blocks < LONG * 8) == (c->unshared_blocks > 0));
	CU_ASSERT(overloads > 20);
	for (uint64_t id = 0; id < 4; id++) {
		kvr_sched_worker_gone(whole.s, id, now);
		kvr_sched_worker_gone(part.s, id, now);
	}
	admit_next();
	compare_scheds();
	CU_ASSERT_EQUAL(c->booked_now, 0);
	CU_ASSERT(!late || kvr_sched_moves(part.s) > 20);
	for (uint32_t rank = 0; rank < 64; rank++)
		CU_ASSERT_EQUAL(part.s->blocks[rank], 0);
	kvr_sched_destroy(whole.s);
	kvr_sched_destroy(part.s);
}

static void slices_between_events(void)
{
	run_life(1 << 20, true, 3);
}

/* An owner that does not wait gets the same, only not in slices. */
static void events_between_slices(void)
{
	run_life(1 << 20, false, 4);
}

static void a_full_pool(void)
{
	run_life(1 << 15, true, 5);
	run_life(1 << 15, false, 6);
}

static void late_binding(void)
{
	late = LATE;
	run_life(1 << 20, true, 7);
	run_life(1 << 20, false, 8);
	run_life(1 << 20, false, 5); /* a report of an end that is late, when others were since */
	run_life(1 << 15, true, 9);
	late = OFF;
}

/* A worker goes for whom many wait, each with a long prompt of its own: what they count for is
 * taken out, and they choose anew, a few runs and a few choices at a time. */
/* Both bind late. */
static void begin_late(void)
{
	late = ONLY_LATE;
	create_pair(&part, 1 << 20);
	create_pair(&whole, 1 << 20);
	late = OFF;
	kvr_sched_slices(part.s, SLICE);
	now = 1;
}

static void a_worker_for_whom_many_wait(void)
{
	static struct kvr_sched_req req[MANY];
	struct kvr_sched_decision d;
	uint64_t moves;

	begin_late();
	set_worker(1, 1);
	for (uint32_t i = 0; i < MANY; i++) {
		for (uint32_t k = 0; k < LONG; k++)
			prompts[i][k] = (1 + i) * UINT64_C(100000) + k;
		req[i] = (struct kvr_sched_req){.sh = prompts[i], .n = LONG, .isl = LONG * 4};
		prepare_both(&req[i]);
		count_walked(&part);
		kvr_sched_route(part.s, i, &req[i], NULL, now, &d);
		CU_ASSERT_EQUAL(d.result, i == 0 ? KVR_SCHED_ROUTED : KVR_SCHED_QUEUED);
		CU_ASSERT(count_walked(&part) <= EVENT);
		settle_all();
	}
	CU_ASSERT_EQUAL(part.s->blocks[0], MANY * LONG);
	set_worker(2, 1);
	kvr_sched_worker_available(part.s, 1, false, now);
	count_walked(&part);
	while (!kvr_sched_worker_unpin(part.s, 1, 0, 0, 16)) {
		CU_ASSERT(count_walked(&part) <= EVENT);
		settle_all();
	}
	settle_all();
	CU_ASSERT_EQUAL(part.s->blocks[0], LONG);
	moves = kvr_sched_moves(part.s);
	for (uint32_t calls = 0; kvr_sched_poll(part.s, now, &d, 1) == 1 || goes_on(part.s);) {
		CU_ASSERT(count_walked(&part) <= EVENT);
		CU_ASSERT(kvr_sched_moves(part.s) - moves <= 8);
		moves = kvr_sched_moves(part.s);
		settle_all();
		CU_ASSERT_FATAL(calls++ < 100000);
	}
	CU_ASSERT_EQUAL(kvr_sched_moves(part.s), MANY - 2); /* one went at once */
	settle_all();
	CU_ASSERT_EQUAL(part.s->blocks[1], (MANY - 1) * LONG);
	count_walked(&part);
	for (uint32_t i = 0; i < MANY; i++) {
		kvr_sched_cancel(part.s, i, now);
		CU_ASSERT(count_walked(&part) <= EVENT);
	}
	settle_all();
	CU_ASSERT_EQUAL(part.s->blocks[0] + part.s->blocks[1], 0);
	CU_ASSERT_PTR_NULL(kvr_active_check(part.s->active));
	kvr_sched_destroy(part.s);
	kvr_sched_destroy(whole.s);
}

/* Its turn is deferred halfway because a reader needs complete figures: its load is as before. */
static void deferred_at_its_turn(void)
{
	static const uint64_t to[] = {1, 1, 1, 2};
	static const uint32_t family[] = {0, 1, 2, 1}; /* what waits first is active elsewhere */
	static struct kvr_sched_req req[4];
	static struct kvr_hints h[4];
	struct kvr_sched_decision d;

	begin_late();
	set_worker(1, 1);
	set_worker(2, 1);
	for (uint32_t i = 0; i < 4; i++) {
		for (uint32_t k = 0; k < LONG; k++)
			prompts[i][k] = (1 + family[i]) * UINT64_C(100000) + k;
		h[i] = (struct kvr_hints){.present = KVR_HAS(KVR_HINT_BACKEND),
					  .backend_worker = to[i],
					  .policy_class = KVR_SCHED_NO_CLASS};
		req[i] = (struct kvr_sched_req){
			.sh = prompts[i], .n = LONG, .isl = LONG * 4, .hints = &h[i]};
		kvr_sched_route(part.s, i, &req[i], NULL, now, &d);
	}
	settle_all();
	kvr_sched_finish(part.s, 0, now);
	settle_all();
	CU_ASSERT_EQUAL(part.s->blocks[0], 2 * LONG);
	for (uint32_t k = 0; k < 3; k++) { /* as far as its drop, its match, a part of that */
		for (uint32_t i = 0; i <= k; i++) {
			CU_ASSERT_EQUAL(kvr_sched_poll(part.s, now, &d, 1), 0);
			CU_ASSERT_TRUE(kvr_sched_admits(part.s));
			settle_all();
		}
		CU_ASSERT_EQUAL(part.s->blocks[0], LONG);
		kvr_sched_admit_again(part.s);
		CU_ASSERT_FALSE(kvr_sched_admits(part.s));
		CU_ASSERT_TRUE(kvr_sched_settled(part.s));
		CU_ASSERT_EQUAL(part.s->blocks[0], 2 * LONG);
		CU_ASSERT_EQUAL(part.s->ttft.late[0], 2 * LONG * 4);
	}
	for (uint32_t calls = 0; kvr_sched_poll(part.s, now, &d, 1) == 0; calls++) {
		CU_ASSERT_FATAL(calls < 1000);
		settle_all();
	}
	CU_ASSERT_EQUAL(d.slot, 1);
	settle_all();
	CU_ASSERT_EQUAL(part.s->blocks[0], 2 * LONG);
	CU_ASSERT_EQUAL(part.s->ttft.late[0], LONG * 4);
	kvr_sched_destroy(part.s);
	kvr_sched_destroy(whole.s);
}

/* The end of a booking comes before its last slice; its hashes stay until then. */
static void ended_while_it_is_entered(void)
{
	struct kvr_sched_decision d;
	const struct kvr_sched_req req = {.sh = prompts[0], .n = LONG, .isl = LONG * 4};

	create_pair(&part, 1 << 20);
	create_pair(&whole, 1 << 20);
	kvr_sched_slices(part.s, SLICE);
	now = 1;
	set_worker(1, 1);
	for (uint32_t i = 0; i < LONG; i++)
		prompts[0][i] = 1 + i;
	CU_ASSERT_EQUAL(kvr_sched_route(part.s, 0, &req, NULL, now, &d), KVR_SCHED_ROUTED);
	CU_ASSERT_FALSE(kvr_sched_settled(part.s));
	CU_ASSERT_TRUE(kvr_sched_enters(part.s, prompts[0]));
	CU_ASSERT_FALSE(kvr_sched_enters(part.s, prompts[1]));
	CU_ASSERT_TRUE(kvr_sched_finish(part.s, 0, now));
	CU_ASSERT_FALSE(kvr_sched_finish(part.s, 0, now));
	CU_ASSERT_TRUE(kvr_sched_enters(part.s, prompts[0]));
	settle_all();
	CU_ASSERT_FALSE(kvr_sched_enters(part.s, prompts[0]));
	CU_ASSERT_EQUAL(part.s->blocks[d.rank], 0);
	CU_ASSERT_PTR_NULL(kvr_active_check(part.s->active));
	kvr_sched_destroy(part.s);
	kvr_sched_destroy(whole.s);
}

/* A deferred report is dropped if the rank has a new owner by then. */
static void another_workers_rank(void)
{
	const struct kvr_sched_req req = {.sh = prompts[0], .n = LONG, .isl = LONG * 4};
	struct kvr_sched_decision d;

	create_pair(&part, 1 << 20);
	create_pair(&whole, 1 << 20);
	kvr_sched_slices(part.s, SLICE);
	now = 1;
	set_worker(1, 1);
	for (uint32_t i = 0; i < LONG; i++)
		prompts[0][i] = 1 + i;
	CU_ASSERT_EQUAL(kvr_sched_route(part.s, 0, &req, NULL, now, &d), KVR_SCHED_ROUTED);
	settle_all();
	CU_ASSERT_TRUE(part.s->rank[d.rank].reported);
	CU_ASSERT_EQUAL(kvr_sched_worker_gone(part.s, 1, now), 0);
	CU_ASSERT_FALSE(kvr_sched_settled(part.s));
	set_worker(2, 1);
	CU_ASSERT_EQUAL(kvr_sched_rank_find(part.s, 2, 0), d.rank);
	settle_all();
	CU_ASSERT_FALSE(part.s->rank[d.rank].reported);
	CU_ASSERT_EQUAL(part.s->blocks[d.rank], 0);
	kvr_sched_destroy(part.s);
	kvr_sched_destroy(whole.s);
}

/* It leaves while its prompt is matched, and its slot is another's at once. */
static void cancelled_at_its_turn(void)
{
	const struct kvr_sched_req busy = {.isl = 6000},
				   req = {.sh = prompts[1], .n = LONG, .isl = LONG * 4};
	struct kvr_sched_decision d;

	create_pair(&part, 1 << 20);
	create_pair(&whole, 1 << 20);
	kvr_sched_slices(part.s, SLICE);
	now = 1;
	set_worker(1, 1);
	for (uint32_t i = 0; i < LONG; i++)
		prompts[1][i] = 1 + i;
	CU_ASSERT_EQUAL(kvr_sched_route(part.s, 2, &req, NULL, now, &d), KVR_SCHED_ROUTED);
	settle_all();
	CU_ASSERT_EQUAL(kvr_sched_route(part.s, 0, &busy, NULL, now, &d), KVR_SCHED_QUEUED);
	CU_ASSERT_EQUAL(kvr_sched_route(part.s, 1, &req, NULL, now, &d), KVR_SCHED_QUEUED);
	CU_ASSERT_TRUE(kvr_sched_cancel(part.s, 0, now));
	CU_ASSERT_TRUE(kvr_sched_prefill_done(part.s, 2, now));
	CU_ASSERT_EQUAL(kvr_sched_poll(part.s, now, &d, 1), 0);
	CU_ASSERT_TRUE(kvr_sched_admits(part.s));
	CU_ASSERT_TRUE(kvr_sched_cancel(part.s, 1, now));
	CU_ASSERT_FALSE(kvr_sched_admits(part.s));
	CU_ASSERT_EQUAL(kvr_sched_poll(part.s, now, &d, 1), 0);
	CU_ASSERT_EQUAL(kvr_sched_route(part.s, 1, &busy, NULL, now, &d), KVR_SCHED_ROUTED);
	kvr_sched_destroy(part.s);
	kvr_sched_destroy(whole.s);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(slices_between_events),
			       KVR_CASE(events_between_slices),
			       KVR_CASE(a_full_pool),
			       KVR_CASE(late_binding),
			       KVR_CASE(a_worker_for_whom_many_wait),
			       KVR_CASE(deferred_at_its_turn),
			       KVR_CASE(cancelled_at_its_turn),
			       KVR_CASE(another_workers_rank),
			       KVR_CASE(ended_while_it_is_entered),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("slices", tests);
}
