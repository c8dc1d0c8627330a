/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AHEAD_PVT_H
#define AHEAD_PVT_H

/** @file What an event will read is fetched ahead of it. Writer. */

#include "prefix_pvt.h"

/* The chain from the first known block of an event to the header of its run. */
struct pfx_chain {
	uint64_t mix;
	uint32_t slot;
};

#define PFX_LINKS 5u /* the last one is for long removals only */

/* Ask for what one link needs; the one before has had time to arrive. */
void kvr_prefix__fetch_link(const struct kvr_prefix *t, const struct kvr_prefix_event *e,
			    struct pfx_chain *c, uint32_t link);

#endif
