/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The overload detector (section 12.2). It judges the last reports, not the live load: active
 * blocks and prefill tokens after every booking, prefill end, request end and expiry, and the used
 * blocks that the engine reports. The decode latch is the OR of two signals, each as of its last
 * report; a signal without report is clear.
 */
#include "sched_pvt.h"

#include <errno.h>

static bool judge_rank(const struct kvr_sched *s, const struct rank *r, const struct worker *w)
{
	const struct kvr_pool_conf *c = &s->conf;
	double batched = w->max_batched ? (double)w->max_batched : DEFAULT_BATCHED;
	double total = (double)w->total_kv_blocks;

	if (r->reported) {
		if (c->prefill_tokens_threshold != KVR_POOL_NONE &&
		    r->rep_tokens > c->prefill_tokens_threshold)
			return true;
		if (!isnan(c->prefill_tokens_threshold_frac) &&
		    (double)r->rep_tokens > floor(c->prefill_tokens_threshold_frac * batched))
			return true;
	}
	if (isnan(c->decode_blocks_threshold) || w->total_kv_blocks == 0)
		return false;
	return (r->reported && (double)r->rep_blocks > c->decode_blocks_threshold * total) ||
	       (r->kv_reported && (double)r->rep_kv > c->decode_blocks_threshold * total);
}

/* Judge one rank; a worker is overloaded when all its ranks are. */
void kvr_sched__judge(struct kvr_sched *s, uint32_t rank)
{
	struct rank *r = &s->rank[rank];
	struct worker *w = &s->worker[r->worker];
	bool was = w->n_over == w->dp_size, over = judge_rank(s, r, w), is;

	if (over == r->over)
		return;
	r->over = over;
	w->n_over = over ? w->n_over + 1 : w->n_over - 1;
	is = w->n_over == w->dp_size;
	if (is == was)
		return;
	for (uint32_t i = 0; i < w->dp_size; i++) {
		uint32_t at = s->order[w->at + i];

		bit_put(s->over, at, is);
		s->ready[at / 64] = s->open[at / 64] & ~s->over[at / 64];
	}
}

void kvr_sched__report(struct kvr_sched *s, uint32_t rank, uint64_t now)
{
	if (!s->watch)
		return;
	s->rank[rank].report = ++s->reports;
	kvr_sched__report_then(s, rank, now);
}

void kvr_sched__report_then(struct kvr_sched *s, uint32_t rank, uint64_t now)
{
	struct rank *r = &s->rank[rank];

	if (!s->watch)
		return;
	r->reported = true;
	r->rep_blocks = s->blocks[rank];
	r->rep_tokens = kvr_sched__prefill_tokens(s, rank, now);
	kvr_sched__judge(s, rank);
}

void kvr_sched__report_blocks(struct kvr_sched *s, uint32_t rank)
{
	s->rank[rank].rep_blocks = s->blocks[rank];
	kvr_sched__judge(s, rank);
}

int kvr_sched_load_report(struct kvr_sched *s, uint64_t id, uint32_t dp_rank,
			  uint64_t kv_used_blocks, uint64_t now)
{
	uint32_t rank = kvr_sched_rank_find(s, id, dp_rank);

	if (rank == KVR_SCHED_NO_RANK)
		return -ENOENT;
	s->rank[rank].kv_reported = true;
	s->rank[rank].rep_kv = kv_used_blocks;
	kvr_sched__judge(s, rank);
	s->changed = true;
	return 0;
}
