/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A router writes its state and stops, and the next one starts from that file: it keeps what the
 * next heartbeats and events of its workers confirm, and drops all else. One thread, frame by
 * frame.
 */
#include "control/restore.h"
#include "control/snapshot.h"
#include "kv.h"
#include "kvr_put.h"
#include "kvr_test.h"
#include "loop/loop.h"
#include "sched/session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define W      7u
#define BLOCKS 100u
#define POOL   "[pool a]\nid = 5\n" PIPELINE_POOL "max_sessions = 100\n"

static char folder[] = "/tmp/kvr_snap_eal.XXXXXX", keys[100];
static uint64_t chain[2][BLOCKS];

static void start_snapshot_router(const char *pools)
{
	char err[300] = "";

	pipeline_router = keys;
	pipeline_start_with(pools);
	CU_ASSERT_EQUAL_FATAL(snapshot_open(rt, err, sizeof(err)), 0);
	CU_ASSERT_EQUAL_FATAL(start_snapshots(rt, err, sizeof(err)), 0);
}

static void begin_snapshot(void)
{
	start_snapshot_router(POOL);
}

static void end_snapshot(void)
{
	stop_snapshots(rt);
	snapshot_close(rt);
	pipeline_advance(20); /* gauges are of the last tick */
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

static void remove_snapshot(void)
{
	char path[600];

	snprintf(path, sizeof(path), "%s/%s.snapshot", folder, rt->conf.opt.file_prefix);
	CU_ASSERT_EQUAL(unlink(path), 0);
}

static bool join_with_blocks(uint32_t epoch, uint64_t kv_blocks)
{
	return pipeline_hello_as(&(const struct pipeline_worker){.id = W,
								 .epoch = epoch,
								 .pool = "a",
								 .ranks = 2,
								 .from = PEER_AGENT,
								 .kv_blocks = kv_blocks});
}

static const struct kvr_worker *get_snapshot_worker(void)
{
	return kvr_registry_find(rt->registry, W);
}

static struct event_cursor *get_cursor(uint32_t i)
{
	return &rt->pool[0].cursor[get_snapshot_worker()->rank[i]];
}

static uint64_t read_cell(uint32_t i, enum event_rank_cell c)
{
	return kvr_cell_get(&rt->pool[0].event_ranks[get_snapshot_worker()->rank[i]].v[c]);
}

static uint64_t count_held_blocks(uint32_t i)
{
	return kvr_prefix_rank_blocks(rt->pool[0].prefix, (uint16_t)get_snapshot_worker()->rank[i],
				      KVR_TIER_DEVICE);
}

static struct kvr_wire_kv_ack send_event(uint32_t rank, uint64_t id, uint8_t type, uint64_t *sh,
					 uint32_t n, uint64_t *parent)
{
	struct kv_frame f;

	kv_begin(&f, id);
	f.e->dp_rank = rank;
	kv_add(&f, type, parent, sh, n);
	pipeline_flush();
	kv_send(&f, W, 1);
	pipeline_turn();
	return kv_acked();
}

/* The answer to a heartbeat of rank 0; code 0xffff: no acknowledgement of events. */
static struct kvr_wire_kv_ack send_beat(uint64_t next)
{
	const struct kvr_wire_rank_load load = {.kv_used_blocks = 1, .next_event_id = next};
	const struct kvr_wire_ids ids = {.source = W, .epoch = 1};
	uint8_t buf[200];
	const int n = kvr_put_heartbeat(buf, sizeof(buf), &ids, &load, 1, 0, 0);

	pipeline_flush();
	pipeline_send(PEER_AGENT, buf, (size_t)n);
	pipeline_turn();
	pipeline_advance(20); /* control checks every 10 ms */
	return kv_acked();
}

/* Overlap of a new request. */
static uint32_t query_snapshot_overlap(uint64_t id, const uint64_t *sh)
{
	const struct kvr_wire_accepted *acc;
	const struct out *o;

	pipeline_flush();
	pipeline_route(id, sh[0], BLOCKS, KVR_REQ_F_QUERY, NULL);
	pipeline_turn();
	o = pipeline_expect(PEER_CLIENT, KVR_ACCEPTED);
	CU_ASSERT_FATAL(o != NULL);
	acc = (const void *)(o->bytes + sizeof(struct kvr_wire_hdr));
	return acc->overlap_blocks;
}

/* A router with 100 blocks in rank 0, 40 of them and 100 others in rank 1, and a session. */
static void write_first_snapshot(void)
{
	const struct kvr_session_binding to = {W, 1, 1};
	struct kvr_session_key key;

	for (uint32_t i = 0; i < BLOCKS; i++) {
		chain[0][i] = 1000 + i; /* the hashes of pipeline_route() */
		chain[1][i] = 9000 + i;
	}
	begin_snapshot();
	CU_ASSERT_TRUE_FATAL(join_with_blocks(1, 0));
	CU_ASSERT_EQUAL(send_event(0, 0, KVR_KV_STORED, chain[0], BLOCKS, NULL).next_event_id, 1);
	CU_ASSERT_EQUAL(send_event(1, 0, KVR_KV_STORED, chain[0], 40, NULL).next_event_id, 1);
	CU_ASSERT_EQUAL(send_event(1, 1, KVR_KV_STORED, chain[1], BLOCKS, NULL).next_event_id, 2);
	CU_ASSERT(count_held_blocks(0) == BLOCKS && count_held_blocks(1) == BLOCKS + 40);
	CU_ASSERT(kvr_session_key(rt->pool[0].sessions->table, "chat", 4, &key));
	CU_ASSERT_EQUAL(kvr_session_bind(rt->pool[0].sessions->table, &key, &to,
					 UINT64_C(60000000000), rt->lcore[0]->quiet.now_ns, NULL),
			0);
	kvr_stats_add(rt->pool[0].sessions->count, SC_RESTORED, 1);
}

static void write_and_end(void)
{
	CU_ASSERT_EQUAL(snapshot_write(rt), 0);
	CU_ASSERT_EQUAL(rt->snapshot->stat.written, 1);
	end_snapshot();
}

static void the_next_incarnation_is_warm(void)
{
	struct kvr_session_binding to = {0};
	struct kvr_session_key key;

	write_first_snapshot();
	CU_ASSERT_EQUAL(query_snapshot_overlap(1, chain[0]), BLOCKS);
	CU_ASSERT_EQUAL(snapshot_write(rt), 0);
	CU_ASSERT(rt->snapshot->stat.workers == 1 && rt->snapshot->stat.sessions == 1);
	CU_ASSERT_EQUAL(rt->snapshot->stat.blocks, 2 * BLOCKS);
	end_snapshot();
	begin_snapshot();
	CU_ASSERT_FATAL(rt->snapshot->old != NULL);
	CU_ASSERT_EQUAL(rt->snapshot->old->n_workers, 1);
	CU_ASSERT_TRUE_FATAL(join_with_blocks(1, 0));
	CU_ASSERT_TRUE(get_snapshot_worker()->warm);
	CU_ASSERT(count_held_blocks(0) == BLOCKS && count_held_blocks(1) == BLOCKS + 40);
	CU_ASSERT_EQUAL(query_snapshot_overlap(2, chain[0]), BLOCKS);
	CU_ASSERT(read_cell(0, ER_RESTORED) == BLOCKS && read_cell(0, ER_AUTHORITATIVE) == 0);
	CU_ASSERT(kvr_session_key(rt->pool[0].sessions->table, "chat", 4, &key));
	CU_ASSERT_EQUAL(kvr_session_resolve(rt->pool[0].sessions->table, &key,
					    rt->lcore[0]->quiet.now_ns, &to, NULL),
			KVR_SESSION_BOUND);
	CU_ASSERT(to.worker == W && to.dp_rank == 1 && to.tag == 1);
	/* Nothing has happened since: this confirms the blocks. */
	CU_ASSERT_EQUAL(send_beat(1).code, UINT16_MAX);
	CU_ASSERT_EQUAL(read_cell(0, ER_AUTHORITATIVE), 1);
	pipeline_advance(20); /* all workers have joined: the file's memory is freed */
	CU_ASSERT_PTR_NULL(rt->snapshot->old);
	remove_snapshot();
	end_snapshot();
}

/* The snapshot is older than the router's end: later events are retransmitted. */
static void later_events_are_requested(void)
{
	struct kvr_wire_kv_ack a;

	write_first_snapshot();
	CU_ASSERT_EQUAL(snapshot_write(rt), 0);
	send_event(0, 1, KVR_KV_REMOVED, chain[0] + 50, 50, NULL);
	send_event(0, 2, KVR_KV_STORED, chain[1], 10, NULL);
	end_snapshot();
	begin_snapshot();
	CU_ASSERT_TRUE_FATAL(join_with_blocks(1, 0));
	CU_ASSERT_EQUAL(count_held_blocks(0), BLOCKS); /* still a hint */
	a = send_beat(3);
	CU_ASSERT(a.code == KVR_KV_GAP && a.next_event_id == 1);
	CU_ASSERT_EQUAL(send_event(0, 2, KVR_KV_STORED, chain[1], 10, NULL).code, KVR_KV_GAP);
	CU_ASSERT_EQUAL(send_event(0, 1, KVR_KV_REMOVED, chain[0] + 50, 50, NULL).code, KVR_KV_OK);
	CU_ASSERT_EQUAL(send_event(0, 2, KVR_KV_STORED, chain[1], 10, NULL).next_event_id, 3);
	CU_ASSERT(count_held_blocks(0) == 60 && read_cell(0, ER_AUTHORITATIVE) == 1);
	CU_ASSERT_EQUAL(query_snapshot_overlap(1, chain[0]), 50);
	remove_snapshot();
	end_snapshot();
}

static void other_incarnations_get_nothing(void)
{
	write_first_snapshot();
	write_and_end();
	begin_snapshot();
	CU_ASSERT_TRUE_FATAL(join_with_blocks(2, 0));
	CU_ASSERT(!get_snapshot_worker()->warm && count_held_blocks(0) == 0 &&
		  get_cursor(0)->faith == CURSOR_SURE);
	CU_ASSERT(rt->snapshot->stat.others == 1 && rt->snapshot->stat.restored == 0);
	end_snapshot();
	begin_snapshot();
	CU_ASSERT_TRUE_FATAL(join_with_blocks(1, 777)); /* its registration differs */
	CU_ASSERT(!get_snapshot_worker()->warm && count_held_blocks(0) == 0);
	remove_snapshot();
	end_snapshot();
}

/* An agent without a report about events does not confirm either. */
static void unconfirmed_blocks_are_dropped(void)
{
	write_first_snapshot();
	write_and_end();
	begin_snapshot();
	CU_ASSERT_TRUE_FATAL(join_with_blocks(1, 0));
	pipeline_advance(9000);
	CU_ASSERT_EQUAL(count_held_blocks(0), BLOCKS);
	pipeline_advance(1100);
	CU_ASSERT(count_held_blocks(0) == 0 && count_held_blocks(1) == 0);
	CU_ASSERT_EQUAL(query_snapshot_overlap(1, chain[0]), 0);
	CU_ASSERT_EQUAL(send_event(0, 1, KVR_KV_STORED, chain[1], 10, NULL).code,
			KVR_KV_DUMP_WANTED);
	remove_snapshot();
	end_snapshot();
}

/* A process restarted under the same epoch: its events are not those of the snapshot. */
static void a_rank_with_fewer_events_sends_a_dump(void)
{
	struct kvr_wire_kv_ack a;

	write_first_snapshot();
	write_and_end();
	begin_snapshot();
	CU_ASSERT_TRUE_FATAL(join_with_blocks(1, 0));
	a = send_beat(0);
	CU_ASSERT(a.code == KVR_KV_OK && a.next_event_id == 1); /* it sends a dump then */
	CU_ASSERT_EQUAL(read_cell(0, ER_AUTHORITATIVE), 0);
	remove_snapshot();
	end_snapshot();
}

/*
 * A rank in the middle of a dump is incomplete: its blocks are a hint, and its agent must send a
 * dump.
 */
static void a_partial_dump_is_a_hint(void)
{
	struct kvr_wire_kv_ack a;
	struct kv_frame f;

	write_first_snapshot();
	kv_begin(&f, 0);
	f.e->flags = KVR_KV_F_DUMP | KVR_KV_F_DUMP_BEGIN;
	kv_add(&f, KVR_KV_STORED, NULL, chain[0], 30);
	kv_send(&f, W, 1);
	pipeline_turn();
	CU_ASSERT(count_held_blocks(0) == 30 && get_cursor(0)->dumping == 1);
	write_and_end();
	begin_snapshot();
	CU_ASSERT_TRUE_FATAL(join_with_blocks(1, 0));
	CU_ASSERT(!get_snapshot_worker()->warm && count_held_blocks(0) == 30 &&
		  count_held_blocks(1) == BLOCKS + 40);
	CU_ASSERT_EQUAL(get_cursor(0)->faith, CURSOR_HINT);
	a = send_beat(1);
	CU_ASSERT_EQUAL(a.code, KVR_KV_DUMP_WANTED);
	CU_ASSERT_EQUAL(send_event(0, 0, KVR_KV_STORED, chain[1], 10, NULL).code,
			KVR_KV_DUMP_WANTED);
	kv_begin(&f, 0);
	f.e->flags = KVR_KV_F_DUMP | KVR_KV_F_DUMP_BEGIN | KVR_KV_F_DUMP_END;
	f.e->resume_event_id = 5;
	kv_add(&f, KVR_KV_STORED, NULL, chain[1], 20);
	kv_send(&f, W, 1);
	pipeline_turn();
	CU_ASSERT(count_held_blocks(0) == 20 && read_cell(0, ER_AUTHORITATIVE) == 1);
	CU_ASSERT_EQUAL(query_snapshot_overlap(1, chain[0]), 40); /* the blocks of rank 1 */
	remove_snapshot();
	end_snapshot();
}

static uint16_t begins_with; /* flags of the dump that begins meanwhile; 0: it has begun */

static void run_lcore_turn(struct lcore *lc)
{
	lcore_turn(lc);
	rte_rcu_qsbr_quiescent(rt->qsbr, lc->qsbr_id);
}

static void run_while_cursors_are_read(struct router *r)
{
	struct kv_frame f;

	run_lcore_turn(r->lcore[0]);
	if (begins_with == 0)
		return;
	kv_begin(&f, 0);
	f.e->flags = begins_with;
	f.e->resume_event_id = (begins_with & KVR_KV_F_DUMP_END) != 0;
	kv_add(&f, KVR_KV_STORED, NULL, chain[0], 30);
	kv_send(&f, W, 1);
	begins_with = 0;
	for (uint32_t i = 0; i < 10; i++)
		run_lcore_turn(r->lcore[0]);
}

/* A dump that begins after the cursor was read and before the blocks are misses some of them. */
static void begin_dump_during_write(uint16_t flags)
{
	write_first_snapshot();
	begins_with = flags;
	rte_rcu_qsbr_thread_register(rt->qsbr, rt->lcore[0]->qsbr_id);
	rte_rcu_qsbr_thread_online(rt->qsbr, rt->lcore[0]->qsbr_id);
	rt->wait = run_while_cursors_are_read;
	atomic_store_explicit(&rt->running, 1, memory_order_relaxed);
	CU_ASSERT_EQUAL(snapshot_write(rt), 0);
	atomic_store_explicit(&rt->running, 0, memory_order_relaxed);
	rt->wait = NULL;
	rte_rcu_qsbr_thread_offline(rt->qsbr, rt->lcore[0]->qsbr_id);
	rte_rcu_qsbr_thread_unregister(rt->qsbr, rt->lcore[0]->qsbr_id);
	CU_ASSERT(begins_with == 0 && count_held_blocks(0) == 30);
	pipeline_turn();
	pipeline_flush();
	end_snapshot();
	begin_snapshot();
	CU_ASSERT_TRUE_FATAL(join_with_blocks(1, 0));
	CU_ASSERT(!get_snapshot_worker()->warm && count_held_blocks(0) == 30 &&
		  count_held_blocks(1) == BLOCKS + 40);
	CU_ASSERT_EQUAL(get_cursor(0)->faith, CURSOR_HINT);
	CU_ASSERT_EQUAL(send_beat(1).code, KVR_KV_DUMP_WANTED);
	remove_snapshot();
	end_snapshot();
}

static void a_dump_during_the_write_makes_a_hint(void)
{
	begin_dump_during_write(KVR_KV_F_DUMP | KVR_KV_F_DUMP_BEGIN);
	begin_dump_during_write(KVR_KV_F_DUMP | KVR_KV_F_DUMP_BEGIN | KVR_KV_F_DUMP_END);
}

static void unusable_files_are_ignored(void)
{
	char path[600], err[300];
	int fd;

	write_first_snapshot();
	write_and_end();
	pipeline_block_size = 8;
	start_snapshot_router(
		"[pool a]\nid = 5\nblock_size = 8\nmax_ranks = 64\nmax_requests = 256\n"
		"max_jobs = 128\nmax_blocks = 64k\nmax_active_blocks = 65536\n");
	CU_ASSERT_PTR_NULL(rt->snapshot->old);
	CU_ASSERT_TRUE_FATAL(join_with_blocks(1, 0));
	CU_ASSERT_EQUAL(count_held_blocks(0), 0);
	snprintf(path, sizeof(path), "%s/%s.snapshot", folder, rt->conf.opt.file_prefix);
	end_snapshot();
	pipeline_block_size = 4;
	fd = open(path, O_WRONLY);
	CU_ASSERT_EQUAL(pwrite(fd, "x", 1, 200), 1);
	close(fd);
	begin_snapshot();
	CU_ASSERT_PTR_NULL(rt->snapshot->old);
	CU_ASSERT_TRUE_FATAL(join_with_blocks(1, 0));
	CU_ASSERT(!get_snapshot_worker()->warm && count_held_blocks(0) == 0);
	remove_snapshot();
	stop_snapshots(rt);
	snapshot_close(rt);
	snprintf(rt->conf.opt.state_dir, sizeof(rt->conf.opt.state_dir), "/nowhere");
	CU_ASSERT_EQUAL(snapshot_open(rt, err, sizeof(err)), -EINVAL);
	CU_ASSERT(strstr(err, "state_dir") != NULL);
	pipeline_stop();
}

/*
 * A worker that leaves during the write is not in the file. A file that cannot be written leaves
 * the one before.
 */
static void faults_during_the_write(void)
{
	char path[600];

	write_first_snapshot();
	CU_ASSERT_EQUAL(snapshot_write(rt), 0);
	snprintf(path, sizeof(path), "%s.new", rt->snapshot->path);
	CU_ASSERT_EQUAL(mkdir(path, 0700), 0);
	CU_ASSERT_EQUAL(snapshot_write(rt), -EISDIR);
	CU_ASSERT(rt->snapshot->stat.failed == 1 && rt->snapshot->stat.written == 1);
	CU_ASSERT_EQUAL(rmdir(path), 0);
	atomic_store(&rt->snapshot->quit, 1);
	CU_ASSERT_EQUAL(snapshot_write(rt), -ECANCELED);
	CU_ASSERT(access(path, F_OK) != 0);
	atomic_store(&rt->snapshot->quit, 0);
	end_snapshot();
	begin_snapshot();
	CU_ASSERT_FATAL(rt->snapshot->old != NULL);
	remove_snapshot();
	end_snapshot();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(the_next_incarnation_is_warm),
			       KVR_CASE(later_events_are_requested),
			       KVR_CASE(other_incarnations_get_nothing),
			       KVR_CASE(unconfirmed_blocks_are_dropped),
			       KVR_CASE(a_rank_with_fewer_events_sends_a_dump),
			       KVR_CASE(a_partial_dump_is_a_hint),
			       KVR_CASE(a_dump_during_the_write_makes_a_hint),
			       KVR_CASE(unusable_files_are_ignored),
			       KVR_CASE(faults_during_the_write),
			       CU_TEST_INFO_NULL};
	int rc;

	if (mkdtemp(folder) == NULL)
		return 1;
	snprintf(keys, sizeof(keys), "state_dir = %s\nsnapshot_s = 0\n", folder);
	rc = kvr_test_run("snapshots of a router", tests);
	rmdir(folder);
	return rc;
}
