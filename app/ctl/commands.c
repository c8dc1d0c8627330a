/* SPDX-License-Identifier: BSD-3-Clause */
#include "ctl.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#define ASK(n, a, h, p, pages, columns)                                                            \
	{                                                                                          \
		n, a, h, "/kvroute/" p, pages, columns, NULL                                       \
	}
#define DO(n, a, h, f)                                                                             \
	{                                                                                          \
		n, a, h, NULL, NULL, NULL, f                                                       \
	}

const struct ctl_command ctl_commands[] = {
	/* for people */
	DO("doctor", "",
	   "findings with their remedies, one per line; exit status 1 if there are any",
	   ctl_doctor),
	DO("top", "", "rates, workers, stages, latencies, live until q or Ctrl-C", ctl_top),
	DO("explain", "REQUEST [SOURCE]",
	   "why a request was routed to its rank: the terms of each candidate", ctl_explain),
	DO("why", "WORKER", "why a worker receives few or no requests", ctl_why),
	DO("watch", "decisions [POOL]", "decisions, live, one per line", ctl_watch),
	/* reads */
	ASK("info", "", "version, uptime, sizes", "info", NULL, NULL),
	ASK("workers", "", "workers: state, pool, bookings, silence", "workers", "workers",
	    "state pool bookings dp_start dp_size silent_ms state_ms address epoch"),
	ASK("worker", "WORKER", "one worker, rank by rank", "worker", "ranks", NULL),
	ASK("loads", "POOL", "load of the ranks of a pool", "loads", "ranks", NULL),
	ASK("pools", "", "pools: requests, KV events, prefix table", "pools", "pools", NULL),
	ASK("queue", "POOL", "queue of a pool", "queue", NULL, NULL),
	ASK("oldest", "POOL [WORKER]", "the oldest requests in flight", "oldest", NULL, NULL),
	ASK("sessions", "", "sessions of the pools", "sessions", NULL, NULL),
	ASK("events", "POOL", "KV events rank by rank: lag, gaps, dumps", "events", "ranks", NULL),
	ASK("hits", "POOL", "cached tokens: achieved, achievable, predicted, found", "hits",
	    "ranks", NULL),
	ASK("latency", "[POOL] [CLASS]", "latencies and sizes: counts, means, quantiles", "latency",
	    NULL, NULL),
	ASK("buckets", "POOL [CLASS]", "buckets of the latency histograms", "buckets", NULL, NULL),
	ASK("decisions", "POOL [NUMBER]", "newest decisions, or the terms of one", "decisions",
	    NULL, NULL),
	ASK("adapters", "POOL", "bookings by LoRA adapter", "adapters", "adapters", NULL),
	ASK("drops", "", "rejections and drops, by reason", "drops", NULL, NULL),
	ASK("refused", "", "workers whose HELLO was rejected, with the reason", "refused", NULL,
	    NULL),
	ASK("sources", "", "busiest source addresses and their resources", "sources", NULL, NULL),
	ASK("stages", "", "cycles of the stages, depths of the rings", "stages", NULL, NULL),
	ASK("ingress", "", "datagrams by kind or reason of the drop", "ingress", NULL, NULL),
	ASK("ports", "", "ports: link, counters, buffers", "ports", NULL, NULL),
	ASK("xdp", "", "frames at the XDP program of AF_XDP ports", "xdp", NULL, NULL),
	ASK("log", "", "log lines written and dropped", "log", NULL, NULL),
	ASK("balance", "", "check of the counters against each other", "balance", NULL, NULL),
	ASK("counters", "[TABLE] [NAME]", "tables of counters, or one of them", "counters", NULL,
	    NULL),
	ASK("config", "", "options with their current values", "config", "options", NULL),
	ASK("buffers", "", "limited buffers: size and use", "buffers", NULL, NULL),
	DO("metrics", "", "metrics as Prometheus text", ctl_metrics),
	/* acts */
	ASK("drain", "WORKER [SECONDS]",
	    "send no new requests to a worker; cut off its requests after SECONDS", "drain", NULL,
	    NULL),
	ASK("resume", "WORKER", "end the drain of a worker", "resume", NULL, NULL),
	ASK("deactivate", "POOL", "send no new requests through a prefill pool", "deactivate", NULL,
	    NULL),
	ASK("reactivate", "POOL", "use a prefill pool again", "reactivate", NULL, NULL),
	ASK("sample", "POOL EVERY", "keep one decision in EVERY; 0 = failed ones only", "sample",
	    NULL, NULL),
	ASK("set", "KEY=VALUE [NAME [CLASS]]",
	    "change an option of all pools, of NAME, of its policy CLASS, or of the router", "set",
	    NULL, NULL),
	ASK("release", "POOL SESSION", "release the binding of a session", "session/release", NULL,
	    NULL),
	ASK("snapshot", "[now]", "result of the last snapshot; now: write one", "snapshot", NULL,
	    NULL),
	ASK("capture", "[PORT] [FILE] [SECONDS] [FILTER]",
	    "capture frames of a port into a pcapng file; `stop`; no arguments: status", "capture",
	    NULL, NULL),
	ASK("redirect", "PORT SWITCH",
	    "XDP program: on = frames to the router, off = to the kernel", "xdp/redirect", NULL,
	    NULL),
	/* others */
	DO("exporter", "", "Prometheus metrics and a web page, over HTTP at --listen",
	   ctl_exporter),
	DO("routers", "", "routers on this host", ctl_routers),
	DO("raw", "COMMAND", "any telemetry command, such as /kvroute/pools or /ethdev/list",
	   ctl_raw),
	DO("completion", "SHELL",
	   "completion script for bash or zsh: source <(kvroute-ctl completion bash)",
	   ctl_completion),
	DO("words", "COMMAND", "words that may follow a command, for completion", ctl_words),
	{NULL, NULL, NULL, NULL, NULL, NULL, NULL},
};

