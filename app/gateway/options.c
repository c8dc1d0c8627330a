/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of options, and checks of combinations. */
#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_conf_rows.h"
#include "kvr_log.h"

#define KVR_CONF_ROWS_OF struct gw_options

static const char *const sinks[] = {KVR_LOG_SINKS};

static const struct kvr_opt table[] = {
	TEXT("listen", listen, "127.0.0.1:8000", "address:port or [v6]:port for HTTP/1.1 and h2c"),
	TEXT("router", router, "",
	     "host[:port], several separated by commas; the first that answers is used"),
	TEXT("bind", bind, "", "local address towards routers; empty = any"),
	U32("threads", threads, 1, GW_MAX_THREADS, "1", "threads", "event loops, one per thread"),
	TEXT("model", model, "",
	     "NAME=POOL, several separated by commas: models with a name other than that of their pool"),
	TEXT("adapter", adapter, "",
	     "NAME=MODEL, several separated by commas: LoRA adapters that clients name as models"),
	TEXT("tokenize", tokenize, "",
	     "http://host:port/tokenize of an engine; empty = text prompts are routed by load"),
	U32("tokenize-ms", tokenize_ms, 1, 60000, "500", "ms",
	    "time limit for token ids; afterwards the prompt is routed by load"),
	U32("tokenize-bytes", tokenize_bytes, 0, 1u << 30, "67108864", "bytes",
	    "cache of token ids, per thread; 0 = none"),
	U32("max-connections", connections, 0, 1000000, "0", "connections",
	    "open connections, per thread. A further one closes the longest idle HTTP/1 connection, or is closed itself. 0 = 4096, or fewer if the limit of open files (ulimit -n) requires it"),
	U32("source-connections", source_connections, 0, 1000000, "0", "connections",
	    "connections of one address (IPv6: /64), per thread; more are answered 429; 0 = three quarters of --max-connections"),
	U32("source-rate", source_rate, 0, 1000000, "0", "requests/s",
	    "rate and burst of one address, per thread; more are answered 429 with Retry-After, except /health, /ready and /metrics; 0 = no limit"),
	U32("max-in-flight", in_flight, 1, 1u << 20, "8192", "requests",
	    "active requests, per thread; more are answered 429"),
	U32("max-body", body_bytes, 1024, 67108864, "8388608", "bytes",
	    "size of a request body, read whole into memory before it is routed; at most 100 at once on an HTTP/2 connection. Also limits messages through the router"),
	U32("away-bytes", away_bytes, 0, 67108864, "65536", "bytes",
	    "larger bodies go to the engine's agent directly; 0 = all pass the router"),
	U32("max-buffer", buffer_bytes, 65536, 1u << 30, "4194304", "bytes",
	    "part of an answer that the client has not read; beyond it the request is cancelled"),
	U32("total-mb", total_mb, 1, 1048576, "1024", "MiB",
	    "memory of waiting requests and answers, per thread; beyond it requests are answered 503. One address (IPv6: /64) may hold three times the free part, or one request; more are answered 429. Incoming bodies have as much again, and one body more; beyond it, bodies above 64 KiB are cut off, as are those of an address that holds more than fifteen times the free part"),
	U32("header-ms", header_ms, 100, 600000, "10000", "ms",
	    "a request must be complete after this time from its first byte (HTTP/2: after its fields), or have grown by 64 KiB a second; otherwise it is answered 408"),
	U32("idle-ms", idle_ms, 100, 3600000, "60000", "ms",
	    "time limit of a connection without requests, and of a client that reads nothing of an answer"),
	U32("request-ms", request_ms, 0, 86400000, "0", "ms",
	    "time limit of a request; 0 = that of the router only"),
	U32("grace-s", grace_s, 0, 86400, "5", "s",
	    "time for active requests to end after the first SIGTERM; the others end with an error. A second signal ends all at once"),
	U32("lease-ms", lease_ms, 100, 86400000, "300000", "ms",
	    "/pick: a booking that is not renewed within this time is released; a request may set a shorter time"),
	U32("router-ms", router_ms, 100, 60000, "1500", "ms",
	    "a router without an answer for this time is down"),
	U32("frame-bytes", frame_bytes, 560, 8952, "1432", "bytes",
	    "largest UDP payload towards the router"),
	FLAG("direct", direct, "answers come directly from the agents, not through the router"),
	FLAG("explain", explain, "headers of each answer name worker, rank and overlap"),
	PICK("log-to", log_to, sinks, "auto",
	     "destination of the log; auto = the journal if standard error leads there, else standard error"),
	{0},
};

