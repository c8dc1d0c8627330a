/* SPDX-License-Identifier: BSD-3-Clause */
#include "pair.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kvr_frame.h"
#include "kvr_put.h"
#include "kvr_test.h"

struct pair_run pair_run[PAIR_RUNS];
uint32_t pair_runs;
struct pair_told pair_told[65536];

static const char decode_section[] = "[pool d]\nid = 5\nmodel = m\nrole = decode\n";
static const char prefill_section[] = "[pool p]\nid = 6\nmodel = m\nrole = prefill\n";

static uint64_t watched, chosen; /* request, its first prefill worker */
static char said[4096];

/* A worker's peer has the UDP port 2000 + its id. */
static uint32_t port_of(uint64_t worker)
{
	return 2000 + (uint32_t)worker;
}

static struct pool *pool(uint32_t id)
{
	for (uint32_t i = 0; i < rt->n_pools; i++)
		if (rt->pool[i].wire_id == id)
			return &rt->pool[i];
	return NULL;
}

static void start(const char *first, const char *first_keys, const char *second,
		  const char *second_keys)
{
	char text[2048];

	snprintf(text, sizeof(text), "%s" PIPELINE_POOL "%s\n%s" PIPELINE_POOL "%s\n", first,
		 first_keys, second, second_keys);
	pipeline_start_with(text);
	pair_runs = 0;
	watched = 0;
	said[0] = '\0';
	memset(pair_told, 0, sizeof(pair_told));
}

void pair_start(const char *decode_keys, const char *prefill_keys)
{
	start(decode_section, decode_keys, prefill_section, prefill_keys);
}

void pair_start_prefill_first(const char *decode_keys, const char *prefill_keys)
{
	start(prefill_section, prefill_keys, decode_section, decode_keys);
}

void pair_stop(void)
{
	pair_at_rest();
	pipeline_stop();
}

/* A life of a worker is over: it says no more about what it was sent. */
static void forget(uint64_t worker)
{
	for (uint32_t i = 0; i < pair_runs; i++)
		if (pair_run[i].worker == worker)
			pair_run[i].ended = true;
}

struct pipeline_worker pair_worker(uint64_t worker, uint32_t epoch, bool bootstrap)
{
	const bool decode = worker == PAIR_D || worker == PAIR_E;

	return (struct pipeline_worker){
		.id = worker,
		.epoch = epoch,
		.pool = decode ? "d" : "p",
		.ranks = 1,
		.from = port_of(worker),
		.role = decode ? KVR_ROLE_DECODE : KVR_ROLE_PREFILL,
		.host = bootstrap && !decode ? "10.9.8.7" : NULL,
		.port = bootstrap && !decode ? 8998 : 0,
	};
}

bool pair_join(uint64_t worker, uint32_t epoch, bool bootstrap)
{
	const struct pipeline_worker w = pair_worker(worker, epoch, bootstrap);

	pair_take();
	forget(worker);
	return pipeline_hello_as(&w);
}

static void agent_says(uint64_t worker, uint8_t kind, const struct kvr_wire_ids *ids)
{
	uint8_t buf[64];
	int len = kvr_put_empty(buf, sizeof(buf), kind, ids);

	CU_ASSERT_FATAL(len > 0);
	pipeline_send(port_of(worker), buf, (size_t)len);
	pipeline_turn();
	pair_take();
}

void pair_leave(uint64_t worker)
{
	const struct kvr_worker *w = kvr_registry_find(rt->registry, worker);
	struct kvr_wire_ids ids = {.source = worker, .id = 9};

	if (w == NULL)
		return;
	forget(worker);
	ids.epoch = w->epoch;
	agent_says(worker, KVR_GOODBYE, &ids);
}

void pair_silence(uint64_t worker)
{
	forget(worker);
	kvr_registry_find(rt->registry, worker)->last_seen_ns -= UINT64_C(10000000000);
	pipeline_turn();
	pair_take();
}

void pair_route(uint64_t id, const struct kvr_hint_buf *hints)
{
	pair_route_flags(id, 0, hints);
}

