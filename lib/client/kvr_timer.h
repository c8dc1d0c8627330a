/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_TIMER_H
#define KVR_TIMER_H

/**
 * @file
 * Timers of one protocol engine on plain sockets: a binary min-heap of intrusive timers, so that
 * setting, moving and stopping one costs O(log n) and allocates nothing. The heap is sized once
 * for every timer that can exist; the clock is handed in (microseconds, any origin). Equal times
 * fire in no defined order. One thread. Not installed: shared by lib/client and lib/agent.
 */

#include <stdbool.h>
#include <stdint.h>

#define KVR_TIMER_NEVER UINT64_MAX

/** Embedded in what it times; a zeroed timer is idle. Fields are private. */
struct kvr_timer {
	uint64_t due_us;
	uint32_t pos;  /* place in the heap + 1, 0 while idle */
	uint32_t kind; /* owner's label, untouched here */
};

/** The heap; a zeroed one is empty and holds nothing. */
struct kvr_timers {
	struct kvr_timer **heap;
	uint32_t n, cap;
};

/** Make room for @p cap timers. @return 0 or -ENOMEM. */
int kvr_timers_init(struct kvr_timers *h, uint32_t cap);

/** Release the heap (not the timers). */
void kvr_timers_fini(struct kvr_timers *h);

/** Start @p t or move it. More running timers than the heap was sized for is a caller bug. */
void kvr_timer_set(struct kvr_timers *h, struct kvr_timer *t, uint64_t due_us);

/** Stop @p t; an idle one is left alone. */
void kvr_timer_stop(struct kvr_timers *h, struct kvr_timer *t);

/** Take out one timer due at @p now_us (earliest first), or NULL when none is. */
struct kvr_timer *kvr_timers_expire(struct kvr_timers *h, uint64_t now_us);

/** Time of the earliest timer, KVR_TIMER_NEVER without any. */
static inline uint64_t kvr_timers_next(const struct kvr_timers *h)
{
	return h->n > 0 ? h->heap[0]->due_us : KVR_TIMER_NEVER;
}

static inline bool kvr_timer_running(const struct kvr_timer *t)
{
	return t->pos != 0;
}

#endif
