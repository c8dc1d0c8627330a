/* SPDX-License-Identifier: BSD-3-Clause */
/* Registration of the worker: when the engine is healthy, until it fails. */
#include "app.h"
#include "body.h"
#include "canary.h"

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
	struct app *a = user;

	if (s->reject == KVR_E_WORKER_ALIVE)
		app_log(a,
			KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .addr = a->o.router,
				      .reason = kvr_code_name(s->reject)),
			"the router rejects the worker: %s; retrying. If a previous agent was killed, this ends within seconds. If two agents run, change --worker of one",
			s->text[0] != '\0' ? s->text : kvr_code_name(s->reject));
	else if (s->reject != 0)
		app_log(a,
			KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = a->o.router,
				      .reason = kvr_code_name(s->reject)),
			"the router rejects the worker: %s",
			s->text[0] != '\0' ? s->text : kvr_code_name(s->reject));
	else if (a->logged_state != s->state + 1U) /* also called when only bookings change */
		app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_INFO, .addr = a->o.router),
			"the worker is %s",
			(unsigned int)s->state < sizeof(words) / sizeof(words[0]) ? words[s->state]
										  : "?");
	a->refused = s->reject != 0;
	a->logged_state = s->reject != 0 ? 0 : s->state + 1U;
	a->drained = s->state == KVR_AGENT_DRAINED || s->state == KVR_AGENT_OFFLINE ||
		     s->state == KVR_AGENT_GONE;
	if (s->state == KVR_AGENT_GONE)
		a->until_us = 0;
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

static struct kvr_agent *create_agent(struct app *a)
{
	char taints[sizeof(a->o.taints)], topology[sizeof(a->o.topology)];
	const char *taint[LIST_MOST + 1], *place[LIST_MOST + 1];
	const struct agent_options *o = &a->o;
	struct kvr_agent_conf conf = {
		.router = o->router,
		.bind = o->bind[0] != '\0' ? o->bind : NULL,
		.worker = o->worker,
		.pool = o->pool,
		.role = (enum kvr_role)o->role,
		.block_size = a->block_size,
		.dp_start = o->first_rank,
		.dp_size = o->ranks,
		.total_kv_blocks = a->blocks,
		.max_num_batched_tokens = o->max_num_batched_tokens,
		.cpu = o->cpu,
		.kv_transfer_enforcement = (uint8_t)o->kv_transfer,
		.kv_transfer_weight = o->kv_transfer_weight,
		.kv_transfer_domain = o->kv_transfer != 0 ? o->kv_transfer_domain : NULL,
		.engine_addr = a->engine_addr[0] != '\0' ? a->engine_addr : NULL,
		.body_addr = a->body_addr[0] != '\0' ? a->body_addr : NULL,
		.taints = taint,
		.topology = place,
		.bootstrap_host = o->bootstrap_host[0] != '\0' ? o->bootstrap_host : NULL,
		.bootstrap_port = o->bootstrap_port,
		.frame_bytes = o->frame_bytes,
		.max_requests = o->max_requests,
		.request_bytes = o->request_bytes,
		.kv_ring_bytes = 16u << 20,
		.ack_us = ACK_US,
		.ops = &ops,
		.user = a,
	};

	snprintf(taints, sizeof(taints), "%s", o->taints);
	snprintf(topology, sizeof(topology), "%s", o->topology);
	split_list(taints, taint);
	split_list(topology, place);
	return kvr_agent_create(&conf);
}

/* A wrong --type does not stop requests; its effects show late and elsewhere. */
static void compare_type(struct app *a)
{
	if (a->prom.kind != AGENT_AUTO && (int)a->prom.kind != a->o.type)
		app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .addr = a->o.engine),
			"the engine's metrics are those of %s, but --type is %s, which determines how KV events are read and how prefill and decode are requested; correct --type",
			agent_kinds[a->prom.kind], agent_kinds[a->o.type]);
}

void app_worker_register(struct app *a)
{
	int rc;

	if (!app_describe_apply(a))
		return;
	compare_type(a);
	a->agent = create_agent(a);
	if (a->agent == NULL) {
		const char *why = strerror(errno);

		if (app_is_news(a, &a->start, why))
			app_log(a,
				KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = a->o.router,
					      .reason = why),
				"cannot open a socket to the router");
		return;
	}
	a->drained = true; /* unknown yet */
	if (a->resting)
		kvr_agent_drain(a->agent, true);
	rc = app_watch(a, EPOLL_CTL_ADD, kvr_agent_fd(a->agent), APP_FD_ROUTER, 0, EPOLLIN);
	if (rc < 0) { /* logged already; the next /health retries */
		kvr_agent_destroy(a->agent);
		a->agent = NULL;
		return;
	}
	rc = app_streams_start(a);
	if (rc < 0) {
		if (app_is_news(a, &a->start, strerror(-rc)))
			app_log(a,
				KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = a->o.events,
					      .reason = strerror(-rc)),
				"cannot subscribe to the engine's events");
		app_streams_stop(a);
		kvr_agent_destroy(a->agent);
		a->agent = NULL;
		return;
	}
	app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_INFO, .addr = a->o.router),
		"registering the worker with the router");
	a->state = APP_SERVING;
	a->frames = a->routers_returned = a->router_epochs = 0;
	a->refused = false;
	kvr_outage_begin(&a->silence, a->now_us / 1000);
	a->health_failures = 0;
	a->start.what[0] = '\0';
	kvr_cell_add(&a->st.lives, 1);
	app_load_report(a);
	app_canary_begin(a);
}

