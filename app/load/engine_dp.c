/* SPDX-License-Identifier: BSD-3-Clause */
#include "load.h"

#include <string.h>

#include "frame.h"
#include "kvr_message.h"

/*
 * A simulated engine. Per rank: requests wait in a queue, one at a time is prefilled (its time is
 * that of the prompt tokens not in the cache), then decodes at a constant time per token beside
 * all others. Blocks enter the cache when their prefill ends, and those of the answer when it
 * ends. Instant engines do all of that in the call that receives DISPATCH.
 *
 *	IDLE -> QUEUED -> PREFILL -> DECODE -> SENT -> IDLE        (ABORT: to IDLE from anywhere)
 */

#define REPEAT_ITEMS 16u
#define GIVE_UP_S    10
#define REFUSE_GONE  2 /* DISPATCH_ACK: the request has ended here */
#define REFUSE_RANK  1 /* DISPATCH_ACK: not a rank of this engine */

/* ---- items ---- */

/* Tokens generated when item `seq` leaves: the first token, then even shares. */
static uint32_t tokens_at(const struct load_slot *s, uint32_t seq)
{
	if (seq + 1 >= s->n_items)
		return s->prompt->osl;
	return 1 + (uint32_t)((uint64_t)seq * (s->prompt->osl - 1) / (s->n_items - 1));
}

static void send_progress(struct load *l, struct load_slot *s, uint32_t seq, uint32_t flags)
{
	const struct kvr_wire_ids ids = load_engine_ids(l, s);
	struct kvr_wire_progress *p;

	p = load_message(l, load_port_of_engine(l, l->ranks[s->rank].engine), KVR_PROGRESS, &ids,
			 sizeof(*p), NULL);
	if (p != NULL)
		*p = (struct kvr_wire_progress){.seq = seq,
						.flags = (uint16_t)flags,
						.generated_tokens = tokens_at(s, seq),
						.cached_tokens = s->cached * l->opt->block_size};
}

static struct kvr_wire_response item_of(const struct load *l, const struct load_slot *s,
					uint32_t seq)
{
	return (struct kvr_wire_response){
		.seq = seq,
		.flags = seq + 1 == s->n_items ? KVR_RESP_F_FIN : 0,
		.generated_tokens = tokens_at(s, seq),
		.data_len = l->opt->item_bytes,
		.cached_tokens = s->cached * l->opt->block_size,
	};
}

static void send_item(struct load *l, struct load_slot *s, uint32_t seq)
{
	const struct kvr_wire_ids ids = load_engine_ids(l, s);
	const uint16_t len =
		(uint16_t)(sizeof(struct kvr_wire_response) + ((l->opt->item_bytes + 7u) & ~7u));
	const uint64_t mark[2] = {s->id, seq};
	uint8_t *p;

	p = load_message(l, load_port_of_engine(l, l->ranks[s->rank].engine), KVR_RESPONSE, &ids,
			 len, seq == 0 ? &s->resp_tx : NULL);
	if (p == NULL)
		return;
	*(struct kvr_wire_response *)p = item_of(l, s, seq);
	memcpy(p + sizeof(struct kvr_wire_response), l->item,
	       len - sizeof(struct kvr_wire_response));
	memcpy(p + sizeof(struct kvr_wire_response), mark, sizeof(mark));
}

/* Make item `s->made`: to the router, or (direct) to the client while the router hears of it. */
static void make_item(struct load *l, uint32_t slot)
{
	struct load_slot *s = &l->slots[slot];
	const uint32_t seq = s->made++;
	const struct kvr_wire_response item = item_of(l, s, seq);

	s->elast_tx = s->progress_at = l->now;
	if (!l->opt->direct) {
		send_item(l, s, seq);
		return;
	}
	send_progress(l, s, seq,
		      (seq == 0 ? KVR_PROG_F_FIRST : 0) |
			      (item.flags & KVR_RESP_F_FIN ? KVR_PROG_F_FIN : 0));
	load_client_item(l, slot, &item, l->now);
}

/* ---- the cache ---- */

