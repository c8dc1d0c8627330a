/* SPDX-License-Identifier: BSD-3-Clause */
#include "client_pvt.h"

#include "kvr_errno.h"
#include "kvr_reason.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>

#define CLIENT_MAX_REQUESTS (1u << 20)

static bool wants_frame(void *user, const struct kvr_udp_addr *from, const struct kvr_wire_hdr *h)
{
	const struct kvr_client *c = user;

	/* Items may come from agents, everything else from the router only. */
	return h->source == c->source &&
	       (h->kind == KVR_RESPONSE || kvr_udp_addr_equal(from, &c->router));
}

static void on_rejected(struct kvr_client *c, struct client_req *r, const struct kvr_wire_hdr *h,
			const uint8_t *body)
{
	const uint8_t kind = ((const struct kvr_wire_rejected *)body)->kind;

	if (kind == KVR_CONNECT && h->id == c->connect_ids.id)
		kvr_client__connect_refused(c, body);
	else if (kind == KVR_SESSION_RELEASE)
		kvr_client__release_refused(c, h, body);
	else if (kind != KVR_CONNECT && r != NULL && r->state != CLIENT_ENDED)
		kvr_client__on_rejected(c, r, h, body);
}

/* ACCEPTED of a request that has ended. Either the complete answer overtook it, or the request was
 * abandoned and CANCEL overtook ROUTE: then cancel again, because it would run without a client. */
static void cancel_unwanted(struct kvr_client *c, const struct client_req *r,
			    const struct kvr_wire_hdr *h, const uint8_t *body)
{
	const struct kvr_wire_accepted *w = (const void *)body;
	const bool answered = r != NULL ? r->end.reason == KVR_CLIENT_FINISHED ||
						  r->end.reason == KVR_CLIENT_FAILED
					: kvr_client__answered(c, h->id);

	if (w->state != KVR_STATE_QUERY && !answered)
		kvr_link_send(&c->link, &c->router, KVR_CANCEL,
			      kvr_link_ids(&c->link, c->source, h->id, h->handle), NULL, 0);
}

/* Handle a message about a request that has ended, or is unknown. */
static void on_late_message(struct kvr_client *c, struct client_req *r,
			    const struct kvr_udp_addr *from, const struct kvr_wire_hdr *h,
			    const uint8_t *body)
{
	if (h->kind == KVR_RESPONSE)
		kvr_client__on_stray(c, from, h, body);
	else if (h->kind == KVR_ACCEPTED && r != NULL)
		kvr_client__on_late_accepted(r, body);
	if (h->kind == KVR_ACCEPTED)
		cancel_unwanted(c, r, h, body);
}

static void on_message(void *user, const struct kvr_udp_addr *from, const struct kvr_wire_hdr *h,
		       const uint8_t *body, uint32_t len)
{
	struct kvr_client *c = user;
	struct client_req *r = kvr_client__find(c, h->id);

	if (h->kind != KVR_RESPONSE)
		kvr_client__saw_epoch(c, h->epoch);
	if (h->kind == KVR_CONNECTED)
		kvr_client__on_connected(c, h, body, len);
	else if (h->kind == KVR_SESSION_RELEASED)
		kvr_client__on_released(c, h, body);
	else if (h->kind == KVR_REJECTED)
		on_rejected(c, r, h, body);
	else if (r == NULL || r->state == CLIENT_ENDED)
		on_late_message(c, r, from, h, body);
	else if (h->kind == KVR_RESPONSE)
		kvr_client__on_response(c, r, from, h, body);
	else if (h->kind == KVR_MISSING)
		kvr_client__on_missing(c, r, body);
	else if (h->kind == KVR_ACCEPTED)
		kvr_client__on_accepted(c, r, h, body);
	else if (h->kind == KVR_PROGRESS_ACK)
		kvr_client__on_progress_ack(c, r, body);
	else if (h->kind == KVR_LOADS)
		kvr_client__on_loads(c, r, body);
	else if (h->kind == KVR_CANCELLED && r->state == CLIENT_CANCELLING)
		kvr_client__end_reason(c, r, r->end_reason, false);
}

static void on_limit(struct kvr_client *c, struct client_req *r)
{
	const uint64_t id = r->id;

	if (r->state ==
	    CLIENT_CANCELLING) /* cancelled by the user: end without waiting for the router */
		r->end_reason = KVR_CLIENT_TIMEOUT;
	kvr_client__report_end(c, r, &(struct kvr_client_end){.reason = KVR_CLIENT_TIMEOUT});
	if (kvr_client__find(c, id) == r && r->state != CLIENT_CANCELLING)
		kvr_client__start_cancel(c, r, KVR_CLIENT_TIMEOUT);
}

