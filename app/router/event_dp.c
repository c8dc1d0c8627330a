/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * KV events: from a worker's frame to the prefix table, in order.
 *
 * Each rank has a cursor (worker, its life, next event id). A frame of anybody else is refused; one
 * of its worker is applied from the cursor on: events below it are repeats, a frame that starts
 * above it is a gap, and the agent is told where to go on. A dump replaces what the rank holds; its
 * frames are numbered from 0 and must come in order too. Every frame is answered with the
 * cumulative KV_ACK, so any loss on the way repairs itself.
 *
 * Emptying a rank takes no time here, freeing what it had is sliced (lib/prefix). Until that is
 * done the rank scores nothing and blocks are not stored: the agent is told BUSY, with the event to
 * go on from. It is so for milliseconds at worst, and only for ranks that had many blocks.
 */
#include "stages.h"

#include <string.h>

#include "kvr_frame.h"
#include "kvr_message.h"

#define EXPIRE_EVERY_NS UINT64_C(50000000) /* predicted blocks die at most 100 ms late */
#define TURN_UNITS	1536u /* of kvr_prefix_work(), then no more frames: 25 to 45 us */

static void ack(struct lcore *lc, const struct kvr_path *to, const struct kvr_wire_hdr *h,
		uint32_t dp_rank, enum kvr_wire_kv_code code, const struct event_cursor *c)
{
	const struct kvr_wire_kv_ack a = {
		.next_event_id = c != NULL ? c->next : 0,
		/* Of the dump that the frame belongs to: 0 for another one's. */
		.next_dump_pos =
			c != NULL && (c->dump_id == h->id || !c->has_dump) ? c->dump_pos : 0,
		.dp_rank = dp_rank,
		.code = (uint16_t)code,
	};

	out_message(lc, to, KVR_KV_ACK, h->source, h->id, 0, &a, sizeof(a));
}

/* ---- ingress lcore ---- */

/* No room. The cursor is the event lcore's: the agent goes on from what it knows. */
static void busy(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from,
		 enum in_counter why)
{
	const struct kvr_wire_hdr *h = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const struct kvr_wire_kv_events *e = kvr_frame_body(h);

	in_count(lc, IN_IGNORED);
	in_count(lc, why);
	ack(lc, from, h, e->dp_rank, KVR_KV_BUSY, NULL);
	rte_pktmbuf_free(m);
}

void event_ingress(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct kvr_wire_hdr *h = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const struct kvr_wire_kv_events *e = kvr_frame_body(h);
	const struct kvr_view_worker *w = kvr_view_find(lc->view, h->source);
	struct event_note n = {.m = m};
	struct pool *p;

	if (w != NULL && w->epoch == h->epoch)
		n.rank = kvr_view_rank(lc->view, w, e->dp_rank);
	if (w == NULL || w->epoch != h->epoch || n.rank == KVR_RANK_NONE) {
		in_count(lc, IN_EVENTS);
		ack(lc, from, h, e->dp_rank, KVR_KV_HELLO, NULL);
		rte_pktmbuf_free(m);
		return;
	}
	if (!kvr_path_same(from, &w->path)) {
		source_refuse(lc, m, from, KVR_E_NOT_ALLOWED);
		return;
	}
	p = &lc->rt->pool[w->pool];
	if (unlikely(!share_event_take(lc, p, from))) {
		busy(lc, m, from, IN_SHARE);
		return;
	}
	path_keep(m, from);
	n.charged = lc->index + 1;
	if (rte_ring_enqueue_elem(p->events, &n, sizeof(n)) != 0) {
		share_event_back(lc, p);
		busy(lc, m, from, IN_RING_FULL);
		return;
	}
	in_count(lc, IN_EVENTS);
}

void predict(struct lcore *lc, struct pool *p, const struct job *j, uint32_t rank, uint64_t worker)
{
	const struct kvr_view_worker *w = kvr_view_find(lc->view, worker);
	struct event_note n = {.rank = rank};

	n.p = buf_get(lc->rt, lc->rt->hash_bufs, sizeof(*n.p) + j->n_hashes * sizeof(n.p->sh[0]));
	if (likely(n.p != NULL)) {
		n.p->worker = worker;
		n.p->epoch = w != NULL ? w->epoch : 0;
		n.p->n = j->n_hashes;
		memcpy(n.p->sh, j->hashes, j->n_hashes * sizeof(uint64_t));
		if (rte_ring_enqueue_elem(p->events, &n, sizeof(n)) == 0) {
			pool_count(p, PC_PREDICTIONS, 1);
			return;
		}
		buf_put(n.p);
	}
	pool_count(p, PC_PREDICTIONS_LOST, 1);
}

/* ---- event lcore ---- */

static void event_count(struct pool *p, enum event_counter c, uint64_t n)
{
	kvr_stats_add(p->event_count, c, n);
}