static void print_help(void)
{
	struct gw_options d;

	memset(&d, 0, sizeof(d));
	kvr_conf_defaults(table, &d);
	printf("kvroute-gateway: OpenAI-compatible HTTP in front of kvroute\n\n"
	       "usage: kvroute-gateway --router HOST[:PORT] [options]\n\n");
	kvr_conf_args_help(table, &d, 16, stdout);
}

static int report_error(char *err, size_t errlen, const char *what)
{
	snprintf(err, errlen, "%s", what);
	return -EINVAL;
}

/* Parse comma-separated NAME=OTHER, in place. */
static int parse_names(char *text, struct gw_name list[], uint32_t *n)
{
	char *save = NULL;

	for (char *p = strtok_r(text, ",", &save); p != NULL; p = strtok_r(NULL, ",", &save)) {
		char *eq = strchr(p, '=');

		if (eq == NULL || eq == p || eq[1] == '\0' || *n == GW_MAX_NAMES)
			return -EINVAL;
		*eq = '\0';
		list[(*n)++] = (struct gw_name){p, eq + 1};
	}
	return 0;
}

static int read_url(struct gw_options *options)
{
	const char *p = options->tokenize, *slash, *colon;
	unsigned long port = 80;

	if (*p == '\0')
		return 0;
	if (strncmp(p, "http://", 7) != 0)
		return -EINVAL;
	p += 7;
	slash = strchr(p, '/');
	if (slash == NULL)
		slash = p + strlen(p);
	colon = memrchr(p, ':', (size_t)(slash - p));
	if (colon != NULL && memchr(colon, ']', (size_t)(slash - colon)) == NULL) {
		char *end;

		port = strtoul(colon + 1, &end, 10);
		if (end != slash || end == colon + 1 || port == 0 || port > 65535)
			return -EINVAL;
	} else {
		colon = slash;
	}
	if (*p == '[' && colon > p && colon[-1] == ']')
		snprintf(options->tokenize_host, sizeof(options->tokenize_host), "%.*s",
			 (int)(colon - p - 2), p + 1);
	else
		snprintf(options->tokenize_host, sizeof(options->tokenize_host), "%.*s",
			 (int)(colon - p), p);
	snprintf(options->tokenize_path, sizeof(options->tokenize_path), "%.255s",
		 *slash != '\0' ? slash : "/tokenize");
	options->tokenize_port = (uint16_t)port;
	return options->tokenize_host[0] != '\0' ? 0 : -EINVAL;
}

/* Check combinations of options. */
static int check_options(struct gw_options *options, char *err, size_t errlen)
{
	char *save = NULL;

	for (char *p = strtok_r(options->router, ",", &save); p != NULL;
	     p = strtok_r(NULL, ",", &save)) {
		if (options->n_routers == GW_MAX_ROUTERS)
			return report_error(err, errlen, "--router: at most 8 routers");
		options->routers[options->n_routers++] = p;
	}
	if (options->n_routers == 0)
		return report_error(err, errlen, "--router is missing: host[:port] of kvroute");
	if (parse_names(options->model, options->models, &options->n_models) != 0)
		return report_error(err, errlen,
				    "--model takes NAME=POOL[,NAME=POOL...], at most 64");
	if (parse_names(options->adapter, options->adapters, &options->n_adapters) != 0)
		return report_error(err, errlen,
				    "--adapter takes NAME=MODEL[,NAME=MODEL...], at most 64");
	if (read_url(options) != 0)
		return report_error(err, errlen, "--tokenize takes http://host[:port][/path]");
	return 1;
}

int gw_options_parse(struct gw_options *options, int argc, char **argv, char *err, size_t errlen)
{
	int rc;

	memset(options, 0, sizeof(*options));
	rc = kvr_conf_args(table, options, argc, argv, err, errlen);
	if (rc == 0)
		print_help();
	if (rc <= 0)
		return rc;
	return check_options(options, err, errlen);
}
