/* SPDX-License-Identifier: BSD-3-Clause */
/* Connection of a thread to each router, detection of lost routers, and their log lines. */
#include "router.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kvr_log.h"
#include "kvr_types.h"

#define ASK_EVERY_MS 1000
#define LOST_MS	     1000
#define ACK_US                                                                                     \
	5000 /* delay of the acknowledgement of an end, so that it leaves with the next request */
#define LONGEST_MS 250 /* longest sleep between turns: routers are asked again, signals handled */

uint32_t gw_router_bit(const struct gw_router *router)
{
	return 1u << (router - router->thread->routers);
}

static uint64_t count_frames(const struct gw_router *router)
{
	struct kvr_client_stats st;

	kvr_client_stats_get(router->client, &st);
	return st.frames_received;
}

/* Each thread connects separately, and learns at its own time which models it serves. */
static void note_ready(struct gw_thread *thread)
{
	const struct gw_router *router = gw_router_pick(thread, 0);
	const struct kvr_client_pool *pools;
	bool ready = false;
	uint32_t n = 0;

	pools = router != NULL ? kvr_client_pools(router->client, &n) : NULL;
	for (uint32_t i = 0; i < n && !ready; i++)
		ready = pools[i].serves;
	if (ready && !thread->ready)
		kvr_stats_add(thread->row, GW_THREADS_READY, 1);
	else if (!ready && thread->ready)
		kvr_stats_sub(thread->row, GW_THREADS_READY, 1);
	thread->ready = ready;
}

/* A busy router may leave a question unanswered while it serves: any frame shows that it is up. */
static void on_connect(struct kvr_client *c, int status, void *user)
{
	struct gw_router *router = user;
	const bool up = status == 0 || (router->up && count_frames(router) != router->frames);

	router->refusal = kvr_client_connect_refusal(c).code;
	router->frames = count_frames(router);
	router->ask_ms = gw_now_ms() + (up ? ASK_EVERY_MS : 100);
	if (up == router->up) {
		note_ready(router->thread);
		return;
	}
	router->up = up;
	note_ready(router->thread);
	if (up) {
		kvr_stats_add(router->thread->row, GW_ROUTERS_UP, 1);
		kvr_log_line(KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE, .addr = router->name),
			     "thread %u: the router answers", router->thread->number);
		return;
	}
	kvr_log_line(
		KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .addr = router->name,
			      .reason = strerror(-status)),
		"thread %u: the router does not answer; requests go to the next router, or fail",
		router->thread->number);
	kvr_stats_sub(router->thread->row, GW_ROUTERS_UP, 1);
	GW_COUNT(router->thread, GW_ROUTERS_LOST);
	router->thread->router_lost(router);
}

static void on_readable(h2o_socket_t *sock, const char *err)
{
	struct gw_router *router = sock->data;

	(void)err;
	kvr_client_process(router->client);
}

static int start_router(struct gw_router *router, char *err, size_t errlen)
{
	const struct gw_options *options = router->thread->opt;
	const struct kvr_client_conf conf = {.router = router->name,
					     .bind = options->bind[0] != '\0' ? options->bind
									      : NULL,
					     .frame_bytes = options->frame_bytes,
					     .max_requests = options->in_flight,
					     .connect_ms = options->router_ms,
					     .request_ms = options->request_ms,
					     .away_bytes = options->away_bytes,
					     .ack_us = ACK_US,
					     .on_connect = on_connect,
					     .user = router};
	int fd;

	router->client = kvr_client_create(&conf);
	if (router->client == NULL) {
		const int rc = -errno;

		snprintf(err, errlen, "--router %s: %s", router->name,
			 rc == -ENOENT	 ? "unknown host"
			 : rc == -EAGAIN ? "name server does not answer (DNS)"
			 : rc == -EINVAL ? "expected host or host:port"
					 : strerror(-rc));
		return rc;
	}
	/* The loop closes its descriptor, and so does the client. */
	fd = dup(kvr_client_fd(router->client));
	if (fd < 0) {
		snprintf(err, errlen, "router %s: %s", router->name, strerror(errno));
		return -errno;
	}
	router->sock =
		h2o_evloop_socket_create(router->thread->ctx.loop, fd, H2O_SOCKET_FLAG_DONT_READ);
	router->sock->data = router;
	h2o_socket_read_start(router->sock, on_readable);
	kvr_client_connect(router->client);
	kvr_outage_begin(&router->silence, gw_now_ms());
	return 0;
}

