/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Work in a turn is bounded: what a snapshot has of a worker with many blocks and sessions is put
 * into the tables in slices, and so is what is copied for a snapshot.
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

static void begin(void)
{
	char err[300] = "";

	pipeline_router = keys;
	begin_with(POOL, "");
	CU_ASSERT_EQUAL_FATAL(snapshot_open(rt, err, sizeof(err)), 0);
	CU_ASSERT_EQUAL_FATAL(start_snapshots(rt, err, sizeof(err)), 0);
}

static void finish(void)
{
	stop_snapshots(rt);
	snapshot_close(rt);
	end();
}

static uint64_t units(void)
{
	return kvr_prefix_work(rt->pool[0].prefix);
}

static uint64_t sessions(void)
{
	return kvr_session_count(rt->pool[0].sessions->table);
}

static uint64_t calls(void)
{
	return kvr_cell_get(&lc()->turns.calls);
}

static const struct kvr_worker *worker(void)
{
	return kvr_registry_find(rt->registry, WORKER);
}

/* Always the same words. @return the most that @p what counts in one turn until it serves. */
static uint64_t joins(uint64_t (*what)(void))
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
	turn();
	return round_beside(what);
}

static void fill(void)
{
	const struct kvr_session_binding to = {WORKER, 0, 1};
	struct kvr_session_key key;
	uint64_t sh[CHAIN];
	char name[16];

	for (uint32_t c = 0; c < CHAINS; c++) {
		for (uint32_t i = 0; i < CHAIN; i++)
			sh[i] = kvr_mix64(c * CHAIN + i);
		kvr_prefix_store(rt->pool[0].prefix, (uint16_t)worker()->rank[0], KVR_TIER_DEVICE,
				 NULL, sh, CHAIN);
	}
	rt->pool[0].cursor[worker()->rank[0]].next = CHAINS;
	for (uint32_t i = 0; i < SESSIONS; i++) {
		const int n = snprintf(name, sizeof(name), "chat %u", i);

		CU_ASSERT_TRUE(
			kvr_session_key(rt->pool[0].sessions->table, name, (uint32_t)n, &key));
		CU_ASSERT_EQUAL(kvr_session_bind(rt->pool[0].sessions->table, &key, &to,
						 UINT64_C(600000000000), lc()->quiet.now_ns, NULL),
				0);
		kvr_stats_add(rt->pool[0].sessions->count, SC_RESTORED, 1);
	}
}

static _Atomic int written;

static void *write_it(void *arg)
{
	CU_ASSERT_EQUAL(snapshot_write(rt), 0);
	atomic_store_explicit(&written, 1, memory_order_release);
	return arg;
}

static void what_is_copied_for_a_snapshot(void)
{
	uint64_t before;
	pthread_t t;

	begin();
	joins(units);
	CU_ASSERT_PTR_NOT_NULL_FATAL(worker());
	fill();
	before = calls();
	begin_measure();
	atomic_store_explicit(&rt->running, 1, memory_order_relaxed);
	CU_ASSERT_EQUAL_FATAL(pthread_create(&t, NULL, write_it, NULL), 0);
	do {
		turn();
		sched_yield();
	} while (atomic_load_explicit(&written, memory_order_acquire) == 0);
	pthread_join(t, NULL);
	atomic_store_explicit(&rt->running, 0, memory_order_relaxed);
	report("copied", calls() - before);
	/* 32 sessions a turn, 64 slots of requests. */
	CU_ASSERT(calls() - before >= SESSIONS / 32 + 4096 / 64);
	CU_ASSERT(rt->snapshot->stat.sessions == SESSIONS && rt->snapshot->stat.workers == 1);
	CU_ASSERT_EQUAL(rt->snapshot->stat.blocks, CHAIN * CHAINS);
	finish();
}

static void blocks_of_a_worker_that_comes_back(void)
{
	uint64_t most;

	begin();
	CU_ASSERT_PTR_NOT_NULL_FATAL(rt->snapshot->old);
	begin_measure();
	most = joins(units);
	report("units of restored blocks", most);
	CU_ASSERT_TRUE_FATAL(worker() != NULL && worker()->warm);
	CU_ASSERT_EQUAL(kvr_prefix_rank_blocks(rt->pool[0].prefix, (uint16_t)worker()->rank[0],
					       KVR_TIER_DEVICE),
			CHAIN * CHAINS);
	/* The last piece of a turn is not divided. */
	CU_ASSERT(most > RESTORE_UNITS / 2 && most <= 2 * RESTORE_UNITS);
	finish();
}

static void sessions_of_a_worker_that_comes_back(void)
{
	uint64_t most;

	begin();
	begin_measure();
	most = joins(sessions);
	report("sessions restored", most);
	CU_ASSERT_EQUAL(sessions(), SESSIONS);
	CU_ASSERT_EQUAL(most, RESTORE_SESSIONS);
	unlink(rt->snapshot->path);
	finish();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(what_is_copied_for_a_snapshot),
			       KVR_CASE(blocks_of_a_worker_that_comes_back),
			       KVR_CASE(sessions_of_a_worker_that_comes_back), CU_TEST_INFO_NULL};
	int rc;

	if (mkdtemp(folder) == NULL)
		return 1;
	snprintf(keys, sizeof(keys), "state_dir = %s\nsnapshot_s = 0\n", folder);
	rc = kvr_test_run("turns beside snapshots", tests);
	rmdir(folder);
	return rc;
}
