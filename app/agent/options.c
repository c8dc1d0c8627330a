/* SPDX-License-Identifier: BSD-3-Clause */
#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint.h"
#include "kinds.h"
#include "kvr_conf_rows.h"
#include "kvr_log.h"
#include "paths.h"

static const char *const transfers[] = {"none", "preferred", "required", NULL};
static const char *const sinks[] = {KVR_LOG_SINKS};
static const char *const roles[] = {"aggregated", "prefill", "decode", NULL};

#define KVR_CONF_ROWS_OF struct agent_options

static const struct kvr_opt table[] = {
	TEXT("engine", engine, "", "the engine's HTTP, http://HOST:PORT; required"),
	TEXT("router", router, "", "the router, HOST or HOST:PORT; required"),
	TEXT("pool", pool, "", "pool of the router that serves this model; required"),
	TEXT("worker", worker_text, AGENT_ASK,
	     "number of this engine, unique in the router; auto = made of host name, address of "
	     "the engine, pool and first rank, the same at each start"),
	PICK("type", type, agent_kinds, "auto", "kind of the engine; auto = as it reports"),
	PICK("role", role, roles, "aggregated", "what its pool does"),
	U32("ranks", ranks, 0, 256, "0", "ranks",
	    "data-parallel ranks behind this HTTP port; 0 = as the engine reports, else 1"),
	U32("first-rank", first_rank, 0, 65535, "0", "", "number of the first of them"),
	FLAG("local-ranks", local_ranks,
	     "the engine numbers its ranks from 0, whatever the first is (hybrid load balancer)"),
	U32("block-size", block_size, 0, 4096, "0", "tokens",
	    "of a KV block, as the pool has it; 0 = as the engine reports"),
	U32("max-num-batched-tokens", max_num_batched_tokens, 0, UINT32_MAX, "0", "tokens",
	    "prompt tokens that a step of a rank computes at most; 0 = as the engine reports"),
	TEXT("events", events, AGENT_ASK,
	     "ZMQ publisher of rank 0, tcp://HOST:5557; rank n is at the port + n; empty = no "
	     "events; auto = as the engine reports"),
	TEXT("replay", replay, AGENT_ASK,
	     "ZMQ replay socket of rank 0, tcp://HOST:PORT, as with --events"),
	TEXT("topic", topic, "", "topic of the events; empty = as the engine reports, else all"),
	U32("kv-blocks", kv_blocks, 0, 1 << 30, "0", "blocks",
	    "of a rank that are known by name, 66 to 82 bytes each; 0 = twice what the engine has, "
	    "or 1 M"),
	TEXT("bootstrap", bootstrap, "",
	     "HOST:PORT where decode engines find this prefill engine (SGLang)"),
	U32("prefill-ranks", prefill_ranks, 0, 65535, "0", "ranks",
	    "SGLang, decode: data-parallel ranks of the prefill engines, sent beside the room; 0 = "
	    "not sent"),
	TEXT("taints", taints, "", "taints of the worker, separated by commas"),
	TEXT("topology", topology, "", "key=value pairs of the worker, separated by commas"),
	FLAG("cpu", cpu, "the engine computes on CPUs (router_mode = device-aware-weighted)"),
	PICK("kv-transfer", kv_transfer, transfers, "none",
	     "where decode of --role prefill runs: on workers with the same value of "
	     "--kv-transfer-domain in their --topology, preferred or required"),
	NUM("kv-transfer-weight", KVR_OPT_F64, kv_transfer_weight, 0, 1, "1", "",
	    "weight of --kv-transfer preferred"),
	TEXT("kv-transfer-domain", kv_transfer_domain, "",
	     "key of --topology that --kv-transfer compares"),
	FLAG("trace-span", trace_span,
	     "gives each request with a traceparent a span, of which the engine's are children; a "
	     "client that tracks its request gets it as trace_link {\"span_id\": ...}"),
	TEXT("advertise", advertise, "",
	     "HOST:PORT of the engine's HTTP for those who go there themselves (/pick of the "
	     "gateway); empty = that of --engine, with our address for a loopback one"),
	TEXT("bodies", bodies, "auto",
	     "ADDRESS:PORT where clients bring large bodies by HTTP; auto = the address that faces "
	     "the router, any port; off = everything passes the router"),
	TEXT("bodies-advertise", bodies_advertise, "",
	     "ADDRESS:PORT that clients are told for it, when another one leads there; empty = "
	     "where it listens"),
	TEXT("paths", paths,
	     "/v1/completions,/v1/chat/completions,/v1/responses,/v1/embeddings,/tokenize",
	     "of the engine that requests may name, separated by commas; /v1/x* = all that begin "
	     "so, * = all of them"),
	U32("bodies-bytes", bodies_bytes, 65536, 1u << 31, "536870912", "bytes",
	    "of such bodies that are coming in at one time"),
	U32("body-ms", body_ms, 100, 600000, "10000", "ms",
	    "a body that has not come by then ends its request with 408"),
	TEXT("bind", bind, "", "our address, or address:port; empty = any"),
	U32("max-requests", max_requests, 1, 65536, "4096", "requests", "running at once"),
	U32("request-bytes", request_bytes, 16384, 1 << 26, "262144", "bytes",
	    "of one answer that the router has not acknowledged; then the engine waits"),
	U32("frame-bytes", frame_bytes, 560, 8952, "1432", "bytes",
	    "largest UDP payload to the router; 8952 with jumbo frames"),
	U32("health-ms", health_ms, 50, 60000, "1000", "ms",
	    "between looks at /health; three failures, or a refused connection, and the worker "
	    "leaves"),
	U32("silent-ms", silent_ms, 500, 600000, "10000", "ms",
	    "an engine that is asked (/health, /metrics; while requests run after half of this at "
	    "the "
	    "latest) and brings nothing at all for so long stands still: the worker leaves"),
	U32("load-ms", load_ms, 50, 60000, "250", "ms", "between looks at /metrics"),
	U32("connect-ms", connect_ms, 10, 60000, "2000", "ms", "to connect to the engine"),
	U32("timeout-s", timeout_s, 1, 86400, "3600", "s", "one request at most"),
	U32("drain-s", drain_s, 0, 86400, "30", "s",
	    "SIGTERM: time for running requests to end; a second one ends at once"),
	U32("audit-s", audit_s, 1, 3600, "10", "s",
	    "between questions to the replay socket whether an event was missed"),
	U32("canary-s", canary_s, 0, 86400, "60", "s",
	    "between prompts of ours that show whether events name blocks as /tokenize does, with "
	    "--events; 0 = none"),
	PICK("log-to", log_to, sinks, "auto",
	     "where the log goes; auto: the journal when standard error leads there, else standard "
	     "error"),
	FLAG("quiet", quiet, "only errors"),
	{0},
};

