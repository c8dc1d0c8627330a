/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_WORLD_H
#define ROUTER_WORLD_H

/**
 * @file
 * The router of fuzz_router, started once, and its rest: between two inputs everybody leaves and
 * time passes until nothing may be left, which is checked.
 */

#include <stdint.h>

#include "pipeline.h"

#define WORLD_POOL_DECODE  5u
#define WORLD_POOL_PREFILL 6u
#define WORLD_POOL_ALONE   7u
#define WORLD_AGENTS	   2000u /* UDP ports of agents 0 to WORLD_WORKERS - 1 */
#define WORLD_WORKERS	   8u

/** Start the router unless it runs. */
void world_begin(void);

/** Everybody leaves, time passes; aborts when something is left or a counter does not add up. */
void world_end(void);

/** Number of this input: part of all names, as the router remembers some for a while. */
uint32_t world_round(void);

/** Id of worker @p i in this round. */
uint64_t world_worker(uint32_t i);

/** Take up to @p n of the router's receive buffers away, or give all back. */
void world_take(uint32_t n);
void world_give_back(void);

/** Let time pass; unless @p heard, workers have been silent meanwhile. */
void world_pass(uint32_t ms, bool heard);

#endif
