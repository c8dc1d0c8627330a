/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOAD_TIMERS_H
#define LOAD_TIMERS_H

/**
 * @file
 * One-shot timers on a 4-ary heap: what a simulated engine does next, and when. A timer is not
 * cancelled; its owner compares the generation and ignores one that is out of date. Room is fixed
 * at create time; add and pop touch log4(n) nodes of 16 bytes. One owner.
 */

#include <stdbool.h>
#include <stdint.h>

struct load_timer {
	uint64_t at;   /* cycles */
	uint32_t slot; /* whose: a task, a lane */
	uint32_t gen;  /* the slot's generation when it was added */
};

struct load_timers {
	struct load_timer *heap;
	uint32_t n;
	uint32_t room;
};

/** Room for @p room timers; 0 or -ENOMEM. */
int load_timers_init(struct load_timers *t, uint32_t room);
void load_timers_fini(struct load_timers *t);

/** Add one; false when there is no room. */
bool load_timers_add(struct load_timers *t, struct load_timer x);

/** Take the earliest that is due at @p now; false when none is. */
bool load_timers_pop(struct load_timers *t, uint64_t now, struct load_timer *x);

#endif
