/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzz target: lib/client with arbitrary peers. An input is a program of steps: requests, frames of
 * a router and of agents (in time, late, twice, from wrong addresses, about ended requests, in
 * inconsistent fragments), new epochs of the router, time. At the end all peers are silent: every
 * request has ended once, nothing is in flight, and the client sends nothing more.
 */
#include "fuzz.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client_pvt.h"
#include "ends_world.h"

#define STEPS	 200u
#define REQUESTS 16u
#define SOURCE	 UINT64_C(0x1122334455667788)

#define MUST(what)                                                                                 \
	do {                                                                                       \
		if (!(what))                                                                       \
			abort();                                                                   \
	} while (0)

static struct kvr_client *c;
static struct {
	uint64_t id;
	uint32_t items;
	bool live, callbacks;
} req[REQUESTS];
static uint32_t n_req, ends, submitted;
static uint8_t body[80000];

/* ---- user of the client ---- */

static uint32_t find_request(uint64_t id)
{
	uint32_t i = 0;

	while (i < REQUESTS && (req[i].id != id || !req[i].live))
		i++;
	return i;
}

static void on_item(struct kvr_client *cl, uint64_t id, const struct kvr_client_item *it, void *u)
{
	const uint32_t i = find_request(id);
	uint8_t sum = 0;

	(void)u;
	MUST(i < REQUESTS && it->seq == req[i].items && it->len <= KVR_WIRE_MAX_RESULT);
	req[i].items++;
	for (uint32_t k = 0; k < it->len; k++)
		sum = (uint8_t)(sum + ((const uint8_t *)it->data)[k]);
	if (sum == 77)
		kvr_client_cancel(cl, id);
}

static void on_end(struct kvr_client *cl, uint64_t id, const struct kvr_client_end *e, void *u)
{
	const uint32_t i = find_request(id);

	(void)u;
	MUST(i < REQUESTS && e->items == req[i].items && e->text != NULL);
	MUST(kvr_client_cancel(cl, id) < 0);
	req[i].live = false;
	ends++;
}

static void on_loads(struct kvr_client *cl, uint64_t id, const struct kvr_client_loads *l, void *u)
{
	(void)cl;
	(void)u;
	MUST(find_request(id) < REQUESTS);
	for (uint32_t i = 0; i < l->n; i++)
		body[0] = (uint8_t)(body[0] + l->rank[i].worker);
}

static const struct kvr_client_ops ops = {
	.on_item = on_item, .on_end = on_end, .on_loads = on_loads};

static void do_submit(void)
{
	static const uint64_t hashes[600] = {1, 2, 3};
	const uint8_t how = world_take_byte(), what = world_take_byte();
	const uint32_t i = n_req % REQUESTS;
	struct kvr_client_request q = {.flags = what & (KVR_CLIENT_QUERY | KVR_CLIENT_DIRECT |
							KVR_CLIENT_BOOK | KVR_CLIENT_LOADS |
							KVR_CLIENT_TRACK),
				       .hashes = hashes,
				       .n_hashes = (how & 4) ? 600 : 2,
				       .isl = 600 * 16,
				       .request_ms = (how & 8) ? 3000 : 0,
				       .body = body,
				       .body_len = (how & 3) == 0 ? world_take_size(60000) : 0,
				       .ops = (how & 16) ? NULL : &ops};
	uint64_t id;

	if (req[i].live || kvr_client_submit(c, &q, &id) < 0)
		return;
	req[i].id = id;
	req[i].items = 0;
	req[i].live = true;
	req[i].callbacks = q.ops != NULL;
	n_req++;
	submitted++;
}

static uint64_t choose_id(void)
{
	const uint8_t how = world_take_byte();

	return how >= 250		? how
	       : how < 160 && n_req > 0 ? req[(n_req - 1 - how % 2) % REQUESTS].id
					: req[how % REQUESTS].id;
}

static struct kvr_wire_ids make_client_ids(uint64_t id)
{
	static uint32_t seq;
	const uint8_t how = world_take_byte();

	/* A retransmission has the number of the first copy. */
	return (struct kvr_wire_ids){.source = SOURCE,
				     .id = id,
				     .handle = how < 192 ? 1u : how & 3,
				     .epoch = how >= 240 ? 5u : 4u,
				     .msg_seq = (how & 64) ? seq : ++seq};
}

