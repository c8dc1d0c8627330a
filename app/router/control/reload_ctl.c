/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SIGHUP: read and check the file again. Keys that /kvroute/set can change take the values of the
 * file; other changed keys are logged and keep their values until a restart. A file with an error,
 * or one that the kernel's maps reject, changes nothing.
 */
#include "config/config.h"
#include "control/log.h"
#include "control/thread.h"
#include "control/tune.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvr_telemetry.h"

/* Keys that may change, in the order of their relation; --dump-config marks them with "SIGHUP". */
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

/* The lines of @section, "[pool a]", up to an empty one; NULL: @text has no such section. */
static const char *lines_of(const char *text, const char *section, size_t len)
{
	for (const char *p = text; p != NULL; p = strstr(p, "\n[")) {
		p += *p == '\n';
		if (strncmp(p, section, len) == 0 && p[len] == '\n')
			return p + len + 1;
	}
	return NULL;
}

/* All sections of a kind have the same keys in the same order. */
static void compare_keys(const char *section, const char *a, const char *b, struct names *fixed)
{
	while (*a != '\0' && *a != '\n' && *b != '\0' && *b != '\n') {
		const size_t na = strcspn(a, "\n"), nb = strcspn(b, "\n");
		char key[KVR_CONF_MAX_KEY + 1];

		snprintf(key, sizeof(key), "%.*s", (int)strcspn(a, " \n"), a);
		if (na != nb || memcmp(a, b, na) != 0)
			add_name(fixed, section, key);
		a += na + (a[na] == '\n');
		b += nb + (b[nb] == '\n');
	}
}

/* Compare the sections of @was with those of @is; if @keys, also their keys. */
static void compare_sections(const char *was, const char *is, const char *missing, bool keys,
			     struct names *fixed)
{
	for (const char *p = was; p != NULL; p = strstr(p, "\n[")) {
		char section[2 * KVR_ROUTER_NAME + 16];
		const char *there;
		size_t len;

		p += *p == '\n';
		len = strcspn(p, "\n");
		there = lines_of(is, p, len);
		snprintf(section, sizeof(section), "%.*s", (int)strcspn(p + 1, "]\n"), p + 1);
		if (there == NULL)
			add_name(fixed, section, missing);
		else if (keys)
			compare_keys(section, p + len + (p[len] == '\n'), there, fixed);
	}
}

/* Collect changed keys of two dumps, and sections that only one of them has. */
static void compare_dumps(const char *was, const char *is, struct names *fixed)
{
	compare_sections(was, is, "(gone)", true, fixed);
	compare_sections(is, was, "(new)", false, fixed);
	if (fixed->len == 0 && strcmp(was, is) != 0)
		fixed->len =
			(size_t)snprintf(fixed->text, sizeof(fixed->text), "the order of sections");
}

static char *dump_conf(const struct kvr_router_conf *conf)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (f == NULL)
		return NULL;
	kvr_router_conf_dump(conf, f);
	fclose(f);
	return text;
}

