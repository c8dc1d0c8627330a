/* SPDX-License-Identifier: BSD-3-Clause */
/* Telemetry: decisions with their terms, and the load of each LoRA adapter. */
#include "telemetry/decisions.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <rte_telemetry.h>

#include "control/control.h"
#include "kvr_telemetry.h"
#include "sched/decision_log.h"
#include "state/router.h"
#include "telemetry/commands.h"

#define PAGE 32u /* decisions or adapters in one answer */

/* Parse POOL[,NUMBER]. @return NULL: the error is in d. */
static struct pool *pool_arg(struct router *rt, const char *params, bool need, uint64_t *number,
			     bool *given, struct rte_tel_data *d)
{
	struct kvr_telemetry_args a;
	const char *name;
	struct pool *pool;

	if (kvr_telemetry_args(&a, params) < 0 || a.n < 1u + need || a.n > 2 ||
	    (a.n == 2 && kvr_telemetry_arg_u64(&a, 1, 0, UINT64_MAX - 1, number) < 0)) {
		kvr_telemetry_error(d, EINVAL, "expected a pool and %sa number",
				    need ? "" : "perhaps ");
		return NULL;
	}
	*given = a.n == 2;
	name = kvr_telemetry_arg(&a, 0);
	pool = name != NULL ? pool_by_name(rt, name, strlen(name)) : NULL;
	if (pool == NULL)
		kvr_telemetry_error(d, ENOENT, "no such pool");
	return pool;
}

/* Add a dictionary to a dictionary by number, because arrays of dictionaries are not shown inside
 * one. */
static void add_numbered(struct rte_tel_data *list, uint64_t number, struct rte_tel_data *part)
{
	char key[24];

	snprintf(key, sizeof(key), "%" PRIu64, number);
	if (rte_tel_data_add_dict_container(list, key, part, 0) != 0)
		rte_tel_data_free(part);
}

/* ---- decisions ---- */

static const char *result_name(const struct kvr_sched_decision *d)
{
	static const char *const name[] = {
		[KVR_SCHED_ROUTED] = "routed",
		[KVR_SCHED_QUEUED] = "queued",
		[KVR_SCHED_QUERY] = "query",
	};

	return d->result == KVR_SCHED_ERROR ? kvr_code_name(d->err) : name[d->result];
}

/* The class that applied, and whether the client named an unknown one. */
static void add_class(const struct pool *pool, struct rte_tel_data *t, const struct decision *v)
{
	const struct kvr_pool_conf *c = pool->conf;

	rte_tel_data_add_dict_string(t, "policy_class",
				     c->n_classes != 0 ? c->classes[v->d.policy_class].name
						       : "default");
	if (v->class_unknown)
		rte_tel_data_add_dict_u64(t, "policy_class_unknown", 1);
}

static void add_decision(const struct router *rt, const struct pool *pool, struct rte_tel_data *t,
			 const struct decision *v)
{
	const struct kvr_sched_decision *d = &v->d;

	rte_tel_data_add_dict_u64(t, "age_ms", (now_ns(rt) - v->at_ns) / 1000000);
	tel_id(t, "source", v->source);
	tel_id(t, "id", v->id);
	rte_tel_data_add_dict_string(t, "result", result_name(d));
	add_class(pool, t, v);
	if (d->result == KVR_SCHED_ERROR)
		return;
	rte_tel_data_add_dict_u64(t, "worker", d->worker);
	rte_tel_data_add_dict_u64(t, "dp_rank", d->dp_rank);
	kvr_telemetry_dict_f64(t, "cost", d->cost, 3);
	rte_tel_data_add_dict_u64(t, "required_blocks", d->required_blocks);
	kvr_telemetry_dict_f64(t, "overlap_blocks", d->effective_overlap, 3);
	if (d->better_rank != KVR_SCHED_NO_RANK)
		kvr_telemetry_dict_f64(t, "better_overlap_blocks", d->better_overlap, 3);
	rte_tel_data_add_dict_u64(t, "waited_us", d->waited_ns / 1000);
	rte_tel_data_add_dict_u64(t, "pinned", d->pinned);
}

