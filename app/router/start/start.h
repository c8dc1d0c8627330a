/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_START_H
#define ROUTER_START_H

/**
 * @file
 * Start and stop, in the order of the table in main.c. A failing start undoes itself and leaves one
 * line in @p err; a stop undoes its start and accepts a partial one. Main thread.
 */

#include "state/router.h"

/** EAL lcore 0 is control; polling lcore i is EAL lcore i + 1 on its configured CPU. */
#define EAL_LCORE(i) ((i) + 1)

/** Check that the host has the configured memory. @return 0, -ENOMEM. No EAL; part of start_eal().
 */
int check_memory(struct router *rt, char *err, size_t errlen);

int start_eal(struct router *rt, char *err, size_t errlen);
void stop_eal(struct router *rt);

/** Clock rate, random seed and epoch of this process; part of start_eal(). */
void start_clock(struct router *rt);

int start_counters(struct router *rt, char *err, size_t errlen);
void stop_counters(struct router *rt);

/** Create and start the ports. */
int start_ports(struct router *rt, char *err, size_t errlen);
void stop_ports(struct router *rt);

/** Pools of large buffers and the control ring. */
int start_buffers(struct router *rt, char *err, size_t errlen);
void stop_buffers(struct router *rt);

/** Worker registry, QSBR, the first (empty) view. */
int start_registry(struct router *rt, char *err, size_t errlen);
void stop_registry(struct router *rt);

/** Contexts of the polling lcores. */
int start_lcores(struct router *rt, char *err, size_t errlen);
void stop_lcores(struct router *rt);

/** Pools: tables, rings, scheduler; assigned to their lcores. */
int start_pools(struct router *rt, char *err, size_t errlen);
void stop_pools(struct router *rt);

/** Populate the pages of all memory; ends early at a signal to quit. */
int start_memory(struct router *rt, char *err, size_t errlen);
void stop_memory(struct router *rt);

/** Launch and join the polling lcores. */
int start_traffic(struct router *rt, char *err, size_t errlen);
void stop_traffic(struct router *rt);

#endif
