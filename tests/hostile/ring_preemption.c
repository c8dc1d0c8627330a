/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control is preempted between the two steps of a ring operation, and does not return.
 * Another writer of that ring would have to wait; packet lcores continue, because they never write
 * to a ring of control.
 */
#include "peers.h"
#include "threads.h"

#include "control/control.h"
#include "kvr_rings.h"
#include "lcore/out.h"

#define REQUESTS 400u
#define AHEAD	 32u

/* A ring with a moved head and an old tail: one side of it, by its kind. */
struct stopped {
	volatile uint32_t *head;
	struct rte_ring_rts_headtail *rts; /* or NULL */
};

static struct stopped all[THREADS_MAX + 8];
static uint32_t n_stopped;

static void move_head(const struct stopped *s, uint32_t by)
{
	if (s->rts == NULL) {
		*s->head += by;
		return;
	}
	s->rts->head.val.pos += by;
	s->rts->head.val.cnt += by;
}

static void stop_ring_side(volatile uint32_t *head, struct rte_ring_rts_headtail *rts)
{
	CU_ASSERT_FATAL(n_stopped < RTE_DIM(all));
	all[n_stopped] = (struct stopped){head, rts};
	move_head(&all[n_stopped++], 1);
}

static void stop_writing(struct rte_ring *r)
{
	const bool rts = rte_ring_get_prod_sync_type(r) == RTE_RING_SYNC_MT_RTS;

	stop_ring_side(&r->prod.head, rts ? &r->rts_prod : NULL);
}

static void stop_reading(struct rte_ring *r)
{
	const bool rts = rte_ring_get_cons_sync_type(r) == RTE_RING_SYNC_MT_RTS;

	/* Give a reader something to read: its head is never ahead of the writers' tail. */
	CU_ASSERT_FATAL(!rte_ring_empty(r));
	stop_ring_side(&r->cons.head, rts ? &r->rts_cons : NULL);
}

/* Control returns and completes its operation, which adds nothing. */
static void continue_ring_side(void)
{
	while (n_stopped > 0)
		move_head(&all[--n_stopped], UINT32_MAX);
}

/* ThreadSanitizer builds use DPDK's usual kind of pool: threads_tsan.c. */
#ifdef __SANITIZE_THREAD__
#define SHARED false
#else
#define SHARED kvr_rings_cpus_shared()
#endif

static void *taken; /* from the buffers for control, by an lcore */

/* Lcores that share a CPU do not wait for each other either. */
static void stop_an_lcore(void)
{
	struct rte_ring *r = rt->ctl_bufs->pool_data;
	uint32_t head, n;

	CU_ASSERT_EQUAL_FATAL(rte_ring_get_cons_sync_type(r), RTE_RING_SYNC_MT_RTS);
	CU_ASSERT_EQUAL(__rte_ring_rts_move_cons_head(r, 1, RTE_RING_QUEUE_FIXED, &head, &n), 1);
	__rte_ring_dequeue_elems(r, head, &taken, sizeof(taken), 1);
}

static void continue_the_lcore(void)
{
	struct rte_ring *r = rt->ctl_bufs->pool_data;

	__rte_ring_rts_update_tail(&r->rts_cons);
	rte_mempool_put(rt->ctl_bufs, taken);
}

/* In every ring that control reads or writes, at once. */
static void stop_control(void)
{
	struct rte_ring *out = rt->control.out, *bufs = rt->ctl_bufs->pool_data,
			*mbufs = rt->control.mbufs->pool_data;

	for (uint32_t i = 0; i < rt->n_lcores; i++)
		stop_writing(rt->lcore[i]->calls);
	stop_writing(out);
	stop_writing(bufs);  /* frees a frame it has read */
	stop_reading(mbufs); /* allocates a frame to answer with */
}

