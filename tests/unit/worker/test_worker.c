/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_worker.h"

#include "kvr_test.h"
#include <errno.h>

static void states_change_only_as_allowed(void)
{
	/* rows: from, columns: to; joining serving suspect draining drained gone */
	static const char *const may[] = {".+...+", "..++.+", ".+.+.+",
					  ".+..++", ".+...+", "......"};

	for (int from = KVR_WORKER_JOINING; from <= KVR_WORKER_GONE; from++)
		for (int to = KVR_WORKER_JOINING; to <= KVR_WORKER_GONE; to++) {
			struct kvr_worker worker = {.state = (enum kvr_wire_worker_state)from};
			int want = may[from - 1][to - 1] == '+' ? 0
				   : from == to			? -EALREADY
								: -EPERM;

			CU_ASSERT_EQUAL(
				kvr_worker_set_state(&worker, (enum kvr_wire_worker_state)to, 7),
				want);
			CU_ASSERT_EQUAL((int)worker.state, want == 0 ? to : from);
			CU_ASSERT_EQUAL(worker.since_ns, want == 0 ? 7u : 0u);
		}
	CU_ASSERT_FALSE(kvr_worker_may_change(0, KVR_WORKER_SERVING));
	CU_ASSERT_FALSE(kvr_worker_may_change((enum kvr_wire_worker_state)99, KVR_WORKER_SERVING));
}

static void the_registry_rejects_duplicates_and_overflow(void)
{
	struct kvr_registry *registry = kvr_registry_create(2, 1);
	struct kvr_worker *worker, *b;

	CU_ASSERT_PTR_NOT_NULL_FATAL(registry);
	worker = kvr_registry_add(registry, 10, 5);
	CU_ASSERT_PTR_NOT_NULL_FATAL(worker);
	CU_ASSERT_EQUAL(worker->state, KVR_WORKER_JOINING);
	CU_ASSERT_PTR_NULL(kvr_registry_add(registry, 10, 5));
	CU_ASSERT_EQUAL(errno, EEXIST);
	b = kvr_registry_add(registry, 11, 5);
	CU_ASSERT_PTR_NOT_NULL_FATAL(b);
	CU_ASSERT_PTR_NULL(kvr_registry_add(registry, 12, 5));
	CU_ASSERT_EQUAL(errno, ENOSPC);
	kvr_registry_del(registry, worker);
	CU_ASSERT_PTR_NULL(kvr_registry_find(registry, 10));
	CU_ASSERT_PTR_EQUAL(kvr_registry_find(registry, 11), b);
	CU_ASSERT_PTR_EQUAL(kvr_registry_at(registry, 0), b);
	CU_ASSERT_PTR_NOT_NULL(kvr_registry_add(registry, 12, 5));
	CU_ASSERT_EQUAL(kvr_registry_count(registry), 2);
	kvr_registry_destroy(registry);
	CU_ASSERT_PTR_NULL(kvr_registry_create(0, 1));
	CU_ASSERT_EQUAL(errno, EINVAL);
}

static void a_view_finds_exactly_its_workers_and_ranks(void)
{
	struct kvr_registry *registry = kvr_registry_create(1000, 99);
	struct kvr_view *view;

	for (uint64_t i = 0; i < 1000; i++) {
		struct kvr_worker *w = kvr_registry_add(registry, i << 32 | i, 0);

		CU_ASSERT_PTR_NOT_NULL_FATAL(w);
		w->dp_start = (uint32_t)i % 5;
		w->dp_size = 1 + (uint32_t)i % 3;
		w->pool = (uint32_t)i % 2;
		w->role = i % 2 ? KVR_ROLE_PREFILL : KVR_ROLE_DECODE;
		w->transfer.port = (uint16_t)i;
		for (uint32_t k = 0; k < w->dp_size; k++)
			w->rank[k] = (uint32_t)i * 4 + k;
	}
	view = kvr_view_build(registry);
	CU_ASSERT_PTR_NOT_NULL_FATAL(view);
	for (uint64_t i = 0; i < 1000; i++) {
		const struct kvr_view_worker *w = kvr_view_find(view, i << 32 | i);

		CU_ASSERT_PTR_NOT_NULL_FATAL(w);
		CU_ASSERT_EQUAL(w->pool, i % 2);
		CU_ASSERT_EQUAL(w->transfer != NULL, i % 2);
		CU_ASSERT(w->transfer == NULL || w->transfer->port == i);
		for (uint32_t k = 0; k < w->dp_size; k++)
			CU_ASSERT_EQUAL(kvr_view_rank(view, w, w->dp_start + k), i * 4 + k);
		CU_ASSERT_EQUAL(kvr_view_rank(view, w, w->dp_start + w->dp_size), KVR_RANK_NONE);
		CU_ASSERT_EQUAL(kvr_view_rank(view, w, w->dp_start - 1), KVR_RANK_NONE);
		CU_ASSERT_PTR_NULL(kvr_view_find(view, (i << 32 | i) + 1));
	}
	kvr_view_free(view);
	kvr_registry_destroy(registry);
}

