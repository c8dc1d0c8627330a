/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_PICK_LEASE_H
#define GW_PICK_LEASE_H

/**
 * @file
 * Endpoint-picker mode: requests that callers send to engines themselves. POST /pick books a
 * request and answers with its destination; POST /pick/ID/first_token, /progress and /end report
 * its progress. A booking that is not renewed within its lease is released, because its caller is
 * dead.
 *
 * A booking belongs to the thread whose client of the router created it, but reports arrive over
 * any connection, and thus in any thread. One table for all threads, behind one lock, holds the
 * reports of each booking that were not forwarded; the owner is woken through its pipe. A router
 * that receives nothing from the gateway for some seconds releases its bookings: the lease of a
 * dead gateway.
 *
 * Writers: the table any thread, with the lock held for less than a microsecond; the state of a
 * booking at the router only its owner.
 */

#include "call.h"

struct gw_leases;

/** Progress of a booking. */
struct gw_lease_report {
	bool first, last, failed;
	uint32_t generated_tokens, cached_tokens;
};

/** Create a table for @p n threads. @return NULL: out of memory. */
struct gw_leases *gw_leases_create(uint32_t n);
void gw_leases_destroy(struct gw_leases *leases);

/** Return true if another booking is allowed: bookings last minutes and leave half of a thread's
 * slots to requests. For the own thread. */
bool gw_leases_full(const struct gw_thread *thread);

/** A thread joins; its loop is running. @return 0 or -errno. */
int gw_leases_join(struct gw_thread *thread);
void gw_leases_leave(struct gw_thread *thread);

/**
 * The router booked: the call's request becomes a booking of the thread; its end is passed to
 * gw_lease_ended(). @return its name, 0: out of memory.
 */
uint64_t gw_lease_begin(struct gw_call *call, uint32_t lease_ms);

/** The router ended it. Owner thread. */
void gw_lease_ended(struct gw_lease *l, const struct kvr_client_end *e);

/** Handle a path below /pick/. */
void gw_lease_request(struct gw_thread *thread, h2o_req_t *req);

/** Release bookings that were not renewed. Owner thread; checks every 250 ms. */
void gw_leases_turn(struct gw_thread *thread);

#endif
