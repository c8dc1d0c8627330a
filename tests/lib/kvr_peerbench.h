/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_PEERBENCH_H
#define KVR_PEERBENCH_H

/**
 * @file
 * The workload that the reference indexes were measured with, reproduced bit by bit: prefix groups,
 * sequences, events, queries, and the replay of a trace through LRU engines. Tests use its
 * checksums, perf/ uses its operations. Streams are Stream(tag, a) of that definition.
 */

#include "kvr_prefix.h"
#include "kvr_rand.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define PB_GROUPS 128u
#define PB_CUT	  128u

struct pb_events {
	struct kvr_prefix_event *ev;
	uint32_t n, cap;
};

struct pb {
	uint32_t ranks, d, p; /* W, D, P = D / 2 */
	uint64_t entries;     /* stored (worker, block) pairs */
	uint32_t nseq, npair; /* N; (group, worker) pairs */
	uint64_t *prefix;     /* [group][p] sequence hashes */
	uint64_t *suffix;     /* [sequence][d - p] */
	uint64_t *joined;     /* complete sequences, which events point into */
	uint64_t *rev;	      /* hashes of the remove events, in their order */
	uint32_t cap_seq;
	uint8_t *pair_known; /* [group][worker] */
	uint32_t *pair;	     /* group * W + worker, in first-seen order */
	uint64_t *query;     /* [q][d] */
	uint32_t nquery;
	uint8_t *qclass; /* 0 and 1 full, 2 partial, 3 miss */
	struct pb_events store, remove;
};

static inline void *pb_alloc(size_t n)
{
	void *p = malloc(n ? n : 1);

	if (p == NULL) {
		perror("workload");
		exit(1);
	}
	return p;
}

static inline struct kvr_rand pb_stream(uint64_t tag, uint64_t a)
{
	return (struct kvr_rand){kvr_mix64((tag << 56) ^ a)};
}

static inline uint32_t pb_worker(uint64_t i, uint32_t w)
{
	return (uint32_t)(kvr_mix64((UINT64_C(7) << 56) ^ i) % w);
}

/** Next sequence hash of a chain after `before` (not used for the first block). */
static inline uint64_t pb_chain(uint64_t before, uint64_t local)
{
	uint64_t in[2] = {before, local};

	return XXH3_64bits_withSeed(in, sizeof(in), 1337);
}

static inline void pb_suffix(const struct pb *b, uint64_t i, uint64_t *out)
{
	const uint64_t *prefix = &b->prefix[(size_t)(i % PB_GROUPS) * b->p];
	struct kvr_rand r = pb_stream(2, i);
	uint64_t s = prefix[b->p - 1];

	for (uint32_t k = 0; k < b->d - b->p; k++)
		out[k] = s = pb_chain(s, kvr_rand_u64(&r));
}

static inline void pb_push(struct pb_events *e, const struct kvr_prefix_event *ev)
{
	if (e->n == e->cap) {
		e->cap = e->cap * 2 + 1024;
		e->ev = realloc(e->ev, e->cap * sizeof(*e->ev));
		if (e->ev == NULL)
			exit(1);
	}
	e->ev[e->n++] = *ev;
}

/** Split a stretch of one sequence into store events; `before` is the hash before it, or NULL. */
static inline void pb_stored(struct pb_events *e, uint32_t rank, const uint64_t *before,
			     const uint64_t *sh, uint32_t n)
{
	for (uint32_t k = 0; k < n; k += PB_CUT) {
		const uint64_t *parent = k ? &sh[k - 1] : before;
		struct kvr_prefix_event ev = {.op = KVR_PREFIX_STORE,
					      .has_parent = parent != NULL,
					      .rank = (uint16_t)rank,
					      .n = n - k < PB_CUT ? n - k : PB_CUT,
					      .parent = parent ? *parent : 0,
					      .sh = &sh[k]};

		pb_push(e, &ev);
	}
}

/** Append the remove events of a stretch, tail to head; `rev` receives the hashes in that order. */
static inline uint64_t *pb_removed(struct pb_events *e, uint32_t rank, const uint64_t *sh,
				   uint32_t n, uint64_t *rev)
{
	for (uint32_t k = 0; k < n; k++)
		rev[k] = sh[n - 1 - k];
	for (uint32_t k = 0; k < n; k += PB_CUT) {
		struct kvr_prefix_event ev = {.op = KVR_PREFIX_REMOVE,
					      .rank = (uint16_t)rank,
					      .n = n - k < PB_CUT ? n - k : PB_CUT,
					      .sh = &rev[k]};

		pb_push(e, &ev);
	}
	return rev + n;
}

static inline void pb_prefixes(struct pb *b)
{
	b->prefix = pb_alloc((size_t)PB_GROUPS * b->p * 8);
	for (uint32_t g = 0; g < PB_GROUPS; g++) {
		struct kvr_rand r = pb_stream(1, g);
		uint64_t s = 0;

		for (uint32_t k = 0; k < b->p; k++) {
			uint64_t l = kvr_rand_u64(&r);

			b->prefix[(size_t)g * b->p + k] = s = k ? pb_chain(s, l) : l;
		}
	}
}

