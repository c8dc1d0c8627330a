/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * KV events in bursts: the event stage applies short events of a frame together, and the result
 * must equal that of one event after the other. Random frames go through the router, and the same
 * events go one by one into a table of the test with the same sizes and seed. After every frame all
 * scores and counters must be equal.
 */
#include "kv.h"
#include "kvr_test.h"

#include <rte_rcu_qsbr.h>

#define WORKER	 7u
#define CHAINS	 8u
#define LONGEST	 200u /* blocks of a chain */
#define MOST_EV	 60u  /* events of a frame */
#define ROOM	 (KVR_WIRE_DEF_FRAME - 64u)
#define REPEATS	 1000u
#define TURNS	 40u /* enough to apply all of several frames */
#define FRAMES	 250u
#define TOGETHER 20u /* frames; more than the stage prefetches */

static uint64_t chain[CHAINS][LONGEST];
static struct kvr_prefix *one; /* the table of the test */
static struct rte_rcu_qsbr *qsbr_alone;
static struct kvr_rand rnd;
static uint64_t stored, removed, clears; /* expected counters of the stage */
static uint32_t short_runs;		 /* two short events in a row form a burst */

static uint32_t draw_event_below(uint32_t n)
{
	return kvr_rand_below(&rnd, n);
}

static void start_tables(uint64_t seed)
{
	const struct pool *p;
	struct kvr_prefix_conf c = {.name = "reference", .socket_id = SOCKET_ID_ANY};

	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(
		pipeline_hello_as(&(const struct pipeline_worker){.id = WORKER,
								  .epoch = 1,
								  .pool = "a",
								  .ranks = 1,
								  .from = PEER_AGENT,
								  .kv_blocks = 60000}));
	p = &rt->pool[0];
	qsbr_alone = aligned_alloc(64, rte_rcu_qsbr_get_memsize(1));
	CU_ASSERT_EQUAL_FATAL(rte_rcu_qsbr_init(qsbr_alone, 1), 0);
	c.qsbr = qsbr_alone;
	c.max_ranks = p->max_ranks;
	c.max_blocks = 65536;
	c.seed = seed;
	one = kvr_prefix_create(&c);
	CU_ASSERT_FATAL(one != NULL);
	kvr_rand_init(&rnd, seed);
	for (uint32_t i = 0; i < CHAINS; i++)
		kv_chain(chain[i], LONGEST, seed * CHAINS + i);
	stored = removed = clears = 0;
}

static void stop_tables(void)
{
	CU_ASSERT_TRUE(pipeline_balanced());
	kvr_prefix_destroy(one);
	free(qsbr_alone);
	pipeline_stop();
}

/* ---- one event ---- */

struct event {
	uint8_t type, tier;
	bool has_parent;
	uint32_t n;
	uint64_t parent;
	uint64_t sh[LONGEST];
};

static uint32_t draw_length(void)
{
	switch (draw_event_below(8)) {
	case 0:
		return 16; /* the longest short event */
	case 1:
		return 17;
	case 2:
		return 1 + draw_event_below(150);
	default:
		return 1 + draw_event_below(6);
	}
}

static void draw_event(struct event *e)
{
	const uint64_t *c = chain[draw_event_below(CHAINS)];
	const uint32_t off = draw_event_below(3) == 0 ? 0 : draw_event_below(LONGEST - 1);

	memset(e, 0, sizeof(*e));
	e->tier = (uint8_t)(draw_event_below(4) == 0 ? KVR_TIER_HOST : KVR_TIER_DEVICE);
	if (draw_event_below(60) == 0) {
		e->type = KVR_KV_CLEARED;
		e->tier = 0;
		return;
	}
	e->type = draw_event_below(5) < 3 ? KVR_KV_STORED : KVR_KV_REMOVED;
	e->n = RTE_MIN(draw_length(), LONGEST - off);
	memcpy(e->sh, c + off, e->n * sizeof(*c));
	if (e->type == KVR_KV_STORED) {
		/* Longer ones become orphans piece by piece. */
		e->has_parent = off > 0 && e->n <= 16 && draw_event_below(8) != 0;
		e->parent = !e->has_parent		? 0
			    : draw_event_below(16) == 0 ? draw_event_below(9) + 1
							: c[off - 1];
	} else if (draw_event_below(4) == 0) { /* of several chains, the last part first */
		for (uint32_t i = 0; i < e->n; i++)
			e->sh[e->n - 1 - i] =
				chain[draw_event_below(CHAINS)][draw_event_below(LONGEST)];
	}
}

