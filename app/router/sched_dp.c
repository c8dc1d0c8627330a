/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The scheduler stage of a pool: the only writer of its load model, queue and request slots.
 *
 *   ROUTE   known (source, id)? repeat the answer : decide -> slot, booking, DISPATCH, ACCEPTED
 *   notes   PROGRESS, DISPATCH_ACK, CANCEL, ... move the slot along; each booking is freed once, in
 *           sched_end(), whatever ends the request
 *   time    lingering slots, unanswered ABORTs and the queue, once per call
 */
#include "agent_path.h"
#include "router.h"
#include "session.h"
#include "stages.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define ABORT_TRIES    5
#define ABORT_EVERY_NS UINT64_C(500000000)
#define STEPS_AHEAD    (1 + KVR_SCHED_AHEAD) /* the job, then what it or the slot leads to */

static const enum kvr_wire_code sched_codes[KVR_SCHED_ERRS] = {
	[KVR_SCHED_NO_ENDPOINTS] = KVR_E_NO_ENDPOINTS,
	[KVR_SCHED_ALL_OVERLOADED] = KVR_E_ALL_OVERLOADED,
	[KVR_SCHED_PIN_NOT_ALLOWED] = KVR_E_PINNED_NOT_ALLOWED,
	[KVR_SCHED_PIN_OVERLOADED] = KVR_E_PINNED_OVERLOADED,
	[KVR_SCHED_QUEUE_REJECTED] = KVR_E_QUEUE_REJECTED,
	[KVR_SCHED_NOT_ACTIVATED] = KVR_E_NOT_ACTIVATED,
	[KVR_SCHED_DP_RANK_REQUIRED] = KVR_E_DP_RANK_REQUIRED,
	[KVR_SCHED_WORKER_ID_REQUIRED] = KVR_E_WORKER_ID_REQUIRED,
	[KVR_SCHED_INVALID_OVERRIDE] = KVR_E_INVALID_OVERRIDE,
	[KVR_SCHED_DUPLICATE] = KVR_E_DUPLICATE_REQUEST,
	[KVR_SCHED_EMPTY_PROMPT] = KVR_E_EMPTY_PROMPT,
	[KVR_SCHED_PROMPT_TOO_LONG] = KVR_E_PROMPT_TOO_LONG,
	[KVR_SCHED_INVALID_WEIGHT] = KVR_E_INVALID_WEIGHT,
	[KVR_SCHED_UNKNOWN_CLASS] = KVR_E_UNKNOWN_POLICY_CLASS,
	[KVR_SCHED_BAD_SLOT] = KVR_E_NO_MEMORY,
	[KVR_SCHED_SHUTDOWN] = KVR_E_SHUTDOWN,
};

enum kvr_wire_code sched_code(enum kvr_sched_err err)
{
	return sched_codes[err];
}

void sched_detail(const struct kvr_sched_decision *d, uint64_t detail[4])
{
	if (d->err != KVR_SCHED_QUEUE_REJECTED)
		return;
	detail[0] = (uint64_t)d->reject.kind + 1;
	detail[1] = d->reject.current;
	detail[2] = d->reject.limit;
}

/* ---- states ---- */

bool sched_may(struct pool *p, const struct kvr_flight *r, enum kvr_life_event event)
{
	const enum kvr_life_verdict v = r != NULL ? kvr_life(r->state, event, NULL) : KVR_LIFE_LATE;

	if (likely(v == KVR_LIFE_GO))
		return true;
	pool_count(p, v == KVR_LIFE_LATE ? PC_LATE : PC_OUT_OF_TURN, 1);
	return false;
}

void sched_step(struct kvr_flight *r, enum kvr_life_event event)
{
	enum kvr_flight_state next;
	const enum kvr_life_verdict v = kvr_life(r->state, event, &next);

	assert(v == KVR_LIFE_GO);
	RTE_SET_USED(v);
	if (next != KVR_RQ_DISPATCHED)
		send_end(r);
	if (event == KVR_LIFE_SEND)
		r->sent = 1;
	r->state = (uint8_t)next;
}

/* ---- answers ---- */

void sched_accepted(struct lcore *lc, struct pool *p, const struct kvr_flight *r)
{
	struct kvr_wire_accepted a = {.state = KVR_STATE_QUEUED, .prefill_dp_rank = KVR_NONE32};
	struct kvr_sched_pending waiting;

	if (r->state != KVR_RQ_QUEUED && r->state != KVR_RQ_HELD) {
		a.worker = r->relay.worker;
		a.dp_rank = r->dp_rank;
		a.overlap_blocks = r->overlap_blocks;
		a.required_blocks = r->required_blocks;
		a.cached_tokens = r->cached_tokens;
		a.state = r->state == KVR_RQ_DISPATCHED ? KVR_STATE_DISPATCHED : KVR_STATE_RUNNING;
		a.path = r->path;
		a.flags = send_kept(r) ? KVR_ACC_F_KEPT : 0;
	}
	if (a.path == KVR_PATH_BOOTSTRAP || a.path == KVR_PATH_SYNC) {
		a.prefill_worker = r->prefill_worker;
		a.prefill_dp_rank = r->prefill_dp_rank;
		a.prefill_overlap_blocks = r->prefill_overlap;
	}
	kvr_sched_pending(p->sched, &waiting);
	a.queue_len = waiting.count;
	a.pending_tokens = (uint32_t)RTE_MIN(waiting.isl_tokens, UINT32_MAX);
	out_message(lc, &r->relay.client, KVR_ACCEPTED, r->relay.source, r->relay.id,
		    kvr_flight_handle(p->requests, r), &a, sizeof(a));
}

