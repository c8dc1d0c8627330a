/* SPDX-License-Identifier: BSD-3-Clause */
#include "load.h"
#include "slice.h"
#include "track.h"

#include <string.h>

#include "ended.h"
#include "frame.h"
#include "kvr_message.h"
#include "kvr_refusal.h"

#define PROBE_MS 250
#define LINGER_S 3u
#define HDR_LEN	 ((uint32_t)sizeof(struct kvr_wire_hdr))

static uint32_t round_up8(uint32_t n)
{
	return (n + 7u) & ~7u;
}

/* ---- start and end of a request ---- */

void load_client_start(struct load *l, const struct load_prompt *p, uint64_t intended,
		       uint64_t session, uint8_t action)
{
	const uint32_t slot = l->free[--l->n_free];
	struct load_slot *s = &l->slots[slot];
	const uint16_t kept = s->flags & (LOAD_S_CHECKED | LOAD_S_PACED);
	const uint64_t answered = s->answered;
	const uint32_t gen = s->leg.gen;

	memset(s, 0, sizeof(*s));
	s->answered = answered;
	s->leg.gen = gen + 1;
	if (l->pairs != NULL)
		load_pair_begin(l, slot);
	s->id = (++l->sequence << LOAD_SLOT_BITS) | slot;
	s->session = session;
	s->action = action;
	s->prompt = p;
	s->intended = intended;
	s->client = (uint16_t)(l->sequence % l->n_clients);
	s->cstate = LOAD_C_ROUTED;
	s->flags = kept;
	if (intended >= l->warm_end)
		s->flags |= LOAD_S_MEASURED;
	if (l->opt->cancel_share > 0 && kvr_rand_unit(&l->rand) < l->opt->cancel_share)
		s->flags |= LOAD_S_CANCEL;
	s->pin = load_policy_pick(&l->policy, l->in_flight, l->n_ranks);
	s->load_on = s->pin;
	if (s->pin != LOAD_UNPINNED)
		l->in_flight[s->pin]++;
	load_check_add(l, slot);
	if (s->flags & LOAD_S_MEASURED)
		kvr_hist_add(&l->m->lateness, l->now > intended ? l->now - intended : 0);
	if (l->now > intended + 1000 * l->us)
		kvr_stats_inc(l->row, LOAD_LATE_SENDS);
	kvr_stats_inc(l->row, LOAD_SENT);
	kvr_stats_inc(l->row, LOAD_IN_FLIGHT);
	load_route_send(l, slot);
}

void load_client_arrivals(struct load *l)
{
	for (uint32_t n = 0; n < LOAD_BURST && l->due != NULL && l->due_at <= l->now; n++) {
		double at_ns;

		kvr_stats_inc(l->row, LOAD_REQUESTS);
		if (l->n_free > 0)
			load_client_start(l, l->due, l->due_at, 0, KVR_ACTION_NONE);
		else
			kvr_stats_inc(l->row, LOAD_NOT_SENT);
		l->due = load_workload_next(l->work, &at_ns);
		l->due_at = l->start + (uint64_t)(at_ns * 1e-9 * (double)l->hz);
	}
}

/* Count a request whose engine was killed. */
static void count_survivor(struct load *l, enum load_counter how, uint16_t code)
{
	if (how == LOAD_COMPLETED)
		kvr_stats_inc(l->row, LOAD_KILLED_COMPLETED);
	else if (code == KVR_E_WORKER_LOST || code == KVR_E_PREFILL_FAILED)
		kvr_stats_inc(l->row, LOAD_KILLED_REFUSED);
	else
		kvr_stats_inc(l->row, LOAD_KILLED_OTHER);
}

/* @code: of the REJECTED that ended the request, otherwise 0. */
static void end_request(struct load *l, uint32_t slot, enum load_counter how, uint16_t code)
{
	struct load_slot *s = &l->slots[slot];

	if (s->cstate == LOAD_C_ENDED)
		return;
	s->cstate = LOAD_C_ENDED;
	if (s->load_on != LOAD_UNPINNED)
		l->in_flight[s->load_on]--;
	s->load_on = LOAD_UNPINNED;
	kvr_stats_inc(l->row, how);
	kvr_stats_sub(l->row, LOAD_IN_FLIGHT, 1);
	l->run_end = l->now;
	if (s->flags & LOAD_S_KILLED)
		count_survivor(l, how, code);
	if (l->pairs != NULL)
		load_pair_over(l, slot, how == LOAD_COMPLETED);
	if (s->session != 0)
		load_session_turn_over(l, slot, how, code);
	load_slot_release(l, slot);
}

