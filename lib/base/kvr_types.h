/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_TYPES_H
#define KVR_TYPES_H

/**
 * @file
 * Shared enumerations: roles of pools, legs and ways of a request, tiers of a cache. Each is one
 * list X(NAME, "name", ...) that generates the enumeration and its table of names. Numbers are
 * those of the wire and never change.
 *
 * Pure functions, any thread. Names are those of Dynamo, except that Dynamo's "path" of a request
 * is a way here: a path is a network path (kvr_path.h).
 *
 * Not here: the sides of the protocol that may send a kind of frame (KVR_ROLE_BIT_*, kvr_frame.h),
 * codes of a rejection (protocol.h), and the reaction to one (kvr_refusal.h).
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
/* clang-format on */

#define KVR_TYPES_ROLE(name, text, number) KVR_ROLE_##name = number,
#define KVR_TYPES_LEG(name, text, number)  KVR_LEG_##name = number,
#define KVR_TYPES_WAY(name, text, number)  KVR_WAY_##name = number,
#define KVR_TYPES_TIER(name, text, number) KVR_TIER_##name = number,

enum kvr_role { KVR_TYPES_ROLES(KVR_TYPES_ROLE) KVR_ROLES };
enum kvr_leg_id { KVR_TYPES_LEGS(KVR_TYPES_LEG) KVR_LEGS };
enum kvr_way { KVR_TYPES_WAYS(KVR_TYPES_WAY) KVR_WAYS };
enum kvr_tier { KVR_TYPES_TIERS(KVR_TYPES_TIER) KVR_TIERS };

/** Name of a value; "?" for an unknown number. */
const char *kvr_role_name(unsigned int role);
const char *kvr_leg_name(unsigned int leg);
const char *kvr_way_name(unsigned int way);
const char *kvr_tier_name(unsigned int tier);

/** Number of a name, or -1. */
int kvr_role_find(const char *text);
int kvr_tier_find(const char *text);

/** All roles in order, then NULL: the choices of an option. */
extern const char *const kvr_role_names[];

#ifdef __cplusplus
}
#endif

#endif
