/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_QUOTA_H
#define KVR_QUOTA_H

/**
 * @file
 * Shares of something there is a fixed number of: request slots, room to wait, sessions. The last
 * sixteenth (nothing of fewer than 16) is kept for those who have little:
 *
 *   may have = max(times * (free - n / 16), 1, free / 64)
 *
 * Its first part is the dynamic threshold of Choudhury and Hahne: of 15/16 of all one source alone
 * gets times / (1 + times) and leaves the rest to others; m that want everything get
 * times / (1 + m * times) each; nobody has to say how many there are. But that holds for what is
 * given back: sources that come one after the other and keep what they have leave the third part of
 * a third, and soon nothing. Therefore the second part: in the kept sixteenth a source may have a
 * 64th of what is free, at least one, and nobody more. Whoever has nothing gets one as long as
 * there is one, and to take all of them more than n / 16 addresses are needed when n is at most
 * 1,024, and 280 when n is 16,384.
 *
 * IPv6 sources (/64) of one /48 share once more in the same way, as whoever has one /64 often has
 * 65,535 others.
 *
 * A source has an entry only while it has something, so there are never more entries than things
 * and nobody can use them up. Buckets are seeded at random. Pure; one owner, no locking; a line or
 * two a call, about 15 ns.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvr_quota;

/** Why kvr_quota_allows() says no. */
struct kvr_quota_state {
	uint64_t held; /* of the source, or of its /48 */
	uint64_t limit;
};

/** One of the sources that have most. */
struct kvr_quota_top {
	uint64_t key;
	uint32_t held;
};

/** Bytes that kvr_quota_create() takes of libc's memory, and touches. Any thread. */
size_t kvr_quota_bytes(uint32_t sources);

/**
 * For @p n things in all (at least 1), that at most @p sources (1 to 2^26) have at one time.
 * @p times 0: everybody may take everything.
 * @return NULL with errno EINVAL, ENOMEM.
 */
struct kvr_quota *kvr_quota_create(uint32_t n, uint32_t sources, uint32_t times, uint64_t seed);

/** NULL is accepted. */
void kvr_quota_destroy(struct kvr_quota *s);

/** Whether source @p key (kvr_source_key()) may have @p n more while @p free are free. When not, @p
 * st, which may be NULL, says why. */
bool kvr_quota_allows(const struct kvr_quota *s, uint64_t key, uint32_t n, uint64_t free,
		      struct kvr_quota_state *st);

/** The source has @p n more. Does not ask kvr_quota_allows(). @return what to give back with, not
 * 0.
 */
uint32_t kvr_quota_take(struct kvr_quota *s, uint64_t key, uint32_t n);

/** @p n of what came with @p ref are free again; ref 0 is accepted. */
void kvr_quota_return(struct kvr_quota *s, uint32_t ref, uint32_t n);

/** What the source has. */
uint32_t kvr_quota_held(const struct kvr_quota *s, uint64_t key);

/** Entries that one kvr_quota_top() looks at: about 5 us. */
#define KVR_QUOTA_SLICE 1024u

/**
 * Those that have most, most first, a slice a call: @p *at is 0 at first and UINT32_MAX when all
 * have been looked at. Keeps the best @p n of those in @p out, which has @p got already. @return
 * how many there are now. Owner.
 */
uint32_t kvr_quota_top(const struct kvr_quota *s, uint32_t *at, struct kvr_quota_top out[],
		       uint32_t got, uint32_t n);

#endif
