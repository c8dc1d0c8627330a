/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of frame kinds: one row names the handlers of all stages. */
#include "lcore/frame_kind.h"

#include "control/thread.h"
#include "event/event.h"
#include "ingress/ingress.h"

const struct frame_kind frame_kinds[KVR_WIRE_KIND_MAX] = {
	/* sent by clients */
	[KVR_CONNECT] = {ingress_to_control, control_connect, false},
	[KVR_ROUTE] = {ingress_request, NULL, true},
	[KVR_POTENTIAL_LOADS] = {ingress_request, NULL, true},
	[KVR_CANCEL] = {request_from_client, NULL, false},
	[KVR_PROBE] = {request_from_client, NULL, false},
	[KVR_RESPONSE_ACK] = {relay_response_ack, NULL, false},
	[KVR_SESSION_RELEASE] = {session_from_client, NULL, false},
	/* sent by agents */
	[KVR_HELLO] = {ingress_hello, control_hello, false},
	[KVR_HEARTBEAT] = {ingress_heartbeat, NULL, false},
	[KVR_ALIVE] = {ingress_alive, NULL, false},
	[KVR_GOODBYE] = {ingress_to_control, control_goodbye, false},
	[KVR_DISPATCH_ACK] = {request_from_agent, NULL, false},
	[KVR_RESPONSE] = {relay_response, NULL, false},
	[KVR_PROGRESS] = {request_from_agent, NULL, false},
	[KVR_ABORT_ACK] = {request_from_agent, NULL, false},
	[KVR_MISSING] = {relay_missing, NULL, false},
	[KVR_KV_EVENTS] = {event_ingress, NULL, false},
	[KVR_SESSION_OPENED] = {session_from_agent, NULL, false},
	[KVR_SESSION_CLOSED] = {session_from_agent, NULL, false},
};
