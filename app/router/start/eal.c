/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The EAL: arguments from the configuration, start, and one line with a remedy if it fails. Output
 * of the EAL is captured, and shown with --verbose.
 */
#include "start/start.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_pci.h>
#include <rte_random.h>

#include "config/config.h"
#include "config/host.h"
#include "control/log.h"
#include "control/shared.h"
#include "start/folders.h"

#define EAL_ARGS   64
#define RESERVE_MB 64u /* for the program itself */

static bool use_hugepages(const struct kvr_router_options *o, const struct host_memory *m)
{
	if (o->hugepages != KVR_HUGEPAGES_AUTO)
		return o->hugepages == KVR_HUGEPAGES_ON;
	return m->huge_mb >= o->memory_mb;
}

/* ---- arguments ---- */

struct eal_args {
	int n;
	char *arg[EAL_ARGS];
};

static void add_argument(struct eal_args *a, const char *text)
{
	if (a->n < EAL_ARGS)
		a->arg[a->n++] = strdup(text);
}

static void add_value(struct eal_args *a, const char *name, const char *value)
{
	add_argument(a, name);
	add_argument(a, value);
}

/* "0@(0,1,2,3),1@2,2@3": control floats, each polling lcore has its CPU, which may be shared. */
static void add_lcores(struct eal_args *a, const struct kvr_router_conf *conf)
{
	char map[8192]; /* 1,024 CPUs and all lcores */
	int n;

	if (conf->opt.control_cpus[0] != '\0') {
		n = snprintf(map, sizeof(map), "0@(%s)", conf->opt.control_cpus);
	} else {
		cpu_set_t all;

		n = snprintf(map, sizeof(map), "0@(");
		sched_getaffinity(0, sizeof(all), &all);
		for (int i = 0, k = 0; i < CPU_SETSIZE && n < (int)sizeof(map) - 16; i++)
			if (CPU_ISSET(i, &all))
				n += snprintf(map + n, sizeof(map) - (size_t)n, "%s%d",
					      k++ ? "," : "", i);
		n += snprintf(map + n, sizeof(map) - (size_t)n, ")");
	}
	for (uint32_t i = 0; i < conf->n_lcores && n < (int)sizeof(map) - 24; i++)
		n += snprintf(map + n, sizeof(map) - (size_t)n, ",%u@%u", EAL_LCORE(i),
			      conf->cpu[i]);
	add_value(a, "--lcores", map);
	add_value(a, "--main-lcore", "0");
}

/* Only the devices of the ports are probed, not other NICs of the host. */
static void add_devices(struct eal_args *a, const struct kvr_router_conf *conf)
{
	struct rte_pci_addr pci;
	bool any = strstr(conf->opt.eal, "-a ") != NULL;

	for (uint32_t i = 0; i < conf->n_ports; i++) {
		const char *device = conf->port[i].port.device;
		char address[32];

		/* "0000:3b:00.0" or "3b:00.0", device arguments after a comma. */
		snprintf(address, sizeof(address), "%.*s", (int)strcspn(device, ","), device);
		if (rte_pci_addr_parse(address, &pci) != 0)
			continue;
		if (strstr(conf->opt.eal, address) == NULL)
			add_value(a, "-a", device);
		any = true;
	}
	if (!any)
		add_argument(a, "--no-pci");
}

/* ---- captured output ---- */

/* Standard output and error of this process while the EAL starts. */
struct said {
	int out, err, file;
};

static void catch_output(struct said *s, bool verbose)
{
	*s = (struct said){-1, -1, -1};
	if (verbose)
		return;
	s->file = memfd_create("kvr_eal", MFD_CLOEXEC);
	if (s->file < 0)
		return;
	fflush(stdout);
	s->out = fcntl(1, F_DUPFD_CLOEXEC, 3);
	s->err = fcntl(2, F_DUPFD_CLOEXEC, 3);
	dup2(s->file, 1);
	dup2(s->file, 2);
}

/* Restore them and copy the output to @text. */
static void release_output(struct said *s, char *text, size_t len)
{
	ssize_t n = 0;

	text[0] = '\0';
	if (s->file < 0)
		return;
	fflush(stdout);
	dup2(s->out, 1);
	dup2(s->err, 2);
	close(s->out);
	close(s->err);
	n = pread(s->file, text, len - 1, 0);
	text[n < 0 ? 0 : n] = '\0';
	close(s->file);
}

