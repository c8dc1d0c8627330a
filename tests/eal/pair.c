/* SPDX-License-Identifier: BSD-3-Clause */
#include "pair.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "kvr_frame.h"
#include "kvr_put.h"
#include "kvr_test.h"

struct pair_attempt pair_attempt[PAIR_RUNS];
uint32_t pair_attempts;
struct pair_answer pair_answer[65536];

static const char decode_section[] = "[pool d]\nid = 5\nmodel = m\nrole = decode\n";
static const char prefill_section[] = "[pool p]\nid = 6\nmodel = m\nrole = prefill\n";

static uint64_t watched, chosen; /* watched request and its first prefill worker */
static char events[4096];

/* The agent of a worker has UDP port 2000 + worker id. */
static uint32_t get_agent_port(uint64_t worker)
{
	return 2000 + (uint32_t)worker;
}

static struct pool *find_pool(uint32_t id)
{
	for (uint32_t i = 0; i < rt->n_pools; i++)
		if (rt->pool[i].wire_id == id)
			return &rt->pool[i];
	return NULL;
}

static void start_pair(const char *first, const char *first_keys, const char *second,
		       const char *second_keys)
{
	char text[2048];

	snprintf(text, sizeof(text), "%s" PIPELINE_POOL "%s\n%s" PIPELINE_POOL "%s\n", first,
		 first_keys, second, second_keys);
	pipeline_start_with(text);
	pair_attempts = 0;
	watched = 0;
	events[0] = '\0';
	memset(pair_answer, 0, sizeof(pair_answer));
}

void pair_start(const char *decode_keys, const char *prefill_keys)
{
	start_pair(decode_section, decode_keys, prefill_section, prefill_keys);
}

void pair_start_prefill_first(const char *decode_keys, const char *prefill_keys)
{
	start_pair(prefill_section, prefill_keys, decode_section, decode_keys);
}

void pair_stop(void)
{
	pair_at_rest();
	pipeline_stop();
}

/* End the attempts of a worker's incarnation: it sends nothing more about them. */
static void end_worker_attempts(uint64_t worker)
{
	for (uint32_t i = 0; i < pair_attempts; i++)
		if (pair_attempt[i].worker == worker)
			pair_attempt[i].ended = true;
}

struct pipeline_worker pair_worker(uint64_t worker, uint32_t epoch, bool bootstrap)
{
	const bool decode = worker == PAIR_D || worker == PAIR_E;

	return (struct pipeline_worker){
		.id = worker,
		.epoch = epoch,
		.pool = decode ? "d" : "p",
		.ranks = 1,
		.from = get_agent_port(worker),
		.role = decode ? KVR_ROLE_DECODE : KVR_ROLE_PREFILL,
		.host = bootstrap && !decode ? "10.9.8.7" : NULL,
		.port = bootstrap && !decode ? 8998 : 0,
	};
}

bool pair_join(uint64_t worker, uint32_t epoch, bool bootstrap)
{
	const struct pipeline_worker w = pair_worker(worker, epoch, bootstrap);

	pair_take();
	end_worker_attempts(worker);
	return pipeline_hello_as(&w);
}

static void send_from_agent(uint64_t worker, uint8_t kind, const struct kvr_wire_ids *ids)
{
	uint8_t buf[64];
	int len = kvr_put_empty(buf, sizeof(buf), kind, ids);

	CU_ASSERT_FATAL(len > 0);
	pipeline_send(get_agent_port(worker), buf, (size_t)len);
	pipeline_turn();
	pair_take();
}

void pair_leave(uint64_t worker)
{
	const struct kvr_worker *w = kvr_registry_find(rt->registry, worker);
	struct kvr_wire_ids ids = {.source = worker, .id = 9};

	if (w == NULL)
		return;
	end_worker_attempts(worker);
	ids.epoch = w->epoch;
	send_from_agent(worker, KVR_GOODBYE, &ids);
}

void pair_silence(uint64_t worker)
{
	end_worker_attempts(worker);
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
	events[0] = '\0';
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
		.source = PAIR_CLIENT, .id = id, .handle = pair_answer[(uint16_t)id].handle};
	const struct kvr_wire_response_ack a = {.next_seq = pair_answer[(uint16_t)id].next_seq,
						.flags = KVR_RACK_F_FIN};
	uint8_t buf[64];
	int len = kvr_put_response_ack(buf, sizeof(buf), &ids, &a);

	CU_ASSERT_FATAL(len > 0);
	pipeline_send(PEER_CLIENT, buf, (size_t)len);
	pipeline_turn();
	pair_take();
}

