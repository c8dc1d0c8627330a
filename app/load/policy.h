/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOAD_POLICY_H
#define LOAD_POLICY_H

/**
 * @file
 * Policies for comparison with the router. All but `kv` choose a rank here and pin the request to
 * it, so that all policies take the same path through the router.
 */

#include <stdint.h>

#include "kvr_rand.h"

enum load_policy_kind { LOAD_KV, LOAD_ROUND_ROBIN, LOAD_RANDOM, LOAD_LEAST_LOADED };

#define LOAD_UNPINNED UINT32_MAX

/** State of one policy; a zeroed one is kv. Load lcore: rw. */
struct load_policy {
	enum load_policy_kind kind;
	uint32_t next; /* round robin */
	struct kvr_rand rand;
};

/**
 * Choose one of @p n ranks, n > 0, or LOAD_UNPINNED to leave the choice to the router. @p
 * in_flight: requests per rank that were sent and have not ended. least-loaded breaks ties
 * uniformly.
 */
uint32_t load_policy_pick(struct load_policy *p, const uint32_t in_flight[], uint32_t n);

#endif
