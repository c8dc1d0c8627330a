/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The scheduler stage of a pool, the only writer of its load model, queue, requests and slots. A
 * turn: lost bookings, a burst of messages, the queue, timers. Each message is an event of a
 * request (request_dp.c), whose orders are carried out at once (orders_dp.c).
 */
#include "lcore/mailbox.h"
#include "sched/measure.h"
#include "sched/prompts.h"
#include "sched/request.h"
#include "sched/sched.h"
#include "sched/session.h"

#include <string.h>

#define LOADS_TURN  1024u /* ranks in answers to POTENTIAL_LOADS per turn, 30 ns each */
#define ALIVE_RANKS (8 * KVR_WIRE_ALIVE_MOST) /* cost of an ALIVE in such ranks */
#define STEPS_AHEAD (1 + KVR_SCHED_AHEAD)     /* the job, then the data behind the job or slot */

/* ---- what is fetched ahead ---- */

static void prefetch_first(const struct job *j)
{
	rte_prefetch0(&j->msg);
	rte_prefetch0(&j->session);
}

static void prefetch_job(struct pool *p, const struct job *j, struct kvr_active_ahead *ahead,
			 int step)
{
	if (step <= 2 && j->session.key.len != 0 && p->sessions != NULL)
		kvr_session_prefetch(p->sessions->table, &j->session.key, step - 1);
	kvr_sched_prefetch_route(p->sched, &j->msg.req, ahead);
}

/* Prefetch the data behind the slot of a handle, whose own lines are loaded. */
static void prefetch_request(struct pool *p, uint64_t handle)
{
	const struct kvr_flight *slot = kvr_flight_by_handle(p->requests, handle);
	const struct request *r = slot != NULL ? request_of(slot) : NULL;

	if (r == NULL)
		return;
	rte_prefetch0(&r->rq);
	rte_prefetch0(&r->rq.leg[PREFILL]);
	rte_prefetch0(&r->slot);
	rte_prefetch0(&r->times);
}

/* Only the end of a booking walks its prompt; other messages need just the booking. */
static bool goes_on(const struct note *n, int step)
{
	return n->type == NOTE_RESULT || n->type == NOTE_LONG_RESULT ||
	       (n->type == NOTE_PROGRESS &&
		(step <= 2 || (n->progress.flags & KVR_PROG_F_FIN) != 0));
}

static void prefetch_note(struct pool *p, const struct note *n, struct kvr_active_ahead *ahead,
			  int step)
{
	if (n->type == NOTE_ROUTE && step == 0)
		prefetch_first(n->job);
	else if (n->type == NOTE_ROUTE)
		prefetch_job(p, n->job, ahead, step);
	else if (step == 0)
		prefetch_request(p, n->handle);
	else if (goes_on(n, step))
		kvr_sched_prefetch(p->sched, (uint32_t)n->handle & (KVR_FLIGHT_MAX_SLOTS - 1),
				   step - 1);
}

/* Before message i is handled: the next prefetch step of messages behind it. Each step reads lines
 * that the previous one loaded; see kvr_sched_prefetch(). */
static void fetch_ahead(struct pool *p, const struct note n[], int got,
			struct kvr_active_ahead ahead[], int i)
{
	const int first = RTE_MAX(0, STEPS_AHEAD - (got - 1 - i) / 2);
	const int end = RTE_MIN(STEPS_AHEAD, (i + 2 * STEPS_AHEAD) / 2 + 1);

	for (int step = first; step < end; step++) {
		const int at = i + 2 * (STEPS_AHEAD - step);

		prefetch_note(p, &n[at], &ahead[at], step);
	}
}

/* ---- the turn ---- */

void sched_gauges(struct pool *p)
{
	struct sessions *s = p->sessions;

	kvr_stats_set(p->count, PC_WAITING, kvr_sched_counters(p->sched)->waiting_now);
	kvr_stats_set(p->count, PC_LIVE, kvr_sched_counters(p->sched)->booked_now);
	kvr_stats_set(p->count, PC_LEGS_PENDING, p->pair.n_prefilling);
	if (s == NULL)
		return;
	kvr_stats_set(s->count, SC_LIVE, kvr_session_count(s->table));
}

