/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_LOOP_H
#define ROUTER_LOOP_H

/**
 * @file
 * What the loop of a packet lcore offers: start and one turn. Everything is the lcore's own (struct
 * lcore). Budget: a turn of 50 us, each stage one burst.
 */

#include "router.h"

/** EAL lcore function: poll until router::stop. @p arg is the struct lcore. */
int lcore_loop(void *arg);

/** One turn of the loop: every stage once, then housekeeping. */
void lcore_turn(struct lcore *lc);

#endif
