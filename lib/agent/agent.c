/* SPDX-License-Identifier: BSD-3-Clause */
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
	const struct kvr_agent *a = user;

	/* Clients acknowledge items of the direct path; everything else comes from the router. */
	return h->kind == KVR_RESPONSE_ACK || h->kind == KVR_MISSING ||
	       kvr_udp_addr_equal(from, &a->router);
}

/* Handle messages about the worker. Others are about requests, and have a client as source. */
static void handle_worker_message(struct kvr_agent *a, const struct kvr_wire_hdr *h,
				  const uint8_t *body)
{
	if (h->source != a->conf.worker) {
		a->stats.frames_foreign++;
		return;
	}
	switch (h->kind) {
	case KVR_WELCOME:
		kvr_agent__on_welcome(a, h, body);
		break;
	case KVR_HEARTBEAT_ACK:
		kvr_agent__on_heartbeat_ack(a, h, body);
		break;
	case KVR_KV_ACK:
		kvr_agent__on_kv_ack(a, h, body);
		break;
	case KVR_GOODBYE_ACK:
		kvr_agent__on_goodbye_ack(a);
		break;
	case KVR_SESSION_OPEN:
	case KVR_SESSION_CLOSE:
		kvr_agent__on_session(a, h, body);
		break;
	default:
		break;
	}
}

static void on_rejected(struct kvr_agent *a, const struct kvr_wire_hdr *h, const uint8_t *body)
{
	const uint8_t kind = ((const struct kvr_wire_rejected *)body)->kind;

	if (kind == KVR_RESPONSE || kind == KVR_PROGRESS)
		kvr_agent__on_refused(a, h, body);
	else if (h->source == a->conf.worker)
		kvr_agent__on_rejected(a, h, body);
	else
		a->stats.frames_foreign++;
}

static void on_message(void *user, const struct kvr_udp_addr *from, const struct kvr_wire_hdr *h,
		       const uint8_t *body, uint32_t len)
{
	struct kvr_agent *a = user;

	switch (h->kind) {
	case KVR_DISPATCH:
		kvr_agent__on_dispatch(a, h, body, len);
		break;
	case KVR_RESPONSE_ACK:
		kvr_agent__on_response_ack(a, from, h, body);
		break;
	case KVR_MISSING:
		kvr_agent__on_missing(a, from, h, body);
		break;
	case KVR_PROGRESS_ACK:
		kvr_agent__on_progress_ack(a, h, body);
		break;
	case KVR_ABORT:
		kvr_agent__on_abort(a, h, body);
		break;
	case KVR_REJECTED:
		on_rejected(a, h, body);
		break;
	default:
		handle_worker_message(a, h, body);
	}
}