static bool is_expected(const struct pool *p)
{
	/* Publishes nothing: control looks every 10 ms. */
	return p != NULL && atomic_load_explicit(&p->expected, memory_order_relaxed);
}

struct refusal sched_refusal(const struct pool *p, enum kvr_wire_code code)
{
	struct refusal why = {.code = code};
	uint32_t ranks, open;

	if (code != KVR_E_NO_ENDPOINTS)
		return why;
	if (is_expected(p) || is_expected(p->prefill))
		why.retry = RETRY_YES;
	kvr_sched_n_ranks(p->sched, &ranks, &open);
	why.detail[0] = kvr_sched_n_workers(p->sched);
	why.detail[1] = ranks;
	why.detail[2] = open;
	why.text = "no worker: see detail for workers and ranks of the pool, ranks to choose from";
	return why;
}

static void refuse_job(struct lcore *lc, struct job *j, const struct refusal *why)
{
	out_reject(lc, &j->client, j->kind, j->source, j->id, why);
	job_free(lc, j);
}

/* What the job's source has its share of. */
static void excess_detail(const struct job *j, struct refusal *why)
{
	if (why->code != KVR_E_SOURCE_LIMIT)
		return;
	why->detail[0] = j->excess_of;
	why->detail[1] = j->excess.have;
	why->detail[2] = j->excess.may;
}

static void reject_job(struct lcore *lc, struct job *j, enum kvr_wire_code code,
		       const struct kvr_sched_decision *d)
{
	struct refusal why = sched_refusal(j->pool, code);

	if (d != NULL)
		sched_detail(d, why.detail);
	excess_detail(j, &why);
	refuse_job(lc, j, &why);
}

/* ---- what is said again ---- */

void sched_says(struct kvr_flight *r, const struct refusal *why)
{
	r->end = (struct kvr_flight_end){.code = (uint16_t)why->code, .retry = (uint8_t)why->retry};
	memcpy(r->end.detail, why->detail, sizeof(r->end.detail));
}

static struct refusal said(const struct kvr_flight_end *end)
{
	struct refusal why = {.code = end->code != KVR_OK ? (enum kvr_wire_code)end->code
							  : KVR_E_ENDED,
			      .retry = (enum refusal_retry)end->retry};

	memcpy(why.detail, end->detail, sizeof(why.detail));
	return why;
}

/* Whether (source, id) has ended lately; then what its client has been told. */
static bool has_ended(const struct pool *p, uint64_t source, uint64_t id, struct refusal *why)
{
	struct kvr_flight_end end;

	if (likely(!kvr_flight_has_ended(p->requests, source, id, &end)))
		return false;
	*why = said(&end);
	return true;
}

/* Whether a frame about a request comes from where its ROUTE came from. */
static bool is_client(struct pool *p, const struct kvr_flight *r, const struct kvr_path *from)
{
	if (likely(kvr_path_same(from, &r->relay.client)))
		return true;
	pool_count(p, PC_STRANGERS, 1);
	return false;
}

/* ---- ends ---- */

static void abort_send(struct lcore *lc, struct pool *p, struct kvr_flight *r)
{
	/* Ended by the client's wish: 0. */
	const struct kvr_wire_abort a = {.code = r->end.code == KVR_E_ENDED ? 0 : r->end.code};

	out_message(lc, agent_path(lc, &r->relay), KVR_ABORT, r->relay.source, r->relay.id,
		    kvr_flight_handle(p->requests, r), &a, sizeof(a));
	r->abort_tries--;
	r->abort_ns = lc->now_ns + ABORT_EVERY_NS;
}

void sched_abort(struct lcore *lc, struct pool *p, struct kvr_flight *r)
{
	/* A worker that has got no DISPATCH has nothing to stop: ABORT alone is never sent. */
	if (r->abort_ns != 0 || !r->sent)
		return;
	r->abort_tries = ABORT_TRIES;
	TAILQ_INSERT_TAIL(&p->aborts, r, abort_link);
	abort_send(lc, p, r);
}

static void abort_stop(struct pool *p, struct kvr_flight *r)
{
	if (r->abort_ns == 0)
		return;
	TAILQ_REMOVE(&p->aborts, r, abort_link);
	r->abort_ns = 0;
}

/* The booking is over, counted under `how`; the slot lingers for repeats of the last frames. */
void sched_end(struct lcore *lc, struct pool *p, struct kvr_flight *r, enum pool_counter how)
{
	if (r->state == KVR_RQ_ENDED)
		return;
	if (r->booked)
		kvr_sched_finish(p->sched, r->slot, lc->now_ns);
	r->booked = 0;
	if (r->state == KVR_RQ_HELD && r->legs == NULL)
		job_free(lc, r->job);
	send_end(r);
	session_ended(lc, p, r, how);
	r->job = NULL;
	pool_count(p, how, 1);
	slot_end(p, r, lc->now_ns);
}

