/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The plain form of the prefix table: one rte_hash entry and one bitmap of owners per block and
 * plane. Correct and slow; it fixes the interface while the run structure is built.
 */

#include "kvr_prefix.h"

#include "kvr_errno.h"
#include <rte_errno.h>
#include <rte_hash.h>
#include <rte_jhash.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PLANES (KVR_PREFIX_TIERS + 1)
#define PRED   KVR_PREFIX_TIERS

struct guess {
	uint64_t sh;
	uint64_t until_ms;
	uint16_t rank;
};

struct kvr_prefix {
	struct rte_hash *hash;
	uint32_t max_ranks, words, max_blocks, npred, cap_pred;
	_Atomic uint32_t nranks, planes;
	_Atomic uint64_t *bits; /* [block][plane][words] */
	uint64_t rank_blocks[KVR_PREFIX_MAX_RANKS][PLANES];
	struct guess *pred;
	struct kvr_prefix_stats st;
};

static uint64_t ld64(const void *sh, uint32_t i)
{
	uint64_t v;

	memcpy(&v, (const char *)sh + (size_t)i * 8, 8);
	return v;
}

static _Atomic uint64_t *word_of(const struct kvr_prefix *t, int32_t b, uint32_t plane, uint16_t r)
{
	return &t->bits[((size_t)b * PLANES + plane) * t->words + r / 64];
}

static void count_block(struct kvr_prefix *t, int32_t b, bool was_empty)
{
	bool empty = true;

	for (uint32_t i = 0; i < PLANES * t->words; i++)
		empty &= t->bits[(size_t)b * PLANES * t->words + i] == 0;
	t->st.blocks += (uint64_t)was_empty - (uint64_t)empty;
	t->st.used_bytes = t->st.blocks * PLANES * t->words * 8;
}

static bool set_bit(struct kvr_prefix *t, uint64_t sh, uint32_t plane, uint16_t r)
{
	uint64_t bit = UINT64_C(1) << (r % 64);
	int32_t b = rte_hash_add_key(t->hash, &sh);
	uint32_t lanes = kvr_overlap_stride(r + 1u);
	bool empty = true;

	if (b < 0 || (uint32_t)b >= t->max_blocks + 64) {
		t->st.dropped++;
		return false;
	}
	for (uint32_t i = 0; i < PLANES * t->words; i++)
		empty &= t->bits[(size_t)b * PLANES * t->words + i] == 0;
	if (atomic_fetch_or(word_of(t, b, plane, r), bit) & bit)
		return false;
	if (lanes > t->nranks)
		t->nranks = lanes;
	t->planes |= 1u << plane;
	t->rank_blocks[r][plane]++;
	count_block(t, b, empty);
	return true;
}

static bool clear_bit(struct kvr_prefix *t, int32_t b, uint32_t plane, uint16_t r)
{
	uint64_t bit = UINT64_C(1) << (r % 64);

	if (b < 0 || !(atomic_fetch_and(word_of(t, b, plane, r), ~bit) & bit))
		return false;
	t->rank_blocks[r][plane]--;
	count_block(t, b, false);
	return true;
}

struct kvr_prefix *kvr_prefix_create(const struct kvr_prefix_conf *c)
{
	struct rte_hash_parameters p = {.key_len = 8, .hash_func = rte_jhash};
	struct kvr_prefix *t;

	if (c->name == NULL || strlen(c->name) > 20 || c->qsbr == NULL ||
	    c->max_ranks > KVR_PREFIX_MAX_RANKS || c->isa > KVR_PREFIX_ISA_AVX512)
		return kvr_null(EINVAL);
	t = calloc(1, sizeof(*t));
	if (t == NULL)
		return kvr_null(ENOMEM);
	t->max_ranks = c->max_ranks ? c->max_ranks : KVR_PREFIX_MAX_RANKS;
	t->max_blocks = c->max_blocks ? c->max_blocks : 1u << 15;
	t->words = (t->max_ranks + 63) / 64;
	p.name = c->name;
	p.entries = t->max_blocks;
	p.hash_func_init_val = (uint32_t)c->seed;
	p.socket_id = c->socket_id;
	p.extra_flag = RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY_LF | RTE_HASH_EXTRA_FLAGS_EXT_TABLE;
	t->hash = rte_hash_create(&p);
	t->bits = calloc(((size_t)t->max_blocks + 64) * PLANES * t->words, 8);
	if (t->hash == NULL || t->bits == NULL) {
		kvr_prefix_destroy(t);
		return kvr_null(rte_errno == EEXIST ? EEXIST : ENOMEM);
	}
	return t;
}

