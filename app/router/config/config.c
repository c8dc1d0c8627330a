/* SPDX-License-Identifier: BSD-3-Clause */
/* The option tables of [router], [pool] and [class], and reading the file into them. */
#include "config/config.h"
#include "config/config_pvt.h"

#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_errno.h"

#define ROUTER(f)   .offset = offsetof(struct kvr_router_options, f)
#define ROUTER_S(f) ROUTER(f), .size = sizeof(((struct kvr_router_options *)0)->f)
#define POOL(f)                                                                                    \
	.offset = offsetof(struct kvr_router_pool_conf, own) +                                     \
		  offsetof(struct kvr_router_pool_options, f)
#define POOL_S(f) POOL(f), .size = sizeof(((struct kvr_router_pool_options *)0)->f)

static const char *const hugepages[] = {"auto", "on", "off", NULL};
static const char *const log_sinks[] = {"auto", "stderr", "syslog", "journal", NULL};
static const char *const idle_modes[] = {"poll", "sleep", "interrupt", NULL};

static const struct kvr_opt router_opts[] = {
	{"ingress", KVR_OPT_STRING, ROUTER_S(ingress), .def = "0", .unit = "CPUs",
	 .help = "one polling lcore on each, with a queue of every port, as 0 or 0,2-3; ID@CPU for lcores that share CPUs, as 0@0,1@0 (not with idle = poll)"},
	{"control_cpus", KVR_OPT_STRING, ROUTER_S(control_cpus), .def = "", .unit = "CPUs",
	 .help = "CPUs of the control thread; empty = any"},
	{"file_prefix", KVR_OPT_STRING, ROUTER_S(file_prefix), .def = "kvroute",
	 .help = "EAL file prefix; names the folder of the telemetry socket"},
	{"eal", KVR_OPT_STRING, ROUTER_S(eal), .def = "",
	 .help = "further EAL arguments, separated by blanks"},
	{"memory_mb", KVR_OPT_U32, ROUTER(memory_mb), .min = 64, .max = 1048576, .def = "768",
	 .unit = "MiB", .help = "memory of the packet path: tables, rings, buffers"},
	{"hugepages", KVR_OPT_ENUM, ROUTER(hugepages), .choices = hugepages, .def = "auto",
	 .help = "auto = if enough are free"},
	{"idle", KVR_OPT_ENUM, ROUTER(idle), .choices = idle_modes, .def = "poll",
	 .help = "lcores without work: poll; sleep up to 2 ms, a delay of the first request after a pause; interrupt = woken by their devices (memif servers, packet and AF_XDP sockets, drivers with rx interrupts; others are polled every 50 us)"},
	{"log_to", KVR_OPT_ENUM, ROUTER(log_to), .choices = log_sinks, .def = "auto",
	 .help = "auto = the journal if standard error leads there, else standard error"},
	{"max_workers", KVR_OPT_U32, ROUTER(max_workers), .min = 0, .max = 1048576, .def = "0",
	 .unit = "workers", .help = "workers of all pools; 0 = the sum of the pools"},
	{"heartbeat_ms", KVR_OPT_U32, ROUTER(heartbeat_ms), .min = 10, .max = 60000, .def = "100",
	 .unit = "ms", .help = "interval at which workers are asked to report. SIGHUP"},
	{"suspect_ms", KVR_OPT_U32, ROUTER(suspect_ms), .min = 20, .max = 600000, .def = "350",
	 .unit = "ms", .help = "silence after which a worker gets no new requests. SIGHUP"},
	{"dead_ms", KVR_OPT_U32, ROUTER(dead_ms), .min = 30, .max = 3600000, .def = "1000",
	 .unit = "ms", .help = "silence after which a worker is lost. SIGHUP"},
	{"reassembly_frames", KVR_OPT_U32, ROUTER(reassembly_frames), .min = 0, .max = 16777215,
	 .def = "0", .unit = "buffers",
	 .help = "fragments kept by all ingress lcores; 0 = derived from the number of buffers"},
	{"reassembly_source_frames", KVR_OPT_U32, ROUTER(reassembly_source_frames), .min = 0,
	 .max = 16777215, .def = "0", .unit = "buffers",
	 .help = "fragments kept for one source address; 0 = half of those of an ingress lcore"},
	{"waiting_frames", KVR_OPT_U32, ROUTER(waiting_frames), .min = 0, .max = 16777215,
	 .def = "0", .unit = "buffers",
	 .help = "frames of waiting requests, all pools; 0 = derived from the number of buffers"},
	{"reassembly_ms", KVR_OPT_U32, ROUTER(reassembly_ms), .min = 1, .max = 60000, .def = "3000",
	 .unit = "ms", .help = "time limit of an incomplete message"},
	{"ring_size", KVR_OPT_U32, ROUTER(ring_size), .min = 0, .max = 1048576, .def = "0",
	 .unit = "entries",
	 .help = "rings between stages, rounded up to a power of two; 0 = derived from the number of buffers, at most 8,192"},
	{"overload_ms", KVR_OPT_U32, ROUTER(overload_ms), .min = 1, .max = 60000, .def = "100",
	 .unit = "ms",
	 .help = "time with full receive bursts (gaps count back an eighth) after which the excess of sources that ask for more than others is rejected (Busy)"},
	{"client_timeout_ms", KVR_OPT_U32, ROUTER(client_timeout_ms), .min = 100, .max = 3600000,
	 .def = "10000", .unit = "ms",
	 .help = "a waiting request leaves the queue after this silence of its client; a request that its worker has not acknowledged ends, but not before 18 s"},
	{"stop_ms", KVR_OPT_U32, ROUTER(stop_ms), .min = 0, .max = 3600000, .def = "5000",
	 .unit = "ms",
	 .help = "time for live requests to end after SIGTERM; the others are ended. A second signal ends all at once. SIGHUP"},
	{"large_buffers", KVR_OPT_U32, ROUTER(large_buffers), .min = 4, .max = 65536, .def = "64",
	 .unit = "buffers",
	 .help = "prompts hashed by the router, fragmented or predicted at one time; 512 KiB each"},
	{"source_share", KVR_OPT_U32, ROUTER(source_share), .min = 0, .max = 1000, .def = "2",
	 .help = "quota of one source address: this factor times the free units of requests, waiting room, sessions and event ring, a sixteenth of which is reserved for sources that hold few. 2 = at most 5/8 of all; 0 = no quota"},
	{"state_dir", KVR_OPT_STRING, ROUTER_S(state_dir), .def = "",
	 .help = "folder for the snapshot that makes a restart warm; empty = STATE_DIRECTORY, set by systemd, or no snapshots"},
	{"snapshot_s", KVR_OPT_U32, ROUTER(snapshot_s), .min = 0, .max = 86400, .def = "60",
	 .unit = "s", .help = "interval of snapshots; 0 = only on command and at the stop"},
	{NULL},
};

