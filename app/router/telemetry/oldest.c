/* SPDX-License-Identifier: BSD-3-Clause */
/* Telemetry: the oldest requests in flight. */
#include "telemetry/oldest.h"

#include <errno.h>

#include "control/thread.h"
#include "state/router.h"
#include "telemetry/commands.h"

static const char *const states[KVR_RQ_STATES_N] = {
	[KVR_RQS_FREE] = "free",	 [KVR_RQS_UNDECIDED] = "deciding",
	[KVR_RQS_DECIDING] = "deciding", [KVR_RQS_QUEUED] = "queued",
	[KVR_RQS_HELD] = "held",	 [KVR_RQS_SENT] = "sent",
	[KVR_RQS_RUNNING] = "running",	 [KVR_RQS_ENDED] = "ended",
};

static void add_one(struct rte_tel_data *list, const struct oldest *o, const struct oldest_one *v)
{
	struct rte_tel_data *t = rte_tel_data_alloc();
	char key[2 * TEL_ID_TEXT];

	if (t == NULL)
		return;
	rte_tel_data_start_dict(t);
	rte_tel_data_add_dict_u64(t, "age_ms", since_ns(o->now_ns, v->arrival_ns) / 1000000);
	rte_tel_data_add_dict_string(t, "state", states[v->state]);
	rte_tel_data_add_dict_string(t, "leg", kvr_leg_name(v->leg));
	if (v->has_worker) {
		rte_tel_data_add_dict_u64(t, "worker", v->worker);
		rte_tel_data_add_dict_u64(t, "dp_rank", v->dp_rank);
	}
	rte_tel_data_add_dict_u64(t, "booked", v->booked);
	rte_tel_data_add_dict_u64(t, "tokens", v->tokens);
	snprintf(key, sizeof(key), "0x%016" PRIx64 "/0x%016" PRIx64, v->id, v->source);
	kvr_telemetry_dict_part(list, key, t);
}

static int cmd_oldest(void *arg, const char *params, struct rte_tel_data *d)
{
	static struct oldest o; /* handlers run one at a time */
	struct router *rt = arg;
	struct call c = {.fn = oldest_walk, .arg = &o};
	struct rte_tel_data *list;
	struct kvr_telemetry_args a;
	uint64_t worker = 0;
	const struct pool *pool;

	if (kvr_telemetry_args(&a, params) < 0 || a.n < 1 || a.n > 2 ||
	    (a.n == 2 && kvr_telemetry_arg_u64(&a, 1, 0, UINT64_MAX, &worker) < 0))
		return kvr_telemetry_error(d, EINVAL, "expected a pool and optionally a worker");
	pool = tel_pool(rt, &a, d);
	if (pool == NULL)
		return 0;
	list = rte_tel_data_alloc();
	if (list == NULL)
		return kvr_telemetry_error(d, ENOMEM, "no memory");
	o = (struct oldest){.p = pool, .worker = worker, .of_worker = a.n == 2};
	call_start(rt, pool->sched_lcore, &c);
	call_wait(rt, &c);
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "pool", pool->name);
	rte_tel_data_add_dict_u64(d, "live", o.live);
	rte_tel_data_start_dict(list);
	for (uint32_t i = 0; i < o.n; i++)
		add_one(list, &o, &o.v[i]);
	kvr_telemetry_dict_part(d, "requests", list);
	return 0;
}

static const struct kvr_telemetry_cmd commands[] = {
	{"/kvroute/oldest", "POOL[,WORKER]",
	 "the oldest requests in flight, of a pool or at one of its workers", cmd_oldest, false},
	{NULL, NULL, NULL, NULL, false},
};

int oldest_start(struct router *rt)
{
	return kvr_telemetry_register(commands, rt);
}

void oldest_stop(void)
{
	kvr_telemetry_unregister(commands);
}
