/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Work per turn is bounded: restored blocks and sessions of a large worker enter the tables in
 * slices, and so does the copy for a snapshot.
 */
#include "turns.h"

#include "control/restore.h"
#include "control/snapshot.h"
#include "sched/session.h"

#include <unistd.h>

#define WORKER	 9u
#define CHAIN	 128u
#define CHAINS	 1500u
#define SESSIONS 1000u
#define POOL                                                                                       \
	"[pool a]\nid = 5\nblock_size = 4\nmax_ranks = 64\nmax_requests = 4096\nmax_jobs = 1024\n" \
	"max_blocks = 256k\nmax_active_blocks = 65536\nmax_sessions = 2000\n"

static char folder[] = "/tmp/kvr_snap_turns.XXXXXX", keys[100];

static void begin_snapshot_turns(void)
{
	char err[300] = "";

	pipeline_router = keys;
	begin_turn_router(POOL, "");
	CU_ASSERT_EQUAL_FATAL(snapshot_open(rt, err, sizeof(err)), 0);
	CU_ASSERT_EQUAL_FATAL(start_snapshots(rt, err, sizeof(err)), 0);
}

static void finish_snapshot_turns(void)
{
	stop_snapshots(rt);
	snapshot_close(rt);
	end_turn_router();
}

static uint64_t count_units(void)
{
	return kvr_prefix_work(rt->pool[0].prefix);
}

static uint64_t count_sessions(void)
{
	return kvr_session_count(rt->pool[0].sessions->table);
}

static uint64_t count_calls(void)
{
	return kvr_cell_get(&get_lcore()->turns.calls);
}

static const struct kvr_worker *find_worker(void)
{
	return kvr_registry_find(rt->registry, WORKER);
}

/*
 * Registers with the same HELLO until the worker serves. @return the largest growth of @p what in
 * one turn.
 */
static uint64_t join_and_measure(uint64_t (*what)(void))
{
	const struct kvr_wire_ids ids = {.source = WORKER, .id = 1, .epoch = 1};
	const struct kvr_wire_hello h = {.block_size = 4,
					 .dp_size = 1,
					 .max_num_batched_tokens = 64,
					 .total_kv_blocks = CHAIN * CHAINS,
					 .max_frame = 1432};
	uint8_t tlv[64], buf[256];
	struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};

	kvr_hint_put_str(&hints, KVR_HINT_POOL, "a");
	pipeline_send(PEER_AGENT, buf, (size_t)kvr_put_hello(buf, sizeof(buf), &ids, h, &hints));
	run_timed_turn();
	return run_round_beside(what);
}

static void fill_tables(void)
{
	const struct kvr_session_binding to = {WORKER, 0, 1};
	struct kvr_session_key key;
	uint64_t sh[CHAIN];
	char name[16];

	for (uint32_t c = 0; c < CHAINS; c++) {
		for (uint32_t i = 0; i < CHAIN; i++)
			sh[i] = kvr_mix64(c * CHAIN + i);
		kvr_prefix_store(rt->pool[0].prefix, (uint16_t)find_worker()->rank[0],
				 KVR_TIER_DEVICE, NULL, sh, CHAIN);
	}
	rt->pool[0].cursor[find_worker()->rank[0]].next = CHAINS;
	for (uint32_t i = 0; i < SESSIONS; i++) {
		const int n = snprintf(name, sizeof(name), "chat %u", i);

		CU_ASSERT_TRUE(
			kvr_session_key(rt->pool[0].sessions->table, name, (uint32_t)n, &key));
		CU_ASSERT_EQUAL(kvr_session_bind(rt->pool[0].sessions->table, &key, &to,
						 UINT64_C(600000000000), get_lcore()->quiet.now_ns,
						 NULL),
				0);
		kvr_stats_add(rt->pool[0].sessions->count, SC_RESTORED, 1);
	}
}

static _Atomic int written;

static void *write_snapshot(void *arg)
{
	CU_ASSERT_EQUAL(snapshot_write(rt), 0);
	atomic_store_explicit(&written, 1, memory_order_release);
	return arg;
}

static void copies_for_a_snapshot_are_bounded(void)
{
	uint64_t before;
	pthread_t t;

	begin_snapshot_turns();
	join_and_measure(count_units);
	CU_ASSERT_PTR_NOT_NULL_FATAL(find_worker());
	fill_tables();
	before = count_calls();
	begin_measure();
	atomic_store_explicit(&rt->running, 1, memory_order_relaxed);
	CU_ASSERT_EQUAL_FATAL(pthread_create(&t, NULL, write_snapshot, NULL), 0);
	do {
		run_timed_turn();
		sched_yield();
	} while (atomic_load_explicit(&written, memory_order_acquire) == 0);
	pthread_join(t, NULL);
	atomic_store_explicit(&rt->running, 0, memory_order_relaxed);
	report_turns("copied", count_calls() - before);
	/* 32 sessions and 64 request slots per turn. */
	CU_ASSERT(count_calls() - before >= SESSIONS / 32 + 4096 / 64);
	CU_ASSERT(rt->snapshot->stat.sessions == SESSIONS && rt->snapshot->stat.workers == 1);
	CU_ASSERT_EQUAL(rt->snapshot->stat.blocks, CHAIN * CHAINS);
	finish_snapshot_turns();
}

static void blocks_of_a_returning_worker_are_restored_in_slices(void)
{
	uint64_t most;

	begin_snapshot_turns();
	CU_ASSERT_PTR_NOT_NULL_FATAL(rt->snapshot->old);
	begin_measure();
	most = join_and_measure(count_units);
	report_turns("units of restored blocks", most);
	CU_ASSERT_TRUE_FATAL(find_worker() != NULL && find_worker()->warm);
	CU_ASSERT_EQUAL(kvr_prefix_rank_blocks(rt->pool[0].prefix, (uint16_t)find_worker()->rank[0],
					       KVR_TIER_DEVICE),
			CHAIN * CHAINS);
	/* The last slice of a turn is not divided. */
	CU_ASSERT(most > RESTORE_UNITS / 2 && most <= 2 * RESTORE_UNITS);
	finish_snapshot_turns();
}

static void sessions_of_a_returning_worker_are_restored_in_slices(void)
{
	uint64_t most;

	begin_snapshot_turns();
	begin_measure();
	most = join_and_measure(count_sessions);
	report_turns("sessions restored", most);
	CU_ASSERT_EQUAL(count_sessions(), SESSIONS);
	CU_ASSERT_EQUAL(most, RESTORE_SESSIONS);
	unlink(rt->snapshot->path);
	finish_snapshot_turns();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(copies_for_a_snapshot_are_bounded),
			       KVR_CASE(blocks_of_a_returning_worker_are_restored_in_slices),
			       KVR_CASE(sessions_of_a_returning_worker_are_restored_in_slices),
			       CU_TEST_INFO_NULL};
	int rc;

	if (mkdtemp(folder) == NULL)
		return 1;
	snprintf(keys, sizeof(keys), "state_dir = %s\nsnapshot_s = 0\n", folder);
	rc = kvr_test_run("turns beside snapshots", tests);
	rmdir(folder);
	return rc;
}
