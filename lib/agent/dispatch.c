/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests from the router: DISPATCH runs one, ABORT stops one, and rejections of items end one. A
 * slot per handle makes every message idempotent.
 */
#include "agent_pvt.h"

#include "kvr_message.h"
#include "kvr_reason.h"
#include "kvr_refusal.h"
#include "kvr_sim.h"

#include <stdlib.h>

#include <rte_common.h>

static struct kvr_agent_request view_request(const struct kvr_wire_hdr *h,
					     const struct kvr_message *q)
{
	const struct kvr_wire_request *w = &q->fixed;

	return (struct kvr_agent_request){.handle = h->handle,
					  .source = h->source,
					  .id = h->id,
					  .dp_rank = w->dp_rank,
					  .phase = (enum kvr_role)w->phase,
					  .direct = (w->flags & KVR_REQ_F_DIRECT) != 0,
					  .flags = w->flags,
					  .attempt = w->attempt,
					  .isl = w->isl,
					  .max_tokens = w->max_tokens,
					  .expected_output_tokens = w->expected_output_tokens,
					  .overlap_blocks = w->overlap_blocks,
					  .cached_tokens = w->cached_tokens,
					  .hashes = q->hashes,
					  .n_hashes = w->n_hashes,
					  .tokens = q->tokens,
					  .n_tokens = w->n_tokens,
					  .hints = q->hints,
					  .hints_len = w->hints_len,
					  .body = q->body,
					  .body_len = w->body_len};
}

static enum kvr_role leg_of(const struct kvr_wire_request *w)
{
	return (w->flags & KVR_REQ_F_PREFILL_LEG) != 0	? KVR_ROLE_PREFILL
	       : (w->flags & KVR_REQ_F_DECODE_LEG) != 0 ? KVR_ROLE_DECODE
							: KVR_ROLE_AGGREGATED;
}

static void view_body(const struct kvr_message *q, struct kvr_agent_request *out)
{
	struct kvr_hint_lists lists;
	struct kvr_hints h;

	if ((q->fixed.flags & KVR_REQ_F_AWAY) == 0 ||
	    kvr_hints_parse(q->hints, q->fixed.hints_len, KVR_HINTS_DISPATCH, &h, &lists) != 0 ||
	    !kvr_hints_say_away(&h))
		return;
	out->away = true;
	out->away_len = h.body.len;
	memcpy(out->away_token, h.body.token, sizeof(out->away_token));
}

/* Fill in the legs of a request; @p host receives the bootstrap host as a string. */
static void view_leg(const struct kvr_message *q, struct kvr_agent_request *out,
		     char host[KVR_HINT_MAX_NAME + 1])
{
	struct kvr_hint_lists lists;
	struct kvr_hints h;

	out->leg = leg_of(&q->fixed);
	if (out->leg == KVR_ROLE_AGGREGATED ||
	    kvr_hints_parse(q->hints, q->fixed.hints_len, KVR_HINTS_DISPATCH, &h, &lists) != 0)
		return; /* cannot fail: hints were checked on arrival */
	if ((h.present & KVR_HAS(KVR_HINT_BOOTSTRAP)) != 0) {
		memcpy(host, h.bootstrap.host.p, h.bootstrap.host.len);
		host[h.bootstrap.host.len] = '\0';
		out->bootstrap_host = host;
		out->bootstrap_port = h.bootstrap.port;
		out->bootstrap_room = h.bootstrap.room;
	}
	if (out->leg == KVR_ROLE_DECODE) {
		out->prefill_worker = h.prefill_worker;
		out->prefill_result = h.prefill_result.p;
		out->prefill_result_len = h.prefill_result.len;
		if (q->fixed.result_len > 0) {
			out->prefill_result = q->result;
			out->prefill_result_len = q->fixed.result_len;
		}
	}
}

static void set_path(struct kvr_agent *agent, struct agent_req *req,
		     const struct kvr_wire_request *w)
{
	const uint32_t client = w->client_frame != 0 ? w->client_frame : KVR_WIRE_DEF_FRAME;
	const uint32_t frame = RTE_MIN(agent->frame_bytes, client);

	req->leg = (uint8_t)leg_of(w);
	req->frame_bytes = frame;
	req->item_bytes = frame - KVR_WIRE_MIN_FRAME - (uint32_t)sizeof(struct kvr_wire_response);
	req->item_bytes &= ~7u;
	req->isl = kvr_request_exec_isl(w);
	req->prog_blocks = agent_blocks(agent, req->isl);
	req->direct = (w->flags & KVR_REQ_F_DIRECT) != 0;
	req->unproven = (w->flags & KVR_REQ_F_UNPROVEN) != 0;
	memcpy(req->client.ip, w->client_ip, sizeof(req->client.ip));
	req->client.port = w->client_port;
}

