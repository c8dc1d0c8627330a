/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fragmented messages through the whole router: floods starve no client, a message that is too
 * large is rejected on its first fragment, and missing fragments are requested.
 */
#include "lcores.h"

#include <string.h>

#include "kvr_frame.h"
#include "kvr_put.h"
#include "kvr_test.h"

#define WORKER	31u
#define UNIT	1384u
#define HEADER	sizeof(struct kvr_wire_hdr)
#define MSG_MAX 1024u /* frames of a handmade message */

static void begin_fragments(void)
{
	pipeline_start(1);
	CU_ASSERT_TRUE_FATAL(pipeline_hello(WORKER, 1, "a", 1));
	pipeline_flush();
}

static void end_fragments(void)
{
	pipeline_turn();
	lcores_drop_messages();
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
	CU_ASSERT_EQUAL(rt->pool[0].live.held, 0);
	CU_ASSERT_TRUE(pipeline_balanced());
	pipeline_stop();
}

/* ---- a ROUTE by hand: tokens in fragments ---- */

static struct {
	uint8_t frame[MSG_MAX][KVR_WIRE_DEF_FRAME];
	uint32_t len[MSG_MAX];
	uint32_t n;
} msg;

static void make_route(uint64_t id, uint32_t tokens, uint32_t flags)
{
	static uint32_t token[300000];
	const struct kvr_wire_ids ids = {
		.source = 77, .id = id, .epoch = 1, .msg_seq = (uint32_t)id};
	struct kvr_request_src src = {.fixed = {.pool = 5,
						.flags = flags,
						.isl = tokens,
						.max_tokens = KVR_NONE32,
						.expected_output_tokens = KVR_NONE32},
				      .tokens = token,
				      .n_tokens = tokens};
	struct kvr_slice s[KVR_REQUEST_SLICES];
	struct kvr_frag f;
	uint32_t off, part, len;

	for (uint32_t i = 0; i < tokens; i++)
		token[i] = (uint32_t)id * 1000 + i;
	len = kvr_request_build(&src, s);
	CU_ASSERT_FATAL(kvr_frag_init(&f, KVR_ROUTE, &ids, len, KVR_WIRE_DEF_FRAME) == 0 &&
			f.n_frames <= MSG_MAX);
	for (msg.n = 0; kvr_frag_next(&f, msg.frame[msg.n], &off, &part); msg.n++) {
		kvr_slices_copy(s, KVR_REQUEST_SLICES, off, part, msg.frame[msg.n] + HEADER);
		msg.len[msg.n] = (uint32_t)HEADER + part;
	}
}

static void send_frame(uint32_t i)
{
	pipeline_send(PEER_CLIENT, msg.frame[i], msg.len[i]);
}

static uint32_t count_frames(uint32_t to, uint8_t kind)
{
	uint32_t n = 0;

	while (pipeline_expect(to, kind) != NULL)
		n++;
	return n;
}

/* The router stops while it reads a long message. */
static void a_message_half_read_at_the_end_is_freed(void)
{
	begin_fragments();
	/* One of several lcores may read all of it between two checks: then send another. */
	for (uint32_t id = 1; id <= 20 && !lcores_are_reading(); id++) {
		make_route(id, 60000, 0);
		for (uint32_t i = 0; i < msg.n; i++)
			send_frame(i);
		for (uint32_t i = 0; i < 2000 && !lcores_are_reading() &&
				     pipeline_expect(PEER_CLIENT, KVR_ACCEPTED) == NULL;
		     i++)
			pipeline_step();
	}
	CU_ASSERT_TRUE(lcores_are_reading());
	pipeline_cut();
}

/* The fragments named in the last MISSING of the router, or NULL. */
static const struct kvr_wire_missing *take_missing(uint64_t *word)
{
	const struct out *o = pipeline_expect(PEER_CLIENT, KVR_MISSING);
	const struct kvr_wire_missing *m;

	if (o == NULL)
		return NULL;
	m = (const void *)(&o->hdr + 1);
	CU_ASSERT_EQUAL(kvr_body_check(KVR_MISSING, m, o->hdr.msg_len, NULL), 0);
	memcpy(word, m + 1, m->n_words * 8u);
	return m;
}

/* All frames of the last DISPATCH were sent. @return its handle. */
static uint64_t take_dispatch_of(uint32_t bytes)
{
	const struct out *o;
	uint64_t h = 0;
	uint32_t n = 0;

	while ((o = pipeline_expect(PEER_AGENT, KVR_DISPATCH)) != NULL) {
		h = o->hdr.handle;
		n += o->hdr.frag_len;
	}
	CU_ASSERT_EQUAL(n, bytes);
	return h;
}

