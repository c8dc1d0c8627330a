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

/* ---- setters of the rows of KVR_REQUEST_HINTS, by format ---- */

static int put_bytes(struct kvr_client_hints *h, uint16_t type, const void *data, size_t len)
{
	const struct kvr_hint_row *row = &kvr_hint_rows[type & 0x3f];

	if (len > row->most)
		return mark(h, -EMSGSIZE);
	if (reserve(h, len) == 0)
		kvr_hint_put(&h->buf, type, data, (uint32_t)len, NULL, 0);
	return h->buf.err;
}

static int put_text(struct kvr_client_hints *h, uint16_t type, const char *text)
{
	return text[0] == '\0' ? mark(h, -EINVAL) : put_bytes(h, type, text, strlen(text));
}

static int put_number(struct kvr_client_hints *h, uint16_t type, const void *value, uint32_t len)
{
	if (reserve(h, len) == 0)
		kvr_hint_put(&h->buf, type, value, len, NULL, 0);
	return h->buf.err;
}

static int put_list(struct kvr_client_hints *h, uint16_t type, const uint64_t value[], uint32_t n)
{
	if (n > kvr_hint_rows[type & 0x3f].most)
		return mark(h, -EMSGSIZE);
	return put_number(h, type, value, n * (uint32_t)sizeof(*value));
}

static int put_preferred(struct kvr_client_hints *h, uint16_t type, const char *text, double weight)
{
	const size_t len = strlen(text);

	if (len == 0 || !isfinite(weight))
		return mark(h, -EINVAL);
	if (len > kvr_hint_rows[type & 0x3f].most)
		return mark(h, -EMSGSIZE);
	if (reserve(h, sizeof(weight) + len) == 0)
		kvr_hint_put(&h->buf, type, &weight, sizeof(weight), text, (uint32_t)len);
	return h->buf.err;
}

/* clang-format off */
#define SETTER(member, ...) int kvr_client_hint_##member(struct kvr_client_hints *h, __VA_ARGS__)
#define SETTER_U64(type, member) SETTER(member, uint64_t value) { return put_number(h, type, &value, sizeof(value)); }
#define SETTER_U32(type, member) SETTER(member, uint32_t value) { return put_number(h, type, &value, sizeof(value)); }
#define SETTER_I32(type, member) SETTER(member, int32_t value) { return put_number(h, type, &value, sizeof(value)); }
#define SETTER_F64(type, member) SETTER(member, double value) { return !isfinite(value) ? mark(h, -EINVAL) : put_number(h, type, &value, sizeof(value)); }
#define SETTER_TEXT(type, member) SETTER(member, const char *text) { return put_text(h, type, text); }
#define SETTER_TEXTS(type, member) SETTER_TEXT(type, member)
#define SETTER_BYTES(type, member) SETTER(member, const void *data, uint32_t len) { return put_bytes(h, type, data, len); }
#define SETTER_U64S(type, member) SETTER(member, const uint64_t value[], uint32_t n) { return put_list(h, type, value, n); }
#define SETTER_PREFERRED(type, member) SETTER(member, const char *text, double weight) { return put_preferred(h, type, text, weight); }
#define SETTER_RANKS(type, member)
#define SETTER_OVERRIDE(type, member)
#define SETTER_SESSION(type, member)
#define SETTER_MM(type, member)
#define SETTER_RANGES(type, member)
#define SETTER_BODY(type, member)
#define HINT_SETTER(name, type, in, format, least, most, entries, member, ...) SETTER_##format(type, member)
KVR_REQUEST_HINTS(HINT_SETTER)
/* clang-format on */

/* ---- setters of other formats ---- */

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

int kvr_client_hint_shared(struct kvr_client_hints *h, uint32_t start, uint32_t end)
{
	if (start >= end)
		return mark(h, -EINVAL);
	if (reserve(h, 8) == 0)
		kvr_hint_put_shared(&h->buf, start, end);
	return h->buf.err;
}
