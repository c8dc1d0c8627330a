/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SIM_LEAK_CHECK_H
#define SIM_LEAK_CHECK_H

/**
 * @file
 * A router at rest: the values that must be zero without requests, and the equations between its
 * counters. Each violation is one line on standard error and makes the result false. Thread: the
 * one that runs the router, between two turns.
 */

#include <stdbool.h>

#include "router_rig.h"

/** Whether all counters satisfy their equations. */
bool leak_check_balanced(const struct router *rt);

/** Whether no request is left: no booking, slot, job, session or buffer. Workers and blocks may
 * exist. */
bool leak_check_requests(const struct router *rt);

/** The same, and no worker, block or packet buffer is left. Frames that the router sent must have
 * been taken from its devices. */
bool leak_check_all(const struct router_rig *b);

/** Counters that were above 0 in any router passed to leak_check_note_moved(). */
#define REST_COUNTERS 512u
struct counters_moved {
	uint32_t n; /* valid names and marks */
	const char *group[REST_COUNTERS], *name[REST_COUNTERS];
	bool seen[REST_COUNTERS];
};
void leak_check_note_moved(struct counters_moved *seen, const struct router *rt);

#endif