/* ---- frames from the router ---- */

__attribute__((format(printf, 2, 3))) static void append_event(uint64_t id, const char *format, ...)
{
	const size_t n = strlen(events);
	va_list ap;

	if (id != watched || n + 64 > sizeof(events))
		return;
	if (n != 0)
		strcat(events, " ");
	va_start(ap, format);
	vsnprintf(events + strlen(events), sizeof(events) - n - 1, format, ap);
	va_end(ap);
}

static struct pair_attempt *find_attempt(uint64_t handle)
{
	for (uint32_t i = pair_attempts; i-- > 0;)
		if (pair_attempt[i].handle == handle)
			return &pair_attempt[i];
	return NULL;
}

/* The first chosen prefill worker is called p, whichever of the two it is. */
static char get_worker_letter(uint32_t worker)
{
	if (worker == PAIR_D || worker == PAIR_E)
		return worker == PAIR_D ? 'd' : 'e';
	return chosen == 0 || worker == chosen ? 'p' : 'q';
}

static void read_dispatch(const struct out *o)
{
	struct kvr_message q;
	struct kvr_hint_lists lists;
	struct kvr_hints hints;
	struct pair_attempt *r = find_attempt(o->hdr.handle);

	CU_ASSERT_EQUAL_FATAL(kvr_request_parse(&o->hdr + 1, o->hdr.msg_len, KVR_DISPATCH, &q), 0);
	CU_ASSERT_EQUAL_FATAL(
		kvr_hints_parse(q.hints, q.fixed.hints_len, KVR_HINTS_DISPATCH, &hints, &lists), 0);
	CU_ASSERT_EQUAL(get_agent_port(q.fixed.worker), o->to);
	if (r == NULL) {
		CU_ASSERT_FATAL(pair_attempts < PAIR_RUNS);
		r = &pair_attempt[pair_attempts++];
		*r = (struct pair_attempt){
			.id = o->hdr.id,
			.handle = o->hdr.handle,
			.worker = q.fixed.worker,
			.prefill = (q.fixed.flags & KVR_REQ_F_PREFILL_LEG) != 0,
			.epoch = pipeline_epoch(o->hdr.handle),
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
	append_event(o->hdr.id, "%c.DISPATCH", get_worker_letter((uint32_t)r->worker));
}

static void read_item(const struct out *o)
{
	const struct kvr_wire_response *w = (const void *)(&o->hdr + 1);
	struct pair_answer *t = &pair_answer[(uint16_t)o->hdr.id];

	CU_ASSERT(t->handle == 0 ||
		  t->handle == o->hdr.handle); /* all attempts of one request share a handle */
	t->handle = o->hdr.handle;
	t->items++;
	t->next_seq = RTE_MAX(t->next_seq, w->seq + 1);
	t->fin = t->fin || (w->flags & KVR_RESP_F_FIN) != 0;
	append_event(o->hdr.id, "c.%s%s%s", (w->flags & KVR_RESP_F_FIN) ? "FIN" : "ITEM",
		     (w->flags & KVR_RESP_F_ERROR) ? "-ERROR" : "",
		     (w->flags & KVR_RESP_F_CANCELLED) ? "-CANCELLED" : "");
}

static void read_client_frame(const struct out *o)
{
	static const char *const states[] = {"QUERY", "QUEUED", "DISPATCHED", "RUNNING"};
	struct pair_answer *t = &pair_answer[(uint16_t)o->hdr.id];
	const void *body = &o->hdr + 1;

	switch (o->hdr.kind) {
	case KVR_ACCEPTED:
		t->accepted = *(const struct kvr_wire_accepted *)body;
		append_event(o->hdr.id, "c.%s", states[t->accepted.state]);
		break;
	case KVR_REJECTED:
		t->why = *(const struct kvr_wire_rejected *)body;
		t->rejected = t->why.code;
		memcpy(t->words, body + sizeof(t->why),
		       RTE_MIN(t->why.text_len, sizeof(t->words) - 1));
		t->words[RTE_MIN(t->why.text_len, sizeof(t->words) - 1)] = '\0';
		append_event(o->hdr.id, "c.%s", kvr_code_name(t->rejected));
		break;
	case KVR_RESPONSE:
		read_item(o);
		break;
	case KVR_CANCELLED:
		t->cancelled = true;
		append_event(o->hdr.id, "c.CANCELLED");
	}
}

static void read_agent_frame(const struct out *o)
{
	const char peer = get_worker_letter(o->to - get_agent_port(0));
	struct pair_attempt *r = find_attempt(o->hdr.handle);

	switch (o->hdr.kind) {
	case KVR_DISPATCH:
		read_dispatch(o);
		break;
	case KVR_RESPONSE_ACK:
		CU_ASSERT_PTR_NOT_NULL_FATAL(r);
		r->acks++;
		break;
	case KVR_ABORT:
		CU_ASSERT_PTR_NOT_NULL_FATAL(r);
		r->aborted = true;
		r->abort_code = ((const struct kvr_wire_abort *)(&o->hdr + 1))->code;
		append_event(o->hdr.id, "%c.ABORT", peer);
		break;
	case KVR_REJECTED:
		append_event(
			o->hdr.id, "%c.%s", peer,
			kvr_code_name(((const struct kvr_wire_rejected *)(&o->hdr + 1))->code));
	}
}

void pair_take(void)
{
	const struct out *o;

	while ((o = pipeline_next(0)) != NULL)
		if (o->to == PEER_CLIENT)
			read_client_frame(o);
		else if (o->to != 0) /* not yet taken by pipeline_expect() */
			read_agent_frame(o);
	pipeline_flush();
}

const char *pair_take_frames(void)
{
	static char last[sizeof(events)];

	pair_take();
	strcpy(last, events);
	events[0] = '\0';
	return last;
}

void pair_expect(const char *text, unsigned int line)
{
	const char *is = pair_take_frames();

	if (strcmp(is, text) != 0)
		fprintf(stderr, "line %u: %s\n", line, is);
	CU_ASSERT_STRING_EQUAL(is, text);
}

struct pair_attempt *pair_leg(uint64_t id, bool prefill)
{
	for (uint32_t i = pair_attempts; i-- > 0;)
		if (pair_attempt[i].id == id && pair_attempt[i].prefill == prefill)
			return &pair_attempt[i];
	return NULL;
}

/* ---- workers ---- */

static struct kvr_wire_ids make_pair_ids(const struct pair_attempt *r)
{
	return (struct kvr_wire_ids){
		.source = PAIR_CLIENT, .id = r->id, .handle = r->handle, .epoch = r->epoch};
}

void pair_ack(struct pair_attempt *r, uint16_t code)
{
	const struct kvr_wire_ids ids = make_pair_ids(r);
	const struct kvr_wire_dispatch_ack a = {.code = code};
	uint8_t buf[64];
	int len = kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &a);

	r->ended = r->ended || (code != 0 && !r->acked && r->next_seq == 0);
	r->acked = true;
	pipeline_send(get_agent_port(r->worker), buf, (size_t)len);
	pipeline_turn();
	pair_take();
}

void pair_item(struct pair_attempt *r, uint16_t flags, const char *data)
{
	const struct kvr_wire_ids ids = make_pair_ids(r);
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
	pipeline_send(get_agent_port(r->worker), buf, (size_t)len);
	pipeline_turn();
	pair_take();
}

void pair_abort_ack(struct pair_attempt *r)
{
	const struct kvr_wire_ids ids = make_pair_ids(r);

	send_from_agent(r->worker, KVR_ABORT_ACK, &ids);
}

static void take_next_step(struct pair_attempt *r)
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
	for (uint32_t i = 0; i < pair_attempts; i++)
		while (!pair_attempt[i].ended)
			take_next_step(&pair_attempt[i]);
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
	const struct pool *d = find_pool(5);

	pipeline_turn();
	CU_ASSERT_EQUAL(kvr_sched_counters(d->sched)->booked_now, 0);
	CU_ASSERT_EQUAL(kvr_sched_counters(find_pool(6)->sched)->booked_now, 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(d->pairs), 0);
	CU_ASSERT_EQUAL(d->pair.n_prefilling, 0);
	CU_ASSERT_EQUAL(d->live.n_lost, 0);
	pipeline_advance(KVR_FLIGHT_LINGER_NS / 1000000 + 1);
	/* Each turn frees a few of them. */
	for (uint32_t i = 0;
	     i < kvr_flight_size(d->requests) && kvr_flight_lingering(d->requests) != 0; i++)
		pipeline_turn();
	pool_at_rest(d);
	pool_at_rest(find_pool(6));
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->hash_bufs), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->hint_bufs), 0);
	CU_ASSERT_EQUAL(rte_mempool_in_use_count(rt->frame_lists), 0);
	CU_ASSERT(pipeline_balanced());
	pair_take();
	CU_ASSERT_EQUAL(pipeline_mbufs_used(), 0);
}
