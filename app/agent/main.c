/* SPDX-License-Identifier: BSD-3-Clause */
/* Start and main loop of kvroute-agent. */
#include "address.h"
#include "canary.h"
#include "job.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "kvr_conf.h"
#include "kvr_timer_slack.h"
#include "version.h"

#define EVENTS	    256
#define RANKS_USUAL 16u /* ranks assumed before the engine reports them */

static volatile sig_atomic_t stop_asked, stats_asked, rest_asked;

static void on_signal(int number)
{
	if (number == SIGUSR1)
		stats_asked = 1;
	else if (number == SIGUSR2)
		rest_asked++;
	else
		stop_asked++;
}

static uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static void destroy_agent(struct app *app)
{
	if (app->agent == NULL)
		return;
	epoll_ctl(app->epoll, EPOLL_CTL_DEL, kvr_agent_fd(app->agent), NULL);
	kvr_agent_destroy(app->agent);
	app->agent = NULL;
}

static void signals_turn(struct app *app, int *stops, int *rests)
{
	const int rested = rest_asked - *rests;

	if (stats_asked) {
		stats_asked = 0;
		app_print_stats(app);
	}
	*rests += rested;
	if (rested % 2 != 0) { /* two signals at once cancel each other */
		app->resting = !app->resting;
		app_log(app, KVR_LOG_ABOUT(.level = KVR_LOG_INFO),
			app->resting ? "draining until the next SIGUSR2" : "resuming");
		if (app->agent != NULL && app->state != APP_DRAINING)
			kvr_agent_drain(app->agent, app->resting);
	}
	if (stop_asked == *stops)
		return;
	*stops = stop_asked;
	if (app->state == APP_SERVING && *stops == 1) {
		app->state = APP_DRAINING;
		app->until_us = app->now_us + app->o.drain_s * UINT64_C(1000000);
		kvr_agent_drain(app->agent, true);
		app_log(app, KVR_LOG_ABOUT(.level = KVR_LOG_INFO, .reason = "signal"),
			"leaving: waiting for %u requests", app_jobs_running(app));
	} else {
		app_leave(app, true);
	}
}

/* Change the state if due. @return false: the end. */
static bool state_turn(struct app *app)
{
	const bool late = app->now_us >= app->until_us;

	switch (app->state) {
	case APP_DRAINING:
		/* Requests may arrive until the router confirms the drain. */
		if (late || (app->drained && app_jobs_running(app) == 0 &&
			     kvr_agent_running(app->agent) == 0))
			app_leave(app, true);
		return true;
	case APP_LEAVING:
		if (late) {
			destroy_agent(app);
			app_streams_stop(app);
			app_probe_forget(app);
			app->state = APP_WAITING;
			app->health.due_us = app->now_us;
		}
		return true;
	case APP_GOING:
		return !late && app->agent != NULL;
	default:
		return true;
	}
}

/* Time until the next timer. */
static int sleep_ms(const struct app *app)
{
	uint64_t due = app_probe_due_us(app);
	int ms;

	if (app->more || !TAILQ_EMPTY(&app->dirty))
		return 0;
	if (app->curl_due_us < due)
		due = app->curl_due_us;
	if (app_engine_due_us(app) < due)
		due = app_engine_due_us(app);
	if (app_canary_due_us(app) < due)
		due = app_canary_due_us(app);
	if (app_bodies_due_us(app) < due)
		due = app_bodies_due_us(app);
	if (app_heads_due_us(app) < due)
		due = app_heads_due_us(app);
	if (app_trials_due_us(app) < due)
		due = app_trials_due_us(app);
	if (app->state >= APP_LEAVING && app->until_us < due)
		due = app->until_us;
	ms = due <= app->now_us		  ? 0
	     : due - app->now_us > 200000 ? 200
					  : (int)((due - app->now_us + 999) / 1000);
	if (app->agent != NULL) {
		const int agent = kvr_agent_timeout_ms(app->agent);

		if (agent >= 0 && agent < ms)
			ms = agent;
	}
	return ms;
}

