/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_SHARED_H
#define ROUTER_SHARED_H

/**
 * @file
 * A router whose memory other DPDK processes of this host may open, as dpdk-dumpcap, dpdk-pdump and
 * dpdk-proc-info do: huge pages in files, and an answer to their requests. Start and stop only,
 * main thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_pcapng.h>

/** --multi-process was given. */
void shared_ask(void);
bool shared_asked(void);

/** After the EAL's start. @return 0, or -errno with a line in @p err. Nothing when not asked. */
int shared_start(char *err, size_t errlen);

/**
 * Time of day of the frames that librte_pdump copies here for others. librte_pcapng of 22.11 makes
 * it from a state of the whole process that any frame moves on, and takes a TSC from before that
 * for one of centuries ahead, for good: that of the first frame, and what two lcores race for.
 * shared_dp.c stands before its function, in the executable, and sets the time right. Written at
 * the start, before any lcore runs.
 */
extern struct shared_clock {
	struct rte_mbuf *(*copy)(uint16_t port, uint32_t queue, const struct rte_mbuf *m,
				 struct rte_mempool *pool, uint32_t length, uint64_t tsc,
				 enum rte_pcapng_direction direction);
	uint64_t tsc, ns, hz; /* of one moment; hz 0: not asked */
} shared_clock;

/** The router's devices are seen by who opens its memory: a port with an owner is not. And hidden
 * again, before they are closed. Nothing when not asked. */
void shared_ports(bool seen);

/** Before its end. */
void shared_stop(void);

/** After its end: the files of its huge pages are removed, which the EAL leaves. */
void shared_clean(const char *file_prefix);

#endif