/* The CANCEL is answered. */
static void end_cancelled(struct load *l, uint32_t slot)
{
	const uint16_t code = l->slots[slot].refused;

	end_request(l, slot, code != 0 ? LOAD_FAILED : LOAD_CANCELLED, code);
}

/* ---- small messages ---- */

static void send_empty(struct load *l, struct load_slot *s, uint8_t kind)
{
	const struct kvr_wire_ids ids = load_client_ids(l, s);

	load_message(l, s->client, kind, &ids, 0, NULL);
	s->last_io = l->now;
}

static void send_probe(struct load *l, struct load_slot *s)
{
	const struct kvr_wire_ids ids = load_client_ids(l, s);
	uint64_t *room = load_message(l, s->client, KVR_PROBE, &ids, sizeof(*room), NULL);

	if (room != NULL)
		memset(room, 0, sizeof(*room));
	s->last_io = l->now;
}

static void send_cancel(struct load *l, struct load_slot *s)
{
	s->cstate = LOAD_C_CANCELLING;
	s->flags &= (uint16_t) ~(LOAD_S_CANCEL | LOAD_S_SENDING);
	s->tries = 0;
	kvr_stats_inc(l->row, LOAD_CANCELS);
	send_empty(l, s, KVR_CANCEL);
}

static void owe_ack(struct load *l, uint32_t slot)
{
	if (l->slots[slot].flags & LOAD_S_ACK || l->opt->direct)
		return;
	if (l->n_acks == sizeof(l->acks) / sizeof(l->acks[0]))
		load_client_acks(l);
	l->slots[slot].flags |= LOAD_S_ACK;
	l->acks[l->n_acks++] = slot;
}

void load_client_acks(struct load *l)
{
	for (uint32_t i = 0; i < l->n_acks; i++) {
		struct load_slot *s = &l->slots[l->acks[i]];
		const struct kvr_wire_ids ids = load_client_ids(l, s);
		struct kvr_wire_response_ack *a;

		a = load_message(l, s->client, KVR_RESPONSE_ACK, &ids, sizeof(*a), NULL);
		if (a != NULL)
			*a = (struct kvr_wire_response_ack){
				s->next_seq, s->flags & LOAD_S_FIN ? KVR_RACK_F_FIN : 0};
		s->flags &= (uint16_t)~LOAD_S_ACK;
		load_slot_release(l, l->acks[i]);
	}
	l->n_acks = 0;
}

/* ---- items ---- */

/* Latency of the first item. The way back adds to the way forward, known since DISPATCH. */
static void measure_first(struct load *l, const struct load_slot *s, uint64_t rx)
{
	if (!(s->flags & LOAD_S_MEASURED))
		return;
	kvr_hist_add(&l->m->ttft, rx > s->intended ? rx - s->intended : 0);
	if (l->m->slices != NULL)
		kvr_hist_add(&load_slice(l, s)->ttft, rx > s->intended ? rx - s->intended : 0);
}

static void measure_back(struct load *l, const struct load_slot *s, uint64_t rx, uint64_t forward)
{
	const uint64_t back = rx > s->leg.resp_tx ? rx - s->leg.resp_tx : 0;

	if (!(s->flags & LOAD_S_MEASURED))
		return;
	if (l->opt->direct) { /* the router does not see the way back */
		kvr_hist_add(&l->m->added, forward);
		return;
	}
	if (s->leg.resp_tx == 0)
		return;
	kvr_hist_add(&l->m->back, back);
	kvr_hist_add(&l->m->added, back + forward);
}

