/* SPDX-License-Identifier: BSD-3-Clause */
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

uint32_t gw_router_bit(const struct gw_router *r)
{
	return 1u << (r - r->t->routers);
}

static uint64_t count_frames(const struct gw_router *r)
{
	struct kvr_client_stats st;

	kvr_client_stats_get(r->client, &st);
	return st.frames_received;
}

/* Each thread connects separately, and learns at its own time which models it serves. */
static void note_ready(struct gw_thread *t)
{
	const struct gw_router *r = gw_router_pick(t, 0);
	const struct kvr_client_pool *pools;
	bool ready = false;
	uint32_t n = 0;

	pools = r != NULL ? kvr_client_pools(r->client, &n) : NULL;
	for (uint32_t i = 0; i < n && !ready; i++)
		ready = pools[i].serves;
	if (ready && !t->ready)
		kvr_stats_add(t->row, GW_THREADS_READY, 1);
	else if (!ready && t->ready)
		kvr_stats_sub(t->row, GW_THREADS_READY, 1);
	t->ready = ready;
}

/* A busy router may leave a question unanswered while it serves: any frame shows that it is up. */
static void on_connect(struct kvr_client *c, int status, void *user)
{
	struct gw_router *r = user;
	const bool up = status == 0 || (r->up && count_frames(r) != r->frames);

	r->refusal = kvr_client_connect_refusal(c).code;
	r->frames = count_frames(r);
	r->ask_ms = gw_now_ms() + (up ? ASK_EVERY_MS : 100);
	if (up == r->up) {
		note_ready(r->t);
		return;
	}
	r->up = up;
	note_ready(r->t);
	if (up) {
		kvr_stats_add(r->t->row, GW_ROUTERS_UP, 1);
		kvr_log_line(KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE, .addr = r->name),
			     "thread %u: the router answers", r->t->number);
		return;
	}
	kvr_log_line(
		KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .addr = r->name,
			      .reason = strerror(-status)),
		"thread %u: the router does not answer; requests go to the next router, or fail",
		r->t->number);
	kvr_stats_sub(r->t->row, GW_ROUTERS_UP, 1);
	GW_COUNT(r->t, GW_ROUTERS_LOST);
	r->t->router_lost(r);
}

static void on_readable(h2o_socket_t *sock, const char *err)
{
	struct gw_router *r = sock->data;

	(void)err;
	kvr_client_process(r->client);
}

static int start_router(struct gw_router *r, char *err, size_t errlen)
{
	const struct gw_options *o = r->t->opt;
	const struct kvr_client_conf conf = {.router = r->name,
					     .bind = o->bind[0] != '\0' ? o->bind : NULL,
					     .frame_bytes = o->frame_bytes,
					     .max_requests = o->in_flight,
					     .connect_ms = o->router_ms,
					     .request_ms = o->request_ms,
					     .away_bytes = o->away_bytes,
					     .ack_us = ACK_US,
					     .on_connect = on_connect,
					     .user = r};
	int fd;

	r->client = kvr_client_create(&conf);
	if (r->client == NULL) {
		const int rc = -errno;

		snprintf(err, errlen, "--router %s: %s", r->name,
			 rc == -ENOENT	 ? "unknown host"
			 : rc == -EAGAIN ? "name server does not answer (DNS)"
			 : rc == -EINVAL ? "expected host or host:port"
					 : strerror(-rc));
		return rc;
	}
	/* The loop closes its descriptor, and so does the client. */
	fd = dup(kvr_client_fd(r->client));
	if (fd < 0) {
		snprintf(err, errlen, "router %s: %s", r->name, strerror(errno));
		return -errno;
	}
	r->sock = h2o_evloop_socket_create(r->t->ctx.loop, fd, H2O_SOCKET_FLAG_DONT_READ);
	r->sock->data = r;
	h2o_socket_read_start(r->sock, on_readable);
	kvr_client_connect(r->client);
	kvr_outage_begin(&r->silence, gw_now_ms());
	return 0;
}

