/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * State machine of one outage: silent for after_ms -> a line, then one a minute, then one with the
 * answer.
 */
#include "kvr_outage.h"

void kvr_outage_begin(struct kvr_outage *outage, uint64_t now_ms)
{
	outage->answered_ms = now_ms;
}

enum kvr_outage_line kvr_outage_turn(struct kvr_outage *outage, uint64_t now_ms, bool answered,
				     uint64_t after_ms)
{
	if (answered) {
		const bool reported = outage->reported;

		outage->answered_ms = now_ms;
		outage->reported = false;
		return reported ? KVR_OUTAGE_ANSWERS : KVR_OUTAGE_NO_LINE;
	}
	if (now_ms - outage->answered_ms < after_ms || now_ms < outage->next_ms)
		return KVR_OUTAGE_NO_LINE;
	outage->reported = true;
	outage->next_ms = now_ms + KVR_OUTAGE_AGAIN_MS;
	return KVR_OUTAGE_SILENT;
}
