/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_ROUTER_H
#define GW_ROUTER_H

/**
 * @file
 * Routers of one thread: one lib/client each, whose socket is in the thread's event loop. A router
 * is asked for its pools once a second, and is up while it answers. New requests go to the first
 * router that is up. Each thread logs when a router answers and when it is lost; only the first
 * thread logs that a router does not answer at the start.
 */

#include "gateway.h"
#include "kvr_client.h"
#include "kvr_outage.h"

struct gw_router {
	struct gw_thread *thread;
	const char *name;
	struct kvr_client *client;
	h2o_socket_t *sock;
	uint64_t ask_ms; /* next question; 0: one is unanswered */
	uint64_t frames; /* frames received when the last question ended */
	bool up;
	uint16_t refusal;	   /* code of the last answer, or 0 */
	struct kvr_outage silence; /* for thread 0 */
	uint32_t lost, again; /* requests lost by a new epoch of the router since logged_ms, and
				 those of them that are sent again */
	uint64_t logged_ms;
};

/** Meaning of a model's name. */
struct gw_model {
	const char *pool; /* valid until the next answer of the router: use it at once */
	const char *lora; /* adapter, or NULL */
	uint32_t block_size;
	bool eagle;
};

/**
 * Create the clients; the first turn sends.
 * @return 0, or -errno with one line in @p err.
 */
int gw_routers_start(struct gw_thread *thread, char *err, size_t errlen);

/** End every request (with callbacks), and free everything. */
void gw_routers_stop(struct gw_thread *thread);

/** Send and run timers; receiving happens inside the loop. @return milliseconds until the next
 * call, at most @p most. */
int32_t gw_routers_turn(struct gw_thread *thread, int32_t most);

/** Return true if that sleep should end on time: see kvr_client_timeout_strict(). */
bool gw_routers_strict(const struct gw_thread *thread);

/** A request of the router has ended, and is retried if @p again: counts requests lost by a
 * restart, for the log. @return @p again. */
bool gw_router_ended(struct gw_router *router, const struct kvr_client_end *e, bool again);

/** First router that is up and not in @p tried (bits), or NULL. */
struct gw_router *gw_router_pick(struct gw_thread *thread, uint32_t tried);

/** Bit of a router. */
uint32_t gw_router_bit(const struct gw_router *router);

/** Find a model at a router; "" is the only model. @return false: not served. */
bool gw_router_model(const struct gw_router *router, const char *name, struct gw_model *out);

#endif
