/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ONE_PVT_H
#define ONE_PVT_H

/** @file Events of one block at the end of a run, whose rank is not being cleared. Writer. */

#include "ahead_pvt.h"

/* The block is stored, the last one removed: true. False: not that plain, and nothing changed.
 * `c` is what pfx_fetch_index() has made of the event. */
bool kvr_prefix__one_more(struct kvr_prefix *t, const struct kvr_prefix_event *ev,
			  const struct pfx_chain *c);
bool kvr_prefix__one_less(struct kvr_prefix *t, const struct kvr_prefix_event *ev,
			  const struct pfx_chain *c);

#endif