/* The engine answers with one item, which the client acknowledges. */
static void finish_dispatched(uint64_t id, uint64_t handle)
{
	const struct kvr_wire_ids ids = {.source = 77, .id = id, .handle = handle, .epoch = 1};
	const struct kvr_wire_response w = {.flags = KVR_RESP_F_FIN, .cached_tokens = KVR_NONE32};
	const struct kvr_wire_response_ack ack = {.next_seq = 1, .flags = KVR_RACK_F_FIN};
	uint8_t buf[256];

	pipeline_send(
		PEER_AGENT, buf,
		(size_t)kvr_put_response(buf, sizeof(buf), &ids, w, (struct kvr_slice){NULL, 0}));
	pipeline_turn();
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_CLIENT, KVR_RESPONSE));
	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_response_ack(buf, sizeof(buf), &ids, &ack));
	pipeline_turn();
}

/* ---- floods ---- */

static void send_heartbeat(void)
{
	const struct kvr_wire_ids ids = {.source = WORKER, .id = 3, .epoch = 1};
	const struct kvr_wire_rank_load load = {.kv_used_blocks = UINT64_MAX};
	uint8_t buf[256];

	pipeline_send(PEER_AGENT, buf,
		      (size_t)kvr_put_heartbeat(buf, sizeof(buf), &ids, &load, 1, 0, 0));
	pipeline_turn();
	CU_ASSERT_PTR_NOT_NULL(pipeline_expect(PEER_AGENT, KVR_HEARTBEAT_ACK));
}

/* A small request runs to its end. */
static void complete_request(uint64_t id)
{
	pipeline_route(id, id * 100, 4, 0, NULL);
	finish_dispatched(id, take_dispatch_of(sizeof(struct kvr_wire_request) + 4 * 8 + 8));
}

/* Send @p n incomplete messages of @p frames fragments each. */
static void send_incomplete(uint32_t from, uint32_t n, uint32_t frames, uint64_t first_id)
{
	uint8_t f[HEADER + UNIT] = {0};

	for (uint32_t i = 0; i < n; i++) {
		const struct kvr_wire_ids ids = {
			.source = 666, .id = first_id + i / (frames - 1), .epoch = 1};

		kvr_hdr_put(f, KVR_ROUTE, &ids, frames * UNIT, i % (frames - 1) * UNIT, UNIT);
		pipeline_send(from, f, sizeof(f));
		if (i % 256 == 255)
			pipeline_turn();
	}
	pipeline_turn();
	pipeline_flush();
}

static uint32_t count_free_buffers(void)
{
	struct kvr_port_info info;

	kvr_port_info(rt->port[0], &info);
	return info.mbufs_free;
}

/* A small configuration has that many buffers; floods in several rounds. */
static void check_flood(uint32_t ports, uint8_t hosts, uint32_t frames)
{
	uint64_t id = 1;

	pipeline_mbufs = lcores_mbufs(8191);
	begin_fragments();
	pipeline_mbufs = PIPELINE_MBUFS;
	for (uint32_t round = 0; round < 6; round++) {
		for (uint32_t k = 0; k < ports * hosts; k++) {
			pipeline_host = (uint8_t)(100 + k % hosts);
			send_incomplete(5000 + k / hosts, 6600 / (ports * hosts), frames,
					round * 10000 + k);
			if (k % 4 == 0) {
				pipeline_host = 2;
				send_heartbeat();
				complete_request(id++);
			}
		}
		pipeline_host = 2;
		CU_ASSERT(count_free_buffers() > rt->sizes.reserve);
		/*
		 * One address with many ports, whose frames reach several lcores, is bounded; many
		 * addresses may use everything.
		 */
		CU_ASSERT(lcores_count_held() <=
			  (hosts > 1 ? rt->sizes.reassembly_lcore : rt->sizes.reassembly_source) *
				  (ports * hosts > 1 ? rt->conf.n_ingress : 1));
		send_heartbeat();
		complete_request(id++);
		/* A large message of an honest client evicts older ones. */
		make_route(id, rt->sizes.max_frames * UNIT / 4 - 100, 0);
		for (uint32_t i = 0; i < msg.n; i++)
			send_frame(i);
		pipeline_turn();
		finish_dispatched(id, take_dispatch_of((msg.n - 1) * UNIT + msg.len[msg.n - 1] -
						       (uint32_t)HEADER));
		id++;
		pipeline_flush();
	}
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_ROUTED), id - 1);
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_FINISHED), id - 1);
	end_fragments();
}

