/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_BODY_BUDGET_H
#define GW_BODY_BUDGET_H

/**
 * @file
 * Memory limit of requests and answers (--total-mb), shared by client addresses (source.h): an
 * address that uses most of it is rejected before others.
 */

#include "call.h"
#include "source.h"

/**
 * Account for a change of the memory that a call holds.
 * @param times GW_BUDGET_NEW or GW_BUDGET_GROWS. The only call of its address needs free memory
 * only.
 * @return GW_FAULTS: accepted; GW_FULL: no memory for any address, GW_SOURCE_SHARE: not for this
 * address. Counted; the caller ends the call.
 */
enum gw_fault gw_budget_take(struct gw_call *c, uint32_t times);

/** The call ends: it holds no memory. */
void gw_budget_leave(struct gw_call *call);

#endif
