/* SPDX-License-Identifier: BSD-3-Clause */
/* Registration of the worker: when the engine is healthy, until it fails. */
#include "app.h"
#include "canary.h"
#include "protocol.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define ACK_US	   500u /* an answer within this time replaces the acknowledgement */
#define LIST_MOST  16u
#define REFUSED_MS 15000u /* time without an answer of a router that is asked every 10 s */

static int on_dispatch(struct kvr_agent *agent, const struct kvr_agent_request *r, void *user)
{
	return app_job_dispatch(user, r);
}

static void on_abort(struct kvr_agent *agent, uint64_t handle, enum kvr_agent_abort why,
		     uint16_t code, void *user)
{
	app_job_abort(user, handle);
}

static void on_done(struct kvr_agent *agent, uint64_t handle, void *user)
{
}

static int on_dump(struct kvr_agent *agent, uint32_t dp_rank, uint64_t pos, struct kvr_agent_kv *kv,
		   void *user)
{
	return app_stream_dump(user, dp_rank, pos, kv);
}

static void on_state(struct kvr_agent *agent, const struct kvr_agent_status *s, void *user)
{
	static const char *const words[] = {"not registered", "joining", "serving", "suspect",
					    "draining",	      "drained", "gone"};
	struct app *app = user;

	if (s->reject == KVR_E_WORKER_ALIVE)
		app_log(app,
			KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .addr = app->o.router,
				      .reason = kvr_code_name(s->reject)),
			"the router rejects the worker: %s; retrying. If a previous agent was killed, this ends within seconds. If two agents run, change --worker of one",
			s->text[0] != '\0' ? s->text : kvr_code_name(s->reject));
	else if (s->reject != 0)
		app_log(app,
			KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = app->o.router,
				      .reason = kvr_code_name(s->reject)),
			"the router rejects the worker: %s",
			s->text[0] != '\0' ? s->text : kvr_code_name(s->reject));
	else if (app->logged_state != s->state + 1U) /* also called when only bookings change */
		app_log(app, KVR_LOG_ABOUT(.level = KVR_LOG_INFO, .addr = app->o.router),
			"the worker is %s",
			(unsigned int)s->state < sizeof(words) / sizeof(words[0]) ? words[s->state]
										  : "?");
	app->refused = s->reject != 0;
	app->logged_state = s->reject != 0 ? 0 : s->state + 1U;
	app->drained = s->state == KVR_AGENT_DRAINED || s->state == KVR_AGENT_OFFLINE ||
		       s->state == KVR_AGENT_GONE;
	if (s->state == KVR_AGENT_GONE)
		app->until_us = 0;
}

static const struct kvr_agent_ops ops = {.on_dispatch = on_dispatch,
					 .on_abort = on_abort,
					 .on_done = on_done,
					 .on_state = on_state,
					 .on_dump = on_dump};

/* Split a list at its commas, in place. */
static void split_list(char *text, const char *list[LIST_MOST + 1])
{
	unsigned int n = 0;

	for (char *save, *w = strtok_r(text, ",", &save); w != NULL && n < LIST_MOST;
	     w = strtok_r(NULL, ",", &save))
		list[n++] = w;
	list[n] = NULL;
}

