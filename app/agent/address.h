/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_ADDRESS_H
#define AGENT_ADDRESS_H

/**
 * @file
 * What others are told of where we are: the address for bodies of requests, and that of the
 * engine. Both go to clients on other machines, where 127.0.0.1 is somebody else and 0.0.0.0
 * nobody; such an address is replaced by ours that faces the router, or refused. Any thread; no
 * state. Budget: none, at the start alone.
 */

#include <stddef.h>
#include <stdint.h>

enum agent_reach {
	AGENT_REACH_NAME,  /**< a name: who asks will see */
	AGENT_REACH_ANY,   /**< 0.0.0.0, :: */
	AGENT_REACH_SELF,  /**< loopback: this machine alone */
	AGENT_REACH_LINK,  /**< link-local: nothing without the name of an interface */
	AGENT_REACH_GROUP, /**< multicast, broadcast */
	AGENT_REACH_HOST,  /**< one machine, from outside too */
};

enum agent_replace {
	AGENT_REPLACE_NONE, /**< it was said for others */
	AGENT_REPLACE_ANY,  /**< the wildcard: we listen everywhere */
	AGENT_REPLACE_SELF, /**< loopback, too: it was said for us */
};

/** Who reaches @p host: an address in numbers without brackets, or a name; "localhost" is SELF. */
enum agent_reach agent_address_reach(const char *host);

/**
 * "HOST:PORT" or "[V6]:PORT" in two.
 * @param size of @p host, and @p port has 6 bytes.
 * @return 0; -EINVAL it is none, or PORT no number from 0 to 65535.
 */
int agent_address_split(const char *text, char *host, size_t size, char *port);

/**
 * The address of ours from which the router @p router ("host", "host:port", "[v6]:port", "v6") is
 * reached, in numbers; "": its name leads nowhere.
 */
void agent_address_facing(const char *router, char *out, size_t size);

/**
 * What to tell others instead of @p host and @p port of ours.
 * @param facing as from agent_address_facing(); when that is loopback, all of it is on one machine,
 * and loopback is right.
 * @param replace what @p facing may stand for.
 * @param out "HOST:PORT", @p size bytes
 * @return 0; -EADDRNOTAVAIL others would not find us there, and nothing better is known;
 * -ENAMETOOLONG.
 */
int agent_address_tell(const char *host, const char *port, const char *facing,
		       enum agent_replace replace, char *out, size_t size);

/**
 * The number of a worker that was given none: the same for the same four, 1 to 2^48 - 1, so that
 * two of 10,000 workers share one with a probability of 2e-7.
 * @param machine name of this machine
 * @param engine address of the engine, as others reach it
 */
uint64_t agent_address_number(const char *machine, const char *engine, const char *pool,
			      uint32_t first_rank);

#endif
