/* SPDX-License-Identifier: BSD-3-Clause */
#include "body_pvt.h"
#include "kvr_message.h"
#include "kvr_reason.h"

#include <string.h>

/* One checker per kind, in a table. It may assume len >= min_body of the kind. */

static bool padding_set(const void *p, uint64_t len, uint64_t padded)
{
	const uint8_t *b = p;
	uint8_t any = 0;

	for (uint64_t i = len; i < padded; i++)
		any |= b[i];
	return any != 0;
}

/* A tail of @p len bytes after @p fixed bytes, padded to 8, ends the body of @p body_len. */
static enum kvr_code check_tail(const void *body, uint32_t body_len, uint32_t fixed, uint64_t len,
				struct kvr_fault *f)
{
	const uint64_t padded = (len + 7) & ~UINT64_C(7);

	if (fixed + padded != body_len)
		return bad_length(f, fixed + padded, body_len);
	return padding_set((const uint8_t *)body + fixed, len, padded) ? reserved_set(f) : 0;
}

static bool frame_size_ok(uint32_t max_frame)
{
	return max_frame >= KVR_WIRE_LEAST_MAX_FRAME && max_frame <= KVR_WIRE_MAX_FRAME;
}

static enum kvr_code check_hints(const void *p, uint32_t len, enum kvr_hints_in in,
				 struct kvr_hints *h, struct kvr_fault *f)
{
	struct kvr_hint_lists lists;
	const enum kvr_code r = kvr_hints_parse(p, len, in, h, &lists);

	return r == 0 ? 0 : set_fault(f, r, "bad hint", 0, 0);
}

static enum kvr_code check_request(uint8_t kind, const void *body, uint32_t len,
				   struct kvr_fault *f)
{
	struct kvr_message q;
	struct kvr_hints h;
	enum kvr_code r = kvr_request_parse(body, len, kind, &q);

	if (r != 0) {
		*f = q.fault;
		return r;
	}
	r = check_hints(q.hints, q.fixed.hints_len,
			kind == KVR_DISPATCH ? KVR_HINTS_DISPATCH : KVR_HINTS_ROUTE, &h, f);
	if (r == 0 && kvr_hints_say_away(&h) != ((q.fixed.flags & KVR_REQ_F_AWAY) != 0))
		r = set_fault(f, KVR_E_HINT, "BODY without AWAY, or AWAY without BODY", 0, 0);
	return r;
}

static enum kvr_code check_route(const void *body, uint32_t len, struct kvr_fault *f)
{
	return check_request(KVR_ROUTE, body, len, f);
}

static enum kvr_code check_dispatch(const void *body, uint32_t len, struct kvr_fault *f)
{
	return check_request(KVR_DISPATCH, body, len, f);
}

static enum kvr_code check_connect(const void *body, uint32_t len, struct kvr_fault *f)
{
	const struct kvr_wire_connect *m = body;
	struct kvr_hints h;

	if (m->reserved != 0)
		return reserved_set(f);
	if (!frame_size_ok(m->max_frame))
		return bad_value(f, "max_frame out of range", m->max_frame, KVR_WIRE_MAX_FRAME);
	if (m->hints_len != len - sizeof(*m))
		return bad_length(f, m->hints_len, len - sizeof(*m));
	return check_hints(m + 1, m->hints_len, KVR_HINTS_CONNECT, &h, f);
}

static enum kvr_code check_connected(const void *body, uint32_t len, struct kvr_fault *f)
{
	const struct kvr_wire_connected *m = body;
	const struct kvr_wire_pool *pool = (const struct kvr_wire_pool *)(m + 1);
	uint64_t off = sizeof(*m) + (uint64_t)m->n_pools * sizeof(*pool);

