/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_outage.h"

void kvr_outage_begin(struct kvr_outage *s, uint64_t now_ms)
{
	s->heard_ms = now_ms;
}

enum kvr_outage_line kvr_outage_turn(struct kvr_outage *s, uint64_t now_ms, bool heard,
				     uint64_t after_ms)
{
	if (heard) {
		const bool said = s->said;

		s->heard_ms = now_ms;
		s->said = false;
		return said ? KVR_OUTAGE_ANSWERS : KVR_OUTAGE_NO_LINE;
	}
	if (now_ms - s->heard_ms < after_ms || now_ms < s->next_ms)
		return KVR_OUTAGE_NO_LINE;
	s->said = true;
	s->next_ms = now_ms + KVR_OUTAGE_AGAIN_MS;
	return KVR_OUTAGE_SILENT;
}
