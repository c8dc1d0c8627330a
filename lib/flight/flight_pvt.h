/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FLIGHT_PVT_H
#define FLIGHT_PVT_H

#include "kvr_errno.h"
#include "kvr_flight.h"

/** A request that ended. */
struct ended {
	uint64_t name; /* fingerprint; 0: empty */
	uint64_t how;  /* detail[0]:40 | retry:8 | code:16 */
};

/**
 * A cell of the index of named slots: an array of twice the number of slots, searched from the home
 * of the name up to an empty cell. A removal moves later cells up, so nothing is marked as deleted.
 * The home is a seeded hash of the name. At most half full, a search takes two cells on average,
 * usually in one cache line.
 */
struct cell {
	uint32_t name; /* low half of the hash of the name: home cell, and tag */
	uint32_t slot; /* slot + 1; 0: empty */
};

/** Owner: the scheduler lcore; other threads read only `st`. */
struct kvr_flight_table {
	uint32_t n;
	uint32_t pool;
	uint64_t seed[2];
	struct cell *index;
	struct kvr_flight *slots;
	uint32_t *free; /* stack of slot numbers */
	uint32_t n_free;
	uint32_t mask;	      /* cells of the index - 1 */
	uint32_t ended_shift; /* 64 - log2(fingerprints) */
	struct ended *ended;  /* recently ended requests */
	struct kvr_flight_list
		lingering; /* ordered by end_ns, as all requests linger equally long */
	struct kvr_flight_stats st;
};

#endif
