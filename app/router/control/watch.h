/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_WATCH_H
#define ROUTER_WATCH_H

/**
 * @file
 * A thread that observes the start: it logs a start of more than a second, and lets SIGTERM end it
 * even during a step that cannot be interrupted, such as that of the EAL.
 */

struct router;

/** Start the thread. Main thread. */
void watch_start(struct router *rt);

/** Name the step that begins; NULL: the start is complete, and the thread ends. */
void watch_stage(const char *name);

#endif
