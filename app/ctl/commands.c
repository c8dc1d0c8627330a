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
	/* looks by people */
	DO("doctor", "", "what is wrong, one line each with the remedy; status 1 when something is",
	   ctl_doctor),
	DO("top", "", "rates, workers with their load, queues, stages; goes on until q or Ctrl-C",
	   ctl_top),
	DO("explain", "REQUEST [SOURCE]",
	   "why this request went where it went: every candidate's terms", ctl_explain),
	DO("why", "WORKER", "why this worker gets what it gets, or nothing", ctl_why),
	DO("watch", "decisions [POOL]", "decisions as they are kept, one a line", ctl_watch),
	/* reads */
	ASK("info", "", "version, uptime, sizes", "info", NULL, NULL),
	ASK("workers", "", "every worker: state, pool, bookings, silence", "workers", "workers",
	    "state pool bookings dp_start dp_size silent_ms state_ms address epoch"),
	ASK("worker", "WORKER", "one worker, rank by rank", "worker", "ranks", NULL),
	ASK("loads", "POOL", "load of every rank of a pool", "loads", "ranks", NULL),
	ASK("pools", "", "requests, KV events and table of blocks of every pool", "pools", NULL,
	    NULL),
	ASK("queue", "POOL", "what waits in a pool", "queue", NULL, NULL),
	ASK("oldest", "POOL [WORKER]", "the oldest requests in flight", "oldest", NULL, NULL),
	ASK("sessions", "", "sticky sessions of every pool", "sessions", NULL, NULL),
	ASK("events", "POOL", "KV events rank by rank: lag, gaps, dumps", "events", "ranks", NULL),
	ASK("hits", "POOL", "cached tokens: achieved and achievable, predicted and found", "hits",
	    "ranks", NULL),
	ASK("latency", "[POOL] [CLASS]", "what requests took, and how many there were", "latency",
	    NULL, NULL),
	ASK("buckets", "POOL [CLASS]", "the histograms of latency bucket by bucket", "buckets",
	    NULL, NULL),
	ASK("decisions", "POOL [NUMBER]", "newest decisions kept, or the terms of one", "decisions",
	    NULL, NULL),
	ASK("adapters", "POOL", "bookings by LoRA adapter", "adapters", "adapters", NULL),
	ASK("drops", "", "what was refused or dropped, by reason", "drops", NULL, NULL),
	ASK("refused", "", "workers whose HELLO was refused, and why", "refused", NULL, NULL),
	ASK("sources", "", "busiest source addresses, and what they have", "sources", NULL, NULL),
	ASK("stages", "", "cycles of every stage, ring depths", "stages", NULL, NULL),
	ASK("ingress", "", "datagrams by what became of them", "ingress", NULL, NULL),
	ASK("ports", "", "every port: link, counters, buffers", "ports", NULL, NULL),
	ASK("xdp", "", "frames at the XDP program of AF_XDP ports", "xdp", NULL, NULL),
	ASK("log", "", "lines logged, dropped, left out", "log", NULL, NULL),
	ASK("balance", "", "whether the counters add up", "balance", NULL, NULL),
	ASK("counters", "[TABLE] [NAME]", "every counter there is: the tables, or one of them",
	    "counters", NULL, NULL),
	ASK("config", "", "every option with its value of now", "config", "options", NULL),
	ASK("buffers", "", "every pool of memory that can run out", "buffers", NULL, NULL),
	DO("metrics", "", "metrics as Prometheus text", ctl_metrics),
	/* acts */
	ASK("drain", "WORKER [SECONDS]",
	    "no new requests for a worker; when drained it may be stopped; what is left after "
	    "SECONDS is cut off",
	    "drain", NULL, NULL),
	ASK("resume", "WORKER", "take a worker back into service", "resume", NULL, NULL),
	ASK("deactivate", "POOL", "send nothing new through a prefill pool", "deactivate", NULL,
	    NULL),
	ASK("reactivate", "POOL", "use a prefill pool again", "reactivate", NULL, NULL),
	ASK("sample", "POOL EVERY", "keep one decision in EVERY; 0 = failed ones only", "sample",
	    NULL, NULL),
	ASK("set", "KEY=VALUE [NAME [CLASS]]",
	    "change an option of all pools, of NAME, of its policy CLASS, or of the router", "set",
	    NULL, NULL),
	ASK("release", "POOL SESSION", "forget a sticky session", "session/release", NULL, NULL),
	ASK("snapshot", "[now]", "how the last snapshot went; now: write one", "snapshot", NULL,
	    NULL),
	ASK("capture", "[PORT] [FILE] [SECONDS] [FILTER]",
	    "frames of a port into a pcapng file; `stop`; alone: how it goes", "capture", NULL,
	    NULL),
	ASK("redirect", "PORT SWITCH",
	    "XDP program: on = frames to the router, off = to the kernel", "xdp/redirect", NULL,
	    NULL),
	/* others */
	DO("exporter", "", "Prometheus metrics and a web page, over HTTP at --listen",
	   ctl_exporter),
	DO("routers", "", "routers that run on this host", ctl_routers),
	DO("raw", "COMMAND", "any telemetry command, such as /kvroute/pools or /ethdev/list",
	   ctl_raw),
	DO("completion", "SHELL", "a script for bash or zsh: source <(kvroute-ctl completion bash)",
	   ctl_completion),
	DO("words", "COMMAND", "what may follow a command, for completion", ctl_words),
	{NULL, NULL, NULL, NULL, NULL, NULL, NULL},
};

const struct ctl_command *ctl_find(const char *name)
{
	for (const struct ctl_command *c = ctl_commands; c->name != NULL; c++)
		if (strcmp(c->name, name) == 0)
			return c;
	return NULL;
}

void ctl_arity(const struct ctl_command *c, int *least, int *most)
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

int completion_print(const char *shell, FILE *out)
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
	if (completion_print(argv[0], stdout) < 0)
		return ctl_say(CTL_USAGE, "completion: got \"%s\", allowed: bash, zsh", argv[0]);
	return CTL_OK;
}

static enum ctl_status print_keys(struct ctl *c, const char *command, const char *pages)
{
	enum ctl_status status;
	json_t *all = ctl_get(c, command, pages, &status), *v;
	const char *key;

	if (all == NULL)
		return status;
	json_object_foreach (pages != NULL ? json_object_get(all, pages) : all, key, v)
		/* A shell expands what it completes: words, and nothing that does more. */
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
		return print_keys(c, "/kvroute/pools", NULL);
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
