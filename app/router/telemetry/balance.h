/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_BALANCE_H
#define ROUTER_BALANCE_H

/**
 * @file
 * Whether the counters add up, while traffic runs. Each equation holds for every single row of
 * counters whenever its writer is between two turns: so each lcore copies its own rows there, and
 * the copies are checked. Nothing is in motion in them.
 */

#include <stdint.h>

struct router;

struct balance {
	char violation[512]; /* the first equation that does not hold, with its numbers; "": none */
	uint64_t bookings;
	uint64_t waiting;
	uint64_t slots; /* of requests, lingering ones too */
};

/** Ask every lcore. Control thread, or under its lock. @return 0, -ENOMEM. */
int balance_read(struct router *rt, struct balance *b);

#endif
