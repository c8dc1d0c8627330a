/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of options, and checks of combinations. */
#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint.h"
#include "kinds.h"
#include "kvr_conf_rows.h"
#include "kvr_engine_paths.h"
#include "kvr_log.h"

static const char *const transfers[] = {"none", "preferred", "required", NULL};
static const char *const sinks[] = {KVR_LOG_SINKS};
static const char *const roles[] = {"aggregated", "prefill", "decode", NULL};

#define KVR_CONF_ROWS_OF struct agent_options

static const struct kvr_opt table[] = {
	TEXT("engine", engine, "", "HTTP address of the engine, http://HOST:PORT; required"),
	TEXT("router", router, "", "address of the router, HOST or HOST:PORT; required"),
	TEXT("pool", pool, "", "pool of the router that serves this model; required"),
	TEXT("worker", worker_text, AGENT_AS_REPORTED,
	     "number of this engine, unique in the router; auto = derived from host name, engine address, pool and first rank, the same at each start"),
	PICK("type", type, agent_kinds, "auto", "kind of the engine; auto = as the engine reports"),
	PICK("role", role, roles, "aggregated", "role of the pool"),
	U32("ranks", ranks, 0, 256, "0", "ranks",
	    "data-parallel ranks at this HTTP port; 0 = as the engine reports, else 1"),
	U32("first-rank", first_rank, 0, 65535, "0", "", "number of the first rank"),
	FLAG("local-ranks", local_ranks,
	     "the engine numbers its ranks from 0, independent of --first-rank (hybrid load balancer)"),
	U32("block-size", block_size, 0, 4096, "0", "tokens",
	    "size of a KV block, equal to that of the pool; 0 = as the engine reports"),
	U32("max-num-batched-tokens", max_num_batched_tokens, 0, UINT32_MAX, "0", "tokens",
	    "maximum prompt tokens per step of a rank; 0 = as the engine reports"),
	TEXT("events", events, AGENT_AS_REPORTED,
	     "ZMQ publisher of rank 0, tcp://HOST:5557; rank n is at port + n; empty = no events; auto = as the engine reports"),
	TEXT("replay", replay, AGENT_AS_REPORTED,
	     "ZMQ replay socket of rank 0, tcp://HOST:PORT; other values as for --events"),
	TEXT("topic", topic, "", "topic of the events; empty = as the engine reports, else all"),
	U32("kv-blocks", kv_blocks, 0, 1 << 30, "0", "blocks",
	    "table of known blocks of a rank, 66 to 82 bytes each; 0 = twice the engine's blocks, or 1 M"),
	TEXT("bootstrap", bootstrap, "",
	     "HOST:PORT where decode engines reach this prefill engine (SGLang)"),
	U32("prefill-ranks", prefill_ranks, 0, 65535, "0", "ranks",
	    "SGLang, decode: data-parallel ranks of the prefill engines, sent with the room; 0 = not sent"),
	TEXT("taints", taints, "", "taints of the worker, separated by commas"),
	TEXT("topology", topology, "", "key=value pairs of the worker, separated by commas"),
	FLAG("cpu", cpu, "the engine computes on CPUs (router_mode = device-aware-weighted)"),
	PICK("kv-transfer", kv_transfer, transfers, "none",
	     "decode workers for --role prefill: preferred or required = those with the same value of --kv-transfer-domain in their --topology"),
	NUM("kv-transfer-weight", KVR_OPT_F64, kv_transfer_weight, 0, 1, "1", "",
	    "weight of --kv-transfer preferred"),
	TEXT("kv-transfer-domain", kv_transfer_domain, "",
	     "key of --topology that --kv-transfer compares"),
	FLAG("trace-span", trace_span,
	     "adds a span to each request with a traceparent; spans of the engine are its children, and a client that tracks its request receives trace_link {\"span_id\": ...}"),
	TEXT("advertise", advertise, "",
	     "HOST:PORT of the engine's HTTP for clients that contact it directly (/pick of the gateway); empty = that of --engine, with the agent's address instead of a loopback address"),
	TEXT("bodies", bodies, "auto",
	     "ADDRESS:PORT that accepts large bodies by HTTP; auto = the address that faces the router, any port; off = all bodies pass the router"),
	TEXT("bodies-advertise", bodies_advertise, "",
	     "ADDRESS:PORT of --bodies as clients reach it; empty = the listening address"),
	TEXT("paths", paths,
	     "/v1/completions,/v1/chat/completions,/v1/responses,/v1/embeddings,/tokenize",
	     "paths of the engine that requests may name, separated by commas; /v1/x* = all with this beginning, * = all"),
	U32("bodies-bytes", bodies_bytes, 65536, 1u << 31, "536870912", "bytes",
	    "total of large bodies being received"),
	U32("body-ms", body_ms, 100, 600000, "10000", "ms",
	    "time limit of a large body; afterwards its request ends with 408"),
	TEXT("bind", bind, "", "local address, or address:port; empty = any"),
	U32("max-requests", max_requests, 1, 65536, "4096", "requests", "requests running at once"),
	U32("request-bytes", request_bytes, 16384, 1 << 26, "262144", "bytes",
	    "unacknowledged part of one answer; beyond it the engine waits"),
	U32("frame-bytes", frame_bytes, 560, 8952, "1432", "bytes",
	    "largest UDP payload to the router; 8952 with jumbo frames"),
	U32("health-ms", health_ms, 50, 60000, "1000", "ms",
	    "interval of /health; after three failures, or a refused connection, the worker leaves"),
	U32("silent-ms", silent_ms, 500, 600000, "10000", "ms",
	    "an engine that was asked (/health, /metrics) and sends nothing for this time is hanging, and the worker leaves; while requests run, the engine is asked after half of it at the latest"),
	U32("load-ms", load_ms, 50, 60000, "250", "ms", "interval of /metrics"),
	U32("connect-ms", connect_ms, 10, 60000, "2000", "ms",
	    "time limit to connect to the engine"),
	U32("inactivity-s", inactivity_s, 0, 604800, "10800", "s",
	    "a request ends with status 504 if the engine sends nothing for this time; an answer that is not streamed arrives in one piece; 0 = no limit"),
	U32("drain-s", drain_s, 0, 86400, "30", "s",
	    "SIGTERM: time for running requests to end; a second SIGTERM ends them at once"),
	U32("audit-s", audit_s, 1, 3600, "10", "s",
	    "interval at which the replay socket is asked for missed events"),
	U32("canary-s", canary_s, 0, 86400, "60", "s",
	    "interval of test prompts that check whether events name blocks as /tokenize does, with --events; 0 = none"),
	PICK("log-to", log_to, sinks, "auto",
	     "destination of the log; auto = the journal if standard error leads there, else standard error"),
	FLAG("quiet", quiet, "only errors"),
	{0},
};

