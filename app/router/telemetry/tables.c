/* SPDX-License-Identifier: BSD-3-Clause */
/* Telemetry: all counter tables, as JSON and as metrics. */
#include "telemetry/tables.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_telemetry.h>
#include <rte_version.h>

#include "control/log.h"
#include "kvr_telemetry.h"
#include "sched/session.h"
#include "state/router.h"
#include "telemetry/latency.h"
#include "telemetry/metrics.h"

#ifndef KVROUTE_VERSION
#define KVROUTE_VERSION "unknown"
#endif

/* ---- numbers and names of instances ---- */

static uint32_t count_one(const struct router *rt)
{
	RTE_SET_USED(rt);
	return 1;
}

static uint32_t count_ports(const struct router *rt)
{
	return rt->n_ports;
}

static uint32_t count_pools(const struct router *rt)
{
	return rt->n_pools;
}

static uint32_t count_lcores(const struct router *rt)
{
	return rt->n_lcores;
}

static uint32_t count_stages(const struct router *rt)
{
	return rt->n_lcores * STAGES;
}

static void port_name(const struct router *rt, uint32_t i, char *buf, size_t len)
{
	snprintf(buf, len, "%s", rt->conf.port[i].name);
}

static void pool_name(const struct router *rt, uint32_t i, char *buf, size_t len)
{
	snprintf(buf, len, "%s", rt->pool[i].name);
}

static void lcore_name(const struct router *rt, uint32_t i, char *buf, size_t len)
{
	RTE_SET_USED(rt);
	snprintf(buf, len, "lcore%u", i);
}

static void stage_name(const struct router *rt, uint32_t i, char *buf, size_t len)
{
	RTE_SET_USED(rt);
	snprintf(buf, len, "lcore%u/%s", i / STAGES, router_stage_names[i % STAGES]);
}

/* ---- their values ---- */

static void row_values(const kvr_cell_t *row, unsigned int n, uint64_t v[])
{
	for (unsigned int i = 0; i < n; i++)
		v[i] = kvr_stats_get(row, i);
}

static bool get_ingress(struct router *rt, uint32_t i, uint64_t v[])
{
	RTE_SET_USED(i);
	kvr_stats_sum(rt->in_stats, v);
	return true;
}

static bool get_reject(struct router *rt, uint32_t i, uint64_t v[])
{
	RTE_SET_USED(i);
	kvr_stats_sum(rt->reject_stats, v);
	return true;
}

static bool get_log(struct router *rt, uint32_t i, uint64_t v[])
{
	struct log_counts c;

	RTE_SET_USED(rt);
	RTE_SET_USED(i);
	log_counts(&c);
	row_values(&c.lines, LOG_COUNTERS, v);
	return true;
}

static bool get_port(struct router *rt, uint32_t i, uint64_t v[])
{
	kvr_stats_sum(kvr_port_stats(rt->port[i]), v);
	return true;
}

static bool get_xdp(struct router *rt, uint32_t i, uint64_t v[])
{
	struct kvr_stats *s = kvr_port_xdp_stats(rt->port[i]);

	if (s != NULL)
		kvr_stats_sum(s, v);
	return s != NULL;
}

static bool get_lcore(struct router *rt, uint32_t i, uint64_t v[])
{
	row_values(&rt->lcore[i]->turns.max_turn_cycles, LC_COUNTERS, v);
	return true;
}

static bool get_stage(struct router *rt, uint32_t i, uint64_t v[])
{
	row_values(&rt->lcore[i / STAGES]->work[i % STAGES].items, WC_COUNTERS, v);
	return true;
}

static bool get_reasm(struct router *rt, uint32_t i, uint64_t v[])
{
	if (rt->lcore[i]->reasm == NULL)
		return false;
	row_values(&kvr_reasm_stats(rt->lcore[i]->reasm)->fragments, KVR_REASM_COUNTERS, v);
	return true;
}

