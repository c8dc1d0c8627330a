/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net_memif of DPDK 22.11 unmaps the shared rings of a peer that has left on the EAL's interrupt
 * thread while a packet lcore may be inside its receive or transmit call, which then faults. The
 * driver clears its "connected" flag first, so a burst call that starts afterwards touches nothing:
 * all that is missing is a grace period between the flag and the unmapping. This file puts it
 * there, by standing in for munmap(): on the interrupt thread it waits until every packet lcore has
 * passed a quiescent state; anywhere else it is the system call and nothing more.
 *
 * The symbol is exported from the executable (see meson.build), because drivers are loaded at run
 * time. Remove this file when the packaged DPDK has the fix.
 */
#include "start.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rte_interrupts.h>

static _Atomic(struct router *) guarded;

void memif_guard(struct router *rt)
{
	atomic_store_explicit(&guarded, rt, memory_order_release); /* pairs with the load below */
}

int munmap(void *addr, size_t len)
{
	struct router *rt = atomic_load_explicit(&guarded, memory_order_acquire);

	if (rt != NULL && rte_thread_is_intr() &&
	    atomic_load_explicit(&rt->running, memory_order_relaxed))
		rte_rcu_qsbr_synchronize(rt->qsbr, RTE_QSBR_THRID_INVALID);
	return (int)syscall(SYS_munmap, addr, len);
}