/* Keep the tracking data of the prefill agent for the last item. Without memory they are
 * omitted. */
static void keep_echo(struct agent_req *req, const struct kvr_message *q)
{
	struct kvr_tlv_iter it = kvr_tlv_begin(q->hints, q->fixed.hints_len);
	struct kvr_hint_buf b = {.cap = KVR_WIRE_SAID_MOST};
	struct kvr_tlv t;

	req->track = (q->fixed.flags & KVR_REQ_F_TRACK) != 0;
	req->echo = NULL;
	req->echo_len = 0;
	if (!req->track || req->leg != KVR_ROLE_DECODE)
		return;
	b.p = malloc(b.cap);
	while (b.p != NULL && kvr_tlv_next(&it, &t) > 0)
		if ((t.type == KVR_HINT_PROMPT_DETAILS && t.len <= KVR_HINT_MAX_DETAILS) ||
		    (t.type == KVR_HINT_TRACE_LINK && t.len <= KVR_HINT_MAX_TRACE))
			kvr_hint_put(&b, t.type, t.value, t.len, NULL, 0);
	if (b.err != 0 || b.len == 0) {
		free(b.p);
		return;
	}
	req->echo = b.p;
	req->echo_len = b.len;
}

static void run_request(struct kvr_agent *agent, struct agent_req *req,
			const struct kvr_wire_hdr *h, const struct kvr_message *q)
{
	struct kvr_agent_request request = view_request(h, q);
	char host[KVR_HINT_MAX_NAME + 1];
	int rc;

	kvr_agent__assign_rank(agent, req, q->fixed.dp_rank - agent->conf.dp_start);
	set_path(agent, req, &q->fixed);
	keep_echo(req, q);
	view_leg(q, &request, host);
	view_body(q, &request);
	req->bootstrap = request.bootstrap_host != NULL;
	req->calling = true;
	rc = request.away && !agent->takes_bodies
		     ? (int)KVR_WIRE_NO_BODIES
		     : agent->conf.ops->on_dispatch(agent, &request, agent->conf.user);
	req->calling = false;
	if (rc != 0) {
		agent->stats.refused++;
		req->code = rc > 0 && rc <= UINT16_MAX ? (uint16_t)rc : UINT16_MAX;
		kvr_agent__close_slot(agent, req, false);
		kvr_agent__send_ack(agent, h, req->code);
		return;
	}
	/* The first item on its way through the router is also an acknowledgement. */
	if (!req->direct && req->sent > 0)
		return;
	if (req->direct || agent->conf.ack_us == 0) {
		kvr_agent__send_ack(agent, h, 0);
		return;
	}
	req->ack_waits = true;
	kvr_timer_set(&agent->link.timers, &req->repeat, agent->link.now_us + agent->conf.ack_us);
}

/*
 * Reject, and keep the slot as ended: the router may have moved the request, and a late copy must
 * not run when there is capacity. (Rejections for another worker or rank are permanent, and need no
 * slot.)
 */
static void refuse_full(struct kvr_agent *agent, const struct kvr_wire_hdr *h)
{
	struct agent_req *req = kvr_agent__take_slot(agent, h);

	agent->stats.refused++;
	req->code = AGENT_CODE_FULL;
	kvr_agent__close_slot(agent, req, false);
	kvr_agent__send_ack(agent, h, req->code);
}

void kvr_agent__on_dispatch(struct kvr_agent *agent, const struct kvr_wire_hdr *h,
			    const uint8_t *body, uint32_t len)
{
	struct agent_req *req = kvr_agent__find_request(agent, h->handle);
	struct kvr_message q;

	if (kvr_request_parse(body, len, KVR_DISPATCH, &q) != 0 || h->handle == 0) {
		agent->stats.frames_bad++;
		return;
	}
	if (req != NULL) {
		KVR_SIM_SOMETIMES(AGENT_COPY);
		agent->stats.duplicates++;
		if (!req->calling)
			kvr_agent__send_ack(agent, h, req->code);
		return;
	}
	if (kvr_agent__is_former(agent, h->epoch)) {
		agent->stats.frames_foreign++; /* late: requests of that epoch are forgotten */
		return;
	}
	agent->stats.dispatches++;
	if (q.fixed.worker != agent->conf.worker ||
	    q.fixed.dp_rank - agent->conf.dp_start >= agent->conf.dp_size) {
		agent->stats.refused++;
		kvr_agent__send_ack(agent, h, AGENT_CODE_NOT_OURS);
	} else if (agent->running == agent->conf.max_requests) {
		refuse_full(agent, h);
	} else {
		run_request(agent, kvr_agent__take_slot(agent, h), h, &q);
	}
}

