/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_telemetry.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <rte_telemetry.h>

#define MAX_PATH 56u /* rte_telemetry's limit, terminator included */

/* A path once given to rte_telemetry stays there; cmd is NULL while nobody serves it. */
struct slot {
	char path[MAX_PATH];
	const struct kvr_telemetry_cmd *cmd;
	void *arg;
};

/* The lock protects the slots and, for our users, what their handlers read. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slot slots[KVR_TELEMETRY_MAX_CMDS];
static unsigned int n_slots;
static uint64_t paced_ns;		       /* the place of the last command in time */
static char said[RTE_TEL_MAX_STRING_LEN + 32]; /* error of the running handler, "": none */
static void (*on_act)(const char *path, const char *params, const char *error);

void kvr_telemetry_lock(void)
{
	pthread_mutex_lock(&lock);
}

void kvr_telemetry_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

static struct slot *find(const char *path)
{
	for (unsigned int i = 0; i < n_slots; i++)
		if (strcmp(slots[i].path, path) == 0)
			return &slots[i];
	return NULL;
}

int kvr_telemetry_error(struct rte_tel_data *d, int err, const char *fmt, ...)
{
	char text[RTE_TEL_MAX_STRING_LEN];
	const char *name = strerrorname_np(err < 0 ? -err : err);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(said, sizeof(said), "%s: %s", name != NULL ? name : "EIO", text);
	rte_tel_data_start_dict(d); /* forgets what was filled in */
	rte_tel_data_add_dict_string(d, "error", name != NULL ? name : "EIO");
	rte_tel_data_add_dict_string(d, "message", text);
	return 0;
}

static int run(const char *path, const char *params, struct rte_tel_data *d)
{
	const struct slot *s = find(path);
	int rc;

	if (s == NULL)
		return kvr_telemetry_error(d, ENOENT, "no command %s", path);
	if (s->cmd == NULL)
		return kvr_telemetry_error(d, ESHUTDOWN, "%s is not served any more", path);
	if (s->cmd->params == NULL && params[0] != '\0')
		return kvr_telemetry_error(d, EINVAL, "%s takes no parameters", path);
	said[0] = '\0';
	rc = s->cmd->handler(s->arg, params, d);
	/* Negative would reach the client as null, without a word. */
	if (rc < 0)
		kvr_telemetry_error(d, rc, "%s failed: %s", path, strerror(-rc));
	if (s->cmd->acts && on_act != NULL)
		on_act(path, params, said[0] != '\0' ? said : NULL);
	return 0;
}

void kvr_telemetry_on_act(void (*fn)(const char *path, const char *params, const char *error))
{
	kvr_telemetry_lock();
	on_act = fn;
	kvr_telemetry_unlock();
}

