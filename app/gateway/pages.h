/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_PAGES_H
#define GW_PAGES_H

/**
 * @file
 * What the gateway answers by itself: models, health, readiness, metrics.
 */

#include "gateway.h"

/** @return false: there is no such page. */
bool gw_page(struct gw_thread *t, h2o_req_t *req);

#endif
