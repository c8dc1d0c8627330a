/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Creation of an agent, dispatch of received messages to its state machines, and simple accessors.
 */
#include "agent_pvt.h"

#include "kvr_epoch.h"
#include "kvr_errno.h"
#include "kvr_hints.h"
#include <assert.h>
#include <stdlib.h>

#include <rte_common.h>

#define AGENT_MAX_REQUESTS (1u << 18)
#define AGENT_MAX_RANKS	   4096u
#define AGENT_LEAST_RING   65536u

static_assert((int)KVR_AGENT_JOINING == (int)KVR_WORKER_JOINING &&
		      (int)KVR_AGENT_DRAINED == (int)KVR_WORKER_DRAINED &&
		      (int)KVR_AGENT_GONE == (int)KVR_WORKER_GONE,
	      "states come from the wire as they are");
static_assert(KVR_AGENT_LAST == KVR_RESP_F_FIN && KVR_AGENT_ERROR == KVR_RESP_F_ERROR &&
		      KVR_AGENT_TOKENS == KVR_RESP_F_TOKENS &&
		      KVR_AGENT_FAILED == KVR_RESP_F_FAILED &&
		      KVR_AGENT_REFUSED == KVR_RESP_F_REFUSED,
	      "item flags go to the wire as they are");

static bool wants_frame(void *user, const struct kvr_udp_addr *from, const struct kvr_wire_hdr *h)
{
	const struct kvr_agent *agent = user;

	/* Clients acknowledge items of the direct path; everything else comes from the router. */
	return h->kind == KVR_RESPONSE_ACK || h->kind == KVR_MISSING ||
	       kvr_udp_addr_equal(from, &agent->router);
}

/* Handle messages about the worker. Others are about requests, and have a client as source. */
static void handle_worker_message(struct kvr_agent *agent, const struct kvr_wire_hdr *h,
				  const uint8_t *body)
{
	if (h->source != agent->conf.worker) {
		agent->stats.frames_foreign++;
		return;
	}
	switch (h->kind) {
	case KVR_WELCOME:
		kvr_agent__on_welcome(agent, h, body);
		break;
	case KVR_HEARTBEAT_ACK:
		kvr_agent__on_heartbeat_ack(agent, h, body);
		break;
	case KVR_KV_ACK:
		kvr_agent__on_kv_ack(agent, h, body);
		break;
	case KVR_GOODBYE_ACK:
		kvr_agent__on_goodbye_ack(agent);
		break;
	case KVR_SESSION_OPEN:
	case KVR_SESSION_CLOSE:
		kvr_agent__on_session(agent, h, body);
		break;
	default:
		break;
	}
}

static void on_rejected(struct kvr_agent *agent, const struct kvr_wire_hdr *h, const uint8_t *body)
{
	const uint8_t kind = ((const struct kvr_wire_rejected *)body)->kind;

	if (kind == KVR_RESPONSE || kind == KVR_PROGRESS)
		kvr_agent__on_refused(agent, h, body);
	else if (h->source == agent->conf.worker)
		kvr_agent__on_rejected(agent, h, body);
	else
		agent->stats.frames_foreign++;
}

static void on_message(void *user, const struct kvr_udp_addr *from, const struct kvr_wire_hdr *h,
		       const uint8_t *body, uint32_t len)
{
	struct kvr_agent *agent = user;

	switch (h->kind) {
	case KVR_DISPATCH:
		kvr_agent__on_dispatch(agent, h, body, len);
		break;
	case KVR_RESPONSE_ACK:
		kvr_agent__on_response_ack(agent, from, h, body);
		break;
	case KVR_MISSING:
		kvr_agent__on_missing(agent, from, h, body);
		break;
	case KVR_PROGRESS_ACK:
		kvr_agent__on_progress_ack(agent, h, body);
		break;
	case KVR_ABORT:
		kvr_agent__on_abort(agent, h, body);
		break;
	case KVR_REJECTED:
		on_rejected(agent, h, body);
		break;
	default:
		handle_worker_message(agent, h, body);
	}
}

static void on_timer(void *user, struct kvr_timer *t)
{
	struct kvr_agent *agent = user;

	if (t->kind == AGENT_T_REGISTER)
		kvr_agent__register_timer(agent);
	else if (t->kind == AGENT_T_REPEAT)
		kvr_agent__retransmit(agent, container_of(t, struct agent_req, repeat));
	else if (t->kind == AGENT_T_ALIVE)
		kvr_agent__alive_timer(agent);
	else
		kvr_agent__kv_timer(agent, container_of(t, struct agent_rank, timer));
}