void pair_route_flags(uint64_t id, uint32_t flags, const struct kvr_hint_buf *hints)
{
	pair_take();
	watched = id;
	chosen = 0;
	said[0] = '\0';
	pipeline_route(id, 1000 * id, 6, flags, hints);
	pair_take();
}

void pair_route_again(uint64_t id)
{
	pipeline_route(id, 1000 * id, 6, KVR_REQ_F_RESEND, NULL);
	pair_take();
}

void pair_client(uint64_t id, uint8_t kind)
{
	const struct kvr_wire_ids ids = {.source = PAIR_CLIENT, .id = id, .epoch = 1};
	uint8_t buf[64];
	int len = kvr_put_empty(buf, sizeof(buf), kind, &ids);

	CU_ASSERT_FATAL(len > 0);
	pipeline_send(PEER_CLIENT, buf, (size_t)len);
	pipeline_turn();
	pair_take();
}

void pair_fin_ack(uint64_t id)
{
	const struct kvr_wire_ids ids = {
		.source = PAIR_CLIENT, .id = id, .handle = pair_told[(uint16_t)id].handle};
	const struct kvr_wire_response_ack a = {.next_seq = pair_told[(uint16_t)id].next_seq,
						.flags = KVR_RACK_F_FIN};
	uint8_t buf[64];
	int len = kvr_put_response_ack(buf, sizeof(buf), &ids, &a);

	CU_ASSERT_FATAL(len > 0);
	pipeline_send(PEER_CLIENT, buf, (size_t)len);
	pipeline_turn();
	pair_take();
}

/* ---- what the router has sent ---- */

__attribute__((format(printf, 2, 3))) static void note(uint64_t id, const char *format, ...)
{
	const size_t n = strlen(said);
	va_list ap;

	if (id != watched || n + 64 > sizeof(said))
		return;
	if (n != 0)
		strcat(said, " ");
	va_start(ap, format);
	vsnprintf(said + strlen(said), sizeof(said) - n - 1, format, ap);
	va_end(ap);
}

static struct pair_run *run_of(uint64_t handle)
{
	for (uint32_t i = pair_runs; i-- > 0;)
		if (pair_run[i].handle == handle)
			return &pair_run[i];
	return NULL;
}

/* The prefill worker that was chosen first is p, whichever of the two it was. */
static char letter(uint32_t worker)
{
	if (worker == PAIR_D || worker == PAIR_E)
		return worker == PAIR_D ? 'd' : 'e';
	return chosen == 0 || worker == chosen ? 'p' : 'q';
}

static void got_dispatch(const struct out *o)
{
	struct kvr_message q;
	struct kvr_hints hints;
	struct pair_run *r = run_of(o->hdr.handle);

	CU_ASSERT_EQUAL_FATAL(kvr_request_parse(&o->hdr + 1, o->hdr.msg_len, KVR_DISPATCH, &q), 0);
	CU_ASSERT_EQUAL_FATAL(
		kvr_hints_parse(q.hints, q.fixed.hints_len, KVR_HINTS_DISPATCH, &hints), 0);
	CU_ASSERT_EQUAL(port_of(q.fixed.worker), o->to);
	if (r == NULL) {
		CU_ASSERT_FATAL(pair_runs < PAIR_RUNS);
		r = &pair_run[pair_runs++];
		*r = (struct pair_run){
			.id = o->hdr.id,
			.handle = o->hdr.handle,
			.worker = q.fixed.worker,
			.prefill = (q.fixed.flags & KVR_REQ_F_PREFILL_LEG) != 0,
			.life = pipeline_life(o->hdr.handle),
		};
	} else {
		CU_ASSERT(q.fixed.attempt > r->attempt);
	}
	r->attempt = q.fixed.attempt;
	r->request = q.fixed;
	r->prefill_worker = hints.prefill_worker;
	r->result_len = hints.prefill_result.len;
	r->copies++;
	if (o->hdr.id == watched && chosen == 0 && r->prefill)
		chosen = r->worker;
	note(o->hdr.id, "%c.DISPATCH", letter((uint32_t)r->worker));
}

