/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames that agents send to the router, and their answers. */
#include "router_peers.h"

/*
 * Ids of a frame about a request from the worker at @p to: with its current epoch, sometimes with
 * another.
 */
static struct kvr_wire_ids set_epoch(const struct kvr_wire_ids *ids, uint16_t to, uint8_t how)
{
	const struct kvr_worker *w =
		to >= WORLD_AGENTS && to < WORLD_AGENTS + WORLD_WORKERS
			? kvr_registry_find(rt->registry, world_get_worker(to - WORLD_AGENTS))
			: NULL;
	struct kvr_wire_ids mine = *ids;

	mine.epoch = w != NULL && (how & 0x70) != 0x70 ? w->epoch : (how & 3) + 1u;
	return mine;
}

void do_hello(void)
{
	static const char *const pool[] = {"d", "p", "a", "d", "p", "a", "d", "x"};
	static const uint8_t role[] = {KVR_ROLE_DECODE, KVR_ROLE_PREFILL,   KVR_ROLE_AGGREGATED,
				       KVR_ROLE_DECODE, KVR_ROLE_PREFILL,   KVR_ROLE_AGGREGATED,
				       KVR_ROLE_DECODE, KVR_ROLE_AGGREGATED};
	const struct agent a = peers_choose_agent();
	const struct kvr_wire_ids ids = peers_agent_ids(&a);
	const uint8_t how = peers_take_byte(), more = peers_take_byte();
	uint8_t tlv[256], buf[1024];
	struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};
	const struct kvr_wire_hello h = {
		.block_size = 4,
		.dp_start = more >> 6 == 3 ? 1 : 0,
		.dp_size = (how >> 4 & 3) + 1u,
		.max_num_batched_tokens = 64,
		.total_kv_blocks = (more & 1) ? 100 : 0,
		.max_frame = (more & 2) ? 600 : 1432,
		.role = role[(how & 0x80) ? how >> 4 & 7 : how & 7],
	};

	kvr_hint_put_str(&hints, KVR_HINT_POOL, pool[how & 7]);
	if (more & 4)
		kvr_hint_put_bootstrap_addr(&hints, 8998, "10.9.8.7");
	if (more & 8)
		kvr_hint_put_str(&hints, KVR_HINT_TOPOLOGY, "zone=a");
	if (more & 16)
		kvr_hint_put_kv_transfer(&hints, more >> 5 & 3, 0.5, "zone");
	if (more & 32)
		kvr_hint_put_str(&hints, KVR_HINT_TAINT, "t");
	peers_send(a.port, buf, kvr_put_hello(buf, sizeof(buf), &ids, h, &hints));
}

void do_heartbeat(void)
{
	const struct agent a = peers_choose_agent();
	const struct kvr_wire_ids ids = peers_agent_ids(&a);
	struct kvr_wire_rank_load load[4];
	const uint8_t how = peers_take_byte();
	uint8_t buf[512];

	for (uint32_t i = 0; i < RTE_DIM(load); i++)
		load[i] = (struct kvr_wire_rank_load){
			.dp_rank = (how & 0x80) ? how >> 4 : i,
			.active_requests = how,
			.kv_used_blocks = (how & 0x40) ? UINT64_MAX : how,
			.next_event_id = how & 15,
		};
	peers_send(a.port, buf, kvr_put_heartbeat(buf, sizeof(buf), &ids, load, how & 3, 0, 0));
}

void do_goodbye(void)
{
	const struct agent a = peers_choose_agent();
	const struct kvr_wire_ids ids = peers_agent_ids(&a);
	uint8_t buf[64];

	peers_send(a.port, buf, kvr_put_empty(buf, sizeof(buf), KVR_GOODBYE, &ids));
}

void do_events(void)
{
	const struct agent a = peers_choose_agent();
	struct kvr_wire_ids ids = peers_agent_ids(&a);
	const uint8_t how = peers_take_byte();
	const struct kvr_wire_kv_events head = {
		.first_event_id = peers_take_byte() & 15,
		.resume_event_id = how & 15,
		.dp_rank = how >> 4 & 3,
		.flags = (how & 0x80) ? how >> 5 & 3 : 0,
	};
	uint64_t hash[64], parent;
	uint8_t buf[KVR_WIRE_DEF_FRAME];
	struct kvr_kv_put k;
	const uint32_t events = (peers_take_byte() & 3) + 1u;

	ids.id = head.first_event_id;
	if (kvr_kv_put_begin(&k, buf, sizeof(buf), &ids, &head) != 0)
		return;
	for (uint32_t i = 0; i < events; i++) {
		const uint8_t type = peers_take_byte(), from = peers_take_byte();
		const uint32_t n = peers_take_size(RTE_DIM(hash));

		for (uint32_t j = 0; j < n; j++)
			hash[j] = 1000u + from + j;
		parent = 999u + from;
		kvr_kv_put_event(&k, type % 5, type >> 4 & 3, (type & 0x80) ? &parent : NULL, hash,
				 n);
	}
	peers_send(a.port, buf, kvr_kv_put_end(&k));
}

