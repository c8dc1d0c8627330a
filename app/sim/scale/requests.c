/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests as lib/request has them, from their arrival to their last token: its orders become calls
 * of the scheduler and the prefix table, and what engines do becomes its events. Frames there are
 * none: a request that is sent is at its engine.
 */
#include "cluster.h"

#include "kvr_request.h"

#include <stdio.h>
#include <stdlib.h>

struct life {
	struct kvr_request r;
	struct kvr_rq_msg msg;
};

struct lives {
	struct kvr_pool_conf conf;
	struct kvr_rq_pool pool;
	struct kvr_rand rand;
	kvr_cell_t count[KVR_RQC_N];
	struct life *of; /* by slot */
};

static bool worker(void *arg, const struct kvr_rq_pool *p, uint64_t id, struct kvr_rq_worker *out)
{
	const struct cluster *s = arg;

	(void)p;
	*out = (struct kvr_rq_worker){.epoch = 1, .dp_size = 1};
	return id < s->c.ranks;
}

static const struct kvr_rq_ops ops = {.worker = worker};

void cluster_request_begin(struct cluster *s, const struct kvr_pool_conf *c)
{
	struct lives *l = cluster_alloc(1, sizeof(*l));

	l->conf = *c;
	l->of = cluster_alloc(s->c.slots, sizeof(*l->of));
	kvr_rand_init(&l->rand, s->c.seed);
	kvr_request_pool_init(&l->pool, &l->conf, NULL, l->count);
	l->pool.predict = s->predict;
	s->lives = l;
}

void cluster_request_end(struct cluster *s)
{
	struct lives *l = s->lives;

	if (l == NULL)
		return;
	if (kvr_cell_get(&l->count[KVR_RQC_NEVER]) != 0 ||
	    kvr_cell_get(&l->count[KVR_RQC_LATE]) != 0 ||
	    kvr_cell_get(&l->count[KVR_RQC_ARRIVED]) != kvr_cell_get(&l->count[KVR_RQC_DONE])) {
		fprintf(stderr, "quality: lives of requests that are not whole\n");
		exit(1);
	}
	free(l->of);
	free(l);
	s->lives = NULL;
}

/* ---- orders ------------------------------------------------------------------------------ */

static bool carry_out(struct cluster *s, uint32_t slot, const struct kvr_rq_order *o)
{
	struct life *l = &s->lives->of[slot];
	struct cluster_req *r = s->of_slot[slot];

	switch (o->kind) {
	case KVR_RQO_SEND:
		r->rank = (uint32_t)l->r.leg[KVR_LEG_MAIN].worker;
		return true;
	case KVR_RQO_KEEP:
		kvr_sched_renew(s->sched, slot, s->now);
		break;
	case KVR_RQO_PREFILL_DONE:
		kvr_sched_prefill_done(s->sched, slot, s->now);
		break;
	case KVR_RQO_OUTPUT:
		kvr_sched_output(s->sched, slot, o->n, s->now);
		break;
	case KVR_RQO_FREE:
		kvr_sched_finish(s->sched, slot, s->now);
		break;
	case KVR_RQO_PREDICT:
		kvr_prefix_predict(s->table, (uint16_t)l->r.leg[KVR_LEG_MAIN].rank, l->msg.req.sh,
				   l->msg.req.n, s->now / CLUSTER_MS, (uint32_t)s->predict_ms);
		break;
	case KVR_RQO_RELEASE:
		s->slot_free[s->n_free++] = slot;
		break;
	case KVR_RQO_REJECTED:
		fprintf(stderr, "quality: rejected: %s\n",
			kvr_code_name((enum kvr_code)o->why.code));
		exit(1);
	default:
		break;
	}
	return false;
}

static void decide(struct cluster *s, uint32_t slot, const struct kvr_rq_order *o,
		   struct kvr_sched_decision *d)
{
	struct kvr_sched_overlap ov = {0};

	cluster_look_up(s, slot, o->req, &ov);
	kvr_sched_route(s->sched, slot, o->req, &ov, s->now, d);
}

/* Orders, and the answers to those that are questions. @return it is sent. */
static bool carry(struct cluster *s, uint32_t slot, struct kvr_rq_orders *out)
{
	const struct kvr_rq_ctx c = {&ops, s, s->now, &s->lives->rand};
	struct kvr_sched_decision d;
	bool sent = false;

	while (out->n > 0) {
		const uint32_t last = out->v[out->n - 1].kind;
		struct kvr_rq_event answer = {.kind = KVR_RQE_ROOM};

		for (uint32_t i = 0; i < out->n; i++)
			sent = carry_out(s, slot, &out->v[i]) || sent;
		if (last == KVR_RQO_DECIDE) {
			decide(s, slot, &out->v[out->n - 1], &d);
			answer = (struct kvr_rq_event){
				.kind = (uint8_t)kvr_request_decided(&d, false), .d = &d};
		} else if (last != KVR_RQO_HOLD) {
			break;
		}
		kvr_request_step(&c, &s->lives->of[slot].r, &answer, out);
	}
	return sent;
}

static bool step(struct cluster *s, uint32_t slot, struct kvr_rq_event e)
{
	const struct kvr_rq_ctx c = {&ops, s, s->now, &s->lives->rand};
	struct kvr_rq_orders out;

	kvr_request_step(&c, &s->lives->of[slot].r, &e, &out);
	return carry(s, slot, &out);
}

/* ---- events ------------------------------------------------------------------------------ */

bool cluster_request_arrive(struct cluster *s, struct cluster_req *q)
{
	const struct kvr_rq_ctx c = {&ops, s, s->now, &s->lives->rand};
	struct life *l = &s->lives->of[q->slot];
	struct kvr_rq_orders out;

	l->msg = (struct kvr_rq_msg){.req = {.sh = q->sh, .n = q->n, .isl = q->isl}};
	kvr_request_arrive(&c, &l->r, &s->lives->pool, &l->msg, NULL, &out);
	return carry(s, q->slot, &out);
}

void cluster_request_admitted(struct cluster *s, const struct kvr_sched_decision *d)
{
	step(s, d->slot,
	     (struct kvr_rq_event){.kind = (uint8_t)kvr_request_decided(d, true), .d = d});
}

void cluster_request_taken(struct cluster *s, const struct cluster_req *q)
{
	step(s, q->slot, (struct kvr_rq_event){.kind = KVR_RQE_TAKEN});
}

void cluster_request_prefilled(struct cluster *s, const struct cluster_req *q)
{
	if (q->osl > 1)
		step(s, q->slot,
		     (struct kvr_rq_event){
			     .kind = KVR_RQE_ITEM, .flags = KVR_RQEF_FIRST, .tokens = 1});
}

void cluster_request_ended(struct cluster *s, const struct cluster_req *q)
{
	const uint32_t first = q->osl > 1 ? 0 : KVR_RQEF_FIRST;

	step(s, q->slot,
	     (struct kvr_rq_event){
		     .kind = KVR_RQE_FIN, .flags = (uint16_t)first, .tokens = q->osl});
	step(s, q->slot, (struct kvr_rq_event){.kind = KVR_RQE_LINGERED});
}