/* Make the first n blocks resident on the rank, tell the router, return what was before. */
static uint32_t store(struct load *l, const struct load_slot *s, uint32_t n)
{
	struct load_rank *r = &l->ranks[s->rank];
	const uint64_t *h = s->prompt->hashes;
	struct load_cache_change c;

	if (r->cache == NULL || n == 0)
		return 0;
	c = load_cache_store(r->cache, h, n, l->removed);
	if (c.n_removed > 0)
		load_kv_add(l, s->rank, KVR_KV_REMOVED, NULL, l->removed, c.n_removed);
	if (c.n > c.have)
		load_kv_add(l, s->rank, KVR_KV_STORED, c.have > 0 ? &h[c.have - 1] : NULL,
			    &h[c.have], c.n - c.have);
	return c.have;
}

/* The prefill found so many blocks in the cache: what the router believed, against it. */
static void note_cached(struct load *l, struct load_slot *s, uint32_t cached)
{
	const uint32_t n = s->prompt->n_blocks;
	uint32_t diff;

	s->cached = cached < n ? cached : n;
	if (!(s->flags & LOAD_S_MEASURED))
		return;
	diff = s->predicted > s->cached ? s->predicted - s->cached : s->cached - s->predicted;
	kvr_stats_add(l->row, LOAD_PROMPT_BLOCKS, n);
	kvr_stats_add(l->row, LOAD_CACHED_BLOCKS, s->cached);
	kvr_stats_add(l->row, LOAD_PREDICTED_BLOCKS, s->predicted);
	kvr_stats_add(l->row, LOAD_PREDICTION_ERROR, diff);
	if (s->predicted > s->cached)
		kvr_stats_add(l->row, LOAD_PREDICTION_OVER, diff);
	if (diff == 0)
		kvr_stats_inc(l->row, LOAD_PREDICTION_EXACT);
}

static void look_up(struct load *l, struct load_slot *s)
{
	const struct load_rank *r = &l->ranks[s->rank];

	note_cached(l, s,
		    r->cache != NULL
			    ? load_cache_match(r->cache, s->prompt->hashes, s->prompt->n_blocks)
			    : 0);
}

/* ---- a rank's work ---- */

static void at(struct load *l, uint32_t slot, double cycles)
{
	/* Room for a timer per slot and stale ones; at most one of each slot's is current. */
	load_timers_add(&l->timers,
			(struct load_timer){l->now + (uint64_t)cycles, slot, l->slots[slot].gen});
}

static void start_prefills(struct load *l, struct load_rank *r)
{
	while (r->prefilling == LOAD_NO_SLOT && r->q_head != LOAD_NO_SLOT &&
	       r->running < l->opt->max_running) {
		const uint32_t slot = r->q_head;
		struct load_slot *s = &l->slots[slot];
		uint32_t cached, fresh;

		r->q_head = s->next;
		if (r->q_head == LOAD_NO_SLOT)
			r->q_tail = LOAD_NO_SLOT;
		look_up(l, s);
		cached = s->cached * l->opt->block_size;
		fresh = s->prompt->isl > cached ? s->prompt->isl - cached : 1;
		s->estate = LOAD_E_PREFILL;
		r->prefilling = slot;
		r->running++;
		at(l, slot, fresh * l->prefill_cycles);
	}
}

static void enqueue(struct load *l, uint32_t slot)
{
	struct load_slot *s = &l->slots[slot];
	struct load_rank *r = &l->ranks[s->rank];

	s->next = LOAD_NO_SLOT;
	s->estate = LOAD_E_QUEUED;
	if (r->q_tail != LOAD_NO_SLOT)
		l->slots[r->q_tail].next = slot;
	else
		r->q_head = slot;
	r->q_tail = slot;
	start_prefills(l, r);
}

static void unqueue(struct load *l, uint32_t slot)
{
	struct load_rank *r = &l->ranks[l->slots[slot].rank];
	uint32_t before = LOAD_NO_SLOT, i = r->q_head;

	while (i != slot) {
		before = i;
		i = l->slots[i].next;
	}
	if (before == LOAD_NO_SLOT)
		r->q_head = l->slots[slot].next;
	else
		l->slots[before].next = l->slots[slot].next;
	if (r->q_tail == slot)
		r->q_tail = before;
}

