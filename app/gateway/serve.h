/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_SERVE_H
#define GW_SERVE_H

/**
 * @file
 * One thread of the gateway: its event loop, listening socket, connections, paths.
 */

#include "gateway.h"

/**
 * Prepare a thread; opt, stats, row and stop are set.
 * @return 0, or -errno with one line in @p err. gw_serve_fini() releases what there is either way.
 */
int gw_serve_init(struct gw_thread *t, char *err, size_t errlen);

/** Run until *stop is 2, or it is 1 and nothing is under way. */
void gw_serve_run(struct gw_thread *t);

void gw_serve_fini(struct gw_thread *t);

#endif
