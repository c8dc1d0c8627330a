/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_STATE_IDLE_H
#define ROUTER_STATE_IDLE_H

/**
 * @file
 * The idle state of a packet lcore or of the control thread: lcore/idle.h has the rules. `turns`,
 * `fewer`, `ns`, `done` and `slack` belong to the thread; `asleep` is written by the thread and
 * read by wakers; the others are set at start.
 */

#include <stdatomic.h>
#include <stdint.h>

#include "kvr_timer_slack.h"

/** [router] idle. */
enum idle_mode { IDLE_POLL, IDLE_SLEEP, IDLE_INTERRUPT };

struct idle {
	int mode;	/* enum idle_mode */
	int fd;		/* eventfd that ends its sleep */
	uint32_t turns; /* consecutive empty turns */
	uint32_t fewer; /* interrupt: the number of empty turns is halved this many times */
	uint64_t ns;	/* last sleep; 0: none since the last work */
	uint64_t done;	/* lcore_done() after the last turn */
	struct kvr_timer_slack slack;
	_Atomic int asleep;
};

#endif