/* Next item of a decoding request, or its end. */
static void next_item(struct load *l, uint32_t slot)
{
	struct load_slot *s = &l->slots[slot];
	struct load_rank *r = &l->ranks[s->rank];

	make_item(l, slot);
	if (s->made < s->n_items) {
		at(l, slot, (tokens_at(s, s->made) - tokens_at(s, s->made - 1)) * l->decode_cycles);
		return;
	}
	store(l, s, s->prompt->n_after);
	s->estate = LOAD_E_SENT;
	r->running--;
	start_prefills(l, r);
}

/* Prefill, decode and the end in one: the cache is looked up once for all of them. */
static void answer_at_once(struct load *l, uint32_t slot)
{
	struct load_slot *s = &l->slots[slot];

	note_cached(l, s, store(l, s, s->prompt->n_after));
	s->estate = LOAD_E_DECODE;
	while (s->made < s->n_items)
		make_item(l, slot);
	s->estate = LOAD_E_SENT;
}

void load_engine_timers(struct load *l)
{
	struct load_timer t;

	for (uint32_t n = 0; n < LOAD_BURST && load_timers_pop(&l->timers, l->now, &t); n++) {
		struct load_slot *s = &l->slots[t.slot];
		struct load_rank *r;

		if (s->gen != t.gen || s->id == 0)
			continue;
		r = &l->ranks[s->rank];
		if (s->estate == LOAD_E_PREFILL) {
			r->prefilling = LOAD_NO_SLOT;
			s->estate = LOAD_E_DECODE;
			store(l, s, s->prompt->n_blocks);
			next_item(l, t.slot);
			start_prefills(l, r);
		} else if (s->estate == LOAD_E_DECODE) {
			next_item(l, t.slot);
		}
	}
}

static void finish(struct load *l, uint32_t slot)
{
	struct load_slot *s = &l->slots[slot];
	struct load_rank *r = &l->ranks[s->rank];

	if (s->estate == LOAD_E_QUEUED) {
		unqueue(l, slot);
	} else if (s->estate == LOAD_E_PREFILL || s->estate == LOAD_E_DECODE) {
		if (r->prefilling == slot)
			r->prefilling = LOAD_NO_SLOT;
		r->running--;
	}
	s->estate = LOAD_E_IDLE;
	s->gen++; /* its timers mean nothing from here on */
	if (!l->opt->instant)
		start_prefills(l, r);
}

void load_engine_drop(struct load *l, uint32_t slot)
{
	if (l->slots[slot].estate != LOAD_E_IDLE)
		finish(l, slot);
}

/* ---- DISPATCH ---- */

/* Rank a DISPATCH names, or LOAD_UNPINNED. */
static uint32_t rank_of(const struct load *l, const struct kvr_wire_request *q)
{
	const uint64_t engine = q->worker - l->opt->worker_base;

	if (engine >= l->n_engines || q->dp_rank >= l->opt->ranks)
		return LOAD_UNPINNED;
	return (uint32_t)engine * l->opt->ranks + q->dp_rank;
}

/* Is body[off, off + len) what the client sent? Hashes and tokens are compared, byte by byte. */
static bool intact(struct load *l, const struct load_slot *s, uint32_t off, uint32_t len,
		   const uint8_t *body)
{
	const uint32_t at_content = sizeof(struct kvr_wire_request), end = off + len;
	const uint32_t bytes = l->opt->tokens ? s->prompt->isl * 4 : s->prompt->n_blocks * 8;
	uint32_t from = off > at_content ? off : at_content, to = at_content + bytes, first;

	if (to > end)
		to = end;
	if (from >= to)
		return true;
	first = (from - at_content) / 4;
	if (!l->opt->tokens)
		return memcmp(body + (from - off),
			      (const uint8_t *)s->prompt->hashes + (from - at_content),
			      to - from) == 0;
	load_workload_fill_tokens(l->work, s->prompt, first, (to - from) / 4, l->tokens);
	return memcmp(body + (from - off), l->tokens, to - from) == 0;
}

