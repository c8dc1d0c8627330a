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

int kvr_client__away_take(struct client_req *req, const void *body, size_t len,
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
		a->to[i].req = req;
		a->to[i].fd = -1;
		a->to[i].timer.kind = CLIENT_T_DELIVER;
	}
	req->away = a;
	return 0;
}

static void hang_up(struct client_delivery *delivery)
{
	if (delivery->fd >= 0)
		close(delivery->fd);
	delivery->fd = -1;
	delivery->sent = 0;
	delivery->answer_len = 0;
}

void kvr_client__away_drop(struct kvr_client *client, struct client_req *req)
{
	if (req->away == NULL)
		return;
	for (uint32_t i = 0; i < 2; i++) {
		kvr_timer_stop(&client->link.timers, &req->away->to[i].timer);
		hang_up(&req->away->to[i]);
	}
	free(req->away->body);
	free(req->away);
	req->away = NULL;
}

void kvr_client__away_settle(struct kvr_client *client, struct client_req *req)
{
	for (uint32_t i = 0; i < 2; i++)
		if (req->away->to[i].handle != 0 && !req->away->to[i].done)
			return;
	kvr_client__away_drop(client, req);
}

static void schedule_poll(struct kvr_client *client, struct client_delivery *delivery, uint32_t us)
{
	kvr_timer_set(&client->link.timers, &delivery->timer, client->link.now_us + us);
}

static void retry_delivery(struct kvr_client *client, struct client_delivery *delivery)
{
	hang_up(delivery);
	client->stats.deliveries_again++;
	schedule_poll(client, delivery, delivery->gap_us);
	delivery->gap_us = RTE_MIN(2 * delivery->gap_us, CLIENT_AGAIN_MAX_US);
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

static void make_head(struct client_delivery *delivery)
{
	const struct client_away *a = delivery->req->away;
	char token[2 * KVR_WIRE_TOKEN + 1];

	for (uint32_t i = 0; i < KVR_WIRE_TOKEN; i++)
		snprintf(token + 2 * i, 3, "%02x", a->token[i]);
	delivery->head_len = (uint32_t)snprintf(delivery->head, sizeof(delivery->head),
						"PUT /kvroute/body/%s HTTP/1.1\r\nhost: %s\r\n"
						"content-length: %zu\r\nconnection: close\r\n\r\n",
						token, delivery->addr, a->len);
}

/* Read the agent's answer. @return 0: not complete; status code; -1: connection closed, or not
 * HTTP. */
static int read_status(struct client_delivery *delivery)
{
	const ssize_t n = recv(delivery->fd, delivery->answer + delivery->answer_len,
			       sizeof(delivery->answer) - 1 - delivery->answer_len, 0);
	int code = 0;

	if (n < 0)
		return errno == EAGAIN || errno == EINTR || errno == ENOTCONN ? 0 : -1;
	delivery->answer_len += (uint32_t)n;
	delivery->answer[delivery->answer_len] = '\0';
	if (delivery->answer_len < 13)
		return n == 0 ? -1 : 0;
	return sscanf(delivery->answer, "HTTP/1.%*1d %3d", &code) == 1 && code >= 200 ? code : -1;
}

/* Send the next part. @return false: the connection failed. */
static bool send_body(struct client_delivery *delivery)
{
	const struct client_away *a = delivery->req->away;
	size_t room = CLIENT_DELIVER_BYTES;

	while (room > 0 && delivery->sent < delivery->head_len + a->len) {
		const bool head = delivery->sent < delivery->head_len;
		const char *p =
			head ? delivery->head + delivery->sent
			     : (const char *)a->body + (delivery->sent - delivery->head_len);
		const size_t left = head ? delivery->head_len - delivery->sent
					 : delivery->head_len + a->len - delivery->sent;
		const ssize_t n = send(delivery->fd, p, RTE_MIN(left, room), MSG_NOSIGNAL);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR || errno == ENOTCONN;
		delivery->sent += (size_t)n;
		room -= (size_t)n;
	}
	return true;
}

void kvr_client__deliver_timer(struct kvr_client *client, struct client_delivery *delivery)
{
	bool usable;
	int code;

	if (delivery->fd < 0) {
		delivery->fd = connect_to(delivery->addr);
		make_head(delivery);
	}
	usable = delivery->fd >= 0 && send_body(delivery);
	code = delivery->fd >= 0 ? read_status(delivery) : -1;
	if (code == 204 ||
	    code == 410) { /* 410: the agent has the body, and a previous answer was lost */
		hang_up(delivery);
		delivery->done = true;
		client->stats.delivered++;
	} else if (code != 0 || !usable) {
		retry_delivery(client, delivery);
	} else {
		kvr_link_step(&client->link, &delivery->timer,
			      client->link.now_us + CLIENT_DELIVER_US);
	}
}

static void deliver_to(struct kvr_client *client, struct client_req *req, uint32_t leg,
		       const struct kvr_str *addr)
{
	struct client_delivery *delivery = &req->away->to[leg];

	if (delivery->handle == req->handle && strlen(delivery->addr) == addr->len &&
	    memcmp(delivery->addr, addr->p, addr->len) == 0)
		return; /* in progress, or done */
	hang_up(delivery);
	delivery->handle = req->handle;
	delivery->done = false;
	delivery->gap_us = CLIENT_AGAIN_US;
	memcpy(delivery->addr, addr->p, addr->len);
	delivery->addr[addr->len] = '\0';
	schedule_poll(client, delivery, 0);
}

void kvr_client__deliver(struct kvr_client *client, struct client_req *req,
			 const struct kvr_hints *h)
{
	if ((h->present & KVR_HAS(KVR_HINT_BODY_ADDR)) != 0)
		deliver_to(client, req, 0, &h->body_addr);
	if ((h->present & KVR_HAS(KVR_HINT_PREFILL_BODY_ADDR)) != 0)
		deliver_to(client, req, 1, &h->prefill_body_addr);
}
