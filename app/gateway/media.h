/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_MEDIA_H
#define GW_MEDIA_H

/**
 * @file
 * mm_routing_info.block_mm_infos of a PreprocessedRequest: images and sounds in the blocks of the
 * prompt. Their hashes are part of the block hashes, as in engine events. Pure, any thread.
 */

#include "kvr_client_hints.h"
#include "kvr_json.h"

/**
 * Read a list with an element for every block: null, or {"mm_objects": [{"mm_hash": u64, ...},
 * ...]}. A missing list and null are empty lists.
 * @param mm NULL: only validate. Otherwise *mm is set to memory for free(): the blocks with
 * objects, ascending, followed by their hashes; NULL if there are none.
 * @param err one line if a type is wrong
 * @return the number of blocks with objects; -EINVAL: wrong types, or more than 64 objects in a
 * block; -ENOMEM.
 */
int gw_media_read(const struct kvr_json_value *infos, struct kvr_client_mm **mm, char *err,
		  size_t errlen);

#endif
