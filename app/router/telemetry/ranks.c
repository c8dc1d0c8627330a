/* SPDX-License-Identifier: BSD-3-Clause */
/* Telemetry: ranks by load, events and hits; workers; queues. 16 ranks per answer. */
#include <errno.h>
#include <string.h>

#include "control/control.h"
#include "control/thread.h"
#include "sched/request_stats.h"
#include "state/router.h"
#include "telemetry/commands.h"

#define PAGE 16u /* answers of the socket are limited to 16 KiB */

struct pool *tel_pool(struct router *rt, const struct kvr_telemetry_args *a, struct rte_tel_data *d)
{
	const char *name = kvr_telemetry_arg(a, 0);
	struct pool *pool = name != NULL ? pool_by_name(rt, name, strlen(name)) : NULL;

	if (pool == NULL)
		kvr_telemetry_error(d, ENOENT, "no pool %s", name != NULL ? name : "unnamed");
	return pool;
}

/* ---- a page of ranks, read by their scheduler ---- */

struct page {
	const struct router *rt;
	const struct pool *p;
	const struct kvr_worker *only; /* only its ranks; NULL: all */
	uint32_t from, n, total;
	uint64_t now_ns; /* the scheduler's clock */
	struct kvr_sched_rank_info v[PAGE];
	struct event_cursor cursor[PAGE];
	uint64_t held[PAGE];
};

static void on_page(struct lcore *lc, void *arg)
{
	struct page *g = arg;
	const uint32_t *order;
	uint32_t n = kvr_sched_rank_order(g->p->sched, &order);

	g->now_ns = lc->now_ns;
	g->total = g->only != NULL ? g->only->dp_size : n;
	for (uint32_t i = g->from; i < g->total && g->n < PAGE; i++) {
		const uint32_t rank = g->only != NULL ? g->only->rank[i] : order[i];

		if (kvr_sched_rank_get(g->p->sched, rank, &g->v[g->n]) == 0)
			g->n++;
	}
}

static void on_cursors(struct lcore *lc, void *arg)
{
	struct page *g = arg;

	RTE_SET_USED(lc);
	for (uint32_t i = 0; i < g->n; i++)
		g->cursor[i] = g->p->cursor[g->v[i].rank];
}

static void page_read(struct router *rt, struct page *g, struct pool *pool,
		      const struct kvr_worker *only, uint32_t from)
{
	*g = (struct page){.rt = rt, .p = pool, .only = only, .from = from};
	call_lcore(rt, pool->sched_lcore, on_page, g);
}

/* Parse POOL[,FROM]. @return NULL: the error is in d. */
static struct pool *page_of(struct router *rt, const char *params, struct page *g,
			    struct rte_tel_data *d)
{
	struct kvr_telemetry_args a;
	uint64_t from = 0;
	struct pool *pool;

	if (kvr_telemetry_args(&a, params) < 0 || a.n < 1 || a.n > 2 ||
	    (a.n == 2 && kvr_telemetry_arg_u64(&a, 1, 0, UINT32_MAX - PAGE, &from) < 0)) {
		kvr_telemetry_error(d, EINVAL,
				    "expected a pool and optionally the number to start from");
		return NULL;
	}
	pool = tel_pool(rt, &a, d);
	if (pool != NULL)
		page_read(rt, g, pool, NULL, (uint32_t)from);
	return pool;
}

/* Build the answer: pool, total, next, and the result of @p one for each rank. */
static void page_answer(const struct page *g, struct rte_tel_data *d, bool by_rank,
			void (*one)(const struct page *g, uint32_t i, struct rte_tel_data *t))
{
	struct rte_tel_data *list = rte_tel_data_alloc();

	rte_tel_data_add_dict_u64(d, "total", g->total);
	if (g->from + PAGE < g->total)
		rte_tel_data_add_dict_u64(d, "next", g->from + PAGE);
	if (list == NULL)
		return;
	rte_tel_data_start_dict(list);
	for (uint32_t i = 0; i < g->n; i++) {
		struct rte_tel_data *t = rte_tel_data_alloc();
		char key[48];

		if (t == NULL)
			break;
		rte_tel_data_start_dict(t);
		one(g, i, t);
		if (by_rank)
			snprintf(key, sizeof(key), "%u", g->v[i].dp_rank);
		else
			snprintf(key, sizeof(key), "%" PRIu64 "/%u", g->v[i].worker,
				 g->v[i].dp_rank);
		kvr_telemetry_dict_part(list, key, t);
	}
	kvr_telemetry_dict_part(d, "ranks", list);
}

