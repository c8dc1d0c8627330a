/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A pool of connections in lists by state. Idle ones are reused last in, first out, and time limits
 * only need the head of a list, because each list is ordered by time.
 */
#include "engine.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <unistd.h>

#define READ_BYTES 65536u
/* Low bits of an epoll name: the slot (--max-requests allows 65,536, plus spares). High bits: use
 * count of the slot. */
#define SLOT_BITS 17u
#define IDLE_US                                                                                    \
	UINT64_C(60000000) /* maximum idle time; middleboxes may drop the connection afterwards */
#define SPARE_RATIO 4u	   /* running requests per spare connection */
#define SPARE_MOST  16u
#define SPARE_PAUSE_US                                                                             \
	UINT64_C(1000000) /* pause after the engine closed or refused a spare connection */

enum conn_state { FREE, IDLE, CONNECTING, SENDING, READING, PAUSED };

struct app_conn {
	TAILQ_ENTRY(app_conn) link; /* in the list of its state */
	struct app_ask *ask;	    /* NULL: idle, or a spare */
	uint64_t
		since_us; /* connecting: start of the attempt; busy: last data; idle: last answer */
	struct kvr_http_reader reader;
	size_t sent; /* bytes of head and content */
	int fd;
	uint32_t uses;
	uint8_t state; /* enum conn_state */
	bool used;     /* it was idle: the engine may have closed it */
	bool fresh;    /* a spare that was not used yet */
	bool received; /* part of this answer was received */
	bool stale;    /* connected to a previous address */
};

TAILQ_HEAD(conn_list, app_conn);

struct app_engine {
	struct sockaddr_storage at;
	socklen_t at_len; /* 0: unknown */
	struct app_conn *conn;
	uint32_t n, made;		   /* slots below `made` were used at least once */
	uint32_t asks, spare;		   /* with a request; without one (idle or connecting) */
	uint64_t spare_us;		   /* no spares before this time */
	bool asked;			   /* a request was started in this turn */
	struct conn_list free, idle;	   /* last used first, unused spares last */
	struct conn_list connecting, busy; /* oldest since_us first */
	struct conn_list paused;	   /* not read until the router accepts more */
	char read[READ_BYTES];
};

int app_engine_init(struct app *app)
{
	struct app_engine *engine = calloc(1, sizeof(*engine));

	if (engine == NULL)
		return -ENOMEM;
	app->eng = engine;
	engine->n = app->o.max_requests + 8;
	engine->conn = calloc(engine->n, sizeof(engine->conn[0]));
	TAILQ_INIT(&engine->free);
	TAILQ_INIT(&engine->idle);
	TAILQ_INIT(&engine->connecting);
	TAILQ_INIT(&engine->busy);
	TAILQ_INIT(&engine->paused);
	return engine->conn != NULL ? 0 : -ENOMEM;
}

static struct conn_list *list_of(struct app_engine *engine, const struct app_conn *conn)
{
	return conn->state == FREE	   ? &engine->free
	       : conn->state == IDLE	   ? &engine->idle
	       : conn->state == CONNECTING ? &engine->connecting
	       : conn->state == PAUSED	   ? &engine->paused
					   : &engine->busy;
}

/* ---- epoll ---- */

static int watch_connection(struct app *app, struct app_conn *conn, int op, uint32_t events)
{
	const uint32_t name = (conn->uses << SLOT_BITS) | (uint32_t)(conn - app->eng->conn);

	return app_watch(app, op, conn->fd, APP_FD_ENGINE, name, events);
}

/* ---- states of a connection ---- */

/* Move to the list of @p state, ordered by `since_us`. */
static void move_to_state(struct app_engine *engine, struct app_conn *conn, enum conn_state state)
{
	struct conn_list *list;
	struct app_conn *before;

	TAILQ_REMOVE(list_of(engine, conn), conn, link);
	conn->state = (uint8_t)state;
	list = list_of(engine, conn);
	before = state == FREE || (state == IDLE && !conn->fresh) ? NULL
								  : TAILQ_LAST(list, conn_list);
	/* Nearly always the youngest, except after a slow connect or a retry. */
	while (before != NULL && state != IDLE && before->since_us > conn->since_us)
		before = TAILQ_PREV(before, conn_list, link);
	if (before != NULL)
		TAILQ_INSERT_AFTER(list, before, conn, link);
	else
		TAILQ_INSERT_HEAD(list, conn, link);
}

/* Restart the inactivity limit after data were sent or received. */
static void restart_inactivity(struct app *app, struct app_conn *conn)
{
	conn->since_us = app->now_us;
	TAILQ_REMOVE(&app->eng->busy, conn, link);
	TAILQ_INSERT_TAIL(&app->eng->busy, conn, link);
}

