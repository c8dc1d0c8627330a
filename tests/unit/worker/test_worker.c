/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_worker.h"

#include "kvr_test.h"
#include <errno.h>

static void states_change_only_along_the_picture(void)
{
	/* rows: from, columns: to; joining serving suspect draining drained gone */
	static const char *const may[] = {".+...+", "..++.+", ".+.+.+",
					  ".+..++", ".+...+", "......"};

	for (int from = KVR_WORKER_JOINING; from <= KVR_WORKER_GONE; from++)
		for (int to = KVR_WORKER_JOINING; to <= KVR_WORKER_GONE; to++) {
			struct kvr_worker w = {.state = (enum kvr_wire_worker_state)from};
			int want = may[from - 1][to - 1] == '+' ? 0
				   : from == to			? -EALREADY
								: -EPERM;

			CU_ASSERT_EQUAL(kvr_worker_set_state(&w, (enum kvr_wire_worker_state)to, 7),
					want);
			CU_ASSERT_EQUAL((int)w.state, want == 0 ? to : from);
			CU_ASSERT_EQUAL(w.since_ns, want == 0 ? 7u : 0u);
		}
	CU_ASSERT_FALSE(kvr_worker_may_change(0, KVR_WORKER_SERVING));
	CU_ASSERT_FALSE(kvr_worker_may_change((enum kvr_wire_worker_state)99, KVR_WORKER_SERVING));
}

static void registry_refuses_twice_and_too_many(void)
{
	struct kvr_registry *r = kvr_registry_create(2, 1);
	struct kvr_worker *a, *b;

	CU_ASSERT_PTR_NOT_NULL_FATAL(r);
	a = kvr_registry_add(r, 10, 5);
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_EQUAL(a->state, KVR_WORKER_JOINING);
	CU_ASSERT_PTR_NULL(kvr_registry_add(r, 10, 5));
	CU_ASSERT_EQUAL(errno, EEXIST);
	b = kvr_registry_add(r, 11, 5);
	CU_ASSERT_PTR_NOT_NULL_FATAL(b);
	CU_ASSERT_PTR_NULL(kvr_registry_add(r, 12, 5));
	CU_ASSERT_EQUAL(errno, ENOSPC);
	kvr_registry_del(r, a);
	CU_ASSERT_PTR_NULL(kvr_registry_find(r, 10));
	CU_ASSERT_PTR_EQUAL(kvr_registry_find(r, 11), b);
	CU_ASSERT_PTR_EQUAL(kvr_registry_at(r, 0), b);
	CU_ASSERT_PTR_NOT_NULL(kvr_registry_add(r, 12, 5));
	CU_ASSERT_EQUAL(kvr_registry_count(r), 2);
	kvr_registry_destroy(r);
	CU_ASSERT_PTR_NULL(kvr_registry_create(0, 1));
	CU_ASSERT_EQUAL(errno, EINVAL);
}

static void view_finds_every_worker_and_rank_and_no_other(void)
{
	struct kvr_registry *r = kvr_registry_create(1000, 99);
	struct kvr_view *v;

	for (uint64_t i = 0; i < 1000; i++) {
		struct kvr_worker *w = kvr_registry_add(r, i << 32 | i, 0);

		CU_ASSERT_PTR_NOT_NULL_FATAL(w);
		w->dp_start = (uint32_t)i % 5;
		w->dp_size = 1 + (uint32_t)i % 3;
		w->pool = (uint32_t)i % 2;
		w->role = i % 2 ? KVR_ROLE_PREFILL : KVR_ROLE_DECODE;
		w->transfer.port = (uint16_t)i;
		for (uint32_t k = 0; k < w->dp_size; k++)
			w->rank[k] = (uint32_t)i * 4 + k;
	}
	v = kvr_view_build(r);
	CU_ASSERT_PTR_NOT_NULL_FATAL(v);
	for (uint64_t i = 0; i < 1000; i++) {
		const struct kvr_view_worker *w = kvr_view_find(v, i << 32 | i);

		CU_ASSERT_PTR_NOT_NULL_FATAL(w);
		CU_ASSERT_EQUAL(w->pool, i % 2);
		CU_ASSERT_EQUAL(w->transfer != NULL, i % 2);
		CU_ASSERT(w->transfer == NULL || w->transfer->port == i);
		for (uint32_t k = 0; k < w->dp_size; k++)
			CU_ASSERT_EQUAL(kvr_view_rank(v, w, w->dp_start + k), i * 4 + k);
		CU_ASSERT_EQUAL(kvr_view_rank(v, w, w->dp_start + w->dp_size), KVR_RANK_NONE);
		CU_ASSERT_EQUAL(kvr_view_rank(v, w, w->dp_start - 1), KVR_RANK_NONE);
		CU_ASSERT_PTR_NULL(kvr_view_find(v, (i << 32 | i) + 1));
	}
	kvr_view_free(v);
	kvr_registry_destroy(r);
}

