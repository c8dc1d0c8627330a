/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef AGENT_OPTIONS_H
#define AGENT_OPTIONS_H

/**
 * @file
 * Command line of kvroute-agent: one table defines options, help and checks.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Value of --events and --replay: as the engine reports. */
#define AGENT_AS_REPORTED "auto"

struct agent_options {
	char engine[256], router[256], bind[128], pool[64];
	char worker_text[32];
	uint64_t worker; /* 0: derived from the engine's address */
	int type, role;
	uint32_t ranks, first_rank;
	bool local_ranks;
	uint32_t block_size;
	char events[256], replay[256], topic[256];
	uint32_t kv_blocks, max_num_batched_tokens;
	char bootstrap[280];
	uint32_t prefill_ranks;
	char paths[1024];
	char taints[256], topology[256], advertise[101];
	bool cpu, trace_span;
	int kv_transfer; /* enforcement of KV_TRANSFER in the protocol */
	double kv_transfer_weight;
	char kv_transfer_domain[256];
	uint32_t max_requests, request_bytes, frame_bytes;
	uint32_t health_ms, silent_ms, load_ms, connect_ms, inactivity_s, drain_s, audit_s;
	char bodies[128], bodies_advertise[101];
	uint32_t bodies_bytes, body_ms, canary_s;
	int log_to; /* enum kvr_log_sink */
	bool quiet;
	bool advertise_engine; /* --advertise was not given: address of --engine */
	/* parsed from --bootstrap */
	char bootstrap_host[256];
	uint16_t bootstrap_port;
};

/**
 * Parse the command line into @p o.
 * @return 1; 0: the help was printed; -EINVAL with one line in @p err.
 */
int agent_options_parse(struct agent_options *options, int argc, char **argv, char *err,
			size_t errlen);

#endif
