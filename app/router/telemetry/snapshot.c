/* SPDX-License-Identifier: BSD-3-Clause */
/* Telemetry: the snapshot for restarts with a warm cache. */
#include <errno.h>
#include <string.h>

#include "control/snapshot.h"
#include "state/router.h"
#include "telemetry/commands.h"

static void add_last(struct rte_tel_data *d, const struct router *rt, const struct snapshot_stat *s)
{
	rte_tel_data_add_dict_u64(d, "written", s->written);
	rte_tel_data_add_dict_u64(d, "failed", s->failed);
	rte_tel_data_add_dict_u64(d, "workers_restored", s->restored);
	rte_tel_data_add_dict_u64(d, "workers_others", s->others);
	if (s->at_ns == 0)
		return;
	rte_tel_data_add_dict_string(d, "last", s->rc == 0 ? "ok" : strerror(-s->rc));
	rte_tel_data_add_dict_u64(d, "age_ms", since_ns(now_ns(rt), s->at_ns) / 1000000);
	rte_tel_data_add_dict_u64(d, "took_us", s->took_ns / 1000);
	rte_tel_data_add_dict_u64(d, "bytes", s->bytes);
	rte_tel_data_add_dict_u64(d, "blocks", s->blocks);
	rte_tel_data_add_dict_u64(d, "runs", s->runs);
	rte_tel_data_add_dict_u64(d, "workers", s->workers);
	rte_tel_data_add_dict_u64(d, "sessions", s->sessions);
	rte_tel_data_add_dict_u64(d, "live", s->live);
}

static int cmd_snapshot(void *arg, const char *params, struct rte_tel_data *d)
{
	struct router *rt = arg;
	struct kvr_telemetry_args a;
	int rc;

	if (kvr_telemetry_args(&a, params) < 0 || a.n > 1 ||
	    (a.n == 1 && strcmp(a.v[0], "now") != 0))
		return kvr_telemetry_error(d, EINVAL, "expected nothing, or now");
	if (rt->snapshot == NULL)
		return kvr_telemetry_error(d, ENOENT, "[router] state_dir is not set");
	rc = a.n == 1 ? snapshot_ask(rt) : 0;
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "path", rt->snapshot->path);
	rte_tel_data_add_dict_u64(d, "under_way",
				  atomic_load_explicit(&rt->snapshot->busy, memory_order_relaxed));
	if (a.n == 1)
		rte_tel_data_add_dict_u64(d, "begun", rc == 0);
	add_last(d, rt, &rt->snapshot->stat);
	return 0;
}

static const struct kvr_telemetry_cmd commands[] = {
	{"/kvroute/snapshot", "[now]", "state of the last snapshot; now: make one", cmd_snapshot,
	 true},
	{NULL, NULL, NULL, NULL, false},
};

int snapshot_tel_start(struct router *rt)
{
	return kvr_telemetry_register(commands, rt);
}

void snapshot_tel_stop(void)
{
	kvr_telemetry_unregister(commands);
}