static bool get_pool(struct router *rt, uint32_t i, uint64_t v[])
{
	kvr_stats_sum(rt->pool[i].stats, v);
	return true;
}

static bool get_request(struct router *rt, uint32_t i, uint64_t v[])
{
	kvr_stats_sum(rt->pool[i].rq_stats, v);
	return true;
}

static bool get_session(struct router *rt, uint32_t i, uint64_t v[])
{
	if (rt->pool[i].sessions == NULL)
		return false;
	kvr_stats_sum(rt->pool[i].sessions->stats, v);
	return true;
}

static bool get_sched(struct router *rt, uint32_t i, uint64_t v[])
{
	row_values(&kvr_sched_counters(rt->pool[i].sched)->routed_calls, KVR_SCHED_COUNTERS, v);
	return true;
}

static bool get_active(struct router *rt, uint32_t i, uint64_t v[])
{
	struct kvr_active_stats s;

	kvr_active_stats_get(kvr_sched_active(rt->pool[i].sched), &s);
	row_values(&s.runs, KVR_ACTIVE_COUNTERS, v);
	return true;
}

static bool get_flight(struct router *rt, uint32_t i, uint64_t v[])
{
	struct kvr_flight_stats s;

	kvr_flight_stats_get(rt->pool[i].requests, &s);
	row_values(&s.taken, KVR_FLIGHT_COUNTERS, v);
	return true;
}

static bool get_event(struct router *rt, uint32_t i, uint64_t v[])
{
	kvr_stats_sum(rt->pool[i].event_stats, v);
	return true;
}

static bool get_prefix(struct router *rt, uint32_t i, uint64_t v[])
{
	struct kvr_prefix_stats s;

	kvr_prefix_stats_get(rt->pool[i].prefix, &s);
	row_values(&s.blocks, KVR_PREFIX_COUNTERS, v);
	return true;
}

/* ---- all of them ---- */

static struct table tables[] = {
	{&router_in_stats, count_one, get_ingress, metrics_ingress, NULL, NULL},
	{NULL, count_one, get_reject, NULL, NULL, NULL}, /* completed by table_at() */
	{&router_log_stats, count_one, get_log, metrics_log, NULL, NULL},
	{&kvr_port_stats_def, count_ports, get_port, metrics_port, "port", port_name},
	{&kvr_port_xdp_stats_def, count_ports, get_xdp, metrics_xdp, "port", port_name},
	{&router_lcore_stats, count_lcores, get_lcore, metrics_lcore, "lcore", lcore_name},
	{&router_stage_stats, count_stages, get_stage, metrics_stage, "lcore/stage", stage_name},
	{&kvr_reasm_stats_def, count_lcores, get_reasm, metrics_reasm, "lcore", lcore_name},
	{&router_pool_stats, count_pools, get_pool, metrics_pool, "pool", pool_name},
	{&kvr_request_stats, count_pools, get_request, metrics_request, "pool", pool_name},
	{&router_session_stats, count_pools, get_session, metrics_session, "pool", pool_name},
	{&kvr_sched_stats_def, count_pools, get_sched, metrics_sched, "pool", pool_name},
	{&kvr_active_stats_def, count_pools, get_active, metrics_active, "pool", pool_name},
	{&kvr_flight_stats_def, count_pools, get_flight, metrics_flight, "pool", pool_name},
	{&router_event_stats, count_pools, get_event, metrics_event, "pool", pool_name},
	{&kvr_prefix_stats_def, count_pools, get_prefix, metrics_prefix, "pool", pool_name},
};

const struct table *table_at(uint32_t i)
{
	if (i >= RTE_DIM(tables))
		return NULL;
	if (tables[i].def == NULL) {
		tables[i].def = router_reject_stats();
		tables[i].families = metrics_reject();
	}
	return &tables[i];
}

/* ---- metrics ---- */

