/* SPDX-License-Identifier: BSD-3-Clause */
#include "load.h"

#include <string.h>

#include "frame.h"
#include "kvr_message.h"
#include "kvr_put.h"
#include "kvr_test.h"

/*
 * The simulated engines and clients on a link that only keeps what they send: the test plays the
 * router, rightly and wrongly, and looks at what they notice. Two prefill engines of two ranks
 * (the first publishes a bootstrap address) and two decode engines, or four aggregated ones.
 */

enum { P_BOOTSTRAP, P_SYNC, D_FIRST, D_SECOND };
#define SECOND 1000000000ull /* cycles: the clock is the test's */
#define SENT   256u

static struct load load;
static struct load_link fake_link;
static struct load_options opt;
static struct kvr_stats *stats;
static struct {
	uint8_t bytes[1500];
	uint16_t from, len;
} sent[SENT];
static uint32_t n_sent;

/* ---- the link ---- */

void *load_link_frame(struct load_link *k, uint16_t from, uint16_t len, uint64_t *stamp)
{
	if (stamp != NULL && *stamp == 0)
		*stamp = load.now;
	if (n_sent == SENT || len > sizeof(sent[0].bytes))
		return NULL;
	sent[n_sent].from = from;
	sent[n_sent].len = len;
	k->n_tx = 1;
	return sent[n_sent++].bytes;
}

/* ---- the rig ---- */

static uint64_t count(enum load_counter c)
{
	return kvr_stats_get(load.row, c);
}

static uint64_t violations(void)
{
	uint64_t sum = 0;

	for (unsigned int i = LOAD_V_MAX_TOKENS; i <= LOAD_V_SESSION; i++)
		sum += count(i);
	return sum + count(LOAD_CORRUPT) + count(LOAD_MISPLACED);
}

static void begin(int argc, char **argv)
{
	const struct load_workload_cfg cfg = {.block_size = 16,
					      .rate = 1,
					      .turns = 4,
					      .conversations = 2,
					      .requests = 64,
					      .user_tokens = 64,
					      .osl = 32,
					      .max_hashes = 1 << 16};
	char err[200] = "";

	memset(&load, 0, sizeof(load));
	CU_ASSERT_EQUAL_FATAL(load_options_parse(&opt, argc, argv, err, sizeof(err)), 1);
	opt.max_inflight = 16;
	opt.blocks_per_rank = 256;
	load.work = load_workload_create(&cfg);
	stats = kvr_stats_create(&load_stats_def, 1);
	CU_ASSERT_FATAL(load.work != NULL && stats != NULL);
	load.row = kvr_stats_row(stats, 0);
	CU_ASSERT_EQUAL_FATAL(load_setup(&load, &opt, err, sizeof(err)), 0);
	load.link = &fake_link;
	load.hz = SECOND;
	load.us = 1000;
	load.now = 100 * SECOND;
	load.max_frame = KVR_WIRE_DEF_FRAME;
	load.max_event_blocks = 100;
	for (uint32_t i = 0; i < load.n_engines; i++)
		load.engines[i].state = LOAD_W_SERVING;
	n_sent = 0;
}

#define BEGIN(...)                                                                                 \
	do {                                                                                       \
		char *argv_[] = {(char *)"load", __VA_ARGS__};                                     \
		begin((int)RTE_DIM(argv_), argv_);                                                 \
	} while (0)
#define PAIR (char *)"--disagg", (char *)"2:2", (char *)"--instant", (char *)"--items", (char *)"2"

static void end(void)
{
	load_teardown(&load);
	kvr_stats_destroy(stats);
	load_workload_destroy(load.work);
}

/* Begin a request; its slot. What it sent is forgotten. */
static uint32_t route(uint64_t session, uint32_t turn, uint8_t action)
{
	const uint32_t slot = load.free[load.n_free - 1];

	load_client_start(&load, load_workload_turn(load.work, 0, turn), load.now, session, action);
	n_sent = 0;
	return slot;
}

/* What the router puts into a DISPATCH; a test changes what it wants wrong. */
struct dispatch {
	uint32_t slot, engine, rank, flags, max_tokens;
	uint8_t phase;
	uint64_t handle;
	uint64_t lost; /* pieces that do not arrive, a bit each */
	struct kvr_hint_buf hints;
	uint8_t room[256];
};

static struct dispatch prefill(uint32_t slot, uint32_t engine, uint32_t rank)
{
	return (struct dispatch){.slot = slot,
				 .engine = engine,
				 .rank = rank,
				 .flags = KVR_REQ_F_PREFILL_LEG,
				 .phase = KVR_ROLE_PREFILL,
				 .max_tokens = 1,
				 .handle = 77};
}

static struct dispatch decode(uint32_t slot, uint32_t engine)
{
	return (struct dispatch){.slot = slot,
				 .engine = engine,
				 .flags = KVR_REQ_F_DECODE_LEG,
				 .phase = KVR_ROLE_DECODE,
				 .max_tokens = load.slots[slot].prompt->osl,
				 .handle = 78};
}

static struct kvr_hint_buf *hints(struct dispatch *d)
{
	d->hints.p = d->room;
	d->hints.cap = sizeof(d->room);
	return &d->hints;
}

static void add_room(struct dispatch *d, uint64_t room)
{
	kvr_hint_put_bootstrap(hints(d), room, load_bootstrap_port(&load, P_BOOTSTRAP), opt.ip);
}

