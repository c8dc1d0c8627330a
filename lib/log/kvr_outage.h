/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_OUTAGE_H
#define KVR_OUTAGE_H

/**
 * @file
 * Decides when an unresponsive peer deserves a log line: one after a period of silence, at most one
 * a minute, and one when the peer answers again. Has neither clock nor log. A zeroed state counts
 * the silence from time 0. One thread.
 */

#include <stdbool.h>
#include <stdint.h>

#define KVR_OUTAGE_MS	    UINT64_C(3000) /* usual limit: longer than a few requests take */
#define KVR_OUTAGE_AGAIN_MS UINT64_C(60000)

struct kvr_outage {
	uint64_t answered_ms; /* time of the last answer, or of kvr_outage_begin() */
	uint64_t next_ms;     /* no line before this time */
	bool reported;	      /* the outage has been logged */
};

enum kvr_outage_line { KVR_OUTAGE_NO_LINE, KVR_OUTAGE_SILENT, KVR_OUTAGE_ANSWERS };

/** Start counting silence now. A logged outage stays logged. */
void kvr_outage_begin(struct kvr_outage *outage, uint64_t now_ms);

/**
 * Advance to @p now_ms; call it at any interval. @p answered: the peer answered since the last
 * call. @p after_ms: usual silence.
 * @return the line that is due now.
 */
enum kvr_outage_line kvr_outage_turn(struct kvr_outage *outage, uint64_t now_ms, bool answered,
				     uint64_t after_ms);

#endif
