/* SPDX-License-Identifier: BSD-3-Clause */
#include "conn.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

#include "buffers.h"
#include "source.h"

#define MAX_RESETS                                                                                 \
	(2 * GW_MAX_STREAMS) /* so that a connection's end does not look like a flood              \
			      */

/* Its place, NULL: it has none. */
static struct gw_conn *place(const struct gw_thread *t, int fd)
{
	return fd >= 0 && (uint32_t)fd < t->n_fds ? &t->by_fd[fd] : NULL;
}

static bool is_http2(const struct gw_call *c)
{
	return c->req->version >= 0x200;
}

/* libh2o closes it, and disposes of its requests, when it comes to read or write there. */
static void close_connection(struct gw_call *c, enum gw_counter why)
{
	GW_COUNT(c->t, why);
	shutdown(c->fd, SHUT_RDWR);
}

/* To a client that may not have asked yet, and need not read it. */
static void say_too_many(int fd)
{
	const struct gw_error *e = gw_error_fault(GW_SOURCE_SHARE);
	char body[512], text[768];
	const size_t len = gw_error_json(e, gw_error_text(GW_SOURCE_SHARE), body, sizeof(body));
	const int n =
		snprintf(text, sizeof(text),
			 "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\n"
			 "retry-after: %u\r\nconnection: close\r\ncontent-length: %zu\r\n\r\n%s",
			 e->retry_s, len, body);

	if (send(fd, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) == n)
		shutdown(fd, SHUT_WR);
}

bool gw_conn_open(struct gw_thread *t, int fd, h2o_buffer_t **input)
{
	struct gw_conn *conn = place(t, fd);
	struct sockaddr_storage from = {0};
	socklen_t len = sizeof(from);

	if (conn == NULL)
		return false;
	/* A client that has gone already has no address: it is of no family. */
	if (getpeername(fd, (struct sockaddr *)&from, &len) < 0)
		from.ss_family = AF_UNSPEC;
	*conn = (struct gw_conn){.source = gw_source_open(t->sources, (struct sockaddr *)&from)};
	if (conn->source == NULL && errno == EBUSY) {
		GW_COUNT(t, GW_SOURCE_CONNECTIONS);
		say_too_many(fd);
	}
	if (conn->source == NULL)
		return false;
	if (gw_buffers_open(input, conn->source) == 0)
		return true;
	gw_source_close(t->sources, conn->source);
	conn->source = NULL;
	return false;
}

void gw_conn_close(struct gw_thread *t, int fd)
{
	struct gw_conn *conn = place(t, fd);

	gw_source_close(t->sources, conn->source);
	conn->source = NULL;
}

uint32_t gw_conn_ask(struct gw_thread *t, const h2o_req_t *req)
{
	const struct gw_conn *conn =
		place(t, h2o_socket_get_fd(req->conn->callbacks->get_socket(req->conn)));

	return gw_source_ask(t->sources, conn->source, h2o_now(t->ctx.loop));
}

struct gw_call *gw_conn_half_closed(struct gw_thread *t, int fd)
{
	struct gw_conn *conn = place(t, fd);

	if (conn == NULL)
		return NULL;
	conn->half_closed = true; /* for a request that is not read yet */
	return conn->call;
}

void gw_conn_enter(struct gw_call *c)
{
	struct gw_conn *conn;

	c->fd = h2o_socket_get_fd(c->req->conn->callbacks->get_socket(c->req->conn));
	conn = place(c->t, c->fd);
	if (conn == NULL)
		return;
	c->source = conn->source;
	if (!is_http2(c))
		conn->call = c;
}

static uint32_t resets(const struct gw_call *c, const struct gw_conn *conn)
{
	return conn->second == h2o_now(c->t->ctx.loop) / 1000 ? conn->resets : 0;
}

void gw_conn_leave(struct gw_call *c)
{
	struct gw_conn *conn = place(c->t, c->fd);

	if (conn == NULL)
		return;
	if (conn->call == c)
		conn->call = NULL;
	if (!is_http2(c) || c->complete)
		return;
	conn->resets = resets(c, conn) + 1;
	conn->second = h2o_now(c->t->ctx.loop) / 1000;
	if (conn->resets == MAX_RESETS)
		close_connection(c, GW_RESET_FLOODS);
}

bool gw_conn_is_half_closed(const struct gw_call *c)
{
	const struct gw_conn *conn = place(c->t, c->fd);

	return conn != NULL && !is_http2(c) && conn->half_closed;
}

bool gw_conn_floods(const struct gw_call *c)
{
	const struct gw_conn *conn = place(c->t, c->fd);

	return conn != NULL && resets(c, conn) >= MAX_RESETS;
}

void gw_conn_stalled(struct gw_thread *t)
{
	const uint64_t now = h2o_now(t->ctx.loop);
	struct gw_call *c;

	if (now < t->look_ms)
		return;
	t->look_ms = now + t->opt->idle_ms / 4;
	LIST_FOREACH (c, &t->calls, link)
		if (c->req != NULL && is_http2(c) && c->given_ms != 0 &&
		    now - c->given_ms > t->opt->idle_ms) {
			c->given_ms = 0; /* once is enough */
			close_connection(c, GW_STALLED);
		}
}
