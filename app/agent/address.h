/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_ADDRESS_H
#define AGENT_ADDRESS_H

/**
 * @file
 * Addresses of this agent and its engine as published to others: for request bodies, and for
 * clients that contact the engine. Clients run on other machines, where 127.0.0.1 and 0.0.0.0 are
 * wrong. Such an address is replaced by the one that faces the router, or rejected. Any thread; no
 * state. Used at start only.
 */

#include <stddef.h>
#include <stdint.h>

enum agent_reach {
	AGENT_REACH_NAME,  /**< a name, resolved by the client */
	AGENT_REACH_ANY,   /**< wildcard: 0.0.0.0, :: */
	AGENT_REACH_SELF,  /**< loopback: this machine only */
	AGENT_REACH_LINK,  /**< link-local: requires an interface name */
	AGENT_REACH_GROUP, /**< multicast, broadcast */
	AGENT_REACH_HOST,  /**< a single host, reachable from outside */
};

enum agent_replace {
	AGENT_REPLACE_NONE, /**< the address was given for others */
	AGENT_REPLACE_ANY,  /**< the wildcard, because the agent listens on all addresses */
	AGENT_REPLACE_SELF, /**< also loopback, because the address was given for the agent */
};

/** Classify @p host: an address in numeric form without brackets, or a name. "localhost" is SELF.
 */
enum agent_reach agent_address_reach(const char *host);

/**
 * Split "HOST:PORT" or "[V6]:PORT".
 * @param size of @p host; @p port has 6 bytes.
 * @return 0; -EINVAL: another form, or PORT is not a number from 0 to 65535.
 */
int agent_address_split(const char *text, char *host, size_t size, char *port);

/**
 * Local address that reaches @p router ("host", "host:port", "[v6]:port", "v6"), in numeric form;
 * "": unknown name, or no route.
 */
void agent_address_facing(const char *router, char *out, size_t size);

/**
 * Address to publish for the local @p host and @p port.
 * @param facing result of agent_address_facing(); if that is loopback, everything runs on one
 * machine, and loopback is valid.
 * @param replace addresses that @p facing may replace.
 * @param out "HOST:PORT", @p size bytes
 * @return 0; -EADDRNOTAVAIL: others cannot reach the address, and no better one is known;
 * -ENAMETOOLONG.
 */
int agent_address_publish(const char *host, const char *port, const char *facing,
			  enum agent_replace replace, char *out, size_t size);

/**
 * Number of a worker without --worker: a hash of the four arguments, 1 to 2^48 - 1. Two of 10,000
 * workers share a number with probability 2e-7.
 * @param machine name of this machine
 * @param engine address of the engine as published
 */
uint64_t agent_address_number(const char *machine, const char *engine, const char *pool,
			      uint32_t first_rank);

#endif