/* Detach the request: conn becomes a spare, or will be freed. */
static void detach_request(struct app_engine *engine, struct app_conn *conn)
{
	engine->asks -= conn->ask != NULL;
	engine->spare += conn->ask != NULL;
	conn->ask = NULL;
}

static void hang_up(struct app *app, struct app_conn *conn)
{
	if (conn->fresh) /* closed without use, by limit or by the engine */
		app->eng->spare_us = app->now_us + SPARE_PAUSE_US;
	kvr_http_reader_fini(&conn->reader);
	close(conn->fd);
	conn->uses++;
	if (conn->ask != NULL)
		conn->ask->conn = NULL;
	detach_request(app->eng, conn);
	app->eng->spare--;
	move_to_state(app->eng, conn, FREE);
}

static struct app_conn *take_free(struct app *app)
{
	struct app_engine *engine = app->eng;
	struct app_conn *conn = TAILQ_FIRST(&engine->free);

	if (conn == NULL && engine->made < engine->n) {
		conn = &engine->conn[engine->made++];
		TAILQ_INSERT_TAIL(&engine->free, conn, link);
	}
	if (conn == NULL && !TAILQ_EMPTY(&engine->idle)) {
		hang_up(app, TAILQ_LAST(&engine->idle, conn_list));
		conn = TAILQ_FIRST(&engine->free);
	}
	return conn;
}

/* Start a connection. @return NULL with errno. */
static struct app_conn *open_connection(struct app *app)
{
	struct app_engine *engine = app->eng;
	struct app_conn *conn = take_free(app);
	const int one = 1;
	int fd, rc;

	errno = EBUSY;
	if (conn == NULL)
		return NULL;
	fd = socket(engine->at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return NULL;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	conn->fd = fd;
	conn->used = conn->stale = conn->fresh = false;
	conn->since_us = app->now_us;
	engine->spare++;
	move_to_state(engine, conn, CONNECTING);
	rc = connect(fd, (const struct sockaddr *)&engine->at, engine->at_len) < 0 &&
			     errno != EINPROGRESS
		     ? -errno
		     : watch_connection(app, conn, EPOLL_CTL_ADD, EPOLLIN | EPOLLOUT);
	if (rc == 0)
		return conn;
	hang_up(app, conn);
	errno = -rc;
	return NULL;
}

/* Take an idle connection that is open and recent, or a spare that is connecting. */
static struct app_conn *take_spare(struct app *app)
{
	struct app_conn *conn;
	char byte;

	while ((conn = TAILQ_FIRST(&app->eng->idle)) != NULL &&
	       app->now_us - conn->since_us < IDLE_US) {
		if (recv(conn->fd, &byte, 1, MSG_PEEK) < 0 && errno == EAGAIN)
			return conn;
		hang_up(app, conn); /* closed by the engine; epoll has not reported it yet */
	}
	while ((conn = TAILQ_FIRST(&app->eng->idle)) != NULL)
		hang_up(app, conn); /* the others are older, or unused spares */
	TAILQ_FOREACH (conn, &app->eng->connecting, link)
		if (conn->ask == NULL)
			break;
	return conn;
}

/* ---- the request ---- */

/* Send the rest of the request. Errors are detected by reading, because an answer may be
 * available. */
static void send_request(struct app *app, struct app_conn *conn)
{
	const struct app_ask *ask = conn->ask;
	const size_t len = ask->head_len + ask->content_len, before = conn->sent;
	enum conn_state state = READING;
	ssize_t n = 0;

	while (conn->sent < len && (n >= 0 || errno == EINTR)) {
		const size_t head = conn->sent < ask->head_len ? conn->sent : ask->head_len;
		const size_t content = conn->sent - head;
		struct iovec v[2] = {{ask->head + head, ask->head_len - head},
				     {ask->content_len > 0 ? ask->content + content : NULL,
				      ask->content_len - content}};
		const struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};

		n = sendmsg(conn->fd, &m, MSG_NOSIGNAL);
		conn->sent += n > 0 ? (size_t)n : 0;
	}
	if (conn->sent > before)
		restart_inactivity(app, conn);
	if (conn->sent < len && errno == EAGAIN)
		state = SENDING;
	if (state == conn->state)
		return;
	watch_connection(app, conn, EPOLL_CTL_MOD, EPOLLIN | (state == SENDING ? EPOLLOUT : 0u));
	conn->state = (uint8_t)state; /* in the same list */
}