static void add_worker(struct dispatch *d, uint32_t engine)
{
	kvr_hint_put_u64(hints(d), KVR_HINT_PREFILL_WORKER, load.engines[engine].worker);
}

static void deliver(struct dispatch *d)
{
	const struct load_slot *s = &load.slots[d->slot];
	static uint8_t frame[4096];
	struct kvr_slice slices[KVR_REQUEST_SLICES];
	struct kvr_request_src q = {.fixed = {.phase = d->phase,
					      .flags = d->flags,
					      .isl = s->prompt->isl,
					      .max_tokens = d->max_tokens,
					      .expected_output_tokens = KVR_NONE32,
					      .worker = load.engines[d->engine].worker,
					      .dp_rank = d->rank},
				    .hashes = s->prompt->hashes,
				    .n_hashes = s->prompt->n_blocks,
				    .hints = d->room,
				    .hints_len = d->hints.len};
	const struct kvr_wire_ids ids = {.source = load.clients[s->client].source,
					 .id = s->id,
					 .handle = d->handle,
					 .epoch = 1,
					 .msg_seq = 1};
	const uint32_t len = kvr_request_build(&q, slices);
	const uint32_t unit = 96; /* the fixed part, and 8 bytes */

	/* In pieces: hints may stand in several. */
	for (uint32_t off = 0; off < len; off += unit) {
		const uint32_t n = RTE_MIN(unit, len - off);

		if (off / unit < 64 && d->lost >> (off / unit) & 1)
			continue;
		kvr_hdr_put(frame, KVR_DISPATCH, &ids, len, off, (uint16_t)n);
		kvr_slices_copy(slices, KVR_REQUEST_SLICES, off, n,
				frame + sizeof(struct kvr_wire_hdr));
		load_dispatch(&load, (const struct kvr_wire_hdr *)frame, d->engine, load.now);
	}
}

/* Frame number @n of a kind that was sent, or NULL. */
static const struct kvr_wire_hdr *find(uint8_t kind, uint32_t n)
{
	for (uint32_t i = 0; i < n_sent; i++) {
		const struct kvr_wire_hdr *h = (const struct kvr_wire_hdr *)sent[i].bytes;

		if (h->kind == kind && n-- == 0)
			return h;
	}
	return NULL;
}

static const struct kvr_wire_response *item(uint32_t n)
{
	const struct kvr_wire_hdr *h = find(KVR_RESPONSE, n);

	return h != NULL ? kvr_frame_body(h) : NULL;
}

/* ---- legs ---- */

static void a_prefill_leg_answers_one_item_with_its_result(void)
{
	struct load_transfer want;
	struct dispatch d;

	BEGIN(PAIR);
	d = prefill(route(0, 0, 0), P_SYNC, 1);
	deliver(&d);
	CU_ASSERT_PTR_NOT_NULL_FATAL(item(0));
	CU_ASSERT_EQUAL(item(0)->flags, KVR_RESP_F_FIN);
	CU_ASSERT_EQUAL(item(0)->generated_tokens, 1);
	CU_ASSERT_PTR_NULL(item(1));
	CU_ASSERT_EQUAL(find(KVR_RESPONSE, 0)->handle, 77);
	want = load_pair_result(&load, d.slot);
	CU_ASSERT_TRUE(load_transfer_is(item(0) + 1, item(0)->data_len, &want));
	CU_ASSERT_EQUAL(want.worker, load.engines[P_SYNC].worker);
	CU_ASSERT_EQUAL(want.dp_rank, 1);
	CU_ASSERT_EQUAL(violations(), 0);
	end();
}

static void a_decode_leg_waits_for_the_room_of_its_prefill_leg(void)
{
	struct dispatch p, d;

	BEGIN(PAIR);
	d = decode(route(0, 0, 0), D_FIRST);
	add_worker(&d, P_BOOTSTRAP);
	add_room(&d, 41);
	deliver(&d);
	CU_ASSERT_PTR_NULL(item(0));
	CU_ASSERT_PTR_NOT_NULL(find(KVR_DISPATCH_ACK, 0));
	p = prefill(d.slot, P_BOOTSTRAP, 1);
	add_room(&p, 41);
	deliver(&p);
	CU_ASSERT_PTR_NOT_NULL_FATAL(item(2)); /* the result, and two items of the answer */
	CU_ASSERT_EQUAL(item(2)->flags, KVR_RESP_F_FIN);
	CU_ASSERT_EQUAL(count(LOAD_TRANSFERS), 1);
	CU_ASSERT_EQUAL(violations(), 0);
	end();
}

static void a_decode_leg_that_waits_in_vain_ends_with_an_error(void)
{
	struct dispatch p, d;

	BEGIN(PAIR);
	d = decode(route(0, 0, 0), D_FIRST);
	add_worker(&d, P_BOOTSTRAP);
	add_room(&d, 41);
	deliver(&d);
	p = prefill(d.slot, P_BOOTSTRAP, 1);
	add_room(&p, 43); /* of the right rank, but another room */
	deliver(&p);
	load.now += 4 * SECOND;
	load_engine_check(&load, d.slot);
	CU_ASSERT_EQUAL(count(LOAD_TRANSFER_TIMEOUTS), 0);
	load.now += 2 * SECOND;
	n_sent = 0;
	load_engine_check(&load, d.slot);
	CU_ASSERT_EQUAL(count(LOAD_TRANSFER_TIMEOUTS), 1);
	CU_ASSERT_EQUAL(count(LOAD_V_ROOM), 1);
	CU_ASSERT_PTR_NOT_NULL_FATAL(item(1)); /* behind that of the prefill leg, again */
	CU_ASSERT_EQUAL(item(1)->flags, KVR_RESP_F_FIN | KVR_RESP_F_ERROR);
	CU_ASSERT_EQUAL(item(1)->data_len, 0);
	end();
}

