/* SPDX-License-Identifier: BSD-3-Clause */
/* Limits per connection, checked by lists that are ordered by time. */
#include "conn.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <h2o/http2.h>

#include "buffers.h"
#include "source.h"
#include "streams.h"

#define SPARE_MS 5000u /* turns may be long */
#define MAX_RESETS                                                                                 \
	(2 * GW_MAX_STREAMS) /* so that a connection's end does not look like a flood              \
			      */

/* Place of a descriptor; NULL: none. */
static struct gw_conn *place_of(const struct gw_thread *thread, int fd)
{
	return fd >= 0 && (uint32_t)fd < thread->n_fds ? &thread->by_fd[fd] : NULL;
}

static bool is_http2(const struct gw_call *call)
{
	return call->req->version >= 0x200;
}

/* libh2o closes it, and disposes of its requests, at its next read or write. */
static void close_connection(struct gw_call *call, enum gw_counter why)
{
	GW_COUNT(call->thread, why);
	shutdown(call->fd, SHUT_RDWR);
}

/* Send an error to a client that may not have sent a request, and need not read it. */
static void send_error(int fd, enum gw_fault fault, const char *reason)
{
	const struct gw_error *e = gw_error_fault(fault);
	char body[512], text[768], retry[32] = "";
	const size_t len = gw_error_json(e, gw_error_text(fault), body, sizeof(body));
	int n;

	if (e->retry_s > 0)
		snprintf(retry, sizeof(retry), "retry-after: %u\r\n", e->retry_s);
	n = snprintf(
		text, sizeof(text),
		"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\n%sconnection: close\r\ncontent-length: %zu\r\n\r\n%s",
		e->status, reason, retry, len, body);
	if (send(fd, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) == n)
		shutdown(fd, SHUT_WR);
}

/* ---- time limits ---- */

static void turn_to(struct gw_conn *conn, enum gw_conn_state state)
{
	struct gw_thread *thread = conn->thread;

	if (conn->state == GW_CONN_SILENT || conn->state == GW_CONN_COMES)
		TAILQ_REMOVE(&thread->coming, conn, link);
	else if (conn->state == GW_CONN_IDLE)
		TAILQ_REMOVE(&thread->idle, conn, link);
	conn->state = state;
	conn->since_ms = gw_now_ms();
	conn->had = state == GW_CONN_COMES ? (*conn->input)->size : 0;
	if (state == GW_CONN_SILENT || state == GW_CONN_COMES)
		TAILQ_INSERT_TAIL(&thread->coming, conn, link);
	else if (state == GW_CONN_IDLE)
		TAILQ_INSERT_TAIL(&thread->idle, conn, link);
}

/* libh2o is about to read there. */
static void on_read(void *arg)
{
	struct gw_conn *conn = arg;

	if (conn->state == GW_CONN_SILENT || conn->state == GW_CONN_IDLE)
		turn_to(conn, GW_CONN_COMES);
}

static void on_answered(void *holder)
{
	struct gw_conn *conn = *(struct gw_conn **)holder;

	if (conn->state == GW_CONN_RUNS)
		turn_to(conn, GW_CONN_IDLE);
}

void gw_conn_runs(struct gw_thread *thread, h2o_req_t *req)
{
	struct gw_conn *conn =
		place_of(thread, h2o_socket_get_fd(req->conn->callbacks->get_socket(req->conn)));
	struct gw_conn **holder;

	if (req->version >= 0x200 || conn == NULL)
		return;
	turn_to(conn, GW_CONN_RUNS);
	holder = h2o_mem_alloc_shared(&req->pool, sizeof(*holder), on_answered);
	*holder = conn;
}

/* A connection starts as HTTP/1 until libh2o detects its protocol. */
void h2o_http2_accept(h2o_accept_ctx_t *ctx, h2o_socket_t *sock, struct timeval connected_at)
{
	static __thread void (*fn)(h2o_accept_ctx_t * ctx, h2o_socket_t * sock,
				   struct timeval connected_at);
	struct gw_thread *thread = H2O_STRUCT_FROM_MEMBER(struct gw_thread, ctx, ctx->ctx);

	if (fn == NULL)
		*(void **)&fn = dlsym(RTLD_NEXT, "h2o_http2_accept");
	if (fn == NULL)
		abort(); /* cannot happen: libh2o is linked */
	turn_to(place_of(thread, h2o_socket_get_fd(sock)), GW_CONN_HTTP2);
	fn(ctx, sock, connected_at);
}

