/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOAD_TRACK_H
#define LOAD_TRACK_H

/** @file --track: what the router says of a request in its last item. The load lcore. */

#include <stdint.h>

struct load;
struct load_slot;
struct kvr_wire_response;

/**
 * @p item (intact, @p room bytes with all behind it) has come for @p s. When it is the last one and
 * new, its trailer is measured and compared with the answer. Before load_client_item().
 */
void load_track(struct load *l, const struct load_slot *s, const struct kvr_wire_response *item,
		uint32_t room);

#endif
