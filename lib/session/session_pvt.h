/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SESSION_PVT_H
#define SESSION_PVT_H

/** @file Layout of the session table; see kvr_session.h. */

#include "kvr_session.h"

#include <stdalign.h>

#define NIL   UINT32_MAX
#define SLOTS 1024u
#define TICK  UINT64_C(1000000000) /* ns */

struct entry {
	alignas(64) uint64_t hash;
	uint64_t expires;
	uint64_t ttl;
	struct kvr_session_binding to;
	uint32_t prev, next; /* in its wheel slot; next free entry while free */
	uint16_t slot;
	uint16_t len; /* 0 = free */
	char id[KVR_SESSION_ID_MAX];
};

struct kvr_session {
	struct entry *entry;
	uint32_t *index; /* entry + 1, 0 = empty */
	uint32_t mask;
	uint32_t max, fresh, free, count;
	uint64_t seed;
	uint64_t tick; /* all seconds before this one were looked at */
	uint64_t refused;
	uint32_t at[SLOTS]; /* heads of the wheel */
};

#endif