static struct rte_tel_data *term_dict(const struct kvr_sched_term *x, uint32_t flags, bool selected)
{
	struct rte_tel_data *t = rte_tel_data_alloc();

	if (t == NULL)
		return NULL;
	rte_tel_data_start_dict(t);
	rte_tel_data_add_dict_u64(t, "worker", x->worker);
	rte_tel_data_add_dict_u64(t, "dp_rank", x->dp_rank);
	if (selected)
		kvr_telemetry_dict_f64(t, "cost", x->cost, 3);
	rte_tel_data_add_dict_u64(t, "device", x->device);
	rte_tel_data_add_dict_u64(t, "host", x->host);
	rte_tel_data_add_dict_u64(t, "disk", x->disk);
	rte_tel_data_add_dict_u64(t, "shared", x->shared);
	rte_tel_data_add_dict_u64(t, "prefill_tokens", x->prefill_tokens);
	rte_tel_data_add_dict_u64(t, "decode_blocks", x->decode_blocks);
	rte_tel_data_add_dict_u64(t, "active_requests", x->active_requests);
	if (x->by_ttft) {
		kvr_telemetry_dict_f64(t, "wait_tokens", x->wait_tokens, 3);
		kvr_telemetry_dict_f64(t, "left_tokens", x->left_tokens, 3);
		kvr_telemetry_dict_f64(t, "decode_weight", x->decode_weight, 3);
		kvr_telemetry_dict_f64(t, "rho", x->rho, 3);
		kvr_telemetry_dict_f64(t, "us_token", x->us_token, 3);
	}
	if (flags != 0)
		rte_tel_data_add_dict_string(t, "state",
					     flags & DECISION_DRAINING	    ? "draining"
					     : flags & DECISION_UNAVAILABLE ? "unavailable"
									    : "overloaded");
	return t;
}

struct rte_tel_data *decision_terms(const struct decision *v)
{
	struct rte_tel_data *list = rte_tel_data_alloc(), *t;

	if (list == NULL)
		return NULL;
	rte_tel_data_start_dict(list);
	for (uint32_t i = 0; i < v->n_terms; i++) {
		t = term_dict(&v->term[i], v->flags[i], v->d.result != KVR_SCHED_ERROR);
		if (t != NULL)
			add_numbered(list, i, t);
	}
	return list;
}

static int one_decision(struct router *rt, const struct pool *pool, uint64_t number,
			struct rte_tel_data *d)
{
	struct decision v;

	if (decision_read(pool->log, number, &v) < 0)
		return kvr_telemetry_error(d, ENOENT, "decision %" PRIu64 " is not kept", number);
	rte_tel_data_start_dict(d);
	add_decision(rt, pool, d, &v);
	rte_tel_data_add_dict_u64(d, "ranks", v.n_eligible);
	kvr_telemetry_dict_part(d, "terms", decision_terms(&v));
	return 0;
}

static int cmd_decisions(void *arg, const char *params, struct rte_tel_data *d)
{
	struct router *rt = arg;
	uint64_t number = 0, written;
	struct rte_tel_data *list;
	bool one;
	const struct pool *pool = pool_arg(rt, params, false, &number, &one, d);

	if (pool == NULL)
		return 0;
	if (one)
		return one_decision(rt, pool, number, d);
	list = rte_tel_data_alloc();
	if (list == NULL)
		return kvr_telemetry_error(d, ENOMEM, "no memory");
	written = decision_written(pool->log);
	rte_tel_data_start_dict(list);
	for (uint64_t i = 0; i < RTE_MIN(written, PAGE); i++) {
		struct rte_tel_data *t;
		struct decision v;

		if (decision_read(pool->log, written - 1 - i, &v) < 0)
			continue;
		t = rte_tel_data_alloc();
		if (t == NULL)
			break;
		rte_tel_data_start_dict(t);
		add_decision(rt, pool, t, &v);
		add_numbered(list, v.number, t);
	}
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_u64(d, "sample", decision_every(pool->log));
	rte_tel_data_add_dict_u64(d, "kept", written);
	rte_tel_data_add_dict_container(d, "decisions", list, 0);
	return 0;
}

