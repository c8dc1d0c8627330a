/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks between keys of the configuration. Devices and memory of the host are checked only by
 * --check=full.
 */
#include "config/config_pvt.h"
#include "config/lcores.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/host.h"
#include "kvr_prefix.h"
#include "kvr_telemetry.h"

#define MIB 1048576u

/* CPUs of this process; NULL: the kernel has more than a cpu_set_t can hold. */
static const cpu_set_t *available_cpus(cpu_set_t *set)
{
	return sched_getaffinity(0, sizeof(*set), set) == 0 ? set : NULL;
}

static int resolve_ingress(struct kvr_router_conf *conf, const struct blame *b)
{
	cpu_set_t set;
	char why[300];

	if (lcores_ingress(conf, conf->opt.ingress, available_cpus(&set), why, sizeof(why)) < 0)
		return complain(b, "router", "ingress", "%s", why);
	return 0;
}

/* Resolve an event or scheduler lcore: an ingress lcore, or one for this role in any number of
 * pools. */
static int resolve_role(struct kvr_router_conf *conf, const struct kvr_router_pool_conf *p,
			const char *key, const char *text, uint32_t *lcore, const struct blame *b)
{
	char section[KVR_ROUTER_NAME + 8], why[200];
	cpu_set_t set;

	snprintf(section, sizeof(section), "pool %s", p->name);
	if (lcores_role(conf, text, available_cpus(&set), lcore, why, sizeof(why)) < 0)
		return complain(b, section, key, "%s", why);
	return 0;
}

/* Telemetry replaces characters of a name by '_'. Two equal results would hide the second name. */
static int check_key(const char *kind, const char *name, const char *other, const struct blame *b)
{
	char section[KVR_ROUTER_NAME + 8], key[KVR_ROUTER_NAME], taken[KVR_ROUTER_NAME];

	if (strcmp(kvr_telemetry_key(key, sizeof(key), name),
		   kvr_telemetry_key(taken, sizeof(taken), other)) != 0)
		return 0;
	snprintf(section, sizeof(section), "%s %s", kind, name);
	return complain(
		b, section, NULL,
		"its name in telemetry, \"%s\", is also that of %s %s; allowed: names that differ in letters or digits",
		key, kind, other);
}

