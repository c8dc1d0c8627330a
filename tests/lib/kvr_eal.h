/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_EAL_H
#define KVR_EAL_H

/**
 * @file
 * An EAL for tests: no huge pages, no root, no devices, no shared files, quiet. Several programs
 * may run at once. With KVR_HUGEPAGES=on in the environment all memory is of huge pages, and a
 * start without enough of them fails: tools/test runs some suites once more so.
 */

#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_eal.h>

/** The argument that says where memory comes from. */
static inline const char *kvr_eal_pages(void)
{
	const char *huge = getenv("KVR_HUGEPAGES");

	return huge != NULL && strcmp(huge, "on") == 0 ? "--in-memory" : "--no-huge";
}

/** Start the EAL with @p memory_mb megabytes ("64") on CPU 0's lcore; exits 1 on failure. */
static inline void kvr_eal_start(const char *memory_mb)
{
	const char *argv[] = {"test",
			      kvr_eal_pages(),
			      "--no-shconf",
			      "--no-pci",
			      "--no-telemetry",
			      "-l",
			      "0",
			      "-m",
			      memory_mb,
			      "--log-level=*:error"};

	if (rte_eal_init((int)RTE_DIM(argv), (char **)(uintptr_t)argv) < 0)
		exit(1);
}

#endif
