/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control thread: workers come and go, clients learn the pools, time passes. It owns the
 * registry; it changes what packet lcores own only by calling them (call_lcore()) and by publishing
 * views. It sleeps between rounds and never touches a packet of the data path.
 */
#include "control_pvt.h"
#include "session.h"
#include "stages.h"

#include <errno.h>
#include <time.h>

#include <rte_cycles.h>

#include "kvr_ctl.h"

#define ROUND_NS     1000000 /* 1 ms */
#define TICK_NS	     UINT64_C(10000000)
#define FRAMES_ROUND 256u

/* ---- calling packet lcores ---- */

void call_lcore(struct router *rt, struct lcore *lc, void (*fn)(struct lcore *, void *), void *arg)
{
	struct call c = {.fn = fn, .arg = arg};

	atomic_init(&c.done, 0);
	if (!atomic_load_explicit(&rt->running, memory_order_relaxed)) {
		fn(lc, arg); /* nobody polls: before the start and after the stop */
		return;
	}
	while (rte_ring_sp_enqueue(lc->calls, &c) != 0)
		rte_delay_us_sleep(10);
	/* Pairs with the release store in calls_poll(): the callee's writes are visible. */
	while (atomic_load_explicit(&c.done, memory_order_acquire) == 0)
		rte_delay_us_sleep(10);
}

/* ---- views ---- */

int publish_view(struct router *rt)
{
	struct kvr_view *v = kvr_view_build(rt->registry), *old;

	if (v == NULL)
		return -ENOMEM;
	old = atomic_load_explicit(&rt->view, memory_order_relaxed);
	/* Pairs with the acquire load at the top of each lcore's loop. */
	atomic_store_explicit(&rt->view, v, memory_order_release);
	if (atomic_load_explicit(&rt->running, memory_order_relaxed))
		rte_rcu_qsbr_synchronize(rt->qsbr, RTE_QSBR_THRID_INVALID);
	else /* nobody polls: this thread plays the lcores, see call_lcore() */
		for (uint32_t i = 0; i < rt->n_lcores; i++)
			rt->lcore[i]->view = v;
	kvr_view_free(old);
	rt->control.view = v;
	return 0;
}
/* ---- time ---- */

static void tick(struct router *rt)
{
	workers_tick(rt);
	for (uint32_t i = 0; i < rt->n_pools; i++) {
		const struct note n = {.type = NOTE_TICK};

		/* A full ring only delays expiry to the next tick. */
		rte_ring_enqueue_elem(rt->pool[i].notes, (void *)(uintptr_t)&n, sizeof(n));
	}
}

void control_round(struct router *rt)
{
	struct rte_mbuf *m[FRAMES_ROUND];
	unsigned int n;

	kvr_ctl_lock();
	rt->control.now_ns = now_ns(rt);
	n = rte_ring_sc_dequeue_burst(rt->control_ring, (void **)m, FRAMES_ROUND, NULL);
	for (unsigned int i = 0; i < n; i++)
		control_frame(rt, m[i]);
	if (rt->control.now_ns - rt->last_tick_ns >= TICK_NS) {
		rt->last_tick_ns = rt->control.now_ns;
		tick(rt);
	}
	session_round(rt);
	kvr_ctl_unlock();
}

void control_run(struct router *rt)
{
	const struct timespec pause = {.tv_nsec = ROUND_NS};

	while (!atomic_load_explicit(&rt->quit, memory_order_relaxed)) {
		control_round(rt);
		nanosleep(&pause, NULL);
	}
}
