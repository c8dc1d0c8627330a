/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The router of the cluster: requests run through lib/request from their arrival to their last
 * token. There are no frames: a request that is sent is at its engine.
 */
#include "cluster.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>

/* ---- prefix table ------------------------------------------------------------------------ */

static void sweep_table(struct cluster *cluster)
{
	struct cluster_router *router = &cluster->router;
	const uint64_t ms = cluster->now / CLUSTER_MS;

	rte_rcu_qsbr_quiescent(router->qsbr, 0);
	if (ms < router->swept_ms + 100)
		return;
	router->swept_ms = ms;
	while (!kvr_prefix_expire(router->table, ms))
		;
	kvr_prefix_maintain(router->table, ms);
	rte_rcu_qsbr_quiescent(router->qsbr, 0);
}

static void apply_blocks(struct cluster *cluster, const struct kv_change *change)
{
	struct kvr_prefix *table = cluster->router.table;
	const struct cluster_req *req = change->req;
	const uint32_t have = change->have;

	if (change->epoch != cluster->rank[change->rank].epoch)
		return;
	if (have < req->n)
		kvr_prefix_store(table, (uint16_t)change->rank, KVR_TIER_DEVICE,
				 have > 0 ? &req->sh[have - 1] : NULL, req->sh + have,
				 req->n - have);
	if (change->n_removed > 0)
		kvr_prefix_remove(table, (uint16_t)change->rank, KVR_TIER_DEVICE, change->removed,
				  change->n_removed);
}

void cluster_blocks(struct cluster *cluster, uint32_t rank, const struct cluster_req *req,
		    const struct engine_cache_change *change)
{
	struct kv_change event = {rank, change->n_removed, change->have,
				  req,	cluster->scratch,  cluster->rank[rank].epoch};

	if (change->n != req->n) {
		fprintf(stderr, "cluster: a prompt of %u blocks exceeds the cache of %u blocks\n",
			req->n, change->n);
		exit(1);
	}
	if (cluster->conf.late_s <= 0) {
		apply_blocks(cluster, &event);
		return;
	}
	for (uint32_t i = 0; cluster->change[cluster->n_change].req != NULL; i++) {
		cluster->n_change = (cluster->n_change + 1) % CLUSTER_CHANGES;
		if (i == CLUSTER_CHANGES) {
			fprintf(stderr, "cluster: more than %u KV events under way\n",
				CLUSTER_CHANGES);
			exit(1);
		}
	}
	event.removed = cluster_alloc(change->n_removed + 1, 8);
	memcpy(event.removed, cluster->scratch, change->n_removed * 8ul);
	cluster->change[cluster->n_change] = event;
	cluster_add_event(cluster, cluster->now + (uint64_t)(cluster->conf.late_s * 1e9), EV_KV,
			  cluster->n_change);
}

void cluster_apply_change(struct cluster *cluster, uint32_t i)
{
	apply_blocks(cluster, &cluster->change[i]);
	free(cluster->change[i].removed);
	cluster->change[i].req = NULL;
}

void cluster_clear_rank(struct cluster *cluster, uint32_t rank)
{
	struct cluster_router *router = &cluster->router;

	kvr_prefix_clear_rank(router->table, (uint16_t)rank);
	while (!kvr_prefix_ready(router->table, (uint16_t)rank)) {
		kvr_prefix_maintain(router->table, cluster->now / CLUSTER_MS);
		rte_rcu_qsbr_quiescent(router->qsbr, 0);
	}
}

/* ---- callbacks --------------------------------------------------------------------------- */

static bool find_worker(void *arg, const struct kvr_rq_pool *p, uint64_t id,
			struct kvr_rq_worker *out)
{
	const struct cluster *cluster = arg;

	RTE_SET_USED(p);
	*out = (struct kvr_rq_worker){.epoch = 1, .dp_size = 1};
	return id < cluster->conf.ranks;
}

static void score_prompt(void *arg, struct kvr_exec_pool *pool, const struct kvr_sched_req *req,
			 struct kvr_sched_overlap *out)
{
	struct cluster_router *router = &((struct cluster *)arg)->router;
	struct kvr_prefix_query query = {req->sh, req->n, router->overlap};

	RTE_SET_USED(pool);
	kvr_prefix_score_burst(router->table, &query, 1);
	kvr_overlap_pad(router->overlap);
	out->device = kvr_overlap_tier(router->overlap, KVR_TIER_DEVICE);
}