static struct kvr_wire_ids answer_ids(struct load *l, const struct kvr_wire_hdr *h, uint32_t engine)
{
	return (struct kvr_wire_ids){.source = h->source,
				     .id = h->id,
				     .handle = h->handle,
				     .epoch = l->engines[engine].epoch,
				     .msg_seq = ++l->engine_seq};
}

static void ack_dispatch(struct load *l, const struct kvr_wire_hdr *h, uint32_t engine,
			 uint16_t code)
{
	const struct kvr_wire_ids ids = answer_ids(l, h, engine);
	struct kvr_wire_dispatch_ack *a;

	a = load_message(l, load_port_of_engine(l, engine), KVR_DISPATCH_ACK, &ids, sizeof(*a),
			 NULL);
	if (a != NULL)
		*a = (struct kvr_wire_dispatch_ack){.code = code};
}

/* The first frame of a DISPATCH: where it goes. False when it must not be followed up. */
static bool begin_dispatch(struct load *l, uint32_t slot, const struct kvr_wire_hdr *h,
			   uint32_t engine, uint64_t rx)
{
	const struct kvr_wire_request *q = kvr_frame_body(h);
	struct load_slot *s = &l->slots[slot];
	const uint32_t rank = rank_of(l, q);

	if (rank == LOAD_UNPINNED || l->ranks[rank].engine != engine || h->frag_len < sizeof(*q)) {
		kvr_stats_inc(l->row, LOAD_CORRUPT);
		ack_dispatch(l, h, engine, REFUSE_RANK);
		return false;
	}
	if (s->estate != LOAD_E_IDLE && s->rank == rank && s->handle == h->handle) {
		kvr_stats_inc(l->row, LOAD_DISPATCH_REPEATS);
		ack_dispatch(l, h, l->ranks[rank].engine, 0);
		return false;
	}
	load_engine_drop(l, slot); /* dispatched again, to another rank */
	s->rank = rank;
	s->attempt = q->attempt;
	s->predicted = q->overlap_blocks;
	s->handle = h->handle;
	s->got = 0;
	if (!(s->flags & LOAD_S_DISPATCHED)) {
		s->flags |= LOAD_S_DISPATCHED;
		kvr_stats_inc(l->row, LOAD_DISPATCHES);
		s->forward = rx > s->route_tx ? rx - s->route_tx : 0;
		if (s->flags & LOAD_S_MEASURED)
			kvr_hist_add(&l->m->forward, s->forward);
	}
	if (s->load_on == LOAD_UNPINNED && s->cstate != LOAD_C_ENDED) {
		s->load_on = rank;
		l->in_flight[rank]++;
	}
	return true;
}

static void run_request(struct load *l, uint32_t slot, const struct kvr_wire_hdr *h)
{
	struct load_slot *s = &l->slots[slot];

	s->n_items = l->opt->items < s->prompt->osl ? l->opt->items : s->prompt->osl;
	s->made = s->acked = s->etries = 0;
	s->resp_tx = 0;
	if (l->opt->instant) {
		answer_at_once(l, slot);
		return;
	}
	ack_dispatch(l, h, l->ranks[s->rank].engine, 0);
	enqueue(l, slot);
}

static void on_dispatch(struct load *l, const struct kvr_wire_hdr *h, uint32_t engine, uint64_t rx)
{
	const uint32_t slot = load_slot_of(l, h->id);
	struct load_slot *s = slot != LOAD_NO_SLOT ? &l->slots[slot] : NULL;

	if (s == NULL || l->clients[s->client].source != h->source ||
	    (s->cstate == LOAD_C_ENDED && h->frag_off == 0)) {
		kvr_stats_inc(l->row, LOAD_DISPATCH_STALE);
		if (h->frag_off == 0)
			ack_dispatch(l, h, engine, REFUSE_GONE);
		return;
	}
	if (h->frag_off == 0 && !begin_dispatch(l, slot, h, engine, rx))
		return;
	if (h->frag_off != s->got || s->estate != LOAD_E_IDLE)
		return; /* a piece before it is missing: the repeat brings all again */
	s->got += h->frag_len;
	if (!intact(l, s, h->frag_off, h->frag_len, kvr_frame_body(h)))
		kvr_stats_inc(l->row, LOAD_CORRUPT);
	if (s->got == h->msg_len)
		run_request(l, slot, h);
}

