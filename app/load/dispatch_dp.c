/* SPDX-License-Identifier: BSD-3-Clause */
#include "load.h"

#include <string.h>

#include "frame.h"
#include "kvr_message.h"

/*
 * Reception of a DISPATCH, in one or more frames. Each piece is compared with what the client sent,
 * the hints are stored, and the engine takes the complete message.
 */

#define REFUSE_RANK 1 /* DISPATCH_ACK: not a rank of this engine */
#define REFUSE_GONE 2 /* the request has ended here */

#define MISSING_WORDS 16u /* 1,024 pieces; a list may be shorter than the message */

static void ack_dispatch(struct load *l, const struct kvr_wire_hdr *h, uint32_t engine,
			 uint16_t code)
{
	const struct kvr_wire_ids ids = load_answer_ids(l, h, engine);
	struct kvr_wire_dispatch_ack *a;

	a = load_message(l, load_port_of_engine(l, engine), KVR_DISPATCH_ACK, &ids, sizeof(*a),
			 NULL);
	if (a != NULL)
		*a = (struct kvr_wire_dispatch_ack){.code = code};
}

/* Rank named by a DISPATCH, or LOAD_UNPINNED. */
static uint32_t rank_of(const struct load *l, const struct kvr_wire_request *q)
{
	const uint64_t engine = q->worker - l->opt->worker_base;

	if (engine >= l->n_engines || q->dp_rank >= l->opt->ranks)
		return LOAD_UNPINNED;
	return (uint32_t)engine * l->opt->ranks + q->dp_rank;
}

