/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_HOST_H
#define ROUTER_HOST_H

/**
 * @file
 * What the router must know of its host before it starts. No EAL. Main thread.
 */

#include <stddef.h>
#include <stdint.h>

/** Make sure that files 0 to 2 are open: else the next file opened becomes standard output. */
void host_std_files(void);

/** Memory that can still be had, MiB. UINT64_MAX: not known, or no limit. */
struct host_memory {
	uint64_t available_mb; /* MemAvailable of the machine */
	uint64_t cgroup_mb;    /* left under the limits of the control groups */
	uint64_t huge_mb;      /* free huge pages of all sizes */
};
void host_memory(struct host_memory *out);

/** Is there a driver for a "net_..." device? @return 0, or -ENODEV with `device: ...` in @p err. */
int host_driver(const char *device, char *err, size_t errlen);

/**
 * The kernel's interface or the PCI device that it names, and the right to use it.
 * @return as host_driver(); -EPERM.
 */
int host_device(const char *device, char *err, size_t errlen);

#endif
