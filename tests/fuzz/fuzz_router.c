/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzz target: the whole router on one thread, and the world. An input is a program: each step is
 * a byte that names what somebody does, and bytes that say how. Agents and clients may be anybody,
 * know every handle and every number the router has said, say what they should and what they
 * should not, twice, late, from elsewhere and under another epoch; buffers run out; time passes.
 * In the end everybody is silent, and nothing may be left (router_world.c).
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "control.h"
#include "kvr_frame.h"
#include "kvr_put.h"
#include "router_world.h"
#include "stages.h"

#define STEPS	160u
#define HEARD	64u /* frames of the router that are remembered */
#define SAID	16u /* frames to the router that may be said again */
#define CLIENTS 3u

static const uint8_t *at, *end;

static uint8_t byte(void)
{
	return at < end ? *at++ : 0;
}

static uint16_t word(void)
{
	const uint16_t low = byte();

	return (uint16_t)(low | byte() << 8);
}

/* One of many, mostly the small ones. */
static uint32_t size(uint32_t most)
{
	const uint32_t b = byte();

	return RTE_MIN(b < 240 ? b & 31 : (b - 239) * 40, most);
}

/* ---- memory of the world ---- */

static struct {
	uint16_t to;
	uint8_t kind;
	struct kvr_wire_ids ids;
} heard[HEARD];
static uint32_t n_heard;

static struct {
	uint16_t from;
	uint16_t len;
	uint8_t frame[KVR_WIRE_DEF_FRAME];
} said[SAID];
static uint32_t n_said;

static void hear(void)
{
	const struct out *o;

	while ((o = pipeline_next(0)) != NULL) {
		const uint32_t i = n_heard++ % HEARD;

		if (o->len < sizeof(o->hdr))
			abort();
		heard[i].to = o->to;
		heard[i].kind = o->hdr.kind;
		heard[i].ids = (struct kvr_wire_ids){o->hdr.source, o->hdr.id, o->hdr.handle,
						     o->hdr.epoch, o->hdr.msg_seq};
	}
	pipeline_flush();
}

static void step(void)
{
	pipeline_step();
	hear();
}

static void say(uint32_t from, const void *frame, int len)
{
	const uint32_t i = n_said++ % SAID;

	if (len <= 0)
		return;
	said[i].from = (uint16_t)from;
	said[i].len = (uint16_t)RTE_MIN((size_t)len, sizeof(said[i].frame));
	memcpy(said[i].frame, frame, said[i].len);
	pipeline_send(from, frame, (size_t)len);
}

/* Something of kind @p kind the router has said, @p back ago; NULL: never. */
static const struct kvr_wire_ids *recall(uint8_t kind, uint32_t back, uint16_t *to)
{
	for (uint32_t i = n_heard; i-- > 0 && n_heard - i <= HEARD;)
		if (heard[i % HEARD].kind == kind && back-- == 0) {
			*to = heard[i % HEARD].to;
			return &heard[i % HEARD].ids;
		}
	return NULL;
}

/* ---- who ---- */

static uint32_t client_port(uint32_t i)
{
	return PEER_CLIENT + i % CLIENTS;
}

static struct kvr_wire_ids client_ids(uint8_t who)
{
	return (struct kvr_wire_ids){
		.source = (uint64_t)world_round() << 8 | who % CLIENTS,
		.id = who / CLIENTS % 20 + 1,
		.epoch = 1,
		.msg_seq = who / CLIENTS % 20 + 1,
	};
}

/* Bits of one byte: worker, its epoch, and whether it is somebody else at another address. */
struct agent {
	uint32_t index, epoch, port;
};

static struct agent agent(void)
{
	const uint8_t b = byte();
	const uint32_t i = b & 7;

	return (struct agent){i, (b >> 3 & 3) + 1,
			      WORLD_AGENTS + ((b >> 5) == 7 ? (i + 1) % WORLD_WORKERS : i)};
}

static struct kvr_wire_ids agent_ids(const struct agent *a)
{
	return (struct kvr_wire_ids){
		.source = world_worker(a->index), .id = byte() & 3, .epoch = a->epoch};
}

/* The side a frame of the router went to, or now and then another one. */
static uint32_t answerer(uint16_t to, uint8_t how)
{
	if ((how & 0xf0) == 0xf0)
		return how & 1 ? client_port(how) : WORLD_AGENTS + (how & 7);
	return to;
}

