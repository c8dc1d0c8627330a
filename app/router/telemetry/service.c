/* SPDX-License-Identifier: BSD-3-Clause */
/* Telemetry commands that take workers and prefill pools out of service and back. */
#include <errno.h>

#include "control/control.h"
#include "state/router.h"
#include "telemetry/commands.h"

/* ---- workers ---- */

static int set_drain(struct router *rt, const char *params, bool on, struct rte_tel_data *d)
{
	struct kvr_telemetry_args a;
	uint64_t id, seconds = 0;
	const struct kvr_worker *worker;
	int rc;

	if (kvr_telemetry_args(&a, params) < 0 || a.n < 1 || a.n > (on ? 2u : 1u) ||
	    kvr_telemetry_arg_u64(&a, 0, 0, UINT64_MAX, &id) < 0 ||
	    (a.n == 2 && kvr_telemetry_arg_u64(&a, 1, 1, 86400, &seconds) < 0))
		return kvr_telemetry_error(d, EINVAL,
					   on ? "expected a worker id, and seconds (1 to 86400)"
					      : "expected a worker id");
	rc = control_drain(rt, id, on);
	if (a.n == 2 && (rc == 0 || rc == -EALREADY))
		rc = control_drain_bound(rt, id, (uint32_t)seconds);
	if (rc == -ENOENT)
		return kvr_telemetry_error(d, ENOENT, "no worker %" PRIu64, id);
	if (rc == -EPERM)
		return kvr_telemetry_error(d, EPERM,
					   "not allowed in the current state of the worker");
	worker = kvr_registry_find(rt->registry, id);
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_u64(d, "id", id);
	rte_tel_data_add_dict_string(d, "state", kvr_worker_state_name(worker->state));
	if (seconds != 0)
		rte_tel_data_add_dict_u64(d, "cut_off_s", seconds);
	return 0;
}

static int cmd_drain(void *arg, const char *params, struct rte_tel_data *d)
{
	return set_drain(arg, params, true, d);
}

static int cmd_resume(void *arg, const char *params, struct rte_tel_data *d)
{
	return set_drain(arg, params, false, d);
}

/* ---- prefill pools ---- */

static int set_pool_active(struct router *rt, const char *params, bool off, struct rte_tel_data *d)
{
	struct kvr_telemetry_args a;
	int rc;

	if (kvr_telemetry_args(&a, params) < 0 || a.n != 1)
		return kvr_telemetry_error(d, EINVAL, "expected the name of a prefill pool");
	rc = control_deactivate(rt, a.v[0], off);
	if (rc == -ENOENT)
		return kvr_telemetry_error(d, ENOENT, "no pool %s", a.v[0]);
	if (rc < 0)
		return kvr_telemetry_error(d, EINVAL, "%s is not the prefill pool of a pair",
					   a.v[0]);
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "pool", a.v[0]);
	rte_tel_data_add_dict_string(d, "prefill", rc != 0 ? "active" : "inactive");
	return 0;
}

static int cmd_deactivate(void *arg, const char *params, struct rte_tel_data *d)
{
	return set_pool_active(arg, params, true, d);
}

static int cmd_reactivate(void *arg, const char *params, struct rte_tel_data *d)
{
	return set_pool_active(arg, params, false, d);
}

static const struct kvr_telemetry_cmd commands[] = {
	{"/kvroute/drain", "ID[,SECONDS]",
	 "no new requests for worker ID; requests left after SECONDS are ended", cmd_drain, true},
	{"/kvroute/resume", "ID", "return worker ID to service", cmd_resume, true},
	{"/kvroute/deactivate", "POOL", "no new requests for prefill pool POOL", cmd_deactivate,
	 true},
	{"/kvroute/reactivate", "POOL", "use prefill pool POOL again, if it has workers",
	 cmd_reactivate, true},
	{NULL, NULL, NULL, NULL, false},
};

int acts_start(struct router *rt)
{
	return kvr_telemetry_register(commands, rt);
}

void acts_stop(void)
{
	kvr_telemetry_unregister(commands);
}
