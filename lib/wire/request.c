/* SPDX-License-Identifier: BSD-3-Clause */
#include "body_pvt.h"
#include "kvr_message.h"

#include <errno.h>
#include <string.h>

static bool is_zero(const void *p, size_t n)
{
	const uint8_t *b = p;
	uint8_t any = 0;

	for (size_t i = 0; i < n; i++)
		any |= b[i];
	return any == 0;
}

static enum kvr_code check_limits(const struct kvr_wire_request *q, struct kvr_fault *f)
{
	if (q->n_hashes > KVR_WIRE_MAX_HASHES)
		return set_fault(f, KVR_E_TOO_LARGE, "too many hashes", q->n_hashes,
				 KVR_WIRE_MAX_HASHES);
	if (q->n_tokens > KVR_WIRE_MAX_TOKENS)
		return set_fault(f, KVR_E_TOO_LARGE, "too many tokens", q->n_tokens,
				 KVR_WIRE_MAX_TOKENS);
	if (q->isl > KVR_WIRE_MAX_TOKENS)
		return set_fault(f, KVR_E_TOO_LARGE, "isl too large", q->isl, KVR_WIRE_MAX_TOKENS);
	if (q->hints_len > KVR_WIRE_MAX_HINTS)
		return set_fault(f, KVR_E_TOO_LARGE, "too many hints", q->hints_len,
				 KVR_WIRE_MAX_HINTS);
	if (q->body_len > KVR_WIRE_MAX_BODY)
		return set_fault(f, KVR_E_TOO_LARGE, "body too large", q->body_len,
				 KVR_WIRE_MAX_BODY);
	if (q->result_len != 0 && (q->flags & KVR_REQ_F_DECODE_LEG) == 0)
		return set_fault(f, KVR_E_FLAGS, "a result without a decode leg", q->result_len, 0);
	if (q->result_len > KVR_WIRE_MAX_RESULT)
		return set_fault(f, KVR_E_TOO_LARGE, "result too large", q->result_len,
				 KVR_WIRE_MAX_RESULT);
	return KVR_OK;
}

static enum kvr_code check_flags(const struct kvr_wire_request *q, uint8_t kind,
				 struct kvr_fault *f)
{
	const uint32_t known = kind == KVR_DISPATCH
				       ? (KVR_REQ_F_CLIENT & ~KVR_REQ_F_BOOK) | KVR_REQ_F_LEGS |
						 KVR_REQ_F_UNPROVEN | KVR_REQ_F_TRIAL
				       : KVR_REQ_F_CLIENT;

	if ((q->flags & ~known) != 0)
		return set_fault(f, KVR_E_FLAGS, "unknown request flags", q->flags, known);
	if ((q->flags & KVR_REQ_F_PREFILL_LEG) != 0 &&
	    (q->flags & (KVR_REQ_F_DECODE_LEG | KVR_REQ_F_DIRECT)) != 0)
		return set_fault(f, KVR_E_FLAGS, "flags that no prefill leg has", q->flags, known);
	if (q->reserved0 != 0)
		return set_fault(f, KVR_E_FLAGS, "reserved bytes set", 0, 0);
	/* `worker` is the cookie, which its issuer has checked. */
	if (kind != KVR_DISPATCH &&
	    (q->dp_rank != 0 || q->overlap_blocks != 0 || q->cached_tokens != 0 ||
	     q->attempt != 0 || q->client_port != 0 || !is_zero(q->client_ip, 16)))
		return set_fault(f, KVR_E_FLAGS, "fields of the router set", 0, 0);
	return KVR_OK;
}

