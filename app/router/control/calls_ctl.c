/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Access of control to packet lcores: run a function on them (struct call), wait for the end of
 * their turns, and publish views.
 */
#include "control/thread.h"
#include "lcore/idle.h"

#include <errno.h>

#include <rte_cycles.h>

/* ---- calling packet lcores ---- */

/* Sleep, because an lcore on this thread's CPU needs it to progress. */
static void wait_a_bit(struct router *rt)
{
	if (rt->wait != NULL)
		rt->wait(rt);
	else
		rte_delay_us_sleep(10);
}

void call_start(struct router *rt, struct lcore *lc, struct call *call)
{
	rt->ctl->n_calls++;
	if (!atomic_load_explicit(&rt->running, memory_order_relaxed)) {
		while (!call->fn(lc,
				 call->arg)) /* no lcore polls: before the start, after the stop */
			;
		return;
	}
	atomic_store_explicit(&call->busy, 1, memory_order_relaxed);
	while (rte_ring_sp_enqueue(lc->calls, call) != 0)
		wait_a_bit(rt);
	idle_wake(&lc->idle);
}

bool call_busy(const struct call *call)
{
	/* Pairs with the release store in calls_poll(): the callee's writes are visible. */
	return atomic_load_explicit(&call->busy, memory_order_acquire) != 0;
}

void call_wait(struct router *rt, struct call *call)
{
	while (call_busy(call))
		wait_a_bit(rt);
}

struct once {
	void (*fn)(struct lcore *lc, void *arg);
	void *arg;
};

static bool call_once(struct lcore *lc, void *arg)
{
	const struct once *o = arg;

	o->fn(lc, o->arg);
	return true;
}

void call_lcore(struct router *rt, struct lcore *lc, void (*fn)(struct lcore *, void *), void *arg)
{
	struct once o = {fn, arg};
	struct call c = {.fn = call_once, .arg = &o};

	call_start(rt, lc, &c);
	call_wait(rt, &c);
}

/* ---- views ---- */

void wait_for_lcores(struct router *rt)
{
	const uint64_t t = rte_rcu_qsbr_start(rt->qsbr);

	while (rte_rcu_qsbr_check(rt->qsbr, t, false) == 0)
		wait_a_bit(rt);
}

void lcores_pass(void *arg)
{
	struct router *rt = arg;

	if (atomic_load_explicit(&rt->running, memory_order_relaxed))
		wait_for_lcores(rt);
}

int publish_view(struct router *rt)
{
	struct kvr_view *v = kvr_view_build(rt->registry), *old;

	if (v == NULL)
		return -ENOMEM;
	old = atomic_load_explicit(&rt->view, memory_order_relaxed);
	/* Pairs with the acquire load at the top of each lcore's loop. */
	atomic_store_explicit(&rt->view, v, memory_order_release);
	if (atomic_load_explicit(&rt->running, memory_order_relaxed))
		wait_for_lcores(rt);
	else /* no lcore polls: this thread acts for them, see call_lcore() */
		for (uint32_t i = 0; i < rt->n_lcores; i++)
			rt->lcore[i]->view = v;
	kvr_view_free(old);
	rt->control.view = v;
	return 0;
}