/* ---- other frames ---- */

static void on_ack(struct load *l, uint32_t slot, uint32_t next_seq)
{
	struct load_slot *s = &l->slots[slot];

	if (next_seq > s->acked && next_seq <= s->made) {
		s->acked = next_seq;
		s->etries = 0;
		s->elast_tx = s->progress_at = l->now;
	}
	if (s->estate != LOAD_E_SENT || s->acked < s->n_items)
		return;
	s->estate = LOAD_E_IDLE;
	load_slot_release(l, slot);
}

/* Acknowledged also when the request is long gone: the router repeats it until then. */
static void on_abort(struct load *l, const struct kvr_wire_hdr *h, uint32_t engine, uint32_t slot)
{
	const struct kvr_wire_ids ids = answer_ids(l, h, engine);

	kvr_stats_inc(l->row, LOAD_ABORTS);
	load_message(l, load_port_of_engine(l, engine), KVR_ABORT_ACK, &ids, 0, NULL);
	if (slot == LOAD_NO_SLOT || l->ranks[l->slots[slot].rank].engine != engine)
		return;
	load_engine_drop(l, slot);
	load_slot_release(l, slot);
}

void load_engine_frame(struct load *l, const struct kvr_wire_hdr *h, uint32_t engine, uint64_t rx)
{
	uint32_t slot;

	if (h->kind == KVR_DISPATCH) {
		on_dispatch(l, h, engine, rx);
		return;
	}
	slot = load_slot_of(l, h->id);
	if (h->kind == KVR_ABORT) {
		on_abort(l, h, engine, slot);
		return;
	}
	if (slot == LOAD_NO_SLOT || !(l->slots[slot].flags & LOAD_S_DISPATCHED)) {
		kvr_stats_inc(l->row, LOAD_STALE);
		return;
	}
	if (h->kind == KVR_RESPONSE_ACK)
		on_ack(l, slot,
		       ((const struct kvr_wire_response_ack *)kvr_frame_body(h))->next_seq);
	else /* PROGRESS_ACK */
		on_ack(l, slot,
		       ((const struct kvr_wire_progress_ack *)kvr_frame_body(h))->next_seq);
}

void load_engine_refused(struct load *l, const struct kvr_wire_hdr *h)
{
	const uint32_t slot = load_slot_of(l, h->id);

	if (slot == LOAD_NO_SLOT || l->slots[slot].handle != h->handle) {
		kvr_stats_inc(l->row, LOAD_STALE);
		return;
	}
	load_engine_drop(l, slot); /* stop repeating */
	load_slot_release(l, slot);
}

/* Items the client has not acknowledged for too long are sent again, the oldest first. */
void load_engine_check(struct load *l, uint32_t slot)
{
	struct load_slot *s = &l->slots[slot];
	uint32_t last;

	if (s->id == 0 || s->acked >= s->made || s->estate < LOAD_E_DECODE ||
	    l->now - s->elast_tx < load_patience(l, s->etries))
		return;
	s->etries++;
	if (l->now - s->progress_at > GIVE_UP_S * l->hz) {
		kvr_stats_inc(l->row, LOAD_ENGINE_GAVE_UP);
		finish(l, slot);
		load_slot_release(l, slot);
		return;
	}
	s->elast_tx = l->now;
	if (l->opt->direct) { /* the last report says it all */
		kvr_stats_inc(l->row, LOAD_ITEM_REPEATS);
		send_progress(l, s, s->made - 1,
			      KVR_PROG_F_FIRST | (s->made == s->n_items ? KVR_PROG_F_FIN : 0));
		return;
	}
	last = s->made < s->acked + REPEAT_ITEMS ? s->made : s->acked + REPEAT_ITEMS;
	kvr_stats_add(l->row, LOAD_ITEM_REPEATS, last - s->acked);
	for (uint32_t seq = s->acked; seq < last; seq++)
		send_item(l, s, seq);
}
