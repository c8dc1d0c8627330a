/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef HINTS_PVT_H
#define HINTS_PVT_H

/**
 * @file
 * Numbers in the values of hints, which are not aligned.
 */

#include "kvr_hints.h"

#include <string.h>

static inline uint16_t get_u16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline uint32_t get_u32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline uint64_t get_u64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline bool all_zero(const uint8_t *p, uint32_t n)
{
	uint8_t any = 0;

	for (uint32_t i = 0; i < n; i++)
		any |= p[i];
	return any == 0;
}

#endif
