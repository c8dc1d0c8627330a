/* SPDX-License-Identifier: BSD-3-Clause */
/* The router of a scenario: its start, its clock, frames that come out, what is read in it. */
#include "peers.h"

#include "control/thread.h"
#include "ingress/route.h"
#include "loop/loop.h"
#include "pipeline.h"
#include "sched/decision_log.h"
#include "sched/request.h"
#include "sched/session.h"

#include <stdlib.h>
#include <string.h>

#include <rte_random.h>

#include "kvr_message.h"
#include "kvr_telemetry.h"

/* Time 0 of a scenario: a whole number of every unit in which the router looks at its timers. */
#define ZERO (UINT64_C(1) << 44)

static uint64_t read_up_to[KVR_ROUTER_MAX_POOLS];	   /* decisions */
static struct kvr_overlap *overlaps[KVR_ROUTER_MAX_POOLS]; /* each of one table */

/* Slot that the rounds of the router look at, by pool; NO_SLOT: one without a request. */
#define NO_SLOT UINT32_MAX
static uint32_t round_slot[KVR_ROUTER_MAX_POOLS];

static void need(bool ok, const char *what)
{
	if (ok)
		return;
	fflush(stdout);
	fprintf(stderr, "frames: %s\n", what);
	exit(3);
}

static uint32_t find_unused_slot(const struct pool *p)
{
	uint32_t slot = kvr_flight_size(p->requests);

	while (slot-- > 0)
		if (kvr_flight_slot(p->requests, slot)->state != KVR_FLIGHT_LIVE)
			return slot;
	need(false, "a scenario with more requests than slots");
	return 0;
}

/* A turn whose rounds look at one slot. */
static void turn_lcore(struct lcore *lc)
{
	for (uint32_t i = 0; i < rt->n_pools; i++) {
		struct pool *p = &rt->pool[i];

		p->live.look = 1;
		p->live.sweep = round_slot[i] != NO_SLOT ? round_slot[i] : find_unused_slot(p);
	}
	lcore_turn(lc);
}

void peers_start(const char *pools)
{
	/* Nobody is silent: time stands still. A worker that is gone is not waited for. */
	pipeline_router = "source_share = 0\nheartbeat_ms = 10\nsuspect_ms = 20\ndead_ms = 30\n"
			  "client_timeout_ms = 3600000\n";
	pipeline_still = true;
	pipeline_lcore_turn = turn_lcore;
	memset(round_slot, 0xff, sizeof(round_slot));
	pipeline_start_ns = ZERO;
	rte_srand(1);
	pipeline_start_with(pools);
	for (uint32_t i = 0; i < rt->n_pools; i++) {
		const size_t n = RTE_ALIGN_CEIL(kvr_overlap_size(rt->pool[i].max_ranks),
						RTE_CACHE_LINE_SIZE);

		overlaps[i] = aligned_alloc(RTE_CACHE_LINE_SIZE, n);
		need(overlaps[i] != NULL, "no memory");
		memset(overlaps[i], 0, n);
	}
	rt->ctl->began_ns = 1; /* nobody is waited for since the start */
	pipeline_turn();
}

void peers_clock(uint64_t ns)
{
	const uint64_t to = ZERO + ns;

	if (to <= rt->ns_offset)
		return;
	pipeline_skip_ns(to - rt->ns_offset);
	peers_said++;
}

void peers_turn(void)
{
	pipeline_turn();
}

uint64_t peers_timer(uint32_t pool)
{
	const struct sessions *s = rt->pool[pool].sessions;
	uint64_t t = kvr_sched_next_timer(rt->pool[pool].sched);

	/* Opens are said again and again, each time later. */
	for (uint32_t i = 0; s != NULL && i < SESSION_WAITS; i++)
		if (!TAILQ_EMPTY(&s->open_step[i]))
			t = RTE_MIN(t, TAILQ_FIRST(&s->open_step[i])->due_ns);
	/* So are messages to workers that do not acknowledge them. */
	for (uint32_t i = 0; i < LEG_STEPS; i++)
		if (!TAILQ_EMPTY(&rt->pool[pool].live.resends[i]))
			t = RTE_MIN(t, TAILQ_FIRST(&rt->pool[pool].live.resends[i])->resend_ns);
	return t == UINT64_MAX ? t : t < ZERO ? 0 : t - ZERO;
}

static const struct request *find_request(uint32_t pool, uint64_t id)
{
	const struct kvr_flight *slot =
		kvr_flight_lookup(rt->pool[pool].requests, PEERS_SOURCE, id);

	return slot != NULL ? request_of(slot) : NULL;
}

int64_t peers_reroute_left(uint32_t pool, uint64_t id)
{
	const struct request *r = find_request(pool, id);
	struct lcore *lc = rt->lcore[0];
	struct kvr_rq_ctx ctx;
	uint64_t due;

	if (r == NULL || leg_state(r, MAIN) != KVR_RQS_RUNNING)
		return INT64_MAX;
	lc->view = atomic_load_explicit(&rt->view, memory_order_relaxed); /* this thread's own */
	ctx = request_ctx(lc, &rt->pool[pool]);
	due = kvr_request_reroute_due(&ctx, &r->rq, MAIN);
	return due == UINT64_MAX ? INT64_MAX : (int64_t)(due - ctx.now);
}

