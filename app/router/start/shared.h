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

/** --multi-process was given. */
void shared_ask(void);
bool shared_asked(void);

/** After the EAL's start. @return 0, or -errno with a line in @p err. Nothing when not asked. */
int shared_start(char *err, size_t errlen);

/** The router's devices are seen by who opens its memory: a port with an owner is not. And hidden
 * again, before they are closed. Nothing when not asked. */
void shared_ports(bool seen);

/** Before its end. */
void shared_stop(void);

/** After its end: the files of its huge pages are removed, which the EAL leaves. */
void shared_clean(const char *file_prefix);

#endif
