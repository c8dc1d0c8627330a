/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_H
#define ROUTER_H

/**
 * @file
 * A router stub for KV_EVENTS on its own thread. It sums block hashes and acknowledges events. The
 * answers of a burst leave together, as in the router.
 */

#include "kvr_udp.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct router {
	struct kvr_udp udp;
	pthread_t thread;
	bool sleeps; /* sleep between datagrams instead of polling */
	_Atomic bool stop;
	/* Written by the stub's thread, read by others. They order no other data. */
	_Atomic uint64_t blocks;
	_Atomic uint64_t lost; /* dumps and clearings, which follow the loss of events */
	/* Sums of hashes; read them after router_stop(). */
	uint64_t stored, removed;
};

/** Open a socket on loopback. @return 0 or -errno. */
int router_open(struct router *r);
/** Start the thread with all counts at 0. */
void router_start(struct router *r);
void router_stop(struct router *r);
/** Write the address of the socket in the form of --router. */
void router_address(struct router *r, char *text, size_t len);

#endif
