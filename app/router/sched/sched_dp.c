/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The scheduler stage of a pool, the only writer of its load model, queue, requests and slots. A
 * turn: lost bookings, a burst of messages, the queue, timers. Each message is an event of a
 * request (request_dp.c), whose orders are carried out at once (orders_dp.c).
 */
#include "lcore/mailbox.h"
#include "sched/long_prompt.h"
#include "sched/request.h"
#include "sched/request_stats.h"
#include "sched/sched.h"
#include "sched/session.h"

#include <string.h>

#define LOADS_TURN  1024u /* ranks in answers to POTENTIAL_LOADS per turn, 30 ns each */
#define ALIVE_RANKS (8 * KVR_WIRE_ALIVE_MOST) /* cost of an ALIVE in such ranks */
#define STEPS_AHEAD (1 + KVR_SCHED_AHEAD)     /* the job, then the data behind the job or slot */

/* ---- what is fetched ahead ---- */

static void prefetch_first(const struct job *job)
{
	rte_prefetch0(&job->msg);
	rte_prefetch0(&job->session);
}

static void prefetch_job(struct pool *pool, const struct job *job, struct kvr_active_ahead *ahead,
			 int step)
{
	if (step <= 2 && job->session.key.len != 0 && pool->sessions != NULL)
		kvr_session_prefetch(pool->sessions->table, &job->session.key, step - 1);
	kvr_sched_prefetch_route(pool->sched, &job->msg.req, ahead);
}

/* Prefetch the data behind the slot of a handle, whose own lines are loaded. */
static void prefetch_request(struct pool *pool, uint64_t handle)
{
	const struct kvr_flight *slot = kvr_flight_by_handle(pool->requests, handle);
	const struct request *req = slot != NULL ? request_of(slot) : NULL;

	if (req == NULL)
		return;
	rte_prefetch0(&req->rq);
	rte_prefetch0(&req->rq.leg[PREFILL]);
	rte_prefetch0(&req->slot);
	rte_prefetch0(&req->times);
}

/* Only the end of a booking walks its prompt; other messages need just the booking. */
static bool goes_on(const struct sched_msg *msg, int step)
{
	return msg->type == MSG_RESULT || msg->type == MSG_LONG_RESULT ||
	       (msg->type == MSG_PROGRESS &&
		(step <= 2 || (msg->progress.flags & KVR_PROG_F_FIN) != 0));
}

static void prefetch_note(struct pool *pool, const struct sched_msg *msg,
			  struct kvr_active_ahead *ahead, int step)
{
	if (msg->type == MSG_ROUTE && step == 0)
		prefetch_first(msg->job);
	else if (msg->type == MSG_ROUTE)
		prefetch_job(pool, msg->job, ahead, step);
	else if (step == 0)
		prefetch_request(pool, msg->handle);
	else if (goes_on(msg, step))
		kvr_sched_prefetch(pool->sched, (uint32_t)msg->handle & (KVR_FLIGHT_MAX_SLOTS - 1),
				   step - 1);
}

/* Before message i is handled: the next prefetch step of messages behind it. Each step reads lines
 * that the previous one loaded; see kvr_sched_prefetch(). */
static void fetch_ahead(struct pool *pool, const struct sched_msg msg[], int got,
			struct kvr_active_ahead ahead[], int i)
{
	const int first = RTE_MAX(0, STEPS_AHEAD - (got - 1 - i) / 2);
	const int end = RTE_MIN(STEPS_AHEAD, (i + 2 * STEPS_AHEAD) / 2 + 1);

	for (int step = first; step < end; step++) {
		const int at = i + 2 * (STEPS_AHEAD - step);

		prefetch_note(pool, &msg[at], &ahead[at], step);
	}
}

/* ---- the turn ---- */

void sched_gauges(struct pool *pool)
{
	struct sessions *sessions = pool->sessions;

	kvr_stats_set(pool->count, PC_WAITING, kvr_sched_counters(pool->sched)->waiting_now);
	kvr_stats_set(pool->count, PC_LIVE, kvr_sched_counters(pool->sched)->booked_now);
	kvr_stats_set(pool->count, PC_LEGS_PENDING, pool->pair.n_prefilling);
	if (sessions == NULL)
		return;
	kvr_stats_set(sessions->count, SC_LIVE, kvr_session_count(sessions->table));
}

/* Read the messages of this turn without removing them. A query about all ranks costs as much as
 * ten decisions, and a report of live requests half of that, so further ones wait for the next
 * turn. */
