/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registration with the router: WELCOME, heartbeats, rejections, GOODBYE, and the epochs of both
 * sides. A stale epoch starts a new incarnation; a new epoch of the router ends its requests.
 */
#include "agent_pvt.h"

#include "kvr_epoch.h"
#include "kvr_refusal.h"

#include <rte_common.h>

static void report_state(struct kvr_agent *agent, enum kvr_agent_state state, uint32_t bookings,
			 uint16_t reject, const char *text)
{
	if (agent->status.state == state && agent->status.bookings == bookings &&
	    agent->status.reject == reject)
		return;
	agent->status = (struct kvr_agent_status){
		.state = state, .bookings = bookings, .reject = reject, .text = text};
	if (agent->conf.ops->on_state != NULL)
		agent->conf.ops->on_state(agent, &agent->status, agent->conf.user);
	agent->status.text = "";
}

/* Send heartbeats: as many frames as the loads of all ranks need. */
static void send_heartbeat(struct kvr_agent *agent)
{
	const uint32_t fit = (agent->frame_bytes - KVR_WIRE_MIN_FRAME - 8) /
			     (uint32_t)sizeof(struct kvr_wire_rank_load);
	struct kvr_wire_rank_load load[KVR_WIRE_MAX_FRAME / sizeof(struct kvr_wire_rank_load)];

	for (uint32_t i = 0; i < agent->conf.dp_size; i += fit) {
		const uint32_t n = RTE_MIN(fit, agent->conf.dp_size - i);
		const struct kvr_wire_ids ids =
			kvr_link_ids(&agent->link, agent->conf.worker, 0, 0);
		uint8_t *f = kvr_link_frame(&agent->link);

		for (uint32_t k = 0; k < n; k++) {
			load[k] = agent->rank[i + k].load;
			load[k].next_event_id = agent->rank[i + k].next_id;
			load[k].active_requests =
				RTE_MAX(load[k].active_requests, agent->rank[i + k].running);
		}
		kvr_link_queue(&agent->link, &agent->router,
			       kvr_put_heartbeat(f, KVR_WIRE_MAX_FRAME, &ids, load, n,
						 agent->drain ? KVR_BEAT_F_DRAIN : 0,
						 agent->drain_no));
	}
	agent->stats.heartbeats++;
	kvr_timer_set(&agent->link.timers, &agent->timer,
		      agent->link.now_us + agent->heartbeat_ms * 1000ull);
}

static void send_goodbye(struct kvr_agent *agent)
{
	if (agent->tries++ == AGENT_GOODBYE_TRIES) {
		kvr_agent__on_goodbye_ack(agent);
		return;
	}
	kvr_link_send(&agent->link, &agent->router, KVR_GOODBYE,
		      kvr_link_ids(&agent->link, agent->conf.worker, 0, 0), NULL, 0);
	kvr_link_repeat(&agent->link, &agent->timer, &agent->backoff_us, AGENT_GOODBYE_MAX_US,
			KVR_TIMER_NEVER);
}

void kvr_agent__register_timer(struct kvr_agent *agent)
{
	if (agent->status.state == KVR_AGENT_GONE)
		return;
	if (agent->leaving) {
		send_goodbye(agent);
	} else if (!agent->registered) {
		kvr_agent__send_hello(agent);
	} else if (agent->dead_ms != 0 &&
		   agent->link.now_us - agent->received_us >= agent->dead_ms * 1000ull) {
		kvr_agent__restart_hello(agent);
		report_state(agent, KVR_AGENT_OFFLINE, 0, 0, "the router does not answer");
	} else {
		send_heartbeat(agent);
	}
}

/* The router's frame limit determines the blocks per event. */
static void adopt_frame(struct kvr_agent *agent, uint32_t router_max)
{
	const uint32_t old = agent->frame_bytes;

	agent->frame_bytes = RTE_MIN(agent->conf.frame_bytes, router_max);
	for (uint32_t i = 0; agent->frame_bytes < old && i < agent->conf.dp_size; i++)
		if (agent->rank[i].first.at != agent->rank[i].end)
			agent->rank[i].overrun =
				true; /* events may not fit any more: dump instead */
}

static bool begin_incarnation(struct kvr_agent *agent, uint64_t last);

