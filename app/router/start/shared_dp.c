/* SPDX-License-Identifier: BSD-3-Clause */
#include "start/shared.h"
#include "telemetry/capture.h"

#include <string.h>

/* Instead of the library's: see shared.h. */
struct rte_mbuf *rte_pcapng_copy(uint16_t port, uint32_t queue, const struct rte_mbuf *m,
				 struct rte_mempool *pool, uint32_t length, uint64_t tsc,
				 enum rte_pcapng_direction direction)
{
	const struct shared_clock *k = &shared_clock;
	struct rte_mbuf *copy = k->copy(port, queue, m, pool, length, tsc, direction);
	uint32_t half[2];
	uint64_t ns;

	if (copy == NULL || k->hz == 0)
		return copy;
	ns = k->ns + (uint64_t)((unsigned __int128)(tsc - k->tsc) * 1000000000 / k->hz);
	half[0] = (uint32_t)(ns >> 32);
	half[1] = (uint32_t)ns;
	memcpy(rte_pktmbuf_mtod_offset(copy, uint8_t *, CAPTURE_STAMP), half, sizeof(half));
	return copy;
}
