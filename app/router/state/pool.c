/* SPDX-License-Identifier: BSD-3-Clause */
/* Find a pool by its number in a handle, its number on the wire, or its name. */
#include "state/router.h"

#include <string.h>

struct pool *pool_of_handle(struct router *rt, uint64_t handle)
{
	const uint32_t number = kvr_flight_handle_pool(handle);

	return number < rt->n_pools ? &rt->pool[number] : NULL;
}

struct pool *pool_by_id(struct router *rt, uint32_t id)
{
	for (uint32_t i = 0; i < rt->n_pools; i++)
		if (rt->pool[i].wire_id == id)
			return &rt->pool[i];
	return NULL;
}

bool pool_named(const struct pool *pool, const char *name, size_t len)
{
	return strlen(pool->name) == len && memcmp(pool->name, name, len) == 0;
}

struct pool *pool_by_name(struct router *rt, const char *name, size_t len)
{
	for (uint32_t i = 0; i < rt->n_pools; i++)
		if (pool_named(&rt->pool[i], name, len))
			return &rt->pool[i];
	return NULL;
}
