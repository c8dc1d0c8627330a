/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROUTER_CONF_H
#define ROUTER_CONF_H

/**
 * @file
 * The router's configuration as data: what config/ reads from the file and derives from it. Written
 * by config/ before the start, and by the control thread where an option may change at run time.
 */

#include <stdbool.h>
#include <stdint.h>

#include <rte_common.h>

#include "kvr_port.h"
#include "kvr_sched.h"
#include "state/idle.h"
#include "state/sizes.h"

#define KVR_ROUTER_MAX_PORTS  8u
#define KVR_ROUTER_MAX_POOLS  16u
#define KVR_ROUTER_MAX_LCORES 32u
#define KVR_ROUTER_NAME	      64u
#define KVR_ROUTER_NO_POOL    UINT32_MAX

enum kvr_hugepages { KVR_HUGEPAGES_AUTO, KVR_HUGEPAGES_ON, KVR_HUGEPAGES_OFF };

/** Section [router]; config/config.c has the meaning of each key. */
struct kvr_router_options {
	char ingress[256];     /* polling lcores: config/lcores.h */
	char control_cpus[64]; /* CPUs of the control thread; "" = all */
	char file_prefix[32];
	char eal[256]; /* further EAL arguments, separated by blanks */
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
	uint32_t source_share; /* 0: no quota */
	char state_dir[256];   /* "" = $STATE_DIRECTORY, or none */
	uint32_t snapshot_s;   /* 0: only on command and at the stop */
};

/** Keys of [pool NAME] that are not in struct kvr_pool_conf. */
struct kvr_router_pool_options {
	uint32_t id;
	uint32_t max_jobs;
	uint64_t max_blocks;
	uint64_t max_runs;
	uint32_t decision_sample;
	uint32_t decision_ring;
	bool eagle;
	char event[16];	    /* polling lcore; "" = the first ingress lcore */
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
	uint32_t peer; /* the other pool of a pair, or KVR_ROUTER_NO_POOL */
};

struct kvr_router_conf {
	char path[512]; /* of the file, for error messages */
	struct kvr_router_options opt;
	uint32_t n_ports;
	uint32_t n_pools;
	struct kvr_router_port_conf port[KVR_ROUTER_MAX_PORTS];
	struct kvr_router_pool_conf pool[KVR_ROUTER_MAX_POOLS];
	/* resolved lcore map: polling lcore i runs on CPU cpu[i]; the first n_ingress lcores own
	 * queues */
	uint32_t n_lcores;
	uint32_t n_ingress;
	uint32_t cpu[KVR_ROUTER_MAX_LCORES];
	struct sizes sizes; /* derived numbers of packet buffers */
};

/** Memory of a running router, in bytes. The router allocates nothing more after its start. */
struct kvr_router_memory {
	/* parts of memory_mb */
	uint64_t buffers;  /* packet buffers */
	uint64_t rings;	   /* between stages */
	uint64_t requests; /* max_jobs and max_requests of all pools */
	uint64_t ranks;	   /* load model, queues, statistics of ranks */
	uint64_t sessions; /* session state of requests */
	uint64_t large;	   /* large_buffers */
	uint64_t other;	   /* control thread, lcore contexts, drivers */
	uint64_t heap;	   /* sum of the parts above */
	/* part of memory_mb if there are enough huge pages, otherwise outside */
	uint64_t tables; /* prefix tables */
	/* always outside memory_mb */
	uint64_t apart; /* sessions, quotas of sources, reassembly */
};

#endif
