/* SPDX-License-Identifier: BSD-3-Clause */
/* Telemetry: workers, pools, sessions, drops, stages, and the table of all commands. */
#include "telemetry/telemetry.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include <rte_telemetry.h>
#include <rte_version.h>

#include "control/log.h"
#include "control/thread.h"
#include "kvr_telemetry.h"
#include "lcore/mailbox.h"
#include "sched/session.h"
#include "state/router.h"
#include "telemetry/balance.h"
#include "telemetry/capture.h"
#include "telemetry/commands.h"
#include "telemetry/decisions.h"
#include "telemetry/ports.h"
#include "telemetry/rejected_hellos.h"
#include "telemetry/sources.h"
#include "telemetry/tables.h"

#ifndef KVROUTE_VERSION
#define KVROUTE_VERSION "unknown"
#endif

#define PAGE 32u /* workers per answer, whose size is limited */

static int cmd_info(void *arg, const char *params, struct rte_tel_data *d)
{
	struct router *rt = arg;

	RTE_SET_USED(params);
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "version", KVROUTE_VERSION);
	rte_tel_data_add_dict_string(d, "dpdk", rte_version());
	rte_tel_data_add_dict_int(d, "protocol", KVR_WIRE_VERSION);
	rte_tel_data_add_dict_u64(d, "uptime_ms", (now_ns(rt) - rt->start_ns) / 1000000);
	rte_tel_data_add_dict_u64(d, "epoch", rt->epoch);
	rte_tel_data_add_dict_u64(d, "tsc_hz", rt->tsc_hz);
	rte_tel_data_add_dict_u64(d, "polling_lcores", rt->n_lcores);
	rte_tel_data_add_dict_u64(d, "ports", rt->n_ports);
	rte_tel_data_add_dict_u64(d, "pools", rt->n_pools);
	rte_tel_data_add_dict_u64(d, "workers", kvr_registry_count(rt->registry));
	rte_tel_data_add_dict_u64(d, "max_frame", rt->max_frame);
	rte_tel_data_add_dict_u64(d, "max_message", rt->sizes.max_message);
	rte_tel_data_add_dict_u64(d, "max_frames", rt->sizes.max_frames);
	rte_tel_data_add_dict_u64(d, "mbufs", rt->sizes.mbufs[0]);
	rte_tel_data_add_dict_u64(d, "ring_size", rt->sizes.ring_size);
	rte_tel_data_add_dict_u64(d, "reassembly_frames", rt->sizes.reassembly);
	rte_tel_data_add_dict_u64(d, "reassembly_source_frames", rt->sizes.reassembly_source);
	rte_tel_data_add_dict_u64(d, "waiting_frames", rt->sizes.waiting);
	rte_tel_data_add_dict_u64(d, "reserve_frames", rt->sizes.reserve);
	rte_tel_data_add_dict_string(d, "hugepages", rte_eal_has_hugepages() ? "yes" : "no");
	return 0;
}

/* ---- workers ---- */

static void add_worker(struct router *rt, struct rte_tel_data *list,
		       const struct kvr_worker *worker)
{
	struct rte_tel_data *d = rte_tel_data_alloc();
	char text[KVR_PATH_TEXT], id[24];

	if (d == NULL)
		return;
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "state", kvr_worker_state_name(worker->state));
	if (worker->state == KVR_WORKER_DRAINING || worker->state == KVR_WORKER_DRAINED)
		rte_tel_data_add_dict_string(d, "drained_by",
					     worker->drained_by_agent ? "agent" : "operator");
	rte_tel_data_add_dict_string(d, "pool", rt->pool[worker->pool].name);
	rte_tel_data_add_dict_u64(d, "dp_start", worker->dp_start);
	rte_tel_data_add_dict_u64(d, "dp_size", worker->dp_size);
	rte_tel_data_add_dict_u64(d, "epoch", worker->epoch);
	rte_tel_data_add_dict_u64(d, "bookings", worker->bookings);
	rte_tel_data_add_dict_u64(d, "silent_ms", worker_silence(rt, worker) / 1000000);
	rte_tel_data_add_dict_u64(d, "state_ms", (now_ns(rt) - worker->since_ns) / 1000000);
	rte_tel_data_add_dict_u64(d, "total_kv_blocks", worker->total_kv_blocks);
	rte_tel_data_add_dict_string(d, "address",
				     kvr_path_text(&worker->path, text, sizeof(text)));
	/* By id, because arrays of dictionaries are not shown inside a dictionary. */
	snprintf(id, sizeof(id), "%" PRIu64, worker->id);
	if (rte_tel_data_add_dict_container(list, id, d, 0) != 0)
		rte_tel_data_free(d);
}