static void run_loop(struct app *app)
{
	struct epoll_event ev[EVENTS];
	struct kvr_timer_slack slack = {0};
	int stops = 0, rests = 0, n;
	bool received;

	do {
		kvr_timer_slack_set(&slack,
				    app->agent != NULL && kvr_agent_timeout_strict(app->agent)
					    ? KVR_TIMER_SLACK_USUAL_NS
					    : KVR_TIMER_SLACK_TICK_NS);
		n = epoll_wait(app->epoll, ev, EVENTS, sleep_ms(app));
		app->now_us = now_us();
		app->more = received = false;
		signals_turn(app, &stops, &rests);
		for (int i = 0; i < n; i++)
			if (ev[i].data.u64 >> 32 == APP_FD_ROUTER)
				received = true;
			else if (ev[i].data.u64 >> 32 == APP_FD_CURL)
				app_http_ready(app, (int)(uint32_t)ev[i].data.u64, ev[i].events);
			else if (ev[i].data.u64 >> 32 == APP_FD_BODY)
				app_bodies_ready(app, (uint32_t)ev[i].data.u64);
			else if (ev[i].data.u64 >> 32 == APP_FD_ENGINE)
				app_engine_ready(app, (uint32_t)ev[i].data.u64, ev[i].events);
		app_http_turn(app);
		app_engine_turn(app);
		app_bodies_turn(app);
		app_streams_turn(app);
		if (app->agent != NULL) {
			if (received || kvr_agent_timeout_ms(app->agent) == 0)
				kvr_agent_process(app->agent);
			app_trials_turn(app);
			app_jobs_flush(app);
			kvr_agent_flush(app->agent);
			app_streams_resume(app);
		}
		app_engine_open_spare(app);
		app_hang_turn(app);
		app_probe_turn(app);
		app_canary_turn(app);
		app_router_turn(app);
	} while (state_turn(app));
}

/* One descriptor per request and some more: the usual limit of a shell is lower. */
static void allow_files(struct app *app)
{
	const uint32_t ranks = app->given.ranks != 0 ? app->given.ranks : RANKS_USUAL;
	const rlim_t want = app->o.max_requests + 8ul * ranks + 128;
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_cur >= want)
		return;
	r.rlim_cur = r.rlim_max < want ? r.rlim_max : want;
	setrlimit(RLIMIT_NOFILE, &r);
	if (r.rlim_cur < want) {
		app->given.max_requests = r.rlim_cur > 128 ? (uint32_t)r.rlim_cur - 64 : 64;
		app->o.max_requests = app->given.max_requests;
		app_log(app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
			"the limit of %lu open files allows %u requests at once; raise it (ulimit -n %lu), or lower --max-requests",
			(unsigned long)r.rlim_cur, app->o.max_requests, (unsigned long)want);
	}
}

/*
 * Determine the published address of the engine. A loopback address in --engine is replaced by the
 * address that faces the router; --advertise must be valid as given. @return 0, or 1 after an error
 * message.
 */
static int set_engine_address(struct app *app)
{
	char host[256], port[8];
	int rc;

	if (app->o.advertise[0] == '\0')
		return 0;
	if (agent_address_split(app->o.advertise, host, sizeof(host), port) < 0) {
		if (!app->o.advertise_engine) {
			fprintf(stderr, "kvroute-agent: --advertise %s: expected HOST:PORT\n",
				app->o.advertise);
			return 1;
		}
		/* No port: the default of HTTP. */
		snprintf(host, sizeof(host), "%s", app->o.advertise + (app->o.advertise[0] == '['));
		host[strcspn(host, "]")] = '\0';
		snprintf(port, sizeof(port), "80");
	}
	rc = agent_address_publish(host, port, app->facing,
				   app->o.advertise_engine ? AGENT_REPLACE_SELF
							   : AGENT_REPLACE_NONE,
				   app->engine_addr, sizeof(app->engine_addr));
	if (rc < 0)
		app->engine_addr[0] = '\0';
	if (rc == 0 || app->o.advertise_engine)
		return 0; /* without an address /pick cannot list the engine; everything else works
			   */
	fprintf(stderr,
		"kvroute-agent: --advertise %s: other machines cannot reach the engine at this address\n",
		app->o.advertise);
	return 1;
}

