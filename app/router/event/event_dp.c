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
static void answer_busy(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from,
			enum in_counter why)
{
	const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const struct kvr_wire_kv_events *e = kvr_frame_body(hdr);

	in_count(lc, IN_DROPPED);
	in_count(lc, why);
	event_ack(lc, from, hdr, e->dp_rank, KVR_KV_BUSY, NULL);
	rte_pktmbuf_free(m);
}

void event_ingress(struct lcore *lc, struct rte_mbuf *m, const struct kvr_path *from)
{
	const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(m, const struct kvr_wire_hdr *);
	const struct kvr_wire_kv_events *e = kvr_frame_body(hdr);
	const struct kvr_view_worker *worker = kvr_view_find(lc->view, hdr->source);
	struct event_msg msg = {.m = m};
	struct pool *pool;

	if (worker != NULL && worker->epoch == hdr->epoch)
		msg.rank = kvr_view_rank(lc->view, worker, e->dp_rank);
	if (worker == NULL || worker->epoch != hdr->epoch || msg.rank == KVR_RANK_NONE) {
		in_count(lc, IN_EVENTS);
		if (worker != NULL)
			in_count(lc,
				 worker->epoch == hdr->epoch ? IN_UNKNOWN_RANK : IN_STALE_EPOCH);
		event_ack(lc, from, hdr, e->dp_rank, KVR_KV_HELLO, NULL);
		rte_pktmbuf_free(m);
		return;
	}
	if (!kvr_path_same(from, &worker->path)) {
		source_reject(lc, m, from, KVR_E_NOT_ALLOWED);
		return;
	}
	pool = &lc->rt->pool[worker->pool];
	if (unlikely(!quota_event_take(lc, pool, from))) {
		answer_busy(lc, m, from, IN_EVENT_QUOTA);
		return;
	}
	path_keep(m, from);
	msg.charged = lc->index + 1;
	if (KVR_SIM_FAULT(EVENT_RING) ||
	    rte_ring_enqueue_elem(pool->events, &msg, sizeof(msg)) != 0) {
		quota_event_undo(lc, pool);
		answer_busy(lc, m, from, IN_RING_FULL);
		return;
	}
	in_count(lc, IN_EVENTS);
}

/* ---- event lcore ---- */

static void event_count(struct pool *pool, enum event_counter c, uint64_t n)
{
	kvr_stats_add(pool->event_count, c, n);
}

static void rank_count(struct pool *pool, uint32_t rank, enum event_rank_cell c, uint64_t n)
{
	kvr_cell_add(&pool->event_ranks[rank].v[c], n);
}

static void set_authoritative(struct pool *pool, uint32_t rank, bool is)
{
	kvr_cell_set(&pool->event_ranks[rank].v[ER_AUTHORITATIVE], is);
}

/* Capacity of the rank's device tier: 1/4 more than the worker reports, for blocks in transition
 * inside the engine. 0: not reported. */
static uint64_t limit_of(const struct kvr_worker *worker)
{
	const uint64_t n = worker != NULL ? worker->total_kv_blocks : 0;

	return n > UINT32_MAX / 2 ? 0 : n == 0 ? 0 : n + n / 4 + 64;
}

