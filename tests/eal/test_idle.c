/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * No thread sleeps while it has work: a thread that receives work stays awake, a sleeping one is
 * woken exactly once, and no other thread is woken. No lcore runs: this thread plays all of them,
 * and every sleep ends before it begins.
 */
#include "kvr_test.h"
#include "kvr_timer_slack.h"
#include "lcore/idle.h"
#include "lcore/mailbox.h"
#include "pipeline.h"

#include <sys/prctl.h>
#include <unistd.h>

static struct lcore *lc;
static struct call call;

static void begin_idle(int mode)
{
	pipeline_start(2);
	lc = rt->lcore[0];
	CU_ASSERT_EQUAL_FATAL(idle_init(&lc->idle, mode), 0);
	CU_ASSERT_EQUAL_FATAL(idle_init(&rt->control.idle, mode), 0);
	lc->idle.turns = IDLE_SPIN;
	lc->idle.done = lcore_done(lc);
}

static void end_idle(void)
{
	idle_fini(&lc->idle);
	idle_fini(&rt->control.idle);
	pipeline_stop();
}

static void prepare_wake_up(struct idle *d)
{
	const uint64_t one = 1;

	CU_ASSERT_EQUAL(write(d->fd, &one, sizeof(one)), (ssize_t)sizeof(one));
}

/* @return wake-ups since the last call. */
static uint64_t read_wake_ups(const struct idle *d)
{
	uint64_t n = 0;

	return read(d->fd, &n, sizeof(n)) == sizeof(n) ? n : 0;
}

static bool try_to_sleep(void)
{
	const uint64_t before = kvr_cell_get(&lc->turns.sleeps);

	prepare_wake_up(&lc->idle);
	idle_after_turn(lc);
	CU_ASSERT_EQUAL(atomic_load(&lc->idle.asleep), 0);
	(void)read_wake_ups(&lc->idle);
	return kvr_cell_get(&lc->turns.sleeps) != before;
}

static void work_prevents_sleep(void)
{
	void *got;

	for (int mode = IDLE_SLEEP; mode <= IDLE_INTERRUPT; mode++) {
		begin_idle(mode);
		CU_ASSERT_TRUE(try_to_sleep());
		CU_ASSERT_EQUAL(rte_ring_sp_enqueue(lc->calls, &call), 0);
		CU_ASSERT_FALSE(try_to_sleep());
		CU_ASSERT_EQUAL(rte_ring_sc_dequeue(lc->calls, &got), 0);
		CU_ASSERT_TRUE(try_to_sleep());
		CU_ASSERT_EQUAL(rte_ring_enqueue(lc->sched_pool[1]->events, &call), 0);
		CU_ASSERT_FALSE(try_to_sleep());
		CU_ASSERT_EQUAL(rte_ring_dequeue(lc->sched_pool[1]->events, &got), 0);
		CU_ASSERT_TRUE(try_to_sleep());
		atomic_store(&rt->stop, 1);
		CU_ASSERT_FALSE(try_to_sleep());
		atomic_store(&rt->stop, 0);
		end_idle();
	}
}

static void work_in_a_turn_prevents_sleep(void)
{
	begin_idle(IDLE_INTERRUPT);
	kvr_cell_add(&lc->work[STAGE_INGRESS].items, 1);
	for (uint32_t i = 0; i <= IDLE_SPIN_INT; i++)
		CU_ASSERT_FALSE(try_to_sleep());
	CU_ASSERT_TRUE(try_to_sleep());
	end_idle();
}

static void a_sleeping_lcore_is_woken_once(void)
{
	begin_idle(IDLE_SLEEP);
	idle_wake(&lc->idle);
	CU_ASSERT_EQUAL(read_wake_ups(&lc->idle), 0); /* it is awake */
	atomic_store(&lc->idle.asleep, 1);
	idle_wake(&lc->idle);
	idle_wake(&lc->idle);
	CU_ASSERT_EQUAL(read_wake_ups(&lc->idle), 2);
	end_idle();
}

static void control_is_woken_for_frames(void)
{
	struct ctl_buf *b;

	begin_idle(IDLE_SLEEP);
	atomic_store(&rt->control.idle.asleep, 1);
	CU_ASSERT_TRUE(try_to_sleep());
	CU_ASSERT_EQUAL(read_wake_ups(&rt->control.idle), 0); /* no frame for it */
	CU_ASSERT_EQUAL(rte_mempool_get(rt->ctl_bufs, (void **)&b), 0);
	CU_ASSERT_EQUAL(rte_ring_enqueue(rt->control_ring, b), 0);
	CU_ASSERT_TRUE(try_to_sleep());
	CU_ASSERT_EQUAL(read_wake_ups(&rt->control.idle), 1);
	/* Control itself does not sleep either; a sleep would take an hour. */
	idle_control(rt, UINT64_C(3600000000000));
	CU_ASSERT_EQUAL(rte_ring_dequeue(rt->control_ring, (void **)&b), 0);
	rte_mempool_put(rt->ctl_bufs, b);
	prepare_wake_up(&rt->control.idle);
	idle_control(rt, UINT64_C(3600000000000));	      /* nor sleep through a call */
	CU_ASSERT_EQUAL(read_wake_ups(&rt->control.idle), 0); /* which it has taken */
	end_idle();
}

/* A thread that must be woken may be late with its timers; a polling one may not. */
static void only_sleeping_threads_are_late(void)
{
	struct kvr_port_queue *queue;

	begin_idle(IDLE_INTERRUPT);
	idle_begin(&lc->idle);
	CU_ASSERT_TRUE(try_to_sleep()); /* its device wakes no thread */
	CU_ASSERT_EQUAL(prctl(PR_GET_TIMERSLACK), 1);
	queue = lc->queue[0];
	lc->queue[0] = NULL;
	CU_ASSERT_TRUE(try_to_sleep());
	CU_ASSERT_EQUAL(prctl(PR_GET_TIMERSLACK), (int)KVR_TIMER_SLACK_TICK_NS);
	lc->queue[0] = queue;
	CU_ASSERT_TRUE(try_to_sleep());
	CU_ASSERT_EQUAL(prctl(PR_GET_TIMERSLACK), 1);
	end_idle();
	begin_idle(IDLE_SLEEP);
	idle_begin(&lc->idle);
	CU_ASSERT_TRUE(try_to_sleep());
	CU_ASSERT_EQUAL(prctl(PR_GET_TIMERSLACK), 1);
	end_idle();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(work_prevents_sleep),
			       KVR_CASE(work_in_a_turn_prevents_sleep),
			       KVR_CASE(a_sleeping_lcore_is_woken_once),
			       KVR_CASE(only_sleeping_threads_are_late),
			       KVR_CASE(control_is_woken_for_frames),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("idle", tests);
}
