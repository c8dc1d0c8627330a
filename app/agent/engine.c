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
/* Of a name: which one (--max-requests allows 65,536, and some); above: which of its lives. */
#define SLOT_BITS  17u
#define REST_US	   UINT64_C(60000000) /* idle for so long: what lies between may have forgotten it */
#define AHEAD_OF   4u		      /* requests under way, for each connection opened ahead */
#define AHEAD_MOST 16u
#define LEFT_US	   UINT64_C(1000000) /* who did not want one that was opened ahead is left alone */

enum conn_state { FREE, IDLE, CONNECTING, SENDING, READING, PAUSED };

struct app_conn {
	TAILQ_ENTRY(app_conn) link; /* of the list that its state says */
	struct app_ask *ask;	    /* NULL: idle, or opened ahead */
	uint64_t
		since_us; /* connecting: start of the attempt; busy: last data; idle: last answer */
	struct kvr_http_reader reader;
	size_t sent; /* of head and content */
	int fd;
	uint32_t life;
	uint8_t state; /* enum conn_state */
	bool used;     /* it has been idle: the engine may have closed it */
	bool fresh;    /* opened ahead, and not asked yet */
	bool heard;    /* something of this one has come */
	bool stale;    /* to where the engine was */
};

TAILQ_HEAD(conn_list, app_conn);

struct app_engine {
	struct sockaddr_storage at;
	socklen_t at_len; /* 0: not known */
	struct app_conn *conn;
	uint32_t n, made;	     /* those below `made` have been used once */
	uint32_t asks, spare;	     /* with a request; idle, or opened ahead and connecting */
	uint64_t ahead_us;	     /* from then on they are opened ahead again */
	bool asked;		     /* since the last turn */
	struct conn_list free, idle; /* last used first, those opened ahead last */
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

static int watch(struct app *a, struct app_conn *c, int op, uint32_t events)
{
	const uint32_t name = (c->life << SLOT_BITS) | (uint32_t)(c - a->eng->conn);

	return app_watch(a, op, c->fd, APP_FD_ENGINE, name, events);
}

/* ---- lives of a connection ---- */

/* Into the list of @p state, by its `since_us`. */
static void enter(struct app_engine *e, struct app_conn *c, enum conn_state state)
{
	struct conn_list *list;
	struct app_conn *before;

	TAILQ_REMOVE(list_of(e, c), c, link);
	c->state = (uint8_t)state;
	list = list_of(e, c);
	before = state == FREE || (state == IDLE && !c->fresh) ? NULL : TAILQ_LAST(list, conn_list);
	/* All but who comes from a slow connection, or goes once more, is the youngest. */
	while (before != NULL && state != IDLE && before->since_us > c->since_us)
		before = TAILQ_PREV(before, conn_list, link);
	if (before != NULL)
		TAILQ_INSERT_AFTER(list, before, c, link);
	else
		TAILQ_INSERT_HEAD(list, c, link);
}

/* Data were sent or received: the inactivity limit starts again. */
static void restart_inactivity(struct app *a, struct app_conn *c)
{
	c->since_us = a->now_us;
	TAILQ_REMOVE(&a->eng->busy, c, link);
	TAILQ_INSERT_TAIL(&a->eng->busy, c, link);
}

/* @p c has no request any more: it is spare, or will be free. */
static void leave(struct app_engine *e, struct app_conn *c)
{
	e->asks -= c->ask != NULL;
	e->spare += c->ask != NULL;
	c->ask = NULL;
}

static void hang_up(struct app *a, struct app_conn *c)
{
	if (c->fresh) /* by itself, or the engine did */
		a->eng->ahead_us = a->now_us + LEFT_US;
	kvr_http_reader_fini(&c->reader);
	close(c->fd);
	c->life++;
	if (c->ask != NULL)
		c->ask->conn = NULL;
	leave(a->eng, c);
	a->eng->spare--;
	enter(a->eng, c, FREE);
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

/* @return NULL with errno. */
static struct app_conn *dial(struct app *a)
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
	enter(e, c, CONNECTING);
	rc = connect(fd, (const struct sockaddr *)&e->at, e->at_len) < 0 && errno != EINPROGRESS
		     ? -errno
		     : watch(a, c, EPOLL_CTL_ADD, EPOLLIN | EPOLLOUT);
	if (rc == 0)
		return c;
	hang_up(a, c);
	errno = -rc;
	return NULL;
}

/* One that is open, and not for too long, or that will be soon. */
static struct app_conn *take_spare(struct app *a)
{
	struct app_conn *c;
	char byte;