static uint64_t count_of(const struct page *g, uint32_t i, enum rank_counter c)
{
	return kvr_cell_get(&g->p->rank_counts[g->v[i].rank].v[c]);
}

/* ---- loads ---- */

/* The reason why the rank is not eligible, or "open". */
static const char *ineligible_reason(const struct kvr_sched_rank_info *r)
{
	if (r->draining)
		return "draining";
	if (!r->available)
		return "suspect";
	if (r->silent)
		return "silent";
	if (r->breaker != KVR_SCHED_CLOSED)
		return r->refuses ? "no room" : "failing";
	if (r->worker_overloaded)
		return r->overloaded ? "overloaded" : "worker overloaded";
	return "open";
}

static bool is_eligible(const struct kvr_sched_rank_info *r)
{
	return r->available && !r->draining && !r->worker_overloaded;
}

/* Add the reason why other ranks are preferred, and until when; nothing if they are not. */
static void add_avoided(const struct page *g, const struct kvr_sched_rank_info *r,
			struct rte_tel_data *t)
{
	const uint64_t left = r->probe_at > g->now_ns ? r->probe_at - g->now_ns : 0;
	char text[128];
	int n;

	rte_tel_data_add_dict_u64(t, "failure_percent", (uint64_t)(r->failure_ratio * 100 + 0.5));
	if (r->breaker == KVR_SCHED_CLOSED)
		return;
	n = r->refuses ? snprintf(text, sizeof(text), "its engine is at capacity; ")
		       : snprintf(text, sizeof(text), "%.0f %% of its last requests failed; ",
				  r->failure_ratio * 100);
	if (r->breaker == KVR_SCHED_OPEN && left != 0)
		snprintf(text + n, sizeof(text) - (size_t)n, "next probe in %.1f s",
			 (double)left / 1e9);
	else
		snprintf(text + n, sizeof(text) - (size_t)n, "the next request is a probe");
	rte_tel_data_add_dict_string(t, "avoided", text);
}

static void add_load(const struct page *g, uint32_t i, struct rte_tel_data *t)
{
	const struct kvr_sched_rank_info *r = &g->v[i];

	rte_tel_data_add_dict_u64(t, "eligible", is_eligible(r));
	rte_tel_data_add_dict_string(t, "why", ineligible_reason(r));
	add_avoided(g, r, t);
	rte_tel_data_add_dict_u64(t, "active_requests", r->active_requests);
	rte_tel_data_add_dict_u64(t, "active_blocks", r->active_blocks);
	rte_tel_data_add_dict_u64(t, "active_prefill_tokens", r->active_prefill_tokens);
	if (r->kv_used_blocks != UINT64_MAX)
		rte_tel_data_add_dict_u64(t, "kv_used_blocks", r->kv_used_blocks);
	rte_tel_data_add_dict_u64(t, "kv_total_blocks", r->total_kv_blocks);
	rte_tel_data_add_dict_u64(t, "max_num_batched_tokens", r->max_num_batched_tokens);
	for (uint32_t c = 0; c < RC_SHORT; c++)
		rte_tel_data_add_dict_u64(t, rank_counter_names[c],
					  count_of(g, i, (enum rank_counter)c));
	for (uint32_t c = RC_LAST_TTFT; c <= RC_LAST_ISL; c++)
		rte_tel_data_add_dict_u64(t, rank_counter_names[c],
					  count_of(g, i, (enum rank_counter)c));
	tel_share(t, "hit_share", count_of(g, i, RC_PREDICTED), count_of(g, i, RC_PROMPT));
}

static struct page page; /* handlers run one at a time */

static int cmd_loads(void *arg, const char *params, struct rte_tel_data *d)
{
	const struct pool *pool = page_of(arg, params, &page, d);

	if (pool == NULL)
		return 0;
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "pool", pool->name);
	page_answer(&page, d, false, add_load);
	return 0;
}

