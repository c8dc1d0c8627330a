/* SPDX-License-Identifier: BSD-3-Clause */
#include "session.h"

#include <math.h>
#include <string.h>

#include "frame.h"
#include "kvr_put.h"

/* Sessions: lanes of the client side, and open sessions of engines. See session.h. */

#define OPEN_REFUSED 7 /* SESSION_OPENED: rejected by the simulated engine */

struct load_session *load_session_of(const struct load *l, uint64_t number)
{
	struct load_session *session = &l->sessions[number & l->session_mask];

	return number != 0 && session->number == number ? session : NULL;
}

static struct load_session *names_session(const struct load *l, struct kvr_str id)
{
	return load_session_of(l, load_session_number(id.p, id.len, l->clients[0].source));
}

/* ---- lanes ---- */

void load_lane_wake(struct load *l, uint32_t lane, uint64_t at)
{
	load_timers_add(&l->lane_timers, (struct load_timer){at, lane, 0}); /* one per lane */
}

/* Exponential, so that all lanes together give Poisson arrivals. Bounded, as a long pause would let
 * the session expire. */
void load_lane_pause(struct load *l, uint32_t lane)
{
	const double mean = l->opt->sessions / l->opt->rate;
	const double s =
		fmin(-mean * log(1.0 - kvr_rand_unit(&l->rand)), l->opt->session_timeout / 2.0);

	l->lanes[lane].state = LOAD_LANE_PAUSE;
	load_lane_wake(l, lane, l->now + (l->sessions_end ? 0 : (uint64_t)(s * (double)l->hz)));
}

void load_lane_leave(struct load *l, uint32_t lane)
{
	struct load_session *session = load_session_of(l, l->lanes[lane].session);

	if (session != NULL) {
		session->over = true;
		if (session->end == LOAD_END_ABANDON && !l->opt->affinity)
			kvr_stats_inc(l->row, LOAD_ABANDONED);
	}
	l->lanes[lane].session = 0;
	if (l->sessions_end) {
		l->lanes[lane].state = LOAD_LANE_OFF;
		l->n_lanes--;
	} else {
		load_lane_pause(l, lane);
	}
}

void load_lane_release(struct load *l, uint32_t lane)
{
	struct load_lane *w = &l->lanes[lane];
	struct load_client *c = &l->clients[lane % l->n_clients];
	const struct kvr_wire_ids ids = {
		.source = c->source, .id = w->session, .epoch = l->epoch, .msg_seq = ++c->msg_seq};
	const uint32_t cap =
		sizeof(struct kvr_wire_hdr) + sizeof(struct kvr_wire_session) + LOAD_SESSION_NAME;
	char name[LOAD_SESSION_NAME];
	void *f;

	load_session_name(name, l->clients[0].source, w->session);
	f = load_link_frame(l->link, (uint16_t)(lane % l->n_clients), (uint16_t)cap, NULL);
	if (f != NULL)
		load_link_trim(l->link, (uint16_t)kvr_put_session(
						f, cap, KVR_SESSION_RELEASE, &ids,
						(struct kvr_wire_session){.pool = l->pool},
						(struct kvr_str){name, (uint32_t)strlen(name)}));
	load_lane_wake(l, lane, l->now + load_patience(l, w->tries++));
}

void load_lane_begin_release(struct load *l, uint32_t lane)
{
	struct load_session *session = load_session_of(l, l->lanes[lane].session);

	session->over = true;
	session->end = LOAD_END_RELEASE;
	l->lanes[lane].state = LOAD_LANE_RELEASE;
	l->lanes[lane].since = l->now;
	l->lanes[lane].tries = 0;
	kvr_stats_inc(l->row, LOAD_RELEASES);
	load_lane_release(l, lane);
}

/* ---- client side of a turn ---- */

void load_session_hint(const struct load *l, const struct load_slot *s, struct kvr_hint_buf *h)
{
	char name[LOAD_SESSION_NAME];

	load_session_name(name, l->clients[0].source, s->session);
	kvr_hint_put_session(h, s->action,
			     s->action == KVR_ACTION_OPEN ? l->opt->session_timeout : KVR_NONE32,
			     name);
}

/* Whether the session was idle long enough for the router to expire it. */
static bool session_expired(const struct load *l, uint64_t idle)
{
	return idle >= l->opt->session_timeout * l->hz;
}

/* A failed turn ends its session, as the router's state of it is unknown. So does a cancelled first
 * turn. */