static void a_result_is_verified_to_the_byte(void)
{
	struct load_transfer t;
	struct dispatch p, d;

	for (uint32_t bad = 0; bad < 4; bad++) {
		BEGIN(PAIR);
		p = prefill(route(0, 0, 0), P_SYNC, 0);
		deliver(&p);
		t = load_pair_result(&load, p.slot);
		t.n_blocks ^= bad == 1;
		d = decode(p.slot, D_SECOND);
		add_worker(&d, bad == 3 ? P_BOOTSTRAP : P_SYNC);
		if (bad != 2)
			kvr_hint_put(hints(&d), KVR_HINT_PREFILL_RESULT, &t, sizeof(t), NULL, 0);
		deliver(&d);
		CU_ASSERT_EQUAL(count(LOAD_TRANSFERS), bad == 0);
		CU_ASSERT_EQUAL(count(LOAD_V_RESULT), bad != 0);
		CU_ASSERT_PTR_NOT_NULL(item(2)); /* it goes on either way */
		end();
	}
}

static void a_result_cannot_come_before_the_prefill_has_ended(void)
{
	struct load_transfer t;
	struct dispatch p, d;

	BEGIN((char *)"--disagg", (char *)"2:2");
	p = prefill(route(0, 0, 0), P_SYNC, 0);
	for (uint32_t run = 0; run < 2; run++) {
		deliver(&p);
		t = load_pair_result(&load, p.slot);
		d = decode(p.slot, D_FIRST);
		d.handle += run;
		add_worker(&d, P_SYNC);
		kvr_hint_put(hints(&d), KVR_HINT_PREFILL_RESULT, &t, sizeof(t), NULL, 0);
		deliver(&d);
		CU_ASSERT_EQUAL(count(LOAD_V_RESULT), 1 + run);
		load_engine_timers(&load); /* the prefill ends */
		CU_ASSERT_TRUE(load.pairs[p.slot].finished);
		p.handle += 10; /* and begins anew */
	}
	end();
}

static void whatever_is_wrong_in_a_leg_is_noticed(void)
{
	static const enum load_counter noticed[] = {
		LOAD_V_MAX_TOKENS, LOAD_V_MAX_TOKENS, LOAD_V_FLAGS,  LOAD_V_FLAGS, LOAD_V_ROOM,
		LOAD_V_HINTS,	   LOAD_V_HINTS,      LOAD_V_WORKER, LOAD_V_FLAGS};

	for (uint32_t bad = 0; bad < RTE_DIM(noticed); bad++) {
		struct dispatch p, d;

		BEGIN(PAIR);
		p = prefill(route(0, 0, 0), P_BOOTSTRAP, bad == 4 ? 0 : 1);
		d = decode(p.slot, D_FIRST);
		p.max_tokens += bad == 0;
		d.max_tokens -= bad == 1;
		p.flags |= bad == 2 ? KVR_REQ_F_DIRECT : 0;
		if (bad == 3) { /* served alone, it seems, and yet a leg */
			d.flags |= KVR_REQ_F_PREFILL_LEG;
			d.phase = KVR_ROLE_AGGREGATED;
		}
		d.phase = bad == 8 ? KVR_ROLE_AGGREGATED : d.phase;
		if (bad != 5)
			add_room(&p, 41);
		add_worker(&d, bad == 7 ? D_SECOND : P_BOOTSTRAP);
		kvr_hint_put_bootstrap(
			hints(&d), 41,
			(uint16_t)(load_bootstrap_port(&load, P_BOOTSTRAP) + (bad == 6)), opt.ip);
		deliver(&p);
		deliver(&d);
		CU_ASSERT_EQUAL(count(noticed[bad]), 1);
		CU_ASSERT_EQUAL(violations(), 1);
		end();
	}
}

static void a_leg_runs_once_however_often_it_is_dispatched(void)
{
	struct kvr_wire_response_ack ack = {1, KVR_RACK_F_FIN};
	struct kvr_wire_ids ids;
	uint8_t frame[64];
	struct dispatch p;

	BEGIN(PAIR);
	p = prefill(route(0, 0, 0), P_SYNC, 0);
	deliver(&p);
	deliver(&p);
	CU_ASSERT_PTR_NULL(item(1));
	ids = (struct kvr_wire_ids){load.clients[load.slots[p.slot].client].source,
				    load.slots[p.slot].id, 77, 1, 1};
	kvr_put_response_ack(frame, sizeof(frame), &ids, &ack);
	load_engine_frame(&load, (const struct kvr_wire_hdr *)frame, P_BOOTSTRAP);
	CU_ASSERT_EQUAL(load.pairs[p.slot].prefill.estate, LOAD_E_SENT); /* not its engine */
	load_engine_frame(&load, (const struct kvr_wire_hdr *)frame, P_SYNC);
	CU_ASSERT_EQUAL(load.pairs[p.slot].prefill.estate, LOAD_E_IDLE);
	deliver(&p);
	CU_ASSERT_PTR_NULL(item(1));
	CU_ASSERT_PTR_NOT_NULL(find(KVR_DISPATCH_ACK, 1));
	p.handle++; /* another leg: the request was routed again */
	deliver(&p);
	CU_ASSERT_PTR_NOT_NULL(item(1));
	end();
}

