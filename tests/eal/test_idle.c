/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Nobody sleeps on work: who has been given some does not go to sleep, who sleeps is woken, once,
 * and nobody else is. No lcore runs; this thread is all of them, and every sleep it begins has been
 * ended before.
 */
#include "kvr_test.h"
#include "kvr_timer_slack.h"
#include "lcore/notes.h"
#include "pipeline.h"

#include <sys/prctl.h>
#include <unistd.h>

static struct lcore *lc;
static struct call call;

static void begin(int mode)
{
	pipeline_start(2);
	lc = rt->lcore[0];
	CU_ASSERT_EQUAL_FATAL(idle_init(&lc->idle, mode), 0);
	CU_ASSERT_EQUAL_FATAL(idle_init(&rt->control.idle, mode), 0);
	lc->idle.turns = IDLE_SPIN;
	lc->idle.done = lcore_done(lc);
}

static void end(void)
{
	idle_fini(&lc->idle);
	idle_fini(&rt->control.idle);
	pipeline_stop();
}

static void wake_up_call(struct idle *d)
{
	const uint64_t one = 1;

	CU_ASSERT_EQUAL(write(d->fd, &one, sizeof(one)), (ssize_t)sizeof(one));
}

/* @return how often it was rung since. */
static uint64_t rung(const struct idle *d)
{
	uint64_t n = 0;

	return read(d->fd, &n, sizeof(n)) == sizeof(n) ? n : 0;
}

static bool sleeps(void)
{
	const uint64_t before = kvr_cell_get(&lc->turns.sleeps);

	wake_up_call(&lc->idle);
	idle_after_turn(lc);
	CU_ASSERT_EQUAL(atomic_load(&lc->idle.asleep), 0);
	(void)rung(&lc->idle);
	return kvr_cell_get(&lc->turns.sleeps) != before;
}

static void who_was_given_work_turns(void)
{
	void *got;

	for (int mode = IDLE_SLEEP; mode <= IDLE_INTERRUPT; mode++) {
		begin(mode);
		CU_ASSERT_TRUE(sleeps());
		CU_ASSERT_EQUAL(rte_ring_sp_enqueue(lc->calls, &call), 0);
		CU_ASSERT_FALSE(sleeps());
		CU_ASSERT_EQUAL(rte_ring_sc_dequeue(lc->calls, &got), 0);
		CU_ASSERT_TRUE(sleeps());
		CU_ASSERT_EQUAL(rte_ring_enqueue(lc->sched_pool[1]->events, &call), 0);
		CU_ASSERT_FALSE(sleeps());
		CU_ASSERT_EQUAL(rte_ring_dequeue(lc->sched_pool[1]->events, &got), 0);
		CU_ASSERT_TRUE(sleeps());
		atomic_store(&rt->stop, 1);
		CU_ASSERT_FALSE(sleeps());
		atomic_store(&rt->stop, 0);
		end();
	}
}

static void work_of_a_turn_keeps_it_up(void)
{
	begin(IDLE_INTERRUPT);
	kvr_cell_add(&lc->work[STAGE_INGRESS].items, 1);
	for (uint32_t i = 0; i <= IDLE_SPIN_INT; i++)
		CU_ASSERT_FALSE(sleeps());
	CU_ASSERT_TRUE(sleeps());
	end();
}

static void a_sleeper_is_woken(void)
{
	begin(IDLE_SLEEP);
	idle_wake(&lc->idle);
	CU_ASSERT_EQUAL(rung(&lc->idle), 0); /* it is up */
	atomic_store(&lc->idle.asleep, 1);
	idle_wake(&lc->idle);
	idle_wake(&lc->idle);
	CU_ASSERT_EQUAL(rung(&lc->idle), 2);
	end();
}

static void control_is_woken_for_frames(void)
{
	struct ctl_buf *b;

	begin(IDLE_SLEEP);
	atomic_store(&rt->control.idle.asleep, 1);
	CU_ASSERT_TRUE(sleeps());
	CU_ASSERT_EQUAL(rung(&rt->control.idle), 0); /* nothing for it */
	CU_ASSERT_EQUAL(rte_mempool_get(rt->ctl_bufs, (void **)&b), 0);
	CU_ASSERT_EQUAL(rte_ring_enqueue(rt->control_ring, b), 0);
	CU_ASSERT_TRUE(sleeps());
	CU_ASSERT_EQUAL(rung(&rt->control.idle), 1);
	/* It does not sleep itself, either: this would take an hour. */
	idle_control(rt, UINT64_C(3600000000000));
	CU_ASSERT_EQUAL(rte_ring_dequeue(rt->control_ring, (void **)&b), 0);
	rte_mempool_put(rt->ctl_bufs, b);
	wake_up_call(&rt->control.idle);
	idle_control(rt, UINT64_C(3600000000000));   /* nor sleep through a call */
	CU_ASSERT_EQUAL(rung(&rt->control.idle), 0); /* which it has taken */
	end();
}

/* Who is woken can be late with its timers; who looks cannot. */
static void only_the_woken_are_late(void)
{
	struct kvr_port_queue *queue;

	begin(IDLE_INTERRUPT);
	idle_begin(&lc->idle);
	CU_ASSERT_TRUE(sleeps()); /* its device wakes nobody */
	CU_ASSERT_EQUAL(prctl(PR_GET_TIMERSLACK), 1);
	queue = lc->queue[0];
	lc->queue[0] = NULL;
	CU_ASSERT_TRUE(sleeps());
	CU_ASSERT_EQUAL(prctl(PR_GET_TIMERSLACK), (int)KVR_TIMER_SLACK_TICK_NS);
	lc->queue[0] = queue;
	CU_ASSERT_TRUE(sleeps());
	CU_ASSERT_EQUAL(prctl(PR_GET_TIMERSLACK), 1);
	end();
	begin(IDLE_SLEEP);
	idle_begin(&lc->idle);
	CU_ASSERT_TRUE(sleeps());
	CU_ASSERT_EQUAL(prctl(PR_GET_TIMERSLACK), 1);
	end();
}

int main(void)
{
	CU_TestInfo tests[] = {{"given", who_was_given_work_turns},
			       {"worked", work_of_a_turn_keeps_it_up},
			       {"woken", a_sleeper_is_woken},
			       {"late", only_the_woken_are_late},
			       {"control", control_is_woken_for_frames},
			       CU_TEST_INFO_NULL};

	return kvr_test_run("idle", tests);
}