void event_reset_rank(struct lcore *lc, struct pool *pool, uint32_t rank,
		      const struct kvr_worker *worker)
{
	RTE_SET_USED(lc);
	if (rank >= pool->max_ranks)
		return;
	kvr_prefix_clear_rank(pool->prefix, (uint16_t)rank);
	kvr_prefix_limit(pool->prefix, (uint16_t)rank, limit_of(worker));
	pool->cursor[rank] = (struct event_cursor){.worker = worker != NULL ? worker->id : 0,
						   .epoch = worker != NULL ? worker->epoch : 0,
						   .lag = UINT64_MAX};
	for (uint32_t i = 0; i < ER_CELLS; i++)
		kvr_cell_set(&pool->event_ranks[rank].v[i], 0);
	set_authoritative(pool, rank, worker != NULL);
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
static uint32_t apply_piece(struct pool *pool, uint32_t rank, const struct kvr_kv_event *ev,
			    uint32_t at)
{
	const enum kvr_tier tier = (enum kvr_tier)ev->tier;
	const uint64_t before = kvr_prefix_work(pool->prefix);
	const uint32_t n = RTE_MIN(ev->n_blocks - at, pool->event.dear ? PIECE_DEAR : PIECE);
	const uint8_t *sh = ev->hashes + at * sizeof(uint64_t);
	uint64_t parent = ev->parent;

	if (ev->type == KVR_KV_CLEARED) {
		kvr_prefix_clear_rank(pool->prefix, (uint16_t)rank);
		event_count(pool, EC_CLEARS, 1);
		rank_count(pool, rank, ER_CLEARS, 1);
		return n;
	}
	if (at > 0)
		memcpy(&parent, sh - sizeof(parent), sizeof(parent));
	if (ev->type == KVR_KV_STORED) {
		kvr_prefix_store(pool->prefix, (uint16_t)rank, tier,
				 at > 0 || (ev->flags & KVR_KV_EV_F_PARENT) != 0 ? &parent : NULL,
				 sh, n);
		event_count(pool, EC_STORED_BLOCKS, n);
		rank_count(pool, rank, ER_STORED, n);
	} else {
		kvr_prefix_remove(pool->prefix, (uint16_t)rank, tier, sh, n);
		event_count(pool, EC_REMOVED_BLOCKS, n);
		rank_count(pool, rank, ER_REMOVED, n);
	}
	pool->event.dear = kvr_prefix_work(pool->prefix) - before > DEAR * n + 8;
	return n;
}

static bool is_short(const struct kvr_kv_event *ev)
{
	return ev->type != KVR_KV_CLEARED && ev->n_blocks <= SHORT;
}

/* Apply short events together: @pool ev and those behind it; stores only if the rank is @pool
 * ready. Moves @pool it behind the last. @return number applied. */
static uint32_t apply_short(struct pool *pool, uint32_t rank, struct kvr_kv_iter *it,
			    struct kvr_kv_event ev, bool ready)
{
	const uint64_t before = kvr_prefix_work(pool->prefix);
	const uint32_t most = pool->event.dear ? PIECE_DEAR : PIECE;
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
		event_count(pool, store ? EC_STORED_BLOCKS : EC_REMOVED_BLOCKS, ev.n_blocks);
		rank_count(pool, rank, store ? ER_STORED : ER_REMOVED, ev.n_blocks);
		if (n > 1)
			*it = next;
		next = *it;
	} while (n < SHORT_BURST && kvr_kv_events_next(&next, &ev) && is_short(&ev) &&
		 (ready || ev.type != KVR_KV_STORED) && blocks + ev.n_blocks <= most);
	kvr_prefix_apply_burst(pool->prefix, e, n);
	pool->event.dear = kvr_prefix_work(pool->prefix) - before > DEAR * blocks + 8 * n;
	return n;
}

/* Apply all events except the first @pool skip and those of an earlier turn, until the table has
 * worked up to @pool end. Sets @pool done to the number of events done, including those. */
static enum applied apply_from(struct pool *pool, uint32_t rank, const struct kvr_wire_kv_events *e,
			       uint64_t skip, uint64_t end, uint64_t *done)
{
	struct kvr_kv_iter it = kvr_kv_events_begin(e);
	struct kvr_kv_event ev;

	for (*done = 0; kvr_kv_events_next(&it, &ev); ++*done) {
		if (*done < skip || !pool->events_used)
			continue;
		if (pool->event.at == 0 && is_short(&ev)) {
			bool ready;

			if (kvr_prefix_work(pool->prefix) >= end)
				return LATER;
			ready = kvr_prefix_ready(pool->prefix, (uint16_t)rank);
			if (ev.type == KVR_KV_STORED && !ready)
				return BUSY;
			*done += apply_short(pool, rank, &it, ev, ready) - 1;
			continue;
		}
		do {
			if (kvr_prefix_work(pool->prefix) >= end)
				return LATER;
			if (ev.type == KVR_KV_STORED &&
			    !kvr_prefix_ready(pool->prefix, (uint16_t)rank))
				return BUSY;
			pool->event.at += apply_piece(pool, rank, &ev, pool->event.at);
		} while (pool->event.at < ev.n_blocks);
		pool->event.at = 0;
	}
	return APPLIED;
}

/* Begin a dump: clear the rank. All frames of a dump have one header id, so a late copy of the
 * first frame does not restart it, and late frames of other dumps are ignored. */
static void dump_begin(struct pool *pool, uint32_t rank, struct event_cursor *cursor, uint64_t id)
{
	if (cursor->has_dump && cursor->dump_id == id)
		return;
	kvr_prefix_clear_rank(pool->prefix, (uint16_t)rank);
	cursor->faith = CURSOR_SURE;
	cursor->has_dump = 1;
	cursor->dump_id = id;
	cursor->dumping = 1;
	cursor->dump_pos = 0;
	set_authoritative(pool, rank, false);
}

/* Apply one frame of a dump, in order of position; next_dump_pos of the answer tells where to
 * continue. @return a code, or NOT_YET. */
