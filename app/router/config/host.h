/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_HOST_H
#define ROUTER_HOST_H

/**
 * @file
 * Properties of the host that are checked before the start. No EAL. Main thread.
 */

#include <stddef.h>
#include <stdint.h>

/** Open files 0 to 2 if they are closed; otherwise the next opened file would become standard
 * output. */
void host_std_files(void);

/** Available memory in MiB. UINT64_MAX: unknown, or no limit. */
struct host_memory {
	uint64_t available_mb; /* MemAvailable of the machine */
	uint64_t cgroup_mb;    /* left within the limits of the control groups */
	uint64_t huge_mb;      /* free huge pages of all sizes */
};
void host_memory(struct host_memory *out);

/** Check that a driver for a "net_..." device exists. @return 0, or -ENODEV with `device: ...` in
 * @p err. */
int host_driver(const char *device, char *err, size_t errlen);

/** Check the kernel interface or PCI device of @p device, and the permission to use it. @return as
 * host_driver(); -EPERM. */
int host_device(const char *device, char *err, size_t errlen);

#endif
