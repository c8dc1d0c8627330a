/* SPDX-License-Identifier: BSD-3-Clause */
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

int app_engine_init(struct app *a)
{
	struct app_engine *e = calloc(1, sizeof(*e));

	if (e == NULL)
		return -ENOMEM;
	a->eng = e;
	e->n = a->o.max_requests + 8;
	e->conn = calloc(e->n, sizeof(e->conn[0]));
	TAILQ_INIT(&e->free);
	TAILQ_INIT(&e->idle);
	TAILQ_INIT(&e->connecting);
	TAILQ_INIT(&e->busy);
	TAILQ_INIT(&e->paused);
	return e->conn != NULL ? 0 : -ENOMEM;
}

static struct conn_list *list_of(struct app_engine *e, const struct app_conn *c)
{
	return c->state == FREE		? &e->free
	       : c->state == IDLE	? &e->idle
	       : c->state == CONNECTING ? &e->connecting
	       : c->state == PAUSED	? &e->paused
					: &e->busy;
}

/* ---- epoll ---- */

static int watch_connection(struct app *a, struct app_conn *c, int op, uint32_t events)
{
	const uint32_t name = (c->uses << SLOT_BITS) | (uint32_t)(c - a->eng->conn);

	return app_watch(a, op, c->fd, APP_FD_ENGINE, name, events);
}

/* ---- states of a connection ---- */

/* Move to the list of @p state, ordered by `since_us`. */
static void move_to_state(struct app_engine *e, struct app_conn *c, enum conn_state state)
{
	struct conn_list *list;
	struct app_conn *before;

	TAILQ_REMOVE(list_of(e, c), c, link);
	c->state = (uint8_t)state;
	list = list_of(e, c);
	before = state == FREE || (state == IDLE && !c->fresh) ? NULL : TAILQ_LAST(list, conn_list);
	/* Nearly always the youngest, except after a slow connect or a retry. */
	while (before != NULL && state != IDLE && before->since_us > c->since_us)
		before = TAILQ_PREV(before, conn_list, link);
	if (before != NULL)
		TAILQ_INSERT_AFTER(list, before, c, link);
	else
		TAILQ_INSERT_HEAD(list, c, link);
}

/* Restart the inactivity limit after data were sent or received. */
static void restart_inactivity(struct app *a, struct app_conn *c)
{
	c->since_us = a->now_us;
	TAILQ_REMOVE(&a->eng->busy, c, link);
	TAILQ_INSERT_TAIL(&a->eng->busy, c, link);
}

/* Detach the request: @p c becomes a spare, or will be freed. */
static void detach_request(struct app_engine *e, struct app_conn *c)
{
	e->asks -= c->ask != NULL;
	e->spare += c->ask != NULL;
	c->ask = NULL;
}

static void hang_up(struct app *a, struct app_conn *c)
{
	if (c->fresh) /* closed without use, by limit or by the engine */
		a->eng->spare_us = a->now_us + SPARE_PAUSE_US;
	kvr_http_reader_fini(&c->reader);
	close(c->fd);
	c->uses++;
	if (c->ask != NULL)
		c->ask->conn = NULL;
	detach_request(a->eng, c);
	a->eng->spare--;
	move_to_state(a->eng, c, FREE);
}

static struct app_conn *take_free(struct app *a)
{
	struct app_engine *e = a->eng;
	struct app_conn *c = TAILQ_FIRST(&e->free);

	if (c == NULL && e->made < e->n) {
		c = &e->conn[e->made++];
		TAILQ_INSERT_TAIL(&e->free, c, link);
	}
	if (c == NULL && !TAILQ_EMPTY(&e->idle)) {
		hang_up(a, TAILQ_LAST(&e->idle, conn_list));
		c = TAILQ_FIRST(&e->free);
	}
	return c;
}

/* Start a connection. @return NULL with errno. */
static struct app_conn *open_connection(struct app *a)
{
	struct app_engine *e = a->eng;
	struct app_conn *c = take_free(a);
	const int one = 1;
	int fd, rc;

