/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_LOOP_H
#define ROUTER_LOOP_H

/**
 * @file
 * What the loop of a packet lcore offers: start and one turn. Everything is the lcore's own (struct
 * lcore). Budget: a turn of 50 us, each stage one burst.
 */

#include "state/router.h"

/** EAL lcore function: poll until router::stop. @p arg is the struct lcore. */
int lcore_loop(void *arg);

#define LCORE_STACK (256u << 10) /* a burst of prompts that are scored takes 72 KiB of it */

/**
 * The stack of this thread gets the pages that a turn may need, LCORE_STACK bytes, once, before the
 * first turn: they would be page faults of the first bursts. Any thread, for itself.
 */
void lcore_stack(void);

/** One turn of the loop: every stage once, then housekeeping. */
void lcore_turn(struct lcore *lc);

#endif