static void only_a_worker_that_leaves_in_order_is_no_loss(void)
{
	struct kvr_worker w = {.bookings = 0};

	CU_ASSERT_FALSE(kvr_worker_is_loss(&w, KVR_WORKER_DRAINED, KVR_WORKER_GONE, false));
	CU_ASSERT_FALSE(kvr_worker_is_loss(&w, KVR_WORKER_DRAINING, KVR_WORKER_GONE, false));
	CU_ASSERT_TRUE(kvr_worker_is_loss(&w, KVR_WORKER_DRAINED, KVR_WORKER_GONE, true));
	CU_ASSERT_TRUE(kvr_worker_is_loss(&w, KVR_WORKER_SERVING, KVR_WORKER_GONE, false));
	CU_ASSERT_TRUE(kvr_worker_is_loss(&w, KVR_WORKER_SUSPECT, KVR_WORKER_GONE, true));
	CU_ASSERT_TRUE(kvr_worker_is_loss(&w, KVR_WORKER_SERVING, KVR_WORKER_SUSPECT, true));
	CU_ASSERT_FALSE(kvr_worker_is_loss(&w, KVR_WORKER_SUSPECT, KVR_WORKER_SERVING, false));
	CU_ASSERT_FALSE(kvr_worker_is_loss(&w, KVR_WORKER_DRAINING, KVR_WORKER_DRAINED, false));
	w.bookings = 1;
	CU_ASSERT_TRUE(kvr_worker_is_loss(&w, KVR_WORKER_DRAINING, KVR_WORKER_GONE, false));
}

static struct kvr_path way(uint16_t udp_port, uint16_t vlan, uint8_t mac)
{
	return (struct kvr_path){.ip = {[10] = 0xff, 0xff, 10, 0, 0, 2},
				 .udp_port = udp_port,
				 .vlan = vlan,
				 .family = 4,
				 .mac = {2, 0, 0, 0, 0, mac}};
}

static bool beats(struct kvr_worker *w, struct kvr_path from)
{
	atomic_store(&w->beat->hop, kvr_beat_hop(&from));
	return kvr_worker_adopt_hop(w);
}

static void a_next_hop_is_taken_from_beats_of_the_same_path(void)
{
	struct kvr_registry *r = kvr_registry_create(2, 1);
	struct kvr_worker *w = kvr_registry_add(r, 10, 5);
	struct kvr_view *v;

	CU_ASSERT_PTR_NOT_NULL_FATAL(w);
	w->dp_size = 1;
	w->path = way(2000, 7, 2);
	CU_ASSERT_EQUAL_FATAL(kvr_worker_create_beat(w), 0);
	CU_ASSERT_FALSE(kvr_worker_adopt_hop(w)); /* none has come */
	CU_ASSERT_FALSE(beats(w, way(2000, 7, 2)));
	CU_ASSERT_FALSE(w->moved);
	/* Left before HELLO came from elsewhere. */
	CU_ASSERT_FALSE(beats(w, way(2001, 7, 3)));
	CU_ASSERT_FALSE(beats(w, way(2000, 0, 3)));
	CU_ASSERT_EQUAL(w->path.mac[5], 2);
	CU_ASSERT_TRUE(beats(w, way(2000, 7, 3)));
	CU_ASSERT_EQUAL(w->path.mac[5], 3);
	CU_ASSERT_TRUE(w->moved);
	CU_ASSERT_FALSE(kvr_worker_adopt_hop(w)); /* once */
	/* All bytes, in their order. */
	w->path.mac[0] = 4;
	CU_ASSERT_TRUE(beats(w, way(2000, 7, 3)));
	CU_ASSERT_EQUAL(w->path.mac[0], 2);
	CU_ASSERT_EQUAL(w->path.vlan, 7);
	v = kvr_view_build(r);
	CU_ASSERT_PTR_NOT_NULL_FATAL(v);
	CU_ASSERT_EQUAL(v->moved, 1);
	CU_ASSERT_EQUAL(kvr_view_find(v, 10)->path.mac[5], 3);
	kvr_view_free(v);
	kvr_registry_destroy(r);
}