	errno = EBUSY;
	if (c == NULL)
		return NULL;
	fd = socket(e->at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return NULL;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	c->fd = fd;
	c->used = c->stale = c->fresh = false;
	c->since_us = a->now_us;
	e->spare++;
	move_to_state(e, c, CONNECTING);
	rc = connect(fd, (const struct sockaddr *)&e->at, e->at_len) < 0 && errno != EINPROGRESS
		     ? -errno
		     : watch_connection(a, c, EPOLL_CTL_ADD, EPOLLIN | EPOLLOUT);
	if (rc == 0)
		return c;
	hang_up(a, c);
	errno = -rc;
	return NULL;
}

/* Take an idle connection that is open and recent, or a spare that is connecting. */
static struct app_conn *take_spare(struct app *a)
{
	struct app_conn *c;
	char byte;

	while ((c = TAILQ_FIRST(&a->eng->idle)) != NULL && a->now_us - c->since_us < IDLE_US) {
		if (recv(c->fd, &byte, 1, MSG_PEEK) < 0 && errno == EAGAIN)
			return c;
		hang_up(a, c); /* closed by the engine; epoll has not reported it yet */
	}
	while ((c = TAILQ_FIRST(&a->eng->idle)) != NULL)
		hang_up(a, c); /* the others are older, or unused spares */
	TAILQ_FOREACH (c, &a->eng->connecting, link)
		if (c->ask == NULL)
			break;
	return c;
}

/* ---- the request ---- */

/* Send the rest of the request. Errors are detected by reading, because an answer may be
 * available. */
static void send_request(struct app *a, struct app_conn *c)
{
	const struct app_ask *ask = c->ask;
	const size_t len = ask->head_len + ask->content_len, before = c->sent;
	enum conn_state state = READING;
	ssize_t n = 0;

	while (c->sent < len && (n >= 0 || errno == EINTR)) {
		const size_t head = c->sent < ask->head_len ? c->sent : ask->head_len;
		const size_t content = c->sent - head;
		struct iovec v[2] = {{ask->head + head, ask->head_len - head},
				     {ask->content + content, ask->content_len - content}};
		const struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};

		n = sendmsg(c->fd, &m, MSG_NOSIGNAL);
		c->sent += n > 0 ? (size_t)n : 0;
	}
	if (c->sent > before)
		restart_inactivity(a, c);
	if (c->sent < len && errno == EAGAIN)
		state = SENDING;
	if (state == c->state)
		return;
	watch_connection(a, c, EPOLL_CTL_MOD, EPOLLIN | (state == SENDING ? EPOLLOUT : 0u));
	c->state = (uint8_t)state; /* in the same list */
}

/* Start a request on a connection that is connecting or was idle. */
static void begin_request(struct app *a, struct app_conn *c, struct app_ask *ask)
{
	c->ask = ask;
	a->eng->asks++;
	a->eng->spare--;
	a->eng->asked = true;
	c->sent = 0;
	c->received = c->fresh = false;
	ask->conn = c;
	kvr_http_reader_init(&c->reader, &ask->ops->answer, ask->arg, ask->is_head);
	if (c->state == CONNECTING) {
		c->since_us = a->now_us; /* gets the full --connect-ms */
		move_to_state(a->eng, c, CONNECTING);
		return;
	}
	c->since_us = a->now_us;
	move_to_state(a->eng, c, READING);
	send_request(a, c);
}

/* ---- the answer ---- */

static void end_request(struct app *a, struct app_conn *c, enum app_end how, const char *why)
{
	struct app_ask *ask = c->ask;

	hang_up(a, c);
	ask->ops->ended(ask->arg, how, why);
}

/* The answer is complete. */
static void finish_answer(struct app *a, struct app_conn *c)
{
	struct app_ask *ask = c->ask;

	if (!kvr_http_reader_keeps(&c->reader) || c->stale ||
	    c->sent < ask->head_len + ask->content_len) {
		end_request(a, c, APP_END_WELL, NULL);
		return;
	}
	kvr_http_reader_fini(&c->reader);
	c->used = true;
	c->since_us = a->now_us;
	detach_request(a->eng, c);
	ask->conn = NULL;
	move_to_state(a->eng, c, IDLE);
	ask->ops->ended(ask->arg, APP_END_WELL, NULL);
}

