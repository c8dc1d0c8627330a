/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * KV events: from a worker's frame to the prefix table, in order.
 *
 * Each rank has a cursor (worker, epoch, next event id). Frames from other senders are rejected.
 * Frames of the worker are applied from the cursor on: earlier events are repetitions, a frame that
 * starts later reveals a gap, and the answer tells the agent where to continue. A dump replaces the
 * content of the rank; its frames are numbered from 0 and must arrive in order. Every frame is
 * answered with a cumulative KV_ACK, so any loss repairs itself.
 *
 * A frame can take more than a turn, for example many short prompts at a full table, where each
 * needs an eviction. It then stays open (pool_event::open) and continues in the next turn, as does
 * the prediction of a long prompt. Messages behind it wait, which preserves the order.
 *
 * Clearing a rank takes constant time, and its entries are freed in slices (lib/prefix). Until then
 * the rank scores nothing and stores nothing, and the answer is BUSY with the event to continue
 * from. This takes milliseconds at most, and only for ranks with many blocks.
 */
#include "event/event.h"
#include "ingress/source.h"
#include "lcore/out.h"

#include <string.h>

#include "kvr_frame.h"
#include "kvr_message.h"

#define EXPIRE_EVERY_NS UINT64_C(50000000) /* predicted blocks expire at most 100 ms late */
/* Budget of a turn in units of kvr_prefix_work(), 16 to 50 ns each; then no further piece begins.
 */
#define TURN_UNITS 512u
/* Blocks of an undivided piece: a whole common frame, or few if blocks are expensive because of
 * evictions. */
#define PIECE	   256u
#define PIECE_DEAR 32u
#define DEAR	   2u /* units per block */
/* Events of at most this many blocks are applied together: most of their time is waiting for
 * memory, and in a burst these waits overlap. A burst has at most the blocks of a piece. */
#define SHORT	    16u
#define SHORT_BURST 16u

/* ---- ingress lcore ---- */

/* The ring is full. The cursor belongs to the event lcore, so the agent continues from its own
 * state. */
static void busy(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from,
		 enum in_counter why)
{
	const struct kvr_wire_hdr *h = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const struct kvr_wire_kv_events *e = kvr_frame_body(h);

	in_count(lc, IN_DROPPED);
	in_count(lc, why);
	event_ack(lc, from, h, e->dp_rank, KVR_KV_BUSY, NULL);
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
		if (w != NULL)
			in_count(lc, w->epoch == h->epoch ? IN_UNKNOWN_RANK : IN_STALE_EPOCH);
		event_ack(lc, from, h, e->dp_rank, KVR_KV_HELLO, NULL);
		rte_pktmbuf_free(m);
		return;
	}
	if (!kvr_path_same(from, &w->path)) {
		source_refuse(lc, m, from, KVR_E_NOT_ALLOWED);
		return;
	}
	p = &lc->rt->pool[w->pool];
	if (unlikely(!share_event_take(lc, p, from))) {
		busy(lc, m, from, IN_EVENT_QUOTA);
		return;
	}
	path_keep(m, from);
	n.charged = lc->index + 1;
	if (KVR_SIM_FAULT(EVENT_RING) || rte_ring_enqueue_elem(p->events, &n, sizeof(n)) != 0) {
		share_event_back(lc, p);
		busy(lc, m, from, IN_RING_FULL);
		return;
	}
	in_count(lc, IN_EVENTS);
}

/* ---- event lcore ---- */

static void event_count(struct pool *p, enum event_counter c, uint64_t n)
{
	kvr_stats_add(p->event_count, c, n);
}

static void rank_count(struct pool *p, uint32_t rank, enum event_rank_cell c, uint64_t n)
{
	kvr_cell_add(&p->event_ranks[rank].v[c], n);
}

static void authoritative(struct pool *p, uint32_t rank, bool is)
{
	kvr_cell_set(&p->event_ranks[rank].v[ER_AUTHORITATIVE], is);
}

/* Capacity of the rank's device tier: 1/4 more than the worker reports, for blocks in transition
 * inside the engine. 0: not reported. */
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
						.lag = UINT64_MAX};
	for (uint32_t i = 0; i < ER_CELLS; i++)
		kvr_cell_set(&p->event_ranks[rank].v[i], 0);
	authoritative(p, rank, w != NULL);
}

/* Result of applying a frame. */
enum applied {
	APPLIED, /* completely */
	BUSY,	 /* the rank is being cleared */
	LATER	 /* the budget of the turn is used up */
};

#define LAG_OF_DUMP (UINT64_C(1) << 63) /* event_cursor::lag is a dump position */
#define NOT_YET	    (-1)		/* no answer: the frame continues in the next turn */

