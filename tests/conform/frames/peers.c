/* SPDX-License-Identifier: BSD-3-Clause */
/* What clients and agents of a scenario say: frames that go in. */
#include "peers.h"

#include "pipeline.h"

#include <stdlib.h>
#include <string.h>

#include "kvr_frame.h"
#include "kvr_put.h"

uint32_t peers_said;
static uint32_t numbers; /* of frames that somebody chooses a number for */
static uint64_t releases;

static void need(bool ok, const char *what)
{
	if (ok)
		return;
	fflush(stdout);
	fprintf(stderr, "frames: %s\n", what);
	exit(3);
}

static void say(uint16_t port, const void *frame, int len)
{
	need(len > 0, "a frame that cannot be written");
	peers_said++;
	pipeline_send(port, frame, (size_t)len);
}

static struct kvr_wire_ids ids_of_agent(const struct peers_agent *a, uint64_t id)
{
	return (struct kvr_wire_ids){.source = a->worker, .id = id, .epoch = a->epoch};
}

static struct kvr_wire_ids ids_of_run(const struct peers_run *r)
{
	return (struct kvr_wire_ids){
		.source = PEERS_SOURCE, .id = r->id, .handle = r->handle, .epoch = r->at.epoch};
}

static struct kvr_wire_ids ids_of_client(uint64_t id, uint64_t handle)
{
	return (struct kvr_wire_ids){.source = PEERS_SOURCE,
				     .id = id,
				     .handle = handle,
				     .epoch = 1,
				     .msg_seq = ++numbers};
}

/* ---- agents ------------------------------------------------------------------------------ */

void peers_hello(const struct peers_agent *a, const struct peers_hello *h)
{
	const struct kvr_wire_ids ids = ids_of_agent(a, ++numbers);
	const struct kvr_wire_hello w = {
		.block_size = h->block_size,
		.dp_start = h->dp_start,
		.dp_size = h->dp_size,
		.max_num_batched_tokens = h->max_num_batched_tokens,
		.total_kv_blocks = h->total_kv_blocks,
		.max_frame = KVR_WIRE_DEF_FRAME,
		.role = h->role,
		.flags = h->cpu ? KVR_HELLO_F_CPU : 0,
	};
	uint8_t tlv[8192], buf[KVR_WIRE_MAX_FRAME];
	struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};

	kvr_hint_put_str(&hints, KVR_HINT_POOL, h->pool);
	for (uint32_t i = 0; i < h->n_taints; i++)
		kvr_hint_put_str(&hints, KVR_HINT_TAINT, h->taint[i]);
	for (uint32_t i = 0; i < h->n_topology; i++)
		kvr_hint_put_str(&hints, KVR_HINT_TOPOLOGY, h->topology[i]);
	if (h->domain != NULL)
		kvr_hint_put_kv_transfer(&hints, h->required ? 2 : 1, h->weight, h->domain);
	if (h->host != NULL)
		kvr_hint_put_bootstrap_addr(&hints, h->bootstrap_port, h->host);
	say(a->port, buf, kvr_put_hello(buf, sizeof(buf), &ids, w, &hints));
}

void peers_goodbye(const struct peers_agent *a)
{
	const struct kvr_wire_ids ids = ids_of_agent(a, ++numbers);
	uint8_t buf[64];

	say(a->port, buf, kvr_put_empty(buf, sizeof(buf), KVR_GOODBYE, &ids));
}

/* The frames of what may wait in the router until it has emptied the rank: they are repeated. */
static void events_frame(const struct peers_agent *a, struct kvr_kv_put *k, const uint8_t *buf)
{
	const int len = kvr_kv_put_end(k);

	for (uint32_t tries = 0; tries < 1000; tries++) {
		const struct out *o;

		say(a->port, buf, len);
		pipeline_turn();
		o = pipeline_expect(a->port, KVR_KV_ACK);
		need(o != NULL, "KV_EVENTS without KV_ACK");
		if (((const struct kvr_wire_kv_ack *)(&o->hdr + 1))->code == KVR_KV_OK)
			return;
	}
	need(false, "KV_EVENTS are not taken");
}