static const struct kvr_opt pool_own_opts[] = {
	{"id", KVR_OPT_U32, POOL(id), .min = 0, .max = 65535, .def = "0",
	 .help = "number of the pool in ROUTE; unique"},
	{"max_jobs", KVR_OPT_U32, POOL(max_jobs), .min = 64, .max = 1048576, .def = "1024",
	 .unit = "requests", .help = "requests being decided or waiting in the queue"},
	{"max_blocks", KVR_OPT_U64, POOL(max_blocks), .min = 1024, .max = 2147483648.0, .def = "1M",
	 .unit = "blocks", .help = "distinct blocks in the prefix table"},
	{"max_runs", KVR_OPT_U64, POOL(max_runs), .min = 0, .max = 2147483648.0, .def = "0",
	 .unit = "runs", .help = "runs of consecutive blocks; 0 = derived from max_blocks"},
	{"eagle", KVR_OPT_BOOL, POOL(eagle), .def = "off",
	 .help = "the engines name blocks by windows of block_size + 1 tokens (bigrams)"},
	{"decision_sample", KVR_OPT_U32, POOL(decision_sample), .min = 0, .max = UINT32_MAX,
	 .def = "1024", .unit = "decisions",
	 .help = "one decision in this number is kept for /kvroute/decisions; 0 = only failed ones"},
	{"decision_ring", KVR_OPT_U32, POOL(decision_ring), .min = 0, .max = 16777216,
	 .def = "65536", .unit = "decisions",
	 .help = "newest decisions that /kvroute/explain finds by request id, 64 bytes each, rounded up to a power of two; 0 = none"},
	{"event_cpu", KVR_OPT_STRING, POOL_S(event), .def = "", .unit = "CPU",
	 .help = "CPU or ID@CPU that applies KV events; empty = first ingress lcore"},
	{"scheduler_cpu", KVR_OPT_STRING, POOL_S(scheduler), .def = "", .unit = "CPU",
	 .help = "CPU or ID@CPU that decides requests; empty = first ingress lcore"},
	{NULL},
};

/* The keys of [pool NAME]: the router's own, with those of lib/sched inserted. */
static const struct kvr_opt *pool_opts(void)
{
	static struct kvr_opt all[96];
	uint32_t n = 0;

	if (all[0].name != NULL)
		return all;
	for (uint32_t i = 0; pool_own_opts[i].name != NULL; i++)
		all[n++] = pool_own_opts[i];
	for (uint32_t i = 0; kvr_pool_opts[i].name != NULL && n + 1 < RTE_DIM(all); i++) {
		all[n] = kvr_pool_opts[i];
		all[n++].offset += offsetof(struct kvr_router_pool_conf, sched);
	}
	return all;
}

static const struct kvr_opt *find_opt(const struct kvr_opt *o, const char *key)
{
	for (; o->name != NULL; o++)
		if (strcmp(o->name, key) == 0)
			return o;
	return NULL;
}

const struct kvr_opt *kvr_router_opt(const char *key)
{
	return find_opt(router_opts, key);
}

const struct kvr_opt *kvr_router_pool_opt(const char *key)
{
	return find_opt(pool_opts(), key);
}

