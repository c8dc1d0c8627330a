/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_PICK_REPLY_H
#define GW_PICK_REPLY_H

/**
 * @file
 * Answers without an engine: the destination of a booking, and the potential load of every rank.
 */

#include "call.h"

/** Answer /pick with booking @p name and the endpoint, in header and body. */
void gw_answer_pick(struct gw_call *call, uint64_t name);

/** Answer with load and overlap of all ranks. */
void gw_answer_loads(struct gw_call *call, const struct kvr_client_loads *loads);

#endif
