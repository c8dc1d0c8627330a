/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_frame.h"

#define C	   KVR_ROLE_BIT_CLIENT
#define A	   KVR_ROLE_BIT_AGENT
#define R	   KVR_ROLE_BIT_ROUTER
#define ONE	   (KVR_WIRE_MAX_FRAME - KVR_WIRE_MIN_FRAME) /* as much as one frame carries */
#define SIZE(type) sizeof(struct kvr_wire_##type)

/* clang-format off */
#define SESSION (SIZE(session) + 8), (SIZE(session) + 256)
#define FIXED(type) SIZE(type), SIZE(type)
#define REQUEST SIZE(request), KVR_WIRE_MAX_MESSAGE
static const struct kvr_kind_info kinds[KVR_WIRE_KIND_MAX] = {
	/* name, least body, largest body, from, to, fragmentable, answerable */
	[KVR_CONNECT] = {"CONNECT", SIZE(connect), ONE, C, R, false, true},
	[KVR_CONNECTED] = {"CONNECTED", SIZE(connected), ONE, R, C, false, false},
	[KVR_ROUTE] = {"ROUTE", REQUEST, C, R, true, true},
	[KVR_ACCEPTED] = {"ACCEPTED", SIZE(accepted), KVR_WIRE_ASKING_LEAST, R, C, false, false},
	[KVR_REJECTED] = {"REJECTED", KVR_WIRE_REJECTED_LEAST, SIZE(rejected) + 256, R, C | A, false, false},
	[KVR_CANCEL] = {"CANCEL", 0, 0, C, R, false, true},
	[KVR_CANCELLED] = {"CANCELLED", 0, 0, R, C, false, false},
	[KVR_PROBE] = {"PROBE", 0, 8, C, R, false, true},
	[KVR_MISSING] = {"MISSING", SIZE(missing) + 8, ONE, C | A | R, C | A | R, false, false},
	[KVR_DISPATCH] = {"DISPATCH", SIZE(request), KVR_WIRE_MAX_DISPATCH, R, A, true, false},
	[KVR_DISPATCH_ACK] = {"DISPATCH_ACK", FIXED(dispatch_ack), A, R, false, false},
	[KVR_RESPONSE] = {"RESPONSE", SIZE(response), KVR_WIRE_MAX_RESPONSE, A | R, C | R, true, true},
	[KVR_RESPONSE_ACK] = {"RESPONSE_ACK", FIXED(response_ack), C | R, A | R, false, false},
	[KVR_PROGRESS] = {"PROGRESS", FIXED(progress), A | C, R, false, true},
	[KVR_PROGRESS_ACK] = {"PROGRESS_ACK", FIXED(progress_ack), R, A | C, false, false},
	[KVR_ABORT] = {"ABORT", FIXED(abort), R, A, false, false},
	[KVR_ABORT_ACK] = {"ABORT_ACK", 0, 0, A, R, false, false},
	[KVR_HELLO] = {"HELLO", SIZE(hello), ONE, A, R, false, true},
	[KVR_WELCOME] = {"WELCOME", FIXED(welcome), R, A, false, false},
	[KVR_HEARTBEAT] = {"HEARTBEAT", SIZE(heartbeat), ONE, A, R, false, true},
	[KVR_HEARTBEAT_ACK] = {"HEARTBEAT_ACK", FIXED(heartbeat_ack), R, A, false, false},
	[KVR_GOODBYE] = {"GOODBYE", 0, 0, A, R, false, true},
	[KVR_GOODBYE_ACK] = {"GOODBYE_ACK", 0, 0, R, A, false, false},
	[KVR_ALIVE] = {"ALIVE", SIZE(alive) + 8, SIZE(alive) + 8 * KVR_WIRE_ALIVE_MOST, A, R, false, false},
	[KVR_KV_EVENTS] = {"KV_EVENTS", SIZE(kv_events), ONE, A, R, false, true},
	[KVR_KV_ACK] = {"KV_ACK", FIXED(kv_ack), R, A, false, false},
	[KVR_SESSION_OPEN] = {"SESSION_OPEN", SESSION, R, A, false, false},
	[KVR_SESSION_OPENED] = {"SESSION_OPENED", FIXED(session_status), A, R, false, false},
	[KVR_SESSION_CLOSE] = {"SESSION_CLOSE", SESSION, R, A, false, false},
	[KVR_SESSION_CLOSED] = {"SESSION_CLOSED", FIXED(session_status), A, R, false, false},
	[KVR_SESSION_RELEASE] = {"SESSION_RELEASE", SESSION, C, R, false, true},
	[KVR_SESSION_RELEASED] = {"SESSION_RELEASED", FIXED(session_status), R, C, false, false},
	[KVR_POTENTIAL_LOADS] = {"POTENTIAL_LOADS", REQUEST, C, R, true, true},
	[KVR_LOADS] = {"LOADS", SIZE(loads), KVR_WIRE_MAX_MESSAGE, R, C, true, false},
};
/* clang-format on */

const struct kvr_kind_info *kvr_kind_info(uint8_t kind)
{
	return kind < KVR_WIRE_KIND_MAX && kinds[kind].name != NULL ? &kinds[kind] : NULL;
}

const char *kvr_wire_kind_name(uint8_t kind)
{
	const struct kvr_kind_info *k = kvr_kind_info(kind);

	return k == NULL ? "?" : k->name;
}
