/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOAD_ALIVE_H
#define LOAD_ALIVE_H

/**
 * @file
 * ALIVE of the simulated engines: the next message of each engine, and the progress of the round
 * over all of them. Load lcore.
 */

#include <stdint.h>

#include "kvr_wire.h"

struct load;

#define LOAD_DUTY_US 500u /* period of registration, heartbeats and ALIVE */

struct load_alive {
	uint32_t n;
	uint64_t handle[KVR_WIRE_ALIVE_MOST];
};

struct load_round {
	uint64_t next; /* begin of the next round, cycles */
	uint32_t at;   /* progress of the current round: slots, then engines */
};

/** Continue the round in which each engine reports its running requests. Every LOAD_DUTY_US. */
void load_alive_duty(struct load *l);

#endif