static void release(struct pool *p, struct kvr_flight *r)
{
	assert(kvr_life(r->state, KVR_LIFE_RELEASE, NULL) == KVR_LIFE_GO);
	abort_stop(p, r);
	slot_release(p, r);
}

void sched_fail(struct lcore *lc, struct pool *p, struct kvr_flight *r, enum kvr_wire_code code,
		uint64_t detail0, enum pool_counter how)
{
	struct refusal why = sched_refusal(p, code);

	if (code != KVR_E_NO_ENDPOINTS) /* it has its own */
		why.detail[0] = detail0;
	if (r->state == KVR_RQ_ENDED)
		return;
	if (r->legs != NULL) {
		legs_fail(lc, p, r, code, detail0, how);
		return;
	}
	sched_says(r, &why);
	out_reject(lc, &r->relay.client, KVR_ROUTE, r->relay.source, r->relay.id, &why);
	sched_end(lc, p, r, how);
}

struct kvr_flight *sched_slot(struct pool *p, uint64_t source, uint64_t id, bool named)
{
	struct kvr_flight *(*const alloc)(struct kvr_flight_table *, uint64_t, uint64_t) =
		named ? kvr_flight_alloc : kvr_flight_alloc_unnamed;
	struct kvr_flight *r = alloc(p->requests, source, id), *oldest;

	if (likely(r != NULL))
		return r;
	oldest = kvr_flight_oldest(p->requests);
	if (oldest == NULL)
		return NULL;
	pool_count(p, PC_MADE_ROOM, 1);
	release(p, oldest);
	return alloc(p->requests, source, id);
}

/* The request is not in the scheduler's queue any more and was not admitted. */
static void leave_queue(struct lcore *lc, struct pool *p, struct kvr_flight *r,
			enum kvr_wire_code code)
{
	job_free(lc, r->job);
	r->job = NULL;
	sched_says(r, &(const struct refusal){.code = code});
	sched_end(lc, p, r, PC_QUEUE_LEFT);
}

/* ---- decisions ---- */

/* Send the job's message to the worker of the slot. One frame is taken from the job; a job of
 * several is the slot's until they are out, or acknowledged: send_job(). */
static void dispatch(struct lcore *lc, struct pool *p, struct kvr_flight *r, struct job *j)
{
	struct dispatch_fields f = {
		.handle = kvr_flight_handle(p->requests, r),
		.worker = r->relay.worker,
		.dp_rank = r->dp_rank,
		.overlap_blocks = r->overlap_blocks,
		.cached_tokens = r->cached_tokens,
		.attempt = r->attempt,
		.direct = r->relay.direct != 0,
	};

	sched_step(r, KVR_LIFE_SEND);
	kvr_flight_publish(r); /* before this its worker has nothing to say about it */
	if (unlikely(j->frames != NULL)) {
		send_start(lc, p, r, j);
		return;
	}
	out_dispatch(lc, j, agent_path(lc, &r->relay), &f);
	pool_count(p, PC_DISPATCHES, 1);
}

int sched_bind(struct lcore *lc, struct pool *p, struct kvr_flight *r, const struct job *j,
	       const struct kvr_sched_decision *d)
{
	const struct kvr_view_worker *w = kvr_view_find(lc->view, d->worker);

	r->booked = 1;
	r->rank = d->rank;
	r->dp_rank = d->dp_rank;
	r->overlap_blocks = d->overlap_blocks;
	r->required_blocks = d->required_blocks;
	r->cached_tokens = (uint32_t)RTE_MIN(d->cached_tokens, UINT32_MAX);
	r->relay.client = j->client;
	r->relay.worker = d->worker;
	r->relay.isl = j->isl;
	if (w == NULL)
		return -ENOENT;
	r->relay.agent = w->path;
	r->relay.epoch = w->epoch;
	/* From one address family to the other the agent's socket does not reach the client. */
	r->relay.direct = (j->flags & KVR_REQ_F_DIRECT) != 0 && j->client.family == w->path.family;
	return 0;
}

void sched_go_on(struct lcore *lc, struct pool *p, struct kvr_flight *r)
{
	struct job *j = r->job;

	if (r->legs != NULL) {
		legs_go_on(lc, p, r);
		return;
	}
	r->job = NULL;
	if (p->predict)
		predict(lc, p, j, r->rank, r->relay.worker);
	dispatch(lc, p, r, j);
	sched_accepted(lc, p, r);
	if (send_job(r) != j)
		job_free(lc, j);
}