int gw_routers_start(struct gw_thread *thread, char *err, size_t errlen)
{
	const uint32_t n = thread->opt->n_routers;

	thread->routers = calloc(n, sizeof(*thread->routers));
	if (thread->routers == NULL) {
		snprintf(err, errlen, "out of memory");
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < n; i++)
		thread->routers[i] =
			(struct gw_router){.thread = thread, .name = thread->opt->routers[i]};
	for (uint32_t i = 0; i < n; i++) {
		const int rc = start_router(&thread->routers[i], err, errlen);

		if (rc < 0)
			return rc;
	}
	return 0;
}

void gw_routers_stop(struct gw_thread *thread)
{
	for (uint32_t i = 0; thread->routers != NULL && i < thread->opt->n_routers; i++) {
		if (thread->routers[i].sock != NULL)
			h2o_socket_close(thread->routers[i].sock);
		kvr_client_destroy(thread->routers[i].client);
	}
	free(thread->routers);
	thread->routers = NULL;
}

/* Log a router that does not answer, or rejects the gateway. */
static void silence_turn(struct gw_router *router)
{
	if (router->thread->number != 0 ||
	    kvr_outage_turn(&router->silence, gw_now_ms(), router->up, KVR_OUTAGE_MS) !=
		    KVR_OUTAGE_SILENT)
		return;
	kvr_log_line(KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .addr = router->name,
				   .reason = router->refusal != KVR_OK
						     ? kvr_code_name(router->refusal)
						     : "no answer"),
		     "the router %s; requests go to the next router, or fail",
		     router->refusal != KVR_OK ? "rejects this gateway" : "does not answer");
}

bool gw_router_ended(struct gw_router *router, const struct kvr_client_end *e, bool again)
{
	router->lost += e->reason == KVR_CLIENT_LOST;
	router->again += e->reason == KVR_CLIENT_LOST && again;
	return again;
}

/* One line per second at most. */
static void lost_turn(struct gw_router *router)
{
	if (router->lost == 0 || gw_now_ms() < router->logged_ms + LOST_MS)
		return;
	kvr_log_line(
		KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .addr = router->name,
			      .reason = "new epoch of the router"),
		"thread %u: the router lost %u requests; %u are sent again, the others had begun to be answered or cannot be repeated",
		router->thread->number, router->lost, router->again);
	router->logged_ms = gw_now_ms();
	router->lost = router->again = 0;
}

int32_t gw_routers_turn(struct gw_thread *thread, int32_t most)
{
	int32_t wait = most < LONGEST_MS ? most : LONGEST_MS;

	for (uint32_t i = 0; i < thread->opt->n_routers; i++) {
		struct gw_router *router = &thread->routers[i];
		int ms;

		if (router->ask_ms != 0 && gw_now_ms() >= router->ask_ms) {
			router->ask_ms = 0;
			kvr_client_connect(router->client);
		}
		silence_turn(router);
		lost_turn(router);
		ms = kvr_client_timeout_ms(router->client);
		if (ms == 0) { /* received frames are handled by the socket's callback */
			kvr_client_flush(router->client);
			ms = kvr_client_timeout_ms(router->client);
		}
		if (ms >= 0 && ms < wait)
			wait = ms;
	}
	return wait;
}

bool gw_routers_strict(const struct gw_thread *thread)
{
	for (uint32_t i = 0; i < thread->opt->n_routers; i++)
		if (kvr_client_timeout_strict(thread->routers[i].client))
			return true;
	return false;
}

struct gw_router *gw_router_pick(struct gw_thread *thread, uint32_t tried)
{
	for (uint32_t i = 0; i < thread->opt->n_routers; i++)
		if (thread->routers[i].up && (tried & (1u << i)) == 0)
			return &thread->routers[i];
	return NULL;
}

static const char *other_name(const struct gw_name list[], uint32_t n, const char *name)
{
	for (uint32_t i = 0; i < n; i++)
		if (strcmp(list[i].name, name) == 0)
			return list[i].of;
	return NULL;
}

bool gw_router_model(const struct gw_router *router, const char *name, struct gw_model *out)
{
	const struct gw_options *options = router->thread->opt;
	const struct kvr_client_pool *pools, *found = NULL;
	const char *of;
	uint32_t n, fit = 0;

	*out = (struct gw_model){0};
	of = other_name(options->adapters, options->n_adapters, name);
	if (of != NULL) {
		out->lora = name;
		name = of;
	}
	of = other_name(options->models, options->n_models, name);
	if (of != NULL)
		name = of;
	pools = kvr_client_pools(router->client, &n);
	for (uint32_t i = 0; i < n; i++) {
		if (pools[i].role == KVR_ROLE_PREFILL ||
		    (name[0] != '\0' && strcmp(pools[i].name, name) != 0))
			continue;
		found = &pools[i];
		fit++;
	}
	if (fit != 1)
		return false;
	out->pool = found->name;
	out->block_size = found->block_size;
	out->eagle = found->eagle;
	return true;
}
