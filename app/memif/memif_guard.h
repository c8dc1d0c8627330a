/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef MEMIF_GUARD_H
#define MEMIF_GUARD_H

/**
 * @file
 * Protection of net_memif (DPDK 22.11) from its peers and from its own races: see memif_guard.c. A
 * program with a memif port links it (dep_memif_guard) and provides a way to wait for its packet
 * lcores.
 */

#include <stddef.h>
#include <stdint.h>

/**
 * Location of a ring to the server, and the file to which its peer writes after it has added
 * frames.
 */
struct memif_guard_ring {
	int region; /* file of the shared memory */
	uint32_t offset;
	int event;
};

struct memif_guard {
	/** Return when every burst call in progress has ended. EAL's interrupt thread. */
	void (*wait)(void *arg);
	void *arg;
	/**
	 * Maximum queue pairs of a memif port. A peer may connect at most one ring each way per
	 * pair, and at least one each way.
	 */
	uint32_t queues;
	/**
	 * A peer of the server at @p socket is about to be connected with these numbers of rings.
	 * No lcore may call the driver for this port until `connected`. The driver connects after
	 * `wait` has returned. EAL's interrupt thread; may be NULL.
	 */
	void (*rings)(const char *socket, uint32_t id, uint32_t to_server, uint32_t from_server);
	/**
	 * The driver has connected the peer or has given up: lcores may call it again. EAL's
	 * interrupt thread; may be NULL if `rings` is.
	 */
	void (*connected)(const char *socket, uint32_t id);
	/**
	 * Ring of rx queue @p queue of a peer that is about to be connected, called before `rings`.
	 * Its files may be duplicated during the call. @p at NULL: the peer is gone. EAL's
	 * interrupt thread; may be NULL.
	 */
	void (*ring)(const char *socket, uint32_t id, uint32_t queue,
		     const struct memif_guard_ring *at);
	/** One line without newline about a rejected peer; may be NULL. */
	void (*report)(const char *line);
};

/** Set the callbacks; @p g stays the caller's. NULL: no lcore polls. Main thread. */
void memif_guard_set(const struct memif_guard *g);

/**
 * Check that the driver calls the functions of memif_guard.c. Call it before a memif port is
 * created.
 * @return 0, also when built with a DPDK other than 22.11, for which the guard is left out;
 * -ENOTSUP with one line in @p err: cause and remedy.
 */
int memif_guard_check(char *err, size_t errlen);

#endif
