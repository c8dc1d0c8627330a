/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_SOURCE_H
#define GW_SOURCE_H

/**
 * @file
 * What one address may take of a thread: connections at once, and requests a second. An address is
 * one of IPv4, or a network of 64 bits of IPv6, which its owner fills as he likes.
 *
 * A hash table of all addresses that have a connection, by a seed that is new at every start;
 * those without are kept for their rate, 4,096 of them, the last to leave first in a list. Its
 * thread alone reads and writes it. Budget: one hash and a walk of one chain for a connection, a
 * few additions for a request.
 */

#include <stdint.h>
#include <sys/socket.h>

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

/** A request comes. @return 0, or seconds to wait, 1 or more: it has to be refused. */
uint32_t gw_source_ask(struct gw_sources *s, struct gw_source *src, uint64_t now_ms);

#endif