/* The first fragment of a DISPATCH copy is enough to answer it. */
static bool on_repeated_fragment(void *user, const struct kvr_wire_hdr *h)
{
	if (h->kind == KVR_DISPATCH)
		kvr_agent__dispatch_again(user, h);
	return false;
}

static const struct kvr_link_user link_user = {.wants = wants_frame,
					       .message = on_message,
					       .again = on_repeated_fragment,
					       .timer = on_timer};

static int fill_defaults(struct kvr_agent_conf *c)
{
	c->dp_size = c->dp_size != 0 ? c->dp_size : 1;
	c->frame_bytes = c->frame_bytes != 0 ? c->frame_bytes : KVR_WIRE_DEF_FRAME;
	c->receive_bytes = c->receive_bytes != 0 ? c->receive_bytes : KVR_WIRE_MAX_FRAME;
	c->max_requests = c->max_requests != 0 ? c->max_requests : 4096;
	c->request_bytes = c->request_bytes != 0 ? c->request_bytes : 4u << 20;
	c->assembly_bytes = c->assembly_bytes != 0 ? c->assembly_bytes : 64u << 20;
	c->kv_ring_bytes = c->kv_ring_bytes != 0 ? c->kv_ring_bytes : 2u << 20;
	if (c->worker == 0 || c->pool == NULL || c->pool[0] == '\0' || c->block_size == 0 ||
	    c->ops == NULL || c->ops->on_dispatch == NULL || c->dp_size > AGENT_MAX_RANKS ||
	    c->dp_size > UINT32_MAX - c->dp_start || (unsigned int)c->role > KVR_ROLE_DECODE ||
	    c->frame_bytes < KVR_WIRE_LEAST_MAX_FRAME || c->frame_bytes > KVR_WIRE_MAX_FRAME ||
	    c->receive_bytes < KVR_WIRE_LEAST_MAX_FRAME || c->receive_bytes > KVR_WIRE_MAX_FRAME ||
	    c->max_requests > AGENT_MAX_REQUESTS || c->kv_ring_bytes < AGENT_LEAST_RING ||
	    c->ack_us > AGENT_ACK_MOST_US)
		return -EINVAL;
	return 0;
}

static int init_requests(struct kvr_agent *agent)
{
	uint32_t buckets;

	agent->n_req = agent->conf.max_requests + AGENT_OVER_KEPT;
	buckets = rte_align32pow2(agent->n_req);
	TAILQ_INIT(&agent->free);
	TAILQ_INIT(&agent->over);
	TAILQ_INIT(&agent->live);
	agent->alive.kind = AGENT_T_ALIVE;
	agent->req = malloc(agent->n_req *
			    sizeof(*agent->req)); /* a slot is initialised when it is first used */
	agent->bucket = calloc(buckets, sizeof(*agent->bucket));
	if (agent->req == NULL || agent->bucket == NULL)
		return -ENOMEM;
	agent->bucket_mask = buckets - 1;
	return 0;
}

static int init_ranks(struct kvr_agent *agent)
{
	agent->rank = calloc(agent->conf.dp_size, sizeof(*agent->rank));
	if (agent->rank == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < agent->conf.dp_size; i++) {
		struct agent_rank *rank = &agent->rank[i];

		rank->dp_rank = agent->conf.dp_start + i;
		rank->timer.kind = AGENT_T_KV;
		rank->gap_id = rank->back_id = UINT64_MAX;
		rank->backoff_us = AGENT_KV_REPEAT_US;
		/* Distinct from the dumps of a previous process with the same epoch. */
		rank->dump_id = AGENT_DUMP_ID + (kvr_link_random(&agent->link.udp) >> 12);
		rank->load = (struct kvr_wire_rank_load){.dp_rank = rank->dp_rank,
							 .kv_used_blocks = UINT64_MAX};
	}
	return 0;
}

static int init_link(struct kvr_agent *agent, const struct kvr_udp *udp)
{
	struct kvr_link_conf lc = {.role = KVR_ROLE_BIT_AGENT,
				   .epoch = agent->conf.epoch != 0 ? agent->conf.epoch
								   : kvr_epoch_of_clock(),
				   .timers = agent->n_req + agent->conf.dp_size + 2,
				   .assembly_bytes = agent->conf.assembly_bytes,
				   .seed = kvr_link_random(udp),
				   .ops = &link_user,
				   .user = agent};
	int rc;

	rc = kvr_link_init(&agent->link, udp, &lc);
	if (rc < 0)
		return rc;
	agent->frame_bytes = agent->conf.frame_bytes;
	agent->boot = kvr_link_random(udp);
	agent->backoff_us = AGENT_HELLO_US;
	agent->hello_no = kvr_link_random(udp);
	kvr_agent__new_hello(agent);
	agent->timer.kind = AGENT_T_REGISTER;
	kvr_timer_set(&agent->link.timers, &agent->timer, kvr_link_tick(&agent->link));
	return 0;
}

