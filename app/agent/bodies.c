/* SPDX-License-Identifier: BSD-3-Clause */
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

struct app_body *app_body_expect(struct app *a, struct app_job *j,
				 const struct kvr_agent_request *r)
{
	struct app_body *b = calloc(1, sizeof(*b));

	if (b == NULL)
		return NULL;
	b->job = j;
	b->r = *r;
	b->r.hashes = NULL;
	b->r.tokens = NULL;
	b->r.hints = b->r.body = NULL;
	b->r.n_hashes = b->r.n_tokens = b->r.hints_len = b->r.body_len = 0;
	if (r->bootstrap_host != NULL) {
		snprintf(b->host, sizeof(b->host), "%s", r->bootstrap_host);
		b->r.bootstrap_host = b->host;
	}
	if (r->prefill_result_len > 0) {
		b->result = malloc(r->prefill_result_len);
		if (b->result == NULL) {
			free(b);
			return NULL;
		}
		b->r.prefill_result = memcpy(b->result, r->prefill_result, r->prefill_result_len);
	}
	b->until_us = a->now_us + a->o.body_ms * UINT64_C(1000);
	TAILQ_INSERT_TAIL(&a->bodies->waiting, b, link);
	kvr_cell_add(&a->st.bodies_awaited, 1);
	return b;
}

const struct kvr_agent_request *app_body_request(const struct app_body *b)
{
	return &b->r;
}

/* The body was received, or will not be. */
static void set_done(struct app *a, struct app_body *b)
{
	TAILQ_REMOVE(&a->bodies->waiting, b, link);
	TAILQ_INSERT_TAIL(&a->bodies->done, b, link);
	b->done = true;
}

void app_body_drop(struct app *a, struct app_body *b)
{
	if (b == NULL)
		return;
	for (uint32_t i = 0; i < MOST; i++)
		if (a->bodies->conn[i].body == b)
			a->bodies->conn[i].body = NULL;
	a->bodies->bytes -= b->held;
	TAILQ_REMOVE(b->done ? &a->bodies->done : &a->bodies->waiting, b, link);
	free(b->result);
	free(b);
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
	struct app_body *b;

	TAILQ_FOREACH (b, list, link)
		if (is_token(b->r.away_token, hex))
			return b;
	return NULL;
}

static struct app_body *find_body(const struct app *a, const char *hex)
{
	struct app_body *b = find_in(&a->bodies->waiting, hex);

	/* A request that starts over at this agent keeps its token. */
	return b != NULL ? b : find_in(&a->bodies->done, hex);
}

/* ---- connections ---- */

static void watch_listener(struct app *a, bool on)
{
	app_watch(a, EPOLL_CTL_MOD, a->bodies->fd, APP_FD_BODY, UINT32_MAX, on ? EPOLLIN : 0);
	a->bodies->full = !on;
}

static void hang_up(struct app *a, struct conn *c)
{
	struct app_bodies *s = a->bodies;

	if (c->body != NULL && !c->body->done)
		c->body->taken = false; /* another connection may send the body */
	close(c->fd);
	if (c->data != NULL)
		s->bytes -= c->len;
	free(c->data);
	*c = (struct conn){.fd = -1};
	s->n--;
	if (s->full && s->fd >= 0)
		watch_listener(a, true);
}

