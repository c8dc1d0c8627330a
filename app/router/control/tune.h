/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_TUNE_H
#define ROUTER_TUNE_H

/**
 * @file
 * Keys of ports and pools that can change at run time: through /kvroute/set for one key, and on
 * SIGHUP for all that differ in the file. Control and telemetry threads, under
 * kvr_telemetry_lock().
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvr_port.h"

struct kvr_pool_conf;
struct router;

/** Keys of ports; ends with NULL. Keys of pools: kvr_sched_tunable_key(), of classes:
 * kvr_sched_class_tunable(). */
extern const char *const tune_port_keys[];

bool tune_port_key(const char *key);

/** Check values, except for rejections by the kernel. @p next: one entry per port. @return 0, or
 * -errno with one line in @p err. */
int tune_ports_check(struct router *rt, const struct kvr_port_conf next[], char *err,
		     size_t errlen);

/** Set the keys of tune_port_keys to those of @p next, at all ports or at none, on the lcores and
 * in rt->conf. Returns when the lcores apply them. @return 0; -errno: the kernel rejected one, with
 * the reason in @p err; all values are unchanged. */
int tune_ports(struct router *rt, const struct kvr_port_conf next[], char *err, size_t errlen);

/** The limits of sources at all ports become those of rt->conf. Returns when the lcores apply them.
 * Start; control. */
void rules_update(struct router *rt);

/** Set pool @p i to @p next, a checked copy of kvr_sched_conf() with other tunable keys. */
void tune_pool(struct router *rt, uint32_t i, const struct kvr_pool_conf *next);

/** Let pool @p i sample one decision in @p every. */
void tune_sample(struct router *rt, uint32_t i, uint32_t every);

#endif
