/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_STATUS_ENDPOINTS_H
#define GW_STATUS_ENDPOINTS_H

/**
 * @file
 * Endpoints answered by the gateway itself: models, health, readiness, metrics.
 */

#include "gateway.h"

/** @return false: unknown path. */
bool gw_page(struct gw_thread *thread, h2o_req_t *req);

#endif
