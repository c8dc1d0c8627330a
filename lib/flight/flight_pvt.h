/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FLIGHT_PVT_H
#define FLIGHT_PVT_H

#include "kvr_errno.h"
#include "kvr_flight.h"

struct rte_hash;

/** Owner: the scheduler lcore; other threads read n_used and n_lingering only. */
struct kvr_flight_table {
	uint32_t n;
	uint32_t pool;
	uint64_t seed;
	struct rte_hash *index;
	struct kvr_flight *slots;
	uint32_t *free; /* stack of slot numbers */
	uint32_t n_free;
	uint32_t ended_shift;		  /* 64 - log2 of the fingerprints */
	uint64_t *ended;		  /* fingerprints of recently ended requests, 0 = empty */
	struct kvr_flight_list lingering; /* by end_ns: all linger equally long */
	_Atomic uint32_t n_used;
	_Atomic uint32_t n_lingering;
};

#endif