static void send_preempted_route(uint64_t id)
{
	const struct kvr_wire_ids ids = peers_ids(id, 0);
	const uint64_t hash = id;
	struct kvr_request_src src = {.fixed = {.pool = 5,
						.isl = 4,
						.max_tokens = KVR_NONE32,
						.expected_output_tokens = KVR_NONE32},
				      .hashes = &hash,
				      .n_hashes = 1};
	uint8_t frame[KVR_WIRE_DEF_FRAME];
	struct kvr_slice s[KVR_REQUEST_SLICES];
	struct kvr_frag frag;
	uint32_t off = 0, part = 0;

	CU_ASSERT_FATAL(kvr_frag_init(&frag, KVR_ROUTE, &ids, kvr_request_build(&src, s),
				      sizeof(frame)) == 0 &&
			kvr_frag_next(&frag, frame, &off, &part));
	kvr_slices_copy(s, KVR_REQUEST_SLICES, off, part, frame + sizeof(struct kvr_wire_hdr));
	pipeline_send(PEER_CLIENT, frame, sizeof(struct kvr_wire_hdr) + part);
}

/* Agent and client answer all output. @return number of ended requests. */
static uint32_t answer_all(void)
{
	const struct kvr_wire_response r = {
		.flags = KVR_RESP_F_FIN, .generated_tokens = 1, .cached_tokens = KVR_NONE32};
	const struct kvr_wire_response_ack a = {1, KVR_RACK_F_FIN};
	uint32_t ended = 0;
	const struct out *o;
	uint8_t buf[256];

	while ((o = pipeline_next(0)) != NULL) {
		const struct kvr_wire_ids ids = peers_ids(o->hdr.id, o->hdr.handle);

		if (o->hdr.kind == KVR_DISPATCH) {
			pipeline_send(PEER_AGENT, buf,
				      (size_t)kvr_put_response(buf, sizeof(buf), &ids, r,
							       (struct kvr_slice){"item", 4}));
		} else if (o->hdr.kind == KVR_RESPONSE) {
			pipeline_send(PEER_CLIENT, buf,
				      (size_t)kvr_put_response_ack(buf, sizeof(buf), &ids, &a));
			ended++;
		}
	}
	pipeline_flush();
	return ended;
}

/*
 * HELLOs of unknown workers: ingress takes buffers for control and fills its ring, and stops there.
 */
static void send_unknown_hello(uint64_t worker)
{
	const struct kvr_wire_ids ids = {.source = worker, .id = 1, .epoch = 1};
	const struct kvr_wire_hello h = {
		.block_size = 4, .dp_size = 1, .total_kv_blocks = 100, .max_frame = 1432};
	uint8_t tlv[64], buf[512];
	struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};

	kvr_hint_put_str(&hints, KVR_HINT_POOL, "a");
	pipeline_send(PEER_OTHER, buf, (size_t)kvr_put_hello(buf, sizeof(buf), &ids, h, &hints));
}

static void lcores_continue_without_control(void)
{
	uint32_t sent = 0, ended = 0;
	uint64_t since = 0;

	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(9, 1, "a", 2));
	pipeline_flush();
	stop_control();
	if (SHARED)
		stop_an_lcore();
	threads_run();
	while (ended < REQUESTS) {
		while (sent < REQUESTS && sent - ended < AHEAD) {
			send_unknown_hello(100 + sent);
			send_preempted_route(1000 + sent++);
		}
		ended += answer_all();
		threads_wait(&since); /* aborts if they wait for control */
	}
	threads_pause();
	continue_ring_side();
	if (SHARED)
		continue_the_lcore();
	pipeline_turn();
	pipeline_flush();
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_FINISHED), REQUESTS);
	CU_ASSERT_TRUE(pipeline_balanced());
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->ctl_mbufs), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->ctl_bufs), 0);
	pipeline_stop();
}

static const char *get_pool_kind(const struct rte_mempool *mp)
{
	return rte_mempool_get_ops(mp->ops_index)->name;
}

