/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Set-up and loop of a thread: libh2o with its handlers, accepting, half-closed connections,
 * shutdown.
 */
#include "serve.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "answer.h"
#include "buffers.h"
#include "conn.h"
#include "http1_guard.h"
#include "kvr_timer_slack.h"
#include "pick_lease.h"
#include "retry.h"
#include "source.h"
#include "status_endpoints.h"
#include "streams.h"
#include "tokenize_conversation.h"
#include "tokens.h"

#define ACCEPT_BURST 64
#define BACKLOG	     4096
#define REST_MS	     100
#define LAST_MS	     200 /* time for error answers at the end */

struct handler {
	h2o_handler_t super;
	struct gw_thread *thread;
};

struct error_filter {
	h2o_filter_t super;
	struct gw_thread *thread;
};

/* --- paths ---------------------------------------------------------------------------------- */

static const struct {
	const char *path;
	enum gw_path to;
} paths[] = {
	{"/v1/completions", GW_COMPLETIONS},
	{"/v1/chat/completions", GW_CHAT},
	{"/v1/responses", GW_RESPONSES},
	{"/v1/embeddings", GW_EMBEDDINGS},
	{"/v1/route", GW_ROUTE},
	{"/pick", GW_PICK},
	{"/loads", GW_LOADS},
};

static bool is_post(h2o_req_t *req)
{
	if (h2o_memis(req->method.base, req->method.len, H2O_STRLIT("POST")))
		return true;
	gw_answer_plain_error(req, GW_NO_METHOD, "expected POST");
	return false;
}

/* Monitoring is always allowed. @return false: the request was answered with 429. */
static bool may_ask(struct gw_thread *thread, h2o_req_t *req)
{
	struct gw_error e = *gw_error_fault(GW_SOURCE_SHARE);

	if (h2o_memis(req->path_normalized.base, req->path_normalized.len, H2O_STRLIT("/health")) ||
	    h2o_memis(req->path_normalized.base, req->path_normalized.len, H2O_STRLIT("/ready")) ||
	    h2o_memis(req->path_normalized.base, req->path_normalized.len, H2O_STRLIT("/metrics")))
		return true;
	e.retry_s = gw_conn_ask(thread, req);
	if (e.retry_s == 0)
		return true;
	GW_COUNT(thread, GW_SOURCE_REQUESTS);
	gw_answer_request_error(req, &e, gw_error_text(GW_SOURCE_SHARE));
	return false;
}

static int on_request(h2o_handler_t *self, h2o_req_t *req)
{
	struct gw_thread *thread = ((struct handler *)self)->thread;

	gw_conn_runs(thread, req);
	if (req->input.path.base == gw_bad_head) {
		GW_COUNT(thread, GW_HTTP_ERRORS);
		gw_answer_plain_error(req, GW_BAD_REQUEST, "the head of the request is not HTTP");
		return 0;
	}
	/* Reports about bookings have no limit: rejecting one would leave its load. */
	if (req->path_normalized.len > 6 && memcmp(req->path_normalized.base, "/pick/", 6) == 0) {
		if (is_post(req))
			gw_lease_request(thread, req);
		return 0;
	}
	if (!may_ask(thread, req))
		return 0;
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		if (!h2o_memis(req->path_normalized.base, req->path_normalized.len, paths[i].path,
			       strlen(paths[i].path)))
			continue;
		if (is_post(req))
			gw_call_begin(thread, req, paths[i].to);
		return 0;
	}
	if (!gw_page(thread, req))
		gw_answer_plain_error(req, GW_NO_ROUTE, NULL);
	return 0;
}

/* Errors found by libh2o have plain text; clients expect JSON. They pass through the fallback path,
 * which has no other use. */
struct error_ostream {
	h2o_ostream_t super;
	h2o_iovec_t body;
	bool sent;
};

static void send_error_body(h2o_ostream_t *self, h2o_req_t *req, h2o_iovec_t *bufs, size_t n,
			    h2o_send_state_t state)
{
	struct error_ostream *o = (void *)self;
	const bool first = !o->sent;

	(void)bufs;
	(void)n;
	o->sent = true;
	h2o_ostream_send_next(self, req, &o->body, first, state);
}

