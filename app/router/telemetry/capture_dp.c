/* SPDX-License-Identifier: BSD-3-Clause */
/* The callbacks of a capture on packet lcores. */
#include "telemetry/capture.h"

#include <rte_cycles.h>
#include <rte_pcapng.h>

#define BURST 32u

static void tap_frames(struct capture_tap *t, uint16_t port, uint16_t queue,
		       struct rte_mbuf *const m[], uint16_t n, enum rte_pcapng_direction direction)
{
	struct capture *c = t->capture;
	struct rte_mbuf *copy[BURST];
	uint64_t match[BURST];
	uint32_t wanted = 0, k = 0, sent;
	const uint64_t now = rte_rdtsc();

	if (c->filter != NULL)
		rte_bpf_exec_burst(c->filter, (void **)(uintptr_t)m, match, n);
	for (uint16_t i = 0; i < n; i++) {
		if (c->filter != NULL && match[i] == 0)
			continue;
		wanted++;
		copy[k] = rte_pcapng_copy(port, queue, m[i], c->pool, c->snap, now, direction);
		k += copy[k] != NULL;
	}
	sent = rte_ring_enqueue_burst(c->ring, (void **)copy, k, NULL);
	rte_pktmbuf_free_bulk(copy + sent, k - sent);
	kvr_cell_add(&t->kept, sent);
	kvr_cell_add(&t->missed, wanted - sent);
}

static void take_all(void *tap, uint16_t port, uint16_t queue, struct rte_mbuf *const m[],
		     uint16_t n, enum rte_pcapng_direction direction)
{
	for (uint16_t i = 0; i < n; i = (uint16_t)(i + BURST))
		tap_frames(tap, port, queue, m + i, (uint16_t)RTE_MIN((uint32_t)(n - i), BURST),
			   direction);
}

uint16_t capture_rx(uint16_t port, uint16_t queue, struct rte_mbuf *m[], uint16_t n, uint16_t max,
		    void *tap)
{
	RTE_SET_USED(max);
	take_all(tap, port, queue, m, n, RTE_PCAPNG_DIRECTION_IN);
	return n;
}

uint16_t capture_tx(uint16_t port, uint16_t queue, struct rte_mbuf *m[], uint16_t n, void *tap)
{
	const struct capture_tap *t = tap;

	if (likely(!kvr_port_tx_again(t->queue)))
		take_all(tap, port, queue, m, n, RTE_PCAPNG_DIRECTION_OUT);
	return n;
}
