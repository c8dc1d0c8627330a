/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Server for request bodies that do not pass the router: a small HTTP/1.1 receiver on the agent's
 * epoll set. A token of 128 bits per request is the only authorisation.
 */
#include "bodies.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "address.h"
#include "kvr_wire.h"

#define READS	4		   /* reads per connection and turn */
#define MOST	64u		   /* connections */
#define HEAD	1024u		   /* bytes of a request's head */
#define SILENCE UINT64_C(10000000) /* us without data before a connection is closed */
#define REST	100000u		   /* us before accepting again when resources are exhausted */
#define TOKEN	KVR_WIRE_TOKEN

struct app_body {
	TAILQ_ENTRY(app_body) link; /* in `waiting` until done, then in `done` */
	struct app_job *job;
	struct kvr_agent_request r; /* its pointers refer to members below */
	char host[256];
	void *result;
	uint64_t until_us;
	size_t held; /* bytes of its content, counted in app_bodies::bytes */
	bool taken;  /* the body was received, or is being received */
	bool done;
};

struct conn {
	int fd;	       /* -1: free */
	uint32_t have; /* bytes of the head */
	char head[HEAD + 1];
	struct app_body *body; /* body that it sends; NULL: unknown, or the request ended */
	char *data;
	size_t len, got;
	uint64_t active_us;
};

struct app_bodies {
	const struct app_bodies_ops *ops;
	int fd; /* listening */
	bool full;
	uint64_t rest_us; /* do not accept before: no descriptors or memory */
	uint32_t n;
	uint64_t bytes;
	TAILQ_HEAD(body_list, app_body) waiting, done; /* waiting: oldest first */
	struct conn conn[MOST];
};

/* ---- expected bodies ---- */

struct app_body *app_body_expect(struct app *app, struct app_job *job,
				 const struct kvr_agent_request *r)
{
	struct app_body *body = calloc(1, sizeof(*body));

	if (body == NULL)
		return NULL;
	body->job = job;
	body->r = *r;
	body->r.hashes = NULL;
	body->r.tokens = NULL;
	body->r.hints = body->r.body = NULL;
	body->r.n_hashes = body->r.n_tokens = body->r.hints_len = body->r.body_len = 0;
	if (r->bootstrap_host != NULL) {
		snprintf(body->host, sizeof(body->host), "%s", r->bootstrap_host);
		body->r.bootstrap_host = body->host;
	}
	if (r->prefill_result_len > 0) {
		body->result = malloc(r->prefill_result_len);
		if (body->result == NULL) {
			free(body);
			return NULL;
		}
		body->r.prefill_result =
			memcpy(body->result, r->prefill_result, r->prefill_result_len);
	}
	body->until_us = app->now_us + app->o.body_ms * UINT64_C(1000);
	TAILQ_INSERT_TAIL(&app->bodies->waiting, body, link);
	kvr_cell_add(&app->st.bodies_awaited, 1);
	return body;
}

const struct kvr_agent_request *app_body_request(const struct app_body *body)
{
	return &body->r;
}

/* The body was received, or will not be. */
static void set_done(struct app *app, struct app_body *body)
{
	TAILQ_REMOVE(&app->bodies->waiting, body, link);
	TAILQ_INSERT_TAIL(&app->bodies->done, body, link);
	body->done = true;
}

void app_body_drop(struct app *app, struct app_body *body)
{
	if (body == NULL)
		return;
	for (uint32_t i = 0; i < MOST; i++)
		if (app->bodies->conn[i].body == body)
			app->bodies->conn[i].body = NULL;
	app->bodies->bytes -= body->held;
	TAILQ_REMOVE(body->done ? &app->bodies->done : &app->bodies->waiting, body, link);
	free(body->result);
	free(body);
}

/* Compare in constant time, so that the time does not reveal matching digits. */
static bool is_token(const uint8_t *token, const char *hex)
{
	static const char digits[] = "0123456789abcdef";
	uint8_t differ = 0;

	for (uint32_t i = 0; i < TOKEN; i++) {
		differ |= (uint8_t)(digits[token[i] >> 4] ^ hex[2 * i]);
		differ |= (uint8_t)(digits[token[i] & 15] ^ hex[2 * i + 1]);
	}
	return differ == 0;
}

