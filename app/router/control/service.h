/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_SERVICE_H
#define ROUTER_SERVICE_H

/**
 * @file
 * Notifications to a service manager (sd_notify(3)): datagrams to $NOTIFY_SOCKET, if set. The
 * control thread feeds the watchdog only if every packet lcore has ended a turn since the last
 * time, so that a hanging lcore leads to a restart. Control thread.
 */

#include <stdbool.h>
#include <stdint.h>

struct router;

/** $NOTIFY_SOCKET and $WATCHDOG_USEC of this process. */
struct service {
	int fd;		    /* -1: no socket */
	uint64_t period_ns; /* interval of checks; 0: no watchdog */
	uint64_t next_ns;   /* the next look */
	uint64_t token;	    /* QSBR token, if `asked` */
	bool asked;	    /* a grace period is being awaited */
};

/** Read the environment. An unreachable socket counts as unset. */
void service_open(struct service *s);

/** Send a state, such as "READY=1"; several lines are allowed. Does not block. */
void service_notify(const struct service *s, const char *what);

/** Feed the watchdog if it is due and the lcores turn; otherwise takes a few ns. @p now_ns of any
 * clock. */
void service_turn(struct service *s, struct router *rt, uint64_t now_ns);

void service_close(struct service *s);

#endif
