/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_H
#define ROUTER_H

/**
 * @file
 * The router's end of KV_EVENTS, on a thread of its own: it adds up the names of blocks, and
 * acknowledges. Answers of a burst leave together, as the router's do.
 */

#include "kvr_udp.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct router {
	struct kvr_udp udp;
	pthread_t thread;
	bool sleeps; /* between datagrams; else it takes a CPU of its own */
	_Atomic bool stop;
	/* Of its thread; the others may read what has come. These order nothing. */
	_Atomic uint64_t blocks;
	_Atomic uint64_t lost; /* dumps and clearings: what happens when events were lost */
	/* Sums; read when the thread has ended. */
	uint64_t stored, removed;
};

/** A socket on loopback. @return 0 or -errno. */
int router_open(struct router *r);
/** Begin, with all counts at 0. */
void router_start(struct router *r);
void router_stop(struct router *r);
/** The address of its socket, as --router takes it. */
void router_address(struct router *r, char *text, size_t len);

#endif
