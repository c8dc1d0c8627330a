/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_CONFIG_LCORES_H
#define ROUTER_CONFIG_LCORES_H

/**
 * @file
 * The lcore map: values of [router] ingress, [pool] event_cpu and scheduler_cpu, in the notation of
 * EAL's --lcores:
 *
 *   CPU          the polling lcore of that CPU
 *   FIRST-LAST   the polling lcores of these CPUs; only in a list
 *   ID@CPU       polling lcore ID on that CPU, which may be shared. IDs are those of telemetry
 *                (lcore0, ...) and appear in order, from 0
 *
 * Each function appends to c->cpu[] and c->n_lcores. Pure, any thread. @p may: CPUs available to
 * this process; NULL: any. @return 0, or -EINVAL with fault and allowed values in @p why.
 */

#include <sched.h>
#include <stddef.h>
#include <stdint.h>

struct kvr_router_conf;

/** Parse the list @p text: every item is a new lcore. Sets conf->n_ingress to their number. */
int lcores_ingress(struct kvr_router_conf *conf, const char *text, const cpu_set_t *may, char *why,
		   size_t len);

/** Parse an existing or new lcore; empty @p text is the first. Sets *lcore to its index. */
int lcores_role(struct kvr_router_conf *conf, const char *text, const cpu_set_t *may,
		uint32_t *lcore, char *why, size_t len);

/** Reject two lcores that poll without pause on one CPU, where each would wait for a time slice of
 * the other. */
int lcores_idle(const struct kvr_router_conf *conf, char *why, size_t len);

#endif