/* The client ends its request after having been told @a. */
static void conclude(uint32_t slot, struct kvr_wire_accepted a)
{
	const struct kvr_wire_ids ids = {load.clients[load.slots[slot].client].source,
					 load.slots[slot].id, 78, 1, 1};
	const struct kvr_wire_response last = {.seq = 0, .flags = KVR_RESP_F_FIN};
	uint8_t frame[256];

	kvr_put_accepted(frame, sizeof(frame), &ids, &a);
	load_client_frame(&load, (const struct kvr_wire_hdr *)frame, load.now);
	load_client_item(&load, slot, &last, load.now);
}

/* What the router lacks of the ROUTE that was sent as @p like. */
static void missing(uint32_t slot, const struct kvr_wire_hdr *like, uint32_t first,
		    const uint64_t words[], uint16_t n)
{
	struct kvr_wire_ids ids = load_client_ids(&load, &load.slots[slot]);
	const uint32_t len = (uint32_t)sizeof(struct kvr_wire_missing) + n * 8u;
	uint8_t frame[1024];
	struct kvr_wire_missing *m = (void *)(frame + sizeof(*like));

	ids.handle = 0;
	kvr_hdr_put(frame, KVR_MISSING, &ids, len, 0, (uint16_t)len);
	*m = (struct kvr_wire_missing){.kind = KVR_ROUTE,
				       .n_words = n,
				       .msg_seq = like->msg_seq,
				       .msg_len = like->msg_len,
				       .unit = like->frag_len,
				       .first = first};
	if (n != 0)
		memcpy(m + 1, words, n * 8u);
	n_sent = 0;
	load_client_frame(&load, (const struct kvr_wire_hdr *)frame, load.now);
}

/* Number of the fragment that was sent as number @p i. */
static uint32_t piece(uint32_t i, uint32_t unit)
{
	return ((const struct kvr_wire_hdr *)sent[i].bytes)->frag_off / unit;
}

static void the_client_sends_the_pieces_the_router_lacks(void)
{
	const uint64_t some[2] = {UINT64_C(1) << 3 | UINT64_C(1) << 63, 1};
	uint64_t all[2] = {UINT64_MAX & ~UINT64_C(1)};
	uint8_t first[1500], again[1500];
	struct kvr_wire_hdr like;
	uint32_t slot, n;

	BEGIN((char *)"--body-bytes", (char *)"120000");
	slot = load.free[load.n_free - 1];
	load_client_start(&load, load_workload_turn(load.work, 0, 0), load.now, 0, 0);
	n = n_sent;
	CU_ASSERT_FATAL(n > 64 && n <= 88);
	all[1] = (UINT64_C(1) << (n - 64)) - 1;
	memcpy(&like, sent[0].bytes, sizeof(like));
	memcpy(first, sent[3].bytes, sent[3].len);
	load.now += SECOND;
	n_sent = 0;
	load_checks(&load); /* nobody has answered: the first piece, and it alone */
	CU_ASSERT_EQUAL_FATAL(n_sent, 1);
	CU_ASSERT_EQUAL(piece(0, like.frag_len), 0);
	CU_ASSERT_EQUAL(((const struct kvr_wire_hdr *)sent[0].bytes)->msg_seq, like.msg_seq);
	CU_ASSERT_EQUAL(count(LOAD_ROUTE_REPEATS), 1);
	missing(slot, &like, 0, some, 2);
	CU_ASSERT_EQUAL_FATAL(n_sent, 3);
	CU_ASSERT_EQUAL(piece(0, like.frag_len), 3);
	CU_ASSERT_EQUAL(piece(1, like.frag_len), 63);
	CU_ASSERT_EQUAL(piece(2, like.frag_len), 64);
	memcpy(again, sent[0].bytes, sent[0].len);
	CU_ASSERT_EQUAL(memcmp(first, again, sent[0].len), 0); /* the bytes of the first copy */
	missing(slot, &like, 64, some + 1, 1);
	CU_ASSERT_EQUAL_FATAL(n_sent, 1);
	CU_ASSERT_EQUAL(piece(0, like.frag_len), 64);
	missing(slot, &like, 0, all, 2); /* no more than a millisecond's worth at once */
	CU_ASSERT_EQUAL(n_sent, 64);
	CU_ASSERT_EQUAL(piece(63, like.frag_len), 64);
	CU_ASSERT_EQUAL(count(LOAD_PIECES_AGAIN), 3 + 1 + 64);
	CU_ASSERT_EQUAL(load.slots[slot].tries, 0); /* somebody is there */
	end();
}

