/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_CONFIG_H
#define ROUTER_CONFIG_H

/**
 * @file
 * Reading of the router's configuration: one INI file, checked completely before anything starts.
 * state/conf.h has the result.
 *
 *   [router]       lcore map, memory, liveness, reassembly bounds
 *   [port NAME]    one Ethernet port (lib/port)
 *   [pool NAME]    one pool: identity and sizes here, routing options of lib/sched
 *   [class POOL NAME]  a policy class of a pool's queue
 */

#include <stdio.h>

#include "state/conf.h"

/** Read and check @p path. On failure @p err is one line with file, line, key and allowed values.
 * @return 0 or -errno. */
int kvr_router_conf_load(struct kvr_router_conf *conf, const char *path, char *err, size_t errlen);

/** Derive conf->sizes; part of loading. @return 0, or -EINVAL with the contradicting keys in @p
 * err.
 */
int kvr_router_conf_sizes(struct kvr_router_conf *conf, char *err, size_t errlen);

/** Largest number of workers: [router] max_workers, or the sum of all pools if it is 0. */
uint32_t kvr_router_conf_workers(const struct kvr_router_conf *conf);

/** Jobs in the mempool cache of an lcore. */
#define KVR_ROUTER_JOB_CACHE(max_jobs) RTE_MIN((max_jobs) / 4, 64u)

/** Jobs allocated for a pool: max_jobs, and those that may lie in caches of other lcores, because a
 * job is allocated by an ingress lcore and freed by the scheduler lcore. */
static inline uint32_t kvr_router_jobs(const struct kvr_router_conf *conf, uint32_t max_jobs)
{
	return max_jobs + (conf->n_lcores - 1) * (KVR_ROUTER_JOB_CACHE(max_jobs) * 3 / 2);
}

/** Bytes of one packet buffer of a port. */
uint32_t kvr_router_buffer_bytes(const struct kvr_port_conf *p);

/** Compute the memory needed; conf->sizes must be set. @p huge: with huge pages; without them a
 * packet buffer takes a page of 4 KiB. Any thread, no EAL. tests/eal/test_memory.c checks the
 * result against the actual use, within 1 % and 4 MiB. @return 0; -ENOMEM. */
int kvr_router_conf_memory(const struct kvr_router_conf *conf, bool huge,
			   struct kvr_router_memory *out);

/** The row of a key of [router], or of [pool NAME] (of struct kvr_router_pool_conf); NULL: unknown
 * key. */
const struct kvr_opt *kvr_router_opt(const char *key);
const struct kvr_opt *kvr_router_pool_opt(const char *key);

/** Check that the times of liveness agree. @return 0, or -EINVAL with one line in @p err. */
int kvr_router_conf_times(const struct kvr_router_options *o, char *err, size_t errlen);

/** Print every option with value, unit and help, as a file that can be loaded. */
void kvr_router_conf_dump(const struct kvr_router_conf *conf, FILE *out);

#endif