const struct ctl_command *ctl_find(const char *name)
{
	for (const struct ctl_command *c = ctl_commands; c->name != NULL; c++)
		if (strcmp(c->name, name) == 0)
			return c;
	return NULL;
}

void ctl_count_args(const struct ctl_command *c, int *least, int *most)
{
	*least = *most = 0;
	for (const char *p = c->args; *p != '\0'; p += strcspn(p, " ")) {
		p += strspn(p, " ");
		*most += 1;
		*least += *p != '[';
	}
}

/* ---- completion ---- */

static const char script[] =
	"_kvroute_ctl() {\n"
	"\tlocal cur=${COMP_WORDS[COMP_CWORD]}\n"
	"\tif [ \"$COMP_CWORD\" -eq 1 ]; then\n"
	"\t\tCOMPREPLY=($(compgen -W '%s' -- \"$cur\"))\n"
	"\telse\n"
	"\t\tCOMPREPLY=($(compgen -W \"$(kvroute-ctl words \"${COMP_WORDS[1]}\" 2>/dev/null)\" -- "
	"\"$cur\"))\n"
	"\tfi\n"
	"}\n"
	"complete -F _kvroute_ctl kvroute-ctl\n";

int print_completion(const char *shell, FILE *out)
{
	char words[2048];
	size_t n = 0;

	if (strcmp(shell, "bash") != 0 && strcmp(shell, "zsh") != 0)
		return -EINVAL;
	for (const struct ctl_command *c = ctl_commands; c->name != NULL; c++)
		n += (size_t)snprintf(words + n, sizeof(words) - n, "%s%s", n != 0 ? " " : "",
				      c->name);
	if (shell[0] == 'z')
		fprintf(out, "autoload -U +X bashcompinit && bashcompinit\n");
	fprintf(out, script, words);
	return 0;
}

enum ctl_status ctl_completion(struct ctl *c, int argc, char **argv)
{
	(void)c;
	(void)argc;
	if (print_completion(argv[0], stdout) < 0)
		return ctl_report(CTL_USAGE, "completion: got \"%s\", allowed: bash, zsh", argv[0]);
	return CTL_OK;
}

static enum ctl_status print_keys(struct ctl *c, const char *command, const char *pages)
{
	enum ctl_status status;
	json_t *all = ctl_query(c, command, pages, &status), *v;
	const char *key;

	if (all == NULL)
		return status;
	json_object_foreach (pages != NULL ? json_object_get(all, pages) : all, key, v)
		/* The shell expands completions: print plain words only. */
		if (key[strspn(key, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
				    "._:/-")] == '\0')
			printf("%s\n", key);
	json_decref(all);
	return CTL_OK;
}

enum ctl_status ctl_words(struct ctl *c, int argc, char **argv)
{
	const struct ctl_command *row = ctl_find(argv[0]);

	(void)argc;
	if (row == NULL)
		return CTL_OK;
	if (strncmp(row->args, "WORKER", 6) == 0)
		return print_keys(c, "/kvroute/workers", "workers");
	if (strncmp(row->args, "POOL", 4) == 0)
		return print_keys(c, "/kvroute/pools", "pools");
	if (strstr(row->args, "PORT") != NULL)
		return print_keys(c, "/kvroute/ports", NULL);
	if (strstr(row->args, "TABLE") != NULL)
		return print_keys(c, "/kvroute/counters", NULL);
	if (strcmp(row->args, "SHELL") == 0)
		printf("bash\nzsh\n");
	if (islower((unsigned char)row->args[0]))
		printf("%.*s\n", (int)strcspn(row->args, " "), row->args);
	return CTL_OK;
}
