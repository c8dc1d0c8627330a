/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TSAN_H
#define TSAN_H

/**
 * @file
 * Included before every file of a build with ThreadSanitizer (tools/test). In DPDK 22.11 the writer
 * of a ring that has waited for another writer has read that one's tail without acquiring it, so
 * that the reader, which acquires the second tail, has formally not seen what the first has
 * written. With processors that order loads and stores as x86 does nothing comes of it; here the
 * wait acquires. The rings are those of the C11 memory model in this build, as the sanitizer does
 * not see fences. A ring that waits for nobody (RTS) is an ordinary one: its writers release eight
 * bytes of which its reader acquires four, and the sanitizer takes these for two atomics.
 */

#define RTE_USE_C11_MEM_MODEL

#include <rte_config.h>
#include <rte_pause.h>
#include <rte_ring_core.h>

#undef RING_F_MP_RTS_ENQ
#define RING_F_MP_RTS_ENQ 0u

#define rte_wait_until_equal_32(addr, expected, order)                                             \
	rte_wait_until_equal_32(addr, expected, __ATOMIC_ACQUIRE)

#endif