/* Apply blocks of an event from `at` on. @return number applied. */
static uint32_t apply_piece(struct pool *p, uint32_t rank, const struct kvr_kv_event *ev,
			    uint32_t at)
{
	const enum kvr_tier tier = (enum kvr_tier)ev->tier;
	const uint64_t before = kvr_prefix_work(p->prefix);
	const uint32_t n = RTE_MIN(ev->n_blocks - at, p->event.dear ? PIECE_DEAR : PIECE);
	const uint8_t *sh = ev->hashes + at * sizeof(uint64_t);
	uint64_t parent = ev->parent;

	if (ev->type == KVR_KV_CLEARED) {
		kvr_prefix_clear_rank(p->prefix, (uint16_t)rank);
		event_count(p, EC_CLEARS, 1);
		rank_count(p, rank, ER_CLEARS, 1);
		return n;
	}
	if (at > 0)
		memcpy(&parent, sh - sizeof(parent), sizeof(parent));
	if (ev->type == KVR_KV_STORED) {
		kvr_prefix_store(p->prefix, (uint16_t)rank, tier,
				 at > 0 || (ev->flags & KVR_KV_EV_F_PARENT) != 0 ? &parent : NULL,
				 sh, n);
		event_count(p, EC_STORED_BLOCKS, n);
		rank_count(p, rank, ER_STORED, n);
	} else {
		kvr_prefix_remove(p->prefix, (uint16_t)rank, tier, sh, n);
		event_count(p, EC_REMOVED_BLOCKS, n);
		rank_count(p, rank, ER_REMOVED, n);
	}
	p->event.dear = kvr_prefix_work(p->prefix) - before > DEAR * n + 8;
	return n;
}

static bool is_short(const struct kvr_kv_event *ev)
{
	return ev->type != KVR_KV_CLEARED && ev->n_blocks <= SHORT;
}

/* Apply short events together: @p ev and those behind it; stores only if the rank is @p ready.
 * Moves @p it behind the last. @return number applied. */
static uint32_t apply_short(struct pool *p, uint32_t rank, struct kvr_kv_iter *it,
			    struct kvr_kv_event ev, bool ready)
{
	const uint64_t before = kvr_prefix_work(p->prefix);
	const uint32_t most = p->event.dear ? PIECE_DEAR : PIECE;
	struct kvr_prefix_event e[SHORT_BURST];
	uint32_t n = 0, blocks = 0;
	struct kvr_kv_iter next;

	do {
		const bool store = ev.type == KVR_KV_STORED;

		e[n++] = (struct kvr_prefix_event){
			.op = store ? KVR_PREFIX_STORE : KVR_PREFIX_REMOVE,
			.tier = ev.tier,
			.has_parent = store && (ev.flags & KVR_KV_EV_F_PARENT) != 0,
			.rank = (uint16_t)rank,
			.n = ev.n_blocks,
			.parent = ev.parent,
			.sh = ev.hashes,
		};
		blocks += ev.n_blocks;
		event_count(p, store ? EC_STORED_BLOCKS : EC_REMOVED_BLOCKS, ev.n_blocks);
		rank_count(p, rank, store ? ER_STORED : ER_REMOVED, ev.n_blocks);
		if (n > 1)
			*it = next;
		next = *it;
	} while (n < SHORT_BURST && kvr_kv_events_next(&next, &ev) && is_short(&ev) &&
		 (ready || ev.type != KVR_KV_STORED) && blocks + ev.n_blocks <= most);
	kvr_prefix_apply_burst(p->prefix, e, n);
	p->event.dear = kvr_prefix_work(p->prefix) - before > DEAR * blocks + 8 * n;
	return n;
}

/* Apply all events except the first @p skip and those of an earlier turn, until the table has
 * worked up to @p end. Sets @p done to the number of events done, including those. */
static enum applied apply_from(struct pool *p, uint32_t rank, const struct kvr_wire_kv_events *e,
			       uint64_t skip, uint64_t end, uint64_t *done)
{
	struct kvr_kv_iter it = kvr_kv_events_begin(e);
	struct kvr_kv_event ev;

	for (*done = 0; kvr_kv_events_next(&it, &ev); ++*done) {
		if (*done < skip || !p->events_used)
			continue;
		if (p->event.at == 0 && is_short(&ev)) {
			bool ready;

			if (kvr_prefix_work(p->prefix) >= end)
				return LATER;
			ready = kvr_prefix_ready(p->prefix, (uint16_t)rank);
			if (ev.type == KVR_KV_STORED && !ready)
				return BUSY;
			*done += apply_short(p, rank, &it, ev, ready) - 1;
			continue;
		}
		do {
			if (kvr_prefix_work(p->prefix) >= end)
				return LATER;
			if (ev.type == KVR_KV_STORED &&
			    !kvr_prefix_ready(p->prefix, (uint16_t)rank))
				return BUSY;
			p->event.at += apply_piece(p, rank, &ev, p->event.at);
		} while (p->event.at < ev.n_blocks);
		p->event.at = 0;
	}
	return APPLIED;
}