static void on_setup_error(h2o_filter_t *self, h2o_req_t *req, h2o_ostream_t **slot)
{
	struct error_ostream *o;
	const enum gw_fault fault = req->res.status == 413   ? GW_BODY_TOO_LARGE
				    : req->res.status == 408 ? GW_REQUEST_SLOW
							     : GW_BAD_REQUEST;
	struct gw_error e = *gw_error_fault(fault);
	char body[512];
	size_t len;

	if (fault != GW_REQUEST_SLOW) /* counted already */
		GW_COUNT(((struct error_filter *)self)->thread, GW_HTTP_ERRORS);
	e.status = req->res.status;
	len = gw_error_json(
		&e, fault != GW_BAD_REQUEST ? gw_error_text(fault) : "unsupported HTTP request",
		body, sizeof(body));
	o = (void *)h2o_add_ostream(req, sizeof(*o), slot);
	o->super.do_send = send_error_body;
	o->body = h2o_strdup(&req->pool, body, len);
	o->sent = false;
	req->res.content_length = len;
	h2o_set_header(&req->pool, &req->res.headers, H2O_TOKEN_CONTENT_TYPE,
		       H2O_STRLIT("application/json"), 1);
	h2o_setup_next_ostream(req, &o->super.next);
}

/* --- connections ---------------------------------------------------------------------------- */

/* Callback of a connection's end; freed by it. */
struct closing {
	struct gw_thread *thread;
	int fd;
	h2o_buffer_t **input;
};

static void on_closed(void *data)
{
	struct closing *c = data;

	kvr_stats_sub(c->thread->row, GW_CONNECTIONS_OPEN, 1);
	gw_buffers_close(c->input);
	gw_conn_close(c->thread, c->fd);
	free(c);
}

/* Add a connection. @return false: it must be closed. */
static bool add_connection(struct gw_thread *thread, h2o_socket_t *sock)
{
	struct closing *c;

	c = malloc(sizeof(*c));
	if (c == NULL)
		return false;
	*c = (struct closing){thread, h2o_socket_get_fd(sock), &sock->input};
	if (!gw_conn_open(thread, c->fd, c->input)) {
		free(c);
		return false;
	}
	/* Only for a connection that its address may have. The closed one disappears in the next
	 * turn. */
	if (kvr_stats_get(thread->row, GW_CONNECTIONS_OPEN) >= thread->opt->connections &&
	    !gw_conn_make_room(thread)) {
		GW_COUNT(thread, GW_CONNECTIONS_REFUSED);
		gw_buffers_close(c->input);
		gw_conn_close(thread, c->fd);
		free(c);
		return false;
	}
	sock->on_close.cb = on_closed;
	sock->on_close.data = c;
	GW_COUNT(thread, GW_CONNECTIONS);
	kvr_stats_add(thread->row, GW_CONNECTIONS_OPEN, 1);
	return true;
}

/* Without descriptors, pending connections would wake the loop continuously. */
static void pause_accepting(struct gw_thread *thread)
{
	GW_COUNT(thread, GW_RESTS);
	h2o_socket_read_stop(thread->listener);
	thread->rest_ms = gw_now_ms() + REST_MS;
}

