/* SPDX-License-Identifier: BSD-3-Clause */
/* Telemetry: the decisions about a request, found by its id. */
#include <errno.h>
#include <string.h>

#include "sched/decision_log.h"
#include "state/router.h"
#include "telemetry/commands.h"
#include "telemetry/decisions.h"

#define MOST  8u    /* decisions in one answer */
#define STEPS 4096u /* lines searched: a client may use one id for all requests */

static const char *result_name(const struct decision_brief *b)
{
	static const char *const name[] = {
		[KVR_SCHED_ROUTED] = "routed",
		[KVR_SCHED_QUEUED] = "queued",
		[KVR_SCHED_QUERY] = "query",
	};

	return b->result == KVR_SCHED_ERROR ? kvr_code_name(b->err) : name[b->result];
}

static void add_choice(struct rte_tel_data *d, const struct decision_brief *b)
{
	rte_tel_data_add_dict_u64(d, "worker", b->worker);
	rte_tel_data_add_dict_u64(d, "dp_rank", b->dp_rank);
	kvr_telemetry_dict_f64(d, "cost", (double)b->cost, 3);
	rte_tel_data_add_dict_u64(d, "required_blocks", b->required);
	kvr_telemetry_dict_f64(d, "overlap_blocks", b->overlap, 3);
	kvr_telemetry_dict_f64(d, "best_overlap_blocks", b->best, 3);
	rte_tel_data_add_dict_string(d, "why",
				     b->pinned ? "pinned"
				     : b->best > b->overlap
					     ? "lowest cost, although another rank had more overlap"
					     : "lowest cost");
}

static void add_refusal(struct rte_tel_data *d, const struct decision_brief *b)
{
	rte_tel_data_add_dict_string(d, "why", "refused");
	if (b->err != KVR_E_QUEUE_REJECTED)
		return;
	rte_tel_data_add_dict_u64(d, "current", b->worker);
	rte_tel_data_add_dict_u64(d, "limit", b->required);
}

/* Find the same decision in the log of sampled and failed ones, which has its terms. */
static bool find_terms(const struct pool *pool, const struct decision_brief *b,
		       struct decision *out)
{
	for (uint64_t n = decision_written(pool->log), i = 0; i < DECISIONS_KEPT && n > 0; i++)
		if (decision_read(pool->log, --n, out) == 0 && out->id == b->id &&
		    out->source == b->source && out->at_ns == b->at_ns)
			return true;
	return false;
}

static struct rte_tel_data *brief_dict(const struct router *rt, const struct pool *pool,
				       const struct decision_brief *b)
{
	const struct kvr_pool_conf *c = pool->conf;
	struct rte_tel_data *d = rte_tel_data_alloc();
	struct decision terms;

	if (d == NULL)
		return NULL;
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "pool", pool->name);
	rte_tel_data_add_dict_u64(d, "number", b->number);
	tel_id(d, "source", b->source);
	rte_tel_data_add_dict_u64(d, "age_ms", since_ns(now_ns(rt), b->at_ns) / 1000000);
	rte_tel_data_add_dict_string(d, "result", result_name(b));
	rte_tel_data_add_dict_string(d, "policy_class",
				     c->n_classes != 0 ? c->classes[b->policy_class].name
						       : "default");
	rte_tel_data_add_dict_u64(d, "waited_us", b->waited_us);
	rte_tel_data_add_dict_u64(d, "pinned", b->pinned);
	rte_tel_data_add_dict_u64(d, "tries", b->tries);
	if (b->result == KVR_SCHED_ERROR)
		add_refusal(d, b);
	else if (b->result != KVR_SCHED_QUEUED)
		add_choice(d, b);
	if (find_terms(pool, b, &terms))
		kvr_telemetry_dict_part(d, "terms", decision_terms(&terms));
	return d;
}

/* Error for a decision that is not kept. */
static int not_kept(struct router *rt, uint64_t id, bool all, struct rte_tel_data *d)
{
	char text[RTE_TEL_MAX_STRING_LEN];
	size_t n = 0;

	if (!all)
		return kvr_telemetry_error(
			d, ENOENT,
			"no decision about 0x%" PRIx64
			" among the %u newest of its bucket; older ones may exist",
			id, STEPS);
	for (uint32_t i = 0; i < rt->n_pools && n + 1 < sizeof(text); i++) {
		const struct decision_ring *ring = &rt->pool[i].log->all;
		const uint64_t written = decision_ring_written(ring),
			       size = decision_ring_size(ring);
		const uint64_t oldest = written > size ? written - size : 0;
		struct decision_brief b = {.at_ns = now_ns(rt)};

		decision_ring_read(ring, oldest, &b);
		n += (size_t)snprintf(text + n, sizeof(text) - n,
				      "; %s keeps %" PRIu64 " of %" PRIu64 ", the oldest %" PRIu64
				      " s old",
				      rt->pool[i].name, written - oldest, written,
				      since_ns(now_ns(rt), b.at_ns) / UINT64_C(1000000000));
	}
	return kvr_telemetry_error(d, ENOENT, "no decision about 0x%" PRIx64 " is kept%s", id,
				   rt->n_pools != 0 ? text : "");
}

static int cmd_explain(void *arg, const char *params, struct rte_tel_data *d)
{
	struct router *rt = arg;
	struct kvr_telemetry_args a;
	struct rte_tel_data *list;
	uint64_t id, source = 0;
	uint32_t found = 0, steps = STEPS;
	bool all = true;

	if (kvr_telemetry_args(&a, params) < 0 || a.n < 1 || a.n > 2 ||
	    kvr_telemetry_arg_u64(&a, 0, 0, UINT64_MAX, &id) < 0 ||
	    (a.n == 2 && kvr_telemetry_arg_u64(&a, 1, 0, UINT64_MAX, &source) < 0))
		return kvr_telemetry_error(d, EINVAL,
					   "expected a request id and optionally its source");
	list = rte_tel_data_alloc();
	if (list == NULL)
		return kvr_telemetry_error(d, ENOMEM, "no memory");
	rte_tel_data_start_dict(list);
	for (uint32_t i = 0; i < rt->n_pools; i++) {
		const struct pool *pool = &rt->pool[i];
		struct decision_brief b = {.number = UINT64_MAX};
		int rc = 0;

		while (found < MOST &&
		       (rc = decision_ring_find(&pool->log->all, id, a.n == 2 ? &source : NULL,
						b.number, &steps, &b)) == 0) {
			char key[24];

			snprintf(key, sizeof(key), "%u", found++);
			kvr_telemetry_dict_part(list, key, brief_dict(rt, pool, &b));
		}
		all = all && rc != -EAGAIN;
	}
	if (found == 0) {
		rte_tel_data_free(list);
		return not_kept(rt, id, all, d);
	}
	rte_tel_data_start_dict(d);
	tel_id(d, "id", id);
	rte_tel_data_add_dict_u64(d, "found", found);
	kvr_telemetry_dict_part(d, "decisions", list);
	return 0;
}

static const struct kvr_telemetry_cmd commands[] = {
	{"/kvroute/explain", "ID[,SOURCE]",
	 "decisions about a request: where it went and why, with every candidate's terms if sampled",
	 cmd_explain, false},
	{NULL, NULL, NULL, NULL, false},
};

int explain_start(struct router *rt)
{
	return kvr_telemetry_register(commands, rt);
}

void explain_stop(void)
{
	kvr_telemetry_unregister(commands);
}