static int check_pools(struct kvr_router_conf *conf, const struct blame *b)
{
	char section[KVR_ROUTER_NAME + 8], why[200];

	for (uint32_t i = 0; i < conf->n_pools; i++) {
		struct kvr_router_pool_conf *p = &conf->pool[i];
		int rc;

		snprintf(section, sizeof(section), "pool %s", p->name);
		for (uint32_t k = 0; k < i; k++) {
			if (conf->pool[k].own.id == p->own.id)
				return complain(b, section, "id", "%u is already the id of pool %s",
						p->own.id, conf->pool[k].name);
			rc = check_key("pool", p->name, conf->pool[k].name, b);
			if (rc < 0)
				return rc;
		}
		if (p->sched.max_ranks > KVR_PREFIX_MAX_RANKS)
			return complain(b, section, "max_ranks", "got \"%u\", allowed: 1 to %u",
					p->sched.max_ranks, KVR_PREFIX_MAX_RANKS);
		if (kvr_pool_conf_check(&p->sched, why, sizeof(why)) < 0)
			return complain(b, section, NULL, "%s", why);
		rc = resolve_role(conf, p, "event_cpu", p->own.event, &p->event_lcore, b);
		if (rc == 0)
			rc = resolve_role(conf, p, "scheduler_cpu", p->own.scheduler,
					  &p->sched_lcore, b);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static const char *model_of(const struct kvr_router_pool_conf *p)
{
	return p->sched.model[0] != '\0' ? p->sched.model : p->name;
}

/* A prefill pool serves the decode pool of its model, and both are decided on one lcore. */
static int check_pair(struct kvr_router_conf *conf, uint32_t i, const struct blame *b)
{
	struct kvr_router_pool_conf *p = &conf->pool[i], *d;
	char section[KVR_ROUTER_NAME + 8];

	snprintf(section, sizeof(section), "pool %s", p->name);
	if (p->peer == KVR_ROUTER_NO_POOL)
		return complain(b, section, "role",
				"prefill pool without a decode pool of model \"%s\"", model_of(p));
	d = &conf->pool[p->peer];
	if (p->sched.block_size != d->sched.block_size)
		return complain(
			b, section, "block_size",
			"got %u, but the decode pool %s of the model has %u; needed: the same",
			p->sched.block_size, d->name, d->sched.block_size);
	if (p->own.eagle != d->own.eagle)
		return complain(
			b, section, "eagle",
			"got \"%s\", but the decode pool %s of the model has \"%s\"; needed: the same",
			p->own.eagle ? "on" : "off", d->name, d->own.eagle ? "on" : "off");
	if (p->sched_lcore != d->sched_lcore)
		return complain(
			b, section, "scheduler_cpu",
			"got \"%s\", but the decode pool %s has \"%s\"; both are decided on one",
			p->own.scheduler, d->name, d->own.scheduler);
	return 0;
}

/* Pools of one model: one aggregated pool, or at most one of each other role. */
static int check_models(struct kvr_router_conf *conf, const struct blame *b)
{
	char section[KVR_ROUTER_NAME + 8];
	int rc = 0;

	for (uint32_t i = 0; i < conf->n_pools; i++) {
		struct kvr_router_pool_conf *p = &conf->pool[i];

		p->peer = KVR_ROUTER_NO_POOL;
		snprintf(section, sizeof(section), "pool %s", p->name);
		for (uint32_t k = 0; k < i; k++) {
			struct kvr_router_pool_conf *q = &conf->pool[k];

			const enum kvr_pool_relation is =
				kvr_pool_conf_relation(&p->sched, &q->sched);

			if (is == KVR_POOLS_APART)
				continue;
			if (is == KVR_POOLS_CONTRADICT)
				return complain(
					b, section, "role",
					"pool %s already serves model \"%s\"; a model has one aggregated pool, or one prefill and one decode",
					q->name, model_of(p));
			p->peer = k;
			q->peer = i;
		}
	}
	for (uint32_t i = 0; rc == 0 && i < conf->n_pools; i++)
		if (conf->pool[i].sched.role == KVR_ROLE_PREFILL)
			rc = check_pair(conf, i, b);
	return rc;
}

/* Two ports with one device, or with one address and UDP port, which peers could not distinguish.
 */
static int check_port_pair(const struct kvr_router_port_conf *p,
			   const struct kvr_router_port_conf *q, const struct kvr_pkt_rules *a,
			   const struct kvr_pkt_rules *o, const struct blame *b)
{
	char section[KVR_ROUTER_NAME + 8];
	const bool vlans = a->vlan == o->vlan || a->vlan == 0 || o->vlan == 0;
	const bool same = a->local.udp_port == o->local.udp_port && vlans;

	snprintf(section, sizeof(section), "port %s", p->name);
	if (strcmp(p->port.device, q->port.device) == 0)
		return complain(b, section, "device", "\"%s\" is already the device of port %s",
				p->port.device, q->name);
	if (same && p->port.ipv4[0] != '\0' && memcmp(a->local.ip4, o->local.ip4, 4) == 0 &&
	    q->port.ipv4[0] != '\0')
		return complain(b, section, "ipv4",
				"%s with UDP port %u is already the address of port %s",
				p->port.ipv4, p->port.udp_port, q->name);
	if (same && p->port.ipv6[0] != '\0' && memcmp(a->local.ip6, o->local.ip6, 16) == 0 &&
	    q->port.ipv6[0] != '\0')
		return complain(b, section, "ipv6",
				"%s with UDP port %u is already the address of port %s",
				p->port.ipv6, p->port.udp_port, q->name);
	if (p->port.mac[0] != '\0' && strcasecmp(p->port.mac, q->port.mac) == 0)
		return complain(b, section, "mac", "%s is already the address of port %s",
				p->port.mac, q->name);
	return 0;
}

/* Check addresses, prefixes, device arguments and drivers, as far as possible without the devices.
 */
static int check_ports(struct kvr_router_conf *conf, const struct blame *b)
{
	struct kvr_pkt_rules *rules = calloc(conf->n_ports, sizeof(*rules));
	char section[KVR_ROUTER_NAME + 8], line[400];
	int rc = rules == NULL ? -ENOMEM : 0;

	for (uint32_t i = 0; rc == 0 && i < conf->n_ports; i++) {
		struct kvr_router_port_conf *p = &conf->port[i];

		rc = kvr_port_rules(&p->port, i, &rules[i], line, sizeof(line));
		if (rc == 0 && p->port.device[0] == '\0') {
			snprintf(
				line, sizeof(line),
				"device: not given, needed: a vdev with its arguments, a PCI address, a port name or index");
			rc = -EINVAL;
		}
		if (rc == 0)
			rc = host_driver(p->port.device, line, sizeof(line));
		if (rc != 0) {
			snprintf(section, sizeof(section), "port %s", p->name);
			kvr_conf_blame_line(b->path, section, line, b->err, b->errlen);
		}
		for (uint32_t k = 0; rc == 0 && k < i; k++) {
			rc = check_port_pair(p, &conf->port[k], &rules[i], &rules[k], b);
			if (rc == 0)
				rc = check_key("port", p->name, conf->port[k].name, b);
		}
	}
	free(rules);
	return rc;
}

/* As many workers as the pools allow, unless the operator sets a lower total. */
uint32_t kvr_router_conf_workers(const struct kvr_router_conf *conf)
{
	uint32_t sum = 0;

	if (conf->opt.max_workers != 0)
		return conf->opt.max_workers;
	for (uint32_t i = 0; i < conf->n_pools; i++) {
		const struct kvr_pool_conf *p = &conf->pool[i].sched;

		sum += p->max_workers != 0 ? p->max_workers : p->max_ranks;
	}
	return sum;
}

static int check_workers(const struct kvr_router_conf *conf, const struct blame *b)
{
	for (uint32_t i = 0; i < conf->n_pools; i++) {
		const struct kvr_pool_conf *p = &conf->pool[i].sched;

		if (conf->opt.max_workers != 0 && p->max_workers > conf->opt.max_workers)
			return complain(b, "router", "max_workers",
					"got %u, but pool %s alone allows max_workers %u",
					conf->opt.max_workers, p->name, p->max_workers);
	}
	return 0;
}

/* Reject less memory than the sum of all parts. The sum may be wrong by 1 %; then the start fails
 * with the name of the pool that got no memory. */
static int check_memory_mb(const struct kvr_router_conf *conf, const struct blame *b)
{
	struct kvr_router_memory m;
	int rc = kvr_router_conf_memory(conf, conf->opt.hugepages != KVR_HUGEPAGES_OFF, &m);

	if (rc < 0)
		return complain(b, "router", "memory_mb", "not enough memory to check the value");
	if (m.heap <= (uint64_t)conf->opt.memory_mb << 20)
		return 0;
	return complain(
		b, "router", "memory_mb",
		"got \"%u\", but at least %" PRIu64 " MiB are needed: packet buffers %" PRIu64
		", max_jobs and max_requests of the pools %" PRIu64 ", large_buffers %" PRIu64
		", ranks %" PRIu64 ", sessions %" PRIu64 ", rings %" PRIu64,
		conf->opt.memory_mb, (m.heap + MIB - 1) / MIB, m.buffers / MIB, m.requests / MIB,
		m.large / MIB, m.ranks / MIB, m.sessions / MIB, m.rings / MIB);
}

/* The start checks the capability of the device. */
static int check_queues(const struct kvr_router_conf *conf, const struct kvr_router_port_conf *p,
			const struct blame *b)
{
	char section[KVR_ROUTER_NAME + 8];

	if (p->port.queues <= conf->n_ingress)
		return 0;
	snprintf(section, sizeof(section), "port %s", p->name);
	return complain(b, section, "queues",
			"got \"%u\", allowed: 0 to %u, one for each lcore of [router] ingress",
			p->port.queues, conf->n_ingress);
}

/* The prefix becomes a folder in /run/dpdk and must stay inside. */
static int check_prefix(const struct kvr_router_conf *conf, const struct blame *b)
{
	const char *name = conf->opt.file_prefix;

	if (isalnum((unsigned char)name[0]) &&
	    name[strspn(name,
			"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")] ==
		    '\0')
		return 0;
	return complain(
		b, "router", "file_prefix",
		"got \"%s\", allowed: letters, digits, \".\", \"_\" and \"-\", a letter or digit first",
		name);
}

int kvr_router_conf_times(const struct kvr_router_options *o, char *err, size_t errlen)
{
	if (o->heartbeat_ms < o->suspect_ms && o->suspect_ms < o->dead_ms)
		return 0;
	snprintf(err, errlen, "needed: heartbeat_ms (%u) < suspect_ms (%u) < dead_ms (%u)",
		 o->heartbeat_ms, o->suspect_ms, o->dead_ms);
	return -EINVAL;
}

int kvr_router_conf__check(struct kvr_router_conf *conf, const struct blame *b)
{
	char why[400];
	int rc;

	if (conf->n_ports == 0)
		return complain(b, "port NAME", NULL,
				"no port; at least one [port NAME] section is needed");
	if (conf->n_pools == 0)
		return complain(b, "pool NAME", NULL,
				"no pool; at least one [pool NAME] section is needed");
	if (kvr_router_conf_times(&conf->opt, why, sizeof(why)) < 0)
		return complain(b, "router", "dead_ms", "%s", why);
	rc = check_prefix(conf, b);
	if (rc == 0)
		rc = check_ports(conf, b);
	if (rc == 0)
		rc = resolve_ingress(conf, b);
	if (rc == 0)
		rc = check_pools(conf, b);
	if (rc == 0 && lcores_idle(conf, why, sizeof(why)) < 0)
		rc = complain(b, "router", "idle", "%s", why);
	if (rc == 0)
		rc = check_workers(conf, b);
	if (rc == 0)
		rc = check_models(conf, b);
	for (uint32_t i = 0; rc == 0 && i < conf->n_ports; i++)
		rc = check_queues(conf, &conf->port[i], b);
	if (rc == 0 && kvr_router_conf_sizes(conf, why, sizeof(why)) < 0)
		rc = complain(b, "router", NULL, "%s", why);
	return rc == 0 ? check_memory_mb(conf, b) : rc;
}