/* ---- sections ---- */

static int check_name(const char *name)
{
	if (name[0] == '\0' || strlen(name) >= KVR_ROUTER_NAME)
		return -EINVAL;
	for (; *name != '\0'; name++)
		if (!isalnum((unsigned char)*name) && strchr("._-", *name) == NULL)
			return -EINVAL;
	return 0;
}

static void *get_router(void *arg, const char *instance)
{
	struct kvr_router_conf *conf = arg;

	RTE_SET_USED(instance);
	return &conf->opt;
}

static void *get_port(void *arg, const char *instance)
{
	struct kvr_router_conf *conf = arg;
	struct kvr_router_port_conf *p = &conf->port[conf->n_ports];

	if (check_name(instance) < 0)
		return kvr_null(EINVAL);
	for (uint32_t i = 0; i < conf->n_ports; i++)
		if (strcmp(conf->port[i].name, instance) == 0)
			return kvr_null(EEXIST);
	if (conf->n_ports == KVR_ROUTER_MAX_PORTS)
		return kvr_null(ENOSPC);
	snprintf(p->name, sizeof(p->name), "%s", instance);
	kvr_conf_defaults(kvr_port_opts, &p->port);
	conf->n_ports++;
	return &p->port;
}

static void *get_pool(void *arg, const char *instance)
{
	struct kvr_router_conf *conf = arg;
	struct kvr_router_pool_conf *p = &conf->pool[conf->n_pools];

	if (check_name(instance) < 0)
		return kvr_null(EINVAL);
	for (uint32_t i = 0; i < conf->n_pools; i++)
		if (strcmp(conf->pool[i].name, instance) == 0)
			return kvr_null(EEXIST);
	if (conf->n_pools == KVR_ROUTER_MAX_POOLS)
		return kvr_null(ENOSPC);
	kvr_pool_conf_defaults(&p->sched);
	kvr_conf_defaults(pool_own_opts, p);
	snprintf(p->name, sizeof(p->name), "%s", instance);
	snprintf(p->sched.name, sizeof(p->sched.name), "%s", instance);
	p->own.id = conf->n_pools; /* default: position in the file */
	conf->n_pools++;
	return p;
}

/* "POOL NAME": the section of the pool must come first. */
static void *get_class(void *arg, const char *instance)
{
	struct kvr_router_conf *conf = arg;
	const size_t len = strcspn(instance, " ");
	const char *name = instance + len + strspn(instance + len, " ");
	struct kvr_pool_conf *p = NULL;

	for (uint32_t i = 0; i < conf->n_pools; i++)
		if (strlen(conf->pool[i].name) == len &&
		    strncmp(conf->pool[i].name, instance, len) == 0)
			p = &conf->pool[i].sched;
	if (p == NULL || check_name(name) < 0)
		return kvr_null(EINVAL);
	for (uint32_t i = 0; i < p->n_classes; i++)
		if (strcmp(p->classes[i].name, name) == 0)
			return kvr_null(EEXIST);
	if (p->n_classes == KVR_POOL_CLASSES_MAX)
		return kvr_null(ENOSPC);
	kvr_pool_class_init(&p->classes[p->n_classes], name);
	return &p->classes[p->n_classes++];
}

int kvr_router_conf_load(struct kvr_router_conf *conf, const char *path, char *err, size_t errlen)
{
	const struct kvr_conf_section sections[] = {
		{"router", router_opts, get_router},
		{"port ", kvr_port_opts, get_port},
		{"pool ", pool_opts(), get_pool},
		{"class ", kvr_pool_class_opts, get_class},
		{NULL, NULL, NULL},
	};
	int rc;

	memset(conf, 0, sizeof(*conf));
	snprintf(conf->path, sizeof(conf->path), "%s", path);
	kvr_conf_defaults(router_opts, &conf->opt);
	rc = kvr_conf_load(path, sections, conf, err, errlen);
	return rc < 0 ? rc : kvr_router_conf__check(conf, &(struct blame){path, err, errlen});
}

void kvr_router_conf_dump(const struct kvr_router_conf *conf, FILE *out)
{
	fprintf(out, "[router]\n");
	kvr_conf_dump(router_opts, &conf->opt, out);
	for (uint32_t i = 0; i < conf->n_ports; i++) {
		fprintf(out, "\n[port %s]\n", conf->port[i].name);
		kvr_conf_dump(kvr_port_opts, &conf->port[i].port, out);
	}
	for (uint32_t i = 0; i < conf->n_pools; i++) {
		fprintf(out, "\n[pool %s]\n", conf->pool[i].name);
		kvr_conf_dump(pool_opts(), &conf->pool[i], out);
		for (uint32_t k = 0; k < conf->pool[i].sched.n_classes; k++) {
			fprintf(out, "\n[class %s %s]\n", conf->pool[i].name,
				conf->pool[i].sched.classes[k].name);
			kvr_conf_dump(kvr_pool_class_opts, &conf->pool[i].sched.classes[k], out);
		}
	}
}