/* Start a request on a connection that is connecting or was idle. */
static void begin_request(struct app *app, struct app_conn *conn, struct app_ask *ask)
{
	conn->ask = ask;
	app->eng->asks++;
	app->eng->spare--;
	app->eng->asked = true;
	conn->sent = 0;
	conn->received = conn->fresh = false;
	ask->conn = conn;
	kvr_http_reader_init(&conn->reader, &ask->ops->answer, ask->arg, ask->is_head);
	if (conn->state == CONNECTING) {
		conn->since_us = app->now_us; /* gets the full --connect-ms */
		move_to_state(app->eng, conn, CONNECTING);
		return;
	}
	conn->since_us = app->now_us;
	move_to_state(app->eng, conn, READING);
	send_request(app, conn);
}

/* ---- the answer ---- */

static void end_request(struct app *app, struct app_conn *conn, enum app_end how, const char *why)
{
	struct app_ask *ask = conn->ask;

	hang_up(app, conn);
	ask->ops->ended(ask->arg, how, why);
}

/* The answer is complete. */
static void finish_answer(struct app *app, struct app_conn *conn)
{
	struct app_ask *ask = conn->ask;

	if (!kvr_http_reader_keeps(&conn->reader) || conn->stale ||
	    conn->sent < ask->head_len + ask->content_len) {
		end_request(app, conn, APP_END_WELL, NULL);
		return;
	}
	kvr_http_reader_fini(&conn->reader);
	conn->used = true;
	conn->since_us = app->now_us;
	detach_request(app->eng, conn);
	ask->conn = NULL;
	move_to_state(app->eng, conn, IDLE);
	ask->ops->ended(ask->arg, APP_END_WELL, NULL);
}

/* No connection. An engine that fails quickly seems idle and attracts requests, so check
 * /health. */
static void fail_request(struct app *app, struct app_ask *ask, int err)
{
	if (err == ECONNREFUSED)
		app->health.due_us = app->now_us;
	ask->ops->ended(ask->arg, APP_END_BROKEN, strerror(err));
}

/* The connection ended without an answer. The request is sent again if the connection had been idle
 * and no byte was sent: otherwise the engine may have begun to execute it. */
static void on_broken(struct app *app, struct app_conn *conn, const char *why)
{
	struct app_ask *ask = conn->ask;

	if (!conn->used || conn->sent > 0) {
		end_request(app, conn, APP_END_BROKEN, why);
		return;
	}
	hang_up(app, conn);
	conn = open_connection(app);
	if (conn != NULL)
		begin_request(app, conn, ask);
	else
		fail_request(app, ask, errno);
}

static void read_answer(struct app *app, struct app_conn *conn)
{
	char *p = app->eng->read;
	ssize_t n;
	int rc;

	if (conn->ask == NULL) { /* only the end of the connection is possible */
		hang_up(app, conn);
		return;
	}
	if (!conn->ask->ops->takes(conn->ask->arg)) {
		move_to_state(app->eng, conn, PAUSED);
		kvr_cell_add(&app->st.paused, 1);
		watch_connection(app, conn, EPOLL_CTL_DEL, 0);
		return;
	}
	do
		n = recv(conn->fd, p, READ_BYTES, 0);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return;
	conn->received |= n > 0;
	if (n > 0) {
		restart_inactivity(app, conn);
		agent_hang_received(&app->hang, app->now_us);
	}
	rc = n > 0    ? kvr_http_reader_add(&conn->reader, p, (size_t)n)
	     : n == 0 ? kvr_http_reader_end(&conn->reader)
		      : -errno;
	if (n <= 0 && rc <= 0)
		app->health.due_us =
			app->now_us; /* the request may go elsewhere: check /health at once */
	if (rc > 0)
		finish_answer(app, conn);
	else if (n <= 0 && !conn->received)
		on_broken(app, conn, "connection closed without an answer");
	else if (rc < 0)
		end_request(app, conn, APP_END_BROKEN, app_answer_error(rc));
}

static void on_connected(struct app *app, struct app_conn *conn)
{
	struct app_ask *ask = conn->ask;
	int err = 0;
	socklen_t len = sizeof(err);

	getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &err, &len);
	if (err != 0) {
		hang_up(app, conn);
		if (ask != NULL)
			fail_request(app, ask, err);
		return;
	}
	if (ask == NULL) {
		watch_connection(app, conn, EPOLL_CTL_MOD, EPOLLIN);
		conn->used = true;
		move_to_state(app->eng, conn, IDLE);
		return;
	}
	conn->since_us = app->now_us;
	move_to_state(app->eng, conn, SENDING);
	send_request(app, conn);
}

/* ---- interface ---- */

void app_engine_set_address(struct app *app, const struct sockaddr *at, socklen_t len)
{
	struct app_engine *engine = app->eng;
	struct app_conn *conn;

	if (len > sizeof(engine->at) ||
	    (len == engine->at_len && memcmp(at, &engine->at, len) == 0))
		return;
	memcpy(&engine->at, at, len);
	engine->at_len = len;
	while ((conn = TAILQ_FIRST(&engine->idle)) != NULL)
		hang_up(app, conn);
	for (uint32_t i = 0; i < engine->made; i++)
		engine->conn[i].stale = true;
}