void peers_reroute(uint32_t pool, uint64_t id)
{
	const struct request *r = find_request(pool, id);

	round_slot[pool] = (uint32_t)kvr_flight_handle(rt->pool[pool].requests, r->slot[MAIN]) &
			   (KVR_FLIGHT_MAX_SLOTS - 1);
	pipeline_turn();
	round_slot[pool] = NO_SLOT;
	need(peers_reroute_left(pool, id) > 0, "a leg without blocks that does not start over");
	peers_said++;
}

/* ---- what is read ------------------------------------------------------------------------ */

uint32_t peers_pool(const char *name)
{
	for (uint32_t i = 0; i < rt->n_pools; i++)
		if (strcmp(rt->pool[i].name, name) == 0)
			return i;
	need(false, "a pool that the router does not have");
	return 0;
}

struct kvr_sched *peers_sched(uint32_t pool)
{
	return rt->pool[pool].sched;
}

bool peers_active(uint32_t pool)
{
	return kvr_disagg_active(&rt->pool[pool].pair.disagg);
}

uint32_t peers_worker_state(uint64_t worker)
{
	const struct kvr_worker *w = kvr_registry_find(rt->registry, worker);

	return w != NULL ? w->state : KVR_WORKER_GONE;
}

void peers_silent(uint64_t worker)
{
	kvr_registry_find(rt->registry, worker)->last_seen_ns = 0;
	peers_said++;
}

void peers_drain(uint64_t worker, bool draining)
{
	peers_said++;
	kvr_telemetry_lock();
	control_drain(rt, worker, draining);
	kvr_telemetry_unlock();
}

void peers_scores(uint32_t pool, const uint64_t *sh, uint32_t n, struct kvr_sched_overlap *ov)
{
	struct kvr_overlap *overlap = overlaps[pool];
	const struct kvr_prefix_query q = {sh, n, overlap};

	kvr_prefix_score_burst(rt->pool[pool].prefix, &q, 1);
	kvr_overlap_pad(overlap);
	overlap_view(overlap, ov);
}

bool peers_life(uint32_t pool, uint64_t id, struct peers_life *out)
{
	const struct request *r = find_request(pool, id);

	if (r == NULL)
		return false;
	*out = (struct peers_life){
		.way = r->rq.way,
		.try = r->rq.tries,
		.handle = kvr_flight_handle(rt->pool[pool].requests, r->slot[MAIN]),
		.released = {r->rq.leg[MAIN].released, r->rq.leg[PREFILL].released}};
	return true;
}

uint32_t peers_loads_of_nothing(uint32_t pool, struct kvr_sched_load v[], uint32_t cap,
				struct kvr_sched_pending *pending)
{
	const struct kvr_sched_req none = {.isl = 0};

	kvr_sched_pending(rt->pool[pool].sched, pending);
	return kvr_sched_loads(rt->pool[pool].sched, &none, NULL, now_ns(rt), v, cap);
}

static int by_rank(const void *a, const void *b)
{
	const struct kvr_sched_term *x = a, *y = b;

	if (x->worker != y->worker)
		return x->worker < y->worker ? -1 : 1;
	return x->dp_rank < y->dp_rank ? -1 : x->dp_rank > y->dp_rank;
}

bool peers_decision(uint32_t pool, struct peers_decision *out)
{
	const struct decision_log *log = rt->pool[pool].log;
	struct decision v;

	if (read_up_to[pool] == decision_written(log))
		return false;
	need(decision_read(log, read_up_to[pool], &v) == 0, "a decision was not kept");
	read_up_to[pool]++;
	out->id = v.id;
	out->d = v.d;
	out->n_terms = v.n_terms;
	memcpy(out->term, v.term, v.n_terms * sizeof(v.term[0]));
	/* Of more ranks than an entry has room for, those of the last decision are still there. */
	if (v.n_eligible > v.n_terms && v.n_eligible <= PEERS_TERMS &&
	    read_up_to[pool] == decision_written(log)) {
		out->n_terms = v.n_eligible;
		memcpy(out->term, log->terms.v, v.n_eligible * sizeof(log->terms.v[0]));
	}
	qsort(out->term, out->n_terms, sizeof(out->term[0]), by_rank);
	return true;
}

/* ---- sessions ---------------------------------------------------------------------------- */

static struct kvr_session *table(uint32_t pool)
{
	return rt->pool[pool].live.rq.sessions;
}

uint32_t peers_sessions(uint32_t pool)
{
	return table(pool) != NULL ? kvr_session_count(table(pool)) : 0;
}

uint64_t peers_sessions_over(uint32_t pool)
{
	return kvr_stats_get(rt->pool[pool].live.rq.count, KVR_RQC_SESSION_EXPIRED);
}

