/* SPDX-License-Identifier: BSD-3-Clause */
/* Asks the read commands of a router one after the other, and the kernel for its threads. */
#include "sample.h"

#include <ctype.h>
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Commands of the router, with the member that comes in pages. */
static const struct {
	const char *name, *pages;
} router_commands[] = {
	{"info", NULL},	 {"workers", "workers"}, {"pools", "pools"}, {"sessions", NULL},
	{"drops", NULL}, {"log", NULL},		 {"stages", NULL},   {"ingress", NULL},
	{"ports", NULL}, {"balance", NULL},	 {"refused", NULL},  {"buffers", NULL},
	{"xdp", NULL},
};

/* Commands with a pool as parameter. */
static const struct {
	const char *name, *command, *pages;
} pool_commands[] = {
	{"sched", "/kvroute/counters,sched,%s", NULL}, {"decisions", "/kvroute/decisions,%s", NULL},
	{"loads", "/kvroute/loads,%s", "ranks"},       {"queue", "/kvroute/queue,%s", NULL},
	{"events", "/kvroute/events,%s", "ranks"},     {"hits", "/kvroute/hits,%s", "ranks"},
	{"latency", "/kvroute/latency,%s", NULL},      {"oldest", "/kvroute/oldest,%s", NULL},
	{"buckets", "/kvroute/buckets,%s", NULL},
};

double sample_to_number(const json_t *v)
{
	if (json_is_string(v))
		return strtod(json_string_value(v), NULL);
	return json_is_number(v) ? json_number_value(v) : 0;
}

uint64_t sample_to_id(const json_t *v)
{
	return json_is_string(v) ? strtoull(json_string_value(v), NULL, 0)
				 : (uint64_t)json_integer_value(v);
}

const json_t *sample_get(const json_t *sample, ...)
{
	const char *name;
	va_list ap;

	va_start(ap, sample);
	while (sample != NULL && (name = va_arg(ap, const char *)) != NULL)
		sample = json_object_get(sample, name);
	va_end(ap);
	return sample;
}

/* ---- threads ---- */

static int read_line(const char *path, char *line, int len)
{
	FILE *f = fopen(path, "re");
	int rc = -1;

	if (f == NULL)
		return -1;
	if (fgets(line, len, f) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		rc = 0;
	}
	fclose(f);
	return rc;
}

/* Polling threads, by the names that DPDK gives them. schedstat: time on the CPU, time runnable but
 * waiting for it. */
static json_t *read_threads(long pid)
{
	json_t *all = json_object();
	char path[128], name[64], line[128];
	struct dirent *e;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%ld/comm", pid);
	if (pid <= 0 || read_line(path, name, sizeof(name)) < 0 || strstr(name, "kvroute") == NULL)
		return all; /* process of another host or namespace */
	snprintf(path, sizeof(path), "/proc/%ld/task", pid);
	d = opendir(path);
	while (d != NULL && (e = readdir(d)) != NULL) {
		unsigned long long ran, waited;
		json_t *one;

		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		snprintf(path, sizeof(path), "/proc/%ld/task/%.20s/comm", pid, e->d_name);
		if (read_line(path, name, sizeof(name)) < 0 || strstr(name, "worker") == NULL)
			continue;
		snprintf(path, sizeof(path), "/proc/%ld/task/%.20s/schedstat", pid, e->d_name);
		if (read_line(path, line, sizeof(line)) < 0 ||
		    sscanf(line, "%llu %llu", &ran, &waited) != 2)
			continue;
		one = json_pack("{s:s, s:f, s:f}", "name", name, "run_ms", (double)ran / 1e6,
				"wait_ms", (double)waited / 1e6);
		json_object_set_new(all, e->d_name, one);
	}
	if (d != NULL)
		closedir(d);
	return all;
}

/* ---- sample ---- */

/* Leave out answers that are null or errors. @return 0; -1: connection lost. */
static int add_answer(struct tel *t, json_t *to, const char *name, const char *command,
		      const char *pages, char *err, size_t errlen)
{
	json_t *answer = tel_ask_pages(t, command, pages, err, errlen);

	if (answer == NULL)
		return -1;
	if (json_is_null(answer) || tel_is_error(answer))
		json_decref(answer);
	else
		json_object_set_new(to, name, answer);
	return 0;
}

static bool has_command(const json_t *commands, const char *command)
{
	const size_t len = strcspn(command, ",");
	size_t i;
	json_t *c;

	json_array_foreach ((json_t *)(uintptr_t)commands, i, c)
		if (json_string_length(c) == len &&
		    strncmp(json_string_value(c), command, len) == 0)
			return true;
	return false;
}

static double read_clock(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int ask_commands(struct tel *t, json_t *sample, const json_t *known, char *err,
			size_t errlen)
{
	char command[256];
	const char *pool;
	json_t *value;

	for (size_t i = 0; i < sizeof(router_commands) / sizeof(router_commands[0]); i++) {
		snprintf(command, sizeof(command), "/kvroute/%s", router_commands[i].name);
		if (has_command(known, command) &&
		    add_answer(t, sample, router_commands[i].name, command,
			       router_commands[i].pages, err, errlen) < 0)
			return -1;
		if (strcmp(router_commands[i].name, "pools") == 0) /* without their number */
			json_object_set(sample, "pools",
					json_object_get(json_object_get(sample, "pools"), "pools"));
		if (i == 0) /* info, with the router's clock */
			json_object_set_new(sample, "info_at", json_real(read_clock()));
	}
	for (size_t i = 0; i < sizeof(pool_commands) / sizeof(pool_commands[0]); i++) {
		json_t *all = json_object();

		json_object_set_new(sample, pool_commands[i].name, all);
		if (!has_command(known, pool_commands[i].command))
			continue;
		json_object_foreach (json_object_get(sample, "pools"), pool, value) {
			const char *name =
				json_string_value(json_object_get(value, "name")); /* unchanged */

			snprintf(command, sizeof(command), pool_commands[i].command,
				 name != NULL ? name : pool);
			if (add_answer(t, all, pool, command, pool_commands[i].pages, err, errlen) <
			    0)
				return -1;
		}
	}
	return 0;
}

json_t *sample_take(struct tel *t, char *err, size_t errlen)
{
	json_t *known = tel_ask(t, "/", err, errlen), *sample;

	if (known == NULL)
		return NULL;
	sample = json_object();
	json_object_set_new(sample, "at", json_real(read_clock()));
	json_object_set_new(sample, "router", json_string(t->prefix));
	if (ask_commands(t, sample, known, err, errlen) < 0) {
		json_decref(sample);
		sample = NULL;
	} else {
		json_object_set_new(sample, "host", read_threads(t->pid));
	}
	json_decref(known);
	return sample;
}
