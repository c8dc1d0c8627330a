/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_BALANCE_H
#define ROUTER_BALANCE_H

/**
 * @file
 * The balance equations during traffic. Each equation holds for every row of counters between two
 * turns of its writer, so each lcore copies its own rows at that point, and the copies are checked.
 */

#include <stdint.h>

struct router;

struct balance {
	char violation[512]; /* the first violated equation with its numbers; "": none */
	uint64_t bookings;
	uint64_t waiting;
	uint64_t slots; /* used by requests, lingering ones included */
};

/** Collect the rows of every lcore. Control thread, or under kvr_telemetry_lock(). @return 0,
 * -ENOMEM. */
int balance_read(struct router *rt, struct balance *b);

#endif