static void print_help(void)
{
	struct agent_options d;

	kvr_conf_defaults(table, &d);
	printf("kvroute-agent: represents one engine (vLLM, SGLang) to a kvroute router\n\n"
	       "usage: kvroute-agent --engine http://HOST:PORT --router HOST --pool NAME [options]\n\n");
	kvr_conf_args_help(table, &d, 16, stdout);
	printf("\nSIGTERM drains the engine and ends the agent. SIGUSR2 drains the engine; the next SIGUSR2\n"
	       "resumes it. SIGUSR1 prints the counters on standard error.\n");
}

static const char *check_bootstrap(struct agent_options *options)
{
	char *colon = strrchr(options->bootstrap, ':');
	unsigned long port;
	char *end;

	if (options->bootstrap[0] == '\0')
		return options->type == AGENT_SGLANG && options->role == 1
			       ? "--role prefill of --type sglang needs --bootstrap HOST:PORT, where the engine waits for decode engines"
			       : NULL;
	if (options->role != 1)
		return "--bootstrap is for --role prefill";
	port = colon != NULL ? strtoul(colon + 1, &end, 10) : 0;
	if (colon == NULL || colon == options->bootstrap || *end != '\0' || port == 0 ||
	    port > 65535)
		return "--bootstrap takes HOST:PORT";
	snprintf(options->bootstrap_host, sizeof(options->bootstrap_host), "%.*s",
		 (int)(colon - options->bootstrap), options->bootstrap);
	options->bootstrap_port = (uint16_t)port;
	return NULL;
}

