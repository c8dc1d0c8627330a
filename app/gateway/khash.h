/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_KHASH_H
#define GW_KHASH_H

/**
 * @file
 * What libh2o's header of HTTP/2 (h2o/http2_internal.h) names of a header that is not installed
 * with it: enough to read the layout of its structs. Its one function that looks into the table
 * finds nothing here, and is not called.
 */

#include <stdint.h>

typedef uint32_t khiter_t;

#define khash_t(name) struct gw_khash_##name
#define KHASH_MAP_INIT_INT64(name, type)                                                           \
	khash_t(name)                                                                              \
	{                                                                                          \
		type none;                                                                         \
	};
#define kh_get(name, table, key) ((void)(key), 0u)
#define kh_end(table)		 0u
#define kh_val(table, at)	 ((table)->none)

#endif
