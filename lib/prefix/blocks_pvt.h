/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BLOCKS_PVT_H
#define BLOCKS_PVT_H

/**
 * @file
 * Adding and removing the blocks of a run: its chunks, and one index entry per block. Thread:
 * writer.
 */

#include "run_pvt.h"

/**
 * Append up to @p n SHs that are new to the table. Stops before the first SH that is already in the
 * table. Does not publish the new length.
 * @return the new length.
 */
uint32_t kvr_prefix__blocks_add(struct kvr_prefix *table, uint32_t meta, const void *sh,
				uint32_t n);

/**
 * Remove blocks @p from .. @p len - 1 from index and chunks. The caller updates the length. If @p
 * stays, readers can still find this header, and its list of chunks is shortened too.
 */
void kvr_prefix__blocks_drop(struct kvr_prefix *table, struct pfx_hdr *hdr, uint32_t from,
			     uint32_t len, bool stays);

#endif