static void turn_failed(struct load *l, uint32_t lane, uint16_t code)
{
	struct load_session *session = load_session_of(l, l->lanes[lane].session);

	session->failed = true;
	session->bound[0] = session->bound[1] = LOAD_UNPINNED;
	if (code == KVR_E_SESSION_OPEN_FAILED)
		kvr_stats_inc(l->row, LOAD_OPEN_FAILED);
	if (code == KVR_E_UNKNOWN_SESSION && !session->lost && !session->closed &&
	    !session_expired(l, session->used - session->used_before))
		kvr_stats_inc(l->row, LOAD_SESSION_UNKNOWN);
	if (code == KVR_E_SESSION_OPEN_FAILED)
		session->end = LOAD_END_CLOSE; /* nothing is left to close */
	if (l->opt->affinity || code == KVR_E_SESSION_OPEN_FAILED)
		load_lane_leave(l, lane);
	else
		load_lane_begin_release(l, lane);
}

void load_session_turn_over(struct load *l, uint32_t slot, enum load_counter how, uint16_t code)
{
	const struct load_slot *s = &l->slots[slot];
	struct load_session *session = load_session_of(l, s->session);
	const uint32_t lane = session->lane;

	if (how != LOAD_COMPLETED && (how != LOAD_CANCELLED || s->action == KVR_ACTION_OPEN)) {
		turn_failed(l, lane, code);
		return;
	}
	if (session->turns < session->last && !l->sessions_end)
		load_lane_pause(l, lane);
	else if (session->end == LOAD_END_ABANDON && !l->sessions_end)
		load_lane_leave(l, lane);
	else if (l->opt->affinity || s->action == KVR_ACTION_CLOSE)
		load_lane_leave(l, lane);
	else
		load_lane_begin_release(l, lane);
}

void load_session_released(struct load *l, const struct kvr_wire_hdr *h)
{
	const struct kvr_wire_session_status *status = kvr_frame_body(h);
	const struct load_session *session = load_session_of(l, h->id);
	struct load_lane *w = session != NULL ? &l->lanes[session->lane] : NULL;

	if (w == NULL || w->session != h->id || w->state != LOAD_LANE_RELEASE) {
		kvr_stats_inc(l->row, LOAD_STALE);
		return;
	}
	/* The first copy may have unbound it, and its answer was lost. */
	if (status->code == KVR_E_UNKNOWN_SESSION && session->at != LOAD_UNPINNED &&
	    !session->failed && w->tries == 1)
		kvr_stats_inc(l->row, LOAD_SESSION_UNKNOWN);
	w->state = LOAD_LANE_RELEASED; /* the timer of the repetition continues from here */
}

/* ---- engine side ---- */

static void answer_session(struct load *l, const struct kvr_wire_hdr *h, uint32_t engine,
			   uint8_t kind, uint16_t code)
{
	const struct kvr_wire_ids ids = load_worker_ids(l, engine, h->id);
	struct kvr_wire_session_status *m;

	m = load_message(l, load_port_of_engine(l, engine), kind, &ids, sizeof(*m), NULL);
	if (m != NULL)
		*m = (struct kvr_wire_session_status){.code = code};
}

/* The session's number decides, so that repetitions get the same answer. */
static bool engine_refuses(const struct load *l, const struct load_session *session)
{
	return (double)(kvr_mix64(session->number ^ l->opt->seed) >> 11) * 0x1p-53 <
	       l->opt->open_fail_share;
}

static void on_open(struct load *l, const struct kvr_wire_hdr *h, uint32_t engine,
		    struct load_session *session)
{
	const struct kvr_wire_session *m = kvr_frame_body(h);
	const bool repeat = session->open_id == h->id;

	if (engine_refuses(l, session)) {
		kvr_stats_add(l->row, LOAD_OPENS_REFUSED, !repeat);
		session->open_id = h->id;
		answer_session(l, h, engine, KVR_SESSION_OPENED, OPEN_REFUSED);
		return;
	}
	answer_session(l, h, engine, KVR_SESSION_OPENED, 0);
	if (repeat)
		return;
	if (m->timeout_s != l->opt->session_timeout + KVR_WIRE_SESSION_GRACE_S)
		kvr_stats_inc(l->row, LOAD_V_SESSION);
	session->open_id = h->id;
	if (session->at == engine)
		return; /* only the timeout changes */
	if (session->at != LOAD_UNPINNED)
		kvr_stats_inc(l->row, LOAD_OPENED_TWICE);
	else
		kvr_stats_inc(l->row, LOAD_SESSIONS_OPEN);
	kvr_stats_inc(l->row, LOAD_OPENED);
	session->at = engine;
	session->opened = true;
	session->closed = false;
}

/* Why an engine gets a close. */
static enum load_counter closing_cause(struct load *l, const struct load_session *session)
{
	const struct load_lane *w = &l->lanes[session->lane];