/* "auto", or a number other than 0. */
static bool parse_worker(struct agent_options *options)
{
	char *end;

	if (strcmp(options->worker_text, AGENT_AS_REPORTED) == 0)
		return true;
	errno = 0;
	options->worker = strtoull(options->worker_text, &end, 0);
	return options->worker_text[0] >= '0' && options->worker_text[0] <= '9' && *end == '\0' &&
	       errno == 0 && options->worker != 0;
}

static bool is_endpoint(const char *text)
{
	return text[0] == '\0' || strcmp(text, AGENT_AS_REPORTED) == 0 ||
	       agent_endpoint_valid(text);
}

static const char *check_events(const struct agent_options *options)
{
	if (options->replay[0] != '\0' && strcmp(options->replay, AGENT_AS_REPORTED) != 0 &&
	    options->events[0] == '\0')
		return "--replay needs --events";
	if (!is_endpoint(options->events))
		return "--events takes tcp://HOST:PORT, the publisher's address";
	if (!is_endpoint(options->replay))
		return "--replay takes tcp://HOST:PORT, the address of the replay socket";
	return NULL;
}

static const char *check_transfer(const struct agent_options *options)
{
	if (options->kv_transfer == 0)
		return options->kv_transfer_domain[0] == '\0'
			       ? NULL
			       : "--kv-transfer-domain needs --kv-transfer preferred or required";
	if (options->role != 1)
		return "--kv-transfer is for --role prefill";
	return options->kv_transfer_domain[0] != '\0'
		       ? NULL
		       : "--kv-transfer needs --kv-transfer-domain, a key of --topology";
}

/* Check combinations of options. */
static const char *check_options(struct agent_options *options)
{
	const char *bad;
	size_t n = strlen(options->engine);

	if (n == 0)
		return "--engine is missing: HTTP address of the engine, http://HOST:PORT";
	if (strncmp(options->engine, "http://", 7) != 0 ||
	    strpbrk(options->engine + 7, " @?#") != NULL || n < 8)
		return "--engine takes http://HOST:PORT";
	while (n > 0 && options->engine[n - 1] == '/')
		options->engine[--n] = '\0';
	if (options->router[0] == '\0')
		return "--router is missing: HOST or HOST:PORT";
	if (options->pool[0] == '\0')
		return "--pool is missing: a [pool NAME] of the router";
	if (!parse_worker(options))
		return "--worker takes auto, or a number other than 0 that no other engine has";
	if (options->first_rank + options->ranks > 65536)
		return "--first-rank + --ranks must stay at or below 65536";
	if (options->advertise[0] == '\0' &&
	    strcspn(options->engine + 7, "/") < sizeof(options->advertise)) {
		options->advertise_engine = true;
		snprintf(options->advertise, sizeof(options->advertise), "%.*s",
			 (int)strcspn(options->engine + 7, "/"), options->engine + 7);
	}
	if (!kvr_engine_paths_valid(options->paths))
		return "--paths takes paths separated by commas: /v1/completions, /v1/x* or *";
	bad = check_events(options);
	if (bad == NULL)
		bad = check_transfer(options);
	return bad != NULL ? bad : check_bootstrap(options);
}

int agent_options_parse(struct agent_options *options, int argc, char **argv, char *err,
			size_t errlen)
{
	const char *bad;
	int rc;

	memset(options, 0, sizeof(*options));
	rc = kvr_conf_args(table, options, argc, argv, err, errlen);
	if (rc == 0)
		print_help();
	if (rc <= 0)
		return rc;
	bad = check_options(options);
	if (bad == NULL)
		return 1;
	snprintf(err, errlen, "%s", bad);
	return -EINVAL;
}
