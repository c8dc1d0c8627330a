/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_TEL_PARTS_H
#define ROUTER_TEL_PARTS_H

/**
 * @file
 * The groups of /kvroute/ commands, each a file of this folder that registers its own. Handlers run
 * on telemetry threads, one at a time, under the lock of lib/ctl; the JSON stands in COMMANDS.md.
 */

#include <inttypes.h>
#include <stdio.h>

#include <rte_telemetry.h>

#include "kvr_telemetry.h"

struct pool;
struct router;

/** Register the commands. @return 0 or -errno. */
int acts_start(struct router *rt);
int ranks_start(struct router *rt);
int latency_start(struct router *rt);
int explain_start(struct router *rt);
int settings_start(struct router *rt);
int memory_start(struct router *rt);
int oldest_start(struct router *rt);
int snapshot_tel_start(struct router *rt);
void acts_stop(void);
void ranks_stop(void);
void latency_stop(void);
void explain_stop(void);
void settings_stop(void);
void memory_stop(void);
void oldest_stop(void);
void snapshot_tel_stop(void);

/** Ids of requests and sources, as people see them. */
#define TEL_ID_TEXT 24u

/** Add an id to a dictionary: 16 hexadecimal digits after 0x. */
static inline void tel_id(struct rte_tel_data *d, const char *name, uint64_t id)
{
	char text[TEL_ID_TEXT];

	snprintf(text, sizeof(text), "0x%016" PRIx64, id);
	rte_tel_data_add_dict_string(d, name, text);
}

/** A share of two counts; left out when there is nothing to share. */
static inline void tel_share(struct rte_tel_data *d, const char *name, uint64_t part, uint64_t all)
{
	if (all != 0)
		kvr_telemetry_dict_f64(d, name, (double)part / (double)all, 3);
}

/** The pool that argument 0 names; NULL: an error is in @p d. */
struct pool *tel_pool(struct router *rt, const struct kvr_telemetry_args *a,
		      struct rte_tel_data *d);

#endif