static int cmd_sample(void *arg, const char *params, struct rte_tel_data *d)
{
	struct router *rt = arg;
	struct decision_sample s = {0};
	bool given;

	s.pool = pool_arg(rt, params, true, &s.every, &given, d);
	if (s.pool == NULL)
		return 0;
	call_lcore(rt, s.pool->sched_lcore, decision_sample, &s);
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_u64(d, "sample", decision_every(s.pool->log));
	return 0;
}

/* ---- LoRA adapters ---- */

struct adapters {
	const struct kvr_sched *sched;
	uint32_t from, n;
	struct kvr_sched_lora v[PAGE], other;
};

static void on_adapters(struct lcore *lc, void *arg)
{
	struct adapters *a = arg;

	RTE_SET_USED(lc);
	a->n = kvr_sched_loras(a->sched, a->from, a->v, PAGE);
	kvr_sched_lora_other(a->sched, &a->other);
}

/* A string of the socket is shorter than a name may be: add parts, cut between characters. */
static void add_name(struct rte_tel_data *list, const char *name)
{
	while (*name != '\0') {
		char part[RTE_TEL_MAX_STRING_LEN];
		size_t n = strnlen(name, sizeof(part) - 1);

		while (n > 1 && ((unsigned char)name[n] & 0xc0) == 0x80)
			n--;
		memcpy(part, name, n);
		part[n] = '\0';
		rte_tel_data_add_array_string(list, part);
		name += n;
	}
}

static void add_adapter(struct rte_tel_data *list, uint32_t number, const struct kvr_sched_lora *v)
{
	struct rte_tel_data *t = rte_tel_data_alloc(), *name = rte_tel_data_alloc();

	if (t == NULL || name == NULL) {
		rte_tel_data_free(t);
		rte_tel_data_free(name);
		return;
	}
	rte_tel_data_start_array(name, RTE_TEL_STRING_VAL);
	add_name(name, v->name);
	rte_tel_data_start_dict(t);
	rte_tel_data_add_dict_container(t, "name", name, 0);
	rte_tel_data_add_dict_u64(t, "active", v->active);
	rte_tel_data_add_dict_u64(t, "booked", v->booked);
	add_numbered(list, number, t);
}

static int cmd_adapters(void *arg, const char *params, struct rte_tel_data *d)
{
	static struct adapters a; /* handlers run one at a time */
	struct router *rt = arg;
	struct rte_tel_data *list;
	uint64_t from = 0;
	bool given;
	const struct pool *pool = pool_arg(rt, params, false, &from, &given, d);

	if (pool == NULL)
		return 0;
	a.sched = pool->sched;
	a.from = (uint32_t)RTE_MIN(from, KVR_SCHED_ADAPTERS);
	call_lcore(rt, pool->sched_lcore, on_adapters, &a);
	list = rte_tel_data_alloc();
	if (list == NULL)
		return kvr_telemetry_error(d, ENOMEM, "no memory");
	rte_tel_data_start_dict(list);
	for (uint32_t i = 0; i < PAGE && a.from + i < a.n; i++)
		add_adapter(list, a.from + i, &a.v[i]);
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_u64(d, "total", a.n);
	if (a.from + PAGE < a.n)
		rte_tel_data_add_dict_u64(d, "next", a.from + PAGE);
	rte_tel_data_add_dict_u64(d, "other_active", a.other.active);
	rte_tel_data_add_dict_u64(d, "other_booked", a.other.booked);
	rte_tel_data_add_dict_container(d, "adapters", list, 0);
	return 0;
}

static const struct kvr_telemetry_cmd commands[] = {
	{"/kvroute/decisions", "POOL[,NUMBER]",
	 "newest sampled and failed decisions of a pool; with NUMBER the terms of one",
	 cmd_decisions, false},
	{"/kvroute/sample", "POOL,EVERY", "keep one decision in EVERY with its terms; 0 = none",
	 cmd_sample, true},
	{"/kvroute/adapters", "POOL[,FROM]", "bookings by LoRA adapter, 32 at a time", cmd_adapters,
	 false},
	{NULL, NULL, NULL, NULL, false},
};

int decisions_start(struct router *rt)
{
	return kvr_telemetry_register(commands, rt);
}

void decisions_stop(void)
{
	kvr_telemetry_unregister(commands);
}