static void got_item(const struct out *o)
{
	const struct kvr_wire_response *w = (const void *)(&o->hdr + 1);
	struct pair_told *t = &pair_told[(uint16_t)o->hdr.id];

	CU_ASSERT(t->handle == 0 || t->handle == o->hdr.handle); /* never of two tries */
	t->handle = o->hdr.handle;
	t->items++;
	t->next_seq = RTE_MAX(t->next_seq, w->seq + 1);
	t->fin = t->fin || (w->flags & KVR_RESP_F_FIN) != 0;
	note(o->hdr.id, "c.%s%s%s", (w->flags & KVR_RESP_F_FIN) ? "FIN" : "ITEM",
	     (w->flags & KVR_RESP_F_ERROR) ? "-ERROR" : "",
	     (w->flags & KVR_RESP_F_CANCELLED) ? "-CANCELLED" : "");
}

static void client_got(const struct out *o)
{
	static const char *const states[] = {"QUERY", "QUEUED", "DISPATCHED", "RUNNING"};
	struct pair_told *t = &pair_told[(uint16_t)o->hdr.id];
	const void *body = &o->hdr + 1;

	switch (o->hdr.kind) {
	case KVR_ACCEPTED:
		t->accepted = *(const struct kvr_wire_accepted *)body;
		note(o->hdr.id, "c.%s", states[t->accepted.state]);
		break;
	case KVR_REJECTED:
		t->why = *(const struct kvr_wire_rejected *)body;
		t->rejected = t->why.code;
		memcpy(t->words, body + sizeof(t->why),
		       RTE_MIN(t->why.text_len, sizeof(t->words) - 1));
		t->words[RTE_MIN(t->why.text_len, sizeof(t->words) - 1)] = '\0';
		note(o->hdr.id, "c.%s", kvr_code_name(t->rejected));
		break;
	case KVR_RESPONSE:
		got_item(o);
		break;
	case KVR_CANCELLED:
		t->cancelled = true;
		note(o->hdr.id, "c.CANCELLED");
	}
}

static void agent_got(const struct out *o)
{
	const char peer = letter(o->to - port_of(0));
	struct pair_run *r = run_of(o->hdr.handle);

	switch (o->hdr.kind) {
	case KVR_DISPATCH:
		got_dispatch(o);
		break;
	case KVR_RESPONSE_ACK:
		CU_ASSERT_PTR_NOT_NULL_FATAL(r);
		r->acks++;
		break;
	case KVR_ABORT:
		CU_ASSERT_PTR_NOT_NULL_FATAL(r);
		r->aborted = true;
		r->abort_code = ((const struct kvr_wire_abort *)(&o->hdr + 1))->code;
		note(o->hdr.id, "%c.ABORT", peer);
		break;
	case KVR_REJECTED:
		note(o->hdr.id, "%c.%s", peer,
		     kvr_code_name(((const struct kvr_wire_rejected *)(&o->hdr + 1))->code));
	}
}

void pair_take(void)
{
	const struct out *o;

	while ((o = pipeline_next(0)) != NULL)
		if (o->to == PEER_CLIENT)
			client_got(o);
		else if (o->to != 0) /* not taken by pipeline_expect() */
			agent_got(o);
	pipeline_flush();
}

const char *pair_said(void)
{
	static char last[sizeof(said)];

	pair_take();
	strcpy(last, said);
	said[0] = '\0';
	return last;
}

void pair_expect(const char *text, unsigned int line)
{
	const char *is = pair_said();

	if (strcmp(is, text) != 0)
		fprintf(stderr, "line %u: %s\n", line, is);
	CU_ASSERT_STRING_EQUAL(is, text);
}

struct pair_run *pair_leg(uint64_t id, bool prefill)
{
	for (uint32_t i = pair_runs; i-- > 0;)
		if (pair_run[i].id == id && pair_run[i].prefill == prefill)
			return &pair_run[i];
	return NULL;
}

