/* SPDX-License-Identifier: BSD-3-Clause */
/* Telemetry: size and use of every limited resource. */
#include <string.h>

#include "lcore/mailbox.h"
#include "state/router.h"
#include "telemetry/commands.h"

static void add_resource(struct rte_tel_data *list, const char *what, const char *of, uint64_t size,
			 uint64_t used)
{
	struct rte_tel_data *t = rte_tel_data_alloc();
	char name[2 * KVR_ROUTER_NAME];

	if (t == NULL)
		return;
	rte_tel_data_start_dict(t);
	rte_tel_data_add_dict_u64(t, "size", size);
	rte_tel_data_add_dict_u64(t, "used", used);
	snprintf(name, sizeof(name), "%s%s%s", what, of != NULL ? "_" : "", of != NULL ? of : "");
	kvr_telemetry_dict_part(list, name, t);
}

/* Objects in lcore caches count as used. */
static void add_mempool(struct rte_tel_data *list, const char *what, const char *of,
			const struct rte_mempool *mp)
{
	if (mp != NULL)
		add_resource(list, what, of, mp->size, rte_mempool_in_use_count(mp));
}

static void add_ring(struct rte_tel_data *list, const char *what, const char *of,
		     const struct rte_ring *r)
{
	if (r != NULL)
		add_resource(list, what, of, rte_ring_get_capacity(r), rte_ring_count(r));
}

static void add_pool(const struct pool *pool, struct rte_tel_data *list)
{
	add_mempool(list, "jobs", pool->name, pool->jobs);
	add_mempool(list, "legs", pool->name, pool->pairs);
	add_resource(list, "slots", pool->name, kvr_flight_size(pool->requests),
		     kvr_flight_count(pool->requests));
	add_resource(list, "frames_held", pool->name, pool->max_held,
		     atomic_load_explicit(&pool->live.held, memory_order_relaxed));
	add_resource(list, "ring_notes", pool->name,
		     pool->mailbox != NULL ? rte_ring_get_capacity(pool->mailbox)
					   : pool->live.mailbox.mask,
		     mailbox_count(pool));
	add_ring(list, "ring_events", pool->name, pool->events);
}

static int cmd_buffers(void *arg, const char *params, struct rte_tel_data *d)
{
	const struct router *rt = arg;
	struct rte_tel_data *list = rte_tel_data_alloc();

	RTE_SET_USED(params);
	if (list == NULL)
		return kvr_telemetry_error(d, ENOMEM, "no memory");
	rte_tel_data_start_dict(list);
	for (uint32_t i = 0; i < rt->n_ports; i++) {
		struct kvr_port_info info;

		kvr_port_info(rt->port[i], &info);
		add_resource(list, "mbufs", rt->conf.port[i].name, info.mbufs,
			     info.mbufs - info.mbufs_free);
	}
	add_mempool(list, "small_buffers", NULL, rt->small_bufs);
	add_mempool(list, "large_hashes", NULL, rt->hash_bufs);
	add_mempool(list, "large_hints", NULL, rt->hint_bufs);
	add_mempool(list, "large_frames", NULL, rt->frame_lists);
	add_mempool(list, "control_mbufs", NULL, rt->ctl_mbufs);
	add_mempool(list, "control_frames", NULL, rt->ctl_bufs);
	add_ring(list, "ring_control", NULL, rt->control_ring);
	for (uint32_t i = 0; i < rt->n_pools; i++)
		add_pool(&rt->pool[i], list);
	rte_tel_data_start_dict(d);
	kvr_telemetry_dict_part(d, "buffers", list);
	return 0;
}

static const struct kvr_telemetry_cmd commands[] = {
	{"/kvroute/buffers", NULL, "size and use of all buffers, slots and rings", cmd_buffers,
	 false},
	{NULL, NULL, NULL, NULL, false},
};

int memory_start(struct router *rt)
{
	return kvr_telemetry_register(commands, rt);
}

void memory_stop(void)
{
	kvr_telemetry_unregister(commands);
}