static void on_accept(h2o_socket_t *listener, const char *err)
{
	struct gw_thread *thread = listener->data;

	if (err != NULL)
		return;
	for (int i = 0; i < ACCEPT_BURST; i++) {
		h2o_socket_t *sock = h2o_evloop_socket_accept(listener);
		struct epoll_event ev = {.events = EPOLLRDHUP | EPOLLET};
		const unsigned int patience = thread->opt->idle_ms;
		const int one = 1;

		if (sock == NULL) {
			if (errno == EMFILE || errno == ENFILE)
				pause_accepting(thread);
			return;
		}
		if (!add_connection(thread, sock)) {
			h2o_socket_close(sock);
			continue;
		}
		ev.data.fd = h2o_socket_get_fd(sock);
		setsockopt(ev.data.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		/* A client that reads nothing for this time is considered gone. */
		setsockopt(ev.data.fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience, sizeof(patience));
		if (epoll_ctl(thread->watch_fd, EPOLL_CTL_ADD, ev.data.fd, &ev) < 0) {
			/* Its requests would continue after the client is gone. */
			GW_COUNT(thread, GW_CONNECTIONS_UNWATCHED);
			h2o_socket_close(sock);
			continue;
		}
		h2o_accept(&thread->accept, sock);
	}
}

/* While a request runs libh2o does not read from its HTTP/1 connection, and does not see the client
 * close it. Edge-triggered: reported once. */
static void on_watch(h2o_socket_t *sock, const char *err)
{
	struct gw_thread *thread = sock->data;
	struct epoll_event ev[64];
	int n = epoll_wait(thread->watch_fd, ev, 64, 0);

	(void)err;
	for (int i = 0; i < n; i++) {
		struct gw_call *call;

		if ((ev[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) == 0)
			continue;
		call = gw_conn_half_closed(thread, ev[i].data.fd);
		if (call != NULL)
			gw_call_half_closed(call);
	}
}

/* getaddrinfo() would use the low bits of a larger number. */
static bool is_port(const char *text)
{
	char *end;
	const unsigned long n = strtoul(text, &end, 10);

	return *text >= '0' && *text <= '9' && *end == '\0' && n <= UINT16_MAX;
}

static int resolve_address(const char *text, struct sockaddr_storage *ss, socklen_t *len)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
	char host[256];
	const char *colon = strrchr(text, ':'), *from = text;
	size_t n;

	if (colon == NULL || !is_port(colon + 1))
		return -EINVAL;
	n = (size_t)(colon - text);
	if (n >= 2 && text[0] == '[' && text[n - 1] == ']') {
		from++;
		n -= 2;
	}
	snprintf(host, sizeof(host), "%.*s", (int)n, from);
	if (getaddrinfo(n > 0 && strcmp(host, "*") != 0 ? host : NULL, colon + 1, &hints, &found) !=
	    0)
		return -ENOENT;
	memcpy(ss, found->ai_addr, found->ai_addrlen);
	*len = found->ai_addrlen;
	freeaddrinfo(found);
	return 0;
}

static int listen_on(struct gw_thread *thread, char *err, size_t errlen)
{
	struct sockaddr_storage ss;
	socklen_t len;
	const int one = 1;
	int rc = resolve_address(thread->opt->listen, &ss, &len), fd = -1;

	if (rc == 0) {
		fd = socket(ss.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
		    (thread->opt->threads > 1 &&
		     setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) < 0) ||
		    bind(fd, (struct sockaddr *)&ss, len) < 0 || listen(fd, BACKLOG) < 0)
			rc = -errno;
	}
	if (rc < 0) {
		snprintf(err, errlen, "--listen %s: %s", thread->opt->listen,
			 rc == -EINVAL ? "expected address:port" : strerror(-rc));
		if (fd >= 0)
			close(fd);
		return rc;
	}
	thread->listener =
		h2o_evloop_socket_create(thread->ctx.loop, fd, H2O_SOCKET_FLAG_DONT_READ);
	thread->listener->data = thread;
	h2o_socket_read_start(thread->listener, on_accept);
	return 0;
}

static int watch_connections(struct gw_thread *thread)
{
	struct rlimit lim;

	thread->n_fds = getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur < (1u << 20)
				? (uint32_t)lim.rlim_cur
				: 1u << 20;
	thread->by_fd = calloc(thread->n_fds, sizeof(*thread->by_fd));
	thread->watch_fd = epoll_create1(EPOLL_CLOEXEC);
	if (thread->by_fd == NULL || thread->watch_fd < 0)
		return -ENOMEM;
	thread->watch_sock = h2o_evloop_socket_create(thread->ctx.loop, thread->watch_fd,
						      H2O_SOCKET_FLAG_DONT_READ);
	thread->watch_sock->data = thread;
	h2o_socket_read_start(thread->watch_sock, on_watch);
	return 0;
}

static void configure_h2o(struct gw_thread *thread)
{
	h2o_hostconf_t *host;
	h2o_pathconf_t *path;
	struct handler *h;
	struct error_filter *f;

	h2o_config_init(&thread->conf);
	/* Otherwise input beyond 32 MiB would go to a file in /tmp; --max-body limits it. */
	h2o_socket_buffer_mmap_settings.threshold = SIZE_MAX;
	thread->conf.server_name = h2o_iovec_init(H2O_STRLIT("kvroute-gateway"));
	thread->conf.max_request_entity_size = thread->opt->body_bytes;
	thread->conf.http1.req_timeout = gw_conn_longest(thread->opt);
	thread->conf.http2.idle_timeout = thread->opt->idle_ms;
	thread->conf.http2.max_concurrent_requests_per_connection = GW_MAX_STREAMS;
	host = h2o_config_register_host(&thread->conf, h2o_iovec_init(H2O_STRLIT("default")),
					65535);
	path = h2o_config_register_path(host, "/", 0);
	h = (struct handler *)h2o_create_handler(path, sizeof(*h));
	h->super.on_req = on_request;
	h->thread = thread;
	f = (struct error_filter *)h2o_create_filter(&host->fallback_path, sizeof(*f));
	f->super.on_setup_ostream = on_setup_error;
	f->thread = thread;
}

