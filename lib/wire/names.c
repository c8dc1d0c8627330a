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
	[KVR_ACCEPTED] = {"ACCEPTED", FIXED(accepted), R, C, false, false},
	[KVR_REJECTED] = {"REJECTED", KVR_WIRE_REJECTED_LEAST, SIZE(rejected) + 256, R, C | A, false, false},
	[KVR_CANCEL] = {"CANCEL", 0, 0, C, R, false, true},
	[KVR_CANCELLED] = {"CANCELLED", 0, 0, R, C, false, false},
	[KVR_PROBE] = {"PROBE", 0, 8, C, R, false, true},
	[KVR_MISSING] = {"MISSING", SIZE(missing) + 8, ONE, A | R, C | R, false, false},
	[KVR_DISPATCH] = {"DISPATCH", REQUEST, R, A, true, false},
	[KVR_DISPATCH_ACK] = {"DISPATCH_ACK", FIXED(dispatch_ack), A, R, false, false},
	[KVR_RESPONSE] = {"RESPONSE", SIZE(response), ONE, A | R, C | R, false, true},
	[KVR_RESPONSE_ACK] = {"RESPONSE_ACK", FIXED(response_ack), C | R, A | R, false, false},
	[KVR_PROGRESS] = {"PROGRESS", FIXED(progress), A, R, false, true},
	[KVR_PROGRESS_ACK] = {"PROGRESS_ACK", FIXED(progress_ack), R, A, false, false},
	[KVR_ABORT] = {"ABORT", FIXED(abort), R, A, false, false},
	[KVR_ABORT_ACK] = {"ABORT_ACK", 0, 0, A, R, false, false},
	[KVR_HELLO] = {"HELLO", SIZE(hello), ONE, A, R, false, true},
	[KVR_WELCOME] = {"WELCOME", FIXED(welcome), R, A, false, false},
	[KVR_HEARTBEAT] = {"HEARTBEAT", SIZE(heartbeat), ONE, A, R, false, true},
	[KVR_HEARTBEAT_ACK] = {"HEARTBEAT_ACK", FIXED(heartbeat_ack), R, A, false, false},
	[KVR_GOODBYE] = {"GOODBYE", 0, 0, A, R, false, true},
	[KVR_GOODBYE_ACK] = {"GOODBYE_ACK", 0, 0, R, A, false, false},
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

static const struct {
	const char *name;
	bool retryable;
} codes[KVR_E_MAX] = {
	[KVR_OK] = {"Ok", false},
	[KVR_E_VERSION] = {"UnknownVersion", false},
	[KVR_E_KIND] = {"UnknownKind", false},
	[KVR_E_LENGTH] = {"BadLength", false},
	[KVR_E_FRAGMENT] = {"BadFragment", false},
	[KVR_E_TOO_LARGE] = {"TooLarge", false},
	[KVR_E_REASSEMBLY_FULL] = {"ReassemblyFull", true},
	[KVR_E_HINT] = {"BadHint", false},
	[KVR_E_FLAGS] = {"BadFlags", false},
	[KVR_E_NOT_ALLOWED] = {"NotAllowed", false},
	[KVR_E_COOKIE] = {"CookieRequired", true},
	[KVR_E_RATE_LIMITED] = {"RateLimited", true},
	[KVR_E_SOURCE_LIMIT] = {"SourceLimit", true},
	[KVR_E_UNKNOWN_POOL] = {"UnknownPool", false},
	[KVR_E_EMPTY_PROMPT] = {"EmptyPrompt", false},
	[KVR_E_PROMPT_TOO_LONG] = {"PromptTooLong", false},
	[KVR_E_INVALID_OVERRIDE] = {"InvalidOverride", false},
	[KVR_E_UNKNOWN_POLICY_CLASS] = {"UnknownPolicyClass", false},
	[KVR_E_INVALID_REQUEST] = {"InvalidRequest", false},
	[KVR_E_UNKNOWN_REQUEST] = {"UnknownRequest", false},
	[KVR_E_ENDED] = {"Ended", false},
	[KVR_E_INVALID_WEIGHT] = {"InvalidWeight", false},
	[KVR_E_NO_ENDPOINTS] = {"NoEndpoints", false},
	[KVR_E_ALL_OVERLOADED] = {"AllEligibleWorkersOverloaded", true},
	[KVR_E_PINNED_NOT_ALLOWED] = {"PinnedWorkerNotAllowed", false},
	[KVR_E_PINNED_OVERLOADED] = {"PinnedWorkerOverloaded", true},
	[KVR_E_DP_RANK_REQUIRED] = {"DpRankRequired", false},
	[KVR_E_WORKER_ID_REQUIRED] = {"WorkerIdRequired", false},
	[KVR_E_QUEUE_REJECTED] = {"QueueRejected", true},
	[KVR_E_NOT_ACTIVATED] = {"NotActivated", true},
	[KVR_E_DUPLICATE_REQUEST] = {"DuplicateRequest", false},
	[KVR_E_BUSY] = {"Busy", true},
	[KVR_E_NO_MEMORY] = {"NoMemory", true},
	[KVR_E_DISPATCH_FAILED] = {"DispatchFailed", true},
	[KVR_E_WORKER_LOST] = {"WorkerLost", true},
	[KVR_E_EXPIRED] = {"Expired", false},
	[KVR_E_SHUTDOWN] = {"Shutdown", true},
	[KVR_E_PREFILL_FAILED] = {"PrefillFailed", true},
	[KVR_E_SESSION_OPEN_FAILED] = {"SessionOpenFailed", false},
	[KVR_E_SESSION_LIMIT] = {"SessionLimit", true},
	[KVR_E_UNKNOWN_SESSION] = {"UnknownSession", false},
	[KVR_E_INVALID_SESSION] = {"InvalidSession", false},
	[KVR_E_SESSION_WORKER_GONE] = {"SessionWorkerGone", false},
	[KVR_E_UNKNOWN_WORKER] = {"UnknownWorker", false},
	[KVR_E_STALE_EPOCH] = {"StaleEpoch", false},
	[KVR_E_WORKER_CONFIG] = {"WorkerConfig", false},
	[KVR_E_WORKER_LIMIT] = {"WorkerLimit", false},
	[KVR_E_WORKER_ALIVE] = {"WorkerAlive", true},
};

const struct kvr_kind_info *kvr_kind_info(uint8_t kind)
{
	return kind < KVR_WIRE_KIND_MAX && kinds[kind].name != NULL ? &kinds[kind] : NULL;
}

const char *kvr_wire_kind_name(uint8_t kind)
{
	const struct kvr_kind_info *k = kvr_kind_info(kind);

	return k == NULL ? "?" : k->name;
}

const char *kvr_code_name(unsigned int code)
{
	return code < KVR_E_MAX && codes[code].name != NULL ? codes[code].name : "?";
}

bool kvr_code_retryable(unsigned int code)
{
	return code < KVR_E_MAX && codes[code].retryable;
}