static int cmd_workers(void *arg, const char *params, struct rte_tel_data *d)
{
	struct router *rt = arg;
	struct rte_tel_data *list;
	struct kvr_telemetry_args a;
	uint64_t from = 0;
	uint32_t n;

	if (kvr_telemetry_args(&a, params) < 0 || a.n > 1 ||
	    (a.n == 1 && kvr_telemetry_arg_u64(&a, 0, 0, UINT32_MAX, &from) < 0))
		return kvr_telemetry_error(d, EINVAL,
					   "expected nothing or the number to start from");
	control_bookings(rt, (uint32_t)from, PAGE);
	n = kvr_registry_count(rt->registry);
	list = rte_tel_data_alloc();
	if (list == NULL)
		return kvr_telemetry_error(d, ENOMEM, "no memory");
	rte_tel_data_start_dict(list);
	for (uint64_t i = from; i < n && i < from + PAGE; i++)
		add_worker(rt, list, kvr_registry_at(rt->registry, (uint32_t)i));
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_u64(d, "total", n);
	rte_tel_data_add_dict_u64(d, "lost", control_lost_workers(rt));
	if (from + PAGE < n)
		rte_tel_data_add_dict_u64(d, "next", from + PAGE);
	rte_tel_data_add_dict_container(d, "workers", list, 0);
	return 0;
}

/* ---- pools ---- */

static struct rte_tel_data *prefix_dict(const struct pool *pool)
{
	struct rte_tel_data *d = rte_tel_data_alloc();
	uint64_t v[KVR_PREFIX_COUNTERS];
	struct kvr_prefix_stats s;

	if (d == NULL)
		return NULL;
	kvr_prefix_stats_get(pool->prefix, &s);
	for (unsigned int i = 0; i < KVR_PREFIX_COUNTERS; i++)
		v[i] = kvr_stats_get(&s.blocks, i);
	rte_tel_data_start_dict(d);
	kvr_stats_tel(&kvr_prefix_stats_def, v, d);
	return d;
}

static struct rte_tel_data *stats_dict(struct kvr_stats *s)
{
	struct rte_tel_data *d = rte_tel_data_alloc();
	uint64_t v[KVR_STATS_MAX];

	if (d == NULL)
		return NULL;
	kvr_stats_sum(s, v);
	rte_tel_data_start_dict(d);
	kvr_stats_tel(kvr_stats_def(s), v, d);
	return d;
}

/* Relative to max_jobs: further jobs lie in lcore caches. */
static uint32_t jobs_free(const struct pool *pool)
{
	const uint32_t used = rte_mempool_in_use_count(pool->jobs);

	return used < pool->opt->max_jobs ? pool->opt->max_jobs - used : 0;
}

static struct rte_tel_data *pool_dict(const struct pool *pool)
{
	struct rte_tel_data *d = rte_tel_data_alloc();

	if (d == NULL)
		return NULL;
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "name", pool->name);
	rte_tel_data_add_dict_u64(d, "id", pool->wire_id);
	rte_tel_data_add_dict_u64(d, "block_size", pool->block_size);
	rte_tel_data_add_dict_u64(d, "eagle", pool->eagle);
	rte_tel_data_add_dict_u64(d, "max_ranks", pool->max_ranks);
	rte_tel_data_add_dict_string(
		d, "batch_key",
		kvr_pool_conf_batch_key(kvr_sched_conf(pool->sched),
					pool->decode != NULL ? kvr_sched_conf(pool->decode->sched)
							     : NULL));
	rte_tel_data_add_dict_u64(d, "slots", kvr_flight_size(pool->requests));
	rte_tel_data_add_dict_u64(d, "slots_used", kvr_flight_count(pool->requests));
	rte_tel_data_add_dict_u64(d, "slots_lingering", kvr_flight_lingering(pool->requests));
	rte_tel_data_add_dict_u64(d, "jobs_free", jobs_free(pool));
	rte_tel_data_add_dict_u64(d, "frames_held",
				  atomic_load_explicit(&pool->live.held, memory_order_relaxed));
	rte_tel_data_add_dict_u64(d, "frames_held_max", pool->max_held);
	if (pool->prefill != NULL || pool->decode != NULL)
		rte_tel_data_add_dict_string(
			d, "peer", (pool->prefill != NULL ? pool->prefill : pool->decode)->name);
	if (pool->decode != NULL)
		rte_tel_data_add_dict_string(d, "prefill",
					     kvr_disagg_active(&pool->pair.disagg) ? "active"
										   : "inactive");
	if (pool->pairs != NULL)
		rte_tel_data_add_dict_u64(d, "legs", rte_mempool_in_use_count(pool->pairs));
	kvr_telemetry_dict_part(d, "requests", stats_dict(pool->stats));
	kvr_telemetry_dict_part(d, "events", stats_dict(pool->event_stats));
	kvr_telemetry_dict_part(d, "prefix", prefix_dict(pool));
	return d;
}

