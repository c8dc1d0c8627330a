/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The loop of a packet lcore. The clock is read once a turn, so a stage's "now" is at most one turn
 * old. A stage is timed only if it found work: idle polling then costs no clock reads, and cycles
 * per item are meaningful.
 */
#include "event/event.h"
#include "ingress/ingress.h"
#include "ingress/route.h"
#include "lcore/idle.h"
#include "lcore/mailbox.h"
#include "lcore/out.h"
#include "loop/loop.h"
#include "message/frames.h"
#include "sched/sched.h"
#include "sched/send.h"

#define CALLS_TURN 4u

const char *const router_stage_names[STAGES] = {
	[STAGE_INGRESS] = "ingress", [STAGE_SCORE] = "score",	[STAGE_EVENT] = "event",
	[STAGE_SCHED] = "scheduler", [STAGE_EGRESS] = "egress",
};

static void stage_add(struct stage_work *w, uint64_t items, uint64_t cycles)
{
	kvr_cell_add(&w->items, items);
	kvr_cell_add(&w->bursts, 1);
	kvr_cell_add(&w->cycles, cycles);
}

static void gauge_max(kvr_cell_t *gauge, uint64_t v)
{
	if (unlikely(v > kvr_cell_get(gauge)))
		kvr_cell_set(gauge, v);
}

/* Charge the time since the last lap to `stage` if it did work. */
static __rte_always_inline uint64_t stage_lap(struct lcore *lc, enum stage stage, uint32_t items,
					      uint64_t since)
{
	uint64_t now;

	if (items == 0)
		return since;
	now = rte_rdtsc();
	stage_add(&lc->work[stage], items, now - since);
	gauge_max(&lc->work[stage].max_cycles, now - since);
	return now;
}

static bool timed_call(struct lcore *lc, struct call *call)
{
	const uint64_t begin = rte_rdtsc();
	const bool done = call->fn(lc, call->arg);

	kvr_cell_add(&lc->turns.calls, 1);
	kvr_cell_add(&lc->turns.call_cycles, rte_rdtsc() - begin);
	return done;
}

static void calls_poll(struct lcore *lc)
{
	for (uint32_t i = 0; i < CALLS_TURN; i++) {
		struct call *call = lc->call;
		bool done;

		if (call == NULL && rte_ring_sc_dequeue(lc->calls, (void **)&call) != 0)
			return;
		lc->call = call;
		done = timed_call(lc, call);
		if (!done)
			return;
		lc->call = NULL;
		/* Pairs with the acquire load in call_busy(): what fn wrote is visible. */
		atomic_store_explicit(&call->busy, 0, memory_order_release);
	}
}

void lcore_turn(struct lcore *lc)
{
	const uint64_t begin = rte_rdtsc();
	uint64_t t = begin;
	uint32_t n;

	/* Measured from turn to turn, because frames wait wherever an lcore stalls. */
	if (likely(lc->began != 0))
		gauge_max(&lc->turns.max_turn_cycles, begin - lc->began);
	lc->began = begin;
	lc->now_ns = tsc_ns(lc->rt, t);
	lc->send_left = SEND_TURN_BYTES;
	/* Pairs with the release store in publish_view(). */
	lc->view = atomic_load_explicit(&lc->rt->view, memory_order_acquire);

	if (lc->egress != NULL) {
		t = stage_lap(lc, STAGE_INGRESS, ingress_poll(lc), t);
		n = lc->n_jobs;
		jobs_flush(lc);
		t = stage_lap(lc, STAGE_SCORE, n, t);
	}
	for (uint32_t i = 0; i < lc->n_event; i++) {
		gauge_max(&lc->work[STAGE_EVENT].max_ring_depth,
			  rte_ring_count(lc->event_pool[i]->events));
		t = stage_lap(lc, STAGE_EVENT, event_poll(lc, lc->event_pool[i]), t);
	}
	for (uint32_t i = 0; i < lc->n_sched; i++) {
		gauge_max(&lc->work[STAGE_SCHED].max_ring_depth, mailbox_count(lc->sched_pool[i]));
		t = stage_lap(lc, STAGE_SCHED, sched_poll(lc, lc->sched_pool[i]), t);
	}
	if (lc->egress != NULL) {
		n = out_egress(lc);
		for (uint32_t i = 0; i < lc->rt->n_ports; i++)
			n += kvr_port_flush(lc->queue[i]);
		t = stage_lap(lc, STAGE_EGRESS, n, t);
	}
	frames_poll(lc);
	calls_poll(lc);
	rte_rcu_qsbr_quiescent(lc->rt->qsbr, lc->qsbr_id);
}

__attribute__((noinline)) void lcore_stack(void)
{
	volatile uint8_t room[LCORE_STACK];

	for (uint32_t i = sizeof(room); i >= 4096; i -= 4096)
		room[i - 1] = 0;
}

int lcore_loop(void *arg)
{
	struct lcore *lc = arg;

	lcore_stack();
	rte_rcu_qsbr_thread_register(lc->rt->qsbr, lc->qsbr_id);
	rte_rcu_qsbr_thread_online(lc->rt->qsbr, lc->qsbr_id);
	idle_begin(&lc->idle);
	while (!atomic_load_explicit(&lc->rt->stop, memory_order_relaxed)) {
		lcore_turn(lc);
		if (unlikely(lc->idle.mode != IDLE_POLL))
			idle_after_turn(lc);
	}
	rte_rcu_qsbr_thread_offline(lc->rt->qsbr, lc->qsbr_id);
	rte_rcu_qsbr_thread_unregister(lc->rt->qsbr, lc->qsbr_id);
	return 0;
}
