/* SPDX-License-Identifier: BSD-3-Clause */

/* Scoring without vector instructions, for any CPU. */

#include "prefix_pvt.h"

#ifdef PFX_POISON
void (*kvr_prefix__test_between_runs)(void);
#endif

static inline void vec_spread(uint32_t *out, const uint64_t *bits, uint32_t lanes, uint32_t v,
			      bool fill)
{
	for (uint32_t r = 0; r < lanes; r++) {
		if (bits[r / 64] >> (r % 64) & 1)
			out[r] = v;
		else if (fill)
			out[r] = 0;
	}
}

static inline void vec_max(uint32_t *to, const uint32_t *from, uint32_t lanes)
{
	for (uint32_t r = 0; r < lanes; r++)
		to[r] = RTE_MAX(to[r], from[r]);
}

static inline uint32_t vec_same(const uint64_t *p, const void *q, uint32_t n)
{
	uint32_t i = 0;

	while (i < n && pfx_rd(&p[i]) == pfx_ld64(q, i))
		i++;
	return i;
}

#define PREFETCH_HEADS 4u /* heads of a query prefetched before it is scored */

#define SCORE_BURST kvr_prefix__score_scalar
#include "score_pvt.h"

void kvr_prefix_prefetch(const struct kvr_prefix *table, const void *sh, uint32_t n)
{
	__asm__ volatile(
		""); /* a side effect: gcc 12 removes calls of functions that only prefetch */
	for (uint32_t at = 0; at < n && at < PREFETCH_HEADS * PFX_RUN; at += PFX_RUN)
		kvr_prefetch(pfx_fingerprint_set(table, pfx_mix(table, pfx_ld64(sh, at))));
}

void kvr_prefix_score_burst(struct kvr_prefix *table, const struct kvr_prefix_query query[],
			    uint32_t n)
{
	table->score(table, query, n);
}
