/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Run-time changes of keys: of pools, policy classes, ports and the router. A value is checked at
 * all its targets before it is set at any, so a rejected value changes nothing.
 */
#include "telemetry/set.h"

#include <errno.h>
#include <string.h>

#include "config/config.h"
#include "control/control.h"
#include "control/log.h"
#include "control/tune.h"
#include "state/router.h"
#include "telemetry/commands.h"

struct setting {
	struct router *rt;
	const char *key, *value;
	const char *name;	   /* a pool or port; NULL: all */
	const char *policy_class;  /* a policy class; NULL: all */
	struct rte_tel_data *list; /* results; NULL: only check */
	uint32_t n;		   /* number of targets */
	bool unknown;		   /* unknown key: the error lists the known ones */
	char err[240];
};

static void add_result(struct setting *setting, const char *name, const struct kvr_opt *o,
		       const void *obj)
{
	char text[KVR_CONF_MAX_VALUE + 1];

	kvr_conf_print(o, obj, text, sizeof(text));
	kvr_telemetry_dict_text(setting->list, name, text);
}

/* kvr_conf_set() reports the allowed values, not the key. */
static int take_value(struct setting *setting, const struct kvr_opt *table, void *obj)
{
	char why[160];
	const int rc = kvr_conf_set(table, obj, setting->key, setting->value, why, sizeof(why));

	if (rc < 0)
		snprintf(setting->err, sizeof(setting->err), "%.64s: %s", setting->key, why);
	return rc;
}

/* ---- pools ---- */

static int set_tunable(struct setting *setting, uint32_t i)
{
	static struct kvr_pool_conf next; /* handlers run one at a time */
	struct kvr_router_pool_conf *c = &setting->rt->conf.pool[i];
	int rc;

	next = *kvr_sched_conf(setting->rt->pool[i].sched);
	rc = take_value(setting, kvr_pool_opts, &next);
	if (rc == 0)
		rc = kvr_pool_conf_check(&next, setting->err, sizeof(setting->err));
	if (rc < 0 || setting->list == NULL)
		return rc;
	tune_pool(setting->rt, i, &next);
	kvr_pool_conf_set(&c->sched, setting->key, setting->value, setting->err,
			  sizeof(setting->err));
	add_result(setting, c->name, kvr_router_pool_opt(setting->key), c);
	return 0;
}

static int set_sample(struct setting *setting, uint32_t i)
{
	struct kvr_router_pool_conf *c = &setting->rt->conf.pool[i];
	struct kvr_router_pool_conf next = *c;
	const int rc = take_value(setting, kvr_router_pool_opt(setting->key), &next);

	if (rc < 0 || setting->list == NULL)
		return rc;
	tune_sample(setting->rt, i, next.own.decision_sample);
	c->own.decision_sample = next.own.decision_sample;
	add_result(setting, c->name, kvr_router_pool_opt(setting->key), c);
	return 0;
}

static int set_pools(struct setting *setting, int (*set)(struct setting *setting, uint32_t i))
{
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < setting->rt->n_pools; i++)
		if (setting->name == NULL ||
		    strcmp(setting->rt->pool[i].name, setting->name) == 0) {
			setting->n++;
			rc = set(setting, i);
		}
	return rc;
}

/* ---- ports ---- */

static bool is_for(const struct setting *setting, uint32_t port)
{
	return setting->name == NULL ||
	       strcmp(setting->rt->conf.port[port].name, setting->name) == 0;
}

/* Keys of the XDP program: a port without a program of kvroute would report success and do nothing.
 */
static bool port_has_program(const struct setting *setting, uint32_t port)
{
	return strncmp(setting->key, "xdp_", 4) != 0 ||
	       kvr_port_xdp_redirects(setting->rt->port[port]) != -ENOTSUP;
}

/* @p next: of every port. @return 0; the error of the value; -ENOTSUP: no port can. */
static int next_ports(struct setting *setting, struct kvr_port_conf next[])
{
	uint32_t who = 0;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < setting->rt->n_ports; i++) {
		next[i] = setting->rt->conf.port[i].port;
		if (!is_for(setting, i))
			continue;
		setting->n++;
		rc = take_value(setting, kvr_port_opts, &next[i]);
		if (port_has_program(setting, i))
			who++;
		else
			next[i] = setting->rt->conf.port[i].port;
	}
	if (rc == 0 && setting->n != 0 && who == 0) {
		snprintf(setting->err, sizeof(setting->err),
			 "%.64s: no XDP program of kvroute at %s%.64s", setting->key,
			 setting->name != NULL ? "port " : "any port",
			 setting->name != NULL ? setting->name : "");
		rc = -ENOTSUP;
	}
	return rc;
}

