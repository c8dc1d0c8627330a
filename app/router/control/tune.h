/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_TUNE_H
#define ROUTER_TUNE_H

/**
 * @file
 * Keys of ports and pools that take another value while the router runs: /kvroute/set, one for all
 * of a kind, and SIGHUP, all that a file says otherwise. Control and telemetry threads, under the
 * lock of lib/ctl.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvr_port.h"

struct kvr_pool_conf;
struct router;

/** Of ports; ends with NULL. Of pools: kvr_sched_tunable_key(), of classes
 * kvr_sched_class_tunable().
 */
extern const char *const tune_port_keys[];

bool tune_port_key(const char *key);

/** Would these be taken, but for the kernel? @p next: one for each port. @return 0, or -errno with
 * one line in @p err. */
int tune_ports_check(struct router *rt, const struct kvr_port_conf next[], char *err,
		     size_t errlen);

/**
 * The keys of tune_port_keys become those of @p next, at all ports or at none, at the lcores and in
 * rt->conf. Returns when the lcores go by them.
 * @return 0; -errno: the kernel has refused one, @p err says why, all have what they had.
 */
int tune_ports(struct router *rt, const struct kvr_port_conf next[], char *err, size_t errlen);

/** The limits of sources at all ports become those of rt->conf. Returns when the lcores apply them.
 * Start; control. */
void rules_update(struct router *rt);

/** Pool @p i goes by @p next, a checked copy of kvr_sched_conf() but for tunable keys. */
void tune_pool(struct router *rt, uint32_t i, const struct kvr_pool_conf *next);

/** Pool @p i samples one decision in so many. */
void tune_sample(struct router *rt, uint32_t i, uint32_t every);

#endif
