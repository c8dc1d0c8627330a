/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOAD_NAP_H
#define LOAD_NAP_H

#include <stdbool.h>

/**
 * @file
 * --idle sleep: the one place where the load lcore gives its CPU away, for loads that are a test's
 * and share the CPUs with others. Never in a measurement: whatever becomes due in a nap waits for
 * its end.
 */

struct load;

/** How long nothing must have arrived or left, and how long a nap is. */
#define LOAD_NAP_AFTER_US 50u
#define LOAD_NAP_US	  50u

/** The end of a turn, @p busy: something was received or sent. Load lcore. */
void load_nap(struct load *l, bool busy);

#endif
