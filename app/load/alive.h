/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOAD_ALIVE_H
#define LOAD_ALIVE_H

/**
 * @file
 * ALIVE of the simulated engines: what each collects, and where the round over all of them stands.
 * Load lcore.
 */

#include <stdint.h>

#include "kvr_wire.h"

struct load;

#define LOAD_DUTY_US 500u /* between looks at greetings, heartbeats and ALIVE */

struct load_alive {
	uint32_t n;
	uint64_t handle[KVR_WIRE_ALIVE_MOST];
};

struct load_round {
	uint64_t next; /* when the next one begins, cycles */
	uint32_t at;   /* slot, then engine, of the present one */
};

/** A step of the round in which each engine reports what it runs; every LOAD_DUTY_US. */
void load_alive_duty(struct load *l);

#endif