#define POOLS_PAGE 4u /* a pool takes up to 3 KiB of an answer of 16 KiB */

static int cmd_pools(void *arg, const char *params, struct rte_tel_data *d)
{
	struct router *rt = arg;
	struct kvr_telemetry_args a;
	struct rte_tel_data *list;
	uint64_t from = 0;

	if (kvr_telemetry_args(&a, params) < 0 || a.n > 1 ||
	    (a.n == 1 && kvr_telemetry_arg_u64(&a, 0, 0, UINT32_MAX, &from) < 0))
		return kvr_telemetry_error(d, EINVAL,
					   "expected nothing or the number to start from");
	list = rte_tel_data_alloc();
	if (list == NULL)
		return kvr_telemetry_error(d, ENOMEM, "no memory");
	rte_tel_data_start_dict(list);
	for (uint64_t i = from; i < rt->n_pools && i < from + POOLS_PAGE; i++)
		kvr_telemetry_dict_part(list, rt->pool[i].name, pool_dict(&rt->pool[i]));
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_u64(d, "total", rt->n_pools);
	if (from + POOLS_PAGE < rt->n_pools)
		rte_tel_data_add_dict_u64(d, "next", from + POOLS_PAGE);
	rte_tel_data_add_dict_container(d, "pools", list, 0);
	return 0;
}

/* ---- sessions ---- */

static struct rte_tel_data *sessions_dict(const struct pool *pool)
{
	const struct sessions *sessions = pool->sessions;
	struct rte_tel_data *d = rte_tel_data_alloc();

	if (d == NULL)
		return NULL;
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_u64(d, "limit", sessions->max);
	rte_tel_data_add_dict_u64(d, "affinity_ttl_s",
				  pool->live.rq.affinity_ns / UINT64_C(1000000000));
	kvr_telemetry_dict_part(d, "counters", stats_dict(sessions->stats));
	return d;
}

static int cmd_sessions(void *arg, const char *params, struct rte_tel_data *d)
{
	struct router *rt = arg;

	RTE_SET_USED(params);
	rte_tel_data_start_dict(d);
	for (uint32_t i = 0; i < rt->n_pools; i++)
		if (rt->pool[i].sessions != NULL)
			kvr_telemetry_dict_part(d, rt->pool[i].name, sessions_dict(&rt->pool[i]));
	return 0;
}

/* ---- drops and stages ---- */

/* Add the non-zero counters of a table that give reasons for requests not served. */
static void add_nonzero(struct rte_tel_data *d, const char *prefix, struct kvr_stats *s,
			unsigned int from, unsigned int to)
{
	const struct kvr_stats_def *def = kvr_stats_def(s);
	uint64_t v[KVR_STATS_MAX];

	kvr_stats_sum(s, v);
	for (unsigned int i = from; i < to; i++) {
		char name[RTE_TEL_MAX_STRING_LEN], key[RTE_TEL_MAX_STRING_LEN];

		if (v[i] == 0)
			continue;
		snprintf(name, sizeof(name), "%s_%s", prefix, def->counters[i].name);
		rte_tel_data_add_dict_u64(d, kvr_telemetry_key(key, sizeof(key), name), v[i]);
	}
}

