/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FLIGHT_PVT_H
#define FLIGHT_PVT_H

#include "kvr_errno.h"
#include "kvr_flight.h"

/** A request that ended. */
struct ended {
	uint64_t name; /* fingerprint, 0 = empty */
	uint64_t how;  /* detail[0]:40 | retry:8 | code:16 */
};

/**
 * A named slot, in the index: an array twice as long as there are slots, searched from the place
 * that the name says until an empty one. Who leaves has those behind him moved up, so nothing is
 * ever marked as deleted. A name says its place under a seed: half empty, a search is two cells in
 * the mean, mostly of one line.
 */
struct cell {
	uint32_t name; /* low half of the hash of the name: its place, and more to tell it by */
	uint32_t slot; /* + 1; 0: empty */
};

/** Owner: the scheduler lcore; other threads read `st` only. */
struct kvr_flight_table {
	uint32_t n;
	uint32_t pool;
	uint64_t seed[2];
	struct cell *index;
	struct kvr_flight *slots;
	uint32_t *free; /* stack of slot numbers */
	uint32_t n_free;
	uint32_t mask;			  /* cells of the index - 1 */
	uint32_t ended_shift;		  /* 64 - log2 of the fingerprints */
	struct ended *ended;		  /* recently ended requests */
	struct kvr_flight_list lingering; /* by end_ns: all linger equally long */
	struct kvr_flight_stats st;
};

#endif
