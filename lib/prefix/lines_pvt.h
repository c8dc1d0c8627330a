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

static inline struct pfx_lines *pfx_lines_now(struct kvr_prefix *t)
{
	return &t->lines[t->line_turn];
}

/* An event begins; of the one behind it the blocks sh[0] to sh[n - 1] come or go. */
static inline void pfx_lines_turn(struct kvr_prefix *t, const void *sh, uint32_t n)
{
	struct pfx_lines *l = &t->lines[t->line_turn];

	t->line_turn ^= 1;
	l->sh = sh;
	l->n = RTE_MIN(n, PFX_AHEAD);
	l->done = 0;
}

/* Out of a burst: no event is under way. */
static inline void pfx_lines_end(struct kvr_prefix *t)
{
	pfx_lines_turn(t, NULL, 0);
	pfx_lines_turn(t, NULL, 0);
}

/* One more of the next event. */
static inline void pfx_lines_more(struct kvr_prefix *t)
{
	struct pfx_lines *l = &t->lines[t->line_turn ^ 1];

	if (l->done < l->n) {
		l->mix[l->done] = pfx_mix(t, pfx_ld64(l->sh, l->done));
		pfx_index_prefetch(&t->index, l->mix[l->done++]);
	}
}

/* How many of sh[0], sh[1].. are on their way since the event before; gives their hashes. */
static inline uint32_t pfx_lines_took(struct kvr_prefix *t, const void *sh, const uint64_t **mix)
{
	const struct pfx_lines *l = pfx_lines_now(t);
	const uintptr_t off = (uintptr_t)sh - (uintptr_t)l->sh;

	if (off >= (uintptr_t)l->done * 8 || off % 8 != 0)
		return 0;
	*mix = &l->mix[off / 8];
	return l->done - (uint32_t)(off / 8);
}

/* The same of an event that names first what `sh` is. */
static inline uint32_t pfx_lines_from(struct kvr_prefix *t, uint64_t sh)
{
	const struct pfx_lines *l = pfx_lines_now(t);

	return l->done > 0 && pfx_ld64(l->sh, 0) == sh ? l->done : 0;
}

#endif