static int dump_frame(struct pool *pool, uint32_t rank, struct event_cursor *cursor,
		      const struct kvr_wire_kv_events *e, uint64_t id, uint64_t end)
{
	uint64_t done;

	if ((e->flags & KVR_KV_F_DUMP_BEGIN) != 0)
		dump_begin(pool, rank, cursor, id);
	if (!cursor->has_dump || cursor->dump_id != id) {
		event_count(pool, EC_ALREADY_APPLIED, 1);
		return KVR_KV_DUMP_WANTED; /* its first frame is missing, or it has ended */
	}
	if (!cursor->dumping || e->first_event_id != cursor->dump_pos) {
		event_count(pool,
			    cursor->dumping && e->first_event_id > cursor->dump_pos
				    ? EC_GAPS
				    : EC_ALREADY_APPLIED,
			    1);
		return KVR_KV_OK;
	}
	/* A dump only stores, so at most the first event is deferred. */
	switch (apply_from(pool, rank, e, pool->event.skip, end, &done)) {
	case LATER:
		pool->event.skip = done;
		return NOT_YET;
	case BUSY:
		event_count(pool, EC_DEFERRED, 1);
		return KVR_KV_BUSY;
	case APPLIED:
		break;
	}
	cursor->dump_pos++;
	if ((e->flags & KVR_KV_F_DUMP_END) != 0) {
		cursor->dumping = 0;
		cursor->next = e->resume_event_id;
		set_authoritative(pool, rank, true);
		rank_count(pool, rank, ER_DUMPS, 1);
	}
	event_count(pool, EC_DUMPS, 1);
	return KVR_KV_OK;
}

/* @return a code, or NOT_YET; the cursor has the progress. */
static int live_frame(struct pool *pool, uint32_t rank, struct event_cursor *cursor,
		      const struct kvr_wire_kv_events *e, uint64_t end)
{
	enum applied how;
	uint64_t before, done;

	/* Older than the dump in progress, or its sender does not know that a dump is wanted. */
	if (cursor->dumping || cursor->faith == CURSOR_HINT) {
		event_count(pool, EC_ALREADY_APPLIED, 1);
		return KVR_KV_DUMP_WANTED;
	}
	if (e->first_event_id + e->n_events <= cursor->next) {
		event_count(pool, EC_ALREADY_APPLIED, 1);
		rank_count(pool, rank, ER_REGRESSIONS, 1);
		return KVR_KV_OK;
	}
	if (e->first_event_id > cursor->next && !kvr_prefix_ready(pool->prefix, (uint16_t)rank)) {
		event_count(pool, EC_DEFERRED, 1); /* earlier events may have been deferred */
		return KVR_KV_BUSY;
	}
	if (e->first_event_id > cursor->next) {
		KVR_SIM_SOMETIMES(EVENT_GAP);
		event_count(pool, EC_GAPS, 1);
		rank_count(pool, rank, ER_GAPS, 1);
		set_authoritative(pool, rank, false);
		return KVR_KV_GAP;
	}
	before = cursor->next;
	how = apply_from(pool, rank, e, cursor->next - e->first_event_id, end, &done);
	cursor->next = e->first_event_id + done;
	if (how == LATER)
		return NOT_YET;
	if (how == BUSY && cursor->next == before) {
		event_count(pool, EC_DEFERRED, 1);
		return KVR_KV_BUSY;
	}
	cursor->dump_pos = 0;
	cursor->faith = CURSOR_SURE;
	set_authoritative(pool, rank, true);
	event_count(pool, EC_APPLIED, 1);
	return how == BUSY ? KVR_KV_BUSY : KVR_KV_OK;
}

void event_heartbeat(struct lcore *lc, struct pool *pool, const struct rank_load *load)
{
	struct event_cursor *cursor;

	if (load->rank >= pool->max_ranks)
		return;
	cursor = &pool->cursor[load->rank];
	if (cursor->worker != load->worker || cursor->epoch != load->epoch)
		return; /* the rank changed its owner in the meantime */
	kvr_cell_set(&pool->event_ranks[load->rank].v[ER_LAG],
		     load->next_event_id > cursor->next ? load->next_event_id - cursor->next : 0);
	if (unlikely(cursor->faith != CURSOR_SURE) && event_confirm(lc, pool, load, cursor))
		return;
	if (cursor->dumping) {
		/* No dump frame for a whole heartbeat: a late frame of an earlier dump may have
		 * started it again, and the agent will send no more. */
		if (cursor->lag == (LAG_OF_DUMP | cursor->dump_pos))
			event_ack_unasked(lc, load, KVR_KV_DUMP_WANTED, cursor);
		cursor->lag = LAG_OF_DUMP | cursor->dump_pos;
		return;
	}
	if (load->next_event_id <= cursor->next) {
		cursor->lag = UINT64_MAX;
		/* The agent restarted with the same epoch if it reports fewer events than were
		 * applied: request a dump. */
		if (load->next_event_id < cursor->next)
			event_ack_unasked(lc, load, KVR_KV_OK, cursor);
		return;
	}
	/* Events may be on the way: it is a gap if none arrived for a whole heartbeat. */
	if (cursor->lag == cursor->next) {
		set_authoritative(pool, load->rank, false);
		event_ack_unasked(lc, load, cursor->next == 0 ? KVR_KV_DUMP_WANTED : KVR_KV_GAP,
				  cursor);
	}
	cursor->lag = cursor->next;
}

