/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOAD_SLEEP_H
#define LOAD_SLEEP_H

#include <stdbool.h>

/**
 * @file
 * --idle sleep: the only place where the load lcore yields its CPU, for tests that share the CPUs.
 * Not for measurements: an event that becomes due during a sleep waits for its end.
 */

struct load;

/** Idle time before a sleep, and length of a sleep. */
#define LOAD_SLEEP_AFTER_US 50u
#define LOAD_SLEEP_US	    50u

/** End of a turn. @p busy: a frame was received or sent. Load lcore. */
void load_sleep_idle(struct load *l, bool busy);

#endif
