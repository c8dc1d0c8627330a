/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_SOURCE_H
#define GW_SOURCE_H

/**
 * @file
 * Limits of one client address in a thread: connections, requests per second, and waiting bytes. An
 * address is an IPv4 address, or an IPv6 network of 64 bits.
 *
 * Bytes are shared in proportion to the free part: an address may hold a fixed multiple of what is
 * free. With factor 3 a single address holds at most three quarters; k addresses hold 3/(3k+1)
 * each, and a new one finds 1/(3k+1). The number of addresses need not be known, and nothing is
 * reserved.
 *
 * A hash table of all addresses that have a connection, with a random seed per start. Addresses
 * without connections and waiting bytes are kept for their rate, at most 4,096, oldest first to go.
 * Only its thread reads and writes it. Cost: one hash and one chain per connection, a few additions
 * per request.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/** Kinds of waiting bytes. */
enum gw_room {
	GW_BUDGET_CALLS,  /**< requests and answers: --total-mb */
	GW_BUDGET_BODIES, /**< large bodies being received: the same limit again */
	GW_ROOMS
};

/** Multiple of the free part that an address may hold: for a new request, and for a growing one,
 * which is not cut off because others arrived. */
#define GW_BUDGET_NEW	3u
#define GW_BUDGET_GROWS 15u

struct gw_sources;
struct gw_source;

/**
 * @param connections per address, not 0
 * @param rate requests per second and burst per address; 0: no limit
 * @param seed random
 * @return NULL: out of memory.
 */
struct gw_sources *gw_sources_create(uint32_t connections, uint32_t rate, uint64_t seed);
void gw_sources_destroy(struct gw_sources *sources);

/**
 * Register a connection. Families other than AF_INET and AF_INET6 share one address.
 * @return its address until gw_source_close(); NULL with EBUSY (at its limit) or ENOMEM.
 */
struct gw_source *gw_source_open(struct gw_sources *sources, const struct sockaddr *from);
void gw_source_close(struct gw_sources *sources, struct gw_source *source);

/** A name of the address, equal in all threads and at all times. */
uint64_t gw_source_name(const struct gw_source *source);

/** Register a request. @return 0, or seconds to wait, at least 1: it must be rejected. */
uint32_t gw_source_ask(struct gw_sources *sources, struct gw_source *source, uint64_t now_ms);

/**
 * Add @p bytes, which may be negative, to its waiting bytes. These may outlive its connections: @p
 * src is valid until all are returned.
 */
void gw_source_hold(struct gw_sources *sources, struct gw_source *source, enum gw_room room,
		    int64_t bytes);

/** Waiting bytes of source or, NULL, of all addresses. */
uint64_t gw_source_held(const struct gw_sources *sources, const struct gw_source *source,
			enum gw_room room);

/** Return true if, with @p bytes more, it holds no more than @p times the free part of @p most. */
bool gw_source_fits(const struct gw_sources *sources, const struct gw_source *source,
		    enum gw_room room, uint64_t bytes, uint64_t most, uint32_t times);

#endif
