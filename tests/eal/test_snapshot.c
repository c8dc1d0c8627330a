/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * A router writes what it knows, ends, and another one begins with it: what its workers' next
 * heartbeats and events confirm stays, all else goes. One thread, frame by frame.
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

static void begin_with(const char *pools)
{
	char err[300] = "";

	pipeline_router = keys;
	pipeline_start_with(pools);
	CU_ASSERT_EQUAL_FATAL(snapshot_open(rt, err, sizeof(err)), 0);
	CU_ASSERT_EQUAL_FATAL(start_snapshots(rt, err, sizeof(err)), 0);
}

static void begin(void)
{
	begin_with(POOL);
}

static void end(void)
{
	stop_snapshots(rt);
	snapshot_close(rt);
	pipeline_advance(20); /* gauges are of the last tick */
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

static void forget(void)
{
	char path[600];

	snprintf(path, sizeof(path), "%s/%s.snapshot", folder, rt->conf.opt.file_prefix);
	CU_ASSERT_EQUAL(unlink(path), 0);
}

static bool hello(uint32_t epoch, uint64_t kv_blocks)
{
	return pipeline_hello_as(&(const struct pipeline_worker){.id = W,
								 .epoch = epoch,
								 .pool = "a",
								 .ranks = 2,
								 .from = PEER_AGENT,
								 .kv_blocks = kv_blocks});
}

static const struct kvr_worker *worker(void)
{
	return kvr_registry_find(rt->registry, W);
}

static struct event_cursor *cursor(uint32_t i)
{
	return &rt->pool[0].cursor[worker()->rank[i]];
}

static uint64_t cell(uint32_t i, enum event_rank_cell c)
{
	return kvr_cell_get(&rt->pool[0].event_ranks[worker()->rank[i]].v[c]);
}

static uint64_t held(uint32_t i)
{
	return kvr_prefix_rank_blocks(rt->pool[0].prefix, (uint16_t)worker()->rank[i],
				      KVR_TIER_DEVICE);
}

static struct kvr_wire_kv_ack event(uint32_t rank, uint64_t id, uint8_t type, uint64_t *sh,
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

/* What a heartbeat of rank 0 is answered: code 0xffff: nothing about events. */
static struct kvr_wire_kv_ack beat(uint64_t next)
{
	const struct kvr_wire_rank_load load = {.kv_used_blocks = 1, .next_event_id = next};
	const struct kvr_wire_ids ids = {.source = W, .epoch = 1};
	uint8_t buf[200];
	const int n = kvr_put_heartbeat(buf, sizeof(buf), &ids, &load, 1, 0, 0);

	pipeline_flush();
	pipeline_send(PEER_AGENT, buf, (size_t)n);
	pipeline_turn();
	pipeline_advance(20); /* control looks every 10 ms */
	return kv_acked();
}

/* Blocks that a new request finds cached. */
static uint32_t overlap(uint64_t id, const uint64_t *sh)
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
static void life_before(void)
{
	const struct kvr_session_binding to = {W, 1, 1};
	struct kvr_session_key key;

	for (uint32_t i = 0; i < BLOCKS; i++) {
		chain[0][i] = 1000 + i; /* as pipeline_route() numbers them */
		chain[1][i] = 9000 + i;
	}
	begin();
	CU_ASSERT_TRUE_FATAL(hello(1, 0));
	CU_ASSERT_EQUAL(event(0, 0, KVR_KV_STORED, chain[0], BLOCKS, NULL).next_event_id, 1);
	CU_ASSERT_EQUAL(event(1, 0, KVR_KV_STORED, chain[0], 40, NULL).next_event_id, 1);
	CU_ASSERT_EQUAL(event(1, 1, KVR_KV_STORED, chain[1], BLOCKS, NULL).next_event_id, 2);
	CU_ASSERT(held(0) == BLOCKS && held(1) == BLOCKS + 40);
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
	end();
}

static void the_next_life_is_warm(void)
{
	struct kvr_session_binding to = {0};
	struct kvr_session_key key;

	life_before();
	CU_ASSERT_EQUAL(overlap(1, chain[0]), BLOCKS);
	CU_ASSERT_EQUAL(snapshot_write(rt), 0);
	CU_ASSERT(rt->snapshot->stat.workers == 1 && rt->snapshot->stat.sessions == 1);
	CU_ASSERT_EQUAL(rt->snapshot->stat.blocks, 2 * BLOCKS);
	end();
	begin();
	CU_ASSERT_FATAL(rt->snapshot->old != NULL);
	CU_ASSERT_EQUAL(rt->snapshot->old->n_workers, 1);
	CU_ASSERT_TRUE_FATAL(hello(1, 0));
	CU_ASSERT_TRUE(worker()->warm);
	CU_ASSERT(held(0) == BLOCKS && held(1) == BLOCKS + 40);
	CU_ASSERT_EQUAL(overlap(2, chain[0]), BLOCKS);
	CU_ASSERT(cell(0, ER_RESTORED) == BLOCKS && cell(0, ER_AUTHORITATIVE) == 0);
	CU_ASSERT(kvr_session_key(rt->pool[0].sessions->table, "chat", 4, &key));
	CU_ASSERT_EQUAL(kvr_session_resolve(rt->pool[0].sessions->table, &key,
					    rt->lcore[0]->quiet.now_ns, &to, NULL),
			KVR_SESSION_BOUND);
	CU_ASSERT(to.worker == W && to.dp_rank == 1 && to.tag == 1);
	/* Nothing has happened since: that confirms it. */
	CU_ASSERT_EQUAL(beat(1).code, UINT16_MAX);
	CU_ASSERT_EQUAL(cell(0, ER_AUTHORITATIVE), 1);
	pipeline_advance(20); /* everybody has come: the file's memory is given back */
	CU_ASSERT_PTR_NULL(rt->snapshot->old);
	forget();
	end();
}

/* The snapshot is older than the router's end: the events since then are told again. */
static void what_happened_since_is_asked_for(void)
{
	struct kvr_wire_kv_ack a;

	life_before();
	CU_ASSERT_EQUAL(snapshot_write(rt), 0);
	event(0, 1, KVR_KV_REMOVED, chain[0] + 50, 50, NULL);
	event(0, 2, KVR_KV_STORED, chain[1], 10, NULL);
	end();
	begin();
	CU_ASSERT_TRUE_FATAL(hello(1, 0));
	CU_ASSERT_EQUAL(held(0), BLOCKS); /* still a hint */
	a = beat(3);
	CU_ASSERT(a.code == KVR_KV_GAP && a.next_event_id == 1);
	CU_ASSERT_EQUAL(event(0, 2, KVR_KV_STORED, chain[1], 10, NULL).code, KVR_KV_GAP);
	CU_ASSERT_EQUAL(event(0, 1, KVR_KV_REMOVED, chain[0] + 50, 50, NULL).code, KVR_KV_OK);
	CU_ASSERT_EQUAL(event(0, 2, KVR_KV_STORED, chain[1], 10, NULL).next_event_id, 3);
	CU_ASSERT(held(0) == 60 && cell(0, ER_AUTHORITATIVE) == 1);
	CU_ASSERT_EQUAL(overlap(1, chain[0]), 50);
	forget();
	end();
}

static void other_lives_get_nothing(void)
{
	life_before();
	write_and_end();
	begin();
	CU_ASSERT_TRUE_FATAL(hello(2, 0));
	CU_ASSERT(!worker()->warm && held(0) == 0 && cursor(0)->faith == CURSOR_SURE);
	CU_ASSERT(rt->snapshot->stat.others == 1 && rt->snapshot->stat.restored == 0);
	end();
	begin();
	CU_ASSERT_TRUE_FATAL(hello(1, 777)); /* it says something else of itself */
	CU_ASSERT(!worker()->warm && held(0) == 0);
	forget();
	end();
}

/* An agent that says nothing about events does not confirm either. */
static void unconfirmed_blocks_go(void)
{
	life_before();
	write_and_end();
	begin();
	CU_ASSERT_TRUE_FATAL(hello(1, 0));
	pipeline_advance(9000);
	CU_ASSERT_EQUAL(held(0), BLOCKS);
	pipeline_advance(1100);
	CU_ASSERT(held(0) == 0 && held(1) == 0);
	CU_ASSERT_EQUAL(overlap(1, chain[0]), 0);
	CU_ASSERT_EQUAL(event(0, 1, KVR_KV_STORED, chain[1], 10, NULL).code, KVR_KV_DUMP_WANTED);
	forget();
	end();
}

/* A process begun anew in the same life: its events are not those of the snapshot. */
static void fewer_events_than_known(void)
{
	struct kvr_wire_kv_ack a;

	life_before();
	write_and_end();
	begin();
	CU_ASSERT_TRUE_FATAL(hello(1, 0));
	a = beat(0);
	CU_ASSERT(a.code == KVR_KV_OK && a.next_event_id == 1); /* it sends a dump then */
	CU_ASSERT_EQUAL(cell(0, ER_AUTHORITATIVE), 0);
	forget();
	end();
}

/* A rank in the middle of a dump is not whole: a hint, and its agent is asked for a dump. */
static void half_a_dump_is_a_hint(void)
{
	struct kvr_wire_kv_ack a;
	struct kv_frame f;

	life_before();
	kv_begin(&f, 0);
	f.e->flags = KVR_KV_F_DUMP | KVR_KV_F_DUMP_BEGIN;
	kv_add(&f, KVR_KV_STORED, NULL, chain[0], 30);
	kv_send(&f, W, 1);
	pipeline_turn();
	CU_ASSERT(held(0) == 30 && cursor(0)->dumping == 1);
	write_and_end();
	begin();
	CU_ASSERT_TRUE_FATAL(hello(1, 0));
	CU_ASSERT(!worker()->warm && held(0) == 30 && held(1) == BLOCKS + 40);
	CU_ASSERT_EQUAL(cursor(0)->faith, CURSOR_HINT);
	a = beat(1);
	CU_ASSERT_EQUAL(a.code, KVR_KV_DUMP_WANTED);
	CU_ASSERT_EQUAL(event(0, 0, KVR_KV_STORED, chain[1], 10, NULL).code, KVR_KV_DUMP_WANTED);
	kv_begin(&f, 0);
	f.e->flags = KVR_KV_F_DUMP | KVR_KV_F_DUMP_BEGIN | KVR_KV_F_DUMP_END;
	f.e->resume_event_id = 5;
	kv_add(&f, KVR_KV_STORED, NULL, chain[1], 20);
	kv_send(&f, W, 1);
	pipeline_turn();
	CU_ASSERT(held(0) == 20 && cell(0, ER_AUTHORITATIVE) == 1);
	CU_ASSERT_EQUAL(overlap(1, chain[0]), 40); /* what rank 1 has */
	forget();
	end();
}

static uint16_t begins_with; /* flags of the dump that begins meanwhile; 0: it has begun */

static void turn(struct lcore *lc)
{
	lcore_turn(lc);
	rte_rcu_qsbr_quiescent(rt->qsbr, lc->qsbr_id);
}

static void cursors_are_taken(struct router *r)
{
	struct kv_frame f;

	turn(r->lcore[0]);
	if (begins_with == 0)
		return;
	kv_begin(&f, 0);
	f.e->flags = begins_with;
	f.e->resume_event_id = (begins_with & KVR_KV_F_DUMP_END) != 0;
	kv_add(&f, KVR_KV_STORED, NULL, chain[0], 30);
	kv_send(&f, W, 1);
	begins_with = 0;
	for (uint32_t i = 0; i < 10; i++)
		turn(r->lcore[0]);
}

/* A dump that begins behind the cursor, and before the blocks, leaves some of them out. */
static void a_dump_begins_meanwhile(uint16_t flags)
{
	life_before();
	begins_with = flags;
	rte_rcu_qsbr_thread_register(rt->qsbr, rt->lcore[0]->qsbr_id);
	rte_rcu_qsbr_thread_online(rt->qsbr, rt->lcore[0]->qsbr_id);
	rt->wait = cursors_are_taken;
	atomic_store_explicit(&rt->running, 1, memory_order_relaxed);
	CU_ASSERT_EQUAL(snapshot_write(rt), 0);
	atomic_store_explicit(&rt->running, 0, memory_order_relaxed);
	rt->wait = NULL;
	rte_rcu_qsbr_thread_offline(rt->qsbr, rt->lcore[0]->qsbr_id);
	rte_rcu_qsbr_thread_unregister(rt->qsbr, rt->lcore[0]->qsbr_id);
	CU_ASSERT(begins_with == 0 && held(0) == 30);
	pipeline_turn();
	pipeline_flush();
	end();
	begin();
	CU_ASSERT_TRUE_FATAL(hello(1, 0));
	CU_ASSERT(!worker()->warm && held(0) == 30 && held(1) == BLOCKS + 40);
	CU_ASSERT_EQUAL(cursor(0)->faith, CURSOR_HINT);
	CU_ASSERT_EQUAL(beat(1).code, KVR_KV_DUMP_WANTED);
	forget();
	end();
}

static void a_dump_that_begins_meanwhile_makes_a_hint(void)
{
	a_dump_begins_meanwhile(KVR_KV_F_DUMP | KVR_KV_F_DUMP_BEGIN);
	a_dump_begins_meanwhile(KVR_KV_F_DUMP | KVR_KV_F_DUMP_BEGIN | KVR_KV_F_DUMP_END);
}

static void files_that_are_not_used(void)
{
	char path[600], err[300];
	int fd;

	life_before();
	write_and_end();
	pipeline_block_size = 8;
	begin_with("[pool a]\nid = 5\nblock_size = 8\nmax_ranks = 64\nmax_requests = 256\n"
		   "max_jobs = 128\nmax_blocks = 64k\nmax_active_blocks = 65536\n");
	CU_ASSERT_PTR_NULL(rt->snapshot->old);
	CU_ASSERT_TRUE_FATAL(hello(1, 0));
	CU_ASSERT_EQUAL(held(0), 0);
	snprintf(path, sizeof(path), "%s/%s.snapshot", folder, rt->conf.opt.file_prefix);
	end();
	pipeline_block_size = 4;
	fd = open(path, O_WRONLY);
	CU_ASSERT_EQUAL(pwrite(fd, "x", 1, 200), 1);
	close(fd);
	begin();
	CU_ASSERT_PTR_NULL(rt->snapshot->old);
	CU_ASSERT_TRUE_FATAL(hello(1, 0));
	CU_ASSERT(!worker()->warm && held(0) == 0);
	forget();
	stop_snapshots(rt);
	snapshot_close(rt);
	snprintf(rt->conf.opt.state_dir, sizeof(rt->conf.opt.state_dir), "/nowhere");
	CU_ASSERT_EQUAL(snapshot_open(rt, err, sizeof(err)), -EINVAL);
	CU_ASSERT(strstr(err, "state_dir") != NULL);
	pipeline_stop();
}

/* Who leaves while it is made is not in it; one that cannot be written leaves the one before. */
static void what_goes_wrong_meanwhile(void)
{
	char path[600];

	life_before();
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
	end();
	begin();
	CU_ASSERT_FATAL(rt->snapshot->old != NULL);
	forget();
	end();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(the_next_life_is_warm),
			       KVR_CASE(what_happened_since_is_asked_for),
			       KVR_CASE(other_lives_get_nothing),
			       KVR_CASE(unconfirmed_blocks_go),
			       KVR_CASE(fewer_events_than_known),
			       KVR_CASE(half_a_dump_is_a_hint),
			       KVR_CASE(a_dump_that_begins_meanwhile_makes_a_hint),
			       KVR_CASE(files_that_are_not_used),
			       KVR_CASE(what_goes_wrong_meanwhile),
			       CU_TEST_INFO_NULL};
	int rc;

	if (mkdtemp(folder) == NULL)
		return 1;
	snprintf(keys, sizeof(keys), "state_dir = %s\nsnapshot_s = 0\n", folder);
	rc = kvr_test_run("snapshots of a router", tests);
	rmdir(folder);
	return rc;
}