/* What the worker at @p to says about a request: in its present life, now and then in another. */
static struct kvr_wire_ids in_life(const struct kvr_wire_ids *ids, uint16_t to, uint8_t how)
{
	const struct kvr_worker *w =
		to >= WORLD_AGENTS && to < WORLD_AGENTS + WORLD_WORKERS
			? kvr_registry_find(rt->registry, world_worker(to - WORLD_AGENTS))
			: NULL;
	struct kvr_wire_ids mine = *ids;

	mine.epoch = w != NULL && (how & 0x70) != 0x70 ? w->epoch : (how & 3) + 1u;
	return mine;
}

/* ---- agents ---- */

static void do_hello(void)
{
	static const char *const pool[] = {"d", "p", "a", "d", "p", "a", "d", "x"};
	static const uint8_t role[] = {KVR_ROLE_DECODE, KVR_ROLE_PREFILL,   KVR_ROLE_AGGREGATED,
				       KVR_ROLE_DECODE, KVR_ROLE_PREFILL,   KVR_ROLE_AGGREGATED,
				       KVR_ROLE_DECODE, KVR_ROLE_AGGREGATED};
	const struct agent a = agent();
	const struct kvr_wire_ids ids = agent_ids(&a);
	const uint8_t how = byte(), more = byte();
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
	say(a.port, buf, kvr_put_hello(buf, sizeof(buf), &ids, h, &hints));
}

static void do_heartbeat(void)
{
	const struct agent a = agent();
	const struct kvr_wire_ids ids = agent_ids(&a);
	struct kvr_wire_rank_load load[4];
	const uint8_t how = byte();
	uint8_t buf[512];

	for (uint32_t i = 0; i < RTE_DIM(load); i++)
		load[i] = (struct kvr_wire_rank_load){
			.dp_rank = (how & 0x80) ? how >> 4 : i,
			.active_requests = how,
			.kv_used_blocks = (how & 0x40) ? UINT64_MAX : how,
			.next_event_id = how & 15,
		};
	say(a.port, buf, kvr_put_heartbeat(buf, sizeof(buf), &ids, load, how & 3));
}

static void do_goodbye(void)
{
	const struct agent a = agent();
	const struct kvr_wire_ids ids = agent_ids(&a);
	uint8_t buf[64];

	say(a.port, buf, kvr_put_empty(buf, sizeof(buf), KVR_GOODBYE, &ids));
}

static void do_events(void)
{
	const struct agent a = agent();
	struct kvr_wire_ids ids = agent_ids(&a);
	const uint8_t how = byte();
	const struct kvr_wire_kv_events head = {
		.first_event_id = byte() & 15,
		.resume_event_id = how & 15,
		.dp_rank = how >> 4 & 3,
		.flags = (how & 0x80) ? how >> 5 & 3 : 0,
	};
	uint64_t hash[64], parent;
	uint8_t buf[KVR_WIRE_DEF_FRAME];
	struct kvr_kv_put k;
	const uint32_t events = (byte() & 3) + 1u;

	ids.id = head.first_event_id;
	if (kvr_kv_put_begin(&k, buf, sizeof(buf), &ids, &head) != 0)
		return;
	for (uint32_t i = 0; i < events; i++) {
		const uint8_t type = byte(), from = byte();
		const uint32_t n = size(RTE_DIM(hash));

		for (uint32_t j = 0; j < n; j++)
			hash[j] = 1000u + from + j;
		parent = 999u + from;
		kvr_kv_put_event(&k, type % 5, type >> 4 & 3, (type & 0x80) ? &parent : NULL, hash,
				 n);
	}
	say(a.port, buf, kvr_kv_put_end(&k));
}

/* ---- clients ---- */

static void put_hints(struct kvr_hint_buf *h, uint8_t what)
{
	static const char *const session[] = {"s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"};
	const uint8_t how = byte();

	if (what & 1)
		kvr_hint_put_session(h, how & 3, (how & 4) ? 5 : KVR_NONE32, session[how >> 3 & 7]);
	if (what & 2)
		kvr_hint_put_u64(h, (how & 0x80) ? KVR_HINT_BACKEND : KVR_HINT_PREFILL_WORKER,
				 world_worker(how & 7));
	if (what & 4)
		kvr_hint_put_u32(h, (how & 0x40) ? KVR_HINT_DP_RANK : KVR_HINT_PREFILL_DP_RANK,
				 how & 3);
	if (what & 8)
		kvr_hint_put_str(h, KVR_HINT_REQUIRED_TAINT, "t");
	if (what & 16)
		kvr_hint_put_allowed(h, (const uint64_t[]){world_worker(how & 7)}, how >> 7);
	if (what & 32)
		kvr_hint_put_override(h, (how & 7) + 1u, (how & 8) ? 1.0 : 0.5);
	if (what & 64)
		kvr_hint_put_str(h, KVR_HINT_LORA, "adapter");
	if (what & 128)
		kvr_hint_put_str(h, KVR_HINT_POLICY_CLASS, "nobody");
}

