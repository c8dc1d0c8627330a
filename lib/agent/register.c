/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent_pvt.h"

#include "kvr_epoch.h"
#include "kvr_refusal.h"

#include <rte_common.h>

static void report_state(struct kvr_agent *a, enum kvr_agent_state state, uint32_t bookings,
			 uint16_t reject, const char *text)
{
	if (a->status.state == state && a->status.bookings == bookings &&
	    a->status.reject == reject)
		return;
	a->status = (struct kvr_agent_status){
		.state = state, .bookings = bookings, .reject = reject, .text = text};
	if (a->conf.ops->on_state != NULL)
		a->conf.ops->on_state(a, &a->status, a->conf.user);
	a->status.text = "";
}

/* Send heartbeats: as many frames as the loads of all ranks need. */
static void send_heartbeat(struct kvr_agent *a)
{
	const uint32_t fit = (a->frame_bytes - KVR_WIRE_MIN_FRAME - 8) /
			     (uint32_t)sizeof(struct kvr_wire_rank_load);
	struct kvr_wire_rank_load load[KVR_WIRE_MAX_FRAME / sizeof(struct kvr_wire_rank_load)];

	for (uint32_t i = 0; i < a->conf.dp_size; i += fit) {
		const uint32_t n = RTE_MIN(fit, a->conf.dp_size - i);
		const struct kvr_wire_ids ids = kvr_link_ids(&a->link, a->conf.worker, 0, 0);
		uint8_t *f = kvr_link_frame(&a->link);

		for (uint32_t k = 0; k < n; k++) {
			load[k] = a->rank[i + k].load;
			load[k].next_event_id = a->rank[i + k].next_id;
			load[k].active_requests =
				RTE_MAX(load[k].active_requests, a->rank[i + k].running);
		}
		kvr_link_queue(&a->link, &a->router,
			       kvr_put_heartbeat(f, KVR_WIRE_MAX_FRAME, &ids, load, n,
						 a->drain ? KVR_BEAT_F_DRAIN : 0, a->drain_no));
	}
	a->stats.heartbeats++;
	kvr_timer_set(&a->link.timers, &a->timer, a->link.now_us + a->heartbeat_ms * 1000ull);
}

static void send_goodbye(struct kvr_agent *a)
{
	if (a->tries++ == AGENT_GOODBYE_TRIES) {
		kvr_agent__on_goodbye_ack(a);
		return;
	}
	kvr_link_send(&a->link, &a->router, KVR_GOODBYE,
		      kvr_link_ids(&a->link, a->conf.worker, 0, 0), NULL, 0);
	kvr_link_repeat(&a->link, &a->timer, &a->backoff_us, AGENT_GOODBYE_MAX_US, KVR_TIMER_NEVER);
}

void kvr_agent__register_timer(struct kvr_agent *a)
{
	if (a->status.state == KVR_AGENT_GONE)
		return;
	if (a->leaving) {
		send_goodbye(a);
	} else if (!a->registered) {
		kvr_agent__send_hello(a);
	} else if (a->dead_ms != 0 && a->link.now_us - a->received_us >= a->dead_ms * 1000ull) {
		kvr_agent__restart_hello(a);
		report_state(a, KVR_AGENT_OFFLINE, 0, 0, "the router does not answer");
	} else {
		send_heartbeat(a);
	}
}

/* The router's frame limit determines the blocks per event. */
static void adopt_frame(struct kvr_agent *a, uint32_t router_max)
{
	const uint32_t old = a->frame_bytes;

	a->frame_bytes = RTE_MIN(a->conf.frame_bytes, router_max);
	for (uint32_t i = 0; a->frame_bytes < old && i < a->conf.dp_size; i++)
		if (a->rank[i].first.at != a->rank[i].end)
			a->rank[i].overrun = true; /* events may not fit any more: dump instead */
}

static bool begin_incarnation(struct kvr_agent *a, uint64_t last);