static enum kvr_code check_meaning(const struct kvr_wire_request *q, struct kvr_fault *f)
{
	if (q->phase > KVR_ROLE_DECODE)
		return set_fault(f, KVR_E_INVALID_REQUEST, "unknown phase", q->phase,
				 KVR_ROLE_DECODE);
	if (q->client_frame != 0 &&
	    (q->client_frame < KVR_WIRE_LEAST_MAX_FRAME || q->client_frame > KVR_WIRE_MAX_FRAME))
		return set_fault(f, KVR_E_INVALID_REQUEST, "client_frame out of range",
				 q->client_frame, KVR_WIRE_MAX_FRAME);
	if (q->isl == 0)
		return set_fault(f, KVR_E_EMPTY_PROMPT, "empty prompt", 0, 0);
	if (q->n_hashes == 0 && q->n_tokens != 0 && q->isl != q->n_tokens)
		return set_fault(f, KVR_E_INVALID_REQUEST, "isl is not n_tokens", q->isl,
				 q->n_tokens);
	if (q->n_hashes > q->isl)
		return set_fault(f, KVR_E_INVALID_REQUEST, "more hashes than prompt tokens",
				 q->n_hashes, q->isl);
	if ((q->flags & KVR_REQ_F_AWAY) != 0 &&
	    ((q->flags & (KVR_REQ_F_QUERY | KVR_REQ_F_BOOK)) != 0 || q->body_len != 0))
		return set_fault(f, KVR_E_INVALID_REQUEST, "AWAY with QUERY, BOOK or a body",
				 q->flags, 0);
	if ((q->flags & KVR_REQ_F_BOOK) != 0 &&
	    ((q->flags & (KVR_REQ_F_QUERY | KVR_REQ_F_DIRECT)) != 0 || q->body_len != 0))
		return set_fault(f, KVR_E_INVALID_REQUEST, "BOOK with QUERY, DIRECT or a body",
				 q->flags, 0);
	if ((q->flags & KVR_REQ_F_HEALTH) != 0 &&
	    ((q->flags & (KVR_REQ_F_QUERY | KVR_REQ_F_BOOK)) != 0 || q->n_hashes != 0 ||
	     q->n_tokens != 0))
		return set_fault(f, KVR_E_INVALID_REQUEST,
				 "HEALTH with QUERY, BOOK, hashes or tokens", q->flags, 0);
	return KVR_OK;
}

static uint32_t pad_to_8(uint32_t n)
{
	return (n + 7u) & ~7u;
}

enum kvr_code kvr_request_parse_fixed(const void *fixed, uint8_t kind, uint32_t msg_len,
				      struct kvr_message *out)
{
	struct kvr_wire_request *q = &out->fixed;
	struct kvr_fault *f = &out->fault;
	uint32_t end;
	enum kvr_code r;

	out->hashes = out->tokens = out->hints = out->body = out->result = NULL;
	out->fault = (struct kvr_fault){0};
	if (msg_len < sizeof(*q))
		return set_fault(f, KVR_E_LENGTH, "request too short", msg_len, sizeof(*q));
	memcpy(q, fixed, sizeof(*q));
	r = check_limits(q, f);
	if (r != 0)
		return r;
	/* After the limits no sum below can wrap. */
	out->hashes_off = sizeof(*q);
	out->tokens_off = out->hashes_off + q->n_hashes * 8;
	out->hints_off = out->tokens_off + pad_to_8(q->n_tokens * 4);
	out->body_off = out->hints_off + q->hints_len;
	out->result_off = out->body_off + pad_to_8(q->body_len);
	end = out->result_off + pad_to_8(q->result_len);
	if (q->hints_len % 8 != 0)
		return set_fault(f, KVR_E_LENGTH, "hints_len is not a multiple of 8", q->hints_len,
				 8);
	if (end != msg_len)
		return set_fault(f, KVR_E_LENGTH, "parts do not add up to the message", end,
				 msg_len);
	r = check_flags(q, kind, f);
	if (r == 0 && kind != KVR_DISPATCH && (q->flags & (KVR_REQ_F_BOOK | KVR_REQ_F_AWAY)) != 0 &&
	    msg_len < KVR_WIRE_ASKING_LEAST)
		return set_fault(f, KVR_E_LENGTH, "too short for its answer", msg_len,
				 KVR_WIRE_ASKING_LEAST);
	return r != 0 ? r : check_meaning(q, f);
}

