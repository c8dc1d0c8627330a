/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kvroute: read the configuration, start in the order of one table, run control on the main thread,
 * stop in the reverse order.
 */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_lcore.h>

#include "config/config.h"
#include "config/host.h"
#include "control/control.h"
#include "control/log.h"
#include "control/shared.h"
#include "control/snapshot.h"
#include "control/watch.h"
#include "kvr_conf.h"
#include "memif_guard.h"
#include "start/banner.h"
#include "start/start.h"
#include "telemetry/telemetry.h"

static struct router *router; /* for the signal handler only */

static void on_signal(int sig)
{
	if (sig == SIGHUP) {
		atomic_store_explicit(&router->reload, 1, memory_order_relaxed);
		return;
	}
	atomic_store_explicit(&router->signal, sig, memory_order_relaxed);
	/* Pairs with nothing: a reader that sees the count before the signal prints "a signal". */
	atomic_fetch_add_explicit(&router->quit, 1, memory_order_relaxed);
}

/* ---- memif ---- */

static struct router *guarded; /* for the interrupt thread, while the guard is active */

static void print_error(const char *line)
{
	log_worker(0, KVR_LOG_ABOUT(.level = KVR_LOG_WARNING), "%s", line);
}

/* [router] idle = interrupt: wake the lcores that poll the rings. */
static void wake_ring_owner(const char *socket, uint32_t id, uint32_t queue,
			    const struct memif_guard_ring *at)
{
	struct kvr_port_ring_at to = {0};

	if (at != NULL)
		to = (struct kvr_port_ring_at){at->region, at->event, at->offset};
	kvr_port_memif_ring(socket, id, queue, at != NULL ? &to : NULL, lcores_pass, guarded);
}

static struct memif_guard guard = {.wait = lcores_pass,
				   .report = print_error,
				   .rings = kvr_port_memif_rings,
				   .connected = kvr_port_memif_connected};

static int start_hooks(struct router *rt, char *err, size_t errlen)
{
	int rc = memif_guard_check(err, errlen);

	if (rc == 0)
		rc = shared_clock_check(err, errlen);
	if (rc < 0)
		return rc;
	guard.arg = rt;
	guarded = rt;
	guard.ring = rt->conf.opt.idle == IDLE_INTERRUPT ? wake_ring_owner : NULL;
	guard.queues = rt->conf.n_ingress;
	memif_guard_set(&guard);
	return 0;
}

static void stop_hooks(struct router *rt)
{
	RTE_SET_USED(rt);
	memif_guard_set(NULL);
}

/* ---- start ---- */

/* The start steps from low to high; each fini undoes its init. */
static const struct module {
	const char *name;
	int (*init)(struct router *rt, char *err, size_t errlen);
	void (*fini)(struct router *rt);
	bool serves; /* not with --check=full */
} modules[] = {
	{"eal", start_eal, stop_eal},
	{"counters", start_counters, stop_counters},
	{"hooks", start_hooks, stop_hooks},
	{"ports", start_ports, stop_ports},
	{"buffers", start_buffers, stop_buffers},
	{"registry", start_registry, stop_registry},
	{"lcores", start_lcores, stop_lcores},
	{"pools", start_pools, stop_pools},
	{"memory", start_memory, stop_memory},
	{"snapshot", snapshot_open, snapshot_close, true}, /* read before any command */
	{"traffic", start_traffic, stop_traffic, true},
	{"snapshots", start_snapshots, stop_snapshots, true},
	/* Last started, first stopped: its handlers and control call packet lcores, which must
	   poll. */
	{"telemetry", telemetry_start, telemetry_stop, true},
};

enum action { RUN, CHECK, CHECK_FULL, DUMP, XDP_OFF };

