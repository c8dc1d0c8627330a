/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Creation of a client, dispatch of received messages, time limits, and descriptions of rejections.
 */
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
	const struct kvr_client *client = user;

	/* Items may come from agents, everything else from the router only. */
	return h->source == client->source &&
	       (h->kind == KVR_RESPONSE || kvr_udp_addr_equal(from, &client->router));
}

static void on_rejected(struct kvr_client *client, struct client_req *req,
			const struct kvr_wire_hdr *h, const uint8_t *body)
{
	const uint8_t kind = ((const struct kvr_wire_rejected *)body)->kind;

	if (kind == KVR_CONNECT && h->id == client->connect_ids.id)
		kvr_client__connect_refused(client, body);
	else if (kind == KVR_SESSION_RELEASE)
		kvr_client__release_refused(client, h, body);
	else if (kind != KVR_CONNECT && req != NULL && req->state != CLIENT_ENDED)
		kvr_client__on_rejected(client, req, h, body);
}

/* ACCEPTED of a request that has ended. Either the complete answer overtook it, or the request was
 * abandoned and CANCEL overtook ROUTE: then cancel again, because it would run without a client. */
static void cancel_unwanted(struct kvr_client *client, const struct client_req *req,
			    const struct kvr_wire_hdr *h, const uint8_t *body)
{
	const struct kvr_wire_accepted *w = (const void *)body;
	const bool answered = req != NULL ? req->end.reason == KVR_CLIENT_FINISHED ||
						    req->end.reason == KVR_CLIENT_FAILED
					  : kvr_client__answered(client, h->id);

	if (w->state != KVR_STATE_QUERY && !answered)
		kvr_link_send(&client->link, &client->router, KVR_CANCEL,
			      kvr_link_ids(&client->link, client->source, h->id, h->handle), NULL,
			      0);
}

/* Handle a message about a request that has ended, or is unknown. */
static void on_late_message(struct kvr_client *client, struct client_req *req,
			    const struct kvr_udp_addr *from, const struct kvr_wire_hdr *h,
			    const uint8_t *body)
{
	if (h->kind == KVR_RESPONSE)
		kvr_client__on_stray(client, from, h, body);
	else if (h->kind == KVR_ACCEPTED && req != NULL)
		kvr_client__on_late_accepted(req, body);
	if (h->kind == KVR_ACCEPTED)
		cancel_unwanted(client, req, h, body);
}

static void on_message(void *user, const struct kvr_udp_addr *from, const struct kvr_wire_hdr *h,
		       const uint8_t *body, uint32_t len)
{
	struct kvr_client *client = user;
	struct client_req *req = kvr_client__find(client, h->id);

	if (h->kind != KVR_RESPONSE)
		kvr_client__saw_epoch(client, h->epoch);
	if (h->kind == KVR_CONNECTED)
		kvr_client__on_connected(client, h, body, len);
	else if (h->kind == KVR_SESSION_RELEASED)
		kvr_client__on_released(client, h, body);
	else if (h->kind == KVR_REJECTED)
		on_rejected(client, req, h, body);
	else if (req == NULL || req->state == CLIENT_ENDED)
		on_late_message(client, req, from, h, body);
	else if (h->kind == KVR_RESPONSE)
		kvr_client__on_response(client, req, from, h, body);
	else if (h->kind == KVR_MISSING)
		kvr_client__on_missing(client, req, body);
	else if (h->kind == KVR_ACCEPTED)
		kvr_client__on_accepted(client, req, h, body);
	else if (h->kind == KVR_PROGRESS_ACK)
		kvr_client__on_progress_ack(client, req, body);
	else if (h->kind == KVR_LOADS)
		kvr_client__on_loads(client, req, body);
	else if (h->kind == KVR_CANCELLED && req->state == CLIENT_CANCELLING)
		kvr_client__end_reason(client, req, req->end_reason, false);
}

static void on_limit(struct kvr_client *client, struct client_req *req)
{
	const uint64_t id = req->id;

	if (req->state ==
	    CLIENT_CANCELLING) /* cancelled by the user: end without waiting for the router */
		req->end_reason = KVR_CLIENT_TIMEOUT;
	kvr_client__report_end(client, req, &(struct kvr_client_end){.reason = KVR_CLIENT_TIMEOUT});
	if (kvr_client__find(client, id) == req && req->state != CLIENT_CANCELLING)
		kvr_client__start_cancel(client, req, KVR_CLIENT_TIMEOUT);
}

static void on_ack_due(struct kvr_client *client, struct client_req *req)
{
	if (req->book)
		kvr_client__repeat_report(client, req);
	else
		kvr_client__send_ack(client, req, 0);
}