/* Whether body[off, off + len) is what the client sent. Compares all bytes of hashes and tokens. */
static bool body_intact(struct load *l, const struct load_slot *s, uint32_t off, uint32_t len,
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

/* ---- hints ---- */

static uint8_t *hints_of(const struct load *l, uint32_t task)
{
	return &l->hints[(load_slot_no(task) * 2ull + (task & LOAD_PREFILL ? 1 : 0)) *
			 LOAD_HINT_ROOM];
}

/* Store the part of the hints in body[off, off + len). */
static void keep_hints(struct load *l, uint32_t task, uint32_t off, uint32_t len,
		       const uint8_t *body)
{
	const struct load_leg *leg = load_leg(l, task);
	const uint32_t end = RTE_MIN(off + len, leg->hints_off + leg->hints_len);
	const uint32_t from = RTE_MAX(off, leg->hints_off);

	if (l->hints != NULL && leg->hints_len <= LOAD_HINT_ROOM && from < end)
		memcpy(hints_of(l, task) + (from - leg->hints_off), body + (from - off),
		       end - from);
}

static void read_hints(struct load *l, uint32_t task)
{
	const struct load_leg *leg = load_leg(l, task);
	struct kvr_hint_lists lists;
	struct kvr_hints h;

	if (l->hints == NULL)
		return;
	if (leg->hints_len > LOAD_HINT_ROOM ||
	    kvr_hints_parse(hints_of(l, task), leg->hints_len, KVR_HINTS_DISPATCH, &h, &lists) !=
		    0) {
		kvr_stats_inc(l->row, LOAD_V_HINTS);
		return;
	}
	if (l->pairs != NULL)
		load_pair_dispatched(l, task, &h);
	if (l->sessions != NULL)
		load_session_dispatched(l, task, &h);
}

/* ---- pieces ---- */

/*
 * The first piece has arrived again while the message is incomplete: the sender keeps it, and
 * repeats only the pieces asked for. Pieces are accepted in order, so all pieces from the first
 * missing one are asked for.
 */
static void request_missing(struct load *l, const struct kvr_wire_hdr *h, uint32_t engine,
			    uint32_t got)
{
	const struct kvr_wire_ids ids = load_answer_ids(l, h, engine);
	const uint32_t unit = h->frag_len, n = (h->msg_len + unit - 1) / unit;
	const uint32_t from = got / unit, first = from & ~63u;
	const uint32_t n_words = RTE_MIN((n - first + 63) / 64, MISSING_WORDS);
	struct kvr_wire_missing *m;

	m = load_message(l, load_port_of_engine(l, engine), KVR_MISSING, &ids,
			 (uint16_t)(sizeof(*m) + n_words * sizeof(uint64_t)), NULL);
	if (m == NULL)
		return;
	*m = (struct kvr_wire_missing){.kind = KVR_DISPATCH,
				       .n_words = (uint16_t)n_words,
				       .msg_seq = h->msg_seq,
				       .msg_len = h->msg_len,
				       .unit = unit,
				       .first = first};
	for (uint32_t i = 0; i < n_words; i++) {
		const uint32_t left = n - first - i * 64;
		uint64_t word = left < 64 ? (UINT64_C(1) << left) - 1 : UINT64_MAX;

		if (i == 0)
			word &= UINT64_MAX << (from - first);
		memcpy((uint8_t *)(m + 1) + i * sizeof(word), &word, sizeof(word));
	}
	kvr_stats_inc(l->row, LOAD_ASKED);
}

/* Check the fixed part against the rules for a leg of this engine. */
static void check_fixed(struct load *l, uint32_t task, const struct kvr_wire_request *q)
{
	const struct load_prompt *p = load_slot(l, task)->prompt;
	const uint32_t legs = q->flags & KVR_REQ_F_LEGS;
	const uint8_t phase = legs == KVR_REQ_F_PREFILL_LEG  ? KVR_ROLE_PREFILL
			      : legs == KVR_REQ_F_DECODE_LEG ? KVR_ROLE_DECODE
							     : KVR_ROLE_AGGREGATED;

	if (q->phase != phase)
		kvr_stats_inc(l->row, LOAD_V_FLAGS);
	if (q->max_tokens != (task & LOAD_PREFILL ? 1 : p->osl))
		kvr_stats_inc(l->row, LOAD_V_MAX_TOKENS);
	if (task & LOAD_PREFILL) {
		if (legs != KVR_REQ_F_PREFILL_LEG || (q->flags & KVR_REQ_F_DIRECT))
			kvr_stats_inc(l->row, LOAD_V_FLAGS);
	} else if ((legs != 0 && (legs != KVR_REQ_F_DECODE_LEG || l->pairs == NULL)) ||
		   !(q->flags & KVR_REQ_F_DIRECT) != !l->opt->direct) {
		kvr_stats_inc(l->row, LOAD_V_FLAGS);
	}
}

static void note_first(struct load *l, struct load_slot *s, uint32_t rank, uint64_t rx)
{
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
}

/* Handle the first frame of a DISPATCH. @return false: ignore its other frames. */
static bool begin_leg(struct load *l, uint32_t task, const struct kvr_wire_hdr *h, uint32_t engine,
		      uint64_t rx)
{
	const struct kvr_wire_request *q = kvr_frame_body(h);
	struct load_leg *leg = load_leg(l, task);
	const uint32_t rank = h->frag_len < sizeof(*q) ? LOAD_UNPINNED : rank_of(l, q);

	if (rank == LOAD_UNPINNED || l->ranks[rank].engine != engine) {
		kvr_stats_inc(l->row, LOAD_CORRUPT);
		ack_dispatch(l, h, engine, REFUSE_RANK);
		return false;
	}
	if ((leg->flags & LOAD_L_TAKEN) && leg->rank == rank && leg->handle == h->handle) {
		kvr_stats_inc(l->row, LOAD_DISPATCH_REPEATS);
		ack_dispatch(l, h, engine, 0);
		return false;
	}
	if (leg->got != 0 && leg->got < h->msg_len && leg->rank == rank &&
	    leg->handle == h->handle && !(leg->flags & LOAD_L_TAKEN)) {
		request_missing(l, h, engine, leg->got);
		return false;
	}
	load_engine_drop(l, task); /* dispatched again with another handle or to another rank */
	*leg = (struct load_leg){.handle = h->handle,
				 .rank = rank,
				 .gen = leg->gen,
				 .predicted = q->overlap_blocks,
				 .hints_off = (uint32_t)sizeof(*q) + q->n_hashes * 8 +
					      ((q->n_tokens * 4 + 7) & ~7u),
				 .hints_len = (uint16_t)RTE_MIN(q->hints_len, UINT16_MAX),
				 .flags = task & LOAD_PREFILL			   ? LOAD_L_PREFILL
					  : (q->flags & KVR_REQ_F_DECODE_LEG) != 0 ? LOAD_L_DECODE
										   : 0};
	if (q->flags & KVR_REQ_F_UNPROVEN)
		leg->flags |= LOAD_L_FEW;
	check_fixed(l, task, q);
	note_first(l, load_slot(l, task), rank, rx);
	return true;
}

static void take_leg(struct load *l, uint32_t task, const struct kvr_wire_hdr *h, uint32_t engine)
{
	const struct load_slot *s = load_slot(l, task);
	struct load_leg *leg = load_leg(l, task);
	bool waits;

	leg->flags |= LOAD_L_TAKEN;
	leg->n_items = task & LOAD_PREFILL ? 1 : RTE_MIN(l->opt->items, s->prompt->osl);
	read_hints(l, task);
	waits = (leg->flags & LOAD_L_DECODE) && load_pair_waits(l, task);
	if (waits || !l->opt->instant)
		ack_dispatch(l, h, engine, 0);
	if (!waits) {
		load_engine_run(l, task);
		return;
	}
	leg->estate = LOAD_E_TRANSFER;
	leg->progress_at = l->now;
}

/* The leg that a DISPATCH to @engine concerns, or LOAD_NO_SLOT when it has ended. */
static uint32_t find_leg(struct load *l, const struct kvr_wire_hdr *h, uint32_t engine)
{
	const uint32_t slot = load_slot_of(l, h->id);
	const struct load_slot *s = slot != LOAD_NO_SLOT ? &l->slots[slot] : NULL;

	if (s == NULL || l->clients[s->client].source != h->source ||
	    (s->cstate == LOAD_C_ENDED && h->frag_off == 0))
		return LOAD_NO_SLOT;
	return l->engines[engine].role == KVR_ROLE_PREFILL ? slot | LOAD_PREFILL : slot;
}

void load_dispatch(struct load *l, const struct kvr_wire_hdr *h, uint32_t engine, uint64_t rx)
{
	const uint32_t task = find_leg(l, h, engine);
	const void *body = kvr_frame_body(h);
	struct load_leg *leg;

	if (task == LOAD_NO_SLOT) {
		kvr_stats_inc(l->row, LOAD_DISPATCH_STALE);
		if (h->frag_off == 0)
			ack_dispatch(l, h, engine, REFUSE_GONE);
		return;
	}
	if (h->frag_off == 0 && !begin_leg(l, task, h, engine, rx))
		return;
	leg = load_leg(l, task);
	if (h->frag_off != leg->got || h->handle != leg->handle || (leg->flags & LOAD_L_TAKEN))
		return; /* an earlier piece is missing: see request_missing() */
	leg->got += h->frag_len;
	if (!body_intact(l, load_slot(l, task), h->frag_off, h->frag_len, body))
		kvr_stats_inc(l->row, LOAD_CORRUPT);
	keep_hints(l, task, h->frag_off, h->frag_len, body);
	if (leg->got == h->msg_len)
		take_leg(l, task, h, engine);
}
