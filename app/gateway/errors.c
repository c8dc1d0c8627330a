/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables of errors by fault and by protocol code. */
#include "errors.h"

#include <stdio.h>
#include <string.h>

#include "kvr_json.h"

#define INVALID	 "invalid_request_error"
#define MISSING	 "not_found_error"
#define LIMITED	 "rate_limit_error"
#define SERVER	 "server_error"
#define OVERLOAD "overloaded_error"

static const struct {
	struct gw_error e;
	const char *text;
} faults[GW_FAULTS] = {
	[GW_BAD_REQUEST] = {{400, INVALID, "invalid_request", 0}, "the request is not valid"},
	[GW_NO_ROUTE] = {{404, MISSING, "unknown_url", 0}, "unknown path"},
	[GW_NO_METHOD] = {{405, INVALID, "method_not_allowed", 0}, "method not allowed"},
	[GW_NO_MODEL] = {{404, MISSING, "model_not_found", 0}, "unknown model"},
	[GW_NO_LEASE] = {{404, MISSING, "unknown_booking", 0}, "unknown booking"},
	[GW_LEASE_GONE] = {{410, MISSING, "booking_ended", 0}, "the booking has ended"},
	[GW_REQUEST_SLOW] = {{408, INVALID, "request_timeout", 0},
			     "the request did not arrive completely in time"},
	[GW_BODY_TOO_LARGE] = {{413, INVALID, "request_too_large", 0}, "the request is too large"},
	[GW_TOO_MANY] = {{429, LIMITED, "too_many_requests", 1}, "too many active requests"},
	[GW_SOURCE_SHARE] =
		{{429, LIMITED, "too_many_from_address", 1},
		 "the limit of connections, requests or memory of this client address is reached"},
	[GW_CLIENT_GONE] = {{499, INVALID, "client_closed_request", 0},
			    "the client closed the connection"},
	[GW_ENGINE_GARBAGE] = {{502, SERVER, "bad_gateway", 0},
			       "the engine's answer is not an HTTP response"},
	[GW_ENGINE_FAILED] = {{502, SERVER, "engine_failed", 0}, "the engine failed"},
	[GW_ROUTER_LOST] = {{502, SERVER, "router_lost", 1}, "the router lost the request"},
	[GW_NO_ROUTER] = {{503, SERVER, "no_router", 1}, "no router answers"},
	[GW_TIMED_OUT] = {{503, SERVER, "timeout", 0}, "the time limit of the request has passed"},
	[GW_STOPPING] = {{503, SERVER, "stopping", 1}, "the gateway is stopping"},
	[GW_OUT_OF_MEMORY] = {{503, SERVER, "out_of_memory", 1}, "out of memory"},
	[GW_BODY_NOT_TAKEN] =
		{{503, SERVER, "body_not_taken", 1},
		 "the worker did not accept the body in time (it lacks memory, or is unreachable), and the body is too large for the router"},
	[GW_FULL] = {{503, SERVER, "gateway_full", 1},
		     "the memory limit of requests and answers is reached"},
	[GW_READER_TOO_SLOW] = {{499, INVALID, "client_too_slow", 0},
				"the client did not read its answer"},
};