void kvr_prefix_destroy(struct kvr_prefix *t)
{
	if (t == NULL)
		return;
	rte_hash_free(t->hash);
	free(t->pred);
	free((void *)t->bits);
	free(t);
}

void kvr_prefix_store(struct kvr_prefix *t, uint16_t rank, enum kvr_prefix_tier tier,
		      const uint64_t *parent, const void *sh, uint32_t n)
{
	if (rank >= t->max_ranks || tier >= KVR_PREFIX_TIERS)
		return;
	if (parent != NULL && rte_hash_lookup(t->hash, parent) < 0)
		t->st.orphans += n;
	for (uint32_t i = 0; i < n; i++) {
		if (set_bit(t, ld64(sh, i), tier, rank)) {
			t->st.stored++;
			t->st.entries++;
		} else {
			t->st.duplicates++;
		}
	}
}

void kvr_prefix_remove(struct kvr_prefix *t, uint16_t rank, enum kvr_prefix_tier tier,
		       const void *sh, uint32_t n)
{
	if (rank >= t->max_ranks || tier >= KVR_PREFIX_TIERS)
		return;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t h = ld64(sh, i);

		if (clear_bit(t, rte_hash_lookup(t->hash, &h), tier, rank)) {
			t->st.removed++;
			t->st.entries--;
		} else {
			t->st.unknown_removes++;
		}
	}
}

void kvr_prefix_apply_burst(struct kvr_prefix *t, const struct kvr_prefix_event ev[], uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct kvr_prefix_event *e = &ev[i];

		if (e->op == KVR_PREFIX_STORE)
			kvr_prefix_store(t, e->rank, e->tier, e->has_parent ? &e->parent : NULL,
					 e->sh, e->n);
		else if (e->op == KVR_PREFIX_REMOVE)
			kvr_prefix_remove(t, e->rank, e->tier, e->sh, e->n);
	}
}

static void clear_plane(struct kvr_prefix *t, uint16_t rank, uint32_t plane)
{
	for (uint32_t b = 0; b < t->max_blocks + 64 && rank < t->max_ranks; b++) {
		if (clear_bit(t, (int32_t)b, plane, rank) && plane != PRED) {
			t->st.cleared++;
			t->st.entries--;
		}
	}
}

void kvr_prefix_clear_tier(struct kvr_prefix *t, uint16_t rank, enum kvr_prefix_tier tier)
{
	clear_plane(t, rank, tier);
}

void kvr_prefix_clear_rank(struct kvr_prefix *t, uint16_t rank)
{
	for (uint32_t p = 0; p < KVR_PREFIX_TIERS; p++)
		clear_plane(t, rank, p);
}

void kvr_prefix_drop_rank(struct kvr_prefix *t, uint16_t rank)
{
	for (uint32_t p = 0; p < PLANES; p++)
		clear_plane(t, rank, p);
	for (uint32_t i = 0; i < t->npred;)
		if (t->pred[i].rank == rank)
			t->pred[i] = t->pred[--t->npred];
		else
			i++;
}

static void predict_one(struct kvr_prefix *t, uint16_t rank, uint64_t sh, uint64_t until_ms)
{
	for (uint32_t i = 0; i < t->npred; i++) {
		if (t->pred[i].rank == rank && t->pred[i].sh == sh) {
			t->pred[i].until_ms = RTE_MAX(until_ms, t->pred[i].until_ms);
			return;
		}
	}
	if (t->npred == t->cap_pred) {
		struct guess *g = realloc(t->pred, (t->cap_pred * 2 + 64) * sizeof(*g));

		if (g == NULL)
			return;
		t->pred = g;
		t->cap_pred = t->cap_pred * 2 + 64;
	}
	if (set_bit(t, sh, PRED, rank))
		t->pred[t->npred++] = (struct guess){sh, until_ms, rank};
}