static struct app_body *find_in(const struct body_list *list, const char *hex)
{
	struct app_body *body;

	TAILQ_FOREACH (body, list, link)
		if (is_token(body->r.away_token, hex))
			return body;
	return NULL;
}

static struct app_body *find_body(const struct app *app, const char *hex)
{
	struct app_body *body = find_in(&app->bodies->waiting, hex);

	/* A request that starts over at this agent keeps its token. */
	return body != NULL ? body : find_in(&app->bodies->done, hex);
}

/* ---- connections ---- */

static void watch_listener(struct app *app, bool on)
{
	app_watch(app, EPOLL_CTL_MOD, app->bodies->fd, APP_FD_BODY, UINT32_MAX, on ? EPOLLIN : 0);
	app->bodies->full = !on;
}

static void hang_up(struct app *app, struct conn *conn)
{
	struct app_bodies *bodies = app->bodies;

	if (conn->body != NULL && !conn->body->done)
		conn->body->taken = false; /* another connection may send the body */
	close(conn->fd);
	if (conn->data != NULL)
		bodies->bytes -= conn->len;
	free(conn->data);
	*conn = (struct conn){.fd = -1};
	bodies->n--;
	if (bodies->full && bodies->fd >= 0)
		watch_listener(app, true);
}

/* Send one answer and close. A client that is still sending gets a reset, and must retry. */
static void send_answer(struct app *app, struct conn *conn, const char *status)
{
	char text[128];
	const int n =
		snprintf(text, sizeof(text),
			 "HTTP/1.1 %s\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", status);

	if (send(conn->fd, text, (size_t)n, MSG_NOSIGNAL) < 0)
		app_log(app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
			"cannot answer a client that sent a body: %s", strerror(errno));
	if (status[0] != '2')
		kvr_cell_add(&app->st.bodies_refused, 1);
	hang_up(app, conn);
}

/* Value of content-length; -1: missing or invalid. */
static int64_t content_length(const char *head)
{
	const char *line = strstr(head, "\r\n");
	char *end;

	for (; line != NULL; line = strstr(line + 2, "\r\n")) {
		if (strncasecmp(line + 2, "content-length:", 15) != 0)
			continue;
		errno = 0;
		const long long n = strtoll(line + 17, &end, 10);

		return errno == 0 && n > 0 && *end == '\r' ? n : -1;
	}
	return -1;
}

/* Handle a complete head. @return false: it was answered, and the connection is closed. */
static bool begin_body(struct app *app, struct conn *conn, size_t head_len)
{
	static const char want[] = "PUT /kvroute/body/";
	const size_t at = sizeof(want) - 1;
	const int64_t n = content_length(conn->head);
	struct app_body *body;

	if (strncmp(conn->head, want, at) != 0 ||
	    strncmp(conn->head + at + 2 * TOKEN, " HTTP/1.", 8) != 0) {
		send_answer(app, conn, "400 Bad Request");
		return false;
	}
	body = find_body(app, conn->head + at);
	if (body == NULL)
		send_answer(app, conn, "404 Not Found");
	else if (body->done)
		send_answer(app, conn, "410 Gone");
	else if (body->taken)
		send_answer(app, conn, "409 Conflict");
	else if (n < 0 || (uint64_t)n != body->r.away_len)
		send_answer(app, conn, "413 Content Too Large");
	else if (app->bodies->bytes + (uint64_t)n > app->o.bodies_bytes ||
		 (conn->data = malloc((size_t)n)) == NULL)
		send_answer(app, conn, "503 Service Unavailable");
	else {
		conn->body = body;
		conn->active_us = app->now_us; /* SILENCE limits the whole head, and then each
					     interval without data */
		body->taken = true;
		conn->len = (size_t)n;
		app->bodies->bytes += conn->len;
		conn->got = conn->have - head_len < conn->len ? conn->have - head_len : conn->len;
		memcpy(conn->data, conn->head + head_len, conn->got);
		return true;
	}
	return false;
}

