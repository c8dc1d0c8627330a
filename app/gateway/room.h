/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_ROOM_H
#define GW_ROOM_H

/**
 * @file
 * Memory of requests and answers that wait here (--total-mb), shared by addresses (source.h): who
 * fills it is refused before the others are.
 */

#include "call.h"
#include "source.h"

/**
 * What a call holds has changed.
 * @param times GW_ROOM_NEW, GW_ROOM_GROWS. The only call of its address needs no more than room.
 * @return GW_FAULTS: there is room; GW_FULL: not for anybody, GW_SOURCE_SHARE: not for its address.
 * Counted then; the caller ends it.
 */
enum gw_fault gw_room_take(struct gw_call *c, uint32_t times);

/** It ends: nothing waits any more. */
void gw_room_leave(struct gw_call *c);

#endif
