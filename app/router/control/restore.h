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

/** Read @p path and prepare it for rt. Before packet lcores run. An unusable file is logged and
 * changes nothing. @return 0; an error of kvr_snap_load(), -ENOMEM. */
int restore_read(struct router *rt, const char *path, const struct kvr_snap_shape *shape);

/** The data for @p worker, which has just registered, or NULL; sets worker->warm. Control. */
struct restore_worker *restore_take(struct router *rt, struct kvr_worker *worker);

/** Drop the rest; accepts NULL. Control, or the stop. */
void restore_free(struct restore *restore);

#endif