/*
 * A router that another one had replaced answers: its address was given back, or both have it. It
 * believes that its requests run here, which were ended, so a new incarnation must begin. At most
 * once a second, because two routers that both answer would alternate.
 */
static void handle_former_router(struct kvr_agent *agent, uint32_t epoch)
{
	if (agent->back_us != 0 && agent->link.now_us - agent->back_us < AGENT_AGAIN_US)
		return; /* HELLO is retransmitted */
	agent->back_us = agent->link.now_us;
	for (uint32_t i = 0; i < RTE_MIN(agent->n_former, AGENT_FORMER); i++)
		if (agent->former[i] == epoch)
			agent->former[i] = agent->router_epoch;
	agent->router_epoch = epoch;
	agent->stats.routers_returned++;
	kvr_agent__forget_others(agent, epoch);
	begin_incarnation(agent, agent->link.conf.epoch);
}

void kvr_agent__on_welcome(struct kvr_agent *agent, const struct kvr_wire_hdr *h,
			   const uint8_t *body)
{
	const struct kvr_wire_welcome *w = (const void *)body;
	const bool warm = (w->flags & KVR_WELCOME_F_WARM) != 0;
	const bool new_epoch = agent->new_incarnation ||
			       (agent->router_epoch != 0 && agent->router_epoch != h->epoch);
	/* The events that a warm router kept come from an earlier process. */
	const bool first = agent->router_epoch == 0;

	if (agent->registered || agent->leaving)
		return; /* a late copy */
	if (h->id != agent->hello_ids.id) {
		agent->stats
			.frames_foreign++; /* answers a previous HELLO, perhaps of a previous epoch
					    */
		return;
	}
	if (kvr_agent__is_former(agent, h->epoch)) {
		handle_former_router(agent, h->epoch);
		return;
	}
	if (agent->router_epoch != 0 && agent->router_epoch != h->epoch) {
		agent->former[agent->n_former++ % AGENT_FORMER] = agent->router_epoch;
		agent->stats.router_epochs++;
	}
	agent->registered = true;
	agent->new_incarnation = false;
	agent->router_epoch = h->epoch;
	agent->heartbeat_ms = w->heartbeat_ms;
	agent->dead_ms = w->dead_ms;
	agent->received_us = agent->link.now_us;
	adopt_frame(agent, w->max_frame);
	if (new_epoch)
		kvr_agent__forget_others(agent, h->epoch);
	report_state(agent, KVR_AGENT_JOINING, 0, 0, "");
	for (uint32_t i = 0; i < agent->conf.dp_size; i++) {
		struct agent_rank *rank = &agent->rank[i];

		/* The router does not know events sent to its predecessor, or a partial dump, whose
		 * frames may also be too large. */
		if (new_epoch && rank->dumping)
			rank->overrun = true;
		if (warm ? first : new_epoch && rank->next_id > 0)
			rank->overrun = true;
		rank->confirmed = 0; /* it may have forgotten the worker meanwhile */
		rank->to_send = rank->acked;
		kvr_agent__kv_kick(agent, rank);
	}
	send_heartbeat(agent);
}

void kvr_agent__on_heartbeat_ack(struct kvr_agent *agent, const struct kvr_wire_hdr *h,
				 const uint8_t *body)
{
	const struct kvr_wire_heartbeat_ack *w = (const void *)body;
	enum kvr_agent_state state = (enum kvr_agent_state)w->state;

	if (!agent->registered || agent->leaving)
		return;
	if (h->epoch != agent->router_epoch) {
		agent->stats.router_epochs++;
		kvr_agent__restart_hello(agent);
		return;
	}
	agent->received_us = agent->link.now_us;
	if (state == KVR_AGENT_DRAINED && agent->adrift > 0)
		state = KVR_AGENT_DRAINING; /* the router does not know requests on the direct path
					     */
	report_state(agent, state, w->bookings, 0, "");
}

/*
 * The router declared this incarnation dead and ended its requests. Start a new incarnation with an
 * epoch above the router's last; its events start with a dump.
 */
