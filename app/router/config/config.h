/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_CONFIG_H
#define ROUTER_CONFIG_H

/**
 * @file
 * The router's configuration: one INI file, checked whole before anything starts.
 *
 *   [router]       lcore map, memory, liveness, reassembly bounds
 *   [port NAME]    one Ethernet port (lib/port)
 *   [pool NAME]    one pool: identity and sizes here, routing options of lib/sched
 *   [class POOL NAME]  a policy class of a pool's queue
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <rte_common.h>

#include "config/sizes.h"
#include "kvr_port.h"
#include "kvr_sched.h"

#define KVR_ROUTER_MAX_PORTS  8u
#define KVR_ROUTER_MAX_POOLS  16u
#define KVR_ROUTER_MAX_LCORES 32u
#define KVR_ROUTER_NAME	      64u
#define KVR_ROUTER_NO_POOL    UINT32_MAX

enum kvr_hugepages { KVR_HUGEPAGES_AUTO, KVR_HUGEPAGES_ON, KVR_HUGEPAGES_OFF };

/** Section [router]. */
struct kvr_router_options {
	char ingress[256];     /* polling lcores: config/lcores.h */
	char control_cpus[64]; /* CPUs the control thread may float over; "" = all */
	char file_prefix[32];
	char eal[256]; /* more EAL arguments, separated by blanks */
	uint32_t memory_mb;
	int hugepages; /* enum kvr_hugepages */
	int idle;      /* enum idle_mode */
	int log_to;    /* enum kvr_log_sink */
	uint32_t max_workers;
	uint32_t heartbeat_ms;
	uint32_t suspect_ms;
	uint32_t dead_ms;
	uint32_t reassembly_frames;
	uint32_t reassembly_source_frames;
	uint32_t waiting_frames;
	uint32_t reassembly_ms;
	uint32_t ring_size;
	uint32_t overload_ms;
	uint32_t client_timeout_ms;
	uint32_t large_buffers;
	uint32_t stop_ms;
	uint32_t source_share; /* 0: none */
	char state_dir[256];   /* "" = $STATE_DIRECTORY, or none */
	uint32_t snapshot_s;   /* 0: on command, and at the end */
};

/** Keys of [pool NAME] beside those of struct kvr_pool_conf. */
struct kvr_router_pool_options {
	uint32_t id;
	uint32_t max_jobs;
	uint64_t max_blocks;
	uint64_t max_runs;
	uint32_t decision_sample;
	uint32_t decision_ring;
	bool eagle;
	char event[16];	    /* polling lcore; "" = the first */
	char scheduler[16]; /* the same */
};

struct kvr_router_port_conf {
	char name[KVR_ROUTER_NAME];
	struct kvr_port_conf port;
};

struct kvr_router_pool_conf {
	char name[KVR_ROUTER_NAME];
	struct kvr_router_pool_options own;
	struct kvr_pool_conf sched;
	uint32_t event_lcore; /* resolved: index into kvr_router_conf::cpu[] */
	uint32_t sched_lcore;
	uint32_t peer; /* the other pool of a prefill and decode pair, else KVR_ROUTER_NO_POOL */
};

struct kvr_router_conf {
	char path[512]; /* of the file, for messages at start */
	struct kvr_router_options opt;
	uint32_t n_ports;
	uint32_t n_pools;
	struct kvr_router_port_conf port[KVR_ROUTER_MAX_PORTS];
	struct kvr_router_pool_conf pool[KVR_ROUTER_MAX_POOLS];
	/* resolved lcore map: polling lcore i runs on CPU cpu[i]; the first n_ingress own queues */
	uint32_t n_lcores;
	uint32_t n_ingress;
	uint32_t cpu[KVR_ROUTER_MAX_LCORES];
	struct sizes sizes; /* of the packet buffers, derived from all this */
};

/**
 * Read and check @p path. On failure @p err holds one line that names file, line, key and what is
 * allowed. @return 0 or -errno.
 */
int kvr_router_conf_load(struct kvr_router_conf *c, const char *path, char *err, size_t errlen);

/**
 * Derive c->sizes: part of loading. @return 0, or -EINVAL with one line in @p err that names the
 * keys that contradict each other.
 */
int kvr_router_conf_sizes(struct kvr_router_conf *c, char *err, size_t errlen);

/** Workers that may be alive at once: [router] max_workers, or when it is 0 those of all pools. */
uint32_t kvr_router_conf_workers(const struct kvr_router_conf *c);

/** Free jobs that an lcore may keep to itself before it gives half as many again back. */
#define KVR_ROUTER_JOB_CACHE(max_jobs) RTE_MIN((max_jobs) / 4, 64u)

/**
 * Jobs that a pool has memory for: max_jobs, and those that lie free where only another lcore
 * finds them. A job is taken by an ingress lcore and freed by the scheduler's.
 */
static inline uint32_t kvr_router_jobs(const struct kvr_router_conf *c, uint32_t max_jobs)
{
	return max_jobs + (c->n_lcores - 1) * (KVR_ROUTER_JOB_CACHE(max_jobs) * 3 / 2);
}

/** Bytes of one packet buffer of a port. */
uint32_t kvr_router_buffer_bytes(const struct kvr_port_conf *p);

/** What a router takes when it has started, in bytes: it takes no more later. */
struct kvr_router_memory {
	/* of memory_mb */
	uint64_t buffers;  /* of packets */
	uint64_t rings;	   /* between stages */
	uint64_t requests; /* max_jobs, max_requests of all pools */
	uint64_t ranks;	   /* load model, queues, reports of ranks */
	uint64_t sessions; /* what requests have to do with them */
	uint64_t large;	   /* large_buffers */
	uint64_t other;	   /* control, contexts of lcores, drivers */
	uint64_t heap;	   /* the sum of these */
	/* of memory_mb when there are huge pages and room, else beside it */
	uint64_t tables; /* of blocks */
	/* beside it */
	uint64_t apart; /* sessions, shares of sources, reassembly */
};

/**
 * Derive it from the sizes of everything; c->sizes are derived already. @p huge: with huge pages.
 * Without them a packet buffer takes a page of 4 KiB. Any thread, no EAL.
 * tests/eal/test_memory.c holds it against what is really taken: 1 % and 4 MiB.
 * @return 0; -ENOMEM.
 */
int kvr_router_conf_memory(const struct kvr_router_conf *c, bool huge,
			   struct kvr_router_memory *out);

/** The row of a key of [router], or of [pool NAME] (of struct kvr_router_pool_conf); NULL: none. */
const struct kvr_opt *kvr_router_opt(const char *key);
const struct kvr_opt *kvr_router_pool_opt(const char *key);

/** Whether the times of liveness agree. @return 0, or -EINVAL with one line in @p err. */
int kvr_router_conf_times(const struct kvr_router_options *o, char *err, size_t errlen);

/** Print every option with its value, unit and help, as a file that could be loaded again. */
void kvr_router_conf_dump(const struct kvr_router_conf *c, FILE *out);

#endif
