/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOURCE_PVT_H
#define SOURCE_PVT_H

#include "kvr_source.h"

#define WAYS 8u

/* These first bytes are multicast, so they belong to no source address. */
#define SHARED_6   UINT64_C(0xffff)
#define SHARED_4   UINT64_C(0xfffe)
#define SHARED_ALL UINT64_C(0xfffd000000000000)

/* The keys of one set in one cache line, in the order of their entries. */
struct keys {
	uint64_t key[WAYS];
} __rte_cache_aligned;

struct kvr_source_table {
	uint64_t seed;
	uint32_t mask; /* sets - 1 */
	uint32_t most; /* the largest recent count, as of `window` */
	uint32_t window;
	uint32_t pad;
	uint64_t shared;
	struct kvr_source rest; /* entry of all sources without a place */
	struct keys *keys;
	struct kvr_source *entry; /* WAYS entries per set */
};

/* Key of the entry that a source shares with its neighbours if it finds no place. */
static inline uint64_t shared_key(uint64_t key)
{
	if (key >> 32 == 0xffff)
		return SHARED_4 << 48 | (key & 0xffffff00u) >> 8;
	if (key >> 48 == 0xfe80)
		return SHARED_6 << 48 | 0xfe80;
	return SHARED_6 << 48 | key >> 16;
}

#endif
