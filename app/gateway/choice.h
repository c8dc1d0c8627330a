/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_CHOICE_H
#define GW_CHOICE_H

/**
 * @file
 * Answers that are no engine's: where a booked request is to go, and what every rank would have to
 * do.
 */

#include "call.h"

/** The booking @p name of a call of /pick, and the endpoint, in header and body. */
void gw_answer_pick(struct gw_call *c, uint64_t name);

/** Loads and overlap of all ranks. */
void gw_answer_loads(struct gw_call *c, const struct kvr_client_loads *loads);

#endif
