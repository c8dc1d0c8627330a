/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bodies that do not pass the router. Each is sent by HTTP PUT to the agent of each leg, as soon as
 * ACCEPTED names the agent's address. If the agent does not have the DISPATCH yet, or is busy, the
 * PUT is retried while the request lives; a body that is never delivered times out at the agent.
 * Connections are polled by timer, so that the user polls one descriptor, and only while a body is
 * being sent.
 */
#include "client_pvt.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_common.h>

_Static_assert(KVR_CLIENT_NO_BODIES == KVR_WIRE_NO_BODIES, "same code");

int kvr_client__away_take(struct client_req *r, const void *body, size_t len,
			  const uint8_t token[KVR_WIRE_TOKEN])
{
	struct client_away *a = calloc(1, sizeof(*a));

	if (a == NULL || (a->body = malloc(len)) == NULL) {
		free(a);
		return -ENOMEM;
	}
	memcpy(a->body, body, len);
	a->len = len;
	memcpy(a->token, token, sizeof(a->token));
	for (uint32_t i = 0; i < 2; i++) {
		a->to[i].r = r;
		a->to[i].fd = -1;
		a->to[i].timer.kind = CLIENT_T_DELIVER;
	}
	r->away = a;
	return 0;
}

static void hang_up(struct client_delivery *d)
{
	if (d->fd >= 0)
		close(d->fd);
	d->fd = -1;
	d->sent = 0;
	d->answer_len = 0;
}

void kvr_client__away_drop(struct kvr_client *c, struct client_req *r)
{
	if (r->away == NULL)
		return;
	for (uint32_t i = 0; i < 2; i++) {
		kvr_timer_stop(&c->link.timers, &r->away->to[i].timer);
		hang_up(&r->away->to[i]);
	}
	free(r->away->body);
	free(r->away);
	r->away = NULL;
}

void kvr_client__away_settle(struct kvr_client *c, struct client_req *r)
{
	for (uint32_t i = 0; i < 2; i++)
		if (r->away->to[i].handle != 0 && !r->away->to[i].done)
			return;
	kvr_client__away_drop(c, r);
}

static void schedule_poll(struct kvr_client *c, struct client_delivery *d, uint32_t us)
{
	kvr_timer_set(&c->link.timers, &d->timer, c->link.now_us + us);
}

static void retry_delivery(struct kvr_client *c, struct client_delivery *d)
{
	hang_up(d);
	c->stats.deliveries_again++;
	schedule_poll(c, d, d->gap_us);
	d->gap_us = RTE_MIN(2 * d->gap_us, CLIENT_AGAIN_MAX_US);
}

/* Connect to "address:port" in numeric form; resolving a name would block. @return a connecting
 * socket, or -1. */
static int connect_to(const char *addr)
{
	struct addrinfo how = {.ai_socktype = SOCK_STREAM,
			       .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV},
			*ai;
	char host[KVR_HINT_MAX_ADDR + 1];
	const char *colon = strrchr(addr, ':'), *from = addr;
	size_t n = colon != NULL ? (size_t)(colon - addr) : 0;
	int fd;

	if (n >= 2 && addr[0] == '[' && addr[n - 1] == ']') {
		from++;
		n -= 2;
	}
	snprintf(host, sizeof(host), "%.*s", (int)n, from);
	if (n == 0 || getaddrinfo(host, colon + 1, &how, &ai) != 0)
		return -1;
	fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, ai->ai_addr, ai->ai_addrlen) < 0 && errno != EINPROGRESS) {
		close(fd);
		fd = -1;
	}
	freeaddrinfo(ai);
	return fd;
}

static void make_head(struct client_delivery *d)
{
	const struct client_away *a = d->r->away;
	char token[2 * KVR_WIRE_TOKEN + 1];

	for (uint32_t i = 0; i < KVR_WIRE_TOKEN; i++)
		snprintf(token + 2 * i, 3, "%02x", a->token[i]);
	d->head_len = (uint32_t)snprintf(d->head, sizeof(d->head),
					 "PUT /kvroute/body/%s HTTP/1.1\r\nhost: %s\r\n"
					 "content-length: %zu\r\nconnection: close\r\n\r\n",
					 token, d->addr, a->len);
}

/* Read the agent's answer. @return 0: not complete; status code; -1: connection closed, or not
 * HTTP. */
static int read_status(struct client_delivery *d)
{
	const ssize_t n =
		recv(d->fd, d->answer + d->answer_len, sizeof(d->answer) - 1 - d->answer_len, 0);
	int code = 0;

	if (n < 0)
		return errno == EAGAIN || errno == EINTR || errno == ENOTCONN ? 0 : -1;
	d->answer_len += (uint32_t)n;
	d->answer[d->answer_len] = '\0';
	if (d->answer_len < 13)
		return n == 0 ? -1 : 0;
	return sscanf(d->answer, "HTTP/1.%*1d %3d", &code) == 1 && code >= 200 ? code : -1;
}

/* Send the next part. @return false: the connection failed. */
static bool send_body(struct client_delivery *d)
{
	const struct client_away *a = d->r->away;
	size_t room = CLIENT_DELIVER_BYTES;

	while (room > 0 && d->sent < d->head_len + a->len) {
		const bool head = d->sent < d->head_len;
		const char *p =
			head ? d->head + d->sent : (const char *)a->body + (d->sent - d->head_len);
		const size_t left = head ? d->head_len - d->sent : d->head_len + a->len - d->sent;
		const ssize_t n = send(d->fd, p, RTE_MIN(left, room), MSG_NOSIGNAL);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR || errno == ENOTCONN;
		d->sent += (size_t)n;
		room -= (size_t)n;
	}
	return true;
}

void kvr_client__deliver_timer(struct kvr_client *c, struct client_delivery *d)
{
	bool usable;
	int code;

	if (d->fd < 0) {
		d->fd = connect_to(d->addr);
		make_head(d);
	}
	usable = d->fd >= 0 && send_body(d);
	code = d->fd >= 0 ? read_status(d) : -1;
	if (code == 204 ||
	    code == 410) { /* 410: the agent has the body, and a previous answer was lost */
		hang_up(d);
		d->done = true;
		c->stats.delivered++;
	} else if (code != 0 || !usable) {
		retry_delivery(c, d);
	} else {
		kvr_link_step(&c->link, &d->timer, c->link.now_us + CLIENT_DELIVER_US);
	}
}

static void deliver_to(struct kvr_client *c, struct client_req *r, uint32_t leg,
		       const struct kvr_str *addr)
{
	struct client_delivery *d = &r->away->to[leg];

	if (d->handle == r->handle && strlen(d->addr) == addr->len &&
	    memcmp(d->addr, addr->p, addr->len) == 0)
		return; /* in progress, or done */
	hang_up(d);
	d->handle = r->handle;
	d->done = false;
	d->gap_us = CLIENT_AGAIN_US;
	memcpy(d->addr, addr->p, addr->len);
	d->addr[addr->len] = '\0';
	schedule_poll(c, d, 0);
}

void kvr_client__deliver(struct kvr_client *c, struct client_req *r, const struct kvr_hints *h)
{
	if ((h->present & KVR_HAS(KVR_HINT_BODY_ADDR)) != 0)
		deliver_to(c, r, 0, &h->body_addr);
	if ((h->present & KVR_HAS(KVR_HINT_PREFILL_BODY_ADDR)) != 0)
		deliver_to(c, r, 1, &h->prefill_body_addr);
}