/*
 * A router that another one had replaced answers: its address was given back, or both have it. It
 * believes that its requests run here, which were ended, so a new incarnation must begin. At most
 * once a second, because two routers that both answer would alternate.
 */
static void handle_former_router(struct kvr_agent *a, uint32_t epoch)
{
	if (a->back_us != 0 && a->link.now_us - a->back_us < AGENT_AGAIN_US)
		return; /* HELLO is retransmitted */
	a->back_us = a->link.now_us;
	for (uint32_t i = 0; i < RTE_MIN(a->n_former, AGENT_FORMER); i++)
		if (a->former[i] == epoch)
			a->former[i] = a->router_epoch;
	a->router_epoch = epoch;
	a->stats.routers_returned++;
	kvr_agent__forget_others(a, epoch);
	begin_incarnation(a, a->link.conf.epoch);
}

void kvr_agent__on_welcome(struct kvr_agent *a, const struct kvr_wire_hdr *h, const uint8_t *body)
{
	const struct kvr_wire_welcome *w = (const void *)body;
	const bool warm = (w->flags & KVR_WELCOME_F_WARM) != 0;
	const bool new_epoch =
		a->new_incarnation || (a->router_epoch != 0 && a->router_epoch != h->epoch);
	/* The events that a warm router kept come from an earlier process. */
	const bool first = a->router_epoch == 0;

	if (a->registered || a->leaving)
		return; /* a late copy */
	if (h->id != a->hello_ids.id) {
		a->stats.frames_foreign++; /* answers a previous HELLO, perhaps of a previous epoch
					    */
		return;
	}
	if (kvr_agent__is_former(a, h->epoch)) {
		handle_former_router(a, h->epoch);
		return;
	}
	if (a->router_epoch != 0 && a->router_epoch != h->epoch) {
		a->former[a->n_former++ % AGENT_FORMER] = a->router_epoch;
		a->stats.router_epochs++;
	}
	a->registered = true;
	a->new_incarnation = false;
	a->router_epoch = h->epoch;
	a->heartbeat_ms = w->heartbeat_ms;
	a->dead_ms = w->dead_ms;
	a->received_us = a->link.now_us;
	adopt_frame(a, w->max_frame);
	if (new_epoch)
		kvr_agent__forget_others(a, h->epoch);
	report_state(a, KVR_AGENT_JOINING, 0, 0, "");
	for (uint32_t i = 0; i < a->conf.dp_size; i++) {
		struct agent_rank *k = &a->rank[i];

		/* The router does not know events sent to its predecessor, or a partial dump, whose
		 * frames may also be too large. */
		if (new_epoch && k->dumping)
			k->overrun = true;
		if (warm ? first : new_epoch && k->next_id > 0)
			k->overrun = true;
		k->confirmed = 0; /* it may have forgotten the worker meanwhile */
		k->to_send = k->acked;
		kvr_agent__kv_kick(a, k);
	}
	send_heartbeat(a);
}

void kvr_agent__on_heartbeat_ack(struct kvr_agent *a, const struct kvr_wire_hdr *h,
				 const uint8_t *body)
{
	const struct kvr_wire_heartbeat_ack *w = (const void *)body;
	enum kvr_agent_state state = (enum kvr_agent_state)w->state;

	if (!a->registered || a->leaving)
		return;
	if (h->epoch != a->router_epoch) {
		a->stats.router_epochs++;
		kvr_agent__restart_hello(a);
		return;
	}
	a->received_us = a->link.now_us;
	if (state == KVR_AGENT_DRAINED && a->adrift > 0)
		state = KVR_AGENT_DRAINING; /* the router does not know requests on the direct path
					     */
	report_state(a, state, w->bookings, 0, "");
}

/*
 * The router declared this incarnation dead and ended its requests. Start a new incarnation with an
 * epoch above the router's last; its events start with a dump.
 */