static void missing_about_another_message_changes_nothing(void)
{
	const uint64_t all[1] = {0xfe};
	struct kvr_wire_hdr like, wrong;
	uint32_t slot;

	BEGIN((char *)"--body-bytes", (char *)"12000");
	slot = load.free[load.n_free - 1];
	load_client_start(&load, load_workload_turn(load.work, 0, 0), load.now, 0, 0);
	memcpy(&like, sent[0].bytes, sizeof(like));
	for (int i = 0; i < 3; i++) {
		wrong = like;
		wrong.msg_seq += i == 0;
		wrong.msg_len += i == 1 ? 8 : 0;
		wrong.frag_len = i == 2 ? 576 : like.frag_len;
		missing(slot, &wrong, 0, all, 1);
		CU_ASSERT_EQUAL(n_sent, 0);
	}
	CU_ASSERT_EQUAL(count(LOAD_STALE), 3);
	missing(slot, &like, 0, NULL, 0); /* no words: no message of ours */
	CU_ASSERT_EQUAL(n_sent, 0);
	CU_ASSERT_EQUAL(count(LOAD_BAD_FRAMES), 1);
	conclude(slot, (struct kvr_wire_accepted){.state = KVR_STATE_RUNNING});
	missing(slot, &like, 0, all, 1); /* it has been answered */
	CU_ASSERT_EQUAL(n_sent, 0);
	end();
}

/* The router has put it together and does not keep it: only another message is put together again.
 */
static void a_lost_dispatch_of_several_frames_is_another_message(void)
{
	struct kvr_wire_accepted a = {.state = KVR_STATE_DISPATCHED, .flags = KVR_ACC_F_KEPT};
	struct kvr_wire_ids ids;
	struct kvr_wire_hdr like;
	uint8_t frame[256];
	uint32_t slot, n;

	BEGIN((char *)"--body-bytes", (char *)"12000");
	slot = load.free[load.n_free - 1];
	load_client_start(&load, load_workload_turn(load.work, 0, 0), load.now, 0, 0);
	n = n_sent;
	memcpy(&like, sent[0].bytes, sizeof(like));
	ids = load_client_ids(&load, &load.slots[slot]);
	for (int i = 0; i < 3; i++) { /* accepted; PROBEd, with and without the router's copy */
		a.flags = (uint16_t)(i == 2 ? 0 : KVR_ACC_F_KEPT);
		if (i != 0)
			load.slots[slot].flags |= LOAD_S_PROBED;
		n_sent = 0;
		kvr_put_accepted(frame, sizeof(frame), &ids, &a);
		load_client_frame(&load, (const struct kvr_wire_hdr *)frame, load.now);
		CU_ASSERT_EQUAL(n_sent, i == 2 ? n : 0);
	}
	CU_ASSERT_NOT_EQUAL(((const struct kvr_wire_hdr *)sent[0].bytes)->msg_seq, like.msg_seq);
	end();
}

static void pieces_that_were_lost_are_asked_for(void)
{
	const struct kvr_wire_missing *m;
	struct dispatch p;
	uint64_t word;
	uint32_t n;

	BEGIN(PAIR);
	p = prefill(route(0, 3, 0), P_BOOTSTRAP, 0);
	add_room(&p, 40);
	p.lost = 1 << 2;
	deliver(&p);
	CU_ASSERT_PTR_NULL(find(KVR_MISSING, 0));
	CU_ASSERT_PTR_NULL(find(KVR_RESPONSE, 0));
	p.lost = ~UINT64_C(1); /* the first piece comes again */
	deliver(&p);
	CU_ASSERT_PTR_NOT_NULL_FATAL(find(KVR_MISSING, 0));
	m = kvr_frame_body(find(KVR_MISSING, 0));
	n = (m->msg_len + m->unit - 1) / m->unit;
	CU_ASSERT_TRUE_FATAL(n > 3 && n <= 64);
	CU_ASSERT_EQUAL(m->kind, KVR_DISPATCH);
	CU_ASSERT_EQUAL(m->unit, 96);
	CU_ASSERT_EQUAL(m->msg_seq, 1);
	CU_ASSERT_EQUAL(m->first, 0);
	CU_ASSERT_EQUAL_FATAL(m->n_words, 1);
	memcpy(&word, m + 1, sizeof(word));
	CU_ASSERT_EQUAL(word, (UINT64_C(1) << n) - 1 - 3); /* without 0 and 1 */
	p.lost = 3;
	deliver(&p);
	CU_ASSERT_PTR_NOT_NULL(find(KVR_RESPONSE, 0));
	CU_ASSERT_EQUAL(count(LOAD_PREFILL_LEGS), 1);
	CU_ASSERT_EQUAL(violations(), 0);
	end();
}

static void the_client_must_be_told_what_the_engines_saw(void)
{
	for (uint32_t bad = 0; bad < 6; bad++) {
		struct dispatch p, d;
		struct kvr_wire_accepted a;

		BEGIN(PAIR);
		p = prefill(route(0, 0, 0), P_BOOTSTRAP, 1);
		add_room(&p, 41);
		d = decode(p.slot, D_FIRST);
		add_worker(&d, P_BOOTSTRAP);
		add_room(&d, 41);
		deliver(&p);
		deliver(&d);
		a = (struct kvr_wire_accepted){
			.worker = load.engines[bad == 1 ? D_SECOND : D_FIRST].worker,
			.state = KVR_STATE_DISPATCHED,
			.prefill_worker = load.engines[bad == 2 ? P_SYNC : P_BOOTSTRAP].worker,
			.prefill_dp_rank = bad == 3 ? 0 : 1,
			.prefill_overlap_blocks = bad == 5 ? 1 : 0,
			.path = bad == 4 ? KVR_WAY_SYNC : KVR_WAY_BOOTSTRAP};
		conclude(p.slot, a);
		CU_ASSERT_EQUAL(count(LOAD_COMPLETED), 1);
		CU_ASSERT_EQUAL(count(LOAD_V_ACCEPTED), bad != 0);
		CU_ASSERT_EQUAL(count(bad == 4 ? LOAD_PATH_SYNC : LOAD_PATH_BOOTSTRAP), 1);
		end();
	}
}

