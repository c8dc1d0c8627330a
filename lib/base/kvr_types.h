/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_TYPES_H
#define KVR_TYPES_H

/**
 * @file
 * Shared enumerations: roles of pools, legs and ways of a request, tiers of a cache, codes of a
 * rejection. Each is one list X(NAME, "name", ...) that generates the enumeration and its table of
 * names. Numbers are those of the wire and never change.
 *
 * Pure functions, any thread. Names are those of Dynamo, except that Dynamo's "path" of a request
 * is a way here: a path is a network path (kvr_path.h).
 *
 * Not here: the sides of the protocol that may send a kind of frame (KVR_ROLE_BIT_*, kvr_frame.h),
 * and the reaction to a rejection, which depends on the rejected kind (kvr_refusal.h).
 */

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** X(NAME, "name", number): role of a pool, and the phase of a request that the pool serves. */
#define KVR_TYPES_ROLES(X)                                                                         \
	X(AGGREGATED, "aggregated", 0)                                                             \
	X(PREFILL, "prefill", 1)                                                                   \
	X(DECODE, "decode", 2)

/** X(NAME, "name", number): part of a request; the main leg produces the answer. */
#define KVR_TYPES_LEGS(X)                                                                          \
	X(MAIN, "main", 0)                                                                         \
	X(PREFILL, "prefill", 1)

/* clang-format off */
/** X(NAME, "name", number): how a request is served. */
#define KVR_TYPES_WAYS(X) \
	X(AGGREGATED, "aggregated", 0) /* one worker serves both phases */ \
	X(BOOTSTRAP, "bootstrap", 1)   /* both legs start at once and find each other */ \
	X(SYNC, "sync", 2)	       /* prefill leg first; its result is passed to the decode leg */ \
	X(BYPASSED, "bypassed", 3)     /* the prefill pool exists but is not used */

/** X(NAME, "name", number): where a block of KV cache lies, nearest first. */
#define KVR_TYPES_TIERS(X) \
	X(DEVICE, "device", 0) \
	X(HOST, "host_pinned", 1) \
	X(DISK, "disk", 2) \
	X(EXTERNAL, "external", 3)