/* ---- answers to frames of the router ---- */

void do_dispatch_ack(void)
{
	const uint8_t back = peers_take_byte(), how = peers_take_byte();
	const struct kvr_wire_dispatch_ack a = {.code = (how & 15) == 15 ? 9 : 0};
	uint16_t to;
	const struct kvr_wire_ids *ids = peers_recall(KVR_DISPATCH, back & 7, &to);
	struct kvr_wire_ids mine;
	uint8_t buf[128];

	if (ids == NULL)
		return;
	mine = set_epoch(ids, to, how);
	peers_send(peers_choose_answerer(to, how), buf,
		   kvr_put_dispatch_ack(buf, sizeof(buf), &mine, &a));
}

/* A fragment of an item or of a transfer result: one of four, in any order and number. */
static void send_part(uint32_t from, const struct kvr_wire_ids *ids, struct kvr_wire_response r,
		      uint32_t k)
{
	uint8_t body[sizeof(r) + 2000] = {0}, buf[KVR_WIRE_LEAST_MAX_FRAME];
	struct kvr_frag f;
	uint32_t off, len;

	r.data_len = sizeof(body) - sizeof(r);
	memcpy(body, &r, sizeof(r));
	if (kvr_frag_init(&f, KVR_RESPONSE, ids, sizeof(body), sizeof(buf)) != 0)
		return;
	kvr_frag_seek(&f, k);
	kvr_frag_next(&f, buf, &off, &len);
	memcpy(buf + sizeof(struct kvr_wire_hdr), body + off, len);
	peers_send(from, buf, (int)(sizeof(struct kvr_wire_hdr) + len));
}

void do_response(void)
{
	const uint8_t back = peers_take_byte(), how = peers_take_byte(), tokens = peers_take_byte();
	const struct kvr_wire_response r = {
		.seq = back >> 3 & 7,
		.flags = tokens & 7,
		.generated_tokens = (how & 15) == 15 ? UINT32_MAX : tokens >> 3,
		.cached_tokens = (back & 0x80) ? tokens : KVR_NONE32,
	};
	uint16_t to;
	const struct kvr_wire_ids *ids = peers_recall(KVR_DISPATCH, back & 7, &to);
	struct kvr_wire_ids mine;
	uint8_t buf[512];

	if (ids == NULL)
		return;
	mine = set_epoch(ids, to, how);
	if ((back & 0x40) != 0) {
		mine.msg_seq = r.seq;
		send_part(peers_choose_answerer(to, how), &mine, r, tokens >> 3 & 3);
		return;
	}
	peers_send(peers_choose_answerer(to, how), buf,
		   kvr_put_response(buf, sizeof(buf), &mine, r, (struct kvr_slice){"item", 4}));
}

void do_progress(void)
{
	const uint8_t back = peers_take_byte(), how = peers_take_byte(), tokens = peers_take_byte();
	const struct kvr_wire_progress w = {.seq = back >> 3,
					    .flags = tokens & 15,
					    .generated_tokens = tokens >> 3,
					    .cached_tokens = KVR_NONE32};
	uint16_t to;
	const struct kvr_wire_ids *ids = peers_recall(KVR_DISPATCH, back & 7, &to);
	struct kvr_wire_ids mine;
	uint8_t buf[128];

	if (ids == NULL)
		return;
	mine = set_epoch(ids, to, how);
	peers_send(peers_choose_answerer(to, how), buf,
		   kvr_put_progress(buf, sizeof(buf), &mine, &w));
}

void do_abort_ack(void)
{
	const uint8_t back = peers_take_byte(), how = peers_take_byte();
	uint16_t to;
	const struct kvr_wire_ids *ids =
		peers_recall((back & 8) ? KVR_DISPATCH : KVR_ABORT, back & 7, &to);
	struct kvr_wire_ids mine;
	uint8_t buf[128];

	if (ids == NULL)
		return;
	mine = set_epoch(ids, to, how);
	peers_send(peers_choose_answerer(to, how), buf,
		   kvr_put_empty(buf, sizeof(buf), KVR_ABORT_ACK, &mine));
}

void do_session_status(void)
{
	const uint8_t back = peers_take_byte(), how = peers_take_byte();
	const bool open = (back & 8) == 0;
	uint16_t to;
	const struct kvr_wire_ids *ids =
		peers_recall(open ? KVR_SESSION_OPEN : KVR_SESSION_CLOSE, back & 7, &to);
	struct kvr_wire_ids mine;
	uint8_t buf[128];

	if (ids == NULL)
		return;
	mine = set_epoch(ids, to, how);
	peers_send(peers_choose_answerer(to, how), buf,
		   kvr_put_session_status(buf, sizeof(buf),
					  (back & 16) == 0
						  ? open ? KVR_SESSION_OPENED : KVR_SESSION_CLOSED
						  : KVR_SESSION_CLOSED,
					  &mine, (how & 12) == 12));
}