/* No connection. An engine that fails quickly seems idle and attracts requests, so check
 * /health. */
static void fail_request(struct app *a, struct app_ask *ask, int err)
{
	if (err == ECONNREFUSED)
		a->health.due_us = a->now_us;
	ask->ops->ended(ask->arg, APP_END_BROKEN, strerror(err));
}

/* The connection ended without an answer. The request is sent again if the connection had been idle
 * and no byte was sent: otherwise the engine may have begun to execute it. */
static void on_broken(struct app *a, struct app_conn *c, const char *why)
{
	struct app_ask *ask = c->ask;

	if (!c->used || c->sent > 0) {
		end_request(a, c, APP_END_BROKEN, why);
		return;
	}
	hang_up(a, c);
	c = open_connection(a);
	if (c != NULL)
		begin_request(a, c, ask);
	else
		fail_request(a, ask, errno);
}

static void read_answer(struct app *a, struct app_conn *c)
{
	char *p = a->eng->read;
	ssize_t n;
	int rc;

	if (c->ask == NULL) { /* only the end of the connection is possible */
		hang_up(a, c);
		return;
	}
	if (!c->ask->ops->takes(c->ask->arg)) {
		move_to_state(a->eng, c, PAUSED);
		kvr_cell_add(&a->st.paused, 1);
		watch_connection(a, c, EPOLL_CTL_DEL, 0);
		return;
	}
	do
		n = recv(c->fd, p, READ_BYTES, 0);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return;
	c->received |= n > 0;
	if (n > 0) {
		restart_inactivity(a, c);
		agent_hang_received(&a->hang, a->now_us);
	}
	rc = n > 0    ? kvr_http_reader_add(&c->reader, p, (size_t)n)
	     : n == 0 ? kvr_http_reader_end(&c->reader)
		      : -errno;
	if (n <= 0 && rc <= 0)
		a->health.due_us =
			a->now_us; /* the request may go elsewhere: check /health at once */
	if (rc > 0)
		finish_answer(a, c);
	else if (n <= 0 && !c->received)
		on_broken(a, c, "connection closed without an answer");
	else if (rc < 0)
		end_request(a, c, APP_END_BROKEN, app_answer_error(rc));
}

static void on_connected(struct app *a, struct app_conn *c)
{
	struct app_ask *ask = c->ask;
	int err = 0;
	socklen_t len = sizeof(err);

	getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &len);
	if (err != 0) {
		hang_up(a, c);
		if (ask != NULL)
			fail_request(a, ask, err);
		return;
	}
	if (ask == NULL) {
		watch_connection(a, c, EPOLL_CTL_MOD, EPOLLIN);
		c->used = true;
		move_to_state(a->eng, c, IDLE);
		return;
	}
	c->since_us = a->now_us;
	move_to_state(a->eng, c, SENDING);
	send_request(a, c);
}

/* ---- interface ---- */

void app_engine_set_address(struct app *a, const struct sockaddr *at, socklen_t len)
{
	struct app_engine *e = a->eng;
	struct app_conn *c;

	if (len > sizeof(e->at) || (len == e->at_len && memcmp(at, &e->at, len) == 0))
		return;
	memcpy(&e->at, at, len);
	e->at_len = len;
	while ((c = TAILQ_FIRST(&e->idle)) != NULL)
		hang_up(a, c);
	for (uint32_t i = 0; i < e->made; i++)
		e->conn[i].stale = true;
}

void app_engine_send(struct app *a, struct app_ask *ask)
{
	struct app_conn *c = take_spare(a);

	if (c == NULL)
		c = open_connection(a);
	if (c != NULL)
		begin_request(a, c, ask);
	else
		fail_request(a, ask, errno);
}

void app_engine_drop(struct app *a, struct app_ask *ask)
{
	if (ask->conn != NULL)
		hang_up(a, ask->conn);
}