/* ---- sessions ---- */

#define SESSIONS                                                                                   \
	(char *)"--instant", (char *)"--engines", (char *)"4", (char *)"--sessions", (char *)"1",  \
		(char *)"--seconds", (char *)"9", (char *)"--abandon-share", (char *)"0",          \
		(char *)"--release-share", (char *)"0"

/* SESSION_OPEN or _CLOSE number @id of the first session to an engine; the answer's code. */
static uint16_t session_message(uint8_t kind, uint32_t engine, uint64_t id)
{
	const struct kvr_wire_ids ids = {load.engines[engine].worker, id, 0, 1, 1};
	const struct kvr_wire_session body = {
		.timeout_s = kind == KVR_SESSION_OPEN ? opt.session_timeout + 30 : 0};
	char name[LOAD_SESSION_NAME];
	const struct kvr_wire_hdr *h;
	uint8_t frame[256];

	load_session_name(name, load.clients[0].source, 1);
	kvr_put_session(frame, sizeof(frame), kind, &ids, body,
			(struct kvr_str){name, (uint32_t)strlen(name)});
	n_sent = 0;
	load_session_frame(&load, (const struct kvr_wire_hdr *)frame, engine);
	h = find(kind + 1, 0);
	if (h == NULL || h->id != id || h->source != load.engines[engine].worker)
		return UINT16_MAX;
	return ((const struct kvr_wire_session_status *)kvr_frame_body(h))->code;
}

/* The lane's next turn; its slot. */
static uint32_t next_turn(void)
{
	const uint32_t slot = load.free[load.n_free - 1];

	load.now += SECOND;
	load_lanes_duty(&load);
	CU_ASSERT_EQUAL_FATAL(load.n_free + 1, load.n_slots);
	n_sent = 0;
	return slot;
}

static void turn_comes_to(uint32_t slot, uint32_t engine)
{
	struct dispatch d = {.slot = slot,
			     .engine = engine,
			     .max_tokens = load.slots[slot].prompt->osl,
			     .handle = load.slots[slot].id};
	struct load_leg *g = &load.slots[slot].leg;
	char name[LOAD_SESSION_NAME];
	const struct kvr_wire_response last = {.seq = 0, .flags = KVR_RESP_F_FIN};

	load_session_name(name, load.clients[0].source, load.slots[slot].session);
	kvr_hint_put_session(hints(&d), load.slots[slot].action, KVR_NONE32, name);
	deliver(&d);
	load_client_item(&load, slot, &last, load.now);
	load_client_acks(&load);
	g->estate = LOAD_E_IDLE; /* acknowledged */
	load_slot_release(&load, slot);
}

static void a_session_is_opened_used_and_closed_once(void)
{
	uint32_t slot;

	BEGIN(SESSIONS);
	load_lanes_begin(&load);
	slot = next_turn();
	CU_ASSERT_EQUAL(load.slots[slot].action, KVR_ACTION_OPEN);
	CU_ASSERT_EQUAL(session_message(KVR_SESSION_OPEN, 1, 5), 0);
	CU_ASSERT_EQUAL(session_message(KVR_SESSION_OPEN, 1, 5), 0); /* a repeat */
	turn_comes_to(slot, 1);
	for (uint32_t i = 1; i < opt.turns; i++) {
		slot = next_turn();
		CU_ASSERT_EQUAL(load.slots[slot].action,
				i + 1 < opt.turns ? KVR_ACTION_NONE : KVR_ACTION_CLOSE);
		turn_comes_to(slot, 1);
	}
	CU_ASSERT_EQUAL(session_message(KVR_SESSION_OPEN, 1, 9), 0); /* its timeout is new */
	CU_ASSERT_EQUAL(count(LOAD_OPENED), 1);
	CU_ASSERT_EQUAL(count(LOAD_TURNS_ON_BOUND), opt.turns - 1);
	CU_ASSERT_EQUAL(count(LOAD_SESSIONS_OPEN), 1);
	CU_ASSERT_EQUAL(session_message(KVR_SESSION_CLOSE, 1, 6), 0);
	CU_ASSERT_EQUAL(session_message(KVR_SESSION_CLOSE, 1, 6), 0);
	CU_ASSERT_EQUAL(count(LOAD_SESSIONS_OPEN), 0);
	CU_ASSERT_EQUAL(count(LOAD_CLOSED), 1);
	CU_ASSERT_EQUAL(count(LOAD_CLOSED_TWICE), 0);
	CU_ASSERT_EQUAL(session_message(KVR_SESSION_CLOSE, 1, 7), 0);
	CU_ASSERT_EQUAL(count(LOAD_CLOSED_TWICE), 1);
	CU_ASSERT_EQUAL(violations(), 0);
	end();
}