static void complete_body(struct app *app, struct conn *conn)
{
	struct app_body *body = conn->body;
	char *data = conn->data;
	const size_t len = conn->len;

	conn->data = NULL;
	if (body == NULL || body->done) { /* the request ended meanwhile */
		app->bodies->bytes -= len;
		send_answer(app, conn, "404 Not Found");
	} else {
		set_done(app, body);
		body->held = len; /* until the request ends */
		conn->body = NULL;
		send_answer(app, conn, "204 No Content");
		kvr_cell_add(&app->st.bodies, 1);
		app->bodies->ops->come(body->job, data, len);
	}
	free(data);
}

static void read_head(struct app *app, struct conn *conn)
{
	const ssize_t n = recv(conn->fd, conn->head + conn->have, HEAD - conn->have, 0);
	const char *end;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		hang_up(app, conn);
		return;
	}
	conn->have += (uint32_t)n;
	conn->head[conn->have] = '\0';
	end = strstr(conn->head, "\r\n\r\n");
	if (end == NULL && (conn->have == HEAD || strlen(conn->head) < conn->have))
		send_answer(app, conn, "400 Bad Request");
	else if (end != NULL && begin_body(app, conn, (size_t)(end + 4 - conn->head)) &&
		 conn->got == conn->len)
		complete_body(app, conn);
}

static void read_body(struct app *app, struct conn *conn)
{
	ssize_t n = 1;

	/* A bounded part per turn, so that other work proceeds. */
	for (int i = 0; i < READS && conn->got < conn->len && n > 0; i++) {
		n = recv(conn->fd, conn->data + conn->got, conn->len - conn->got, 0);
		if (n > 0)
			conn->got += (size_t)n;
	}
	if (conn->got == conn->len) {
		complete_body(app, conn);
	} else if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
		hang_up(app, conn);
	} else {
		conn->active_us = app->now_us;
	}
}

/* Of the connections that have not identified their body, the one without data for longest; NULL:
 * none. */
static struct conn *find_slowest(struct app_bodies *bodies)
{
	struct conn *conn = NULL;

	for (uint32_t i = 0; i < MOST; i++)
		if (bodies->conn[i].fd >= 0 && bodies->conn[i].data == NULL &&
		    (conn == NULL || bodies->conn[i].active_us < conn->active_us))
			conn = &bodies->conn[i];
	return conn;
}

/* Accept a connection. If all places are used, one that has not identified its body is closed. */
static void add_connection(struct app *app, int fd)
{
	struct app_bodies *bodies = app->bodies;
	uint32_t at = 0;

	if (bodies->n == MOST) {
		kvr_cell_add(&app->st.bodies_refused, 1);
		hang_up(app, find_slowest(bodies));
	}
	while (bodies->conn[at].fd >= 0)
		at++;
	bodies->conn[at] = (struct conn){.fd = fd, .active_us = app->now_us};
	bodies->n++;
	if (app_watch(app, EPOLL_CTL_ADD, fd, APP_FD_BODY, at, EPOLLIN) == 0)
		return;
	kvr_cell_add(&app->st.bodies_refused, 1);
	hang_up(app, &bodies->conn[at]);
}

static void accept_some(struct app *app)
{
	struct app_bodies *bodies = app->bodies;
	int fd = 0;

	for (uint32_t i = 0;
	     i < MOST && fd >= 0 && (bodies->n < MOST || find_slowest(bodies) != NULL); i++) {
		fd = accept4(bodies->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0)
			add_connection(app, fd);
	}
	/* Without places or descriptors, stop accepting until a connection closes, or for a
	 * while. */
	if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
		bodies->rest_us = app->now_us + REST;
	if ((bodies->n == MOST && find_slowest(bodies) == NULL) || bodies->rest_us > app->now_us)
		watch_listener(app, false);
}

void app_bodies_ready(struct app *app, uint32_t index)
{
	struct app_bodies *bodies = app->bodies;

	if (index == UINT32_MAX)
		accept_some(app);
	else if (bodies->conn[index].fd >= 0 && bodies->conn[index].data != NULL)
		read_body(app, &bodies->conn[index]);
	else if (bodies->conn[index].fd >= 0)
		read_head(app, &bodies->conn[index]);
}

