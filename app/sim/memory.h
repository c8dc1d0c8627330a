/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SIM_MEMORY_H
#define SIM_MEMORY_H

/**
 * @file
 * What routers take of the process's memory, and its bounds. The thread that runs the world.
 */

#include <stdbool.h>
#include <stdint.h>

struct sim;

/** Of the process's memory, by one router. */
struct memory {
	int64_t bytes, most, start; /* now, the most since it had begun, when it had begun */
	int64_t beginning;	    /* the most while it began */
	uint64_t file;		    /* of the snapshot it began with */
	uint32_t in_turns;	    /* taken or given back by packet lcores */
	bool turn;		    /* a packet lcore runs */
};

/** From now on it is this one's. @return whose it was; NULL: nobody's. */
struct memory *memory_of(struct memory *m);
/** Its owner has begun, with a snapshot of so many bytes. */
void memory_begun(struct memory *m, uint64_t file);
/** Bytes of the EAL's heaps. */
uint64_t memory_eal(void);
/** Within its bounds, between two steps. */
void memory_check(struct sim *s);
/** Router @p i has ended. */
void memory_given_back(struct sim *s, uint32_t i);

#endif
