/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kvroute: configuration, start in the order of one table, control on the main thread, stop in
 * the reverse order.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_launch.h>
#include <rte_lcore.h>

#include "control.h"
#include "memif_guard.h"
#include "start.h"
#include "telemetry.h"

static struct router *router; /* for the signal handler only */

static void on_signal(int sig)
{
	RTE_SET_USED(sig);
	atomic_store_explicit(&router->quit, 1, memory_order_relaxed);
}

/* The driver's burst calls of every packet lcore that were running have ended. */
static void lcores_pass(void *arg)
{
	struct router *rt = arg;

	if (atomic_load_explicit(&rt->running, memory_order_relaxed))
		rte_rcu_qsbr_synchronize(rt->qsbr, RTE_QSBR_THRID_INVALID);
}

static void say(const char *line)
{
	RTE_LOG(WARNING, USER1, "kvroute: %s\n", line);
}

static struct memif_guard guard = {.wait = lcores_pass, .say = say};

static int start_memif_guard(struct router *rt, char *err, size_t errlen)
{
	RTE_SET_USED(err);
	RTE_SET_USED(errlen);
	guard.arg = rt;
	guard.queues = rt->conf.n_ingress;
	memif_guard(&guard);
	return 0;
}

static void stop_memif_guard(struct router *rt)
{
	RTE_SET_USED(rt);
	memif_guard(NULL);
}

/* What is started, low to high; each fini undoes its init. */
static const struct module {
	const char *name;
	int (*init)(struct router *rt, char *err, size_t errlen);
	void (*fini)(struct router *rt);
} modules[] = {
	{"eal", start_eal, stop_eal},
	{"counters", start_counters, stop_counters},
	{"memif guard", start_memif_guard, stop_memif_guard},
	{"ports", start_ports, stop_ports},
	{"buffers", start_buffers, stop_buffers},
	{"registry", start_registry, stop_registry},
	{"lcores", start_lcores, stop_lcores},
	{"pools", start_pools, stop_pools},
	{"traffic", start_traffic, stop_traffic},
	/* Last up, first down: its handlers and control call packet lcores, which must poll. */
	{"telemetry", telemetry_start, telemetry_stop},
};

static void usage(FILE *out)
{
	fputs("usage: kvroute --config FILE [--check] [--dump-config]\n"
	      "  -c, --config FILE   configuration (drivers-cfg/profiles has complete examples)\n"
	      "      --check         read and check the configuration, then exit\n"
	      "      --dump-config   print every option with value, unit and help, then exit\n"
	      "  -h, --help          this text\n",
	      out);
}

enum action { RUN, CHECK, DUMP };

static int parse_args(int argc, char **argv, const char **config, enum action *action)
{
	static const struct option options[] = {
		{"config", required_argument, NULL, 'c'},
		{"check", no_argument, NULL, 'k'},
		{"dump-config", no_argument, NULL, 'd'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int c;

	*config = NULL;
	*action = RUN;
	while ((c = getopt_long(argc, argv, "c:h", options, NULL)) != -1)
		switch (c) {
		case 'c':
			*config = optarg;
			break;
		case 'k':
			*action = CHECK;
			break;
		case 'd':
			*action = DUMP;
			break;
		case 'h':
			usage(stdout);
			exit(0);
		default:
			usage(stderr);
			return -EINVAL;
		}
	if (*config == NULL || optind != argc) {
		usage(stderr);
		return -EINVAL;
	}
	return 0;
}

static int run(struct router *rt)
{
	struct sigaction sa = {.sa_handler = on_signal};
	char err[512] = "";
	size_t up;
	int rc = 0;

	router = rt;
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	for (up = 0; up < RTE_DIM(modules) && rc == 0; up++) {
		rc = modules[up].init(rt, err, sizeof(err));
		if (rc < 0)
			fprintf(stderr, "kvroute: %s: %s\n", modules[up].name,
				err[0] != '\0' ? err : strerror(-rc));
	}
	if (rc == 0) {
		printf("kvroute: ready, %u pools, %u ports, %u polling lcores, telemetry prefix "
		       "%s\n",
		       rt->n_pools, rt->n_ports, rt->n_lcores, rt->conf.opt.file_prefix);
		fflush(stdout);
		control_run(rt);
	} else {
		up--; /* the one that failed has undone itself */
	}
	while (up > 0)
		modules[--up].fini(rt);
	return rc;
}

int main(int argc, char **argv)
{
	struct router *rt;
	enum action action;
	const char *config;
	char err[512];
	int rc;

	if (parse_args(argc, argv, &config, &action) < 0)
		return 2;
	rt = aligned_alloc(RTE_CACHE_LINE_SIZE, RTE_ALIGN_CEIL(sizeof(*rt), RTE_CACHE_LINE_SIZE));
	if (rt == NULL) {
		fprintf(stderr, "kvroute: no memory\n");
		return 1;
	}
	memset(rt, 0, sizeof(*rt));
	if (kvr_router_conf_load(&rt->conf, config, err, sizeof(err)) < 0) {
		fprintf(stderr, "kvroute: %s\n", err);
		free(rt);
		return 1;
	}
	rc = 0;
	if (action == DUMP)
		kvr_router_conf_dump(&rt->conf, stdout);
	else if (action == RUN)
		rc = run(rt);
	free(rt);
	return rc < 0;
}