/* ---- one worker ---- */

/* Reasons of its ranks on this page, or its state if it is not serving. */
static void add_why(const struct kvr_worker *worker, struct rte_tel_data *d)
{
	bool open = false;

	for (uint32_t i = 0; i < page.n; i++)
		open = open || is_eligible(&page.v[i]);
	rte_tel_data_add_dict_u64(d, "eligible", open);
	rte_tel_data_add_dict_string(d, "why",
				     open ? "open"
				     : worker->state != KVR_WORKER_SERVING || page.n == 0
					     ? kvr_worker_state_name(worker->state)
					     : ineligible_reason(&page.v[0]));
}

static int cmd_worker(void *arg, const char *params, struct rte_tel_data *d)
{
	struct router *rt = arg;
	const struct kvr_worker *worker;
	struct kvr_telemetry_args a;
	char text[KVR_PATH_TEXT];
	uint64_t id, from = 0;

	if (kvr_telemetry_args(&a, params) < 0 || a.n < 1 || a.n > 2 ||
	    kvr_telemetry_arg_u64(&a, 0, 0, UINT64_MAX, &id) < 0 ||
	    (a.n == 2 && kvr_telemetry_arg_u64(&a, 1, 0, UINT32_MAX - PAGE, &from) < 0))
		return kvr_telemetry_error(
			d, EINVAL, "expected a worker id and optionally the rank to start from");
	worker = kvr_registry_find(rt->registry, id);
	if (worker == NULL)
		return kvr_telemetry_error(d, ENOENT, "no worker %" PRIu64, id);
	page_read(rt, &page, pool_of(rt, worker), worker, (uint32_t)from);
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_u64(d, "id", id);
	rte_tel_data_add_dict_string(d, "pool", pool_of(rt, worker)->name);
	rte_tel_data_add_dict_string(d, "state", kvr_worker_state_name(worker->state));
	add_why(worker, d);
	rte_tel_data_add_dict_string(d, "address",
				     kvr_path_text(&worker->path, text, sizeof(text)));
	rte_tel_data_add_dict_u64(d, "epoch", worker->epoch);
	rte_tel_data_add_dict_u64(d, "silent_ms", worker_silence(rt, worker) / 1000000);
	rte_tel_data_add_dict_u64(d, "state_ms", (now_ns(rt) - worker->since_ns) / 1000000);
	rte_tel_data_add_dict_u64(d, "bookings", worker->bookings);
	page_answer(&page, d, true, add_load);
	return 0;
}

/* ---- events ---- */

/* The agent's report about its engine in the last heartbeat. */
static void add_said(const struct page *g, uint32_t i, struct rte_tel_data *t)
{
	const struct kvr_worker *worker = kvr_registry_find(g->rt->registry, g->v[i].worker);
	const uint32_t at = worker != NULL ? g->v[i].dp_rank - worker->dp_start : 0;
	const struct kvr_beat_load *b;
	uint32_t form;

	if (worker == NULL || at >= worker->beat->n)
		return;
	b = &worker->beat->load[at];
	/* Single words; written by ingress_heartbeat(). */
	rte_tel_data_add_dict_u64(t, "engine_requests",
				  atomic_load_explicit(&b->active_requests, memory_order_relaxed));
	rte_tel_data_add_dict_u64(t, "unread",
				  atomic_load_explicit(&b->events_unread, memory_order_relaxed));
	rte_tel_data_add_dict_u64(t, "block_size",
				  atomic_load_explicit(&b->event_block_size, memory_order_relaxed));
	rte_tel_data_add_dict_u64(t, "canaries_missed",
				  atomic_load_explicit(&b->canaries_missed, memory_order_relaxed));
	form = atomic_load_explicit(&b->event_form, memory_order_relaxed);
	if (form != KVR_FORM_UNKNOWN)
		rte_tel_data_add_dict_u64(t, "pairs", form == KVR_FORM_PAIRS);
}