/* A request was booked, at once or after waiting: dispatch it, answer, predict its blocks. */
static void routed(struct lcore *lc, struct pool *p, struct kvr_flight *r, struct job *j,
		   const struct kvr_sched_decision *d)
{
	if (unlikely(sched_bind(lc, p, r, j, d) < 0)) {
		/* The scheduler has heard of the worker before this lcore's view has. */
		job_free(lc, j);
		sched_fail(lc, p, r, KVR_E_WORKER_LOST, 0, PC_LOST);
		return;
	}
	r->job = j;
	if (session_routed(lc, p, r, &j->session)) {
		sched_step(r, KVR_LIFE_HOLD);
		sched_accepted(lc, p, r);
	} else {
		sched_go_on(lc, p, r);
	}
}

/* Decide; a request whose session names a worker that cannot take it is decided anew without. */
static enum kvr_sched_result decide_whole(struct lcore *lc, struct pool *p, uint32_t slot,
					  struct job *j, struct kvr_sched_decision *d)
{
	struct kvr_sched_overlap ov;

	do {
		overlap_view(j->overlap, &ov);
		decide(lc, p, j, slot, &j->req, &ov, d);
	} while (d->result == KVR_SCHED_ERROR &&
		 session_unpin(p, &j->session, &j->hints, d->err, j->req.query_only));
	return d->result;
}

/* @return true: refused for its session, and answered. */
static bool session_refused(struct lcore *lc, struct pool *p, struct job *j)
{
	enum kvr_wire_code code = session_enter(lc, p, &j->session, &j->hints, j->req.query_only);
	struct refusal why = {0};

	if (code == KVR_OK && j->session.reserved && !share_session_open(p, j))
		code = KVR_E_SOURCE_LIMIT;
	if (code == KVR_OK && j->session.reserved)
		code = job_hold(j); /* it will wait for its worker's answer */
	if (likely(code == KVR_OK))
		return false;
	pool_count(p, PC_REJECTED, 1);
	/* What its worker has not said may be otherwise in a moment. */
	why.code = code;
	why.retry = code == KVR_E_SESSION_OPEN_FAILED ? RETRY_YES : RETRY_BY_CODE;
	excess_detail(j, &why);
	refuse_job(lc, j, &why);
	return true;
}

static void answer_query(struct lcore *lc, struct pool *p, struct job *j)
{
	struct kvr_wire_accepted a = {.state = KVR_STATE_QUERY, .prefill_dp_rank = KVR_NONE32};
	struct kvr_sched_decision d = {0};
	enum kvr_wire_code code = KVR_OK;

	if (session_refused(lc, p, j))
		return;
	if (legs_wanted(lc, p, j)) {
		code = legs_query(lc, p, j, &a, &d);
	} else {
		a.path = p->prefill != NULL ? KVR_PATH_BYPASSED : KVR_PATH_AGGREGATED;
		/* No slot is touched by a query; any number in range will do. */
		if (decide_whole(lc, p, 0, j, &d) != KVR_SCHED_QUERY)
			code = sched_code(d.err);
	}
	if (code != KVR_OK) {
		pool_count(p, PC_REJECTED, 1);
		reject_job(lc, j, code, &d);
		return;
	}
	pool_count(p, PC_QUERIES, 1);
	a.worker = d.worker;
	a.dp_rank = d.dp_rank;
	a.overlap_blocks = d.overlap_blocks;
	a.required_blocks = d.required_blocks;
	a.cached_tokens = (uint32_t)RTE_MIN(d.cached_tokens, UINT32_MAX);
	out_message(lc, &j->client, KVR_ACCEPTED, j->source, j->id, 0, &a, sizeof(a));
	job_free(lc, j);
}

/* What every rank would have to do, draining ones too; nothing is chosen. */
static void on_loads(struct lcore *lc, struct pool *p, const struct note *n)
{
	struct job *j = n->ptr;
	struct kvr_sched_overlap ov;
	struct kvr_sched_pending waiting;
	struct kvr_wire_loads head;
	struct kvr_wire_hdr h = *job_header(j);
	uint32_t ranks;

	overlap_view(j->overlap, &ov);
	kvr_sched_pending(p->sched, &waiting);
	ranks = kvr_sched_loads(p->sched, &j->req, &ov, lc->now_ns, p->loads, p->max_ranks);
	for (uint32_t i = 0; i < ranks; i++)
		p->loads_wire[i] = (struct kvr_wire_rank_potential){
			.worker = p->loads[i].worker,
			.dp_rank = p->loads[i].dp_rank,
			.active_requests = p->loads[i].active_requests,
			.prefill_tokens = p->loads[i].potential_prefill_tokens,
			.decode_blocks = p->loads[i].potential_decode_blocks,
		};
	head = (struct kvr_wire_loads){
		.n_ranks = ranks, .queue_len = waiting.count, .pending_tokens = waiting.isl_tokens};
	h.kind = KVR_LOADS;
	h.epoch = lc->rt->epoch;
	h.handle = 0;
	h.msg_len = (uint32_t)(sizeof(head) + ranks * sizeof(p->loads_wire[0]));
	h.msg_seq = (uint32_t)kvr_stats_get(p->count, PC_LOADS); /* answers differ */
	out_slices(lc, &h,
		   (const struct kvr_slice[]){
			   {&head, sizeof(head)},
			   {p->loads_wire, ranks * (uint32_t)sizeof(p->loads_wire[0])}},
		   2, &j->client);
	pool_count(p, PC_LOADS, 1);
	job_free(lc, j);
}

