/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_WORDS_H
#define KVR_WORDS_H

/**
 * @file
 * The words that everybody uses, once: roles of pools, legs and paths of a request, tiers of a
 * cache, reasons of a refusal. Each is a list X(NAME, "name", ...) from which enumerations and
 * tables are made, so a word cannot be there without its text, nor its text differ from file to
 * file. Numbers are those of the wire.
 *
 * Pure, any thread. Names are those of the behaviour specification.
 */

#include <stdbool.h>
#include <stdint.h>

/** X(NAME, "name", number): role of a pool, and phase of a request. */
#define KVR_WORDS_ROLES(X)                                                                         \
	X(AGGREGATED, "aggregated", 0)                                                             \
	X(PREFILL, "prefill", 1)                                                                   \
	X(DECODE, "decode", 2)

/** X(NAME, "name", number): part of a request; the main leg is the one that answers. */
#define KVR_WORDS_LEGS(X)                                                                          \
	X(MAIN, "main", 0)                                                                         \
	X(PREFILL, "prefill", 1)

/** X(NAME, "name", number): how a request of a pair of pools is served. */
#define KVR_WORDS_WAYS(X)                                                                          \
	X(AGGREGATED, "aggregated", 0)                                                             \
	X(BOOTSTRAP, "bootstrap", 1)                                                               \
	X(SYNC, "sync", 2)                                                                         \
	X(BYPASSED, "bypassed", 3)

/** X(NAME, "name", number): where a block of KV cache lies, nearest first. */
#define KVR_WORDS_TIERS(X)                                                                         \
	X(DEVICE, "device", 0)                                                                     \
	X(HOST, "host_pinned", 1)                                                                  \
	X(DISK, "disk", 2)                                                                         \
	X(EXTERNAL, "external", 3)

/* clang-format off */
/** X(NAME, "Name", may succeed later, number on the wire): why something is refused. */
#define KVR_WORDS_WHYS(X) \
	X(OK, "Ok", false, 0) \
	X(VERSION, "UnknownVersion", false, 1) \
	X(KIND, "UnknownKind", false, 2) \
	X(LENGTH, "BadLength", false, 3) \
	X(FRAGMENT, "BadFragment", false, 4) \
	X(TOO_LARGE, "TooLarge", false, 5) \
	X(REASSEMBLY_FULL, "ReassemblyFull", true, 6) \
	X(HINT, "BadHint", false, 7) \
	X(FLAGS, "BadFlags", false, 8) \
	X(NOT_ALLOWED, "NotAllowed", false, 9) \
	X(COOKIE, "CookieRequired", true, 10) \
	X(RATE_LIMITED, "RateLimited", true, 11) \
	X(SOURCE_LIMIT, "SourceLimit", true, 12) \
	X(UNKNOWN_POOL, "UnknownPool", false, 32) \
	X(EMPTY_PROMPT, "EmptyPrompt", false, 33) \
	X(PROMPT_TOO_LONG, "PromptTooLong", false, 34) \
	X(INVALID_OVERRIDE, "InvalidOverride", false, 35) \
	X(UNKNOWN_POLICY_CLASS, "UnknownPolicyClass", false, 36) \
	X(INVALID_REQUEST, "InvalidRequest", false, 37) \
	X(UNKNOWN_REQUEST, "UnknownRequest", false, 38) \
	X(ENDED, "Ended", false, 39) \
	X(INVALID_WEIGHT, "InvalidWeight", false, 40) \
	X(NO_ENDPOINTS, "NoEndpoints", false, 48) \
	X(ALL_OVERLOADED, "AllEligibleWorkersOverloaded", true, 49) \
	X(PINNED_NOT_ALLOWED, "PinnedWorkerNotAllowed", false, 50) \
	X(PINNED_OVERLOADED, "PinnedWorkerOverloaded", true, 51) \
	X(DP_RANK_REQUIRED, "DpRankRequired", false, 52) \
	X(WORKER_ID_REQUIRED, "WorkerIdRequired", false, 53) \
	X(QUEUE_REJECTED, "QueueRejected", true, 54) \
	X(NOT_ACTIVATED, "NotActivated", true, 55) \
	X(DUPLICATE_REQUEST, "DuplicateRequest", false, 56) \
	X(BUSY, "Busy", true, 64) \
	X(NO_MEMORY, "NoMemory", true, 65) \
	X(DISPATCH_FAILED, "DispatchFailed", true, 66) \
	X(WORKER_LOST, "WorkerLost", true, 67) \
	X(EXPIRED, "Expired", false, 68) \
	X(SHUTDOWN, "Shutdown", true, 69) \
	X(PREFILL_FAILED, "PrefillFailed", true, 70) \
	X(SESSION_OPEN_FAILED, "SessionOpenFailed", false, 80) \
	X(SESSION_LIMIT, "SessionLimit", true, 81) \
	X(UNKNOWN_SESSION, "UnknownSession", false, 82) \
	X(INVALID_SESSION, "InvalidSession", false, 83) \
	X(SESSION_WORKER_GONE, "SessionWorkerGone", false, 84) \
	X(UNKNOWN_WORKER, "UnknownWorker", false, 96) \
	X(STALE_EPOCH, "StaleEpoch", false, 97) \
	X(WORKER_CONFIG, "WorkerConfig", false, 98) \
	X(WORKER_LIMIT, "WorkerLimit", false, 99) \
	X(WORKER_ALIVE, "WorkerAlive", true, 100)

/* clang-format on */

#define KVR_WORDS_ROLE(name, text, number)	     KVR_ROLE_IS_##name = number,
#define KVR_WORDS_LEG(name, text, number)	     KVR_LEG_IS_##name = number,
#define KVR_WORDS_WAY(name, text, number)	     KVR_WAY_##name = number,
#define KVR_WORDS_TIER(name, text, number)	     KVR_TIER_IS_##name = number,
#define KVR_WORDS_WHY(name, text, retryable, number) KVR_WHY_##name = number,

enum kvr_role { KVR_WORDS_ROLES(KVR_WORDS_ROLE) KVR_ROLES };
enum kvr_leg_name { KVR_WORDS_LEGS(KVR_WORDS_LEG) KVR_LEGS };
enum kvr_way { KVR_WORDS_WAYS(KVR_WORDS_WAY) KVR_WAYS };
enum kvr_tier { KVR_WORDS_TIERS(KVR_WORDS_TIER) KVR_TIERS };
enum kvr_why { KVR_WORDS_WHYS(KVR_WORDS_WHY) KVR_WHYS };

/** Their texts; "?" for a number without a word. */
const char *kvr_words_role(unsigned int role);
const char *kvr_words_leg(unsigned int leg);
const char *kvr_words_way(unsigned int way);
const char *kvr_words_tier(unsigned int tier);
const char *kvr_words_why(unsigned int why);

/** Whether the same request may succeed later. */
bool kvr_words_retryable(unsigned int why);

/** The number of a text, or -1. */
int kvr_words_role_find(const char *text);
int kvr_words_tier_find(const char *text);

#endif