/* Rows by code. A missing code is an error between gateway and router. */
static const struct gw_error codes[KVR_E_MAX] = {
	[KVR_E_TOO_LARGE] = {413, INVALID, NULL, 0},
	[KVR_E_REASSEMBLY_FULL] = {503, SERVER, NULL, 1},
	[KVR_E_HINT] = {400, INVALID, NULL, 0},
	[KVR_E_NOT_ALLOWED] = {502, SERVER, NULL, 0},
	[KVR_E_RATE_LIMITED] = {429, LIMITED, NULL, 1},
	[KVR_E_SOURCE_LIMIT] = {429, LIMITED, NULL, 1},
	[KVR_E_UNKNOWN_POOL] = {404, MISSING, "model_not_found", 0},
	[KVR_E_EMPTY_PROMPT] = {400, INVALID, NULL, 0},
	[KVR_E_PROMPT_TOO_LONG] = {400, INVALID, "context_length_exceeded", 0},
	[KVR_E_INVALID_OVERRIDE] = {400, INVALID, NULL, 0},
	[KVR_E_UNKNOWN_POLICY_CLASS] = {400, INVALID, NULL, 0},
	[KVR_E_INVALID_REQUEST] = {400, INVALID, NULL, 0},
	[KVR_E_INVALID_WEIGHT] = {400, INVALID, NULL, 0},
	[KVR_E_NO_ENDPOINTS] = {503, SERVER, NULL, 1},
	[KVR_E_ALL_OVERLOADED] = {529, OVERLOAD, NULL, 1},
	[KVR_E_PINNED_NOT_ALLOWED] = {400, INVALID, NULL, 0},
	[KVR_E_PINNED_OVERLOADED] = {529, OVERLOAD, NULL, 1},
	[KVR_E_DP_RANK_REQUIRED] = {400, INVALID, NULL, 0},
	[KVR_E_WORKER_ID_REQUIRED] = {400, INVALID, NULL, 0},
	[KVR_E_QUEUE_REJECTED] = {429, LIMITED, NULL, 1},
	[KVR_E_NOT_ACTIVATED] = {503, SERVER, NULL, 1},
	[KVR_E_BUSY] = {503, SERVER, NULL, 1},
	[KVR_E_NO_MEMORY] = {503, SERVER, NULL, 1},
	[KVR_E_DISPATCH_FAILED] = {502, SERVER, NULL, 1},
	[KVR_E_WORKER_LOST] = {502, SERVER, NULL, 1},
	[KVR_E_EXPIRED] = {503, SERVER, NULL, 0},
	[KVR_E_SHUTDOWN] = {503, SERVER, NULL, 1},
	[KVR_E_PREFILL_FAILED] = {502, SERVER, NULL, 1},
	[KVR_E_SESSION_OPEN_FAILED] = {502, SERVER, NULL, 0},
	[KVR_E_SESSION_LIMIT] = {429, LIMITED, NULL, 1},
	[KVR_E_UNKNOWN_SESSION] = {404, MISSING, NULL, 0},
	[KVR_E_INVALID_SESSION] = {400, INVALID, NULL, 0},
	[KVR_E_SESSION_WORKER_GONE] = {502, SERVER, NULL, 0},
};

const struct gw_error *gw_error_fault(enum gw_fault fault)
{
	return &faults[fault].e;
}

const char *gw_error_text(enum gw_fault fault)
{
	return faults[fault].text;
}

struct gw_error gw_error_code(unsigned int code, bool retryable)
{
	struct gw_error e = {502, SERVER, NULL, 0};

	if (code < KVR_E_MAX && codes[code].status != 0)
		e = codes[code];
	if (e.code == NULL)
		e.code = kvr_code_name(code);
	if (!retryable)
		e.retry_s = 0;
	else if (e.retry_s == 0)
		e.retry_s = 1;
	return e;
}

struct gw_error gw_error_refused(const struct kvr_client_end *e)
{
	static const struct gw_error prefill[] = {
		{400, INVALID, "prefill_refused", 0},
		{404, MISSING, "prefill_refused", 0},
		{413, INVALID, "prefill_refused", 0},
	};

	for (unsigned int i = 0; i < sizeof(prefill) / sizeof(prefill[0]); i++)
		if (e->code == KVR_E_PREFILL_FAILED && e->detail[0] == (uint64_t)prefill[i].status)
			return prefill[i];
	return gw_error_code(e->code, e->retryable);
}

enum gw_fault gw_error_reason(enum kvr_client_reason reason)
{
	switch (reason) {
	case KVR_CLIENT_CANCELLED:
		return GW_ENGINE_FAILED; /* stopped, but not by this gateway */
	case KVR_CLIENT_TIMEOUT:
		return GW_TIMED_OUT;
	case KVR_CLIENT_LOST:
		return GW_ROUTER_LOST;
	case KVR_CLIENT_CLOSED:
	case KVR_CLIENT_SILENT:
		return GW_NO_ROUTER;
	default:
		return GW_ENGINE_FAILED;
	}
}

const char *gw_error_message(const struct kvr_client_end *e, char *buf, size_t size)
{
	const bool more = e->text != NULL && e->text[0] != '\0';

	snprintf(buf, size, "%s%s%s", gw_error_text(gw_error_reason(e->reason)), more ? ": " : "",
		 more ? e->text : "");
	return buf;
}

size_t gw_error_json(const struct gw_error *e, const char *message, char *buf, size_t size)
{
	size_t n = (size_t)snprintf(buf, size, "{\"error\":{\"message\":");
	int64_t m;

	/* The text after the message has less than 128 bytes. */
	m = kvr_json_quote(message, strlen(message), buf + n, size - n - 128);
	if (m < 0)
		m = kvr_json_quote("error", 5, buf + n, size - n - 128);
	n += (size_t)m;
	n += (size_t)snprintf(buf + n, size - n,
			      ",\"type\":\"%s\",\"param\":null,\"code\":", e->type);
	if (e->code != NULL)
		n += (size_t)snprintf(buf + n, size - n, "\"%s\"}}", e->code);
	else
		n += (size_t)snprintf(buf + n, size - n, "null}}");
	return n;
}
