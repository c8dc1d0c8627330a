/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOAD_OPTIONS_H
#define LOAD_OPTIONS_H

/**
 * @file
 * Command line of kvroute-load. One table gives the options of getopt_long(), defaults, checks and
 * --help. Start-up only.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define LOAD_QUEUES 16u

/** Choice of a frame's queue. */
enum load_spread { LOAD_SPREAD_FLOW, LOAD_SPREAD_FRAME };

/** Behaviour of the load lcore without work. */
enum load_idle { LOAD_IDLE_POLL, LOAD_IDLE_SLEEP };

#define LOAD_MAX_CLIENTS 1024u
#define LOAD_MAX_ENGINES 4096u

struct load_options {
	/* the wire */
	char socket[108];
	char device[256];
	char ip[46];
	char mac[18];
	char router[46];
	uint32_t router_port;
	uint32_t base_port;
	uint32_t mtu;
	uint32_t queues;
	int spread; /* enum load_spread */
	uint32_t ring_log2;
	uint32_t memory_mb;
	uint32_t core;
	int idle;	    /* enum load_idle */
	uint32_t main_core; /* UINT32_MAX: any */
	char eal[256];
	/* engines */
	char pool[64];
	uint32_t engines;
	uint32_t ranks;
	uint64_t worker_base;
	uint32_t blocks_per_rank;
	uint32_t block_size;
	double prefill_us;
	double decode_us;
	bool instant;
	bool engines_only;
	uint32_t max_running;
	uint32_t items;
	uint32_t item_bytes;
	/* clients */
	uint32_t clients;
	double rate;
	int arrivals;
	double seconds;
	double warmup;
	double ramp;
	double drain;
	uint32_t find_s;
	double slice; /* s; 0: none */
	uint64_t requests;
	uint32_t max_inflight;
	bool tokens;
	uint32_t body_bytes;
	uint32_t osl;
	bool direct;
	bool track;
	double cancel_share;
	int policy;
	uint64_t seed;
	double repeat_ms;
	uint32_t max_tries;
	/* content */
	char trace[1024];
	double speedup;
	uint32_t copies;
	bool keep_bursts;
	uint32_t conversations;
	double think_time;
	uint32_t turns;
	uint32_t system_prompts;
	uint32_t system_tokens;
	uint32_t user_tokens;
	double length_spread;
	uint32_t pool_mb;
	/* output */
	bool json;
	bool quiet;
	/* disaggregated serving */
	char disagg[16];
	char prefill_pool[64];
	double bootstrap_share;
	uint32_t prefills; /* of --disagg: the first of the engines; 0 = aggregated */
	/* sessions */
	uint32_t sessions;
	uint32_t session_timeout;
	double abandon_share;
	double release_share;
	double open_fail_share;
	bool affinity;
	/* crashes */
	double kill_every;
	double kill_down;
	int kill_mode;
};

enum load_kill_mode { LOAD_KILL_GOODBYE, LOAD_KILL_SILENT };

/** Names of the values of `policy`. */
extern const char *const load_policy_names[];

/**
 * Parse the command line into @p o. @return 1: continue; 0: --help was printed; -EINVAL: a line in
 * @p err names the option and the allowed values.
 */
int load_options_parse(struct load_options *o, int argc, char **argv, char *err, size_t errlen);

#endif
