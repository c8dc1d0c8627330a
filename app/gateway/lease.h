/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_LEASE_H
#define GW_LEASE_H

/**
 * @file
 * Endpoint-picker mode: requests that a caller takes to the engine itself. POST /pick books one and
 * answers where to go; POST /pick/ID/first_token, /progress and /end say how it goes. A booking
 * that nobody speaks of for its lease is freed: its caller is dead.
 *
 * A booking belongs to the thread whose client of the router has made it; the calls about it come
 * over any connection, so to any thread. One table for all, behind one lock, holds for each booking
 * what has been said and not been passed on; the owner is woken through its pipe. A router that
 * does not hear from us for some seconds frees the booking too: that is the lease of a dead
 * gateway.
 *
 * Writers: the table any thread, under the lock, held for less than a microsecond; what a booking
 * has at the router its owner alone.
 */

#include "call.h"

struct gw_leases;

/** What is said of a booking. */
struct gw_said {
	bool first, last, failed;
	uint32_t generated_tokens, cached_tokens;
};

/** One table for @p n threads. @return NULL: out of memory. */
struct gw_leases *gw_leases_create(uint32_t n);
void gw_leases_destroy(struct gw_leases *l);

/** Bookings lie for minutes; they leave half of a thread's slots to requests. Its own thread. */
bool gw_leases_full(const struct gw_thread *t);

/** A thread takes its place; its loop runs. @return 0 or -errno. */
int gw_leases_join(struct gw_thread *t);
void gw_leases_leave(struct gw_thread *t);

/**
 * The router has booked: the call's request becomes a booking of the thread, whose end comes to
 * gw_lease_ended(). @return its name, 0: out of memory.
 */
uint64_t gw_lease_begin(struct gw_call *c, uint32_t lease_ms);

/** The router says it is over. Owner. */
void gw_lease_ended(struct gw_lease *l, const struct kvr_client_end *e);

/** A path below /pick/. */
void gw_lease_request(struct gw_thread *t, h2o_req_t *req);

/** Free what nobody has spoken of. Owner; looks once in 250 ms. */
void gw_leases_turn(struct gw_thread *t);

#endif