static void add_events(const struct page *g, uint32_t i, struct rte_tel_data *t)
{
	static const struct {
		const char *name;
		enum event_rank_cell cell;
	} cells[] = {{"authoritative", ER_AUTHORITATIVE},
		     {"lag", ER_LAG},
		     {"gaps", ER_GAPS},
		     {"dumps", ER_DUMPS},
		     {"clears", ER_CLEARS},
		     {"regressions", ER_REGRESSIONS},
		     {"stored", ER_STORED},
		     {"removed", ER_REMOVED},
		     {"restored", ER_RESTORED}};
	const uint32_t rank = g->v[i].rank;

	rte_tel_data_add_dict_u64(t, "next_event_id", g->cursor[i].next);
	rte_tel_data_add_dict_u64(t, "dumping", g->cursor[i].dumping);
	for (uint32_t c = 0; c < RTE_DIM(cells); c++)
		rte_tel_data_add_dict_u64(t, cells[c].name,
					  kvr_cell_get(&g->p->event_ranks[rank].v[cells[c].cell]));
	rte_tel_data_add_dict_u64(
		t, "held", kvr_prefix_rank_blocks(g->p->prefix, (uint16_t)rank, KVR_TIER_DEVICE));
	add_said(g, i, t);
}

static int cmd_events(void *arg, const char *params, struct rte_tel_data *d)
{
	struct pool *pool = page_of(arg, params, &page, d);

	if (pool == NULL)
		return 0;
	call_lcore(arg, pool->event_lcore, on_cursors, &page);
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "pool", pool->name);
	page_answer(&page, d, false, add_events);
	return 0;
}

/* ---- hits ---- */

static void add_hits(const struct page *g, uint32_t i, struct rte_tel_data *t)
{
	rte_tel_data_add_dict_u64(t, "prompt_tokens", count_of(g, i, RC_PROMPT));
	rte_tel_data_add_dict_u64(t, "achieved_tokens", count_of(g, i, RC_PREDICTED));
	rte_tel_data_add_dict_u64(t, "reported_predicted_tokens",
				  count_of(g, i, RC_REPORTED_PREDICTED));
	rte_tel_data_add_dict_u64(t, "reported_actual_tokens", count_of(g, i, RC_REPORTED_ACTUAL));
	rte_tel_data_add_dict_u64(t, "short", count_of(g, i, RC_SHORT));
	rte_tel_data_add_dict_u64(t, "beyond", count_of(g, i, RC_BEYOND));
}

static struct rte_tel_data *short_dict(const uint64_t v[])
{
	static const char *const names[SHORTFALLS] = {
		[SHORT_MISSING] = "not_authoritative",
		[SHORT_EVICTED] = "evicted",
		[SHORT_NOTHING] = "nothing_shared",
		[SHORT_ENGINE] = "engine",
	};
	struct rte_tel_data *t = rte_tel_data_alloc();

	if (t == NULL)
		return NULL;
	rte_tel_data_start_dict(t);
	for (uint32_t i = 0; i < SHORTFALLS; i++)
		rte_tel_data_add_dict_u64(t, names[i], v[PC_SHORT_MISSING + i]);
	return t;
}

static int cmd_hits(void *arg, const char *params, struct rte_tel_data *d)
{
	const struct pool *pool = page_of(arg, params, &page, d);
	uint64_t v[PC_COUNTERS];

	if (pool == NULL)
		return 0;
	kvr_stats_sum(pool->stats, v);
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "pool", pool->name);
	rte_tel_data_add_dict_u64(d, "prompt_tokens", v[PC_PROMPT_TOKENS]);
	rte_tel_data_add_dict_u64(d, "achieved_tokens", v[PC_HIT_TOKENS]);
	rte_tel_data_add_dict_u64(d, "achievable_tokens", v[PC_ACHIEVABLE_TOKENS]);
	tel_share(d, "achieved", v[PC_HIT_TOKENS], v[PC_PROMPT_TOKENS]);
	tel_share(d, "achievable", v[PC_ACHIEVABLE_TOKENS], v[PC_PROMPT_TOKENS]);
	rte_tel_data_add_dict_u64(d, "reported_predicted_tokens", v[PC_PREDICTED_TOKENS]);
	rte_tel_data_add_dict_u64(d, "reported_actual_tokens", v[PC_ACTUAL_TOKENS]);
	rte_tel_data_add_dict_u64(d, "beyond", v[PC_BEYOND_TOKENS]);
	kvr_telemetry_dict_part(d, "short", short_dict(v));
	page_answer(&page, d, false, add_hits);
	return 0;
}