void peers_events(const struct peers_agent *a, uint32_t dp_rank, uint8_t type, uint8_t tier,
		  const uint64_t *parent, const uint64_t *sh, uint32_t n, uint64_t *next)
{
	uint32_t done = 0;

	do {
		const struct kvr_wire_ids ids = ids_of_agent(a, ++numbers);
		const struct kvr_wire_kv_events head = {.first_event_id = (*next)++,
							.dp_rank = dp_rank};
		uint8_t buf[KVR_WIRE_DEF_FRAME];
		struct kvr_kv_put k;
		uint32_t part;

		need(kvr_kv_put_begin(&k, buf, sizeof(buf), &ids, &head) == 0, "KV_EVENTS");
		part = RTE_MIN(n - done, kvr_kv_put_room(&k));
		need(kvr_kv_put_event(&k, type, tier, parent, done == 0 ? sh : sh + done, part) ==
			     0,
		     "KV event");
		events_frame(a, &k, buf);
		done += part;
		if (type == KVR_KV_STORED)
			parent = &sh[done - 1];
	} while (done < n);
}

void peers_load(const struct peers_agent *a, uint32_t dp_rank, uint64_t used, uint64_t next)
{
	const struct kvr_wire_ids ids = ids_of_agent(a, ++numbers);
	const struct kvr_wire_rank_load l = {
		.dp_rank = dp_rank, .kv_used_blocks = used, .next_event_id = next};
	uint8_t buf[128];

	say(a->port, buf, kvr_put_heartbeat(buf, sizeof(buf), &ids, &l, 1, 0, 0));
}

void peers_taken(const struct peers_run *r)
{
	const struct kvr_wire_ids ids = ids_of_run(r);
	const struct kvr_wire_dispatch_ack ack = {.code = 0};
	uint8_t buf[64];

	say(r->at.port, buf, kvr_put_dispatch_ack(buf, sizeof(buf), &ids, &ack));
}

void peers_first_token(struct peers_run *r, uint32_t tokens)
{
	const struct kvr_wire_ids ids = ids_of_run(r);
	const struct kvr_wire_progress p = {.seq = r->reports++,
					    .flags = KVR_PROG_F_FIRST,
					    .generated_tokens = tokens,
					    .cached_tokens = KVR_NONE32};
	uint8_t buf[128];

	say(r->at.port, buf, kvr_put_progress(buf, sizeof(buf), &ids, &p));
}

void peers_item(struct peers_run *r, uint16_t flags, uint32_t tokens, const char *data)
{
	const struct kvr_wire_ids ids = ids_of_run(r);
	const struct kvr_wire_response w = {.seq = r->seq++,
					    .flags = flags,
					    .generated_tokens = tokens,
					    .cached_tokens = KVR_NONE32};
	uint8_t buf[256];

	say(r->at.port, buf,
	    kvr_put_response(buf, sizeof(buf), &ids, w,
			     (struct kvr_slice){data, (uint32_t)strlen(data)}));
}

void peers_aborted(const struct peers_run *r)
{
	const struct kvr_wire_ids ids = ids_of_run(r);
	uint8_t buf[64];

	say(r->at.port, buf, kvr_put_empty(buf, sizeof(buf), KVR_ABORT_ACK, &ids));
}

void peers_session(const struct peers_agent *a, uint8_t kind, uint64_t id, uint16_t code)
{
	const struct kvr_wire_ids ids = ids_of_agent(a, id);
	uint8_t buf[64];

	say(a->port, buf, kvr_put_session_status(buf, sizeof(buf), kind, &ids, code));
}

/* ---- the client -------------------------------------------------------------------------- */

static void put_text(struct kvr_hint_buf *b, uint16_t type, struct kvr_str s)
{
	kvr_hint_put(b, type, s.p, s.len, NULL, 0);
}