int gw_routers_start(struct gw_thread *t, char *err, size_t errlen)
{
	const uint32_t n = t->opt->n_routers;

	t->routers = calloc(n, sizeof(*t->routers));
	if (t->routers == NULL) {
		snprintf(err, errlen, "out of memory");
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < n; i++)
		t->routers[i] = (struct gw_router){.t = t, .name = t->opt->routers[i]};
	for (uint32_t i = 0; i < n; i++) {
		const int rc = start_router(&t->routers[i], err, errlen);

		if (rc < 0)
			return rc;
	}
	return 0;
}

void gw_routers_stop(struct gw_thread *t)
{
	for (uint32_t i = 0; t->routers != NULL && i < t->opt->n_routers; i++) {
		if (t->routers[i].sock != NULL)
			h2o_socket_close(t->routers[i].sock);
		kvr_client_destroy(t->routers[i].client);
	}
	free(t->routers);
	t->routers = NULL;
}

/* Log a router that does not answer, or rejects the gateway. */
static void silence_turn(struct gw_router *r)
{
	if (r->t->number != 0 ||
	    kvr_outage_turn(&r->silence, gw_now_ms(), r->up, KVR_OUTAGE_MS) != KVR_OUTAGE_SILENT)
		return;
	kvr_log_line(KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .addr = r->name,
				   .reason = r->refusal != KVR_OK ? kvr_code_name(r->refusal)
								  : "no answer"),
		     "the router %s; requests go to the next router, or fail",
		     r->refusal != KVR_OK ? "rejects this gateway" : "does not answer");
}

bool gw_router_ended(struct gw_router *r, const struct kvr_client_end *e, bool again)
{
	r->lost += e->reason == KVR_CLIENT_LOST;
	r->again += e->reason == KVR_CLIENT_LOST && again;
	return again;
}

/* One line per second at most. */
static void lost_turn(struct gw_router *r)
{
	if (r->lost == 0 || gw_now_ms() < r->logged_ms + LOST_MS)
		return;
	kvr_log_line(
		KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .addr = r->name,
			      .reason = "new epoch of the router"),
		"thread %u: the router lost %u requests; %u are sent again, the others had begun to be answered or cannot be repeated",
		r->t->number, r->lost, r->again);
	r->logged_ms = gw_now_ms();
	r->lost = r->again = 0;
}

int32_t gw_routers_turn(struct gw_thread *t, int32_t most)
{
	int32_t wait = most < LONGEST_MS ? most : LONGEST_MS;

	for (uint32_t i = 0; i < t->opt->n_routers; i++) {
		struct gw_router *r = &t->routers[i];
		int ms;

		if (r->ask_ms != 0 && gw_now_ms() >= r->ask_ms) {
			r->ask_ms = 0;
			kvr_client_connect(r->client);
		}
		silence_turn(r);
		lost_turn(r);
		ms = kvr_client_timeout_ms(r->client);
		if (ms == 0) { /* received frames are handled by the socket's callback */
			kvr_client_flush(r->client);
			ms = kvr_client_timeout_ms(r->client);
		}
		if (ms >= 0 && ms < wait)
			wait = ms;
	}
	return wait;
}

bool gw_routers_strict(const struct gw_thread *t)
{
	for (uint32_t i = 0; i < t->opt->n_routers; i++)
		if (kvr_client_timeout_strict(t->routers[i].client))
			return true;
	return false;
}

struct gw_router *gw_router_pick(struct gw_thread *t, uint32_t tried)
{
	for (uint32_t i = 0; i < t->opt->n_routers; i++)
		if (t->routers[i].up && (tried & (1u << i)) == 0)
			return &t->routers[i];
	return NULL;
}

static const char *other_name(const struct gw_name list[], uint32_t n, const char *name)
{
	for (uint32_t i = 0; i < n; i++)
		if (strcmp(list[i].name, name) == 0)
			return list[i].of;
	return NULL;
}

bool gw_router_model(const struct gw_router *r, const char *name, struct gw_model *out)
{
	const struct gw_options *o = r->t->opt;
	const struct kvr_client_pool *pools, *found = NULL;
	const char *of;
	uint32_t n, fit = 0;

	*out = (struct gw_model){0};
	of = other_name(o->adapters, o->n_adapters, name);
	if (of != NULL) {
		out->lora = name;
		name = of;
	}
	of = other_name(o->models, o->n_models, name);
	if (of != NULL)
		name = of;
	pools = kvr_client_pools(r->client, &n);
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
