/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_WORLD_H
#define ROUTER_WORLD_H

/**
 * @file
 *
 * The router of fuzz_router, started once. Between two inputs all peers leave and time passes until
 * nothing may be left, which is checked.
 */

#include <stdint.h>

#include "pipeline.h"

#define WORLD_POOL_DECODE  5u
#define WORLD_POOL_PREFILL 6u
#define WORLD_POOL_ALONE   7u
#define WORLD_AGENTS	   2000u /* UDP ports of agents 0 to WORLD_WORKERS - 1 */
#define WORLD_WORKERS	   8u

/** Start the router unless it is running. */
void world_begin(void);

/** All peers leave and time passes; aborts if something is left or a counter equation is violated.
 */
void world_end(void);

/** Number of this input: part of all names, because the router keeps some for a while. */
uint32_t world_get_round(void);

/** Id of worker @p i in this round. */
uint64_t world_get_worker(uint32_t i);

/** Take up to @p n of the router's receive buffers, or return all. */
void world_take_buffers(uint32_t n);
void world_return_buffers(void);

/** Let time pass; unless @p alive, workers are silent meanwhile. */
void world_pass_time(uint32_t ms, bool alive);

#endif