static int cmd_drops(void *arg, const char *params, struct rte_tel_data *d)
{
	struct router *rt = arg;
	struct log_counts log;

	RTE_SET_USED(params);
	rte_tel_data_start_dict(d);
	for (uint32_t i = 0; i < rt->n_ports; i++) {
		struct kvr_stats *s = kvr_port_stats(rt->port[i]);
		struct kvr_stats *xdp = kvr_port_xdp_stats(rt->port[i]);
		char at_xdp[KVR_ROUTER_NAME + 8];

		add_nonzero(d, rt->conf.port[i].name, s, KVR_PORT_RX_VERDICT + KVR_PKT_OTHER_MAC,
			    KVR_PORT_RX_VERDICT + KVR_PKT_VERDICTS);
		add_nonzero(d, rt->conf.port[i].name, s, KVR_PORT_TX_DROPPED,
			    KVR_PORT_TX_REFUSED + 1);
		snprintf(at_xdp, sizeof(at_xdp), "%s_xdp", rt->conf.port[i].name);
		if (xdp != NULL)
			add_nonzero(d, at_xdp, xdp, kvr_port_xdp_drops,
				    (unsigned int)kvr_stats_count(&kvr_port_xdp_stats_def));
	}
	add_nonzero(d, "ingress", rt->in_stats, IN_SHORT_FRAME, IN_RING_FULL + 1);
	add_nonzero(d, "ingress", rt->in_stats, IN_REASM_DROPPED, IN_REASM_EVICTED + 1);
	add_nonzero(d, "ingress", rt->in_stats, IN_REJECTION_SUPPRESSED, IN_EGRESS_FULL + 1);
	add_nonzero(d, "ingress", rt->in_stats, IN_UNSENDABLE, IN_UNSENDABLE + 1);
	add_nonzero(d, "reject", rt->reject_stats, 1, KVR_E_MAX);
	log_counts(&log);
	if (log.buffer_full != 0)
		rte_tel_data_add_dict_u64(d, "log_buffer_full", log.buffer_full);
	if (log.rate_limited != 0)
		rte_tel_data_add_dict_u64(d, "log_rate_limited", log.rate_limited);
	return 0;
}

static int cmd_log(void *arg, const char *params, struct rte_tel_data *d)
{
	uint64_t v[LOG_COUNTERS];
	struct log_counts log;

	RTE_SET_USED(arg);
	RTE_SET_USED(params);
	log_counts(&log);
	rte_tel_data_start_dict(d);
	for (unsigned int i = 0; i < LOG_COUNTERS; i++)
		v[i] = kvr_stats_get(&log.lines, i);
	return kvr_stats_tel(&router_log_stats, v, d);
}

static struct rte_tel_data *stage_dict(const struct stage_work *w)
{
	struct rte_tel_data *d = rte_tel_data_alloc();
	uint64_t v[WC_COUNTERS];

	if (d == NULL)
		return NULL;
	for (unsigned int i = 0; i < WC_COUNTERS; i++)
		v[i] = kvr_stats_get(&w->items, i);
	rte_tel_data_start_dict(d);
	kvr_stats_tel(&router_stage_stats, v, d);
	rte_tel_data_add_dict_u64(d, "cycles_per_item",
				  v[WC_ITEMS] != 0 ? v[WC_CYCLES] / v[WC_ITEMS] : 0);
	rte_tel_data_add_dict_u64(d, "cycles_per_burst",
				  v[WC_BURSTS] != 0 ? v[WC_CYCLES] / v[WC_BURSTS] : 0);
	return d;
}

static struct rte_tel_data *lcore_dict(const struct lcore *lc, uint32_t cpu)
{
	struct rte_tel_data *d = rte_tel_data_alloc();

	if (d == NULL)
		return NULL;
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_u64(d, "cpu", cpu);
	rte_tel_data_add_dict_u64(d, "max_turn_cycles", kvr_cell_get(&lc->turns.max_turn_cycles));
	for (int i = 0; i < STAGES; i++)
		kvr_telemetry_dict_part(d, router_stage_names[i], stage_dict(&lc->work[i]));
	return d;
}

static int cmd_stages(void *arg, const char *params, struct rte_tel_data *d)
{
	struct router *rt = arg;
	char name[32];

	RTE_SET_USED(params);
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_u64(d, "tsc_hz", rt->tsc_hz);
	for (uint32_t i = 0; i < rt->n_lcores; i++) {
		snprintf(name, sizeof(name), "lcore%u", i);
		kvr_telemetry_dict_part(d, name, lcore_dict(rt->lcore[i], rt->conf.cpu[i]));
	}
	for (uint32_t i = 0; i < rt->n_pools; i++) {
		snprintf(name, sizeof(name), "ring_notes_%u", i);
		rte_tel_data_add_dict_u64(d, name, mailbox_count(&rt->pool[i]));
		snprintf(name, sizeof(name), "ring_events_%u", i);
		rte_tel_data_add_dict_u64(d, name, rte_ring_count(rt->pool[i].events));
	}
	rte_tel_data_add_dict_u64(d, "ring_control", rte_ring_count(rt->control_ring));
	return 0;
}

