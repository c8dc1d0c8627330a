/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_OUTAGE_H
#define KVR_OUTAGE_H

/**
 * @file
 * When somebody who does not answer is worth a line of the log: after a while, once a minute at
 * most, and once more when he answers again. No clock and no log of its own. Zeroed, it has heard
 * him at the time 0. One thread.
 */

#include <stdbool.h>
#include <stdint.h>

#define KVR_OUTAGE_MS	    UINT64_C(3000) /* usual: longer than a few questions take */
#define KVR_OUTAGE_AGAIN_MS UINT64_C(60000)

struct kvr_outage {
	uint64_t heard_ms; /* or when he was asked first */
	uint64_t next_ms;  /* no line before */
	bool said;	   /* that he is silent */
};

enum kvr_outage_line { KVR_OUTAGE_NO_LINE, KVR_OUTAGE_SILENT, KVR_OUTAGE_ANSWERS };

/** He is asked from now on: silence before this is nobody's fault. What was said stays said. */
void kvr_outage_begin(struct kvr_outage *s, uint64_t now_ms);

/** As often as one likes. @p heard: since the last turn. @p after_ms: silence that is usual.
 * @return the line that is due now. */
enum kvr_outage_line kvr_outage_turn(struct kvr_outage *s, uint64_t now_ms, bool heard,
				     uint64_t after_ms);

#endif
