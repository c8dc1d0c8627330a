/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef MEMIF_GUARD_H
#define MEMIF_GUARD_H

/**
 * @file
 * What net_memif of DPDK 22.11 lacks, put under it: see memif_guard.c. A program with a memif port
 * links it (dep_memif_guard) and says when its packet lcores are out of the driver.
 */

#include <stdint.h>

struct memif_guard {
	/** Returns when every burst call that was running has ended. EAL's interrupt thread. */
	void (*wait)(void *arg);
	void *arg;
	/** Most queue pairs of a memif port: a peer brings at most a ring each way for each, and at
	 * least one each way. */
	uint32_t queues;
	/** A peer of the server at @p socket is about to be connected with so many rings; the
	 * driver does so when `wait` has returned. EAL's interrupt thread; may be NULL. */
	void (*rings)(const char *socket, uint32_t id, uint32_t to_server, uint32_t from_server);
	/** One line, without its end, about a peer that was refused; may be NULL. */
	void (*say)(const char *line);
};

/** From now on for @p g, which stays the caller's; NULL: nobody polls. Main thread. */
void memif_guard(const struct memif_guard *g);

#endif
