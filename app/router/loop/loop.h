/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_LOOP_H
#define ROUTER_LOOP_H

/**
 * @file
 * The loop of a packet lcore. Writer: the lcore itself (struct lcore). Budget: 50 us a turn, one
 * burst per stage.
 */

#include "state/router.h"

/** EAL lcore function: poll until router::stop. @p arg is a struct lcore. */
int lcore_loop(void *arg);

#define LCORE_STACK (256u << 10) /* scoring a burst of prompts takes 72 KiB of it */

/** Touch the LCORE_STACK bytes of this thread's stack before the first turn, which would otherwise
 * take page faults. Any thread, for itself. */
void lcore_stack(void);

/** One turn: every stage once, then housekeeping. */
void lcore_turn(struct lcore *lc);

#endif
