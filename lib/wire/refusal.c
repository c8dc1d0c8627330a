/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_refusal.h"

#include "kvr_wire.h"

static const char *const names[KVR_REFUSALS] = {
	[KVR_REFUSAL_NONE] = "-",	   [KVR_REFUSAL_REPEAT] = "repeat",
	[KVR_REFUSAL_END] = "end",	   [KVR_REFUSAL_FIRST] = "first",
	[KVR_REFUSAL_BUSY] = "busy",	   [KVR_REFUSAL_COOKIE] = "cookie",
	[KVR_REFUSAL_RESTART] = "restart", [KVR_REFUSAL_LINGER] = "linger",
	[KVR_REFUSAL_DONE] = "done",	   [KVR_REFUSAL_SLOW] = "slow",
	[KVR_REFUSAL_HELLO] = "hello",	   [KVR_REFUSAL_STOP] = "stop",
	[KVR_REFUSAL_OVER] = "over",	   [KVR_REFUSAL_ITEM] = "item",
};

/* Codes about the lack of room for this copy, not about the request. */
static bool no_room(unsigned int code)
{
	return code == KVR_E_BUSY || code == KVR_E_NO_MEMORY || code == KVR_E_RATE_LIMITED ||
	       code == KVR_E_SOURCE_LIMIT;
}

/* Of POTENTIAL_LOADS, and of a ROUTE with a code of a frame. */
static enum kvr_refusal of_question(unsigned int code)
{
	if (code == KVR_E_REASSEMBLY_FULL)
		return KVR_REFUSAL_REPEAT;
	return code == KVR_E_COOKIE ? KVR_REFUSAL_COOKIE : KVR_REFUSAL_END;
}

static enum kvr_refusal of_route(unsigned int code)
{
	if (no_room(code))
		return KVR_REFUSAL_BUSY;
	if (code == KVR_E_UNKNOWN_REQUEST)
		return KVR_REFUSAL_RESTART;
	if (code == KVR_E_ENDED)
		return KVR_REFUSAL_LINGER;
	if (code == KVR_E_DUPLICATE_REQUEST ||
	    (code <= KVR_E_NOT_ALLOWED && of_question(code) == KVR_REFUSAL_END))
		return KVR_REFUSAL_FIRST;
	return of_question(code);
}

/* A PROBE that was malformed or found no room is repeated. Any other code is the answer: a request
 * that moves may have to wait, and its source may have reached its quota. */
static enum kvr_refusal of_probe(unsigned int code)
{
	if (code == KVR_E_UNKNOWN_REQUEST)
		return KVR_REFUSAL_RESTART;
	if (code == KVR_E_ENDED)
		return KVR_REFUSAL_LINGER;
	if (code == KVR_E_NOT_ALLOWED || code == KVR_E_SOURCE_LIMIT)
		return KVR_REFUSAL_END;
	return code < KVR_E_UNKNOWN_POOL || code == KVR_E_BUSY ? KVR_REFUSAL_REPEAT
							       : KVR_REFUSAL_END;
}

/* The router does not recognize this agent. */
static bool not_us(unsigned int code)
{
	return code == KVR_E_NOT_ALLOWED || code == KVR_E_UNKNOWN_WORKER ||
	       code == KVR_E_STALE_EPOCH;
}

static enum kvr_refusal of_worker(unsigned int code)
{
	return not_us(code) ? KVR_REFUSAL_HELLO : KVR_REFUSAL_REPEAT;
}

static enum kvr_refusal of_report(unsigned int code)
{
	return code == KVR_E_UNKNOWN_REQUEST || code == KVR_E_ENDED ? KVR_REFUSAL_STOP
								    : of_worker(code);
}

enum kvr_refusal kvr_refusal(uint8_t kind, unsigned int code, bool retryable)
{
	switch (kind) {
	case KVR_ROUTE:
		return of_route(code);
	case KVR_POTENTIAL_LOADS:
		return of_question(code);
	case KVR_PROBE:
		return of_probe(code);
	case KVR_CONNECT:
	case KVR_SESSION_RELEASE:
		return retryable ? KVR_REFUSAL_REPEAT : KVR_REFUSAL_END;
	case KVR_CANCEL:
	case KVR_GOODBYE:
		return retryable ? KVR_REFUSAL_REPEAT : KVR_REFUSAL_DONE;
	case KVR_HELLO:
		return retryable ? KVR_REFUSAL_REPEAT : KVR_REFUSAL_SLOW;
	case KVR_HEARTBEAT:
		/* Also sent unsolicited, by a router that stops. */
		return code == KVR_E_SHUTDOWN ? KVR_REFUSAL_OVER : of_worker(code);
	case KVR_KV_EVENTS:
		return of_worker(code);
	case KVR_RESPONSE:
		return code == KVR_E_TOO_LARGE ? KVR_REFUSAL_ITEM : of_report(code);
	case KVR_PROGRESS:
		return of_report(code);
	default:
		return KVR_REFUSAL_NONE;
	}
}

const char *kvr_refusal_name(enum kvr_refusal what)
{
	return names[what];
}