static void a_turn_at_another_engine_is_misplaced(void)
{
	uint32_t slot;

	BEGIN(SESSIONS);
	load_lanes_begin(&load);
	slot = next_turn();
	turn_comes_to(slot, 1); /* before anybody opened it */
	CU_ASSERT_EQUAL(count(LOAD_MISPLACED), 1);
	session_message(KVR_SESSION_OPEN, 3, 4);
	CU_ASSERT_EQUAL(count(LOAD_OPENED_TWICE), 0);
	session_message(KVR_SESSION_OPEN, 1, 5);
	CU_ASSERT_EQUAL(count(LOAD_OPENED_TWICE), 1);
	slot = next_turn();
	turn_comes_to(slot, 2);
	CU_ASSERT_EQUAL(count(LOAD_MISPLACED), 2);
	load_session_killed(&load, 1);
	slot = next_turn();
	turn_comes_to(slot, 2); /* its session is gone: anywhere will do */
	CU_ASSERT_EQUAL(count(LOAD_MISPLACED), 2);
	CU_ASSERT_EQUAL(count(LOAD_TURNS_UNBOUND), 1);
	CU_ASSERT_EQUAL(count(LOAD_SESSIONS_LOST), 1);
	end();
}

static void a_close_that_nobody_asked_for_is_early(void)
{
	uint32_t slot;

	BEGIN(SESSIONS);
	load_lanes_begin(&load);
	slot = next_turn();
	session_message(KVR_SESSION_OPEN, 1, 5);
	session_message(KVR_SESSION_CLOSE, 1, 6); /* the first turn starts over */
	CU_ASSERT_EQUAL(count(LOAD_CLOSED_EARLY), 0);
	session_message(KVR_SESSION_OPEN, 1, 7);
	turn_comes_to(slot, 1);
	session_message(KVR_SESSION_CLOSE, 1, 8);
	CU_ASSERT_EQUAL(count(LOAD_CLOSED_EARLY), 1);
	end();
}

static void affinity_binds_without_being_asked(void)
{
	uint32_t slot;

	BEGIN(SESSIONS, (char *)"--affinity");
	load_lanes_begin(&load);
	slot = next_turn();
	CU_ASSERT_EQUAL(load.slots[slot].action, KVR_ACTION_NONE);
	turn_comes_to(slot, 3);
	slot = next_turn();
	turn_comes_to(slot, 3);
	CU_ASSERT_EQUAL(count(LOAD_BOUND), 1);
	CU_ASSERT_EQUAL(count(LOAD_TURNS_ON_BOUND), 1);
	slot = next_turn();
	turn_comes_to(slot, 0);
	CU_ASSERT_EQUAL(count(LOAD_MISPLACED), 1);
	end();
}

static void engines_refuse_their_share_of_opens_and_stand_by_it(void)
{
	BEGIN(SESSIONS, (char *)"--open-fail-share", (char *)"1");
	load_lanes_begin(&load);
	next_turn();
	CU_ASSERT_NOT_EQUAL(session_message(KVR_SESSION_OPEN, 1, 5), 0);
	CU_ASSERT_NOT_EQUAL(session_message(KVR_SESSION_OPEN, 1, 5), 0);
	CU_ASSERT_EQUAL(count(LOAD_OPENS_REFUSED), 1);
	CU_ASSERT_EQUAL(count(LOAD_SESSIONS_OPEN), 0);
	end();
}

static void sessions_end_with_the_life_that_the_router_gave_up(void)
{
	struct {
		struct kvr_wire_hdr h;
		struct kvr_wire_rejected r;
	} f = {.h = {.kind = KVR_REJECTED},
	       .r = {.code = KVR_E_UNKNOWN_WORKER, .kind = KVR_HEARTBEAT}};
	uint32_t life;

	BEGIN(SESSIONS);
	load_lanes_begin(&load);
	turn_comes_to(next_turn(), 1);
	CU_ASSERT_EQUAL(session_message(KVR_SESSION_OPEN, 1, 5), 0);
	CU_ASSERT_EQUAL(count(LOAD_SESSIONS_OPEN), 1);
	life = load.engines[1].epoch;
	f.h.source = load.engines[1].worker;
	load_member_frame(&load, &f.h);
	load_member_frame(&load, &f.h); /* of another heartbeat */
	CU_ASSERT_EQUAL(load.engines[1].epoch, life + 1);
	CU_ASSERT_EQUAL(count(LOAD_SESSIONS_OPEN), 0);
	CU_ASSERT_EQUAL(count(LOAD_SESSIONS_LOST), 1);
	end();
}

/* ---- deaths ---- */

static void a_killed_engine_forgets_all_and_hears_nothing(void)
{
	struct kvr_wire_hdr h = {.kind = KVR_DISPATCH};
	struct dispatch p;

	BEGIN((char *)"--disagg", (char *)"1:1", (char *)"--kill-every", (char *)"1",
	      (char *)"--kill-mode", (char *)"silent");
	load.engines[1].state = LOAD_W_DEAD; /* leaves one to be chosen */
	p = prefill(route(0, 0, 0), 0, 0);
	add_room(&p, 40);
	deliver(&p);
	CU_ASSERT_EQUAL(load.pairs[p.slot].prefill.estate, LOAD_E_PREFILL);
	load_kill_duty(&load);
	CU_ASSERT_EQUAL(load.engines[0].state, LOAD_W_DEAD);
	CU_ASSERT_EQUAL(load.pairs[p.slot].prefill.estate, LOAD_E_IDLE);
	CU_ASSERT_EQUAL(load.ranks[0].running, 0);
	CU_ASSERT_EQUAL(count(LOAD_KILLED_REQUESTS), 1);
	CU_ASSERT_TRUE(load_kill_deaf(&load, &h, 0));
	h.kind = KVR_WELCOME;
	CU_ASSERT_TRUE(load_kill_deaf(&load, &h, 0));
	load.now = load.engines[0].revive_at;
	load.next_duty = 0;
	for (uint32_t i = 0; i < load.n_clients; i++)
		load.clients[i].connected = true;
	load_member_duty(&load);
	CU_ASSERT_EQUAL(load.engines[0].state, LOAD_W_HELLO);
	CU_ASSERT_EQUAL(load.engines[0].epoch, load.epoch + 1);
	CU_ASSERT_FALSE(load_kill_deaf(&load, &h, 0)); /* WELCOME */
	h.kind = KVR_DISPATCH;
	CU_ASSERT_TRUE(load_kill_deaf(&load, &h, 0));
	end();
}

