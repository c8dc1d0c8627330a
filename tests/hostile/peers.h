/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PEERS_H
#define PEERS_H

/** @file
 *
 * Frames of clients and agents about a request, for hostile/ cases; source 77 throughout. */

#include "pipeline.h"

#include <string.h>

#include "kvr_frame.h"
#include "kvr_put.h"
#include "kvr_test.h"

static inline struct kvr_wire_ids peers_ids(uint64_t id, uint64_t handle)
{
	return (struct kvr_wire_ids){
		.source = 77, .id = id, .handle = handle, .epoch = pipeline_epoch(handle)};
}

static inline void peers_empty(uint32_t from, uint8_t kind, uint64_t id, uint64_t handle)
{
	const struct kvr_wire_ids ids = peers_ids(id, handle);
	uint8_t buf[64];

	pipeline_send(from, buf, (size_t)kvr_put_empty(buf, sizeof(buf), kind, &ids));
	pipeline_turn();
}

static inline void peers_dispatch_ack(uint64_t id, uint64_t handle, uint16_t code)
{
	const struct kvr_wire_dispatch_ack a = {.code = code};
	const struct kvr_wire_ids ids = peers_ids(id, handle);
	uint8_t buf[64];

	pipeline_send(PEER_AGENT, buf, (size_t)kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &a));
	pipeline_turn();
}

static inline void peers_item(uint64_t id, uint64_t handle, uint16_t flags)
{
	const struct kvr_wire_ids ids = peers_ids(id, handle);
	const struct kvr_wire_response r = {
		.flags = flags, .generated_tokens = 1, .cached_tokens = KVR_NONE32};
	uint8_t buf[128];

	pipeline_send(
		PEER_AGENT, buf,
		(size_t)kvr_put_response(buf, sizeof(buf), &ids, r, (struct kvr_slice){"item", 4}));
	pipeline_turn();
}

static inline void peers_fin_ack(uint64_t id, uint64_t handle)
{
	const struct kvr_wire_response_ack a = {1, KVR_RACK_F_FIN};
	const struct kvr_wire_ids ids = peers_ids(id, handle);
	uint8_t buf[64];

	pipeline_send(PEER_CLIENT, buf, (size_t)kvr_put_response_ack(buf, sizeof(buf), &ids, &a));
	pipeline_turn();
}

/** Send a ROUTE of one frame to pool 5 from any peer, without a turn. */
static inline void peers_route_send(uint32_t from, uint64_t id, uint32_t flags, const char *body)
{
	const uint64_t hash[2] = {100 * id, 100 * id + 1};
	const struct kvr_wire_ids ids = {
		.source = 77, .id = id, .epoch = 1, .msg_seq = (uint32_t)id};
	struct kvr_request_src src = {.fixed = {.pool = pipeline_pool,
						.flags = flags,
						.isl = 8,
						.max_tokens = KVR_NONE32,
						.expected_output_tokens = KVR_NONE32},
				      .hashes = hash,
				      .n_hashes = 2,
				      .body = (const uint8_t *)body,
				      .body_len = (uint32_t)strlen(body)};
	uint8_t frame[KVR_WIRE_DEF_FRAME];
	struct kvr_slice s[KVR_REQUEST_SLICES];
	struct kvr_frag frag;
	uint32_t len = kvr_request_build(&src, s), off = 0, part = 0;

	CU_ASSERT_FATAL(kvr_frag_init(&frag, KVR_ROUTE, &ids, len, sizeof(frame)) == 0 &&
			kvr_frag_next(&frag, frame, &off, &part));
	kvr_slices_copy(s, KVR_REQUEST_SLICES, off, part, frame + sizeof(struct kvr_wire_hdr));
	pipeline_send(from, frame, sizeof(struct kvr_wire_hdr) + part);
}

/** The same, followed by a turn. */
static inline void peers_route(uint32_t from, uint64_t id, uint32_t flags, const char *body)
{
	peers_route_send(from, id, flags, body);
	pipeline_turn();
}

/** Handle of a DISPATCH; 0: none was sent. */
static inline uint64_t peers_take_dispatch(void)
{
	const struct out *o = pipeline_expect(PEER_AGENT, KVR_DISPATCH);

	return o != NULL ? o->hdr.handle : 0;
}

/** A REJECTED to @p to; code 0: none was sent. */
static inline struct kvr_wire_rejected peers_take_rejected(uint32_t to)
{
	const struct out *o = pipeline_expect(to, KVR_REJECTED);
	struct kvr_wire_rejected r = {0};

	if (o != NULL)
		memcpy(&r, &o->hdr + 1, sizeof(r));
	return r;
}

/** State of an ACCEPTED to the client; -1: none was sent. */
static inline int peers_take_accepted(void)
{
	const struct out *o = pipeline_expect(PEER_CLIENT, KVR_ACCEPTED);

	return o != NULL ? ((const struct kvr_wire_accepted *)(&o->hdr + 1))->state : -1;
}

#endif
