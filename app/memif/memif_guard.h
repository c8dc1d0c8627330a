/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef MEMIF_GUARD_H
#define MEMIF_GUARD_H

/**
 * @file
 * What net_memif of DPDK 22.11 lacks, put under it: see memif_guard.c. A program with a memif port
 * links it (dep_memif_guard) and says when its packet lcores are out of the driver.
 */

#include <stddef.h>
#include <stdint.h>

/** Where a ring to the server lies, and the file its peer writes to when it has put frames there.
 */
struct memif_guard_ring {
	int region; /* file */
	uint32_t offset;
	int event;
};

struct memif_guard {
	/** Returns when every burst call that was running has ended. EAL's interrupt thread. */
	void (*wait)(void *arg);
	void *arg;
	/** Most queue pairs of a memif port: a peer brings at most a ring each way for each, and at
	 * least one each way. */
	uint32_t queues;
	/** A peer of the server at @p socket is about to be connected with so many rings: nobody
	 * may call the driver for it from now on. The driver connects when `wait` has returned.
	 * EAL's interrupt thread; may be NULL. */
	void (*rings)(const char *socket, uint32_t id, uint32_t to_server, uint32_t from_server);
	/** The driver has done so, or has given up: it may be called again. EAL's interrupt thread;
	 * may be NULL when `rings` is. */
	void (*connected)(const char *socket, uint32_t id);
	/** Ring of rx queue @p queue of a peer that is about to be connected, before `rings` says
	 * so; its files may be copied now. @p at NULL: that peer has gone. EAL's interrupt thread;
	 * may be NULL. */
	void (*ring)(const char *socket, uint32_t id, uint32_t queue,
		     const struct memif_guard_ring *at);
	/** One line, without its end, about a peer that was refused; may be NULL. */
	void (*say)(const char *line);
};

/** From now on for @p g, which stays the caller's; NULL: nobody polls. Main thread. */
void memif_guard(const struct memif_guard *g);

/**
 * Check that the driver calls the functions of memif_guard.c. Call it before a memif port is
 * created.
 * @return 0, also when built with a DPDK other than 22.11, for which the guard is left out;
 * -ENOTSUP with one line in @p err: cause and remedy.
 */
int memif_guard_check(char *err, size_t errlen);

#endif