/*
 * ROUTE of a request that is known: say again what was said, send again what may be lost. A
 * request whose stream has ended is still RUNNING to a client that has not acknowledged the end:
 * the worker repeats the items.
 */
static void repeated(struct lcore *lc, struct pool *p, struct kvr_flight *r, struct job *j)
{
	pool_count(p, PC_REPEATS, 1);
	if (!is_client(p, r, &j->client)) {
		reject_job(lc, j, KVR_E_NOT_ALLOWED, NULL);
		return;
	}
	r->heard_ns = lc->now_ns;
	if (r->end.code != KVR_OK) {
		const struct refusal why = said(&r->end);

		refuse_job(lc, j, &why);
		return;
	}
	if (j->digest != r->digest) {
		reject_job(lc, j, KVR_E_DUPLICATE_REQUEST, NULL);
		return;
	}
	/* Legs, and messages of several frames while they are here, are sent again by the router
	 * itself. */
	if (r->state == KVR_RQ_DISPATCHED && (j->flags & KVR_REQ_F_RESEND) != 0 &&
	    r->legs == NULL && send_job(r) == NULL) {
		r->attempt++;
		dispatch(lc, p, r, j);
	}
	sched_accepted(lc, p, r);
	if (send_job(r) != j)
		job_free(lc, j);
}

static void on_route(struct lcore *lc, struct pool *p, const struct note *n)
{
	struct job *j = n->ptr;
	struct kvr_sched_decision d;
	struct refusal ended;
	struct kvr_flight *r;
	enum kvr_wire_code code;

	pool_count(p, PC_ROUTES, 1);
	if (j->req.query_only) {
		answer_query(lc, p, j);
		return;
	}
	r = kvr_flight_lookup(p->requests, j->source, j->id);
	if (r != NULL) {
		repeated(lc, p, r, j);
		return;
	}
	if (unlikely(has_ended(p, j->source, j->id, &ended))) {
		pool_count(p, PC_REPEATS, 1);
		refuse_job(lc, j, &ended);
		return;
	}
	if (unlikely(p->closed)) {
		pool_count(p, PC_REJECTED, 1);
		reject_job(lc, j, KVR_E_SHUTDOWN, NULL);
		return;
	}
	if (unlikely(!share_slot_may(p, j))) {
		pool_count(p, PC_REJECTED, 1);
		reject_job(lc, j, KVR_E_SOURCE_LIMIT, NULL);
		return;
	}
	if (session_refused(lc, p, j))
		return;
	r = sched_slot(p, j->source, j->id, true);
	if (unlikely(r == NULL)) {
		pool_count(p, PC_REJECTED, 1);
		reject_job(lc, j, KVR_E_NO_MEMORY, NULL);
		return;
	}
	share_slot_take(p, r, j);
	r->heard_ns = j->arrival_ns;
	r->digest = j->digest;
	r->relay.client = j->client;
	if (legs_wanted(lc, p, j)) {
		code = job_hold(j);
		if (likely(code == KVR_OK)) {
			legs_start(lc, p, r, j);
			return;
		}
		pool_count(p, PC_REJECTED, 1);
		slot_release(p, r);
		reject_job(lc, j, code, NULL);
		return;
	}
	if (p->prefill != NULL) {
		pool_count(p, PC_BYPASSED, 1);
		r->path = KVR_PATH_BYPASSED;
	}
	switch (decide_whole(lc, p, r->slot, j, &d)) {
	case KVR_SCHED_ROUTED:
		pool_count(p, PC_ROUTED, 1);
		routed(lc, p, r, j, &d);
		break;
	case KVR_SCHED_QUEUED:
		code = job_hold(j);
		if (unlikely(code != KVR_OK)) {
			kvr_sched_cancel(p->sched, r->slot, lc->now_ns);
			pool_count(p, PC_REJECTED, 1);
			slot_release(p, r);
			reject_job(lc, j, code, NULL);
			break;
		}
		pool_count(p, PC_QUEUED, 1);
		r->relay.isl = j->isl;
		r->job = j;
		sched_accepted(lc, p, r);
		break;
	default:
		pool_count(p, PC_REJECTED, 1);
		slot_release(p, r);
		reject_job(lc, j, sched_code(d.err), &d);
	}
}

/* ---- what happens to a request later ---- */

static void on_dispatch_ack(struct lcore *lc, struct pool *p, const struct note *n)
{
	struct kvr_flight *r = kvr_flight_by_handle(p->requests, n->handle);

	if (!sched_may(p, r, n->code != 0 ? KVR_LIFE_REFUSED : KVR_LIFE_TAKEN))
		return;
	if (r->legs != NULL)
		legs_acked(lc, p, r, n->code);
	else if (n->code != 0)
		sched_fail(lc, p, r, KVR_E_DISPATCH_FAILED, n->code, PC_REFUSED);
	else
		sched_step(r, KVR_LIFE_TAKEN);
	if (n->code == 0)
		session_success(lc, p, r);
}