static bool begin_incarnation(struct kvr_agent *agent, uint64_t last)
{
	const uint32_t epoch = kvr_epoch_above(agent->link.conf.epoch, last);

	if (epoch == 0)
		return false; /* the epochs are used up: an operator must intervene */
	agent->link.conf.epoch = epoch;
	agent->new_incarnation = true;
	/* Kept as ended: a late copy of a DISPATCH to the previous incarnation must not run. */
	kvr_agent__end_all(agent, KVR_E_UNKNOWN_REQUEST);
	kvr_agent__new_hello(agent);
	agent->backoff_us = AGENT_HELLO_US;
	kvr_agent__send_hello(agent);
	return true;
}

/* HELLO was rejected: report the reason. Temporary rejections are retried at the normal
 * interval. */
static void handle_hello_rejection(struct kvr_agent *agent, enum kvr_refusal what,
				   const struct kvr_wire_rejected *w, const char *text)
{
	if (w->code == KVR_E_STALE_EPOCH && begin_incarnation(agent, w->detail[0]))
		return;
	if (what == KVR_REFUSAL_SLOW) {
		agent->backoff_us = AGENT_HELLO_US; /* retry at a long interval */
		kvr_timer_set(&agent->link.timers, &agent->timer,
			      agent->link.now_us + AGENT_REFUSED_US);
	}
	report_state(agent, KVR_AGENT_OFFLINE, 0, w->code, text);
}

/* The router shuts down and ends all requests. Send HELLO until a router answers. */
static void handle_shutdown(struct kvr_agent *agent, uint16_t code, const char *text)
{
	agent->registered = false;
	kvr_agent__end_all(agent, code);
	kvr_agent__new_hello(agent);
	agent->backoff_us = 2 * AGENT_HELLO_US;
	kvr_timer_set(&agent->link.timers, &agent->timer, agent->link.now_us + AGENT_HELLO_US);
	report_state(agent, KVR_AGENT_OFFLINE, 0, code, text);
}

void kvr_agent__on_rejected(struct kvr_agent *agent, const struct kvr_wire_hdr *h,
			    const uint8_t *body)
{
	const struct kvr_wire_rejected *w = (const void *)body;
	const enum kvr_refusal what = kvr_refusal(w->kind, w->code, w->retryable != 0);
	const bool registered = agent->registered;
	char text[256];

	memcpy(text, w + 1, w->text_len); /* at most 255, checked */
	text[w->text_len] = '\0';
	if (agent->leaving) {
		if (w->kind == KVR_GOODBYE && what == KVR_REFUSAL_DONE)
			kvr_agent__on_goodbye_ack(agent);
	} else if (w->kind == KVR_HELLO && !registered) {
		if (h->id == agent->hello_ids.id)
			handle_hello_rejection(agent, what, w, text);
		else
			agent->stats.frames_foreign++;
	} else if (what == KVR_REFUSAL_OVER) {
		if (registered && h->epoch == agent->router_epoch)
			handle_shutdown(agent, w->code, text);
	} else if (what == KVR_REFUSAL_HELLO && registered) {
		kvr_agent__restart_hello(agent);
		if (w->code != KVR_E_UNKNOWN_WORKER) /* no more than a restart */
			report_state(agent, KVR_AGENT_OFFLINE, 0, w->code, text);
	}
}

void kvr_agent__on_goodbye_ack(struct kvr_agent *agent)
{
	if (!agent->leaving || agent->status.state == KVR_AGENT_GONE)
		return;
	kvr_timer_stop(&agent->link.timers, &agent->timer);
	report_state(agent, KVR_AGENT_GONE, 0, 0, "");
}

void kvr_agent_drain(struct kvr_agent *agent, bool on)
{
	agent->drain = on;
	agent->drain_no = agent->drain_no == UINT16_MAX ? 1 : agent->drain_no + 1; /* 0: none yet */
	kvr_link_tick(&agent->link);
	if (agent->registered && !agent->leaving)
		send_heartbeat(agent);
}

int kvr_agent_goodbye(struct kvr_agent *agent)
{
	if (agent->leaving)
		return 0;
	kvr_link_tick(&agent->link);
	agent->leaving = true;
	agent->tries = 0;
	agent->backoff_us = AGENT_GOODBYE_US;
	send_goodbye(agent);
	return 0;
}
