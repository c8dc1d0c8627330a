/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_SHARED_H
#define ROUTER_SHARED_H

/**
 * @file
 * Access of other DPDK processes on this host to the router's memory: dpdk-dumpcap, dpdk-pdump and
 * dpdk-proc-info need huge pages in files and an answer to their requests. Start and stop, main
 * thread, unless stated otherwise.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_pcapng.h>

/** Request it: --multi-process was given. */
void shared_ask(void);
bool shared_asked(void);

/** Start, after the EAL. Does nothing without shared_ask(). @return 0, or -errno with a line in @p
 * err. */
int shared_start(char *err, size_t errlen);

/** Time of day of frames that kvroute or librte_pdump copies for a file. librte_pcapng of 22.11
 * derives it from process-wide state that every frame advances. A TSC value before that state is
 * taken for one centuries ahead, permanently; the first frame and races of two lcores cause that.
 * shared_dp.c in the executable replaces its rte_pcapng_copy() and corrects the time. */
extern struct shared_clock {
	struct rte_mbuf *(*copy)(uint16_t port, uint32_t queue, const struct rte_mbuf *m,
				 struct rte_mempool *pool, uint32_t length, uint64_t tsc,
				 enum rte_pcapng_direction direction); /* function of the library */
	uint64_t hz;						       /* 0: not begun */
	_Atomic uint64_t
		ahead; /* time of day minus TSC in ns; written by control, read by lcores */
} shared_clock;

/**
 * Check that librte_pdump calls the rte_pcapng_copy() of shared_dp.c.
 * @return 0, also when built with a DPDK other than 22.11, for which that function is left out;
 * -ENOTSUP with one line in @p err: cause and remedy.
 */
int shared_clock_check(char *err, size_t errlen);

/** Before the first frame is copied; may be repeated. @return 0, or -errno. */
int shared_clock_begin(void);

/** Set the clock: @p tsc was at @p ns of the day. Repeat it, because DPDK rounds the TSC rate to 10
 * MHz, up to a second in ten minutes, and because clocks are adjusted. One thread at a time. */
void shared_clock_set(uint64_t tsc, uint64_t ns);

/** Set the clock to the current time; nothing before shared_clock_begin(). */
void shared_clock_look(void);

/** Nanoseconds since 1970 at @p tsc. Any thread. */
uint64_t shared_time(uint64_t tsc);

/** Show or hide the router's devices: secondary processes see only ports without an owner. Hide
 * them before they are closed. Does nothing without shared_ask(). */
void shared_ports(bool seen);

/** Stop, before the end of the EAL. */
void shared_stop(void);

/** After the end of the EAL: remove the huge page files that the EAL leaves. */
void shared_clean(const char *file_prefix);

#endif
