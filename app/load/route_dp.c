/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ROUTE is built from the workload for each transmission, so none of its bytes are stored. A
 * message of several frames is paced and repeated as in PROTOCOL.md, section 4: 64 frames per
 * millisecond; a repetition is the first frame, then what MISSING names.
 */
#include "load.h"

#include <string.h>

#include "frame.h"
#include "kvr_message.h"

#define HINT_ROOM 96u /* a pin and a session */
#define HDR_LEN	  ((uint32_t)sizeof(struct kvr_wire_hdr))
#define PACE	  64u /* frames of one message in PACE_US */
#define PACE_US	  1000u

/* A fragmented message, with its hints. */
struct route {
	struct kvr_request_src src; /* the slices point into it */
	struct kvr_slice slice[KVR_REQUEST_SLICES];
	struct kvr_frag cut;
	uint8_t hints[HINT_ROOM];
};

/* The hints of a request: pinned rank, session. */
static uint32_t put_hints(const struct load *l, const struct load_slot *s, uint8_t out[HINT_ROOM])
{
	struct kvr_hint_buf h = {.p = out, .cap = HINT_ROOM};

	if (s->pin != LOAD_UNPINNED) {
		kvr_hint_put_u64(&h, KVR_HINT_BACKEND, l->engines[l->ranks[s->pin].engine].worker);
		kvr_hint_put_u32(&h, KVR_HINT_DP_RANK, l->ranks[s->pin].dp_rank);
	}
	if (s->session != 0)
		load_session_hint(l, s, &h);
	return h.len;
}

static void describe_request(struct load *l, const struct load_slot *s, struct kvr_request_src *q)
{
	const struct load_prompt *p = s->prompt;

	memset(q, 0, sizeof(*q));
	q->fixed.pool = l->pool;
	q->fixed.flags = (l->opt->direct ? KVR_REQ_F_DIRECT : 0) |
			 (l->opt->track ? KVR_REQ_F_TRACK : 0) |
			 (s->flags & LOAD_S_RESEND ? KVR_REQ_F_RESEND : 0);
	q->fixed.isl = p->isl;
	q->fixed.worker = s->cookie;
	q->fixed.max_tokens = p->osl;
	q->fixed.expected_output_tokens = KVR_NONE32;
	q->fixed.client_frame = (uint16_t)l->max_frame;
	if (l->opt->tokens) {
		q->tokens = l->tokens; /* made frame by frame: see send_next() */
		q->n_tokens = p->isl;
	} else {
		q->hashes = p->hashes;
		q->n_hashes = p->n_blocks;
	}
	q->body = l->body;
	q->body_len = l->opt->body_bytes;
}

/* @return false: cannot be fragmented. check_sizes() excludes this. */
static bool build_route(struct load *l, struct load_slot *s, struct route *r)
{
	struct kvr_wire_ids ids = load_client_ids(l, s);
	struct kvr_request_src *q = &r->src;

	if (s->msg_seq == 0)
		s->msg_seq = ids.msg_seq;
	ids.msg_seq = s->msg_seq;
	s->cookie = l->clients[s->client].cookie;
	describe_request(l, s, q);
	q->hints = r->hints;
	q->hints_len = put_hints(l, s, r->hints);
	return kvr_frag_init(&r->cut, KVR_ROUTE, &ids, kvr_request_build(q, r->slice),
			     l->max_frame) == 0;
}

/* Make the tokens in bytes [off, end) of the message. */
static void fill_frame(struct load *l, const struct load_slot *s, uint32_t off, uint32_t end)
{
	const uint32_t at = sizeof(struct kvr_wire_request), to = at + s->prompt->isl * 4;
	const uint32_t from = off > at ? off : at;

	if (end > to)
		end = to;
	if (from < end)
		load_workload_fill_tokens(l->work, s->prompt, (from - at) / 4, (end - from) / 4,
					  l->tokens + (from - at) / 4);
}

/* Send the next frame. @return false: no frame is left, or no buffer (counted). */
static bool send_next(struct load *l, struct load_slot *s, struct route *r)
{
	uint8_t hdr[sizeof(struct kvr_wire_hdr)], *f;
	uint32_t off, len;

	if (!kvr_frag_next(&r->cut, hdr, &off, &len))
		return false;
	/* The latency counts from the first frame. */
	f = load_link_frame(l->link, s->client, (uint16_t)(HDR_LEN + len), &s->route_tx);
	if (f == NULL)
		return false;
	if (l->opt->tokens)
		fill_frame(l, s, off, off + len);
	memcpy(f, hdr, HDR_LEN);
	kvr_slices_copy(r->slice, KVR_REQUEST_SLICES, off, len, f + HDR_LEN);
	return true;
}

static void count_repeat(struct load *l, struct load_slot *s)
{
	kvr_stats_inc(l->row, LOAD_ROUTE_REPEATS);
	s->flags |= LOAD_S_RESEND;
}

