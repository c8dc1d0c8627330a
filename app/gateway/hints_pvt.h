/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_HINTS_PVT_H
#define GW_HINTS_PVT_H

/**
 * @file
 * Rows of the table of hints: bits of gw_hints.given.
 */

#include "hints.h"

/* clang-format off */
enum gw_hint_row {
	R_SESSION, R_ACTION, R_TIMEOUT, R_LORA, R_NAMESPACE, R_SALT, R_POLICY, R_JUMP, R_LATENCY, R_STRICT,
	R_PRIORITY, R_EXPECTED, R_OSL, R_LEASE, R_BACKEND, R_WORKER, R_PREFILL, R_DECODE, R_RANK, R_PREFILL_RANK,
	R_ALLOWED, R_REQUIRED, R_PREFERRED, R_QUERY, R_EXPLAIN, R_TIMING, R_CONSTRAINTS, R_CONTROL, R_AGENT, R_EXTRA,
	R_ANNOTATIONS, R_OVERRIDE,
	ROWS
};
/* clang-format on */

#endif