static void read_sent_route(uint32_t i)
{
	struct kvr_client_item it;
	struct kvr_client_end e;
	int rc;

	if (!req[i].live || req[i].callbacks)
		return;
	rc = kvr_client_next_item(c, req[i].id, &it, &e, 0);
	MUST(rc == 1 || rc == 0 || rc == -ETIMEDOUT);
	if (rc == 1) {
		MUST(it.seq == req[i].items);
		req[i].items++;
	} else if (rc == 0) {
		req[i].live = false;
		ends++;
	}
}

/* ---- frames of others ---- */

static void do_accepted(void)
{
	const struct kvr_wire_ids ids = make_client_ids(choose_id());
	const uint8_t how = world_take_byte();
	const struct kvr_wire_accepted w = {.worker = 7,
					    .state = how & 3,
					    .path = how >> 2 & 3,
					    .flags = how >> 4 & 1,
					    .prefill_dp_rank = KVR_NONE32};
	uint8_t f[WORLD_FRAME];

	world_push(world_take_source(), f, kvr_put_accepted(f, sizeof(f), &ids, &w));
}

static void do_rejected(void)
{
	static const uint8_t kinds[] = {KVR_ROUTE,	     KVR_ROUTE,		 KVR_PROBE,
					KVR_CANCEL,	     KVR_CONNECT,	 KVR_PROGRESS,
					KVR_POTENTIAL_LOADS, KVR_SESSION_RELEASE};
	const struct kvr_wire_ids ids = make_client_ids(choose_id());
	const struct kvr_fault fault = {.seen = world_take_byte(), .allowed = 1, .text = "no"};
	const uint8_t kind = kinds[world_take_byte() % sizeof(kinds)];
	uint8_t f[WORLD_FRAME];

	world_push(world_take_source(), f,
		   kvr_put_rejected(f, sizeof(f), &ids, world_take_byte() % 101, kind, &fault));
}

static void do_item(void)
{
	const uint64_t id = choose_id();
	const struct kvr_wire_ids ids = make_client_ids(id);
	const uint8_t how = world_take_byte();
	const uint32_t len = world_take_size(sizeof(body) - 64);
	uint8_t *message = malloc(sizeof(struct kvr_wire_response) + sizeof(body) + 8);
	struct kvr_wire_response w = {.flags = how & 0xf,
				      .generated_tokens = how,
				      .data_len = len,
				      .cached_tokens = KVR_NONE32};

	for (uint32_t i = 0; i < REQUESTS; i++)
		if (req[i].id == id)
			w.seq = req[i].items;
	w.seq += (how >> 4 & 3) == 3 ? world_take_byte() : (how >> 4 & 3) == 2 ? 1 : 0;
	w.seq -= (how >> 6) == 3;
	memcpy(message, &w, sizeof(w));
	memcpy(message + sizeof(w), body, len);
	memset(message + sizeof(w) + len, 0, 8);
	world_push_message(world_take_source(), KVR_RESPONSE, &ids, message,
			   (uint32_t)sizeof(w) + (len + 7) / 8 * 8);
	free(message);
}

static void do_connected(void)
{
	const struct kvr_wire_hdr *asked = world_sent(KVR_CONNECT, 0);
	const uint8_t how = world_take_byte();
	const struct kvr_wire_ids ids = {.source = SOURCE,
					 .id = asked != NULL ? asked->id + (how >> 6) % 3 : 1,
					 .epoch = 4u + (how & 3)};
	const struct kvr_wire_connected w = {.max_frame = (how & 4) ? 8952 : 1432 - (how & 8) * 100,
					     .max_tokens = 100000,
					     .max_hashes = 1000,
					     .max_body = 50000,
					     .max_message = (how & 16) ? 200 : 1000000,
					     .max_frames = (how & 32) ? 2 : 1000,
					     .cookie = how};
	const struct kvr_wire_pool pool = {.pool = 0, .block_size = 16, .ranks = 4};
	const struct kvr_str name = {"llama", 5};
	uint8_t f[WORLD_FRAME];

	world_push(world_take_source(), f,
		   kvr_put_connected(f, sizeof(f), &ids, w, &pool, &name, 1));
}