static void on_progress(struct lcore *lc, struct pool *p, const struct note *n)
{
	struct kvr_flight *r = kvr_flight_by_handle(p->requests, n->handle);
	const bool fin = (n->flags & KVR_PROG_F_FIN) != 0;
	enum pool_counter how = PC_FINISHED;

	if (!sched_may(p, r, fin ? KVR_LIFE_FIN : KVR_LIFE_ITEM)) {
		rte_pktmbuf_free(n->ptr);
		return;
	}
	if ((n->flags & KVR_PROG_F_ERROR) == 0)
		session_success(lc, p, r);
	if (r->relay.leg == KVR_FLIGHT_PREFILL) {
		legs_prefill_item(lc, p, r, n);
		return;
	}
	sched_step(r, KVR_LIFE_ITEM);
	if (r->legs != NULL)
		legs_decode_item(lc, p, r, n);
	if ((n->flags & KVR_PROG_F_FIRST) != 0)
		kvr_sched_prefill_done(p->sched, r->slot, lc->now_ns);
	if (n->tokens != 0)
		kvr_sched_output(p->sched, r->slot, n->tokens, lc->now_ns);
	if (!fin)
		return;
	if (n->cached != KVR_NONE32) {
		pool_count(p, PC_PREDICTED_TOKENS, r->cached_tokens);
		pool_count(p, PC_ACTUAL_TOKENS, n->cached);
	}
	if ((n->flags & (KVR_PROG_F_ERROR | KVR_PROG_F_CANCELLED)) != 0)
		how = (n->flags & KVR_PROG_F_ERROR) != 0 ? PC_ERRORED : PC_CANCELLED;
	sched_end(lc, p, r, how);
	if (r->legs != NULL)
		legs_decode_done(lc, p, r, how);
	abort_stop(p, r);
}

static void on_fin_acked(struct lcore *lc, struct pool *p, const struct note *n)
{
	struct kvr_flight *r = kvr_flight_by_handle(p->requests, n->handle);

	RTE_SET_USED(lc);
	if (sched_may(p, r, KVR_LIFE_FIN_ACKED))
		release(p, r);
}

/* CANCEL and PROBE name (source, id) alone when the client has no handle yet: the pools are asked
 * in turn, and the last one answers for all. */
static void on_cancel(struct lcore *lc, struct pool *p, const struct note *n)
{
	const struct kvr_wire_hdr *h =
		rte_pktmbuf_mtod((struct rte_mbuf *)n->ptr, const struct kvr_wire_hdr *);
	struct kvr_flight *r = kvr_flight_lookup(p->requests, h->source, h->id);

	if (r == NULL && note_next_pool(lc, p, n) == 0)
		return;
	if (r != NULL && !is_client(p, r, path_kept(n->ptr))) {
		out_reject_frame(lc, n->ptr, path_kept(n->ptr),
				 &(const struct refusal){.code = KVR_E_NOT_ALLOWED});
		return;
	}
	if (r != NULL && r->legs != NULL) {
		legs_cancel(lc, p, r);
	} else if (r != NULL && r->state == KVR_RQ_QUEUED) {
		kvr_sched_cancel(p->sched, r->slot, lc->now_ns);
		leave_queue(lc, p, r, KVR_E_ENDED);
	} else if (r != NULL && r->state != KVR_RQ_ENDED) {
		r->end.code = KVR_E_ENDED; /* by its client's wish */
		sched_end(lc, p, r, PC_CANCELLED);
		sched_abort(lc, p, r);
	}
	out_message(lc, path_kept(n->ptr), KVR_CANCELLED, h->source, h->id,
		    r != NULL ? kvr_flight_handle(p->requests, r) : h->handle, NULL, 0);
	rte_pktmbuf_free(n->ptr);
}

static void on_probe(struct lcore *lc, struct pool *p, const struct note *n)
{
	const struct kvr_wire_hdr *h =
		rte_pktmbuf_mtod((struct rte_mbuf *)n->ptr, const struct kvr_wire_hdr *);
	struct kvr_flight *r = kvr_flight_lookup(p->requests, h->source, h->id);
	struct refusal why = {.code = KVR_E_UNKNOWN_REQUEST};
	bool ended = has_ended(p, h->source, h->id, &why);

	if (r == NULL && !ended && note_next_pool(lc, p, n) == 0)
		return;
	if (r == NULL) {
		out_reject_frame(lc, n->ptr, path_kept(n->ptr), &why);
		return;
	}
	if (!is_client(p, r, path_kept(n->ptr))) {
		out_reject_frame(lc, n->ptr, path_kept(n->ptr),
				 &(const struct refusal){.code = KVR_E_NOT_ALLOWED});
		return;
	}
	r->heard_ns = lc->now_ns;
	if (r->end.code != KVR_OK) {
		why = said(&r->end);
		why.handle = h->handle;
		out_reject(lc, &r->relay.client, h->kind, h->source, h->id, &why);
	} else {
		sched_accepted(lc, p, r);
	}
	rte_pktmbuf_free(n->ptr);
}

