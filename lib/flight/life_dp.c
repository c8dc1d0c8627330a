/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_life.h"

#include <stddef.h>

static const char *const state_names[KVR_RQ_STATES] = {
	[KVR_RQ_FREE] = "free",	      [KVR_RQ_QUEUED] = "queued",
	[KVR_RQ_HELD] = "held",	      [KVR_RQ_DISPATCHED] = "dispatched",
	[KVR_RQ_RUNNING] = "running", [KVR_RQ_ENDED] = "ended",
};

static const char *const event_names[KVR_LIFE_EVENTS] = {
	[KVR_LIFE_HOLD] = "hold",	[KVR_LIFE_SEND] = "send",
	[KVR_LIFE_FAIL] = "fail",	[KVR_LIFE_RELEASE] = "release",
	[KVR_LIFE_OPENED] = "opened",	[KVR_LIFE_TAKEN] = "taken",
	[KVR_LIFE_REFUSED] = "refused", [KVR_LIFE_ITEM] = "item",
	[KVR_LIFE_FIN] = "fin",		[KVR_LIFE_ABORT_ACKED] = "abort_acked",
	[KVR_LIFE_CANCEL] = "cancel",	[KVR_LIFE_FIN_ACKED] = "fin_acked",
};

/* States x events. 0: never; LATE; else the next state. */
#define LATE  0x80u
#define TO(s) KVR_RQ_##s | 0x40u
static const uint8_t table[KVR_RQ_STATES][KVR_LIFE_EVENTS] = {
	/* Its worker knows nothing of it: whatever an agent says is not about this request. */
	[KVR_RQ_QUEUED] =
		{
			[KVR_LIFE_HOLD] = TO(HELD),
			[KVR_LIFE_SEND] = TO(DISPATCHED),
			[KVR_LIFE_FAIL] = TO(ENDED),
			[KVR_LIFE_RELEASE] = TO(FREE), /* refused: as if it had never come */
			[KVR_LIFE_CANCEL] = TO(ENDED),
		},
	/* Its worker knows the session only. */
	[KVR_RQ_HELD] =
		{
			[KVR_LIFE_OPENED] = TO(HELD), /* sent next, or failed */
			[KVR_LIFE_SEND] = TO(DISPATCHED),
			[KVR_LIFE_FAIL] = TO(ENDED),
			[KVR_LIFE_CANCEL] = TO(ENDED),
		},
	[KVR_RQ_DISPATCHED] =
		{
			[KVR_LIFE_SEND] = TO(DISPATCHED),
			[KVR_LIFE_FAIL] = TO(ENDED),
			[KVR_LIFE_OPENED] = LATE, /* every copy of an open is answered */
			[KVR_LIFE_TAKEN] = TO(RUNNING),
			[KVR_LIFE_REFUSED] = TO(ENDED),
			[KVR_LIFE_ITEM] = TO(RUNNING), /* instead of the acknowledgement */
			[KVR_LIFE_FIN] = TO(ENDED),
			[KVR_LIFE_CANCEL] = TO(ENDED),
		},
	[KVR_RQ_RUNNING] =
		{
			[KVR_LIFE_FAIL] = TO(ENDED),
			[KVR_LIFE_OPENED] = LATE,
			[KVR_LIFE_TAKEN] = LATE, /* every copy of a DISPATCH is acknowledged */
			[KVR_LIFE_ITEM] = TO(RUNNING),
			[KVR_LIFE_FIN] = TO(ENDED),
			[KVR_LIFE_CANCEL] = TO(ENDED),
		},
	[KVR_RQ_ENDED] =
		{
			[KVR_LIFE_FAIL] = LATE,
			[KVR_LIFE_RELEASE] = TO(FREE),
			[KVR_LIFE_OPENED] = LATE,
			[KVR_LIFE_TAKEN] = LATE,
			[KVR_LIFE_REFUSED] = LATE,
			[KVR_LIFE_ITEM] = LATE,
			[KVR_LIFE_FIN] = LATE, /* repeated until it is acknowledged */
			[KVR_LIFE_ABORT_ACKED] = TO(ENDED),
			[KVR_LIFE_CANCEL] = LATE,
			[KVR_LIFE_FIN_ACKED] = TO(FREE),
		},
};

enum kvr_life_verdict kvr_life(enum kvr_flight_state state, enum kvr_life_event event,
			       enum kvr_flight_state *next)
{
	const uint8_t e =
		(unsigned int)state < KVR_RQ_STATES && (unsigned int)event < KVR_LIFE_EVENTS
			? table[state][event]
			: 0;

	if (next != NULL)
		*next = (e & 0x40u) != 0 ? (enum kvr_flight_state)(e & 0x3fu) : state;
	return (e & 0x40u) != 0 ? KVR_LIFE_GO : e == LATE ? KVR_LIFE_LATE : KVR_LIFE_NEVER;
}

const char *kvr_life_state_name(unsigned int state)
{
	return state < KVR_RQ_STATES ? state_names[state] : "?";
}

const char *kvr_life_event_name(unsigned int event)
{
	return event < KVR_LIFE_EVENTS ? event_names[event] : "?";
}
