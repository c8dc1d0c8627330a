/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Row 17: control is preempted between the two steps of a ring operation, and stays away. Whoever
 * wrote to the same ring would wait for it; packet lcores go on, as they never write where it does.
 */
#include "peers.h"
#include "threads.h"

#include "control/control.h"
#include "kvr_rings.h"
#include "lcore/out.h"

#define REQUESTS 400u
#define AHEAD	 32u

/* A ring in which somebody has moved the head and not yet the tail: one side of it, as its kind
 * has it. */
struct stopped {
	volatile uint32_t *head;
	struct rte_ring_rts_headtail *rts; /* or NULL */
};

static struct stopped all[THREADS_MAX + 8];
static uint32_t n_stopped;

static void move(const struct stopped *s, uint32_t by)
{
	if (s->rts == NULL) {
		*s->head += by;
		return;
	}
	s->rts->head.val.pos += by;
	s->rts->head.val.cnt += by;
}

static void stop_at(volatile uint32_t *head, struct rte_ring_rts_headtail *rts)
{
	CU_ASSERT_FATAL(n_stopped < RTE_DIM(all));
	all[n_stopped] = (struct stopped){head, rts};
	move(&all[n_stopped++], 1);
}

static void stop_writing(struct rte_ring *r)
{
	const bool rts = rte_ring_get_prod_sync_type(r) == RTE_RING_SYNC_MT_RTS;

	stop_at(&r->prod.head, rts ? &r->rts_prod : NULL);
}

static void stop_reading(struct rte_ring *r)
{
	const bool rts = rte_ring_get_cons_sync_type(r) == RTE_RING_SYNC_MT_RTS;

	/* There is something to read: the head of a reader is never ahead of the writers' tail. */
	CU_ASSERT_FATAL(!rte_ring_empty(r));
	stop_at(&r->cons.head, rts ? &r->rts_cons : NULL);
}

/* It is back, and does what it was about to do after all: nothing. */
static void go_on(void)
{
	while (n_stopped > 0)
		move(&all[--n_stopped], UINT32_MAX);
}

/* Pools are of DPDK's usual kind under ThreadSanitizer: threads_tsan.c. */
#ifdef __SANITIZE_THREAD__
#define SHARED false
#else
#define SHARED kvr_rings_cpus_shared()
#endif

static void *taken; /* from the buffers for control, by an lcore */

/* Lcores that share a CPU wait for each other no more than for control. */
static void an_lcore_is_stopped(void)
{
	struct rte_ring *r = rt->ctl_bufs->pool_data;
	uint32_t head, n;

	CU_ASSERT_EQUAL_FATAL(rte_ring_get_cons_sync_type(r), RTE_RING_SYNC_MT_RTS);
	CU_ASSERT_EQUAL(__rte_ring_rts_move_cons_head(r, 1, RTE_RING_QUEUE_FIXED, &head, &n), 1);
	__rte_ring_dequeue_elems(r, head, &taken, sizeof(taken), 1);
}

static void the_lcore_goes_on(void)
{
	struct rte_ring *r = rt->ctl_bufs->pool_data;

	__rte_ring_rts_update_tail(&r->rts_cons);
	rte_mempool_put(rt->ctl_bufs, taken);
}

/* In every ring it writes to or reads from, at once. */
static void control_is_stopped(void)
{
	struct rte_ring *out = rt->control.out, *bufs = rt->ctl_bufs->pool_data,
			*mbufs = rt->control.mbufs->pool_data;

	for (uint32_t i = 0; i < rt->n_lcores; i++)
		stop_writing(rt->lcore[i]->calls);
	stop_writing(out);
	stop_writing(bufs);  /* gives back a frame it has read */
	stop_reading(mbufs); /* takes a frame to answer with */
}

static void route(uint64_t id)
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

/* Agent and client answer what has come out. @return requests that ended. */
static uint32_t answer(void)
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

/* HELLOs of nobody we know: ingress takes buffers of control's, and fills its ring, but no more. */
static void hello(uint64_t worker)
{
	const struct kvr_wire_ids ids = {.source = worker, .id = 1, .epoch = 1};
	const struct kvr_wire_hello h = {
		.block_size = 4, .dp_size = 1, .total_kv_blocks = 100, .max_frame = 1432};
	uint8_t tlv[64], buf[512];
	struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};

	kvr_hint_put_str(&hints, KVR_HINT_POOL, "a");
	pipeline_send(PEER_OTHER, buf, (size_t)kvr_put_hello(buf, sizeof(buf), &ids, h, &hints));
}

static void lcores_go_on_without_control(void)
{
	uint32_t sent = 0, ended = 0;
	uint64_t since = 0;

	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(9, 1, "a", 2));
	pipeline_flush();
	control_is_stopped();
	if (SHARED)
		an_lcore_is_stopped();
	threads_run();
	while (ended < REQUESTS) {
		while (sent < REQUESTS && sent - ended < AHEAD) {
			hello(100 + sent);
			route(1000 + sent++);
		}
		ended += answer();
		threads_wait(&since); /* aborts when they wait for control */
	}
	threads_pause();
	go_on();
	if (SHARED)
		the_lcore_goes_on();
	pipeline_turn();
	pipeline_flush();
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_FINISHED), REQUESTS);
	CU_ASSERT_TRUE(pipeline_balanced());
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->ctl_mbufs), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->ctl_bufs), 0);
	pipeline_stop();
}

static const char *kind(const struct rte_mempool *mp)
{
	return rte_mempool_get_ops(mp->ops_index)->name;
}

/* What the run above cannot tell: nobody else writes to these now, nor may at any other time. */
static void the_rings_of_control_have_one_writer(void)
{
	pipeline_start(1);
	CU_ASSERT_EQUAL(rte_ring_get_prod_sync_type(rt->control.out), RTE_RING_SYNC_ST);
	CU_ASSERT_EQUAL(rte_ring_get_cons_sync_type(rt->control_ring), RTE_RING_SYNC_ST);
	CU_ASSERT_STRING_EQUAL(kind(rt->ctl_bufs),
			       kvr_rings_cpus_shared() ? "ring_mt_rts" : "ring_sp_mc");
	CU_ASSERT_STRING_EQUAL(kind(rt->control.mbufs),
			       kvr_rings_cpus_shared() ? "ring_mt_rts" : "ring_mp_sc");
	for (uint32_t i = 0; i < rt->n_lcores; i++) {
		const struct lcore *lc = rt->lcore[i];

		CU_ASSERT_EQUAL(rte_ring_get_prod_sync_type(lc->calls), RTE_RING_SYNC_ST);
		CU_ASSERT_PTR_NOT_EQUAL(lc->out, rt->control.out);
		CU_ASSERT_PTR_NOT_EQUAL(lc->mbufs, rt->control.mbufs);
	}
	/* As long as all it has: it never has to give one back. */
	CU_ASSERT(rte_ring_get_capacity(rt->control.out) >= rt->ctl_mbufs->size);
	CU_ASSERT(rte_ring_get_capacity(rt->control_ring) >= rt->ctl_bufs->size);
	pipeline_stop();
}

/* Longer than the path takes: cut when the kind may be, else counted, but no frame of it is made
 * that would have to be given back. */
static void control_gives_no_frame_back(void)
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
	CU_TestInfo tests[] = {{"preempted", lcores_go_on_without_control},
			       {"one writer", the_rings_of_control_have_one_writer},
			       {"cut", control_gives_no_frame_back},
			       CU_TEST_INFO_NULL};

	if (threads_used() == NULL)
		threads_use(&threads_maps[4]);
	return kvr_test_run("ring_preemption", tests);
}
