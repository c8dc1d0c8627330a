/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_TEL_PARTS_H
#define ROUTER_TEL_PARTS_H

/**
 * @file
 * Groups of /kvroute/ commands, one file of this folder each, which registers its commands.
 * Handlers run on telemetry threads, one at a time, under kvr_telemetry_lock(). COMMANDS.md
 * describes the JSON.
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

/** Length of an id of a request or source as text. */
#define TEL_ID_TEXT 24u

/** Add an id to a dictionary: 16 hexadecimal digits after 0x. */
static inline void tel_id(struct rte_tel_data *d, const char *name, uint64_t id)
{
	char text[TEL_ID_TEXT];

	snprintf(text, sizeof(text), "0x%016" PRIx64, id);
	rte_tel_data_add_dict_string(d, name, text);
}

/** Add the quotient of two counts; nothing if the divisor is 0. */
static inline void tel_share(struct rte_tel_data *d, const char *name, uint64_t part, uint64_t all)
{
	if (all != 0)
		kvr_telemetry_dict_f64(d, name, (double)part / (double)all, 3);
}

/** The pool named by argument 0; NULL: the error is in @p d. */
struct pool *tel_pool(struct router *rt, const struct kvr_telemetry_args *a,
		      struct rte_tel_data *d);

#endif
