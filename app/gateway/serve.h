/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_SERVE_H
#define GW_SERVE_H

/**
 * @file
 * One thread of the gateway: its event loop, listening socket, connections and paths.
 */

#include "gateway.h"

/**
 * Prepare a thread; opt, stats, row and stop are set.
 * @return 0, or -errno with one line in @p err. In both cases gw_serve_fini() releases everything.
 */
int gw_serve_init(struct gw_thread *thread, char *err, size_t errlen);

/** Run until *stop is 2, or *stop is 1 and no request is active. */
void gw_serve_run(struct gw_thread *thread);

void gw_serve_fini(struct gw_thread *thread);

#endif
