/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SIGHUP: the file is read and checked again. Keys that nobody but the control thread reads change
 * at once; the others are named, and keep their value until a restart. A file with a mistake
 * changes nothing.
 */
#include "control/log.h"
#include "control/thread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_ctl.h"

/* What may change, in the order of their relation; the same in --dump-config's help: "SIGHUP". */
static const struct {
	const char *name;
	size_t offset;
} live[] = {
	{"heartbeat_ms", offsetof(struct kvr_router_options, heartbeat_ms)},
	{"suspect_ms", offsetof(struct kvr_router_options, suspect_ms)},
	{"dead_ms", offsetof(struct kvr_router_options, dead_ms)},
	{"stop_ms", offsetof(struct kvr_router_options, stop_ms)},
};

struct names {
	char text[400];
	size_t len;
};

static void add_name(struct names *n, const char *section, const char *key)
{
	if (n->len < sizeof(n->text))
		n->len += (size_t)snprintf(n->text + n->len, sizeof(n->text) - n->len, "%s[%s] %s",
					   n->len != 0 ? ", " : "", section, key);
}

/* The lines of the two dumps side by side: both have all keys in one order. */
static void compare(char *was, char *is, struct names *fixed)
{
	char section[KVR_ROUTER_NAME + 16] = "", *sa, *sb;
	const char *a = strtok_r(was, "\n", &sa), *b = strtok_r(is, "\n", &sb);

	for (; a != NULL && b != NULL;
	     a = strtok_r(NULL, "\n", &sa), b = strtok_r(NULL, "\n", &sb)) {
		char key[KVR_CONF_MAX_KEY + 1];

		if (a[0] == '[')
			snprintf(section, sizeof(section), "%.*s", (int)strcspn(a + 1, "]"), a + 1);
		if (strcmp(a, b) == 0)
			continue;
		if (a[0] == '[' || b[0] == '[') {
			add_name(fixed, section, "sections");
			return;
		}
		snprintf(key, sizeof(key), "%.*s", (int)strcspn(a, " "), a);
		add_name(fixed, section, key);
	}
	if (a != NULL || b != NULL)
		add_name(fixed, section, "sections");
}

static char *dump(const struct kvr_router_conf *c)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (f == NULL)
		return NULL;
	kvr_router_conf_dump(c, f);
	fclose(f);
	return text;
}

/* Take the live keys over; @changed says them. */
static void apply(struct kvr_router_options *to, const struct kvr_router_options *from,
		  struct names *changed)
{
	for (size_t i = 0; i < RTE_DIM(live); i++) {
		uint32_t *was = (uint32_t *)((char *)to + live[i].offset);
		const uint32_t is = *(const uint32_t *)((const char *)from + live[i].offset);
		char text[96];

		if (*was == is)
			continue;
		snprintf(text, sizeof(text), "%s %u -> %u", live[i].name, *was, is);
		add_name(changed, "router", text);
		*was = is;
	}
}

void reload(struct router *rt)
{
	struct kvr_router_conf *next = malloc(sizeof(*next));
	struct names changed = {.len = 0}, fixed = {.len = 0};
	char err[512], *was = NULL, *is = NULL;
	int rc;

	if (next == NULL || kvr_router_conf_load(next, rt->conf.path, err, sizeof(err)) < 0) {
		log_line(KVR_LOG_ABOUT(.level = KVR_LOG_ERROR,
				       .reason = next == NULL ? "no memory" : err),
			 "reload: nothing is changed");
		free(next);
		return;
	}
	kvr_ctl_lock();
	rc = control_told(rt, &next->opt, err, sizeof(err));
	if (rc == 0)
		apply(&rt->conf.opt, &next->opt, &changed);
	kvr_ctl_unlock();
	if (rc < 0) {
		log_line(KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .reason = err),
			 "reload: nothing is changed");
		free(next);
		return;
	}
	apply(&rt->loaded->opt, &next->opt, &(struct names){.len = 0});
	was = dump(rt->loaded);
	is = dump(next);
	if (was != NULL && is != NULL)
		compare(was, is, &fixed);
	log_line(KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE, .reason = "SIGHUP"),
		 "reload: changed: %s; only with a restart: %s",
		 changed.len != 0 ? changed.text : "nothing",
		 fixed.len != 0 ? fixed.text : "nothing");
	free(was);
	free(is);
	free(next);
}
