/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_SOURCE_H
#define GW_SOURCE_H

/**
 * @file
 * What one address may take of a thread: connections at once, requests a second, and bytes that
 * wait. An address is one of IPv4, or a network of 64 bits of IPv6, which its owner fills as he
 * likes.
 *
 * Bytes are shared by what is left of them: an address may have so many times as much as is free.
 * Alone, and with 3, it has three quarters; k of them have 3/(3k+1) each, and a newcomer finds
 * 1/(3k+1). Nothing has to be known of how many there are, and nothing is reserved for nobody.
 *
 * A hash table of all addresses that have a connection, by a seed that is new at every start;
 * those without, of which nothing waits, are kept for their rate, 4,096 of them, the last to leave
 * first in a list. Its thread alone reads and writes it. Budget: one hash and a walk of one chain
 * for a connection, a few additions for a request.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/** What bytes wait for. */
enum gw_room {
	GW_ROOM_CALLS,	/**< requests and answers: --total-mb */
	GW_ROOM_BODIES, /**< large bodies that come in: as much again */
	GW_ROOMS
};

/** How many times what is free an address may have, with a new request; and with what has begun
 * and grows, which is not cut off because others came. */
#define GW_ROOM_NEW   3u
#define GW_ROOM_GROWS 15u

struct gw_sources;
struct gw_source;

/**
 * @param connections of one address at once, not 0
 * @param rate requests a second of one address, as many at once; 0: any
 * @param seed random
 * @return NULL: out of memory.
 */
struct gw_sources *gw_sources_create(uint32_t connections, uint32_t rate, uint64_t seed);
void gw_sources_destroy(struct gw_sources *s);

/**
 * A connection comes. Others than AF_INET and AF_INET6 are one address.
 * @return its address until gw_source_close(); NULL with EBUSY (it has its share) or ENOMEM.
 */
struct gw_source *gw_source_open(struct gw_sources *s, const struct sockaddr *from);
void gw_source_close(struct gw_sources *s, struct gw_source *src);

/** A name of the address, the same in every thread and at every time. */
uint64_t gw_source_name(const struct gw_source *src);

/** A request comes. @return 0, or seconds to wait, 1 or more: it has to be refused. */
uint32_t gw_source_ask(struct gw_sources *s, struct gw_source *src, uint64_t now_ms);

/**
 * @p bytes more wait for it, or, below 0, less. What waits may do so longer than the address has a
 * connection: @p src lives until all of it is given back.
 */
void gw_source_hold(struct gw_sources *s, struct gw_source *src, enum gw_room room, int64_t bytes);

/** Bytes that wait, of @p src or, NULL, of all. */
uint64_t gw_source_held(const struct gw_sources *s, const struct gw_source *src, enum gw_room room);

/** With @p bytes more, has it no more than @p times what is left of @p most for all? */
bool gw_source_fits(const struct gw_sources *s, const struct gw_source *src, enum gw_room room,
		    uint64_t bytes, uint64_t most, uint32_t times);

#endif