/*
 * What the rank can have on its device: a quarter more than the worker says, for what is under way
 * between an engine and its books. 0: it does not say.
 */
static uint64_t limit_of(const struct kvr_worker *w)
{
	const uint64_t n = w != NULL ? w->total_kv_blocks : 0;

	return n > UINT32_MAX / 2 ? 0 : n == 0 ? 0 : n + n / 4 + 64;
}

void event_reset_rank(struct lcore *lc, struct pool *p, uint32_t rank, const struct kvr_worker *w)
{
	RTE_SET_USED(lc);
	if (rank >= p->max_ranks)
		return;
	kvr_prefix_clear_rank(p->prefix, (uint16_t)rank);
	kvr_prefix_limit(p->prefix, (uint16_t)rank, limit_of(w));
	p->cursor[rank] = (struct event_cursor){.worker = w != NULL ? w->id : 0,
						.epoch = w != NULL ? w->epoch : 0,
						.authoritative = w != NULL,
						.lag = UINT64_MAX};
}

/* False: not now, the rank is being emptied. */
static bool apply(struct pool *p, uint32_t rank, const struct kvr_kv_event *ev)
{
	const enum kvr_prefix_tier tier = (enum kvr_prefix_tier)ev->tier;

	switch (ev->type) {
	case KVR_KV_STORED:
		if (!kvr_prefix_ready(p->prefix, (uint16_t)rank))
			return false;
		kvr_prefix_store(p->prefix, (uint16_t)rank, tier,
				 (ev->flags & KVR_KV_EV_F_PARENT) != 0 ? &ev->parent : NULL,
				 ev->hashes, ev->n_blocks);
		event_count(p, EC_STORED_BLOCKS, ev->n_blocks);
		break;
	case KVR_KV_REMOVED:
		kvr_prefix_remove(p->prefix, (uint16_t)rank, tier, ev->hashes, ev->n_blocks);
		event_count(p, EC_REMOVED_BLOCKS, ev->n_blocks);
		break;
	case KVR_KV_CLEARED:
		kvr_prefix_clear_rank(p->prefix, (uint16_t)rank);
		event_count(p, EC_CLEARS, 1);
		break;
	}
	return true;
}

/* Apply all but the first @p skip events. @return how many are done with, those included. */
static uint64_t apply_from(struct pool *p, uint32_t rank, const struct kvr_wire_kv_events *e,
			   uint64_t skip)
{
	struct kvr_kv_iter it = kvr_kv_events_begin(e);
	struct kvr_kv_event ev;
	uint64_t i = 0;

	for (; kvr_kv_events_next(&it, &ev); i++)
		if (i >= skip && p->events_used && !apply(p, rank, &ev))
			break;
	return i;
}

/*
 * A dump begins: the rank is emptied. All frames of a dump carry one header id, so a late copy
 * of the first one does not begin it again, and a late frame of another dump is not taken.
 */
static void dump_begin(struct pool *p, uint32_t rank, struct event_cursor *c, uint64_t id)
{
	if (c->has_dump && c->dump_id == id)
		return;
	kvr_prefix_clear_rank(p->prefix, (uint16_t)rank);
	c->has_dump = 1;
	c->dump_id = id;
	c->dumping = 1;
	c->dump_pos = 0;
	c->authoritative = 0;
}

/* One frame of a dump, positions in order; next_dump_pos of the answer says where to go on. */
static enum kvr_wire_kv_code dump_frame(struct pool *p, uint32_t rank, struct event_cursor *c,
					const struct kvr_wire_kv_events *e, uint64_t id)
{
	if ((e->flags & KVR_KV_F_DUMP_BEGIN) != 0)
		dump_begin(p, rank, c, id);
	if (!c->has_dump || c->dump_id != id) {
		event_count(p, EC_STALE, 1);
		return KVR_KV_DUMP_WANTED; /* its beginning was never seen, or it is over */
	}
	if (!c->dumping || e->first_event_id != c->dump_pos) {
		event_count(p, c->dumping && e->first_event_id > c->dump_pos ? EC_GAPS : EC_STALE,
			    1);
		return KVR_KV_OK;
	}
	/* A dump only stores: the first event is put off, or none. */
	if (apply_from(p, rank, e, 0) < e->n_events) {
		event_count(p, EC_BUSY, 1);
		return KVR_KV_BUSY;
	}
	c->dump_pos++;
	if ((e->flags & KVR_KV_F_DUMP_END) != 0) {
		c->dumping = 0;
		c->next = e->resume_event_id;
		c->authoritative = 1;
	}
	event_count(p, EC_DUMPS, 1);
	return KVR_KV_OK;
}

