/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_CONFIG_LCORES_H
#define ROUTER_CONFIG_LCORES_H

/**
 * @file
 * The lcore map: what [router] ingress, [pool] event_cpu and scheduler_cpu say, in the words of
 * EAL's --lcores:
 *
 *   CPU          the polling lcore of that CPU
 *   FIRST-LAST   those of these CPUs; in a list only
 *   ID@CPU       polling lcore ID on that CPU, which may have others. IDs are those of telemetry
 *                (lcore0, ...) and begin in order, from 0
 *
 * Each fills c->cpu[] and c->n_lcores on. Pure, any thread. @p may: CPUs that this process may use;
 * NULL: any. @return 0, or -EINVAL with what is wrong and what is allowed in @p why.
 */

#include <sched.h>
#include <stddef.h>
#include <stdint.h>

struct kvr_router_conf;

/** The list @p text: every item is a new lcore. All of them are c->n_ingress then. */
int lcores_ingress(struct kvr_router_conf *c, const char *text, const cpu_set_t *may, char *why,
		   size_t len);

/** One that is there already, or a new one; the first when @p text is empty. Its index is in
 * *lcore. */
int lcores_role(struct kvr_router_conf *c, const char *text, const cpu_set_t *may, uint32_t *lcore,
		char *why, size_t len);

/** Two lcores that poll without a pause must not share a CPU: each would wait for a time slice of
 * the other. */
int lcores_idle(const struct kvr_router_conf *c, char *why, size_t len);

#endif