static int cmd_ingress(void *arg, const char *params, struct rte_tel_data *d)
{
	struct router *rt = arg;
	uint64_t v[KVR_STATS_MAX];

	RTE_SET_USED(params);
	kvr_stats_sum(rt->in_stats, v);
	rte_tel_data_start_dict(d);
	return kvr_stats_tel(&router_in_stats, v, d);
}

/* ---- balance ---- */

static int cmd_balance(void *arg, const char *params, struct rte_tel_data *d)
{
	struct router *rt = arg;
	struct balance b;

	RTE_SET_USED(params);
	if (balance_read(rt, &b) < 0)
		return kvr_telemetry_error(d, ENOMEM, "no memory");
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "balance", b.violation[0] == '\0' ? "ok" : "violated");
	rte_tel_data_add_dict_string(d, "violation", b.violation);
	rte_tel_data_add_dict_u64(d, "bookings", b.bookings);
	rte_tel_data_add_dict_u64(d, "waiting", b.waiting);
	rte_tel_data_add_dict_u64(d, "slots_used", b.slots);
	for (uint32_t i = 0; i < rt->n_ports; i++) {
		struct kvr_port_info info;
		char name[RTE_TEL_MAX_STRING_LEN];

		kvr_port_info(rt->port[i], &info);
		snprintf(name, sizeof(name), "mbufs_used_%s", rt->conf.port[i].name);
		rte_tel_data_add_dict_u64(d, name, info.mbufs - info.mbufs_free);
	}
	rte_tel_data_add_dict_u64(d, "lost", ports_losses(rt, d));
	return 0;
}

static const struct kvr_telemetry_cmd commands[] = {
	{"/kvroute/info", NULL, "version, uptime, sizes", cmd_info, false},
	{"/kvroute/workers", "[FROM]", "workers with state and bookings, 32 at a time", cmd_workers,
	 false},
	{"/kvroute/refused", NULL, "workers whose last HELLO was rejected, and the reason",
	 rejected_hellos, false},
	{"/kvroute/pools", "[FROM]", "requests, events and prefix table of every pool", cmd_pools,
	 false},
	{"/kvroute/sessions", NULL, "sticky sessions of every pool", cmd_sessions, false},
	{"/kvroute/drops", NULL, "requests not served, by reason, without zeros", cmd_drops, false},
	{"/kvroute/log", NULL,
	 "lines logged, dropped because the buffer was full, and suppressed by a rate limit",
	 cmd_log, false},
	{"/kvroute/stages", NULL,
	 "cycles per item and burst of every stage, longest turns, ring depths", cmd_stages, false},
	{"/kvroute/ingress", NULL, "datagrams by result", cmd_ingress, false},
	{"/kvroute/balance", NULL, "balance of the counters, and drops of devices and rings",
	 cmd_balance, false},
	{NULL, NULL, NULL, NULL, false},
};

/* ---- all of them ---- */

static const struct {
	int (*start)(struct router *rt);
	void (*stop)(void);
} parts[] = {
	{decisions_start, decisions_stop}, {sources_start, sources_stop},
	{ports_start, ports_stop},	   {tables_start, tables_stop},
	{acts_start, acts_stop},	   {ranks_start, ranks_stop},
	{latency_start, latency_stop},	   {explain_start, explain_stop},
	{settings_start, settings_stop},   {memory_start, memory_stop},
	{oldest_start, oldest_stop},	   {snapshot_tel_start, snapshot_tel_stop},
};

/* Log acting commands with parameters and result; queries are not logged. */
static void log_act(const char *path, const char *params, const char *error)
{
	if (params[0] != '\0')
		log_line(KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE, .reason = error),
			 "telemetry: %s,%.200s: %s", path, params,
			 error != NULL ? "refused" : "done");
}

static void stop_parts(uint32_t n)
{
	while (n-- > 0)
		parts[n].stop();
	kvr_telemetry_unregister(commands);
}

int telemetry_start(struct router *rt, char *err, size_t errlen)
{
	uint32_t n = 0;
	int rc = kvr_telemetry_register(commands, rt);

	if (rc == 0) {
		while (rc == 0 && n < RTE_DIM(parts))
			rc = parts[n++].start(rt);
		if (rc == 0)
			rc = captures_start(rt);
		if (rc < 0)
			stop_parts(n);
	}
	if (rc < 0)
		snprintf(err, errlen, "cannot register the /kvroute commands");
	else
		kvr_telemetry_on_act(log_act);
	return rc;
}

void telemetry_stop(struct router *rt)
{
	kvr_telemetry_on_act(NULL);
	captures_stop(rt);
	stop_parts(RTE_DIM(parts));
}
