/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_TYPES_H
#define KVR_TYPES_H

/**
 * @file
 * The words that everybody uses, once: roles of pools, legs and ways of a request, tiers of a
 * cache, codes of a refusal. Each is a list X(NAME, "name", ...) from which enumerations and
 * tables are made, so a word cannot be there without its text, nor its text differ from file to
 * file. Numbers are those of the wire, where they never change.
 *
 * Pure, any thread. Names are those of the behaviour specification, except that its "path" of a
 * request is a way here, because a path is one through the network (kvr_path.h).
 *
 * Not here: who may send a kind of frame (KVR_ROLE_BIT_*, kvr_frame.h) is a side of the protocol,
 * not a role of a pool; what to do about a refusal (kvr_refusal.h) depends on the kind refused.
 */

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** X(NAME, "name", number): role of a pool, and the phase of a request that it serves. */
#define KVR_TYPES_ROLES(X)                                                                         \
	X(AGGREGATED, "aggregated", 0)                                                             \
	X(PREFILL, "prefill", 1)                                                                   \
	X(DECODE, "decode", 2)

/** X(NAME, "name", number): part of a request; the main leg is the one that answers. */
#define KVR_TYPES_LEGS(X)                                                                          \
	X(MAIN, "main", 0)                                                                         \
	X(PREFILL, "prefill", 1)

/* clang-format off */
/** X(NAME, "name", number): how a request is served. */
#define KVR_TYPES_WAYS(X) \
	X(AGGREGATED, "aggregated", 0) /* one worker does all */ \
	X(BOOTSTRAP, "bootstrap", 1)   /* prefill and decode leg at once; they find each other */ \
	X(SYNC, "sync", 2)	       /* prefill leg first, its result goes with the decode leg */ \
	X(BYPASSED, "bypassed", 3)     /* there is a prefill pool, and this request does not use it */

/** X(NAME, "name", number): where a block of KV cache lies, nearest first. */
#define KVR_TYPES_TIERS(X) \
	X(DEVICE, "device", 0) \
	X(HOST, "host_pinned", 1) \
	X(DISK, "disk", 2) \
	X(EXTERNAL, "external", 3)

/** X(NAME, "Name", may succeed later, number): why something is refused. */
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
	X(NOT_ALLOWED, "NotAllowed", false, 9)	    /* this source address or side may not send this */ \
	/* the sender */ \
	X(COOKIE, "CookieRequired", true, 10)	    /* at once, with the cookie of detail[0] */ \
	X(RATE_LIMITED, "RateLimited", true, 11)    /* more requests than a source may send */ \
	X(SOURCE_LIMIT, "SourceLimit", true, 12)    /* its share; detail: which, what it has, may have */ \
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
	X(NO_ENDPOINTS, "NoEndpoints", false, 48)   /* a refusal says true after a restart */ \
	X(ALL_OVERLOADED, "AllEligibleWorkersOverloaded", true, 49) \
	X(PINNED_NOT_ALLOWED, "PinnedWorkerNotAllowed", false, 50) \
	X(PINNED_OVERLOADED, "PinnedWorkerOverloaded", true, 51) \
	X(DP_RANK_REQUIRED, "DpRankRequired", false, 52) /* pinned to a worker of several */ \
	X(WORKER_ID_REQUIRED, "WorkerIdRequired", false, 53) /* direct mode without a pin */ \
	X(QUEUE_REJECTED, "QueueRejected", true, 54) /* a limit of the policy class */ \
	X(NOT_ACTIVATED, "NotActivated", true, 55)  /* the prefill pool */ \
	X(DUPLICATE_REQUEST, "DuplicateRequest", false, 56) /* live id sent again with other content */ \
	/* the router */ \
	X(BUSY, "Busy", true, 64)		    /* an internal ring is full */ \
	X(NO_MEMORY, "NoMemory", true, 65)	    /* a pool is exhausted (requests, buffers) */ \
	X(DISPATCH_FAILED, "DispatchFailed", true, 66) /* the worker refused */ \
	X(WORKER_LOST, "WorkerLost", true, 67)	    /* the worker died with the request */ \
	X(EXPIRED, "Expired", false, 68)	    /* age limit of a booking, or deadline */ \
	X(SHUTDOWN, "Shutdown", true, 69)	    /* elsewhere: the router is stopping */ \
	X(PREFILL_FAILED, "PrefillFailed", true, 70) /* the prefill leg */ \
	/* sessions */ \
	X(SESSION_OPEN_FAILED, "SessionOpenFailed", false, 80) \
	X(SESSION_LIMIT, "SessionLimit", true, 81) \
	X(UNKNOWN_SESSION, "UnknownSession", false, 82) \
	X(INVALID_SESSION, "InvalidSession", false, 83) /* id, action or timeout is not legal */ \
	X(SESSION_WORKER_GONE, "SessionWorkerGone", false, 84) \
	/* workers */ \
	X(UNKNOWN_WORKER, "UnknownWorker", false, 96) /* say HELLO (again) */ \
	X(STALE_EPOCH, "StaleEpoch", false, 97) \
	X(WORKER_CONFIG, "WorkerConfig", false, 98) /* a field does not fit the pool */ \
	X(WORKER_LIMIT, "WorkerLimit", false, 99)   /* no room for more workers or ranks */ \
	X(WORKER_ALIVE, "WorkerAlive", true, 100)   /* another address speaks for the worker */
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

/** Their texts; "?" for a number without a word. */
const char *kvr_role_name(unsigned int role);
const char *kvr_leg_name(unsigned int leg);
const char *kvr_way_name(unsigned int way);
const char *kvr_tier_name(unsigned int tier);
const char *kvr_code_name(unsigned int code);

/** Whether the same request may succeed later; false for a number without a word. */
bool kvr_code_retryable(unsigned int code);

/** The number of a text, or -1. */
int kvr_role_find(const char *text);
int kvr_tier_find(const char *text);

/** All roles in order, then NULL: the choices of an option. */
extern const char *const kvr_role_names[];

#ifdef __cplusplus
}
#endif

#endif
