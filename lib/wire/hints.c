/* SPDX-License-Identifier: BSD-3-Clause */
#include "hints_pvt.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static double get_f64(const uint8_t *p)
{
	double v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* Length of the UTF-8 sequence that starts with @p c, 0 for a byte that starts none. */
static uint32_t utf8_len(uint8_t c)
{
	if (c < 0x80)
		return 1;
	if (c >= 0xc2 && c <= 0xdf)
		return 2;
	if (c >= 0xe0 && c <= 0xef)
		return 3;
	return c >= 0xf0 && c <= 0xf4 ? 4 : 0;
}

/* Strings end up in logs, metrics and JSON: valid UTF-8 without control characters. */
static bool is_text(const uint8_t *p, uint32_t len)
{
	for (uint32_t i = 0, n; i < len; i += n) {
		const uint8_t c = p[i];

		n = utf8_len(c);
		if (n == 0 || n > len - i || c < 0x20 || c == 0x7f)
			return false;
		for (uint32_t k = 1; k < n; k++)
			if ((p[i + k] & 0xc0) != 0x80)
				return false;
		/* Overlong forms, surrogates, beyond U+10FFFF: decided by the second byte. */
		if ((c == 0xe0 && p[i + 1] < 0xa0) || (c == 0xed && p[i + 1] > 0x9f) ||
		    (c == 0xf0 && p[i + 1] < 0x90) || (c == 0xf4 && p[i + 1] > 0x8f))
			return false;
	}
	return true;
}

/* Text of min..max bytes that follows @p skip bytes of the value. */
static bool text(const struct kvr_tlv *t, uint32_t skip, uint32_t min, uint32_t max,
		 struct kvr_str *out)
{
	if (t->len < skip || t->len - skip < min || t->len - skip > max ||
	    !is_text(t->value + skip, t->len - skip))
		return false;
	out->p = (const char *)t->value + skip;
	out->len = t->len - skip;
	return true;
}

#define UNKNOWN_HERE                                                                               \
	KVR_E_MAX /* no code: the hint is for other kinds of message, or from later                \
		   */

bool kvr_override_ok(uint32_t field, double value)
{
	switch (field) {
	case KVR_OVERRIDE_OVERLAP_SCORE_WEIGHT:
	case KVR_OVERRIDE_ROUTER_TEMPERATURE:
	case KVR_OVERRIDE_OVERLAP_SCORE_CREDIT:
	case KVR_OVERRIDE_PREFILL_LOAD_SCALE:
		return isfinite(value) && value >= 0.0;
	case KVR_OVERRIDE_ASSUME_KV_REUSE:
	case KVR_OVERRIDE_TRACK_PREFILL_TOKENS:
		return value == 0.0 || value == 1.0;
	case KVR_OVERRIDE_SHARED_CACHE_MULTIPLIER:
		return value >= 0.0 && value <= 1.0;
	default:
		return false;
	}
}

static enum kvr_code take_override(const struct kvr_tlv *t, struct kvr_hints *h)
{
	const uint32_t field = t->len == 16 ? get32(t->value) : 0;
	double v;

	if (t->len != 16 || get32(t->value + 4) != 0)
		return KVR_E_HINT;
	v = get_f64(t->value + 8);
	if (!kvr_override_ok(field, v) || (h->overrides.given >> field & 1) != 0)
		return KVR_E_INVALID_OVERRIDE;
	h->overrides.given |= 1u << field;
	h->overrides.value[field] = v;
	return KVR_OK;
}

bool kvr_session_id_ok(const void *id, uint32_t len)
{
	return len > 0 && len <= KVR_HINT_MAX_SESSION && is_text(id, len);
}

static enum kvr_code take_session(const struct kvr_tlv *t, struct kvr_hints *h)
{
	if (t->len < 8 || !all_zero(t->value + 1, 3))
		return KVR_E_HINT;
	h->session.id = (struct kvr_str){(const char *)t->value + 8, t->len - 8u};
	h->session.action = t->value[0];
	h->session.timeout_s = get32(t->value + 4);
	if (h->session.timeout_s == KVR_NONE32)
		h->session.timeout_s = KVR_WIRE_SESSION_DEF_S;
	if (!kvr_session_id_ok(h->session.id.p, h->session.id.len) ||
	    h->session.action > KVR_ACTION_CLOSE || h->session.timeout_s == 0 ||
	    h->session.timeout_s > KVR_WIRE_SESSION_MAX_S)
		return KVR_E_INVALID_SESSION;
	return KVR_OK;
}

/* Blocks ascend, so that hashing can merge them in one pass. `last` is the block before + 1. */
static bool take_mm(const struct kvr_tlv *t, struct kvr_hints *h, uint64_t *last)
{
	uint32_t block;

	if (t->len < 8)
		return false;
	block = get32(t->value);
	if ((uint64_t)get32(t->value + 4) * 8 != t->len - 8u || block < *last ||
	    t->len - 8u > KVR_HINT_MAX_MM * 8)
		return false;
	*last = (uint64_t)block + 1;
	h->n_mm++;
	return true;
}

static bool take_shared(const struct kvr_tlv *t, struct kvr_hints *h,
			struct kvr_hint_range shared[])
{
	uint32_t start, end;

	if (t->len != 8 || h->n_shared == KVR_HINTS_MAX_SHARED)
		return false;
	start = get32(t->value);
	end = get32(t->value + 4);
	if (start >= end || (h->n_shared > 0 && start < shared[h->n_shared - 1].end))
		return false;
	shared[h->n_shared++] = (struct kvr_hint_range){start, end};
	return true;
}

static bool take_number(const struct kvr_tlv *t, uint32_t len, void *dst)
{
	if (t->len != len)
		return false;
	memcpy(dst, t->value, len);
	return true;
}

/* A number that the choice computes with: NaN or infinity would spoil every cost. */
static enum kvr_code take_weight(const struct kvr_tlv *t, double *dst)
{
	if (!take_number(t, sizeof(*dst), dst))
		return KVR_E_HINT;
	return isfinite(*dst) ? KVR_OK : KVR_E_INVALID_WEIGHT;
}

static bool take_failed_at(const struct kvr_tlv *t, struct kvr_hints *h)
{
	h->failed_at = (const struct kvr_wire_rank *)t->value;
	h->n_failed_at = t->len / 16u;
	for (uint32_t i = 0; i < h->n_failed_at; i++)
		if (h->failed_at[i].reserved != 0)
			return false;
	return t->len % 16 == 0 && h->n_failed_at >= 1 && h->n_failed_at <= KVR_HINT_MAX_FAILED_AT;
}

static bool take_list(const struct kvr_tlv *t, struct kvr_str list[], uint32_t *n, uint32_t max,
		      uint32_t max_len)
{
	return *n < max && text(t, 0, 1, max_len, &list[(*n)++]);
}

static enum kvr_code take_preferred(const struct kvr_tlv *t, struct kvr_hints *h,
				    struct kvr_hint_preferred preferred[])
{
	double w;

	if (t->len < 8 || h->n_preferred == KVR_HINTS_MAX_TAINTS ||
	    !text(t, 8, 1, KVR_HINT_MAX_NAME, &preferred[h->n_preferred].taint))
		return KVR_E_HINT;
	w = get_f64(t->value);
	if (!isfinite(w))
		return KVR_E_INVALID_WEIGHT;
	preferred[h->n_preferred++].weight = w;
	return KVR_OK;
}

static bool take_opaque(const struct kvr_tlv *t, uint32_t max, struct kvr_str *out)
{
	out->p = (const char *)t->value;
	out->len = t->len;
	return t->len <= max;
}

static bool take_bootstrap(const struct kvr_tlv *t, struct kvr_hints *h)
{
	if (!text(t, 16, 1, KVR_HINT_MAX_NAME, &h->bootstrap.host))
		return false;
	h->bootstrap.room = get64(t->value);
	h->bootstrap.port = get16(t->value + 8);
	return all_zero(t->value + 10, 6);
}

static bool take_bootstrap_addr(const struct kvr_tlv *t, struct kvr_hints *h)
{
	if (!text(t, 8, 1, KVR_HINT_MAX_NAME, &h->bootstrap_addr.host))
		return false;
	h->bootstrap_addr.port = get16(t->value);
	return all_zero(t->value + 2, 6);
}

static bool take_body(const struct kvr_tlv *t, struct kvr_hints *h)
{
	if (t->len != 8 + KVR_WIRE_TOKEN)
		return false;
	h->body.len = get64(t->value);
	h->body.token = t->value + 8;
	return h->body.len != 0 && h->body.len <= KVR_WIRE_MAX_AWAY;
}

static bool take_topology(const struct kvr_tlv *t, struct kvr_hints *h, struct kvr_str topology[])
{
	struct kvr_str *s = &topology[h->n_topology];
	const char *eq;

	if (h->n_topology == KVR_HINTS_MAX_TOPOLOGY || !text(t, 0, 3, KVR_HINT_MAX_NAME, s))
		return false;
	eq = memchr(s->p, '=', s->len);
	h->n_topology++;
	return eq != NULL && eq != s->p && eq != s->p + s->len - 1;
}

static enum kvr_code take_kv_transfer(const struct kvr_tlv *t, struct kvr_hints *h)
{
	if (!text(t, 16, 1, KVR_HINT_MAX_NAME, &h->kv_transfer.domain) || t->value[0] > 2 ||
	    !all_zero(t->value + 1, 7))
		return KVR_E_HINT;
	h->kv_transfer.enforcement = t->value[0];
	h->kv_transfer.weight = get_f64(t->value + 8);
	return isfinite(h->kv_transfer.weight) ? KVR_OK : KVR_E_INVALID_WEIGHT;
}

/* Where a request may go. KVR_OK: taken; UNKNOWN_HERE, or a code. */
static enum kvr_code take_target(const struct kvr_tlv *t, struct kvr_hints *h,
				 struct kvr_hint_lists *lists)
{
	bool ok;

	switch (t->type) {
	case KVR_HINT_BACKEND:
		ok = take_number(t, 8, &h->backend_worker);
		break;
	case KVR_HINT_PREFILL_WORKER:
		ok = take_number(t, 8, &h->prefill_worker);
		break;
	case KVR_HINT_DECODE_WORKER:
		ok = take_number(t, 8, &h->decode_worker);
		break;
	case KVR_HINT_DP_RANK:
		ok = take_number(t, 4, &h->dp_rank);
		break;
	case KVR_HINT_PREFILL_DP_RANK:
		ok = take_number(t, 4, &h->prefill_dp_rank);
		break;
	case KVR_HINT_ALLOWED_WORKERS:
		h->allowed = t->value;
		h->n_allowed = t->len / 8u;
		ok = t->len % 8 == 0;
		break;
	case KVR_HINT_FAILED_AT:
		ok = take_failed_at(t, h);
		break;
	case KVR_HINT_REQUIRED_TAINT:
		ok = take_list(t, lists->required, &h->n_required, KVR_HINTS_MAX_TAINTS,
			       KVR_HINT_MAX_NAME);
		break;
	case KVR_HINT_PREFERRED_TAINT:
		return take_preferred(t, h, lists->preferred);
	case KVR_HINT_SESSION:
		return take_session(t, h);
	default:
		return UNKNOWN_HERE;
	}
	return ok ? KVR_OK : KVR_E_HINT;
}

/* KVR_OK: taken; UNKNOWN_HERE, or a code. */
static enum kvr_code take_request(const struct kvr_tlv *t, struct kvr_hints *h,
				  struct kvr_hint_lists *lists, uint64_t *mm_last)
{
	bool ok;

	switch (t->type) {
	case KVR_HINT_LORA:
		ok = text(t, 0, 0, KVR_HINT_MAX_NAME, &h->lora);
		break;
	case KVR_HINT_NAMESPACE:
		ok = text(t, 0, 0, KVR_HINT_MAX_NAME, &h->ns);
		break;
	case KVR_HINT_PRIORITY_JUMP:
		return take_weight(t, &h->priority_jump);
	case KVR_HINT_STRICT_PRIORITY:
		ok = take_number(t, 4, &h->strict_priority);
		break;
	case KVR_HINT_PRIORITY:
		ok = take_number(t, 4, &h->priority);
		break;
	case KVR_HINT_POLICY_CLASS:
		ok = text(t, 0, 1, KVR_HINT_MAX_NAME, &h->policy);
		break;
	case KVR_HINT_OVERRIDE:
		return take_override(t, h);
	case KVR_HINT_MM:
		ok = take_mm(t, h, mm_last);
		break;
	case KVR_HINT_SHARED_HITS:
		ok = take_shared(t, h, lists->shared);
		break;
	case KVR_HINT_BODY:
		ok = take_body(t, h);
		break;
	case KVR_HINT_TRACE:
		ok = take_opaque(t, KVR_HINT_MAX_TRACE, &h->trace);
		break;
	default:
		return take_target(t, h, lists);
	}
	return ok ? KVR_OK : KVR_E_HINT;
}

/* BOOTSTRAP and PREFILL_RESULT are the router's word: refused, not skipped, in a ROUTE. */
static enum kvr_code take_dispatch(const struct kvr_tlv *t, struct kvr_hints *h,
				   enum kvr_hints_in in)
{
	bool ok;

	if (t->type == KVR_HINT_BOOTSTRAP)
		ok = in == KVR_HINTS_DISPATCH && take_bootstrap(t, h);
	else if (t->type == KVR_HINT_PREFILL_RESULT)
		ok = in == KVR_HINTS_DISPATCH && take_opaque(t, UINT16_MAX, &h->prefill_result);
	else
		return UNKNOWN_HERE;
	return ok ? KVR_OK : KVR_E_HINT;
}

static enum kvr_code take_worker(const struct kvr_tlv *t, struct kvr_hints *h,
				 struct kvr_hint_lists *lists, enum kvr_hints_in in)
{
	const uint32_t pools = in == KVR_HINTS_CONNECT ? KVR_HINTS_MAX_POOLS : 1;
	bool ok;

	if (t->type == KVR_HINT_POOL)
		ok = take_list(t, lists->pools, &h->n_pools, pools, KVR_HINT_MAX_POOL);
	else if (in == KVR_HINTS_CONNECT)
		return UNKNOWN_HERE;
	else if (t->type == KVR_HINT_ENGINE_ADDR)
		ok = text(t, 0, 1, KVR_HINT_MAX_ADDR, &h->engine_addr);
	else if (t->type == KVR_HINT_BODY_ADDR)
		ok = text(t, 0, 1, KVR_HINT_MAX_ADDR, &h->body_addr);
	else if (t->type == KVR_HINT_TAINT)
		ok = take_list(t, lists->taints, &h->n_taints, KVR_HINTS_MAX_TAINTS,
			       KVR_HINT_MAX_NAME);
	else if (t->type == KVR_HINT_TOPOLOGY)
		ok = take_topology(t, h, lists->topology);
	else if (t->type == KVR_HINT_KV_TRANSFER)
		return take_kv_transfer(t, h);
	else if (t->type == KVR_HINT_BOOTSTRAP_ADDR)
		ok = take_bootstrap_addr(t, h);
	else
		return UNKNOWN_HERE;
	return ok ? KVR_OK : KVR_E_HINT;
}

/* Where the workers of a request are. */
static enum kvr_code take_accepted(const struct kvr_tlv *t, struct kvr_hints *h)
{
	bool ok;

	if (t->type == KVR_HINT_ENGINE_ADDR)
		ok = text(t, 0, 1, KVR_HINT_MAX_ADDR, &h->engine_addr);
	else if (t->type == KVR_HINT_PREFILL_ENGINE_ADDR)
		ok = text(t, 0, 1, KVR_HINT_MAX_ADDR, &h->prefill_engine_addr);
	else if (t->type == KVR_HINT_BODY_ADDR)
		ok = text(t, 0, 1, KVR_HINT_MAX_ADDR, &h->body_addr);
	else if (t->type == KVR_HINT_PREFILL_BODY_ADDR)
		ok = text(t, 0, 1, KVR_HINT_MAX_ADDR, &h->prefill_body_addr);
	else
		return UNKNOWN_HERE;
	return ok ? KVR_OK : KVR_E_HINT;
}

#define REPEATABLE                                                                                 \
	(KVR_HAS(KVR_HINT_REQUIRED_TAINT) | KVR_HAS(KVR_HINT_PREFERRED_TAINT) |                    \
	 KVR_HAS(KVR_HINT_OVERRIDE) | KVR_HAS(KVR_HINT_MM) | KVR_HAS(KVR_HINT_SHARED_HITS) |       \
	 KVR_HAS(KVR_HINT_POOL) | KVR_HAS(KVR_HINT_TAINT) | KVR_HAS(KVR_HINT_TOPOLOGY))

enum kvr_code kvr_hints_parse(const void *p, uint32_t len, enum kvr_hints_in in,
			      struct kvr_hints *out, struct kvr_hint_lists *lists)
{
	struct kvr_tlv_iter it = kvr_tlv_begin(p, len);
	struct kvr_tlv t;
	uint64_t mm_last = 0;
	enum kvr_code r;
	int more;

	if (len > KVR_WIRE_MAX_HINTS)
		return KVR_E_TOO_LARGE;
	if (len % 8 != 0)
		return KVR_E_HINT;
	memset(out, 0, sizeof(*out));
	out->required = lists->required;
	out->preferred = lists->preferred;
	out->shared = lists->shared;
	out->pools = lists->pools;
	out->taints = lists->taints;
	out->topology = lists->topology;
	out->tlvs = p;
	out->tlvs_len = len;
	while ((more = kvr_tlv_next(&it, &t)) > 0) {
		if (t.type == KVR_HINT_PAD)
			continue;
		if (in == KVR_HINTS_ROUTE || in == KVR_HINTS_DISPATCH) {
			r = take_request(&t, out, lists, &mm_last);
			if (r == UNKNOWN_HERE)
				r = take_dispatch(&t, out, in);
		} else if (in == KVR_HINTS_ACCEPTED) {
			r = take_accepted(&t, out);
		} else {
			r = take_worker(&t, out, lists, in);
		}
		if (r == UNKNOWN_HERE) { /* unknown here */
			if ((t.type & KVR_HINT_CRITICAL) != 0)
				return KVR_E_HINT;
			continue;
		}
		if (r != KVR_OK)
			return r;
		if ((out->present & KVR_HAS(t.type) & ~REPEATABLE) != 0)
			return KVR_E_HINT;
		out->present |= KVR_HAS(t.type);
	}
	return more == 0 ? KVR_OK : KVR_E_HINT;
}
