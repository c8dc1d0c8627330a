/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_AGENT_ON_H
#define KVR_AGENT_ON_H

/**
 * @file
 * An agent on a world given by the caller: time, randomness and datagrams of a simulation or a
 * test. Everything else is as in kvr_agent.h. Same thread. Not installed.
 */

#include "kvr_agent.h"
#include "kvr_udp.h"

/** kvr_agent_create() on a given world, which is taken over, also on failure. @p conf should set
 * the epoch, because its default comes from the machine's clock. */
struct kvr_agent *kvr_agent__create_on(const struct kvr_agent_conf *conf,
				       const struct kvr_udp_addr *router,
				       const struct kvr_udp *udp);

/** Time at which kvr_agent_process() is needed without input, in microseconds of that world's
 * clock; 0: now, UINT64_MAX: never. */
uint64_t kvr_agent__due_us(const struct kvr_agent *agent);

#endif