	if (off > len)
		return bad_length(f, off, len);
	if (m->max_message > KVR_WIRE_MAX_MESSAGE ||
	    m->max_message < sizeof(struct kvr_wire_request))
		return bad_value(f, "max_message out of range", m->max_message,
				 KVR_WIRE_MAX_MESSAGE);
	if (m->max_frames == 0 || m->max_frames > KVR_WIRE_MAX_FRAGMENTS)
		return bad_value(f, "max_frames out of range", m->max_frames,
				 KVR_WIRE_MAX_FRAGMENTS);
	if (m->total_pools < m->n_pools || !frame_size_ok(m->max_frame))
		return bad_value(f, "limits out of range", m->max_frame, KVR_WIRE_MAX_FRAME);
	for (uint32_t i = 0; i < m->n_pools; i++) {
		const uint32_t n = pool[i].name_len, padded = (n + 7u) & ~7u;

		if (pool[i].reserved != 0 ||
		    (pool[i].flags & ~(KVR_POOL_F_EAGLE | KVR_POOL_F_SERVES)) != 0)
			return reserved_set(f);
		if (pool[i].role > KVR_ROLE_DECODE || n == 0 || n > KVR_HINT_MAX_POOL ||
		    pool[i].block_size == 0)
			return bad_value(f, "bad pool entry", i, 0);
		if (padded > len - off)
			return bad_length(f, off + padded, len);
		if (padding_set((const uint8_t *)body + off, n, padded))
			return reserved_set(f);
		off += padded;
	}
	return off == len ? 0 : bad_length(f, off, len);
}

static enum kvr_code check_accepted(const void *body, uint32_t len, struct kvr_fault *f)
{
	const struct kvr_wire_accepted *m = body;
	struct kvr_hints h;

	if ((m->flags & ~KVR_ACC_F_KEPT) != 0)
		return reserved_set(f);
	if (m->hints_len != len - sizeof(*m))
		return bad_length(f, m->hints_len, len - sizeof(*m));
	if (m->state > KVR_STATE_RUNNING)
		return bad_value(f, "unknown state", m->state, KVR_STATE_RUNNING);
	if (m->path > KVR_WAY_BYPASSED)
		return bad_value(f, "unknown path", m->path, KVR_WAY_BYPASSED);
	return check_hints(m + 1, m->hints_len, KVR_HINTS_ACCEPTED, &h, f);
}

static enum kvr_code check_rejected(const void *body, uint32_t len, struct kvr_fault *f)
{
	const struct kvr_wire_rejected *m = body;

	if (m->retryable > 1)
		return reserved_set(f);
	if (m->text_len > 255)
		return bad_length(f, m->text_len, 255);
	if (len == KVR_WIRE_REJECTED_LEAST) /* short, see kvr_wire_rejected */
		return m->text_len == 0 ? 0 : bad_length(f, m->text_len, 0);
	if (len < sizeof(*m))
		return bad_length(f, len, sizeof(*m));
	return check_tail(body, len, sizeof(*m), m->text_len, f);
}

static enum kvr_code check_missing(const void *body, uint32_t len, struct kvr_fault *f)
{
	const struct kvr_wire_missing *m = body;
	uint32_t n_frags, last;
	uint64_t word;

	if (m->reserved0 != 0 || m->reserved1 != 0)
		return reserved_set(f);
	if (sizeof(*m) + (uint64_t)m->n_words * 8 != len)
		return bad_length(f, m->n_words, (len - sizeof(*m)) / 8);
	if (m->kind != KVR_ROUTE && m->kind != KVR_DISPATCH && m->kind != KVR_RESPONSE &&
	    m->kind != KVR_POTENTIAL_LOADS)
		return bad_value(f, "no kind that is sent in fragments", m->kind, KVR_ROUTE);
	if (m->unit % 8 != 0 || m->unit < KVR_WIRE_MIN_FRAGMENT ||
	    m->unit > KVR_WIRE_MAX_FRAME - KVR_WIRE_MIN_FRAME || m->msg_len % 8 != 0 ||
	    m->msg_len <= m->unit || m->msg_len > kvr_kind_info(m->kind)->max_body)
		return bad_value(f, "no message in fragments", m->msg_len, m->unit);
	n_frags = (m->msg_len + m->unit - 1) / m->unit;
	if (m->first % 64 != 0 || m->first >= n_frags ||
	    m->n_words > (n_frags - m->first + 63) / 64)
		return bad_value(f, "fragments beyond the last", m->first, n_frags);
	/* Bits after the last fragment are 0. */
	last = n_frags - m->first - (m->n_words - 1u) * 64;
	memcpy(&word, (const uint8_t *)body + len - 8, 8);
	return last < 64 && word >> last != 0 ? reserved_set(f) : 0;
}

/* Zeros: the answer may be as long as the question. */
static enum kvr_code check_probe(const void *body, uint32_t len, struct kvr_fault *f)
{
	return padding_set(body, 0, len) ? reserved_set(f) : 0;
}

/* A code and zeros: DISPATCH_ACK, ABORT and the answers about sessions have one layout. */
static enum kvr_code check_code(const void *body, uint32_t len, struct kvr_fault *f)
{
	const struct kvr_wire_dispatch_ack *m = body;