/* The run above cannot show that no other thread ever writes to these rings: check their kind. */
static void the_rings_of_control_have_one_writer(void)
{
	pipeline_start(1);
	CU_ASSERT_EQUAL(rte_ring_get_prod_sync_type(rt->control.out), RTE_RING_SYNC_ST);
	CU_ASSERT_EQUAL(rte_ring_get_cons_sync_type(rt->control_ring), RTE_RING_SYNC_ST);
	CU_ASSERT_STRING_EQUAL(get_pool_kind(rt->ctl_bufs),
			       kvr_rings_cpus_shared() ? "ring_mt_rts" : "ring_sp_mc");
	CU_ASSERT_STRING_EQUAL(get_pool_kind(rt->control.mbufs),
			       kvr_rings_cpus_shared() ? "ring_mt_rts" : "ring_mp_sc");
	for (uint32_t i = 0; i < rt->n_lcores; i++) {
		const struct lcore *lc = rt->lcore[i];

		CU_ASSERT_EQUAL(rte_ring_get_prod_sync_type(lc->calls), RTE_RING_SYNC_ST);
		CU_ASSERT_PTR_NOT_EQUAL(lc->out, rt->control.out);
		CU_ASSERT_PTR_NOT_EQUAL(lc->mbufs, rt->control.mbufs);
	}
	/* Control uses all of its buffers and never has to free one. */
	CU_ASSERT(rte_ring_get_capacity(rt->control.out) >= rt->ctl_mbufs->size);
	CU_ASSERT(rte_ring_get_capacity(rt->control_ring) >= rt->ctl_bufs->size);
	pipeline_stop();
}

/*
 * A text longer than the frame: truncated if the kind allows it, otherwise counted, without
 * allocating a frame that would have to be freed.
 */
static void control_frees_no_frame(void)
{
	static const uint64_t body[200]; /* 1,600 bytes */
	static uint8_t frame[sizeof(struct kvr_wire_hdr) + sizeof(body)];
	const struct kvr_wire_ids ids = {.source = 77, .id = 2};
	uint32_t head, came[2] = {0};
	const struct rte_ring *ring;
	const struct out *o;
	struct kvr_path to;

	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(9, 1, "a", 1));
	pipeline_flush();
	to = kvr_registry_find(rt->registry, 9)->path;
	to.max_frame = KVR_WIRE_LEAST_MAX_FRAME;
	ring = rt->ctl_mbufs->pool_data;
	head = ring->prod.head;
	out_message(&rt->control, &to, KVR_LOADS, 77, 1, 0, body, sizeof(body) - 4);
	kvr_hdr_put(frame, KVR_LOADS, &ids, sizeof(body), 0, sizeof(body));
	out_frame(&rt->control, &to, frame, sizeof(frame));
	kvr_hdr_put(frame, KVR_CONNECTED, &ids, sizeof(body), 0, sizeof(body));
	out_frame(&rt->control, &to, frame, sizeof(frame));
	CU_ASSERT_EQUAL(ring->prod.head, head);
	CU_ASSERT_EQUAL(kvr_stats_get(rt->control.in, IN_UNSENDABLE), 1);
	pipeline_turn();
	while ((o = pipeline_next(PEER_AGENT)) != NULL) {
		CU_ASSERT(o->len <= KVR_WIRE_LEAST_MAX_FRAME);
		CU_ASSERT_EQUAL(o->hdr.msg_len, sizeof(body));
		CU_ASSERT_FATAL(o->hdr.kind == KVR_LOADS && o->hdr.id - 1 < 2);
		came[o->hdr.id - 1] += o->hdr.frag_len;
	}
	CU_ASSERT_EQUAL(came[0], sizeof(body));
	CU_ASSERT_EQUAL(came[1], sizeof(body));
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->ctl_mbufs), 0);
	pipeline_stop();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(lcores_continue_without_control),
			       KVR_CASE(the_rings_of_control_have_one_writer),
			       KVR_CASE(control_frees_no_frame), CU_TEST_INFO_NULL};

	if (threads_used() == NULL)
		threads_use(&threads_maps[4]);
	return kvr_test_run("ring_preemption", tests);
}
