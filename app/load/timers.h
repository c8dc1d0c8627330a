/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOAD_TIMERS_H
#define LOAD_TIMERS_H

/**
 * @file
 * One-shot timers in a 4-ary heap, for the next step of a simulated engine. A timer is never
 * cancelled; its owner compares the generation and ignores an outdated one. The room is fixed at
 * creation. Add and pop touch log4(n) nodes of 16 bytes. One owner.
 */

#include <stdbool.h>
#include <stdint.h>

struct load_timer {
	uint64_t at;   /* cycles */
	uint32_t slot; /* owner: a task or a lane */
	uint32_t gen;  /* generation of the owner when it was added */
};

struct load_timers {
	struct load_timer *heap;
	uint32_t n;
	uint32_t room;
};

/** Room for @p room timers; 0 or -ENOMEM. */
int load_timers_init(struct load_timers *t, uint32_t room);
void load_timers_fini(struct load_timers *t);

/** Add a timer. @return false: no room. */
bool load_timers_add(struct load_timers *t, struct load_timer x);

/** Take the earliest timer that is due at @p now. @return false: none. */
bool load_timers_pop(struct load_timers *t, uint64_t now, struct load_timer *x);

#endif
