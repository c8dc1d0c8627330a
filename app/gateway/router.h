/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_ROUTER_H
#define GW_ROUTER_H

/**
 * @file
 * The routers of one thread: a lib/client each, whose socket lies in the thread's event loop. A
 * router is asked for its pools once a second; it is up as long as it answers. New requests go to
 * the first one that is up. Each thread says when a router is there, and when it is lost; the first
 * one says that a router is not there.
 */

#include "gateway.h"
#include "kvr_client.h"
#include "kvr_outage.h"

struct gw_router {
	struct gw_thread *t;
	const char *name;
	struct kvr_client *client;
	h2o_socket_t *sock;
	uint64_t ask_ms; /* when to ask again; 0: a question is under way */
	uint64_t frames; /* received when the last question had ended */
	bool up;
	uint16_t refusal;	   /* code of the last question's answer, or 0 */
	struct kvr_outage silence; /* thread 0 */
	uint32_t lost, again;	   /* requests that another life of it has lost, since said_ms, and
				    * those of them that are sent once more */
	uint64_t said_ms;
};

/** What a model's name leads to. */
struct gw_model {
	const char *pool; /* valid until the router is asked again: use it at once */
	const char *lora; /* adapter, or NULL */
	uint32_t block_size;
	bool eagle;
};

/**
 * Make the clients; nothing is sent before the first turn.
 * @return 0, or -errno with one line in @p err.
 */
int gw_routers_start(struct gw_thread *t, char *err, size_t errlen);

/** End every request (their callbacks come), free everything. */
void gw_routers_stop(struct gw_thread *t);

/** Send and run timers; what is received comes from inside the loop. @return milliseconds until it
 * must be called again, at most @p most. */
int32_t gw_routers_turn(struct gw_thread *t, int32_t most);

/** Whether that sleep should end on time: see kvr_client_timeout_strict(). */
bool gw_routers_strict(const struct gw_thread *t);

/** A request has ended there, and is sent @p again or not: what a new life of the router has lost
 * is counted for the log. @return @p again. */
bool gw_router_ended(struct gw_router *r, const struct kvr_client_end *e, bool again);

/** First router that is up and not in @p tried (bits), or NULL. */
struct gw_router *gw_router_pick(struct gw_thread *t, uint32_t tried);

/** Its bit. */
uint32_t gw_router_bit(const struct gw_router *r);

/** Find a model at a router; "" is the only one there is. @return false: not served here. */
bool gw_router_model(const struct gw_router *r, const char *name, struct gw_model *out);

#endif
