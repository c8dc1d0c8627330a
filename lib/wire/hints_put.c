/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_hints.h"

#include <errno.h>
#include <string.h>

void kvr_hint_put(struct kvr_hint_buf *h, uint16_t type, const void *a, uint32_t a_len,
		  const void *b, uint32_t b_len)
{
	const uint64_t len = (uint64_t)a_len + b_len;
	const struct kvr_wire_tlv tlv = {type, (uint16_t)len};
	const uint64_t padded = (sizeof(tlv) + len + 7) & ~UINT64_C(7);
	uint8_t *p;

	if (h->err != 0)
		return;
	if (len > UINT16_MAX) {
		h->err = -EINVAL;
		return;
	}
	if (h->len > h->cap || padded > h->cap - h->len) {
		h->err = -EMSGSIZE;
		return;
	}
	p = h->p + h->len;
	memset(p, 0, padded);
	memcpy(p, &tlv, sizeof(tlv));
	if (a_len > 0)
		memcpy(p + sizeof(tlv), a, a_len);
	if (b_len > 0)
		memcpy(p + sizeof(tlv) + a_len, b, b_len);
	h->len += (uint32_t)padded;
}

static bool is_listed(uint16_t type, const uint16_t list[], uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (list[i] == type)
			return true;
	return false;
}

int kvr_hints_rewrite(const void *in, uint32_t in_len, const uint16_t drop[], uint32_t n_drop,
		      struct kvr_hint_buf *out)
{
	struct kvr_tlv_iter it = kvr_tlv_begin(in, in_len);
	struct kvr_tlv t;
	int more = 0;

	while (out->err == 0 && (more = kvr_tlv_next(&it, &t)) > 0)
		if (t.type != KVR_HINT_PAD && !is_listed(t.type, drop, n_drop))
			kvr_hint_put(out, t.type, t.value, t.len, NULL, 0);
	if (out->err == 0)
		out->err = more;
	return out->err;
}

static uint32_t str_len(const char *s)
{
	return (uint32_t)strnlen(s, UINT16_MAX + 1u);
}

void kvr_hint_put_str(struct kvr_hint_buf *h, uint16_t type, const char *s)
{
	kvr_hint_put(h, type, s, str_len(s), NULL, 0);
}

void kvr_hint_put_u32(struct kvr_hint_buf *h, uint16_t type, uint32_t v)
{
	kvr_hint_put(h, type, &v, sizeof(v), NULL, 0);
}

void kvr_hint_put_u64(struct kvr_hint_buf *h, uint16_t type, uint64_t v)
{
	kvr_hint_put(h, type, &v, sizeof(v), NULL, 0);
}

void kvr_hint_put_f64(struct kvr_hint_buf *h, uint16_t type, double v)
{
	kvr_hint_put(h, type, &v, sizeof(v), NULL, 0);
}

void kvr_hint_put_allowed(struct kvr_hint_buf *h, const uint64_t worker[], uint32_t n)
{
	if (n > UINT16_MAX / 8u && h->err == 0)
		h->err = -EINVAL;
	kvr_hint_put(h, KVR_HINT_ALLOWED_WORKERS, worker, n * 8u, NULL, 0);
}

void kvr_hint_put_ranks(struct kvr_hint_buf *h, uint16_t type, const uint64_t worker[],
			const uint32_t dp_rank[], uint32_t n)
{
	uint64_t v[2 * KVR_HINT_MAX_FAILED_AT];

	if (n == 0 || n > KVR_HINT_MAX_FAILED_AT) {
		if (h->err == 0)
			h->err = -EINVAL;
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		v[2 * i] = worker[i];
		v[2 * i + 1] = dp_rank[i];
	}
	kvr_hint_put(h, type, v, n * 16u, NULL, 0);
}

void kvr_hint_put_preferred(struct kvr_hint_buf *h, double weight, const char *taint)
{
	kvr_hint_put(h, KVR_HINT_PREFERRED_TAINT, &weight, sizeof(weight), taint, str_len(taint));
}

void kvr_hint_put_override(struct kvr_hint_buf *h, uint32_t field, double value)
{
	const uint32_t head[2] = {field, 0};

	kvr_hint_put(h, KVR_HINT_OVERRIDE, head, sizeof(head), &value, sizeof(value));
}

void kvr_hint_put_session(struct kvr_hint_buf *h, uint8_t action, uint32_t timeout_s,
			  const char *id)
{
	uint8_t head[8] = {action};

	memcpy(head + 4, &timeout_s, sizeof(timeout_s));
	kvr_hint_put(h, KVR_HINT_SESSION, head, sizeof(head), id, str_len(id));
}

void kvr_hint_put_mm(struct kvr_hint_buf *h, uint32_t block, const uint64_t hash[], uint32_t n)
{
	const uint32_t head[2] = {block, n};

	if (n > (UINT16_MAX - 8u) / 8u && h->err == 0)
		h->err = -EINVAL;
	kvr_hint_put(h, KVR_HINT_MM, head, sizeof(head), hash, n * 8u);
}

void kvr_hint_put_shared(struct kvr_hint_buf *h, uint32_t start, uint32_t end)
{
	const uint32_t range[2] = {start, end};

	kvr_hint_put(h, KVR_HINT_SHARED_HITS, range, sizeof(range), NULL, 0);
}

void kvr_hint_put_bootstrap(struct kvr_hint_buf *h, uint64_t room, uint16_t port, const char *host)
{
	uint8_t head[16] = {0};

	memcpy(head, &room, sizeof(room));
	memcpy(head + 8, &port, sizeof(port));
	kvr_hint_put(h, KVR_HINT_BOOTSTRAP, head, sizeof(head), host, str_len(host));
}

void kvr_hint_put_bootstrap_addr(struct kvr_hint_buf *h, uint16_t port, const char *host)
{
	uint8_t head[8] = {0};

	memcpy(head, &port, sizeof(port));
	kvr_hint_put(h, KVR_HINT_BOOTSTRAP_ADDR, head, sizeof(head), host, str_len(host));
}

void kvr_hint_put_body(struct kvr_hint_buf *h, uint64_t len, const uint8_t token[KVR_WIRE_TOKEN])
{
	kvr_hint_put(h, KVR_HINT_BODY, &len, sizeof(len), token, KVR_WIRE_TOKEN);
}

void kvr_hint_put_kv_transfer(struct kvr_hint_buf *h, uint8_t enforcement, double weight,
			      const char *domain)
{
	uint8_t head[16] = {enforcement};

	memcpy(head + 8, &weight, sizeof(weight));
	kvr_hint_put(h, KVR_HINT_KV_TRANSFER, head, sizeof(head), domain, str_len(domain));
}