static int set_ports(struct setting *setting)
{
	static struct kvr_port_conf next[KVR_ROUTER_MAX_PORTS]; /* handlers run one at a time */
	int rc = next_ports(setting, next);

	if (rc == 0)
		rc = tune_ports_check(setting->rt, next, setting->err, sizeof(setting->err));
	if (rc < 0 || setting->list == NULL)
		return rc;
	rc = tune_ports(setting->rt, next, setting->err, sizeof(setting->err));
	for (uint32_t i = 0; rc == 0 && i < setting->rt->n_ports; i++)
		if (is_for(setting, i) && port_has_program(setting, i))
			add_result(setting, setting->rt->conf.port[i].name,
				   kvr_conf_find(kvr_port_opts, setting->key),
				   &setting->rt->conf.port[i].port);
	return rc;
}

/* ---- policy classes ---- */

/* Pools without policy classes are skipped, unless one is named. */
static int set_classes(struct setting *setting, uint32_t i)
{
	static struct kvr_pool_conf next; /* handlers run one at a time */
	struct kvr_router_pool_conf *c = &setting->rt->conf.pool[i];
	const struct kvr_opt *o = kvr_conf_find(kvr_pool_class_opts, setting->key);
	char name[2 * KVR_POOL_NAME_MAX + 2];
	int rc = 0;

	next = *kvr_sched_conf(setting->rt->pool[i].sched);
	setting->n--;
	for (uint32_t k = 0; rc == 0 && k < next.n_classes; k++) {
		struct kvr_pool_class *to = &next.classes[k];

		if (setting->policy_class != NULL && strcmp(to->name, setting->policy_class) != 0)
			continue;
		setting->n++;
		rc = take_value(setting, o, to);
	}
	if (rc == 0)
		rc = kvr_pool_conf_check(&next, setting->err, sizeof(setting->err));
	if (rc < 0 || setting->list == NULL)
		return rc;
	tune_pool(setting->rt, i, &next);
	for (uint32_t k = 0; k < next.n_classes; k++) {
		if (setting->policy_class != NULL &&
		    strcmp(next.classes[k].name, setting->policy_class) != 0)
			continue;
		c->sched.classes[k] = next.classes[k];
		snprintf(name, sizeof(name), "%s/%s", c->name, next.classes[k].name);
		add_result(setting, name, o, &next.classes[k]);
	}
	return 0;
}

/* ---- the router ---- */

static int set_router(struct setting *setting)
{
	const struct kvr_opt *o = kvr_router_opt(setting->key);
	struct kvr_router_options next = setting->rt->conf.opt;
	int rc = take_value(setting, o, &next);

	setting->n = 1;
	if (rc == 0)
		rc = kvr_router_conf_times(&next, setting->err, sizeof(setting->err));
	if (rc == 0)
		rc = control_check_times(setting->rt, &next, setting->err, sizeof(setting->err));
	if (rc < 0 || setting->list == NULL)
		return rc;
	/* Only this field: lcores read the others. */
	kvr_conf_set(o, &setting->rt->conf.opt, setting->key, setting->value, setting->err,
		     sizeof(setting->err));
	add_result(setting, "router", o, &setting->rt->conf.opt);
	return 0;
}

static int set_log(struct setting *setting)
{
	const bool verbose = strcmp(setting->value, "verbose") == 0;

	setting->n = 1;
	if (!verbose && strcmp(setting->value, "normal") != 0) {
		snprintf(setting->err, sizeof(setting->err),
			 "log: got \"%.40s\", allowed: normal, verbose", setting->value);
		return -EINVAL;
	}
	if (setting->list == NULL)
		return 0;
	log_verbose(verbose);
	rte_tel_data_add_dict_string(setting->list, "router", setting->value);
	return 0;
}

/* ---- all of them ---- */

static bool is_one_of(const char *key, const char *const keys[])
{
	for (; *keys != NULL; keys++)
		if (strcmp(*keys, key) == 0)
			return true;
	return false;
}

/* `log`, the last one, is no key of the configuration. */
static const char *const of_router[] = {"heartbeat_ms", "suspect_ms", "dead_ms",
					"stop_ms",	"log",	      NULL};

static struct rte_tel_data *known_keys(void)
{
	struct rte_tel_data *list = rte_tel_data_alloc();

	if (list != NULL)
		rte_tel_data_start_array(list, RTE_TEL_STRING_VAL);
	return list;
}

static struct rte_tel_data *words_of(const char *const keys[])
{
	struct rte_tel_data *list = known_keys();