static void on_ack_due(struct kvr_client *c, struct client_req *r)
{
	if (r->book)
		kvr_client__repeat_report(c, r);
	else
		kvr_client__send_ack(c, r, 0);
}

static void on_timer(void *user, struct kvr_timer *t)
{
	struct kvr_client *c = user;

	if (t->kind == CLIENT_T_CONNECT)
		kvr_client__connect_timer(c);
	else if (t->kind == CLIENT_T_REPEAT)
		kvr_client__repeat(c, container_of(t, struct client_req, repeat));
	else if (t->kind == CLIENT_T_RELEASE)
		kvr_client__release_timer(c, container_of(t, struct client_release, timer));
	else if (t->kind == CLIENT_T_DELIVER)
		kvr_client__deliver_timer(c, container_of(t, struct client_delivery, timer));
	else if (t->kind == CLIENT_T_ACK)
		on_ack_due(c, container_of(t, struct client_req, ack));
	else
		on_limit(c, container_of(t, struct client_req, limit));
}

static bool on_fragment(void *user, const struct kvr_udp_addr *from, const struct kvr_wire_hdr *h)
{
	return h->kind != KVR_RESPONSE || kvr_client__on_fragment(user, from, h);
}

static bool on_repeated_fragment(void *user, const struct kvr_wire_hdr *h)
{
	return h->kind == KVR_RESPONSE && kvr_client__item_again(user, h);
}

static const struct kvr_link_user link_user = {.wants = wants_frame,
					       .message = on_message,
					       .fragment = on_fragment,
					       .again = on_repeated_fragment,
					       .timer = on_timer};

static int fill_defaults(struct kvr_client_conf *c)
{
	c->frame_bytes = c->frame_bytes != 0 ? c->frame_bytes : KVR_WIRE_DEF_FRAME;
	c->max_requests = c->max_requests != 0 ? c->max_requests : 16384;
	c->connect_ms = c->connect_ms != 0 ? c->connect_ms : 5000;
	c->silence_ms = c->silence_ms != 0 ? c->silence_ms : KVR_WIRE_CLIENT_SILENCE_S * 1000;
	c->buffer_bytes = c->buffer_bytes != 0 ? c->buffer_bytes : 4u << 20;
	c->assembly_bytes = c->assembly_bytes != 0 ? c->assembly_bytes : CLIENT_ASSEMBLY;
	if (c->frame_bytes < KVR_WIRE_LEAST_MAX_FRAME || c->frame_bytes > KVR_WIRE_MAX_FRAME ||
	    c->max_requests > CLIENT_MAX_REQUESTS || c->ack_us > CLIENT_ACK_US)
		return -EINVAL;
	return 0;
}

static int init_requests(struct kvr_client *c)
{
	c->req = calloc(c->conf.max_requests, sizeof(*c->req));
	if (c->req == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < c->conf.max_requests; i++)
		c->req[i].next_free = i + 2;
	c->req[c->conf.max_requests - 1].next_free = 0;
	c->free_head = 1;
	c->free_tail = c->conf.max_requests;
	c->connect.kind = CLIENT_T_CONNECT;
	return 0;
}

struct kvr_client *kvr_client__create_on(const struct kvr_client_conf *conf,
					 const struct kvr_udp_addr *router,
					 const struct kvr_udp *udp)
{
	struct kvr_link_conf lc = {.role = KVR_ROLE_BIT_CLIENT,
				   .epoch = (uint32_t)kvr_link_random(udp) | 1,
				   .seed = kvr_link_random(udp),
				   .ops = &link_user};
	struct kvr_client *c = calloc(1, sizeof(*c));
	struct kvr_udp u = *udp;
	int rc;

	if (c == NULL) {
		kvr_udp_close(&u);
		return kvr_null(ENOMEM);
	}
	c->conf = *conf;
	c->router = *router;
	c->source = conf->source != 0 ? conf->source : kvr_link_random(udp);
	c->link.udp = u; /* so that every error path closes it */
	rc = fill_defaults(&c->conf);
	if (rc == 0)
		rc = init_requests(c);
	c->frame_bytes = c->conf.frame_bytes;
	c->max_tokens = KVR_WIRE_MAX_TOKENS;
	c->max_hashes = KVR_WIRE_MAX_HASHES;
	c->max_body = KVR_WIRE_MAX_BODY;
	c->max_message = KVR_WIRE_MAX_MESSAGE;
	c->max_frames = KVR_WIRE_MAX_FRAGMENTS;
	lc.timers = (c->conf.away_bytes != 0 ? 5 : 3) * c->conf.max_requests + CLIENT_RELEASES + 1;
	lc.assembly_bytes = c->conf.assembly_bytes;
	lc.user = c;
	if (rc == 0)
		rc = kvr_link_init(&c->link, &u, &lc);
	if (rc < 0) {
		kvr_client_destroy(c);
		return kvr_null(-rc);
	}
	return c;
}