/* Apply the run-time keys; @changed collects their names. */
static void apply_options(struct kvr_router_options *to, const struct kvr_router_options *from,
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

/* Copy one key to an object of the same kind. @return whether the value changed. */
static bool take_key(const struct kvr_opt *o, void *to, const void *from, const char *section,
		     const char *name, struct names *changed)
{
	char was[KVR_CONF_MAX_VALUE + 1], is[KVR_CONF_MAX_VALUE + 1], text[128],
		full[KVR_ROUTER_NAME + 8], err[8];

	kvr_conf_print(o, to, was, sizeof(was));
	kvr_conf_print(o, from, is, sizeof(is));
	if (strcmp(was, is) == 0)
		return false;
	kvr_conf_set(o, to, o->name, is, err, sizeof(err));
	/* Lists of prefixes are long, so print the name alone. */
	if (o->type == KVR_OPT_STRING)
		snprintf(text, sizeof(text), "%s", o->name);
	else
		snprintf(text, sizeof(text), "%s %.20s -> %.20s", o->name, was, is);
	snprintf(full, sizeof(full), "%s %s", section, name);
	add_name(changed, full, text);
	return true;
}

/* A file may add and remove sections, which need a restart; common sections do not. */
static const struct kvr_port_conf *file_port(const struct kvr_router_conf *conf, const char *name)
{
	for (uint32_t i = 0; i < conf->n_ports; i++)
		if (strcmp(conf->port[i].name, name) == 0)
			return &conf->port[i].port;
	return NULL;
}

static const struct kvr_router_pool_conf *file_pool(const struct kvr_router_conf *conf,
						    const char *name)
{
	for (uint32_t i = 0; i < conf->n_pools; i++)
		if (strcmp(conf->pool[i].name, name) == 0)
			return &conf->pool[i];
	return NULL;
}

static void take_port(struct kvr_port_conf *to, const struct kvr_port_conf *from, const char *name,
		      struct names *changed)
{
	for (const char *const *k = tune_port_keys; *k != NULL; k++)
		take_key(kvr_conf_find(kvr_port_opts, *k), to, from, "port", name, changed);
}

static bool take_pool(struct kvr_pool_conf *to, const struct kvr_pool_conf *from, const char *name,
		      struct names *changed)
{
	bool other = false;

	for (size_t i = 0; kvr_sched_tunable_key(i) != NULL; i++)
		other |= take_key(kvr_conf_find(kvr_pool_opts, kvr_sched_tunable_key(i)), to, from,
				  "pool", name, changed);
	for (uint32_t k = 0; k < to->n_classes && k < from->n_classes; k++) {
		if (strcmp(to->classes[k].name, from->classes[k].name) != 0)
			break; /* other classes need a restart */
		for (const struct kvr_opt *o = kvr_pool_class_opts; o->name != NULL; o++)
			if (kvr_sched_class_tunable(o->name))
				other |= take_key(o, &to->classes[k], &from->classes[k], "class",
						  to->classes[k].name, changed);
	}
	return other;
}

static bool take_sample(struct kvr_router_pool_conf *to, const struct kvr_router_pool_conf *from,
			struct names *changed)
{
	return take_key(kvr_router_pool_opt("decision_sample"), to, from, "pool", to->name,
			changed);
}

/* Complete new values of all that may change. */
struct change_to {
	struct kvr_port_conf port[KVR_ROUTER_MAX_PORTS];
	struct kvr_pool_conf pool[KVR_ROUTER_MAX_POOLS]; /* as the scheduler uses it */
	bool other[KVR_ROUTER_MAX_POOLS];
};

static int prepare_changes(struct router *rt, const struct kvr_router_conf *next,
			   struct change_to *to, struct names *changed, char *err, size_t errlen)
{
	int rc = 0;

	for (uint32_t i = 0; i < rt->n_ports; i++) {
		const char *name = rt->conf.port[i].name;
		const struct kvr_port_conf *from = file_port(next, name);

		to->port[i] = rt->conf.port[i].port;
		if (from != NULL)
			take_port(&to->port[i], from, name, changed);
	}
	for (uint32_t i = 0; rc == 0 && i < rt->n_pools; i++) {
		const struct kvr_router_pool_conf *from = file_pool(next, rt->conf.pool[i].name);

		to->pool[i] = *kvr_sched_conf(rt->pool[i].sched);
		if (from == NULL)
			continue;
		to->other[i] = take_pool(&to->pool[i], &from->sched, from->name, changed);
		rc = kvr_pool_conf_check(&to->pool[i], err, errlen);
	}
	return rc == 0 ? tune_ports_check(rt, to->port, err, errlen) : rc;
}

/* Cannot fail any more. */
static void change_pools(struct router *rt, const struct kvr_router_conf *next,
			 const struct change_to *to, struct names *changed)
{
	struct names ignored = {.len = 0};

	for (uint32_t i = 0; i < rt->n_pools; i++) {
		struct kvr_router_pool_conf *c = &rt->conf.pool[i];
		const struct kvr_router_pool_conf *from = file_pool(next, c->name);

		if (from == NULL)
			continue;
		if (to->other[i])
			tune_pool(rt, i, &to->pool[i]);
		take_pool(&c->sched, &from->sched, c->name, &ignored);
		if (take_sample(c, from, changed))
			tune_sample(rt, i, c->own.decision_sample);
	}
}

/* Apply all changes or none. */
static int apply_changes(struct router *rt, const struct kvr_router_conf *next,
			 struct names *changed, char *err, size_t errlen)
{
	struct change_to *to = calloc(1, sizeof(*to));
	int rc;

	if (to == NULL)
		return -ENOMEM;
	rc = control_check_times(rt, &next->opt, err, errlen);
	if (rc == 0)
		rc = prepare_changes(rt, next, to, changed, err, errlen);
	if (rc == 0) /* the kernel's maps may reject, so they come last */
		rc = tune_ports(rt, to->port, err, errlen);
	if (rc == 0) {
		change_pools(rt, next, to, changed);
		apply_options(&rt->conf.opt, &next->opt, changed);
	}
	free(to);
	return rc;
}

/* Applied changes no longer need a restart. */
static void remember_changes(struct kvr_router_conf *loaded, const struct kvr_router_conf *next)
{
	struct names ignored = {.len = 0};

	apply_options(&loaded->opt, &next->opt, &ignored);
	for (uint32_t i = 0; i < loaded->n_ports; i++) {
		const struct kvr_port_conf *from = file_port(next, loaded->port[i].name);

		if (from != NULL)
			take_port(&loaded->port[i].port, from, "", &ignored);
	}
	for (uint32_t i = 0; i < loaded->n_pools; i++) {
		const struct kvr_router_pool_conf *from = file_pool(next, loaded->pool[i].name);

		if (from == NULL)
			continue;
		take_pool(&loaded->pool[i].sched, &from->sched, "", &ignored);
		take_sample(&loaded->pool[i], from, &ignored);
	}
}

void config_reload(struct router *rt)
{
	struct kvr_router_conf *next = malloc(sizeof(*next));
	struct names changed = {.len = 0}, fixed = {.len = 0};
	char err[512], *was = NULL, *is = NULL;
	int rc;

	if (next == NULL || kvr_router_conf_load(next, rt->conf.path, err, sizeof(err)) < 0) {
		log_line(KVR_LOG_ABOUT(.level = KVR_LOG_ERROR,
				       .reason = next == NULL ? "no memory" : err),
			 "reload failed: configuration unchanged");
		free(next);
		return;
	}
	kvr_telemetry_lock();
	snprintf(err, sizeof(err), "no memory");
	rc = apply_changes(rt, next, &changed, err, sizeof(err));
	kvr_telemetry_unlock();
	if (rc < 0) {
		log_line(KVR_LOG_ABOUT(.level = KVR_LOG_ERROR, .reason = err),
			 "reload failed: configuration unchanged");
		free(next);
		return;
	}
	remember_changes(rt->loaded, next);
	was = dump_conf(rt->loaded);
	is = dump_conf(next);
	if (was != NULL && is != NULL)
		compare_dumps(was, is, &fixed);
	log_line(KVR_LOG_ABOUT(.level = KVR_LOG_NOTICE, .reason = "SIGHUP"),
		 "reload: changed: %s; need a restart: %s",
		 changed.len != 0 ? changed.text : "nothing",
		 fixed.len != 0 ? fixed.text : "nothing");
	free(was);
	free(is);
	free(next);
}