	while ((c = TAILQ_FIRST(&a->eng->idle)) != NULL && a->now_us - c->since_us < REST_US) {
		if (recv(c->fd, &byte, 1, MSG_PEEK) < 0 && errno == EAGAIN)
			return c;
		hang_up(a, c); /* the engine has closed it, of which the loop has not heard yet */
	}
	while ((c = TAILQ_FIRST(&a->eng->idle)) != NULL)
		hang_up(a, c); /* the others are older, or have not been asked yet */
	TAILQ_FOREACH (c, &a->eng->connecting, link)
		if (c->ask == NULL)
			break;
	return c;
}

/* ---- the request ---- */

/* What is left of it. An error is seen when the answer is read, which may be there already. */
static void tell(struct app *a, struct app_conn *c)
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
	watch(a, c, EPOLL_CTL_MOD, EPOLLIN | (state == SENDING ? EPOLLOUT : 0u));
	c->state = (uint8_t)state; /* of the same list */
}

/* @p c is connecting, or was idle. */
static void begin(struct app *a, struct app_conn *c, struct app_ask *ask)
{
	c->ask = ask;
	a->eng->asks++;
	a->eng->spare--;
	a->eng->asked = true;
	c->sent = 0;
	c->heard = c->fresh = false;
	ask->conn = c;
	kvr_http_reader_init(&c->reader, &ask->ops->answer, ask->arg, ask->is_head);
	if (c->state == CONNECTING) {
		c->since_us = a->now_us; /* an attempt of its own, though it has begun already */
		enter(a->eng, c, CONNECTING);
		return;
	}
	c->since_us = a->now_us;
	enter(a->eng, c, READING);
	tell(a, c);
}

/* ---- the answer ---- */

static void end(struct app *a, struct app_conn *c, enum app_end how, const char *why)
{
	struct app_ask *ask = c->ask;

	hang_up(a, c);
	ask->ops->ended(ask->arg, how, why);
}

/* The answer is whole. */
static void finish(struct app *a, struct app_conn *c)
{
	struct app_ask *ask = c->ask;

	if (!kvr_http_reader_keeps(&c->reader) || c->stale ||
	    c->sent < ask->head_len + ask->content_len) {
		end(a, c, APP_END_WELL, NULL);
		return;
	}
	kvr_http_reader_fini(&c->reader);
	c->used = true;
	c->since_us = a->now_us;
	leave(a->eng, c);
	ask->conn = NULL;
	enter(a->eng, c, IDLE);
	ask->ops->ended(ask->arg, APP_END_WELL, NULL);
}

/* No connection is to be had. Who fails at once looks idle, and draws requests: ask /health. */
static void no_way(struct app *a, struct app_ask *ask, int err)
{
	if (err == ECONNREFUSED)
		a->health.due_us = a->now_us;
	ask->ops->ended(ask->arg, APP_END_BROKEN, strerror(err));
}

/* It has ended without an answer. The request goes once more when it was to go over a connection
 * that was idle, and none of it has been sent: an engine that may have a byte of it may have begun
 * with it. */
static void broken(struct app *a, struct app_conn *c, const char *why)
{
	struct app_ask *ask = c->ask;

	if (!c->used || c->sent > 0) {
		end(a, c, APP_END_BROKEN, why);
		return;
	}
	hang_up(a, c);
	c = dial(a);
	if (c != NULL)
		begin(a, c, ask);
	else
		no_way(a, ask, errno);
}