static void one_socket_uses_only_its_quota(void)
{
	check_flood(1, 1, 4000);
	check_flood(1, 1, 3);
}

static void ports_are_one_source(void)
{
	check_flood(60, 1, 100);
}

static void many_addresses_evict_each_other(void)
{
	check_flood(1, 100, 100);
}

/* If buffers become scarce all the same, incomplete messages are dropped first. */
static void scarce_buffers_are_kept_for_short_frames(void)
{
	static struct rte_mbuf *m[PIPELINE_MBUFS];
	struct rte_mempool *mp;
	uint32_t n = 0, frames;

	begin_fragments();
	frames = RTE_MIN(4000, rt->sizes.max_frames);
	send_incomplete(5000, frames / 2, frames, 1);
	CU_ASSERT_EQUAL(lcores_count_held(), frames / 2);
	mp = rt->lcore[0]->mbufs;
	while (rte_mempool_avail_count(mp) > rt->sizes.low_water / 2)
		m[n++] = rte_pktmbuf_alloc(mp);
	send_incomplete(5000, 10, frames, 2);
	CU_ASSERT_EQUAL(lcores_count_held(), 0);
	CU_ASSERT(lcores_sum_counter(IN_REASM_EVICTED) > 0);
	CU_ASSERT(lcores_sum_rejected(KVR_E_REASSEMBLY_FULL) > 0);
	send_heartbeat();
	while (n > 0)
		rte_pktmbuf_free(m[--n]);
	complete_request(1);
	end_fragments();
}

/* ---- the largest message ---- */

static void a_too_large_message_is_rejected_on_its_first_fragment(void)
{
	uint8_t f[HEADER + UNIT] = {0};
	const struct kvr_wire_ids ids = {.source = 77, .id = 9, .epoch = 1};
	const struct kvr_wire_rejected *r;
	const struct out *o;
	uint32_t frames;

	pipeline_mbufs = lcores_mbufs(8191);
	begin_fragments();
	pipeline_mbufs = PIPELINE_MBUFS;
	frames = rt->sizes.max_frames;
	CU_ASSERT(rt->sizes.max_message >= frames * UNIT);
	kvr_hdr_put(f, KVR_ROUTE, &ids, frames * UNIT + 8, 0, UNIT);
	pipeline_send(PEER_CLIENT, f, sizeof(f));
	pipeline_turn();
	o = pipeline_expect(PEER_CLIENT, KVR_REJECTED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	r = (const void *)(&o->hdr + 1);
	CU_ASSERT_EQUAL(r->code, KVR_E_TOO_LARGE);
	CU_ASSERT_EQUAL(r->detail[0], frames * UNIT + 8);
	CU_ASSERT_EQUAL(r->detail[1], frames * UNIT);
	/* Further fragments get no answer; each would be a copy of the first. */
	kvr_hdr_put(f, KVR_ROUTE, &ids, frames * UNIT + 8, UNIT, UNIT);
	pipeline_send(PEER_CLIENT, f, sizeof(f));
	pipeline_turn();
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_REJECTED));
	CU_ASSERT_EQUAL(lcores_count_held(), 0);
	end_fragments();
}

/*
 * A rejected size is charged as a request, not as an invalid frame, so it gets an answer at any
 * rate of invalid frames.
 */
static void a_too_large_message_is_answered_at_any_rate(void)
{
	uint8_t f[HEADER + UNIT] = {0};
	const char *before = pipeline_port;
	struct kvr_wire_ids ids = {.source = 77, .epoch = 1};

	pipeline_port = "cookie = off\nsource_answers = 1\n";
	pipeline_mbufs = lcores_mbufs(8191);
	begin_fragments();
	pipeline_mbufs = PIPELINE_MBUFS;
	pipeline_port = before;
	CU_ASSERT((rt->sizes.max_frames + 1) * UNIT <= KVR_WIRE_MAX_MESSAGE);
	for (ids.id = 1; ids.id <= 5; ids.id++) {
		for (uint32_t off = 0; off <= UNIT; off += UNIT) {
			kvr_hdr_put(f, KVR_ROUTE, &ids, (rt->sizes.max_frames + 1) * UNIT, off,
				    UNIT);
			pipeline_send(PEER_CLIENT, f, sizeof(f));
		}
		pipeline_turn();
	}
	CU_ASSERT_EQUAL(count_frames(PEER_CLIENT, KVR_REJECTED), 5);
	CU_ASSERT_EQUAL(lcores_sum_counter(IN_REJECTED), 10);
	CU_ASSERT_EQUAL(lcores_sum_counter(IN_REJECTION_SUPPRESSED), 0);
	CU_ASSERT_EQUAL(lcores_sum_rejected(KVR_E_TOO_LARGE), 10);
	end_fragments();
}

