/* SPDX-License-Identifier: BSD-3-Clause */
#include "load.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_launch.h>
#include <rte_lcore.h>

#include "kvr_conf.h"
#include "memif_guard.h"
#include "report.h"

#define MAX_EAL_ARGS   48
#define MAX_CPUS_NAMED 16
#define DEFAULT_SOCKET "/run/kvroute.sock"
#define NAP_US	       20000

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
	(void)sig;
	if (interrupted < 2)
		interrupted++;
}

/* MiB of free huge pages of the default size. */
static uint64_t free_huge_mb(void)
{
	unsigned long n = 0, kib = 0;
	FILE *f = fopen("/proc/meminfo", "re");
	char line[128];

	if (f == NULL)
		return 0;
	while (fgets(line, sizeof(line), f) != NULL) {
		sscanf(line, "HugePages_Free: %lu", &n);
		sscanf(line, "Hugepagesize: %lu", &kib);
	}
	fclose(f);
	return (uint64_t)n * kib >> 10;
}

/* Checked here, as the EAL would print its own usage. @return 0, or -EINVAL with a line. */
static int check_core(const struct load_options *o, char *err, size_t errlen)
{
	cpu_set_t allowed;
	size_t n;

	if (sched_getaffinity(0, sizeof(allowed), &allowed) < 0 ||
	    (o->core < CPU_SETSIZE && CPU_ISSET(o->core, &allowed)))
		return 0;
	n = (size_t)snprintf(err, errlen,
			     "--core: got %u, allowed: a CPU that this process may use:", o->core);
	for (int i = 0, named = 0; i < CPU_SETSIZE && named < MAX_CPUS_NAMED; i++)
		if (CPU_ISSET(i, &allowed) && n < errlen) {
			n += (size_t)snprintf(err + n, errlen - n, " %d", i);
			named++;
		}
	if (CPU_COUNT(&allowed) > MAX_CPUS_NAMED && n < errlen)
		snprintf(err + n, errlen - n, " and more");
	return -EINVAL;
}

/* The main lcore sleeps and may run on any CPU. Lcore 1 polls on the CPU asked for. */
static int start_eal(const struct load_options *o, const char *program)
{
	char lcores[64], memory[16], prefix[48], extra[sizeof(o->eal)];
	char *argv[MAX_EAL_ARGS], *save = NULL;
	int argc = 0;

	snprintf(lcores, sizeof(lcores), "0@(0-%ld),1@%u", sysconf(_SC_NPROCESSORS_CONF) - 1,
		 o->core);
	snprintf(memory, sizeof(memory), "%u", o->memory_mb);
	snprintf(prefix, sizeof(prefix), "kvroute-load-%d", (int)getpid());
	snprintf(extra, sizeof(extra), "%s", o->eal);
	argv[argc++] = (char *)(uintptr_t)program;
	argv[argc++] = (char *)"--lcores";
	argv[argc++] = lcores;
	argv[argc++] = (char *)"--main-lcore=0";
	argv[argc++] = (char *)"--no-shconf";
	argv[argc++] = (char *)"--no-telemetry";
	argv[argc++] = (char *)"--log-level=error";
	argv[argc++] = (char *)"--file-prefix";
	argv[argc++] = prefix;
	argv[argc++] = (char *)"-m";
	argv[argc++] = memory;
	argv[argc++] = (char *)(free_huge_mb() >= o->memory_mb ? "--in-memory" : "--no-huge");
	if (o->device[0] == '\0' || strncmp(o->device, "net_", 4) == 0)
		argv[argc++] = (char *)"--no-pci";
	for (char *a = strtok_r(extra, " ", &save); a != NULL && argc < MAX_EAL_ARGS - 1;
	     a = strtok_r(NULL, " ", &save))
		argv[argc++] = a;
	argv[argc] = NULL;
	return rte_eal_init(argc, argv);
}

/* The device: --port, or the memif client of the router's socket. */
static void describe_port(const struct load_options *o, struct kvr_port_conf *c)
{
	const bool v6 = strchr(o->ip, ':') != NULL;
	char path[128];

	kvr_conf_defaults(kvr_port_opts, c);
	if (o->socket[0] != '\0')
		snprintf(path, sizeof(path), "%s", o->socket);
	else if (access(DEFAULT_SOCKET, F_OK) == 0)
		snprintf(path, sizeof(path), DEFAULT_SOCKET);
	else
		snprintf(path, sizeof(path), "/tmp/kvroute-%u.sock", (unsigned int)geteuid());
	if (o->device[0] != '\0')
		snprintf(c->device, sizeof(c->device), "%s", o->device);
	else
		snprintf(c->device, sizeof(c->device),
			 "net_memif0,role=client,socket-abstract=no,socket=%s,rsize=%u,bsize=%u",
			 path, o->ring_log2, o->mtu > 1500 ? 9216u : 2048u);
	snprintf(v6 ? c->ipv6 : c->ipv4, v6 ? sizeof(c->ipv6) : sizeof(c->ipv4), "%s", o->ip);
	snprintf(c->mac, sizeof(c->mac), "%s", o->mac);
	c->udp_port = o->base_port;
	c->queues = o->queues;
	c->mtu = o->mtu;
	c->tx_checksum = o->device[0] == '\0' ? KVR_PORT_TX_NONE : KVR_PORT_TX_AUTO;
}