/* Send one answer and close. A client that is still sending gets a reset, and must retry. */
static void send_answer(struct app *a, struct conn *c, const char *status)
{
	char text[128];
	const int n =
		snprintf(text, sizeof(text),
			 "HTTP/1.1 %s\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", status);

	if (send(c->fd, text, (size_t)n, MSG_NOSIGNAL) < 0)
		app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
			"cannot answer a client that sent a body: %s", strerror(errno));
	if (status[0] != '2')
		kvr_cell_add(&a->st.bodies_refused, 1);
	hang_up(a, c);
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
static bool begin_body(struct app *a, struct conn *c, size_t head_len)
{
	static const char want[] = "PUT /kvroute/body/";
	const size_t at = sizeof(want) - 1;
	const int64_t n = content_length(c->head);
	struct app_body *b;

	if (strncmp(c->head, want, at) != 0 ||
	    strncmp(c->head + at + 2 * TOKEN, " HTTP/1.", 8) != 0) {
		send_answer(a, c, "400 Bad Request");
		return false;
	}
	b = find_body(a, c->head + at);
	if (b == NULL)
		send_answer(a, c, "404 Not Found");
	else if (b->done)
		send_answer(a, c, "410 Gone");
	else if (b->taken)
		send_answer(a, c, "409 Conflict");
	else if (n < 0 || (uint64_t)n != b->r.away_len)
		send_answer(a, c, "413 Content Too Large");
	else if (a->bodies->bytes + (uint64_t)n > a->o.bodies_bytes ||
		 (c->data = malloc((size_t)n)) == NULL)
		send_answer(a, c, "503 Service Unavailable");
	else {
		c->body = b;
		c->active_us = a->now_us; /* SILENCE limits the whole head, and then each interval
					     without data */
		b->taken = true;
		c->len = (size_t)n;
		a->bodies->bytes += c->len;
		c->got = c->have - head_len < c->len ? c->have - head_len : c->len;
		memcpy(c->data, c->head + head_len, c->got);
		return true;
	}
	return false;
}

static void complete_body(struct app *a, struct conn *c)
{
	struct app_body *b = c->body;
	char *data = c->data;
	const size_t len = c->len;

	c->data = NULL;
	if (b == NULL || b->done) { /* the request ended meanwhile */
		a->bodies->bytes -= len;
		send_answer(a, c, "404 Not Found");
	} else {
		set_done(a, b);
		b->held = len; /* until the request ends */
		c->body = NULL;
		send_answer(a, c, "204 No Content");
		kvr_cell_add(&a->st.bodies, 1);
		a->bodies->ops->come(b->job, data, len);
	}
	free(data);
}

static void read_head(struct app *a, struct conn *c)
{
	const ssize_t n = recv(c->fd, c->head + c->have, HEAD - c->have, 0);
	const char *end;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		hang_up(a, c);
		return;
	}
	c->have += (uint32_t)n;
	c->head[c->have] = '\0';
	end = strstr(c->head, "\r\n\r\n");
	if (end == NULL && (c->have == HEAD || strlen(c->head) < c->have))
		send_answer(a, c, "400 Bad Request");
	else if (end != NULL && begin_body(a, c, (size_t)(end + 4 - c->head)) && c->got == c->len)
		complete_body(a, c);
}

static void read_body(struct app *a, struct conn *c)
{
	ssize_t n = 1;

	/* A bounded part per turn, so that other work proceeds. */
	for (int i = 0; i < READS && c->got < c->len && n > 0; i++) {
		n = recv(c->fd, c->data + c->got, c->len - c->got, 0);
		if (n > 0)
			c->got += (size_t)n;
	}
	if (c->got == c->len) {
		complete_body(a, c);
	} else if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
		hang_up(a, c);
	} else {
		c->active_us = a->now_us;
	}
}

/* Of the connections that have not identified their body, the one without data for longest; NULL:
 * none. */
static struct conn *find_slowest(struct app_bodies *s)
{
	struct conn *c = NULL;

	for (uint32_t i = 0; i < MOST; i++)
		if (s->conn[i].fd >= 0 && s->conn[i].data == NULL &&
		    (c == NULL || s->conn[i].active_us < c->active_us))
			c = &s->conn[i];
	return c;
}

/* Accept a connection. If all places are used, one that has not identified its body is closed. */
static void add_connection(struct app *a, int fd)
{
	struct app_bodies *s = a->bodies;
	uint32_t at = 0;

	if (s->n == MOST) {
		kvr_cell_add(&a->st.bodies_refused, 1);
		hang_up(a, find_slowest(s));
	}
	while (s->conn[at].fd >= 0)
		at++;
	s->conn[at] = (struct conn){.fd = fd, .active_us = a->now_us};
	s->n++;
	if (app_watch(a, EPOLL_CTL_ADD, fd, APP_FD_BODY, at, EPOLLIN) == 0)
		return;
	kvr_cell_add(&a->st.bodies_refused, 1);
	hang_up(a, &s->conn[at]);
}

