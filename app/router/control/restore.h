/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_RESTORE_H
#define ROUTER_RESTORE_H

/**
 * @file
 * Read a snapshot and match its workers with those that register: state/restore.h has the data.
 */

#include "state/restore.h"

struct kvr_worker;
struct router;

/**
 * Read @p path for rt and make it ready. Before packet lcores run. A file that cannot be used says
 * so in the log and changes nothing. @return 0; or what kvr_snap_load() says, -ENOMEM.
 */
int restore_read(struct router *rt, const char *path, const struct kvr_snap_shape *shape);

/** What there is for @p w, which has just come, or NULL; sets w->warm. Control. */
struct restore_worker *restore_take(struct router *rt, struct kvr_worker *w);

/** Forget what nobody will come for; NULL is fine. Control, or the end. */
void restore_free(struct restore *r);

#endif
