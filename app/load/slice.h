/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOAD_SLICE_H
#define LOAD_SLICE_H

/** @file Results by the part of the schedule in which requests were due, for --slice. Load lcore
 * only. */

#include "load.h"

/** The part of the schedule in which a request was due; the last one includes all later requests.
 * Only with l->m->slices. */
static inline struct load_slice *load_slice(const struct load *l, const struct load_slot *s)
{
	const uint64_t n =
		s->intended > l->start ? (s->intended - l->start) / l->m->slice_cycles : 0;

	return &l->m->slices[RTE_MIN(n, (uint64_t)LOAD_SLICES - 1)];
}

#endif
