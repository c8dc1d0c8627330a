/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_POOLS_H
#define ROUTER_POOLS_H

/**
 * @file
 * Pools by their names. Any thread; names last as long as the pools.
 */

#include <stdbool.h>
#include <stddef.h>

struct pool;
struct router;

/** Whether it is the name of @p p; @p name need not end in NUL. */
bool pool_named(const struct pool *p, const char *name, size_t len);

/** The pool of that name, or NULL. */
struct pool *pool_by_name(struct router *rt, const char *name, size_t len);

#endif
