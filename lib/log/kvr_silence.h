/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SILENCE_H
#define KVR_SILENCE_H

/**
 * @file
 * When somebody who does not answer is worth a line of the log: after a while, once a minute at
 * most, and once more when he answers again. No clock and no log of its own. Zeroed, it has heard
 * him at the time 0. One thread.
 */

#include <stdbool.h>
#include <stdint.h>

#define KVR_SILENCE_MS	     UINT64_C(3000) /* usual: longer than a few questions take */
#define KVR_SILENCE_AGAIN_MS UINT64_C(60000)

struct kvr_silence {
	uint64_t heard_ms; /* or when he was asked first */
	uint64_t next_ms;  /* no line before */
	bool said;	   /* that he is silent */
};

enum kvr_silence_line { KVR_SILENCE_NO_LINE, KVR_SILENCE_SILENT, KVR_SILENCE_ANSWERS };

/** He is asked from now on: silence before this is nobody's fault. What was said stays said. */
void kvr_silence_begin(struct kvr_silence *s, uint64_t now_ms);

/** As often as one likes. @p heard: since the last turn. @p after_ms: silence that is usual.
 * @return the line that is due now. */
enum kvr_silence_line kvr_silence_turn(struct kvr_silence *s, uint64_t now_ms, bool heard,
				       uint64_t after_ms);

#endif