static void do_about(void)
{
	static const uint8_t kinds[] = {KVR_CANCELLED, KVR_PROGRESS_ACK, KVR_SESSION_RELEASED};
	const struct kvr_wire_ids ids = make_client_ids(choose_id());
	const uint8_t zeros[8] = {world_take_byte()};
	const uint8_t kind = kinds[world_take_byte() % sizeof(kinds)];
	uint8_t f[WORLD_FRAME];

	world_push(world_take_source(), f,
		   kvr_put_message(f, sizeof(f), kind, &ids, (struct kvr_slice){NULL, 0},
				   (struct kvr_slice){zeros, kind == KVR_CANCELLED ? 0 : 8}));
}

static void do_loads(void)
{
	const struct kvr_wire_ids ids = make_client_ids(choose_id());
	const uint32_t n = world_take_size(400);
	uint8_t *message = calloc(1, sizeof(struct kvr_wire_loads) +
					     400 * sizeof(struct kvr_wire_rank_potential));
	const struct kvr_wire_loads w = {.n_ranks = n};

	memcpy(message, &w, sizeof(w));
	world_push_message(world_take_source(), KVR_LOADS, &ids, message,
			   (uint32_t)(sizeof(w) + n * sizeof(struct kvr_wire_rank_potential)));
	free(message);
}

static void do_missing(void)
{
	const uint8_t how = world_take_byte();

	world_push_missing(world_take_source(),
			   world_sent((how & 1) ? KVR_POTENTIAL_LOADS : KVR_ROUTE, how >> 1 & 3));
}

static void do_user(void)
{
	const uint8_t how = world_take_byte(), which = world_take_byte();
	const struct kvr_client_report report = {
		.first = true, .last = (how & 16) != 0, .generated_tokens = which};
	const struct kvr_client_release release = {.pool = 0, .session = "s"};

	switch (how & 7) {
	case 0:
	case 1:
		kvr_client_cancel(c, req[which % REQUESTS].id);
		break;
	case 2:
		kvr_client_connect(c);
		break;
	case 3:
		kvr_client_release(c, &release);
		break;
	case 4:
		kvr_client_report(c, req[which % REQUESTS].id, &report);
		break;
	default:
		read_sent_route(which % REQUESTS);
	}
}

/* Time passes; the client is polled whenever it asks for that. */
static void run_client_for(uint32_t ms)
{
	const uint64_t end = world_now() + ms * UINT64_C(1000);
	uint64_t due;

	kvr_client_process(c);
	while (world_now() < end) {
		due = kvr_client__due_us(c);
		world_pass_time((due < world_now() + 100 ? world_now() + 100
				 : due < end		 ? due
							 : end) -
				world_now());
		kvr_client_process(c);
	}
}

static void do_time(void)
{
	static const uint16_t ms[] = {1, 3, 6, 20, 50, 300, 1000, 4000};

	run_client_for(ms[world_take_byte() % 8]);
}

static void (*const steps[])(void) = {
	do_submit, do_submit,	 do_accepted, do_accepted, do_rejected, do_item, do_item, do_item,
	do_item,   do_connected, do_about,    do_loads,	   do_missing,	do_user, do_time, do_time};

/* No peer sends any more. */
static void silence_all_peers(void)
{
	uint64_t said;

	for (uint32_t s = 0; s < 60; s++) {
		run_client_for(1000);
		for (uint32_t i = 0; i < REQUESTS; i++)
			for (uint32_t k = 0; k < 100 && req[i].live && !req[i].callbacks; k++)
				read_sent_route(i);
	}
	MUST(kvr_client_in_flight(c) == 0 && ends == submitted);
	said = world_count_sent();
	run_client_for(10000);
	MUST(world_count_sent() == said);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct kvr_udp_addr router = world_make_addr(WORLD_ROUTER);
	struct kvr_client_conf conf = {.source = SOURCE, .max_requests = 12};
	struct kvr_udp udp;

	world_begin(data, size);
	memset(req, 0, sizeof(req));
	n_req = ends = submitted = 0;
	conf.buffer_bytes = (world_take_byte() & 1) ? 70000 : 0;
	udp = world_udp();
	c = kvr_client__create_on(&conf, &router, &udp);
	for (uint32_t i = 0; i < STEPS && world_has_input(); i++) {
		const uint8_t b = world_take_byte();

		steps[b % (sizeof(steps) / sizeof(steps[0]))]();
		if (b < 192) /* otherwise together with the next */
			run_client_for(0);
	}
	silence_all_peers();
	kvr_client_destroy(c);
	return 0;
}