void kvr_prefix_predict(struct kvr_prefix *t, uint16_t rank, const void *sh, uint32_t n,
			uint64_t now_ms, uint32_t ttl_ms)
{
	for (uint32_t i = 0; i < n && ttl_ms > 0 && rank < t->max_ranks; i++)
		predict_one(t, rank, ld64(sh, i), now_ms + ttl_ms);
	t->st.predicted = t->npred;
}

uint32_t kvr_prefix_expire(struct kvr_prefix *t, uint64_t now_ms)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < t->npred;) {
		if (t->pred[i].until_ms > now_ms) {
			i++;
			continue;
		}
		clear_bit(t, rte_hash_lookup(t->hash, &t->pred[i].sh), PRED, t->pred[i].rank);
		t->pred[i] = t->pred[--t->npred];
		n++;
	}
	t->st.expired += n;
	t->st.predicted = t->npred;
	return n;
}

uint32_t kvr_prefix_maintain(struct kvr_prefix *t, uint64_t now_ms)
{
	RTE_SET_USED(t);
	RTE_SET_USED(now_ms);
	return 0;
}

static uint32_t leading(const struct kvr_prefix *t, const struct kvr_prefix_query *q,
			uint32_t plane, uint16_t rank, uint32_t from)
{
	uint32_t i;

	for (i = from; i < q->n && i < KVR_PREFIX_MAX_QUERY; i++) {
		uint64_t h = ld64(q->sh, i);
		int32_t b = rte_hash_lookup(t->hash, &h);

		if (b < 0 || !(*word_of(t, b, plane, rank) >> (rank % 64) & 1))
			break;
	}
	return i;
}

static void score_one(struct kvr_prefix *t, const struct kvr_prefix_query *q)
{
	struct kvr_overlap *o = q->out;

	o->nranks = RTE_MIN(t->nranks, kvr_overlap_stride(t->max_ranks));
	o->stride = kvr_overlap_stride(t->max_ranks);
	o->flags = t->planes & ~1u;
	o->max_device = 0;
	for (uint32_t r = 0; r < o->nranks; r++) {
		uint32_t at, next, pred = 0;
		bool in = r < t->max_ranks;

		at = in ? leading(t, q, KVR_PREFIX_DEVICE, (uint16_t)r, 0) : 0;
		if (o->flags & KVR_OVERLAP_PREDICTED)
			pred = in ? leading(t, q, PRED, (uint16_t)r, 0) : 0;
		o->count[(size_t)PRED * o->stride + r] = pred;
		at = RTE_MAX(at, pred);
		o->count[r] = at;
		o->max_device = RTE_MAX(o->max_device, at);
		for (uint32_t p = KVR_PREFIX_HOST; p < KVR_PREFIX_TIERS; p++, at = next) {
			next = in ? leading(t, q, p, (uint16_t)r, at) : at;
			o->count[p * o->stride + r] = next - at;
		}
	}
}

void kvr_prefix_score_burst(struct kvr_prefix *t, const struct kvr_prefix_query q[], uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		score_one(t, &q[i]);
}

int kvr_prefix_dump(struct kvr_prefix *t, unsigned int thread_id, kvr_prefix_dump_cb cb, void *ctx)
{
	const void *key;
	uint32_t iter = 0;
	void *data;
	int32_t b;

	RTE_SET_USED(thread_id);
	while ((b = rte_hash_iterate(t->hash, &key, &data, &iter)) >= 0) {
		for (uint32_t i = 0; i < KVR_PREFIX_TIERS * t->max_ranks; i++) {
			struct kvr_prefix_piece p = {.rank = (uint16_t)(i % t->max_ranks),
						     .tier = (uint8_t)(i / t->max_ranks),
						     .sh = key,
						     .n = 1};

			if (*word_of(t, b, p.tier, p.rank) >> (p.rank % 64) & 1 && !cb(ctx, &p))
				return -ECANCELED;
		}
	}
	return 0;
}

void kvr_prefix_stats_get(const struct kvr_prefix *t, struct kvr_prefix_stats *out)
{
	*out = t->st;
}

uint64_t kvr_prefix_rank_blocks(const struct kvr_prefix *t, uint16_t rank,
				enum kvr_prefix_tier tier)
{
	return rank < t->max_ranks ? t->rank_blocks[rank][tier] : 0;
}

const char *kvr_prefix_isa_name(const struct kvr_prefix *t)
{
	RTE_SET_USED(t);
	return "scalar";
}