static void accept_some(struct app *a)
{
	struct app_bodies *s = a->bodies;
	int fd = 0;

	for (uint32_t i = 0; i < MOST && fd >= 0 && (s->n < MOST || find_slowest(s) != NULL); i++) {
		fd = accept4(s->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0)
			add_connection(a, fd);
	}
	/* Without places or descriptors, stop accepting until a connection closes, or for a
	 * while. */
	if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
		s->rest_us = a->now_us + REST;
	if ((s->n == MOST && find_slowest(s) == NULL) || s->rest_us > a->now_us)
		watch_listener(a, false);
}

void app_bodies_ready(struct app *a, uint32_t index)
{
	struct app_bodies *s = a->bodies;

	if (index == UINT32_MAX)
		accept_some(a);
	else if (s->conn[index].fd >= 0 && s->conn[index].data != NULL)
		read_body(a, &s->conn[index]);
	else if (s->conn[index].fd >= 0)
		read_head(a, &s->conn[index]);
}

void app_bodies_turn(struct app *a)
{
	struct app_bodies *s = a->bodies;
	struct app_body *b;

	if (s->fd < 0)
		return;
	for (uint32_t i = 0; s->n > 0 && i < MOST; i++) {
		struct conn *c = &s->conn[i];

		if (c->fd >= 0 && a->now_us - c->active_us > SILENCE)
			hang_up(a, c);
		else if (c->fd >= 0 && c->data != NULL && c->body == NULL)
			send_answer(a, c, "404 Not Found"); /* the request ended meanwhile */
	}
	if (s->full && s->n < MOST && a->now_us >= s->rest_us)
		watch_listener(a, true);
	while ((b = TAILQ_FIRST(&s->waiting)) != NULL && a->now_us >= b->until_us) {
		set_done(a, b);
		kvr_cell_add(&a->st.bodies_missed, 1);
		s->ops->missed(b->job, 408, "the request body did not arrive in time");
	}
}

uint64_t app_bodies_due_us(const struct app *a)
{
	const struct app_body *b = TAILQ_FIRST(&a->bodies->waiting);

	return b != NULL ? b->until_us : UINT64_MAX;
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
static int set_address(struct app *a)
{
	const char *said = a->o.bodies_advertise;
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
	} else if (getsockname(a->bodies->fd, (struct sockaddr *)&me, &len) < 0) {
		return -errno;
	} else if (getnameinfo((struct sockaddr *)&me, len, host, sizeof(host), port, sizeof(port),
			       NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
		return -EINVAL;
	}
	return agent_address_publish(host, port, a->facing,
				     said[0] != '\0' ? AGENT_REPLACE_NONE : AGENT_REPLACE_ANY,
				     a->body_addr, sizeof(a->body_addr));
}

int app_bodies_start(struct app *a, const struct app_bodies_ops *ops)
{
	struct app_bodies *s = a->bodies = calloc(1, sizeof(*s));
	char host[256], port[8];
	int rc;

	if (s == NULL)
		return -ENOMEM;
	s->fd = -1;
	s->ops = ops;
	TAILQ_INIT(&s->waiting);
	TAILQ_INIT(&s->done);
	for (uint32_t i = 0; i < MOST; i++)
		s->conn[i].fd = -1;
	if (strcmp(a->o.bodies, "off") == 0)
		return 0;
	if (strcmp(a->o.bodies, "auto") == 0) {
		if (a->facing[0] == '\0')
			return 0; /* no route to the router: logged elsewhere */
		s->fd = listen_at(a->facing, "0");
	} else if (agent_address_split(a->o.bodies, host, sizeof(host), port) < 0) {
		return -EINVAL;
	} else {
		s->fd = listen_at(host, port);
	}
	if (s->fd < 0)
		return -errno;
	rc = app_watch(a, EPOLL_CTL_ADD, s->fd, APP_FD_BODY, UINT32_MAX, EPOLLIN);
	return rc < 0 ? rc : set_address(a);
}

void app_bodies_stop(struct app *a)
{
	struct app_bodies *s = a->bodies;

	if (s == NULL)
		return;
	for (uint32_t i = 0; i < MOST; i++)
		if (s->conn[i].fd >= 0)
			hang_up(a, &s->conn[i]);
	if (s->fd >= 0)
		close(s->fd);
	free(s);
	a->bodies = NULL;
}
