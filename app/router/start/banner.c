/* SPDX-License-Identifier: BSD-3-Clause */
/* The log lines about a completed start. */
#include "start/banner.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_ether.h>
#include <rte_memory.h>
#include <rte_version.h>

#include "control/log.h"
#include "state/router.h"

#ifndef KVROUTE_VERSION
#define KVROUTE_VERSION "unknown"
#endif

struct words {
	char text[KVR_LOG_LINE];
	size_t len;
};

static void add_words(struct words *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add_words(struct words *w, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(w->text + w->len, sizeof(w->text) - w->len, fmt, ap);
	va_end(ap);
	if (n > 0)
		w->len = RTE_MIN(w->len + (size_t)n, sizeof(w->text) - 1);
}

/* ---- lcores ---- */

/* ", KIND of a, b": the pools served by @lc. */
static void add_pools(const struct router *rt, struct words *w, const struct lcore *lc, bool events)
{
	const char *before = events ? "events of " : "scheduler of ";

	for (uint32_t i = 0; i < rt->n_pools; i++) {
		const struct pool *pool = &rt->pool[i];

		if ((events ? pool->event_lcore : pool->sched_lcore) != lc)
			continue;
		add_words(w, "%s%s%s", w->len != 0 ? ", " : "", before, pool->name);
		before = "";
	}
}

/* The ports with a queue of polling lcore @i. Other lcores receive and send for it on the other
 * ports. */
static void add_queues(const struct router *rt, struct words *w, uint32_t i)
{
	uint32_t with = 0;

	for (uint32_t p = 0; p < rt->n_ports; p++) {
		struct kvr_port_info info;

		kvr_port_info(rt->port[p], &info);
		with += info.queues > i;
	}
	if (with == rt->n_ports)
		add_words(w, "ingress and egress (queue %u of every port)", i);
	else if (with == 0)
		add_words(w, "ingress and egress (no queue: sends through lcores with a queue)");
	else
		add_words(w, "ingress and egress (queue %u of %u of the %u ports)", i, with,
			  rt->n_ports);
}

static void log_lcores(const struct router *rt)
{
	for (uint32_t i = 0; i < rt->n_lcores; i++) {
		struct words w = {.len = 0};

		if (i < rt->conf.n_ingress)
			add_queues(rt, &w, i);
		add_pools(rt, &w, rt->lcore[i], true);
		add_pools(rt, &w, rt->lcore[i], false);
		log_line(KVR_LOG_ABOUT(.level = KVR_LOG_INFO), "lcore %u on CPU %u: %s", i,
			 rt->conf.cpu[i], w.text);
	}
	log_line(KVR_LOG_ABOUT(.level = KVR_LOG_INFO), "control, telemetry and log on %s %s",
		 rt->conf.opt.control_cpus[0] != '\0' ? "CPUs" : "any",
		 rt->conf.opt.control_cpus[0] != '\0' ? rt->conf.opt.control_cpus : "CPU");
}

/* ---- ports ---- */

static const char *link_text(const struct kvr_port_info *i, char *out, size_t len)
{
	if (!i->link_up)
		return "link down";
	snprintf(out, len, "link up, %u Mbit/s", i->link_mbps);
	return out;
}

static void log_ports(const struct router *rt)
{
	static const uint8_t none[16];

	for (uint32_t p = 0; p < rt->n_ports; p++) {
		const struct kvr_local *l = kvr_port_local(rt->port[p]);
		char mac[RTE_ETHER_ADDR_FMT_SIZE], ip[INET6_ADDRSTRLEN], link[40];
		struct words w = {.len = 0};
		struct kvr_port_info i;

		kvr_port_info(rt->port[p], &i);
		rte_ether_format_addr(mac, sizeof(mac), (const struct rte_ether_addr *)l->mac);
		if (l->max_frame4 != 0)
			add_words(&w, ", %s", inet_ntop(AF_INET, l->ip4, ip, sizeof(ip)));
		if (memcmp(l->ip6, none, sizeof(none)) != 0)
			add_words(&w, ", %s", inet_ntop(AF_INET6, l->ip6, ip, sizeof(ip)));
		log_line(KVR_LOG_ABOUT(.level = KVR_LOG_INFO, .port = rt->conf.port[p].name),
			 "port %s: %s, MAC %s%s, UDP %u, MTU %u, %u %s of %u %s%s, %u buffers, %s",
			 rt->conf.port[p].name, i.driver, mac, w.text, l->udp_port, i.mtu, i.queues,
			 i.queues == 1 ? "queue" : "queues", i.lcores,
			 i.lcores == 1 ? "lcore" : "lcores", i.rss ? ", RSS" : "", i.mbufs,
			 link_text(&i, link, sizeof(link)));
	}
}

/* ---- pools ---- */

static void log_pools(const struct router *rt)
{
	for (uint32_t i = 0; i < rt->n_pools; i++) {
		const struct pool *pool = &rt->pool[i];
		struct words w = {.len = 0};

		if (pool->prefill != NULL)
			add_words(&w, ", prefill by %s", pool->prefill->name);
		if (pool->decode != NULL)
			add_words(&w, ", prefill for %s", pool->decode->name);
		log_line(KVR_LOG_ABOUT(.level = KVR_LOG_INFO, .pool = pool->name),
			 "pool %s: id %u, blocks of %u tokens, %" PRIu64
			 " of them in the table, %u ranks, %u requests%s",
			 pool->name, pool->wire_id, pool->block_size,
			 rt->conf.pool[i].own.max_blocks, pool->max_ranks,
			 kvr_flight_size(pool->requests), w.text);
	}
}

/* ---- memory ---- */

static int add_pages(const struct rte_memseg_list *l, void *arg)
{
	struct words *w = arg;
	char size[32];

	if (l->external || l->memseg_arr.count == 0)
		return 0;
	snprintf(size, sizeof(size), "%" PRIu64 " KiB", l->page_sz >> 10);
	if (strstr(w->text, size) == NULL)
		add_words(w, "%s%s", w->len != 0 ? " and " : "", size);
	return 0;
}

void banner_log(const struct router *rt)
{
	struct words pages = {.len = 0};

	log_line(KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE),
		 "kvroute " KVROUTE_VERSION
		 " (%s) running as process %d with %s, started in %" PRIu64 " ms",
		 rte_version(), (int)getpid(), rt->conf.path,
		 (now_ns(rt) - rt->start_ns) / 1000000);
	log_lcores(rt);
	log_ports(rt);
	log_pools(rt);
	rte_memseg_list_walk(add_pages, &pages);
	log_line(KVR_LOG_ABOUT(.level = KVR_LOG_INFO),
		 "memory: %u MiB in pages of %s (huge pages: %s)", rt->conf.opt.memory_mb,
		 pages.text, rte_eal_has_hugepages() ? "yes" : "no");
	log_line(KVR_LOG_ABOUT(.level = KVR_LOG_INFO), "telemetry: %s/dpdk_telemetry.v2",
		 rte_eal_get_runtime_dir());
	log_line(KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE),
		 "ready: %u pool%s, %u port%s, %u polling lcore%s, router epoch %u", rt->n_pools,
		 plural_suffix(rt->n_pools), rt->n_ports, plural_suffix(rt->n_ports), rt->n_lcores,
		 plural_suffix(rt->n_lcores), rt->epoch);
}