static void help(void)
{
	struct agent_options d;

	kvr_conf_defaults(table, &d);
	printf("kvroute-agent: speaks for one engine (vLLM, SGLang) to a kvroute router\n\n"
	       "usage: kvroute-agent --engine http://HOST:PORT --router HOST --pool NAME "
	       "[options]\n\n");
	kvr_conf_args_help(table, &d, 16, stdout);
	printf("\nSIGTERM drains and leaves. SIGUSR2 drains, and resumes when it comes again. "
	       "SIGUSR1 prints\n"
	       "the counters on standard error.\n");
}

static const char *check_bootstrap(struct agent_options *o)
{
	char *colon = strrchr(o->bootstrap, ':');
	unsigned long port;
	char *end;

	if (o->bootstrap[0] == '\0')
		return o->type == AGENT_SGLANG && o->role == 1
			       ? "--role prefill of --type sglang needs --bootstrap HOST:PORT, "
				 "where the engine waits for decode engines"
			       : NULL;
	if (o->role != 1)
		return "--bootstrap is for --role prefill";
	port = colon != NULL ? strtoul(colon + 1, &end, 10) : 0;
	if (colon == NULL || colon == o->bootstrap || *end != '\0' || port == 0 || port > 65535)
		return "--bootstrap takes HOST:PORT";
	snprintf(o->bootstrap_host, sizeof(o->bootstrap_host), "%.*s", (int)(colon - o->bootstrap),
		 o->bootstrap);
	o->bootstrap_port = (uint16_t)port;
	return NULL;
}