void app_bodies_turn(struct app *app)
{
	struct app_bodies *bodies = app->bodies;
	struct app_body *body;

	if (bodies->fd < 0)
		return;
	for (uint32_t i = 0; bodies->n > 0 && i < MOST; i++) {
		struct conn *conn = &bodies->conn[i];

		if (conn->fd >= 0 && app->now_us - conn->active_us > SILENCE)
			hang_up(app, conn);
		else if (conn->fd >= 0 && conn->data != NULL && conn->body == NULL)
			send_answer(app, conn, "404 Not Found"); /* the request ended meanwhile */
	}
	if (bodies->full && bodies->n < MOST && app->now_us >= bodies->rest_us)
		watch_listener(app, true);
	while ((body = TAILQ_FIRST(&bodies->waiting)) != NULL && app->now_us >= body->until_us) {
		set_done(app, body);
		kvr_cell_add(&app->st.bodies_missed, 1);
		bodies->ops->missed(body->job, 408, "the request body did not arrive in time");
	}
}

uint64_t app_bodies_due_us(const struct app *app)
{
	const struct app_body *body = TAILQ_FIRST(&app->bodies->waiting);

	return body != NULL ? body->until_us : UINT64_MAX;
}

/* ---- start ---- */

static int listen_at(const char *host, const char *port)
{
	struct addrinfo how = {.ai_socktype = SOCK_STREAM,
			       .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV},
			*ai;
	const int one = 1;
	int fd;

	if (getaddrinfo(host, port, &how, &ai) != 0) {
		errno = EINVAL;
		return -1;
	}
	fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (fd >= 0 && (bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, 256) < 0)) {
		const int why = errno;

		close(fd);
		errno = why;
		fd = -1;
	}
	freeaddrinfo(ai);
	return fd;
}

/* Determine the address for clients: --bodies-advertise, otherwise the listening address. @return
 * as app_bodies_start(). */
static int set_address(struct app *app)
{
	const char *said = app->o.bodies_advertise;
	struct sockaddr_storage me;
	socklen_t len = sizeof(me);
	char host[256], port[8];
	int rc;

	if (said[0] != '\0') {
		rc = agent_address_split(said, host, sizeof(host), port);
		/* Clients do not resolve names, which would block them. */
		if (rc == 0 && agent_address_reach(host) == AGENT_REACH_NAME)
			rc = -EINVAL;
		if (rc < 0)
			return rc;
	} else if (getsockname(app->bodies->fd, (struct sockaddr *)&me, &len) < 0) {
		return -errno;
	} else if (getnameinfo((struct sockaddr *)&me, len, host, sizeof(host), port, sizeof(port),
			       NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
		return -EINVAL;
	}
	return agent_address_publish(host, port, app->facing,
				     said[0] != '\0' ? AGENT_REPLACE_NONE : AGENT_REPLACE_ANY,
				     app->body_addr, sizeof(app->body_addr));
}

int app_bodies_start(struct app *app, const struct app_bodies_ops *ops)
{
	struct app_bodies *bodies = app->bodies = calloc(1, sizeof(*bodies));
	char host[256], port[8];
	int rc;

	if (bodies == NULL)
		return -ENOMEM;
	bodies->fd = -1;
	bodies->ops = ops;
	TAILQ_INIT(&bodies->waiting);
	TAILQ_INIT(&bodies->done);
	for (uint32_t i = 0; i < MOST; i++)
		bodies->conn[i].fd = -1;
	if (strcmp(app->o.bodies, "off") == 0)
		return 0;
	if (strcmp(app->o.bodies, "auto") == 0) {
		if (app->facing[0] == '\0')
			return 0; /* no route to the router: logged elsewhere */
		bodies->fd = listen_at(app->facing, "0");
	} else if (agent_address_split(app->o.bodies, host, sizeof(host), port) < 0) {
		return -EINVAL;
	} else {
		bodies->fd = listen_at(host, port);
	}
	if (bodies->fd < 0)
		return -errno;
	rc = app_watch(app, EPOLL_CTL_ADD, bodies->fd, APP_FD_BODY, UINT32_MAX, EPOLLIN);
	return rc < 0 ? rc : set_address(app);
}

void app_bodies_stop(struct app *app)
{
	struct app_bodies *bodies = app->bodies;

	if (bodies == NULL)
		return;
	for (uint32_t i = 0; i < MOST; i++)
		if (bodies->conn[i].fd >= 0)
			hang_up(app, &bodies->conn[i]);
	if (bodies->fd >= 0)
		close(bodies->fd);
	free(bodies);
	app->bodies = NULL;
}