static void last_item(struct load *l, uint32_t slot, const struct kvr_wire_response *item,
		      uint64_t rx)
{
	struct load_slot *s = &l->slots[slot];

	s->flags |= LOAD_S_FIN;
	s->answered = s->id;
	if (s->cstate == LOAD_C_CANCELLING || (item->flags & KVR_RESP_F_CANCELLED)) {
		end_cancelled(l, slot);
	} else if (item->flags & KVR_RESP_F_ERROR) {
		end_request(l, slot, LOAD_FAILED, 0);
	} else {
		if (s->cstate != LOAD_C_ENDED && (s->flags & LOAD_S_MEASURED)) {
			kvr_hist_add(&l->m->total, rx > s->intended ? rx - s->intended : 0);
			kvr_stats_inc(l->row, LOAD_MEASURED);
		}
		end_request(l, slot, LOAD_COMPLETED, 0);
	}
}

void load_client_item(struct load *l, uint32_t slot, const struct kvr_wire_response *item,
		      uint64_t rx)
{
	struct load_slot *s = &l->slots[slot];

	s->last_io = l->now;
	s->tries = 0;
	if (load_ended_unwanted(s, item) && item->seq > s->next_seq)
		s->next_seq = item->seq;
	if (item->seq != s->next_seq) {
		kvr_stats_inc(l->row,
			      item->seq < s->next_seq ? LOAD_ITEM_DUPLICATES : LOAD_ITEM_GAPS);
		owe_ack(l, slot);
		return;
	}
	if (item->seq == 0) {
		measure_first(l, s, rx);
		measure_back(l, s, rx, s->forward);
	}
	s->next_seq++;
	kvr_stats_inc(l->row, LOAD_ITEMS);
	owe_ack(l, slot);
	if (s->cstate == LOAD_C_ROUTED)
		s->cstate = LOAD_C_ACCEPTED;
	if (item->flags & KVR_RESP_F_FIN)
		last_item(l, slot, item, rx);
	else if (s->flags & LOAD_S_CANCEL)
		send_cancel(l, s);
}

static bool item_intact(const struct load *l, const struct kvr_wire_hdr *h,
			const struct kvr_wire_response *item)
{
	const uint32_t n = l->opt->item_bytes;
	uint64_t mark[2];

	if (h->msg_len < sizeof(*item) + round_up8(item->data_len))
		return false;
	if ((item->flags & (KVR_RESP_F_ERROR | KVR_RESP_F_CANCELLED)) != 0)
		return true; /* error text, or no data */
	if (item->data_len == 0)
		return false;
	memcpy(mark, item + 1, sizeof(mark));
	return item->data_len == n && mark[0] == h->id && mark[1] == item->seq &&
	       memcmp((const uint8_t *)(item + 1) + 16, l->item + 16, n - 16) == 0;
}

/* ---- frames ---- */

static void on_accepted(struct load *l, uint32_t slot, const struct kvr_wire_hdr *h)
{
	const struct kvr_wire_accepted *a = kvr_frame_body(h);
	struct load_slot *s = &l->slots[slot];

	s->last_io = l->now;
	s->tries = 0;
	if (l->pairs != NULL)
		load_pair_accepted(l, slot, a);
	if (a->state == KVR_STATE_DISPATCHED && (s->flags & LOAD_S_PROBED) &&
	    (a->flags & KVR_ACC_F_KEPT) == 0 && s->cstate == LOAD_C_ACCEPTED && s->next_seq == 0)
		load_route_renew(l,
				 slot); /* DISPATCH was lost, and only the client has the message */
	s->flags &= (uint16_t)~LOAD_S_PROBED;
	if (a->state == KVR_STATE_RUNNING)
		s->flags &= (uint16_t)~LOAD_S_SENDING; /* the message is complete at the engine */
	if (s->cstate == LOAD_C_ROUTED) {
		s->cstate = LOAD_C_ACCEPTED;
		if (a->state == KVR_STATE_QUEUED)
			kvr_stats_inc(l->row, LOAD_QUEUED);
	}
	/* Half of the cancels come before an answer. The ids decide, so that runs with one seed are
	 * equal. */
	if (s->cstate == LOAD_C_ACCEPTED && (s->flags & LOAD_S_CANCEL) &&
	    (s->id >> LOAD_SLOT_BITS) % 2 == 0)
		send_cancel(l, s);
}

