/* SPDX-License-Identifier: BSD-3-Clause */
#include "options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kvr_conf_rows.h"
#include "kvr_wire.h"

const char *const load_policy_names[] = {"kv", "round-robin", "random", "least-loaded", NULL};
static const char *const kill_names[] = {"goodbye", "silent", NULL};
static const char *const idle_names[] = {"poll", "sleep", NULL};
static const char *const spread_names[] = {"flow", "frame", NULL};
static const char *const arrival_names[] = {"poisson", "fixed", NULL};

#define KVR_CONF_ROWS_OF struct load_options

static const struct kvr_opt table[] = {
	TEXT("socket", socket, "",
	     "memif socket; empty = /run/kvroute.sock, or /tmp/kvroute-UID.sock if that does not exist"),
	TEXT("port", device, "", "DPDK device instead of memif, e.g. net_af_packet0,iface=veth1"),
	TEXT("ip", ip, "10.77.0.2", "own address, IPv4 or IPv6"),
	TEXT("mac", mac, "", "own MAC; \"\" = the device's"),
	TEXT("router", router, "10.77.0.1", "address of the router"),
	U32("router-port", router_port, 1, 65535, "7650", "UDP port", "UDP port of the router"),
	U32("base-port", base_port, 1024, 65535, "20000", "UDP port",
	    "first own UDP port: one per client, then one per engine"),
	U32("mtu", mtu, 1280, 9000, "1500", "bytes", "IP packet size of the link"),
	U32("queues", queues, 1, LOAD_QUEUES, "1", "queues",
	    "queues of the device, per direction; a memif router requires one per ingress CPU"),
	PICK("spread", spread, spread_names, "flow",
	     "queue of a frame: flow = fixed per sender, frame = the next one"),
	U32("memif-ring", ring_log2, 6, 14, "12", "log2", "frames per memif ring"),
	U32("memory", memory_mb, 32, 65536, "128", "MiB",
	    "DPDK memory, in huge pages if enough are free"),
	U32("find", find_s, 1, 3600, "10", "s", "time limit for finding the router"),
	U32("core", core, 0, 1023, "1", "CPU", "CPU of the polling lcore"),
	PICK("idle", idle, idle_names, "poll",
	     "behaviour without work; sleep yields the CPU to other programs and may add 0.1 ms to measurements"),
	TEXT("eal", eal, "", "further EAL arguments, separated by blanks"),

	TEXT("pool", pool, "",
	     "pool of engines and clients; empty = default, with --disagg decode"),
	U32("engines", engines, 1, LOAD_MAX_ENGINES, "8", "workers", "simulated engines"),
	U32("ranks", ranks, 1, 64, "2", "ranks", "data-parallel ranks per engine"),
	U64("worker-base", worker_base, 1, 0x1p63, "1", "", "worker id of the first engine"),
	U32("blocks-per-rank", blocks_per_rank, 0, 1 << 26, "16384", "blocks",
	    "blocks of a rank's KV cache (LRU); 0 = no cache and no KV events"),
	U32("block-size", block_size, 1, 512, "16", "tokens", "tokens per block"),
	F64("prefill-us-per-token", prefill_us, 0, 1e6, "20", "us",
	    "prefill time per token that is not cached"),
	F64("decode-us-per-token", decode_us, 0, 1e7, "1000", "us", "decode time per token"),
	FLAG("instant", instant, "engines answer at once, without timers"),
	FLAG("engines-only", engines_only,
	     "send no requests; engines answer requests of any client at once, with one item"),
	U32("max-running", max_running, 1, 65536, "256", "requests",
	    "running requests per rank; others are queued"),
	U32("items", items, 1, 65536, "8", "messages", "maximum RESPONSE items per answer"),
	U32("item-bytes", item_bytes, 16, 1024, "32", "bytes", "data per item"),

	U32("clients", clients, 1, LOAD_MAX_CLIENTS, "64", "sources", "client sources"),
	F64("rate", rate, 0, 1e8, "0", "requests/s",
	    "offered load; 0 = by the trace, or 50 without a trace"),
	PICK("arrivals", arrivals, arrival_names, "poisson", "arrival process with --rate"),
	F64("seconds", seconds, 0, 1e6, "0", "s",
	    "length of the schedule; 0 = until --requests or the end of the trace (10 without either)"),
	F64("warmup", warmup, 0, 1e6, "0", "s", "initial time that is not measured"),
	F64("ramp", ramp, 0, 1e6, "0", "s",
	    "initial time in which the rate rises from a tenth to --rate"),
	F64("drain", drain, 0, 3600, "5", "s", "time limit for answers after the last request"),
	F64("slice", slice, 0, 3600, "0", "s",
	    "with --json: report cached share and time to first token per part of this length, at most 240 parts; 0 = no"),
	U64("requests", requests, 0, 0, "0", "requests", "number of requests; 0 = no limit"),
	U32("max-inflight", max_inflight, 1, 1 << 20, "65536", "requests",
	    "maximum requests in flight; further ones count as not sent"),
	FLAG("tokens", tokens, "ROUTE carries tokens instead of hashes"),
	U32("body-bytes", body_bytes, 0, KVR_WIRE_MAX_BODY, "0", "bytes",
	    "size of ROUTE's opaque body"),
	U32("osl", osl, 0, 1 << 20, "0", "tokens", "answer length; 0 = by the trace, or 128"),
	FLAG("direct", direct,
	     "engines answer clients directly, and the router gets progress reports"),
	FLAG("track", track, "the last item carries the router's report; not with --direct"),
	F64("cancel-share", cancel_share, 0, 1, "0", "", "share of requests that are cancelled"),
	PICK("policy", policy, load_policy_names, "kv",
	     "choice of the rank: by the router (kv), or by this program with pins"),
	U64("seed", seed, 0, 0, "1", "", "seed of content, arrivals and choices"),
	F64("repeat-ms", repeat_ms, 1, 1e5, "20", "ms",
	    "time before a message is repeated; doubles up to 1 s"),
	U32("max-tries", max_tries, 1, 200, "20", "", "repetitions before a request is given up"),

	TEXT("trace", trace, "", "Mooncake trace file instead of generated conversations"),
	F64("speedup", speedup, 1e-3, 1e9, "1", "", "factor by which the trace is accelerated"),
	U32("copies", copies, 1, 100000, "1", "", "copies of the trace with disjoint content"),
	FLAG("keep-bursts", keep_bursts, "do not spread rows that share a timestamp"),
	U32("conversations", conversations, 1, 1 << 24, "200", "", "active conversations"),
	F64("think-time", think_time, 0, 1e6, "0", "s",
	    "mean time between turns: conversations = rate * think time"),
	U32("turns", turns, 1, 1000, "5", "", "turns per conversation"),
	U32("system-prompts", system_prompts, 0, 1 << 20, "16", "", "shared system prompts"),
	U32("system-tokens", system_tokens, 0, 1 << 20, "1024", "tokens",
	    "length of a system prompt"),
	U32("user-tokens", user_tokens, 1, 1 << 20, "256", "tokens", "mean length of a turn"),
	F64("length-spread", length_spread, 0, 1, "0.5", "",
	    "lengths are uniform in mean * (1 +- this)"),
	U32("content-memory", pool_mb, 1, 1 << 20, "512", "MiB",
	    "limit for prompts generated in advance; conversations repeat beyond it"),

	TEXT("disagg", disagg, "",
	     "P:D = P prefill and D decode engines instead of --engines, in a pair of pools as in drivers-cfg/profiles/memif-disagg.conf"),
	TEXT("prefill-pool", prefill_pool, "prefill", "pool of the prefill engines"),
	F64("bootstrap-share", bootstrap_share, 0, 1, "0.5", "",
	    "share of the prefill engines that publish a bootstrap address"),

	U32("sessions", sessions, 0, 65536, "0", "sessions",
	    "active sessions of --turns turns each; --rate counts their turns"),
	U32("session-timeout", session_timeout, 1, 86400, "2", "s", "idle time of a session"),
	F64("abandon-share", abandon_share, 0, 1, "0.1", "",
	    "share of sessions abandoned by the client"),
	F64("release-share", release_share, 0, 1, "0.1", "", "share ended by SESSION_RELEASE"),
	F64("open-fail-share", open_fail_share, 0, 1, "0", "",
	    "share of sessions that engines do not open"),
	FLAG("affinity", affinity, "sessions have ids but no actions: only affinity binds them"),

	F64("kill-every", kill_every, 0, 1e6, "0", "s",
	    "interval of engine crashes; the engine returns with a new epoch; 0 = never"),
	F64("kill-down", kill_down, 0.01, 1e6, "1", "s", "downtime of a crashed engine"),
	PICK("kill-mode", kill_mode, kill_names, "goodbye",
	     "whether the engine notifies the router"),

	FLAG("json", json, "print the result as one JSON object, and nothing else on stdout"),
	FLAG("quiet", quiet, "no progress lines"),
	{0},
};

