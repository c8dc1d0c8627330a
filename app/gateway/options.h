/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_OPTIONS_H
#define GW_OPTIONS_H

/**
 * @file
 * Command line of kvroute-gateway: one table defines options, defaults and help.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GW_MAX_ROUTERS	    8
#define GW_MAX_THREADS	    64
#define GW_MAX_NAMES	    64
#define GW_CONNECTIONS_MOST 4096 /* per thread, unless --max-connections is higher */

/** A name and the name that it stands for. */
struct gw_name {
	const char *name, *of; /* point into the options' own text */
};

struct gw_options {
	char listen[256];
	char router[1024];
	char bind[256];
	char model[2048];
	char adapter[2048];
	char tokenize[512];
	uint32_t lease_ms, away_bytes, total_mb;
	int log_to; /* enum kvr_log_sink */
	uint32_t threads;
	uint32_t connections, in_flight;	  /* 0: see --help */
	uint32_t source_connections, source_rate; /* 0: see --help */
	uint32_t body_bytes, buffer_bytes;
	uint32_t header_ms, idle_ms, request_ms, grace_s;
	uint32_t tokenize_ms, tokenize_bytes;
	uint32_t frame_bytes, router_ms;
	bool direct, explain;

	/* parsed from the above */
	const char *routers[GW_MAX_ROUTERS];
	uint32_t n_routers;
	struct gw_name models[GW_MAX_NAMES], adapters[GW_MAX_NAMES];
	uint32_t n_models, n_adapters;
	char tokenize_host[256], tokenize_path[256];
	uint16_t tokenize_port; /* 0: no tokenizer */
};

/**
 * Parse the command line into @p o, which must not move afterwards.
 * @return 1: continue; 0: --help was printed; -EINVAL: @p err has one line with the option and its
 * valid values.
 */
int gw_options_parse(struct gw_options *options, int argc, char **argv, char *err, size_t errlen);

#endif
