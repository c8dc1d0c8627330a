/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzz target: lib/agent with arbitrary peers. An input is a program of steps: frames of a router
 * and of clients (requests, legs and their results, acknowledgements, MISSING, rejections,
 * sessions, stale epochs, wrong addresses), actions of the engine, time. At the end the engine ends
 * all requests and all peers are silent: nothing may be in progress then.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "ends_world.h"
#include "kvr_agent.h"
#include "kvr_agent_on.h"
#include "kvr_hints.h"
#include "kvr_put.h"

#define STEPS	200u
#define WORKER	0x77u
#define SOURCE	UINT64_C(0x1122334455667788)
#define HANDLES 12u

#define MUST(what)                                                                                 \
	do {                                                                                       \
		if (!(what))                                                                       \
			abort();                                                                   \
	} while (0)

static struct kvr_agent *a;
static bool runs[HANDLES + 1]; /* by handle: dispatched to the engine and not ended */
static uint8_t data_of[1 << 20];
static uint32_t refuse_next;

/* ---- the engine ---- */

static int on_dispatch(struct kvr_agent *ag, const struct kvr_agent_request *r, void *u)
{
	uint32_t sum = 0;

	(void)ag;
	(void)u;
	MUST(r->handle <= HANDLES && !runs[r->handle]); /* each is dispatched once */
	for (uint32_t i = 0; i < r->body_len; i++)
		sum += ((const uint8_t *)r->body)[i];
	for (uint32_t i = 0; i < r->prefill_result_len; i++)
		sum += ((const uint8_t *)r->prefill_result)[i];
	data_of[0] = (uint8_t)sum;
	if (refuse_next > 0) {
		refuse_next--;
		return 503;
	}
	runs[r->handle] = true;
	return 0;
}

static void on_abort(struct kvr_agent *ag, uint64_t handle, enum kvr_agent_abort why, uint16_t code,
		     void *u)
{
	(void)ag;
	(void)why;
	(void)code;
	(void)u;
	MUST(runs[handle]);
	runs[handle] = false;
}

static void on_done(struct kvr_agent *ag, uint64_t handle, void *u)
{
	(void)ag;
	(void)u;
	MUST(runs[handle]);
	runs[handle] = false;
}

static void on_state(struct kvr_agent *ag, const struct kvr_agent_status *s, void *u)
{
	(void)ag;
	(void)u;
	MUST(s->text != NULL);
}

static int on_dump(struct kvr_agent *ag, uint32_t rank, uint64_t pos, struct kvr_agent_kv *kv,
		   void *u)
{
	static const uint64_t hashes[1500] = {1};

	(void)ag;
	(void)u;
	MUST(rank < 2);
	if (pos == 3)
		return 0;
	*kv = (struct kvr_agent_kv){.hashes = hashes, .n = pos == 1 ? 1500 : 5};
	return 1;
}

static int on_session(struct kvr_agent *ag, const struct kvr_agent_session *s, void *u)
{
	(void)ag;
	(void)u;
	MUST(strlen(s->id) <= KVR_HINT_MAX_SESSION);
	return s->id[0] == 'b';
}

static const struct kvr_agent_ops ops = {.on_dispatch = on_dispatch,
					 .on_abort = on_abort,
					 .on_done = on_done,
					 .on_state = on_state,
					 .on_dump = on_dump,
					 .on_session_open = on_session,
					 .on_session_close = on_session};

static uint32_t choose_handle(void)
{
	const uint8_t how = world_take_byte();

	return how < 200 ? how % 3 + 1u : how % (HANDLES + 1);
}

static void do_respond(void)
{
	const uint8_t how = world_take_byte();
	const uint32_t len = world_take_size((how & 0x80) ? (1u << 20) : 200000);
	const struct kvr_agent_item item = {.data = data_of,
					    .len = (how & 1) ? len & 127 : len & ~3u,
					    .flags = (how & 2)	 ? KVR_AGENT_LAST | KVR_AGENT_ERROR
						     : (how & 4) ? KVR_AGENT_LAST
						     : (how & 8) ? KVR_AGENT_TOKENS
								 : 0,
					    .generated_tokens = how,
					    .prompt_details = "{}",
					    .prompt_details_len = (how & 16) ? 2 : 0};

	kvr_agent_respond(a, choose_handle(), &item);
}