static void put_failed_at(struct kvr_hint_buf *b, const struct kvr_hints *h)
{
	uint64_t worker[KVR_HINT_MAX_FAILED_AT];
	uint32_t dp_rank[KVR_HINT_MAX_FAILED_AT];

	for (uint32_t i = 0; i < h->n_failed_at; i++) {
		worker[i] = h->failed_at[i].worker;
		dp_rank[i] = h->failed_at[i].dp_rank;
	}
	if (h->n_failed_at != 0)
		kvr_hint_put_ranks(b, KVR_HINT_FAILED_AT, worker, dp_rank, h->n_failed_at);
}

static void put_pins(struct kvr_hint_buf *b, const struct kvr_hints *h)
{
	if (h->present & KVR_HAS(KVR_HINT_BACKEND))
		kvr_hint_put_u64(b, KVR_HINT_BACKEND, h->backend_worker);
	if (h->present & KVR_HAS(KVR_HINT_PREFILL_WORKER))
		kvr_hint_put_u64(b, KVR_HINT_PREFILL_WORKER, h->prefill_worker);
	if (h->present & KVR_HAS(KVR_HINT_DECODE_WORKER))
		kvr_hint_put_u64(b, KVR_HINT_DECODE_WORKER, h->decode_worker);
	if (h->present & KVR_HAS(KVR_HINT_DP_RANK))
		kvr_hint_put_u32(b, KVR_HINT_DP_RANK, h->dp_rank);
	if (h->present & KVR_HAS(KVR_HINT_PREFILL_DP_RANK))
		kvr_hint_put_u32(b, KVR_HINT_PREFILL_DP_RANK, h->prefill_dp_rank);
	if (h->present & KVR_HAS(KVR_HINT_ALLOWED_WORKERS))
		kvr_hint_put_allowed(b, h->allowed, h->n_allowed);
	put_failed_at(b, h);
}

static void put_preferences(struct kvr_hint_buf *b, const struct kvr_hints *h)
{
	for (uint32_t i = 0; i < h->n_required; i++)
		put_text(b, KVR_HINT_REQUIRED_TAINT, h->required[i]);
	for (uint32_t i = 0; i < h->n_preferred; i++)
		kvr_hint_put(b, KVR_HINT_PREFERRED_TAINT, &h->preferred[i].weight, 8,
			     h->preferred[i].taint.p, h->preferred[i].taint.len);
	if (h->priority_jump != 0)
		kvr_hint_put_f64(b, KVR_HINT_PRIORITY_JUMP, h->priority_jump);
	if (h->strict_priority != 0)
		kvr_hint_put_u32(b, KVR_HINT_STRICT_PRIORITY, h->strict_priority);
}

/* As it is: what is not legal the router must refuse. */
static void put_over(struct kvr_hint_buf *b, uint32_t field, double value)
{
	const uint32_t head[2] = {field, 0};

	kvr_hint_put(b, KVR_HINT_OVERRIDE, head, sizeof(head), &value, sizeof(value));
}

static void put_overrides(struct kvr_hint_buf *b, const struct kvr_hint_overrides *o)
{
	for (uint32_t i = 0; i < RTE_DIM(o->value); i++)
		if ((o->given >> i & 1) != 0)
			put_over(b, i, o->value[i]);
}

static void put_hints(struct kvr_hint_buf *b, const struct peers_route *q)
{
	put_pins(b, q->hints);
	put_preferences(b, q->hints);
	if (q->lora != NULL && q->lora[0] != '\0')
		kvr_hint_put_str(b, KVR_HINT_LORA, q->lora);
	if (q->ns != NULL && q->ns[0] != '\0')
		kvr_hint_put_str(b, KVR_HINT_NAMESPACE, q->ns);
	if (q->hints->policy.len != 0)
		put_text(b, KVR_HINT_POLICY_CLASS, q->hints->policy);
	put_overrides(b, &q->hints->overrides);
	if (q->session != NULL)
		kvr_hint_put_session(b, q->action, q->timeout_s, q->session);
	for (uint32_t i = 0; i < q->n_mm; i++)
		kvr_hint_put_mm(b, q->mm[i].block, q->mm[i].hash, q->mm[i].n);
	for (uint32_t i = 0; i < q->hints->n_shared; i++)
		if (q->hints->shared[i].start != q->hints->shared[i].end)
			kvr_hint_put_shared(b, q->hints->shared[i].start, q->hints->shared[i].end);
}