void kvr_agent__dispatch_again(struct kvr_agent *agent, const struct kvr_wire_hdr *h)
{
	const struct agent_req *req = kvr_agent__find_request(agent, h->handle);

	if (req == NULL || req->calling)
		return;
	agent->stats.duplicates++;
	kvr_agent__send_ack(agent, h, req->code);
}

void kvr_agent__on_refused(struct kvr_agent *agent, const struct kvr_wire_hdr *h,
			   const uint8_t *body)
{
	const struct kvr_wire_rejected *w = (const void *)body;
	const enum kvr_refusal what = kvr_refusal(w->kind, w->code, w->retryable != 0);
	struct agent_req *req = kvr_agent__find_request(agent, h->handle);

	/* By handle, because the same request may have started over with another one. */
	if (req == NULL || (req->state != AGENT_RUNNING && req->state != AGENT_ENDING) ||
	    req->source != h->source || req->id != h->id)
		return;
	if (w->code == KVR_E_NO_MEMORY) {
		kvr_agent__renumber_items(agent, req);
	} else if (what == KVR_REFUSAL_HELLO) {
		kvr_agent__restart_hello(agent); /* items are retransmitted meanwhile */
	} else if (what == KVR_REFUSAL_ITEM && !req->direct) {
		kvr_agent__end_undeliverable(agent, req, w->detail[2]);
	} else if (what == KVR_REFUSAL_STOP && req->direct) {
		req->prog_done = true; /* the router needs no report; the client may need items */
		kvr_agent__finish_if_acked(agent, req);
	} else if (what == KVR_REFUSAL_STOP) {
		kvr_agent__report_abort(agent, req, KVR_AGENT_ABORT_ROUTER, w->code);
		kvr_agent__close_slot(agent, req, false);
	}
}

/* Return true if the last item must be suppressed: after a failed prefill the request may continue
 * elsewhere, and the client would take an item of this agent as its end. */
static bool must_suppress_end(const struct agent_req *req, uint16_t code)
{
	return req->leg == KVR_ROLE_DECODE &&
	       (code == KVR_E_PREFILL_FAILED || code == KVR_E_WORKER_LOST);
}

void kvr_agent__on_abort(struct kvr_agent *agent, const struct kvr_wire_hdr *h, const uint8_t *body)
{
	const struct kvr_wire_abort *w = (const void *)body;
	struct agent_req *req = kvr_agent__find_request(agent, h->handle);

	kvr_link_send(&agent->link, &agent->router, KVR_ABORT_ACK,
		      kvr_link_ids(&agent->link, h->source, h->id, h->handle), NULL, 0);
	if (req == NULL && h->handle != 0) {
		/* ABORT overtook DISPATCH, whose copies must not run. */
		req = kvr_agent__take_slot(agent, h);
		req->code = AGENT_CODE_ABORTED;
		kvr_agent__close_slot(agent, req, false);
	}
	if (req == NULL || req->state == AGENT_OVER || req->source != h->source || req->id != h->id)
		return;
	if (must_suppress_end(req, w->code)) {
		kvr_agent__report_abort(agent, req, KVR_AGENT_ABORT_ROUTER, w->code);
		kvr_agent__close_slot(agent, req, false);
		return;
	}
	if (req->state != AGENT_RUNNING)
		return; /* the last item was sent */
	kvr_agent__report_abort(agent, req, KVR_AGENT_ABORT_ROUTER, w->code);
	if (req->state == AGENT_RUNNING &&
	    kvr_agent__end_request(
		    agent, req, KVR_RESP_F_CANCELLED,
		    w->code != KVR_OK ? kvr_code_text(w->code) : "its client cancelled it", 0) < 0)
		kvr_agent__close_slot(agent, req, false); /* no memory */
}
