/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SINGLE_BLOCK_PVT_H
#define SINGLE_BLOCK_PVT_H

/**
 * @file
 * Fast path of events of one block at the end of a run, for a rank that is not being cleared.
 * Thread: writer.
 */

#include "prefetch_pvt.h"

/*
 * Store the block, or remove it as the last one of its run. @return false if the event needs the
 * general path; nothing has changed then. `chain` was filled by pfx_fetch_index() for the event.
 */
bool kvr_prefix__append_block(struct kvr_prefix *table, const struct kvr_prefix_event *ev,
			      const struct pfx_chain *chain);
bool kvr_prefix__remove_last(struct kvr_prefix *table, const struct kvr_prefix_event *ev,
			     const struct pfx_chain *chain);

#endif