	return m->reserved0 != 0 || m->reserved1 != 0 ? reserved_set(f) : 0;
}

#define RESP_WORDS    (KVR_RESP_F_ERROR | KVR_RESP_F_CANCELLED)
#define RESP_FIN_ONLY (RESP_WORDS | KVR_RESP_F_FAILED | KVR_RESP_F_REFUSED)
#define RESP_KNOWN    (KVR_RESP_F_FIN | RESP_FIN_ONLY | KVR_RESP_F_TOKENS)

/* A request fails, is refused or is cancelled: one of these. */
static bool flags_contradict(uint32_t failed, uint32_t refused, uint32_t cancelled)
{
	return (failed != 0) + (refused != 0) + (cancelled != 0) > 1;
}

/* All but the padding, which may be in another frame. */
static enum kvr_code check_response_head(const struct kvr_wire_response *m, uint32_t len,
					 struct kvr_fault *f)
{
	if ((m->flags & ~RESP_KNOWN) != 0 || m->reserved1 != 0)
		return reserved_set(f);
	if ((m->flags & RESP_FIN_ONLY) != 0 && (m->flags & KVR_RESP_F_FIN) == 0)
		return set_fault(f, KVR_E_FLAGS, "flags without FIN", m->flags, 0);
	if (flags_contradict(m->flags & KVR_RESP_F_FAILED, m->flags & KVR_RESP_F_REFUSED,
			     m->flags & KVR_RESP_F_CANCELLED))
		return set_fault(f, KVR_E_FLAGS, "contradictory flags", m->flags, 0);
	if ((m->flags & RESP_WORDS) != 0 && (m->flags & KVR_RESP_F_TOKENS) != 0)
		return set_fault(f, KVR_E_FLAGS, "TOKENS with ERROR or CANCELLED", m->flags, 0);
	if ((m->flags & RESP_WORDS) != 0 && m->data_len > KVR_REASON_MAX)
		return bad_length(f, m->data_len, KVR_REASON_MAX);
	if ((m->flags & KVR_RESP_F_TOKENS) != 0 && m->data_len % 4 != 0)
		return bad_length(f, m->data_len, 4);
	if (m->hints_len != 0 && (m->flags & KVR_RESP_F_FIN) == 0)
		return set_fault(f, KVR_E_FLAGS, "hints without FIN", m->hints_len, 0);
	if (m->hints_len % 8 != 0 || m->hints_len > len - sizeof(*m))
		return bad_length(f, m->hints_len, len - sizeof(*m));
	if (len > KVR_WIRE_MAX_FRAME - KVR_WIRE_MIN_FRAME && m->hints_len > KVR_WIRE_SAID_MOST)
		return bad_length(f, m->hints_len, KVR_WIRE_SAID_MOST);
	return KVR_OK;
}

static enum kvr_code check_response(const void *body, uint32_t len, struct kvr_fault *f)
{
	const struct kvr_wire_response *m = body;
	const enum kvr_code r = check_response_head(m, len, f);

	return r != KVR_OK ? r : check_tail(body, len - m->hints_len, sizeof(*m), m->data_len, f);
}

enum kvr_code kvr_response_check_head(const void *head, uint32_t len, struct kvr_fault *f)
{
	const struct kvr_wire_response *m = head;
	struct kvr_fault unused;
	const enum kvr_code r = check_response_head(m, len, f != NULL ? f : &unused);
	const uint64_t want = sizeof(*m) + ((m->data_len + UINT64_C(7)) & ~UINT64_C(7));

	if (r != KVR_OK)
		return r;
	return want + m->hints_len == len ? KVR_OK
					  : bad_length(f != NULL ? f : &unused, m->data_len, len);
}

static enum kvr_code check_response_ack(const void *body, uint32_t len, struct kvr_fault *f)
{
	const struct kvr_wire_response_ack *m = body;

	return (m->flags & ~KVR_RACK_F_FIN) != 0 ? reserved_set(f) : 0;
}

#define PROG_FIN_ONLY                                                                              \
	(KVR_PROG_F_ERROR | KVR_PROG_F_CANCELLED | KVR_PROG_F_FAILED | KVR_PROG_F_REFUSED)
#define PROG_KNOWN (KVR_PROG_F_FIRST | KVR_PROG_F_FIN | PROG_FIN_ONLY)

static enum kvr_code check_progress(const void *body, uint32_t len, struct kvr_fault *f)
{
	const struct kvr_wire_progress *m = body;

