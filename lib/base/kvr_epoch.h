/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_EPOCH_H
#define KVR_EPOCH_H

/**
 * @file
 * The epoch of an engine's first life (PROTOCOL.md section 9.1). A router takes only a greater one
 * than the last it knows of the worker, so what starts again takes its epoch from the clock. The
 * clock's number comes round after 497 days, and clocks are set back: a router that refuses the
 * epoch names the one to be above (StaleEpoch, detail[0]), and kvr_epoch_above() makes the next.
 */

#include <stdint.h>
#include <time.h>

/** An epoch of now: never 0, higher by one each 10 ms. */
static inline uint32_t kvr_epoch_of_clock(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint32_t)((uint64_t)ts.tv_sec * 100 + (uint64_t)ts.tv_nsec / 10000000) | 1;
}

/**
 * The epoch of the life after one that a router refused.
 * @param mine  the refused one
 * @param last  detail[0] of the refusal
 * @return an epoch above both; 0 when the router named none or there is none left: an operator must
 * look
 */
static inline uint32_t kvr_epoch_above(uint32_t mine, uint64_t last)
{
	const uint64_t most = last > mine ? last : mine;

	return last == 0 || most >= UINT32_MAX ? 0 : (uint32_t)most + 1;
}

#endif
