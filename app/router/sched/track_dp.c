/* SPDX-License-Identifier: BSD-3-Clause */
#include "sched/track.h"

#include <string.h>

#include "kvr_put.h"
#include "sched/request.h"

static uint32_t us(uint64_t to, uint64_t from)
{
	const uint64_t n = since_ns(to, from) / 1000;

	if (to == 0 || from == 0)
		return KVR_NONE32;
	return (uint32_t)RTE_MIN(n, KVR_NONE32 - UINT64_C(1));
}

/* Mean time between tokens, from the first to the last report. */
static uint32_t gap_us(const struct request_times *t)
{
	if (t->tokens < 2 || t->last_ns <= t->first_ns)
		return KVR_NONE32;
	return us(t->first_ns + (t->last_ns - t->first_ns) / (t->tokens - 1), t->first_ns);
}

static uint64_t rate(uint32_t overlap, uint32_t required)
{
	const double r = required != 0 ? (double)overlap / required : 0.0;
	uint64_t bits;

	memcpy(&bits, &r, sizeof(bits));
	return bits;
}

static void fill(const struct request *r, const struct kvr_flight *slot, struct kvr_wire_tracker *k)
{
	const struct kvr_leg *main = &r->rq.leg[MAIN], *pre = &r->rq.leg[PREFILL];
	const bool legs = r->rq.way == KVR_WAY_BOOTSTRAP || r->rq.way == KVR_WAY_SYNC;
	const struct request_times *t = &r->times;

	*k = (struct kvr_wire_tracker){
		.worker = main->worker,
		.dp_rank = main->dp_rank,
		.prefill_dp_rank = KVR_NONE32,
		.overlap_blocks = main->overlap_blocks,
		.required_blocks = main->required_blocks,
		.cached_tokens = main->cached_tokens,
		.isl = slot->relay.isl,
		.osl = t->tokens,
		.queue_us = us(t->sent_ns[legs ? PREFILL : MAIN], t->arrival_ns),
		.ttft_us = us(t->first_ns, t->arrival_ns),
		.itl_us = gap_us(t),
		.prefill_us = KVR_NONE32,
		.transfer_us = KVR_NONE32,
		.hit_rate = rate(main->overlap_blocks, main->required_blocks),
	};
	if (!legs)
		return;
	k->prefill_worker = pre->worker;
	k->prefill_dp_rank = pre->dp_rank;
	k->prefill_overlap_blocks = pre->overlap_blocks;
	k->hit_rate = rate(pre->overlap_blocks, main->required_blocks);
	k->prefill_us = us(t->prefill_end_ns, t->sent_ns[PREFILL]);
	k->transfer_us = us(t->prefill_end_ns != 0 ? t->first_ns : 0, t->prefill_end_ns);
}

void track_item(const struct lcore *lc, const struct kvr_flight *slot, struct rte_mbuf *m)
{
	struct kvr_wire_hdr *h = rte_pktmbuf_mtod(m, struct kvr_wire_hdr *);
	const struct request *r = request_of(slot);
	struct kvr_wire_tracker k;
	uint8_t hint[KVR_WIRE_TRACKER_ROOM];
	struct kvr_hint_buf b = {.p = hint, .cap = sizeof(hint)};

	if (r == NULL || m->pkt_len + sizeof(hint) > out_limit(lc, &slot->relay.client) ||
	    rte_pktmbuf_append(m, sizeof(hint)) == NULL)
		return;
	fill(r, slot, &k);
	kvr_hint_put(&b, KVR_HINT_TRACKER, &k, sizeof(k), NULL, 0);
	kvr_response_append(h, hint, b.len);
}