	for (; list != NULL && *keys != NULL; keys++)
		rte_tel_data_add_array_string(list, *keys);
	return list;
}

/* Add the known keys to an error. */
static int refuse_key(struct rte_tel_data *d, int rc, const char *why)
{
	struct rte_tel_data *all = rte_tel_data_alloc(), *pools = known_keys(),
			    *classes = known_keys();

	kvr_telemetry_error(d, rc, "%s", why);
	for (size_t i = 0; pools != NULL && kvr_sched_tunable_key(i) != NULL; i++)
		rte_tel_data_add_array_string(pools, kvr_sched_tunable_key(i));
	if (pools != NULL)
		rte_tel_data_add_array_string(pools, "decision_sample");
	for (const struct kvr_opt *o = kvr_pool_class_opts; classes != NULL && o->name != NULL; o++)
		if (kvr_sched_class_tunable(o->name))
			rte_tel_data_add_array_string(classes, o->name);
	if (all != NULL) {
		rte_tel_data_start_dict(all);
		kvr_telemetry_dict_part(all, "pools", pools);
		kvr_telemetry_dict_part(all, "classes", classes);
		kvr_telemetry_dict_part(all, "ports", words_of(tune_port_keys));
		kvr_telemetry_dict_part(all, "router", words_of(of_router));
		kvr_telemetry_dict_part(d, "allowed", all);
	} else {
		rte_tel_data_free(pools);
		rte_tel_data_free(classes);
	}
	return 0;
}

/* @return 0; -ENOENT: unknown key or name; or the error of the value. */
static int set_key(struct setting *setting)
{
	int rc = -ENOENT;

	setting->n = 0;
	if (kvr_sched_class_tunable(setting->key))
		rc = set_pools(setting, set_classes);
	else if (setting->policy_class != NULL) {
		setting->unknown = true;
		snprintf(setting->err, sizeof(setting->err),
			 "%.64s: not a key of a policy class that can be set at run time",
			 setting->key);
	} else if (kvr_sched_tunable(setting->key))
		rc = set_pools(setting, set_tunable);
	else if (strcmp(setting->key, "decision_sample") == 0)
		rc = set_pools(setting, set_sample);
	else if (tune_port_key(setting->key))
		rc = set_ports(setting);
	else if (setting->name == NULL && strcmp(setting->key, "log") == 0)
		rc = set_log(setting);
	else if (setting->name == NULL && is_one_of(setting->key, of_router))
		rc = set_router(setting);
	else {
		setting->unknown = true;
		snprintf(setting->err, sizeof(setting->err),
			 "%.64s: not a key that can be set at run time%s", setting->key,
			 setting->name != NULL ? ", or not for one pool or port alone" : "");
	}
	if (rc == 0 && setting->n == 0) {
		snprintf(setting->err, sizeof(setting->err),
			 "no pool, port or policy class %.64s%s%.64s",
			 setting->name != NULL ? setting->name : "",
			 setting->policy_class != NULL ? "," : "",
			 setting->policy_class != NULL ? setting->policy_class : "");
		rc = -ENOENT;
	}
	return rc;
}

int cmd_set(void *arg, const char *params, struct rte_tel_data *d)
{
	struct setting s = {.rt = arg};
	struct kvr_telemetry_args a;
	char *value;
	int rc;

	value = kvr_telemetry_args(&a, params) < 0 || a.n < 1 || a.n > 3 ? NULL
									 : strchr(a.v[0], '=');
	if (value == NULL || value == a.v[0])
		return refuse_key(
			d, EINVAL,
			"expected KEY=VALUE and optionally a pool or port, or a pool and a policy class");
	*value = '\0';
	s.key = a.v[0];
	s.value = value + 1;
	s.name = a.n >= 2 ? a.v[1] : NULL;
	s.policy_class = a.n == 3 ? a.v[2] : NULL;
	rc = set_key(&s); /* check only, nothing is changed */
	if (rc < 0)
		return s.unknown ? refuse_key(d, rc, s.err)
				 : kvr_telemetry_error(d, rc, "%s", s.err);
	s.list = rte_tel_data_alloc();
	if (s.list == NULL)
		return kvr_telemetry_error(d, ENOMEM, "no memory");
	rte_tel_data_start_dict(s.list);
	rc = set_key(&s);
	if (rc < 0) { /* the kernel rejected it */
		rte_tel_data_free(s.list);
		return kvr_telemetry_error(d, rc, "%s", s.err);
	}
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "key", s.key);
	kvr_telemetry_dict_part(d, "set", s.list);
	return 0;
}