static void print_usage(FILE *out)
{
	fputs("usage: kvroute --config FILE [--verbose] [--multi-process] [--check[=full] | "
	      "--dump-config | --xdp-off]\n"
	      "  -c, --config FILE   configuration (drivers-cfg/profiles has complete examples)\n"
	      "      --check         read and check the configuration, then exit\n"
	      "      --check=full    try devices, huge pages and memory as well; requires the resources of a start\n"
	      "      --multi-process admit dpdk-dumpcap, dpdk-pdump and dpdk-proc-info; needs huge pages\n"
	      "      --dump-config   print every option with value, unit and help, then exit\n"
	      "      --xdp-off       remove the XDP programs of a dead router, then exit\n"
	      "      --version       print name and version\n"
	      "  -v, --verbose       print the messages of DPDK's EAL and drivers\n"
	      "  -h, --help          print this text\n"
	      "If an option is repeated, the last one wins.\n",
	      out);
}

static int parse_check(const char *how, enum action *action)
{
	*action = how == NULL ? CHECK : CHECK_FULL;
	if (how == NULL || strcmp(how, "full") == 0)
		return 0;
	fprintf(stderr, "kvroute: --check: got \"%s\", allowed: nothing or full\n", how);
	return -EINVAL;
}

static int parse_args(int argc, char **argv, const char **config, enum action *action,
		      bool *verbose)
{
	static const struct option options[] = {
		{"config", required_argument, NULL, 'c'}, {"check", optional_argument, NULL, 'k'},
		{"dump-config", no_argument, NULL, 'd'},  {"verbose", no_argument, NULL, 'v'},
		{"help", no_argument, NULL, 'h'},	  {"multi-process", no_argument, NULL, 'm'},
		{"xdp-off", no_argument, NULL, 'x'},	  {NULL, 0, NULL, 0},
	};
	int c;

	*config = NULL;
	*action = RUN;
	while ((c = getopt_long(argc, argv, "c:hv", options, NULL)) != -1)
		switch (c) {
		case 'c':
			*config = optarg;
			break;
		case 'k':
			if (parse_check(optarg, action) < 0)
				return -EINVAL;
			break;
		case 'd':
			*action = DUMP;
			break;
		case 'x':
			*action = XDP_OFF;
			break;
		case 'm':
			shared_ask();
			break;
		case 'v':
			*verbose = true;
			break;
		case 'h':
			print_usage(stdout);
			exit(0);
		default: /* getopt has printed the error */
			fprintf(stderr, "kvroute: see --help\n");
			return -EINVAL;
		}
	if (optind != argc) {
		fprintf(stderr, "kvroute: got \"%s\", allowed: options; see --help\n",
			argv[optind]);
		return -EINVAL;
	}
	if (*config == NULL) {
		fprintf(stderr,
			"kvroute: --config is missing: the configuration's file; see --help\n");
		return -EINVAL;
	}
	return 0;
}

/* Announce the start on standard output, if it is read. */
static void print_ready(const struct router *rt)
{
	struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
	char line[200];
	const int n = snprintf(
		line, sizeof(line),
		"kvroute: ready, %u pool%s, %u port%s, %u polling lcore%s, telemetry "
		"prefix %s\n",
		rt->n_pools, plural_suffix(rt->n_pools), rt->n_ports, plural_suffix(rt->n_ports),
		rt->n_lcores, plural_suffix(rt->n_lcores), rt->conf.opt.file_prefix);

	if (poll(&p, 1, 0) == 1 && (p.revents & POLLOUT) != 0)
		(void)!write(STDOUT_FILENO, line, (size_t)n);
}

static void handle_signals(struct router *rt)
{
	/* Any thread may take a signal, for example after SIGSTOP. DPDK's telemetry thread ends
	 * permanently if its accept() is interrupted. */
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

	router = rt;
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
	sa.sa_handler = SIG_IGN;
	sigaction(SIGPIPE, &sa, NULL);
	sigaction(SIGXFSZ, &sa, NULL); /* file size limit: write() returns an error instead */
	sigaction(SIGUSR1, &sa, NULL);
	sigaction(SIGUSR2, &sa, NULL);
}