/* What the router answers to a HELLO or GOODBYE of the life @life. */
static void answered(uint8_t kind, uint32_t life)
{
	struct {
		struct kvr_wire_hdr h;
		struct kvr_wire_welcome w;
	} f = {.h = {.kind = kind, .source = load.engines[0].worker, .id = life},
	       .w = {.heartbeat_ms = 100}};

	load_member_frame(&load, &f.h);
}

static void duty_at(uint64_t now)
{
	load.now = now;
	load.next_duty = 0;
	load_member_duty(&load);
}

static void answers_to_a_life_before_do_not_end_the_present_one(void)
{
	struct load_engine *e;
	uint32_t life;

	BEGIN((char *)"--disagg", (char *)"1:1", (char *)"--kill-every", (char *)"1");
	e = &load.engines[0];
	for (uint32_t i = 0; i < load.n_clients; i++)
		load.clients[i].connected = true;
	load.engines[1].state = LOAD_W_GONE; /* leaves one to be chosen */
	load_kill_duty(&load);
	life = e->epoch;
	duty_at(load.now); /* GOODBYE, and its copy */
	duty_at(load.now + SECOND / 10);
	CU_ASSERT_EQUAL(e->state, LOAD_W_DYING);
	duty_at(e->revive_at);
	CU_ASSERT_EQUAL(e->state, LOAD_W_HELLO);
	CU_ASSERT_EQUAL(e->epoch, life + 1);
	answered(KVR_WELCOME, life);
	CU_ASSERT_EQUAL(e->state, LOAD_W_HELLO);
	answered(KVR_GOODBYE_ACK, life);
	CU_ASSERT_EQUAL(e->state, LOAD_W_HELLO);
	answered(KVR_WELCOME, life + 1);
	CU_ASSERT_EQUAL(e->state, LOAD_W_SERVING);
	CU_ASSERT_FALSE(e->deaf);
	answered(KVR_GOODBYE_ACK, life);
	CU_ASSERT_EQUAL(e->state, LOAD_W_SERVING);
	load.now = load.next_kill;
	load_kill_duty(&load);
	answered(KVR_GOODBYE_ACK, life);
	CU_ASSERT_EQUAL(e->state, LOAD_W_DYING); /* the router must hear of this one, too */
	answered(KVR_GOODBYE_ACK, life + 1);
	CU_ASSERT_EQUAL(e->state, LOAD_W_DEAD);
	end();
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"a_prefill_leg_answers_one_item_with_its_result",
		 a_prefill_leg_answers_one_item_with_its_result},
		{"a_decode_leg_waits_for_the_room_of_its_prefill_leg",
		 a_decode_leg_waits_for_the_room_of_its_prefill_leg},
		{"a_decode_leg_that_waits_in_vain_ends_with_an_error",
		 a_decode_leg_that_waits_in_vain_ends_with_an_error},
		{"a_result_is_verified_to_the_byte", a_result_is_verified_to_the_byte},
		{"a_result_cannot_come_before_the_prefill_has_ended",
		 a_result_cannot_come_before_the_prefill_has_ended},
		{"whatever_is_wrong_in_a_leg_is_noticed", whatever_is_wrong_in_a_leg_is_noticed},
		{"a_leg_runs_once_however_often_it_is_dispatched",
		 a_leg_runs_once_however_often_it_is_dispatched},
		{"pieces_that_were_lost_are_asked_for", pieces_that_were_lost_are_asked_for},
		{"the_client_must_be_told_what_the_engines_saw",
		 the_client_must_be_told_what_the_engines_saw},
		{"a_session_is_opened_used_and_closed_once",
		 a_session_is_opened_used_and_closed_once},
		{"a_turn_at_another_engine_is_misplaced", a_turn_at_another_engine_is_misplaced},
		{"a_close_that_nobody_asked_for_is_early", a_close_that_nobody_asked_for_is_early},
		{"affinity_binds_without_being_asked", affinity_binds_without_being_asked},
		{"engines_refuse_their_share_of_opens_and_stand_by_it",
		 engines_refuse_their_share_of_opens_and_stand_by_it},
		{"sessions_end_with_the_life_that_the_router_gave_up",
		 sessions_end_with_the_life_that_the_router_gave_up},
		{"a_killed_engine_forgets_all_and_hears_nothing",
		 a_killed_engine_forgets_all_and_hears_nothing},
		{"answers_to_a_life_before_do_not_end_the_present_one",
		 answers_to_a_life_before_do_not_end_the_present_one},
		{"client's pieces", the_client_sends_the_pieces_the_router_lacks},
		{"other missing", missing_about_another_message_changes_nothing},
		{"dispatch lost", a_lost_dispatch_of_several_frames_is_another_message},
		CU_TEST_INFO_NULL,
	};

	return kvr_test_run("load engines", tests);
}