static void do_engine(void)
{
	static const uint64_t hashes[1000] = {7};
	const uint8_t how = world_take_byte();
	const struct kvr_agent_kv kv = {.hashes = hashes, .n = (how & 16) ? 1000 : 3};

	switch (how & 7) {
	case 0:
		kvr_agent_kv_stored(a, how >> 3 & 3, &kv);
		break;
	case 1:
		kvr_agent_kv_removed(a, how >> 3 & 3, &kv);
		break;
	case 2:
		kvr_agent_kv_cleared(a, how >> 3 & 1);
		break;
	case 3:
		kvr_agent_load(a, how >> 3 & 1, how, how);
		break;
	case 4:
		kvr_agent_drain(a, (how & 8) != 0);
		break;
	case 5:
		refuse_next = 1;
		break;
	default:
		for (uint32_t i = 0; i < 40; i++)
			kvr_agent_kv_stored(a, 0, &kv);
	}
}

/* ---- frames of others ---- */

/* A handle belongs to one request; a request may have several handles. */
static struct kvr_wire_ids make_request_ids(uint32_t handle)
{
	static uint32_t seq;
	const uint8_t how = world_take_byte();

	return (struct kvr_wire_ids){.source = SOURCE,
				     .id = handle / 2 + (how >= 250),
				     .handle = handle,
				     .epoch = 500u + (how >= 220) + (how >= 240),
				     .msg_seq = (how & 64) ? seq : ++seq};
}

static struct kvr_wire_ids make_worker_ids(uint64_t id)
{
	struct kvr_wire_ids ids = make_request_ids(0);

	ids.source = WORKER;
	ids.id = id;
	return ids;
}

static void do_dispatch(void)
{
	static const uint64_t hashes[600];
	static const uint32_t tokens[2000];
	static uint8_t message[1 << 21];
	const uint32_t handle = choose_handle();
	const struct kvr_wire_ids ids = make_request_ids(handle);
	const uint8_t how = world_take_byte(), what = world_take_byte();
	const bool prefill = (what & 3) == 1, decode = (what & 3) == 2;
	const struct kvr_udp_addr client = world_make_addr(WORLD_PEER);
	uint8_t hint[700];
	struct kvr_hint_buf hints = {.p = hint, .cap = sizeof(hint)};
	struct kvr_request_src src = {.hashes = hashes,
				      .n_hashes = (how & 1) ? 600 : 2,
				      .tokens = tokens,
				      .n_tokens = (how & 2) ? 2000 : 0,
				      .body = data_of,
				      .body_len = (how & 4) ? 20000 : 5,
				      .result = data_of,
				      .result_len =
					      decode && (how & 8) ? world_take_size(1 << 20) : 0};
	struct kvr_slice s[KVR_REQUEST_SLICES];
	uint32_t len;

	src.fixed = (struct kvr_wire_request){.phase = prefill	? 1
						       : decode ? 2
								: 0,
					      .flags = (prefill	     ? KVR_REQ_F_PREFILL_LEG
							: decode     ? KVR_REQ_F_DECODE_LEG
							: (what & 4) ? KVR_REQ_F_DIRECT
								     : 0) |
						       ((what & 8) ? KVR_REQ_F_UNPROVEN : 0) |
						       ((what & 16) ? KVR_REQ_F_TRACK : 0),
					      .isl = 600 * 16,
					      .max_tokens = 5,
					      .worker = WORKER + (how >= 250),
					      .dp_rank = (how & 16) >> 4,
					      .client_port = client.port,
					      .client_frame = (what & 32) ? 560 : 1432};
	memcpy(src.fixed.client_ip, client.ip, 16);
	if ((what & 64) != 0 && decode)
		kvr_hint_put(&hints, KVR_HINT_PREFILL_RESULT, data_of, 100, NULL, 0);
	if ((what & 128) != 0)
		kvr_hint_put(&hints, KVR_HINT_PROMPT_DETAILS, data_of, 300, NULL, 0);
	src.hints = hints.p;
	src.hints_len = hints.len;
	len = kvr_request_build(&src, s);
	if (len == 0 || len > sizeof(message) ||
	    kvr_slices_copy(s, KVR_REQUEST_SLICES, 0, len, message) != 0)
		return;
	world_push_message(world_take_source(), KVR_DISPATCH, &ids, message, len);
}

