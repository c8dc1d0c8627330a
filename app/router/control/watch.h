/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_WATCH_H
#define ROUTER_WATCH_H

/**
 * @file
 * Somebody who looks at the start from outside: a start that takes more than a second says so, and
 * SIGTERM ends it although one of its steps (the EAL's, above all) cannot be interrupted.
 */

struct router;

/** Begin to look. Main thread. */
void watch_start(struct router *rt);

/** The step that begins now; NULL: the start is over, nobody looks any more. */
void watch_stage(const char *name);

#endif
