/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_EPOCH_H
#define KVR_EPOCH_H

/**
 * @file
 * The epoch of an engine's first incarnation (PROTOCOL.md section 9.1). A router accepts only an
 * epoch greater than the last one of the worker, so a program takes its first epoch from the clock.
 * The clock value wraps after 497 days, and clocks may be set back. A router that rejects an epoch
 * therefore names the last one (StaleEpoch, detail[0]), from which kvr_epoch_above() makes the
 * next.
 */

#include <stdint.h>
#include <time.h>

/** Epoch of the current time: never 0, higher by one every 10 ms. */
static inline uint32_t kvr_epoch_of_clock(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint32_t)((uint64_t)ts.tv_sec * 100 + (uint64_t)ts.tv_nsec / 10000000) | 1;
}

/**
 * Epoch of the next incarnation after a rejected one.
 * @param mine  the rejected epoch
 * @param last  detail[0] of the rejection
 * @return an epoch above both. 0 if @p last is 0, or if no epoch is left: an operator must act.
 */
static inline uint32_t kvr_epoch_above(uint32_t mine, uint64_t last)
{
	const uint64_t most = last > mine ? last : mine;

	return last == 0 || most >= UINT32_MAX ? 0 : (uint32_t)most + 1;
}

#endif