static void on_timer(void *user, struct kvr_timer *t)
{
	struct kvr_agent *a = user;

	if (t->kind == AGENT_T_REGISTER)
		kvr_agent__register_timer(a);
	else if (t->kind == AGENT_T_REPEAT)
		kvr_agent__retransmit(a, container_of(t, struct agent_req, repeat));
	else if (t->kind == AGENT_T_ALIVE)
		kvr_agent__alive_timer(a);
	else
		kvr_agent__kv_timer(a, container_of(t, struct agent_rank, timer));
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

static int init_requests(struct kvr_agent *a)
{
	uint32_t buckets;

	a->n_req = a->conf.max_requests + AGENT_OVER_KEPT;
	buckets = rte_align32pow2(a->n_req);
	TAILQ_INIT(&a->free);
	TAILQ_INIT(&a->over);
	TAILQ_INIT(&a->live);
	a->alive.kind = AGENT_T_ALIVE;
	a->req = malloc(a->n_req *
			sizeof(*a->req)); /* a slot is initialised when it is first used */
	a->bucket = calloc(buckets, sizeof(*a->bucket));
	if (a->req == NULL || a->bucket == NULL)
		return -ENOMEM;
	a->bucket_mask = buckets - 1;
	return 0;
}

static int init_ranks(struct kvr_agent *a)
{
	a->rank = calloc(a->conf.dp_size, sizeof(*a->rank));
	if (a->rank == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < a->conf.dp_size; i++) {
		struct agent_rank *k = &a->rank[i];

		k->dp_rank = a->conf.dp_start + i;
		k->timer.kind = AGENT_T_KV;
		k->gap_id = k->back_id = UINT64_MAX;
		k->backoff_us = AGENT_KV_REPEAT_US;
		/* Distinct from the dumps of a previous process with the same epoch. */
		k->dump_id = AGENT_DUMP_ID + (kvr_link_random(&a->link.udp) >> 12);
		k->load = (struct kvr_wire_rank_load){.dp_rank = k->dp_rank,
						      .kv_used_blocks = UINT64_MAX};
	}
	return 0;
}

static int init_link(struct kvr_agent *a, const struct kvr_udp *udp)
{
	struct kvr_link_conf lc = {.role = KVR_ROLE_BIT_AGENT,
				   .epoch = a->conf.epoch != 0 ? a->conf.epoch
							       : kvr_epoch_of_clock(),
				   .timers = a->n_req + a->conf.dp_size + 2,
				   .assembly_bytes = a->conf.assembly_bytes,
				   .seed = kvr_link_random(udp),
				   .ops = &link_user,
				   .user = a};
	int rc;

	rc = kvr_link_init(&a->link, udp, &lc);
	if (rc < 0)
		return rc;
	a->frame_bytes = a->conf.frame_bytes;
	a->boot = kvr_link_random(udp);
	a->backoff_us = AGENT_HELLO_US;
	a->hello_no = kvr_link_random(udp);
	kvr_agent__new_hello(a);
	a->timer.kind = AGENT_T_REGISTER;
	kvr_timer_set(&a->link.timers, &a->timer, kvr_link_tick(&a->link));
	return 0;
}

struct kvr_agent *kvr_agent__create_on(const struct kvr_agent_conf *conf,
				       const struct kvr_udp_addr *router, const struct kvr_udp *udp)
{
	struct kvr_agent *a = calloc(1, sizeof(*a));
	struct kvr_udp u = *udp;
	int rc;

	if (a == NULL) {
		kvr_udp_close(&u);
		return kvr_null(ENOMEM);
	}
	a->conf = *conf;
	a->router = *router;
	a->status.text = "";
	a->link.udp = u; /* so that every error path closes it */
	rc = fill_defaults(&a->conf);
	if (rc == 0)
		rc = kvr_agent__build_hello(a, conf);
	if (rc == 0)
		rc = init_requests(a);
	if (rc == 0)
		rc = init_ranks(a);
	if (rc == 0)
		rc = init_link(a, &u);
	if (rc < 0) {
		kvr_agent_destroy(a);
		return kvr_null(-rc);
	}
	return a;
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

void kvr_agent_destroy(struct kvr_agent *a)
{
	if (a == NULL)
		return;
	for (uint32_t i = 0; i < a->n_used; i++) {
		struct agent_req *r = &a->req[i];

		if (r->state == AGENT_RUNNING || r->state == AGENT_ENDING) {
			kvr_agent__report_abort(a, r, KVR_AGENT_ABORT_CLOSED, 0);
			kvr_agent__drop_items(r);
			free(r->echo);
		}
	}
	for (uint32_t i = 0; a->rank != NULL && i < a->conf.dp_size; i++) {
		free(a->rank[i].ring);
		kvr_agent__dump_drop(&a->rank[i]);
	}
	kvr_link_fini(&a->link);
	free(a->answer);
	free(a->rank);
	free(a->bucket);
	free(a->req);
	free(a->hello);
	free(a);
}

int kvr_agent_fd(const struct kvr_agent *a)
{
	return a->link.udp.io->fd(a->link.udp.ctx);
}

int kvr_agent_timeout_ms(const struct kvr_agent *a)
{
	return kvr_link_timeout_ms(&a->link);
}

bool kvr_agent_timeout_strict(const struct kvr_agent *a)
{
	return kvr_link_strict(&a->link);
}

uint64_t kvr_agent__due_us(const struct kvr_agent *a)
{
	return kvr_link_due_us(&a->link);
}

int kvr_agent_process(struct kvr_agent *a)
{
	return (int)kvr_link_process(&a->link);
}

void kvr_agent_flush(struct kvr_agent *a)
{
	kvr_link_flush(&a->link);
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

uint32_t kvr_agent_running(const struct kvr_agent *a)
{
	return a->running;
}

enum kvr_agent_state kvr_agent_state_now(const struct kvr_agent *a)
{
	return a->status.state;
}

void kvr_agent_stats_get(const struct kvr_agent *a, struct kvr_agent_stats *out)
{
	*out = a->stats;
	out->frames_sent = a->link.stats.sent;
	out->frames_unsent = a->link.stats.unsent;
	out->frames_received = a->link.stats.received;
	out->frames_bad += a->link.stats.bad;
	out->frames_foreign += a->link.stats.foreign;
}