static void on_abort_ack(struct lcore *lc, struct pool *p, const struct note *n)
{
	struct kvr_flight *r = kvr_flight_by_handle(p->requests, n->handle);

	RTE_SET_USED(lc);
	if (sched_may(p, r, KVR_LIFE_ABORT_ACKED))
		abort_stop(p, r);
}

/*
 * Look at a part of the slots each tick (10 ms), all of them every 160 ms: waiting requests whose
 * client has said how long it wants to wait, or has not been heard for long. Clients that wait
 * send PROBE every 2 s at least.
 */
static void deadlines(struct lcore *lc, struct pool *p)
{
	const uint64_t gone_ns = lc->rt->conf.opt.client_timeout_ms * UINT64_C(1000000);
	const uint32_t n = kvr_flight_size(p->requests);
	bool gone;

	if (kvr_sched_counters(p->sched)->waiting_now == 0 && p->n_prefilling == 0)
		return;
	for (uint32_t i = 0; i < n / 16 + 1; i++) {
		struct kvr_flight *r = kvr_flight_slot(p->requests, p->sweep);
		struct job *j = r->job;

		p->sweep = p->sweep + 1 == n ? 0 : p->sweep + 1;
		if (r->state != KVR_RQ_QUEUED || r->relay.leg == KVR_FLIGHT_PREFILL ||
		    r->end.code != KVR_OK)
			continue;
		gone = since_ns(lc->now_ns, r->heard_ns) > gone_ns;
		if (!gone && (j->deadline_ns == 0 || lc->now_ns < j->deadline_ns))
			continue;
		pool_count(p, PC_CLIENT_GONE, gone);
		if (r->legs != NULL) {
			if (gone)
				legs_cancel(lc, p, r);
			else
				legs_late(lc, p, r);
			continue;
		}
		kvr_sched_cancel(p->sched, r->slot, lc->now_ns);
		out_reject(lc, &r->relay.client, KVR_ROUTE, r->relay.source, r->relay.id,
			   &(const struct refusal){.code = KVR_E_EXPIRED});
		leave_queue(lc, p, r, KVR_E_EXPIRED);
	}
}

bool sched_tick(struct lcore *lc, void *arg)
{
	struct pool *p = arg;
	uint32_t slot[BURST], got;

	got = kvr_sched_expire(p->sched, lc->now_ns, slot, BURST);
	for (uint32_t i = 0; i < got; i++) {
		struct kvr_flight *r = kvr_flight_slot(p->requests, slot[i]);

		r->booked = 0;
		if (r->legs != NULL) {
			legs_expired(lc, p, r);
			continue;
		}
		sched_fail(lc, p, r, KVR_E_EXPIRED, 0, PC_EXPIRED);
		sched_abort(lc, p, r);
	}
	if (got == BURST)
		return false;
	deadlines(lc, p);
	return true;
}

static void on_missing(struct lcore *lc, struct pool *p, const struct note *n)
{
	const struct kvr_wire_hdr *h = rte_pktmbuf_mtod((struct rte_mbuf *)n->ptr, const void *);
	struct kvr_flight *r = kvr_flight_by_handle(p->requests, n->handle);

	if (r != NULL)
		send_missing(lc, p, r, kvr_frame_body(h));
	rte_pktmbuf_free(n->ptr);
}

static void (*const handlers[])(struct lcore *, struct pool *, const struct note *) = {
	[NOTE_ROUTE] = on_route,
	[NOTE_CANCEL] = on_cancel,
	[NOTE_PROBE] = on_probe,
	[NOTE_DISPATCH_ACK] = on_dispatch_ack,
	[NOTE_PROGRESS] = on_progress,
	[NOTE_FIN_ACKED] = on_fin_acked,
	[NOTE_ABORT_ACK] = on_abort_ack,
	[NOTE_SESSION_OPENED] = session_on_opened,
	[NOTE_SESSION_CLOSED] = session_on_closed,
	[NOTE_SESSION_RELEASE] = session_on_release,
	[NOTE_MISSING] = on_missing,
	[NOTE_LOADS] = on_loads,
};

/* ---- time ---- */

void sched_not_admitted(struct lcore *lc, struct pool *p, struct kvr_flight *r,
			const struct kvr_sched_decision *d)
{
	struct refusal why = sched_refusal(p, sched_code(d->err));
	struct job *j = r->job;

	if (r->legs != NULL) {
		legs_admitted(lc, p, r, d);
		return;
	}
	r->job = NULL;
	sched_detail(d, why.detail);
	sched_says(r, &why);
	refuse_job(lc, j, &why);
	sched_end(lc, p, r, PC_QUEUE_FAILED);
}

/* Waiting requests whose turn has come, or whose admission failed. */
static void admit(struct lcore *lc, struct pool *p)
{
	struct kvr_sched_decision d[8];
	uint32_t got;

	do {
		got = decide_waiting(lc, p, d, RTE_DIM(d));
		for (uint32_t i = 0; i < got; i++) {
			struct kvr_flight *r = kvr_flight_slot(p->requests, d[i].slot);
			struct job *j = r->job;

			if (r->legs != NULL || d[i].result != KVR_SCHED_ROUTED) {
				sched_not_admitted(lc, p, r, &d[i]);
				continue;
			}
			r->job = NULL;
			pool_count(p, PC_ADMITTED, 1);
			routed(lc, p, r, j, &d[i]);
		}
	} while (got == RTE_DIM(d));
}