void app_engine_resume(struct app *a, struct app_ask *ask)
{
	struct app_conn *c = ask->conn;
	int rc;

	if (c == NULL || c->state != PAUSED)
		return;
	c->since_us = a->now_us;
	move_to_state(a->eng, c, c->sent < ask->head_len + ask->content_len ? SENDING : READING);
	rc = watch_connection(a, c, EPOLL_CTL_ADD, EPOLLIN | (c->state == SENDING ? EPOLLOUT : 0u));
	if (rc < 0)
		end_request(a, c, APP_END_BROKEN, strerror(-rc));
}

void app_engine_ready(struct app *a, uint32_t name, uint32_t events)
{
	struct app_conn *c = &a->eng->conn[name & ((1u << SLOT_BITS) - 1)];

	/* An event of a previous use of the slot. */
	if (((c->uses << SLOT_BITS) ^ name) >> SLOT_BITS != 0 || c->state == FREE)
		return;
	if (c->state == CONNECTING)
		on_connected(a, c);
	else if (c->state == SENDING && (events & EPOLLOUT) != 0)
		send_request(a, c);
	else
		read_answer(a, c);
}

/* Time at which the first connection of a list reaches its limit. */
static uint64_t due_us(const struct app_conn *first, uint64_t limit_us)
{
	return first != NULL && limit_us != 0 ? first->since_us + limit_us : UINT64_MAX;
}

static uint64_t connect_due_us(const struct app *a)
{
	return due_us(TAILQ_FIRST(&a->eng->connecting), a->o.connect_ms * UINT64_C(1000));
}

static uint64_t inactivity_due_us(const struct app *a)
{
	return due_us(TAILQ_FIRST(&a->eng->busy), a->o.inactivity_s * UINT64_C(1000000));
}

uint64_t app_engine_due_us(const struct app *a)
{
	const uint64_t connect = connect_due_us(a), inactivity = inactivity_due_us(a);

	return connect < inactivity ? connect : inactivity;
}

void app_engine_turn(struct app *a)
{
	struct app_engine *e = a->eng;
	char why[64];

	while (connect_due_us(a) <= a->now_us) {
		if (TAILQ_FIRST(&e->connecting)->ask == NULL) {
			hang_up(a, TAILQ_FIRST(&e->connecting));
			continue;
		}
		snprintf(why, sizeof(why), "no connection within %u ms", a->o.connect_ms);
		end_request(a, TAILQ_FIRST(&e->connecting), APP_END_LATE, why);
	}
	while (due_us(TAILQ_LAST(&e->idle, conn_list), IDLE_US) <= a->now_us)
		hang_up(a, TAILQ_LAST(&e->idle, conn_list));
	while (inactivity_due_us(a) <= a->now_us) {
		snprintf(why, sizeof(why), "no data for %u s", a->o.inactivity_s);
		end_request(a, TAILQ_FIRST(&e->busy), APP_END_LATE, why);
	}
}

/* Connecting takes longer than other steps before a first token: not in a turn that started a
 * request, whose answer may arrive at once. One connection per turn. */
void app_engine_open_spare(struct app *a)
{
	struct app_engine *e = a->eng;
	const uint32_t share = e->asks / SPARE_RATIO,
		       most = share < SPARE_MOST ? share : SPARE_MOST;
	const bool asked = e->asked;
	struct app_conn *c;

	e->asked = false;
	if (asked || e->spare >= most || e->asks + e->spare >= a->o.max_requests ||
	    a->now_us < e->spare_us)
		return;
	c = open_connection(a);
	if (c == NULL)
		e->spare_us = a->now_us + SPARE_PAUSE_US;
	else
		c->fresh = true;
}

void app_engine_fini(struct app *a)
{
	struct app_engine *e = a->eng;

	if (e == NULL)
		return;
	for (uint32_t i = 0; i < e->made; i++)
		if (e->conn[i].state != FREE)
			hang_up(a, &e->conn[i]);
	free(e->conn);
	free(e);
	a->eng = NULL;
}
