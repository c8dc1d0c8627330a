/* SPDX-License-Identifier: BSD-3-Clause */
/* Walks over hints, and the lists in them. */
#include "hints_pvt.h"

#include <errno.h>

int kvr_tlv_next(struct kvr_tlv_iter *it, struct kvr_tlv *out)
{
	uint32_t used, padded;

	if (it->left == 0)
		return 0;
	if (it->left < sizeof(struct kvr_wire_tlv))
		return -EBADMSG;
	out->type = get_u16(it->p);
	out->len = get_u16(it->p + 2);
	out->value = it->p + sizeof(struct kvr_wire_tlv);
	used = (uint32_t)sizeof(struct kvr_wire_tlv) + out->len;
	padded = (used + 7u) & ~7u;
	if (padded > it->left || !all_zero(it->p + used, padded - used))
		return -EBADMSG;
	it->p += padded;
	it->left -= padded;
	return 1;
}

bool kvr_hints_allows(const struct kvr_hints *h, uint64_t worker)
{
	if ((h->present & KVR_HAS(KVR_HINT_ALLOWED_WORKERS)) == 0)
		return true;
	for (uint32_t i = 0; i < h->n_allowed; i++)
		if (kvr_hints_allowed(h, i) == worker)
			return true;
	return false;
}

bool kvr_mm_next(struct kvr_tlv_iter *it, struct kvr_mm *out)
{
	struct kvr_tlv t;

	while (kvr_tlv_next(it, &t) > 0) {
		if (t.type != KVR_HINT_MM || t.len < 8)
			continue;
		out->block = get_u32(t.value);
		out->n = (t.len - 8u) / 8u;
		out->hashes = t.value + 8;
		return true;
	}
	return false;
}