static bool begin_incarnation(struct kvr_agent *a, uint64_t last)
{
	const uint32_t epoch = kvr_epoch_above(a->link.conf.epoch, last);

	if (epoch == 0)
		return false; /* the epochs are used up: an operator must intervene */
	a->link.conf.epoch = epoch;
	a->new_incarnation = true;
	/* Kept as ended: a late copy of a DISPATCH to the previous incarnation must not run. */
	kvr_agent__end_all(a, KVR_E_UNKNOWN_REQUEST);
	kvr_agent__new_hello(a);
	a->backoff_us = AGENT_HELLO_US;
	kvr_agent__send_hello(a);
	return true;
}

/* HELLO was rejected: report the reason. Temporary rejections are retried at the normal
 * interval. */
static void handle_hello_rejection(struct kvr_agent *a, enum kvr_refusal what,
				   const struct kvr_wire_rejected *w, const char *text)
{
	if (w->code == KVR_E_STALE_EPOCH && begin_incarnation(a, w->detail[0]))
		return;
	if (what == KVR_REFUSAL_SLOW) {
		a->backoff_us = AGENT_HELLO_US; /* retry at a long interval */
		kvr_timer_set(&a->link.timers, &a->timer, a->link.now_us + AGENT_REFUSED_US);
	}
	report_state(a, KVR_AGENT_OFFLINE, 0, w->code, text);
}

/* The router shuts down and ends all requests. Send HELLO until a router answers. */
static void handle_shutdown(struct kvr_agent *a, uint16_t code, const char *text)
{
	a->registered = false;
	kvr_agent__end_all(a, code);
	kvr_agent__new_hello(a);
	a->backoff_us = 2 * AGENT_HELLO_US;
	kvr_timer_set(&a->link.timers, &a->timer, a->link.now_us + AGENT_HELLO_US);
	report_state(a, KVR_AGENT_OFFLINE, 0, code, text);
}

void kvr_agent__on_rejected(struct kvr_agent *a, const struct kvr_wire_hdr *h, const uint8_t *body)
{
	const struct kvr_wire_rejected *w = (const void *)body;
	const enum kvr_refusal what = kvr_refusal(w->kind, w->code, w->retryable != 0);
	const bool registered = a->registered;
	char text[256];

	memcpy(text, w + 1, w->text_len); /* at most 255, checked */
	text[w->text_len] = '\0';
	if (a->leaving) {
		if (w->kind == KVR_GOODBYE && what == KVR_REFUSAL_DONE)
			kvr_agent__on_goodbye_ack(a);
	} else if (w->kind == KVR_HELLO && !registered) {
		if (h->id == a->hello_ids.id)
			handle_hello_rejection(a, what, w, text);
		else
			a->stats.frames_foreign++;
	} else if (what == KVR_REFUSAL_OVER) {
		if (registered && h->epoch == a->router_epoch)
			handle_shutdown(a, w->code, text);
	} else if (what == KVR_REFUSAL_HELLO && registered) {
		kvr_agent__restart_hello(a);
		if (w->code != KVR_E_UNKNOWN_WORKER) /* no more than a restart */
			report_state(a, KVR_AGENT_OFFLINE, 0, w->code, text);
	}
}

void kvr_agent__on_goodbye_ack(struct kvr_agent *a)
{
	if (!a->leaving || a->status.state == KVR_AGENT_GONE)
		return;
	kvr_timer_stop(&a->link.timers, &a->timer);
	report_state(a, KVR_AGENT_GONE, 0, 0, "");
}

void kvr_agent_drain(struct kvr_agent *a, bool on)
{
	a->drain = on;
	a->drain_no = a->drain_no == UINT16_MAX ? 1 : a->drain_no + 1; /* 0: none yet */
	kvr_link_tick(&a->link);
	if (a->registered && !a->leaving)
		send_heartbeat(a);
}

int kvr_agent_goodbye(struct kvr_agent *a)
{
	if (a->leaving)
		return 0;
	kvr_link_tick(&a->link);
	a->leaving = true;
	a->tries = 0;
	a->backoff_us = AGENT_GOODBYE_US;
	send_goodbye(a);
	return 0;
}
