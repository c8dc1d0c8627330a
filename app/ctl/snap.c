/* SPDX-License-Identifier: BSD-3-Clause */
#include "snap.h"

#include <ctype.h>
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Asked as they are, and where their list stands when it comes in parts. */
static const struct {
	const char *name, *pages;
} whole[] = {
	{"info", NULL},	 {"workers", "workers"}, {"pools", NULL},   {"sessions", NULL},
	{"drops", NULL}, {"log", NULL},		 {"stages", NULL},  {"ingress", NULL},
	{"ports", NULL}, {"balance", NULL},	 {"refused", NULL}, {"buffers", NULL},
	{"xdp", NULL},
};

/* Asked once for each pool. */
static const struct {
	const char *name, *command, *pages;
} by_pool[] = {
	{"sched", "/kvroute/counters,sched,%s", NULL}, {"decisions", "/kvroute/decisions,%s", NULL},
	{"loads", "/kvroute/loads,%s", "ranks"},       {"queue", "/kvroute/queue,%s", NULL},
	{"events", "/kvroute/events,%s", "ranks"},     {"hits", "/kvroute/hits,%s", "ranks"},
	{"latency", "/kvroute/latency,%s", NULL},      {"oldest", "/kvroute/oldest,%s", NULL},
	{"buckets", "/kvroute/buckets,%s", NULL},
};

double snap_number(const json_t *v)
{
	if (json_is_string(v))
		return strtod(json_string_value(v), NULL);
	return json_is_number(v) ? json_number_value(v) : 0;
}

uint64_t snap_id(const json_t *v)
{
	return json_is_string(v) ? strtoull(json_string_value(v), NULL, 0)
				 : (uint64_t)json_integer_value(v);
}

const json_t *snap_at(const json_t *snap, ...)
{
	const char *name;
	va_list ap;

	va_start(ap, snap);
	while (snap != NULL && (name = va_arg(ap, const char *)) != NULL)
		snap = json_object_get(snap, name);
	va_end(ap);
	return snap;
}

/* ---- what the kernel says ---- */

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

/* Threads that poll: DPDK names them so. schedstat: ran, waited while it could have run. */
static json_t *host(long pid)
{
	json_t *all = json_object();
	char path[128], name[64], line[128];
	struct dirent *e;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%ld/comm", pid);
	if (pid <= 0 || read_line(path, name, sizeof(name)) < 0 || strstr(name, "kvroute") == NULL)
		return all; /* another host's, or another namespace's */
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

/* ---- all of it ---- */

/* @return 0; -1: the connection is gone. What is null or refused is left out. */
static int add(struct tel *t, json_t *to, const char *name, const char *command, const char *pages,
	       char *err, size_t errlen)
{
	json_t *answer = tel_ask_all(t, command, pages, err, errlen);

	if (answer == NULL)
		return -1;
	if (json_is_null(answer) || tel_refused(answer))
		json_decref(answer);
	else
		json_object_set_new(to, name, answer);
	return 0;
}

static bool knows(const json_t *commands, const char *command)
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

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int take(struct tel *t, json_t *snap, const json_t *known, char *err, size_t errlen)
{
	char command[256];
	const char *pool;
	json_t *value;

	for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
		snprintf(command, sizeof(command), "/kvroute/%s", whole[i].name);
		if (knows(known, command) &&
		    add(t, snap, whole[i].name, command, whole[i].pages, err, errlen) < 0)
			return -1;
		if (i == 0) /* info, which has the router's clock */
			json_object_set_new(snap, "info_at", json_real(seconds()));
	}
	for (size_t i = 0; i < sizeof(by_pool) / sizeof(by_pool[0]); i++) {
		json_t *all = json_object();

		json_object_set_new(snap, by_pool[i].name, all);
		if (!knows(known, by_pool[i].command))
			continue;
		json_object_foreach (json_object_get(snap, "pools"), pool, value) {
			const char *name =
				json_string_value(json_object_get(value, "name")); /* unchanged */

			snprintf(command, sizeof(command), by_pool[i].command,
				 name != NULL ? name : pool);
			if (add(t, all, pool, command, by_pool[i].pages, err, errlen) < 0)
				return -1;
		}
	}
	return 0;
}

json_t *snap_take(struct tel *t, char *err, size_t errlen)
{
	json_t *known = tel_ask(t, "/", err, errlen), *snap;

	if (known == NULL)
		return NULL;
	snap = json_object();
	json_object_set_new(snap, "at", json_real(seconds()));
	json_object_set_new(snap, "router", json_string(t->prefix));
	if (take(t, snap, known, err, errlen) < 0) {
		json_decref(snap);
		snap = NULL;
	} else {
		json_object_set_new(snap, "host", host(t->pid));
	}
	json_decref(known);
	return snap;
}
