/* SPDX-License-Identifier: BSD-3-Clause */
/* Changes of keys of ports and pools at run time. */
#include "control/tune.h"

#include <string.h>

#include "control/control.h"
#include "sched/decision_log.h"
#include "state/router.h"

/* ---- ports ---- */

/* `source_...` belong to the router, the others to lib/port. */
const char *const tune_port_keys[] = {"source_rate",	"source_burst", "source_control",
				      "source_answers", "allow",	"allow_agents",
				      "xdp_rate",	"xdp_burst",	NULL};

bool tune_port_key(const char *key)
{
	for (const char *const *k = tune_port_keys; *k != NULL; k++)
		if (strcmp(*k, key) == 0)
			return true;
	return false;
}

int tune_ports_check(struct router *rt, const struct kvr_port_conf next[], char *err, size_t errlen)
{
	struct kvr_pkt_rules rules;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < rt->n_ports; i++)
		rc = kvr_port_rules(&next[i], i, &rules, err, errlen);
	return rc;
}

static bool key_differs(const char *key, const struct kvr_port_conf *a,
			const struct kvr_port_conf *b)
{
	const struct kvr_opt *o = kvr_conf_find(kvr_port_opts, key);
	char x[KVR_CONF_MAX_VALUE + 1], y[KVR_CONF_MAX_VALUE + 1];

	kvr_conf_print(o, a, x, sizeof(x));
	kvr_conf_print(o, b, y, sizeof(y));
	return strcmp(x, y) != 0;
}

static bool any_differs(const struct kvr_port_conf *a, const struct kvr_port_conf *b, bool source)
{
	for (const char *const *k = tune_port_keys; *k != NULL; k++)
		if ((strncmp(*k, "source_", 7) == 0) == source && key_differs(*k, a, b))
			return true;
	return false;
}

/* Only these fields: lcores read the others. */
static void store_port_keys(struct kvr_port_conf *to, const struct kvr_port_conf *from)
{
	char text[KVR_CONF_MAX_VALUE + 1], err[8];

	for (const char *const *k = tune_port_keys; *k != NULL; k++)
		if (key_differs(*k, to, from)) {
			kvr_conf_print(kvr_conf_find(kvr_port_opts, *k), from, text, sizeof(text));
			kvr_conf_set(kvr_port_opts, to, *k, text, err, sizeof(err));
		}
}

int tune_ports(struct router *rt, const struct kvr_port_conf next[], char *err, size_t errlen)
{
	bool sources = false;
	char more[8];

	for (uint32_t i = 0; i < rt->n_ports; i++) {
		const struct kvr_port_conf *now = &rt->conf.port[i].port;
		int rc = 0;

		sources = sources || any_differs(now, &next[i], true);
		if (any_differs(now, &next[i], false))
			rc = kvr_port_tune(rt->port[i], &next[i], lcores_pass, rt, err, errlen);
		if (rc == 0)
			continue;
		while (i-- > 0) /* earlier ports get their values back */
			if (any_differs(&rt->conf.port[i].port, &next[i], false))
				kvr_port_tune(rt->port[i], &rt->conf.port[i].port, lcores_pass, rt,
					      more, sizeof(more));
		return rc;
	}
	for (uint32_t i = 0; i < rt->n_ports; i++)
		store_port_keys(&rt->conf.port[i].port, &next[i]);
	if (sources)
		rules_update(rt);
	return 0;
}

/* ---- pools ---- */

struct tune_call {
	struct pool *p;
	const struct kvr_pool_conf *conf;
};

static void on_tune(struct lcore *lc, void *arg)
{
	const struct tune_call *t = arg;

	RTE_SET_USED(lc);
	kvr_sched_tune(t->p->sched, t->conf);
}

void tune_pool(struct router *rt, uint32_t i, const struct kvr_pool_conf *next)
{
	struct tune_call t = {.p = &rt->pool[i], .conf = next};

	call_lcore(rt, t.p->sched_lcore, on_tune, &t);
}

void tune_sample(struct router *rt, uint32_t i, uint32_t every)
{
	struct decision_sample sample = {.pool = &rt->pool[i], .every = every};

	call_lcore(rt, sample.pool->sched_lcore, decision_sample, &sample);
}