static bool refresh_overlap(void *arg, uint32_t slot, const struct kvr_sched_req *req,
			    struct kvr_sched_overlap *out)
{
	RTE_SET_USED(slot);
	score_prompt(arg, NULL, req, out);
	return true;
}

static void carry_out(void *arg, struct kvr_exec_req *exec, const struct kvr_rq_order *order)
{
	struct flight *flight = container_of(exec, struct flight, exec);
	const struct kvr_leg *leg = &flight->r.leg[KVR_LEG_MAIN];
	struct cluster *cluster = arg;
	struct cluster_router *router = &cluster->router;

	switch (order->kind) {
	case KVR_RQO_SEND:
		flight->req->rank = (uint32_t)leg->worker;
		STAILQ_INSERT_TAIL(&router->sent, flight, link);
		break;
	case KVR_RQO_PREDICT:
		kvr_prefix_predict(router->table, (uint16_t)leg->rank, flight->msg.req.sh,
				   flight->msg.req.n, cluster->now / CLUSTER_MS,
				   router->predict_ms);
		break;
	case KVR_RQO_REJECTED:
		fprintf(stderr, "cluster: request rejected: %s\n",
			kvr_code_name((enum kvr_code)order->why.code));
		exit(1);
	case KVR_RQO_DONE:
		STAILQ_INSERT_HEAD(&router->free, flight, link);
		break;
	default:
		break;
	}
}

static const struct kvr_exec_ops ops = {
	.rq = {.worker = find_worker}, .score = score_prompt, .order = carry_out};

/* ---- requests ---------------------------------------------------------------------------- */

static void step_request(struct cluster *cluster, struct flight *flight, struct kvr_rq_event e)
{
	cluster->router.exec.now = cluster->now;
	kvr_exec_step(&cluster->router.exec, &flight->exec, &e);
}

/* Engines take and acknowledge what was sent to them. */
static void deliver_sent(struct cluster *cluster)
{
	struct flight *flight;

	while ((flight = STAILQ_FIRST(&cluster->router.sent)) != NULL) {
		STAILQ_REMOVE_HEAD(&cluster->router.sent, link);
		cluster_engine_take(cluster, (uint32_t)(flight->req - cluster->req));
		step_request(cluster, flight, (struct kvr_rq_event){.kind = KVR_RQE_TAKEN});
	}
}

/* The rank with the longest cached prefix, of those with at most 1.25 times the mean load and one
 * request. */
static uint64_t find_most_overlap(struct cluster *cluster, const struct kvr_sched_req *req)
{
	struct kvr_sched *sched = cluster->router.sched;
	struct kvr_sched_overlap overlap = {0};
	struct kvr_sched_rank_info info;
	double mean = 0;
	uint32_t best = CLUSTER_NONE, load = 0;

	score_prompt(cluster, NULL, req, &overlap);
	for (uint32_t i = 0; i < cluster->conf.ranks; i++) {
		kvr_sched_rank_get(sched, i, &info);
		mean += (double)info.active_requests / cluster->conf.ranks;
	}
	for (uint32_t i = 0; i < cluster->conf.ranks; i++) {
		kvr_sched_rank_get(sched, i, &info);
		if (info.active_requests > 1.25 * mean + 1)
			continue;
		if (best == CLUSTER_NONE || overlap.device[i] > overlap.device[best] ||
		    (overlap.device[i] == overlap.device[best] && info.active_requests < load))
			best = i, load = info.active_requests;
	}
	return best;
}

static struct flight *take_flight(struct cluster *cluster, struct cluster_req *req)
{
	struct cluster_router *router = &cluster->router;
	struct flight *flight = STAILQ_FIRST(&router->free);

	if (flight != NULL) {
		STAILQ_REMOVE_HEAD(&router->free, link);
	} else if (router->n_flights < cluster->conf.slots) {
		flight = &router->flight[router->n_flights++];
		flight->r = (struct kvr_request){0};
	} else {
		fprintf(stderr, "cluster: more than %u requests at once\n", cluster->conf.slots);
		exit(1);
	}
	flight->req = req;
	flight->msg = (struct kvr_rq_msg){.req = {.sh = req->sh, .n = req->n, .isl = req->isl}};
	kvr_exec_req_init(&flight->exec, &router->pool, &flight->r, &flight->msg, &flight->d);
	req->flight = flight;
	return flight;
}