static int start_bodies(struct app *app)
{
	const int rc = app_bodies_start(app, &app_job_bodies);

	if (rc == 0)
		return 0;
	if (rc == -EADDRNOTAVAIL)
		fprintf(stderr,
			"kvroute-agent: --bodies %s: clients on other machines cannot reach this address; give one that they reach, or --bodies-advertise\n",
			app->o.bodies);
	else
		fprintf(stderr, "kvroute-agent: --bodies %s%s%s: %s\n", app->o.bodies,
			app->o.bodies_advertise[0] != '\0' ? " --bodies-advertise " : "",
			app->o.bodies_advertise,
			rc == -EINVAL ? "expected ADDRESS:PORT in numeric form" : strerror(-rc));
	return 1;
}

/* Wait for a route to the router, because the published addresses of engine and bodies depend on
 * it. @return false: a signal asked to stop. */
static bool find_facing(struct app *app)
{
	const struct timespec second = {.tv_sec = 1};
	bool logged = false;

	for (;;) {
		agent_address_facing(app->o.router, app->facing, sizeof(app->facing));
		if (app->facing[0] != '\0')
			return true;
		if (!logged)
			app_log(app, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = app->o.router),
				"unknown name of the router, or no route to it; retrying every second");
		logged = true;
		if (stop_asked == 0)
			nanosleep(&second, NULL);
		if (stop_asked != 0)
			return false;
	}
}

/* The router detects two agents with one number, and rejects the second. */
static void choose_worker(struct app *app)
{
	char machine[256] = "";

	if (app->given.worker != 0)
		return;
	gethostname(machine, sizeof(machine) - 1);
	app->given.worker = agent_address_number(
		machine, app->engine_addr[0] != '\0' ? app->engine_addr : app->o.engine,
		app->o.pool, app->o.first_rank);
	app->o.worker = app->given.worker;
	app_log(app, KVR_LOG_ABOUT(.level = KVR_LOG_INFO),
		"worker %" PRIu64
		": derived from engine %s, host %s, pool %s, first rank %u (--worker auto)",
		app->o.worker, app->engine_addr[0] != '\0' ? app->engine_addr : app->o.engine,
		machine, app->o.pool, app->o.first_rank);
}

static void log_start(struct app *app)
{
	app_log(app, KVR_LOG_ABOUT(.level = KVR_LOG_INFO, .addr = app->o.router),
		"kvroute-agent %s runs as process %d: engine %s", KVR_VERSION, (int)getpid(),
		app->o.engine);
}

static int run_agent(struct app *app)
{
	struct sigaction sa = {.sa_handler = on_signal};

	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGUSR1, &sa, NULL);
	sigaction(SIGUSR2, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
	app->now_us = now_us();
	allow_files(app);
	agent_prom_read(&app->prom, "", 0);
	app->health.path = "/health";
	app->metrics.path = "/metrics";
	app->epoll = epoll_create1(EPOLL_CLOEXEC);
	app->zmq = zmq_ctx_new();
	if (app->epoll < 0 || app->zmq == NULL || app_http_init(app) < 0 ||
	    app_canary_start(app) < 0) {
		fprintf(stderr, "kvroute-agent: no memory\n");
		return 1;
	}
	if (!find_facing(app))
		return 0;
	if (set_engine_address(app) != 0 || start_bodies(app) != 0)
		return 1;
	log_start(app);
	choose_worker(app);
	run_loop(app);
	app_log_end(app);
	destroy_agent(app);
	app_bodies_stop(app);
	app_streams_stop(app);
	app_http_fini(app);
	zmq_ctx_term(app->zmq);
	close(app->epoll);
	return 0;
}

int main(int argc, char **argv)
{
	static struct app a;
	char err[400];
	int rc;

	if (kvr_conf_version(argc, argv, "kvroute-agent", stdout))
		return 0;
	rc = agent_options_parse(&a.given, argc, argv, err, sizeof(err));
	if (rc < 0) {
		fprintf(stderr, "kvroute-agent: %s\n", err);
		return 2;
	}
	if (rc == 0)
		return 0;
	a.o = a.given;
	rc = kvr_log_open("kvroute-agent", (enum kvr_log_sink)a.o.log_to, STDERR_FILENO, NULL);
	if (rc < 0) {
		fprintf(stderr, "kvroute-agent: --log-to: destination not available: %s\n",
			strerror(-rc));
		return 1;
	}
	return run_agent(&a);
}