/* The frames of a message, some left out, some twice, some in another order. */
static void send_frames(uint32_t from, struct kvr_frag *frag, const struct kvr_slice *s)
{
	uint8_t frame[KVR_WIRE_DEF_FRAME], kept[KVR_WIRE_DEF_FRAME];
	const uint16_t lost = word(), twice = word(), later = word();
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
		say(from, frame, (int)n);
		if (twice >> i % 16 & 1)
			say(from, frame, (int)n);
	}
	if (n_kept != 0)
		say(from, kept, (int)n_kept);
}

static void do_route(void)
{
	static uint64_t hash[1024];
	static uint32_t token[1024];
	static const uint8_t text[4096] = "body";
	const uint8_t who = byte(), how = byte(), what = byte(), flags = byte();
	const struct kvr_wire_ids ids = client_ids(who);
	const uint32_t n = size(1000), first = byte();
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
	send_frames(client_port((flags & 0x70) == 0x70 ? who + 1u : who), &frag, s);
}

static void do_about(void)
{
	const uint8_t who = byte(), how = byte();
	const struct kvr_wire_ids ids = client_ids(who);
	uint8_t buf[64];

	say(client_port((how & 0xf0) == 0xf0 ? how : who), buf,
	    kvr_put_empty(buf, sizeof(buf), (how & 1) ? KVR_CANCEL : KVR_PROBE, &ids));
}

static void do_release(void)
{
	static const char *const session[] = {"s0", "s1", "s2", "s3", "s4", "s5", "s6", "nobody"};
	const uint8_t who = byte(), how = byte();
	const struct kvr_wire_ids ids = client_ids(who);
	const struct kvr_wire_session s = {.pool = WORLD_POOL_DECODE + (how & 3)};
	const char *id = session[how >> 2 & 7];
	uint8_t buf[256];

	say(client_port(who), buf,
	    kvr_put_session(buf, sizeof(buf), KVR_SESSION_RELEASE, &ids, s,
			    (struct kvr_str){id, (uint32_t)strlen(id)}));
}

static void do_connect(void)
{
	const struct kvr_wire_ids ids = client_ids(byte());
	uint8_t buf[256];

	say(client_port((uint32_t)ids.source), buf,
	    kvr_put_connect(buf, sizeof(buf), &ids, byte() & 1 ? 600 : 0, NULL));
}

/* ---- answers to what the router has said ---- */

static void do_dispatch_ack(void)
{
	const uint8_t back = byte(), how = byte();
	const struct kvr_wire_dispatch_ack a = {.code = (how & 15) == 15 ? 9 : 0};
	uint16_t to;
	const struct kvr_wire_ids *ids = recall(KVR_DISPATCH, back & 7, &to);
	struct kvr_wire_ids mine;
	uint8_t buf[128];

	if (ids == NULL)
		return;
	mine = in_life(ids, to, how);
	say(answerer(to, how), buf, kvr_put_dispatch_ack(buf, sizeof(buf), &mine, &a));
}

static void do_response(void)
{
	const uint8_t back = byte(), how = byte(), tokens = byte();
	const struct kvr_wire_response r = {
		.seq = back >> 3 & 7,
		.flags = tokens & 7,
		.generated_tokens = (how & 15) == 15 ? UINT32_MAX : tokens >> 3,
		.cached_tokens = (back & 0x80) ? tokens : KVR_NONE32,
	};
	uint16_t to;
	const struct kvr_wire_ids *ids = recall(KVR_DISPATCH, back & 7, &to);
	struct kvr_wire_ids mine;
	uint8_t buf[512];

	if (ids == NULL)
		return;
	mine = in_life(ids, to, how);
	say(answerer(to, how), buf,
	    kvr_put_response(buf, sizeof(buf), &mine, r, (struct kvr_slice){"item", 4}));
}

static void do_response_ack(void)
{
	const uint8_t back = byte(), how = byte();
	const struct kvr_wire_response_ack a = {.next_seq = how & 7, .flags = how >> 3 & 1};
	uint16_t to;
	const struct kvr_wire_ids *ids =
		recall((back & 8) ? KVR_ACCEPTED : KVR_RESPONSE, back & 7, &to);
	uint8_t buf[128];

	if (ids != NULL)
		say(answerer(to, how), buf, kvr_put_response_ack(buf, sizeof(buf), ids, &a));
}

