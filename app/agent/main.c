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

static void destroy_agent(struct app *a)
{
	if (a->agent == NULL)
		return;
	epoll_ctl(a->epoll, EPOLL_CTL_DEL, kvr_agent_fd(a->agent), NULL);
	kvr_agent_destroy(a->agent);
	a->agent = NULL;
}

static void signals_turn(struct app *a, int *stops, int *rests)
{
	const int rested = rest_asked - *rests;

	if (stats_asked) {
		stats_asked = 0;
		app_print_stats(a);
	}
	*rests += rested;
	if (rested % 2 != 0) { /* two signals at once cancel each other */
		a->resting = !a->resting;
		app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_INFO),
			a->resting ? "draining until the next SIGUSR2" : "resuming");
		if (a->agent != NULL && a->state != APP_DRAINING)
			kvr_agent_drain(a->agent, a->resting);
	}
	if (stop_asked == *stops)
		return;
	*stops = stop_asked;
	if (a->state == APP_SERVING && *stops == 1) {
		a->state = APP_DRAINING;
		a->until_us = a->now_us + a->o.drain_s * UINT64_C(1000000);
		kvr_agent_drain(a->agent, true);
		app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_INFO, .reason = "signal"),
			"leaving: waiting for %u requests", app_jobs_running(a));
	} else {
		app_leave(a, true);
	}
}

/* Change the state if due. @return false: the end. */
static bool state_turn(struct app *a)
{
	const bool late = a->now_us >= a->until_us;

	switch (a->state) {
	case APP_DRAINING:
		/* Requests may arrive until the router confirms the drain. */
		if (late ||
		    (a->drained && app_jobs_running(a) == 0 && kvr_agent_running(a->agent) == 0))
			app_leave(a, true);
		return true;
	case APP_LEAVING:
		if (late) {
			destroy_agent(a);
			app_streams_stop(a);
			app_probe_forget(a);
			a->state = APP_WAITING;
			a->health.due_us = a->now_us;
		}
		return true;
	case APP_GOING:
		return !late && a->agent != NULL;
	default:
		return true;
	}
}

/* Time until the next timer. */
static int sleep_ms(const struct app *a)
{
	uint64_t due = app_probe_due_us(a);
	int ms;

	if (a->more || !TAILQ_EMPTY(&a->dirty))
		return 0;
	if (a->curl_due_us < due)
		due = a->curl_due_us;
	if (app_engine_due_us(a) < due)
		due = app_engine_due_us(a);
	if (app_canary_due_us(a) < due)
		due = app_canary_due_us(a);
	if (app_bodies_due_us(a) < due)
		due = app_bodies_due_us(a);
	if (app_heads_due_us(a) < due)
		due = app_heads_due_us(a);
	if (app_trials_due_us(a) < due)
		due = app_trials_due_us(a);
	if (a->state >= APP_LEAVING && a->until_us < due)
		due = a->until_us;
	ms = due <= a->now_us		? 0
	     : due - a->now_us > 200000 ? 200
					: (int)((due - a->now_us + 999) / 1000);
	if (a->agent != NULL) {
		const int agent = kvr_agent_timeout_ms(a->agent);

		if (agent >= 0 && agent < ms)
			ms = agent;
	}
	return ms;
}

static void run_loop(struct app *a)
{
	struct epoll_event ev[EVENTS];
	struct kvr_timer_slack slack = {0};
	int stops = 0, rests = 0, n;
	bool received;

	do {
		kvr_timer_slack_set(&slack, a->agent != NULL && kvr_agent_timeout_strict(a->agent)
						    ? KVR_TIMER_SLACK_USUAL_NS
						    : KVR_TIMER_SLACK_TICK_NS);
		n = epoll_wait(a->epoll, ev, EVENTS, sleep_ms(a));
		a->now_us = now_us();
		a->more = received = false;
		signals_turn(a, &stops, &rests);
		for (int i = 0; i < n; i++)
			if (ev[i].data.u64 >> 32 == APP_FD_ROUTER)
				received = true;
			else if (ev[i].data.u64 >> 32 == APP_FD_CURL)
				app_http_ready(a, (int)(uint32_t)ev[i].data.u64, ev[i].events);
			else if (ev[i].data.u64 >> 32 == APP_FD_BODY)
				app_bodies_ready(a, (uint32_t)ev[i].data.u64);
			else if (ev[i].data.u64 >> 32 == APP_FD_ENGINE)
				app_engine_ready(a, (uint32_t)ev[i].data.u64, ev[i].events);
		app_http_turn(a);
		app_engine_turn(a);
		app_bodies_turn(a);
		app_streams_turn(a);
		if (a->agent != NULL) {
			if (received || kvr_agent_timeout_ms(a->agent) == 0)
				kvr_agent_process(a->agent);
			app_trials_turn(a);
			app_jobs_flush(a);
			kvr_agent_flush(a->agent);
			app_streams_resume(a);
		}
		app_engine_open_spare(a);
		app_hang_turn(a);
		app_probe_turn(a);
		app_canary_turn(a);
		app_router_turn(a);
	} while (state_turn(a));
}