/* The line of @text that contains @word, without "EAL: "; NULL: none. */
static const char *line_with(const char *text, const char *word, char *out, size_t len)
{
	const char *at = strstr(text, word), *begin = at;

	if (at == NULL)
		return NULL;
	while (begin > text && begin[-1] != '\n')
		begin--;
	if (strncmp(begin, "EAL: ", 5) == 0)
		begin += 5;
	snprintf(out, len, "%.*s", (int)strcspn(begin, "\n"), begin);
	return out;
}

static void prefix_used(const struct router *rt, char *err, size_t errlen)
{
	kvr_conf_blame(
		rt->conf.path, "router", "file_prefix", err, errlen,
		"\"%s\" is in use by another process; stop that process, or choose another prefix",
		rt->conf.opt.file_prefix);
}

/* Write one line with cause and remedy. */
static void explain_failure(const struct router *rt, const char *logged, const char *printed,
			    char *err, size_t errlen)
{
	const struct kvr_router_options *o = &rt->conf.opt;
	const char *path = rt->conf.path, *what;
	char line[300];

	if (line_with(printed, "nrecognized option", line, sizeof(line)) != NULL ||
	    line_with(printed, "invalid option", line, sizeof(line)) != NULL ||
	    line_with(printed, "requires an argument", line, sizeof(line)) != NULL) {
		what = strchr(line, ':') != NULL ? strchr(line, ':') + 2 : line;
		kvr_conf_blame(path, "router", "eal", err, errlen,
			       "got \"%s\" (%s), allowed: options of DPDK's EAL", o->eal, what);
	} else if (strstr(logged, "Is another primary process running") != NULL) {
		prefix_used(rt, err, errlen);
	} else if (line_with(logged, "Error creating '", line, sizeof(line)) != NULL ||
		   line_with(logged, "annot create lock", line, sizeof(line)) != NULL) {
		kvr_conf_blame(
			path, "router", "file_prefix", err, errlen,
			"cannot create the runtime folder of \"%s\": %s; needed: a folder that this user may write to (root: /var/run/dpdk, others: XDG_RUNTIME_DIR, else /tmp/dpdk)",
			o->file_prefix, line);
	} else if (strstr(logged, "hugepage") != NULL || strstr(logged, "hugetlb") != NULL) {
		kvr_conf_blame(
			path, "router", "hugepages", err, errlen,
			"the EAL found no huge pages for %u MiB; reserve some (drivers-cfg/host/hugepages.sh), mount hugetlbfs, or set hugepages = off",
			o->memory_mb);
	} else if (strstr(logged, "memory") != NULL || rte_errno == ENOMEM) {
		kvr_conf_blame(path, "router", "memory_mb", err, errlen,
			       "the EAL cannot allocate %u MiB (%s); lower memory_mb", o->memory_mb,
			       rte_strerror(rte_errno));
	} else {
		if (line_with(logged, "EAL: ", line, sizeof(line)) == NULL)
			snprintf(line, sizeof(line), "%s", rte_strerror(rte_errno));
		kvr_conf_blame(path, "router", o->eal[0] != '\0' ? "eal" : NULL, err, errlen,
			       "the EAL failed to start: %s; --verbose shows all its messages",
			       line);
	}
}

/* ---- memory ---- */

static int too_much(const struct router *rt, uint64_t have, uint64_t apart_mb, const char *whose,
		    char *err, size_t errlen)
{
	kvr_conf_blame(
		rt->conf.path, "router", "memory_mb", err, errlen,
		"got \"%u\", but %s leaves %" PRIu64
		" MiB, and %u of them are the program's, %" PRIu64
		" those of block tables (max_blocks), sessions (max_sessions) and quotas; lower it or these, or make room",
		rt->conf.opt.memory_mb, whose, have, RESERVE_MB, apart_mb);
	return -ENOMEM;
}