struct kvr_agent *kvr_agent__create_on(const struct kvr_agent_conf *conf,
				       const struct kvr_udp_addr *router, const struct kvr_udp *udp)
{
	struct kvr_agent *agent = calloc(1, sizeof(*agent));
	struct kvr_udp u = *udp;
	int rc;

	if (agent == NULL) {
		kvr_udp_close(&u);
		return kvr_null(ENOMEM);
	}
	agent->conf = *conf;
	agent->router = *router;
	agent->status.text = "";
	agent->link.udp = u; /* so that every error path closes it */
	rc = fill_defaults(&agent->conf);
	if (rc == 0)
		rc = kvr_agent__build_hello(agent, conf);
	if (rc == 0)
		rc = init_requests(agent);
	if (rc == 0)
		rc = init_ranks(agent);
	if (rc == 0)
		rc = init_link(agent, &u);
	if (rc < 0) {
		kvr_agent_destroy(agent);
		return kvr_null(-rc);
	}
	return agent;
}

struct kvr_agent *kvr_agent_create(const struct kvr_agent_conf *conf)
{
	struct kvr_udp_addr router;
	struct kvr_udp udp;
	int rc;

	rc = kvr_link_open(conf->router, conf->port, conf->bind, &router, &udp);
	if (rc < 0)
		return kvr_null(-rc);
	return kvr_agent__create_on(conf, &router, &udp);
}

void kvr_agent_destroy(struct kvr_agent *agent)
{
	if (agent == NULL)
		return;
	for (uint32_t i = 0; i < agent->n_used; i++) {
		struct agent_req *req = &agent->req[i];

		if (req->state == AGENT_RUNNING || req->state == AGENT_ENDING) {
			kvr_agent__report_abort(agent, req, KVR_AGENT_ABORT_CLOSED, 0);
			kvr_agent__drop_items(req);
			free(req->echo);
		}
	}
	for (uint32_t i = 0; agent->rank != NULL && i < agent->conf.dp_size; i++) {
		free(agent->rank[i].ring);
		kvr_agent__dump_drop(&agent->rank[i]);
	}
	kvr_link_fini(&agent->link);
	free(agent->answer);
	free(agent->rank);
	free(agent->bucket);
	free(agent->req);
	free(agent->hello);
	free(agent);
}

int kvr_agent_fd(const struct kvr_agent *agent)
{
	return agent->link.udp.io->fd(agent->link.udp.ctx);
}

int kvr_agent_timeout_ms(const struct kvr_agent *agent)
{
	return kvr_link_timeout_ms(&agent->link);
}

bool kvr_agent_timeout_strict(const struct kvr_agent *agent)
{
	return kvr_link_strict(&agent->link);
}

uint64_t kvr_agent__due_us(const struct kvr_agent *agent)
{
	return kvr_link_due_us(&agent->link);
}

int kvr_agent_process(struct kvr_agent *agent)
{
	return (int)kvr_link_process(&agent->link);
}

void kvr_agent_flush(struct kvr_agent *agent)
{
	kvr_link_flush(&agent->link);
}

int kvr_agent_hint_next(const struct kvr_agent_request *r, uint32_t *pos, struct kvr_agent_hint *h)
{
	struct kvr_tlv_iter it =
		kvr_tlv_begin((const uint8_t *)r->hints + *pos, r->hints_len - *pos);
	struct kvr_tlv tlv;

	if (*pos >= r->hints_len || kvr_tlv_next(&it, &tlv) <= 0)
		return 0;
	*pos = r->hints_len - it.left;
	*h = (struct kvr_agent_hint){.type = tlv.type, .len = tlv.len, .value = tlv.value};
	return 1;
}

uint32_t kvr_agent_running(const struct kvr_agent *agent)
{
	return agent->running;
}

enum kvr_agent_state kvr_agent_state_now(const struct kvr_agent *agent)
{
	return agent->status.state;
}

void kvr_agent_stats_get(const struct kvr_agent *agent, struct kvr_agent_stats *out)
{
	*out = agent->stats;
	out->frames_sent = agent->link.stats.sent;
	out->frames_unsent = agent->link.stats.unsent;
	out->frames_received = agent->link.stats.received;
	out->frames_bad += agent->link.stats.bad;
	out->frames_foreign += agent->link.stats.foreign;
}