/* Number of frames that the pace allows now. */
static uint32_t pace_allows(const struct load *l, struct load_slot *s)
{
	if (l->now - s->pace_at >= PACE_US * l->us) {
		s->pace_at = l->now;
		s->paced = 0;
	}
	return PACE - s->paced;
}

static void go_on_later(struct load *l, uint32_t slot)
{
	struct load_slot *s = &l->slots[slot];

	if (s->flags & LOAD_S_PACED)
		return;
	s->flags |= LOAD_S_PACED;
	l->paces[(l->pace_head + l->pace_n++) % l->n_slots] =
		(struct load_check){s->pace_at + PACE_US * l->us, slot};
}

/* The repetition timer starts with the last fragment. */
static void go_on(struct load *l, uint32_t slot)
{
	struct load_slot *s = &l->slots[slot];
	struct route r;

	s->flags &= (uint16_t)~LOAD_S_SENDING;
	if (!build_route(l, s, &r))
		return;
	kvr_frag_seek(&r.cut, s->piece);
	for (uint32_t n = pace_allows(l, s); n > 0 && s->piece < r.cut.n_frames; n--) {
		if (!send_next(l, s, &r))
			break; /* no buffer: later */
		s->piece++;
		s->paced++;
	}
	s->last_io = l->now;
	if (s->piece == r.cut.n_frames)
		return;
	s->flags |= LOAD_S_SENDING;
	go_on_later(l, slot);
}

/* Whether the message is no longer needed. */
static bool route_answered(const struct load_slot *s)
{
	return (s->cstate != LOAD_C_ROUTED && s->cstate != LOAD_C_ACCEPTED) || s->next_seq != 0;
}

void load_routes_continue(struct load *l)
{
	for (uint32_t n = 0; n < LOAD_BURST && l->pace_n > 0; n++) {
		const struct load_check c = l->paces[l->pace_head];
		struct load_slot *s = &l->slots[c.slot];

		if (c.due > l->now)
			return;
		l->pace_head = (l->pace_head + 1) % l->n_slots;
		l->pace_n--;
		s->flags &= (uint16_t)~LOAD_S_PACED;
		if (!(s->flags & LOAD_S_SENDING))
			continue;
		if (s->id != 0 && !route_answered(s))
			go_on(l, c.slot);
		else
			s->flags &= (uint16_t)~LOAD_S_SENDING;
	}
}

void load_route_send(struct load *l, uint32_t slot)
{
	l->slots[slot].piece = 0;
	go_on(l, slot);
}

void load_route_again(struct load *l, uint32_t slot)
{
	count_repeat(l, &l->slots[slot]);
	load_route_send(l, slot);
}

void load_route_renew(struct load *l, uint32_t slot)
{
	struct load_slot *s = &l->slots[slot];
	struct route r;

	/* The router remembers a reassembled message for a while, and takes only another one. */
	if (build_route(l, s, &r) && r.cut.n_frames > 1)
		s->msg_seq = 0;
	load_route_again(l, slot);
}

void load_route_repeat(struct load *l, uint32_t slot)
{
	struct load_slot *s = &l->slots[slot];
	struct route r;

	count_repeat(l, s);
	s->last_io = l->now;
	if (build_route(l, s, &r))
		send_next(l, s, &r);
}

/* Whether fragment @p k is missing. */
static bool missing_names(const struct kvr_wire_missing *m, uint32_t k)
{
	const uint32_t w = k / 64 - m->first / 64;
	uint64_t word;

	if (k < m->first || w >= m->n_words)
		return false;
	memcpy(&word, (const uint8_t *)(m + 1) + w * sizeof(word), sizeof(word));
	return (word >> k % 64 & 1) != 0;
}

void load_route_missing(struct load *l, uint32_t slot, const struct kvr_wire_hdr *h)
{
	const struct kvr_wire_missing *m = kvr_frame_body(h);
	struct load_slot *s = &l->slots[slot];
	struct route r;

	if (kvr_body_check(KVR_MISSING, m, h->msg_len, NULL) != 0) {
		kvr_stats_inc(l->row, LOAD_BAD_FRAMES);
		return;
	}
	if (route_answered(s) || m->kind != KVR_ROUTE || m->msg_seq != s->msg_seq ||
	    !build_route(l, s, &r) || m->msg_len != r.cut.msg_len || m->unit != r.cut.unit) {
		kvr_stats_inc(l->row, LOAD_STALE);
		return;
	}
	s->last_io = l->now;
	s->tries = 0;
	/* The router asks for the rest again after 5 ms. */
	for (uint32_t k = m->first; k < s->piece && pace_allows(l, s) > 0; k++) {
		if (!missing_names(m, k))
			continue;
		kvr_frag_seek(&r.cut, k);
		if (!send_next(l, s, &r))
			return;
		kvr_stats_inc(l->row, LOAD_PIECES_AGAIN);
		s->paced++;
	}
}
