/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_QUOTA_H
#define KVR_QUOTA_H

/**
 * @file
 * Quotas of sources for resources with a fixed number of units: request slots, waiting requests,
 * sessions. The last sixteenth of the units is reserved for sources that hold few (nothing is
 * reserved of fewer than 16). A source may hold
 *
 *   limit = max(times * (free - n / 16), 1, free / 64)
 *
 * The first term is the dynamic threshold of Choudhury and Hahne. Of 15/16 of all units, a lone
 * source gets times / (1 + times) and leaves the rest to others; m sources with unlimited demand
 * get times / (1 + m * times) each. The number of sources need not be known. The threshold works
 * only if units are returned: sources that arrive one after the other and return nothing each leave
 * one third of the rest, and soon nothing. Therefore the other terms apply to the reserved
 * sixteenth: there a source may hold a 64th of the free units, and at least one. A source that
 * holds nothing gets a unit while any is free. To take all units, more than n / 16 addresses are
 * needed for n up to 1,024, and 280 for n = 16,384.
 *
 * The IPv6 sources (/64) of one /48 also have a common quota of the same size, as the owner of one
 * /64 often has the other 65,535.
 *
 * A source has an entry only while it holds units, so there are never more entries than units and
 * no source can exhaust them. Buckets are seeded at random. Pure; one owner thread, no locks; one
 * or two cache lines per call, about 15 ns.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvr_quota;

/** The limit that kvr_quota_allows() applied. */
struct kvr_quota_state {
	uint64_t held; /* of the source, or of its /48 */
	uint64_t limit;
};

/** One of the sources that hold most. */
struct kvr_quota_top {
	uint64_t key;
	uint32_t held;
};

/** Bytes that kvr_quota_create() allocates from libc and touches. Any thread. */
size_t kvr_quota_bytes(uint32_t sources);

/**
 * Create the quotas of a resource with @p n units (at least 1), held by at most @p sources (1 to
 * 2^26) at the same time. @p times 0: no limit.
 * @return the object, or NULL with errno EINVAL, ENOMEM.
 */
struct kvr_quota *kvr_quota_create(uint32_t n, uint32_t sources, uint32_t times, uint64_t seed);

/** Accepts NULL. */
void kvr_quota_destroy(struct kvr_quota *quota);

/**
 * Return true if source @p key (kvr_source_key()) may take @p n more units while @p free are
 * unused. Otherwise fill @p state (may be NULL) with the limit.
 */
bool kvr_quota_allows(const struct kvr_quota *quota, uint64_t key, uint32_t n, uint64_t free,
		      struct kvr_quota_state *st);

/**
 * Record that the source took @p n units. Does not check kvr_quota_allows(). @return the reference
 * to return them with, never 0.
 */
uint32_t kvr_quota_take(struct kvr_quota *quota, uint64_t key, uint32_t n);

/** Return @p n units that were taken with @p ref; ref 0 is accepted. */
void kvr_quota_return(struct kvr_quota *quota, uint32_t ref, uint32_t n);

/** Units that the source holds. */
uint32_t kvr_quota_held(const struct kvr_quota *quota, uint64_t key);

/** Entries that one kvr_quota_top() reads: about 5 us. */
#define KVR_QUOTA_SLICE 1024u

/**
 * Find the sources that hold most, in descending order, one slice of the entries per call: @p *at
 * is 0 at first and UINT32_MAX when all were read. Keeps the best @p n in @p out, which has @p got
 * already. Owner.
 * @return the number of sources in @p out.
 */
uint32_t kvr_quota_top(const struct kvr_quota *quota, uint32_t *at, struct kvr_quota_top out[],
		       uint32_t got, uint32_t n);

#endif