/* "auto", or a number that is not 0. */
static bool parse_worker(struct agent_options *o)
{
	char *end;

	if (strcmp(o->worker_text, AGENT_ASK) == 0)
		return true;
	errno = 0;
	o->worker = strtoull(o->worker_text, &end, 0);
	return o->worker_text[0] >= '0' && o->worker_text[0] <= '9' && *end == '\0' && errno == 0 &&
	       o->worker != 0;
}

static bool is_endpoint(const char *text)
{
	return text[0] == '\0' || strcmp(text, AGENT_ASK) == 0 || agent_endpoint_valid(text);
}

static const char *check_events(const struct agent_options *o)
{
	if (o->replay[0] != '\0' && strcmp(o->replay, AGENT_ASK) != 0 && o->events[0] == '\0')
		return "--replay needs --events";
	if (!is_endpoint(o->events))
		return "--events takes tcp://HOST:PORT, the publisher's address";
	if (!is_endpoint(o->replay))
		return "--replay takes tcp://HOST:PORT, the address of the replay socket";
	return NULL;
}

static const char *check_transfer(const struct agent_options *o)
{
	if (o->kv_transfer == 0)
		return o->kv_transfer_domain[0] == '\0'
			       ? NULL
			       : "--kv-transfer-domain needs --kv-transfer preferred or required";
	if (o->role != 1)
		return "--kv-transfer is for --role prefill";
	return o->kv_transfer_domain[0] != '\0'
		       ? NULL
		       : "--kv-transfer needs --kv-transfer-domain, a key of --topology";
}

/* What one row alone cannot say. */
static const char *check(struct agent_options *o)
{
	const char *bad;
	size_t n = strlen(o->engine);

	if (n == 0)
		return "--engine is missing: the engine's HTTP, http://HOST:PORT";
	if (strncmp(o->engine, "http://", 7) != 0 || strpbrk(o->engine + 7, " @?#") != NULL ||
	    n < 8)
		return "--engine takes http://HOST:PORT";
	while (n > 0 && o->engine[n - 1] == '/')
		o->engine[--n] = '\0';
	if (o->router[0] == '\0')
		return "--router is missing: HOST or HOST:PORT";
	if (o->pool[0] == '\0')
		return "--pool is missing: a [pool NAME] of the router";
	if (!parse_worker(o))
		return "--worker takes auto, or a number that no other engine has, not 0";
	if (o->first_rank + o->ranks > 65536)
		return "--first-rank + --ranks must stay at or below 65536";
	if (o->advertise[0] == '\0' && strcspn(o->engine + 7, "/") < sizeof(o->advertise)) {
		o->advertise_engine = true;
		snprintf(o->advertise, sizeof(o->advertise), "%.*s",
			 (int)strcspn(o->engine + 7, "/"), o->engine + 7);
	}
	if (!agent_paths_valid(o->paths))
		return "--paths takes paths separated by commas: /v1/completions, /v1/x* or *";
	bad = check_events(o);
	if (bad == NULL)
		bad = check_transfer(o);
	return bad != NULL ? bad : check_bootstrap(o);
}

int agent_options_parse(struct agent_options *o, int argc, char **argv, char *err, size_t errlen)
{
	const char *bad;
	int rc;

	memset(o, 0, sizeof(*o));
	rc = kvr_conf_args(table, o, argc, argv, err, errlen);
	if (rc == 0)
		help();
	if (rc <= 0)
		return rc;
	bad = check(o);
	if (bad == NULL)
		return 1;
	snprintf(err, errlen, "%s", bad);
	return -EINVAL;
}
