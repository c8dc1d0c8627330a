/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SIM_MEMORY_H
#define SIM_MEMORY_H

/**
 * @file
 * Memory of the process that routers allocate, and its limits. Thread: the one that runs the world.
 */

#include <stdbool.h>
#include <stdint.h>

struct sim;

/** Memory of one router. */
struct memory {
	int64_t bytes, most, start; /* now; maximum since the start completed; after the start */
	int64_t beginning;	    /* maximum during the start */
	uint64_t file;		    /* size of the snapshot at the start */
	uint32_t in_turns;	    /* calls by packet lcores */
	bool turn;		    /* a packet lcore is running */
};

/** Count calls for @p m from now on; NULL: count none. @return the previous owner. */
struct memory *memory_of(struct memory *m);
/** The start has completed, with a snapshot of @p file bytes. */
void memory_begun(struct memory *m, uint64_t file);
/** Bytes allocated in the EAL's heaps. */
uint64_t memory_eal(void);
/** Check the limits, between two steps. */
void memory_check(struct sim *s);
/** Router @p i has ended: check that it has freed everything. */
void memory_given_back(struct sim *s, uint32_t i);

#endif
