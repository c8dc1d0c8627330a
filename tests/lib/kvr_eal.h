/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_EAL_H
#define KVR_EAL_H

/**
 * @file
 * An EAL for tests: no huge pages, no root, no devices, no shared files, quiet. Several programs
 * may run at once.
 */

#include <stdlib.h>

#include <rte_common.h>
#include <rte_eal.h>

/** Start the EAL with @p memory_mb megabytes ("64") on CPU 0's lcore; exits 1 on failure. */
static inline void kvr_eal_start(const char *memory_mb)
{
	const char *argv[] = {
		"test", "--no-huge", "--no-shconf", "--no-pci", "--no-telemetry",
		"-l",	"0",	     "-m",	    memory_mb,	"--log-level=*:error"};

	if (rte_eal_init((int)RTE_DIM(argv), (char **)(uintptr_t)argv) < 0)
		exit(1);
}

#endif
