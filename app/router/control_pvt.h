/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_CONTROL_PVT_H
#define ROUTER_CONTROL_PVT_H

/**
 * @file
 * What the files of the control thread share: control.c (rounds, calls, views), workers_ctl.c (the
 * life of workers on all lcores), hello_ctl.c (frames). All under the lock of lib/ctl.
 */

#include "control.h"
#include "router.h"

/* ---- control.c ---- */

/** Make the registry of now known to the packet lcores. @return 0 or -ENOMEM. */
int publish_view(struct router *rt);

/* ---- workers_ctl.c ---- */

/** Change and log the state of a worker, when that is allowed. */
void worker_set_state(struct router *rt, struct kvr_worker *w, enum kvr_wire_worker_state to);

/** @p w is filled in: give it to its pool. @return KVR_OK, or why not: it is gone then. */
enum kvr_wire_code worker_join(struct router *rt, struct kvr_worker *w,
			       const struct kvr_hints *hints);

/** Nothing of @p w stays; it must not be used again. */
void worker_leave(struct router *rt, struct kvr_worker *w);

/** Its heartbeat has come: it may be chosen again. */
void worker_heard(struct router *rt, struct kvr_worker *w);

/** The prefix of taints that are made of places: + "key=value", section 9.4. */
#define TOPOLOGY_TAINT "dynamo.topology/"

/** What time does to workers: silence, drained ones. */
void workers_tick(struct router *rt);

/* ---- hello_says_ctl.c ---- */

struct refusal;

/**
 * Complete and log the refusal of a HELLO (a checked @p body): which field, its value, what is
 * needed. @p text is memory for it.
 */
void hello_says(struct router *rt, uint64_t worker, const uint8_t *body, struct refusal *why,
		char *text, size_t len);

/* ---- stop_ctl.c ---- */

/** Nobody new is let in, live requests have stop_ms to end, the rest is told. Takes the lock. */
void stop_in_order(struct router *rt);

/* ---- reload_ctl.c ---- */

/** SIGHUP: read the configuration again; what may change at run time does. Takes the lock. */
void reload(struct router *rt);

/* ---- hello_ctl.c ---- */

/** HELLO, HEARTBEAT, GOODBYE, CONNECT; takes the frame. */
void control_frame(struct router *rt, struct rte_mbuf *m);

#endif