	if ((m->flags & ~PROG_KNOWN) != 0)
		return reserved_set(f);
	if ((m->flags & PROG_FIN_ONLY) != 0 && (m->flags & KVR_PROG_F_FIN) == 0)
		return set_fault(f, KVR_E_FLAGS, "flags without FIN", m->flags, 0);
	if (flags_contradict(m->flags & KVR_PROG_F_FAILED, m->flags & KVR_PROG_F_REFUSED,
			     m->flags & KVR_PROG_F_CANCELLED))
		return set_fault(f, KVR_E_FLAGS, "contradictory flags", m->flags, 0);
	return KVR_OK;
}

static enum kvr_code check_progress_ack(const void *body, uint32_t len, struct kvr_fault *f)
{
	const struct kvr_wire_progress_ack *m = body;

	return m->reserved != 0 ? reserved_set(f) : 0;
}

static enum kvr_code check_hello(const void *body, uint32_t len, struct kvr_fault *f)
{
	const struct kvr_wire_hello *m = body;
	struct kvr_hints h;
	enum kvr_code r;

	if (m->reserved != 0 || (m->flags & ~KVR_HELLO_F_CPU) != 0)
		return reserved_set(f);
	if (m->hints_len != len - sizeof(*m))
		return bad_length(f, m->hints_len, len - sizeof(*m));
	if (!frame_size_ok(m->max_frame))
		return bad_value(f, "max_frame out of range", m->max_frame, KVR_WIRE_MAX_FRAME);
	if (m->role > KVR_ROLE_DECODE)
		return bad_value(f, "role out of range", m->role, KVR_ROLE_DECODE);
	if (m->block_size == 0)
		return bad_value(f, "block_size out of range", 0, UINT32_MAX);
	if (m->dp_size == 0 || m->dp_size > UINT32_MAX - m->dp_start)
		return bad_value(f, "dp_start and dp_size out of range", m->dp_size,
				 UINT32_MAX - m->dp_start);
	r = check_hints(m + 1, m->hints_len, KVR_HINTS_HELLO, &h, f);
	if (r == 0 && h.n_pools != 1)
		return set_fault(f, KVR_E_HINT, "one pool must be named", h.n_pools, 1);
	return r;
}

static enum kvr_code check_welcome(const void *body, uint32_t len, struct kvr_fault *f)
{
	const struct kvr_wire_welcome *m = body;

	if ((m->flags & ~KVR_WELCOME_F_WARM) != 0 || m->reserved1 != 0 || m->reserved2 != 0)
		return reserved_set(f);
	if (m->heartbeat_ms == 0 || !frame_size_ok(m->max_frame))
		return bad_value(f, "heartbeat_ms or max_frame out of range", m->max_frame,
				 KVR_WIRE_MAX_FRAME);
	return KVR_OK;
}

static enum kvr_code check_heartbeat(const void *body, uint32_t len, struct kvr_fault *f)
{
	const struct kvr_wire_heartbeat *m = body;
	const uint64_t rank = sizeof(struct kvr_wire_rank_load);

	if ((m->flags & ~KVR_BEAT_F_DRAIN) != 0)
		return reserved_set(f);
	if (sizeof(*m) + m->n_ranks * rank != len)
		return bad_length(f, m->n_ranks, (len - sizeof(*m)) / rank);
	return KVR_OK;
}

static enum kvr_code check_heartbeat_ack(const void *body, uint32_t len, struct kvr_fault *f)
{
	const struct kvr_wire_heartbeat_ack *m = body;

	if (m->reserved0 != 0)
		return reserved_set(f);
	if (m->state < KVR_WORKER_JOINING || m->state > KVR_WORKER_GONE)
		return bad_value(f, "unknown state", m->state, KVR_WORKER_GONE);
	return KVR_OK;
}

static enum kvr_code check_alive(const void *body, uint32_t len, struct kvr_fault *f)
{
	const struct kvr_wire_alive *m = body;
	const uint64_t handle = sizeof(uint64_t);

	if (m->reserved != 0)
		return reserved_set(f);
	if (sizeof(*m) + m->n * handle != len)
		return bad_length(f, m->n, (len - sizeof(*m)) / handle);
	return KVR_OK;
}

static enum kvr_code check_kv_ack(const void *body, uint32_t len, struct kvr_fault *f)
{
	const struct kvr_wire_kv_ack *m = body;