static void do_progress(void)
{
	const uint8_t back = byte(), how = byte(), tokens = byte();
	const struct kvr_wire_progress w = {.seq = back >> 3,
					    .flags = tokens & 15,
					    .generated_tokens = tokens >> 3,
					    .cached_tokens = KVR_NONE32};
	uint16_t to;
	const struct kvr_wire_ids *ids = recall(KVR_DISPATCH, back & 7, &to);
	struct kvr_wire_ids mine;
	uint8_t buf[128];

	if (ids == NULL)
		return;
	mine = in_life(ids, to, how);
	say(answerer(to, how), buf, kvr_put_progress(buf, sizeof(buf), &mine, &w));
}

static void do_abort_ack(void)
{
	const uint8_t back = byte(), how = byte();
	uint16_t to;
	const struct kvr_wire_ids *ids =
		recall((back & 8) ? KVR_DISPATCH : KVR_ABORT, back & 7, &to);
	struct kvr_wire_ids mine;
	uint8_t buf[128];

	if (ids == NULL)
		return;
	mine = in_life(ids, to, how);
	say(answerer(to, how), buf, kvr_put_empty(buf, sizeof(buf), KVR_ABORT_ACK, &mine));
}

static void do_session_status(void)
{
	const uint8_t back = byte(), how = byte();
	const bool open = (back & 8) == 0;
	uint16_t to;
	const struct kvr_wire_ids *ids =
		recall(open ? KVR_SESSION_OPEN : KVR_SESSION_CLOSE, back & 7, &to);
	struct kvr_wire_ids mine;
	uint8_t buf[128];

	if (ids == NULL)
		return;
	mine = in_life(ids, to, how);
	say(answerer(to, how), buf,
	    kvr_put_session_status(buf, sizeof(buf),
				   (back & 16) == 0 ? open ? KVR_SESSION_OPENED : KVR_SESSION_CLOSED
						    : KVR_SESSION_CLOSED,
				   &mine, (how & 12) == 12));
}

/* ---- the network, the machine, the operator ---- */

/* Something said before comes again, may be from elsewhere, may be with a byte changed. */
static void do_again(void)
{
	const uint8_t back = byte(), how = byte();
	const uint32_t i = (n_said - 1u - (back & 15)) % SAID;
	uint8_t frame[KVR_WIRE_DEF_FRAME];

	if (n_said <= (back & 15u) || said[i].len == 0)
		return;
	memcpy(frame, said[i].frame, said[i].len);
	if (how & 1)
		frame[word() % said[i].len] = byte();
	pipeline_send(answerer(said[i].from, how), frame,
		      (how & 2) ? word() % said[i].len + 1u : said[i].len);
}

static void do_time(void)
{
	static const uint32_t ms[] = {1,    10,	  25,	 100,	500,   1100,  2100,
				      3100, 5100, 11000, 31000, 61000, 301000};
	const uint8_t how = byte();

	world_pass(ms[(how & 0x7f) % RTE_DIM(ms)], (how & 0x80) == 0);
	step();
}

static void do_rest(void)
{
	pipeline_turn();
	hear();
}

static void do_buffers(void)
{
	const uint8_t how = byte();

	if (how & 1)
		world_give_back();
	else
		world_take((how & 2) ? 20000 : 16383 - (how >> 2));
}

static void do_operator(void)
{
	const uint8_t how = byte();

	if (how & 8)
		control_deactivate(rt, "p", how & 1);
	else
		control_drain(rt, world_worker(how & 7), how >> 4 & 1);
}

static void (*const steps[])(void) = {
	do_hello,	 do_hello,     do_route,	  do_route,	     do_route,
	do_dispatch_ack, do_response,  do_response,	  do_response_ack,   do_about,
	do_time,	 do_time,      do_heartbeat,	  do_goodbye,	     do_events,
	do_progress,	 do_abort_ack, do_session_status, do_session_status, do_release,
	do_connect,	 do_again,     do_again,	  do_rest,	     do_buffers,
	do_operator,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_of)
{
	at = data;
	end = data + size_of;
	n_heard = n_said = 0;
	memset(said, 0, sizeof(said));
	world_begin();
	for (uint32_t i = 0; i < STEPS && at < end; i++) {
		const uint8_t b = byte();

		steps[b % RTE_DIM(steps)]();
		if (b < 8 * RTE_DIM(steps)) /* else together with the next */
			step();
	}
	world_end();
	return 0;
}