static void end_refused(struct load *l, uint32_t slot, uint16_t code)
{
	l->m->code[code < KVR_E_MAX ? code : 0]++;
	end_request(l, slot, LOAD_FAILED, code);
}

/* One of several copies may have been accepted: cancel it, so that it does not run without a
 * client. */
static void retry_refused(struct load *l, uint32_t slot, uint16_t code)
{
	struct load_slot *s = &l->slots[slot];

	if (!(s->flags & LOAD_S_RESEND)) {
		end_refused(l, slot, code);
		return;
	}
	l->m->code[code < KVR_E_MAX ? code : 0]++;
	s->refused = code;
	send_cancel(l, s);
}

/* The router does not know the request. In state SENT the next repetition carries the whole
 * message, as otherwise the two sides would chase each other. */
static void start_over(struct load *l, uint32_t slot, uint16_t code)
{
	struct load_slot *s = &l->slots[slot];

	if (s->next_seq != 0) {
		end_refused(l, slot, code);
		return;
	}
	s->handle = 0;
	if (s->cstate == LOAD_C_ROUTED) {
		s->flags |= LOAD_S_ANEW;
		return;
	}
	s->cstate = LOAD_C_ROUTED;
	s->tries = 0;
	load_route_renew(l, slot);
}

static void resend_with_cookie(struct load *l, uint32_t slot, uint64_t cookie)
{
	struct load_slot *s = &l->slots[slot];

	l->clients[s->client].cookie = cookie;
	if (s->cookie == cookie)
		return; /* the last copy had it */
	if (s->cstate == LOAD_C_ROUTED)
		load_route_again(l, slot);
	else
		load_route_renew(l, slot);
}

/* The request is answered already: its last items may be in flight. */
static void await_last_items(struct load *l, struct load_slot *s)
{
	s->cstate = LOAD_C_ACCEPTED;
	s->flags |= LOAD_S_LINGERS;
	s->flags &= (uint16_t)~LOAD_S_SENDING;
	s->last_io = l->now;
}

/* A rejection may concern an old copy, or a message that no longer matters. */
static bool concerns_request(const struct load_slot *s, uint8_t kind, uint64_t handle)
{
	if (s->cstate == LOAD_C_CANCELLING)
		return kind == KVR_CANCEL || kind == KVR_ROUTE;
	if (kind == KVR_PROBE)
		return s->cstate == LOAD_C_ACCEPTED && handle == s->handle;
	return s->cstate != LOAD_C_ENDED && kind == KVR_ROUTE;
}

/* PROTOCOL.md, 12.1: the table of the client. */
static void on_rejected(struct load *l, uint32_t slot, const struct kvr_wire_hdr *h)
{
	const struct kvr_wire_rejected *r = kvr_frame_body(h);
	const enum kvr_refusal what = kvr_refusal(r->kind, r->code, r->retryable != 0);
	struct load_slot *s = &l->slots[slot];
	const bool sent = s->cstate == LOAD_C_ROUTED;

	if (!concerns_request(s, r->kind, h->handle))
		return;
	if (s->cstate == LOAD_C_CANCELLING) {
		if (what == KVR_REFUSAL_DONE || what == KVR_REFUSAL_END ||
		    what == KVR_REFUSAL_LINGER)
			end_cancelled(l, slot);
	} else if (what == KVR_REFUSAL_END || (what == KVR_REFUSAL_FIRST && sent)) {
		end_refused(l, slot, r->code);
	} else if (what == KVR_REFUSAL_COOKIE) {
		if (h->msg_len >= sizeof(*r))
			resend_with_cookie(l, slot, r->detail[0]);
	} else if (what == KVR_REFUSAL_BUSY && sent) {
		retry_refused(l, slot, r->code);
	} else if (what == KVR_REFUSAL_LINGER) {
		await_last_items(l, s);
	} else if (what == KVR_REFUSAL_RESTART && (sent || r->kind == KVR_PROBE)) {
		start_over(l, slot, r->code);
	} /* otherwise the timer repeats it */
}