static void empty_registry_makes_an_empty_view(void)
{
	struct kvr_registry *r = kvr_registry_create(1, 0);
	struct kvr_view *v = kvr_view_build(r);

	CU_ASSERT_PTR_NOT_NULL_FATAL(v);
	CU_ASSERT_PTR_NULL(kvr_view_find(v, 0));
	CU_ASSERT_EQUAL(v->number, 1);
	kvr_view_free(v);
	v = kvr_view_build(r);
	CU_ASSERT_PTR_NOT_NULL_FATAL(v);
	CU_ASSERT_EQUAL(v->number, 2);
	kvr_view_free(v);
	kvr_view_free(NULL);
	kvr_registry_destroy(r);
	kvr_registry_destroy(NULL);
}

/* A row of tombstones holds eight: who has been dead for longest goes first, and nobody else. */
static void the_last_epochs_of_a_bounded_number_are_remembered(void)
{
	struct kvr_registry *r = kvr_registry_create(2, 7); /* one row */

	CU_ASSERT_PTR_NOT_NULL_FATAL(r);
	for (uint64_t id = 1; id <= 100; id++) {
		struct kvr_worker *w = kvr_registry_add(r, id, 0);

		CU_ASSERT_PTR_NOT_NULL_FATAL(w);
		CU_ASSERT_EQUAL(kvr_registry_last_epoch(r, id), 0);
		w->epoch = (uint32_t)(1000 + id);
		kvr_registry_del(r, w);
		for (uint64_t k = 1; k <= id; k++)
			CU_ASSERT_EQUAL(kvr_registry_last_epoch(r, k), id - k < 8 ? 1000 + k : 0);
	}
	/* The same worker dies again in its own place: the oldest is the next one then. */
	for (uint32_t epoch = 2000; epoch < 2020; epoch++) {
		struct kvr_worker *w = kvr_registry_add(r, 93, 0);

		w->epoch = epoch;
		kvr_registry_del(r, w);
		CU_ASSERT_EQUAL(kvr_registry_last_epoch(r, 93), epoch);
	}
	for (uint64_t k = 94; k <= 100; k++)
		CU_ASSERT_EQUAL(kvr_registry_last_epoch(r, k), 1000 + k);
	for (uint64_t id = 200; id < 202; id++) {
		struct kvr_worker *w = kvr_registry_add(r, id, 0);

		w->epoch = 5;
		kvr_registry_del(r, w);
	}
	CU_ASSERT_EQUAL(kvr_registry_last_epoch(r, 94), 0);
	CU_ASSERT_EQUAL(kvr_registry_last_epoch(r, 95), 0);
	CU_ASSERT_EQUAL(kvr_registry_last_epoch(r, 96), 1096);
	CU_ASSERT_EQUAL(kvr_registry_last_epoch(r, 93), 2019);
	/* One that has never lived leaves nothing. */
	kvr_registry_del(r, kvr_registry_add(r, 300, 0));
	CU_ASSERT_EQUAL(kvr_registry_last_epoch(r, 300), 0);
	kvr_registry_destroy(r);
}

int main(void)
{
	CU_TestInfo tests[] = {{"states", states_change_only_along_the_picture},
			       {"registry", registry_refuses_twice_and_too_many},
			       {"tombstones", the_last_epochs_of_a_bounded_number_are_remembered},
			       {"view", view_finds_every_worker_and_rank_and_no_other},
			       {"loss", only_a_worker_that_leaves_in_order_is_no_loss},
			       {"next hop", a_next_hop_is_taken_from_beats_of_the_same_path},
			       {"empty", empty_registry_makes_an_empty_view},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("worker", tests);
}