void cluster_route(struct cluster *cluster, uint32_t req)
{
	struct cluster_router *router = &cluster->router;
	struct cluster_cost *cost = cluster->conf.cost;
	struct flight *flight;
	uint64_t began;

	sweep_table(cluster);
	flight = take_flight(cluster, &cluster->req[req]);
	began = cost != NULL ? cost->clock_ns() : 0;
	if (router->pick_most) {
		flight->msg.hints.present = KVR_HAS(KVR_HINT_BACKEND);
		flight->msg.hints.backend_worker = find_most_overlap(cluster, &flight->msg.req);
		flight->msg.req.hints = &flight->msg.hints;
	}
	router->exec.now = cluster->now;
	kvr_exec_arrive(&router->exec, &flight->exec, NULL);
	if (cost != NULL) {
		cost->ns += cost->clock_ns() - began;
		cost->decisions++;
	}
	deliver_sent(cluster);
}

void cluster_admit(struct cluster *cluster)
{
	struct cluster_router *router = &cluster->router;
	uint32_t expired;
	uint64_t at;

	/* Nothing expires, but the call advances the scheduler's timer. */
	kvr_sched_expire(router->sched, cluster->now, &expired, 1);
	router->exec.now = cluster->now;
	kvr_exec_admit(&router->exec, &router->pool);
	deliver_sent(cluster);
	at = kvr_sched_next_timer(router->sched);
	if (!router->waits || at == UINT64_MAX ||
	    (router->poll_at > cluster->now && router->poll_at <= at))
		return;
	router->poll_at = at > cluster->now ? at : cluster->now + 1;
	cluster_add_event(cluster, router->poll_at, EV_POLL, 0);
}

void cluster_prefilled(struct cluster *cluster, uint32_t req)
{
	if (cluster->req[req].osl > 1)
		step_request(cluster, cluster->req[req].flight,
			     (struct kvr_rq_event){
				     .kind = KVR_RQE_ITEM, .flags = KVR_RQEF_FIRST, .tokens = 1});
}

static void step_to_end(struct cluster *cluster, uint32_t req, uint16_t flags, uint32_t tokens)
{
	struct flight *flight = cluster->req[req].flight;

	step_request(cluster, flight,
		     (struct kvr_rq_event){.kind = KVR_RQE_FIN, .flags = flags, .tokens = tokens});
	step_request(cluster, flight, (struct kvr_rq_event){.kind = KVR_RQE_LINGERED});
}

void cluster_ended(struct cluster *cluster, uint32_t req)
{
	const uint32_t osl = cluster->req[req].osl;

	step_to_end(cluster, req, (uint16_t)(osl > 1 ? 0 : KVR_RQEF_FIRST), osl);
}

void cluster_lost(struct cluster *cluster, uint32_t req)
{
	step_to_end(cluster, req, KVR_RQEF_ERROR, 0);
}

/* ---- set-up ------------------------------------------------------------------------------ */

static void set_key(struct kvr_pool_conf *conf, const char *key, const char *value)
{
	char err[256];

	if (kvr_pool_conf_set(conf, key, value, err, sizeof(err)) != 0) {
		fprintf(stderr, "cluster: %s = %s: %s\n", key, value, err);
		exit(2);
	}
}

/* NAME[,key=value...]. NAME: `reference` (mode kv), `preset`, `most-overlap` or a router mode. */
static void configure_policy(struct cluster_router *router, const char *policy)
{
	struct kvr_pool_conf *conf = &router->conf;
	char text[512], *save = NULL, *word;

	snprintf(text, sizeof(text), "%s", policy);
	word = strtok_r(text, ",", &save);
	router->pick_most = strcmp(word, "most-overlap") == 0;
	if (strcmp(word, "preset") == 0)
		set_key(conf, "router_preset", "throughput");
	else if (!router->pick_most && strcmp(word, "reference") != 0)
		set_key(conf, "router_mode", word);
	while ((word = strtok_r(NULL, ",", &save)) != NULL) {
		char *value = strchr(word, '=');

		if (value == NULL) {
			fprintf(stderr, "cluster: policy %s: expected key=value, not \"%s\"\n",
				policy, word);
			exit(2);
		}
		*value = '\0';
		set_key(conf, word, value + 1);
	}
	router->waits = conf->ttft_late_binding;
	if (!isnan(conf->predicted_ttl_s)) /* NaN: no prediction */
		router->predict_ms = (uint32_t)(conf->predicted_ttl_s * 1000);
}