static int limit_sources(struct gw_thread *thread)
{
	const struct gw_options *options = thread->opt;
	uint32_t most = options->source_connections != 0
				? options->source_connections
				: options->connections - options->connections / 4;
	uint64_t seed;

	if (most >= options->connections)
		most = UINT32_MAX; /* a full table may still replace idle connections */

	if (getrandom(&seed, sizeof(seed), 0) < 0)
		return -errno;
	thread->sources = gw_sources_create(most, options->source_rate, seed);
	return thread->sources != NULL ? 0 : -ENOMEM;
}

int gw_serve_init(struct gw_thread *thread, char *err, size_t errlen)
{
	int rc;

	LIST_INIT(&thread->calls);
	gw_retry_begin(thread);
	TAILQ_INIT(&thread->coming);
	TAILQ_INIT(&thread->idle);
	TAILQ_INIT(&thread->streams);
	thread->watch_fd = -1;
	thread->router_lost = gw_calls_move;
	configure_h2o(thread);
	h2o_context_init(&thread->ctx, h2o_evloop_create(), &thread->conf);
	thread->accept = (h2o_accept_ctx_t){.ctx = &thread->ctx, .hosts = thread->conf.hosts};
	rc = watch_connections(thread);
	if (rc == 0)
		rc = limit_sources(thread);
	if (rc == 0)
		rc = gw_tokens_start(thread);
	if (rc == 0)
		rc = gw_conversations_start(thread);
	if (rc < 0) {
		snprintf(err, errlen, "out of memory");
		return rc;
	}
	rc = gw_leases_join(thread);
	if (rc < 0) {
		snprintf(err, errlen, "%s", strerror(-rc));
		return rc;
	}
	rc = gw_routers_start(thread, err, errlen);
	return rc < 0 ? rc : listen_on(thread, err, errlen);
}

/* Send an error to connections that are cut off, if they accept it at once. */
static void last_words(struct gw_thread *thread)
{
	const uint64_t until = gw_now_ms() + LAST_MS;

	gw_calls_end(thread);
	while (!LIST_EMPTY(&thread->calls) && gw_now_ms() < until) {
		gw_routers_turn(thread, 1);
		h2o_evloop_run(thread->ctx.loop, 1);
	}
}

void gw_serve_run(struct gw_thread *thread)
{
	/* One more body can be read, so that "no memory" can be answered: for an address at its
	 * limit, and for another one. */
	const uint64_t share = ((uint64_t)thread->opt->total_mb << 20) + thread->opt->body_bytes;
	const uint64_t most = share + thread->opt->body_bytes;
	struct kvr_timer_slack slack = {0};

	gw_buffers_limit(thread->sources, share, most, thread->row);
	for (;;) {
		const int stop = atomic_load_explicit(thread->stop, memory_order_relaxed);
		const bool closes = stop != 0 && thread->listener != NULL;
		int32_t wait;

		if (closes) { /* and one turn for data that already arrived */
			h2o_socket_close(thread->listener);
			thread->listener = NULL;
			h2o_context_request_shutdown(&thread->ctx);
		} else if (stop != 0 && LIST_EMPTY(&thread->calls) && !gw_conn_comes(thread)) {
			break;
		}
		if (stop == 2) {
			last_words(thread);
			break;
		}
		if (thread->rest_ms != 0 && thread->listener != NULL &&
		    gw_now_ms() >= thread->rest_ms) {
			thread->rest_ms = 0;
			h2o_socket_read_start(thread->listener, on_accept);
		}
		gw_conn_stalled(thread);
		gw_conn_turn(thread);
		gw_streams_turn(thread);
		gw_leases_turn(thread);
		thread->touched = false;
		/* Data to send leave with the routers' turn. */
		wait = gw_tokens_turn(thread->tokens, closes ? 0 : INT32_MAX);
		wait = gw_routers_turn(thread, wait);
		if (thread->rest_ms != 0 && wait > REST_MS)
			wait = REST_MS;
		kvr_timer_slack_set(&slack, gw_routers_strict(thread) ? KVR_TIMER_SLACK_USUAL_NS
								      : KVR_TIMER_SLACK_TICK_NS);
		h2o_evloop_run(thread->ctx.loop, thread->touched ? 0 : wait);
	}
	gw_conns_end(thread);
}

void gw_serve_fini(struct gw_thread *thread)
{
	gw_routers_stop(thread);
	gw_leases_leave(thread);
	gw_conversations_stop(thread);
	gw_tokens_stop(thread);
	if (thread->listener != NULL)
		h2o_socket_close(thread->listener);
	if (thread->watch_sock != NULL)
		h2o_socket_close(thread->watch_sock); /* wrapper of watch_fd */
	gw_sources_destroy(thread->sources);
	free(thread->by_fd);
}