/* @return false: the frame continues in the next turn. */
static bool event_frame(struct lcore *lc, struct pool *pool, const struct event_msg *msg,
			uint64_t end)
{
	const struct kvr_wire_hdr *hdr = rte_pktmbuf_mtod(msg->m, const struct kvr_wire_hdr *);
	const struct kvr_wire_kv_events *e = kvr_frame_body(hdr);
	struct event_cursor *cursor = &pool->cursor[msg->rank];
	int code = KVR_KV_HELLO;

	/* The rank changed its owner in the meantime. */
	if (cursor->epoch == 0 || cursor->worker != hdr->source || cursor->epoch != hdr->epoch) {
		event_count(pool, EC_STALE_EPOCH, 1);
		cursor = NULL;
	} else if ((e->flags & (KVR_KV_F_DUMP | KVR_KV_F_DUMP_BEGIN | KVR_KV_F_DUMP_END)) != 0) {
		code = dump_frame(pool, msg->rank, cursor, e, hdr->id, end);
	} else {
		code = live_frame(pool, msg->rank, cursor, e, end);
	}
	if (code == NOT_YET)
		return false;
	event_count(pool, EC_FRAMES, 1);
	event_ack(lc, path_kept(msg->m), hdr, e->dp_rank, (enum kvr_wire_kv_code)code, cursor);
	rte_pktmbuf_free(msg->m);
	return true;
}

/* Continue from block event.at. @return false: continue in the next turn. */
static bool event_prediction(struct lcore *lc, struct pool *pool, const struct event_msg *msg,
			     uint64_t end)
{
	const struct event_cursor *cursor = &pool->cursor[msg->rank];
	const uint64_t *sh = msg->p->of != NULL ? msg->p->of->sh : msg->p->sh;

	/* Ignore predictions for an earlier owner. A rank without owner has epoch 0. */
	if (cursor->worker == msg->p->worker && cursor->epoch == msg->p->epoch &&
	    cursor->epoch != 0)
		pool->event.at = kvr_prefix_predict_some(
			pool->prefix, (uint16_t)msg->rank, sh, pool->event.at, msg->p->n,
			lc->now_ns / 1000000, pool->predict_ttl_ms, end);
	else
		pool->event.at = msg->p->n;
	if (pool->event.at < msg->p->n)
		return false;
	event_msg_free(msg);
	return true;
}

static void event_expire(struct lcore *lc, struct pool *pool)
{
	if (!pool->predict || lc->now_ns < pool->event.expire_ns)
		return;
	if (kvr_prefix_expire(pool->prefix, lc->now_ns / 1000000))
		pool->event.expire_ns =
			lc->now_ns + EXPIRE_EVERY_NS; /* otherwise continue in the next turn */
}

uint32_t event_poll(struct lcore *lc, struct pool *pool)
{
	const uint64_t end = kvr_prefix_work(pool->prefix) + TURN_UNITS;
	struct event_msg msg;
	uint32_t got = 0;

	/* One by one, because the cost of a message is known only afterwards. */
	for (; got < BURST && kvr_prefix_work(pool->prefix) < end; got++) {
		if (unlikely(event_is_open(&pool->event))) {
			msg = pool->event.open;
			pool->event.open = (struct event_msg){0};
		} else {
			if (rte_ring_empty(pool->events))
				break;
			if (pool->event.fetched == 0)
				event_fetch(pool);
			rte_ring_dequeue_elem(pool->events, &msg, sizeof(msg));
			pool->event.fetched--;
			quota_event_done(pool, &msg);
			pool->event.skip = 0;
			pool->event.at = 0;
		}
		if (!(msg.m == NULL ? event_prediction(lc, pool, &msg, end)
				    : event_frame(lc, pool, &msg, end)))
			pool->event.open = msg;
	}
	event_expire(lc, pool);
	if (unlikely(pool->event.doubt_ns != 0 && lc->now_ns >= pool->event.doubt_ns))
		event_expire_unconfirmed(pool);
	kvr_prefix_maintain(pool->prefix, lc->now_ns / 1000000);
	return got;
}