/* Append label="value" for @p n characters of @p value, with \, " and line ends escaped. */
static size_t add_label(char *buf, size_t at, size_t len, const char *label, size_t label_len,
			const char *value, size_t n)
{
	at += (size_t)snprintf(buf + at, len - at, "%s%.*s=\"", at != 0 ? "," : "", (int)label_len,
			       label);
	for (size_t i = 0; i < n && at + 4 < len; i++) {
		if (value[i] == '\\' || value[i] == '"' || value[i] == '\n')
			buf[at++] = '\\';
		buf[at++] = value[i] == '\n' ? 'n' : value[i];
	}
	return at + (size_t)snprintf(buf + at, len - at, "\"");
}

/* One label; or two when the label and the name have two parts with a slash between them. */
static void label_text(const struct table *t, const struct router *rt, uint32_t i, char *buf,
		       size_t len)
{
	const char *slash = strchr(t->label, '/');
	char name[TABLE_LABELS / 4];
	size_t at, n;

	t->name(rt, i, name, sizeof(name));
	if (slash == NULL) {
		add_label(buf, 0, len, t->label, strlen(t->label), name, strlen(name));
		return;
	}
	n = strcspn(name, "/");
	at = add_label(buf, 0, len, t->label, (size_t)(slash - t->label), name, n);
	add_label(buf, at, len, slash + 1, strlen(slash + 1), name + n + 1, strlen(name + n + 1));
}

struct instance {
	uint64_t v[KVR_STATS_MAX];
	char label[TABLE_LABELS];
};

static int write_table(struct router *rt, const struct table *t, FILE *out)
{
	const uint32_t n = t->count(rt);
	struct instance *all = calloc(n, sizeof(*all));
	const uint64_t **v = calloc(n, sizeof(*v));
	const char **label = calloc(n, sizeof(*label));
	uint32_t used = 0;

	if (all != NULL && v != NULL && label != NULL) {
		for (uint32_t i = 0; i < n; i++) {
			if (!t->get(rt, i, all[used].v))
				continue;
			if (t->label != NULL) {
				label_text(t, rt, i, all[used].label, TABLE_LABELS);
				label[used] = all[used].label;
			}
			v[used] = all[used].v;
			used++;
		}
		kvr_metrics_write(t->def, t->families, v, label, used, out);
	}
	free(all);
	free(v);
	free(label);
	return all != NULL && v != NULL && label != NULL ? 0 : -ENOMEM;
}

int tables_write_metrics(struct router *rt, FILE *out)
{
	char build[128];
	const struct table *t;

	snprintf(build, sizeof(build), "version=\"%s\",dpdk=\"%s\"", KVROUTE_VERSION,
		 rte_version());
	kvr_metrics_build(build, out);
	kvr_metrics_process(out);
	for (uint32_t i = 0; (t = table_at(i)) != NULL; i++)
		if (write_table(rt, t, out) < 0)
			return -ENOMEM;
	if (latency_write_metrics(rt, out) < 0)
		return -ENOMEM;
	fprintf(out, "# EOF\n");
	return ferror(out) ? -ENOMEM : 0;
}

/* ---- the commands ---- */

static int list_tables(struct router *rt, struct rte_tel_data *d)
{
	const struct table *t;

	rte_tel_data_start_dict(d);
	for (uint32_t i = 0; (t = table_at(i)) != NULL; i++) {
		struct rte_tel_data *names = rte_tel_data_alloc();
		uint64_t v[KVR_STATS_MAX];

		if (names == NULL)
			return kvr_telemetry_error(d, ENOMEM, "no memory");
		rte_tel_data_start_array(names, RTE_TEL_STRING_VAL);
		for (uint32_t k = 0; k < t->count(rt); k++) {
			char name[TABLE_LABELS] = "";

			if (!t->get(rt, k, v))
				continue;
			if (t->name != NULL)
				t->name(rt, k, name, sizeof(name));
			rte_tel_data_add_array_string(names, name);
		}
		kvr_telemetry_dict_part(d, t->def->lib, names);
	}
	return 0;
}