static void timers(struct lcore *lc, struct pool *p)
{
	struct kvr_flight *r;

	/* As many as can end in a turn, and a few of what has piled up. */
	for (uint32_t i = 0; i < 2 * BURST; i++) {
		r = kvr_flight_lingered(p->requests, lc->now_ns);
		if (r == NULL)
			break;
		release(p, r);
	}
	while ((r = TAILQ_FIRST(&p->aborts)) != NULL && r->abort_ns <= lc->now_ns) {
		TAILQ_REMOVE(&p->aborts, r, abort_link);
		if (r->abort_tries == 0) {
			r->abort_ns = 0;
			continue;
		}
		TAILQ_INSERT_TAIL(&p->aborts, r, abort_link);
		abort_send(lc, p, r);
	}
	send_poll(lc, p);
	session_timers(lc, p);
}

void sched_dropped(void *arg, uint32_t slot, uint32_t rank)
{
	struct pool *p = arg;
	struct kvr_flight *r = kvr_flight_slot(p->requests, slot);

	RTE_SET_USED(rank);
	r->booked = 0;
	if (r->legs != NULL) {
		legs_dropped(p, r);
		return;
	}
	sched_fail(p->sched_lcore, p, r, KVR_E_WORKER_LOST, 0, PC_LOST);
}

static void prefetch_first(const struct job *j)
{
	rte_prefetch0(&j->req);
	rte_prefetch0(&j->session);
}

static void prefetch_job(struct pool *p, const struct job *j, struct kvr_active_ahead *ahead,
			 int step)
{
	if (step <= 2 && j->session.key.len != 0 && p->sessions != NULL)
		kvr_session_prefetch(p->sessions->table, &j->session.key, step - 1);
	kvr_sched_prefetch_route(p->sched, &j->req, ahead);
}

static void prefetch_note(struct pool *p, const struct note *n, struct kvr_active_ahead *ahead,
			  int step)
{
	if (n->type == NOTE_ROUTE && step == 0)
		prefetch_first(n->ptr);
	else if (n->type == NOTE_ROUTE)
		prefetch_job(p, n->ptr, ahead, step);
	else if (n->type == NOTE_PROGRESS && step > 0)
		kvr_sched_prefetch(p->sched, (uint32_t)n->handle & (KVR_FLIGHT_MAX_SLOTS - 1),
				   step - 1);
}

/* Before note i is handled: the next step of some notes behind it. Each step reads what the one
 * before has fetched; see kvr_sched_prefetch().
 */
static void fetch_ahead(struct pool *p, const struct note n[], int got,
			struct kvr_active_ahead ahead[], int i)
{
	for (int step = 0; step < STEPS_AHEAD; step++) {
		int at = i + 2 * (STEPS_AHEAD - step);

		if (at >= 0 && at < got)
			prefetch_note(p, &n[at], &ahead[at], step);
	}
}

void sched_gauges(struct pool *p)
{
	kvr_stats_set(p->count, PC_WAITING, kvr_sched_counters(p->sched)->waiting_now);
	kvr_stats_set(p->count, PC_LIVE, kvr_sched_counters(p->sched)->booked_now);
	kvr_stats_set(p->count, PC_PREFILLING, p->n_prefilling);
	if (p->sessions != NULL)
		kvr_stats_set(p->sessions->count, SC_LIVE, kvr_session_count(p->sessions->table));
}

uint32_t sched_poll(struct lcore *lc, struct pool *p)
{
	struct kvr_active_ahead ahead[BURST] = {0};
	struct note n[BURST];
	uint32_t got = rte_ring_dequeue_burst_elem(p->notes, n, sizeof(n[0]), BURST, NULL);

	legs_lost(lc, p);
	for (uint32_t i = 0; i < got; i++)
		if (n[i].handle != 0)
			kvr_flight_prefetch(p->requests, n[i].handle);
	for (int i = got > 1 ? -2 * STEPS_AHEAD : 0; i < (int)got; i++) {
		fetch_ahead(p, n, (int)got, ahead, i);
		if (i >= 0)
			handlers[n[i].type](lc, p, &n[i]);
	}
	admit(lc, p);
	timers(lc, p);
	sched_gauges(p);
	return got;
}

bool sched_refresh(void *arg, uint32_t slot, const struct kvr_sched_req *req,
		   struct kvr_sched_overlap *out)
{
	struct pool *p = arg;
	const struct kvr_flight *r = kvr_flight_slot(p->requests, slot);
	const struct job *j = r->job;
	struct kvr_overlap *o = r->relay.leg == KVR_FLIGHT_PREFILL ? j->legs->overlap : j->overlap;
	const struct kvr_prefix_query q = {req->sh, req->n, o};

	/* The scheduler lcore is a reader of the table like the ingress lcores. */
	kvr_prefix_score_burst(p->prefix, &q, 1);
	overlap_pad(o);
	overlap_view(o, out);
	return true;
}