uint64_t gw_conn_longest(const struct gw_options *options)
{
	return (uint64_t)options->idle_ms + 2 * (uint64_t)options->header_ms + SPARE_MS +
	       (uint64_t)options->body_bytes * 1000 / GW_SLOWEST;
}

/* Expired: libh2o reads the end of the client's data, and closes it. */
static void close_late(struct gw_conn *conn)
{
	const int fd = (int)(conn - conn->thread->by_fd);

	if (conn->state == GW_CONN_COMES &&
	    (*conn->input)->size - conn->had >= gw_grows(conn->thread->opt)) {
		turn_to(conn, GW_CONN_COMES);
		return;
	}
	if (conn->state == GW_CONN_COMES) {
		GW_COUNT(conn->thread, GW_SLOW_REQUESTS);
		send_error(fd, GW_REQUEST_SLOW, "Request Timeout");
	}
	turn_to(conn, GW_CONN_NONE);
	shutdown(fd, SHUT_RDWR);
}

bool gw_conn_make_room(struct gw_thread *thread)
{
	struct gw_conn *conn = TAILQ_FIRST(&thread->idle);

	if (conn == NULL)
		return false;
	GW_COUNT(thread, GW_CONNECTIONS_TRADED);
	close_late(conn);
	return true;
}

/* The beginning of the next request may have arrived together with the previous one. It is then in
 * the buffer when that one is answered, and on_read() does not see it. */
static void find_parts(struct gw_thread *thread, uint64_t now)
{
	struct gw_conn *conn, *before;

	for (conn = TAILQ_LAST(&thread->idle, gw_conns);
	     conn != NULL && conn->since_ms >= thread->parts_ms; conn = before) {
		before = TAILQ_PREV(conn, gw_conns, link);
		if ((*conn->input)->size > 0)
			turn_to(conn, GW_CONN_COMES);
	}
	thread->parts_ms = now;
}

void gw_conn_turn(struct gw_thread *thread)
{
	const uint64_t now = gw_now_ms();
	struct gw_conn *conn;

	find_parts(thread, now);
	while ((conn = TAILQ_FIRST(&thread->coming)) != NULL &&
	       conn->since_ms + thread->opt->header_ms <= now)
		close_late(conn);
	while ((conn = TAILQ_FIRST(&thread->idle)) != NULL &&
	       conn->since_ms + thread->opt->idle_ms <= now)
		close_late(conn);
}

bool gw_conn_comes(const struct gw_thread *thread)
{
	const struct gw_conn *conn;

	TAILQ_FOREACH (conn, &thread->coming, link)
		if (conn->state == GW_CONN_COMES)
			return true;
	return !TAILQ_EMPTY(&thread->streams);
}

void gw_conns_end(struct gw_thread *thread)
{
	for (uint32_t fd = 0; fd < thread->used_fds; fd++) {
		const struct gw_conn *conn = &thread->by_fd[fd];

		if (conn->source == NULL)
			continue;
		if (conn->state == GW_CONN_COMES)
			send_error((int)fd, GW_STOPPING, "Service Unavailable");
		shutdown((int)fd, SHUT_RDWR);
	}
}

/* ---- client addresses ---- */

