/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SESSION_PVT_H
#define SESSION_PVT_H

/**
 * @file
 * Layout of the session table; see kvr_session.h.
 */

#include "kvr_prefetch.h"
#include "kvr_session.h"

#include <stdalign.h>
#include <stdatomic.h>

#define NIL	      UINT32_MAX
#define TICK_SHIFT    27 /* 134 ms */
#define SLOTS	      8192u
#define RECHECK_TICKS 8u /* ticks until a reported entry is checked again */

_Static_assert(UINT64_C(2) << TICK_SHIFT == KVR_SESSION_LATE,
	       "an entry armed late in the tick of its time is in the next slot");

/** Place of the index; empty if entry is 0. The low bits of the tag are its home. */
struct place {
	uint32_t tag;
	uint32_t entry; /* entry + 1 */
};

/**
 * Scheduler side: rw. The control side reads the atomics (relaxed): a decision based on an old
 * value is checked again later or confirmed, and arm_entry() orders what a bind writes.
 */
struct entry {
	alignas(64) _Atomic uint64_t expires; /* 0: free */
	_Atomic uint64_t ttl;
	uint64_t worker;
	uint64_t caller_tag;
	uint32_t dp_rank;
	_Atomic uint32_t gen;	 /* odd: bound */
	_Atomic uint32_t active; /* requests that use the binding */
	uint32_t tag;		 /* hash of the id; next free entry while free */
	uint32_t len;
	char id[KVR_SESSION_ID_MAX];
};
_Static_assert(sizeof(struct entry) == 320 && offsetof(struct entry, id) == 52,
	       "ids of 12 bytes are in the first line, ids of 76 bytes in two");

/**
 * Circular lists; the first SLOTS links are the heads, entry n is link SLOTS + n. A link in no slot
 * points to itself.
 */
struct link {
	uint32_t prev, next;
};

struct kvr_session {
	/* constant after creation */
	struct entry *entry;
	struct place *index;
	struct link *link;
	uint32_t *queue;
	_Atomic uint8_t *queued; /* by entry: is in the queue; set by the scheduler side, cleared by
				    the control side */
	void *map;
	size_t map_bytes;
	uint64_t seed;
	uint32_t mask; /* mask of the index */
	uint32_t queue_mask;
	uint32_t max;
	void (*on_drop)(void *arg, uint32_t entry); /* called on the scheduler side; or NULL */
	void *drop_arg;

	/* scheduler side: rw, others: ro (relaxed) */
	alignas(64) _Atomic uint32_t count;
	_Atomic uint32_t reserved;
	_Atomic uint64_t rejected;
	uint32_t fresh, free;
	_Atomic uint32_t tail; /* release; pairs with the acquire load in take_over() */

	/* control side: rw */
	alignas(64) uint64_t tick; /* all slots before this one were checked */
	uint32_t head;
};

#endif
