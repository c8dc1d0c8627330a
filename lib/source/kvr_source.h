/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SOURCE_H
#define KVR_SOURCE_H

/**
 * @file
 * Who asks, and how often. A *source* is what shares are given to: an IPv4 address, or the /64 of
 * an IPv6 address, never a UDP port, as ports cost nothing. A table holds what one lcore knows of
 * each source it has heard lately: three token buckets, and its part of the requests.
 *
 * The table is fixed and seeded at random. A source is forgotten only after KVR_SOURCE_IDLE_NS of
 * silence, so nobody can push out another by inventing addresses: when the places of a key are all
 * taken, the newcomer shares an entry with its neighbours (IPv4 /24, IPv6 /48), and when those have
 * none either, with everybody who has none. Frames whose address is proven (kvr_cookie.h) and
 * frames whose address may be forged belong into two tables.
 *
 * Pure; one owner, no locking. A lookup touches two cache lines; about 10 ns.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kvr_path.h"
#include "kvr_rand.h"

#define KVR_SOURCE_IDLE_NS   UINT64_C(10000000000)
#define KVR_SOURCE_WINDOW_NS UINT64_C(16777216) /* 2^24: a window of the share count, 17 ms */

static inline uint64_t kvr_source__be64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return __builtin_bswap64(v);
}

/**
 * The source a path belongs to; never 0, never equal for two sources of different families. Hosts
 * on a link (fe80::/10) all have one /64: there it is the host.
 */
static inline uint64_t kvr_source_key(const struct kvr_path *p)
{
	const uint64_t net = kvr_source__be64(p->ip), host = kvr_source__be64(p->ip + 8);

	if (p->family == 4)
		return host; /* ::ffff:a.b.c.d */
	if (net >> 54 == 0xfe80u >> 6)
		return UINT64_C(0xfe80) << 48 | kvr_mix64(host) >> 16;
	return net != 0 ? net : 1;
}

/** A token bucket's limit; see kvr_source_take(). Zeroed: no limit. */
struct kvr_source_rate {
	uint64_t each_ns;  /* between two at the steady rate; 0: no limit */
	uint64_t burst_ns; /* each_ns times what may come at once, less one */
};

/** A bucket for @p per_s (0: no limit) with @p burst at once (0 counts as 1). */
struct kvr_source_rate kvr_source_rate(uint32_t per_s, uint32_t burst);

/** The buckets of a source. */
enum kvr_source_bucket {
	KVR_SOURCE_REQUESTS,
	KVR_SOURCE_ANSWERS, /* to frames that are refused */
	KVR_SOURCE_CONTROL, /* CONNECT, HELLO */
	KVR_SOURCE_BUCKETS
};

/** What is known of one source; a line. Counters wrap. */
struct kvr_source {
	uint64_t key;			      /* 0: free */
	uint64_t seen_ns;		      /* last frame */
	uint64_t full_ns[KVR_SOURCE_BUCKETS]; /* when the bucket is full again */
	uint32_t window;		      /* number of the window that `count` ends in */
	uint32_t count;			      /* requests of late, halved every window */
	uint32_t requests;
	uint32_t rejected; /* for its own excess */
	uint64_t pad;
} __rte_cache_aligned;

struct kvr_source_table;

/**
 * Room for @p n sources (a power of two, 8 to 2^20). @p seed random per start.
 * @return NULL with errno EINVAL, ENOMEM.
 */
struct kvr_source_table *kvr_source_create(uint32_t n, uint64_t seed);

/** NULL is accepted. */
void kvr_source_destroy(struct kvr_source_table *t);

/**
 * The entry to charge frames of @p key to: its own, or the one it has to share. Makes it when it
 * is new. @p now_ns never falls. Never NULL; valid until the next call.
 */
struct kvr_source *kvr_source_get(struct kvr_source_table *t, uint64_t key, uint64_t now_ns);

/** The source's own entry when it has been heard within KVR_SOURCE_IDLE_NS; else NULL. */
const struct kvr_source *kvr_source_find(const struct kvr_source_table *t, uint64_t key,
					 uint64_t now_ns);

/** Take one from a bucket. @return false: it is empty. */
static inline bool kvr_source_take(struct kvr_source *s, enum kvr_source_bucket b,
				   const struct kvr_source_rate *r, uint64_t now_ns)
{
	const uint64_t full = s->full_ns[b] > now_ns ? s->full_ns[b] : now_ns;

	if (r->each_ns == 0)
		return true;
	if (full - now_ns > r->burst_ns)
		return false;
	s->full_ns[b] = full + r->each_ns;
	return true;
}

/** Count a request of @p s, one of @p t's entries, into its share of late. */
void kvr_source_count(struct kvr_source_table *t, struct kvr_source *s, uint64_t now_ns);

/** A part of what the busiest source has made: 2^16 is all of it. */
#define KVR_SOURCE_ALL 65536u

/**
 * Whether a request that @p s has made, and that was counted, is within what a source may have: as
 * many as @p part / KVR_SOURCE_ALL of what the busiest of @p t has made of late. A source that has
 * made fewer always is; of one that has made more that share is let in by @p draw, which is random
 * in [0, KVR_SOURCE_ALL). So all who want more get the same.
 */
bool kvr_source_within_quota(const struct kvr_source_table *t, const struct kvr_source *s,
			     uint32_t part, uint32_t draw, uint64_t now_ns);

/** Entries that one kvr_source_top() looks at: about 10 us. */
#define KVR_SOURCE_SLICE 512u

/**
 * The busiest by requests of late, busiest first, a slice of the table a call: @p *at is 0 at first
 * and UINT32_MAX when all have been looked at. Keeps the best @p n of those in @p out, which has
 * @p got already. @return how many there are now. Owner.
 */
uint32_t kvr_source_top(const struct kvr_source_table *t, uint64_t now_ns, uint32_t *at,
			struct kvr_source out[], uint32_t got, uint32_t n);

/** Sources that have an entry of their own, and gets that had to share one. */
uint32_t kvr_source_used(const struct kvr_source_table *t, uint64_t now_ns);
uint64_t kvr_source_shared(const struct kvr_source_table *t);

/** "10.0.0.1", "fd00:1:2:3::/64", "10.0.0.0/24" for shared entries, "others". */
const char *kvr_source_text(uint64_t key, char *buf, size_t len);
#define KVR_SOURCE_TEXT 56

#endif