enum kvr_code kvr_request_parse(const void *body, uint32_t len, uint8_t kind,
				struct kvr_message *out)
{
	const struct kvr_slice one = {body, len};

	return kvr_request_parse_slices(&one, 1, kind, out);
}

/* Padding after a part of @p len bytes that ends at @p end must be zero. */
static bool pad_ok(const struct kvr_slice *s, uint32_t n, uint32_t off, uint32_t len)
{
	uint8_t scratch[8];
	const uint32_t pad = pad_to_8(len) - len;
	const void *p;

	if (pad == 0)
		return true;
	p = kvr_slices_at(s, n, off + len, pad, scratch);
	return p != NULL && is_zero(p, pad);
}

enum kvr_code kvr_request_parse_slices(const struct kvr_slice *s, uint32_t n, uint8_t kind,
				       struct kvr_message *out)
{
	uint8_t scratch[sizeof(struct kvr_wire_request)];
	const struct kvr_wire_request *q = &out->fixed;
	const uint32_t len = kvr_slices_len(s, n);
	const void *fixed;
	enum kvr_code r;

	fixed = len < sizeof(*q) ? scratch : kvr_slices_at(s, n, 0, sizeof(*q), scratch);
	r = kvr_request_parse_fixed(fixed, kind, len, out);
	if (r != 0)
		return r;
	if (!pad_ok(s, n, out->tokens_off, q->n_tokens * 4) ||
	    !pad_ok(s, n, out->body_off, q->body_len) ||
	    !pad_ok(s, n, out->result_off, q->result_len))
		return set_fault(&out->fault, KVR_E_FLAGS, "padding is not zero", 0, 0);
	out->hashes = kvr_slices_at(s, n, out->hashes_off, q->n_hashes * 8, NULL);
	out->tokens = kvr_slices_at(s, n, out->tokens_off, q->n_tokens * 4, NULL);
	out->hints = kvr_slices_at(s, n, out->hints_off, q->hints_len, NULL);
	out->body = kvr_slices_at(s, n, out->body_off, q->body_len, NULL);
	out->result = kvr_slices_at(s, n, out->result_off, q->result_len, NULL);
	return KVR_OK;
}

uint32_t kvr_request_build(struct kvr_request_src *src, struct kvr_slice slices[KVR_REQUEST_SLICES])
{
	static const uint8_t zeros[8];

	if (src->n_hashes > KVR_WIRE_MAX_HASHES || src->n_tokens > KVR_WIRE_MAX_TOKENS ||
	    src->hints_len > KVR_WIRE_MAX_HINTS || src->hints_len % 8 != 0 ||
	    src->body_len > KVR_WIRE_MAX_BODY || src->result_len > KVR_WIRE_MAX_RESULT)
		return 0;
	src->fixed.n_hashes = src->n_hashes;
	src->fixed.n_tokens = src->n_tokens;
	src->fixed.hints_len = src->hints_len;
	src->fixed.body_len = src->body_len;
	src->fixed.result_len = src->result_len;
	slices[0] = (struct kvr_slice){&src->fixed, sizeof(src->fixed)};
	slices[1] = (struct kvr_slice){src->hashes, src->n_hashes * 8};
	slices[2] = (struct kvr_slice){src->tokens, src->n_tokens * 4};
	slices[3] = (struct kvr_slice){zeros, pad_to_8(slices[2].len) - slices[2].len};
	slices[4] = (struct kvr_slice){src->hints, src->hints_len};
	slices[5] = (struct kvr_slice){src->body, src->body_len};
	slices[6] = (struct kvr_slice){zeros, pad_to_8(src->body_len) - src->body_len};
	slices[7] = (struct kvr_slice){src->result, src->result_len};
	slices[8] = (struct kvr_slice){zeros, pad_to_8(src->result_len) - src->result_len};
	return kvr_slices_len(slices, KVR_REQUEST_SLICES);
}
