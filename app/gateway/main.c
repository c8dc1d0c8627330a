/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kvroute-gateway: OpenAI-compatible HTTP in front of kvroute.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "kvr_conf.h"
#include "kvr_log.h"
#include "pick_lease.h"
#include "serve.h"
#include "version.h"

#define LOOK_MS 20 /* interval of checking whether threads have ended */

static struct gw_options options;
static struct gw_thread threads[GW_MAX_THREADS];
static atomic_int stop;

static void *run_thread(void *arg)
{
	gw_serve_run(arg);
	return NULL;
}

/* Return true if the remaining @p left threads have ended. */
static bool all_ended(pthread_t waiter[], uint32_t *left)
{
	while (*left > 0 && pthread_tryjoin_np(waiter[*left - 1], NULL) == 0)
		--*left;
	return *left == 0;
}

/* Only this thread receives signals. */
static void wait_for_end(const sigset_t *set, uint32_t n)
{
	const struct timespec look = {0, LOOK_MS * 1000000};
	uint64_t looks = (uint64_t)options.grace_s * 1000 / LOOK_MS;
	pthread_t waiter[GW_MAX_THREADS];
	int sig;

	for (uint32_t i = 0; i < n; i++)
		if (pthread_create(&waiter[i], NULL, run_thread, &threads[i]) != 0)
			abort();
	sigwait(set, &sig);
	kvr_log_line(KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE, .reason = sigabbrev_np(sig)),
		     "stopping: active requests have %u s to end", options.grace_s);
	atomic_store_explicit(&stop, 1, memory_order_relaxed); /* orders nothing else */
	while (!all_ended(waiter, &n) && looks-- > 0 && sigtimedwait(set, NULL, &look) < 0)
		;
	atomic_store_explicit(&stop, 2, memory_order_relaxed);
	while (n > 0)
		pthread_join(waiter[--n], NULL);
}

/* Descriptors besides client connections: routers, tokenizer and loop per thread; log and others in
 * total. */
#define FILES_OF_THREAD(o) ((rlim_t)(o)->n_routers * 2 + 80)
#define FILES_OF_ALL	   32u
#define MOST_FILES	   (1u << 20) /* the limit is not raised further */

/* Connections per thread that a limit of @p files allows; 0 = none. */
static rlim_t room_in(const struct gw_options *opt, rlim_t files)
{
	const rlim_t each = files > FILES_OF_ALL ? (files - FILES_OF_ALL) / opt->threads : 0;

	return each > FILES_OF_THREAD(opt) ? each - FILES_OF_THREAD(opt) : 0;
}

/*
 * Raise the limit to one descriptor per connection of each thread. The default number of
 * connections is lowered to fit, so that any number of threads can start; an explicit number is met
 * or an error.
 */
static int allow_files(struct gw_options *opt, char *err, size_t errlen)
{
	const uint32_t asked = opt->connections != 0 ? opt->connections : GW_CONNECTIONS_MOST;
	const rlim_t want = opt->threads * (asked + FILES_OF_THREAD(opt)) + FILES_OF_ALL;
	struct rlimit lim;
	rlim_t room;
	int n;

	if (getrlimit(RLIMIT_NOFILE, &lim) < 0)
		lim.rlim_cur = lim.rlim_max = RLIM_INFINITY;
	if (lim.rlim_cur < lim.rlim_max && lim.rlim_cur < MOST_FILES) {
		lim.rlim_cur = lim.rlim_max < MOST_FILES ? lim.rlim_max : MOST_FILES;
		setrlimit(RLIMIT_NOFILE, &lim);
	}
	room = room_in(opt, lim.rlim_cur);
	if (room >= asked || (room > 0 && opt->connections == 0)) {
		opt->connections = (uint32_t)(room < asked ? room : asked);
		return 1;
	}
	n = snprintf(
		err, errlen,
		"--max-connections %u per thread with %u threads needs %lu open files, but the limit is %lu: raise it (ulimit -n %lu), or use ",
		asked, opt->threads, (unsigned long)want, (unsigned long)lim.rlim_cur,
		(unsigned long)want);
	if (room > 0)
		snprintf(err + n, errlen - (size_t)n, "--max-connections %lu", (unsigned long)room);
	else
		snprintf(err + n, errlen - (size_t)n, "fewer --threads");
	return -EMFILE;
}

static int open_log(const struct gw_options *opt, char *err, size_t errlen)
{
	const int rc = kvr_log_open("kvroute-gateway", (enum kvr_log_sink)opt->log_to,
				    STDERR_FILENO, NULL);

	if (rc == 0)
		return 1;
	snprintf(err, errlen, "--log-to: destination not available: %s", strerror(-rc));
	return rc;
}

static void log_start(const struct gw_options *opt, uint32_t n)
{
	char routers[512] = "";
	size_t at = 0;

	for (uint32_t i = 0; i < opt->n_routers && at < sizeof(routers); i++)
		at += (size_t)snprintf(routers + at, sizeof(routers) - at, "%s%s",
				       i != 0 ? "," : "", opt->routers[i]);
	kvr_log_line(
		KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE, .addr = opt->listen),
		"kvroute-gateway " KVR_VERSION
		" runs as process %d: ready, %u thread%s, %u connections each, routers %s, tokenizer %s",
		(int)getpid(), n, n == 1 ? "" : "s", opt->connections, routers,
		opt->tokenize[0] != '\0' ? opt->tokenize : "none");
}

int main(int argc, char **argv)
{
	struct kvr_stats *stats = NULL;
	struct gw_leases *leases = NULL;
	uint32_t started = 0;
	char err[512];
	sigset_t set;
	int rc;

	if (kvr_conf_version(argc, argv, "kvroute-gateway", stdout))
		return 0;
	rc = gw_options_parse(&options, argc, argv, err, sizeof(err));
	if (rc < 0)
		fprintf(stderr, "kvroute-gateway: %s\n", err);
	if (rc <= 0)
		return rc == 0 ? 0 : 2;
	rc = open_log(&options, err, sizeof(err));
	if (rc > 0)
		rc = allow_files(&options, err, sizeof(err));
	if (rc > 0) {
		stats = kvr_stats_create(&gw_stats, options.threads);
		leases = gw_leases_create(options.threads);
	}
	if (rc > 0 && (stats == NULL || leases == NULL)) {
		snprintf(err, sizeof(err), "out of memory");
		rc = -ENOMEM;
	}
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	while (rc > 0 && started < options.threads) {
		struct gw_thread *thread = &threads[started];

		*thread = (struct gw_thread){.opt = &options,
					     .stats = stats,
					     .leases = leases,
					     .number = started,
					     .stop = &stop};
		thread->row = kvr_stats_row(stats, started);
		rc = gw_serve_init(thread, err, sizeof(err)) < 0 ? -1 : 1;
		started++;
	}
	if (rc > 0) {
		log_start(&options, started);
		wait_for_end(&set, started);
		kvr_log_line(KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE), "stopped");
	} else {
		fprintf(stderr, "kvroute-gateway: %s\n", err);
	}
	for (uint32_t i = 0; i < started; i++)
		gw_serve_fini(&threads[i]);
	gw_leases_destroy(leases);
	kvr_stats_destroy(stats);
	return rc > 0 ? 0 : 1;
}