static void print_help(void)
{
	struct load_options d;

	kvr_conf_defaults(table, &d);
	printf("kvroute-load: open-loop clients and simulated engines for kvroute\n\n"
	       "usage: kvroute-load [options]\n\n");
	kvr_conf_args_help(table, &d, 22, stdout);
}

/* --disagg P:D */
static const char *read_disagg(struct load_options *o)
{
	unsigned int p = 0, d = 0;
	char rest;

	if (o->disagg[0] == '\0')
		return NULL;
	if (sscanf(o->disagg, "%4u:%4u%c", &p, &d, &rest) != 2 || p == 0 || d == 0 ||
	    p + d > LOAD_MAX_ENGINES)
		return "--disagg: expected P:D, the numbers of prefill and decode engines, both above 0";
	if (o->policy != 0)
		return "--disagg requires --policy kv";
	o->prefills = p;
	o->engines = p + d;
	return NULL;
}

static const char *check_sessions(const struct load_options *o)
{
	if (o->sessions == 0)
		return NULL;
	if (o->trace[0] != '\0')
		return "--sessions cannot be combined with --trace";
	if (o->seconds == 0 || o->requests > 0)
		return "--sessions require --seconds instead of --requests";
	if (o->turns < 2)
		return "--sessions require --turns 2 or more";
	if (o->abandon_share + o->release_share > 1)
		return "--abandon-share + --release-share must not exceed 1";
	return NULL;
}