/* Their fragments alternate, from one address. */
static void two_largest_messages_fit_at_once(void)
{
	static uint8_t first[MSG_MAX][KVR_WIRE_DEF_FRAME];
	static uint32_t len[MSG_MAX];
	uint32_t n, bytes;

	pipeline_mbufs = lcores_mbufs(8191);
	begin_fragments();
	pipeline_mbufs = PIPELINE_MBUFS;
	make_route(1, (rt->sizes.max_frames * UNIT - 88) / 8 * 2, 0);
	CU_ASSERT_EQUAL(msg.n, rt->sizes.max_frames);
	n = msg.n;
	bytes = (n - 1) * UNIT + msg.len[n - 1] - (uint32_t)HEADER;
	memcpy(first, msg.frame, sizeof(first));
	memcpy(len, msg.len, sizeof(len));
	make_route(2, (rt->sizes.max_frames * UNIT - 88) / 8 * 2, 0);
	for (uint32_t i = 0; i < n; i++) {
		pipeline_send(PEER_CLIENT, first[i], len[i]);
		send_frame(i);
	}
	pipeline_turn();
	CU_ASSERT_EQUAL(count_frames(PEER_CLIENT, KVR_ACCEPTED), 2);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_CLIENT, KVR_REJECTED));
	take_dispatch_of(2 * bytes);
	CU_ASSERT_EQUAL(kvr_stats_get(rt->pool[0].count, PC_ROUTED), 2);
	for (uint64_t id = 1; id <= 2; id++) {
		const struct kvr_wire_ids ids = {.source = 77, .id = id, .epoch = 1};
		uint8_t buf[64];

		pipeline_send(PEER_CLIENT, buf,
			      (size_t)kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &ids));
	}
	pipeline_turn();
	end_fragments();
}

/* ---- missing fragments ---- */

static void the_router_requests_missing_fragments(void)
{
	const struct kvr_wire_missing *m;
	uint64_t word[KVR_REASM_LACK_WORDS];

	begin_fragments();
	make_route(1, 200000, 0); /* 578 frames */
	for (uint32_t i = 0; i < msg.n; i++)
		if (i != 0 && i != 70 && i != msg.n - 1)
			send_frame(i);
	pipeline_turn();
	CU_ASSERT_PTR_NULL(take_missing(word));
	pipeline_advance(5);
	m = take_missing(word);
	CU_ASSERT_PTR_NOT_NULL_FATAL(m);
	CU_ASSERT_EQUAL(m->kind, KVR_ROUTE);
	CU_ASSERT_EQUAL(m->msg_seq, 1);
	CU_ASSERT_EQUAL(m->unit, UNIT);
	CU_ASSERT_EQUAL(m->first, 0);
	CU_ASSERT_EQUAL(word[0], 1);
	CU_ASSERT_EQUAL(word[1], 1 << 6);
	CU_ASSERT_EQUAL(word[(msg.n - 1) / 64], UINT64_C(1) << (msg.n - 1) % 64);
	pipeline_advance(500);
	CU_ASSERT_PTR_NULL(take_missing(word)); /* once: the client has sent nothing since */
	send_frame(1);				/* a frame without news */
	pipeline_turn();
	pipeline_advance(5);
	CU_ASSERT_PTR_NOT_NULL(take_missing(word));
	send_frame(0);
	send_frame(70);
	send_frame(msg.n - 1);
	pipeline_turn();
	CU_ASSERT_EQUAL(lcores_sum_counter(IN_REASSEMBLED), 1);
	CU_ASSERT_EQUAL(lcores_sum_counter(IN_MISSING_SENT), 2);
	finish_dispatched(1, take_dispatch_of(88 + 800000));
	end_fragments();
}

/*
 * The ACCEPTED was lost: the client sends the first fragment again, which is answered like PROBE
 * and begins nothing.
 */