static int build_workload(struct load *l, const struct load_options *o, struct load_trace *t,
			  char *err, size_t errlen)
{
	const struct load_workload_cfg cfg = {
		.seed = o->seed,
		.block_size = o->block_size,
		.tokens = o->tokens,
		.arrivals = (enum load_arrivals)o->arrivals,
		.rate = o->rate,
		.seconds = o->seconds,
		.ramp_s = o->ramp,
		.requests = o->requests,
		.trace = o->trace[0] != '\0' ? t : NULL,
		.speedup = o->speedup,
		.copies = o->copies,
		.conversations = o->sessions > 0 ? o->sessions : o->conversations,
		.think_s = o->think_time,
		.turns = o->turns,
		.system_prompts = o->system_prompts,
		.system_tokens = o->system_prompts > 0 ? o->system_tokens : 0,
		.user_tokens = o->user_tokens,
		.osl = o->osl,
		.length_spread = o->length_spread,
		.max_hashes = (uint64_t)o->pool_mb << 17,
	};

	if (cfg.trace != NULL && load_trace_read(t, o->trace, o->keep_bursts, err, errlen) < 0)
		return -EBADMSG;
	l->work = load_workload_create(&cfg);
	if (l->work != NULL)
		return 0;
	snprintf(err, errlen, "the workload cannot be built: %s", strerror(errno));
	return -errno;
}

static int connect_router(struct load *l, struct load_link *link, char *err, size_t errlen)
{
	const struct load_options *o = l->opt;
	struct kvr_port_conf conf;
	int rc;

	describe_port(o, &conf);
	link->row = l->row;
	link->spread = (enum load_spread)o->spread;
	rc = load_link_open(link, &conf, (uint16_t)(o->clients + o->engines), err, errlen);
	if (rc < 0)
		return rc;
	rc = load_link_resolve(link, o->router, (uint16_t)o->router_port, o->find_s * 1000);
	if (rc < 0) {
		snprintf(err, errlen, "no answer from the router %s over %s: %s", o->router,
			 conf.device,
			 rc == -ENOLINK ? "the link is down; check that the router runs"
					: strerror(-rc));
		return rc;
	}
	l->link = link;
	l->max_frame = link->router.max_frame;
	if (l->max_frame == 0 ||
	    l->max_frame > (o->mtu > 1500 ? KVR_WIRE_MAX_FRAME : KVR_WIRE_DEF_FRAME))
		l->max_frame = o->mtu > 1500 ? KVR_WIRE_MAX_FRAME : KVR_WIRE_DEF_FRAME;
	l->max_frame &= ~7u;
	l->max_event_blocks =
		(uint32_t)((l->max_frame - sizeof(struct kvr_wire_hdr) -
			    sizeof(struct kvr_wire_kv_events) - sizeof(struct kvr_wire_kv_event)) /
			   8);
	return 0;
}

/* Wait until the load lcore is outside of device calls: it has begun another turn, or has ended. */
static void lcore_passes(void *arg)
{
	const struct load *l = arg;
	const uint64_t turn = kvr_stats_get(l->row, LOAD_LOOPS);

	for (uint32_t ms = 0; ms < 2000; ms++) {
		if (rte_eal_get_lcore_state(1) != RUNNING ||
		    kvr_stats_get(l->row, LOAD_LOOPS) != turn)
			return;
		usleep(1000);
	}
}

static struct memif_guard guard = {.wait = lcore_passes};

/* Launch the load lcore, and print a line per second while it runs. */
static void watch_load(struct load *l)
{
	struct load_progress p = {0};
	uint64_t next = 0;

	rte_eal_remote_launch(load_loop, l, rte_get_next_lcore(-1, 1, 0));
	/* Acquire: pairs with enter_phase(); the measurements are read after this. */
	while (atomic_load_explicit(&l->phase, memory_order_acquire) != LOAD_OVER) {
		usleep(NAP_US);
		atomic_store_explicit(&l->stop, (uint32_t)interrupted, memory_order_relaxed);
		if (l->opt->quiet || rte_rdtsc() < next)
			continue;
		load_report_progress(&p, l, l->opt->json ? stderr : stdout);
		next = rte_rdtsc() + l->hz;
	}
	rte_eal_mp_wait_lcore();
}