/* Whoever comes too early waits before the lock, where he is in nobody's way. */
static void pace(void)
{
	struct timespec t;
	uint64_t wait;

	clock_gettime(CLOCK_MONOTONIC, &t);
	kvr_telemetry_lock();
	wait = kvr_telemetry_pace(&paced_ns,
				  (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec);
	kvr_telemetry_unlock();
	t = (struct timespec){(time_t)(wait / 1000000000), (long)(wait % 1000000000)};
	if (wait != 0)
		nanosleep(&t, NULL);
}

int kvr_telemetry_call(const char *path, const char *params, struct rte_tel_data *d)
{
	int rc;

	pace();
	kvr_telemetry_lock();
	rc = run(path, params != NULL ? params : "", d);
	kvr_telemetry_unlock();
	return rc;
}

/* rte_telemetry allows letters, digits, '_' and '/'; we want one spelling. */
static bool good_path(const char *p)
{
	if (p[0] != '/' || strlen(p) >= MAX_PATH)
		return false;
	return p[strspn(p, "/_abcdefghijklmnopqrstuvwxyz0123456789")] == '\0';
}

static int check_table(const struct kvr_telemetry_cmd *table)
{
	unsigned int fresh = 0;

	for (const struct kvr_telemetry_cmd *c = table; c->path != NULL; c++) {
		const struct slot *s = find(c->path);

		if (!good_path(c->path) || c->handler == NULL || c->help == NULL)
			return -EINVAL;
		if (s != NULL && s->cmd != NULL)
			return -EEXIST;
		for (const struct kvr_telemetry_cmd *o = table; o < c; o++)
			if (strcmp(o->path, c->path) == 0)
				return -EEXIST;
		fresh += s == NULL;
	}
	return fresh > KVR_TELEMETRY_MAX_CMDS - n_slots ? -ENOSPC : 0;
}

static int add_slot(const struct kvr_telemetry_cmd *c, void *arg)
{
	struct slot *s = find(c->path);
	char help[RTE_TEL_MAX_STRING_LEN];
	int rc;

	if (s == NULL) {
		snprintf(help, sizeof(help), "%s%s%s", c->help,
			 c->params != NULL ? ". Parameters: " : "",
			 c->params != NULL ? c->params : "");
		rc = rte_telemetry_register_cmd(c->path, kvr_telemetry_call, help);
		if (rc != 0)
			return rc;
		s = &slots[n_slots++];
		snprintf(s->path, sizeof(s->path), "%s", c->path);
	}
	s->cmd = c;
	s->arg = arg;
	return 0;
}

static void drop(const struct kvr_telemetry_cmd *table)
{
	for (const struct kvr_telemetry_cmd *c = table; c->path != NULL; c++) {
		struct slot *s = find(c->path);

		if (s != NULL && s->cmd == c)
			s->cmd = NULL;
	}
}

int kvr_telemetry_register(const struct kvr_telemetry_cmd *table, void *arg)
{
	int rc;

	kvr_telemetry_lock();
	rc = check_table(table);
	for (const struct kvr_telemetry_cmd *c = table; rc == 0 && c->path != NULL; c++)
		rc = add_slot(c, arg);
	if (rc != 0 && rc != -EEXIST)
		drop(table);
	kvr_telemetry_unlock();
	return rc;
}

void kvr_telemetry_unregister(const struct kvr_telemetry_cmd *table)
{
	kvr_telemetry_lock(); /* a running handler holds it */
	drop(table);
	kvr_telemetry_unlock();
}

/* Of a text that is longer than a part, as much as there is room for: behind a blank, where there
 * is one, or a comma, or a slash. */
static size_t part_len(const char *text)
{
	const size_t room = RTE_TEL_MAX_STRING_LEN - 1;

	for (const char *end = " ,/"; *end != '\0'; end++) {
		const char *at = memrchr(text, *end, room);

		if (at != NULL)
			return (size_t)(at - text) + 1;
	}
	return room;
}

int kvr_telemetry_dict_text(struct rte_tel_data *d, const char *name, const char *text)
{
	char part[RTE_TEL_MAX_STRING_LEN], key[RTE_TEL_MAX_STRING_LEN];
	struct rte_tel_data *parts;

	if (strlen(text) < sizeof(part))
		return rte_tel_data_add_dict_string(d, kvr_telemetry_key(key, sizeof(key), name),
						    text);
	parts = rte_tel_data_alloc();
	if (parts == NULL)
		return -ENOMEM;
	rte_tel_data_start_array(parts, RTE_TEL_STRING_VAL);
	while (*text != '\0') {
		const size_t n = strlen(text) < sizeof(part) ? strlen(text) : part_len(text);

		snprintf(part, sizeof(part), "%.*s", (int)n, text);
		rte_tel_data_add_array_string(parts, part);
		text += n;
	}
	return kvr_telemetry_dict_part(d, name, parts);
}

int kvr_telemetry_dict_f64(struct rte_tel_data *d, const char *name, double v, int decimals)
{
	char text[64];

	snprintf(text, sizeof(text), "%.*f", decimals, v);
	return rte_tel_data_add_dict_string(d, name, text);
}

const char *kvr_telemetry_key(char *key, size_t len, const char *name)
{
	snprintf(key, len, "%s", name);
	for (char *c = key; *c != '\0'; c++)
		if (!isalnum((unsigned char)*c) && strchr("_/[]", *c) == NULL)
			*c = '_';
	return key;
}

int kvr_telemetry_dict_part(struct rte_tel_data *d, const char *name, struct rte_tel_data *part)
{
	char key[RTE_TEL_MAX_STRING_LEN];
	int rc;

	if (part == NULL)
		return -ENOMEM;
	rc = rte_tel_data_add_dict_container(d, kvr_telemetry_key(key, sizeof(key), name), part, 0);
	if (rc != 0)
		rte_tel_data_free(part);
	return rc;
}