bool peers_route(const struct peers_route *q)
{
	static const uint8_t pad[KVR_WIRE_ASKING_LEAST - 4];
	static uint8_t tlv[KVR_WIRE_MAX_HINTS];
	struct kvr_hint_buf hints = {.p = tlv, .cap = sizeof(tlv)};
	const struct kvr_wire_ids ids = ids_of_client(q->id, 0);
	struct kvr_request_src src = {
		.fixed = {.pool = (uint16_t)q->pool,
			  .phase = q->phase,
			  .flags = (q->query   ? KVR_REQ_F_QUERY
				    : q->probe ? KVR_REQ_F_HEALTH
				    : q->book  ? KVR_REQ_F_BOOK
					       : 0) |
				   (q->resend ? KVR_REQ_F_RESEND : 0),
			  .isl = q->isl,
			  .max_tokens = q->max_tokens,
			  .expected_output_tokens =
				  q->hints != NULL && q->hints->present & KVR_HAS_EXPECTED_OUTPUT
					  ? q->hints->expected_output_tokens
					  : KVR_NONE32},
		.hashes = q->hashes,
		.tokens = q->tokens,
		.n_hashes = q->n_hashes,
		.n_tokens = q->n_tokens,
		.body = q->body,
		.body_len = (uint32_t)strlen(q->body),
	};
	struct kvr_slice s[KVR_REQUEST_SLICES];
	uint8_t frame[KVR_WIRE_DEF_FRAME];
	struct kvr_frag frag;
	uint32_t len, off, part;

	if (q->hints != NULL)
		put_hints(&hints, q);
	if (q->book)
		kvr_hint_put(&hints, KVR_HINT_PAD, pad, sizeof(pad), NULL, 0);
	src.hints = hints.p;
	src.hints_len = hints.len;
	len = kvr_request_build(&src, s);
	if (hints.err != 0 || len == 0 ||
	    kvr_frag_init(&frag, q->kind, &ids, len, sizeof(frame)) != 0)
		return false;
	peers_said++;
	while (kvr_frag_next(&frag, frame, &off, &part)) {
		kvr_slices_copy(s, KVR_REQUEST_SLICES, off, part,
				frame + sizeof(struct kvr_wire_hdr));
		pipeline_send(PEER_CLIENT, frame, sizeof(struct kvr_wire_hdr) + part);
	}
	return true;
}

void peers_reported(uint64_t id, uint64_t handle, uint32_t seq, uint16_t flags, uint32_t tokens)
{
	const struct kvr_wire_ids ids = ids_of_client(id, handle);
	const struct kvr_wire_progress p = {.seq = seq,
					    .flags = flags,
					    .generated_tokens = tokens,
					    .cached_tokens = KVR_NONE32};
	uint8_t buf[128];

	say(PEER_CLIENT, buf, kvr_put_progress(buf, sizeof(buf), &ids, &p));
}

void peers_cancel(uint64_t id, uint64_t handle)
{
	const struct kvr_wire_ids ids = ids_of_client(id, handle);
	uint8_t buf[64];

	say(PEER_CLIENT, buf, kvr_put_empty(buf, sizeof(buf), KVR_CANCEL, &ids));
}

void peers_release(uint32_t pool, const char *session)
{
	const struct kvr_wire_ids ids = ids_of_client(++releases, 0);
	const struct kvr_wire_session body = {.pool = (uint16_t)pool};
	uint8_t buf[512];

	say(PEER_CLIENT, buf,
	    kvr_put_session(buf, sizeof(buf), KVR_SESSION_RELEASE, &ids, body,
			    (struct kvr_str){session, (uint32_t)strlen(session)}));
}

void peers_fin_acked(uint64_t id, uint64_t handle, uint32_t seq)
{
	const struct kvr_wire_ids ids = ids_of_client(id, handle);
	const struct kvr_wire_response_ack a = {seq + 1, KVR_RACK_F_FIN};
	uint8_t buf[64];

	say(PEER_CLIENT, buf, kvr_put_response_ack(buf, sizeof(buf), &ids, &a));
}
