/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SOURCE_H
#define KVR_SOURCE_H

/**
 * @file
 * Request rates of sources. A *source* is the unit that quotas apply to: an IPv4 address, or the
 * /64 of an IPv6 address, never a UDP port, as ports cost nothing. A table stores the state that
 * one lcore keeps for each recently active source: three token buckets and the number of recent
 * requests.
 *
 * The table has a fixed size and is seeded at random. A source is removed only after
 * KVR_SOURCE_IDLE_NS without a frame, so invented addresses cannot displace it. If all places for a
 * key are in use, the source shares an entry with its neighbours (IPv4 /24, IPv6 /48); if the
 * neighbours have no place, it shares one entry with all sources without a place. Frames whose
 * address is proven (kvr_cookie.h) and frames whose address may be forged use separate tables.
 *
 * Pure; one owner thread, no locks. A lookup takes two cache lines and about 10 ns.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kvr_path.h"
#include "kvr_rand.h"

#define KVR_SOURCE_IDLE_NS UINT64_C(10000000000)
#define KVR_SOURCE_WINDOW_NS                                                                       \
	UINT64_C(16777216) /* 2^24: a window of the recent request count, 17 ms */

static inline uint64_t kvr_source__be64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return __builtin_bswap64(v);
}

/**
 * The source of a path; never 0, never equal for sources of different families. All hosts of a link
 * (fe80::/10) have the same /64: there the source is the host.
 */
static inline uint64_t kvr_source_key(const struct kvr_path *path)
{
	const uint64_t net = kvr_source__be64(path->ip), host = kvr_source__be64(path->ip + 8);

	if (path->family == 4)
		return host; /* ::ffff:a.b.c.d */
	if (net >> 54 == 0xfe80u >> 6)
		return UINT64_C(0xfe80) << 48 | kvr_mix64(host) >> 16;
	return net != 0 ? net : 1;
}

/** Rate limit of a token bucket; see kvr_source_take(). All zero: no limit. */
struct kvr_source_rate {
	uint64_t each_ns;  /* interval at the steady rate; 0: no limit */
	uint64_t burst_ns; /* each_ns * (burst - 1) */
};

/** Make the rate of @p per_s per second (0: no limit) with a burst of @p burst (0 counts as 1). */
struct kvr_source_rate kvr_source_rate(uint32_t per_s, uint32_t burst);

/** The token buckets of a source. */
enum kvr_source_bucket {
	KVR_SOURCE_REQUESTS,
	KVR_SOURCE_ANSWERS, /* replies to rejected frames */
	KVR_SOURCE_CONTROL, /* CONNECT, HELLO */
	KVR_SOURCE_BUCKETS
};

/** State of one source; one cache line. Counters wrap. */
struct kvr_source {
	uint64_t key;			      /* 0: free */
	uint64_t seen_ns;		      /* time of the last frame */
	uint64_t full_ns[KVR_SOURCE_BUCKETS]; /* time when the bucket is full again */
	uint32_t window;		      /* window of the last update of `count` */
	uint32_t count;			      /* recent requests, halved every window */
	uint32_t requests;
	uint32_t rejected; /* requests rejected because the source exceeded its rate or quota */
	uint64_t pad;
} __rte_cache_aligned;

struct kvr_source_table;

/**
 * Create a table of @p n sources (a power of two, 8 to 2^20). @p seed is random per start.
 * @return the table, or NULL with errno EINVAL, ENOMEM.
 */
struct kvr_source_table *kvr_source_create(uint32_t n, uint64_t seed);

/** Accepts NULL. */
void kvr_source_destroy(struct kvr_source_table *table);

/**
 * Get the entry to charge frames of @p key to, and create it if necessary: the source's own, or a
 * shared one. @p now_ns never decreases. Never NULL; valid until the next call.
 */
struct kvr_source *kvr_source_get(struct kvr_source_table *table, uint64_t key, uint64_t now_ns);

/** The source's own entry if it was active within KVR_SOURCE_IDLE_NS; otherwise NULL. */
const struct kvr_source *kvr_source_find(const struct kvr_source_table *table, uint64_t key,
					 uint64_t now_ns);

/** Take one token from a bucket. @return false if it is empty. */
static inline bool kvr_source_take(struct kvr_source *source, enum kvr_source_bucket b,
				   const struct kvr_source_rate *rate, uint64_t now_ns)
{
	const uint64_t full = source->full_ns[b] > now_ns ? source->full_ns[b] : now_ns;

	if (rate->each_ns == 0)
		return true;
	if (full - now_ns > rate->burst_ns)
		return false;
	source->full_ns[b] = full + rate->each_ns;
	return true;
}

/** Count a request of @p source, an entry of @p table, in its recent requests. */
void kvr_source_count(struct kvr_source_table *table, struct kvr_source *source, uint64_t now_ns);

/** Scale of quotas relative to the busiest source: 2^16 means all of its requests. */
#define KVR_SOURCE_ALL 65536u

/**
 * Return true if a counted request of @p source is within the quota of a source: @p part /
 * KVR_SOURCE_ALL of the recent requests of the busiest source of @p table. A source with fewer
 * recent requests is always within. Of a source with more, that number of requests is admitted at
 * random, by @p draw in [0, KVR_SOURCE_ALL). All sources with higher demand are therefore admitted
 * equally.
 */
bool kvr_source_within_quota(const struct kvr_source_table *table, const struct kvr_source *source,
			     uint32_t part, uint32_t draw, uint64_t now_ns);

/** Entries that one kvr_source_top() reads: about 10 us. */
#define KVR_SOURCE_SLICE 512u

/**
 * Find the sources with the most recent requests, in descending order, one slice of the table per
 * call: @p *at is 0 at first and UINT32_MAX when all were read. Keeps the best @p n in @p out,
 * which has @p got already. Owner.
 * @return the number of sources in @p out.
 */
uint32_t kvr_source_top(const struct kvr_source_table *table, uint64_t now_ns, uint32_t *at,
			struct kvr_source out[], uint32_t got, uint32_t n);

/** Number of sources with their own entry; number of lookups that had to use a shared entry. */
uint32_t kvr_source_used(const struct kvr_source_table *table, uint64_t now_ns);
uint64_t kvr_source_shared(const struct kvr_source_table *table);

/** Format a key: "10.0.0.1", "fd00:1:2:3::/64", "10.0.0.0/24" for shared entries, "others". */
const char *kvr_source_text(uint64_t key, char *buf, size_t len);
#define KVR_SOURCE_TEXT 56

#endif