bool peers_find_binding(uint32_t pool, const char *id, uint32_t len, struct peers_binding *out)
{
	const struct kvr_session *s = table(pool);
	const uint32_t n = s != NULL ? kvr_session_entries(s) : 0;
	struct kvr_session_held held;

	for (uint32_t i = 0; i < n; i++) {
		if (!kvr_session_entry(s, i, now_ns(rt), &held) || held.len != len ||
		    memcmp(held.id, id, len) != 0)
			continue;
		*out = (struct peers_binding){held.to.worker, held.to.tag, held.to.dp_rank,
					      held.left_ns};
		return true;
	}
	return false;
}

/* ---- frames that came out ---------------------------------------------------------------- */

static void got_rejected(const struct out *o, struct peers_got *g)
{
	const struct kvr_wire_rejected *w = (const void *)(&o->hdr + 1);

	g->code = w->code;
	g->about = w->kind;
	g->retryable = w->retryable;
	g->policy_class = w->policy_class;
	memcpy(g->detail, w->detail, sizeof(g->detail));
}

static void got_dispatch(const struct out *o, struct peers_got *g)
{
	struct kvr_message q;
	struct kvr_hint_lists lists;
	struct kvr_hints hints;

	/* Of a message of several frames the first one says all that is asked here. */
	need(kvr_request_parse_fixed(&o->hdr + 1, KVR_DISPATCH, o->hdr.msg_len, &q) == 0,
	     "a malformed DISPATCH");
	g->prefill_leg = (q.fixed.flags & KVR_REQ_F_PREFILL_LEG) != 0;
	if (o->hdr.frag_off != 0 || q.body_off > o->hdr.frag_len)
		return;
	need(kvr_hints_parse((const uint8_t *)(&o->hdr + 1) + q.hints_off, q.fixed.hints_len,
			     KVR_HINTS_DISPATCH, &hints, &lists) == 0,
	     "malformed hints in a DISPATCH");
	g->room = hints.bootstrap.room;
}

static void got_session(const struct out *o, struct peers_got *g)
{
	const struct kvr_wire_session *w = (const void *)(&o->hdr + 1);

	g->session_len = w->id_len;
	memcpy(g->session, w + 1, w->id_len);
	g->session[w->id_len] = '\0';
	for (g->session_pool = 0; rt->pool[g->session_pool].wire_id != w->pool; g->session_pool++)
		;
}

static void got_loads(const struct out *o, struct peers_got *g)
{
	const struct kvr_wire_loads *w = (const void *)(&o->hdr + 1);
	const struct kvr_wire_rank_potential *p = (const void *)(w + 1);

	need(o->hdr.frag_len == o->hdr.msg_len && w->n_ranks <= RTE_DIM(g->load),
	     "LOADS of more ranks than a frame holds");
	g->n_loads = w->n_ranks;
	g->waiting = w->queue_len;
	g->waiting_tokens = w->pending_tokens;
	for (uint32_t i = 0; i < w->n_ranks; i++)
		g->load[i] = (struct kvr_sched_load){
			.worker = p[i].worker,
			.dp_rank = p[i].dp_rank,
			.active_requests = p[i].active_requests,
			.potential_prefill_tokens = p[i].prefill_tokens,
			.potential_decode_blocks = (uint32_t)p[i].decode_blocks,
		};
}

static void decode(const struct out *o, struct peers_got *g)
{
	const void *body = &o->hdr + 1;

	*g = (struct peers_got){.kind = o->hdr.kind,
				.port = (uint16_t)o->to,
				.source = o->hdr.source,
				.id = o->hdr.id,
				.handle = o->hdr.handle,
				.epoch = o->hdr.epoch};
	switch (o->hdr.kind) {
	case KVR_ACCEPTED:
		memcpy(&g->accepted, body, sizeof(g->accepted));
		break;
	case KVR_REJECTED:
		got_rejected(o, g);
		break;
	case KVR_DISPATCH:
		got_dispatch(o, g);
		break;
	case KVR_RESPONSE:
		g->seq = ((const struct kvr_wire_response *)body)->seq;
		g->fin = (((const struct kvr_wire_response *)body)->flags & KVR_RESP_F_FIN) != 0;
		break;
	case KVR_ABORT:
		g->code = ((const struct kvr_wire_abort *)body)->code;
		break;
	case KVR_SESSION_OPEN:
	case KVR_SESSION_CLOSE:
		got_session(o, g);
		break;
	case KVR_SESSION_RELEASED:
		g->code = ((const struct kvr_wire_session_status *)body)->code;
		break;
	case KVR_LOADS:
		got_loads(o, g);
		break;
	}
}

bool peers_next(struct peers_got *out)
{
	const struct out *o = pipeline_next(0);

	while (o != NULL && o->to == 0) /* taken by pipeline_expect() */
		o = pipeline_next(0);
	if (o == NULL) {
		pipeline_flush();
		return false;
	}
	decode(o, out);
	return true;
}
