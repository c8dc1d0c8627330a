/* SPDX-License-Identifier: BSD-3-Clause */
#include "conn.h"

#include <sys/socket.h>

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

void gw_conn_open(struct gw_thread *t, int fd)
{
	struct gw_conn *conn = place(t, fd);

	if (conn != NULL)
		*conn = (struct gw_conn){0};
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
	if (conn != NULL && !is_http2(c))
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
