/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PREFIX_LINES_PVT_H
#define PREFIX_LINES_PVT_H

/*
 * The lines of the index that a run's blocks lie in, one a block and none near another: nearly all
 * that is missed where blocks come or go. They are fetched PFX_AHEAD blocks before they are used,
 * and those of the next event of a burst while the last blocks of the present one are handled: a
 * run of 32 blocks would otherwise wait for its first lines each time.
 *
 * What an event will need is guessed from its head; a wrong guess costs lines in vain. Writer only.
 */

#include "prefix_pvt.h"

/* An event begins; of the one behind it the blocks sh[0] to sh[n - 1] come or go. */
static inline void pfx_lines_next(struct kvr_prefix *t, const void *sh, uint32_t n)
{
	t->next_lines = (struct pfx_lines){.sh = sh, .n = RTE_MIN(n, PFX_AHEAD)};
}

/* Up to n more of the next event. */
static inline void pfx_lines_more(struct kvr_prefix *t, uint32_t n)
{
	struct pfx_lines *l = &t->next_lines;

	for (; n > 0 && l->done < l->n; n--)
		pfx_index_prefetch(&t->index, pfx_mix(t, pfx_ld64(l->sh, l->done++)));
}

#endif
