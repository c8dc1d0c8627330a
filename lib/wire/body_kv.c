/* SPDX-License-Identifier: BSD-3-Clause */
/* Checker and reader of KV_EVENTS. PROTOCOL.md, section 10. */
#include "body_pvt.h"
#include "kvr_message.h"

#define KV_DUMP_ONLY (KVR_KV_F_DUMP_BEGIN | KVR_KV_F_DUMP_END)
#define KV_KNOWN     (KV_DUMP_ONLY | KVR_KV_F_DUMP)

static enum kvr_code check_kv_head(const struct kvr_wire_kv_events *m, struct kvr_fault *f)
{
	const bool dump = (m->flags & KVR_KV_F_DUMP) != 0;

	if (m->reserved != 0 || (m->flags & ~KV_KNOWN) != 0)
		return reserved_set(f);
	if ((m->flags & KV_DUMP_ONLY) != 0 && !dump)
		return set_fault(f, KVR_E_FLAGS, "flags without DUMP", m->flags, 0);
	if ((m->flags & KVR_KV_F_DUMP_END) == 0 && m->resume_event_id != 0)
		return reserved_set(f);
	if (dump && ((m->flags & KVR_KV_F_DUMP_BEGIN) != 0) != (m->first_event_id == 0))
		return bad_value(f, "DUMP_BEGIN is position 0", m->first_event_id, 0);
	if (!dump && m->n_events == 0)
		return bad_length(f, 0, 1);
	if (m->first_event_id > UINT64_MAX - m->n_events)
		return bad_value(f, "event ids wrap", m->first_event_id, 0);
	return KVR_OK;
}

static enum kvr_code check_kv_event(const struct kvr_wire_kv_event *e, bool dump,
				    struct kvr_fault *f)
{
	const bool parent = (e->flags & KVR_KV_EV_F_PARENT) != 0;

	if (e->type < KVR_KV_STORED || e->type > KVR_KV_CLEARED || e->tier > 3)
		return bad_value(f, "unknown event type or tier", e->type, e->tier);
	if ((e->flags & ~KVR_KV_EV_F_PARENT) != 0 || (!parent && e->parent != 0) ||
	    (parent && e->type != KVR_KV_STORED))
		return reserved_set(f);
	if (dump && e->type != KVR_KV_STORED)
		return bad_value(f, "event other than STORED in a dump", e->type, KVR_KV_STORED);
	if ((e->n_blocks == 0) != (e->type == KVR_KV_CLEARED))
		return bad_length(f, e->n_blocks, 0);
	return KVR_OK;
}

enum kvr_code kvr_wire__check_kv_events(const void *body, uint32_t len, struct kvr_fault *f)
{
	const struct kvr_wire_kv_events *m = body;
	const uint8_t *p = body;
	uint32_t left = len - (uint32_t)sizeof(*m);
	enum kvr_code r = check_kv_head(m, f);

	p += sizeof(*m);
	for (uint32_t i = 0; r == 0 && i < m->n_events; i++) {
		const struct kvr_wire_kv_event *e = (const struct kvr_wire_kv_event *)p;

		if (left < sizeof(*e))
			return bad_length(f, left, sizeof(*e));
		r = check_kv_event(e, (m->flags & KVR_KV_F_DUMP) != 0, f);
		left -= (uint32_t)sizeof(*e);
		if (e->n_blocks > left / 8)
			return r != 0 ? r : bad_length(f, e->n_blocks, left / 8);
		left -= e->n_blocks * 8;
		p += sizeof(*e) + (size_t)e->n_blocks * 8;
	}
	if (r == 0 && left != 0)
		return bad_length(f, left, 0);
	return r;
}

struct kvr_kv_iter kvr_kv_events_begin(const void *body)
{
	const struct kvr_wire_kv_events *m = body;

	return (struct kvr_kv_iter){(const uint8_t *)(m + 1), m->n_events};
}
