/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sleep and wake-up of packet lcores and of control: the only file of the packet path that calls
 * the kernel. See idle.h.
 */
#include "lcore/idle.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "state/router.h"

int idle_init(struct idle *idle, int mode)
{
	idle->mode = mode;
	idle->fd = -1;
	if (mode == IDLE_POLL)
		return 0;
	idle->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return idle->fd < 0 ? -errno : 0;
}

void idle_fini(struct idle *idle)
{
	if (idle->mode != IDLE_POLL && idle->fd >= 0)
		close(idle->fd);
	idle->fd = -1;
	idle->mode = IDLE_POLL;
}

void idle_begin(struct idle *idle)
{
	idle->slack = (struct kvr_timer_slack){0};
	if (idle->mode != IDLE_POLL)
		kvr_timer_slack_set(&idle->slack, KVR_TIMER_SLACK_LEAST_NS);
}

/* Waker and sleeper each write, fence and then read. The two fences pair with each other. */
void idle_wake(struct idle *idle)
{
	const uint64_t one = 1;

	if (idle->mode == IDLE_POLL)
		return;
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&idle->asleep, memory_order_relaxed) != 0)
		(void)!write(idle->fd, &one, sizeof(one)); /* full: a wake-up is pending already */
}

static void wake_others(struct lcore *lc)
{
	struct router *rt = lc->rt;

	atomic_thread_fence(memory_order_seq_cst); /* as in idle_wake() */
	for (uint32_t i = 0; i < rt->n_lcores; i++) {
		struct lcore *other = rt->lcore[i];

		if (other != lc &&
		    atomic_load_explicit(&other->idle.asleep, memory_order_relaxed) != 0 &&
		    lcore_given(other))
			idle_wake(&other->idle);
	}
	if (atomic_load_explicit(&rt->control.idle.asleep, memory_order_relaxed) != 0 &&
	    !rte_ring_empty(rt->control_ring))
		idle_wake(&rt->control.idle);
}

/* Arm the devices of @p lc to wake it, from fds[*n] on. @return longest sleep; 0: frames are
 * waiting. */
static uint64_t arm_devices(struct lcore *lc, struct pollfd fds[], uint32_t *n)
{
	uint64_t most = lcore_timers(lc) ? IDLE_SLEEP_NS : IDLE_WOKEN_NS;
	int rc, fd;

	for (uint32_t i = 0; i < lc->rt->n_ports && lc->queue[i] != NULL && most > 0; i++) {
		rc = kvr_port_wait_arm(lc->queue[i], &fd);
		if (rc == -EAGAIN)
			most = 0;
		else if (rc < 0)
			most = RTE_MIN(most, IDLE_LEAST_NS);
		else if (fd >= 0)
			fds[(*n)++] = (struct pollfd){.fd = fd, .events = POLLIN};
	}
	return most;
}

static void disarm_devices(struct lcore *lc)
{
	for (uint32_t i = 0; i < lc->rt->n_ports && lc->queue[i] != NULL; i++)
		kvr_port_wait_disarm(lc->queue[i]);
}

/* fds[0] is the eventfd. */
static void wait_for(struct idle *idle, struct pollfd fds[], uint32_t n, uint64_t ns)
{
	const struct timespec t = {.tv_sec = (time_t)(ns / 1000000000),
				   .tv_nsec = (long)(ns % 1000000000)};
	socklen_t len = sizeof(int);
	uint64_t count;
	int error;

	if (ppoll(fds, n, &t, NULL) <= 0)
		return;
	if ((fds[0].revents & POLLIN) != 0)
		(void)!read(idle->fd, &count, sizeof(count));
	for (uint32_t i = 1; i < n; i++) /* an interface that is down stays readable until read */
		if ((fds[i].revents & POLLERR) != 0)
			(void)getsockopt(fds[i].fd, SOL_SOCKET, SO_ERROR, &error, &len);
}

void idle_after_turn(struct lcore *lc)
{
	struct pollfd fds[1 + KVR_ROUTER_MAX_PORTS] = {{.fd = lc->idle.fd, .events = POLLIN}};
	const bool interrupt = lc->idle.mode == IDLE_INTERRUPT;
	const uint64_t done = lcore_done(lc);
	const bool worked = done != lc->idle.done;
	uint32_t n = 1;
	uint64_t ns;

	lc->idle.done = done;
	wake_others(lc); /* a call, a retransmission or a timer may have created work for other
			    lcores */
	ns = idle_turn(&lc->idle, worked || lcore_goes_on(lc), IDLE_SLEEP_NS);
	if (ns == 0)
		return;
	if (interrupt)
		ns = arm_devices(lc, fds, &n);
	rte_rcu_qsbr_thread_offline(lc->rt->qsbr, lc->qsbr_id);
	atomic_store_explicit(&lc->idle.asleep, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst); /* as in idle_wake() */
	if (ns > 0 && !lcore_given(lc) &&
	    !atomic_load_explicit(&lc->rt->stop, memory_order_relaxed)) {
		/* Frequent wake-ups need exact timers. */
		kvr_timer_slack_set(&lc->idle.slack, interrupt && ns >= IDLE_SLEEP_NS
							     ? KVR_TIMER_SLACK_TICK_NS
							     : KVR_TIMER_SLACK_LEAST_NS);
		wait_for(&lc->idle, fds, n, ns);
		kvr_cell_add(&lc->turns.sleeps, 1);
	}
	lc->began = 0; /* a sleep is no stall */
	atomic_store_explicit(&lc->idle.asleep, 0, memory_order_relaxed);
	rte_rcu_qsbr_thread_online(lc->rt->qsbr, lc->qsbr_id);
	if (interrupt)
		disarm_devices(lc);
}

void idle_control(struct router *rt, uint64_t ns)
{
	struct idle *idle = &rt->control.idle;
	struct pollfd fds[1] = {{.fd = idle->fd, .events = POLLIN}};

	if (!rte_ring_empty(rt->control.out))
		idle_wake(&rt->control.via->idle);
	atomic_store_explicit(&idle->asleep, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst); /* as in idle_wake() */
	if (rte_ring_empty(rt->control_ring))
		wait_for(idle, fds, 1, ns);
	atomic_store_explicit(&idle->asleep, 0, memory_order_relaxed);
}