	if (session->turns == 1 && w->session == session->number && w->state == LOAD_LANE_TURN)
		return LOAD_CLOSED_RELEASED; /* the first turn failed or was rerouted */
	if (!session->over)
		return session_expired(l, l->now - session->used) ||
				       session_expired(l, session->used - session->used_before)
			       ? LOAD_CLOSED_EXPIRED
			       : LOAD_CLOSED_EARLY;
	if (session->end == LOAD_END_ABANDON)
		return LOAD_CLOSED_EXPIRED;
	return session->end == LOAD_END_CLOSE ? LOAD_CLOSED : LOAD_CLOSED_RELEASED;
}

static void on_close(struct load *l, const struct kvr_wire_hdr *h, uint32_t engine,
		     struct load_session *session)
{
	answer_session(l, h, engine, KVR_SESSION_CLOSED,
		       0); /* sent also for a session that is not open here */
	if (session->close_id == h->id)
		return;
	if (session->at != engine) {
		kvr_stats_inc(l->row, session->closed ? LOAD_CLOSED_TWICE : LOAD_CLOSED_UNKNOWN);
		return;
	}
	kvr_stats_inc(l->row, closing_cause(l, session));
	kvr_stats_sub(l->row, LOAD_SESSIONS_OPEN, 1);
	session->close_id = h->id;
	session->at = LOAD_UNPINNED;
	session->closed = true;
}

void load_session_frame(struct load *l, const struct kvr_wire_hdr *h, uint32_t engine)
{
	const struct kvr_wire_session *m = kvr_frame_body(h);
	struct load_session *session;

	if (kvr_body_check(h->kind, m, h->msg_len, NULL) != 0) {
		kvr_stats_inc(l->row, LOAD_CORRUPT);
		return;
	}
	session = names_session(l, (struct kvr_str){(const char *)(m + 1), m->id_len});
	if (session == NULL || l->engines[engine].worker != h->source) {
		kvr_stats_inc(l->row, LOAD_V_SESSION);
		return;
	}
	if (h->kind == KVR_SESSION_OPEN)
		on_open(l, h, engine, session);
	else
		on_close(l, h, engine, session);
}

/*
 * Affinity: the first turn binds each leg to a rank, and later turns must arrive there. A rerouted
 * turn may or may not bind; the next turn shows.
 */
static void check_affinity(struct load *l, uint32_t task, struct load_session *session)
{
	const uint32_t leg = task & LOAD_PREFILL ? 1 : 0, rank = load_leg(l, task)->rank;
	const bool again = l->pairs != NULL && l->pairs[load_slot_no(task)].runs[leg] > 1;
	uint32_t *bound = &session->bound[leg];

	if (again) {
		*bound = LOAD_UNPINNED;
		return;
	}
	if (*bound == LOAD_UNPINNED)
		kvr_stats_inc(l->row, LOAD_BOUND);
	else
		kvr_stats_inc(l->row, *bound == rank ? LOAD_TURNS_ON_BOUND : LOAD_MISPLACED);
	*bound = rank;
}

void load_session_dispatched(struct load *l, uint32_t task, const struct kvr_hints *h)
{
	const struct load_slot *s = load_slot(l, task);
	const uint32_t engine = l->ranks[load_leg(l, task)->rank].engine;
	struct load_session *session = names_session(l, h->session.id);

	if (session == NULL || session->number != s->session) {
		kvr_stats_inc(l->row, LOAD_V_SESSION);
		return;
	}
	if (l->opt->affinity) {
		check_affinity(l, task, session);
		return;
	}
	if (task & LOAD_PREFILL)
		return; /* decode engines have the sessions */
	if (session->at == engine) {
		kvr_stats_inc(l->row,
			      s->action == KVR_ACTION_OPEN ? LOAD_BOUND : LOAD_TURNS_ON_BOUND);
	} else if (session->at == LOAD_UNPINNED && (session->lost || session->closed)) {
		kvr_stats_inc(l->row, LOAD_TURNS_UNBOUND);
	} else {
		kvr_stats_inc(l->row, LOAD_MISPLACED); /* open at another engine, or never opened */
	}
}

void load_session_killed(struct load *l, uint32_t engine)
{
	for (uint64_t i = 0; i <= l->session_mask; i++) {
		struct load_session *session = &l->sessions[i];

		for (uint32_t k = 0; k < 2 && session->number != 0; k++)
			if (session->bound[k] != LOAD_UNPINNED &&
			    l->ranks[session->bound[k]].engine == engine)
				session->bound[k] = LOAD_UNPINNED;
		if (session->number == 0 || session->at != engine)
			continue;
		session->at = LOAD_UNPINNED;
		session->lost = true;
		kvr_stats_inc(l->row, LOAD_SESSIONS_LOST);
		kvr_stats_sub(l->row, LOAD_SESSIONS_OPEN, 1);
	}
}
