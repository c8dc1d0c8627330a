/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reports of live requests, which renew their bookings at the router while the engine sends
 * nothing. The list is ordered by last report, so only its head is examined.
 */
#include "agent_pvt.h"

static bool is_alive(const struct kvr_agent *a, const struct agent_req *r)
{
	return r->state == AGENT_RUNNING && !r->aborted && !r->prog_done &&
	       r->epoch == a->router_epoch;
}

/* Return true if the first request of the list is due within @p early_us. */
static bool is_due(const struct kvr_agent *a, uint64_t early_us)
{
	const struct agent_req *r = TAILQ_FIRST(&a->live);

	return r != NULL && r->reported_us + AGENT_ALIVE_US <= a->link.now_us + early_us;
}

/* Send one frame. @return true if more requests are due. */
static bool send_report(struct kvr_agent *a)
{
	const struct kvr_wire_ids ids = kvr_link_ids(&a->link, a->conf.worker, 0, 0);
	uint64_t handle[KVR_WIRE_ALIVE_MOST];
	uint32_t n = 0;

	for (uint32_t i = 0; i < KVR_WIRE_ALIVE_MOST && is_due(a, AGENT_ALIVE_EARLY_US); i++) {
		struct agent_req *r = TAILQ_FIRST(&a->live);

		TAILQ_REMOVE(&a->live, r, order);
		TAILQ_INSERT_TAIL(&a->live, r, order);
		r->reported_us = a->link.now_us;
		if (is_alive(a, r))
			handle[n++] = r->handle;
	}
	if (n > 0) {
		kvr_link_queue(&a->link, &a->router,
			       kvr_put_alive(kvr_link_frame(&a->link), KVR_WIRE_MAX_FRAME, &ids,
					     handle, n));
		a->stats.reports += n;
	}
	return is_due(a, AGENT_ALIVE_EARLY_US);
}

void kvr_agent__alive_start(struct kvr_agent *a)
{
	if (!kvr_timer_running(&a->alive) && !TAILQ_EMPTY(&a->live))
		kvr_timer_set(&a->link.timers, &a->alive,
			      TAILQ_FIRST(&a->live)->reported_us + AGENT_ALIVE_US);
}

void kvr_agent__alive_timer(struct kvr_agent *a)
{
	bool more = is_due(a, AGENT_ALIVE_EARLY_US);

	if (more && (!a->registered || a->leaving)) {
		kvr_timer_set(&a->link.timers, &a->alive, a->link.now_us + AGENT_ALIVE_WAIT_US);
		return;
	}
	for (uint32_t i = 0; i < AGENT_ALIVE_FRAMES && more; i++)
		more = send_report(a);
	if (more)
		kvr_timer_set(&a->link.timers, &a->alive, a->link.now_us + AGENT_PACE_US);
	else
		kvr_agent__alive_start(a);
}