static void leaving_after_a_drain_is_no_loss(void)
{
	struct kvr_worker worker = {.bookings = 0};

	CU_ASSERT_FALSE(kvr_worker_is_loss(&worker, KVR_WORKER_DRAINED, KVR_WORKER_GONE, false));
	CU_ASSERT_FALSE(kvr_worker_is_loss(&worker, KVR_WORKER_DRAINING, KVR_WORKER_GONE, false));
	CU_ASSERT_TRUE(kvr_worker_is_loss(&worker, KVR_WORKER_DRAINED, KVR_WORKER_GONE, true));
	CU_ASSERT_TRUE(kvr_worker_is_loss(&worker, KVR_WORKER_SERVING, KVR_WORKER_GONE, false));
	CU_ASSERT_TRUE(kvr_worker_is_loss(&worker, KVR_WORKER_SUSPECT, KVR_WORKER_GONE, true));
	CU_ASSERT_TRUE(kvr_worker_is_loss(&worker, KVR_WORKER_SERVING, KVR_WORKER_SUSPECT, true));
	CU_ASSERT_FALSE(kvr_worker_is_loss(&worker, KVR_WORKER_SUSPECT, KVR_WORKER_SERVING, false));
	CU_ASSERT_FALSE(
		kvr_worker_is_loss(&worker, KVR_WORKER_DRAINING, KVR_WORKER_DRAINED, false));
	worker.bookings = 1;
	CU_ASSERT_TRUE(kvr_worker_is_loss(&worker, KVR_WORKER_DRAINING, KVR_WORKER_GONE, false));
}

static struct kvr_path make_path(uint16_t udp_port, uint16_t vlan, uint8_t mac)
{
	return (struct kvr_path){.ip = {[10] = 0xff, 0xff, 10, 0, 0, 2},
				 .udp_port = udp_port,
				 .vlan = vlan,
				 .family = 4,
				 .mac = {2, 0, 0, 0, 0, mac}};
}

static bool take_beat_from(struct kvr_worker *worker, struct kvr_path from)
{
	atomic_store(&worker->beat->hop, kvr_beat_hop(&from));
	return kvr_worker_adopt_hop(worker);
}

static void a_next_hop_is_adopted_from_the_same_path_only(void)
{
	struct kvr_registry *registry = kvr_registry_create(2, 1);
	struct kvr_worker *worker = kvr_registry_add(registry, 10, 5);
	struct kvr_view *view;

	CU_ASSERT_PTR_NOT_NULL_FATAL(worker);
	worker->dp_size = 1;
	worker->path = make_path(2000, 7, 2);
	CU_ASSERT_EQUAL_FATAL(kvr_worker_create_beat(worker), 0);
	CU_ASSERT_FALSE(kvr_worker_adopt_hop(worker)); /* no heartbeat yet */
	CU_ASSERT_FALSE(take_beat_from(worker, make_path(2000, 7, 2)));
	CU_ASSERT_FALSE(worker->moved);
	/* A mark left before a HELLO from another address. */
	CU_ASSERT_FALSE(take_beat_from(worker, make_path(2001, 7, 3)));
	CU_ASSERT_FALSE(take_beat_from(worker, make_path(2000, 0, 3)));
	CU_ASSERT_EQUAL(worker->path.mac[5], 2);
	CU_ASSERT_TRUE(take_beat_from(worker, make_path(2000, 7, 3)));
	CU_ASSERT_EQUAL(worker->path.mac[5], 3);
	CU_ASSERT_TRUE(worker->moved);
	CU_ASSERT_FALSE(kvr_worker_adopt_hop(worker)); /* only once */
	/* All bytes of the MAC, in order. */
	worker->path.mac[0] = 4;
	CU_ASSERT_TRUE(take_beat_from(worker, make_path(2000, 7, 3)));
	CU_ASSERT_EQUAL(worker->path.mac[0], 2);
	CU_ASSERT_EQUAL(worker->path.vlan, 7);
	view = kvr_view_build(registry);
	CU_ASSERT_PTR_NOT_NULL_FATAL(view);
	CU_ASSERT_EQUAL(view->moved, 1);
	CU_ASSERT_EQUAL(kvr_view_find(view, 10)->path.mac[5], 3);
	kvr_view_free(view);
	kvr_registry_destroy(registry);
}

