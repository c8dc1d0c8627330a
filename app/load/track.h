/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOAD_TRACK_H
#define LOAD_TRACK_H

/** @file --track: the router's report about a request in its last item. Load lcore. */

#include <stdint.h>

struct load;
struct load_slot;
struct kvr_wire_response;

/**
 * Handle item @p item of @p s, intact and @p room bytes long with its trailer. If it is the last
 * one and new, measure its trailer and compare it with the answer. Before load_client_item().
 */
void load_track(struct load *l, const struct load_slot *s, const struct kvr_wire_response *item,
		uint32_t room);

#endif