/* Read the messages of this turn without removing them. A query about all ranks costs as much as
 * ten decisions, and a report of live requests half of that, so further ones wait for the next
 * turn. */
static uint32_t turn_notes(const struct pool *p, struct note n[])
{
	const uint32_t got = notes_take_start(p, n, BURST);
	uint32_t take, spent = 0;

	for (take = 0; take < got; take++) {
		const bool loads = n[take].type == NOTE_LOADS;

		if (likely(!loads && n[take].type != NOTE_ALIVE))
			continue;
		if (spent != 0 && spent + (loads ? p->max_ranks : ALIVE_RANKS) > LOADS_TURN)
			break;
		spent += loads ? p->max_ranks : ALIVE_RANKS;
	}
	return take;
}

/* @return false: a long prompt is in progress; the message is not handled yet. */
static bool handle(struct lcore *lc, struct pool *p, const struct note *n, uint32_t runs)
{
	if (likely(prompts_short(p, n))) {
		request_note(lc, p, n);
		return true;
	}
	if (!prompts_ready_note(p, n, runs))
		return false;
	request_note(lc, p, n);
	prompts_handled(p);
	return true;
}

/* Handle a burst of messages, or the part that fits the turn; the others stay in the mailbox.
 * @return number handled. */
static uint32_t burst(struct lcore *lc, struct pool *p, uint64_t most)
{
	struct kvr_active_ahead ahead[BURST];
	struct note n[BURST];
	uint32_t got = turn_notes(p, n), done = 0;
	uint64_t walked = prompts_walked(p);

	memset(ahead, 0, got * sizeof(ahead[0])); /* most turns have one or two messages */
	for (uint32_t i = 0; i < got; i++)
		if (n[i].handle != 0)
			kvr_flight_prefetch(p->requests, n[i].handle);
	for (int i = got > 1 ? -2 * STEPS_AHEAD : 0; i < (int)got; i++) {
		fetch_ahead(p, n, (int)got, ahead, i);
		if (i < 0)
			continue;
		if (unlikely(!handle(lc, p, &n[i], (uint32_t)(most - walked))))
			break;
		done++;
		walked = prompts_walked(p);
		if (unlikely(walked >= most || !prompts_idle(p)))
			break;
	}
	notes_take_finish(p, done);
	return done;
}

uint32_t sched_poll(struct lcore *lc, struct pool *p)
{
	const uint64_t most = prompts_walked(p) + PROMPTS_TURN;
	uint32_t done = 0;

	if (unlikely(!prompts_settle(p)) || unlikely(!orders_go_on(lc, p, PROMPTS_TURN)) ||
	    (likely(prompts_idle(p)) && unlikely(!lost_poll(lc, p))))
		return 1;
	if (likely(prompts_idle(p)) && likely(prompts_walked(p) < most))
		done = burst(lc, p, most);
	if (likely(prompts_may_admit(p)))
		admit_poll(lc, p);
	if (likely(prompts_idle(p)))
		timers_poll(lc, p);
	sched_gauges(p);
	return done;
}

static void released(struct lcore *lc, struct pool *p, struct kvr_flight *slot)
{
	const bool probe = slot_probes(slot);

	if (!slot_event(lc, p, slot, (struct kvr_rq_event){.kind = KVR_RQE_EXPIRED}))
		return;
	pool_count(p, PC_EXPIRED, !probe);
	pool_count(p, PC_RELEASED, !probe);
}

bool sched_tick(struct lcore *lc, void *arg)
{
	struct pool *p = arg;
	uint32_t slot[ENDS_TURN], got;

	kvr_live_clock_advance(&lc->quiet,
			       atomic_load_explicit(&lc->rt->live_ns, memory_order_relaxed), true);
	if (!lost_poll(lc, p))
		return false;
	kvr_sched_stood_still(p->sched, since_ns(lc->now_ns, lc->quiet.now_ns));
	got = kvr_sched_expire(p->sched, lc->now_ns, slot, ENDS_TURN);
	for (uint32_t i = 0; i < got; i++)
		released(lc, p, kvr_flight_slot(p->requests, slot[i]));
	if (got == ENDS_TURN || !deadlines_poll(lc, p))
		return false; /* the turn sets the gauges */
	sched_gauges(p);
	return true;
}
