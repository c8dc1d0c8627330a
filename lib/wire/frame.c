/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_frame.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* The offsets of protocol.h, and the sizes. */
#define ASSERT_FIELD(offset, type, name, ...)                                                      \
	static_assert(offsetof(self, name) == (offset), #name);
#define ASSERT_STRUCT(name, NAME, size)                                                            \
	{                                                                                          \
		typedef struct kvr_wire_##name self;                                               \
		KVR_FIELDS_##NAME(ASSERT_FIELD) static_assert(sizeof(self) == (size), #name);      \
	}

static inline void assert_layout(void)
{
	KVR_STRUCTS(ASSERT_STRUCT)
}

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames are read in place");

int kvr_frame_check(const void *payload, size_t len, uint8_t receiver)
{
	const struct kvr_wire_hdr *h = payload;
	const struct kvr_kind_info *k;

	if (len < sizeof(*h))
		return KVR_FRAME_SHORT;
	if (h->magic != KVR_WIRE_MAGIC)
		return KVR_FRAME_BAD_MAGIC;
	if (h->version != KVR_WIRE_VERSION)
		return KVR_E_VERSION;
	k = kvr_kind_info(h->kind);
	if (k == NULL || (k->to & receiver) == 0)
		return KVR_E_KIND;
	if ((h->flags & (uint16_t)~KVR_WIRE_F_KNOWN) != 0)
		return KVR_E_FLAGS;
	if (len > KVR_WIRE_MAX_FRAME || len - sizeof(*h) != h->frag_len || h->frag_len % 8 != 0 ||
	    h->msg_len % 8 != 0 || h->msg_len < k->min_body)
		return KVR_E_LENGTH;
	if (h->msg_len > k->max_body)
		return KVR_E_TOO_LARGE;
	if (h->frag_off == 0 && h->frag_len == h->msg_len)
		return 0;
	/* A fragment. All but the last have a least size, which bounds their number. */
	if (!k->fragmentable || h->frag_off % 8 != 0 || h->frag_len == 0 ||
	    h->frag_off > h->msg_len || h->frag_len > h->msg_len - h->frag_off)
		return KVR_E_FRAGMENT;
	if (h->frag_len < KVR_WIRE_MIN_FRAGMENT && h->frag_off + h->frag_len != h->msg_len)
		return KVR_E_FRAGMENT;
	if (h->frag_off != 0 && h->frag_off < KVR_WIRE_MIN_FRAGMENT)
		return KVR_E_FRAGMENT;
	/* All but the last are one unit long, so they start at multiples of their own length. */
	if (h->frag_off + h->frag_len != h->msg_len && h->frag_off % h->frag_len != 0)
		return KVR_E_FRAGMENT;
	return 0;
}

bool kvr_frame_answerable(const struct kvr_wire_hdr *hdr)
{
	const struct kvr_kind_info *k;

	/* What an unknown version means by its kind is unknown, except that of REJECTED. */
	if (hdr->kind == KVR_REJECTED)
		return false;
	k = hdr->version == KVR_WIRE_VERSION ? kvr_kind_info(hdr->kind) : NULL;
	return k == NULL || k->answerable;
}

void kvr_hdr_put(void *dst, uint8_t kind, const struct kvr_wire_ids *ids, uint32_t msg_len,
		 uint32_t off, uint16_t frag_len)
{
	struct kvr_wire_hdr *h = dst;

	h->magic = KVR_WIRE_MAGIC;
	h->version = KVR_WIRE_VERSION;
	h->kind = kind;
	h->flags = 0;
	h->frag_len = frag_len;
	h->source = ids->source;
	h->id = ids->id;
	h->handle = ids->handle;
	h->msg_len = msg_len;
	h->frag_off = off;
	h->epoch = ids->epoch;
	h->msg_seq = ids->msg_seq;
}

uint32_t kvr_slices_len(const struct kvr_slice *s, uint32_t n)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += s[i].len;
	return sum;
}

int kvr_slices_copy(const struct kvr_slice *s, uint32_t n, uint32_t off, uint32_t len, void *dst)
{
	uint8_t *to = dst;

	for (uint32_t i = 0; i < n && len > 0; i++) {
		uint32_t part;

		if (off >= s[i].len) {
			off -= s[i].len;
			continue;
		}
		part = s[i].len - off < len ? s[i].len - off : len;
		memcpy(to, (const uint8_t *)s[i].p + off, part);
		to += part;
		len -= part;
		off = 0;
	}
	return len == 0 ? 0 : -EMSGSIZE;
}

const void *kvr_slices_at(const struct kvr_slice *s, uint32_t n, uint32_t off, uint32_t len,
			  void *scratch)
{
	const uint32_t from = off;

	for (uint32_t i = 0; i < n; i++) {
		if (off < s[i].len || (off == s[i].len && len == 0)) {
			if (len <= s[i].len - off)
				return (const uint8_t *)s[i].p + off;
			break;
		}
		off -= s[i].len;
	}
	if (scratch == NULL || kvr_slices_copy(s, n, from, len, scratch) != 0 || len == 0)
		return NULL;
	return scratch;
}

int kvr_frag_init(struct kvr_frag *f, uint8_t kind, const struct kvr_wire_ids *ids,
		  uint32_t msg_len, uint32_t max_frame)
{
	const struct kvr_kind_info *k = kvr_kind_info(kind);
	uint32_t unit;

	if (k == NULL || msg_len % 8 != 0 || max_frame < KVR_WIRE_LEAST_MAX_FRAME ||
	    max_frame > KVR_WIRE_MAX_FRAME)
		return -EINVAL;
	unit = (max_frame - KVR_WIRE_MIN_FRAME) & ~7u;
	if (msg_len > k->max_body || (msg_len > unit && !k->fragmentable))
		return -EMSGSIZE;
	*f = (struct kvr_frag){.ids = *ids,
			       .msg_len = msg_len,
			       .unit = unit,
			       .n_frames = msg_len == 0 ? 1 : (msg_len + unit - 1) / unit,
			       .kind = kind};
	return 0;
}

bool kvr_frag_next(struct kvr_frag *f, void *hdr, uint32_t *off, uint32_t *len)
{
	uint32_t part;

	if (f->done)
		return false;
	part = f->msg_len - f->next < f->unit ? f->msg_len - f->next : f->unit;
	kvr_hdr_put(hdr, f->kind, &f->ids, f->msg_len, f->next, (uint16_t)part);
	*off = f->next;
	*len = part;
	f->next += part;
	f->done = f->next == f->msg_len;
	return true;
}
