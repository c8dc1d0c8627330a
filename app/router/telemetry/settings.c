/* SPDX-License-Identifier: BSD-3-Clause */
/* Telemetry: the current configuration, the bindings of sessions. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "control/control.h"
#include "sched/request.h"
#include "sched/session.h"
#include "state/router.h"
#include "telemetry/commands.h"
#include "telemetry/set.h"

#define PAGE 64u /* keys per answer */

/* ---- config ---- */

/* "pool a" -> "pool_a" in @p to. */
static void section_of(const char *line, char *to, size_t len)
{
	snprintf(to, len, "%.*s", (int)strcspn(line + 1, "]"), line + 1);
	for (char *c = to; *c != '\0'; c++)
		*c = *c == ' ' ? '_' : *c;
}

/* "key = value  # unit, help": the key ends at a blank, the value before the comment. */
static void add_option(struct rte_tel_data *list, const char *section, char *line)
{
	char *value = strstr(line, " = "), *end, name[RTE_TEL_MAX_STRING_LEN];

	if (value == NULL)
		return;
	snprintf(name, sizeof(name), "%s/%.*s", section, (int)strcspn(line, " "), line);
	value += 3;
	end = strstr(value, "  #");
	if (end != NULL)
		*end = '\0';
	kvr_telemetry_dict_text(list, name, value);
}

/* @return number of keys; those of the page are added to @p list. */
static uint32_t add_options(char *text, uint32_t from, struct rte_tel_data *list)
{
	char section[2 * KVR_ROUTER_NAME + 16] = "", *save;
	uint32_t n = 0;

	for (char *line = strtok_r(text, "\n", &save); line != NULL;
	     line = strtok_r(NULL, "\n", &save)) {
		if (line[0] == '[') {
			section_of(line, section, sizeof(section));
			continue;
		}
		if (line[0] == '#' || strstr(line, " = ") == NULL)
			continue;
		if (n >= from && n < from + PAGE)
			add_option(list, section, line);
		n++;
	}
	return n;
}

static char *dump_conf(const struct router *rt)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (f == NULL)
		return NULL;
	kvr_router_conf_dump(&rt->conf, f);
	if (fclose(f) == 0)
		return text;
	free(text);
	return NULL;
}

static int cmd_config(void *arg, const char *params, struct rte_tel_data *d)
{
	struct rte_tel_data *list;
	struct kvr_telemetry_args a;
	uint64_t from = 0;
	uint32_t n;
	char *text;

	if (kvr_telemetry_args(&a, params) < 0 || a.n > 1 ||
	    (a.n == 1 && kvr_telemetry_arg_u64(&a, 0, 0, UINT32_MAX - PAGE, &from) < 0))
		return kvr_telemetry_error(d, EINVAL,
					   "expected nothing or the number to start from");
	list = rte_tel_data_alloc();
	text = dump_conf(arg);
	if (list == NULL || text == NULL) {
		rte_tel_data_free(list);
		free(text);
		return kvr_telemetry_error(d, ENOMEM, "no memory");
	}
	rte_tel_data_start_dict(list);
	n = add_options(text, (uint32_t)from, list);
	free(text);
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_u64(d, "total", n);
	if (from + PAGE < n)
		rte_tel_data_add_dict_u64(d, "next", from + PAGE);
	kvr_telemetry_dict_part(d, "options", list);
	return 0;
}

/* ---- sessions ---- */

struct release_call {
	struct pool *p;
	const char *id;
	enum kvr_code code;
};

static void on_release(struct lcore *lc, void *arg)
{
	struct release_call *c = arg;
	const struct kvr_rq_ctx x = request_ctx(lc, c->p);
	struct kvr_rq_orders out;

	c->code = kvr_request_session_release(&x, &c->p->live.rq, c->id, (uint32_t)strlen(c->id),
					      KVR_RQ_TAG_ANY, &out);
	orders_beside(lc, c->p, &out);
}

static int cmd_release(void *arg, const char *params, struct rte_tel_data *d)
{
	struct router *rt = arg;
	struct release_call c;
	struct kvr_telemetry_args a;

	if (kvr_telemetry_args(&a, params) < 0 || a.n != 2 || a.v[1][0] == '\0')
		return kvr_telemetry_error(d, EINVAL, "expected a pool and the id of a session");
	c = (struct release_call){.p = tel_pool(rt, &a, d), .id = a.v[1]};
	if (c.p == NULL)
		return 0;
	if (c.p->sessions == NULL)
		return kvr_telemetry_error(d, ENOENT, "pool %s has no sessions", c.p->name);
	call_lcore(rt, c.p->sched_lcore, on_release, &c);
	if (c.code != KVR_OK)
		return kvr_telemetry_error(d, ENOENT, "pool %s has no session of this id",
					   c.p->name);
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "pool", c.p->name);
	rte_tel_data_add_dict_u64(d, "released", 1);
	return 0;
}

static const struct kvr_telemetry_cmd commands[] = {
	{"/kvroute/config", "[FROM]", "values of all configuration keys, 64 at a time", cmd_config,
	 false},
	{"/kvroute/set", "KEY=VALUE[,NAME[,CLASS]]",
	 "set a key, of all, of pool or port NAME, or of a policy class of a pool", cmd_set, true},
	{"/kvroute/session/release", "POOL,ID", "end the binding of a session", cmd_release, true},
	{NULL, NULL, NULL, NULL, false},
};

int settings_start(struct router *rt)
{
	return kvr_telemetry_register(commands, rt);
}

void settings_stop(void)
{
	kvr_telemetry_unregister(commands);
}
