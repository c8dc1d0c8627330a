/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames that clients send to the router, and their answers. */
#include "router_peers.h"

#include <string.h>

static void put_hints(struct kvr_hint_buf *h, uint8_t what)
{
	static const char *const session[] = {"s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"};
	const uint8_t how = peers_take_byte();

	if (what & 1)
		kvr_hint_put_session(h, how & 3, (how & 4) ? 5 : KVR_NONE32, session[how >> 3 & 7]);
	if (what & 2)
		kvr_hint_put_u64(h, (how & 0x80) ? KVR_HINT_BACKEND : KVR_HINT_PREFILL_WORKER,
				 world_get_worker(how & 7));
	if (what & 4)
		kvr_hint_put_u32(h, (how & 0x40) ? KVR_HINT_DP_RANK : KVR_HINT_PREFILL_DP_RANK,
				 how & 3);
	if (what & 8)
		kvr_hint_put_str(h, KVR_HINT_REQUIRED_TAINT, "t");
	if (what & 16)
		kvr_hint_put_allowed(h, (const uint64_t[]){world_get_worker(how & 7)}, how >> 7);
	if (what & 32)
		kvr_hint_put_override(h, (how & 7) + 1u, (how & 8) ? 1.0 : 0.5);
	if (what & 64)
		kvr_hint_put_str(h, KVR_HINT_LORA, "adapter");
	if (what & 128)
		kvr_hint_put_str(h, KVR_HINT_POLICY_CLASS, "unknown");
}

/* The frames of a message, some left out, some repeated, some reordered. */
static void send_frames(uint32_t from, struct kvr_frag *frag, const struct kvr_slice *s)
{
	uint8_t frame[KVR_WIRE_DEF_FRAME], kept[KVR_WIRE_DEF_FRAME];
	const uint16_t lost = peers_take_word(), twice = peers_take_word(),
		       later = peers_take_word();
	uint32_t off, len, n_kept = 0;

	for (uint32_t i = 0; kvr_frag_next(frag, frame, &off, &len); i++) {
		const uint32_t n = (uint32_t)sizeof(struct kvr_wire_hdr) + len;

		kvr_slices_copy(s, KVR_REQUEST_SLICES, off, len, frame + n - len);
		if (lost >> i % 16 & 1)
			continue;
		if ((later >> i % 16 & 1) && n_kept == 0) {
			memcpy(kept, frame, n);
			n_kept = n;
			continue;
		}
		peers_send(from, frame, (int)n);
		if (twice >> i % 16 & 1)
			peers_send(from, frame, (int)n);
	}
	if (n_kept != 0)
		peers_send(from, kept, (int)n_kept);
}

void do_route(void)
{
	static uint64_t hash[1024];
	static uint32_t token[1024];
	static const uint8_t text[4096] = "body";
	const uint8_t who = peers_take_byte(), how = peers_take_byte(), what = peers_take_byte(),
		      flags = peers_take_byte();
	const struct kvr_wire_ids ids = peers_client_ids(who);
	const uint32_t n = peers_take_size(1000), first = peers_take_byte();
	uint8_t tlv[512];
	struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};
	struct kvr_request_src src = {
		.fixed = {.pool = WORLD_POOL_DECODE + (how & 3),
			  .flags = flags & KVR_REQ_F_CLIENT,
			  .isl = n * 4,
			  .max_tokens = KVR_NONE32,
			  .expected_output_tokens = (how & 4) ? 100 : KVR_NONE32,
			  .deadline_ms = (how & 8) ? 1000 : 0,
			  .client_frame = (how & 16) ? 600 : 1432},
		.body = text,
		.body_len = (how & 32) ? 3000 : 4,
	};
	struct kvr_slice s[KVR_REQUEST_SLICES];
	struct kvr_frag frag;
	uint32_t len;

	for (uint32_t i = 0; i < n; i++) {
		hash[i] = 1000u + first + i;
		token[i] = first + i;
	}
	if ((how & 64) != 0) {
		src.tokens = token;
		src.n_tokens = n;
		src.fixed.isl = n;
	} else {
		src.hashes = hash;
		src.n_hashes = n;
	}
	put_hints(&hints, what);
	if (hints.err == 0) {
		src.hints = hints.p;
		src.hints_len = hints.len;
	}
	len = kvr_request_build(&src, s);
	if (len == 0 || kvr_frag_init(&frag, (how & 128) ? KVR_POTENTIAL_LOADS : KVR_ROUTE, &ids,
				      len, (flags & 0x80) ? 700 : KVR_WIRE_DEF_FRAME) != 0)
		return;
	send_frames(peers_client_port((flags & 0x70) == 0x70 ? who + 1u : who), &frag, s);
}

void do_about(void)
{
	const uint8_t who = peers_take_byte(), how = peers_take_byte();
	const struct kvr_wire_ids ids = peers_client_ids(who);
	uint8_t buf[64];

	peers_send(peers_client_port((how & 0xf0) == 0xf0 ? how : who), buf,
		   kvr_put_empty(buf, sizeof(buf), (how & 1) ? KVR_CANCEL : KVR_PROBE, &ids));
}

void do_release(void)
{
	static const char *const session[] = {"s0", "s1", "s2", "s3", "s4", "s5", "s6", "unknown"};
	const uint8_t who = peers_take_byte(), how = peers_take_byte();
	const struct kvr_wire_ids ids = peers_client_ids(who);
	const struct kvr_wire_session s = {.pool = WORLD_POOL_DECODE + (how & 3)};
	const char *id = session[how >> 2 & 7];
	uint8_t buf[256];

	peers_send(peers_client_port(who), buf,
		   kvr_put_session(buf, sizeof(buf), KVR_SESSION_RELEASE, &ids, s,
				   (struct kvr_str){id, (uint32_t)strlen(id)}));
}

void do_connect(void)
{
	const struct kvr_wire_ids ids = peers_client_ids(peers_take_byte());
	uint8_t buf[256];

	peers_send(peers_client_port((uint32_t)ids.source), buf,
		   kvr_put_connect(buf, sizeof(buf), &ids, peers_take_byte() & 1 ? 600 : 0, NULL));
}

void do_response_ack(void)
{
	const uint8_t back = peers_take_byte(), how = peers_take_byte();
	const struct kvr_wire_response_ack a = {.next_seq = how & 7, .flags = how >> 3 & 1};
	uint16_t to;
	const struct kvr_wire_ids *ids =
		peers_recall((back & 8) ? KVR_ACCEPTED : KVR_RESPONSE, back & 7, &to);
	uint8_t buf[128];

	if (ids != NULL)
		peers_send(peers_choose_answerer(to, how), buf,
			   kvr_put_response_ack(buf, sizeof(buf), ids, &a));
}