/* Begin a dump: clear the rank. All frames of a dump have one header id, so a late copy of the
 * first frame does not restart it, and late frames of other dumps are ignored. */
static void dump_begin(struct pool *p, uint32_t rank, struct event_cursor *c, uint64_t id)
{
	if (c->has_dump && c->dump_id == id)
		return;
	kvr_prefix_clear_rank(p->prefix, (uint16_t)rank);
	c->faith = CURSOR_SURE;
	c->has_dump = 1;
	c->dump_id = id;
	c->dumping = 1;
	c->dump_pos = 0;
	authoritative(p, rank, false);
}

/* Apply one frame of a dump, in order of position; next_dump_pos of the answer tells where to
 * continue. @return a code, or NOT_YET. */
static int dump_frame(struct pool *p, uint32_t rank, struct event_cursor *c,
		      const struct kvr_wire_kv_events *e, uint64_t id, uint64_t end)
{
	uint64_t done;

	if ((e->flags & KVR_KV_F_DUMP_BEGIN) != 0)
		dump_begin(p, rank, c, id);
	if (!c->has_dump || c->dump_id != id) {
		event_count(p, EC_ALREADY_APPLIED, 1);
		return KVR_KV_DUMP_WANTED; /* its first frame is missing, or it has ended */
	}
	if (!c->dumping || e->first_event_id != c->dump_pos) {
		event_count(p,
			    c->dumping && e->first_event_id > c->dump_pos ? EC_GAPS
									  : EC_ALREADY_APPLIED,
			    1);
		return KVR_KV_OK;
	}
	/* A dump only stores, so at most the first event is deferred. */
	switch (apply_from(p, rank, e, p->event.skip, end, &done)) {
	case LATER:
		p->event.skip = done;
		return NOT_YET;
	case BUSY:
		event_count(p, EC_DEFERRED, 1);
		return KVR_KV_BUSY;
	case APPLIED:
		break;
	}
	c->dump_pos++;
	if ((e->flags & KVR_KV_F_DUMP_END) != 0) {
		c->dumping = 0;
		c->next = e->resume_event_id;
		authoritative(p, rank, true);
		rank_count(p, rank, ER_DUMPS, 1);
	}
	event_count(p, EC_DUMPS, 1);
	return KVR_KV_OK;
}

/* @return a code, or NOT_YET; the cursor has the progress. */
static int live_frame(struct pool *p, uint32_t rank, struct event_cursor *c,
		      const struct kvr_wire_kv_events *e, uint64_t end)
{
	enum applied how;
	uint64_t before, done;

	/* Older than the dump in progress, or its sender does not know that a dump is wanted. */
	if (c->dumping || c->faith == CURSOR_HINT) {
		event_count(p, EC_ALREADY_APPLIED, 1);
		return KVR_KV_DUMP_WANTED;
	}
	if (e->first_event_id + e->n_events <= c->next) {
		event_count(p, EC_ALREADY_APPLIED, 1);
		rank_count(p, rank, ER_REGRESSIONS, 1);
		return KVR_KV_OK;
	}
	if (e->first_event_id > c->next && !kvr_prefix_ready(p->prefix, (uint16_t)rank)) {
		event_count(p, EC_DEFERRED, 1); /* earlier events may have been deferred */
		return KVR_KV_BUSY;
	}
	if (e->first_event_id > c->next) {
		KVR_SIM_SOMETIMES(EVENT_GAP);
		event_count(p, EC_GAPS, 1);
		rank_count(p, rank, ER_GAPS, 1);
		authoritative(p, rank, false);
		return KVR_KV_GAP;
	}
	before = c->next;
	how = apply_from(p, rank, e, c->next - e->first_event_id, end, &done);
	c->next = e->first_event_id + done;
	if (how == LATER)
		return NOT_YET;
	if (how == BUSY && c->next == before) {
		event_count(p, EC_DEFERRED, 1);
		return KVR_KV_BUSY;
	}
	c->dump_pos = 0;
	c->faith = CURSOR_SURE;
	authoritative(p, rank, true);
	event_count(p, EC_APPLIED, 1);
	return how == BUSY ? KVR_KV_BUSY : KVR_KV_OK;
}

