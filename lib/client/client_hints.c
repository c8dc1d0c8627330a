/* SPDX-License-Identifier: BSD-3-Clause */
#include "client_pvt.h"

#include "kvr_errno.h"
#include "kvr_hints.h"
#include <math.h>
#include <stdlib.h>

#define HINTS_FIRST 512u /* bytes at first; doubled as needed */

struct kvr_client_hints {
	struct kvr_hint_buf buf; /* err holds the mark */
};

struct kvr_client_hints *kvr_client_hints_create(void)
{
	struct kvr_client_hints *h = calloc(1, sizeof(*h));

	return h != NULL ? h : kvr_null(ENOMEM);
}

void kvr_client_hints_destroy(struct kvr_client_hints *h)
{
	if (h == NULL)
		return;
	free(h->buf.p);
	free(h);
}

void kvr_client_hints_reset(struct kvr_client_hints *h)
{
	h->buf.len = 0;
	h->buf.err = 0;
}

int kvr_client_hints_error(const struct kvr_client_hints *h)
{
	return h->buf.err;
}

const uint8_t *kvr_client__hints_bytes(const struct kvr_client_hints *h, uint32_t *len)
{
	*len = h->buf.len;
	return h->buf.p;
}

static int mark(struct kvr_client_hints *h, int err)
{
	if (h->buf.err == 0)
		h->buf.err = err;
	return err;
}

/* Make room for a TLV with @p len bytes of value. */
static int reserve(struct kvr_client_hints *h, size_t len)
{
	const size_t need = h->buf.len + sizeof(struct kvr_wire_tlv) + len + 8;
	size_t cap = h->buf.cap != 0 ? h->buf.cap : HINTS_FIRST;
	uint8_t *p;

	if (h->buf.err != 0)
		return h->buf.err;
	if (need > KVR_WIRE_MAX_HINTS)
		return mark(h, -EMSGSIZE);
	while (cap < need)
		cap *= 2;
	if (cap == h->buf.cap)
		return 0;
	p = realloc(h->buf.p, cap);
	if (p == NULL)
		return mark(h, -ENOMEM);
	h->buf.p = p;
	h->buf.cap = (uint32_t)cap;
	return 0;
}

static int put_str(struct kvr_client_hints *h, uint16_t type, const char *s, size_t max)
{
	const size_t len = strlen(s);

	if (len == 0)
		return mark(h, -EINVAL);
	if (len > max)
		return mark(h, -EMSGSIZE);
	if (reserve(h, len) == 0)
		kvr_hint_put_str(&h->buf, type, s);
	return h->buf.err;
}

static int put_u64(struct kvr_client_hints *h, uint16_t type, uint64_t v)
{
	if (reserve(h, sizeof(v)) == 0)
		kvr_hint_put_u64(&h->buf, type, v);
	return h->buf.err;
}

static int put_u32(struct kvr_client_hints *h, uint16_t type, uint32_t v)
{
	if (reserve(h, sizeof(v)) == 0)
		kvr_hint_put_u32(&h->buf, type, v);
	return h->buf.err;
}

int kvr_client_hint_lora(struct kvr_client_hints *h, const char *name)
{
	return put_str(h, KVR_HINT_LORA, name, KVR_HINT_MAX_NAME);
}

int kvr_client_hint_namespace(struct kvr_client_hints *h, const char *name)
{
	return put_str(h, KVR_HINT_NAMESPACE, name, KVR_HINT_MAX_NAME);
}

int kvr_client_hint_mm(struct kvr_client_hints *h, uint32_t block, const uint64_t mm_hash[],
		       uint32_t n)
{
	if (n == 0)
		return mark(h, -EINVAL);
	if (n > UINT16_MAX / 8u - 1)
		return mark(h, -EMSGSIZE);
	if (reserve(h, 8 + n * 8ul) == 0)
		kvr_hint_put_mm(&h->buf, block, mm_hash, n);
	return h->buf.err;
}

int kvr_client_hint_backend(struct kvr_client_hints *h, uint64_t worker)
{
	return put_u64(h, KVR_HINT_BACKEND, worker);
}

int kvr_client_hint_prefill_worker(struct kvr_client_hints *h, uint64_t worker)
{
	return put_u64(h, KVR_HINT_PREFILL_WORKER, worker);
}

