/* SPDX-License-Identifier: BSD-3-Clause */
/* The hint TRACKER: timing of a request in the last item of its answer. */
#include "sched/timing_reply.h"

#include <string.h>

#include "kvr_put.h"
#include "sched/request.h"

static uint32_t to_us(uint64_t to, uint64_t from)
{
	const uint64_t n = since_ns(to, from) / 1000;

	if (to == 0 || from == 0)
		return KVR_NONE32;
	return (uint32_t)RTE_MIN(n, KVR_NONE32 - UINT64_C(1));
}

/* Mean time between tokens, from the first to the last report. */
static uint32_t gap_us(const struct request_times *times)
{
	if (times->tokens < 2 || times->last_ns <= times->first_ns)
		return KVR_NONE32;
	return to_us(times->first_ns + (times->last_ns - times->first_ns) / (times->tokens - 1),
		     times->first_ns);
}

static uint64_t hit_per_mille(uint32_t overlap, uint32_t required)
{
	const double r = required != 0 ? (double)overlap / required : 0.0;
	uint64_t bits;

	memcpy(&bits, &r, sizeof(bits));
	return bits;
}

static void fill_tracker(const struct request *req, const struct kvr_flight *slot,
			 struct kvr_wire_tracker *k)
{
	const struct kvr_leg *main = &req->rq.leg[MAIN], *pre = &req->rq.leg[PREFILL];
	const bool legs = req->rq.way == KVR_WAY_BOOTSTRAP || req->rq.way == KVR_WAY_SYNC;
	const struct request_times *times = &req->times;

	*k = (struct kvr_wire_tracker){
		.worker = main->worker,
		.dp_rank = main->dp_rank,
		.prefill_dp_rank = KVR_NONE32,
		.overlap_blocks = main->overlap_blocks,
		.required_blocks = main->required_blocks,
		.cached_tokens = main->cached_tokens,
		.isl = slot->relay.isl,
		.osl = times->tokens,
		.queue_us = to_us(times->sent_ns[legs ? PREFILL : MAIN], times->arrival_ns),
		.ttft_us = to_us(times->first_ns, times->arrival_ns),
		.itl_us = gap_us(times),
		.prefill_us = KVR_NONE32,
		.transfer_us = KVR_NONE32,
		.hit_rate = hit_per_mille(main->overlap_blocks, main->required_blocks),
	};
	if (!legs)
		return;
	k->prefill_worker = pre->worker;
	k->prefill_dp_rank = pre->dp_rank;
	k->prefill_overlap_blocks = pre->overlap_blocks;
	k->hit_rate = hit_per_mille(pre->overlap_blocks, main->required_blocks);
	k->prefill_us = to_us(times->prefill_end_ns, times->sent_ns[PREFILL]);
	k->transfer_us =
		to_us(times->prefill_end_ns != 0 ? times->first_ns : 0, times->prefill_end_ns);
}

void timing_reply(const struct lcore *lc, const struct kvr_flight *slot, struct rte_mbuf *m)
{
	struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(m, struct kvr_wire_hdr *);
	const struct request *req = request_of(slot);
	struct kvr_wire_tracker k;
	uint8_t hint[KVR_WIRE_TRACKER_ROOM];
	struct kvr_hint_buf b = {.p = hint, .cap = sizeof(hint)};

	if (req == NULL || m->pkt_len + sizeof(hint) > out_limit(lc, &slot->relay.client) ||
	    rte_pktmbuf_append(m, sizeof(hint)) == NULL)
		return;
	fill_tracker(req, slot, &k);
	kvr_hint_put(&b, KVR_HINT_TRACKER, &k, sizeof(k), NULL, 0);
	kvr_response_append(hdr, hint, b.len);
}