static enum kvr_wire_kv_code live_frame(struct pool *p, uint32_t rank, struct event_cursor *c,
					const struct kvr_wire_kv_events *e)
{
	uint64_t before;

	/* Older than the dump that is being received, or its sender knows nothing of a dump. */
	if (c->dumping) {
		event_count(p, EC_STALE, 1);
		return KVR_KV_DUMP_WANTED;
	}
	if (e->first_event_id + e->n_events <= c->next) {
		event_count(p, EC_STALE, 1);
		return KVR_KV_OK;
	}
	if (e->first_event_id > c->next && !kvr_prefix_ready(p->prefix, (uint16_t)rank)) {
		event_count(p, EC_BUSY, 1); /* what is before it was put off, perhaps */
		return KVR_KV_BUSY;
	}
	if (e->first_event_id > c->next) {
		event_count(p, EC_GAPS, 1);
		c->authoritative = 0;
		return KVR_KV_GAP;
	}
	before = c->next;
	c->next = e->first_event_id + apply_from(p, rank, e, c->next - e->first_event_id);
	if (c->next == before) {
		event_count(p, EC_BUSY, 1);
		return KVR_KV_BUSY;
	}
	c->dump_pos = 0;
	c->authoritative = 1;
	event_count(p, EC_APPLIED, 1);
	return c->next < e->first_event_id + e->n_events ? KVR_KV_BUSY : KVR_KV_OK;
}

void event_heartbeat(struct lcore *lc, struct pool *p, const struct rank_load *load)
{
	const struct kvr_wire_hdr h = {.source = load->worker};
	const struct kvr_view_worker *w;
	struct event_cursor *c;

	if (load->rank >= p->max_ranks)
		return;
	c = &p->cursor[load->rank];
	if (c->worker != load->worker || c->epoch != load->epoch)
		return; /* the rank has changed hands on the way here */
	if (c->dumping || load->next_event_id <= c->next) {
		c->lag = UINT64_MAX;
		return;
	}
	/* Events may be under way: it is a gap when nothing has come for a whole heartbeat. */
	if (c->lag == c->next) {
		c->authoritative = 0;
		w = kvr_view_find(lc->view, load->worker);
		if (w != NULL && w->epoch == load->epoch)
			ack(lc, &w->path, &h, load->dp_rank,
			    c->next == 0 ? KVR_KV_DUMP_WANTED : KVR_KV_GAP, c);
	}
	c->lag = c->next;
}

static void event_frame(struct lcore *lc, struct pool *p, const struct event_note *n)
{
	const struct kvr_wire_hdr *h = rte_pktmbuf_mtod(n->m, const struct kvr_wire_hdr *);
	const struct kvr_wire_kv_events *e = kvr_frame_body(h);
	struct event_cursor *c = &p->cursor[n->rank];
	enum kvr_wire_kv_code code;

	event_count(p, EC_FRAMES, 1);
	/* The rank has changed hands on the way here. */
	if (c->epoch == 0 || c->worker != h->source || c->epoch != h->epoch) {
		event_count(p, EC_UNKNOWN, 1);
		ack(lc, path_kept(n->m), h, e->dp_rank, KVR_KV_HELLO, NULL);
	} else {
		code = (e->flags & (KVR_KV_F_DUMP | KVR_KV_F_DUMP_BEGIN | KVR_KV_F_DUMP_END)) != 0
			       ? dump_frame(p, n->rank, c, e, h->id)
			       : live_frame(p, n->rank, c, e);
		ack(lc, path_kept(n->m), h, e->dp_rank, code, c);
	}
	rte_pktmbuf_free(n->m);
}

static void event_prediction(struct lcore *lc, struct pool *p, const struct event_note *n)
{
	const struct event_cursor *c = &p->cursor[n->rank];

	/* Not of an earlier owner of the rank; nobody's rank is of life 0, as an unknown worker. */
	if (c->worker == n->p->worker && c->epoch == n->p->epoch && c->epoch != 0)
		kvr_prefix_predict(p->prefix, (uint16_t)n->rank, n->p->sh, n->p->n,
				   lc->now_ns / 1000000, p->predict_ttl_ms);
	buf_put(n->p);
}

static void event_expire(struct lcore *lc, struct pool *p)
{
	if (!p->predict || lc->now_ns < p->expire_ns)
		return;
	if (kvr_prefix_expire(p->prefix, lc->now_ns / 1000000))
		p->expire_ns = lc->now_ns + EXPIRE_EVERY_NS; /* else the next turn goes on */
}

uint32_t event_poll(struct lcore *lc, struct pool *p)
{
	const uint64_t end = kvr_prefix_work(p->prefix) + TURN_UNITS;
	struct event_note n;
	uint32_t got = 0;

	/* One by one: what one costs is known when it is done. */
	for (; got < BURST && kvr_prefix_work(p->prefix) < end &&
	       rte_ring_dequeue_elem(p->events, &n, sizeof(n)) == 0;
	     got++) {
		share_event_done(p, &n);
		if (n.m != NULL)
			event_frame(lc, p, &n);
		else
			event_prediction(lc, p, &n);
	}
	event_expire(lc, p);
	kvr_prefix_maintain(p->prefix, lc->now_ns / 1000000);
	return got;
}
