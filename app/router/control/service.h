/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_SERVICE_H
#define ROUTER_SERVICE_H

/**
 * @file
 * What a service manager is told (sd_notify(3)): datagrams to $NOTIFY_SOCKET, nothing when there is
 * none. The watchdog is fed by the control thread, and only when since the last time every packet
 * lcore has come to the end of a turn: an lcore that hangs ends in a restart, not in silence.
 * Control thread.
 */

#include <stdbool.h>
#include <stdint.h>

struct router;

/** $NOTIFY_SOCKET and $WATCHDOG_USEC of this process. */
struct service {
	int fd;		    /* -1: nobody to tell */
	uint64_t period_ns; /* between two looks; 0: no watchdog */
	uint64_t next_ns;   /* the next look */
	uint64_t token;	    /* of rt->qsbr, when `asked` */
	bool asked;	    /* the lcores are being waited for */
};

/** Read the environment. A socket that cannot be reached is as none. */
void service_open(struct service *s);

/** Say it: "READY=1", "STOPPING=1", several lines. Nothing is waited for. */
void service_say(const struct service *s, const char *what);

/** Feed the watchdog when it is time and the lcores turn; a few ns else. @p now_ns any clock. */
void service_turn(struct service *s, struct router *rt, uint64_t now_ns);

void service_close(struct service *s);

#endif