/* Check counters that must be 0. @return 0, or -EBADE with a line that names the others. */
static int check_zeros(const uint64_t v[], char *err, size_t errlen)
{
	static const enum load_counter zero[] = {LOAD_LOST, LOAD_MISPLACED, LOAD_SESSIONS_OPEN};
	uint64_t violations = 0;
	size_t n = 0;

	for (size_t i = 0; i < RTE_DIM(zero); i++)
		if (v[zero[i]] != 0 && n < errlen)
			n += (size_t)snprintf(err + n, errlen - n, "%s %lu, ",
					      load_stats_def.counters[zero[i]].name, v[zero[i]]);
	for (unsigned int i = LOAD_V_MAX_TOKENS; i <= LOAD_V_SESSION; i++)
		violations += v[i];
	if (violations != 0 && n < errlen)
		n += (size_t)snprintf(err + n, errlen - n, "violations %lu, ", violations);
	if (n != 0 && n < errlen)
		snprintf(err + n, errlen - n, "must be 0");
	return n != 0 ? -EBADE : 0;
}

/* Print whether the router, one of its queues, or this program without CPU time was unresponsive.
 */
static void explain_silence(const struct load *l)
{
	const uint32_t queues = l->link->n_queues;

	fprintf(stderr,
		"kvroute-load: %lu frames received, %lu sent, %lu not taken by the device; %lu "
		"turns, "
		"the longest of %lu us\n",
		kvr_stats_get(l->row, LOAD_RX), kvr_stats_get(l->row, LOAD_TX),
		kvr_stats_get(l->row, LOAD_TX_DROPPED), kvr_stats_get(l->row, LOAD_LOOPS),
		kvr_stats_get(l->row, LOAD_LONGEST_LOOP));
	for (uint32_t q = 0; queues > 1 && q < queues; q++) {
		uint32_t of = 0, greeted = 0;

		for (uint32_t i = q; i < l->n_clients; i += queues, of++)
			greeted += l->clients[i].connected;
		fprintf(stderr, "kvroute-load: queue %u: %u of %u clients\n", q, greeted, of);
	}
}

static int print_report(const struct load *l, char *err, size_t errlen)
{
	uint64_t v[LOAD_COUNTERS];

	if (l->never_began) {
		explain_silence(l);
		snprintf(err, errlen,
			 "the router greeted %u of %u clients and %u of %u engines (pool \"%s\", "
			 "block size %u)",
			 l->greeted_clients, l->n_clients, l->greeted_engines, l->n_engines,
			 l->opt->pool, l->opt->block_size);
		for (unsigned int c = 0; c < KVR_E_MAX; c++)
			if (l->m->worker_code[c] > 0)
				fprintf(stderr, "kvroute-load: worker rejected: %s (%lu)\n",
					kvr_code_name(c), l->m->worker_code[c]);
		return -ECONNREFUSED;
	}
	if (l->opt->json)
		load_report_json(l, stdout);
	else
		load_report_table(l, stdout);
	for (unsigned int i = 0; i < LOAD_COUNTERS; i++)
		v[i] = kvr_stats_get(l->row, i);
	if (kvr_stats_check(&load_stats_def, v, err, errlen) != NULL)
		return -EBADE;
	return check_zeros(v, err, errlen);
}

int main(int argc, char **argv)
{
	static struct load load;
	static struct load_link link;
	static struct load_trace trace;
	struct load_options opt;
	struct kvr_stats *stats = NULL;
	char err[400] = "";
	int rc;

	if (kvr_conf_version(argc, argv, "kvroute-load", stdout))
		return 0;
	rc = load_options_parse(&opt, argc, argv, err, sizeof(err));
	if (rc < 0)
		fprintf(stderr, "kvroute-load: %s\n", err);
	if (rc <= 0)
		return rc == 0 ? 0 : 2;
	if (check_core(&opt, err, sizeof(err)) < 0) {
		fprintf(stderr, "kvroute-load: %s\n", err);
		return 2;
	}
	rc = build_workload(&load, &opt, &trace, err, sizeof(err));
	if (rc == 0 && start_eal(&opt, argv[0]) < 0) {
		snprintf(err, sizeof(err), "cannot start DPDK: %s", rte_strerror(rte_errno));
		rc = -ENODEV;
	}
	if (rc == 0) {
		stats = kvr_stats_create(&load_stats_def, 1);
		load.row = stats != NULL ? kvr_stats_row(stats, 0) : NULL;
		rc = stats == NULL ? -ENOMEM : load_setup(&load, &opt, err, sizeof(err));
	}
	if (rc == 0)
		rc = memif_guard_check(err, sizeof(err));
	if (rc == 0)
		rc = connect_router(&load, &link, err, sizeof(err));
	if (rc == 0) {
		signal(SIGPIPE, SIG_IGN); /* the server may end during the memif handshake */
		signal(SIGINT, on_signal);
		signal(SIGTERM, on_signal);
		guard.arg = &load;
		guard.queues = opt.queues;
		memif_guard_set(&guard);
		watch_load(&load);
		memif_guard_set(NULL);
		rc = print_report(&load, err, sizeof(err));
	}
	load_link_close(&link);
	load_teardown(&load);
	kvr_stats_destroy(stats);
	load_workload_destroy(load.work);
	load_trace_free(&trace);
	if (rc < 0)
		fprintf(stderr, "kvroute-load: %s\n", err[0] != '\0' ? err : strerror(-rc));
	return rc < 0;
}