int check_memory(struct router *rt, char *err, size_t errlen)
{
	const struct kvr_router_options *o = &rt->conf.opt;
	struct kvr_router_memory parts;
	uint64_t need = RESERVE_MB, apart;
	struct host_memory m;

	host_memory(&m);
	if (kvr_router_conf_memory(&rt->conf, use_hugepages(o, &m), &parts) < 0)
		return -ENOMEM;
	apart = parts.apart;
	if (!use_hugepages(o, &m)) {
		apart += parts.tables;
		need += o->memory_mb;
	}
	apart = (apart >> 20) + 1;
	need += apart;
	if (o->hugepages == KVR_HUGEPAGES_ON && m.huge_mb < o->memory_mb) {
		kvr_conf_blame(
			rt->conf.path, "router", "hugepages", err, errlen,
			"on, but %" PRIu64
			" MiB of them are free and memory_mb is %u; reserve some (drivers-cfg/host/hugepages.sh), or hugepages = off",
			m.huge_mb, o->memory_mb);
		return -ENOMEM;
	}
	if (m.cgroup_mb < need)
		return too_much(rt, m.cgroup_mb, apart, "the memory limit of its control group",
				err, errlen);
	if (m.available_mb < need)
		return too_much(rt, m.available_mb, apart, "the machine (MemAvailable)", err,
				errlen);
	return 0;
}

/* ---- start ---- */

static void add_arguments(struct eal_args *a, const struct router *rt)
{
	const struct kvr_router_options *o = &rt->conf.opt;
	char mb[16], extra[sizeof(o->eal)], *save, *word;
	struct host_memory m;

	host_memory(&m);
	add_argument(a, "kvroute");
	add_lcores(a, &rt->conf);
	add_value(a, "--file-prefix", o->file_prefix);
	snprintf(mb, sizeof(mb), "%u", o->memory_mb);
	add_value(a, "-m", mb);
	if (!use_hugepages(o, &m))
		add_argument(a, "--no-huge");
	else if (!shared_asked())
		add_argument(a, "--in-memory");
	add_devices(a, &rt->conf);
	if (!rt->verbose) {
		add_argument(a, "--log-level=lib.eal:warning");
		add_argument(a, "--log-level=lib.telemetry:error");
	}
	snprintf(extra, sizeof(extra), "%s", o->eal);
	for (word = strtok_r(extra, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save))
		add_argument(a, word);
}

int start_eal(struct router *rt, char *err, size_t errlen)
{
	struct eal_args a = {0};
	char printed[4096];
	struct host_memory m;
	struct said said;
	int rc = check_memory(rt, err, errlen);

	if (rc < 0)
		return rc;
	host_memory(&m);
	if (shared_asked() && !use_hugepages(&rt->conf.opt, &m)) {
		kvr_conf_blame(
			rt->conf.path, "router", "hugepages", err, errlen,
			"--multi-process needs huge pages, and %" PRIu64
			" MiB of them are free; reserve some (drivers-cfg/host/hugepages.sh) and leave hugepages at auto or on",
			m.huge_mb);
		return -ENOMEM;
	}
	/* With huge pages the EAL takes over the folder of another process and replaces its socket.
	 */
	if (folders_hold(rt->conf.opt.file_prefix) < 0) {
		prefix_used(rt, err, errlen);
		return -EBUSY;
	}
	add_arguments(&a, rt);
	catch_output(&said, rt->verbose);
	rc = rte_eal_init(a.n, a.arg);
	release_output(&said, printed, sizeof(printed));
	if (rc < 0) {
		explain_failure(rt, log_captured(), printed, err, errlen);
		return rte_errno > 0 ? -rte_errno : -EIO;
	}
	/* The EAL keeps pointers to the arguments until the end of the process. */
	start_clock(rt);
	folders_start();
	rc = shared_start(err, errlen);
	if (rc < 0)
		stop_eal(rt);
	return rc;
}

void start_clock(struct router *rt)
{
	rt->tsc_hz = rte_get_tsc_hz();
	rt->ns_per_tsc = (UINT64_C(1000000000) << 32) / rt->tsc_hz;
	rt->seed = rte_rand();
	rt->client_seed = rte_rand();
	do
		rt->epoch = (uint32_t)rte_rand();
	while (rt->epoch == 0);
	rt->start_ns = now_ns(rt);
}

void stop_eal(struct router *rt)
{
	shared_stop();
	/* With shared memory the EAL unmaps it while its interrupt thread may still access it
	 * (SIGSEGV after dpdk-pdump, 22.11). The process ends now anyway. */
	if (!shared_asked())
		rte_eal_cleanup();
	folders_stop();
	shared_clean(rt->conf.opt.file_prefix);
}