/* Checks that involve several options. */
static int check_options(struct load_options *o, char *err, size_t errlen)
{
	const char *bad = read_disagg(o);

	if (o->rate == 0 && o->trace[0] == '\0')
		o->rate = 50;
	if (o->seconds == 0 && o->requests == 0 && o->trace[0] == '\0')
		o->seconds = 10;
	if (o->osl == 0 && o->trace[0] == '\0')
		o->osl = 128;
	if (o->pool[0] == '\0')
		snprintf(o->pool, sizeof(o->pool), o->prefills > 0 ? "decode" : "default");
	if (bad == NULL)
		bad = check_sessions(o);
	if (bad != NULL)
		; /* given on the command line */
	else if (o->base_port + o->clients + o->engines > 65536)
		bad = "--base-port + --clients + --engines must stay below 65536";
	else if (o->track && o->direct)
		bad = "--track cannot be combined with --direct";
	else if (o->system_tokens % o->block_size != 0)
		bad = "--system-tokens must be a multiple of --block-size";
	else if (o->trace[0] != '\0' && 512 % o->block_size != 0)
		bad = "--block-size must divide 512 with --trace";
	else if (o->seconds > 0 && o->warmup >= o->seconds)
		bad = "--warmup must be shorter than --seconds";
	if (bad == NULL)
		return 1;
	snprintf(err, errlen, "%s", bad);
	return -EINVAL;
}

int load_options_parse(struct load_options *o, int argc, char **argv, char *err, size_t errlen)
{
	int rc;

	memset(o, 0, sizeof(*o));
	rc = kvr_conf_args(table, o, argc, argv, err, errlen);
	if (rc == 0)
		print_help();
	if (rc <= 0)
		return rc;
	return check_options(o, err, errlen);
}