int kvr_client_hint_decode_worker(struct kvr_client_hints *h, uint64_t worker)
{
	return put_u64(h, KVR_HINT_DECODE_WORKER, worker);
}

int kvr_client_hint_dp_rank(struct kvr_client_hints *h, uint32_t dp_rank)
{
	return put_u32(h, KVR_HINT_DP_RANK, dp_rank);
}

int kvr_client_hint_prefill_dp_rank(struct kvr_client_hints *h, uint32_t dp_rank)
{
	return put_u32(h, KVR_HINT_PREFILL_DP_RANK, dp_rank);
}

int kvr_client_hint_allowed_workers(struct kvr_client_hints *h, const uint64_t worker[], uint32_t n)
{
	if (n > UINT16_MAX / 8u)
		return mark(h, -EMSGSIZE);
	if (reserve(h, n * 8ul) == 0)
		kvr_hint_put_allowed(&h->buf, worker, n);
	return h->buf.err;
}

int kvr_client_hint_required_taint(struct kvr_client_hints *h, const char *taint)
{
	return put_str(h, KVR_HINT_REQUIRED_TAINT, taint, KVR_HINT_MAX_NAME);
}

int kvr_client_hint_preferred_taint(struct kvr_client_hints *h, const char *taint, double weight)
{
	const size_t len = strlen(taint);

	if (len == 0 || !isfinite(weight))
		return mark(h, -EINVAL);
	if (len > KVR_HINT_MAX_NAME)
		return mark(h, -EMSGSIZE);
	if (reserve(h, 8 + len) == 0)
		kvr_hint_put_preferred(&h->buf, weight, taint);
	return h->buf.err;
}

int kvr_client_hint_priority_jump(struct kvr_client_hints *h, double seconds)
{
	if (!isfinite(seconds))
		return mark(h, -EINVAL);
	if (reserve(h, sizeof(seconds)) == 0)
		kvr_hint_put_f64(&h->buf, KVR_HINT_PRIORITY_JUMP, seconds);
	return h->buf.err;
}

int kvr_client_hint_strict_priority(struct kvr_client_hints *h, uint32_t level)
{
	return put_u32(h, KVR_HINT_STRICT_PRIORITY, level);
}

int kvr_client_hint_priority(struct kvr_client_hints *h, int32_t priority)
{
	return put_u32(h, KVR_HINT_PRIORITY, (uint32_t)priority);
}

int kvr_client_hint_policy_class(struct kvr_client_hints *h, const char *name)
{
	return put_str(h, KVR_HINT_POLICY_CLASS, name, KVR_HINT_MAX_NAME);
}

int kvr_client_hint_override(struct kvr_client_hints *h, enum kvr_client_override field,
			     double value)
{
	if (!isfinite(value))
		return mark(h, -EINVAL);
	if (reserve(h, 16) == 0)
		kvr_hint_put_override(&h->buf, (uint32_t)field, value);
	return h->buf.err;
}

int kvr_client_hint_session(struct kvr_client_hints *h, const char *id,
			    enum kvr_client_session action, uint32_t timeout_s)
{
	const size_t len = strlen(id);

	if (len == 0 || (unsigned int)action > KVR_CLIENT_SESSION_CLOSE ||
	    timeout_s > KVR_WIRE_SESSION_MAX_S)
		return mark(h, -EINVAL);
	if (len > KVR_HINT_MAX_SESSION)
		return mark(h, -EMSGSIZE);
	if (reserve(h, 8 + len) == 0)
		kvr_hint_put_session(&h->buf, (uint8_t)action,
				     timeout_s != 0 ? timeout_s : KVR_NONE32, id);
	return h->buf.err;
}

int kvr_client_hint_shared_hits(struct kvr_client_hints *h, uint32_t start, uint32_t end)
{
	if (start >= end)
		return mark(h, -EINVAL);
	if (reserve(h, 8) == 0)
		kvr_hint_put_shared(&h->buf, start, end);
	return h->buf.err;
}

int kvr_client_hint_trace(struct kvr_client_hints *h, const void *data, uint32_t len)
{
	if (len > KVR_HINT_MAX_TRACE)
		return mark(h, -EMSGSIZE);
	if (reserve(h, len) == 0)
		kvr_hint_put(&h->buf, KVR_HINT_TRACE, data, len, NULL, 0);
	return h->buf.err;
}
