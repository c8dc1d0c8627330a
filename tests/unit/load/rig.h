/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOAD_RIG_H
#define LOAD_RIG_H

/**
 * @file
 * Test rig: simulated engines and clients on a link that stores the frames they send. The test
 * plays the router, correctly and with errors, and checks what they detect. Two prefill engines of
 * two ranks (the first publishes a bootstrap address) and two decode engines, or four aggregated
 * ones.
 */

#include <string.h>

#include "frame.h"
#include "kvr_message.h"
#include "kvr_put.h"
#include "kvr_test.h"
#include "load.h"

enum { P_BOOTSTRAP, P_SYNC, D_FIRST, D_SECOND };
#define SECOND 1000000000ull /* cycles; the test sets the clock */
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

static inline uint64_t counter_value(enum load_counter c)
{
	return kvr_stats_get(load.row, c);
}

static inline uint64_t count_violations(void)
{
	uint64_t sum = 0;

	for (unsigned int i = LOAD_V_MAX_TOKENS; i <= LOAD_V_SESSION; i++)
		sum += counter_value(i);
	return sum + counter_value(LOAD_CORRUPT) + counter_value(LOAD_MISPLACED);
}

static inline void begin_test(int argc, char **argv)
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
		begin_test((int)RTE_DIM(argv_), argv_);                                            \
	} while (0)
#define PAIR (char *)"--disagg", (char *)"2:2", (char *)"--instant", (char *)"--items", (char *)"2"

static inline void end_test(void)
{
	load_teardown(&load);
	kvr_stats_destroy(stats);
	load_workload_destroy(load.work);
}

/* Begin a request and discard the frames it sent. @return its slot. */
static inline uint32_t start_route(uint64_t session, uint32_t turn, uint8_t action)
{
	const uint32_t slot = load.free[load.n_free - 1];

	load_client_start(&load, load_workload_turn(load.work, 0, turn), load.now, session, action);
	n_sent = 0;
	return slot;
}

/* Content of a DISPATCH; a test changes the fields that it wants wrong. */
struct dispatch {
	uint32_t slot, engine, rank, flags, max_tokens;
	uint8_t phase;
	uint64_t handle;
	uint64_t lost; /* bit mask of pieces that do not arrive */
	struct kvr_hint_buf hints;
	uint8_t room[256];
};

static inline struct dispatch prefill_leg(uint32_t slot, uint32_t engine, uint32_t rank)
{
	return (struct dispatch){.slot = slot,
				 .engine = engine,
				 .rank = rank,
				 .flags = KVR_REQ_F_PREFILL_LEG,
				 .phase = KVR_ROLE_PREFILL,
				 .max_tokens = 1,
				 .handle = 77};
}

static inline struct dispatch decode_leg(uint32_t slot, uint32_t engine)
{
	return (struct dispatch){.slot = slot,
				 .engine = engine,
				 .flags = KVR_REQ_F_DECODE_LEG,
				 .phase = KVR_ROLE_DECODE,
				 .max_tokens = load.slots[slot].prompt->osl,
				 .handle = 78};
}

static inline struct kvr_hint_buf *hint_room(struct dispatch *d)
{
	d->hints.p = d->room;
	d->hints.cap = sizeof(d->room);
	return &d->hints;
}

static inline void add_room(struct dispatch *d, uint64_t room)
{
	kvr_hint_put_bootstrap(hint_room(d), room, load_bootstrap_port(&load, P_BOOTSTRAP), opt.ip);
}

static inline void add_worker(struct dispatch *d, uint32_t engine)
{
	kvr_hint_put_u64(hint_room(d), KVR_HINT_PREFILL_WORKER, load.engines[engine].worker);
}

static inline void deliver_dispatch(struct dispatch *d)
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

	/* In pieces: hints may be split. */
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

/* Frame number @n of a kind, or NULL. */
static inline const struct kvr_wire_hdr *find_sent(uint8_t kind, uint32_t n)
{
	for (uint32_t i = 0; i < n_sent; i++) {
		const struct kvr_wire_hdr *h = (const struct kvr_wire_hdr *)sent[i].bytes;

		if (h->kind == kind && n-- == 0)
			return h;
	}
	return NULL;
}

static inline const struct kvr_wire_response *find_item(uint32_t n)
{
	const struct kvr_wire_hdr *h = find_sent(KVR_RESPONSE, n);

	return h != NULL ? kvr_frame_body(h) : NULL;
}

/* End the request at its client, after an ACCEPTED with @a. */
static inline void conclude_request(uint32_t slot, struct kvr_wire_accepted a)
{
	const struct kvr_wire_ids ids = {load.clients[load.slots[slot].client].source,
					 load.slots[slot].id, 78, 1, 1};
	const struct kvr_wire_response last = {.seq = 0, .flags = KVR_RESP_F_FIN};
	uint8_t frame[256];

	kvr_put_accepted(frame, sizeof(frame), &ids, &a);
	load_client_frame(&load, (const struct kvr_wire_hdr *)frame, load.now);
	load_client_item(&load, slot, &last, load.now);
}

#endif
