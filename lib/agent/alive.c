/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reports of live requests, which renew their bookings at the router while the engine sends
 * nothing. The list is ordered by last report, so only its head is examined.
 */
#include "agent_pvt.h"

static bool is_alive(const struct kvr_agent *agent, const struct agent_req *req)
{
	return req->state == AGENT_RUNNING && !req->aborted && !req->prog_done &&
	       req->epoch == agent->router_epoch;
}

/* Return true if the first request of the list is due within @p early_us. */
static bool is_due(const struct kvr_agent *agent, uint64_t early_us)
{
	const struct agent_req *req = TAILQ_FIRST(&agent->live);

	return req != NULL && req->reported_us + AGENT_ALIVE_US <= agent->link.now_us + early_us;
}

/* Send one frame. @return true if more requests are due. */
static bool send_report(struct kvr_agent *agent)
{
	const struct kvr_wire_ids ids = kvr_link_ids(&agent->link, agent->conf.worker, 0, 0);
	uint64_t handle[KVR_WIRE_ALIVE_MOST];
	uint32_t n = 0;

	for (uint32_t i = 0; i < KVR_WIRE_ALIVE_MOST && is_due(agent, AGENT_ALIVE_EARLY_US); i++) {
		struct agent_req *req = TAILQ_FIRST(&agent->live);

		TAILQ_REMOVE(&agent->live, req, order);
		TAILQ_INSERT_TAIL(&agent->live, req, order);
		req->reported_us = agent->link.now_us;
		if (is_alive(agent, req))
			handle[n++] = req->handle;
	}
	if (n > 0) {
		kvr_link_queue(&agent->link, &agent->router,
			       kvr_put_alive(kvr_link_frame(&agent->link), KVR_WIRE_MAX_FRAME, &ids,
					     handle, n));
		agent->stats.reports += n;
	}
	return is_due(agent, AGENT_ALIVE_EARLY_US);
}

void kvr_agent__alive_start(struct kvr_agent *agent)
{
	if (!kvr_timer_running(&agent->alive) && !TAILQ_EMPTY(&agent->live))
		kvr_timer_set(&agent->link.timers, &agent->alive,
			      TAILQ_FIRST(&agent->live)->reported_us + AGENT_ALIVE_US);
}

void kvr_agent__alive_timer(struct kvr_agent *agent)
{
	bool more = is_due(agent, AGENT_ALIVE_EARLY_US);

	if (more && (!agent->registered || agent->leaving)) {
		kvr_timer_set(&agent->link.timers, &agent->alive,
			      agent->link.now_us + AGENT_ALIVE_WAIT_US);
		return;
	}
	for (uint32_t i = 0; i < AGENT_ALIVE_FRAMES && more; i++)
		more = send_report(agent);
	if (more)
		kvr_timer_set(&agent->link.timers, &agent->alive,
			      agent->link.now_us + AGENT_PACE_US);
	else
		kvr_agent__alive_start(agent);
}