static void create_table(struct cluster *cluster)
{
	const uint32_t blocks = cluster->conf.cache_blocks * cluster->conf.ranks;
	struct cluster_router *router = &cluster->router;
	struct kvr_prefix_conf conf = {.name = "cluster",
				       .max_ranks = (cluster->conf.ranks + 63) / 64 * 64,
				       .max_blocks = blocks + blocks / 2 + 65536,
				       .max_predicted = 1u << 20,
				       .socket_id = SOCKET_ID_ANY};

	router->qsbr = cluster_alloc(1, rte_rcu_qsbr_get_memsize(1));
	rte_rcu_qsbr_init(router->qsbr, 1);
	rte_rcu_qsbr_thread_register(router->qsbr, 0);
	rte_rcu_qsbr_thread_online(router->qsbr, 0);
	conf.qsbr = router->qsbr;
	router->table = kvr_prefix_create(&conf);
	router->overlap = cluster_alloc(1, kvr_overlap_size(conf.max_ranks));
	if (router->table == NULL) {
		fprintf(stderr, "cluster: no memory for a prefix table of %u blocks\n",
			conf.max_blocks);
		exit(1);
	}
}

static void create_scheduler(struct cluster *cluster)
{
	const struct kvr_sched_ops sched_ops = {.arg = cluster, .refresh = refresh_overlap};
	struct cluster_router *router = &cluster->router;

	router->sched = kvr_sched_create(&router->conf, &sched_ops, 0);
	if (router->sched == NULL) {
		fprintf(stderr, "cluster: no memory for a scheduler of %u ranks\n",
			cluster->conf.ranks);
		exit(1);
	}
	for (uint64_t id = 0; id < cluster->conf.ranks; id++) {
		const struct kvr_sched_worker worker = {.id = id, .dp_size = 1};

		if (kvr_sched_worker_set(router->sched, &worker, 0) != 0)
			exit(1);
	}
}

void cluster_router_create(struct cluster *cluster)
{
	struct cluster_router *router = &cluster->router;
	const uint32_t slots = cluster->conf.slots;

	kvr_pool_conf_defaults(&router->conf);
	strcpy(router->conf.name, "cluster");
	router->conf.block_size = CLUSTER_BLOCK;
	router->conf.max_ranks = cluster->conf.ranks;
	router->conf.max_requests = slots;
	router->conf.seed = cluster->conf.seed;
	router->conf.request_expiry_s = 1e6;
	configure_policy(router, cluster->conf.policy);
	create_table(cluster);
	create_scheduler(cluster);
	kvr_request_pool_init(&router->rq, &router->conf, NULL, router->count);
	router->rq.predict =
		kvr_pool_mode(router->conf.mode)->needs_cache && router->predict_ms > 0;
	router->exec = (struct kvr_exec){.ops = &ops, .arg = cluster};
	kvr_rand_init(&router->exec.rand, cluster->conf.seed);
	/* Not cluster_alloc(): flights that are never used are never touched. */
	router->flight = aligned_alloc(64, slots * sizeof(*router->flight));
	if (kvr_exec_pool_init(&router->pool, &router->rq, router->sched, slots) < 0 ||
	    router->flight == NULL) {
		fprintf(stderr, "cluster: no memory for %u requests\n", slots);
		exit(1);
	}
	STAILQ_INIT(&router->free);
	STAILQ_INIT(&router->sent);
}

static void check_counters(const struct cluster_router *router)
{
	const uint64_t arrived = kvr_cell_get(&router->count[KVR_RQC_ARRIVED]);
	const uint64_t done = kvr_cell_get(&router->count[KVR_RQC_DONE]);
	const uint64_t stray = kvr_cell_get(&router->count[KVR_RQC_IMPOSSIBLE]) +
			       kvr_cell_get(&router->count[KVR_RQC_LATE]);

	if (arrived == done && stray == 0)
		return;
	fprintf(stderr,
		"cluster: %lu requests arrived, %lu are done, %lu events were out of place\n",
		(unsigned long)arrived, (unsigned long)done, (unsigned long)stray);
	exit(1);
}

void cluster_router_destroy(struct cluster *cluster)
{
	struct cluster_router *router = &cluster->router;

	check_counters(router);
	kvr_exec_pool_fini(&router->pool);
	kvr_sched_destroy(router->sched);
	kvr_prefix_destroy(router->table);
	free(router->flight);
	free(router->overlap);
	free(router->qsbr);
}
