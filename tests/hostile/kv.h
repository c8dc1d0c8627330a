/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KV_H
#define KV_H

/**
 * @file
 *
 * Helpers for tests of KV events: frames with any events, their acknowledgements, and the table of
 * the first pool. On one thread.
 */

#include <string.h>

#include <CUnit/Basic.h>

#include "kvr_rand.h"
#include "lcore/out.h"
#include "pipeline.h"

struct kv_frame {
	uint8_t buf[KVR_WIRE_DEF_FRAME];
	uint32_t len;
	struct kvr_wire_kv_events *e;
};

static inline void kv_begin(struct kv_frame *f, uint64_t first)
{
	memset(f, 0, sizeof(*f));
	f->e = (void *)(f->buf + sizeof(struct kvr_wire_hdr));
	f->e->first_event_id = first;
	f->len = sizeof(struct kvr_wire_hdr) + sizeof(*f->e);
}

static inline void kv_add(struct kv_frame *f, uint8_t type, const uint64_t *parent,
			  const uint64_t *sh, uint32_t n)
{
	struct kvr_wire_kv_event ev = {.type = type,
				       .n_blocks = n,
				       .flags = parent != NULL ? KVR_KV_EV_F_PARENT : 0,
				       .parent = parent != NULL ? *parent : 0};

	memcpy(f->buf + f->len, &ev, sizeof(ev));
	if (n > 0)
		memcpy(f->buf + f->len + sizeof(ev), sh, n * 8);
	f->len += (uint32_t)sizeof(ev) + n * 8;
	f->e->n_events++;
}

static inline void kv_end(struct kv_frame *f, uint64_t worker, uint32_t epoch)
{
	const struct kvr_wire_ids ids = {
		.source = worker, .id = f->e->first_event_id, .epoch = epoch};
	const uint32_t body = f->len - (uint32_t)sizeof(struct kvr_wire_hdr);

	kvr_hdr_put((struct kvr_wire_hdr *)f->buf, KVR_KV_EVENTS, &ids, body, 0, (uint16_t)body);
}

/** Send the frame to the router. */
static inline void kv_send(struct kv_frame *f, uint64_t worker, uint32_t epoch)
{
	kv_end(f, worker, epoch);
	pipeline_send(PEER_AGENT, f->buf, f->len);
}

/** Put the frame directly into the event ring of @p rank, as ingress did some time ago. */
static inline void kv_queue(struct kv_frame *f, uint64_t worker, uint32_t epoch, uint32_t rank,
			    const struct kvr_path *from)
{
	struct event_msg n = {.m = rte_pktmbuf_alloc(rt->lcore[0]->mbufs), .rank = rank};

	kv_end(f, worker, epoch);
	CU_ASSERT_FATAL(n.m != NULL);
	memcpy(rte_pktmbuf_append(n.m, (uint16_t)f->len), f->buf, f->len);
	path_keep(n.m, from);
	CU_ASSERT_FATAL(rte_ring_enqueue_elem(rt->pool[0].events, &n, sizeof(n)) == 0);
}

/** The next KV_ACK; code 0xffff: there is none. */
static inline struct kvr_wire_kv_ack kv_acked(void)
{
	const struct out *o = pipeline_expect(PEER_AGENT, KVR_KV_ACK);
	struct kvr_wire_kv_ack a = {.code = UINT16_MAX};

	if (o != NULL)
		memcpy(&a, o->bytes + sizeof(struct kvr_wire_hdr), sizeof(a));
	return a;
}

static inline void kv_chain(uint64_t *sh, uint32_t n, uint64_t name)
{
	for (uint32_t i = 0; i < n; i++)
		sh[i] = kvr_mix64(name << 32 ^ i) | 1;
}

/** Device blocks of the prompt that the rank has in the table of the first pool. */
static inline uint32_t kv_overlap(uint32_t rank, const uint64_t *sh, uint32_t n)
{
	struct kvr_overlap *o = aligned_alloc(64, kvr_overlap_size(rt->pool[0].max_ranks));
	const struct kvr_prefix_query q = {sh, n, o};
	uint32_t v;

	kvr_prefix_score_burst(rt->pool[0].prefix, &q, 1);
	v = rank < o->nranks ? kvr_overlap_tier(o, KVR_TIER_DEVICE)[rank] : 0;
	free(o);
	return v;
}

/** Counters of that table, until the next call. An object, because clang does not take a member of
 * a returned value. */
static inline const struct kvr_prefix_stats *kv_table_now(void)
{
	static struct kvr_prefix_stats s;

	kvr_prefix_stats_get(rt->pool[0].prefix, &s);
	return &s;
}
#define kv_table() (*kv_table_now())

#endif