static int run_router(struct router *rt, bool serve)
{
	char err[512] = "";
	size_t up;
	int rc = 0;

	watch_start(rt);
	for (up = 0; up < RTE_DIM(modules) && rc == 0 && (serve || !modules[up].serves) &&
		     !atomic_load_explicit(&rt->quit, memory_order_relaxed);
	     up++) {
		watch_stage(modules[up].name);
		log_capture();
		rc = modules[up].init(rt, err, sizeof(err));
		if (rc < 0)
			log_line(KVR_LOG_ABOUT(.level = KVR_LOG_ERROR), "%s: %s", modules[up].name,
				 err[0] != '\0' ? err : strerror(-rc));
	}
	watch_stage(NULL);
	log_release();
	if (rc < 0) {
		up--; /* the failed step has undone itself */
	} else if (atomic_load_explicit(&rt->quit, memory_order_relaxed)) {
		log_line(KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE, .reason = router_signal(rt)),
			 "stopped during the start");
	} else if (serve) {
		banner_log(rt);
		print_ready(rt);
		control_run(rt);
		stop_in_order(rt);
	}
	while (up > 0)
		modules[--up].fini(rt);
	return rc;
}

static int xdp_off(const struct router *rt)
{
	char err[512];
	int rc = 0;

	for (uint32_t i = 0; i < rt->conf.n_ports; i++)
		if (kvr_port_xdp_off(&rt->conf.port[i].port, err, sizeof(err)) < 0) {
			fprintf(stderr, "kvroute: %s\n", err);
			rc = -EBUSY;
		}
	return rc;
}

/* Check what skipped steps would find, and use a name that does not collide with a running router.
 */
static int begin_check(struct router *rt)
{
	char err[512];
	const int rc = snapshot_check(rt, err, sizeof(err));

	if (rc < 0)
		fprintf(stderr, "kvroute: %s\n", err);
	snprintf(rt->conf.opt.file_prefix, sizeof(rt->conf.opt.file_prefix), "kvr-check-%d",
		 (int)getpid());
	return rc;
}

int main(int argc, char **argv)
{
	struct router *rt;
	enum action action;
	const char *config;
	char err[512];
	bool verbose = false;
	int rc;

	host_std_files();
	if (kvr_conf_version(argc, argv, "kvroute", stdout))
		return 0;
	if (parse_args(argc, argv, &config, &action, &verbose) < 0)
		return 2;
	rt = aligned_alloc(RTE_CACHE_LINE_SIZE, RTE_ALIGN_CEIL(sizeof(*rt), RTE_CACHE_LINE_SIZE));
	if (rt == NULL) {
		fprintf(stderr, "kvroute: no memory\n");
		return 1;
	}
	memset(rt, 0, sizeof(*rt));
	rt->verbose = verbose;
	if (kvr_router_conf_load(&rt->conf, config, err, sizeof(err)) < 0) {
		fprintf(stderr, "kvroute: %s\n", err);
		free(rt);
		return 1;
	}
	rt->loaded = malloc(sizeof(*rt->loaded)); /* freed by the end of the process */
	if (rt->loaded == NULL)
		return 1;
	*rt->loaded = rt->conf;
	rc = 0;
	if (action == DUMP) {
		kvr_router_conf_dump(&rt->conf, stdout);
	} else if (action == XDP_OFF) {
		rc = xdp_off(rt);
	} else if (action != CHECK) {
		/* A check reports to its caller. */
		rc = log_open(action == RUN ? rt->conf.opt.log_to : KVR_LOG_TO_STDERR,
			      STDERR_FILENO, NULL, verbose);
		if (rc < 0)
			fprintf(stderr,
				"kvroute: [router] log_to: cannot connect to the log sink: %s\n",
				strerror(-rc));
		handle_signals(rt);
		if (rc == 0 && action == CHECK_FULL)
			rc = begin_check(rt);
		if (rc == 0)
			rc = run_router(rt, action == RUN);
		log_flush(500);
	}
	/* The log thread and the EAL's threads may still use the router. */
	return rc < 0;
}