static void apply_alone(const struct event *e)
{
	switch (e->type) {
	case KVR_KV_CLEARED:
		kvr_prefix_clear_rank(one, 0);
		while (!kvr_prefix_ready(one, 0))
			kvr_prefix_maintain(one, 0);
		clears++;
		break;
	case KVR_KV_STORED:
		kvr_prefix_store(one, 0, (enum kvr_tier)e->tier, e->has_parent ? &e->parent : NULL,
				 e->sh, e->n);
		stored += e->n;
		break;
	default:
		kvr_prefix_remove(one, 0, (enum kvr_tier)e->tier, e->sh, e->n);
		removed += e->n;
		break;
	}
}

/* ---- a frame ---- */

static void put_event(struct kv_frame *f, const struct event *e)
{
	struct kvr_wire_kv_event *ev = (void *)(f->buf + f->len);

	kv_add(f, e->type, e->has_parent ? &e->parent : NULL, e->sh, e->n);
	ev->tier = e->tier;
}

/* Like an agent: retransmitted until everything is acknowledged. */
static void deliver_frame(struct kv_frame *f, uint64_t end)
{
	struct kvr_wire_kv_ack a;

	for (uint32_t i = 0; i < REPEATS; i++) {
		kv_send(f, WORKER, 1);
		pipeline_turn();
		a = kv_acked();
		if (a.next_event_id == end)
			return;
		CU_ASSERT_FATAL(a.code == KVR_KV_BUSY); /* the rank is being emptied */
	}
	CU_FAIL_FATAL("never acknowledged");
}

/* @with_clears: include events that clear the rank. @return number of events. */
static uint64_t fill_frame(struct kv_frame *f, uint64_t first, bool with_clears)
{
	const uint32_t most = 1 + draw_event_below(MOST_EV);
	bool was_short = false;
	struct event e;
	uint64_t n = 0;

	kv_begin(f, first);
	for (; n < most; n++) {
		do
			draw_event(&e);
		while (!with_clears && e.type == KVR_KV_CLEARED);
		if (f->len + sizeof(struct kvr_wire_kv_event) + e.n * 8 > ROOM)
			break;
		put_event(f, &e);
		apply_alone(&e);
		short_runs += was_short && e.n <= 16 && e.n > 0;
		was_short = e.n <= 16 && e.n > 0;
	}
	return n;
}

static uint64_t apply_frame(uint64_t first)
{
	struct kv_frame f;
	const uint64_t n = fill_frame(&f, first, true);

	if (n > 0)
		deliver_frame(&f, first + n);
	return n;
}

/*
 * Frames that arrive together: the event stage prefetches waiting frames before it applies the
 * first. Each is acknowledged separately.
 */
static uint64_t apply_frames(uint64_t first)
{
	const struct pool *p = &rt->pool[0];
	uint64_t end[TOGETHER], n = 0;
	uint32_t k = 1 + draw_event_below(TOGETHER);
	struct kv_frame f;

	for (uint32_t i = 0; i < k; i++) {
		do
			end[i] = fill_frame(&f, first + n, false);
		while (end[i] == 0);
		end[i] = first + (n += end[i]);
		kv_send(&f, WORKER, 1);
	}
	for (uint32_t i = 0; i < TURNS; i++)
		pipeline_turn();
	for (uint32_t i = 0; i < k; i++) {
		const struct kvr_wire_kv_ack a = kv_acked();

		CU_ASSERT_EQUAL(a.code, KVR_KV_OK);
		CU_ASSERT_EQUAL(a.next_event_id, end[i]);
	}
	CU_ASSERT_EQUAL(rte_ring_count(p->events), 0);
	CU_ASSERT_EQUAL(p->event.fetched, 0);
	return n;
}

