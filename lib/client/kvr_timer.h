/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_TIMER_H
#define KVR_TIMER_H

/**
 * @file
 * Timers of one protocol engine on plain sockets: a binary min-heap of intrusive timers. Set, move
 * and stop cost O(log n) and allocate nothing. The heap is sized once for all timers. The caller
 * passes the clock (microseconds, any origin). Timers of equal time fire in no defined order. One
 * thread. Not installed; shared by lib/client and lib/agent.
 */

#include <stdbool.h>
#include <stdint.h>

#define KVR_TIMER_NEVER UINT64_MAX

/** Embedded in the object that it serves; a zeroed timer is idle. Fields are private. */
struct kvr_timer {
	uint64_t due_us;
	uint32_t pos;  /* place in the heap + 1, 0 while idle */
	uint32_t kind; /* label of the owner */
};

/** The heap; zeroed, it is empty and owns no memory. */
struct kvr_timers {
	struct kvr_timer **heap;
	uint32_t n, cap;
};

/** Allocate space for @p cap timers. @return 0 or -ENOMEM. */
int kvr_timers_init(struct kvr_timers *timers, uint32_t cap);

/** Free the heap, not the timers. */
void kvr_timers_fini(struct kvr_timers *timers);

/** Start @p t, or move it. Running more timers than the heap has space for is a bug of the
 * caller. */
void kvr_timer_set(struct kvr_timers *timers, struct kvr_timer *t, uint64_t due_us);

/** Stop @p t; has no effect on an idle timer. */
void kvr_timer_stop(struct kvr_timers *timers, struct kvr_timer *t);

/** Remove and return a timer due at @p now_us, earliest first; NULL: none is due. */
struct kvr_timer *kvr_timers_expire(struct kvr_timers *timers, uint64_t now_us);

/** Time of the earliest timer; KVR_TIMER_NEVER: none runs. */
static inline uint64_t kvr_timers_next(const struct kvr_timers *timers)
{
	return timers->n > 0 ? timers->heap[0]->due_us : KVR_TIMER_NEVER;
}

static inline bool kvr_timer_running(const struct kvr_timer *t)
{
	return t->pos != 0;
}

#endif
