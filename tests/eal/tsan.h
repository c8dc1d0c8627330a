/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TSAN_H
#define TSAN_H

/**
 * @file
 *
 * Included first in every file of a build with ThreadSanitizer (tools/test). In DPDK 22.11 a ring
 * producer that waits for another producer reads that one's tail without acquire. A consumer
 * acquires only the second tail, so formally it has not seen the writes of the first producer. On
 * processors with the memory order of x86 this has no effect; here the wait acquires. This build
 * uses the rings of the C11 memory model, because the sanitizer does not see fences. A ring without
 * waiting (RTS) becomes an ordinary one: its producers release eight bytes, of which its consumer
 * acquires four, and the sanitizer takes these for two different atomics.
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