/* ---- workers ---- */

static struct kvr_wire_ids ids_of(const struct pair_run *r)
{
	return (struct kvr_wire_ids){
		.source = PAIR_CLIENT, .id = r->id, .handle = r->handle, .epoch = r->life};
}

void pair_ack(struct pair_run *r, uint16_t code)
{
	const struct kvr_wire_ids ids = ids_of(r);
	const struct kvr_wire_dispatch_ack a = {.code = code};
	uint8_t buf[64];
	int len = kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &a);

	r->ended = r->ended || (code != 0 && !r->acked && r->next_seq == 0);
	r->acked = true;
	pipeline_send(port_of(r->worker), buf, (size_t)len);
	pipeline_turn();
	pair_take();
}

void pair_item(struct pair_run *r, uint16_t flags, const char *data)
{
	const struct kvr_wire_ids ids = ids_of(r);
	const struct kvr_wire_response w = {.seq = r->next_seq++,
					    .flags = flags,
					    .status = r->status,
					    .generated_tokens = r->tokens,
					    .cached_tokens = KVR_NONE32};
	uint8_t buf[256];
	int len = kvr_put_response(buf, sizeof(buf), &ids, w,
				   (struct kvr_slice){data, (uint32_t)strlen(data)});

	CU_ASSERT_FATAL(len > 0);
	r->ended = r->ended || (flags & KVR_RESP_F_FIN) != 0;
	r->flags = flags;
	pipeline_send(port_of(r->worker), buf, (size_t)len);
	pipeline_turn();
	pair_take();
}

void pair_abort_ack(struct pair_run *r)
{
	const struct kvr_wire_ids ids = ids_of(r);

	agent_says(r->worker, KVR_ABORT_ACK, &ids);
}

static void do_next(struct pair_run *r)
{
	if (r->aborted) {
		pair_abort_ack(r);
		pair_item(r, KVR_RESP_F_FIN | KVR_RESP_F_CANCELLED, "");
	} else if (!r->acked) {
		pair_ack(r, 0);
	} else {
		r->tokens += 3;
		pair_item(r, KVR_RESP_F_FIN, "result");
	}
}

void pair_finish(void)
{
	pair_take();
	for (uint32_t i = 0; i < pair_runs; i++)
		while (!pair_run[i].ended)
			do_next(&pair_run[i]);
}

/* ---- rest ---- */

static void pool_at_rest(const struct pool *p)
{
	CU_ASSERT_EQUAL(kvr_sched_counters(p->sched)->booked_now, 0);
	CU_ASSERT_EQUAL(kvr_sched_counters(p->sched)->waiting_now, 0);
	CU_ASSERT_EQUAL(kvr_flight_count(p->requests), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(p->jobs), 0);
	CU_ASSERT(TAILQ_EMPTY(&p->live.aborts));
	for (uint32_t i = 0; i < LEG_STEPS; i++)
		CU_ASSERT(TAILQ_EMPTY(&p->live.resends[i]));
}

void pair_at_rest(void)
{
	const struct pool *d = pool(5);

	pipeline_turn();
	CU_ASSERT_EQUAL(kvr_sched_counters(d->sched)->booked_now, 0);
	CU_ASSERT_EQUAL(kvr_sched_counters(pool(6)->sched)->booked_now, 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(d->pairs), 0);
	CU_ASSERT_EQUAL(d->pair.n_prefilling, 0);
	CU_ASSERT_EQUAL(d->live.n_lost, 0);
	pipeline_advance(KVR_FLIGHT_LINGER_NS / 1000000 + 1);
	/* They go a few a turn. */
	for (uint32_t i = 0;
	     i < kvr_flight_size(d->requests) && kvr_flight_lingering(d->requests) != 0; i++)
		pipeline_turn();
	pool_at_rest(d);
	pool_at_rest(pool(6));
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->hash_bufs), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->hint_bufs), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->frame_lists), 0);
	CU_ASSERT(pipeline_balanced());
	pair_take();
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
}