void app_engine_send(struct app *app, struct app_ask *ask)
{
	struct app_conn *conn = take_spare(app);

	if (conn == NULL)
		conn = open_connection(app);
	if (conn != NULL)
		begin_request(app, conn, ask);
	else
		fail_request(app, ask, errno);
}

void app_engine_drop(struct app *app, struct app_ask *ask)
{
	if (ask->conn != NULL)
		hang_up(app, ask->conn);
}

void app_engine_resume(struct app *app, struct app_ask *ask)
{
	struct app_conn *conn = ask->conn;
	int rc;

	if (conn == NULL || conn->state != PAUSED)
		return;
	conn->since_us = app->now_us;
	move_to_state(app->eng, conn,
		      conn->sent < ask->head_len + ask->content_len ? SENDING : READING);
	rc = watch_connection(app, conn, EPOLL_CTL_ADD,
			      EPOLLIN | (conn->state == SENDING ? EPOLLOUT : 0u));
	if (rc < 0)
		end_request(app, conn, APP_END_BROKEN, strerror(-rc));
}

void app_engine_ready(struct app *app, uint32_t name, uint32_t events)
{
	struct app_conn *conn = &app->eng->conn[name & ((1u << SLOT_BITS) - 1)];

	/* An event of a previous use of the slot. */
	if (((conn->uses << SLOT_BITS) ^ name) >> SLOT_BITS != 0 || conn->state == FREE)
		return;
	if (conn->state == CONNECTING)
		on_connected(app, conn);
	else if (conn->state == SENDING && (events & EPOLLOUT) != 0)
		send_request(app, conn);
	else
		read_answer(app, conn);
}

/* Time at which the first connection of a list reaches its limit. */
static uint64_t due_us(const struct app_conn *first, uint64_t limit_us)
{
	return first != NULL && limit_us != 0 ? first->since_us + limit_us : UINT64_MAX;
}

static uint64_t connect_due_us(const struct app *app)
{
	return due_us(TAILQ_FIRST(&app->eng->connecting), app->o.connect_ms * UINT64_C(1000));
}

static uint64_t inactivity_due_us(const struct app *app)
{
	return due_us(TAILQ_FIRST(&app->eng->busy), app->o.inactivity_s * UINT64_C(1000000));
}

uint64_t app_engine_due_us(const struct app *app)
{
	const uint64_t connect = connect_due_us(app), inactivity = inactivity_due_us(app);

	return connect < inactivity ? connect : inactivity;
}

void app_engine_turn(struct app *app)
{
	struct app_engine *engine = app->eng;
	char why[64];

	while (connect_due_us(app) <= app->now_us) {
		if (TAILQ_FIRST(&engine->connecting)->ask == NULL) {
			hang_up(app, TAILQ_FIRST(&engine->connecting));
			continue;
		}
		snprintf(why, sizeof(why), "no connection within %u ms", app->o.connect_ms);
		end_request(app, TAILQ_FIRST(&engine->connecting), APP_END_LATE, why);
	}
	while (due_us(TAILQ_LAST(&engine->idle, conn_list), IDLE_US) <= app->now_us)
		hang_up(app, TAILQ_LAST(&engine->idle, conn_list));
	while (inactivity_due_us(app) <= app->now_us) {
		snprintf(why, sizeof(why), "no data for %u s", app->o.inactivity_s);
		end_request(app, TAILQ_FIRST(&engine->busy), APP_END_LATE, why);
	}
}

/* Connecting takes longer than other steps before a first token: not in a turn that started a
 * request, whose answer may arrive at once. One connection per turn. */
void app_engine_open_spare(struct app *app)
{
	struct app_engine *engine = app->eng;
	const uint32_t share = engine->asks / SPARE_RATIO,
		       most = share < SPARE_MOST ? share : SPARE_MOST;
	const bool asked = engine->asked;
	struct app_conn *conn;

	engine->asked = false;
	if (asked || engine->spare >= most || engine->asks + engine->spare >= app->o.max_requests ||
	    app->now_us < engine->spare_us)
		return;
	conn = open_connection(app);
	if (conn == NULL)
		engine->spare_us = app->now_us + SPARE_PAUSE_US;
	else
		conn->fresh = true;
}

void app_engine_fini(struct app *app)
{
	struct app_engine *engine = app->eng;

	if (engine == NULL)
		return;
	for (uint32_t i = 0; i < engine->made; i++)
		if (engine->conn[i].state != FREE)
			hang_up(app, &engine->conn[i]);
	free(engine->conn);
	free(engine);
	app->eng = NULL;
}
