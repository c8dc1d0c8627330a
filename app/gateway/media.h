/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_MEDIA_H
#define GW_MEDIA_H

/**
 * @file
 * mm_routing_info.block_mm_infos of a PreprocessedRequest: which pictures and sounds lie in which
 * block of the prompt. Their hashes are part of the blocks', as an engine's events have them. Pure,
 * any thread.
 */

#include "kvr_client_hints.h"
#include "kvr_json.h"

/**
 * Read a list with an element for every block: null, or
 * {"mm_objects": [{"mm_hash": u64, ...}, ...]}. No list at all and null are an empty one.
 * @param mm NULL: only look whether it is right. Else *mm is what to free(): the blocks that have
 * any, rising, their hashes behind them; NULL if none has.
 * @param err one line when a type is wrong
 * @return how many blocks have any; -EINVAL wrong types, or more than 64 objects in a block;
 * -ENOMEM.
 */
int gw_media_read(const struct kvr_json_value *infos, struct kvr_client_mm **mm, char *err,
		  size_t errlen);

#endif