static void do_ack(void)
{
	const uint32_t handle = choose_handle();
	const struct kvr_wire_ids ids = make_request_ids(handle);
	const struct kvr_wire_response_ack w = {.next_seq = world_take_byte() % 24,
						.flags = world_take_byte() & 1};
	const struct kvr_wire_progress_ack p = {.next_seq = world_take_byte()};
	uint8_t f[WORLD_FRAME];

	if ((w.next_seq & 7) == 7)
		world_push(world_take_source(), f, kvr_put_progress_ack(f, sizeof(f), &ids, &p));
	else
		world_push(world_take_source(), f, kvr_put_response_ack(f, sizeof(f), &ids, &w));
}

static void do_abort(void)
{
	const struct kvr_wire_ids ids = make_request_ids(choose_handle());
	static const uint16_t codes[] = {0, KVR_E_PREFILL_FAILED, KVR_E_WORKER_LOST, KVR_E_EXPIRED};
	const struct kvr_wire_abort w = {.code = codes[world_take_byte() & 3]};
	uint8_t f[WORLD_FRAME];

	world_push(world_take_source(), f, kvr_put_abort(f, sizeof(f), &ids, &w));
}

static void do_rejected(void)
{
	static const uint8_t kinds[] = {KVR_HELLO,    KVR_HEARTBEAT, KVR_GOODBYE,  KVR_KV_EVENTS,
					KVR_RESPONSE, KVR_RESPONSE,  KVR_PROGRESS, KVR_ROUTE};
	const uint8_t kind = kinds[world_take_byte() & 7];
	const bool request = kind == KVR_RESPONSE || kind == KVR_PROGRESS;
	const struct kvr_wire_hdr *hello = world_sent(KVR_HELLO, 0);
	const struct kvr_wire_ids ids =
		request ? make_request_ids(choose_handle())
			: make_worker_ids(kind == KVR_HELLO && hello != NULL ? hello->id : 0);
	struct kvr_wire_rejected w = {.code = world_take_byte() % 101,
				      .kind = kind,
				      .retryable = world_take_byte() & 1,
				      .detail = {world_take_word(), 3, world_take_byte() % 24}};
	uint8_t f[WORLD_FRAME];

	world_push(world_take_source(), f,
		   kvr_put_message(f, sizeof(f), KVR_REJECTED, &ids,
				   (struct kvr_slice){&w, sizeof(w)}, (struct kvr_slice){NULL, 0}));
}

static void do_worker(void)
{
	const uint8_t how = world_take_byte();
	const struct kvr_wire_hdr *kv = world_sent(KVR_KV_EVENTS, how >> 6);
	const struct kvr_wire_hdr *said = (how & 7) != 0 ? kv : world_sent(KVR_HELLO, 0);
	const struct kvr_wire_ids ids = make_worker_ids(said != NULL && (how & 8) ? said->id : 0);
	const struct kvr_wire_welcome w = {.flags = how >> 4 & 1,
					   .heartbeat_ms = 500,
					   .dead_ms = 2000,
					   .max_frame = (how & 32) ? 600 : 1432};
	const struct kvr_wire_heartbeat_ack h = {.state = 1 + (how >> 4) % 6};
	const struct kvr_wire_kv_ack k = {.next_event_id = world_take_byte(),
					  .next_dump_pos = world_take_byte() & 7,
					  .dp_rank = how >> 4 & 3,
					  .code = world_take_byte() % 5};
	uint8_t f[WORLD_FRAME];
	int n = (how & 7) == 0	 ? kvr_put_welcome(f, sizeof(f), &ids, &w)
		: (how & 7) == 1 ? kvr_put_heartbeat_ack(f, sizeof(f), &ids, &h)
		: (how & 7) == 2 ? kvr_put_empty(f, sizeof(f), KVR_GOODBYE_ACK, &ids)
				 : kvr_put_kv_ack(f, sizeof(f), &ids, &k);

	world_push(world_take_source(), f, n);
}