/* ---- comparison of the tables ---- */

static void compare_scores(struct kvr_overlap *a, struct kvr_overlap *b)
{
	for (uint32_t i = 0; i < CHAINS; i++) {
		const struct kvr_prefix_query qa = {chain[i], LONGEST, a},
					      qb = {chain[i], LONGEST, b};

		kvr_prefix_score_burst(rt->pool[0].prefix, &qa, 1);
		kvr_prefix_score_burst(one, &qb, 1);
		CU_ASSERT_EQUAL(a->max_device, b->max_device);
		CU_ASSERT_EQUAL(a->flags, b->flags);
		for (uint32_t t = 0; t < KVR_TIERS; t++)
			if ((a->flags & b->flags & 1u << t) != 0 || t == KVR_TIER_DEVICE)
				CU_ASSERT_EQUAL(a->nranks == 0 ? 0 : kvr_overlap_tier(a, t)[0],
						b->nranks == 0 ? 0 : kvr_overlap_tier(b, t)[0]);
	}
}

static void compare_counters(void)
{
	const struct kvr_prefix_stats a = kv_table();
	struct kvr_prefix_stats b;

	kvr_prefix_stats_get(one, &b);
	CU_ASSERT_EQUAL(a.blocks, b.blocks);
	CU_ASSERT_EQUAL(a.entries, b.entries);
	CU_ASSERT_EQUAL(a.stored, b.stored);
	CU_ASSERT_EQUAL(a.removed, b.removed);
	CU_ASSERT_EQUAL(a.cleared, b.cleared);
	CU_ASSERT_EQUAL(a.duplicates, b.duplicates);
	CU_ASSERT_EQUAL(a.orphans, b.orphans);
	CU_ASSERT_EQUAL(a.unknown_removes, b.unknown_removes);
	CU_ASSERT_EQUAL(a.dropped + b.dropped + a.evicted_entries + b.evicted_entries, 0);
	for (uint32_t t = 0; t < KVR_TIERS; t++)
		CU_ASSERT_EQUAL(kvr_prefix_rank_blocks(rt->pool[0].prefix, 0, t),
				kvr_prefix_rank_blocks(one, 0, t));
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].event_count, EC_STORED_BLOCKS), stored);
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].event_count, EC_REMOVED_BLOCKS), removed);
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].event_count, EC_CLEARS), clears);
}

static void compare_random_frames(uint64_t (*say)(uint64_t first))
{
	const size_t bytes = kvr_overlap_size(64);
	struct kvr_overlap *a = aligned_alloc(64, bytes), *b = aligned_alloc(64, bytes);

	short_runs = 0;
	for (uint64_t seed = 1; seed <= 3; seed++) {
		uint64_t next = 0, held = 0;

		start_tables(seed);
		for (uint32_t i = 0; i < FRAMES; i++) {
			const unsigned int bad = CU_get_number_of_failures();

			next += say(next);
			kvr_prefix_maintain(one, 0);
			while (kv_table().clearing > 0)
				pipeline_turn();
			compare_scores(a, b);
			compare_counters();
			held += kv_table().entries > 0;
			if (CU_get_number_of_failures() != bad) {
				printf("seed %lu frame %u\n", seed, i);
				break;
			}
		}
		CU_ASSERT_TRUE(held > FRAMES / 2); /* otherwise nothing has been compared */
		stop_tables();
	}
	CU_ASSERT_TRUE(short_runs > 1000);
	free(a);
	free(b);
}

static void events_of_one_frame_equal_single_events(void)
{
	compare_random_frames(apply_frame);
}

static void events_of_waiting_frames_equal_single_events(void)
{
	compare_random_frames(apply_frames);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(events_of_one_frame_equal_single_events),
			       KVR_CASE(events_of_waiting_frames_equal_single_events),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("event bursts", tests);
}
