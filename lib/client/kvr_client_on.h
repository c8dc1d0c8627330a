/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_CLIENT_ON_H
#define KVR_CLIENT_ON_H

/**
 * @file
 * A client on a world given by the caller: time, randomness and datagrams of a simulation or a
 * test. Everything else is as in kvr_client.h. Same thread. Not installed.
 */

#include "kvr_client.h"
#include "kvr_udp.h"

/** kvr_client_create() on a given world, which is taken over, also on failure. */
struct kvr_client *kvr_client__create_on(const struct kvr_client_conf *conf,
					 const struct kvr_udp_addr *router,
					 const struct kvr_udp *udp);

/** Time at which kvr_client_process() is needed without input, in microseconds of that world's
 * clock; 0: now, UINT64_MAX: never. */
uint64_t kvr_client__due_us(const struct kvr_client *client);

#endif