static struct kvr_agent *create_agent(struct app *app)
{
	char taints[sizeof(app->o.taints)], topology[sizeof(app->o.topology)];
	const char *taint[LIST_MOST + 1], *place[LIST_MOST + 1];
	const struct agent_options *options = &app->o;
	struct kvr_agent_conf conf = {
		.router = options->router,
		.bind = options->bind[0] != '\0' ? options->bind : NULL,
		.worker = options->worker,
		.pool = options->pool,
		.role = (enum kvr_role)options->role,
		.block_size = app->block_size,
		.dp_start = options->first_rank,
		.dp_size = options->ranks,
		.total_kv_blocks = app->blocks,
		.max_num_batched_tokens = options->max_num_batched_tokens,
		.cpu = options->cpu,
		.kv_transfer_enforcement = (uint8_t)options->kv_transfer,
		.kv_transfer_weight = options->kv_transfer_weight,
		.kv_transfer_domain =
			options->kv_transfer != 0 ? options->kv_transfer_domain : NULL,
		.engine_addr = app->engine_addr[0] != '\0' ? app->engine_addr : NULL,
		.body_addr = app->body_addr[0] != '\0' ? app->body_addr : NULL,
		.taints = taint,
		.topology = place,
		.bootstrap_host =
			options->bootstrap_host[0] != '\0' ? options->bootstrap_host : NULL,
		.bootstrap_port = options->bootstrap_port,
		.frame_bytes = options->frame_bytes,
		.max_requests = options->max_requests,
		.request_bytes = options->request_bytes,
		.kv_ring_bytes = 16u << 20,
		.ack_us = ACK_US,
		.ops = &ops,
		.user = app,
	};

	snprintf(taints, sizeof(taints), "%s", options->taints);
	snprintf(topology, sizeof(topology), "%s", options->topology);
	split_list(taints, taint);
	split_list(topology, place);
	return kvr_agent_create(&conf);
}

/* A wrong --type does not stop requests; its effects show late and elsewhere. */
static void compare_type(struct app *app)
{
	if (app->prom.kind != AGENT_AUTO && (int)app->prom.kind != app->o.type)
		app_log(app, KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .addr = app->o.engine),
			"the engine's metrics are those of %s, but --type is %s, which determines how KV events are read and how prefill and decode are requested; correct --type",
			agent_kinds[app->prom.kind], agent_kinds[app->o.type]);
}

void app_worker_register(struct app *app)
{
	int rc;

	if (!app_describe_apply(app))
		return;
	compare_type(app);
	app->agent = create_agent(app);
	if (app->agent == NULL) {
		const char *why = strerror(errno);

		if (app_is_news(app, &app->start, why))
			app_log(app,
				KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = app->o.router,
					      .reason = why),
				"cannot open a socket to the router");
		return;
	}
	app->drained = true; /* unknown yet */
	if (app->resting)
		kvr_agent_drain(app->agent, true);
	rc = app_watch(app, EPOLL_CTL_ADD, kvr_agent_fd(app->agent), APP_FD_ROUTER, 0, EPOLLIN);
	if (rc < 0) { /* logged already; the next /health retries */
		kvr_agent_destroy(app->agent);
		app->agent = NULL;
		return;
	}
	rc = app_streams_start(app);
	if (rc < 0) {
		if (app_is_news(app, &app->start, strerror(-rc)))
			app_log(app,
				KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = app->o.events,
					      .reason = strerror(-rc)),
				"cannot subscribe to the engine's events");
		app_streams_stop(app);
		kvr_agent_destroy(app->agent);
		app->agent = NULL;
		return;
	}
	app_log(app, KVR_LOG_ABOUT(.level = KVR_LOG_INFO, .addr = app->o.router),
		"registering the worker with the router");
	app->state = APP_SERVING;
	app->frames = app->routers_returned = app->router_epochs = 0;
	app->refused = false;
	kvr_outage_begin(&app->silence, app->now_us / 1000);
	app->health_failures = 0;
	app->start.what[0] = '\0';
	kvr_cell_add(&app->st.lives, 1);
	app_load_report(app);
	app_canary_begin(app);
}

/* Detect an engine that was restarted between two checks of /health, by the constants of its
 * metrics. @return true: the worker leaves. */
static bool is_another_engine(struct app *app)
{
	const struct agent_prom *p = &app->prom, *was = &app->described;

	if (app->state != APP_SERVING || p->block_size == 0 || was->block_size == 0 ||
	    (p->block_size == was->block_size && p->blocks == was->blocks &&
	     p->engines == was->engines))
		return false;
	app_log(app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = app->o.engine),
		"the engine has another block size, capacity or number of ranks than at registration; the worker leaves, and registers again");
	app_leave(app, false);
	return true;
}