/** Add sequence i, whose pair may be new; counts entries. */
static inline void pb_add_seq(struct pb *b)
{
	uint32_t i = b->nseq, g = i % PB_GROUPS, w = pb_worker(i, b->ranks);

	if (!b->pair_known[(size_t)g * b->ranks + w]) {
		b->pair_known[(size_t)g * b->ranks + w] = 1;
		b->pair[b->npair++] = g * b->ranks + w;
		b->entries += b->p;
	}
	pb_suffix(b, i, &b->suffix[(size_t)i * (b->d - b->p)]);
	b->entries += b->d - b->p;
	b->nseq++;
}

static inline void pb_make_events(struct pb *b)
{
	const uint32_t s = b->d - b->p;
	uint64_t *rev, *next;

	b->joined = next = pb_alloc((size_t)b->npair * b->d * 8);
	b->rev = rev = pb_alloc(b->entries * 8);
	memset(b->pair_known, 0, (size_t)PB_GROUPS * b->ranks);
	for (uint32_t i = 0; i < b->nseq; i++) {
		uint32_t g = i % PB_GROUPS, w = pb_worker(i, b->ranks);
		const uint64_t *prefix = &b->prefix[(size_t)g * b->p];
		const uint64_t *suffix = &b->suffix[(size_t)i * s];

		if (b->pair_known[(size_t)g * b->ranks + w]) {
			pb_stored(&b->store, w, &prefix[b->p - 1], suffix, s);
			continue;
		}
		b->pair_known[(size_t)g * b->ranks + w] = 1;
		memcpy(next, prefix, b->p * 8);
		memcpy(next + b->p, suffix, s * 8);
		pb_stored(&b->store, w, NULL, next, b->d);
		next += b->d;
	}
	for (uint32_t i = 0; i < b->nseq; i++)
		rev = pb_removed(&b->remove, pb_worker(i, b->ranks), &b->suffix[(size_t)i * s], s,
				 rev);
	for (uint32_t i = 0; i < b->npair; i++)
		rev = pb_removed(&b->remove, b->pair[i] % b->ranks,
				 &b->prefix[(size_t)(b->pair[i] / b->ranks) * b->p], b->p, rev);
}

static inline void pb_full(const struct pb *b, uint64_t i, uint64_t *out)
{
	memcpy(out, &b->prefix[(size_t)(i % PB_GROUPS) * b->p], b->p * 8);
	memcpy(out + b->p, &b->suffix[(size_t)i * (b->d - b->p)], (b->d - b->p) * 8);
}

/**
 * Unknown content is random, since a chain of it would be equally unknown. The proportions are
 * those of the definition.
 */
static inline void pb_make_queries(struct pb *b)
{
	struct kvr_rand r = pb_stream(5, 0);

	b->nquery = (1u << 20) / b->d;
	b->query = pb_alloc((size_t)b->nquery * b->d * 8);
	b->qclass = pb_alloc(b->nquery);
	for (uint32_t q = 0; q < b->nquery; q++) {
		uint64_t *out = &b->query[(size_t)q * b->d];
		uint32_t c = kvr_rand_u64(&r) & 3, k = 0;
		uint64_t i = kvr_rand_u64(&r) % b->nseq, s = 0;
		struct kvr_rand x;

		b->qclass[q] = (uint8_t)c;
		if (c < 3)
			pb_full(b, i, out);
		if (c < 2)
			continue;
		if (c == 2)
			k = 1 + (uint32_t)(kvr_rand_u64(&r) % (b->d - 1));
		x = pb_stream(c == 2 ? 3 : 4, q);
		s = k ? out[k - 1] : 0;
		for (; k < b->d; k++) {
			uint64_t l = kvr_rand_u64(&x);

			out[k] = s = k ? pb_chain(s, l) : l;
		}
	}
}

/** Build the workload of W workers, D blocks per sequence and T entries. */
static inline void pb_init(struct pb *b, uint32_t w, uint32_t d, uint64_t entries)
{
	memset(b, 0, sizeof(*b));
	b->ranks = w;
	b->d = d;
	b->p = d / 2;
	b->cap_seq = (uint32_t)(entries / (d - d / 2) + 2);
	b->pair_known = pb_alloc((size_t)PB_GROUPS * w);
	memset(b->pair_known, 0, (size_t)PB_GROUPS * w);
	b->pair = pb_alloc((size_t)PB_GROUPS * w * 4);
	b->suffix = pb_alloc((size_t)b->cap_seq * (d - b->p) * 8);
	pb_prefixes(b);
	while (b->entries < entries)
		pb_add_seq(b);
	pb_make_events(b);
	pb_make_queries(b);
}

static inline void pb_free(struct pb *b)
{
	void *all[] = {b->prefix, b->suffix, b->joined, b->rev,	     b->pair_known,
		       b->pair,	  b->query,  b->qclass, b->store.ev, b->remove.ev};

	for (uint32_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		free(all[i]);
}

/** Sum of (rank + 1) * depth over the ranks. */
static inline uint64_t pb_checksum(const struct kvr_overlap *o)
{
	const uint32_t *c = kvr_overlap_tier(o, KVR_TIER_DEVICE);
	uint64_t sum = 0;

	for (uint32_t r = 0; o->max_device > 0 && r < o->nranks; r++)
		sum += (uint64_t)(r + 1) * c[r];
	return sum;
}

#endif