static void a_copy_of_a_complete_message_is_answered_as_probe(void)
{
	const struct out *o;

	begin_fragments();
	make_route(1, 2000, 0);
	for (uint32_t i = 0; i < msg.n; i++)
		send_frame(i);
	pipeline_turn();
	CU_ASSERT_EQUAL(count_frames(PEER_CLIENT, KVR_ACCEPTED), 1);
	((struct kvr_wire_request *)(msg.frame[0] + HEADER))->flags |= KVR_REQ_F_RESEND;
	for (uint32_t i = msg.n; i-- > 0;)
		send_frame(i);
	pipeline_turn();
	o = pipeline_expect(PEER_CLIENT, KVR_ACCEPTED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(((const struct kvr_wire_accepted *)(&o->hdr + 1))->state,
			KVR_STATE_DISPATCHED);
	CU_ASSERT_EQUAL(count_frames(PEER_CLIENT, KVR_ACCEPTED), 0);
	CU_ASSERT_EQUAL(lcores_count_held(), 0);
	CU_ASSERT_EQUAL(lcores_sum_counter(IN_REASSEMBLED), 1);
	finish_dispatched(1, take_dispatch_of(88 + 8000));
	end_fragments();
}

/* Fragments of a DISPATCH that a worker lost come from the router, not from the client. */
static void dispatch_is_kept_until_it_is_acknowledged(void)
{
	struct kvr_wire_missing m = {.kind = KVR_DISPATCH, .n_words = 1, .unit = UNIT};
	struct kvr_wire_ids ids = {.source = 77, .id = 1, .epoch = 1};
	const struct kvr_wire_dispatch_ack taken = {0};
	const uint64_t lost = 1 << 2 | 1 << 5;
	uint8_t buf[256];
	const struct out *o;

	begin_fragments();
	make_route(1, 2000, 0);
	for (uint32_t i = 0; i < msg.n; i++)
		send_frame(i);
	pipeline_turn();
	o = pipeline_expect(PEER_CLIENT, KVR_ACCEPTED);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(((const struct kvr_wire_accepted *)(&o->hdr + 1))->flags, KVR_ACC_F_KEPT);
	CU_ASSERT_EQUAL(rt->pool[0].live.held, msg.n);
	o = pipeline_expect(PEER_AGENT, KVR_DISPATCH);
	ids.handle = o->hdr.handle;
	m.msg_seq = o->hdr.msg_seq;
	m.msg_len = o->hdr.msg_len;
	pipeline_flush();
	pipeline_send(PEER_AGENT, buf,
		      (size_t)kvr_put_message(buf, sizeof(buf), KVR_MISSING, &ids,
					      (struct kvr_slice){&m, sizeof(m)},
					      (struct kvr_slice){&lost, sizeof(lost)}));
	pipeline_turn();
	o = pipeline_expect(PEER_AGENT, KVR_DISPATCH);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(o->hdr.frag_off, 2 * UNIT);
	CU_ASSERT_EQUAL(memcmp(&o->hdr + 1, msg.frame[2] + HEADER, UNIT), 0);
	o = pipeline_expect(PEER_AGENT, KVR_DISPATCH);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(o->hdr.frag_off, 5 * UNIT);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_DISPATCH));
	/* Silence: the first fragment is retransmitted with backoff. */
	pipeline_advance(20);
	o = pipeline_expect(PEER_AGENT, KVR_DISPATCH);
	CU_ASSERT_PTR_NOT_NULL_FATAL(o);
	CU_ASSERT_EQUAL(o->hdr.frag_off, 0);
	pipeline_advance(20);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_DISPATCH));
	pipeline_advance(20);
	CU_ASSERT_EQUAL(count_frames(PEER_AGENT, KVR_DISPATCH), 1);
	/* Acknowledged: no retransmission, and nothing kept. */
	pipeline_send(PEER_AGENT, buf,
		      (size_t)kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &taken));
	pipeline_turn();
	CU_ASSERT_EQUAL(rt->pool[0].live.held, 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->pool[0].jobs), 0);
	pipeline_advance(2000);
	CU_ASSERT_PTR_NULL(pipeline_expect(PEER_AGENT, KVR_DISPATCH));
	finish_dispatched(1, ids.handle);
	end_fragments();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(one_socket_uses_only_its_quota),
			       KVR_CASE(ports_are_one_source),
			       KVR_CASE(many_addresses_evict_each_other),
			       KVR_CASE(scarce_buffers_are_kept_for_short_frames),
			       KVR_CASE(a_too_large_message_is_rejected_on_its_first_fragment),
			       KVR_CASE(a_too_large_message_is_answered_at_any_rate),
			       KVR_CASE(two_largest_messages_fit_at_once),
			       KVR_CASE(the_router_requests_missing_fragments),
			       KVR_CASE(a_copy_of_a_complete_message_is_answered_as_probe),
			       KVR_CASE(a_message_half_read_at_the_end_is_freed),
			       KVR_CASE(dispatch_is_kept_until_it_is_acknowledged),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("fragments", tests);
}