static void do_session(void)
{
	static const char *const names[] = {"a", "b", "c", "d"};
	const uint8_t how = world_take_byte();
	const struct kvr_wire_ids ids = make_worker_ids(how & 15);
	const bool open = (how & 16) != 0;
	const struct kvr_wire_session w = {.timeout_s = open ? 40 : 0};
	uint8_t f[WORLD_FRAME];

	world_push(world_take_source(), f,
		   kvr_put_session(f, sizeof(f), open ? KVR_SESSION_OPEN : KVR_SESSION_CLOSE, &ids,
				   w, (struct kvr_str){names[how >> 6], 1}));
}

static void do_missing(void)
{
	world_push_missing(world_take_source(), world_sent(KVR_RESPONSE, world_take_byte() & 31));
}

/* Time passes; the agent is polled whenever it asks for that. */
static void run_agent_for(uint32_t ms)
{
	const uint64_t end = world_now() + ms * UINT64_C(1000);
	uint64_t due;

	kvr_agent_process(a);
	while (world_now() < end) {
		due = kvr_agent__due_us(a);
		world_pass_time((due < world_now() + 100 ? world_now() + 100
				 : due < end		 ? due
							 : end) -
				world_now());
		kvr_agent_process(a);
	}
}

static void do_time(void)
{
	static const uint16_t ms[] = {1, 3, 6, 20, 50, 300, 2500, 11000};

	run_agent_for(ms[world_take_byte() % 8]);
}

static void (*const steps[])(void) = {do_dispatch, do_dispatch, do_dispatch, do_ack,	 do_ack,
				      do_abort,	   do_rejected, do_worker,   do_worker,	 do_session,
				      do_missing,  do_missing,	do_respond,  do_respond, do_engine,
				      do_time,	   do_time};

static void send_welcome(void)
{
	const struct kvr_wire_hdr *hello;
	struct kvr_wire_ids ids = {.source = WORKER, .epoch = 500, .msg_seq = 1};
	const struct kvr_wire_welcome w = {.heartbeat_ms = 500, .dead_ms = 2000, .max_frame = 1432};
	uint8_t f[WORLD_FRAME];

	run_agent_for(0);
	hello = world_sent(KVR_HELLO, 0);
	ids.id = hello != NULL ? hello->id : 0;
	world_push(world_make_addr(WORLD_ROUTER), f, kvr_put_welcome(f, sizeof(f), &ids, &w));
	run_agent_for(0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct kvr_agent_item last = {.flags = KVR_AGENT_LAST | KVR_AGENT_ERROR};
	const struct kvr_udp_addr router = world_make_addr(WORLD_ROUTER);
	struct kvr_agent_conf conf = {.worker = WORKER,
				      .pool = "llama",
				      .block_size = 16,
				      .dp_size = 2,
				      .epoch = 9,
				      .max_requests = 6,
				      .kv_ring_bytes = 65536,
				      .ops = &ops};
	struct kvr_udp udp;

	world_begin(data, size);
	memset(runs, 0, sizeof(runs));
	refuse_next = 0;
	udp = world_udp();
	a = kvr_agent__create_on(&conf, &router, &udp);
	send_welcome();
	for (uint32_t i = 0; i < STEPS && world_has_input(); i++) {
		const uint8_t b = world_take_byte();

		steps[b % (sizeof(steps) / sizeof(steps[0]))]();
		if (b < 192) /* otherwise together with the next */
			run_agent_for(0);
	}
	for (uint32_t s = 0; s < 60; s++) {
		for (uint64_t h = 0; h <= HANDLES; h++)
			kvr_agent_respond(a, h, &last);
		run_agent_for(1000);
	}
	MUST(kvr_agent_running(a) == 0);
	kvr_agent_destroy(a);
	return 0;
}
