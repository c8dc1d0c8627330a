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
	     "memif socket; empty = /run/kvroute.sock, or /tmp/kvroute-UID.sock when that is not "
	     "there"),
	TEXT("port", device, "", "DPDK device instead, e.g. net_af_packet0,iface=veth1"),
	TEXT("ip", ip, "10.77.0.2", "our address, IPv4 or IPv6"),
	TEXT("mac", mac, "", "our MAC; \"\" = the device's"),
	TEXT("router", router, "10.77.0.1", "the router's address"),
	U32("router-port", router_port, 1, 65535, "7650", "UDP port", "the router's port"),
	U32("base-port", base_port, 1024, 65535, "20000", "UDP port",
	    "our first port: one for each client, then one for each engine"),
	U32("mtu", mtu, 1280, 9000, "1500", "bytes", "IP packet size of the link"),
	U32("queues", queues, 1, LOAD_QUEUES, "1", "queues",
	    "of the device, each way; a memif router wants one for each ingress CPU"),
	PICK("spread", spread, spread_names, "flow",
	     "queue of a frame: its sender's, or the next, whatever message it is part of"),
	U32("memif-ring", ring_log2, 6, 14, "12", "log2", "frames in each memif ring"),
	U32("memory", memory_mb, 32, 65536, "128", "MiB",
	    "DPDK memory, in huge pages when so many are free"),
	U32("find", find_s, 1, 3600, "10", "s", "look for the router"),
	U32("core", core, 0, 1023, "1", "CPU", "CPU of the polling lcore"),
	PICK("idle", idle, idle_names, "poll",
	     "when there is nothing to do; sleep leaves the CPU to others and may add 0.1 ms to "
	     "what "
	     "is measured"),
	TEXT("eal", eal, "", "more EAL arguments, separated by blanks"),

	TEXT("pool", pool, "",
	     "pool the engines join and the clients use; empty = default, with --disagg decode"),
	U32("engines", engines, 1, LOAD_MAX_ENGINES, "8", "workers", "simulated engines"),
	U32("ranks", ranks, 1, 64, "2", "ranks", "data-parallel ranks of each"),
	U64("worker-base", worker_base, 1, 0x1p63, "1", "", "worker id of the first engine"),
	U32("blocks-per-rank", blocks_per_rank, 0, 1 << 26, "16384", "blocks",
	    "KV cache of a rank (LRU); 0 = none, and no KV events"),
	U32("block-size", block_size, 1, 512, "16", "tokens", "tokens of a block"),
	F64("prefill-us-per-token", prefill_us, 0, 1e6, "20", "us", "per token not cached"),
	F64("decode-us-per-token", decode_us, 0, 1e7, "1000", "us", "per token of an answer"),
	FLAG("instant", instant, "engines answer at once: no timers"),
	FLAG("engines-only", engines_only,
	     "no requests of ours: engines answer those of anybody, at once, with one item"),
	U32("max-running", max_running, 1, 65536, "256", "requests",
	    "requests a rank runs at once; more wait"),
	U32("items", items, 1, 65536, "8", "messages", "RESPONSE items of an answer, at most"),
	U32("item-bytes", item_bytes, 16, 1024, "32", "bytes", "data of an item"),

	U32("clients", clients, 1, LOAD_MAX_CLIENTS, "64", "sources", "client sources"),
	F64("rate", rate, 0, 1e8, "0", "requests/s",
	    "offered load; 0 = the trace's own, else 50 without a trace"),
	PICK("arrivals", arrivals, arrival_names, "poisson", "spacing when a rate is given"),
	F64("seconds", seconds, 0, 1e6, "0", "s",
	    "length of the schedule; 0 = until --requests or the trace ends (10 without both)"),
	F64("warmup", warmup, 0, 1e6, "0", "s", "first part of it that is not measured"),
	F64("ramp", ramp, 0, 1e6, "0", "s",
	    "first part in which --rate is reached from a tenth of it"),
	F64("drain", drain, 0, 3600, "5", "s", "wait for answers after the last request"),
	F64("slice", slice, 0, 3600, "0", "s",
	    "with --json: cached share and time to first token of each part of the schedule that "
	    "is "
	    "so long, at most 240 of them; 0 = no"),
	U64("requests", requests, 0, 0, "0", "requests", "end after so many; 0 = no limit"),
	U32("max-inflight", max_inflight, 1, 1 << 20, "65536", "requests",
	    "requests in flight at most; others count as not sent"),
	FLAG("tokens", tokens, "ROUTE carries tokens, not hashes"),
	U32("body-bytes", body_bytes, 0, KVR_WIRE_MAX_BODY, "0", "bytes", "opaque body of ROUTE"),
	U32("osl", osl, 0, 1 << 20, "0", "tokens", "answer length; 0 = the trace's, else 128"),
	FLAG("direct", direct, "answers do not pass the router, only progress does"),
	FLAG("track", track, "the last item says how the router saw it; not with --direct"),
	F64("cancel-share", cancel_share, 0, 1, "0", "", "share of requests that are cancelled"),
	PICK("policy", policy, load_policy_names, "kv",
	     "who chooses the rank: the router (kv), or this program by pinning"),
	U64("seed", seed, 0, 0, "1", "", "of content, arrivals and choices"),
	F64("repeat-ms", repeat_ms, 1, 1e5, "20", "ms",
	    "silence before a message is repeated, then doubling to 1 s"),
	U32("max-tries", max_tries, 1, 200, "20", "", "repeats before a request is given up"),

	TEXT("trace", trace, "", "Mooncake trace file instead of generated conversations"),
	F64("speedup", speedup, 1e-3, 1e9, "1", "", "compress the trace's time"),
	U32("copies", copies, 1, 100000, "1", "", "copies of the trace with disjoint content"),
	FLAG("keep-bursts", keep_bursts, "do not spread rows that share a timestamp"),
	U32("conversations", conversations, 1, 1 << 24, "200", "",
	    "conversations going on at once"),
	F64("think-time", think_time, 0, 1e6, "0", "s",
	    "mean time between turns: conversations = rate * think time"),
	U32("turns", turns, 1, 1000, "5", "", "turns of a conversation"),
	U32("system-prompts", system_prompts, 0, 1 << 20, "16", "", "shared system prompts"),
	U32("system-tokens", system_tokens, 0, 1 << 20, "1024", "tokens", "of a system prompt"),
	U32("user-tokens", user_tokens, 1, 1 << 20, "256", "tokens", "of one turn, on average"),
	F64("length-spread", length_spread, 0, 1, "0.5", "", "lengths are mean * (1 +- this)"),
	U32("content-memory", pool_mb, 1, 1 << 20, "512", "MiB",
	    "prompts made beforehand; conversations repeat when that is used up"),

	TEXT("disagg", disagg, "",
	     "P:D = P prefill and D decode engines instead of --engines, in a pair of pools as in "
	     "drivers-cfg/profiles/memif-disagg.conf"),
	TEXT("prefill-pool", prefill_pool, "prefill", "pool of the prefill engines"),
	F64("bootstrap-share", bootstrap_share, 0, 1, "0.5", "",
	    "share of the prefill engines that publish a bootstrap address"),

	U32("sessions", sessions, 0, 65536, "0", "sessions",
	    "sessions going on at once, --turns turns each; --rate is that of their turns"),
	U32("session-timeout", session_timeout, 1, 86400, "2", "s", "idle time of a session"),
	F64("abandon-share", abandon_share, 0, 1, "0.1", "", "share that just stops"),
	F64("release-share", release_share, 0, 1, "0.1", "", "share ended by SESSION_RELEASE"),
	F64("open-fail-share", open_fail_share, 0, 1, "0", "", "share that engines do not open"),
	FLAG("affinity", affinity, "sessions have ids and no actions: affinity alone binds them"),

	F64("kill-every", kill_every, 0, 1e6, "0", "s",
	    "an engine dies this often and returns as a new life; 0 = never"),
	F64("kill-down", kill_down, 0.01, 1e6, "1", "s", "how long it is away"),
	PICK("kill-mode", kill_mode, kill_names, "goodbye", "whether the router is told"),

	FLAG("json", json, "print the result as one JSON object, nothing else on stdout"),
	FLAG("quiet", quiet, "no progress"),
	{0},
};

static void help(void)
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
		return "--disagg takes P:D, the numbers of prefill and decode engines, both above "
		       "0";
	if (o->policy != 0)
		return "--disagg goes with --policy kv only";
	o->prefills = p;
	o->engines = p + d;
	return NULL;
}

static const char *check_sessions(const struct load_options *o)
{
	if (o->sessions == 0)
		return NULL;
	if (o->trace[0] != '\0')
		return "--sessions make conversations, not those of a --trace";
	if (o->seconds == 0 || o->requests > 0)
		return "--sessions end after --seconds, not after --requests";
	if (o->turns < 2)
		return "--sessions take --turns 2 or more";
	if (o->abandon_share + o->release_share > 1)
		return "--abandon-share + --release-share must not exceed 1";
	return NULL;
}

/* What one table row alone cannot say. */
static int check(struct load_options *o, char *err, size_t errlen)
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
		; /* said */
	else if (o->base_port + o->clients + o->engines > 65536)
		bad = "--base-port + --clients + --engines must stay below 65536";
	else if (o->track && o->direct)
		bad = "--track needs answers that pass the router: not with --direct";
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
		help();
	if (rc <= 0)
		return rc;
	return check(o, err, errlen);
}