/* Detect an engine that was restarted between two checks of /health, by the constants of its
 * metrics. @return true: the worker leaves. */
static bool is_another_engine(struct app *a)
{
	const struct agent_prom *p = &a->prom, *was = &a->described;

	if (a->state != APP_SERVING || p->block_size == 0 || was->block_size == 0 ||
	    (p->block_size == was->block_size && p->blocks == was->blocks &&
	     p->engines == was->engines))
		return false;
	app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = a->o.engine),
		"the engine has another block size, capacity or number of ranks than at registration; the worker leaves, and registers again");
	app_leave(a, false);
	return true;
}

/* Report the larger of the engine's count, which is slightly old, and the agent's own. */
void app_load_report(struct app *a)
{
	if (is_another_engine(a))
		return;
	for (uint32_t i = 0; i < a->o.ranks; i++) {
		const uint32_t number = a->o.local_ranks ? i : a->o.first_rank + i;
		const struct agent_prom_rank none = {0};
		const struct agent_prom_rank *r =
			number < AGENT_PROM_RANKS ? &a->prom.rank[number] : &none;
		const double n = r->waiting + r->running;
		uint32_t active = n < 1e9 ? (uint32_t)n : 0;

		if (active < a->live[i])
			active = a->live[i];
		kvr_agent_load(a->agent, a->o.first_rank + i, active,
			       r->seen && a->blocks > 0 ? (uint64_t)(r->kv_use * (double)a->blocks)
							: UINT64_MAX);
	}
}

void app_worker_withdraw(struct app *a, const char *why)
{
	app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = a->o.engine, .reason = why),
		"/health failed (%u in a row); the worker leaves until the engine recovers",
		a->health_failures);
	app_leave(a, false);
}

/* Call after reading and before probing. */
void app_hang_turn(struct app *a)
{
	const uint64_t most_us = a->o.silent_ms * UINT64_C(1000);
	const bool still = agent_hang_detect(&a->hang, a->now_us, most_us);

	if (app_jobs_running(a) > 0 && agent_hang_needs_probe(&a->hang, a->now_us, most_us / 2))
		a->health.due_us = a->now_us;
	if (!still || a->state != APP_SERVING)
		return;
	app_log(a,
		KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = a->o.engine,
			      .reason = "no answer in time"),
		"the engine hangs: no data for %u ms; the worker leaves until the engine recovers",
		a->o.silent_ms);
	app_leave(a, false);
}

static void log_epochs(struct app *a, const struct kvr_agent_stats *st)
{
	if (st->routers_returned != a->routers_returned)
		app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .addr = a->o.router),
			"the router has an earlier epoch again: two routers have this address, or a takeover was reverted; the worker registers again");
	else if (st->router_epochs != a->router_epochs)
		app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE, .addr = a->o.router),
			"the router has a new epoch: it was restarted, or (if this repeats every second) two routers have this address");
	a->routers_returned = st->routers_returned;
	a->router_epochs = st->router_epochs;
}

/* A registered router counts as unresponsive when lib/agent gives it up, not earlier. */
void app_router_turn(struct app *a)
{
	struct kvr_agent_stats st;
	bool answered;

	if (a->agent == NULL || a->state == APP_LEAVING || a->state == APP_GOING)
		return;
	kvr_agent_stats_get(a->agent, &st);
	log_epochs(a, &st);
	answered = st.frames_received != a->frames ||
		   kvr_agent_state_now(a->agent) != KVR_AGENT_OFFLINE;
	a->frames = st.frames_received;
	switch (kvr_outage_turn(&a->silence, a->now_us / 1000, answered,
				a->refused ? REFUSED_MS : KVR_OUTAGE_MS)) {
	case KVR_OUTAGE_SILENT:
		app_log(a,
			KVR_LOG_ABOUT(.level = KVR_LOG_WARNING, .addr = a->o.router,
				      .reason = "no answer"),
			"the router does not answer: the worker gets no requests until it does");
		break;
	case KVR_OUTAGE_ANSWERS:
		app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE, .addr = a->o.router),
			"the router answers");
		break;
	default:
		break;
	}
}

void app_leave(struct app *a, bool final)
{
	a->state = final ? APP_GOING : APP_LEAVING;
	a->until_us = a->now_us + 2000000;
	if (a->agent != NULL)
		kvr_agent_goodbye(a->agent);
}