static uint32_t turn_messages(const struct pool *pool, struct sched_msg msg[])
{
	const uint32_t got = mailbox_take_start(pool, msg, BURST);
	uint32_t take, spent = 0;

	for (take = 0; take < got; take++) {
		const bool loads = msg[take].type == MSG_LOADS;

		if (likely(!loads && msg[take].type != MSG_ALIVE))
			continue;
		if (spent != 0 && spent + (loads ? pool->max_ranks : ALIVE_RANKS) > LOADS_TURN)
			break;
		spent += loads ? pool->max_ranks : ALIVE_RANKS;
	}
	return take;
}

/* @return false: a long prompt is in progress; the message is not handled yet. */
static bool handle_message(struct lcore *lc, struct pool *pool, const struct sched_msg *msg,
			   uint32_t runs)
{
	if (likely(long_prompt_is_none(pool, msg))) {
		request_handle(lc, pool, msg);
		return true;
	}
	if (!long_prompt_ready_msg(pool, msg, runs))
		return false;
	request_handle(lc, pool, msg);
	long_prompt_handled(pool);
	return true;
}

/* Handle a burst of messages, or the part that fits the turn; the others stay in the mailbox.
 * @return number handled. */
static uint32_t handle_burst(struct lcore *lc, struct pool *pool, uint64_t most)
{
	struct kvr_active_ahead ahead[BURST];
	struct sched_msg msg[BURST];
	uint32_t got = turn_messages(pool, msg), done = 0;
	uint64_t walked = long_prompt_walked(pool);

	memset(ahead, 0, got * sizeof(ahead[0])); /* most turns have one or two messages */
	for (uint32_t i = 0; i < got; i++)
		if (msg[i].handle != 0)
			kvr_flight_prefetch(pool->requests, msg[i].handle);
	for (int i = got > 1 ? -2 * STEPS_AHEAD : 0; i < (int)got; i++) {
		fetch_ahead(pool, msg, (int)got, ahead, i);
		if (i < 0)
			continue;
		if (unlikely(!handle_message(lc, pool, &msg[i], (uint32_t)(most - walked))))
			break;
		done++;
		walked = long_prompt_walked(pool);
		if (unlikely(walked >= most || !long_prompt_idle(pool)))
			break;
	}
	mailbox_take_finish(pool, done);
	return done;
}

uint32_t sched_poll(struct lcore *lc, struct pool *pool)
{
	const uint64_t most = long_prompt_walked(pool) + LONG_PROMPT_TURN;
	uint32_t done = 0;

	if (unlikely(!long_prompt_settle(pool)) ||
	    unlikely(!orders_go_on(lc, pool, LONG_PROMPT_TURN)) ||
	    (likely(long_prompt_idle(pool)) && unlikely(!lost_poll(lc, pool))))
		return 1;
	if (likely(long_prompt_idle(pool)) && likely(long_prompt_walked(pool) < most))
		done = handle_burst(lc, pool, most);
	if (likely(long_prompt_may_admit(pool)))
		admit_poll(lc, pool);
	if (likely(long_prompt_idle(pool)))
		timers_poll(lc, pool);
	sched_gauges(pool);
	return done;
}

static void count_released(struct lcore *lc, struct pool *pool, struct kvr_flight *slot)
{
	const bool probe = slot_probes(slot);

	if (!slot_event(lc, pool, slot, (struct kvr_rq_event){.kind = KVR_RQE_EXPIRED}))
		return;
	pool_count(pool, PC_EXPIRED, !probe);
	pool_count(pool, PC_RELEASED, !probe);
}

bool sched_tick(struct lcore *lc, void *arg)
{
	struct pool *pool = arg;
	uint32_t slot[ENDS_TURN], got;

	kvr_live_clock_advance(&lc->quiet,
			       atomic_load_explicit(&lc->rt->live_ns, memory_order_relaxed), true);
	if (!lost_poll(lc, pool))
		return false;
	kvr_sched_stood_still(pool->sched, since_ns(lc->now_ns, lc->quiet.now_ns));
	got = kvr_sched_expire(pool->sched, lc->now_ns, slot, ENDS_TURN);
	for (uint32_t i = 0; i < got; i++)
		count_released(lc, pool, kvr_flight_slot(pool->requests, slot[i]));
	if (got == ENDS_TURN || !deadlines_poll(lc, pool))
		return false; /* the turn sets the gauges */
	sched_gauges(pool);
	return true;
}