void load_client_frame(struct load *l, const struct kvr_wire_hdr *h, uint64_t rx)
{
	const uint32_t slot = load_slot_of(l, h->id);

	if (slot == LOAD_NO_SLOT || l->clients[l->slots[slot].client].source != h->source) {
		kvr_stats_inc(l->row, LOAD_STALE);
		load_ended_frame(l, h);
		return;
	}
	if (h->kind == KVR_ACCEPTED && l->slots[slot].cstate == LOAD_C_ENDED)
		load_ended_frame(l, h);
	if (h->handle != 0 &&
	    h->kind != KVR_REJECTED) /* a REJECTED carries the handle of the rejected frame */
		l->slots[slot].handle = h->handle;
	switch (h->kind) {
	case KVR_ACCEPTED:
		on_accepted(l, slot, h);
		break;
	case KVR_REJECTED:
		on_rejected(l, slot, h);
		break;
	case KVR_CANCELLED:
		end_cancelled(l, slot);
		break;
	case KVR_MISSING:
		load_route_missing(l, slot, h);
		break;
	default: /* RESPONSE */
		if (item_intact(l, h, kvr_frame_body(h))) {
			load_track(l, &l->slots[slot], kvr_frame_body(h), h->msg_len);
			load_client_item(l, slot, kvr_frame_body(h), rx);
		} else {
			kvr_stats_inc(l->row, LOAD_CORRUPT);
		}
		break;
	}
}

/* ---- time ---- */

/* Time until the next repetition or probe. */
static uint64_t client_patience(const struct load *l, const struct load_slot *s)
{
	if (s->flags & LOAD_S_LINGERS)
		return LINGER_S * l->hz;
	if (s->cstate != LOAD_C_ACCEPTED)
		return load_patience(l, s->tries);
	return (PROBE_MS * 1000 * l->us) << (s->tries < 3 ? s->tries : 3);
}

bool load_client_check(struct load *l, uint32_t slot)
{
	struct load_slot *s = &l->slots[slot];
	const uint64_t silent = l->now > s->last_io ? l->now - s->last_io : 0;

	if (s->cstate == LOAD_C_ENDED || (s->flags & LOAD_S_SENDING) ||
	    silent < client_patience(l, s))
		return true;
	if (++s->tries > l->opt->max_tries || (s->flags & LOAD_S_LINGERS))
		return false;
	if (s->cstate == LOAD_C_ACCEPTED) {
		kvr_stats_inc(l->row, LOAD_PROBES);
		s->flags |= LOAD_S_PROBED;
		send_probe(l, s);
	} else if (s->cstate == LOAD_C_CANCELLING) {
		send_empty(l, s, KVR_CANCEL);
	} else if (s->flags & LOAD_S_ANEW) {
		s->flags &= (uint16_t)~LOAD_S_ANEW;
		load_route_renew(l, slot);
	} else {
		load_route_repeat(l, slot);
	}
	return true;
}

void load_client_lost(struct load *l, uint32_t slot)
{
	end_request(l, slot, LOAD_LOST, 0);
}

void load_client_connect(struct load *l, uint32_t client)
{
	struct load_client *c = &l->clients[client];
	const struct kvr_wire_ids ids = {
		.source = c->source, .id = client + 1, .epoch = l->epoch, .msg_seq = ++c->msg_seq};
	/* Padded to the largest size of the answer. */
	const uint16_t len =
		(uint16_t)((RTE_MIN(l->max_frame, KVR_WIRE_DEF_FRAME) & ~7u) - HDR_LEN);
	const uint16_t hints = (uint16_t)(len - sizeof(struct kvr_wire_connect));
	struct kvr_wire_connect *m;
	struct kvr_wire_tlv *pad;

	m = load_message(l, (uint16_t)client, KVR_CONNECT, &ids, len, NULL);
	if (m == NULL)
		return;
	memset(m, 0, len);
	m->max_frame = (uint16_t)l->max_frame;
	m->hints_len = hints;
	pad = (void *)(m + 1);
	pad->type = KVR_HINT_PAD;
	pad->len = (uint16_t)(hints - sizeof(*pad));
}
