/* SPDX-License-Identifier: BSD-3-Clause */
/* Sets of hashes per (rank, tier), from libc's trees; stands in until lib/prefix is linked. */
#include "index.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

struct item {
	uint64_t sh;
	uint64_t until; /* predicted: ns */
};

struct ex_index {
	uint32_t max_ranks;
	void **tree; /* [rank][EX_TIERS + 1] */
	uint32_t *count[EX_TIERS];
};

static int by_hash(const void *a, const void *b)
{
	uint64_t x = ((const struct item *)a)->sh, y = ((const struct item *)b)->sh;

	return x < y ? -1 : x > y;
}

struct ex_index *ex_index_create(const char *name, uint32_t max_ranks)
{
	struct ex_index *x = calloc(1, sizeof(*x));

	x->max_ranks = max_ranks;
	x->tree = calloc((size_t)max_ranks * (EX_TIERS + 1), sizeof(void *));
	for (int t = 0; t < EX_TIERS; t++)
		x->count[t] = calloc(max_ranks, sizeof(uint32_t));
	return x;
}

static void **tree(struct ex_index *x, uint32_t rank, int tier)
{
	return &x->tree[(size_t)rank * (EX_TIERS + 1) + (uint32_t)tier];
}

static struct item *add(void **root, uint64_t sh)
{
	struct item *e = calloc(1, sizeof(*e));
	struct item **at;

	e->sh = sh;
	at = tsearch(e, root, by_hash);
	if (*at != e)
		free(e);
	return *at;
}

void ex_index_destroy(struct ex_index *x)
{
	for (uint32_t r = 0; r < x->max_ranks; r++)
		for (int t = 0; t <= EX_TIERS; t++)
			tdestroy(*tree(x, r, t), free);
	free(x->tree);
	for (int t = 0; t < EX_TIERS; t++)
		free(x->count[t]);
	free(x);
}

void ex_index_store(struct ex_index *x, uint32_t rank, enum ex_tier tier, const uint64_t *sh,
		    uint32_t n, const uint64_t *parent)
{
	for (uint32_t i = 0; i < n; i++)
		add(tree(x, rank, (int)tier), sh[i]);
}

void ex_index_remove(struct ex_index *x, uint32_t rank, enum ex_tier tier, const uint64_t *sh,
		     uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct item key = {.sh = sh[i]},
			    **at = tfind(&key, tree(x, rank, (int)tier), by_hash);

		if (at != NULL) {
			struct item *e = *at;

			tdelete(&key, tree(x, rank, (int)tier), by_hash);
			free(e);
		}
	}
}

void ex_index_clear(struct ex_index *x, uint32_t rank)
{
	for (int t = 0; t < EX_TIERS; t++) {
		tdestroy(*tree(x, rank, t), free);
		*tree(x, rank, t) = NULL;
	}
}

void ex_index_drop(struct ex_index *x, uint32_t rank)
{
	ex_index_clear(x, rank);
	tdestroy(*tree(x, rank, EX_TIERS), free);
	*tree(x, rank, EX_TIERS) = NULL;
}

void ex_index_predict(struct ex_index *x, uint32_t rank, const uint64_t *sh, uint32_t n,
		      uint64_t now_ns, double ttl_s)
{
	for (uint32_t i = 0; i < n; i++)
		add(tree(x, rank, EX_TIERS), sh[i])->until = now_ns + (uint64_t)(ttl_s * 1e9);
}

static uint32_t lead(struct ex_index *x, uint32_t rank, int tier, const uint64_t *sh, uint32_t n,
		     uint64_t now)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		struct item key = {.sh = sh[i]}, **at = tfind(&key, tree(x, rank, tier), by_hash);

		if (at == NULL || (tier == EX_TIERS && (*at)->until <= now))
			break;
	}
	return i;
}

void ex_index_score(struct ex_index *x, const uint64_t *sh, uint32_t n, uint64_t now_ns,
		    struct kvr_sched_overlap *ov)
{
	for (uint32_t r = 0; r < x->max_ranks; r++) {
		uint32_t at = lead(x, r, EX_DEVICE, sh, n, now_ns);
		uint32_t guess = lead(x, r, EX_TIERS, sh, n, now_ns);

		at = guess > at ? guess : at;
		x->count[0][r] = at;
		for (int t = EX_HOST; t < EX_TIERS; t++) {
			x->count[t][r] = lead(x, r, t, sh + at, n - at, now_ns);
			at += x->count[t][r];
		}
	}
	*ov = (struct kvr_sched_overlap){x->count[0], x->count[1], x->count[2], x->count[3]};
}
