/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_SHARED_H
#define ROUTER_SHARED_H

/**
 * @file
 * A router whose memory other DPDK processes of this host may open, as dpdk-dumpcap, dpdk-pdump and
 * dpdk-proc-info do: huge pages in files, and an answer to their requests. Start and stop only,
 * main thread, where nothing else is said.
 */

#include <stdatomic.h>
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
 * Time of day of frames that are copied for a file, by us or by librte_pdump. librte_pcapng of
 * 22.11 makes it from a state of the whole process that any frame moves on, and takes a TSC from
 * before that for one of centuries ahead, for good: that of the first frame, and what two lcores
 * race for. shared_dp.c stands before its rte_pcapng_copy(), in the executable, and sets the time
 * right.
 */
extern struct shared_clock {
	struct rte_mbuf *(*copy)(uint16_t port, uint32_t queue, const struct rte_mbuf *m,
				 struct rte_mempool *pool, uint32_t length, uint64_t tsc,
				 enum rte_pcapng_direction direction); /* the library's */
	uint64_t hz;						       /* 0: not begun */
	_Atomic uint64_t ahead; /* time of day less the TSC in ns; control: w, lcores: r */
} shared_clock;

/**
 * Check that librte_pdump calls the rte_pcapng_copy() of shared_dp.c.
 * @return 0, also when built with a DPDK other than 22.11, for which that function is left out;
 * -ENOTSUP with one line in @p err: cause and remedy.
 */
int shared_clock_check(char *err, size_t errlen);

/** Before any frame is copied; once or more. @return 0, or -errno. */
int shared_clock_begin(void);

/**
 * @p tsc was at @p ns of the day: again and again, as DPDK rounds the TSC's rate to 10 MHz, which
 * is a second in ten minutes where it is worst, and as clocks are set. One thread at a time.
 */
void shared_clock_set(uint64_t tsc, uint64_t ns);

/** The same of now; nothing before shared_clock_begin(). */
void shared_clock_look(void);

/** Nanoseconds since 1970 at @p tsc. Any thread. */
uint64_t shared_time(uint64_t tsc);

/** The router's devices are seen by who opens its memory: a port with an owner is not. And hidden
 * again, before they are closed. Nothing when not asked. */
void shared_ports(bool seen);

/** Before its end. */
void shared_stop(void);

/** After its end: the files of its huge pages are removed, which the EAL leaves. */
void shared_clean(const char *file_prefix);

#endif
