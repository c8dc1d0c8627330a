/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_silence.h"

void kvr_silence_begin(struct kvr_silence *s, uint64_t now_ms)
{
	s->heard_ms = now_ms;
}

enum kvr_silence_line kvr_silence_turn(struct kvr_silence *s, uint64_t now_ms, bool heard,
				       uint64_t after_ms)
{
	if (heard) {
		const bool said = s->said;

		s->heard_ms = now_ms;
		s->said = false;
		return said ? KVR_SILENCE_ANSWERS : KVR_SILENCE_NO_LINE;
	}
	if (now_ms - s->heard_ms < after_ms || now_ms < s->next_ms)
		return KVR_SILENCE_NO_LINE;
	s->said = true;
	s->next_ms = now_ms + KVR_SILENCE_AGAIN_MS;
	return KVR_SILENCE_SILENT;
}