/* ---- queue ---- */

struct queue_call {
	const struct pool *p;
	struct kvr_sched_pending all, class[KVR_POOL_CLASSES_MAX];
};

static void on_queue(struct lcore *lc, void *arg)
{
	struct queue_call *q = arg;

	RTE_SET_USED(lc);
	kvr_sched_pending(q->p->sched, &q->all);
	for (uint32_t i = 0; i < stats_classes(q->p); i++)
		kvr_sched_pending_class(q->p->sched, i, &q->class[i]);
}

static void add_pending(struct rte_tel_data *d, const struct kvr_sched_pending *v)
{
	rte_tel_data_add_dict_u64(d, "waiting", v->count);
	rte_tel_data_add_dict_u64(d, "isl_tokens", v->isl_tokens);
	rte_tel_data_add_dict_u64(d, "cached_tokens", v->cached_tokens);
}

static int cmd_queue(void *arg, const char *params, struct rte_tel_data *d)
{
	static struct queue_call q;
	struct router *rt = arg;
	struct rte_tel_data *list;
	struct kvr_telemetry_args a;
	uint64_t v[PC_COUNTERS];
	struct pool *pool;

	if (kvr_telemetry_args(&a, params) < 0 || a.n != 1)
		return kvr_telemetry_error(d, EINVAL, "expected a pool");
	pool = tel_pool(rt, &a, d);
	if (pool == NULL)
		return 0;
	q = (struct queue_call){.p = pool};
	call_lcore(rt, pool->sched_lcore, on_queue, &q);
	kvr_stats_sum(pool->stats, v);
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "pool", pool->name);
	add_pending(d, &q.all);
	rte_tel_data_add_dict_u64(d, "admitted", v[PC_ADMITTED]);
	rte_tel_data_add_dict_u64(d, "left", v[PC_QUEUE_ABANDONED]);
	rte_tel_data_add_dict_u64(d, "failed", v[PC_ADMISSION_REJECTED]);
	rte_tel_data_add_dict_u64(
		d, "rejected",
		kvr_cell_get(
			&kvr_sched_counters(pool->sched)->errors[KVR_SCHED_ERR_QUEUE_REJECTED]));
	list = rte_tel_data_alloc();
	if (list == NULL)
		return kvr_telemetry_error(d, ENOMEM, "no memory");
	rte_tel_data_start_dict(list);
	for (uint32_t i = 0; i < stats_classes(pool); i++) {
		struct rte_tel_data *t = rte_tel_data_alloc();

		if (t == NULL)
			break;
		rte_tel_data_start_dict(t);
		add_pending(t, &q.class[i]);
		kvr_telemetry_dict_part(
			list, pool->conf->n_classes != 0 ? pool->conf->classes[i].name : "default",
			t);
	}
	kvr_telemetry_dict_part(d, "classes", list);
	return 0;
}

static const struct kvr_telemetry_cmd commands[] = {
	{"/kvroute/loads", "POOL[,FROM]",
	 "load and counts of every rank, and the reason if not eligible, 16 at a time", cmd_loads,
	 false},
	{"/kvroute/worker", "ID[,FROM]", "details of one worker and its ranks", cmd_worker, false},
	{"/kvroute/queue", "POOL", "waiting requests by policy class, and their outcomes",
	 cmd_queue, false},
	{"/kvroute/events", "POOL[,FROM]", "KV event streams of every rank: lag, gaps, dumps",
	 cmd_events, false},
	{"/kvroute/hits", "POOL[,FROM]",
	 "cached tokens achieved and achievable, predicted and found, and reasons for shortfalls",
	 cmd_hits, false},
	{NULL, NULL, NULL, NULL, false},
};

int ranks_start(struct router *rt)
{
	return kvr_telemetry_register(commands, rt);
}

void ranks_stop(void)
{
	kvr_telemetry_unregister(commands);
}
