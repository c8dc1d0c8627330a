/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BLOCKS_PVT_H
#define BLOCKS_PVT_H

/** @file The blocks of a run come and go: its chunks, and an entry of the index for each. Writer.
 */

#include "run_pvt.h"

/**
 * Append up to n SHs that are new to the table; stops before one that is not. Publishes nothing.
 * @return the new length.
 */
uint32_t kvr_prefix__blocks_add(struct kvr_prefix *t, uint32_t meta, const void *sh, uint32_t n);

/**
 * Drop blocks from..len-1 from index and chunks; the length is the caller's. `stays`: readers go
 * on finding this header, so its list of chunks is shortened too.
 */
void kvr_prefix__blocks_drop(struct kvr_prefix *t, struct pfx_hdr *h, uint32_t from, uint32_t len,
			     bool stays);

#endif