static void on_timer(void *user, struct kvr_timer *t)
{
	struct kvr_client *client = user;

	if (t->kind == CLIENT_T_CONNECT)
		kvr_client__connect_timer(client);
	else if (t->kind == CLIENT_T_REPEAT)
		kvr_client__repeat(client, container_of(t, struct client_req, repeat));
	else if (t->kind == CLIENT_T_RELEASE)
		kvr_client__release_timer(client, container_of(t, struct client_release, timer));
	else if (t->kind == CLIENT_T_DELIVER)
		kvr_client__deliver_timer(client, container_of(t, struct client_delivery, timer));
	else if (t->kind == CLIENT_T_ACK)
		on_ack_due(client, container_of(t, struct client_req, ack));
	else
		on_limit(client, container_of(t, struct client_req, limit));
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

static int init_requests(struct kvr_client *client)
{
	client->req = calloc(client->conf.max_requests, sizeof(*client->req));
	if (client->req == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < client->conf.max_requests; i++)
		client->req[i].next_free = i + 2;
	client->req[client->conf.max_requests - 1].next_free = 0;
	client->free_head = 1;
	client->free_tail = client->conf.max_requests;
	client->connect.kind = CLIENT_T_CONNECT;
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
	struct kvr_client *client = calloc(1, sizeof(*client));
	struct kvr_udp u = *udp;
	int rc;

	if (client == NULL) {
		kvr_udp_close(&u);
		return kvr_null(ENOMEM);
	}
	client->conf = *conf;
	client->router = *router;
	client->source = conf->source != 0 ? conf->source : kvr_link_random(udp);
	client->link.udp = u; /* so that every error path closes it */
	rc = fill_defaults(&client->conf);
	if (rc == 0)
		rc = init_requests(client);
	client->frame_bytes = client->conf.frame_bytes;
	client->max_tokens = KVR_WIRE_MAX_TOKENS;
	client->max_hashes = KVR_WIRE_MAX_HASHES;
	client->max_body = KVR_WIRE_MAX_BODY;
	client->max_message = KVR_WIRE_MAX_MESSAGE;
	client->max_frames = KVR_WIRE_MAX_FRAGMENTS;
	lc.timers = (client->conf.away_bytes != 0 ? 5 : 3) * client->conf.max_requests +
		    CLIENT_RELEASES + 1;
	lc.assembly_bytes = client->conf.assembly_bytes;
	lc.user = client;
	if (rc == 0)
		rc = kvr_link_init(&client->link, &u, &lc);
	if (rc < 0) {
		kvr_client_destroy(client);
		return kvr_null(-rc);
	}
	return client;
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

static void close_request(struct kvr_client *client, struct client_req *req)
{
	static const struct kvr_client_ops no_ops;

	if (!req->end_reported && req->kind == KVR_ROUTE)
		kvr_client__send_empty(client, req, KVR_CANCEL);
	kvr_client__report_end(client, req, &(struct kvr_client_end){.reason = KVR_CLIENT_CLOSED});
	req->ops = &no_ops;
	kvr_client__free(client, req);
}

void kvr_client_destroy(struct kvr_client *client)
{
	if (client == NULL)
		return;
	client->closing = true;
	for (uint32_t i = 0; client->req != NULL && i < client->conf.max_requests; i++)
		if (client->req[i].state != CLIENT_FREE)
			close_request(client, &client->req[i]);
	kvr_client__drop_releases(client);
	kvr_link_flush(&client->link);
	kvr_link_fini(&client->link);
	free(client->req);
	free(client->pools);
	free(client->pool_names);
	free(client);
}

int kvr_client_fd(const struct kvr_client *client)
{
	return client->link.udp.io->fd(client->link.udp.ctx);
}

int kvr_client_timeout_ms(const struct kvr_client *client)
{
	return kvr_link_timeout_ms(&client->link);
}

bool kvr_client_timeout_strict(const struct kvr_client *client)
{
	return kvr_link_strict(&client->link);
}

uint64_t kvr_client__due_us(const struct kvr_client *client)
{
	return kvr_link_due_us(&client->link);
}

int kvr_client_process(struct kvr_client *client)
{
	return (int)kvr_link_process(&client->link);
}

void kvr_client_flush(struct kvr_client *client)
{
	kvr_link_run(&client->link);
}

uint32_t kvr_client_in_flight(const struct kvr_client *client)
{
	return client->live;
}

uint64_t kvr_client_source(const struct kvr_client *client)
{
	return client->source;
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
	if (d[0] != 0 && e->code != KVR_E_COOKIE && strcmp(e->text, kvr_code_text(e->code)) == 0)
		return snprintf(buf, len, "%s: %s (%llu, %llu, %llu)", name, e->text, d[0], d[1],
				d[2]);
	return snprintf(buf, len, "%s: %s", name, e->text);
}

void kvr_client_stats_get(const struct kvr_client *client, struct kvr_client_stats *out)
{
	*out = client->stats;
	out->frames_sent = client->link.stats.sent;
	out->frames_unsent = client->link.stats.unsent;
	out->frames_received = client->link.stats.received;
	out->frames_bad += client->link.stats.bad;
	out->frames_foreign += client->link.stats.foreign;
}