/** X(NAME, "Name", retryable, number): reason of a rejection. */
#define KVR_TYPES_CODES(X) \
	/* the frame */ \
	X(VERSION, "UnknownVersion", false, 1) \
	X(KIND, "UnknownKind", false, 2)	    /* or not for this receiver */ \
	X(LENGTH, "BadLength", false, 3)	    /* lengths inside the message disagree */ \
	X(FRAGMENT, "BadFragment", false, 4)	    /* overlaps, leaves the message, or changes its length */ \
	X(TOO_LARGE, "TooLarge", false, 5)	    /* message, tokens, hashes, hints or body */ \
	X(REASSEMBLY_FULL, "ReassemblyFull", true, 6) \
	X(HINT, "BadHint", false, 7)		    /* malformed or unknown critical hint */ \
	X(FLAGS, "BadFlags", false, 8)		    /* unknown flag bits or reserved bytes set */ \
	X(NOT_ALLOWED, "NotAllowed", false, 9)	    /* source address or side is not permitted to send it */ \
	/* the sender */ \
	X(COOKIE, "CookieRequired", true, 10)	    /* retry at once with the cookie of detail[0] */ \
	X(RATE_LIMITED, "RateLimited", true, 11)    /* more requests than a source may send */ \
	X(SOURCE_LIMIT, "SourceLimit", true, 12)    /* quota; detail: resource, held, allowed */ \
	/* the request */ \
	X(UNKNOWN_POOL, "UnknownPool", false, 32) \
	X(EMPTY_PROMPT, "EmptyPrompt", false, 33) \
	X(PROMPT_TOO_LONG, "PromptTooLong", false, 34) /* more blocks than the pool takes */ \
	X(INVALID_OVERRIDE, "InvalidOverride", false, 35) \
	X(UNKNOWN_POLICY_CLASS, "UnknownPolicyClass", false, 36) \
	X(INVALID_REQUEST, "InvalidRequest", false, 37) /* contradicting fields */ \
	X(UNKNOWN_REQUEST, "UnknownRequest", false, 38) \
	X(ENDED, "Ended", false, 39)		    /* a late duplicate of a request that has ended */ \
	X(INVALID_WEIGHT, "InvalidWeight", false, 40) /* or priority jump: NaN or infinite */ \
	/* the choice */ \
	X(NO_ENDPOINTS, "NoEndpoints", false, 48)   /* REJECTED: true after a restart */ \
	X(ALL_OVERLOADED, "AllEligibleWorkersOverloaded", true, 49) \
	X(PINNED_NOT_ALLOWED, "PinnedWorkerNotAllowed", false, 50) \
	X(PINNED_OVERLOADED, "PinnedWorkerOverloaded", true, 51) \
	X(DP_RANK_REQUIRED, "DpRankRequired", false, 52) /* pinned to a worker with several ranks */ \
	X(WORKER_ID_REQUIRED, "WorkerIdRequired", false, 53) /* direct mode without a pin */ \
	X(QUEUE_REJECTED, "QueueRejected", true, 54) /* a limit of the policy class */ \
	X(NOT_ACTIVATED, "NotActivated", true, 55)  /* the prefill pool */ \
	X(DUPLICATE_REQUEST, "DuplicateRequest", false, 56) /* live id sent again with different content */ \
	/* the router */ \
	X(BUSY, "Busy", true, 64)		    /* an internal ring is full */ \
	X(NO_MEMORY, "NoMemory", true, 65)	    /* a pool is exhausted (requests, buffers) */ \
	X(DISPATCH_FAILED, "DispatchFailed", true, 66) /* the worker rejected the request */ \
	X(WORKER_LOST, "WorkerLost", true, 67)	    /* the worker died with the request */ \
	X(EXPIRED, "Expired", false, 68)	    /* age limit of a booking, or deadline */ \
	X(SHUTDOWN, "Shutdown", true, 69)	    /* the router is stopping; another may accept */ \
	X(PREFILL_FAILED, "PrefillFailed", true, 70) /* the prefill leg */ \
	/* sessions */ \
	X(SESSION_OPEN_FAILED, "SessionOpenFailed", false, 80) \
	X(SESSION_LIMIT, "SessionLimit", true, 81) \
	X(UNKNOWN_SESSION, "UnknownSession", false, 82) \
	X(INVALID_SESSION, "InvalidSession", false, 83) /* id, action or timeout is not legal */ \
	X(SESSION_WORKER_GONE, "SessionWorkerGone", false, 84) \
	/* workers */ \
	X(UNKNOWN_WORKER, "UnknownWorker", false, 96) /* send HELLO (again) */ \
	X(STALE_EPOCH, "StaleEpoch", false, 97) \
	X(WORKER_CONFIG, "WorkerConfig", false, 98) /* a field does not fit the pool */ \
	X(WORKER_LIMIT, "WorkerLimit", false, 99)   /* no room for more workers or ranks */ \
	X(WORKER_ALIVE, "WorkerAlive", true, 100)   /* another address represents the worker */
/* clang-format on */

#define KVR_TYPES_ROLE(name, text, number)	      KVR_ROLE_##name = number,
#define KVR_TYPES_LEG(name, text, number)	      KVR_LEG_##name = number,
#define KVR_TYPES_WAY(name, text, number)	      KVR_WAY_##name = number,
#define KVR_TYPES_TIER(name, text, number)	      KVR_TIER_##name = number,
#define KVR_TYPES_CODE(name, text, retryable, number) KVR_E_##name = number,

enum kvr_role { KVR_TYPES_ROLES(KVR_TYPES_ROLE) KVR_ROLES };
enum kvr_leg_id { KVR_TYPES_LEGS(KVR_TYPES_LEG) KVR_LEGS };
enum kvr_way { KVR_TYPES_WAYS(KVR_TYPES_WAY) KVR_WAYS };
enum kvr_tier { KVR_TYPES_TIERS(KVR_TYPES_TIER) KVR_TIERS };
enum kvr_code { KVR_OK = 0, KVR_TYPES_CODES(KVR_TYPES_CODE) KVR_E_MAX };

/** Name of a value; "?" for an unknown number. */
const char *kvr_role_name(unsigned int role);
const char *kvr_leg_name(unsigned int leg);
const char *kvr_way_name(unsigned int way);
const char *kvr_tier_name(unsigned int tier);
const char *kvr_code_name(unsigned int code);

/** True if the same request may succeed later; false for an unknown number. */
bool kvr_code_retryable(unsigned int code);

/** Number of a name, or -1. */
int kvr_role_find(const char *text);
int kvr_tier_find(const char *text);

/** All roles in order, then NULL: the choices of an option. */
extern const char *const kvr_role_names[];

#ifdef __cplusplus
}
#endif

#endif
