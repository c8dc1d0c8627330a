/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An engine that answers at once, as an agent of the router (instant --router HOST [FRAME_BYTES])
 * or as an HTTP server (instant --http PORT), with the same answer.
 */
#include <h2o.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_agent.h"

#define BODY                                                                                       \
	"{\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"created\":0,\"model\":\"default\","   \
	"\"choices\":[{\"index\":0,\"text\":\" answer\",\"finish_reason\":\"stop\"}]}"
#define HEAD "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"

static int on_dispatch(struct kvr_agent *a, const struct kvr_agent_request *r, void *user)
{
	static const struct kvr_agent_item item = {.data = HEAD BODY,
						   .len = sizeof(HEAD BODY) - 1,
						   .flags = KVR_AGENT_LAST,
						   .status = 200,
						   .generated_tokens = 1};

	(void)user;
	return kvr_agent_respond(a, r->handle, &item) == 0 ? 0 : 1;
}

static int be_agent(const char *router, uint32_t frame_bytes)
{
	static const struct kvr_agent_ops ops = {.on_dispatch = on_dispatch};
	const struct kvr_agent_conf conf = {.router = router,
					    .worker = 1,
					    .pool = "default",
					    .block_size = 16,
					    .frame_bytes = frame_bytes,
					    .dp_size = 1,
					    .max_requests = 65536,
					    .ops = &ops};
	struct kvr_agent *a = kvr_agent_create(&conf);

	if (a == NULL) {
		perror("instant");
		return 1;
	}
	for (;;) {
		struct pollfd p = {kvr_agent_fd(a), POLLIN, 0};

		poll(&p, 1, kvr_agent_timeout_ms(a));
		kvr_agent_process(a);
	}
}

static h2o_globalconf_t conf;
static h2o_context_t ctx;
static h2o_accept_ctx_t accept_ctx;

static int on_request(h2o_handler_t *self, h2o_req_t *req)
{
	(void)self;
	req->res.status = 200;
	req->res.reason = "OK";
	req->res.content_length = sizeof(BODY) - 1;
	h2o_add_header(&req->pool, &req->res.headers, H2O_TOKEN_CONTENT_TYPE, NULL,
		       H2O_STRLIT("application/json"));
	h2o_send_inline(req, BODY, sizeof(BODY) - 1);
	return 0;
}

static void on_accept(h2o_socket_t *listener, const char *err)
{
	h2o_socket_t *sock;

	while (err == NULL && (sock = h2o_evloop_socket_accept(listener)) != NULL)
		h2o_accept(&accept_ctx, sock);
}

static int be_server(uint16_t port)
{
	const struct sockaddr_in at = {AF_INET, htons(port), {htonl(INADDR_LOOPBACK)}, {0}};
	const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
	h2o_hostconf_t *host;
	h2o_socket_t *sock;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (const struct sockaddr *)&at, sizeof(at)) < 0 || listen(fd, 1024) < 0) {
		perror("instant");
		return 1;
	}
	h2o_config_init(&conf);
	host = h2o_config_register_host(&conf, h2o_iovec_init(H2O_STRLIT("default")), 65535);
	h2o_create_handler(h2o_config_register_path(host, "/", 0), sizeof(h2o_handler_t))->on_req =
		on_request;
	h2o_context_init(&ctx, h2o_evloop_create(), &conf);
	accept_ctx = (h2o_accept_ctx_t){.ctx = &ctx, .hosts = conf.hosts};
	sock = h2o_evloop_socket_create(ctx.loop, fd, H2O_SOCKET_FLAG_DONT_READ);
	h2o_socket_read_start(sock, on_accept);
	while (h2o_evloop_run(ctx.loop, INT32_MAX) == 0)
		;
	return 1;
}

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	if ((argc == 3 || argc == 4) && strcmp(argv[1], "--router") == 0)
		return be_agent(argv[2], argc == 4 ? (uint32_t)atoi(argv[3]) : 1432);
	if (argc == 3 && strcmp(argv[1], "--http") == 0)
		return be_server((uint16_t)atoi(argv[2]));
	fprintf(stderr, "usage: instant --router HOST [FRAME_BYTES] | --http PORT\n");
	return 2;
}