bool gw_conn_open(struct gw_thread *thread, int fd, h2o_buffer_t **input)
{
	struct gw_conn *conn = place_of(thread, fd);
	struct sockaddr_storage from = {0};
	socklen_t len = sizeof(from);

	if (conn == NULL)
		return false;
	/* A client that closed the connection has no address: its family is unspecified. */
	if (getpeername(fd, (struct sockaddr *)&from, &len) < 0)
		from.ss_family = AF_UNSPEC;
	*conn = (struct gw_conn){.thread = thread,
				 .input = input,
				 .source =
					 gw_source_open(thread->sources, (struct sockaddr *)&from)};
	if (conn->source == NULL && errno == EBUSY) {
		GW_COUNT(thread, GW_SOURCE_CONNECTIONS);
		send_error(fd, GW_SOURCE_SHARE, "Too Many Requests");
	}
	if (conn->source == NULL)
		return false;
	if (gw_buffers_open(input, conn->source, on_read, conn) < 0) {
		gw_source_close(thread->sources, conn->source);
		conn->source = NULL;
		return false;
	}
	if (thread->used_fds <= (uint32_t)fd)
		thread->used_fds = (uint32_t)fd + 1;
	turn_to(conn, GW_CONN_SILENT);
	return true;
}

void gw_conn_close(struct gw_thread *thread, int fd)
{
	struct gw_conn *conn = place_of(thread, fd);

	turn_to(conn, GW_CONN_NONE);
	gw_source_close(thread->sources, conn->source);
	conn->source = NULL;
}

uint32_t gw_conn_ask(struct gw_thread *thread, const h2o_req_t *req)
{
	const struct gw_conn *conn =
		place_of(thread, h2o_socket_get_fd(req->conn->callbacks->get_socket(req->conn)));

	return gw_source_ask(thread->sources, conn->source, gw_now_ms());
}

struct gw_call *gw_conn_half_closed(struct gw_thread *thread, int fd)
{
	struct gw_conn *conn = place_of(thread, fd);

	if (conn == NULL)
		return NULL;
	conn->half_closed = true; /* for a request that is not read yet */
	return conn->call;
}

void gw_conn_enter(struct gw_call *call)
{
	struct gw_conn *conn;

	call->fd = h2o_socket_get_fd(call->req->conn->callbacks->get_socket(call->req->conn));
	conn = place_of(call->thread, call->fd);
	if (conn == NULL)
		return;
	call->source = conn->source;
	if (!is_http2(call))
		conn->call = call;
}

static uint32_t count_resets(const struct gw_call *call, const struct gw_conn *conn)
{
	return conn->second == gw_now_ms() / 1000 ? conn->resets : 0;
}

void gw_conn_leave(struct gw_call *call)
{
	struct gw_conn *conn = place_of(call->thread, call->fd);

	if (conn == NULL)
		return;
	if (conn->call == call)
		conn->call = NULL;
	if (!is_http2(call) || call->complete)
		return;
	conn->resets = count_resets(call, conn) + 1;
	conn->second = gw_now_ms() / 1000;
	if (conn->resets == MAX_RESETS)
		close_connection(call, GW_RESET_FLOODS);
}

bool gw_conn_is_half_closed(const struct gw_call *call)
{
	const struct gw_conn *conn = place_of(call->thread, call->fd);

	return conn != NULL && !is_http2(call) && conn->half_closed;
}

bool gw_conn_floods(const struct gw_call *call)
{
	const struct gw_conn *conn = place_of(call->thread, call->fd);

	return conn != NULL && count_resets(call, conn) >= MAX_RESETS;
}

/* Return true if the client received data since the last check. */
static bool has_progress(struct gw_call *call, uint64_t now)
{
	const size_t before = call->given_left;

	call->given_left = gw_stream_left(call->req);
	if (call->given_left >= before)
		return false;
	call->given_ms = now;
	return true;
}

void gw_conn_stalled(struct gw_thread *thread)
{
	const uint64_t now = gw_now_ms();
	struct gw_call *call, *next;

	if (now < thread->look_ms)
		return;
	thread->look_ms = now + thread->opt->idle_ms / 4;
	for (call = LIST_FIRST(&thread->calls); call != NULL; call = next) {
		next = LIST_NEXT(call, link);
		if (call->req == NULL || !is_http2(call) || call->given_ms == 0 ||
		    has_progress(call, now) || call->given_ms + thread->opt->idle_ms >= now)
			continue;
		call->given_ms = 0; /* once is enough */
		GW_COUNT(thread, GW_STALLED);
		thread->touched = true;
		gw_stream_reset(call->req); /* which may end the call */
	}
}