static void an_empty_registry_makes_an_empty_view(void)
{
	struct kvr_registry *registry = kvr_registry_create(1, 0);
	struct kvr_view *view = kvr_view_build(registry);

	CU_ASSERT_PTR_NOT_NULL_FATAL(view);
	CU_ASSERT_PTR_NULL(kvr_view_find(view, 0));
	CU_ASSERT_EQUAL(view->number, 1);
	kvr_view_free(view);
	view = kvr_view_build(registry);
	CU_ASSERT_PTR_NOT_NULL_FATAL(view);
	CU_ASSERT_EQUAL(view->number, 2);
	kvr_view_free(view);
	kvr_view_free(NULL);
	kvr_registry_destroy(registry);
	kvr_registry_destroy(NULL);
}

/* A row holds eight tombstones: the oldest is overwritten first. */
static void a_bounded_number_of_last_epochs_is_kept(void)
{
	struct kvr_registry *registry = kvr_registry_create(2, 7); /* one row */

	CU_ASSERT_PTR_NOT_NULL_FATAL(registry);
	for (uint64_t id = 1; id <= 100; id++) {
		struct kvr_worker *worker = kvr_registry_add(registry, id, 0);

		CU_ASSERT_PTR_NOT_NULL_FATAL(worker);
		CU_ASSERT_EQUAL(kvr_registry_last_epoch(registry, id), 0);
		worker->epoch = (uint32_t)(1000 + id);
		kvr_registry_del(registry, worker);
		for (uint64_t k = 1; k <= id; k++)
			CU_ASSERT_EQUAL(kvr_registry_last_epoch(registry, k),
					id - k < 8 ? 1000 + k : 0);
	}
	/* The same worker reuses its own place: the oldest other one is overwritten next. */
	for (uint32_t epoch = 2000; epoch < 2020; epoch++) {
		struct kvr_worker *worker = kvr_registry_add(registry, 93, 0);

		worker->epoch = epoch;
		kvr_registry_del(registry, worker);
		CU_ASSERT_EQUAL(kvr_registry_last_epoch(registry, 93), epoch);
	}
	for (uint64_t k = 94; k <= 100; k++)
		CU_ASSERT_EQUAL(kvr_registry_last_epoch(registry, k), 1000 + k);
	for (uint64_t id = 200; id < 202; id++) {
		struct kvr_worker *worker = kvr_registry_add(registry, id, 0);

		worker->epoch = 5;
		kvr_registry_del(registry, worker);
	}
	CU_ASSERT_EQUAL(kvr_registry_last_epoch(registry, 94), 0);
	CU_ASSERT_EQUAL(kvr_registry_last_epoch(registry, 95), 0);
	CU_ASSERT_EQUAL(kvr_registry_last_epoch(registry, 96), 1096);
	CU_ASSERT_EQUAL(kvr_registry_last_epoch(registry, 93), 2019);
	/* A worker without an epoch leaves no tombstone. */
	kvr_registry_del(registry, kvr_registry_add(registry, 300, 0));
	CU_ASSERT_EQUAL(kvr_registry_last_epoch(registry, 300), 0);
	kvr_registry_destroy(registry);
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(states_change_only_as_allowed),
			       KVR_CASE(the_registry_rejects_duplicates_and_overflow),
			       KVR_CASE(a_bounded_number_of_last_epochs_is_kept),
			       KVR_CASE(a_view_finds_exactly_its_workers_and_ranks),
			       KVR_CASE(leaving_after_a_drain_is_no_loss),
			       KVR_CASE(a_next_hop_is_adopted_from_the_same_path_only),
			       KVR_CASE(an_empty_registry_makes_an_empty_view),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("worker", tests);
}