/* Report the larger of the engine's count, which is slightly old, and the agent's own. */
void app_load_report(struct app *app)
{
	if (is_another_engine(app))
		return;
	for (uint32_t i = 0; i < app->o.ranks; i++) {
		const uint32_t number = app->o.local_ranks ? i : app->o.first_rank + i;
		const struct agent_prom_rank none = {0};
		const struct agent_prom_rank *r =
			number < AGENT_PROM_RANKS ? &app->prom.rank[number] : &none;
		const double n = r->waiting + r->running;
		uint32_t active = n < 1e9 ? (uint32_t)n : 0;

		if (active < app->live[i])
			active = app->live[i];
		kvr_agent_load(app->agent, app->o.first_rank + i, active,
			       r->seen && app->blocks > 0
				       ? (uint64_t)(r->kv_use * (double)app->blocks)
				       : UINT64_MAX);
	}
}

void app_worker_withdraw(struct app *app, const char *why)
{
	app_log(app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = app->o.engine, .reason = why),
		"/health failed (%u in a row); the worker leaves until the engine recovers",
		app->health_failures);
	app_leave(app, false);
}

/* Call after reading and before probing. */
void app_hang_turn(struct app *app)
{
	const uint64_t most_us = app->o.silent_ms * UINT64_C(1000);
	const bool still = agent_hang_detect(&app->hang, app->now_us, most_us);

	if (app_jobs_running(app) > 0 &&
	    agent_hang_needs_probe(&app->hang, app->now_us, most_us / 2))
		app->health.due_us = app->now_us;
	if (!still || app->state != APP_SERVING)
		return;
	app_log(app,
		KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = app->o.engine,
			      .reason = "no answer in time"),
		"the engine hangs: no data for %u ms; the worker leaves until the engine recovers",
		app->o.silent_ms);
	app_leave(app, false);
}

static void log_epochs(struct app *app, const struct kvr_agent_stats *st)
{
	if (st->routers_returned != app->routers_returned)
		app_log(app, KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .addr = app->o.router),
			"the router has an earlier epoch again: two routers have this address, or a takeover was reverted; the worker registers again");
	else if (st->router_epochs != app->router_epochs)
		app_log(app, KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE, .addr = app->o.router),
			"the router has a new epoch: it was restarted, or (if this repeats every second) two routers have this address");
	app->routers_returned = st->routers_returned;
	app->router_epochs = st->router_epochs;
}

/* A registered router counts as unresponsive when lib/agent gives it up, not earlier. */
void app_router_turn(struct app *app)
{
	struct kvr_agent_stats st;
	bool answered;

	if (app->agent == NULL || app->state == APP_LEAVING || app->state == APP_GOING)
		return;
	kvr_agent_stats_get(app->agent, &st);
	log_epochs(app, &st);
	answered = st.frames_received != app->frames ||
		   kvr_agent_state_now(app->agent) != KVR_AGENT_OFFLINE;
	app->frames = st.frames_received;
	switch (kvr_outage_turn(&app->silence, app->now_us / 1000, answered,
				app->refused ? REFUSED_MS : KVR_OUTAGE_MS)) {
	case KVR_OUTAGE_SILENT:
		app_log(app,
			KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .addr = app->o.router,
				      .reason = "no answer"),
			"the router does not answer: the worker gets no requests until it does");
		break;
	case KVR_OUTAGE_ANSWERS:
		app_log(app, KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE, .addr = app->o.router),
			"the router answers");
		break;
	default:
		break;
	}
}

void app_leave(struct app *app, bool final)
{
	app->state = final ? APP_GOING : APP_LEAVING;
	app->until_us = app->now_us + 2000000;
	if (app->agent != NULL)
		kvr_agent_goodbye(app->agent);
}