/* One descriptor per request and some more: the usual limit of a shell is lower. */
static void allow_files(struct app *a)
{
	const uint32_t ranks = a->given.ranks != 0 ? a->given.ranks : RANKS_USUAL;
	const rlim_t want = a->o.max_requests + 8ul * ranks + 128;
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_cur >= want)
		return;
	r.rlim_cur = r.rlim_max < want ? r.rlim_max : want;
	setrlimit(RLIMIT_NOFILE, &r);
	if (r.rlim_cur < want) {
		a->given.max_requests = r.rlim_cur > 128 ? (uint32_t)r.rlim_cur - 64 : 64;
		a->o.max_requests = a->given.max_requests;
		app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR),
			"the limit of %lu open files allows %u requests at once; raise it (ulimit -n %lu), or lower --max-requests",
			(unsigned long)r.rlim_cur, a->o.max_requests, (unsigned long)want);
	}
}

/*
 * Determine the published address of the engine. A loopback address in --engine is replaced by the
 * address that faces the router; --advertise must be valid as given. @return 0, or 1 after an error
 * message.
 */
static int set_engine_address(struct app *a)
{
	char host[256], port[8];
	int rc;

	if (a->o.advertise[0] == '\0')
		return 0;
	if (agent_address_split(a->o.advertise, host, sizeof(host), port) < 0) {
		if (!a->o.advertise_engine) {
			fprintf(stderr, "kvroute-agent: --advertise %s: expected HOST:PORT\n",
				a->o.advertise);
			return 1;
		}
		/* No port: the default of HTTP. */
		snprintf(host, sizeof(host), "%s", a->o.advertise + (a->o.advertise[0] == '['));
		host[strcspn(host, "]")] = '\0';
		snprintf(port, sizeof(port), "80");
	}
	rc = agent_address_publish(host, port, a->facing,
				   a->o.advertise_engine ? AGENT_REPLACE_SELF : AGENT_REPLACE_NONE,
				   a->engine_addr, sizeof(a->engine_addr));
	if (rc < 0)
		a->engine_addr[0] = '\0';
	if (rc == 0 || a->o.advertise_engine)
		return 0; /* without an address /pick cannot list the engine; everything else works
			   */
	fprintf(stderr,
		"kvroute-agent: --advertise %s: other machines cannot reach the engine at this address\n",
		a->o.advertise);
	return 1;
}

static int start_bodies(struct app *a)
{
	const int rc = app_bodies_start(a, &app_job_bodies);

	if (rc == 0)
		return 0;
	if (rc == -EADDRNOTAVAIL)
		fprintf(stderr,
			"kvroute-agent: --bodies %s: clients on other machines cannot reach this address; give one that they reach, or --bodies-advertise\n",
			a->o.bodies);
	else
		fprintf(stderr, "kvroute-agent: --bodies %s%s%s: %s\n", a->o.bodies,
			a->o.bodies_advertise[0] != '\0' ? " --bodies-advertise " : "",
			a->o.bodies_advertise,
			rc == -EINVAL ? "expected ADDRESS:PORT in numeric form" : strerror(-rc));
	return 1;
}

/* Wait for a route to the router, because the published addresses of engine and bodies depend on
 * it. @return false: a signal asked to stop. */
static bool find_facing(struct app *a)
{
	const struct timespec second = {.tv_sec = 1};
	bool logged = false;

	for (;;) {
		agent_address_facing(a->o.router, a->facing, sizeof(a->facing));
		if (a->facing[0] != '\0')
			return true;
		if (!logged)
			app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .addr = a->o.router),
				"unknown name of the router, or no route to it; retrying every second");
		logged = true;
		if (stop_asked == 0)
			nanosleep(&second, NULL);
		if (stop_asked != 0)
			return false;
	}
}

/* The router detects two agents with one number, and rejects the second. */
static void choose_worker(struct app *a)
{
	char machine[256] = "";

	if (a->given.worker != 0)
		return;
	gethostname(machine, sizeof(machine) - 1);
	a->given.worker = agent_address_number(
		machine, a->engine_addr[0] != '\0' ? a->engine_addr : a->o.engine, a->o.pool,
		a->o.first_rank);
	a->o.worker = a->given.worker;
	app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_INFO),
		"worker %" PRIu64
		": derived from engine %s, host %s, pool %s, first rank %u (--worker auto)",
		a->o.worker, a->engine_addr[0] != '\0' ? a->engine_addr : a->o.engine, machine,
		a->o.pool, a->o.first_rank);
}

static void log_start(struct app *a)
{
	app_log(a, KVR_LOG_ABOUT(.level = KVR_LOG_INFO, .addr = a->o.router),
		"kvroute-agent %s runs as process %d: engine %s", KVR_VERSION, (int)getpid(),
		a->o.engine);
}

static int run_agent(struct app *a)
{
	struct sigaction sa = {.sa_handler = on_signal};

	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGUSR1, &sa, NULL);
	sigaction(SIGUSR2, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
	a->now_us = now_us();
	allow_files(a);
	agent_prom_read(&a->prom, "", 0);
	a->health.path = "/health";
	a->metrics.path = "/metrics";
	a->epoll = epoll_create1(EPOLL_CLOEXEC);
	a->zmq = zmq_ctx_new();
	if (a->epoll < 0 || a->zmq == NULL || app_http_init(a) < 0 || app_canary_start(a) < 0) {
		fprintf(stderr, "kvroute-agent: no memory\n");
		return 1;
	}
	if (!find_facing(a))
		return 0;
	if (set_engine_address(a) != 0 || start_bodies(a) != 0)
		return 1;
	log_start(a);
	choose_worker(a);
	run_loop(a);
	app_log_end(a);
	destroy_agent(a);
	app_bodies_stop(a);
	app_streams_stop(a);
	app_http_fini(a);
	zmq_ctx_term(a->zmq);
	close(a->epoll);
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
