/* SPDX-License-Identifier: BSD-3-Clause */
/* Reports of the checkers of bodies. */
#ifndef KVR_BODY_PVT_H
#define KVR_BODY_PVT_H

#include "kvr_message.h"

static inline enum kvr_code set_fault(struct kvr_fault *f, enum kvr_code code, const char *text,
				      uint64_t seen, uint64_t allowed)
{
	*f = (struct kvr_fault){.seen = seen, .allowed = allowed, .text = text};
	return code;
}

static inline enum kvr_code reserved_set(struct kvr_fault *f)
{
	return set_fault(f, KVR_E_FLAGS, "reserved bytes set", 0, 0);
}

static inline enum kvr_code bad_length(struct kvr_fault *f, uint64_t seen, uint64_t allowed)
{
	return set_fault(f, KVR_E_LENGTH, "lengths disagree", seen, allowed);
}

static inline enum kvr_code bad_value(struct kvr_fault *f, const char *text, uint64_t seen,
				      uint64_t allowed)
{
	return set_fault(f, KVR_E_INVALID_REQUEST, text, seen, allowed);
}

enum kvr_code kvr_wire__check_kv_events(const void *body, uint32_t len, struct kvr_fault *f);

#endif