static void hear(struct app *a, struct app_conn *c)
{
	char *p = a->eng->read;
	ssize_t n;
	int rc;

	if (c->ask == NULL) { /* nothing can come but its end */
		hang_up(a, c);
		return;
	}
	if (!c->ask->ops->takes(c->ask->arg)) {
		enter(a->eng, c, PAUSED);
		kvr_cell_add(&a->st.paused, 1);
		watch(a, c, EPOLL_CTL_DEL, 0);
		return;
	}
	do
		n = recv(c->fd, p, READ_BYTES, 0);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return;
	c->heard |= n > 0;
	if (n > 0) {
		restart_inactivity(a, c);
		agent_quiet_heard(&a->quiet, a->now_us);
	}
	rc = n > 0    ? kvr_http_reader_add(&c->reader, p, (size_t)n)
	     : n == 0 ? kvr_http_reader_end(&c->reader)
		      : -errno;
	if (n <= 0 && rc <= 0)
		a->health.due_us = a->now_us; /* what goes elsewhere is not to come back */
	if (rc > 0)
		finish(a, c);
	else if (n <= 0 && !c->heard)
		broken(a, c, "it hung up without an answer");
	else if (rc < 0)
		end(a, c, APP_END_BROKEN, app_answer_why(rc));
}

static void connected(struct app *a, struct app_conn *c)
{
	struct app_ask *ask = c->ask;
	int err = 0;
	socklen_t len = sizeof(err);

	getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &len);
	if (err != 0) {
		hang_up(a, c);
		if (ask != NULL)
			no_way(a, ask, err);
		return;
	}
	if (ask == NULL) {
		watch(a, c, EPOLL_CTL_MOD, EPOLLIN);
		c->used = true;
		enter(a->eng, c, IDLE);
		return;
	}
	c->since_us = a->now_us;
	enter(a->eng, c, SENDING);
	tell(a, c);
}

/* ---- outside ---- */

void app_engine_at(struct app *a, const struct sockaddr *at, socklen_t len)
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

void app_engine_ask(struct app *a, struct app_ask *ask)
{
	struct app_conn *c = take_spare(a);

	if (c == NULL)
		c = dial(a);
	if (c != NULL)
		begin(a, c, ask);
	else
		no_way(a, ask, errno);
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
	enter(a->eng, c, c->sent < ask->head_len + ask->content_len ? SENDING : READING);
	rc = watch(a, c, EPOLL_CTL_ADD, EPOLLIN | (c->state == SENDING ? EPOLLOUT : 0u));
	if (rc < 0)
		end(a, c, APP_END_BROKEN, strerror(-rc));
}

void app_engine_ready(struct app *a, uint32_t name, uint32_t events)
{
	struct app_conn *c = &a->eng->conn[name & ((1u << SLOT_BITS) - 1)];

	/* What was told of a life before this one is over. */
	if (((c->life << SLOT_BITS) ^ name) >> SLOT_BITS != 0 || c->state == FREE)
		return;
	if (c->state == CONNECTING)
		connected(a, c);
	else if (c->state == SENDING && (events & EPOLLOUT) != 0)
		tell(a, c);
	else
		hear(a, c);
}

/* When the first connection of a list reaches its limit. */
static uint64_t due(const struct app_conn *first, uint64_t limit_us)
{
	return first != NULL && limit_us != 0 ? first->since_us + limit_us : UINT64_MAX;
}

static uint64_t connect_due_us(const struct app *a)
{
	return due(TAILQ_FIRST(&a->eng->connecting), a->o.connect_ms * UINT64_C(1000));
}

static uint64_t inactivity_due_us(const struct app *a)
{
	return due(TAILQ_FIRST(&a->eng->busy), a->o.inactivity_s * UINT64_C(1000000));
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
		end(a, TAILQ_FIRST(&e->connecting), APP_END_LATE, why);
	}
	while (due(TAILQ_LAST(&e->idle, conn_list), REST_US) <= a->now_us)
		hang_up(a, TAILQ_LAST(&e->idle, conn_list));
	while (inactivity_due_us(a) <= a->now_us) {
		snprintf(why, sizeof(why), "no data for %u s", a->o.inactivity_s);
		end(a, TAILQ_FIRST(&e->busy), APP_END_LATE, why);
	}
}

/* To open one takes longer than what else a first token waits for here: not in a turn that has
 * asked, whose answer may come at once. One a turn. */
void app_engine_ahead(struct app *a)
{
	struct app_engine *e = a->eng;
	const uint32_t share = e->asks / AHEAD_OF, most = share < AHEAD_MOST ? share : AHEAD_MOST;
	const bool asked = e->asked;
	struct app_conn *c;

	e->asked = false;
	if (asked || e->spare >= most || e->asks + e->spare >= a->o.max_requests ||
	    a->now_us < e->ahead_us)
		return;
	c = dial(a);
	if (c == NULL)
		e->ahead_us = a->now_us + LEFT_US;
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
