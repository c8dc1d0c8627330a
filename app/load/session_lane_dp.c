/* SPDX-License-Identifier: BSD-3-Clause */
#include "session.h"

#include "frame.h"

/* Lanes of the client side: their next action when they wake. See session.h. */

#define RELEASE_LIMIT_S 5u

static enum load_session_end draw_end(struct load *l)
{
	const double session = kvr_rand_unit(&l->rand);

	if (session < l->opt->abandon_share)
		return LOAD_END_ABANDON;
	if (l->opt->affinity)
		return LOAD_END_ABANDON; /* only abandonment ends a session that was not opened */
	return session < l->opt->abandon_share + l->opt->release_share ? LOAD_END_RELEASE
								       : LOAD_END_CLOSE;
}

/* The record of a new session; NULL: an engine still has the session of that record open. */
static struct load_session *new_session(struct load *l, uint32_t lane)
{
	struct load_session *session = &l->sessions[(l->n_sessions + 1) & l->session_mask];

	if (session->at != LOAD_UNPINNED && session->number != 0)
		return NULL;
	*session = (struct load_session){.number = ++l->n_sessions,
					 .lane = lane,
					 .last = l->opt->turns,
					 .at = LOAD_UNPINNED,
					 .bound = {LOAD_UNPINNED, LOAD_UNPINNED},
					 .end = (uint8_t)draw_end(l)};
	if (session->end == LOAD_END_ABANDON && !l->opt->affinity)
		session->last = 1 + kvr_rand_below(&l->rand, l->opt->turns);
	l->lanes[lane].session = session->number;
	kvr_stats_inc(l->row, LOAD_SESSIONS);
	return session;
}

static uint8_t action_of(const struct load *l, const struct load_session *session)
{
	if (l->opt->affinity)
		return KVR_ACTION_NONE;
	if (session->turns == 0)
		return KVR_ACTION_OPEN;
	return session->turns + 1 == session->last && session->end == LOAD_END_CLOSE
		       ? KVR_ACTION_CLOSE
		       : KVR_ACTION_NONE;
}

static void next_turn(struct load *l, uint32_t lane)
{
	struct load_session *session = load_session_of(l, l->lanes[lane].session);
	uint8_t action;

	kvr_stats_inc(l->row, LOAD_REQUESTS);
	if (l->n_free == 0 || (session == NULL && (session = new_session(l, lane)) == NULL)) {
		kvr_stats_inc(l->row, LOAD_NOT_SENT);
		load_lane_pause(l, lane);
		return;
	}
	action = action_of(l, session);
	session->over = action == KVR_ACTION_CLOSE;
	session->used_before = session->turns > 0 ? session->used : l->now;
	session->used = l->now;
	l->lanes[lane].state = LOAD_LANE_TURN;
	kvr_stats_inc(l->row, LOAD_TURNS);
	load_client_start(l,
			  load_workload_turn(l->work, (uint32_t)session->number, session->turns++),
			  l->now, session->number, action);
}

/* The pause of a lane has ended. */
static void go_on(struct load *l, uint32_t lane)
{
	if (!l->sessions_end)
		next_turn(l, lane);
	else if (l->lanes[lane].session != 0 && !l->opt->affinity)
		load_lane_begin_release(l, lane);
	else
		load_lane_leave(l, lane);
}

void load_lanes_duty(struct load *l)
{
	struct load_timer t;

	for (uint32_t n = 0; n < LOAD_BURST && load_timers_pop(&l->lane_timers, l->now, &t); n++) {
		struct load_lane *w = &l->lanes[t.slot];

		if (w->state == LOAD_LANE_PAUSE) {
			go_on(l, t.slot);
		} else if (w->state == LOAD_LANE_RELEASED) {
			load_lane_leave(l, t.slot);
		} else if (l->now - w->since < RELEASE_LIMIT_S * l->hz) {
			load_lane_release(l, t.slot);
		} else {
			kvr_stats_inc(l->row, LOAD_RELEASE_LOST);
			load_lane_leave(l, t.slot);
		}
	}
}

void load_lanes_begin(struct load *l)
{
	for (uint32_t i = 0; i < l->opt->sessions; i++)
		load_lane_pause(l, i);
	l->n_lanes = l->opt->sessions;
}

void load_lanes_end(struct load *l)
{
	l->sessions_end = true;
	l->lane_timers.n = 0; /* pauses end now, releases continue */
	for (uint32_t i = 0; i < l->opt->sessions; i++)
		if (l->lanes[i].state != LOAD_LANE_TURN)
			load_lane_wake(l, i, l->now);
}

bool load_lanes_settled(const struct load *l)
{
	return l->n_lanes == 0 && kvr_stats_get(l->row, LOAD_SESSIONS_OPEN) == 0;
}