	if (m->reserved != 0)
		return reserved_set(f);
	return m->code <= KVR_KV_BUSY ? 0 : bad_value(f, "unknown code", m->code, KVR_KV_BUSY);
}

static enum kvr_code check_session(const void *body, uint32_t len, struct kvr_fault *f)
{
	const struct kvr_wire_session *m = body;
	const int r = check_tail(body, len, sizeof(*m), m->id_len, f);

	if (r != 0)
		return r;
	return kvr_session_id_ok(m + 1, m->id_len)
		       ? 0
		       : set_fault(f, KVR_E_INVALID_SESSION, "session id is not legal", m->id_len,
				   KVR_HINT_MAX_SESSION);
}

static enum kvr_code check_session_open(const void *body, uint32_t len, struct kvr_fault *f)
{
	const struct kvr_wire_session *m = body;
	const uint32_t most = KVR_WIRE_SESSION_MAX_S + KVR_WIRE_SESSION_GRACE_S;

	if (m->timeout_s == 0 || m->timeout_s > most)
		return set_fault(f, KVR_E_INVALID_SESSION, "timeout out of range", m->timeout_s,
				 most);
	return check_session(body, len, f);
}

static enum kvr_code check_session_end(const void *body, uint32_t len, struct kvr_fault *f)
{
	const struct kvr_wire_session *m = body;

	return m->timeout_s != 0 ? reserved_set(f) : check_session(body, len, f);
}

static enum kvr_code check_loads(const void *body, uint32_t len, struct kvr_fault *f)
{
	const struct kvr_wire_loads *m = body;
	const uint64_t want =
		sizeof(*m) + (uint64_t)m->n_ranks * sizeof(struct kvr_wire_rank_potential);

	return want == len ? 0 : bad_length(f, want, len);
}

typedef enum kvr_code check_fn(const void *body, uint32_t len, struct kvr_fault *f);

static check_fn *const checkers[KVR_WIRE_KIND_MAX] = {
	[KVR_CONNECT] = check_connect,
	[KVR_CONNECTED] = check_connected,
	[KVR_ROUTE] = check_route,
	[KVR_ACCEPTED] = check_accepted,
	[KVR_REJECTED] = check_rejected,
	[KVR_PROBE] = check_probe,
	[KVR_MISSING] = check_missing,
	[KVR_DISPATCH] = check_dispatch,
	[KVR_DISPATCH_ACK] = check_code,
	[KVR_RESPONSE] = check_response,
	[KVR_RESPONSE_ACK] = check_response_ack,
	[KVR_PROGRESS] = check_progress,
	[KVR_PROGRESS_ACK] = check_progress_ack,
	[KVR_ABORT] = check_code,
	[KVR_HELLO] = check_hello,
	[KVR_WELCOME] = check_welcome,
	[KVR_HEARTBEAT] = check_heartbeat,
	[KVR_HEARTBEAT_ACK] = check_heartbeat_ack,
	[KVR_ALIVE] = check_alive,
	[KVR_KV_EVENTS] = kvr_wire__check_kv_events,
	[KVR_KV_ACK] = check_kv_ack,
	[KVR_SESSION_OPEN] = check_session_open,
	[KVR_SESSION_OPENED] = check_code,
	[KVR_SESSION_CLOSE] = check_session_end,
	[KVR_SESSION_CLOSED] = check_code,
	[KVR_SESSION_RELEASE] = check_session_end,
	[KVR_SESSION_RELEASED] = check_code,
	[KVR_POTENTIAL_LOADS] = check_route,
	[KVR_LOADS] = check_loads,
};

enum kvr_code kvr_body_check(uint8_t kind, const void *body, uint32_t len, struct kvr_fault *fault)
{
	const struct kvr_kind_info *k = kvr_kind_info(kind);
	struct kvr_fault unused;

	if (fault == NULL)
		fault = &unused;
	if (k == NULL)
		return set_fault(fault, KVR_E_KIND, "unknown kind", kind, 0);
	if (len < k->min_body || len % 8 != 0)
		return bad_length(fault, len, k->min_body);
	if (len > k->max_body)
		return set_fault(fault, KVR_E_TOO_LARGE, "body too large", len, k->max_body);
	return checkers[kind] == NULL ? KVR_OK : checkers[kind](body, len, fault);
}

enum kvr_code kvr_kv_events_check(const void *body, uint32_t len)
{
	return kvr_body_check(KVR_KV_EVENTS, body, len, NULL);
}
