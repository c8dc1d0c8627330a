/* SPDX-License-Identifier: BSD-3-Clause */
/* The hook that corrects the time of captured frames. */
#include "control/shared.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_mbuf.h>

#include "kvr_hook.h"

uint64_t shared_time(uint64_t tsc)
{
	const struct shared_clock *k = &shared_clock;

	/* Written by the control thread; guards no other data. */
	return atomic_load_explicit(&k->ahead, memory_order_relaxed) +
	       (uint64_t)((unsigned __int128)tsc * 1000000000 / k->hz);
}

#if KVR_HOOK

/* Offset of the time in an enhanced packet block: two words, the high one first. */
#define STAMP 12u

/* Replaces the function of the library: see shared.h. */
struct rte_mbuf *rte_pcapng_copy(uint16_t port, uint32_t queue, const struct rte_mbuf *m,
				 struct rte_mempool *pool, uint32_t length, uint64_t tsc,
				 enum rte_pcapng_direction direction)
{
	struct rte_mbuf *copy = shared_clock.copy(port, queue, m, pool, length, tsc, direction);
	uint32_t half[2];
	uint64_t ns;

	if (copy == NULL)
		return NULL;
	ns = shared_time(tsc);
	half[0] = (uint32_t)(ns >> 32);
	half[1] = (uint32_t)ns;
	memcpy(rte_pktmbuf_mtod_offset(copy, uint8_t *, STAMP), half, sizeof(half));
	return copy;
}

#endif

/* Control thread; here because it needs the address of the hook. */
int shared_clock_check(char *err, size_t errlen)
{
	if (!KVR_HOOK || kvr_hook_in_effect("rte_pcapng_copy", rte_pcapng_copy))
		return 0;
	snprintf(
		err, errlen,
		"librte_pdump does not call rte_pcapng_copy() of this program, so captured frames would have wrong times: the symbol is not exported; build with default visibility");
	return -ENOTSUP;
}