static const struct table *find_table(const char *name)
{
	const struct table *t;

	for (uint32_t i = 0; (t = table_at(i)) != NULL; i++)
		if (strcmp(t->def->lib, name) == 0)
			return t;
	return NULL;
}

static int cmd_counters(void *arg, const char *params, struct rte_tel_data *d)
{
	struct router *rt = arg;
	const struct table *t;
	uint64_t v[KVR_STATS_MAX];
	struct kvr_telemetry_args a;

	if (kvr_telemetry_args(&a, params) < 0 || a.n > 2)
		return kvr_telemetry_error(d, EINVAL,
					   "expected nothing, or a table and one of its names");
	if (a.n == 0)
		return list_tables(rt, d);
	t = find_table(a.v[0]);
	if (t == NULL)
		return kvr_telemetry_error(d, ENOENT, "no table %s", a.v[0]);
	if ((a.n == 2) != (t->name != NULL))
		return kvr_telemetry_error(d, EINVAL, "table %s has %s", t->def->lib,
					   t->name != NULL ? "several: expected TABLE,NAME"
							   : "no names");
	for (uint32_t i = 0; i < t->count(rt); i++) {
		char name[TABLE_LABELS] = "";

		if (t->name != NULL)
			t->name(rt, i, name, sizeof(name));
		if ((a.n == 2 && strcmp(name, a.v[1]) != 0) || !t->get(rt, i, v))
			continue;
		rte_tel_data_start_dict(d);
		return kvr_stats_tel(t->def, v, d);
	}
	return kvr_telemetry_error(d, ENOENT, "no %s %s in table %s", t->label, a.v[1],
				   t->def->lib);
}

/* Lines of @p text from number @p from on, as many as one answer holds. Their number is constant,
 * so a reader continues with the number of lines that it has. */
static void some_lines(const char *text, uint64_t from, char *buf, size_t len)
{
	size_t n = 0, line;

	for (; from > 0 && text != NULL; from--) {
		text = strchr(text, '\n');
		text = text != NULL ? text + 1 : NULL;
	}
	for (; text != NULL && *text != '\0'; text += line, n += line) {
		line = strcspn(text, "\n") + 1;
		if (n + line >= len)
			break;
		memcpy(buf + n, text, line);
	}
	buf[n] = '\0';
}

static int cmd_metrics(void *arg, const char *params, struct rte_tel_data *d)
{
	char page[RTE_TEL_MAX_SINGLE_STRING_LEN];
	struct kvr_telemetry_args a;
	uint64_t from = 0;
	char *text = NULL;
	size_t len;
	FILE *out;
	int rc;

	if (kvr_telemetry_args(&a, params) < 0 || a.n > 1 ||
	    (a.n == 1 && kvr_telemetry_arg_u64(&a, 0, 0, UINT32_MAX, &from) < 0))
		return kvr_telemetry_error(d, EINVAL, "expected nothing or the line to start from");
	out = open_memstream(&text, &len);
	rc = out != NULL ? tables_write_metrics(arg, out) : -ENOMEM;
	if (out != NULL && fclose(out) != 0)
		rc = -ENOMEM;
	if (rc == 0) {
		some_lines(text, from, page, sizeof(page));
		rte_tel_data_string(d, page);
	}
	free(text);
	return rc == 0 ? 0 : kvr_telemetry_error(d, ENOMEM, "no memory");
}

static const struct kvr_telemetry_cmd commands[] = {
	{"/kvroute/counters", "[TABLE[,NAME]]", "every counter: list of tables, or one of them",
	 cmd_counters, false},
	{"/kvroute/metrics", "[FROM]",
	 "metrics as Prometheus text: lines from number FROM on, to '# EOF'", cmd_metrics, false},
	{NULL, NULL, NULL, NULL, false},
};

int tables_start(struct router *rt)
{
	return kvr_telemetry_register(commands, rt);
}

void tables_stop(void)
{
	kvr_telemetry_unregister(commands);
}