void event_heartbeat(struct lcore *lc, struct pool *p, const struct rank_load *load)
{
	struct event_cursor *c;

	if (load->rank >= p->max_ranks)
		return;
	c = &p->cursor[load->rank];
	if (c->worker != load->worker || c->epoch != load->epoch)
		return; /* the rank changed its owner in the meantime */
	kvr_cell_set(&p->event_ranks[load->rank].v[ER_LAG],
		     load->next_event_id > c->next ? load->next_event_id - c->next : 0);
	if (unlikely(c->faith != CURSOR_SURE) && event_unsure(lc, p, load, c))
		return;
	if (c->dumping) {
		/* No dump frame for a whole heartbeat: a late frame of an earlier dump may have
		 * started it again, and the agent will send no more. */
		if (c->lag == (LAG_OF_DUMP | c->dump_pos))
			event_tell(lc, load, KVR_KV_DUMP_WANTED, c);
		c->lag = LAG_OF_DUMP | c->dump_pos;
		return;
	}
	if (load->next_event_id <= c->next) {
		c->lag = UINT64_MAX;
		/* The agent restarted with the same epoch if it reports fewer events than were
		 * applied: request a dump. */
		if (load->next_event_id < c->next)
			event_tell(lc, load, KVR_KV_OK, c);
		return;
	}
	/* Events may be on the way: it is a gap if none arrived for a whole heartbeat. */
	if (c->lag == c->next) {
		authoritative(p, load->rank, false);
		event_tell(lc, load, c->next == 0 ? KVR_KV_DUMP_WANTED : KVR_KV_GAP, c);
	}
	c->lag = c->next;
}

/* @return false: the frame continues in the next turn. */
static bool event_frame(struct lcore *lc, struct pool *p, const struct event_note *n, uint64_t end)
{
	const struct kvr_wire_hdr *h = rte_pktmbuf_mtod(n->m, const struct kvr_wire_hdr *);
	const struct kvr_wire_kv_events *e = kvr_frame_body(h);
	struct event_cursor *c = &p->cursor[n->rank];
	int code = KVR_KV_HELLO;

	/* The rank changed its owner in the meantime. */
	if (c->epoch == 0 || c->worker != h->source || c->epoch != h->epoch) {
		event_count(p, EC_STALE_EPOCH, 1);
		c = NULL;
	} else if ((e->flags & (KVR_KV_F_DUMP | KVR_KV_F_DUMP_BEGIN | KVR_KV_F_DUMP_END)) != 0) {
		code = dump_frame(p, n->rank, c, e, h->id, end);
	} else {
		code = live_frame(p, n->rank, c, e, end);
	}
	if (code == NOT_YET)
		return false;
	event_count(p, EC_FRAMES, 1);
	event_ack(lc, path_kept(n->m), h, e->dp_rank, (enum kvr_wire_kv_code)code, c);
	rte_pktmbuf_free(n->m);
	return true;
}

/* Continue from block event.at. @return false: continue in the next turn. */
static bool event_prediction(struct lcore *lc, struct pool *p, const struct event_note *n,
			     uint64_t end)
{
	const struct event_cursor *c = &p->cursor[n->rank];
	const uint64_t *sh = n->p->of != NULL ? n->p->of->sh : n->p->sh;

	/* Ignore predictions for an earlier owner. A rank without owner has epoch 0. */
	if (c->worker == n->p->worker && c->epoch == n->p->epoch && c->epoch != 0)
		p->event.at = kvr_prefix_predict_some(p->prefix, (uint16_t)n->rank, sh, p->event.at,
						      n->p->n, lc->now_ns / 1000000,
						      p->predict_ttl_ms, end);
	else
		p->event.at = n->p->n;
	if (p->event.at < n->p->n)
		return false;
	event_drop(n);
	return true;
}

static void event_expire(struct lcore *lc, struct pool *p)
{
	if (!p->predict || lc->now_ns < p->event.expire_ns)
		return;
	if (kvr_prefix_expire(p->prefix, lc->now_ns / 1000000))
		p->event.expire_ns =
			lc->now_ns + EXPIRE_EVERY_NS; /* otherwise continue in the next turn */
}

uint32_t event_poll(struct lcore *lc, struct pool *p)
{
	const uint64_t end = kvr_prefix_work(p->prefix) + TURN_UNITS;
	struct event_note n;
	uint32_t got = 0;

	/* One by one, because the cost of a message is known only afterwards. */
	for (; got < BURST && kvr_prefix_work(p->prefix) < end; got++) {
		if (unlikely(event_open(&p->event))) {
			n = p->event.open;
			p->event.open = (struct event_note){0};
		} else {
			if (rte_ring_empty(p->events))
				break;
			if (p->event.fetched == 0)
				event_fetch(p);
			rte_ring_dequeue_elem(p->events, &n, sizeof(n));
			p->event.fetched--;
			share_event_done(p, &n);
			p->event.skip = 0;
			p->event.at = 0;
		}
		if (!(n.m == NULL ? event_prediction(lc, p, &n, end) : event_frame(lc, p, &n, end)))
			p->event.open = n;
	}
	event_expire(lc, p);
	if (unlikely(p->event.doubt_ns != 0 && lc->now_ns >= p->event.doubt_ns))
		event_doubt(p);
	kvr_prefix_maintain(p->prefix, lc->now_ns / 1000000);
	return got;
}