struct kvr_client *kvr_client_create(const struct kvr_client_conf *conf)
{
	struct kvr_udp_addr router;
	struct kvr_udp udp;
	int rc;

	rc = kvr_link_open(conf->router, conf->port, conf->bind, &router, &udp);
	if (rc < 0)
		return kvr_null(-rc);
	return kvr_client__create_on(conf, &router, &udp);
}

static void close_request(struct kvr_client *c, struct client_req *r)
{
	static const struct kvr_client_ops no_ops;

	if (!r->end_reported && r->kind == KVR_ROUTE)
		kvr_client__send_empty(c, r, KVR_CANCEL);
	kvr_client__report_end(c, r, &(struct kvr_client_end){.reason = KVR_CLIENT_CLOSED});
	r->ops = &no_ops;
	kvr_client__free(c, r);
}

void kvr_client_destroy(struct kvr_client *c)
{
	if (c == NULL)
		return;
	c->closing = true;
	for (uint32_t i = 0; c->req != NULL && i < c->conf.max_requests; i++)
		if (c->req[i].state != CLIENT_FREE)
			close_request(c, &c->req[i]);
	kvr_client__drop_releases(c);
	kvr_link_flush(&c->link);
	kvr_link_fini(&c->link);
	free(c->req);
	free(c->pools);
	free(c->pool_names);
	free(c);
}

int kvr_client_fd(const struct kvr_client *c)
{
	return c->link.udp.io->fd(c->link.udp.ctx);
}

int kvr_client_timeout_ms(const struct kvr_client *c)
{
	return kvr_link_timeout_ms(&c->link);
}

bool kvr_client_timeout_strict(const struct kvr_client *c)
{
	return kvr_link_strict(&c->link);
}

uint64_t kvr_client__due_us(const struct kvr_client *c)
{
	return kvr_link_due_us(&c->link);
}

int kvr_client_process(struct kvr_client *c)
{
	return (int)kvr_link_process(&c->link);
}

void kvr_client_flush(struct kvr_client *c)
{
	kvr_link_run(&c->link);
}

uint32_t kvr_client_in_flight(const struct kvr_client *c)
{
	return c->live;
}

uint64_t kvr_client_source(const struct kvr_client *c)
{
	return c->source;
}

int kvr_client_explain(const struct kvr_client_end *e, char *buf, size_t len)
{
	const char *name = kvr_code_name(e->code);
	const unsigned long long d[] = {e->detail[0], e->detail[1], e->detail[2]};

	if (e->code == KVR_E_UNKNOWN_POOL && d[1] != 0)
		return snprintf(buf, len, "%s: pool %llu, but the router has %llu pools; %s", name,
				d[0], d[1], e->text);
	if (e->code == KVR_E_PROMPT_TOO_LONG && d[1] != 0)
		return snprintf(
			buf, len,
			"%s: the prompt has %llu blocks of %llu tokens, the pool accepts %llu blocks",
			name, d[0], d[2], d[1]);
	if (e->code == KVR_E_NO_ENDPOINTS && d[0] == 0)
		return snprintf(buf, len, "%s: the pool has no worker", name);
	if (e->code == KVR_E_NO_ENDPOINTS)
		return snprintf(
			buf, len, "%s: the pool has %llu workers with %llu ranks%s", name, d[0],
			d[1],
			d[2] == 0
				? ", all draining or unresponsive"
				: ", but pins, allowed workers or taints of the request exclude all");
	/* The text normally has all details. It may be missing, because the router sends an
	 * unproven address no more bytes than it received. */
	if (d[0] != 0 && e->code != KVR_E_COOKIE && strcmp(e->text, kvr_reason_words(e->code)) == 0)
		return snprintf(buf, len, "%s: %s (%llu, %llu, %llu)", name, e->text, d[0], d[1],
				d[2]);
	return snprintf(buf, len, "%s: %s", name, e->text);
}

void kvr_client_stats_get(const struct kvr_client *c, struct kvr_client_stats *out)
{
	*out = c->stats;
	out->frames_sent = c->link.stats.sent;
	out->frames_unsent = c->link.stats.unsent;
	out->frames_received = c->link.stats.received;
	out->frames_bad += c->link.stats.bad;
	out->frames_foreign += c->link.stats.foreign;
}
