/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registry of commands. rte_telemetry cannot remove a path, so a slot per path outlives its
 * registration. One lock serialises all handlers.
 */
#include "kvr_telemetry.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <rte_telemetry.h>

#define MAX_PATH 56u /* limit of rte_telemetry, including the terminator */

/* A path cannot be removed from rte_telemetry; cmd is NULL while the path is not registered. */
struct slot {
	char path[MAX_PATH];
	const struct kvr_telemetry_cmd *cmd;
	void *arg;
};

/* Protects the slots and, for the users of this library, the data that their handlers read. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slot slots[KVR_TELEMETRY_MAX_CMDS];
static unsigned int n_slots;
static uint64_t paced_ns; /* time slot of the last command */
static char
	handler_error[RTE_TEL_MAX_STRING_LEN + 32]; /* error of the running handler; "" = none */
static void (*on_act)(const char *path, const char *params, const char *error);

void kvr_telemetry_lock(void)
{
	pthread_mutex_lock(&lock);
}

void kvr_telemetry_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

static struct slot *find_slot(const char *path)
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
	snprintf(handler_error, sizeof(handler_error), "%s: %s", name != NULL ? name : "EIO", text);
	rte_tel_data_start_dict(d); /* discards what was filled in */
	rte_tel_data_add_dict_string(d, "error", name != NULL ? name : "EIO");
	rte_tel_data_add_dict_string(d, "message", text);
	return 0;
}

static int run_handler(const char *path, const char *params, struct rte_tel_data *d)
{
	const struct slot *slot = find_slot(path);
	int rc;

	if (slot == NULL)
		return kvr_telemetry_error(d, ENOENT, "unknown command %s", path);
	if (slot->cmd == NULL)
		return kvr_telemetry_error(d, ESHUTDOWN, "%s is no longer served", path);
	if (slot->cmd->params == NULL && params[0] != '\0')
		return kvr_telemetry_error(d, EINVAL, "%s takes no parameters", path);
	handler_error[0] = '\0';
	rc = slot->cmd->handler(slot->arg, params, d);
	/* A negative result would reach the client as null without a reason. */
	if (rc < 0)
		kvr_telemetry_error(d, rc, "%s failed: %s", path, strerror(-rc));
	if (slot->cmd->acts && on_act != NULL)
		on_act(path, params, handler_error[0] != '\0' ? handler_error : NULL);
	return 0;
}

void kvr_telemetry_on_act(void (*fn)(const char *path, const char *params, const char *error))
{
	kvr_telemetry_lock();
	on_act = fn;
	kvr_telemetry_unlock();
}

/* A command above the rate waits before it takes the lock, where it delays no other. */
static void wait_for_turn(void)
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

	wait_for_turn();
	kvr_telemetry_lock();
	rc = run_handler(path, params != NULL ? params : "", d);
	kvr_telemetry_unlock();
	return rc;
}

/* rte_telemetry allows letters, digits, '_' and '/'; this library allows lower case only. */
static bool good_path(const char *p)
{
	if (p[0] != '/' || strlen(p) >= MAX_PATH)
		return false;
	return p[strspn(p, "/_abcdefghijklmnopqrstuvwxyz0123456789")] == '\0';
}

static int check_table(const struct kvr_telemetry_cmd *table)
{
	unsigned int fresh = 0;

	for (const struct kvr_telemetry_cmd *cmd = table; cmd->path != NULL; cmd++) {
		const struct slot *slot = find_slot(cmd->path);

		if (!good_path(cmd->path) || cmd->handler == NULL || cmd->help == NULL)
			return -EINVAL;
		if (slot != NULL && slot->cmd != NULL)
			return -EEXIST;
		for (const struct kvr_telemetry_cmd *o = table; o < cmd; o++)
			if (strcmp(o->path, cmd->path) == 0)
				return -EEXIST;
		fresh += slot == NULL;
	}
	return fresh > KVR_TELEMETRY_MAX_CMDS - n_slots ? -ENOSPC : 0;
}

static int add_slot(const struct kvr_telemetry_cmd *cmd, void *arg)
{
	struct slot *slot = find_slot(cmd->path);
	char help[RTE_TEL_MAX_STRING_LEN];
	int rc;

	if (slot == NULL) {
		snprintf(help, sizeof(help), "%s%s%s", cmd->help,
			 cmd->params != NULL ? ". Parameters: " : "",
			 cmd->params != NULL ? cmd->params : "");
		rc = rte_telemetry_register_cmd(cmd->path, kvr_telemetry_call, help);
		if (rc != 0)
			return rc;
		slot = &slots[n_slots++];
		snprintf(slot->path, sizeof(slot->path), "%s", cmd->path);
	}
	slot->cmd = cmd;
	slot->arg = arg;
	return 0;
}

static void clear_slots(const struct kvr_telemetry_cmd *table)
{
	for (const struct kvr_telemetry_cmd *cmd = table; cmd->path != NULL; cmd++) {
		struct slot *slot = find_slot(cmd->path);

		if (slot != NULL && slot->cmd == cmd)
			slot->cmd = NULL;
	}
}

int kvr_telemetry_register(const struct kvr_telemetry_cmd *table, void *arg)
{
	int rc;

	kvr_telemetry_lock();
	rc = check_table(table);
	for (const struct kvr_telemetry_cmd *cmd = table; rc == 0 && cmd->path != NULL; cmd++)
		rc = add_slot(cmd, arg);
	if (rc != 0 && rc != -EEXIST)
		clear_slots(table);
	kvr_telemetry_unlock();
	return rc;
}

void kvr_telemetry_unregister(const struct kvr_telemetry_cmd *table)
{
	kvr_telemetry_lock(); /* waits for a running handler */
	clear_slots(table);
	kvr_telemetry_unlock();
}

/*
 * Length of the first part of a long text: up to the last blank, comma or slash that fits, if there
 * is one.
 */
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
